//! The Noise handshake, step by step.

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::key::{Identity, PeerKey, Secret};

/// Both sides show who they are, and that they know the secret, which nobody else could have made any of these messages without.
const NOISE_PATTERN: &str = "Noise_XXpsk0_25519_ChaChaPoly_BLAKE2s";
/// Another version of this protocol is another conversation.
const PROLOGUE: &[u8] = b"coplay udp 1";

/// The first message is at least as long as the answer.
pub(super) const FIRST_PADDING_LEN: usize = 64;

pub(super) struct Handshake(Box<HandshakeState>);

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a handshake")
    }
}

/// The public key of a private one.
pub(crate) fn public_key(private: &[u8; 32]) -> [u8; 32] {
    use snow::resolvers::{CryptoResolver, DefaultResolver};
    let mut dh = DefaultResolver.resolve_dh(&snow::params::DHChoice::Curve25519).expect("the curve is built in");
    dh.set(private);
    dh.pubkey().try_into().expect("a public key has 32 bytes")
}

fn noise_builder<'a>(identity: &'a [u8; 32], secret: &'a Secret) -> Builder<'a> {
    let params: NoiseParams = NOISE_PATTERN.parse().expect("a known pattern");
    let builder = Builder::new(params).local_private_key(identity).and_then(|builder| builder.psk(0, secret.bytes()));
    builder.and_then(|builder| builder.prologue(PROLOGUE)).expect("each is set once")
}

impl Handshake {
    /// The side that calls, with its first message.
    pub(super) fn initiate(identity: &Identity, secret: &Secret) -> (Self, Vec<u8>) {
        let mut state =
            noise_builder(&identity.to_bytes(), secret).build_initiator().expect("all is there that it needs");
        let mut first = vec![0; 128 + FIRST_PADDING_LEN];
        let len = state.write_message(&[0; FIRST_PADDING_LEN], &mut first).expect("there is room");
        first.truncate(len);
        (Self(Box::new(state)), first)
    }

    /// The side that is called, with its answer; `None` if the caller does not know the secret.
    pub(super) fn respond(identity: &Identity, secret: &Secret, first: &[u8]) -> Option<(Self, Vec<u8>)> {
        let mut state =
            noise_builder(&identity.to_bytes(), secret).build_responder().expect("all is there that it needs");
        let mut buf = [0; 256];
        state.read_message(first, &mut buf).ok()?;
        let mut second = vec![0; 128];
        let len = state.write_message(&[], &mut second).ok()?;
        second.truncate(len);
        Some((Self(Box::new(state)), second))
    }

    /// The caller takes the answer and gets the last message; `None` if that was no answer, which may still come.
    pub(super) fn handle_second(&mut self, second: &[u8]) -> Option<Vec<u8>> {
        let mut buf = [0; 256];
        self.0.read_message(second, &mut buf).ok()?;
        let mut third = vec![0; 128];
        let len = self.0.write_message(&[], &mut third).ok()?;
        third.truncate(len);
        Some(third)
    }

    /// The one who was called takes the last message; `false` if that was not it.
    pub(super) fn handle_third(&mut self, third: &[u8]) -> bool {
        self.0.read_message(third, &mut [0; 256]).is_ok()
    }

    /// The keys, and who is at the other end, once all messages are through.
    pub(super) fn into_transport(self) -> Option<(StatelessTransportState, PeerKey)> {
        let peer = PeerKey(self.0.get_remote_static()?.try_into().ok()?);
        Some((self.0.into_stateless_transport_mode().ok()?, peer))
    }
}
