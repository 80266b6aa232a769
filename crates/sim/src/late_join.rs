//! Somebody comes late to a game: how long it takes until he plays, and what those who play notice of it.
//!
//! Every experiment is run twice with the same luck, once with the latecomer and once without. Up to the frame with which he sits
//! down, whatever the players' machines are made to do must be the same, at the same instants; and so must be every datagram between
//! the players up to the one that carries the order.

use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::session::{Config, Event, LateJoin, Session, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{Extra, SessionMessage};

use crate::clock::NodeClock;
use crate::link::{LinkConfig, Loss, Rate};
use crate::random::Random;
use crate::session_experiment::toy_settings;
use crate::session_network::{self, CapturedDatagram, SessionNetwork, SiteEvent};
use crate::site::SimulatedSite;
use crate::toy_machine::mix_hash;

/// The world is looked at this often.
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(2);
/// More datagrams than leave in a turn.
const CAPTURE_LIMIT: usize = 10_000;
/// Bits of an input: two bytes.
const INPUT_MASK: InputWord = 0xffff;

/// What is run.
#[derive(Clone, Debug)]
pub struct LateJoinExperiment {
    /// All randomness comes from this.
    pub seed: u64,
    /// How many there are with the latecomer, who is the last of them.
    pub sites: usize,
    /// Whether the latecomer was there at the start, and died this long before he comes back, from another address.
    pub crashed_before: Option<TimeDelta>,
    /// Local lag in frames.
    pub input_delay: u32,
    /// Frames that may be guessed.
    pub prediction_window: u32,
    /// One direction of the links between the players.
    pub player_link: LinkConfig,
    /// One direction of the links between the latecomer and each player.
    pub joiner_link: LinkConfig,
    /// Bytes of the machine's state that cannot be made shorter.
    pub state_bytes: usize,
    /// With what the latecomer begins.
    pub start: SpectatorStart,
    /// Whether the machines can save.
    pub can_save: bool,
    /// How long a machine takes for a step.
    pub step_cost: TimeDelta,
    /// When the latecomer comes.
    pub joins_at: TimeDelta,
    /// How long the game goes on after that.
    pub time_after_join: TimeDelta,
}

impl LateJoinExperiment {
    /// Two players, 100 ms apart, with one packet in a hundred lost; 20 seconds into the game a third one comes, 300 ms away from
    /// both over lines of 1 Mbit/s that lose one packet in fifty, to a state of 1 MiB.
    pub fn by_snapshot() -> Self {
        Self {
            seed: 1,
            sites: 3,
            crashed_before: None,
            input_delay: 4,
            prediction_window: 8,
            player_link: lossy_link(100, 0.01),
            joiner_link: LinkConfig { rate: Some(one_megabit()), ..lossy_link(300, 0.02) },
            state_bytes: 1 << 20,
            start: SpectatorStart::Snapshot,
            can_save: true,
            step_cost: TimeDelta::ZERO,
            joins_at: TimeDelta::from_secs(20),
            time_after_join: TimeDelta::from_secs(75),
        }
    }

    /// The same with machines that cannot save and take 1 ms for a step, 10 minutes into the game: he plays all of it again.
    pub fn by_replay() -> Self {
        Self {
            input_delay: 6,
            prediction_window: 0,
            joiner_link: LinkConfig { rate: Some(one_megabit()), ..lossy_link(100, 0.02) },
            state_bytes: 0,
            start: SpectatorStart::FirstFrame,
            can_save: false,
            step_cost: TimeDelta::from_millis(1),
            joins_at: TimeDelta::from_secs(600),
            ..Self::by_snapshot()
        }
    }

    /// One of three dies, is dropped after a second, and is back after 3.
    pub fn rejoin_after_crash() -> Self {
        Self { crashed_before: Some(TimeDelta::from_secs(3)), state_bytes: 64 << 10, ..Self::by_snapshot() }
    }

    /// One plays alone, and a second one comes.
    pub fn join_single_player() -> Self {
        Self { sites: 2, state_bytes: 64 << 10, ..Self::by_snapshot() }
    }

    fn settings(&self) -> Settings {
        let starters = SiteSet::first(self.sites - usize::from(self.crashed_before.is_none()));
        let toy = toy_settings(self.input_delay, Ownership::one_player_per_site(self.sites, INPUT_MASK));
        Settings { prediction_window: self.prediction_window, starting_sites: starters, ..toy }
    }

    fn config(&self, number: usize) -> Config {
        let settings = self.settings();
        let id = SiteId::first(self.sites).nth(number).expect("no more sites than there can be");
        let feed = FeedConfig { log_bytes: 1 << 20, ..FeedConfig::new(self.seed, 4_711, settings.clone()) };
        Config {
            feed: Some(feed),
            can_save: self.can_save,
            drop_timeout: self.crashed_before.map(|_| TimeDelta::from_secs(1)),
            ..Config::new(self.seed, id, SessionNetwork::peers(number, self.sites), settings)
        }
    }

    fn build_site(&self, number: usize) -> SimulatedSite {
        let mut luck = Random::stream(self.seed, &format!("site {number}"));
        let clock = NodeClock {
            offset: TimeDelta::from_millis(luck.range(0..=10_000_000)),
            skew_ppm: luck.unit() * 100.0 - 50.0,
        };
        let session = Session::new(clock.local(Instant::ZERO), self.config(number)).expect("the settings are sound");
        let mut site = session_network::new_site(session, clock, self.sites, luck.bits());
        let mut ballast = Random::stream(self.seed, "ballast");
        site.machine.ballast = (0..self.state_bytes).map(|_| ballast.bits() as u8).collect();
        site.step_cost = self.step_cost;
        site.player.mask = INPUT_MASK;
        site.is_crashed = number == self.joiner() && self.crashed_before.is_none();
        site
    }

    fn joiner(&self) -> usize {
        self.sites - 1
    }

    fn build_network(&self) -> SessionNetwork {
        let sites = (0..self.sites).map(|number| self.build_site(number)).collect();
        let way = |one: usize, other: usize| one.max(other) == self.joiner();
        SessionNetwork::new(self.seed, sites, |one, other| {
            if way(one, other) { self.joiner_link.clone() } else { self.player_link.clone() }
        })
    }

    /// The latecomer's program starts.
    fn start_joiner(&self, world: &mut SessionNetwork) {
        let newcomer = self.joiner();
        let join = Some(LateJoin { start: self.start, max_state_len: 2 << 20 });
        let config = Config { late_join: join, incarnation: 2, ..self.config(newcomer) };
        if self.crashed_before.is_some() {
            world.change_address(newcomer);
        } else if self.start == SpectatorStart::Snapshot {
            // Whoever was never there has nothing of the state.
            world.sites[newcomer].machine.ballast.clear();
        }
        let local = world.sites[newcomer].clock.local(world.now());
        world.restart(newcomer, Session::new(local, config).expect("the settings are sound"));
    }

    /// Runs it, and the same without a latecomer.
    pub fn run(&self) -> LateJoinResult {
        let (with, without) = (self.run_once(true), self.run_once(false));
        LateJoinResult::new(self, &with, &without)
    }

    fn run_once(&self, comes: bool) -> JoinLog {
        let mut world = self.build_network();
        let mut log = JoinLog::new(self.sites);
        let at = Instant::ZERO + self.joins_at;
        if let Some(before) = self.crashed_before {
            log.run_until(&mut world, at - before);
            world.crash(self.joiner());
        }
        log.run_until(&mut world, at);
        if comes {
            self.start_joiner(&mut world);
        }
        log.run_until(&mut world, at + self.time_after_join);
        log.finish(&world);
        log
    }
}

/// A link of this round trip that loses packets.
fn lossy_link(rtt_ms: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..LinkConfig::constant_rtt(TimeDelta::from_millis(rtt_ms)) }
}

/// 1 Mbit/s of payload, with a queue of half a second.
fn one_megabit() -> Rate {
    Rate { bytes_per_second: 125_000, queue_bytes: 62_500 }
}

/// Something that a machine was made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MachineAction {
    at: Instant,
    kind: ActionKind,
    frame: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActionKind {
    Save,
    Load,
    /// A step for the first time.
    FirstStep,
    /// A step once more.
    Resimulate,
}

/// A frame that is certain.
#[derive(Clone, Copy, Debug)]
struct ConfirmedRecord {
    frame: u32,
    /// What the latecomer did in it.
    joiner_input: InputWord,
    hash: u64,
    /// How many frames from this one on were stepped already, resting on a guess of it.
    predicted_frames: u32,
}

/// A datagram from one player to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlayerDatagram {
    at: Instant,
    from: usize,
    hash: u64,
}

/// What a site's session had counted when it came to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountsMark {
    frame: u32,
    counts: StallCounts,
}

/// What a game costs one player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounts {
    /// Frames that had to wait for inputs.
    pub stalls: u64,
    /// Frames that were stepped once more.
    pub resimulated: u64,
}

impl StallCounts {
    fn since(self, before: Self) -> Self {
        Self { stalls: self.stalls - before.stalls, resimulated: self.resimulated - before.resimulated }
    }
}

/// All that is of interest of one run.
#[derive(Debug)]
struct JoinLog {
    actions: Vec<Vec<MachineAction>>,
    confirmed: Vec<Vec<ConfirmedRecord>>,
    marks: Vec<Vec<CountsMark>>,
    datagrams: Vec<PlayerDatagram>,
    /// When a player first passed on an order.
    join_scheduled_at: Option<Instant>,
    /// Who said, and when, that the latecomer sits down, and with which frame.
    join_events: Vec<(usize, Instant, u32)>,
    /// When the latecomer's machine was first past the first frame.
    loaded_at: Option<Instant>,
    /// When the latecomer's player was first asked for an input, and the frame it was for.
    first_input: Option<(Instant, u32)>,
    end_reason: Option<SessionEnd>,
    all_running: bool,
    states_equal: bool,
}

impl JoinLog {
    fn new(sites: usize) -> Self {
        Self {
            actions: vec![Vec::new(); sites],
            confirmed: vec![Vec::new(); sites],
            marks: vec![vec![CountsMark::default()]; sites],
            datagrams: Vec::new(),
            join_scheduled_at: None,
            join_events: Vec::new(),
            loaded_at: None,
            first_input: None,
            end_reason: None,
            all_running: false,
            states_equal: false,
        }
    }

    fn joiner(&self) -> usize {
        self.actions.len() - 1
    }

    fn run_until(&mut self, world: &mut SessionNetwork, until: Instant) {
        // What a site did before it died is not of interest.
        let newcomer = self.joiner();
        (self.first_input, self.loaded_at) = (None, None);
        self.actions[newcomer].clear();
        self.confirmed[newcomer].clear();
        while world.now() < until {
            world.start_capture(CAPTURE_LIMIT);
            let next = (world.now() + STEP_INTERVAL).min(until);
            world.run_until(next, &mut |happened| self.on_event(&happened));
            world.captured().filter(|heard| heard.from < newcomer).for_each(|heard| self.on_datagram(heard));
            for (marks, site) in self.marks.iter_mut().zip(&world.sites) {
                let stats = site.session.stats();
                let counts = StallCounts { stalls: stats.stalls, resimulated: stats.resimulated };
                marks.push(CountsMark { frame: stats.frame.number(), counts });
                marks.dedup_by_key(|mark| mark.frame);
            }
            let at_beginning = world.sites[newcomer].session.stats().frame == Frame::ZERO;
            self.loaded_at = self.loaded_at.or((!at_beginning).then_some(world.now()));
        }
    }

    /// A player sends something.
    fn on_datagram(&mut self, heard: &CapturedDatagram) {
        if self.join_scheduled_at.is_none() && carries_scheduled_command(&heard.bytes) {
            self.join_scheduled_at = Some(heard.at);
        }
        if heard.to < self.joiner() {
            let hash = heard.bytes.iter().fold(heard.to as u64, |hash, byte| mix_hash(hash, u64::from(*byte)));
            self.datagrams.push(PlayerDatagram { at: heard.at, from: heard.from, hash });
        }
    }

    fn on_event(&mut self, happened: &SiteEvent<'_>) {
        let newcomer = self.joiner();
        match *happened {
            SiteEvent::Saved { site, at, frame } => {
                self.actions[site].push(MachineAction { at, kind: ActionKind::Save, frame })
            }
            SiteEvent::Loaded { site, at, frame } => {
                self.actions[site].push(MachineAction { at, kind: ActionKind::Load, frame })
            }
            SiteEvent::Stepped { site, at, frame, fresh, .. } => {
                let what = if fresh { ActionKind::FirstStep } else { ActionKind::Resimulate };
                self.actions[site].push(MachineAction { at, kind: what, frame });
            }
            SiteEvent::Confirmed { site, frame, words, hash, .. } => {
                let last = self.actions[site]
                    .iter()
                    .rev()
                    .find(|act| act.kind == ActionKind::FirstStep)
                    .map_or(0, |act| act.frame);
                // One frame is stepped as it becomes certain, and rests on no guess.
                let guessed = last.saturating_sub(frame);
                self.confirmed[site].push(ConfirmedRecord {
                    frame,
                    joiner_input: words[newcomer] & INPUT_MASK,
                    hash,
                    predicted_frames: guessed,
                });
            }
            SiteEvent::Sampled { site, at, frame, .. } if site == newcomer => {
                self.first_input.get_or_insert((at, frame));
            }
            SiteEvent::SessionEvent { site, at, event: Event::Joined { site: joins, frame } }
                if joins.index() == newcomer =>
            {
                self.join_events.push((site, at, frame.number()));
            }
            SiteEvent::SessionEvent { site, event: Event::Ended(end), .. } if site == newcomer => {
                self.end_reason = Some(end)
            }
            _ => {}
        }
    }

    fn finish(&mut self, world: &SessionNetwork) {
        self.all_running = world.sites.iter().all(|site| matches!(site.session.state(), State::Running));
        let ballast = |site: &SimulatedSite| site.machine.ballast == world.sites[0].machine.ballast;
        self.states_equal = world.sites.iter().filter(|site| !site.is_crashed).all(ballast) && self.hashes_are_equal();
    }

    /// Whether all sites had the same states after all frames that more than one is certain of.
    fn hashes_are_equal(&self) -> bool {
        let hash = |site: usize, frame: u32| {
            let frames = &self.confirmed[site];
            let at = frames.binary_search_by_key(&frame, |certain| certain.frame).ok()?;
            Some(frames[at].hash)
        };
        let equal = |certain: &ConfirmedRecord| {
            let others = (1..self.confirmed.len()).filter_map(|site| hash(site, certain.frame));
            others.into_iter().all(|other| other == certain.hash)
        };
        self.confirmed[0].iter().all(equal)
    }

    /// What a site had counted when it came to a frame.
    fn counts_at(&self, site: usize, frame: u32) -> StallCounts {
        let marks = &self.marks[site];
        marks[marks.partition_point(|mark| mark.frame <= frame) - 1].counts
    }

    fn final_counts(&self, site: usize) -> StallCounts {
        self.marks[site].last().map_or(StallCounts::default(), |mark| mark.counts)
    }

    /// What a site's machine was made to do until it stepped this frame.
    fn actions_until(&self, site: usize, frame: u32) -> &[MachineAction] {
        let acts = &self.actions[site];
        let until = acts.iter().position(|act| act.kind == ActionKind::FirstStep && act.frame >= frame);
        &acts[..until.unwrap_or(acts.len())]
    }

    /// How often the latecomer changed his input from a frame on, and how many frames rest on a guess of one on average, at a site.
    fn joiner_input_changes(&self, site: usize, from: u32) -> (u64, f64) {
        let certain = &self.confirmed[site];
        let since = &certain[certain.partition_point(|certain| certain.frame < from)..];
        let changes = since.windows(2).filter(|pair| pair[0].joiner_input != pair[1].joiner_input);
        let depths: Vec<u32> = changes.map(|pair| pair[1].predicted_frames).collect();
        let sum: u32 = depths.iter().sum();
        (depths.len() as u64, f64::from(sum) / depths.len().max(1) as f64)
    }
}

fn carries_scheduled_command(bytes: &[u8]) -> bool {
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { return false };
    tick.extras.iter().any(|extra| matches!(extra, Extra::Command(_)))
}

/// What it was to one player.
#[derive(Clone, Copy, Debug)]
pub struct PlayerImpact {
    /// Up to the frame with which the latecomer sits down: with him and without.
    pub before: [StallCounts; 2],
    /// From then on.
    pub after: [StallCounts; 2],
    /// Whether its machine was made to do the same at the same instants, up to that frame.
    pub same_actions: bool,
    /// How many of those acts there were.
    pub action_count: usize,
    /// How often the latecomer changed his input, and how many frames had been stepped on a guess of it on average.
    pub joiner_input_changes: u64,
    /// Frames from the one with the change on that were stepped before it was known, on average.
    pub mean_prediction_depth: f64,
}

impl PlayerImpact {
    /// The frames to be stepped once more for the latecomer's own changes alone.
    pub fn expected_resimulated(&self) -> f64 {
        self.joiner_input_changes as f64 * self.mean_prediction_depth
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct LateJoinResult {
    /// The frame with which the latecomer sits down, if all who said so said the same.
    pub join_frame: Option<u32>,
    /// How long it took until his machine had a state, or its first frame.
    pub loaded_after: Option<TimeDelta>,
    /// How long it took until the order was given.
    pub scheduled_after: Option<TimeDelta>,
    /// How long it took until he sat down.
    pub joined_after: Option<TimeDelta>,
    /// How long it took until his buttons were read.
    pub first_input_after: Option<TimeDelta>,
    /// How far behind the first player he stepped his frames on average, in the last ten seconds.
    pub mean_behind_ms: f64,
    /// The players.
    pub players: Vec<PlayerImpact>,
    /// Datagrams between the players before the first one with the order, and whether they were the same at the same instants.
    pub datagrams: usize,
    /// Whether they were.
    pub same_datagrams: bool,
    /// Whether all sites play at the end.
    pub all_running: bool,
    /// How it ended for the latecomer, if it did.
    pub end_reason: Option<SessionEnd>,
    /// Whether all sites had the same states after all frames.
    pub states_equal: bool,
}

impl LateJoinResult {
    fn new(experiment: &LateJoinExperiment, with: &JoinLog, without: &JoinLog) -> Self {
        let came = Instant::ZERO + experiment.joins_at;
        let newcomer = experiment.joiner();
        let frames = || with.join_events.iter().map(|(_, _, frame)| *frame);
        let frame = frames().next().filter(|first| frames().all(|frame| frame == *first));
        let seated = with.join_events.iter().find(|(site, _, _)| *site == newcomer).map(|(_, at, _)| *at - came);
        let until = with.join_scheduled_at.unwrap_or(Instant::FAR_FUTURE);
        let packets =
            |log: &JoinLog| log.datagrams.iter().copied().filter(|packet| packet.at < until).collect::<Vec<_>>();
        Self {
            join_frame: frame,
            loaded_after: with.loaded_at.map(|at| at - came),
            scheduled_after: with.join_scheduled_at.map(|at| at - came),
            joined_after: seated,
            first_input_after: with.first_input.map(|(at, _)| at - came),
            mean_behind_ms: mean_behind_ms(&with.actions[0], &with.actions[newcomer]),
            players: (0..newcomer)
                .map(|site| PlayerImpact::new(site, frame.unwrap_or(u32::MAX), with, without))
                .collect(),
            datagrams: packets(with).len(),
            same_datagrams: packets(with) == packets(without),
            all_running: with.all_running,
            end_reason: with.end_reason,
            states_equal: with.states_equal,
        }
    }
}

impl PlayerImpact {
    fn new(site: usize, frame: u32, with: &JoinLog, without: &JoinLog) -> Self {
        let [before_with, before_without] = [with, without].map(|log| log.counts_at(site, frame));
        let acts = with.actions_until(site, frame);
        let (changes, depth) = with.joiner_input_changes(site, frame);
        Self {
            before: [before_with, before_without],
            after: [with.final_counts(site).since(before_with), without.final_counts(site).since(before_without)],
            same_actions: acts == without.actions_until(site, frame),
            action_count: acts.len(),
            joiner_input_changes: changes,
            mean_prediction_depth: depth,
        }
    }
}

/// How much later one stepped the same frames than another, on average, in the last ten seconds.
fn mean_behind_ms(first: &[MachineAction], other: &[MachineAction]) -> f64 {
    let fresh = |acts: &[MachineAction]| {
        acts.iter().copied().filter(|act| act.kind == ActionKind::FirstStep).collect::<Vec<_>>()
    };
    let (first, other) = (fresh(first), fresh(other));
    let step = |frame: u32| first.binary_search_by_key(&frame, |act| act.frame).ok().map(|at| first[at].at);
    let late = other.iter().rev().take(600).filter_map(|act| step(act.frame).map(|at| (act.at - at).as_millis_f64()));
    let late: Vec<f64> = late.collect();
    late.iter().sum::<f64>() / late.len().max(1) as f64
}
