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
/// All are told who we are no more often than this: two programs with one key would never end.
const ASSERT: TimeDelta = TimeDelta::from_secs(1);
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
        let who = account.key;
        match self.list.merge(now, account.clone()) {
            Merged::News => {
                self.call(&account);
                // Who came at the same time as this one, elsewhere, was not told of it.
                let fresh: Vec<PeerKey> = self.list.fresh(now).filter(|key| *key != from && *key != who).collect();
                self.tell_to(fresh, [account]);
            }
            Merged::Sought => self.call(&account),
            Merged::Outdated if from == who => {
                let known = self.list.account_of(&who).cloned();
                self.tell_to([from], known);
            }
            Merged::AboutUs => self.assert_ourselves(now),
            Merged::Outdated | Merged::Nothing => {}
        }
    }

    fn call(&self, account: &Account) {
        self.post.call(&account.places, account.key);
    }

    /// There is a way to somebody: if we know it, it shall know us.
    pub(super) fn on_up(&mut self, peer: PeerKey) {
        if self.list.site_of(&peer).is_some() {
            self.tell_to([peer], [self.list.me().clone()]);
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

    /// Some believe something of us that is not so, or not any more.
    fn assert_ourselves(&mut self, now: Instant) {
        if now < self.next_assertion {
            return;
        }
        self.next_assertion = now + ASSERT;
        let others: Vec<PeerKey> = self.list.reachable().map(|account| account.key).collect();
        self.tell_to(others, [self.list.me().clone()]);
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
            self.assert_ourselves(now);
        }
    }
}
