//! The iroh transport and its network thread.

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
use coplay::spectator_feed::message::is_feed;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::accept::IrohShared;
use super::quic::ConnectionPurpose;
use crate::key::{Identity, PeerKey, Token};
use crate::peer_addr::IrohAddr;
use crate::peer_addr::PeerAddr;
use crate::ticket::Ticket;
use crate::transport::{DropCounts, Incoming, Transport};
use crate::udp;

/// Time limit for discovering this site's own addresses when the transport starts.
const ADDR_DISCOVERY_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for closing the connections when the transport is dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Relay servers, which introduce peers to each other and forward datagrams between peers without a direct path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RelayConfig {
    /// No relay: two peers connect only if one can reach an address of the other directly.
    #[default]
    None,
    /// The public relays run by the makers of iroh.
    Default,
    /// A relay of the user's own, by its URL (`https://…`).
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

/// Error for a text that is neither `none` nor `default` nor an HTTP or HTTPS URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayError;

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be `none`, `default` or a URL such as https://relay.example")
    }
}

impl std::error::Error for RelayError {}

/// Transport over iroh, run by one network thread. Dropping it closes all connections within 0.5 s.
#[derive(Debug)]
pub struct IrohTransport {
    pub(super) shared: Arc<IrohShared>,
    pub(super) runtime: Handle,
    relay: RelayConfig,
    stop_sender: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl IrohTransport {
    /// Listens at an address. Port 0 selects any free port. An unspecified address means all interfaces of both IP
    /// families, with any free port in the other family. Peers that know the token are admitted. Events go into
    /// `queue`; events for which it has no room are dropped.
    ///
    /// The call waits for no server: a relay connects in the background.
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
        let (bound_sender, bound_receiver) = sync_channel(1);
        let (stop_sender, stop_receiver) = oneshot::channel();
        let body = move || {
            runtime.block_on(async move {
                let shared = match bind(addr, key, mode).await {
                    Ok(endpoint) => Arc::new(IrohShared::new(endpoint, token, queue)),
                    Err(error) => return drop(bound_sender.send(Err(error))),
                };
                let accepting = tokio::spawn(Arc::clone(&shared).accept_loop());
                let endpoint = shared.endpoint.clone();
                drop(bound_sender.send(Ok(shared)));
                // The wait ends when the transport drops its end of the channel.
                let _ = stop_receiver.await;
                accepting.abort();
                let _ = timeout(CLOSE_TIMEOUT, endpoint.close()).await;
            });
        };
        let thread = std::thread::Builder::new().name("net".into()).spawn(body)?;
        let shared = bound_receiver.recv().map_err(io::Error::other)??;
        Ok(Self { shared, runtime: handle, relay, stop_sender: Some(stop_sender), thread: Some(thread) })
    }

    /// Returns this site's key with the relay and the socket addresses that are known so far.
    pub fn addr(&self) -> IrohAddr {
        IrohAddr::new(self.shared.key(), &self.shared.endpoint.addr().addrs)
    }

    /// Returns the ticket that admits others. The ticket includes the relay once the relay has
    /// [answered](Self::wait_for_relay).
    pub fn ticket(&self) -> Ticket {
        Ticket::Iroh { addr: self.addr(), token: self.shared.token.clone() }
    }

    /// Waits up to `limit` for a relay to answer. Returns `false` if none has, or none is configured.
    pub fn wait_for_relay(&self, limit: Duration) -> bool {
        let online = async { timeout(limit, self.shared.endpoint.online()).await.is_ok() };
        self.relay != RelayConfig::None && self.runtime.block_on(online)
    }

    /// Sends a datagram that is too long for the path, as a stream of its own. Returns `false` if 64 such datagrams are
    /// in transit already.
    pub(super) fn send_as_stream(&self, connection: Connection, bytes: Bytes) -> bool {
        let Ok(permit) = Arc::clone(&self.shared.stream_permits).try_acquire_owned() else { return false };
        self.runtime.spawn(async move {
            // A failed stream counts as packet loss.
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
            // An error means that the thread panicked, which the panic hook has already reported.
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
    let alpns = ConnectionPurpose::ALL.map(|kind| kind.alpn().to_vec()).to_vec();
    let mut builder = Endpoint::builder(presets::Minimal)
        .secret_key(key)
        .alpns(alpns)
        .relay_mode(relay)
        .transport_config(ConnectionPurpose::Game.transport_config());
    if !addr.ip().is_unspecified() {
        builder = builder.clear_ip_transports();
    }
    let endpoint = builder.bind_addr(addr).map_err(io::Error::other)?.bind().await.map_err(io::Error::other)?;
    let mut addrs = endpoint.watch_addr();
    let known = async { while addrs.get().is_empty() && addrs.updated().await.is_ok() {} };
    // Without any network there may be no address; the endpoint can still dial.
    let _ = timeout(ADDR_DISCOVERY_TIMEOUT, known).await;
    Ok(endpoint)
}

impl Transport for IrohTransport {
    fn key(&self) -> PeerKey {
        self.shared.key()
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let kind = if is_feed(bytes) { ConnectionPurpose::Bulk } else { ConnectionPurpose::Game };
        let Some(connection) = self.shared.connections.newest(to, kind) else { return false };
        let bytes = Bytes::copy_from_slice(bytes);
        match connection.send_datagram(bytes.clone()) {
            Err(SendDatagramError::TooLarge) => self.send_as_stream(connection, bytes),
            sent => sent.is_ok(),
        }
    }

    fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>) {
        self.shared.dial(&self.runtime, addr, expect);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.shared.dials().remove(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        let connection = self.shared.connections.newest(peer, ConnectionPurpose::Game)?;
        let paths: Vec<_> = connection.paths().iter().map(|path| path.remote_addr().clone()).collect();
        Some(IrohAddr::new(*peer, &paths).to_peer_addr())
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        vec![self.addr().to_peer_addr()]
    }

    fn drop_counts(&self) -> DropCounts {
        let (rejected, queue_full) = self.shared.drop_counts();
        let sockets = self.shared.endpoint.bound_sockets();
        DropCounts {
            rejected,
            kernel_dropped: sockets.into_iter().filter_map(udp::kernel_drop_count).sum(),
            queue_full,
        }
    }
}
