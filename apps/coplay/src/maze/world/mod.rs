//! `coplay maze join --world`: joins a maze that mirrored servers run. The client plays on one of these servers and may
//! move to another one.

mod notices;
mod play;
mod score_table;
mod server_history;
mod server_link;

use coplay_maze::{Avatar, Ninja};
use coplay_net::clock;
use coplay_net::ticket::Ticket;
use coplay_shell::error::AppError;

use super::display_options;
use crate::cli::maze_online::MazeJoinArgs;
use crate::connect;
use crate::display_args::{frontend_for, load_config};
use crate::frontend;
use crate::net::player_name;
use crate::seat_key::SeatKey;
use crate::summary::Summary;
use server_link::ServerLink;

/// Interval at which a headless run chooses its buttons and checks for stop signals, in milliseconds.
const POLL_INTERVAL_MS: i64 = 20;

/// Joins a world and plays until the time is up or the user quits. If the game ends with an error, prints the summary
/// and returns the error.
pub(super) fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let player = &args.player;
    let (frontend_kind, config) = (frontend_for(&player.display_args())?, load_config(&player.display_args())?);
    let tickets = parse_tickets(&args.world)?;
    crate::signals::install_handler();
    let seat = SeatKey::choose(None, &tickets[0].seat_group())?;
    let connection = connect::open_for_ticket(&tickets[0], seat.identity.clone(), args.relay.clone())?;
    let mut link =
        ServerLink::new(connection, &tickets[1..], player_name(player.name.as_deref()), player.impair.as_ref())?;
    if !link.wait_until_joined()? {
        return Ok(Summary::default());
    }
    let played = match frontend_kind {
        None => run_ninja(&mut link, player.seconds).map(|()| vec![]),
        Some(frontend_kind) => frontend::run_with_frontend(frontend_kind, &display_options(), &config, |ui| {
            play::play(ui, &config, &mut link, player.seconds)
        }),
    };
    link.leave();
    match played {
        Ok(notes) => Ok(link.summary().with_notes(notes)),
        Err(error) => {
            coplay_shell::print_stdout(&link.summary().to_string());
            Err(error)
        }
    }
}

/// Parses the tickets. Fails if one is invalid, or if their secrets or tokens differ, as those of different worlds do.
fn parse_tickets(texts: &[String]) -> Result<Vec<Ticket>, AppError> {
    let tickets: Vec<Ticket> = texts.iter().map(|text| connect::parse_ticket(text)).collect::<Result<_, _>>()?;
    if tickets.windows(2).any(|pair| pair[0].seat_group() != pair[1].seat_group()) {
        return Err(AppError::usage("the values of --world belong to different worlds").hint(
            "give tickets that `coplay world serve` prints: all udp://HOST:PORT#SECRET with the same secret, \
             or all coplay:…",
        ));
    }
    Ok(tickets)
}

/// Plays without a front end: a ninja controls the avatar, and notices are printed to stderr.
fn run_ninja(link: &mut ServerLink, seconds: Option<u32>) -> Result<(), AppError> {
    let end = seconds.map(|seconds| clock::now() + coplay::time::TimeDelta::from_secs(seconds.into()));
    let mut ninja = Ninja::new(u64::from_le_bytes(coplay_net::key::random_bytes()));
    let mut was_silent = false;
    eprintln!("joined the world: {}", link.status());
    while !crate::signals::is_stop_requested() && end.is_none_or(|end| clock::now() < end) {
        let now = clock::now();
        let client = &mut link.client;
        if let (Some(rules), Some(own_avatar), Some(tick)) = (client.rules(), client.avatar(), client.tick(now)) {
            let others: Vec<(_, Avatar)> = client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
            let controls = ninja.choose_controls(tick, rules, own_avatar, &others);
            client.set_controls(now, controls);
        }
        link.exchange(now + coplay::time::TimeDelta::from_millis(POLL_INTERVAL_MS))?;
        let is_silent = link.silence().is_some();
        if is_silent && !was_silent {
            eprintln!("no server has responded for 1.5 s");
        }
        was_silent = is_silent;
        link.notices().iter().for_each(|notice| eprintln!("{notice}"));
    }
    Ok(())
}
