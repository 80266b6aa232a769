//! One peer as this mirror knows it: clock, presence, group time and stream status.

use alloc::collections::BTreeMap;

use super::SourceId;
use crate::clock::Clock;
use crate::mirror::message::StreamStatus;
use crate::time::{Instant, TimeDelta};

/// Expected response time before the first measurement of the round-trip time.
const DEFAULT_RESPONSE_TIME: TimeDelta = TimeDelta::from_millis(200);

/// A peer of this mirror.
#[derive(Debug)]
pub(super) struct RemoteMirror {
    pub(super) clock: Clock,
    pub(super) last_received_at: Instant,
    /// Whether the peer has sent a datagram and has since neither left, timed out nor been removed.
    pub(super) is_present: bool,
    /// Whether the host program added the peer; other peers are removed after a long silence.
    pub(super) is_configured: bool,
    /// Arrival time of the peer's leave message; `None` if the peer has not left or has returned. Datagrams that arrive
    /// less than 2 s after the leave message are ignored; the first later one marks the peer as present again.
    pub(super) left_at: Option<Instant>,
    pub(super) group_time_offset: Option<TimeDelta>,
    pub(super) next_probe: Instant,
    pub(super) probe_count: u32,
    /// The peer's status of each stream, for known sources only.
    stream_statuses: BTreeMap<SourceId, StreamStatus>,
}

impl RemoteMirror {
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
            stream_statuses: BTreeMap::new(),
        }
    }

    /// Returns the offset of the peer's group time from the local clock. `None` until the peer has reported it and its
    /// clock is measured.
    pub(super) fn group_time_offset_from_us(&self, now: Instant) -> Option<TimeDelta> {
        let group_time_offset = self.group_time_offset?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + group_time_offset)
    }

    pub(super) fn on_stream_status(&mut self, have: StreamStatus) {
        self.stream_statuses.insert(have.source, have);
    }

    /// Discards the peer's status of a source that was forgotten.
    pub(super) fn forget_source(&mut self, source: SourceId) {
        self.stream_statuses.remove(&source);
    }

    pub(super) fn stream_status(&self, source: SourceId) -> Option<&StreamStatus> {
        self.stream_statuses.get(&source)
    }

    /// Returns whether event `seq` is in the range that the peer's last status of `source` states.
    pub(super) fn can_serve_event(&self, source: SourceId, seq: u64) -> bool {
        self.stream_status(source).is_some_and(|have| have.oldest <= seq && seq <= have.newest)
    }

    /// Returns the expected time between a request and its answer: the round-trip time plus twice the jitter, or
    /// [`DEFAULT_RESPONSE_TIME`] before the first measurement.
    pub(super) fn expected_response_time(&self) -> TimeDelta {
        self.clock.rtt().map_or(DEFAULT_RESPONSE_TIME, |rtt| rtt + self.clock.jitter() * 2)
    }

    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + self.stream_statuses.len() * size_of::<(SourceId, StreamStatus)>()
    }
}
