//! The transport, and the thread that runs it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ::iroh::endpoint::{Connection, SendDatagramError, presets};
use ::iroh::{Endpoint, RelayMode, RelayUrl, SecretKey, Watcher};
use bytes::Bytes;
use coplay::wire::is_feed;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::accept::IrohShared;
use super::addr::IrohAddr;
use super::quic::ConnectionKind;
use crate::key::{Identity, PeerKey, Token};
use crate::ticket::Ticket;
use crate::transport::{DropCounts, Incoming, PeerAddr, Transport};
use crate::udp;

/// Our own addresses are known so soon after the start, if there are any.
const ADDR_DISCOVERY_TIMEOUT: Duration = Duration::from_millis(500);
/// Saying goodbye takes no longer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Servers that lead peers to each other, and carry what they send if they find no way of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RelayConfig {
    /// None: only peers that reach each other's addresses.
    #[default]
    None,
    /// Those that the makers of iroh run for everybody.
    Default,
    /// One's own, by its address (`https://…`).
    Url(String),
}

impl FromStr for RelayConfig {
    type Err = RelayError;

    fn from_str(text: &str) -> Result<Self, RelayError> {
        match text {
            "none" => Ok(Self::None),
            "default" => Ok(Self::Default),
            url if url.parse::<RelayUrl>().is_ok_and(|url| matches!(url.scheme(), "https" | "http")) => {
                Ok(Self::Url(url.into()))
            }
            _ => Err(RelayError),
        }
    }
}

impl fmt::Display for RelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Default => "default",
            Self::Url(url) => url,
        })
    }
}

/// A text that names no relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayError;

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a relay is none, default, or an address such as https://relay.example")
    }
}

impl std::error::Error for RelayError {}

/// A transport over iroh.
#[derive(Debug)]
pub struct IrohTransport {
    pub(super) shared: Arc<IrohShared>,
    pub(super) runtime: Handle,
    relay: RelayConfig,
    stop_sender: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IrohTransport {
    /// Listens at an address; port 0 takes any that is free, and the address of no particular interface stands for all of them, of both
    /// families. Who knows the token may come in. What comes goes into `queue`; what finds no room there is lost.
    ///
    /// It waits for no server: a relay is found while the game is already on.
    pub fn listen(
        addr: SocketAddr,
        identity: &Identity,
        token: Token,
        relay: RelayConfig,
        queue: SyncSender<Incoming>,
    ) -> io::Result<Self> {
        let mode = relay_mode(&relay)?;
        let key = SecretKey::from_bytes(&identity.to_bytes());
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (bound, is_bound) = sync_channel(1);
        let (over, is_over) = oneshot::channel();
        let body = move || {
            runtime.block_on(async move {
                let shared = match bind(addr, key, mode).await {
                    Ok(endpoint) => Arc::new(IrohShared::new(endpoint, token, queue)),
                    Err(error) => return drop(bound.send(Err(error))),
                };
                let accepting = tokio::spawn(Arc::clone(&shared).accept_loop());
                let endpoint = shared.endpoint.clone();
                drop(bound.send(Ok(shared)));
                // It is over when it is said, or when nobody is left to say it.
                let _ = is_over.await;
                accepting.abort();
                let _ = timeout(CLOSE_TIMEOUT, endpoint.close()).await;
            });
        };
        let thread = std::thread::Builder::new().name("net".into()).spawn(body)?;
        let shared = is_bound.recv().map_err(io::Error::other)??;
        Ok(Self { shared, runtime: handle, relay, stop_sender: Some(over), thread: Some(thread) })
    }

    /// Where we live, as far as we know by now.
    pub fn addr(&self) -> IrohAddr {
        IrohAddr::new(self.shared.key(), &self.shared.endpoint.addr().addrs)
    }

    /// What others need in order to come in. With a relay it says more once that has [answered](Self::wait_for_relay).
    pub fn ticket(&self) -> Ticket {
        Ticket::Iroh { addr: self.addr(), token: self.shared.token.clone() }
    }

    /// Waits until a relay has answered, at most so long; `false` if none has.
    pub fn wait_for_relay(&self, most: Duration) -> bool {
        let online = async { timeout(most, self.shared.endpoint.online()).await.is_ok() };
        self.relay != RelayConfig::None && self.runtime.block_on(online)
    }

    /// Sends what is too long for the path; `false` if too much is on its way already.
    pub(super) fn send_as_stream(&self, connection: Connection, bytes: Bytes) -> bool {
        let Ok(permit) = Arc::clone(&self.shared.stream_permits).try_acquire_owned() else { return false };
        self.runtime.spawn(async move {
            // What cannot be sent is lost, as it may be on its way.
            if let Ok(mut stream) = connection.open_uni().await
                && stream.write_all(&bytes).await.is_ok()
                && stream.finish().is_ok()
            {
                let _ = stream.stopped().await;
            }
            drop(permit);
        });
        true
    }
}

impl Drop for IrohTransport {
    fn drop(&mut self) {
        self.stop_sender.take();
        if let Some(thread) = self.thread.take() {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

fn relay_mode(relay: &RelayConfig) -> io::Result<RelayMode> {
    Ok(match relay {
        RelayConfig::None => RelayMode::Disabled,
        RelayConfig::Default => RelayMode::Default,
        RelayConfig::Url(url) => {
            let url: RelayUrl = url.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            RelayMode::custom([url])
        }
    })
}

async fn bind(addr: SocketAddr, key: SecretKey, relay: RelayMode) -> io::Result<Endpoint> {
    let alpns = ConnectionKind::ALL.map(|kind| kind.alpn().to_vec()).to_vec();
    let mut builder = Endpoint::builder(presets::Minimal)
        .secret_key(key)
        .alpns(alpns)
        .relay_mode(relay)
        .transport_config(ConnectionKind::Game.transport_config());
    if !addr.ip().is_unspecified() {
        builder = builder.clear_ip_transports();
    }
    let endpoint = builder.bind_addr(addr).map_err(io::Error::other)?.bind().await.map_err(io::Error::other)?;
    let mut addrs = endpoint.watch_addr();
    let known = async { while addrs.get().is_empty() && addrs.updated().await.is_ok() {} };
    // Without any network there may be none: then it can still call others.
    let _ = timeout(ADDR_DISCOVERY_TIMEOUT, known).await;
    Ok(endpoint)
}

impl Transport for IrohTransport {
    fn key(&self) -> PeerKey {
        self.shared.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let kind = if is_feed(bytes) { ConnectionKind::Bulk } else { ConnectionKind::Game };
        let Some(connection) = self.shared.connections.newest(to, kind) else { return false };
        let bytes = Bytes::copy_from_slice(bytes);
        match connection.send_datagram(bytes.clone()) {
            Err(SendDatagramError::TooLarge) => self.send_as_stream(connection, bytes),
            sent => sent.is_ok(),
        }
    }

    fn dial(&self, place: &PeerAddr, expect: Option<PeerKey>) {
        self.shared.dial(&self.runtime, place, expect);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.shared.dials().remove(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        let connection = self.shared.connections.newest(peer, ConnectionKind::Game)?;
        let ways: Vec<_> = connection.paths().iter().map(|path| path.remote_addr().clone()).collect();
        Some(IrohAddr::new(*peer, &ways).to_peer_addr())
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        vec![self.addr().to_peer_addr()]
    }

    fn drop_counts(&self) -> DropCounts {
        let (by_us, crowded_out) = self.shared.drop_counts();
        let sockets = self.shared.endpoint.bound_sockets();
        DropCounts {
            rejected: by_us,
            kernel_dropped: sockets.into_iter().filter_map(udp::kernel_drop_count).sum(),
            queue_full: crowded_out,
        }
    }
}
