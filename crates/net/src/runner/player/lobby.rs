//! The lobby as a playing site sees it: the roster and its leader, the start, and departures.

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
use crate::peer_addr::PeerAddr;
use crate::runner::{Frontend, RunError, RunnerEvent, ping};

/// Time without a message or an acknowledgement from the leader, after which a member that waits for the start gives
/// up.
const LEADER_TIMEOUT: TimeDelta = TimeDelta::from_secs(15);
/// Keep-alive interval of a member until the game starts.
const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_secs(2);
/// Time that a session waits for its starting members; then the leader starts the game again without the missing ones.
const START_TIMEOUT: TimeDelta = TimeDelta::from_secs(6);
/// Ping interval, until the session measures round-trip times.
const PING_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Interval between checks whether this site's own addresses have changed.
const ADDR_CHECK_INTERVAL: TimeDelta = TimeDelta::from_secs(5);
/// Time limit for the acknowledgement of this site's goodbye.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_millis(800);

impl PlayerRunner {
    /// Reports a failed dial, unless the member is connected at another address.
    pub(super) fn report_dial_failure(&self, addr: &PeerAddr, problem: &str, frontend: &mut dyn Frontend) {
        let member = self.lobby.members.iter().find(|member| member.addrs.contains(addr));
        if member.is_some_and(|member| self.mux.transport.addr_of(&member.key).is_some()) {
            return;
        }
        let note = match member.filter(|member| !member.name.is_empty()) {
            Some(member) => format!("{problem} {} ({})", member.name, addr.brief()),
            None => format!("{problem} {}", addr.brief()),
        };
        frontend.on_event(RunnerEvent::Note(note));
    }

    /// Answers a ping, or handles the reply to a ping. The roster, if this site leads it, records either as activity of
    /// the sender.
    pub(super) fn handle_ping(&mut self, at: Instant, from: PeerKey, message: ping::PingMessage) {
        if let Some(roster) = &mut self.roster {
            roster.record_activity(at, &from);
        }
        match message {
            ping::PingMessage::Ping { nonce } => {
                let reply = ping::PingMessage::Pong { nonce, spectator_count: self.lobby.spectator_count };
                self.mux.transport.send(&from, &reply.encode());
            }
            ping::PingMessage::Pong { nonce, .. } => _ = self.pinger.on_pong(at, &from, nonce),
        }
    }

    /// Passes a lobby message to the roster if this site leads it. Otherwise refers joiners to the leader, and handles
    /// only messages of the leader and newer rosters of a site that may have become the leader.
    pub(super) fn handle_message(&mut self, from: PeerKey, message: LobbyMessage, frontend: &mut dyn Frontend) {
        if let Some(roster) = &mut self.roster {
            let observed = self.mux.transport.addr_of(&from);
            return roster.handle_message(clock::now(), from, message, observed);
        }
        match message {
            LobbyMessage::Lobby(lobby)
                if lobby.serial > self.lobby.serial && self.leader.accept_update_from(&self.lobby, &from) =>
            {
                self.leader_last_received = clock::now();
                self.lobby = lobby;
                self.on_lobby_changed(frontend);
            }
            LobbyMessage::JoinRequest(request) => self.on_join_request(from, request),
            _ if self.leader.key() != from => {}
            LobbyMessage::SpectatorCount(count) => {
                self.leader_last_received = clock::now();
                self.lobby.spectator_count = count;
                self.notify_lobby(frontend);
            }
            LobbyMessage::Chat { name, text } => {
                self.leader_last_received = clock::now();
                frontend.on_event(RunnerEvent::Chat { name: &name, text: &text });
            }
            _ => self.leader_last_received = clock::now(),
        }
    }

    /// Refers a joiner to the roster leader. A join request from the leader itself means that its program was
    /// restarted: its successor leads from now on. If this site is the successor, its new roster handles the request.
    fn on_join_request(&mut self, from: PeerKey, request: JoinRequest) {
        if self.leader.key() == from {
            self.on_leader_gone(&from);
        }
        if let Some(roster) = &mut self.roster {
            let observed = self.mux.transport.addr_of(&from);
            return roster.handle_message(clock::now(), from, LobbyMessage::JoinRequest(request), observed);
        }
        let leader = self.leader.key();
        let member = self.lobby.members.iter().find(|member| member.key == leader);
        let reported = member.map_or(&[][..], |member| &member.addrs);
        let addrs = lobby::merge_addrs(reported, self.mux.transport.addr_of(&leader));
        self.mux.send(from, &LobbyMessage::Refused(lobby::JoinRefusal::NotLeader { leader, addrs }));
    }

    fn on_lobby_changed(&mut self, frontend: &mut dyn Frontend) {
        self.address_book.set_members(&self.lobby);
        // Another session number means that the game starts again, without a member that did not arrive.
        if self.session_id != Some(self.lobby.session) && !self.is_late_joiner {
            self.session = None;
        }
        for member in &self.lobby.members {
            self.mux.dial(&member.addrs, member.key);
        }
        self.notify_lobby(frontend);
    }

    pub(super) fn notify_lobby(&self, frontend: &mut dyn Frontend) {
        frontend.on_event(RunnerEvent::LobbyChanged(&self.lobby));
    }

    /// Pings the other members until the session measures round-trip times.
    pub(super) fn ping_members(&mut self, now: Instant) {
        if self.is_running() {
            return self.pinger.clear();
        }
        let others = self.lobby.members.iter().filter(|member| member.is_present && member.site != self.own_site);
        let transport = &self.mux.transport;
        let send = |to: &PeerKey, bytes: &[u8]| _ = transport.send(to, bytes);
        self.pinger.ping_all(now, PING_INTERVAL, others.map(|member| member.key), send);
    }

    /// Every 5 s, announces the addresses of this site if they have changed: an address may change, and a relay may be
    /// found late.
    pub(super) fn check_own_addrs(&mut self, now: Instant) {
        if now < self.next_addr_check {
            return;
        }
        self.next_addr_check = now + ADDR_CHECK_INTERVAL;
        let addrs = self.mux.own_addrs();
        if addrs == self.announced_addrs {
            return;
        }
        self.announced_addrs.clone_from(&addrs);
        let me = self.mux.transport.key();
        match &mut self.roster {
            Some(roster) => roster.set_addrs(&me, &addrs, None),
            None => self.mux.send(self.leader.key(), &LobbyMessage::AddrsChanged(addrs)),
        }
    }

    /// If this site leads the roster: sends the roster's messages, passes chat and lobby changes to the frontend, and
    /// starts the game once all seats or players are taken and every member is ready.
    pub(super) fn run_roster(&mut self, frontend: &mut dyn Frontend) {
        let Some(roster) = &mut self.roster else { return };
        roster.handle_timeout(clock::now());
        while let Some((to, message)) = roster.poll_message() {
            match to {
                Recipient::One(key) => self.mux.send(key, &message),
                Recipient::Spectators { except } => {
                    let spectators = roster.spectators().copied().filter(|key| Some(*key) != except);
                    self.mux.send_to_all(spectators, &message);
                }
            }
        }
        while let Some(event) = roster.poll_event() {
            if let lobby::RosterEvent::Chat { name, text } = &event {
                frontend.on_event(RunnerEvent::Chat { name, text });
            }
        }
        let (complete, changed) =
            (roster.is_ready_to_start() && !roster.lobby().is_started, roster.lobby().serial != self.lobby.serial);
        let spectator_count = roster.lobby().spectator_count;
        if changed {
            self.lobby = LobbyInfo { your_site: Some(self.own_site), ..roster.lobby().clone() };
            self.on_lobby_changed(frontend);
        } else if spectator_count != self.lobby.spectator_count {
            self.lobby.spectator_count = spectator_count;
            self.notify_lobby(frontend);
        }
        if complete {
            self.start_game();
        }
    }

    /// Starts the game with the members that are ready; the others can join later. Has no effect unless this site leads
    /// the roster and the game has not started.
    pub(super) fn start_game(&mut self) {
        let Some(roster) = self.roster.as_mut().filter(|roster| !roster.lobby().is_started) else { return };
        Self::assign_seats_and_start(roster, self.session_adapter.machine());
    }

    fn assign_seats_and_start(roster: &mut Roster, machine: &dyn Machine) {
        let Ok(settings) = Settings::from_bytes(&roster.lobby().settings) else { return };
        let settings = assign_seats(settings, machine, &roster.lobby().members);
        if let Some(bytes) = settings.to_bytes() {
            roster.start(u64::from_le_bytes(random_bytes()) | 1, bytes);
        }
    }

    /// If the session has waited for its starting members for 6 s, starts the game again without those that it waits
    /// for. Only the roster leader does so.
    pub(super) fn check_start_timeout(&mut self, now: Instant) {
        let Some(State::Lobby { waiting_for }) = self.session.as_ref().map(Session::state) else {
            self.session_created_at = now;
            return;
        };
        let Some(roster) = self.roster.as_mut().filter(|_| now - self.session_created_at > START_TIMEOUT) else {
            return;
        };
        self.session_created_at = now;
        waiting_for.iter().for_each(|site| roster.mark_absent(site.number()));
        Self::assign_seats_and_start(roster, self.session_adapter.machine());
    }

    /// Sends keep-alives while waiting for the start. Fails if the leader has been silent for 15 s, because no other
    /// member can start the game.
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

    pub(super) fn set_present(&mut self, site: SiteId, is_present: bool) {
        if let Some(roster) = &mut self.roster {
            roster.set_present(site.number(), is_present);
        } else if let Some(member) = self.lobby.members.iter_mut().find(|member| member.site == site.number()) {
            member.is_present = is_present;
        }
    }

    /// Handles the departure of a player. A player that `left` gives its seat back; one that was dropped keeps it.
    pub(super) fn on_player_gone(&mut self, site: SiteId, left: bool) {
        self.set_present(site, false);
        let gone = self.lobby.members.iter().find(|member| member.site == site.number()).map(|member| member.key);
        let Some(gone) = gone else { return };
        self.on_leader_gone(&gone);
        if let Some(roster) = self.roster.as_mut().filter(|_| left) {
            roster.handle_message(clock::now(), gone, LobbyMessage::Bye, None);
        }
    }

    /// Marks a departed member as absent. If that member led the roster, its successor takes over, which may be this
    /// site.
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

    /// Handles the eviction of this site: gives up its roster and follows the leader of the sites that continue.
    pub(super) fn on_own_eviction(&mut self) {
        self.roster = None;
        // A takeover during a split brain incremented the serial of this site. Without that increment, it accepts any
        // newer roster of the present leader.
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
            Some(roster) => self.mux.send_to_all(roster.spectators().copied(), &LobbyMessage::Bye),
            None => self.mux.send(self.leader.key(), &LobbyMessage::Bye),
        }
        self.mux.drain(DRAIN_TIMEOUT);
    }
}

/// Assigns each member its number of pads, each free seat one pad as long as there are pads, and every site its machine
/// buttons. The members that are ready and present start the game.
fn assign_seats(mut settings: Settings, machine: &dyn Machine, members: &[LobbyMember]) -> Settings {
    let pads = machine.pads();
    let control = pads.len() - 1;
    let mut ownership = Ownership::new(pads.len());
    let mut next = 0..control;
    let mut assign = |site: SiteId, count: u8, ownership: &mut Ownership| {
        for player in next.by_ref().take(usize::from(count)) {
            ownership.assign(site, player, pads[player].mask).expect("each player is assigned once");
        }
        let bits = MachineControl::mask(site.index());
        ownership.assign(site, control, bits).expect("every site has bits of its own");
    };
    let sites: Vec<SiteId> = SiteId::first(usize::from(settings.site_count)).collect();
    let member = |site: &SiteId| members.iter().find(|member| member.site == site.number());
    for site in sites.iter().filter(|site| member(site).is_some()) {
        assign(*site, member(site).map_or(1, |member| member.pads), &mut ownership);
    }
    for site in sites.iter().filter(|site| member(site).is_none()) {
        assign(*site, 1, &mut ownership);
    }
    settings.ownership = ownership;
    let ready = members.iter().filter(|member| member.is_ready && member.is_present);
    settings.starting_sites = ready.filter_map(|member| SiteId::new(member.site)).collect::<SiteSet>();
    settings
}
