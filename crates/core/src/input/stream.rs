//! One site's inputs over time: a bounded ring that accepts them in any order and returns them by frame.

use alloc::boxed::Box;
use alloc::vec;

use super::PackedInputPart;
use super::delta_codec::{MAX_WIDTH, get_change, put_change};
use crate::codec;
use crate::codec::{BufferFull, ByteReader, ByteWriter};
use crate::frame::Frame;

/// Capacity of a stream in frames: half of them behind its gapless end, half ahead of it. It is a constant, so that the
/// decodable range never depends on how far ahead a site may run.
pub const STREAM_CAPACITY: usize = 512;
/// Number of 16-byte blocks of the widest input.
pub(crate) const MAX_BLOCKS: usize = MAX_WIDTH / 16;
/// Number of frames kept behind the gapless end. Fewer than this are accepted ahead of it.
pub(crate) const HALF_CAPACITY: u32 = STREAM_CAPACITY as u32 / 2;

/// Reason that [`Stream::receive`] rejected inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamError {
    /// The bytes are not a valid encoding of the inputs.
    Malformed,
    /// The inputs begin before the stream's first frame, are more than 256 frames, or end 256 frames or more ahead of
    /// its gapless end.
    OutOfRange,
    /// The inputs are encoded as changes of a frame whose input is unknown or no longer kept.
    MissingBase,
}

impl From<codec::DecodeError> for StreamError {
    fn from(_: codec::DecodeError) -> Self {
        Self::Malformed
    }
}

/// One site's packed inputs, from 256 frames behind its gapless end to 255 frames ahead of it.
///
/// Before its first frame the input is neutral (all bits zero), because the input delay leaves those frames empty.
/// After a restart it may be unknown instead.
#[derive(Debug)]
pub struct Stream {
    width: usize,
    start: Frame,
    /// Whether the input before `start` is known to be neutral.
    has_neutral_start: bool,
    /// All inputs before this frame are present.
    end: Frame,
    /// End of the inputs that are present, with or without gaps before it.
    received_end: Frame,
    values: Box<[PackedInputPart]>,
    block_count: usize,
    /// Number of changes of the input up to a frame, modulo 256, in a ring by frame. Equal counters prove that nothing
    /// changed inside a gap, which makes the gap concealment of Kim and Park (K5) sound.
    change_counters: Box<[u8; STREAM_CAPACITY]>,
    /// Marks the frames past `end` that are present, in a ring by frame.
    held: Box<[bool; STREAM_CAPACITY]>,
}

impl Stream {
    /// Creates an empty stream of inputs of `width` bytes whose first frame is `start`. Panics if the width exceeds
    /// that of nine whole words, 144 bytes.
    pub fn new(width: usize, start: Frame) -> Self {
        assert!(width <= MAX_WIDTH, "input width of {width} bytes exceeds {MAX_WIDTH}");
        Self {
            width,
            start,
            has_neutral_start: true,
            end: start,
            received_end: start,
            values: vec![[0; 16]; width.div_ceil(16) * STREAM_CAPACITY].into_boxed_slice(),
            block_count: width.div_ceil(16),
            change_counters: Box::new([0; STREAM_CAPACITY]),
            held: Box::new([false; STREAM_CAPACITY]),
        }
    }

    /// Returns the width of a packed input in bytes.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the heap memory of the rings in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.values) + size_of_val(&*self.change_counters) + size_of_val(&*self.held)
    }

    /// Returns the first frame of the stream, before which the input is neutral or unknown.
    pub(crate) fn start(&self) -> Frame {
        self.start
    }

    /// Returns the first missing frame. All earlier ones are known.
    pub fn end(&self) -> Frame {
        self.end
    }

    /// Returns the frame after the last one present, with or without gaps before it.
    pub fn received_end(&self) -> Frame {
        self.received_end
    }

    /// Returns whether the present frames have no gap.
    pub(crate) fn is_gapless(&self) -> bool {
        self.end == self.received_end
    }

    /// Returns whether the input of a frame is known, although it may no longer be kept.
    pub fn contains(&self, frame: Frame) -> bool {
        frame < self.end || (frame < self.received_end && self.held[Self::slot(frame)])
    }

    /// Returns the input of a frame, if it is known and still kept.
    pub fn value(&self, frame: Frame) -> Option<&[u8]> {
        (self.contains(frame) && self.end - frame <= i64::from(HALF_CAPACITY)).then(|| self.slot_value(frame))
    }

    /// Returns the number of 16-byte blocks of an input.
    pub(crate) fn block_count(&self) -> usize {
        self.block_count
    }

    /// Returns the input of a frame in 16-byte blocks, if it is known and still kept.
    pub(crate) fn value_blocks(&self, frame: Frame) -> Option<&[PackedInputPart]> {
        (self.contains(frame) && self.end - frame <= i64::from(HALF_CAPACITY)).then(|| self.slot_blocks(frame))
    }

    /// Appends the input of the next frame, [`Stream::end`]. Panics unless `value` is as wide as the stream.
    pub fn push(&mut self, value: &[u8]) {
        let mut blocks = [[0; 16]; MAX_BLOCKS];
        blocks.as_flattened_mut()[..self.width].copy_from_slice(value);
        self.push_blocks(&blocks[..self.block_count]);
    }

    /// Appends the input of the next frame, in 16-byte blocks.
    #[inline]
    pub(crate) fn push_blocks(&mut self, value: &[PackedInputPart]) {
        let changed = match (self.end.checked_sub(1).filter(|_| self.end > self.start), value) {
            (Some(before), [block]) => self.values[Self::slot(before)] != *block,
            (Some(before), blocks) => self.slot_blocks(before) != blocks,
            (None, blocks) => blocks.iter().any(|block| *block != [0; 16]),
        };
        let counter = self.counter_before(self.end).wrapping_add(u8::from(changed));
        self.store(self.end, value, counter);
        self.end = self.end.next();
        self.received_end = self.received_end.max(self.end);
    }

    /// Restarts the stream at frame `first`. Inputs before `last` stay. From `last` to `first` the input is neutral or,
    /// without `has_neutral_start`, unknown, so that the first inputs must be absolute.
    pub(crate) fn restart(&mut self, last: Frame, first: Frame, has_neutral_start: bool) {
        self.has_neutral_start = has_neutral_start;
        let oldest = first.checked_sub(STREAM_CAPACITY as u32 - 1).unwrap_or_default();
        let mut frame = last.max(oldest);
        while frame < first {
            self.store(frame, &[[0; 16]; MAX_BLOCKS], 0);
            frame = frame.next();
        }
        self.held.fill(false);
        (self.start, self.end, self.received_end) = (first, first, first);
        // Changes are counted from here on, as a joiner counts the changes of its own input.
        if let Some(before) = first.checked_sub(1) {
            self.change_counters[Self::slot(before)] = 0;
        }
    }

    /// Accepts the inputs of `len` frames from `first` on. `bytes` encodes them as changes of the input before `first`
    /// or, if `absolute`, begins with the whole input of `first`. Known frames are not replaced, and malformed bytes
    /// change nothing.
    #[inline]
    pub fn receive(&mut self, first: Frame, len: u32, absolute: bool, bytes: &[u8]) -> Result<(), StreamError> {
        let until = first + len;
        // The limit is below 256 frames, because changes in a gap are counted modulo 256.
        if len > HALF_CAPACITY || until - self.end >= i64::from(HALF_CAPACITY) || first < self.start {
            return Err(StreamError::OutOfRange);
        }
        if until <= self.end || len == 0 {
            return Ok(());
        }
        if bytes.is_empty() && !absolute && first <= self.end && self.end > self.start && self.is_gapless() {
            match self.block_count {
                1 => self.extend_unchanged::<1>(until),
                _ => self.extend_unchanged::<MAX_BLOCKS>(until),
            }
            return Ok(());
        }
        if self.block_count <= 1 {
            self.decode::<1>(first, until, absolute, bytes)?;
        } else {
            self.decode::<MAX_BLOCKS>(first, until, absolute, bytes)?;
        }
        self.accept_decoded(first.max(self.end), until);
        Ok(())
    }

    /// Extends the stream to `until` with unchanged input, the fast path for most packets.
    #[inline]
    fn extend_unchanged<const BLOCKS: usize>(&mut self, until: Frame) {
        let counter = self.counter_before(self.end);
        let mut value = [[0; 16]; BLOCKS];
        self.load_before(self.end, &mut value);
        while self.end < until {
            self.store(self.end, &value, counter);
            self.end = self.end.next();
        }
        self.received_end = self.end;
    }

    /// Decodes inputs into slots that nothing reads until [`Stream::accept_decoded`] marks them as present.
    fn decode<const N: usize>(
        &mut self,
        first: Frame,
        until: Frame,
        absolute: bool,
        bytes: &[u8],
    ) -> Result<(), StreamError> {
        let width = self.width;
        let mut value = [[0; 16]; N];
        let mut reader = ByteReader::new(bytes);
        let mut counter;
        let mut frame = first;
        if absolute {
            counter = reader.u8()?;
            if get_change(&mut reader, &mut value.as_flattened_mut()[..width])? != 0 {
                return Err(StreamError::Malformed);
            }
            frame = self.store_missing(frame, frame.next(), &value, counter);
        } else {
            let has_no_base = !self.has_neutral_start && first == self.start;
            if has_no_base || first > self.end || self.end - first >= i64::from(HALF_CAPACITY) {
                return Err(StreamError::MissingBase);
            }
            self.load_before(first, &mut value);
            counter = self.counter_before(first);
        }
        while !reader.is_empty() {
            let mut next = value;
            let change_at = frame + get_change(&mut reader, &mut next.as_flattened_mut()[..width])?;
            if change_at >= until || next == value {
                return Err(StreamError::Malformed);
            }
            self.store_missing(frame, change_at, &value, counter);
            value = next;
            counter = counter.wrapping_add(1);
            frame = self.store_missing(change_at, change_at.next(), &value, counter);
        }
        self.store_missing(frame, until, &value, counter);
        Ok(())
    }

    /// Marks the decoded frames of `from..until` as present, and moves the gapless end as far as possible.
    fn accept_decoded(&mut self, from: Frame, until: Frame) {
        if from == self.end {
            self.advance_end(until);
        } else {
            let mut frame = from;
            while frame < until {
                self.held[Self::slot(frame)] = true;
                frame = frame.next();
            }
        }
        self.received_end = self.received_end.max(until);
        while self.end < self.received_end && self.close_gap() {}
    }

    /// Moves the gapless end to `until`.
    fn advance_end(&mut self, until: Frame) {
        while self.end < until {
            self.held[Self::slot(self.end)] = false;
            self.end = self.end.next();
        }
    }

    /// Moves the gapless end over the next present frames. If a gap precedes them, moves it only if provably nothing
    /// changed in the gap. Returns whether it moved.
    fn close_gap(&mut self) -> bool {
        let mut island = self.end;
        while island < self.received_end && !self.held[Self::slot(island)] {
            island = island.next();
        }
        if island == self.received_end {
            return false;
        }
        if island > self.end {
            let counter = self.counter_before(self.end);
            let has_base = self.has_neutral_start || self.end > self.start;
            if !has_base || self.change_counters[Self::slot(island)] != counter {
                return false;
            }
            let mut value = [[0; 16]; MAX_BLOCKS];
            self.load_before(island.next(), &mut value);
            self.store_missing(self.end, island, &value, counter);
        }
        let mut until = island;
        while until < self.received_end && self.held[Self::slot(until)] {
            until = until.next();
        }
        self.advance_end(until);
        true
    }

    /// Encodes the changes of `first..until`, which must be present, relative to the input before `first`. If
    /// `absolute`, the encoding begins with the change counter and the whole input of `first`.
    #[inline]
    pub(crate) fn encode(
        &self,
        writer: &mut ByteWriter<'_>,
        first: Frame,
        until: Frame,
        absolute: bool,
    ) -> Result<(), BufferFull> {
        let mut frame = first;
        if absolute && first < until {
            writer.u8(self.change_counters[Self::slot(first)])?;
            put_change(writer, 0, &[0; MAX_WIDTH][..self.width], self.slot_value(first))?;
            frame = frame.next();
        }
        let mut unchanged = 0;
        let mut changes = self.count_changes(frame, until);
        while changes > 0 {
            if self.is_changed_at(frame) {
                put_change(writer, unchanged, self.value_before(frame), self.slot_value(frame))?;
                unchanged = 0;
                changes -= 1;
            } else {
                unchanged += 1;
            }
            frame = frame.next();
        }
        Ok(())
    }

    /// Returns whether the input of a known frame differs from that of the frame before it.
    pub(crate) fn is_changed_at(&self, frame: Frame) -> bool {
        self.change_counters[Self::slot(frame)] != self.counter_before(frame)
    }

    /// Returns the number of changes in the known frames of `first..until`, which must be fewer than 256.
    pub(crate) fn count_changes(&self, first: Frame, until: Frame) -> u8 {
        if first >= until {
            return 0;
        }
        self.counter_before(until).wrapping_sub(self.counter_before(first))
    }

    fn slot(frame: Frame) -> usize {
        frame.number() as usize % STREAM_CAPACITY
    }

    fn slot_blocks(&self, frame: Frame) -> &[PackedInputPart] {
        let at = Self::slot(frame) * self.block_count;
        &self.values[at..at + self.block_count]
    }

    fn slot_value(&self, frame: Frame) -> &[u8] {
        &self.slot_blocks(frame).as_flattened()[..self.width]
    }

    #[inline]
    fn store(&mut self, frame: Frame, value: &[PackedInputPart], counter: u8) {
        let (slot, at) = (Self::slot(frame), Self::slot(frame) * self.block_count);
        self.change_counters[slot] = counter;
        match self.block_count {
            0 => {}
            1 => self.values[at] = value[0],
            blocks => self.values[at..at + blocks].copy_from_slice(&value[..blocks]),
        }
    }

    /// Stores one input for the missing frames of `from..until` (the first received input stands). Returns `until`.
    fn store_missing(&mut self, from: Frame, until: Frame, value: &[PackedInputPart], counter: u8) -> Frame {
        let mut frame = from.max(self.end);
        while frame < until {
            if !self.held[Self::slot(frame)] {
                self.store(frame, value, counter);
            }
            frame = frame.next();
        }
        until
    }

    /// Loads the input of the frame before `frame` into `value`; neutral input if `frame` is the stream's first.
    #[inline]
    fn load_before(&self, frame: Frame, value: &mut [PackedInputPart]) {
        let Some(before) = frame.checked_sub(1).filter(|_| frame > self.start) else { return value.fill([0; 16]) };
        let at = Self::slot(before) * self.block_count;
        match self.block_count {
            0 => {}
            1 => value[0] = self.values[at],
            blocks => value[..blocks].copy_from_slice(&self.values[at..at + blocks]),
        }
    }

    fn value_before(&self, frame: Frame) -> &[u8] {
        match frame.checked_sub(1) {
            Some(before) if frame > self.start => self.slot_value(before),
            _ => &[0; MAX_WIDTH][..self.width],
        }
    }

    fn counter_before(&self, frame: Frame) -> u8 {
        match frame.checked_sub(1) {
            Some(before) if frame > self.start => self.change_counters[Self::slot(before)],
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const START: Frame = Frame::new(3);

    fn stream_of(values: &[u8]) -> Stream {
        let mut stream = Stream::new(1, START);
        for value in values {
            stream.push(&[*value]);
        }
        stream
    }

    fn encoded(stream: &Stream, first: u32, until: u32, absolute: bool) -> Vec<u8> {
        let mut buf = [0; 600];
        let mut writer = ByteWriter::new(&mut buf);
        stream.encode(&mut writer, START + first, START + until, absolute).unwrap();
        let len = writer.len();
        buf[..len].to_vec()
    }

    fn transfer(from: &Stream, to: &mut Stream, first: u32, until: u32, absolute: bool) -> Result<(), StreamError> {
        to.receive(START + first, until - first, absolute, &encoded(from, first, until, absolute))
    }

    fn values(stream: &Stream, until: u32) -> Vec<u8> {
        (0..until).map(|frame| stream.value(START + frame).unwrap()[0]).collect()
    }

    #[test]
    fn inputs_arrive_equal_in_any_order_and_overlap() {
        let inputs = [0, 0, 5, 5, 5, 9, 0, 0, 0, 1];
        let from = stream_of(&inputs);
        let mut to = Stream::new(1, START);
        transfer(&from, &mut to, 6, 10, true).unwrap();
        transfer(&from, &mut to, 1, 3, true).unwrap();
        assert_eq!((to.end(), to.received_end()), (START + 3, START + 10), "frame 0 is concealed, frame 3 is not");
        transfer(&from, &mut to, 2, 6, false).unwrap();
        assert_eq!(to.end(), START + 10);
        assert_eq!(values(&to, 10), inputs);
    }

    #[test]
    fn gap_is_closed_only_without_changes_in_it() {
        let still = stream_of(&[7, 7, 7, 7, 7]);
        let mut to = Stream::new(1, START);
        transfer(&still, &mut to, 0, 1, false).unwrap();
        transfer(&still, &mut to, 4, 5, true).unwrap();
        assert_eq!(to.end(), START + 5);

        // Released and pressed once more inside the gap: equal on both sides, but different in between.
        let tapped = stream_of(&[7, 7, 0, 7, 7]);
        let mut to = Stream::new(1, START);
        transfer(&tapped, &mut to, 0, 1, false).unwrap();
        transfer(&tapped, &mut to, 4, 5, true).unwrap();
        assert_eq!(to.end(), START + 1);
        transfer(&tapped, &mut to, 1, 4, true).unwrap();
        assert_eq!(values(&to, 5), [7, 7, 0, 7, 7]);
    }

    #[test]
    fn first_received_input_is_kept() {
        let (one, other) = (stream_of(&[1, 1, 1]), stream_of(&[2, 2, 2, 2]));
        let mut to = Stream::new(1, START);
        transfer(&one, &mut to, 0, 3, false).unwrap();
        transfer(&other, &mut to, 0, 4, false).unwrap();
        assert_eq!(values(&to, 4), [1, 1, 1, 2]);
    }

    #[test]
    fn invalid_inputs_change_nothing() {
        let from = stream_of(&[1, 2, 3, 4]);
        let mut to = Stream::new(1, START);
        assert_eq!(to.receive(START, 300, false, &[]), Err(StreamError::OutOfRange));
        assert_eq!(to.receive(START + 250, 100, true, &[]), Err(StreamError::OutOfRange));
        assert_eq!(to.receive(Frame::ZERO, 1, true, &[0, 0]), Err(StreamError::OutOfRange));
        assert_eq!(transfer(&from, &mut to, 2, 4, false), Err(StreamError::MissingBase));
        let mut bytes = encoded(&from, 0, 4, false);
        bytes.pop();
        assert_eq!(to.receive(START, 4, false, &bytes), Err(StreamError::Malformed));
        assert_eq!((to.end(), to.received_end()), (START, START));
        transfer(&from, &mut to, 0, 4, false).unwrap();
        assert_eq!(values(&to, 4), [1, 2, 3, 4]);
    }

    #[test]
    fn ring_wraps_and_forgets_old_frames() {
        let mut from = Stream::new(1, START);
        let mut to = Stream::new(1, START);
        for frame in 0..5_000u32 {
            from.push(&[(frame / 3) as u8]);
            if frame % 50 == 49 {
                transfer(&from, &mut to, frame - 49, frame + 1, false).unwrap();
            }
        }
        assert_eq!(to.end(), START + 5_000);
        assert_eq!(to.value(START + 4_999).unwrap(), [(4_999 / 3) as u8]);
        assert_eq!(to.value(START + 4_000), None);
    }
}
