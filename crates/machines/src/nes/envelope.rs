//! Header in front of the bytes of a state, which identifies the game and detects damage.

use coplay::hash::xxh64;

/// Magic bytes at the start of the header. The last byte is the version of the layout.
const MAGIC: [u8; 5] = *b"CPNS\x01";
/// Offset of the halted flag.
const HALTED_OFFSET: usize = MAGIC.len();
/// Offset of the first eight bytes of the game hash.
const GAME_OFFSET: usize = HALTED_OFFSET + 1;
/// Offset of the checksum of halted flag and body.
const CHECKSUM_OFFSET: usize = GAME_OFFSET + 8;
/// Offset of the body: the length of the header.
const BODY_OFFSET: usize = CHECKSUM_OFFSET + 8;

/// Replaces the contents of `into` by a header and the body that `write` appends. `game` is the hash of the game.
pub(super) fn seal(into: &mut Vec<u8>, game: &[u8; 32], halted: bool, write: impl FnOnce(&mut Vec<u8>)) {
    into.clear();
    into.extend_from_slice(&MAGIC);
    into.push(u8::from(halted));
    into.extend_from_slice(&game[..CHECKSUM_OFFSET - GAME_OFFSET]);
    into.extend_from_slice(&[0; BODY_OFFSET - CHECKSUM_OFFSET]);
    write(into);
    let checksum = xxh64(u64::from(halted), &into[BODY_OFFSET..]);
    into[CHECKSUM_OFFSET..BODY_OFFSET].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks the header of a state. Returns the body and the halted flag; or the reason why `sealed` is longer than
/// `max_len` bytes or not a valid state of the game with the hash `game`.
pub(super) fn unseal<'a>(sealed: &'a [u8], game: &[u8; 32], max_len: usize) -> Result<(&'a [u8], bool), &'static str> {
    if sealed.len() > max_len {
        return Err("it is too long");
    }
    let (header, body) = sealed.split_at_checked(BODY_OFFSET).ok_or("it is too short")?;
    if !header.starts_with(&MAGIC) {
        return Err("it is not a state of the built-in NES that this version of coplay can read");
    }
    if header[GAME_OFFSET..CHECKSUM_OFFSET] != game[..CHECKSUM_OFFSET - GAME_OFFSET] {
        return Err("it is from another game");
    }
    let halted = header[HALTED_OFFSET];
    if halted > 1 || header[CHECKSUM_OFFSET..] != xxh64(u64::from(halted), body).to_le_bytes() {
        return Err("it is damaged: its checksum is wrong");
    }
    Ok((body, halted == 1))
}
