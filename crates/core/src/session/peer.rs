//! Another site, as seen from this one: its seat, its inputs, and the link to it.
//!
//! - [`Peer::known_end`] never exceeds the inputs that count: received ones that are not withheld, or any frame from
//!   the end of the peer's inputs on while it is absent.
//! - A seat that is reopened takes no packet of its previous player for one of the joiner's.
//! - Received inputs after the end that a leaving or dropped peer announced are rejected.
//!
//! Parts that know more about a peer, such as its votes, keep that in lists of their own, in the order of the peers.

use super::probes::{Probes, expand_truncated};
use super::stats::{LossMeter, PeerStats};
use super::substitute_input::SubstituteInput;
use crate::clock::{Clock, RoundTrip};
use crate::codec::{BufferFull, ByteWriter};
use crate::frame::Frame;
use crate::id::{Addr, SiteId};
use crate::input::{InputLayout, InputSender, InputWord, MAX_BLOCKS, PackedInputPart, Recovery, SendPlan, Stream};
use crate::session::message::{ClockProbe, RelayedInputs, Tick};
use crate::time::{Instant, TimeDelta};

/// Time without packets, or without acknowledgement of new inputs, after which one side may have lost the other's
/// address.
const ADDRESS_LOSS_TIMEOUT: TimeDelta = TimeDelta::from_millis(200);
/// Number of mean deviations of the round-trip time that are added to it until a request is repeated.
const REQUEST_DEVIATIONS: i64 = 4;

/// Silence after which the direct link to a peer is taken to be cut, and other peers are asked for its inputs.
pub(super) const LINK_CUT_TIMEOUT: TimeDelta = TimeDelta::from_millis(150);
/// Silence after which a player counts as no longer playing with this site.
pub(super) const TICK_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(1);

/// State of another site.
#[derive(Debug)]
pub(super) struct Peer {
    site: SiteId,
    addr: Addr,
    clock: Clock,
    layout: InputLayout,
    /// The peer's inputs that have arrived here, directly or through a relay.
    inputs: Stream,
    /// When the gapless part of `inputs` last grew. May be set later after a ballot that dropped no site, if another
    /// player's vote spared the peer.
    last_input_at: Instant,
    /// Sends this site's inputs and tracks which of them the peer has.
    sender: InputSender,
    seat: Seat,
    /// First frame in which an admitted joiner plays on this seat; `None` once the join command was applied or voided.
    join_frame: Option<Frame>,
    /// End of an admitted joiner's inputs, if the joiner leaves before the join command is applied. The leave takes
    /// effect when that command is applied.
    leave_after_join: Option<Frame>,
    /// Earliest frame in which a joiner may play on this seat. No packet of the seat's previous player can refer to it,
    /// so none is mistaken for a packet of the joiner.
    seat_free_from: Frame,
    /// Whether the peer was dropped, or its admission was voided; the peer may not know that.
    is_dropped: bool,
    /// Whether the peer plays or has played: its ticks have arrived, or the command that admits this site names it as a
    /// player. Cleared when the peer is dropped.
    has_played: bool,
    /// Whether the peer may give inputs far ahead of the frame that it steps, as a joiner does at first.
    has_advance_inputs: bool,
    /// The newest frame that the peer has reported to be in.
    reported_frame: Frame,
    /// Whether the peer has all inputs of this site and knows that they are the last.
    knows_own_leave: bool,
    substitute: SubstituteInput,
    /// Whether the next packet requests missing inputs, with [`Recovery::Classic`].
    is_request_due: bool,
    /// When this site repeats its request for missing inputs, with [`Recovery::Classic`]; `None` while none is missing.
    next_request_at: Option<Instant>,
    /// The incarnation of the peer that plays; 0 if unknown.
    incarnation: u32,
    /// The newest incarnation of the peer that has sent a hello or was admitted; 0 if unknown.
    newest_incarnation: u32,
    /// The incarnation that had the seat before the newest command admitted another one.
    previous_incarnation: u32,
    /// Whether the peer's received inputs do not count until the membership epoch ends, because this site reported an
    /// earlier end of them in its vote.
    is_withheld: bool,
    loss_meter: LossMeter,
    stats: PeerStats,
    last_received_at: Instant,
    /// When the peer last acknowledged a new input, or had acknowledged all of them.
    last_ack_at: Instant,
    /// Input end in the peer's newest tick, if this site was admitted more than once; else `None`. Ticks from before
    /// the last admission acknowledge inputs that the peer has discarded since.
    newest_ack_tick: Option<Frame>,
    last_sent_at: Instant,
    probes: Probes,
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

/// The effect of a peer's leave on its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaveEffect {
    /// The announced end of the inputs cannot be right.
    Ignored,
    /// The peer is admitted and does not play yet: the leave counts only once the join command does. If that command
    /// turns out to be void, the seat was never taken.
    AfterJoin,
    /// The peer's inputs end.
    Leaves,
}

impl Peer {
    /// Creates a peer that plays, whose inputs and those of this site begin with `start`. `own_width` is the width of
    /// this site's inputs, in bytes.
    pub(super) fn new(
        now: Instant,
        site: SiteId,
        addr: Addr,
        layout: InputLayout,
        start: Frame,
        own_width: usize,
    ) -> Self {
        Self {
            site,
            addr,
            clock: Clock::default(),
            inputs: Stream::new(layout.width(), start),
            layout,
            last_input_at: now,
            sender: InputSender::new(start, own_width),
            seat: Seat::Playing,
            join_frame: None,
            leave_after_join: None,
            seat_free_from: Frame::ZERO,
            is_dropped: false,
            has_played: false,
            has_advance_inputs: false,
            reported_frame: Frame::ZERO,
            knows_own_leave: false,
            substitute: SubstituteInput::default(),
            is_request_due: false,
            next_request_at: None,
            incarnation: 0,
            newest_incarnation: 0,
            previous_incarnation: 0,
            is_withheld: false,
            loss_meter: LossMeter::default(),
            stats: PeerStats::default(),
            last_received_at: now,
            last_ack_at: now,
            newest_ack_tick: None,
            last_sent_at: now - TimeDelta::from_secs(1),
            probes: Probes::new(now),
        }
    }

    #[inline]
    pub(super) fn site(&self) -> SiteId {
        self.site
    }

    #[inline]
    pub(super) fn addr(&self) -> Addr {
        self.addr
    }

    /// Sends to this address from now on.
    pub(super) fn move_to(&mut self, addr: Addr) {
        self.addr = addr;
    }

    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    pub(super) fn layout(&self) -> &InputLayout {
        &self.layout
    }

    #[inline]
    pub(super) fn inputs(&self) -> &Stream {
        &self.inputs
    }

    #[inline]
    pub(super) fn last_input_at(&self) -> Instant {
        self.last_input_at
    }

    /// Shortens the time without new inputs that counts: they count as received at `at` at the earliest.
    pub(super) fn excuse_missing_inputs(&mut self, at: Instant) {
        self.last_input_at = self.last_input_at.max(at);
    }

    // ---- Seat

    pub(super) fn seat(&self) -> Seat {
        self.seat
    }

    #[inline]
    pub(super) fn join_frame(&self) -> Option<Frame> {
        self.join_frame
    }

    pub(super) fn seat_free_from(&self) -> Frame {
        self.seat_free_from
    }

    #[inline]
    pub(super) fn is_dropped(&self) -> bool {
        self.is_dropped
    }

    #[inline]
    pub(super) fn has_played(&self) -> bool {
        self.has_played
    }

    /// Records that the peer plays, because a tick of it has arrived.
    #[inline]
    pub(super) fn on_tick(&mut self) {
        self.has_played = true;
    }

    #[inline]
    pub(super) fn is_playing(&self) -> bool {
        self.seat == Seat::Playing
    }

    /// Returns whether the peer plays, or is admitted to play.
    pub(super) fn has_seat(&self) -> bool {
        self.is_playing() || self.join_frame.is_some()
    }

    /// Returns whether the seat is free and no joiner is about to take it. Such a peer gets a tick only as the answer
    /// to one of its own.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        matches!(self.seat, Seat::Free(_)) && self.join_frame.is_none()
    }

    /// Returns whether a site was dropped and has not joined again.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_dropped && self.join_frame.is_none()
    }

    /// Returns the first frame without the peer; `None` while the peer plays.
    #[inline]
    pub(super) fn absent_from(&self) -> Option<Frame> {
        match self.seat {
            Seat::Playing => None,
            Seat::Leaving(last) | Seat::Free(last) => Some(last),
        }
    }

    /// Returns whether the peer gives no input for this frame, because it had left, was dropped, or had not joined yet.
    #[inline]
    pub(super) fn is_absent(&self, frame: Frame) -> bool {
        let is_away =
            self.absent_from().is_some_and(|last| frame >= last) && self.join_frame.is_none_or(|first| frame < first);
        is_away || self.substitute.was_absent(frame)
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

    /// Returns whether the peer has inputs to come that the sites must agree on: it plays, or it leaves and some of its
    /// last inputs are missing.
    pub(super) fn is_awaited(&self) -> bool {
        let missing = |last: Frame| self.inputs.end() < last && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().is_none_or(missing)
    }

    /// Returns whether the peer was dropped, and some of its last inputs that another site had are still missing here.
    pub(super) fn lacks_last_inputs(&self) -> bool {
        self.is_abandoned() && self.absent_from().is_some_and(|last| self.inputs.end() < last)
    }

    /// Returns whether the peer left in an orderly way and all its inputs are known. Also holds for a seat that was
    /// free when the game started or when this site was admitted.
    pub(super) fn has_left(&self) -> bool {
        self.absent_from().is_some_and(|last| last <= self.inputs.end())
            && self.join_frame.is_none()
            && !self.is_dropped
    }

    /// Returns whether other sites have to relay the peer's inputs: some are still to come and its link to this site is
    /// cut, or the peer was dropped and some of its last inputs are missing. Inputs of a muted player are not relayed.
    #[inline]
    pub(super) fn needs_relay(&self, now: Instant, is_muted: bool) -> bool {
        match self.absent_from() {
            Some(last) if self.join_frame.is_none() => {
                self.inputs.end() < last && (self.is_dropped || now - self.last_received_at > LINK_CUT_TIMEOUT)
            }
            _ => !is_muted && now - self.last_received_at > LINK_CUT_TIMEOUT,
        }
    }

    /// Handles the peer's announcement that its inputs end before `last`.
    pub(super) fn on_leave(&mut self, last: Frame) -> LeaveEffect {
        let is_near = last >= self.inputs.received_end()
            && last - self.inputs.end() < i64::from(crate::input::STREAM_CAPACITY as u32);
        // For a site that joined later, the peer may have left before the join.
        let has_left_before = last <= self.inputs.start() && self.inputs.received_end() == self.inputs.start();
        match () {
            () if !is_near && !has_left_before => LeaveEffect::Ignored,
            () if self.join_frame.is_some() => {
                self.leave_after_join = Some(last.max(self.inputs.start()));
                LeaveEffect::AfterJoin
            }
            () if self.is_playing() => LeaveEffect::Leaves,
            () => LeaveEffect::Ignored,
        }
    }

    /// Ends the peer's inputs before `last`, because it leaves. Its players' input is neutral from then on.
    pub(super) fn leave(&mut self, last: Frame) {
        self.seat = Seat::Leaving(last);
        self.substitute.use_neutral();
    }

    /// Ends the peer's inputs before `last`, because it was dropped. A joiner may take the seat from `free_from` on.
    pub(super) fn drop_after(&mut self, last: Frame, free_from: Frame, repeats_last_input: bool) {
        (self.seat, self.is_dropped, self.has_played) = (Seat::Leaving(last), true, false);
        self.seat_free_from = free_from;
        match repeats_last_input {
            true => self.substitute.repeat_last(),
            false => self.substitute.use_neutral(),
        }
    }

    /// Lowers the end of a dropped peer's inputs to `last`, but not below the end of the inputs received here. The
    /// inputs after that were lost with the sites that had them, and do not count. Returns the new end.
    pub(super) fn shorten_last_inputs(&mut self, last: Frame) -> Option<Frame> {
        let last = last.max(self.inputs.end());
        let is_shorter = self.lacks_last_inputs() && self.absent_from().is_none_or(|before| before > last);
        if is_shorter {
            self.seat = Seat::Leaving(last);
        }
        is_shorter.then_some(last)
    }

    /// Frees the seat of a peer that left or was dropped.
    pub(super) fn free_seat(&mut self) {
        if let Seat::Leaving(last) = self.seat {
            self.seat = Seat::Free(last);
        }
    }

    /// Frees a seat that was never taken.
    pub(super) fn vacate(&mut self) {
        self.seat = Seat::Free(Frame::ZERO);
    }

    /// Withholds the peer's received inputs until the membership epoch ends.
    pub(super) fn withhold_inputs(&mut self) {
        self.is_withheld = true;
    }

    /// Returns whether received inputs of the peer do not count until the membership epoch ends.
    pub(super) fn is_withheld(&self) -> bool {
        self.is_withheld
    }

    /// Lets the received inputs count again, because the membership epoch has ended.
    pub(super) fn accept_withheld(&mut self) {
        self.is_withheld = false;
    }

    /// Admits a joiner, whose incarnation is `incarnation`, to this seat from frame `first` on. The joiner leaves
    /// before its first frame if it `has_left` already.
    pub(super) fn admit(&mut self, now: Instant, first: Frame, own_width: usize, incarnation: u32, has_left: bool) {
        self.previous_incarnation = self.incarnation;
        self.reopen_seat(first, own_width, true);
        self.leave_after_join = has_left.then_some(first);
        self.last_received_at = now;
        self.incarnation = incarnation;
        self.newest_incarnation = self.newest_incarnation.max(incarnation);
        self.probes.make_due();
    }

    /// Completes a join: the peer plays from now on. Returns the end of its inputs if it has left already.
    pub(super) fn complete_join(&mut self) -> Option<Frame> {
        (self.seat, self.join_frame) = (Seat::Playing, None);
        self.leave_after_join.take()
    }

    /// Takes back the admission of a joiner, because the command that admitted it is void. A joiner that never got the
    /// command keeps asking, and another command will admit it.
    pub(super) fn void_join(&mut self) {
        (self.join_frame, self.leave_after_join, self.is_dropped) = (None, None, true);
        self.incarnation = self.previous_incarnation;
    }

    /// Prepares the seat for this site's admission from frame `first` on: the peer is a player (`is_member`), or its
    /// seat is free. `is_repeated` tells whether another command has admitted this site before.
    pub(super) fn prepare_own_join(
        &mut self,
        now: Instant,
        first: Frame,
        own_width: usize,
        (is_member, is_repeated): (bool, bool),
    ) {
        self.seat = Seat::Free(Frame::ZERO);
        self.newest_ack_tick = is_repeated.then_some(Frame::ZERO);
        (self.join_frame, self.leave_after_join, self.is_withheld) = (None, None, false);
        if is_member {
            self.reopen_seat(first, own_width, false);
            (self.seat, self.join_frame, self.has_played) = (Seat::Playing, None, true);
            self.last_received_at = now;
        } else {
            // A site outside the game may have claimed to play, because its admission turned out to be void. It may ask
            // again.
            self.incarnation = 0;
        }
    }

    /// Reopens the seat for a joiner from a frame on. All inputs of the seat's previous player must be known. If the
    /// peer is the joiner (`is_joiner`), its inputs begin with that frame; if this site is the joiner, they continue.
    fn reopen_seat(&mut self, first: Frame, own_width: usize, is_joiner: bool) {
        let last = self.absent_from().unwrap_or(first);
        self.settle_substitute_input();
        self.substitute.end_absence(last..first);
        self.inputs.restart(last, first, is_joiner);
        if is_joiner {
            // The frames while the seat was empty are not lost packets.
            self.loss_meter = LossMeter::default();
        }
        self.sender = match is_joiner {
            true => InputSender::for_late_joiner(first, own_width),
            false => InputSender::new(first, own_width),
        };
        (self.seat, self.join_frame) = (Seat::Free(last), Some(first));
        (self.leave_after_join, self.has_advance_inputs, self.reported_frame) = (None, true, Frame::ZERO);
        (self.is_dropped, self.knows_own_leave) = (false, false);
        if self.incarnation == 0 {
            self.incarnation = self.newest_incarnation;
        }
    }

    // ---- Incarnations

    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub(super) fn newest_incarnation(&self) -> u32 {
        self.newest_incarnation
    }

    /// Returns whether a newer incarnation of the peer is known than the one that plays.
    #[inline]
    pub(super) fn was_restarted(&self) -> bool {
        self.newest_incarnation > self.incarnation
    }

    /// Returns whether this is an incarnation after the newest known one.
    pub(super) fn is_restart(&self, incarnation: u32) -> bool {
        self.newest_incarnation != 0 && incarnation > self.newest_incarnation
    }

    /// Records the incarnation that sends hellos. `will_play` tells whether it is the one that plays.
    pub(super) fn on_incarnation(&mut self, incarnation: u32, will_play: bool) {
        self.newest_incarnation = incarnation;
        if will_play {
            self.incarnation = incarnation;
        }
    }

    /// Resets the clock and the stamps that came from the previous incarnation of the peer.
    pub(super) fn reset_after_restart(&mut self) {
        self.clock = Clock::default();
        self.probes.forget_stamps();
    }

    // ---- Substitute input

    /// Returns the input of the peer's players in a frame for which the peer gives none.
    #[inline]
    pub(super) fn substitute_input(&self, frame: Frame) -> &[PackedInputPart] {
        &self.substitute.get(frame)[..self.inputs.block_count()]
    }

    /// Returns the input of the peer's players in the frames before the peer took its seat.
    pub(super) fn absence_input(&self) -> &[PackedInputPart] {
        &self.substitute.absence_input()[..self.inputs.block_count()]
    }

    /// Takes over the peer's bits in `words`, the players' words of the frame before `next`, as its substitute input,
    /// unless the peer's inputs end later, or end at `next` because it left. If the peer was absent in that frame,
    /// these bits are the substitute input that all sites use.
    pub(super) fn observe_substitute_input(&mut self, next: Frame, words: &[InputWord]) {
        let mut input = [[0; 16]; MAX_BLOCKS];
        self.layout.pack_blocks(words, &mut input[..self.inputs.block_count()]);
        // A peer that leaves later has neutral input from then on.
        let is_settled = self.absent_from().is_some_and(|last| last > next || last == next && !self.is_dropped);
        let was_absent = next.checked_sub(1).is_some_and(|frame| self.substitute.was_absent(frame));
        self.substitute.observe(input, !is_settled, was_absent);
    }

    /// Sets the substitute input to the peer's last input, if that is to be repeated and is known.
    #[inline]
    pub(super) fn settle_substitute_input(&mut self) {
        self.substitute.settle(self.absent_from(), &self.inputs);
    }

    // ---- Inputs

    /// Receives inputs of this peer that another site relayed. Returns 1 if they are rejected, else 0, and whether they
    /// are new.
    pub(super) fn receive_relayed(&mut self, now: Instant, relay: &RelayedInputs<'_>) -> (u64, bool) {
        let before = self.inputs.end();
        let useless = self.receive_inputs(Some(relay.first_frame), relay.frame_count, true, relay.changes);
        let are_new = self.inputs.end() > before;
        if are_new {
            self.last_input_at = now;
        }
        (useless, are_new)
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

    /// Handles the peer's report that it is in a frame and has given its inputs before `end`. If they end at most
    /// `input_delay` + 1 frames after that frame, the peer has stopped giving inputs in advance.
    pub(super) fn on_frame(&mut self, frame: Frame, end: Frame, input_delay: u32) {
        self.reported_frame = self.reported_frame.max(frame);
        self.has_advance_inputs &= end > frame + input_delay + 1;
    }

    #[inline]
    pub(super) fn has_advance_inputs(&self) -> bool {
        self.has_advance_inputs
    }

    pub(super) fn reported_frame(&self) -> Frame {
        self.reported_frame
    }

    /// Returns whether the next packet to the peer requests missing inputs.
    #[inline]
    pub(super) fn requests_missing_inputs(&self, recovery: Recovery) -> bool {
        !self.inputs.is_gapless() && (recovery != Recovery::Classic || self.is_request_due)
    }

    /// Makes the next packet request missing inputs if some are missing and the last request has had time to be
    /// answered, with [`Recovery::Classic`]. Returns whether it does.
    pub(super) fn request_missing_inputs(&mut self, now: Instant) -> bool {
        let has_gap = !self.inputs.is_gapless();
        if !has_gap {
            self.next_request_at = None;
        }
        let is_due = has_gap && self.next_request_at.is_none_or(|at| at <= now);
        if is_due {
            self.is_request_due = true;
            let answer_time = self.clock.rtt().unwrap_or_default() * 3 / 2 + self.clock.jitter() * REQUEST_DEVIATIONS;
            self.next_request_at = Some(now + answer_time.min(self.clock.max_plausible_rtt()));
        }
        is_due
    }

    // ---- Own inputs

    /// Returns the end of this site's inputs that the peer has acknowledged.
    #[inline]
    pub(super) fn acked(&self) -> Frame {
        self.sender.acked()
    }

    /// Returns whether the peer has all inputs of this site and knows that they are the last.
    pub(super) fn knows_own_leave(&self) -> bool {
        self.knows_own_leave
    }

    /// Returns whether some of this site's inputs were not sent to the peer.
    pub(super) fn has_unsent(&self, own: &Stream) -> bool {
        self.sender.has_unsent(own)
    }

    /// Plans which inputs of this site the next tick carries.
    #[inline]
    pub(super) fn plan_tick(&self, recovery: Recovery, own: &Stream, has_extras: bool) -> SendPlan {
        self.sender.plan(recovery, own, has_extras)
    }

    /// Returns whether the next tick, whose new inputs end before `end`, carries inputs that the peer requested.
    #[inline]
    pub(super) fn has_resends(&self, now: Instant, own: &Stream, end: Frame) -> bool {
        self.sender.has_resends(now, &self.clock, own, end)
    }

    /// Encodes the inputs that the peer requested.
    pub(super) fn encode_resends(
        &mut self,
        now: Instant,
        own: &Stream,
        end: Frame,
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        self.sender.encode_resends(now, &self.clock, own, end, writer)
    }

    /// Records that a tick with this plan was encoded.
    #[inline]
    pub(super) fn on_tick_encoded(&mut self, plan: &SendPlan) {
        self.sender.on_sent(plan);
        self.is_request_due = false;
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

    /// Returns the acknowledgement to send to the peer: the end of its inputs that are known without a gap, or one
    /// frame more if the peer leaves and all its inputs are known. A dropped peer did not leave, and would take the
    /// additional frame for an acknowledged input.
    #[inline]
    pub(super) fn acknowledgement(&self) -> Frame {
        let end = self.inputs.end();
        let left = |last: &Frame| *last <= end && self.join_frame.is_none() && !self.is_dropped;
        self.absent_from().filter(left).map_or(end, Frame::next)
    }

    // ---- Link

    #[inline]
    pub(super) fn last_received_at(&self) -> Instant {
        self.last_received_at
    }

    #[inline]
    pub(super) fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// Returns the time since a packet of the peer, or new inputs of the peer through a relay, last arrived.
    pub(super) fn silence(&self, now: Instant) -> TimeDelta {
        now - self.last_received_at.max(self.last_input_at)
    }

    /// Does not count this much time, in which the host program was suspended, as silence.
    pub(super) fn excuse_silence(&mut self, away: TimeDelta) {
        self.last_received_at += away;
    }

    /// Returns whether the peer may have lost this site's address: one of the two does not receive the other's packets.
    #[inline]
    pub(super) fn may_have_lost_address(&self, now: Instant, own: &Stream) -> bool {
        now - self.last_received_at > ADDRESS_LOSS_TIMEOUT
            || now - self.last_ack_at > ADDRESS_LOSS_TIMEOUT && self.sender.acked() < own.end()
    }

    /// Returns whether only inputs have to be exchanged with the peer: it plays, was not restarted, and was received
    /// within [`LINK_CUT_TIMEOUT`].
    pub(super) fn is_steady(&self, now: Instant) -> bool {
        self.is_playing() && !self.was_restarted() && now - self.last_received_at < LINK_CUT_TIMEOUT
    }

    #[inline]
    pub(super) fn on_received(&mut self, now: Instant, bytes: usize) {
        self.last_received_at = now;
        self.count_received(bytes);
    }

    #[inline]
    pub(super) fn count_received(&mut self, bytes: usize) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += bytes as u64;
    }

    /// Counts a tick whose inputs end before `end` for the measurement of the loss.
    #[inline]
    pub(super) fn count_tick(&mut self, end: Frame) {
        self.loss_meter.on_packet(end);
    }

    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.last_sent_at = now;
        self.stats.packets_out += 1;
        self.stats.bytes_out += bytes as u64;
    }

    /// Returns the number of packets that were sent to the peer.
    pub(super) fn packets_out(&self) -> u64 {
        self.stats.packets_out
    }

    /// Returns whether a stamp is newer than all received ones.
    pub(super) fn is_newer_stamp(&self, stamp_us: i64) -> bool {
        self.probes.is_newer(stamp_us)
    }

    /// Returns the full stamp, in microseconds, of which a probe of a peer that may have moved carries the low bits.
    pub(super) fn expand_stamp(&self, low: u64) -> i64 {
        expand_truncated(self.probes.newest_stamp_us().unwrap_or(0), low as i64, 40)
    }

    /// Handles a stamp, and the round trip that the echo of one of this site's stamps completes. Both stamps are in
    /// microseconds; `echo` includes the time for which the peer held the stamp.
    pub(super) fn on_stamp(&mut self, now: Instant, stamp_us: i64, echo: Option<(i64, TimeDelta)>) {
        self.probes.on_stamp(now, stamp_us);
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
        let near_us = self.clock.to_remote(now).map(Instant::as_micros).or(self.probes.newest_stamp_us());
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
        self.probes.make_due();
    }

    /// Returns whether the next packet has to carry a probe.
    #[inline]
    pub(super) fn is_probe_due(&self, now: Instant) -> bool {
        self.probes.is_due(now)
    }

    /// Returns the stamp to echo, in microseconds of the peer's clock, and the time for which it was held. Notes that a
    /// probe is sent now.
    pub(super) fn take_echo(&mut self, now: Instant) -> Option<(i64, TimeDelta)> {
        self.probes.take_echo(now)
    }

    /// Records by how much this site is behind the peer's plan.
    pub(super) fn set_lead(&mut self, lead: TimeDelta) {
        self.stats.lead = lead;
    }

    pub(super) fn stats(&self, now: Instant, own_end: Frame) -> PeerStats {
        let (resend_requests, resends) = self.sender.request_and_resend_counts();
        PeerStats {
            rtt: self.clock.rtt().unwrap_or_default(),
            rtt_min: self.clock.rtt_min().unwrap_or_default(),
            jitter: self.clock.jitter(),
            loss: self.loss_meter.loss(),
            unacknowledged: (own_end - self.sender.acked()).max(0) as u32,
            silence: now - self.last_received_at,
            resend_requests,
            resends,
            ..self.stats
        }
    }

    /// Returns the memory use of this struct and its heap data, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.inputs.memory() + self.clock.memory()
    }

    /// Gives the peer the inputs of a stream before `end`, as if they had arrived in a tick.
    #[cfg(test)]
    pub(super) fn give_inputs(&mut self, stream: &Stream, end: Frame) {
        let first = self.inputs.end();
        let mut buf = [0; 1_024];
        let mut writer = ByteWriter::new(&mut buf);
        stream.encode(&mut writer, first, end, true).unwrap();
        let len = writer.len();
        assert_eq!(self.receive_inputs(Some(first), (end - first) as u32, true, &buf[..len]), 0);
    }
}

fn instant_from_micros(us: i64) -> Instant {
    Instant::ZERO + TimeDelta::from_micros(us)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Ownership;

    fn peer() -> Peer {
        let site = SiteId::new(1).unwrap();
        Peer::new(Instant::ZERO, site, Addr(1), Ownership::one_player_per_site(2, 0xff).layout(site), Frame::ZERO, 1)
    }

    fn inputs(count: u32) -> Stream {
        let mut inputs = Stream::new(1, Frame::ZERO);
        (0..count).for_each(|frame| inputs.push(&[frame as u8]));
        inputs
    }

    #[test]
    fn leaver_is_awaited_until_its_last_input_arrives() {
        let mut peer = peer();
        peer.give_inputs(&inputs(20), Frame::new(10));
        assert_eq!(peer.on_leave(Frame::new(9)), LeaveEffect::Ignored, "the inputs before frame 10 have arrived");
        assert_eq!(peer.on_leave(Frame::new(12)), LeaveEffect::Leaves);
        peer.leave(Frame::new(12));
        assert!(peer.is_awaited() && peer.known_end() == Frame::new(10));
        assert_eq!(peer.acknowledgement(), Frame::new(10));
        peer.give_inputs(&inputs(20), Frame::new(12));
        assert!(peer.has_left() && peer.known_end() == Frame::NEVER);
        assert_eq!(peer.acknowledgement(), Frame::new(13), "the peer learns that its leave is known");
    }

    #[test]
    fn withheld_inputs_do_not_count_until_the_epoch_ends() {
        let mut peer = peer();
        peer.give_inputs(&inputs(20), Frame::new(10));
        peer.withhold_inputs();
        assert_eq!(peer.known_end(), Frame::ZERO);
        peer.accept_withheld();
        assert_eq!(peer.known_end(), Frame::new(10));
    }

    #[test]
    fn dropped_peer_lacks_inputs_up_to_the_decided_end() {
        let mut peer = peer();
        peer.give_inputs(&inputs(20), Frame::new(10));
        peer.drop_after(Frame::new(15), Frame::new(40), true);
        assert!(peer.lacks_last_inputs() && !peer.is_awaited());
        assert!(peer.needs_relay(Instant::ZERO, false));
        assert_eq!(peer.shorten_last_inputs(Frame::new(16)), None, "the end is never raised");
        assert_eq!(peer.shorten_last_inputs(Frame::new(3)), Some(Frame::new(10)), "received inputs count");
        peer.settle_substitute_input();
        assert_eq!(peer.substitute_input(Frame::new(30))[0][0], 9, "the last input is repeated");
    }

    #[test]
    fn void_join_leaves_the_seat_free_and_the_joiner_restarted() {
        let mut peer = peer();
        peer.on_incarnation(1, true);
        peer.drop_after(Frame::ZERO, Frame::new(40), false);
        peer.free_seat();
        peer.admit(Instant::ZERO, Frame::new(50), 1, 2, false);
        assert!(!peer.is_free() && !peer.was_restarted() && peer.known_end() >= Frame::new(50));
        peer.void_join();
        assert!(peer.is_free() && peer.is_dropped() && peer.was_restarted());
    }

    #[test]
    fn joiner_that_left_before_its_first_frame_leaves_with_the_join() {
        let mut peer = peer();
        peer.vacate();
        peer.admit(Instant::ZERO, Frame::new(50), 1, 2, true);
        assert_eq!(peer.complete_join(), Some(Frame::new(50)));
        assert!(peer.is_playing());
    }
}
