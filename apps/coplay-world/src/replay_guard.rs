//! Who is there, and not a recording.
//!
//! Whoever can reach servers can write down what they say, sealed as it is, and say it again later. So everybody draws a number and
//! tells it with its greetings, and says those of others back. Whose run has said our number back lives, or lived when we did; only that is
//! listened to, and of its messages each is taken once, in order.

use std::collections::{BTreeMap, VecDeque};

use coplay_net::key::random_bytes;
use coplay_world::{MAX_ECHOED_NONCES, Nonce, ServerHello};

use crate::seal::ServerRun;

/// Runs that are remembered. If there were more we are another one to all of them, and they must find out: what was recorded says nothing then.
const MAX_VERIFIED_RUNS: usize = 1_024;

/// Who is there.
pub struct ReplayGuard {
    nonce: Nonce,
    /// What others drew, the newest first.
    received_nonces: VecDeque<Nonce>,
    /// Runs that said our number back, and the last message of each.
    verified_runs: BTreeMap<ServerRun, u64>,
    /// Somebody waits for its number to be said back.
    is_echo_pending: bool,
}

/// How somebody stands to us who says that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloStatus {
    /// It said our number back.
    Verified,
    /// It is to hear its number first.
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
    /// Somebody says that it is there; `None` if that is nothing new of somebody of whom we cannot know.
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

    /// Whether a message is to be listened to: it is of somebody who is there, and was not taken before.
    pub fn accept(&mut self, from: ServerRun, number: u64) -> bool {
        let Some(last) = self.verified_runs.get_mut(&from).filter(|last| **last < number) else { return false };
        *last = number;
        true
    }

    /// What is to be said of numbers: ours, and those of others.
    pub fn nonces_to_send(&mut self) -> (Nonce, Vec<Nonce>) {
        self.is_echo_pending = false;
        (self.nonce, self.received_nonces.iter().copied().collect())
    }

    /// Whether somebody waits for its number to be said back.
    pub fn is_echo_pending(&self) -> bool {
        self.is_echo_pending
    }

    /// Whether a number was not heard before.
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
    use crate::seal::{Opener, Sealer, Topic};
    use coplay::mirror::SourceId;
    use coplay_maze::MazeSettings;
    use coplay_net::key::Secret;
    use coplay_world::ServerInfo;
    use std::sync::LazyLock;

    /// A server without a network.
    struct TestServer {
        sealer: Sealer,
        opener: Opener,
        guard: ReplayGuard,
    }

    impl TestServer {
        fn new(source: u32) -> Self {
            // What it comes to takes long on purpose.
            static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::from_text("one"));
            let secret = SECRET.clone();
            let sealer = Sealer::new(&secret, SourceId(source));
            Self { sealer, opener: Opener::new(&secret), guard: ReplayGuard::default() }
        }

        fn sealed_hello(&mut self) -> Vec<u8> {
            let (nonce, heard) = self.guard.nonces_to_send();
            let greeting = ServerInfo {
                settings: MazeSettings::default(),
                ninja_count: 0,
                is_draining: false,
                player_addrs: vec![],
            };
            self.sealer.seal(Topic::Hello, &ServerHello { nonce, echoed_nonces: heard, info: greeting }.to_bytes())
        }

        fn on_hello(&mut self, said: &[u8]) -> Option<HelloStatus> {
            let opened = self.opener.open(Topic::Hello, said)?;
            self.guard.on_hello(opened.from, opened.sequence, &ServerHello::from_bytes(&opened.payload)?)
        }

        fn sealed_message(&mut self) -> Vec<u8> {
            self.sealer.seal(Topic::All, b"a ghost walks")
        }

        fn accepts(&mut self, said: &[u8]) -> bool {
            self.opener.open(Topic::All, said).is_some_and(|opened| self.guard.accept(opened.from, opened.sequence))
        }
    }

    #[test]
    fn servers_verify_each_other_in_three_hellos_and_accept_each_message_once() {
        let (mut one, mut other) = (TestServer::new(1), TestServer::new(2));
        assert!(!other.accepts(&one.sealed_message()), "it was not introduced");
        assert_eq!(other.on_hello(&one.sealed_hello()), Some(HelloStatus::Unverified));
        assert!(other.guard.is_echo_pending());
        assert_eq!(one.on_hello(&other.sealed_hello()), Some(HelloStatus::Verified));
        assert_eq!(other.on_hello(&one.sealed_hello()), Some(HelloStatus::Verified));
        let said = [one.sealed_message(), one.sealed_message()];
        assert_eq!([1, 1, 0].map(|at: usize| other.accepts(&said[at])), [true, false, false]);
        assert_eq!(one.on_hello(&other.sealed_hello()), Some(HelloStatus::Verified), "also when there is nothing new");
    }

    #[test]
    fn replayed_messages_are_rejected() {
        let (mut one, mut other) = (TestServer::new(1), TestServer::new(2));
        let mut record = vec![one.sealed_hello(), other.sealed_hello()];
        one.on_hello(&record[1]);
        other.on_hello(&record[0]);
        for _ in 0..3 {
            record.extend([one.sealed_hello(), other.sealed_hello(), one.sealed_message()]);
            let [.., first, second, _] = &record[..] else { unreachable!("there are as many") };
            assert_eq!(
                (other.on_hello(first), one.on_hello(second)),
                (Some(HelloStatus::Verified), Some(HelloStatus::Verified))
            );
        }
        let mut late = TestServer::new(3);
        for said in &record {
            assert!(late.on_hello(said) != Some(HelloStatus::Verified) && !late.accepts(said));
        }
        assert!(record.iter().all(|said| late.on_hello(said).is_none()), "nobody is greeted for an old story");
    }

    #[test]
    fn evicted_run_must_be_verified_again() {
        let (mut here, mut one) = (TestServer::new(0), TestServer::new(1));
        one.on_hello(&here.sealed_hello());
        let old = [one.sealed_hello(), one.sealed_message()];
        assert_eq!(here.on_hello(&old[0]), Some(HelloStatus::Verified));
        for run in 1..=MAX_VERIFIED_RUNS as u32 {
            let mut other = TestServer::new(1 + run);
            other.on_hello(&here.sealed_hello());
            here.on_hello(&other.sealed_hello());
        }
        assert!(here.guard.verified_runs.len() <= MAX_VERIFIED_RUNS && here.guard.is_echo_pending());
        assert!(here.on_hello(&old[0]) != Some(HelloStatus::Verified) && !here.accepts(&old[1]), "it was recorded");
        one.on_hello(&here.sealed_hello());
        assert_eq!(here.on_hello(&one.sealed_hello()), Some(HelloStatus::Verified));
    }
}
