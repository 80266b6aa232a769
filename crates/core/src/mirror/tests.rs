//! Tests of mirrors, most of them over a simulated network in virtual time.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::codec::MAX_DATAGRAM;
use crate::mirror::message::{MirrorItem, MirrorItems};

const DELAY: TimeDelta = TimeDelta::from_millis(40);

/// The state of the game: for every object, the payloads of its actions and, of the states between two actions, the
/// last one.
type Objects = BTreeMap<(SourceId, u64), Vec<u8>>;

struct TestServer {
    mirror: Mirror,
    objects: Objects,
    delivered: Vec<(SourceId, u64)>,
}

struct MirrorNetwork {
    now: Instant,
    servers: Vec<Option<TestServer>>,
    in_flight: Vec<(Instant, usize, usize, Vec<u8>)>,
    /// Loss rule: returns whether a datagram is lost, given the number of its sender, the number of its receiver and
    /// one of its items.
    is_lost: fn(usize, usize, &MirrorItem<'_>) -> bool,
}

fn source(number: usize) -> SourceId {
    SourceId(100 + number as u32)
}

fn state_event(key: u64, value: u8) -> (u64, bool, [u8; 1]) {
    (key, true, [value])
}

fn action_event(key: u64, value: u8) -> (u64, bool, [u8; 1]) {
    (key, false, [value])
}

impl MirrorNetwork {
    fn new(count: usize, configure: impl Fn(&mut MirrorConfig)) -> Self {
        let mut net = Self { now: Instant::ZERO, servers: Vec::new(), in_flight: Vec::new(), is_lost: |_, _, _| false };
        (0..count).for_each(|number| net.add_server(number, &configure));
        net.run(2_000);
        net
    }

    fn add_server(&mut self, number: usize, configure: &impl Fn(&mut MirrorConfig)) {
        let mut config = MirrorConfig { is_founder: number == 0, ..MirrorConfig::new(source(number)) };
        configure(&mut config);
        let mut mirror = Mirror::new(self.now, config).unwrap();
        for other in 0..self.servers.len() {
            mirror.add_peer(self.now, source(other));
        }
        self.servers.push(Some(TestServer { mirror, objects: Objects::new(), delivered: Vec::new() }));
    }

    fn server(&mut self, number: usize) -> &mut TestServer {
        self.servers[number].as_mut().unwrap()
    }

    fn issue(&mut self, number: usize, (key, is_state, payload): (u64, bool, [u8; 1])) {
        let now = self.now;
        let payload = &payload;
        let new_event = if is_state { NewEvent::state(key, payload) } else { NewEvent::action(key, payload) };
        self.server(number).mirror.issue(now, new_event).unwrap();
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis {
            self.now += TimeDelta::from_millis(1);
            let now = self.now;
            let due: Vec<_> = self.in_flight.extract_if(.., |(at, ..)| *at <= now).collect();
            for (_, from, to, bytes) in due {
                if let Some(server) = self.servers[to].as_mut() {
                    server.mirror.handle_datagram(now, source(from), &bytes);
                }
            }
            for number in 0..self.servers.len() {
                self.step_server(number);
            }
        }
    }

    fn step_server(&mut self, number: usize) {
        let (now, is_item_lost) = (self.now, self.is_lost);
        let Some(server) = self.servers[number].as_mut() else { return };
        server.poll_all(now);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = server.mirror.poll_transmit(now, &mut buf) {
            let targets: Vec<SourceId> = match transmit.to {
                MirrorDestination::All => server.mirror.peers().collect(),
                MirrorDestination::One(source) => alloc::vec![source],
            };
            for target in targets.into_iter().map(|target| target.0 as usize - 100) {
                let bytes = &buf[..transmit.len];
                let is_lost =
                    MirrorItems::new(bytes).unwrap().flatten().any(|item| is_item_lost(number, target, &item));
                if !is_lost {
                    self.in_flight.push((now + DELAY, number, target, bytes.to_vec()));
                }
            }
        }
    }
}

impl TestServer {
    fn poll_all(&mut self, now: Instant) {
        while let Some(request) = self.mirror.poll_request(now) {
            match request {
                MirrorRequest::Snapshot { of } => {
                    let objects = self.objects.iter().filter(|((owner, _), _)| *owner == of);
                    let bytes: Vec<u8> = objects
                        .flat_map(|((_, key), value)| [*key as u8, value.len() as u8].into_iter().chain(value.clone()))
                        .collect();
                    self.mirror.handle_snapshot(now, of, &bytes);
                }
                MirrorRequest::Install { of, bytes } => {
                    self.objects.retain(|(owner, _), _| *owner != of);
                    let mut rest = &bytes[..];
                    while let [key, len, tail @ ..] = rest {
                        let (value, tail) = tail.split_at(usize::from(*len));
                        self.objects.insert((of, u64::from(*key)), value.to_vec());
                        rest = tail;
                    }
                }
            }
        }
        while let Some(delivery) = self.mirror.poll_delivery(now) {
            self.delivered.push((delivery.source, delivery.seq));
            let value = self.objects.entry((delivery.source, delivery.key)).or_default();
            let Some(first) = delivery.payload.first() else { continue };
            // A state replaces the states since the last action; an action is appended to the value.
            if *first < 100 {
                while value.last().is_some_and(|last| *last < 100) {
                    value.pop();
                }
            }
            value.push(*first);
        }
    }
}

#[track_caller]
fn assert_all_equal(net: &MirrorNetwork, expected: &[(usize, u64, &[u8])]) {
    let expected: Objects =
        expected.iter().map(|(owner, key, value)| ((source(*owner), *key), value.to_vec())).collect();
    for (number, server) in net.servers.iter().enumerate() {
        if let Some(server) = server {
            assert_eq!(server.objects, expected, "server {number}");
        }
    }
}

#[test]
fn correlated_events_keep_their_order_and_others_are_delivered_at_once() {
    let mut net = MirrorNetwork::new(3, |config| config.policy = DropPolicy::Off);
    // The first event is lost once, on its way to server 1.
    net.is_lost = |from, to, item| {
        (from, to) == (0, 1)
            && matches!(item, MirrorItem::Event(event) if event.seq == 1 && event.issued_at.as_nanos() > 0)
    };
    for event in [action_event(1, 101), action_event(1, 102), action_event(2, 103)] {
        net.issue(0, event);
        net.run(1);
    }
    net.is_lost = |_, _, _| false;
    net.run(45);
    assert_eq!(net.server(1).delivered, [(source(0), 3)], "an event of another object must not wait");
    net.run(200);
    assert_eq!(net.server(1).delivered, [3, 1, 2].map(|seq| (source(0), seq)));
    assert_all_equal(&net, &[(0, 1, &[101, 102]), (0, 2, &[103])]);
}

#[test]
fn total_order_is_the_same_on_all_mirrors() {
    let mut net =
        MirrorNetwork::new(4, |config| (config.order, config.policy) = (DeliveryOrder::Total, DropPolicy::Off));
    net.is_lost = |from, to, item| {
        let MirrorItem::Event(event) = item else { return false };
        (event.seq as usize + from * 3 + to).is_multiple_of(7) && event.issued_at.as_nanos() % 3 != 0
    };
    for step in 0..200 {
        net.issue(step % 4, action_event(step as u64 % 3, 100 + step as u8 % 100));
        net.run(5);
    }
    net.is_lost = |_, _, _| false;
    net.run(2_000);
    let first = net.server(0).delivered.clone();
    assert_eq!(first.len(), 200);
    for number in 1..4 {
        assert_eq!(net.server(number).delivered, first);
        assert_eq!(net.server(number).mirror.stats().out_of_order, 0);
    }
}

#[test]
fn lost_obsolete_event_is_neither_held_nor_requested() {
    let mut net = MirrorNetwork::new(2, |config| {
        config.policy = DropPolicy::OnOff { threshold: TimeDelta::from_millis(10) };
        config.measure = GtdMeasure::Arrival;
    });
    net.is_lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 2);
    for event in [state_event(1, 1), state_event(1, 2), state_event(1, 3)] {
        net.issue(0, event);
        net.run(1);
    }
    net.run(60);
    let stats = *net.server(1).mirror.stats();
    assert_eq!((stats.skipped, stats.requested), (1, 0));
    assert_all_equal(&net, &[(0, 1, &[3])]);
    assert_eq!(net.server(1).mirror.settled(source(0)), 3);
}

#[test]
fn adaptive_policy_waits_only_for_events_that_can_arrive_in_time() {
    for (threshold, skipped) in [(200, 0), (100, 1)] {
        let threshold = TimeDelta::from_millis(threshold);
        let mut net = MirrorNetwork::new(2, |config| config.policy = DropPolicy::Adaptive { threshold });
        net.is_lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 2);
        for event in [state_event(1, 1), state_event(1, 2)] {
            net.issue(0, event);
            net.run(1);
        }
        net.is_lost = |_, _, _| false;
        net.issue(0, state_event(1, 3));
        net.run(300);
        let stats = *net.server(1).mirror.stats();
        assert_eq!((stats.skipped, stats.over_threshold), (skipped, 0), "{threshold}");
        assert_all_equal(&net, &[(0, 1, &[3])]);
    }
}

#[test]
fn loss_of_the_last_event_is_detected() {
    let mut net = MirrorNetwork::new(2, |_| ());
    net.is_lost = |_, _, item| matches!(item, MirrorItem::Event(_));
    net.issue(0, action_event(1, 111));
    net.run(5);
    net.is_lost = |_, _, _| false;
    net.run(400);
    assert_all_equal(&net, &[(0, 1, &[111])]);
}

#[test]
fn late_joiner_gets_history_or_a_snapshot() {
    for (count, snapshots) in [(50, 0), (900, 1)] {
        let mut net = MirrorNetwork::new(2, |_| ());
        for step in 0..count {
            net.issue(0, state_event(step % 5 + 1, step as u8 % 100));
            net.run(2);
        }
        net.issue(0, action_event(1, 200));
        net.run(500);
        net.add_server(2, &|_| ());
        net.run(3_000);
        let expected = net.server(0).objects.clone();
        assert_eq!(net.server(2).objects, expected);
        assert_eq!(net.server(2).mirror.stats().snapshots.1, snapshots);
        assert_eq!(net.server(2).mirror.settled(source(0)), count + 1);
    }
}

#[test]
fn event_of_a_dead_server_known_to_one_mirror_reaches_all() {
    let mut net = MirrorNetwork::new(3, |_| ());
    net.is_lost = |from, to, _| (from, to) == (0, 2);
    net.issue(0, action_event(1, 101));
    net.issue(0, action_event(1, 102));
    net.run(60);
    net.servers[0] = None;
    net.run(6_000);
    assert_all_equal(&net, &[(0, 1, &[101, 102])]);
    let events: Vec<MirrorEvent> = core::iter::from_fn(|| net.server(2).mirror.poll_event()).collect();
    assert!(events.contains(&MirrorEvent::PeerLeft(source(0))));
}

#[test]
fn short_and_long_partitions_heal() {
    for millis in [1_500, 9_000] {
        let mut net = MirrorNetwork::new(3, |config| config.order = DeliveryOrder::Total);
        net.is_lost = |from, to, _| (from == 0) != (to == 0);
        for step in 0..millis / 5 {
            net.issue(0, state_event(1, step as u8 % 100));
            net.issue(1, state_event(2, step as u8 % 50));
            net.run(5);
        }
        net.is_lost = |_, _, _| false;
        net.run(6_000);
        let expected = net.server(0).objects.clone();
        assert_eq!(expected.len(), 2);
        (1..3).for_each(|number| assert_eq!(net.server(number).objects, expected, "after {millis} ms"));
    }
}

#[test]
fn two_curve_policy_reports_abandoned_events() {
    let tiny = |min, max| DropCurve {
        min: TimeDelta::from_millis(min),
        max: TimeDelta::from_millis(max),
        max_drop_permille: 1_000,
        average_shift: 0,
    };
    let mut net = MirrorNetwork::new(2, |config| {
        config.policy = DropPolicy::TwoCurve { obsolete: tiny(1, 2), others: tiny(10, 11) };
        config.measure = GtdMeasure::Arrival;
    });
    net.is_lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 1);
    net.issue(0, action_event(1, 101));
    net.run(1);
    net.issue(0, action_event(1, 102));
    net.run(100);
    let server = net.server(1);
    let events: Vec<MirrorEvent> = core::iter::from_fn(|| server.mirror.poll_event()).collect();
    assert!(events.contains(&MirrorEvent::EventAbandoned { source: source(0), seq: 1 }), "{events:?}");
    assert_eq!(server.mirror.stats().abandoned, 1);
    assert_eq!(server.delivered, [(source(0), 2)]);
}

#[test]
fn random_datagrams_do_not_panic_and_memory_is_bounded() {
    let mut net = MirrorNetwork::new(1, |_| ());
    let mut random = 7u64;
    let mut buf = [0u8; 60];
    for _ in 0..20_000 {
        for byte in &mut buf {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (random >> 60) as u8;
        }
        buf[0] = 0x35;
        let now = net.now;
        net.server(0).mirror.handle_datagram(now, SourceId((random >> 40) as u32 % 400), &buf);
        net.now += TimeDelta::from_micros(100);
        net.server(0).poll_all(now);
        let mut out_buf = [0; MAX_DATAGRAM];
        while net.server(0).mirror.poll_transmit(now, &mut out_buf).is_some() {}
    }
    assert!(net.server(0).mirror.memory() < 200 << 20, "{}", net.server(0).mirror.memory());
}

#[test]
fn invalid_events_and_configs_are_rejected() {
    let mut mirror = Mirror::new(Instant::ZERO, MirrorConfig::new(SourceId(1))).unwrap();
    assert_eq!(mirror.issue(Instant::ZERO, NewEvent::action(1, b"x")), Err(IssueError::NoGroupTime));
    let mut mirror =
        Mirror::new(Instant::ZERO, MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) }).unwrap();
    assert_eq!(mirror.issue(Instant::ZERO, NewEvent::action(1, &[0; MAX_PAYLOAD + 1])), Err(IssueError::TooLong));
    for _ in 0..MAX_UNSETTLED {
        mirror.issue(Instant::ZERO, NewEvent::action(1, b"x")).unwrap();
    }
    assert_eq!(mirror.issue(Instant::ZERO, NewEvent::action(1, b"x")), Err(IssueError::TooManyPending));
    for bad in [
        MirrorConfig { max_obsolete_set: 0, ..MirrorConfig::new(SourceId(1)) },
        MirrorConfig { history_limits: (9, 8), ..MirrorConfig::new(SourceId(1)) },
    ] {
        assert!(Mirror::new(Instant::ZERO, bad).is_err());
    }
}

#[test]
fn peer_that_left_is_not_present_again_from_late_datagrams() {
    let mut net = MirrorNetwork::new(2, |_| {});
    net.issue(1, action_event(1, 7));
    net.server(1).mirror.leave();
    net.run(100);
    net.server(0).mirror.remove_peer(source(1));
    net.run(3_000);
    assert_eq!(net.server(0).objects.get(&(source(1), 1)), Some(&vec![7]), "the final event must be delivered");
    let events: Vec<MirrorEvent> = core::iter::from_fn(|| net.server(0).mirror.poll_event()).collect();
    assert_eq!(events.last(), Some(&MirrorEvent::PeerLeft(source(1))), "{events:?}");
}

#[test]
fn sequence_numbers_beyond_32_bits_work() {
    let mut net = MirrorNetwork::new(2, |_| ());
    net.issue(0, state_event(9, 1));
    net.run(100);
    // Just below 2³², as after ten days at 5,000 events per second.
    let (now, before) = (net.now, u64::from(u32::MAX) - 20);
    let mirror = &mut net.server(0).mirror;
    mirror.streams.get_mut(&source(0)).unwrap().restart_from_snapshot(now, before, &[], None);
    mirror.last_sent_seq = before;
    net.run(1_000);
    assert_eq!(
        net.server(1).mirror.settled(source(0)),
        before,
        "a snapshot must cover sequence numbers beyond 32 bits"
    );
    net.is_lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq % 7 == 3);
    for step in 0..100 {
        net.issue(0, state_event(step % 3 + 1, step as u8));
        net.run(5);
    }
    net.is_lost = |_, _, _| false;
    net.issue(0, state_event(9, 2));
    net.run(1_000);
    assert_eq!(net.server(1).mirror.settled(source(0)), before + 101);
    assert_all_equal(&net, &[(0, 1, &[99]), (0, 2, &[97]), (0, 3, &[98]), (0, 9, &[2])]);
}

#[test]
fn largest_event_fits_in_a_datagram() {
    let mut buf = [0; MAX_DATAGRAM];
    let mut obsolete_set = [0; MAX_OBSOLETE_SET * MAX_SEQ_DELTA_SIZE];
    let mut writer = crate::codec::ByteWriter::new(&mut obsolete_set);
    let members = (1..=MAX_OBSOLETE_SET as u64).map(|back| MAX_SEQ - back * (MAX_SEQ / (MAX_OBSOLETE_SET as u64 + 1)));
    ObsoleteSet::write(MAX_SEQ, members, &mut writer).unwrap();
    assert_eq!(writer.len(), MAX_OBSOLETE_SET * MAX_SEQ_DELTA_SIZE);
    let event = EncodedEvent {
        source: source(0),
        seq: MAX_SEQ,
        issued_at: GroupInstant::from_nanos(1),
        key: 7,
        after: 1,
        is_barrier: false,
        replaces: true,
        obsolete_set: ObsoleteSet::from_bytes(MAX_SEQ, &obsolete_set),
        payload: &[7; MAX_PAYLOAD],
    };
    crate::mirror::message::MirrorDatagramWriter::new(&mut buf).unwrap().put(&MirrorItem::Event(event)).unwrap();
}

/// Encodes one item as a datagram.
fn encode_item(item: &MirrorItem<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = crate::mirror::message::MirrorDatagramWriter::new(&mut buf).unwrap();
    datagram.put(item).unwrap();
    let len = datagram.len();
    buf[..len].to_vec()
}

#[test]
fn have_reports_are_bounded_by_the_number_of_sources() {
    let mut net = MirrorNetwork::new(2, |_| ());
    let now = net.now;
    let mirror = &mut net.server(0).mirror;
    for number in 0..2 * MAX_SOURCES as u32 {
        let from = SourceId(1_000 + number);
        mirror.handle_datagram(
            now,
            from,
            &encode_item(&MirrorItem::Heartbeat { at: GroupInstant::from_nanos(1), last_event: 0 }),
        );
        let have = crate::mirror::message::StreamStatus { source: from, oldest: 1, settled_end: 5, newest: 5 };
        mirror.handle_datagram(now, source(1), &encode_item(&MirrorItem::StreamStatus(have)));
        let peer = &mirror.peers[&source(1)];
        assert_eq!(peer.stream_status(from), Some(&have), "source {number}");
        mirror.remove_peer(from);
    }
    let have = |from: &SourceId| mirror.peers[&source(1)].stream_status(*from).is_some();
    assert!((1_000..1_512).map(SourceId).filter(have).count() <= MAX_SOURCES);
}

#[test]
fn control_for_an_unknown_event_does_not_delay_other_peers() {
    let mut net = MirrorNetwork::new(3, |_| ());
    let now = net.now;
    let mirror = &mut net.server(0).mirror;
    let mut buf = [0; MAX_DATAGRAM];
    while mirror.poll_transmit(now, &mut buf).is_some() {}
    mirror.push_control(source(1), UnicastMessage::Event(source(1), 77));
    mirror.push_control(source(2), UnicastMessage::Probe);
    let Some(MirrorTransmit { to, len }) = mirror.poll_transmit(now, &mut buf) else {
        panic!("the probe must be sent")
    };
    assert_eq!((to, &buf[..len]), (MirrorDestination::One(source(2)), &encode_item(&MirrorItem::Probe(now))[..]));
    assert_eq!(mirror.poll_transmit(now, &mut buf), None);
}

#[test]
fn oversized_snapshot_is_reported_at_both_ends() {
    let mut net = MirrorNetwork::new(2, |config| (config.history_limits, config.max_snapshot_size) = ((0, 64), 50));
    for step in 0..200 {
        net.issue(0, action_event(1 + step % 20, 101));
        net.run(2);
    }
    net.add_server(2, &|config| (config.history_limits, config.max_snapshot_size) = ((0, 64), 50));
    net.run(5_000);
    let take_events =
        |server: &mut TestServer| -> Vec<MirrorEvent> { core::iter::from_fn(|| server.mirror.poll_event()).collect() };
    let events = take_events(net.server(0));
    let too_long =
        events.iter().filter(|event| matches!(event, MirrorEvent::SnapshotTooLong { of, .. } if *of == source(0)));
    assert_eq!(too_long.count(), 1, "reported once, not with every request: {events:?}");
    let events = take_events(net.server(2));
    assert!(events.contains(&MirrorEvent::SnapshotUnavailable { of: source(0), from: source(0) }), "{events:?}");
}
