//! Statistics of a session and its links, for a net graph.

use crate::frame::Frame;
use crate::time::TimeDelta;

/// Statistics of a session, counted since its start unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// The next frame to be stepped for the first time.
    pub frame: Frame,
    /// Input delay in force, in frames.
    pub input_delay: u32,
    /// Prediction window in force, in frames.
    pub prediction_window: u32,
    /// Current time between two frames. It is longer than the nominal period where a link limits the frame rate.
    pub period: TimeDelta,
    /// Number of frames that had to wait for inputs and are stepped by now.
    pub stalls: u64,
    /// Total time, from the start to the step, of the frames that had to wait for inputs and are stepped by now.
    pub stall_time: TimeDelta,
    /// End of the confirmed frames: all earlier frames were stepped with the inputs that all sites gave.
    pub confirmed: Frame,
    /// Number of pauses of all sites, by [`StarvationPolicy::Pause`](super::StarvationPolicy::Pause), that this site
    /// began or joined.
    pub pauses: u64,
    /// Number of rollbacks, each over one or more frames.
    pub rollbacks: u64,
    /// Number of frames stepped again in rollbacks.
    pub resimulated: u64,
    /// Number of states saved for rollbacks, without those for desync searches.
    pub saves: u64,
    /// Number of confirmed frames that [`Session::poll_confirmed`](super::Session::poll_confirmed) skipped because it
    /// was called too late.
    pub skipped_confirmed: u64,
    /// Number of dropped datagrams and inputs, by reason.
    pub dropped_datagrams: DroppedDatagrams,
}

/// Number of dropped datagrams and inputs, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DroppedDatagrams {
    /// Datagrams that are not a valid message, except hellos of another protocol version and datagrams of the feed
    /// protocol.
    pub malformed: u64,
    /// Datagrams from an unknown sender, of another session or an earlier incarnation, or with the number of another
    /// site than the sender's; feed datagrams at a site that neither has nor downloads a feed; and messages of a desync
    /// search in which this site or the sender takes no part.
    pub strangers: u64,
    /// Ticks that arrived before this site knew the start of the game or, if it joins late, before it was admitted.
    pub early: u64,
    /// Ranges of inputs that are malformed, out of range, or encoded as changes of an input that is not kept, and
    /// impossible acknowledgements.
    pub inputs: u64,
}

impl DroppedDatagrams {
    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.malformed + self.strangers + self.early + self.inputs
    }
}

/// Statistics of the link to one peer, counted since the start of the session unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeerStats {
    /// Smoothed round-trip time; zero before the first measurement.
    pub rtt: TimeDelta,
    /// Minimum round-trip time of about the last 40 s; zero before the first measurement.
    pub rtt_min: TimeDelta,
    /// Smoothed mean deviation of the round-trip time.
    pub jitter: TimeDelta,
    /// Fraction of the peer's ticks that did not arrive here, 0 to 1, in the last complete measurement over at least
    /// 120 expected ticks; 0 before the first.
    pub loss: f32,
    /// Time from the peer's planned start of a frame to this site's start of the same frame (its planned start, if that
    /// frame has not begun), by the newest clock probe; negative if this site is earlier.
    pub lead: TimeDelta,
    /// Number of frames of this site's input that the peer has not acknowledged.
    pub unacknowledged: u32,
    /// Number of frames of the peer's input that are received and not yet stepped; negative if that many were
    /// predicted. For a peer that gives no more inputs, the number has no meaning.
    pub buffered_frames: i64,
    /// Number of packets in which the peer requested missing inputs, since the peer or this site took its seat.
    pub resend_requests: u64,
    /// Number of ranges of inputs that were resent at the peer's request, since the peer or this site took its seat.
    pub resends: u64,
    /// Time since the last tick or hello from the peer; only ticks count once the peer has played.
    pub silence: TimeDelta,
    /// Number of the peer's state hashes that were compared with this site's since the peer or this site took its seat.
    pub compared: u64,
    /// Number of the peer's state hashes that differed from this site's, since the peer or this site took its seat.
    pub mismatches: u64,
    /// Number of ticks and hellos sent to the peer.
    pub packets_out: u64,
    /// Total size of the ticks and hellos sent to the peer, in bytes.
    pub bytes_out: u64,
    /// Number of ticks and hellos received from the peer.
    pub packets_in: u64,
    /// Total size of the ticks and hellos received from the peer, in bytes.
    pub bytes_in: u64,
}

/// Measures the loss of packets from one peer. A packet is identified by the end of its inputs.
#[derive(Debug, Default)]
pub(super) struct LossMeter {
    newest: Option<Frame>,
    seen: [u64; 4],
    expected: u32,
    arrived: u32,
    loss: f32,
}

/// Minimum number of expected packets per measurement of the loss.
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

    /// Records whether the packet whose inputs end before `frame` was received. Returns the value recorded before.
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
