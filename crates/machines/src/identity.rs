//! Who a machine and a game are, so that sites can tell before they start whether they would play the same.

use coplay::hash::xxh64;
use coplay::session::{GameId, MAX_TEXT_LEN};
use sha2::{Digest, Sha256};

use crate::machine::Machine;

/// A game by its image. As much of the name is taken as travels.
pub fn game_id(name: &str, image: &[u8]) -> GameId {
    GameId { name: truncate_to_max_text(name).into(), hash: Sha256::digest(image).into() }
}

/// What a machine that has stepped no frame yet shows and computes in so many frames with no input, as one number. They are stepped;
/// [reset](MachineProfile::reset) the machine afterwards. Sound is left out: another processor may round it differently, and no game can tell.
pub fn first_frames_hash(machine: &mut dyn Machine, frames: u32) -> u64 {
    (0..frames).fold(0, |hash, _| {
        machine.step(&[], true);
        let picture = machine.picture();
        let size = [picture.width as u64, picture.height as u64, machine.hash()];
        let seen = xxh64(hash, machine.picture().rgba);
        size.iter().fold(seen, |hash, number| xxh64(hash, &number.to_le_bytes()))
    })
}

/// As much of a text as fits into settings.
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
