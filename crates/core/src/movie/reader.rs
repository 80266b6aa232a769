//! Movie reader: decodes a movie from chunks of bytes of any size.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::block::{BLOCK_HEAD_SIZE, BlockHead, BlockKind, CHECKSUM_SIZE, MAX_BLOCK_SIZE, verify_checksum};
use super::{HASH_TAG, MAGIC, MARK_TAG, MAX_STATE_SIZE, VERSION, merged_layout};
use crate::codec::{ByteReader as Get, DecodeError};
use crate::frame::Frame;
use crate::input::delta_codec::{MAX_WIDTH, get_change};
use crate::input::{InputLayout, InputWord, MAX_PLAYERS};
use crate::settings::Settings;
use crate::settings::encode::get_settings;

/// Buffer size in bytes: room for two blocks of the largest size.
const BUFFER_SIZE: usize = 2 * MAX_BLOCK_SIZE;

/// One item of a movie, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovieEntry<'a> {
    /// The settings and the first frame, always the first entry.
    Header {
        /// Settings of the recorded session.
        settings: &'a Settings,
        /// First frame of the movie.
        first: Frame,
    },
    /// The state to load before the first frame. A movie without this entry starts at power-on.
    Snapshot {
        /// First frame of the movie.
        frame: Frame,
        /// Machine state before that frame, as the recording machine saved it.
        state: &'a [u8],
    },
    /// A frame to step with the recorded inputs.
    Frame {
        /// Frame number. Frames are consecutive.
        frame: Frame,
        /// One input word per player.
        words: &'a [InputWord],
    },
    /// State hash after the frame that was returned last.
    Hash {
        /// The frame that was returned last.
        frame: Frame,
        /// Hash that the recording machine had after this frame.
        hash: u64,
    },
    /// Event at the machine between two frames, such as a reset.
    Mark {
        /// Next frame, before which the event takes effect.
        frame: Frame,
        /// Description of the event, in the recorder's format.
        bytes: &'a [u8],
    },
    /// The end of a complete movie.
    End {
        /// Number of frames in the movie.
        frames: u32,
    },
}

/// Reason that a movie cannot be read any further. All entries returned before are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovieError {
    /// The bytes do not begin with [`MAGIC`].
    NotAMovie,
    /// The movie has this format version, which is not [`VERSION`].
    UnsupportedVersion(u8),
    /// A block has a wrong checksum, malformed contents or a wrong position, or bytes follow the end.
    Damaged {
        /// First frame that cannot be read.
        frame: Frame,
    },
    /// The bytes end before the movie does.
    Truncated {
        /// First frame that cannot be read.
        frame: Frame,
    },
}

impl fmt::Display for MovieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMovie => write!(f, "the data is not a movie: it does not begin with COPLAYMV"),
            Self::UnsupportedVersion(version) => {
                write!(f, "the movie has format {version}, this program supports format {VERSION}; try a newer version")
            }
            Self::Damaged { frame } => {
                write!(f, "the movie is damaged from frame {frame} on; all earlier frames are valid")
            }
            Self::Truncated { frame } => {
                write!(f, "the movie ends early, before frame {frame}; all earlier frames are valid")
            }
        }
    }
}

impl core::error::Error for MovieError {}

/// Decoder of a movie: it takes chunks of bytes of any size and returns the entries one by one. Memory is bounded for
/// any input.
#[derive(Debug)]
pub struct MovieReader {
    buffer: Box<[u8]>,
    /// Number of bytes in the buffer.
    buffered: usize,
    stage: ReadStage,
    /// The input block that is being decoded, if any.
    current_block: Option<InputBlock>,
    settings: Option<Box<Settings>>,
    layout: Option<InputLayout>,
    seed: u64,
    state: Vec<u8>,
    first_frame: Frame,
    /// Frame that [`MovieReader::poll`] returns next.
    next_frame: Frame,
    words: [InputWord; MAX_PLAYERS],
    has_input_ended: bool,
    error: Option<MovieError>,
}

/// Part of the movie that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStage {
    /// Magic and version.
    Preamble,
    Header,
    /// The remaining pieces of a state with this total size in bytes.
    State(usize),
    Frames,
    Finished,
}

/// An input block that is partly decoded.
#[derive(Clone, Debug)]
struct InputBlock {
    /// Buffer range of the tokens that were not decoded yet.
    tokens: Range<usize>,
    /// Number of frames that were not returned yet.
    frames_left: u32,
    /// Number of frames to return before the next token takes effect.
    unchanged: u32,
    next_token: NextToken,
    /// Packed input of the current frame.
    input: [u8; MAX_WIDTH],
}

/// The item that follows the unchanged frames.
#[derive(Clone, Debug)]
enum NextToken {
    /// A token that was not decoded yet.
    Unread,
    /// A frame with this input.
    Change([u8; MAX_WIDTH]),
    Hash(u64),
    /// Buffer range of a mark.
    Mark(Range<usize>),
}

/// The next entry to return.
enum ReadStep {
    Header,
    Snapshot,
    Frame,
    Hash(u64),
    Mark(Range<usize>),
    End,
}

impl Default for MovieReader {
    fn default() -> Self {
        Self::new()
    }
}

impl MovieReader {
    /// Creates a reader that expects the first byte of a movie.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_SIZE].into_boxed_slice(),
            buffered: 0,
            stage: ReadStage::Preamble,
            current_block: None,
            settings: None,
            layout: None,
            seed: 0,
            state: Vec::new(),
            first_frame: Frame::ZERO,
            next_frame: Frame::ZERO,
            words: [0; MAX_PLAYERS],
            has_input_ended: false,
            error: None,
        }
    }

    /// Takes as many of the next bytes as fit, and returns their number. The caller polls until `None`, then pushes the
    /// rest. After an error or [`MovieReader::end_input`], all bytes are taken and discarded.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.error.is_some() || self.has_input_ended {
            return bytes.len();
        }
        let taken = bytes.len().min(BUFFER_SIZE - self.buffered);
        self.buffer[self.buffered..self.buffered + taken].copy_from_slice(&bytes[..taken]);
        self.buffered += taken;
        taken
    }

    /// Marks the end of the input. After all buffered entries, [`MovieReader::poll`] returns [`MovieError::Truncated`]
    /// unless the movie is complete.
    pub fn end_input(&mut self) {
        self.has_input_ended = true;
    }

    /// Returns the next entry; `None` if more bytes are needed, or after [`MovieEntry::End`]. Repeats an error on every
    /// call.
    pub fn poll(&mut self) -> Result<Option<MovieEntry<'_>>, MovieError> {
        let step = match self.error {
            Some(error) => Err(error),
            None => self.step(),
        };
        let step = step.inspect_err(|error| self.error = Some(*error))?;
        Ok(step.map(|step| self.entry(step)))
    }

    fn entry(&self, step: ReadStep) -> MovieEntry<'_> {
        let before = self.next_frame.checked_sub(1).unwrap_or_default();
        match step {
            ReadStep::Header => {
                let settings = self.settings.as_deref().expect("the header has just been read");
                MovieEntry::Header { settings, first: self.first_frame }
            }
            ReadStep::Snapshot => MovieEntry::Snapshot { frame: self.first_frame, state: &self.state },
            ReadStep::Frame => MovieEntry::Frame { frame: before, words: &self.words[..self.player_count()] },
            ReadStep::Hash(hash) => MovieEntry::Hash { frame: before, hash },
            ReadStep::Mark(range) => MovieEntry::Mark { frame: self.next_frame, bytes: &self.buffer[range] },
            ReadStep::End => MovieEntry::End { frames: self.next_frame.number() - self.first_frame.number() },
        }
    }

    fn player_count(&self) -> usize {
        self.settings.as_ref().map_or(0, |settings| settings.ownership.players())
    }

    /// Returns the settings once the header was read.
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_deref()
    }

    /// Returns the frame that [`MovieReader::poll`] returns next; frame 0 before the header.
    pub fn next_frame(&self) -> Frame {
        self.next_frame
    }

    /// Returns the approximate memory use in bytes: the reader, its buffer and the start state, without the heap memory
    /// of the settings and the input layout.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + BUFFER_SIZE + self.state.capacity()
    }

    fn step(&mut self) -> Result<Option<ReadStep>, MovieError> {
        if self.stage == ReadStage::Frames && self.state.capacity() > 0 {
            self.state = Vec::new();
        }
        loop {
            if self.current_block.is_some() {
                match self.step_block().map_err(|_| self.damaged_error())? {
                    None => continue,
                    step => return Ok(step),
                }
            }
            match self.stage {
                ReadStage::Preamble => match self.read_preamble()? {
                    true => continue,
                    false => break,
                },
                ReadStage::State(len) if self.state.len() == len => {
                    self.stage = ReadStage::Frames;
                    return Ok(Some(ReadStep::Snapshot));
                }
                ReadStage::Finished if self.buffered > 0 => return Err(self.damaged_error()),
                ReadStage::Finished => return Ok(None),
                ReadStage::Header | ReadStage::State(_) | ReadStage::Frames => {}
            }
            let Some(head) = self.complete_block().map_err(|_| self.damaged_error())? else { break };
            match self.on_block(head).map_err(|_| self.damaged_error())? {
                None => continue,
                step => return Ok(step),
            }
        }
        if self.has_input_ended { Err(MovieError::Truncated { frame: self.next_frame }) } else { Ok(None) }
    }

    fn damaged_error(&self) -> MovieError {
        MovieError::Damaged { frame: self.next_frame }
    }

    /// Reads magic and version. Returns `false` if they are not complete yet.
    fn read_preamble(&mut self) -> Result<bool, MovieError> {
        let magic = &self.buffer[..self.buffered.min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(MovieError::NotAMovie);
        }
        if self.buffered <= MAGIC.len() {
            return Ok(false);
        }
        match self.buffer[MAGIC.len()] {
            VERSION => self.discard(MAGIC.len() + 1),
            version => return Err(MovieError::UnsupportedVersion(version)),
        }
        self.stage = ReadStage::Header;
        Ok(true)
    }

    /// Returns the head of the first block in the buffer. `None` if the block is not complete yet; an error if its head
    /// or its checksum is wrong.
    fn complete_block(&self) -> Result<Option<BlockHead>, DecodeError> {
        let head = match BlockHead::read(&self.buffer[..self.buffered]) {
            Err(DecodeError::Truncated) => return Ok(None),
            head => head?,
        };
        if head.size() > self.buffered {
            return Ok(None);
        }
        verify_checksum(self.seed, &self.buffer[..head.size()]).ok_or(DecodeError::Malformed)?;
        Ok(Some(head))
    }

    fn on_block(&mut self, head: BlockHead) -> Result<Option<ReadStep>, DecodeError> {
        let payload = BLOCK_HEAD_SIZE..BLOCK_HEAD_SIZE + head.payload_len;
        let step = match (self.stage, head.kind) {
            (ReadStage::Header, BlockKind::Header) => {
                self.read_header(head)?;
                Some(ReadStep::Header)
            }
            (ReadStage::State(len), BlockKind::State) => {
                let fits = !payload.is_empty() && payload.len() <= len - self.state.len();
                if !fits || head.position as usize != self.state.len() {
                    return Err(DecodeError::Malformed);
                }
                self.state.extend_from_slice(&self.buffer[payload]);
                None
            }
            (ReadStage::Frames, BlockKind::Inputs) if head.position == self.next_frame.number() => {
                self.current_block = Some(InputBlock::new(payload, u32::from(head.frames)));
                return Ok(None);
            }
            (ReadStage::Frames, BlockKind::End) if head.position == self.next_frame.number() && payload.is_empty() => {
                self.stage = ReadStage::Finished;
                Some(ReadStep::End)
            }
            _ => return Err(DecodeError::Malformed),
        };
        self.discard(head.size());
        Ok(step)
    }

    fn read_header(&mut self, head: BlockHead) -> Result<(), DecodeError> {
        let mut get = Get::new(&self.buffer[BLOCK_HEAD_SIZE..BLOCK_HEAD_SIZE + head.payload_len]);
        let settings = get_settings(&mut get)?;
        self.stage = match get.u8()? {
            0 if head.position == 0 => ReadStage::Frames,
            1 => ReadStage::State(get.varint()? as usize),
            _ => return Err(DecodeError::Malformed),
        };
        if !get.is_empty() || matches!(self.stage, ReadStage::State(len) if len > MAX_STATE_SIZE) {
            return Err(DecodeError::Malformed);
        }
        self.seed = verify_checksum(0, &self.buffer[..head.size()]).ok_or(DecodeError::Malformed)?;
        self.first_frame = Frame::new(head.position);
        self.next_frame = self.first_frame;
        self.layout = Some(merged_layout(&settings));
        self.settings = Some(Box::new(settings));
        Ok(())
    }

    /// Returns the next entry of the current block; `None` when the block is done.
    fn step_block(&mut self) -> Result<Option<ReadStep>, DecodeError> {
        let (Some(block), Some(layout)) = (&mut self.current_block, &self.layout) else { return Ok(None) };
        loop {
            if block.unchanged == 0 {
                match core::mem::replace(&mut block.next_token, NextToken::Unread) {
                    NextToken::Hash(hash) => return Ok(Some(ReadStep::Hash(hash))),
                    NextToken::Mark(range) => return Ok(Some(ReadStep::Mark(range))),
                    NextToken::Change(value) => (block.input, block.unchanged) = (value, 1),
                    NextToken::Unread if !block.tokens.is_empty() => {
                        let has_previous_frame = self.next_frame > self.first_frame;
                        block.read_token(&self.buffer, layout.width(), has_previous_frame)?;
                        continue;
                    }
                    NextToken::Unread => block.unchanged = block.frames_left,
                }
            }
            if block.frames_left == 0 {
                break;
            }
            block.unchanged -= 1;
            block.frames_left -= 1;
            self.words.fill(0);
            layout.unpack(&block.input, &mut self.words);
            self.next_frame = self.next_frame.next();
            return Ok(Some(ReadStep::Frame));
        }
        let size = block.tokens.end + CHECKSUM_SIZE;
        self.current_block = None;
        self.discard(size);
        Ok(None)
    }

    fn discard(&mut self, bytes: usize) {
        self.buffer.copy_within(bytes..self.buffered, 0);
        self.buffered -= bytes;
    }
}

impl InputBlock {
    fn new(tokens: Range<usize>, frames: u32) -> Self {
        Self { tokens, frames_left: frames, unchanged: 0, next_token: NextToken::Unread, input: [0; MAX_WIDTH] }
    }

    /// Decodes a token and its item. `has_previous_frame` states whether any frame of the movie was returned before, to
    /// which a hash can belong.
    fn read_token(&mut self, bytes: &[u8], width: usize, has_previous_frame: bool) -> Result<(), DecodeError> {
        let mut get = Get::new(&bytes[self.tokens.clone()]);
        let mut value = self.input;
        self.unchanged = get_change(&mut get, &mut value[..width])?;
        self.next_token = if value != self.input {
            NextToken::Change(value)
        } else {
            match get.u8()? {
                HASH_TAG if has_previous_frame || self.unchanged > 0 => NextToken::Hash(get.u64()?),
                MARK_TAG => {
                    let len = usize::from(get.u8()?);
                    let start = self.tokens.end - get.rest().len();
                    get.take(len)?;
                    NextToken::Mark(start..start + len)
                }
                _ => return Err(DecodeError::Malformed),
            }
        };
        self.tokens.start = self.tokens.end - get.rest().len();
        let frames = self.unchanged.checked_add(u32::from(matches!(self.next_token, NextToken::Change(_))));
        if frames.is_none_or(|frames| frames > self.frames_left) { Err(DecodeError::Malformed) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{MovieStartPoint, MovieWriter};
    use super::*;
    use crate::frame::FrameRate;
    use crate::id::SiteSet;
    use crate::input::Ownership;
    use crate::settings::{AbsentInput, GameId, MachineId, StarvationPolicy};

    pub(in super::super) fn test_settings(sites: usize, mask: InputWord) -> Settings {
        Settings {
            game: GameId { name: "game".into(), hash: [3; 32] },
            machine: MachineId { name: "machine".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
            rate: FrameRate::per_second(60).unwrap(),
            input_delay: 6,
            prediction_window: 0,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 60,
            site_count: sites as u8,
            starting_sites: SiteSet::first(sites),
            ownership: Ownership::one_player_per_site(sites, mask),
        }
    }

    /// Entries of a replayed movie by kind, and its number of frames or the error that ended it.
    #[derive(Debug, PartialEq)]
    pub(in super::super) struct ReplayedMovie {
        pub(in super::super) frames: Vec<(u32, Vec<InputWord>)>,
        hashes: Vec<(u32, u64)>,
        marks: Vec<(u32, Vec<u8>)>,
        state: Option<(u32, Vec<u8>)>,
        pub(in super::super) end: Result<u32, MovieError>,
    }

    pub(in super::super) fn replay(file: &[u8]) -> ReplayedMovie {
        replay_in_chunks(file, file.len().max(1))
    }

    fn replay_in_chunks(file: &[u8], piece: usize) -> ReplayedMovie {
        let mut reader = MovieReader::new();
        let (mut frames, mut hashes, mut marks, mut state, mut rest) = (vec![], vec![], vec![], None, file);
        let end = loop {
            rest = &rest[reader.push(&rest[..piece.min(rest.len())])..];
            match reader.poll() {
                Err(error) => break Err(error),
                Ok(Some(MovieEntry::Header { .. })) => assert!(frames.is_empty()),
                Ok(Some(MovieEntry::Snapshot { frame, state: bytes })) => {
                    state = Some((frame.number(), bytes.to_vec()))
                }
                Ok(Some(MovieEntry::Frame { frame, words })) => frames.push((frame.number(), words.to_vec())),
                Ok(Some(MovieEntry::Hash { frame, hash })) => hashes.push((frame.number(), hash)),
                Ok(Some(MovieEntry::Mark { frame, bytes })) => marks.push((frame.number(), bytes.to_vec())),
                Ok(Some(MovieEntry::End { frames })) => break Ok(frames),
                Ok(None) if rest.is_empty() => reader.end_input(),
                Ok(None) => {}
            }
        };
        ReplayedMovie { frames, hashes, marks, state, end }
    }

    /// Creates a movie of `frames` frames, with a mark every 100 and a hash every 60 frames, and the entries that its
    /// replay must return.
    fn sample_movie(start: MovieStartPoint<'_>, frames: u32) -> (Vec<u8>, ReplayedMovie) {
        let mut writer = MovieWriter::new(&test_settings(2, 0xffff), start).unwrap();
        let (first, state) = match start {
            MovieStartPoint::PowerOn => (0, None),
            MovieStartPoint::Snapshot { frame, state } => (frame.number(), Some((frame.number(), state.to_vec()))),
        };
        let mut played = ReplayedMovie { frames: vec![], hashes: vec![], marks: vec![], state, end: Ok(frames) };
        let mut file = vec![];
        for number in first..first + frames {
            let frame = Frame::new(number);
            if number % 100 == 50 {
                writer.push_mark(frame, &number.to_le_bytes()).unwrap();
                played.marks.push((number, number.to_le_bytes().to_vec()));
            }
            let words = vec![InputWord::from(number / 7 % 5), InputWord::from(number / 300)];
            writer.push(frame, &words).unwrap();
            played.frames.push((number, words));
            if number % 60 == 59 {
                writer.push_hash(frame, u64::from(number) << 32).unwrap();
                played.hashes.push((number, u64::from(number) << 32));
            }
            file.extend(writer.poll_bytes().unwrap_or_default());
        }
        writer.finish().unwrap();
        file.extend(writer.poll_bytes().unwrap());
        (file, played)
    }

    #[test]
    fn movie_round_trips_in_chunks_of_any_size() {
        let state: Vec<u8> = (0..10_000u32).map(|at| (at / 3) as u8).collect();
        let snapshot = MovieStartPoint::Snapshot { frame: Frame::new(777), state: &state };
        let empty = MovieStartPoint::Snapshot { frame: Frame::new(1), state: &[] };
        for (start, frames) in
            [(MovieStartPoint::PowerOn, 2_000), (MovieStartPoint::PowerOn, 0), (snapshot, 700), (empty, 600)]
        {
            let (file, expected) = sample_movie(start, frames);
            for piece in [1, 7, 1_000, file.len()] {
                assert_eq!(replay_in_chunks(&file, piece), expected);
            }
        }
    }

    #[test]
    fn file_that_is_not_a_movie_is_rejected() {
        assert_eq!(replay(b"COPY").end, Err(MovieError::NotAMovie));
        assert_eq!(replay(b"COPLAYMV	").end, Err(MovieError::UnsupportedVersion(9)));
        assert_eq!(replay(b"COPL").end, Err(MovieError::Truncated { frame: Frame::ZERO }));
        assert_eq!(replay(b"").end, Err(MovieError::Truncated { frame: Frame::ZERO }));
    }

    #[test]
    fn truncated_movie_plays_up_to_its_last_whole_block() {
        let (file, expected) = sample_movie(MovieStartPoint::PowerOn, 1_300);
        let cut = replay(&file[..file.len() - 40]);
        assert_eq!(cut.end, Err(MovieError::Truncated { frame: Frame::new(1_200) }));
        assert_eq!(cut.frames, expected.frames[..1_200]);
    }

    #[test]
    fn trailing_bytes_missing_blocks_and_foreign_blocks_are_rejected() {
        let (file, _) = sample_movie(MovieStartPoint::PowerOn, 10);
        let mut reader = MovieReader::new();
        let mut long = file.clone();
        long.push(0);
        assert_eq!(reader.push(&long), long.len());
        let mut polled = || reader.poll().map(|entry| matches!(entry, Some(MovieEntry::End { .. })));
        while polled() == Ok(false) {}
        assert_eq!(polled(), Err(MovieError::Damaged { frame: Frame::new(10) }));
        let (other, _) = sample_movie(MovieStartPoint::Snapshot { frame: Frame::ZERO, state: &[] }, 10);
        let end = BLOCK_HEAD_SIZE + CHECKSUM_SIZE;
        let spliced = [&file[..file.len() - end], &other[other.len() - end..]].concat();
        assert_eq!(replay(&spliced).end, Err(MovieError::Damaged { frame: Frame::new(10) }));
        let (long, _) = sample_movie(MovieStartPoint::PowerOn, 1_900);
        let size = |at: usize| BlockHead::read(&long[at..]).unwrap().size();
        let first = MAGIC.len() + 1 + size(MAGIC.len() + 1);
        let without = [&long[..first], &long[first + size(first)..]].concat();
        assert_eq!(replay(&without).end, Err(MovieError::Damaged { frame: Frame::ZERO }));
    }

    /// A checksum detects accidents, not forgery. The decoder must treat a payload behind a valid checksum as
    /// untrusted.
    #[test]
    fn random_payload_with_valid_checksum_does_not_panic() {
        let (file, _) = sample_movie(MovieStartPoint::PowerOn, 0);
        let header = BlockHead::read(&file[MAGIC.len() + 1..]).unwrap().size();
        let opening = &file[..MAGIC.len() + 1 + header];
        let seed = verify_checksum(0, &opening[MAGIC.len() + 1..]).unwrap();
        let mut random = 1u64;
        let mut draw = move |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % below
        };
        let mut replayed = 0;
        for _ in 0..20_000 {
            let len = draw(24) as usize;
            let mut block = [0; BLOCK_HEAD_SIZE + 24 + CHECKSUM_SIZE];
            block[BLOCK_HEAD_SIZE..BLOCK_HEAD_SIZE + len].fill_with(|| (draw(256) >> (draw(2) * 4)) as u8);
            let frames = draw(40) as u16;
            let size = BlockHead { kind: BlockKind::Inputs, payload_len: len, position: 0, frames }
                .seal(seed, &mut block)
                .unwrap();
            let played = replay(&[opening, &block[..size]].concat());
            assert!(played.end.is_err() && played.frames.len() <= usize::from(frames));
            replayed += played.frames.len();
            let kind = [BlockKind::Header, BlockKind::State, BlockKind::End][draw(3) as usize];
            let size = BlockHead { kind, payload_len: len, position: 0, frames: 0 }.seal(0, &mut block).unwrap();
            assert!(replay(&[&file[..MAGIC.len() + 1], &block[..size]].concat()).end.is_err());
        }
        assert!(replayed > 10_000, "{replayed} frames were replayed");
    }

    #[test]
    fn state_is_freed_after_it_was_returned() {
        let state = vec![1; 1 << 20];
        let (file, _) = sample_movie(MovieStartPoint::Snapshot { frame: Frame::ZERO, state: &state }, 5);
        let (mut reader, mut rest) = (MovieReader::new(), &file[..]);
        while !matches!(reader.poll(), Ok(Some(MovieEntry::End { .. }))) {
            rest = &rest[reader.push(rest)..];
        }
        assert!(reader.memory() < 32 << 10, "{}", reader.memory());
    }
}
