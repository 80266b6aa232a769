//! Input prediction: predicted values of missing inputs, and the check against the real ones.
//!
//! A frame may be stepped although some of its inputs are missing, as long as no more than
//! [`Settings::prediction_window`] frames contain predictions. A prediction is kept until the real input arrives. The
//! rollback begins at the earliest frame in which the two differ.
//!
//! [`Settings::prediction_window`]: super::Settings::prediction_window

use alloc::boxed::Box;
use alloc::vec;

use super::peer::Peer;
use super::peers::Peers;
use crate::frame::Frame;
use crate::input::{InputLayout, InputWord, MAX_BLOCKS, PackedInputPart, Stream};
use crate::time::{Instant, TimeDelta};

/// Divisor of the frame period that gives the largest one-way delay of a near peer. A short wait for a near peer's
/// inputs pays off: the peer begins the frame at the same time, and its packet arrives at once. On a local network this
/// means that one more packet must be lost before a prediction is needed.
const NEAR_PEER_DIVISOR: i64 = 16;
/// Time added to a near peer's one-way delay, for timing errors of the host program and the network.
const TIMING_TOLERANCE: TimeDelta = TimeDelta::from_micros(250);

/// Returns when the missing inputs of `frame`, which began at `began`, are predicted: at once, unless a near peer's
/// input is missing.
pub(super) fn predict_at(began: Instant, frame: Frame, peers: &Peers, period: TimeDelta) -> Instant {
    let max_delay = period / NEAR_PEER_DIVISOR;
    let delay = |peer: &Peer| peer.clock().rtt_min().map(|rtt| rtt / 2).filter(|delay| *delay <= max_delay);
    let missing = peers.playing().filter(|peer| peer.known_end() <= frame);
    missing.filter_map(delay).max().map_or(began, |delay| began + delay + TIMING_TOLERANCE)
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

    /// Inserts the site's input of `frame` into the players' words, in which the site's bits must be 0. Returns whether
    /// the input is known and still kept; if not, the words do not change.
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

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;

    fn predicted(predictor: InputPredictor, inputs: &[u8], frame: u32) -> u8 {
        let mut stream = Stream::new(1, Frame::ZERO);
        inputs.iter().for_each(|input| stream.push(&[*input]));
        let peers = table(0, 2);
        let mut predictions = PredictedInputs::new(4, stream.block_count());
        predictions.predict(predictor, &stream, peers[0].layout(), Frame::new(frame), 2)[0][0]
    }

    #[test]
    fn predictors_repeat_stay_neutral_or_use_the_history() {
        assert_eq!(predicted(InputPredictor::Repeat, &[3, 4], 2), 4);
        assert_eq!(predicted(InputPredictor::Repeat, &[], 2), 0);
        assert_eq!(predicted(InputPredictor::Neutral, &[3, 4], 2), 0);
        let alternate = InputPredictor::Custom(|history, frame, words| {
            let earlier = frame.checked_sub(2).unwrap();
            assert!(earlier < history.end() && history.read(earlier, words));
        });
        assert_eq!(predicted(alternate, &[3, 4], 2), 3);
    }

    #[test]
    fn first_misprediction_is_the_first_difference() {
        let mut peers = table(0, 2);
        let mut inputs = Stream::new(1, Frame::ZERO);
        [7, 7, 8].iter().for_each(|input| inputs.push(&[*input]));
        let mut predictions = PredictedInputs::new(4, 1);
        predictions.fill(&[[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]);
        peers[0].give_inputs(&inputs, Frame::new(3));
        let first = |until: u32| predictions.first_misprediction(&peers[0], Frame::ZERO, Frame::new(until));
        assert_eq!((first(2), first(3)), (None, Some(Frame::new(2))));
    }
}
