//! Avatars: the bodies of players and ninjas, in the state of one tick that sites send each other.

use crate::position::{Position, UNIT};
use crate::shot::RecentShots;

/// Largest number of avatars of one site. Further ones are not added.
pub const MAX_AVATARS: usize = 64;

/// Walking speed, in 1/[`UNIT`] units per tick: 8 units per tick, 32 in 40 ms.
pub const WALK_SPEED: i16 = 8 * UNIT as i16;

/// Speed of walking backwards, in 1/[`UNIT`] units per tick: negative, and half as fast as [`WALK_SPEED`].
pub const BACKWARD_SPEED: i16 = -WALK_SPEED / 2;

/// Turn rate, in headings per tick: half a turn takes about a second. An avatar that turns while it walks follows a
/// circle with a radius of 261 units, about half a cell, so it can walk from one corridor into a side corridor.
pub const TURN_RATE: i16 = 320;

/// State of an avatar in one tick. A person or a ninja plays the avatar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Avatar {
    /// Position of the avatar's centre.
    pub position: Position,
    /// Heading in which the avatar looks and walks; see [`angle`](crate::angle).
    pub heading: u16,
    /// Walking speed, in 1/[`UNIT`](crate::UNIT) units per tick; negative is backwards. A wall that stops or slows the
    /// avatar does not change this value.
    pub speed: i16,
    /// Turn rate, in headings per tick; negative is to the left.
    pub turn_rate: i16,
    /// Life of the avatar: alive, or dead since a given tick.
    pub life: Life,
    /// Number of times the avatar has spawned, the first time included; wraps.
    pub spawn_count: u16,
    /// Shots fired within the last [`SHOT_RETENTION`](crate::SHOT_RETENTION) ticks, also those that have ended.
    pub shots: RecentShots,
    /// Fall that the owner's site predicts; `None` if it knows of no shot that will hit the avatar soon. Other sites
    /// display the predicted fall in its tick, but only the owner's site decides whether the avatar falls.
    pub predicted_fall: Option<PredictedFall>,
}

/// Fall that a shot in flight will cause if the avatar keeps its speed and turn rate until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedFall {
    /// Tick in which the avatar falls.
    pub tick: u32,
    /// Ticks from the tick of the avatar's state to the fall. Extrapolation counts them down; at 0 the avatar is
    /// displayed dead.
    pub ticks_left: u8,
}

/// Life of an avatar: alive, or dead since a given tick.
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
    /// Returns whether the avatar can walk, shoot and be hit. A dead avatar lies still until it respawns.
    pub fn is_alive(&self) -> bool {
        self.life == Life::Alive
    }
}

/// Buttons that the player or ninja of an avatar holds down. Opposite buttons cancel each other out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Controls {
    /// Walk forwards at [`WALK_SPEED`](crate::WALK_SPEED).
    pub forward: bool,
    /// Walk backwards at half the walking speed.
    pub backward: bool,
    /// Turn to the left by [`TURN_RATE`](crate::TURN_RATE) per tick.
    pub left: bool,
    /// Turn to the right by [`TURN_RATE`](crate::TURN_RATE) per tick.
    pub right: bool,
    /// Shoot whenever [`FIRE_INTERVAL`](crate::FIRE_INTERVAL) has passed since the last shot.
    pub fire: bool,
}

impl Controls {
    /// Returns the buttons that make an avatar walk and turn like this, without fire.
    pub fn from_motion(speed: i16, turn_rate: i16) -> Self {
        Self { forward: speed > 0, backward: speed < 0, left: turn_rate < 0, right: turn_rate > 0, ..Self::default() }
    }

    /// Returns the walking speed, in 1/[`UNIT`](crate::UNIT) units per tick; negative is backwards.
    pub fn speed(self) -> i16 {
        match (self.forward, self.backward) {
            (true, false) => WALK_SPEED,
            (false, true) => BACKWARD_SPEED,
            _ => 0,
        }
    }

    /// Returns the turn rate, in headings per tick; negative is to the left.
    pub fn turn_rate(self) -> i16 {
        TURN_RATE * (i16::from(self.right) - i16::from(self.left))
    }
}
