//! Buffer of received records: stores them in any order of arrival and decodes them frame by frame.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::batch::RecordDecoder;
use crate::frame::Frame;
use crate::spectator_feed::message::FrameRunRecord;

/// A record, or the part of it that no other entry covers. Entries are disjoint and sorted.
#[derive(Clone, Copy, Debug)]
struct BufferedRecord {
    first: Frame,
    end: Frame,
    /// The first frame of the whole record.
    record_first: Frame,
    offset: u32,
    len: u32,
}

/// Largest number of entries, whatever their size.
const MAX_ENTRIES: usize = 8_192;

/// Buffer of received frames that the spectator has not taken out yet.
#[derive(Debug)]
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
    entries: VecDeque<BufferedRecord>,
    /// Total size of the entries' changes, in bytes.
    used_bytes: usize,
    max_bytes: usize,
    /// The next frame to be taken out.
    next_frame: Frame,
    /// The first frame at or after `next_frame` that is missing.
    contiguous_end: Frame,
    decoder: RecordDecoder,
    /// The frame whose input `decoder` holds; `None` until a frame has been decoded.
    decoded_frame: Option<Frame>,
}

impl RecordBuffer {
    /// Creates a buffer for inputs of `width` bytes that holds up to `max_bytes` bytes of records, but at least four
    /// records.
    pub(super) fn new(width: usize, max_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            used_bytes: 0,
            max_bytes: max_bytes.max(4 * super::MAX_RECORD_SIZE),
            next_frame: Frame::ZERO,
            contiguous_end: Frame::ZERO,
            decoder: RecordDecoder::new(width),
            decoded_frame: None,
        }
    }

    /// Discards all records and restarts at frame `begin`.
    pub(super) fn reset(&mut self, begin: Frame) {
        self.entries.clear();
        self.bytes.clear();
        (self.used_bytes, self.next_frame, self.contiguous_end, self.decoded_frame) = (0, begin, begin, None);
    }

    pub(super) fn next_frame(&self) -> Frame {
        self.next_frame
    }

    pub(super) fn contiguous_end(&self) -> Frame {
        self.contiguous_end
    }

    /// Returns the number of frames that can be taken out before the first missing one.
    pub(super) fn ready_frames(&self) -> u32 {
        (self.contiguous_end - self.next_frame).max(0) as u32
    }

    /// Returns whether the buffer is more than three quarters full, by bytes or by entries.
    pub(super) fn is_full(&self) -> bool {
        self.used_bytes > self.max_bytes / 4 * 3 || self.entries.len() > MAX_ENTRIES / 4 * 3
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<BufferedRecord>()
    }

    /// Stores the frames of a validated record that are neither taken out nor stored, up to the next stored record.
    /// When the buffer is full, nearer frames displace frames further ahead. Returns whether any frame was stored.
    pub(super) fn insert(&mut self, record: &FrameRunRecord<'_>) -> bool {
        let base = Frame::new(record.first_frame);
        let (mut first, mut until) = (base.max(self.next_frame), base + record.frame_count);
        let at = self.entries.partition_point(|entry| entry.first <= first);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.entries.get(before)) {
            first = first.max(before.end);
        }
        if let Some(after) = self.entries.get(at) {
            until = until.min(after.first);
        }
        if first >= until || !self.make_room(first, record.changes.len()) {
            return false;
        }
        let entry = BufferedRecord {
            first,
            end: until,
            record_first: base,
            offset: self.bytes.len() as u32,
            len: record.changes.len() as u32,
        };
        self.bytes.extend_from_slice(record.changes);
        self.used_bytes += record.changes.len();
        self.entries.insert(at.min(self.entries.len()), entry);
        self.extend_contiguous_end();
        true
    }

    /// Advances `contiguous_end` over the entries that follow it.
    fn extend_contiguous_end(&mut self) {
        let mut at = self.entries.partition_point(|entry| entry.first < self.contiguous_end);
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.first == self.contiguous_end) {
            self.contiguous_end = entry.end;
            at += 1;
        }
    }

    /// Makes room for `len` bytes of a record at frame `first`, if necessary by discarding frames further ahead that
    /// follow a gap. Returns `false` if that does not make enough room.
    fn make_room(&mut self, first: Frame, len: usize) -> bool {
        while self.used_bytes + len > self.max_bytes || self.entries.len() >= MAX_ENTRIES {
            let furthest = self.entries.back().filter(|back| back.first > first && back.first >= self.contiguous_end);
            let Some(furthest) = furthest.copied() else { return false };
            self.entries.pop_back();
            self.used_bytes -= furthest.len as usize;
        }
        if self.bytes.len() + len > (2 * self.used_bytes + len).max(1_024) {
            self.compact();
        }
        true
    }

    /// Removes unused bytes between the stored records.
    fn compact(&mut self) {
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.offset);
        let mut to = 0;
        for entry in &mut self.entries {
            let from = entry.offset as usize;
            self.bytes.copy_within(from..from + entry.len as usize, to);
            entry.offset = to as u32;
            to += entry.len as usize;
        }
        self.bytes.truncate(to);
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.first);
    }

    /// Returns the next range of missing frames at or after `from` and before `limit`.
    pub(super) fn next_gap(&self, from: Frame, limit: Frame) -> Option<(Frame, Frame)> {
        let mut from = from.max(self.contiguous_end);
        let mut at = self.entries.partition_point(|entry| entry.end <= from);
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.first <= from) {
            from = entry.end;
            at += 1;
        }
        let until = self.entries.get(at).map_or(limit, |entry| entry.first.min(limit));
        (from < until).then_some((from, until))
    }

    /// Takes out the packed input of the next frame; `None` if that frame is missing.
    pub(super) fn take_next(&mut self) -> Option<&[u8]> {
        let entry = *self.entries.front().filter(|entry| entry.first <= self.next_frame)?;
        let changes = self.bytes.get(entry.offset as usize..(entry.offset + entry.len) as usize)?;
        let mut decoded = match self.decoded_frame {
            Some(decoded) if decoded < self.next_frame && entry.record_first <= decoded && entry.first <= decoded => {
                decoded
            }
            _ => {
                self.decoder.begin(changes);
                entry.record_first
            }
        };
        while decoded < self.next_frame {
            self.decoder.step(changes);
            decoded = decoded.next();
        }
        self.decoded_frame = Some(decoded);
        self.next_frame = self.next_frame.next();
        if self.next_frame >= entry.end {
            self.entries.pop_front();
            self.used_bytes -= entry.len as usize;
        }
        Some(self.decoder.input())
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_RECORD_SIZE;
    use super::super::batch::Batch;
    use super::*;
    use crate::spectator_feed::message::FrameRecords;
    use crate::time::Instant;

    fn input_of(frame: u32) -> [u8; 2] {
        [(frame / 3) as u8, (frame / 50) as u8]
    }

    fn encode_record(first: u32, count: u32) -> Vec<u8> {
        let (mut batch, mut buf) = (Batch::new(2), [0; MAX_RECORD_SIZE]);
        for frame in first..first + count {
            assert!(batch.push(Instant::ZERO, Frame::new(frame), &input_of(frame)));
        }
        let len = batch.close(&mut buf);
        [&[0], &buf[..len]].concat()
    }

    fn insert_record(buffer: &mut RecordBuffer, first: u32, count: u32) -> bool {
        let bytes = encode_record(first, count);
        buffer.insert(&FrameRecords::new(first, &bytes).unwrap().iter().next().unwrap())
    }

    #[test]
    fn reordered_and_overlapping_records_give_the_same_frames() {
        let mut random = 7u64;
        let mut below = |bound: u64| {
            random = super::super::mix(random, 1);
            random % bound
        };
        for _ in 0..30 {
            let mut buffer = RecordBuffer::new(2, 1 << 20);
            buffer.reset(Frame::new(100));
            let mut given = 100;
            while given < 1_000 {
                for _ in 0..6 {
                    insert_record(&mut buffer, (given + below(80) as u32).saturating_sub(10), 1 + below(20) as u32);
                }
                let gap = buffer.next_gap(buffer.contiguous_end(), Frame::new(given + 60));
                if let Some((from, until)) = gap.filter(|_| below(2) == 0) {
                    let (count, end) = ((until - from) as u32, buffer.contiguous_end());
                    assert!(insert_record(&mut buffer, from.number(), count.min(100)));
                    assert!(buffer.contiguous_end() > end);
                }
                for _ in 0..below(10) {
                    let Some(bytes) = buffer.take_next() else { break };
                    assert_eq!(bytes, input_of(given), "frame {given}");
                    given += 1;
                    assert_eq!(buffer.next_frame(), Frame::new(given));
                }
            }
        }
    }

    #[test]
    fn full_buffer_prefers_nearer_frames_and_bounds_memory() {
        let mut buffer = RecordBuffer::new(2, 0);
        for first in (600..60_000).step_by(6) {
            insert_record(&mut buffer, first, 6);
        }
        assert!(buffer.is_full() && buffer.memory() < 64 * 1_024, "{}", buffer.memory());
        for first in (0..1_000).step_by(6) {
            insert_record(&mut buffer, first, 6);
        }
        assert!(buffer.contiguous_end() > Frame::new(900));
        let frames: Vec<Vec<u8>> = core::iter::from_fn(|| buffer.take_next().map(<[u8]>::to_vec)).collect();
        assert_eq!(frames, (0..frames.len() as u32).map(|frame| input_of(frame).to_vec()).collect::<Vec<_>>());
        assert_eq!(buffer.take_next(), None);
    }
}
