//! What the two ends of a way know of each other: which run the other is in, its clock, and how long the way is.

use super::Delay;
use crate::clock::{Clock, RoundTrip};
use crate::time::{Instant, TimeDelta};
use crate::wire::BufferFull;
use crate::wire::motion::{MotionDatagram, MotionHeader, MotionItem};

/// Echoes that are asked for at once, and how soon; then as often as the way is uneven.
const FIRST_PROBES: u32 = 12;
const PROBE_AT_ONCE: TimeDelta = TimeDelta::from_millis(40);
const PROBE_SOON: TimeDelta = TimeDelta::from_millis(200);
const PROBE_LATER: TimeDelta = TimeDelta::from_secs(1);
const UNEVEN: TimeDelta = TimeDelta::from_millis(1);
/// What nobody answers is said again after about a round trip, within these.
const REPEAT_SOONEST: TimeDelta = TimeDelta::from_millis(30);
const REPEAT_LATEST: TimeDelta = TimeDelta::from_millis(400);

/// The other end.
#[derive(Debug)]
pub(super) struct Peer {
    run: Option<u32>,
    pub(super) clock: Clock,
    pub(super) delay: Delay,
    pub(super) heard: Instant,
    /// What came last and was not echoed yet: when it left there, and when it came.
    echo: Option<(Instant, Instant)>,
    echo_wanted: bool,
    next_probe: Instant,
    probes: u32,
}

/// How a datagram's run stands to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// It is over.
    Past,
    /// It goes on.
    Same,
    /// It has just begun.
    New,
}

impl Peer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            run: None,
            clock: Clock::assuming_crystals(),
            delay: Delay::default(),
            heard: now,
            echo: None,
            echo_wanted: false,
            next_probe: now,
            probes: 0,
        }
    }

    pub(super) fn on_head(&mut self, now: Instant, head: MotionHeader) -> Run {
        let run = match self.run {
            Some(run) if head.sender_incarnation < run => return Run::Past,
            Some(run) if head.sender_incarnation == run => Run::Same,
            Some(_) => {
                *self = Self::new(now);
                Run::New
            }
            None => Run::New,
        };
        self.run = Some(head.sender_incarnation);
        self.heard = now;
        self.echo = Some((head.sent_at, now));
        run
    }

    /// What a datagram to it begins with.
    pub(super) fn head(&self, now: Instant, run: u32) -> MotionHeader {
        MotionHeader { sender_incarnation: run, receiver_incarnation: self.run.unwrap_or(0), sent_at: now }
    }

    pub(super) fn on_probe(&mut self) {
        self.echo_wanted = true;
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
        if rtt.is_negative() || rtt > self.clock.max_plausible_rtt().max(REPEAT_LATEST) * 4 {
            return None;
        }
        self.clock.on_round_trip(trip);
        self.delay.on_sample(rtt / 2);
        Some(rtt / 2)
    }

    /// How long something is under way.
    pub(super) fn one_way(&self) -> TimeDelta {
        self.clock.rtt().map_or(self.delay.accumulated(), |rtt| rtt / 2)
    }

    /// When something left there, in our time: by its clock where that is known, and else by how long the way is.
    pub(super) fn to_local(&self, now: Instant, theirs: Instant) -> Instant {
        let by_clock = self.clock.to_local(theirs).filter(|_| self.clock.is_ready());
        by_clock.unwrap_or(now - self.delay.accumulated()).min(now)
    }

    /// After how long what was not answered is said again.
    pub(super) fn repeat_after(&self) -> TimeDelta {
        let rtt = self.clock.rtt().unwrap_or(REPEAT_LATEST / 2);
        (rtt + self.clock.jitter() * 4 + TimeDelta::from_millis(10)).max(REPEAT_SOONEST).min(REPEAT_LATEST)
    }

    /// An echo is to be asked for with the next datagram, at once.
    pub(super) fn ask_soon(&mut self, now: Instant) {
        self.next_probe = self.next_probe.min(now);
    }

    pub(super) fn next_probe(&self) -> Instant {
        self.next_probe
    }

    /// Begins a datagram with what is owed of echoes. Says whether that alone is worth one.
    pub(super) fn put_echo(&mut self, datagram: &mut MotionDatagram<'_>) -> Result<bool, BufferFull> {
        if let Some((sent, received)) = self.echo.take() {
            datagram.put(MotionItem::Echo { sent, received })?;
        }
        Ok(core::mem::take(&mut self.echo_wanted))
    }

    /// The datagram was not worth sending: its echo goes another time.
    pub(super) fn keep_echo(&mut self, echo: Option<(Instant, Instant)>) {
        self.echo = echo;
    }

    pub(super) fn echo(&self) -> Option<(Instant, Instant)> {
        self.echo
    }

    /// Asks for an echo if it is time.
    pub(super) fn put_probe(&mut self, now: Instant, datagram: &mut MotionDatagram<'_>) -> Result<(), BufferFull> {
        if now < self.next_probe {
            return Ok(());
        }
        self.probes = self.probes.saturating_add(1);
        self.next_probe = now
            + match self.probes {
                ..FIRST_PROBES => PROBE_AT_ONCE,
                _ if !self.clock.is_ready() || self.clock.jitter() > UNEVEN => PROBE_SOON,
                _ => PROBE_LATER,
            };
        datagram.put(MotionItem::Probe)
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory()
    }
}
