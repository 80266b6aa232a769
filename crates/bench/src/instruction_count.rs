//! Instruction counts of the engines, from valgrind.

use std::process::{Command, Stdio};

use crate::lockstep_measure::MeasuredEngine;

/// Returns the number of frames of the shorter and of the longer run. Coplay's clock synchronization looks back 40 s,
/// and its cost rises in the first 40 s. So both runs of coplay, each with a warm-up of 10 s, are longer than 40 s. The
/// cost of ggrs is constant.
fn run_lengths(subject: MeasuredEngine) -> (u32, u32) {
    match subject {
        MeasuredEngine::Driver | MeasuredEngine::Coplay(_) => (2_400, 4_800),
        MeasuredEngine::Ggrs(..) => (300, 900),
    }
}

/// Returns whether valgrind is available. Prints a hint if not.
pub(crate) fn is_valgrind_available() -> bool {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("note: valgrind is not installed, so instructions are not counted");
        eprintln!("hint: run `sudo apt-get install valgrind`");
    }
    found
}

/// Returns the instructions per frame and site, from the difference of two runs; `None` if valgrind fails.
pub(crate) fn per_frame_and_site(subject: MeasuredEngine, sites: usize) -> Option<f64> {
    let (short, long) = run_lengths(subject);
    let difference =
        count_instructions(subject, sites, long)?.saturating_sub(count_instructions(subject, sites, short)?);
    Some(difference as f64 / f64::from(long - short) / sites as f64)
}

fn count_instructions(subject: MeasuredEngine, sites: usize, frames: u32) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["--once", subject.name(), &sites.to_string(), &frames.to_string()])
        .output();
    let log = String::from_utf8_lossy(&output.as_ref().ok()?.stderr).into_owned();
    let counted = parse_total(&log);
    if counted.is_none() {
        eprintln!("valgrind did not count the instructions of {}; the output of valgrind:\n{log}", subject.name());
    }
    counted
}

/// Returns the number in the line `==1234== I refs: 12,345` of valgrind's log; `None` if there is no such line.
fn parse_total(log: &str) -> Option<u64> {
    let (_, number) = log.lines().filter_map(|line| line.split_once("refs:")).find(|(name, _)| name.contains(" I "))?;
    number.chars().filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_total_is_parsed_from_the_valgrind_log() {
        assert_eq!(parse_total("==7== Command: x\n==7== \n==7== I   refs:      12,345,678\n"), Some(12_345_678));
        assert_eq!(parse_total("==7== I refs: 12\n==7== D refs: 13 (1 rd + 2 wr)\n"), Some(12));
        assert_eq!(parse_total("error: no such program"), None);
    }
}
