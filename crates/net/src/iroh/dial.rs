//! Calling a peer until it answers, and again when the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use ::iroh::endpoint::{ConnectOptions, Connection, ConnectionError};
use tokio::time::{Instant, sleep, timeout};

use super::home::Home;
use super::net::Shared;
use super::proof::{self, Missed};
use super::quic::Kind;
use crate::key::PeerKey;
use crate::transport::{Incoming, Place};

/// Who calls is told after so long that nobody answers, and goes on trying.
const PATIENCE: Duration = Duration::from_secs(4);
/// An attempt takes so long at first, and later: what was not heard because nobody was there yet is soon said again, and who is far
/// away has the time to answer.
const FIRST_ATTEMPT: Duration = Duration::from_secs(2);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(10);
/// The time between attempts, and after a refusal, which will hardly change.
const PAUSE: Duration = Duration::from_millis(250);
const AFTER_REFUSAL: Duration = Duration::from_secs(4);
/// A peer that was lost is called for so long: a computer may sleep.
const LOST: Duration = Duration::from_secs(15 * 60);
/// The most peers that are called at once.
const MAX_CALLS: usize = 256;

/// A call, from the first attempt until the peer says goodbye.
struct Call {
    shared: Arc<Shared>,
    peer: PeerKey,
    place: Place,
    told: bool,
    /// It was reached before.
    lost: bool,
}

impl Shared {
    /// Begins a call; adds what is known, if the peer is being called already.
    pub(super) fn call(self: &Arc<Self>, runtime: &tokio::runtime::Handle, place: &Place, expect: Option<PeerKey>) {
        let Some(home) = Home::from_place(place) else { return };
        if home.key == self.key() || expect.is_some_and(|expected| expected != home.key) {
            return self.give(Incoming::Stranger { place: place.clone() });
        }
        let mut calls = self.calls();
        if let Some(known) = calls.get_mut(&home.key) {
            return known.merge(&home);
        }
        if calls.len() == MAX_CALLS {
            return;
        }
        let peer = home.key;
        calls.insert(peer, home);
        let call = Call { shared: Arc::clone(self), peer, place: place.clone(), told: false, lost: false };
        runtime.spawn(call.run());
    }

    async fn attempt(&self, peer: PeerKey, kind: Kind, limit: Duration) -> Result<Connection, Missed> {
        let home = self.calls().get(&peer).and_then(Home::endpoint_addr).ok_or(Missed::Silence)?;
        let options = ConnectOptions::new().with_transport_config(kind.config());
        let dialing = async {
            let connecting = self.endpoint.connect_with_opts(home, kind.alpn(), options).await;
            let connection = connecting.map_err(|_| Missed::Silence)?.await.map_err(|_| Missed::Silence)?;
            proof::show(&connection, &self.token).await?;
            Ok(connection)
        };
        timeout(limit, dialing).await.unwrap_or(Err(Missed::Silence))
    }

    /// Keeps a connection for bulk beside one for the game.
    async fn keep_bulk(self: Arc<Self>, peer: PeerKey, game: Connection) {
        let mut pause = PAUSE;
        while game.close_reason().is_none() {
            if let Ok(bulk) = self.attempt(peer, Kind::Bulk, LONGEST_ATTEMPT).await {
                self.take(bulk.clone(), None);
                bulk.closed().await;
            }
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_ATTEMPT);
        }
    }
}

impl Call {
    async fn run(mut self) {
        while let Some(connection) = self.reach().await {
            self.shared.take(connection.clone(), Some(self.place.clone()));
            tokio::spawn(Arc::clone(&self.shared).keep_bulk(self.peer, connection.clone()));
            if is_goodbye(&connection.closed().await) {
                break;
            }
            (self.told, self.lost) = (false, true);
        }
        self.shared.calls().remove(&self.peer);
    }

    /// Calls until there is a connection; `None` if there is no need for one of ours, no use in trying, or no wish to.
    async fn reach(&mut self) -> Option<Connection> {
        let since = Instant::now();
        let mut limit = FIRST_ATTEMPT;
        while self.shared.calls().contains_key(&self.peer) {
            if self.shared.links.newest(&self.peer, Kind::Game).is_some() {
                // It called us.
                self.shared.give(Incoming::Up { peer: self.peer, called: Some(self.place.clone()) });
                return None;
            }
            match self.shared.attempt(self.peer, Kind::Game, limit).await {
                Ok(connection) => return Some(connection),
                Err(Missed::Refused) => {
                    self.tell(true);
                    sleep(AFTER_REFUSAL).await;
                }
                Err(Missed::Stranger) => {
                    self.shared.give(Incoming::Stranger { place: self.place.clone() });
                    return None;
                }
                Err(Missed::Silence) => sleep(PAUSE).await,
            }
            if since.elapsed() >= PATIENCE {
                self.tell(false);
                limit = (2 * limit).min(LONGEST_ATTEMPT);
            }
            if self.lost && since.elapsed() >= LOST {
                return None;
            }
        }
        None
    }

    fn tell(&mut self, refused: bool) {
        if !self.told {
            self.told = true;
            self.shared.give(Incoming::Unanswered { place: self.place.clone(), refused });
        }
    }
}

/// Whether a connection was ended on purpose, by either side, and not by a failure of the way.
fn is_goodbye(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed)
}
