//! What carries datagrams between peers.

use std::fmt;

use coplay::time::Instant;
use serde::{Deserialize, Serialize};

use crate::iroh::IrohAddr;
use crate::key::PeerKey;

/// A way to send datagrams to peers. What comes from them is handed to a queue that is given when the transport is made.
///
/// A datagram arrives once, unchanged and from who it says, or not at all.
pub trait Transport: Send + Sync {
    /// Who we are.
    fn key(&self) -> PeerKey;

    /// Sends a datagram at once, without waiting. `false` if there is no way to the peer at the moment.
    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool;

    /// Tries to reach whoever is at a place, and goes on trying: anybody of the group, or only who is expected.
    fn dial(&self, place: &PeerAddr, expect: Option<PeerKey>);

    /// Stops trying to reach a peer that was expected somewhere. A way that there is stays.
    fn cancel_dial(&self, peer: &PeerKey);

    /// Where a peer can be reached, as far as we see; others may be told.
    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr>;

    /// Where we can be reached ourselves, as far as we know.
    fn own_addrs(&self) -> Vec<PeerAddr>;

    /// What came and was not for us.
    fn drop_counts(&self) -> DropCounts;
}

/// Where a peer may be: something that its transport understands. For people there is [`brief`](Self::brief).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerAddr(pub String);

impl PeerAddr {
    /// The place as people say it: an address, if it has one that can be said.
    pub fn brief(&self) -> String {
        match IrohAddr::from_peer_addr(self) {
            Some(home) => home.addrs.first().map_or_else(|| "the other end of a relay".into(), ToString::to_string),
            None => self.0.clone(),
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that a transport brings.
#[derive(Debug)]
pub enum Incoming {
    /// A datagram.
    Datagram {
        /// When it came.
        at: Instant,
        /// From whom.
        from: PeerKey,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// What somebody of a [group](crate::group) sent to many at once. Whoever has the group's key can have made it.
    Multicast {
        /// When it came.
        at: Instant,
        /// The site that it says it is from.
        site: u32,
        /// What it says.
        bytes: Vec<u8>,
    },
    /// There is a way to a peer, or a new one.
    Connected {
        /// Who it is.
        peer: PeerKey,
        /// Where we called it, if we did.
        dialed: Option<PeerAddr>,
    },
    /// Nobody has answered our call for a while.
    Unreachable {
        /// Where we call.
        addr: PeerAddr,
        /// Somebody is there, but does not answer us: the secret is another.
        wrong_secret: bool,
    },
    /// Who answers our call is not who was expected, or ourselves.
    WrongPeer {
        /// Where we called.
        addr: PeerAddr,
    },
}

/// Datagrams that were not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// By us: garbage, forgeries, repetitions, strangers.
    pub rejected: u64,
    /// By the operating system, because too many came at once.
    pub kernel_dropped: u64,
    /// Genuine ones for which there was no room in the queue.
    pub queue_full: u64,
}

impl DropCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.rejected + self.kernel_dropped + self.queue_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Identity;

    #[test]
    fn brief_form_of_peer_addr_is_a_socket_addr() {
        assert_eq!(PeerAddr("192.0.2.1:7000".into()).brief(), "192.0.2.1:7000");
        let addrs = ["192.0.2.1:7", "192.0.2.2:7", "[2001:db8::1]:7"].map(|addr| addr.parse().unwrap()).to_vec();
        let key = (0..)
            .map(|_| Identity::random().key())
            .find(|key| IrohAddr { key: *key, relay: None, addrs: vec![] }.is_valid());
        let home = IrohAddr { key: key.unwrap(), relay: Some("https://relay.example/".into()), addrs };
        assert!(home.to_peer_addr().0.len() > 100);
        assert_eq!(home.to_peer_addr().brief(), "192.0.2.1:7");
        assert_eq!(IrohAddr { addrs: vec![], ..home }.to_peer_addr().brief(), "the other end of a relay");
    }
}
