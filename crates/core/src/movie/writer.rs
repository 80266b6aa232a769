//! Movie writer: encodes a movie frame by frame.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::block::{
    BLOCK_HEAD_SIZE, BlockHead, BlockKind, MAX_BLOCK_FRAMES, MAX_BLOCK_SIZE, MAX_PAYLOAD, verify_checksum,
};
use super::{HASH_TAG, MAGIC, MARK_TAG, MAX_MARK_SIZE, MAX_STATE_SIZE, VERSION, merged_layout};
use crate::codec::{BufferFull, ByteWriter as Put};
use crate::frame::Frame;
use crate::input::delta_codec::{MAX_WIDTH, put_change};
use crate::input::{InputLayout, InputWord};
use crate::settings::encode::put_settings;
use crate::settings::{Settings, SettingsError};

/// Maximum number of finished bytes that wait for [`MovieWriter::poll_bytes`]. Header and start state may exceed it.
const MAX_PENDING_BYTES: usize = 4 * MAX_BLOCK_SIZE;
/// Upper bound for a token and the item that follows it: the widest input takes 167 bytes, the longest mark 260.
const MAX_TOKEN_SIZE: usize = 288;

/// Point of the recorded game at which a movie begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovieStartPoint<'a> {
    /// Frame 0 of a machine that was just switched on.
    PowerOn,
    /// A frame of a running game, with the state before it.
    Snapshot {
        /// The first frame of the movie.
        frame: Frame,
        /// The machine's state before that frame.
        state: &'a [u8],
    },
}

/// Reason that a movie cannot be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MovieStartError {
    /// [`Settings::check`] rejects the settings.
    Settings(SettingsError),
    /// The state has this size in bytes, above [`MAX_STATE_SIZE`].
    StateTooLarge(usize),
}

impl fmt::Display for MovieStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::StateTooLarge(len) => {
                write!(f, "a state of {len} bytes is too large; the limit is {MAX_STATE_SIZE} bytes")
            }
        }
    }
}

impl core::error::Error for MovieStartError {}

/// Reason that an item was not written. All items written before remain valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovieWriteError {
    /// The call is for another frame than the writer expects: frames must be consecutive, a hash follows its frame, and
    /// a mark precedes its frame.
    OutOfOrder {
        /// Frame that the writer expects.
        due: Frame,
        /// Frame that the caller passed.
        given: Frame,
    },
    /// The mark has this size in bytes, above [`MAX_MARK_SIZE`].
    MarkTooLong(usize),
    /// Finished bytes wait to be taken: call [`MovieWriter::poll_bytes`], then try again.
    OutputFull,
    /// The movie is finished, or the frame number is `u32::MAX`, which is reserved for the end.
    Finished,
}

impl fmt::Display for MovieWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { due, given } => write!(f, "the movie writer expects frame {due}, not {given}"),
            Self::MarkTooLong(len) => {
                write!(f, "a mark of {len} bytes is too long; the limit is {MAX_MARK_SIZE} bytes")
            }
            Self::OutputFull => {
                write!(f, "the output buffer of the movie is full; write its bytes to the file and try again")
            }
            Self::Finished => write!(f, "the movie is finished; nothing can be added"),
        }
    }
}

impl core::error::Error for MovieWriteError {}

/// Encoder of a movie. The movie is the bytes that [`MovieWriter::poll_bytes`] returns, one after the other.
///
/// Memory is bounded. Once [`MovieWriter::poll_bytes`] has returned the header and the start state, no buffer grows.
#[derive(Debug)]
pub struct MovieWriter {
    layout: InputLayout,
    /// The current block, with room for its head and checksum.
    block: Box<[u8; MAX_BLOCK_SIZE]>,
    /// Payload size of the current block in bytes.
    payload_len: usize,
    /// Number of frames in the current block.
    block_frames: u16,
    /// Number of frames since the last token, all with unchanged input.
    unchanged_frames: u32,
    /// Packed input of the last frame in the current block.
    last_input: [u8; MAX_WIDTH],
    first_frame: Frame,
    /// Next frame to be pushed.
    next_frame: Frame,
    /// Checksum of the header, which seeds the checksums of all other blocks.
    seed: u64,
    is_finished: bool,
    pending: Vec<u8>,
    /// Whether `pending` was returned to the caller and can be cleared.
    is_pending_taken: bool,
}

impl MovieWriter {
    /// Starts a movie. [`MovieWriter::poll_bytes`] returns its first bytes at once.
    pub fn new(settings: &Settings, start: MovieStartPoint<'_>) -> Result<Self, MovieStartError> {
        settings.check().map_err(MovieStartError::Settings)?;
        let (frame, state) = match start {
            MovieStartPoint::PowerOn => (Frame::ZERO, None),
            MovieStartPoint::Snapshot { frame, state } => (frame, Some(state)),
        };
        if let Some(state) = state.filter(|state| state.len() > MAX_STATE_SIZE) {
            return Err(MovieStartError::StateTooLarge(state.len()));
        }
        let mut writer = Self {
            layout: merged_layout(settings),
            block: Box::new([0; MAX_BLOCK_SIZE]),
            payload_len: 0,
            block_frames: 0,
            unchanged_frames: 0,
            last_input: [0; MAX_WIDTH],
            first_frame: frame,
            next_frame: frame,
            seed: 0,
            is_finished: false,
            pending: Vec::with_capacity(MAX_PENDING_BYTES),
            is_pending_taken: false,
        };
        writer.put_header(settings, state).expect("valid settings fit into a block");
        for (piece, at) in state.unwrap_or_default().chunks(MAX_PAYLOAD).zip((0..).step_by(MAX_PAYLOAD)) {
            writer.block[BLOCK_HEAD_SIZE..BLOCK_HEAD_SIZE + piece.len()].copy_from_slice(piece);
            writer.payload_len = piece.len();
            writer.seal_block(BlockKind::State, at);
        }
        Ok(writer)
    }

    fn put_header(&mut self, settings: &Settings, state: Option<&[u8]>) -> Result<(), BufferFull> {
        self.pending.extend_from_slice(&MAGIC);
        self.pending.push(VERSION);
        let mut put = Put::new(&mut self.block[BLOCK_HEAD_SIZE..]);
        put_settings(&mut put, settings)?;
        put.u8(u8::from(state.is_some()))?;
        if let Some(state) = state {
            put.varint(state.len() as u32)?;
        }
        self.payload_len = put.len();
        self.seal_block(BlockKind::Header, self.first_frame.number());
        let header = &self.pending[MAGIC.len() + 1..];
        self.seed = verify_checksum(0, header).expect("the header has just been sealed");
        Ok(())
    }

    /// Appends the inputs of the next frame, one word per player. Bits without an owner are dropped.
    pub fn push(&mut self, frame: Frame, words: &[InputWord]) -> Result<(), MovieWriteError> {
        self.check_frame(frame, self.next_frame)?;
        // The largest frame number is reserved for the end.
        if frame == Frame::new(u32::MAX) {
            return Err(MovieWriteError::Finished);
        }
        if self.block_frames == MAX_BLOCK_FRAMES {
            self.flush()?;
        }
        self.make_room()?;
        let width = self.layout.width();
        let mut packed = [0; MAX_WIDTH];
        self.layout.pack(words, &mut packed[..width]);
        if packed == self.last_input {
            self.unchanged_frames += 1;
        } else {
            self.put_token(|put, unchanged, last| put_change(put, unchanged, &last[..width], &packed[..width]));
            self.last_input = packed;
        }
        self.block_frames += 1;
        self.next_frame = frame.next();
        Ok(())
    }

    /// Appends the state hash after `frame`, which must be the newest pushed frame.
    pub fn push_hash(&mut self, frame: Frame, hash: u64) -> Result<(), MovieWriteError> {
        let newest = self.next_frame.checked_sub(1).filter(|_| self.next_frame > self.first_frame);
        self.check_frame(frame, newest.unwrap_or(self.next_frame))?;
        if newest.is_none() {
            return Err(MovieWriteError::OutOfOrder { due: self.next_frame, given: frame });
        }
        self.push_tagged(HASH_TAG, &hash.to_le_bytes())
    }

    /// Appends a mark: an event at the machine before `frame`, which must be the next frame to be pushed.
    pub fn push_mark(&mut self, frame: Frame, bytes: &[u8]) -> Result<(), MovieWriteError> {
        self.check_frame(frame, self.next_frame)?;
        let len = u8::try_from(bytes.len()).map_err(|_| MovieWriteError::MarkTooLong(bytes.len()))?;
        let mut mark = [len; 1 + MAX_MARK_SIZE];
        mark[1..=bytes.len()].copy_from_slice(bytes);
        self.push_tagged(MARK_TAG, &mark[..=bytes.len()])
    }

    fn check_frame(&self, given: Frame, due: Frame) -> Result<(), MovieWriteError> {
        match given == due {
            _ if self.is_finished => Err(MovieWriteError::Finished),
            true => Ok(()),
            false => Err(MovieWriteError::OutOfOrder { due, given }),
        }
    }

    fn push_tagged(&mut self, kind: u8, bytes: &[u8]) -> Result<(), MovieWriteError> {
        self.make_room()?;
        let width = self.layout.width();
        self.put_token(|put, unchanged, last| {
            put_change(put, unchanged, &last[..width], &last[..width])?;
            put.u8(kind)?;
            put.put(bytes)
        });
        Ok(())
    }

    /// Closes the current block if the next token may not fit.
    fn make_room(&mut self) -> Result<(), MovieWriteError> {
        if self.payload_len + MAX_TOKEN_SIZE > MAX_PAYLOAD { self.flush() } else { Ok(()) }
    }

    fn put_token(&mut self, write: impl FnOnce(&mut Put<'_>, u32, &[u8]) -> Result<(), BufferFull>) {
        let mut put = Put::new(&mut self.block[BLOCK_HEAD_SIZE + self.payload_len..BLOCK_HEAD_SIZE + MAX_PAYLOAD]);
        write(&mut put, self.unchanged_frames, &self.last_input).expect("a block has room for a token");
        self.payload_len += put.len();
        self.unchanged_frames = 0;
    }

    /// Closes the current block, so that all frames so far can be taken. Frequent flushes make the movie larger.
    pub fn flush(&mut self) -> Result<(), MovieWriteError> {
        if self.payload_len == 0 && self.block_frames == 0 {
            return Ok(());
        }
        if self.pending_len() + MAX_BLOCK_SIZE > MAX_PENDING_BYTES {
            return Err(MovieWriteError::OutputFull);
        }
        self.seal_block(BlockKind::Inputs, self.next_frame.number() - u32::from(self.block_frames));
        Ok(())
    }

    /// Ends the movie. The end block proves to readers that the movie is complete.
    pub fn finish(&mut self) -> Result<(), MovieWriteError> {
        if self.is_finished {
            return Err(MovieWriteError::Finished);
        }
        self.flush()?;
        if self.pending_len() + MAX_BLOCK_SIZE > MAX_PENDING_BYTES {
            return Err(MovieWriteError::OutputFull);
        }
        self.seal_block(BlockKind::End, self.next_frame.number());
        self.is_finished = true;
        Ok(())
    }

    /// Moves the current block to the pending bytes and begins the next.
    fn seal_block(&mut self, kind: BlockKind, position: u32) {
        if core::mem::take(&mut self.is_pending_taken) {
            self.pending.clear();
            self.pending.shrink_to(MAX_PENDING_BYTES);
        }
        let head = BlockHead { kind, payload_len: self.payload_len, position, frames: self.block_frames };
        let size = head.seal(self.seed, &mut self.block[..]).expect("a block has room for its head");
        self.pending.extend_from_slice(&self.block[..size]);
        (self.payload_len, self.block_frames, self.unchanged_frames, self.last_input) = (0, 0, 0, [0; MAX_WIDTH]);
    }

    fn pending_len(&self) -> usize {
        if self.is_pending_taken { 0 } else { self.pending.len() }
    }

    /// Returns the finished bytes that were not taken yet, for the caller to append to the file.
    pub fn poll_bytes(&mut self) -> Option<&[u8]> {
        if self.pending_len() == 0 {
            return None;
        }
        self.is_pending_taken = true;
        Some(&self.pending)
    }

    /// Returns the next frame to be pushed.
    pub fn next_frame(&self) -> Frame {
        self.next_frame
    }

    /// Returns the approximate memory use in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + MAX_BLOCK_SIZE + self.pending.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::tests::{replay, test_settings};
    use super::*;

    fn take_all_bytes(writer: &mut MovieWriter) -> Vec<u8> {
        writer.poll_bytes().unwrap_or_default().to_vec()
    }

    /// Records one minute of two pads that change every eight frames.
    #[test]
    fn two_pads_take_less_than_a_third_of_a_byte_per_player_and_frame() {
        let mut writer = MovieWriter::new(&test_settings(2, 0xffff), MovieStartPoint::PowerOn).unwrap();
        let start = take_all_bytes(&mut writer).len();
        let mut bytes = 0;
        for number in 0..3_600u32 {
            let held = |shift: u32| InputWord::from((number + shift) / 8 * 0x9e37 % 16);
            writer.push(Frame::new(number), &[held(0), held(3) << 8]).unwrap();
            bytes += take_all_bytes(&mut writer).len();
        }
        writer.finish().unwrap();
        bytes += take_all_bytes(&mut writer).len();
        assert!(start < 110, "header of {start} bytes");
        let milli_bytes = bytes * 1_000 / 3_600 / 2;
        assert!(milli_bytes < 300, "{milli_bytes} thousandths of a byte per player and frame");
    }

    #[test]
    fn writer_does_not_allocate_after_the_start_is_taken() {
        let state = std::vec![7; 300_000];
        let start = MovieStartPoint::Snapshot { frame: Frame::new(1_000), state: &state };
        let mut writer = MovieWriter::new(&test_settings(8, InputWord::MAX), start).unwrap();
        assert!(take_all_bytes(&mut writer).len() > state.len());
        let mut memory = 0;
        for number in 1_000..4_000u32 {
            let words = [(); 8].map(|()| InputWord::from(number) << 64 | InputWord::from(number));
            writer.push(Frame::new(number), &words).unwrap();
            if number == 2_000 {
                memory = writer.memory();
            }
            writer.poll_bytes();
        }
        assert_eq!(writer.memory(), memory);
        assert!(memory < 32 << 10, "{memory}");
    }

    #[test]
    fn full_output_stops_the_writer_without_losing_frames() {
        let mut writer = MovieWriter::new(&test_settings(2, InputWord::MAX), MovieStartPoint::PowerOn).unwrap();
        let mut file = Vec::new();
        let mut stopped = 0;
        for number in 0..5_000u32 {
            let words = [InputWord::from(number) * 0x0101_0101_0101_0101, 0];
            if writer.push(Frame::new(number), &words) == Err(MovieWriteError::OutputFull) {
                file.extend(take_all_bytes(&mut writer));
                stopped += 1;
                writer.push(Frame::new(number), &words).unwrap();
            }
        }
        writer.flush().unwrap();
        writer.finish().unwrap();
        file.extend(take_all_bytes(&mut writer));
        assert!(stopped > 2);
        let played = replay(&file);
        assert_eq!((played.frames.len(), played.end), (5_000, Ok(5_000)));
    }

    #[test]
    fn out_of_order_frames_hashes_and_marks_are_rejected() {
        let mut writer = MovieWriter::new(&test_settings(2, 1), MovieStartPoint::PowerOn).unwrap();
        let [zero, one, two] = [0, 1, 2].map(Frame::new);
        assert_eq!(writer.push_hash(zero, 1), Err(MovieWriteError::OutOfOrder { due: zero, given: zero }));
        assert_eq!(writer.push(one, &[]), Err(MovieWriteError::OutOfOrder { due: zero, given: one }));
        writer.push_mark(zero, b"on").unwrap();
        writer.push(zero, &[]).unwrap();
        writer.push_hash(zero, 5).unwrap();
        assert_eq!(writer.push(zero, &[]), Err(MovieWriteError::OutOfOrder { due: one, given: zero }));
        assert_eq!(writer.push_hash(one, 5), Err(MovieWriteError::OutOfOrder { due: zero, given: one }));
        assert_eq!(writer.push_mark(two, b""), Err(MovieWriteError::OutOfOrder { due: one, given: two }));
        assert_eq!(writer.push_mark(one, &[0; 256]), Err(MovieWriteError::MarkTooLong(256)));
        writer.finish().unwrap();
        assert_eq!(writer.push(one, &[]), Err(MovieWriteError::Finished));
        assert_eq!(writer.finish(), Err(MovieWriteError::Finished));
    }

    #[test]
    fn oversized_settings_state_and_frame_numbers_are_rejected() {
        let mut wrong = test_settings(2, 1);
        wrong.game.name = "x".repeat(300);
        assert!(matches!(MovieWriter::new(&wrong, MovieStartPoint::PowerOn), Err(MovieStartError::Settings(_))));
        let state = std::vec![0; MAX_STATE_SIZE + 1];
        let start = MovieStartPoint::Snapshot { frame: Frame::ZERO, state: &state };
        assert_eq!(
            MovieWriter::new(&test_settings(2, 1), start).unwrap_err(),
            MovieStartError::StateTooLarge(MAX_STATE_SIZE + 1)
        );
        let start = MovieStartPoint::Snapshot { frame: Frame::new(u32::MAX - 1), state: &[] };
        let mut writer = MovieWriter::new(&test_settings(2, 1), start).unwrap();
        writer.push(Frame::new(u32::MAX - 1), &[]).unwrap();
        assert_eq!(writer.push(Frame::new(u32::MAX), &[]), Err(MovieWriteError::Finished));
    }
}
