//! What is around the bytes of a state: enough to know at once whether they are one of this game, and whole.

use coplay::hash::xxh64;

/// A state begins with what it is, and the version of its layout.
const MAGIC: [u8; 5] = *b"CPNS\x01";
/// Then come whether the machine stands still, the game, and a checksum of what follows.
const HALTED_OFFSET: usize = MAGIC.len();
const GAME_OFFSET: usize = HALTED_OFFSET + 1;
const CHECKSUM_OFFSET: usize = GAME_OFFSET + 8;
/// Then comes the state itself.
const BODY_OFFSET: usize = CHECKSUM_OFFSET + 8;

/// Puts a state into `into`: `write` appends the state itself.
pub(super) fn seal(into: &mut Vec<u8>, game: &[u8; 32], stopped: bool, write: impl FnOnce(&mut Vec<u8>)) {
    into.clear();
    into.extend_from_slice(&MAGIC);
    into.push(u8::from(stopped));
    into.extend_from_slice(&game[..CHECKSUM_OFFSET - GAME_OFFSET]);
    into.extend_from_slice(&[0; BODY_OFFSET - CHECKSUM_OFFSET]);
    write(into);
    let checksum = xxh64(u64::from(stopped), &into[BODY_OFFSET..]);
    into[CHECKSUM_OFFSET..BODY_OFFSET].copy_from_slice(&checksum.to_le_bytes());
}

/// The state itself and whether the machine stands still in it, or why this is none of this game.
pub(super) fn unseal<'a>(sealed: &'a [u8], game: &[u8; 32], longest: usize) -> Result<(&'a [u8], bool), &'static str> {
    if sealed.len() > longest {
        return Err("it is too long");
    }
    let (header, body) = sealed.split_at_checked(BODY_OFFSET).ok_or("it is too short")?;
    if !header.starts_with(&MAGIC) {
        return Err("it is not of this kind of machine, or of another version");
    }
    if header[GAME_OFFSET..CHECKSUM_OFFSET] != game[..CHECKSUM_OFFSET - GAME_OFFSET] {
        return Err("it is of another game");
    }
    let stopped = header[HALTED_OFFSET];
    if stopped > 1 || header[CHECKSUM_OFFSET..] != xxh64(u64::from(stopped), body).to_le_bytes() {
        return Err("it is damaged");
    }
    Ok((body, stopped == 1))
}
