//! Late join: the time until a late joiner plays, and its cost for the players.
//!
//! Every experiment runs twice with the same random draws, once with the joiner and once without. The result states
//! whether, up to the join frame, the players' machines performed the same actions at the same instants in both runs,
//! and whether the players exchanged the same datagrams at the same instants up to the first one that carries the
//! scheduled join.

use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::session::message::{Extra, SessionMessage};
use coplay::session::{Config, Event, LateJoinConfig, Session, SessionEnd, Settings, State};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;
use crate::network::{CapturedDatagram, Computer};
use crate::session_experiment::toy_settings;
use crate::session_network::{self, SessionNetwork, SiteEvent};
use crate::site::SimulatedSite;
use crate::toy_machine::mix_hash;
use coplay_links::link::{LinkConfig, Loss, Rate};
use coplay_links::random::Random;

/// Interval of virtual time at which the log samples the network.
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(2);
/// Largest number of datagrams captured per interval; more than the sites send.
const CAPTURE_LIMIT: usize = 10_000;
/// Bits of an input that each player owns: two bytes.
const INPUT_MASK: InputWord = 0xffff;

/// Parameters of a session with one late joiner.
#[derive(Clone, Debug)]
pub struct LateJoinExperiment {
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of sites including the late joiner, which is the last one.
    pub sites: usize,
    /// Time between the joiner's crash and its rejoin from another address. `None` if the joiner did not take part
    /// before.
    pub crashed_before: Option<TimeDelta>,
    /// Frames between sampling an input and the frame in which it takes effect.
    pub input_delay: u32,
    /// Prediction window in frames; 0 is lockstep.
    pub prediction_window: u32,
    /// Conditions in each direction of the links between the players.
    pub player_link: LinkConfig,
    /// Conditions in each direction of the links between the joiner and the players.
    pub joiner_link: LinkConfig,
    /// Number of incompressible bytes that are added to the machine's state.
    pub state_bytes: usize,
    /// State from which the joiner starts: a snapshot, or the first frame.
    pub start: SpectatorStart,
    /// Whether the sessions may ask the machines to save their state.
    pub can_save: bool,
    /// Time for which a site is busy with one step of its machine.
    pub step_cost: TimeDelta,
    /// Time from the start of the session to the start of the joiner.
    pub joins_at: TimeDelta,
    /// Time from the start of the joiner to the end of the run.
    pub time_after_join: TimeDelta,
}

impl LateJoinExperiment {
    /// Returns the experiment of a join by snapshot. Two players have an RTT of 100 ms and 1 % loss. 20 s into the
    /// session a third one joins by a snapshot of 1 MiB, over links with an RTT of 300 ms, 1 Mbit/s and 2 % loss.
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

    /// Returns the experiment of a join by replay. The machines cannot save and take 1 ms for a step. The joiner joins
    /// 10 minutes into the session, over links with an RTT of 100 ms, 1 Mbit/s and 2 % loss, and replays all frames.
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

    /// Returns the experiment of a rejoin: one of three sites crashes, is dropped after one second, and rejoins 3 s
    /// after the crash.
    pub fn rejoin_after_crash() -> Self {
        Self { crashed_before: Some(TimeDelta::from_secs(3)), state_bytes: 64 << 10, ..Self::by_snapshot() }
    }

    /// Returns the experiment of a second player that joins a session of one by a snapshot of 64 KiB.
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
        let id = SiteId::first(self.sites).nth(number).expect("site number is below MAX_SITES");
        let feed = FeedConfig { log_bytes: 1 << 20, ..FeedConfig::new(self.seed, 4_711, settings.clone()) };
        Config {
            feed: Some(feed),
            can_save: self.can_save,
            drop_timeout: self.crashed_before.map(|_| TimeDelta::from_secs(1)),
            ..Config::new(self.seed, id, SessionNetwork::peers(number, self.sites), settings)
        }
    }

    fn build_site(&self, number: usize) -> Computer<SimulatedSite> {
        let mut random = Random::stream(self.seed, &format!("site {number}"));
        let clock = NodeClock {
            offset: TimeDelta::from_millis(random.range(0..=10_000_000)),
            skew_ppm: random.unit() * 100.0 - 50.0,
        };
        let session = Session::new(clock.local(Instant::ZERO), self.config(number)).expect("settings are valid");
        let mut site = session_network::new_site(session, clock, self.sites, random.bits());
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
        let is_joiner_link = |one: usize, other: usize| one.max(other) == self.joiner();
        SessionNetwork::new(self.seed, sites, |one, other| {
            if is_joiner_link(one, other) { self.joiner_link.clone() } else { self.player_link.clone() }
        })
    }

    /// Starts the joiner's host program with a session that joins late.
    fn start_joiner(&self, network: &mut SessionNetwork) {
        let joiner = self.joiner();
        let join = Some(LateJoinConfig { start: self.start, max_state_len: 2 << 20 });
        let config = Config { late_join: join, incarnation: 2, ..self.config(joiner) };
        if self.crashed_before.is_some() {
            network.change_address(joiner);
        } else if self.start == SpectatorStart::Snapshot {
            // A site that never took part has nothing of the state.
            network.nodes[joiner].machine.ballast.clear();
        }
        let local = network.nodes[joiner].clock.local(network.now());
        network.restart(joiner, Session::new(local, config).expect("settings are valid"));
    }

    /// Runs the experiment with and without the joiner and compares both runs.
    pub fn run(&self) -> LateJoinResult {
        let (with, without) = (self.run_once(true), self.run_once(false));
        LateJoinResult::new(self, &with, &without)
    }

    fn run_once(&self, has_joiner: bool) -> JoinLog {
        let mut network = self.build_network();
        let mut log = JoinLog::new(self.sites);
        let at = Instant::ZERO + self.joins_at;
        if let Some(before) = self.crashed_before {
            log.run_until(&mut network, at - before);
            network.crash(self.joiner());
        }
        log.run_until(&mut network, at);
        if has_joiner {
            self.start_joiner(&mut network);
        }
        log.run_until(&mut network, at + self.time_after_join);
        log.finish(&network);
        log
    }
}

/// Returns a link with this round-trip time in milliseconds and this fraction of lost packets.
fn lossy_link(rtt_ms: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..LinkConfig::constant_rtt(TimeDelta::from_millis(rtt_ms)) }
}

/// Returns a bottleneck of 1 Mbit/s of payload with a queue of half a second.
fn one_megabit() -> Rate {
    Rate { bytes_per_second: 125_000, queue_bytes: 62_500 }
}

/// An action of a site's machine.
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
    /// Fresh step: the first step of a frame, for display.
    FirstStep,
    /// Repeated step of a frame after a rollback, or step of a joiner that catches up.
    Resimulate,
}

/// A frame that a site confirmed.
#[derive(Clone, Copy, Debug)]
struct ConfirmedRecord {
    frame: u32,
    /// Input of the joiner in this frame, as the site stepped it.
    joiner_input: InputWord,
    hash: u64,
    /// Newest frame stepped fresh when the confirmation was reported, minus this frame. After a misprediction that was
    /// rolled back just before that fresh step, this is the number of frames, this one included, that the site had
    /// stepped with the wrong prediction.
    predicted_frames: u32,
}

/// A datagram from one player to another, with a hash of its receiver and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlayerDatagram {
    at: Instant,
    from: usize,
    hash: u64,
}

/// Counters of a site's session, sampled when `frame` had become its next frame to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CountsMark {
    frame: u32,
    counts: StallCounts,
}

/// Stalls and resimulated frames of one player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallCounts {
    /// Frames that had to wait for inputs.
    pub stalls: u64,
    /// Frames stepped again after rollbacks.
    pub resimulated: u64,
}

impl StallCounts {
    fn since(self, before: Self) -> Self {
        Self { stalls: self.stalls - before.stalls, resimulated: self.resimulated - before.resimulated }
    }
}

/// Observations of one run. Nested vectors are indexed by site first.
#[derive(Debug)]
struct JoinLog {
    actions: Vec<Vec<MachineAction>>,
    confirmed: Vec<Vec<ConfirmedRecord>>,
    marks: Vec<Vec<CountsMark>>,
    datagrams: Vec<PlayerDatagram>,
    /// Time at which a player first sent a scheduled command.
    join_scheduled_at: Option<Instant>,
    /// Reports of the join: reporting site, true time and join frame.
    join_events: Vec<(usize, Instant, u32)>,
    /// First sampled time since the joiner's start at which its session was past frame 0.
    loaded_at: Option<Instant>,
    /// Time at which the joiner first sampled an input since its start, and the frame in which that input takes effect.
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

    fn run_until(&mut self, network: &mut SessionNetwork, until: Instant) {
        // Actions of the joiner before its crash do not count.
        let joiner = self.joiner();
        (self.first_input, self.loaded_at) = (None, None);
        self.actions[joiner].clear();
        self.confirmed[joiner].clear();
        while network.now() < until {
            network.start_capture(CAPTURE_LIMIT);
            let next = (network.now() + STEP_INTERVAL).min(until);
            network.run_until(next, &mut |event| self.on_event(&event));
            network
                .captured()
                .filter(|datagram| datagram.from < joiner)
                .for_each(|datagram| self.on_datagram(datagram));
            for (marks, site) in self.marks.iter_mut().zip(&network.nodes) {
                let stats = site.session.stats();
                let counts = StallCounts { stalls: stats.stalls, resimulated: stats.resimulated };
                marks.push(CountsMark { frame: stats.frame.number(), counts });
                marks.dedup_by_key(|mark| mark.frame);
            }
            let at_beginning = network.nodes[joiner].session.stats().frame == Frame::ZERO;
            self.loaded_at = self.loaded_at.or((!at_beginning).then_some(network.now()));
        }
    }

    /// Records the datagram if one player sent it to another, and the time at which a player first sent a scheduled
    /// command to any site.
    fn on_datagram(&mut self, datagram: &CapturedDatagram) {
        if self.join_scheduled_at.is_none() && carries_scheduled_command(&datagram.bytes) {
            self.join_scheduled_at = Some(datagram.at);
        }
        if datagram.to < self.joiner() {
            let hash = datagram.bytes.iter().fold(datagram.to as u64, |hash, byte| mix_hash(hash, u64::from(*byte)));
            self.datagrams.push(PlayerDatagram { at: datagram.at, from: datagram.from, hash });
        }
    }

    fn on_event(&mut self, event: &SiteEvent<'_>) {
        let joiner = self.joiner();
        match *event {
            SiteEvent::Saved { site, at, frame } => {
                self.actions[site].push(MachineAction { at, kind: ActionKind::Save, frame })
            }
            SiteEvent::Loaded { site, at, frame } => {
                self.actions[site].push(MachineAction { at, kind: ActionKind::Load, frame })
            }
            SiteEvent::Stepped { site, at, frame, fresh, .. } => {
                let kind = if fresh { ActionKind::FirstStep } else { ActionKind::Resimulate };
                self.actions[site].push(MachineAction { at, kind, frame });
            }
            SiteEvent::Confirmed { site, frame, words, hash, .. } => {
                let last = self.actions[site]
                    .iter()
                    .rev()
                    .find(|action| action.kind == ActionKind::FirstStep)
                    .map_or(0, |action| action.frame);
                // The frame that is stepped as it is confirmed rests on no prediction.
                let predicted_frames = last.saturating_sub(frame);
                self.confirmed[site].push(ConfirmedRecord {
                    frame,
                    joiner_input: words[joiner] & INPUT_MASK,
                    hash,
                    predicted_frames,
                });
            }
            SiteEvent::Sampled { site, at, frame, .. } if site == joiner => {
                self.first_input.get_or_insert((at, frame));
            }
            SiteEvent::SessionEvent { site, at, event: Event::Joined { site: joined, frame } }
                if joined.index() == joiner =>
            {
                self.join_events.push((site, at, frame.number()));
            }
            SiteEvent::SessionEvent { site, event: Event::Ended(end), .. } if site == joiner => {
                self.end_reason = Some(end)
            }
            _ => {}
        }
    }

    fn finish(&mut self, network: &SessionNetwork) {
        self.all_running = network.nodes.iter().all(|site| matches!(site.session.state(), State::Running));
        let ballast = |site: &Computer<SimulatedSite>| site.machine.ballast == network.nodes[0].machine.ballast;
        self.states_equal =
            network.nodes.iter().filter(|site| !site.is_crashed).all(ballast) && self.hashes_are_equal();
    }

    /// Returns whether every other site had the first site's state after each frame that both confirmed.
    fn hashes_are_equal(&self) -> bool {
        let hash = |site: usize, frame: u32| {
            let frames = &self.confirmed[site];
            let at = frames.binary_search_by_key(&frame, |confirmed| confirmed.frame).ok()?;
            Some(frames[at].hash)
        };
        let equal = |confirmed: &ConfirmedRecord| {
            let others = (1..self.confirmed.len()).filter_map(|site| hash(site, confirmed.frame));
            others.into_iter().all(|other| other == confirmed.hash)
        };
        self.confirmed[0].iter().all(equal)
    }

    /// Returns the counters of a site when it reached this frame or, if that was not sampled, the last sampled frame
    /// before it.
    fn counts_at(&self, site: usize, frame: u32) -> StallCounts {
        let marks = &self.marks[site];
        marks[marks.partition_point(|mark| mark.frame <= frame) - 1].counts
    }

    fn final_counts(&self, site: usize) -> StallCounts {
        self.marks[site].last().map_or(StallCounts::default(), |mark| mark.counts)
    }

    /// Returns the actions of a site's machine before its first fresh step of this frame or a later one.
    fn actions_until(&self, site: usize, frame: u32) -> &[MachineAction] {
        let actions = &self.actions[site];
        let until = actions.iter().position(|action| action.kind == ActionKind::FirstStep && action.frame >= frame);
        &actions[..until.unwrap_or(actions.len())]
    }

    /// Returns how often the joiner's input changed in frames after `from`, and the mean number of frames that `site`
    /// had stepped with the old input, as a prediction, before it received a change.
    fn joiner_input_changes(&self, site: usize, from: u32) -> (u64, f64) {
        let confirmed = &self.confirmed[site];
        let since = &confirmed[confirmed.partition_point(|confirmed| confirmed.frame < from)..];
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

/// Cost of the late join for one player. Pairs hold the values with and without the joiner.
#[derive(Clone, Copy, Debug)]
pub struct PlayerImpact {
    /// Counters of the player from the start of the session up to the join frame.
    pub before: [StallCounts; 2],
    /// Counters of the player from the join frame to the end of the run.
    pub after: [StallCounts; 2],
    /// Whether both runs have the same machine actions at the same instants up to the join frame.
    pub same_actions: bool,
    /// Number of actions of the player's machine up to the join frame, in the run with the joiner.
    pub action_count: usize,
    /// Number of input changes of the joiner after the join frame.
    pub joiner_input_changes: u64,
    /// Mean number of frames that the player had stepped with the joiner's old input, as a prediction, before a change
    /// arrived; 0 without changes.
    pub mean_prediction_depth: f64,
}

impl PlayerImpact {
    /// Returns the number of frames that the player is expected to resimulate because of the joiner's input changes
    /// alone.
    pub fn expected_resimulated(&self) -> f64 {
        self.joiner_input_changes as f64 * self.mean_prediction_depth
    }
}

/// Results of the two runs of an experiment. Times count from the start of the joiner and are `None` if the event did
/// not happen.
#[derive(Clone, Debug)]
pub struct LateJoinResult {
    /// Frame at which the joiner joined; `None` if no site reported it or the sites disagree.
    pub join_frame: Option<u32>,
    /// Time until the joiner had loaded a state or stepped its first frame.
    pub loaded_after: Option<TimeDelta>,
    /// Time until a player first sent the scheduled join.
    pub scheduled_after: Option<TimeDelta>,
    /// Time until the joiner reported its join.
    pub joined_after: Option<TimeDelta>,
    /// Time until the joiner sampled its first input.
    pub first_input_after: Option<TimeDelta>,
    /// Mean delay of the joiner's fresh steps relative to the first player's of the same frames, in milliseconds, over
    /// the joiner's last 600 frames.
    pub mean_behind_ms: f64,
    /// Cost of the join for each player, by site number.
    pub players: Vec<PlayerImpact>,
    /// Number of datagrams that the players sent each other before the scheduled join, in the run with the joiner.
    pub datagrams: usize,
    /// Whether the players exchanged the same datagrams at the same instants in both runs before the scheduled join.
    pub same_datagrams: bool,
    /// Whether all sessions are running at the end of the run with the joiner.
    pub all_running: bool,
    /// Reason for which the joiner's session ended; `None` if it did not end.
    pub end_reason: Option<SessionEnd>,
    /// Whether, in the run with the joiner, all sites had the first site's state after each frame that they share with
    /// it, and equal ballast at the end.
    pub states_equal: bool,
}

impl LateJoinResult {
    fn new(experiment: &LateJoinExperiment, with: &JoinLog, without: &JoinLog) -> Self {
        let joined_at = Instant::ZERO + experiment.joins_at;
        let joiner = experiment.joiner();
        let frames = || with.join_events.iter().map(|(_, _, frame)| *frame);
        let frame = frames().next().filter(|first| frames().all(|frame| frame == *first));
        let joined_after =
            with.join_events.iter().find(|(site, _, _)| *site == joiner).map(|(_, at, _)| *at - joined_at);
        let until = with.join_scheduled_at.unwrap_or(Instant::FAR_FUTURE);
        let packets =
            |log: &JoinLog| log.datagrams.iter().copied().filter(|packet| packet.at < until).collect::<Vec<_>>();
        Self {
            join_frame: frame,
            loaded_after: with.loaded_at.map(|at| at - joined_at),
            scheduled_after: with.join_scheduled_at.map(|at| at - joined_at),
            joined_after,
            first_input_after: with.first_input.map(|(at, _)| at - joined_at),
            mean_behind_ms: mean_behind_ms(&with.actions[0], &with.actions[joiner]),
            players: (0..joiner)
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
        let actions = with.actions_until(site, frame);
        let (changes, depth) = with.joiner_input_changes(site, frame);
        Self {
            before: [before_with, before_without],
            after: [with.final_counts(site).since(before_with), without.final_counts(site).since(before_without)],
            same_actions: actions == without.actions_until(site, frame),
            action_count: actions.len(),
            joiner_input_changes: changes,
            mean_prediction_depth: depth,
        }
    }
}

/// Returns the mean delay of the fresh steps in `other` relative to those of the same frames in `first`, in
/// milliseconds, over the last 600 frames of `other`.
fn mean_behind_ms(first: &[MachineAction], other: &[MachineAction]) -> f64 {
    let fresh = |actions: &[MachineAction]| {
        actions.iter().copied().filter(|action| action.kind == ActionKind::FirstStep).collect::<Vec<_>>()
    };
    let (first, other) = (fresh(first), fresh(other));
    let step = |frame: u32| first.binary_search_by_key(&frame, |action| action.frame).ok().map(|at| first[at].at);
    let late =
        other.iter().rev().take(600).filter_map(|action| step(action.frame).map(|at| (action.at - at).as_millis_f64()));
    let late: Vec<f64> = late.collect();
    late.iter().sum::<f64>() / late.len().max(1) as f64
}
