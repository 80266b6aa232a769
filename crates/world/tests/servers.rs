//! Several servers and their players in virtual time: whatever dies, comes back or is cut off, nobody loses what was acknowledged, and
//! all servers end with the same world.

use std::collections::BTreeMap;

use coplay::mirror::{DEFAULT_GIT, DropPolicy, MirrorConfig, MirrorDestination, SourceId};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{Avatar, Controls, MazeSettings, Ninja, Score};
use coplay_sim::event_queue::EventQueue;
use coplay_sim::link::{Jitter, Link, LinkConfig, Loss};
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
    /// Who runs at each place, in the how manieth run.
    servers: Vec<(u32, Option<Server>)>,
    players: Vec<SimulatedPlayer>,
    links: BTreeMap<(usize, usize), Link>,
    queue: EventQueue<(usize, usize, SourceId, Vec<u8>)>,
    link: LinkConfig,
    player_link: LinkConfig,
    seed: u64,
}

/// Software that plays over the network. Places of guests come after those of servers.
struct SimulatedPlayer {
    entity: EntityId,
    client: Client,
    selector: ServerSelector<usize>,
    ninja: Ninja,
    is_playing: bool,
    /// The best score that was acknowledged.
    acknowledged: Score,
    /// What it was told that is gone.
    rollback: Option<coplay_world::ScoreRollback>,
}

impl SimulatedWorld {
    fn new(seed: u64, servers: usize, guests: usize, ninjas: u8) -> Self {
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
            ninja_count: ninjas,
            policy: DropPolicy::Adaptive { threshold: DEFAULT_GIT },
            servers: (0..servers).map(|_| (0, None)).collect(),
            players: vec![],
            links: BTreeMap::new(),
            queue: EventQueue::new(),
            link: lossy.clone(),
            player_link: lossy,
            seed,
        };
        (0..servers).for_each(|place| world.start(place));
        // Those who come at once find only the first one open.
        world.run(2_000);
        let now = world.now;
        let guest = |number: usize| {
            let mut voyage = ServerSelector::new(now);
            (0..servers).for_each(|server| voyage.add_server(server));
            SimulatedPlayer {
                entity: player_entity(&[number as u8; 32]),
                client: Client::new(now, &format!("player {number}"), number as u32),
                selector: voyage,
                ninja: Ninja::new(seed ^ number as u64),
                is_playing: true,
                acknowledged: Score::default(),
                rollback: None,
            }
        };
        world.players = (0..guests).map(guest).collect();
        world
    }

    fn start(&mut self, place: usize) {
        let (run, server) = &mut self.servers[place];
        *run += 1;
        let source = SourceId(place as u32 * 100 + *run);
        let config =
            MirrorConfig { is_founder: place == 0 && *run == 1, policy: self.policy, ..MirrorConfig::new(source) };
        let begun = Server::new(self.now, config, self.settings, self.ninja_count).expect("a server can be like that");
        *server = Some(begun);
        self.connect_servers();
    }

    /// Everybody knows of everybody.
    fn connect_servers(&mut self) {
        let now = self.now;
        let all: Vec<SourceId> = self.servers.iter().flat_map(|(_, server)| server).map(Server::source).collect();
        for server in self.servers.iter_mut().filter_map(|(_, server)| server.as_mut()) {
            // Nobody is a peer of itself.
            all.iter().for_each(|other| server.add_peer(now, *other));
        }
    }

    fn kill(&mut self, place: usize) {
        self.servers[place].1 = None;
    }

    fn server(&self, place: usize) -> &Server {
        self.servers[place].1.as_ref().expect("it runs")
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
                let (_, (from, to, source, bytes)) = self.queue.pop().expect("there is one");
                if self.link(from, to).admit_arrival() {
                    self.deliver(from, to, source, &bytes);
                }
            }
            (0..self.servers.len()).for_each(|place| self.run_server(place));
            (0..self.players.len()).for_each(|number| self.run_player(number));
        }
    }

    fn deliver(&mut self, from: usize, to: usize, source: SourceId, bytes: &[u8]) {
        let (now, servers) = (self.now, self.servers.len());
        if to >= servers {
            let guest = &mut self.players[to - servers];
            match ServerMessage::from_bytes(bytes, guest.client.rules()) {
                Some(ServerMessage::Pong(pong)) => guest.selector.on_pong(now, from, &pong),
                _ if guest.selector.current() == Some(from) => _ = guest.client.handle_datagram(now, bytes),
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

    fn run_server(&mut self, place: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        let Some(mut server) = self.servers[place].1.take() else { return };
        server.advance(now);
        while let Some(transmit) = server.poll_mirror(now, &mut buf) {
            for other in (0..self.servers.len()).filter(|other| *other != place) {
                let wanted = match (transmit.to, &self.servers[other].1) {
                    (MirrorDestination::One(source), Some(other)) => other.source() == source,
                    (MirrorDestination::All, _) => true,
                    (MirrorDestination::One(_), None) => false,
                };
                if wanted {
                    self.send(place, other, server.source(), &buf[..transmit.len]);
                }
            }
        }
        for (entity, bytes) in server.poll_players(now, |_| &[]) {
            let number = self.players.iter().position(|guest| guest.entity == entity).expect("a guest");
            let to = self.servers.len() + number;
            self.send(place, to, server.source(), &bytes);
        }
        self.servers[place].1 = Some(server);
    }

    fn run_player(&mut self, number: usize) {
        let (now, from) = (self.now, self.servers.len() + number);
        let guest = &mut self.players[number];
        guest.client.advance(now);
        guest.update_controls(now);
        let score = guest.client.score();
        guest.rollback = guest.client.poll_score_rollback().or(guest.rollback);
        assert!(
            guest.rollback.is_some()
                || score.hits >= guest.acknowledged.hits && score.falls >= guest.acknowledged.falls
        );
        guest.acknowledged = score;
        let pings = guest.selector.poll_pings(now);
        if guest.selector.select(now, guest.client.last_received(), guest.client.is_draining()).is_some() {
            guest.client.on_server_change(now);
        }
        let wish = guest.client.poll_input(now).zip(guest.selector.current()).filter(|_| guest.is_playing);
        if let Some((servers, ping)) = pings {
            servers.into_iter().for_each(|to| self.send(from, to, SourceId(0), &ping));
        }
        if let Some((bytes, to)) = wish {
            self.send(from, to, SourceId(0), &bytes);
        }
    }

    /// Everybody stops, and what is under way arrives. Nobody is left in the world.
    fn stop_players_and_settle(&mut self) {
        self.players.iter_mut().for_each(|guest| guest.is_playing = false);
        self.run(9_000);
        for server in self.servers.iter().filter_map(|(_, server)| server.as_ref()) {
            for guest in &self.players {
                let stand = server.world().entities().get(guest.entity).and_then(EntityRecord::placement);
                assert!(stand.is_some_and(|stand| stand.avatar.is_none()), "a ghost: {stand:?}");
                assert!(server.world().avatars().get(guest.entity).is_none());
            }
        }
    }

    /// All servers know the same of all guests; and of ninjas, who go on, whose they are.
    fn assert_equal(&self) {
        let servers = || self.servers.iter().filter_map(|(_, server)| server.as_ref());
        let first = servers().next().expect("one runs");
        let ninjas: Vec<EntityId> = (0..self.ninja_count).map(ninja_entity).collect();
        for other in servers() {
            let (ours, theirs) = (first.world().entities(), other.world().entities());
            let guests = |register: &EntityStore| -> Vec<(EntityId, EntityRecord)> {
                let guests = register.iter().filter(|(entity, _)| !ninjas.contains(entity));
                guests.map(|(entity, being)| (entity, being.clone())).collect()
            };
            assert!(guests(ours) == guests(theirs), "{ours:#?}\n\n{theirs:#?}");
            assert!(guests(ours).len() == self.players.len() && ours.len() == theirs.len());
            for ninja in &ninjas {
                let term = |register: &EntityStore| register.get(*ninja).and_then(EntityRecord::ownership);
                assert_eq!(term(ours), term(theirs), "{ninja:?}");
            }
        }
    }

    fn assert_nothing_lost(&self) {
        assert!(self.players.iter().all(|guest| guest.rollback.is_none()));
        let servers = self.servers.iter().filter_map(|(_, server)| server.as_ref());
        for server in servers {
            for guest in &self.players {
                let (known, told) = (server.world().entities().score(guest.entity), guest.acknowledged);
                assert!(
                    known.hits >= told.hits && known.falls >= told.falls,
                    "{:?}: {known:?}, but {told:?} was told",
                    guest.entity
                );
            }
        }
    }

    fn total_hits(&self) -> u32 {
        self.players.iter().map(|guest| guest.acknowledged.hits).sum()
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
    assert!(world.players.iter().all(|guest| guest.client.avatar().is_some()), "everybody is in");
    assert!(world.total_hits() > 5, "{} hits", world.total_hits());
    world.stop_players_and_settle();
    world.assert_equal();
    world.assert_nothing_lost();
    let late = (0..3).map(|place| world.server(place).stats().over_threshold).sum::<u64>();
    let all = (0..3).map(|place| world.server(place).stats().remote_delivered()).sum::<u64>();
    assert!(late * 20 < all, "{late} of {all} events took too long");
}

#[test]
fn crashed_server_is_survived_and_catches_up_after_restart() {
    let mut world = SimulatedWorld::new(2, 3, 9, 0);
    world.run(12_000);
    let before = world.total_hits();
    let moved: Vec<usize> = (0..9).filter(|number| world.players[*number].selector.current() == Some(1)).collect();
    assert!(!moved.is_empty(), "somebody is on it");
    world.kill(1);
    world.run(4_000);
    for number in &moved {
        let guest = &world.players[*number];
        assert!(
            guest.selector.current() != Some(1)
                && world.now - guest.client.last_received() < TimeDelta::from_millis(500)
        );
    }
    world.run(6_000);
    world.start(1);
    world.run(12_000);
    assert!(world.server(1).is_open(world.now));
    assert!(world.total_hits() > before, "it goes on");
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
    let other = 1 - world.players[0].selector.current().expect("it is somewhere");
    (0..2).for_each(|place| world.kill(place));
    world.run(1_000);
    world.start(other);
    world.run(15_000);
    let guest = &world.players[0];
    assert_eq!(
        (guest.selector.current(), guest.rollback),
        (Some(other), Some(coplay_world::ScoreRollback::WorldRestarted))
    );
    let known = world.server(other).world().replicated_score(entity);
    assert!(known.hits + known.falls < old.hits + old.falls, "{known:?} after {old:?}");
    let row = guest.client.scoreboard().find(|(row, ..)| *row == entity).map(|(.., score)| score);
    assert_eq!((guest.client.score(), guest.client.reported_score(), row), (known, known, Some(known)));
}

#[test]
fn healed_partition_converges_to_one_world() {
    let mut world = SimulatedWorld::new(3, 3, 8, 2);
    world.run(8_000);
    for (one, other) in [(0, 2), (1, 2)] {
        world.set_cut(one, other, true);
    }
    world.run(12_000);
    let owners =
        |place: usize| world.server(place).world().entities().get(ninja_entity(0)).and_then(EntityRecord::ownership);
    assert_ne!(owners(0).map(|term| term.owner), owners(2).map(|term| term.owner), "both sides look after the ninjas");
    for (one, other) in [(0, 2), (1, 2)] {
        world.set_cut(one, other, false);
    }
    world.run(5_000);
    let owned: usize = (0..3).filter(|place| owns(world.server(*place), ninja_entity(0))).count();
    assert_eq!(owned, 1, "one of them yields");
    world.stop_players_and_settle();
    world.assert_equal();
    world.assert_nothing_lost();
    assert!(world.server(0).world().entities().iter().any(|(_, being)| being.score().hits > 0));
}

fn owns(server: &Server, entity: EntityId) -> bool {
    let term = server.world().entities().get(entity).and_then(EntityRecord::ownership);
    term.is_some_and(|term| term.owner == server.source())
}

/// Who knows one server by its address learns of others only there, and that they are nearer when it plays already.
#[test]
fn player_moves_to_the_nearest_server_with_its_avatar() {
    let mut world = SimulatedWorld::new(5, 2, 1, 0);
    for (server, rtt) in [(0, 160), (1, 20)] {
        let way = LinkConfig { jitter: Jitter::Uniform(MILLI * 4), ..LinkConfig::constant_rtt(MILLI * rtt) };
        for (from, to) in [(2, server), (server, 2)] {
            world.links.insert((from, to), Link::new(way.clone(), 5, &format!("{from} to {to}")));
        }
    }
    world.players[0].selector = ServerSelector::new(world.now);
    world.players[0].selector.add_server(0);
    world.run(3_000);
    let entity = world.players[0].entity;
    let lives = |world: &SimulatedWorld, place: usize| {
        world.server(place).world().avatars().get(entity).map(|avatar| avatar.spawn_count)
    };
    let before = lives(&world, 0).expect("it is in");
    world.players[0].selector.add_server(1);
    let mut last = world.players[0].client.avatar().expect("it is in").position;
    for _ in 0..3_000 {
        world.run(10);
        let place = world.players[0].client.avatar().expect("it stays in").position;
        assert!(place.distance(last) <= 40, "{} units at once", place.distance(last));
        last = place;
    }
    let guest = &world.players[0];
    assert_eq!((guest.selector.current(), guest.selector.moves()), (Some(1), 1));
    assert!(owns(world.server(1), entity) && world.server(0).world().players().count() == 0);
    assert_eq!((lives(&world, 0), lives(&world, 1)), (Some(before), Some(before)));
    assert!(guest.client.rtt().is_some_and(|rtt| rtt < MILLI * 40));
    world.stop_players_and_settle();
    world.assert_equal();
}

#[test]
fn leaving_player_disappears_on_all_servers_at_once() {
    let mut world = SimulatedWorld::new(6, 2, 2, 0);
    world.run(5_000);
    let (entity, place) = (world.players[0].entity, world.players[0].selector.current().expect("it is on one"));
    world.players[0].is_playing = false;
    let goodbye = world.players[0].client.leave_message();
    (0..3).for_each(|_| world.send(2, place, SourceId(0), &goodbye));
    world.run(300);
    assert!((0..2).all(|place| world.server(place).world().avatars().get(entity).is_none()));
    assert!((0..2).all(|place| world.server(place).world().avatars().get(world.players[1].entity).is_some()));
}

#[test]
fn drained_server_hands_over_its_players_without_loss() {
    let mut world = SimulatedWorld::new(4, 2, 6, 0);
    world.run(10_000);
    let place = world.players[0].selector.current().expect("it is on one");
    world.servers[place].1.as_mut().expect("it runs").world_mut().drain();
    world.run(4_000);
    assert!(world.players.iter().all(|guest| guest.selector.current() != Some(place)));
    assert_eq!(world.server(place).world().players().count(), 0);
    assert!(world.server(place).is_fully_replicated());
    world.kill(place);
    world.stop_players_and_settle();
    world.assert_nothing_lost();
}
