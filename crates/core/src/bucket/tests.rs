//! Whole worlds, over a wire that takes its time.

use alloc::vec;
use alloc::vec::Vec;

use super::line::{Line, Point};
use super::*;
use crate::wire::MAX_DATAGRAM;

/// Sites with clocks that have nothing to do with each other, and what is under way between them.
struct Net {
    true_time: Instant,
    worlds: Vec<World<Line>>,
    clocks: Vec<TimeDelta>,
    wire: Vec<(Instant, usize, Site, Vec<u8>)>,
    delay: TimeDelta,
    /// Whether what one sends gets to another.
    open: fn(usize, usize) -> bool,
    /// Datagrams and bytes that got to each.
    received: Vec<(u64, u64)>,
    speeds: Vec<i32>,
}

const STEP: TimeDelta = TimeDelta::from_millis(1);

impl Net {
    fn new(sites: usize, delay_ms: i64, sending: Sending) -> Self {
        let clocks: Vec<TimeDelta> = (0..sites).map(|n| TimeDelta::from_secs(1_000 * n as i64 - 700)).collect();
        let worlds = (0..sites).map(|n| {
            let site = Site(10 * (sites - n) as u32);
            let config = Config { sending, ..Config::new(site, n == 0) };
            World::new(Instant::ZERO + clocks[n], config, Line::default()).unwrap()
        });
        let mut net = Self {
            true_time: Instant::ZERO,
            worlds: worlds.collect(),
            clocks,
            wire: vec![],
            delay: TimeDelta::from_millis(delay_ms),
            open: |_, _| true,
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
        self.true_time + self.clocks[site]
    }

    fn index(&self, site: Site) -> usize {
        self.worlds.iter().position(|world| world.config.site == site).unwrap()
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis {
            self.true_time += STEP;
            self.deliver();
            for site in 0..self.worlds.len() {
                self.play(site);
            }
        }
    }

    fn deliver(&mut self) {
        let due: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= self.true_time).collect();
        for (_, to, from, bytes) in due {
            let now = self.now(to);
            self.received[to].0 += 1;
            self.received[to].1 += bytes.len() as u64;
            self.worlds[to].handle_datagram(now, from, &bytes);
        }
    }

    fn play(&mut self, site: usize) {
        let (now, speed) = (self.now(site), self.speeds[site]);
        let world = &mut self.worlds[site];
        world.advance(now);
        if let Some(tick) = world.tick(now) {
            let point = Line::default().at(tick as i32 * speed, speed);
            world.publish(tick, 0, point);
        }
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.worlds[site].poll_transmit(now, &mut buf) {
            let world = &self.worlds[site];
            let to: Vec<Site> = match packet.to {
                To::All => world.peers().collect(),
                To::Near(region) => world.wanting(region).collect(),
                To::One(site) => vec![site],
            };
            let from = world.config.site;
            for to in to {
                let to = self.index(to);
                if !(self.open)(site, to) {
                    continue;
                }
                self.wire.push((self.true_time + self.delay, to, from, buf[..packet.len].to_vec()));
            }
        }
    }

    fn views(&mut self) -> Vec<(u32, Vec<(EntityId, Point)>)> {
        let mut views = vec![];
        for site in 0..self.worlds.len() {
            let now = self.now(site);
            let world = &mut self.worlds[site];
            world.viewed = None;
            let tick = world.poll_view(now).unwrap();
            let mut shown: Vec<_> = world.show(tick).iter().map(|shown| (shown.entity, shown.state)).collect();
            shown.sort_by_key(|(entity, _)| *entity);
            views.push((tick, shown));
        }
        views
    }
}

#[test]
fn all_see_the_same_at_the_same_time() {
    for sending in [Sending::fixed(25), Sending::default()] {
        let mut net = Net::new(3, 60, sending);
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
                let truth = net.clocks[net.index(peer)] - net.clocks[site];
                let stats = net.worlds[site].peer_stats(net.now(site), peer).unwrap();
                assert!((stats.offset.unwrap() - truth).abs() < TimeDelta::from_millis(1));
                assert!(stats.world_offset.unwrap().abs() < TimeDelta::from_millis(2), "{stats:?}");
            }
        }
    }
}

#[test]
fn who_falls_silent_vanishes_in_time_and_comes_back() {
    let mut net = Net::new(2, 20, Sending::default());
    net.run(3_000);
    assert_eq!(net.views()[1].1.len(), 2);
    net.open = |from, _| from != 0;
    net.run(1_300);
    assert_eq!(net.views()[1].1.len(), 1, "nothing was heard for a second before what is shown");
    net.open = |_, _| true;
    net.run(1_000);
    assert_eq!(net.views()[1].1.len(), 2);
    let events: Vec<Event> = core::iter::from_fn(|| net.worlds[1].poll_event()).collect();
    let entity = EntityId { site: Site(20), index: 0 };
    let seen = |event: &&Event| matches!(event, Event::Appeared(_) | Event::Vanished(_));
    let seen: Vec<&Event> = events.iter().filter(seen).collect();
    assert_eq!(seen, [&Event::Appeared(entity), &Event::Vanished(entity), &Event::Appeared(entity)]);
}

#[test]
fn records_get_to_everybody_also_from_who_has_left() {
    let mut net = Net::new(4, 30, Sending::default());
    net.run(4_000);
    // What the last site says gets only to the first.
    net.open = |from, to| from != 3 || to == 0;
    net.worlds[3].post(b"hit twice");
    net.run(200);
    net.open = |from, to| from != 3 && to != 3;
    net.run(5_000);
    for world in &net.worlds[..3] {
        assert_eq!(world.ledger.get(Site(10)).unwrap().bytes, b"hit twice");
    }
}

#[test]
fn who_was_started_anew_is_told_what_it_had_put_down() {
    let mut net = Net::new(2, 30, Sending::default());
    net.worlds[0].post(b"long ago");
    net.run(1_000);
    let config = Config { founder: false, ..net.worlds[0].config.clone() };
    net.worlds[0] = World::new(net.now(0), config, Line::default()).unwrap();
    net.run(3_000);
    assert_eq!(net.worlds[0].ledger.get(Site(20)).unwrap().bytes, b"long ago");
    assert!(core::iter::from_fn(|| net.worlds[0].poll_event()).any(|event| event == Event::Remembered));
    assert_eq!(net.views()[1].1.len(), 2, "and is seen again");
}

#[test]
fn who_was_started_anew_goes_on_from_the_newest_that_anybody_remembers() {
    let mut net = Net::new(3, 30, Sending::default());
    net.run(4_000);
    let me = net.worlds[2].config.site;
    net.worlds[2].post(b"one");
    net.run(3_000);
    net.open = |from, to| from != 2 || to == 0;
    net.worlds[2].post(b"two");
    net.run(200);
    let newest = net.worlds[0].ledger.get(me).unwrap().version;
    assert!(net.worlds[1].ledger.get(me).unwrap().version < newest, "one of them missed the last");
    // It is back before they could tell each other, and has something to say at once.
    net.open = |_, _| true;
    let config = net.worlds[2].config.clone();
    net.worlds[2] = World::new(net.now(2), config, Line::default()).unwrap();
    net.worlds[2].post(b"three");
    net.run(4_000);
    assert!(core::iter::from_fn(|| net.worlds[2].poll_event()).any(|event| event == Event::Remembered));
    let versions = [0, 1, 2].map(|site| net.worlds[site].ledger.get(me).unwrap().version >> 12);
    assert_eq!(versions, [(newest >> 12) + 1; 3]);
}

#[test]
fn who_is_far_away_is_not_told() {
    let mut net = Net::new(2, 20, Sending::fixed(25));
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
fn who_leaves_is_gone_at_once() {
    let mut net = Net::new(2, 20, Sending::fixed(25));
    net.run(2_000);
    net.worlds[0].leave();
    let now = net.now(0);
    let mut buf = [0; MAX_DATAGRAM];
    let packet = net.worlds[0].poll_transmit(now, &mut buf).unwrap();
    assert_eq!(packet.to, To::All);
    let now = net.now(1);
    net.worlds[1].handle_datagram(now, Site(20), &buf[..packet.len]);
    net.worlds[0].sources.clear();
    net.run(30);
    assert_eq!(net.views()[1].1.len(), 1);
}

#[test]
fn one_of_many_cannot_say_that_all_others_slept() {
    let mut net = Net::new(4, 20, Sending::default());
    net.run(2_000);
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = crate::wire::PeerWorldDatagram::new(&mut buf).unwrap();
    datagram.put(crate::wire::PeerWorldItem::WorldTime(Some(TimeDelta::from_secs(86_400 * 200)))).unwrap();
    let len = datagram.len();
    // The lowest site of all says so: it is followed in what is a matter of milliseconds only.
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
fn a_world_that_is_too_old_for_another_tick_does_not_keep_its_site_busy() {
    let mut world = World::new(Instant::ZERO, Config::new(Site(1), true), Line::default()).unwrap();
    let late = Instant::ZERO + TimeDelta::from_secs(86_400 * 400);
    world.advance(late);
    assert!(world.poll_timeout(late) >= late + world.config.tick);
}

#[test]
fn a_world_whose_founder_is_gone_at_once_begins_all_the_same() {
    let mut net = Net::new(3, 20, Sending::default());
    net.open = |from, to| from != 0 && to != 0;
    net.run(4_000);
    let ticks = |net: &mut Net| [1, 2].map(|site| (site, net.now(site))).map(|(site, now)| net.worlds[site].tick(now));
    assert_eq!(ticks(&mut net), [None, None], "somebody may still tell them");
    net.run(4_000);
    let [Some(one), Some(other)] = ticks(&mut net) else { panic!("there is no time") };
    assert!(one.abs_diff(other) <= 1 && one > 200, "{one} {other}");
    net.open = |_, _| true;
    net.run(4_000);
    let now = net.now(0);
    let founder = net.worlds[0].tick(now).unwrap();
    assert!(
        ticks(&mut net).iter().all(|tick| tick.unwrap().abs_diff(founder) <= 1),
        "and they are one world in the end"
    );
}

#[test]
fn nothing_that_arrives_does_harm_or_fills_the_memory() {
    let mut world = World::new(Instant::ZERO, Config::new(Site(1), true), Line::default()).unwrap();
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as u32
    };
    let mut buf = [0; MAX_DATAGRAM];
    let mut most = 0;
    for round in 0..60_000 {
        let now = Instant::ZERO + TimeDelta::from_micros(round * 50);
        let from = Site(2 + next() % 3_000);
        let mut datagram = crate::wire::PeerWorldDatagram::new(&mut buf).unwrap();
        let state = [next() as u8; 9];
        let record = [7; MAX_RECORD];
        for _ in 0..next() % 4 {
            let update = crate::wire::EntityStateUpdate {
                entity_index: next() as u8,
                sequence: next() as u16,
                tick: next() as u16,
                state: &state[..next() as usize % 10],
            };
            _ = match next() % 6 {
                0 => datagram.put(crate::wire::PeerWorldItem::Update(update)),
                1 => datagram.put(crate::wire::PeerWorldItem::Probe(Instant::from_nanos(i64::from(next()) << 31))),
                2 => {
                    let (of, version) = (Site(next()), ledger::version(next() >> 12, &record));
                    datagram.put(crate::wire::PeerWorldItem::Record { site: of, version, bytes: &record })
                }
                3 => datagram.put(crate::wire::PeerWorldItem::RecordVersion { site: Site(next()), version: next() }),
                4 => datagram
                    .put(crate::wire::PeerWorldItem::WorldTime(Some(TimeDelta::from_nanos(i64::from(next()) << 30)))),
                _ => datagram.put(crate::wire::PeerWorldItem::OwnRegion(Region { x: next() as u8, y: 0 })),
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
            world.poll_view(now).map(|tick| world.show(tick).len());
        }
        while round % 5_000 == 0 && world.poll_transmit(now, &mut buf).is_some() {}
        most = most.max(world.memory());
    }
    assert!(world.peers.len() <= MAX_SITES && world.tracks.len() <= MAX_ENTITIES);
    assert!((1_000..=1_025).contains(&world.ledger.len()), "{} records", world.ledger.len());
    assert!(most < 24 << 20, "{most} bytes");
}

/// Says goodbye, and is started again at once: with an empty ledger, and with the others in its roster.
fn leave_and_restart(net: &mut Net, site: usize) {
    net.worlds[site].leave();
    net.play(site);
    restart(net, site);
}

fn restart(net: &mut Net, site: usize) {
    let config = Config { founder: false, ..net.worlds[site].config.clone() };
    let peers: Vec<Site> = net.worlds.iter().map(|world| world.config.site).collect();
    net.worlds[site] = World::new(net.now(site), config, Line::default()).unwrap();
    let now = net.now(site);
    peers.into_iter().for_each(|peer| net.worlds[site].add_peer(now, peer));
}

fn is_reminded(world: &mut World<Line>) -> bool {
    core::iter::from_fn(|| world.poll_event()).any(|event| event == Event::Remembered)
}

#[test]
fn a_site_that_left_and_restarts_at_once_is_reminded_of_its_record_at_once() {
    let mut net = Net::new(2, 30, Sending::default());
    net.run(4_000);
    net.worlds[1].post(b"hit once");
    net.run(2_000);
    leave_and_restart(&mut net, 1);
    net.run(300);
    assert!(is_reminded(&mut net.worlds[1]), "its peer may crash before the peer listens to it again");
}

#[test]
fn a_restarted_site_never_replaces_a_record_that_only_a_peer_out_of_reach_remembers() {
    let mut net = Net::new(3, 30, Sending::default());
    net.run(4_000);
    let me = net.worlds[2].config.site;
    // The second site never gets the record.
    net.open = |_, to| to != 1;
    net.worlds[2].post(b"hit once");
    net.run(1_500);
    net.worlds[2].post(b"hit twice");
    net.run(1_500);
    let old = net.worlds[0].ledger.get(me).unwrap().version;
    assert!(net.worlds[1].ledger.get(me).is_none());
    // The first site, which has it, is cut off while the restarted site counts more hits than before.
    net.open = |from, to| from != 0 && to != 0;
    restart(&mut net, 2);
    for hits in 0..6 {
        net.worlds[2].post(&[hits]);
        net.run(1_000);
    }
    net.open = |_, _| true;
    net.run(4_000);
    assert!(is_reminded(&mut net.worlds[2]), "it replaced what it had counted before");
    let versions = [0, 1, 2].map(|site| net.worlds[site].ledger.get(me).unwrap().version);
    assert!(versions[0] > old && versions == [versions[0]; 3], "{versions:?}, and {old} before");
}

#[test]
fn last_words_reach_a_peer_that_missed_the_goodbye_within_five_seconds() {
    let mut net = Net::new(3, 30, Sending::default());
    net.run(4_000);
    let gone = net.worlds[2].config.site;
    net.worlds[2].post(b"hit once");
    net.run(1_000);
    net.open = |from, to| from != 2 || to == 0;
    net.worlds[2].post(b"hit twice");
    net.worlds[2].leave();
    net.run(1);
    net.open = |from, to| from != 2 && to != 2;
    net.run(5_000);
    assert_eq!(net.worlds[0].ledger.get(gone).unwrap().bytes, b"hit twice");
    assert_eq!(net.worlds[1].ledger.get(gone).unwrap().bytes, b"hit twice", "it waits for a site that is silent");
}

#[test]
fn the_clock_of_a_site_that_left_and_restarts_is_measured_again() {
    let mut net = Net::new(2, 30, Sending::default());
    net.run(4_000);
    net.worlds[1].leave();
    net.play(1);
    net.open = |from, _| from != 1;
    net.run(1_500);
    net.open = |_, _| true;
    // Its clock counts from the start of its process.
    net.clocks[1] += TimeDelta::from_secs(500);
    restart(&mut net, 1);
    net.run(5_000);
    let truth = net.clocks[1] - net.clocks[0];
    let stats = net.worlds[0].peer_stats(net.now(0), net.worlds[1].config.site).unwrap();
    assert!(stats.offset.is_some_and(|offset| (offset - truth).abs() < TimeDelta::from_millis(1)), "{stats:?}");
}
