//! In steady state the path of a frame does not allocate: not when inputs, probes and digests come and go, and not when
//! a fifth of all packets is lost and inputs have to be sent again and waited for, and not when frames are guessed and
//! repaired.

use std::collections::VecDeque;

use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::session::{Config, Request, Session};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_bench::counter::allocations;
use coplay_bench::rollback::{self, Case};
use coplay_bench::work::{Inputs, Machine};
use coplay_sim::measure::toy_settings;
use coplay_sim::random::Random;

const LAG: u32 = 6;
const WARM_UP: u32 = 600;
const FRAMES: u32 = 3_000;
const DELAY: TimeDelta = TimeDelta::from_millis(50);
const LOSS: f64 = 0.2;

/// Sites on a bad network.
struct World {
    now: Instant,
    sites: Vec<Site>,
    flying: VecDeque<Datagram>,
    inputs: Inputs,
    luck: Random,
}

struct Site {
    session: Session,
    machine: Machine,
    words: Vec<InputWord>,
    deadline: Instant,
    /// What the engine has allocated since it was made.
    allocated: u64,
}

struct Datagram {
    arrives: Instant,
    from: usize,
    to: usize,
    len: usize,
    bytes: [u8; MAX_DATAGRAM],
}

/// Calls the engine and adds what it allocates to `sum`.
fn counted<T>(sum: &mut u64, engine: impl FnOnce() -> T) -> T {
    let before = allocations();
    let result = engine();
    *sum += allocations() - before;
    result
}

impl World {
    fn new(sites: usize, recovery: Recovery, seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            sites: (0..sites).map(|number| Site::new(number, sites, recovery)).collect(),
            flying: VecDeque::new(),
            inputs: Inputs::new(seed, sites),
            luck: Random::stream(seed, "loss"),
        }
    }

    fn run_until_all_have(&mut self, frames: u32) {
        let limit = self.now + TimeDelta::from_secs(10) + TimeDelta::from_millis(100) * i64::from(frames);
        while self.sites.iter().any(|site| site.machine.frames() < frames) {
            assert!(self.now < limit, "the game is stuck at {:?}", self.now);
            self.turn();
        }
    }

    /// What happens next happens.
    fn turn(&mut self) {
        let at = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline).expect("there are sites");
        let deadline = self.sites[at].deadline.max(self.now);
        if self.flying.front().is_some_and(|datagram| datagram.arrives <= deadline) {
            self.arrive();
        } else {
            self.now = deadline;
            self.drive(at);
        }
    }

    fn arrive(&mut self) {
        let Some(datagram) = self.flying.pop_front() else { return };
        self.now = datagram.arrives;
        let Site { session, allocated, .. } = &mut self.sites[datagram.to];
        let (from, bytes) = (Addr(datagram.from as u64), &datagram.bytes[..datagram.len]);
        counted(allocated, || session.handle_datagram(self.now, from, bytes));
        self.drive(datagram.to);
    }

    /// The host program of a site.
    fn drive(&mut self, at: usize) {
        loop {
            let asked = self.sites[at].serve(self.now, at, &self.inputs);
            self.send(at);
            if !asked {
                break;
            }
        }
        let Site { session, allocated, deadline, .. } = &mut self.sites[at];
        while counted(allocated, || session.poll_event()).is_some() {}
        *deadline = counted(allocated, || session.poll_timeout()).expect("the game goes on");
    }

    fn send(&mut self, from: usize) {
        let Site { session, allocated, .. } = &mut self.sites[from];
        let mut bytes = [0; MAX_DATAGRAM];
        while let Some(transmit) = counted(allocated, || session.poll_transmit(self.now, &mut bytes)) {
            if !self.luck.chance(LOSS) {
                let (to, arrives) = (transmit.to.0 as usize, self.now + DELAY);
                self.flying.push_back(Datagram { arrives, from, to, len: transmit.len, bytes });
            }
        }
    }

    fn allocated(&self) -> u64 {
        self.sites.iter().map(|site| site.allocated).sum()
    }

    fn stalls(&self) -> u64 {
        self.sites.iter().map(|site| site.session.stats().stalls).sum()
    }
}

impl Site {
    fn new(number: usize, sites: usize, recovery: Recovery) -> Self {
        let id = SiteId::first(sites).nth(number).expect("no more sites than there can be");
        let others = SiteId::first(sites).filter(|other| *other != id);
        let peers = others.map(|other| (other, Addr(other.index() as u64))).collect();
        let settings = toy_settings(LAG, Ownership::one_player_per_site(sites, 0xffff));
        let config = Config { recovery, ..Config::new(1, id, peers, settings) };
        let mut allocated = 0;
        Self {
            session: counted(&mut allocated, || Session::new(Instant::ZERO, config)).expect("the settings are sound"),
            machine: Machine::default(),
            words: vec![0; sites],
            deadline: Instant::ZERO,
            allocated,
        }
    }

    /// Does the next thing the session asks for; `false` when there is nothing.
    fn serve(&mut self, now: Instant, number: usize, inputs: &Inputs) -> bool {
        let Self { session, machine, words, allocated, .. } = self;
        match counted(allocated, || session.poll_request(now)) {
            None => return false,
            Some(Request::Sample { frame }) => {
                words[number] = InputWord::from(inputs.pressed(number, frame.number()));
                counted(allocated, || session.handle_input(now, words));
            }
            Some(Request::Advance { inputs, .. }) => machine.step(inputs.iter().map(|word| *word as u16)),
            Some(Request::Save { .. } | Request::Load { .. }) => unreachable!("nothing is guessed"),
            Some(Request::Snapshot { .. } | Request::Restore { .. }) => unreachable!("nobody comes late"),
            Some(Request::Regions { .. } | Request::Pages { .. }) => unreachable!("nothing differs"),
            Some(Request::Hash { .. }) => counted(allocated, || session.handle_hash(machine.state())),
        }
        true
    }
}

fn check(sites: usize, recovery: Recovery) {
    let mut world = World::new(sites, recovery, 1);
    world.run_until_all_have(WARM_UP);
    let (before, stalls) = (world.allocated(), world.stalls());
    assert!(before > 0, "making a session and its lobby allocates, and that is seen");
    world.run_until_all_have(WARM_UP + FRAMES);
    assert!(world.stalls() > stalls, "frames had to wait, so that the ways of recovery were gone");
    assert_eq!(world.allocated() - before, 0, "allocations at {sites} sites with {recovery:?}");
}

#[test]
fn two_sites_play_without_allocating() {
    for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive, Recovery::Classic] {
        check(2, recovery);
    }
}

#[test]
fn eight_sites_play_without_allocating() {
    for recovery in [Recovery::Redundant, Recovery::History, Recovery::Adaptive] {
        check(8, recovery);
    }
}

#[test]
fn guesses_and_repairs_do_not_allocate() {
    for sites in [2, 8] {
        let case = Case { sites, rtt_ms: 100, loss_percent: 5, lag: 2, window: 8, seed: 1 };
        let mut world = rollback::world::World::<rollback::ours::Site>::new(case);
        world.run_until(Instant::ZERO + TimeDelta::from_secs(15));
        let before = world.spent().allocations;
        assert!(before > 0, "a lobby allocates, and that is seen");
        world.run_until(Instant::ZERO + TimeDelta::from_secs(65));
        assert!(world.hosts().iter().all(|host| host.books().resimulated > 300), "frames were repaired");
        assert_eq!(world.spent().allocations - before, 0, "allocations at {sites} sites");
    }
}

#[test]
fn the_counter_counts() {
    let mut sum = 0;
    let boxed = counted(&mut sum, || Box::new(std::hint::black_box(7)));
    assert_eq!((sum, *boxed), (1, 7));
    let mut grown = vec![0u8; 16];
    counted(&mut sum, || grown.reserve_exact(std::hint::black_box(1 << 16)));
    assert_eq!(sum, 2, "to grow counts");
    counted(&mut sum, || drop((boxed, grown)));
    assert_eq!(sum, 2, "to give back does not");
}
