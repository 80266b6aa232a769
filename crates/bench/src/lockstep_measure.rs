//! Measures time, allocations and traffic of all engines in lockstep, in turns.

use std::time::Instant;

use coplay_bench::allocation_counter::allocations;
use coplay_bench::coplay_lockstep::{self, WakePolicy};
use coplay_bench::ggrs_lockstep::{self, MessageEncoding, PollPolicy};
use coplay_bench::without_engine;
use coplay_bench::workload::{Engine, Inputs, Traffic};

/// Warm-up before the measurement, in frames.
pub(crate) const WARM_UP_FRAMES: u32 = 600;
/// Seed of all inputs.
const SEED: u64 = 1;

/// An engine and the way it is driven, or the host program without an engine (`Driver`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredEngine {
    Driver,
    Coplay(WakePolicy),
    Ggrs(MessageEncoding, PollPolicy),
}

impl MeasuredEngine {
    /// Everything that is measured: first the driver, whose cost is subtracted, then coplay, then ggrs.
    pub(crate) const ALL: [Self; 6] = [
        Self::Driver,
        Self::Coplay(WakePolicy::Frames),
        Self::Coplay(WakePolicy::Datagrams),
        Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Once),
        Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Twice),
        Self::Ggrs(MessageEncoding::Messages, PollPolicy::Once),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Coplay(WakePolicy::Frames) => "coplay",
            Self::Coplay(WakePolicy::Datagrams) => "coplay-woken",
            Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Once) => "ggrs",
            Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Twice) => "ggrs-polled",
            Self::Ggrs(MessageEncoding::Messages, PollPolicy::Once) => "ggrs-unencoded",
            Self::Ggrs(MessageEncoding::Messages, PollPolicy::Twice) => "ggrs-unencoded-polled",
        }
    }

    /// Describes how the engine is driven.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Driver => "no engine: per frame, the queues, one clock reading, inputs and machine",
            Self::Coplay(WakePolicy::Frames) => "woken once per frame, as ggrs is",
            Self::Coplay(WakePolicy::Datagrams) => "woken once per frame and by every datagram",
            Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Once) => {
                "advance_frame, with the encoding of ggrs's UDP socket"
            }
            Self::Ggrs(MessageEncoding::Bytes, PollPolicy::Twice) => {
                "poll_remote_clients, then advance_frame, as in ggrs's examples"
            }
            Self::Ggrs(MessageEncoding::Messages, PollPolicy::Once) => {
                "advance_frame, with messages passed without encoding"
            }
            Self::Ggrs(MessageEncoding::Messages, PollPolicy::Twice) => "both calls, without encoding",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Runs this many frames after a warm-up and discards the measurements.
    pub(crate) fn run_once(self, sites: usize, frames: u32) {
        self.measure(sites, frames);
    }

    fn measure(self, sites: usize, frames: u32) -> RunSample {
        let inputs = Inputs::new(SEED, sites);
        match self {
            Self::Driver => measure_engine(without_engine::EnginelessGroup::new(sites, inputs), frames),
            Self::Coplay(waking) => measure_engine(coplay_lockstep::CoplayGroup::new(sites, inputs, waking), frames),
            Self::Ggrs(passing, polling) => {
                measure_engine(ggrs_lockstep::GgrsGroup::new(sites, inputs, passing, polling), frames)
            }
        }
    }
}

/// Measurements of one run, all sites together.
struct RunSample {
    nanos: u64,
    allocations: u64,
    traffic: Traffic,
    states: Vec<u64>,
}

fn measure_engine(mut engine: impl Engine, frames: u32) -> RunSample {
    engine.run(WARM_UP_FRAMES);
    let (traffic, allocated, began) = (engine.traffic(), allocations(), Instant::now());
    engine.run(frames);
    let nanos = began.elapsed().as_nanos() as u64;
    RunSample {
        nanos,
        allocations: allocations() - allocated,
        traffic: engine.traffic().since(traffic),
        states: engine.states(),
    }
}

/// Cost of an engine and its driver, per frame and site. Traffic is per frame and link (one direction between two
/// sites).
pub(crate) struct LockstepRow {
    pub(crate) subject: MeasuredEngine,
    /// Nanoseconds per frame and site, one value per round, in ascending order.
    pub(crate) nanos: Vec<f64>,
    pub(crate) instructions: Option<f64>,
    pub(crate) allocations: f64,
    pub(crate) bytes_per_link: f64,
    pub(crate) datagrams_per_link: f64,
}

impl LockstepRow {
    pub(crate) fn median_nanos(&self) -> f64 {
        self.nanos[self.nanos.len() / 2]
    }
}

/// Measures all engines in turns, round after round, and asserts that the sites of all engines end in the same state.
pub(crate) fn measure_rounds(sites: usize, frames: u32, rounds: usize) -> Vec<LockstepRow> {
    let mut samples: Vec<Vec<RunSample>> = MeasuredEngine::ALL.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 1..=rounds {
        eprintln!("{sites} sites: round {round} of {rounds}");
        for (samples, subject) in samples.iter_mut().zip(MeasuredEngine::ALL) {
            samples.push(subject.measure(sites, frames));
        }
    }
    let states = vec![samples[0][0].states[0]; sites];
    assert!(samples.iter().flatten().all(|sample| sample.states == states), "the sites' states differ");
    MeasuredEngine::ALL
        .into_iter()
        .zip(samples)
        .map(|(subject, samples)| row(subject, sites, frames, &samples))
        .collect()
}

fn row(subject: MeasuredEngine, sites: usize, frames: u32, samples: &[RunSample]) -> LockstepRow {
    let steps = f64::from(frames) * sites as f64;
    let mut nanos: Vec<f64> = samples.iter().map(|sample| sample.nanos as f64 / steps).collect();
    nanos.sort_by(f64::total_cmp);
    let mean = |value: fn(&RunSample) -> u64| {
        samples.iter().map(|sample| value(sample) as f64).sum::<f64>() / samples.len() as f64 / steps
    };
    let links = (sites - 1) as f64;
    LockstepRow {
        subject,
        nanos,
        instructions: None,
        allocations: mean(|sample| sample.allocations),
        bytes_per_link: mean(|sample| sample.traffic.bytes) / links,
        datagrams_per_link: mean(|sample| sample.traffic.datagrams) / links,
    }
}
