//! `coplay maze join --world`: a maze that several servers keep, and a player on the nearest of them.

mod graph;
mod link;
mod news;
mod play;
mod table;

use coplay_maze::{Avatar, Ninja};
use coplay_net::clock;
use coplay_net::ticket::Ticket;

use super::look;
use crate::cli::maze_online::Join;
use crate::front;
use crate::meet;
use crate::net::name;
use crate::run::{front_for, settings};
use crate::seat::Seat;
use crate::summary::Summary;
use crate::trouble::Trouble;
use link::Link;

/// Somebody outside who wants us to end does not wait longer than this, in milliseconds.
const LOOK_MS: i64 = 20;

/// Joins a world, and plays until it is over.
pub(super) fn join(args: &Join) -> Result<Summary, Trouble> {
    let part = &args.part;
    let (front, config) = (front_for(&part.show())?, settings(&part.show())?);
    let tickets = tickets(&args.world)?;
    crate::stop::listen();
    let seat = Seat::choose(None, &tickets[0].seat_group())?;
    let line = meet::call(&tickets[0], seat.identity.clone(), args.relay.clone())?;
    let mut link = Link::new(line, &tickets[1..], name(part.name.as_deref()), part.impair.as_ref())?;
    if !link.enter()? {
        return Ok(Summary::default());
    }
    let played = match front {
        None => software(&mut link, part.seconds).map(|()| vec![]),
        Some(front) => {
            front::show(front, &look(), &config, |stage| play::play(stage, &config, &mut link, part.seconds))
        }
    };
    link.leave();
    match played {
        Ok(notes) => Ok(link.summary().with_notes(notes)),
        // However it ended, what it came to is said.
        Err(trouble) => {
            crate::out(&link.summary().to_string());
            Err(trouble)
        }
    }
}

/// All of them lead to servers of one world.
fn tickets(texts: &[String]) -> Result<Vec<Ticket>, Trouble> {
    let tickets: Vec<Ticket> = texts.iter().map(|text| meet::read_ticket(text)).collect::<Result<_, _>>()?;
    if tickets.windows(2).any(|pair| pair[0].seat_group() != pair[1].seat_group()) {
        return Err(Trouble::misuse("these are no servers of one world").hint(
            "give what coplay world serve shows: either all of them as udp://HOST:PORT#SECRET, with one secret, or all as coplay:…",
        ));
    }
    Ok(tickets)
}

/// Nobody looks, so software plays, and what happens is told in lines.
fn software(link: &mut Link, seconds: Option<u32>) -> Result<(), Trouble> {
    let end = seconds.map(|seconds| clock::now() + coplay::time::TimeDelta::from_secs(seconds.into()));
    let mut ninja = Ninja::new(u64::from_le_bytes(coplay_net::key::random_bytes()));
    let mut was_silent = false;
    eprintln!("we are in: {}", link.status());
    while !crate::stop::is_asked() && end.is_none_or(|end| clock::now() < end) {
        let now = clock::now();
        let client = &mut link.client;
        if let (Some(rules), Some(me), Some(tick)) = (client.rules(), client.avatar(), client.tick(now)) {
            let others: Vec<(_, Avatar)> = client.others().map(|(entity, avatar)| (entity, avatar.clone())).collect();
            let controls = ninja.choose_controls(tick, rules, me, &others);
            client.set_controls(now, controls);
        }
        link.exchange(now + coplay::time::TimeDelta::from_millis(LOOK_MS))?;
        let is_silent = link.silence().is_some();
        if is_silent && !was_silent {
            eprintln!("no server is heard");
        }
        was_silent = is_silent;
        link.news().iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(())
}
