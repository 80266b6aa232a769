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
const CATCH_UP: f64 = 0.03;
const CATCH_UP_FAR: f64 = 0.12;
/// A site that is later than this many periods gives its plan up and goes on from where it is.
const GIVE_UP_PERIODS: i64 = 3;
/// The part of the distance to the reference that one frame makes good.
const GAIN: i64 = 8;
/// How much longer or shorter one frame may be for that, as a part of the period: the least, and what a whole period adds.
const SLEW: f64 = 0.01;
/// A part of the period that is below the limit in any case.
const LEAST_SLEW: i64 = 128;
const SLEW_FAR: f64 = 0.05;
/// Sites that are further apart than this many periods come together no quicker.
const FAR: f64 = 10.0;
/// The part of the period by which a site sways about the reference.
const SWAY: i64 = 128;
/// How many frames it takes to go from one side to the other: so many for the first site, and so many more for each other.
const SWAY_FRAMES: i64 = 64;
const SWAY_FRAMES_MORE: i64 = 16;
/// No clock worth following is off by more than one part in this many.
const MAX_SKEW: i64 = 50;
/// Sites are never further apart than this many frames.
const FURTHEST: i64 = 256;
/// A reference older than this many frames says nothing any more.
const STALE_FRAMES: i64 = 120;

/// Our pacing.
#[derive(Debug)]
pub struct Even {
    period: TimeDelta,
    limits: Limits,
    lag: i64,
    /// The time from one frame to the next as things are.
    pace: TimeDelta,
    /// When the frame at hand should begin.
    plan: Instant,
    /// When it does.
    next: Instant,
    /// By how much the host began it later.
    host_late: TimeDelta,
    reference: Option<Reference>,
    /// The frame at hand was planned for when the reference has it, which may be long ago.
    leapt: bool,
    /// How many frames it takes to sway from one side of the reference to the other; 0 if we do not.
    sway_frames: i64,
    delays: [Option<Delay>; MAX_SITES],
    /// The longest of them, and the shortest period that it allows.
    longest: TimeDelta,
    link_pace: TimeDelta,
}

/// What follows from the period alone, worked out once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// A site that is later than this gives up its plan.
    give_up: TimeDelta,
    /// No clock worth following makes a period shorter or longer than this.
    shortest: TimeDelta,
    longest: TimeDelta,
    /// A change of the period that is allowed in any case.
    least_slew: TimeDelta,
    /// How far a site sways about the reference.
    sway: TimeDelta,
}

impl Limits {
    fn of(period: TimeDelta) -> Self {
        Self {
            give_up: period * GIVE_UP_PERIODS,
            shortest: period - period / MAX_SKEW,
            longest: period + period / MAX_SKEW,
            least_slew: period / LEAST_SLEW,
            sway: period / SWAY,
        }
    }
}

/// The plan of the site that sets the pace.
#[derive(Clone, Copy, Debug)]
struct Reference {
    frame: Frame,
    at: Instant,
    period: TimeDelta,
}

/// A one-way delay, smoothed over the least of short stretches: what a sleeping computer finds in its socket when it wakes says
/// nothing about the link.
#[derive(Clone, Copy, Debug)]
struct Delay {
    smoothed: TimeDelta,
    least: TimeDelta,
    since: Instant,
}

/// How long such a stretch is.
const STRETCH: TimeDelta = TimeDelta::from_millis(150);

impl Delay {
    fn add(&mut self, now: Instant, delay: TimeDelta, period: TimeDelta) {
        if now - self.since < STRETCH {
            self.least = self.least.min(delay);
            return;
        }
        let error = (self.least - self.smoothed).min(period * 4);
        self.smoothed += error / if error.is_negative() { 4 } else { 8 };
        (self.least, self.since) = (delay, now);
    }
}

impl Even {
    /// Frames of `period` with a local lag of `lag` frames, the first at `start`.
    pub fn new(period: TimeDelta, lag: u32, start: Instant) -> Self {
        Self {
            period,
            limits: Limits::of(period),
            lag: i64::from(lag),
            pace: period,
            plan: start,
            next: start,
            host_late: TimeDelta::ZERO,
            reference: None,
            leapt: false,
            sway_frames: 0,
            delays: [None; MAX_SITES],
            longest: TimeDelta::ZERO,
            link_pace: TimeDelta::ZERO,
        }
    }

    /// Sways about the reference, as sites do that guess: each in a time of its own, so that any two are fair to each other.
    pub fn sway(&mut self, site: SiteId) {
        self.sway_frames = SWAY_FRAMES + SWAY_FRAMES_MORE * site.index() as i64;
    }

    /// When the next frame begins.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// When the frame at hand should begin if nothing had to be waited for.
    pub fn plan(&self) -> Instant {
        self.plan
    }

    /// The time from one frame to the next as things are.
    pub fn pace(&self) -> TimeDelta {
        self.pace
    }

    /// A packet of a peer was under way for so long.
    pub fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        match &mut self.delays[site.index()] {
            Some(known) => known.add(now, delay, self.period),
            slot => *slot = Some(Delay { smoothed: delay, least: delay, since: now }),
        }
        self.update_link_pace();
    }

    /// The frame that the reference is in at this time, if that is known.
    pub fn frame_at(&self, now: Instant) -> Option<Frame> {
        let reference = self.reference?;
        let passed = (now - reference.at).as_nanos() / reference.period.as_nanos().max(1);
        Some(reference.frame + passed.clamp(0, i64::from(u16::MAX)) as u32)
    }

    /// Plans a frame for when the reference has it, however far back that is; `false` if there is no reference. What is further
    /// ahead than sites can be apart is an error or a lie, and nobody waits for it.
    pub fn leap(&mut self, now: Instant, frame: Frame) -> bool {
        let Some(reference) = self.current_reference(frame) else { return false };
        let planned = reference.at + reference.period * (frame - reference.frame);
        self.plan = planned.min(now + self.period * FURTHEST);
        (self.next, self.leapt) = (self.plan, true);
        true
    }

    /// The next frame begins no earlier than this, here and everywhere: what was known of the reference before is of no use.
    pub fn rest_until(&mut self, until: Instant) {
        self.plan = self.plan.max(until);
        self.next = self.next.max(until);
        self.reference = None;
    }

    /// The local lag has changed.
    pub fn set_reach(&mut self, lag: u32) {
        self.lag = i64::from(lag);
        self.update_link_pace();
    }

    /// The site will not be waited for again.
    pub fn forget(&mut self, site: SiteId) {
        self.delays[site.index()] = None;
        self.update_link_pace();
    }

    /// The site whose way is too long for frames of this period, and the part of the time that it costs.
    pub fn slowed_by(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        let site = SiteId::first(MAX_SITES).max_by_key(|site| self.delays[site.index()].map(|delay| delay.smoothed))?;
        let share = 1.0 - period.as_nanos() as f64 / self.link_pace.as_nanos().max(1) as f64;
        (share > 0.0).then_some((site, share))
    }

    fn update_link_pace(&mut self) {
        self.longest = self.delays.iter().flatten().map(|delay| delay.smoothed).max().unwrap_or_default();
        self.link_pace = self.longest / self.lag.max(1);
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
            Some(last) if frame - last.frame < STALE_FRAMES => {
                let measured = (at - last.at) / (frame - last.frame);
                // A freeze lies between the two, or a plan was given up: start over.
                if measured > self.pace * 2 { self.pace } else { last.period + (measured - last.period) / 4 }
            }
            _ => self.pace,
        };
        self.reference = Some(Reference { frame, at, period });
    }

    /// A frame begins, perhaps later than it was asked for: a host's timer may be coarse.
    pub fn on_begin(&mut self, now: Instant) {
        let late = now - self.next;
        self.host_late = if late > self.period * 2 { TimeDelta::ZERO } else { late.max(TimeDelta::ZERO) };
    }

    /// The machine is about to step `frame`: plans the one after it.
    pub fn on_step(&mut self, now: Instant, frame: Frame) {
        self.pace = self.link_pace.max(self.followed_period(frame));
        // What the host was late with is not made up for, or a coarse timer would slow down the game.
        let now = now - self.host_late;
        // Without lag every frame waits for one delay between its beginning and its step; that is not lateness.
        let now = if self.lag == 0 { now - self.longest } else { now };
        let late = now - self.plan;
        let leapt = core::mem::take(&mut self.leapt);
        if late > self.limits.give_up && !leapt {
            self.plan = now;
            self.reference = None;
        }
        self.plan += self.pace;
        self.plan += self.steering(frame.next());
        self.next = self.plan;
        if late > TimeDelta::ZERO {
            self.next = self.plan.max(now + self.pace.scale(1.0 - self.catch_up(now)));
        }
    }

    /// How much quicker the next frame may follow. Where the link sets the pace, hurrying would only mean waiting again.
    fn catch_up(&self, now: Instant) -> f64 {
        let late = self.in_periods(now + self.pace - self.plan, 1.0);
        if self.pace > self.period.scale(1.02) { CATCH_UP } else { CATCH_UP + CATCH_UP_FAR * late }
    }

    /// The nominal period by the clock of the reference, which may be quicker or slower than ours. A reference that is slower than
    /// clocks are has to wait for somebody, perhaps for us: to follow it in that would keep both slow for ever.
    fn followed_period(&self, frame: Frame) -> TimeDelta {
        let followed = self.current_reference(frame).map_or(self.period, |reference| reference.period);
        followed.clamp(self.limits.shortest, self.limits.longest)
    }

    fn current_reference(&self, frame: Frame) -> Option<Reference> {
        self.reference.filter(|reference| frame - reference.frame < STALE_FRAMES)
    }

    /// A distance as a part of the period, `most` at the most.
    fn in_periods(&self, distance: TimeDelta, most: f64) -> f64 {
        (distance.abs().as_nanos() as f64 / self.period.as_nanos() as f64).min(most)
    }

    /// How far from the reference a frame is to be. Where the link sets the pace, everybody guesses as much as is allowed.
    fn swayed(&self, frame: Frame) -> TimeDelta {
        if self.sway_frames == 0 || self.link_pace > self.period {
            return TimeDelta::ZERO;
        }
        let phase = i64::from(frame.number()) % (self.sway_frames * 2);
        let there = phase.min(self.sway_frames * 2 - phase);
        self.limits.sway * (there * 2 - self.sway_frames) / self.sway_frames
    }

    /// How much longer to make the way to `frame` so as to come nearer to the reference.
    fn steering(&self, frame: Frame) -> TimeDelta {
        let Some(reference) = self.current_reference(frame) else { return TimeDelta::ZERO };
        let there = reference.at + reference.period * (frame - reference.frame);
        let error = there + self.swayed(frame) - self.plan;
        let wanted = error / GAIN;
        if wanted.abs() < self.limits.least_slew {
            return wanted;
        }
        let limit = self.period.scale(SLEW + SLEW_FAR * self.in_periods(error, FAR));
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
    fn run(
        even: &mut Even,
        frames: u32,
        mut host: impl FnMut(u32) -> TimeDelta,
        inputs: impl Fn(u32) -> TimeDelta,
    ) -> [Instant; 2] {
        let first = even.next();
        for frame in 0..frames {
            let begin = even.next() + host(frame);
            even.on_begin(begin);
            even.on_step(begin + inputs(frame), Frame::new(frame));
        }
        [first, even.next()]
    }

    #[test]
    fn a_coarse_timer_does_not_slow_the_game_down() {
        let mut even = Even::new(PERIOD, 6, Instant::ZERO);
        let [first, last] = run(&mut even, 1_000, |frame| ms(i64::from(frame % 8)), |_| TimeDelta::ZERO);
        assert_eq!(last - first, PERIOD * 1_000);
    }

    #[test]
    fn a_late_input_delays_a_frame_and_not_the_plan() {
        let mut even = Even::new(PERIOD, 6, Instant::ZERO);
        let late = |frame| if frame == 10 { ms(20) } else { TimeDelta::ZERO };
        let [first, last] = run(&mut even, 200, |_| TimeDelta::ZERO, late);
        assert_eq!(last - first, PERIOD * 200);
    }

    #[test]
    fn who_leaps_is_on_the_reference_at_once_from_however_far_behind() {
        let mut even = Even::new(PERIOD, 6, Instant::ZERO);
        let now = Instant::ZERO + ms(1_600);
        even.on_reference(Frame::new(100), now);
        for frame in 60..100u32 {
            assert!(even.leap(now, Frame::new(frame)) && even.next() < now, "frame {frame} is due");
            even.on_begin(now);
            even.on_step(now, Frame::new(frame));
        }
        assert!((even.next() - now).abs() < PERIOD, "{:?}", even.next());
    }

    #[test]
    fn a_link_too_long_for_the_lag_stretches_every_frame_alike() {
        let site = SiteId::new(1).unwrap();
        let mut even = Even::new(PERIOD, 6, Instant::ZERO);
        even.on_delay(Instant::ZERO, site, ms(120));
        let [first, last] = run(&mut even, 100, |_| TimeDelta::ZERO, |_| TimeDelta::ZERO);
        assert_eq!(last - first, ms(20) * 100);
        even.forget(site);
        let [first, last] = run(&mut even, 100, |_| TimeDelta::ZERO, |_| TimeDelta::ZERO);
        assert_eq!(last - first, PERIOD * 100);
    }

    #[test]
    fn a_site_comes_near_to_the_reference_by_a_percent_of_a_frame() {
        let mut even = Even::new(PERIOD, 6, Instant::ZERO);
        let mut before = even.next();
        for frame in 0..600u32 {
            if frame.is_multiple_of(12) {
                even.on_reference(Frame::new(frame), Instant::ZERO + ms(3) + PERIOD * i64::from(frame));
            }
            even.on_begin(even.next());
            even.on_step(even.next(), Frame::new(frame));
            let change = (even.next() - before - PERIOD).abs();
            assert!(change <= PERIOD.scale(0.02), "{change} at once");
            before = even.next();
        }
        let error = even.plan() - (Instant::ZERO + ms(3) + PERIOD * 600);
        assert!(error.abs() < TimeDelta::from_micros(50), "{error}");
    }

    #[test]
    fn nobody_leaps_further_ahead_than_sites_can_be_apart() {
        let now = Instant::ZERO + TimeDelta::from_secs(100);
        for (at, expected) in [(ms(-90_000), ms(-90_000)), (ms(500), ms(500)), (ms(90_000), PERIOD * FURTHEST)] {
            let mut even = Even::new(PERIOD, 6, Instant::ZERO);
            assert!(!even.leap(now, Frame::new(50)), "there is no reference");
            even.on_reference(Frame::new(50), now + at);
            assert!(even.leap(now, Frame::new(50)));
            assert_eq!(even.next() - now, expected);
        }
    }

    /// How far from the reference a site is that follows it for so many frames.
    fn follow(even: &mut Even, frames: u32, mut look: impl FnMut(u32, TimeDelta)) {
        for frame in 0..frames {
            if frame.is_multiple_of(12) {
                even.on_reference(Frame::new(frame), Instant::ZERO + PERIOD * i64::from(frame));
            }
            even.on_begin(even.next());
            even.on_step(even.next(), Frame::new(frame));
            look(frame, even.plan() - (Instant::ZERO + PERIOD * (i64::from(frame) + 1)));
        }
    }

    #[test]
    fn who_guesses_is_ahead_of_the_reference_as_often_as_behind_it() {
        for site in SiteId::first(MAX_SITES) {
            let mut even = Even::new(PERIOD, 6, Instant::ZERO);
            even.sway(site);
            let (mut ahead, mut changed, mut before) = (0, 0, TimeDelta::ZERO);
            follow(&mut even, 7_200, |frame, distance| {
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
    fn sites_many_frames_apart_are_together_in_two_seconds() {
        for apart in [-18, -3, 3, 18] {
            let mut even = Even::new(PERIOD, 18, Instant::ZERO + PERIOD * apart);
            follow(&mut even, 120, |frame, distance| {
                assert!(frame < 100 || distance.abs() < PERIOD / 10, "{distance} apart after {frame} frames");
            });
        }
    }
}
