//! Calling a peer until it answers, and again when the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use ::iroh::endpoint::{ConnectOptions, Connection, ConnectionError};
use tokio::time::{Instant, sleep, timeout};

use super::accept::IrohShared;
use super::addr::IrohAddr;
use super::quic::ConnectionKind;
use super::token_proof::{self, ConnectError};
use crate::key::PeerKey;
use crate::transport::{Incoming, PeerAddr};

/// Who calls is told after so long that nobody answers, and goes on trying.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(4);
/// An attempt takes so long at first, and later: what was not heard because nobody was there yet is soon said again, and who is far
/// away has the time to answer.
const FIRST_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between attempts, and after a refusal, which will hardly change.
const RETRY_DELAY: Duration = Duration::from_millis(250);
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(4);
/// A peer that was lost is called for so long: a computer may sleep.
const REDIAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The most peers that are called at once.
const MAX_DIALS: usize = 256;

/// A call, from the first attempt until the peer says goodbye.
struct DialTask {
    shared: Arc<IrohShared>,
    peer: PeerKey,
    addr: PeerAddr,
    is_reported: bool,
    /// It was reached before.
    is_redial: bool,
}

impl IrohShared {
    /// Begins a call; adds what is known, if the peer is being called already.
    pub(super) fn dial(self: &Arc<Self>, runtime: &tokio::runtime::Handle, place: &PeerAddr, expect: Option<PeerKey>) {
        let Some(home) = IrohAddr::from_peer_addr(place) else { return };
        if home.key == self.key() || expect.is_some_and(|expected| expected != home.key) {
            return self.enqueue(Incoming::WrongPeer { addr: place.clone() });
        }
        let mut calls = self.dials();
        if let Some(known) = calls.get_mut(&home.key) {
            return known.merge(&home);
        }
        if calls.len() == MAX_DIALS {
            return;
        }
        let peer = home.key;
        calls.insert(peer, home);
        let call =
            DialTask { shared: Arc::clone(self), peer, addr: place.clone(), is_reported: false, is_redial: false };
        runtime.spawn(call.run());
    }

    async fn connect(&self, peer: PeerKey, kind: ConnectionKind, limit: Duration) -> Result<Connection, ConnectError> {
        let home = self.dials().get(&peer).and_then(IrohAddr::endpoint_addr).ok_or(ConnectError::NoAnswer)?;
        let options = ConnectOptions::new().with_transport_config(kind.transport_config());
        let dialing = async {
            let connecting = self.endpoint.connect_with_opts(home, kind.alpn(), options).await;
            let connection =
                connecting.map_err(|_| ConnectError::NoAnswer)?.await.map_err(|_| ConnectError::NoAnswer)?;
            token_proof::prove_as_dialer(&connection, &self.token).await?;
            Ok(connection)
        };
        timeout(limit, dialing).await.unwrap_or(Err(ConnectError::NoAnswer))
    }

    /// Keeps a connection for bulk beside one for the game.
    async fn maintain_bulk(self: Arc<Self>, peer: PeerKey, game: Connection) {
        let mut pause = RETRY_DELAY;
        while game.close_reason().is_none() {
            if let Ok(bulk) = self.connect(peer, ConnectionKind::Bulk, MAX_ATTEMPT_TIMEOUT).await {
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

    /// Calls until there is a connection; `None` if there is no need for one of ours, no use in trying, or no wish to.
    async fn connect(&mut self) -> Option<Connection> {
        let since = Instant::now();
        let mut limit = FIRST_ATTEMPT_TIMEOUT;
        while self.shared.dials().contains_key(&self.peer) {
            if self.shared.connections.newest(&self.peer, ConnectionKind::Game).is_some() {
                // It called us.
                self.shared.enqueue(Incoming::Connected { peer: self.peer, dialed: Some(self.addr.clone()) });
                return None;
            }
            match self.shared.connect(self.peer, ConnectionKind::Game, limit).await {
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

/// Whether a connection was ended on purpose, by either side, and not by a failure of the way.
fn is_deliberate_close(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed)
}
