//! What avatars and shots can do, and what they cannot.

use coplay::peer_world::DeadReckoning;
use coplay_maze::angle::{QUARTER, degrees};
use coplay_maze::{Avatar, Controls, FINE, FIRE_EVERY, Maze, Position, RADIUS, RESPAWN, Rules, Shot, TURN, WALK};

const FORWARD: Controls = Controls { forward: true, back: false, left: false, right: false, fire: false };
const STILL: Controls = Controls { forward: false, ..FORWARD };

fn rules() -> Rules {
    Rules::new(Maze::new(7, 8))
}

/// Numbers that look random.
fn scramble(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x45d9_f3b5).wrapping_add(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    mixed ^ mixed >> 14
}

/// Buttons that somebody might press: others after every 20 ticks.
fn pressed(player: u32, tick: u32) -> Controls {
    let bits = scramble(player * 1_000_000 + tick / 20);
    let bit = |at: u32| bits >> at & 1 == 1;
    Controls { forward: bit(0) || bit(1), back: bit(2) && bit(3), left: bit(4), right: bit(5), fire: bit(6) }
}

/// A free place where something holds.
fn place_where(rules: &Rules, holds: impl Fn(Position) -> bool) -> Position {
    let mut places = (0..1_000).map(|number| rules.maze.spawn(number));
    places.find(|place| holds(*place)).expect("there is such a place")
}

/// An avatar that looks east, where nothing is in its way for 400 units.
fn before_a_corridor(rules: &Rules) -> Avatar {
    let is_open = |place: Position| rules.maze.see(place, place.along(0, 400 * FINE));
    Avatar { position: place_where(rules, is_open), heading: 0, ..rules.newcomer(&[], 1) }
}

#[test]
fn an_avatar_walks_32_units_in_40_ms() {
    let rules = rules();
    let start = before_a_corridor(&rules);
    let mut avatar = start.clone();
    for tick in 0..40 {
        rules.step(tick, &mut avatar, FORWARD, &[], 1);
        assert_eq!(avatar.position.x - start.position.x, (tick as i32 + 1) * 8 * FINE);
        assert_eq!(avatar.position.y, start.position.y);
    }
    // On other ways to a fiftieth of a unit.
    for heading in (0..=u16::MAX).step_by(13) {
        let mut avatar = Avatar { heading, position: rules.maze.spawn(5), ..start.clone() };
        let before = avatar.position;
        (0..4).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
        let (x, y) = (f64::from(avatar.position.x - before.x), f64::from(avatar.position.y - before.y));
        assert!((x.hypot(y) - 32.0 * 256.0).abs() < 256.0 / 50.0, "heading {heading}");
    }
}

#[test]
fn turning_while_walking_is_a_circle() {
    let rules = rules();
    let mut avatar = rules.newcomer(&[], 1);
    let ticks = 65_536 / TURN as u32;
    let before = avatar.heading;
    for tick in 0..ticks {
        rules.step(tick, &mut avatar, Controls { right: true, ..STILL }, &[], 1);
    }
    let turned = avatar.heading.wrapping_sub(before);
    assert!(turned.min(turned.wrapping_neg()) < TURN as u16, "a full turn takes {ticks} ticks");

    // Three places on the way determine a circle; all others must be on it. The radius is 261 units, so a corridor has room for a
    // quarter of it.
    let start = before_a_corridor(&rules);
    let mut avatar = start.clone();
    let mut places = Vec::new();
    for tick in 0..20 {
        rules.step(tick, &mut avatar, Controls { left: true, ..FORWARD }, &[], 1);
        places.push((f64::from(avatar.position.x) / 256.0, f64::from(avatar.position.y) / 256.0));
    }
    let middle = (f64::from(start.position.x) / 256.0, f64::from(start.position.y) / 256.0 - 260.8);
    for (x, y) in places {
        assert!(((x - middle.0).hypot(y - middle.1) - 260.8).abs() < 5.0, "{x}, {y}");
    }
}

#[test]
fn nobody_ever_gets_into_a_wall() {
    let rules = rules();
    let mut distance = 0;
    for player in 0..20 {
        let mut avatar = rules.newcomer(&[], player.into());
        for tick in 0..20_000 {
            let before = avatar.position;
            rules.step(tick, &mut avatar, pressed(player, tick), &[], player.into());
            assert!(rules.maze.is_free(avatar.position, RADIUS), "player {player}, tick {tick}");
            distance += u64::from(before.distance(avatar.position));
        }
    }
    assert!(distance > 20 * 20_000 * 2, "they got around: {distance} units");
}

#[test]
fn who_walks_against_a_wall_slides_along_it() {
    let rules = rules();
    let mut avatar = before_a_corridor(&rules);
    avatar.heading = degrees(60);
    let start = avatar.position;
    (0..150).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
    let east = (avatar.position.x - start.x) / FINE;
    assert!(east > 300, "{east} units east");
}

#[test]
fn two_sites_that_press_the_same_are_in_the_same_state() {
    let [one, other] = [rules(), rules()];
    let (mut here, mut there) = (one.newcomer(&[], 9), other.newcomer(&[], 9));
    for tick in 0..5_000 {
        one.step(tick, &mut here, pressed(3, tick), &[], 9);
        other.step(tick, &mut there, pressed(3, tick), &[], 9);
        if tick % 997 == 0 {
            one.kill(tick, &mut here);
            other.kill(tick, &mut there);
        }
        assert_eq!(here, there);
    }
}

#[test]
fn nobody_walks_into_another() {
    let rules = rules();
    let mut avatar = before_a_corridor(&rules);
    let other = Position { x: avatar.position.x + 300 * FINE, y: avatar.position.y + 10 * FINE };
    for tick in 0..100 {
        rules.step(tick, &mut avatar, FORWARD, &[other], 1);
        assert!(avatar.position.distance(other) >= 64);
    }
    assert!(avatar.position.distance(other) < 64 + 8, "it came near");
    assert_eq!(avatar.speed, 0, "others can reckon that it stands");
    assert_eq!(rules.extrapolate(&avatar, 50).position, avatar.position);
    rules.step(100, &mut avatar, Controls { back: true, ..STILL }, &[other], 1);
    assert!(avatar.speed < 0, "it can step back");
}

#[test]
fn who_is_too_near_already_can_step_away() {
    let rules = rules();
    let mut avatar = before_a_corridor(&rules);
    let other = Position { x: avatar.position.x - 20 * FINE, y: avatar.position.y };
    rules.step(0, &mut avatar, FORWARD, &[other], 1);
    assert_eq!(avatar.speed, WALK);
}

#[test]
fn the_dead_lie_and_come_back_elsewhere() {
    let rules = rules();
    let mut avatar = before_a_corridor(&rules);
    let (fell, lives) = (avatar.position, avatar.lives);
    rules.kill(1_000, &mut avatar);
    for tick in 1_001..1_000 + RESPAWN {
        rules.step(tick, &mut avatar, Controls { fire: true, ..FORWARD }, &[], 1);
        assert!(!avatar.is_alive() && avatar.position == fell);
        rules.kill(tick, &mut avatar);
    }
    rules.step(1_000 + RESPAWN, &mut avatar, FORWARD, &[], 1);
    assert!(avatar.is_alive() && avatar.lives == lives + 1);
    assert_ne!(avatar.position, fell);
    assert_eq!(avatar.shots.iter().count(), 0, "the dead do not shoot");
}

#[test]
fn nobody_comes_back_beside_another_if_there_is_room() {
    let rules = Rules::new(Maze::new(7, 16));
    let mut near = 0;
    for luck in 0..200 {
        let others: Vec<Position> = (0..8).map(|number| rules.maze.spawn(luck * 8 + number)).collect();
        let avatar = rules.newcomer(&others, luck);
        near += u32::from(others.iter().any(|other| avatar.position.distance(*other) < 1_024));
    }
    assert!(near < 10, "{near} of 200 were near");
}

#[test]
fn shots_take_their_time() {
    let rules = rules();
    let mut avatar = rules.newcomer(&[], 1);
    for tick in 0..=240 {
        rules.step(tick, &mut avatar, Controls { fire: true, ..STILL }, &[], 1);
    }
    let ticks: Vec<u32> = avatar.shots.iter().map(|shot| shot.tick).collect();
    assert_eq!(ticks, [60, 120, 180, 240]);
    assert_eq!(ticks[1] - ticks[0], FIRE_EVERY);
    assert_eq!(avatar.shots.fired(), 5);
}

#[test]
fn a_shot_flies_straight_until_a_wall() {
    let rules = rules();
    let avatar = before_a_corridor(&rules);
    for heading in (0..=u16::MAX).step_by(101) {
        let shot = Shot { number: 1, tick: 50, from: avatar.position, heading };
        assert_eq!(rules.shot_at(&shot, 49), None, "not fired yet");
        assert_eq!(rules.shot_at(&shot, 50), Some(shot.from));
        let end = (51..=201).find(|tick| rules.shot_at(&shot, *tick).is_none()).expect("no shot flies for ever");
        for tick in 51..end {
            let place = rules.shot_at(&shot, tick).expect("it flies");
            assert!(place.distance(shot.from).abs_diff((tick - 50) * 24) <= 1);
            assert!(rules.maze.is_free(place, 0), "in a wall");
        }
        assert!((end..end + 200).all(|tick| rules.shot_at(&shot, tick).is_none()), "what is gone is gone");
        let beyond = shot.from.along(heading, (end as i32 - 50) * 24 * FINE);
        assert!(end == 201 || !rules.maze.see(shot.from, beyond), "there was a wall");
    }
}

#[test]
fn a_shot_meets_whoever_is_on_its_way_and_nobody_else() {
    let rules = rules();
    let avatar = before_a_corridor(&rules);
    let shot = Shot { number: 1, tick: 0, from: avatar.position, heading: 0 };
    let hit = |east: i32, south: i32| {
        let target = Position { x: shot.from.x + east * FINE, y: shot.from.y + south * FINE };
        (0..150).filter(|tick| rules.hits(&shot, *tick, target)).count()
    };
    for east in 50..380 {
        assert!(hit(east, 0) > 0 && hit(east, 39) > 0 && hit(east, -39) > 0, "{east} units ahead");
        assert_eq!(hit(east, 41) + hit(east, -41), 0, "{east} units ahead, beside it");
    }
    assert_eq!(hit(-41, 0), 0, "behind it");
}

#[test]
fn walls_are_cover_also_for_who_leans_on_them() {
    let rules = rules();
    let is_closed = |place: Position| !rules.maze.see(place, place.along(QUARTER, 400 * FINE));
    let position = place_where(&rules, is_closed);
    let mut avatar = Avatar { position, heading: QUARTER, ..rules.newcomer(&[], 1) };
    (0..200).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
    let shot = Shot { number: 1, tick: 0, from: avatar.position.along(QUARTER, -100 * FINE), heading: QUARTER };
    let meets = |target: Position| (0..150).any(|tick| rules.hits(&shot, tick, target));
    assert!(meets(avatar.position), "who stands at the wall is hit");
    let behind = avatar.position.along(QUARTER, 110 * FINE);
    assert!(!meets(behind), "who is behind it is not");
}

#[test]
fn nobody_is_hit_by_the_own_shot() {
    let rules = rules();
    for player in 0..10 {
        let mut avatar = rules.newcomer(&[], player.into());
        for tick in 0..3_000 {
            rules.step(tick, &mut avatar, Controls { fire: true, ..pressed(player, tick) }, &[], player.into());
            assert!(!avatar.shots.iter().any(|shot| rules.hits(shot, tick, avatar.position)));
        }
    }
}
