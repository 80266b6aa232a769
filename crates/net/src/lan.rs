//! Discovery of games in the local network: a host advertises its game by multicast DNS, as printers do, and a joiner
//! browses for it.
//!
//! Everybody in the network can read an advertisement. It therefore contains a ticket only if everybody there may join.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mdns_sd::{IfKind, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::key::random_bytes;
use crate::ticket::{MAX_TICKET_LEN, Ticket};

/// mDNS service type of all Coplay games.
const SERVICE_TYPE: &str = "_coplay._udp.local.";
/// Version of the TXT properties; advertisements of other versions are ignored.
const FORMAT_VERSION: &str = "2";
/// Maximum length of the advertised name of the game, and of that of the host, in bytes.
const MAX_TEXT_LEN: usize = 64;
/// Maximum length of one part of a ticket, in bytes: a TXT record string holds at most 255 bytes.
const TXT_CHUNK_LEN: usize = 200;
/// Maximum number of games that one search returns.
const MAX_ENTRIES: usize = 64;
/// Port in an advertisement. It is a placeholder: mDNS requires a port, and the real one is in the ticket.
const PLACEHOLDER_PORT: u16 = 9;
/// Time limit for withdrawing an advertisement, and for stopping the mDNS daemon.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// Kind of game. Browsing for one kind leaves out the other, which is joined by another command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameKind {
    /// A game on a machine that all players share.
    SharedMachine,
    /// A maze world without a server.
    Maze,
}

impl GameKind {
    /// Returns the value of the TXT property `kind`.
    fn tag(self) -> &'static str {
        match self {
            Self::SharedMachine => "game",
            Self::Maze => "maze",
        }
    }
}

/// A game advertised in the local network.
#[derive(Clone, PartialEq, Eq)]
pub struct LanGame {
    /// Whether the game is a shared machine or a maze.
    pub kind: GameKind,
    /// Name of the game for people; an advertisement contains it without control characters and cut to 64 bytes.
    pub game: String,
    /// Display name of the host, sanitized and cut like `game`.
    pub host: String,
    /// Ticket, if everybody in the network may join; `None` if a joiner needs to get one from the host, or if the
    /// received ticket is malformed.
    pub ticket: Option<Ticket>,
}

impl fmt::Debug for LanGame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.ticket.is_some() { "open" } else { "ticket required" };
        write!(f, "{} by {}, {open}", self.game, self.host)
    }
}

/// A running advertisement, which is withdrawn on drop.
pub struct LanAdvertisement {
    daemon: ServiceDaemon,
    name: String,
}

impl fmt::Debug for LanAdvertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "advertisement {}", self.name)
    }
}

/// Reason why multicast DNS is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanError(String);

impl fmt::Display for LanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "multicast DNS is not available: {}", self.0)
    }
}

impl std::error::Error for LanError {}

impl From<mdns_sd::Error> for LanError {
    fn from(error: mdns_sd::Error) -> Self {
        Self(error.to_string())
    }
}

/// Starts advertising a game under a random service name, in the background. Fails if multicast DNS is unavailable.
pub fn advertise(lan_game: &LanGame) -> Result<LanAdvertisement, LanError> {
    let daemon = daemon()?;
    // A random name is unique and needs no probe.
    let name: String = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let properties: Vec<(String, String)> = properties(lan_game);
    let mut info =
        ServiceInfo::new(SERVICE_TYPE, &name, &format!("{name}.local."), "", PLACEHOLDER_PORT, &properties[..])?
            .enable_addr_auto();
    info.set_requires_probe(false);
    let name = info.get_fullname().to_owned();
    daemon.register(info)?;
    Ok(LanAdvertisement { daemon, name })
}

impl Drop for LanAdvertisement {
    fn drop(&mut self) {
        // If the goodbye packet is lost, others list the game until its record expires.
        if let Ok(unregistered) = self.daemon.unregister(&self.name) {
            let _ = unregistered.recv_timeout(SHUTDOWN_TIMEOUT);
        }
        shut_down(&self.daemon);
    }
}

/// Browses the local network for `limit` and returns the games of this kind, sorted by service name, one entry per
/// advertisement and at most 64. `keep_going` is polled at least every 50 ms and ends the search early by returning
/// `false`. Fails if multicast DNS is unavailable.
pub fn browse(kind: GameKind, limit: Duration, mut keep_going: impl FnMut() -> bool) -> Result<Vec<LanGame>, LanError> {
    let daemon = daemon()?;
    let events = daemon.browse(SERVICE_TYPE)?;
    let deadline = Instant::now() + limit;
    let mut found = BTreeMap::new();
    while Instant::now() < deadline && keep_going() {
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok(ServiceEvent::ServiceResolved(service)) if found.len() < MAX_ENTRIES => {
                if let Some(lan_game) = parse(&service, kind) {
                    found.insert(service.get_fullname().to_owned(), lan_game);
                }
            }
            Ok(ServiceEvent::ServiceRemoved(_, name)) => drop(found.remove(&name)),
            _ => {}
        }
    }
    shut_down(&daemon);
    Ok(found.into_values().collect())
}

/// Returns an mDNS daemon that also uses loopback, so that two programs on one computer find each other without a
/// network.
fn daemon() -> Result<ServiceDaemon, LanError> {
    let daemon = ServiceDaemon::new()?;
    daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    Ok(daemon)
}

fn shut_down(daemon: &ServiceDaemon) {
    if let Ok(stopped) = daemon.shutdown() {
        let _ = stopped.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}

fn properties(lan_game: &LanGame) -> Vec<(String, String)> {
    let kind = lan_game.kind.tag().into();
    let fixed = [
        ("v", FORMAT_VERSION.into()),
        ("kind", kind),
        ("game", sanitize(&lan_game.game)),
        ("host", sanitize(&lan_game.host)),
    ];
    let ticket = lan_game.ticket.as_ref().map(Ticket::to_string).unwrap_or_default();
    let chunks: Vec<String> = split_chunks(&ticket, TXT_CHUNK_LEN).map(str::to_owned).collect();
    let chunks = chunks.into_iter().enumerate().map(|(at, chunk)| (format!("t{at}"), chunk));
    fixed.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(chunks).collect()
}

/// Parses an advertisement from an untrusted sender; `None` if the advertisement is malformed or of another kind or
/// version.
fn parse(service: &ResolvedService, kind: GameKind) -> Option<LanGame> {
    let property = |key: &str| service.get_property_val_str(key);
    if property("v") != Some(FORMAT_VERSION) || property("kind") != Some(kind.tag()) {
        return None;
    }
    let chunks = (0..=MAX_TICKET_LEN / TXT_CHUNK_LEN).map_while(|at| property(&format!("t{at}")));
    let ticket: String = chunks.collect();
    Some(LanGame {
        kind,
        game: sanitize(property("game")?),
        host: sanitize(property("host")?),
        ticket: ticket.parse().ok(),
    })
}

/// Removes control characters, which could corrupt a terminal, and truncates to [`MAX_TEXT_LEN`].
fn sanitize(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    split_chunks(&text, MAX_TEXT_LEN).next().unwrap_or_default().to_owned()
}

/// Splits a text into chunks of at most `max_len` bytes, at character boundaries.
fn split_chunks(mut text: &str, max_len: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (chunk, rest) = text.split_at(text.floor_char_boundary(max_len));
        text = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lan_game(ticket: Option<Ticket>) -> LanGame {
        LanGame { kind: GameKind::SharedMachine, game: "Tennis\u{1b}[2J".into(), host: "é".repeat(60), ticket }
    }

    fn resolved(lan_game: &LanGame) -> ResolvedService {
        let properties = properties(lan_game);
        ServiceInfo::new(SERVICE_TYPE, "x", "x.local.", "127.0.0.1", PLACEHOLDER_PORT, &properties[..])
            .unwrap()
            .as_resolved_service()
    }

    #[test]
    fn long_ticket_is_split_over_txt_properties() {
        let ticket: Ticket = format!("udp://{}.example:7000#{}", "x".repeat(200), "ü".repeat(60)).parse().unwrap();
        let parsed = parse(&resolved(&lan_game(Some(ticket.clone()))), GameKind::SharedMachine).unwrap();
        assert_eq!(parsed.ticket, Some(ticket));
        assert_eq!((parsed.game.as_str(), parsed.host.len()), ("Tennis[2J", MAX_TEXT_LEN));
    }

    #[test]
    fn advertisement_without_ticket_has_no_ticket_property() {
        let property = properties(&lan_game(None));
        assert!(property.iter().all(|(key, _)| ["v", "kind", "game", "host"].contains(&key.as_str())), "{property:?}");
        assert_eq!(parse(&resolved(&lan_game(None)), GameKind::SharedMachine).unwrap().ticket, None);
    }

    #[test]
    fn service_of_another_version_is_ignored() {
        let other =
            ServiceInfo::new(SERVICE_TYPE, "x", "x.local.", "127.0.0.1", PLACEHOLDER_PORT, &[("v", "9")][..]).unwrap();
        assert_eq!(parse(&other.as_resolved_service(), GameKind::SharedMachine), None);
    }

    #[test]
    fn browsing_finds_only_the_requested_game_kind() {
        let maze = LanGame { kind: GameKind::Maze, ..lan_game(None) };
        assert_eq!(parse(&resolved(&maze), GameKind::SharedMachine), None);
        assert_eq!(parse(&resolved(&maze), GameKind::Maze).map(|lan_game| lan_game.kind), Some(GameKind::Maze));
        assert_eq!(parse(&resolved(&lan_game(None)), GameKind::Maze), None);
    }

    #[test]
    fn advertised_game_is_found_until_dropped() {
        let host: String = random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let ticket = "udp://192.0.2.7:7000#tennis".parse().ok();
        let lan_game = LanGame { kind: GameKind::SharedMachine, game: "Tennis".into(), host: host.clone(), ticket };
        let advertisement = advertise(&lan_game).unwrap();
        let is_there = || browse(GameKind::SharedMachine, Duration::from_secs(2), || true).unwrap().contains(&lan_game);
        assert!((0..10).any(|_| is_there()));
        drop(advertisement);
        assert!((0..10).any(|_| !is_there()));
    }
}
