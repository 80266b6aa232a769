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
use crate::measure::toy_settings;
use crate::random::Random;
use crate::site::Site;
use crate::toy::mix;
use crate::world::{self, Happened, Overheard, World};

/// The world is looked at this often.
const TURN: TimeDelta = TimeDelta::from_millis(2);
/// More datagrams than leave in a turn.
const OVERHEARD: usize = 10_000;
/// Bits of an input: two bytes.
const MASK: InputWord = 0xffff;

/// What is run.
#[derive(Clone, Debug)]
pub struct Latecomer {
    /// All randomness comes from this.
    pub seed: u64,
    /// How many there are with the latecomer, who is the last of them.
    pub sites: usize,
    /// Whether the latecomer was there at the start, and died this long before he comes back, from another address.
    pub died_before: Option<TimeDelta>,
    /// Local lag in frames.
    pub lag: u32,
    /// Frames that may be guessed.
    pub window: u32,
    /// One direction of the links between the players.
    pub link: LinkConfig,
    /// One direction of the links between the latecomer and each player.
    pub way: LinkConfig,
    /// Bytes of the machine's state that cannot be made shorter.
    pub state: usize,
    /// With what the latecomer begins.
    pub start: SpectatorStart,
    /// Whether the machines can save.
    pub can_save: bool,
    /// How long a machine takes for a step.
    pub step_cost: TimeDelta,
    /// When the latecomer comes.
    pub comes: TimeDelta,
    /// How long the game goes on after that.
    pub then: TimeDelta,
}

impl Latecomer {
    /// Two players, 100 ms apart, with one packet in a hundred lost; 20 seconds into the game a third one comes, 300 ms away from
    /// both over lines of 1 Mbit/s that lose one packet in fifty, to a state of 1 MiB.
    pub fn by_snapshot() -> Self {
        Self {
            seed: 1,
            sites: 3,
            died_before: None,
            lag: 4,
            window: 8,
            link: lossy(100, 0.01),
            way: LinkConfig { rate: Some(megabit()), ..lossy(300, 0.02) },
            state: 1 << 20,
            start: SpectatorStart::Snapshot,
            can_save: true,
            step_cost: TimeDelta::ZERO,
            comes: TimeDelta::from_secs(20),
            then: TimeDelta::from_secs(75),
        }
    }

    /// The same with machines that cannot save and take 1 ms for a step, 10 minutes into the game: he plays all of it again.
    pub fn by_replay() -> Self {
        Self {
            lag: 6,
            window: 0,
            way: LinkConfig { rate: Some(megabit()), ..lossy(100, 0.02) },
            state: 0,
            start: SpectatorStart::FirstFrame,
            can_save: false,
            step_cost: TimeDelta::from_millis(1),
            comes: TimeDelta::from_secs(600),
            ..Self::by_snapshot()
        }
    }

    /// One of three dies, is dropped after a second, and is back after 3.
    pub fn back_again() -> Self {
        Self { died_before: Some(TimeDelta::from_secs(3)), state: 64 << 10, ..Self::by_snapshot() }
    }

    /// One plays alone, and a second one comes.
    pub fn to_one_alone() -> Self {
        Self { sites: 2, state: 64 << 10, ..Self::by_snapshot() }
    }

    fn settings(&self) -> Settings {
        let starters = SiteSet::first(self.sites - usize::from(self.died_before.is_none()));
        let toy = toy_settings(self.lag, Ownership::one_player_per_site(self.sites, MASK));
        Settings { prediction_window: self.window, starting_sites: starters, ..toy }
    }

    fn config(&self, number: usize) -> Config {
        let settings = self.settings();
        let id = SiteId::first(self.sites).nth(number).expect("no more sites than there can be");
        let feed = FeedConfig { log_bytes: 1 << 20, ..FeedConfig::new(self.seed, 4_711, settings.clone()) };
        Config {
            feed: Some(feed),
            can_save: self.can_save,
            drop_timeout: self.died_before.map(|_| TimeDelta::from_secs(1)),
            ..Config::new(self.seed, id, World::peers(number, self.sites), settings)
        }
    }

    fn site(&self, number: usize) -> Site {
        let mut luck = Random::stream(self.seed, &format!("site {number}"));
        let clock = NodeClock {
            offset: TimeDelta::from_millis(luck.range(0..=10_000_000)),
            skew_ppm: luck.unit() * 100.0 - 50.0,
        };
        let session = Session::new(clock.local(Instant::ZERO), self.config(number)).expect("the settings are sound");
        let mut site = world::site(session, clock, self.sites, luck.bits());
        let mut ballast = Random::stream(self.seed, "ballast");
        site.machine.ballast = (0..self.state).map(|_| ballast.bits() as u8).collect();
        site.step_cost = self.step_cost;
        site.player.mask = MASK;
        site.crashed = number == self.newcomer() && self.died_before.is_none();
        site
    }

    fn newcomer(&self) -> usize {
        self.sites - 1
    }

    fn world(&self) -> World {
        let sites = (0..self.sites).map(|number| self.site(number)).collect();
        let way = |one: usize, other: usize| one.max(other) == self.newcomer();
        World::new(self.seed, sites, |one, other| if way(one, other) { self.way.clone() } else { self.link.clone() })
    }

    /// The latecomer's program starts.
    fn come(&self, world: &mut World) {
        let newcomer = self.newcomer();
        let join = Some(LateJoin { start: self.start, max_state_len: 2 << 20 });
        let config = Config { late_join: join, incarnation: 2, ..self.config(newcomer) };
        if self.died_before.is_some() {
            world.move_site(newcomer);
        } else if self.start == SpectatorStart::Snapshot {
            // Whoever was never there has nothing of the state.
            world.sites[newcomer].machine.ballast.clear();
        }
        let local = world.sites[newcomer].clock.local(world.now());
        world.restart(newcomer, Session::new(local, config).expect("the settings are sound"));
    }

    /// Runs it, and the same without a latecomer.
    pub fn run(&self) -> Outcome {
        let (with, without) = (self.play(true), self.play(false));
        Outcome::new(self, &with, &without)
    }

    fn play(&self, comes: bool) -> Log {
        let mut world = self.world();
        let mut log = Log::new(self.sites);
        let at = Instant::ZERO + self.comes;
        if let Some(before) = self.died_before {
            log.run_until(&mut world, at - before);
            world.crash(self.newcomer());
        }
        log.run_until(&mut world, at);
        if comes {
            self.come(&mut world);
        }
        log.run_until(&mut world, at + self.then);
        log.finish(&world);
        log
    }
}

/// A link of this round trip that loses packets.
fn lossy(rtt_ms: i64, loss: f64) -> LinkConfig {
    LinkConfig { loss: Loss::Independent(loss), ..LinkConfig::constant_rtt(TimeDelta::from_millis(rtt_ms)) }
}

/// 1 Mbit/s of payload, with a queue of half a second.
fn megabit() -> Rate {
    Rate { bytes_per_second: 125_000, queue_bytes: 62_500 }
}

/// Something that a machine was made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Act {
    at: Instant,
    what: What,
    frame: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Save,
    Load,
    /// A step for the first time.
    Fresh,
    /// A step once more.
    Again,
}

/// A frame that is certain.
#[derive(Clone, Copy, Debug)]
struct Certain {
    frame: u32,
    /// What the latecomer did in it.
    word: InputWord,
    hash: u64,
    /// How many frames from this one on were stepped already, resting on a guess of it.
    guessed: u32,
}

/// A datagram from one player to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    at: Instant,
    from: usize,
    hash: u64,
}

/// What a site's session had counted when it came to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    frame: u32,
    counts: Counts,
}

/// What a game costs one player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that had to wait for inputs.
    pub stalls: u64,
    /// Frames that were stepped once more.
    pub resimulated: u64,
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self { stalls: self.stalls - before.stalls, resimulated: self.resimulated - before.resimulated }
    }
}

/// All that is of interest of one run.
#[derive(Debug)]
struct Log {
    acts: Vec<Vec<Act>>,
    certain: Vec<Vec<Certain>>,
    marks: Vec<Vec<Mark>>,
    packets: Vec<Packet>,
    /// When a player first passed on an order.
    ordered: Option<Instant>,
    /// Who said, and when, that the latecomer sits down, and with which frame.
    joined: Vec<(usize, Instant, u32)>,
    /// When the latecomer's machine was first past the first frame.
    loaded: Option<Instant>,
    /// When the latecomer's player was first asked for an input, and the frame it was for.
    first_input: Option<(Instant, u32)>,
    ended: Option<SessionEnd>,
    running: bool,
    states_equal: bool,
}

impl Log {
    fn new(sites: usize) -> Self {
        Self {
            acts: vec![Vec::new(); sites],
            certain: vec![Vec::new(); sites],
            marks: vec![vec![Mark::default()]; sites],
            packets: Vec::new(),
            ordered: None,
            joined: Vec::new(),
            loaded: None,
            first_input: None,
            ended: None,
            running: false,
            states_equal: false,
        }
    }

    fn newcomer(&self) -> usize {
        self.acts.len() - 1
    }

    fn run_until(&mut self, world: &mut World, until: Instant) {
        // What a site did before it died is not of interest.
        let newcomer = self.newcomer();
        (self.first_input, self.loaded) = (None, None);
        self.acts[newcomer].clear();
        self.certain[newcomer].clear();
        while world.now() < until {
            world.listen(OVERHEARD);
            let next = (world.now() + TURN).min(until);
            world.run_until(next, &mut |happened| self.note(&happened));
            world.overheard().filter(|heard| heard.from < newcomer).for_each(|heard| self.hear(heard));
            for (marks, site) in self.marks.iter_mut().zip(&world.sites) {
                let stats = site.session.stats();
                let counts = Counts { stalls: stats.stalls, resimulated: stats.resimulated };
                marks.push(Mark { frame: stats.frame.number(), counts });
                marks.dedup_by_key(|mark| mark.frame);
            }
            let at_beginning = world.sites[newcomer].session.stats().frame == Frame::ZERO;
            self.loaded = self.loaded.or((!at_beginning).then_some(world.now()));
        }
    }

    /// A player sends something.
    fn hear(&mut self, heard: &Overheard) {
        if self.ordered.is_none() && carries_order(&heard.bytes) {
            self.ordered = Some(heard.at);
        }
        if heard.to < self.newcomer() {
            let hash = heard.bytes.iter().fold(heard.to as u64, |hash, byte| mix(hash, u64::from(*byte)));
            self.packets.push(Packet { at: heard.at, from: heard.from, hash });
        }
    }

    fn note(&mut self, happened: &Happened<'_>) {
        let newcomer = self.newcomer();
        match *happened {
            Happened::Saved { site, at, frame } => self.acts[site].push(Act { at, what: What::Save, frame }),
            Happened::Loaded { site, at, frame } => self.acts[site].push(Act { at, what: What::Load, frame }),
            Happened::Stepped { site, at, frame, fresh, .. } => {
                let what = if fresh { What::Fresh } else { What::Again };
                self.acts[site].push(Act { at, what, frame });
            }
            Happened::Confirmed { site, frame, words, hash, .. } => {
                let last = self.acts[site].iter().rev().find(|act| act.what == What::Fresh).map_or(0, |act| act.frame);
                // One frame is stepped as it becomes certain, and rests on no guess.
                let guessed = last.saturating_sub(frame);
                self.certain[site].push(Certain { frame, word: words[newcomer] & MASK, hash, guessed });
            }
            Happened::Sampled { site, at, frame, .. } if site == newcomer => {
                self.first_input.get_or_insert((at, frame));
            }
            Happened::Event { site, at, event: Event::Joined { site: joins, frame } } if joins.index() == newcomer => {
                self.joined.push((site, at, frame.number()));
            }
            Happened::Event { site, event: Event::Ended(end), .. } if site == newcomer => self.ended = Some(end),
            _ => {}
        }
    }

    fn finish(&mut self, world: &World) {
        self.running = world.sites.iter().all(|site| matches!(site.session.state(), State::Running));
        let ballast = |site: &Site| site.machine.ballast == world.sites[0].machine.ballast;
        self.states_equal = world.sites.iter().filter(|site| !site.crashed).all(ballast) && self.hashes_are_equal();
    }

    /// Whether all sites had the same states after all frames that more than one is certain of.
    fn hashes_are_equal(&self) -> bool {
        let hash = |site: usize, frame: u32| {
            let frames = &self.certain[site];
            let at = frames.binary_search_by_key(&frame, |certain| certain.frame).ok()?;
            Some(frames[at].hash)
        };
        let equal = |certain: &Certain| {
            let others = (1..self.certain.len()).filter_map(|site| hash(site, certain.frame));
            others.into_iter().all(|other| other == certain.hash)
        };
        self.certain[0].iter().all(equal)
    }

    /// What a site had counted when it came to a frame.
    fn counts_at(&self, site: usize, frame: u32) -> Counts {
        let marks = &self.marks[site];
        marks[marks.partition_point(|mark| mark.frame <= frame) - 1].counts
    }

    fn counts(&self, site: usize) -> Counts {
        self.marks[site].last().map_or(Counts::default(), |mark| mark.counts)
    }

    /// What a site's machine was made to do until it stepped this frame.
    fn acts_until(&self, site: usize, frame: u32) -> &[Act] {
        let acts = &self.acts[site];
        let until = acts.iter().position(|act| act.what == What::Fresh && act.frame >= frame);
        &acts[..until.unwrap_or(acts.len())]
    }

    /// How often the latecomer changed his input from a frame on, and how many frames rest on a guess of one on average, at a site.
    fn changes(&self, site: usize, from: u32) -> (u64, f64) {
        let certain = &self.certain[site];
        let since = &certain[certain.partition_point(|certain| certain.frame < from)..];
        let changes = since.windows(2).filter(|pair| pair[0].word != pair[1].word);
        let depths: Vec<u32> = changes.map(|pair| pair[1].guessed).collect();
        let sum: u32 = depths.iter().sum();
        (depths.len() as u64, f64::from(sum) / depths.len().max(1) as f64)
    }
}

fn carries_order(bytes: &[u8]) -> bool {
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { return false };
    tick.extras.iter().any(|extra| matches!(extra, Extra::Command(_)))
}

/// What it was to one player.
#[derive(Clone, Copy, Debug)]
pub struct Player {
    /// Up to the frame with which the latecomer sits down: with him and without.
    pub before: [Counts; 2],
    /// From then on.
    pub after: [Counts; 2],
    /// Whether its machine was made to do the same at the same instants, up to that frame.
    pub same_acts: bool,
    /// How many of those acts there were.
    pub acts: usize,
    /// How often the latecomer changed his input, and how many frames had been stepped on a guess of it on average.
    pub changes: u64,
    /// Frames from the one with the change on that were stepped before it was known, on average.
    pub depth: f64,
}

impl Player {
    /// The frames to be stepped once more for the latecomer's own changes alone.
    pub fn due(&self) -> f64 {
        self.changes as f64 * self.depth
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The frame with which the latecomer sits down, if all who said so said the same.
    pub frame: Option<u32>,
    /// How long it took until his machine had a state, or its first frame.
    pub loaded_after: Option<TimeDelta>,
    /// How long it took until the order was given.
    pub ordered_after: Option<TimeDelta>,
    /// How long it took until he sat down.
    pub seated_after: Option<TimeDelta>,
    /// How long it took until his buttons were read.
    pub plays_after: Option<TimeDelta>,
    /// How far behind the first player he stepped his frames on average, in the last ten seconds.
    pub behind_ms: f64,
    /// The players.
    pub players: Vec<Player>,
    /// Datagrams between the players before the first one with the order, and whether they were the same at the same instants.
    pub packets: usize,
    /// Whether they were.
    pub same_packets: bool,
    /// Whether all sites play at the end.
    pub running: bool,
    /// How it ended for the latecomer, if it did.
    pub ended: Option<SessionEnd>,
    /// Whether all sites had the same states after all frames.
    pub states_equal: bool,
}

impl Outcome {
    fn new(experiment: &Latecomer, with: &Log, without: &Log) -> Self {
        let came = Instant::ZERO + experiment.comes;
        let newcomer = experiment.newcomer();
        let frames = || with.joined.iter().map(|(_, _, frame)| *frame);
        let frame = frames().next().filter(|first| frames().all(|frame| frame == *first));
        let seated = with.joined.iter().find(|(site, _, _)| *site == newcomer).map(|(_, at, _)| *at - came);
        let until = with.ordered.unwrap_or(Instant::FAR_FUTURE);
        let packets = |log: &Log| log.packets.iter().copied().filter(|packet| packet.at < until).collect::<Vec<_>>();
        Self {
            frame,
            loaded_after: with.loaded.map(|at| at - came),
            ordered_after: with.ordered.map(|at| at - came),
            seated_after: seated,
            plays_after: with.first_input.map(|(at, _)| at - came),
            behind_ms: behind_ms(&with.acts[0], &with.acts[newcomer]),
            players: (0..newcomer).map(|site| Player::new(site, frame.unwrap_or(u32::MAX), with, without)).collect(),
            packets: packets(with).len(),
            same_packets: packets(with) == packets(without),
            running: with.running,
            ended: with.ended,
            states_equal: with.states_equal,
        }
    }
}

impl Player {
    fn new(site: usize, frame: u32, with: &Log, without: &Log) -> Self {
        let [before_with, before_without] = [with, without].map(|log| log.counts_at(site, frame));
        let acts = with.acts_until(site, frame);
        let (changes, depth) = with.changes(site, frame);
        Self {
            before: [before_with, before_without],
            after: [with.counts(site).since(before_with), without.counts(site).since(before_without)],
            same_acts: acts == without.acts_until(site, frame),
            acts: acts.len(),
            changes,
            depth,
        }
    }
}

/// How much later one stepped the same frames than another, on average, in the last ten seconds.
fn behind_ms(first: &[Act], other: &[Act]) -> f64 {
    let fresh = |acts: &[Act]| acts.iter().copied().filter(|act| act.what == What::Fresh).collect::<Vec<_>>();
    let (first, other) = (fresh(first), fresh(other));
    let step = |frame: u32| first.binary_search_by_key(&frame, |act| act.frame).ok().map(|at| first[at].at);
    let late = other.iter().rev().take(600).filter_map(|act| step(act.frame).map(|at| (act.at - at).as_millis_f64()));
    let late: Vec<f64> = late.collect();
    late.iter().sum::<f64>() / late.len().max(1) as f64
}
