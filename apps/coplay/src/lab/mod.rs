//! `coplay lab`: the papers' experiments, ours beside theirs.
//!
//! The [lab itself](coplay_lab) is pure. Here is what it needs of the world: folders and files, a clock for the bar that says how long it
//! will take, and the program's own processes for what is measured in the field.

mod link_preview;
mod output_dir;
mod progress_bar;
mod real_run;

use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::catalog;
use coplay_lab::experiment::Experiment;
use coplay_lab::findings::Findings;
use coplay_lab::report::{self, ReportEntry};

use crate::cli::lab::{self as cli, LabCommand};
use crate::error::AppError;
use output_dir::OutputDir;
use progress_bar::ProgressBar;
use real_run::ProcessRunner;

/// Carries out a command of the lab.
pub fn run(args: &cli::LabArgs) -> Result<(), AppError> {
    match &args.command {
        LabCommand::List => list_experiments(),
        LabCommand::Run(args) => run_selected(args),
        LabCommand::Report(args) => write_report(args),
        LabCommand::Feel(args) => link_preview::run(args),
    }
}

/// What there is.
fn list_experiments() -> Result<(), AppError> {
    let mut text = String::new();
    for experiment in catalog::ALL {
        let Experiment {
            name,
            title,
            paper,
            paper_figures: figures,
            expected_seconds: seconds,
            summary: shows,
            real_run: real,
            ..
        } = experiment;
        let real = if real.is_some() { " Also with --real." } else { "" };
        text += &format!("{name:<12} {title}\n");
        text += &wrap_indented(&format!("{shows}{real}"));
        text += &wrap_indented(&format!("{}: {figures}. About {seconds:.0} s.", paper.authors));
        text.push('\n');
    }
    text += "`coplay lab run NAME` does one, `coplay lab report` all of them.\n";
    crate::print_stdout(&text);
    Ok(())
}

/// How wide a text is, and how far it is indented.
const TEXT_WIDTH: usize = 96;
const INDENT: usize = 13;

/// A text in lines that fit.
fn wrap_indented(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > TEXT_WIDTH - INDENT {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
}

fn run_selected(args: &cli::LabRunArgs) -> Result<(), AppError> {
    let experiments = args.names.iter().map(|name| find_experiment(name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(virtual_only) = experiments.iter().find(|experiment| args.real && experiment.real_run.is_none()) {
        return Err(AppError::usage(format!("{} is done in virtual time only", virtual_only.name))
            .hint("leave out --real; `coplay lab list` says what can be done with it"));
    }
    let folder = OutputDir::open(&args.experiment.out)?;
    let entries = run_experiments(&experiments, args.experiment.seed, args.real)?;
    write_results(&entries, &folder)
}

fn write_report(args: &cli::LabReportArgs) -> Result<(), AppError> {
    let cli::ExperimentArgs { seed, out } = &args.experiment;
    let folder = OutputDir::open(out)?;
    let entries = run_experiments(&catalog::ALL, *seed, false)?;
    let page = folder
        .write("report.html", report::page(&entries, *seed, &format!("coplay lab report --seed {seed}")).as_bytes())?;
    let ended = write_results(&entries, &folder);
    crate::print_stdout(&format!("the report is {}\n", page.display()));
    ended
}

fn find_experiment(name: &str) -> Result<&'static Experiment, AppError> {
    catalog::find(name).ok_or_else(|| {
        let names: Vec<&str> = catalog::ALL.iter().map(|experiment| experiment.name).collect();
        AppError::usage(format!("there is no experiment called {name:?}"))
            .hint(format!("there are: {}", names.join(", ")))
    })
}

/// Does experiments one after the other, each on all processors.
fn run_experiments(experiments: &[&'static Experiment], seed: u64, real: bool) -> Result<Vec<ReportEntry>, AppError> {
    let bar = ProgressBar::new(experiments.iter().map(|experiment| expected_seconds(experiment, real)).collect());
    let mut entries = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        bar.begin(number, experiment.name);
        let findings = run_experiment(experiment, seed, real, &|part| bar.report(part))?;
        let real = if real { " --real" } else { "" };
        let command = format!("coplay lab run {} --seed {seed}{real}", experiment.name);
        entries.push(ReportEntry { experiment, findings, command });
    }
    bar.end();
    Ok(entries)
}

/// About how long an experiment takes.
fn expected_seconds(experiment: &Experiment, real: bool) -> f64 {
    if real { real_run::EXPECTED_SECONDS } else { experiment.expected_seconds }
}

fn run_experiment(
    experiment: &Experiment,
    seed: u64,
    real: bool,
    tell: &(dyn Fn(f64) + Sync),
) -> Result<Findings, AppError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut bench = ExperimentContext::new(seed, ExperimentLength::Full, threads, tell);
    match experiment.real_run.filter(|_| real) {
        None => Ok((experiment.run)(&mut bench)),
        Some(in_the_field) => {
            let mut processes = ProcessRunner::new()?;
            in_the_field(&mut bench, &mut processes).map_err(|what| {
                AppError::failure(what)
                    .hint("does `coplay host --udp 127.0.0.1:0` work here? without --real nothing of that is needed")
            })
        }
    }
}

/// Writes everything down and says which claims hold.
fn write_results(entries: &[ReportEntry], folder: &OutputDir) -> Result<(), AppError> {
    let mut text = String::new();
    let mut written = 0;
    for entry in entries {
        for file in report::files(entry) {
            folder.write(&file.name, &file.bytes)?;
            written += 1;
        }
        text += &format!("{}: {}\n", entry.experiment.name, entry.experiment.title);
        entry.findings.claims.iter().for_each(|claim| text += &format!("  {}\n", claim.to_line()));
    }
    text += &format!("{written} files in {}\n", folder.path().display());
    crate::print_stdout(&text);
    let claims = entries.iter().flat_map(|entry| &entry.findings.claims);
    let (all, broken) = claims.fold((0, 0), |(all, broken), claim| (all + 1, broken + usize::from(!claim.holds)));
    if broken == 0 {
        return Ok(());
    }
    Err(AppError::failure(format!("{broken} of {all} claims do not hold"))
        .hint("the lines above say which; files with the numbers are there all the same"))
}
