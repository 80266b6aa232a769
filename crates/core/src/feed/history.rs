//! What was played, as encoded records: the newest in a ring, and, if wanted, all of it in a log.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::MAX_RECORD;
use crate::frame::Frame;

/// Where a record is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first: Frame,
    count: u32,
    at: u32,
    len: u32,
}

/// A record that was kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a> {
    pub(super) first: Frame,
    pub(super) count: u32,
    pub(super) bytes: &'a [u8],
}

/// Records of frames that follow each other without a gap. Nothing is allocated after the beginning.
#[derive(Debug)]
pub(super) struct History {
    ring: Box<[u8]>,
    entries: VecDeque<Entry>,
    most_entries: usize,
    /// Where the next record goes.
    head: usize,
    log: Vec<u8>,
    log_entries: Vec<Entry>,
    most_log: usize,
    /// The log has everything from its first frame on.
    log_is_complete: bool,
    end: Option<Frame>,
}

/// Bytes of a record in the log, for deciding how many fit; if they are shorter the log ends earlier than it could.
const USUAL_RECORD: usize = 12;

impl History {
    /// Room for so many records of so many bytes in all; the log has room for `log` bytes.
    pub(super) fn new(records: usize, bytes: usize, log: usize) -> Self {
        let most_log_entries = log / USUAL_RECORD;
        Self {
            ring: vec![0; bytes.max(4 * MAX_RECORD)].into_boxed_slice(),
            entries: VecDeque::with_capacity(records.max(4)),
            most_entries: records.max(4),
            head: 0,
            log: Vec::with_capacity(log),
            log_entries: Vec::with_capacity(most_log_entries),
            most_log: log,
            log_is_complete: log > 0,
            end: None,
        }
    }

    pub(super) fn memory(&self) -> usize {
        let entries = self.entries.capacity() + self.log_entries.capacity();
        self.ring.len() + self.log.capacity() + entries * size_of::<Entry>()
    }

    /// The frame after the last.
    pub(super) fn end(&self) -> Option<Frame> {
        self.end
    }

    /// The first frame that can be had.
    pub(super) fn oldest(&self) -> Option<Frame> {
        let in_ring = self.entries.front()?.first;
        let logged = self.log_entries.last().map(|last| last.first + last.count);
        match self.log_entries.first() {
            Some(first) if logged >= Some(in_ring) => Some(first.first),
            _ => Some(in_ring),
        }
    }

    /// Adds a record, which must follow on the last.
    pub(super) fn push(&mut self, first: Frame, count: u32, bytes: &[u8]) {
        self.push_log(first, count, bytes);
        let at = self.make_room(bytes.len());
        self.ring[at..at + bytes.len()].copy_from_slice(bytes);
        self.head = at + bytes.len();
        self.entries.push_back(Entry { first, count, at: at as u32, len: bytes.len() as u32 });
        self.end = Some(first + count);
    }

    fn push_log(&mut self, first: Frame, count: u32, bytes: &[u8]) {
        let fits =
            self.log.len() + bytes.len() <= self.most_log && self.log_entries.len() < self.log_entries.capacity();
        self.log_is_complete &= fits;
        if self.log_is_complete {
            self.log_entries.push(Entry { first, count, at: self.log.len() as u32, len: bytes.len() as u32 });
            self.log.extend_from_slice(bytes);
        }
    }

    /// Forgets the oldest records until there is room, and says where.
    fn make_room(&mut self, len: usize) -> usize {
        if self.entries.len() == self.most_entries {
            self.entries.pop_front();
        }
        let mut at = self.head;
        if at + len > self.ring.len() {
            while self.entries.front().is_some_and(|oldest| oldest.at as usize >= at) {
                self.entries.pop_front();
            }
            at = 0;
        }
        let in_the_way = |oldest: &Entry| (oldest.at as usize) < at + len && (oldest.at + oldest.len) as usize > at;
        while self.entries.front().is_some_and(in_the_way) {
            self.entries.pop_front();
        }
        at
    }

    /// The record that has this frame.
    pub(super) fn find(&self, frame: Frame) -> Option<Kept<'_>> {
        self.find_in_ring(frame).or_else(|| {
            let after = self.log_entries.partition_point(|entry| entry.first <= frame);
            let entry = self.log_entries.get(after.checked_sub(1)?)?;
            entry.kept(&self.log, frame)
        })
    }

    fn find_in_ring(&self, frame: Frame) -> Option<Kept<'_>> {
        let after = self.entries.partition_point(|entry| entry.first <= frame);
        self.entries.get(after.checked_sub(1)?)?.kept(&self.ring, frame)
    }
}

impl Entry {
    fn kept<'a>(&self, bytes: &'a [u8], frame: Frame) -> Option<Kept<'a>> {
        let bytes = bytes.get(self.at as usize..(self.at + self.len) as usize)?;
        (frame < self.first + self.count).then_some(Kept { first: self.first, count: self.count, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_turns_and_the_log_holds_until_it_is_full() {
        let mut history = History::new(50, 5_000, 3_000);
        for batch in 0..1_000u32 {
            let len = 10 + batch as usize * 7 % 300;
            history.push(Frame::new(batch * 6), 6, &vec![batch as u8; len]);
            let (oldest, end) = (history.oldest().unwrap(), history.end().unwrap());
            assert_eq!(end, Frame::new(batch * 6 + 6));
            let mut frame = oldest;
            while frame < end {
                let kept = history.find(frame).expect("no gap");
                assert!(kept.first <= frame && frame < kept.first + kept.count);
                let number = kept.first.number() / 6;
                assert_eq!(kept.bytes.len(), 10 + number as usize * 7 % 300);
                assert!(kept.bytes.iter().all(|byte| *byte == number as u8));
                frame = kept.first + kept.count;
            }
            assert!(history.find(end).is_none());
            assert!(oldest == Frame::ZERO || batch > 10, "the log holds the first frames");
        }
        assert!(history.oldest().unwrap() > Frame::new(5_000));
    }

    #[test]
    fn a_log_gives_the_first_frame_for_ever() {
        let mut history = History::new(4, 0, 100_000);
        for batch in 0..1_000u32 {
            history.push(Frame::new(100 + batch * 6), 6, &[batch as u8; 20]);
        }
        assert_eq!(history.oldest(), Some(Frame::new(100)));
        assert_eq!(history.find(Frame::new(107)).unwrap().bytes[0], 1);
    }
}
