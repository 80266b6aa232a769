//! Games in the local network: advertises the game of this site, and lets the user choose among the games of others.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use coplay_net::lan::{self, GameKind, LanAdvertisement, LanGame};
use coplay_net::ticket::Ticket;
use coplay_shell::error::AppError;

use crate::cli::net::LanVisibility;
use crate::connect;

/// Time for which the program waits for advertisements of other computers.
const DISCOVERY_TIME: Duration = Duration::from_millis(2_500);

/// Advertises the game of this site in the local network until the returned value is dropped. `visibility` decides
/// whether the game is visible, and whether the advertisement contains the ticket. If advertising fails, prints a note
/// and returns `None`.
pub(crate) fn announce_game(
    kind: GameKind,
    visibility: LanVisibility,
    (game, host): (&str, &str),
    ticket: &Ticket,
) -> Option<LanAdvertisement> {
    let ticket = match visibility {
        LanVisibility::Hide => return None,
        LanVisibility::See => None,
        LanVisibility::Join => Some(ticket.clone()),
    };
    let advertisement = lan::advertise(&LanGame { kind, game: game.into(), host: host.into(), ticket });
    advertisement.inspect_err(|error| eprintln!("note: cannot announce the game in the local network: {error}")).ok()
}

/// Parses the ticket `text`; without one, lets the user choose a game of the local network. If stdin or stderr is not a
/// terminal, the games are only listed, and the result is `None`. `command` is the command that the user typed, for
/// hints.
pub(crate) fn choose_ticket(kind: GameKind, command: &str, text: Option<&str>) -> Result<Option<Ticket>, AppError> {
    if let Some(text) = text {
        return connect::parse_ticket(text).map(Some);
    }
    let (thing, _) = kind_words(kind);
    let hint = || format!("give the ticket that the host shows, as in `{command} 'TICKET'`");
    eprintln!("searching for {thing}s in the local network ...");
    let found = lan::browse(kind, DISCOVERY_TIME, || true)
        .map_err(|error| AppError::failure(format!("cannot search the local network: {error}")).hint(hint()))?;
    if found.is_empty() {
        return Err(AppError::failure(format!("found no {thing} in the local network")).hint(hint()));
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        coplay_shell::print_stdout(&format_games(&found));
        return Ok(None);
    }
    eprint!("{}", format_games(&found));
    prompt_choice(&found).map(Some)
}

/// Returns the noun for a game of this kind, and the command that opens it to the local network.
fn kind_words(kind: GameKind) -> (&'static str, &'static str) {
    match kind {
        GameKind::SharedMachine => ("game", "coplay host --lan join"),
        GameKind::Maze => ("maze", "coplay maze host --lan join"),
    }
}

/// Formats one line per game, with a number to choose it by.
fn format_games(found: &[LanGame]) -> String {
    let name = |game: &LanGame| format!("{}, hosted by {}", game.game, game.host);
    let width = found.iter().map(|game| name(game).chars().count()).max().unwrap_or(0);
    let line = |(index, game): (usize, &LanGame)| {
        let access = if game.ticket.is_some() { "open to the local network" } else { "ask the host for the ticket" };
        format!("{:>3}  {:<width$}  {access}\n", index + 1, name(game))
    };
    found.iter().enumerate().map(line).collect()
}

fn prompt_choice(found: &[LanGame]) -> Result<Ticket, AppError> {
    eprint!("type the number of a game [1]: ");
    // A prompt that cannot be printed is not an error.
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    if !matches!(std::io::stdin().read_line(&mut line), Ok(1..)) {
        return Err(
            AppError::usage("no game was chosen").hint("run the same command again, and type the number of a game")
        );
    }
    parse_choice(found, line.trim())
}

/// Parses the user's choice: a number, nothing for the first game, or a ticket.
fn parse_choice(found: &[LanGame], typed: &str) -> Result<Ticket, AppError> {
    let number = if typed.is_empty() { Ok(1) } else { typed.parse::<usize>() };
    let Ok(number) = number else { return connect::parse_ticket(typed) };
    let Some(game) = number.checked_sub(1).and_then(|index| found.get(index)) else {
        return Err(AppError::usage(format!("there is no game {number}"))
            .hint(format!("run the same command again, and type a number from 1 to {}", found.len())));
    };
    game.ticket.clone().ok_or_else(|| {
        AppError::failure(format!("the game of {} needs a ticket", game.host))
            .hint(format!("ask the host for the ticket, or to start with `{}`", kind_words(game.kind).1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_games() -> Vec<LanGame> {
        let lan_game = |game: &str, host: &str, ticket: Option<&str>| LanGame {
            kind: GameKind::SharedMachine,
            game: game.into(),
            host: host.into(),
            ticket: ticket.and_then(|text| text.parse().ok()),
        };
        vec![lan_game("Tennis", "Ann", Some("udp://a:1#x")), lan_game("Chess for two", "Bob", None)]
    }

    #[test]
    fn list_shows_games_and_how_to_join() {
        let shown = format_games(&two_games());
        assert_eq!(
            shown,
            "  1  Tennis, hosted by Ann         open to the local network\n  \
               2  Chess for two, hosted by Bob  ask the host for the ticket\n"
        );
    }

    #[test]
    fn choice_is_a_number_or_a_ticket() {
        let (all, text) = (two_games(), |ticket: Ticket| ticket.to_string());
        assert_eq!(parse_choice(&all, "").map(text).unwrap(), "udp://a:1#x");
        assert_eq!(parse_choice(&all, "1").map(text).unwrap(), "udp://a:1#x");
        assert_eq!(parse_choice(&all, "udp://b:2#y").map(text).unwrap(), "udp://b:2#y");
        let error = |typed| parse_choice(&all, typed).unwrap_err();
        assert!(error("2").to_string().contains("Bob") && error("2").exit_code() == 1);
        assert!(error("0").exit_code() == 2 && error("3").to_string().contains("from 1 to 2"));
        assert_eq!(error("x").exit_code(), 2);
    }
}
