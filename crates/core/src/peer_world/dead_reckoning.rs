//! What a game tells the engine about its entities: how they move, how far apart two of them are, how they are written down.

use core::fmt;

/// What one game knows of the motion of its entities. The engine knows only this.
///
/// All of it must give the same result everywhere: whole numbers, no clock, no chance.
pub trait DeadReckoning {
    /// All that others are told of an entity at one moment.
    type State: Clone + fmt::Debug;

    /// The state so many ticks later, if the entity goes on as it does.
    fn extrapolate(&self, state: &Self::State, ticks: u32) -> Self::State;

    /// The state between two that are known: `part` of `whole` ticks after the earlier one. `0 < part < whole`.
    fn interpolate(&self, earlier: &Self::State, later: &Self::State, part: u32, whole: u32) -> Self::State;

    /// How far apart two states are for somebody who looks at them, in the game's units. States of which others must be told at
    /// once, whatever the distance, are [`INFINITE_DISTANCE`] apart.
    fn distance(&self, one: &Self::State, other: &Self::State) -> u32;

    /// Where in the world the entity is, coarsely: who is neither there nor beside it need not be told of it.
    fn region(&self, state: &Self::State) -> WorldRegion;

    /// Writes a state down, in at most [`MAX_STATE_SIZE`] bytes, and says how many. `None` if there is no room.
    fn encode(&self, state: &Self::State, buf: &mut [u8]) -> Option<usize>;

    /// Reads a state that takes up all of the bytes. `None` if no game would have written it.
    fn decode(&self, bytes: &[u8]) -> Option<Self::State>;
}

/// Further apart than any two states that could be mistaken for each other.
pub const INFINITE_DISTANCE: u32 = u32::MAX;

/// The most bytes that a state takes.
pub const MAX_STATE_SIZE: usize = 128;

/// A square of the world. Squares that touch, also by a corner, are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WorldRegion {
    /// From west to east.
    pub x: u8,
    /// From north to south.
    pub y: u8,
}

impl WorldRegion {
    /// Whether what happens there is seen here.
    pub fn is_near(self, other: Self) -> bool {
        self.distance(other) <= 1
    }

    /// How many squares one has to cross to get there, at the least.
    pub(super) fn distance(self, other: Self) -> u32 {
        self.x.abs_diff(other.x).max(self.y.abs_diff(other.y)).into()
    }
}

/// An entity: the site that owns it, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// The site that says where it is.
    pub site: WorldSiteId,
    /// Which of that site's entities.
    pub index: u8,
}

/// A site of a world without a server: a number that it drew when it came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorldSiteId(pub u32);

impl fmt::Debug for WorldSiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{}", self.site, self.index)
    }
}
