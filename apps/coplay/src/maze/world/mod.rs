//! `coplay maze join --world`: a maze that several servers keep, and a player on the nearest of them.

mod notices;
mod play;
mod score_table;
mod server_history;
mod server_link;

use coplay_maze::{Avatar, Ninja};
use coplay_net::clock;
use coplay_net::ticket::Ticket;

use super::display_options;
use crate::cli::maze_online::MazeJoinArgs;
use crate::connect;
use crate::error::AppError;
use crate::frontend;
use crate::net::player_name;
use crate::run::{frontend_for, load_config};
use crate::seat_key::SeatKey;
use crate::summary::Summary;
use server_link::ServerLink;

/// Somebody outside who wants us to end does not wait longer than this, in milliseconds.
const POLL_INTERVAL_MS: i64 = 20;

/// Joins a world, and plays until it is over.
pub(super) fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let part = &args.player;
    let (front, config) = (frontend_for(&part.display_args())?, load_config(&part.display_args())?);
    let tickets = parse_tickets(&args.world)?;
    crate::signals::install_handler();
    let seat = SeatKey::choose(None, &tickets[0].seat_group())?;
    let line = connect::open_for_ticket(&tickets[0], seat.identity.clone(), args.relay.clone())?;
    let mut link = ServerLink::new(line, &tickets[1..], player_name(part.name.as_deref()), part.impair.as_ref())?;
    if !link.wait_until_joined()? {
        return Ok(Summary::default());
    }
    let played = match front {
        None => run_ninja(&mut link, part.seconds).map(|()| vec![]),
        Some(front) => frontend::run_with_frontend(front, &display_options(), &config, |stage| {
            play::play(stage, &config, &mut link, part.seconds)
        }),
    };
    link.leave();
    match played {
        Ok(notes) => Ok(link.summary().with_notes(notes)),
        // However it ended, what it came to is said.
        Err(trouble) => {
            crate::print_stdout(&link.summary().to_string());
            Err(trouble)
        }
    }
}

/// All of them lead to servers of one world.
fn parse_tickets(texts: &[String]) -> Result<Vec<Ticket>, AppError> {
    let tickets: Vec<Ticket> = texts.iter().map(|text| connect::parse_ticket(text)).collect::<Result<_, _>>()?;
    if tickets.windows(2).any(|pair| pair[0].seat_group() != pair[1].seat_group()) {
        return Err(AppError::usage("these are no servers of one world").hint(
            "give what coplay world serve shows: either all of them as udp://HOST:PORT#SECRET, with one secret, or all as coplay:…",
        ));
    }
    Ok(tickets)
}

/// Nobody looks, so software plays, and what happens is told in lines.
fn run_ninja(link: &mut ServerLink, seconds: Option<u32>) -> Result<(), AppError> {
    let end = seconds.map(|seconds| clock::now() + coplay::time::TimeDelta::from_secs(seconds.into()));
    let mut ninja = Ninja::new(u64::from_le_bytes(coplay_net::key::random_bytes()));
    let mut was_silent = false;
    eprintln!("we are in: {}", link.status());
    while !crate::signals::is_stop_requested() && end.is_none_or(|end| clock::now() < end) {
        let now = clock::now();
        let client = &mut link.client;
        if let (Some(rules), Some(me), Some(tick)) = (client.rules(), client.avatar(), client.tick(now)) {
            let others: Vec<(_, Avatar)> = client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
            let controls = ninja.choose_controls(tick, rules, me, &others);
            client.set_controls(now, controls);
        }
        link.exchange(now + coplay::time::TimeDelta::from_millis(POLL_INTERVAL_MS))?;
        let is_silent = link.silence().is_some();
        if is_silent && !was_silent {
            eprintln!("no server is heard");
        }
        was_silent = is_silent;
        link.notices().iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(())
}
