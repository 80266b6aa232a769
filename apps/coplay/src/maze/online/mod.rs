//! `coplay maze host` and `coplay maze join`: a maze with others, in which nobody is the server.

mod errors;
mod mesh_link;
mod quiet;
mod report;
mod trace_file;

use std::path::Path;
use std::sync::Arc;

use coplay::peer_world::WorldSiteId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};
use coplay_net::clock;
use coplay_net::lan::GameKind;
use coplay_net::mesh::{Mesh, MeshJoinConfig, MeshOptions, MeshTransport};

use super::{advance_until, display_options, play, random_seed};
use crate::cli::maze_online::{MazeHostArgs, MazeJoinArgs, MazePlayerArgs, MulticastArg};
use crate::cli::net::LanVisibility;
use crate::config::Config;
use crate::connect::{self, Connection};
use crate::error::AppError;
use crate::frontend::{self, FrontendKind};
use crate::hud::Invitation;
use crate::net::{JOIN_TIMEOUT, announce, lan, player_name, transport_kind, with_impairment};
use crate::run::{frontend_for, load_config};
use crate::seat_key::SeatKey;
use crate::summary::Summary;
use mesh_link::MeshLink;
use quiet::{QUIET_TIME, QuietDetector};
use trace_file::TraceFile;

/// What a friend types to join.
const JOIN_COMMAND: &str = "coplay maze join";
/// What is offered to others, where that has a name.
const LAN_GAME_NAME: &str = "Maze";
/// Ninjas of others that do not stop are waited for no longer than this when our time is up.
const MAX_QUIET_WAIT: TimeDelta = TimeDelta::from_secs(10);
/// It is looked this often whether everybody stands still.
const QUIET_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// `coplay maze host`.
pub(super) fn host(args: &MazeHostArgs) -> Result<Summary, AppError> {
    let terms = maze_settings(args)?;
    let visit = MazeRun::prepare(&args.player)?;
    let way = transport_kind(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let seat = SeatKey::choose(None, &way.seat_group())?;
    let line = way.open(seat.identity.clone())?;
    let ticket = (line.own_ticket)();
    let manner = visit.mesh_options(args.multicast);
    announce::warn_if_no_network(&*line.transport, args.udp.as_deref());
    let group = Mesh::create(mesh_wire(line, &args.player)?, &terms.to_bytes(), &manner);
    let group = group.map_err(|failure| errors::to_app_error(&failure))?;
    let usual = if args.player.display.headless { LanVisibility::Hide } else { LanVisibility::See };
    let _sign = lan::announce_game(GameKind::Maze, args.lan.unwrap_or(usual), (LAN_GAME_NAME, &manner.name), &ticket);
    let ticket = ticket.to_string();
    announce::print_ticket(&ticket, &[("to join, a friend types:", join_command(&ticket))]);
    visit.run(group, ticket, true)
}

/// What all who come agree on. Nobody is asked into a maze that cannot be.
fn maze_settings(args: &MazeHostArgs) -> Result<MazeSettings, AppError> {
    let seed = args.seed.unwrap_or_else(random_seed);
    let terms =
        MazeSettings { seed, cells_per_side: args.side, bucket_ticks: args.bucket, playout_delay_ticks: args.delay };
    if terms.is_valid() { Ok(terms) } else { Err(errors::invalid_settings_error()) }
}

/// `coplay maze join`.
pub(super) fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let Some(ticket) = lan::choose_ticket(GameKind::Maze, args.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let visit = MazeRun::prepare(&args.player)?;
    let seat = SeatKey::choose(None, &ticket.seat_group())?;
    connect::print_dialing(std::slice::from_ref(&ticket));
    let line = connect::open_for_ticket(&ticket, seat.identity.clone(), args.relay.clone())?;
    let approach =
        MeshJoinConfig { addrs: line.host_addrs.clone(), expected_peer: line.expected_key, timeout: JOIN_TIMEOUT };
    let own = Arc::clone(&line.own_ticket);
    let manner = visit.mesh_options(args.multicast);
    let group = Mesh::join(mesh_wire(line, &args.player)?, &approach, &manner, || !crate::signals::is_stop_requested());
    let Some(group) = group.map_err(|failure| errors::to_app_error(&failure))? else { return Ok(Summary::default()) };
    let own = own().to_string();
    eprintln!("we are in; others can also come in by us:   {}", join_command(&own));
    visit.run(group, own, false)
}

fn join_command(ticket: &str) -> String {
    format!("{JOIN_COMMAND} '{ticket}'")
}

fn mesh_wire(line: Connection, part: &MazePlayerArgs) -> Result<MeshTransport, AppError> {
    let transport = with_impairment(line.transport, part.impair.as_ref())?;
    Ok(MeshTransport { transport, incoming: line.incoming, incoming_sender: line.incoming_sender })
}

/// Being in a maze with others. Whatever can be wrong on this side is found before anybody is called.
struct MazeRun<'a> {
    args: &'a MazePlayerArgs,
    name: String,
    frontend: Option<FrontendKind>,
    config: Config,
    trace: Option<TraceFile>,
}

impl<'a> MazeRun<'a> {
    fn prepare(part: &'a MazePlayerArgs) -> Result<Self, AppError> {
        let (front, config) = (frontend_for(&part.display_args())?, load_config(&part.display_args())?);
        let trace = part.trace.as_deref().map(TraceFile::create).transpose()?;
        part.stats.as_deref().map(report::check_writable).transpose()?;
        crate::signals::install_handler();
        Ok(Self { args: part, name: player_name(part.name.as_deref()), frontend: front, config, trace })
    }

    fn mesh_options(&self, multicast: MulticastArg) -> MeshOptions {
        MeshOptions { name: self.name.clone(), multicast: multicast.to_config(), impairment: self.args.impair.clone() }
    }

    /// Plays until it is over, and says what it came to.
    fn run(self, group: Mesh, ticket: String, founder: bool) -> Result<Summary, AppError> {
        let Some(terms) = MazeSettings::from_bytes(group.settings()) else {
            group.leave();
            return Err(errors::unknown_settings_error());
        };
        let person = self.frontend.is_some().then_some(self.name.as_str());
        let (site, who) = (WorldSiteId(group.site()), (person, self.args.ninjas()));
        let mut game = MazeSite::new(clock::now(), site, founder, &terms, self.args.send_policy(), who)
            .map_err(|error| AppError::failure(format!("there can be no such maze: {error}")))?;
        game.set_name(&self.name);
        if self.trace.is_some() {
            game.start_trace(clock::now());
        }
        let invitation = Invitation { ticket, command: JOIN_COMMAND, opens_immediately: founder };
        let mut link = MeshLink::new(group, &terms, self.trace, invitation, self.frontend.is_none());
        let played = match self.frontend {
            None => run_ninjas(&mut game, &mut link, self.args.seconds).map(|()| vec![]),
            Some(front) => frontend::run_with_frontend(front, &display_options(), &self.config, |stage| {
                play(stage, &self.config, &mut game, &mut link, self.args.seconds)
            }),
        };
        // Whatever went wrong, the others are told that we leave.
        let finished = finish(game, link, self.args.stats.as_deref());
        let notes = played?;
        finished.map(|summary| summary.with_notes(notes))
    }
}

/// Lets ninjas play until the time is up. So that everybody ends with the same score they stop before that, and are there until nobody else
/// moves either.
fn run_ninjas(game: &mut MazeSite, link: &mut MeshLink, seconds: Option<u32>) -> Result<(), AppError> {
    let Some(seconds) = seconds else { return advance_until(game, link, Instant::FAR_FUTURE) };
    let end = clock::now() + TimeDelta::from_secs(seconds.into());
    advance_until(game, link, end - QUIET_TIME)?;
    game.release_controls();
    let mut stillness = QuietDetector::new(clock::now());
    while !crate::signals::is_stop_requested() && clock::now() < end + MAX_QUIET_WAIT {
        let now = clock::now();
        stillness.observe_game(now, game);
        if now >= end && stillness.is_quiet(now) {
            break;
        }
        advance_until(game, link, now + QUIET_CHECK_INTERVAL)?;
    }
    Ok(())
}

/// Says goodbye, and what it came to.
fn finish(mut game: MazeSite, mut link: MeshLink, stats: Option<&Path>) -> Result<Summary, AppError> {
    game.trace_scores(clock::now());
    let report = link.report(&game);
    let trace = link.leave(&mut game);
    if let Some(path) = stats {
        report.write(path)?;
    }
    trace?;
    Ok(report.summary())
}
