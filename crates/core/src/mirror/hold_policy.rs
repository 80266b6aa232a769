//! Ours: an obsolete event that is missing is waited for as long as nobody behind it is late for that.

use alloc::vec::Vec;

use super::{DeliveryOrder, DropPolicy, EventStream, Mirror, MirrorPeer, SourceId};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// What is due so soon is due: delivering takes time, too.
const DELIVERY_MARGIN: TimeDelta = TimeDelta::from_millis(3);

/// After a look at so many a millisecond passes before the next: who has much to catch up with must not spend its time on looking.
const SCANNED_EVENTS_PER_MILLI: usize = 512;
const MAX_SCAN_PAUSE: TimeDelta = TimeDelta::from_millis(10);

/// An obsolete event that is missing, and when it must not be waited for any more.
struct EventHold {
    source: SourceId,
    seq: u64,
    deadline: Instant,
}

/// What was found at the last look.
#[derive(Debug, Default)]
pub(super) struct HoldSchedule {
    /// Nothing has changed since.
    is_current: bool,
    /// When the first must be decided on.
    next_deadline: Option<Instant>,
    /// It is not looked again before this.
    paused_until: Instant,
}

impl HoldSchedule {
    /// Something has come, or is not waited for any more.
    pub(super) fn on_change(&mut self) {
        self.is_current = false;
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.paused_until && (!self.is_current || self.next_deadline.is_some_and(|next| next <= now))
    }
}

impl Mirror {
    /// Passes over what would come too late.
    pub(super) fn apply_hold_policy(&mut self) {
        let DropPolicy::Adaptive { threshold } = self.config.policy else { return };
        while self.holds.is_due(self.now) {
            let (now, holds) = (self.now, self.scan_holds(threshold));
            self.holds.next_deadline = holds.iter().map(|hold| hold.deadline).filter(|until| *until > now).min();
            for hold in holds.iter().filter(|hold| hold.deadline <= now) {
                if self.is_missing_and_obsolete(hold.source, hold.seq) {
                    self.drop_event(hold.source, hold.seq);
                }
            }
        }
    }

    /// Sees to it that it is known when to look again.
    pub(super) fn refresh_holds(&mut self) {
        let DropPolicy::Adaptive { threshold } = self.config.policy else { return };
        if !self.holds.is_current && self.now >= self.holds.paused_until {
            self.scan_holds(threshold);
        }
    }

    fn scan_holds(&mut self, threshold: TimeDelta) -> Vec<EventHold> {
        let holds = self.find_holds(threshold);
        let looks = holds.len() + self.streams.values().map(|stream| stream.waiting().len()).sum::<usize>();
        let pause = TimeDelta::from_millis((looks / SCANNED_EVENTS_PER_MILLI) as i64).min(MAX_SCAN_PAUSE);
        let next = holds.iter().map(|hold| hold.deadline).min();
        self.holds = HoldSchedule { is_current: true, next_deadline: next, paused_until: self.now + pause };
        holds
    }

    /// When to look again.
    pub(super) fn next_hold_at(&self) -> Option<Instant> {
        let next = if self.holds.is_current { self.holds.next_deadline? } else { self.now };
        matches!(self.config.policy, DropPolicy::Adaptive { .. }).then_some(next.max(self.holds.paused_until))
    }

    fn is_missing_and_obsolete(&self, source: SourceId, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.event(seq).is_none() && stream.is_obsolete(seq))
    }

    /// All that must be decided on.
    fn find_holds(&self, threshold: TimeDelta) -> Vec<EventHold> {
        let sources = self.streams.iter().filter(|(_, stream)| stream.has_droppable());
        match self.config.order {
            DeliveryOrder::Total => {
                let mut holes = sources
                    .filter(|(source, stream)| self.is_missing_and_obsolete(**source, stream.settled() + 1))
                    .peekable();
                if holes.peek().is_none() {
                    return Vec::new();
                }
                let Some(oldest) = self.streams.values().filter_map(EventStream::oldest_pending).min() else {
                    return Vec::new();
                };
                holes
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
            let is_hole = |member: &u64| stream.event(*member).is_none() && stream.is_obsolete(*member);
            let late = event.at + threshold;
            event.obsolete_set(seq).filter(is_hole).filter_map(move |member| self.hold_for(source, member, late))
        })
    }

    /// How long to wait for an event so that what is behind it is there at `late`: not at all if it cannot come by then.
    fn hold_for(&self, source: SourceId, seq: u64, late: GroupInstant) -> Option<EventHold> {
        let until = self.group_time.to_local(late)? - DELIVERY_MARGIN;
        let missing = self.streams.get(&source)?.missing();
        let found = missing.binary_search_by_key(&seq, |missing| missing.seq).ok()?;
        let takes = self.peers.get(&source).map_or(TimeDelta::ZERO, MirrorPeer::expected_response_time);
        // Of what was not asked for yet it is known when it will be too late to ask.
        let until = match missing[found].last_requested_at {
            Some(asked) if asked + takes > until => self.now,
            Some(_) => until,
            None => until - takes + TimeDelta::from_nanos(1),
        };
        Some(EventHold { source, seq, deadline: until })
    }
}
