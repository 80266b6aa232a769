//! Keeping the list.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::chat_limiter::ChatLimiter;
use super::message::{
    JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMember, LobbyMessage, PROTOCOL_VERSION, merge_addrs, sanitize,
};
use crate::key::PeerKey;
use crate::transport::PeerAddr;

/// The most who look on and are counted here; a feed has bounds of its own.
const MAX_SPECTATORS: usize = 4_096;
/// Who looks on and is not heard of for so long has gone without a word.
const SPECTATOR_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// How many look on is told, and looked after, no more often than this: they come by the hundred.
const COUNT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// For whom a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// For one.
    One(PeerKey),
    /// For all who look on, but one: the same for each, to be written down once.
    Spectators {
        /// Who does not need it.
        except: Option<PeerKey>,
    },
}

/// Somebody who looks on.
#[derive(Debug)]
struct RosterSpectator {
    name: String,
    last_received: Instant,
}

/// Changes that the one before may have told to others and not to who takes the list over: for certain fewer.
const TAKEOVER_SERIAL_GAP: u32 = 10_000;

/// Something that the one who keeps the list may want to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterEvent {
    /// Somebody took a seat, or is back in its own.
    Seated {
        /// The seat.
        site: u8,
        /// Whether it was there before.
        is_returning: bool,
    },
    /// Somebody gave its seat back.
    Left {
        /// The seat.
        site: u8,
    },
    /// Somebody looks on.
    SpectatorJoined,
    /// Somebody was not let in.
    Refused(JoinRefusal),
    /// A line of chat.
    Chat {
        /// Who says it.
        name: String,
        /// What.
        text: String,
    },
}

/// The list, at the one who keeps it.
#[derive(Debug)]
pub struct Roster {
    lobby: LobbyInfo,
    /// How many seats there are, and how many players in all.
    seats: u8,
    players: u8,
    spectators: BTreeMap<PeerKey, RosterSpectator>,
    next_count: Instant,
    chat_limiter: ChatLimiter,
    outbox: VecDeque<(Recipient, LobbyMessage)>,
    events: VecDeque<RosterEvent>,
}

impl Roster {
    /// A list with nobody on it but the host, who has the first seat.
    pub fn new(host: LobbyMember, session: u64, terms: Vec<u8>, (seats, players): (u8, u8), open: bool) -> Self {
        let members = vec![host];
        let party = LobbyInfo {
            serial: 0,
            session,
            settings: terms,
            is_started: false,
            members,
            allows_spectators: open,
            spectator_count: 0,
            your_site: None,
        };
        Self::with_lobby(party, (seats, players))
    }

    /// Goes on with a list that another one kept, who may have told others more of it than us; and says so to all.
    pub fn take_over(party: LobbyInfo, (seats, players): (u8, u8)) -> Self {
        let serial = party.serial.saturating_add(TAKEOVER_SERIAL_GAP);
        let mut list = Self::with_lobby(LobbyInfo { serial, spectator_count: 0, ..party }, (seats, players));
        list.broadcast_lobby();
        list
    }

    fn with_lobby(party: LobbyInfo, (seats, players): (u8, u8)) -> Self {
        Self {
            lobby: party,
            seats,
            players,
            spectators: BTreeMap::new(),
            next_count: Instant::ZERO,
            chat_limiter: ChatLimiter::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Everything on it.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Who may watch: has asked to, and was let in.
    pub fn is_spectator(&self, key: &PeerKey) -> bool {
        self.spectators.contains_key(key)
    }

    /// All who may.
    pub fn spectators(&self) -> impl Iterator<Item = &PeerKey> {
        self.spectators.keys()
    }

    /// Something came from somebody, whatever it was.
    pub fn record_activity(&mut self, now: Instant, from: &PeerKey) {
        if let Some(watcher) = self.spectators.get_mut(from) {
            watcher.last_received = now;
        }
    }

    /// The next message to be sent.
    pub fn poll_message(&mut self) -> Option<(Recipient, LobbyMessage)> {
        self.outbox.pop_front()
    }

    /// The next thing to show.
    pub fn poll_event(&mut self) -> Option<RosterEvent> {
        self.events.pop_front()
    }

    fn member(&mut self, key: &PeerKey) -> Option<&mut LobbyMember> {
        self.lobby.members.iter_mut().find(|member| member.key == *key)
    }

    /// Lets time pass: those who look on are counted, and those who have gone without a word are forgotten.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNT_INTERVAL;
        self.spectators.retain(|_, watcher| now - watcher.last_received < SPECTATOR_TIMEOUT);
        let count = self.spectators.len() as u16;
        if self.lobby.spectator_count == count {
            return;
        }
        self.lobby.spectator_count = count;
        // Those who look on hear of it when they ask how far away we are.
        let members = self.lobby.members.iter().map(|member| Recipient::One(member.key));
        self.outbox.extend(members.map(|to| (to, LobbyMessage::SpectatorCount(count))));
    }

    /// Takes a message of somebody who was `seen` at a place.
    pub fn handle_message(&mut self, now: Instant, from: PeerKey, message: LobbyMessage, seen: Option<PeerAddr>) {
        self.record_activity(now, &from);
        match message {
            LobbyMessage::JoinRequest(knock) => self.on_join_request(now, from, &knock, seen),
            LobbyMessage::Ready(ready) => {
                if let Some(member) = self.member(&from).filter(|member| member.is_ready != ready) {
                    member.is_ready = ready;
                    self.broadcast_lobby();
                }
            }
            LobbyMessage::Chat { text: line, .. } => self.on_chat(now, from, &line),
            LobbyMessage::Bye => self.on_bye(from),
            LobbyMessage::AddrsChanged(told) => self.set_addrs(&from, &told, seen),
            LobbyMessage::Refused(_) | LobbyMessage::Lobby(_) | LobbyMessage::SpectatorCount(_) => {}
        }
    }

    fn on_join_request(&mut self, now: Instant, from: PeerKey, knock: &JoinRequest, seen: Option<PeerAddr>) {
        let admitted = match knock.intent {
            _ if knock.version != PROTOCOL_VERSION => Err(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)),
            JoinIntent::Spectate if !self.lobby.allows_spectators => Err(JoinRefusal::NoSpectators),
            JoinIntent::JoinMesh(_) => Err(JoinRefusal::WrongGameKind),
            JoinIntent::Spectate => self.admit_spectator(now, from, knock),
            JoinIntent::Play(pads) => self.admit_player(from, knock, pads, seen),
        };
        match admitted {
            Ok(RosterEvent::SpectatorJoined) => {
                self.events.push_back(RosterEvent::SpectatorJoined);
                // Nobody else needs to know more than how many there are.
                self.outbox.push_back((Recipient::One(from), LobbyMessage::Lobby(self.lobby.clone())));
            }
            Ok(event) => {
                self.events.push_back(event);
                self.broadcast_lobby();
            }
            Err(refusal) => {
                self.events.push_back(RosterEvent::Refused(refusal.clone()));
                self.outbox.push_back((Recipient::One(from), LobbyMessage::Refused(refusal)));
            }
        }
    }

    fn admit_spectator(
        &mut self,
        now: Instant,
        from: PeerKey,
        knock: &JoinRequest,
    ) -> Result<RosterEvent, JoinRefusal> {
        if self.spectators.len() >= MAX_SPECTATORS && !self.is_spectator(&from) {
            return Err(JoinRefusal::Full);
        }
        self.spectators
            .insert(from, RosterSpectator { name: sanitize(&knock.name, super::MAX_NAME_LEN), last_received: now });
        Ok(RosterEvent::SpectatorJoined)
    }

    /// Somebody who has a seat can be reached elsewhere now.
    pub fn set_addrs(&mut self, who: &PeerKey, told: &[PeerAddr], seen: Option<PeerAddr>) {
        let places = merge_addrs(told, seen);
        if let Some(member) = self.member(who).filter(|member| member.addrs != places) {
            member.addrs = places;
            self.broadcast_lobby();
        }
    }

    fn admit_player(
        &mut self,
        from: PeerKey,
        knock: &JoinRequest,
        pads: u8,
        seen: Option<PeerAddr>,
    ) -> Result<RosterEvent, JoinRefusal> {
        let (name, places) = (sanitize(&knock.name, super::MAX_NAME_LEN), merge_addrs(&knock.addrs, seen));
        if let Some(member) = self.member(&from) {
            (member.name, member.addrs, member.is_present, member.is_ready) = (name, places, true, false);
            let site = member.site;
            return Ok(RosterEvent::Seated { site, is_returning: true });
        }
        // Who comes while the game runs finds the seats as they were laid; before, each takes as many pads as it needs.
        let pads = if self.lobby.is_started { 1 } else { pads.max(1) };
        let taken = |site: u8| self.lobby.members.iter().any(|member| member.site == site);
        let site = (0..self.seats).find(|site| !taken(*site)).ok_or(JoinRefusal::Full)?;
        if !self.lobby.is_started && self.player_count() + u32::from(pads) > u32::from(self.players) {
            return Err(JoinRefusal::Full);
        }
        let member = LobbyMember { site, key: from, name, pads, addrs: places, is_ready: false, is_present: true };
        self.lobby.members.push(member);
        self.lobby.members.sort_by_key(|member| member.site);
        Ok(RosterEvent::Seated { site, is_returning: false })
    }

    /// How many play at the computers of all members. Others say the numbers, so the sum is wider than any of them.
    fn player_count(&self) -> u32 {
        self.lobby.members.iter().map(|member| u32::from(member.pads)).sum()
    }

    fn on_chat(&mut self, now: Instant, from: PeerKey, line: &str) {
        let member = self.member(&from).map(|member| (member.name.clone(), false));
        let crowd = || self.spectators.get(&from).map(|watcher| (watcher.name.clone(), true));
        let Some((name, is_crowd)) = member.or_else(crowd) else { return };
        if self.chat_limiter.try_acquire(now, from, is_crowd) {
            self.broadcast_chat(Some(from), name, line);
        }
    }

    /// A line for everybody but who says it.
    fn broadcast_chat(&mut self, from: Option<PeerKey>, name: String, line: &str) {
        let line = sanitize(line, super::MAX_CHAT_LEN);
        if line.is_empty() {
            return;
        }
        let chat = LobbyMessage::Chat { name: name.clone(), text: line.clone() };
        let others =
            self.lobby.members.iter().map(|member| member.key).filter(|key| Some(*key) != from).map(Recipient::One);
        self.outbox.extend(others.chain([Recipient::Spectators { except: from }]).map(|to| (to, chat.clone())));
        self.events.push_back(RosterEvent::Chat { name, text: line });
    }

    /// The one who keeps the list says something itself.
    pub fn send_chat(&mut self, name: &str, line: &str) {
        self.broadcast_chat(None, name.into(), line);
    }

    fn on_bye(&mut self, from: PeerKey) {
        if self.spectators.remove(&from).is_some() {
            return;
        }
        if let Some(at) = self.lobby.members.iter().position(|member| member.key == from) {
            let site = self.lobby.members.remove(at).site;
            self.events.push_back(RosterEvent::Left { site });
            self.broadcast_lobby();
        }
    }

    /// A member is there or is not; its seat is its own in any case.
    pub fn set_present(&mut self, site: u8, here: bool) {
        if let Some(member) =
            self.lobby.members.iter_mut().find(|member| member.site == site && member.is_present != here)
        {
            member.is_present = here;
            self.broadcast_lobby();
        }
    }

    /// A member was ready and is not heard of.
    pub fn mark_absent(&mut self, site: u8) {
        if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site) {
            (member.is_ready, member.is_present) = (false, false);
        }
    }

    /// A member is ready or is not.
    pub fn set_ready(&mut self, site: u8, ready: bool) {
        if let Some(member) =
            self.lobby.members.iter_mut().find(|member| member.site == site && member.is_ready != ready)
        {
            member.is_ready = ready;
            self.broadcast_lobby();
        }
    }

    /// Whether everybody who is on the list is ready, and all seats are taken.
    pub fn is_ready_to_start(&self) -> bool {
        let full_house = self.player_count() >= u32::from(self.players);
        let full = self.lobby.members.len() == usize::from(self.seats) || full_house;
        full && self.lobby.members.iter().all(|member| member.is_ready)
    }

    /// The game begins, on these terms, as a session of this number.
    pub fn start(&mut self, session: u64, terms: Vec<u8>) {
        (self.lobby.is_started, self.lobby.session, self.lobby.settings) = (true, session, terms);
        self.broadcast_lobby();
    }

    /// The terms change before the game begins.
    pub fn set_settings(&mut self, terms: Vec<u8>) {
        if self.lobby.settings != terms {
            self.lobby.settings = terms;
            self.broadcast_lobby();
        }
    }

    fn broadcast_lobby(&mut self) {
        self.lobby.serial = self.lobby.serial.saturating_add(1);
        let party = |you| LobbyMessage::Lobby(LobbyInfo { your_site: you, ..self.lobby.clone() });
        // What is for ourselves goes nowhere.
        let members = self.lobby.members.iter().map(|member| (Recipient::One(member.key), party(Some(member.site))));
        let told: Vec<_> = members.chain([(Recipient::Spectators { except: None }, party(None))]).collect();
        self.outbox.extend(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> PeerKey {
        PeerKey([number; 32])
    }

    fn host() -> LobbyMember {
        LobbyMember {
            site: 0,
            key: key(0),
            name: "host".into(),
            pads: 1,
            addrs: vec![],
            is_ready: true,
            is_present: true,
        }
    }

    fn roster(seats: u8, players: u8) -> Roster {
        Roster::new(host(), 7, vec![1, 2, 3], (seats, players), true)
    }

    fn join_request(wish: JoinIntent) -> LobbyMessage {
        LobbyMessage::JoinRequest(JoinRequest {
            version: PROTOCOL_VERSION,
            name: "guest".into(),
            intent: wish,
            addrs: vec![],
        })
    }

    const NOW: Instant = Instant::ZERO;

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    /// Everything that the list has to tell, one by one.
    fn drain_messages(list: &mut Roster) -> Vec<(PeerKey, LobbyMessage)> {
        let mut all = Vec::new();
        while let Some((to, message)) = list.poll_message() {
            match to {
                Recipient::One(key) => all.push((key, message)),
                Recipient::Spectators { except: but } => {
                    let watchers = list.spectators().filter(|key| Some(**key) != but);
                    all.extend(watchers.map(|key| (*key, message.clone())));
                }
            }
        }
        all
    }

    /// What the list last told somebody.
    fn last_message_to(list: &mut Roster, who: PeerKey) -> Option<LobbyMessage> {
        drain_messages(list).into_iter().rev().find(|(key, _)| *key == who).map(|(_, message)| message)
    }

    fn assigned_site(message: Option<LobbyMessage>) -> Option<u8> {
        if let Some(LobbyMessage::Lobby(party)) = message { party.your_site } else { None }
    }

    #[test]
    fn players_get_seats_until_the_lobby_is_full() {
        let mut list = roster(3, 4);
        for number in 1..3 {
            list.handle_message(NOW, key(number), join_request(JoinIntent::Play(1)), None);
            assert_eq!(assigned_site(last_message_to(&mut list, key(number))), Some(number));
        }
        list.handle_message(NOW, key(3), join_request(JoinIntent::Play(1)), None);
        assert_eq!(last_message_to(&mut list, key(3)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
    }

    #[test]
    fn joiner_with_too_many_pads_is_refused() {
        let mut list = roster(4, 4);
        for pads in [4, 254, 255] {
            list.handle_message(NOW, key(1), join_request(JoinIntent::Play(pads)), None);
            assert_eq!(
                last_message_to(&mut list, key(1)),
                Some(LobbyMessage::Refused(JoinRefusal::Full)),
                "{pads} pads"
            );
        }
        // Whoever takes a list over may find any number in it.
        let crowd = |site| LobbyMember { site, key: key(site), pads: 255, is_ready: true, ..host() };
        let party = LobbyInfo { members: (0..3).map(crowd).collect(), ..list.lobby().clone() };
        let mut list = Roster::take_over(party, (4, 4));
        assert!(list.is_ready_to_start());
        list.handle_message(NOW, key(9), join_request(JoinIntent::Play(255)), None);
        assert_eq!(last_message_to(&mut list, key(9)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
    }

    #[test]
    fn two_pads_on_one_site_count_as_two_players() {
        let mut list = roster(4, 3);
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(3)), None);
        assert_eq!(last_message_to(&mut list, key(1)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(2)), None);
        assert_eq!(assigned_site(last_message_to(&mut list, key(1))), Some(1));
        list.handle_message(NOW, key(1), LobbyMessage::Ready(true), None);
        assert!(list.is_ready_to_start(), "three players are here");
    }

    #[test]
    fn seat_is_reserved_for_its_key_until_given_back() {
        let mut list = roster(2, 2);
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        list.start(8, vec![9]);
        list.set_present(1, false);
        list.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        assert_eq!(last_message_to(&mut list, key(2)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        assert_eq!(assigned_site(last_message_to(&mut list, key(1))), Some(1));
        // Given back, it is anybody's.
        list.handle_message(NOW, key(1), LobbyMessage::Bye, None);
        list.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        assert_eq!(assigned_site(last_message_to(&mut list, key(2))), Some(1));
    }

    #[test]
    fn takeover_raises_the_serial_and_notifies_all_members() {
        let mut first = roster(3, 3);
        first.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        let known = first.lobby().clone();
        first.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        let told = first.lobby().serial;
        let mut second = Roster::take_over(known, (3, 3));
        assert!(second.lobby().serial > told, "newer than anything that the first one said");
        assert_eq!(drain_messages(&mut second).len(), 2, "and all hear of it");
    }

    #[test]
    fn join_request_of_another_version_is_refused() {
        let mut list = roster(2, 2);
        let knock = JoinRequest {
            version: PROTOCOL_VERSION + 1,
            name: String::new(),
            intent: JoinIntent::Spectate,
            addrs: vec![],
        };
        list.handle_message(NOW, key(1), LobbyMessage::JoinRequest(knock), None);
        assert_eq!(
            last_message_to(&mut list, key(1)),
            Some(LobbyMessage::Refused(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)))
        );
    }

    #[test]
    fn mesh_join_request_is_refused() {
        let mut list = roster(2, 2);
        list.handle_message(NOW, key(1), join_request(JoinIntent::JoinMesh([7; 16])), None);
        assert_eq!(last_message_to(&mut list, key(1)), Some(LobbyMessage::Refused(JoinRefusal::WrongGameKind)));
        assert_eq!(list.lobby().members.len(), 1);
    }

    fn chat(name: &str, line: &str) -> LobbyMessage {
        LobbyMessage::Chat { name: name.into(), text: line.into() }
    }

    #[test]
    fn chat_is_relayed_to_all_others_and_not_accepted_from_strangers() {
        let mut list = roster(3, 3);
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        list.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut list);
        for (from, others) in [(1, [key(0), key(2)]), (2, [key(0), key(1)])] {
            list.handle_message(NOW, key(from), chat("somebody", "hi\x07 all"), None);
            let all = drain_messages(&mut list);
            assert_eq!(all, others.map(|other| (other, chat("guest", "hi all"))), "of {from}");
        }
        list.handle_message(NOW, key(9), chat("x", "spam"), None);
        assert_eq!(list.poll_message(), None);
    }

    #[test]
    fn chat_is_rate_limited_across_rejoins() {
        let mut list = roster(3, 3);
        list.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut list);
        (0..100).for_each(|_| list.handle_message(NOW, key(2), chat("", "buy"), None));
        assert_eq!(drain_messages(&mut list).len(), 5);
        // Coming in anew does not help.
        list.handle_message(NOW, key(2), LobbyMessage::Bye, None);
        list.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut list);
        list.handle_message(NOW, key(2), chat("", "buy"), None);
        assert_eq!(drain_messages(&mut list), []);
    }

    /// However many come at once, everybody is told of everybody else no more than once a second, and only how many there are.
    #[test]
    fn each_spectator_costs_one_message_and_counts_are_rate_limited() {
        let mut list = roster(3, 3);
        list.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        list.handle_timeout(NOW);
        drain_messages(&mut list);
        let crowd = |number: u16| PeerKey([[9; 30].as_slice(), &number.to_le_bytes()].concat().try_into().unwrap());
        for number in 0..1_000 {
            let now = NOW + TimeDelta::from_millis(2 * i64::from(number));
            list.handle_message(now, crowd(number), join_request(JoinIntent::Spectate), None);
            list.handle_timeout(now);
        }
        list.handle_timeout(later(3));
        let all = drain_messages(&mut list);
        let parties = all.iter().filter(|(_, message)| matches!(message, LobbyMessage::Lobby(_))).count();
        assert_eq!(parties, 1_000, "one for each who came");
        assert!(all.len() <= parties + 3 * 2, "{} messages", all.len());
        assert_eq!(all.last(), Some(&(key(1), LobbyMessage::SpectatorCount(1_000))));
        assert_eq!(list.lobby().spectator_count, 1_000);
    }

    #[test]
    fn silent_spectator_is_dropped_after_timeout() {
        let mut list = roster(3, 3);
        (1..4).for_each(|number| list.handle_message(NOW, key(number), join_request(JoinIntent::Spectate), None));
        list.handle_message(NOW, key(3), LobbyMessage::Bye, None);
        list.handle_timeout(NOW);
        assert_eq!(list.lobby().spectator_count, 2);
        list.record_activity(later(20), &key(1));
        list.handle_timeout(later(31));
        assert_eq!(list.lobby().spectator_count, 1);
        assert!(list.is_spectator(&key(1)) && !list.is_spectator(&key(2)));
    }

    #[test]
    fn address_change_is_broadcast_once() {
        let mut list = roster(3, 3);
        (1..3).for_each(|number| list.handle_message(NOW, key(number), join_request(JoinIntent::Play(1)), None));
        drain_messages(&mut list);
        let moved = LobbyMessage::AddrsChanged(vec![PeerAddr("there".into())]);
        list.handle_message(NOW, key(1), moved.clone(), Some(PeerAddr("seen".into())));
        let Some(LobbyMessage::Lobby(party)) = last_message_to(&mut list, key(2)) else { panic!("it was not told") };
        assert_eq!(party.members[1].addrs, [PeerAddr("seen".into()), PeerAddr("there".into())]);
        list.handle_message(NOW, key(1), moved, Some(PeerAddr("seen".into())));
        assert_eq!(list.poll_message(), None, "nothing new");
    }

    /// Who goes on with the list need not be the first on it.
    #[test]
    fn returning_host_gets_its_seat_from_the_new_leader() {
        let mut first = roster(2, 2);
        first.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        first.start(8, vec![9]);
        let mut second = Roster::take_over(first.lobby().clone(), (2, 2));
        second.handle_message(NOW, key(0), join_request(JoinIntent::Play(1)), None);
        assert_eq!(assigned_site(last_message_to(&mut second, key(0))), Some(0));
    }
}
