//! Random sessions with faults: the faults, their ends, and the frame rate that the sites must reach afterwards.
//!
//! A [`SessionScenario`] is drawn from a seed alone. It lasts at least [`PLAY_TIME`]. Some faults are permanent: a
//! crash or a diverged machine without a restart, a leave, an address change, one link that is cut for good. All other
//! faults end at least 5 s before the end, and then the sites that can still play must run again.

mod generate;
mod liveness;
mod run;

use std::fmt;

use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::session::{
    AbsentInput, Config, InputPredictor, LateJoinConfig, SendPolicy, Session, Settings, StarvationPolicy,
};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;
use crate::network::Fault;
use crate::session::spectators::SpectatorsPlan;
use crate::session_experiment::toy_settings;
use crate::session_network::{self, SessionNetwork};
use crate::site::SessionSabotage;
use coplay_links::link::{Delay, LinkConfig, Loss};

/// Minimum duration of a scenario, in virtual time.
pub const PLAY_TIME: TimeDelta = TimeDelta::from_secs(22);
/// Time within which a session starts if no fault prevents it.
const START_DEADLINE: TimeDelta = TimeDelta::from_secs(3);
/// Time after the last fault within which the sites must run again.
const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(2);
/// Largest allowed memory of a session for each of its sites, in bytes, without the feed's log where sites join by
/// replay.
const MAX_MEMORY_PER_SITE: usize = 96 * 1024;
/// Largest allowed number of queued events per link, averaged over all links.
const MAX_IN_FLIGHT_PER_LINK: usize = 64;
/// Size of a feed's log, in bytes, that holds all inputs of a session.
const REPLAY_LOG_BYTES: usize = 1 << 18;
/// Time limit for detecting a desync and for the rejoin of the diverged site.
const DESYNC_RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(14);
/// Silence timeout of the sites in a scenario with a crash, but without drop timeouts and joining sites.
const SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);

/// A session, its network, its spectators, and all faults injected into it.
#[derive(Clone, Debug)]
pub struct SessionScenario {
    /// Seed from which the whole scenario is drawn.
    pub seed: u64,
    /// Number of sites, late joiners included.
    pub sites: usize,
    /// Frames between sampling an input and the frame in which it takes effect.
    pub input_delay: u32,
    /// Prediction window in frames; 0 is lockstep.
    pub prediction_window: u32,
    /// Nominal frame rate of the session, 30 to 60.1 frames per second.
    pub frame_rate: FrameRate,
    /// Recovery policy for lost inputs, by site.
    pub recovery: Vec<Recovery>,
    /// Distribution of the input bits over players and sites.
    pub input_layout: BitDistribution,
    /// Conditions in one direction between two sites, by `from * sites + to`.
    pub links: Vec<LinkConfig>,
    /// Offset and skew of each site's clock.
    pub clocks: Vec<NodeClock>,
    /// Time for which each site is busy with one step of its machine.
    pub step_cost: Vec<TimeDelta>,
    /// Faults with their true times, in time order.
    pub faults: Vec<(Instant, SessionFault)>,
    /// Number of sites that join late: the last ones.
    pub late_joiners: usize,
    /// Whether sites that join or rejoin replay all frames from the first one instead of loading a snapshot.
    pub joins_by_replay: bool,
    /// Whether each site's machine can save its state.
    pub can_save: Vec<bool>,
    /// Predictor that every session uses for missing inputs.
    pub predictor: InputPredictor,
    /// Interval of state comparisons, in frames.
    pub compare_every: u32,
    /// Whether a diverged site restarts and rejoins once it has reported the desync.
    pub restarts_diverged_site: bool,
    /// Whether the sites tune input delay and prediction window automatically.
    pub auto_delay: bool,
    /// Drop timeout of each site for silent peers; `None` if no silent peer is dropped.
    pub drop_timeouts: Option<Vec<TimeDelta>>,
    /// Substitute input that replaces the inputs of dropped sites.
    pub absent_input: AbsentInput,
    /// Policy of all sessions when buffered inputs are about to run out.
    pub starvation: StarvationPolicy,
    /// Policy by which every site chooses when to send.
    pub sending: SendPolicy,
    /// Time for which a reachable peer may stall the session before it is dropped; `None` if the sites wait.
    pub stall_limit: Option<TimeDelta>,
    /// Plan of the spectators; `None` without spectators.
    pub spectators: Option<SpectatorsPlan>,
    /// Number of the site that records a movie; `None` without a movie.
    pub movie_site: Option<usize>,
    /// Deliberate defect of the last site, to prove that the checkers detect it.
    pub sabotage: Option<SessionSabotage>,
}

/// Distribution of the input bits over players and sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitDistribution {
    /// One player per site with 16 buttons each.
    Buttons,
    /// One player per site with 16 buttons and four 16-bit sticks each, which change in most frames.
    Sticks,
    /// One pad of 16 buttons, whose bits are distributed over all sites.
    Shared,
    /// Two pads of 16 buttons at the first site, one at each other site.
    TwoAtOne,
}

/// A fault of a session, or the end of one. A site that starts, late or again, joins the running session.
pub type SessionFault = Fault<MachineFault>;

/// A fault of a site's machine, or the end of one. Sites are given by number.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineFault {
    /// Sets the time for which a site is busy with one step of its machine.
    Slow(usize, TimeDelta),
    /// Corrupts a site's machine state five frames later.
    Diverge(usize),
}

impl fmt::Display for SessionScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sites, rate) = (self.sites, self.frame_rate);
        let auto = if self.auto_delay { " (auto)" } else { "" };
        write!(
            f,
            "seed {}: {sites} sites, input delay {}, prediction window {}{auto}",
            self.seed, self.input_delay, self.prediction_window
        )?;
        writeln!(f, ", {rate}, {:?}, {:?}", self.input_layout, self.recovery)?;
        let (late, by, every) =
            (self.late_joiners, if self.joins_by_replay { "replay" } else { "snapshot" }, self.compare_every);
        writeln!(
            f,
            "  {late} late joiners, by {by}; can save: {:?}; predictor {:?}; states compared every {every} frames",
            self.can_save, self.predictor
        )?;
        writeln!(f, "  send policy {:?}, starvation policy {:?}", self.sending, self.starvation)?;
        writeln!(
            f,
            "  drop timeouts {:?}, stall limit {:?}, substitute input {:?}",
            self.drop_timeouts, self.stall_limit, self.absent_input
        )?;
        for (at, link) in self.links.iter().enumerate().filter(|(at, _)| at / sites != at % sites) {
            let recorded = matches!(link.delay, Delay::Recorded(_));
            let delay = if recorded { "recorded".into() } else { format!("{:?}", link.delay) };
            write!(f, "  {} to {}: {delay}, {:?}, {:?}", at / sites, at % sites, link.jitter, link.loss)?;
            writeln!(f, ", reorder {}, duplicate {:.2}, {:?}", link.reorder, link.duplicate, link.rate)?;
        }
        for (site, (clock, cost)) in self.clocks.iter().zip(&self.step_cost).enumerate() {
            writeln!(f, "  site {site}: clock skew {:.0} ppm, {cost} per step", clock.skew_ppm)?;
        }
        for (at, fault) in &self.faults {
            match fault {
                SessionFault::Worsen(one, other, _) => writeln!(f, "  at {at:?} Worsen({one}, {other})")?,
                fault => writeln!(f, "  at {at:?} {fault:?}")?,
            }
        }
        for (number, spectator) in self.spectators.iter().flat_map(|plan| &plan.spectators).enumerate() {
            let (joins_at, link) = (spectator.joins_at, &spectator.link);
            write!(
                f,
                "  spectator {number}: {:?}, at {joins_at:?} from {:?}, ",
                spectator.behavior, spectator.sources
            )?;
            writeln!(f, "{:?}, {:?}, {:?}, {:?}", link.delay, link.jitter, link.loss, link.rate)?;
        }
        write!(f, "  at least {:.1} fps after recovery", self.min_fps())
    }
}

impl SessionScenario {
    /// Returns the features that a scenario may have, for coverage counts, and whether this one has them.
    pub fn features(&self) -> Vec<(&'static str, bool)> {
        let fault = |is: fn(&SessionFault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        let link = |is: fn(&LinkConfig) -> bool| self.inter_site_links().any(is);
        let policy = |policy| self.recovery.contains(&policy);
        vec![
            ("cut", fault(|fault| matches!(fault, SessionFault::Cut(..)))),
            ("one-way cut", fault(|fault| matches!(fault, SessionFault::CutOneWay(..)))),
            ("permanent cut", self.permanent_cuts().next().is_some()),
            ("pause", fault(|fault| matches!(fault, SessionFault::Pause(..)))),
            ("suspend", fault(|fault| matches!(fault, SessionFault::Suspend(..)))),
            ("crash", fault(|fault| matches!(fault, SessionFault::Crash(_)))),
            ("leave", fault(|fault| matches!(fault, SessionFault::Leave(_)))),
            ("move", fault(|fault| matches!(fault, SessionFault::Move(_)))),
            ("degraded link", fault(|fault| matches!(fault, SessionFault::Worsen(..)))),
            ("slow site", fault(|fault| matches!(fault, SessionFault::Engine(MachineFault::Slow(..))))),
            ("garbage", fault(|fault| matches!(fault, SessionFault::Garbage(..)))),
            ("independent loss", link(|link| matches!(link.loss, Loss::Independent(_)))),
            ("bursty loss", link(|link| matches!(link.loss, Loss::Bursty { .. }))),
            ("duplicates", link(|link| link.duplicate > 0.0)),
            ("reordering", link(|link| link.reorder)),
            ("rate limit", link(|link| link.rate.is_some())),
            ("redundant", policy(Recovery::Redundant)),
            ("history", policy(Recovery::History)),
            ("adaptive", policy(Recovery::Adaptive)),
            ("classic", policy(Recovery::Classic)),
            ("measured sending", self.sending == SendPolicy::Measured),
            ("pause when starved", self.starvation == StarvationPolicy::Pause),
            ("rollback", self.prediction_window > 0),
            ("auto delay", self.auto_delay),
            ("drop", self.drop_timeouts.is_some()),
            ("absent repeat", self.drop_timeouts.is_some() && self.absent_input == AbsentInput::Repeat),
            ("slow peer dropped", self.stall_limit.is_some()),
            ("late join or rejoin", fault(|fault| matches!(fault, SessionFault::Start(_)))),
            ("two late joiners", self.late_joiners > 1),
            ("join by replay", self.joins_by_replay && fault(|fault| matches!(fault, SessionFault::Start(_)))),
            ("leave after join", (0..self.sites).any(|site| self.is_restarted(site) && self.leaves(site))),
            ("cannot save", self.can_save.contains(&false)),
            ("other predictor", self.prediction_window > 0 && !matches!(self.predictor, InputPredictor::Repeat)),
            (
                "per-site drop timeouts",
                self.drop_timeouts.as_ref().is_some_and(|limits| limits.iter().any(|limit| *limit != limits[0])),
            ),
            ("other compare interval", self.compare_every != 60),
            (
                "desync with restart",
                fault(|fault| matches!(fault, SessionFault::Engine(MachineFault::Diverge(_))))
                    && self.restarts_diverged_site,
            ),
            (
                "desync without restart",
                fault(|fault| matches!(fault, SessionFault::Engine(MachineFault::Diverge(_))))
                    && !self.restarts_diverged_site,
            ),
            ("spectators", self.spectators.is_some()),
            ("spectator relay", self.spectators.as_ref().is_some_and(SpectatorsPlan::has_relay)),
            ("movie", self.movie_site.is_some()),
        ]
    }

    /// Returns whether a fault of the scenario starts a site late or restarts it, so that it joins the running session.
    fn is_restarted(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Start(site))
    }

    fn leaves(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Leave(site))
    }

    fn crashes(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Crash(site))
    }

    fn is_late_joiner(&self, site: usize) -> bool {
        site >= self.starter_count()
    }

    /// Returns the cuts of both directions that are never healed: true time and both sites.
    fn permanent_cuts(&self) -> impl Iterator<Item = (Instant, usize, usize)> + '_ {
        let cuts = self.faults.iter().filter_map(|(at, fault)| match fault {
            SessionFault::Cut(one, other) => Some((*at, *one, *other)),
            _ => None,
        });
        let healed = |(cut, one, other): &(Instant, usize, usize)| {
            self.faults.iter().any(|(at, fault)| at >= cut && *fault == SessionFault::Heal(*one, *other))
        };
        cuts.filter(move |cut| !healed(cut))
    }

    /// Returns the longest drop timeout of any site; `None` if no silent peer is dropped.
    fn longest_drop_timeout(&self) -> Option<TimeDelta> {
        self.drop_timeouts.as_ref().and_then(|limits| limits.iter().max().copied())
    }

    /// Returns the conditions of all links between different sites.
    fn inter_site_links(&self) -> impl Iterator<Item = &LinkConfig> {
        let sites = self.sites;
        self.links.iter().enumerate().filter(move |(at, _)| at / sites != at % sites).map(|(_, link)| link)
    }

    fn ownership(&self) -> Ownership {
        let sites = || SiteId::first(self.sites);
        match self.input_layout {
            BitDistribution::Buttons => Ownership::one_player_per_site(self.sites, 0xffff),
            BitDistribution::Sticks => Ownership::one_player_per_site(self.sites, (1 << 80) - 1),
            BitDistribution::Shared => {
                let mut ownership = Ownership::new(1);
                for site in sites() {
                    let mask =
                        (0..16).filter(|bit| bit % self.sites == site.index()).fold(0, |mask, bit| mask | 1 << bit);
                    ownership.assign(site, 0, mask).expect("each bit has one owner");
                }
                ownership
            }
            BitDistribution::TwoAtOne => {
                let players = (self.sites + 1).min(coplay::input::MAX_PLAYERS);
                let mut ownership = Ownership::new(players);
                for (player, site) in (0..players).zip(SiteId::first(1).chain(sites())) {
                    ownership.assign(site, player, 0xffff).expect("each player has one owner");
                }
                ownership
            }
        }
    }

    /// Returns the number of sites that are present from the first frame on.
    fn starter_count(&self) -> usize {
        self.sites - self.late_joiners
    }

    fn settings(&self) -> Settings {
        let toy = toy_settings(self.input_delay, self.ownership());
        let starters = SiteSet::first(self.starter_count());
        Settings {
            rate: self.frame_rate,
            site_count: self.sites as u8,
            starting_sites: starters,
            prediction_window: self.prediction_window,
            auto_tune: self.auto_delay,
            absent_input: self.absent_input,
            starvation_policy: self.starvation,
            compare_interval: self.compare_every,
            ..toy
        }
    }

    fn config(&self, number: usize) -> Config {
        let settings = self.settings();
        let id = SiteId::first(self.sites).nth(number).expect("site number is below MAX_SITES");
        let session = self.seed | 1;
        let has_joiner = self
            .faults
            .iter()
            .any(|(_, fault)| matches!(fault, SessionFault::Start(_) | SessionFault::Engine(MachineFault::Diverge(_))));
        let feed = FeedConfig::new(session, self.seed, settings.clone());
        let log_bytes = if self.joins_by_replay { REPLAY_LOG_BYTES } else { feed.log_bytes };
        Config {
            bisect_desyncs: true,
            can_save: self.can_save[number],
            predictor: self.predictor,
            recovery: self.recovery[number],
            drop_timeout: self.drop_timeouts.as_ref().map(|limits| limits[number]),
            stall_limit: self.stall_limit,
            send_policy: self.sending,
            silence_timeout: (self.has_crash() && self.drop_timeouts.is_none() && !has_joiner)
                .then_some(SILENCE_TIMEOUT),
            feed: (has_joiner || self.spectators.is_some()).then_some(FeedConfig { log_bytes, ..feed }),
            ..Config::new(session, id, SessionNetwork::peers(number, self.sites), settings)
        }
    }

    fn build_network(&self) -> SessionNetwork {
        let players = self.settings().ownership.players();
        let sites = (0..self.sites).map(|number| {
            let clock = self.clocks[number];
            let session = Session::new(clock.local(Instant::ZERO), self.config(number)).expect("settings are valid");
            let mut site = session_network::new_site(session, clock, players, self.seed ^ number as u64);
            site.step_cost = self.step_cost[number];
            site.is_crashed = self.is_late_joiner(number);
            if self.input_layout == BitDistribution::Sticks {
                (site.player.change_probability, site.player.mask) = (0.9, (1 << 80) - 1);
            }
            if number == self.sites - 1 {
                site.sabotage = self.sabotage;
            }
            site
        });
        let mut network =
            SessionNetwork::new(self.seed, sites.collect(), |from, to| self.links[from * self.sites + to].clone());
        if self.spectators.is_some() {
            network.capture_external();
        }
        network
    }

    /// Starts a late joiner, or restarts a site. Its new session knows the current addresses of the others.
    fn restart_site(&self, network: &mut SessionNetwork, site: usize, incarnation: u32) {
        let local = network.nodes[site].clock.local(network.now());
        let peers = SessionNetwork::peers(site, self.sites).into_iter();
        let config = Config {
            incarnation,
            late_join: Some(LateJoinConfig {
                start: if self.joins_by_replay { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot },
                max_state_len: 1 << 20,
            }),
            peers: peers
                .map(|(id, _)| (id, SessionNetwork::address(id.index(), network.nodes[id.index()].address_changes())))
                .collect(),
            ..self.config(site)
        };
        network.restart(site, Session::new(local, config).expect("settings are valid"));
    }

    /// Returns whether any site crashes during the scenario.
    pub fn has_crash(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Crash(_)))
    }

    fn ownership_masks(&self) -> Vec<Vec<InputWord>> {
        let ownership = self.ownership();
        let sites = SiteId::first(self.sites);
        sites.map(|site| (0..ownership.players()).map(|player| ownership.mask(site, player)).collect()).collect()
    }

    /// Returns the time from which on the sites must reach [`SessionScenario::min_fps`] again. It includes twice the
    /// sum of input delay and prediction window, because sites may be apart by that sum and converge gradually.
    fn recovery_deadline(&self) -> Instant {
        self.last_fault_end()
            + RECOVERY_TIME
            + self.frame_rate.period() * i64::from(self.input_delay + self.prediction_window) * 2
    }

    /// Returns the end of the scenario: at least [`PLAY_TIME`], and at least 3 s after the recovery deadline.
    fn end_time(&self) -> Instant {
        (Instant::ZERO + PLAY_TIME).max(self.recovery_deadline() + TimeDelta::from_secs(3))
    }

    /// Returns the end of the last fault, but no earlier than [`START_DEADLINE`], plus the time that joins, desync
    /// recovery and drops may take.
    fn last_fault_end(&self) -> Instant {
        let over = self.faults.iter().map(|(at, fault)| match fault {
            SessionFault::Pause(_, until) | SessionFault::Suspend(_, until) => *until,
            SessionFault::Start(_) => *at + TimeDelta::from_secs(if self.joins_by_replay { 16 } else { 6 }),
            SessionFault::Engine(MachineFault::Diverge(_)) => *at + DESYNC_RECOVERY_TIME,
            _ => *at,
        });
        // A crashed site is dropped after the drop timeout.
        let dropping = self.longest_drop_timeout().map_or(TimeDelta::ZERO, |limit| limit + TimeDelta::from_secs(1));
        over.max().unwrap_or_default().max(Instant::ZERO + START_DEADLINE) + dropping
    }
}
