//! Simulates one direction of a network path: decides whether, when and how often each datagram arrives.
//!
//! A datagram passes, in this order, the cut, the bottleneck and its queue, loss, and delay. A datagram that is not
//! lost may be duplicated, behind the bottleneck. Loss, delay, jitter and duplication each draw from a random stream of
//! their own, whatever the fate of the datagram; the delays of duplicates draw from a fifth one. The draws for the n-th
//! datagram, except for the delay of its duplicate, therefore do not depend on its send time, on cuts or on other
//! impairments. Only [outages](Loss::Outages) depend on time: they begin and end at random times, whatever is sent.

use coplay::time::{Instant, TimeDelta};

use crate::random::Random;
use sampler::DelaySampler;

pub use config::{Delay, Jitter, LinkConfig, Loss, Rate};

mod config;
mod presets;
mod sampler;
#[cfg(test)]
mod tests;

/// One direction of a network path, with its conditions, random draws and counters.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    delays: DelaySampler,
    streams: RandomStreams,
    in_loss_burst: bool,
    outage: Outage,
    /// Time at which the bottleneck will have sent all packets that it has accepted.
    bottleneck_idle_from: Instant,
    /// Latest arrival time scheduled so far.
    last_arrival: Instant,
    is_cut: bool,
    stats: LinkStats,
}

/// Counters of a link since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link, whatever their fate.
    pub sent: u64,
    /// Payload bytes of the packets handed to the link.
    pub bytes: u64,
    /// Packets lost by the loss model, of those that passed the bottleneck.
    pub lost: u64,
    /// Packets scheduled to arrive twice, counted once each.
    pub duplicated: u64,
    /// Packets dropped because the queue of the bottleneck was full.
    pub overflowed: u64,
    /// Packets dropped by a cut when they were sent, plus arrivals dropped by a cut when they were due.
    pub cut: u64,
}

/// Arrival times of one packet: none, one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliveries {
    original: Option<Instant>,
    copy: Option<Instant>,
}

#[derive(Clone, Debug)]
struct RandomStreams {
    loss: Random,
    delay: Random,
    jitter: Random,
    duplicate: Random,
    copy: Random,
}

/// Whether an outage is active, and the time until which this state lasts; `None` before the first draw.
#[derive(Clone, Copy, Debug, Default)]
struct Outage {
    is_active: bool,
    until: Option<Instant>,
}

/// Random draws that decide about one packet.
struct PacketFate {
    is_lost: bool,
    delay: TimeDelta,
    copy_delay: Option<TimeDelta>,
}

impl Link {
    /// Creates a link whose random draws follow from this seed and name. Links with different names are independent.
    pub fn new(config: LinkConfig, seed: u64, name: &str) -> Self {
        Self {
            delays: DelaySampler::new(&config.delay),
            config,
            streams: RandomStreams::new(seed, name),
            in_loss_burst: false,
            outage: Outage::default(),
            bottleneck_idle_from: Instant::from_nanos(i64::MIN),
            last_arrival: Instant::from_nanos(i64::MIN),
            is_cut: false,
            stats: LinkStats::default(),
        }
    }

    /// Sends a packet of `bytes` bytes at the true time `now` and returns its arrival times. `now` must not decrease
    /// from call to call.
    ///
    /// When an arrival is due, the caller must ask [`admit_arrival`](Self::admit_arrival) whether it gets through.
    pub fn send(&mut self, now: Instant, bytes: usize) -> Deliveries {
        let fate = self.draw_fate(now);
        self.stats.sent += 1;
        self.stats.bytes += bytes as u64;
        if self.is_cut {
            self.stats.cut += 1;
            return Deliveries::default();
        }
        let Some(departure) = self.pass_bottleneck(now, bytes) else {
            self.stats.overflowed += 1;
            return Deliveries::default();
        };
        if fate.is_lost {
            self.stats.lost += 1;
            return Deliveries::default();
        }
        self.stats.duplicated += u64::from(fate.copy_delay.is_some());
        let original = Some(self.arrival_time(departure + fate.delay));
        let copy = fate.copy_delay.map(|delay| self.arrival_time(departure + delay));
        Deliveries { original, copy }
    }

    /// Returns whether an arrival that is due now gets through; a cut link admits none. Call it once per arrival.
    pub fn admit_arrival(&mut self) -> bool {
        self.stats.cut += u64::from(self.is_cut);
        !self.is_cut
    }

    /// Cuts or restores the link. A cut link accepts and delivers nothing. A packet in flight still arrives if it is
    /// due after the link is restored.
    pub fn set_cut(&mut self, cut: bool) {
        self.is_cut = cut;
    }

    /// Returns whether the link is cut, so that it accepts and delivers nothing.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Changes the conditions for all packets sent from now on. Packets in flight arrive as scheduled, and unless
    /// [`LinkConfig::reorder`] is set, no later packet overtakes them.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.delays = DelaySampler::new(&config.delay);
        self.in_loss_burst &= matches!(config.loss, Loss::Bursty { .. });
        if !matches!(config.loss, Loss::Outages { .. }) {
            self.outage = Outage::default();
        }
        self.config = config;
    }

    /// Returns the conditions for packets sent from now on.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters since the creation of the link.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Draws the fate of a packet. The draws are made even for a packet that a cut or a full queue drops, so that the
    /// draws for later packets do not depend on that.
    fn draw_fate(&mut self, now: Instant) -> PacketFate {
        let (number, streams) = (self.stats.sent, &mut self.streams);
        let delay = self.delays.sample(number, &mut streams.delay) + self.config.jitter.sample(&mut streams.jitter);
        let copy_delay = streams
            .duplicate
            .chance(self.config.duplicate)
            .then(|| self.delays.sample_for_copy(&mut streams.copy) + self.config.jitter.sample(&mut streams.copy));
        PacketFate { is_lost: self.draw_loss(now), delay, copy_delay }
    }

    fn draw_loss(&mut self, now: Instant) -> bool {
        let random = &mut self.streams.loss;
        match self.config.loss {
            Loss::None => false,
            Loss::Independent(probability) => random.chance(probability),
            Loss::Bursty { enter, leave, bad, good } => {
                self.in_loss_burst ^= random.chance(if self.in_loss_burst { leave } else { enter });
                random.chance(if self.in_loss_burst { bad } else { good })
            }
            Loss::Outages { part, mean } => self.outage.is_active_at(now, part, mean, random),
        }
    }

    /// Returns the time at which a packet leaves the bottleneck; `None` if the packet has to wait and does not fit into
    /// the queue.
    fn pass_bottleneck(&mut self, now: Instant, bytes: usize) -> Option<Instant> {
        let Some(rate) = self.config.rate else { return Some(now) };
        let start = now.max(self.bottleneck_idle_from);
        let done = start + rate.time_for(bytes as u64);
        let must_wait = start > now;
        if must_wait && done - now > rate.time_for(rate.queue_bytes) {
            return None;
        }
        self.bottleneck_idle_from = done;
        Some(done)
    }

    /// Returns the arrival time `at` or, unless reordering is allowed, the latest arrival so far if that is later.
    fn arrival_time(&mut self, at: Instant) -> Instant {
        let at = if self.config.reorder { at } else { at.max(self.last_arrival) };
        self.last_arrival = self.last_arrival.max(at);
        at
    }
}

impl Outage {
    /// Returns whether an outage is active at `now`, which must not decrease from call to call.
    fn is_active_at(&mut self, now: Instant, part: f64, mean: TimeDelta, random: &mut Random) -> bool {
        if part <= 0.0 {
            return false;
        }
        let mean = mean.as_nanos().max(1) as f64;
        let between = mean * (1.0 - part) / part;
        let mut duration =
            |is_now: bool| TimeDelta::from_nanos(random.exponential(if is_now { mean } else { between }) as i64 + 1);
        let mut until = self.until.unwrap_or_else(|| Instant::ZERO + duration(false));
        while until <= now {
            self.is_active = !self.is_active;
            until += duration(self.is_active);
        }
        self.until = Some(until);
        self.is_active
    }
}

impl RandomStreams {
    fn new(seed: u64, link: &str) -> Self {
        let stream = |purpose: &str| Random::stream(seed, &format!("{link}/{purpose}"));
        Self {
            loss: stream("loss"),
            delay: stream("delay"),
            jitter: stream("jitter"),
            duplicate: stream("duplicate"),
            copy: stream("copy"),
        }
    }
}

impl Iterator for Deliveries {
    type Item = Instant;

    #[inline]
    fn next(&mut self) -> Option<Instant> {
        self.original.take().or_else(|| self.copy.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.original.is_some()) + usize::from(self.copy.is_some());
        (left, Some(left))
    }
}

impl ExactSizeIterator for Deliveries {}

impl std::iter::Sum for LinkStats {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, link| Self {
            sent: sum.sent + link.sent,
            bytes: sum.bytes + link.bytes,
            lost: sum.lost + link.lost,
            duplicated: sum.duplicated + link.duplicated,
            overflowed: sum.overflowed + link.overflowed,
            cut: sum.cut + link.cut,
        })
    }
}
