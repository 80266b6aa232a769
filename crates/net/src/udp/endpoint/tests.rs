use super::*;
use crate::udp::MAX_SEALED;

/// Two endpoints on a network with an eavesdropper.
struct Pair {
    ends: [Endpoint; 2],
    addrs: [SocketAddr; 2],
    now: Instant,
    /// All datagrams sent: sender, destination, content.
    sent: Vec<(usize, SocketAddr, Vec<u8>)>,
    /// Received data, by receiver.
    received: [Vec<Vec<u8>>; 2],
    events: [Vec<EndpointEvent>; 2],
    /// Number of cookies that an attacker still forges, each before the acceptor can answer.
    forged_cookies: usize,
    /// Whether a datagram is lost, by the number of datagrams sent before it.
    is_lost: fn(usize) -> bool,
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
            sent: Vec::new(),
            received: Default::default(),
            events: Default::default(),
            forged_cookies: 0,
            is_lost: |_| false,
        }
    }

    fn key(&self, end: usize) -> PeerKey {
        self.ends[end].key()
    }

    fn connect(&mut self) {
        self.ends[0].dial(self.now, self.addrs[1], None);
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
        let lost = (self.is_lost)(self.sent.len());
        self.sent.push((from, to, bytes.clone()));
        if self.forged_cookies > 0 && bytes[0] == HELLO {
            self.forged_cookies -= 1;
            self.deliver(from, to, &[&[COOKIE][..], &bytes[1..5], &[7; COOKIE_LEN]].concat());
        }
        if let Some(end) = self.addrs.iter().position(|addr| *addr == to).filter(|_| !lost) {
            self.deliver(end, self.addrs[from], &bytes);
        }
    }

    fn deliver(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let mut out = [0; MAX_SEALED];
        if let Received::Data { from, len } = self.ends[end].handle_datagram(self.now, from, bytes, &mut out) {
            assert_eq!(from, self.key(1 - end));
            self.received[end].push(out[..len].to_vec());
        }
    }

    /// Returns a sealed datagram with its destination.
    fn seal(&self, from: usize, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
        let channel = self.ends[from].channel(&self.key(1 - from)).expect("there is a channel");
        let mut out = vec![0; MAX_SEALED];
        let len = channel.seal(bytes, &mut out).expect("there is room");
        out.truncate(len);
        (channel.addr(), out)
    }

    fn send_data(&mut self, from: usize, bytes: &[u8]) {
        let (to, bytes) = self.seal(from, bytes);
        self.send(from, to, bytes);
    }

    #[track_caller]
    fn assert_connected(&mut self) {
        self.received = Default::default();
        for end in 0..2 {
            self.send_data(end, b"hello");
            assert_eq!(self.received[1 - end], [b"hello".to_vec()], "to {end}");
        }
    }
}

#[test]
fn endpoints_with_equal_secrets_get_a_channel() {
    let mut pair = Pair::new();
    pair.connect();
    let up = |peer, addr, was_dialed| EndpointEvent::Connected { peer, addr, was_dialed };
    assert_eq!(pair.events[0], [up(pair.key(1), addr(2), true)]);
    assert_eq!(pair.events[1], [up(pair.key(0), addr(1), false)]);
    pair.assert_connected();
    assert_eq!(pair.ends[0].poll_timeout(), None, "no timeout is pending");
}

#[test]
fn handshake_survives_loss_of_any_message() {
    for lost in [|n| n == 0, |n| n == 1, |n| n == 2, |n| n == 3, |n| n == 4, |n| n == 5, |n| n % 4 == 1 || n % 7 == 2] {
        let mut pair = Pair::new();
        pair.is_lost = lost;
        pair.connect();
        pair.run(TimeDelta::from_secs(4));
        pair.is_lost = |_| false;
        pair.assert_connected();
    }
}

#[test]
fn wrong_secret_gets_only_a_cookie() {
    let mut pair = Pair::with_secrets("tennis", "chess");
    pair.connect();
    pair.run(TimeDelta::from_secs(1));
    assert_eq!(pair.events[0], [EndpointEvent::Unreachable { addr: addr(2), wrong_secret: true }]);
    assert_eq!(pair.events[1], []);
    assert!(pair.sent.iter().filter(|(from, ..)| *from == 1).all(|(.., bytes)| bytes[0] == COOKIE));
    assert!(pair.ends[1].reject_counts().unauthorized > 0 && pair.ends[1].half_open.is_empty());
}

/// An attacker that reads our packets and answers first can forge cookies; one or two of them do not count as a wrong
/// secret.
#[test]
fn forged_cookies_are_not_reported_as_wrong_secret() {
    for forged in [1, 2] {
        let mut pair = Pair::new();
        pair.forged_cookies = forged;
        pair.ends[0].dial(pair.now, addr(2), None);
        pair.run(TimeDelta::from_secs(6));
        let connected = EndpointEvent::Connected { peer: pair.key(1), addr: addr(2), was_dialed: true };
        assert_eq!(pair.events[0], [connected], "with {forged} forged");
        pair.assert_connected();
    }
}

/// A long round trip does not count as a wrong secret.
#[test]
fn long_round_trip_is_not_reported_as_wrong_secret() {
    for one_way in [200, 600, 1_500] {
        let mut pair = Pair::new();
        pair.ends[0].dial(pair.now, addr(2), None);
        let mut in_flight: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
        for _ in 0..1_500 {
            for end in 0..2 {
                pair.ends[end].handle_timeout(pair.now);
                while let Some((_, bytes)) = pair.ends[end].poll_transmit() {
                    in_flight.push_back((pair.now + TimeDelta::from_millis(one_way), 1 - end, bytes));
                }
                let events: Vec<EndpointEvent> = std::iter::from_fn(|| pair.ends[end].poll_event()).collect();
                pair.events[end].extend(events);
            }
            while let Some((_, end, bytes)) = in_flight.pop_front_if(|(due, ..)| *due <= pair.now) {
                pair.deliver(end, addr(2 - end as u16), &bytes);
            }
            pair.now += TimeDelta::from_millis(10);
        }
        let refused =
            pair.events[0].iter().any(|event| matches!(event, EndpointEvent::Unreachable { wrong_secret: true, .. }));
        assert!(!refused, "{one_way} ms: {:?}", pair.events[0]);
        let open = [0, 1].map(|end| pair.ends[end].channel(&pair.key(1 - end)).is_some());
        assert_eq!(open, [true, true], "{one_way} ms");
    }
}

#[test]
fn unanswered_dial_is_not_reported_as_wrong_secret() {
    let mut pair = Pair::new();
    pair.ends[0].dial(pair.now, addr(9), None);
    pair.run(UNREACHABLE_TIMEOUT + RETRANSMIT_INTERVAL);
    assert_eq!(pair.events[0], [EndpointEvent::Unreachable { addr: addr(9), wrong_secret: false }]);
}

/// The cookie is shorter than the request for it, and the second message is shorter than the first.
#[test]
fn unproven_address_gets_shorter_replies_than_requests() {
    let mut pair = Pair::new();
    pair.connect();
    let requests: Vec<_> = pair.sent.iter().filter(|(from, ..)| *from == 0).map(|(.., bytes)| bytes.len()).collect();
    let replies: Vec<_> = pair.sent.iter().filter(|(from, ..)| *from == 1).map(|(.., bytes)| bytes.len()).collect();
    assert!(replies[0] < requests[0] && replies[1] < requests[1], "{requests:?}, {replies:?}");
}

#[test]
fn first_handshake_message_from_another_address_is_rejected() {
    let mut pair = Pair::new();
    pair.connect();
    let first =
        pair.sent.iter().find(|(.., bytes)| bytes[0] == HANDSHAKE_FIRST).expect("a first message was sent").2.clone();
    pair.deliver(1, addr(77), &first);
    assert_eq!(pair.ends[1].poll_transmit(), None);
    assert_eq!(pair.ends[1].reject_counts().unauthorized, 1);
}

#[test]
fn replayed_datagram_is_rejected() {
    let mut pair = Pair::new();
    pair.connect();
    let (_, bytes) = pair.seal(0, b"once");
    (0..5).for_each(|_| pair.deliver(1, addr(1), &bytes));
    assert_eq!((pair.received[1].len(), pair.ends[1].reject_counts().replayed), (1, 4));
}

#[test]
fn modified_datagram_is_rejected() {
    let mut pair = Pair::new();
    pair.connect();
    let (_, bytes) = pair.seal(0, b"buttons");
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        pair.deliver(1, addr(1), &changed);
    }
    (0..bytes.len()).for_each(|len| pair.deliver(1, addr(1), &bytes[..len]));
    assert_eq!(pair.received[1], Vec::<Vec<u8>>::new());
    assert!(pair.ends[1].reject_counts().total() >= 2 * bytes.len() as u64 - 1);
    pair.deliver(1, addr(1), &bytes);
    assert_eq!(pair.received[1], [b"buttons".to_vec()], "the authentic datagram is still accepted");
}

#[test]
fn peer_is_followed_to_its_new_address() {
    let mut pair = Pair::new();
    pair.connect();
    pair.addrs[0] = addr(50);
    pair.assert_connected();
    // A datagram replayed from another address does not move the peer.
    let old = pair.sent.iter().rev().find(|(from, ..)| *from == 0).expect("something was sent").2.clone();
    pair.deliver(1, addr(66), &old);
    pair.assert_connected();
}

#[test]
fn restarted_peer_replaces_its_channel() {
    let mut pair = Pair::new();
    pair.connect();
    let identity = pair.ends[0].identity.clone();
    pair.ends[0] = Endpoint::new(identity, secret("tennis"));
    pair.addrs[0] = addr(3);
    pair.connect();
    assert_eq!(pair.events[1].len(), 2);
    pair.assert_connected();
    pair.run(REPLACED_CHANNEL_TIMEOUT + TimeDelta::from_secs(2));
    assert_eq!(pair.ends[1].channels.len(), 1, "the old channel is gone");
    pair.assert_connected();
}

#[test]
fn simultaneous_dials_connect() {
    let mut pair = Pair::new();
    pair.ends[1].dial(pair.now, addr(1), Some(pair.ends[0].key()));
    pair.connect();
    pair.assert_connected();
}

/// A peer may be at one of several addresses; once connected, it is not dialed at the others.
#[test]
fn connected_peer_is_not_dialed_at_other_addresses() {
    let mut pair = Pair::new();
    let expected = pair.key(1);
    [addr(8), pair.addrs[1], addr(9)].iter().for_each(|addr| pair.ends[0].dial(pair.now, *addr, Some(expected)));
    pair.ends[0].dial(pair.now, addr(7), Some(PeerKey([7; 32])));
    pair.run(TimeDelta::from_secs(2));
    pair.sent.clear();
    pair.run(TimeDelta::from_secs(2));
    let dialed: Vec<SocketAddr> = pair.sent.iter().map(|(_, to, _)| *to).collect();
    assert!(!dialed.is_empty() && dialed.iter().all(|to| *to == addr(7)), "{dialed:?}");
    pair.ends[0].cancel_dial(&PeerKey([7; 32]));
    pair.sent.clear();
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.sent.len(), 0);
}

/// A peer that is being dialed at another address dials this endpoint, and that connection completes the dial.
#[test]
fn incoming_connection_completes_a_pending_dial() {
    let mut pair = Pair::new();
    let expected = pair.key(1);
    pair.ends[0].dial(pair.now, addr(8), Some(expected));
    pair.ends[1].dial(pair.now, pair.addrs[0], None);
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.events[0], [EndpointEvent::Connected { peer: expected, addr: pair.addrs[1], was_dialed: true }]);
}

#[test]
fn unexpected_peer_is_reported_as_wrong_peer() {
    let mut pair = Pair::new();
    pair.ends[0].dial(pair.now, addr(2), Some(Identity::random().key()));
    pair.run(TimeDelta::from_secs(2));
    assert_eq!(pair.events[0], [EndpointEvent::WrongPeer { addr: addr(2), peer: pair.key(1) }]);
    assert!(pair.ends[0].channel(&pair.key(1)).is_none());
}

/// A flood of handshake messages and garbage within 1 ms gets at most five replies, and leaves no handshake or channel
/// open. A real dialer still connects afterwards.
#[test]
fn flood_uses_bounded_memory_and_replies() {
    let mut pair = Pair::new();
    let mut replies = 0;
    for number in 0..20_000u32 {
        let from = SocketAddr::from((number.to_le_bytes(), number as u16));
        pair.deliver(1, from, &encode_message(HELLO, number, &[&[0; HELLO_LEN - 5]]));
        pair.deliver(1, from, &encode_message(HANDSHAKE_FIRST, number, &[&[7; HANDSHAKE_FIRST_LEN - 5]]));
        pair.deliver(1, from, &encode_message(number as u8, number, &[&[7; 60]]));
        while pair.ends[1].poll_transmit().is_some() {
            replies += 1;
        }
    }
    assert!(replies <= COOKIES_PER_MS, "{replies} replies in one millisecond");
    assert!(pair.ends[1].half_open.is_empty() && pair.ends[1].channels.is_empty());
    pair.now += TimeDelta::from_millis(1);
    pair.connect();
    pair.assert_connected();
}

#[test]
fn fifty_peers_connect_to_one_endpoint() {
    let mut server = Pair::new();
    for number in 0..50 {
        let mut pair = Pair::new();
        std::mem::swap(&mut pair.ends[1], &mut server.ends[1]);
        pair.addrs[0] = addr(1_000 + number);
        pair.connect();
        pair.assert_connected();
        std::mem::swap(&mut pair.ends[1], &mut server.ends[1]);
    }
    assert_eq!(server.ends[1].channels.len(), 50);
}

/// A thousand replays of a handshake message get a few replies only.
#[test]
fn replayed_handshakes_are_rate_limited() {
    let mut pair = Pair::new();
    pair.connect();
    for kind in [HELLO, HANDSHAKE_FIRST, HANDSHAKE_THIRD] {
        let message = pair.sent.iter().find(|(from, _, bytes)| *from == 0 && bytes[0] == kind);
        let (from, message) = (pair.addrs[0], message.expect("the message was sent").2.clone());
        let rejected_before = pair.ends[1].reject_counts().total();
        (0..1_000).for_each(|_| pair.deliver(1, from, &message));
        let replies = std::iter::from_fn(|| pair.ends[1].poll_transmit()).count();
        assert!((1..=5).contains(&replies), "{replies} replies to {kind}");
        assert!(pair.ends[1].reject_counts().total() - rejected_before >= 995, "the rest is counted as rejected");
    }
    pair.assert_connected();
}
