//! The way from a maze to the others who are in it, and the clock by which they play.

use std::time::Duration;

use coplay::time::{Instant as Time, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::MazeSite;
use coplay_net::clock;

use crate::error::AppError;
use crate::hud::Invitation;

/// What carries a maze's datagrams. It also owns the time, because who waits for datagrams waits for deadlines, too.
pub trait MazeNet {
    /// Now, as the game counts it.
    fn now(&self) -> Time;

    /// Sends what the game has to send, at once, and gives it whatever comes in until then. Returns when it is that late, or earlier if
    /// something came that the game should act on.
    fn exchange(&mut self, game: &mut MazeSite, until: Time) -> Result<(), AppError>;

    /// Whether the game may stand still: nobody would have to wait.
    fn can_pause(&self) -> bool {
        false
    }

    /// So much time passed in which the game stood still. Only asked of those who can.
    fn add_pause(&mut self, _span: Duration) {}

    /// How others come in, if they can.
    fn invitation(&self) -> Option<Invitation> {
        None
    }

    /// A word for the status line: whom one plays with, and how.
    fn status(&self) -> String;
}

/// Nobody else: what is sent goes nowhere.
#[derive(Debug)]
pub struct SoloNet {
    time: TimeSource,
}

/// How time passes.
#[derive(Debug)]
enum TimeSource {
    /// As on the clock, but for when the game stood still.
    Real { paused: TimeDelta },
    /// As soon as somebody waits for it.
    Virtual(Time),
}

impl SoloNet {
    /// A game at the pace of this world.
    pub fn new() -> Self {
        Self { time: TimeSource::Real { paused: TimeDelta::ZERO } }
    }

    /// A game as fast as it goes; it is always the same.
    pub fn in_virtual_time() -> Self {
        Self { time: TimeSource::Virtual(Time::ZERO) }
    }
}

impl Default for SoloNet {
    fn default() -> Self {
        Self::new()
    }
}

impl MazeNet for SoloNet {
    fn now(&self) -> Time {
        match self.time {
            TimeSource::Real { paused: stood } => clock::now() - stood,
            TimeSource::Virtual(now) => now,
        }
    }

    fn exchange(&mut self, game: &mut MazeSite, until: Time) -> Result<(), AppError> {
        let now = self.now();
        let mut buffer = [0; MAX_DATAGRAM];
        while game.poll_transmit(now, &mut buffer).is_some() {}
        match &mut self.time {
            TimeSource::Real { .. } => std::thread::sleep((until - now).to_duration()),
            TimeSource::Virtual(now) => *now = until.max(*now + TimeDelta::from_nanos(1)),
        }
        Ok(())
    }

    fn can_pause(&self) -> bool {
        true
    }

    fn add_pause(&mut self, span: Duration) {
        if let TimeSource::Real { paused: stood } = &mut self.time {
            *stood += span.into();
        }
    }

    fn status(&self) -> String {
        "alone with ninjas".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_time_does_not_count() {
        let mut net = SoloNet::new();
        let before = net.now();
        assert!(net.can_pause());
        net.add_pause(Duration::from_secs(3_600));
        assert!(net.now() < before);
    }
}
