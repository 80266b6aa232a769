//! Which peer is what address of the engine's.

use std::collections::BTreeMap;

use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};

use crate::key::PeerKey;
use crate::party::Party;

/// Those who watch have addresses from here on; those with a seat have that of their seat.
const FIRST_WATCHER: u64 = 1_000;
/// The most who watch and are remembered; then who was silent for longest is forgotten.
const MAX_WATCHERS: usize = 8_192;
/// Who was silent for so long is forgotten in any case: a computer may sleep.
const SILENT: TimeDelta = TimeDelta::from_secs(15 * 60);
const FORGET_EVERY: TimeDelta = TimeDelta::from_secs(10);

/// Keys and addresses.
#[derive(Debug, Default)]
pub(super) struct Book {
    seats: BTreeMap<u64, PeerKey>,
    watchers: BTreeMap<PeerKey, Watcher>,
    keys: BTreeMap<u64, PeerKey>,
    next: u64,
    next_forget: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Watcher {
    addr: u64,
    heard: Instant,
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

    /// Whether somebody has a seat.
    pub(super) fn is_seated(&self, key: &PeerKey) -> bool {
        self.seats.values().any(|seated| seated == key)
    }

    /// What somebody may send who is heard of now.
    pub(super) fn standing(&mut self, now: Instant, key: PeerKey) -> Standing {
        if let Some((site, _)) = self.seats.iter().find(|(_, seated)| **seated == key) {
            return Standing::Seated(Addr(*site));
        }
        if let Some(watcher) = self.watchers.get_mut(&key) {
            watcher.heard = now;
            return Standing::Watching(Addr(watcher.addr));
        }
        self.make_room(now);
        let addr = FIRST_WATCHER + self.next;
        self.next += 1;
        self.watchers.insert(key, Watcher { addr, heard: now });
        self.keys.insert(addr, key);
        Standing::Watching(Addr(addr))
    }

    /// Somebody new comes: those who are long gone make room.
    fn make_room(&mut self, now: Instant) {
        if now >= self.next_forget {
            self.next_forget = now + FORGET_EVERY;
            self.watchers.retain(|_, watcher| now - watcher.heard < SILENT);
            self.keys.retain(|_, key| self.watchers.contains_key(key));
        }
        if self.watchers.len() < MAX_WATCHERS {
            return;
        }
        if let Some(stalest) = self.watchers.iter().min_by_key(|(_, watcher)| watcher.heard).map(|(key, _)| *key)
            && let Some(watcher) = self.watchers.remove(&stalest)
        {
            self.keys.remove(&watcher.addr);
        }
    }

    pub(super) fn key(&self, addr: Addr) -> Option<PeerKey> {
        self.seats.get(&addr.0).or_else(|| self.keys.get(&addr.0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::party::Member;

    const NOW: Instant = Instant::ZERO;

    fn key(number: u32) -> PeerKey {
        let mut key = [9; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        PeerKey(key)
    }

    #[test]
    fn who_has_a_seat_has_its_address_and_everybody_else_another() {
        let member =
            Member { site: 3, key: key(3), name: String::new(), pads: 1, places: vec![], ready: true, here: true };
        let party = Party {
            serial: 1,
            session: 1,
            terms: vec![],
            started: true,
            members: vec![member],
            open: true,
            watchers: 0,
            you: None,
        };
        let mut book = Book::default();
        book.note_party(&party);
        assert_eq!(book.standing(NOW, key(3)), Standing::Seated(Addr(3)));
        assert!(book.is_seated(&key(3)) && !book.is_seated(&key(9)));
        let stranger = book.standing(NOW, key(9));
        assert!(matches!(stranger, Standing::Watching(addr) if book.key(addr) == Some(key(9))));
        assert_eq!(book.standing(NOW, key(9)), stranger, "always the same");
    }

    #[test]
    fn who_is_heard_of_is_remembered_and_who_is_gone_is_not() {
        let mut book = Book::default();
        let first = book.standing(NOW, key(0));
        let early = NOW + TimeDelta::from_secs(1);
        (1..MAX_WATCHERS as u32).for_each(|number| _ = book.standing(early, key(number)));
        assert_eq!(book.standing(early + FORGET_EVERY, key(0)), first);
        (0..100).for_each(|number| _ = book.standing(early + FORGET_EVERY, key(1_000_000 + number)));
        assert_eq!(book.standing(early + FORGET_EVERY, key(0)), first, "it was heard of after the others");
        assert_eq!((book.watchers.len(), book.keys.len()), (MAX_WATCHERS, MAX_WATCHERS));
        let late = early + FORGET_EVERY + SILENT;
        book.standing(late, key(2_000_000));
        assert_eq!((book.watchers.len(), book.keys.len()), (1, 1));
    }
}
