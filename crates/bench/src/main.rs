//! Measures what a frame costs at one site, the game excluded: coplay beside ggrs in its lockstep mode, in one run.
//!
//! Machines are noisy, so the engines take turns, round after round, and the medians of all rounds are compared.
//! Instructions are counted by valgrind, which runs this program again for each engine: once with fewer frames and once
//! with more, so that everything but the frames cancels out.

mod instructions;
mod measure;
mod report;

use std::process::ExitCode;

use measure::Subject;

const USAGE: &str = "usage: coplay-bench [--frames N] [--rounds N] [--sites N,N,...]
       coplay-bench --once ENGINE SITES FRAMES   run one engine and measure nothing, for profilers";

/// What to do.
enum Task {
    Measure(Plan),
    Once(Subject, usize, u32),
}

/// What to measure.
struct Plan {
    frames: u32,
    rounds: usize,
    sites: Vec<usize>,
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
    let mut plan = Plan { frames: 20_000, rounds: 7, sites: vec![2, 4, 8] };
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} wants more"));
        match word.as_str() {
            "--once" => {
                let (name, sites, frames) = (next()?, next()?, next()?);
                let subject = Subject::named(name).ok_or_else(|| format!("no engine is called '{name}'"))?;
                return Ok(Task::Once(subject, sites_from(sites)?, number(frames)?));
            }
            "--frames" => plan.frames = number(next()?)?,
            "--rounds" => plan.rounds = number(next()?)? as usize,
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

fn measure_all(plan: &Plan) {
    report::preface(plan.frames, plan.rounds);
    let counting = instructions::available();
    for sites in &plan.sites {
        let mut rows = measure::rounds(*sites, plan.frames, plan.rounds);
        if counting {
            for row in &mut rows {
                eprintln!("{sites} sites: counting the instructions of {}", row.subject.name());
                row.instructions = instructions::per_frame_and_site(row.subject, *sites);
            }
        }
        report::table(*sites, &rows);
    }
}
