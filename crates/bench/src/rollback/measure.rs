//! Measurements of one engine under one set of conditions.

use coplay::time::{Instant, TimeDelta};

use super::host_program::{BenchHost, SiteFrameTotals};
use super::host_replay::HostReplay;
use super::machine::RollbackMachine;
use super::network::{RollbackNetwork, RollbackSite};
use super::required_resimulation::effective_input;
use super::{BenchCase, FRAME_PERIOD};
use crate::stopwatch::EngineCost;
use crate::workload::{Inputs, Traffic};

/// Warm-up in virtual time before the measurement, in which the sites connect.
pub const WARM_UP: TimeDelta = TimeDelta::from_secs(15);
/// Length of a measured span in virtual seconds, which equals coplay's longest interval between two fits of a clock.
pub const SPAN_SECONDS: u32 = 10;

/// Results of one engine. A tick is a sixtieth of a virtual second; a link is one direction between two sites.
#[derive(Clone, Debug)]
pub struct RollbackResult {
    /// Nanoseconds in the engine per frame and site, for every span.
    pub engine_nanos: Vec<f64>,
    /// Allocations of the engine per tick and site.
    pub allocations: f64,
    /// Datagrams per tick and link.
    pub datagrams: f64,
    /// Payload bytes per tick and link.
    pub bytes: f64,
    /// Resimulated frames per 100 frames.
    pub resimulated: f64,
    /// Frames that any engine had to resimulate, per 100 frames.
    pub required_resimulated: f64,
    /// Ticks without a frame, per 100.
    pub stalls: f64,
    /// Frames per virtual second.
    pub fps: f64,
    /// Difference between the sites with the most and the fewest resimulated frames, in frames per 100.
    pub spread_resimulated: f64,
    /// Difference between the sites with the most and the fewest stepped frames at the end, in frames.
    pub spread_frames: u64,
    /// First error of a site, or first wrong state, either of which makes the results invalid; `None` if there was
    /// none.
    pub error: Option<String>,
}

impl RollbackResult {
    /// Returns the median, over all spans, of the nanoseconds in the engine per frame and site.
    pub fn median_nanos(&self) -> f64 {
        median(self.engine_nanos.iter().copied())
    }
}

/// Counters of all sites of a network at one time.
#[derive(Clone, Debug)]
struct Counts {
    frame_counts: Vec<SiteFrameTotals>,
    traffic: Traffic,
    engine_cost: EngineCost,
}

impl Counts {
    fn of<S: RollbackSite>(network: &RollbackNetwork<S>) -> Self {
        let counts = network.hosts().iter().map(BenchHost::counts).collect();
        Self { frame_counts: counts, traffic: network.traffic(), engine_cost: network.engine_cost() }
    }

    fn frames(&self) -> u64 {
        self.frame_counts.iter().map(|counts| counts.frames).sum()
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            frame_counts: self
                .frame_counts
                .iter()
                .zip(&before.frame_counts)
                .map(|(counts, before)| counts.since(*before))
                .collect(),
            traffic: self.traffic.since(before.traffic),
            engine_cost: self.engine_cost.since(before.engine_cost),
        }
    }
}

/// An engine under measurement, with its network and the replay of its host programs.
pub struct MeasuredRun<S> {
    case: BenchCase,
    network: RollbackNetwork<S>,
    replay: HostReplay,
    measured_from: Instant,
    /// Counters at the start and at the end of every span so far.
    counters: Vec<Counts>,
    engine_nanos: Vec<f64>,
}

impl<S: RollbackSite> MeasuredRun<S> {
    /// Creates the network and runs the warm-up.
    pub fn new(case: BenchCase) -> Self {
        let mut network = RollbackNetwork::new(case);
        let measured_from = Instant::ZERO + WARM_UP;
        network.run_until(measured_from);
        network.start_recording();
        let counters = vec![Counts::of(&network)];
        Self { case, network, replay: HostReplay::new(&case), measured_from, counters, engine_nanos: Vec::new() }
    }

    /// Measures one span, and right afterwards the replay of its host programs. `nanos_per_count` is the duration of
    /// one count of the stopwatch.
    pub fn measure_span(&mut self, nanos_per_count: f64) {
        let Self { network, replay, counters, engine_nanos, .. } = self;
        network.run_until(network.now() + TimeDelta::from_secs(SPAN_SECONDS.into()));
        counters.push(Counts::of(network));
        let host = replay.run(&network.take_trace());
        let span = counters[counters.len() - 1].since(&counters[counters.len() - 2]);
        let engine = span.engine_cost.clock_counts as f64 - host.clock_counts as f64;
        engine_nanos.push(engine / span.frames() as f64 * nanos_per_count);
    }

    /// Ends the measurement, checks all confirmed states and returns the results.
    pub fn into_result(self) -> RollbackResult {
        let Self { case, network, measured_from, counters, engine_nanos, .. } = self;
        let (first, last) = (&counters[0], &counters[counters.len() - 1]);
        let (all, time) = (last.since(first), network.now() - measured_from);
        let (ticks, frames) = (time.as_nanos() as f64 / FRAME_PERIOD.as_nanos() as f64, all.frames() as f64);
        let (sites, links) = (case.sites as f64, case.link_count() as f64);
        let sum = |value: fn(&SiteFrameTotals) -> u64| all.frame_counts.iter().map(value).sum::<u64>() as f64;
        let resimulated =
            all.frame_counts.iter().map(|counts| 100.0 * counts.resimulated as f64 / counts.frames as f64);
        RollbackResult {
            engine_nanos,
            allocations: all.engine_cost.allocations as f64 / ticks / sites,
            datagrams: all.traffic.datagrams as f64 / ticks / links,
            bytes: all.traffic.bytes as f64 / ticks / links,
            resimulated: 100.0 * sum(|counts| counts.resimulated) / frames,
            required_resimulated: 100.0 * sum(|counts| counts.required_resimulated) / frames,
            stalls: 100.0 * sum(|counts| counts.stalls) / ticks / sites,
            fps: frames / sites / time.as_secs_f64(),
            spread_resimulated: spread(resimulated),
            spread_frames: spread(last.frame_counts.iter().map(|counts| counts.frames as f64)) as u64,
            error: network.first_error().or_else(|| find_wrong_state(&network, case)),
        }
    }
}

/// Returns the upper median of the values, of which there must be at least one.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
}

/// Names the first site whose state is wrong after a confirmed frame, and the first such frame; `None` if there is
/// none. A state is wrong if it differs from the one that the inputs lead to.
pub fn find_wrong_state<S: RollbackSite>(network: &RollbackNetwork<S>, case: BenchCase) -> Option<String> {
    let expected = expected_digests(case, network.confirmed_frames());
    let wrong =
        |host: &BenchHost| host.digests().iter().zip(&expected).position(|(actual, expected)| actual != expected);
    let mut found = network.hosts().iter().enumerate();
    found.find_map(|(site, host)| wrong(host).map(|frame| format!("site {site}: wrong state after frame {frame}")))
}

/// Computes the right digest after each of the first `frames` frames.
fn expected_digests(case: BenchCase, frames: usize) -> Vec<u64> {
    let inputs = Inputs::new(case.seed, case.sites);
    let mut machine = RollbackMachine::NEW;
    let mut digest = |frame| {
        machine.step((0..case.sites).map(|player| effective_input(&inputs, player, frame, case.input_delay)));
        machine.digest()
    };
    (0..frames as u32).map(&mut digest).collect()
}
