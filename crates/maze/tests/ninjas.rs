//! Tests of ninjas: they hit each other, explore the maze and find their targets, and their movement can be
//! dead-reckoned.

use coplay::peer_world::{DeadReckoning, EntityId, WorldSiteId};
use coplay_maze::{Avatar, Maze, MazeRules, Ninja, Position, TICKS_PER_SECOND};

/// Ticks between two updates: 25 updates per second.
const UPDATE_INTERVAL: u32 = 4;

/// Game at one site, where every ninja knows all states without delay.
struct LocalGame {
    rules: MazeRules,
    ninjas: Vec<Ninja>,
    avatars: Vec<(EntityId, Avatar)>,
    kills: Vec<u32>,
    deaths: Vec<u32>,
}

impl LocalGame {
    fn new(seed: u64, side: u8, players: u8) -> Self {
        let rules = MazeRules::new(Maze::new(seed, side));
        let id = |index| EntityId { site: WorldSiteId(1), index };
        let avatars = (0..players).map(|index| (id(index), rules.spawn_avatar(&[], index.into())));
        Self {
            avatars: avatars.collect(),
            ninjas: (0..players).map(|index| Ninja::new(seed * 100 + u64::from(index))).collect(),
            kills: vec![0; players.into()],
            deaths: vec![0; players.into()],
            rules,
        }
    }

    fn step(&mut self, tick: u32) {
        let seen = self.avatars.clone();
        for (me, ninja) in self.ninjas.iter_mut().enumerate() {
            let others: Vec<_> = seen.iter().filter(|(id, _)| *id != seen[me].0).cloned().collect();
            let living: Vec<Position> =
                others.iter().filter(|(_, avatar)| avatar.is_alive()).map(|(_, avatar)| avatar.position).collect();
            let controls = ninja.choose_controls(tick, &self.rules, &seen[me].1, &others);
            self.rules.step(tick, &mut self.avatars[me].1, controls, &living, me as u64);
        }
        self.resolve_hits(tick);
    }

    fn resolve_hits(&mut self, tick: u32) {
        for victim in 0..self.avatars.len() {
            let avatar = &self.avatars[victim].1;
            let hits = |killer: &usize| {
                let mut shots = self.avatars[*killer].1.shots.iter();
                *killer != victim && shots.any(|shot| self.rules.shot_hits(shot, tick, avatar.position))
            };
            if let Some(killer) = (0..self.avatars.len()).find(hits).filter(|_| avatar.is_alive()) {
                self.kills[killer] += 1;
                self.deaths[victim] += 1;
                self.rules.kill(tick, &mut self.avatars[victim].1);
            }
        }
    }
}

#[test]
fn ninjas_hit_each_other_and_can_be_dead_reckoned() {
    let mut game = LocalGame::new(7, 12, 8);
    let minutes = 5;
    let (mut updates, mut predicted, mut walked, mut sent) = (0, 0, 0, 0);
    let mut before = game.avatars.clone();
    let mut known: Vec<_> = game.avatars.iter().map(|(_, avatar)| (0, avatar.clone())).collect();
    for tick in 0..minutes * 60 * TICKS_PER_SECOND {
        game.step(tick);
        if tick % UPDATE_INTERVAL == 0 {
            for ((_, last), (_, now)) in before.iter().zip(&game.avatars).filter(|((_, last), _)| last.is_alive()) {
                updates += 1;
                predicted += u32::from(game.rules.extrapolate(last, UPDATE_INTERVAL).position == now.position);
                walked += u32::from(last.position != now.position);
            }
            before.clone_from(&game.avatars);
            // A site that extrapolates its own avatar as its peers do sends only what they would not predict.
            for ((since, known), (_, now)) in known.iter_mut().zip(&game.avatars) {
                if game.rules.distance(&game.rules.extrapolate(known, tick - *since), now) > 16 {
                    (*since, *known) = (tick, now.clone());
                    sent += 1;
                }
            }
        }
    }
    let kills: u32 = game.kills.iter().sum();
    assert!((100..=600).contains(&kills), "{kills} kills in {minutes} minutes");
    assert!(game.kills.iter().all(|kills| *kills > 5), "a ninja kills too rarely: {:?}", game.kills);
    assert!(game.deaths.iter().all(|deaths| *deaths > 5), "a ninja dies too rarely: {:?}", game.deaths);
    assert!(predicted * 10 > updates * 7, "only {predicted} of {updates} updates were predicted");
    assert!(sent * 3 < updates, "{sent} of {updates} updates had to be sent");
    assert!(walked * 10 > updates * 5, "the ninjas moved in only {walked} of {updates} updates");
}

#[test]
fn equal_seeds_give_equal_games() {
    let [mut one, mut other] = [LocalGame::new(3, 8, 4), LocalGame::new(3, 8, 4)];
    for tick in 0..6_000 {
        one.step(tick);
        other.step(tick);
    }
    assert_eq!(one.avatars, other.avatars);
    assert_ne!(one.kills.iter().sum::<u32>(), 0);
}

#[test]
fn lone_ninja_explores_the_maze() {
    let mut game = LocalGame::new(5, 10, 1);
    let corner = game.rules.maze.corner();
    let mut cells = std::collections::BTreeSet::new();
    for tick in 0..3 * 60 * TICKS_PER_SECOND {
        game.step(tick);
        let Position { x, y } = game.avatars[0].1.position;
        cells.insert(((x - corner.x) / (512 * 256), (y - corner.y) / (512 * 256)));
    }
    assert!(cells.len() > 60, "{} of 100 cells", cells.len());
}

#[test]
fn ninja_finds_its_target_in_the_largest_maze() {
    let mut game = LocalGame::new(9, 128, 2);
    let far = game.rules.maze.spawn_point(4);
    game.avatars[0].1.position = far;
    let mut points = (0..10_000).map(|number| game.rules.maze.spawn_point(number));
    let near = points.find(|point| (2_000..4_000).contains(&point.distance(far)));
    game.avatars[1].1.position = near.expect("a spawn point is in the neighbourhood");
    let met = (0..120 * TICKS_PER_SECOND).any(|tick| {
        game.step(tick);
        game.kills.iter().sum::<u32>() > 0
    });
    assert!(met, "no kill within two minutes");
}
