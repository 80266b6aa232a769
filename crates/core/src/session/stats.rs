//! Numbers for a net graph.

use crate::frame::Frame;
use crate::time::TimeDelta;

/// A session in numbers, since its start unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// The next frame to be stepped.
    pub frame: Frame,
    /// Local lag, in frames.
    pub input_delay: u32,
    /// How many frames may be guessed.
    pub prediction_window: u32,
    /// The time from one frame to the next as things are.
    pub period: TimeDelta,
    /// Frames that had to wait for inputs.
    pub stalls: u64,
    /// The time spent waiting for inputs.
    pub stall_time: TimeDelta,
    /// Everything before this frame is stepped with the inputs that all sites gave.
    pub confirmed: Frame,
    /// How often all sites paused because inputs were about to run out.
    pub pauses: u64,
    /// How often the past was repaired.
    pub rollbacks: u64,
    /// Frames that were stepped once more for that.
    pub resimulated: u64,
    /// States that were kept.
    pub saves: u64,
    /// Certain frames that were not asked for in time with [`Session::poll_certain`](super::Session::poll_certain), and skipped there.
    pub skipped_confirmed: u64,
    /// Datagrams dropped, by reason.
    pub dropped_datagrams: DroppedDatagrams,
}

/// Datagrams that were of no use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedDatagrams {
    /// Not a message.
    pub malformed: u64,
    /// From nobody we know, or of another session.
    pub strangers: u64,
    /// Ticks before we know when the game starts.
    pub early: u64,
    /// Inputs that cannot be, or cannot be decoded any more.
    pub inputs: u64,
}

impl DroppedDatagrams {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.malformed + self.strangers + self.early + self.inputs
    }
}

/// The link to one peer in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerStats {
    /// Smoothed round-trip time.
    pub rtt: TimeDelta,
    /// The least round-trip time of late.
    pub rtt_min: TimeDelta,
    /// Mean deviation of the round-trip time.
    pub jitter: TimeDelta,
    /// The part of its packets that did not arrive of late, 0 to 1.
    pub loss: f32,
    /// How much earlier than we the peer begins the same frame.
    pub lead: TimeDelta,
    /// Frames of our input that it has not acknowledged.
    pub unacknowledged: u32,
    /// Frames of its input that are here and not played yet; less than 0 where they are guessed.
    pub buffered_frames: i64,
    /// How often it asked for inputs that it misses, and how many stretches of them it was given.
    pub resend_requests: u64,
    /// See [`PeerStats::pending_requests`].
    pub resends: u64,
    /// How long ago it was heard.
    pub silence: TimeDelta,
    /// States that were compared with ours.
    pub compared: u64,
    /// Those of them that differed.
    pub mismatches: u64,
    /// Datagrams sent to it.
    pub packets_out: u64,
    /// Bytes of payload sent to it.
    pub bytes_out: u64,
    /// Datagrams received from it.
    pub packets_in: u64,
    /// Bytes of payload received from it.
    pub bytes_in: u64,
}

/// Counts which of a peer's packets arrived, by the frame that each one ends with.
#[derive(Debug, Default)]
pub(super) struct LossMeter {
    newest: Option<Frame>,
    seen: [u64; 4],
    expected: u32,
    arrived: u32,
    loss: f32,
}

/// Packets looked at before the loss is told anew.
const LOSS_AVERAGING_WINDOW: u32 = 120;

impl LossMeter {
    #[inline]
    pub(super) fn on_packet(&mut self, end: Frame) {
        let Some(newest) = self.newest else {
            self.newest = Some(end);
            return;
        };
        let ahead = end - newest;
        if ahead == 1 {
            self.mark(end, true);
            self.newest = Some(end);
            self.expected += 1;
            self.arrived += 1;
            return self.update_loss();
        }
        if ahead > 0 {
            for step in 1..=ahead.min(256) {
                self.mark(newest + step as u32, false);
            }
            self.newest = Some(end);
            self.expected += ahead.min(256) as u32;
            self.update_loss();
        }
        if ahead > -256 && ahead != 0 && !self.mark(end, true) {
            self.arrived += 1;
        }
    }

    /// Sets whether the packet of a frame was seen and returns whether it was before.
    fn mark(&mut self, frame: Frame, seen: bool) -> bool {
        let bit = frame.number() % 256;
        let word = &mut self.seen[bit as usize / 64];
        let before = *word >> (bit % 64) & 1 != 0;
        *word = *word & !(1 << (bit % 64)) | u64::from(seen) << (bit % 64);
        before
    }

    fn update_loss(&mut self) {
        if self.expected >= LOSS_AVERAGING_WINDOW {
            self.loss = (1.0 - self.arrived as f32 / self.expected as f32).clamp(0.0, 1.0);
            (self.expected, self.arrived) = (0, 0);
        }
    }

    pub(super) fn loss(&self) -> f32 {
        self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_excludes_late_and_duplicate_packets() {
        let mut meter = LossMeter::default();
        for frame in 0..1_000u32 {
            match frame % 5 {
                0 => {}
                1 => {
                    meter.on_packet(Frame::new(frame + 1));
                    meter.on_packet(Frame::new(frame));
                    meter.on_packet(Frame::new(frame));
                }
                2 => {}
                _ => meter.on_packet(Frame::new(frame)),
            }
        }
        assert!((meter.loss() - 0.2).abs() < 0.02, "{}", meter.loss());
    }
}
