//! Tests of internals: which connection or stream carries which datagrams, congestion control, redialing, and
//! connections without a token proof.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::iroh::endpoint::{Connection, PathId, QuicTransportConfig, presets};
use ::iroh::{Endpoint, RelayMode, SecretKey, TransportAddr};
use bytes::Bytes;
use coplay::codec::MAX_DATAGRAM;
use tokio::runtime;
use tokio::sync::oneshot;

use super::quic::{ConnectionPurpose, GAME_CONGESTION_WINDOW};
use super::token_proof;
use super::{IrohTransport, RelayConfig};
use crate::key::{Identity, PeerKey, Token};
use crate::peer_addr::IrohAddr;
use crate::transport::{Incoming, Transport};

/// Idle timeout of a [`CrashingEndpoint`], shorter than the transport's 60 s: the smaller value of the two ends
/// applies.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

fn listen(token: &Token) -> (IrohTransport, Receiver<Incoming>) {
    let (queue, incoming) = sync_channel(1_024);
    let addr = "127.0.0.1:0".parse().unwrap();
    let iroh = IrohTransport::listen(addr, &Identity::random(), token.clone(), RelayConfig::None, queue);
    (iroh.expect("a free port"), incoming)
}

/// Polls `look` until it returns a value; panics after 40 s.
#[track_caller]
fn wait_until<T>(look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(40);
    while Instant::now() < until {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the condition was not met within 40 s");
}

/// Waits until `from` has a connection of exactly this kind to `to`, and returns it.
fn connection(from: &IrohTransport, to: &IrohTransport, kind: ConnectionPurpose) -> Connection {
    wait_until(|| {
        let newest = from.shared.connections.newest(&to.key(), kind);
        newest.filter(|connection| connection.alpn() == kind.alpn())
    })
}

fn congestion_window(connection: &Connection) -> u64 {
    connection.congestion_state(PathId::ZERO).expect("the first path").window()
}

#[test]
fn only_bulk_connection_uses_congestion_control() {
    let token = Token::random();
    let ((one, _to_one), (other, _to_other)) = (listen(&token), listen(&token));
    one.dial(&other.addr().to_peer_addr(), None);
    for (from, to) in [(&one, &other), (&other, &one)] {
        assert_eq!(congestion_window(&connection(from, to, ConnectionPurpose::Game)), GAME_CONGESTION_WINDOW);
        assert!(congestion_window(&connection(from, to, ConnectionPurpose::Bulk)) < GAME_CONGESTION_WINDOW / 2);
    }
}

#[test]
fn game_and_bulk_datagrams_use_separate_connections() {
    let token = Token::random();
    let ((one, _to_one), (other, _to_other)) = (listen(&token), listen(&token));
    one.dial(&other.addr().to_peer_addr(), None);
    for (from, to) in [(&one, &other), (&other, &one)] {
        let sent = || {
            [ConnectionPurpose::Game, ConnectionPurpose::Bulk]
                .map(|kind| connection(from, to, kind).stats().frame_tx.datagram)
        };
        assert_eq!(sent(), [0, 0]);
        (0..7).for_each(|_| assert!(from.send(&to.key(), &[0x10, 1])));
        wait_until(|| (sent() == [0, 7]).then_some(()));
        (0..5).for_each(|_| assert!(from.send(&to.key(), &[0xf0, 1])));
        wait_until(|| (sent() == [5, 7]).then_some(()));
    }
}

/// Every datagram that `send_as_stream` accepts arrives, and the receiver rejects a stream that is longer than any
/// datagram.
#[test]
fn datagrams_longer_than_the_mtu_are_sent_as_streams() {
    let token = Token::random();
    let ((one, _to_one), (other, to_other)) = (listen(&token), listen(&token));
    one.dial(&other.addr().to_peer_addr(), None);
    let connection = connection(&one, &other, ConnectionPurpose::Game);
    let bytes = Bytes::from(vec![0xf0; MAX_DATAGRAM]);
    let taken = (0..1_000).filter(|_| one.send_as_stream(connection.clone(), bytes.clone())).count();
    let is_expected =
        |incoming: &Incoming| matches!(incoming, Incoming::Datagram { bytes: received, .. } if *received == bytes);
    let count = std::cell::Cell::new(0);
    wait_until(|| {
        count.set(count.get() + to_other.try_iter().filter(is_expected).count());
        (count.get() == taken).then_some(())
    });
    assert_eq!(connection.stats().frame_tx.datagram, 0);
    // The receiver rejects a stream longer than any datagram.
    assert!(one.send_as_stream(connection, Bytes::from(vec![0xf0; MAX_DATAGRAM + 1])));
    wait_until(|| (other.drop_counts().rejected == 1).then_some(()));
}

/// An endpoint that can vanish without closing, as in a power failure. Its short idle timeout makes its peers notice
/// soon.
struct CrashingEndpoint {
    addr: IrohAddr,
    stop_sender: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl CrashingEndpoint {
    fn new(identity: &Identity, token: Token) -> Self {
        let builder = Endpoint::builder(presets::Minimal)
            .secret_key(SecretKey::from_bytes(&identity.to_bytes()))
            .alpns(vec![ConnectionPurpose::Game.alpn().to_vec()])
            .relay_mode(RelayMode::Disabled)
            .transport_config(QuicTransportConfig::builder().max_idle_timeout(IDLE_TIMEOUT.try_into().ok()).build())
            .clear_ip_transports()
            .bind_addr("127.0.0.1:0");
        let (stop_sender, stop_receiver) = oneshot::channel();
        let (addr_sender, addr_receiver) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let endpoint = builder.unwrap().bind().await.unwrap();
                let addrs = endpoint.bound_sockets().into_iter().map(TransportAddr::Ip).collect::<Vec<_>>();
                addr_sender.send(IrohAddr::new(PeerKey(*endpoint.id().as_bytes()), &addrs)).unwrap();
                tokio::spawn(accept_loop(endpoint, token));
                let _ = stop_receiver.await;
            });
        });
        Self { addr: addr_receiver.recv().unwrap(), stop_sender, thread }
    }

    fn crash(self) {
        drop(self.stop_sender);
        self.thread.join().unwrap();
    }
}

async fn accept_loop(endpoint: Endpoint, token: Token) {
    while let Some(incoming) = endpoint.accept().await {
        let Ok(connection) = incoming.await else { continue };
        assert!(token_proof::prove_as_acceptor(&connection, &token).await);
        tokio::spawn(async move { connection.closed().await });
    }
}

/// The dialer reconnects to a peer that vanished without closing and came back.
#[test]
fn lost_peer_is_redialed() {
    let (token, identity) = (Token::random(), Identity::random());
    let (one, to_one) = listen(&token);
    let other = CrashingEndpoint::new(&identity, token.clone());
    let addr = other.addr.clone();
    one.dial(&addr.to_peer_addr(), None);
    let next_connected = || to_one.try_iter().find(|incoming| matches!(incoming, Incoming::Connected { .. }));
    wait_until(next_connected);
    other.crash();
    let (queue, to_other) = sync_channel(1_024);
    let other =
        IrohTransport::listen(addr.addrs[0], &identity, token, RelayConfig::None, queue).expect("the port is free");
    wait_until(next_connected);
    assert!(one.send(&other.key(), b"ping"));
    let ping = |incoming: &Incoming| matches!(incoming, Incoming::Datagram { bytes, .. } if bytes == b"ping");
    wait_until(|| to_other.try_iter().find(ping));
}

/// Connections without a token proof are closed, and do not keep others out.
#[test]
fn connections_without_token_proof_are_closed() {
    let token = Token::random();
    let ((host, _to_host), (joiner, _to_joiner)) = (listen(&token), listen(&token));
    let (idler, _to_idler) = listen(&Token::random());
    let addr = host.addr().endpoint_addr().unwrap();
    let idle = async {
        let mut held = Vec::new();
        for _ in 0..100 {
            held.extend(idler.shared.endpoint.connect(addr.clone(), ConnectionPurpose::Game.alpn()).await);
        }
        held
    };
    let held = idler.runtime.block_on(idle);
    assert!(held.len() > 60, "{}", held.len());
    joiner.dial(&host.addr().to_peer_addr(), None);
    wait_until(|| host.shared.connections.newest(&joiner.key(), ConnectionPurpose::Game));
    assert!(host.shared.connections.newest(&idler.key(), ConnectionPurpose::Game).is_none());
    wait_until(|| (host.drop_counts().rejected as usize >= held.len()).then_some(()));
    drop(held);
}
