//! Succession of the roster leader, as each member computes it by itself.

use super::message::{LobbyInfo, LobbyMember};
use crate::key::PeerKey;

/// The roster leader as one member knows it: the leader that admitted this site, as long as that leader is present,
/// then the present member with the lowest seat. A former leader that returns does not take the role back from its
/// successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownLeader {
    key: PeerKey,
    /// Whether this site was evicted and does not know yet which other member leads now.
    is_unconfirmed: bool,
}

impl KnownLeader {
    /// Returns the state in which `key` leads.
    pub fn new(key: PeerKey) -> Self {
        Self { key, is_unconfirmed: false }
    }

    /// Returns the key of the leader as far as this site knows.
    pub fn key(&self) -> PeerKey {
        self.key
    }

    /// Handles the departure of the member `gone`, which the caller has marked absent in `lobby`. If that member led,
    /// its successor leads now, if there is one.
    pub fn on_member_gone(&mut self, lobby: &LobbyInfo, gone: &PeerKey) {
        if self.key == *gone {
            self.key = self.successor(lobby).unwrap_or(self.key);
        }
    }

    /// Handles the eviction of this site, whose key is `me`. If this site led, its successor leads now, if there is
    /// one. Until this site has accepted a newer roster, it accepts one from any seated member.
    pub fn on_own_eviction(&mut self, lobby: &LobbyInfo, me: &PeerKey) {
        self.is_unconfirmed = true;
        self.on_member_gone(lobby, me);
    }

    /// Returns whether to accept a newer roster from `from`. Accepted senders are the leader; its successor, which may
    /// learn before this site that the leader is gone; and any seated member, if this site was evicted and has accepted
    /// no roster since then. An accepted sender becomes the leader.
    pub fn accept_update_from(&mut self, lobby: &LobbyInfo, from: &PeerKey) -> bool {
        let seated = lobby.members.iter().any(|member| member.key == *from);
        let accepted = self.key == *from || self.successor(lobby) == Some(*from) || self.is_unconfirmed && seated;
        if accepted {
            *self = Self::new(*from);
        }
        accepted
    }

    /// Returns the present member with the lowest seat, other than the leader; `None` if no other member is present.
    fn successor(&self, lobby: &LobbyInfo) -> Option<PeerKey> {
        let is_successor = |member: &&LobbyMember| member.is_present && member.key != self.key;
        lobby.members.iter().find(is_successor).map(|member| member.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(site: u8) -> PeerKey {
        PeerKey([site; 32])
    }

    /// Returns a lobby of four members with the given presence.
    fn lobby(present: [bool; 4]) -> LobbyInfo {
        let member = |(site, is_present): (u8, bool)| LobbyMember {
            site,
            key: key(site),
            name: String::new(),
            pads: 1,
            addrs: vec![],
            is_ready: true,
            is_present,
        };
        let members = (0..).zip(present).map(member).collect();
        LobbyInfo {
            serial: 1,
            session: 1,
            settings: vec![],
            is_started: true,
            members,
            allows_spectators: true,
            spectator_count: 0,
            your_site: None,
        }
    }

    #[test]
    fn lowest_present_member_takes_over() {
        let mut leader = KnownLeader::new(key(0));
        leader.on_member_gone(&lobby([true, true, false, true]), &key(2));
        assert_eq!(leader.key(), key(0), "another member is gone");
        leader.on_member_gone(&lobby([false, true, false, true]), &key(0));
        assert_eq!(leader.key(), key(1));
        leader.on_member_gone(&lobby([false, false, false, true]), &key(1));
        assert_eq!(leader.key(), key(3));
    }

    #[test]
    fn evicted_host_follows_the_current_leader() {
        let mut host = KnownLeader::new(key(0));
        host.on_own_eviction(&lobby([true; 4]), &key(0));
        assert_eq!(host.key(), key(1));
        // Meanwhile the second member has gone, too.
        let mut third = KnownLeader::new(key(0));
        third.on_member_gone(&lobby([false, true, true, true]), &key(0));
        third.on_member_gone(&lobby([false, false, true, true]), &key(1));
        assert_eq!(third.key(), key(2));
        assert!(host.accept_update_from(&lobby([true; 4]), &key(2)));
        // All are back: no other member takes the role.
        let all = lobby([true; 4]);
        assert_eq!((host.key(), third.key()), (key(2), key(2)));
        assert!(!third.accept_update_from(&all, &key(3)) && third.accept_update_from(&all, &key(2)));
    }

    #[test]
    fn updates_are_accepted_only_from_leader_or_successor() {
        let all = lobby([true; 4]);
        let mut leader = KnownLeader::new(key(0));
        assert!(!leader.accept_update_from(&all, &key(2)) && !leader.accept_update_from(&all, &key(9)));
        assert!(leader.accept_update_from(&all, &key(1)), "the successor may learn first that the leader is gone");
        leader.on_own_eviction(&all, &key(3));
        assert!(!leader.accept_update_from(&all, &key(9)), "strangers are never accepted");
    }
}
