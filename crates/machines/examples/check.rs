//! Checks whether a machine is fit for netplay. With a game or a core it prints the whole report. Without game and core
//! it prints a table of the embedded NES, five libretro cores and the test cores, with small test images.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use coplay_machines::check::{self, CheckCommandOptions, CheckReport, CheckSubject};
use coplay_machines::libretro::{self, CoreConfig, CoreSource, GameImage, LibretroMachine};
use coplay_machines::{Machine, nes::Nes};
use coplay_testcores::{CoreDefect, build_core, images};

const USAGE: &str = "usage: check [--core CORE] [--json] [--frames N] [--seconds N] [GAME]

Tests whether GAME (an NES image, or an image for CORE) can be shared: with rollback, in lockstep only, or not at all.
Without GAME and CORE: checks the built-in NES, five libretro cores and the test cores, and prints a table.
--frames is the number of frames to run, --seconds the approximate time limit.
";

#[derive(Clone, Default)]
struct ExampleOptions {
    core: Option<String>,
    game: Option<PathBuf>,
    /// Whether this program is the child process of a check.
    is_child: bool,
    request: CheckCommandOptions,
}

fn parse_options() -> Result<Option<ExampleOptions>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = ExampleOptions::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("core") => options.core = Some(parser.value()?.string()?),
            Long("json") => options.request.json = true,
            Long("frames") => options.request.long_run_frames = Some(parser.value()?.parse()?),
            Long("seconds") => options.request.max_seconds = Some(parser.value()?.parse()?),
            Long("child") => options.is_child = true,
            Short('h') | Long("help") => return Ok(None),
            Value(path) if options.game.is_none() => options.game = Some(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if options.is_child {
        return ExitCode::from(check::run_child(|| open_machine(&options, &mut None)));
    }
    let mut out = check::exclusive_stdout().expect("the standard output is available");
    if options.game.is_none() && options.core.is_none() {
        return print_table(&options.request, &mut out).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let mut request = options.request.clone();
    request.show_progress = io::stderr().is_terminal();
    match run_check(&options, &request, &mut out) {
        Ok(report) => ExitCode::from(u8::from(!report.verdict.is_fit())),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Opens the machine that the options name. A core is opened once, into `first`; every call returns a twin of it.
fn open_machine(options: &ExampleOptions, first: &mut Option<LibretroMachine>) -> Result<Box<dyn Machine>, String> {
    if let Some(first) = first {
        return Ok(Box::new(first.twin().map_err(|error| error.to_string())?));
    }
    let game = options.game.as_deref().map(GameImage::read).transpose().map_err(|error| error.to_string())?;
    let Some(core) = options.core.clone() else {
        let image = game.ok_or("no game is given")?.image;
        return Ok(Box::new(Nes::open(&image, "game").map_err(|error| error.to_string())?));
    };
    let core = CoreSource::from_user(&core).map_err(|error| error.to_string())?;
    let machine = libretro::open(CoreConfig { game, ..CoreConfig::new(core) }).map_err(|error| error.to_string())?;
    let twin = machine.twin().map_err(|error| error.to_string())?;
    *first = Some(machine);
    Ok(Box::new(twin))
}

fn run_check(
    options: &ExampleOptions,
    request: &CheckCommandOptions,
    out: &mut dyn io::Write,
) -> Result<CheckReport, check::CheckError> {
    let mut options = options.clone();
    // The child process runs in another folder, with another home, so it gets absolute paths.
    let open_error = |error: &dyn std::fmt::Display| check::CheckError::Open(error.to_string());
    let game = options.game.as_deref().map(std::path::absolute).transpose().map_err(|error| open_error(&error))?;
    if let Some(core) = &options.core {
        let core = CoreSource::from_user(core).map_err(|error| open_error(&error))?;
        let file = libretro::find_core(&core, &[]).map_err(|error| open_error(&error))?;
        let file = std::path::absolute(file).map_err(|error| open_error(&error))?;
        options.core = Some(file.display().to_string());
    }
    let program = std::env::current_exe().map_err(|error| open_error(&error))?;
    let mut child = || {
        let mut command = Command::new(&program);
        command.arg("--child").args(&game);
        command.args(options.core.iter().flat_map(|core| ["--core", core]));
        command
    };
    let mut first = None;
    let name = |path: Option<&Path>| path.and_then(Path::file_stem).map(|name| name.to_string_lossy().into_owned());
    let machine = options.core.as_ref().map_or_else(|| Some("nes".into()), |core| name(Some(Path::new(core))));
    let (machine, game_title) = (machine.unwrap_or_default(), name(game.as_deref()).unwrap_or_default());
    let subject = CheckSubject {
        machine_name: &machine,
        game_name: &game_title,
        open: &mut || open_machine(&options, &mut first),
        child_command: &mut child,
    };
    check::run(request, subject, out, &mut io::stderr())
}

/// Checks the embedded NES, five libretro cores and the test cores, and prints a table with one row each.
fn print_table(request: &CheckCommandOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "| machine (image) | verdict | frames compared | step: rendered / not rendered | state | save / load / hash | prediction window (frames) | duration |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    let folder = tempfile::tempdir()?;
    let mut row = |name: &str, core: Option<String>, extension: &str, image: Option<Vec<u8>>| {
        let path = image.as_ref().map(|_| folder.path().join(format!("test.{extension}")));
        path.as_ref().zip(image).map_or(Ok(()), |(path, image)| std::fs::write(path, image))?;
        let options = ExampleOptions { core, game: path, ..ExampleOptions::default() };
        match run_check(&options, request, &mut io::sink()) {
            Ok(report) => writeln!(out, "{}", table_row(name, &report)),
            Err(error) => writeln!(out, "| {name} | {error} |"),
        }
    };
    row("built in (nes)", None, "nes", Some(common::rom::test_image()))?;
    for (core, extension, image) in [
        ("nestopia", "nes", images::nes()),
        ("gambatte", "gb", images::game_boy()),
        ("mgba", "gba", images::game_boy_advance()),
        ("beetle-pce-fast", "pce", images::pc_engine()),
        ("bsnes-mercury-performance", "sfc", images::snes()),
    ] {
        row(&format!("{core} ({extension})"), Some(core.into()), extension, Some(image))?;
    }
    for defect in [
        CoreDefect::Honest,
        CoreDefect::NoSave,
        CoreDefect::Forgets,
        CoreDefect::Clock,
        CoreDefect::Address,
        CoreDefect::Late,
        CoreDefect::Aborts,
    ] {
        let core = build_core(defect);
        row(&format!("test core: {defect:?}"), Some(core.path_string()), "", None)?;
    }
    Ok(())
}

fn table_row(name: &str, report: &CheckReport) -> String {
    let median_us = |timing: check::TimingPercentiles| match timing.median_ns {
        0 => "–".to_owned(),
        nanos => format!("{:.1}", nanos as f64 / 1e3),
    };
    let costs = &report.measured;
    let frames: u32 = report.compared.iter().map(|compared| compared.frames).sum();
    let why =
        if report.verdict == check::CheckVerdict::Rollback { String::new() } else { format!(": {}", report.verdict) };
    format!(
        "| {name} | **{}**{why} | {frames}{} | {} / {} µs | {} B | {} / {} / {} µs | {} | {:.1} s |",
        report.verdict.name(),
        if report.cut_short.is_empty() { "" } else { ", cut short" },
        median_us(costs.step_rendered),
        median_us(costs.step_headless),
        costs.state_bytes,
        median_us(costs.save),
        median_us(costs.load),
        median_us(costs.hash),
        report.prediction_window,
        report.elapsed_ms as f64 / 1e3,
    )
}
