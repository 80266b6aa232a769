//! The other end of a link: its incarnation, its clock, the delay to it, and the probes that measure clock and delay.

use super::DelayEstimate;
use crate::clock::{Clock, RoundTrip};
use crate::codec::BufferFull;
use crate::motion::message::{MotionDatagramWriter, MotionHeader, MotionItem};
use crate::time::{Instant, TimeDelta};

/// Number of initial clock probes, sent every [`INITIAL_PROBE_INTERVAL`].
const INITIAL_PROBES: u32 = 12;
/// Interval of the first [`INITIAL_PROBES`] clock probes.
const INITIAL_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Probe interval until the clock is known, and while the jitter is above [`JITTER_THRESHOLD`].
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Probe interval for a known clock with low jitter.
const SLOW_PROBE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Jitter above which the fast probe interval is kept.
const JITTER_THRESHOLD: TimeDelta = TimeDelta::from_millis(1);
const MIN_RETRANSMIT_TIMEOUT: TimeDelta = TimeDelta::from_millis(30);
const MAX_RETRANSMIT_TIMEOUT: TimeDelta = TimeDelta::from_millis(400);

/// The other end of a link: the server at a client, or a client at the server.
#[derive(Debug)]
pub(super) struct MotionPeer {
    incarnation: Option<u32>,
    pub(super) clock: Clock,
    pub(super) delay: DelayEstimate,
    pub(super) last_received_at: Instant,
    /// Send time, on the peer's clock, and arrival time of the last datagram, if it was not echoed yet.
    pending_echo: Option<(Instant, Instant)>,
    is_echo_requested: bool,
    next_probe: Instant,
    probe_count: u32,
}

/// Incarnation of a datagram's sender, compared with that of earlier datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncarnationOrder {
    /// An earlier incarnation.
    Stale,
    /// The same incarnation.
    Same,
    /// A later incarnation, or the first datagram of the peer.
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

    pub(super) fn on_header(&mut self, now: Instant, header: MotionHeader) -> IncarnationOrder {
        let order = match self.incarnation {
            Some(incarnation) if header.sender_incarnation < incarnation => return IncarnationOrder::Stale,
            Some(incarnation) if header.sender_incarnation == incarnation => IncarnationOrder::Same,
            Some(_) => {
                *self = Self::new(now);
                IncarnationOrder::New
            }
            None => IncarnationOrder::New,
        };
        self.incarnation = Some(header.sender_incarnation);
        self.last_received_at = now;
        self.pending_echo = Some((header.sent_at, now));
        order
    }

    /// Returns the header of a datagram to the peer.
    pub(super) fn header(&self, now: Instant, incarnation: u32) -> MotionHeader {
        MotionHeader {
            sender_incarnation: incarnation,
            receiver_incarnation: self.incarnation.unwrap_or(0),
            sent_at: now,
        }
    }

    pub(super) fn on_probe(&mut self) {
        self.is_echo_requested = true;
    }

    /// Handles an echo. Returns RT, half of the round trip. `None` if the round trip is negative or implausibly long.
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

    /// Returns half of the smoothed round-trip time.
    pub(super) fn one_way_delay(&self) -> TimeDelta {
        self.clock.rtt().map_or(self.delay.accumulated(), |rtt| rtt / 2)
    }

    /// Converts the send time of a datagram that the peer sent and that arrived at `now` to the local clock: by the
    /// peer's clock if it is known, but not after `now`; otherwise returns `now` minus the estimated delay.
    pub(super) fn to_local(&self, now: Instant, theirs: Instant) -> Instant {
        let by_clock = self.clock.to_local(theirs).filter(|_| self.clock.is_ready());
        by_clock.unwrap_or(now - self.delay.accumulated()).min(now)
    }

    /// Returns the time after which unanswered data is sent again: the round-trip time (200 ms until it is measured)
    /// plus four times the jitter plus 10 ms, within 30 to 400 ms.
    pub(super) fn retransmit_timeout(&self) -> TimeDelta {
        let rtt = self.clock.rtt().unwrap_or(MAX_RETRANSMIT_TIMEOUT / 2);
        (rtt + self.clock.jitter() * 4 + TimeDelta::from_millis(10))
            .max(MIN_RETRANSMIT_TIMEOUT)
            .min(MAX_RETRANSMIT_TIMEOUT)
    }

    /// Makes the next datagram carry a probe, which requests an echo.
    pub(super) fn probe_soon(&mut self, now: Instant) {
        self.next_probe = self.next_probe.min(now);
    }

    pub(super) fn next_probe(&self) -> Instant {
        self.next_probe
    }

    /// Appends the pending echo. Returns whether the peer requested one, so that the echo alone is worth a datagram.
    pub(super) fn put_echo(&mut self, datagram: &mut MotionDatagramWriter<'_>) -> Result<bool, BufferFull> {
        if let Some((sent, received)) = self.pending_echo.take() {
            datagram.put(MotionItem::Echo { sent, received })?;
        }
        Ok(core::mem::take(&mut self.is_echo_requested))
    }

    /// Restores the pending echo of a datagram that was not sent.
    pub(super) fn restore_echo(&mut self, echo: Option<(Instant, Instant)>) {
        self.pending_echo = echo;
    }

    pub(super) fn pending_echo(&self) -> Option<(Instant, Instant)> {
        self.pending_echo
    }

    /// Appends a probe if one is due.
    pub(super) fn put_probe(
        &mut self,
        now: Instant,
        datagram: &mut MotionDatagramWriter<'_>,
    ) -> Result<(), BufferFull> {
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

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory()
    }
}
