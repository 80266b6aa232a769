//! Holds of [`DropPolicy::Adaptive`], which is not in the paper: a mirror waits for a missing obsolete event as long as
//! no event behind it becomes late.

use alloc::vec::Vec;

use super::{DeliveryOrder, DropPolicy, EventStream, Mirror, RemoteMirror, SourceId};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Time reserved for delivery: a missing event is awaited until this long before the waiting event becomes late,
/// provided that it can arrive by then.
const DELIVERY_MARGIN: TimeDelta = TimeDelta::from_millis(3);

/// Number of scanned events that add one millisecond to the pause before the next scan: a mirror with a large backlog
/// must not spend its time on scans.
const SCANNED_EVENTS_PER_MILLI: usize = 512;
/// Maximum pause between scans.
const MAX_SCAN_PAUSE: TimeDelta = TimeDelta::from_millis(10);

/// A missing obsolete event and the time until which this mirror waits for it.
struct EventHold {
    source: SourceId,
    seq: u64,
    deadline: Instant,
}

/// Result of the last scan for holds.
#[derive(Debug, Default)]
pub(super) struct HoldSchedule {
    /// Whether the last scan is still valid. [`on_change`](Self::on_change) invalidates it.
    is_current: bool,
    /// Earliest deadline of a hold; `None` if no event is held.
    next_deadline: Option<Instant>,
    /// Earliest time of the next scan.
    paused_until: Instant,
}

impl HoldSchedule {
    /// Invalidates the last scan. Must be called when an event arrives, is requested or is dropped and, in total order,
    /// when one is delivered.
    pub(super) fn on_change(&mut self) {
        self.is_current = false;
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.paused_until && (!self.is_current || self.next_deadline.is_some_and(|next| next <= now))
    }
}

impl Mirror {
    /// Drops the missing obsolete events whose hold has reached its deadline. Does nothing under a policy other than
    /// [`DropPolicy::Adaptive`].
    pub(super) fn apply_hold_policy(&mut self) {
        let DropPolicy::Adaptive { threshold } = self.config.policy else { return };
        while self.holds.is_due(self.now) {
            let (now, holds) = (self.now, self.scan_holds(threshold));
            self.holds.next_deadline = holds.iter().map(|hold| hold.deadline).filter(|deadline| *deadline > now).min();
            for hold in holds.iter().filter(|hold| hold.deadline <= now) {
                if self.is_missing_and_obsolete(hold.source, hold.seq) {
                    self.drop_event(hold.source, hold.seq);
                }
            }
        }
    }

    /// Scans for holds if the last scan is outdated and the pause after it is over, so that
    /// [`next_hold_at`](Self::next_hold_at) returns the current deadline.
    pub(super) fn refresh_holds(&mut self) {
        let DropPolicy::Adaptive { threshold } = self.config.policy else { return };
        if !self.holds.is_current && self.now >= self.holds.paused_until {
            self.scan_holds(threshold);
        }
    }

    fn scan_holds(&mut self, threshold: TimeDelta) -> Vec<EventHold> {
        let holds = self.find_holds(threshold);
        let scanned = holds.len() + self.streams.values().map(|stream| stream.waiting().len()).sum::<usize>();
        let pause = TimeDelta::from_millis((scanned / SCANNED_EVENTS_PER_MILLI) as i64).min(MAX_SCAN_PAUSE);
        let next = holds.iter().map(|hold| hold.deadline).min();
        self.holds = HoldSchedule { is_current: true, next_deadline: next, paused_until: self.now + pause };
        holds
    }

    /// Returns the time of the next scan for holds. `None` if the last scan is current and found no hold, or if the
    /// policy is not [`DropPolicy::Adaptive`].
    pub(super) fn next_hold_at(&self) -> Option<Instant> {
        let next = if self.holds.is_current { self.holds.next_deadline? } else { self.now };
        matches!(self.config.policy, DropPolicy::Adaptive { .. }).then_some(next.max(self.holds.paused_until))
    }

    fn is_missing_and_obsolete(&self, source: SourceId, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.event(seq).is_none() && stream.is_obsolete(seq))
    }

    /// Returns the holds of the missing obsolete events that other events wait for. In total order that is at most one
    /// event per source, the first unsettled one.
    fn find_holds(&self, threshold: TimeDelta) -> Vec<EventHold> {
        let sources = self.streams.iter().filter(|(_, stream)| stream.has_droppable());
        match self.config.order {
            DeliveryOrder::Total => {
                let mut blocked = sources
                    .filter(|(source, stream)| self.is_missing_and_obsolete(**source, stream.settled() + 1))
                    .peekable();
                if blocked.peek().is_none() {
                    return Vec::new();
                }
                let Some(oldest) = self.streams.values().filter_map(EventStream::oldest_pending).min() else {
                    return Vec::new();
                };
                blocked
                    .filter_map(|(source, stream)| self.hold_for(*source, stream.settled() + 1, oldest + threshold))
                    .collect()
            }
            DeliveryOrder::Correlated => {
                sources.flat_map(|(source, stream)| self.stream_holds(*source, stream, threshold)).collect()
            }
        }
    }

    fn stream_holds(
        &self,
        source: SourceId,
        stream: &EventStream,
        threshold: TimeDelta,
    ) -> impl Iterator<Item = EventHold> {
        let waiting = stream.waiting().iter().filter_map(|seq| stream.event(*seq).map(|event| (*seq, event)));
        waiting.flat_map(move |(seq, event)| {
            let is_awaited = |member: &u64| stream.event(*member).is_none() && stream.is_obsolete(*member);
            let late_at = event.at + threshold;
            event.obsolete_set(seq).filter(is_awaited).filter_map(move |member| self.hold_for(source, member, late_at))
        })
    }

    /// Returns the hold of a missing event, which ends in time for the events behind it to be delivered by `late_at`.
    /// The hold ends at once if the event was requested too late to arrive by that time. `None` if the event is not
    /// missing or the group time is unknown.
    fn hold_for(&self, source: SourceId, seq: u64, late_at: GroupInstant) -> Option<EventHold> {
        let deadline = self.group_time.to_local(late_at)? - DELIVERY_MARGIN;
        let missing = self.streams.get(&source)?.missing();
        let index = missing.binary_search_by_key(&seq, |missing| missing.seq).ok()?;
        let response_time = self.peers.get(&source).map_or(TimeDelta::ZERO, RemoteMirror::expected_response_time);
        // An event that was not requested yet is held until it is too late to request it.
        let deadline = match missing[index].last_requested_at {
            Some(requested_at) if requested_at + response_time > deadline => self.now,
            Some(_) => deadline,
            None => deadline - response_time + TimeDelta::from_nanos(1),
        };
        Some(EventHold { source, seq, deadline })
    }
}
