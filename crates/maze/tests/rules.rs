//! Tests of the rules of avatars and shots: walking, walls, collisions, respawns, shots and hits.

use coplay::peer_world::DeadReckoning;
use coplay_maze::angle::{QUARTER_TURN, degrees};
use coplay_maze::{
    AVATAR_RADIUS, Avatar, Controls, FIRE_INTERVAL, Maze, MazeRules, Position, RESPAWN_TICKS, Shot, TURN_RATE, UNIT,
    WALK_SPEED,
};

const FORWARD: Controls = Controls { forward: true, backward: false, left: false, right: false, fire: false };
const STILL: Controls = Controls { forward: false, ..FORWARD };

fn rules() -> MazeRules {
    MazeRules::new(Maze::new(7, 8))
}

/// Hashes a number to a pseudo-random one.
fn scramble(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x45d9_f3b5).wrapping_add(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    mixed ^ mixed >> 14
}

/// Returns pseudo-random buttons of a player, which change every 20 ticks.
fn random_controls(player: u32, tick: u32) -> Controls {
    let bits = scramble(player * 1_000_000 + tick / 20);
    let bit = |at: u32| bits >> at & 1 == 1;
    Controls { forward: bit(0) || bit(1), backward: bit(2) && bit(3), left: bit(4), right: bit(5), fire: bit(6) }
}

/// Returns the first of 1,000 spawn points that satisfies a condition.
fn spawn_point_where(rules: &MazeRules, holds: impl Fn(Position) -> bool) -> Position {
    let mut points = (0..1_000).map(|number| rules.maze.spawn_point(number));
    points.find(|position| holds(*position)).expect("a spawn point satisfies the condition")
}

/// Returns an avatar that looks east along 400 units of free corridor.
fn avatar_facing_corridor(rules: &MazeRules) -> Avatar {
    let is_open = |position: Position| rules.maze.has_line_of_sight(position, position.moved_along(0, 400 * UNIT));
    Avatar { position: spawn_point_where(rules, is_open), heading: 0, ..rules.spawn_avatar(&[], 1) }
}

#[test]
fn avatar_walks_32_units_in_40_ms() {
    let rules = rules();
    let start = avatar_facing_corridor(&rules);
    let mut avatar = start.clone();
    for tick in 0..40 {
        rules.step(tick, &mut avatar, FORWARD, &[], 1);
        assert_eq!(avatar.position.x - start.position.x, (tick as i32 + 1) * 8 * UNIT);
        assert_eq!(avatar.position.y, start.position.y);
    }
    // Along other headings the distance is exact to a fiftieth of a unit.
    for heading in (0..=u16::MAX).step_by(13) {
        let mut avatar = Avatar { heading, position: rules.maze.spawn_point(5), ..start.clone() };
        let before = avatar.position;
        (0..4).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
        let (x, y) = (f64::from(avatar.position.x - before.x), f64::from(avatar.position.y - before.y));
        assert!((x.hypot(y) - 32.0 * 256.0).abs() < 256.0 / 50.0, "heading {heading}");
    }
}

#[test]
fn turning_while_walking_follows_a_circle() {
    let rules = rules();
    let mut avatar = rules.spawn_avatar(&[], 1);
    let ticks = 65_536 / TURN_RATE as u32;
    let before = avatar.heading;
    for tick in 0..ticks {
        rules.step(tick, &mut avatar, Controls { right: true, ..STILL }, &[], 1);
    }
    let turned = avatar.heading.wrapping_sub(before);
    assert!(turned.min(turned.wrapping_neg()) < TURN_RATE as u16, "a full turn takes {ticks} ticks");

    // All positions must be on the same circle. Its radius is 261 units, so a corridor has room for a quarter of it.
    let start = avatar_facing_corridor(&rules);
    let mut avatar = start.clone();
    let mut positions = Vec::new();
    for tick in 0..20 {
        rules.step(tick, &mut avatar, Controls { left: true, ..FORWARD }, &[], 1);
        positions.push((f64::from(avatar.position.x) / 256.0, f64::from(avatar.position.y) / 256.0));
    }
    let middle = (f64::from(start.position.x) / 256.0, f64::from(start.position.y) / 256.0 - 260.8);
    for (x, y) in positions {
        assert!(((x - middle.0).hypot(y - middle.1) - 260.8).abs() < 5.0, "{x}, {y}");
    }
}

#[test]
fn avatars_never_enter_walls() {
    let rules = rules();
    let mut distance = 0;
    for player in 0..20 {
        let mut avatar = rules.spawn_avatar(&[], player.into());
        for tick in 0..20_000 {
            let before = avatar.position;
            rules.step(tick, &mut avatar, random_controls(player, tick), &[], player.into());
            assert!(rules.maze.is_free(avatar.position, AVATAR_RADIUS), "player {player}, tick {tick}");
            distance += u64::from(before.distance(avatar.position));
        }
    }
    assert!(distance > 20 * 20_000 * 2, "the avatars walked only {distance} units");
}

#[test]
fn avatar_slides_along_walls() {
    let rules = rules();
    let mut avatar = avatar_facing_corridor(&rules);
    avatar.heading = degrees(60);
    let start = avatar.position;
    (0..150).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
    let east = (avatar.position.x - start.x) / UNIT;
    assert!(east > 300, "{east} units east");
}

#[test]
fn equal_inputs_give_equal_states() {
    let [one, other] = [rules(), rules()];
    let (mut one_avatar, mut other_avatar) = (one.spawn_avatar(&[], 9), other.spawn_avatar(&[], 9));
    for tick in 0..5_000 {
        one.step(tick, &mut one_avatar, random_controls(3, tick), &[], 9);
        other.step(tick, &mut other_avatar, random_controls(3, tick), &[], 9);
        if tick % 997 == 0 {
            one.kill(tick, &mut one_avatar);
            other.kill(tick, &mut other_avatar);
        }
        assert_eq!(one_avatar, other_avatar);
    }
}

#[test]
fn avatars_do_not_walk_into_each_other() {
    let rules = rules();
    let mut avatar = avatar_facing_corridor(&rules);
    let other = Position { x: avatar.position.x + 300 * UNIT, y: avatar.position.y + 10 * UNIT };
    for tick in 0..100 {
        rules.step(tick, &mut avatar, FORWARD, &[other], 1);
        assert!(avatar.position.distance(other) >= 64);
    }
    assert!(avatar.position.distance(other) < 64 + 8, "the avatar stopped too early");
    assert_eq!(avatar.speed, 0, "the stopped avatar is extrapolated as walking");
    assert_eq!(rules.extrapolate(&avatar, 50).position, avatar.position);
    rules.step(100, &mut avatar, Controls { backward: true, ..STILL }, &[other], 1);
    assert!(avatar.speed < 0, "the avatar cannot step back");
}

#[test]
fn overlapping_avatar_can_step_away() {
    let rules = rules();
    let mut avatar = avatar_facing_corridor(&rules);
    let other = Position { x: avatar.position.x - 20 * UNIT, y: avatar.position.y };
    rules.step(0, &mut avatar, FORWARD, &[other], 1);
    assert_eq!(avatar.speed, WALK_SPEED);
}

#[test]
fn dead_avatar_respawns_elsewhere() {
    let rules = rules();
    let mut avatar = avatar_facing_corridor(&rules);
    let (fell_at, spawn_count) = (avatar.position, avatar.spawn_count);
    rules.kill(1_000, &mut avatar);
    for tick in 1_001..1_000 + RESPAWN_TICKS {
        rules.step(tick, &mut avatar, Controls { fire: true, ..FORWARD }, &[], 1);
        assert!(!avatar.is_alive() && avatar.position == fell_at);
        rules.kill(tick, &mut avatar);
    }
    rules.step(1_000 + RESPAWN_TICKS, &mut avatar, FORWARD, &[], 1);
    assert!(avatar.is_alive() && avatar.spawn_count == spawn_count + 1);
    assert_ne!(avatar.position, fell_at);
    assert_eq!(avatar.shots.iter().count(), 0, "a dead avatar shot");
}

#[test]
fn respawn_keeps_clear_of_other_avatars() {
    let rules = MazeRules::new(Maze::new(7, 16));
    let mut near = 0;
    for spawn_seed in 0..200 {
        let others: Vec<Position> = (0..8).map(|number| rules.maze.spawn_point(spawn_seed * 8 + number)).collect();
        let avatar = rules.spawn_avatar(&others, spawn_seed);
        near += u32::from(others.iter().any(|other| avatar.position.distance(*other) < 1_024));
    }
    assert!(near < 10, "{near} of 200 avatars spawned near others");
}

#[test]
fn fire_rate_is_limited() {
    let rules = rules();
    let mut avatar = rules.spawn_avatar(&[], 1);
    for tick in 0..=240 {
        rules.step(tick, &mut avatar, Controls { fire: true, ..STILL }, &[], 1);
    }
    let ticks: Vec<u32> = avatar.shots.iter().map(|shot| shot.tick).collect();
    assert_eq!(ticks, [60, 120, 180, 240]);
    assert_eq!(ticks[1] - ticks[0], FIRE_INTERVAL);
    assert_eq!(avatar.shots.last_number(), 5);
}

#[test]
fn shot_flies_straight_until_it_meets_a_wall() {
    let rules = rules();
    let avatar = avatar_facing_corridor(&rules);
    for heading in (0..=u16::MAX).step_by(101) {
        let shot = Shot { number: 1, tick: 50, origin: avatar.position, heading };
        assert_eq!(rules.shot_position(&shot, 49), None, "the shot flies before it is fired");
        assert_eq!(rules.shot_position(&shot, 50), Some(shot.origin));
        let end = (51..=201).find(|tick| rules.shot_position(&shot, *tick).is_none()).expect("every shot ends");
        for tick in 51..end {
            let position = rules.shot_position(&shot, tick).expect("the shot is in flight");
            assert!(position.distance(shot.origin).abs_diff((tick - 50) * 24) <= 1);
            assert!(rules.maze.is_free(position, 0), "the shot is in a wall");
        }
        assert!((end..end + 200).all(|tick| rules.shot_position(&shot, tick).is_none()), "an ended shot reappears");
        let beyond = shot.origin.moved_along(heading, (end as i32 - 50) * 24 * UNIT);
        assert!(end == 201 || !rules.maze.has_line_of_sight(shot.origin, beyond), "the shot ended without a wall");
    }
}

#[test]
fn shot_hits_exactly_the_avatars_in_its_path() {
    let rules = rules();
    let avatar = avatar_facing_corridor(&rules);
    let shot = Shot { number: 1, tick: 0, origin: avatar.position, heading: 0 };
    let hit = |east: i32, south: i32| {
        let target = Position { x: shot.origin.x + east * UNIT, y: shot.origin.y + south * UNIT };
        (0..150).filter(|tick| rules.shot_hits(&shot, *tick, target)).count()
    };
    for east in 50..380 {
        assert!(hit(east, 0) > 0 && hit(east, 39) > 0 && hit(east, -39) > 0, "missed a target {east} units ahead");
        assert_eq!(hit(east, 41) + hit(east, -41), 0, "hit a target {east} units ahead beside the path");
    }
    assert_eq!(hit(-41, 0), 0, "hit a target behind the origin");
}

#[test]
fn walls_stop_shots() {
    let rules = rules();
    let is_closed =
        |position: Position| !rules.maze.has_line_of_sight(position, position.moved_along(QUARTER_TURN, 400 * UNIT));
    let position = spawn_point_where(&rules, is_closed);
    let mut avatar = Avatar { position, heading: QUARTER_TURN, ..rules.spawn_avatar(&[], 1) };
    (0..200).for_each(|tick| rules.step(tick, &mut avatar, FORWARD, &[], 1));
    let shot = Shot {
        number: 1,
        tick: 0,
        origin: avatar.position.moved_along(QUARTER_TURN, -100 * UNIT),
        heading: QUARTER_TURN,
    };
    let hits = |target: Position| (0..150).any(|tick| rules.shot_hits(&shot, tick, target));
    assert!(hits(avatar.position), "an avatar in front of the wall is not hit");
    let behind = avatar.position.moved_along(QUARTER_TURN, 110 * UNIT);
    assert!(!hits(behind), "an avatar behind the wall is hit");
}

#[test]
fn avatar_is_not_hit_by_its_own_shot() {
    let rules = rules();
    for player in 0..10 {
        let mut avatar = rules.spawn_avatar(&[], player.into());
        for tick in 0..3_000 {
            rules.step(tick, &mut avatar, Controls { fire: true, ..random_controls(player, tick) }, &[], player.into());
            assert!(!avatar.shots.iter().any(|shot| rules.shot_hits(shot, tick, avatar.position)));
        }
    }
}
