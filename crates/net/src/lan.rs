//! Games in the local network: who offers one says so by multicast DNS, as printers do, and who looks for one hears it.
//!
//! What is said is there for everybody in the network to read. So a ticket is in it only if everybody there may come in.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use mdns_sd::{IfKind, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};

use crate::key::random;
use crate::ticket::{MAX_TICKET, Ticket};

/// What games are called among all the services of a network.
const SERVICE: &str = "_coplay._udp.local.";
/// The form of what is said.
const VERSION: &str = "2";
/// The longest name that is told or taken.
const MAX_TEXT: usize = 64;
/// A longer ticket is told in pieces: no record holds more than 255 bytes.
const PIECE: usize = 200;
/// The most games that are listed.
const MOST: usize = 64;
/// No service can be told without a port, and ours is in the ticket.
const PORT: u16 = 9;
/// Saying goodbye takes no longer.
const GOODBYE: Duration = Duration::from_millis(200);

/// What is offered. Who looks for one kind does not see the other, because it could not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A game on a machine that all share.
    Game,
    /// A maze to walk about in, without a server.
    Maze,
}

impl Kind {
    /// As it is said.
    fn word(self) -> &'static str {
        match self {
            Self::Game => "game",
            Self::Maze => "maze",
        }
    }
}

/// A game that somebody offers.
#[derive(Clone, PartialEq, Eq)]
pub struct Notice {
    /// The kind of game.
    pub kind: Kind,
    /// What is played.
    pub game: String,
    /// Who offers it.
    pub host: String,
    /// How to come in, if that is open to everybody in the network.
    pub ticket: Option<Ticket>,
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.ticket.is_some() { "open" } else { "with a ticket" };
        write!(f, "{} by {}, {open}", self.game, self.host)
    }
}

/// A notice that hangs out, until this is dropped.
pub struct Sign {
    daemon: ServiceDaemon,
    name: String,
}

impl fmt::Debug for Sign {
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
pub fn hang_out(notice: &Notice) -> Result<Sign, LanError> {
    let daemon = daemon()?;
    // A name that nobody else has need not be asked for first.
    let name: String = random::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let properties: Vec<(String, String)> = properties(notice);
    let mut info =
        ServiceInfo::new(SERVICE, &name, &format!("{name}.local."), "", PORT, &properties[..])?.enable_addr_auto();
    info.set_requires_probe(false);
    let name = info.get_fullname().to_owned();
    daemon.register(info)?;
    Ok(Sign { daemon, name })
}

impl Drop for Sign {
    fn drop(&mut self) {
        // Others would see it for a while if this were lost; more cannot be done.
        if let Ok(gone) = self.daemon.unregister(&self.name) {
            let _ = gone.recv_timeout(GOODBYE);
        }
        shut(&self.daemon);
    }
}

/// Looks around for so long; the games of a kind that are there, one line for each, in a lasting order. `still` is asked now and then, and ends
/// the search with `false`.
pub fn look(kind: Kind, most: Duration, mut still: impl FnMut() -> bool) -> Result<Vec<Notice>, LanError> {
    let daemon = daemon()?;
    let events = daemon.browse(SERVICE)?;
    let until = Instant::now() + most;
    let mut found = BTreeMap::new();
    while Instant::now() < until && still() {
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok(ServiceEvent::ServiceResolved(service)) if found.len() < MOST => {
                if let Some(notice) = read(&service, kind) {
                    found.insert(service.get_fullname().to_owned(), notice);
                }
            }
            Ok(ServiceEvent::ServiceRemoved(_, name)) => drop(found.remove(&name)),
            _ => {}
        }
    }
    shut(&daemon);
    Ok(found.into_values().collect())
}

/// Also without any network two programs on one computer find each other.
fn daemon() -> Result<ServiceDaemon, LanError> {
    let daemon = ServiceDaemon::new()?;
    daemon.enable_interface(vec![IfKind::LoopbackV4, IfKind::LoopbackV6])?;
    Ok(daemon)
}

fn shut(daemon: &ServiceDaemon) {
    if let Ok(over) = daemon.shutdown() {
        let _ = over.recv_timeout(GOODBYE);
    }
}

fn properties(notice: &Notice) -> Vec<(String, String)> {
    let kind = notice.kind.word().into();
    let fixed = [("v", VERSION.into()), ("kind", kind), ("game", tidy(&notice.game)), ("host", tidy(&notice.host))];
    let ticket = notice.ticket.as_ref().map(Ticket::to_string).unwrap_or_default();
    let pieces: Vec<String> = split(&ticket, PIECE).map(str::to_owned).collect();
    let pieces = pieces.into_iter().enumerate().map(|(at, piece)| (format!("t{at}"), piece));
    fixed.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(pieces).collect()
}

/// What somebody says of a game of a kind, whoever that is.
fn read(service: &ResolvedService, kind: Kind) -> Option<Notice> {
    let said = |key: &str| service.get_property_val_str(key);
    if said("v") != Some(VERSION) || said("kind") != Some(kind.word()) {
        return None;
    }
    let pieces = (0..=MAX_TICKET / PIECE).map_while(|at| said(&format!("t{at}")));
    let ticket: String = pieces.collect();
    Some(Notice { kind, game: tidy(said("game")?), host: tidy(said("host")?), ticket: ticket.parse().ok() })
}

/// Without what would spoil a terminal, and not too long.
fn tidy(text: &str) -> String {
    let text: String = text.chars().filter(|sign| !sign.is_control()).collect();
    split(&text, MAX_TEXT).next().unwrap_or_default().to_owned()
}

/// A text in pieces of at most so many bytes.
fn split(mut text: &str, most: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(most));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(ticket: Option<Ticket>) -> Notice {
        Notice { kind: Kind::Game, game: "Tennis\u{1b}[2J".into(), host: "é".repeat(60), ticket }
    }

    fn resolved(notice: &Notice) -> ResolvedService {
        let properties = properties(notice);
        ServiceInfo::new(SERVICE, "x", "x.local.", "127.0.0.1", PORT, &properties[..]).unwrap().as_resolved_service()
    }

    #[test]
    fn a_long_ticket_is_told_in_pieces() {
        let ticket: Ticket = format!("udp://{}.example:7000#{}", "x".repeat(200), "ü".repeat(60)).parse().unwrap();
        let told = read(&resolved(&notice(Some(ticket.clone()))), Kind::Game).unwrap();
        assert_eq!(told.ticket, Some(ticket));
        assert_eq!((told.game.as_str(), told.host.len()), ("Tennis[2J", MAX_TEXT));
    }

    #[test]
    fn what_everybody_reads_has_no_ticket_unless_it_is_open() {
        let said = properties(&notice(None));
        assert!(said.iter().all(|(key, _)| ["v", "kind", "game", "host"].contains(&key.as_str())), "{said:?}");
        assert_eq!(read(&resolved(&notice(None)), Kind::Game).unwrap().ticket, None);
    }

    #[test]
    fn what_is_not_ours_is_not_listed() {
        let other = ServiceInfo::new(SERVICE, "x", "x.local.", "127.0.0.1", PORT, &[("v", "9")][..]).unwrap();
        assert_eq!(read(&other.as_resolved_service(), Kind::Game), None);
    }

    #[test]
    fn who_looks_for_a_game_is_not_shown_a_maze() {
        let maze = Notice { kind: Kind::Maze, ..notice(None) };
        assert_eq!(read(&resolved(&maze), Kind::Game), None);
        assert_eq!(read(&resolved(&maze), Kind::Maze).map(|notice| notice.kind), Some(Kind::Maze));
        assert_eq!(read(&resolved(&notice(None)), Kind::Maze), None);
    }

    #[test]
    fn a_game_is_found_and_gone_again() {
        let host: String = random::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let ticket = "udp://192.0.2.7:7000#tennis".parse().ok();
        let notice = Notice { kind: Kind::Game, game: "Tennis".into(), host: host.clone(), ticket };
        let sign = hang_out(&notice).unwrap();
        let is_there = || look(Kind::Game, Duration::from_secs(2), || true).unwrap().contains(&notice);
        assert!((0..10).any(|_| is_there()));
        drop(sign);
        assert!((0..10).any(|_| !is_there()));
    }
}
