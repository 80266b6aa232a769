//! Table of the established connections, by peer and purpose.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ::iroh::endpoint::Connection;

use super::quic::ConnectionPurpose;
use super::token_proof::CLOSE_NOT_NEEDED;
use crate::key::PeerKey;

/// Maximum number of connected peers; connections of further ones are closed.
const MAX_PEERS: usize = 1_024;
/// Maximum number of connections to one peer for the same purpose: two peers can dial each other at the same time, or a
/// peer can return before its old connection is known to be dead.
const MAX_CONNECTIONS_PER_KIND: usize = 4;

/// Connections to one peer, the newest last.
#[derive(Debug, Default)]
struct PeerConnections {
    game: Vec<Connection>,
    bulk: Vec<Connection>,
}

/// Connections to all peers. A sending thread looks up a connection here without waiting for the network thread.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable(RwLock<BTreeMap<PeerKey, PeerConnections>>);

impl PeerConnections {
    fn of_kind(&mut self, kind: ConnectionPurpose) -> &mut Vec<Connection> {
        match kind {
            ConnectionPurpose::Game => &mut self.game,
            ConnectionPurpose::Bulk => &mut self.bulk,
        }
    }
}

impl ConnectionTable {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<PeerKey, PeerConnections>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<PeerKey, PeerConnections>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and closes the oldest one if the peer has four for the same purpose already. Returns `false`,
    /// without adding the connection, if there is no room for another peer.
    pub(super) fn add(&self, peer: PeerKey, kind: ConnectionPurpose, connection: Connection) -> bool {
        let mut table = self.write();
        if table.len() >= MAX_PEERS && !table.contains_key(&peer) {
            return false;
        }
        let links = table.entry(peer).or_default().of_kind(kind);
        if links.len() == MAX_CONNECTIONS_PER_KIND {
            links.remove(0).close(CLOSE_NOT_NEEDED, b"");
        }
        links.push(connection);
        true
    }

    pub(super) fn remove(&self, peer: &PeerKey, kind: ConnectionPurpose, connection: &Connection) {
        let mut table = self.write();
        let Some(links) = table.get_mut(peer) else { return };
        links.of_kind(kind).retain(|link| link.stable_id() != connection.stable_id());
        if links.game.is_empty() && links.bulk.is_empty() {
            table.remove(peer);
        }
    }

    /// Returns the newest connection to a peer for this purpose; for bulk data without a bulk connection, the newest
    /// game connection. `None` without such a connection.
    pub(super) fn newest(&self, peer: &PeerKey, kind: ConnectionPurpose) -> Option<Connection> {
        let table = self.read();
        let links = table.get(peer)?;
        let bulk = links.bulk.last().filter(|_| kind == ConnectionPurpose::Bulk);
        bulk.or(links.game.last()).cloned()
    }
}
