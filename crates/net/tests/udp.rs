//! Secured UDP on real sockets.

use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::common::{connected_peer, received_datagram, wait_for};
use coplay_net::key::{Identity, Secret};
use coplay_net::udp::UdpTransport;
use coplay_net::{Incoming, PeerAddr, Transport};

fn listen(secret: &str) -> (UdpTransport, Receiver<Incoming>) {
    let (queue, incoming) = sync_channel(1_024);
    let identity = Identity::random();
    let udp = UdpTransport::listen("127.0.0.1:0".parse().unwrap(), identity, Secret::from_text(secret), queue);
    (udp.expect("a free port"), incoming)
}

fn peer_addr(udp: &UdpTransport) -> PeerAddr {
    udp.own_addrs().remove(0)
}

#[test]
fn two_udp_transports_exchange_datagrams() {
    let ((one, to_one), (other, to_other)) = (listen("tennis"), listen("tennis"));
    one.dial(&peer_addr(&other), None);
    assert_eq!(wait_for(&to_one, connected_peer), other.key());
    assert_eq!(wait_for(&to_other, connected_peer), one.key());
    assert!(one.send(&other.key(), b"ping"));
    assert_eq!(wait_for(&to_other, received_datagram), (one.key(), b"ping".to_vec()));
    assert!(other.send(&one.key(), b"pong"));
    assert_eq!(wait_for(&to_one, received_datagram), (other.key(), b"pong".to_vec()));
    assert_eq!(one.addr_of(&other.key()), Some(peer_addr(&other)));
}

#[test]
fn wrong_secret_is_reported() {
    let ((one, to_one), (other, to_other)) = (listen("tennis"), listen("chess"));
    one.dial(&peer_addr(&other), None);
    let refused = wait_for(&to_one, |incoming| match incoming {
        Incoming::Unreachable { wrong_secret, .. } => Some(wrong_secret),
        _ => None,
    });
    assert!(refused && to_other.try_recv().is_err());
    assert!(!one.send(&other.key(), b"ping"), "there is no connection");
}

/// A third socket sends 20,000 garbage datagrams. The channel between the other two survives, and at least 95 % of the
/// garbage is counted as rejected or dropped.
#[test]
fn garbage_is_counted_and_does_not_disturb_a_channel() {
    let ((one, to_one), (other, to_other)) = (listen("tennis"), listen("tennis"));
    one.dial(&peer_addr(&other), None);
    wait_for(&to_one, connected_peer);
    wait_for(&to_other, connected_peer);
    let third = UdpSocket::bind("127.0.0.1:0").unwrap();
    let garbage_count = 20_000u32;
    for number in 0..garbage_count {
        let bytes: Vec<u8> = (0..number % 90).map(|at| (number.wrapping_mul(at + 7) >> 3) as u8).collect();
        third.send_to(&bytes, other.local_addr().unwrap()).unwrap();
        if number % 1_000 == 0 {
            assert!(one.send(&other.key(), &number.to_le_bytes()));
        }
    }
    // The system may have dropped some datagrams of the channel, but the channel itself survives.
    while one.send(&other.key(), b"at last") && wait_for(&to_other, received_datagram).1 != b"at last" {}
    let drops = other.drop_counts();
    assert!(drops.rejected + drops.kernel_dropped >= u64::from(garbage_count) * 19 / 20, "{drops:?}");
}
