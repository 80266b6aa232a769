//! `coplay-lab list`, `coplay-lab run` and `coplay-lab report`: the experiments of the papers.

use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::catalog;
use coplay_lab::experiment::Experiment;
use coplay_lab::findings::Findings;
use coplay_lab::report::{self, ReportEntry};
use coplay_shell::error::AppError;

use crate::cli;
use crate::output_dir::OutputDir;
use crate::progress_bar::ProgressBar;
use crate::real_run::{self, ProcessRunner};

/// Prints name, title, summary, paper and duration of all experiments.
pub fn list() -> Result<(), AppError> {
    let mut text = String::new();
    for experiment in catalog::ALL {
        let Experiment { name, title, paper, paper_figures, expected_seconds, summary, real_run, .. } = experiment;
        let real = if real_run.is_some() { " Supports --real." } else { "" };
        text += &format!("{name:<12} {title}\n");
        text += &wrap_indented(&format!("{summary}{real}"));
        text += &wrap_indented(&format!("{}: {paper_figures}. Takes about {expected_seconds:.0} s.", paper.authors));
        text.push('\n');
    }
    text += "`coplay-lab run NAME` runs one experiment, `coplay-lab report` all of them.\n";
    coplay_shell::print_stdout(&text);
    Ok(())
}

/// Largest width of printed text with its indentation, in characters.
const TEXT_WIDTH: usize = 96;
/// Indentation of the text below an experiment's name, in characters.
const INDENT: usize = 13;

/// Wraps a text to [`TEXT_WIDTH`] and indents it.
fn wrap_indented(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let len = lines.last().map_or(0, |line| line.chars().count());
        if len > 0 && len + 1 + word.chars().count() > TEXT_WIDTH - INDENT {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
}

/// Runs the experiments with these names, writes their results, and prints which claims hold.
pub fn run(args: &cli::RunArgs) -> Result<(), AppError> {
    let experiments = args.names.iter().map(|name| find_experiment(name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(virtual_only) = experiments.iter().find(|experiment| args.real && experiment.real_run.is_none()) {
        return Err(AppError::usage(format!("the experiment {} runs in virtual time only", virtual_only.name))
            .hint("leave out --real; `coplay-lab list` shows which experiments support --real"));
    }
    let dir = OutputDir::open(&args.experiment.out)?;
    let entries = run_all(&experiments, args.experiment.seed, args.real)?;
    write_results(&entries, &dir)
}

/// Runs all experiments, and writes their results and the report.
pub fn write_report(args: &cli::ReportArgs) -> Result<(), AppError> {
    let cli::SeedAndOutputArgs { seed, out } = &args.experiment;
    let dir = OutputDir::open(out)?;
    let entries = run_all(&catalog::ALL, *seed, false)?;
    let page = dir
        .write("report.html", report::page(&entries, *seed, &format!("coplay-lab report --seed {seed}")).as_bytes())?;
    let result = write_results(&entries, &dir);
    coplay_shell::print_stdout(&format!("wrote the report to {}\n", page.display()));
    result
}

fn find_experiment(name: &str) -> Result<&'static Experiment, AppError> {
    catalog::find(name).ok_or_else(|| {
        let names: Vec<&str> = catalog::ALL.iter().map(|experiment| experiment.name).collect();
        AppError::usage(format!("there is no experiment {name:?}"))
            .hint(format!("the experiments are {}", names.join(", ")))
    })
}

/// Runs experiments one after the other, and shows their progress. If `real`, runs them in real time, too.
fn run_all(experiments: &[&'static Experiment], seed: u64, real: bool) -> Result<Vec<ReportEntry>, AppError> {
    let bar = ProgressBar::new(experiments.iter().map(|experiment| expected_seconds(experiment, real)).collect());
    let mut entries = Vec::new();
    for (index, experiment) in experiments.iter().enumerate() {
        bar.begin(index, experiment.name);
        let findings = run_experiment(experiment, seed, real, &|fraction| bar.report(fraction))?;
        let real = if real { " --real" } else { "" };
        let command = format!("coplay-lab run {} --seed {seed}{real}", experiment.name);
        entries.push(ReportEntry { experiment, findings, command });
    }
    bar.end();
    Ok(entries)
}

/// Returns the approximate duration of an experiment in seconds, which is its weight in the progress bar.
fn expected_seconds(experiment: &Experiment, real: bool) -> f64 {
    if real { real_run::EXPECTED_SECONDS } else { experiment.expected_seconds }
}

fn run_experiment(
    experiment: &Experiment,
    seed: u64,
    real: bool,
    on_progress: &(dyn Fn(f64) + Sync),
) -> Result<Findings, AppError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut context = ExperimentContext::new(seed, ExperimentLength::Full, threads, on_progress);
    match experiment.real_run.filter(|_| real) {
        None => Ok((experiment.run)(&mut context)),
        Some(run) => {
            let mut processes = ProcessRunner::new()?;
            run(&mut context, &mut processes).map_err(|error| {
                AppError::failure(error)
                    .hint("run the command again; if `coplay host --udp 127.0.0.1:0` fails, too, leave out --real")
            })
        }
    }
}

/// Writes the result files of all experiments, and prints which claims hold. A claim that does not hold is an error.
fn write_results(entries: &[ReportEntry], dir: &OutputDir) -> Result<(), AppError> {
    let mut text = String::new();
    let mut written = 0;
    for entry in entries {
        for file in report::files(entry) {
            dir.write(&file.name, &file.bytes)?;
            written += 1;
        }
        text += &format!("{}: {}\n", entry.experiment.name, entry.experiment.title);
        entry.findings.claims.iter().for_each(|claim| text += &format!("  {}\n", claim.to_line()));
    }
    text += &format!("wrote {written} files to {}\n", dir.path().display());
    coplay_shell::print_stdout(&text);
    let claims = entries.iter().flat_map(|entry| &entry.findings.claims);
    let (all, failed) = claims.fold((0, 0), |(all, failed), claim| (all + 1, failed + usize::from(!claim.holds)));
    if failed == 0 {
        return Ok(());
    }
    Err(AppError::failure(format!("{failed} of {all} claims do not hold"))
        .hint("see the lines marked DOES NOT HOLD; the written files contain the data"))
}
