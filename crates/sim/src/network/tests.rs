use super::*;
use coplay_links::link::Delay;

const PERIOD: TimeDelta = TimeDelta::from_millis(10);
const DELAY: TimeDelta = TimeDelta::from_millis(3);

/// A program that sends its local time to the other one every 10 ms of its clock, and keeps what it receives.
#[derive(Debug, Default)]
struct Beacon {
    peer: Option<Addr>,
    next: Option<Instant>,
    is_due: bool,
    /// Received datagrams: true time, sender, and the sender's local time.
    received: Vec<(Instant, Addr, Instant)>,
    wrong: u32,
    runs: u32,
    /// Time for which the computer is busy with each datagram that it sends.
    work: TimeDelta,
    never_sleeps: bool,
    has_looped: bool,
}

impl Node for Beacon {
    type Context<'a> = ();

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, (): &mut ()) -> Reaction {
        match datagram.bytes.try_into() {
            Ok(stamp) => self.received.push((now.now, datagram.from, Instant::from_nanos(i64::from_le_bytes(stamp)))),
            Err(_) => self.wrong += 1,
        }
        Reaction::Wait
    }

    fn work(&mut self, now: &Moment<'_>, (): &mut ()) -> Option<TimeDelta> {
        self.runs += 1;
        self.is_due = self.next.is_none_or(|next| next <= now.local);
        if self.is_due {
            self.next = Some(now.local + PERIOD);
        }
        self.is_due.then_some(self.work)
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, (): &mut ()) -> Option<usize> {
        out.to.extend(self.peer.filter(|_| std::mem::take(&mut self.is_due)));
        out.buf[..8].copy_from_slice(&now.local.as_nanos().to_le_bytes());
        (!out.to.is_empty()).then_some(8)
    }

    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant> {
        let next = self.next.filter(|_| !self.never_sleeps);
        Some(next.map_or(now.now, |next| now.clock.true_time(next)))
    }

    fn on_endless_loop(&mut self) {
        self.has_looped = true;
    }
}

fn at(millis: i64) -> Instant {
    Instant::ZERO + TimeDelta::from_millis(millis)
}

/// Returns two computers, each of which sends to the other over links with a delay of 3 ms.
fn pair() -> Network<Beacon> {
    let computer = |number: u64| {
        let beacon = Beacon { peer: Some(Addr(1 - number)), ..Beacon::default() };
        Computer::new(beacon, NodeClock::TRUE, Addr(number))
    };
    let link = LinkConfig { delay: Delay::Constant(DELAY), ..LinkConfig::default() };
    let topology = Topology::mesh(1, 2, |from, to| format!("{from}>{to}"), |_, _| link.clone());
    Network::with_topology(1, vec![computer(0), computer(1)], topology)
}

/// Runs a pair with the faults, each at its time in milliseconds, up to 200 ms.
fn run(faults: &[(i64, Fault<()>)]) -> Network<Beacon> {
    let mut network = pair();
    for (millis, fault) in faults {
        network.run(at(*millis), &mut ());
        assert!(network.apply(fault, &mut ()), "{fault:?}");
    }
    network.run(at(200), &mut ());
    network
}

/// Returns the true times, in milliseconds, at which a computer received something.
fn arrivals(network: &Network<Beacon>, node: usize) -> Vec<i64> {
    network.nodes[node].received.iter().map(|(at, ..)| at.as_nanos() / 1_000_000).collect()
}

fn every_10_ms(from: i64, until: i64) -> Vec<i64> {
    (from..until).step_by(10).collect()
}

#[test]
fn datagrams_arrive_after_the_delay_of_their_link() {
    let network = run(&[]);
    for node in [0, 1] {
        assert_eq!(arrivals(&network, node), every_10_ms(3, 200));
        assert!(
            network.nodes[node]
                .received
                .iter()
                .all(|(at, from, sent)| { *from == Addr(1 - node as u64) && *at - *sent == DELAY })
        );
    }
    assert_eq!((network.traffic().sent, network.now()), (42, at(200)));
}

#[test]
fn cuts_act_in_their_directions_until_they_are_healed() {
    let network = run(&[(45, Fault::CutOneWay(0, 1)), (95, Fault::HealOneWay(0, 1))]);
    assert_eq!(arrivals(&network, 0), every_10_ms(3, 200));
    assert_eq!(arrivals(&network, 1), [every_10_ms(3, 45), every_10_ms(103, 200)].concat());
    for (cut, heal) in [(Fault::Cut(1, 0), Fault::Heal(0, 1)), (Fault::Split(1), Fault::HealAll)] {
        let network = run(&[(45, cut), (95, heal)]);
        for node in [0, 1] {
            assert_eq!(arrivals(&network, node), [every_10_ms(3, 45), every_10_ms(103, 200)].concat());
        }
    }
}

#[test]
fn worse_conditions_last_until_they_are_restored() {
    let worse = LinkConfig { delay: Delay::Constant(DELAY * 2), ..LinkConfig::default() };
    let network = run(&[(45, Fault::Worsen(0, 1, worse)), (95, Fault::Restore(0, 1))]);
    let expected = [every_10_ms(3, 45), every_10_ms(56, 97), every_10_ms(103, 200)].concat();
    assert_eq!((arrivals(&network, 0), arrivals(&network, 1)), (expected.clone(), expected));
}

/// A paused program gets the datagrams of the pause at its end. The clock of a suspended computer stands still, so it
/// sends the rest of its datagrams later.
#[test]
fn paused_and_suspended_computers_continue_where_they_were() {
    let pause = run(&[(45, Fault::Pause(0, at(78)))]);
    let suspend = run(&[(45, Fault::Suspend(0, at(78)))]);
    let received = [every_10_ms(3, 45), vec![78; 3], every_10_ms(83, 200)].concat();
    assert_eq!((arrivals(&pause, 0), arrivals(&suspend, 0)), (received.clone(), received));
    assert_eq!(arrivals(&pause, 1), [every_10_ms(3, 45), every_10_ms(81, 200)].concat());
    assert_eq!(arrivals(&suspend, 1), [every_10_ms(3, 45), every_10_ms(86, 200)].concat());
    assert_eq!(suspend.local_time(0_usize), at(200 - 33));
}

#[test]
fn stepped_clock_moves_the_deadlines_of_its_computer() {
    let network = run(&[(45, Fault::StepClock(0, TimeDelta::from_secs(5)))]);
    assert_eq!(arrivals(&network, 1), [every_10_ms(3, 45), every_10_ms(48, 200)].concat());
    assert_eq!(network.local_time(0_usize), at(5_200));
}

#[test]
fn moved_computer_is_not_reached_at_its_old_address() {
    let mut network = run(&[(45, Fault::Move(0))]);
    assert_eq!(arrivals(&network, 0), every_10_ms(3, 45));
    assert_eq!(network.nodes[1].received.last().map(|(_, from, _)| *from), Some(Addr(ADDRESS_STEP)));
    assert_eq!((network.node_at(Addr(0)), network.node_at(Addr(ADDRESS_STEP))), (None, Some(0)));
    network.capture_external();
    network.run(at(210), &mut ());
    let outside = network.take_external();
    assert_eq!(
        outside.iter().map(|(at, from, to, _)| (*at, *from, *to)).collect::<Vec<_>>(),
        [(at(210), Addr(1), Addr(0))]
    );
}

#[test]
fn crashed_computer_does_nothing_until_it_is_restarted() {
    let mut network = pair();
    network.run(at(45), &mut ());
    network.crash(0);
    network.run(at(95), &mut ());
    assert_eq!((arrivals(&network, 0), arrivals(&network, 1)), (every_10_ms(3, 45), every_10_ms(3, 45)));
    network.restart_computer(0);
    network.run(at(200), &mut ());
    assert_eq!(arrivals(&network, 0), [every_10_ms(3, 45), every_10_ms(103, 200)].concat());
    assert_eq!(arrivals(&network, 1), [every_10_ms(3, 45), every_10_ms(98, 200)].concat());
}

#[test]
fn garbage_reaches_a_running_computer_only() {
    assert!(run(&[(45, Fault::Garbage(0, 50))]).nodes[0].wrong > 40);
    let mut network = pair();
    network.crash(0);
    network.apply(&Fault::<()>::Garbage(0, 50), &mut ());
    assert_eq!(network.nodes[0].wrong, 0);
}

#[test]
fn faults_of_programs_are_left_to_the_engine() {
    for fault in [Fault::Crash(0), Fault::Leave(0), Fault::Start(0), Fault::Engine(())] {
        assert!(!pair().apply(&fault, &mut ()), "{fault:?}");
    }
}

/// A busy computer receives at once, but does its work and sends only when it is free.
#[test]
fn busy_computer_sends_when_its_work_is_done() {
    let mut network = pair();
    network.nodes[0].work = TimeDelta::from_millis(25);
    network.run(at(200), &mut ());
    assert_eq!(arrivals(&network, 0), every_10_ms(3, 200));
    assert_eq!(arrivals(&network, 1), (3..200).step_by(25).collect::<Vec<_>>());
}

#[test]
fn program_that_never_sleeps_is_stopped() {
    let mut network = pair();
    network.nodes[0].never_sleeps = true;
    network.run(at(50), &mut ());
    assert!(network.nodes[0].has_looped && network.nodes[0].is_crashed);
    assert_eq!((network.now(), network.nodes[1].has_looped), (at(50), false));
}

/// A computer of a tree sends up over its own uplink and down over the receiver's downlink.
#[test]
fn tree_has_two_links_per_computer() {
    let tree = Topology::tree(1, 4, |node, direction| format!("{node} {direction}"), |_| LinkConfig::default());
    assert_eq!([(0, 3), (3, 0), (1, 3), (3, 1)].map(|(from, to)| tree.index(from, to)), [4, 5, 4, 5]);
    assert_eq!([(0, 1), (1, 0), (1, 2), (2, 1)].map(|(from, to)| tree.index(from, to)), [0, 1, 2, 3]);
}

/// A program that does nothing.
struct Idle<const KEEPS_PLACE: bool>;

impl<const KEEPS_PLACE: bool> Node for Idle<KEEPS_PLACE> {
    type Context<'a> = ();
    const KEEPS_PLACE: bool = KEEPS_PLACE;

    fn handle_datagram(&mut self, _: &Moment<'_>, _: Datagram<'_>, (): &mut ()) -> Reaction {
        Reaction::Wait
    }

    fn work(&mut self, _: &Moment<'_>, (): &mut ()) -> Option<TimeDelta> {
        None
    }

    fn poll_transmit(&mut self, _: &Moment<'_>, _: &mut Outbox<'_>, (): &mut ()) -> Option<usize> {
        None
    }

    fn poll_timeout(&mut self, _: &Moment<'_>) -> Option<Instant> {
        None
    }
}

/// Wakes two computers at the same instant, after the wake-up of the first was scheduled again for that instant, and
/// returns the order in which they first run.
fn wake_order<const KEEPS_PLACE: bool>() -> Vec<NetworkStep> {
    let computer = |number| Computer::new(Idle::<KEEPS_PLACE>, NodeClock::TRUE, Addr(number));
    let topology = Topology::mesh(1, 2, |_, _| String::new(), |_, _| LinkConfig::default());
    let mut network = Network::asleep(1, vec![computer(0), computer(1)], topology);
    [0, 1, 0].into_iter().for_each(|node| network.wake_at(node, at(1)));
    std::iter::from_fn(|| network.step(at(2), &mut ())).take(2).collect()
}

#[test]
fn wake_up_scheduled_again_for_an_instant_keeps_its_place_if_the_engine_says_so() {
    assert_eq!(wake_order::<true>(), [NetworkStep::Woken(0), NetworkStep::Woken(1)]);
    assert_eq!(wake_order::<false>(), [NetworkStep::Woken(1), NetworkStep::Woken(0)]);
}
