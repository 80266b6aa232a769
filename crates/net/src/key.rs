//! Who somebody is, and what a group shares.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{KeyInit, Mac};
use serde::{Deserialize, Serialize};

/// A peer, by its public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerKey(pub [u8; 32]);

/// A private key: whoever has it is that peer.
#[derive(Clone)]
pub struct Identity {
    private: [u8; 32],
    public: PeerKey,
}

/// What everybody in a group knows and nobody else does.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// What a ticket lets its holder in with: too long to be guessed, and so not stretched.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 16]);

/// Work that goes into a secret before it is a key: 8 MiB, three times over, some 20 ms. A short secret is still a weak one.
const ARGON2_MEMORY_KIB: u32 = 8 * 1024;
const ARGON2_PASSES: u32 = 3;

/// Characters of a secret that is made up: without those that look alike. 16 of them are 79 bits.
const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
const RANDOM_SECRET_LEN: usize = 16;

impl PeerKey {
    /// The first characters, enough to tell peers apart in a message.
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.short())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "identity of {:?}", self.public)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "secret")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token")
    }
}

/// Numbers that nobody can guess.
///
/// # Panics
/// If the operating system has none, which is no system to be safe on.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

impl Identity {
    /// A new one.
    pub fn random() -> Self {
        Self::from_bytes(random_bytes())
    }

    /// The one whose private key this is.
    pub fn from_bytes(private: [u8; 32]) -> Self {
        Self { public: PeerKey(crate::udp::public_key(&private)), private }
    }

    /// The private key, to be kept where others cannot read it.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.private
    }

    /// What others know us by.
    pub fn key(&self) -> PeerKey {
        self.public
    }
}

impl Secret {
    /// The secret that a text stands for.
    ///
    /// # Panics
    /// Never: the parameters are sound.
    pub fn from_text(text: &str) -> Self {
        let params = Params::new(ARGON2_MEMORY_KIB, ARGON2_PASSES, 1, Some(32)).expect("sound parameters");
        let mut key = [0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(text.as_bytes(), b"coplay session secret", &mut key)
            .expect("sound lengths");
        Self(key)
    }

    /// A key for something else that all who know the secret share.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut mac = <Blake2sMac<U32> as KeyInit>::new_from_slice(&self.0).expect("a key of 32 bytes");
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// A text that is hard to guess and easy to type.
    pub fn random_text() -> String {
        let mut text = String::new();
        while text.len() < RANDOM_SECRET_LEN {
            // What is left of 256 after the last whole alphabet would favour some characters.
            let fair = random_bytes::<1>()[0];
            if usize::from(fair) < 256 / ALPHABET.len() * ALPHABET.len() {
                text.push(char::from(ALPHABET[usize::from(fair) % ALPHABET.len()]));
            }
        }
        text
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Token {
    /// A new one.
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// One that all who know a secret have, for one purpose.
    pub fn from_secret(secret: &Secret, purpose: &str) -> Self {
        let derived = secret.derive(purpose);
        Self(std::array::from_fn(|at| derived[at]))
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_key_is_restored_from_private_key() {
        let (one, other) = (Identity::random(), Identity::random());
        assert_ne!(one.key(), other.key());
        assert_eq!(Identity::from_bytes(one.to_bytes()).key(), one.key());
    }

    #[test]
    fn secret_is_derived_from_text() {
        assert_eq!(Secret::from_text("tennis").bytes(), Secret::from_text("tennis").bytes());
        assert_ne!(Secret::from_text("tennis").bytes(), Secret::from_text("Tennis").bytes());
    }

    #[test]
    fn random_secret_has_only_typeable_characters() {
        let text = Secret::random_text();
        assert!(text.len() == RANDOM_SECRET_LEN && text.bytes().all(|byte| ALPHABET.contains(&byte)), "{text}");
        assert_ne!(text, Secret::random_text());
    }
}
