//! Several servers and their players in virtual time: whatever dies, comes back or is cut off, nobody loses what was acknowledged, and
//! all servers end with the same world.

use std::collections::BTreeMap;

use coplay::mirror::{DEFAULT_GIT, DropPolicy, MirrorConfig, MirrorDestination, SourceId};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{Avatar, Controls, Ninja, Score, Terms};
use coplay_sim::link::{Jitter, Link, LinkConfig, Loss};
use coplay_sim::queue::Queue;
use coplay_world::{Being, Client, Register, Server, Voyage, Word, entity_of, ninja};

const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// Servers, players, and links between all of them.
struct World {
    now: Instant,
    terms: Terms,
    ninjas: u8,
    policy: DropPolicy,
    /// Who runs at each place, in the how manieth run.
    servers: Vec<(u32, Option<Server>)>,
    guests: Vec<Guest>,
    links: BTreeMap<(usize, usize), Link>,
    queue: Queue<(usize, usize, SourceId, Vec<u8>)>,
    link: LinkConfig,
    player_link: LinkConfig,
    seed: u64,
}

/// Software that plays over the network. Places of guests come after those of servers.
struct Guest {
    entity: EntityId,
    client: Client,
    voyage: Voyage<usize>,
    ninja: Ninja,
    plays: bool,
    /// The best score that was acknowledged.
    acknowledged: Score,
    /// What it was told that is gone.
    loss: Option<coplay_world::Loss>,
}

impl World {
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
            terms: Terms { side: 6, seed, ..Terms::default() },
            ninjas,
            policy: DropPolicy::Adaptive { threshold: DEFAULT_GIT },
            servers: (0..servers).map(|_| (0, None)).collect(),
            guests: vec![],
            links: BTreeMap::new(),
            queue: Queue::new(),
            link: lossy.clone(),
            player_link: lossy,
            seed,
        };
        (0..servers).for_each(|place| world.start(place));
        // Those who come at once find only the first one open.
        world.run(2_000);
        let now = world.now;
        let guest = |number: usize| {
            let mut voyage = Voyage::new(now);
            (0..servers).for_each(|server| voyage.on_up(server));
            Guest {
                entity: entity_of(&[number as u8; 32]),
                client: Client::new(now, &format!("player {number}"), number as u32),
                voyage,
                ninja: Ninja::new(seed ^ number as u64),
                plays: true,
                acknowledged: Score::default(),
                loss: None,
            }
        };
        world.guests = (0..guests).map(guest).collect();
        world
    }

    fn start(&mut self, place: usize) {
        let (run, server) = &mut self.servers[place];
        *run += 1;
        let source = SourceId(place as u32 * 100 + *run);
        let config =
            MirrorConfig { is_founder: place == 0 && *run == 1, policy: self.policy, ..MirrorConfig::new(source) };
        let begun = Server::new(self.now, config, self.terms, self.ninjas).expect("a server can be like that");
        *server = Some(begun);
        self.acquaint();
    }

    /// Everybody knows of everybody.
    fn acquaint(&mut self) {
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

    fn cut(&mut self, one: usize, other: usize, cut: bool) {
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
                    self.arrive(from, to, source, &bytes);
                }
            }
            (0..self.servers.len()).for_each(|place| self.serve(place));
            (0..self.guests.len()).for_each(|number| self.play(number));
        }
    }

    fn arrive(&mut self, from: usize, to: usize, source: SourceId, bytes: &[u8]) {
        let (now, servers) = (self.now, self.servers.len());
        if to >= servers {
            let guest = &mut self.guests[to - servers];
            match Word::from_bytes(bytes, guest.client.rules()) {
                Some(Word::Pong(pong)) => guest.voyage.on_pong(now, from, &pong),
                _ if guest.voyage.current() == Some(from) => _ = guest.client.handle_datagram(now, bytes),
                _ => {}
            }
            return;
        }
        let Some(server) = self.servers[to].1.as_mut() else { return };
        if from < servers {
            server.handle_mirror(now, source, bytes);
        } else if let Some(answer) = server.handle_player(now, self.guests[from - servers].entity, bytes) {
            self.send(to, from, source, &answer);
        }
    }

    fn serve(&mut self, place: usize) {
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
            let number = self.guests.iter().position(|guest| guest.entity == entity).expect("a guest");
            let to = self.servers.len() + number;
            self.send(place, to, server.source(), &bytes);
        }
        self.servers[place].1 = Some(server);
    }

    fn play(&mut self, number: usize) {
        let (now, from) = (self.now, self.servers.len() + number);
        let guest = &mut self.guests[number];
        guest.client.advance(now);
        guest.decide(now);
        let score = guest.client.score();
        guest.loss = guest.client.poll_loss().or(guest.loss);
        assert!(
            guest.loss.is_some() || score.hits >= guest.acknowledged.hits && score.falls >= guest.acknowledged.falls
        );
        guest.acknowledged = score;
        let pings = guest.voyage.poll_pings(now);
        if guest.voyage.choose(now, guest.client.heard(), guest.client.drains()).is_some() {
            guest.client.on_other_server(now);
        }
        let wish = guest.client.poll_wish(now).zip(guest.voyage.current()).filter(|_| guest.plays);
        if let Some((servers, ping)) = pings {
            servers.into_iter().for_each(|to| self.send(from, to, SourceId(0), &ping));
        }
        if let Some((bytes, to)) = wish {
            self.send(from, to, SourceId(0), &bytes);
        }
    }

    /// Everybody stops, and what is under way arrives. Nobody is left in the world.
    fn calm_down(&mut self) {
        self.guests.iter_mut().for_each(|guest| guest.plays = false);
        self.run(9_000);
        for server in self.servers.iter().filter_map(|(_, server)| server.as_ref()) {
            for guest in &self.guests {
                let stand = server.realm().register().get(guest.entity).and_then(Being::stand);
                assert!(stand.is_some_and(|stand| stand.avatar.is_none()), "a ghost: {stand:?}");
                assert!(server.realm().field().get(guest.entity).is_none());
            }
        }
    }

    /// All servers know the same of all guests; and of ninjas, who go on, whose they are.
    fn assert_equal(&self) {
        let servers = || self.servers.iter().filter_map(|(_, server)| server.as_ref());
        let first = servers().next().expect("one runs");
        let ninjas: Vec<EntityId> = (0..self.ninjas).map(ninja).collect();
        for other in servers() {
            let (ours, theirs) = (first.realm().register(), other.realm().register());
            let guests = |register: &Register| -> Vec<(EntityId, Being)> {
                let guests = register.iter().filter(|(entity, _)| !ninjas.contains(entity));
                guests.map(|(entity, being)| (entity, being.clone())).collect()
            };
            assert!(guests(ours) == guests(theirs), "{ours:#?}\n\n{theirs:#?}");
            assert!(guests(ours).len() == self.guests.len() && ours.len() == theirs.len());
            for ninja in &ninjas {
                let term = |register: &Register| register.get(*ninja).and_then(Being::term);
                assert_eq!(term(ours), term(theirs), "{ninja:?}");
            }
        }
    }

    fn assert_nothing_lost(&self) {
        assert!(self.guests.iter().all(|guest| guest.loss.is_none()));
        let servers = self.servers.iter().filter_map(|(_, server)| server.as_ref());
        for server in servers {
            for guest in &self.guests {
                let (known, told) = (server.realm().register().score(guest.entity), guest.acknowledged);
                assert!(
                    known.hits >= told.hits && known.falls >= told.falls,
                    "{:?}: {known:?}, but {told:?} was told",
                    guest.entity
                );
            }
        }
    }

    fn hits(&self) -> u32 {
        self.guests.iter().map(|guest| guest.acknowledged.hits).sum()
    }
}

impl Guest {
    fn decide(&mut self, now: Instant) {
        let (Some(rules), Some(me), Some(tick)) = (self.client.rules(), self.client.avatar(), self.client.tick(now))
        else {
            return;
        };
        let others: Vec<(EntityId, Avatar)> =
            self.client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
        let controls = if self.plays { self.ninja.think(tick, rules, me, &others) } else { Controls::default() };
        self.client.press(now, controls);
    }
}

#[test]
fn all_servers_have_one_world() {
    let mut world = World::new(1, 3, 9, 0);
    world.run(20_000);
    assert!(world.guests.iter().all(|guest| guest.client.avatar().is_some()), "everybody is in");
    assert!(world.hits() > 5, "{} hits", world.hits());
    world.calm_down();
    world.assert_equal();
    world.assert_nothing_lost();
    let late = (0..3).map(|place| world.server(place).stats().over_threshold).sum::<u64>();
    let all = (0..3).map(|place| world.server(place).stats().remote_delivered()).sum::<u64>();
    assert!(late * 20 < all, "{late} of {all} events took too long");
}

#[test]
fn a_server_that_dies_is_survived_and_one_that_comes_back_catches_up() {
    let mut world = World::new(2, 3, 9, 0);
    world.run(12_000);
    let before = world.hits();
    let moved: Vec<usize> = (0..9).filter(|number| world.guests[*number].voyage.current() == Some(1)).collect();
    assert!(!moved.is_empty(), "somebody is on it");
    world.kill(1);
    world.run(4_000);
    for number in &moved {
        let guest = &world.guests[*number];
        assert!(guest.voyage.current() != Some(1) && world.now - guest.client.heard() < TimeDelta::from_millis(500));
    }
    world.run(6_000);
    world.start(1);
    world.run(12_000);
    assert!(world.server(1).is_open(world.now));
    assert!(world.hits() > before, "it goes on");
    world.calm_down();
    world.assert_equal();
    world.assert_nothing_lost();
}

#[test]
fn who_sees_a_world_begin_anew_sees_the_scores_that_all_see() {
    let mut world = World::new(2, 2, 1, 3);
    world.run(30_000);
    let (old, entity) = (world.guests[0].acknowledged, world.guests[0].entity);
    assert!(old.hits + old.falls > 0, "{old:?}");
    let other = 1 - world.guests[0].voyage.current().expect("it is somewhere");
    (0..2).for_each(|place| world.kill(place));
    world.run(1_000);
    world.start(other);
    world.run(15_000);
    let guest = &world.guests[0];
    assert_eq!((guest.voyage.current(), guest.loss), (Some(other), Some(coplay_world::Loss::World)));
    let known = world.server(other).realm().score(entity);
    assert!(known.hits + known.falls < old.hits + old.falls, "{known:?} after {old:?}");
    let row = guest.client.table().find(|(row, ..)| *row == entity).map(|(.., score)| score);
    assert_eq!((guest.client.score(), guest.client.told(), row), (known, known, Some(known)));
}

#[test]
fn a_partition_heals_into_one_world() {
    let mut world = World::new(3, 3, 8, 2);
    world.run(8_000);
    for (one, other) in [(0, 2), (1, 2)] {
        world.cut(one, other, true);
    }
    world.run(12_000);
    let owners = |place: usize| world.server(place).realm().register().get(ninja(0)).and_then(Being::term);
    assert_ne!(owners(0).map(|term| term.owner), owners(2).map(|term| term.owner), "both sides look after the ninjas");
    for (one, other) in [(0, 2), (1, 2)] {
        world.cut(one, other, false);
    }
    world.run(5_000);
    let owned: usize = (0..3).filter(|place| owns(world.server(*place), ninja(0))).count();
    assert_eq!(owned, 1, "one of them yields");
    world.calm_down();
    world.assert_equal();
    world.assert_nothing_lost();
    assert!(world.server(0).realm().register().iter().any(|(_, being)| being.score().hits > 0));
}

fn owns(server: &Server, entity: EntityId) -> bool {
    let term = server.realm().register().get(entity).and_then(Being::term);
    term.is_some_and(|term| term.owner == server.source())
}

/// Who knows one server by its address learns of others only there, and that they are nearer when it plays already.
#[test]
fn a_player_ends_on_the_nearest_server_and_its_avatar_comes_along() {
    let mut world = World::new(5, 2, 1, 0);
    for (server, rtt) in [(0, 160), (1, 20)] {
        let way = LinkConfig { jitter: Jitter::Uniform(MILLI * 4), ..LinkConfig::constant_rtt(MILLI * rtt) };
        for (from, to) in [(2, server), (server, 2)] {
            world.links.insert((from, to), Link::new(way.clone(), 5, &format!("{from} to {to}")));
        }
    }
    world.guests[0].voyage = Voyage::new(world.now);
    world.guests[0].voyage.on_up(0);
    world.run(3_000);
    let entity = world.guests[0].entity;
    let lives =
        |world: &World, place: usize| world.server(place).realm().field().get(entity).map(|avatar| avatar.lives);
    let before = lives(&world, 0).expect("it is in");
    world.guests[0].voyage.on_up(1);
    let mut last = world.guests[0].client.avatar().expect("it is in").position;
    for _ in 0..3_000 {
        world.run(10);
        let place = world.guests[0].client.avatar().expect("it stays in").position;
        assert!(place.distance(last) <= 40, "{} units at once", place.distance(last));
        last = place;
    }
    let guest = &world.guests[0];
    assert_eq!((guest.voyage.current(), guest.voyage.moves()), (Some(1), 1));
    assert!(owns(world.server(1), entity) && world.server(0).realm().players().count() == 0);
    assert_eq!((lives(&world, 0), lives(&world, 1)), (Some(before), Some(before)));
    assert!(guest.client.rtt().is_some_and(|rtt| rtt < MILLI * 40));
    world.calm_down();
    world.assert_equal();
}

#[test]
fn a_departure_is_seen_at_once() {
    let mut world = World::new(6, 2, 2, 0);
    world.run(5_000);
    let (entity, place) = (world.guests[0].entity, world.guests[0].voyage.current().expect("it is on one"));
    world.guests[0].plays = false;
    let goodbye = world.guests[0].client.goodbye();
    (0..3).for_each(|_| world.send(2, place, SourceId(0), &goodbye));
    world.run(300);
    assert!((0..2).all(|place| world.server(place).realm().field().get(entity).is_none()));
    assert!((0..2).all(|place| world.server(place).realm().field().get(world.guests[1].entity).is_some()));
}

#[test]
fn a_server_that_drains_loses_its_players_to_others_and_nothing_else() {
    let mut world = World::new(4, 2, 6, 0);
    world.run(10_000);
    let place = world.guests[0].voyage.current().expect("it is on one");
    world.servers[place].1.as_mut().expect("it runs").realm_mut().drain();
    world.run(4_000);
    assert!(world.guests.iter().all(|guest| guest.voyage.current() != Some(place)));
    assert_eq!(world.server(place).realm().players().count(), 0);
    assert!(world.server(place).is_known_elsewhere());
    world.kill(place);
    world.calm_down();
    world.assert_nothing_lost();
}
