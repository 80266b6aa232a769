//! iroh on real sockets, without any server.

#[allow(unreachable_pub, reason = "shared with another test")]
mod common;

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use common::{datagram, up, wait};
use coplay::wire::{MAX_DATAGRAM, is_feed};
use coplay_net::iroh::{Home, Iroh, Relay};
use coplay_net::key::{Identity, Token};
use coplay_net::{Incoming, Place, Ticket, Transport};

fn listen_with(token: &Token, relay: Relay) -> (Iroh, Receiver<Incoming>) {
    let (queue, incoming) = sync_channel(4_096);
    let addr = "127.0.0.1:0".parse().unwrap();
    let iroh = Iroh::listen(addr, &Identity::random(), token.clone(), relay, queue);
    (iroh.expect("a free port"), incoming)
}

fn listen(token: &Token) -> (Iroh, Receiver<Incoming>) {
    listen_with(token, Relay::None)
}

fn place(iroh: &Iroh) -> Place {
    iroh.own_places().remove(0)
}

type End = (Iroh, Receiver<Incoming>);

fn connected() -> (End, End) {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    one.call(&place(&other), Some(other.key()));
    assert_eq!(wait(&to_one, up), other.key());
    assert_eq!(wait(&to_other, up), one.key());
    ((one, to_one), (other, to_other))
}

#[test]
fn two_endpoints_talk() {
    let ((one, to_one), (other, to_other)) = connected();
    assert!(one.send(&other.key(), b"ping"));
    assert_eq!(wait(&to_other, datagram), (one.key(), b"ping".to_vec()));
    assert!(other.send(&one.key(), b"pong"));
    assert_eq!(wait(&to_one, datagram), (other.key(), b"pong".to_vec()));
    assert_eq!(one.place_of(&other.key()), Some(place(&other)));
    assert_eq!(one.refused().by_us + other.refused().by_us, 0);
}

/// What is in the ticket is enough to find the host and to be let in.
#[test]
fn a_ticket_leads_to_the_host() {
    let (host, to_host) = listen(&Token::random());
    let text = host.ticket().to_string();
    let Ok(Ticket::Iroh { home, token }) = text.parse() else { panic!("{text}") };
    let (guest, to_guest) = listen(&token);
    guest.call(&home.to_place(), Some(home.key));
    assert_eq!(wait(&to_guest, up), host.key());
    assert_eq!(wait(&to_host, up), guest.key());
}

#[test]
fn a_wrong_token_is_refused_and_counted() {
    let ((one, to_one), (other, to_other)) = (listen(&Token::random()), listen(&Token::random()));
    one.call(&place(&other), None);
    let refused = wait(&to_one, |incoming| match incoming {
        Incoming::Unanswered { refused, .. } => Some(refused),
        _ => None,
    });
    assert!(refused && to_other.try_recv().is_err());
    assert!(other.refused().by_us > 0);
    assert!(!one.send(&other.key(), b"ping") && !other.send(&one.key(), b"pong"), "there is no way");
}

#[test]
fn who_is_not_expected_is_a_stranger() {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    let stranger = |incoming| if let Incoming::Stranger { place } = incoming { Some(place) } else { None };
    one.call(&place(&other), Some(Identity::random().key()));
    assert_eq!(wait(&to_one, stranger), place(&other));
    one.call(&place(&one), None);
    assert_eq!(wait(&to_one, stranger), place(&one));
    assert!(to_other.try_recv().is_err());
}

/// Nobody is there: it is told once, and the call goes on until somebody is.
#[test]
fn who_comes_late_is_reached() {
    let token = Token::random();
    let (one, to_one) = listen(&token);
    let identity = Identity::random();
    let (queue, to_other) = sync_channel(64);
    // A port that is free now, and again when it is needed.
    let first =
        Iroh::listen("127.0.0.1:0".parse().unwrap(), &identity, token.clone(), Relay::None, queue.clone()).unwrap();
    let home = first.home();
    drop(first);
    let since = Instant::now();
    one.call(&home.to_place(), None);
    let unanswered = wait(&to_one, |incoming| match incoming {
        Incoming::Unanswered { refused, .. } => Some(refused),
        _ => None,
    });
    assert!(!unanswered && since.elapsed() >= Duration::from_secs(4), "{:?}", since.elapsed());
    let other = Iroh::listen(home.addrs[0], &identity, token, Relay::None, queue).expect("the port is free");
    assert_eq!(wait(&to_one, up), other.key());
    assert_eq!(wait(&to_other, up), one.key());
}

/// Both call each other at once: each hears of a way, and what is sent arrives once.
#[test]
fn two_who_call_each_other_are_connected() {
    let token = Token::random();
    let ((one, to_one), (other, to_other)) = (listen(&token), listen(&token));
    one.call(&place(&other), None);
    other.call(&place(&one), None);
    wait(&to_one, up);
    wait(&to_other, up);
    for number in 0..100u32 {
        let bytes = [&[0xf0][..], &number.to_le_bytes()].concat();
        assert!(one.send(&other.key(), &bytes) && other.send(&one.key(), &bytes));
        assert_eq!(wait(&to_other, datagram), (one.key(), bytes.clone()));
        assert_eq!(wait(&to_one, datagram), (other.key(), bytes));
    }
}

/// The longest datagram arrives, also while the path is not known to carry it; and bulk from the first moment on.
#[test]
fn the_longest_datagrams_arrive() {
    let ((one, _to_one), (other, to_other)) = connected();
    for first in [0xf0, 0x10] {
        let bytes = vec![first; MAX_DATAGRAM];
        assert_eq!(is_feed(&bytes), first == 0x10);
        for _ in 0..20 {
            assert!(one.send(&other.key(), &bytes));
            assert_eq!(wait(&to_other, datagram), (one.key(), bytes.clone()));
        }
    }
}

/// What is not worth a thought at a wrong place is none at all.
#[test]
fn places_of_others_are_ignored() {
    let (one, to_one) = listen(&Token::random());
    for bad in ["", "127.0.0.1:7000", "iroh:", "iroh:aaaa"] {
        one.call(&Place(bad.into()), None);
    }
    assert_eq!(to_one.recv_timeout(Duration::from_millis(100)).err(), Some(RecvTimeoutError::Timeout));
}

/// Relays that do not answer keep nobody from starting, nor from reaching a neighbour.
#[test]
fn a_silent_relay_delays_nothing() {
    let token = Token::random();
    let since = Instant::now();
    let relay = || Relay::Url("https://127.0.0.1:9/".into());
    let ((one, to_one), (other, _)) = (listen_with(&token, relay()), listen_with(&token, relay()));
    one.call(&place(&other), None);
    wait(&to_one, up);
    let took = since.elapsed();
    println!("up after {took:?} with a relay that does not answer");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(!one.wait_for_relay(Duration::from_millis(100)));
}

/// 200 messages at 60 a second, there and back.
#[test]
fn messages_come_back_soon() {
    let ((one, to_one), (other, to_other)) = connected();
    let key = other.key();
    let echo = std::thread::spawn(move || {
        for _ in 0..200 {
            let (from, bytes) = wait(&to_other, datagram);
            assert!(other.send(&from, &bytes));
        }
        // The last answer is under way: leaving now would take it along.
        std::thread::sleep(Duration::from_millis(500));
    });
    let mut waits = Vec::new();
    for number in 0..200u64 {
        let bytes = [&[0xf0; 8][..], &number.to_le_bytes()].concat();
        let since = Instant::now();
        assert!(one.send(&key, &bytes));
        assert_eq!(wait(&to_one, datagram).1, bytes);
        waits.push(since.elapsed());
        std::thread::sleep(Duration::from_micros(16_667).saturating_sub(since.elapsed()));
    }
    echo.join().unwrap();
    waits.sort();
    println!("16 bytes there and back: p50 {:?}, p99 {:?}", waits[100], waits[198]);
    assert!(waits[100] < Duration::from_millis(50), "{:?}", waits[100]);
}

#[test]
fn a_home_says_where() {
    let (one, _incoming) = listen(&Token::random());
    let Home { key, relay, addrs } = one.home();
    assert_eq!((key, relay, addrs.len()), (one.key(), None, 1));
    assert!(addrs[0].ip().is_loopback() && addrs[0].port() != 0);
}
