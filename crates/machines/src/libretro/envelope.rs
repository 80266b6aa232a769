//! Header in front of a core's state, added before the state leaves this crate.
//!
//! A core trusts the states that it loads, and a state may come from an untrusted peer. The header check rejects every
//! state that is of another machine or game, has another length than its header states, or is damaged.

use crate::machine::LoadError;

/// Length of the header in bytes: magic (4), version, kind, two zero bytes, and four numbers of eight bytes.
pub(super) const HEADER_LEN: usize = 40;

/// Maximum length of a core's state, without the header, in bytes.
pub(super) const MAX_STATE_LEN: usize = 64 << 20;

/// Maximum frame count of a state: 149,000 years at 60 frames per second.
const MAX_FRAMES: u64 = 1 << 48;

const MAGIC: [u8; 4] = *b"CPLR";
const VERSION: u8 = 1;

/// Contents of a wrapped state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateOrigin {
    /// No contents: the saved machine had stepped no frame. The machine that loads the state restarts.
    Initial = 0,
    /// State saved by the core.
    Saved = 1,
}

/// The fields of a header that a reader uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHeader {
    pub(super) kind: StateOrigin,
    /// Hash of machine id, game and frame rate. A state with another identity is rejected.
    pub(super) identity: u64,
    /// Frames stepped before the state was saved.
    pub(super) frames: u64,
}

fn checksum(kind: StateOrigin, frames: u64, body: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(body, frames << 1 | kind as u64)
}

/// Writes the header over the first [`HEADER_LEN`] bytes of `state`, which the body follows. Returns the checksum of
/// kind, frame count and body.
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

/// Splits a state into header, body and checksum. Fails if the state is damaged or has another identity, or if its body
/// or frame count exceeds the maximum.
pub(super) fn unseal(state: &[u8], identity: u64) -> Result<(StateHeader, &[u8], u64), LoadError> {
    let invalid = |reason: &str| Err(LoadError::InvalidState(reason.to_owned()));
    let Some((head, body)) = state.split_at_checked(HEADER_LEN) else { return invalid("it is too short") };
    if body.len() > MAX_STATE_LEN {
        return invalid("it is longer than 64 MiB");
    }
    let kind = match head[..8] {
        [b'C', b'P', b'L', b'R', VERSION, 0, 0, 0] => StateOrigin::Initial,
        [b'C', b'P', b'L', b'R', VERSION, 1, 0, 0] => StateOrigin::Saved,
        _ => return invalid("it is not a core's state that this version of coplay can read"),
    };
    let mut numbers = head[8..].chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().unwrap_or_default()));
    let [state_identity, frames, len, sum] = [(); 4].map(|()| numbers.next().unwrap_or_default());
    if state_identity != identity {
        return invalid("it is from another core, another version or other options of the core, or another game");
    }
    if len != body.len() as u64 || sum != checksum(kind, frames, body) {
        return invalid("it is damaged: its length or checksum is wrong");
    }
    if frames > MAX_FRAMES {
        return invalid("its frame count is too high");
    }
    Ok((StateHeader { kind, identity, frames }, body, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_state_is_rejected_if_any_byte_changes() {
        let header = StateHeader { kind: StateOrigin::Saved, identity: 7, frames: 3_000 };
        let mut state = vec![0; HEADER_LEN];
        state.extend_from_slice(b"body");
        let sum = seal(&mut state, header);
        assert_eq!(unseal(&state, 7), Ok((header, &b"body"[..], sum)));
        assert!(unseal(&state, 8).is_err());
        for at in 0..state.len() {
            state[at] ^= 1;
            assert!(unseal(&state, 7).is_err(), "byte {at}");
            assert!(unseal(&state[..at], 7).is_err(), "truncated at {at}");
            state[at] ^= 1;
        }
    }

    #[test]
    fn state_with_too_many_frames_is_rejected() {
        for (frames, fits) in [(MAX_FRAMES, true), (MAX_FRAMES + 1, false), (u64::MAX, false)] {
            let mut state = vec![0; HEADER_LEN];
            seal(&mut state, StateHeader { kind: StateOrigin::Saved, identity: 7, frames });
            assert_eq!(unseal(&state, 7).is_ok(), fits, "{frames}");
        }
    }
}
