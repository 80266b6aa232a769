//! Dependencies of a new event, computed once by its issuer: the events that it follows and those it can make obsolete.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::MAX_OBSOLETE_SET;

/// Maximum number of objects whose last events are tracked. For all other objects, only an upper bound on the sequence
/// numbers of their events is known.
const MAX_TRACKED_KEYS: usize = 16_384;

/// Events of one object on which its next event depends.
#[derive(Clone, Copy, Debug)]
struct KeyTail {
    /// Sequence number of the last irreplaceable event, or an upper bound of it if `barrier` is set; 0 if there is
    /// none.
    after: u64,
    /// Whether `after` may belong to another object, so that all events up to it count as predecessors.
    barrier: bool,
    /// Replaceable events since `after`, oldest first.
    replaceable: [u64; MAX_OBSOLETE_SET],
    len: u8,
}

/// Earlier events that a new event depends on.
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

/// For every tracked object of this mirror, the events on which its next event depends.
#[derive(Debug, Default)]
pub(super) struct DependencyTracker {
    tails: BTreeMap<u64, KeyTail>,
    /// Upper bound on the sequence numbers of the events of objects that are not tracked.
    forgotten_up_to: u64,
}

impl DependencyTracker {
    /// Adds a new event and returns its dependencies. The event after `longest` consecutive replaceable events of its
    /// key counts as irreplaceable, whatever `replaceable` says, so that every event can carry its whole obsolete set.
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
        let dependencies = EventDependencies {
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
        dependencies
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

    fn replaceable_events(dependencies: &EventDependencies) -> Vec<u64> {
        dependencies.newest_first().collect()
    }

    #[test]
    fn obsolete_set_goes_back_to_the_last_irreplaceable_event() {
        let mut tracker = DependencyTracker::default();
        assert_eq!(tracker.add_event(1, 7, true, 16), EventDependencies::NONE);
        assert_eq!(replaceable_events(&tracker.add_event(2, 7, true, 16)), [1]);
        assert_eq!(
            replaceable_events(&tracker.add_event(3, 8, true, 16)),
            [],
            "events of another object must not be included"
        );
        let action = tracker.add_event(4, 7, false, 16);
        assert_eq!((action.after, replaceable_events(&action)), (0, [2, 1].to_vec()));
        let next = tracker.add_event(5, 7, true, 16);
        assert_eq!((next.after, next.barrier, replaceable_events(&next)), (4, false, [].to_vec()));
        assert_eq!(tracker.add_event(6, 0, true, 16), EventDependencies::NONE);
    }

    #[test]
    fn obsolete_set_is_limited_and_the_next_event_is_irreplaceable() {
        let mut tracker = DependencyTracker::default();
        for seq in 1..=2 {
            tracker.add_event(seq, 7, true, 2);
        }
        assert_eq!(replaceable_events(&tracker.add_event(3, 7, true, 2)), [2, 1]);
        let next = tracker.add_event(4, 7, true, 2);
        assert_eq!((next.after, replaceable_events(&next)), (3, [].to_vec()));
    }

    #[test]
    fn forgotten_key_depends_on_all_earlier_events() {
        let mut tracker = DependencyTracker::default();
        for seq in 1..=MAX_TRACKED_KEYS as u64 + 1 {
            tracker.add_event(seq, seq, true, 16);
        }
        assert!(tracker.tails.len() <= MAX_TRACKED_KEYS);
        let dependencies = tracker.add_event(90_000, 1, true, 16);
        assert!(dependencies.barrier && dependencies.after >= 1 && replaceable_events(&dependencies).is_empty());
    }
}
