use super::*;
use crate::udp::MAX_SEALED;

/// Two endpoints and a wire that somebody listens to.
struct Pair {
    ends: [Endpoint; 2],
    addrs: [SocketAddr; 2],
    now: Instant,
    /// Everything that was sent: from whom, to whom, what.
    heard: Vec<(usize, SocketAddr, Vec<u8>)>,
    /// What arrived, by receiver.
    got: [Vec<Vec<u8>>; 2],
    events: [Vec<Event>; 2],
    /// So many times somebody else answers with a cookie before the one who is called can.
    forged: usize,
    /// Which datagrams are lost, by how many were sent before.
    lost: fn(usize) -> bool,
}

fn addr(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number))
}

fn secret(text: &str) -> Secret {
    Secret::from_text(text)
}

impl Pair {
    fn new() -> Self {
        Self::with_secrets("tennis", "tennis")
    }

    fn with_secrets(one: &str, other: &str) -> Self {
        Self {
            ends: [one, other].map(|text| Endpoint::new(Identity::random(), secret(text))),
            addrs: [addr(1), addr(2)],
            now: Instant::from_nanos(1_000_000_000),
            heard: Vec::new(),
            got: Default::default(),
            events: Default::default(),
            forged: 0,
            lost: |_| false,
        }
    }

    fn key(&self, end: usize) -> PeerKey {
        self.ends[end].key()
    }

    fn call(&mut self) {
        self.ends[0].call(self.now, self.addrs[1], None);
        self.run(TimeDelta::from_secs(2));
    }

    fn run(&mut self, time: TimeDelta) {
        let until = self.now + time;
        while self.now < until {
            for end in 0..2 {
                self.ends[end].handle_timeout(self.now);
                while let Some((to, bytes)) = self.ends[end].poll_transmit() {
                    self.send(end, to, bytes);
                }
                let Self { ends, events, .. } = self;
                events[end].extend(std::iter::from_fn(|| ends[end].poll_event()));
            }
            self.now += TimeDelta::from_millis(10);
        }
    }

    fn send(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let lost = (self.lost)(self.heard.len());
        self.heard.push((from, to, bytes.clone()));
        if self.forged > 0 && bytes[0] == HELLO {
            self.forged -= 1;
            self.arrive(from, to, &[&[COOKIE][..], &bytes[1..5], &[7; COOKIE_LEN]].concat());
        }
        if let Some(end) = self.addrs.iter().position(|addr| *addr == to).filter(|_| !lost) {
            self.arrive(end, self.addrs[from], &bytes);
        }
    }

    fn arrive(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let mut out = [0; MAX_SEALED];
        if let Received::Data { from, len } = self.ends[end].handle_datagram(self.now, from, bytes, &mut out) {
            assert_eq!(from, self.key(1 - end));
            self.got[end].push(out[..len].to_vec());
        }
    }

    /// A datagram as it would leave.
    fn sealed(&self, from: usize, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
        let channel = self.ends[from].channel(&self.key(1 - from)).expect("there is a channel");
        let mut out = vec![0; MAX_SEALED];
        let len = channel.seal(bytes, &mut out).expect("there is room");
        out.truncate(len);
        (channel.addr(), out)
    }

    fn say(&mut self, from: usize, bytes: &[u8]) {
        let (to, bytes) = self.sealed(from, bytes);
        self.send(from, to, bytes);
    }

    #[track_caller]
    fn assert_talk(&mut self) {
        self.got = Default::default();
        for end in 0..2 {
            self.say(end, b"hello");
            assert_eq!(self.got[1 - end], [b"hello".to_vec()], "to {end}");
        }
    }
}

#[test]
fn two_who_share_a_secret_get_a_channel() {
    let mut pair = Pair::new();
    pair.call();
    let up = |peer, addr, called| Event::Up { peer, addr, called };
    assert_eq!(pair.events[0], [up(pair.key(1), addr(2), true)]);
    assert_eq!(pair.events[1], [up(pair.key(0), addr(1), false)]);
    pair.assert_talk();
    assert_eq!(pair.ends[0].poll_timeout(), None, "nothing more is to be done");
}

#[test]
fn any_message_of_the_handshake_may_be_lost() {
    for lost in [|n| n == 0, |n| n == 1, |n| n == 2, |n| n == 3, |n| n == 4, |n| n == 5, |n| n % 4 == 1 || n % 7 == 2] {
        let mut pair = Pair::new();
        pair.lost = lost;
        pair.call();
        pair.run(TimeDelta::from_secs(4));
        pair.lost = |_| false;
        pair.assert_talk();
    }
}

#[test]
fn who_does_not_know_the_secret_gets_a_cookie_and_no_more() {
    let mut pair = Pair::with_secrets("tennis", "chess");
    pair.call();
    pair.run(TimeDelta::from_secs(1));
    assert_eq!(pair.events[0], [Event::Unanswered { addr: addr(2), refused: true }]);
    assert_eq!(pair.events[1], []);
    assert!(pair.heard.iter().filter(|(from, ..)| *from == 1).all(|(.., bytes)| bytes[0] == COOKIE));
    assert!(pair.ends[1].counts().strangers > 0 && pair.ends[1].halves.is_empty());
}

/// Who reads our packets and answers before everybody else can make cookies, but one or two of them do not make a wrong secret.
#[test]
fn a_forged_cookie_does_not_make_a_secret_wrong() {
    for forged in [1, 2] {
        let mut pair = Pair::new();
        pair.forged = forged;
        pair.ends[0].call(pair.now, addr(2), None);
        pair.run(TimeDelta::from_secs(6));
        let up = Event::Up { peer: pair.key(1), addr: addr(2), called: true };
        assert_eq!(pair.events[0], [up], "with {forged} forged");
        pair.assert_talk();
    }
}

/// However long the way is, it is not taken for a wrong secret.
#[test]
fn a_long_way_is_no_wrong_secret() {
    for one_way in [200, 600, 1_500] {
        let mut pair = Pair::new();
        pair.ends[0].call(pair.now, addr(2), None);
        let mut under_way: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
        for _ in 0..1_500 {
            for end in 0..2 {
                pair.ends[end].handle_timeout(pair.now);
                while let Some((_, bytes)) = pair.ends[end].poll_transmit() {
                    under_way.push_back((pair.now + TimeDelta::from_millis(one_way), 1 - end, bytes));
                }
                let events: Vec<Event> = std::iter::from_fn(|| pair.ends[end].poll_event()).collect();
                pair.events[end].extend(events);
            }
            while let Some((_, end, bytes)) = under_way.pop_front_if(|(due, ..)| *due <= pair.now) {
                pair.arrive(end, addr(2 - end as u16), &bytes);
            }
            pair.now += TimeDelta::from_millis(10);
        }
        let refused = pair.events[0].iter().any(|event| matches!(event, Event::Unanswered { refused: true, .. }));
        assert!(!refused, "{one_way} ms: {:?}", pair.events[0]);
        let open = [0, 1].map(|end| pair.ends[end].channel(&pair.key(1 - end)).is_some());
        assert_eq!(open, [true, true], "{one_way} ms");
    }
}

#[test]
fn nobody_at_home_is_told_from_a_wrong_secret() {
    let mut pair = Pair::new();
    pair.ends[0].call(pair.now, addr(9), None);
    pair.run(PATIENCE + AGAIN);
    assert_eq!(pair.events[0], [Event::Unanswered { addr: addr(9), refused: false }]);
}

/// Whatever comes from an address that is not proven yet, less goes back to it.
#[test]
fn no_answer_is_longer_than_the_question() {
    let mut pair = Pair::new();
    pair.call();
    let questions: Vec<_> = pair.heard.iter().filter(|(from, ..)| *from == 0).map(|(.., bytes)| bytes.len()).collect();
    let answers: Vec<_> = pair.heard.iter().filter(|(from, ..)| *from == 1).map(|(.., bytes)| bytes.len()).collect();
    assert!(answers[0] < questions[0] && answers[1] < questions[1], "{questions:?}, {answers:?}");
}

#[test]
fn a_first_message_from_another_address_is_refused() {
    let mut pair = Pair::new();
    pair.call();
    let first = pair.heard.iter().find(|(.., bytes)| bytes[0] == FIRST).expect("it was sent").2.clone();
    pair.arrive(1, addr(77), &first);
    assert_eq!(pair.ends[1].poll_transmit(), None);
    assert_eq!(pair.ends[1].counts().strangers, 1);
}

#[test]
fn every_datagram_is_taken_once() {
    let mut pair = Pair::new();
    pair.call();
    let (_, bytes) = pair.sealed(0, b"once");
    (0..5).for_each(|_| pair.arrive(1, addr(1), &bytes));
    assert_eq!((pair.got[1].len(), pair.ends[1].counts().replayed), (1, 4));
}

#[test]
fn a_changed_datagram_is_refused() {
    let mut pair = Pair::new();
    pair.call();
    let (_, bytes) = pair.sealed(0, b"buttons");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        pair.arrive(1, addr(1), &changed);
    }
    (0..bytes.len()).for_each(|len| pair.arrive(1, addr(1), &bytes[..len]));
    assert_eq!(pair.got[1], Vec::<Vec<u8>>::new());
    assert!(pair.ends[1].counts().total() >= 2 * bytes.len() as u64 - 1);
    pair.arrive(1, addr(1), &bytes);
    assert_eq!(pair.got[1], [b"buttons".to_vec()], "the genuine one is still good");
}

#[test]
fn who_moves_is_answered_at_its_new_address() {
    let mut pair = Pair::new();
    pair.call();
    pair.addrs[0] = addr(50);
    pair.assert_talk();
    // What somebody repeats from elsewhere moves nobody.
    let old = pair.heard.iter().rev().find(|(from, ..)| *from == 0).expect("something was sent").2.clone();
    pair.arrive(1, addr(66), &old);
    pair.assert_talk();
}

#[test]
fn who_comes_back_with_its_key_is_the_same_peer() {
    let mut pair = Pair::new();
    pair.call();
    let identity = pair.ends[0].identity.clone();
    pair.ends[0] = Endpoint::new(identity, secret("tennis"));
    pair.addrs[0] = addr(3);
    pair.call();
    assert_eq!(pair.events[1].len(), 2);
    pair.assert_talk();
    pair.run(REPLACED + TimeDelta::from_secs(2));
    assert_eq!(pair.ends[1].channels.len(), 1, "the old channel is gone");
    pair.assert_talk();
}

#[test]
fn both_may_call_at_once() {
    let mut pair = Pair::new();
    pair.ends[1].call(pair.now, addr(1), Some(pair.ends[0].key()));
    pair.call();
    pair.assert_talk();
}

/// Somebody may be at one of several places: when it is found, the others are left in peace.
#[test]
fn who_was_found_is_not_looked_for_elsewhere() {
    let mut pair = Pair::new();
    let expected = pair.key(1);
    [addr(8), pair.addrs[1], addr(9)].iter().for_each(|place| pair.ends[0].call(pair.now, *place, Some(expected)));
    pair.ends[0].call(pair.now, addr(7), Some(PeerKey([7; 32])));
    pair.run(TimeDelta::from_secs(2));
    pair.heard.clear();
    pair.run(TimeDelta::from_secs(2));
    let asked: Vec<SocketAddr> = pair.heard.iter().map(|(_, to, _)| *to).collect();
    assert!(!asked.is_empty() && asked.iter().all(|to| *to == addr(7)), "{asked:?}");
    pair.ends[0].hang_up(&PeerKey([7; 32]));
    pair.heard.clear();
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.heard.len(), 0);
}

/// We are called by whom we call, and hear that our call came to something.
#[test]
fn a_call_that_is_not_needed_any_more_has_come_to_something() {
    let mut pair = Pair::new();
    let expected = pair.key(1);
    pair.ends[0].call(pair.now, addr(8), Some(expected));
    pair.ends[1].call(pair.now, pair.addrs[0], None);
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.events[0], [Event::Up { peer: expected, addr: pair.addrs[1], called: true }]);
}

#[test]
fn who_answers_must_be_who_was_called() {
    let mut pair = Pair::new();
    pair.ends[0].call(pair.now, addr(2), Some(Identity::random().key()));
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.events[0], [Event::Stranger { addr: addr(2), peer: pair.key(1) }]);
    assert!(pair.ends[0].channel(&pair.key(1)).is_none());
}

/// A flood of calls and nonsense takes a bounded amount of memory, and gets a bounded number of answers.
#[test]
fn a_flood_is_bounded() {
    let mut pair = Pair::new();
    let mut answers = 0;
    for number in 0..20_000u32 {
        let from = SocketAddr::from((number.to_le_bytes(), number as u16));
        pair.arrive(1, from, &message(HELLO, number, &[&[0; HELLO_LEN - 5]]));
        pair.arrive(1, from, &message(FIRST, number, &[&[7; FIRST_LEN - 5]]));
        pair.arrive(1, from, &message(number as u8, number, &[&[7; 60]]));
        while pair.ends[1].poll_transmit().is_some() {
            answers += 1;
        }
    }
    assert!(answers <= COOKIES_PER_MS, "{answers} answers in one millisecond");
    assert!(pair.ends[1].halves.is_empty() && pair.ends[1].channels.is_empty());
    pair.now += TimeDelta::from_millis(1);
    pair.call();
    pair.assert_talk();
}

#[test]
fn many_can_be_there() {
    let mut server = Pair::new();
    for number in 0..50 {
        let mut pair = Pair::new();
        std::mem::swap(&mut pair.ends[1], &mut server.ends[1]);
        pair.addrs[0] = addr(1_000 + number);
        pair.call();
        pair.assert_talk();
        std::mem::swap(&mut pair.ends[1], &mut server.ends[1]);
    }
    assert_eq!(server.ends[1].channels.len(), 50);
}

/// Messages of a handshake that somebody has heard and says again, by the thousand, are answered a few times and no more.
#[test]
fn a_handshake_that_is_said_again_costs_a_trifle() {
    let mut pair = Pair::new();
    pair.call();
    for kind in [HELLO, FIRST, THIRD] {
        let said = pair.heard.iter().find(|(from, _, bytes)| *from == 0 && bytes[0] == kind);
        let (from, said) = (pair.addrs[0], said.expect("it was said").2.clone());
        let refused = pair.ends[1].counts().total();
        (0..1_000).for_each(|_| pair.arrive(1, from, &said));
        let answers = std::iter::from_fn(|| pair.ends[1].poll_transmit()).count();
        assert!((1..=5).contains(&answers), "{answers} answers to {kind}");
        assert!(pair.ends[1].counts().total() - refused >= 995, "the rest is counted");
    }
    pair.assert_talk();
}
