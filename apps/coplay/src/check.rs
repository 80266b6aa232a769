//! `coplay check`: is this machine fit to be shared, and how?

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;

use coplay_machines::Machine;
use coplay_machines::check::{self, CheckReport, CheckRequest, CheckSubject};
use coplay_machines::libretro::{self, CoreSource, LibretroMachine};

use crate::cli;
use crate::config::cache_dir;
use crate::game::{self, Game, OWN, Opened, Wanted, core_refused};
use crate::trouble::Trouble;

/// The command that the other process is started with.
pub const CHILD: &str = "check-child";

/// Makes the check, or finds it made, and prints the report. A machine that is unfit is a failure.
pub fn run(args: &cli::Check) -> Result<(), Trouble> {
    let no_output = |error: io::Error| Trouble::failure(format!("there is nowhere to print: {error}"));
    find_out(args, &mut check::exclusive_stdout().map_err(no_output)?).map(|_| ())
}

/// Makes the check, or finds it made, and writes the report. A machine that is unfit is a failure.
pub fn find_out(args: &cli::Check, out: &mut dyn io::Write) -> Result<CheckReport, Trouble> {
    let args = absolute(args.clone())?;
    let mut opener = Opener::new(&args)?;
    let (machine, title) = opener.names();
    let asked = CheckRequest {
        json: args.json,
        long_run_frames: args.frames,
        max_seconds: args.seconds,
        cache_folder: cache_dir(),
        ignore_cache: args.again,
        show_progress: io::stderr().is_terminal(),
    };
    let program = std::env::current_exe();
    let program = program.map_err(|error| Trouble::failure(format!("this program cannot find itself: {error}")))?;
    let mut child = || child_command(&program, &args);
    // What it cannot play is told as `coplay play` tells it.
    let mut refused = None;
    let mut open = || {
        opener.open().map_err(|trouble| {
            let words = trouble.to_string();
            refused = Some(trouble);
            words
        })
    };
    let subject =
        CheckSubject { machine_name: &machine, game_name: &title, open: &mut open, child_command: &mut child };
    let report = check::run(&asked, subject, out, &mut io::stderr());
    let hint = "does it play? try `coplay play` with the same";
    let report = report.map_err(|error| refused.unwrap_or_else(|| Trouble::failure(error.to_string()).hint(hint)))?;
    if report.verdict.is_fit() {
        return Ok(report);
    }
    Err(Trouble::failure(format!("{title} cannot be shared on this machine"))
        .hint("another core may do better: see --core"))
}

/// The other process of a check.
pub fn run_child(args: &cli::Check) -> u8 {
    let open = || Opener::new(args)?.open();
    check::run_child(|| open().map_err(|trouble| trouble.to_string()))
}

fn child_command(program: &Path, args: &cli::Check) -> Command {
    let mut command = Command::new(program);
    command.arg(CHILD);
    if let Some(core) = &args.machine.core {
        command.arg("--core").arg(core.to_string());
    }
    if let Some(system) = &args.machine.system {
        command.arg("--system").arg(system);
    }
    for (key, value) in &args.setup.options {
        command.arg("--option").arg(format!("{key}={value}"));
    }
    if let Some(players) = args.players {
        command.arg("--players").arg(players.to_string());
    }
    command.arg("--").args(&args.game);
    command
}

/// The other process runs in another folder and home: everything is named so that it is found from there.
fn absolute(mut args: cli::Check) -> Result<cli::Check, Trouble> {
    args.machine.system = args.machine.system()?.map(whole);
    if let Some(core) = &args.machine.core {
        let file = libretro::find_core(core, &[]).map_err(|error| core_refused(core, &error))?;
        args.machine.core = Some(CoreSource::Path(whole(file)));
    }
    args.game = args.game.map(whole);
    Ok(args)
}

fn whole(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Opens the machine again and again: a core once, and then its twins, which costs less.
struct Opener {
    game: Option<Game>,
    wanted: Wanted,
    first: Option<Box<LibretroMachine>>,
}

impl Opener {
    /// Nothing is opened yet: a machine may take its process down.
    fn new(args: &cli::Check) -> Result<Self, Trouble> {
        let game = args.game.as_deref().map(Game::read).transpose()?;
        Ok(Self { game, wanted: args.machine.wanted(&args.setup, args.players)?, first: None })
    }

    /// What machine and game are called, before they can be asked.
    fn names(&self) -> (String, String) {
        let machine = match &self.wanted.core {
            None => OWN.into(),
            Some(CoreSource::Name(name)) => name.to_string(),
            Some(CoreSource::Path(path)) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let bundled = || Game::bundled().filter(|_| self.wanted.core.is_none());
        let game = self.game.clone().or_else(bundled);
        let title = game.map_or_else(|| machine.clone(), |game| game.title().to_owned());
        (machine, title)
    }

    fn open(&mut self) -> Result<Box<dyn Machine>, Trouble> {
        let first = match self.first.take() {
            Some(first) => first,
            None => match game::open(self.game.as_ref(), &self.wanted)? {
                Opened::Nes(nes) => return Ok(nes),
                Opened::Core(core) => core,
            },
        };
        let core = self.wanted.core.as_ref().expect("a core was opened because one is wanted");
        let twin = first.twin().map_err(|error| core_refused(core, &error));
        self.first = Some(first);
        Ok(Box::new(twin?))
    }
}
