//! `coplay check`: tests whether a game can be shared on its machine, with rollback or in lockstep only.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;

use coplay_machines::Machine;
use coplay_machines::check::{self, CheckCommandOptions, CheckReport, CheckSubject};
use coplay_machines::libretro::{self, CoreSource, LibretroMachine};
use coplay_shell::error::AppError;

use crate::cli;
use crate::config::cache_dir;
use crate::game::{self, BUILT_IN_MACHINE, GameImage, MachineSpec, OpenedMachine, core_error};

/// Name of the hidden command with which a check starts this program as its child process.
pub const CHILD_COMMAND: &str = "check-child";

/// Runs the check, or takes the cached report, and prints the report to stdout. A machine that cannot be shared is an
/// error.
pub fn run(args: &cli::CheckArgs) -> Result<(), AppError> {
    run_check(args, &mut exclusive_stdout()?).map(|_| ())
}

/// Returns stdout for exclusive use: what a core prints to it is discarded.
pub fn exclusive_stdout() -> Result<impl io::Write, AppError> {
    check::exclusive_stdout().map_err(|error| {
        AppError::failure(format!("cannot write to standard output: {error}"))
            .hint("run the same command in a terminal, or redirect its output to a file")
    })
}

/// Runs the check, or takes the cached report, and writes the report to `out`. A machine that cannot be shared is an
/// error.
pub fn run_check(args: &cli::CheckArgs, out: &mut dyn io::Write) -> Result<CheckReport, AppError> {
    let args = with_absolute_paths(args.clone())?;
    let mut opener = MachineOpener::new(&args)?;
    let (machine, title) = opener.names();
    let request = CheckCommandOptions {
        json: args.json,
        long_run_frames: args.frames,
        max_seconds: args.seconds,
        cache_folder: cache_dir(),
        ignore_cache: args.again,
        show_progress: io::stderr().is_terminal(),
    };
    let program = std::env::current_exe();
    let program = program.map_err(|error| {
        AppError::failure(format!("cannot find the path of this program: {error}"))
            .hint("start coplay by its full path")
    })?;
    let mut child = || child_command(&program, &args);
    // The error of a machine that does not open keeps the hint that `coplay play` gives.
    let mut open_error = None;
    let mut open = || {
        opener.open().map_err(|error| {
            let text = error.to_string();
            open_error = Some(error);
            text
        })
    };
    let subject =
        CheckSubject { machine_name: &machine, game_name: &title, open: &mut open, child_command: &mut child };
    let report = check::run(&request, subject, out, &mut io::stderr());
    let hint = "check that `coplay play` runs the same game and core, and that the output can be written";
    let report =
        report.map_err(|error| open_error.unwrap_or_else(|| AppError::failure(error.to_string()).hint(hint)))?;
    if report.verdict.is_fit() {
        return Ok(report);
    }
    Err(AppError::failure(format!("{title} cannot be shared on {machine}: the verdict is unfit"))
        .hint("try another core with --core CORE"))
}

/// Runs as the child process of a check: opens the machine and carries out the requests of the check. Returns the exit
/// code.
pub fn run_child(args: &cli::CheckArgs) -> u8 {
    let open = || MachineOpener::new(args)?.open();
    check::run_child(|| open().map_err(|error| error.to_string()))
}

fn child_command(program: &Path, args: &cli::CheckArgs) -> Command {
    let mut command = Command::new(program);
    command.arg(CHILD_COMMAND);
    if let Some(core) = &args.machine.core {
        command.arg("--core").arg(core.to_string());
    }
    if let Some(system) = &args.machine.system_dir {
        command.arg("--system").arg(system);
    }
    for (key, value) in &args.core_options.options {
        command.arg("--option").arg(format!("{key}={value}"));
    }
    if let Some(players) = args.players {
        command.arg("--players").arg(players.to_string());
    }
    command.arg("--").args(&args.game);
    command
}

/// Makes all paths absolute: the child process runs in another working directory and another home directory.
fn with_absolute_paths(mut args: cli::CheckArgs) -> Result<cli::CheckArgs, AppError> {
    args.machine.system_dir = args.machine.system_dir()?.map(absolute_path);
    if let Some(core) = &args.machine.core {
        let file = libretro::find_core(core, &[]).map_err(|error| core_error(core, &error))?;
        args.machine.core = Some(CoreSource::Path(absolute_path(file)));
    }
    args.game = args.game.map(absolute_path);
    Ok(args)
}

fn absolute_path(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Opens the same machine repeatedly. A core is opened and probed once; every machine on it is a twin of that first
/// one, which takes less time.
struct MachineOpener {
    game: Option<GameImage>,
    spec: MachineSpec,
    opened_core: Option<Box<LibretroMachine>>,
}

impl MachineOpener {
    /// Reads the game, but opens no machine yet: a machine may crash its process.
    fn new(args: &cli::CheckArgs) -> Result<Self, AppError> {
        let game = args.game.as_deref().map(GameImage::read).transpose()?;
        Ok(Self { game, spec: args.machine.spec(&args.core_options, args.players)?, opened_core: None })
    }

    /// Returns the names of machine and game without opening the machine.
    fn names(&self) -> (String, String) {
        let machine = match &self.spec.core {
            None => BUILT_IN_MACHINE.into(),
            Some(CoreSource::Name(name)) => name.to_string(),
            Some(CoreSource::Path(path)) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let bundled = || GameImage::bundled().filter(|_| self.spec.core.is_none());
        let game = self.game.clone().or_else(bundled);
        let title = game.map_or_else(|| machine.clone(), |game| game.title().to_owned());
        (machine, title)
    }

    fn open(&mut self) -> Result<Box<dyn Machine>, AppError> {
        let first = match self.opened_core.take() {
            Some(first) => first,
            None => match game::open_machine(self.game.as_ref(), &self.spec)? {
                OpenedMachine::Nes(nes) => return Ok(nes),
                OpenedMachine::Core(core) => core,
            },
        };
        let core = self.spec.core.as_ref().expect("a machine that is not built in has a core");
        let twin = first.twin().map_err(|error| core_error(core, &error));
        self.opened_core = Some(first);
        Ok(Box::new(twin?))
    }
}
