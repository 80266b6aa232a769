//! Places where nobody opens, and how much is known of why.

use std::collections::BTreeMap;

use crate::transport::{Incoming, PeerAddr};

/// How a place is closed to us; what comes first is least certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DialFailure {
    /// Nobody answers; that may change.
    NoAnswer,
    /// Somebody else answers.
    WrongPeer,
    /// The secret is another.
    WrongSecret,
}

/// What is known of the places where nobody opened.
#[derive(Debug, Default)]
pub(crate) struct DialFailures(BTreeMap<PeerAddr, DialFailure>);

impl DialFailures {
    /// Takes note of what a transport says about a place.
    pub(crate) fn record(&mut self, incoming: Incoming) {
        let (place, how) = match incoming {
            Incoming::Unreachable { addr: place, wrong_secret: true } => (place, DialFailure::WrongSecret),
            Incoming::Unreachable { addr: place, wrong_secret: false } => (place, DialFailure::NoAnswer),
            Incoming::WrongPeer { addr: place } => (place, DialFailure::WrongPeer),
            Incoming::Connected { .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => return,
        };
        let known = self.0.entry(place).or_insert(how);
        *known = how.max(*known);
    }

    /// The place of which most is known.
    pub(crate) fn worst(&self) -> Option<(&PeerAddr, DialFailure)> {
        self.0.iter().max_by_key(|(_, how)| **how).map(|(place, how)| (place, *how))
    }

    /// Whether there is nothing to wait for: so many places are closed, and one of them for good.
    pub(crate) fn is_final(&self, places: usize) -> bool {
        self.0.len() >= places && self.worst().is_some_and(|(_, how)| how > DialFailure::NoAnswer)
    }
}
