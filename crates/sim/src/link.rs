//! One direction of a network path: says when, how often and whether at all what is sent arrives.
//!
//! A packet passes, in this order: the cut, the bottleneck and its queue, loss, and the delay; copies are made behind the
//! bottleneck. Loss, delay, jitter and duplication each draw from a random stream of their own, once per packet sent and
//! whatever becomes of it. So the luck of the n-th packet depends on the seed alone, not on when it was sent, on a cut
//! before it, or on what else is switched on. Only [outages](Loss::Outages) go by time: whether there is one depends on the seed and the time alone.

use coplay::time::{Instant, TimeDelta};

use crate::random::Random;
use sampler::DelaySampler;

pub use config::{Delay, Jitter, LinkConfig, Loss, Rate};

mod config;
mod presets;
mod sampler;
#[cfg(test)]
mod tests;

/// One direction of a network path.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    delays: DelaySampler,
    streams: RandomStreams,
    in_loss_burst: bool,
    outage: Outage,
    /// When the bottleneck will have sent all it has accepted.
    bottleneck_idle_from: Instant,
    /// Up to when arrivals were promised.
    last_arrival: Instant,
    is_cut: bool,
    stats: LinkStats,
}

/// What has become of the packets of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets handed to the link, whatever became of them.
    pub sent: u64,
    /// The bytes of those packets.
    pub bytes: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets that arrive twice.
    pub duplicated: u64,
    /// Packets that found the queue of the bottleneck full.
    pub overflowed: u64,
    /// Packets dropped by a cut, as they were sent or as they arrived.
    pub cut: u64,
}

/// When one packet arrives: never, once or twice.
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

/// Whether nothing gets through, and until when that stays so.
#[derive(Clone, Copy, Debug, Default)]
struct Outage {
    is_active: bool,
    until: Option<Instant>,
}

/// What chance holds in store for one packet.
struct PacketFate {
    is_lost: bool,
    delay: TimeDelta,
    copy_delay: Option<TimeDelta>,
}

impl Link {
    /// A link whose luck is that of this seed and name; links of different names have nothing to do with each other.
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

    /// Sends a packet of this size at this true time, and says when it arrives. Times must not decrease.
    ///
    /// Whether it gets through then is for the caller to [ask](Self::admit_arrival) when the time has come.
    pub fn send(&mut self, now: Instant, bytes: usize) -> Deliveries {
        let luck = self.draw_fate(now);
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
        if luck.is_lost {
            self.stats.lost += 1;
            return Deliveries::default();
        }
        self.stats.duplicated += u64::from(luck.copy_delay.is_some());
        let original = Some(self.arrival_time(departure + luck.delay));
        let copy = luck.copy_delay.map(|delay| self.arrival_time(departure + delay));
        Deliveries { original, copy }
    }

    /// To be asked about each arrival when its time has come: whether it gets through. It does not while the link is cut.
    pub fn admit_arrival(&mut self) -> bool {
        self.stats.cut += u64::from(self.is_cut);
        !self.is_cut
    }

    /// Cuts the link or mends it. While it is cut nothing can be sent and nothing arrives; what is under way and due
    /// after it is mended still comes.
    pub fn set_cut(&mut self, cut: bool) {
        self.is_cut = cut;
    }

    /// Whether the link is cut.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Changes the conditions for all that is sent from now on. What is under way arrives as promised, and unless
    /// [`LinkConfig::reorder`] is set nothing overtakes it.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.delays = DelaySampler::new(&config.delay);
        self.in_loss_burst &= matches!(config.loss, Loss::Bursty { .. });
        if !matches!(config.loss, Loss::Outages { .. }) {
            self.outage = Outage::default();
        }
        self.config = config;
    }

    /// The conditions at present.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What has become of the packets so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Draws for every packet, also for one that does not get far: its end must not shift the luck of the next.
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

    /// When the packet has left the bottleneck, unless its queue is full.
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

    /// Promises an arrival at this time or, to keep the order of sending, later.
    fn arrival_time(&mut self, at: Instant) -> Instant {
        let at = if self.config.reorder { at } else { at.max(self.last_arrival) };
        self.last_arrival = self.last_arrival.max(at);
        at
    }
}

impl Outage {
    /// Whether there is one at this time, which is not before the last that was asked about.
    fn is_active_at(&mut self, now: Instant, part: f64, mean: TimeDelta, random: &mut Random) -> bool {
        if part <= 0.0 {
            return false;
        }
        let mean = mean.as_nanos().max(1) as f64;
        let between = mean * (1.0 - part) / part;
        let mut lasts =
            |is_now: bool| TimeDelta::from_nanos(random.exponential(if is_now { mean } else { between }) as i64 + 1);
        let mut until = self.until.unwrap_or_else(|| Instant::ZERO + lasts(false));
        while until <= now {
            self.is_active = !self.is_active;
            until += lasts(self.is_active);
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
