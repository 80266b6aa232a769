//! Tests of worlds, most of them with several sites over a simulated network with delay and link failures.

use alloc::vec;
use alloc::vec::Vec;

use super::test_game::{Point, TestGame};
use super::*;
use crate::codec::MAX_DATAGRAM;

/// Sites with unrelated clocks, and the datagrams in flight between them.
struct PeerWorldNetwork {
    true_time: Instant,
    worlds: Vec<PeerWorld<TestGame>>,
    clock_offsets: Vec<TimeDelta>,
    in_flight: Vec<(Instant, usize, WorldSiteId, Vec<u8>)>,
    delay: TimeDelta,
    /// Link state: returns whether datagrams from the first site reach the second.
    is_link_up: fn(usize, usize) -> bool,
    /// Datagrams and bytes received by each site.
    received: Vec<(u64, u64)>,
    speeds: Vec<i32>,
}

const STEP: TimeDelta = TimeDelta::from_millis(1);

impl PeerWorldNetwork {
    fn new(sites: usize, delay_ms: i64, update_policy: UpdatePolicy) -> Self {
        let clocks: Vec<TimeDelta> = (0..sites).map(|n| TimeDelta::from_secs(1_000 * n as i64 - 700)).collect();
        let worlds = (0..sites).map(|n| {
            let site = WorldSiteId(10 * (sites - n) as u32);
            let config = PeerWorldConfig { update_policy, ..PeerWorldConfig::new(site, n == 0) };
            PeerWorld::new(Instant::ZERO + clocks[n], config, TestGame::default()).unwrap()
        });
        let mut net = Self {
            true_time: Instant::ZERO,
            worlds: worlds.collect(),
            clock_offsets: clocks,
            in_flight: vec![],
            delay: TimeDelta::from_millis(delay_ms),
            is_link_up: |_, _| true,
            received: vec![(0, 0); sites],
            speeds: (0..sites).map(|n| n as i32 + 1).collect(),
        };
        for one in 0..sites {
            for other in (0..sites).filter(|other| *other != one) {
                let (now, site) = (net.now(one), net.worlds[other].config.site);
                net.worlds[one].add_peer(now, site);
            }
        }
        net
    }

    fn now(&self, site: usize) -> Instant {
        self.true_time + self.clock_offsets[site]
    }

    fn index(&self, site: WorldSiteId) -> usize {
        self.worlds.iter().position(|world| world.config.site == site).unwrap()
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis {
            self.true_time += STEP;
            self.deliver();
            for site in 0..self.worlds.len() {
                self.step_site(site);
            }
        }
    }

    fn deliver(&mut self) {
        let due: Vec<_> = self.in_flight.extract_if(.., |(at, ..)| *at <= self.true_time).collect();
        for (_, to, from, bytes) in due {
            let now = self.now(to);
            self.received[to].0 += 1;
            self.received[to].1 += bytes.len() as u64;
            self.worlds[to].handle_datagram(now, from, &bytes);
        }
    }

    fn step_site(&mut self, site: usize) {
        let (now, speed) = (self.now(site), self.speeds[site]);
        let world = &mut self.worlds[site];
        world.advance(now);
        if let Some(tick) = world.tick(now) {
            let point = TestGame::default().point(tick as i32 * speed, speed);
            world.publish_entity(tick, 0, point);
        }
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.worlds[site].poll_transmit(now, &mut buf) {
            let world = &self.worlds[site];
            let to: Vec<WorldSiteId> = match packet.to {
                PeerWorldDestination::All => world.peers().collect(),
                PeerWorldDestination::Near(region) => world.interested_peers(region).collect(),
                PeerWorldDestination::One(site) => vec![site],
            };
            let from = world.config.site;
            for to in to {
                let to = self.index(to);
                if !(self.is_link_up)(site, to) {
                    continue;
                }
                self.in_flight.push((self.true_time + self.delay, to, from, buf[..packet.len].to_vec()));
            }
        }
    }

    fn views(&mut self) -> Vec<(u32, Vec<(EntityId, Point)>)> {
        let mut views = vec![];
        for site in 0..self.worlds.len() {
            let now = self.now(site);
            let world = &mut self.worlds[site];
            world.last_view_tick = None;
            let tick = world.poll_view(now).unwrap();
            let mut shown: Vec<_> = world.visible_at(tick).iter().map(|shown| (shown.entity, shown.state)).collect();
            shown.sort_by_key(|(entity, _)| *entity);
            views.push((tick, shown));
        }
        views
    }
}

#[test]
fn all_sites_show_the_same_view_of_a_tick() {
    for update_policy in [UpdatePolicy::fixed(25), UpdatePolicy::default()] {
        let mut net = PeerWorldNetwork::new(3, 60, update_policy);
        net.run(5_000);
        let views = net.views();
        assert_eq!(views[0].1.len(), 3);
        assert!(views.iter().all(|view| *view == views[0]), "{views:?}");
        for (entity, point) in &views[0].1 {
            let speed = net.speeds[net.index(entity.site)];
            assert_eq!(point.position, views[0].0 as i32 * speed);
        }
        for site in 0..3 {
            for peer in net.worlds[site].peers().collect::<Vec<_>>() {
                let truth = net.clock_offsets[net.index(peer)] - net.clock_offsets[site];
                let stats = net.worlds[site].peer_stats(net.now(site), peer).unwrap();
                assert!((stats.clock_offset.unwrap() - truth).abs() < TimeDelta::from_millis(1));
                assert!(stats.world_time_offset.unwrap().abs() < TimeDelta::from_millis(2), "{stats:?}");
            }
        }
    }
}

#[test]
fn silent_entity_vanishes_after_timeout_and_reappears() {
    let mut net = PeerWorldNetwork::new(2, 20, UpdatePolicy::default());
    net.run(3_000);
    assert_eq!(net.views()[1].1.len(), 2);
    net.is_link_up = |from, _| from != 0;
    net.run(1_300);
    assert_eq!(net.views()[1].1.len(), 1, "no update within 1 s before the shown tick");
    net.is_link_up = |_, _| true;
    net.run(1_000);
    assert_eq!(net.views()[1].1.len(), 2);
    let events: Vec<PeerWorldEvent> = core::iter::from_fn(|| net.worlds[1].poll_event()).collect();
    let entity = EntityId { site: WorldSiteId(20), index: 0 };
    let seen = |event: &&PeerWorldEvent| {
        matches!(event, PeerWorldEvent::EntityAppeared(_) | PeerWorldEvent::EntityVanished(_))
    };
    let seen: Vec<&PeerWorldEvent> = events.iter().filter(seen).collect();
    assert_eq!(
        seen,
        [
            &PeerWorldEvent::EntityAppeared(entity),
            &PeerWorldEvent::EntityVanished(entity),
            &PeerWorldEvent::EntityAppeared(entity)
        ]
    );
}

#[test]
fn record_of_a_departed_site_reaches_all_peers() {
    let mut net = PeerWorldNetwork::new(4, 30, UpdatePolicy::default());
    net.run(4_000);
    // Datagrams of the last site reach only the first site.
    net.is_link_up = |from, to| from != 3 || to == 0;
    net.worlds[3].publish_record(b"hit twice");
    net.run(200);
    net.is_link_up = |from, to| from != 3 && to != 3;
    net.run(5_000);
    for world in &net.worlds[..3] {
        assert_eq!(world.gossip.get(WorldSiteId(10)).unwrap().bytes, b"hit twice");
    }
}

#[test]
fn restarted_site_recovers_its_own_record() {
    let mut net = PeerWorldNetwork::new(2, 30, UpdatePolicy::default());
    net.worlds[0].publish_record(b"long ago");
    net.run(1_000);
    let config = PeerWorldConfig { is_founder: false, ..net.worlds[0].config.clone() };
    net.worlds[0] = PeerWorld::new(net.now(0), config, TestGame::default()).unwrap();
    net.run(3_000);
    assert_eq!(net.worlds[0].gossip.get(WorldSiteId(20)).unwrap().bytes, b"long ago");
    assert!(
        core::iter::from_fn(|| net.worlds[0].poll_event()).any(|event| event == PeerWorldEvent::OwnRecordRecovered)
    );
    assert_eq!(net.views()[1].1.len(), 2, "its entity must reappear");
}

#[test]
fn restarted_site_continues_from_the_newest_known_version() {
    let mut net = PeerWorldNetwork::new(3, 30, UpdatePolicy::default());
    net.run(4_000);
    let me = net.worlds[2].config.site;
    net.worlds[2].publish_record(b"one");
    net.run(3_000);
    net.is_link_up = |from, to| from != 2 || to == 0;
    net.worlds[2].publish_record(b"two");
    net.run(200);
    let newest = net.worlds[0].gossip.get(me).unwrap().version;
    assert!(net.worlds[1].gossip.get(me).unwrap().version < newest, "one site must have missed the last version");
    // The site restarts before its peers can exchange versions, and publishes at once.
    net.is_link_up = |_, _| true;
    let config = net.worlds[2].config.clone();
    net.worlds[2] = PeerWorld::new(net.now(2), config, TestGame::default()).unwrap();
    net.worlds[2].publish_record(b"three");
    net.run(4_000);
    assert!(
        core::iter::from_fn(|| net.worlds[2].poll_event()).any(|event| event == PeerWorldEvent::OwnRecordRecovered)
    );
    let versions = [0, 1, 2].map(|site| net.worlds[site].gossip.get(me).unwrap().version >> 12);
    assert_eq!(versions, [(newest >> 12) + 1; 3]);
}

#[test]
fn distant_site_receives_no_updates() {
    let mut net = PeerWorldNetwork::new(2, 20, UpdatePolicy::fixed(25));
    net.speeds = vec![0, 0];
    net.run(2_000);
    let near = net.received[0];
    net.speeds = vec![0, 1_000];
    net.run(2_000);
    net.received = vec![(0, 0); 2];
    net.run(2_000);
    let far = net.received[0];
    assert!(near.0 > 50 && far.0 < 15, "near {near:?}, far {far:?}");
    assert_eq!(net.views()[0].1.len(), 1);
}

#[test]
fn entities_of_a_leaving_site_vanish_at_once() {
    let mut net = PeerWorldNetwork::new(2, 20, UpdatePolicy::fixed(25));
    net.run(2_000);
    net.worlds[0].leave();
    let now = net.now(0);
    let mut buf = [0; MAX_DATAGRAM];
    let packet = net.worlds[0].poll_transmit(now, &mut buf).unwrap();
    assert_eq!(packet.to, PeerWorldDestination::All);
    let now = net.now(1);
    net.worlds[1].handle_datagram(now, WorldSiteId(20), &buf[..packet.len]);
    net.worlds[0].local_entities.clear();
    net.run(30);
    assert_eq!(net.views()[1].1.len(), 1);
}

#[test]
fn single_site_cannot_advance_the_world_time_of_many() {
    let mut net = PeerWorldNetwork::new(4, 20, UpdatePolicy::default());
    net.run(2_000);
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = crate::peer_world::message::PeerWorldDatagramWriter::new(&mut buf).unwrap();
    datagram
        .put(crate::peer_world::message::PeerWorldItem::WorldTime(Some(TimeDelta::from_secs(86_400 * 200))))
        .unwrap();
    let len = datagram.len();
    // The site with the lowest id claims this world time. The other sites follow a world time only if it is within
    // 250 ms of their own or if at least half of the reports are ahead.
    for _ in 0..30 {
        for to in 0..3 {
            let (now, liar) = (net.now(to), net.worlds[3].config.site);
            net.worlds[to].handle_datagram(now, liar, &buf[..len]);
        }
        net.run(100);
    }
    for site in 0..3 {
        let now = net.now(site);
        assert!(net.worlds[site].tick(now).is_some_and(|tick| (490..510).contains(&tick)));
    }
}

#[test]
fn world_at_its_last_tick_does_not_busy_loop() {
    let mut world =
        PeerWorld::new(Instant::ZERO, PeerWorldConfig::new(WorldSiteId(1), true), TestGame::default()).unwrap();
    let late = Instant::ZERO + TimeDelta::from_secs(86_400 * 400);
    world.advance(late);
    assert!(world.poll_timeout(late) >= late + world.config.tick_duration);
}

#[test]
fn world_without_founder_starts_its_own_time() {
    let mut net = PeerWorldNetwork::new(3, 20, UpdatePolicy::default());
    net.is_link_up = |from, to| from != 0 && to != 0;
    net.run(4_000);
    let ticks = |net: &mut PeerWorldNetwork| {
        [1, 2].map(|site| (site, net.now(site))).map(|(site, now)| net.worlds[site].tick(now))
    };
    assert_eq!(ticks(&mut net), [None, None], "a peer may still report a world time");
    net.run(4_000);
    let [Some(one), Some(other)] = ticks(&mut net) else { panic!("no world time was started") };
    assert!(one.abs_diff(other) <= 1 && one > 200, "{one} {other}");
    net.is_link_up = |_, _| true;
    net.run(4_000);
    let now = net.now(0);
    let founder = net.worlds[0].tick(now).unwrap();
    assert!(
        ticks(&mut net).iter().all(|tick| tick.unwrap().abs_diff(founder) <= 1),
        "all sites must end up in one world"
    );
}

#[test]
fn random_datagrams_do_not_panic_and_memory_is_bounded() {
    let mut world =
        PeerWorld::new(Instant::ZERO, PeerWorldConfig::new(WorldSiteId(1), true), TestGame::default()).unwrap();
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32
    };
    let mut buf = [0; MAX_DATAGRAM];
    let mut peak_memory = 0;
    for round in 0..60_000 {
        let now = Instant::ZERO + TimeDelta::from_micros(round * 50);
        let from = WorldSiteId(2 + next() % 3_000);
        let mut datagram = crate::peer_world::message::PeerWorldDatagramWriter::new(&mut buf).unwrap();
        let state = [next() as u8; 9];
        let record = [7; MAX_RECORD_SIZE];
        for _ in 0..next() % 4 {
            let update = crate::peer_world::message::EntityStateUpdate {
                entity_index: next() as u8,
                sequence: next() as u16,
                tick: next() as u16,
                state: &state[..next() as usize % 10],
            };
            _ = match next() % 6 {
                0 => datagram.put(crate::peer_world::message::PeerWorldItem::Update(update)),
                1 => datagram.put(crate::peer_world::message::PeerWorldItem::Probe(Instant::from_nanos(
                    i64::from(next()) << 31,
                ))),
                2 => {
                    let (site, version) = (WorldSiteId(next()), gossip::make_version(next() >> 12, &record));
                    datagram.put(crate::peer_world::message::PeerWorldItem::Record { site, version, bytes: &record })
                }
                3 => datagram.put(crate::peer_world::message::PeerWorldItem::RecordVersion {
                    site: WorldSiteId(next()),
                    version: next(),
                }),
                4 => datagram.put(crate::peer_world::message::PeerWorldItem::WorldTime(Some(TimeDelta::from_nanos(
                    i64::from(next()) << 30,
                )))),
                _ => datagram
                    .put(crate::peer_world::message::PeerWorldItem::OwnRegion(WorldRegion { x: next() as u8, y: 0 })),
            };
        }
        let mut len = datagram.len();
        if next() % 3 == 0 {
            len = next() as usize % MAX_DATAGRAM;
            buf[next() as usize % MAX_DATAGRAM] ^= next() as u8;
        }
        world.handle_datagram(now, from, &buf[..len]);
        world.advance(now);
        if round % 500 == 0 {
            world.poll_view(now).map(|tick| world.visible_at(tick).len());
        }
        while round % 5_000 == 0 && world.poll_transmit(now, &mut buf).is_some() {}
        peak_memory = peak_memory.max(world.memory());
    }
    assert!(world.peers.len() <= MAX_PEERS && world.remote_entities.len() <= MAX_ENTITIES);
    assert!((1_000..=1_025).contains(&world.gossip.len()), "{} records", world.gossip.len());
    assert!(peak_memory < 24 << 20, "{peak_memory} bytes");
}

/// Lets a site say goodbye and restart at once, with an empty record store. The restarted site knows the other sites as
/// peers.
fn leave_and_restart(net: &mut PeerWorldNetwork, site: usize) {
    net.worlds[site].leave();
    net.step_site(site);
    restart(net, site);
}

fn restart(net: &mut PeerWorldNetwork, site: usize) {
    let config = PeerWorldConfig { is_founder: false, ..net.worlds[site].config.clone() };
    let peers: Vec<WorldSiteId> = net.worlds.iter().map(|world| world.config.site).collect();
    net.worlds[site] = PeerWorld::new(net.now(site), config, TestGame::default()).unwrap();
    let now = net.now(site);
    peers.into_iter().for_each(|peer| net.worlds[site].add_peer(now, peer));
}

fn has_recovered_own_record(world: &mut PeerWorld<TestGame>) -> bool {
    core::iter::from_fn(|| world.poll_event()).any(|event| event == PeerWorldEvent::OwnRecordRecovered)
}

#[test]
fn site_that_left_and_restarts_at_once_recovers_its_record_at_once() {
    let mut net = PeerWorldNetwork::new(2, 30, UpdatePolicy::default());
    net.run(4_000);
    net.worlds[1].publish_record(b"hit once");
    net.run(2_000);
    leave_and_restart(&mut net, 1);
    net.run(300);
    assert!(has_recovered_own_record(&mut net.worlds[1]), "recovery must not wait for the end of the quarantine");
}

#[test]
fn restarted_site_never_replaces_a_record_only_an_unreachable_peer_has() {
    let mut net = PeerWorldNetwork::new(3, 30, UpdatePolicy::default());
    net.run(4_000);
    let me = net.worlds[2].config.site;
    // The second site does not receive these versions of the record.
    net.is_link_up = |_, to| to != 1;
    net.worlds[2].publish_record(b"hit once");
    net.run(1_500);
    net.worlds[2].publish_record(b"hit twice");
    net.run(1_500);
    let old = net.worlds[0].gossip.get(me).unwrap().version;
    assert!(net.worlds[1].gossip.get(me).is_none());
    // The first site, which has the record, is cut off while the restarted site makes more changes than before.
    net.is_link_up = |from, to| from != 0 && to != 0;
    restart(&mut net, 2);
    for hits in 0..6 {
        net.worlds[2].publish_record(&[hits]);
        net.run(1_000);
    }
    net.is_link_up = |_, _| true;
    net.run(4_000);
    assert!(has_recovered_own_record(&mut net.worlds[2]), "the earlier counts must not be replaced");
    let versions = [0, 1, 2].map(|site| net.worlds[site].gossip.get(me).unwrap().version);
    assert!(versions[0] > old && versions == [versions[0]; 3], "versions {versions:?}, before the restart {old}");
}

#[test]
fn final_record_reaches_a_peer_that_missed_the_leave_within_five_seconds() {
    let mut net = PeerWorldNetwork::new(3, 30, UpdatePolicy::default());
    net.run(4_000);
    let gone = net.worlds[2].config.site;
    net.worlds[2].publish_record(b"hit once");
    net.run(1_000);
    net.is_link_up = |from, to| from != 2 || to == 0;
    net.worlds[2].publish_record(b"hit twice");
    net.worlds[2].leave();
    net.run(1);
    net.is_link_up = |from, to| from != 2 && to != 2;
    net.run(5_000);
    assert_eq!(net.worlds[0].gossip.get(gone).unwrap().bytes, b"hit twice");
    assert_eq!(
        net.worlds[1].gossip.get(gone).unwrap().bytes,
        b"hit twice",
        "a silent site's record must come from its peers"
    );
}

#[test]
fn clock_of_a_restarted_site_is_measured_again() {
    let mut net = PeerWorldNetwork::new(2, 30, UpdatePolicy::default());
    net.run(4_000);
    net.worlds[1].leave();
    net.step_site(1);
    net.is_link_up = |from, _| from != 1;
    net.run(1_500);
    net.is_link_up = |_, _| true;
    // The clock restarts with the process.
    net.clock_offsets[1] += TimeDelta::from_secs(500);
    restart(&mut net, 1);
    net.run(5_000);
    let truth = net.clock_offsets[1] - net.clock_offsets[0];
    let stats = net.worlds[0].peer_stats(net.now(0), net.worlds[1].config.site).unwrap();
    assert!(stats.clock_offset.is_some_and(|offset| (offset - truth).abs() < TimeDelta::from_millis(1)), "{stats:?}");
}
