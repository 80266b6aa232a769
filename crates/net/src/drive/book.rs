//! Which peer is what address of the engine's.

use std::collections::BTreeMap;

use coplay::id::Addr;

use crate::key::PeerKey;
use crate::party::Party;

/// Those who watch have addresses from here on; those with a seat have that of their seat.
const FIRST_WATCHER: u64 = 1_000;
/// The most who have ever watched and are remembered; then the first are forgotten.
const MAX_WATCHERS: usize = 8_192;

/// Keys and addresses.
#[derive(Debug, Default)]
pub(super) struct Book {
    seats: BTreeMap<u64, PeerKey>,
    watchers: BTreeMap<PeerKey, u64>,
    keys: BTreeMap<u64, PeerKey>,
    next: u64,
}

/// What somebody may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has a seat: anything.
    Seated(Addr),
    /// It may watch, no more.
    Watching(Addr),
}

impl Book {
    pub(super) fn note_party(&mut self, party: &Party) {
        self.seats = party.members.iter().map(|member| (u64::from(member.site), member.key)).collect();
    }

    pub(super) fn standing(&mut self, key: PeerKey) -> Standing {
        if let Some((site, _)) = self.seats.iter().find(|(_, seated)| **seated == key) {
            return Standing::Seated(Addr(*site));
        }
        if let Some(addr) = self.watchers.get(&key) {
            return Standing::Watching(Addr(*addr));
        }
        if self.watchers.len() >= MAX_WATCHERS
            && let Some((_, first)) = self.keys.pop_first()
        {
            self.watchers.remove(&first);
        }
        let addr = FIRST_WATCHER + self.next;
        self.next += 1;
        self.watchers.insert(key, addr);
        self.keys.insert(addr, key);
        Standing::Watching(Addr(addr))
    }

    pub(super) fn key(&self, addr: Addr) -> Option<PeerKey> {
        self.seats.get(&addr.0).or_else(|| self.keys.get(&addr.0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::party::Member;

    #[test]
    fn who_has_a_seat_has_its_address_and_everybody_else_another() {
        let member = Member {
            site: 3,
            key: PeerKey([3; 32]),
            name: String::new(),
            pads: 1,
            places: vec![],
            ready: true,
            here: true,
        };
        let party = Party {
            serial: 1,
            session: 1,
            terms: vec![],
            started: true,
            members: vec![member],
            watchers: 0,
            you: None,
        };
        let mut book = Book::default();
        book.note_party(&party);
        assert_eq!(book.standing(PeerKey([3; 32])), Standing::Seated(Addr(3)));
        let stranger = book.standing(PeerKey([9; 32]));
        assert!(matches!(stranger, Standing::Watching(addr) if book.key(addr) == Some(PeerKey([9; 32]))));
        assert_eq!(book.standing(PeerKey([9; 32])), stranger, "always the same");
    }
}
