//! Measures the cost of a frame at one site, excluding the game: coplay and ggrs in one run, first in lockstep, then
//! with rollback.
//!
//! The speed of a computer varies. The engines therefore take turns, round after round, and the medians of all rounds
//! are compared. Lockstep runs without a network. Valgrind counts the instructions in lockstep: this program runs twice
//! per engine under valgrind, with fewer and with more frames, so that everything but the frames cancels out. Rollback
//! runs on a network in virtual time, row by row, and at the end the program prints which rows meet which goals.

mod goals;
mod instruction_count;
mod lockstep_measure;
mod lockstep_report;
mod rollback_report;

use std::process::ExitCode;

use lockstep_measure::MeasuredEngine;

const USAGE: &str = "usage: coplay-bench [--lockstep | --rollback] [--sites N,N,...]
                    [--frames N] [--rounds N]   lockstep: frames per round, number of rounds
                    [--quick] [--spans N]       rollback: measure fewer rows, N spans of 10 s per row
       coplay-bench --once ENGINE SITES FRAMES   run one engine without measurement, for profilers";

/// Task given on the command line.
enum Task {
    Measure(BenchPlan),
    Once(MeasuredEngine, usize, u32),
}

/// Measurements to make, and their sizes.
struct BenchPlan {
    sites: Vec<usize>,
    lockstep: bool,
    frames: u32,
    rounds: usize,
    rollback: bool,
    rollback_plan: rollback_report::ReportExtent,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match parse(&args) {
        Ok(Task::Measure(plan)) => measure_all(&plan),
        Ok(Task::Once(subject, sites, frames)) => subject.run_once(sites, frames),
        Err(error) => {
            let engines: Vec<&str> = MeasuredEngine::ALL.iter().map(|subject| subject.name()).collect();
            eprintln!("error: {error}\n{USAGE}\nhint: ENGINE is one of {}", engines.join(", "));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn parse(args: &[String]) -> Result<Task, String> {
    let mut args = args.iter();
    let rows = rollback_report::ReportExtent { is_quick: false, spans: 6 };
    let mut plan = BenchPlan {
        sites: vec![2, 4, 8],
        lockstep: true,
        frames: 20_000,
        rounds: 7,
        rollback: true,
        rollback_plan: rows,
    };
    while let Some(arg) = args.next() {
        let mut next = || args.next().ok_or_else(|| format!("missing value after {arg}"));
        match arg.as_str() {
            "--once" => {
                let (name, sites, frames) = (next()?, next()?, next()?);
                let subject = MeasuredEngine::from_name(name).ok_or_else(|| format!("there is no engine '{name}'"))?;
                return Ok(Task::Once(subject, sites_from(sites)?, number(frames)?));
            }
            "--frames" => plan.frames = number(next()?)?,
            "--rounds" => plan.rounds = number(next()?)? as usize,
            "--lockstep" => plan.rollback = false,
            "--rollback" => plan.lockstep = false,
            "--quick" => plan.rollback_plan.is_quick = true,
            "--spans" => plan.rollback_plan.spans = number(next()?)?,
            "--sites" => plan.sites = next()?.split(',').map(sites_from).collect::<Result<_, _>>()?,
            _ => return Err(format!("there is no option {arg}")),
        }
    }
    Ok(Task::Measure(plan))
}

fn number(arg: &str) -> Result<u32, String> {
    arg.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid value '{arg}': must be a whole number, at least 1"))
}

fn sites_from(arg: &str) -> Result<usize, String> {
    let sites = number(arg)? as usize;
    if (2..=coplay::id::MAX_SITES).contains(&sites) {
        Ok(sites)
    } else {
        Err(format!("invalid number of sites {sites}: must be 2 to {}", coplay::id::MAX_SITES))
    }
}

fn measure_all(plan: &BenchPlan) {
    if plan.lockstep {
        measure_lockstep(plan);
    }
    if plan.lockstep && plan.rollback {
        println!();
    }
    if plan.rollback {
        goals::print(&rollback_report::measure_and_print(&plan.sites, &plan.rollback_plan));
    }
}

fn measure_lockstep(plan: &BenchPlan) {
    lockstep_report::preface(plan.frames, plan.rounds);
    let counts_instructions = instruction_count::is_valgrind_available();
    for sites in &plan.sites {
        let mut rows = lockstep_measure::measure_rounds(*sites, plan.frames, plan.rounds);
        if counts_instructions {
            for row in &mut rows {
                eprintln!("{sites} sites: counting the instructions of {}", row.subject.name());
                row.instructions = instruction_count::per_frame_and_site(row.subject, *sites);
            }
        }
        lockstep_report::table(*sites, &rows);
    }
}
