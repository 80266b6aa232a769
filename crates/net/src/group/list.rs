//! Who is in the group, as one of them knows. Everybody keeps a list, and lists are merged; nobody's is the right one.
//!
//! Of a member all are told an [`Account`]; the one with the highest stamp holds. Whether a member is *here* each site judges for
//! itself, by hearing it on the channel between them. Who comes back with its key is the same member, and has its number again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

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
const MAX_KNOWN: usize = 2 * MAX_SITES;

/// The list of one site.
#[derive(Debug)]
pub(super) struct List {
    group: GroupKey,
    me: Account,
    others: BTreeMap<PeerKey, Other>,
    events: VecDeque<Event>,
    given_up: Vec<PeerKey>,
}

/// Somebody else.
#[derive(Debug)]
struct Other {
    account: Account,
    presence: Presence,
    /// When it was last heard, or when its presence became what it is.
    since: Instant,
    /// When it came, if it ever did.
    came: Option<Instant>,
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
    /// We know better; if it says so of itself it must be told.
    Outdated,
    /// Known, but it is not here: somebody else seems to hear it, so it is worth another call.
    Sought,
    /// News of somebody, who is to be called if it is not here.
    News,
    /// An account of ourselves that is not ours: all must be told ours again.
    AboutUs,
}

impl List {
    /// Nobody is known but ourselves.
    pub(super) fn new(group: GroupKey, me: Account) -> Self {
        Self { group, me, others: BTreeMap::new(), events: VecDeque::new(), given_up: Vec::new() }
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

    /// All who may be reached: those who have not said goodbye.
    pub(super) fn reachable(&self) -> impl Iterator<Item = &Account> {
        self.others.values().filter(|other| other.presence != Presence::Left).map(|other| &other.account)
    }

    /// What a newcomer, or anybody, is told: us, those who are here, and those who may be about to.
    pub(super) fn accounts(&self) -> impl Iterator<Item = &Account> {
        let told = self.others.values().filter(|other| other.is_told_of());
        std::iter::once(&self.me).chain(told.map(|other| &other.account))
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

    /// The number of somebody who has not said goodbye.
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
        let known = self.others.get(&key).map(|other| &other.account);
        if let Some(account) = known.filter(|account| account.run == run) {
            return Ok((account.clone(), false));
        }
        let others = self.others.values().filter(|other| other.is_told_of() && other.account.key != key).count();
        if others + 1 >= MAX_SITES {
            return Err(Refusal::Full);
        }
        let stamp = known.map_or(1, |account| account.stamp.saturating_add(1));
        let site = known.map_or_else(|| self.free_number(&key), |account| account.site);
        let account = Account { stamp, key, site, run, name, places };
        self.merge(now, account.clone());
        Ok((account, true))
    }

    /// A number that nobody else has: the same for a key wherever it comes in, unless that is taken.
    fn free_number(&self, key: &PeerKey) -> u32 {
        let numbers = (0..).map(|attempt| self.group.site(key, attempt));
        numbers.into_iter().find(|site| !self.is_taken(*site, key)).expect("fewer members than numbers")
    }

    fn is_taken(&self, site: u32, by_other_than: &PeerKey) -> bool {
        let has = |account: &Account| account.site == site && account.key != *by_other_than;
        has(&self.me) || self.others.values().any(|other| has(&other.account))
    }

    /// Somebody tells us of somebody.
    pub(super) fn merge(&mut self, now: Instant, told: Account) -> Merged {
        if told.key == self.me.key {
            return self.hear_of_us(&told);
        }
        if self.is_taken(told.site, &told.key) {
            return Merged::Nothing;
        }
        let Some(known) = self.others.get_mut(&told.key) else { return self.hear_of_newcomer(now, told) };
        match told.cmp(&known.account) {
            Ordering::Less => return Merged::Outdated,
            Ordering::Equal => return known.seek(),
            Ordering::Greater => {}
        }
        let anew = known.account.run != told.run;
        if anew && known.presence == Presence::Here {
            self.events.push_back(Event::Went { site: known.account.site, why: Why::Anew });
        }
        known.account = told;
        if anew {
            (known.presence, known.since) = (Presence::Awaited, now);
        }
        Merged::News
    }

    /// What others believe of us may be from another run, which they remember and who let us in did not.
    fn hear_of_us(&mut self, told: &Account) -> Merged {
        if *told <= self.me {
            return Merged::Nothing;
        }
        self.me.stamp = told.stamp.saturating_add(1);
        Merged::AboutUs
    }

    fn hear_of_newcomer(&mut self, now: Instant, account: Account) -> Merged {
        if self.others.len() >= MAX_KNOWN && !self.forget_stalest() {
            return Merged::Nothing;
        }
        let other = Other { presence: Presence::Awaited, since: now, came: None, account };
        self.others.insert(other.account.key, other);
        Merged::News
    }

    /// Forgets who was gone for longest; `false` if all are here.
    fn forget_stalest(&mut self) -> bool {
        let gone = self.others.values().filter(|other| !other.is_told_of());
        let stalest = gone.min_by_key(|other| other.since).map(|other| other.account.key);
        stalest.is_some_and(|key| self.forget(&key))
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

    /// Something came from somebody on the channel between us; its number if it is one of the group.
    pub(super) fn on_heard(&mut self, now: Instant, key: &PeerKey) -> Option<u32> {
        let other = self.others.get_mut(key).filter(|other| other.presence != Presence::Left)?;
        other.since = now;
        if std::mem::replace(&mut other.presence, Presence::Here) != Presence::Here {
            let again = other.came.replace(now).is_some();
            self.events.push_back(Event::Came { member: Member::of(&other.account), again });
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
        self.others.values_mut().filter(|other| other.is_told_of()).for_each(|other| other.since = now);
    }

    /// Lets time pass.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for other in self.others.values_mut().filter(|other| now - other.since > SILENT && other.is_told_of()) {
            match other.presence {
                Presence::Here => {
                    self.events.push_back(Event::Went { site: other.account.site, why: Why::Silent });
                }
                _ => self.given_up.push(other.account.key),
            }
            (other.presence, other.since) = (Presence::Silent, now);
        }
        let long_gone = self.others.values().filter(|other| now - other.since > FORGOTTEN);
        let long_gone: Vec<PeerKey> = long_gone.map(|other| other.account.key).collect();
        long_gone.iter().for_each(|key| _ = self.forget(key));
    }
}

impl Other {
    /// Whether others are told of it by us.
    fn is_told_of(&self) -> bool {
        matches!(self.presence, Presence::Here | Presence::Awaited)
    }

    /// Somebody speaks of it, so it may be here after all: it is called. It stays silent for us, and is not spoken of, until it is heard; otherwise
    /// who died would be spoken of for ever.
    fn seek(&self) -> Merged {
        match self.presence {
            Presence::Silent | Presence::Awaited => Merged::Sought,
            Presence::Here | Presence::Left => Merged::Nothing,
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
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000_000);

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn account(number: u8, stamp: u32, run: u8) -> Account {
        let site = 1_000 + u32::from(number);
        Account { stamp, key: key(number), site, run: [run; 16], name: format!("site {number}"), places: vec![] }
    }

    fn list(number: u8) -> List {
        List::new(GroupKey::random(), account(number, 1, 1))
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

    #[test]
    fn a_member_is_here_while_it_is_heard() {
        let mut list = list(1);
        assert_eq!(list.merge(NOW, account(2, 1, 1)), Merged::News);
        assert!(names(&list) == ["site 1"] && list.accounts().count() == 2, "told of, but not heard yet");
        assert_eq!(list.on_heard(NOW, &key(2)), Some(1_002));
        assert_eq!(names(&list), ["site 1", "site 2"]);
        list.handle_timeout(later(10));
        assert_eq!(events(&mut list), ["site 2 came"]);
        list.handle_timeout(later(11));
        assert_eq!(events(&mut list), ["1002 Silent"]);
        assert!(names(&list) == ["site 1"] && list.accounts().count() == 1);
        list.on_heard(later(15), &key(2));
        assert_eq!(events(&mut list), ["site 2 came again"], "the way was cut, and is there again");
        assert_eq!(list.on_heard(NOW, &key(9)), None, "nobody told us of that one");
    }

    #[test]
    fn who_says_goodbye_is_gone_whatever_still_comes() {
        let mut list = list(1);
        knock(&mut list, 2, 1).unwrap();
        list.on_bye(later(1), &key(2));
        assert_eq!(list.on_heard(later(1), &key(2)), None);
        let old = list.others[&key(2)].account.clone();
        assert_eq!(list.merge(later(1), old), Merged::Nothing, "old news do not bring it back");
        let site = list.others[&key(2)].account.site;
        assert_eq!(events(&mut list), ["site 2 came".into(), format!("{site} Left")]);
        assert_eq!(list.take_given_up(), [key(2)]);
    }

    #[test]
    fn who_starts_anew_has_its_number_again_wherever_it_comes_in() {
        let (mut one, group) = (list(1), GroupKey::random());
        one.group = group.clone();
        let (first, is_new) = knock(&mut one, 2, 1).unwrap();
        assert!(is_new && knock(&mut one, 2, 1) == Ok((first.clone(), false)), "who knocks twice is let in once");
        let (again, is_new) = knock(&mut one, 2, 2).unwrap();
        assert!(is_new && again.site == first.site && again.stamp > first.stamp);
        let site = first.site;
        assert_eq!(events(&mut one), ["site 2 came".into(), format!("{site} Anew"), "site 2 came again".into()]);
        let mut elsewhere = list(3);
        elsewhere.group = group;
        assert_eq!(knock(&mut elsewhere, 2, 3).unwrap().0.site, site, "nobody there knew it");
        let other_key = PeerKey([4; 32]);
        elsewhere.others.get_mut(&key(2)).unwrap().account.site = elsewhere.group.site(&other_key, 0);
        let taken = elsewhere.others[&key(2)].account.site;
        assert_ne!(knock(&mut elsewhere, 4, 1).unwrap().0.site, taken, "two never have one number");
    }

    #[test]
    fn lists_become_equal_in_whatever_order_they_are_told() {
        let told = [account(2, 1, 1), account(2, 3, 2), account(2, 3, 1), account(3, 2, 1), account(3, 1, 9)];
        let end = |order: &[usize]| {
            let mut list = list(1);
            order.iter().for_each(|at| _ = list.merge(NOW, told[*at].clone()));
            list.accounts().cloned().collect::<Vec<_>>()
        };
        let expected = end(&[0, 1, 2, 3, 4]);
        for order in [[4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3], [3, 1, 3, 0, 2]] {
            assert_eq!(end(&order), expected, "{order:?}");
        }
        assert_eq!((expected[1].stamp, expected[2].stamp), (3, 2));
    }

    #[test]
    fn what_others_believe_of_us_from_before_is_put_right() {
        let mut list = list(1);
        assert_eq!(list.merge(NOW, account(1, 1, 1)), Merged::Nothing);
        assert_eq!(list.merge(NOW, account(1, 6, 9)), Merged::AboutUs);
        assert_eq!((list.me().stamp, list.me().run), (7, [1; 16]));
        assert_eq!(list.merge(NOW, account(1, 6, 9)), Merged::Nothing, "once is enough");
        list.merge(NOW, account(1, u32::MAX, 9));
        list.set_places(vec![]);
        assert_eq!(list.me().stamp, u32::MAX);
    }

    #[test]
    fn who_does_not_answer_is_not_sought_for_ever() {
        let mut list = list(1);
        list.merge(NOW, account(2, 1, 1));
        list.handle_timeout(later(11));
        assert_eq!((list.take_given_up(), events(&mut list)), (vec![key(2)], vec![]));
        assert_eq!(list.merge(later(20), account(2, 1, 1)), Merged::Sought, "somebody else hears it");
        list.handle_timeout(later(40));
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
            list.merge(NOW, account(number, 1, 1));
        }
        assert_eq!(list.others.len(), MAX_KNOWN);
        assert!(!list.others.contains_key(&key(7)), "who is gone makes room");
    }

    #[test]
    fn who_was_asleep_blames_nobody() {
        let mut list = list(1);
        knock(&mut list, 2, 1).unwrap();
        list.forgive(later(100));
        list.handle_timeout(later(105));
        assert_eq!(events(&mut list), ["site 2 came"]);
    }

    #[test]
    fn a_number_is_nobody_elses() {
        let mut list = list(1);
        let thief = Account { site: 1_001, ..account(2, 1, 1) };
        assert_eq!(list.merge(NOW, thief), Merged::Nothing);
        assert_eq!(list.key_of(1_001), None);
    }
}
