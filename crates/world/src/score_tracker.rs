//! Our score as servers say it.
//!
//! A server that has just begun may not have heard of all that another acknowledged, so for a while the best counts that any said. If it is still
//! less after [that](REPLICATION_GRACE), it is gone, and the server is believed: everybody else sees what it says, too.

use coplay::time::{Instant, TimeDelta};
use coplay_maze::Score;

/// A server lags behind the others for no longer than this.
const REPLICATION_GRACE: TimeDelta = TimeDelta::from_secs(3);
/// The time of one world, in ticks, differs by no more than this from server to server.
const MAX_TICK_DIFFERENCE: u32 = 100;

/// What servers do not know any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreRollback {
    /// The world began anew: its time did, and all scores are gone.
    WorldRestarted,
    /// In the same world, some of our score.
    ScoreLost,
}

/// Our score as servers say it.
#[derive(Debug, Default)]
pub(crate) struct ScoreTracker {
    reported: Score,
    best: Score,
    /// Since when we are told of less than before.
    lower_since: Option<Instant>,
    /// The newest tick of the world in which all of the best was known.
    best_tick: u32,
    rollback: Option<ScoreRollback>,
}

impl ScoreTracker {
    /// What the server that we are on said last.
    pub(crate) fn reported(&self) -> Score {
        self.reported
    }

    /// The best that any said, unless that is gone.
    pub(crate) fn best(&self) -> Score {
        self.best
    }

    /// What was lost since the last time that this was asked.
    pub(crate) fn poll_rollback(&mut self) -> Option<ScoreRollback> {
        self.rollback.take()
    }

    /// The server says in a tick of the world what our score is.
    pub(crate) fn on_reported(&mut self, now: Instant, tick: u32, told: Score) {
        self.reported = told;
        self.best = Score { hits: self.best.hits.max(told.hits), falls: self.best.falls.max(told.falls) };
        if told != self.best {
            if now - *self.lower_since.get_or_insert(now) < REPLICATION_GRACE {
                return;
            }
            let is_another = tick.saturating_add(MAX_TICK_DIFFERENCE) < self.best_tick;
            self.rollback = Some(if is_another { ScoreRollback::WorldRestarted } else { ScoreRollback::ScoreLost });
            self.best = told;
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
        let mut standing = ScoreTracker::default();
        standing.on_reported(at(0), 1_000, score(5, 3));
        for (millis, told) in [(1_000, score(4, 3)), (3_900, score(5, 2)), (3_950, score(5, 3)), (9_000, score(4, 4))] {
            standing.on_reported(at(millis), 1_000, told);
            assert_eq!((standing.reported(), standing.best()), (told, score(5, 3.max(told.falls))));
        }
        standing.on_reported(at(11_900), 1_000, score(4, 4));
        assert_eq!((standing.best(), standing.poll_rollback()), (score(5, 4), None));
    }

    #[test]
    fn lasting_lower_score_is_reported_as_rollback() {
        for (tick, loss) in
            [(20, ScoreRollback::WorldRestarted), (9_950, ScoreRollback::ScoreLost), (10_300, ScoreRollback::ScoreLost)]
        {
            let mut standing = ScoreTracker::default();
            standing.on_reported(at(0), 10_000, score(5, 3));
            standing.on_reported(at(1_000), tick, score(0, 0));
            standing.on_reported(at(3_999), tick, score(1, 0));
            assert_eq!((standing.best(), standing.poll_rollback()), (score(5, 3), None));
            standing.on_reported(at(4_000), tick, score(1, 0));
            assert_eq!((standing.best(), standing.reported()), (score(1, 0), score(1, 0)));
            assert_eq!((standing.poll_rollback(), standing.poll_rollback()), (Some(loss), None), "it is told once");
            standing.on_reported(at(9_000), tick, score(1, 0));
            assert_eq!(standing.poll_rollback(), None);
        }
    }
}
