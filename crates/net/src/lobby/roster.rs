//! The roster, kept by its leader: admission, seats, readiness, chat and the spectator count.

use std::collections::{BTreeMap, VecDeque};

use coplay::time::{Instant, TimeDelta};

use super::chat_limiter::ChatLimiter;
use super::message::{
    JoinIntent, JoinRefusal, JoinRequest, LobbyInfo, LobbyMember, LobbyMessage, PROTOCOL_VERSION, merge_addrs, sanitize,
};
use crate::key::PeerKey;
use crate::peer_addr::PeerAddr;

/// Maximum number of admitted spectators; further ones are refused. A spectator feed has limits of its own.
const MAX_SPECTATORS: usize = 4_096;
/// Silence of a spectator after which it is dropped.
const SPECTATOR_TIMEOUT: TimeDelta = TimeDelta::from_secs(30);
/// Minimum interval between updates of the spectator count, and between checks for silent spectators: hundreds of
/// spectators may arrive at once.
const COUNT_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// Recipient of a message from [`Roster::poll_message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The peer with this key: a member, a spectator or a refused joiner.
    One(PeerKey),
    /// All spectators, or all but one. The message is the same for each, so it is encoded once.
    Spectators {
        /// Spectator that does not get the message, being its author; `None` if all get it.
        except: Option<PeerKey>,
    },
}

/// An admitted spectator.
#[derive(Debug)]
struct RosterSpectator {
    name: String,
    last_received: Instant,
}

/// Serial increment on takeover: safely above the number of updates of the previous leader that its successor may have
/// missed.
const TAKEOVER_SERIAL_GAP: u32 = 10_000;

/// Event for the frontend of the roster leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterEvent {
    /// A member took a seat, or returned to its own.
    Seated {
        /// Number of the taken seat.
        site: u8,
        /// Whether the member owned the seat before.
        is_returning: bool,
    },
    /// A member gave its seat back.
    Left {
        /// Number of the freed seat.
        site: u8,
    },
    /// A spectator was admitted.
    SpectatorJoined,
    /// A joiner was refused, for this reason.
    Refused(JoinRefusal),
    /// A line of chat.
    Chat {
        /// Display name of the author in the roster.
        name: String,
        /// The line, without control characters and not empty.
        text: String,
    },
}

/// State of a lobby with its spectators and outgoing messages, kept by the roster leader.
#[derive(Debug)]
pub struct Roster {
    lobby: LobbyInfo,
    /// Number of seats, taken or free.
    seats: u8,
    /// Maximum number of players over all seats.
    players: u8,
    spectators: BTreeMap<PeerKey, RosterSpectator>,
    next_count: Instant,
    chat_limiter: ChatLimiter,
    outbox: VecDeque<(Recipient, LobbyMessage)>,
    events: VecDeque<RosterEvent>,
}

impl Roster {
    /// Creates a roster with only the host, which has the first seat. `seats` limits the members, `players` the sum of
    /// their pads.
    pub fn new(
        host: LobbyMember,
        session: u64,
        settings: Vec<u8>,
        (seats, players): (u8, u8),
        allows_spectators: bool,
    ) -> Self {
        let members = vec![host];
        let lobby = LobbyInfo {
            serial: 0,
            session,
            settings,
            is_started: false,
            members,
            allows_spectators,
            spectator_count: 0,
            your_site: None,
        };
        Self::with_lobby(lobby, (seats, players))
    }

    /// Continues the roster of a former leader from the last lobby that this site received, and broadcasts that lobby.
    /// Its serial is raised above those of updates that the former leader may have sent to others.
    pub fn take_over(lobby: LobbyInfo, (seats, players): (u8, u8)) -> Self {
        let serial = lobby.serial.saturating_add(TAKEOVER_SERIAL_GAP);
        let mut roster = Self::with_lobby(LobbyInfo { serial, spectator_count: 0, ..lobby }, (seats, players));
        roster.broadcast_lobby();
        roster
    }

    fn with_lobby(lobby: LobbyInfo, (seats, players): (u8, u8)) -> Self {
        Self {
            lobby,
            seats,
            players,
            spectators: BTreeMap::new(),
            next_count: Instant::ZERO,
            chat_limiter: ChatLimiter::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the lobby with all changes so far, including those that are not sent yet.
    pub fn lobby(&self) -> &LobbyInfo {
        &self.lobby
    }

    /// Returns whether a peer was admitted as a spectator.
    pub fn is_spectator(&self, key: &PeerKey) -> bool {
        self.spectators.contains_key(key)
    }

    /// Returns the keys of all admitted spectators.
    pub fn spectators(&self) -> impl Iterator<Item = &PeerKey> {
        self.spectators.keys()
    }

    /// Records that a datagram of any kind arrived from a peer. A spectator without one for 30 s is dropped.
    pub fn record_activity(&mut self, now: Instant, from: &PeerKey) {
        if let Some(spectator) = self.spectators.get_mut(from) {
            spectator.last_received = now;
        }
    }

    /// Returns the next message to send, with its recipient; `None` if there is none.
    pub fn poll_message(&mut self) -> Option<(Recipient, LobbyMessage)> {
        self.outbox.pop_front()
    }

    /// Returns the next event for the frontend; `None` if there is none.
    pub fn poll_event(&mut self) -> Option<RosterEvent> {
        self.events.pop_front()
    }

    fn member(&mut self, key: &PeerKey) -> Option<&mut LobbyMember> {
        self.lobby.members.iter_mut().find(|member| member.key == *key)
    }

    /// Drops spectators silent for 30 s, and sends the members the spectator count if it has changed; at most once per
    /// second.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNT_INTERVAL;
        self.spectators.retain(|_, spectator| now - spectator.last_received < SPECTATOR_TIMEOUT);
        let count = self.spectators.len() as u16;
        if self.lobby.spectator_count == count {
            return;
        }
        self.lobby.spectator_count = count;
        // Spectators get the count with the reply to their ping.
        let members = self.lobby.members.iter().map(|member| Recipient::One(member.key));
        self.outbox.extend(members.map(|to| (to, LobbyMessage::SpectatorCount(count))));
    }

    /// Handles a message from a peer; `observed` is the address at which the transport sees it.
    pub fn handle_message(&mut self, now: Instant, from: PeerKey, message: LobbyMessage, observed: Option<PeerAddr>) {
        self.record_activity(now, &from);
        match message {
            LobbyMessage::JoinRequest(request) => self.on_join_request(now, from, &request, observed),
            LobbyMessage::Ready(ready) => {
                if let Some(member) = self.member(&from).filter(|member| member.is_ready != ready) {
                    member.is_ready = ready;
                    self.broadcast_lobby();
                }
            }
            LobbyMessage::Chat { text: line, .. } => self.on_chat(now, from, &line),
            LobbyMessage::Bye => self.on_bye(from),
            LobbyMessage::AddrsChanged(addrs) => self.set_addrs(&from, &addrs, observed),
            LobbyMessage::Refused(_) | LobbyMessage::Lobby(_) | LobbyMessage::SpectatorCount(_) => {}
        }
    }

    fn on_join_request(&mut self, now: Instant, from: PeerKey, request: &JoinRequest, observed: Option<PeerAddr>) {
        let admitted = match request.intent {
            _ if request.version != PROTOCOL_VERSION => Err(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)),
            JoinIntent::Spectate if !self.lobby.allows_spectators => Err(JoinRefusal::NoSpectators),
            JoinIntent::JoinMesh(_) => Err(JoinRefusal::WrongGameKind),
            JoinIntent::Spectate => self.admit_spectator(now, from, request),
            JoinIntent::Play(pads) => self.admit_player(from, request, pads, observed),
        };
        match admitted {
            Ok(RosterEvent::SpectatorJoined) => {
                self.events.push_back(RosterEvent::SpectatorJoined);
                // The members need only the number of spectators, which `handle_timeout` sends.
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
        request: &JoinRequest,
    ) -> Result<RosterEvent, JoinRefusal> {
        if self.spectators.len() >= MAX_SPECTATORS && !self.is_spectator(&from) {
            return Err(JoinRefusal::Full);
        }
        self.spectators
            .insert(from, RosterSpectator { name: sanitize(&request.name, super::MAX_NAME_LEN), last_received: now });
        Ok(RosterEvent::SpectatorJoined)
    }

    /// Sets the addresses of a seated member to those that it reported and the one that the transport observed.
    /// Broadcasts the lobby if they have changed.
    pub fn set_addrs(&mut self, peer: &PeerKey, reported: &[PeerAddr], observed: Option<PeerAddr>) {
        let addrs = merge_addrs(reported, observed);
        if let Some(member) = self.member(peer).filter(|member| member.addrs != addrs) {
            member.addrs = addrs;
            self.broadcast_lobby();
        }
    }

    fn admit_player(
        &mut self,
        from: PeerKey,
        request: &JoinRequest,
        pads: u8,
        observed: Option<PeerAddr>,
    ) -> Result<RosterEvent, JoinRefusal> {
        let (name, addrs) = (sanitize(&request.name, super::MAX_NAME_LEN), merge_addrs(&request.addrs, observed));
        if let Some(member) = self.member(&from) {
            (member.name, member.addrs, member.is_present, member.is_ready) = (name, addrs, true, false);
            let site = member.site;
            return Ok(RosterEvent::Seated { site, is_returning: true });
        }
        // The start of the game assigned one pad to each free seat. Before the start, each joiner takes as many pads as
        // it requests.
        let pads = if self.lobby.is_started { 1 } else { pads.max(1) };
        let taken = |site: u8| self.lobby.members.iter().any(|member| member.site == site);
        let site = (0..self.seats).find(|site| !taken(*site)).ok_or(JoinRefusal::Full)?;
        if !self.lobby.is_started && self.player_count() + u32::from(pads) > u32::from(self.players) {
            return Err(JoinRefusal::Full);
        }
        let member = LobbyMember { site, key: from, name, pads, addrs, is_ready: false, is_present: true };
        self.lobby.members.push(member);
        self.lobby.members.sort_by_key(|member| member.site);
        Ok(RosterEvent::Seated { site, is_returning: false })
    }

    /// Returns the number of players at all sites. Each member's number may come from an untrusted roster, so the sum
    /// has a wider type.
    fn player_count(&self) -> u32 {
        self.lobby.members.iter().map(|member| u32::from(member.pads)).sum()
    }

    fn on_chat(&mut self, now: Instant, from: PeerKey, line: &str) {
        let member = self.member(&from).map(|member| (member.name.clone(), false));
        let spectator = || self.spectators.get(&from).map(|spectator| (spectator.name.clone(), true));
        let Some((name, is_spectator)) = member.or_else(spectator) else { return };
        if self.chat_limiter.try_acquire(now, from, is_spectator) {
            self.broadcast_chat(Some(from), name, line);
        }
    }

    /// Queues a chat line for every member and spectator except its author `from` (`None` is the leader itself), and
    /// for the leader's frontend. Drops a line that is empty once it is sanitized.
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

    /// Queues a chat line of the leader itself for all members and spectators, and for the leader's frontend.
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

    /// Sets whether a member is present, and broadcasts the lobby if that has changed. An absent member keeps its seat.
    pub fn set_present(&mut self, site: u8, is_present: bool) {
        if let Some(member) =
            self.lobby.members.iter_mut().find(|member| member.site == site && member.is_present != is_present)
        {
            member.is_present = is_present;
            self.broadcast_lobby();
        }
    }

    /// Marks a silent member as absent and not ready. The next broadcast of the lobby contains this change.
    pub fn mark_absent(&mut self, site: u8) {
        if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site) {
            (member.is_ready, member.is_present) = (false, false);
        }
    }

    /// Sets whether a member is ready to start, and broadcasts the lobby if that has changed.
    pub fn set_ready(&mut self, site: u8, is_ready: bool) {
        if let Some(member) =
            self.lobby.members.iter_mut().find(|member| member.site == site && member.is_ready != is_ready)
        {
            member.is_ready = is_ready;
            self.broadcast_lobby();
        }
    }

    /// Returns whether all seats or all players are taken, and every member is ready.
    pub fn is_ready_to_start(&self) -> bool {
        let all_players = self.player_count() >= u32::from(self.players);
        let full = self.lobby.members.len() == usize::from(self.seats) || all_players;
        full && self.lobby.members.iter().all(|member| member.is_ready)
    }

    /// Marks the game as started with these settings as session `session`, and broadcasts the lobby.
    pub fn start(&mut self, session: u64, settings: Vec<u8>) {
        (self.lobby.is_started, self.lobby.session, self.lobby.settings) = (true, session, settings);
        self.broadcast_lobby();
    }

    /// Replaces the settings and broadcasts the lobby if they have changed; to be called before the game starts.
    pub fn set_settings(&mut self, settings: Vec<u8>) {
        if self.lobby.settings != settings {
            self.lobby.settings = settings;
            self.broadcast_lobby();
        }
    }

    fn broadcast_lobby(&mut self) {
        self.lobby.serial = self.lobby.serial.saturating_add(1);
        let lobby = |your_site| LobbyMessage::Lobby(LobbyInfo { your_site, ..self.lobby.clone() });
        // `Mux` skips the message to this site itself.
        let members = self.lobby.members.iter().map(|member| (Recipient::One(member.key), lobby(Some(member.site))));
        let messages: Vec<_> = members.chain([(Recipient::Spectators { except: None }, lobby(None))]).collect();
        self.outbox.extend(messages);
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

    fn join_request(intent: JoinIntent) -> LobbyMessage {
        LobbyMessage::JoinRequest(JoinRequest {
            version: PROTOCOL_VERSION,
            name: "guest".into(),
            intent,
            addrs: vec![],
        })
    }

    const NOW: Instant = Instant::ZERO;

    fn later(seconds: i64) -> Instant {
        NOW + TimeDelta::from_secs(seconds)
    }

    /// Returns all pending messages with their recipients.
    fn drain_messages(roster: &mut Roster) -> Vec<(PeerKey, LobbyMessage)> {
        let mut all = Vec::new();
        while let Some((to, message)) = roster.poll_message() {
            match to {
                Recipient::One(key) => all.push((key, message)),
                Recipient::Spectators { except } => {
                    let spectators = roster.spectators().filter(|key| Some(**key) != except);
                    all.extend(spectators.map(|key| (*key, message.clone())));
                }
            }
        }
        all
    }

    /// Returns the last pending message to a peer, and discards all other pending messages.
    fn last_message_to(roster: &mut Roster, peer: PeerKey) -> Option<LobbyMessage> {
        drain_messages(roster).into_iter().rev().find(|(key, _)| *key == peer).map(|(_, message)| message)
    }

    fn assigned_site(message: Option<LobbyMessage>) -> Option<u8> {
        if let Some(LobbyMessage::Lobby(lobby)) = message { lobby.your_site } else { None }
    }

    #[test]
    fn players_get_seats_until_the_lobby_is_full() {
        let mut roster = roster(3, 4);
        for number in 1..3 {
            roster.handle_message(NOW, key(number), join_request(JoinIntent::Play(1)), None);
            assert_eq!(assigned_site(last_message_to(&mut roster, key(number))), Some(number));
        }
        roster.handle_message(NOW, key(3), join_request(JoinIntent::Play(1)), None);
        assert_eq!(last_message_to(&mut roster, key(3)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
    }

    #[test]
    fn joiner_with_too_many_pads_is_refused() {
        let mut roster = roster(4, 4);
        for pads in [4, 254, 255] {
            roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(pads)), None);
            assert_eq!(
                last_message_to(&mut roster, key(1)),
                Some(LobbyMessage::Refused(JoinRefusal::Full)),
                "{pads} pads"
            );
        }
        // A roster that is taken over may contain any number of pads.
        let member = |site| LobbyMember { site, key: key(site), pads: 255, is_ready: true, ..host() };
        let lobby = LobbyInfo { members: (0..3).map(member).collect(), ..roster.lobby().clone() };
        let mut roster = Roster::take_over(lobby, (4, 4));
        assert!(roster.is_ready_to_start());
        roster.handle_message(NOW, key(9), join_request(JoinIntent::Play(255)), None);
        assert_eq!(last_message_to(&mut roster, key(9)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
    }

    #[test]
    fn two_pads_on_one_site_count_as_two_players() {
        let mut roster = roster(4, 3);
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(3)), None);
        assert_eq!(last_message_to(&mut roster, key(1)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(2)), None);
        assert_eq!(assigned_site(last_message_to(&mut roster, key(1))), Some(1));
        roster.handle_message(NOW, key(1), LobbyMessage::Ready(true), None);
        assert!(roster.is_ready_to_start(), "all three players are seated");
    }

    #[test]
    fn seat_is_reserved_for_its_key_until_given_back() {
        let mut roster = roster(2, 2);
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        roster.start(8, vec![9]);
        roster.set_present(1, false);
        roster.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        assert_eq!(last_message_to(&mut roster, key(2)), Some(LobbyMessage::Refused(JoinRefusal::Full)));
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        assert_eq!(assigned_site(last_message_to(&mut roster, key(1))), Some(1));
        // After the seat is given back, any joiner may take it.
        roster.handle_message(NOW, key(1), LobbyMessage::Bye, None);
        roster.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        assert_eq!(assigned_site(last_message_to(&mut roster, key(2))), Some(1));
    }

    #[test]
    fn takeover_raises_the_serial_and_notifies_all_members() {
        let mut first = roster(3, 3);
        first.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        let known = first.lobby().clone();
        first.handle_message(NOW, key(2), join_request(JoinIntent::Play(1)), None);
        let last_serial = first.lobby().serial;
        let mut second = Roster::take_over(known, (3, 3));
        assert!(second.lobby().serial > last_serial, "newer than any update of the first leader");
        assert_eq!(drain_messages(&mut second).len(), 2, "and every other site gets it");
    }

    #[test]
    fn join_request_of_another_version_is_refused() {
        let mut roster = roster(2, 2);
        let request = JoinRequest {
            version: PROTOCOL_VERSION + 1,
            name: String::new(),
            intent: JoinIntent::Spectate,
            addrs: vec![],
        };
        roster.handle_message(NOW, key(1), LobbyMessage::JoinRequest(request), None);
        assert_eq!(
            last_message_to(&mut roster, key(1)),
            Some(LobbyMessage::Refused(JoinRefusal::VersionMismatch(PROTOCOL_VERSION)))
        );
    }

    #[test]
    fn mesh_join_request_is_refused() {
        let mut roster = roster(2, 2);
        roster.handle_message(NOW, key(1), join_request(JoinIntent::JoinMesh([7; 16])), None);
        assert_eq!(last_message_to(&mut roster, key(1)), Some(LobbyMessage::Refused(JoinRefusal::WrongGameKind)));
        assert_eq!(roster.lobby().members.len(), 1);
    }

    fn chat(name: &str, line: &str) -> LobbyMessage {
        LobbyMessage::Chat { name: name.into(), text: line.into() }
    }

    #[test]
    fn chat_is_relayed_to_all_others_and_not_accepted_from_strangers() {
        let mut roster = roster(3, 3);
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        roster.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut roster);
        for (from, others) in [(1, [key(0), key(2)]), (2, [key(0), key(1)])] {
            roster.handle_message(NOW, key(from), chat("somebody", "hi\x07 all"), None);
            let all = drain_messages(&mut roster);
            assert_eq!(all, others.map(|other| (other, chat("guest", "hi all"))), "from {from}");
        }
        roster.handle_message(NOW, key(9), chat("x", "spam"), None);
        assert_eq!(roster.poll_message(), None);
    }

    #[test]
    fn chat_is_rate_limited_across_rejoins() {
        let mut roster = roster(3, 3);
        roster.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut roster);
        (0..100).for_each(|_| roster.handle_message(NOW, key(2), chat("", "buy"), None));
        assert_eq!(drain_messages(&mut roster).len(), 5);
        // Rejoining does not lift the limit.
        roster.handle_message(NOW, key(2), LobbyMessage::Bye, None);
        roster.handle_message(NOW, key(2), join_request(JoinIntent::Spectate), None);
        drain_messages(&mut roster);
        roster.handle_message(NOW, key(2), chat("", "buy"), None);
        assert_eq!(drain_messages(&mut roster), []);
    }

    /// 1,000 spectators arrive within 2 s. Each gets one lobby, and the members get at most one update per second, with
    /// only the count.
    #[test]
    fn each_spectator_costs_one_message_and_counts_are_rate_limited() {
        let mut roster = roster(3, 3);
        roster.handle_message(NOW, key(1), join_request(JoinIntent::Play(1)), None);
        roster.handle_timeout(NOW);
        drain_messages(&mut roster);
        let spectator = |number: u16| PeerKey([[9; 30].as_slice(), &number.to_le_bytes()].concat().try_into().unwrap());
        for number in 0..1_000 {
            let now = NOW + TimeDelta::from_millis(2 * i64::from(number));
            roster.handle_message(now, spectator(number), join_request(JoinIntent::Spectate), None);
            roster.handle_timeout(now);
        }
        roster.handle_timeout(later(3));
        let all = drain_messages(&mut roster);
        let lobbies = all.iter().filter(|(_, message)| matches!(message, LobbyMessage::Lobby(_))).count();
        assert_eq!(lobbies, 1_000, "one per admitted spectator");
        assert!(all.len() <= lobbies + 3 * 2, "{} messages", all.len());
        assert_eq!(all.last(), Some(&(key(1), LobbyMessage::SpectatorCount(1_000))));
        assert_eq!(roster.lobby().spectator_count, 1_000);
    }

    #[test]
    fn silent_spectator_is_dropped_after_timeout() {
        let mut roster = roster(3, 3);
        (1..4).for_each(|number| roster.handle_message(NOW, key(number), join_request(JoinIntent::Spectate), None));
        roster.handle_message(NOW, key(3), LobbyMessage::Bye, None);
        roster.handle_timeout(NOW);
        assert_eq!(roster.lobby().spectator_count, 2);
        roster.record_activity(later(20), &key(1));
        roster.handle_timeout(later(31));
        assert_eq!(roster.lobby().spectator_count, 1);
        assert!(roster.is_spectator(&key(1)) && !roster.is_spectator(&key(2)));
    }

    #[test]
    fn address_change_is_broadcast_once() {
        let mut roster = roster(3, 3);
        (1..3).for_each(|number| roster.handle_message(NOW, key(number), join_request(JoinIntent::Play(1)), None));
        drain_messages(&mut roster);
        let moved = LobbyMessage::AddrsChanged(vec![PeerAddr("reported".into())]);
        roster.handle_message(NOW, key(1), moved.clone(), Some(PeerAddr("observed".into())));
        let Some(LobbyMessage::Lobby(lobby)) = last_message_to(&mut roster, key(2)) else { panic!("no lobby update") };
        assert_eq!(lobby.members[1].addrs, [PeerAddr("observed".into()), PeerAddr("reported".into())]);
        roster.handle_message(NOW, key(1), moved, Some(PeerAddr("observed".into())));
        assert_eq!(roster.poll_message(), None, "unchanged addresses are not broadcast");
    }

    /// A leader without the first seat gives a returning host its seat back.
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
