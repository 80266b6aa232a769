//! The number of frames that any engine has to resimulate: for each input change that arrives late, the frames that
//! were stepped with a wrong prediction until then.
//!
//! Another site learns of a player's input change from the first arriving datagram that was sent after the change. All
//! frames from the change on that the other site has stepped by then were mispredicted. Changes of several players that
//! arrive between two frames take one rollback, so the deepest counts.
//!
//! The count follows the datagrams, not the engine. It assumes that a datagram carries everything that its sender knew.

use coplay::time::Instant;

use super::FRAME_PERIOD;
use crate::workload::Inputs;

/// Counter of the frames that one site has to resimulate with any engine.
#[derive(Clone, Debug)]
pub struct RequiredResimulation {
    /// First frame whose input is not known yet, by player.
    known_end: Vec<u32>,
    /// Frames that the next rollback resimulates, because of the deepest misprediction found since the last rollback.
    rollback_depth: u32,
    /// Arrival time of the first input since the last rollback that revealed a misprediction.
    first_late_at: Instant,
    frames: u64,
}

impl RequiredResimulation {
    /// Creates the counter of a site. All inputs before frame `input_delay` are neutral and known.
    pub fn new(players: usize, input_delay: u32) -> Self {
        Self { known_end: vec![input_delay; players], rollback_depth: 0, first_late_at: Instant::ZERO, frames: 0 }
    }

    /// Records that all inputs of a player before frame `end` are known, when `stepped` frames have been stepped.
    /// `effect` returns the player's input of a frame. Mispredictions found a frame period or more after the first one
    /// count as a rollback of their own.
    pub fn on_inputs(&mut self, now: Instant, player: usize, end: u32, stepped: u32, effect: impl Fn(u32) -> u16) {
        if self.rollback_depth > 0 && now - self.first_late_at >= FRAME_PERIOD {
            self.count_rollback();
        }
        let known = self.known_end[player];
        if end <= known {
            return;
        }
        self.known_end[player] = end;
        let mut predicted = known.max(1)..end.min(stepped);
        let Some(wrong) = predicted.find(|frame| effect(*frame) != effect(frame - 1)) else { return };
        if self.rollback_depth == 0 {
            self.first_late_at = now;
        }
        self.rollback_depth = self.rollback_depth.max(stepped - wrong);
    }

    /// Counts one rollback that corrects all mispredictions found since the last rollback.
    pub fn count_rollback(&mut self) {
        self.frames += u64::from(std::mem::take(&mut self.rollback_depth));
    }

    /// Returns the number of frames that had to be resimulated so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// Returns the input that takes effect in a frame: the one pressed `input_delay` frames before; 0 (neutral) in the
/// first `input_delay` frames.
pub fn effective_input(inputs: &Inputs, player: usize, frame: u32, input_delay: u32) -> u16 {
    frame.checked_sub(input_delay).map_or(0, |pressed| inputs.pressed(player, pressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an input that changes in every tenth frame.
    fn input(frame: u32) -> u16 {
        (frame / 10) as u16
    }

    fn receive_inputs(required: &mut RequiredResimulation, player: usize, end: u32, stepped: u32) {
        required.on_inputs(Instant::ZERO, player, end, stepped, input);
    }

    #[test]
    fn late_input_change_costs_the_mispredicted_frames() {
        let mut required = RequiredResimulation::new(2, 0);
        receive_inputs(&mut required, 1, 9, 12);
        required.count_rollback();
        assert_eq!(required.frames(), 0, "the prediction was right so far");
        receive_inputs(&mut required, 1, 12, 14);
        required.count_rollback();
        assert_eq!(required.frames(), 4, "frames 10 to 13");
        receive_inputs(&mut required, 1, 21, 20);
        required.count_rollback();
        assert_eq!(required.frames(), 4, "the change in frame 20 is early enough");
    }

    #[test]
    fn deepest_of_several_mispredictions_counts() {
        let mut required = RequiredResimulation::new(3, 0);
        receive_inputs(&mut required, 1, 11, 12);
        receive_inputs(&mut required, 2, 12, 13);
        required.count_rollback();
        assert_eq!(required.frames(), 3);
    }

    #[test]
    fn misprediction_a_frame_later_is_a_rollback_of_its_own() {
        let mut required = RequiredResimulation::new(3, 0);
        receive_inputs(&mut required, 1, 11, 12);
        required.on_inputs(Instant::ZERO + FRAME_PERIOD, 2, 12, 12, input);
        required.count_rollback();
        assert_eq!(required.frames(), 4);
    }
}
