//! A rolling hash of one site's inputs.
//!
//! Inputs may come through a third site, and what a third passes on is only its word. So every site tells, with the hash of its
//! state, a hash of all inputs that it has given so far; whoever has others of it knows as soon as one such word comes
//! directly. It is SHA-256 over the changes since the comparison before and the value told then, cut to 64 bits: no third
//! site finds other inputs that fit while the game goes on.

use sha2::{Digest, Sha256};

use super::peer::Peer;
use crate::frame::Frame;
use crate::input::{Block, MAX_BLOCKS, Stream};

/// The rolling hash of one stream.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    changes: Sha256,
    last: [Block; MAX_BLOCKS],
    /// The frame of the last change.
    changed: Frame,
    /// It begins with this frame, and inputs before `until` are in it.
    first: Frame,
    until: Frame,
    /// What it was at the comparison before; `None` for one who came later and has not been told.
    value: Option<u64>,
}

impl Chain {
    /// Of a stream that begins with this frame.
    pub(super) fn new(first: Frame) -> Self {
        Self {
            changes: Sha256::new(),
            last: [[0; 16]; MAX_BLOCKS],
            changed: first,
            first,
            until: first,
            value: Some(0),
        }
    }

    /// Of a stream whose beginning is not known.
    pub(super) fn unknown(first: Frame) -> Self {
        Self { value: None, ..Self::new(first) }
    }

    /// Goes on with what the site itself tells, up to and with a frame.
    pub(super) fn adopt(&mut self, stream: &Stream, frame: Frame, value: u64) {
        let next = Self::new(frame.next());
        let blocks = stream.blocks();
        *self = Self { value: Some(value), ..next };
        if let Some(known) = stream.value_blocks(frame) {
            self.last[..blocks].copy_from_slice(known);
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.value.is_some()
    }

    /// Takes in the inputs before `until`, which are known; `absent` tells where there are none.
    pub(super) fn advance(&mut self, stream: &Stream, until: Frame, absent: impl Fn(Frame) -> bool) {
        const NOTHING: &[Block] = &[[0; 16]; MAX_BLOCKS];
        let blocks = stream.blocks();
        while self.until < until {
            let frame = self.until;
            self.until = frame.next();
            let input = stream.value_blocks(frame).filter(|_| !absent(frame)).unwrap_or(&NOTHING[..blocks]);
            if input != &self.last[..blocks] {
                self.last[..blocks].copy_from_slice(input);
                self.put_change(frame, stream.width());
            }
        }
    }

    /// Hashing is dear, so a change takes few bytes: how long after the one before, and what.
    fn put_change(&mut self, frame: Frame, width: usize) {
        let since = (frame - self.changed).clamp(0, i64::from(u16::MAX)) as u16;
        self.changed = frame;
        self.changes.update(since.to_le_bytes());
        self.changes.update(&self.last.as_flattened()[..width]);
    }

    /// The value up to and with a frame, with which the next stretch begins; none before the first frame.
    pub(super) fn close(&mut self, frame: Frame) -> Option<u64> {
        if frame < self.first {
            return None;
        }
        self.changed = self.until;
        let mut changes = core::mem::take(&mut self.changes);
        changes.update(self.value?.to_le_bytes());
        let hash = <[u8; 32]>::from(changes.finalize());
        self.value = hash.first_chunk().copied().map(u64::from_le_bytes);
        self.value
    }
}

impl Peer {
    /// The hash of its inputs, as we have them, up to and with a frame.
    pub(super) fn close_chain(&mut self, frame: Frame) -> Option<u64> {
        self.advance_chain(frame.next());
        self.chain.close(frame)
    }

    pub(super) fn advance_chain(&mut self, until: Frame) {
        let mut chain = core::mem::replace(&mut self.chain, Chain::new(Frame::ZERO));
        chain.advance(&self.inputs, until, |frame| self.is_absent(frame));
        self.chain = chain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(values: &[u8]) -> Stream {
        let mut stream = Stream::new(1, Frame::ZERO);
        values.iter().for_each(|value| stream.push(&[*value]));
        stream
    }

    fn value(values: &[u8], cuts: &[u32]) -> Option<u64> {
        let (stream, mut chain) = (stream(values), Chain::new(Frame::ZERO));
        cuts.iter().for_each(|cut| chain.advance(&stream, Frame::new(*cut), |_| false));
        chain.close(Frame::new(values.len() as u32))
    }

    #[test]
    fn it_sees_every_input_and_not_how_it_came() {
        let inputs = [0, 0, 5, 5, 7, 7, 7, 0];
        assert_eq!(value(&inputs, &[8]), value(&inputs, &[1, 3, 3, 8]));
        for at in 0..inputs.len() {
            let mut forged = inputs;
            forged[at] ^= 1;
            assert_ne!(value(&forged, &[8]), value(&inputs, &[8]), "input {at}");
        }
    }

    #[test]
    fn what_was_different_once_stays_different() {
        let chains = [[1, 1, 0, 0], [2, 1, 0, 0]].map(|inputs| {
            let (stream, mut chain) = (stream(&inputs), Chain::new(Frame::ZERO));
            chain.advance(&stream, Frame::new(2), |_| false);
            chain.close(Frame::new(1));
            chain.advance(&stream, Frame::new(4), |_| false);
            chain.close(Frame::new(3))
        });
        assert_ne!(chains[0], chains[1]);
    }
}
