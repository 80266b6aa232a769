//! The machine of a fuzzed site: a hash of all inputs so far, with checks of the requests that it serves.

use std::collections::VecDeque;

use coplay::input::{InputWord, MAX_PLAYERS};

/// Inputs of all players in a frame.
pub(crate) type InputWords = [InputWord; MAX_PLAYERS];

/// A machine whose state is a hash of its inputs, with its saved states and the inputs that it stepped.
#[derive(Debug, Default)]
pub(crate) struct HashMachine {
    /// Hash of all inputs so far.
    pub(crate) state_hash: u64,
    /// Next frame to step.
    next_frame: u32,
    /// First frame that was never stepped.
    pub(crate) stepped_frames: u32,
    /// Saved states, each with its next frame.
    slots: Vec<Option<(u32, u64)>>,
    /// Inputs of frames that may be resimulated, oldest first.
    unconfirmed_inputs: VecDeque<InputWords>,
    /// First frame to step after the state that was last restored from another site; 0 if none was restored.
    pub(crate) first_frame: u32,
    /// Inputs of confirmed frames, from `first_frame` on.
    pub(crate) confirmed_inputs: Vec<InputWords>,
    /// Number of frames stepped for the first time since this machine was created. Restoring a state does not reset it.
    pub(crate) fresh_steps: u64,
}

impl HashMachine {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![None; slots], ..Self::default() }
    }

    /// Loads a state that another site sent and that may be forged. `frame` is the next frame to step.
    pub(crate) fn restore(&mut self, frame: u32, bytes: &[u8]) {
        self.state_hash = bytes.first_chunk().map_or(0, |state| u64::from_le_bytes(*state));
        (self.first_frame, self.next_frame, self.stepped_frames) = (frame, frame, frame);
        self.slots.fill(None);
        self.unconfirmed_inputs.clear();
        self.confirmed_inputs.clear();
    }

    /// Returns the state before a frame, current or saved in a slot, with its hash. `size` incompressible bytes follow
    /// the state.
    pub(crate) fn snapshot(&self, frame: u32, slot: Option<usize>, size: usize) -> (Vec<u8>, u64) {
        let (next, state) = match slot {
            Some(slot) => self.slots[slot].expect("the slot has a saved state"),
            None => (self.next_frame, self.state_hash),
        };
        assert_eq!(frame, next, "the snapshot is of the state before the frame");
        let noise = (0..size as u64).map(|at| (state ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as u8);
        (state.to_le_bytes().into_iter().chain(noise).collect(), state)
    }

    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        assert_eq!(frame, self.next_frame, "the saved state is the current one");
        let slots = self.slots.len();
        let entry = self.slots.get_mut(slot).unwrap_or_else(|| panic!("there is no slot {slot}, only {slots}"));
        *entry = Some((frame, self.state_hash));
    }

    pub(crate) fn load(&mut self, frame: u32, slot: usize) {
        let saved = self.slots.get(slot).copied().flatten();
        let (next, state) = saved.unwrap_or_else(|| panic!("nothing was saved in slot {slot}"));
        assert_eq!(frame, next, "the loaded state is the saved one");
        self.check_unconfirmed(frame);
        (self.next_frame, self.state_hash) = (next, state);
    }

    pub(crate) fn advance(&mut self, frame: u32, inputs: &[InputWord], fresh: bool) {
        assert_eq!(frame, self.next_frame, "frames are stepped in order");
        assert_eq!(
            fresh,
            frame == self.stepped_frames,
            "frame {frame} of {} is fresh only the first time",
            self.stepped_frames
        );
        self.check_unconfirmed(frame);
        let mut words = [0; MAX_PLAYERS];
        words[..inputs.len()].copy_from_slice(inputs);
        for word in inputs {
            self.state_hash =
                (self.state_hash ^ (*word ^ *word >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.next_frame += 1;
        if fresh {
            self.stepped_frames += 1;
            self.fresh_steps += 1;
            self.unconfirmed_inputs.push_back(words);
        } else {
            self.unconfirmed_inputs[(frame - self.first_frame) as usize - self.confirmed_inputs.len()] = words;
        }
    }

    /// Returns the first frame that is not confirmed.
    fn confirmed_end(&self) -> u32 {
        self.first_frame + self.confirmed_inputs.len() as u32
    }

    fn check_unconfirmed(&self, frame: u32) {
        assert!(frame >= self.confirmed_end(), "frame {frame} is resimulated although it was confirmed");
    }

    /// Marks all frames before `end` as confirmed.
    pub(crate) fn confirm_until(&mut self, end: u32) {
        assert!(end <= self.next_frame, "frame {end} is confirmed before it was stepped");
        while self.confirmed_end() < end {
            self.confirmed_inputs.push(self.unconfirmed_inputs.pop_front().expect("a confirmed frame was stepped"));
        }
    }
}
