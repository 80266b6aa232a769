//! The queue of future events in virtual time.
//!
//! Events come out by time. Events of the same time come out in the order in which they were pushed, so the order never
//! depends on chance or on the layout of the heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use coplay::time::Instant;

/// A queue of events by time. The heap moves its entries while it sorts, so keep `E` small.
#[derive(Clone, Debug)]
pub struct TimedEventQueue<E> {
    heap: BinaryHeap<QueueEntry<E>>,
    next_sequence: u64,
}

#[derive(Clone, Debug)]
struct QueueEntry<E> {
    at: Instant,
    /// Number of events pushed before this one.
    sequence: u64,
    event: E,
}

impl<E> TimedEventQueue<E> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), next_sequence: 0 }
    }

    /// Schedules an event for this time, after all events already pushed for the same time.
    pub fn push(&mut self, at: Instant, event: E) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.heap.push(QueueEntry { at, sequence, event });
    }

    /// Removes the earliest event and returns it with its time; `None` if no event is scheduled.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Returns the time of the earliest event; `None` if no event is scheduled.
    pub fn next_time(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Returns the number of scheduled events.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether no event is scheduled.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

impl<E> Default for TimedEventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> QueueEntry<E> {
    /// Returns the sort key: the time in the high 64 bits, the sequence number in the low ones. The comparison of two
    /// keys needs no branch that the processor could mispredict.
    fn key(&self) -> i128 {
        (i128::from(self.at.as_nanos()) << 64) | i128::from(self.sequence)
    }
}

impl<E> Ord for QueueEntry<E> {
    /// Compares in reverse order, because the heap returns its greatest entry first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for QueueEntry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for QueueEntry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for QueueEntry<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn at(nanos: i64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn events_at_the_same_time_pop_in_push_order() {
        let mut queue = TimedEventQueue::new();
        (0..1000).for_each(|event| queue.push(at(5), event));
        assert!((0..1000).all(|event| queue.pop() == Some((at(5), event))));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn pop_order_equals_a_stable_sort_by_time() {
        let mut random = Random::new(1);
        let mut events: Vec<_> = (0..10_000).map(|event| (at(random.range(-50..=50)), event)).collect();
        let mut queue = TimedEventQueue::default();
        events.iter().for_each(|&(time, event)| queue.push(time, event));
        events.sort_by_key(|&(time, _)| time);
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(popped, events);
    }

    #[test]
    fn event_pushed_later_pops_after_those_at_the_same_time() {
        let mut queue = TimedEventQueue::new();
        queue.push(at(1), 'a');
        queue.push(at(2), 'b');
        assert_eq!(queue.pop(), Some((at(1), 'a')));
        queue.push(at(2), 'c');
        queue.push(at(1), 'd');
        let rest: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(rest, "dbc");
    }

    #[test]
    fn extreme_times_are_ordered() {
        let mut queue = TimedEventQueue::new();
        for time in [Instant::FAR_FUTURE, at(0), at(i64::MIN), at(-1)] {
            queue.push(time, ());
        }
        let times: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(time, ())| time).collect();
        assert_eq!(times, [at(i64::MIN), at(-1), at(0), Instant::FAR_FUTURE]);
    }

    #[test]
    fn next_time_equals_the_time_of_the_next_pop() {
        let mut queue = TimedEventQueue::new();
        assert_eq!((queue.next_time(), queue.len(), queue.is_empty()), (None, 0, true));
        queue.push(at(9), ());
        queue.push(at(3), ());
        assert_eq!((queue.next_time(), queue.len(), queue.is_empty()), (Some(at(3)), 2, false));
    }
}
