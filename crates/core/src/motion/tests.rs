//! A server and two clients with a wire between them: A commands an object, B follows it.

use alloc::vec::Vec;

use super::*;
use crate::time::{Instant, TimeDelta};
use crate::wire::MAX_DATAGRAM;
use crate::wire::motion::{MotionDatagram, MotionItem, MotionItems};

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

/// So many commands were given, and the server decided nothing.
fn command_number(count: u32) -> CommandNumber {
    CommandNumber { epoch: 0, count }
}

/// What is under way: when it arrives, whose it is, whether it goes to the server, and what it says.
type InFlightDatagram = (Instant, ClientId, bool, Vec<u8>);

struct TestBed {
    now: Instant,
    server: MotionServer<LinearPredictor>,
    clients: Vec<(ClientId, MotionClient<LinearPredictor>)>,
    in_flight: Vec<InFlightDatagram>,
    delay: TimeDelta,
    /// Loses every so-many-th datagram.
    lose_every: usize,
    sent: usize,
    /// Nothing gets anywhere.
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

    fn send(&mut self, client: ClientId, up: bool, bytes: &[u8]) {
        self.sent += 1;
        if !self.is_cut && !self.sent.is_multiple_of(self.lose_every) {
            self.in_flight.push((self.now + self.delay, client, up, bytes.to_vec()));
        }
    }

    fn step(&mut self) {
        self.now += FRAME;
        let now = self.now;
        let arrived: Vec<InFlightDatagram> = self.in_flight.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, client, up, bytes) in arrived {
            if up {
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

    /// The timers of A, the server and B.
    fn moments(&self) -> [ObjectMoment<MilliVec2>; 3] {
        let of = |index: usize| self.clients[index].1.moment_at(self.now, AVATAR).unwrap();
        [of(0), self.server.moment_at(self.now, AVATAR).unwrap(), of(1)]
    }

    /// All three know of the same command and are at the same place.
    fn assert_agreed(&self) {
        let moments = self.moments();
        let is_there = |moment: &ObjectMoment<MilliVec2>| {
            moment.number == moments[1].number && self.is_near(&moment.state, &moments[1].state)
        };
        assert!(moments.iter().all(is_there), "{moments:#?}");
        assert!(self.timer_differences_ms().iter().all(|apart| *apart < 2.0), "{:?}", self.timer_differences_ms());
    }

    fn is_near(&self, one: &MilliVec2, other: &MilliVec2) -> bool {
        LINEAR.distance(one, other) < 0.05
    }

    /// How far apart A and the server, the server and B, A and B are, in milliseconds of motion; who has not begun the newest leg is at its beginning.
    fn timer_differences_ms(&self) -> [f64; 3] {
        let moments = self.moments();
        let newest = moments.iter().map(|moment| moment.number).max().unwrap();
        let [a, server, b] =
            moments.map(|moment| if moment.number == newest { moment.timer.value().as_millis_f64() } else { 0.0 });
        [(a - server).abs(), (server - b).abs(), (a - b).abs()]
    }
}

fn connected_test_bed(config: MotionConfig, delay_ms: i64) -> TestBed {
    let mut stand = TestBed::new(config, millis(delay_ms));
    stand.run(at(2_000));
    assert!(stand.moments().iter().all(|moment| moment.number == command_number(0)));
    stand
}

#[test]
fn command_reaches_all_clients_and_timers_converge() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut stand = connected_test_bed(config, 80);
        stand.command(3, 4);
        stand.run(at(2_600));
        let moments = stand.moments();
        assert!(moments.iter().all(|moment| moment.number == command_number(1)), "{moments:?}");
        assert!(stand.timer_differences_ms().iter().all(|apart| *apart < 1.0), "{:?}", stand.timer_differences_ms());
        assert!(LINEAR.distance(&moments[0].state, &moments[2].state) < 0.01);
    }
}

#[test]
fn owner_moves_at_once_and_is_never_far_ahead_of_the_server() {
    for (config, most) in [(MotionConfig::paper(1), 91.0), (MotionConfig::clocks(1), 66.0)] {
        let mut stand = connected_test_bed(config, 80);
        stand.command(3, 4);
        let mut worst = [0.0f64; 3];
        for _ in 0..100 {
            stand.step();
            assert!(stand.moments()[0].state != MilliVec2::default());
            worst.iter_mut().zip(stand.timer_differences_ms()).for_each(|(worst, apart)| *worst = worst.max(apart));
        }
        assert!(worst[0] <= most && worst[1] <= 86.0 && worst[2] <= 160.0, "{config:?}: {worst:?}");
    }
}

#[test]
fn commands_within_the_combine_interval_are_combined() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 20);
    stand.command(3, 0);
    stand.run(at(2_030));
    stand.command(0, 4);
    stand.run(at(2_500));
    let moments = stand.moments();
    assert!(moments.iter().all(|moment| moment.number == command_number(1)));
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(3, 4)));
    stand.command(1, 0);
    stand.run(at(3_000));
    assert_eq!(stand.moments().map(|moment| moment.number), [command_number(2); 3]);
}

#[test]
fn lost_commands_are_retransmitted_and_all_paths_agree() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut stand = connected_test_bed(config, 30);
        stand.lose_every = 3;
        for turn in 0..20 {
            stand.command(turn % 5, 3 - turn % 7);
            stand.run(at(2_000 + 150 * (turn + 1)));
        }
        stand.run(at(8_000));
        let moments = stand.moments();
        assert_eq!(moments.map(|moment| moment.number), [command_number(20); 3]);
        let apart = LINEAR.distance(&moments[0].state, &moments[1].state)
            + LINEAR.distance(&moments[1].state, &moments[2].state);
        assert!(apart < 0.1, "{config:?}: {apart} {moments:?}");
    }
}

/// The server is started anew, and finds the object somewhere else than it was.
fn restart_server(stand: &mut TestBed) {
    let config = MotionConfig { incarnation: stand.server.config().incarnation + 1, ..*stand.server.config() };
    let mut server = MotionServer::new(stand.now, config, LINEAR).unwrap();
    server.spawn(stand.now, AVATAR, Some(A), MilliVec2::from_units(50, 50), MilliVec2::from_units(0, 3));
    stand.server = server;
}

#[test]
fn restarted_server_recovers_commands_from_its_clients() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        for commands in [0, 1, 3] {
            let mut stand = connected_test_bed(config, 30);
            for turn in 0..commands {
                stand.command(2, turn);
                stand.run(at(2_000 + 1_000 * (turn + 1)));
            }
            stand.run(at(6_000));
            let before = stand.moments()[0].state;
            restart_server(&mut stand);
            stand.run(at(9_000));
            stand.assert_agreed();
            let vector = *stand.server.vector(AVATAR).unwrap();
            let expected = if commands == 0 { MilliVec2::default() } else { MilliVec2::from_units(2, commands - 1) };
            assert_eq!(vector, expected, "what was commanded still counts");
            let way = LINEAR.advance(&before, &vector, millis(3_000));
            assert!(LINEAR.distance(&way, &stand.moments()[1].state) < 1.0, "{way:?} {:?}", stand.moments());
        }
    }
}

#[test]
fn decisions_of_an_earlier_server_incarnation_are_ignored() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    stand.command(2, 0);
    stand.run(at(3_000));
    stand.server.place(stand.now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
    stand.run(at(4_000));
    restart_server(&mut stand);
    stand.run(at(5_000));
    stand.command(0, 1);
    stand.run(at(8_000));
    stand.assert_agreed();
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 1)));
    restart_server(&mut stand);
    stand.server.place(stand.now, AVATAR, MilliVec2::from_units(-9, 0), MilliVec2::default());
    stand.run(at(11_000));
    stand.assert_agreed();
    assert_eq!(stand.moments()[0].state, MilliVec2::from_units(-9, 0), "what it decides counts");
}

#[test]
fn forgotten_client_resubscribes_after_a_long_silence() {
    for config in [MotionConfig::paper(1), MotionConfig::clocks(1)] {
        let mut stand = connected_test_bed(config, 30);
        stand.command(1, 1);
        stand.run(at(3_000));
        stand.is_cut = true;
        for turn in 0..5 {
            stand.command(turn, 2);
            stand.run(at(3_000 + 2_500 * (turn + 1)));
        }
        assert_eq!(stand.server.clients().count(), 0, "all were forgotten");
        stand.is_cut = false;
        stand.run(at(19_000));
        stand.command(0, 3);
        stand.run(at(21_000));
        stand.assert_agreed();
        assert_eq!(stand.moments()[2].number, command_number(7));
    }
}

#[test]
fn server_command_overrules_the_owner() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 80);
    stand.command(2, 0);
    stand.run(at(2_060));
    stand.server.command(stand.now, AVATAR, MilliVec2::from_units(0, 5));
    stand.run(at(4_000));
    stand.assert_agreed();
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 5)));
    stand.command(1, 0);
    stand.run(at(6_000));
    stand.assert_agreed();
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(1, 0)));
}

#[test]
fn new_owner_can_command_a_transferred_object() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 80);
    stand.command(1, 0);
    stand.run(at(3_000));
    stand.command(2, 0);
    stand.run(at(3_060));
    stand.server.transfer_ownership(AVATAR, Some(B));
    stand.client_a().subscribe(AVATAR);
    stand.clients[1].1.own(AVATAR);
    stand.run(at(4_000));
    stand.assert_agreed();
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(1, 0)), "what was under way does not count");
    assert!(!stand.clients[0].1.command(stand.now, AVATAR, MilliVec2::from_units(7, 7)), "it is not A's any more");
    assert!(stand.clients[1].1.command(stand.now, AVATAR, MilliVec2::from_units(0, 4)));
    stand.run(at(6_000));
    stand.assert_agreed();
    assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 4)));
}

/// What A sends, with other numbers of commands.
fn with_command_number(letter: &[u8], number: CommandNumber) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagram::new(&mut buf, MotionItems::new(letter).unwrap().header()).unwrap();
    for item in MotionItems::new(letter).unwrap() {
        let item = match item.unwrap() {
            MotionItem::StartState { object, state, .. } => MotionItem::StartState { object, number, state },
            MotionItem::Command { object, previous_segment: leg, vector, .. } => {
                MotionItem::Command { object, number, previous_segment: leg, vector }
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
    for (number, refused) in [(CommandNumber { epoch: u32::MAX, count: u32::MAX }, 1), (command_number(u32::MAX), 0)] {
        let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
        stand.command(2, 0);
        stand.run(at(2_055));
        let of_a = stand.in_flight.iter_mut().filter(|(_, client, up, _)| *client == A && *up);
        of_a.for_each(|(.., letter)| *letter = with_command_number(letter, number));
        stand.run(at(2_085));
        assert_eq!(stand.server.malformed(), refused);
        stand.server.place(stand.now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
        stand.run(at(4_000));
        assert!(
            stand.moments().iter().all(|moment| moment.state == MilliVec2::from_units(9, 9)),
            "{:?}",
            stand.moments()
        );
        stand.command(0, 2);
        stand.run(at(6_000));
        stand.assert_agreed();
        assert_eq!(stand.server.vector(AVATAR), Some(&MilliVec2::from_units(0, 2)));
    }
}

#[test]
fn object_with_a_reused_id_is_a_new_object() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    (0..3).for_each(|turn| {
        stand.command(1, turn);
        stand.run(at(2_300 + 300 * turn));
    });
    stand.server.remove(AVATAR);
    stand.server.spawn(stand.now, AVATAR, Some(A), MilliVec2::from_units(-40, 7), MilliVec2::default());
    stand.run(at(4_000));
    assert!(
        stand.moments().iter().all(|moment| moment.state == MilliVec2::from_units(-40, 7)),
        "{:?}",
        stand.moments()
    );
    stand.command(0, 1);
    stand.run(at(6_000));
    stand.assert_agreed();
    let epoch = stand.moments()[1].number.epoch;
    assert!(epoch > 0);
    // Word that the one before is no more comes late.
    let head = crate::wire::motion::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: stand.now };
    for (epoch, is_there) in [(epoch, true), (epoch + 1, false)] {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = MotionDatagram::new(&mut buf, head).unwrap();
        datagram.put(MotionItem::Removed { object: AVATAR, epoch }).unwrap();
        let len = datagram.len();
        stand.client_a().handle_datagram(at(6_000), &buf[..len]);
        assert_eq!(stand.clients[0].1.moment_at(stand.now, AVATAR).is_some(), is_there);
    }
}

#[test]
fn hidden_object_disappears_and_can_be_shown_again() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    stand.server.hide(B, AVATAR);
    stand.run(at(2_500));
    assert!(stand.clients[1].1.moment_at(stand.now, AVATAR).is_none());
    stand.run(at(7_000));
    assert!(stand.clients[1].1.moment_at(stand.now, AVATAR).is_none(), "nobody asks for it");
    stand.clients[1].1.subscribe(AVATAR);
    stand.run(at(7_500));
    stand.assert_agreed();
}

#[test]
fn restarted_client_continues_from_the_server_state() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    stand.command(2, 0);
    stand.run(at(3_000));
    let mut anew = MotionClient::new(stand.now, MotionConfig::clocks(2), LINEAR).unwrap();
    anew.own(AVATAR);
    stand.clients[0].1 = anew;
    stand.command(0, 2);
    stand.run(at(6_000));
    let moments = stand.moments();
    assert_eq!(moments.map(|moment| moment.number), [command_number(2); 3]);
    assert!(moments[1].state.x > 1_900 && moments[1].state.y > 1_900, "{moments:?}");
    assert!(stand.timer_differences_ms().iter().all(|apart| *apart < 2.0), "{:?}", stand.timer_differences_ms());
}

#[test]
fn server_placement_and_removal_reach_all_clients() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    stand.command(2, 0);
    stand.run(at(2_055));
    let now = stand.now;
    stand.server.place(now, AVATAR, MilliVec2::from_units(9, 9), MilliVec2::default());
    stand.run(at(4_000));
    let moments = stand.moments();
    assert!(moments.iter().all(|moment| moment.state == MilliVec2::from_units(9, 9)), "{moments:?}");
    stand.server.remove(AVATAR);
    stand.run(at(5_000));
    assert!(stand.clients.iter().all(|(_, client)| client.moment_at(stand.now, AVATAR).is_none()));
}

/// How often the server says to B that there is no such object, in ten seconds in which B says no more than that it is there.
fn count_removal_notices(stand: &mut TestBed) -> usize {
    let mut count = 0;
    for _ in 0..2_000 {
        stand.now += FRAME;
        let head =
            crate::wire::motion::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: stand.now };
        let mut buf = [0; MAX_DATAGRAM];
        let len = MotionDatagram::new(&mut buf, head).unwrap().len();
        stand.server.handle_datagram(stand.now, B, &buf[..len]);
        while let Some((client, len)) = stand.server.poll_transmit(stand.now, &mut buf) {
            let items = MotionItems::new(&buf[..len]).unwrap().map(Result::unwrap);
            count += items.filter(|item| client == B && matches!(item, MotionItem::Removed { .. })).count();
        }
    }
    count
}

#[test]
fn unknown_object_is_answered_once() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    let head = crate::wire::motion::MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: stand.now };
    for object in 1_000..1_300 {
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = MotionDatagram::new(&mut buf, head).unwrap();
        datagram.put(MotionItem::Subscribe(ObjectId(object))).unwrap();
        let len = datagram.len();
        stand.server.handle_datagram(stand.now, B, &buf[..len]);
    }
    assert_eq!(count_removal_notices(&mut stand), 300);
    stand.server.remove(AVATAR);
    let repeated = count_removal_notices(&mut stand);
    assert!((2..=8).contains(&repeated), "what B knew is repeated, {repeated} times");
}

#[test]
fn displayed_state_never_jumps() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 80);
    let mut before = stand.moments()[2].displayed;
    for step in 0..400 {
        if step % 60 == 0 {
            stand.command(3 - step % 7, step % 5);
        }
        stand.step();
        let shown = stand.moments()[2].displayed;
        // Twice as fast as it moves, and a correction besides.
        let most = (2.0 * 5.0 + 10.0) * FRAME.as_secs_f64() + 0.002;
        assert!(LINEAR.distance(&before, &shown) <= most, "{before:?} {shown:?}");
        before = shown;
    }
}

#[test]
fn discrepancy_counts_from_the_time_the_server_started_the_segment() {
    let mut stand = connected_test_bed(MotionConfig { correction_speed: None, ..MotionConfig::clocks(1) }, 80);
    stand.command(1, 0);
    let mut area = [0.0; 2];
    for _ in 0..300 {
        stand.step();
        let [a, server, b] = stand.moments().map(|moment| moment.displayed);
        area[0] += LINEAR.distance(&a, &server) * FRAME.as_secs_f64();
        area[1] += LINEAR.distance(&server, &b) * FRAME.as_secs_f64();
    }
    for (index, area) in area.into_iter().enumerate() {
        let told = stand.clients[index].1.consistency(AVATAR).unwrap();
        // What A is ahead before the server knows of it counts, too.
        assert!((told.discrepancy - area).abs() < area * 0.1, "{index}: {told:?} {area}");
        assert!(told.is_tolerated() && told.duration > TimeDelta::from_secs(1));
    }
}

#[test]
fn corrupt_datagrams_do_not_panic_and_memory_is_bounded() {
    let mut stand = connected_test_bed(MotionConfig::clocks(1), 30);
    let mut buf = [0; MAX_DATAGRAM];
    let now = stand.now;
    let len = loop {
        stand.step();
        let now = stand.now;
        stand.command(1, 1);
        stand.run(now + millis(55));
        if let Some((.., letter)) = stand.in_flight.iter().find(|(_, client, up, _)| *client == A && *up) {
            buf[..letter.len()].copy_from_slice(letter);
            break letter.len();
        }
    };
    for place in 0..len {
        for change in [1u8, 0x80, 0xff] {
            let mut bytes = buf[..len].to_vec();
            bytes[place] ^= change;
            stand.server.handle_datagram(now, ClientId(9), &bytes);
            stand.clients[1].1.handle_datagram(now, &bytes);
        }
    }
    assert!(stand.server.malformed() > 0 && stand.clients[1].1.malformed() > 0);
    assert!(stand.server.memory() < 1 << 20);
}

#[test]
fn invalid_configurations_are_rejected() {
    let of = |change: fn(&mut MotionConfig)| {
        let mut config = MotionConfig::clocks(1);
        change(&mut config);
        MotionServer::new(Instant::ZERO, config, LINEAR).err()
    };
    assert_eq!(of(|_| ()), None);
    assert_eq!(of(|config| config.combine_interval = millis(-1)), Some(MotionConfigError::CombineInterval));
    assert_eq!(of(|config| config.timer_rate.slowest = 0.0), Some(MotionConfigError::TimerRate));
    assert_eq!(of(|config| config.server_share = 1.5), Some(MotionConfigError::ServerShare));
    assert_eq!(of(|config| config.correction_speed = Some(f64::NAN)), Some(MotionConfigError::CorrectionSpeed));
    assert_eq!(of(|config| config.snap_threshold = TimeDelta::ZERO), Some(MotionConfigError::Durations));
    let paper = MotionConfig { server_share: 0.2, ..MotionConfig::paper(1) };
    assert_eq!(MotionClient::new(Instant::ZERO, paper, LINEAR).err(), Some(MotionConfigError::ServerShare));
}
