//! Simulation of one tick: walking, shooting, dying, respawning.
//!
//! An avatar walks along straight lines and circles, as in MiMaze, at one speed forwards and half of it backwards.
//! Walls stop it, and it slides along them; another avatar stops it before they touch. The same function moves an
//! avatar here and in [dead reckoning](crate::dead_reckoning). So an avatar whose player changes nothing is exactly
//! where other sites extrapolate it to be, unless another avatar or a hit stops it.

use crate::angle::{TRIG_ONE, cosine, sine};
use crate::avatar::WALK_SPEED;
use crate::avatar::{Avatar, Controls, Life};
use crate::direction::Direction;
use crate::maze::Maze;
use crate::position::{Position, UNIT};
use crate::rng::Rng;
use crate::shot::{RecentShots, SHOT_RETENTION, Shot};

/// Ticks of the world per second: a tick is 10 ms.
pub const TICKS_PER_SECOND: u32 = 100;

/// Radius of an avatar, in units.
pub const AVATAR_RADIUS: u8 = 32;

/// Ticks from the death of an avatar to its respawn.
pub const RESPAWN_TICKS: u32 = 200;

/// Minimum number of ticks between two shots of an avatar.
pub const FIRE_INTERVAL: u32 = 60;

/// Speed of a shot, in 1/[`UNIT`] units per tick.
pub(crate) const SHOT_SPEED: i32 = 24 * UNIT;

/// Lifetime of a shot that meets no wall, in ticks.
const SHOT_LIFETIME: u32 = 150;

/// Distance from the path of a shot within which it hits an avatar, in units: the radius of the avatar plus that of the
/// shot.
const SHOT_HIT_RADIUS: i32 = AVATAR_RADIUS as i32 + 8;

/// Distance from the centre of the shooter to the start of its shot, in units. It is larger than [`SHOT_HIT_RADIUS`],
/// so that a shot does not hit its shooter, even if the shooter walks after it, and so small that no shot starts on the
/// far side of a wall.
const MUZZLE_DISTANCE: i32 = 52;

/// Largest number of spawn points that a respawn tries.
const SPAWN_ATTEMPTS: u64 = 8;

/// Distance from other avatars that a respawn tries to keep, in units.
const SPAWN_CLEARANCE: u32 = 1_024;

/// Rules of the game in one maze: how avatars and shots move.
#[derive(Clone, Debug)]
pub struct MazeRules {
    /// Maze in which the game is played.
    pub maze: Maze,
}

impl MazeRules {
    /// Creates the rules of a game in this maze.
    pub fn new(maze: Maze) -> Self {
        Self { maze }
    }

    /// Spawns a new avatar at the first of 8 random spawn points that is at least 1,024 units from all `others`, or at
    /// the last of the 8 if none is. `spawn_seed` determines the spawn points.
    pub fn spawn_avatar(&self, others: &[Position], spawn_seed: u64) -> Avatar {
        let mut avatar = Avatar {
            position: Position::default(),
            heading: 0,
            speed: 0,
            turn_rate: 0,
            life: Life::Dead { since: 0 },
            spawn_count: 0,
            shots: RecentShots::default(),
            predicted_fall: None,
        };
        self.respawn(&mut avatar, others, spawn_seed);
        avatar
    }

    /// Simulates one tick of an avatar whose player presses these buttons.
    ///
    /// `tick` is the world's tick. `others` are the positions of the other living avatars in this tick: the avatar
    /// stops before it touches one of them, and a respawn tries to keep 1,024 units away from them. `spawn_seed`, a
    /// different number for every avatar, determines where it respawns.
    pub fn step(&self, tick: u32, avatar: &mut Avatar, controls: Controls, others: &[Position], spawn_seed: u64) {
        avatar.shots.drop_before(tick.saturating_sub(SHOT_RETENTION));
        match avatar.life {
            Life::Alive => self.apply_controls(tick, avatar, controls, others),
            Life::Dead { since } if tick.saturating_sub(since) >= RESPAWN_TICKS => {
                self.respawn(avatar, others, spawn_seed)
            }
            Life::Dead { .. } => {}
        }
    }

    /// Kills an avatar, which lies where it is until it respawns. Does nothing if the avatar is dead already.
    pub fn kill(&self, tick: u32, avatar: &mut Avatar) {
        if avatar.is_alive() {
            avatar.life = Life::Dead { since: tick };
            (avatar.speed, avatar.turn_rate, avatar.predicted_fall) = (0, 0, None);
        }
    }

    /// Returns the position of a shot in a tick: `None` before it is fired, and after it hit a wall or its lifetime
    /// ended.
    pub fn shot_position(&self, shot: &Shot, tick: u32) -> Option<Position> {
        let flown = distance_flown(shot, tick)?;
        (flown < self.shot_range(shot)).then(|| shot.origin.moved_along(shot.heading, flown))
    }

    /// Returns whether a shot hits an avatar at the position `target` in the course of this tick. Checks the whole
    /// segment that the shot flies in the tick, so that the shot cannot jump over the avatar.
    pub fn shot_hits(&self, shot: &Shot, tick: u32, target: Position) -> bool {
        // Most shots are far from most avatars; the box test spares them the ray cast through the walls.
        let near = ShotSegment::in_tick(shot, tick).filter(|segment| segment.may_hit(target));
        near.is_some_and(|segment| segment.hits(shot, self.shot_range(shot), target))
    }

    /// Moves an avatar on by one tick as if its player changed nothing.
    pub fn extrapolate_tick(&self, avatar: &mut Avatar) {
        if avatar.is_alive() && (avatar.speed, avatar.turn_rate) != (0, 0) {
            self.walk(avatar);
        }
    }

    /// Turns an avatar by its turn rate and moves it by its speed for one tick, as far as walls let it.
    pub(crate) fn walk(&self, avatar: &mut Avatar) {
        (avatar.position, avatar.heading) =
            self.walked((avatar.position, avatar.heading), avatar.speed, avatar.turn_rate);
    }

    /// Returns position and heading after one tick of turning at this rate and then walking at this speed, as far as
    /// walls let the avatar.
    pub fn walked(&self, (position, heading): (Position, u16), speed: i16, turn_rate: i16) -> (Position, u16) {
        let heading = heading.wrapping_add_signed(turn_rate);
        let position = if speed == 0 { position } else { self.slide(position, heading, speed) };
        (position, heading)
    }

    /// Returns the position after one tick of walking: straight ahead if that is free, else along the wall, else
    /// `from`.
    fn slide(&self, from: Position, heading: u16, speed: i16) -> Position {
        let to = from.moved_along(heading, speed.into());
        let (east_or_west, south_or_north) = (Position { x: to.x, y: from.y }, Position { x: from.x, y: to.y });
        let along = if from.distance_squared(east_or_west) >= from.distance_squared(south_or_north) {
            [east_or_west, south_or_north]
        } else {
            [south_or_north, east_or_west]
        };
        let candidates = [to, along[0], along[1]];
        candidates.into_iter().find(|position| self.maze.is_free(*position, AVATAR_RADIUS)).unwrap_or(from)
    }

    fn apply_controls(&self, tick: u32, avatar: &mut Avatar, controls: Controls, others: &[Position]) {
        (avatar.speed, avatar.turn_rate) = (controls.speed(), controls.turn_rate());
        if self.would_collide(avatar, others) {
            avatar.speed = 0;
        }
        self.walk(avatar);
        if controls.fire {
            self.fire(tick, avatar);
        }
    }

    /// Lets an avatar shoot, unless it is dead or has shot less than [`FIRE_INTERVAL`] ticks ago. Drops its shots that
    /// are older than [`SHOT_RETENTION`].
    pub fn fire(&self, tick: u32, avatar: &mut Avatar) {
        avatar.shots.drop_before(tick.saturating_sub(SHOT_RETENTION));
        let ready = |last: &Shot| tick.checked_sub(last.tick).is_some_and(|since| since >= FIRE_INTERVAL);
        if avatar.is_alive() && avatar.shots.newest().is_none_or(ready) {
            let origin = avatar.position.moved_along(avatar.heading, MUZZLE_DISTANCE * UNIT);
            avatar.shots.push(Shot { tick, origin, heading: avatar.heading, ..Shot::default() });
        }
    }

    /// Returns whether the next step brings the avatar nearer to another one and into contact. An avatar that already
    /// overlaps another may step away.
    pub fn would_collide(&self, avatar: &Avatar, others: &[Position]) -> bool {
        if avatar.speed == 0 || others.is_empty() {
            return false;
        }
        let mut next = avatar.clone();
        self.walk(&mut next);
        let touching = (2 * u64::from(AVATAR_RADIUS) * UNIT as u64).pow(2);
        others.iter().any(|other| {
            let gap = next.position.distance_squared(*other);
            gap < touching && gap < avatar.position.distance_squared(*other)
        })
    }

    /// Brings a dead avatar back, as [`spawn_avatar`](Self::spawn_avatar) does.
    pub fn respawn(&self, avatar: &mut Avatar, others: &[Position], spawn_seed: u64) {
        avatar.spawn_count = avatar.spawn_count.wrapping_add(1);
        avatar.life = Life::Alive;
        avatar.position = self.choose_spawn_point(avatar.spawn_count, others, spawn_seed);
        avatar.heading = self.open_heading(avatar.position);
    }

    /// Returns the first of [`SPAWN_ATTEMPTS`] random spawn points that is at least [`SPAWN_CLEARANCE`] away from all
    /// `others`, or the last one if none is.
    fn choose_spawn_point(&self, spawn_count: u16, others: &[Position], spawn_seed: u64) -> Position {
        let mut rng = Rng::from_parts(&[spawn_seed, spawn_count.into()]);
        let is_clear = |point: Position| others.iter().all(|other| point.distance(*other) >= SPAWN_CLEARANCE);
        let mut point = self.maze.spawn_point(rng.next_u64());
        for _ in 1..SPAWN_ATTEMPTS {
            if is_clear(point) {
                break;
            }
            point = self.maze.spawn_point(rng.next_u64());
        }
        point
    }

    /// Returns the heading towards the first side without a wall, clockwise from east, of the cell at `position`.
    fn open_heading(&self, position: Position) -> u16 {
        let cell = self.maze.cell_at(position);
        let open = Direction::ALL.into_iter().find(|direction| !self.maze.has_wall(cell, *direction));
        open.map_or(0, Direction::heading)
    }

    /// Returns how far a shot flies until it hits a wall or its lifetime ends, in 1/[`UNIT`] units.
    pub(crate) fn shot_range(&self, shot: &Shot) -> i32 {
        let farthest = SHOT_SPEED * SHOT_LIFETIME as i32 + 1;
        let direction = (cosine(shot.heading).into(), sine(shot.heading).into());
        let wall = self.maze.cast_ray(shot.origin, direction, TRIG_ONE.into(), farthest.into());
        wall.map_or(farthest, |wall| wall.reach as i32)
    }
}

/// Part of a shot's path that it flies in the course of one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShotSegment {
    start: i32,
    end: i32,
    /// North-west corner of the bounding box of all avatar positions that the segment can hit.
    min_corner: Position,
    /// South-east corner of the bounding box of all avatar positions that the segment can hit.
    max_corner: Position,
}

impl ShotSegment {
    /// Returns the segment that a shot flies in this tick; `None` up to the tick in which the shot was fired, and after
    /// its lifetime.
    pub(crate) fn in_tick(shot: &Shot, tick: u32) -> Option<Self> {
        let (before, after) = (distance_flown(shot, tick.checked_sub(1)?)?, distance_flown(shot, tick)?);
        let [one, other] = [before, after].map(|length| shot.origin.moved_along(shot.heading, length));
        // One unit more allows for rounding.
        let reach = (SHOT_HIT_RADIUS + 1) * UNIT;
        let low = Position { x: one.x.min(other.x) - reach, y: one.y.min(other.y) - reach };
        let high = Position { x: one.x.max(other.x) + reach, y: one.y.max(other.y) + reach };
        Some(Self { start: before, end: after, min_corner: low, max_corner: high })
    }

    /// Returns whether `target` is within the bounding box of all avatar positions that the segment can hit. If not,
    /// the segment cannot hit an avatar there.
    #[inline]
    pub(crate) fn may_hit(&self, target: Position) -> bool {
        (self.min_corner.x..=self.max_corner.x).contains(&target.x)
            && (self.min_corner.y..=self.max_corner.y).contains(&target.y)
    }

    /// Returns whether the shot flies at least part of the segment before its `range`, in 1/[`UNIT`] units, ends.
    pub(crate) fn starts_within(&self, range: i32) -> bool {
        self.start < range
    }

    /// Returns whether the shot hits an avatar at `target` before its `range`, in 1/[`UNIT`] units, ends.
    pub(crate) fn hits(&self, shot: &Shot, range: i32, target: Position) -> bool {
        let Self { start: before, end: after, .. } = *self;
        segment_hits(shot, before, after, target)
            && before < range
            && segment_hits(shot, before, after.min(range), target)
    }
}

/// Returns how far a shot has flown at a tick if no wall stops it, in 1/[`UNIT`] units; `None` before the shot is fired
/// and after its lifetime.
fn distance_flown(shot: &Shot, tick: u32) -> Option<i32> {
    let age = tick.checked_sub(shot.tick)?;
    (age <= SHOT_LIFETIME).then_some(age as i32 * SHOT_SPEED)
}

/// Returns whether a shot is near enough to `target` in `tick` to hit an avatar from there within the next `ticks`
/// ticks, at the speeds of both and regardless of walls.
pub(crate) fn can_shot_reach(shot: &Shot, tick: u32, ticks: u32, target: Position) -> bool {
    let Some(flown) = distance_flown(shot, tick) else { return false };
    let reach = (SHOT_SPEED + i32::from(WALK_SPEED)) as u32 * ticks / UNIT as u32 + SHOT_HIT_RADIUS as u32 + 1;
    shot.origin.moved_along(shot.heading, flown).distance(target) <= reach
}

/// Returns whether a shot's path passes within [`SHOT_HIT_RADIUS`] of the target between the distances `before` and
/// `after` from the shot's origin, in 1/[`UNIT`] units.
fn segment_hits(shot: &Shot, before: i32, after: i32, target: Position) -> bool {
    let (east, south) =
        (i64::from(target.x) - i64::from(shot.origin.x), i64::from(target.y) - i64::from(shot.origin.y));
    let along = (east * i64::from(cosine(shot.heading)) + south * i64::from(sine(shot.heading))) / i64::from(TRIG_ONE);
    let nearest = shot.origin.moved_along(shot.heading, along.clamp(before.into(), after.into()) as i32);
    nearest.distance_squared(target) <= (SHOT_HIT_RADIUS as u64 * UNIT as u64).pow(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounding_box_test_never_misses_a_hit() {
        let mut rng = Rng::new(3);
        let (mut met, mut far) = (0, 0);
        for _ in 0..200_000 {
            let origin = Position::from_units(rng.below(2_000) as i32, rng.below(2_000) as i32);
            let shot = Shot { tick: 10, origin, heading: rng.next_u64() as u16, number: 1 };
            let segment = ShotSegment::in_tick(&shot, 11 + rng.below(40)).expect("the shot is in flight");
            let around = origin.moved_along(shot.heading, segment.end);
            let target = Position {
                x: around.x + rng.below(160 * UNIT as u32) as i32 - 80 * UNIT,
                y: around.y + rng.below(160 * UNIT as u32) as i32 - 80 * UNIT,
            };
            let passes = segment_hits(&shot, segment.start, segment.end, target);
            assert!(segment.may_hit(target) || !passes, "{shot:?} {segment:?} {target:?}");
            met += u32::from(passes);
            far += u32::from(!segment.may_hit(target));
        }
        assert!(met > 10_000 && far > 10_000, "too few samples: {met} hits, {far} outside the box");
    }
}
