//! What is known of one other mirror.

use alloc::collections::BTreeMap;

use super::Source;
use crate::clock::Clock;
use crate::time::{Instant, TimeDelta};
use crate::wire::StreamStatus;

/// An answer takes so long if nothing is known.
const UNKNOWN: TimeDelta = TimeDelta::from_millis(200);

/// Another mirror.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) clock: Clock,
    pub(super) heard: Instant,
    /// Whether it was heard at all, and has not left.
    pub(super) is_here: bool,
    /// Whether the host program says that there is a way to it.
    pub(super) is_vouched_for: bool,
    /// When it said goodbye.
    pub(super) left: Option<Instant>,
    pub(super) group_ahead: Option<TimeDelta>,
    pub(super) next_probe: Instant,
    pub(super) probes: u32,
    /// Of sources that we know, and no others.
    haves: BTreeMap<Source, StreamStatus>,
}

impl Peer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            clock: Clock::assuming_crystals(),
            heard: now,
            is_here: false,
            is_vouched_for: false,
            left: None,
            group_ahead: None,
            next_probe: now,
            probes: 0,
            haves: BTreeMap::new(),
        }
    }

    /// By how much the group's time as this mirror takes it is ahead of our clock.
    pub(super) fn group_ahead_of_us(&self, now: Instant) -> Option<TimeDelta> {
        let ahead = self.group_ahead?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + ahead)
    }

    pub(super) fn on_have(&mut self, have: StreamStatus) {
        self.haves.insert(have.source, have);
    }

    /// We know nothing of this source any more.
    pub(super) fn on_forgotten(&mut self, source: Source) {
        self.haves.remove(&source);
    }

    pub(super) fn have(&self, of: Source) -> Option<&StreamStatus> {
        self.haves.get(&of)
    }

    /// Whether it could be asked for an event.
    pub(super) fn can_give(&self, of: Source, seq: u64) -> bool {
        self.have(of).is_some_and(|have| have.oldest <= seq && seq <= have.newest)
    }

    /// How long an answer takes.
    pub(super) fn answer_time(&self) -> TimeDelta {
        self.clock.rtt().map_or(UNKNOWN, |rtt| rtt + self.clock.jitter() * 2)
    }

    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + self.haves.len() * size_of::<(Source, StreamStatus)>()
    }
}
