//! Replay protection: distinguishes live servers from recordings.
//!
//! An attacker who can reach servers can record their sealed messages and replay them later. So every server run draws
//! a nonce, sends it with its hellos, and echoes the nonces of others. A run that has echoed our nonce was live after
//! this server drew it. Only messages of such runs are accepted, each once and in order. Of other runs only the nonces
//! in their hellos are used, to echo them.

use std::collections::{BTreeMap, VecDeque};

use coplay_net::key::random_bytes;
use coplay_world::{MAX_ECHOED_NONCES, Nonce, ServerHello};

use crate::seal::ServerRun;

/// Largest number of verified runs. Beyond it this server forgets all runs and draws a new nonce, so that the runs must
/// be verified again, and hellos that echo the old nonce prove nothing.
const MAX_VERIFIED_RUNS: usize = 1_024;

/// Replay protection of one server: its nonce, and the server runs that have proven to be live.
pub struct ReplayGuard {
    nonce: Nonce,
    /// Nonces received from other servers, newest first; at most [`MAX_ECHOED_NONCES`].
    received_nonces: VecDeque<Nonce>,
    /// Runs that echoed our nonce, with the number of the last accepted message of each.
    verified_runs: BTreeMap<ServerRun, u64>,
    /// Whether a received nonce has not been echoed yet, or our own nonce was replaced and not sent yet.
    is_echo_pending: bool,
}

/// Whether the server run that sent a hello is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloStatus {
    /// The run has echoed our nonce, so it is live.
    Verified,
    /// The run has not echoed our nonce yet. Our next hello echoes its nonce and carries ours.
    Unverified,
}

impl Default for ReplayGuard {
    fn default() -> Self {
        Self {
            nonce: random_bytes(),
            received_nonces: VecDeque::new(),
            verified_runs: BTreeMap::new(),
            is_echo_pending: false,
        }
    }
}

impl ReplayGuard {
    /// Processes a hello of a server run: stores the run's nonce, and verifies the run if the hello echoes our nonce.
    /// Returns `None` if the hello of a verified run is not newer than the last accepted message of that run, or if an
    /// unverified run brings no new nonce.
    pub fn on_hello(&mut self, from: ServerRun, number: u64, hello: &ServerHello) -> Option<HelloStatus> {
        let is_new = self.record_nonce(hello.nonce);
        if !self.verified_runs.contains_key(&from) && hello.echoed_nonces.contains(&self.nonce) {
            self.verify(from);
        }
        if self.verified_runs.contains_key(&from) {
            return self.accept(from, number).then_some(HelloStatus::Verified);
        }
        is_new.then_some(HelloStatus::Unverified)
    }

    /// Returns whether to accept a message: if its run is verified, and its number is higher than that of the last
    /// accepted message of the run. Records the number of an accepted message.
    pub fn accept(&mut self, from: ServerRun, number: u64) -> bool {
        let Some(last) = self.verified_runs.get_mut(&from).filter(|last| **last < number) else { return false };
        *last = number;
        true
    }

    /// Returns our nonce and the nonces to echo, for the hello that is sent next. After that no echo is pending.
    pub fn nonces_to_send(&mut self) -> (Nonce, Vec<Nonce>) {
        self.is_echo_pending = false;
        (self.nonce, self.received_nonces.iter().copied().collect())
    }

    /// Returns whether a nonce waits to be sent, so that the next hello is due sooner.
    pub fn is_echo_pending(&self) -> bool {
        self.is_echo_pending
    }

    /// Stores a nonce for echoing. Returns whether it is new.
    fn record_nonce(&mut self, nonce: Nonce) -> bool {
        let is_new = !self.received_nonces.contains(&nonce);
        if is_new {
            self.received_nonces.truncate(MAX_ECHOED_NONCES - 1);
            self.received_nonces.push_front(nonce);
            self.is_echo_pending = true;
        }
        is_new
    }

    fn verify(&mut self, from: ServerRun) {
        if self.verified_runs.len() < MAX_VERIFIED_RUNS {
            self.verified_runs.insert(from, 0);
        } else {
            self.verified_runs.clear();
            self.nonce = random_bytes();
            self.is_echo_pending = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{ServerOpener, ServerSealer, Topic};
    use coplay::mirror::SourceId;
    use coplay_maze::MazeSettings;
    use coplay_net::key::Secret;
    use coplay_world::ServerInfo;
    use std::sync::LazyLock;

    /// Sealer, opener and replay guard of a server without a network. The tests pass messages by function calls.
    struct TestServer {
        sealer: ServerSealer,
        opener: ServerOpener,
        guard: ReplayGuard,
    }

    impl TestServer {
        fn new(source: u32) -> Self {
            // Deriving the key is slow on purpose.
            static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::from_text("one"));
            let secret = SECRET.clone();
            let sealer = ServerSealer::new(&secret, SourceId(source));
            Self { sealer, opener: ServerOpener::new(&secret), guard: ReplayGuard::default() }
        }

        fn sealed_hello(&mut self) -> Vec<u8> {
            let (nonce, echoed_nonces) = self.guard.nonces_to_send();
            let info = ServerInfo {
                settings: MazeSettings::default(),
                ninja_count: 0,
                is_draining: false,
                player_addrs: vec![],
            };
            self.sealer.seal(Topic::Hello, &ServerHello { nonce, echoed_nonces, info }.to_bytes())
        }

        fn on_hello(&mut self, sealed: &[u8]) -> Option<HelloStatus> {
            let opened = self.opener.open(Topic::Hello, sealed)?;
            self.guard.on_hello(opened.from, opened.sequence, &ServerHello::from_bytes(&opened.payload)?)
        }

        fn sealed_message(&mut self) -> Vec<u8> {
            self.sealer.seal(Topic::All, b"a message")
        }

        fn accepts(&mut self, sealed: &[u8]) -> bool {
            self.opener.open(Topic::All, sealed).is_some_and(|opened| self.guard.accept(opened.from, opened.sequence))
        }
    }

    #[test]
    fn servers_verify_each_other_in_three_hellos_and_accept_each_message_once() {
        let (mut one, mut other) = (TestServer::new(1), TestServer::new(2));
        assert!(!other.accepts(&one.sealed_message()), "a message of an unverified run is accepted");
        assert_eq!(other.on_hello(&one.sealed_hello()), Some(HelloStatus::Unverified));
        assert!(other.guard.is_echo_pending());
        assert_eq!(one.on_hello(&other.sealed_hello()), Some(HelloStatus::Verified));
        assert_eq!(other.on_hello(&one.sealed_hello()), Some(HelloStatus::Verified));
        let sealed = [one.sealed_message(), one.sealed_message()];
        assert_eq!([1, 1, 0].map(|at: usize| other.accepts(&sealed[at])), [true, false, false]);
        assert_eq!(
            one.on_hello(&other.sealed_hello()),
            Some(HelloStatus::Verified),
            "a hello without a new nonce is rejected"
        );
    }

    #[test]
    fn replayed_messages_are_rejected() {
        let (mut one, mut other) = (TestServer::new(1), TestServer::new(2));
        let mut recording = vec![one.sealed_hello(), other.sealed_hello()];
        one.on_hello(&recording[1]);
        other.on_hello(&recording[0]);
        for _ in 0..3 {
            recording.extend([one.sealed_hello(), other.sealed_hello(), one.sealed_message()]);
            let [.., first, second, _] = &recording[..] else {
                unreachable!("the recording has three messages or more")
            };
            assert_eq!(
                (other.on_hello(first), one.on_hello(second)),
                (Some(HelloStatus::Verified), Some(HelloStatus::Verified))
            );
        }
        let mut late_joiner = TestServer::new(3);
        for sealed in &recording {
            assert!(late_joiner.on_hello(sealed) != Some(HelloStatus::Verified) && !late_joiner.accepts(sealed));
        }
        assert!(recording.iter().all(|sealed| late_joiner.on_hello(sealed).is_none()), "an old nonce counts as new");
    }

    #[test]
    fn evicted_run_must_be_verified_again() {
        let (mut guarded, mut one) = (TestServer::new(0), TestServer::new(1));
        one.on_hello(&guarded.sealed_hello());
        let old = [one.sealed_hello(), one.sealed_message()];
        assert_eq!(guarded.on_hello(&old[0]), Some(HelloStatus::Verified));
        for run in 1..=MAX_VERIFIED_RUNS as u32 {
            let mut other = TestServer::new(1 + run);
            other.on_hello(&guarded.sealed_hello());
            guarded.on_hello(&other.sealed_hello());
        }
        assert!(guarded.guard.verified_runs.len() <= MAX_VERIFIED_RUNS && guarded.guard.is_echo_pending());
        let is_verified = guarded.on_hello(&old[0]) == Some(HelloStatus::Verified);
        assert!(!is_verified && !guarded.accepts(&old[1]), "a recording is accepted");
        one.on_hello(&guarded.sealed_hello());
        assert_eq!(guarded.on_hello(&one.sealed_hello()), Some(HelloStatus::Verified));
    }
}
