//! What the two ends of a way know of each other: which run the other is in, its clock, and how long the way is.

use super::DelayEstimate;
use crate::clock::{Clock, RoundTrip};
use crate::time::{Instant, TimeDelta};
use crate::wire::BufferFull;
use crate::wire::motion::{MotionDatagram, MotionHeader, MotionItem};

/// Echoes that are asked for at once, and how soon; then as often as the way is uneven.
const INITIAL_PROBES: u32 = 12;
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(1);
/// What nobody answers is said again after about a round trip, within these.
const MIN_RETRANSMIT_TIMEOUT: TimeDelta = TimeDelta::from_millis(30);
const MAX_RETRANSMIT_TIMEOUT: TimeDelta = TimeDelta::from_millis(400);

/// The other end.
#[derive(Debug)]
pub(super) struct MotionPeer {
    incarnation: Option<u32>,
    pub(super) clock: Clock,
    pub(super) delay: DelayEstimate,
    pub(super) last_received_at: Instant,
    /// What came last and was not echoed yet: when it left there, and when it came.
    pending_echo: Option<(Instant, Instant)>,
    is_echo_requested: bool,
    next_probe: Instant,
    probe_count: u32,
}

/// How a datagram's run stands to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncarnationOrder {
    /// It is over.
    Stale,
    /// It goes on.
    Same,
    /// It has just begun.
    New,
}

impl MotionPeer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            incarnation: None,
            clock: Clock::assuming_crystals(),
            delay: DelayEstimate::default(),
            last_received_at: now,
            pending_echo: None,
            is_echo_requested: false,
            next_probe: now,
            probe_count: 0,
        }
    }

    pub(super) fn on_head(&mut self, now: Instant, head: MotionHeader) -> IncarnationOrder {
        let run = match self.incarnation {
            Some(run) if head.sender_incarnation < run => return IncarnationOrder::Stale,
            Some(run) if head.sender_incarnation == run => IncarnationOrder::Same,
            Some(_) => {
                *self = Self::new(now);
                IncarnationOrder::New
            }
            None => IncarnationOrder::New,
        };
        self.incarnation = Some(head.sender_incarnation);
        self.last_received_at = now;
        self.pending_echo = Some((head.sent_at, now));
        run
    }

    /// What a datagram to it begins with.
    pub(super) fn head(&self, now: Instant, run: u32) -> MotionHeader {
        MotionHeader { sender_incarnation: run, receiver_incarnation: self.incarnation.unwrap_or(0), sent_at: now }
    }

    pub(super) fn on_probe(&mut self) {
        self.is_echo_requested = true;
    }

    /// Something of ours came back. Says how long the way is: half of the round trip, RT.
    pub(super) fn on_echo(
        &mut self,
        now: Instant,
        sent: Instant,
        received: Instant,
        answered: Instant,
    ) -> Option<TimeDelta> {
        let trip = RoundTrip { sent, received, answered, returned: now };
        let rtt = trip.rtt();
        if rtt.is_negative() || rtt > self.clock.max_plausible_rtt().max(MAX_RETRANSMIT_TIMEOUT) * 4 {
            return None;
        }
        self.clock.on_round_trip(trip);
        self.delay.on_sample(rtt / 2);
        Some(rtt / 2)
    }

    /// How long something is under way.
    pub(super) fn one_way_delay(&self) -> TimeDelta {
        self.clock.rtt().map_or(self.delay.accumulated(), |rtt| rtt / 2)
    }

    /// When something left there, in our time: by its clock where that is known, and else by how long the way is.
    pub(super) fn to_local(&self, now: Instant, theirs: Instant) -> Instant {
        let by_clock = self.clock.to_local(theirs).filter(|_| self.clock.is_ready());
        by_clock.unwrap_or(now - self.delay.accumulated()).min(now)
    }

    /// After how long what was not answered is said again.
    pub(super) fn retransmit_timeout(&self) -> TimeDelta {
        let rtt = self.clock.rtt().unwrap_or(MAX_RETRANSMIT_TIMEOUT / 2);
        (rtt + self.clock.jitter() * 4 + TimeDelta::from_millis(10))
            .max(MIN_RETRANSMIT_TIMEOUT)
            .min(MAX_RETRANSMIT_TIMEOUT)
    }

    /// An echo is to be asked for with the next datagram, at once.
    pub(super) fn probe_soon(&mut self, now: Instant) {
        self.next_probe = self.next_probe.min(now);
    }

    pub(super) fn next_probe(&self) -> Instant {
        self.next_probe
    }

    /// Begins a datagram with what is owed of echoes. Says whether that alone is worth one.
    pub(super) fn put_echo(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<bool, BufferFull> {
        if let Some((sent, received)) = self.pending_echo.take() {
            datagram.put(MotionItem::Echo { sent, received })?;
        }
        Ok(core::mem::take(&mut self.is_echo_requested))
    }

    /// The datagram was not worth sending: its echo goes another time.
    pub(super) fn restore_echo(&mut self, echo: Option<(Instant, Instant)>) {
        self.pending_echo = echo;
    }

    pub(super) fn pending_echo(&self) -> Option<(Instant, Instant)> {
        self.pending_echo
    }

    /// Asks for an echo if it is time.
    pub(super) fn put_probe(&mut self, now: Instant, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        if now < self.next_probe {
            return Ok(());
        }
        self.probe_count = self.probe_count.saturating_add(1);
        self.next_probe = now
            + match self.probe_count {
                ..INITIAL_PROBES => INITIAL_PROBE_INTERVAL,
                _ if !self.clock.is_ready() || self.clock.jitter() > JITTER_THRESHOLD => FAST_PROBE_INTERVAL,
                _ => SLOW_PROBE_INTERVAL,
            };
        datagram.put(MotionItem::Probe)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory()
    }
}
