//! Writing a movie, frame by frame.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::block::{HEAD, Head, Kind, MAX_BLOCK, MAX_BLOCK_FRAMES, MAX_PAYLOAD, proven};
use super::{HASH, MAGIC, MARK, MAX_MARK, MAX_STATE, VERSION, merged};
use crate::frame::Frame;
use crate::input::delta_codec::{MAX_WIDTH, put_change};
use crate::input::{InputLayout, InputWord};
use crate::session::{Settings, SettingsError};
use crate::wire::hello::put_settings;
use crate::wire::{BufferFull, ByteWriter as Put};

/// Finished bytes that wait to be taken, at most; the state at the start comes on top.
const MAX_WAITING: usize = 4 * MAX_BLOCK;
/// More than any token and what follows it can take: the widest input takes 152 bytes, the longest mark 267.
const ROOM: usize = 288;

/// Where a movie starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'a> {
    /// With frame 0, in a machine just switched on.
    PowerOn,
    /// Somewhere in the middle.
    Snapshot {
        /// The first frame of the movie.
        frame: Frame,
        /// The machine's state before that frame.
        state: &'a [u8],
    },
}

/// Why a movie cannot be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// No game can be played with these settings.
    Settings(SettingsError),
    /// The state has more bytes than [`MAX_STATE`].
    State(usize),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::State(len) => write!(f, "a state of {len} bytes is too large, the most is {MAX_STATE}"),
        }
    }
}

impl core::error::Error for StartError {}

/// Why something was not written. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Frames come one after the other, a hash after its frame, a mark before its frame.
    Order {
        /// The frame that is due.
        due: Frame,
        /// The frame given.
        given: Frame,
    },
    /// A mark is longer than [`MAX_MARK`] bytes.
    Mark(usize),
    /// Finished bytes wait to be taken: call [`ByteWriter::poll_bytes`], then try again.
    Full,
    /// The movie is finished.
    Finished,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { due, given } => write!(f, "frame {due} is due in the movie, not frame {given}"),
            Self::Mark(len) => write!(f, "a mark of {len} bytes is too long, the most is {MAX_MARK}"),
            Self::Full => write!(f, "finished parts of the movie wait to be taken; take them and try again"),
            Self::Finished => write!(f, "the movie is finished, nothing can be added"),
        }
    }
}

impl core::error::Error for WriteError {}

/// Writes a movie. What it hands out only has to be appended somewhere, in order.
///
/// Its memory is bounded and, once the start has been taken, nothing is allocated any more.
#[derive(Debug)]
pub struct Writer {
    layout: InputLayout,
    /// The block at hand, with room for its head.
    block: Box<[u8; MAX_BLOCK]>,
    /// Bytes of payload in it.
    len: usize,
    /// Frames in it.
    frames: u16,
    /// Those of them since the last token, which need none of their own.
    unchanged: u32,
    /// The packed input of the last frame in it.
    last: [u8; MAX_WIDTH],
    start: Frame,
    /// The frame that is due.
    next: Frame,
    /// The header's checksum.
    seed: u64,
    finished: bool,
    waiting: Vec<u8>,
    /// What waits has been handed out and can go.
    taken: bool,
}

impl Writer {
    /// Begins a movie; its first bytes can be taken at once.
    pub fn new(settings: &Settings, start: Start<'_>) -> Result<Self, StartError> {
        settings.check().map_err(StartError::Settings)?;
        let (frame, state) = match start {
            Start::PowerOn => (Frame::ZERO, None),
            Start::Snapshot { frame, state } => (frame, Some(state)),
        };
        if let Some(state) = state.filter(|state| state.len() > MAX_STATE) {
            return Err(StartError::State(state.len()));
        }
        let mut writer = Self {
            layout: merged(settings),
            block: Box::new([0; MAX_BLOCK]),
            len: 0,
            frames: 0,
            unchanged: 0,
            last: [0; MAX_WIDTH],
            start: frame,
            next: frame,
            seed: 0,
            finished: false,
            waiting: Vec::with_capacity(MAX_WAITING),
            taken: false,
        };
        writer.put_header(settings, state).expect("checked settings fit into a block");
        for (piece, at) in state.unwrap_or_default().chunks(MAX_PAYLOAD).zip((0..).step_by(MAX_PAYLOAD)) {
            writer.block[HEAD..HEAD + piece.len()].copy_from_slice(piece);
            writer.len = piece.len();
            writer.seal(Kind::State, at);
        }
        Ok(writer)
    }

    fn put_header(&mut self, settings: &Settings, state: Option<&[u8]>) -> Result<(), BufferFull> {
        self.waiting.extend_from_slice(&MAGIC);
        self.waiting.push(VERSION);
        let mut put = Put::new(&mut self.block[HEAD..]);
        put_settings(&mut put, settings)?;
        put.u8(u8::from(state.is_some()))?;
        if let Some(state) = state {
            put.varint(state.len() as u32)?;
        }
        self.len = put.len();
        self.seal(Kind::Header, self.start.number());
        let header = &self.waiting[MAGIC.len() + 1..];
        self.seed = proven(0, header).expect("the header has just been sealed");
        Ok(())
    }

    /// Appends the inputs of the frame that is due, one word per player; bits that nobody owns are dropped.
    pub fn push(&mut self, frame: Frame, words: &[InputWord]) -> Result<(), WriteError> {
        self.expect(frame, self.next)?;
        // The very last number there is stands for the end.
        if frame == Frame::new(u32::MAX) {
            return Err(WriteError::Finished);
        }
        if self.frames == MAX_BLOCK_FRAMES {
            self.flush()?;
        }
        self.make_room()?;
        let width = self.layout.width();
        let mut packed = [0; MAX_WIDTH];
        self.layout.pack(words, &mut packed[..width]);
        if packed == self.last {
            self.unchanged += 1;
        } else {
            self.put(|put, unchanged, last| put_change(put, unchanged, &last[..width], &packed[..width]));
            self.last = packed;
        }
        self.frames += 1;
        self.next = frame.next();
        Ok(())
    }

    /// Appends the hash of the state after the newest frame.
    pub fn push_hash(&mut self, frame: Frame, hash: u64) -> Result<(), WriteError> {
        let newest = self.next.checked_sub(1).filter(|_| self.next > self.start);
        self.expect(frame, newest.unwrap_or(self.next))?;
        if newest.is_none() {
            return Err(WriteError::Order { due: self.next, given: frame });
        }
        self.push_other(HASH, &hash.to_le_bytes())
    }

    /// Appends a mark: something that happens to the machine before the frame that is due.
    pub fn push_mark(&mut self, frame: Frame, bytes: &[u8]) -> Result<(), WriteError> {
        self.expect(frame, self.next)?;
        let len = u8::try_from(bytes.len()).map_err(|_| WriteError::Mark(bytes.len()))?;
        let mut mark = [len; 1 + MAX_MARK];
        mark[1..=bytes.len()].copy_from_slice(bytes);
        self.push_other(MARK, &mark[..=bytes.len()])
    }

    fn expect(&self, given: Frame, due: Frame) -> Result<(), WriteError> {
        match given == due {
            _ if self.finished => Err(WriteError::Finished),
            true => Ok(()),
            false => Err(WriteError::Order { due, given }),
        }
    }

    fn push_other(&mut self, kind: u8, bytes: &[u8]) -> Result<(), WriteError> {
        self.make_room()?;
        let width = self.layout.width();
        self.put(|put, unchanged, last| {
            put_change(put, unchanged, &last[..width], &last[..width])?;
            put.u8(kind)?;
            put.put(bytes)
        });
        Ok(())
    }

    /// Closes the block at hand if it may have no room for what comes.
    fn make_room(&mut self) -> Result<(), WriteError> {
        if self.len + ROOM > MAX_PAYLOAD { self.flush() } else { Ok(()) }
    }

    fn put(&mut self, write: impl FnOnce(&mut Put<'_>, u32, &[u8]) -> Result<(), BufferFull>) {
        let mut put = Put::new(&mut self.block[HEAD + self.len..HEAD + MAX_PAYLOAD]);
        write(&mut put, self.unchanged, &self.last).expect("a block has room for a token");
        self.len += put.len();
        self.unchanged = 0;
    }

    /// Closes the block at hand, so that all frames so far can be taken. A movie that is flushed often is larger.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.len == 0 && self.frames == 0 {
            return Ok(());
        }
        if self.waits() + MAX_BLOCK > MAX_WAITING {
            return Err(WriteError::Full);
        }
        self.seal(Kind::Inputs, self.next.number() - u32::from(self.frames));
        Ok(())
    }

    /// Closes the movie. Who reads it knows then that it is whole.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if self.finished {
            return Err(WriteError::Finished);
        }
        self.flush()?;
        if self.waits() + MAX_BLOCK > MAX_WAITING {
            return Err(WriteError::Full);
        }
        self.seal(Kind::End, self.next.number());
        self.finished = true;
        Ok(())
    }

    /// Puts the block at hand to what waits, and begins the next.
    fn seal(&mut self, kind: Kind, place: u32) {
        if core::mem::take(&mut self.taken) {
            self.waiting.clear();
            self.waiting.shrink_to(MAX_WAITING);
        }
        let head = Head { kind, len: self.len, place, frames: self.frames };
        let size = head.seal(self.seed, &mut self.block[..]).expect("a block has room for its head");
        self.waiting.extend_from_slice(&self.block[..size]);
        (self.len, self.frames, self.unchanged, self.last) = (0, 0, 0, [0; MAX_WIDTH]);
    }

    fn waits(&self) -> usize {
        if self.taken { 0 } else { self.waiting.len() }
    }

    /// The finished bytes that have not been handed out yet; append them to the file.
    pub fn poll_bytes(&mut self) -> Option<&[u8]> {
        if self.waits() == 0 {
            return None;
        }
        self.taken = true;
        Some(&self.waiting)
    }

    /// The frame that is due.
    pub fn next(&self) -> Frame {
        self.next
    }

    /// About how many bytes the writer takes, all in all.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + MAX_BLOCK + self.waiting.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{play, settings};
    use super::*;

    fn all(writer: &mut Writer) -> Vec<u8> {
        writer.poll_bytes().unwrap_or_default().to_vec()
    }

    /// A minute of two pads that change every eight frames.
    #[test]
    fn pads_cost_less_than_a_third_of_a_byte_per_player_and_frame() {
        let mut writer = Writer::new(&settings(2, 0xffff), Start::PowerOn).unwrap();
        let start = all(&mut writer).len();
        let mut bytes = 0;
        for number in 0..3_600u32 {
            let held = |shift: u32| InputWord::from((number + shift) / 8 * 0x9e37 % 16);
            writer.push(Frame::new(number), &[held(0), held(3) << 8]).unwrap();
            bytes += all(&mut writer).len();
        }
        writer.finish().unwrap();
        bytes += all(&mut writer).len();
        assert!(start < 110, "{start} bytes before the first frame");
        let milli_bytes = bytes * 1_000 / 3_600 / 2;
        assert!(milli_bytes < 300, "{milli_bytes} thousandths of a byte per player and frame");
    }

    #[test]
    fn nothing_is_allocated_once_the_start_is_taken() {
        let state = std::vec![7; 300_000];
        let start = Start::Snapshot { frame: Frame::new(1_000), state: &state };
        let mut writer = Writer::new(&settings(8, InputWord::MAX), start).unwrap();
        assert!(all(&mut writer).len() > state.len());
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
    fn bytes_that_nobody_takes_stop_the_movie_and_lose_nothing() {
        let mut writer = Writer::new(&settings(2, InputWord::MAX), Start::PowerOn).unwrap();
        let mut file = Vec::new();
        let mut stopped = 0;
        for number in 0..5_000u32 {
            let words = [InputWord::from(number) * 0x0101_0101_0101_0101, 0];
            if writer.push(Frame::new(number), &words) == Err(WriteError::Full) {
                file.extend(all(&mut writer));
                stopped += 1;
                writer.push(Frame::new(number), &words).unwrap();
            }
        }
        writer.flush().unwrap();
        writer.finish().unwrap();
        file.extend(all(&mut writer));
        assert!(stopped > 2);
        let played = play(&file);
        assert_eq!((played.frames.len(), played.end), (5_000, Ok(5_000)));
    }

    #[test]
    fn frames_come_in_order_hashes_after_and_marks_before_them() {
        let mut writer = Writer::new(&settings(2, 1), Start::PowerOn).unwrap();
        let [zero, one, two] = [0, 1, 2].map(Frame::new);
        assert_eq!(writer.push_hash(zero, 1), Err(WriteError::Order { due: zero, given: zero }));
        assert_eq!(writer.push(one, &[]), Err(WriteError::Order { due: zero, given: one }));
        writer.push_mark(zero, b"on").unwrap();
        writer.push(zero, &[]).unwrap();
        writer.push_hash(zero, 5).unwrap();
        assert_eq!(writer.push(zero, &[]), Err(WriteError::Order { due: one, given: zero }));
        assert_eq!(writer.push_hash(one, 5), Err(WriteError::Order { due: zero, given: one }));
        assert_eq!(writer.push_mark(two, b""), Err(WriteError::Order { due: one, given: two }));
        assert_eq!(writer.push_mark(one, &[0; 256]), Err(WriteError::Mark(256)));
        writer.finish().unwrap();
        assert_eq!(writer.push(one, &[]), Err(WriteError::Finished));
        assert_eq!(writer.finish(), Err(WriteError::Finished));
    }

    #[test]
    fn what_no_file_can_hold_is_refused() {
        let mut wrong = settings(2, 1);
        wrong.game.name = "x".repeat(300);
        assert!(matches!(Writer::new(&wrong, Start::PowerOn), Err(StartError::Settings(_))));
        let state = std::vec![0; MAX_STATE + 1];
        let start = Start::Snapshot { frame: Frame::ZERO, state: &state };
        assert_eq!(Writer::new(&settings(2, 1), start).unwrap_err(), StartError::State(MAX_STATE + 1));
        let start = Start::Snapshot { frame: Frame::new(u32::MAX - 1), state: &[] };
        let mut writer = Writer::new(&settings(2, 1), start).unwrap();
        writer.push(Frame::new(u32::MAX - 1), &[]).unwrap();
        assert_eq!(writer.push(Frame::new(u32::MAX), &[]), Err(WriteError::Finished));
    }
}
