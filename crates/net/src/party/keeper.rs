//! Who keeps the list.

use super::message::{Member, Party};
use crate::key::PeerKey;

/// Who keeps the list, as one of those on it knows: whoever let us in, for as long as it is here, and then the lowest who is. Who comes back
/// finds that another one keeps it and leaves it there, so that there are never two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeper {
    key: PeerKey,
    /// The others went on without us, and we do not know yet which of them keeps the list now.
    astray: bool,
}

impl Keeper {
    /// This one keeps it.
    pub fn new(key: PeerKey) -> Self {
        Self { key, astray: false }
    }

    /// Who it is, as far as we know.
    pub fn key(&self) -> PeerKey {
        self.key
    }

    /// Somebody is gone, and marked so on our list; if that kept it, the next one does now.
    pub fn on_gone(&mut self, party: &Party, gone: &PeerKey) {
        if self.key == *gone {
            self.key = self.next(party).unwrap_or(self.key);
        }
    }

    /// The others went on without us: if the list was ours it is not any more.
    pub fn on_astray(&mut self, party: &Party, me: &PeerKey) {
        self.astray = true;
        self.on_gone(party, me);
    }

    /// Somebody sends a list that is newer than ours. It is believed of who keeps it; of who will, when that is gone, for it may know so
    /// before us; and after others went on without us, of any of them. Whoever is believed keeps it.
    pub fn believes(&mut self, party: &Party, from: &PeerKey) -> bool {
        let seated = party.members.iter().any(|member| member.key == *from);
        let believed = self.key == *from || self.next(party) == Some(*from) || self.astray && seated;
        if believed {
            *self = Self::new(*from);
        }
        believed
    }

    /// Who comes after it.
    fn next(&self, party: &Party) -> Option<PeerKey> {
        let here = |member: &&Member| member.here && member.key != self.key;
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
    fn party(here: [bool; 4]) -> Party {
        let member = |(site, here): (u8, bool)| Member {
            site,
            key: key(site),
            name: String::new(),
            pads: 1,
            places: vec![],
            ready: true,
            here,
        };
        let members = (0..).zip(here).map(member).collect();
        Party { serial: 1, session: 1, terms: vec![], started: true, members, open: true, watchers: 0, you: None }
    }

    #[test]
    fn the_lowest_who_is_here_goes_on_with_it() {
        let mut keeper = Keeper::new(key(0));
        keeper.on_gone(&party([true, true, false, true]), &key(2));
        assert_eq!(keeper.key(), key(0), "somebody else is gone");
        keeper.on_gone(&party([false, true, false, true]), &key(0));
        assert_eq!(keeper.key(), key(1));
        keeper.on_gone(&party([false, false, false, true]), &key(1));
        assert_eq!(keeper.key(), key(3));
    }

    #[test]
    fn a_host_that_was_asleep_leaves_the_list_where_it_is() {
        let mut host = Keeper::new(key(0));
        host.on_astray(&party([true; 4]), &key(0));
        assert_eq!(host.key(), key(1));
        // Meanwhile the second one has gone, too.
        let mut third = Keeper::new(key(0));
        third.on_gone(&party([false, true, true, true]), &key(0));
        third.on_gone(&party([false, false, true, true]), &key(1));
        assert_eq!(third.key(), key(2));
        assert!(host.believes(&party([true; 4]), &key(2)));
        // All are back: nobody else takes it.
        let all = party([true; 4]);
        assert_eq!((host.key(), third.key()), (key(2), key(2)));
        assert!(!third.believes(&all, &key(3)) && third.believes(&all, &key(2)));
    }

    #[test]
    fn nobody_makes_itself_the_keeper() {
        let all = party([true; 4]);
        let mut keeper = Keeper::new(key(0));
        assert!(!keeper.believes(&all, &key(2)) && !keeper.believes(&all, &key(9)));
        assert!(keeper.believes(&all, &key(1)), "it may know before us that the first one is gone");
        keeper.on_astray(&all, &key(3));
        assert!(!keeper.believes(&all, &key(9)), "strangers never do");
    }
}
