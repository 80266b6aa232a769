//! Who is around and how it goes, in words: the same in a window, in a terminal and without either.

use std::collections::BTreeMap;

use coplay::id::SiteId;
use coplay::session::{Event, Freeze, Settings, State};
use coplay::time::Instant;
use coplay_net::drive::Status;
use coplay_net::party::{Member, Party};

use crate::scene::Overlay;

/// How we take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The game is ours.
    Host,
    /// We have a seat.
    Guest,
    /// We look on.
    Watcher,
}

/// All that is known.
#[derive(Debug)]
pub(super) struct Company {
    role: Role,
    ticket: String,
    party: Option<Party>,
    /// What everybody was called who had a seat, also when it is gone.
    names: BTreeMap<u8, String>,
    /// Lag and window, as they are now.
    dials: Option<(u32, u32)>,
    /// How many seats there are.
    seats: u8,
    status: Status,
}

impl Company {
    pub(super) fn new(role: Role, ticket: String) -> Self {
        Self { role, ticket, party: None, names: BTreeMap::new(), dials: None, seats: 0, status: Status::default() }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn ticket(&self) -> &str {
        &self.ticket
    }

    /// Whether the game has begun, at least for others.
    pub(super) fn is_started(&self) -> bool {
        self.party.as_ref().is_some_and(|party| party.started)
    }

    pub(super) fn on_party(&mut self, party: &Party) {
        if let Ok(settings) = Settings::from_bytes(&party.terms) {
            self.dials.get_or_insert((settings.lag, settings.window));
            self.seats = settings.sites;
        }
        let named = party.members.iter().filter(|member| !member.name.is_empty());
        self.names.extend(named.map(|member| (member.site, member.name.clone())));
        self.party = Some(party.clone());
    }

    /// Takes note of how it goes; says it in words if the machine stands still now, or goes on.
    pub(super) fn on_status(&mut self, status: &Status) -> Option<String> {
        let before = std::mem::replace(&mut self.status, status.clone()).paused;
        match (before, status.paused) {
            (None, Some(site)) => Some(format!("{} pauses the game", self.name(site))),
            (Some(_), None) => Some("the game goes on".into()),
            _ => None,
        }
    }

    /// Takes note of what happened; says it in words, if it is of interest to a person.
    pub(super) fn on_event(&mut self, event: &Event) -> Option<String> {
        let name = |site: &SiteId| self.name(site.number());
        Some(match event {
            Event::Agreed { .. } | Event::Moved { .. } | Event::Frozen(_) | Event::Ended(_) => return None,
            Event::Starting { .. } => "the game starts".into(),
            Event::Resumed { after, .. } => format!("goes on after {:.1} s", after.as_secs_f64()),
            Event::Left { site, .. } => format!("{} left", name(site)),
            Event::Dropped { site, .. } => format!("{} is lost; the game goes on without", name(site)),
            Event::Joined { site, .. } => format!("{} plays", name(site)),
            Event::Dials { lag, window, .. } => {
                self.dials = Some((*lag, *window));
                format!("lag {lag}, window {window}")
            }
            Event::Diverged { site, frame } => {
                format!("{} has another state than we after frame {frame}: this is no longer the same game", name(site))
            }
            Event::Forged { site, .. } => format!("somebody changed the inputs of {} on their way", name(site)),
            Event::Disagreed { .. } | Event::Refused { .. } | Event::Report(_) => event.to_string(),
        })
    }

    fn member(&self, site: u8) -> Option<&Member> {
        self.party.as_ref()?.members.iter().find(|member| member.site == site)
    }

    /// What somebody is called.
    pub(super) fn name(&self, site: u8) -> String {
        self.names.get(&site).cloned().unwrap_or_else(|| format!("seat {}", site + 1))
    }

    /// Who is around, in one line.
    pub(super) fn people(&self) -> String {
        let Some(party) = &self.party else { return "nobody yet".into() };
        let member = |member: &Member| {
            let pads = if member.pads > 1 { format!(", {} players", member.pads) } else { String::new() };
            let how = match (member.here, member.ready || party.started) {
                (false, _) => ", away",
                (true, false) => ", not ready",
                (true, true) => "",
            };
            format!("{} (seat {}{pads}{how})", self.name(member.site), member.site + 1)
        };
        let mut all: Vec<String> = party.members.iter().map(member).collect();
        if party.watchers > 0 {
            all.push(format!("{} watching", party.watchers));
        }
        all.join(", ")
    }

    /// How it goes, in one line.
    pub(super) fn status_line(&self) -> String {
        let Status { stats, peers, trips, fps, watchers, refused, .. } = &self.status;
        let mut parts = vec![format!("frame {}", stats.frame), format!("{fps:.0} fps")];
        if let Some((lag, window)) = self.dials.filter(|_| self.role != Role::Watcher) {
            parts.push(format!("lag {lag}  window {window}"));
        }
        if !peers.is_empty() {
            let trip = peers.iter().map(|(_, peer)| peer.rtt.as_millis_f64()).fold(0.0, f64::max);
            let loss = peers.iter().map(|(_, peer)| peer.loss).fold(0.0, f32::max);
            parts.push(format!("ping {trip:.0} ms  loss {:.1} %", loss * 100.0));
        } else if let Some(trip) = trips.iter().map(|(_, trip)| trip.as_millis_f64()).reduce(f64::max) {
            parts.push(format!("ping {trip:.0} ms"));
        }
        let watchers = (*watchers).max(self.party.as_ref().map_or(0, |party| usize::from(party.watchers)));
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
            Some(State::Frozen(freeze)) => Some(self.freeze(now, &freeze, patience)),
            _ if playing && self.status.paused.is_some() => self.status.paused.map(|site| self.pause(site, go_on)),
            _ if playing => None,
            _ if self.party.is_none() => Some(self.door()),
            Some(State::Lobby { waiting_for }) => {
                let rows = waiting_for.iter().map(|site| (self.name(site.number()), "is not there yet".into()));
                Some(Overlay { title: "About to start".into(), rows: rows.collect(), foot: LEAVE.into(), chosen: None })
            }
            Some(State::Joining { downloaded }) => {
                let rows = vec![("state of the game".into(), format!("{downloaded} %"))];
                Some(Overlay { title: "Coming in".into(), rows, foot: LEAVE.into(), chosen: None })
            }
            Some(State::Starting { .. }) => None,
            _ if self.is_started() => Some(Overlay { title: "Coming in".into(), ..Overlay::default() }),
            _ => Some(self.lobby()),
        }
    }

    fn door(&self) -> Overlay {
        let rows = vec![("at".into(), self.ticket.split('#').next().unwrap_or_default().into())];
        Overlay { title: "Knocking".into(), rows, foot: LEAVE.into(), chosen: None }
    }

    fn lobby(&self) -> Overlay {
        let members = self.party.as_ref().map_or(&[][..], |party| &party.members);
        let mut rows: Vec<(String, String)> = (0..self.seats).map(|site| self.seat(site)).collect();
        rows.push((String::new(), String::new()));
        rows.extend(self.ticket_rows());
        let keys = "C chat   F10 leave";
        if self.role != Role::Host {
            let foot = format!("the host starts the game   {keys}");
            return Overlay { title: "Waiting for the start".into(), rows, chosen: None, foot };
        }
        let others = members.iter().filter(|member| member.site != 0 && member.here).count();
        let alone = if others == 0 { "alone; others can come later" } else { "those who are missing can come later" };
        rows.push(("Start now".into(), alone.into()));
        let chosen = Some(rows.len() - 1);
        Overlay { title: "Waiting for players".into(), rows, chosen, foot: format!("Enter start   {keys}") }
    }

    /// The ticket, in lines that fit, and what to do with it.
    fn ticket_rows(&self) -> Vec<(String, String)> {
        let signs: Vec<char> = self.ticket.chars().collect();
        let lines = signs.chunks(WIDE).map(|line| (String::new(), line.iter().collect()));
        let mut rows: Vec<(String, String)> = lines.collect();
        let short = rows.len() == 1;
        if let Some(first) = rows.first_mut() {
            first.0 = "Ticket".into();
        }
        let ticket = if short { &self.ticket } else { "TICKET" };
        rows.push(("To join".into(), join_command(ticket)));
        rows.push(("To watch".into(), format!("coplay watch '{ticket}'")));
        rows
    }

    fn seat(&self, site: u8) -> (String, String) {
        let Some(member) = self.member(site) else { return ("free".into(), "anybody with the ticket".into()) };
        let pads = if member.pads > 1 { format!("{} players, ", member.pads) } else { String::new() };
        let how = match (member.here, member.ready) {
            (false, _) => "away",
            (true, false) => "looking for the game",
            (true, true) => "ready",
        };
        let trip = self.status.trips.iter().find(|(there, _)| *there == site && member.here);
        let trip = trip.map_or_else(String::new, |(_, trip)| format!(", {:.0} ms", trip.as_millis_f64()));
        (self.name(site), format!("{pads}{how}{trip}"))
    }

    fn pause(&self, site: u8, go_on: &str) -> Overlay {
        let rows = vec![(self.name(site), "paused the game".into())];
        let foot = match self.role {
            Role::Watcher => LEAVE.into(),
            _ if go_on.is_empty() => LEAVE.into(),
            _ => format!("{go_on} go on, for all   {LEAVE}"),
        };
        Overlay { title: "Paused".into(), rows, chosen: None, foot }
    }

    fn freeze(&self, now: Instant, freeze: &Freeze, patience: Option<f64>) -> Overlay {
        let rows = freeze.waiting_for.iter().map(|site| {
            let why = if freeze.silent.contains(site) { "nothing is heard" } else { "is there, but slow or stuck" };
            (self.name(site.number()), why.into())
        });
        let rows: Vec<(String, String)> = rows.collect();
        let next = match patience {
            Some(seconds) => format!("after {seconds:.0} s of silence it goes on without"),
            None => "it goes on when they are back".into(),
        };
        Overlay {
            title: format!("Waiting for {:.0} s", (now - freeze.since).as_secs_f64().max(0.0)),
            rows,
            chosen: None,
            foot: format!("wait: {next}   F10 leave"),
        }
    }
}

/// So much of a ticket fits into a line, also in a small terminal.
const WIDE: usize = 58;
const LEAVE: &str = "F10 leave";

/// What a friend types.
pub(super) fn join_command(ticket: &str) -> String {
    format!("coplay join '{ticket}'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::id::SiteSet;
    use coplay::session::{PeerStats, Stats};
    use coplay::time::TimeDelta;
    use coplay_machines::hosted::{Terms, settings};
    use coplay_net::PeerKey;

    fn party(started: bool) -> Party {
        let member = |site: u8, name: &str, ready, here| Member {
            site,
            key: PeerKey([site; 32]),
            name: name.into(),
            pads: 1 + site,
            places: vec![],
            ready,
            here,
        };
        let terms = settings(&crate::toy::ToyMachine::new(1), Terms { lag: 3, window: 5, ..Terms::new(3) });
        let members = vec![member(0, "Ann", true, true), member(1, "Bob", false, true)];
        Party { serial: 1, session: 1, terms: terms.to_bytes().unwrap(), started, members, watchers: 2, you: None }
    }

    fn company(role: Role, started: bool) -> Company {
        let mut company = Company::new(role, "udp://a:1#x".into());
        company.on_party(&party(started));
        company
    }

    fn text(overlay: &Overlay) -> String {
        let rows: Vec<String> = overlay.rows.iter().map(|(left, right)| format!("{left}|{right}")).collect();
        format!("{}\n{}\n{}", overlay.title, rows.join("\n"), overlay.foot)
    }

    #[test]
    fn the_lobby_says_who_is_here_and_how_to_join() {
        let overlay = company(Role::Host, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        let shown = text(&overlay);
        for part in ["Ann|ready", "Bob|2 players, looking", "free|anybody", "coplay join 'udp://a:1#x'", "Enter start"]
        {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(overlay.rows[overlay.chosen.unwrap()].0, "Start now");
        let guest = company(Role::Guest, false).overlay(Instant::ZERO, false, None, "P").unwrap();
        assert_eq!(guest.chosen, None, "only the host starts");
        assert_eq!(
            company(Role::Guest, false).people(),
            "Ann (seat 1), Bob (seat 2, 2 players, not ready), 2 watching"
        );
    }

    #[test]
    fn the_lobby_says_how_far_away_everybody_is() {
        for role in [Role::Host, Role::Guest] {
            let mut company = company(role, false);
            let trips = vec![(1, TimeDelta::from_micros(23_400))];
            company.on_status(&Status { trips, ..Status::default() });
            let shown = text(&company.overlay(Instant::ZERO, false, None, "P").unwrap());
            assert!(
                shown.contains("Bob|2 players, looking for the game, 23 ms") && shown.contains("Ann|ready\n"),
                "{shown}"
            );
            assert!(company.status_line().contains("ping 23 ms"));
        }
    }

    #[test]
    fn a_pause_says_who_and_how_to_go_on() {
        let mut company = company(Role::Guest, true);
        let paused = Status { paused: Some(1), ..Status::default() };
        assert_eq!(company.on_status(&paused).as_deref(), Some("Bob pauses the game"));
        assert_eq!(company.on_status(&paused), None, "once");
        let shown = text(&company.overlay(Instant::ZERO, true, None, "P").unwrap());
        for part in ["Paused", "Bob|paused the game", "P go on, for all", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(company.on_status(&Status::default()).as_deref(), Some("the game goes on"));
        assert!(company.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn a_long_ticket_is_shown_whole() {
        let ticket = format!("coplay:{}", "a7".repeat(60));
        let mut company = Company::new(Role::Host, ticket.clone());
        company.on_party(&party(false));
        let overlay = company.overlay(Instant::ZERO, false, None, "").unwrap();
        assert!(overlay.rows.iter().all(|(_, right)| right.len() <= WIDE), "{}", text(&overlay));
        let whole: String = overlay.rows.iter().filter(|row| row.1.contains("a7")).map(|row| row.1.as_str()).collect();
        assert_eq!(whole, ticket);
    }

    #[test]
    fn a_freeze_says_who_and_why_and_for_how_long() {
        let mut company = company(Role::Guest, true);
        let site = |number| SiteId::new(number).unwrap();
        let freeze = Freeze {
            frame: coplay::frame::Frame::new(9),
            since: Instant::ZERO,
            waiting_for: [site(0), site(1)].into_iter().collect(),
            silent: [site(1)].into_iter().collect::<SiteSet>(),
        };
        company.on_status(&Status { state: Some(State::Frozen(freeze)), ..Status::default() });
        let overlay = company.overlay(Instant::ZERO + TimeDelta::from_secs(4), true, Some(10.0), "P").unwrap();
        let shown = text(&overlay);
        for part in ["Waiting for 4 s", "Ann|is there, but slow", "Bob|nothing is heard", "after 10 s", "F10 leave"] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }

    #[test]
    fn the_status_is_one_line() {
        let mut company = company(Role::Host, true);
        let peer = PeerStats { rtt: TimeDelta::from_millis(23), loss: 0.012, ..PeerStats::default() };
        let stats = Stats { frame: coplay::frame::Frame::new(77), ..Stats::default() };
        company.on_status(&Status { stats, peers: vec![(1, peer)], fps: 60.0, ..Status::default() });
        assert_eq!(company.status_line(), "frame 77   60 fps   lag 3  window 5   ping 23 ms  loss 1.2 %   2 watching");
        assert!(company.overlay(Instant::ZERO, true, None, "P").is_none());
    }

    #[test]
    fn events_have_names_in_them() {
        let mut company = company(Role::Host, true);
        let (site, frame) = (SiteId::new(1).unwrap(), coplay::frame::Frame::new(5));
        assert_eq!(company.on_event(&Event::Left { site, frame }).as_deref(), Some("Bob left"));
        company.on_event(&Event::Dials { frame, lag: 4, window: 2, need: 6, site });
        assert!(company.status_line().contains("lag 4  window 2"));
    }
}
