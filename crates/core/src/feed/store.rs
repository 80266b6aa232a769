//! Records on their way to the machine: kept as they came, in any order, and unrolled frame by frame.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::batch::Unroll;
use crate::frame::Frame;
use crate::wire::FrameRecord;

/// A record, or the part of it that no other has. Entries are disjoint and in order.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first: Frame,
    until: Frame,
    /// The first frame of the whole record.
    base: Frame,
    at: u32,
    len: u32,
}

/// The most entries, whatever their size.
const MOST_ENTRIES: usize = 8_192;

/// Received frames that were not yet given out.
#[derive(Debug)]
pub(super) struct Store {
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    /// The bytes of the entries.
    used: usize,
    most: usize,
    /// The next frame to be given out.
    begin: Frame,
    /// The first frame that is not here.
    end: Frame,
    unroll: Unroll,
    /// The frame that `unroll` shows, if any.
    shown: Option<Frame>,
}

impl Store {
    /// Holds up to `most` bytes.
    pub(super) fn new(width: usize, most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            used: 0,
            most: most.max(4 * super::MAX_RECORD),
            begin: Frame::ZERO,
            end: Frame::ZERO,
            unroll: Unroll::new(width),
            shown: None,
        }
    }

    /// Begins anew with this frame.
    pub(super) fn reset(&mut self, begin: Frame) {
        self.entries.clear();
        self.bytes.clear();
        (self.used, self.begin, self.end, self.shown) = (0, begin, begin, None);
    }

    pub(super) fn begin(&self) -> Frame {
        self.begin
    }

    pub(super) fn end(&self) -> Frame {
        self.end
    }

    /// Frames that can be given out.
    pub(super) fn ready(&self) -> u32 {
        (self.end - self.begin).max(0) as u32
    }

    /// Whether there is no room for much more.
    pub(super) fn is_full(&self) -> bool {
        self.used > self.most / 4 * 3 || self.entries.len() > MOST_ENTRIES / 4 * 3
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Keeps what is new in a record that can be decoded. Where there is no room, what is nearer counts more. Says whether
    /// anything was kept.
    pub(super) fn insert(&mut self, record: &FrameRecord<'_>) -> bool {
        let base = Frame::new(record.first_frame);
        let (mut first, mut until) = (base.max(self.begin), base + record.frame_count);
        let at = self.entries.partition_point(|entry| entry.first <= first);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.entries.get(before)) {
            first = first.max(before.until);
        }
        if let Some(after) = self.entries.get(at) {
            until = until.min(after.first);
        }
        if first >= until || !self.make_room(first, record.changes.len()) {
            return false;
        }
        let entry = Entry { first, until, base, at: self.bytes.len() as u32, len: record.changes.len() as u32 };
        self.bytes.extend_from_slice(record.changes);
        self.used += record.changes.len();
        self.entries.insert(at.min(self.entries.len()), entry);
        self.extend_end();
        true
    }

    /// Goes on over what is here.
    fn extend_end(&mut self) {
        let mut at = self.entries.partition_point(|entry| entry.first < self.end);
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.first == self.end) {
            self.end = entry.until;
            at += 1;
        }
    }

    /// Makes room for so many bytes of this frame, if need be by forgetting what is further ahead.
    fn make_room(&mut self, first: Frame, len: usize) -> bool {
        while self.used + len > self.most || self.entries.len() >= MOST_ENTRIES {
            let furthest = self.entries.back().filter(|back| back.first > first && back.first >= self.end);
            let Some(furthest) = furthest.copied() else { return false };
            self.entries.pop_back();
            self.used -= furthest.len as usize;
        }
        if self.bytes.len() + len > (2 * self.used + len).max(1_024) {
            self.compact();
        }
        true
    }

    /// Closes the holes between the bytes of entries.
    fn compact(&mut self) {
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.at);
        let mut to = 0;
        for entry in &mut self.entries {
            let from = entry.at as usize;
            self.bytes.copy_within(from..from + entry.len as usize, to);
            entry.at = to as u32;
            to += entry.len as usize;
        }
        self.bytes.truncate(to);
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.first);
    }

    /// The next stretch of frames that are not here, from `from` on and before `limit`.
    pub(super) fn gap(&self, from: Frame, limit: Frame) -> Option<(Frame, Frame)> {
        let mut from = from.max(self.end);
        let mut at = self.entries.partition_point(|entry| entry.until <= from);
        while let Some(entry) = self.entries.get(at).filter(|entry| entry.first <= from) {
            from = entry.until;
            at += 1;
        }
        let until = self.entries.get(at).map_or(limit, |entry| entry.first.min(limit));
        (from < until).then_some((from, until))
    }

    /// Takes out the input of the next frame, if it is here.
    pub(super) fn take(&mut self) -> Option<&[u8]> {
        let entry = *self.entries.front().filter(|entry| entry.first <= self.begin)?;
        let changes = self.bytes.get(entry.at as usize..(entry.at + entry.len) as usize)?;
        let mut shown = match self.shown {
            Some(shown) if shown < self.begin && entry.base <= shown && entry.first <= shown => shown,
            _ => {
                self.unroll.begin(changes);
                entry.base
            }
        };
        while shown < self.begin {
            self.unroll.step(changes);
            shown = shown.next();
        }
        self.shown = Some(shown);
        self.begin = self.begin.next();
        if self.begin >= entry.until {
            self.entries.pop_front();
            self.used -= entry.len as usize;
        }
        Some(self.unroll.value())
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_RECORD;
    use super::super::batch::Batch;
    use super::*;
    use crate::time::Instant;
    use crate::wire::FrameRecords;

    fn value(frame: u32) -> [u8; 2] {
        [(frame / 3) as u8, (frame / 50) as u8]
    }

    fn record(first: u32, count: u32) -> Vec<u8> {
        let (mut batch, mut buf) = (Batch::new(2), [0; MAX_RECORD]);
        for frame in first..first + count {
            assert!(batch.push(Instant::ZERO, Frame::new(frame), &value(frame)));
        }
        let len = batch.close(&mut buf);
        [&[0], &buf[..len]].concat()
    }

    fn insert(store: &mut Store, first: u32, count: u32) -> bool {
        let bytes = record(first, count);
        store.insert(&FrameRecords::new(first, &bytes).unwrap().iter().next().unwrap())
    }

    #[test]
    fn any_order_and_overlap_gives_the_same_frames() {
        let mut luck = 7u64;
        let mut below = |bound: u64| {
            luck = super::super::mix(luck, 1);
            luck % bound
        };
        for _ in 0..30 {
            let mut store = Store::new(2, 1 << 20);
            store.reset(Frame::new(100));
            let mut given = 100;
            while given < 1_000 {
                for _ in 0..6 {
                    insert(&mut store, (given + below(80) as u32).saturating_sub(10), 1 + below(20) as u32);
                }
                let gap = store.gap(store.end(), Frame::new(given + 60));
                if let Some((from, until)) = gap.filter(|_| below(2) == 0) {
                    let (count, end) = ((until - from) as u32, store.end());
                    assert!(insert(&mut store, from.number(), count.min(100)));
                    assert!(store.end() > end);
                }
                for _ in 0..below(10) {
                    let Some(bytes) = store.take() else { break };
                    assert_eq!(bytes, value(given), "frame {given}");
                    given += 1;
                    assert_eq!(store.begin(), Frame::new(given));
                }
            }
        }
    }

    #[test]
    fn what_is_nearer_counts_more_and_memory_is_bounded() {
        let mut store = Store::new(2, 0);
        for first in (600..60_000).step_by(6) {
            insert(&mut store, first, 6);
        }
        assert!(store.is_full() && store.memory() < 64 * 1_024, "{}", store.memory());
        for first in (0..1_000).step_by(6) {
            insert(&mut store, first, 6);
        }
        assert!(store.end() > Frame::new(900));
        let frames: Vec<Vec<u8>> = core::iter::from_fn(|| store.take().map(<[u8]>::to_vec)).collect();
        assert_eq!(frames, (0..frames.len() as u32).map(|frame| value(frame).to_vec()).collect::<Vec<_>>());
        assert_eq!(store.take(), None);
    }
}
