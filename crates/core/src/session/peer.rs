//! What a session knows of one other site.

use alloc::vec::Vec;
use core::ops::Range;

use super::digest_history::{DigestHistory, FrameDigest};
use super::input_digest::InputDigest;
use super::membership_reports::MembershipReports;
use super::prediction::PredictedInputs;
use super::relay::{LINK_CUT_TIMEOUT, RelaySelector};
use super::settings::SettingsDifference;
use super::slow_peer::StallBudget;
use super::stats::{LossMeter, PeerStats};
use crate::clock::{Clock, RoundTrip};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteId, SiteSet};
use crate::input::{InputLayout, InputSender, InputWord, MAX_BLOCKS, PackedInputBlock, Stream};
use crate::time::{Instant, TimeDelta};
use crate::wire::{ClockProbe, RelayedInputs, Tick, Vote};

/// Probes are close together for this long after a peer is first heard, then further apart.
const FAST_PROBE_PERIOD: TimeDelta = TimeDelta::from_secs(5);
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
const PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);

/// Whoever is not heard, or does not hear, for so long may not know the other's address any more.
const ADDRESS_LOSS_TIMEOUT: TimeDelta = TimeDelta::from_millis(200);

/// One other site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) site: SiteId,
    pub(super) addr: Addr,
    pub(super) clock: Clock,
    pub(super) lobby: LobbyState,
    pub(super) layout: InputLayout,
    /// Its inputs, as far as they are here.
    pub(super) inputs: Stream,
    /// What was guessed where they are not.
    pub(super) predictions: PredictedInputs,
    /// When the newest of them without a gap came.
    pub(super) last_input_at: Instant,
    /// Our inputs, as far as they are there.
    pub(super) sender: InputSender,
    pub(super) seat: Seat,
    /// The seat is taken again from this frame on, by an order that may not be in force yet.
    pub(super) join_frame: Option<Frame>,
    /// Who is to take it leaves again with this frame, which counts as soon as the order does.
    pub(super) leave_after_join: Option<Frame>,
    /// It may give inputs for frames far from the one that it steps, as who comes late does at first.
    pub(super) has_advance_inputs: bool,
    /// The newest frame that it said to be in.
    pub(super) reported_frame: Frame,
    /// It has all our inputs and knows that they are the last.
    pub(super) knows_own_leave: bool,
    /// It was told that we have other inputs of it than it gave.
    pub(super) is_forgery_reported: bool,
    /// The game went on without it, and it may not know.
    pub(super) is_dropped: bool,
    /// What it does in frames for which nobody gives its inputs; and whether that is to become what it did last.
    pub(super) substitute_input: [PackedInputBlock; MAX_BLOCKS],
    pub(super) repeats_last_input: bool,
    /// The frames before it took its seat, back to when it was free, and what it did in those.
    pub(super) absence: Range<Frame>,
    pub(super) absence_input: [PackedInputBlock; MAX_BLOCKS],
    /// Nobody takes the seat before this frame, so that no packet of the last to have it can be meant.
    pub(super) seat_free_from: Frame,
    pub(super) stall_budget: StallBudget,
    /// The next packet to it asks for what is missing of its inputs; and when that is asked for again, where that takes a packet of its own.
    pub(super) is_request_due: bool,
    pub(super) next_request_at: Option<Instant>,
    /// Which start of its program plays, and the newest that was heard; 0 for none.
    pub(super) incarnation: u32,
    pub(super) newest_incarnation: u32,
    /// The start of its program that had the seat before the newest order let another one in.
    pub(super) previous_incarnation: u32,
    /// What we have of its inputs does not count until the view has changed: we said that we have none.
    pub(super) is_withheld: bool,
    /// From this frame on it may have stepped with inputs that do not count, because it had left when the others decided so.
    unconsulted_from: Option<Frame>,
    /// Where it stands in the change of the view that is under way.
    pub(super) vote: Option<Vote>,
    /// It does not know the newest view.
    pub(super) has_old_epoch: bool,
    /// What it says about the membership.
    pub(super) reports: MembershipReports,
    /// Who passes its inputs on.
    pub(super) relay_selector: RelaySelector,
    /// The view changed before it plays, with this frame: until it has an input of ours for it, it may not know.
    pub(super) uninformed_until: Option<Frame>,
    /// The first frame that it misses of other sites' inputs.
    pub(super) relay_requests: [Option<Frame>; MAX_SITES],
    pub(super) frame_digests: DigestHistory<FrameDigest>,
    /// The hash of its inputs as we have them, and what it was where states are compared.
    pub(super) input_digest: InputDigest,
    pub(super) input_digests: DigestHistory,
    /// The newest frame after which its state was found to be ours.
    pub(super) last_agreed_frame: Option<Frame>,
    pub(super) loss_meter: LossMeter,
    pub(super) stats: PeerStats,
    pub(super) last_received_at: Instant,
    /// When it last told that it has more of our inputs, or all of them.
    last_ack_at: Instant,
    pub(super) last_sent_at: Instant,
    probes: ProbeState,
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
pub(super) struct LobbyState {
    pub(super) has_agreed: bool,
    /// The sites that the peer agrees with.
    pub(super) agrees_with: SiteSet,
    /// What it was last found to differ in.
    pub(super) differences: Vec<SettingsDifference>,
    /// It said that it leaves.
    pub(super) has_left: bool,
    /// It was seen playing.
    pub(super) has_played: bool,
    /// It has heard of this start of our program.
    pub(super) knows_own_incarnation: bool,
    /// It wants to take its seat in a running game, and whether it is ready to.
    pub(super) join_readiness: Option<bool>,
    /// When it last said so.
    pub(super) join_requested_at: Option<Instant>,
    /// It asked something that only a hello answers.
    pub(super) is_hello_due: bool,
    /// It gives inputs for frames that went by without it: an order let it in that came to nothing.
    pub(super) is_admission_void: bool,
}

/// Round trips under way.
#[derive(Debug)]
struct ProbeState {
    first_received_at: Option<Instant>,
    last_sent_at: Instant,
    /// The newest stamp received, on the peer's clock, and when it came.
    newest_stamp: Option<(i64, Instant)>,
    is_echoed: bool,
}

impl Peer {
    pub(super) fn new(
        now: Instant,
        site: SiteId,
        addr: Addr,
        layout: InputLayout,
        start: Frame,
        (own_width, slots): (usize, usize),
    ) -> Self {
        let inputs = Stream::new(layout.width(), start);
        Self {
            site,
            addr,
            clock: Clock::default(),
            lobby: LobbyState::default(),
            predictions: PredictedInputs::new(slots, inputs.block_count()),
            inputs,
            layout,
            last_input_at: now,
            sender: InputSender::new(start, own_width),
            seat: Seat::Playing,
            join_frame: None,
            leave_after_join: None,
            has_advance_inputs: false,
            reported_frame: Frame::ZERO,
            knows_own_leave: false,
            is_forgery_reported: false,
            is_dropped: false,
            substitute_input: [[0; 16]; MAX_BLOCKS],
            repeats_last_input: false,
            absence: Frame::ZERO..Frame::ZERO,
            absence_input: [[0; 16]; MAX_BLOCKS],
            seat_free_from: Frame::ZERO,
            stall_budget: StallBudget::default(),
            is_request_due: false,
            next_request_at: None,
            incarnation: 0,
            newest_incarnation: 0,
            previous_incarnation: 0,
            is_withheld: false,
            unconsulted_from: None,
            vote: None,
            has_old_epoch: false,
            reports: MembershipReports::default(),
            relay_selector: RelaySelector::new(now),
            uninformed_until: None,
            relay_requests: [None; MAX_SITES],
            frame_digests: DigestHistory::default(),
            input_digest: InputDigest::new(start),
            input_digests: DigestHistory::default(),
            last_agreed_frame: None,
            loss_meter: LossMeter::default(),
            stats: PeerStats::default(),
            last_received_at: now,
            last_ack_at: now,
            last_sent_at: now - TimeDelta::from_secs(1),
            probes: ProbeState {
                first_received_at: None,
                last_sent_at: now - TimeDelta::from_secs(1),
                newest_stamp: None,
                is_echoed: false,
            },
        }
    }

    /// Whether it may have lost our address: one of us does not hear the other.
    pub(super) fn may_have_lost_address(&self, now: Instant, own: &Stream) -> bool {
        now - self.last_received_at > ADDRESS_LOSS_TIMEOUT
            || now - self.last_ack_at > ADDRESS_LOSS_TIMEOUT && self.sender.acked() < own.end()
    }

    /// Its input is known for every frame before this one: it is here, or will never come because the site has left by then.
    #[inline]
    pub(super) fn known_end(&self) -> Frame {
        match self.seat {
            Seat::Playing if self.is_withheld => self.inputs.start().min(self.inputs.end()),
            Seat::Playing => self.inputs.end(),
            Seat::Leaving(last) | Seat::Free(last) if self.inputs.end() < last => self.inputs.end(),
            Seat::Leaving(_) | Seat::Free(_) => self.join_frame.map_or(Frame::NEVER, |_| self.inputs.end()),
        }
    }

    /// The first frame without it, if it does not play, or not any more.
    pub(super) fn absent_from(&self) -> Option<Frame> {
        match self.seat {
            Seat::Playing => None,
            Seat::Leaving(last) | Seat::Free(last) => Some(last),
        }
    }

    /// Whether it must be told how the last view ended.
    pub(super) fn needs_last_decision(&self) -> bool {
        self.has_old_epoch || self.uninformed_until.is_some_and(|first| self.sender.acked() <= first)
    }

    pub(super) fn is_playing(&self) -> bool {
        self.seat == Seat::Playing
    }

    /// Whether inputs are to come from it that the others must agree on: it plays, or leaves and some of its last ones are missing.
    pub(super) fn is_awaited(&self) -> bool {
        let missing = |last: Frame| self.inputs.end() < last && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().is_none_or(missing)
    }

    /// Whether it was dropped, and some of its last inputs, which somebody else had then, are still missing here.
    pub(super) fn lacks_last_inputs(&self) -> bool {
        self.is_dropped && self.join_frame.is_none() && self.absent_from().is_some_and(|last| self.inputs.end() < last)
    }

    /// Whether it left of its own accord, and all its inputs are here.
    pub(super) fn has_left(&self) -> bool {
        self.absent_from().is_some_and(|last| last <= self.inputs.end())
            && self.join_frame.is_none()
            && !self.is_dropped
    }

    /// Other sites were dropped; `earliest` is the first frame that lacks the inputs of one of them. A site that has left gave no vote, and
    /// may have stepped that frame with more inputs than count.
    pub(super) fn mark_unconsulted(&mut self, earliest: Option<Frame>) {
        if !self.is_playing() {
            self.unconsulted_from = [self.unconsulted_from, earliest].into_iter().flatten().min();
        }
    }

    /// Whether its state after a frame may rest on inputs that do not count.
    pub(super) fn was_unconsulted(&self, frame: Frame) -> bool {
        self.unconsulted_from.is_some_and(|first| frame >= first)
    }

    /// Whether it takes no packets and sends none.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.seat, Seat::Free(_)) && self.join_frame.is_none()
    }

    /// Whether nobody gives inputs for this frame, so that there are none.
    pub(super) fn is_absent(&self, frame: Frame) -> bool {
        let away =
            self.absent_from().is_some_and(|last| frame >= last) && self.join_frame.is_none_or(|first| frame < first);
        away || self.absence.contains(&frame)
    }

    /// What it does in a frame for which nobody gives its inputs.
    pub(super) fn substitute_input(&self, frame: Frame) -> &[PackedInputBlock] {
        let stand_in = if self.absence.contains(&frame) { &self.absence_input } else { &self.substitute_input };
        &stand_in[..self.inputs.block_count()]
    }

    /// What it did in the frame before this one is seen: where nobody gave inputs then, that goes on.
    pub(super) fn observe_substitute_input(&mut self, next: Frame, words: &[InputWord]) {
        let mut seen = [[0; 16]; MAX_BLOCKS];
        self.layout.pack_blocks(words, &mut seen[..self.inputs.block_count()]);
        // Who leaves later than that lets go by itself.
        let settled = self.absent_from().is_some_and(|last| last > next || last == next && !self.is_dropped);
        if !settled {
            self.substitute_input = seen;
        }
        if next.checked_sub(1).is_some_and(|frame| self.absence.contains(&frame)) {
            self.absence_input = seen;
        }
    }

    /// From when it leaves on, it does nothing.
    pub(super) fn use_neutral_substitute(&mut self) {
        (self.repeats_last_input, self.substitute_input) = (false, [[0; 16]; MAX_BLOCKS]);
    }

    /// It says that it is in a frame, having given its inputs before `end`.
    pub(super) fn on_frame(&mut self, frame: Frame, end: Frame, lag: u32) {
        self.reported_frame = self.reported_frame.max(frame);
        self.has_advance_inputs &= end > frame + lag + 1;
    }

    /// Once all its inputs are here, who was dropped goes on with the last; who gave none in this life, with what was done for it before.
    #[cold]
    fn adopt_last_input(&mut self) {
        let Some(last) = self.absent_from().filter(|last| *last <= self.inputs.end()) else { return };
        self.repeats_last_input = false;
        let given = last.checked_sub(1).filter(|frame| *frame >= self.inputs.start());
        if let Some(input) = given.and_then(|frame| self.inputs.value_blocks(frame)) {
            self.substitute_input[..input.len()].copy_from_slice(input);
        }
    }

    /// Settles what absent players do, as soon as that is known.
    #[inline]
    pub(super) fn settle_substitute_input(&mut self) {
        if self.repeats_last_input {
            self.adopt_last_input();
        }
    }

    /// The seat is taken from a frame on. All inputs of the last to have it must be here.
    /// If it is new there, its inputs begin with that frame; if we are, they go on.
    pub(super) fn reopen_seat(&mut self, first: Frame, own_width: usize, new: bool) {
        let last = self.absent_from().unwrap_or(first);
        self.settle_substitute_input();
        (self.absence, self.absence_input) = (last..first, self.substitute_input);
        self.inputs.restart(last, first, new);
        self.sender = match new {
            true => InputSender::for_late_joiner(first, own_width),
            false => InputSender::new(first, own_width),
        };
        self.seat = Seat::Free(last);
        self.join_frame = Some(first);
        self.unconsulted_from = None;
        (self.leave_after_join, self.has_advance_inputs, self.reported_frame) = (None, true, Frame::ZERO);
        self.is_forgery_reported = false;
        (self.lobby.join_readiness, self.lobby.is_admission_void) = (None, false);
        self.is_dropped = false;
        self.knows_own_leave = false;
        self.frame_digests = DigestHistory::default();
        self.last_agreed_frame = None;
        self.input_digest = if new { InputDigest::new(first) } else { InputDigest::with_unknown_start(first) };
        self.input_digests = DigestHistory::default();
        (self.stats.compared, self.stats.mismatches) = (0, 0);
        if self.incarnation == 0 {
            self.incarnation = self.newest_incarnation;
        }
    }

    /// The first of the frames from `from` to before `until` for which another input was guessed than there is; all of them are
    /// known.
    pub(super) fn first_misprediction(&self, from: Frame, until: Frame) -> Option<Frame> {
        let mut frame = from;
        while frame < until {
            let given = self.inputs.value_blocks(frame).filter(|_| !self.is_absent(frame));
            if given.unwrap_or(self.substitute_input(frame)) != self.predictions.get(frame) {
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
        let left = |last: &Frame| *last <= end && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().filter(left).map_or(end, Frame::next)
    }

    /// Forgets what it said before it was started anew.
    pub(super) fn reset_after_restart(&mut self) {
        self.clock = Clock::default();
        self.probes.newest_stamp = None;
        self.reports = MembershipReports::default();
        let LobbyState { is_hello_due: hello_due, has_played: playing, .. } = self.lobby;
        self.lobby = LobbyState { is_hello_due: hello_due, has_played: playing, ..LobbyState::default() };
    }

    /// Whether a stamp is newer than all that were heard.
    pub(super) fn is_newer_stamp(&self, stamp_us: i64) -> bool {
        self.probes.newest_stamp.is_none_or(|(newest, _)| stamp_us > newest)
    }

    /// Whether it plays, is heard, and waits for nothing but inputs.
    pub(super) fn is_steady(&self, now: Instant) -> bool {
        let tells_nothing = self.vote.is_none() && !self.reports.is_reporting();
        self.is_playing()
            && !self.was_restarted()
            && !self.needs_last_decision()
            && tells_nothing
            && now - self.last_received_at < LINK_CUT_TIMEOUT
    }

    /// Nobody else is asked for its inputs.
    pub(super) fn reset_relay_selector(&mut self, now: Instant) {
        self.relay_selector = RelaySelector::new(now);
    }

    /// How long it has been since anything of it came, directly or through others.
    pub(super) fn silence(&self, now: Instant) -> TimeDelta {
        now - self.last_received_at.max(self.last_input_at)
    }

    /// Whether another start of its program was heard than the one that plays.
    pub(super) fn was_restarted(&self) -> bool {
        self.newest_incarnation > self.incarnation
    }

    /// Takes in inputs that somebody passes on; returns 1 if they are of no use, else 0.
    pub(super) fn receive_relayed(&mut self, now: Instant, by: SiteId, relay: &RelayedInputs<'_>) -> u64 {
        let before = self.inputs.end();
        let useless = self.receive_inputs(Some(relay.first_frame), relay.frame_count, true, relay.changes);
        if self.inputs.end() > before {
            self.last_input_at = now;
            self.relay_selector.on_new_input(by);
        }
        useless
    }

    pub(super) fn on_received(&mut self, now: Instant, bytes: usize) {
        self.last_received_at = now;
        self.count_received(bytes);
    }

    pub(super) fn count_received(&mut self, bytes: usize) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes as u64;
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.last_sent_at = now;
        self.stats.packets_out += 1;
        self.stats.bytes_out += bytes as u64;
    }

    /// Takes in the inputs of a tick that ends before `end`; returns how many stretches of them were of no use.
    #[inline]
    pub(super) fn receive_tick_inputs(&mut self, now: Instant, end: Frame, tick: &Tick<'_>) -> u64 {
        let before = self.inputs.end();
        let mut useless = 0;
        if !tick.resends.is_empty() {
            for answer in tick.resends.iter() {
                let first = end.checked_sub(answer.end_minus_first);
                useless += self.receive_inputs(first, answer.frame_count, true, answer.changes);
            }
        }
        if tick.frame_count > 0 {
            useless += self.receive_inputs(
                end.checked_sub(tick.frame_count),
                tick.frame_count,
                tick.is_absolute,
                tick.changes,
            );
        }
        if self.inputs.end() > before {
            self.last_input_at = now;
        }
        useless
    }

    /// Returns 1 if these inputs are of no use, else 0.
    #[inline]
    fn receive_inputs(&mut self, first: Option<Frame>, len: u32, absolute: bool, changes: &[u8]) -> u64 {
        // Nobody's inputs begin before the first frame, or go on after the one with which it said to leave.
        let over = |until: Frame| self.join_frame.is_none() && self.absent_from().is_some_and(|last| until > last);
        let Some(first) = first.filter(|first| !over(*first + len)) else {
            return 1;
        };
        u64::from(self.inputs.receive(first, len, absolute, changes).is_err())
    }

    /// Takes in what the peer has of our inputs, and what it misses; returns 1 if that cannot be, else 0.
    #[inline]
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        end: Frame,
        tick: &Tick<'_>,
        own: &Stream,
        leaving: Option<Frame>,
    ) -> u64 {
        let Ok(ack) = u32::try_from(end - Frame::ZERO - i64::from(tick.end_minus_ack)) else { return 1 };
        let ack = Frame::new(ack);
        self.knows_own_leave |= leaving.is_some_and(|last| ack > last);
        if self.sender.on_ack(ack, own) || self.sender.acked() >= own.end() {
            self.last_ack_at = now;
        }
        if !tick.missing.is_empty() {
            self.sender.on_request(ack, &tick.missing);
        }
        0
    }

    /// The newest stamp heard, to tell an old packet from a new one.
    pub(super) fn newest_stamp_us(&self) -> Option<i64> {
        self.probes.newest_stamp.map(|(stamp, _)| stamp)
    }

    /// Takes in a stamp, and the round trip that an echo of one of ours completes; both in microseconds.
    pub(super) fn on_stamp(&mut self, now: Instant, stamp_us: i64, echo: Option<(i64, TimeDelta)>) {
        self.probes.first_received_at.get_or_insert(now);
        if self.probes.newest_stamp.is_none_or(|(newest, _)| stamp_us > newest) {
            self.probes.newest_stamp = Some((stamp_us, now));
            self.probes.is_echoed = false;
        }
        if let Some((sent_us, held)) = echo {
            let answered = instant_from_micros(stamp_us);
            let trip =
                RoundTrip { sent: instant_from_micros(sent_us), received: answered - held, answered, returned: now };
            self.clock.on_round_trip(trip);
        }
    }

    /// Takes in the probe of a tick, whose stamps are shortened; returns the full stamp, if it is news.
    pub(super) fn on_probe(&mut self, now: Instant, probe: &ClockProbe) -> Option<Instant> {
        let near = self.clock.to_remote(now).map(Instant::as_micros).or(self.newest_stamp_us());
        let stamp_us = expand_truncated(near.unwrap_or(0), probe.stamp_us as i64, 40);
        if !self.is_newer_stamp(stamp_us) {
            return None;
        }
        let echo = probe.echo.map(|(sent, held_ns)| {
            (expand_truncated(now.as_micros(), i64::from(sent), 32), TimeDelta::from_nanos(held_ns))
        });
        self.on_stamp(now, stamp_us, echo);
        Some(instant_from_micros(stamp_us))
    }

    /// Lets the next packet carry a probe.
    pub(super) fn make_probe_due(&mut self) {
        self.probes.last_sent_at = self.probes.last_sent_at - PROBE_INTERVAL;
    }

    /// Whether the next packet should carry a probe.
    pub(super) fn is_probe_due(&self, now: Instant) -> bool {
        let early = self.probes.first_received_at.is_none_or(|since| now - since < FAST_PROBE_PERIOD);
        // A little less than the nominal pause, because packets leave in whole frames.
        let pause = if early { FAST_PROBE_INTERVAL } else { PROBE_INTERVAL } - TimeDelta::from_millis(5);
        now - self.probes.last_sent_at >= pause
    }

    /// The stamp to echo, in microseconds of the peer's clock, and for how long it was held; each is echoed once.
    pub(super) fn take_echo(&mut self, now: Instant) -> Option<(i64, TimeDelta)> {
        self.probes.last_sent_at = now;
        let (stamp, received) = self.probes.newest_stamp.filter(|_| !self.probes.is_echoed)?;
        self.probes.is_echoed = true;
        Some((stamp, now - received))
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        let differences = self.lobby.differences.capacity() * size_of::<SettingsDifference>();
        let digests = self.frame_digests.memory() + self.input_digests.memory();
        let kept = self.inputs.memory() + self.predictions.memory() + digests + self.clock.memory();
        size_of::<Self>() + kept + differences
    }

    pub(super) fn stats(&self, now: Instant, own_end: Frame) -> PeerStats {
        PeerStats {
            rtt: self.clock.rtt().unwrap_or_default(),
            rtt_min: self.clock.rtt_min().unwrap_or_default(),
            jitter: self.clock.jitter(),
            loss: self.loss_meter.loss(),
            unacknowledged: (own_end - self.sender.acked()).max(0) as u32,
            silence: now - self.last_received_at,
            ..self.stats
        }
    }
}

fn instant_from_micros(us: i64) -> Instant {
    Instant::ZERO + TimeDelta::from_micros(us)
}

/// The number nearest to `near` of which only the low `bits` are known.
pub(super) fn expand_truncated(near: i64, low: i64, bits: u32) -> i64 {
    let shift = 64 - bits;
    near.wrapping_add(low.wrapping_sub(near) << shift >> shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_stamps_are_expanded_exactly() {
        for near in [0, -5_000_000, 1 << 40, 987_654_321_012_345] {
            for distance in [-1_000_000_000, -1, 0, 77, 2_000_000_000] {
                let full: i64 = near + distance;
                assert_eq!(expand_truncated(near, full & 0xffff_ffff, 32), full);
                assert_eq!(expand_truncated(near, full & 0xff_ffff_ffff, 40), full);
            }
        }
    }
}
