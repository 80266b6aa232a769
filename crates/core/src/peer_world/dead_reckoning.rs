//! The game's dead-reckoning rules: how entities move, how far apart two states are, and how states are encoded.

use core::fmt;

/// The game's knowledge of how its entities move. The engine knows nothing else about them.
///
/// All methods must be deterministic across sites: integer arithmetic only, no clock, no random numbers.
pub trait DeadReckoning {
    /// State of an entity at one tick: everything that peers receive about the entity.
    type State: Clone + fmt::Debug;

    /// Returns the state `ticks` ticks after `state`, if the entity continues to move as it does in `state`.
    fn extrapolate(&self, state: &Self::State, ticks: u32) -> Self::State;

    /// Returns the state `part` ticks after `earlier`, where `later` follows `whole` ticks after `earlier`. The engine
    /// guarantees `0 < part < whole`.
    fn interpolate(&self, earlier: &Self::State, later: &Self::State, part: u32, whole: u32) -> Self::State;

    /// Returns the visible distance between two states, in the game's units. Returns [`INFINITE_DISTANCE`] for states
    /// whose difference must reach the peers at once, whatever the distance.
    fn distance(&self, one: &Self::State, other: &Self::State) -> u32;

    /// Returns the coarse position of the entity: only sites with entities in this region or beside it, and sites
    /// without known regions, receive the entity's updates.
    fn region(&self, state: &Self::State) -> WorldRegion;

    /// Encodes a state into at most [`MAX_STATE_SIZE`] bytes and returns the length. `None` if `buf` is too small.
    fn encode(&self, state: &Self::State, buf: &mut [u8]) -> Option<usize>;

    /// Decodes a state that takes up all of `bytes`. `None` if `bytes` is not a valid encoding.
    fn decode(&self, bytes: &[u8]) -> Option<Self::State>;
}

/// Distance between two states whose difference must reach the peers at once.
pub const INFINITE_DISTANCE: u32 = u32::MAX;

/// Maximum size of an encoded state in bytes.
pub const MAX_STATE_SIZE: usize = 128;

/// A square of the world. Squares that touch, also at a corner, are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WorldRegion {
    /// Column, from west to east.
    pub x: u8,
    /// Row, from north to south.
    pub y: u8,
}

impl WorldRegion {
    /// Returns whether the regions are equal or neighbours, so that entities in one see those in the other.
    pub fn is_near(self, other: Self) -> bool {
        self.distance(other) <= 1
    }

    /// Returns the minimum number of steps between the regions, where a diagonal step counts as one.
    pub(super) fn distance(self, other: Self) -> u32 {
        self.x.abs_diff(other.x).max(self.y.abs_diff(other.y)).into()
    }
}

/// Id of an entity: the site that owns it and its number among the entities of that site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// Owner, the site that sends the entity's state.
    pub site: WorldSiteId,
    /// Number of the entity among those of its owner.
    pub index: u8,
}

/// Id of a site of a serverless world, given by the host program. A restarted site keeps it.
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
