//! What is known of one other mirror.

use alloc::collections::BTreeMap;

use super::SourceId;
use crate::clock::Clock;
use crate::time::{Instant, TimeDelta};
use crate::wire::StreamStatus;

/// An answer takes so long if nothing is known.
const DEFAULT_RESPONSE_TIME: TimeDelta = TimeDelta::from_millis(200);

/// Another mirror.
#[derive(Debug)]
pub(super) struct MirrorPeer {
    pub(super) clock: Clock,
    pub(super) last_received_at: Instant,
    /// Whether it was heard at all, and has not left.
    pub(super) is_present: bool,
    /// Whether the host program says that there is a way to it.
    pub(super) is_configured: bool,
    /// When it said goodbye.
    pub(super) left_at: Option<Instant>,
    pub(super) group_time_offset: Option<TimeDelta>,
    pub(super) next_probe: Instant,
    pub(super) probe_count: u32,
    /// Of sources that we know, and no others.
    haves: BTreeMap<SourceId, StreamStatus>,
}

impl MirrorPeer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            clock: Clock::assuming_crystals(),
            last_received_at: now,
            is_present: false,
            is_configured: false,
            left_at: None,
            group_time_offset: None,
            next_probe: now,
            probe_count: 0,
            haves: BTreeMap::new(),
        }
    }

    /// By how much the group's time as this mirror takes it is ahead of our clock.
    pub(super) fn group_time_offset_from_us(&self, now: Instant) -> Option<TimeDelta> {
        let ahead = self.group_time_offset?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + ahead)
    }

    pub(super) fn on_have(&mut self, have: StreamStatus) {
        self.haves.insert(have.source, have);
    }

    /// We know nothing of this source any more.
    pub(super) fn forget_source(&mut self, source: SourceId) {
        self.haves.remove(&source);
    }

    pub(super) fn have(&self, of: SourceId) -> Option<&StreamStatus> {
        self.haves.get(&of)
    }

    /// Whether it could be asked for an event.
    pub(super) fn can_serve_event(&self, of: SourceId, seq: u64) -> bool {
        self.have(of).is_some_and(|have| have.oldest <= seq && seq <= have.newest)
    }

    /// How long an answer takes.
    pub(super) fn expected_response_time(&self) -> TimeDelta {
        self.clock.rtt().map_or(DEFAULT_RESPONSE_TIME, |rtt| rtt + self.clock.jitter() * 2)
    }

    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + self.haves.len() * size_of::<(SourceId, StreamStatus)>()
    }
}
