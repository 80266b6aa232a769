//! The player's own score, as reported by servers.
//!
//! A server that has just started may not have received every count that another one has reported to the player. So for
//! up to 3 s the best report of any server counts. If the reports are still lower after [`REPLICATION_GRACE`], the
//! difference is lost, and the client accepts the server's report, which all other players see, too.

use coplay::time::{Instant, TimeDelta};
use coplay_maze::Score;

/// Time for which lower reports do not lower the best one: the server may only be behind the others.
const REPLICATION_GRACE: TimeDelta = TimeDelta::from_secs(3);
/// Largest difference between the times of one world on two servers, in ticks.
const MAX_TICK_DIFFERENCE: u32 = 100;

/// Reason why the servers have reported a lower score than before for 3 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreLoss {
    /// The world restarted: its time began at 0 again, and all scores are lost.
    WorldRestarted,
    /// All or part of our score was lost in the same world.
    ScoreLost,
}

/// Player's own score, as reported by servers.
#[derive(Debug, Default)]
pub(crate) struct OwnScoreTracker {
    reported: Score,
    best: Score,
    /// Time since which the reports are lower than the best.
    lower_since: Option<Instant>,
    /// Newest tick in which the report equalled the best.
    best_tick: u32,
    rollback: Option<ScoreLoss>,
}

impl OwnScoreTracker {
    /// Returns the score in the last report of a server.
    pub(crate) fn reported(&self) -> Score {
        self.reported
    }

    /// Returns the largest hits and falls that any server has reported, without those that count as lost.
    pub(crate) fn best(&self) -> Score {
        self.best
    }

    /// Returns the loss of score that was detected since the last call, if any.
    pub(crate) fn poll_rollback(&mut self) -> Option<ScoreLoss> {
        self.rollback.take()
    }

    /// Processes a server's report of our score in a tick of the world.
    pub(crate) fn on_reported(&mut self, now: Instant, tick: u32, reported: Score) {
        self.reported = reported;
        self.best = Score { hits: self.best.hits.max(reported.hits), falls: self.best.falls.max(reported.falls) };
        if reported != self.best {
            if now - *self.lower_since.get_or_insert(now) < REPLICATION_GRACE {
                return;
            }
            let is_other_world = tick.saturating_add(MAX_TICK_DIFFERENCE) < self.best_tick;
            self.rollback = Some(if is_other_world { ScoreLoss::WorldRestarted } else { ScoreLoss::ScoreLost });
            self.best = reported;
        }
        (self.lower_since, self.best_tick) = (None, tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn score(hits: u32, falls: u32) -> Score {
        Score { hits, falls }
    }

    #[test]
    fn lagging_server_does_not_lower_the_score() {
        let mut tracker = OwnScoreTracker::default();
        tracker.on_reported(at(0), 1_000, score(5, 3));
        for (millis, reported) in
            [(1_000, score(4, 3)), (3_900, score(5, 2)), (3_950, score(5, 3)), (9_000, score(4, 4))]
        {
            tracker.on_reported(at(millis), 1_000, reported);
            assert_eq!((tracker.reported(), tracker.best()), (reported, score(5, 3.max(reported.falls))));
        }
        tracker.on_reported(at(11_900), 1_000, score(4, 4));
        assert_eq!((tracker.best(), tracker.poll_rollback()), (score(5, 4), None));
    }

    #[test]
    fn lasting_lower_score_is_reported_as_rollback() {
        for (tick, rollback) in
            [(20, ScoreLoss::WorldRestarted), (9_950, ScoreLoss::ScoreLost), (10_300, ScoreLoss::ScoreLost)]
        {
            let mut tracker = OwnScoreTracker::default();
            tracker.on_reported(at(0), 10_000, score(5, 3));
            tracker.on_reported(at(1_000), tick, score(0, 0));
            tracker.on_reported(at(3_999), tick, score(1, 0));
            assert_eq!((tracker.best(), tracker.poll_rollback()), (score(5, 3), None));
            tracker.on_reported(at(4_000), tick, score(1, 0));
            assert_eq!((tracker.best(), tracker.reported()), (score(1, 0), score(1, 0)));
            assert_eq!((tracker.poll_rollback(), tracker.poll_rollback()), (Some(rollback), None), "not reported once");
            tracker.on_reported(at(9_000), tick, score(1, 0));
            assert_eq!(tracker.poll_rollback(), None);
        }
    }
}
