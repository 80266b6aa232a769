//! Who is around and how it goes, in words: the same in a window, in a terminal and without either.

use std::collections::BTreeMap;

use coplay::id::{SiteId, SiteSet};
use coplay::session::{Event, Freeze, Settings, State};
use coplay::time::{Instant, TimeDelta};
use coplay_net::clock;
use coplay_net::lobby::{LobbyInfo, LobbyMember};
use coplay_net::runner::Status;

use crate::connect::TicketSource;
use crate::scene::{Overlay, wrap_rows};

/// How we take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The game is ours.
    Host,
    /// We have a seat.
    Joiner,
    /// We look on.
    Spectator,
}

/// All that is known.
pub(super) struct LobbyView {
    role: Role,
    /// What a host shows, or what somebody came with.
    initial_ticket: String,
    /// What leads to us.
    own_ticket: Option<TicketSource>,
    /// What others can come in with now.
    ticket: String,
    lobby_state: Option<LobbyInfo>,
    /// What everybody was called who had a seat, also when it is gone.
    names: BTreeMap<u8, String>,
    /// Lag and window, as they are now.
    delay_settings: Option<(u32, u32)>,
    /// How many seats there are.
    seats: u8,
    status: Status,
    /// The host left or was dropped: its ticket may lead nowhere from then on.
    is_host_lost: bool,
    /// The last player who went: the seat, and how.
    last_departed: Option<(u8, &'static str)>,
    /// The key that plays on alone.
    go_on_alone_key: String,
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
            go_on_alone_key: String::new(),
        }
    }

    /// This key plays on alone when the others are silent.
    pub(super) fn with_go_on_alone_key(self, alone_key: String) -> Self {
        Self { go_on_alone_key: alone_key, ..self }
    }

    /// There is a way to us.
    pub(super) fn set_own_ticket(&mut self, own: TicketSource) {
        self.own_ticket = Some(own);
    }

    /// Looks for what others can come in with now; whether that is something else than before. A relay may have been found late; and when
    /// whoever gave the ticket is gone, ours leads in.
    pub(super) fn update_ticket(&mut self) -> bool {
        self.is_host_lost |= self.is_started() && self.member(0).is_none_or(|member| !member.is_present);
        let ours = match self.role {
            Role::Host => true,
            Role::Joiner => self.is_started() && (self.is_host_lost || self.is_host_silent()),
            Role::Spectator => false,
        };
        let own = self.own_ticket.as_ref().filter(|_| ours).map(|own| own().to_string());
        let ticket = own.unwrap_or_else(|| self.initial_ticket.clone());
        std::mem::replace(&mut self.ticket, ticket) != self.ticket
    }

    /// Whether the first seat is silent and may be empty.
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

    /// Whether the game has begun, at least for others.
    pub(super) fn is_started(&self) -> bool {
        self.lobby_state.as_ref().is_some_and(|party| party.is_started)
    }

    /// Names of the others who play with us now. Whoever watches plays with nobody.
    pub(super) fn other_players(&self) -> Vec<String> {
        let party = self.lobby_state.as_ref().filter(|party| party.is_started && self.role != Role::Spectator);
        let members = party.iter().flat_map(|party| party.members.iter().map(|member| (party.your_site, member)));
        let others = members.filter(|(you, member)| member.is_present && member.site != you.unwrap_or(0));
        others.map(|(_, member)| self.player_name(member.site)).collect()
    }

    pub(super) fn on_lobby_state(&mut self, party: &LobbyInfo) {
        if let Ok(settings) = Settings::from_bytes(&party.settings) {
            self.delay_settings.get_or_insert((settings.input_delay, settings.prediction_window));
            self.seats = settings.site_count;
        }
        let named = party.members.iter().filter(|member| !member.name.is_empty());
        self.names.extend(named.map(|member| (member.site, member.name.clone())));
        self.lobby_state = Some(party.clone());
    }

    /// Takes note of how it goes; says it in words if the machine stands still now, or goes on.
    pub(super) fn on_status(&mut self, status: &Status) -> Option<String> {
        let before = std::mem::replace(&mut self.status, status.clone()).paused_by;
        match (before, status.paused_by) {
            (None, Some(site)) => Some(format!("{} pauses the game", self.player_name(site))),
            (Some(_), None) => Some("the game goes on".into()),
            _ => None,
        }
    }

    /// The last player who went.
    pub(super) fn last_departed(&self) -> String {
        self.last_departed.map_or_else(|| "the others".into(), |(site, _)| self.player_name(site))
    }

    /// The same, and how.
    pub(super) fn departure_text(&self) -> String {
        let how = self.last_departed.map_or("are gone", |(_, how)| how);
        format!("{} {how}", self.last_departed())
    }

    /// Takes note of what happened; says it in words, if it is of interest to a person.
    pub(super) fn on_event(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Left { site, .. } => self.last_departed = Some((site.number(), "left")),
            Event::Dropped { site, .. } => self.last_departed = Some((site.number(), "is lost")),
            _ => {}
        }
        let name = |site: &SiteId| self.player_name(site.number());
        Some(match event {
            Event::Agreed { .. } | Event::AddressChanged { .. } | Event::Frozen(_) | Event::Ended(_) => return None,
            Event::Starting { .. } => "the game starts".into(),
            Event::Paused { duration: hold, .. } => format!("a rest of {:.1} s: inputs run out", hold.as_secs_f64()),
            Event::Resumed { after, .. } => format!("goes on after {:.1} s", after.as_secs_f64()),
            Event::Left { site, .. } => format!("{} left", name(site)),
            Event::Dropped { site, .. } => format!("{} is lost or too slow; the game goes on without", name(site)),
            Event::Joined { site, .. } => format!("{} plays", name(site)),
            Event::SplitBrainResolved { site, is_own_game_kept: true } => {
                format!("{0} played on alone, too. Your game went on further: {0} comes back to it", name(site))
            }
            Event::SplitBrainResolved { site, is_own_game_kept: false } => {
                format!("you come back to the game of {}, which went on without you", name(site))
            }
            Event::DelayChanged { input_delay: lag, prediction_window: window, .. } => {
                self.delay_settings = Some((*lag, *window));
                format!("lag {lag}, window {window}")
            }
            Event::Diverged { site, frame } => {
                format!("{} has another state than we after frame {frame}: this is no longer the same game", name(site))
            }
            Event::InputsForged { site, .. } => format!("somebody changed the inputs of {} on their way", name(site)),
            Event::Disagreed { .. } | Event::Refused { .. } | Event::DesyncReport(_) => event.to_string(),
        })
    }

    fn member(&self, site: u8) -> Option<&LobbyMember> {
        self.lobby_state.as_ref()?.members.iter().find(|member| member.site == site)
    }

    /// What somebody is called.
    pub(super) fn player_name(&self, site: u8) -> String {
        self.names.get(&site).cloned().unwrap_or_else(|| format!("seat {}", site + 1))
    }

    /// Who is around, in one line.
    pub(super) fn members_line(&self) -> String {
        let Some(party) = &self.lobby_state else { return "nobody yet".into() };
        let member = |member: &LobbyMember| {
            let pads = if member.pads > 1 { format!(", {} players", member.pads) } else { String::new() };
            let how = match (member.is_present, member.is_ready || party.is_started) {
                (false, _) => ", away",
                (true, false) => ", not ready",
                (true, true) => "",
            };
            format!("{} (seat {}{pads}{how})", self.player_name(member.site), member.site + 1)
        };
        let mut all: Vec<String> = party.members.iter().map(member).collect();
        if party.spectator_count > 0 {
            all.push(format!("{} watching", party.spectator_count));
        }
        all.join(", ")
    }

    /// How it goes, in one line.
    pub(super) fn status_line(&self) -> String {
        let Status { stats, peers, round_trips: trips, fps, drops: refused, .. } = &self.status;
        let mut parts = vec![format!("frame {}", stats.frame), format!("{fps:.0} fps")];
        if let Some((lag, window)) = self.delay_settings.filter(|_| self.role != Role::Spectator) {
            parts.push(format!("lag {lag}  window {window}"));
        }
        if !peers.is_empty() {
            let trip = peers.iter().map(|(_, peer)| peer.rtt.as_millis_f64()).fold(0.0, f64::max);
            let loss = peers.iter().map(|(_, peer)| peer.loss).fold(0.0, f32::max);
            parts.push(format!("ping {trip:.0} ms  loss {:.1} %", loss * 100.0));
        } else if let Some(trip) = trips.iter().map(|(_, trip)| trip.as_millis_f64()).reduce(f64::max) {
            parts.push(format!("ping {trip:.0} ms"));
        }
        let watchers = self.lobby_state.as_ref().map_or(0, |party| party.spectator_count);
        if watchers > 0 {
            parts.push(format!("{watchers} watching"));
        }
        if refused.total() > 0 {
            parts.push(format!("{} refused", refused.total()));
        }
        parts.join("   ")
    }

    /// What lies over the picture: who is missing, who paused, or nothing. `go_on` is the key that ends a pause.
    pub(super) fn overlay(&self, now: Instant, playing: bool, patience: Option<f64>, go_on: &str) -> Option<Overlay> {
        match self.status.state {
            Some(State::Frozen(freeze)) => Some(self.stall_overlay(now, &freeze, patience)),
            _ if playing && self.status.paused_by.is_some() => {
                self.status.paused_by.map(|site| self.pause_overlay(site, go_on))
            }
            _ if playing => None,
            _ if self.lobby_state.is_none() => Some(self.connecting_overlay()),
            Some(State::Lobby { waiting_for }) => {
                let rows = waiting_for.iter().map(|site| (self.player_name(site.number()), "is not there yet".into()));
                Some(Overlay {
                    title: "About to start".into(),
                    rows: rows.collect(),
                    footer: LEAVE_HINT.into(),
                    selected: None,
                })
            }
            Some(State::Joining { download_percent: downloaded }) => {
                let rows = vec![("state of the game".into(), format!("{downloaded} %"))];
                Some(Overlay { title: "Coming in".into(), rows, footer: LEAVE_HINT.into(), selected: None })
            }
            Some(State::Starting { .. }) => None,
            _ if self.is_started() => Some(Overlay { title: "Coming in".into(), ..Overlay::default() }),
            _ => Some(self.lobby_overlay()),
        }
    }

    fn connecting_overlay(&self) -> Overlay {
        let rows = wrap_rows("at", self.ticket.split('#').next().unwrap_or_default());
        Overlay { title: "Knocking".into(), rows, footer: LEAVE_HINT.into(), selected: None }
    }

    fn lobby_overlay(&self) -> Overlay {
        let members = self.lobby_state.as_ref().map_or(&[][..], |party| &party.members);
        let mut rows: Vec<(String, String)> = (0..self.seats).map(|site| self.seat_row(site)).collect();
        rows.extend(self.invitation_rows());
        let keys = "C chat   F10 leave";
        if self.role != Role::Host {
            let foot = format!("the host starts the game   {keys}");
            return Overlay { title: "Waiting for the start".into(), rows, selected: None, footer: foot };
        }
        let others = members.iter().filter(|member| member.site != 0 && member.is_present).count();
        let alone = if others == 0 { "alone; others can come later" } else { "those who are missing can come later" };
        rows.push(("Start now".into(), alone.into()));
        let chosen = Some(rows.len() - 1);
        Overlay { title: "Waiting for players".into(), rows, selected: chosen, footer: format!("Enter start   {keys}") }
    }

    /// The ticket, in lines that fit, and what to do with it.
    fn ticket_rows(&self) -> Vec<(String, String)> {
        let mut rows = wrap_rows("Ticket", &self.ticket);
        let ticket = if rows.len() == 1 { &self.ticket } else { "TICKET" };
        rows.push(("To join".into(), join_command(ticket)));
        rows.push(("To watch".into(), format!("coplay watch '{ticket}'")));
        rows
    }

    fn seat_row(&self, site: u8) -> (String, String) {
        let Some(member) = self.member(site) else { return ("free".into(), "anybody with the ticket".into()) };
        let pads = if member.pads > 1 { format!("{} players, ", member.pads) } else { String::new() };
        let how = match (member.is_present, member.is_ready) {
            (false, _) => "away",
            (true, false) => "looking for the game",
            (true, true) => "ready",
        };
        let trip = self.status.round_trips.iter().find(|(there, _)| *there == site && member.is_present);
        let trip = trip.map_or_else(String::new, |(_, trip)| format!(", {:.0} ms", trip.as_millis_f64()));
        (self.player_name(site), format!("{pads}{how}{trip}"))
    }

    fn pause_overlay(&self, site: u8, go_on: &str) -> Overlay {
        let mut rows = vec![(self.player_name(site), "paused the game".into())];
        rows.extend(self.invitation_rows());
        let foot = match self.role {
            Role::Spectator => LEAVE_HINT.into(),
            _ if go_on.is_empty() => LEAVE_HINT.into(),
            _ => format!("{go_on} go on, for all   {LEAVE_HINT}"),
        };
        Overlay { title: "Paused".into(), rows, selected: None, footer: foot }
    }

    fn stall_overlay(&self, now: Instant, freeze: &Freeze, patience: Option<f64>) -> Overlay {
        let rows = freeze.waiting_for.iter().map(|site| {
            let why =
                if freeze.silent_sites.contains(site) { "nothing is heard" } else { "is there, but slow or stuck" };
            (self.player_name(site.number()), why.into())
        });
        let mut rows: Vec<(String, String)> = rows.collect();
        if self.ticket != self.initial_ticket {
            rows.extend(self.invitation_rows());
        }
        let next = self.stall_outlook(freeze, patience);
        Overlay {
            title: format!("Waiting for {:.0} s", (now - freeze.since).as_secs_f64().max(0.0)),
            rows,
            selected: None,
            footer: format!("wait: {next}   {LEAVE_HINT}"),
        }
    }

    /// What comes of waiting.
    fn stall_outlook(&self, freeze: &Freeze, patience: Option<f64>) -> String {
        match patience.filter(|_| !freeze.silent_sites.is_empty()) {
            Some(seconds) if self.has_quorum_without(&freeze.silent_sites) => {
                format!("after {seconds:.0} s of silence it goes on without")
            }
            _ if self.status.can_continue_alone => {
                format!("it goes on when they are back   {} play on alone", self.go_on_alone_key)
            }
            Some(seconds) if self.are_all_others_silent(&freeze.silent_sites) => {
                format!("after {seconds:.0} s of silence you can play on alone")
            }
            _ => "it goes on when they are back".into(),
        }
    }

    /// Whether those who are left may go on: they are more than half, or half with the lowest of all.
    fn has_quorum_without(&self, silent: &SiteSet) -> bool {
        let members = self.lobby_state.iter().flat_map(|party| &party.members).filter(|member| member.is_present);
        let is_left: Vec<bool> =
            members.map(|member| SiteId::new(member.site).is_some_and(|site| !silent.contains(site))).collect();
        let left = is_left.iter().filter(|left| **left).count();
        2 * left + usize::from(is_left.first() == Some(&true)) > is_left.len()
    }

    /// Whether every other player is silent. Players who hear each other are not offered to play on alone.
    fn are_all_others_silent(&self, silent: &SiteSet) -> bool {
        let members = self.lobby_state.iter().flat_map(|party| &party.members).filter(|member| member.is_present);
        members.filter(|member| SiteId::new(member.site).is_some_and(|site| !silent.contains(site))).count() <= 1
    }

    /// How others come in, in the middle of a game.
    fn invitation_rows(&self) -> Vec<(String, String)> {
        let apart = (String::new(), String::new());
        [apart].into_iter().chain(self.ticket_rows()).collect()
    }
}

const LEAVE_HINT: &str = "F10 leave";
/// Who was silent for so long may not come back by itself.
const LONG_SILENCE: TimeDelta = TimeDelta::from_secs(3);

/// What a friend types.
pub(super) fn join_command(ticket: &str) -> String {
    format!("coplay join '{ticket}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::session::{PeerStats, Stats};
    use coplay_machines::session_adapter::{SessionOptions, settings};
    use coplay_net::PeerKey;

    fn lobby_state(started: bool) -> LobbyInfo {
        let member = |site: u8, name: &str, ready, here| LobbyMember {
            site,
            key: PeerKey([site; 32]),
            name: name.into(),
            pads: 1 + site,
            addrs: vec![],
            is_ready: ready,
            is_present: here,
        };
        let terms = settings(
            &crate::toy_machine::ToyMachine::new(1),
            SessionOptions { input_delay: 3, prediction_window: 5, ..SessionOptions::new(3) },
        );
        let members = vec![member(0, "Ann", true, true), member(1, "Bob", false, true)];
        LobbyInfo {
            serial: 1,
            session: 1,
            settings: terms.to_bytes().unwrap(),
            is_started: started,
            members,
            allows_spectators: true,
            spectator_count: 2,
            your_site: None,
        }
    }

    fn lobby_view(role: Role, started: bool) -> LobbyView {
        let mut company = LobbyView::new(role, "udp://a:1#x".into());
        company.on_lobby_state(&lobby_state(started));
        company
    }

    fn overlay_text(overlay: &Overlay) -> String {
        let rows: Vec<String> = overlay.rows.iter().map(|(left, right)| format!("{left}|{right}")).collect();
        format!("{}\n{}\n{}", overlay.title, rows.join("\n"), overlay.footer)
    }

    #[test]
    fn lobby_shows_members_and_join_command() {
        let overlay = lobby_view(Role::Host, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        let shown = overlay_text(&overlay);
        for part in ["Ann|ready", "Bob|2 players, looking", "free|anybody", "coplay join 'udp://a:1#x'", "Enter start"]
        {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(overlay.rows[overlay.selected.unwrap()].0, "Start now");
        let guest = lobby_view(Role::Joiner, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        assert_eq!(guest.selected, None, "only the host starts");
        assert_eq!(
            lobby_view(Role::Joiner, false).members_line(),
            "Ann (seat 1), Bob (seat 2, 2 players, not ready), 2 watching"
        );
    }

    #[test]
    fn lobby_shows_round_trip_times() {
        for role in [Role::Host, Role::Joiner] {
            let mut company = lobby_view(role, false);
            let trips = vec![(1, TimeDelta::from_micros(23_400))];
            company.on_status(&Status { round_trips: trips, ..Status::default() });
            let shown = overlay_text(&company.overlay(Instant::ZERO, false, None, "P").unwrap());
            assert!(
                shown.contains("Bob|2 players, looking for the game, 23 ms") && shown.contains("Ann|ready\n"),
                "{shown}"
            );
            assert!(company.status_line().contains("ping 23 ms"));
        }
    }

    #[test]
    fn pause_overlay_names_the_player_and_resume_key() {
        let mut company = lobby_view(Role::Joiner, true);
        let paused = Status { paused_by: Some(1), ..Status::default() };
        assert_eq!(company.on_status(&paused).as_deref(), Some("Bob pauses the game"));
        assert_eq!(company.on_status(&paused), None, "once");
        let shown = overlay_text(&company.overlay(Instant::ZERO, true, None, "P").unwrap());
        for part in ["Paused", "Bob|paused the game", "P go on, for all", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(company.on_status(&Status::default()).as_deref(), Some("the game goes on"));
        assert!(company.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn long_ticket_is_wrapped_and_complete() {
        let ticket = format!("coplay:{}", "a7".repeat(60));
        let mut company = LobbyView::new(Role::Host, ticket.clone());
        let at_the_door = company.overlay(Instant::ZERO, false, None, "").unwrap();
        company.on_lobby_state(&lobby_state(false));
        for overlay in [at_the_door, company.overlay(Instant::ZERO, false, None, "").unwrap()] {
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
        let mut company = lobby_view(Role::Joiner, true);
        company.on_status(&stalled_status(&[0, 1], &[1], Instant::ZERO));
        let overlay = company.overlay(Instant::ZERO + TimeDelta::from_secs(4), true, Some(10.0), "P").unwrap();
        let shown = overlay_text(&overlay);
        for part in ["Waiting for 4 s", "Ann|is there, but slow", "Bob|nothing is heard", "after 10 s", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }

    #[test]
    fn stall_overlay_tells_the_outlook() {
        let mut company = lobby_view(Role::Joiner, true);
        let mut outlook = |silent: &[u8], patience| {
            company.on_status(&stalled_status(&[0, 1], silent, Instant::ZERO));
            company.overlay(Instant::ZERO, true, patience, "P").unwrap().footer
        };
        assert!(
            outlook(&[1], Some(10.0)).contains("after 10 s of silence it goes on without"),
            "the lower one goes on"
        );
        assert!(
            outlook(&[0], Some(10.0)).contains("after 10 s of silence you can play on alone"),
            "the higher one decides"
        );
        for (silent, patience) in [(&[1][..], None), (&[], Some(10.0))] {
            assert_eq!(outlook(silent, patience), "wait: it goes on when they are back   F10 leave");
        }
        // With a third the two who are left are enough, whoever they are.
        let mut party = lobby_state(true);
        party.members.push(LobbyMember { site: 2, name: "Eve".into(), ..party.members[1].clone() });
        company.on_lobby_state(&party);
        company.on_status(&stalled_status(&[0], &[0], Instant::ZERO));
        assert!(company.overlay(Instant::ZERO, true, Some(10.0), "P").unwrap().footer.contains("goes on without"));
        // Two of four hear each other: they are no quorum without the lowest, and neither is alone.
        party.members.push(LobbyMember { site: 3, name: "Dan".into(), ..party.members[1].clone() });
        company.on_lobby_state(&party);
        for (silent, words) in [(&[0, 1][..], "it goes on when they are back"), (&[0, 1, 3], "you can play on alone")] {
            company.on_status(&stalled_status(silent, silent, Instant::ZERO));
            let foot = company.overlay(Instant::ZERO, true, Some(10.0), "P").unwrap().footer;
            assert!(foot.contains(words), "{foot}");
        }
    }

    #[test]
    fn stalled_player_is_offered_to_go_on_alone() {
        let mut company = lobby_view(Role::Joiner, true).with_go_on_alone_key("F4".into());
        for patience in [None, Some(10.0)] {
            company.on_status(&Status { can_continue_alone: true, ..stalled_status(&[0], &[0], Instant::ZERO) });
            let foot = company.overlay(Instant::ZERO, true, patience, "P").unwrap().footer;
            assert_eq!(foot, "wait: it goes on when they are back   F4 play on alone   F10 leave");
        }
    }

    #[test]
    fn last_player_is_told_who_departed_and_how() {
        let mut company = lobby_view(Role::Joiner, true);
        let (site, frame) = (SiteId::new(0).unwrap(), coplay::frame::Frame::new(5));
        company.on_event(&Event::Left { site, frame });
        assert_eq!((company.last_departed().as_str(), company.departure_text().as_str()), ("Ann", "Ann left"));
        company.on_event(&Event::Dropped { site, frame });
        assert_eq!(company.departure_text(), "Ann is lost");
        for (ours, words) in [(true, "Ann comes back to it"), (false, "you come back to the game of Ann")] {
            assert!(
                company
                    .on_event(&Event::SplitBrainResolved { site, is_own_game_kept: ours })
                    .is_some_and(|said| said.contains(words))
            );
        }
    }

    #[test]
    fn ticket_of_a_lost_host_is_not_shown_again() {
        let mut company = lobby_view(Role::Joiner, true);
        company.set_own_ticket(ticket_source("udp://b:2#x"));
        let mut party = lobby_state(true);
        party.members[0].is_present = false;
        company.on_lobby_state(&party);
        assert!(company.update_ticket() && company.ticket() == "udp://b:2#x");
        // It comes back with another program, perhaps from another place.
        party.members[0].is_present = true;
        company.on_lobby_state(&party);
        assert!(!company.update_ticket() && company.ticket() == "udp://b:2#x");
    }

    fn ticket_source(text: &'static str) -> TicketSource {
        std::sync::Arc::new(move || text.parse().unwrap())
    }

    #[test]
    fn changed_ticket_is_shown() {
        let mut company = lobby_view(Role::Host, false);
        company.set_own_ticket(ticket_source("udp://a:1#x"));
        assert!(!company.update_ticket(), "nothing new");
        company.set_own_ticket(ticket_source("udp://b:2#x"));
        assert!(company.update_ticket() && !company.update_ticket());
        assert!(
            overlay_text(&company.overlay(Instant::ZERO, false, None, "P").unwrap())
                .contains("coplay join 'udp://b:2#x'")
        );
    }

    #[test]
    fn own_ticket_is_shown_when_the_host_is_gone() {
        let mut company = lobby_view(Role::Joiner, true);
        company.set_own_ticket(ticket_source("udp://b:2#x"));
        assert!(!company.update_ticket(), "the host is there");
        // Nothing is heard of it: a moment is nothing, and it is back.
        company.on_status(&stalled_status(&[0], &[0], clock::now()));
        assert!(!company.update_ticket());
        company.on_status(&stalled_status(&[0], &[0], clock::now() - LONG_SILENCE * 2));
        assert!(company.update_ticket());
        assert!(
            overlay_text(&company.overlay(Instant::ZERO, true, None, "P").unwrap())
                .contains("coplay join 'udp://b:2#x'")
        );
        company.on_status(&Status::default());
        assert!(company.update_ticket() && company.ticket() == "udp://a:1#x");
        // It is gone.
        let mut party = lobby_state(true);
        party.members[0].is_present = false;
        company.on_lobby_state(&party);
        assert!(company.update_ticket() && company.ticket() == "udp://b:2#x");
        company.on_status(&Status { paused_by: Some(1), ..Status::default() });
        assert!(
            overlay_text(&company.overlay(Instant::ZERO, true, None, "P").unwrap())
                .contains("coplay join 'udp://b:2#x'")
        );
    }

    #[test]
    fn status_line_format() {
        let mut company = lobby_view(Role::Host, true);
        let peer = PeerStats { rtt: TimeDelta::from_millis(23), loss: 0.012, ..PeerStats::default() };
        let stats = Stats { frame: coplay::frame::Frame::new(77), ..Stats::default() };
        company.on_status(&Status { stats, peers: vec![(1, peer)], fps: 60.0, ..Status::default() });
        assert_eq!(company.status_line(), "frame 77   60 fps   lag 3  window 5   ping 23 ms  loss 1.2 %   2 watching");
        assert!(company.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn events_name_players() {
        let mut company = lobby_view(Role::Host, true);
        let (site, frame) = (SiteId::new(1).unwrap(), coplay::frame::Frame::new(5));
        assert_eq!(company.on_event(&Event::Left { site, frame }).as_deref(), Some("Bob left"));
        company.on_event(&Event::DelayChanged { frame, input_delay: 4, prediction_window: 2, input_age: 6, site });
        assert!(company.status_line().contains("lag 4  window 2"));
    }
}
