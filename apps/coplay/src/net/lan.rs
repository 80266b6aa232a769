//! Games in the local network: telling of one's own, and choosing among those of others.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use coplay_net::lan::{self, GameKind, LanAdvertisement, LanGame};
use coplay_net::ticket::Ticket;

use crate::cli::net::LanVisibility;
use crate::connect;
use crate::error::AppError;

/// So long it takes until everybody who offers a game has said so.
const DISCOVERY_TIME: Duration = Duration::from_millis(2_500);

/// Tells the local network of our game, as far as the host wants that. A network that cannot be told is no reason not to play.
pub(crate) fn announce_game(
    kind: GameKind,
    open: LanVisibility,
    (game, host): (&str, &str),
    ticket: &Ticket,
) -> Option<LanAdvertisement> {
    let ticket = match open {
        LanVisibility::Hide => return None,
        LanVisibility::See => None,
        LanVisibility::Join => Some(ticket.clone()),
    };
    let sign = lan::advertise(&LanGame { kind, game: game.into(), host: host.into(), ticket });
    sign.inspect_err(|error| eprintln!("note: nobody in the local network is told of this game: {error}")).ok()
}

/// The ticket that was given, or that of a game that is chosen; `None` where nobody can choose, and the list is all.
pub(crate) fn choose_ticket(kind: GameKind, given: Option<&str>) -> Result<Option<Ticket>, AppError> {
    if let Some(text) = given {
        return connect::parse_ticket(text).map(Some);
    }
    let (thing, join, _) = command_words(kind);
    eprintln!("looking for {thing}s in the local network ...");
    let found = lan::browse(kind, DISCOVERY_TIME, || true).map_err(|error| {
        AppError::failure(error.to_string()).hint(format!("join by the ticket that the host shows: {join} 'TICKET'"))
    })?;
    if found.is_empty() {
        return Err(AppError::failure(format!("no {thing} is seen in the local network"))
            .hint(format!("with the ticket that the host shows, {thing}s anywhere can be joined: {join} 'TICKET'")));
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        crate::print_stdout(&format_games(&found));
        return Ok(None);
    }
    eprint!("{}", format_games(&found));
    prompt_choice(&found).map(Some)
}

/// What is looked for, the command that leads in, and the one that opens it to all.
fn command_words(kind: GameKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        GameKind::SharedMachine => ("game", "coplay join", "coplay host --lan join"),
        GameKind::Maze => ("maze", "coplay maze join", "coplay maze host --lan join"),
    }
}

/// One line for each game, with a number to choose it by.
fn format_games(found: &[LanGame]) -> String {
    let name = |notice: &LanGame| format!("{}, offered by {}", notice.game, notice.host);
    let wide = found.iter().map(|notice| name(notice).chars().count()).max().unwrap_or(0);
    let line = |(at, notice): (usize, &LanGame)| {
        let how = if notice.ticket.is_some() { "open to this network" } else { "ask the host for the ticket" };
        format!("{:>3}  {:<wide$}  {how}\n", at + 1, name(notice))
    };
    found.iter().enumerate().map(line).collect()
}

fn prompt_choice(found: &[LanGame]) -> Result<Ticket, AppError> {
    eprint!("which one? [1] ");
    // A prompt that is not seen is no reason to fail.
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    if !matches!(std::io::stdin().read_line(&mut line), Ok(1..)) {
        return Err(AppError::usage("no game was chosen").hint("type the number of one of them"));
    }
    parse_choice(found, line.trim())
}

/// What somebody typed: a number, nothing for the first, or a ticket after all.
fn parse_choice(found: &[LanGame], typed: &str) -> Result<Ticket, AppError> {
    let number = if typed.is_empty() { Ok(1) } else { typed.parse::<usize>() };
    let Ok(number) = number else { return connect::parse_ticket(typed) };
    let Some(notice) = number.checked_sub(1).and_then(|at| found.get(at)) else {
        return Err(AppError::usage(format!("there is no game {number}"))
            .hint(format!("type a number from 1 to {}", found.len())));
    };
    notice.ticket.clone().ok_or_else(|| {
        AppError::failure(format!("the game of {} is seen, but not open to all of this network", notice.host))
            .hint(format!("ask for its ticket, or for `{}`", command_words(notice.kind).2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_notices() -> Vec<LanGame> {
        let notice = |game: &str, host: &str, ticket: Option<&str>| LanGame {
            kind: GameKind::SharedMachine,
            game: game.into(),
            host: host.into(),
            ticket: ticket.and_then(|text| text.parse().ok()),
        };
        vec![notice("Tennis", "Ann", Some("udp://a:1#x")), notice("Chess for two", "Bob", None)]
    }

    #[test]
    fn list_shows_games_and_how_to_join() {
        let shown = format_games(&two_notices());
        assert_eq!(
            shown,
            "  1  Tennis, offered by Ann         open to this network\n  \
               2  Chess for two, offered by Bob  ask the host for the ticket\n"
        );
    }

    #[test]
    fn choice_is_a_number_or_a_ticket() {
        let (all, text) = (two_notices(), |ticket: Ticket| ticket.to_string());
        assert_eq!(parse_choice(&all, "").map(text).unwrap(), "udp://a:1#x");
        assert_eq!(parse_choice(&all, "1").map(text).unwrap(), "udp://a:1#x");
        assert_eq!(parse_choice(&all, "udp://b:2#y").map(text).unwrap(), "udp://b:2#y");
        let why = |typed| parse_choice(&all, typed).unwrap_err();
        assert!(why("2").to_string().contains("Bob") && why("2").exit_code() == 1);
        assert!(why("0").exit_code() == 2 && why("3").to_string().contains("from 1 to 2") && why("x").exit_code() == 2);
    }
}
