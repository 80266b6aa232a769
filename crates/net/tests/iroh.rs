//! The iroh transport on real sockets, without any server.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::common::{connected_peer, received_datagram, wait_for};
use coplay::codec::MAX_DATAGRAM;
use coplay::spectator_feed::message::is_feed;
use coplay_net::iroh::{IrohAddr, IrohTransport, RelayConfig};
use coplay_net::key::{Identity, Token};
use coplay_net::{Incoming, PeerAddr, Ticket, Transport};

fn listen_with(token: &Token, relay: RelayConfig) -> (IrohTransport, Receiver<Incoming>) {
    let (queue, incoming) = sync_channel(4_096);
    let addr = "127.0.0.1:0".parse().unwrap();
    let iroh = IrohTransport::listen(addr, &Identity::random(), token.clone(), relay, queue);
    (iroh.expect("a free port"), incoming)
}

fn listen(token: &Token) -> (IrohTransport, Receiver<Incoming>) {
    listen_with(token, RelayConfig::None)
}

fn peer_addr(iroh: &IrohTransport) -> PeerAddr {
    iroh.own_addrs().remove(0)
}

type End = (IrohTransport, Receiver<Incoming>);

fn connected() -> (End, End) {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    one.dial(&peer_addr(&other), Some(other.key()));
    assert_eq!(wait_for(&to_one, connected_peer), other.key());
    assert_eq!(wait_for(&to_other, connected_peer), one.key());
    ((one, to_one), (other, to_other))
}

#[test]
fn two_iroh_transports_exchange_datagrams() {
    let ((one, to_one), (other, to_other)) = connected();
    assert!(one.send(&other.key(), b"ping"));
    assert_eq!(wait_for(&to_other, received_datagram), (one.key(), b"ping".to_vec()));
    assert!(other.send(&one.key(), b"pong"));
    assert_eq!(wait_for(&to_one, received_datagram), (other.key(), b"pong".to_vec()));
    assert_eq!(one.addr_of(&other.key()), Some(peer_addr(&other)));
    assert_eq!(one.drop_counts().rejected + other.drop_counts().rejected, 0);
}

/// The ticket alone is enough to find the host and to be admitted.
#[test]
fn ticket_is_enough_to_connect() {
    let (host, to_host) = listen(&Token::random());
    let text = host.ticket().to_string();
    let Ok(Ticket::Iroh { addr, token }) = text.parse() else { panic!("{text}") };
    let (joiner, to_joiner) = listen(&token);
    joiner.dial(&addr.to_peer_addr(), Some(addr.key));
    assert_eq!(wait_for(&to_joiner, connected_peer), host.key());
    assert_eq!(wait_for(&to_host, connected_peer), joiner.key());
}

#[test]
fn wrong_token_is_refused_and_counted() {
    let ((one, to_one), (other, to_other)) = (listen(&Token::random()), listen(&Token::random()));
    one.dial(&peer_addr(&other), None);
    let refused = wait_for(&to_one, |incoming| match incoming {
        Incoming::Unreachable { wrong_secret, .. } => Some(wrong_secret),
        _ => None,
    });
    assert!(refused && to_other.try_recv().is_err());
    assert!(other.drop_counts().rejected > 0);
    assert!(!one.send(&other.key(), b"ping") && !other.send(&one.key(), b"pong"), "there is no connection");
}

#[test]
fn unexpected_peer_is_reported_as_wrong_peer() {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    let wrong_peer = |incoming| if let Incoming::WrongPeer { addr } = incoming { Some(addr) } else { None };
    one.dial(&peer_addr(&other), Some(Identity::random().key()));
    assert_eq!(wait_for(&to_one, wrong_peer), peer_addr(&other));
    one.dial(&peer_addr(&one), None);
    assert_eq!(wait_for(&to_one, wrong_peer), peer_addr(&one));
    assert!(to_other.try_recv().is_err());
}

/// A dial without an answer is reported after 4 s or more, and continues until the peer is up.
#[test]
fn dialing_continues_until_the_peer_is_up() {
    let token = Token::random();
    let (one, to_one) = listen(&token);
    let identity = Identity::random();
    let (queue, to_other) = sync_channel(64);
    // A port that is free now, and again when it is needed.
    let first = IrohTransport::listen(
        "127.0.0.1:0".parse().unwrap(),
        &identity,
        token.clone(),
        RelayConfig::None,
        queue.clone(),
    )
    .unwrap();
    let addr = first.addr();
    drop(first);
    let since = Instant::now();
    one.dial(&addr.to_peer_addr(), None);
    let wrong_secret = wait_for(&to_one, |incoming| match incoming {
        Incoming::Unreachable { wrong_secret, .. } => Some(wrong_secret),
        _ => None,
    });
    assert!(!wrong_secret && since.elapsed() >= Duration::from_secs(4), "{:?}", since.elapsed());
    let other =
        IrohTransport::listen(addr.addrs[0], &identity, token, RelayConfig::None, queue).expect("the port is free");
    assert_eq!(wait_for(&to_one, connected_peer), other.key());
    assert_eq!(wait_for(&to_other, connected_peer), one.key());
}

/// Both peers dial each other at once: each reports a connection, and each datagram arrives once.
#[test]
fn simultaneous_dials_connect() {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    one.dial(&peer_addr(&other), None);
    other.dial(&peer_addr(&one), None);
    wait_for(&to_one, connected_peer);
    wait_for(&to_other, connected_peer);
    for number in 0..100u32 {
        let bytes = [&[0xf0][..], &number.to_le_bytes()].concat();
        assert!(one.send(&other.key(), &bytes) && other.send(&one.key(), &bytes));
        assert_eq!(wait_for(&to_other, received_datagram), (one.key(), bytes.clone()));
        assert_eq!(wait_for(&to_one, received_datagram), (other.key(), bytes));
    }
}

/// Game and bulk datagrams of the maximum length arrive from the moment at which both ends report the game connection.
/// The path may not be known to carry them yet, and the bulk connection may not exist yet.
#[test]
fn longest_datagrams_arrive() {
    let ((one, _to_one), (other, to_other)) = connected();
    for first in [0xf0, 0x10] {
        let bytes = vec![first; MAX_DATAGRAM];
        assert_eq!(is_feed(&bytes), first == 0x10);
        for _ in 0..20 {
            assert!(one.send(&other.key(), &bytes));
            assert_eq!(wait_for(&to_other, received_datagram), (one.key(), bytes.clone()));
        }
    }
}

/// A malformed address, or one of another transport, causes no event.
#[test]
fn addresses_of_other_transports_are_ignored() {
    let (one, to_one) = listen(&Token::random());
    for bad in ["", "127.0.0.1:7000", "iroh:", "iroh:aaaa"] {
        one.dial(&PeerAddr(bad.into()), None);
    }
    assert_eq!(to_one.recv_timeout(Duration::from_millis(100)).err(), Some(RecvTimeoutError::Timeout));
}

/// With a silent relay, starting two transports and connecting them takes less than 4 s.
#[test]
fn silent_relay_does_not_delay_connecting() {
    let token = Token::random();
    let since = Instant::now();
    let relay = || RelayConfig::Url("https://127.0.0.1:9/".into());
    let ((one, to_one), (other, _)) = (listen_with(&token, relay()), listen_with(&token, relay()));
    one.dial(&peer_addr(&other), None);
    wait_for(&to_one, connected_peer);
    let took = since.elapsed();
    println!("connected after {took:?} with a silent relay");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(!one.wait_for_relay(Duration::from_millis(100)));
}

/// The median round trip of 200 messages, sent at 60 per second, is below 50 ms.
#[test]
fn round_trip_of_200_messages_is_fast() {
    let ((one, to_one), (other, to_other)) = connected();
    let key = other.key();
    let echo = std::thread::spawn(move || {
        for _ in 0..200 {
            let (from, bytes) = wait_for(&to_other, received_datagram);
            assert!(other.send(&from, &bytes));
        }
        // The last echo is in flight: closing now would lose it.
        std::thread::sleep(Duration::from_millis(500));
    });
    let mut round_trips = Vec::new();
    for number in 0..200u64 {
        let bytes = [&[0xf0; 8][..], &number.to_le_bytes()].concat();
        let since = Instant::now();
        assert!(one.send(&key, &bytes));
        assert_eq!(wait_for(&to_one, received_datagram).1, bytes);
        round_trips.push(since.elapsed());
        std::thread::sleep(Duration::from_micros(16_667).saturating_sub(since.elapsed()));
    }
    echo.join().unwrap();
    round_trips.sort();
    println!("round trip of 16 bytes: p50 {:?}, p99 {:?}", round_trips[100], round_trips[198]);
    assert!(round_trips[100] < Duration::from_millis(50), "{:?}", round_trips[100]);
}

#[test]
fn iroh_addr_names_key_and_bound_socket() {
    let (one, _incoming) = listen(&Token::random());
    let IrohAddr { key, relay, addrs } = one.addr();
    assert_eq!((key, relay, addrs.len()), (one.key(), None, 1));
    assert!(addrs[0].ip().is_loopback() && addrs[0].port() != 0);
}
