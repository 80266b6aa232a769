//! Buffers of inputs, as in Kim and Park: how often packets leave, how much is buffered, and what is done when a buffer runs low.
//!
//! The buffer of a peer's inputs is what is here of them and not played yet; on a line that is always the same it holds the lag less the way.
//! A lost packet lets it shrink until what was lost has come again. Where it would run out, the site that sees it coming asks for a
//! [pause](super::StarvationPolicy::GroupPause): nobody begins the frame at hand before the same instant, which is given in group time. Nothing that sites must agree
//! on is concerned, so no vote is needed: who does not hear of it waits for inputs a little later.

use super::event::Event;
use super::peer::Peer;
use super::settings::StarvationPolicy;
use super::{Phase, Session};
use crate::clock::Clock;
use crate::input::Recovery;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::PauseRequest;

/// The longest pause.
const MAX_PAUSE: TimeDelta = TimeDelta::from_secs(1);
/// After a pause there is none for so long: where it did not help, another would not.
const MIN_PAUSE_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Round-trip times are seldom further from the mean than so many mean deviations.
const JITTER_DEVIATIONS: i64 = 4;

/// What Kim and Park compute from the round-trip times of a line: equations 3 to 5, with sizes in commands, of which one is sent per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterBufferModel {
    /// The time from one frame to the next.
    pub period: TimeDelta,
    /// How long commands are delayed: the lag.
    pub input_delay: TimeDelta,
    /// The longest round trip.
    pub rtt_max: TimeDelta,
    /// The shortest.
    pub rtt_min: TimeDelta,
}

impl JitterBufferModel {
    fn new(period: TimeDelta, lag: u32, clock: &Clock) -> Self {
        let rtt = clock.rtt().unwrap_or_default();
        let rtt_min = clock.rtt_min().unwrap_or(rtt).min(rtt);
        Self {
            period,
            input_delay: period * i64::from(lag),
            rtt_max: rtt + clock.jitter() * JITTER_DEVIATIONS,
            rtt_min,
        }
    }

    /// The time from one packet to the next (equation 3): no shorter than delays vary, and no shorter than a frame. Where delays vary by
    /// more than half of what commands are delayed, packets must not be as far apart.
    pub fn send_interval(&self) -> TimeDelta {
        ((self.rtt_max - self.rtt_min) / 2).min(self.input_delay / 2).max(self.period)
    }

    /// How many commands can be in a buffer at first (equation 4).
    pub fn initial_size(&self) -> i64 {
        self.commands_in(self.input_delay + self.rtt_max)
    }

    /// How many are in it when the sites have just paused (equation 5).
    pub fn size_after_pause(&self) -> i64 {
        self.commands_in(self.input_delay - self.rtt_max / 2)
    }

    /// Whether a pause can leave anything in a buffer: where the way is longer than commands are delayed, the next one is always late.
    pub fn is_pause_useful(&self) -> bool {
        self.input_delay > self.rtt_min / 2
    }

    /// As many commands as are sent in this time, and at least one.
    fn commands_in(&self, time: TimeDelta) -> i64 {
        let interval = self.send_interval().as_nanos().max(1);
        ((time.as_nanos() + interval - 1) / interval).max(1)
    }

    fn frames_in(&self, commands: i64) -> i64 {
        (self.send_interval() * commands).as_nanos() / self.period.as_nanos().max(1)
    }

    /// With fewer frames than this in a buffer, it may run out with the next late packet: one that is about to be played, and as many as
    /// delays vary by; but no more than half of what a full buffer holds.
    pub fn low_watermark(&self) -> i64 {
        let vary = ((self.rtt_max - self.rtt_min) / 2).as_nanos();
        let vary = (vary + self.period.as_nanos() - 1) / self.period.as_nanos().max(1);
        (1 + vary).min(self.frames_in(self.size_after_pause()) / 2).max(1)
    }

    /// With more frames than this in it, somebody sends quicker than we play. That cannot be as long as nobody steps without the inputs of
    /// all.
    pub fn high_watermark(&self) -> i64 {
        self.frames_in(self.initial_size())
    }
}

/// A pause of all sites.
#[derive(Debug)]
pub(super) struct GroupPause {
    /// Nobody begins a frame before this.
    pub(super) until: Instant,
    /// What is told of it, for as long as it lasts.
    pub(super) announced: Option<PauseRequest>,
}

impl Default for GroupPause {
    fn default() -> Self {
        Self { until: Instant::from_nanos(i64::MIN), announced: None }
    }
}

impl Session {
    fn jitter_buffer_model(&self, peer: &Peer) -> JitterBufferModel {
        JitterBufferModel::new(self.config.settings.rate.period(), self.delay_settings.input_delay, &peer.clock)
    }

    /// The time from one packet to a peer to the next, where packets leave no more often than delays vary.
    pub(super) fn send_interval(&self, index: usize) -> TimeDelta {
        self.jitter_buffer_model(&self.peers[index]).send_interval()
    }

    /// How many frames can be stepped with what is here of a peer's inputs.
    pub(super) fn buffered_frames(&self, peer: &Peer) -> i64 {
        peer.known_end() - self.frame
    }

    /// Whether a buffer is so low, or so full, that we do not begin the next frame but ask for a pause.
    pub(super) fn is_starved(&mut self, now: Instant) -> bool {
        let pauses = self.config.settings.starvation_policy == StarvationPolicy::Pause
            && self.delay_settings.prediction_window == 0;
        if !pauses
            || now - self.pause.until < MIN_PAUSE_INTERVAL
            || self.frame.number() < self.delay_settings.input_delay
        {
            return false;
        }
        let in_trouble = |peer: &&Peer| {
            let (ahead, buffering) = (self.buffered_frames(peer), self.jitter_buffer_model(peer));
            let amiss =
                ahead < buffering.low_watermark() && buffering.is_pause_useful() || ahead > buffering.high_watermark();
            peer.is_playing() && amiss
        };
        let Some(peer) = self.peers.iter().find(in_trouble) else { return false };
        let hold = self.jitter_buffer_model(peer).input_delay.min(MAX_PAUSE);
        let Some(until) = self.group_time(now - self.clock_set_back + hold) else { return false };
        self.begin_pause(
            now,
            PauseRequest { requested_by: self.config.site, frame: self.frame, until_ns: until.as_nanos() },
            now + hold,
        );
        self.mark_all_due();
        true
    }

    fn begin_pause(&mut self, now: Instant, hold: PauseRequest, until: Instant) {
        self.pause = GroupPause { until, announced: Some(hold) };
        self.plan_pause();
        self.stats.pauses += 1;
        self.events.push(Event::Paused { frame: hold.frame, duration: until - now, site: hold.requested_by });
        self.mark_extras_pending();
        self.invalidate_send_time();
    }

    /// The plan is to rest; who follows it must hear of that soon.
    fn plan_pause(&mut self) {
        let begun = self.frame_began_at(self.frame).is_some();
        if let Some(pacer) = self.pacer.as_mut().filter(|_| !begun) {
            pacer.pause_until(self.pause.until);
            self.peers.iter_mut().for_each(Peer::make_probe_due);
        }
    }

    /// A peer pauses: so do we, and go on together.
    pub(super) fn on_pause_request(&mut self, now: Instant, hold: PauseRequest) {
        let wanted = self.config.settings.starvation_policy == StarvationPolicy::Pause
            && matches!(self.phase, Phase::Running(_));
        let Some(until) = self.local_time(GroupInstant::from_nanos(hold.until_ns)).filter(|_| wanted) else { return };
        if until <= now || until - now > MAX_PAUSE || (self.frame - hold.frame).abs() > i64::from(self.max_lead) {
            return;
        }
        // Who begins another frame next begins it when the other will.
        let next = if self.frame_began_at(self.frame).is_some() { self.frame.next() } else { self.frame };
        let until = until + self.config.settings.rate.period() * (next - hold.frame);
        if self.pause.until > now {
            // Two have asked at once: all go on when the later one does.
            self.pause.until = self.pause.until.max(until);
            self.plan_pause();
        } else if now - self.pause.until >= MIN_PAUSE_INTERVAL {
            self.begin_pause(now, hold, until);
        }
    }

    /// A pause that is over is not told any more.
    pub(super) fn clear_expired_pause(&mut self, now: Instant) {
        if self.pause.announced.is_some() && self.pause.until <= now {
            self.pause.announced = None;
        }
    }

    /// Whether the next packet to a peer asks for what is missing.
    #[inline]
    pub(super) fn requests_missing_inputs(&self, peer: &Peer) -> bool {
        !peer.inputs.is_gapless() && (self.config.recovery != Recovery::Classic || peer.is_request_due)
    }

    /// Classic recovery: what is missing is asked for in a packet of its own, and so is what a peer misses answered.
    pub(super) fn schedule_classic_recovery(&mut self, now: Instant, index: usize, asked: bool) {
        let peer = &mut self.peers[index];
        let gap = !peer.inputs.is_gapless();
        if !gap {
            peer.next_request_at = None;
        }
        let asks = gap && peer.next_request_at.is_none_or(|again| again <= now);
        if asks {
            peer.is_request_due = true;
            let answer = peer.clock.rtt().unwrap_or_default() * 3 / 2 + peer.clock.jitter() * JITTER_DEVIATIONS;
            peer.next_request_at = Some(now + answer.min(peer.clock.max_plausible_rtt()));
        }
        if (asks || asked) && !peer.lobby.is_hello_due && !peer.is_free() {
            self.due_peers |= 1 << index;
        }
    }

    /// What does not come is asked for again.
    pub(super) fn update_classic_recovery(&mut self, now: Instant) {
        if self.config.recovery == Recovery::Classic {
            for index in 0..self.peers.len() {
                self.schedule_classic_recovery(now, index, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(rtt_max: i64, rtt_min: i64) -> JitterBufferModel {
        let ms = TimeDelta::from_millis;
        JitterBufferModel {
            period: TimeDelta::from_nanos(16_666_667),
            input_delay: ms(300),
            rtt_max: ms(rtt_max),
            rtt_min: ms(rtt_min),
        }
    }

    #[test]
    fn equations_3_to_5() {
        let even = model(130, 130);
        assert_eq!(even.send_interval(), even.period, "without jitter every frame has its packet");
        assert_eq!((even.initial_size(), even.size_after_pause()), (26, 15));
        assert_eq!((even.low_watermark(), even.high_watermark()), (1, 26));
        let uneven = model(190, 90);
        assert_eq!(uneven.send_interval(), TimeDelta::from_millis(50));
        assert_eq!((uneven.initial_size(), uneven.size_after_pause()), (10, 5), "commands of three frames each");
        assert_eq!((uneven.low_watermark(), uneven.high_watermark()), (4, 29));
    }

    #[test]
    fn rtt_above_input_delay_leaves_one_buffered_command() {
        let long = model(700, 700);
        assert_eq!((long.size_after_pause(), long.low_watermark()), (1, 1));
        assert!(!long.is_pause_useful() && model(700, 590).is_pause_useful());
    }
}
