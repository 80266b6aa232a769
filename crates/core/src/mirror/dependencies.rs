//! What a new event makes obsolete and what it comes after: worked out once, where it is issued.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::MAX_OBSOLETE_SET;

/// Objects whose last events are remembered. Of the others it is known that all up to some event are older.
const MAX_TRACKED_KEYS: usize = 16_384;

/// What came last about an object.
#[derive(Clone, Copy, Debug)]
struct KeyTail {
    /// The last event that cannot be replaced.
    after: u64,
    /// Whether `after` may be about something else, and all up to it count.
    barrier: bool,
    /// The events since then, oldest first.
    replaceable: [u64; MAX_OBSOLETE_SET],
    len: u8,
}

/// What an event has to do with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventDependencies {
    pub(super) after: u64,
    pub(super) barrier: bool,
    replaceable: [u64; MAX_OBSOLETE_SET],
    len: u8,
}

impl EventDependencies {
    const NONE: Self = Self { after: 0, barrier: false, replaceable: [0; MAX_OBSOLETE_SET], len: 0 };

    pub(super) fn newest_first(&self) -> impl Iterator<Item = u64> + '_ {
        self.replaceable[..usize::from(self.len)].iter().rev().copied()
    }
}

/// Remembers the last events about every object.
#[derive(Debug, Default)]
pub(super) struct DependencyTracker {
    tails: BTreeMap<u64, KeyTail>,
    /// No event about an object that is not remembered is newer.
    forgotten_up_to: u64,
}

impl DependencyTracker {
    /// A new event of this number. Where `longest` in a row are replaceable, the next is not, whatever the game says: so the run is known whole to
    /// everybody who has one event of it.
    pub(super) fn add_event(&mut self, seq: u64, key: u64, replaceable: bool, longest: usize) -> EventDependencies {
        if key == 0 {
            return EventDependencies::NONE;
        }
        let fresh = KeyTail {
            after: self.forgotten_up_to,
            barrier: self.forgotten_up_to > 0,
            replaceable: [0; MAX_OBSOLETE_SET],
            len: 0,
        };
        let tail = self.tails.entry(key).or_insert(fresh);
        let links = EventDependencies {
            after: tail.after,
            barrier: tail.barrier,
            replaceable: tail.replaceable,
            len: tail.len,
        };
        let len = usize::from(tail.len);
        if replaceable && len < longest.min(MAX_OBSOLETE_SET) {
            tail.replaceable[len] = seq;
            tail.len += 1;
        } else {
            *tail = KeyTail { after: seq, barrier: false, replaceable: [0; MAX_OBSOLETE_SET], len: 0 };
        }
        if self.tails.len() > MAX_TRACKED_KEYS {
            self.forget_half();
        }
        links
    }

    fn forget_half(&mut self) {
        let mut newest: Vec<u64> = self.tails.values().map(KeyTail::newest).collect();
        newest.sort_unstable();
        let limit = newest[newest.len() / 2];
        self.forgotten_up_to = self.forgotten_up_to.max(limit);
        self.tails.retain(|_, tail| tail.newest() > limit);
    }

    pub(super) fn memory(&self) -> usize {
        self.tails.len() * size_of::<(u64, KeyTail)>()
    }
}

impl KeyTail {
    fn newest(&self) -> u64 {
        self.replaceable[..usize::from(self.len)].last().copied().unwrap_or(self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaceable_events(links: &EventDependencies) -> Vec<u64> {
        links.newest_first().collect()
    }

    #[test]
    fn obsolete_set_goes_back_to_the_last_irreplaceable_event() {
        let mut issuer = DependencyTracker::default();
        assert_eq!(issuer.add_event(1, 7, true, 16), EventDependencies::NONE);
        assert_eq!(replaceable_events(&issuer.add_event(2, 7, true, 16)), [1]);
        assert_eq!(replaceable_events(&issuer.add_event(3, 8, true, 16)), [], "another object");
        let deed = issuer.add_event(4, 7, false, 16);
        assert_eq!((deed.after, replaceable_events(&deed)), (0, [2, 1].to_vec()));
        let next = issuer.add_event(5, 7, true, 16);
        assert_eq!((next.after, next.barrier, replaceable_events(&next)), (4, false, [].to_vec()));
        assert_eq!(issuer.add_event(6, 0, true, 16), EventDependencies::NONE);
    }

    #[test]
    fn obsolete_set_is_limited_and_the_next_event_is_irreplaceable() {
        let mut issuer = DependencyTracker::default();
        for seq in 1..=2 {
            issuer.add_event(seq, 7, true, 2);
        }
        assert_eq!(replaceable_events(&issuer.add_event(3, 7, true, 2)), [2, 1]);
        let next = issuer.add_event(4, 7, true, 2);
        assert_eq!((next.after, replaceable_events(&next)), (3, [].to_vec()));
    }

    #[test]
    fn forgotten_key_depends_on_all_earlier_events() {
        let mut issuer = DependencyTracker::default();
        for seq in 1..=MAX_TRACKED_KEYS as u64 + 1 {
            issuer.add_event(seq, seq, true, 16);
        }
        assert!(issuer.tails.len() <= MAX_TRACKED_KEYS);
        let links = issuer.add_event(90_000, 1, true, 16);
        assert!(links.barrier && links.after >= 1 && replaceable_events(&links).is_empty());
    }
}
