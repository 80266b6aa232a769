//! `coplay maze`: a maze game among peers, or on the servers of a world. [`play()`] is the interactive loop of a game
//! without servers; [`MazeNet`] is the network below it.

pub mod controls;
pub mod net;
mod online;
mod peer_history;
mod play;
pub mod renderer;
pub mod scoreboard_view;
#[cfg(test)]
mod test_pair;
mod world;

use std::time::{SystemTime, UNIX_EPOCH};

use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};
use coplay_shell::error::AppError;

use crate::cli::maze as cli;
use crate::cli::maze_online::MazeJoinArgs;
use crate::connect;
use crate::display_args::{frontend_for, load_config};
use crate::frontend::{self, DisplayOptions};
use crate::summary::Summary;
pub use net::{MazeNet, SoloNet};
pub use play::{advance_until, play};
use scoreboard_view::ScoreboardView;

/// Length of a headless solo game without `--seconds`, in seconds.
const HEADLESS_SECONDS: u32 = 60;
/// Site id of the only site in a solo game.
const SOLO_SITE: WorldSiteId = WorldSiteId(1);
/// Number of possible random seeds: few enough that a seed is short to pass on by voice.
const RANDOM_SEED_LIMIT: u64 = 10_000;

/// Runs a subcommand of `coplay maze`.
pub fn run(args: &cli::MazeArgs) -> Result<Summary, AppError> {
    match &args.command {
        cli::MazeCommand::Play(args) => play_alone(args),
        cli::MazeCommand::Host(args) => online::host(args),
        cli::MazeCommand::Join(args) => join(args),
        cli::MazeCommand::Drift(args) => Err(args.exec("coplay-lab", &["drift"])),
    }
}

/// Joins a maze of peers, or a world if `--world` is given. A signal before the maze was joined is an error.
fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let summary = if args.world.is_empty() { online::join(args)? } else { join_server_world(args)? };
    match summary.is_empty() && crate::signals::is_stop_requested() {
        true => Err(AppError::interrupted("interrupted before joining a maze").hint("run the same command again")),
        false => Ok(summary),
    }
}

fn join_server_world(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    // If no front end is available, the command fails before it prints the addresses that are dialed.
    frontend_for(&args.player.display_args())?;
    if let Ok(tickets) = args.world.iter().map(|text| connect::parse_ticket(text)).collect::<Result<Vec<_>, _>>() {
        connect::print_dialing(&tickets);
    }
    world::join(args)
}

fn play_alone(args: &cli::MazePlayArgs) -> Result<Summary, AppError> {
    let frontend_kind = frontend_for(&args.display)?;
    let config = load_config(&args.display)?;
    let settings = solo_settings(&args.layout);
    crate::signals::install_handler();
    let Some(frontend_kind) = frontend_kind else { return run_headless(args, &settings) };
    frontend::run_with_frontend(frontend_kind, &display_options(), &config, |ui| {
        let mut net = SoloNet::new();
        let mut game = open_game(net.now(), &settings, Some("you"), args.layout.ninjas)?;
        let started = net.now();
        let notes = play(ui, &config, &mut game, &mut net, args.seconds)?;
        Ok(summary(&game, true, net.now() - started).with_notes(notes))
    })
}

/// Runs a game of ninjas alone in virtual time, as fast as possible.
fn run_headless(args: &cli::MazePlayArgs, settings: &MazeSettings) -> Result<Summary, AppError> {
    let mut net = SoloNet::in_virtual_time();
    let mut game = open_game(net.now(), settings, None, args.layout.ninjas)?;
    let started = net.now();
    let end = started + TimeDelta::from_secs(args.seconds.unwrap_or(HEADLESS_SECONDS).into());
    advance_until(&mut game, &mut net, end)?;
    Ok(summary(&game, false, net.now() - started))
}

fn open_game(now: Time, settings: &MazeSettings, player_name: Option<&str>, ninjas: u8) -> Result<MazeSite, AppError> {
    MazeSite::new(now, SOLO_SITE, true, settings, UpdatePolicy::default(), (player_name, ninjas)).map_err(|error| {
        AppError::failure(format!("cannot create the maze: {error}"))
            .hint("run `coplay maze play` without further options")
    })
}

/// Returns the settings of a solo maze with this side and seed, or a random seed; the rest are the defaults.
pub fn solo_settings(layout: &cli::MazeLayoutArgs) -> MazeSettings {
    MazeSettings {
        seed: layout.seed.unwrap_or_else(random_seed),
        cells_per_side: layout.side,
        ..MazeSettings::default()
    }
}

fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros()) % RANDOM_SEED_LIMIT
}

/// Returns the title and the picture size of a maze, for the front end.
pub fn display_options() -> DisplayOptions {
    // Fewer rows than are drawn: `--scale` is in pixels of old machines, and the pixels of this view are smaller.
    let (rows, aspect) = (renderer::VIEW_HEIGHT * 2 / 3, renderer::VIEW_WIDTH as f32 / renderer::VIEW_HEIGHT as f32);
    DisplayOptions { title: "Maze".into(), pictures: (1, rows, aspect), ..DisplayOptions::default() }
}

/// Returns the summary of a game: its maze, its length, and the scores with the best first. `has_human` states whether
/// a person plays the site's first avatar.
pub fn summary(game: &MazeSite, has_human: bool, played: TimeDelta) -> Summary {
    let mut summary = Summary::default();
    let maze = &game.rules().maze;
    summary.add_row("maze", maze.seed().to_string(), &format!("seed; {0} × {0} cells", maze.cells_per_side()));
    summary.add_row("played", format!("{:.1} s", played.as_secs_f64()), "");
    for (at, row) in ScoreboardView::new(has_human).rows(game).into_iter().enumerate() {
        summary.add_row(if at == 0 { "score" } else { "" }, scoreboard_view::format_score(row.score), &row.name);
    }
    summary
}
