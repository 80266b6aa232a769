//! The five papers.

use crate::experiment::PaperInfo;

/// Paper on sharing single-computer games in lockstep.
pub static ZHAO: PaperInfo = PaperInfo {
    letter: "Z",
    authors: "Zhao, Li, Gu, Shao, Gu (2009)",
    title: "An Approach to Sharing Legacy TV/Arcade Games for Real-Time Collaboration",
};

/// Paper on recovering lost inputs by history retransmission, without extra packets.
pub static KIM: PaperInfo = PaperInfo {
    letter: "K",
    authors: "Kim, Park (2005)",
    title: "A History Retransmission Algorithm for Online Arcade Video Games",
};

/// Paper on worlds without a server, with dead reckoning.
pub static GAUTIER: PaperInfo = PaperInfo {
    letter: "G",
    authors: "Gautier, Diot, Kurose (1999)",
    title: "End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on the Internet",
};

/// Paper on mirrored game servers that drop obsolete events.
pub static PALAZZI: PaperInfo = PaperInfo {
    letter: "P",
    authors: "Palazzi, Ferretti, Cacciaguerra, Roccetti (2005)",
    title: "On Maintaining Interactivity in Event Delivery Synchronization for Mirrored Game Architectures",
};

/// Paper on continuous consistency in worlds with a server.
pub static LI: PaperInfo = PaperInfo {
    letter: "L",
    authors: "Li, Li, Lau (2004)",
    title: "Supporting Continuous Consistency in Multiplayer Online Games",
};
