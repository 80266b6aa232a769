//! Random sessions with faults: what can go wrong, when it heals, and how well the sites must do afterwards.
//!
//! A [`Scenario`] is drawn from a seed alone. It plays for at least [`PLAY_TIME`] after the faults begin to be possible; all faults
//! but those for good (a crash, a leave, a cut that others can bridge) are healed well before the end, and then the sites must run
//! again.

mod generate;
mod liveness;
mod run;

use std::fmt;

use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::session::{AbsentInput, Config, InputPredictor, LateJoin, SendPolicy, Session, Settings, StarvationPolicy};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};

pub use run::ScenarioResult;

use crate::clock::NodeClock;
use crate::link::{Delay, LinkConfig, Loss};
use crate::session_experiment::toy_settings;
use crate::session_network::{self, SessionNetwork};
use crate::site::Sabotage;
use crate::spectators;

/// How long a session is watched.
pub const PLAY_TIME: TimeDelta = TimeDelta::from_secs(22);
/// A session has begun by then if nothing is in its way.
const START_DEADLINE: TimeDelta = TimeDelta::from_secs(3);
/// Sites must run again so long after the last fault.
const RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(2);
/// The most memory that a session may take for each of its sites.
const MAX_MEMORY_PER_SITE: usize = 96 * 1024;
/// The most datagrams that may be under way at once on a link, on average over all links.
const MAX_IN_FLIGHT_PER_LINK: usize = 64;
/// Bytes that are enough for all inputs of a session.
const REPLAY_LOG_BYTES: usize = 1 << 18;
/// Who goes astray is found out, and back among the others, within this.
const DESYNC_RECOVERY_TIME: TimeDelta = TimeDelta::from_secs(14);
/// Sites that wait for a dead one give up after this.
const GIVE_UP_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);

/// A session to be played, with everything that happens to it.
#[derive(Clone, Debug)]
pub struct SessionScenario {
    /// Where all of it comes from.
    pub seed: u64,
    /// How many sites play.
    pub sites: usize,
    /// Local lag in frames.
    pub input_delay: u32,
    /// Frames that may be guessed.
    pub prediction_window: u32,
    /// Frames per second.
    pub frame_rate: FrameRate,
    /// How lost inputs come back, at each site.
    pub recovery: Vec<Recovery>,
    /// What players can do.
    pub input_layout: InputLayout,
    /// One direction of the link between two sites, by `from * sites + to`.
    pub links: Vec<LinkConfig>,
    /// Each site's clock.
    pub clocks: Vec<NodeClock>,
    /// How long a step takes, at each site.
    pub step_cost: Vec<TimeDelta>,
    /// What happens, in order of time.
    pub faults: Vec<(Instant, SessionFault)>,
    /// Sites that are not there when the game starts: the last ones, so many.
    pub late_joiners: usize,
    /// Whether those who come late begin with the first frame of the game, and not with a snapshot.
    pub joins_by_replay: bool,
    /// Whether each site's machine can save its state.
    pub can_save: Vec<bool>,
    /// How inputs are guessed.
    pub predictor: InputPredictor,
    /// States are compared every so many frames.
    pub compare_every: u32,
    /// Whether a site whose state is found to be wrong starts anew.
    pub restarts_diverged_site: bool,
    /// Whether lag and window follow the links.
    pub auto_delay: bool,
    /// Sites that are silent for so long are dropped, by each site.
    pub drop_timeouts: Option<Vec<TimeDelta>>,
    /// What is done for those who were dropped.
    pub absent_input: AbsentInput,
    /// What is done when inputs run out.
    pub starvation: StarvationPolicy,
    /// When packets leave.
    pub sending: SendPolicy,
    /// For how long a site that is heard may hold up the game; without, it is waited for.
    pub stall_timeout: Option<TimeDelta>,
    /// Who watches.
    pub spectators: Option<spectators::scenario::SpectatorsPlan>,
    /// The site that keeps a movie.
    pub movie_site: Option<usize>,
    /// A fault of the engine's own, put in on purpose.
    pub sabotage: Option<Sabotage>,
}

/// What players hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputLayout {
    /// 16 buttons each.
    Buttons,
    /// 16 buttons and four 16-bit sticks each, never at rest.
    Sticks,
    /// All sites share one pad, bit by bit.
    Shared,
    /// The first site has two pads.
    TwoAtOne,
}

/// Something that happens to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionFault {
    /// No way between two sites.
    Cut(usize, usize),
    /// The way is back.
    Heal(usize, usize),
    /// No way from one site to another, though there is one back.
    CutOneWay(usize, usize),
    /// It is back.
    HealOneWay(usize, usize),
    /// A site's computer sleeps until then; its clock goes on.
    Pause(usize, Instant),
    /// A site's computer is suspended until then, and its clock stands still.
    Suspend(usize, Instant),
    /// A site dies.
    Crash(usize),
    /// A dead site's program is started again, or one that was not there starts: it takes its seat in the running game.
    Restart(usize),
    /// A site's player leaves.
    Leave(usize),
    /// A site gets a new address.
    Move(usize),
    /// A link gets worse, both ways.
    Worsen(usize, usize, LinkConfig),
    /// It is as before.
    Restore(usize, usize),
    /// A site's machine takes this long for a step from now on.
    Slow(usize, TimeDelta),
    /// A site's machine goes astray at its next frame.
    Astray(usize),
    /// Strangers send nonsense to a site, this many packets.
    Garbage(usize, u32),
}

/// Kinds of things that a scenario can contain, for counting.
pub const FEATURES: [&str; 40] = [
    "cut",
    "one-way cut",
    "cut for good",
    "pause",
    "suspend",
    "crash",
    "leave",
    "move",
    "worse link",
    "slow site",
    "garbage",
    "independent loss",
    "bursty loss",
    "duplicates",
    "reordering",
    "rate limit",
    "redundant",
    "history",
    "adaptive",
    "classic",
    "sending as delays vary",
    "pause when starved",
    "rollback",
    "auto",
    "drop",
    "absent repeat",
    "late dropped",
    "late or back",
    "two late",
    "by replay",
    "leave after coming",
    "cannot save",
    "another predictor",
    "patience of each its own",
    "other comparisons",
    "astray, healed",
    "astray, not healed",
    "watched",
    "relayed",
    "movie",
];

impl fmt::Display for SessionScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sites, lag, window, rate) = (self.sites, self.input_delay, self.prediction_window, self.frame_rate);
        let auto = if self.auto_delay { " (auto)" } else { "" };
        writeln!(
            f,
            "seed {}: {sites} sites, lag {lag}, window {window}{auto}, {rate}, {:?}, {:?}",
            self.seed, self.input_layout, self.recovery
        )?;
        let (late, by, every) =
            (self.late_joiners, if self.joins_by_replay { "replay" } else { "snapshot" }, self.compare_every);
        writeln!(
            f,
            "  {late} late, by {by}; can save: {:?}; {:?}; compared every {every}",
            self.can_save, self.predictor
        )?;
        writeln!(f, "  sending {:?}, if inputs run out {:?}", self.sending, self.starvation)?;
        writeln!(
            f,
            "  dropped after {:?}, if late {:?}, then {:?}",
            self.drop_timeouts, self.stall_timeout, self.absent_input
        )?;
        for (at, link) in self.links.iter().enumerate().filter(|(at, _)| at / sites != at % sites) {
            let recorded = matches!(link.delay, Delay::Recorded(_));
            let delay = if recorded { "recorded".into() } else { format!("{:?}", link.delay) };
            write!(f, "  {} to {}: {delay}, {:?}, {:?}", at / sites, at % sites, link.jitter, link.loss)?;
            writeln!(f, ", reorder {}, duplicate {:.2}, {:?}", link.reorder, link.duplicate, link.rate)?;
        }
        for (site, (clock, cost)) in self.clocks.iter().zip(&self.step_cost).enumerate() {
            writeln!(f, "  site {site}: clock off by {:.0} ppm, {cost} a step", clock.skew_ppm)?;
        }
        for (at, fault) in &self.faults {
            match fault {
                SessionFault::Worsen(one, other, _) => {
                    writeln!(f, "  at {at:?} another link between {one} and {other}")?
                }
                fault => writeln!(f, "  at {at:?} {fault:?}")?,
            }
        }
        for (number, seat) in self.spectators.iter().flat_map(|plan| &plan.spectators).enumerate() {
            let (comes, link) = (seat.joins_at, &seat.link);
            write!(f, "  watcher {number}: {:?}, at {comes:?} from {:?}, ", seat.behavior, seat.sources)?;
            writeln!(f, "{:?}, {:?}, {:?}, {:?}", link.delay, link.jitter, link.loss, link.rate)?;
        }
        write!(f, "  afterwards at least {:.1} fps", self.min_fps())
    }
}

impl SessionScenario {
    /// Which of [`FEATURES`] it contains.
    pub fn features(&self) -> [bool; FEATURES.len()] {
        let fault = |is: fn(&SessionFault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        let link = |is: fn(&LinkConfig) -> bool| self.inter_site_links().any(is);
        let policy = |policy| self.recovery.contains(&policy);
        [
            fault(|fault| matches!(fault, SessionFault::Cut(..))),
            fault(|fault| matches!(fault, SessionFault::CutOneWay(..))),
            self.permanent_cuts().next().is_some(),
            fault(|fault| matches!(fault, SessionFault::Pause(..))),
            fault(|fault| matches!(fault, SessionFault::Suspend(..))),
            fault(|fault| matches!(fault, SessionFault::Crash(_))),
            fault(|fault| matches!(fault, SessionFault::Leave(_))),
            fault(|fault| matches!(fault, SessionFault::Move(_))),
            fault(|fault| matches!(fault, SessionFault::Worsen(..))),
            fault(|fault| matches!(fault, SessionFault::Slow(..))),
            fault(|fault| matches!(fault, SessionFault::Garbage(..))),
            link(|link| matches!(link.loss, Loss::Independent(_))),
            link(|link| matches!(link.loss, Loss::Bursty { .. })),
            link(|link| link.duplicate > 0.0),
            link(|link| link.reorder),
            link(|link| link.rate.is_some()),
            policy(Recovery::Redundant),
            policy(Recovery::History),
            policy(Recovery::Adaptive),
            policy(Recovery::Classic),
            self.sending == SendPolicy::Measured,
            self.starvation == StarvationPolicy::Pause,
            self.prediction_window > 0,
            self.auto_delay,
            self.drop_timeouts.is_some(),
            self.drop_timeouts.is_some() && self.absent_input == AbsentInput::Repeat,
            self.stall_timeout.is_some(),
            fault(|fault| matches!(fault, SessionFault::Restart(_))),
            self.late_joiners > 1,
            self.joins_by_replay && fault(|fault| matches!(fault, SessionFault::Restart(_))),
            (0..self.sites).any(|site| self.is_restarted(site) && self.leaves(site)),
            self.can_save.contains(&false),
            self.prediction_window > 0 && !matches!(self.predictor, InputPredictor::Repeat),
            self.drop_timeouts.as_ref().is_some_and(|limits| limits.iter().any(|limit| *limit != limits[0])),
            self.compare_every != 60,
            fault(|fault| matches!(fault, SessionFault::Astray(_))) && self.restarts_diverged_site,
            fault(|fault| matches!(fault, SessionFault::Astray(_))) && !self.restarts_diverged_site,
            self.spectators.is_some(),
            self.spectators.as_ref().is_some_and(spectators::scenario::SpectatorsPlan::has_relay),
            self.movie_site.is_some(),
        ]
    }

    /// Whether a site comes late, or back.
    fn is_restarted(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Restart(site))
    }

    /// Whether a site leaves at the end.
    fn leaves(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Leave(site))
    }

    /// Whether a site dies.
    fn crashes(&self, site: usize) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == SessionFault::Crash(site))
    }

    /// Whether a site is not there when the game starts.
    fn is_late_joiner(&self, site: usize) -> bool {
        site >= self.starter_count()
    }

    /// When the way between which pairs of sites is cut and never back.
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

    /// The longest that any site waits for a silent one.
    fn longest_drop_timeout(&self) -> Option<TimeDelta> {
        self.drop_timeouts.as_ref().and_then(|limits| limits.iter().max().copied())
    }

    /// The links between different sites.
    fn inter_site_links(&self) -> impl Iterator<Item = &LinkConfig> {
        let sites = self.sites;
        self.links.iter().enumerate().filter(move |(at, _)| at / sites != at % sites).map(|(_, link)| link)
    }

    fn ownership(&self) -> Ownership {
        let sites = || SiteId::first(self.sites);
        match self.input_layout {
            InputLayout::Buttons => Ownership::one_player_per_site(self.sites, 0xffff),
            InputLayout::Sticks => Ownership::one_player_per_site(self.sites, (1 << 80) - 1),
            InputLayout::Shared => {
                let mut ownership = Ownership::new(1);
                for site in sites() {
                    let mask =
                        (0..16).filter(|bit| bit % self.sites == site.index()).fold(0, |mask, bit| mask | 1 << bit);
                    ownership.assign(site, 0, mask).expect("the bits are dealt out one by one");
                }
                ownership
            }
            InputLayout::TwoAtOne => {
                let players = (self.sites + 1).min(coplay::input::MAX_PLAYERS);
                let mut ownership = Ownership::new(players);
                for (player, site) in (0..players).zip(SiteId::first(1).chain(sites())) {
                    ownership.assign(site, player, 0xffff).expect("every player is given once");
                }
                ownership
            }
        }
    }

    /// How many sites are there when the game starts.
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
        let id = SiteId::first(self.sites).nth(number).expect("no more sites than there can be");
        let session = self.seed | 1;
        let somebody_comes =
            self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Restart(_) | SessionFault::Astray(_)));
        let feed = FeedConfig::new(session, self.seed, settings.clone());
        let keep_log = if self.joins_by_replay { REPLAY_LOG_BYTES } else { feed.log_bytes };
        Config {
            bisect_desyncs: true,
            can_save: self.can_save[number],
            predictor: self.predictor,
            recovery: self.recovery[number],
            drop_timeout: self.drop_timeouts.as_ref().map(|limits| limits[number]),
            stall_limit: self.stall_timeout,
            send_policy: self.sending,
            silence_timeout: (self.has_crash() && self.drop_timeouts.is_none() && !somebody_comes)
                .then_some(GIVE_UP_TIMEOUT),
            feed: (somebody_comes || self.spectators.is_some()).then_some(FeedConfig { log_bytes: keep_log, ..feed }),
            ..Config::new(session, id, SessionNetwork::peers(number, self.sites), settings)
        }
    }

    fn build_network(&self) -> SessionNetwork {
        let players = self.settings().ownership.players();
        let sites = (0..self.sites).map(|number| {
            let clock = self.clocks[number];
            let session =
                Session::new(clock.local(Instant::ZERO), self.config(number)).expect("the settings are sound");
            let mut site = session_network::new_site(session, clock, players, self.seed ^ number as u64);
            site.step_cost = self.step_cost[number];
            site.is_crashed = self.is_late_joiner(number);
            if self.input_layout == InputLayout::Sticks {
                (site.player.change_probability, site.player.mask) = (0.9, (1 << 80) - 1);
            }
            if number == self.sites - 1 {
                site.sabotage = self.sabotage;
            }
            site
        });
        let mut world =
            SessionNetwork::new(self.seed, sites.collect(), |from, to| self.links[from * self.sites + to].clone());
        if self.spectators.is_some() {
            world.capture_external();
        }
        world
    }

    /// A site comes late, or comes back. It knows where the others are by now.
    fn restart_site(&self, world: &mut SessionNetwork, site: usize, incarnation: u32) {
        let local = world.sites[site].clock.local(world.now());
        let peers = SessionNetwork::peers(site, self.sites).into_iter();
        let config = Config {
            incarnation,
            late_join: Some(LateJoin {
                start: if self.joins_by_replay { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot },
                max_state_len: 1 << 20,
            }),
            peers: peers
                .map(|(id, _)| (id, SessionNetwork::address(id.index(), world.sites[id.index()].address_changes())))
                .collect(),
            ..self.config(site)
        };
        world.restart(site, Session::new(local, config).expect("the settings are sound"));
    }

    /// Whether a site dies in it.
    pub fn has_crash(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Crash(_)))
    }

    fn ownership_masks(&self) -> Vec<Vec<InputWord>> {
        let ownership = self.ownership();
        let sites = SiteId::first(self.sites);
        sites.map(|site| (0..ownership.players()).map(|player| ownership.mask(site, player)).collect()).collect()
    }

    /// When all is as it should be again. Sites that guess far ahead may be that far apart, and come together gently.
    fn recovery_deadline(&self) -> Instant {
        self.last_fault_end()
            + RECOVERY_TIME
            + self.frame_rate.period() * i64::from(self.input_delay + self.prediction_window) * 2
    }

    /// When the session is left alone.
    fn end_time(&self) -> Instant {
        (Instant::ZERO + PLAY_TIME).max(self.recovery_deadline() + TimeDelta::from_secs(3))
    }

    /// When the last fault is over; the sites may need a moment to find together before that counts.
    fn last_fault_end(&self) -> Instant {
        let over = self.faults.iter().map(|(at, fault)| match fault {
            SessionFault::Pause(_, until) | SessionFault::Suspend(_, until) => *until,
            SessionFault::Restart(_) => *at + TimeDelta::from_secs(if self.joins_by_replay { 16 } else { 6 }),
            SessionFault::Astray(_) => *at + DESYNC_RECOVERY_TIME,
            _ => *at,
        });
        // Whoever died is dropped a while later.
        let dropping = self.longest_drop_timeout().map_or(TimeDelta::ZERO, |limit| limit + TimeDelta::from_secs(1));
        over.max().unwrap_or_default().max(Instant::ZERO + START_DEADLINE) + dropping
    }
}
