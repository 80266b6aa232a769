//! What happens in a tick: walking, shooting, dying, coming back.
//!
//! An avatar walks at one speed, along straight lines and circles, as in MiMaze. Walls stop it, and it slides along them; another
//! avatar stops it before they touch. One function moves an avatar here and in [reckoning](crate::dead_reckoning), so an avatar whose player
//! changes nothing is exactly where others reckon it to be.

use crate::angle::{TRIG_ONE, cosine, sine};
use crate::avatar::{Avatar, Controls, Life};
use crate::maze::{Direction, Maze};
use crate::position::{Position, UNIT};
use crate::rng::Rng;
use crate::shot::{RecentShots, SHOT_RETENTION, Shot};

/// Ticks in a second.
pub const TICKS_PER_SECOND: u32 = 100;

/// The radius of an avatar, in units.
pub const AVATAR_RADIUS: u8 = 32;

/// How fast an avatar walks: 8 units a tick, 32 in 40 ms.
pub const WALK_SPEED: i16 = 8 * UNIT as i16;

/// How fast it walks backwards.
pub const BACKWARD_SPEED: i16 = -WALK_SPEED / 2;

/// How fast it turns: half a turn in about a second. A walk with a turn is a circle that just fits from one corridor into the next.
pub const TURN_RATE: i16 = 320;

/// The dead come back after so many ticks.
pub const RESPAWN_TICKS: u32 = 200;

/// There are at least so many ticks between two shots of an avatar.
pub const FIRE_INTERVAL: u32 = 60;

/// How fast a shot flies, in parts of a unit per tick.
pub(crate) const SHOT_SPEED: i32 = 24 * UNIT;

/// A shot that met nothing is gone after so many ticks.
const SHOT_LIFETIME: u32 = 150;

/// A shot meets whoever is this near to its way, in units: an avatar's radius, and its own.
const SHOT_HIT_RADIUS: i32 = AVATAR_RADIUS as i32 + 8;

/// A shot starts so far in front of the middle of who fires it, in units: it does not meet that one, who
/// may walk after it, and is not yet behind a wall.
const MUZZLE_DISTANCE: i32 = 52;

/// Who comes back looks at so many places for one where nobody is near.
const SPAWN_ATTEMPTS: u64 = 8;

/// Nobody comes back nearer to others than this, in units, if there is a choice.
const SPAWN_CLEARANCE: u32 = 1_024;

/// The rules of a game in one maze.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where it is played.
    pub maze: Maze,
}

impl Rules {
    /// The rules in this maze.
    pub fn new(maze: Maze) -> Self {
        Self { maze }
    }

    /// An avatar that comes to life for the first time, apart from the others if there is room. `luck` decides where.
    pub fn spawn_avatar(&self, others: &[Position], luck: u64) -> Avatar {
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
        self.respawn(&mut avatar, others, luck);
        avatar
    }

    /// One tick of an avatar whose player presses these buttons.
    ///
    /// `tick` is the world's. `others` are the living, where they are reckoned to be in this tick: the avatar stops before it
    /// touches one. `luck`, a number of its own for every avatar, decides where it comes back.
    pub fn step(&self, tick: u32, avatar: &mut Avatar, controls: Controls, others: &[Position], luck: u64) {
        avatar.shots.drop_before(tick.saturating_sub(SHOT_RETENTION));
        match avatar.life {
            Life::Alive => self.apply_controls(tick, avatar, controls, others),
            Life::Dead { since } if tick.saturating_sub(since) >= RESPAWN_TICKS => self.respawn(avatar, others, luck),
            Life::Dead { .. } => {}
        }
    }

    /// An avatar is hit, and lies where it is. The dead stay as they are.
    pub fn kill(&self, tick: u32, avatar: &mut Avatar) {
        if avatar.is_alive() {
            avatar.life = Life::Dead { since: tick };
            (avatar.speed, avatar.turn_rate, avatar.predicted_fall) = (0, 0, None);
        }
    }

    /// Where a shot is at a tick. `None` before it is fired, and after it met a wall or flew for long enough.
    pub fn shot_position(&self, shot: &Shot, tick: u32) -> Option<Position> {
        let flown = distance_flown(shot, tick)?;
        (flown < self.shot_range(shot)).then(|| shot.origin.moved_along(shot.heading, flown))
    }

    /// Whether a shot meets an avatar at this place in the course of this tick. On its way from the tick before nothing is jumped over.
    pub fn shot_hits(&self, shot: &Shot, tick: u32, target: Position) -> bool {
        // Most shots are far from most avatars, and walls need not be asked for those.
        let near = ShotSegment::in_tick(shot, tick).filter(|stretch| stretch.may_hit(target));
        near.is_some_and(|stretch| stretch.hits(shot, self.shot_range(shot), target))
    }

    /// A tick passes for an avatar whose player changes nothing, as far as others know.
    pub fn extrapolate_tick(&self, avatar: &mut Avatar) {
        if avatar.is_alive() && (avatar.speed, avatar.turn_rate) != (0, 0) {
            self.walk(avatar);
        }
    }

    /// Moves an avatar as its speed and turn say, as far as walls let it.
    pub(crate) fn walk(&self, avatar: &mut Avatar) {
        avatar.heading = avatar.heading.wrapping_add_signed(avatar.turn_rate);
        if avatar.speed != 0 {
            avatar.position = self.slide(avatar.position, avatar.heading, avatar.speed);
        }
    }

    /// The first that is free of: where it wants to go, along the wall, where it is.
    fn slide(&self, from: Position, heading: u16, speed: i16) -> Position {
        let to = from.moved_along(heading, speed.into());
        let (east_or_west, south_or_north) = (Position { x: to.x, y: from.y }, Position { x: from.x, y: to.y });
        let along = if from.distance_squared(east_or_west) >= from.distance_squared(south_or_north) {
            [east_or_west, south_or_north]
        } else {
            [south_or_north, east_or_west]
        };
        let places = [to, along[0], along[1]];
        places.into_iter().find(|place| self.maze.is_free(*place, AVATAR_RADIUS)).unwrap_or(from)
    }

    fn apply_controls(&self, tick: u32, avatar: &mut Avatar, controls: Controls, others: &[Position]) {
        avatar.speed = match (controls.forward, controls.backward) {
            (true, false) => WALK_SPEED,
            (false, true) => BACKWARD_SPEED,
            _ => 0,
        };
        avatar.turn_rate = TURN_RATE * (i16::from(controls.right) - i16::from(controls.left));
        if self.would_collide(avatar, others) {
            avatar.speed = 0;
        }
        self.walk(avatar);
        if controls.fire {
            fire(tick, avatar);
        }
    }

    /// Whether the next step leads into somebody. Who is too near already may still step away.
    fn would_collide(&self, avatar: &Avatar, others: &[Position]) -> bool {
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

    fn respawn(&self, avatar: &mut Avatar, others: &[Position], luck: u64) {
        avatar.spawn_count = avatar.spawn_count.wrapping_add(1);
        avatar.life = Life::Alive;
        avatar.position = self.choose_spawn_point(avatar.spawn_count, others, luck);
        avatar.heading = self.open_heading(avatar.position);
    }

    /// The first of some places where nobody is near, or the last of them.
    fn choose_spawn_point(&self, lives: u16, others: &[Position], luck: u64) -> Position {
        let mut numbers = Rng::from_parts(&[luck, lives.into()]);
        let is_lonely = |place: Position| others.iter().all(|other| place.distance(*other) >= SPAWN_CLEARANCE);
        let mut place = self.maze.spawn_point(numbers.next_u64());
        for _ in 1..SPAWN_ATTEMPTS {
            if is_lonely(place) {
                break;
            }
            place = self.maze.spawn_point(numbers.next_u64());
        }
        place
    }

    /// The heading of an open side of the cell.
    fn open_heading(&self, place: Position) -> u16 {
        let cell = self.maze.cell_at(place);
        let open = Direction::ALL.into_iter().find(|direction| !self.maze.has_wall(cell, *direction));
        open.map_or(0, Direction::heading)
    }

    /// How far a shot gets, in parts of a unit.
    pub(crate) fn shot_range(&self, shot: &Shot) -> i32 {
        let farthest = SHOT_SPEED * SHOT_LIFETIME as i32 + 1;
        let way = (cosine(shot.heading).into(), sine(shot.heading).into());
        let wall = self.maze.cast_ray(shot.origin, way, TRIG_ONE.into(), farthest.into());
        wall.map_or(farthest, |wall| wall.reach as i32)
    }
}

/// What a shot flies in the course of one tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShotSegment {
    start: i32,
    end: i32,
    /// Whoever it meets is between these two corners.
    min_corner: Position,
    max_corner: Position,
}

impl ShotSegment {
    /// What a shot flies in this tick; nothing if that is over, or has not begun.
    pub(crate) fn in_tick(shot: &Shot, tick: u32) -> Option<Self> {
        let (before, after) = (distance_flown(shot, tick.checked_sub(1)?)?, distance_flown(shot, tick)?);
        let [one, other] = [before, after].map(|length| shot.origin.moved_along(shot.heading, length));
        // A unit more, for what is rounded.
        let reach = (SHOT_HIT_RADIUS + 1) * UNIT;
        let low = Position { x: one.x.min(other.x) - reach, y: one.y.min(other.y) - reach };
        let high = Position { x: one.x.max(other.x) + reach, y: one.y.max(other.y) + reach };
        Some(Self { start: before, end: after, min_corner: low, max_corner: high })
    }

    /// Whether it is worth a closer look.
    #[inline]
    pub(crate) fn may_hit(&self, target: Position) -> bool {
        (self.min_corner.x..=self.max_corner.x).contains(&target.x)
            && (self.min_corner.y..=self.max_corner.y).contains(&target.y)
    }

    /// Whether the shot gets so far, given its range.
    pub(crate) fn starts_within(&self, range: i32) -> bool {
        self.start < range
    }

    /// Whether it meets somebody there, and no wall before.
    pub(crate) fn hits(&self, shot: &Shot, range: i32, target: Position) -> bool {
        let Self { start: before, end: after, .. } = *self;
        segment_hits(shot, before, after, target)
            && before < range
            && segment_hits(shot, before, after.min(range), target)
    }
}

fn fire(tick: u32, avatar: &mut Avatar) {
    let ready = |last: &Shot| tick.checked_sub(last.tick).is_some_and(|since| since >= FIRE_INTERVAL);
    if avatar.shots.newest().is_none_or(ready) {
        let from = avatar.position.moved_along(avatar.heading, MUZZLE_DISTANCE * UNIT);
        avatar.shots.push(Shot { tick, origin: from, heading: avatar.heading, ..Shot::default() });
    }
}

/// How far a shot has flown at a tick, if nothing stops it.
fn distance_flown(shot: &Shot, tick: u32) -> Option<i32> {
    let age = tick.checked_sub(shot.tick)?;
    (age <= SHOT_LIFETIME).then_some(age as i32 * SHOT_SPEED)
}

/// Whether a shot and somebody there can meet within so many ticks after this one, as fast as both are.
pub(crate) fn can_shot_reach(shot: &Shot, tick: u32, ticks: u32, target: Position) -> bool {
    let Some(flown) = distance_flown(shot, tick) else { return false };
    let reach = (SHOT_SPEED + i32::from(WALK_SPEED)) as u32 * ticks / UNIT as u32 + SHOT_HIT_RADIUS as u32 + 1;
    shot.origin.moved_along(shot.heading, flown).distance(target) <= reach
}

/// Whether the part of a shot's way between two lengths comes near enough to a place.
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
        let mut luck = Rng::new(3);
        let (mut met, mut far) = (0, 0);
        for _ in 0..200_000 {
            let from = Position::from_units(luck.below(2_000) as i32, luck.below(2_000) as i32);
            let shot = Shot { tick: 10, origin: from, heading: luck.next_u64() as u16, number: 1 };
            let stretch = ShotSegment::in_tick(&shot, 11 + luck.below(40)).expect("it flies");
            let around = from.moved_along(shot.heading, stretch.end);
            let target = Position {
                x: around.x + luck.below(160 * UNIT as u32) as i32 - 80 * UNIT,
                y: around.y + luck.below(160 * UNIT as u32) as i32 - 80 * UNIT,
            };
            let passes = segment_hits(&shot, stretch.start, stretch.end, target);
            assert!(stretch.may_hit(target) || !passes, "{shot:?} {stretch:?} {target:?}");
            met += u32::from(passes);
            far += u32::from(!stretch.may_hit(target));
        }
        assert!(met > 10_000 && far > 10_000, "{met} met, {far} far");
    }
}
