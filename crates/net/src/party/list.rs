//! Keeping the list.

use std::collections::{BTreeSet, VecDeque};

use super::message::{Knock, Member, Message, Party, Refusal, VERSION, Wish, places, tidy};
use crate::key::PeerKey;
use crate::transport::Place;

/// The most who look on and are counted here; a feed has bounds of its own.
const MAX_WATCHERS: usize = 4_096;

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
    /// Whether others may look on.
    open: bool,
    watchers: BTreeSet<PeerKey>,
    out: VecDeque<(PeerKey, Message)>,
    events: VecDeque<Event>,
}

impl List {
    /// A list with nobody on it but the host, who has the first seat.
    pub fn new(host: Member, session: u64, terms: Vec<u8>, (seats, players): (u8, u8), open: bool) -> Self {
        let party = Party { serial: 0, session, terms, started: false, members: vec![host], watchers: 0, you: None };
        Self::keep(party, (seats, players), open)
    }

    /// Goes on with a list that another one kept, who may have told others more of it than us.
    pub fn take_over(party: Party, (seats, players): (u8, u8), open: bool) -> Self {
        let serial = party.serial.saturating_add(NOT_HEARD);
        Self::keep(Party { serial, ..party }, (seats, players), open)
    }

    fn keep(party: Party, (seats, players): (u8, u8), open: bool) -> Self {
        let watchers = BTreeSet::new();
        Self { party, seats, players, open, watchers, out: VecDeque::new(), events: VecDeque::new() }
    }

    /// Everything on it.
    pub fn party(&self) -> &Party {
        &self.party
    }

    /// Who may watch: has asked to, and was let in.
    pub fn is_watcher(&self, key: &PeerKey) -> bool {
        self.watchers.contains(key)
    }

    /// The next message to be sent.
    pub fn poll_message(&mut self) -> Option<(PeerKey, Message)> {
        self.out.pop_front()
    }

    /// The next thing to show.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn member(&mut self, key: &PeerKey) -> Option<&mut Member> {
        self.party.members.iter_mut().find(|member| member.key == *key)
    }

    /// Takes a message of somebody who was `seen` at a place.
    pub fn handle_message(&mut self, from: PeerKey, message: Message, seen: Option<Place>) {
        match message {
            Message::Knock(knock) => self.on_knock(from, &knock, seen),
            Message::Ready(ready) => {
                if let Some(member) = self.member(&from).filter(|member| member.ready != ready) {
                    member.ready = ready;
                    self.tell_all();
                }
            }
            Message::Chat { line, .. } => self.on_chat(from, &line),
            Message::Bye => self.on_bye(from),
            Message::Refused(_) | Message::Party(_) => {}
        }
    }

    fn on_knock(&mut self, from: PeerKey, knock: &Knock, seen: Option<Place>) {
        let admitted = match knock.wish {
            _ if knock.version != VERSION => Err(Refusal::Version(VERSION)),
            Wish::Watch if !self.open => Err(Refusal::Private),
            Wish::Watch => self.admit_watcher(from),
            Wish::Play(pads) => self.admit_player(from, knock, pads, seen),
        };
        match admitted {
            Ok(event) => {
                self.events.push_back(event);
                self.tell_all();
            }
            Err(refusal) => {
                self.events.push_back(Event::Refused(refusal.clone()));
                self.out.push_back((from, Message::Refused(refusal)));
            }
        }
    }

    fn admit_watcher(&mut self, from: PeerKey) -> Result<Event, Refusal> {
        if self.watchers.len() >= MAX_WATCHERS {
            return Err(Refusal::Full);
        }
        self.watchers.insert(from);
        self.party.watchers = self.watchers.len() as u16;
        Ok(Event::Watches)
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
        let players: u8 = self.party.members.iter().map(|member| member.pads).sum();
        if !self.party.started && players + pads > self.players {
            return Err(Refusal::Full);
        }
        let member = Member { site, key: from, name, pads, places, ready: false, here: true };
        self.party.members.push(member);
        self.party.members.sort_by_key(|member| member.site);
        Ok(Event::Seated { site, again: false })
    }

    fn on_chat(&mut self, from: PeerKey, line: &str) {
        let Some(name) = self.member(&from).map(|member| member.name.clone()) else { return };
        self.say(Some(from), name, line);
    }

    /// A line for everybody but who says it.
    fn say(&mut self, from: Option<PeerKey>, name: String, line: &str) {
        let line = tidy(line, super::MAX_LINE);
        if line.is_empty() {
            return;
        }
        let others = self.party.members.iter().map(|member| member.key).chain(self.watchers.iter().copied());
        let others = others.filter(|key| Some(*key) != from);
        self.out.extend(others.map(|key| (key, Message::Chat { name: name.clone(), line: line.clone() })));
        self.events.push_back(Event::Chat { name, line });
    }

    /// The one who keeps the list says something itself.
    pub fn chat(&mut self, name: &str, line: &str) {
        self.say(None, name.into(), line);
    }

    fn on_bye(&mut self, from: PeerKey) {
        if self.watchers.remove(&from) {
            self.party.watchers = self.watchers.len() as u16;
            return self.tell_all();
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
        let players: u8 = self.party.members.iter().map(|member| member.pads).sum();
        let full = self.party.members.len() == usize::from(self.seats) || players >= self.players;
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
        self.party.serial += 1;
        let me = self.party.members.first().map(|member| member.key);
        let members = self.party.members.iter().map(|member| (member.key, Some(member.site)));
        let everybody = members.chain(self.watchers.iter().map(|key| (*key, None)));
        let others = everybody.filter(|(key, _)| Some(*key) != me);
        let party = |you| Message::Party(Party { you, ..self.party.clone() });
        let told: Vec<_> = others.map(|(key, you)| (key, party(you))).collect();
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

    /// What the list last told somebody.
    fn told(list: &mut List, who: PeerKey) -> Option<Message> {
        let all: Vec<_> = std::iter::from_fn(|| list.poll_message()).collect();
        all.into_iter().rev().find(|(key, _)| *key == who).map(|(_, message)| message)
    }

    fn seat(message: Option<Message>) -> Option<u8> {
        if let Some(Message::Party(party)) = message { party.you } else { None }
    }

    #[test]
    fn guests_get_seats_until_there_are_none() {
        let mut list = list(3, 4);
        for number in 1..3 {
            list.handle_message(key(number), knock(Wish::Play(1)), None);
            assert_eq!(seat(told(&mut list, key(number))), Some(number));
        }
        list.handle_message(key(3), knock(Wish::Play(1)), None);
        assert_eq!(told(&mut list, key(3)), Some(Message::Refused(Refusal::Full)));
    }

    #[test]
    fn two_at_one_computer_take_two_players() {
        let mut list = list(4, 3);
        list.handle_message(key(1), knock(Wish::Play(3)), None);
        assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::Full)));
        list.handle_message(key(1), knock(Wish::Play(2)), None);
        assert_eq!(seat(told(&mut list, key(1))), Some(1));
        list.handle_message(key(1), Message::Ready(true), None);
        assert!(list.is_complete(), "three players are here");
    }

    #[test]
    fn who_comes_back_has_its_seat_and_nobody_else() {
        let mut list = list(2, 2);
        list.handle_message(key(1), knock(Wish::Play(1)), None);
        list.start(8, vec![9]);
        list.set_here(1, false);
        list.handle_message(key(2), knock(Wish::Play(1)), None);
        assert_eq!(told(&mut list, key(2)), Some(Message::Refused(Refusal::Full)));
        list.handle_message(key(1), knock(Wish::Play(1)), None);
        assert_eq!(seat(told(&mut list, key(1))), Some(1));
        // Given back, it is anybody's.
        list.handle_message(key(1), Message::Bye, None);
        list.handle_message(key(2), knock(Wish::Play(1)), None);
        assert_eq!(seat(told(&mut list, key(2))), Some(1));
    }

    #[test]
    fn who_takes_the_list_over_is_believed_by_all() {
        let mut first = list(3, 3);
        first.handle_message(key(1), knock(Wish::Play(1)), None);
        let known = first.party().clone();
        first.handle_message(key(2), knock(Wish::Watch), None);
        let told = first.party().serial;
        let mut second = List::take_over(known, (3, 3), true);
        second.set_here(0, false);
        assert!(second.party().serial > told, "newer than anything that the first one said");
    }

    #[test]
    fn another_version_is_told_ours() {
        let mut list = list(2, 2);
        let knock = Knock { version: VERSION + 1, name: String::new(), wish: Wish::Watch, places: vec![] };
        list.handle_message(key(1), Message::Knock(knock), None);
        assert_eq!(told(&mut list, key(1)), Some(Message::Refused(Refusal::Version(VERSION))));
    }

    #[test]
    fn chat_goes_to_everybody_else_and_strangers_have_no_say() {
        let mut list = list(3, 3);
        list.handle_message(key(1), knock(Wish::Play(1)), None);
        list.handle_message(key(2), knock(Wish::Watch), None);
        list.handle_message(key(1), Message::Chat { name: "somebody".into(), line: "hi\x07 all".into() }, None);
        let chat = Message::Chat { name: "guest".into(), line: "hi all".into() };
        let all: Vec<_> = std::iter::from_fn(|| list.poll_message()).filter(|(_, message)| *message == chat).collect();
        assert_eq!(all.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(0), key(2)]);
        list.handle_message(key(9), Message::Chat { name: "x".into(), line: "spam".into() }, None);
        assert_eq!(list.poll_message(), None);
    }
}
