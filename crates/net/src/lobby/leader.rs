//! Who keeps the list.

use super::message::{LobbyInfo, LobbyMember};
use crate::key::PeerKey;

/// Who keeps the list, as one of those on it knows: whoever let us in, for as long as it is here, and then the lowest who is. Who comes back
/// finds that another one keeps it and leaves it there, so that there are never two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RosterLeader {
    key: PeerKey,
    /// The others went on without us, and we do not know yet which of them keeps the list now.
    is_unconfirmed: bool,
}

impl RosterLeader {
    /// This one keeps it.
    pub fn new(key: PeerKey) -> Self {
        Self { key, is_unconfirmed: false }
    }

    /// Who it is, as far as we know.
    pub fn key(&self) -> PeerKey {
        self.key
    }

    /// Somebody is gone, and marked so on our list; if that kept it, the next one does now.
    pub fn on_member_gone(&mut self, party: &LobbyInfo, gone: &PeerKey) {
        if self.key == *gone {
            self.key = self.successor(party).unwrap_or(self.key);
        }
    }

    /// The others went on without us: if the list was ours it is not any more.
    pub fn on_own_eviction(&mut self, party: &LobbyInfo, me: &PeerKey) {
        self.is_unconfirmed = true;
        self.on_member_gone(party, me);
    }

    /// Somebody sends a list that is newer than ours. It is believed of who keeps it; of who will, when that is gone, for it may know so
    /// before us; and after others went on without us, of any of them. Whoever is believed keeps it.
    pub fn accept_update_from(&mut self, party: &LobbyInfo, from: &PeerKey) -> bool {
        let seated = party.members.iter().any(|member| member.key == *from);
        let believed = self.key == *from || self.successor(party) == Some(*from) || self.is_unconfirmed && seated;
        if believed {
            *self = Self::new(*from);
        }
        believed
    }

    /// Who comes after it.
    fn successor(&self, party: &LobbyInfo) -> Option<PeerKey> {
        let here = |member: &&LobbyMember| member.is_present && member.key != self.key;
        party.members.iter().find(here).map(|member| member.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(site: u8) -> PeerKey {
        PeerKey([site; 32])
    }

    /// Those on a list, of whom some are here.
    fn lobby(here: [bool; 4]) -> LobbyInfo {
        let member = |(site, here): (u8, bool)| LobbyMember {
            site,
            key: key(site),
            name: String::new(),
            pads: 1,
            addrs: vec![],
            is_ready: true,
            is_present: here,
        };
        let members = (0..).zip(here).map(member).collect();
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
        let mut keeper = RosterLeader::new(key(0));
        keeper.on_member_gone(&lobby([true, true, false, true]), &key(2));
        assert_eq!(keeper.key(), key(0), "somebody else is gone");
        keeper.on_member_gone(&lobby([false, true, false, true]), &key(0));
        assert_eq!(keeper.key(), key(1));
        keeper.on_member_gone(&lobby([false, false, false, true]), &key(1));
        assert_eq!(keeper.key(), key(3));
    }

    #[test]
    fn evicted_host_follows_the_current_leader() {
        let mut host = RosterLeader::new(key(0));
        host.on_own_eviction(&lobby([true; 4]), &key(0));
        assert_eq!(host.key(), key(1));
        // Meanwhile the second one has gone, too.
        let mut third = RosterLeader::new(key(0));
        third.on_member_gone(&lobby([false, true, true, true]), &key(0));
        third.on_member_gone(&lobby([false, false, true, true]), &key(1));
        assert_eq!(third.key(), key(2));
        assert!(host.accept_update_from(&lobby([true; 4]), &key(2)));
        // All are back: nobody else takes it.
        let all = lobby([true; 4]);
        assert_eq!((host.key(), third.key()), (key(2), key(2)));
        assert!(!third.accept_update_from(&all, &key(3)) && third.accept_update_from(&all, &key(2)));
    }

    #[test]
    fn updates_are_accepted_only_from_leader_or_successor() {
        let all = lobby([true; 4]);
        let mut keeper = RosterLeader::new(key(0));
        assert!(!keeper.accept_update_from(&all, &key(2)) && !keeper.accept_update_from(&all, &key(9)));
        assert!(keeper.accept_update_from(&all, &key(1)), "it may know before us that the first one is gone");
        keeper.on_own_eviction(&all, &key(3));
        assert!(!keeper.accept_update_from(&all, &key(9)), "strangers never do");
    }
}
