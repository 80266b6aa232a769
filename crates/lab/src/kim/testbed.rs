//! The testbed of most experiments of this paper: a simulated session of two sites, whose buffers, packets and pauses
//! are recorded over time.

use coplay::id::SiteId;
use coplay::input::Recovery;
use coplay::session::message::SessionMessage;
use coplay::session::{Event, StarvationPolicy};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;
use coplay_sim::session_experiment::SessionExperiment as Game;
use coplay_sim::session_network::{SessionNetwork, SiteEvent};

use crate::numbers::lossy_link;

/// One-way delay of the link, in milliseconds.
pub const ONE_WAY_DELAY_MS: f64 = 65.0;
/// Interval between two samples of the buffers.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(4);
/// Maximum number of packets captured per sample interval; more than the sites send in it.
const MAX_CAPTURED_PACKETS: usize = 1_000;
/// Duration of the warm-up, which begins when both sites have confirmed a frame.
const WARM_UP: TimeDelta = TimeDelta::from_secs(3);

/// A simulated session of two sites with the jitter buffers of the paper.
#[derive(Clone, Debug)]
pub struct Testbed {
    /// Settings of the simulated session.
    pub game: Game,
    /// Measurement time after the warm-up.
    pub duration: TimeDelta,
    /// Changes of the links during the run: time after the warm-up, sending site, and the new configuration of its
    /// outgoing link.
    pub link_changes: Vec<(TimeDelta, usize, LinkConfig)>,
    /// Clock error of the second site in ppm, positive if its clock runs fast; `None` for a random error.
    pub skew_ppm: Option<f64>,
}

/// Measurements of one run. Times are in seconds after the warm-up.
#[derive(Clone, Debug, Default)]
pub struct TestbedTrace {
    /// Buffer level of each site over time: time, and buffered frames of the other site's inputs.
    pub buffers: [Vec<(f64, f64)>; 2],
    /// All ticks that both sites sent after the warm-up.
    pub packets: Vec<TracedPacket>,
    /// Time and duration of each pause, as reported by the first site.
    pub pauses: Vec<(f64, f64)>,
    /// Frames stepped by each site after the warm-up.
    pub frames: [u32; 2],
    /// Frames that stalled for inputs, both sites together.
    pub stalled_frames: u64,
    /// Total stall time of both sites, in seconds.
    pub stalled_s: f64,
    /// Duration of the measurement, in seconds.
    pub seconds: f64,
    /// Whether both sites had equal states after all frames that both confirmed, at least one.
    pub states_equal: bool,
}

/// A captured tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TracedPacket {
    /// Send time, in seconds after the warm-up.
    pub at_s: f64,
    /// Index of the sending site.
    pub from: usize,
    /// Payload size in bytes.
    pub bytes: usize,
    /// Whether the packet requests lost inputs.
    pub has_request: bool,
    /// Whether the packet resends requested inputs.
    pub has_answer: bool,
}

impl Testbed {
    /// Creates a testbed with an input delay of `delay_frames`, which is the paper's initial delay, with history
    /// recovery, and with a pause of all sites when a buffer starves. The links have a constant one-way delay of 65 ms
    /// and lose the fraction `loss` of all packets. Without jitter, the paper's send interval (equation 3) is one
    /// frame.
    pub fn new(seed: u64, delay_frames: u32, loss: f64) -> Self {
        let game = Game {
            seed,
            input_delay: delay_frames,
            recovery: Recovery::History,
            starvation: StarvationPolicy::Pause,
            ..Game::new(lossy_link(2.0 * ONE_WAY_DELAY_MS, loss))
        };
        Self { game, duration: TimeDelta::from_secs(60), link_changes: Vec::new(), skew_ppm: None }
    }

    /// Runs the session and records the trace.
    pub fn run(&self) -> TestbedTrace {
        let mut network = self.game.build_network();
        if let Some(skew_ppm) = self.skew_ppm {
            network.nodes[1].clock.skew_ppm = skew_ppm;
        }
        let mut recorder = TraceRecorder {
            started_at: None,
            hashes: Default::default(),
            trace: TestbedTrace::default(),
            stalled_before: TimeDelta::ZERO,
        };
        let mut changes = self.link_changes.clone();
        while !recorder.is_over(network.now(), self.duration) {
            recorder.advance(&mut network);
            changes.retain(|(at, from, link)| {
                let due = recorder.started_at.is_some_and(|started| network.now() - started >= *at);
                if due {
                    network.link(*from, 1 - *from).set_config(link.clone());
                }
                !due
            });
        }
        recorder.finish(&network)
    }
}

struct TraceRecorder {
    /// End of the warm-up; `None` before.
    started_at: Option<Instant>,
    hashes: [Vec<u64>; 2],
    trace: TestbedTrace,
    /// Stall time of both sites up to the end of the warm-up.
    stalled_before: TimeDelta,
}

/// Time limit for both sites to confirm their first frame.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);

impl TraceRecorder {
    fn is_over(&self, now: Instant, time: TimeDelta) -> bool {
        self.started_at.map_or(now - Instant::ZERO > START_TIMEOUT, |started| now - started >= time)
    }

    fn seconds(&self, at: Instant) -> f64 {
        self.started_at.map_or(0.0, |started| (at - started).as_secs_f64())
    }

    fn advance(&mut self, network: &mut SessionNetwork) {
        network.start_capture(MAX_CAPTURED_PACKETS);
        let until = network.now() + POLL_INTERVAL;
        network.run_until(until, &mut |event| self.on_event(&event));
        if self.started_at.is_none() && self.hashes.iter().all(|hashes| !hashes.is_empty()) {
            self.warm_up(network);
        }
        if self.started_at.is_some() {
            self.sample(network);
        }
    }

    /// Runs the warm-up, and resets the trace at its end.
    fn warm_up(&mut self, network: &mut SessionNetwork) {
        let until = network.now() + WARM_UP;
        network.run_until(until, &mut |event| self.on_event(&event));
        network.start_capture(MAX_CAPTURED_PACKETS);
        self.started_at = Some(network.now());
        self.trace = TestbedTrace::default();
        let stats = [0, 1].map(|site| network.nodes[site].session.stats());
        self.trace.frames = stats.map(|stats| stats.frame.number());
        self.trace.stalled_frames = stats.iter().map(|stats| stats.stalls).sum();
        self.stalled_before = stats.iter().fold(TimeDelta::ZERO, |sum, stats| sum + stats.stall_time);
    }

    fn on_event(&mut self, event: &SiteEvent<'_>) {
        match event {
            SiteEvent::Confirmed { site, hash, .. } => self.hashes[*site].push(*hash),
            SiteEvent::SessionEvent { site: 0, at, event: Event::Paused { duration: hold, .. } } => {
                self.trace.pauses.push((self.seconds(*at), hold.as_secs_f64()));
            }
            _ => {}
        }
    }

    fn sample(&mut self, network: &SessionNetwork) {
        let at_s = self.seconds(network.now());
        for number in 0..2 {
            let site = &network.nodes[number];
            let other = SiteId::first(2).nth(1 - number).expect("there are two sites");
            let stats = site.session.peer_stats(site.clock.local(network.now()), other);
            self.trace.buffers[number].extend(stats.map(|stats| (at_s, stats.buffered_frames as f64)));
        }
        for packet in network.captured() {
            let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&packet.bytes) else { continue };
            self.trace.packets.push(TracedPacket {
                at_s: self.seconds(packet.at),
                from: packet.from,
                bytes: packet.bytes.len(),
                has_request: !tick.missing.is_empty(),
                has_answer: !tick.resends.is_empty(),
            });
        }
    }

    fn finish(mut self, network: &SessionNetwork) -> TestbedTrace {
        let stats = [0, 1].map(|site| network.nodes[site].session.stats());
        let trace = &mut self.trace;
        trace.seconds = self.started_at.map_or(0.0, |started| (network.now() - started).as_secs_f64());
        trace.frames = [0, 1].map(|site| stats[site].frame.number() - trace.frames[site]);
        trace.stalled_frames = stats.iter().map(|stats| stats.stalls).sum::<u64>() - trace.stalled_frames;
        let stalled = stats.iter().fold(TimeDelta::ZERO, |sum, stats| sum + stats.stall_time) - self.stalled_before;
        trace.stalled_s = stalled.as_secs_f64();
        let [one, other] = &self.hashes;
        let both = one.len().min(other.len());
        trace.states_equal = both > 0 && one[..both] == other[..both];
        self.trace
    }
}

impl TestbedTrace {
    /// Returns the mean frame rate of the first site.
    pub fn frames_per_second(&self) -> f64 {
        f64::from(self.frames[0]) / self.seconds.max(1e-9)
    }

    /// Returns the lowest buffer level at either site, in frames.
    pub fn min_buffer(&self) -> f64 {
        crate::numbers::min_or_infinity(self.buffers.iter().flatten().map(|(_, frames)| *frames))
    }

    /// Returns the number of packets that request lost inputs.
    pub fn requests(&self) -> usize {
        self.packets.iter().filter(|packet| packet.has_request).count()
    }

    /// Returns the buffer level of a site in slices of `slice_s` seconds: middle of the slice, minimum, mean and
    /// maximum.
    pub fn summary(&self, site: usize, slice_s: f64) -> Vec<(f64, f64, f64, f64)> {
        let mut summary = Vec::new();
        let mut rest = self.buffers[site].as_slice();
        while let Some((first, _)) = rest.first() {
            let end = ((first / slice_s).floor() + 1.0) * slice_s;
            let count = rest.partition_point(|(at, _)| *at < end).max(1);
            let values: Vec<f64> = rest[..count].iter().map(|(_, frames)| *frames).collect();
            let middle = end - slice_s / 2.0;
            let (min, max) = (
                crate::numbers::min_or_infinity(values.iter().copied()),
                crate::numbers::max_or_zero(values.iter().copied()),
            );
            summary.push((middle, min, crate::numbers::mean(&values), max));
            rest = &rest[count..];
        }
        summary
    }
}
