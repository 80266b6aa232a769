//! A batch: a few frames of all players' inputs as one record, which can be decoded by itself.

use super::{MAX_CHANGES, MAX_RECORD};
use crate::frame::Frame;
use crate::input::{MAX_WIDTH, get_change, put_change};
use crate::time::Instant;
use crate::wire::{ByteReader, ByteWriter, DecodeError, FrameRecord, MAX_RECORD_FRAMES, put_record};

/// The batch that is being filled.
#[derive(Debug)]
pub(super) struct Batch {
    width: usize,
    first: Frame,
    count: u32,
    /// When its first frame came.
    pub(super) since: Instant,
    value: [u8; MAX_WIDTH],
    /// Frames since the last change.
    unchanged: u32,
    changes: [u8; MAX_CHANGES],
    len: usize,
    pub(super) hash: Option<(Frame, u64)>,
}

impl Batch {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            first: Frame::ZERO,
            count: 0,
            since: Instant::ZERO,
            value: [0; MAX_WIDTH],
            unchanged: 0,
            changes: [0; MAX_CHANGES],
            len: 0,
            hash: None,
        }
    }

    pub(super) fn first(&self) -> Frame {
        self.first
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Adds a frame, which must follow on the last; `false` when there is no room for it.
    pub(super) fn push(&mut self, now: Instant, frame: Frame, value: &[u8]) -> bool {
        if self.count == MAX_RECORD_FRAMES {
            return false;
        }
        let mut writer = ByteWriter::new(&mut self.changes[self.len..]);
        let old = &mut self.value[..self.width];
        if self.count == 0 {
            (self.first, self.since) = (frame, now);
            old.fill(0);
        }
        if self.count == 0 || old != value {
            if put_change(&mut writer, self.unchanged, old, value).is_err() {
                return false;
            }
            self.len += writer.len();
            self.unchanged = 0;
            old.copy_from_slice(value);
        } else {
            self.unchanged += 1;
        }
        self.count += 1;
        true
    }

    /// Writes the batch as a record, and begins a new one.
    pub(super) fn close(&mut self, buf: &mut [u8; MAX_RECORD]) -> usize {
        let mut writer = ByteWriter::new(buf);
        let (first, count) = (self.first.number(), self.count);
        let hash = self.hash.take().map(|(frame, hash)| (frame.number(), hash));
        let record = FrameRecord {
            first_frame: first,
            frame_count: count,
            state_hash: hash,
            changes: &self.changes[..self.len],
        };
        put_record(&mut writer, &record).expect("a record fits into its buffer");
        (self.count, self.len, self.unchanged) = (0, 0, 0);
        writer.len()
    }
}

/// Whether a record can be decoded, so that it need not be asked again when its frames are needed.
pub(super) fn check(width: usize, record: &FrameRecord<'_>) -> Result<(), DecodeError> {
    let mut value = [0; MAX_WIDTH];
    let mut reader = ByteReader::new(record.changes);
    let mut frames = 1u64 + u64::from(get_change(&mut reader, &mut value[..width])?);
    if frames != 1 {
        return Err(DecodeError::Malformed);
    }
    while !reader.is_empty() {
        let before = value;
        frames += u64::from(get_change(&mut reader, &mut value[..width])?) + 1;
        if frames > u64::from(record.frame_count) || before == value {
            return Err(DecodeError::Malformed);
        }
    }
    Ok(())
}

/// The frames of a record, one after the other.
#[derive(Debug)]
pub(super) struct Unroll {
    width: usize,
    value: [u8; MAX_WIDTH],
    next: [u8; MAX_WIDTH],
    /// Frames that pass before the value becomes `next`; `None` when it stays as it is.
    wait: Option<u32>,
    /// How many bytes of the changes are read.
    read: usize,
}

impl Unroll {
    pub(super) fn new(width: usize) -> Self {
        Self { width, value: [0; MAX_WIDTH], next: [0; MAX_WIDTH], wait: None, read: 0 }
    }

    /// The input of the frame at hand.
    pub(super) fn value(&self) -> &[u8] {
        &self.value[..self.width]
    }

    /// Goes to the first frame of a record.
    pub(super) fn begin(&mut self, changes: &[u8]) {
        (self.next, self.read) = ([0; MAX_WIDTH], 0);
        self.fetch(changes);
        self.value = self.next;
        self.fetch(changes);
    }

    /// Goes to the next frame of the same record.
    pub(super) fn step(&mut self, changes: &[u8]) {
        match &mut self.wait {
            Some(0) => {
                self.value = self.next;
                self.fetch(changes);
            }
            Some(wait) => *wait -= 1,
            None => {}
        }
    }

    fn fetch(&mut self, changes: &[u8]) {
        let mut reader = ByteReader::new(changes.get(self.read..).unwrap_or_default());
        self.wait = get_change(&mut reader, &mut self.next[..self.width]).ok();
        self.read = changes.len() - reader.rest().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameRecords;
    use std::vec::Vec;

    #[test]
    fn any_frames_come_back() {
        for (width, restless) in [(0, 1), (2, 1), (4, 3), (6, 2), (16, 5), (128, 1)] {
            let mut batch = Batch::new(width);
            let mut frames: Vec<Vec<u8>> = Vec::new();
            for frame in 0..100u32 {
                let value: Vec<u8> = (0..width).map(|at| (frame / restless * (at as u32 + 7)) as u8).collect();
                if !batch.push(Instant::ZERO, Frame::new(50 + frame), &value) {
                    break;
                }
                frames.push(value);
            }
            assert!(frames.len() >= 6, "a batch of the usual length fits at any width");
            batch.hash = Some((Frame::new(52), 7));
            let (mut buf, mut bytes) = ([0; MAX_RECORD], Vec::from([0u8]));
            let len = batch.close(&mut buf);
            bytes.extend_from_slice(&buf[..len]);
            let record = FrameRecords::new(50, &bytes).unwrap().iter().next().unwrap();
            assert_eq!(
                (record.first_frame, record.frame_count, record.state_hash),
                (50, frames.len() as u32, Some((52, 7)))
            );
            check(width, &record).unwrap();
            let mut unroll = Unroll::new(width);
            unroll.begin(record.changes);
            for (at, value) in frames.iter().enumerate() {
                if at > 0 {
                    unroll.step(record.changes);
                }
                assert_eq!(unroll.value(), value, "frame {at} of width {width}");
            }
        }
    }

    #[test]
    fn nonsense_is_seen_before_it_is_kept() {
        let record = |count, changes| FrameRecord { first_frame: 0, frame_count: count, state_hash: None, changes };
        assert!(check(2, &record(3, &[])).is_err(), "nothing to begin with");
        assert!(check(2, &record(3, &[4])).is_err(), "the first frame is not the first");
        assert!(check(2, &record(3, &[0, 1 | 3 << 2, 9])).is_err(), "more frames than there are");
        assert!(check(2, &record(3, &[0, 1, 0])).is_err(), "a change that is none");
        assert!(check(2, &record(3, &[0, 1 | 1 << 2, 9])).is_ok());
    }
}
