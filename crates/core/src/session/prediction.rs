//! Inputs that are not here yet: what was guessed for them, and whether that was right.
//!
//! A frame may be stepped although some inputs for it are missing, as long as no more than [`Settings::window`] frames rest on
//! guesses. What was guessed is kept until the truth comes; the earliest frame in which the two differ is where the repair begins.
//!
//! [`Settings::window`]: super::Settings::window

use alloc::boxed::Box;
use alloc::vec;

use super::Session;
use super::peer::Peer;
use crate::frame::Frame;
use crate::input::{InputLayout, InputWord, MAX_BLOCKS, PackedInputBlock, Stream};
use crate::time::{Instant, TimeDelta};

/// Who is this part of a frame away, or less, is so near that its inputs are worth a moment's wait: it begins the frame when we do, and
/// what it sends then is here at once. On a local network that is one more packet that must be lost before a guess is needed.
const NEAR_PEER_DIVISOR: i64 = 16;
/// A host program and a network are on time to about this.
const TIMING_TOLERANCE: TimeDelta = TimeDelta::from_micros(250);

impl Session {
    /// When missing inputs of the frame that began then are guessed: at once, unless somebody is near who has them.
    pub(super) fn predict_at(&self, began: Instant) -> Instant {
        let most = self.config.settings.rate.period() / NEAR_PEER_DIVISOR;
        let way = |peer: &Peer| peer.clock.rtt_min().map(|rtt| rtt / 2).filter(|way| *way <= most);
        let missing = self.peers.iter().filter(|peer| peer.is_playing() && peer.known_end() <= self.frame);
        missing.filter_map(way).max().map_or(began, |way| began + way + TIMING_TOLERANCE)
    }
}

/// How missing inputs are guessed. Sites need not guess alike: a guess never outlives the truth.
#[derive(Clone, Copy, Debug, Default)]
pub enum InputPredictor {
    /// A player goes on doing what was seen last.
    #[default]
    Repeat,
    /// A player lets go of everything.
    Neutral,
    /// Any other way: given what is known of one site's inputs, fill in its words for a frame.
    Custom(fn(&InputHistory<'_>, Frame, &mut [InputWord])),
}

/// What is known of one site's inputs.
#[derive(Debug)]
pub struct InputHistory<'a> {
    inputs: &'a Stream,
    layout: &'a InputLayout,
}

impl InputHistory<'_> {
    /// The first frame that is to be guessed.
    pub fn end(&self) -> Frame {
        self.inputs.end()
    }

    /// Adds the site's input of a known frame to the players' words; `false` if it is not known, or was too long ago.
    pub fn read(&self, frame: Frame, words: &mut [InputWord]) -> bool {
        let blocks = self.inputs.value_blocks(frame);
        blocks.inspect(|blocks| self.layout.unpack_blocks(blocks, words)).is_some()
    }
}

/// What was guessed for one site's inputs, by frame.
#[derive(Debug)]
pub(super) struct PredictedInputs {
    ring: Box<[PackedInputBlock]>,
    slots: usize,
    blocks: usize,
}

impl PredictedInputs {
    pub(super) fn new(slots: usize, blocks: usize) -> Self {
        Self { ring: vec![[0; 16]; slots * blocks].into_boxed_slice(), slots, blocks }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.ring)
    }

    fn ring_range(&self, frame: Frame) -> core::ops::Range<usize> {
        let at = frame.number() as usize % self.slots.max(1) * self.blocks;
        at..at + self.blocks
    }

    /// The guess that a frame was stepped with.
    pub(super) fn get(&self, frame: Frame) -> &[PackedInputBlock] {
        &self.ring[self.ring_range(frame)]
    }

    /// Guesses the input of a frame, keeps the guess, and hands it out.
    pub(super) fn predict(
        &mut self,
        predictor: InputPredictor,
        inputs: &Stream,
        layout: &InputLayout,
        frame: Frame,
        players: usize,
    ) -> &[PackedInputBlock] {
        let at = self.ring_range(frame);
        let guess = &mut self.ring[at];
        match predictor {
            InputPredictor::Repeat => match inputs.end().checked_sub(1).and_then(|last| inputs.value_blocks(last)) {
                Some(last) => guess.copy_from_slice(last),
                None => guess.fill([0; 16]),
            },
            InputPredictor::Neutral => guess.fill([0; 16]),
            InputPredictor::Custom(predict) => {
                let mut words = [0; crate::input::MAX_PLAYERS];
                predict(&InputHistory { inputs, layout }, frame, &mut words[..players]);
                let mut packed = [[0; 16]; MAX_BLOCKS];
                layout.pack_blocks(&words[..players], &mut packed[..guess.len()]);
                guess.copy_from_slice(&packed[..guess.len()]);
            }
        }
        guess
    }

    /// Takes all frames so far for guessed to have this input.
    pub(super) fn fill(&mut self, input: &[PackedInputBlock]) {
        self.ring.chunks_exact_mut(self.blocks.max(1)).for_each(|guess| guess.copy_from_slice(input));
    }

    /// Keeps what is known of a frame in place of a guess, because something before it is not known yet.
    pub(super) fn store_known(&mut self, frame: Frame, truth: &[PackedInputBlock]) -> &[PackedInputBlock] {
        let at = self.ring_range(frame);
        self.ring[at.clone()].copy_from_slice(truth);
        &self.ring[at]
    }
}
