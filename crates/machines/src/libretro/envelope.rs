//! How a core's state is wrapped before it leaves this crate.
//!
//! A core trusts what it loads, and what is loaded may come from a stranger. The wrapping lets nothing through that is not a
//! state of this machine with this game and this length, undamaged.

use crate::machine::LoadError;

/// Bytes before the core's own.
pub(super) const HEADER_LEN: usize = 40;

/// The longest state of a core.
pub(super) const MAX_STATE_LEN: usize = 64 << 20;

/// The most frames that a state can be after: some hundred thousand years.
const MAX_FRAMES: u64 = 1 << 48;

const MAGIC: [u8; 4] = *b"CPLR";
const VERSION: u8 = 1;

/// What is in a wrapped state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    /// Nothing: the machine has stepped no frame, and is opened anew.
    Initial = 0,
    /// What the core saved.
    Saved = 1,
}

/// What is said of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHeader {
    pub(super) kind: StateKind,
    /// Of machine and game.
    pub(super) identity: u64,
    /// Frames stepped.
    pub(super) frames: u64,
}

fn checksum(kind: StateKind, frames: u64, body: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(body, frames << 1 | kind as u64)
}

/// Writes the header over the first bytes of `state`, which the body follows. Gives the checksum.
pub(super) fn seal(state: &mut [u8], header: StateHeader) -> u64 {
    let (head, body) = state.split_at_mut(HEADER_LEN);
    let sum = checksum(header.kind, header.frames, body);
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&[VERSION, header.kind as u8, 0, 0]);
    let numbers = [header.identity, header.frames, body.len() as u64, sum];
    for (field, number) in head[8..].chunks_exact_mut(8).zip(numbers) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    sum
}

/// Takes a state apart: header, body and checksum.
pub(super) fn unseal(state: &[u8], identity: u64) -> Result<(StateHeader, &[u8], u64), LoadError> {
    let unfit = |why: &str| Err(LoadError::InvalidState(why.to_owned()));
    let Some((head, body)) = state.split_at_checked(HEADER_LEN) else { return unfit("it is too short") };
    if body.len() > MAX_STATE_LEN {
        return unfit("it is too long");
    }
    let kind = match head[..8] {
        [b'C', b'P', b'L', b'R', VERSION, 0, 0, 0] => StateKind::Initial,
        [b'C', b'P', b'L', b'R', VERSION, 1, 0, 0] => StateKind::Saved,
        _ => return unfit("it does not begin like one"),
    };
    let mut numbers = head[8..].chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().unwrap_or_default()));
    let [whose, frames, len, sum] = [(); 4].map(|()| numbers.next().unwrap_or_default());
    if whose != identity {
        return unfit("it is of another machine or game");
    }
    if len != body.len() as u64 || sum != checksum(kind, frames, body) {
        return unfit("it is damaged");
    }
    if frames > MAX_FRAMES {
        return unfit("nobody has played for so long");
    }
    Ok((StateHeader { kind, identity, frames }, body, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_state_is_rejected_if_any_byte_changes() {
        let header = StateHeader { kind: StateKind::Saved, identity: 7, frames: 3_000 };
        let mut state = vec![0; HEADER_LEN];
        state.extend_from_slice(b"body");
        let sum = seal(&mut state, header);
        assert_eq!(unseal(&state, 7), Ok((header, &b"body"[..], sum)));
        assert!(unseal(&state, 8).is_err());
        for at in 0..state.len() {
            state[at] ^= 1;
            assert!(unseal(&state, 7).is_err(), "byte {at}");
            assert!(unseal(&state[..at], 7).is_err(), "cut at {at}");
            state[at] ^= 1;
        }
    }

    #[test]
    fn state_with_too_many_frames_is_rejected() {
        for (frames, fits) in [(MAX_FRAMES, true), (MAX_FRAMES + 1, false), (u64::MAX, false)] {
            let mut state = vec![0; HEADER_LEN];
            seal(&mut state, StateHeader { kind: StateKind::Saved, identity: 7, frames });
            assert_eq!(unseal(&state, 7).is_ok(), fits, "{frames}");
        }
    }
}
