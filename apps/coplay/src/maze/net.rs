//! Network of a serverless maze. It is also the clock of the game.

use std::time::Duration;

use coplay::codec::MAX_DATAGRAM;
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::MazeSite;
use coplay_net::clock;
use coplay_shell::error::AppError;

use crate::hud::Invitation;

/// Carrier of a maze's datagrams. It also owns the clock, because waiting for datagrams and waiting for deadlines is
/// one operation.
pub trait MazeNet {
    /// Returns the current game time, without pauses.
    fn now(&self) -> Time;

    /// Sends the game's pending datagrams at once. Then passes received datagrams to the game up to the time `until`.
    fn exchange(&mut self, game: &mut MazeSite, until: Time) -> Result<(), AppError>;

    /// Returns whether the game may pause: no other player would have to wait.
    fn can_pause(&self) -> bool {
        false
    }

    /// Excludes a pause of length `span` from the game time. Called only if [`can_pause`](Self::can_pause) is `true`.
    fn add_pause(&mut self, _span: Duration) {}

    /// Returns the invitation for other players; `None` if no other player can join.
    fn invitation(&self) -> Option<Invitation> {
        None
    }

    /// Returns the status line text about the other players and the transport.
    fn status(&self) -> String;
}

/// Network of a solo game: discards all datagrams and only waits.
#[derive(Debug)]
pub struct SoloNet {
    time: TimeSource,
}

/// Source of the game time of a solo game.
#[derive(Debug)]
enum TimeSource {
    /// Real time, less the pauses.
    Real { paused: TimeDelta },
    /// Virtual time, which jumps to each awaited deadline.
    Virtual(Time),
}

impl SoloNet {
    /// Creates a network whose game time is real time.
    pub fn new() -> Self {
        Self { time: TimeSource::Real { paused: TimeDelta::ZERO } }
    }

    /// Creates a network whose game time is virtual: the game runs as fast as possible and deterministically.
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
            TimeSource::Real { paused } => clock::now() - paused,
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
        if let TimeSource::Real { paused } = &mut self.time {
            *paused += span.into();
        }
    }

    fn status(&self) -> String {
        "single player".into()
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
