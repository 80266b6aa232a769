//! The connections that there are.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ::iroh::endpoint::Connection;

use super::quic::ConnectionKind;
use super::token_proof::CLOSE_NOT_NEEDED;
use crate::key::PeerKey;

/// The most peers with a connection.
const MAX_PEERS: usize = 1_024;
/// The most connections of a kind to one peer: two can call each other at the same time, or come back before the old one is
/// known to be dead.
const MAX_CONNECTIONS_PER_KIND: usize = 4;

/// Those to one peer, the newest last.
#[derive(Debug, Default)]
struct PeerConnections {
    game: Vec<Connection>,
    bulk: Vec<Connection>,
}

/// Those to all peers. Who sends looks here and need not wait for the thread that listens.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable(RwLock<BTreeMap<PeerKey, PeerConnections>>);

impl PeerConnections {
    fn of_kind(&mut self, kind: ConnectionKind) -> &mut Vec<Connection> {
        match kind {
            ConnectionKind::Game => &mut self.game,
            ConnectionKind::Bulk => &mut self.bulk,
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

    /// Adds a connection, if there is room for another peer.
    pub(super) fn add(&self, peer: PeerKey, kind: ConnectionKind, connection: Connection) -> bool {
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

    pub(super) fn remove(&self, peer: &PeerKey, kind: ConnectionKind, connection: &Connection) {
        let mut table = self.write();
        let Some(links) = table.get_mut(peer) else { return };
        links.of_kind(kind).retain(|link| link.stable_id() != connection.stable_id());
        if links.game.is_empty() && links.bulk.is_empty() {
            table.remove(peer);
        }
    }

    /// The newest connection of a kind; bulk takes the game's if it has none of its own.
    pub(super) fn newest(&self, peer: &PeerKey, kind: ConnectionKind) -> Option<Connection> {
        let table = self.read();
        let links = table.get(peer)?;
        let bulk = links.bulk.last().filter(|_| kind == ConnectionKind::Bulk);
        bulk.or(links.game.last()).cloned()
    }
}
