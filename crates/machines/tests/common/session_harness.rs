//! Machines under the session engine in virtual time, and a judge who believes nobody.
//!
//! Every site notes the state after every step. When a frame is certain, the note goes to the judge, who plays the confirmed inputs on a
//! machine of his own that never goes back, and compares all three.

use std::collections::VecDeque;

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::InputWord;
use coplay::session::{Config, Event, Session, Settings, Stats};
use coplay::spectator_feed::FeedConfig;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::session_adapter::{self, RequestCounts, RequestOutcome, SessionAdapter, SessionOptions};
use coplay_sim::host_network::{HostNetwork, HostProgram};
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};

use super::RandomInputs;

/// The number of every session here.
const SESSION_ID: u64 = 0x5eed;
/// Frames that may be open at once; more than the engine allows.
const MAX_UNCONFIRMED: usize = 256;

/// A frame that was stepped.
#[derive(Clone, Debug)]
pub struct SteppedFrame {
    pub frame: u32,
    pub inputs: Vec<InputWord>,
    pub state_hash: u64,
}

/// What one kind of work has cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCost {
    pub count: u64,
    pub nanos: u64,
}

/// The kinds of work that are timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCosts {
    pub rendered_step: OperationCost,
    pub resimulated_step: OperationCost,
    pub save: OperationCost,
    pub load: OperationCost,
    pub hash: OperationCost,
}

/// A site: session, machine and player.
pub struct TestSite {
    session: Session,
    pub adapter: SessionAdapter,
    random_inputs: RandomInputs,
    unconfirmed: VecDeque<SteppedFrame>,
    /// Frames before this one are certain.
    confirmed_end: u32,
    /// Frames that are certain and not judged yet.
    pub confirmed: VecDeque<SteppedFrame>,
    pub events: Vec<Event>,
    pub error: Option<String>,
    pub costs: OperationCosts,
    /// Nanoseconds of a real clock, where work is timed.
    clock: fn() -> u64,
}

impl TestSite {
    pub fn new(now: Instant, config: Config, machine: Box<dyn Machine>, seed: u64, clock: fn() -> u64) -> Self {
        let players = config.settings.ownership.players();
        Self {
            random_inputs: RandomInputs::new(seed + u64::from(config.site.number()), players),
            session: Session::new(now, config).expect("sound settings"),
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
        // The past is sometimes played again to look into a difference.
        if number < self.confirmed_end {
            return;
        }
        let note = SteppedFrame {
            frame: number,
            inputs: self.adapter.inputs().to_vec(),
            state_hash: self.adapter.machine_mut().hash(),
        };
        match self.unconfirmed.iter_mut().find(|open| open.frame == number) {
            Some(open) => *open = note,
            None => self.unconfirmed.push_back(note),
        }
        assert!(self.unconfirmed.len() <= MAX_UNCONFIRMED, "frames never become certain");
    }

    fn add_cost(&mut self, turn: &RequestOutcome, nanos: u64) {
        let cost = match turn {
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
        let begun = (self.clock)();
        let Some(turn) = self.adapter.handle_next_request(now, &mut self.session) else { return false };
        self.add_cost(&turn, (self.clock)() - begun);
        match turn {
            RequestOutcome::InputNeeded { .. } => {
                self.session.handle_input(now, self.random_inputs.next_inputs(InputWord::MAX))
            }
            RequestOutcome::Stepped { frame, .. } => self.record_step(frame),
            RequestOutcome::Failed(trouble) => self.error = Some(trouble.to_string()),
            _ => {}
        }
        true
    }

    fn on_idle(&mut self, _now: Instant) {
        let confirmed = self.stats().confirmed.number();
        while self.unconfirmed.front().is_some_and(|note| note.frame < confirmed) {
            self.confirmed.extend(self.unconfirmed.pop_front());
        }
        self.confirmed_end = confirmed;
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
    }
}

/// 80 ms round trip, jitter, 5 % loss.
pub fn bad_link() -> LinkConfig {
    LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(36)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(4) },
        loss: Loss::Independent(0.05),
        ..LinkConfig::default()
    }
}

/// Lag 2, window 8, states compared every second.
pub fn test_options(sites: u8) -> SessionOptions {
    SessionOptions { sites, input_delay: 2, prediction_window: 8, auto_delay: false, hash_interval: 60 }
}

/// How a site takes part, with a feed for those who come late.
pub fn test_config(machine: &dyn Machine, site: SiteId, settings: &Settings) -> Config {
    let peers = HostNetwork::<TestSite>::peers(site, usize::from(settings.site_count));
    let usual = session_adapter::config(machine, SESSION_ID, site, peers, settings.clone());
    Config { feed: Some(FeedConfig::new(SESSION_ID, u64::from(site.number()) + 1, settings.clone())), ..usual }
}

/// Compares what the sites played with a machine that plays only what is certain.
pub struct ReferenceChecker {
    machine: Box<dyn Machine>,
    /// The frame that is judged next.
    pub next_frame: u32,
    /// The first frame after which a site's state, or its inputs, were not those of the judge.
    pub first_mismatch: Option<(u32, usize)>,
}

impl ReferenceChecker {
    pub fn new(machine: Box<dyn Machine>) -> Self {
        Self { machine, next_frame: 0, first_mismatch: None }
    }

    /// Judges every frame that is certain at all of these sites.
    pub fn check_confirmed(&mut self, sites: &mut [&mut TestSite]) {
        while sites.iter().all(|site| !site.confirmed.is_empty()) {
            let notes: Vec<SteppedFrame> = sites.iter_mut().filter_map(|site| site.confirmed.pop_front()).collect();
            self.machine.step(&notes[0].inputs, true);
            let hash = self.machine.hash();
            for (site, note) in notes.iter().enumerate() {
                let same = (note.frame, note.state_hash, &note.inputs) == (self.next_frame, hash, &notes[0].inputs);
                if !same {
                    self.first_mismatch.get_or_insert((self.next_frame, site));
                }
            }
            self.next_frame += 1;
        }
    }
}

/// Runs the stage until the judge has seen so many frames, or a fault, or it takes too long.
pub fn run_until_checked(
    stage: &mut HostNetwork<TestSite>,
    judge: &mut ReferenceChecker,
    frames: u32,
    mut tell: impl FnMut(u32),
) {
    let patience = Instant::ZERO + TimeDelta::from_millis(i64::from(frames) * 40) + TimeDelta::from_secs(30);
    while judge.next_frame < frames && judge.first_mismatch.is_none() && stage.now() < patience {
        let until = stage.now() + TimeDelta::from_secs(1);
        stage.run_until(until);
        judge.check_confirmed(&mut stage.programs.iter_mut().collect::<Vec<_>>());
        tell(judge.next_frame);
    }
}
