//! Reading a movie, some bytes at a time.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::block::{HEAD, Head, Kind, MAX_BLOCK, SUM, proven};
use super::{HASH, MAGIC, MARK, MAX_STATE, VERSION, merged};
use crate::frame::Frame;
use crate::input::delta_codec::{MAX_WIDTH, get_change};
use crate::input::{InputLayout, InputWord, MAX_PLAYERS};
use crate::session::Settings;
use crate::wire::hello::get_settings;
use crate::wire::{ByteReader as Get, DecodeError};

/// Bytes kept until they are understood: two blocks, so that they need not be moved too often.
const KEPT: usize = 2 * MAX_BLOCK;

/// One thing in a movie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// What was played: always the first.
    Header {
        /// The game, the machine and how they were shared.
        settings: &'a Settings,
        /// The first frame.
        first: Frame,
    },
    /// The state to be loaded before the first frame. Without it the movie starts with power-on.
    Snapshot {
        /// The first frame.
        frame: Frame,
        /// The state before it.
        state: &'a [u8],
    },
    /// A frame to be stepped.
    Frame {
        /// Its number; they come one after the other.
        frame: Frame,
        /// One word per player.
        words: &'a [InputWord],
    },
    /// The hash of the state after the frame that was told last.
    Hash {
        /// That frame.
        frame: Frame,
        /// The hash.
        hash: u64,
    },
    /// Something that happened to the machine before the frame that is told next.
    Mark {
        /// That frame.
        frame: Frame,
        /// What happened, in the recorder's words.
        bytes: &'a [u8],
    },
    /// The movie is whole, and over.
    End {
        /// How many frames it had.
        frames: u32,
    },
}

/// Why a movie cannot be read, or not any further. All that was told before it is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovieError {
    /// These bytes are something else.
    NotAMovie,
    /// A movie in a format that is not known here.
    Version(u8),
    /// A block is not what was written.
    Damaged {
        /// The first frame that is not known because of it.
        frame: Frame,
    },
    /// The bytes end, the movie does not.
    Cut {
        /// The first frame that is not known because of it.
        frame: Frame,
    },
}

impl fmt::Display for MovieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAMovie => write!(f, "this is no movie, it does not begin with COPLAYMV; is it the right file?"),
            Self::Version(version) => {
                write!(f, "the movie has format {version}, this program knows {VERSION}; a newer program may play it")
            }
            Self::Damaged { frame } => {
                write!(
                    f,
                    "the movie is damaged from frame {frame} on; the frames before it are good, or try another copy"
                )
            }
            Self::Cut { frame } => {
                write!(f, "the movie breaks off before frame {frame}; the frames before it are good")
            }
        }
    }
}

impl core::error::Error for MovieError {}

/// Reads a movie: bytes go in as they come, entries come out. Its memory is bounded, whatever comes.
#[derive(Debug)]
pub struct Reader {
    bytes: Box<[u8]>,
    /// How many bytes are kept.
    len: usize,
    stage: Stage,
    /// What is in the block at hand, if there is one.
    block: Option<Block>,
    settings: Option<Box<Settings>>,
    layout: Option<InputLayout>,
    seed: u64,
    state: Vec<u8>,
    first: Frame,
    /// The frame to be told next.
    next: Frame,
    words: [InputWord; MAX_PLAYERS],
    /// There are no more bytes.
    ended: bool,
    error: Option<MovieError>,
}

/// Where a movie is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Magic and version come.
    Opening,
    Header,
    /// A state of so many bytes comes.
    State(usize),
    Frames,
    Over,
}

/// A block of inputs in the middle of being told.
#[derive(Clone, Debug)]
struct Block {
    /// The tokens not yet read, in the bytes kept.
    tokens: Range<usize>,
    /// Frames not yet told.
    frames: u32,
    /// Those of them that are told before what comes next.
    unchanged: u32,
    then: Then,
    /// The packed input at hand.
    value: [u8; MAX_WIDTH],
}

/// What comes after unchanged frames.
#[derive(Clone, Debug)]
enum Then {
    /// A token to be read.
    Token,
    /// A frame with this input.
    Change([u8; MAX_WIDTH]),
    Hash(u64),
    /// A mark, in the bytes kept.
    Mark(Range<usize>),
}

/// What is told next.
enum Step {
    Header,
    Snapshot,
    Frame,
    Hash(u64),
    Mark(Range<usize>),
    End,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader that has read nothing.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; KEPT].into_boxed_slice(),
            len: 0,
            stage: Stage::Opening,
            block: None,
            settings: None,
            layout: None,
            seed: 0,
            state: Vec::new(),
            first: Frame::ZERO,
            next: Frame::ZERO,
            words: [0; MAX_PLAYERS],
            ended: false,
            error: None,
        }
    }

    /// Takes in the next bytes, as many as there is room for, and returns how many those are. Poll until there is nothing, then go
    /// on with the others. Once the movie can be read no further, all bytes are taken and dropped.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.error.is_some() || self.ended {
            return bytes.len();
        }
        let taken = bytes.len().min(KEPT - self.len);
        self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        taken
    }

    /// There are no more bytes. When all that is here has been told, [`ByteReader::poll`] says [`MovieError::Cut`] unless the movie is
    /// whole.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What comes next; `None` if that takes more bytes, or after [`Entry::End`]. An error is told again and again.
    pub fn poll(&mut self) -> Result<Option<Entry<'_>>, MovieError> {
        let step = match self.error {
            Some(error) => Err(error),
            None => self.step(),
        };
        let step = step.inspect_err(|error| self.error = Some(*error))?;
        Ok(step.map(|step| self.entry(step)))
    }

    fn entry(&self, step: Step) -> Entry<'_> {
        let before = self.next.checked_sub(1).unwrap_or_default();
        match step {
            Step::Header => {
                let settings = self.settings.as_deref().expect("the header has just been read");
                Entry::Header { settings, first: self.first }
            }
            Step::Snapshot => Entry::Snapshot { frame: self.first, state: &self.state },
            Step::Frame => Entry::Frame { frame: before, words: &self.words[..self.players()] },
            Step::Hash(hash) => Entry::Hash { frame: before, hash },
            Step::Mark(place) => Entry::Mark { frame: self.next, bytes: &self.bytes[place] },
            Step::End => Entry::End { frames: self.next.number() - self.first.number() },
        }
    }

    fn players(&self) -> usize {
        self.settings.as_ref().map_or(0, |settings| settings.ownership.players())
    }

    /// What was played, once the header is here.
    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_deref()
    }

    /// The frame that will be told next.
    pub fn next(&self) -> Frame {
        self.next
    }

    /// About how many bytes the reader takes, without the texts of the settings.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + KEPT + self.state.capacity()
    }

    fn step(&mut self) -> Result<Option<Step>, MovieError> {
        if self.stage == Stage::Frames && self.state.capacity() > 0 {
            self.state = Vec::new();
        }
        loop {
            if self.block.is_some() {
                match self.play().map_err(|_| self.damaged())? {
                    None => continue,
                    step => return Ok(step),
                }
            }
            match self.stage {
                Stage::Opening => match self.open()? {
                    true => continue,
                    false => break,
                },
                Stage::State(len) if self.state.len() == len => {
                    self.stage = Stage::Frames;
                    return Ok(Some(Step::Snapshot));
                }
                Stage::Over if self.len > 0 => return Err(self.damaged()),
                Stage::Over => return Ok(None),
                Stage::Header | Stage::State(_) | Stage::Frames => {}
            }
            let Some(head) = self.whole_block().map_err(|_| self.damaged())? else { break };
            match self.on_block(head).map_err(|_| self.damaged())? {
                None => continue,
                step => return Ok(step),
            }
        }
        if self.ended { Err(MovieError::Cut { frame: self.next }) } else { Ok(None) }
    }

    fn damaged(&self) -> MovieError {
        MovieError::Damaged { frame: self.next }
    }

    /// Reads magic and version; `false` if they are not here yet.
    fn open(&mut self) -> Result<bool, MovieError> {
        let magic = &self.bytes[..self.len.min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(MovieError::NotAMovie);
        }
        if self.len <= MAGIC.len() {
            return Ok(false);
        }
        match self.bytes[MAGIC.len()] {
            VERSION => self.discard(MAGIC.len() + 1),
            version => return Err(MovieError::Version(version)),
        }
        self.stage = Stage::Header;
        Ok(true)
    }

    /// The head of the block in front, if all of it is here and as it was written.
    fn whole_block(&self) -> Result<Option<Head>, DecodeError> {
        let head = match Head::read(&self.bytes[..self.len]) {
            Err(DecodeError::Truncated) => return Ok(None),
            head => head?,
        };
        if head.size() > self.len {
            return Ok(None);
        }
        proven(self.seed, &self.bytes[..head.size()]).ok_or(DecodeError::Malformed)?;
        Ok(Some(head))
    }

    fn on_block(&mut self, head: Head) -> Result<Option<Step>, DecodeError> {
        let payload = HEAD..HEAD + head.len;
        let step = match (self.stage, head.kind) {
            (Stage::Header, Kind::Header) => {
                self.read_header(head)?;
                Some(Step::Header)
            }
            (Stage::State(len), Kind::State) => {
                let fits = !payload.is_empty() && payload.len() <= len - self.state.len();
                if !fits || head.place as usize != self.state.len() {
                    return Err(DecodeError::Malformed);
                }
                self.state.extend_from_slice(&self.bytes[payload]);
                None
            }
            (Stage::Frames, Kind::Inputs) if head.place == self.next.number() => {
                self.block = Some(Block::new(payload, u32::from(head.frames)));
                return Ok(None);
            }
            (Stage::Frames, Kind::End) if head.place == self.next.number() && payload.is_empty() => {
                self.stage = Stage::Over;
                Some(Step::End)
            }
            _ => return Err(DecodeError::Malformed),
        };
        self.discard(head.size());
        Ok(step)
    }

    fn read_header(&mut self, head: Head) -> Result<(), DecodeError> {
        let mut get = Get::new(&self.bytes[HEAD..HEAD + head.len]);
        let settings = get_settings(&mut get)?;
        self.stage = match get.u8()? {
            0 if head.place == 0 => Stage::Frames,
            1 => Stage::State(get.varint()? as usize),
            _ => return Err(DecodeError::Malformed),
        };
        if !get.is_empty() || matches!(self.stage, Stage::State(len) if len > MAX_STATE) {
            return Err(DecodeError::Malformed);
        }
        self.seed = proven(0, &self.bytes[..head.size()]).ok_or(DecodeError::Malformed)?;
        self.first = Frame::new(head.place);
        self.next = self.first;
        self.layout = Some(merged(&settings));
        self.settings = Some(Box::new(settings));
        Ok(())
    }

    /// What comes next in the block at hand; `None` when it is done.
    fn play(&mut self) -> Result<Option<Step>, DecodeError> {
        let (Some(block), Some(layout)) = (&mut self.block, &self.layout) else { return Ok(None) };
        loop {
            if block.unchanged == 0 {
                match core::mem::replace(&mut block.then, Then::Token) {
                    Then::Hash(hash) => return Ok(Some(Step::Hash(hash))),
                    Then::Mark(place) => return Ok(Some(Step::Mark(place))),
                    Then::Change(value) => (block.value, block.unchanged) = (value, 1),
                    Then::Token if !block.tokens.is_empty() => {
                        let told = self.next > self.first;
                        block.read_token(&self.bytes, layout.width(), told)?;
                        continue;
                    }
                    Then::Token => block.unchanged = block.frames,
                }
            }
            if block.frames == 0 {
                break;
            }
            block.unchanged -= 1;
            block.frames -= 1;
            self.words.fill(0);
            layout.unpack(&block.value, &mut self.words);
            self.next = self.next.next();
            return Ok(Some(Step::Frame));
        }
        let size = block.tokens.end + SUM;
        self.block = None;
        self.discard(size);
        Ok(None)
    }

    fn discard(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.len, 0);
        self.len -= bytes;
    }
}

impl Block {
    fn new(tokens: Range<usize>, frames: u32) -> Self {
        Self { tokens, frames, unchanged: 0, then: Then::Token, value: [0; MAX_WIDTH] }
    }

    /// Reads a token and what belongs to it. `told`: there is a frame before this block that a hash can belong to.
    fn read_token(&mut self, bytes: &[u8], width: usize, told: bool) -> Result<(), DecodeError> {
        let mut get = Get::new(&bytes[self.tokens.clone()]);
        let mut value = self.value;
        self.unchanged = get_change(&mut get, &mut value[..width])?;
        self.then = if value != self.value {
            Then::Change(value)
        } else {
            match get.u8()? {
                HASH if told || self.unchanged > 0 => Then::Hash(get.u64()?),
                MARK => {
                    let len = usize::from(get.u8()?);
                    let start = self.tokens.end - get.rest().len();
                    get.take(len)?;
                    Then::Mark(start..start + len)
                }
                _ => return Err(DecodeError::Malformed),
            }
        };
        self.tokens.start = self.tokens.end - get.rest().len();
        let frames = self.unchanged.checked_add(u32::from(matches!(self.then, Then::Change(_))));
        if frames.is_none_or(|frames| frames > self.frames) { Err(DecodeError::Malformed) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Start, Writer};
    use super::*;
    use crate::frame::FrameRate;
    use crate::id::SiteSet;
    use crate::input::Ownership;
    use crate::session::{AbsentInput, GameId, MachineId, StarvationPolicy};

    pub(in super::super) fn settings(sites: usize, mask: InputWord) -> Settings {
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

    /// All that a movie tells.
    #[derive(Debug, PartialEq)]
    pub(in super::super) struct Played {
        pub(in super::super) frames: Vec<(u32, Vec<InputWord>)>,
        hashes: Vec<(u32, u64)>,
        marks: Vec<(u32, Vec<u8>)>,
        state: Option<(u32, Vec<u8>)>,
        pub(in super::super) end: Result<u32, MovieError>,
    }

    pub(in super::super) fn play(file: &[u8]) -> Played {
        play_in(file, file.len().max(1))
    }

    fn play_in(file: &[u8], piece: usize) -> Played {
        let mut reader = Reader::new();
        let (mut frames, mut hashes, mut marks, mut state, mut rest) = (vec![], vec![], vec![], None, file);
        let end = loop {
            rest = &rest[reader.push(&rest[..piece.min(rest.len())])..];
            match reader.poll() {
                Err(error) => break Err(error),
                Ok(Some(Entry::Header { .. })) => assert!(frames.is_empty()),
                Ok(Some(Entry::Snapshot { frame, state: bytes })) => state = Some((frame.number(), bytes.to_vec())),
                Ok(Some(Entry::Frame { frame, words })) => frames.push((frame.number(), words.to_vec())),
                Ok(Some(Entry::Hash { frame, hash })) => hashes.push((frame.number(), hash)),
                Ok(Some(Entry::Mark { frame, bytes })) => marks.push((frame.number(), bytes.to_vec())),
                Ok(Some(Entry::End { frames })) => break Ok(frames),
                Ok(None) if rest.is_empty() => reader.end(),
                Ok(None) => {}
            }
        };
        Played { frames, hashes, marks, state, end }
    }

    /// A movie with everything in it.
    fn movie(start: Start<'_>, frames: u32) -> (Vec<u8>, Played) {
        let mut writer = Writer::new(&settings(2, 0xffff), start).unwrap();
        let (first, state) = match start {
            Start::PowerOn => (0, None),
            Start::Snapshot { frame, state } => (frame.number(), Some((frame.number(), state.to_vec()))),
        };
        let mut played = Played { frames: vec![], hashes: vec![], marks: vec![], state, end: Ok(frames) };
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
    fn everything_comes_back_however_the_bytes_come() {
        let state: Vec<u8> = (0..10_000u32).map(|at| (at / 3) as u8).collect();
        let snapshot = Start::Snapshot { frame: Frame::new(777), state: &state };
        let empty = Start::Snapshot { frame: Frame::new(1), state: &[] };
        for (start, frames) in [(Start::PowerOn, 2_000), (Start::PowerOn, 0), (snapshot, 700), (empty, 600)] {
            let (file, truth) = movie(start, frames);
            for piece in [1, 7, 1_000, file.len()] {
                assert_eq!(play_in(&file, piece), truth);
            }
        }
    }

    #[test]
    fn what_is_no_movie_is_told_at_once() {
        assert_eq!(play(b"COPY").end, Err(MovieError::NotAMovie));
        assert_eq!(play(b"COPLAYMV	").end, Err(MovieError::Version(9)));
        assert_eq!(play(b"COPL").end, Err(MovieError::Cut { frame: Frame::ZERO }));
        assert_eq!(play(b"").end, Err(MovieError::Cut { frame: Frame::ZERO }));
    }

    #[test]
    fn a_movie_that_breaks_off_is_good_up_to_its_last_whole_block() {
        let (file, truth) = movie(Start::PowerOn, 1_300);
        let cut = play(&file[..file.len() - 40]);
        assert_eq!(cut.end, Err(MovieError::Cut { frame: Frame::new(1_200) }));
        assert_eq!(cut.frames, truth.frames[..1_200]);
    }

    #[test]
    fn nothing_may_follow_the_end_and_nothing_may_be_left_out_or_come_from_elsewhere() {
        let (file, _) = movie(Start::PowerOn, 10);
        let mut reader = Reader::new();
        let mut long = file.clone();
        long.push(0);
        assert_eq!(reader.push(&long), long.len());
        let mut polled = || reader.poll().map(|entry| matches!(entry, Some(Entry::End { .. })));
        while polled() == Ok(false) {}
        assert_eq!(polled(), Err(MovieError::Damaged { frame: Frame::new(10) }));
        let (other, _) = movie(Start::Snapshot { frame: Frame::ZERO, state: &[] }, 10);
        let end = HEAD + SUM;
        let spliced = [&file[..file.len() - end], &other[other.len() - end..]].concat();
        assert_eq!(play(&spliced).end, Err(MovieError::Damaged { frame: Frame::new(10) }));
        let (long, _) = movie(Start::PowerOn, 1_900);
        let size = |at: usize| Head::read(&long[at..]).unwrap().size();
        let first = MAGIC.len() + 1 + size(MAGIC.len() + 1);
        let without = [&long[..first], &long[first + size(first)..]].concat();
        assert_eq!(play(&without).end, Err(MovieError::Damaged { frame: Frame::ZERO }));
    }

    /// A checksum stops chance, not whoever can compute one: what is behind it must be taken apart with the same care.
    #[test]
    fn any_payload_with_a_right_checksum_does_no_harm() {
        let (file, _) = movie(Start::PowerOn, 0);
        let header = Head::read(&file[MAGIC.len() + 1..]).unwrap().size();
        let opening = &file[..MAGIC.len() + 1 + header];
        let seed = proven(0, &opening[MAGIC.len() + 1..]).unwrap();
        let mut random = 1u64;
        let mut draw = move |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % below
        };
        let mut told = 0;
        for _ in 0..20_000 {
            let len = draw(24) as usize;
            let mut block = [0; HEAD + 24 + SUM];
            block[HEAD..HEAD + len].fill_with(|| (draw(256) >> (draw(2) * 4)) as u8);
            let frames = draw(40) as u16;
            let size = Head { kind: Kind::Inputs, len, place: 0, frames }.seal(seed, &mut block).unwrap();
            let played = play(&[opening, &block[..size]].concat());
            assert!(played.end.is_err() && played.frames.len() <= usize::from(frames));
            told += played.frames.len();
            let kind = [Kind::Header, Kind::State, Kind::End][draw(3) as usize];
            let size = Head { kind, len, place: 0, frames: 0 }.seal(0, &mut block).unwrap();
            assert!(play(&[&file[..MAGIC.len() + 1], &block[..size]].concat()).end.is_err());
        }
        assert!(told > 10_000, "{told} frames are behind good tokens");
    }

    #[test]
    fn a_state_is_let_go_once_it_has_been_told() {
        let state = vec![1; 1 << 20];
        let (file, _) = movie(Start::Snapshot { frame: Frame::ZERO, state: &state }, 5);
        let (mut reader, mut rest) = (Reader::new(), &file[..]);
        while !matches!(reader.poll(), Ok(Some(Entry::End { .. }))) {
            rest = &rest[reader.push(rest)..];
        }
        assert!(reader.memory() < 32 << 10, "{}", reader.memory());
    }
}
