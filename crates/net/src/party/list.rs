//! Keeping the list.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::message::{Knock, Member, Message, Party, Refusal, VERSION, Wish, places, tidy};
use super::talk::Talk;
use crate::key::PeerKey;
use crate::transport::Place;

/// The most who look on and are counted here; a feed has bounds of its own.
const MAX_WATCHERS: usize = 4_096;
/// Who looks on and is not heard of for so long has gone without a word.
const SILENT: TimeDelta = TimeDelta::from_secs(30);
/// How many look on is told, and looked after, no more often than this: they come by the hundred.
const COUNT_EVERY: TimeDelta = TimeDelta::from_secs(1);

/// For whom a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// For one.
    One(PeerKey),
    /// For all who look on, but one: the same for each, to be written down once.
    Watchers {
        /// Who does not need it.
        but: Option<PeerKey>,
    },
}

/// Somebody who looks on.
#[derive(Debug)]
struct Watcher {
    name: String,
    heard: Instant,
}

/// Changes that the one before may have told to others and not to who takes the list over: for certain fewer.
const NOT_HEARD: u32 = 10_000;

/// Something that the one who keeps the list may want to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody took a seat, or is back in its own.
    Seated {
        /// The seat.
        site: u8,
        /// Whether it was there before.
        again: bool,
    },
    /// Somebody gave its seat back.
    Left {
        /// The seat.
        site: u8,
    },
    /// Somebody looks on.
    Watches,
    /// Somebody was not let in.
    Refused(Refusal),
    /// A line of chat.
    Chat {
        /// Who says it.
        name: String,
        /// What.
        line: String,
    },
}

/// The list, at the one who keeps it.
#[derive(Debug)]
pub struct List {
    party: Party,
    /// How many seats there are, and how many players in all.
    seats: u8,
    players: u8,
    watchers: BTreeMap<PeerKey, Watcher>,
    next_count: Instant,
    talk: Talk,
    out: VecDeque<(To, Message)>,
    events: VecDeque<Event>,
}

impl List {
    /// A list with nobody on it but the host, who has the first seat.
    pub fn new(host: Member, session: u64, terms: Vec<u8>, (seats, players): (u8, u8), open: bool) -> Self {
        let members = vec![host];
        let party = Party { serial: 0, session, terms, started: false, members, open, watchers: 0, you: None };
        Self::keep(party, (seats, players))
    }

    /// Goes on with a list that another one kept, who may have told others more of it than us; and says so to all.
    pub fn take_over(party: Party, (seats, players): (u8, u8)) -> Self {
        let serial = party.serial.saturating_add(NOT_HEARD);
        let mut list = Self::keep(Party { serial, watchers: 0, ..party }, (seats, players));
        list.tell_all();
        list
    }

    fn keep(party: Party, (seats, players): (u8, u8)) -> Self {
        Self {
            party,
            seats,
            players,
            watchers: BTreeMap::new(),
            next_count: Instant::ZERO,
            talk: Talk::default(),
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Everything on it.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// Who may watch: has asked to, and was let in.
    pub fn is_watcher(&self, key: &PeerKey) -> bool {
        self.watchers.contains_key(key)
    }

    /// All who may.
    pub fn watchers(&self) -> impl Iterator<Item = &PeerKey> {
        self.watchers.keys()
    }

    /// Something came from somebody, whatever it was.
    pub fn note_heard(&mut self, now: Instant, from: &PeerKey) {
        if let Some(watcher) = self.watchers.get_mut(from) {
            watcher.heard = now;
        }
    }

    /// The next message to be sent.
    pub fn poll_message(&mut self) -> Option<(To, Message)> {
        self.out.pop_front()
    }

    /// The next thing to show.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn member(&mut self, key: &PeerKey) -> Option<&mut Member> {
        self.party.members.iter_mut().find(|member| member.key == *key)
    }

    /// Lets time pass: those who look on are counted, and those who have gone without a word are forgotten.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNT_EVERY;
        self.watchers.retain(|_, watcher| now - watcher.heard < SILENT);
        let count = self.watchers.len() as u16;
        if self.party.watchers == count {
            return;
        }
        self.party.watchers = count;
        // Those who look on hear of it when they ask how far away we are.
        let members = self.party.members.iter().map(|member| To::One(member.key));
        self.out.extend(members.map(|to| (to, Message::Watchers(count))));
    }

    /// Takes a message of somebody who was `seen` at a place.
    pub fn handle_message(&mut self, now: Instant, from: PeerKey, message: Message, seen: Option<Place>) {
        self.note_heard(now, &from);
        match message {
            Message::Knock(knock) => self.on_knock(now, from, &knock, seen),
            Message::Ready(ready) => {
                if let Some(member) = self.member(&from).filter(|member| member.ready != ready) {
                    member.ready = ready;
                    self.tell_all();
                }
            }
            Message::Chat { line, .. } => self.on_chat(now, from, &line),
            Message::Bye => self.on_bye(from),
            Message::Places(told) => self.set_places(&from, &told, seen),
            Message::Refused(_) | Message::Party(_) | Message::Watchers(_) => {}
        }
    }

    fn on_knock(&mut self, now: Instant, from: PeerKey, knock: &Knock, seen: Option<Place>) {
        let admitted = match knock.wish {
            _ if knock.version != VERSION => Err(Refusal::Version(VERSION)),
            Wish::Watch if !self.party.open => Err(Refusal::Private),
            Wish::Roam(_) => Err(Refusal::OtherKind),
            Wish::Watch => self.admit_watcher(now, from, knock),
            Wish::Play(pads) => self.admit_player(from, knock, pads, seen),
        };
        match admitted {
            Ok(Event::Watches) => {
                self.events.push_back(Event::Watches);
                // Nobody else needs to know more than how many there are.
                self.out.push_back((To::One(from), Message::Party(self.party.clone())));
            }
            Ok(event) => {
                self.events.push_back(event);
                self.tell_all();
            }
            Err(refusal) => {
                self.events.push_back(Event::Refused(refusal.clone()));
                self.out.push_back((To::One(from), Message::Refused(refusal)));
            }
        }
    }

    fn admit_watcher(&mut self, now: Instant, from: PeerKey, knock: &Knock) -> Result<Event, Refusal> {
        if self.watchers.len() >= MAX_WATCHERS && !self.is_watcher(&from) {
            return Err(Refusal::Full);
        }
        self.watchers.insert(from, Watcher { name: tidy(&knock.name, super::MAX_NAME), heard: now });
        Ok(Event::Watches)
    }

    /// Somebody who has a seat can be reached elsewhere now.
    pub fn set_places(&mut self, who: &PeerKey, told: &[Place], seen: Option<Place>) {
        let places = places(told, seen);
        if let Some(member) = self.member(who).filter(|member| member.places != places) {
            member.places = places;
            self.tell_all();
        }
    }

    fn admit_player(&mut self, from: PeerKey, knock: &Knock, pads: u8, seen: Option<Place>) -> Result<Event, Refusal> {
        let (name, places) = (tidy(&knock.name, super::MAX_NAME), places(&knock.places, seen));
        if let Some(member) = self.member(&from) {
            (member.name, member.places, member.here, member.ready) = (name, places, true, false);
            let site = member.site;
            return Ok(Event::Seated { site, again: true });
        }
        // Who comes while the game runs finds the seats as they were laid; before, each takes as many pads as it needs.
        let pads = if self.party.started { 1 } else { pads.max(1) };
        let taken = |site: u8| self.party.members.iter().any(|member| member.site == site);
        let site = (0..self.seats).find(|site| !taken(*site)).ok_or(Refusal::Full)?;
        if !self.party.started && self.players_here() + u32::from(pads) > u32::from(self.players) {
            return Err(Refusal::Full);
        }
        let member = Member { site, key: from, name, pads, places, ready: false, here: true };
        self.party.members.push(member);
        self.party.members.sort_by_key(|member| member.site);
        Ok(Event::Seated { site, again: false })
    }

    /// How many play at the computers of all members. Others say the numbers, so the sum is wider than any of them.
    fn players_here(&self) -> u32 {
        self.party.members.iter().map(|member| u32::from(member.pads)).sum()
    }

    fn on_chat(&mut self, now: Instant, from: PeerKey, line: &str) {
        let member = self.member(&from).map(|member| (member.name.clone(), false));
        let crowd = || self.watchers.get(&from).map(|watcher| (watcher.name.clone(), true));
        let Some((name, is_crowd)) = member.or_else(crowd) else { return };
        if self.talk.allows(now, from, is_crowd) {
            self.say(Some(from), name, line);
        }
    }

    /// A line for everybody but who says it.
    fn say(&mut self, from: Option<PeerKey>, name: String, line: &str) {
        let line = tidy(line, super::MAX_LINE);
        if line.is_empty() {
            return;
        }
        let chat = Message::Chat { name: name.clone(), line: line.clone() };
        let others = self.party.members.iter().map(|member| member.key).filter(|key| Some(*key) != from).map(To::One);
        self.out.extend(others.chain([To::Watchers { but: from }]).map(|to| (to, chat.clone())));
        self.events.push_back(Event::Chat { name, line });
    }

    /// The one who keeps the list says something itself.
    pub fn chat(&mut self, name: &str, line: &str) {
        self.say(None, name.into(), line);
    }

    fn on_bye(&mut self, from: PeerKey) {
        if self.watchers.remove(&from).is_some() {
            return;
        }
        if let Some(at) = self.party.members.iter().position(|member| member.key == from) {
            let site = self.party.members.remove(at).site;
            self.events.push_back(Event::Left { site });
            self.tell_all();
        }
    }

    /// A member is there or is not; its seat is its own in any case.
    pub fn set_here(&mut self, site: u8, here: bool) {
        if let Some(member) = self.party.members.iter_mut().find(|member| member.site == site && member.here != here) {
            member.here = here;
            self.tell_all();
        }
    }

    /// A member was ready and is not heard of.
    pub fn give_up_on(&mut self, site: u8) {
        if let Some(member) = self.party.members.iter_mut().find(|member| member.site == site) {
            (member.ready, member.here) = (false, false);
        }
    }

    /// A member is ready or is not.
    pub fn set_ready(&mut self, site: u8, ready: bool) {
        if let Some(member) = self.party.members.iter_mut().find(|member| member.site == site && member.ready != ready)
        {
            member.ready = ready;
            self.tell_all();
        }
    }

    /// Whether everybody who is on the list is ready, and all seats are taken.
    pub fn is_complete(&self) -> bool {
        let full_house = self.players_here() >= u32::from(self.players);
        let full = self.party.members.len() == usize::from(self.seats) || full_house;
        full && self.party.members.iter().all(|member| member.ready)
    }

    /// The game begins, on these terms, as a session of this number.
    pub fn start(&mut self, session: u64, terms: Vec<u8>) {
        (self.party.started, self.party.session, self.party.terms) = (true, session, terms);
        self.tell_all();
    }

    /// The terms change before the game begins.
    pub fn set_terms(&mut self, terms: Vec<u8>) {
        if self.party.terms != terms {
            self.party.terms = terms;
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        self.party.serial = self.party.serial.saturating_add(1);
        let party = |you| Message::Party(Party { you, ..self.party.clone() });
        // What is for ourselves goes nowhere.
        let members = self.party.members.iter().map(|member| (To::One(member.key), party(Some(member.site))));
        let told: Vec<_> = members.chain([(To::Watchers { but: None }, party(None))]).collect();
        self.out.extend(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn host() -> Member {
        Member { site: 0, key: key(0), name: "host".into(), pads: 1, places: vec![], ready: true, here: true }
    }

    fn list(seats: u8, players: u8) -> List {
        List::new(host(), 7, vec![1, 2, 3], (seats, players), true)
    }

    fn knock(wish: Wish) -> Message {
        Message::Knock(Knock { version: VERSION, name: "guest".into(), wish, places: vec![] })
    }

    const NOW: Instant = Instant::ZERO;

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    /// Everything that the list has to tell, one by one.
    fn all_told(list: &mut List) -> Vec<(PeerKey, Message)> {
        let mut all = Vec::new();
        while let Some((to, message)) = list.poll_message() {
            match to {
                To::One(key) => all.push((key, message)),
                To::Watchers { but } => {
                    let watchers = list.watchers().filter(|key| Some(**key) != but);
                    all.extend(watchers.map(|key| (*key, message.clone())));
                }
            }
        }
        all
    }

    /// What the list last told somebody.
    fn told(list: &mut List, who: PeerKey) -> Option<Message> {
        all_told(list).into_iter().rev().find(|(key, _)| *key == who).map(|(_, message)| message)
    }

    fn seat(message: Option<Message>) -> Option<u8> {
        if let Some(Message::Party(party)) = message { party.you } else { None }
    }

    #[test]
    fn guests_get_seats_until_there_are_none() {
        let mut list = list(3, 4);
        for number in 1..3 {
            list.handle_message(NOW, key(number), knock(Wish::Play(1)), None);
            assert_eq!(seat(told(&mut list, key(number))), Some(number));
        }
        list.handle_message(NOW, key(3), knock(Wish::Play(1)), None);
        assert_eq!(told(&mut list, key(3)), Some(Message::Refused(Refusal::Full)));
    }

    #[test]
    fn nobody_takes_more_pads_than_there_are() {
        let mut list = list(4, 4);
        for pads in [4, 254, 255] {
            list.handle_message(NOW, key(1), knock(Wish::Play(pads)), None);
            assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::Full)), "{pads} pads");
        }
        // Whoever takes a list over may find any number in it.
        let crowd = |site| Member { site, key: key(site), pads: 255, ready: true, ..host() };
        let party = Party { members: (0..3).map(crowd).collect(), ..list.party().clone() };
        let mut list = List::take_over(party, (4, 4));
        assert!(list.is_complete());
        list.handle_message(NOW, key(9), knock(Wish::Play(255)), None);
        assert_eq!(told(&mut list, key(9)), Some(Message::Refused(Refusal::Full)));
    }

    #[test]
    fn two_at_one_computer_take_two_players() {
        let mut list = list(4, 3);
        list.handle_message(NOW, key(1), knock(Wish::Play(3)), None);
        assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::Full)));
        list.handle_message(NOW, key(1), knock(Wish::Play(2)), None);
        assert_eq!(seat(told(&mut list, key(1))), Some(1));
        list.handle_message(NOW, key(1), Message::Ready(true), None);
        assert!(list.is_complete(), "three players are here");
    }

    #[test]
    fn who_comes_back_has_its_seat_and_nobody_else() {
        let mut list = list(2, 2);
        list.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        list.start(8, vec![9]);
        list.set_here(1, false);
        list.handle_message(NOW, key(2), knock(Wish::Play(1)), None);
        assert_eq!(told(&mut list, key(2)), Some(Message::Refused(Refusal::Full)));
        list.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        assert_eq!(seat(told(&mut list, key(1))), Some(1));
        // Given back, it is anybody's.
        list.handle_message(NOW, key(1), Message::Bye, None);
        list.handle_message(NOW, key(2), knock(Wish::Play(1)), None);
        assert_eq!(seat(told(&mut list, key(2))), Some(1));
    }

    #[test]
    fn who_takes_the_list_over_is_believed_by_all() {
        let mut first = list(3, 3);
        first.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        let known = first.party().clone();
        first.handle_message(NOW, key(2), knock(Wish::Play(1)), None);
        let told = first.party().serial;
        let mut second = List::take_over(known, (3, 3));
        assert!(second.party().serial > told, "newer than anything that the first one said");
        assert_eq!(all_told(&mut second).len(), 2, "and all hear of it");
    }

    #[test]
    fn another_version_is_told_ours() {
        let mut list = list(2, 2);
        let knock = Knock { version: VERSION + 1, name: String::new(), wish: Wish::Watch, places: vec![] };
        list.handle_message(NOW, key(1), Message::Knock(knock), None);
        assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::Version(VERSION))));
    }

    #[test]
    fn who_wants_a_world_to_walk_about_in_is_told_that_this_is_none() {
        let mut list = list(2, 2);
        list.handle_message(NOW, key(1), knock(Wish::Roam([7; 16])), None);
        assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::OtherKind)));
        assert_eq!(list.party().members.len(), 1);
    }

    fn chat(name: &str, line: &str) -> Message {
        Message::Chat { name: name.into(), line: line.into() }
    }

    #[test]
    fn chat_goes_to_everybody_else_and_strangers_have_no_say() {
        let mut list = list(3, 3);
        list.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        list.handle_message(NOW, key(2), knock(Wish::Watch), None);
        all_told(&mut list);
        for (from, others) in [(1, [key(0), key(2)]), (2, [key(0), key(1)])] {
            list.handle_message(NOW, key(from), chat("somebody", "hi\x07 all"), None);
            let all = all_told(&mut list);
            assert_eq!(all, others.map(|other| (other, chat("guest", "hi all"))), "of {from}");
        }
        list.handle_message(NOW, key(9), chat("x", "spam"), None);
        assert_eq!(list.poll_message(), None);
    }

    #[test]
    fn nobody_drowns_the_others_out() {
        let mut list = list(3, 3);
        list.handle_message(NOW, key(2), knock(Wish::Watch), None);
        all_told(&mut list);
        (0..100).for_each(|_| list.handle_message(NOW, key(2), chat("", "buy"), None));
        assert_eq!(all_told(&mut list).len(), 5);
        // Coming in anew does not help.
        list.handle_message(NOW, key(2), Message::Bye, None);
        list.handle_message(NOW, key(2), knock(Wish::Watch), None);
        all_told(&mut list);
        list.handle_message(NOW, key(2), chat("", "buy"), None);
        assert_eq!(all_told(&mut list), []);
    }

    /// However many come at once, everybody is told of everybody else no more than once a second, and only how many there are.
    #[test]
    fn a_crowd_costs_each_of_it_one_message() {
        let mut list = list(3, 3);
        list.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        list.handle_timeout(NOW);
        all_told(&mut list);
        let crowd = |number: u16| PeerKey([[9; 30].as_slice(), &number.to_le_bytes()].concat().try_into().unwrap());
        for number in 0..1_000 {
            let now = NOW + TimeDelta::from_millis(2 * i64::from(number));
            list.handle_message(now, crowd(number), knock(Wish::Watch), None);
            list.handle_timeout(now);
        }
        list.handle_timeout(later(3));
        let all = all_told(&mut list);
        let parties = all.iter().filter(|(_, message)| matches!(message, Message::Party(_))).count();
        assert_eq!(parties, 1_000, "one for each who came");
        assert!(all.len() <= parties + 3 * 2, "{} messages", all.len());
        assert_eq!(all.last(), Some(&(key(1), Message::Watchers(1_000))));
        assert_eq!(list.party().watchers, 1_000);
    }

    #[test]
    fn who_looked_on_and_vanished_is_not_counted_for_ever() {
        let mut list = list(3, 3);
        (1..4).for_each(|number| list.handle_message(NOW, key(number), knock(Wish::Watch), None));
        list.handle_message(NOW, key(3), Message::Bye, None);
        list.handle_timeout(NOW);
        assert_eq!(list.party().watchers, 2);
        list.note_heard(later(20), &key(1));
        list.handle_timeout(later(31));
        assert_eq!(list.party().watchers, 1);
        assert!(list.is_watcher(&key(1)) && !list.is_watcher(&key(2)));
    }

    #[test]
    fn who_can_be_reached_elsewhere_is_told_to_the_others() {
        let mut list = list(3, 3);
        (1..3).for_each(|number| list.handle_message(NOW, key(number), knock(Wish::Play(1)), None));
        all_told(&mut list);
        let moved = Message::Places(vec![Place("there".into())]);
        list.handle_message(NOW, key(1), moved.clone(), Some(Place("seen".into())));
        let Some(Message::Party(party)) = told(&mut list, key(2)) else { panic!("it was not told") };
        assert_eq!(party.members[1].places, [Place("seen".into()), Place("there".into())]);
        list.handle_message(NOW, key(1), moved, Some(Place("seen".into())));
        assert_eq!(list.poll_message(), None, "nothing new");
    }

    /// Who goes on with the list need not be the first on it.
    #[test]
    fn a_host_who_comes_back_is_told_by_who_keeps_the_list() {
        let mut first = list(2, 2);
        first.handle_message(NOW, key(1), knock(Wish::Play(1)), None);
        first.start(8, vec![9]);
        let mut second = List::take_over(first.party().clone(), (2, 2));
        second.handle_message(NOW, key(0), knock(Wish::Play(1)), None);
        assert_eq!(seat(told(&mut second, key(0))), Some(0));
    }
}
