//! The frame schedule: when frames begin.
//!
//! The pacer plans the start of the next frame, by the plan of the pace setter or by its own. No frame begins before
//! the end of a pause of all sites. The start times of the newest 256 frames are kept, to compare the plans of sites.

use super::jitter_buffer::GroupPause;
use crate::frame::Frame;
use crate::id::SiteId;
use crate::pace::{MasterObservation, Pacer};
use crate::session::message::PauseRequest;
use crate::time::{Instant, TimeDelta};

/// Number of frames whose start times are kept: the largest distance between two sites, in frames.
const MAX_FRAME_STARTS: usize = 256;

/// The plan of the next frame's start, and the start times of past frames.
#[derive(Debug)]
pub(super) struct FrameSchedule {
    /// The pacer, from the start of the game or this site's admission on.
    pacer: Option<Pacer>,
    /// The site whose plan this site follows; `None` if this site sets the pace, or has no pacer yet.
    setter: Option<SiteId>,
    starts: [Instant; MAX_FRAME_STARTS],
    /// Time at which the current frame began, or the previous one if the current frame has not begun.
    begun_at: Instant,
    /// The newest pause of all sites in which this site takes part; it may be over.
    pause: GroupPause,
}

impl FrameSchedule {
    pub(super) fn new(now: Instant) -> Self {
        Self { pacer: None, setter: None, starts: [now; MAX_FRAME_STARTS], begun_at: now, pause: GroupPause::default() }
    }

    /// Begins to plan frames with this pacer.
    pub(super) fn start(&mut self, pacer: Pacer) {
        self.pacer = Some(pacer);
    }

    /// Stops planning frames, because the admission of this site is void.
    pub(super) fn stop(&mut self) {
        self.pacer = None;
    }

    /// Returns whether frames are planned: this site plays, or is admitted.
    pub(super) fn is_started(&self) -> bool {
        self.pacer.is_some()
    }

    /// Follows the plan of `setter` from now on; `None` if this site sets the pace.
    pub(super) fn follow(&mut self, setter: Option<SiteId>) {
        self.setter = setter;
    }

    pub(super) fn setter(&self) -> Option<SiteId> {
        self.setter
    }

    /// Returns when the next frame begins; [`Instant::FAR_FUTURE`] while no frames are planned.
    #[inline]
    pub(super) fn next_start(&self) -> Instant {
        self.pacer.as_ref().map_or(Instant::FAR_FUTURE, Pacer::next_start).max(self.pause.end())
    }

    /// Returns the start of the next frame by the plan that other sites follow.
    #[inline]
    pub(super) fn planned_start(&self) -> Option<Instant> {
        self.pacer.as_ref().and_then(Pacer::planned_start)
    }

    /// Returns the current time between two frames; `None` while no frames are planned.
    #[inline]
    pub(super) fn period(&self) -> Option<TimeDelta> {
        self.pacer.as_ref().map(Pacer::period)
    }

    /// Records that a frame begins now. `master` is the newest observation of the master, for the pacing of Zhao et al.
    #[inline]
    pub(super) fn on_begin(&mut self, now: Instant, frame: Frame, master: Option<MasterObservation>) {
        self.starts[frame.number() as usize % MAX_FRAME_STARTS] = now;
        self.begun_at = now;
        if let Some(pacer) = &mut self.pacer {
            pacer.on_begin(now, frame, master);
        }
    }

    /// Returns when the newest frame began.
    #[inline]
    pub(super) fn begun_at(&self) -> Instant {
        self.begun_at
    }

    /// Returns when a frame began. `begun_end` is the end of the frames that have begun. Returns `None` if the frame
    /// has not begun, or is 256 or more frames before `current`.
    pub(super) fn began_at(&self, frame: Frame, current: Frame, begun_end: Frame) -> Option<Instant> {
        (frame < begun_end && current - frame < MAX_FRAME_STARTS as i64)
            .then(|| self.starts[frame.number() as usize % MAX_FRAME_STARTS])
    }

    /// Returns when a frame that has not begun yet will probably begin, by the pacer's plan and period.
    pub(super) fn planned_at(&self, frame: Frame, current: Frame) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        Some(pacer.next_start() + pacer.period() * (frame - current))
    }

    /// Plans the next frame after the step of `frame`. Returns whether the frame is finished; otherwise the pacer needs
    /// the end of the step.
    #[inline]
    pub(super) fn on_step(&mut self, now: Instant, frame: Frame) -> bool {
        self.pacer.as_mut().is_some_and(|pacer| pacer.on_step(now, frame))
    }

    /// Notes that the host program has completed the step of a frame.
    pub(super) fn on_step_end(&mut self, now: Instant) {
        if let Some(pacer) = &mut self.pacer {
            pacer.on_end(now);
        }
    }

    /// Returns whether the pacer has abandoned its plan: the new planned start is more than three periods after
    /// `previous`. Other sites would follow the old plan until they receive the new one.
    #[inline]
    pub(super) fn has_abandoned(&self, previous: Option<Instant>) -> bool {
        let (Some(previous), Some(pacer)) = (previous, &self.pacer) else { return false };
        pacer.planned_start().is_some_and(|plan| plan - previous > pacer.period() * 3)
    }

    /// Records the measured one-way delay of a packet of a site.
    pub(super) fn on_delay(&mut self, now: Instant, site: SiteId, delay: TimeDelta) {
        if let Some(pacer) = &mut self.pacer {
            pacer.on_delay(now, site, delay);
        }
    }

    /// Adopts the start that a site plans for a frame, if that site sets the pace.
    pub(super) fn on_plan(&mut self, site: SiteId, frame: Frame, planned: Instant) {
        if let Some(pacer) = self.pacer.as_mut().filter(|_| Some(site) == self.setter) {
            pacer.on_reference(frame, planned);
        }
    }

    /// Forgets the delays of a site that does not play any more.
    pub(super) fn forget_site(&mut self, site: SiteId) {
        if let Some(pacer) = &mut self.pacer {
            pacer.forget_site(site);
        }
    }

    /// Returns the site whose link limits the frame rate, and the share of time that it costs.
    pub(super) fn limiting_site(&self, period: TimeDelta) -> Option<(SiteId, f64)> {
        self.pacer.as_ref().and_then(|pacer| pacer.limiting_site(period))
    }

    /// Returns the frame that begins at `now` by the pace setter's plan.
    pub(super) fn frame_at(&self, now: Instant) -> Option<Frame> {
        self.pacer.as_ref().and_then(|pacer| pacer.frame_at(now))
    }

    /// Plans `frame` as the next one. Returns whether its time is known.
    pub(super) fn jump_to(&mut self, now: Instant, frame: Frame) -> bool {
        self.pacer.as_mut().is_some_and(|pacer| pacer.jump_to(now, frame))
    }

    /// Begins the next frame by `latest`.
    pub(super) fn begin_by(&mut self, latest: Instant) {
        if let Some(pacer) = &mut self.pacer {
            pacer.begin_by(latest);
        }
    }

    /// Sets the lead of the inputs, in frames. `dither_site` is this site if frames may be predicted.
    pub(super) fn set_lead(&mut self, max_lead: u32, dither_site: Option<SiteId>) {
        if let Some(pacer) = &mut self.pacer {
            pacer.set_max_lead(max_lead);
            dither_site.inspect(|site| pacer.enable_dither(*site));
        }
    }

    pub(super) fn pause(&self) -> &GroupPause {
        &self.pause
    }

    /// Begins a pause until an instant, which ticks announce with `request` meanwhile. `has_begun` tells whether the
    /// current frame has begun; only the next frame waits then. Returns whether the plan has changed.
    pub(super) fn begin_pause(&mut self, until: Instant, request: PauseRequest, has_begun: bool) -> bool {
        self.pause = GroupPause::new(until, request);
        self.plan_pause(has_begun)
    }

    /// Extends the pause to an instant, if it ends earlier. Returns whether the plan has changed.
    pub(super) fn extend_pause(&mut self, until: Instant, has_begun: bool) -> bool {
        self.pause.extend(until);
        self.plan_pause(has_begun)
    }

    /// Moves the planned start of the current frame to the end of the pause, unless that frame has begun.
    fn plan_pause(&mut self, has_begun: bool) -> bool {
        let pacer = self.pacer.as_mut().filter(|_| !has_begun);
        pacer.map(|pacer| pacer.pause_until(self.pause.end())).is_some()
    }

    /// Stops announcing a pause that is over.
    pub(super) fn clear_expired_pause(&mut self, now: Instant) {
        self.pause.clear_expired(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pacing;

    const PERIOD: TimeDelta = TimeDelta::from_millis(20);

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn started(first: Instant) -> FrameSchedule {
        let mut schedule = FrameSchedule::new(at(0));
        assert_eq!(schedule.next_start(), Instant::FAR_FUTURE);
        schedule.start(Pacer::new(Pacing::default(), PERIOD, 2, first));
        schedule
    }

    #[test]
    fn start_times_are_kept_for_256_frames() {
        let mut schedule = started(at(0));
        for frame in 0..300 {
            schedule.on_begin(at(i64::from(frame) * 20), Frame::new(frame), None);
        }
        let current = Frame::new(299);
        let began = |frame: u32| schedule.began_at(Frame::new(frame), current, current.next());
        assert_eq!(began(299), Some(at(5_980)));
        assert_eq!(began(44), Some(at(880)));
        assert_eq!((began(43), began(300)), (None, None));
    }

    #[test]
    fn no_frame_begins_during_pause() {
        let mut schedule = started(at(100));
        assert_eq!(schedule.next_start(), at(100));
        let request =
            PauseRequest { requested_by: SiteId::new(1).unwrap(), frame: Frame::ZERO, until_ns: at(400).as_nanos() };
        assert!(schedule.begin_pause(at(400), request, false));
        assert_eq!((schedule.next_start(), schedule.planned_start()), (at(400), Some(at(400))));
        assert!(schedule.extend_pause(at(450), false));
        assert_eq!(schedule.next_start(), at(450));
        assert!(!schedule.extend_pause(at(480), true), "the plan of a frame that has begun does not change");
        schedule.clear_expired_pause(at(479));
        assert!(schedule.pause().announced().is_some());
        schedule.clear_expired_pause(at(480));
        assert!(schedule.pause().announced().is_none());
    }

    #[test]
    fn only_the_pace_setter_moves_the_plan() {
        let setter = SiteId::new(0).unwrap();
        let next_start = |planned_by: SiteId| {
            let mut schedule = started(at(100));
            schedule.follow(Some(setter));
            schedule.on_plan(planned_by, Frame::ZERO, at(108));
            schedule.on_begin(at(100), Frame::ZERO, None);
            schedule.on_step(at(100), Frame::ZERO);
            schedule.next_start()
        };
        let other = SiteId::new(1).unwrap();
        assert_eq!(next_start(other), at(120));
        assert!(next_start(setter) > at(120));
    }
}
