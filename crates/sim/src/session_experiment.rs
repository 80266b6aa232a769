//! Measurements of fault-free sessions on a simulated network.

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
use crate::network::Computer;
use crate::session_network::{self, SessionNetwork, SiteEvent};
use crate::site::SimulatedSite;
use coplay_links::link::LinkConfig;
use coplay_links::random::Random;

/// Frames before the measurement begins: one second.
pub const WARM_UP_FRAMES: u32 = 60;

/// Parameters of a fault-free session whose pacing, traffic and rollbacks are measured.
#[derive(Clone, Debug)]
pub struct SessionExperiment {
    /// Seed of all randomness.
    pub seed: u64,
    /// Number of sites, each with one player.
    pub sites: usize,
    /// Frames between sampling an input and the frame in which it takes effect.
    pub input_delay: u32,
    /// Prediction window in frames; 0 is lockstep.
    pub prediction_window: u32,
    /// Whether the sites tune input delay and prediction window automatically, starting from the values above.
    pub auto_delay: bool,
    /// Policy of all sessions when buffered inputs are about to run out.
    pub starvation: StarvationPolicy,
    /// Whether the sessions may ask to save and load the machine's state.
    pub can_save: bool,
    /// Initial estimates of the machine's costs at every session, for automatic tuning. The time that a simulated step
    /// really takes is `step_cost`.
    pub costs: MachineCosts,
    /// Conditions in each direction of every link.
    pub link: LinkConfig,
    /// Recovery policy for lost inputs.
    pub recovery: Recovery,
    /// Pacing algorithm of every site.
    pub pacing: Pacing,
    /// Policy by which every site chooses when to send.
    pub sending: SendPolicy,
    /// Upper bound of the random delay of a datagram inside its site before it is sent.
    pub max_send_delay: TimeDelta,
    /// Time for which a site is busy with one step of its machine.
    pub step_cost: TimeDelta,
    /// Probability that a player's input is drawn again in a frame.
    pub input_change_probability: f64,
    /// Bits of its input that each player owns and changes.
    pub input_mask: InputWord,
    /// Number of frames to measure, after a warm-up of one second.
    pub frames: u32,
}

impl SessionExperiment {
    /// Creates an experiment with two sites, input delay 6 at 60 frames per second, even pacing, 2-byte inputs that
    /// change every 8 frames on average, and 3,600 frames.
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

    /// Creates the experiment of Zhao et al. as published: Algorithms 3 and 4, a 20 ms send timer, a random thread
    /// delay of 0 to 10 ms before each datagram is sent, redundant recovery, and a machine that takes 10 ms for a step.
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

    /// Returns the session settings shared by all sites.
    pub fn settings(&self) -> Settings {
        Settings {
            prediction_window: self.prediction_window,
            auto_tune: self.auto_delay,
            starvation_policy: self.starvation,
            ..toy_settings(self.input_delay, Ownership::one_player_per_site(self.sites, self.input_mask))
        }
    }

    fn build_site(&self, number: usize) -> Computer<SimulatedSite> {
        let mut random = Random::stream(self.seed, &format!("site {number}"));
        let clock = NodeClock {
            offset: TimeDelta::from_millis(random.range(0..=10_000_000)),
            skew_ppm: random.unit() * 100.0 - 50.0,
        };
        let id = SiteId::first(self.sites).nth(number).expect("site number is below MAX_SITES");
        let config = Config {
            recovery: self.recovery,
            pacing: self.pacing,
            send_policy: self.sending,
            can_save: self.can_save,
            machine_costs: self.costs,
            ..Config::new(self.seed, id, SessionNetwork::peers(number, self.sites), self.settings())
        };
        let session = Session::new(clock.local(Instant::ZERO), config).expect("settings are valid");
        let mut site = session_network::new_site(session, clock, self.sites, random.bits());
        site.step_cost = self.step_cost;
        site.player.change_probability = self.input_change_probability;
        site.player.mask = self.input_mask;
        site
    }

    /// Builds the sites and the links between them. Each clock has a random offset of up to 10,000 s and a skew of up
    /// to 50 ppm.
    pub fn build_network(&self) -> SessionNetwork {
        let sites = (0..self.sites).map(|number| self.build_site(number)).collect();
        let mut network = SessionNetwork::new(self.seed, sites, |_, _| self.link.clone());
        network.max_send_delay = self.max_send_delay;
        network
    }

    /// Runs the experiment until every site has started the required frames, but for at most 20 s plus 0.3 s per
    /// measured frame, in virtual time. With even pacing a frame starts just before its step, with the pacing of Zhao
    /// et al. in their BeginFrameTiming, where the local input is sampled.
    pub fn run(&self) -> SessionMeasurements {
        self.run_observed(|_| {})
    }

    /// Runs the experiment like [`SessionExperiment::run`], and passes the network to `observe` every 5 ms of virtual
    /// time.
    pub fn run_observed(&self, mut observe: impl FnMut(&SessionNetwork)) -> SessionMeasurements {
        let mut log = FrameObservations::new(self);
        let mut network = self.build_network();
        let limit = Instant::ZERO + TimeDelta::from_secs(20) + TimeDelta::from_millis(i64::from(self.frames) * 300);
        let mut before = vec![Default::default(); self.sites];
        let mut warm = false;
        while network.now() < limit && !log.is_complete() {
            let next = network.now() + TimeDelta::from_millis(5);
            network.run_until(next, &mut |event| log.on_event(&event));
            if !warm && log.frame_starts.iter().all(|starts| !starts.is_empty()) {
                warm = true;
                before = (0..self.sites).map(|site| SiteTraffic::of(&network, site)).collect();
            }
            observe(&network);
        }
        let traffic = (0..self.sites).map(|site| SiteTraffic::of(&network, site).since(before[site])).collect();
        SessionMeasurements::new(log, traffic)
    }
}

/// Observations of all sites after the warm-up.
#[derive(Debug)]
struct FrameObservations {
    input_delay: u32,
    /// Whether a frame starts when the local input is sampled. Otherwise it starts with its first step.
    starts_at_sample: bool,
    /// Number of frame starts that each site must log.
    required_starts: usize,
    frame_starts: Vec<Vec<Instant>>,
    state_hashes: Vec<Vec<u64>>,
    /// Numbers of fresh and of resimulated steps, by site.
    step_counts: Vec<[u32; 2]>,
    input_latency: InputLatencyMeter,
}

impl FrameObservations {
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

    fn on_event(&mut self, event: &SiteEvent<'_>) {
        self.input_latency.on_event(event);
        match *event {
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

    /// Returns the number of resimulated frames per 100 fresh ones, by site.
    fn resimulated_per_100(&self) -> Vec<f64> {
        let per_100 = |[fresh, resimulated]: &[u32; 2]| f64::from(*resimulated) * 100.0 / f64::from(*fresh).max(1.0);
        self.step_counts.iter().map(per_100).collect()
    }

    /// Returns, by pressing site, the mean latency from its presses to their first effect at the other sites, in
    /// milliseconds.
    fn remote_latency_ms(&self) -> Vec<f64> {
        let sites = self.frame_starts.len();
        let others = |from: usize| (0..sites).filter(move |to| *to != from);
        let shown =
            |from: usize| others(from).map(|to| self.input_latency.mean_latency_ms(from, to)).collect::<Vec<f64>>();
        (0..sites).map(|from| mean(&shown(from))).collect()
    }
}

/// Returns settings for a session of the toy machine at 60 frames per second. The session has all sites up to the last
/// one that owns an input bit, or two if no site owns one.
pub fn toy_settings(input_delay: u32, ownership: Ownership) -> Settings {
    let sites = (0..coplay::id::MAX_SITES).rev().find(|site| owns(&ownership, *site)).map_or(2, |last| last + 1);
    Settings {
        game: GameId { name: "toy".into(), hash: [7; 32] },
        machine: MachineId { name: "toy".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 },
        rate: FrameRate::per_second(60).expect("60 is a valid frame rate"),
        input_delay,
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

/// Frames and stalls of one site, and its traffic to all peers.
#[derive(Clone, Copy, Debug, Default)]
struct SiteTraffic {
    frames: u32,
    packets: u64,
    bytes: u64,
    stalls: u64,
}

impl SiteTraffic {
    fn of(network: &SessionNetwork, number: usize) -> Self {
        let site = &network.nodes[number];
        let now = site.clock.local(network.now());
        let peers = SiteId::first(network.nodes.len()).filter_map(|peer| site.session.peer_stats(now, peer));
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

/// Measurements of a session after the warm-up.
#[derive(Clone, Debug)]
pub struct SessionMeasurements {
    /// Mean frame time, the time between two successive frame starts, at each site, in milliseconds.
    pub mean_frame_ms: Vec<f64>,
    /// Mean absolute deviation of the frame time from its mean at each site, in milliseconds.
    pub deviation_ms: Vec<f64>,
    /// Mean absolute difference between the first two sites' starts of the same frame, in milliseconds.
    pub synchrony_ms: f64,
    /// Longest frame time at any site, in milliseconds.
    pub longest_frame_ms: f64,
    /// Datagrams sent per frame and directed link.
    pub packets_per_frame: f64,
    /// Mean payload of a datagram, in bytes.
    pub bytes_per_packet: f64,
    /// Payload bytes sent per frame and directed link.
    pub bytes_per_frame: f64,
    /// Fraction of frames that had to wait for inputs.
    pub stall_ratio: f64,
    /// Mean latency from a press to its first effect at the same site, by site, in milliseconds.
    pub local_latency_ms: Vec<f64>,
    /// Mean latency from a press to its first effect at the other sites, by pressing site, in milliseconds.
    pub remote_latency_ms: Vec<f64>,
    /// Resimulated frames per 100 fresh ones, by site.
    pub resimulated_per_100: Vec<f64>,
    /// Number of frames confirmed by all sites.
    pub common_frames: usize,
    /// Whether all sites had equal states after all common frames.
    pub states_equal: bool,
    /// Whether every site started the required number of frames.
    pub is_complete: bool,
}

impl SessionMeasurements {
    fn new(log: FrameObservations, traffic: Vec<SiteTraffic>) -> Self {
        let (local_latency_ms, remote_latency_ms) = (
            (0..traffic.len()).map(|site| log.input_latency.mean_latency_ms(site, site)).collect(),
            log.remote_latency_ms(),
        );
        let (resimulated_per_100, is_complete) = (log.resimulated_per_100(), log.is_complete());
        let FrameObservations { frame_starts: starts, state_hashes: hashes, required_starts, .. } = log;
        let times: Vec<Vec<f64>> = starts.iter().map(|starts| frame_times(starts, required_starts)).collect();
        let pairs = starts[0].iter().zip(&starts[1]).take(required_starts);
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
            local_latency_ms,
            remote_latency_ms,
            resimulated_per_100,
            common_frames: frames,
            states_equal: hashes.iter().all(|one| one[..frames] == hashes[0][..frames]),
            is_complete,
        }
    }

    /// Returns the frame rate of the first site, in frames per second.
    pub fn fps(&self) -> f64 {
        1_000.0 / self.mean_frame_ms[0]
    }

    /// Returns the largest mean deviation of the frame time at any site, in milliseconds.
    pub fn worst_deviation_ms(&self) -> f64 {
        self.deviation_ms.iter().copied().fold(0.0, f64::max)
    }
}

fn frame_times(starts: &[Instant], limit: usize) -> Vec<f64> {
    let starts = &starts[..starts.len().min(limit)];
    starts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis_f64()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the papers' "average deviation": the mean absolute difference from the mean.
fn mean_abs_deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).abs()).sum::<f64>() / values.len().max(1) as f64
}
