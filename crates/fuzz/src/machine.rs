//! The machine of a fuzzed site: a hash of all inputs so far, and a host program that serves only what makes sense.

use std::collections::VecDeque;

use coplay::input::{InputWord, MAX_PLAYERS};

/// What all players did in a frame.
pub(crate) type InputWords = [InputWord; MAX_PLAYERS];

/// A machine, the states that were saved, and the frames that it stepped.
#[derive(Debug, Default)]
pub(crate) struct HashMachine {
    /// A hash of all inputs so far.
    pub(crate) state_hash: u64,
    /// The next frame that it steps.
    next_frame: u32,
    /// Frames that were stepped at least once.
    pub(crate) stepped_frames: u32,
    /// Saved states, with the frame that comes next in each.
    slots: Vec<Option<(u32, u64)>>,
    /// The inputs of frames that may be stepped again, oldest first.
    unconfirmed_inputs: VecDeque<InputWords>,
    /// The first frame that it stepped since it was put into another's state.
    pub(crate) first_frame: u32,
    /// The inputs of frames that will not be, from that one on.
    pub(crate) confirmed_inputs: Vec<InputWords>,
    /// How many frames were stepped for the first time, all in all.
    pub(crate) fresh_steps: u64,
}

impl HashMachine {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![None; slots], ..Self::default() }
    }

    /// Takes over a state that another site made of its own, or that nobody made.
    pub(crate) fn restore(&mut self, frame: u32, bytes: &[u8]) {
        self.state_hash = bytes.first_chunk().map_or(0, |state| u64::from_le_bytes(*state));
        (self.first_frame, self.next_frame, self.stepped_frames) = (frame, frame, frame);
        self.slots.fill(None);
        self.unconfirmed_inputs.clear();
        self.confirmed_inputs.clear();
    }

    /// The state before a frame, which is at hand or was saved, in so many bytes that it does not get smaller.
    pub(crate) fn snapshot(&self, frame: u32, slot: Option<usize>, size: usize) -> (Vec<u8>, u64) {
        let (next, state) = match slot {
            Some(slot) => self.slots[slot].expect("a state that was saved"),
            None => (self.next_frame, self.state_hash),
        };
        assert_eq!(frame, next, "the state is the one before the frame");
        let noise = (0..size as u64).map(|at| (state ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as u8);
        (state.to_le_bytes().into_iter().chain(noise).collect(), state)
    }

    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        assert_eq!(frame, self.next_frame, "the state that is saved is the one at hand");
        let slots = self.slots.len();
        let place = self.slots.get_mut(slot).unwrap_or_else(|| panic!("there is no slot {slot}, only {slots}"));
        *place = Some((frame, self.state_hash));
    }

    pub(crate) fn load(&mut self, frame: u32, slot: usize) {
        let saved = self.slots.get(slot).copied().flatten();
        let (next, state) = saved.unwrap_or_else(|| panic!("nothing was saved in slot {slot}"));
        assert_eq!(frame, next, "what is loaded is what was saved there");
        self.check_unconfirmed(frame);
        (self.next_frame, self.state_hash) = (next, state);
    }

    pub(crate) fn advance(&mut self, frame: u32, inputs: &[InputWord], fresh: bool) {
        assert_eq!(frame, self.next_frame, "frames are stepped in order");
        assert_eq!(
            fresh,
            frame == self.stepped_frames,
            "frame {frame} of {} is fresh the first time only",
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

    /// Everything before this frame is certain.
    fn confirmed_end(&self) -> u32 {
        self.first_frame + self.confirmed_inputs.len() as u32
    }

    fn check_unconfirmed(&self, frame: u32) {
        assert!(frame >= self.confirmed_end(), "frame {frame} is stepped again, and was certain");
    }

    /// Everything before this frame is certain.
    pub(crate) fn confirm_until(&mut self, end: u32) {
        assert!(end <= self.next_frame, "frame {end} is certain before it was stepped");
        while self.confirmed_end() < end {
            self.confirmed_inputs.push(self.unconfirmed_inputs.pop_front().expect("what is certain was stepped"));
        }
    }
}
