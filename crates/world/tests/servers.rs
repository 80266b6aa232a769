//! Tests of several servers and their players in virtual time: a crash and restart, a partition, a drained server, a
//! restart of the whole world, and players that move between servers or leave.

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{DEFAULT_GIT, DropPolicy, MirrorConfig, MirrorDestination, SourceId};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Jitter, Link, LinkConfig, Loss};
use coplay_maze::{Avatar, Controls, MazeSettings, Ninja, Score};
use coplay_world::{
    Client, EntityRecord, EntityStore, Server, ServerMessage, ServerSelector, ninja_entity, player_entity,
};

const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// Servers, players, and links between all of them.
struct SimulatedWorld {
    now: Instant,
    settings: MazeSettings,
    ninja_count: u8,
    policy: DropPolicy,
    /// Run number and server at each index; no server while it is stopped.
    servers: Vec<(u32, Option<Server>)>,
    players: Vec<SimulatedPlayer>,
    links: BTreeMap<(usize, usize), Link>,
    queue: TimedEventQueue<(usize, usize, SourceId, Vec<u8>)>,
    link: LinkConfig,
    player_link: LinkConfig,
    seed: u64,
}

/// Bot that plays over the network. Link endpoints of players come after those of servers.
struct SimulatedPlayer {
    entity: EntityId,
    client: Client,
    selector: ServerSelector<usize>,
    ninja: Ninja,
    is_playing: bool,
    /// Last acknowledged score, which the client lowers only after a reported loss.
    acknowledged: Score,
    /// Loss of score that the client reported.
    rollback: Option<coplay_world::ScoreLoss>,
}

impl SimulatedWorld {
    fn new(seed: u64, servers: usize, players: usize, ninja_count: u8) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let lossy = LinkConfig {
            jitter: Jitter::Uniform(TimeDelta::from_millis(5)),
            reorder: true,
            loss: Loss::Independent(0.02),
            ..LinkConfig::constant_rtt(TimeDelta::from_millis(40))
        };
        let mut world = Self {
            now,
            settings: MazeSettings { cells_per_side: 6, seed, ..MazeSettings::default() },
            ninja_count,
            policy: DropPolicy::Adaptive { threshold: DEFAULT_GIT },
            servers: (0..servers).map(|_| (0, None)).collect(),
            players: vec![],
            links: BTreeMap::new(),
            queue: TimedEventQueue::new(),
            link: lossy.clone(),
            player_link: lossy,
            seed,
        };
        (0..servers).for_each(|index| world.start(index));
        // Players that joined at once would find only the first server open.
        world.run(2_000);
        let now = world.now;
        let player = |number: usize| {
            let mut selector = ServerSelector::new(now);
            (0..servers).for_each(|server| selector.add_server(server));
            SimulatedPlayer {
                entity: player_entity(&[number as u8; 32]),
                client: Client::new(now, &format!("player {number}"), number as u32),
                selector,
                ninja: Ninja::new(seed ^ number as u64),
                is_playing: true,
                acknowledged: Score::default(),
                rollback: None,
            }
        };
        world.players = (0..players).map(player).collect();
        world
    }

    fn start(&mut self, index: usize) {
        let (run, server) = &mut self.servers[index];
        *run += 1;
        let source = SourceId(index as u32 * 100 + *run);
        let config =
            MirrorConfig { is_founder: index == 0 && *run == 1, policy: self.policy, ..MirrorConfig::new(source) };
        let started = Server::new(self.now, config, self.settings, self.ninja_count).expect("the settings are valid");
        *server = Some(started);
        self.connect_servers();
    }

    /// Makes all servers known to each other.
    fn connect_servers(&mut self) {
        let now = self.now;
        let all: Vec<SourceId> = self.servers.iter().flat_map(|(_, server)| server).map(Server::source).collect();
        for server in self.servers.iter_mut().filter_map(|(_, server)| server.as_mut()) {
            // A server ignores itself as a peer.
            all.iter().for_each(|other| server.add_peer(now, *other));
        }
    }

    fn kill(&mut self, index: usize) {
        self.servers[index].1 = None;
    }

    fn server(&self, index: usize) -> &Server {
        self.servers[index].1.as_ref().expect("the server runs")
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let config = if from.max(to) < self.servers.len() { &self.link } else { &self.player_link };
        let seed = self.seed;
        self.links.entry((from, to)).or_insert_with(|| Link::new(config.clone(), seed, &format!("{from} to {to}")))
    }

    fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    fn send(&mut self, from: usize, to: usize, source: SourceId, bytes: &[u8]) {
        let now = self.now;
        for at in self.link(from, to).send(now, bytes.len()) {
            self.queue.push(at, (from, to, source, bytes.to_vec()));
        }
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis {
            self.now += MILLI;
            while self.queue.next_time().is_some_and(|at| at <= self.now) {
                let (_, (from, to, source, bytes)) = self.queue.pop().expect("the queue is not empty");
                if self.link(from, to).admit_arrival() {
                    self.deliver(from, to, source, &bytes);
                }
            }
            (0..self.servers.len()).for_each(|index| self.run_server(index));
            (0..self.players.len()).for_each(|number| self.run_player(number));
        }
    }

    fn deliver(&mut self, from: usize, to: usize, source: SourceId, bytes: &[u8]) {
        let (now, servers) = (self.now, self.servers.len());
        if to >= servers {
            let player = &mut self.players[to - servers];
            match ServerMessage::from_bytes(bytes) {
                Some(ServerMessage::Pong(pong)) => player.selector.on_pong(now, from, &pong),
                Some(message) if player.selector.current() == Some(from) => {
                    _ = player.client.handle_message(now, message);
                }
                _ => {}
            }
            return;
        }
        let Some(server) = self.servers[to].1.as_mut() else { return };
        if from < servers {
            server.handle_mirror(now, source, bytes);
        } else if let Some(answer) = server.handle_player(now, self.players[from - servers].entity, bytes) {
            self.send(to, from, source, &answer);
        }
    }

    fn run_server(&mut self, index: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        let Some(mut server) = self.servers[index].1.take() else { return };
        server.advance(now);
        while let Some(transmit) = server.poll_mirror(now, &mut buf) {
            for other in (0..self.servers.len()).filter(|other| *other != index) {
                let is_addressed = match (transmit.to, &self.servers[other].1) {
                    (MirrorDestination::One(source), Some(other)) => other.source() == source,
                    (MirrorDestination::All, _) => true,
                    (MirrorDestination::One(_), None) => false,
                };
                if is_addressed {
                    self.send(index, other, server.source(), &buf[..transmit.len]);
                }
            }
        }
        for (entity, bytes) in server.poll_players(now, |_| &[]) {
            let number = self.players.iter().position(|player| player.entity == entity).expect("the player exists");
            let to = self.servers.len() + number;
            self.send(index, to, server.source(), &bytes);
        }
        self.servers[index].1 = Some(server);
    }

    fn run_player(&mut self, number: usize) {
        let (now, from) = (self.now, self.servers.len() + number);
        let player = &mut self.players[number];
        player.client.advance(now);
        player.update_controls(now);
        let score = player.client.score();
        player.rollback = player.client.poll_score_rollback().or(player.rollback);
        assert!(
            player.rollback.is_some()
                || score.hits >= player.acknowledged.hits && score.falls >= player.acknowledged.falls
        );
        player.acknowledged = score;
        let pings = player.selector.poll_pings(now);
        if player.selector.select(now, player.client.last_received(), player.client.is_draining()).is_some() {
            player.client.on_server_change(now);
        }
        let input = player.client.poll_input(now).zip(player.selector.current()).filter(|_| player.is_playing);
        if let Some((servers, ping)) = pings {
            servers.into_iter().for_each(|to| self.send(from, to, SourceId(0), &ping));
        }
        if let Some((bytes, to)) = input {
            self.send(from, to, SourceId(0), &bytes);
        }
    }

    /// Stops all players and lets all datagrams arrive. Asserts that no player is left in the world.
    fn stop_players_and_settle(&mut self) {
        self.players.iter_mut().for_each(|player| player.is_playing = false);
        self.run(9_000);
        for server in self.servers.iter().filter_map(|(_, server)| server.as_ref()) {
            for player in &self.players {
                let placement = server.world().entities().get(player.entity).and_then(EntityRecord::placement);
                assert!(
                    placement.is_some_and(|placement| placement.avatar.is_none()),
                    "a departed player is present: {placement:?}"
                );
                assert!(server.world().avatars().get(player.entity).is_none());
            }
        }
    }

    /// Asserts that all servers know the same state of all players, and the same owners of the ninjas, which go on
    /// playing.
    fn assert_equal(&self) {
        let servers = || self.servers.iter().filter_map(|(_, server)| server.as_ref());
        let first = servers().next().expect("a server runs");
        let ninjas: Vec<EntityId> = (0..self.ninja_count).map(ninja_entity).collect();
        for other in servers() {
            let (ours, theirs) = (first.world().entities(), other.world().entities());
            let players = |store: &EntityStore| -> Vec<(EntityId, EntityRecord)> {
                let players = store.iter().filter(|(entity, _)| !ninjas.contains(entity));
                players.map(|(entity, record)| (entity, record.clone())).collect()
            };
            assert!(players(ours) == players(theirs), "{ours:#?}\n\n{theirs:#?}");
            assert!(players(ours).len() == self.players.len() && ours.len() == theirs.len());
            for ninja in &ninjas {
                let ownership = |store: &EntityStore| store.get(*ninja).and_then(EntityRecord::ownership);
                assert_eq!(ownership(ours), ownership(theirs), "{ninja:?}");
            }
        }
    }

    fn assert_nothing_lost(&self) {
        assert!(self.players.iter().all(|player| player.rollback.is_none()));
        let servers = self.servers.iter().filter_map(|(_, server)| server.as_ref());
        for server in servers {
            for player in &self.players {
                let (known, acknowledged) = (server.world().entities().score(player.entity), player.acknowledged);
                assert!(
                    known.hits >= acknowledged.hits && known.falls >= acknowledged.falls,
                    "{:?}: {known:?}, but {acknowledged:?} was acknowledged",
                    player.entity
                );
            }
        }
    }

    fn total_hits(&self) -> u32 {
        self.players.iter().map(|player| player.acknowledged.hits).sum()
    }
}

impl SimulatedPlayer {
    fn update_controls(&mut self, now: Instant) {
        let (Some(rules), Some(me), Some(tick)) = (self.client.rules(), self.client.avatar(), self.client.tick(now))
        else {
            return;
        };
        let others: Vec<(EntityId, Avatar)> =
            self.client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
        let controls =
            if self.is_playing { self.ninja.choose_controls(tick, rules, me, &others) } else { Controls::default() };
        self.client.set_controls(now, controls);
    }
}

#[test]
fn all_servers_converge_to_one_world() {
    let mut world = SimulatedWorld::new(1, 3, 9, 0);
    world.run(20_000);
    assert!(world.players.iter().all(|player| player.client.avatar().is_some()), "a player has no avatar");
    assert!(world.total_hits() > 5, "only {} hits", world.total_hits());
    world.stop_players_and_settle();
    world.assert_equal();
    world.assert_nothing_lost();
    let late = (0..3).map(|index| world.server(index).stats().over_threshold).sum::<u64>();
    let all = (0..3).map(|index| world.server(index).stats().remote_delivered()).sum::<u64>();
    assert!(late * 20 < all, "{late} of {all} events were late");
}

#[test]
fn crashed_server_is_survived_and_catches_up_after_restart() {
    let mut world = SimulatedWorld::new(2, 3, 9, 0);
    world.run(12_000);
    let before = world.total_hits();
    let moved: Vec<usize> = (0..9).filter(|number| world.players[*number].selector.current() == Some(1)).collect();
    assert!(!moved.is_empty(), "no player is on server 1");
    world.kill(1);
    world.run(4_000);
    for number in &moved {
        let player = &world.players[*number];
        assert!(
            player.selector.current() != Some(1)
                && world.now - player.client.last_received() < TimeDelta::from_millis(500)
        );
    }
    world.run(6_000);
    world.start(1);
    world.run(12_000);
    assert!(world.server(1).is_open(world.now));
    assert!(world.total_hits() > before, "the game does not go on");
    world.stop_players_and_settle();
    world.assert_equal();
    world.assert_nothing_lost();
}

#[test]
fn world_restart_is_reported_and_scores_agree() {
    let mut world = SimulatedWorld::new(2, 2, 1, 3);
    world.run(30_000);
    let (old, entity) = (world.players[0].acknowledged, world.players[0].entity);
    assert!(old.hits + old.falls > 0, "{old:?}");
    let other = 1 - world.players[0].selector.current().expect("the player has a server");
    (0..2).for_each(|index| world.kill(index));
    world.run(1_000);
    world.start(other);
    world.run(15_000);
    let player = &world.players[0];
    assert_eq!(
        (player.selector.current(), player.rollback),
        (Some(other), Some(coplay_world::ScoreLoss::WorldRestarted))
    );
    let known = world.server(other).world().replicated_score(entity);
    assert!(known.hits + known.falls < old.hits + old.falls, "{known:?} after {old:?}");
    let row = player.client.scoreboard().find(|(row, ..)| *row == entity).map(|(.., score)| score);
    assert_eq!((player.client.score(), player.client.reported_score(), row), (known, known, Some(known)));
}

#[test]
fn healed_partition_converges_to_one_world() {
    let mut world = SimulatedWorld::new(3, 3, 8, 2);
    world.run(8_000);
    for (one, other) in [(0, 2), (1, 2)] {
        world.set_cut(one, other, true);
    }
    world.run(12_000);
    let ownership =
        |index: usize| world.server(index).world().entities().get(ninja_entity(0)).and_then(EntityRecord::ownership);
    let owners = [0, 2].map(|index| ownership(index).map(|ownership| ownership.owner));
    assert_ne!(owners[0], owners[1], "the two sides of the partition do not both own the ninja");
    for (one, other) in [(0, 2), (1, 2)] {
        world.set_cut(one, other, false);
    }
    world.run(5_000);
    let owner_count: usize = (0..3).filter(|index| owns(world.server(*index), ninja_entity(0))).count();
    assert_eq!(owner_count, 1, "the ninja has not exactly one owner");
    world.stop_players_and_settle();
    world.assert_equal();
    world.assert_nothing_lost();
    assert!(world.server(0).world().entities().iter().any(|(_, record)| record.score().hits > 0));
}

fn owns(server: &Server, entity: EntityId) -> bool {
    let ownership = server.world().entities().get(entity).and_then(EntityRecord::ownership);
    ownership.is_some_and(|ownership| ownership.owner == server.source())
}

/// A player on a far server moves once to a nearer server that it learns of later, and keeps its avatar.
#[test]
fn player_moves_to_the_nearest_server_with_its_avatar() {
    let mut world = SimulatedWorld::new(5, 2, 1, 0);
    for (server, rtt) in [(0, 160), (1, 20)] {
        let link = LinkConfig { jitter: Jitter::Uniform(MILLI * 4), ..LinkConfig::constant_rtt(MILLI * rtt) };
        for (from, to) in [(2, server), (server, 2)] {
            world.links.insert((from, to), Link::new(link.clone(), 5, &format!("{from} to {to}")));
        }
    }
    world.players[0].selector = ServerSelector::new(world.now);
    world.players[0].selector.add_server(0);
    world.run(3_000);
    let entity = world.players[0].entity;
    let spawn_count = |world: &SimulatedWorld, index: usize| {
        world.server(index).world().avatars().get(entity).map(|avatar| avatar.spawn_count)
    };
    let before = spawn_count(&world, 0).expect("the player has an avatar");
    world.players[0].selector.add_server(1);
    let mut last = world.players[0].client.avatar().expect("the player has an avatar").position;
    for _ in 0..3_000 {
        world.run(10);
        let position = world.players[0].client.avatar().expect("the player keeps its avatar").position;
        assert!(position.distance(last) <= 40, "moved {} units in 10 ms", position.distance(last));
        last = position;
    }
    let player = &world.players[0];
    assert_eq!((player.selector.current(), player.selector.moves()), (Some(1), 1));
    assert!(owns(world.server(1), entity) && world.server(0).world().players().count() == 0);
    assert_eq!((spawn_count(&world, 0), spawn_count(&world, 1)), (Some(before), Some(before)));
    assert!(player.client.rtt().is_some_and(|rtt| rtt < MILLI * 40));
    world.stop_players_and_settle();
    world.assert_equal();
}

#[test]
fn leaving_player_disappears_on_all_servers_at_once() {
    let mut world = SimulatedWorld::new(6, 2, 2, 0);
    world.run(5_000);
    let current = world.players[0].selector.current().expect("the player has a server");
    let entity = world.players[0].entity;
    world.players[0].is_playing = false;
    let goodbye = world.players[0].client.leave_message();
    (0..3).for_each(|_| world.send(2, current, SourceId(0), &goodbye));
    world.run(300);
    assert!((0..2).all(|index| world.server(index).world().avatars().get(entity).is_none()));
    assert!((0..2).all(|index| world.server(index).world().avatars().get(world.players[1].entity).is_some()));
}

#[test]
fn drained_server_hands_over_its_players_without_loss() {
    let mut world = SimulatedWorld::new(4, 2, 6, 0);
    world.run(10_000);
    let drained = world.players[0].selector.current().expect("the player has a server");
    world.servers[drained].1.as_mut().expect("the server runs").world_mut().drain();
    world.run(4_000);
    assert!(world.players.iter().all(|player| player.selector.current() != Some(drained)));
    assert_eq!(world.server(drained).world().players().count(), 0);
    assert!(world.server(drained).is_fully_replicated());
    world.kill(drained);
    world.stop_players_and_settle();
    world.assert_nothing_lost();
}
