//! Buffers of inputs, as in Kim and Park: how often packets leave, how much is buffered, and what is done when a buffer runs low.
//!
//! The buffer of a peer's inputs is what is here of them and not played yet; on a line that is always the same it holds the lag less the way.
//! A lost packet lets it shrink until what was lost has come again. Where it would run out, the site that sees it coming asks for a
//! [pause](super::Starvation::Pause): nobody begins the frame at hand before the same instant, which is given in group time. Nothing that sites must agree
//! on is concerned, so no vote is needed: who does not hear of it waits for inputs a little later.

use super::event::Event;
use super::peer::Peer;
use super::settings::Starvation;
use super::{Phase, Session};
use crate::clock::Clock;
use crate::input::Recovery;
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::Hold;

/// The longest pause.
const LONGEST: TimeDelta = TimeDelta::from_secs(1);
/// After a pause there is none for so long: where it did not help, another would not.
const BETWEEN: TimeDelta = TimeDelta::from_secs(1);
/// Round-trip times are seldom further from the mean than so many mean deviations.
const FEW: i64 = 4;

/// What Kim and Park compute from the round-trip times of a line: equations 3 to 5, with sizes in commands, of which one is sent per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// The time from one frame to the next.
    pub period: TimeDelta,
    /// How long commands are delayed: the lag.
    pub delay: TimeDelta,
    /// The longest round trip.
    pub rtt_max: TimeDelta,
    /// The shortest.
    pub rtt_min: TimeDelta,
}

impl Buffering {
    fn new(period: TimeDelta, lag: u32, clock: &Clock) -> Self {
        let rtt = clock.rtt().unwrap_or_default();
        let rtt_min = clock.rtt_min().unwrap_or(rtt).min(rtt);
        Self { period, delay: period * i64::from(lag), rtt_max: rtt + clock.jitter() * FEW, rtt_min }
    }

    /// The time from one packet to the next (equation 3): no shorter than delays vary, and no shorter than a frame. Where delays vary by
    /// more than half of what commands are delayed, packets must not be as far apart.
    pub fn interval(&self) -> TimeDelta {
        ((self.rtt_max - self.rtt_min) / 2).min(self.delay / 2).max(self.period)
    }

    /// How many commands can be in a buffer at first (equation 4).
    pub fn size(&self) -> i64 {
        self.commands(self.delay + self.rtt_max)
    }

    /// How many are in it when the sites have just paused (equation 5).
    pub fn size_after_pause(&self) -> i64 {
        self.commands(self.delay - self.rtt_max / 2)
    }

    /// Whether a pause can leave anything in a buffer: where the way is longer than commands are delayed, the next one is always late.
    pub fn gains_by_pause(&self) -> bool {
        self.delay > self.rtt_min / 2
    }

    /// As many commands as are sent in this time, and at least one.
    fn commands(&self, time: TimeDelta) -> i64 {
        let interval = self.interval().as_nanos().max(1);
        ((time.as_nanos() + interval - 1) / interval).max(1)
    }

    fn frames(&self, commands: i64) -> i64 {
        (self.interval() * commands).as_nanos() / self.period.as_nanos().max(1)
    }

    /// With fewer frames than this in a buffer, it may run out with the next late packet: one that is about to be played, and as many as
    /// delays vary by; but no more than half of what a full buffer holds.
    pub fn low(&self) -> i64 {
        let vary = ((self.rtt_max - self.rtt_min) / 2).as_nanos();
        let vary = (vary + self.period.as_nanos() - 1) / self.period.as_nanos().max(1);
        (1 + vary).min(self.frames(self.size_after_pause()) / 2).max(1)
    }

    /// With more frames than this in it, somebody sends quicker than we play. That cannot be as long as nobody steps without the inputs of
    /// all.
    pub fn high(&self) -> i64 {
        self.frames(self.size())
    }
}

/// A pause of all sites.
#[derive(Debug)]
pub(super) struct Pause {
    /// Nobody begins a frame before this.
    pub(super) until: Instant,
    /// What is told of it, for as long as it lasts.
    pub(super) told: Option<Hold>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { until: Instant::from_nanos(i64::MIN), told: None }
    }
}

impl Session {
    fn buffering(&self, peer: &Peer) -> Buffering {
        Buffering::new(self.config.settings.rate.period(), self.dials.lag, &peer.clock)
    }

    /// The time from one packet to a peer to the next, where packets leave no more often than delays vary.
    pub(super) fn send_interval(&self, index: usize) -> TimeDelta {
        self.buffering(&self.peers[index]).interval()
    }

    /// How many frames can be stepped with what is here of a peer's inputs.
    pub(super) fn ahead(&self, peer: &Peer) -> i64 {
        peer.known_end() - self.frame
    }

    /// Whether a buffer is so low, or so full, that we do not begin the next frame but ask for a pause.
    pub(super) fn starves(&mut self, now: Instant) -> bool {
        let pauses = self.config.settings.starvation == Starvation::Pause && self.dials.window == 0;
        if !pauses || now - self.pause.until < BETWEEN || self.frame.number() < self.dials.lag {
            return false;
        }
        let in_trouble = |peer: &&Peer| {
            let (ahead, buffering) = (self.ahead(peer), self.buffering(peer));
            let amiss = ahead < buffering.low() && buffering.gains_by_pause() || ahead > buffering.high();
            peer.is_playing() && amiss
        };
        let Some(peer) = self.peers.iter().find(in_trouble) else { return false };
        let hold = self.buffering(peer).delay.min(LONGEST);
        let Some(until) = self.group_time(now - self.set_back + hold) else { return false };
        self.hold(now, Hold { by: self.config.site, frame: self.frame, until_ns: until.as_nanos() }, now + hold);
        self.set_all_due();
        true
    }

    fn hold(&mut self, now: Instant, hold: Hold, until: Instant) {
        self.pause = Pause { until, told: Some(hold) };
        self.plan_rest();
        self.stats.pauses += 1;
        self.events.push(Event::Paused { frame: hold.frame, hold: until - now, site: hold.by });
        self.talk();
        self.look_again();
    }

    /// The plan is to rest; who follows it must hear of that soon.
    fn plan_rest(&mut self) {
        let begun = self.began(self.frame).is_some();
        if let Some(pacer) = self.pacer.as_mut().filter(|_| !begun) {
            pacer.rest_until(self.pause.until);
            self.peers.iter_mut().for_each(Peer::probe_soon);
        }
    }

    /// A peer pauses: so do we, and go on together.
    pub(super) fn take_hold(&mut self, now: Instant, hold: Hold) {
        let wanted = self.config.settings.starvation == Starvation::Pause && matches!(self.phase, Phase::Running(_));
        let Some(until) = self.local_time(GroupInstant::from_nanos(hold.until_ns)).filter(|_| wanted) else { return };
        if until <= now || until - now > LONGEST || (self.frame - hold.frame).abs() > i64::from(self.most_reach) {
            return;
        }
        // Who begins another frame next begins it when the other will.
        let next = if self.began(self.frame).is_some() { self.frame.next() } else { self.frame };
        let until = until + self.config.settings.rate.period() * (next - hold.frame);
        if self.pause.until > now {
            // Two have asked at once: all go on when the later one does.
            self.pause.until = self.pause.until.max(until);
            self.plan_rest();
        } else if now - self.pause.until >= BETWEEN {
            self.hold(now, hold, until);
        }
    }

    /// A pause that is over is not told any more.
    pub(super) fn forget_hold(&mut self, now: Instant) {
        if self.pause.told.is_some() && self.pause.until <= now {
            self.pause.told = None;
        }
    }

    /// Whether the next packet to a peer asks for what is missing.
    #[inline]
    pub(super) fn asks(&self, peer: &Peer) -> bool {
        !peer.inputs.is_gapless() && (self.config.recovery != Recovery::Classic || peer.asks_now)
    }

    /// Classic recovery: what is missing is asked for in a packet of its own, and so is what a peer misses answered.
    pub(super) fn ask_and_answer_at_once(&mut self, now: Instant, index: usize, asked: bool) {
        let peer = &mut self.peers[index];
        let gap = !peer.inputs.is_gapless();
        if !gap {
            peer.asks_again = None;
        }
        let asks = gap && peer.asks_again.is_none_or(|again| again <= now);
        if asks {
            peer.asks_now = true;
            let answer = peer.clock.rtt().unwrap_or_default() * 3 / 2 + peer.clock.jitter() * FEW;
            peer.asks_again = Some(now + answer.min(peer.clock.rtt_most()));
        }
        if (asks || asked) && !peer.lobby.hello_due && !peer.is_free() {
            self.due |= 1 << index;
        }
    }

    /// What does not come is asked for again.
    pub(super) fn watch_requests(&mut self, now: Instant) {
        if self.config.recovery == Recovery::Classic {
            for index in 0..self.peers.len() {
                self.ask_and_answer_at_once(now, index, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rtt_max: i64, rtt_min: i64) -> Buffering {
        let ms = TimeDelta::from_millis;
        Buffering {
            period: TimeDelta::from_nanos(16_666_667),
            delay: ms(300),
            rtt_max: ms(rtt_max),
            rtt_min: ms(rtt_min),
        }
    }

    #[test]
    fn equations_3_to_5() {
        let even = line(130, 130);
        assert_eq!(even.interval(), even.period, "without jitter every frame has its packet");
        assert_eq!((even.size(), even.size_after_pause()), (26, 15));
        assert_eq!((even.low(), even.high()), (1, 26));
        let uneven = line(190, 90);
        assert_eq!(uneven.interval(), TimeDelta::from_millis(50));
        assert_eq!((uneven.size(), uneven.size_after_pause()), (10, 5), "commands of three frames each");
        assert_eq!((uneven.low(), uneven.high()), (4, 29));
    }

    #[test]
    fn a_line_longer_than_the_delay_leaves_one_command_in_the_buffer() {
        let long = line(700, 700);
        assert_eq!((long.size_after_pause(), long.low()), (1, 1));
        assert!(!long.gains_by_pause() && line(700, 590).gains_by_pause());
    }
}
