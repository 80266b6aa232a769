//! Even pacing: every site follows one plan at an even rate.
//!
//! The plan of the lowest site advances by one period per frame. Every other site knows that plan to a fraction of a
//! millisecond (probes carry it, clock estimates translate it) and steers its own plan towards it, slowly enough that
//! the corrections are neither heard nor seen.
//!
//! A frame that has to wait for an input is stepped late and the next one starts late, but the plan stays: the
//! following frames run slightly faster until the site is back on plan. One late packet at one site therefore affects
//! only that site.
//!
//! Where the link delay exceeds the maximum lead (input delay plus prediction window), waiting cannot be avoided, only
//! spread. A peer sends its input for frame F when it begins frame F − input delay, and the input arrives one link
//! delay later. The other sites need it at the latest to step frame F + prediction window, which is the maximum lead
//! after the frame in which it was sent. On average, a frame therefore cannot take less than link delay / maximum lead.
//! The pacer stretches the period to exactly that: the game slows down evenly and does not stutter. The delay is
//! measured by probes and clocks, not by the time spent waiting for inputs, which would grow with every stall and slow
//! the game further.
//!
//! Prediction must be fair to both sides. With a delay of nearly a whole number of periods, inputs arrive just before a
//! frame at one of two sites and just after it at the other, and a microsecond decides which of them always predicts
//! one frame more. Sites that follow a plan therefore dither around it, too little and too slowly to be noticed, so
//! that the disadvantage alternates.

use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId};
use crate::time::{Instant, TimeDelta};

/// Minimum speed-up of frames that catch up with the plan, as a fraction of the period.
const MIN_CATCH_UP_RATE: f64 = 0.03;
/// Additional speed-up for a lateness of one period, as a fraction of the period.
const CATCH_UP_RATE_PER_PERIOD: f64 = 0.12;
/// Number of periods of lateness beyond which a site abandons its plan and continues from the current time.
const MAX_LATE_PERIODS: i64 = 3;
/// Divisor of the distance to the reference that gives the correction in one frame.
const STEERING_DIVISOR: i64 = 8;
/// Largest correction per frame at a small distance from the reference, as a fraction of the period.
const MIN_SLEW_LIMIT: f64 = 0.01;
/// Divisor of the period that gives a correction within any limit, for which the limit need not be computed.
const FREE_SLEW_DIVISOR: i64 = 128;
/// Amount by which each period of distance from the reference raises the largest correction, as a fraction of the
/// period.
const SLEW_LIMIT_PER_PERIOD: f64 = 0.05;
/// Distance from the reference, in periods, beyond which the largest correction does not grow any more.
const MAX_SLEW_PERIODS: f64 = 10.0;
/// Divisor of the period that gives the amplitude of the dither around the reference.
const DITHER_DIVISOR: i64 = 128;
/// Number of frames from one extreme of the dither to the other at site 0.
const DITHER_FRAMES: i64 = 64;
/// Number of frames that each site number adds to [`DITHER_FRAMES`].
const DITHER_FRAMES_PER_SITE: i64 = 16;
/// Inverse of the largest clock skew that is followed: 1/50, or 2 %.
const MAX_SKEW_DIVISOR: i64 = 50;
/// Largest distance between two sites in frames, which limits a jump of the plan.
const MAX_FRAMES_APART: i64 = 256;
/// Number of frames after which a reference is ignored.
const REFERENCE_LIFETIME_FRAMES: i64 = 120;

/// Pacer of one site that follows the plan of the lowest playing site by small corrections, and stretches the period
/// where the link delay exceeds the maximum lead.
#[derive(Debug)]
pub struct EvenPacer {
    period: TimeDelta,
    limits: PacingLimits,
    max_lead: i64,
    /// Current time between two frames, by the local clock.
    current_period: TimeDelta,
    /// Planned start of the current frame; of the next one once the current frame was stepped.
    planned_start: Instant,
    /// Time at which the next frame begins: its planned start, or later if the previous frame was late.
    next_start: Instant,
    /// Time from `next_start` to the instant at which the host program began the frame; zero if it is longer than two
    /// periods.
    host_lateness: TimeDelta,
    reference: Option<PaceReference>,
    /// Whether the current frame was planned by a jump to the reference, possibly far in the past.
    has_jumped: bool,
    /// Number of frames from one extreme of the dither to the other; 0 without dither.
    dither_frames: i64,
    delays: [Option<OneWayDelay>; MAX_SITES],
    /// The longest of `delays`.
    max_delay: TimeDelta,
    /// The shortest period that `max_delay` allows: that delay divided by the maximum lead.
    min_link_period: TimeDelta,
}

/// Limits that follow from the nominal period.
#[derive(Clone, Copy, Debug)]
struct PacingLimits {
    /// Delay of a frame beyond which a site abandons its plan.
    max_lateness: TimeDelta,
    /// Shortest nominal period that the site adopts from the reference, 2 % below its own.
    min_period: TimeDelta,
    /// Longest nominal period that the site adopts from the reference, 2 % above its own.
    max_period: TimeDelta,
    /// Correction per frame that is within any limit.
    free_slew: TimeDelta,
    /// Amplitude of the dither around the reference: 1/128 of the period.
    dither: TimeDelta,
}

impl PacingLimits {
    fn of(period: TimeDelta) -> Self {
        Self {
            max_lateness: period * MAX_LATE_PERIODS,
            min_period: period - period / MAX_SKEW_DIVISOR,
            max_period: period + period / MAX_SKEW_DIVISOR,
            free_slew: period / FREE_SLEW_DIVISOR,
            dither: period / DITHER_DIVISOR,
        }
    }
}

/// The newest known plan of the site that sets the pace: it begins `frame` at the local time `planned_at`, and the
/// following frames `period` apart.
#[derive(Clone, Copy, Debug)]
struct PaceReference {
    frame: Frame,
    planned_at: Instant,
    period: TimeDelta,
}

/// Smoothed minimum of a one-way delay over short intervals. The minimum discards packets that waited in the socket of
/// a suspended computer, which say nothing about the link.
#[derive(Clone, Copy, Debug)]
struct OneWayDelay {
    smoothed: TimeDelta,
    least: TimeDelta,
    since: Instant,
}

/// Length of the intervals over which [`OneWayDelay`] takes the minimum.
const DELAY_INTERVAL: TimeDelta = TimeDelta::from_millis(150);

impl OneWayDelay {
    fn add(&mut self, now: Instant, delay: TimeDelta, period: TimeDelta) {
        if now - self.since < DELAY_INTERVAL {
            self.least = self.least.min(delay);
            return;
        }
        let error = (self.least - self.smoothed).min(period * 4);
        self.smoothed += error / if error.is_negative() { 4 } else { 8 };
        (self.least, self.since) = (delay, now);
    }
}

impl EvenPacer {
    /// Creates a pacer for frames of `period` and a maximum lead of `max_lead` frames, with the first frame at `start`.
    pub fn new(period: TimeDelta, max_lead: u32, start: Instant) -> Self {
        Self {
            period,
            limits: PacingLimits::of(period),
            max_lead: i64::from(max_lead),
            current_period: period,
            planned_start: start,
            next_start: start,
            host_lateness: TimeDelta::ZERO,
            reference: None,
            has_jumped: false,
            dither_frames: 0,
            delays: [None; MAX_SITES],
            max_delay: TimeDelta::ZERO,
            min_link_period: TimeDelta::ZERO,
        }
    }

    /// Enables dither around the reference, for sites that predict. Each site number has its own rate, so that the
    /// disadvantage alternates between any two sites.
    pub fn enable_dither(&mut self, site: SiteId) {
        self.dither_frames = DITHER_FRAMES + DITHER_FRAMES_PER_SITE * site.index() as i64;
    }

    /// Returns the local time at which the next frame is to begin.
    pub fn next_start(&self) -> Instant {
        self.next_start
    }

    /// Returns the planned start of the current frame, or of the next one once the current frame was stepped.
    /// [`next_start`](Self::next_start) is later while the site catches up.
    pub fn planned_start(&self) -> Instant {
        self.planned_start
    }

    /// Returns the current time between two frames: the nominal period by the reference's clock, or more where a link
    /// limits the frame rate.
    pub fn current_period(&self) -> TimeDelta {
        self.current_period
    }

    /// Records a one-way delay from `site`, measured with a packet that arrived at `now`, or estimated.
    pub fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        match &mut self.delays[site.index()] {
            Some(known) => known.add(now, delay, self.period),
            slot => *slot = Some(OneWayDelay { smoothed: delay, least: delay, since: now }),
        }
        self.update_min_link_period();
    }

    /// Returns the frame that the reference has reached at `now` by its newest plan; `None` without a reference.
    pub fn frame_at(&self, now: Instant) -> Option<Frame> {
        let reference = self.reference?;
        let passed = (now - reference.planned_at).as_nanos() / reference.period.as_nanos().max(1);
        Some(reference.frame + passed.clamp(0, i64::from(u16::MAX)) as u32)
    }

    /// Plans `frame` for the time at which the reference plans it, however far in the past. Returns `false` without a
    /// reference, or if the newest one is 120 or more frames older than `frame`. A plan more than 256 periods ahead of
    /// `now` is an error or a forgery, and is limited to 256 periods.
    pub fn jump_to(&mut self, now: Instant, frame: Frame) -> bool {
        let Some(reference) = self.current_reference(frame) else { return false };
        let planned = reference.planned_at + reference.period * (frame - reference.frame);
        self.planned_start = planned.min(now + self.period * MAX_FRAMES_APART);
        (self.next_start, self.has_jumped) = (self.planned_start, true);
        true
    }

    /// Begins the next frame at `latest` if it is planned for later. A plan that is later than frames that other sites
    /// have already begun is wrong: the local clock stood still, and its distance to the reference's is not known yet.
    pub fn begin_by(&mut self, latest: Instant) {
        self.planned_start = self.planned_start.min(latest);
        self.next_start = self.next_start.min(latest);
    }

    /// Delays the next frame at least until `until`. All sites pause together, so the reference from before the pause
    /// is discarded.
    pub fn pause_until(&mut self, until: Instant) {
        self.planned_start = self.planned_start.max(until);
        self.next_start = self.next_start.max(until);
        self.reference = None;
    }

    /// Sets the maximum lead, the sum of input delay and prediction window, in frames.
    pub fn set_max_lead(&mut self, max_lead: u32) {
        self.max_lead = i64::from(max_lead);
        self.update_min_link_period();
    }

    /// Ignores the link delay of a site that has left or was dropped.
    pub fn forget_site(&mut self, site: SiteId) {
        self.delays[site.index()] = None;
        self.update_min_link_period();
    }

    /// Returns the site whose link is too slow for frames of `period`, and the fraction by which it lowers the frame
    /// rate; `None` if no link is too slow.
    pub fn limiting_site(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        let site = SiteId::first(MAX_SITES).max_by_key(|site| self.delays[site.index()].map(|delay| delay.smoothed))?;
        let share = 1.0 - period.as_nanos() as f64 / self.min_link_period.as_nanos().max(1) as f64;
        (share > 0.0).then_some((site, share))
    }

    fn update_min_link_period(&mut self) {
        self.max_delay = self.delays.iter().flatten().map(|delay| delay.smoothed).max().unwrap_or_default();
        self.min_link_period = self.max_delay / self.max_lead.max(1);
    }

    /// Records that the site that sets the pace planned to begin `frame` at the local time `at`. Has no effect unless
    /// `frame` is newer than that of the last recorded plan.
    pub fn on_reference(&mut self, frame: Frame, at: Instant) {
        let period = match self.reference {
            Some(last) if frame - last.frame < 4 => {
                if frame <= last.frame {
                    return;
                }
                last.period
            }
            Some(last) if frame - last.frame < REFERENCE_LIFETIME_FRAMES => {
                let measured = (at - last.planned_at) / (frame - last.frame);
                // A freeze lies between the two plans, or one of them was abandoned, so the measurement of the period
                // restarts.
                if measured > self.current_period * 2 {
                    self.current_period
                } else {
                    last.period + (measured - last.period) / 4
                }
            }
            _ => self.current_period,
        };
        self.reference = Some(PaceReference { frame, planned_at: at, period });
    }

    /// Records the time at which the host program began a frame. It may be later than planned, because a host's timer
    /// may be coarse.
    pub fn on_begin(&mut self, now: Instant) {
        let late = now - self.next_start;
        self.host_lateness = if late > self.period * 2 { TimeDelta::ZERO } else { late.max(TimeDelta::ZERO) };
    }

    /// Plans the frame after `frame`, which the machine is about to step.
    pub fn on_step(&mut self, now: Instant, frame: Frame) {
        self.current_period = self.min_link_period.max(self.followed_period(frame));
        // The host's own lateness does not count, or a coarse timer would slow down the game.
        let now = now - self.host_lateness;
        // With a lead of 0, every frame waits for one delay between its start and its step. That is not lateness.
        let now = if self.max_lead == 0 { now - self.max_delay } else { now };
        let late = now - self.planned_start;
        let has_jumped = core::mem::take(&mut self.has_jumped);
        if late > self.limits.max_lateness && !has_jumped {
            self.planned_start = now;
            self.reference = None;
        }
        self.planned_start += self.current_period;
        self.planned_start += self.steering_correction(frame.next());
        self.next_start = self.planned_start;
        if late > TimeDelta::ZERO {
            self.next_start = self.planned_start.max(now + self.current_period.scale(1.0 - self.catch_up_rate(now)));
        }
    }

    /// Returns the speed-up of the next frame as a fraction of the period: 3 %, plus 12 % per period of lateness up to
    /// one period. Where the link limits the frame rate, more than 3 % would only mean another wait.
    fn catch_up_rate(&self, now: Instant) -> f64 {
        let late = self.in_periods(now + self.current_period - self.planned_start, 1.0);
        if self.current_period > self.period.scale(1.02) {
            MIN_CATCH_UP_RATE
        } else {
            MIN_CATCH_UP_RATE + CATCH_UP_RATE_PER_PERIOD * late
        }
    }

    /// Returns the nominal period by the clock of the reference, which may run faster or slower than the local one. A
    /// reference that is slower than any clock is waiting for a site, perhaps for this one. Following it would keep
    /// both slow forever, so the result is limited to 2 % from the nominal period.
    fn followed_period(&self, frame: Frame) -> TimeDelta {
        let followed = self.current_reference(frame).map_or(self.period, |reference| reference.period);
        followed.clamp(self.limits.min_period, self.limits.max_period)
    }

    fn current_reference(&self, frame: Frame) -> Option<PaceReference> {
        self.reference.filter(|reference| frame - reference.frame < REFERENCE_LIFETIME_FRAMES)
    }

    /// Returns the absolute value of a distance as a multiple of the nominal period, at most `max`.
    fn in_periods(&self, distance: TimeDelta, max: f64) -> f64 {
        (distance.abs().as_nanos() as f64 / self.period.as_nanos() as f64).min(max)
    }

    /// Returns the intended distance of a frame from the reference. Where the link limits the pace, all sites predict
    /// as many frames as they may, and dither is useless.
    fn dither_offset(&self, frame: Frame) -> TimeDelta {
        if self.dither_frames == 0 || self.min_link_period > self.period {
            return TimeDelta::ZERO;
        }
        let phase = i64::from(frame.number()) % (self.dither_frames * 2);
        let position = phase.min(self.dither_frames * 2 - phase);
        self.limits.dither * (position * 2 - self.dither_frames) / self.dither_frames
    }

    /// Returns the correction of the time until `frame` that brings the plan closer to the reference.
    fn steering_correction(&self, frame: Frame) -> TimeDelta {
        let Some(reference) = self.current_reference(frame) else { return TimeDelta::ZERO };
        let target = reference.planned_at + reference.period * (frame - reference.frame);
        let error = target + self.dither_offset(frame) - self.planned_start;
        let wanted = error / STEERING_DIVISOR;
        if wanted.abs() < self.limits.free_slew {
            return wanted;
        }
        let limit =
            self.period.scale(MIN_SLEW_LIMIT + SLEW_LIMIT_PER_PERIOD * self.in_periods(error, MAX_SLEW_PERIODS));
        wanted.clamp(-limit, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: TimeDelta = TimeDelta::from_millis(16);

    fn ms(millis: i64) -> TimeDelta {
        TimeDelta::from_millis(millis)
    }

    /// Runs frames: the host begins each one `host(frame)` after `next_start`, and it waits for inputs for
    /// `inputs(frame)`. Returns the start of the first frame and of the one after the last.
    fn run_frames(
        even: &mut EvenPacer,
        frames: u32,
        mut host: impl FnMut(u32) -> TimeDelta,
        inputs: impl Fn(u32) -> TimeDelta,
    ) -> [Instant; 2] {
        let first = even.next_start();
        for frame in 0..frames {
            let begin = even.next_start() + host(frame);
            even.on_begin(begin);
            even.on_step(begin + inputs(frame), Frame::new(frame));
        }
        [first, even.next_start()]
    }

    #[test]
    fn coarse_host_timer_does_not_slow_the_game() {
        let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
        let [first, last] = run_frames(&mut even, 1_000, |frame| ms(i64::from(frame % 8)), |_| TimeDelta::ZERO);
        assert_eq!(last - first, PERIOD * 1_000);
    }

    #[test]
    fn wrong_plan_does_not_delay_a_frame_that_is_overdue() {
        let (mut even, now) = (EvenPacer::new(PERIOD, 6, Instant::ZERO), Instant::ZERO + ms(1_000));
        even.on_reference(Frame::new(100), now + ms(9_000));
        assert!(even.jump_to(now, Frame::new(20)));
        assert!(even.next_start() > now + ms(3_000), "the reference is wrong");
        even.begin_by(now);
        assert_eq!((even.next_start(), even.planned_start()), (now, now));
        even.begin_by(now + PERIOD);
        assert_eq!(even.next_start(), now);
    }

    #[test]
    fn late_input_delays_one_frame_and_not_the_plan() {
        let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
        let late = |frame| if frame == 10 { ms(20) } else { TimeDelta::ZERO };
        let [first, last] = run_frames(&mut even, 200, |_| TimeDelta::ZERO, late);
        assert_eq!(last - first, PERIOD * 200);
    }

    #[test]
    fn jump_reaches_the_reference_at_once() {
        let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
        let now = Instant::ZERO + ms(1_600);
        even.on_reference(Frame::new(100), now);
        for frame in 60..100u32 {
            assert!(even.jump_to(now, Frame::new(frame)) && even.next_start() < now, "frame {frame} is due");
            even.on_begin(now);
            even.on_step(now, Frame::new(frame));
        }
        assert!((even.next_start() - now).abs() < PERIOD, "{:?}", even.next_start());
    }

    #[test]
    fn link_longer_than_input_delay_stretches_all_frames_evenly() {
        let site = SiteId::new(1).unwrap();
        let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
        even.on_delay(Instant::ZERO, site, ms(120));
        let [first, last] = run_frames(&mut even, 100, |_| TimeDelta::ZERO, |_| TimeDelta::ZERO);
        assert_eq!(last - first, ms(20) * 100);
        even.forget_site(site);
        let [first, last] = run_frames(&mut even, 100, |_| TimeDelta::ZERO, |_| TimeDelta::ZERO);
        assert_eq!(last - first, PERIOD * 100);
    }

    #[test]
    fn slew_towards_reference_is_limited_per_frame() {
        let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
        let mut before = even.next_start();
        for frame in 0..600u32 {
            if frame.is_multiple_of(12) {
                even.on_reference(Frame::new(frame), Instant::ZERO + ms(3) + PERIOD * i64::from(frame));
            }
            even.on_begin(even.next_start());
            even.on_step(even.next_start(), Frame::new(frame));
            let change = (even.next_start() - before - PERIOD).abs();
            assert!(change <= PERIOD.scale(0.02), "{change} at once");
            before = even.next_start();
        }
        let error = even.planned_start() - (Instant::ZERO + ms(3) + PERIOD * 600);
        assert!(error.abs() < TimeDelta::from_micros(50), "{error}");
    }

    #[test]
    fn jump_ahead_is_limited() {
        let now = Instant::ZERO + TimeDelta::from_secs(100);
        for (at, expected) in [(ms(-90_000), ms(-90_000)), (ms(500), ms(500)), (ms(90_000), PERIOD * MAX_FRAMES_APART)]
        {
            let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
            assert!(!even.jump_to(now, Frame::new(50)), "jump without a reference");
            even.on_reference(Frame::new(50), now + at);
            assert!(even.jump_to(now, Frame::new(50)));
            assert_eq!(even.next_start() - now, expected);
        }
    }

    /// Follows a reference for `frames` frames and passes the distance from it after each frame to `observe`.
    fn follow_reference(even: &mut EvenPacer, frames: u32, mut observe: impl FnMut(u32, TimeDelta)) {
        for frame in 0..frames {
            if frame.is_multiple_of(12) {
                even.on_reference(Frame::new(frame), Instant::ZERO + PERIOD * i64::from(frame));
            }
            even.on_begin(even.next_start());
            even.on_step(even.next_start(), Frame::new(frame));
            observe(frame, even.planned_start() - (Instant::ZERO + PERIOD * (i64::from(frame) + 1)));
        }
    }

    #[test]
    fn dither_is_ahead_of_the_reference_as_often_as_behind() {
        for site in SiteId::first(MAX_SITES) {
            let mut even = EvenPacer::new(PERIOD, 6, Instant::ZERO);
            even.enable_dither(site);
            let (mut ahead, mut changed, mut before) = (0, 0, TimeDelta::ZERO);
            follow_reference(&mut even, 7_200, |frame, distance| {
                ahead += u32::from(distance < TimeDelta::ZERO);
                assert!(distance.abs() < PERIOD / 100, "{distance}");
                let change = (distance - before).abs();
                assert!(change < PERIOD / 2_000 || frame < 120, "{change} at once");
                changed += u32::from((distance < TimeDelta::ZERO) != (before < TimeDelta::ZERO));
                before = distance;
            });
            assert!((3_500..=3_700).contains(&ahead), "{ahead} frames ahead");
            assert!(changed > 7_200 / 200, "changed sides {changed} times");
        }
    }

    #[test]
    fn sites_many_frames_apart_converge_in_two_seconds() {
        for apart in [-18, -3, 3, 18] {
            let mut even = EvenPacer::new(PERIOD, 18, Instant::ZERO + PERIOD * apart);
            follow_reference(&mut even, 120, |frame, distance| {
                assert!(frame < 100 || distance.abs() < PERIOD / 10, "{distance} apart after {frame} frames");
            });
        }
    }
}
