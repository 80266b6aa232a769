//! Entry point of all commands: parses the command line and runs the command.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use coplay_machines::{Machine, NetplaySupport};
use coplay_shell::error::AppError;
use coplay_shell::panic_hook::{self, ThreadPanics};

use crate::check;
use crate::cli::delays::fixed_delays;
use crate::cli::{self, Command};
use crate::config::{self, UserSettings};
use crate::demo::Demo;
use crate::demo::site_pair::DemoSettings;
use crate::display_args::{frontend_for, load_config};
use crate::frontend::{self, AvailableOutputs, DisplayOptions, FrontendKind, terminal};
use crate::game::{self, GameImage, MachineSpec};
use crate::measure;
use crate::movie_file::MovieFile;
use crate::play::{LocalGame, PlayOptions};
use crate::replay::Replay;
use crate::summary::Summary;

/// Runs the command line `args`, whose first element is the name of the program, and returns the exit code. Prints an
/// error to stderr.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    panic_hook::install(ThreadPanics::Hidden);
    let outcome = panic_hook::catch(|| run(args));
    terminal::restore();
    coplay_shell::exit_code(outcome.map(|()| ExitCode::SUCCESS))
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), AppError> {
    let cli = match cli::parse(args)? {
        Ok(cli) => cli,
        Err(help) => {
            coplay_shell::print_stdout(&help);
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
            _ => Err(AppError::failure("only `coplay check` can use this command").hint("run `coplay check`")),
        },
        Command::Maze(args) => crate::maze::run(&args).map(|summary| summary.print()),
        Command::World(args) => Err(args.exec("coplay-world", &[])),
        Command::Lab(args) => Err(args.exec("coplay-lab", &[])),
        Command::MeasureLink(args) => measure::link(&args),
        Command::MeasureMachine(args) => measure::machine(&args),
        Command::Host(args) => crate::net::host(&args).map(|summary| summary.print()),
        Command::Join(args) => crate::net::join(&args).map(|summary| summary.print()),
        Command::Watch(args) => crate::net::watch(&args).map(|summary| summary.print()),
        Command::Config => {
            let text = UserSettings::load()?.to_toml(config::settings_path().as_deref());
            coplay_shell::print_stdout(&text);
            Ok(())
        }
    }
}

fn play(args: cli::PlayArgs) -> Result<Summary, AppError> {
    let machine = open_machine(args.game.as_deref(), &args.machine.spec(&args.core_options, args.players)?)?;
    let frontend = frontend_for(&args.display)?;
    let players = args.players.map(usize::from);
    let options =
        PlayOptions { players, record: args.record, force: args.force, frame_limit: args.frames, bot_seed: args.bot };
    let config = load_config(&args.display)?;
    let display = display_options(&*machine);
    crate::signals::install_handler();
    let game = LocalGame::new(machine, &options)?;
    match frontend {
        None => game.run_headless(),
        Some(kind) => frontend::run_with_frontend(kind, &display, &config, |ui| game.run(ui, &config)),
    }
}

fn replay(args: cli::ReplayArgs) -> Result<Summary, AppError> {
    let movie = MovieFile::open(&args.file)?;
    let spec = MachineSpec::matching(args.machine.core.clone(), &movie.settings().machine);
    let machine = open_machine(args.game.as_deref(), &MachineSpec { system_dir: args.machine.system_dir()?, ..spec })?;
    let frontend = frontend_for(&args.display)?;
    let config = load_config(&args.display)?;
    let display = display_options(&*machine);
    crate::signals::install_handler();
    let replay = Replay::new(movie, machine)?;
    match frontend {
        None => replay.run_headless(),
        Some(kind) => frontend::run_with_frontend(kind, &display, &config, |ui| replay.run(ui, &config)),
    }
}

fn demo(args: cli::DemoArgs) -> Result<Summary, AppError> {
    let settings = demo_settings(&args)?;
    let spec = args.machine.spec(&args.core_options, Some(2))?;
    let machines = [open_machine(args.game.as_deref(), &spec)?, open_machine(args.game.as_deref(), &spec)?];
    let can_predict = machines[0].netplay_support() == NetplaySupport::Rollback;
    let prediction_window = if can_predict { settings.prediction_window } else { 0 };
    let settings = DemoSettings { prediction_window, ..settings };
    // If there is neither a display nor a terminal, the demo runs headless; with --window or --terminal it then fails.
    let frontend = if args.display.headless {
        None
    } else {
        FrontendKind::choose(args.display.requested_frontend(), AvailableOutputs::detect())?
    };
    if frontend.is_none() && args.screenshot.is_some() {
        return Err(AppError::usage("--screenshot needs a window or a terminal")
            .hint("run `coplay demo --screenshot FILE` in a terminal or on a display, without --headless"));
    }
    let config = load_config(&args.display)?;
    let mut display = display_options(&*machines[0]);
    (display.pictures.0, display.has_graph, display.screenshot) = (2, true, args.screenshot);
    crate::signals::install_handler();
    let demo = Demo::new(machines, settings, args.frames, args.seed)?;
    match frontend {
        None => demo.run_headless(),
        Some(kind) => frontend::run_with_frontend(kind, &display, &config, |ui| demo.run(ui, &config)),
    }
}

/// Returns the link, input delay and prediction window that the flags of `coplay demo` ask for.
fn demo_settings(args: &cli::DemoArgs) -> Result<DemoSettings, AppError> {
    let link =
        DemoSettings { rtt_ms: args.rtt, jitter_ms: args.jitter, loss_percent: args.loss, ..DemoSettings::default() };
    let defaults = (link.input_delay, link.prediction_window);
    Ok(match fixed_delays(args.delay, args.prediction, defaults, Some(defaults))? {
        Some((input_delay, prediction_window)) => DemoSettings { input_delay, prediction_window, ..link },
        None => DemoSettings { auto_delay: true, ..link },
    })
}

/// Opens the machine of `spec` with the game in this file. Without a file, opens a core that needs no game alone, and
/// any other machine with the bundled game.
fn open_machine(game: Option<&Path>, spec: &MachineSpec) -> Result<Box<dyn Machine>, AppError> {
    let game = game.map(GameImage::read).transpose()?;
    game::open_machine(game.as_ref(), spec).map(Into::into)
}

fn display_options(machine: &dyn Machine) -> DisplayOptions {
    let picture = machine.picture();
    let pictures = (1, picture.height, picture.aspect);
    DisplayOptions { title: machine.game_id().name.clone(), pictures, ..DisplayOptions::default() }
}
