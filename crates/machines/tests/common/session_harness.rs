//! Runs machines under the session engine in virtual time, with an independent reference machine.
//!
//! Every site records inputs and state hash of each frame, until the frame is confirmed. Then the record goes to the
//! checker. The checker runs the confirmed inputs on its own machine, which never rolls back, and compares all states.

use std::collections::VecDeque;

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::InputWord;
use coplay::session::{Config, Event, Session, Settings, Stats};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_machines::Machine;
use coplay_machines::session_adapter::{self, RequestCounts, RequestOutcome, SessionAdapter, SharedGameOptions};
use coplay_sim::host_network::{HostNetwork, HostProgram};

use super::RandomInputs;

const SESSION_ID: u64 = 0x5eed;
/// Maximum number of unconfirmed frames that a site records. The engine allows fewer.
const MAX_UNCONFIRMED: usize = 256;

/// Inputs of a stepped frame, and the state hash after it.
#[derive(Clone, Debug)]
pub struct SteppedFrame {
    pub frame: u32,
    pub inputs: Vec<InputWord>,
    pub state_hash: u64,
}

/// Number and total time of one kind of operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCost {
    pub count: u64,
    pub nanos: u64,
}

/// Numbers and total times of all timed operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCosts {
    pub rendered_step: OperationCost,
    pub resimulated_step: OperationCost,
    pub save: OperationCost,
    pub load: OperationCost,
    pub hash: OperationCost,
}

/// A site with session, machine and random inputs.
pub struct TestSite {
    session: Session,
    pub adapter: SessionAdapter,
    random_inputs: RandomInputs,
    unconfirmed: VecDeque<SteppedFrame>,
    /// First frame that is not confirmed.
    confirmed_end: u32,
    /// Confirmed frames that the checker has not taken yet.
    pub confirmed: VecDeque<SteppedFrame>,
    pub events: Vec<Event>,
    pub error: Option<String>,
    pub costs: OperationCosts,
    /// Clock that times the operations, in nanoseconds.
    clock: fn() -> u64,
}

impl TestSite {
    pub fn new(now: Instant, config: Config, machine: Box<dyn Machine>, seed: u64, clock: fn() -> u64) -> Self {
        let players = config.settings.ownership.players();
        Self {
            random_inputs: RandomInputs::new(seed + u64::from(config.site.number()), players),
            session: Session::new(now, config).expect("the settings are valid"),
            adapter: SessionAdapter::new(machine),
            unconfirmed: VecDeque::new(),
            confirmed_end: 0,
            confirmed: VecDeque::new(),
            events: Vec::new(),
            error: None,
            costs: OperationCosts::default(),
            clock,
        }
    }

    pub fn stats(&self) -> Stats {
        self.session.stats()
    }

    pub fn counts(&self) -> RequestCounts {
        self.adapter.counts()
    }

    fn record_step(&mut self, frame: Frame) {
        let number = frame.number();
        // A desync search may replay confirmed frames.
        if number < self.confirmed_end {
            return;
        }
        let record = SteppedFrame {
            frame: number,
            inputs: self.adapter.inputs().to_vec(),
            state_hash: self.adapter.machine_mut().hash(),
        };
        match self.unconfirmed.iter_mut().find(|recorded| recorded.frame == number) {
            Some(recorded) => *recorded = record,
            None => self.unconfirmed.push_back(record),
        }
        assert!(self.unconfirmed.len() <= MAX_UNCONFIRMED, "frames are never confirmed");
    }

    fn add_cost(&mut self, outcome: &RequestOutcome, nanos: u64) {
        let cost = match outcome {
            RequestOutcome::Stepped { rendered: true, .. } => &mut self.costs.rendered_step,
            RequestOutcome::Stepped { rendered: false, .. } => &mut self.costs.resimulated_step,
            RequestOutcome::Saved { .. } => &mut self.costs.save,
            RequestOutcome::Loaded { .. } => &mut self.costs.load,
            RequestOutcome::Hashed { .. } => &mut self.costs.hash,
            _ => return,
        };
        cost.count += 1;
        cost.nanos += nanos;
    }
}

impl HostProgram for TestSite {
    fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    fn serve_request(&mut self, now: Instant) -> bool {
        let started = (self.clock)();
        let Some(outcome) = self.adapter.handle_next_request(now, &mut self.session) else { return false };
        self.add_cost(&outcome, (self.clock)() - started);
        match outcome {
            RequestOutcome::InputNeeded { .. } => {
                self.session.handle_input(now, self.random_inputs.next_inputs(InputWord::MAX))
            }
            RequestOutcome::Stepped { frame, .. } => self.record_step(frame),
            RequestOutcome::Failed(error) => self.error = Some(error.to_string()),
            _ => {}
        }
        true
    }

    fn on_idle(&mut self, _now: Instant) {
        let confirmed = self.stats().confirmed.number();
        while self.unconfirmed.front().is_some_and(|record| record.frame < confirmed) {
            self.confirmed.extend(self.unconfirmed.pop_front());
        }
        self.confirmed_end = confirmed;
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
    }
}

/// Returns a link with a round trip of 80 ms on average, jitter and 5 % loss in each direction.
pub fn bad_link() -> LinkConfig {
    LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(36)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(4) },
        loss: Loss::Independent(0.05),
        ..LinkConfig::default()
    }
}

/// Returns options with fixed delay settings: input delay 2, prediction window 8. Sites compare states every 60 frames.
pub fn test_options(sites: u8) -> SharedGameOptions {
    SharedGameOptions { sites, input_delay: 2, prediction_window: 8, auto_delay: false, hash_interval: 60 }
}

/// Returns the config of a site, with a spectator feed for late joiners.
pub fn test_config(machine: &dyn Machine, site: SiteId, settings: &Settings) -> Config {
    let peers = HostNetwork::<TestSite>::peers(site, usize::from(settings.site_count));
    let default = session_adapter::config(machine, SESSION_ID, site, peers, settings.clone());
    Config { feed: Some(FeedConfig::new(SESSION_ID, u64::from(site.number()) + 1, settings.clone())), ..default }
}

/// Compares the sites with a machine that runs only confirmed inputs.
pub struct ReferenceChecker {
    machine: Box<dyn Machine>,
    /// Next frame to check.
    pub next_frame: u32,
    /// First frame whose inputs differ between sites, or after which a site's state differs from the reference, and the
    /// index of that site.
    pub first_mismatch: Option<(u32, usize)>,
}

impl ReferenceChecker {
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self { machine, next_frame: 0, first_mismatch: None }
    }

    /// Checks every frame that is confirmed at all of these sites.
    pub fn check_confirmed(&mut self, sites: &mut [&mut TestSite]) {
        while sites.iter().all(|site| !site.confirmed.is_empty()) {
            let records: Vec<SteppedFrame> = sites.iter_mut().filter_map(|site| site.confirmed.pop_front()).collect();
            self.machine.step(&records[0].inputs, true);
            let hash = self.machine.hash();
            for (site, record) in records.iter().enumerate() {
                let is_equal =
                    (record.frame, record.state_hash, &record.inputs) == (self.next_frame, hash, &records[0].inputs);
                if !is_equal {
                    self.first_mismatch.get_or_insert((self.next_frame, site));
                }
            }
            self.next_frame += 1;
        }
    }
}

/// Runs the network until `frames` frames are checked, a mismatch is found, or the time limit of 40 ms per frame plus
/// 30 s of virtual time is over.
pub fn run_until_checked(
    network: &mut HostNetwork<TestSite>,
    checker: &mut ReferenceChecker,
    frames: u32,
    mut on_progress: impl FnMut(u32),
) {
    let deadline = Instant::ZERO + TimeDelta::from_millis(i64::from(frames) * 40) + TimeDelta::from_secs(30);
    while checker.next_frame < frames && checker.first_mismatch.is_none() && network.now() < deadline {
        let until = network.now() + TimeDelta::from_secs(1);
        network.run_until(until);
        checker.check_confirmed(&mut network.nodes.iter_mut().map(|site| &mut site.node).collect::<Vec<_>>());
        on_progress(checker.next_frame);
    }
}
