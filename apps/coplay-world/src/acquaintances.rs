//! Who is there, and not a recording.
//!
//! Whoever can reach servers can write down what they say, sealed as it is, and say it again later. So everybody draws a number and
//! tells it with its greetings, and says those of others back. Whose run has said our number back lives, or lived when we did; only that is
//! listened to, and of its messages each is taken once, in order.

use std::collections::{BTreeMap, VecDeque};

use coplay_net::key::random_bytes;
use coplay_world::{Hello, MAX_HEARD, Nonce};

use crate::seal::Speaker;

/// Runs that are remembered. If there were more we are another one to all of them, and they must find out: what was recorded says nothing then.
const MAX_RUNS: usize = 1_024;

/// Who is there.
pub struct Acquaintances {
    nonce: Nonce,
    /// What others drew, the newest first.
    heard: VecDeque<Nonce>,
    /// Runs that said our number back, and the last message of each.
    trusted: BTreeMap<Speaker, u64>,
    /// Somebody waits for its number to be said back.
    is_awaited: bool,
}

/// How somebody stands to us who says that it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It said our number back.
    Known,
    /// It is to hear its number first.
    New,
}

impl Default for Acquaintances {
    fn default() -> Self {
        Self { nonce: random_bytes(), heard: VecDeque::new(), trusted: BTreeMap::new(), is_awaited: false }
    }
}

impl Acquaintances {
    /// Somebody says that it is there; `None` if that is nothing new of somebody of whom we cannot know.
    pub fn on_hello(&mut self, from: Speaker, number: u64, hello: &Hello) -> Option<Standing> {
        let is_new = self.note(hello.nonce);
        if !self.trusted.contains_key(&from) && hello.heard.contains(&self.nonce) {
            self.trust(from);
        }
        if self.trusted.contains_key(&from) {
            return self.takes(from, number).then_some(Standing::Known);
        }
        is_new.then_some(Standing::New)
    }

    /// Whether a message is to be listened to: it is of somebody who is there, and was not taken before.
    pub fn takes(&mut self, from: Speaker, number: u64) -> bool {
        let Some(last) = self.trusted.get_mut(&from).filter(|last| **last < number) else { return false };
        *last = number;
        true
    }

    /// What is to be said of numbers: ours, and those of others.
    pub fn numbers(&mut self) -> (Nonce, Vec<Nonce>) {
        self.is_awaited = false;
        (self.nonce, self.heard.iter().copied().collect())
    }

    /// Whether somebody waits for its number to be said back.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Whether a number was not heard before.
    fn note(&mut self, nonce: Nonce) -> bool {
        let is_new = !self.heard.contains(&nonce);
        if is_new {
            self.heard.truncate(MAX_HEARD - 1);
            self.heard.push_front(nonce);
            self.is_awaited = true;
        }
        is_new
    }

    fn trust(&mut self, from: Speaker) {
        if self.trusted.len() < MAX_RUNS {
            self.trusted.insert(from, 0);
        } else {
            self.trusted.clear();
            self.nonce = random_bytes();
            self.is_awaited = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{Opener, Sealer, Topic};
    use coplay::mirror::SourceId;
    use coplay_maze::Terms;
    use coplay_net::key::Secret;
    use coplay_world::Greeting;
    use std::sync::LazyLock;

    /// A server without a network.
    struct Server {
        sealer: Sealer,
        opener: Opener,
        known: Acquaintances,
    }

    impl Server {
        fn new(source: u32) -> Self {
            // What it comes to takes long on purpose.
            static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::from_text("one"));
            let secret = SECRET.clone();
            let sealer = Sealer::new(&secret, SourceId(source));
            Self { sealer, opener: Opener::new(&secret), known: Acquaintances::default() }
        }

        fn greet(&mut self) -> Vec<u8> {
            let (nonce, heard) = self.known.numbers();
            let greeting = Greeting { terms: Terms::default(), ninjas: 0, drains: false, places: vec![] };
            self.sealer.seal(Topic::Hello, &Hello { nonce, heard, greeting }.to_bytes())
        }

        fn meet(&mut self, said: &[u8]) -> Option<Standing> {
            let opened = self.opener.open(Topic::Hello, said)?;
            self.known.on_hello(opened.from, opened.number, &Hello::from_bytes(&opened.content)?)
        }

        fn say(&mut self) -> Vec<u8> {
            self.sealer.seal(Topic::All, b"a ghost walks")
        }

        fn listens(&mut self, said: &[u8]) -> bool {
            self.opener.open(Topic::All, said).is_some_and(|opened| self.known.takes(opened.from, opened.number))
        }
    }

    #[test]
    fn two_know_each_other_after_three_greetings_and_listen_to_each_message_once() {
        let (mut one, mut other) = (Server::new(1), Server::new(2));
        assert!(!other.listens(&one.say()), "it was not introduced");
        assert_eq!(other.meet(&one.greet()), Some(Standing::New));
        assert!(other.known.is_awaited());
        assert_eq!(one.meet(&other.greet()), Some(Standing::Known));
        assert_eq!(other.meet(&one.greet()), Some(Standing::Known));
        let said = [one.say(), one.say()];
        assert_eq!([1, 1, 0].map(|at: usize| other.listens(&said[at])), [true, false, false]);
        assert_eq!(one.meet(&other.greet()), Some(Standing::Known), "also when there is nothing new");
    }

    #[test]
    fn a_recording_is_not_believed() {
        let (mut one, mut other) = (Server::new(1), Server::new(2));
        let mut record = vec![one.greet(), other.greet()];
        one.meet(&record[1]);
        other.meet(&record[0]);
        for _ in 0..3 {
            record.extend([one.greet(), other.greet(), one.say()]);
            let [.., first, second, _] = &record[..] else { unreachable!("there are as many") };
            assert_eq!((other.meet(first), one.meet(second)), (Some(Standing::Known), Some(Standing::Known)));
        }
        let mut late = Server::new(3);
        for said in &record {
            assert!(late.meet(said) != Some(Standing::Known) && !late.listens(said));
        }
        assert!(record.iter().all(|said| late.meet(said).is_none()), "nobody is greeted for an old story");
    }

    #[test]
    fn after_many_runs_an_old_acquaintance_must_be_made_again() {
        let (mut here, mut one) = (Server::new(0), Server::new(1));
        one.meet(&here.greet());
        let old = [one.greet(), one.say()];
        assert_eq!(here.meet(&old[0]), Some(Standing::Known));
        for run in 1..=MAX_RUNS as u32 {
            let mut other = Server::new(1 + run);
            other.meet(&here.greet());
            here.meet(&other.greet());
        }
        assert!(here.known.trusted.len() <= MAX_RUNS && here.known.is_awaited());
        assert!(here.meet(&old[0]) != Some(Standing::Known) && !here.listens(&old[1]), "it was recorded");
        one.meet(&here.greet());
        assert_eq!(here.meet(&one.greet()), Some(Standing::Known));
    }
}
