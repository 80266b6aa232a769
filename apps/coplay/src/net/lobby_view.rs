//! Text about members and state of a shared game, the same in a window, in a terminal and headless.

use std::collections::BTreeMap;

use coplay::id::{SiteId, SiteSet};
use coplay::session::{Event, Freeze, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay_net::clock;
use coplay_net::lobby::{LobbyInfo, LobbyMember};
use coplay_net::runner::Status;

use crate::config::{Action, UserSettings};
use crate::connect::OwnTicketFn;
use crate::scene::{Overlay, join_footer, key_hint, wrap_rows};

/// Role of this site in the shared game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// This site opened the session.
    Host,
    /// This site plays in the session of another host.
    Joiner,
    /// This site watches the session without a seat.
    Spectator,
}

/// State of lobby and session, as far as it is displayed.
pub(super) struct LobbyView {
    role: Role,
    /// Ticket that the host showed first, or that this site joined with.
    initial_ticket: String,
    /// Function that returns the ticket by which others can join this site; `None` until the transport is open.
    own_ticket: Option<OwnTicketFn>,
    /// Ticket with which others can join now.
    ticket: String,
    lobby_state: Option<LobbyInfo>,
    /// Names of the players of all sites that have or had a seat, by site number.
    names: BTreeMap<u8, String>,
    /// Current input delay and prediction window, in frames; `None` until the settings are known.
    delay_settings: Option<(u32, u32)>,
    /// Number of seats of the session.
    seats: u8,
    status: Status,
    /// Whether the host has left or was dropped at any time since the start of the game. Its ticket may not work any
    /// more, even if the host rejoins.
    is_host_lost: bool,
    /// Number of the site that left or was dropped last, and the verb for a message about that.
    last_departed: Option<(u8, &'static str)>,
    keys: PanelKeys,
}

/// Labels of the keys that the panels name, as the user has set them; empty for an action without a key.
#[derive(Clone, Debug)]
pub(super) struct PanelKeys {
    chat: String,
    go_on_alone: String,
    quit: String,
}

impl PanelKeys {
    pub(super) fn new(config: &UserSettings) -> Self {
        Self {
            chat: config.key_label(Action::Chat),
            go_on_alone: config.key_label(Action::GoOnAlone),
            quit: config.key_label(Action::Quit),
        }
    }
}

impl LobbyView {
    pub(super) fn new(role: Role, ticket: String) -> Self {
        Self {
            role,
            initial_ticket: ticket.clone(),
            own_ticket: None,
            ticket,
            lobby_state: None,
            names: BTreeMap::new(),
            delay_settings: None,
            seats: 0,
            status: Status::default(),
            is_host_lost: false,
            last_departed: None,
            keys: PanelKeys::new(&UserSettings::default()),
        }
    }

    pub(super) fn with_keys(self, keys: PanelKeys) -> Self {
        Self { keys, ..self }
    }

    fn leave_hint(&self) -> String {
        key_hint(&self.keys.quit, "leave")
    }

    pub(super) fn set_own_ticket(&mut self, own: OwnTicketFn) {
        self.own_ticket = Some(own);
    }

    /// Updates the ticket with which others can join; returns whether the ticket changed. A host's ticket changes when
    /// a relay is found late. A joiner shows its own ticket once the host has left or was dropped, and while the game
    /// has waited for a silent host for more than [`LONG_SILENCE`].
    pub(super) fn update_ticket(&mut self) -> bool {
        self.is_host_lost |= self.is_started() && self.member(0).is_none_or(|member| !member.is_present);
        let is_own = match self.role {
            Role::Host => true,
            Role::Joiner => self.is_started() && (self.is_host_lost || self.is_host_silent()),
            Role::Spectator => false,
        };
        let own = self.own_ticket.as_ref().filter(|_| is_own).map(|own| own().to_string());
        let ticket = own.unwrap_or_else(|| self.initial_ticket.clone());
        std::mem::replace(&mut self.ticket, ticket) != self.ticket
    }

    /// Returns whether the game has waited for a silent host for more than [`LONG_SILENCE`].
    fn is_host_silent(&self) -> bool {
        match self.status.state {
            Some(State::Frozen(freeze)) => {
                freeze.silent_sites.iter().any(|site| site.number() == 0) && self.is_long_stall(&freeze)
            }
            _ => false,
        }
    }

    fn is_long_stall(&self, freeze: &Freeze) -> bool {
        clock::now() - freeze.since > LONG_SILENCE
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Returns whether the host has started the game, which this site may still have to join.
    pub(super) fn is_started(&self) -> bool {
        self.lobby_state.as_ref().is_some_and(|lobby| lobby.is_started)
    }

    /// Returns the names of the other players present in a started game; none for a spectator.
    pub(super) fn other_players(&self) -> Vec<String> {
        let lobby = self.lobby_state.as_ref().filter(|lobby| lobby.is_started && self.role != Role::Spectator);
        let members = lobby.iter().flat_map(|lobby| lobby.members.iter().map(|member| (lobby.your_site, member)));
        let others = members.filter(|(you, member)| member.is_present && member.site != you.unwrap_or(0));
        others.map(|(_, member)| self.player_name(member.site)).collect()
    }

    pub(super) fn on_lobby_state(&mut self, lobby: &LobbyInfo) {
        if let Ok(settings) = Settings::from_bytes(&lobby.settings) {
            self.delay_settings.get_or_insert((settings.input_delay, settings.prediction_window));
            self.seats = settings.site_count;
        }
        let named = lobby.members.iter().filter(|member| !member.name.is_empty());
        self.names.extend(named.map(|member| (member.site, member.name.clone())));
        self.lobby_state = Some(lobby.clone());
    }

    /// Stores a new status; returns a message if a player paused or resumed the game.
    pub(super) fn on_status(&mut self, status: &Status) -> Option<String> {
        let before = std::mem::replace(&mut self.status, status.clone()).paused_by;
        match (before, status.paused_by) {
            (None, Some(site)) => Some(format!("{} paused the game", self.player_name(site))),
            (Some(_), None) => Some("the game was resumed".into()),
            _ => None,
        }
    }

    /// Returns the name of the last player who left or was dropped; "the other players" if no player did.
    pub(super) fn last_departed(&self) -> String {
        self.last_departed.map_or_else(|| "the other players".into(), |(site, _)| self.player_name(site))
    }

    /// Returns a message such as "Bob left" about the last player who left or was dropped.
    pub(super) fn departure_text(&self) -> String {
        let verb = self.last_departed.map_or("left", |(_, verb)| verb);
        format!("{} {verb}", self.last_departed())
    }

    /// Updates the view after an event of the session; returns a message if it is of interest to the user.
    pub(super) fn on_event(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Left { site, .. } => self.last_departed = Some((site.number(), "left")),
            Event::Dropped { site, .. } => self.last_departed = Some((site.number(), "was dropped")),
            _ => {}
        }
        let name = |site: &SiteId| self.player_name(site.number());
        Some(match event {
            Event::Agreed { .. } | Event::AddressChanged { .. } | Event::Frozen(_) | Event::Ended(_) => return None,
            Event::Starting { .. } => "the game starts".into(),
            Event::Paused { duration, .. } => {
                format!("the game pauses for {:.1} s at all sites: inputs arrive late", duration.as_secs_f64())
            }
            Event::Resumed { after, .. } => format!("the game resumed after {:.1} s", after.as_secs_f64()),
            Event::Left { site, .. } => format!("{} left", name(site)),
            Event::Dropped { site, .. } => {
                format!("{} was dropped (silent, too slow or restarted); the game continues", name(site))
            }
            Event::Joined { site, .. } => format!("{} joined", name(site)),
            Event::SplitBrainResolved { site, is_own_game_kept: true } => {
                format!("you and {0} both played on alone; your game is kept, so {0} returns to it", name(site))
            }
            Event::SplitBrainResolved { site, is_own_game_kept: false } => {
                format!("you return to the game of {}, which continued without you", name(site))
            }
            Event::DelayChanged { input_delay, prediction_window, .. } => {
                self.delay_settings = Some((*input_delay, *prediction_window));
                format!("the input delay is now {input_delay} frames, the prediction window {prediction_window} frames")
            }
            Event::Diverged { site, frame } => {
                format!("desync: the state of {} differs from yours after frame {frame}", name(site))
            }
            Event::InputsForged { site, .. } => {
                format!("another player changed the inputs of {} while relaying them", name(site))
            }
            Event::Disagreed { .. } | Event::Refused { .. } | Event::DesyncReport(_) => event.to_string(),
        })
    }

    fn member(&self, site: u8) -> Option<&LobbyMember> {
        self.lobby_state.as_ref()?.members.iter().find(|member| member.site == site)
    }

    /// Returns the name of a site's player, or the number of the seat if the name is unknown.
    pub(super) fn player_name(&self, site: u8) -> String {
        self.names.get(&site).cloned().unwrap_or_else(|| format!("seat {}", site + 1))
    }

    /// Returns all members, with seat and state, and the number of spectators in one line.
    pub(super) fn members_line(&self) -> String {
        let Some(lobby) = &self.lobby_state else { return "none yet".into() };
        let member = |member: &LobbyMember| {
            let pads = if member.pads > 1 { format!(", {} players", member.pads) } else { String::new() };
            let state = match (member.is_present, member.is_ready || lobby.is_started) {
                (false, _) => ", away",
                (true, false) => ", not ready",
                (true, true) => "",
            };
            format!("{} (seat {}{pads}{state})", self.player_name(member.site), member.site + 1)
        };
        let mut all: Vec<String> = lobby.members.iter().map(member).collect();
        if lobby.spectator_count > 0 {
            all.push(format!("{} watching", lobby.spectator_count));
        }
        all.join(", ")
    }

    /// Returns the status line: frame and frame rate, then the delay settings, the longest round trip and the highest
    /// loss of all peers if they are known, and the numbers of spectators and of discarded datagrams unless they are 0.
    pub(super) fn status_line(&self) -> String {
        let Status { stats, peers, round_trips, fps, drops, .. } = &self.status;
        let mut parts = vec![format!("frame {}", stats.frame), format!("{fps:.0} fps")];
        if let Some((delay, prediction)) = self.delay_settings.filter(|_| self.role != Role::Spectator) {
            parts.push(format!("delay {delay}  prediction {prediction} frames"));
        }
        if !peers.is_empty() {
            let rtt = peers.iter().map(|(_, peer)| peer.rtt.as_millis_f64()).fold(0.0, f64::max);
            let loss = peers.iter().map(|(_, peer)| peer.loss).fold(0.0, f32::max);
            parts.push(format!("round trip {rtt:.0} ms  loss {:.1} %", loss * 100.0));
        } else if let Some(rtt) = round_trips.iter().map(|(_, rtt)| rtt.as_millis_f64()).reduce(f64::max) {
            parts.push(format!("round trip {rtt:.0} ms"));
        }
        let spectators = self.lobby_state.as_ref().map_or(0, |lobby| lobby.spectator_count);
        if spectators > 0 {
            parts.push(format!("{spectators} watching"));
        }
        if drops.total() > 0 {
            parts.push(format!("{} datagrams discarded", drops.total()));
        }
        parts.join("   ")
    }

    /// Returns the panel about a stall, a pause, the connection or the lobby; `None` in the state `Starting` and while
    /// the game runs. `is_playing` states whether a first frame was shown, `drop_timeout` is the silence in seconds
    /// after which players are dropped (`None`: never), and `resume_key` is the label of the key that ends a pause.
    pub(super) fn overlay(
        &self,
        now: Instant,
        is_playing: bool,
        drop_timeout: Option<f64>,
        resume_key: &str,
    ) -> Option<Overlay> {
        match self.status.state {
            Some(State::Frozen(freeze)) => Some(self.stall_overlay(now, &freeze, drop_timeout)),
            _ if is_playing && self.status.paused_by.is_some() => {
                self.status.paused_by.map(|site| self.pause_overlay(site, resume_key))
            }
            _ if is_playing => None,
            _ if self.lobby_state.is_none() => Some(self.connecting_overlay()),
            Some(State::Lobby { waiting_for }) => {
                let rows = waiting_for.iter().map(|site| (self.player_name(site.number()), "connecting".into()));
                Some(Overlay {
                    title: "Starting the game".into(),
                    rows: rows.collect(),
                    footer: self.leave_hint(),
                    selected: None,
                })
            }
            Some(State::Joining { download_percent }) => {
                let rows = vec![("downloading the state".into(), format!("{download_percent} %"))];
                Some(Overlay { title: "Joining".into(), rows, footer: self.leave_hint(), selected: None })
            }
            Some(State::Starting { .. }) => None,
            _ if self.is_started() => Some(Overlay { title: "Joining".into(), ..Overlay::default() }),
            _ => Some(self.lobby_overlay()),
        }
    }

    fn connecting_overlay(&self) -> Overlay {
        let rows = wrap_rows("to", self.ticket.split('#').next().unwrap_or_default());
        Overlay { title: "Connecting".into(), rows, footer: self.leave_hint(), selected: None }
    }

    fn lobby_overlay(&self) -> Overlay {
        let members = self.lobby_state.as_ref().map_or(&[][..], |lobby| &lobby.members);
        let mut rows: Vec<(String, String)> = (0..self.seats).map(|site| self.seat_row(site)).collect();
        rows.extend(self.invitation_rows());
        let keys = [key_hint(&self.keys.chat, "chat"), self.leave_hint()];
        if self.role != Role::Host {
            let footer = join_footer(&[&["the host starts the game".into()], &keys[..]].concat());
            return Overlay { title: "Waiting for the start".into(), rows, selected: None, footer };
        }
        let others = members.iter().filter(|member| member.site != 0 && member.is_present).count();
        let about = if others == 0 { "alone; other players can join later" } else { "missing players can join later" };
        rows.push(("Start now".into(), about.into()));
        let selected = Some(rows.len() - 1);
        Overlay {
            title: "Waiting for players".into(),
            rows,
            selected,
            footer: join_footer(&[&["Enter start".into()], &keys[..]].concat()),
        }
    }

    /// Returns rows with the ticket, wrapped, and the commands to join and, if spectators are admitted, to watch.
    fn ticket_rows(&self) -> Vec<(String, String)> {
        let mut rows = wrap_rows("Ticket", &self.ticket);
        let ticket = if rows.len() == 1 { &self.ticket } else { "TICKET" };
        rows.push(("To join".into(), join_command(ticket)));
        if self.lobby_state.as_ref().is_none_or(|lobby| lobby.allows_spectators) {
            rows.push(("To watch".into(), format!("coplay watch '{ticket}'")));
        }
        rows
    }

    fn seat_row(&self, site: u8) -> (String, String) {
        let Some(member) = self.member(site) else { return ("free seat".into(), "waiting for a player".into()) };
        let pads = if member.pads > 1 { format!("{} players, ", member.pads) } else { String::new() };
        let state = match (member.is_present, member.is_ready) {
            (false, _) => "away",
            (true, false) => "opening the game",
            (true, true) => "ready",
        };
        let rtt = self.status.round_trips.iter().find(|(peer, _)| *peer == site && member.is_present);
        let rtt = rtt.map_or_else(String::new, |(_, rtt)| format!(", {:.0} ms", rtt.as_millis_f64()));
        (self.player_name(site), format!("{pads}{state}{rtt}"))
    }

    fn pause_overlay(&self, site: u8, resume_key: &str) -> Overlay {
        let mut rows = vec![(self.player_name(site), "paused the game".into())];
        rows.extend(self.invitation_rows());
        let footer = match self.role {
            Role::Spectator => self.leave_hint(),
            _ => join_footer(&[key_hint(resume_key, "resume, for all players"), self.leave_hint()]),
        };
        Overlay { title: "Paused".into(), rows, selected: None, footer }
    }

    fn stall_overlay(&self, now: Instant, freeze: &Freeze, drop_timeout: Option<f64>) -> Overlay {
        let rows = freeze.waiting_for.iter().map(|site| {
            let reason = if freeze.silent_sites.contains(site) { "silent" } else { "connected, but slow or halted" };
            (self.player_name(site.number()), reason.into())
        });
        let mut rows: Vec<(String, String)> = rows.collect();
        if self.ticket != self.initial_ticket {
            rows.extend(self.invitation_rows());
        }
        let outlook = self.stall_outlook(freeze, drop_timeout);
        Overlay {
            title: format!("Waiting for players: {:.0} s", (now - freeze.since).as_secs_f64().max(0.0)),
            rows,
            selected: None,
            footer: join_footer(&[outlook, self.leave_hint()]),
        }
    }

    /// Returns what can end the stall: the silent players are dropped, the players respond, or the user plays on alone.
    fn stall_outlook(&self, freeze: &Freeze, drop_timeout: Option<f64>) -> String {
        match drop_timeout.filter(|_| !freeze.silent_sites.is_empty()) {
            Some(seconds) if self.has_quorum_without(&freeze.silent_sites) => {
                format!("silent players are dropped after {seconds} s")
            }
            _ if self.status.can_continue_alone => {
                let go_on = key_hint(&self.keys.go_on_alone, "play on alone");
                join_footer(&["the game resumes when these players respond".into(), go_on])
            }
            Some(seconds) if self.are_all_others_silent(&freeze.silent_sites) => {
                format!("after {seconds} s of silence you can play on alone")
            }
            _ => "the game resumes when these players respond".into(),
        }
    }

    /// Returns whether the present members that are not silent are a quorum of the present members: more than half of
    /// them, or half with the lowest site.
    fn has_quorum_without(&self, silent: &SiteSet) -> bool {
        let members = self.lobby_state.iter().flat_map(|lobby| &lobby.members).filter(|member| member.is_present);
        let is_alive: Vec<bool> =
            members.map(|member| SiteId::new(member.site).is_some_and(|site| !silent.contains(site))).collect();
        let alive = is_alive.iter().filter(|alive| **alive).count();
        2 * alive + usize::from(is_alive.first() == Some(&true)) > is_alive.len()
    }

    /// Returns whether every other player is silent. Only then may a player go on alone.
    fn are_all_others_silent(&self, silent: &SiteSet) -> bool {
        let members = self.lobby_state.iter().flat_map(|lobby| &lobby.members).filter(|member| member.is_present);
        members.filter(|member| SiteId::new(member.site).is_some_and(|site| !silent.contains(site))).count() <= 1
    }

    /// Returns an empty row, followed by the rows with the ticket and the commands that use it.
    fn invitation_rows(&self) -> Vec<(String, String)> {
        let empty = (String::new(), String::new());
        [empty].into_iter().chain(self.ticket_rows()).collect()
    }
}

/// Duration of a stall beyond which a silent host is unlikely to return, so that a joiner shows its own ticket.
const LONG_SILENCE: TimeDelta = TimeDelta::from_secs(3);

pub(super) fn join_command(ticket: &str) -> String {
    format!("coplay join '{ticket}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::session::{PeerStats, Stats};
    use coplay_machines::session_adapter::{SharedGameOptions, settings};
    use coplay_net::PeerKey;

    fn lobby_state(is_started: bool) -> LobbyInfo {
        let member = |site: u8, name: &str, is_ready, is_present| LobbyMember {
            site,
            key: PeerKey([site; 32]),
            name: name.into(),
            pads: 1 + site,
            addrs: vec![],
            is_ready,
            is_present,
        };
        let settings = settings(
            &crate::test_machine::ToyMachine::new(1),
            SharedGameOptions { input_delay: 3, prediction_window: 5, ..SharedGameOptions::new(3) },
        );
        let members = vec![member(0, "Ann", true, true), member(1, "Bob", false, true)];
        LobbyInfo {
            serial: 1,
            session: 1,
            settings: settings.to_bytes().unwrap(),
            is_started,
            members,
            allows_spectators: true,
            spectator_count: 2,
            your_site: None,
        }
    }

    fn lobby_view(role: Role, started: bool) -> LobbyView {
        let mut view = LobbyView::new(role, "udp://a:1#x".into());
        view.on_lobby_state(&lobby_state(started));
        view
    }

    fn overlay_text(overlay: &Overlay) -> String {
        let rows: Vec<String> = overlay.rows.iter().map(|(left, right)| format!("{left}|{right}")).collect();
        format!("{}\n{}\n{}", overlay.title, rows.join("\n"), overlay.footer)
    }

    #[test]
    fn lobby_shows_members_and_join_command() {
        let overlay = lobby_view(Role::Host, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        let shown = overlay_text(&overlay);
        for part in
            ["Ann|ready", "Bob|2 players, opening", "free seat|waiting", "coplay join 'udp://a:1#x'", "Enter start"]
        {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(overlay.rows[overlay.selected.unwrap()].0, "Start now");
        let joiner = lobby_view(Role::Joiner, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        assert_eq!(joiner.selected, None, "only the host starts");
        assert_eq!(
            lobby_view(Role::Joiner, false).members_line(),
            "Ann (seat 1), Bob (seat 2, 2 players, not ready), 2 watching"
        );
    }

    #[test]
    fn lobby_shows_round_trip_times() {
        for role in [Role::Host, Role::Joiner] {
            let mut view = lobby_view(role, false);
            let round_trips = vec![(1, TimeDelta::from_micros(23_400))];
            view.on_status(&Status { round_trips, ..Status::default() });
            let shown = overlay_text(&view.overlay(Instant::ZERO, false, None, "P").unwrap());
            assert!(
                shown.contains("Bob|2 players, opening the game, 23 ms") && shown.contains("Ann|ready\n"),
                "{shown}"
            );
            assert!(view.status_line().contains("round trip 23 ms"));
        }
    }

    #[test]
    fn pause_overlay_names_the_player_and_resume_key() {
        let mut view = lobby_view(Role::Joiner, true);
        let paused = Status { paused_by: Some(1), ..Status::default() };
        assert_eq!(view.on_status(&paused).as_deref(), Some("Bob paused the game"));
        assert_eq!(view.on_status(&paused), None, "once");
        let shown = overlay_text(&view.overlay(Instant::ZERO, true, None, "P").unwrap());
        for part in ["Paused", "Bob|paused the game", "P resume, for all players", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(view.on_status(&Status::default()).as_deref(), Some("the game was resumed"));
        assert!(view.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn long_ticket_is_wrapped_and_complete() {
        let ticket = format!("coplay:{}", "a7".repeat(60));
        let mut view = LobbyView::new(Role::Host, ticket.clone());
        let connecting = view.overlay(Instant::ZERO, false, None, "").unwrap();
        view.on_lobby_state(&lobby_state(false));
        for overlay in [connecting, view.overlay(Instant::ZERO, false, None, "").unwrap()] {
            assert!(
                overlay.rows.iter().all(|(_, right)| right.len() <= crate::scene::MAX_LINE_WIDTH),
                "{}",
                overlay_text(&overlay)
            );
            let parts = overlay.rows.iter().map(|row| row.1.as_str()).filter(|part| part.contains("a7"));
            assert_eq!(parts.collect::<String>(), ticket);
        }
    }

    fn stalled_status(waiting_for: &[u8], silent: &[u8], since: Instant) -> Status {
        let sites = |numbers: &[u8]| numbers.iter().filter_map(|number| SiteId::new(*number)).collect::<SiteSet>();
        let freeze = Freeze {
            frame: coplay::frame::Frame::new(9),
            since,
            waiting_for: sites(waiting_for),
            silent_sites: sites(silent),
        };
        Status { state: Some(State::Frozen(freeze)), ..Status::default() }
    }

    #[test]
    fn stall_overlay_names_players_reason_and_duration() {
        let mut view = lobby_view(Role::Joiner, true);
        view.on_status(&stalled_status(&[0, 1], &[1], Instant::ZERO));
        let overlay = view.overlay(Instant::ZERO + TimeDelta::from_secs(4), true, Some(10.0), "P").unwrap();
        let shown = overlay_text(&overlay);
        for part in ["Waiting for players: 4 s", "Ann|connected, but slow", "Bob|silent", "after 10 s", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }

    #[test]
    fn stall_overlay_tells_the_outlook() {
        let mut view = lobby_view(Role::Joiner, true);
        let mut outlook = |silent: &[u8], drop_timeout| {
            view.on_status(&stalled_status(&[0, 1], silent, Instant::ZERO));
            view.overlay(Instant::ZERO, true, drop_timeout, "P").unwrap().footer
        };
        assert!(outlook(&[1], Some(10.0)).contains("silent players are dropped after 10 s"), "the lower site goes on");
        assert!(
            outlook(&[0], Some(10.0)).contains("after 10 s of silence you can play on alone"),
            "the user at the higher site decides"
        );
        for (silent, drop_timeout) in [(&[1][..], None), (&[], Some(10.0))] {
            assert_eq!(outlook(silent, drop_timeout), "the game resumes when these players respond   F10 leave");
        }
        // Any two of three sites are a quorum.
        let mut lobby = lobby_state(true);
        lobby.members.push(LobbyMember { site: 2, name: "Eve".into(), ..lobby.members[1].clone() });
        view.on_lobby_state(&lobby);
        view.on_status(&stalled_status(&[0], &[0], Instant::ZERO));
        assert!(
            view.overlay(Instant::ZERO, true, Some(10.0), "P").unwrap().footer.contains("silent players are dropped")
        );
        // Two of four sites without the lowest are no quorum, and neither of them is alone.
        lobby.members.push(LobbyMember { site: 3, name: "Dan".into(), ..lobby.members[1].clone() });
        view.on_lobby_state(&lobby);
        for (silent, expected) in
            [(&[0, 1][..], "the game resumes when these players respond"), (&[0, 1, 3], "you can play on alone")]
        {
            view.on_status(&stalled_status(silent, silent, Instant::ZERO));
            let footer = view.overlay(Instant::ZERO, true, Some(10.0), "P").unwrap().footer;
            assert!(footer.contains(expected), "{footer}");
        }
    }

    #[test]
    fn stalled_player_is_offered_to_go_on_alone() {
        let mut view = lobby_view(Role::Joiner, true);
        for drop_timeout in [None, Some(10.0)] {
            view.on_status(&Status { can_continue_alone: true, ..stalled_status(&[0], &[0], Instant::ZERO) });
            let footer = view.overlay(Instant::ZERO, true, drop_timeout, "P").unwrap().footer;
            assert_eq!(footer, "the game resumes when these players respond   F4 play on alone   F10 leave");
        }
    }

    #[test]
    fn last_player_is_told_who_departed_and_how() {
        let mut view = lobby_view(Role::Joiner, true);
        let (site, frame) = (SiteId::new(0).unwrap(), coplay::frame::Frame::new(5));
        view.on_event(&Event::Left { site, frame });
        assert_eq!((view.last_departed().as_str(), view.departure_text().as_str()), ("Ann", "Ann left"));
        view.on_event(&Event::Dropped { site, frame });
        assert_eq!(view.departure_text(), "Ann was dropped");
        for (is_own_game_kept, expected) in [(true, "Ann returns to it"), (false, "you return to the game of Ann")] {
            assert!(
                view.on_event(&Event::SplitBrainResolved { site, is_own_game_kept })
                    .is_some_and(|text| text.contains(expected))
            );
        }
    }

    #[test]
    fn ticket_of_a_lost_host_is_not_shown_again() {
        let mut view = lobby_view(Role::Joiner, true);
        view.set_own_ticket(ticket_source("udp://b:2#x"));
        let mut lobby = lobby_state(true);
        lobby.members[0].is_present = false;
        view.on_lobby_state(&lobby);
        assert!(view.update_ticket() && view.ticket() == "udp://b:2#x");
        // The host rejoins with another process, perhaps from another address.
        lobby.members[0].is_present = true;
        view.on_lobby_state(&lobby);
        assert!(!view.update_ticket() && view.ticket() == "udp://b:2#x");
    }

    fn ticket_source(text: &'static str) -> OwnTicketFn {
        std::sync::Arc::new(move || text.parse().unwrap())
    }

    #[test]
    fn changed_ticket_is_shown() {
        let mut view = lobby_view(Role::Host, false);
        view.set_own_ticket(ticket_source("udp://a:1#x"));
        assert!(!view.update_ticket(), "the same ticket");
        view.set_own_ticket(ticket_source("udp://b:2#x"));
        assert!(view.update_ticket() && !view.update_ticket());
        assert!(
            overlay_text(&view.overlay(Instant::ZERO, false, None, "P").unwrap()).contains("coplay join 'udp://b:2#x'")
        );
    }

    #[test]
    fn own_ticket_is_shown_when_the_host_is_gone() {
        let mut view = lobby_view(Role::Joiner, true);
        view.set_own_ticket(ticket_source("udp://b:2#x"));
        assert!(!view.update_ticket(), "the host is there");
        // A short silence of the host changes nothing; a long one does, until the host is back.
        view.on_status(&stalled_status(&[0], &[0], clock::now()));
        assert!(!view.update_ticket());
        view.on_status(&stalled_status(&[0], &[0], clock::now() - LONG_SILENCE * 2));
        assert!(view.update_ticket());
        assert!(
            overlay_text(&view.overlay(Instant::ZERO, true, None, "P").unwrap()).contains("coplay join 'udp://b:2#x'")
        );
        view.on_status(&Status::default());
        assert!(view.update_ticket() && view.ticket() == "udp://a:1#x");
        // The host is gone.
        let mut lobby = lobby_state(true);
        lobby.members[0].is_present = false;
        view.on_lobby_state(&lobby);
        assert!(view.update_ticket() && view.ticket() == "udp://b:2#x");
        view.on_status(&Status { paused_by: Some(1), ..Status::default() });
        assert!(
            overlay_text(&view.overlay(Instant::ZERO, true, None, "P").unwrap()).contains("coplay join 'udp://b:2#x'")
        );
    }

    #[test]
    fn status_line_format() {
        let mut view = lobby_view(Role::Host, true);
        let peer = PeerStats { rtt: TimeDelta::from_millis(23), loss: 0.012, ..PeerStats::default() };
        let stats = Stats { frame: coplay::frame::Frame::new(77), ..Stats::default() };
        view.on_status(&Status { stats, peers: vec![(1, peer)], fps: 60.0, ..Status::default() });
        assert_eq!(
            view.status_line(),
            "frame 77   60 fps   delay 3  prediction 5 frames   round trip 23 ms  loss 1.2 %   2 watching"
        );
        assert!(view.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn events_name_players() {
        let mut view = lobby_view(Role::Host, true);
        let (site, frame) = (SiteId::new(1).unwrap(), coplay::frame::Frame::new(5));
        assert_eq!(view.on_event(&Event::Left { site, frame }).as_deref(), Some("Bob left"));
        view.on_event(&Event::DelayChanged { frame, input_delay: 4, prediction_window: 2, input_age: 6, site });
        assert!(view.status_line().contains("delay 4  prediction 2 frames"));
    }
}
