//! What people around a game tell each other, beside the game.

use serde::{Deserialize, Serialize};

use crate::key::PeerKey;
use crate::transport::PeerAddr;

/// Another version speaks another language here.
pub const PROTOCOL_VERSION: u16 = 4;
/// The longest name, in bytes.
pub const MAX_NAME_LEN: usize = 32;
/// The longest line of chat, in bytes.
pub const MAX_CHAT_LEN: usize = 400;
/// The longest place, in bytes.
pub const MAX_PEER_ADDR_LEN: usize = 200;
/// The most places of one member.
pub const MAX_PEER_ADDRS: usize = 8;
/// The most players at one computer: no machine has more pads.
pub const MAX_PADS: u8 = 8;
/// The longest terms.
const MAX_SETTINGS_LEN: usize = 4_096;

/// A message between two of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LobbyMessage {
    /// May I come in?
    JoinRequest(JoinRequest),
    /// No.
    Refused(JoinRefusal),
    /// Who is here and what is played, as the host knows it.
    Lobby(LobbyInfo),
    /// Whether I am ready to begin.
    Ready(bool),
    /// A line of chat, and who says it.
    Chat {
        /// Its name.
        name: String,
        /// What it says.
        text: String,
    },
    /// I am off.
    Bye,
    /// So many look on now. It changes often where many do, and is told without all the rest.
    SpectatorCount(u16),
    /// I can be reached elsewhere now.
    AddrsChanged(Vec<PeerAddr>),
}

/// Somebody wants to come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The version of this language.
    pub version: u16,
    /// What to call it.
    pub name: String,
    /// What it wants.
    pub intent: JoinIntent,
    /// Where others may reach it.
    pub addrs: Vec<PeerAddr>,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinIntent {
    /// Play, so many people at one computer.
    Play(u8),
    /// Look on.
    Spectate,
    /// Walk about in a world without a server, as one of a [group](crate::group): with the number of this run of its program.
    JoinMesh([u8; 16]),
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinRefusal {
    /// It speaks another version.
    VersionMismatch(u16),
    /// There is no seat free, or not so many players.
    Full,
    /// Nobody may look on.
    NoSpectators,
    /// Ask who keeps the list.
    NotLeader {
        /// Who that is.
        leader: PeerKey,
        /// Where it can be reached.
        addrs: Vec<PeerAddr>,
    },
    /// What is played here is of another kind: a world without a server, or none.
    WrongGameKind,
}

/// Everything about the people around one game.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LobbyInfo {
    /// Grows with every change.
    pub serial: u32,
    /// The number of the session.
    pub session: u64,
    /// The settings, as the engine writes them.
    pub settings: Vec<u8>,
    /// Whether it has begun.
    pub is_started: bool,
    /// Who has a seat, in order of seats.
    pub members: Vec<LobbyMember>,
    /// Whether others may look on.
    pub allows_spectators: bool,
    /// How many look on.
    pub spectator_count: u16,
    /// The seat of who gets this; `None` looks on.
    pub your_site: Option<u8>,
}

/// Somebody who has a seat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LobbyMember {
    /// The seat.
    pub site: u8,
    /// Who it is.
    pub key: PeerKey,
    /// What to call it.
    pub name: String,
    /// How many play there.
    pub pads: u8,
    /// Where it can be reached.
    pub addrs: Vec<PeerAddr>,
    /// Whether it is ready to begin.
    pub is_ready: bool,
    /// Whether it is here, as far as the host knows; a seat waits for who has it.
    pub is_present: bool,
}

impl LobbyMessage {
    /// As bytes.
    ///
    /// # Panics
    /// Never: nothing in a message can fail to be written.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a message can be written")
    }

    /// From bytes of somebody else's; `None` if they make no sense or say too much.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (message, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        (rest.is_empty() && message.is_within_limits()).then_some(message)
    }

    fn is_within_limits(&self) -> bool {
        let places = |places: &[PeerAddr]| {
            places.len() <= MAX_PEER_ADDRS && places.iter().all(|place| place.0.len() <= MAX_PEER_ADDR_LEN)
        };
        match self {
            Self::JoinRequest(knock) => {
                let pads = if let JoinIntent::Play(pads) = knock.intent { pads } else { 0 };
                knock.name.len() <= MAX_NAME_LEN && places(&knock.addrs) && pads <= MAX_PADS
            }
            Self::Chat { name, text: line } => name.len() <= MAX_NAME_LEN && line.len() <= MAX_CHAT_LEN,
            Self::Lobby(party) => {
                let member = |member: &LobbyMember| {
                    member.name.len() <= MAX_NAME_LEN && places(&member.addrs) && member.pads <= MAX_PADS
                };
                party.settings.len() <= MAX_SETTINGS_LEN
                    && party.members.len() <= coplay::id::MAX_SITES
                    && party.members.iter().all(member)
                    && party.members.iter().all(|member| usize::from(member.site) < coplay::id::MAX_SITES)
            }
            Self::AddrsChanged(told) | Self::Refused(JoinRefusal::NotLeader { addrs: told, .. }) => places(told),
            Self::Refused(_) | Self::Ready(_) | Self::Bye | Self::SpectatorCount(_) => true,
        }
    }
}

/// As much of a text as fits, without anything that is not to be seen.
pub(crate) fn sanitize(text: &str, most: usize) -> String {
    let mut tidy = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if tidy.len() + character.len_utf8() > most {
            break;
        }
        tidy.push(character);
    }
    tidy.trim().into()
}

/// Where others may be told to look for somebody: what it says itself, and what we see.
pub(crate) fn merge_addrs(told: &[PeerAddr], seen: Option<PeerAddr>) -> Vec<PeerAddr> {
    let mut places: Vec<PeerAddr> = seen.into_iter().chain(told.iter().cloned()).take(MAX_PEER_ADDRS).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lobby_messages_round_trip() {
        let knock = JoinRequest {
            version: PROTOCOL_VERSION,
            name: "Ann".into(),
            intent: JoinIntent::Play(2),
            addrs: vec![PeerAddr("here".into())],
        };
        let told = vec![PeerAddr("there".into())];
        let elsewhere = JoinRefusal::NotLeader { leader: PeerKey([7; 32]), addrs: told.clone() };
        let places = [LobbyMessage::AddrsChanged(told), LobbyMessage::Refused(elsewhere)];
        let short = [
            LobbyMessage::Refused(JoinRefusal::Full),
            LobbyMessage::Ready(true),
            LobbyMessage::Bye,
            LobbyMessage::SpectatorCount(900),
        ];
        for message in [LobbyMessage::JoinRequest(knock)].into_iter().chain(places).chain(short) {
            assert_eq!(LobbyMessage::from_bytes(&message.to_bytes()), Some(message));
        }
    }

    #[test]
    fn oversized_messages_are_rejected() {
        let name = "x".repeat(MAX_NAME_LEN + 1);
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Chat { name, text: String::new() }.to_bytes()), None);
        let line = "x".repeat(MAX_CHAT_LEN + 1);
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Chat { name: String::new(), text: line }.to_bytes()), None);
        let places = vec![PeerAddr("x".into()); MAX_PEER_ADDRS + 1];
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::AddrsChanged(places.clone()).to_bytes()), None);
        let elsewhere = JoinRefusal::NotLeader { leader: PeerKey([7; 32]), addrs: places };
        assert_eq!(LobbyMessage::from_bytes(&LobbyMessage::Refused(elsewhere).to_bytes()), None);
        let mut bytes = LobbyMessage::Bye.to_bytes();
        bytes.push(0);
        assert_eq!(LobbyMessage::from_bytes(&bytes), None);
    }

    #[test]
    fn too_many_pads_are_rejected() {
        let knock = |pads| JoinRequest {
            version: PROTOCOL_VERSION,
            name: "Ann".into(),
            intent: JoinIntent::Play(pads),
            addrs: vec![],
        };
        let member = |pads| LobbyMember {
            site: 0,
            key: PeerKey([7; 32]),
            name: "Ann".into(),
            pads,
            addrs: vec![],
            is_ready: true,
            is_present: true,
        };
        let party = |pads| LobbyInfo {
            serial: 1,
            session: 1,
            settings: vec![],
            is_started: false,
            members: vec![member(pads)],
            allows_spectators: true,
            spectator_count: 0,
            your_site: None,
        };
        let is_taken = |message: LobbyMessage| LobbyMessage::from_bytes(&message.to_bytes()).is_some();
        for (pads, taken) in [(1, true), (8, true), (9, false), (255, false)] {
            assert_eq!(is_taken(LobbyMessage::JoinRequest(knock(pads))), taken, "{pads} pads in a knock");
            assert_eq!(is_taken(LobbyMessage::Lobby(party(pads))), taken, "{pads} pads in a list");
        }
    }

    #[test]
    fn names_are_sanitized() {
        assert_eq!(sanitize(" An\x1b[31mn\n ", 32), "An[31mn");
        assert_eq!(sanitize("äöü", 3), "ä");
    }
}
