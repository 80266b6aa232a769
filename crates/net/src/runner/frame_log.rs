//! Measurements of a run: a CSV line per step, and statistics at the end.

use std::io::{self, Write};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::{PeerStats, Stats};
use coplay::time::{Instant, TimeDelta};

use crate::transport::DropCounts;

/// CSV log with a line per step of the machine: frame, start in nanoseconds, resimulation flag, inputs, state hash. At
/// a player the flag is set for every step that is not shown: resimulated, replayed for a desync search, or stepped
/// only to catch up. At a spectator it is never set.
pub struct FrameLog {
    out: Box<dyn Write + Send>,
}

impl FrameLog {
    /// Creates a log that writes to `out`, and writes its CSV header.
    pub fn new(mut out: Box<dyn Write + Send>) -> io::Result<Self> {
        writeln!(out, "frame,start_ns,resim,inputs,hash")?;
        Ok(Self { out })
    }

    /// Logs one step. `start` is the start of the step on the clock of [`clock::now`](crate::clock::now).
    pub(super) fn write_step(
        &mut self,
        frame: Frame,
        start: Instant,
        resim: bool,
        inputs: &[InputWord],
        hash: Option<u64>,
    ) {
        let inputs: Vec<String> = inputs.iter().map(|word| format!("{word:x}")).collect();
        let hash = hash.map_or_else(String::new, |hash| format!("{hash:016x}"));
        let (start, resim, inputs) = (start.as_nanos(), u8::from(resim), inputs.join(":"));
        // A full disk must not stop the game.
        let _ = writeln!(self.out, "{frame},{start},{resim},{inputs},{hash}");
    }

    pub(super) fn finish(&mut self) {
        let _ = self.out.flush();
    }
}

/// Statistics of a run, measured at this site. Frame intervals are those between shown frames, measured from the 61st
/// shown frame on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunStats {
    /// Number of frames shown.
    pub frames: u64,
    /// Frames shown per second, from the first to the last measured frame.
    pub fps: f64,
    /// Mean absolute deviation of the frame interval from the machine's frame period, in milliseconds.
    pub deviation_ms: f64,
    /// Longest frame interval, in milliseconds.
    pub longest_ms: f64,
    /// Statistics of the session; a spectator sets only the frame numbers.
    pub session: Stats,
    /// Link statistics of every peer of the session, by site number; empty at a spectator.
    pub peers: Vec<(u8, PeerStats)>,
    /// Counts of received datagrams that the transport has not delivered, since its creation.
    pub drops: DropCounts,
}

impl RunStats {
    /// Encodes the statistics as one JSON object. Outside of `peers`, packets and bytes are those sent to all peers;
    /// round-trip time, jitter and loss are each the maximum over the peers.
    pub fn to_json(&self) -> String {
        let peer = |(site, peer): &(u8, PeerStats)| {
            format!(
                "{{\"site\":{site},\"rtt_ms\":{:.3},\"jitter_ms\":{:.3},\"loss\":{:.4},\"packets_out\":{},\"bytes_out\":{},\"packets_in\":{},\"bytes_in\":{},\"mismatches\":{}}}",
                peer.rtt.as_millis_f64(),
                peer.jitter.as_millis_f64(),
                peer.loss,
                peer.packets_out,
                peer.bytes_out,
                peer.packets_in,
                peer.bytes_in,
                peer.mismatches
            )
        };
        let peers: Vec<String> = self.peers.iter().map(peer).collect();
        let sum = |of: fn(&PeerStats) -> u64| self.peers.iter().map(|(_, peer)| of(peer)).sum::<u64>();
        let worst = |of: fn(&PeerStats) -> f64| self.peers.iter().map(|(_, peer)| of(peer)).fold(0.0, f64::max);
        format!(
            "{{\"frames\":{},\"fps\":{:.4},\"deviation_ms\":{:.4},\"longest_ms\":{:.3},\"rtt_ms\":{:.3},\"jitter_ms\":{:.3},\"loss\":{:.4},\"stalls\":{},\"stalled_ms\":{:.3},\"repairs\":{},\"resimulated\":{},\"packets\":{},\"bytes\":{},\"lag\":{},\"refused\":{{\"by_us\":{},\"by_system\":{},\"crowded_out\":{}}},\"peers\":[{}]}}",
            self.frames,
            self.fps,
            self.deviation_ms,
            self.longest_ms,
            worst(|peer| peer.rtt.as_millis_f64()),
            worst(|peer| peer.jitter.as_millis_f64()),
            worst(|peer| f64::from(peer.loss)),
            self.session.stalls,
            self.session.stall_time.as_millis_f64(),
            self.session.rollbacks,
            self.session.resimulated,
            sum(|peer| peer.packets_out),
            sum(|peer| peer.bytes_out),
            self.session.input_delay,
            self.drops.rejected,
            self.drops.kernel_dropped,
            self.drops.queue_full,
            peers.join(",")
        )
    }
}

/// Meter of the intervals between shown frames.
#[derive(Debug, Default)]
pub(super) struct FrameIntervalMeter {
    first_frame_at: Option<Instant>,
    last_frame_at: Option<Instant>,
    frames: u64,
    /// Sum of absolute deviations from the period, in nanoseconds.
    deviation_sum: f64,
    longest_interval: TimeDelta,
    /// Start times of the frames shown in the second that ends with the last one.
    recent_frames: std::collections::VecDeque<Instant>,
}

/// Number of initial frames that are not measured, while the pacing settles.
const WARM_UP_FRAMES: u64 = 60;

impl FrameIntervalMeter {
    pub(super) fn on_frame(&mut self, at: Instant, period: TimeDelta) {
        self.frames += 1;
        self.recent_frames.push_back(at);
        while self.recent_frames.front().is_some_and(|first| at - *first > TimeDelta::from_secs(1)) {
            self.recent_frames.pop_front();
        }
        if self.frames <= WARM_UP_FRAMES {
            return;
        }
        if let Some(last) = self.last_frame_at {
            let took = at - last;
            self.deviation_sum += (took - period).as_nanos().abs() as f64;
            self.longest_interval = self.longest_interval.max(took);
        }
        self.first_frame_at.get_or_insert(at);
        self.last_frame_at = Some(at);
    }

    pub(super) fn fps(&self) -> f64 {
        self.recent_frames.len() as f64
    }

    pub(super) fn run_stats(&self, stats: Stats, peers: Vec<(u8, PeerStats)>, drops: DropCounts) -> RunStats {
        let counted = self.frames.saturating_sub(WARM_UP_FRAMES + 1).max(1) as f64;
        let seconds = match (self.first_frame_at, self.last_frame_at) {
            (Some(first), Some(last)) => (last - first).as_secs_f64(),
            _ => 0.0,
        };
        RunStats {
            frames: self.frames,
            fps: if seconds > 0.0 { counted / seconds } else { 0.0 },
            deviation_ms: self.deviation_sum / counted / 1e6,
            longest_ms: self.longest_interval.as_millis_f64(),
            session: stats,
            peers,
            drops,
        }
    }
}
