//! The Noise handshake, message by message.

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::key::{Identity, PeerKey, Secret};

/// Noise pattern in which both sides prove their identity and that they know the secret. Without the secret no valid
/// handshake message can be made.
const NOISE_PATTERN: &str = "Noise_XXpsk0_25519_ChaChaPoly_BLAKE2s";
/// Prologue of the handshake, which states the protocol version: a handshake between different versions fails.
const PROLOGUE: &[u8] = b"coplay udp 1";

/// Length of the padding that makes the first message longer than its reply, in bytes.
pub(super) const FIRST_PADDING_LEN: usize = 64;

pub(super) struct Handshake(Box<HandshakeState>);

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "handshake")
    }
}

fn noise_builder<'a>(identity: &'a [u8; 32], secret: &'a Secret) -> Builder<'a> {
    let params: NoiseParams = NOISE_PATTERN.parse().expect("the pattern is supported");
    let builder = Builder::new(params).local_private_key(identity).and_then(|builder| builder.psk(0, secret.bytes()));
    builder.and_then(|builder| builder.prologue(PROLOGUE)).expect("each parameter is set once")
}

impl Handshake {
    /// Starts a handshake as the dialer. Returns the first message.
    pub(super) fn initiate(identity: &Identity, secret: &Secret) -> (Self, Vec<u8>) {
        let mut state = noise_builder(&identity.to_bytes(), secret).build_initiator().expect("all parameters are set");
        let mut first = vec![0; 128 + FIRST_PADDING_LEN];
        let len = state.write_message(&[0; FIRST_PADDING_LEN], &mut first).expect("there is room");
        first.truncate(len);
        (Self(Box::new(state)), first)
    }

    /// Answers a first message. Returns the second message, or `None` if the first is invalid, as it is if the dialer
    /// does not know the secret.
    pub(super) fn respond(identity: &Identity, secret: &Secret, first: &[u8]) -> Option<(Self, Vec<u8>)> {
        let mut state = noise_builder(&identity.to_bytes(), secret).build_responder().expect("all parameters are set");
        let mut buf = [0; 256];
        state.read_message(first, &mut buf).ok()?;
        let mut second = vec![0; 128];
        let len = state.write_message(&[], &mut second).ok()?;
        second.truncate(len);
        Some((Self(Box::new(state)), second))
    }

    /// Handles the second message. Returns the third, or `None` if the second is invalid; a valid second message may
    /// still arrive.
    pub(super) fn handle_second(&mut self, second: &[u8]) -> Option<Vec<u8>> {
        let mut buf = [0; 256];
        self.0.read_message(second, &mut buf).ok()?;
        let mut third = vec![0; 128];
        let len = self.0.write_message(&[], &mut third).ok()?;
        third.truncate(len);
        Some(third)
    }

    /// Handles the third message. Returns whether it is valid.
    pub(super) fn handle_third(&mut self, third: &[u8]) -> bool {
        self.0.read_message(third, &mut [0; 256]).is_ok()
    }

    /// Returns the keys of the channel and the peer's public key; `None` before all messages have been handled.
    pub(super) fn into_transport(self) -> Option<(StatelessTransportState, PeerKey)> {
        let peer = PeerKey(self.0.get_remote_static()?.try_into().ok()?);
        Some((self.0.into_stateless_transport_mode().ok()?, peer))
    }
}
