//! Properties of movies: every movie round-trips, a truncated one is valid up to the cut, and damage is detected.
//!
//! The cases are the same in every run. For other or more cases: `PROPTEST_RNG_SEED=7 PROPTEST_CASES=100000 cargo test
//! -p coplay --test movie`.

use coplay::frame::{Frame, FrameRate};
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, MAX_PLAYERS, Ownership};
use coplay::movie::{
    MAX_BLOCK_FRAMES, MAX_MARK_SIZE, MovieEntry, MovieError, MovieReader, MovieStartPoint, MovieWriteError, MovieWriter,
};
use coplay::session::{AbsentInput, GameId, MachineId, Settings, StarvationPolicy};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let rng_seed = match default.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        chosen => chosen,
    };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn movie_round_trips(expected in test_movie(), piece in 1..9_000usize) {
        let file = expected.file();
        let played = read_movie(&file, piece);
        prop_assert_eq!(played.error, None);
        prop_assert_eq!(played.entries, expected.entries());
    }

    #[test]
    fn truncated_movie_is_readable_up_to_the_cut(
        expected in test_movie(),
        cuts in vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let (file, whole) = (expected.file(), expected.entries());
        for cut in cuts {
            let played = read_movie(&file[..cut.index(file.len())], 10_000);
            prop_assert!(is_truncated(&played));
            prop_assert_eq!(&played.entries[..], &whole[..played.entries.len()]);
        }
    }

    #[test]
    fn changed_byte_is_detected(
        expected in test_movie(),
        changes in vec((any::<prop::sample::Index>(), 1..=255u8), 1..8),
    ) {
        let (mut file, whole) = (expected.file(), expected.entries());
        for (at, change) in changes {
            let at = at.index(file.len());
            file[at] ^= change;
            let played = read_movie(&file, 10_000);
            prop_assert!(played.error.is_some());
            prop_assert_eq!(&played.entries[..], &whole[..played.entries.len()]);
            file[at] ^= change;
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes in vec(any::<u8>(), 0..12_000), opening in 0..3, piece in 1..9_000usize) {
        let start = TestMovie::simple().file();
        let kept = [0, 9, start.len().min(bytes.len())][opening as usize].min(bytes.len());
        bytes[..kept].copy_from_slice(&start[..kept]);
        read_movie(&bytes, piece);
    }
}

#[test]
fn every_truncation_and_bit_flip_is_detected() {
    let expected = TestMovie::simple();
    let (mut file, whole) = (expected.file(), expected.entries());
    let mut good = 0;
    for cut in 0..file.len() {
        let played = read_movie(&file[..cut], 10_000);
        assert!(is_truncated(&played), "cut at {cut}: {:?}", played.error);
        assert_eq!(played.entries[..], whole[..played.entries.len()]);
        assert!(played.entries.len() >= good, "more bytes give at least as many entries");
        good = played.entries.len();
    }
    assert_eq!(good, whole.len() - 1, "without the last byte only the end entry is missing");
    for at in 0..file.len() {
        for bit in 0..8 {
            file[at] ^= 1 << bit;
            let played = read_movie(&file, 10_000);
            assert!(played.error.is_some(), "flipped bit {bit} of byte {at}");
            assert_eq!(played.entries[..], whole[..played.entries.len()]);
            file[at] ^= 1 << bit;
        }
    }
}

/// Pins the layout. A change of the layout makes existing movies unreadable: it needs a new `VERSION`, and a reader for
/// the old and the new layout.
#[test]
fn movie_matches_golden_bytes() {
    let mut writer =
        MovieWriter::new(&TestMovie::simple().settings(), MovieStartPoint::PowerOn).expect("valid settings");
    let header = writer.poll_bytes().expect("header").to_vec();
    assert_eq!(header[..10], *b"COPLAYMV\x01\x01");
    writer.push_mark(Frame::ZERO, b"on").expect("valid mark");
    for (number, word) in [(0, 0), (1, 0x81), (2, 0x81), (3, 0x0281)] {
        writer.push(Frame::new(number), &[word, 0]).expect("valid frame");
    }
    writer.push_hash(Frame::new(3), 0x0807_0605_0403_0201).expect("valid hash");
    writer.finish().expect("finished movie");
    let bytes = writer.poll_bytes().expect("two blocks");
    let inputs =
        b"\x03\x13\x00\x00\x00\x00\x00\x04\x00\x00\x01\x02on\x11\x81\x12\x02\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08";
    assert_eq!(bytes[..inputs.len()], *inputs);
    assert_eq!(bytes[inputs.len() + 8..][..9], *b"\x04\x00\x00\x04\x00\x00\x00\x00\x00");
    assert_eq!(bytes.len(), inputs.len() + 8 + 9 + 8);
}

// ---- Movies.

/// A movie entry that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
enum OwnedEntry {
    Header(Settings, Frame),
    Snapshot(Frame, Vec<u8>),
    Frame(Frame, Vec<InputWord>),
    Hash(Frame, u64),
    Mark(Frame, Vec<u8>),
    End(u32),
}

/// Settings, start and entries of a test movie.
#[derive(Clone, Debug)]
struct TestMovie {
    masks: Vec<[InputWord; 2]>,
    start: Option<(u32, Vec<u8>)>,
    segments: Vec<Segment>,
}

/// Consecutive frames with equal input, and the hash, mark and flush that follow them.
#[derive(Clone, Debug)]
struct Segment {
    words: Vec<InputWord>,
    frames: u32,
    hash: Option<u64>,
    mark: Option<Vec<u8>>,
    has_flush: bool,
}

fn test_movie() -> impl Strategy<Value = TestMovie> {
    let mask =
        prop_oneof![Just(0), Just(0xff), Just(0xffff), any::<u16>().prop_map(InputWord::from), any::<InputWord>()];
    let masks = vec([mask.clone(), mask], 1..=MAX_PLAYERS);
    let start = option::of((0..u32::MAX - 100_000, vec(any::<u8>(), 0..9_000)));
    (masks, start, vec(segment(), 0..60)).prop_map(|(masks, start, segments)| TestMovie { masks, start, segments })
}

fn segment() -> impl Strategy<Value = Segment> {
    let frames = prop_oneof![4 => 0..20u32, 1 => 0..1_500u32];
    let mark = option::weighted(0.2, vec(any::<u8>(), 0..=MAX_MARK_SIZE));
    let hash = option::weighted(0.3, any::<u64>());
    (vec(any::<InputWord>(), MAX_PLAYERS), frames, hash, mark, prop::bool::weighted(0.1))
        .prop_map(|(words, frames, hash, mark, has_flush)| Segment { words, frames, hash, mark, has_flush })
}

impl TestMovie {
    /// Creates a movie of two players with 16 buttons each, with hashes, marks and one flush.
    fn simple() -> Self {
        let segment = |number: u32| Segment {
            words: vec![InputWord::from(number), InputWord::from(number / 3)],
            frames: 8,
            hash: (number % 8 == 7).then_some(u64::from(number) << 40),
            mark: (number % 50 == 20).then(|| vec![number as u8; 3]),
            has_flush: number == 100,
        };
        Self { masks: vec![[0xffff, 0]; 2], start: None, segments: (0..160).map(segment).collect() }
    }

    /// Creates settings for two sites. Site 1 owns the bits of its masks that site 0 does not own.
    fn settings(&self) -> Settings {
        let mut ownership = Ownership::new(self.masks.len());
        for (player, [first, second]) in self.masks.iter().enumerate() {
            for (number, mask) in [(0, *first), (1, second & !first)] {
                ownership.assign(SiteId::new(number).expect("valid site number"), player, mask).expect("unowned bits");
            }
        }
        Settings {
            game: GameId { name: "game".into(), hash: [3; 32] },
            machine: MachineId { name: "machine".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
            rate: FrameRate::new(39_375_000, 655_171).expect("valid rate"),
            input_delay: 6,
            prediction_window: 0,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 60,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership,
        }
    }

    fn first_frame(&self) -> Frame {
        Frame::new(self.start.as_ref().map_or(0, |(frame, _)| *frame))
    }

    fn mask_owned(&self, words: &[InputWord]) -> Vec<InputWord> {
        self.masks.iter().zip(words).map(|([first, second], word)| word & (first | second)).collect()
    }

    fn entries(&self) -> Vec<OwnedEntry> {
        let first = self.first_frame();
        let mut entries = vec![OwnedEntry::Header(self.settings(), first)];
        entries.extend(self.start.iter().map(|(_, state)| OwnedEntry::Snapshot(first, state.clone())));
        let mut next = first;
        for segment in &self.segments {
            for _ in 0..segment.frames {
                entries.push(OwnedEntry::Frame(next, self.mask_owned(&segment.words)));
                next = next.next();
            }
            if let Some(hash) = segment.hash.filter(|_| next > first) {
                entries.push(OwnedEntry::Hash(next.checked_sub(1).expect("previous frame"), hash));
            }
            entries.extend(segment.mark.iter().map(|mark| OwnedEntry::Mark(next, mark.clone())));
        }
        entries.push(OwnedEntry::End(next.number() - first.number()));
        entries
    }

    fn file(&self) -> Vec<u8> {
        let start = match &self.start {
            None => MovieStartPoint::PowerOn,
            Some((frame, state)) => MovieStartPoint::Snapshot { frame: Frame::new(*frame), state },
        };
        let mut writer = MovieWriter::new(&self.settings(), start).expect("valid settings");
        let mut file = vec![];
        for entry in self.segments.iter().flat_map(|segment| self.segment_writes(segment)) {
            entry(&mut writer).expect("valid entry");
            file.extend_from_slice(writer.poll_bytes().unwrap_or_default());
        }
        writer.finish().expect("finished movie");
        file.extend_from_slice(writer.poll_bytes().expect("last bytes"));
        assert_eq!(writer.poll_bytes(), None);
        file
    }

    fn segment_writes<'a>(&'a self, segment: &'a Segment) -> Vec<WriteOp<'a>> {
        let mut pushes: Vec<WriteOp<'a>> = vec![];
        for _ in 0..segment.frames {
            pushes.push(Box::new(|writer| writer.push(writer.next_frame(), &segment.words)));
        }
        if let Some(hash) = segment.hash {
            pushes.push(Box::new(move |writer| match writer.next_frame() > self.first_frame() {
                true => writer.push_hash(writer.next_frame().checked_sub(1).expect("previous frame"), hash),
                false => Ok(()),
            }));
        }
        if let Some(mark) = &segment.mark {
            pushes.push(Box::new(|writer| writer.push_mark(writer.next_frame(), mark)));
        }
        if segment.has_flush {
            pushes.push(Box::new(|writer| writer.flush()));
        }
        pushes
    }
}

type WriteOp<'a> = Box<dyn Fn(&mut MovieWriter) -> Result<(), MovieWriteError> + 'a>;

struct ReadResult {
    entries: Vec<OwnedEntry>,
    error: Option<MovieError>,
}

fn is_truncated(played: &ReadResult) -> bool {
    matches!(played.error, Some(MovieError::Truncated { .. }))
}

/// Reads a file in chunks of `piece` bytes, as from a disk.
fn read_movie(file: &[u8], piece: usize) -> ReadResult {
    let mut reader = MovieReader::new();
    let (mut rest, mut entries, mut has_ended) = (file, vec![], false);
    loop {
        rest = &rest[reader.push(&rest[..piece.min(rest.len())])..];
        let kept = match reader.poll() {
            Err(error) => {
                assert_eq!(reader.poll(), Err(error), "an error is repeated on every poll");
                return ReadResult { entries, error: Some(error) };
            }
            Ok(None) if rest.is_empty() && has_ended => return ReadResult { entries, error: None },
            Ok(None) if rest.is_empty() => {
                reader.end_input();
                has_ended = true;
                continue;
            }
            Ok(None) => continue,
            Ok(Some(MovieEntry::Header { settings, first })) => OwnedEntry::Header(settings.clone(), first),
            Ok(Some(MovieEntry::Snapshot { frame, state })) => OwnedEntry::Snapshot(frame, state.to_vec()),
            Ok(Some(MovieEntry::Frame { frame, words })) => OwnedEntry::Frame(frame, words.to_vec()),
            Ok(Some(MovieEntry::Hash { frame, hash })) => OwnedEntry::Hash(frame, hash),
            Ok(Some(MovieEntry::Mark { frame, bytes })) => OwnedEntry::Mark(frame, bytes.to_vec()),
            Ok(Some(MovieEntry::End { frames })) => OwnedEntry::End(frames),
        };
        entries.push(kept);
        assert!(reader.memory() < 128 << 10, "a reader has bounded memory");
        assert!(
            entries.len() < file.len().max(9) * usize::from(MAX_BLOCK_FRAMES),
            "the number of entries is bounded by the file size"
        );
    }
}
