//! `coplay maze host` and `coplay maze join`: a maze of equal peers without a server.

mod errors;
mod mesh_link;
mod report;
mod stillness;
mod trace_file;

use std::path::Path;
use std::sync::Arc;

use coplay::peer_world::WorldSiteId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};
use coplay_net::clock;
use coplay_net::lan::GameKind;
use coplay_net::mesh::{Mesh, MeshJoinConfig, MeshOptions, TransportWithIncoming};
use coplay_shell::error::AppError;

use super::{advance_until, display_options, play, random_seed};
use crate::cli::maze_online::{MazeHostArgs, MazeJoinArgs, MazePlayerArgs, MulticastArg};
use crate::cli::net::LanVisibility;
use crate::config::UserSettings;
use crate::connect::{self, Connection};
use crate::display_args::{frontend_for, load_config};
use crate::frontend::{self, FrontendKind};
use crate::hud::Invitation;
use crate::net::{JOIN_TIMEOUT, lan, player_name, print_ticket, transport_kind, with_impairment};
use crate::seat_key::SeatKey;
use crate::summary::Summary;
use mesh_link::MeshLink;
use stillness::{QUIET_TIME, StillnessDetector};
use trace_file::TraceFile;

/// Command with which another player joins; the ticket follows it.
const JOIN_COMMAND: &str = "coplay maze join";
/// Name of the game in announcements on the local network.
const LAN_GAME_NAME: &str = "Maze";
/// Maximum time for which a headless run waits at its end for avatars of other sites to stop.
const MAX_QUIET_WAIT: TimeDelta = TimeDelta::from_secs(10);
/// Interval between checks whether the maze is quiet.
const QUIET_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(100);

/// Runs `coplay maze host`: opens a mesh, prints its ticket and plays until the end.
pub(super) fn host(args: &MazeHostArgs) -> Result<Summary, AppError> {
    let settings = maze_settings(args)?;
    let run = MazeRun::prepare(&args.player)?;
    let transport_kind = transport_kind(args.udp.as_deref(), args.secret.as_deref(), args.relay.as_ref())?;
    let seat = SeatKey::choose(None, &transport_kind.seat_group())?;
    let connection = transport_kind.open(seat.identity.clone())?;
    let ticket = (connection.own_ticket)();
    let options = run.mesh_options(args.multicast);
    print_ticket::warn_if_no_network(&*connection.transport, args.udp.as_deref());
    let mesh = Mesh::create(mesh_wire(connection, &args.player)?, &settings.to_bytes(), &options);
    let mesh = mesh.map_err(|error| errors::to_app_error(&error))?;
    let default_visibility = if args.player.display.headless { LanVisibility::Hide } else { LanVisibility::See };
    let _announcement = lan::announce_game(
        GameKind::Maze,
        args.lan.unwrap_or(default_visibility),
        (LAN_GAME_NAME, &options.name),
        &ticket,
    );
    let ticket = ticket.to_string();
    print_ticket::print_ticket(&ticket, &[("to join, type:", join_command(&ticket))]);
    run.run(mesh, ticket, true)
}

/// Returns the settings of the maze from the flags. Invalid settings fail here, before a ticket is printed.
fn maze_settings(args: &MazeHostArgs) -> Result<MazeSettings, AppError> {
    let seed = args.seed.unwrap_or_else(random_seed);
    let settings =
        MazeSettings { seed, cells_per_side: args.side, bucket_ticks: args.bucket, playout_delay_ticks: args.delay };
    if settings.is_valid() { Ok(settings) } else { Err(errors::invalid_settings_error()) }
}

/// Runs `coplay maze join`: joins the mesh of a ticket and plays until the end.
pub(super) fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let Some(ticket) = lan::choose_ticket(GameKind::Maze, JOIN_COMMAND, args.ticket.as_deref())? else {
        return Ok(Summary::default());
    };
    let run = MazeRun::prepare(&args.player)?;
    let seat = SeatKey::choose(None, &ticket.seat_group())?;
    connect::print_dialing(std::slice::from_ref(&ticket));
    let connection = connect::open_for_ticket(&ticket, seat.identity.clone(), args.relay.clone())?;
    let join_config = MeshJoinConfig {
        addrs: connection.host_addrs.clone(),
        expected_peer: connection.expected_key,
        timeout: JOIN_TIMEOUT,
    };
    let own_ticket = Arc::clone(&connection.own_ticket);
    let options = run.mesh_options(args.multicast);
    let mesh = Mesh::join(mesh_wire(connection, &args.player)?, &join_config, &options, || {
        !crate::signals::is_stop_requested()
    });
    let Some(mesh) = mesh.map_err(|error| errors::to_app_error(&error))? else { return Ok(Summary::default()) };
    let own_ticket = own_ticket().to_string();
    eprintln!("joined the maze; other players can join with:   {}", join_command(&own_ticket));
    run.run(mesh, own_ticket, false)
}

fn join_command(ticket: &str) -> String {
    format!("{JOIN_COMMAND} '{ticket}'")
}

fn mesh_wire(connection: Connection, args: &MazePlayerArgs) -> Result<TransportWithIncoming, AppError> {
    let transport = with_impairment(connection.transport, args.impair.as_ref())?;
    Ok(TransportWithIncoming { transport, incoming: connection.incoming, incoming_sender: connection.incoming_sender })
}

/// Run in a maze with other sites. Errors in flags and local files are found before any connection is made.
struct MazeRun<'a> {
    args: &'a MazePlayerArgs,
    name: String,
    frontend: Option<FrontendKind>,
    config: UserSettings,
    trace: Option<TraceFile>,
}

impl<'a> MazeRun<'a> {
    fn prepare(args: &'a MazePlayerArgs) -> Result<Self, AppError> {
        let (frontend_kind, config) = (frontend_for(&args.display_args())?, load_config(&args.display_args())?);
        let trace = args.trace.as_deref().map(TraceFile::create).transpose()?;
        args.stats.as_deref().map(report::check_writable).transpose()?;
        crate::signals::install_handler();
        Ok(Self { args, name: player_name(args.name.as_deref()), frontend: frontend_kind, config, trace })
    }

    fn mesh_options(&self, multicast: MulticastArg) -> MeshOptions {
        MeshOptions { name: self.name.clone(), multicast: multicast.to_config(), impairment: self.args.impair.clone() }
    }

    /// Plays in the mesh until the time is up or the user quits, leaves, and returns the summary.
    fn run(self, mesh: Mesh, ticket: String, is_founder: bool) -> Result<Summary, AppError> {
        let Some(settings) = MazeSettings::from_bytes(mesh.settings()) else {
            mesh.leave();
            return Err(errors::unknown_settings_error());
        };
        let player_name = self.frontend.is_some().then_some(self.name.as_str());
        let (site, avatars) = (WorldSiteId(mesh.site()), (player_name, self.args.ninjas()));
        let mut game = MazeSite::new(clock::now(), site, is_founder, &settings, self.args.send_policy(), avatars)
            .map_err(|error| {
                AppError::failure(format!("cannot create the maze: {error}")).hint("leave out --rate and --reckon")
            })?;
        game.set_name(&self.name);
        if self.trace.is_some() {
            game.start_trace(clock::now());
        }
        let invitation = Invitation { ticket, command: JOIN_COMMAND, opens_immediately: is_founder };
        let mut link = MeshLink::new(mesh, &settings, self.trace, invitation, self.frontend.is_none());
        let played = match self.frontend {
            None => run_ninjas(&mut game, &mut link, self.args.seconds).map(|()| vec![]),
            Some(frontend_kind) => frontend::run_with_frontend(frontend_kind, &display_options(), &self.config, |ui| {
                play(ui, &self.config, &mut game, &mut link, self.args.seconds)
            }),
        };
        // Leaves the mesh also after an error.
        let finished = finish(game, link, self.args.stats.as_deref());
        let notes = played?;
        finished.map(|summary| summary.with_notes(notes))
    }
}

/// Lets ninjas play until a stop signal or, with `seconds`, until the time is up. The ninjas stop [`QUIET_TIME`] before
/// that time, and the site stays until the avatars of all other sites have stopped, too, at most [`MAX_QUIET_WAIT`]
/// longer. So the last scores can reach all sites.
fn run_ninjas(game: &mut MazeSite, link: &mut MeshLink, seconds: Option<u32>) -> Result<(), AppError> {
    let Some(seconds) = seconds else { return advance_until(game, link, Instant::FAR_FUTURE) };
    let end = clock::now() + TimeDelta::from_secs(seconds.into());
    advance_until(game, link, end - QUIET_TIME)?;
    game.release_controls();
    let mut quiet = StillnessDetector::new(clock::now());
    while !crate::signals::is_stop_requested() && clock::now() < end + MAX_QUIET_WAIT {
        let now = clock::now();
        quiet.observe_game(now, game);
        if now >= end && quiet.is_quiet(now) {
            break;
        }
        advance_until(game, link, now + QUIET_CHECK_INTERVAL)?;
    }
    Ok(())
}

/// Writes the final scores into the trace, leaves the mesh, writes the statistics, and returns the summary.
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
