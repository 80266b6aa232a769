//! What the thread does: lets in who calls, and takes what comes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::iroh::Endpoint;
use ::iroh::endpoint::{Accepting, Connection, ServerConfig};
use coplay::wire::MAX_DATAGRAM;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::home::Home;
use super::links::Table;
use super::proof::{self, NOT_NEEDED};
use super::quic::{Kind, MAX_STREAMS};
use crate::clock;
use crate::key::{PeerKey, Token};
use crate::transport::{Incoming, Place};

/// Who calls has so long to connect and to prove that it knows the token.
const PROOF: Duration = Duration::from_secs(5);
/// The most who are about to; of more, the one who takes longest has to go.
const MAX_UNPROVEN: usize = 64;
/// From so many on, a caller must first show that its address is its own, which costs it a round trip.
const BUSY: usize = 16;

/// What the thread and those who send share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) token: Token,
    pub(super) links: Table,
    /// Whom we call, and what we know of where it lives.
    calls: Mutex<BTreeMap<PeerKey, Home>>,
    queue: SyncSender<Incoming>,
    by_us: AtomicU64,
    crowded_out: AtomicU64,
    /// One for each datagram that may be on its way as a stream.
    pub(super) streams: Arc<Semaphore>,
}

pub(super) fn key_of(connection: &Connection) -> PeerKey {
    PeerKey(*connection.remote_id().as_bytes())
}

impl Shared {
    pub(super) fn new(endpoint: Endpoint, token: Token, queue: SyncSender<Incoming>) -> Self {
        Self {
            endpoint,
            token,
            links: Table::default(),
            calls: Mutex::default(),
            queue,
            by_us: AtomicU64::new(0),
            crowded_out: AtomicU64::new(0),
            streams: Arc::new(Semaphore::new(2 * MAX_STREAMS as usize)),
        }
    }

    pub(super) fn key(&self) -> PeerKey {
        PeerKey(*self.endpoint.id().as_bytes())
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, BTreeMap<PeerKey, Home>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn give(&self, incoming: Incoming) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(incoming) {
            self.crowded_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn refuse(&self) {
        self.by_us.fetch_add(1, Ordering::Relaxed);
    }

    /// What was refused, and what found no room.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.by_us.load(Ordering::Relaxed), self.crowded_out.load(Ordering::Relaxed))
    }

    /// Lets in who calls, until the endpoint closes.
    pub(super) async fn accept(self: Arc<Self>) {
        let configs = Kind::ALL.map(|kind| server_config(&self.endpoint, kind));
        let mut unproven: VecDeque<AbortHandle> = VecDeque::new();
        while let Some(incoming) = self.endpoint.accept().await {
            unproven.retain(|task| !task.is_finished());
            if unproven.len() >= BUSY && !incoming.remote_addr_validated() {
                // It fails only for who was asked before, which is not the case here.
                let _ = incoming.retry();
                continue;
            }
            if unproven.len() == MAX_UNPROVEN
                && let Some(oldest) = unproven.pop_front()
            {
                oldest.abort();
                self.refuse();
            }
            // A call for both, or for something unknown, gets the game's: what is agreed on in the end is looked at later.
            let mut alpns = incoming.decrypt().and_then(|initial| initial.alpns()).into_iter().flatten().flatten();
            let bulk = alpns.next().is_some_and(|alpn| &alpn[..] == Kind::Bulk.alpn());
            match incoming.accept_with(Arc::clone(&configs[usize::from(bulk)])) {
                Ok(accepting) => {
                    unproven.push_back(tokio::spawn(Arc::clone(&self).admit(accepting)).abort_handle());
                }
                Err(_) => self.refuse(),
            }
        }
    }

    async fn admit(self: Arc<Self>, accepting: Accepting) {
        let proven = async {
            let connection = accepting.await.ok()?;
            proof::check(&connection, &self.token).await.then_some(connection)
        };
        match timeout(PROOF, proven).await {
            Ok(Some(connection)) => self.take(connection, None),
            _ => self.refuse(),
        }
    }

    /// Takes a connection whose other end has proven that it belongs to us.
    pub(super) fn take(self: &Arc<Self>, connection: Connection, called: Option<Place>) {
        let peer = key_of(&connection);
        let kind = Kind::of_alpn(connection.alpn()).filter(|kind| self.links.add(peer, *kind, connection.clone()));
        let Some(kind) = kind else {
            connection.close(NOT_NEEDED, b"");
            return self.refuse();
        };
        if kind == Kind::Game {
            self.give(Incoming::Up { peer, called });
        }
        tokio::spawn(Arc::clone(self).hear_streams(connection.clone()));
        tokio::spawn(Arc::clone(self).hear(connection, kind));
    }

    async fn hear(self: Arc<Self>, connection: Connection, kind: Kind) {
        let from = key_of(&connection);
        while let Ok(bytes) = connection.read_datagram().await {
            self.hand_over(from, bytes.into());
        }
        self.links.remove(&from, kind, &connection);
    }

    /// Datagrams that were too long for the path come as streams. There are never more than was allowed at once.
    async fn hear_streams(self: Arc<Self>, connection: Connection) {
        let from = key_of(&connection);
        while let Ok(mut stream) = connection.accept_uni().await {
            let shared = Arc::clone(&self);
            tokio::spawn(async move {
                match stream.read_to_end(MAX_DATAGRAM).await {
                    Ok(bytes) => shared.hand_over(from, bytes),
                    Err(_) => shared.refuse(),
                }
            });
        }
    }

    fn hand_over(&self, from: PeerKey, bytes: Vec<u8>) {
        if bytes.is_empty() || bytes.len() > MAX_DATAGRAM {
            return self.refuse();
        }
        self.give(Incoming::Datagram { at: clock::now(), from, bytes });
    }
}

fn server_config(endpoint: &Endpoint, kind: Kind) -> Arc<ServerConfig> {
    let builder = endpoint.create_server_config_builder(vec![kind.alpn().to_vec()]);
    Arc::new(builder.set_transport_config(kind.config()).build())
}
