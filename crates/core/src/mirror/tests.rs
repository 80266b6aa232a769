//! Mirrors and a fake wire in virtual time.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::wire::{MAX_DATAGRAM, MirrorItem, MirrorItems};

const DELAY: TimeDelta = TimeDelta::from_millis(40);

/// The game: of every object its value, and how it came to be.
type Objects = BTreeMap<(Source, u64), Vec<u8>>;

struct Server {
    mirror: Mirror,
    objects: Objects,
    order: Vec<(Source, u64)>,
}

struct Net {
    now: Instant,
    servers: Vec<Option<Server>>,
    wire: Vec<(Instant, usize, usize, Vec<u8>)>,
    /// What gets lost: from, to, and what it says.
    lost: fn(usize, usize, &MirrorItem<'_>) -> bool,
}

fn source(number: usize) -> Source {
    Source(100 + number as u32)
}

fn moved(key: u64, to: u8) -> (u64, bool, [u8; 1]) {
    (key, true, [to])
}

fn did(key: u64, what: u8) -> (u64, bool, [u8; 1]) {
    (key, false, [what])
}

impl Net {
    fn new(count: usize, change: impl Fn(&mut Config)) -> Self {
        let mut net = Self { now: Instant::ZERO, servers: Vec::new(), wire: Vec::new(), lost: |_, _, _| false };
        (0..count).for_each(|number| net.enter(number, &change));
        net.run(2_000);
        net
    }

    fn enter(&mut self, number: usize, change: &impl Fn(&mut Config)) {
        let mut config = Config { founder: number == 0, ..Config::new(source(number)) };
        change(&mut config);
        let mut mirror = Mirror::new(self.now, config).unwrap();
        for other in 0..self.servers.len() {
            mirror.add_peer(self.now, source(other));
        }
        self.servers.push(Some(Server { mirror, objects: Objects::new(), order: Vec::new() }));
    }

    fn server(&mut self, number: usize) -> &mut Server {
        self.servers[number].as_mut().unwrap()
    }

    fn issue(&mut self, number: usize, (key, is_move, payload): (u64, bool, [u8; 1])) {
        let now = self.now;
        let payload = &payload;
        let issue = if is_move { Issue::state(key, payload) } else { Issue::deed(key, payload) };
        self.server(number).mirror.issue(now, issue).unwrap();
    }

    fn run(&mut self, millis: i64) {
        for _ in 0..millis {
            self.now += TimeDelta::from_millis(1);
            let now = self.now;
            let due: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= now).collect();
            for (_, from, to, bytes) in due {
                if let Some(server) = self.servers[to].as_mut() {
                    server.mirror.handle_datagram(now, source(from), &bytes);
                }
            }
            for number in 0..self.servers.len() {
                self.work(number);
            }
        }
    }

    fn work(&mut self, number: usize) {
        let (now, lost) = (self.now, self.lost);
        let Some(server) = self.servers[number].as_mut() else { return };
        server.serve(now);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(transmit) = server.mirror.poll_transmit(now, &mut buf) {
            let targets: Vec<Source> = match transmit.to {
                To::All => server.mirror.peers().collect(),
                To::One(source) => alloc::vec![source],
            };
            for target in targets.into_iter().map(|target| target.0 as usize - 100) {
                let bytes = &buf[..transmit.len];
                let is_lost = MirrorItems::new(bytes).unwrap().flatten().any(|item| lost(number, target, &item));
                if !is_lost {
                    self.wire.push((now + DELAY, number, target, bytes.to_vec()));
                }
            }
        }
    }
}

impl Server {
    fn serve(&mut self, now: Instant) {
        while let Some(request) = self.mirror.poll_request(now) {
            match request {
                Request::Snapshot { of } => {
                    let objects = self.objects.iter().filter(|((owner, _), _)| *owner == of);
                    let bytes: Vec<u8> = objects
                        .flat_map(|((_, key), value)| [*key as u8, value.len() as u8].into_iter().chain(value.clone()))
                        .collect();
                    self.mirror.handle_snapshot(now, of, &bytes);
                }
                Request::Install { of, bytes } => {
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
            self.order.push((delivery.source, delivery.seq));
            let value = self.objects.entry((delivery.source, delivery.key)).or_default();
            let Some(what) = delivery.payload.first() else { continue };
            // A move replaces what moves since the last deed did; a deed adds to what was.
            if *what < 100 {
                while value.last().is_some_and(|last| *last < 100) {
                    value.pop();
                }
            }
            value.push(*what);
        }
    }
}

#[track_caller]
fn assert_all_equal(net: &Net, wanted: &[(usize, u64, &[u8])]) {
    let wanted: Objects = wanted.iter().map(|(owner, key, value)| ((source(*owner), *key), value.to_vec())).collect();
    for (number, server) in net.servers.iter().enumerate() {
        if let Some(server) = server {
            assert_eq!(server.objects, wanted, "server {number}");
        }
    }
}

#[test]
fn what_is_correlated_keeps_its_order_and_what_is_not_comes_at_once() {
    let mut net = Net::new(3, |config| config.policy = Policy::Off);
    // The first is lost on its way to server 1, once.
    net.lost = |from, to, item| {
        (from, to) == (0, 1)
            && matches!(item, MirrorItem::Event(event) if event.seq == 1 && event.issued_at.as_nanos() > 0)
    };
    for event in [did(1, 101), did(1, 102), did(2, 103)] {
        net.issue(0, event);
        net.run(1);
    }
    net.lost = |_, _, _| false;
    net.run(45);
    assert_eq!(net.server(1).order, [(source(0), 3)], "another object does not wait");
    net.run(200);
    assert_eq!(net.server(1).order, [3, 1, 2].map(|seq| (source(0), seq)));
    assert_all_equal(&net, &[(0, 1, &[101, 102]), (0, 2, &[103])]);
}

#[test]
fn in_total_order_all_see_the_same() {
    let mut net = Net::new(4, |config| (config.order, config.policy) = (Order::Total, Policy::Off));
    net.lost = |from, to, item| {
        let MirrorItem::Event(event) = item else { return false };
        (event.seq as usize + from * 3 + to).is_multiple_of(7) && event.issued_at.as_nanos() % 3 != 0
    };
    for step in 0..200 {
        net.issue(step % 4, did(step as u64 % 3, 100 + step as u8 % 100));
        net.run(5);
    }
    net.lost = |_, _, _| false;
    net.run(2_000);
    let first = net.server(0).order.clone();
    assert_eq!(first.len(), 200);
    for number in 1..4 {
        assert_eq!(net.server(number).order, first);
        assert_eq!(net.server(number).mirror.stats().late, 0);
    }
}

#[test]
fn an_obsolete_event_that_is_lost_is_neither_waited_nor_asked_for() {
    let mut net = Net::new(2, |config| {
        config.policy = Policy::OnOff { threshold: TimeDelta::from_millis(10) };
        config.measure = Measure::Arrival;
    });
    net.lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 2);
    for event in [moved(1, 1), moved(1, 2), moved(1, 3)] {
        net.issue(0, event);
        net.run(1);
    }
    net.run(60);
    let stats = *net.server(1).mirror.stats();
    assert_eq!((stats.skipped, stats.asked), (1, 0));
    assert_all_equal(&net, &[(0, 1, &[3])]);
    assert_eq!(net.server(1).mirror.settled(source(0)), 3);
}

#[test]
fn ours_waits_for_what_can_still_come_in_time_and_for_nothing_else() {
    for (threshold, skipped) in [(200, 0), (100, 1)] {
        let threshold = TimeDelta::from_millis(threshold);
        let mut net = Net::new(2, |config| config.policy = Policy::Adaptive { threshold });
        net.lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 2);
        for event in [moved(1, 1), moved(1, 2)] {
            net.issue(0, event);
            net.run(1);
        }
        net.lost = |_, _, _| false;
        net.issue(0, moved(1, 3));
        net.run(300);
        let stats = *net.server(1).mirror.stats();
        assert_eq!((stats.skipped, stats.over), (skipped, 0), "{threshold}");
        assert_all_equal(&net, &[(0, 1, &[3])]);
    }
}

#[test]
fn the_loss_of_the_last_event_is_noticed() {
    let mut net = Net::new(2, |_| ());
    net.lost = |_, _, item| matches!(item, MirrorItem::Event(_));
    net.issue(0, did(1, 111));
    net.run(5);
    net.lost = |_, _, _| false;
    net.run(400);
    assert_all_equal(&net, &[(0, 1, &[111])]);
}

#[test]
fn who_comes_late_gets_history_or_a_snapshot() {
    for (count, snapshots) in [(50, 0), (900, 1)] {
        let mut net = Net::new(2, |_| ());
        for step in 0..count {
            net.issue(0, moved(step % 5 + 1, step as u8 % 100));
            net.run(2);
        }
        net.issue(0, did(1, 200));
        net.run(500);
        net.enter(2, &|_| ());
        net.run(3_000);
        let wanted = net.server(0).objects.clone();
        assert_eq!(net.server(2).objects, wanted);
        assert_eq!(net.server(2).mirror.stats().snapshots.1, snapshots);
        assert_eq!(net.server(2).mirror.settled(source(0)), count + 1);
    }
}

#[test]
fn what_a_dead_server_told_one_all_get() {
    let mut net = Net::new(3, |_| ());
    net.lost = |from, to, _| (from, to) == (0, 2);
    net.issue(0, did(1, 101));
    net.issue(0, did(1, 102));
    net.run(60);
    net.servers[0] = None;
    net.run(6_000);
    assert_all_equal(&net, &[(0, 1, &[101, 102])]);
    let notices: Vec<Notice> = core::iter::from_fn(|| net.server(2).mirror.poll_notice()).collect();
    assert!(notices.contains(&Notice::Left(source(0))));
}

#[test]
fn a_partition_heals_also_when_it_was_long() {
    for millis in [1_500, 9_000] {
        let mut net = Net::new(3, |config| config.order = Order::Total);
        net.lost = |from, to, _| (from == 0) != (to == 0);
        for step in 0..millis / 5 {
            net.issue(0, moved(1, step as u8 % 100));
            net.issue(1, moved(2, step as u8 % 50));
            net.run(5);
        }
        net.lost = |_, _, _| false;
        net.run(6_000);
        let wanted = net.server(0).objects.clone();
        assert_eq!(wanted.len(), 2);
        (1..3).for_each(|number| assert_eq!(net.server(number).objects, wanted, "after {millis} ms"));
    }
}

#[test]
fn two_curves_name_what_they_give_up() {
    let tiny =
        |min, max| Curve { min: TimeDelta::from_millis(min), max: TimeDelta::from_millis(max), most: 1_000, weight: 0 };
    let mut net = Net::new(2, |config| {
        config.policy = Policy::TwoCurve { obsolete: tiny(1, 2), others: tiny(10, 11) };
        config.measure = Measure::Arrival;
    });
    net.lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq == 1);
    net.issue(0, did(1, 101));
    net.run(1);
    net.issue(0, did(1, 102));
    net.run(100);
    let server = net.server(1);
    let notices: Vec<Notice> = core::iter::from_fn(|| server.mirror.poll_notice()).collect();
    assert!(notices.contains(&Notice::GaveUp { source: source(0), seq: 1 }), "{notices:?}");
    assert_eq!(server.mirror.stats().gave_up, 1);
    assert_eq!(server.order, [(source(0), 2)]);
}

#[test]
fn no_bytes_do_harm_and_memory_is_bounded() {
    let mut net = Net::new(1, |_| ());
    let mut noise = 7u64;
    let mut buf = [0u8; 60];
    for _ in 0..20_000 {
        for byte in &mut buf {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (noise >> 60) as u8;
        }
        buf[0] = 0x35;
        let now = net.now;
        net.server(0).mirror.handle_datagram(now, Source((noise >> 40) as u32 % 400), &buf);
        net.now += TimeDelta::from_micros(100);
        net.server(0).serve(now);
        let mut out = [0; MAX_DATAGRAM];
        while net.server(0).mirror.poll_transmit(now, &mut out).is_some() {}
    }
    assert!(net.server(0).mirror.memory() < 200 << 20, "{}", net.server(0).mirror.memory());
}

#[test]
fn what_cannot_be_issued_is_refused() {
    let mut mirror = Mirror::new(Instant::ZERO, Config::new(Source(1))).unwrap();
    assert_eq!(mirror.issue(Instant::ZERO, Issue::deed(1, b"x")), Err(IssueError::NoTime));
    let mut mirror = Mirror::new(Instant::ZERO, Config { founder: true, ..Config::new(Source(1)) }).unwrap();
    assert_eq!(mirror.issue(Instant::ZERO, Issue::deed(1, &[0; MAX_PAYLOAD + 1])), Err(IssueError::TooLong));
    for _ in 0..WINDOW {
        mirror.issue(Instant::ZERO, Issue::deed(1, b"x")).unwrap();
    }
    assert_eq!(mirror.issue(Instant::ZERO, Issue::deed(1, b"x")), Err(IssueError::Full));
    for bad in [Config { run: 0, ..Config::new(Source(1)) }, Config { history: (9, 8), ..Config::new(Source(1)) }] {
        assert!(Mirror::new(Instant::ZERO, bad).is_err());
    }
}

#[test]
fn who_said_goodbye_is_not_back_a_moment_later() {
    let mut net = Net::new(2, |_| {});
    net.issue(1, did(1, 7));
    net.server(1).mirror.leave();
    net.run(100);
    net.server(0).mirror.remove_peer(source(1));
    net.run(3_000);
    assert_eq!(net.server(0).objects.get(&(source(1), 1)), Some(&vec![7]), "last words count");
    let notices: Vec<Notice> = core::iter::from_fn(|| net.server(0).mirror.poll_notice()).collect();
    assert_eq!(notices.last(), Some(&Notice::Left(source(1))), "{notices:?}");
}

#[test]
fn numbers_go_on_for_as_long_as_a_server_does() {
    let mut net = Net::new(2, |_| ());
    net.issue(0, moved(9, 1));
    net.run(100);
    // As after ten days.
    let (now, before) = (net.now, u64::from(u32::MAX) - 20);
    let mirror = &mut net.server(0).mirror;
    mirror.streams.get_mut(&source(0)).unwrap().restart(now, before, &[], None);
    mirror.sent = before;
    net.run(1_000);
    assert_eq!(net.server(1).mirror.settled(source(0)), before, "a snapshot goes that far");
    net.lost = |_, _, item| matches!(item, MirrorItem::Event(event) if event.seq % 7 == 3);
    for step in 0..100 {
        net.issue(0, moved(step % 3 + 1, step as u8));
        net.run(5);
    }
    net.lost = |_, _, _| false;
    net.issue(0, moved(9, 2));
    net.run(1_000);
    assert_eq!(net.server(1).mirror.settled(source(0)), before + 101);
    assert_all_equal(&net, &[(0, 1, &[99]), (0, 2, &[97]), (0, 3, &[98]), (0, 9, &[2])]);
}

#[test]
fn the_longest_event_fits_in_a_datagram() {
    let mut buf = [0; MAX_DATAGRAM];
    let mut run = [0; MAX_RUN * LONGEST_STEP];
    let mut writer = crate::wire::ByteWriter::new(&mut run);
    let members = (1..=MAX_RUN as u64).map(|back| MAX_SEQ - back * (MAX_SEQ / (MAX_RUN as u64 + 1)));
    ObsoleteSet::write(MAX_SEQ, members, &mut writer).unwrap();
    assert_eq!(writer.len(), MAX_RUN * LONGEST_STEP);
    let event = EventRef {
        source: source(0),
        seq: MAX_SEQ,
        issued_at: GroupInstant::from_nanos(1),
        key: 7,
        after: 1,
        is_barrier: false,
        replaces: true,
        obsolete_set: ObsoleteSet::from_bytes(MAX_SEQ, &run),
        payload: &[7; MAX_PAYLOAD],
    };
    crate::wire::MirrorDatagram::new(&mut buf).unwrap().put(&MirrorItem::Event(event)).unwrap();
}

/// What somebody tells, as a datagram.
fn said(item: &MirrorItem<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = crate::wire::MirrorDatagram::new(&mut buf).unwrap();
    datagram.put(item).unwrap();
    let len = datagram.len();
    buf[..len].to_vec()
}

#[test]
fn of_those_who_came_and_went_no_more_is_kept_than_of_sources() {
    let mut net = Net::new(2, |_| ());
    let now = net.now;
    let mirror = &mut net.server(0).mirror;
    for number in 0..2 * MAX_SOURCES as u32 {
        let of = Source(1_000 + number);
        mirror.handle_datagram(
            now,
            of,
            &said(&MirrorItem::Heartbeat { at: GroupInstant::from_nanos(1), last_event: 0 }),
        );
        let have = crate::wire::StreamStatus { source: of, oldest: 1, settled_end: 5, newest: 5 };
        mirror.handle_datagram(now, source(1), &said(&MirrorItem::StreamStatus(have)));
        let peer = &mirror.peers[&source(1)];
        assert_eq!(peer.have(of), Some(&have), "source {number}");
        mirror.remove_peer(of);
    }
    let have = |of: &Source| mirror.peers[&source(1)].have(*of).is_some();
    assert!((1_000..1_512).map(Source).filter(have).count() <= MAX_SOURCES);
}

#[test]
fn what_there_is_no_more_to_say_of_costs_nobody_else_a_word() {
    let mut net = Net::new(3, |_| ());
    let now = net.now;
    let mirror = &mut net.server(0).mirror;
    let mut buf = [0; MAX_DATAGRAM];
    while mirror.poll_transmit(now, &mut buf).is_some() {}
    mirror.push_control(source(1), Control::Event(source(1), 77));
    mirror.push_control(source(2), Control::Probe);
    let Some(Transmit { to, len }) = mirror.poll_transmit(now, &mut buf) else { panic!("there is a probe to send") };
    assert_eq!((to, &buf[..len]), (To::One(source(2)), &said(&MirrorItem::Probe(now))[..]));
    assert_eq!(mirror.poll_transmit(now, &mut buf), None);
}

#[test]
fn a_state_that_is_too_long_for_a_snapshot_is_told_of_at_both_ends() {
    let mut net = Net::new(2, |config| (config.history, config.snapshot) = ((0, 64), 50));
    for step in 0..200 {
        net.issue(0, did(1 + step % 20, 101));
        net.run(2);
    }
    net.enter(2, &|config| (config.history, config.snapshot) = ((0, 64), 50));
    net.run(5_000);
    let notices =
        |server: &mut Server| -> Vec<Notice> { core::iter::from_fn(|| server.mirror.poll_notice()).collect() };
    let told = notices(net.server(0));
    let too_long = told.iter().filter(|notice| matches!(notice, Notice::TooLong { of, .. } if *of == source(0)));
    assert_eq!(too_long.count(), 1, "once, and not with every question: {told:?}");
    let told = notices(net.server(2));
    assert!(told.contains(&Notice::NoSnapshot { of: source(0), from: source(0) }), "{told:?}");
}
