//! Avatars: the state of a player at one instant, as sites send it to each other.

use crate::position::Position;
use crate::shot::RecentShots;

/// Avatar of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Avatar {
    /// Centre of the avatar.
    pub position: Position,
    /// Heading in which it looks and walks: see [`angle`](crate::angle).
    pub heading: u16,
    /// Walking speed, in 1/[`UNIT`](crate::UNIT) units per tick; negative is backwards. A wall may still stop the
    /// avatar.
    pub speed: i16,
    /// Turn rate, in headings per tick; negative is to the left.
    pub turn_rate: i16,
    /// Whether the avatar is alive.
    pub life: Life,
    /// Number of times the avatar spawned; wraps.
    pub spawn_count: u16,
    /// Shots fired within the last [`SHOT_RETENTION`](crate::SHOT_RETENTION) ticks.
    pub shots: RecentShots,
    /// Predicted fall. The owner decides the fall when it happens; until then other sites display the prediction.
    pub predicted_fall: Option<PredictedFall>,
}

/// Tick in which an avatar will fall, if neither its player nor the shooter changes anything before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedFall {
    /// Tick in which the avatar falls.
    pub tick: u32,
    /// Ticks from the tick of the state to the fall; 0 if the fall was extrapolated and not received.
    pub ticks_left: u8,
}

/// Whether an avatar is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The avatar walks and shoots.
    Alive,
    /// The avatar lies where it fell, until it respawns.
    Dead {
        /// Tick in which the avatar was killed.
        since: u32,
    },
}

impl Avatar {
    /// Whether the avatar is alive.
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }
}

/// Buttons that a player presses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Controls {
    /// Walk.
    pub forward: bool,
    /// Walk backwards, more slowly.
    pub backward: bool,
    /// Turn to the left.
    pub left: bool,
    /// Turn to the right.
    pub right: bool,
    /// Shoot as soon as the fire interval has passed.
    pub fire: bool,
}
