//! The target `movie`: a recording out of any bytes, and out of any blocks whose checksums are right.

use coplay::frame::Frame;
use coplay::hash::xxh64;
use coplay::movie::{
    MAGIC, MAX_BLOCK_FRAMES, MAX_MARK_SIZE, MovieEntry, MovieError, MovieReader, MovieStart, MovieWriter, VERSION,
};
use coplay::session::Settings;

use crate::bytes::Bytes;
use crate::script::{Owners, Scene};
use crate::site::settings;

/// The most memory that a reader takes beside the state, which is never longer than the bytes that were read.
const MAX_MEMORY: usize = 32 * 1_024;
/// The bytes of a block that come before its payload and after it.
const AROUND: usize = 17;

/// Reads the bytes as they are, and what they stand for as blocks behind a sound header, or behind any.
pub(crate) fn check(data: &[u8]) {
    read(data);
    let mut bytes = Bytes::new(data);
    let how = bytes.u8();
    let owners = [Owners::Pads, Owners::Shared, Owners::Sticks, Owners::LastAll][usize::from(how & 3)];
    let settings = settings(&Scene { owners, third: how & 4 != 0, ..Scene::PLAIN });
    let mut file = header(&settings, how & 8 != 0);
    let mut sum = sum_of_last(&file);
    if how & 16 != 0 {
        file.truncate(MAGIC.len());
        file.push(VERSION);
        put_block(&mut file, &mut bytes, 0);
        sum = sum_of_last(&file);
    }
    while !bytes.is_empty() {
        put_block(&mut file, &mut bytes, sum);
    }
    read(&file);
}

/// What a writer writes before the first frame.
fn header(settings: &Settings, with_state: bool) -> Vec<u8> {
    let start =
        if with_state { MovieStart::Snapshot { frame: Frame::new(5), state: &[1, 2, 3] } } else { MovieStart::PowerOn };
    let mut writer = MovieWriter::new(settings, start).expect("sound settings");
    let mut file = Vec::new();
    while let Some(bytes) = writer.poll_bytes() {
        file.extend_from_slice(bytes);
    }
    file
}

/// The checksum of the header, which all others begin with.
fn sum_of_last(file: &[u8]) -> u64 {
    let block = &file[MAGIC.len() + 1..];
    let len = block.get(1..3).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let sum = block.get(9 + len..AROUND + len).and_then(|sum| sum.first_chunk());
    sum.map_or(0, |sum| u64::from_le_bytes(*sum))
}

/// A block with any head and payload, and the checksum that it must have.
fn put_block(file: &mut Vec<u8>, bytes: &mut Bytes<'_>, seed: u64) {
    let kind = bytes.u8();
    let (place, frames) = (bytes.u32(), u16::from_le_bytes([bytes.u8(), bytes.u8()]));
    let len = usize::from(bytes.u8()) << (kind >> 5 & 3);
    let payload = bytes.take(len);
    let mut block = vec![kind & 7];
    block.extend((payload.len() as u16).to_le_bytes());
    block.extend(place.to_le_bytes());
    block.extend((frames % (MAX_BLOCK_FRAMES + 2)).to_le_bytes());
    block.extend(payload);
    let sum = xxh64(seed, &block).to_le_bytes();
    file.extend(block);
    file.extend(sum);
}

/// Reads a whole file, in pieces and at once, which must be the same.
fn read(file: &[u8]) {
    let whole = told(file, file.len().max(1));
    assert_eq!(whole, told(file, 7), "it does not matter how bytes come");
}

/// How many entries a file has, and how it ends.
fn told(file: &[u8], piece: usize) -> (Vec<u32>, Option<MovieError>) {
    let (mut reader, mut rest, mut told) = (MovieReader::new(), file, Vec::new());
    loop {
        let taken = reader.push(&rest[..rest.len().min(piece)]);
        rest = &rest[taken..];
        if rest.is_empty() {
            reader.end_input();
        }
        loop {
            match reader.poll() {
                Ok(Some(entry)) => told.push(check_entry(&entry)),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.poll().err(), Some(error), "an error is told again and again");
                    assert!(!error.to_string().is_empty());
                    return (told, Some(error));
                }
            }
            // A block of few bytes stands for many frames, but not for more than it says.
            assert!(told.len() <= (1 + file.len() / AROUND) * (usize::from(MAX_BLOCK_FRAMES) + 1) + file.len());
        }
        assert!(reader.memory() <= MAX_MEMORY + 2 * file.len(), "{} bytes", reader.memory());
        if rest.is_empty() {
            return (told, None);
        }
    }
}

/// A few bits of an entry, to tell it from others.
fn check_entry(entry: &MovieEntry<'_>) -> u32 {
    match entry {
        MovieEntry::Header { settings, first } => {
            let _ = settings.check();
            first.number()
        }
        MovieEntry::Snapshot { frame, state } => frame.number() ^ (state.len() as u32) << 8,
        MovieEntry::Frame { frame, words } => words.iter().fold(frame.number(), |sum, word| sum ^ *word as u32),
        MovieEntry::Hash { frame, hash } => frame.number() ^ *hash as u32,
        MovieEntry::Mark { frame, bytes } => {
            assert!(bytes.len() <= MAX_MARK_SIZE);
            frame.number() ^ (bytes.len() as u32) << 16
        }
        MovieEntry::End { frames } => *frames,
    }
}
