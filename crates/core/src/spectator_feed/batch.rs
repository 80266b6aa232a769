//! Encoding of batches as records, and decoding of records. A batch holds the inputs of all players for a few frames. A
//! record is an encoded batch, which decodes independently of all other records.

use super::{MAX_CHANGES_SIZE, MAX_RECORD_SIZE};
use crate::codec::{ByteReader, ByteWriter, DecodeError};
use crate::frame::Frame;
use crate::input::{MAX_WIDTH, get_change, put_change};
use crate::spectator_feed::message::{FrameRunRecord, MAX_RECORD_FRAMES, put_record};
use crate::time::Instant;

/// Frames pushed into a feed since the last batch was closed, and their encoding so far.
#[derive(Debug)]
pub(super) struct Batch {
    width: usize,
    first: Frame,
    count: u32,
    /// Time at which the first frame of the batch was pushed.
    pub(super) started_at: Instant,
    last_input: [u8; MAX_WIDTH],
    /// Number of frames pushed after the frame in which the input last changed.
    unchanged_frames: u32,
    changes: [u8; MAX_CHANGES_SIZE],
    changes_len: usize,
    pub(super) hash: Option<(Frame, u64)>,
}

impl Batch {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            first: Frame::ZERO,
            count: 0,
            started_at: Instant::ZERO,
            last_input: [0; MAX_WIDTH],
            unchanged_frames: 0,
            changes: [0; MAX_CHANGES_SIZE],
            changes_len: 0,
            hash: None,
        }
    }

    pub(super) fn first(&self) -> Frame {
        self.first
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Appends `frame`, which must follow the last appended one, with its packed input `value`. Returns `false` and
    /// appends nothing if the batch already has 127 frames or the input change does not fit.
    pub(super) fn push(&mut self, now: Instant, frame: Frame, value: &[u8]) -> bool {
        if self.count == MAX_RECORD_FRAMES {
            return false;
        }
        let mut writer = ByteWriter::new(&mut self.changes[self.changes_len..]);
        let old = &mut self.last_input[..self.width];
        if self.count == 0 {
            (self.first, self.started_at) = (frame, now);
            old.fill(0);
        }
        if self.count == 0 || old != value {
            if put_change(&mut writer, self.unchanged_frames, old, value).is_err() {
                return false;
            }
            self.changes_len += writer.len();
            self.unchanged_frames = 0;
            old.copy_from_slice(value);
        } else {
            self.unchanged_frames += 1;
        }
        self.count += 1;
        true
    }

    /// Encodes the batch as a record and begins a new batch. Returns the record's length in bytes.
    pub(super) fn close(&mut self, buf: &mut [u8; MAX_RECORD_SIZE]) -> usize {
        let mut writer = ByteWriter::new(buf);
        let (first, count) = (self.first.number(), self.count);
        let hash = self.hash.take().map(|(frame, hash)| (frame.number(), hash));
        let record = FrameRunRecord {
            first_frame: first,
            frame_count: count,
            state_hash: hash,
            changes: &self.changes[..self.changes_len],
        };
        put_record(&mut writer, &record).expect("record fits into its buffer");
        (self.count, self.changes_len, self.unchanged_frames) = (0, 0, 0);
        writer.len()
    }
}

/// Checks that a record decodes, so that decoding cannot fail later when its frames are needed.
pub(super) fn validate_record(width: usize, record: &FrameRunRecord<'_>) -> Result<(), DecodeError> {
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

/// Decoder that steps through the inputs of a record frame by frame.
#[derive(Debug)]
pub(super) struct RecordDecoder {
    width: usize,
    input: [u8; MAX_WIDTH],
    next_input: [u8; MAX_WIDTH],
    /// Number of further frames with `input` before it becomes `next_input`; `None` when the input stays the same until
    /// the end of the record.
    frames_until_change: Option<u32>,
    /// Number of bytes of the record's changes decoded so far.
    bytes_read: usize,
}

impl RecordDecoder {
    pub(super) fn new(width: usize) -> Self {
        Self { width, input: [0; MAX_WIDTH], next_input: [0; MAX_WIDTH], frames_until_change: None, bytes_read: 0 }
    }

    /// Returns the packed input of the frame to which `begin` or `step` moved last.
    pub(super) fn input(&self) -> &[u8] {
        &self.input[..self.width]
    }

    /// Moves to the first frame of the record with these changes.
    pub(super) fn begin(&mut self, changes: &[u8]) {
        (self.next_input, self.bytes_read) = ([0; MAX_WIDTH], 0);
        self.read_change(changes);
        self.input = self.next_input;
        self.read_change(changes);
    }

    /// Moves to the next frame of the record whose changes were passed to `begin`.
    pub(super) fn step(&mut self, changes: &[u8]) {
        match &mut self.frames_until_change {
            Some(0) => {
                self.input = self.next_input;
                self.read_change(changes);
            }
            Some(wait) => *wait -= 1,
            None => {}
        }
    }

    fn read_change(&mut self, changes: &[u8]) {
        let mut reader = ByteReader::new(changes.get(self.bytes_read..).unwrap_or_default());
        self.frames_until_change = get_change(&mut reader, &mut self.next_input[..self.width]).ok();
        self.bytes_read = changes.len() - reader.rest().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectator_feed::message::FrameRecords;
    use std::vec::Vec;

    #[test]
    fn encoded_batch_decodes_to_the_same_frames() {
        for (width, change_interval) in [(0, 1), (2, 1), (4, 3), (6, 2), (16, 5), (128, 1)] {
            let mut batch = Batch::new(width);
            let mut frames: Vec<Vec<u8>> = Vec::new();
            for frame in 0..100u32 {
                let value: Vec<u8> = (0..width).map(|at| (frame / change_interval * (at as u32 + 7)) as u8).collect();
                if !batch.push(Instant::ZERO, Frame::new(50 + frame), &value) {
                    break;
                }
                frames.push(value);
            }
            assert!(frames.len() >= 6, "a batch of the default length fits at any width");
            batch.hash = Some((Frame::new(52), 7));
            let (mut buf, mut bytes) = ([0; MAX_RECORD_SIZE], Vec::from([0u8]));
            let len = batch.close(&mut buf);
            bytes.extend_from_slice(&buf[..len]);
            let record = FrameRecords::new(50, &bytes).unwrap().iter().next().unwrap();
            assert_eq!(
                (record.first_frame, record.frame_count, record.state_hash),
                (50, frames.len() as u32, Some((52, 7)))
            );
            validate_record(width, &record).unwrap();
            let mut decoder = RecordDecoder::new(width);
            decoder.begin(record.changes);
            for (at, value) in frames.iter().enumerate() {
                if at > 0 {
                    decoder.step(record.changes);
                }
                assert_eq!(decoder.input(), value, "frame {at} of width {width}");
            }
        }
    }

    #[test]
    fn malformed_record_is_rejected() {
        let record = |count, changes| FrameRunRecord { first_frame: 0, frame_count: count, state_hash: None, changes };
        assert!(validate_record(2, &record(3, &[])).is_err(), "no first value");
        assert!(validate_record(2, &record(3, &[4])).is_err(), "first value after frame 0");
        assert!(validate_record(2, &record(3, &[0, 1 | 3 << 2, 9])).is_err(), "change beyond the last frame");
        assert!(validate_record(2, &record(3, &[0, 1, 0])).is_err(), "change to an equal value");
        assert!(validate_record(2, &record(3, &[0, 1 | 1 << 2, 9])).is_ok());
    }
}
