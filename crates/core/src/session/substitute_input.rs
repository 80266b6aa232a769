//! Substitute input: the input of a site's players in frames for which the site gives none.
//!
//! A free seat keeps its substitute input until a joiner takes it. The frames in which the seat was free keep theirs
//! after that, so that they can be resimulated.

use core::ops::Range;

use crate::frame::Frame;
use crate::input::{MAX_BLOCKS, PackedInputPart, Stream};

/// One packed input of a site.
pub(super) type PackedInput = [PackedInputPart; MAX_BLOCKS];

/// The substitute inputs of one site.
#[derive(Debug)]
pub(super) struct SubstituteInput {
    /// Input from the end of the site's inputs on, while the site is absent.
    current: PackedInput,
    /// Whether `current` has to become the site's last input once that is known.
    repeats_last: bool,
    /// The frames in which the seat was free before the site took it.
    absence: Range<Frame>,
    /// Input in the frames of `absence`.
    absence_input: PackedInput,
}

impl Default for SubstituteInput {
    fn default() -> Self {
        let neutral = [[0; 16]; MAX_BLOCKS];
        Self { current: neutral, repeats_last: false, absence: Frame::ZERO..Frame::ZERO, absence_input: neutral }
    }
}

impl SubstituteInput {
    /// Returns whether the seat was free in a frame before the site took it.
    #[inline]
    pub(super) fn was_absent(&self, frame: Frame) -> bool {
        self.absence.contains(&frame)
    }

    /// Returns the input in a frame for which the site gives none.
    #[inline]
    pub(super) fn get(&self, frame: Frame) -> &PackedInput {
        if self.was_absent(frame) { &self.absence_input } else { &self.current }
    }

    /// Returns the input in the frames in which the seat was free before the site took it.
    pub(super) fn absence_input(&self) -> &PackedInput {
        &self.absence_input
    }

    /// Makes the input neutral, instead of the site's last input.
    pub(super) fn use_neutral(&mut self) {
        (self.repeats_last, self.current) = (false, [[0; 16]; MAX_BLOCKS]);
    }

    /// Repeats the site's last input once that is known.
    pub(super) fn repeat_last(&mut self) {
        self.repeats_last = true;
    }

    /// Adopts the site's last input if it is to be repeated and is known. `input_end` is the end of the site's inputs;
    /// `None` if the site plays.
    #[inline]
    pub(super) fn settle(&mut self, input_end: Option<Frame>, inputs: &Stream) {
        if self.repeats_last {
            self.adopt_last(input_end, inputs);
        }
    }

    /// Adopts the site's last input once all its inputs are known. A site that gave none since it joined keeps the
    /// substitute input from before.
    #[cold]
    fn adopt_last(&mut self, input_end: Option<Frame>, inputs: &Stream) {
        let Some(last) = input_end.filter(|last| *last <= inputs.end()) else { return };
        self.repeats_last = false;
        let last_frame = last.checked_sub(1).filter(|frame| *frame >= inputs.start());
        if let Some(input) = last_frame.and_then(|frame| inputs.value_blocks(frame)) {
            self.current[..input.len()].copy_from_slice(input);
        }
    }

    /// Takes over an observed input. `is_current` tells whether it holds from now on, `is_past` whether it holds for
    /// the frames in which the seat was free before the site took it.
    pub(super) fn observe(&mut self, input: PackedInput, is_current: bool, is_past: bool) {
        if is_current {
            self.current = input;
        }
        if is_past {
            self.absence_input = input;
        }
    }

    /// Notes that the site takes its seat, which was free in these frames.
    pub(super) fn end_absence(&mut self, absence: Range<Frame>) {
        (self.absence, self.absence_input) = (absence, self.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(values: &[u8]) -> Stream {
        let mut inputs = Stream::new(1, Frame::ZERO);
        values.iter().for_each(|value| inputs.push(&[*value]));
        inputs
    }

    #[test]
    fn last_input_is_repeated_once_all_inputs_are_known() {
        let mut substitute = SubstituteInput::default();
        substitute.repeat_last();
        substitute.settle(Some(Frame::new(3)), &inputs(&[4, 5]));
        assert_eq!(substitute.get(Frame::new(3))[0][0], 0, "one input is missing");
        substitute.settle(Some(Frame::new(3)), &inputs(&[4, 5, 6]));
        assert_eq!(substitute.get(Frame::new(3))[0][0], 6);
        substitute.settle(Some(Frame::new(4)), &inputs(&[4, 5, 6, 7]));
        assert_eq!(substitute.get(Frame::new(4))[0][0], 6, "settled");
    }

    #[test]
    fn past_absence_keeps_its_input() {
        let mut substitute = SubstituteInput::default();
        substitute.repeat_last();
        substitute.settle(Some(Frame::new(1)), &inputs(&[9]));
        substitute.end_absence(Frame::new(1)..Frame::new(5));
        substitute.use_neutral();
        let input = |frame: u32| substitute.get(Frame::new(frame))[0][0];
        assert_eq!([input(1), input(4), input(5)], [9, 9, 0]);
    }
}
