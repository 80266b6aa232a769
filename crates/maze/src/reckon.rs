//! How an avatar goes on, as far as others can know: what the engine of shared worlds asks.

use coplay::peer_world::{DeadReckoning, INFINITE_DISTANCE, WorldRegion};

use crate::angle::{degrees, short_way};
use crate::avatar::{Avatar, Doom, Life};
use crate::code;
use crate::maze::GRID;
use crate::place::{FINE, Position};
use crate::rules::{RADIUS, Rules};

/// Nobody is reckoned further than so many ticks: long before, an avatar that is not heard of is shown no more.
const FURTHEST: u32 = 1_000;

/// Nobody walks so far, in units, between two states that are put together: it was somewhere else in between.
const JUMP: u32 = 1_000;

/// Who looks another way than reckoned by more than this is seen to.
const ASKANCE: u16 = degrees(30);

/// Falls that are seen coming so many ticks apart are the same.
const SAME_DOOM: u32 = 4;

/// Units of a region, each way.
const REGION: i32 = 2_048;

impl DeadReckoning for Rules {
    type State = Avatar;

    /// With the same speed and turn, as walls let it, until it falls. What the player does not change is exact.
    fn extrapolate(&self, state: &Avatar, ticks: u32) -> Avatar {
        let mut ahead = state.clone();
        let ticks = state.doom.map_or(ticks, |doom| ticks.min(doom.left.into()));
        if state.is_alive() && (state.speed, state.turn) != (0, 0) {
            (0..ticks.min(FURTHEST)).for_each(|_| self.walk(&mut ahead));
        }
        meet_doom(&mut ahead, ticks);
        ahead
    }

    /// The earlier one goes on as it does, and is bent more and more towards the later one, so that it gets there. If that lives it did not
    /// fall in between, though it was seen coming.
    fn interpolate(&self, earlier: &Avatar, later: &Avatar, part: u32, whole: u32) -> Avatar {
        if !is_one_walk(earlier, later) {
            return self.extrapolate(earlier, part);
        }
        let earlier = Avatar { doom: None, ..earlier.clone() };
        let (mut state, end) = (self.extrapolate(&earlier, part), self.extrapolate(&earlier, whole));
        let share = |error: i32| (i64::from(error) * i64::from(part) / i64::from(whole.max(1))) as i32;
        state.position.x += share(later.position.x - end.position.x);
        state.position.y += share(later.position.y - end.position.y);
        let turned = share(short_way(end.heading, later.heading).into());
        state.heading = state.heading.wrapping_add_signed(turned as i16);
        state.shots = later.shots.clone();
        state
    }

    /// The distance in units. Deaths, those that are seen coming and those that do not come after all, comings back and shots must be
    /// told at once; another speed or turn shows as a distance soon enough.
    fn distance(&self, one: &Avatar, other: &Avatar) -> u32 {
        let is_same_life = one.life == other.life && one.lives == other.lives;
        if !is_same_life || one.shots.fired() != other.shots.fired() || is_another_doom(one.doom, other.doom) {
            return INFINITE_DISTANCE;
        }
        let distance = one.position.distance(other.position);
        let looks_away = short_way(one.heading, other.heading).unsigned_abs() > ASKANCE;
        if looks_away { distance.max(RADIUS.into()) } else { distance }
    }

    fn region(&self, state: &Avatar) -> WorldRegion {
        let Position { x, y } = state.position;
        let square = |at: i32| at.clamp(0, GRID * FINE - 1) / (REGION * FINE);
        WorldRegion { x: square(x) as u8, y: square(y) as u8 }
    }

    fn encode(&self, state: &Avatar, buf: &mut [u8]) -> Option<usize> {
        code::encode(state, buf)
    }

    fn decode(&self, bytes: &[u8]) -> Option<Avatar> {
        let avatar = code::decode(bytes)?;
        self.maze.is_free(avatar.position, RADIUS).then_some(avatar)
    }
}

/// So many ticks pass for a fall that is seen coming: when it is there the avatar falls, as far as others know.
fn meet_doom(avatar: &mut Avatar, ticks: u32) {
    let Some(doom) = &mut avatar.doom else { return };
    doom.left = doom.left.saturating_sub(ticks.min(u8::MAX.into()) as u8);
    if doom.left == 0 {
        avatar.life = Life::Dead { since: doom.tick };
        (avatar.speed, avatar.turn) = (0, 0);
    }
}

/// Whether others must be told of another doom. A bucket earlier or later is not worth the trouble; and the fall itself, which has none any
/// more, is told also where it was seen coming: what told of that may be lost.
fn is_another_doom(one: Option<Doom>, other: Option<Doom>) -> bool {
    match (one, other) {
        (None, None) => false,
        (Some(one), Some(other)) => one.tick.abs_diff(other.tick) > SAME_DOOM,
        _ => true,
    }
}

/// Whether somebody walked from the one to the other, and did not die, come back or jump.
fn is_one_walk(earlier: &Avatar, later: &Avatar) -> bool {
    earlier.life == later.life && earlier.lives == later.lives && earlier.position.distance(later.position) <= JUMP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avatar::Controls;
    use crate::luck::Luck;
    use crate::maze::Maze;
    use crate::rules::{TURN, WALK};

    fn rules() -> Rules {
        Rules::new(Maze::new(7, 8))
    }

    /// Buttons that are held for a while; never a shot.
    fn course(luck: &mut Luck) -> Controls {
        let (forward, back) = (!luck.one_in(4), luck.one_in(8));
        Controls { forward, back, left: luck.one_in(3), right: luck.one_in(3), fire: false }
    }

    #[test]
    fn a_course_that_does_not_change_is_reckoned_exactly() {
        let rules = rules();
        let mut luck = Luck::new(1);
        let mut avatar = rules.newcomer(&[], 1);
        let mut met_a_wall = 0;
        for round in 0..2_000 {
            let controls = course(&mut luck);
            rules.step(round, &mut avatar, controls, &[], 1);
            let known = avatar.clone();
            let ticks = 1 + luck.below(120);
            for tick in 1..=ticks {
                rules.step(round, &mut avatar, controls, &[], 1);
                assert_eq!(rules.extrapolate(&known, tick), avatar, "after {tick} ticks of {controls:?}");
            }
            let freely = u32::from(known.speed.unsigned_abs()) * ticks / FINE as u32;
            met_a_wall += u32::from(known.turn == 0 && avatar.position.distance(known.position) + 2 < freely);
        }
        assert!(met_a_wall > 100, "walls were in the way {met_a_wall} times");
    }

    #[test]
    fn the_dead_stay_and_nothing_takes_forever() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        (avatar.speed, avatar.turn) = (WALK, TURN);
        assert_eq!(rules.extrapolate(&avatar, u32::MAX), rules.extrapolate(&avatar, FURTHEST));
        rules.kill(5, &mut avatar);
        assert_eq!(rules.extrapolate(&avatar, 99), avatar);
    }

    #[test]
    fn between_leads_from_the_one_to_the_other_without_a_jump() {
        let rules = rules();
        let mut luck = Luck::new(2);
        for seed in 0..200 {
            let mut earlier = rules.newcomer(&[], seed);
            rules.step(0, &mut earlier, course(&mut luck), &[], seed);
            let mut later = earlier.clone();
            let whole = 4 + luck.below(16);
            for tick in 0..whole {
                let controls = if tick == whole / 2 { course(&mut luck) } else { Controls::default() };
                rules.step(tick, &mut later, controls, &[], seed);
            }
            let mut last = earlier.clone();
            for part in 1..whole {
                let state = rules.interpolate(&earlier, &later, part, whole);
                assert!(state.position.distance(last.position) <= 20, "no step is much wider than two");
                last = state;
            }
            assert!(last.position.distance(later.position) <= 20);
            assert!(short_way(last.heading, later.heading).unsigned_abs() < degrees(45));
        }
    }

    #[test]
    fn nobody_slides_from_death_to_a_new_life() {
        let rules = rules();
        let alive = rules.newcomer(&[], 1);
        let mut dead = alive.clone();
        rules.kill(9, &mut dead);
        let mut back = dead.clone();
        rules.step(9 + crate::rules::RESPAWN, &mut back, Controls::default(), &[], 1);
        assert!(back.is_alive());
        for (earlier, later) in [(&alive, &dead), (&dead, &back), (&alive, &back)] {
            assert_eq!(rules.interpolate(earlier, later, 2, 4), *earlier);
            assert_eq!(rules.distance(earlier, later), INFINITE_DISTANCE);
        }
        let mut jumped = alive.clone();
        jumped.position.x += 1_100 * FINE;
        assert_eq!(rules.interpolate(&alive, &jumped, 2, 4), alive);
    }

    #[test]
    fn who_is_doomed_walks_on_and_falls_in_that_tick() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        (avatar.speed, avatar.turn, avatar.doom) = (WALK, TURN, Some(Doom { tick: 107, left: 7 }));
        let mut truth = Avatar { doom: None, ..avatar.clone() };
        for ticks in 1..=9 {
            if ticks <= 7 {
                rules.go_on(&mut truth);
            }
            if ticks == 7 {
                rules.kill(107, &mut truth);
            }
            let reckoned = rules.extrapolate(&avatar, ticks);
            assert_eq!((reckoned.position, reckoned.life), (truth.position, truth.life), "after {ticks} ticks");
            assert_eq!(
                rules.extrapolate(&rules.extrapolate(&avatar, 3), ticks),
                rules.extrapolate(&avatar, ticks + 3),
                "in any steps"
            );
        }
        assert_eq!(
            rules.distance(&rules.extrapolate(&avatar, 7), &truth),
            INFINITE_DISTANCE,
            "the fall itself is told, too"
        );
        let later = rules.extrapolate(&Avatar { doom: None, ..avatar.clone() }, 12);
        assert!(rules.interpolate(&avatar, &later, 9, 12).is_alive(), "it did not fall after all");
        assert!(!rules.interpolate(&avatar, &truth, 9, 12).is_alive());
    }

    #[test]
    fn a_doom_that_comes_goes_or_moves_is_told_at_once() {
        let rules = rules();
        let at = |tick| Avatar { doom: Some(Doom { tick, left: 9 }), ..rules.newcomer(&[], 1) };
        let none = rules.newcomer(&[], 1);
        assert_eq!(
            (rules.distance(&none, &at(50)), rules.distance(&at(50), &none)),
            (INFINITE_DISTANCE, INFINITE_DISTANCE)
        );
        assert_eq!((rules.distance(&at(50), &at(54)), rules.distance(&at(50), &at(45))), (0, INFINITE_DISTANCE));
    }

    #[test]
    fn apart_is_what_somebody_would_see() {
        let rules = rules();
        let avatar = rules.newcomer(&[], 1);
        let with = |change: fn(&mut Avatar)| {
            let mut other = avatar.clone();
            change(&mut other);
            rules.distance(&avatar, &other)
        };
        assert_eq!(with(|_| ()), 0);
        assert_eq!(with(|other| other.position.x += 50 * FINE), 50);
        assert_eq!(with(|other| (other.speed, other.turn) = (WALK, TURN)), 0);
        assert_eq!(with(|other| other.heading = other.heading.wrapping_add(degrees(20))), 0);
        assert_eq!(with(|other| other.heading = other.heading.wrapping_sub(degrees(40))), 32);
        assert_eq!(with(|other| other.shots.push(crate::Shot::default())), INFINITE_DISTANCE);
        assert_eq!(with(|other| other.lives += 1), INFINITE_DISTANCE);
    }

    #[test]
    fn a_shot_that_is_forgotten_is_no_news() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        rules.step(0, &mut avatar, Controls { fire: true, ..Controls::default() }, &[], 1);
        let known = avatar.clone();
        rules.step(999, &mut avatar, Controls::default(), &[], 1);
        assert_eq!(avatar.shots.iter().len(), 0);
        assert_eq!(rules.distance(&rules.extrapolate(&known, 999), &avatar), 0);
    }

    #[test]
    fn regions_are_squares_of_the_grid() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        let mut at = |x, y| {
            avatar.position = Position::of_units(x, y);
            rules.region(&avatar)
        };
        assert_eq!(at(0, 2_047), WorldRegion { x: 0, y: 0 });
        assert_eq!(at(2_048, 65_535), WorldRegion { x: 1, y: 31 });
        assert_eq!(at(-5, 70_000), WorldRegion { x: 0, y: 31 }, "nonsense has a region, too");
    }
}
