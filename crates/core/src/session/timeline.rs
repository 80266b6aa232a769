//! The timeline of one site: the current frame, the frame of its machine, this site's inputs, and predictions.
//!
//! - The machine is never more than one frame past the current frame, and steps only frames whose inputs are known or
//!   within the prediction window.
//! - Frames before [`Timeline::confirmed_end`] were stepped with the inputs that all sites gave, and are never stepped
//!   again.
//! - A prediction is kept until the real input is known. The first frame in which the two differ is noted until the
//!   rollback to it begins.

use alloc::vec;
use alloc::vec::Vec;

use super::delay_settings::DelaySchedule;
use super::peer::Peer;
use super::peers::Peers;
use super::prediction::{InputPredictor, PredictedInputs};
use super::rollback::RollbackScheduler;
use crate::frame::Frame;
use crate::input::{InputLayout, InputWord, MAX_BLOCKS, Stream};
use crate::settings::Settings;
use crate::time::Instant;

/// The frames and inputs of this site.
#[derive(Debug)]
pub(super) struct Timeline {
    /// The current frame: the one that has begun and is not stepped yet, or else the next one to begin.
    frame: Frame,
    /// The frame that the host program's machine steps next; earlier than `frame` during a rollback. The replay of a
    /// desync search does not change it.
    machine_frame: Frame,
    /// The first frame that was stepped with a mispredicted input and is not rolled back yet.
    first_misprediction: Option<Frame>,
    rollbacks: RollbackScheduler,
    /// This site's inputs, up to the current frame plus the input delay.
    own_inputs: Stream,
    layout: InputLayout,
    /// The predicted inputs of stepped frames whose real inputs are missing, by index of the peer.
    predictions: Vec<PredictedInputs>,
    predictor: InputPredictor,
    /// The players' words in the current request.
    words: Vec<InputWord>,
    /// The players' words of another frame, for parts beside the frame loop.
    scratch_words: Vec<InputWord>,
    delays: DelaySchedule,
    /// Whether the machine can save its state. If not, this site predicts no inputs.
    can_save: bool,
    /// Number of slots for saved states.
    slots: usize,
    /// The first frame that this site played after a late join; all earlier frames came from a feed, already confirmed.
    /// 0 if this site did not join late, and [`Frame::NEVER`] until it plays.
    joined_at: Frame,
    /// Frames before this one are stepped as fast as the machine can, to catch up after a late join.
    catch_up_until: Frame,
}

impl Timeline {
    /// Creates the timeline of a site with this layout of inputs. `is_joining` tells whether the site joins late.
    pub(super) fn new(
        settings: &Settings,
        layout: InputLayout,
        peers: &Peers,
        (predictor, can_save): (InputPredictor, bool),
        is_joining: bool,
    ) -> Self {
        let (slots, players) = (settings.rollback_slots(), settings.ownership.players());
        Self {
            frame: Frame::ZERO,
            machine_frame: Frame::ZERO,
            first_misprediction: None,
            rollbacks: RollbackScheduler::default(),
            own_inputs: Stream::new(layout.width(), Frame::new(settings.input_delay)),
            layout,
            predictions: peers.iter().map(|peer| PredictedInputs::new(slots, peer.inputs().block_count())).collect(),
            predictor,
            words: vec![0; players],
            scratch_words: vec![0; players],
            delays: DelaySchedule::new(settings),
            can_save,
            slots,
            joined_at: if is_joining { Frame::NEVER } else { Frame::ZERO },
            catch_up_until: Frame::ZERO,
        }
    }

    #[inline]
    pub(super) fn frame(&self) -> Frame {
        self.frame
    }

    #[inline]
    pub(super) fn machine_frame(&self) -> Frame {
        self.machine_frame
    }

    #[inline]
    pub(super) fn own_inputs(&self) -> &Stream {
        &self.own_inputs
    }

    /// Returns the width of this site's inputs, in bytes.
    pub(super) fn own_width(&self) -> usize {
        self.layout.width()
    }

    #[inline]
    pub(super) fn delays(&self) -> &DelaySchedule {
        &self.delays
    }

    pub(super) fn delays_mut(&mut self) -> &mut DelaySchedule {
        &mut self.delays
    }

    /// Returns the first frame that this site played after a late join.
    pub(super) fn joined_at(&self) -> Frame {
        self.joined_at
    }

    /// Returns the end of the frames that are stepped as fast as the machine can, to catch up after a late join.
    pub(super) fn catch_up_until(&self) -> Frame {
        self.catch_up_until
    }

    /// Returns the slot for the state before a frame, from which a rollback to that frame begins.
    pub(super) fn save_slot(&self, frame: Frame) -> usize {
        frame.number() as usize % self.slots.max(1)
    }

    // ---- Known and confirmed frames

    /// Returns the end of the frames whose inputs are all known.
    #[inline]
    pub(super) fn known_end(&self, peers: &Peers) -> Frame {
        peers.known_end().min(self.own_inputs.end())
    }

    /// Returns the end of the confirmed frames: all earlier frames are stepped with the inputs that all sites gave, and
    /// will not be resimulated.
    #[inline]
    pub(super) fn confirmed_end(&self, peers: &Peers) -> Frame {
        self.machine_frame.min(self.known_end(peers)).min(self.first_misprediction.unwrap_or(Frame::NEVER))
    }

    /// Returns the prediction window at this site: the one in force, or 0 if this site's machine cannot save its state.
    #[inline]
    fn usable_window(&self) -> u32 {
        if self.can_save { self.delays.current().prediction_window } else { 0 }
    }

    /// Returns whether the current frame may be stepped: all its inputs are known, or only inputs of peers are missing
    /// and the frame is within the prediction window. `known` is the end of the frames whose inputs are all known.
    #[inline]
    pub(super) fn can_step(&self, known: Frame) -> bool {
        self.frame < known + self.usable_window() && self.frame < self.own_inputs.end()
    }

    /// Returns the peers without whose inputs the current frame cannot be stepped.
    pub(super) fn stalling_peers<'a>(&self, peers: &'a Peers) -> impl Iterator<Item = &'a Peer> + use<'a> {
        let (window, frame) = (self.usable_window(), self.frame);
        peers.iter().filter(move |peer| peer.known_end() + window <= frame)
    }

    /// Returns how many frames can be stepped with the known inputs of a peer; negative if frames were stepped with
    /// predictions.
    pub(super) fn buffered_frames(&self, peer: &Peer) -> i64 {
        peer.known_end() - self.frame
    }

    /// Returns whether all other players have begun a frame, as their inputs prove. The inputs that a new joiner sends
    /// in advance prove nothing, so a new joiner counts as not having begun it.
    pub(super) fn have_all_begun(&self, frame: Frame, peers: &Peers) -> bool {
        let input_end = frame + self.delays.current().input_delay;
        peers.playing().all(|peer| !peer.has_advance_inputs() && peer.inputs().end() > input_end)
    }

    /// Returns the age in frames of the newest input of the slowest player, by the end of this site's inputs.
    pub(super) fn input_age(&self, peers: &Peers) -> u32 {
        let known = peers.playing().map(|peer| peer.inputs().end()).min();
        known.map_or(0, |known| self.frame + 1 + self.delays.current().input_delay - known).max(0) as u32
    }

    // ---- Inputs

    /// Returns whether the next input has to be sampled. Every frame samples one input, unless the input delay has just
    /// changed or the site has given its inputs in advance, as a joiner does at first. The frame in which the input
    /// delay grows by one samples two inputs, and one in which it shrinks by one samples none.
    #[inline]
    pub(super) fn is_sample_due(&self) -> bool {
        self.own_inputs.end() <= self.frame + self.delays.current().input_delay
    }

    /// Adds a sampled input. Only the bits that this site owns count.
    #[inline]
    pub(super) fn push_input(&mut self, words: &[InputWord]) {
        match self.own_inputs.block_count() {
            1 => self.push_blocks::<1>(words),
            _ => self.push_blocks::<MAX_BLOCKS>(words),
        }
    }

    fn push_blocks<const BLOCKS: usize>(&mut self, words: &[InputWord]) {
        let mut packed = [[0; 16]; BLOCKS];
        let packed = &mut packed[..BLOCKS.min(self.own_inputs.block_count())];
        self.layout.pack_blocks(words, packed);
        self.own_inputs.push_blocks(packed);
    }

    /// Adds neutral inputs for all frames before `until` that have none, and sets the end of the machine's catch-up to
    /// `until` minus the input delay.
    pub(super) fn push_neutral_inputs(&mut self, until: Frame) {
        let neutral = [[0; 16]; MAX_BLOCKS];
        let blocks = self.own_inputs.block_count();
        while self.own_inputs.end() < until {
            self.own_inputs.push_blocks(&neutral[..blocks]);
        }
        self.catch_up_until = until.checked_sub(self.delays.current().input_delay).unwrap_or(until);
    }

    /// Gathers the inputs of all players for a frame in the words of the next request, and predicts the missing ones.
    #[inline]
    pub(super) fn gather(&mut self, frame: Frame, peers: &Peers) {
        let Self { words, own_inputs, layout, predictions, predictor, .. } = self;
        gather_inputs(words, frame, (own_inputs, layout), predictions, *predictor, peers);
    }

    /// Returns the inputs of all players for a confirmed frame. The words of the current request do not change.
    pub(super) fn confirmed_words(&mut self, frame: Frame, peers: &Peers) -> &[InputWord] {
        let Self { scratch_words, own_inputs, layout, predictions, predictor, .. } = self;
        gather_inputs(scratch_words, frame, (own_inputs, layout), predictions, *predictor, peers);
        scratch_words
    }

    /// Returns the words that [`gather`](Self::gather) has filled.
    #[inline]
    pub(super) fn words(&self) -> &[InputWord] {
        &self.words
    }

    /// Returns the words in which a replayed frame is passed to the host program.
    pub(super) fn scratch_words_mut(&mut self) -> &mut [InputWord] {
        &mut self.scratch_words
    }

    // ---- Predictions and rollbacks

    /// Compares newly received inputs of a peer with the predicted ones, and notes the first misprediction. `known` is
    /// the previous end of the peer's known inputs. Frames that are yet to be stepped or resimulated need no rollback.
    #[inline]
    pub(super) fn check_predictions(&mut self, index: usize, peer: &mut Peer, known: Frame) {
        peer.settle_substitute_input();
        let until = peer.known_end().min(self.machine_frame);
        // The machine stepped the frames before this site played with confirmed inputs.
        let known = known.max(self.joined_at);
        if known < until {
            let mispredicted = self.predictions[index].first_misprediction(peer, known, until);
            self.first_misprediction = [self.first_misprediction, mispredicted].into_iter().flatten().min();
        }
    }

    /// Counts all stepped frames as predicted with the substitute input of a peer that takes its seat: they were
    /// stepped without it.
    pub(super) fn predict_absence(&mut self, index: usize, peer: &Peer) {
        self.predictions[index].fill(peer.absence_input());
    }

    /// Rolls back to a frame, whose inputs have changed, if the machine has stepped it.
    pub(super) fn revise_from(&mut self, frame: Frame) {
        if frame < self.machine_frame {
            self.first_misprediction = Some(self.first_misprediction.map_or(frame, |first| first.min(frame)));
        }
    }

    #[inline]
    pub(super) fn has_misprediction(&self) -> bool {
        self.first_misprediction.is_some()
    }

    /// Returns when to begin a rollback so that the next frame, which begins at `next_start`, need not wait for it;
    /// [`Instant::FAR_FUTURE`] if there is nothing to roll back, or a rollback has already run before the next frame.
    pub(super) fn next_rollback_time(&self, next_start: Instant) -> Instant {
        let first = self.first_misprediction.filter(|_| !self.rollbacks.is_done_before(self.frame));
        first.map_or(Instant::FAR_FUTURE, |first| next_start - self.rollbacks.estimated_cost(self.frame - first))
    }

    /// Begins the rollback of the noted misprediction, if there is one. Returns the frame before which the machine has
    /// to be. `is_early` tells whether the next frame has not begun.
    pub(super) fn begin_rollback(&mut self, now: Instant, is_early: bool) -> Option<Frame> {
        let mispredicted = self.first_misprediction.take()?;
        self.rollbacks.begin(now, self.frame - mispredicted, Some(self.frame).filter(|_| is_early));
        self.machine_frame = mispredicted;
        Some(mispredicted)
    }

    /// Ends the measurement of a rollback, because the machine has caught up.
    #[inline]
    pub(super) fn end_rollback(&mut self, now: Instant) {
        self.rollbacks.end(now);
    }

    // ---- Progress

    /// Notes that the machine steps its next frame.
    #[inline]
    pub(super) fn step_machine(&mut self) {
        self.machine_frame = self.machine_frame.next();
    }

    /// Goes on to the next frame after the step of the current one.
    #[inline]
    pub(super) fn finish_frame(&mut self) {
        self.frame = self.frame.next();
    }

    /// Notes that the machine loads a downloaded state, from which it steps `next`.
    pub(super) fn load_downloaded(&mut self, next: Frame) {
        (self.machine_frame, self.frame) = (next, next);
    }

    /// Notes that the machine steps a downloaded frame with these inputs. Returns the words of the request.
    pub(super) fn step_downloaded(&mut self, frame: Frame, inputs: &[InputWord]) -> &[InputWord] {
        self.words.copy_from_slice(inputs);
        self.load_downloaded(frame.next());
        &self.words
    }

    /// Restarts this site's inputs with frame `first`, from which on it is admitted.
    pub(super) fn restart_inputs(&mut self, first: Frame) {
        self.own_inputs = Stream::new(self.layout.width(), first);
    }

    /// Begins to play with the machine's next frame after a late join.
    pub(super) fn start_playing(&mut self) {
        (self.frame, self.joined_at) = (self.machine_frame, self.machine_frame);
    }

    /// Notes that this site leaves instead of joining.
    pub(super) fn abandon_join(&mut self) {
        self.joined_at = Frame::ZERO;
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.own_inputs.memory() + self.predictions.iter().map(PredictedInputs::memory).sum::<usize>()
    }
}

/// Gathers the inputs of all players for a frame in `words`, and predicts the missing ones.
#[inline]
fn gather_inputs(
    words: &mut [InputWord],
    frame: Frame,
    (own_inputs, own_layout): (&Stream, &InputLayout),
    predictions: &mut [PredictedInputs],
    predictor: InputPredictor,
    peers: &Peers,
) {
    words.fill(0);
    if let Some(packed) = own_inputs.value_blocks(frame) {
        own_layout.unpack_blocks(packed, words);
    }
    for (peer, predictions) in peers.iter().zip(predictions) {
        let known = frame < peer.known_end();
        let (inputs, layout) = (peer.inputs(), peer.layout());
        let given = match peer.is_absent(frame) {
            true => Some(peer.substitute_input(frame)),
            false => inputs.value_blocks(frame),
        };
        let packed = match given {
            Some(packed) if known => packed,
            Some(packed) => predictions.store_known(frame, packed),
            // Only a site that violates the protocol is so far ahead that its input has left the buffer.
            None if known => continue,
            None => predictions.predict(predictor, inputs, layout, frame, words.len()),
        };
        layout.unpack_blocks(packed, words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::frame::FrameRate;
    use crate::id::{SiteId, SiteSet};
    use crate::input::Ownership;
    use crate::settings::{AbsentInput, GameId, MachineId, StarvationPolicy};
    use crate::time::TimeDelta;

    fn settings() -> Settings {
        Settings {
            game: GameId { name: "sum".into(), hash: [1; 32] },
            machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
            rate: FrameRate::per_second(60).unwrap(),
            input_delay: 2,
            prediction_window: 3,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 60,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership: Ownership::one_player_per_site(2, 0xff),
        }
    }

    /// Site 0 of 2 with an input delay of 2 and a prediction window of 3 frames.
    fn timeline(can_save: bool) -> (Timeline, Peers) {
        let (settings, peers) = (settings(), table(0, 2));
        let layout = settings.ownership.layout(SiteId::new(0).unwrap());
        (Timeline::new(&settings, layout, &peers, (InputPredictor::Repeat, can_save), false), peers)
    }

    /// Gives the peer the inputs 0, 1, 2 and so on before `end`.
    fn give(peers: &mut Peers, end: u32) {
        let mut inputs = Stream::new(1, Frame::ZERO);
        (0..end).for_each(|frame| inputs.push(&[frame as u8]));
        peers[0].give_inputs(&inputs, Frame::new(end));
    }

    /// Steps the current frame, and returns the words that it was stepped with.
    fn step(timeline: &mut Timeline, peers: &Peers) -> Vec<InputWord> {
        while timeline.is_sample_due() {
            timeline.push_input(&[7, 0]);
        }
        assert!(timeline.can_step(timeline.known_end(peers)));
        timeline.gather(timeline.machine_frame(), peers);
        timeline.step_machine();
        timeline.finish_frame();
        timeline.words().to_vec()
    }

    #[test]
    fn frames_are_predicted_within_the_window_only() {
        let (mut timeline, mut peers) = timeline(true);
        give(&mut peers, 2);
        let peer_words = (0..5).map(|_| step(&mut timeline, &peers)[1]);
        assert!(peer_words.eq([0, 1, 1, 1, 1]), "the last known input is repeated");
        timeline.push_input(&[7, 0]);
        assert!(!timeline.can_step(timeline.known_end(&peers)));
        assert_eq!(timeline.stalling_peers(&peers).count(), 1);
        assert_eq!(timeline.confirmed_end(&peers), Frame::new(2));
        let (mut without, peers) = (super::tests::timeline(false).0, peers);
        (0..2).for_each(|_| drop(step(&mut without, &peers)));
        assert!(!without.can_step(without.known_end(&peers)), "a machine that cannot save predicts nothing");
    }

    #[test]
    fn local_input_takes_effect_after_the_input_delay() {
        let (mut timeline, mut peers) = timeline(true);
        give(&mut peers, 9);
        let own_words = (0..4).map(|_| step(&mut timeline, &peers)[0]);
        assert!(own_words.eq([0, 0, 7, 7]));
    }

    #[test]
    fn rollback_begins_at_first_misprediction() {
        let (mut timeline, mut peers) = timeline(true);
        give(&mut peers, 1);
        (0..4).for_each(|_| drop(step(&mut timeline, &peers)));
        let known = peers[0].known_end();
        give(&mut peers, 4);
        timeline.check_predictions(0, &mut peers[0], known);
        assert!(timeline.has_misprediction());
        assert_eq!(timeline.confirmed_end(&peers), Frame::new(1), "frame 1 was stepped with input 0");
        let now = Instant::ZERO + TimeDelta::from_secs(1);
        assert_eq!(timeline.next_rollback_time(now), now, "its cost is not known yet");
        assert_eq!(timeline.begin_rollback(now, true), Some(Frame::new(1)));
        assert_eq!((timeline.machine_frame(), timeline.has_misprediction()), (Frame::new(1), false));
        timeline.revise_from(Frame::new(1));
        assert!(!timeline.has_misprediction(), "the frame is yet to be resimulated");
        timeline.gather(Frame::new(1), &peers);
        assert_eq!(timeline.words(), [0, 1]);
    }

    #[test]
    fn right_predictions_need_no_rollback() {
        let (mut timeline, mut peers) = timeline(true);
        (0..2).for_each(|_| drop(step(&mut timeline, &peers)));
        give(&mut peers, 1);
        timeline.check_predictions(0, &mut peers[0], Frame::ZERO);
        assert!(!timeline.has_misprediction());
    }

    #[test]
    fn neutral_inputs_are_given_in_advance() {
        let (mut timeline, _) = timeline(true);
        timeline.restart_inputs(Frame::new(50));
        timeline.push_neutral_inputs(Frame::new(60));
        assert_eq!(timeline.own_inputs().end(), Frame::new(60));
        assert_eq!(timeline.catch_up_until(), Frame::new(58));
        assert!(!timeline.is_sample_due());
    }
}
