//! Carries out commands.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use coplay_machines::{Machine, NetplaySupport};

use crate::check;
use crate::cli::{self, Command};
use crate::config::{self, Config};
use crate::demo::Demo;
use crate::demo::site_pair::DemoSettings;
use crate::error::AppError;
use crate::frontend::{self, AvailableOutputs, DisplayOptions, FrontendKind, terminal};
use crate::game::{self, GameImage, MachineSpec};
use crate::movie_file::MovieFile;
use crate::panic_hook;
use crate::play::{LocalGame, PlayOptions};
use crate::replay::Replay;
use crate::summary::Summary;

/// Runs the program; the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    panic_hook::install();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(args))).unwrap_or_else(|_| Err(panic_hook::internal_error()));
    terminal::restore();
    match outcome {
        Ok(()) => 0,
        Err(trouble) => {
            eprintln!("{trouble}");
            trouble.exit_code()
        }
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), AppError> {
    let cli = match cli::parse(args)? {
        Ok(cli) => cli,
        Err(help) => {
            crate::print_stdout(&help);
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
            _ => Err(AppError::failure("nobody listens to the other process of a check")),
        },
        Command::Lab(args) => crate::lab::run(&args),
        Command::Maze(args) => crate::maze::run(&args).map(|summary| summary.print()),
        Command::World(args) => crate::world_launcher::run(&args.args),
        Command::Host(args) => crate::net::host(&args).map(|summary| summary.print()),
        Command::Join(args) => crate::net::join(&args).map(|summary| summary.print()),
        Command::Watch(args) => crate::net::watch(&args).map(|summary| summary.print()),
        Command::Config => {
            let text = Config::load()?.to_toml(config::settings_path().as_deref());
            crate::print_stdout(&text);
            Ok(())
        }
    }
}

fn play(args: cli::PlayArgs) -> Result<Summary, AppError> {
    let machine = open_machine(args.game.as_deref(), &args.machine.spec(&args.core_options, args.players)?)?;
    let front = frontend_for(&args.display)?;
    let players = args.players.map(usize::from);
    let options =
        PlayOptions { players, record: args.record, force: args.force, frame_limit: args.frames, bot_seed: args.bot };
    let config = load_config(&args.display)?;
    let look = display_options(&*machine);
    crate::signals::install_handler();
    let play = LocalGame::new(machine, &options)?;
    match front {
        None => play.run_headless(),
        Some(front) => frontend::run_with_frontend(front, &look, &config, |stage| play.run(stage, &config)),
    }
}

fn replay(args: cli::ReplayArgs) -> Result<Summary, AppError> {
    let film = MovieFile::open(&args.file)?;
    let like = MachineSpec::matching(args.machine.core.clone(), &film.settings().machine);
    let machine = open_machine(args.game.as_deref(), &MachineSpec { system_dir: args.machine.system_dir()?, ..like })?;
    let front = frontend_for(&args.display)?;
    let config = load_config(&args.display)?;
    let look = display_options(&*machine);
    crate::signals::install_handler();
    let replay = Replay::new(film, machine)?;
    match front {
        None => replay.run_headless(),
        Some(front) => frontend::run_with_frontend(front, &look, &config, |stage| replay.run(stage, &config)),
    }
}

fn demo(args: cli::DemoArgs) -> Result<Summary, AppError> {
    let wanted = args.machine.spec(&args.core_options, Some(2))?;
    let machines = [open_machine(args.game.as_deref(), &wanted)?, open_machine(args.game.as_deref(), &wanted)?];
    let terms = DemoSettings {
        rtt_ms: args.rtt,
        jitter_ms: args.jitter,
        loss_percent: args.loss,
        input_delay: args.input_delay,
        prediction_window: if machines[0].netplay_support() == NetplaySupport::Rollback {
            args.prediction_window
        } else {
            0
        },
    };
    // A demonstration also goes where nobody can see it, and tells how it went.
    let front = if args.display.headless {
        None
    } else {
        FrontendKind::choose(args.display.requested_frontend(), AvailableOutputs::detect())?
    };
    if front.is_none() && args.screenshot.is_some() {
        return Err(AppError::usage("there is no picture to keep without a window or a terminal")
            .hint("leave out --headless or --screenshot, or start it where there is a display"));
    }
    let config = load_config(&args.display)?;
    let mut look = display_options(&*machines[0]);
    (look.pictures.0, look.has_graph, look.screenshot) = (2, true, args.screenshot);
    crate::signals::install_handler();
    let demo = Demo::new(machines, terms, args.frames, args.seed)?;
    match front {
        None => demo.run_headless(),
        Some(front) => frontend::run_with_frontend(front, &look, &config, |stage| demo.run(stage, &config)),
    }
}

/// Where to show it; `None` if nobody looks.
pub(crate) fn frontend_for(show: &cli::DisplayArgs) -> Result<Option<FrontendKind>, AppError> {
    if show.headless { Ok(None) } else { FrontendKind::choose_required(show.requested_frontend()).map(Some) }
}

/// The settings, with what the command line changes.
pub(crate) fn load_config(show: &cli::DisplayArgs) -> Result<Config, AppError> {
    let mut config = if show.headless { Config::default() } else { Config::load()? };
    config.scale = show.scale.unwrap_or(config.scale);
    config.mute |= show.mute;
    Ok(config)
}

/// The machine that is wanted, with the game in this file.
fn open_machine(game: Option<&Path>, wanted: &MachineSpec) -> Result<Box<dyn Machine>, AppError> {
    let game = game.map(GameImage::read).transpose()?;
    game::open_machine(game.as_ref(), wanted).map(Into::into)
}

fn display_options(machine: &dyn Machine) -> DisplayOptions {
    let picture = machine.picture();
    let pictures = (1, picture.height, picture.aspect);
    DisplayOptions { title: machine.game_id().name.clone(), pictures, ..DisplayOptions::default() }
}
