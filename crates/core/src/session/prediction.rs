//! Input prediction: predicted values of missing inputs, and the check against the real ones.
//!
//! A frame may be stepped although some of its inputs are missing, as long as no more than
//! [`Settings::prediction_window`] frames contain predictions. A prediction is kept until the real input arrives. The
//! rollback begins at the earliest frame in which the two differ.
//!
//! [`Settings::prediction_window`]: super::Settings::prediction_window

use alloc::boxed::Box;
use alloc::vec;

use super::Session;
use super::peer::Peer;
use crate::frame::Frame;
use crate::input::{InputLayout, InputWord, MAX_BLOCKS, PackedInputPart, Stream};
use crate::time::{Instant, TimeDelta};

/// Divisor of the frame period that gives the largest one-way delay of a near peer. A short wait for a near peer's
/// inputs pays off: the peer begins the frame at the same time, and its packet arrives at once. On a local network this
/// means that one more packet must be lost before a prediction is needed.
const NEAR_PEER_DIVISOR: i64 = 16;
/// Time added to a near peer's one-way delay, for timing errors of the host program and the network.
const TIMING_TOLERANCE: TimeDelta = TimeDelta::from_micros(250);

impl Session {
    /// Returns when the missing inputs of the frame that began at `began` are predicted: at once, unless a near peer's
    /// input is missing.
    pub(super) fn predict_at(&self, began: Instant) -> Instant {
        let max_delay = self.config.settings.rate.period() / NEAR_PEER_DIVISOR;
        let delay = |peer: &Peer| peer.clock().rtt_min().map(|rtt| rtt / 2).filter(|delay| *delay <= max_delay);
        let missing = self.peers.iter().filter(|peer| peer.is_playing() && peer.known_end() <= self.frame);
        missing.filter_map(delay).max().map_or(began, |delay| began + delay + TIMING_TOLERANCE)
    }
}

/// Predictor for missing inputs. Sites may use different predictors, because every misprediction is rolled back.
#[derive(Clone, Copy, Debug, Default)]
pub enum InputPredictor {
    /// Repeats the last known input.
    #[default]
    Repeat,
    /// Predicts neutral input: all bits are 0.
    Neutral,
    /// Calls a function with the known inputs of one site and a frame. The function sets the site's bits in the
    /// players' words, which are 0 before.
    Custom(fn(&InputHistory<'_>, Frame, &mut [InputWord])),
}

/// The known inputs of one site, for [`InputPredictor::Custom`].
#[derive(Debug)]
pub struct InputHistory<'a> {
    inputs: &'a Stream,
    layout: &'a InputLayout,
}

impl InputHistory<'_> {
    /// Returns the first frame to be predicted: the inputs of all earlier ones are known.
    pub fn end(&self) -> Frame {
        self.inputs.end()
    }

    /// Adds the site's input of a known frame to the players' words. Returns whether that input is known and still
    /// kept.
    pub fn read(&self, frame: Frame, words: &mut [InputWord]) -> bool {
        let blocks = self.inputs.value_blocks(frame);
        blocks.inspect(|blocks| self.layout.unpack_blocks(blocks, words)).is_some()
    }
}

/// Ring of the predicted inputs of one site, with one slot per frame of the longest prediction window.
#[derive(Debug)]
pub(super) struct PredictedInputs {
    ring: Box<[PackedInputPart]>,
    slots: usize,
    blocks: usize,
}

impl PredictedInputs {
    pub(super) fn new(slots: usize, blocks: usize) -> Self {
        Self { ring: vec![[0; 16]; slots * blocks].into_boxed_slice(), slots, blocks }
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.ring)
    }

    fn ring_range(&self, frame: Frame) -> core::ops::Range<usize> {
        let start = frame.number() as usize % self.slots.max(1) * self.blocks;
        start..start + self.blocks
    }

    /// Returns the predicted input that a frame was stepped with.
    pub(super) fn get(&self, frame: Frame) -> &[PackedInputPart] {
        &self.ring[self.ring_range(frame)]
    }

    /// Returns the first frame in `from..until` whose predicted input differs from the real one. The real inputs of the
    /// whole range must be known.
    pub(super) fn first_misprediction(&self, peer: &Peer, from: Frame, until: Frame) -> Option<Frame> {
        let mut frame = from;
        while frame < until {
            let real = peer.inputs().value_blocks(frame).filter(|_| !peer.is_absent(frame));
            if real.unwrap_or(peer.substitute_input(frame)) != self.get(frame) {
                return Some(frame);
            }
            frame = frame.next();
        }
        None
    }

    /// Predicts the input of a frame, stores the prediction and returns it.
    pub(super) fn predict(
        &mut self,
        predictor: InputPredictor,
        inputs: &Stream,
        layout: &InputLayout,
        frame: Frame,
        players: usize,
    ) -> &[PackedInputPart] {
        let range = self.ring_range(frame);
        let predicted = &mut self.ring[range];
        match predictor {
            InputPredictor::Repeat => match inputs.end().checked_sub(1).and_then(|last| inputs.value_blocks(last)) {
                Some(last) => predicted.copy_from_slice(last),
                None => predicted.fill([0; 16]),
            },
            InputPredictor::Neutral => predicted.fill([0; 16]),
            InputPredictor::Custom(predict) => {
                let mut words = [0; crate::input::MAX_PLAYERS];
                predict(&InputHistory { inputs, layout }, frame, &mut words[..players]);
                let mut packed = [[0; 16]; MAX_BLOCKS];
                layout.pack_blocks(&words[..players], &mut packed[..predicted.len()]);
                predicted.copy_from_slice(&packed[..predicted.len()]);
            }
        }
        predicted
    }

    /// Stores this input as the prediction for every frame in the ring.
    pub(super) fn fill(&mut self, input: &[PackedInputPart]) {
        self.ring.chunks_exact_mut(self.blocks.max(1)).for_each(|predicted| predicted.copy_from_slice(input));
    }

    /// Stores a received input in place of a prediction, and returns it. The frame counts as predicted because an
    /// earlier input is missing or the inputs are withheld.
    pub(super) fn store_known(&mut self, frame: Frame, input: &[PackedInputPart]) -> &[PackedInputPart] {
        let range = self.ring_range(frame);
        self.ring[range.clone()].copy_from_slice(input);
        &self.ring[range]
    }
}
