//! The state that a session keeps of one other site.

use alloc::vec::Vec;
use core::ops::Range;

use super::digest_history::{DigestHistory, FrameDigest};
use super::input_digest::InputDigest;
use super::membership_reports::MembershipReports;
use super::prediction::PredictedInputs;
use super::relay::RelaySelector;
use super::slow_peer::StallRecord;
use super::stats::{LossMeter, PeerStats};
use crate::clock::{Clock, RoundTrip};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteId, SiteSet};
use crate::input::{InputLayout, InputSender, InputWord, MAX_BLOCKS, PackedInputPart, Stream};
use crate::session::message::{ClockProbe, RelayedInputs, Tick, Vote};
use crate::settings::SettingsDifference;
use crate::time::{Instant, TimeDelta};

/// Duration of fast probing, from the first clock stamp that arrives from a peer.
const FAST_PROBE_PERIOD: TimeDelta = TimeDelta::from_secs(5);
/// Probe interval until the end of [`FAST_PROBE_PERIOD`].
const FAST_PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Probe interval after [`FAST_PROBE_PERIOD`].
const PROBE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);

/// Time without packets, or without acknowledgement of new inputs, after which one side may have lost the other's
/// address.
const ADDRESS_LOSS_TIMEOUT: TimeDelta = TimeDelta::from_millis(200);

/// Silence after which the direct link to a peer is taken to be cut, and other peers are asked for its inputs.
pub(super) const LINK_CUT_TIMEOUT: TimeDelta = TimeDelta::from_millis(150);
/// Silence after which a player counts as no longer playing with this site.
pub(super) const TICK_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(1);

/// State that a session keeps of one other site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) site: SiteId,
    pub(super) addr: Addr,
    pub(super) clock: Clock,
    pub(super) lobby: LobbyState,
    pub(super) layout: InputLayout,
    /// The peer's inputs that have arrived here, directly or through a relay.
    pub(super) inputs: Stream,
    /// The predicted inputs of stepped frames whose real inputs are missing.
    pub(super) predictions: PredictedInputs,
    /// When the gapless part of `inputs` last grew. May be set later after a ballot that dropped no site, if another
    /// player's vote spared the peer.
    pub(super) last_input_at: Instant,
    /// Sends this site's inputs and tracks which of them the peer has.
    pub(super) sender: InputSender,
    pub(super) seat: Seat,
    /// First frame in which an admitted joiner plays on this seat; `None` once the join command was applied or voided.
    pub(super) join_frame: Option<Frame>,
    /// End of an admitted joiner's inputs, if the joiner leaves before the join command is applied. The leave takes
    /// effect when that command is applied.
    pub(super) leave_after_join: Option<Frame>,
    /// Whether the peer may give inputs far ahead of the frame that it steps, as a joiner does at first.
    pub(super) has_advance_inputs: bool,
    /// The newest frame that the peer has reported to be in.
    pub(super) reported_frame: Frame,
    /// Whether the peer has all inputs of this site and knows that they are the last.
    pub(super) knows_own_leave: bool,
    /// Whether the host program was informed that this site holds forged inputs of the peer.
    pub(super) is_forgery_reported: bool,
    /// Whether the peer was dropped, or its admission was voided; the peer may not know that.
    pub(super) is_dropped: bool,
    /// Input of the peer's players from the end of its inputs on, while the peer is absent.
    pub(super) substitute_input: [PackedInputPart; MAX_BLOCKS],
    /// Whether `substitute_input` has to become the peer's last input once that is known.
    pub(super) repeats_last_input: bool,
    /// The frames in which the seat was free before the peer took it.
    pub(super) absence: Range<Frame>,
    /// Input in the frames of `absence`.
    pub(super) absence_input: [PackedInputPart; MAX_BLOCKS],
    /// Earliest frame in which a joiner may play on this seat. No packet of the seat's previous player can refer to it,
    /// so none is mistaken for a packet of the joiner.
    pub(super) seat_free_from: Frame,
    pub(super) stall_record: StallRecord,
    /// Whether the next packet requests missing inputs, with [`Recovery::Classic`](crate::input::Recovery::Classic).
    pub(super) is_request_due: bool,
    /// When this site repeats its request for missing inputs, with `Recovery::Classic`; `None` while none is missing.
    pub(super) next_request_at: Option<Instant>,
    /// The incarnation of the peer that plays; 0 if unknown.
    pub(super) incarnation: u32,
    /// The newest incarnation of the peer that has sent a hello or was admitted; 0 if unknown.
    pub(super) newest_incarnation: u32,
    /// The incarnation that had the seat before the newest command admitted another one.
    pub(super) previous_incarnation: u32,
    /// Whether the peer's received inputs do not count until the membership epoch ends, because this site reported an
    /// earlier end of them in its vote.
    pub(super) is_withheld: bool,
    /// The first frame that the peer may have stepped with inputs that do not count, because the others dropped a site
    /// after the peer had left.
    unconsulted_from: Option<Frame>,
    /// The peer's newest vote in the current epoch.
    pub(super) vote: Option<Vote>,
    /// Whether the peer's last vote was for an earlier epoch, so that the peer needs the decision that ended it.
    pub(super) has_old_epoch: bool,
    /// The peer's reports about how epochs ended and which sites left.
    pub(super) reports: MembershipReports,
    /// Choice of the site that relays the peer's inputs while its link to this site is cut.
    pub(super) relay_selector: RelaySelector,
    /// The peer may not know how the last epoch ended until it has acknowledged this site's input for this frame.
    pub(super) uninformed_until: Option<Frame>,
    /// Frame of a void join command. The peer may believe that it plays from this frame on.
    pub(super) void_join_frame: Option<Frame>,
    /// For each site whose inputs the peer asked this site to relay, the first frame that the peer lacks. Cleared when
    /// a tick to the peer is sent.
    pub(super) relay_requests: [Option<Frame>; MAX_SITES],
    pub(super) frame_digests: DigestHistory<FrameDigest>,
    /// Rolling hash of the peer's received inputs.
    pub(super) input_digest: InputDigest,
    /// Values of `input_digest` at compared frames.
    pub(super) input_digests: DigestHistory,
    /// The newest frame after which the peer's state was equal to this site's.
    pub(super) last_agreed_frame: Option<Frame>,
    pub(super) loss_meter: LossMeter,
    pub(super) stats: PeerStats,
    pub(super) last_received_at: Instant,
    /// When the peer last acknowledged a new input, or had acknowledged all of them.
    last_ack_at: Instant,
    /// Input end in the peer's newest tick, if this site was admitted more than once; else `None`. Ticks from before
    /// the last admission acknowledge inputs that the peer has discarded since.
    pub(super) newest_ack_tick: Option<Frame>,
    pub(super) last_sent_at: Instant,
    probes: ProbeState,
}

/// State of a site's seat in the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// The site plays, and its inputs are needed.
    Playing,
    /// The site's inputs end before this frame: it leaves, or was dropped.
    Leaving(Frame),
    /// The site's inputs end before this frame, and the seat is free for a joiner.
    Free(Frame),
}

/// The state of a peer that comes from its hellos: agreement on the settings, leaving, requests to join.
#[derive(Debug, Default)]
pub(super) struct LobbyState {
    pub(super) has_agreed: bool,
    /// Sites that the peer agrees with, as the last hello from it says.
    pub(super) agrees_with: SiteSet,
    /// Differences from the peer's settings, protocol version or site number, as last found; empty if none were found.
    pub(super) differences: Vec<SettingsDifference>,
    /// Whether the peer's newest hello announces that it leaves.
    pub(super) has_left: bool,
    /// Whether the peer plays or has played: its ticks have arrived, or the command that admits this site names it as a
    /// player. Cleared when the peer is dropped.
    pub(super) has_played: bool,
    /// Whether the last hello from the peer names this site's current incarnation.
    pub(super) knows_own_incarnation: bool,
    /// Whether the peer, which asks to join the running game, is ready to play; `None` if it does not ask to join.
    pub(super) join_readiness: Option<bool>,
    /// When the peer last asked to join.
    pub(super) join_requested_at: Option<Instant>,
    /// Whether the peer gives inputs for frames that were confirmed without it, because the command that admitted it
    /// was voided.
    pub(super) is_admission_void: bool,
}

/// State of the clock probes that this site exchanges with a peer.
#[derive(Debug)]
struct ProbeState {
    first_received_at: Option<Instant>,
    last_sent_at: Instant,
    /// The newest received stamp, in microseconds of the peer's clock, and its arrival time.
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
            stall_record: StallRecord::default(),
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
            void_join_frame: None,
            relay_requests: [None; MAX_SITES],
            frame_digests: DigestHistory::default(),
            input_digest: InputDigest::new(start),
            input_digests: DigestHistory::default(),
            last_agreed_frame: None,
            loss_meter: LossMeter::default(),
            stats: PeerStats::default(),
            last_received_at: now,
            last_ack_at: now,
            newest_ack_tick: None,
            last_sent_at: now - TimeDelta::from_secs(1),
            probes: ProbeState {
                first_received_at: None,
                last_sent_at: now - TimeDelta::from_secs(1),
                newest_stamp: None,
                is_echoed: false,
            },
        }
    }

    /// Returns whether the peer may have lost this site's address: one of the two does not receive the other's packets.
    pub(super) fn may_have_lost_address(&self, now: Instant, own: &Stream) -> bool {
        now - self.last_received_at > ADDRESS_LOSS_TIMEOUT
            || now - self.last_ack_at > ADDRESS_LOSS_TIMEOUT && self.sender.acked() < own.end()
    }

    /// Returns the end of the frames for which the peer's input is known: the input is received and not withheld, or
    /// will never come because the peer is absent.
    #[inline]
    pub(super) fn known_end(&self) -> Frame {
        match self.seat {
            Seat::Playing if self.is_withheld => self.inputs.start().min(self.inputs.end()),
            Seat::Playing => self.inputs.end(),
            Seat::Leaving(last) | Seat::Free(last) if self.inputs.end() < last => self.inputs.end(),
            Seat::Leaving(_) | Seat::Free(_) => self.join_frame.map_or(Frame::NEVER, |_| self.inputs.end()),
        }
    }

    /// Returns the first frame without the peer; `None` while the peer plays.
    pub(super) fn absent_from(&self) -> Option<Frame> {
        match self.seat {
            Seat::Playing => None,
            Seat::Leaving(last) | Seat::Free(last) => Some(last),
        }
    }

    /// Returns whether the peer has to be informed how the last epoch ended.
    pub(super) fn needs_last_decision(&self) -> bool {
        self.has_old_epoch || self.uninformed_until.is_some_and(|first| self.sender.acked() <= first)
    }

    pub(super) fn is_playing(&self) -> bool {
        self.seat == Seat::Playing
    }

    /// Returns whether the peer has inputs to come that the sites must agree on: it plays, or it leaves and some of its
    /// last inputs are missing.
    pub(super) fn is_awaited(&self) -> bool {
        let missing = |last: Frame| self.inputs.end() < last && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().is_none_or(missing)
    }

    /// Returns whether the peer was dropped, and some of its last inputs that another site had are still missing here.
    pub(super) fn lacks_last_inputs(&self) -> bool {
        self.is_dropped && self.join_frame.is_none() && self.absent_from().is_some_and(|last| self.inputs.end() < last)
    }

    /// Returns whether the peer left in an orderly way and all its inputs are known. Also holds for a seat that was
    /// free when the game started or when this site was admitted.
    pub(super) fn has_left(&self) -> bool {
        self.absent_from().is_some_and(|last| last <= self.inputs.end())
            && self.join_frame.is_none()
            && !self.is_dropped
    }

    /// Notes, at a peer that does not play, that other sites were dropped. `earliest` is the first frame without the
    /// inputs of one of them. A peer that has left gave no vote and may have stepped that frame with inputs that do not
    /// count.
    pub(super) fn mark_unconsulted(&mut self, earliest: Option<Frame>) {
        if !self.is_playing() {
            self.unconsulted_from = [self.unconsulted_from, earliest].into_iter().flatten().min();
        }
    }

    /// Returns whether the peer's state after a frame may contain inputs that do not count.
    pub(super) fn was_unconsulted(&self, frame: Frame) -> bool {
        self.unconsulted_from.is_some_and(|first| frame >= first)
    }

    /// Returns whether the seat is free and no joiner is about to take it. Such a peer gets a tick only as the answer
    /// to one of its own.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.seat, Seat::Free(_)) && self.join_frame.is_none()
    }

    /// Returns whether the peer gives no input for this frame, because it had left, was dropped, or had not joined yet.
    pub(super) fn is_absent(&self, frame: Frame) -> bool {
        let is_away =
            self.absent_from().is_some_and(|last| frame >= last) && self.join_frame.is_none_or(|first| frame < first);
        is_away || self.absence.contains(&frame)
    }

    /// Returns the input of the peer's players in a frame for which the peer gives none.
    pub(super) fn substitute_input(&self, frame: Frame) -> &[PackedInputPart] {
        let input = if self.absence.contains(&frame) { &self.absence_input } else { &self.substitute_input };
        &input[..self.inputs.block_count()]
    }

    /// Takes over the peer's bits in `words`, the players' words of the frame before `next`, as its substitute input,
    /// unless the peer's inputs end later, or end at `next` because it left. If the peer was absent in that frame,
    /// these bits are the substitute input that all sites use.
    pub(super) fn observe_substitute_input(&mut self, next: Frame, words: &[InputWord]) {
        let mut input = [[0; 16]; MAX_BLOCKS];
        self.layout.pack_blocks(words, &mut input[..self.inputs.block_count()]);
        // A peer that leaves later has neutral input from then on.
        let is_settled = self.absent_from().is_some_and(|last| last > next || last == next && !self.is_dropped);
        if !is_settled {
            self.substitute_input = input;
        }
        if next.checked_sub(1).is_some_and(|frame| self.absence.contains(&frame)) {
            self.absence_input = input;
        }
    }

    /// Makes the substitute input neutral, instead of the last input of the peer.
    pub(super) fn use_neutral_substitute(&mut self) {
        (self.repeats_last_input, self.substitute_input) = (false, [[0; 16]; MAX_BLOCKS]);
    }

    /// Handles the peer's report that it is in a frame and has given its inputs before `end`. If they end at most
    /// `input_delay` + 1 frames after that frame, the peer has stopped giving inputs in advance.
    pub(super) fn on_frame(&mut self, frame: Frame, end: Frame, input_delay: u32) {
        self.reported_frame = self.reported_frame.max(frame);
        self.has_advance_inputs &= end > frame + input_delay + 1;
    }

    /// Takes over the last input of a dropped peer once all its inputs are known. A peer that gave none since it joined
    /// keeps the substitute input from before.
    #[cold]
    fn adopt_last_input(&mut self) {
        let Some(last) = self.absent_from().filter(|last| *last <= self.inputs.end()) else { return };
        self.repeats_last_input = false;
        let last_frame = last.checked_sub(1).filter(|frame| *frame >= self.inputs.start());
        if let Some(input) = last_frame.and_then(|frame| self.inputs.value_blocks(frame)) {
            self.substitute_input[..input.len()].copy_from_slice(input);
        }
    }

    /// Sets the substitute input to the peer's last input, if that is to be repeated and is known.
    #[inline]
    pub(super) fn settle_substitute_input(&mut self) {
        if self.repeats_last_input {
            self.adopt_last_input();
        }
    }

    /// Reopens the seat for a joiner from a frame on. All inputs of the seat's previous player must be known. If the
    /// peer is the joiner (`new`), its inputs begin with that frame; if this site is the joiner, they continue.
    pub(super) fn reopen_seat(&mut self, first: Frame, own_width: usize, new: bool) {
        let last = self.absent_from().unwrap_or(first);
        self.stall_record.on_rejoin();
        self.settle_substitute_input();
        (self.absence, self.absence_input) = (last..first, self.substitute_input);
        self.inputs.restart(last, first, new);
        if new {
            // The frames while the seat was empty are not lost packets.
            self.loss_meter = LossMeter::default();
        }
        self.sender = match new {
            true => InputSender::for_late_joiner(first, own_width),
            false => InputSender::new(first, own_width),
        };
        self.seat = Seat::Free(last);
        (self.join_frame, self.void_join_frame) = (Some(first), None);
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

    /// Returns the first frame in `from..until` whose predicted input differs from the real one. The real inputs of the
    /// whole range must be known.
    pub(super) fn first_misprediction(&self, from: Frame, until: Frame) -> Option<Frame> {
        let mut frame = from;
        while frame < until {
            let real = self.inputs.value_blocks(frame).filter(|_| !self.is_absent(frame));
            if real.unwrap_or(self.substitute_input(frame)) != self.predictions.get(frame) {
                return Some(frame);
            }
            frame = frame.next();
        }
        None
    }

    /// Returns the acknowledgement to send to the peer: the end of its inputs that are known without a gap, or one
    /// frame more if the peer leaves and all its inputs are known. A dropped peer did not leave, and would take the
    /// additional frame for an acknowledged input.
    pub(super) fn acknowledgement(&self) -> Frame {
        let end = self.inputs.end();
        let left = |last: &Frame| *last <= end && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().filter(left).map_or(end, Frame::next)
    }

    /// Resets the clock, the reports and the lobby state that came from the previous incarnation of the peer.
    pub(super) fn reset_after_restart(&mut self) {
        self.clock = Clock::default();
        self.probes.newest_stamp = None;
        self.reports = MembershipReports::default();
        self.void_join_frame = None;
        self.lobby = LobbyState { has_played: self.lobby.has_played, ..LobbyState::default() };
    }

    /// Returns whether a stamp is newer than all received ones.
    pub(super) fn is_newer_stamp(&self, stamp_us: i64) -> bool {
        self.probes.newest_stamp.is_none_or(|(newest, _)| stamp_us > newest)
    }

    /// Returns whether only inputs have to be exchanged with the peer: it plays, was not restarted, has neither voted
    /// nor reported, needs no decision, and was received within [`LINK_CUT_TIMEOUT`].
    pub(super) fn is_steady(&self, now: Instant) -> bool {
        let has_no_reports = self.vote.is_none() && !self.reports.is_reporting();
        self.is_playing()
            && !self.was_restarted()
            && !self.needs_last_decision()
            && has_no_reports
            && now - self.last_received_at < LINK_CUT_TIMEOUT
    }

    /// Discards the choice of the site that relays the peer's inputs.
    pub(super) fn reset_relay_selector(&mut self, now: Instant) {
        self.relay_selector = RelaySelector::new(now);
    }

    /// Returns the time since a packet of the peer, or new inputs of the peer through a relay, last arrived.
    pub(super) fn silence(&self, now: Instant) -> TimeDelta {
        now - self.last_received_at.max(self.last_input_at)
    }

    /// Returns whether a newer incarnation of the peer is known than the one that plays.
    pub(super) fn was_restarted(&self) -> bool {
        self.newest_incarnation > self.incarnation
    }

    /// Receives inputs of this peer that another site relayed. Returns 1 if they are rejected, else 0.
    pub(super) fn receive_relayed(&mut self, now: Instant, relay_site: SiteId, relay: &RelayedInputs<'_>) -> u64 {
        let before = self.inputs.end();
        let useless = self.receive_inputs(Some(relay.first_frame), relay.frame_count, true, relay.changes);
        if self.inputs.end() > before {
            self.last_input_at = now;
            self.relay_selector.on_new_input(relay_site);
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

    /// Receives the new and the resent inputs of a tick. The new ones end before `end`. Returns the number of ranges
    /// that are rejected.
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

    /// Receives `len` inputs from `first` on. Returns 1 if they are rejected, else 0; `None` as `first` is always
    /// rejected.
    #[inline]
    fn receive_inputs(&mut self, first: Option<Frame>, len: u32, is_absolute: bool, changes: &[u8]) -> u64 {
        // No inputs are before the first frame or after the end that the peer announced.
        let is_past_end =
            |until: Frame| self.join_frame.is_none() && self.absent_from().is_some_and(|last| until > last);
        let Some(first) = first.filter(|first| !is_past_end(*first + len)) else {
            return 1;
        };
        u64::from(self.inputs.receive(first, len, is_absolute, changes).is_err())
    }

    /// Handles the acknowledgement and the requests for missing inputs in a peer's tick. The inputs of the tick end
    /// before `end`; those of this site end before `leaving` if it leaves. Returns 1 if the acknowledgement names a
    /// negative or too large frame number, else 0.
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
        if self.newest_ack_tick.is_some_and(|newest| end > newest) {
            self.newest_ack_tick = Some(end);
            self.sender.retract_ack(ack.max(own.start()));
        }
        if self.sender.on_ack(ack, own) || self.sender.acked() >= own.end() {
            self.last_ack_at = now;
        }
        if !tick.missing.is_empty() {
            self.sender.on_request(ack, &tick.missing);
        }
        0
    }

    /// Returns the newest received stamp in microseconds of the peer's clock, which separates old packets from new
    /// ones.
    pub(super) fn newest_stamp_us(&self) -> Option<i64> {
        self.probes.newest_stamp.map(|(stamp, _)| stamp)
    }

    /// Handles a stamp, and the round trip that the echo of one of this site's stamps completes. Both stamps are in
    /// microseconds; `echo` includes the time for which the peer held the stamp.
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

    /// Handles the probe of a tick, whose stamps are truncated. Returns the full stamp if it is newer than all stamps
    /// received before.
    pub(super) fn on_probe(&mut self, now: Instant, probe: &ClockProbe) -> Option<Instant> {
        let near_us = self.clock.to_remote(now).map(Instant::as_micros).or(self.newest_stamp_us());
        let stamp_us = expand_truncated(near_us.unwrap_or(0), probe.stamp_us as i64, 40);
        if !self.is_newer_stamp(stamp_us) {
            return None;
        }
        let echo = probe.echo.map(|(sent_us, held_ns)| {
            (expand_truncated(now.as_micros(), i64::from(sent_us), 32), TimeDelta::from_nanos(held_ns))
        });
        self.on_stamp(now, stamp_us, echo);
        Some(instant_from_micros(stamp_us))
    }

    /// Makes the next packet carry a probe.
    pub(super) fn make_probe_due(&mut self) {
        self.probes.last_sent_at = self.probes.last_sent_at - PROBE_INTERVAL;
    }

    /// Returns whether the next packet has to carry a probe.
    pub(super) fn is_probe_due(&self, now: Instant) -> bool {
        let is_early = self.probes.first_received_at.is_none_or(|since| now - since < FAST_PROBE_PERIOD);
        // A little less than the nominal interval, because packets leave in whole frames.
        let interval = if is_early { FAST_PROBE_INTERVAL } else { PROBE_INTERVAL } - TimeDelta::from_millis(5);
        now - self.probes.last_sent_at >= interval
    }

    /// Returns the stamp to echo, in microseconds of the peer's clock, and the time for which it was held. Notes that a
    /// probe is sent now. Each stamp is echoed once.
    pub(super) fn take_echo(&mut self, now: Instant) -> Option<(i64, TimeDelta)> {
        self.probes.last_sent_at = now;
        let (stamp, received) = self.probes.newest_stamp.filter(|_| !self.probes.is_echoed)?;
        self.probes.is_echoed = true;
        Some((stamp, now - received))
    }

    /// Returns the memory use of this struct and its heap data, in bytes.
    pub(super) fn memory(&self) -> usize {
        let differences = self.lobby.differences.capacity() * size_of::<SettingsDifference>();
        let digests = self.frame_digests.memory() + self.input_digests.memory();
        let heap = self.inputs.memory() + self.predictions.memory() + digests + self.clock.memory();
        size_of::<Self>() + heap + differences
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

/// Returns the number nearest to `near` whose low `bits` bits are those of `low`.
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
