//! Identities of peers, and the secrets and tokens that admit peers to a session.

use std::fmt;

use argon2::{Algorithm, Argon2, Params, Version};
use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{KeyInit, Mac};
use serde::{Deserialize, Serialize};

/// Public key that identifies a peer: X25519 over UDP, Ed25519 over iroh.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PeerKey(pub [u8; 32]);

/// Private key of a peer; its holder can act as that peer.
#[derive(Clone)]
pub struct Identity {
    private: [u8; 32],
    public: PeerKey,
}

/// 256-bit key shared by all sites of a session, mesh or world, stretched from a secret text.
#[derive(Clone)]
pub struct Secret([u8; 32]);

/// Access token of an iroh ticket: 128 bits, random or derived from a [`Secret`]. Random tokens need no stretching,
/// because they cannot be found by trial.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 16]);

/// Memory used to stretch a secret, in KiB. Three passes over these 8 MiB take about 20 ms. A short secret stays weak
/// nevertheless.
const ARGON2_MEMORY_KIB: u32 = 8 * 1024;
/// Number of passes of Argon2id over [`ARGON2_MEMORY_KIB`] of memory.
const ARGON2_PASSES: u32 = 3;

/// Characters of a generated secret: lower-case letters and digits without `i`, `l`, `o`, `0` and `1`, which look
/// alike.
const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
/// Number of characters of a generated secret, which carry 79 bits.
const RANDOM_SECRET_LEN: usize = 16;

impl PeerKey {
    /// Returns the first 8 hexadecimal digits of the key, enough to distinguish peers in a message.
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

/// Returns `N` cryptographically secure random bytes.
///
/// # Panics
/// If the operating system has no source of random numbers: no key would be secure.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a source of random numbers");
    bytes
}

/// Returns the X25519 public key of a private key.
fn public_key(private: &[u8; 32]) -> [u8; 32] {
    use snow::resolvers::{CryptoResolver, DefaultResolver};
    let mut dh = DefaultResolver.resolve_dh(&snow::params::DHChoice::Curve25519).expect("the curve is built in");
    dh.set(private);
    dh.pubkey().try_into().expect("a public key has 32 bytes")
}

impl Identity {
    /// Generates an identity with a random private key.
    pub fn random() -> Self {
        Self::from_bytes(random_bytes())
    }

    /// Restores an identity from its private key and computes the public key.
    pub fn from_bytes(private: [u8; 32]) -> Self {
        Self { public: PeerKey(public_key(&private)), private }
    }

    /// Returns the private key, which must be stored where other users cannot read it.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.private
    }

    /// Returns the X25519 public key, by which other peers know this one over UDP. The iroh transport derives an
    /// Ed25519 key from the same private key instead.
    pub fn key(&self) -> PeerKey {
        self.public
    }
}

impl Secret {
    /// Stretches a typed text into a secret with Argon2id. Equal texts give equal secrets.
    ///
    /// # Panics
    /// Never: the parameters are valid.
    pub fn from_text(text: &str) -> Self {
        let params = Params::new(ARGON2_MEMORY_KIB, ARGON2_PASSES, 1, Some(32)).expect("valid parameters");
        let mut key = [0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(text.as_bytes(), b"coplay session secret", &mut key)
            .expect("valid lengths");
        Self(key)
    }

    /// Derives a 32-byte key for `purpose` (keyed BLAKE2s). All holders of the secret derive the same key.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut mac = <Blake2sMac<U32> as KeyInit>::new_from_slice(&self.0).expect("the key has 32 bytes");
        mac.update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }

    /// Generates the text of a secret: 16 characters that are easy to type, with 79 bits of entropy.
    pub fn random_text() -> String {
        let mut text = String::new();
        while text.len() < RANDOM_SECRET_LEN {
            // Byte values from the largest multiple of the alphabet's length on would favour some characters, so they
            // are skipped.
            let byte = random_bytes::<1>()[0];
            if usize::from(byte) < 256 / ALPHABET.len() * ALPHABET.len() {
                text.push(char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
            }
        }
        text
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Token {
    /// Generates a token of 128 random bits.
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// Derives the token for `purpose` that all holders of `secret` share.
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
