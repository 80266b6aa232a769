//! In steady state, stepping a frame does not allocate: not while inputs, probes and digests are exchanged, not with 20
//! % packet loss, when sites retransmit inputs and wait for them, and not with prediction and rollback.

use std::collections::VecDeque;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::session::{Config, Request, Session};
use coplay::time::{Instant, TimeDelta};
use coplay_bench::allocation_counter::allocations;
use coplay_bench::rollback::{self, BenchCase};
use coplay_bench::workload::{DigestMachine, Inputs};
use coplay_links::random::Random;
use coplay_sim::session_experiment::toy_settings;

const INPUT_DELAY: u32 = 6;
const WARM_UP_FRAMES: u32 = 600;
const MEASURED_FRAMES: u32 = 3_000;
const DELAY: TimeDelta = TimeDelta::from_millis(50);
const LOSS: f64 = 0.2;

/// Sites on a network with 50 ms delay and 20 % loss.
struct AllocationNetwork {
    now: Instant,
    sites: Vec<AllocationSite>,
    in_flight: VecDeque<InFlightDatagram>,
    inputs: Inputs,
    random: Random,
}

struct AllocationSite {
    session: Session,
    machine: DigestMachine,
    input_words: Vec<InputWord>,
    deadline: Instant,
    /// Allocations of the engine since it was created.
    engine_allocations: u64,
}

struct InFlightDatagram {
    arrives_at: Instant,
    from: usize,
    to: usize,
    len: usize,
    bytes: [u8; MAX_DATAGRAM],
}

/// Calls the engine, adds its allocations to `sum` and returns its result.
fn count_allocations<T>(sum: &mut u64, engine: impl FnOnce() -> T) -> T {
    let before = allocations();
    let result = engine();
    *sum += allocations() - before;
    result
}

impl AllocationNetwork {
    fn new(sites: usize, recovery: Recovery, seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            sites: (0..sites).map(|number| AllocationSite::new(number, sites, recovery)).collect(),
            in_flight: VecDeque::new(),
            inputs: Inputs::new(seed, sites),
            random: Random::stream(seed, "loss"),
        }
    }

    fn run_frames(&mut self, frames: u32) {
        let limit = self.now + TimeDelta::from_secs(10) + TimeDelta::from_millis(100) * i64::from(frames);
        while self.sites.iter().any(|site| site.machine.frames() < frames) {
            assert!(self.now < limit, "the session is stuck at {:?}", self.now);
            self.process_next();
        }
    }

    /// Delivers the next datagram or wakes the site with the earliest deadline, whichever comes first.
    fn process_next(&mut self) {
        let at = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline).expect("at least one site");
        let deadline = self.sites[at].deadline.max(self.now);
        if self.in_flight.front().is_some_and(|datagram| datagram.arrives_at <= deadline) {
            self.deliver();
        } else {
            self.now = deadline;
            self.run_host_program(at);
        }
    }

    fn deliver(&mut self) {
        let Some(datagram) = self.in_flight.pop_front() else { return };
        self.now = datagram.arrives_at;
        let AllocationSite { session, engine_allocations, .. } = &mut self.sites[datagram.to];
        let (from, bytes) = (Addr(datagram.from as u64), &datagram.bytes[..datagram.len]);
        count_allocations(engine_allocations, || session.handle_datagram(self.now, from, bytes));
        self.run_host_program(datagram.to);
    }

    /// Serves all requests of a site, sends its datagrams and updates its deadline.
    fn run_host_program(&mut self, at: usize) {
        loop {
            let served = self.sites[at].serve_request(self.now, at, &self.inputs);
            self.transmit(at);
            if !served {
                break;
            }
        }
        let AllocationSite { session, engine_allocations, deadline, .. } = &mut self.sites[at];
        while count_allocations(engine_allocations, || session.poll_event()).is_some() {}
        *deadline = count_allocations(engine_allocations, || session.poll_timeout()).expect("the session is running");
    }

    fn transmit(&mut self, from: usize) {
        let AllocationSite { session, engine_allocations, .. } = &mut self.sites[from];
        let mut bytes = [0; MAX_DATAGRAM];
        while let Some(transmit) = count_allocations(engine_allocations, || session.poll_transmit(self.now, &mut bytes))
        {
            if !self.random.chance(LOSS) {
                let (to, arrives) = (transmit.to.0 as usize, self.now + DELAY);
                self.in_flight.push_back(InFlightDatagram { arrives_at: arrives, from, to, len: transmit.len, bytes });
            }
        }
    }

    fn total_allocations(&self) -> u64 {
        self.sites.iter().map(|site| site.engine_allocations).sum()
    }

    fn total_stalls(&self) -> u64 {
        self.sites.iter().map(|site| site.session.stats().stalls).sum()
    }
}

impl AllocationSite {
    fn new(number: usize, sites: usize, recovery: Recovery) -> Self {
        let id = SiteId::first(sites).nth(number).expect("site number is below MAX_SITES");
        let others = SiteId::first(sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let settings = toy_settings(INPUT_DELAY, Ownership::one_player_per_site(sites, 0xffff));
        let config = Config { recovery, ..Config::new(1, id, peers, settings) };
        let mut engine_allocations = 0;
        Self {
            session: count_allocations(&mut engine_allocations, || Session::new(Instant::ZERO, config))
                .expect("settings are valid"),
            machine: DigestMachine::default(),
            input_words: vec![0; sites],
            deadline: Instant::ZERO,
            engine_allocations,
        }
    }

    /// Serves the session's next request. Returns `false` if there is none.
    fn serve_request(&mut self, now: Instant, number: usize, inputs: &Inputs) -> bool {
        let Self { session, machine, input_words: words, engine_allocations, .. } = self;
        match count_allocations(engine_allocations, || session.poll_request(now)) {
            None => return false,
            Some(Request::Sample { frame }) => {
                words[number] = InputWord::from(inputs.pressed(number, frame.number()));
                count_allocations(engine_allocations, || session.handle_input(now, words));
            }
            Some(Request::Advance { inputs, .. }) => machine.step(inputs.iter().map(|word| *word as u16)),
            Some(Request::Save { .. } | Request::Load { .. }) => unreachable!("the prediction window is 0"),
            Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("no site joins late"),
            Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("no desync occurs"),
            Some(Request::Hash { .. }) => {
                count_allocations(engine_allocations, || session.handle_hash(machine.state()))
            }
        }
        true
    }
}

fn assert_no_allocations(sites: usize, recovery: Recovery) {
    let mut network = AllocationNetwork::new(sites, recovery, 1);
    network.run_frames(WARM_UP_FRAMES);
    let (before, stalls) = (network.total_allocations(), network.total_stalls());
    assert!(before > 0, "creating a session and its lobby allocates, and the counter sees it");
    network.run_frames(WARM_UP_FRAMES + MEASURED_FRAMES);
    assert!(network.total_stalls() > stalls, "no frame had to wait, so recovery was not exercised");
    assert_eq!(network.total_allocations() - before, 0, "allocations at {sites} sites with {recovery:?}");
}

#[test]
fn two_sites_play_without_allocating() {
    for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Classic] {
        assert_no_allocations(2, recovery);
    }
}

#[test]
fn eight_sites_play_without_allocating() {
    for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive] {
        assert_no_allocations(8, recovery);
    }
}

#[test]
fn prediction_and_rollback_do_not_allocate() {
    for sites in [2, 8] {
        let case = BenchCase { sites, rtt_ms: 100, loss_percent: 5, input_delay: 2, prediction_window: 8, seed: 1 };
        let mut network = rollback::network::RollbackNetwork::<rollback::coplay_site::CoplaySite>::new(case);
        network.run_until(Instant::ZERO + TimeDelta::from_secs(15));
        let before = network.engine_cost().allocations;
        assert!(before > 0, "the lobby allocates, and the counter sees it");
        network.run_until(Instant::ZERO + TimeDelta::from_secs(65));
        assert!(network.hosts().iter().all(|host| host.counts().resimulated > 300), "too few resimulated frames");
        assert_eq!(network.engine_cost().allocations - before, 0, "allocations at {sites} sites");
    }
}

#[test]
fn allocation_counter_counts_allocations() {
    let mut sum = 0;
    let boxed = count_allocations(&mut sum, || Box::new(std::hint::black_box(7)));
    assert_eq!((sum, *boxed), (1, 7));
    let mut grown = vec![0u8; 16];
    count_allocations(&mut sum, || grown.reserve_exact(std::hint::black_box(1 << 16)));
    assert_eq!(sum, 2, "growing counts");
    count_allocations(&mut sum, || drop((boxed, grown)));
    assert_eq!(sum, 2, "freeing does not count");
}
