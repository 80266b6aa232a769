//! Who is in the group, as one of them knows. Everybody keeps a list, and lists are merged; nobody's is the right one.
//!
//! What a member says of itself, in an [`Account`] on the channel between us, holds. What others say of it is *hearsay*: it gets somebody called
//! who is not here, and counts for nothing else. So nobody can speak for another, and who was only told of takes nobody's place. Whether a
//! member is *here* each site judges for itself, by hearing it on that channel. Who comes back with its key is the same member, and has
//! its number again.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::hearsay::Hearsay;
use super::message::{Account, Run};
use super::seal::GroupKey;
use super::{Event, MAX_SITES, Member, Why};
use crate::key::PeerKey;
use crate::party::Refusal;
use crate::transport::Place;

/// A member that is not heard for so long is gone, and who was told of and does not answer for so long is not sought any more.
const SILENT: TimeDelta = TimeDelta::from_secs(10);
/// Who is gone for so long is forgotten; if it comes back all the same it is a newcomer, with the number that it had.
const FORGOTTEN: TimeDelta = TimeDelta::from_secs(15 * 60);
/// Who came so lately may not have been told of others who came at the same time, elsewhere.
const FRESH: TimeDelta = TimeDelta::from_secs(10);
/// The most that are remembered, here or not.
pub(super) const MAX_KNOWN: usize = 2 * MAX_SITES;

/// The list of one site.
#[derive(Debug)]
pub(super) struct List {
    group: GroupKey,
    me: Account,
    others: BTreeMap<PeerKey, Other>,
    hearsay: Hearsay,
    events: VecDeque<Event>,
    given_up: Vec<PeerKey>,
}

/// Somebody else.
#[derive(Debug)]
struct Other {
    account: Account,
    /// The account is its own; otherwise all of it is hearsay.
    own: bool,
    presence: Presence,
    /// When it was last heard, or when its presence became what it is.
    since: Instant,
    /// When it came, if it ever did.
    came: Option<Instant>,
    /// Since when it is called on somebody's word.
    sought: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// We were told of it, and have not heard it yet.
    Awaited,
    Here,
    Silent,
    /// It said so.
    Left,
}

/// What an account is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// Nothing that we did not know, or nothing that we can use.
    Nothing,
    /// Somebody else seems to hear it, and we do not: it is worth a call.
    Sought,
    /// It told us of itself, and we did not know that: it may not know us either.
    Met,
}

impl List {
    /// Nobody is known but ourselves.
    pub(super) fn new(group: GroupKey, me: Account) -> Self {
        let (others, hearsay) = (BTreeMap::new(), Hearsay::default());
        Self { group, me, others, hearsay, events: VecDeque::new(), given_up: Vec::new() }
    }

    /// What others are told of us.
    pub(super) fn me(&self) -> &Account {
        &self.me
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Those who need not be called any more.
    pub(super) fn take_given_up(&mut self) -> Vec<PeerKey> {
        std::mem::take(&mut self.given_up)
    }

    /// All who are here, and we.
    pub(super) fn members(&self) -> impl Iterator<Item = Member> {
        let others = self.others.values().filter(|other| other.presence == Presence::Here);
        std::iter::once(&self.me).chain(others.map(|other| &other.account)).map(Member::of)
    }

    /// The others who are here, with their numbers.
    pub(super) fn here(&self) -> impl Iterator<Item = (PeerKey, u32)> {
        let here = self.others.values().filter(|other| other.presence == Presence::Here);
        here.map(|other| (other.account.key, other.account.site))
    }

    /// All who may be reached: those who told us of themselves, and have not said goodbye.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &Account> {
        let reachable = |other: &&Other| other.own && other.presence != Presence::Left;
        self.others.values().filter(reachable).map(|other| &other.account)
    }

    /// What a newcomer, or anybody, is told: us, and those whom we hear ourselves. Hearsay is not passed on.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &Account> {
        let here = self.others.values().filter(|other| other.presence == Presence::Here);
        std::iter::once(&self.me).chain(here.map(|other| &other.account))
    }

    /// Who came a short while ago.
    pub(super) fn fresh(&self, now: Instant) -> impl Iterator<Item = PeerKey> {
        let fresh = move |other: &&Other| other.came.is_some_and(|came| now - came < FRESH);
        self.others
            .values()
            .filter(|other| other.presence == Presence::Here)
            .filter(fresh)
            .map(|other| other.account.key)
    }

    /// The number of somebody who has not said goodbye, be it hearsay.
    pub(super) fn site_of(&self, key: &PeerKey) -> Option<u32> {
        self.others.get(key).filter(|other| other.presence != Presence::Left).map(|other| other.account.site)
    }

    /// Whether somebody is here.
    pub(super) fn is_here(&self, key: &PeerKey) -> bool {
        self.others.get(key).is_some_and(|other| other.presence == Presence::Here)
    }

    /// Who has a number.
    pub(super) fn key_of(&self, site: u32) -> Option<PeerKey> {
        self.reachable().find(|account| account.site == site).map(|account| account.key)
    }

    /// What we know of somebody.
    pub(super) fn account_of(&self, key: &PeerKey) -> Option<&Account> {
        self.others.get(key).map(|other| &other.account)
    }

    /// Lets somebody in, or in again; `true` if the others have to be told.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        key: PeerKey,
        run: Run,
        (name, places): (String, Vec<Place>),
    ) -> Result<(Account, bool), Refusal> {
        let known = self.others.get(&key).filter(|other| other.own).map(|other| &other.account);
        if let Some(account) = known.filter(|account| account.run == run) {
            return Ok((account.clone(), false));
        }
        if self.here().filter(|(other, _)| *other != key).count() + 1 >= MAX_SITES {
            return Err(Refusal::Full);
        }
        // A stamp that was only told is not gone on from: it may be anything.
        let stamp = known.map_or(1, |account| account.stamp.saturating_add(1));
        let site = known.map(|account| account.site).or_else(|| self.free_number(&key)).ok_or(Refusal::Full)?;
        let account = Account { stamp, key, site, run, name, places };
        self.believe(now, account.clone());
        Ok((account, true))
    }

    /// A number that nobody else has: the same for a key wherever it comes in, unless that is taken.
    fn free_number(&self, key: &PeerKey) -> Option<u32> {
        self.group.sites(key).find(|site| !self.is_taken(*site, key))
    }

    /// Whether it is the number of somebody else, who told us so itself.
    fn is_taken(&self, site: u32, by_other_than: &PeerKey) -> bool {
        let has = |account: &Account| account.site == site && account.key != *by_other_than;
        has(&self.me) || self.others.values().any(|other| other.own && has(&other.account))
    }

    /// Somebody tells us of itself, or of another. Of us nobody needs to tell us, and a number must follow from its member's key.
    pub(super) fn merge(&mut self, now: Instant, from: &PeerKey, told: Account) -> Merged {
        let follows = self.group.sites(&told.key).any(|site| site == told.site);
        match told.key == *from {
            _ if told.key == self.me.key || !follows || self.is_taken(told.site, &told.key) => Merged::Nothing,
            true => self.believe(now, told),
            false => self.on_hearsay(now, from, told),
        }
    }

    /// What a member says of itself holds, whatever was said of it before.
    fn believe(&mut self, now: Instant, account: Account) -> Merged {
        self.forget_rumoured(account.site, &account.key);
        let Some(known) = self.others.get_mut(&account.key) else {
            let met = self.insert(now, account, true);
            return if met { Merged::Met } else { Merged::Nothing };
        };
        let anew = (known.account.run, known.account.site) != (account.run, account.site);
        if anew && known.presence == Presence::Here {
            self.events.push_back(Event::Went { site: known.account.site, why: Why::Anew });
        }
        if anew {
            (known.presence, known.since) = (Presence::Awaited, now);
        }
        known.account = account;
        let met = !std::mem::replace(&mut known.own, true) || anew;
        if met { Merged::Met } else { Merged::Nothing }
    }

    /// Who was only told of gives way to whose number it really is.
    fn forget_rumoured(&mut self, site: u32, key: &PeerKey) {
        let has = |other: &&Other| !other.own && other.account.site == site && other.account.key != *key;
        if let Some(rumoured) = self.others.values().find(has).map(|other| other.account.key) {
            self.forget(&rumoured);
        }
    }

    /// Somebody tells us of another. It may be wrong, or lie.
    fn on_hearsay(&mut self, now: Instant, from: &PeerKey, told: Account) -> Merged {
        let has_number = |other: &Other| other.account.site == told.site && other.account.key != told.key;
        let is_sought = self.others.get(&told.key).is_none_or(|known| known.is_sought(&told));
        let is_wanted = is_sought && !self.others.values().any(has_number);
        if !is_wanted || !self.hearsay.is_heeded(now, from) {
            return Merged::Nothing;
        }
        if let Some(known) = self.others.get_mut(&told.key) {
            known.seek(now, told);
            return Merged::Sought;
        }
        if self.insert(now, told, false) { Merged::Sought } else { Merged::Nothing }
    }

    /// Somebody whom we did not know; `false` if there is no room.
    fn insert(&mut self, now: Instant, account: Account, own: bool) -> bool {
        let has_room = self.others.len() < MAX_KNOWN || self.make_room(own);
        if has_room {
            let sought = (!own).then_some(now);
            let other = Other { account, own, presence: Presence::Awaited, since: now, came: None, sought };
            self.others.insert(other.account.key, other);
        }
        has_room
    }

    /// Forgets somebody: who was only told of before who was here, and who is gone for longest first. For hearsay nobody is forgotten who was
    /// ever here, or may be about to.
    fn make_room(&mut self, for_own: bool) -> bool {
        let goes = |other: &&Other| match for_own {
            true => !other.own || !other.is_around(),
            false => !other.own && !other.is_around(),
        };
        let first = self.others.values().filter(goes).min_by_key(|other| (other.own, other.is_around(), other.since));
        let first = first.map(|other| other.account.key);
        first.is_some_and(|key| self.forget(&key))
    }

    fn forget(&mut self, key: &PeerKey) -> bool {
        self.given_up.push(*key);
        self.others.remove(key).is_some()
    }

    /// We can be reached elsewhere.
    pub(super) fn set_places(&mut self, places: Vec<Place>) {
        self.me.stamp = self.me.stamp.saturating_add(1);
        self.me.places = places;
    }

    /// Something came from somebody on the channel between us; its number if it is one of the group. Who has not told us of itself is not here yet.
    pub(super) fn on_heard(&mut self, now: Instant, key: &PeerKey) -> Option<u32> {
        let other = self.others.get_mut(key).filter(|other| other.own && other.presence != Presence::Left)?;
        other.since = now;
        if std::mem::replace(&mut other.presence, Presence::Here) != Presence::Here {
            let again = other.came.replace(now).is_some();
            self.events.push_back(Event::Came { member: Member::of(&other.account), again });
        }
        if other.sought.take().is_some() {
            self.given_up.push(*key);
        }
        Some(other.account.site)
    }

    /// Somebody says that it leaves.
    pub(super) fn on_bye(&mut self, now: Instant, key: &PeerKey) {
        let Some(other) = self.others.get_mut(key) else { return };
        if other.presence == Presence::Here {
            self.events.push_back(Event::Went { site: other.account.site, why: Why::Left });
        }
        (other.presence, other.since) = (Presence::Left, now);
        self.given_up.push(*key);
    }

    /// We were asleep ourselves, and cannot know who was silent meanwhile.
    pub(super) fn forgive(&mut self, now: Instant) {
        self.others.values_mut().filter(|other| other.is_around()).for_each(|other| other.since = now);
    }

    /// Lets time pass.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for other in self.others.values_mut() {
            if other.is_around() && now - other.since > SILENT {
                if other.presence == Presence::Here {
                    self.events.push_back(Event::Went { site: other.account.site, why: Why::Silent });
                }
                (other.presence, other.since) = (Presence::Silent, now);
            }
            if other.sought.take_if(|since| now - *since > SILENT).is_some() {
                self.given_up.push(other.account.key);
            }
        }
        let long_gone = self.others.values().filter(|other| now - other.since > FORGOTTEN);
        let long_gone: Vec<PeerKey> = long_gone.map(|other| other.account.key).collect();
        long_gone.iter().for_each(|key| _ = self.forget(key));
    }
}

impl Other {
    /// Whether it is here, or may be about to be.
    fn is_around(&self) -> bool {
        matches!(self.presence, Presence::Here | Presence::Awaited)
    }

    /// Somebody speaks of it: whether that is a reason to call it. Who said goodbye in a run is not back in the same one, and who is called already is not
    /// called again where it was.
    fn is_sought(&self, told: &Account) -> bool {
        match self.presence {
            Presence::Here => false,
            Presence::Left => told.run != self.account.run,
            Presence::Awaited | Presence::Silent => self.sought.is_none() || told.places != self.account.places,
        }
    }

    /// It is called for a while. Of hearsay the higher stamp holds. It stays silent for us, and is not spoken of, until it is heard; otherwise
    /// who died would be spoken of for ever.
    fn seek(&mut self, now: Instant, told: Account) {
        self.sought.get_or_insert(now);
        if !self.own && told > self.account {
            self.account = told;
        }
    }
}

impl Member {
    fn of(account: &Account) -> Self {
        Self { site: account.site, key: account.key, name: account.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
    static GROUP: LazyLock<GroupKey> = LazyLock::new(GroupKey::random);

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn site(number: u8) -> u32 {
        GROUP.site(&key(number), 0)
    }

    fn account(number: u8, stamp: u32, run: u8) -> Account {
        let (key, site, name) = (key(number), site(number), format!("site {number}"));
        Account { stamp, key, site, run: [run; 16], name, places: vec![] }
    }

    fn list(number: u8) -> List {
        List::new(GROUP.clone(), account(number, 1, 1))
    }

    fn events(list: &mut List) -> Vec<String> {
        let events = std::iter::from_fn(|| list.poll_event());
        let told = events.map(|event| match event {
            Event::Came { member, again } => format!("{} came{}", member.name, if again { " again" } else { "" }),
            Event::Went { site, why } => format!("{site} {why:?}"),
            other => panic!("{other:?}"),
        });
        told.collect()
    }

    fn names(list: &List) -> Vec<String> {
        list.members().map(|member| member.name).collect()
    }

    fn knock(list: &mut List, number: u8, run: u8) -> Result<(Account, bool), Refusal> {
        let admitted = list.admit(NOW, key(number), [run; 16], (format!("site {number}"), vec![]));
        list.on_heard(NOW, &key(number));
        admitted
    }

    /// A member speaks for itself.
    fn say(list: &mut List, now: Instant, account: Account) -> Merged {
        let who = account.key;
        let merged = list.merge(now, &who, account);
        list.on_heard(now, &who);
        merged
    }

    #[test]
    fn a_member_is_here_while_it_is_heard() {
        let mut list = list(1);
        assert_eq!(list.merge(NOW, &key(9), account(2, 1, 1)), Merged::Sought);
        assert_eq!(list.on_heard(NOW, &key(2)), None, "it has not told us of itself");
        assert!(names(&list) == ["site 1"] && list.accounts().count() == 1);
        assert_eq!(say(&mut list, NOW, account(2, 1, 1)), Merged::Met);
        assert_eq!(list.on_heard(NOW, &key(2)), Some(site(2)));
        assert_eq!(names(&list), ["site 1", "site 2"]);
        list.handle_timeout(later(10));
        assert_eq!(events(&mut list), ["site 2 came"]);
        list.handle_timeout(later(11));
        assert_eq!(events(&mut list), [format!("{} Silent", site(2))]);
        assert!(names(&list) == ["site 1"] && list.accounts().count() == 1);
        list.on_heard(later(15), &key(2));
        assert_eq!(events(&mut list), ["site 2 came again"], "the way was cut, and is there again");
        assert_eq!(list.on_heard(NOW, &key(9)), None, "nobody told us of that one");
    }

    #[test]
    fn who_says_goodbye_is_gone_whatever_still_comes() {
        let mut list = list(1);
        let (old, _) = knock(&mut list, 2, 1).unwrap();
        list.on_bye(later(1), &key(2));
        assert_eq!(list.on_heard(later(1), &key(2)), None);
        assert_eq!(list.merge(later(1), &key(3), old.clone()), Merged::Nothing, "old news do not bring it back");
        assert_eq!(say(&mut list, later(1), old), Merged::Nothing);
        assert_eq!(events(&mut list), ["site 2 came".into(), format!("{} Left", site(2))]);
        assert_eq!(list.take_given_up(), [key(2)]);
        assert_eq!(list.merge(later(2), &key(3), account(2, 2, 2)), Merged::Sought, "it may be back");
        assert_eq!(say(&mut list, later(2), account(2, 2, 2)), Merged::Met);
        assert_eq!(events(&mut list), ["site 2 came again"]);
    }

    #[test]
    fn who_starts_anew_has_its_number_again_wherever_it_comes_in() {
        let mut one = list(1);
        let (first, is_new) = knock(&mut one, 2, 1).unwrap();
        assert!(is_new && knock(&mut one, 2, 1) == Ok((first.clone(), false)), "who knocks twice is let in once");
        let (again, is_new) = knock(&mut one, 2, 2).unwrap();
        assert!(is_new && again.site == first.site && again.stamp > first.stamp);
        let number = first.site;
        assert_eq!(events(&mut one), ["site 2 came".into(), format!("{number} Anew"), "site 2 came again".into()]);
        let mut elsewhere = list(3);
        assert_eq!(knock(&mut elsewhere, 2, 3).unwrap().0.site, number, "nobody there knew it");
        elsewhere.others.get_mut(&key(2)).unwrap().account.site = site(4);
        assert_eq!(knock(&mut elsewhere, 4, 1).unwrap().0.site, GROUP.site(&key(4), 1), "two never have one number");
    }

    #[test]
    fn hearsay_becomes_equal_in_whatever_order_it_is_told() {
        let told = [account(2, 1, 1), account(2, 3, 2), account(2, 3, 1), account(3, 2, 1), account(3, 1, 9)];
        let at = |run: u8| vec![Place(format!("192.0.2.{run}:7"))];
        let told = told.map(|account| Account { places: at(account.run[0] * 10 + account.stamp as u8), ..account });
        let end = |order: &[usize]| {
            let mut list = list(1);
            order.iter().for_each(|at| _ = list.merge(NOW, &key(9), told[*at].clone()));
            list.others.values().map(|other| other.account.clone()).collect::<Vec<_>>()
        };
        let expected = end(&[0, 1, 2, 3, 4]);
        for order in [[4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3], [3, 1, 3, 0, 2]] {
            assert_eq!(end(&order), expected, "{order:?}");
        }
        assert_eq!((expected[0].stamp, expected[1].stamp), (3, 2));
    }

    #[test]
    fn nobody_speaks_for_another() {
        let mut list = list(1);
        say(&mut list, NOW, account(2, 5, 1));
        let places = vec![Place("192.0.2.1:7".into())];
        let lie = Account { name: "nobody".into(), places, ..account(2, u32::MAX, 9) };
        assert_eq!(list.merge(NOW, &key(3), lie.clone()), Merged::Nothing, "it is here, and says something else");
        assert_eq!(list.merge(NOW, &key(3), account(1, u32::MAX, 9)), Merged::Nothing, "who we are we know best");
        assert_eq!(*list.me(), account(1, 1, 1));
        list.handle_timeout(later(11));
        assert_eq!(list.merge(later(11), &key(3), lie.clone()), Merged::Sought, "it may be there");
        assert_eq!(list.account_of(&key(2)), Some(&account(2, 5, 1)));
        assert_eq!(list.on_heard(later(12), &key(2)), Some(site(2)));
        assert_eq!(names(&list), ["site 1", "site 2"]);
        // Of who was not heard yet a lie is believed, until it speaks, whatever stamp it has.
        list.merge(NOW, &key(3), Account { key: key(4), site: site(4), ..lie });
        assert_eq!(list.account_of(&key(4)).unwrap().name, "nobody");
        assert_eq!(say(&mut list, NOW, account(4, 1, 1)), Merged::Met);
        assert_eq!(say(&mut list, NOW, account(4, 1, 1)), Merged::Nothing, "that is the end of it");
        assert_eq!(list.account_of(&key(4)), Some(&account(4, 1, 1)));
    }

    #[test]
    fn no_stamp_is_gone_on_from_that_was_only_told() {
        let mut list = list(1);
        list.merge(NOW, &key(3), account(2, u32::MAX, 9));
        assert_eq!(knock(&mut list, 2, 1).unwrap().0, account(2, 1, 1));
        say(&mut list, NOW, account(4, u32::MAX, 1));
        assert_eq!(knock(&mut list, 4, 2).unwrap().0, account(4, u32::MAX, 2), "its own has no end either");
        assert_eq!(say(&mut list, NOW, account(4, u32::MAX, 1)), Merged::Met, "and the last word counts");
    }

    #[test]
    fn a_number_follows_from_a_key_and_is_nobody_elses() {
        let mut list = list(1);
        let thief = |number: u8, site: u32| Account { site, ..account(number, 1, 1) };
        for site in [site(1), site(3), 77] {
            assert_eq!(say(&mut list, NOW, thief(2, site)), Merged::Nothing);
            assert_eq!(list.merge(NOW, &key(9), thief(2, site)), Merged::Nothing);
        }
        assert_eq!((list.others.len(), list.key_of(site(1))), (0, None));
        assert_eq!(say(&mut list, NOW, thief(2, GROUP.site(&key(2), 1))), Merged::Met, "the next one is its own, too");
        // Who was only told of keeps nobody from its number.
        list.merge(NOW, &key(9), account(5, 1, 1));
        list.others.get_mut(&key(5)).unwrap().account.site = site(6);
        assert_eq!(list.merge(NOW, &key(9), account(6, 1, 1)), Merged::Nothing);
        assert_eq!(knock(&mut list, 6, 1).unwrap().0.site, site(6));
        assert_eq!(list.account_of(&key(5)), None);
    }

    #[test]
    fn who_does_not_answer_is_not_sought_for_ever() {
        let mut list = list(1);
        list.merge(NOW, &key(9), account(2, 1, 1));
        assert_eq!(list.merge(NOW, &key(8), account(2, 1, 1)), Merged::Nothing, "it is called already");
        list.handle_timeout(later(11));
        assert_eq!((list.take_given_up(), events(&mut list)), (vec![key(2)], vec![]));
        assert_eq!(list.merge(later(20), &key(9), account(2, 1, 1)), Merged::Sought, "somebody else hears it");
        list.handle_timeout(later(31));
        assert_eq!(list.take_given_up(), [key(2)]);
        list.merge(later(40), &key(9), account(2, 1, 1));
        say(&mut list, later(41), account(2, 1, 1));
        assert_eq!(list.take_given_up(), [key(2)], "it is here, wherever else it is called");
        list.handle_timeout(later(60));
        list.handle_timeout(later(60 * 60));
        assert_eq!(list.others.len(), 0);
    }

    #[test]
    fn there_is_room_for_so_many_and_what_is_remembered_has_a_bound() {
        let mut list = list(255);
        (0..63).for_each(|number| assert!(knock(&mut list, number, 1).is_ok(), "{number}"));
        assert_eq!(knock(&mut list, 63, 1), Err(Refusal::Full));
        assert!(knock(&mut list, 5, 2).is_ok(), "who was here may come back");
        list.on_bye(NOW, &key(7));
        assert!(knock(&mut list, 63, 1).is_ok());
        for number in 64..255 {
            say(&mut list, NOW, account(number, 1, 1));
        }
        assert_eq!(list.others.len(), MAX_KNOWN);
        assert!(!list.others.contains_key(&key(7)), "who is gone makes room");
    }

    #[test]
    fn who_is_invented_takes_nobodys_place() {
        let mut list = list(255);
        (0..10).for_each(|number| assert!(knock(&mut list, number, 1).is_ok()));
        let sought = |list: &mut List, now: Instant, teller: u8| {
            let tells = |number: &u8| list.merge(now, &key(teller), account(*number, 1, 1)) == Merged::Sought;
            (63..255).filter(tells).count()
        };
        assert_eq!(sought(&mut list, NOW, 0), MAX_SITES, "one is heeded only so often");
        assert_eq!(sought(&mut list, NOW, 1), MAX_KNOWN - MAX_SITES - 10, "and there is room only for so many");
        list.take_given_up();
        (10..63).for_each(|number| assert!(knock(&mut list, number, 1).is_ok(), "{number}"));
        assert_eq!((list.here().count(), list.others.len()), (63, MAX_KNOWN));
        list.handle_timeout(later(11));
        assert_eq!(list.take_given_up().len(), 2 * MAX_SITES - 10, "none of them is called any more");
        assert_eq!(sought(&mut list, later(11), 0), 2);
    }

    #[test]
    fn who_was_asleep_blames_nobody() {
        let mut list = list(1);
        knock(&mut list, 2, 1).unwrap();
        list.forgive(later(100));
        list.handle_timeout(later(105));
        assert_eq!(events(&mut list), ["site 2 came"]);
    }
}
