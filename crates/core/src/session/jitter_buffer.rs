//! The jitter buffer after Kim and Park: send interval, buffer sizes, and the pauses that fill a buffer that runs
//! low.
//!
//! The buffer of a peer holds the inputs that are received and not yet stepped; on a link with constant delay it holds
//! those of the input delay minus the one-way delay. A lost packet lets the buffer shrink until its inputs are resent.
//! A site whose buffer is about to run out asks for a [pause](super::StarvationPolicy::Pause): no site begins that
//! site's current frame before the same instant of group time. A pause changes nothing that sites must agree on, so it
//! needs no vote. A site that misses the request waits for inputs a little later.

use crate::clock::Clock;
use crate::session::message::PauseRequest;
use crate::time::{Instant, TimeDelta};

/// Maximum duration of a pause. A request of a peer for a longer one is ignored.
const MAX_PAUSE: TimeDelta = TimeDelta::from_secs(1);
/// Minimum time from the end of a pause to the start of the next one: where one pause did not help, another would not.
const MIN_PAUSE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Number of mean deviations by which the estimated maximum of the round-trip time exceeds the smoothed value.
const JITTER_DEVIATIONS: i64 = 4;

/// Model of a link for equations 3 to 5 of Kim and Park, in which sizes are numbers of commands and one command is sent
/// per send interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterBufferModel {
    /// Nominal time between two frames.
    pub period: TimeDelta,
    /// Input delay, as a time: the delay between a command and its execution.
    pub input_delay: TimeDelta,
    /// Maximum round-trip time; in a session the smoothed value plus four mean deviations.
    pub rtt_max: TimeDelta,
    /// Minimum round-trip time; in a session that of the last 40 s.
    pub rtt_min: TimeDelta,
}

impl JitterBufferModel {
    pub(super) fn new(period: TimeDelta, input_delay: u32, clock: &Clock) -> Self {
        let rtt = clock.rtt().unwrap_or_default();
        let rtt_min = clock.rtt_min().unwrap_or(rtt).min(rtt);
        Self {
            period,
            input_delay: period * i64::from(input_delay),
            rtt_max: rtt + clock.jitter() * JITTER_DEVIATIONS,
            rtt_min,
        }
    }

    /// Returns the time between packets (equation 3): the variation of the one-way delay, at most half of the input
    /// delay, and at least a frame period.
    pub fn send_interval(&self) -> TimeDelta {
        ((self.rtt_max - self.rtt_min) / 2).min(self.input_delay / 2).max(self.period)
    }

    /// Returns the initial capacity of a buffer, in commands (equation 4).
    pub fn initial_size(&self) -> i64 {
        self.commands_in(self.input_delay + self.rtt_max)
    }

    /// Returns the content of a buffer right after a pause, in commands (equation 5).
    pub fn size_after_pause(&self) -> i64 {
        self.commands_in(self.input_delay - self.rtt_max / 2)
    }

    /// Returns whether a pause can fill a buffer. Where the minimum one-way delay is not shorter than the input delay,
    /// the next command is always late.
    pub fn is_pause_useful(&self) -> bool {
        self.input_delay > self.rtt_min / 2
    }

    /// Returns the number of commands that are sent in this time, rounded up and at least 1.
    fn commands_in(&self, time: TimeDelta) -> i64 {
        let interval = self.send_interval().as_nanos().max(1);
        ((time.as_nanos() + interval - 1) / interval).max(1)
    }

    /// Returns whether a pause helps a buffer with the inputs of this many frames: it is below the low watermark and a
    /// pause can fill it, or above the high watermark.
    fn is_pause_due(&self, buffered: i64) -> bool {
        buffered < self.low_watermark() && self.is_pause_useful() || buffered > self.high_watermark()
    }

    /// Returns the duration of a pause: the input delay, at most 1 s.
    fn pause_duration(&self) -> TimeDelta {
        self.input_delay.min(MAX_PAUSE)
    }

    fn frames_in(&self, commands: i64) -> i64 {
        (self.send_interval() * commands).as_nanos() / self.period.as_nanos().max(1)
    }

    /// Returns the low watermark in frames: with fewer frames buffered, one late packet may empty the buffer. It is one
    /// frame plus the variation of the one-way delay, at most half of the content after a pause, and at least 1.
    pub fn low_watermark(&self) -> i64 {
        let variation = ((self.rtt_max - self.rtt_min) / 2).as_nanos();
        let variation = (variation + self.period.as_nanos() - 1) / self.period.as_nanos().max(1);
        (1 + variation).min(self.frames_in(self.size_after_pause()) / 2).max(1)
    }

    /// Returns the high watermark in frames: with more frames buffered, the peer sends faster than this site steps.
    /// That cannot happen as long as no site steps without the inputs of all sites.
    pub fn high_watermark(&self) -> i64 {
        self.frames_in(self.initial_size())
    }
}

/// Returns the duration of the pause that the first buffer out of its range needs; `None` if all buffers are in range.
/// A buffer is given by the peer's clock and the number of frames whose inputs it holds.
pub(super) fn needed_pause<'a>(
    period: TimeDelta,
    input_delay: u32,
    buffers: impl Iterator<Item = (&'a Clock, i64)>,
) -> Option<TimeDelta> {
    let mut models = buffers.map(|(clock, buffered)| (JitterBufferModel::new(period, input_delay, clock), buffered));
    models.find(|(model, buffered)| model.is_pause_due(*buffered)).map(|(model, _)| model.pause_duration())
}

/// The newest pause of all sites, which may be over.
#[derive(Debug)]
pub(super) struct GroupPause {
    /// End of the pause: no frame begins before this instant.
    until: Instant,
    /// The request that ticks carry while the pause lasts.
    announced: Option<PauseRequest>,
}

impl Default for GroupPause {
    fn default() -> Self {
        Self { until: Instant::from_nanos(i64::MIN), announced: None }
    }
}

/// The effect of a pause request of another site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PauseChange {
    /// A pause begins and lasts until this instant.
    Begin(Instant),
    /// The pause that is under way lasts until this instant, if it would end earlier.
    Extend(Instant),
}

impl GroupPause {
    pub(super) fn new(until: Instant, request: PauseRequest) -> Self {
        Self { until, announced: Some(request) }
    }

    /// Returns the end of the pause.
    #[inline]
    pub(super) fn end(&self) -> Instant {
        self.until
    }

    /// Returns the request that ticks carry, until the pause is over.
    pub(super) fn announced(&self) -> Option<PauseRequest> {
        self.announced
    }

    /// Returns whether another pause may begin: the last one has been over for 1 s.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        now - self.until >= MIN_PAUSE_INTERVAL
    }

    /// Extends the pause to an instant, if it ends earlier.
    pub(super) fn extend(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    /// Stops announcing the pause if it is over.
    pub(super) fn clear_expired(&mut self, now: Instant) {
        if self.announced.is_some() && self.until <= now {
            self.announced = None;
        }
    }

    /// Returns the effect of a request for a pause. `requested_end` is its end on this site's clock; `delay` is the
    /// time by which this site's next frame begins later than the frame that the request names. A request has no effect
    /// if its pause is over or ends more than 1 s ahead, or if it arrives within 1 s after the end of the last pause. A
    /// request during a pause can only extend it: two sites asked at once, and all resume at the later instant.
    pub(super) fn change(&self, now: Instant, requested_end: Instant, delay: TimeDelta) -> Option<PauseChange> {
        let is_plausible = requested_end > now && requested_end - now <= MAX_PAUSE;
        let until = requested_end + delay;
        match () {
            () if !is_plausible => None,
            () if self.until > now => Some(PauseChange::Extend(until)),
            () => self.may_begin(now).then_some(PauseChange::Begin(until)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(rtt_max: i64, rtt_min: i64) -> JitterBufferModel {
        let ms = TimeDelta::from_millis;
        JitterBufferModel {
            period: TimeDelta::from_nanos(16_666_667),
            input_delay: ms(300),
            rtt_max: ms(rtt_max),
            rtt_min: ms(rtt_min),
        }
    }

    #[test]
    fn equations_3_to_5() {
        let steady = model(130, 130);
        assert_eq!(steady.send_interval(), steady.period, "without jitter every frame has its own packet");
        assert_eq!((steady.initial_size(), steady.size_after_pause()), (26, 15));
        assert_eq!((steady.low_watermark(), steady.high_watermark()), (1, 26));
        let jittery = model(190, 90);
        assert_eq!(jittery.send_interval(), TimeDelta::from_millis(50));
        assert_eq!((jittery.initial_size(), jittery.size_after_pause()), (10, 5), "one command per three frames");
        assert_eq!((jittery.low_watermark(), jittery.high_watermark()), (4, 29));
    }

    #[test]
    fn rtt_above_input_delay_leaves_one_buffered_command() {
        let long = model(700, 700);
        assert_eq!((long.size_after_pause(), long.low_watermark()), (1, 1));
        assert!(!long.is_pause_useful() && model(700, 590).is_pause_useful());
    }

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    #[test]
    fn pause_is_due_below_the_low_and_above_the_high_watermark() {
        let jittery = model(190, 90);
        let due: std::vec::Vec<i64> = (0..32).filter(|buffered| jittery.is_pause_due(*buffered)).collect();
        assert_eq!(due, [0, 1, 2, 3, 30, 31]);
        let long = model(700, 700);
        assert!(!long.is_pause_due(0), "a pause cannot fill the buffer");
    }

    #[test]
    fn pause_request_begins_extends_or_has_no_effect() {
        let request = PauseRequest {
            requested_by: crate::id::SiteId::new(1).unwrap(),
            frame: crate::frame::Frame::ZERO,
            until_ns: 0,
        };
        let pause = GroupPause::new(at(2_000), request);
        let (none, later) = (TimeDelta::ZERO, TimeDelta::from_millis(40));
        assert_eq!(GroupPause::default().change(at(0), at(300), later), Some(PauseChange::Begin(at(340))));
        assert_eq!(pause.change(at(1_900), at(2_100), none), Some(PauseChange::Extend(at(2_100))));
        assert_eq!(pause.change(at(2_500), at(2_700), none), None, "the last pause ended 0.5 s ago");
        assert_eq!(pause.change(at(3_000), at(3_200), none), Some(PauseChange::Begin(at(3_200))));
        assert_eq!(pause.change(at(4_000), at(4_000), none), None, "the requested pause is over");
        assert_eq!(pause.change(at(4_000), at(5_001), none), None, "the requested pause is too long");
    }
}
