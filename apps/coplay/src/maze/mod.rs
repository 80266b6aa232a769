//! `coplay maze`: a game without a server. [`play()`] is what a person sees and does; [`MazeNet`] is the way to the others.

pub mod board;
pub mod controls;
mod drift;
mod graph;
pub mod net;
mod online;
#[cfg(test)]
mod pair;
mod play;
pub mod stage;
mod world;

use std::time::{SystemTime, UNIX_EPOCH};

use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};

use crate::cli::maze as cli;
use crate::cli::maze_online::Join;
use crate::front::{self, Look};
use crate::meet;
use crate::run::{front_for, settings};
use crate::summary::Summary;
use crate::trouble::Trouble;
use board::Board;
pub use net::{Alone, MazeNet};
pub use play::{advance_until, play};

/// Seconds of a run that does not say how many and that nobody sees.
const HEADLESS_SECONDS: u32 = 60;
/// Who plays alone needs no other number.
const ALONE: WorldSiteId = WorldSiteId(1);
/// Mazes that nobody chose have numbers below this: short enough to be told to somebody.
const SEEDS: u64 = 10_000;

/// Carries out a command of the maze.
pub fn run(args: &cli::Maze) -> Result<Summary, Trouble> {
    match &args.what {
        cli::What::Play(args) => play_alone(args),
        cli::What::Host(args) => online::host(args),
        cli::What::Join(args) => join(args),
        cli::What::Drift(args) => drift::run(args),
    }
}

/// Comes to others. Who ends it while nobody has answered yet has not been there.
fn join(args: &Join) -> Result<Summary, Trouble> {
    let summary = if args.world.is_empty() { online::join(args)? } else { join_world(args)? };
    match summary.is_empty() && crate::stop::is_asked() {
        true => Err(Trouble::stopped("it was ended before anybody let us in")),
        false => Ok(summary),
    }
}

fn join_world(args: &Join) -> Result<Summary, Trouble> {
    // Whom we look for is only said if we do.
    front_for(&args.part.show())?;
    if let Ok(tickets) = args.world.iter().map(|text| meet::read_ticket(text)).collect::<Result<Vec<_>, _>>() {
        meet::say_where(&tickets);
    }
    world::join(args)
}

fn play_alone(args: &cli::Play) -> Result<Summary, Trouble> {
    let front = front_for(&args.show)?;
    let config = settings(&args.show)?;
    let terms = terms(&args.place);
    crate::stop::listen();
    let Some(front) = front else { return run_headless(args, &terms) };
    front::show(front, &look(), &config, |stage| {
        let mut net = Alone::new();
        let mut game = open(net.now(), &terms, Some("you"), args.place.ninjas)?;
        let begun = net.now();
        let notes = play(stage, &config, &mut game, &mut net, args.seconds)?;
        Ok(summary(&game, true, net.now() - begun).with_notes(notes))
    })
}

/// In virtual time, as fast as it goes. Nobody is there to play, so it is between ninjas.
fn run_headless(args: &cli::Play, terms: &MazeSettings) -> Result<Summary, Trouble> {
    let mut net = Alone::in_virtual_time();
    let mut game = open(net.now(), terms, None, args.place.ninjas)?;
    let begun = net.now();
    let end = begun + TimeDelta::from_secs(args.seconds.unwrap_or(HEADLESS_SECONDS).into());
    advance_until(&mut game, &mut net, end)?;
    Ok(summary(&game, false, net.now() - begun))
}

fn open(now: Time, terms: &MazeSettings, person: Option<&str>, ninjas: u8) -> Result<MazeSite, Trouble> {
    MazeSite::new(now, ALONE, true, terms, UpdatePolicy::default(), (person, ninjas))
        .map_err(|error| Trouble::failure(format!("there can be no such maze: {error}")))
}

/// What all sites of a maze like this agree on.
pub fn terms(place: &cli::Place) -> MazeSettings {
    MazeSettings { seed: place.seed.unwrap_or_else(any_seed), cells_per_side: place.side, ..MazeSettings::default() }
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros()) % SEEDS
}

/// The window of a maze.
pub fn look() -> Look {
    // Fewer rows than are drawn: `--scale` counts the pixels of old machines, and these are smaller.
    let (rows, aspect) = (stage::HEIGHT * 2 / 3, stage::WIDTH as f32 / stage::HEIGHT as f32);
    Look { title: "Maze".into(), pictures: (1, rows, aspect), ..Look::default() }
}

/// What a game came to: its length and the score, the best first. `person` says whether the site's first avatar is one.
pub fn summary(game: &MazeSite, person: bool, played: TimeDelta) -> Summary {
    let mut summary = Summary::default();
    let maze = &game.rules().maze;
    summary.row("maze", maze.seed().to_string(), &format!("{0} × {0} cells", maze.cells_per_side()));
    summary.row("played", format!("{:.1} s", played.as_secs_f64()), "");
    for (at, row) in Board::new(person).rows(game).into_iter().enumerate() {
        summary.row(if at == 0 { "score" } else { "" }, board::in_words(row.score), &row.name);
    }
    summary
}
