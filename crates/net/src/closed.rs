//! Places where nobody opens, and how much is known of why.

use std::collections::BTreeMap;

use crate::transport::{Incoming, Place};

/// How a place is closed to us; what comes first is least certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    /// Nobody answers; that may change.
    Silent,
    /// Somebody else answers.
    Stranger,
    /// The secret is another.
    Refused,
}

/// What is known of the places where nobody opened.
#[derive(Debug, Default)]
pub(crate) struct Closed(BTreeMap<Place, How>);

impl Closed {
    /// Takes note of what a transport says about a place.
    pub(crate) fn note(&mut self, incoming: Incoming) {
        let (place, how) = match incoming {
            Incoming::Unanswered { place, refused: true } => (place, How::Refused),
            Incoming::Unanswered { place, refused: false } => (place, How::Silent),
            Incoming::Stranger { place } => (place, How::Stranger),
            Incoming::Up { .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => return,
        };
        let known = self.0.entry(place).or_insert(how);
        *known = how.max(*known);
    }

    /// The place of which most is known.
    pub(crate) fn worst(&self) -> Option<(&Place, How)> {
        self.0.iter().max_by_key(|(_, how)| **how).map(|(place, how)| (place, *how))
    }

    /// Whether there is nothing to wait for: so many places are closed, and one of them for good.
    pub(crate) fn is_final(&self, places: usize) -> bool {
        self.0.len() >= places && self.worst().is_some_and(|(_, how)| how > How::Silent)
    }
}
