//! `coplay maze host` and `coplay maze join`: a maze with others, in which nobody is the server.

mod failure;
mod link;
mod report;
mod still;
mod trace;

use std::path::Path;
use std::sync::Arc;

use coplay::peer_world::WorldSiteId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};
use coplay_net::clock;
use coplay_net::lan::GameKind;
use coplay_net::mesh::{Mesh, MeshJoinConfig, MeshOptions, MeshTransport};

use super::{advance_until, any_seed, look, play};
use crate::cli::maze_online::{Host, Join, Multicast, Part};
use crate::cli::net::Lan;
use crate::config::Config;
use crate::desk::Invitation;
use crate::front::{self, Front};
use crate::meet::{self, Line};
use crate::net::{PATIENCE, announce, impaired, lan, name, way};
use crate::run::{front_for, settings};
use crate::seat::Seat;
use crate::summary::Summary;
use crate::trouble::Trouble;
use link::Link;
use still::{QUIET, Stillness};
use trace::TraceFile;

/// What a friend types to join.
const JOIN: &str = "coplay maze join";
/// What is offered to others, where that has a name.
const OFFERED: &str = "Maze";
/// Ninjas of others that do not stop are waited for no longer than this when our time is up.
const LONGEST_WAIT: TimeDelta = TimeDelta::from_secs(10);
/// It is looked this often whether everybody stands still.
const LOOK: TimeDelta = TimeDelta::from_millis(100);

/// `coplay maze host`.
pub(super) fn host(args: &Host) -> Result<Summary, Trouble> {
    let terms = terms(args)?;
    let visit = Visit::prepare(&args.part)?;
    let way = way(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let seat = Seat::choose(None, &way.group())?;
    let line = way.open(seat.identity.clone())?;
    let ticket = (line.ticket)();
    let manner = visit.manner(args.multicast);
    announce::warn_if_alone(&*line.transport, args.udp.as_deref());
    let group = Mesh::create(wire(line, &args.part)?, &terms.to_bytes(), &manner);
    let group = group.map_err(|failure| failure::trouble(&failure))?;
    let usual = if args.part.view.headless { Lan::Hide } else { Lan::See };
    let _sign = lan::tell(GameKind::Maze, args.lan.unwrap_or(usual), (OFFERED, &manner.name), &ticket);
    let ticket = ticket.to_string();
    announce::announce(&ticket, &[("to join, a friend types:", join_command(&ticket))]);
    visit.go_in(group, ticket, true)
}

/// What all who come agree on. Nobody is asked into a maze that cannot be.
fn terms(args: &Host) -> Result<MazeSettings, Trouble> {
    let seed = args.seed.unwrap_or_else(any_seed);
    let terms =
        MazeSettings { seed, cells_per_side: args.side, bucket_ticks: args.bucket, playout_delay_ticks: args.delay };
    if terms.is_valid() { Ok(terms) } else { Err(failure::no_terms()) }
}

/// `coplay maze join`.
pub(super) fn join(args: &Join) -> Result<Summary, Trouble> {
    let Some(ticket) = lan::ticket(GameKind::Maze, args.ticket.as_deref())? else { return Ok(Summary::default()) };
    let visit = Visit::prepare(&args.part)?;
    let seat = Seat::choose(None, &ticket.seat_group())?;
    meet::say_where(std::slice::from_ref(&ticket));
    let line = meet::call(&ticket, seat.identity.clone(), args.relay.clone())?;
    let approach = MeshJoinConfig { addrs: line.places.clone(), expected_peer: line.expect, timeout: PATIENCE };
    let own = Arc::clone(&line.ticket);
    let manner = visit.manner(args.multicast);
    let group = Mesh::join(wire(line, &args.part)?, &approach, &manner, || !crate::stop::is_asked());
    let Some(group) = group.map_err(|failure| failure::trouble(&failure))? else { return Ok(Summary::default()) };
    let own = own().to_string();
    eprintln!("we are in; others can also come in by us:   {}", join_command(&own));
    visit.go_in(group, own, false)
}

fn join_command(ticket: &str) -> String {
    format!("{JOIN} '{ticket}'")
}

fn wire(line: Line, part: &Part) -> Result<MeshTransport, Trouble> {
    let transport = impaired(line.transport, part.impair.as_ref())?;
    Ok(MeshTransport { transport, incoming: line.incoming, incoming_sender: line.queue })
}

/// Being in a maze with others. Whatever can be wrong on this side is found before anybody is called.
struct Visit<'a> {
    part: &'a Part,
    name: String,
    front: Option<Front>,
    config: Config,
    trace: Option<TraceFile>,
}

impl<'a> Visit<'a> {
    fn prepare(part: &'a Part) -> Result<Self, Trouble> {
        let (front, config) = (front_for(&part.show())?, settings(&part.show())?);
        let trace = part.trace.as_deref().map(TraceFile::create).transpose()?;
        part.stats.as_deref().map(report::check).transpose()?;
        crate::stop::listen();
        Ok(Self { part, name: name(part.name.as_deref()), front, config, trace })
    }

    fn manner(&self, multicast: Multicast) -> MeshOptions {
        MeshOptions { name: self.name.clone(), multicast: multicast.wanted(), impairment: self.part.impair.clone() }
    }

    /// Plays until it is over, and says what it came to.
    fn go_in(self, group: Mesh, ticket: String, founder: bool) -> Result<Summary, Trouble> {
        let Some(terms) = MazeSettings::from_bytes(group.settings()) else {
            group.leave();
            return Err(failure::other_terms());
        };
        let person = self.front.is_some().then_some(self.name.as_str());
        let (site, who) = (WorldSiteId(group.site()), (person, self.part.ninjas()));
        let mut game = MazeSite::new(clock::now(), site, founder, &terms, self.part.sending(), who)
            .map_err(|error| Trouble::failure(format!("there can be no such maze: {error}")))?;
        game.set_name(&self.name);
        if self.trace.is_some() {
            game.start_trace(clock::now());
        }
        let invitation = Invitation { ticket, command: JOIN, at_once: founder };
        let mut link = Link::new(group, &terms, self.trace, invitation, self.front.is_none());
        let played = match self.front {
            None => watch_ninjas(&mut game, &mut link, self.part.seconds).map(|()| vec![]),
            Some(front) => front::show(front, &look(), &self.config, |stage| {
                play(stage, &self.config, &mut game, &mut link, self.part.seconds)
            }),
        };
        // Whatever went wrong, the others are told that we leave.
        let finished = finish(game, link, self.part.stats.as_deref());
        let notes = played?;
        finished.map(|summary| summary.with_notes(notes))
    }
}

/// Lets ninjas play until the time is up. So that everybody ends with the same score they stop before that, and are there until nobody else
/// moves either.
fn watch_ninjas(game: &mut MazeSite, link: &mut Link, seconds: Option<u32>) -> Result<(), Trouble> {
    let Some(seconds) = seconds else { return advance_until(game, link, Instant::FAR_FUTURE) };
    let end = clock::now() + TimeDelta::from_secs(seconds.into());
    advance_until(game, link, end - QUIET)?;
    game.release_controls();
    let mut stillness = Stillness::new(clock::now());
    while !crate::stop::is_asked() && clock::now() < end + LONGEST_WAIT {
        let now = clock::now();
        stillness.look(now, game);
        if now >= end && stillness.is_quiet(now) {
            break;
        }
        advance_until(game, link, now + LOOK)?;
    }
    Ok(())
}

/// Says goodbye, and what it came to.
fn finish(mut game: MazeSite, mut link: Link, stats: Option<&Path>) -> Result<Summary, Trouble> {
    game.trace_scores(clock::now());
    let report = link.report(&game);
    let trace = link.leave(&mut game);
    if let Some(path) = stats {
        report.write(path)?;
    }
    trace?;
    Ok(report.summary())
}
