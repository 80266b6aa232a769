//! Carries out commands.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use coplay_machines::{Machine, NetplaySupport};

use crate::check;
use crate::cli::{self, Command};
use crate::config::{self, Config};
use crate::demo::Demo;
use crate::demo::world::Terms;
use crate::fault;
use crate::film::Film;
use crate::front::{self, Available, Front, Look, terminal};
use crate::game::{self, Game, Wanted};
use crate::play::{Options, Play};
use crate::replay::Replay;
use crate::summary::Summary;
use crate::trouble::Trouble;

/// Runs the program; the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    fault::listen();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(args))).unwrap_or_else(|_| Err(fault::trouble()));
    terminal::restore();
    match outcome {
        Ok(()) => 0,
        Err(trouble) => {
            eprintln!("{trouble}");
            trouble.exit_code()
        }
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), Trouble> {
    let cli = match cli::parse(args)? {
        Ok(cli) => cli,
        Err(help) => {
            crate::out(&help);
            return Ok(());
        }
    };
    match cli.command {
        Command::Play(args) => play(args).map(|summary| summary.print()),
        Command::Replay(args) => replay(args).map(|summary| summary.print()),
        Command::Demo(args) => demo(args).map(|summary| summary.print()),
        Command::Check(args) => check::run(&args),
        Command::CheckChild(args) => match check::run_child(&args) {
            0 => Ok(()),
            _ => Err(Trouble::failure("nobody listens to the other process of a check")),
        },
        Command::Lab(args) => crate::lab::run(&args),
        Command::Maze(args) => crate::maze::run(&args).map(|summary| summary.print()),
        Command::World(args) => crate::world::run(&args.args),
        Command::Host(args) => crate::net::host(&args).map(|summary| summary.print()),
        Command::Join(args) => crate::net::join(&args).map(|summary| summary.print()),
        Command::Watch(args) => crate::net::watch(&args).map(|summary| summary.print()),
        Command::Config => {
            let text = Config::load()?.show(config::path().as_deref());
            crate::out(&text);
            Ok(())
        }
    }
}

fn play(args: cli::Play) -> Result<Summary, Trouble> {
    let machine = open(args.game.as_deref(), &args.machine.wanted(&args.setup, args.players)?)?;
    let front = front_for(&args.show)?;
    let players = args.players.map(usize::from);
    let options = Options { players, record: args.record, force: args.force, frames: args.frames, bot: args.bot };
    let config = settings(&args.show)?;
    let look = look(&*machine);
    crate::stop::listen();
    let play = Play::new(machine, &options)?;
    match front {
        None => play.run_headless(),
        Some(front) => front::show(front, &look, &config, |stage| play.run(stage, &config)),
    }
}

fn replay(args: cli::Replay) -> Result<Summary, Trouble> {
    let film = Film::open(&args.file)?;
    let like = Wanted::like(args.machine.core.clone(), &film.settings().machine);
    let machine = open(args.game.as_deref(), &Wanted { system: args.machine.system()?, ..like })?;
    let front = front_for(&args.show)?;
    let config = settings(&args.show)?;
    let look = look(&*machine);
    crate::stop::listen();
    let replay = Replay::new(film, machine)?;
    match front {
        None => replay.run_headless(),
        Some(front) => front::show(front, &look, &config, |stage| replay.run(stage, &config)),
    }
}

fn demo(args: cli::Demo) -> Result<Summary, Trouble> {
    let wanted = args.machine.wanted(&args.setup, Some(2))?;
    let machines = [open(args.game.as_deref(), &wanted)?, open(args.game.as_deref(), &wanted)?];
    let terms = Terms {
        rtt_ms: args.rtt,
        jitter_ms: args.jitter,
        loss_percent: args.loss,
        lag: args.lag,
        window: if machines[0].netplay_support() == NetplaySupport::Rollback { args.guess } else { 0 },
    };
    // A demonstration also goes where nobody can see it, and tells how it went.
    let front = if args.show.headless { None } else { Front::choose(args.show.asked(), Available::here())? };
    if front.is_none() && args.screenshot.is_some() {
        return Err(Trouble::misuse("there is no picture to keep without a window or a terminal")
            .hint("leave out --headless or --screenshot, or start it where there is a display"));
    }
    let config = settings(&args.show)?;
    let mut look = look(&*machines[0]);
    (look.pictures.0, look.graph, look.screenshot) = (2, true, args.screenshot);
    crate::stop::listen();
    let demo = Demo::new(machines, terms, args.frames, args.seed)?;
    match front {
        None => demo.run_headless(),
        Some(front) => front::show(front, &look, &config, |stage| demo.run(stage, &config)),
    }
}

/// Where to show it; `None` if nobody looks.
pub(crate) fn front_for(show: &cli::Show) -> Result<Option<Front>, Trouble> {
    if show.headless { Ok(None) } else { Front::need(show.asked()).map(Some) }
}

/// The settings, with what the command line changes.
pub(crate) fn settings(show: &cli::Show) -> Result<Config, Trouble> {
    let mut config = if show.headless { Config::default() } else { Config::load()? };
    config.scale = show.scale.unwrap_or(config.scale);
    config.mute |= show.mute;
    Ok(config)
}

/// The machine that is wanted, with the game in this file.
fn open(game: Option<&Path>, wanted: &Wanted) -> Result<Box<dyn Machine>, Trouble> {
    let game = game.map(Game::read).transpose()?;
    game::open(game.as_ref(), wanted).map(Into::into)
}

fn look(machine: &dyn Machine) -> Look {
    let picture = machine.picture();
    let pictures = (1, picture.height, picture.aspect);
    Look { title: machine.game_id().name.clone(), pictures, ..Look::default() }
}
