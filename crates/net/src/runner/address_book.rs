//! Maps the keys of peers to the addresses by which the engine knows them.

use std::collections::BTreeMap;

use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};

use crate::key::PeerKey;
use crate::lobby::LobbyInfo;

/// Lowest engine address of a spectator. The engine address of a seated peer is the number of its seat.
const FIRST_SPECTATOR_ADDR: u64 = 1_000;
/// Maximum number of remembered spectators; one more evicts the spectator that has been silent for longest.
const MAX_SPECTATORS: usize = 8_192;
/// Silence after which a spectator is forgotten when the next new one arrives; long, because a suspended computer may
/// return.
const SPECTATOR_TIMEOUT: TimeDelta = TimeDelta::from_secs(15 * 60);
const SWEEP_INTERVAL: TimeDelta = TimeDelta::from_secs(10);

/// Engine addresses of seated peers and of spectators.
#[derive(Debug, Default)]
pub(super) struct AddressBook {
    seats: BTreeMap<u64, PeerKey>,
    spectators: BTreeMap<PeerKey, SpectatorEntry>,
    spectator_keys: BTreeMap<u64, PeerKey>,
    next_spectator: u64,
    next_sweep: Instant,
}

#[derive(Clone, Copy, Debug)]
struct SpectatorEntry {
    addr: u64,
    last_received: Instant,
}

/// Role of a peer, which decides which of its datagrams the engine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerRole {
    /// Owner of a seat.
    Player(Addr),
    /// A peer without a seat, of which the engine gets at most the datagrams of the spectator feed.
    Spectator(Addr),
}

impl AddressBook {
    pub(super) fn set_members(&mut self, lobby: &LobbyInfo) {
        self.seats = lobby.members.iter().map(|member| (u64::from(member.site), member.key)).collect();
    }

    /// Returns whether a peer owns a seat.
    pub(super) fn is_seated(&self, key: &PeerKey) -> bool {
        self.seats.values().any(|seated| seated == key)
    }

    /// Returns the role of a peer from which a datagram arrived at `now`, and remembers a peer without a seat as a
    /// spectator.
    pub(super) fn role_of(&mut self, now: Instant, key: PeerKey) -> PeerRole {
        if let Some((site, _)) = self.seats.iter().find(|(_, seated)| **seated == key) {
            return PeerRole::Player(Addr(*site));
        }
        if let Some(spectator) = self.spectators.get_mut(&key) {
            spectator.last_received = now;
            return PeerRole::Spectator(Addr(spectator.addr));
        }
        self.evict_spectators(now);
        let addr = FIRST_SPECTATOR_ADDR + self.next_spectator;
        self.next_spectator += 1;
        self.spectators.insert(key, SpectatorEntry { addr, last_received: now });
        self.spectator_keys.insert(addr, key);
        PeerRole::Spectator(Addr(addr))
    }

    /// Forgets spectators silent for 15 min, at most every 10 s, and if the book is full, the spectator that has been
    /// silent for longest.
    fn evict_spectators(&mut self, now: Instant) {
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.spectators.retain(|_, spectator| now - spectator.last_received < SPECTATOR_TIMEOUT);
            self.spectator_keys.retain(|_, key| self.spectators.contains_key(key));
        }
        if self.spectators.len() < MAX_SPECTATORS {
            return;
        }
        if let Some(stalest) =
            self.spectators.iter().min_by_key(|(_, spectator)| spectator.last_received).map(|(key, _)| *key)
            && let Some(spectator) = self.spectators.remove(&stalest)
        {
            self.spectator_keys.remove(&spectator.addr);
        }
    }

    pub(super) fn key_of(&self, addr: Addr) -> Option<PeerKey> {
        self.seats.get(&addr.0).or_else(|| self.spectator_keys.get(&addr.0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lobby::LobbyMember;

    const NOW: Instant = Instant::ZERO;

    fn key(number: u32) -> PeerKey {
        let mut key = [9; 32];
        key[..4].copy_from_slice(&number.to_le_bytes());
        PeerKey(key)
    }

    #[test]
    fn seated_peer_gets_seat_address_and_others_spectator_address() {
        let member = LobbyMember {
            site: 3,
            key: key(3),
            name: String::new(),
            pads: 1,
            addrs: vec![],
            is_ready: true,
            is_present: true,
        };
        let lobby = LobbyInfo {
            serial: 1,
            session: 1,
            settings: vec![],
            is_started: true,
            members: vec![member],
            allows_spectators: true,
            spectator_count: 0,
            your_site: None,
        };
        let mut book = AddressBook::default();
        book.set_members(&lobby);
        assert_eq!(book.role_of(NOW, key(3)), PeerRole::Player(Addr(3)));
        assert!(book.is_seated(&key(3)) && !book.is_seated(&key(9)));
        let stranger = book.role_of(NOW, key(9));
        assert!(matches!(stranger, PeerRole::Spectator(addr) if book.key_of(addr) == Some(key(9))));
        assert_eq!(book.role_of(NOW, key(9)), stranger, "the address is stable");
    }

    #[test]
    fn silent_spectators_are_evicted_oldest_first() {
        let mut book = AddressBook::default();
        let first = book.role_of(NOW, key(0));
        let early = NOW + TimeDelta::from_secs(1);
        (1..MAX_SPECTATORS as u32).for_each(|number| _ = book.role_of(early, key(number)));
        assert_eq!(book.role_of(early + SWEEP_INTERVAL, key(0)), first);
        (0..100).for_each(|number| _ = book.role_of(early + SWEEP_INTERVAL, key(1_000_000 + number)));
        assert_eq!(book.role_of(early + SWEEP_INTERVAL, key(0)), first, "it was active after the others");
        assert_eq!((book.spectators.len(), book.spectator_keys.len()), (MAX_SPECTATORS, MAX_SPECTATORS));
        let late = early + SWEEP_INTERVAL + SPECTATOR_TIMEOUT;
        book.role_of(late, key(2_000_000));
        assert_eq!((book.spectators.len(), book.spectator_keys.len()), (1, 1));
    }
}
