//! Work of the network thread: accepts connections and receives datagrams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::iroh::Endpoint;
use ::iroh::endpoint::{Accepting, Connection, ServerConfig};
use coplay::codec::MAX_DATAGRAM;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::connections::ConnectionTable;
use super::quic::{ConnectionPurpose, MAX_STREAMS};
use super::token_proof::{self, CLOSE_NOT_NEEDED};
use crate::clock;
use crate::key::{PeerKey, Token};
use crate::peer_addr::IrohAddr;
use crate::peer_addr::PeerAddr;
use crate::transport::Incoming;

/// Time limit for a dialing peer to connect and to prove that it knows the token.
const PROOF_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of accepted connections without a token proof; one more aborts the oldest.
const MAX_UNPROVEN: usize = 64;
/// Number of accepted connections without a token proof at which the next dialer must first prove its source address,
/// at the cost of a round trip.
const ADDRESS_VALIDATION_THRESHOLD: usize = 16;

/// State shared by the network thread and the threads that send.
#[derive(Debug)]
pub(super) struct IrohShared {
    pub(super) endpoint: Endpoint,
    pub(super) token: Token,
    pub(super) connections: ConnectionTable,
    /// Known addresses of each peer that has a dial task, unless the dial was canceled. A task continues after it has
    /// connected, to redial the peer if the connection is lost.
    dials: Mutex<BTreeMap<PeerKey, IrohAddr>>,
    incoming_sender: SyncSender<Incoming>,
    rejected: AtomicU64,
    queue_full: AtomicU64,
    /// Permits for outgoing datagrams that travel as streams; 64 may be in transit at once.
    pub(super) stream_permits: Arc<Semaphore>,
}

pub(super) fn peer_key(connection: &Connection) -> PeerKey {
    PeerKey(*connection.remote_id().as_bytes())
}

impl IrohShared {
    pub(super) fn new(endpoint: Endpoint, token: Token, queue: SyncSender<Incoming>) -> Self {
        Self {
            endpoint,
            token,
            connections: ConnectionTable::default(),
            dials: Mutex::default(),
            incoming_sender: queue,
            rejected: AtomicU64::new(0),
            queue_full: AtomicU64::new(0),
            stream_permits: Arc::new(Semaphore::new(2 * MAX_STREAMS as usize)),
        }
    }

    pub(super) fn key(&self) -> PeerKey {
        PeerKey(*self.endpoint.id().as_bytes())
    }

    pub(super) fn dials(&self) -> MutexGuard<'_, BTreeMap<PeerKey, IrohAddr>> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enqueue(&self, incoming: Incoming) {
        if let Err(TrySendError::Full(_)) = self.incoming_sender.try_send(incoming) {
            self.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of rejected datagrams or connections, and of events for which the queue had no room.
    pub(super) fn drop_counts(&self) -> (u64, u64) {
        (self.rejected.load(Ordering::Relaxed), self.queue_full.load(Ordering::Relaxed))
    }

    /// Accepts connections until the endpoint closes.
    pub(super) async fn accept_loop(self: Arc<Self>) {
        let configs = ConnectionPurpose::ALL.map(|kind| server_config(&self.endpoint, kind));
        let mut unproven: VecDeque<AbortHandle> = VecDeque::new();
        while let Some(incoming) = self.endpoint.accept().await {
            unproven.retain(|task| !task.is_finished());
            if unproven.len() >= ADDRESS_VALIDATION_THRESHOLD && !incoming.remote_addr_validated() {
                // `retry` fails only for an address that is already validated, and this one is not.
                let _ = incoming.retry();
                continue;
            }
            if unproven.len() == MAX_UNPROVEN
                && let Some(oldest) = unproven.pop_front()
            {
                oldest.abort();
                self.count_rejected();
            }
            // A dialer whose first ALPN is not bulk gets the game configuration; `add_connection` checks the negotiated
            // ALPN.
            let mut alpns = incoming.decrypt().and_then(|initial| initial.alpns()).into_iter().flatten().flatten();
            let bulk = alpns.next().is_some_and(|alpn| &alpn[..] == ConnectionPurpose::Bulk.alpn());
            match incoming.accept_with(Arc::clone(&configs[usize::from(bulk)])) {
                Ok(accepting) => {
                    unproven.push_back(tokio::spawn(Arc::clone(&self).admit(accepting)).abort_handle());
                }
                Err(_) => self.count_rejected(),
            }
        }
    }

    async fn admit(self: Arc<Self>, accepting: Accepting) {
        let proven = async {
            let connection = accepting.await.ok()?;
            token_proof::prove_as_acceptor(&connection, &self.token).await.then_some(connection)
        };
        match timeout(PROOF_TIMEOUT, proven).await {
            Ok(Some(connection)) => self.add_connection(connection, None),
            _ => self.count_rejected(),
        }
    }

    /// Registers a connection whose peer has proven that it knows the token, reports it if it is a game connection, and
    /// starts receiving on it. Closes it instead if its ALPN is unknown or the table has no room for its peer.
    pub(super) fn add_connection(self: &Arc<Self>, connection: Connection, dialed: Option<PeerAddr>) {
        let peer = peer_key(&connection);
        let kind = ConnectionPurpose::from_alpn(connection.alpn())
            .filter(|kind| self.connections.add(peer, *kind, connection.clone()));
        let Some(kind) = kind else {
            connection.close(CLOSE_NOT_NEEDED, b"");
            return self.count_rejected();
        };
        if kind == ConnectionPurpose::Game {
            self.enqueue(Incoming::Connected { peer, dialed });
        }
        tokio::spawn(Arc::clone(self).read_streams(connection.clone()));
        tokio::spawn(Arc::clone(self).read_datagrams(connection, kind));
    }

    async fn read_datagrams(self: Arc<Self>, connection: Connection, kind: ConnectionPurpose) {
        let from = peer_key(&connection);
        while let Ok(bytes) = connection.read_datagram().await {
            self.deliver(from, bytes.into());
        }
        self.connections.remove(&from, kind, &connection);
    }

    /// Receives datagrams that were too long for the path, each as a stream; QUIC keeps at most [`MAX_STREAMS`] open.
    async fn read_streams(self: Arc<Self>, connection: Connection) {
        let from = peer_key(&connection);
        while let Ok(mut stream) = connection.accept_uni().await {
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                match stream.read_to_end(MAX_DATAGRAM).await {
                    Ok(bytes) => shared.deliver(from, bytes),
                    Err(_) => shared.count_rejected(),
                }
            });
        }
    }

    fn deliver(&self, from: PeerKey, bytes: Vec<u8>) {
        if bytes.is_empty() || bytes.len() > MAX_DATAGRAM {
            return self.count_rejected();
        }
        self.enqueue(Incoming::Datagram { at: clock::now(), from, bytes });
    }
}

fn server_config(endpoint: &Endpoint, kind: ConnectionPurpose) -> Arc<ServerConfig> {
    let builder = endpoint.create_server_config_builder(vec![kind.alpn().to_vec()]);
    Arc::new(builder.set_transport_config(kind.transport_config()).build())
}
