//! What a new event makes obsolete and what it comes after: worked out once, where it is issued.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::MAX_RUN;

/// Objects whose last events are remembered. Of the others it is known that all up to some event are older.
const MAX_KEYS: usize = 16_384;

/// What came last about an object.
#[derive(Clone, Copy, Debug)]
struct Tail {
    /// The last event that cannot be replaced.
    after: u64,
    /// Whether `after` may be about something else, and all up to it count.
    barrier: bool,
    /// The events since then, oldest first.
    run: [u64; MAX_RUN],
    len: u8,
}

/// What an event has to do with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    pub(super) after: u64,
    pub(super) barrier: bool,
    run: [u64; MAX_RUN],
    len: u8,
}

impl Links {
    const NONE: Self = Self { after: 0, barrier: false, run: [0; MAX_RUN], len: 0 };

    pub(super) fn newest_first(&self) -> impl Iterator<Item = u64> + '_ {
        self.run[..usize::from(self.len)].iter().rev().copied()
    }
}

/// Remembers the last events about every object.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    tails: BTreeMap<u64, Tail>,
    /// No event about an object that is not remembered is newer.
    forgotten: u64,
}

impl Issuer {
    /// A new event of this number. Where `longest` in a row are replaceable, the next is not, whatever the game says: so the run is known whole to
    /// everybody who has one event of it.
    pub(super) fn link(&mut self, seq: u64, key: u64, replaceable: bool, longest: usize) -> Links {
        if key == 0 {
            return Links::NONE;
        }
        let fresh = Tail { after: self.forgotten, barrier: self.forgotten > 0, run: [0; MAX_RUN], len: 0 };
        let tail = self.tails.entry(key).or_insert(fresh);
        let links = Links { after: tail.after, barrier: tail.barrier, run: tail.run, len: tail.len };
        let len = usize::from(tail.len);
        if replaceable && len < longest.min(MAX_RUN) {
            tail.run[len] = seq;
            tail.len += 1;
        } else {
            *tail = Tail { after: seq, barrier: false, run: [0; MAX_RUN], len: 0 };
        }
        if self.tails.len() > MAX_KEYS {
            self.forget_half();
        }
        links
    }

    fn forget_half(&mut self) {
        let mut newest: Vec<u64> = self.tails.values().map(Tail::newest).collect();
        newest.sort_unstable();
        let limit = newest[newest.len() / 2];
        self.forgotten = self.forgotten.max(limit);
        self.tails.retain(|_, tail| tail.newest() > limit);
    }

    pub(super) fn memory(&self) -> usize {
        self.tails.len() * size_of::<(u64, Tail)>()
    }
}

impl Tail {
    fn newest(&self) -> u64 {
        self.run[..usize::from(self.len)].last().copied().unwrap_or(self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(links: &Links) -> Vec<u64> {
        links.newest_first().collect()
    }

    #[test]
    fn a_run_goes_back_to_the_last_that_cannot_be_replaced() {
        let mut issuer = Issuer::default();
        assert_eq!(issuer.link(1, 7, true, 16), Links::NONE);
        assert_eq!(run(&issuer.link(2, 7, true, 16)), [1]);
        assert_eq!(run(&issuer.link(3, 8, true, 16)), [], "another object");
        let deed = issuer.link(4, 7, false, 16);
        assert_eq!((deed.after, run(&deed)), (0, [2, 1].to_vec()));
        let next = issuer.link(5, 7, true, 16);
        assert_eq!((next.after, next.barrier, run(&next)), (4, false, [].to_vec()));
        assert_eq!(issuer.link(6, 0, true, 16), Links::NONE);
    }

    #[test]
    fn every_so_often_one_must_be_seen() {
        let mut issuer = Issuer::default();
        for seq in 1..=2 {
            issuer.link(seq, 7, true, 2);
        }
        assert_eq!(run(&issuer.link(3, 7, true, 2)), [2, 1]);
        let next = issuer.link(4, 7, true, 2);
        assert_eq!((next.after, run(&next)), (3, [].to_vec()));
    }

    #[test]
    fn objects_that_are_forgotten_come_after_all_that_was() {
        let mut issuer = Issuer::default();
        for seq in 1..=MAX_KEYS as u64 + 1 {
            issuer.link(seq, seq, true, 16);
        }
        assert!(issuer.tails.len() <= MAX_KEYS);
        let links = issuer.link(90_000, 1, true, 16);
        assert!(links.barrier && links.after >= 1 && run(&links).is_empty());
    }
}
