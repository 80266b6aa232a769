//! Identities of machines and games, which sites compare before the game starts.

use coplay::hash::xxh64;
use coplay::session::{GameId, MAX_TEXT_LEN};
use sha2::{Digest, Sha256};

use crate::machine::Machine;

/// Returns the game id: `name`, truncated to [`MAX_TEXT_LEN`] bytes, and the SHA-256 hash of `image`.
pub fn game_id(name: &str, image: &[u8]) -> GameId {
    GameId { name: truncate_to_max_text(name).into(), hash: Sha256::digest(image).into() }
}

/// Steps a new machine for `frames` frames without input and returns a hash of its pictures and state hashes.
/// [Reset](Machine::reset) the machine afterwards. Sound is excluded: another processor may round samples differently,
/// and sound cannot affect the game.
pub fn first_frames_hash(machine: &mut dyn Machine, frames: u32) -> u64 {
    (0..frames).fold(0, |hash, _| {
        machine.step(&[], true);
        let picture = machine.picture();
        let size = [picture.width as u64, picture.height as u64, machine.hash()];
        let picture_hash = xxh64(hash, machine.picture().rgba);
        size.iter().fold(picture_hash, |hash, number| xxh64(hash, &number.to_le_bytes()))
    })
}

/// Truncates a text to [`MAX_TEXT_LEN`] bytes, at a character boundary.
pub(crate) fn truncate_to_max_text(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_LEN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_game_names_are_truncated_at_char_boundary() {
        let name = "é".repeat(MAX_TEXT_LEN);
        let id = game_id(&format!("a{name}"), b"image");
        assert_eq!(id.name, format!("a{}", "é".repeat((MAX_TEXT_LEN - 1) / 2)));
        assert_eq!(id.hash, game_id("other", b"image").hash);
        assert_ne!(id.hash, game_id("other", b"images").hash);
    }
}
