//! The people around a game, as a site sees them: the list and who keeps it, the lobby, the start, and who goes.

use coplay::id::{SiteId, SiteSet};
use coplay::input::Ownership;
use coplay::session::{Session, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay_machines::Machine;
use coplay_machines::control::MachineControl;

use super::PlayerRunner;
use crate::clock;
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{self, JoinRequest, LobbyInfo, LobbyMember, LobbyMessage, Recipient, Roster};
use crate::runner::{Frontend, RunError, RunnerEvent, ping};
use crate::transport::PeerAddr;

/// Who waits for a start and does not hear from the host for so long gives up.
const LEADER_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);
/// A guest says that it is there this often, until the game begins.
const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// Who is awaited for the start and is not heard of for so long has to come later.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(6);
/// How far away the others are is measured this often, until the session does it.
const PING_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Where we can be reached is looked at this often.
const ADDR_CHECK_INTERVAL: TimeDelta = TimeDelta::from_secs(5);
/// The last mail gets so long.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_millis(800);

impl PlayerRunner {
    /// Somebody is not where it was looked for. That is of interest only as long as it was not found elsewhere.
    pub(super) fn report_dial_failure(&self, place: &PeerAddr, what: &str, front: &mut dyn Frontend) {
        let member = self.lobby.members.iter().find(|member| member.addrs.contains(place));
        if member.is_some_and(|member| self.mux.transport.addr_of(&member.key).is_some()) {
            return;
        }
        let note = match member.filter(|member| !member.name.is_empty()) {
            Some(member) => format!("{what} {} ({})", member.name, place.brief()),
            None => format!("{what} {}", place.brief()),
        };
        front.on_event(RunnerEvent::Note(note));
    }

    /// Somebody wants to know how far away we are, or answers that.
    pub(super) fn handle_ping(&mut self, at: Instant, from: PeerKey, word: ping::PingMessage) {
        if let Some(list) = &mut self.roster {
            list.record_activity(at, &from);
        }
        match word {
            ping::PingMessage::Ping { nonce: number } => {
                let answer = ping::PingMessage::Pong { nonce: number, spectator_count: self.lobby.spectator_count };
                self.mux.transport.send(&from, &answer.encode());
            }
            ping::PingMessage::Pong { nonce: number, .. } => _ = self.pinger.on_pong(at, &from, number),
        }
    }

    /// A message came.
    pub(super) fn handle_message(&mut self, from: PeerKey, message: LobbyMessage, front: &mut dyn Frontend) {
        if let Some(list) = &mut self.roster {
            let seen = self.mux.transport.addr_of(&from);
            return list.handle_message(clock::now(), from, message, seen);
        }
        match message {
            LobbyMessage::Lobby(lobby)
                if lobby.serial > self.lobby.serial && self.leader.accept_update_from(&self.lobby, &from) =>
            {
                self.leader_last_received = clock::now();
                self.lobby = lobby;
                self.on_lobby_changed(front);
            }
            LobbyMessage::JoinRequest(knock) => self.on_join_request(from, knock),
            _ if self.leader.key() != from => {}
            LobbyMessage::SpectatorCount(watchers) => {
                self.leader_last_received = clock::now();
                self.lobby.spectator_count = watchers;
                self.notify_lobby(front);
            }
            LobbyMessage::Chat { name, text: line } => {
                self.leader_last_received = clock::now();
                front.on_event(RunnerEvent::Chat { name: &name, text: &line });
            }
            _ => self.leader_last_received = clock::now(),
        }
    }

    /// Somebody wants to come in, and somebody else keeps the list; unless that is the very one who knocks, because it was started anew.
    fn on_join_request(&mut self, from: PeerKey, knock: JoinRequest) {
        if self.leader.key() == from {
            self.on_leader_gone(&from);
        }
        if let Some(list) = &mut self.roster {
            let seen = self.mux.transport.addr_of(&from);
            return list.handle_message(clock::now(), from, LobbyMessage::JoinRequest(knock), seen);
        }
        let keeper = self.leader.key();
        let member = self.lobby.members.iter().find(|member| member.key == keeper);
        let told = member.map_or(&[][..], |member| &member.addrs);
        let places = lobby::merge_addrs(told, self.mux.transport.addr_of(&keeper));
        self.mux.send(from, &LobbyMessage::Refused(lobby::JoinRefusal::NotLeader { leader: keeper, addrs: places }));
    }

    fn on_lobby_changed(&mut self, front: &mut dyn Frontend) {
        self.address_book.set_members(&self.lobby);
        // It begins anew, without somebody who did not come.
        if self.session_id != Some(self.lobby.session) && !self.is_late_joiner {
            self.session = None;
        }
        for member in &self.lobby.members {
            self.mux.dial(&member.addrs, member.key);
        }
        self.notify_lobby(front);
    }

    pub(super) fn notify_lobby(&self, front: &mut dyn Frontend) {
        front.on_event(RunnerEvent::LobbyChanged(&self.lobby));
    }

    /// Until the session knows how far away the others are.
    pub(super) fn ping_members(&mut self, now: Instant) {
        if self.is_running() {
            return self.pinger.clear();
        }
        let others = self.lobby.members.iter().filter(|member| member.is_present && member.site != self.own_site);
        let transport = &self.mux.transport;
        let send = |to: &PeerKey, bytes: &[u8]| _ = transport.send(to, bytes);
        self.pinger.ping_all(now, PING_INTERVAL, others.map(|member| member.key), send);
    }

    /// An address may change, and a relay may be found late: then the others must know.
    pub(super) fn check_own_addrs(&mut self, now: Instant) {
        if now < self.next_addr_check {
            return;
        }
        self.next_addr_check = now + ADDR_CHECK_INTERVAL;
        let places = self.mux.own_addrs();
        if places == self.announced_addrs {
            return;
        }
        self.announced_addrs.clone_from(&places);
        let me = self.mux.transport.key();
        match &mut self.roster {
            Some(list) => list.set_addrs(&me, &places, None),
            None => self.mux.send(self.leader.key(), &LobbyMessage::AddrsChanged(places)),
        }
    }

    /// What the list has to say to others and to us.
    pub(super) fn run_roster(&mut self, front: &mut dyn Frontend) {
        let Some(list) = &mut self.roster else { return };
        list.handle_timeout(clock::now());
        while let Some((to, message)) = list.poll_message() {
            match to {
                Recipient::One(key) => self.mux.send(key, &message),
                Recipient::Spectators { except: but } => {
                    let watchers = list.spectators().copied().filter(|key| Some(*key) != but);
                    self.mux.send_to_all(watchers, &message);
                }
            }
        }
        while let Some(event) = list.poll_event() {
            if let lobby::RosterEvent::Chat { name, text: line } = &event {
                front.on_event(RunnerEvent::Chat { name, text: line });
            }
        }
        let (complete, changed) =
            (list.is_ready_to_start() && !list.lobby().is_started, list.lobby().serial != self.lobby.serial);
        let watchers = list.lobby().spectator_count;
        if changed {
            self.lobby = LobbyInfo { your_site: Some(self.own_site), ..list.lobby().clone() };
            self.on_lobby_changed(front);
        } else if watchers != self.lobby.spectator_count {
            self.lobby.spectator_count = watchers;
            self.notify_lobby(front);
        }
        if complete {
            self.start_game();
        }
    }

    /// The host begins with those who are ready; the others can come later.
    pub(super) fn start_game(&mut self) {
        let Some(list) = self.roster.as_mut().filter(|list| !list.lobby().is_started) else { return };
        Self::assign_seats_and_start(list, self.session_adapter.machine());
    }

    fn assign_seats_and_start(list: &mut Roster, machine: &dyn Machine) {
        let Ok(settings) = Settings::from_bytes(&list.lobby().settings) else { return };
        let settings = assign_seats(settings, machine, &list.lobby().members);
        if let Some(terms) = settings.to_bytes() {
            list.start(u64::from_le_bytes(random_bytes()) | 1, terms);
        }
    }

    /// Somebody said that it was ready and is not heard of since: the others begin without it.
    pub(super) fn check_start_timeout(&mut self, now: Instant) {
        let Some(State::Lobby { waiting_for }) = self.session.as_ref().map(Session::state) else {
            self.session_created_at = now;
            return;
        };
        let Some(list) = self.roster.as_mut().filter(|_| now - self.session_created_at > START_TIMEOUT) else { return };
        self.session_created_at = now;
        waiting_for.iter().for_each(|site| list.mark_absent(site.number()));
        Self::assign_seats_and_start(list, self.session_adapter.machine());
    }

    /// Who waits for a start must know that somebody will give it.
    pub(super) fn check_leader_timeout(&mut self, now: Instant) -> Result<(), RunError> {
        if self.roster.is_some() || self.session.is_some() {
            return Ok(());
        }
        if now >= self.next_keep_alive {
            self.next_keep_alive = now + KEEP_ALIVE_INTERVAL;
            self.mux.send(self.leader.key(), &LobbyMessage::Ready(true));
        }
        if self.mux.is_idle() {
            self.leader_last_received = now;
        }
        if now - self.leader_last_received > LEADER_TIMEOUT { Err(RunError::HostGone) } else { Ok(()) }
    }

    pub(super) fn set_present(&mut self, site: SiteId, here: bool) {
        if let Some(list) = &mut self.roster {
            list.set_present(site.number(), here);
        } else if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site.number()) {
            member.is_present = here;
        }
    }

    /// A site is gone: for good, or so that it can come back.
    pub(super) fn on_player_gone(&mut self, site: SiteId, left: bool) {
        self.set_present(site, false);
        let gone = self.lobby.members.iter().find(|member| member.site == site.number()).map(|member| member.key);
        let Some(gone) = gone else { return };
        self.on_leader_gone(&gone);
        if let Some(list) = self.roster.as_mut().filter(|_| left) {
            list.handle_message(clock::now(), gone, LobbyMessage::Bye, None);
        }
    }

    /// If this is who kept the list, the next one goes on with it: perhaps we.
    fn on_leader_gone(&mut self, gone: &PeerKey) {
        if let Some(member) = self.lobby.members.iter_mut().find(|member| member.key == *gone) {
            member.is_present = false;
        }
        self.leader.on_member_gone(&self.lobby, gone);
        if self.roster.is_none() && self.leader.key() == self.mux.transport.key() {
            self.serial_before_takeover = Some(self.lobby.serial);
            self.roster = Some(Roster::take_over(self.lobby.clone(), self.current_seat_limits()));
        }
    }

    /// The others went on without us, and with the list if it was ours.
    pub(super) fn on_own_eviction(&mut self) {
        self.roster = None;
        // Where both of two kept a list, ours leapt when we took it over. Of who keeps it now, every newer one counts.
        self.lobby.serial = self.serial_before_takeover.take().unwrap_or(self.lobby.serial);
        self.leader_last_received = clock::now();
        self.leader.on_own_eviction(&self.lobby, &self.mux.transport.key());
    }

    fn current_seat_limits(&self) -> (u8, u8) {
        let settings = Settings::from_bytes(&self.lobby.settings);
        settings.map_or(self.seat_limits, |settings| (settings.site_count, settings.ownership.players() as u8))
    }

    pub(super) fn send_bye(&mut self) {
        match &self.roster {
            Some(list) => self.mux.send_to_all(list.spectators().copied(), &LobbyMessage::Bye),
            None => self.mux.send(self.leader.key(), &LobbyMessage::Bye),
        }
        self.mux.drain(DRAIN_TIMEOUT);
    }
}

/// Gives every member as many pads as it has people, the seats that are free one each, and everybody the buttons of the machine.
fn assign_seats(mut settings: Settings, machine: &dyn Machine, members: &[LobbyMember]) -> Settings {
    let pads = machine.pads();
    let control = pads.len() - 1;
    let mut ownership = Ownership::new(pads.len());
    let mut next = 0..control;
    let mut give = |site: SiteId, count: u8, ownership: &mut Ownership| {
        for player in next.by_ref().take(usize::from(count)) {
            ownership.assign(site, player, pads[player].mask).expect("nobody has it yet");
        }
        let bits = MachineControl::mask(site.index());
        ownership.assign(site, control, bits).expect("every site has bits of its own");
    };
    let sites: Vec<SiteId> = SiteId::first(usize::from(settings.site_count)).collect();
    let member = |site: &SiteId| members.iter().find(|member| member.site == site.number());
    for site in sites.iter().filter(|site| member(site).is_some()) {
        give(*site, member(site).map_or(1, |member| member.pads), &mut ownership);
    }
    for site in sites.iter().filter(|site| member(site).is_none()) {
        give(*site, 1, &mut ownership);
    }
    settings.ownership = ownership;
    let ready = members.iter().filter(|member| member.is_ready && member.is_present);
    settings.starting_sites = ready.filter_map(|member| SiteId::new(member.site)).collect::<SiteSet>();
    settings
}
