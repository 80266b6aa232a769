//! Experiments on a simulated network: sessions without faults, measured.

use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::pace::Pacing;
use coplay::session::{
    AbsentInput, Config, GameId, MachineCosts, MachineId, SendPolicy, Session, Settings, StarvationPolicy,
};
use coplay::time::{Instant, TimeDelta};

use crate::buttons::Buttons;
use crate::clock::NodeClock;
use crate::link::LinkConfig;
use crate::random::Random;
use crate::site::Site;
use crate::world::{self, Happened, World};

/// Frames before those that are measured: one second.
pub const WARM_UP: u32 = 60;

/// What is run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// All randomness comes from this.
    pub seed: u64,
    /// How many sites play.
    pub sites: usize,
    /// Local lag in frames.
    pub lag: u32,
    /// Frames that may be guessed.
    pub window: u32,
    /// Whether lag and window are only where to begin.
    pub auto: bool,
    /// What is done when inputs are about to run out.
    pub starvation: StarvationPolicy,
    /// Whether the machine can save and load its state.
    pub can_save: bool,
    /// What the machine takes, as far as the sessions are told.
    pub costs: MachineCosts,
    /// One direction of every link.
    pub link: LinkConfig,
    /// How lost inputs come back.
    pub recovery: Recovery,
    /// How frames are paced.
    pub pacing: Pacing,
    /// When packets leave.
    pub sending: SendPolicy,
    /// Up to so long does a packet wait in its site.
    pub sending_delay: TimeDelta,
    /// How long the machine takes for a step.
    pub step_cost: TimeDelta,
    /// How likely an input changes in a frame.
    pub restlessness: f64,
    /// The bits of an input that change.
    pub mask: InputWord,
    /// Frames to be measured, after one second of warming up.
    pub frames: u32,
}

impl Experiment {
    /// Two sites, lag 6 at 60 frames per second, our pacing, 2-byte inputs that change every 8 frames on average, 3,600 frames.
    pub fn new(link: LinkConfig) -> Self {
        Self {
            seed: 1,
            sites: 2,
            lag: 6,
            window: 0,
            auto: false,
            starvation: StarvationPolicy::default(),
            can_save: true,
            costs: MachineCosts::default(),
            link,
            recovery: Recovery::default(),
            pacing: Pacing::default(),
            sending: SendPolicy::default(),
            sending_delay: TimeDelta::ZERO,
            step_cost: TimeDelta::ZERO,
            restlessness: 1.0 / 8.0,
            mask: 0xffff,
            frames: 3_600,
        }
    }

    /// Zhao et al. as published: Algorithms 3 and 4, a 20 ms send timer, thread slices of 10 ms (5 ms on average), and a machine
    /// that takes 10 ms for a step.
    pub fn as_published(link: LinkConfig) -> Self {
        Self {
            pacing: Pacing::Zhao,
            sending: SendPolicy::Timer(TimeDelta::from_millis(20)),
            sending_delay: TimeDelta::from_millis(10),
            step_cost: TimeDelta::from_millis(10),
            recovery: Recovery::Redundant,
            ..Self::new(link)
        }
    }

    /// What all sites agree on.
    pub fn settings(&self) -> Settings {
        let Self { window, auto, starvation, .. } = *self;
        Settings {
            prediction_window: window,
            auto_tune: auto,
            starvation_policy: starvation,
            ..toy_settings(self.lag, Ownership::one_player_per_site(self.sites, self.mask))
        }
    }

    fn site(&self, number: usize) -> Site {
        let mut luck = Random::stream(self.seed, &format!("site {number}"));
        let clock = NodeClock {
            offset: TimeDelta::from_millis(luck.range(0..=10_000_000)),
            skew_ppm: luck.unit() * 100.0 - 50.0,
        };
        let id = SiteId::first(self.sites).nth(number).expect("no more sites than there can be");
        let config = Config {
            recovery: self.recovery,
            pacing: self.pacing,
            send_policy: self.sending,
            can_save: self.can_save,
            machine_costs: self.costs,
            ..Config::new(self.seed, id, World::peers(number, self.sites), self.settings())
        };
        let session = Session::new(clock.local(Instant::ZERO), config).expect("the settings are sound");
        let mut site = world::site(session, clock, self.sites, luck.bits());
        site.step_cost = self.step_cost;
        site.player.restlessness = self.restlessness;
        site.player.mask = self.mask;
        site
    }

    /// The world in which it happens.
    pub fn world(&self) -> World {
        let sites = (0..self.sites).map(|number| self.site(number)).collect();
        let mut world = World::new(self.seed, sites, |_, _| self.link.clone());
        world.sending_delay = self.sending_delay;
        world
    }

    /// Runs it. Zhao et al. log a frame's start in BeginFrameTiming; we log it just before its step.
    pub fn run(&self) -> Outcome {
        self.run_watched(|_| {})
    }

    /// Runs it and lets `watch` see the world at least once between any two frames.
    pub fn run_watched(&self, mut watch: impl FnMut(&World)) -> Outcome {
        let mut log = Log::new(self);
        let mut world = self.world();
        let limit = Instant::ZERO + TimeDelta::from_secs(20) + TimeDelta::from_millis(i64::from(self.frames) * 300);
        let mut before = vec![Default::default(); self.sites];
        let mut warm = false;
        while world.now() < limit && !log.is_complete() {
            let next = world.now() + TimeDelta::from_millis(5);
            world.run_until(next, &mut |happened| log.note(&happened));
            if !warm && log.starts.iter().all(|starts| !starts.is_empty()) {
                warm = true;
                before = (0..self.sites).map(|site| Traffic::of(&world, site)).collect();
            }
            watch(&world);
        }
        let traffic = (0..self.sites).map(|site| Traffic::of(&world, site).since(before[site])).collect();
        Outcome::new(log, traffic)
    }
}

/// What the sites do once they are warm.
#[derive(Debug)]
struct Log {
    lag: u32,
    /// Where a frame's start is its beginning, and not its step.
    logged_at_begin: bool,
    /// Starts that are wanted from each site.
    wanted: usize,
    starts: Vec<Vec<Instant>>,
    hashes: Vec<Vec<u64>>,
    /// Steps for the first time, and once more.
    steps: Vec<[u32; 2]>,
    buttons: Buttons,
}

impl Log {
    fn new(experiment: &Experiment) -> Self {
        let sites = experiment.sites;
        Self {
            lag: experiment.lag,
            logged_at_begin: experiment.pacing != Pacing::Even,
            wanted: (experiment.frames + 1) as usize,
            starts: vec![Vec::with_capacity(experiment.frames as usize); sites],
            hashes: vec![Vec::new(); sites],
            steps: vec![[0; 2]; sites],
            buttons: Buttons::new(sites, experiment.mask, WARM_UP),
        }
    }

    fn is_complete(&self) -> bool {
        self.starts.iter().all(|starts| starts.len() >= self.wanted)
    }

    fn note(&mut self, happened: &Happened<'_>) {
        self.buttons.note(happened);
        match *happened {
            Happened::Sampled { site, at, frame, .. } if frame >= self.lag + WARM_UP => {
                self.start(site, at, self.logged_at_begin);
            }
            Happened::Stepped { site, at, frame, fresh, .. } if frame >= WARM_UP => {
                self.steps[site][usize::from(!fresh)] += 1;
                self.start(site, at, fresh && !self.logged_at_begin);
            }
            Happened::Confirmed { site, frame, hash, .. } if frame >= WARM_UP => self.hashes[site].push(hash),
            _ => {}
        }
    }

    fn start(&mut self, site: usize, at: Instant, counts: bool) {
        if counts {
            self.starts[site].push(at);
        }
    }

    /// Frames stepped once more for 100 that were stepped for the first time, at each site.
    fn resimulated(&self) -> Vec<f64> {
        let per_100 = |[fresh, again]: &[u32; 2]| f64::from(*again) * 100.0 / f64::from(*fresh).max(1.0);
        self.steps.iter().map(per_100).collect()
    }

    /// The mean time until each site's button shows at all other sites.
    fn other_ms(&self) -> Vec<f64> {
        let sites = self.starts.len();
        let others = |from: usize| (0..sites).filter(move |to| *to != from);
        let shown = |from: usize| others(from).map(|to| self.buttons.mean_ms(from, to)).collect::<Vec<f64>>();
        (0..sites).map(|from| mean(&shown(from))).collect()
    }
}

/// The settings of a session that shares the toy at 60 frames per second.
pub fn toy_settings(lag: u32, ownership: Ownership) -> Settings {
    let sites = (0..coplay::id::MAX_SITES).rev().find(|site| owns(&ownership, *site)).map_or(2, |last| last + 1);
    Settings {
        game: GameId { name: "toy".into(), hash: [7; 32] },
        machine: MachineId { name: "toy".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 },
        rate: FrameRate::per_second(60).expect("60 is a frame rate"),
        input_delay: lag,
        prediction_window: 0,
        auto_tune: false,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: 60,
        site_count: sites as u8,
        starting_sites: SiteSet::first(sites),
        ownership,
    }
}

fn owns(ownership: &Ownership, site: usize) -> bool {
    SiteId::first(coplay::id::MAX_SITES).nth(site).is_some_and(|site| ownership.layout(site).width() > 0)
}

/// What a site sent, per link.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    frames: u32,
    packets: u64,
    bytes: u64,
    stalls: u64,
}

impl Traffic {
    fn of(world: &World, number: usize) -> Self {
        let site = &world.sites[number];
        let now = site.clock.local(world.now());
        let peers = SiteId::first(world.sites.len()).filter_map(|peer| site.session.peer_stats(now, peer));
        let stats = site.session.stats();
        let start = Self { frames: stats.frame.number(), stalls: stats.stalls, ..Self::default() };
        peers.fold(start, |sum, peer| Self {
            packets: sum.packets + peer.packets_out,
            bytes: sum.bytes + peer.bytes_out,
            ..sum
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            frames: self.frames - before.frames,
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            stalls: self.stalls - before.stalls,
        }
    }
}

/// What came of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Mean time from one frame to the next at each site, in milliseconds.
    pub frame_ms: Vec<f64>,
    /// Mean absolute deviation of that, at each site.
    pub deviation_ms: Vec<f64>,
    /// Mean absolute difference between the first two sites' starts of the same frame.
    pub synchrony_ms: f64,
    /// The longest time between two frames anywhere.
    pub longest_ms: f64,
    /// Datagrams per frame and link.
    pub packets_per_frame: f64,
    /// Bytes of payload per datagram.
    pub bytes_per_packet: f64,
    /// Bytes of payload per frame and link.
    pub bytes_per_frame: f64,
    /// Frames that had to wait for inputs, as a part of all.
    pub stalls: f64,
    /// Mean time from a press until it shows where it was pressed, at each site.
    pub own_ms: Vec<f64>,
    /// Mean time from a press at each site until it shows at the other sites.
    pub other_ms: Vec<f64>,
    /// Frames stepped once more for 100 frames, at each site.
    pub resimulated: Vec<f64>,
    /// Frames that were stepped by all sites.
    pub frames: usize,
    /// Whether all sites had the same states.
    pub states_equal: bool,
    /// Whether all wanted frames were stepped.
    pub complete: bool,
}

impl Outcome {
    fn new(log: Log, traffic: Vec<Traffic>) -> Self {
        let (own_ms, other_ms) =
            ((0..traffic.len()).map(|site| log.buttons.mean_ms(site, site)).collect(), log.other_ms());
        let (resimulated, complete) = (log.resimulated(), log.is_complete());
        let Log { starts, hashes, wanted, .. } = log;
        let times: Vec<Vec<f64>> = starts.iter().map(|starts| frame_times(starts, wanted)).collect();
        let pairs = starts[0].iter().zip(&starts[1]).take(wanted);
        let differences: Vec<f64> = pairs.map(|(one, other)| (*one - *other).abs().as_millis_f64()).collect();
        let frames = hashes.iter().map(Vec::len).min().unwrap_or(0);
        let links = (traffic.len() - 1).max(1) as f64;
        let sum = |value: fn(&Traffic) -> f64| traffic.iter().map(value).sum::<f64>();
        let (stepped, packets, bytes) =
            (sum(|t| f64::from(t.frames)), sum(|t| t.packets as f64), sum(|t| t.bytes as f64));
        Self {
            frame_ms: times.iter().map(|times| mean(times)).collect(),
            deviation_ms: times.iter().map(|times| deviation(times)).collect(),
            synchrony_ms: mean(&differences),
            longest_ms: times.iter().flatten().copied().fold(0.0, f64::max),
            packets_per_frame: packets / stepped / links,
            bytes_per_packet: bytes / packets,
            bytes_per_frame: bytes / stepped / links,
            stalls: sum(|t| t.stalls as f64) / stepped,
            own_ms,
            other_ms,
            resimulated,
            frames,
            states_equal: hashes.iter().all(|one| one[..frames] == hashes[0][..frames]),
            complete,
        }
    }

    /// Frames per second at the first site.
    pub fn fps(&self) -> f64 {
        1_000.0 / self.frame_ms[0]
    }

    /// The worst site's deviation.
    pub fn worst_deviation_ms(&self) -> f64 {
        self.deviation_ms.iter().copied().fold(0.0, f64::max)
    }
}

fn frame_times(starts: &[Instant], wanted: usize) -> Vec<f64> {
    let starts = &starts[..starts.len().min(wanted)];
    starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The papers' "average deviation": mean absolute difference from the mean.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len().max(1) as f64
}
