//! One engine under one set of conditions, in numbers.

use coplay::time::{Instant, TimeDelta};

use super::host_program::{BenchHost, FrameCounts};
use super::host_replay::HostReplay;
use super::machine::RollbackMachine;
use super::network::{RollbackNetwork, RollbackSite};
use super::required_resimulation::effective_input;
use super::{BenchCase, FRAME_PERIOD};
use crate::stopwatch::EngineCost;
use crate::workload::{Inputs, Traffic};

/// Virtual time before anything is measured: sites have to find together first.
pub const WARM_UP: TimeDelta = TimeDelta::from_secs(15);
/// What is measured is measured in spans of this length, in seconds. Our clocks are fitted that often.
pub const SPAN_SECONDS: u32 = 10;

/// What came of it. A tick is a sixtieth of a virtual second; a link is one way between two sites.
#[derive(Clone, Debug)]
pub struct RollbackResult {
    /// Nanoseconds in the engine per frame and site, of every span.
    pub engine_nanos: Vec<f64>,
    /// Allocations per tick and site.
    pub allocations: f64,
    /// Datagrams per tick and link.
    pub datagrams: f64,
    /// Bytes of payload per tick and link.
    pub bytes: f64,
    /// Frames stepped again, per 100 frames.
    pub resimulated: f64,
    /// Frames that had to be stepped again, whatever the engine, per 100 frames.
    pub required_resimulated: f64,
    /// Ticks in which there was no frame, per 100.
    pub stalls: f64,
    /// Frames per virtual second.
    pub fps: f64,
    /// By how much sites differ in frames stepped again, per 100.
    pub spread_resimulated: f64,
    /// By how many frames sites are apart in the end.
    pub spread_frames: u64,
    /// Why this is not worth much, if something went wrong.
    pub error: Option<String>,
}

impl RollbackResult {
    /// Nanoseconds in the engine per frame and site, in the span in the middle.
    pub fn median_nanos(&self) -> f64 {
        median(self.engine_nanos.iter().copied())
    }
}

/// All that is counted in a world.
#[derive(Clone, Debug)]
struct Counts {
    frame_counts: Vec<FrameCounts>,
    traffic: Traffic,
    engine_cost: EngineCost,
}

impl Counts {
    fn of<S: RollbackSite>(world: &RollbackNetwork<S>) -> Self {
        let books = world.hosts().iter().map(BenchHost::counts).collect();
        Self { frame_counts: books, traffic: world.traffic(), engine_cost: world.engine_cost() }
    }

    fn frames(&self) -> u64 {
        self.frame_counts.iter().map(|books| books.frames).sum()
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            frame_counts: self
                .frame_counts
                .iter()
                .zip(&before.frame_counts)
                .map(|(books, before)| books.since(*before))
                .collect(),
            traffic: self.traffic.since(before.traffic),
            engine_cost: self.engine_cost.since(before.engine_cost),
        }
    }
}

/// An engine that plays under measurement.
pub struct MeasuredRun<S> {
    case: BenchCase,
    network: RollbackNetwork<S>,
    replay: HostReplay,
    measured_from: Instant,
    /// At the ends of all spans so far.
    counters: Vec<Counts>,
    engine_nanos: Vec<f64>,
}

impl<S: RollbackSite> MeasuredRun<S> {
    /// Lets an engine warm up.
    pub fn new(case: BenchCase) -> Self {
        let mut world = RollbackNetwork::new(case);
        let began = Instant::ZERO + WARM_UP;
        world.run_until(began);
        world.start_recording();
        let counts = vec![Counts::of(&world)];
        Self {
            case,
            network: world,
            replay: HostReplay::new(&case),
            measured_from: began,
            counters: counts,
            engine_nanos: Vec::new(),
        }
    }

    /// Measures it for one span, and what its host programs do alone, right afterwards.
    pub fn measure_span(&mut self, nanos_per_count: f64) {
        let Self { network: world, replay, counters: counts, engine_nanos: nanos, .. } = self;
        world.run_until(world.now() + TimeDelta::from_secs(SPAN_SECONDS.into()));
        counts.push(Counts::of(world));
        let host = replay.run(&world.take_trace());
        let span = counts[counts.len() - 1].since(&counts[counts.len() - 2]);
        let engine = span.engine_cost.clock_counts as f64 - host.clock_counts as f64;
        nanos.push(engine / span.frames() as f64 * nanos_per_count);
    }

    /// What came of it.
    pub fn into_result(self) -> RollbackResult {
        let Self { case, network: world, measured_from: began, counters: counts, engine_nanos: nanos, .. } = self;
        let (first, last) = (&counts[0], &counts[counts.len() - 1]);
        let (all, time) = (last.since(first), world.now() - began);
        let (ticks, frames) = (time.as_nanos() as f64 / FRAME_PERIOD.as_nanos() as f64, all.frames() as f64);
        let (sites, links) = (case.sites as f64, case.link_count() as f64);
        let sum = |value: fn(&FrameCounts) -> u64| all.frame_counts.iter().map(value).sum::<u64>() as f64;
        let again = all.frame_counts.iter().map(|books| 100.0 * books.resimulated as f64 / books.frames as f64);
        RollbackResult {
            engine_nanos: nanos,
            allocations: all.engine_cost.allocations as f64 / ticks / sites,
            datagrams: all.traffic.datagrams as f64 / ticks / links,
            bytes: all.traffic.bytes as f64 / ticks / links,
            resimulated: 100.0 * sum(|books| books.resimulated) / frames,
            required_resimulated: 100.0 * sum(|books| books.required_resimulated) / frames,
            stalls: 100.0 * sum(|books| books.stalls) / ticks / sites,
            fps: frames / sites / time.as_secs_f64(),
            spread_resimulated: spread(again),
            spread_frames: spread(last.frame_counts.iter().map(|books| books.frames as f64)) as u64,
            error: world.first_error().or_else(|| find_wrong_state(&world, case)),
        }
    }
}

/// The one in the middle.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
}

/// Where the state of a site is not the one that belongs to the inputs, after all frames that nobody guesses any more.
pub fn find_wrong_state<S: RollbackSite>(world: &RollbackNetwork<S>, case: BenchCase) -> Option<String> {
    let truth = expected_digests(case, world.confirmed_frames());
    let wrong = |host: &BenchHost| host.digests().iter().zip(&truth).position(|(is, should)| is != should);
    let mut found = world.hosts().iter().enumerate();
    found.find_map(|(site, host)| wrong(host).map(|frame| format!("site {site}: a wrong state after frame {frame}")))
}

/// The state after every frame, in one number each, as it must be.
fn expected_digests(case: BenchCase, frames: usize) -> Vec<u64> {
    let inputs = Inputs::new(case.seed, case.sites);
    let mut machine = RollbackMachine::NEW;
    let mut digest = |frame| {
        machine.step((0..case.sites).map(|player| effective_input(&inputs, player, frame, case.input_delay)));
        machine.digest()
    };
    (0..frames as u32).map(&mut digest).collect()
}
