//! History of played frames as encoded records: the newest in a ring and, optionally, all of them in a log until it is
//! full.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::MAX_RECORD_SIZE;
use crate::frame::Frame;

/// Location of a record in the ring or in the log.
#[derive(Clone, Copy, Debug)]
struct HistoryEntry {
    first: Frame,
    count: u32,
    offset: u32,
    len: u32,
}

/// A record of the history, borrowed from the ring or the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredRecord<'a> {
    pub(super) first: Frame,
    pub(super) count: u32,
    pub(super) bytes: &'a [u8],
}

/// Encoded records of consecutive frames. Allocates only at construction.
#[derive(Debug)]
pub(super) struct History {
    ring: Box<[u8]>,
    entries: VecDeque<HistoryEntry>,
    max_entries: usize,
    /// Offset in the ring at which the next record is written, unless it does not fit there.
    write_offset: usize,
    log: Vec<u8>,
    log_entries: Vec<HistoryEntry>,
    max_log_bytes: usize,
    /// Whether the log holds every record, from the first one on. `false` without a log and after the log has
    /// overflowed.
    log_is_complete: bool,
    end: Option<Frame>,
}

/// Assumed size of a logged record in bytes, which bounds the number of log entries. With shorter records the log is
/// full before all of its bytes are used.
const TYPICAL_RECORD_SIZE: usize = 12;

impl History {
    /// Reserves a ring for `max_records` records of `ring_bytes` bytes in total, and a log of `log_bytes` bytes. The
    /// ring always has room for four records of any size.
    pub(super) fn new(max_records: usize, ring_bytes: usize, log_bytes: usize) -> Self {
        let max_log_entries = log_bytes / TYPICAL_RECORD_SIZE;
        Self {
            ring: vec![0; ring_bytes.max(4 * MAX_RECORD_SIZE)].into_boxed_slice(),
            entries: VecDeque::with_capacity(max_records.max(4)),
            max_entries: max_records.max(4),
            write_offset: 0,
            log: Vec::with_capacity(log_bytes),
            log_entries: Vec::with_capacity(max_log_entries),
            max_log_bytes: log_bytes,
            log_is_complete: log_bytes > 0,
            end: None,
        }
    }

    pub(super) fn memory(&self) -> usize {
        let entries = self.entries.capacity() + self.log_entries.capacity();
        self.ring.len() + self.log.capacity() + entries * size_of::<HistoryEntry>()
    }

    /// Returns the frame after the last stored one; `None` before the first record.
    pub(super) fn end(&self) -> Option<Frame> {
        self.end
    }

    /// Returns the oldest stored frame after which no frame is missing; `None` before the first record.
    pub(super) fn oldest_frame(&self) -> Option<Frame> {
        let in_ring = self.entries.front()?.first;
        let logged = self.log_entries.last().map(|last| last.first + last.count);
        match self.log_entries.first() {
            Some(first) if logged >= Some(in_ring) => Some(first.first),
            _ => Some(in_ring),
        }
    }

    /// Stores the record of the `count` frames from `first` on, which must follow the last stored frame. The oldest
    /// records in the ring make room.
    pub(super) fn push(&mut self, first: Frame, count: u32, bytes: &[u8]) {
        self.push_log(first, count, bytes);
        let at = self.make_room(bytes.len());
        self.ring[at..at + bytes.len()].copy_from_slice(bytes);
        self.write_offset = at + bytes.len();
        self.entries.push_back(HistoryEntry { first, count, offset: at as u32, len: bytes.len() as u32 });
        self.end = Some(first + count);
    }

    fn push_log(&mut self, first: Frame, count: u32, bytes: &[u8]) {
        let fits =
            self.log.len() + bytes.len() <= self.max_log_bytes && self.log_entries.len() < self.log_entries.capacity();
        self.log_is_complete &= fits;
        if self.log_is_complete {
            self.log_entries.push(HistoryEntry {
                first,
                count,
                offset: self.log.len() as u32,
                len: bytes.len() as u32,
            });
            self.log.extend_from_slice(bytes);
        }
    }

    /// Drops the oldest records in the ring until `len` bytes fit, and returns the ring offset for these bytes.
    fn make_room(&mut self, len: usize) -> usize {
        if self.entries.len() == self.max_entries {
            self.entries.pop_front();
        }
        let mut at = self.write_offset;
        if at + len > self.ring.len() {
            while self.entries.front().is_some_and(|oldest| oldest.offset as usize >= at) {
                self.entries.pop_front();
            }
            at = 0;
        }
        let overlaps =
            |oldest: &HistoryEntry| (oldest.offset as usize) < at + len && (oldest.offset + oldest.len) as usize > at;
        while self.entries.front().is_some_and(overlaps) {
            self.entries.pop_front();
        }
        at
    }

    /// Returns the record that contains `frame`, from the ring or else from the log; `None` if neither has it.
    pub(super) fn find(&self, frame: Frame) -> Option<StoredRecord<'_>> {
        self.find_in_ring(frame).or_else(|| {
            let after = self.log_entries.partition_point(|entry| entry.first <= frame);
            let entry = self.log_entries.get(after.checked_sub(1)?)?;
            entry.record_with(&self.log, frame)
        })
    }

    fn find_in_ring(&self, frame: Frame) -> Option<StoredRecord<'_>> {
        let after = self.entries.partition_point(|entry| entry.first <= frame);
        self.entries.get(after.checked_sub(1)?)?.record_with(&self.ring, frame)
    }
}

impl HistoryEntry {
    fn record_with<'a>(&self, bytes: &'a [u8], frame: Frame) -> Option<StoredRecord<'a>> {
        let bytes = bytes.get(self.offset as usize..(self.offset + self.len) as usize)?;
        (frame < self.first + self.count).then_some(StoredRecord { first: self.first, count: self.count, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_drops_oldest_records_and_log_keeps_all_until_full() {
        let mut history = History::new(50, 5_000, 3_000);
        for batch in 0..1_000u32 {
            let len = 10 + batch as usize * 7 % 300;
            history.push(Frame::new(batch * 6), 6, &vec![batch as u8; len]);
            let (oldest, end) = (history.oldest_frame().unwrap(), history.end().unwrap());
            assert_eq!(end, Frame::new(batch * 6 + 6));
            let mut frame = oldest;
            while frame < end {
                let kept = history.find(frame).expect("history has no gap");
                assert!(kept.first <= frame && frame < kept.first + kept.count);
                let number = kept.first.number() / 6;
                assert_eq!(kept.bytes.len(), 10 + number as usize * 7 % 300);
                assert!(kept.bytes.iter().all(|byte| *byte == number as u8));
                frame = kept.first + kept.count;
            }
            assert!(history.find(end).is_none());
            assert!(oldest == Frame::ZERO || batch > 10, "the log holds the first frames");
        }
        assert!(history.oldest_frame().unwrap() > Frame::new(5_000));
    }

    #[test]
    fn log_keeps_the_first_frame() {
        let mut history = History::new(4, 0, 100_000);
        for batch in 0..1_000u32 {
            history.push(Frame::new(100 + batch * 6), 6, &[batch as u8; 20]);
        }
        assert_eq!(history.oldest_frame(), Some(Frame::new(100)));
        assert_eq!(history.find(Frame::new(107)).unwrap().bytes[0], 1);
    }
}
