//! Stalls: the wait of a frame for the inputs of other sites.
//!
//! A stall begins when a frame cannot be stepped and ends with its step. Time in which this site could not have stepped
//! the frame anyway, because the host program stood still or a ballot was under way, does not count as stalled. A stall
//! that lasts is a freeze, which is reported once for each set of sites that the game waits for.

use super::event::Freeze;
use crate::id::SiteSet;
use crate::time::{Instant, TimeDelta};

/// Duration of a stall after which the game is taken not to go on by itself.
const STUCK_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);

/// The stall of the current frame.
#[derive(Debug)]
pub(super) struct Stall {
    /// Whether the current frame had to wait for inputs.
    is_stalled: bool,
    /// Start of the current stall. It moves forward by the duration of each host stall, and to the end of each ballot.
    since: Instant,
    /// The sites whose inputs the frame waited for when the stall was last checked; empty without a stall limit.
    caused_by: SiteSet,
    freeze: Option<Freeze>,
}

/// A stall that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedStall {
    /// Duration of the stall that counts.
    pub(super) waited: TimeDelta,
    /// The sites that caused it; empty without a stall limit.
    pub(super) caused_by: SiteSet,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Self {
        Self { is_stalled: false, since: now, caused_by: SiteSet::EMPTY, freeze: None }
    }

    /// Records that the current frame cannot be stepped.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) {
        if !core::mem::replace(&mut self.is_stalled, true) {
            self.since = now;
        }
    }

    /// Names the sites whose inputs the frame waits for.
    pub(super) fn blame(&mut self, sites: SiteSet) {
        self.caused_by = sites;
    }

    /// Ends the stall with the step of the frame. Returns `None` if the frame was not stalled.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) -> Option<EndedStall> {
        let was_stalled = core::mem::take(&mut self.is_stalled);
        was_stalled.then(|| EndedStall { waited: now - self.since, caused_by: core::mem::take(&mut self.caused_by) })
    }

    /// Excludes this much time from the stall, in which the host program stood still.
    pub(super) fn excuse(&mut self, away: TimeDelta) {
        self.since += away;
    }

    /// Excludes all time until now from the stall.
    pub(super) fn restart(&mut self, now: Instant) {
        self.since = now;
    }

    /// Returns for how long the game has been stalled by a site; zero if another one causes the stall.
    pub(super) fn wait_for(&self, now: Instant, site: crate::id::SiteId) -> TimeDelta {
        let is_cause = self.is_stalled && self.caused_by.contains(site);
        if is_cause { now - self.since } else { TimeDelta::ZERO }
    }

    /// Returns whether the game has been stalled for [`STUCK_TIMEOUT`], so that believing an unconfirmed report costs
    /// nothing.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.is_stalled && now - self.since >= STUCK_TIMEOUT
    }

    pub(super) fn freeze(&self) -> Option<Freeze> {
        self.freeze
    }

    /// Notes a freeze. Returns whether it differs from the one that was noted before.
    pub(super) fn note_freeze(&mut self, freeze: Freeze) -> bool {
        self.freeze.replace(freeze) != Some(freeze)
    }

    /// Ends the freeze. Returns whether there was one.
    pub(super) fn end_freeze(&mut self) -> bool {
        self.freeze.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::id::SiteId;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    #[test]
    fn stall_lasts_from_first_check_to_step() {
        let mut stall = Stall::new(at(0));
        assert_eq!(stall.end(at(5)), None);
        stall.begin(at(10));
        stall.begin(at(30));
        stall.blame([site(2)].into_iter().collect());
        assert_eq!(stall.wait_for(at(30), site(2)), TimeDelta::from_millis(20));
        assert_eq!(stall.wait_for(at(30), site(1)), TimeDelta::ZERO);
        let ended = stall.end(at(60)).unwrap();
        assert_eq!((ended.waited, ended.caused_by.contains(site(2))), (TimeDelta::from_millis(50), true));
        assert_eq!(stall.end(at(61)), None);
    }

    #[test]
    fn excused_time_does_not_count() {
        let mut stall = Stall::new(at(0));
        stall.begin(at(0));
        stall.excuse(TimeDelta::from_millis(700));
        assert!(!stall.is_stuck(at(1_500)) && stall.is_stuck(at(1_700)));
        stall.restart(at(1_600));
        assert!(!stall.is_stuck(at(1_700)));
    }

    #[test]
    fn freeze_is_new_only_when_it_changes() {
        let mut stall = Stall::new(at(0));
        let frozen = |sites: SiteSet| Freeze {
            frame: Frame::new(7),
            since: at(0),
            waiting_for: sites,
            silent_sites: SiteSet::EMPTY,
        };
        assert!(stall.note_freeze(frozen(SiteSet::first(1))));
        assert!(!stall.note_freeze(frozen(SiteSet::first(1))));
        assert!(stall.note_freeze(frozen(SiteSet::first(2))));
        assert!(stall.end_freeze() && !stall.end_freeze());
    }
}
