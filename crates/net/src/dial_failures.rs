//! Collects the addresses at which dialing has failed, each with the most specific reason so far.

use std::collections::BTreeMap;

use crate::peer_addr::PeerAddr;
use crate::transport::Incoming;

/// Reason why dialing an address failed, from the least to the most specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DialFailure {
    /// No answer yet; a later attempt may succeed.
    NoAnswer,
    /// Another peer than the expected one, or this site itself, answers at this address.
    WrongPeer,
    /// The peer at the address rejected this site's secret or token.
    WrongSecret,
}

/// Addresses at which dialing has failed, each with its most specific reason so far.
#[derive(Debug, Default)]
pub(crate) struct DialFailures(BTreeMap<PeerAddr, DialFailure>);

impl DialFailures {
    /// Records a dial failure reported by a transport; other reports are ignored.
    pub(crate) fn record(&mut self, incoming: Incoming) {
        let (addr, failure) = match incoming {
            Incoming::Unreachable { addr, wrong_secret: true } => (addr, DialFailure::WrongSecret),
            Incoming::Unreachable { addr, wrong_secret: false } => (addr, DialFailure::NoAnswer),
            Incoming::WrongPeer { addr } => (addr, DialFailure::WrongPeer),
            Incoming::Connected { .. } | Incoming::Datagram { .. } | Incoming::Multicast { .. } => return,
        };
        let known = self.0.entry(addr).or_insert(failure);
        *known = failure.max(*known);
    }

    /// Returns the address with the most specific reason, and that reason; `None` if no dial has failed.
    pub(crate) fn worst(&self) -> Option<(&PeerAddr, DialFailure)> {
        self.0.iter().max_by_key(|(_, failure)| **failure).map(|(addr, failure)| (addr, *failure))
    }

    /// Returns whether further waiting is pointless: as many addresses as were `dialed` have failed, at least one of
    /// them because of a wrong peer or a wrong secret.
    pub(crate) fn is_final(&self, dialed: usize) -> bool {
        self.0.len() >= dialed && self.worst().is_some_and(|(_, failure)| failure > DialFailure::NoAnswer)
    }
}
