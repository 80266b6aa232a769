//! Measures what a frame costs at one site, the game excluded: coplay beside ggrs in one run, first in lockstep, then
//! when both guess.
//!
//! Machines are noisy, so the engines take turns, round after round, and the medians of all rounds are compared. In
//! lockstep there is no network. Instructions are counted by valgrind, which runs this program again for each engine:
//! once with fewer frames and once with more, so that everything but the frames cancels out. When engines guess, it is
//! on a network in virtual time, row by row, and in the end it is said which rows meet which goals.

mod goals;
mod instruction_count;
mod lockstep_measure;
mod lockstep_report;
mod rollback_report;

use std::process::ExitCode;

use lockstep_measure::Subject;

const USAGE: &str = "usage: coplay-bench [--lockstep | --rollback] [--sites N,N,...]
                    [--frames N] [--rounds N]   in lockstep
                    [--quick] [--spans N]       when engines guess: fewer rows, and N times 10 seconds each
       coplay-bench --once ENGINE SITES FRAMES   run one engine and measure nothing, for profilers";

/// What to do.
enum Task {
    Measure(BenchPlan),
    Once(Subject, usize, u32),
}

/// What to measure.
struct BenchPlan {
    sites: Vec<usize>,
    lockstep: bool,
    frames: u32,
    rounds: usize,
    rollback: bool,
    rollback_plan: rollback_report::RollbackPlan,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match parse(&words) {
        Ok(Task::Measure(plan)) => measure_all(&plan),
        Ok(Task::Once(subject, sites, frames)) => subject.run_once(sites, frames),
        Err(problem) => {
            let engines: Vec<&str> = Subject::ALL.iter().map(|subject| subject.name()).collect();
            eprintln!("error: {problem}\n{USAGE}\nhint: the engines are {}", engines.join(", "));
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn parse(words: &[String]) -> Result<Task, String> {
    let mut words = words.iter();
    let rows = rollback_report::RollbackPlan { is_quick: false, spans: 6 };
    let mut plan = BenchPlan {
        sites: vec![2, 4, 8],
        lockstep: true,
        frames: 20_000,
        rounds: 7,
        rollback: true,
        rollback_plan: rows,
    };
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} wants more"));
        match word.as_str() {
            "--once" => {
                let (name, sites, frames) = (next()?, next()?, next()?);
                let subject = Subject::from_name(name).ok_or_else(|| format!("no engine is called '{name}'"))?;
                return Ok(Task::Once(subject, sites_from(sites)?, number(frames)?));
            }
            "--frames" => plan.frames = number(next()?)?,
            "--rounds" => plan.rounds = number(next()?)? as usize,
            "--lockstep" => plan.rollback = false,
            "--rollback" => plan.lockstep = false,
            "--quick" => plan.rollback_plan.is_quick = true,
            "--spans" => plan.rollback_plan.spans = number(next()?)?,
            "--sites" => plan.sites = next()?.split(',').map(sites_from).collect::<Result<_, _>>()?,
            _ => return Err(format!("'{word}' is not understood")),
        }
    }
    Ok(Task::Measure(plan))
}

fn number(word: &str) -> Result<u32, String> {
    word.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("'{word}' is not a number from 1 on"))
}

fn sites_from(word: &str) -> Result<usize, String> {
    let sites = number(word)? as usize;
    if (2..=coplay::id::MAX_SITES).contains(&sites) { Ok(sites) } else { Err(format!("{sites} sites cannot play")) }
}

fn measure_all(plan: &BenchPlan) {
    if plan.lockstep {
        measure_lockstep(plan);
    }
    if plan.lockstep && plan.rollback {
        println!();
    }
    if plan.rollback {
        rollback_report::measure_and_print(&plan.sites, &plan.rollback_plan);
    }
}

fn measure_lockstep(plan: &BenchPlan) {
    lockstep_report::preface(plan.frames, plan.rounds);
    let counting = instruction_count::is_valgrind_available();
    for sites in &plan.sites {
        let mut rows = lockstep_measure::measure_rounds(*sites, plan.frames, plan.rounds);
        if counting {
            for row in &mut rows {
                eprintln!("{sites} sites: counting the instructions of {}", row.subject.name());
                row.instructions = instruction_count::per_frame_and_site(row.subject, *sites);
            }
        }
        lockstep_report::table(*sites, &rows);
    }
}
