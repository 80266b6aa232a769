//! `coplay check`: is this machine fit to be shared, and how?

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Command;

use coplay_machines::Machine;
use coplay_machines::check::{self, Asked, Subject};
use coplay_machines::libretro::{self, Config, Libretro};

use crate::cli;
use crate::config::cache_dir;
use crate::game::{Game, Wanted, core_refused};
use crate::trouble::Trouble;

/// The command that the other process is started with.
pub const CHILD: &str = "check-child";

/// Makes the check, or finds it made, and prints the report. A machine that is unfit is a failure.
pub fn run(args: &cli::Check) -> Result<(), Trouble> {
    let args = absolute(args.clone())?;
    let game = Game::find(args.game.as_deref())?;
    let mut opener = Opener::new(&game, &args)?;
    let asked = Asked {
        json: args.json,
        frames: args.frames,
        seconds: args.seconds,
        cache: cache_dir(),
        again: args.again,
        progress: io::stderr().is_terminal(),
    };
    let no_output = |error: io::Error| Trouble::failure(format!("there is nowhere to print: {error}"));
    let mut out = check::output().map_err(no_output)?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| Trouble::failure(format!("this program cannot find itself: {error}")))?;
    let mut child = || child_command(&program, &args);
    let subject = Subject { open: &mut || opener.open(), child: &mut child };
    let report = check::run(&asked, subject, &mut out, &mut io::stderr())
        .map_err(|error| Trouble::failure(error.to_string()).hint("does it play? try `coplay play` with the same"))?;
    if report.verdict.is_fit() {
        return Ok(());
    }
    Err(Trouble::failure(format!("{} cannot be shared on this machine", game.title()))
        .hint("another core may do better: see --core"))
}

/// The other process of a check.
pub fn run_child(args: &cli::Check) -> u8 {
    check::child(|| {
        let game = Game::find(args.game.as_deref()).map_err(|trouble| trouble.to_string())?;
        let mut opener = Opener::new(&game, args).map_err(|trouble| trouble.to_string())?;
        opener.open()
    })
}

fn child_command(program: &std::path::Path, args: &cli::Check) -> Command {
    let mut command = Command::new(program);
    command.arg(CHILD);
    if let Some(core) = &args.machine.core {
        command.args(["--core", core]);
    }
    command.args(&args.game);
    command
}

/// The other process runs in another folder and home: everything is named so that it is found from there.
fn absolute(mut args: cli::Check) -> Result<cli::Check, Trouble> {
    if let Some(core) = &args.machine.core {
        let file = libretro::find(core, &[]).map_err(|error| core_refused(core, &error))?;
        args.machine.core = Some(whole(file).to_string_lossy().into_owned());
    }
    args.game = args.game.map(whole);
    Ok(args)
}

fn whole(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Opens the machine again and again: a core once, and then its twins, which costs less.
enum Opener<'a> {
    Nes(&'a Game),
    Core(Box<Libretro>),
}

impl<'a> Opener<'a> {
    fn new(game: &'a Game, args: &cli::Check) -> Result<Self, Trouble> {
        let Some(core) = &args.machine.core else {
            // What it cannot play is told as `coplay play` tells it.
            return game.open(&Wanted::default()).map(|_| Self::Nes(game));
        };
        let image = libretro::Game { name: game.name.clone(), image: game.image.clone() };
        let config = Config { core: core.clone(), game: Some(image), ..Config::default() };
        libretro::open(config).map(|first| Self::Core(Box::new(first))).map_err(|error| core_refused(core, &error))
    }

    fn open(&mut self) -> Result<Box<dyn Machine>, String> {
        match self {
            Self::Nes(game) => game.open(&Wanted::default()).map_err(|trouble| trouble.to_string()),
            Self::Core(first) => match first.twin() {
                Ok(twin) => Ok(Box::new(twin)),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}
