//! Addresses of peers, as text that other peers can pass on.

mod iroh_addr;

#[cfg(test)]
pub(crate) use iroh_addr::invalid_key;
pub use iroh_addr::{IrohAddr, MAX_SOCKET_ADDRS};

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of a peer address, in bytes.
pub const MAX_PEER_ADDR_LEN: usize = 200;

/// Address of a peer, as text in the syntax of its transport. [`brief`](Self::brief) returns a form for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PeerAddr(pub String);

impl PeerAddr {
    /// Returns a short form for messages: the first socket address of an iroh address (`a peer behind a relay` if there
    /// is none), or the whole text of any other address.
    pub fn brief(&self) -> String {
        match IrohAddr::from_peer_addr(self) {
            Some(iroh_addr) => {
                iroh_addr.addrs.first().map_or_else(|| "a peer behind a relay".into(), ToString::to_string)
            }
            None => self.0.clone(),
        }
    }
}

impl fmt::Display for PeerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
        let iroh_addr = IrohAddr { key: key.unwrap(), relay: Some("https://relay.example/".into()), addrs };
        assert!(iroh_addr.to_peer_addr().0.len() > 100);
        assert_eq!(iroh_addr.to_peer_addr().brief(), "192.0.2.1:7");
        assert_eq!(IrohAddr { addrs: vec![], ..iroh_addr }.to_peer_addr().brief(), "a peer behind a relay");
    }
}
