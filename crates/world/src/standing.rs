//! Our score as servers say it.
//!
//! A server that has just begun may not have heard of all that another acknowledged, so for a while the best counts that any said. If it is still
//! less after [that](LAG), it is gone, and the server is believed: everybody else sees what it says, too.

use coplay::time::{Instant, TimeDelta};
use coplay_maze::Score;

/// A server lags behind the others for no longer than this.
const LAG: TimeDelta = TimeDelta::from_secs(3);
/// The time of one world, in ticks, differs by no more than this from server to server.
const APART: u32 = 100;

/// What servers do not know any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The world began anew: its time did, and all scores are gone.
    World,
    /// In the same world, some of our score.
    Score,
}

/// Our score as servers say it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    told: Score,
    best: Score,
    /// Since when we are told of less than before.
    less_since: Option<Instant>,
    /// The newest tick of the world in which all of the best was known.
    tick: u32,
    loss: Option<Loss>,
}

impl Standing {
    /// What the server that we are on said last.
    pub(crate) fn told(&self) -> Score {
        self.told
    }

    /// The best that any said, unless that is gone.
    pub(crate) fn best(&self) -> Score {
        self.best
    }

    /// What was lost since the last time that this was asked.
    pub(crate) fn poll_loss(&mut self) -> Option<Loss> {
        self.loss.take()
    }

    /// The server says in a tick of the world what our score is.
    pub(crate) fn on_told(&mut self, now: Instant, tick: u32, told: Score) {
        self.told = told;
        self.best = Score { hits: self.best.hits.max(told.hits), falls: self.best.falls.max(told.falls) };
        if told != self.best {
            if now - *self.less_since.get_or_insert(now) < LAG {
                return;
            }
            let is_another = tick.saturating_add(APART) < self.tick;
            self.loss = Some(if is_another { Loss::World } else { Loss::Score });
            self.best = told;
        }
        (self.less_since, self.tick) = (None, tick);
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
    fn a_server_that_lags_behind_takes_nothing_back() {
        let mut standing = Standing::default();
        standing.on_told(at(0), 1_000, score(5, 3));
        for (millis, told) in [(1_000, score(4, 3)), (3_900, score(5, 2)), (3_950, score(5, 3)), (9_000, score(4, 4))] {
            standing.on_told(at(millis), 1_000, told);
            assert_eq!((standing.told(), standing.best()), (told, score(5, 3.max(told.falls))));
        }
        standing.on_told(at(11_900), 1_000, score(4, 4));
        assert_eq!((standing.best(), standing.poll_loss()), (score(5, 4), None));
    }

    #[test]
    fn what_the_servers_do_not_know_any_more_is_gone() {
        for (tick, loss) in [(20, Loss::World), (9_950, Loss::Score), (10_300, Loss::Score)] {
            let mut standing = Standing::default();
            standing.on_told(at(0), 10_000, score(5, 3));
            standing.on_told(at(1_000), tick, score(0, 0));
            standing.on_told(at(3_999), tick, score(1, 0));
            assert_eq!((standing.best(), standing.poll_loss()), (score(5, 3), None));
            standing.on_told(at(4_000), tick, score(1, 0));
            assert_eq!((standing.best(), standing.told()), (score(1, 0), score(1, 0)));
            assert_eq!((standing.poll_loss(), standing.poll_loss()), (Some(loss), None), "it is told once");
            standing.on_told(at(9_000), tick, score(1, 0));
            assert_eq!(standing.poll_loss(), None);
        }
    }
}
