//! How many frames have to be stepped again, whatever the engine: "changes times guessed depth".
//!
//! A change of a player's input is known to another site when the first datagram comes that left after the change was
//! made. All frames from the change on that were stepped by then were guessed wrong. What comes from several players
//! between two frames is repaired at once, so that the deepest counts.
//!
//! This follows the datagrams and not the engine, except that it believes a datagram to tell all that its sender knew.

use coplay::time::Instant;

use super::FRAME_PERIOD;
use crate::workload::Inputs;

/// The forecast of one site.
#[derive(Clone, Debug)]
pub struct RequiredResimulation {
    /// By player, the first frame whose input is not known.
    known_end: Vec<u32>,
    /// How many frames the changes that came since the last frame are deep, at most.
    rollback_depth: u32,
    /// When the first of them came.
    first_late_at: Instant,
    frames: u64,
}

impl RequiredResimulation {
    /// Nothing is known before frame `lag`, and nothing has to be: until then all inputs are neutral.
    pub fn new(players: usize, lag: u32) -> Self {
        Self { known_end: vec![lag; players], rollback_depth: 0, first_late_at: Instant::ZERO, frames: 0 }
    }

    /// All inputs of a player before frame `end` are known now, while `stepped` frames have been stepped already.
    pub fn on_inputs(&mut self, now: Instant, player: usize, end: u32, stepped: u32, effect: impl Fn(u32) -> u16) {
        if self.rollback_depth > 0 && now - self.first_late_at >= FRAME_PERIOD {
            self.count_rollback();
        }
        let known = self.known_end[player];
        if end <= known {
            return;
        }
        self.known_end[player] = end;
        let mut guessed = known.max(1)..end.min(stepped);
        let Some(wrong) = guessed.find(|frame| effect(*frame) != effect(frame - 1)) else { return };
        if self.rollback_depth == 0 {
            self.first_late_at = now;
        }
        self.rollback_depth = self.rollback_depth.max(stepped - wrong);
    }

    /// Whatever was wrong is repaired.
    pub fn count_rollback(&mut self) {
        self.frames += u64::from(std::mem::take(&mut self.rollback_depth));
    }

    /// Frames that had to be stepped again so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// What takes effect in a frame: what was pressed `lag` frames before.
pub fn effective_input(inputs: &Inputs, player: usize, frame: u32, lag: u32) -> u16 {
    frame.checked_sub(lag).map_or(0, |pressed| inputs.pressed(player, pressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The input changes in every tenth frame.
    fn input(frame: u32) -> u16 {
        (frame / 10) as u16
    }

    fn receive_inputs(forecast: &mut RequiredResimulation, player: usize, end: u32, stepped: u32) {
        forecast.on_inputs(Instant::ZERO, player, end, stepped, input);
    }

    #[test]
    fn late_input_change_costs_the_mispredicted_frames() {
        let mut forecast = RequiredResimulation::new(2, 0);
        receive_inputs(&mut forecast, 1, 9, 12);
        forecast.count_rollback();
        assert_eq!(forecast.frames(), 0, "the guess was right so far");
        receive_inputs(&mut forecast, 1, 12, 14);
        forecast.count_rollback();
        assert_eq!(forecast.frames(), 4, "frames 10 to 13");
        receive_inputs(&mut forecast, 1, 21, 20);
        forecast.count_rollback();
        assert_eq!(forecast.frames(), 4, "the change of frame 20 is early enough");
    }

    #[test]
    fn deepest_of_several_mispredictions_counts() {
        let mut forecast = RequiredResimulation::new(3, 0);
        receive_inputs(&mut forecast, 1, 11, 12);
        receive_inputs(&mut forecast, 2, 12, 13);
        forecast.count_rollback();
        assert_eq!(forecast.frames(), 3);
    }

    #[test]
    fn misprediction_a_frame_later_is_a_rollback_of_its_own() {
        let mut forecast = RequiredResimulation::new(3, 0);
        receive_inputs(&mut forecast, 1, 11, 12);
        forecast.on_inputs(Instant::ZERO + FRAME_PERIOD, 2, 12, 12, input);
        forecast.count_rollback();
        assert_eq!(forecast.frames(), 4);
    }
}
