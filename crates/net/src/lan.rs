//! Games in the local network: who offers one says so by multicast DNS, as printers do, and who looks for one hears it.
//!
//! What is said is there for everybody in the network to read. So a ticket is in it only if everybody there may come in.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mdns_sd::{IfKind, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::key::random_bytes;
use crate::ticket::{MAX_TICKET_LEN, Ticket};

/// What games are called among all the services of a network.
const SERVICE_TYPE: &str = "_coplay._udp.local.";
/// The form of what is said.
const FORMAT_VERSION: &str = "2";
/// The longest name that is told or taken.
const MAX_TEXT_LEN: usize = 64;
/// A longer ticket is told in pieces: no record holds more than 255 bytes.
const TXT_CHUNK_LEN: usize = 200;
/// The most games that are listed.
const MAX_ENTRIES: usize = 64;
/// No service can be told without a port, and ours is in the ticket.
const PLACEHOLDER_PORT: u16 = 9;
/// Saying goodbye takes no longer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// What is offered. Who looks for one kind does not see the other, because it could not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameKind {
    /// A game on a machine that all share.
    SharedMachine,
    /// A maze to walk about in, without a server.
    Maze,
}

impl GameKind {
    /// As it is said.
    fn tag(self) -> &'static str {
        match self {
            Self::SharedMachine => "game",
            Self::Maze => "maze",
        }
    }
}

/// A game that somebody offers.
#[derive(Clone, PartialEq, Eq)]
pub struct LanGame {
    /// The kind of game.
    pub kind: GameKind,
    /// What is played.
    pub game: String,
    /// Who offers it.
    pub host: String,
    /// How to come in, if that is open to everybody in the network.
    pub ticket: Option<Ticket>,
}

impl fmt::Debug for LanGame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.ticket.is_some() { "open" } else { "with a ticket" };
        write!(f, "{} by {}, {open}", self.game, self.host)
    }
}

/// A notice that hangs out, until this is dropped.
pub struct LanAdvertisement {
    daemon: ServiceDaemon,
    name: String,
}

impl fmt::Debug for LanAdvertisement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sign {}", self.name)
    }
}

/// Why the local network cannot be asked or told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanError(String);

impl fmt::Display for LanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the local network cannot be reached: {}", self.0)
    }
}

impl std::error::Error for LanError {}

impl From<mdns_sd::Error> for LanError {
    fn from(error: mdns_sd::Error) -> Self {
        Self(error.to_string())
    }
}

/// Hangs out a notice. It does not wait for anybody.
pub fn advertise(notice: &LanGame) -> Result<LanAdvertisement, LanError> {
    let daemon = daemon()?;
    // A name that nobody else has need not be asked for first.
    let name: String = random_bytes::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let properties: Vec<(String, String)> = properties(notice);
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
        // Others would see it for a while if this were lost; more cannot be done.
        if let Ok(gone) = self.daemon.unregister(&self.name) {
            let _ = gone.recv_timeout(SHUTDOWN_TIMEOUT);
        }
        shut_down(&self.daemon);
    }
}

/// Looks around for so long; the games of a kind that are there, one line for each, in a lasting order. `still` is asked now and then, and ends
/// the search with `false`.
pub fn browse(kind: GameKind, most: Duration, mut still: impl FnMut() -> bool) -> Result<Vec<LanGame>, LanError> {
    let daemon = daemon()?;
    let events = daemon.browse(SERVICE_TYPE)?;
    let until = Instant::now() + most;
    let mut found = BTreeMap::new();
    while Instant::now() < until && still() {
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok(ServiceEvent::ServiceResolved(service)) if found.len() < MAX_ENTRIES => {
                if let Some(notice) = parse(&service, kind) {
                    found.insert(service.get_fullname().to_owned(), notice);
                }
            }
            Ok(ServiceEvent::ServiceRemoved(_, name)) => drop(found.remove(&name)),
            _ => {}
        }
    }
    shut_down(&daemon);
    Ok(found.into_values().collect())
}

/// Also without any network two programs on one computer find each other.
fn daemon() -> Result<ServiceDaemon, LanError> {
    let daemon = ServiceDaemon::new()?;
    daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    Ok(daemon)
}

fn shut_down(daemon: &ServiceDaemon) {
    if let Ok(over) = daemon.shutdown() {
        let _ = over.recv_timeout(SHUTDOWN_TIMEOUT);
    }
}

fn properties(notice: &LanGame) -> Vec<(String, String)> {
    let kind = notice.kind.tag().into();
    let fixed = [
        ("v", FORMAT_VERSION.into()),
        ("kind", kind),
        ("game", sanitize(&notice.game)),
        ("host", sanitize(&notice.host)),
    ];
    let ticket = notice.ticket.as_ref().map(Ticket::to_string).unwrap_or_default();
    let pieces: Vec<String> = split_chunks(&ticket, TXT_CHUNK_LEN).map(str::to_owned).collect();
    let pieces = pieces.into_iter().enumerate().map(|(at, piece)| (format!("t{at}"), piece));
    fixed.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(pieces).collect()
}

/// What somebody says of a game of a kind, whoever that is.
fn parse(service: &ResolvedService, kind: GameKind) -> Option<LanGame> {
    let said = |key: &str| service.get_property_val_str(key);
    if said("v") != Some(FORMAT_VERSION) || said("kind") != Some(kind.tag()) {
        return None;
    }
    let pieces = (0..=MAX_TICKET_LEN / TXT_CHUNK_LEN).map_while(|at| said(&format!("t{at}")));
    let ticket: String = pieces.collect();
    Some(LanGame { kind, game: sanitize(said("game")?), host: sanitize(said("host")?), ticket: ticket.parse().ok() })
}

/// Without what would spoil a terminal, and not too long.
fn sanitize(text: &str) -> String {
    let text: String = text.chars().filter(|sign| !sign.is_control()).collect();
    split_chunks(&text, MAX_TEXT_LEN).next().unwrap_or_default().to_owned()
}

/// A text in pieces of at most so many bytes.
fn split_chunks(mut text: &str, most: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(most));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lan_game(ticket: Option<Ticket>) -> LanGame {
        LanGame { kind: GameKind::SharedMachine, game: "Tennis\u{1b}[2J".into(), host: "é".repeat(60), ticket }
    }

    fn resolved(notice: &LanGame) -> ResolvedService {
        let properties = properties(notice);
        ServiceInfo::new(SERVICE_TYPE, "x", "x.local.", "127.0.0.1", PLACEHOLDER_PORT, &properties[..])
            .unwrap()
            .as_resolved_service()
    }

    #[test]
    fn long_ticket_is_split_over_txt_properties() {
        let ticket: Ticket = format!("udp://{}.example:7000#{}", "x".repeat(200), "ü".repeat(60)).parse().unwrap();
        let told = parse(&resolved(&lan_game(Some(ticket.clone()))), GameKind::SharedMachine).unwrap();
        assert_eq!(told.ticket, Some(ticket));
        assert_eq!((told.game.as_str(), told.host.len()), ("Tennis[2J", MAX_TEXT_LEN));
    }

    #[test]
    fn advertisement_without_ticket_has_no_ticket_property() {
        let said = properties(&lan_game(None));
        assert!(said.iter().all(|(key, _)| ["v", "kind", "game", "host"].contains(&key.as_str())), "{said:?}");
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
        assert_eq!(parse(&resolved(&maze), GameKind::Maze).map(|notice| notice.kind), Some(GameKind::Maze));
        assert_eq!(parse(&resolved(&lan_game(None)), GameKind::Maze), None);
    }

    #[test]
    fn advertised_game_is_found_until_dropped() {
        let host: String = random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let ticket = "udp://192.0.2.7:7000#tennis".parse().ok();
        let notice = LanGame { kind: GameKind::SharedMachine, game: "Tennis".into(), host: host.clone(), ticket };
        let sign = advertise(&notice).unwrap();
        let is_there = || browse(GameKind::SharedMachine, Duration::from_secs(2), || true).unwrap().contains(&notice);
        assert!((0..10).any(|_| is_there()));
        drop(sign);
        assert!((0..10).any(|_| !is_there()));
    }
}
