//! Tests of a server and two clients over a simulated network, in most of which A commands an object and B follows it.

use alloc::vec::Vec;

use super::*;
use crate::codec::MAX_DATAGRAM;
use crate::motion::message::{MotionDatagramWriter, MotionHeader, MotionItem, MotionItems};
use crate::time::{Instant, TimeDelta};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const AVATAR: ObjectId = ObjectId(7);
const LINEAR: LinearPredictor = LinearPredictor { max_speed: 20_000 };
const FRAME: TimeDelta = TimeDelta::from_millis(5);

fn millis(millis: i64) -> TimeDelta {
    TimeDelta::from_millis(millis)
}

fn at(ms: i64) -> Instant {
    Instant::ZERO + millis(ms)
}

/// Returns the number of a command in epoch 0, which ends with the first server decision.
fn command_number(count: u32) -> CommandNumber {
    CommandNumber { epoch: 0, count }
}

/// A datagram in flight: arrival time, client, whether it goes to the server, and contents.
type InFlightDatagram = (Instant, ClientId, bool, Vec<u8>);

struct TestBed {
    now: Instant,
    server: MotionServer<LinearPredictor>,
    clients: Vec<(ClientId, MotionClient<LinearPredictor>)>,
    in_flight: Vec<InFlightDatagram>,
    delay: TimeDelta,
    /// Loss interval in datagrams: 3 loses every third one.
    lose_every: usize,
    sent: usize,
    /// Whether all datagrams are lost.
    is_cut: bool,
}

impl TestBed {
    fn new(config: MotionConfig, delay: TimeDelta) -> Self {
        let now = Instant::ZERO;
        let mut server = MotionServer::new(now, config, LINEAR).unwrap();
        server.spawn(now, AVATAR, Some(A), MilliVec2::default(), MilliVec2::default());
        let mut clients: Vec<_> = [A, B].map(|id| (id, MotionClient::new(now, config, LINEAR).unwrap())).into();
        clients[0].1.own(AVATAR);
        clients[1].1.subscribe(AVATAR);
        Self { now, server, clients, in_flight: Vec::new(), delay, lose_every: usize::MAX, sent: 0, is_cut: false }
    }

    fn client_a(&mut self) -> &mut MotionClient<LinearPredictor> {
        &mut self.clients[0].1
    }

    fn command(&mut self, x: i64, y: i64) {
        let now = self.now;
        assert!(self.client_a().command(now, AVATAR, MilliVec2::from_units(x, y)));
    }

    fn send(&mut self, client: ClientId, is_to_server: bool, bytes: &[u8]) {
        self.sent += 1;
        if !self.is_cut && !self.sent.is_multiple_of(self.lose_every) {
            self.in_flight.push((self.now + self.delay, client, is_to_server, bytes.to_vec()));
        }
    }

    fn step(&mut self) {
        self.now += FRAME;
        let now = self.now;
        let arrived: Vec<InFlightDatagram> = self.in_flight.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, client, is_to_server, bytes) in arrived {
            if is_to_server {
                self.server.handle_datagram(now, client, &bytes);
            } else if let Some((_, to)) = self.clients.iter_mut().find(|(id, _)| *id == client) {
                to.handle_datagram(now, &bytes);
            }
        }
        while let Some(event) = self.server.poll_event() {
            if let MotionServerEvent::SubscriptionRequested(client, object) = event {
                self.server.show(client, object);
            }
        }
        let mut buf = [0; MAX_DATAGRAM];
        while let Some((client, len)) = self.server.poll_transmit(now, &mut buf) {
            self.send(client, false, &buf[..len]);
        }
        for index in 0..self.clients.len() {
            while let Some(len) = self.clients[index].1.poll_transmit(now, &mut buf) {
                self.send(self.clients[index].0, true, &buf[..len]);
            }
        }
    }

    fn run(&mut self, until: Instant) {
        while self.now < until {
            self.step();
        }
    }

    /// Returns the present moments of the object's copies at A, at the server and at B.
    fn moments(&self) -> [ObjectMoment<MilliVec2>; 3] {
        let moment_of = |index: usize| self.clients[index].1.moment_at(self.now, AVATAR).unwrap();
        [moment_of(0), self.server.moment_at(self.now, AVATAR).unwrap(), moment_of(1)]
    }

    /// Asserts that the copies at A, at the server and at B have the same newest command, that those at A and at B are
    /// less than 0.05 units from that at the server, and that their timers differ by less than 2 ms.
    fn assert_agreed(&self) {
        let moments = self.moments();
        let agrees = |moment: &ObjectMoment<MilliVec2>| {
            moment.number == moments[1].number && self.is_near(&moment.state, &moments[1].state)
        };
        assert!(moments.iter().all(agrees), "{moments:#?}");
        assert!(
            self.timer_differences_ms().iter().all(|difference| *difference < 2.0),
            "{:?}",
            self.timer_differences_ms()
        );
    }

    fn is_near(&self, one: &MilliVec2, other: &MilliVec2) -> bool {
        LINEAR.distance(one, other) < 0.05
    }

    /// Returns the timer differences in milliseconds between A and the server, the server and B, and A and B. A copy
    /// that has not started the newest segment counts as at its beginning.
    fn timer_differences_ms(&self) -> [f64; 3] {
        let moments = self.moments();
        let newest = moments.iter().map(|moment| moment.number).max().unwrap();
        let [a, server, b] =
            moments.map(|moment| if moment.number == newest { moment.timer.value().as_millis_f64() } else { 0.0 });
        [(a - server).abs(), (server - b).abs(), (a - b).abs()]
    }
}

fn connected_test_bed(config: MotionConfig, delay_ms: i64) -> TestBed {
    let mut bed = TestBed::new(config, millis(delay_ms));
    bed.run(at(2_000));
    assert!(bed.moments().iter().all(|moment| moment.number == command_number(0)));
    bed
}

#[test]
fn command_reaches_all_clients_and_timers_converge() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut bed = connected_test_bed(config, 80);
        bed.command(3, 4);
        bed.run(at(2_600));
        let moments = bed.moments();
        assert!(moments.iter().all(|moment| moment.number == command_number(1)), "{moments:?}");
        assert!(
            bed.timer_differences_ms().iter().all(|difference| *difference < 1.0),
            "{:?}",
            bed.timer_differences_ms()
        );
        assert!(LINEAR.distance(&moments[0].state, &moments[2].state) < 0.01);
    }
}

#[test]
fn owner_moves_at_once_and_is_never_far_ahead_of_the_server() {
    for (config, max_lead) in [(MotionConfig::paper(1), 91.0), (MotionConfig::clocks(1), 66.0)] {
        let mut bed = connected_test_bed(config, 80);
        bed.command(3, 4);
        let mut worst = [0.0f64; 3];
        for _ in 0..100 {
            bed.step();
            assert!(bed.moments()[0].state != MilliVec2::default());
            worst
                .iter_mut()
                .zip(bed.timer_differences_ms())
                .for_each(|(worst, difference)| *worst = worst.max(difference));
        }
        assert!(worst[0] <= max_lead && worst[1] <= 86.0 && worst[2] <= 160.0, "{config:?}: {worst:?}");
    }
}

#[test]
fn commands_within_the_combine_interval_are_combined() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 20);
    bed.command(3, 0);
    bed.run(at(2_030));
    bed.command(0, 4);
    bed.run(at(2_500));
    let moments = bed.moments();
    assert!(moments.iter().all(|moment| moment.number == command_number(1)));
    assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(3, 4)));
    bed.command(1, 0);
    bed.run(at(3_000));
    assert_eq!(bed.moments().map(|moment| moment.number), [command_number(2); 3]);
}

#[test]
fn lost_commands_are_retransmitted_and_all_paths_agree() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut bed = connected_test_bed(config, 30);
        bed.lose_every = 3;
        for turn in 0..20 {
            bed.command(turn % 5, 3 - turn % 7);
            bed.run(at(2_000 + 150 * (turn + 1)));
        }
        bed.run(at(8_000));
        let moments = bed.moments();
        assert_eq!(moments.map(|moment| moment.number), [command_number(20); 3]);
        let apart = LINEAR.distance(&moments[0].state, &moments[1].state)
            + LINEAR.distance(&moments[1].state, &moments[2].state);
        assert!(apart < 0.1, "{config:?}: {apart} {moments:?}");
    }
}

/// Restarts the server, which spawns the object in another place.
fn restart_server(bed: &mut TestBed) {
    let config = MotionConfig { incarnation: bed.server.config().incarnation + 1, ..*bed.server.config() };
    let mut server = MotionServer::new(bed.now, config, LINEAR).unwrap();
    server.spawn(bed.now, AVATAR, Some(A), MilliVec2::from_units(50, 50), MilliVec2::from_units(0, 3));
    bed.server = server;
}

#[test]
fn restarted_server_recovers_commands_from_its_clients() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        for commands in [0, 1, 3] {
            let mut bed = connected_test_bed(config, 30);
            for turn in 0..commands {
                bed.command(2, turn);
                bed.run(at(2_000 + 1_000 * (turn + 1)));
            }
            bed.run(at(6_000));
            let before = bed.moments()[0].state;
            restart_server(&mut bed);
            bed.run(at(9_000));
            bed.assert_agreed();
            let vector = *bed.server.vector(AVATAR).unwrap();
            let expected = if commands == 0 { MilliVec2::default() } else { MilliVec2::from_units(2, commands - 1) };
            assert_eq!(vector, expected, "commands issued before the restart remain valid");
            let expected_state = LINEAR.advance(&before, &vector, millis(3_000));
            assert!(
                LINEAR.distance(&expected_state, &bed.moments()[1].state) < 1.0,
                "{expected_state:?} {:?}",
                bed.moments()
            );
        }
    }
}

#[test]
fn decisions_of_an_earlier_server_incarnation_are_ignored() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    bed.command(2, 0);
    bed.run(at(3_000));
    bed.server.place(bed.now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
    bed.run(at(4_000));
    restart_server(&mut bed);
    bed.run(at(5_000));
    bed.command(0, 1);
    bed.run(at(8_000));
    bed.assert_agreed();
    assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 1)));
    restart_server(&mut bed);
    bed.server.place(bed.now, AVATAR, MilliVec2::from_units(-9, 0), MilliVec2::default());
    bed.run(at(11_000));
    bed.assert_agreed();
    assert_eq!(bed.moments()[0].state, MilliVec2::from_units(-9, 0), "the decision of the new server must apply");
}

#[test]
fn forgotten_client_resubscribes_after_a_long_silence() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut bed = connected_test_bed(config, 30);
        bed.command(1, 1);
        bed.run(at(3_000));
        bed.is_cut = true;
        for turn in 0..5 {
            bed.command(turn, 2);
            bed.run(at(3_000 + 2_500 * (turn + 1)));
        }
        assert_eq!(bed.server.clients().count(), 0, "the server must have removed all clients");
        bed.is_cut = false;
        bed.run(at(19_000));
        bed.command(0, 3);
        bed.run(at(21_000));
        bed.assert_agreed();
        assert_eq!(bed.moments()[2].number, command_number(7));
    }
}

#[test]
fn server_command_overrules_the_owner() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 80);
    bed.command(2, 0);
    bed.run(at(2_060));
    bed.server.command(bed.now, AVATAR, MilliVec2::from_units(0, 5));
    bed.run(at(4_000));
    bed.assert_agreed();
    assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 5)));
    bed.command(1, 0);
    bed.run(at(6_000));
    bed.assert_agreed();
    assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(1, 0)));
}

#[test]
fn new_owner_can_command_a_transferred_object() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 80);
    bed.command(1, 0);
    bed.run(at(3_000));
    bed.command(2, 0);
    bed.run(at(3_060));
    bed.server.transfer_ownership(AVATAR, Some(B));
    bed.client_a().subscribe(AVATAR);
    bed.clients[1].1.own(AVATAR);
    bed.run(at(4_000));
    bed.assert_agreed();
    assert_eq!(
        bed.server.vector(AVATAR),
        Some(&MilliVec2::from_units(1, 0)),
        "commands of the previous owner in flight are void"
    );
    assert!(!bed.clients[0].1.command(bed.now, AVATAR, MilliVec2::from_units(7, 7)), "A no longer controls the object");
    assert!(bed.clients[1].1.command(bed.now, AVATAR, MilliVec2::from_units(0, 4)));
    bed.run(at(6_000));
    bed.assert_agreed();
    assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 4)));
}

/// Encodes a datagram of A again with `number` as the number of its start states and commands.
fn with_command_number(bytes: &[u8], number: CommandNumber) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagramWriter::new(&mut buf, MotionItems::new(bytes).unwrap().header()).unwrap();
    for item in MotionItems::new(bytes).unwrap() {
        let item = match item.unwrap() {
            MotionItem::StartState { object, state, .. } => MotionItem::StartState { object, number, state },
            MotionItem::Command { object, previous_segment, vector, .. } => {
                MotionItem::Command { object, number, previous_segment, vector }
            }
            item => item,
        };
        datagram.put(item).unwrap();
    }
    let len = datagram.len();
    buf[..len].to_vec()
}

#[test]
fn client_cannot_override_the_server_with_a_huge_command_number() {
    for (number, malformed) in [(CommandNumber { epoch: u32::MAX, count: u32::MAX }, 1), (command_number(u32::MAX), 0)]
    {
        let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
        bed.command(2, 0);
        bed.run(at(2_055));
        let from_a = bed.in_flight.iter_mut().filter(|(_, client, is_to_server, _)| *client == A && *is_to_server);
        from_a.for_each(|(.., bytes)| *bytes = with_command_number(bytes, number));
        bed.run(at(2_085));
        assert_eq!(bed.server.malformed(), malformed);
        bed.server.place(bed.now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
        bed.run(at(4_000));
        assert!(bed.moments().iter().all(|moment| moment.state == MilliVec2::from_units(9, 9)), "{:?}", bed.moments());
        bed.command(0, 2);
        bed.run(at(6_000));
        bed.assert_agreed();
        assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 2)));
    }
}

#[test]
fn object_with_a_reused_id_is_a_new_object() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    (0..3).for_each(|turn| {
        bed.command(1, turn);
        bed.run(at(2_300 + 300 * turn));
    });
    bed.server.remove(AVATAR);
    bed.server.spawn(bed.now, AVATAR, Some(A), MilliVec2::from_units(-40, 7), MilliVec2::default());
    bed.run(at(4_000));
    assert!(bed.moments().iter().all(|moment| moment.state == MilliVec2::from_units(-40, 7)), "{:?}", bed.moments());
    bed.command(0, 1);
    bed.run(at(6_000));
    bed.assert_agreed();
    let epoch = bed.moments()[1].number.epoch;
    assert!(epoch > 0);
    // A late removal notice for the previous object has no effect; one for the present object removes it.
    let header =
        crate::motion::message::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: bed.now };
    for (epoch, exists) in [(epoch, true), (epoch + 1, false)] {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = MotionDatagramWriter::new(&mut buf, header).unwrap();
        datagram.put(MotionItem::Removed { object: AVATAR, epoch }).unwrap();
        let len = datagram.len();
        bed.client_a().handle_datagram(at(6_000), &buf[..len]);
        assert_eq!(bed.clients[0].1.moment_at(bed.now, AVATAR).is_some(), exists);
    }
}

#[test]
fn hidden_object_disappears_and_can_be_shown_again() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    bed.server.hide(B, AVATAR);
    bed.run(at(2_500));
    assert!(bed.clients[1].1.moment_at(bed.now, AVATAR).is_none());
    bed.run(at(7_000));
    assert!(bed.clients[1].1.moment_at(bed.now, AVATAR).is_none(), "the client must not subscribe again by itself");
    bed.clients[1].1.subscribe(AVATAR);
    bed.run(at(7_500));
    bed.assert_agreed();
}

#[test]
fn restarted_client_continues_from_the_server_state() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    bed.command(2, 0);
    bed.run(at(3_000));
    let mut restarted = MotionClient::new(bed.now, MotionConfig::clocks(2), LINEAR).unwrap();
    restarted.own(AVATAR);
    bed.clients[0].1 = restarted;
    bed.command(0, 2);
    bed.run(at(6_000));
    let moments = bed.moments();
    assert_eq!(moments.map(|moment| moment.number), [command_number(2); 3]);
    assert!(moments[1].state.x > 1_900 && moments[1].state.y > 1_900, "{moments:?}");
    assert!(bed.timer_differences_ms().iter().all(|difference| *difference < 2.0), "{:?}", bed.timer_differences_ms());
}

#[test]
fn server_placement_and_removal_reach_all_clients() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    bed.command(2, 0);
    bed.run(at(2_055));
    let now = bed.now;
    bed.server.place(now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
    bed.run(at(4_000));
    let moments = bed.moments();
    assert!(moments.iter().all(|moment| moment.state == MilliVec2::from_units(9, 9)), "{moments:?}");
    bed.server.remove(AVATAR);
    bed.run(at(5_000));
    assert!(bed.clients.iter().all(|(_, client)| client.moment_at(bed.now, AVATAR).is_none()));
}

/// Counts the removal notices that the server sends to B within 10 s in which B sends only empty datagrams.
fn count_removal_notices(bed: &mut TestBed) -> usize {
    let mut count = 0;
    for _ in 0..2_000 {
        bed.now += FRAME;
        let header =
            crate::motion::message::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: bed.now };
        let mut buf = [0; MAX_DATAGRAM];
        let len = MotionDatagramWriter::new(&mut buf, header).unwrap().len();
        bed.server.handle_datagram(bed.now, B, &buf[..len]);
        while let Some((client, len)) = bed.server.poll_transmit(bed.now, &mut buf) {
            let items = MotionItems::new(&buf[..len]).unwrap().map(Result::unwrap);
            count += items.filter(|item| client == B && matches!(item, MotionItem::Removed { .. })).count();
        }
    }
    count
}

#[test]
fn unknown_object_is_answered_once() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    let header =
        crate::motion::message::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: bed.now };
    for object in 1_000..1_300 {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = MotionDatagramWriter::new(&mut buf, header).unwrap();
        datagram.put(MotionItem::Subscribe(ObjectId(object))).unwrap();
        let len = datagram.len();
        bed.server.handle_datagram(bed.now, B, &buf[..len]);
    }
    assert_eq!(count_removal_notices(&mut bed), 300);
    bed.server.remove(AVATAR);
    let repeated = count_removal_notices(&mut bed);
    assert!(
        (2..=8).contains(&repeated),
        "the removal of an object known to B must be repeated 2 to 8 times: {repeated}"
    );
}

#[test]
fn displayed_state_never_jumps() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 80);
    let mut before = bed.moments()[2].displayed;
    for step in 0..400 {
        if step % 60 == 0 {
            bed.command(3 - step % 7, step % 5);
        }
        bed.step();
        let displayed = bed.moments()[2].displayed;
        // Twice an upper bound of the object's speed, plus the correction speed.
        let max_step = (2.0 * 5.0 + 10.0) * FRAME.as_secs_f64() + 0.002;
        assert!(LINEAR.distance(&before, &displayed) <= max_step, "{before:?} {displayed:?}");
        before = displayed;
    }
}

#[test]
fn discrepancy_counts_from_the_time_the_server_started_the_segment() {
    let mut bed = connected_test_bed(MotionConfig { correction_speed: None, ..MotionConfig::clocks(1) }, 80);
    bed.command(1, 0);
    let mut area = [0.0; 2];
    for _ in 0..300 {
        bed.step();
        let [a, server, b] = bed.moments().map(|moment| moment.displayed);
        area[0] += LINEAR.distance(&a, &server) * FRAME.as_secs_f64();
        area[1] += LINEAR.distance(&server, &b) * FRAME.as_secs_f64();
    }
    for (index, area) in area.into_iter().enumerate() {
        let consistency = bed.clients[index].1.consistency(AVATAR).unwrap();
        // The lead of A before the server receives the command counts, too.
        assert!((consistency.discrepancy - area).abs() < area * 0.1, "{index}: {consistency:?} {area}");
        assert!(consistency.is_tolerated() && consistency.duration > TimeDelta::from_secs(1));
    }
}

#[test]
fn corrupt_datagrams_do_not_panic_and_memory_is_bounded() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    let mut buf = [0; MAX_DATAGRAM];
    let now = bed.now;
    let len = loop {
        bed.step();
        let now = bed.now;
        bed.command(1, 1);
        bed.run(now + millis(55));
        if let Some((.., bytes)) =
            bed.in_flight.iter().find(|(_, client, is_to_server, _)| *client == A && *is_to_server)
        {
            buf[..bytes.len()].copy_from_slice(bytes);
            break bytes.len();
        }
    };
    for index in 0..len {
        for change in [1u8, 0x80, 0xff] {
            let mut bytes = buf[..len].to_vec();
            bytes[index] ^= change;
            bed.server.handle_datagram(now, ClientId(9), &bytes);
            bed.clients[1].1.handle_datagram(now, &bytes);
        }
    }
    assert!(bed.server.malformed() > 0 && bed.clients[1].1.malformed() > 0);
    assert!(bed.server.memory() < 1 << 20);
}

#[test]
fn invalid_configurations_are_rejected() {
    let error_of = |change: fn(&mut MotionConfig)| {
        let mut config = MotionConfig::clocks(1);
        change(&mut config);
        MotionServer::new(Instant::ZERO, config, LINEAR).err()
    };
    assert_eq!(error_of(|_| ()), None);
    assert_eq!(error_of(|config| config.combine_interval = millis(-1)), Some(MotionConfigError::CombineInterval));
    assert_eq!(error_of(|config| config.timer_rate.slowest = 0.0), Some(MotionConfigError::TimerRate));
    assert_eq!(error_of(|config| config.server_share = 1.5), Some(MotionConfigError::ServerShare));
    assert_eq!(error_of(|config| config.correction_speed = Some(f64::NAN)), Some(MotionConfigError::CorrectionSpeed));
    assert_eq!(error_of(|config| config.snap_threshold = TimeDelta::ZERO), Some(MotionConfigError::Durations));
    let paper = MotionConfig { server_share: 0.2, ..MotionConfig::paper(1) };
    assert_eq!(MotionClient::new(Instant::ZERO, paper, LINEAR).err(), Some(MotionConfigError::ServerShare));
}

/// Re-encodes a datagram of A with another duration of the previous segments.
fn with_previous_segment(bytes: &[u8], previous_segment: TimeDelta) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagramWriter::new(&mut buf, MotionItems::new(bytes).unwrap().header()).unwrap();
    for item in MotionItems::new(bytes).unwrap() {
        let item = match item.unwrap() {
            MotionItem::StartState { .. } => continue,
            MotionItem::Command { object, number, vector, .. } => {
                MotionItem::Command { object, number, previous_segment, vector }
            }
            item => item,
        };
        datagram.put(item).unwrap();
    }
    let len = datagram.len();
    buf[..len].to_vec()
}

#[test]
fn owner_cannot_move_further_than_its_tolerance() {
    let config = MotionConfig { owner_tolerance: Some(millis(400)), ..MotionConfig::clocks(1) };
    for (claimed_ms, is_believed) in [(1_300, true), (800, true), (9_000, false), (0, false)] {
        let mut bed = connected_test_bed(config, 30);
        bed.command(1, 0);
        bed.run(at(3_100));
        bed.command(0, 1);
        bed.run(at(3_155));
        let started = bed.server.moment_at(bed.now, AVATAR).unwrap().state;
        let from_a = bed.in_flight.iter_mut().filter(|(_, client, is_to_server, _)| *client == A && *is_to_server);
        from_a.for_each(|(.., bytes)| *bytes = with_previous_segment(bytes, millis(claimed_ms)));
        bed.run(at(3_190));
        let moment = bed.server.moment_at(bed.now, AVATAR).unwrap();
        assert_eq!(moment.number.epoch == 0, is_believed, "{claimed_ms}: {moment:?}");
        assert_eq!(bed.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 1)));
        assert!((moment.state.x - started.x).abs() <= 440, "{claimed_ms}: {started:?} {moment:?}");
        bed.run(at(6_000));
        if !is_believed {
            // The overruled owner follows the server.
            bed.assert_agreed();
        }
    }
}

#[test]
fn honest_owner_is_not_overruled() {
    let config = MotionConfig { owner_tolerance: Some(millis(500)), ..MotionConfig::clocks(1) };
    let mut bed = connected_test_bed(config, 80);
    bed.lose_every = 5;
    for step in 0..100 {
        bed.command(step % 3, step % 2);
        let until = bed.now + millis(70 + step * 7 % 400);
        bed.run(until);
    }
    let until = bed.now + millis(3_000);
    bed.run(until);
    bed.assert_agreed();
    assert_eq!(bed.moments()[1].number.epoch, 0);
}

#[test]
fn client_follows_the_objects_that_the_server_shows() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    let other = ObjectId(1 << 40);
    bed.server.spawn(bed.now, other, None, MilliVec2::from_units(3, 4), MilliVec2::default());
    bed.server.show(B, other);
    bed.run(at(2_200));
    assert_eq!(bed.clients[1].1.displayed(other), None, "an object is followed without a subscription");
    bed.clients[1].1.follow_shown_objects();
    bed.server.show(B, other);
    bed.run(at(2_500));
    assert_eq!(bed.clients[1].1.displayed(other), Some(&MilliVec2::from_units(3, 4)));
    assert!(bed.clients[1].1.last_update_at(other).is_some_and(|at| bed.now - at < millis(300)));
    bed.server.hide(B, other);
    bed.run(at(4_000));
    assert_eq!(bed.clients[1].1.displayed(other), None);
}

#[test]
fn an_untrusted_client_does_not_receive_an_object_for_which_it_asked_before_it_existed() {
    let config = MotionConfig { owner_tolerance: Some(millis(500)), ..MotionConfig::clocks(1) };
    let mut server = MotionServer::new(at(1_000), config, LINEAR).unwrap();
    let (client, object) = (ClientId(7), ObjectId(1 << 40));
    let mut buf = [0; MAX_DATAGRAM];
    for step in 0..100 {
        let now = at(1_000 + 20 * step);
        // The client asks before the object exists, and goes on as long as nothing grants it the object.
        let header = MotionHeader { sender_incarnation: 1, receiver_incarnation: 0, sent_at: now };
        let mut datagram = MotionDatagramWriter::new(&mut buf, header).unwrap();
        datagram.put(MotionItem::Subscribe(object)).unwrap();
        let len = datagram.len();
        server.handle_datagram(now, client, &buf[..len]);
        if step == 50 {
            server.spawn(now, object, None, MilliVec2::from_units(3, 4), MilliVec2::default());
        }
        while let Some((_, len)) = server.poll_transmit(now, &mut buf) {
            let mut items = MotionItems::new(&buf[..len]).unwrap().map(Result::unwrap);
            assert!(!items.any(|item| matches!(item, MotionItem::StartState { .. })), "step {step}: not shown");
        }
    }
    server.show(client, object);
    let mut has_state = false;
    while let Some((_, len)) = server.poll_transmit(at(4_000), &mut buf) {
        let mut items = MotionItems::new(&buf[..len]).unwrap().map(Result::unwrap);
        has_state |= items.any(|item| matches!(item, MotionItem::StartState { .. }));
    }
    assert!(has_state, "a shown object is sent");
}

/// A client moves to another server, which has placed the client's object elsewhere, while the object moves.
#[test]
fn own_object_moves_on_while_the_client_changes_servers() {
    let mut bed = connected_test_bed(MotionConfig::clocks(1), 30);
    bed.command(2, 0);
    bed.run(at(3_000));
    let state = MilliVec2 { y: 500, ..bed.server.moment_at(bed.now, AVATAR).unwrap().state };
    let mut other = MotionServer::new(bed.now, MotionConfig::clocks(1), LINEAR).unwrap();
    other.spawn(bed.now, AVATAR, Some(A), state, MilliVec2::default());
    other.place(bed.now, AVATAR, state, MilliVec2::from_units(2, 0));
    (bed.server, bed.in_flight) = (other, Vec::new());
    let now = bed.now;
    bed.client_a().change_server(now, 2);
    let mut last = *bed.client_a().displayed(AVATAR).unwrap();
    for _ in 0..400 {
        bed.step();
        let displayed = *bed.client_a().displayed(AVATAR).unwrap();
        assert!(displayed.x > last.x && LINEAR.distance(&displayed, &last) < 0.1, "{last:?} {displayed:?}");
        last = displayed;
    }
    bed.command(0, 2);
    bed.run(at(7_000));
    let moments = bed.moments();
    assert_eq!((moments[0].state, bed.server.vector(AVATAR)), (moments[1].state, Some(&MilliVec2::from_units(0, 2))));
}
