//! Dial tasks: each keeps dialing a peer until it answers, and redials it when the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use ::iroh::endpoint::{ConnectOptions, Connection, ConnectionError};
use tokio::time::{Instant, sleep, timeout};

use super::accept::IrohShared;
use super::quic::ConnectionPurpose;
use super::token_proof::{self, ConnectError};
use crate::key::PeerKey;
use crate::peer_addr::IrohAddr;
use crate::peer_addr::PeerAddr;
use crate::transport::Incoming;

/// Time without a connection after which the transport reports `Unreachable`; dialing continues.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout of the first attempts; after [`UNREACHABLE_TIMEOUT`] it doubles with each attempt. A short timeout soon
/// repeats a packet that was sent before the peer listened; a long one leaves a distant peer enough time to answer.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum timeout of an attempt, and maximum pause before a bulk connection is dialed again.
const MAX_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an unanswered attempt, and first pause before a bulk connection is dialed again.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Pause after a peer rejected the token: the next attempt is unlikely to succeed.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(4);
/// Time for which a lost peer is redialed: its computer may be suspended.
const REDIAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Maximum number of dial tasks; further dials are ignored. A task continues while the connection that it established
/// is open.
const MAX_DIALS: usize = 256;

/// Task that dials one peer, and redials it if a network failure ended the connection.
struct DialTask {
    shared: Arc<IrohShared>,
    peer: PeerKey,
    addr: PeerAddr,
    is_reported: bool,
    /// Whether the peer was connected before.
    is_redial: bool,
}

impl IrohShared {
    /// Starts a task that dials the peer of this address; if that peer has a dial task already, adds the address to it.
    /// Reports `WrongPeer` instead if the key in the address is this site's own or not the expected one. Ignores an
    /// invalid address, an address of another transport, and a new peer while there are [`MAX_DIALS`] tasks.
    pub(super) fn dial(self: &Arc<Self>, runtime: &tokio::runtime::Handle, addr: &PeerAddr, expect: Option<PeerKey>) {
        let Some(iroh_addr) = IrohAddr::from_peer_addr(addr) else { return };
        if iroh_addr.key == self.key() || expect.is_some_and(|expected| expected != iroh_addr.key) {
            return self.enqueue(Incoming::WrongPeer { addr: addr.clone() });
        }
        let mut dials = self.dials();
        if let Some(known) = dials.get_mut(&iroh_addr.key) {
            return known.merge(&iroh_addr);
        }
        if dials.len() == MAX_DIALS {
            return;
        }
        let peer = iroh_addr.key;
        dials.insert(peer, iroh_addr);
        let task =
            DialTask { shared: Arc::clone(self), peer, addr: addr.clone(), is_reported: false, is_redial: false };
        runtime.spawn(task.run());
    }

    async fn connect(
        &self,
        peer: PeerKey,
        kind: ConnectionPurpose,
        limit: Duration,
    ) -> Result<Connection, ConnectError> {
        let iroh_addr = self.dials().get(&peer).and_then(IrohAddr::endpoint_addr).ok_or(ConnectError::NoAnswer)?;
        let options = ConnectOptions::new().with_transport_config(kind.transport_config());
        let dialing = async {
            let connecting = self.endpoint.connect_with_opts(iroh_addr, kind.alpn(), options).await;
            let connection =
                connecting.map_err(|_| ConnectError::NoAnswer)?.await.map_err(|_| ConnectError::NoAnswer)?;
            token_proof::prove_as_dialer(&connection, &self.token).await?;
            Ok(connection)
        };
        timeout(limit, dialing).await.unwrap_or(Err(ConnectError::NoAnswer))
    }

    /// Keeps a bulk connection open as long as the game connection is open.
    async fn maintain_bulk(self: Arc<Self>, peer: PeerKey, game: Connection) {
        let mut pause = RETRY_DELAY;
        while game.close_reason().is_none() {
            if let Ok(bulk) = self.connect(peer, ConnectionPurpose::Bulk, MAX_ATTEMPT_TIMEOUT).await {
                self.add_connection(bulk.clone(), None);
                bulk.closed().await;
            }
            sleep(pause).await;
            pause = (2 * pause).min(MAX_ATTEMPT_TIMEOUT);
        }
    }
}

impl DialTask {
    async fn run(mut self) {
        while let Some(connection) = self.connect().await {
            self.shared.add_connection(connection.clone(), Some(self.addr.clone()));
            tokio::spawn(Arc::clone(&self.shared).maintain_bulk(self.peer, connection.clone()));
            if is_deliberate_close(&connection.closed().await) {
                break;
            }
            (self.is_reported, self.is_redial) = (false, true);
        }
        self.shared.dials().remove(&self.peer);
    }

    /// Keeps dialing until there is a connection. Returns `None` if the peer connected to this site first, if the
    /// peer's token proof is invalid, if redialing timed out, or if the dial was canceled.
    async fn connect(&mut self) -> Option<Connection> {
        let since = Instant::now();
        let mut limit = FIRST_ATTEMPT_TIMEOUT;
        while self.shared.dials().contains_key(&self.peer) {
            if self.shared.connections.newest(&self.peer, ConnectionPurpose::Game).is_some() {
                // The peer dialed this site.
                self.shared.enqueue(Incoming::Connected { peer: self.peer, dialed: Some(self.addr.clone()) });
                return None;
            }
            match self.shared.connect(self.peer, ConnectionPurpose::Game, limit).await {
                Ok(connection) => return Some(connection),
                Err(ConnectError::WrongToken) => {
                    self.report_unreachable(true);
                    sleep(REFUSED_RETRY_DELAY).await;
                }
                Err(ConnectError::WrongPeer) => {
                    self.shared.enqueue(Incoming::WrongPeer { addr: self.addr.clone() });
                    return None;
                }
                Err(ConnectError::NoAnswer) => sleep(RETRY_DELAY).await,
            }
            if since.elapsed() >= UNREACHABLE_TIMEOUT {
                self.report_unreachable(false);
                limit = (2 * limit).min(MAX_ATTEMPT_TIMEOUT);
            }
            if self.is_redial && since.elapsed() >= REDIAL_TIMEOUT {
                return None;
            }
        }
        None
    }

    fn report_unreachable(&mut self, refused: bool) {
        if !self.is_reported {
            self.is_reported = true;
            self.shared.enqueue(Incoming::Unreachable { addr: self.addr.clone(), wrong_secret: refused });
        }
    }
}

/// Returns whether either side closed the connection on purpose, as opposed to a network failure.
fn is_deliberate_close(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed)
}
