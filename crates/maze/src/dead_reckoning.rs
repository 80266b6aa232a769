//! Dead reckoning of avatars: the game's side of [`coplay::peer_world`].

use coplay::peer_world::{DeadReckoning, INFINITE_DISTANCE, WorldRegion};

use crate::angle::{degrees, shortest_turn};
use crate::avatar::{Avatar, Life, PredictedFall};
use crate::codec;
use crate::position::GRID_SIZE;
use crate::position::{Position, UNIT};
use crate::rules::{AVATAR_RADIUS, MazeRules};

/// Longest extrapolation, in ticks. By default a peer world no longer displays an avatar after 100 ticks without an
/// update.
const MAX_EXTRAPOLATION: u32 = 1_000;

/// Largest distance between two states that are interpolated, in units. An avatar that is farther away in the later
/// state is taken to have jumped.
const MAX_INTERPOLATION_DISTANCE: u32 = 1_000;

/// Largest difference between the headings of two states that does not count as a distance.
const HEADING_TOLERANCE: u16 = degrees(30);

/// Largest difference between the ticks of two predicted falls that count as the same fall.
const FALL_TICK_TOLERANCE: u32 = 4;

/// Side of the square that is one [`WorldRegion`], in units.
const REGION_SIZE: i32 = 2_048;

impl DeadReckoning for MazeRules {
    type State = Avatar;

    /// Continues at the same speed and turn rate, stopped by walls, until the predicted fall, for at most 1,000 ticks.
    /// The result is exact while the player presses the same buttons and no other avatar is in the way.
    fn extrapolate(&self, state: &Avatar, ticks: u32) -> Avatar {
        let mut ahead = state.clone();
        let ticks = state.predicted_fall.map_or(ticks, |fall| ticks.min(fall.ticks_left.into()));
        if state.is_alive() && (state.speed, state.turn_rate) != (0, 0) {
            (0..ticks.min(MAX_EXTRAPOLATION)).for_each(|_| self.walk(&mut ahead));
        }
        apply_predicted_fall(&mut ahead, ticks);
        ahead
    }

    /// Extrapolates the earlier state and adds a share of the difference to the later state. The share grows from tick
    /// to tick, so that the path ends in the later state. If the later state is alive, ignores a fall that the earlier
    /// one predicts. Across a death, respawn or jump, only extrapolates the earlier state.
    fn interpolate(&self, earlier: &Avatar, later: &Avatar, part: u32, whole: u32) -> Avatar {
        if !can_interpolate(earlier, later) {
            return self.extrapolate(earlier, part);
        }
        let earlier = Avatar { predicted_fall: None, ..earlier.clone() };
        let (mut state, end) = (self.extrapolate(&earlier, part), self.extrapolate(&earlier, whole));
        let share = |error: i32| (i64::from(error) * i64::from(part) / i64::from(whole.max(1))) as i32;
        state.position.x += share(later.position.x - end.position.x);
        state.position.y += share(later.position.y - end.position.y);
        let turned = share(shortest_turn(end.heading, later.heading).into());
        state.heading = state.heading.wrapping_add_signed(turned as i16);
        state.shots = later.shots.clone();
        state
    }

    /// Returns the distance in units, at least 32 if the headings differ by more than 30 degrees. It is infinite where
    /// an update must be sent at once: after a death, a respawn, a shot, a new or cancelled fall prediction, or one
    /// that changed by more than 4 ticks. A difference of speed or turn rate does not count, because it soon leads to a
    /// distance.
    fn distance(&self, one: &Avatar, other: &Avatar) -> u32 {
        let is_same_life = one.life == other.life && one.spawn_count == other.spawn_count;
        if !is_same_life
            || one.shots.last_number() != other.shots.last_number()
            || is_different_fall(one.predicted_fall, other.predicted_fall)
        {
            return INFINITE_DISTANCE;
        }
        let distance = one.position.distance(other.position);
        let is_turned_away = shortest_turn(one.heading, other.heading).unsigned_abs() > HEADING_TOLERANCE;
        if is_turned_away { distance.max(AVATAR_RADIUS.into()) } else { distance }
    }

    fn region(&self, state: &Avatar) -> WorldRegion {
        let Position { x, y } = state.position;
        let square = |at: i32| at.clamp(0, GRID_SIZE * UNIT - 1) / (REGION_SIZE * UNIT);
        WorldRegion { x: square(x) as u8, y: square(y) as u8 }
    }

    fn encode(&self, state: &Avatar, buf: &mut [u8]) -> Option<usize> {
        codec::encode(state, buf)
    }

    fn decode(&self, bytes: &[u8]) -> Option<Avatar> {
        let avatar = codec::decode(bytes)?;
        self.maze.is_free(avatar.position, AVATAR_RADIUS).then_some(avatar)
    }
}

/// Counts down a predicted fall by `ticks`. At 0 the avatar becomes dead, until a received state says otherwise.
fn apply_predicted_fall(avatar: &mut Avatar, ticks: u32) {
    let Some(fall) = &mut avatar.predicted_fall else { return };
    fall.ticks_left = fall.ticks_left.saturating_sub(ticks.min(u8::MAX.into()) as u8);
    if fall.ticks_left == 0 {
        avatar.life = Life::Dead { since: fall.tick };
        (avatar.speed, avatar.turn_rate) = (0, 0);
    }
}

/// Returns whether the fall predictions of two states differ enough to send an update. Falls up to
/// [`FALL_TICK_TOLERANCE`] ticks apart count as equal. After the fall the state has no prediction, which counts as a
/// difference: the fall itself is sent even if it was predicted, because the update with the prediction may have been
/// lost.
fn is_different_fall(one: Option<PredictedFall>, other: Option<PredictedFall>) -> bool {
    match (one, other) {
        (None, None) => false,
        (Some(one), Some(other)) => one.tick.abs_diff(other.tick) > FALL_TICK_TOLERANCE,
        _ => true,
    }
}

/// Returns whether the avatar can have walked from one state to the other, without a death, respawn or jump.
fn can_interpolate(earlier: &Avatar, later: &Avatar) -> bool {
    earlier.life == later.life
        && earlier.spawn_count == later.spawn_count
        && earlier.position.distance(later.position) <= MAX_INTERPOLATION_DISTANCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avatar::Controls;
    use crate::avatar::{TURN_RATE, WALK_SPEED};
    use crate::maze::Maze;
    use crate::rng::Rng;

    fn rules() -> MazeRules {
        MazeRules::new(Maze::new(7, 8))
    }

    /// Returns random buttons without fire.
    fn random_controls(rng: &mut Rng) -> Controls {
        let (forward, backward) = (!rng.one_in(4), rng.one_in(8));
        Controls { forward, backward, left: rng.one_in(3), right: rng.one_in(3), fire: false }
    }

    #[test]
    fn unchanged_controls_are_extrapolated_exactly() {
        let rules = rules();
        let mut rng = Rng::new(1);
        let mut avatar = rules.spawn_avatar(&[], 1);
        let mut met_a_wall = 0;
        for round in 0..2_000 {
            let controls = random_controls(&mut rng);
            rules.step(round, &mut avatar, controls, &[], 1);
            let known = avatar.clone();
            let ticks = 1 + rng.below(120);
            for tick in 1..=ticks {
                rules.step(round, &mut avatar, controls, &[], 1);
                assert_eq!(rules.extrapolate(&known, tick), avatar, "after {tick} ticks of {controls:?}");
            }
            let unobstructed = u32::from(known.speed.unsigned_abs()) * ticks / UNIT as u32;
            met_a_wall +=
                u32::from(known.turn_rate == 0 && avatar.position.distance(known.position) + 2 < unobstructed);
        }
        assert!(met_a_wall > 100, "only {met_a_wall} walks met a wall");
    }

    #[test]
    fn dead_avatars_stay_and_extrapolation_is_bounded() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        (avatar.speed, avatar.turn_rate) = (WALK_SPEED, TURN_RATE);
        assert_eq!(rules.extrapolate(&avatar, u32::MAX), rules.extrapolate(&avatar, MAX_EXTRAPOLATION));
        rules.kill(5, &mut avatar);
        assert_eq!(rules.extrapolate(&avatar, 99), avatar);
    }

    #[test]
    fn interpolation_is_continuous() {
        let rules = rules();
        let mut rng = Rng::new(2);
        for seed in 0..200 {
            let mut earlier = rules.spawn_avatar(&[], seed);
            rules.step(0, &mut earlier, random_controls(&mut rng), &[], seed);
            let mut later = earlier.clone();
            let whole = 4 + rng.below(16);
            for tick in 0..whole {
                let controls = if tick == whole / 2 { random_controls(&mut rng) } else { Controls::default() };
                rules.step(tick, &mut later, controls, &[], seed);
            }
            let mut last = earlier.clone();
            for part in 1..whole {
                let state = rules.interpolate(&earlier, &later, part, whole);
                assert!(state.position.distance(last.position) <= 20, "a step is wider than 20 units");
                last = state;
            }
            assert!(last.position.distance(later.position) <= 20);
            assert!(shortest_turn(last.heading, later.heading).unsigned_abs() < degrees(45));
        }
    }

    #[test]
    fn no_interpolation_across_death_respawn_or_jump() {
        let rules = rules();
        let alive = rules.spawn_avatar(&[], 1);
        let mut dead = alive.clone();
        rules.kill(9, &mut dead);
        let mut back = dead.clone();
        rules.step(9 + crate::rules::RESPAWN_TICKS, &mut back, Controls::default(), &[], 1);
        assert!(back.is_alive());
        for (earlier, later) in [(&alive, &dead), (&dead, &back), (&alive, &back)] {
            assert_eq!(rules.interpolate(earlier, later, 2, 4), *earlier);
            assert_eq!(rules.distance(earlier, later), INFINITE_DISTANCE);
        }
        let mut jumped = alive.clone();
        jumped.position.x += 1_100 * UNIT;
        assert_eq!(rules.interpolate(&alive, &jumped, 2, 4), alive);
    }

    #[test]
    fn avatar_falls_in_its_predicted_tick() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        (avatar.speed, avatar.turn_rate, avatar.predicted_fall) =
            (WALK_SPEED, TURN_RATE, Some(PredictedFall { tick: 107, ticks_left: 7 }));
        let mut truth = Avatar { predicted_fall: None, ..avatar.clone() };
        for ticks in 1..=9 {
            if ticks <= 7 {
                rules.extrapolate_tick(&mut truth);
            }
            if ticks == 7 {
                rules.kill(107, &mut truth);
            }
            let extrapolated = rules.extrapolate(&avatar, ticks);
            assert_eq!((extrapolated.position, extrapolated.life), (truth.position, truth.life), "after {ticks} ticks");
            assert_eq!(
                rules.extrapolate(&rules.extrapolate(&avatar, 3), ticks),
                rules.extrapolate(&avatar, ticks + 3),
                "the result depends on the step size"
            );
        }
        assert_eq!(
            rules.distance(&rules.extrapolate(&avatar, 7), &truth),
            INFINITE_DISTANCE,
            "the fall itself is not sent"
        );
        let later = rules.extrapolate(&Avatar { predicted_fall: None, ..avatar.clone() }, 12);
        assert!(rules.interpolate(&avatar, &later, 9, 12).is_alive(), "the cancelled fall is displayed");
        assert!(!rules.interpolate(&avatar, &truth, 9, 12).is_alive());
    }

    #[test]
    fn changed_fall_prediction_is_sent_at_once() {
        let rules = rules();
        let at =
            |tick| Avatar { predicted_fall: Some(PredictedFall { tick, ticks_left: 9 }), ..rules.spawn_avatar(&[], 1) };
        let none = rules.spawn_avatar(&[], 1);
        assert_eq!(
            (rules.distance(&none, &at(50)), rules.distance(&at(50), &none)),
            (INFINITE_DISTANCE, INFINITE_DISTANCE)
        );
        assert_eq!((rules.distance(&at(50), &at(54)), rules.distance(&at(50), &at(45))), (0, INFINITE_DISTANCE));
    }

    #[test]
    fn difference_is_the_visible_distance() {
        let rules = rules();
        let avatar = rules.spawn_avatar(&[], 1);
        let with = |change: fn(&mut Avatar)| {
            let mut other = avatar.clone();
            change(&mut other);
            rules.distance(&avatar, &other)
        };
        assert_eq!(with(|_| ()), 0);
        assert_eq!(with(|other| other.position.x += 50 * UNIT), 50);
        assert_eq!(with(|other| (other.speed, other.turn_rate) = (WALK_SPEED, TURN_RATE)), 0);
        assert_eq!(with(|other| other.heading = other.heading.wrapping_add(degrees(20))), 0);
        assert_eq!(with(|other| other.heading = other.heading.wrapping_sub(degrees(40))), 32);
        assert_eq!(with(|other| other.shots.push(crate::Shot::default())), INFINITE_DISTANCE);
        assert_eq!(with(|other| other.spawn_count += 1), INFINITE_DISTANCE);
    }

    #[test]
    fn expired_shot_needs_no_update() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        rules.step(0, &mut avatar, Controls { fire: true, ..Controls::default() }, &[], 1);
        let known = avatar.clone();
        rules.step(999, &mut avatar, Controls::default(), &[], 1);
        assert_eq!(avatar.shots.iter().len(), 0);
        assert_eq!(rules.distance(&rules.extrapolate(&known, 999), &avatar), 0);
    }

    #[test]
    fn regions_are_grid_squares() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        let mut at = |x, y| {
            avatar.position = Position::from_units(x, y);
            rules.region(&avatar)
        };
        assert_eq!(at(0, 2_047), WorldRegion { x: 0, y: 0 });
        assert_eq!(at(2_048, 65_535), WorldRegion { x: 1, y: 31 });
        assert_eq!(at(-5, 70_000), WorldRegion { x: 0, y: 31 }, "positions off the grid are not clamped");
    }
}
