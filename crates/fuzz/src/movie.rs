//! The target `movie`: a movie from arbitrary bytes, and from arbitrary blocks with valid checksums.

use coplay::frame::Frame;
use coplay::hash::xxh64;
use coplay::movie::{
    MAGIC, MAX_BLOCK_FRAMES, MAX_MARK_SIZE, MovieEntry, MovieError, MovieReader, MovieStartPoint, MovieWriter, VERSION,
};
use coplay::session::Settings;

use crate::script::{OwnershipKind, ScriptSetup};
use crate::script_reader::ScriptReader;
use crate::site::settings;

/// Maximum memory of a reader in bytes, besides twice the length of the file, which bounds the memory of the state.
const MAX_MEMORY: usize = 32 * 1_024;
/// Number of bytes of a block besides its payload.
const BLOCK_OVERHEAD: usize = 17;

/// Reads the bytes as they are, and as blocks behind a valid or an arbitrary header.
pub(crate) fn check(data: &[u8]) {
    check_reading(data);
    let mut bytes = ScriptReader::new(data);
    let flags = bytes.u8();
    let ownership = [OwnershipKind::Pads, OwnershipKind::Shared, OwnershipKind::AnalogSticks, OwnershipKind::AllToLast]
        [usize::from(flags & 3)];
    let settings = settings(&ScriptSetup { ownership, has_third_site: flags & 4 != 0, ..ScriptSetup::PLAIN });
    let mut file = write_header(&settings, flags & 8 != 0);
    let mut sum = header_checksum(&file);
    if flags & 16 != 0 {
        file.truncate(MAGIC.len());
        file.push(VERSION);
        append_block(&mut file, &mut bytes, 0);
        sum = header_checksum(&file);
    }
    while !bytes.is_empty() {
        append_block(&mut file, &mut bytes, sum);
    }
    check_reading(&file);
}

/// Returns the bytes that a writer writes before the first frame: the header and, if `with_state`, a start state of
/// three bytes.
fn write_header(settings: &Settings, with_state: bool) -> Vec<u8> {
    let start = if with_state {
        MovieStartPoint::Snapshot { frame: Frame::new(5), state: &[1, 2, 3] }
    } else {
        MovieStartPoint::PowerOn
    };
    let mut writer = MovieWriter::new(settings, start).expect("valid settings");
    let mut file = Vec::new();
    while let Some(bytes) = writer.poll_bytes() {
        file.extend_from_slice(bytes);
    }
    file
}

/// Returns the checksum of the header, which seeds the checksums of all other blocks; 0 if the header is incomplete.
fn header_checksum(file: &[u8]) -> u64 {
    let block = &file[MAGIC.len() + 1..];
    let len = block.get(1..3).map_or(0, |len| usize::from(u16::from_le_bytes([len[0], len[1]])));
    let sum = block.get(9 + len..BLOCK_OVERHEAD + len).and_then(|sum| sum.first_chunk());
    sum.map_or(0, |sum| u64::from_le_bytes(*sum))
}

/// Appends a block with arbitrary header and payload, and a valid checksum.
fn append_block(file: &mut Vec<u8>, bytes: &mut ScriptReader<'_>, seed: u64) {
    let kind = bytes.u8();
    let (frame, frames) = (bytes.u32(), u16::from_le_bytes([bytes.u8(), bytes.u8()]));
    let len = usize::from(bytes.u8()) << (kind >> 5 & 3);
    let payload = bytes.take(len);
    let mut block = vec![kind & 7];
    block.extend((payload.len() as u16).to_le_bytes());
    block.extend(frame.to_le_bytes());
    block.extend((frames % (MAX_BLOCK_FRAMES + 2)).to_le_bytes());
    block.extend(payload);
    let sum = xxh64(seed, &block).to_le_bytes();
    file.extend(block);
    file.extend(sum);
}

/// Checks that reading a file in chunks of 7 bytes gives the same result as reading it at once.
fn check_reading(file: &[u8]) {
    let whole = read_entries(file, file.len().max(1));
    assert_eq!(whole, read_entries(file, 7), "the result does not depend on the chunk size");
}

/// Reads a file in pieces of `chunk_len` bytes. Returns a fingerprint of each entry, and the error that ended reading;
/// `None` if the whole file was read.
fn read_entries(file: &[u8], chunk_len: usize) -> (Vec<u32>, Option<MovieError>) {
    let (mut reader, mut rest, mut entries) = (MovieReader::new(), file, Vec::new());
    loop {
        let taken = reader.push(&rest[..rest.len().min(chunk_len)]);
        rest = &rest[taken..];
        if rest.is_empty() {
            reader.end_input();
        }
        loop {
            match reader.poll() {
                Ok(Some(entry)) => entries.push(check_entry(&entry)),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.poll().err(), Some(error), "an error is permanent");
                    assert!(!error.to_string().is_empty());
                    return (entries, Some(error));
                }
            }
            // A short block stands for many frames, but not for more than it states.
            assert!(
                entries.len() <= (1 + file.len() / BLOCK_OVERHEAD) * (usize::from(MAX_BLOCK_FRAMES) + 1) + file.len()
            );
        }
        assert!(reader.memory() <= MAX_MEMORY + 2 * file.len(), "{} bytes", reader.memory());
        if rest.is_empty() {
            return (entries, None);
        }
    }
}

/// Checks an entry and returns a value that distinguishes it from most others.
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
