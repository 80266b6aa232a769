//! `coplay maze`: a game without a server. [`play()`] is what a person sees and does; [`MazeNet`] is the way to the others.

pub mod controls;
mod drift;
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

use crate::cli::maze as cli;
use crate::cli::maze_online::MazeJoinArgs;
use crate::connect;
use crate::error::AppError;
use crate::frontend::{self, DisplayOptions};
use crate::run::{frontend_for, load_config};
use crate::summary::Summary;
pub use net::{MazeNet, SoloNet};
pub use play::{advance_until, play};
use scoreboard_view::ScoreboardView;

/// Seconds of a run that does not say how many and that nobody sees.
const HEADLESS_SECONDS: u32 = 60;
/// Who plays alone needs no other number.
const SOLO_SITE: WorldSiteId = WorldSiteId(1);
/// Mazes that nobody chose have numbers below this: short enough to be told to somebody.
const RANDOM_SEED_LIMIT: u64 = 10_000;

/// Carries out a command of the maze.
pub fn run(args: &cli::MazeArgs) -> Result<Summary, AppError> {
    match &args.command {
        cli::MazeCommand::Play(args) => play_alone(args),
        cli::MazeCommand::Host(args) => online::host(args),
        cli::MazeCommand::Join(args) => join(args),
        cli::MazeCommand::Drift(args) => drift::run(args),
    }
}

/// Comes to others. Who ends it while nobody has answered yet has not been there.
fn join(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    let summary = if args.world.is_empty() { online::join(args)? } else { join_server_world(args)? };
    match summary.is_empty() && crate::signals::is_stop_requested() {
        true => Err(AppError::interrupted("it was ended before anybody let us in")),
        false => Ok(summary),
    }
}

fn join_server_world(args: &MazeJoinArgs) -> Result<Summary, AppError> {
    // Whom we look for is only said if we do.
    frontend_for(&args.player.display_args())?;
    if let Ok(tickets) = args.world.iter().map(|text| connect::parse_ticket(text)).collect::<Result<Vec<_>, _>>() {
        connect::print_dialing(&tickets);
    }
    world::join(args)
}

fn play_alone(args: &cli::MazePlayArgs) -> Result<Summary, AppError> {
    let front = frontend_for(&args.display)?;
    let config = load_config(&args.display)?;
    let terms = solo_settings(&args.layout);
    crate::signals::install_handler();
    let Some(front) = front else { return run_headless(args, &terms) };
    frontend::run_with_frontend(front, &display_options(), &config, |stage| {
        let mut net = SoloNet::new();
        let mut game = open_game(net.now(), &terms, Some("you"), args.layout.ninjas)?;
        let begun = net.now();
        let notes = play(stage, &config, &mut game, &mut net, args.seconds)?;
        Ok(summary(&game, true, net.now() - begun).with_notes(notes))
    })
}

/// In virtual time, as fast as it goes. Nobody is there to play, so it is between ninjas.
fn run_headless(args: &cli::MazePlayArgs, terms: &MazeSettings) -> Result<Summary, AppError> {
    let mut net = SoloNet::in_virtual_time();
    let mut game = open_game(net.now(), terms, None, args.layout.ninjas)?;
    let begun = net.now();
    let end = begun + TimeDelta::from_secs(args.seconds.unwrap_or(HEADLESS_SECONDS).into());
    advance_until(&mut game, &mut net, end)?;
    Ok(summary(&game, false, net.now() - begun))
}

fn open_game(now: Time, terms: &MazeSettings, person: Option<&str>, ninjas: u8) -> Result<MazeSite, AppError> {
    MazeSite::new(now, SOLO_SITE, true, terms, UpdatePolicy::default(), (person, ninjas))
        .map_err(|error| AppError::failure(format!("there can be no such maze: {error}")))
}

/// What all sites of a maze like this agree on.
pub fn solo_settings(place: &cli::MazeLayoutArgs) -> MazeSettings {
    MazeSettings { seed: place.seed.unwrap_or_else(random_seed), cells_per_side: place.side, ..MazeSettings::default() }
}

fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros()) % RANDOM_SEED_LIMIT
}

/// The window of a maze.
pub fn display_options() -> DisplayOptions {
    // Fewer rows than are drawn: `--scale` counts the pixels of old machines, and these are smaller.
    let (rows, aspect) = (renderer::VIEW_HEIGHT * 2 / 3, renderer::VIEW_WIDTH as f32 / renderer::VIEW_HEIGHT as f32);
    DisplayOptions { title: "Maze".into(), pictures: (1, rows, aspect), ..DisplayOptions::default() }
}

/// What a game came to: its length and the score, the best first. `person` says whether the site's first avatar is one.
pub fn summary(game: &MazeSite, person: bool, played: TimeDelta) -> Summary {
    let mut summary = Summary::default();
    let maze = &game.rules().maze;
    summary.add_row("maze", maze.seed().to_string(), &format!("{0} × {0} cells", maze.cells_per_side()));
    summary.add_row("played", format!("{:.1} s", played.as_secs_f64()), "");
    for (at, row) in ScoreboardView::new(person).rows(game).into_iter().enumerate() {
        summary.add_row(if at == 0 { "score" } else { "" }, scoreboard_view::format_score(row.score), &row.name);
    }
    summary
}
