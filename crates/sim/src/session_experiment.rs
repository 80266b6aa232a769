//! Experiments on a simulated network: sessions without faults, measured.

use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership, Recovery};
use coplay::pace::Pacing;
use coplay::session::{
    AbsentInput, Config, GameId, MachineCosts, MachineId, SendPolicy, Session, Settings, StarvationPolicy,
};
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;
use crate::input_latency::InputLatencyMeter;
use crate::link::LinkConfig;
use crate::random::Random;
use crate::session_network::{self, SessionNetwork, SiteEvent};
use crate::site::SimulatedSite;

/// Frames before those that are measured: one second.
pub const WARM_UP_FRAMES: u32 = 60;

/// What is run.
#[derive(Clone, Debug)]
pub struct SessionExperiment {
    /// All randomness comes from this.
    pub seed: u64,
    /// How many sites play.
    pub sites: usize,
    /// Local lag in frames.
    pub input_delay: u32,
    /// Frames that may be guessed.
    pub prediction_window: u32,
    /// Whether lag and window are only where to begin.
    pub auto_delay: bool,
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
    pub max_send_delay: TimeDelta,
    /// How long the machine takes for a step.
    pub step_cost: TimeDelta,
    /// How likely an input changes in a frame.
    pub input_change_probability: f64,
    /// The bits of an input that change.
    pub input_mask: InputWord,
    /// Frames to be measured, after one second of warming up.
    pub frames: u32,
}

impl SessionExperiment {
    /// Two sites, lag 6 at 60 frames per second, our pacing, 2-byte inputs that change every 8 frames on average, 3,600 frames.
    pub fn new(link: LinkConfig) -> Self {
        Self {
            seed: 1,
            sites: 2,
            input_delay: 6,
            prediction_window: 0,
            auto_delay: false,
            starvation: StarvationPolicy::default(),
            can_save: true,
            costs: MachineCosts::default(),
            link,
            recovery: Recovery::default(),
            pacing: Pacing::default(),
            sending: SendPolicy::default(),
            max_send_delay: TimeDelta::ZERO,
            step_cost: TimeDelta::ZERO,
            input_change_probability: 1.0 / 8.0,
            input_mask: 0xffff,
            frames: 3_600,
        }
    }

    /// Zhao et al. as published: Algorithms 3 and 4, a 20 ms send timer, thread slices of 10 ms (5 ms on average), and a machine
    /// that takes 10 ms for a step.
    pub fn as_published(link: LinkConfig) -> Self {
        Self {
            pacing: Pacing::Zhao,
            sending: SendPolicy::Timer(TimeDelta::from_millis(20)),
            max_send_delay: TimeDelta::from_millis(10),
            step_cost: TimeDelta::from_millis(10),
            recovery: Recovery::Redundant,
            ..Self::new(link)
        }
    }

    /// What all sites agree on.
    pub fn settings(&self) -> Settings {
        let Self { prediction_window: window, auto_delay: auto, starvation, .. } = *self;
        Settings {
            prediction_window: window,
            auto_tune: auto,
            starvation_policy: starvation,
            ..toy_settings(self.input_delay, Ownership::one_player_per_site(self.sites, self.input_mask))
        }
    }

    fn build_site(&self, number: usize) -> SimulatedSite {
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
            ..Config::new(self.seed, id, SessionNetwork::peers(number, self.sites), self.settings())
        };
        let session = Session::new(clock.local(Instant::ZERO), config).expect("the settings are sound");
        let mut site = session_network::new_site(session, clock, self.sites, luck.bits());
        site.step_cost = self.step_cost;
        site.player.change_probability = self.input_change_probability;
        site.player.mask = self.input_mask;
        site
    }

    /// The world in which it happens.
    pub fn build_network(&self) -> SessionNetwork {
        let sites = (0..self.sites).map(|number| self.build_site(number)).collect();
        let mut world = SessionNetwork::new(self.seed, sites, |_, _| self.link.clone());
        world.max_send_delay = self.max_send_delay;
        world
    }

    /// Runs it. Zhao et al. log a frame's start in BeginFrameTiming; we log it just before its step.
    pub fn run(&self) -> SessionMeasurements {
        self.run_observed(|_| {})
    }

    /// Runs it and lets `watch` see the world at least once between any two frames.
    pub fn run_observed(&self, mut watch: impl FnMut(&SessionNetwork)) -> SessionMeasurements {
        let mut log = FrameLog::new(self);
        let mut world = self.build_network();
        let limit = Instant::ZERO + TimeDelta::from_secs(20) + TimeDelta::from_millis(i64::from(self.frames) * 300);
        let mut before = vec![Default::default(); self.sites];
        let mut warm = false;
        while world.now() < limit && !log.is_complete() {
            let next = world.now() + TimeDelta::from_millis(5);
            world.run_until(next, &mut |happened| log.on_event(&happened));
            if !warm && log.frame_starts.iter().all(|starts| !starts.is_empty()) {
                warm = true;
                before = (0..self.sites).map(|site| SiteTraffic::of(&world, site)).collect();
            }
            watch(&world);
        }
        let traffic = (0..self.sites).map(|site| SiteTraffic::of(&world, site).since(before[site])).collect();
        SessionMeasurements::new(log, traffic)
    }
}

/// What the sites do once they are warm.
#[derive(Debug)]
struct FrameLog {
    input_delay: u32,
    /// Where a frame's start is its beginning, and not its step.
    starts_at_sample: bool,
    /// Starts that are wanted from each site.
    required_starts: usize,
    frame_starts: Vec<Vec<Instant>>,
    state_hashes: Vec<Vec<u64>>,
    /// Steps for the first time, and once more.
    step_counts: Vec<[u32; 2]>,
    input_latency: InputLatencyMeter,
}

impl FrameLog {
    fn new(experiment: &SessionExperiment) -> Self {
        let sites = experiment.sites;
        Self {
            input_delay: experiment.input_delay,
            starts_at_sample: experiment.pacing != Pacing::Even,
            required_starts: (experiment.frames + 1) as usize,
            frame_starts: vec![Vec::with_capacity(experiment.frames as usize); sites],
            state_hashes: vec![Vec::new(); sites],
            step_counts: vec![[0; 2]; sites],
            input_latency: InputLatencyMeter::new(sites, experiment.input_mask, WARM_UP_FRAMES),
        }
    }

    fn is_complete(&self) -> bool {
        self.frame_starts.iter().all(|starts| starts.len() >= self.required_starts)
    }

    fn on_event(&mut self, happened: &SiteEvent<'_>) {
        self.input_latency.on_event(happened);
        match *happened {
            SiteEvent::Sampled { site, at, frame, .. } if frame >= self.input_delay + WARM_UP_FRAMES => {
                self.record_start(site, at, self.starts_at_sample);
            }
            SiteEvent::Stepped { site, at, frame, fresh, .. } if frame >= WARM_UP_FRAMES => {
                self.step_counts[site][usize::from(!fresh)] += 1;
                self.record_start(site, at, fresh && !self.starts_at_sample);
            }
            SiteEvent::Confirmed { site, frame, hash, .. } if frame >= WARM_UP_FRAMES => {
                self.state_hashes[site].push(hash)
            }
            _ => {}
        }
    }

    fn record_start(&mut self, site: usize, at: Instant, counts: bool) {
        if counts {
            self.frame_starts[site].push(at);
        }
    }

    /// Frames stepped once more for 100 that were stepped for the first time, at each site.
    fn resimulated_per_100(&self) -> Vec<f64> {
        let per_100 = |[fresh, again]: &[u32; 2]| f64::from(*again) * 100.0 / f64::from(*fresh).max(1.0);
        self.step_counts.iter().map(per_100).collect()
    }

    /// The mean time until each site's button shows at all other sites.
    fn remote_latency_ms(&self) -> Vec<f64> {
        let sites = self.frame_starts.len();
        let others = |from: usize| (0..sites).filter(move |to| *to != from);
        let shown =
            |from: usize| others(from).map(|to| self.input_latency.mean_latency_ms(from, to)).collect::<Vec<f64>>();
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
struct SiteTraffic {
    frames: u32,
    packets: u64,
    bytes: u64,
    stalls: u64,
}

impl SiteTraffic {
    fn of(world: &SessionNetwork, number: usize) -> Self {
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
pub struct SessionMeasurements {
    /// Mean time from one frame to the next at each site, in milliseconds.
    pub mean_frame_ms: Vec<f64>,
    /// Mean absolute deviation of that, at each site.
    pub deviation_ms: Vec<f64>,
    /// Mean absolute difference between the first two sites' starts of the same frame.
    pub synchrony_ms: f64,
    /// The longest time between two frames anywhere.
    pub longest_frame_ms: f64,
    /// Datagrams per frame and link.
    pub packets_per_frame: f64,
    /// Bytes of payload per datagram.
    pub bytes_per_packet: f64,
    /// Bytes of payload per frame and link.
    pub bytes_per_frame: f64,
    /// Frames that had to wait for inputs, as a part of all.
    pub stall_ratio: f64,
    /// Mean time from a press until it shows where it was pressed, at each site.
    pub local_latency_ms: Vec<f64>,
    /// Mean time from a press at each site until it shows at the other sites.
    pub remote_latency_ms: Vec<f64>,
    /// Frames stepped once more for 100 frames, at each site.
    pub resimulated_per_100: Vec<f64>,
    /// Frames that were stepped by all sites.
    pub common_frames: usize,
    /// Whether all sites had the same states.
    pub states_equal: bool,
    /// Whether all wanted frames were stepped.
    pub is_complete: bool,
}

impl SessionMeasurements {
    fn new(log: FrameLog, traffic: Vec<SiteTraffic>) -> Self {
        let (own_ms, other_ms) = (
            (0..traffic.len()).map(|site| log.input_latency.mean_latency_ms(site, site)).collect(),
            log.remote_latency_ms(),
        );
        let (resimulated, complete) = (log.resimulated_per_100(), log.is_complete());
        let FrameLog { frame_starts: starts, state_hashes: hashes, required_starts: wanted, .. } = log;
        let times: Vec<Vec<f64>> = starts.iter().map(|starts| frame_times(starts, wanted)).collect();
        let pairs = starts[0].iter().zip(&starts[1]).take(wanted);
        let differences: Vec<f64> = pairs.map(|(one, other)| (*one - *other).abs().as_millis_f64()).collect();
        let frames = hashes.iter().map(Vec::len).min().unwrap_or(0);
        let links = (traffic.len() - 1).max(1) as f64;
        let sum = |value: fn(&SiteTraffic) -> f64| traffic.iter().map(value).sum::<f64>();
        let (stepped, packets, bytes) =
            (sum(|t| f64::from(t.frames)), sum(|t| t.packets as f64), sum(|t| t.bytes as f64));
        Self {
            mean_frame_ms: times.iter().map(|times| mean(times)).collect(),
            deviation_ms: times.iter().map(|times| mean_abs_deviation(times)).collect(),
            synchrony_ms: mean(&differences),
            longest_frame_ms: times.iter().flatten().copied().fold(0.0, f64::max),
            packets_per_frame: packets / stepped / links,
            bytes_per_packet: bytes / packets,
            bytes_per_frame: bytes / stepped / links,
            stall_ratio: sum(|t| t.stalls as f64) / stepped,
            local_latency_ms: own_ms,
            remote_latency_ms: other_ms,
            resimulated_per_100: resimulated,
            common_frames: frames,
            states_equal: hashes.iter().all(|one| one[..frames] == hashes[0][..frames]),
            is_complete: complete,
        }
    }

    /// Frames per second at the first site.
    pub fn fps(&self) -> f64 {
        1_000.0 / self.mean_frame_ms[0]
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
fn mean_abs_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len().max(1) as f64
}
