//! The others: who is let in, who is told of whom, and what is due.

use coplay::time::{Instant, TimeDelta};

use super::list::Merged;
use super::message::{Account, Message, Welcome, Word, tell};
use super::{ALL, ASLEEP, BEAT, Group};
use crate::clock;
use crate::key::PeerKey;
use crate::party::{self, Knock, MAX_NAME, Refusal, VERSION, Wish, places, tidy};

/// All that we know is told to one of the others this often, in turn: what somebody has missed, for whatever reason, it learns so.
const ROUND: TimeDelta = TimeDelta::from_secs(5);
/// Where we can be reached is looked at this often.
const PLACES: TimeDelta = TimeDelta::from_secs(5);

impl Group {
    pub(super) fn take_mail(&mut self, from: PeerKey, bytes: &[u8]) {
        let now = clock::now();
        self.list.on_heard(now, &from);
        for word in self.post.take(from, bytes) {
            self.on_word(now, from, word);
        }
        self.follow_list();
    }

    pub(super) fn on_word(&mut self, now: Instant, from: PeerKey, word: Word) {
        match word {
            Word::Door(party::Message::Knock(knock)) => self.on_knock(now, from, &knock),
            Word::Inside(Message::Accounts { group, accounts }) if group == self.key.name() => {
                accounts.into_iter().for_each(|account| self.on_account(now, from, account));
                self.list.on_heard(now, &from);
            }
            Word::Inside(Message::Bye) => self.list.on_bye(now, &from),
            Word::Door(_) | Word::Inside(_) => {}
        }
    }

    /// Somebody wants to come in.
    fn on_knock(&mut self, now: Instant, from: PeerKey, knock: &Knock) {
        let admitted = match knock.wish {
            _ if knock.version != VERSION => Err(Refusal::Version(VERSION)),
            Wish::Roam(run) => {
                let places = places(&knock.places, self.post.transport.place_of(&from));
                self.list.admit(now, from, run, (tidy(&knock.name, MAX_NAME), places))
            }
            Wish::Play(_) | Wish::Watch => Err(Refusal::OtherKind),
        };
        match admitted {
            Ok((account, is_new)) => self.welcome(now, from, account, is_new),
            Err(refusal) => self.post.mail(from, &Word::Door(party::Message::Refused(refusal))),
        }
    }

    fn welcome(&mut self, now: Instant, from: PeerKey, you: Account, is_new: bool) {
        self.list.on_heard(now, &from);
        let (key, terms, multicast) = (self.key.clone(), self.terms.clone(), self.meets);
        let welcome = Welcome { key, terms, multicast, you: you.clone() };
        self.post.mail(from, &Word::Inside(Message::Welcome(welcome)));
        self.tell_all_to(from);
        if is_new {
            let others: Vec<PeerKey> = self.list.here().map(|(key, _)| key).filter(|key| *key != from).collect();
            self.tell_to(others, [you]);
        }
    }

    /// Somebody tells us of somebody: of itself, or of another.
    fn on_account(&mut self, now: Instant, from: PeerKey, account: Account) {
        match self.list.merge(now, &from, account.clone()) {
            Merged::Sought => self.seek(&account),
            Merged::Met => self.tell_of_us([from]),
            Merged::Nothing => {}
        }
    }

    /// Calls somebody; or, where there is a way to it already, tells it of us, so that it answers.
    fn seek(&mut self, account: &Account) {
        self.post.call(&account.places, account.key);
        if self.post.transport.place_of(&account.key).is_some() {
            self.tell_of_us([account.key]);
        }
    }

    /// Who came at the same time as this one, elsewhere, was not told of it.
    pub(super) fn tell_fresh_of(&mut self, who: &PeerKey) {
        let fresh: Vec<PeerKey> = self.list.fresh(clock::now()).filter(|key| key != who).collect();
        let account = self.list.account_of(who).cloned();
        self.tell_to(fresh, account);
    }

    fn tell_of_us(&mut self, to: impl IntoIterator<Item = PeerKey> + Clone) {
        self.tell_to(to, [self.list.me().clone()]);
    }

    /// There is a way to somebody: if we know it, it shall know us.
    pub(super) fn on_up(&mut self, peer: PeerKey) {
        if self.list.site_of(&peer).is_some() {
            self.tell_of_us([peer]);
        }
    }

    fn tell_to(&mut self, to: impl IntoIterator<Item = PeerKey> + Clone, accounts: impl IntoIterator<Item = Account>) {
        for word in tell(self.key.name(), accounts) {
            self.post.mail_all(to.clone(), &word);
        }
    }

    fn tell_all_to(&mut self, to: PeerKey) {
        let accounts: Vec<Account> = self.list.accounts().filter(|account| account.key != to).cloned().collect();
        self.tell_to([to], accounts);
    }

    /// The list may have changed.
    fn follow_list(&mut self) {
        self.tell_events();
        self.list.take_given_up().iter().for_each(|key| self.post.transport.hang_up(key));
        if let Some(channels) = &self.channels {
            channels.set_sources(self.list.reachable().map(|account| (account.site, account.run)));
        }
    }

    /// Does what is due now and then.
    pub(super) fn look_around(&mut self, now: Instant) {
        if now - self.last_look > ASLEEP {
            self.list.forgive(now);
        }
        self.last_look = now;
        self.list.handle_timeout(now);
        self.follow_list();
        self.beat(now);
        self.beacon(now);
        self.tell_next(now);
        self.look_where_we_are(now);
        let list = &self.list;
        self.post.forget(now, |peer| list.site_of(peer).is_some());
    }

    /// Tells everybody that we are there, and whether we hear it by multicast.
    fn beat(&mut self, now: Instant) {
        let (hearing, deaf) = (&mut self.hearing, self.channels.is_none());
        for account in self.list.reachable() {
            if let Some(hears) = hearing.poll_beat(now, account.site, deaf) {
                self.post.transport.send(&account.key, &[BEAT, u8::from(hears)]);
            }
        }
    }

    /// Lets itself be heard by multicast.
    fn beacon(&mut self, now: Instant) {
        if now >= self.next_beacon && self.list.reachable().next().is_some() {
            self.cast(now, ALL, 0, &[]);
        }
    }

    /// Tells the next of the others all that we know, and forgets what is of no use any more.
    fn tell_next(&mut self, now: Instant) {
        if now < self.next_round {
            return;
        }
        self.next_round = now + ROUND;
        let list = &self.list;
        self.hearing.keep(|site| list.key_of(site).is_some());
        let here: Vec<PeerKey> = self.list.here().map(|(key, _)| key).collect();
        let after = here.iter().find(|key| Some(**key) > self.last_round).or(here.first());
        if let Some(next) = after.copied() {
            self.last_round = Some(next);
            self.tell_all_to(next);
        }
    }

    /// An address may change, and a relay may be found late: then the others must know.
    fn look_where_we_are(&mut self, now: Instant) {
        if now < self.next_places {
            return;
        }
        self.next_places = now + PLACES;
        let places = self.post.own_places();
        if places.iter().any(|place| !self.list.me().places.contains(place)) {
            self.list.set_places(places);
            let others: Vec<PeerKey> = self.list.reachable().map(|account| account.key).collect();
            self.tell_of_us(others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::sync::{Arc, Mutex};

    use super::super::seal::GroupKey;
    use super::*;
    use crate::group::Manner;
    use crate::post::Post;
    use crate::transport::{Place, Refused, Transport};

    /// A network in which everything is noted, and nobody answers.
    #[derive(Default)]
    struct Noted {
        sent: Mutex<Vec<PeerKey>>,
        calls: Mutex<Vec<(PeerKey, Place)>>,
    }

    impl Transport for Noted {
        fn key(&self) -> PeerKey {
            key(0)
        }

        fn send(&self, to: &PeerKey, _: &[u8]) -> bool {
            self.sent.lock().unwrap().push(*to);
            true
        }

        fn call(&self, place: &Place, expect: Option<PeerKey>) {
            self.calls.lock().unwrap().extend(expect.map(|peer| (peer, place.clone())));
        }

        fn hang_up(&self, peer: &PeerKey) {
            self.calls.lock().unwrap().retain(|(called, _)| called != peer);
        }

        fn place_of(&self, _: &PeerKey) -> Option<Place> {
            None
        }

        fn own_places(&self) -> Vec<Place> {
            vec![]
        }

        fn refused(&self) -> Refused {
            Refused::default()
        }
    }

    impl Noted {
        /// To whom something was mailed since this was last asked.
        fn mailed(&self, group: &mut Group) -> Vec<PeerKey> {
            group.post.flush(clock::now());
            std::mem::take(&mut *self.sent.lock().unwrap())
        }

        fn calls(&self) -> usize {
            self.calls.lock().unwrap().len()
        }
    }

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn account(group: &GroupKey, number: u8) -> Account {
        let (key, name) = (key(number), format!("site {number}"));
        let places = (0..2).map(|place| Place(format!("192.0.2.{number}:{place}"))).collect();
        Account { stamp: 1, key, site: group.site(&key, 0), run: [1; 16], name, places }
    }

    fn say(group: &mut Group, from: u8, account: Account) {
        let word = Message::Accounts { group: group.key.name(), accounts: vec![account] };
        group.on_word(clock::now(), key(from), Word::Inside(word));
        group.follow_list();
    }

    /// A group of three: we, the first and the second.
    fn three() -> (Arc<Noted>, Group) {
        let (noted, key) = (Arc::new(Noted::default()), GroupKey::random());
        let post = Post::new(noted.clone(), sync_channel(1).1);
        let welcome = Welcome { you: account(&key, 0), key, terms: vec![], multicast: None };
        let mut group = Group::enter(post, welcome, &Manner::default());
        for number in [1, 2] {
            let itself = account(&group.key, number);
            say(&mut group, number, itself);
        }
        assert_eq!(group.members().count(), 3);
        noted.mailed(&mut group);
        (noted, group)
    }

    #[test]
    fn a_lie_about_another_changes_nothing_and_ends_with_who_tells_it() {
        let (noted, mut group) = three();
        let before: Vec<_> = group.members().collect();
        for number in [0, 1] {
            let truth = account(&group.key, number);
            let (site, name) = (group.key.site(&truth.key, 1), "somebody else".into());
            let lie = Account { stamp: u32::MAX, site, run: [9; 16], name, ..truth };
            say(&mut group, 2, lie);
            let itself = account(&group.key, 1);
            say(&mut group, 1, itself);
        }
        assert_eq!(group.members().collect::<Vec<_>>(), before);
        assert_eq!((noted.mailed(&mut group), noted.calls()), (vec![], 0));
    }

    #[test]
    fn who_is_invented_is_called_for_a_while_and_keeps_nobody_out() {
        let (noted, mut group) = three();
        for number in 10..250 {
            let invented = account(&group.key, number);
            say(&mut group, 2, invented);
        }
        let calls = noted.calls();
        assert!((100..=128).contains(&calls), "{calls} calls");
        assert_eq!(noted.mailed(&mut group), [], "and nobody else is told of them");
        for number in 190..250 {
            let knock = Knock { version: VERSION, name: String::new(), wish: Wish::Roam([2; 16]), places: vec![] };
            group.on_word(clock::now(), key(number), Word::Door(party::Message::Knock(knock)));
        }
        assert_eq!(group.members().count(), 63);
        group.look_around(clock::now() + TimeDelta::from_secs(11));
        assert_eq!(noted.calls(), 0);
    }

    #[test]
    fn who_tells_us_of_itself_is_told_of_us_and_who_is_fresh_of_it() {
        let (noted, mut group) = three();
        let itself = account(&group.key, 3);
        say(&mut group, 3, itself.clone());
        let mut told = noted.mailed(&mut group);
        told.sort_unstable();
        assert_eq!(told, [key(1), key(2), key(3)]);
        say(&mut group, 3, itself);
        assert_eq!(noted.mailed(&mut group), []);
    }
}
