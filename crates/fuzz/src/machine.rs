//! The machine of a fuzzed site: a hash of all inputs so far, and a host program that serves only what makes sense.

use std::collections::VecDeque;

use coplay::input::{InputWord, MAX_PLAYERS};

/// What all players did in a frame.
pub(crate) type Words = [InputWord; MAX_PLAYERS];

/// A machine, the states that were saved, and the frames that it stepped.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// A hash of all inputs so far.
    pub(crate) state: u64,
    /// The next frame that it steps.
    next: u32,
    /// Frames that were stepped at least once.
    pub(crate) stepped: u32,
    /// Saved states, with the frame that comes next in each.
    slots: Vec<Option<(u32, u64)>>,
    /// The inputs of frames that may be stepped again, oldest first.
    open: VecDeque<Words>,
    /// The first frame that it stepped since it was put into another's state.
    pub(crate) first: u32,
    /// The inputs of frames that will not be, from that one on.
    pub(crate) certain: Vec<Words>,
    /// How many frames were stepped for the first time, all in all.
    pub(crate) steps: u64,
}

impl Machine {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots: vec![None; slots], ..Self::default() }
    }

    /// Takes over a state that another site made of its own, or that nobody made.
    pub(crate) fn restore(&mut self, frame: u32, bytes: &[u8]) {
        self.state = bytes.first_chunk().map_or(0, |state| u64::from_le_bytes(*state));
        (self.first, self.next, self.stepped) = (frame, frame, frame);
        self.slots.fill(None);
        self.open.clear();
        self.certain.clear();
    }

    /// The state before a frame, which is at hand or was saved, in so many bytes that it does not get smaller.
    pub(crate) fn snapshot(&self, frame: u32, slot: Option<usize>, size: usize) -> (Vec<u8>, u64) {
        let (next, state) = match slot {
            Some(slot) => self.slots[slot].expect("a state that was saved"),
            None => (self.next, self.state),
        };
        assert_eq!(frame, next, "the state is the one before the frame");
        let noise = (0..size as u64).map(|at| (state ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) as u8);
        (state.to_le_bytes().into_iter().chain(noise).collect(), state)
    }

    pub(crate) fn save(&mut self, frame: u32, slot: usize) {
        assert_eq!(frame, self.next, "the state that is saved is the one at hand");
        let slots = self.slots.len();
        let place = self.slots.get_mut(slot).unwrap_or_else(|| panic!("there is no slot {slot}, only {slots}"));
        *place = Some((frame, self.state));
    }

    pub(crate) fn load(&mut self, frame: u32, slot: usize) {
        let saved = self.slots.get(slot).copied().flatten();
        let (next, state) = saved.unwrap_or_else(|| panic!("nothing was saved in slot {slot}"));
        assert_eq!(frame, next, "what is loaded is what was saved there");
        self.check_open(frame);
        (self.next, self.state) = (next, state);
    }

    pub(crate) fn advance(&mut self, frame: u32, inputs: &[InputWord], fresh: bool) {
        assert_eq!(frame, self.next, "frames are stepped in order");
        assert_eq!(fresh, frame == self.stepped, "frame {frame} of {} is fresh the first time only", self.stepped);
        self.check_open(frame);
        let mut words = [0; MAX_PLAYERS];
        words[..inputs.len()].copy_from_slice(inputs);
        for word in inputs {
            self.state =
                (self.state ^ (*word ^ *word >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        self.next += 1;
        if fresh {
            self.stepped += 1;
            self.steps += 1;
            self.open.push_back(words);
        } else {
            self.open[(frame - self.first) as usize - self.certain.len()] = words;
        }
    }

    /// Everything before this frame is certain.
    fn confirmed(&self) -> u32 {
        self.first + self.certain.len() as u32
    }

    fn check_open(&self, frame: u32) {
        assert!(frame >= self.confirmed(), "frame {frame} is stepped again, and was certain");
    }

    /// Everything before this frame is certain.
    pub(crate) fn confirm(&mut self, end: u32) {
        assert!(end <= self.next, "frame {end} is certain before it was stepped");
        while self.confirmed() < end {
            self.certain.push(self.open.pop_front().expect("what is certain was stepped"));
        }
    }
}
