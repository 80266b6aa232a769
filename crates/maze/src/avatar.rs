//! Avatars: all that others are told of a player at one moment.

use crate::position::Position;
use crate::shot::RecentShots;

/// A player in the maze.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Avatar {
    /// Where its middle is.
    pub position: Position,
    /// Where it looks and walks: see [`angle`](crate::angle).
    pub heading: u16,
    /// How fast it walks, in parts of a unit per tick; negative is backwards. A wall may still stop it.
    pub speed: i16,
    /// How fast it turns, per tick; negative is to the left.
    pub turn_rate: i16,
    /// Whether it lives.
    pub life: Life,
    /// How often it came to life; wraps.
    pub spawn_count: u16,
    /// What it fired lately.
    pub shots: RecentShots,
    /// A fall that is seen coming. It is decided when it happens; until then this is what others show.
    pub predicted_fall: Option<PredictedFall>,
}

/// When an avatar will fall, if its player and whoever shot at it change nothing before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedFall {
    /// The tick in which it falls.
    pub tick: u32,
    /// How many ticks that is from the tick that the state is of; none if the fall was reckoned and not told.
    pub ticks_left: u8,
}

/// Whether an avatar lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It walks and shoots.
    Alive,
    /// It lies where it fell, until it comes back.
    Dead {
        /// The tick in which it was killed.
        since: u32,
    },
}

impl Avatar {
    /// Whether it lives.
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }
}

/// What a player presses.
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
    /// Shoot, as soon as it is possible again.
    pub fire: bool,
}
