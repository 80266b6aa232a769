//! Our pacing: every site follows one plan, evenly.
//!
//! The plan of the lowest site advances by one period per frame; every other site knows that plan to a fraction of a millisecond
//! (probes carry it, clock estimates translate it) and steers its own towards it, so gently that sound and motion do not show it.
//!
//! A frame that has to wait for an input starts late, but the plan stays: the frames behind it run a little quicker until the
//! site is back on it. So one late packet at one site is that site's own affair.
//!
//! Where the link is too long for the lag, waiting cannot be avoided, only spread. A peer's input for frame F leaves when the peer
//! begins frame F − lag, and comes one delay after that; so frames cannot follow each other quicker than delay / lag on average.
//! The pacer stretches the period to just that: the game slows down evenly and does not stutter. The delay is that of the probes, by
//! the clocks, and not how long inputs were awaited: that would grow with every stall, and slow down what is slow already.
//!
//! Where frames are guessed, time must be fair. A delay of nearly a whole number of periods brings inputs just before a frame at one of
//! two sites and just after it at the other, and a microsecond decides which of them always guesses a frame more. So those who follow
//! a plan sway about it, by so little and so slowly that it cannot be noticed, and each has its turn.

use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId};
use crate::time::{Instant, TimeDelta};

/// How much quicker frames may follow each other to make up for a late one: the least, and what a whole period adds.
const MIN_CATCH_UP_RATE: f64 = 0.03;
const CATCH_UP_RATE_PER_PERIOD: f64 = 0.12;
/// A site that is later than this many periods gives its plan up and goes on from where it is.
const MAX_LATE_PERIODS: i64 = 3;
/// The part of the distance to the reference that one frame makes good.
const STEERING_DIVISOR: i64 = 8;
/// How much longer or shorter one frame may be for that, as a part of the period: the least, and what a whole period adds.
const MIN_SLEW_LIMIT: f64 = 0.01;
/// A part of the period that is below the limit in any case.
const FREE_SLEW_DIVISOR: i64 = 128;
const SLEW_LIMIT_PER_PERIOD: f64 = 0.05;
/// Sites that are further apart than this many periods come together no quicker.
const MAX_SLEW_PERIODS: f64 = 10.0;
/// The part of the period by which a site sways about the reference.
const DITHER_DIVISOR: i64 = 128;
/// How many frames it takes to go from one side to the other: so many for the first site, and so many more for each other.
const DITHER_FRAMES: i64 = 64;
const DITHER_FRAMES_PER_SITE: i64 = 16;
/// No clock worth following is off by more than one part in this many.
const MAX_SKEW_DIVISOR: i64 = 50;
/// Sites are never further apart than this many frames.
const MAX_FRAMES_APART: i64 = 256;
/// A reference older than this many frames says nothing any more.
const REFERENCE_LIFETIME_FRAMES: i64 = 120;

/// Our pacing.
#[derive(Debug)]
pub struct EvenPacer {
    period: TimeDelta,
    limits: PacingLimits,
    max_lead: i64,
    /// The time from one frame to the next as things are.
    current_period: TimeDelta,
    /// When the frame at hand should begin.
    planned_start: Instant,
    /// When it does.
    next_start: Instant,
    /// By how much the host began it later.
    host_lateness: TimeDelta,
    reference: Option<PaceReference>,
    /// The frame at hand was planned for when the reference has it, which may be long ago.
    has_jumped: bool,
    /// How many frames it takes to sway from one side of the reference to the other; 0 if we do not.
    dither_frames: i64,
    delays: [Option<OneWayDelay>; MAX_SITES],
    /// The longest of them, and the shortest period that it allows.
    max_delay: TimeDelta,
    min_link_period: TimeDelta,
}

/// What follows from the period alone, worked out once.
#[derive(Clone, Copy, Debug)]
struct PacingLimits {
    /// A site that is later than this gives up its plan.
    max_lateness: TimeDelta,
    /// No clock worth following makes a period shorter or longer than this.
    min_period: TimeDelta,
    max_period: TimeDelta,
    /// A change of the period that is allowed in any case.
    free_slew: TimeDelta,
    /// How far a site sways about the reference.
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

/// The plan of the site that sets the pace.
#[derive(Clone, Copy, Debug)]
struct PaceReference {
    frame: Frame,
    planned_at: Instant,
    period: TimeDelta,
}

/// A one-way delay, smoothed over the least of short stretches: what a sleeping computer finds in its socket when it wakes says
/// nothing about the link.
#[derive(Clone, Copy, Debug)]
struct OneWayDelay {
    smoothed: TimeDelta,
    least: TimeDelta,
    since: Instant,
}

/// How long such a stretch is.
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
    /// Frames of `period` with a local lag of `lag` frames, the first at `start`.
    pub fn new(period: TimeDelta, lag: u32, start: Instant) -> Self {
        Self {
            period,
            limits: PacingLimits::of(period),
            max_lead: i64::from(lag),
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

    /// Sways about the reference, as sites do that guess: each in a time of its own, so that any two are fair to each other.
    pub fn enable_dither(&mut self, site: SiteId) {
        self.dither_frames = DITHER_FRAMES + DITHER_FRAMES_PER_SITE * site.index() as i64;
    }

    /// When the next frame begins.
    pub fn next_start(&self) -> Instant {
        self.next_start
    }

    /// When the frame at hand should begin if nothing had to be waited for.
    pub fn planned_start(&self) -> Instant {
        self.planned_start
    }

    /// The time from one frame to the next as things are.
    pub fn current_period(&self) -> TimeDelta {
        self.current_period
    }

    /// A packet of a peer was under way for so long.
    pub fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        match &mut self.delays[site.index()] {
            Some(known) => known.add(now, delay, self.period),
            slot => *slot = Some(OneWayDelay { smoothed: delay, least: delay, since: now }),
        }
        self.update_min_link_period();
    }

    /// The frame that the reference is in at this time, if that is known.
    pub fn frame_at(&self, now: Instant) -> Option<Frame> {
        let reference = self.reference?;
        let passed = (now - reference.planned_at).as_nanos() / reference.period.as_nanos().max(1);
        Some(reference.frame + passed.clamp(0, i64::from(u16::MAX)) as u32)
    }

    /// Plans a frame for when the reference has it, however far back that is; `false` if there is no reference. What is further
    /// ahead than sites can be apart is an error or a lie, and nobody waits for it.
    pub fn jump_to(&mut self, now: Instant, frame: Frame) -> bool {
        let Some(reference) = self.current_reference(frame) else { return false };
        let planned = reference.planned_at + reference.period * (frame - reference.frame);
        self.planned_start = planned.min(now + self.period * MAX_FRAMES_APART);
        (self.next_start, self.has_jumped) = (self.planned_start, true);
        true
    }

    /// The next frame begins no earlier than this, here and everywhere: what was known of the reference before is of no use.
    pub fn pause_until(&mut self, until: Instant) {
        self.planned_start = self.planned_start.max(until);
        self.next_start = self.next_start.max(until);
        self.reference = None;
    }

    /// The local lag has changed.
    pub fn set_max_lead(&mut self, lag: u32) {
        self.max_lead = i64::from(lag);
        self.update_min_link_period();
    }

    /// The site will not be waited for again.
    pub fn forget_site(&mut self, site: SiteId) {
        self.delays[site.index()] = None;
        self.update_min_link_period();
    }

    /// The site whose way is too long for frames of this period, and the part of the time that it costs.
    pub fn limiting_site(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        let site = SiteId::first(MAX_SITES).max_by_key(|site| self.delays[site.index()].map(|delay| delay.smoothed))?;
        let share = 1.0 - period.as_nanos() as f64 / self.min_link_period.as_nanos().max(1) as f64;
        (share > 0.0).then_some((site, share))
    }

    fn update_min_link_period(&mut self) {
        self.max_delay = self.delays.iter().flatten().map(|delay| delay.smoothed).max().unwrap_or_default();
        self.min_link_period = self.max_delay / self.max_lead.max(1);
    }

    /// The site that sets the pace planned to begin `frame` at this time of ours.
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
                // A freeze lies between the two, or a plan was given up: start over.
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

    /// A frame begins, perhaps later than it was asked for: a host's timer may be coarse.
    pub fn on_begin(&mut self, now: Instant) {
        let late = now - self.next_start;
        self.host_lateness = if late > self.period * 2 { TimeDelta::ZERO } else { late.max(TimeDelta::ZERO) };
    }

    /// The machine is about to step `frame`: plans the one after it.
    pub fn on_step(&mut self, now: Instant, frame: Frame) {
        self.current_period = self.min_link_period.max(self.followed_period(frame));
        // What the host was late with is not made up for, or a coarse timer would slow down the game.
        let now = now - self.host_lateness;
        // Without lag every frame waits for one delay between its beginning and its step; that is not lateness.
        let now = if self.max_lead == 0 { now - self.max_delay } else { now };
        let late = now - self.planned_start;
        let leapt = core::mem::take(&mut self.has_jumped);
        if late > self.limits.max_lateness && !leapt {
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

    /// How much quicker the next frame may follow. Where the link sets the pace, hurrying would only mean waiting again.
    fn catch_up_rate(&self, now: Instant) -> f64 {
        let late = self.in_periods(now + self.current_period - self.planned_start, 1.0);
        if self.current_period > self.period.scale(1.02) {
            MIN_CATCH_UP_RATE
        } else {
            MIN_CATCH_UP_RATE + CATCH_UP_RATE_PER_PERIOD * late
        }
    }

    /// The nominal period by the clock of the reference, which may be quicker or slower than ours. A reference that is slower than
    /// clocks are has to wait for somebody, perhaps for us: to follow it in that would keep both slow for ever.
    fn followed_period(&self, frame: Frame) -> TimeDelta {
        let followed = self.current_reference(frame).map_or(self.period, |reference| reference.period);
        followed.clamp(self.limits.min_period, self.limits.max_period)
    }

    fn current_reference(&self, frame: Frame) -> Option<PaceReference> {
        self.reference.filter(|reference| frame - reference.frame < REFERENCE_LIFETIME_FRAMES)
    }

    /// A distance as a part of the period, `most` at the most.
    fn in_periods(&self, distance: TimeDelta, most: f64) -> f64 {
        (distance.abs().as_nanos() as f64 / self.period.as_nanos() as f64).min(most)
    }

    /// How far from the reference a frame is to be. Where the link sets the pace, everybody guesses as much as is allowed.
    fn dither_offset(&self, frame: Frame) -> TimeDelta {
        if self.dither_frames == 0 || self.min_link_period > self.period {
            return TimeDelta::ZERO;
        }
        let phase = i64::from(frame.number()) % (self.dither_frames * 2);
        let there = phase.min(self.dither_frames * 2 - phase);
        self.limits.dither * (there * 2 - self.dither_frames) / self.dither_frames
    }

    /// How much longer to make the way to `frame` so as to come nearer to the reference.
    fn steering_correction(&self, frame: Frame) -> TimeDelta {
        let Some(reference) = self.current_reference(frame) else { return TimeDelta::ZERO };
        let there = reference.planned_at + reference.period * (frame - reference.frame);
        let error = there + self.dither_offset(frame) - self.planned_start;
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

    /// Runs frames that begin `host` later than asked for and wait `inputs` for inputs; returns when each was stepped.
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
            assert!(!even.jump_to(now, Frame::new(50)), "there is no reference");
            even.on_reference(Frame::new(50), now + at);
            assert!(even.jump_to(now, Frame::new(50)));
            assert_eq!(even.next_start() - now, expected);
        }
    }

    /// How far from the reference a site is that follows it for so many frames.
    fn follow_reference(even: &mut EvenPacer, frames: u32, mut look: impl FnMut(u32, TimeDelta)) {
        for frame in 0..frames {
            if frame.is_multiple_of(12) {
                even.on_reference(Frame::new(frame), Instant::ZERO + PERIOD * i64::from(frame));
            }
            even.on_begin(even.next_start());
            even.on_step(even.next_start(), Frame::new(frame));
            look(frame, even.planned_start() - (Instant::ZERO + PERIOD * (i64::from(frame) + 1)));
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
