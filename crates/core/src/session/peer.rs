//! What a session knows of one other site.

use alloc::vec::Vec;
use core::ops::Range;

use super::chain::Chain;
use super::compare::{Digests, Told};
use super::guess::Guesses;
use super::late::Lateness;
use super::relay::{CUT, Help};
use super::reports::Reports;
use super::settings::Difference;
use super::stats::{LossMeter, PeerStats};
use crate::clock::{Clock, RoundTrip};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteId, SiteSet};
use crate::input::{Block, Layout, MAX_BLOCKS, Sender, Stream, Word};
use crate::time::{Instant, TimeDelta};
use crate::wire::{Probe, Relay, Tick, Vote};

/// Probes are close together for this long after a peer is first heard, then further apart.
const PROBE_EARLY: TimeDelta = TimeDelta::from_secs(5);
const PROBE_EARLY_EVERY: TimeDelta = TimeDelta::from_millis(50);
const PROBE_EVERY: TimeDelta = TimeDelta::from_millis(200);

/// Whoever is not heard, or does not hear, for so long may not know the other's address any more.
const DEAF: TimeDelta = TimeDelta::from_millis(200);

/// One other site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) site: SiteId,
    pub(super) addr: Addr,
    pub(super) clock: Clock,
    pub(super) lobby: Agreement,
    pub(super) layout: Layout,
    /// Its inputs, as far as they are here.
    pub(super) inputs: Stream,
    /// What was guessed where they are not.
    pub(super) guesses: Guesses,
    /// When the newest of them without a gap came.
    pub(super) inputs_at: Instant,
    /// Our inputs, as far as they are there.
    pub(super) sender: Sender,
    pub(super) seat: Seat,
    /// The seat is taken again from this frame on, by an order that may not be in force yet.
    pub(super) joins: Option<Frame>,
    /// Who is to take it leaves again with this frame, which counts as soon as the order does.
    pub(super) leaves: Option<Frame>,
    /// It may give inputs for frames far from the one that it steps, as who comes late does at first.
    pub(super) ahead: bool,
    /// The newest frame that it said to be in.
    pub(super) frame: Frame,
    /// It has all our inputs and knows that they are the last.
    pub(super) knows_leave: bool,
    /// It was told that we have other inputs of it than it gave.
    pub(super) forged: bool,
    /// The game went on without it, and it may not know.
    pub(super) dropped: bool,
    /// What it does in frames for which nobody gives its inputs; and whether that is to become what it did last.
    pub(super) stand_in: [Block; MAX_BLOCKS],
    pub(super) repeats: bool,
    /// The frames before it took its seat, back to when it was free, and what it did in those.
    pub(super) away: Range<Frame>,
    pub(super) before: [Block; MAX_BLOCKS],
    /// Nobody takes the seat before this frame, so that no packet of the last to have it can be meant.
    pub(super) free_from: Frame,
    pub(super) lateness: Lateness,
    /// The next packet to it asks for what is missing of its inputs; and when that is asked for again, where that takes a packet of its own.
    pub(super) asks_now: bool,
    pub(super) asks_again: Option<Instant>,
    /// Which start of its program plays, and the newest that was heard; 0 for none.
    pub(super) incarnation: u32,
    pub(super) newest_incarnation: u32,
    /// The start of its program that had the seat before the newest order let another one in.
    pub(super) earlier_incarnation: u32,
    /// What we have of its inputs does not count until the view has changed: we said that we have none.
    pub(super) withheld: bool,
    /// From this frame on it may have stepped with inputs that do not count, because it had left when the others decided so.
    unasked_from: Option<Frame>,
    /// Where it stands in the change of the view that is under way.
    pub(super) vote: Option<Vote>,
    /// It does not know the newest view.
    pub(super) behind: bool,
    /// What it says about the membership.
    pub(super) reports: Reports,
    /// Who passes its inputs on.
    pub(super) help: Help,
    /// The view changed before it plays, with this frame: until it has an input of ours for it, it may not know.
    pub(super) uninformed: Option<Frame>,
    /// The first frame that it misses of other sites' inputs.
    pub(super) wants: [Option<Frame>; MAX_SITES],
    pub(super) digests: Digests<Told>,
    /// The hash of its inputs as we have them, and what it was where states are compared.
    pub(super) chain: Chain,
    pub(super) chained: Digests,
    /// The newest frame after which its state was found to be ours.
    pub(super) agreed: Option<Frame>,
    pub(super) loss: LossMeter,
    pub(super) stats: PeerStats,
    pub(super) heard: Instant,
    /// When it last told that it has more of our inputs, or all of them.
    acked: Instant,
    pub(super) sent: Instant,
    probes: Probes,
}

/// Who has a site's seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// Its inputs are needed.
    Playing,
    /// Its inputs end before this frame: it leaves, or was dropped.
    Leaving(Frame),
    /// They do, it has been told that we know, and the seat is free.
    Free(Frame),
}

/// What a peer said in the lobby.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    pub(super) agreed: bool,
    /// The sites that the peer agrees with.
    pub(super) agrees_with: SiteSet,
    /// What it was last found to differ in.
    pub(super) differences: Vec<Difference>,
    /// It said that it leaves.
    pub(super) left: bool,
    /// It was seen playing.
    pub(super) playing: bool,
    /// It has heard of this start of our program.
    pub(super) knows_us: bool,
    /// It wants to take its seat in a running game, and whether it is ready to.
    pub(super) joining: Option<bool>,
    /// When it last said so.
    pub(super) asked_at: Option<Instant>,
    /// It asked something that only a hello answers.
    pub(super) hello_due: bool,
    /// It gives inputs for frames that went by without it: an order let it in that came to nothing.
    pub(super) in_vain: bool,
}

/// Round trips under way.
#[derive(Debug)]
struct Probes {
    since: Option<Instant>,
    sent: Instant,
    /// The newest stamp received, on the peer's clock, and when it came.
    stamp: Option<(i64, Instant)>,
    echoed: bool,
}

impl Peer {
    pub(super) fn new(
        now: Instant,
        site: SiteId,
        addr: Addr,
        layout: Layout,
        start: Frame,
        (own_width, slots): (usize, usize),
    ) -> Self {
        let inputs = Stream::new(layout.width(), start);
        Self {
            site,
            addr,
            clock: Clock::default(),
            lobby: Agreement::default(),
            guesses: Guesses::new(slots, inputs.blocks()),
            inputs,
            layout,
            inputs_at: now,
            sender: Sender::new(start, own_width),
            seat: Seat::Playing,
            joins: None,
            leaves: None,
            ahead: false,
            frame: Frame::ZERO,
            knows_leave: false,
            forged: false,
            dropped: false,
            stand_in: [[0; 16]; MAX_BLOCKS],
            repeats: false,
            away: Frame::ZERO..Frame::ZERO,
            before: [[0; 16]; MAX_BLOCKS],
            free_from: Frame::ZERO,
            lateness: Lateness::default(),
            asks_now: false,
            asks_again: None,
            incarnation: 0,
            newest_incarnation: 0,
            earlier_incarnation: 0,
            withheld: false,
            unasked_from: None,
            vote: None,
            behind: false,
            reports: Reports::default(),
            help: Help::new(now),
            uninformed: None,
            wants: [None; MAX_SITES],
            digests: Digests::default(),
            chain: Chain::new(start),
            chained: Digests::default(),
            agreed: None,
            loss: LossMeter::default(),
            stats: PeerStats::default(),
            heard: now,
            acked: now,
            sent: now - TimeDelta::from_secs(1),
            probes: Probes { since: None, sent: now - TimeDelta::from_secs(1), stamp: None, echoed: false },
        }
    }

    /// Whether it may have lost our address: one of us does not hear the other.
    pub(super) fn is_deaf(&self, now: Instant, own: &Stream) -> bool {
        now - self.heard > DEAF || now - self.acked > DEAF && self.sender.acked() < own.end()
    }

    /// Its input is known for every frame before this one: it is here, or will never come because the site has left by then.
    #[inline]
    pub(super) fn known_end(&self) -> Frame {
        match self.seat {
            Seat::Playing if self.withheld => self.inputs.start().min(self.inputs.end()),
            Seat::Playing => self.inputs.end(),
            Seat::Leaving(last) | Seat::Free(last) if self.inputs.end() < last => self.inputs.end(),
            Seat::Leaving(_) | Seat::Free(_) => self.joins.map_or(Frame::LAST, |_| self.inputs.end()),
        }
    }

    /// The first frame without it, if it does not play, or not any more.
    pub(super) fn last(&self) -> Option<Frame> {
        match self.seat {
            Seat::Playing => None,
            Seat::Leaving(last) | Seat::Free(last) => Some(last),
        }
    }

    /// Whether it must be told how the last view ended.
    pub(super) fn is_behind(&self) -> bool {
        self.behind || self.uninformed.is_some_and(|first| self.sender.acked() <= first)
    }

    pub(super) fn is_playing(&self) -> bool {
        self.seat == Seat::Playing
    }

    /// Whether inputs are to come from it that the others must agree on: it plays, or leaves and some of its last ones are missing.
    pub(super) fn is_awaited(&self) -> bool {
        let missing = |last: Frame| self.inputs.end() < last && self.joins.is_none() && !self.dropped;
        self.last().is_none_or(missing)
    }

    /// Whether it was dropped, and some of its last inputs, which somebody else had then, are still missing here.
    pub(super) fn is_incomplete(&self) -> bool {
        self.dropped && self.joins.is_none() && self.last().is_some_and(|last| self.inputs.end() < last)
    }

    /// Whether it left of its own accord, and all its inputs are here.
    pub(super) fn has_left(&self) -> bool {
        self.last().is_some_and(|last| last <= self.inputs.end()) && self.joins.is_none() && !self.dropped
    }

    /// Other sites were dropped; `earliest` is the first frame that lacks the inputs of one of them. A site that has left gave no vote, and
    /// may have stepped that frame with more inputs than count.
    pub(super) fn note_unasked(&mut self, earliest: Option<Frame>) {
        if !self.is_playing() {
            self.unasked_from = [self.unasked_from, earliest].into_iter().flatten().min();
        }
    }

    /// Whether its state after a frame may rest on inputs that do not count.
    pub(super) fn was_unasked(&self, frame: Frame) -> bool {
        self.unasked_from.is_some_and(|first| frame >= first)
    }

    /// Whether it takes no packets and sends none.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.seat, Seat::Free(_)) && self.joins.is_none()
    }

    /// Whether nobody gives inputs for this frame, so that there are none.
    pub(super) fn is_absent(&self, frame: Frame) -> bool {
        let away = self.last().is_some_and(|last| frame >= last) && self.joins.is_none_or(|first| frame < first);
        away || self.away.contains(&frame)
    }

    /// What it does in a frame for which nobody gives its inputs.
    pub(super) fn stand_in(&self, frame: Frame) -> &[Block] {
        let stand_in = if self.away.contains(&frame) { &self.before } else { &self.stand_in };
        &stand_in[..self.inputs.blocks()]
    }

    /// What it did in the frame before this one is seen: where nobody gave inputs then, that goes on.
    pub(super) fn see_stand_in(&mut self, next: Frame, words: &[Word]) {
        let mut seen = [[0; 16]; MAX_BLOCKS];
        self.layout.pack_blocks(words, &mut seen[..self.inputs.blocks()]);
        // Who leaves later than that lets go by itself.
        let settled = self.last().is_some_and(|last| last > next || last == next && !self.dropped);
        if !settled {
            self.stand_in = seen;
        }
        if next.checked_sub(1).is_some_and(|frame| self.away.contains(&frame)) {
            self.before = seen;
        }
    }

    /// From when it leaves on, it does nothing.
    pub(super) fn let_go(&mut self) {
        (self.repeats, self.stand_in) = (false, [[0; 16]; MAX_BLOCKS]);
    }

    /// It says that it is in a frame, having given its inputs before `end`.
    pub(super) fn on_frame(&mut self, frame: Frame, end: Frame, lag: u32) {
        self.frame = self.frame.max(frame);
        self.ahead &= end > frame + lag + 1;
    }

    /// Once all its inputs are here, who was dropped goes on with the last; who gave none in this life, with what was done for it before.
    #[cold]
    fn repeat_last(&mut self) {
        let Some(last) = self.last().filter(|last| *last <= self.inputs.end()) else { return };
        self.repeats = false;
        let given = last.checked_sub(1).filter(|frame| *frame >= self.inputs.start());
        if let Some(input) = given.and_then(|frame| self.inputs.value_blocks(frame)) {
            self.stand_in[..input.len()].copy_from_slice(input);
        }
    }

    /// Settles what absent players do, as soon as that is known.
    #[inline]
    pub(super) fn settle_stand_in(&mut self) {
        if self.repeats {
            self.repeat_last();
        }
    }

    /// The seat is taken from a frame on. All inputs of the last to have it must be here.
    /// If it is new there, its inputs begin with that frame; if we are, they go on.
    pub(super) fn sit_down(&mut self, first: Frame, own_width: usize, new: bool) {
        let last = self.last().unwrap_or(first);
        self.settle_stand_in();
        (self.away, self.before) = (last..first, self.stand_in);
        self.inputs.reopen(last, first, new);
        self.sender = match new {
            true => Sender::in_the_middle(first, own_width),
            false => Sender::new(first, own_width),
        };
        self.seat = Seat::Free(last);
        self.joins = Some(first);
        self.unasked_from = None;
        (self.leaves, self.ahead, self.frame) = (None, true, Frame::ZERO);
        self.forged = false;
        (self.lobby.joining, self.lobby.in_vain) = (None, false);
        self.dropped = false;
        self.knows_leave = false;
        self.digests = Digests::default();
        self.agreed = None;
        self.chain = if new { Chain::new(first) } else { Chain::unknown(first) };
        self.chained = Digests::default();
        (self.stats.compared, self.stats.mismatches) = (0, 0);
        if self.incarnation == 0 {
            self.incarnation = self.newest_incarnation;
        }
    }

    /// The first of the frames from `from` to before `until` for which another input was guessed than there is; all of them are
    /// known.
    pub(super) fn first_wrong(&self, from: Frame, until: Frame) -> Option<Frame> {
        let mut frame = from;
        while frame < until {
            let given = self.inputs.value_blocks(frame).filter(|_| !self.is_absent(frame));
            if given.unwrap_or(self.stand_in(frame)) != self.guesses.get(frame) {
                return Some(frame);
            }
            frame = frame.next();
        }
        None
    }

    /// What we tell it that we have of its inputs: one more than there is once we have them all and know that it leaves. Who was dropped
    /// did not leave, and would take that for an input of its that counts.
    pub(super) fn acknowledgement(&self) -> Frame {
        let end = self.inputs.end();
        let left = |last: &Frame| *last <= end && self.joins.is_none() && !self.dropped;
        self.last().filter(left).map_or(end, Frame::next)
    }

    /// Forgets what it said before it was started anew.
    pub(super) fn start_over(&mut self) {
        self.clock = Clock::default();
        self.probes.stamp = None;
        self.reports = Reports::default();
        let Agreement { hello_due, playing, .. } = self.lobby;
        self.lobby = Agreement { hello_due, playing, ..Agreement::default() };
    }

    /// Whether a stamp is newer than all that were heard.
    pub(super) fn is_news(&self, stamp_us: i64) -> bool {
        self.probes.stamp.is_none_or(|(newest, _)| stamp_us > newest)
    }

    /// Whether it plays, is heard, and waits for nothing but inputs.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        let tells_nothing = self.vote.is_none() && !self.reports.is_any();
        self.is_playing() && !self.was_restarted() && !self.is_behind() && tells_nothing && now - self.heard < CUT
    }

    /// Nobody else is asked for its inputs.
    pub(super) fn needs_no_help(&mut self, now: Instant) {
        self.help = Help::new(now);
    }

    /// How long it has been since anything of it came, directly or through others.
    pub(super) fn silence(&self, now: Instant) -> TimeDelta {
        now - self.heard.max(self.inputs_at)
    }

    /// Whether another start of its program was heard than the one that plays.
    pub(super) fn was_restarted(&self) -> bool {
        self.newest_incarnation > self.incarnation
    }

    /// Takes in inputs that somebody passes on; returns 1 if they are of no use, else 0.
    pub(super) fn take_relayed(&mut self, now: Instant, by: SiteId, relay: &Relay<'_>) -> u64 {
        let before = self.inputs.end();
        let useless = self.receive(Some(relay.first), relay.len, true, relay.changes);
        if self.inputs.end() > before {
            self.inputs_at = now;
            self.help.on_news(by);
        }
        useless
    }

    pub(super) fn on_received(&mut self, now: Instant, bytes: usize) {
        self.heard = now;
        self.count_received(bytes);
    }

    pub(super) fn count_received(&mut self, bytes: usize) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes as u64;
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.sent = now;
        self.stats.packets_out += 1;
        self.stats.bytes_out += bytes as u64;
    }

    /// Takes in the inputs of a tick that ends before `end`; returns how many stretches of them were of no use.
    #[inline]
    pub(super) fn take_inputs(&mut self, now: Instant, end: Frame, tick: &Tick<'_>) -> u64 {
        let before = self.inputs.end();
        let mut useless = 0;
        if !tick.answers.is_empty() {
            for answer in tick.answers.iter() {
                let first = end.checked_sub(answer.end_minus_first);
                useless += self.receive(first, answer.len, true, answer.changes);
            }
        }
        if tick.len > 0 {
            useless += self.receive(end.checked_sub(tick.len), tick.len, tick.absolute, tick.changes);
        }
        if self.inputs.end() > before {
            self.inputs_at = now;
        }
        useless
    }

    /// Returns 1 if these inputs are of no use, else 0.
    #[inline]
    fn receive(&mut self, first: Option<Frame>, len: u32, absolute: bool, changes: &[u8]) -> u64 {
        // Nobody's inputs begin before the first frame, or go on after the one with which it said to leave.
        let over = |until: Frame| self.joins.is_none() && self.last().is_some_and(|last| until > last);
        let Some(first) = first.filter(|first| !over(*first + len)) else {
            return 1;
        };
        u64::from(self.inputs.receive(first, len, absolute, changes).is_err())
    }

    /// Takes in what the peer has of our inputs, and what it misses; returns 1 if that cannot be, else 0.
    #[inline]
    pub(super) fn take_acknowledgement(
        &mut self,
        now: Instant,
        end: Frame,
        tick: &Tick<'_>,
        own: &Stream,
        leaving: Option<Frame>,
    ) -> u64 {
        let Ok(ack) = u32::try_from(end - Frame::ZERO - i64::from(tick.end_minus_ack)) else { return 1 };
        let ack = Frame::new(ack);
        self.knows_leave |= leaving.is_some_and(|last| ack > last);
        if self.sender.on_ack(ack, own) || self.sender.acked() >= own.end() {
            self.acked = now;
        }
        if !tick.request.is_empty() {
            self.sender.on_request(ack, &tick.request);
        }
        0
    }

    /// The newest stamp heard, to tell an old packet from a new one.
    pub(super) fn newest_stamp_us(&self) -> Option<i64> {
        self.probes.stamp.map(|(stamp, _)| stamp)
    }

    /// Takes in a stamp, and the round trip that an echo of one of ours completes; both in microseconds.
    pub(super) fn on_stamp(&mut self, now: Instant, stamp_us: i64, echo: Option<(i64, TimeDelta)>) {
        self.probes.since.get_or_insert(now);
        if self.probes.stamp.is_none_or(|(newest, _)| stamp_us > newest) {
            self.probes.stamp = Some((stamp_us, now));
            self.probes.echoed = false;
        }
        if let Some((sent_us, held)) = echo {
            let answered = micros(stamp_us);
            let trip = RoundTrip { sent: micros(sent_us), received: answered - held, answered, returned: now };
            self.clock.on_round_trip(trip);
        }
    }

    /// Takes in the probe of a tick, whose stamps are shortened; returns the full stamp, if it is news.
    pub(super) fn on_probe(&mut self, now: Instant, probe: &Probe) -> Option<Instant> {
        let near = self.clock.to_remote(now).map(Instant::as_micros).or(self.newest_stamp_us());
        let stamp_us = widen(near.unwrap_or(0), probe.stamp_us as i64, 40);
        if !self.is_news(stamp_us) {
            return None;
        }
        let echo = probe
            .echo
            .map(|(sent, held_ns)| (widen(now.as_micros(), i64::from(sent), 32), TimeDelta::from_nanos(held_ns)));
        self.on_stamp(now, stamp_us, echo);
        Some(micros(stamp_us))
    }

    /// Lets the next packet carry a probe.
    pub(super) fn probe_soon(&mut self) {
        self.probes.sent = self.probes.sent - PROBE_EVERY;
    }

    /// Whether the next packet should carry a probe.
    pub(super) fn probe_is_due(&self, now: Instant) -> bool {
        let early = self.probes.since.is_none_or(|since| now - since < PROBE_EARLY);
        // A little less than the nominal pause, because packets leave in whole frames.
        let pause = if early { PROBE_EARLY_EVERY } else { PROBE_EVERY } - TimeDelta::from_millis(5);
        now - self.probes.sent >= pause
    }

    /// The stamp to echo, in microseconds of the peer's clock, and for how long it was held; each is echoed once.
    pub(super) fn take_echo(&mut self, now: Instant) -> Option<(i64, TimeDelta)> {
        self.probes.sent = now;
        let (stamp, received) = self.probes.stamp.filter(|_| !self.probes.echoed)?;
        self.probes.echoed = true;
        Some((stamp, now - received))
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        let differences = self.lobby.differences.capacity() * size_of::<Difference>();
        let digests = self.digests.memory() + self.chained.memory();
        let kept = self.inputs.memory() + self.guesses.memory() + digests + self.clock.memory();
        size_of::<Self>() + kept + differences
    }

    pub(super) fn stats(&self, now: Instant, own_end: Frame) -> PeerStats {
        PeerStats {
            rtt: self.clock.rtt().unwrap_or_default(),
            rtt_min: self.clock.rtt_min().unwrap_or_default(),
            jitter: self.clock.jitter(),
            loss: self.loss.loss(),
            unacknowledged: (own_end - self.sender.acked()).max(0) as u32,
            silence: now - self.heard,
            ..self.stats
        }
    }
}

fn micros(us: i64) -> Instant {
    Instant::ZERO + TimeDelta::from_micros(us)
}

/// The number nearest to `near` of which only the low `bits` are known.
pub(super) fn widen(near: i64, low: i64, bits: u32) -> i64 {
    let shift = 64 - bits;
    near.wrapping_add(low.wrapping_sub(near) << shift >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_stamps_come_back_whole() {
        for near in [0, -5_000_000, 1 << 40, 987_654_321_012_345] {
            for distance in [-1_000_000_000, -1, 0, 77, 2_000_000_000] {
                let full: i64 = near + distance;
                assert_eq!(widen(near, full & 0xffff_ffff, 32), full);
                assert_eq!(widen(near, full & 0xff_ffff_ffff, 40), full);
            }
        }
    }
}
