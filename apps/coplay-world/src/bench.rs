//! `bench`: how many players three servers carry on this computer.
//!
//! For each number of players and each policy, three servers run in processes of their own, and bots in this process
//! change their buttons 16 times a second, each time such that the servers must exchange an update. Once all bots have
//! joined and the load has settled, the counters of servers and bots are read at the beginning and at the end of a
//! measurement, so the rush of the joins does not count. A number is *carried* if all bots are in the world, the
//! servers received at least 95 % of the nominal 16 commands per player and second, and at each server 99 % of the
//! events of the others were delivered within 150 ms of being issued. If the bots issued less than 95 % of the nominal
//! commands, the table marks the row, which then says nothing about the servers.
//!
//! All processes read the same clock, where the system has one. Delays are measured in the group time of the servers;
//! the summary shows how far the servers disagree on it.
//!
//! Bots and servers share the processors, as there is no other computer to run the bots on. Where the system has the
//! command `nice`, the servers run at a lower priority, so that they are short of processor time first, not the bots
//! that measure: the bots get what they need, and the servers the rest. The table shows the processor time of the bots;
//! on computers of their own the servers would have that, too.

mod row;
mod search;
mod servers;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use coplay_shell::error::AppError;
use coplay_shell::signals;

use crate::cli::{BenchArgs, PolicyName};
use row::{Row, TABLE_HEADER, Verdict, measure};
use search::CapacitySearch;

/// Benchmark in progress: the search of each policy, the rows so far, and the time limit.
struct BenchRun<'a> {
    args: &'a BenchArgs,
    searches: Vec<(PolicyName, CapacitySearch)>,
    rows: Vec<Row>,
    deadline: Instant,
}

/// Runs the measurements, prints the table row by row, and then the largest carried number of players of each policy.
pub fn run(args: &BenchArgs) -> Result<ExitCode, AppError> {
    signals::install_handler();
    let mut bench = BenchRun {
        args,
        searches: args.policy.iter().map(|policy| (*policy, CapacitySearch::default())).collect(),
        rows: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(60) * args.minutes,
    };
    if let Some(load) = load_average() {
        println!("load average before the benchmark, over 1, 5 and 15 min: {load}");
    }
    println!("{TABLE_HEADER}");
    let done = match &args.players[..] {
        [] => bench.find_limits(),
        players => bench.try_counts(players),
    };
    // Also after an error, the results so far count.
    bench.print_summary();
    done.map(|()| ExitCode::SUCCESS)
}

impl BenchRun<'_> {
    /// Searches the limit of each policy, all in turn, so that other load on the computer affects all alike.
    fn find_limits(&mut self) -> Result<(), AppError> {
        while !self.is_over() && self.searches.iter().any(|(_, search)| search.next_count().is_some()) {
            for at in 0..self.searches.len() {
                if let Some(players) = self.searches[at].1.next_count() {
                    self.try_count(at, players)?;
                }
            }
        }
        Ok(())
    }

    /// Measures these numbers of players in order, each with every policy. Stops after a number that no policy carries.
    fn try_counts(&mut self, numbers: &[u32]) -> Result<(), AppError> {
        for players in numbers {
            let before = self.rows.len();
            for at in 0..self.searches.len() {
                self.try_count(at, *players)?;
            }
            if !self.rows[before..].iter().any(Row::is_carried) {
                break;
            }
        }
        Ok(())
    }

    /// Measures a number of players with the policy of search `at`. If it is not carried, measures once more: other
    /// load may have interfered.
    fn try_count(&mut self, at: usize, players: u32) -> Result<(), AppError> {
        let mut is_carried = self.measure_row(self.searches[at].0, players)?;
        if is_carried == Some(false) {
            is_carried = self.measure_row(self.searches[at].0, players)?.or(is_carried);
        }
        if let Some(is_carried) = is_carried {
            self.searches[at].1.record(players, is_carried);
        }
        Ok(())
    }

    /// Measures a row and prints it. Returns whether its players are carried; `None` if the time is over or a signal
    /// asked to stop.
    fn measure_row(&mut self, policy: PolicyName, players: u32) -> Result<Option<bool>, AppError> {
        if self.is_over() {
            return Ok(None);
        }
        let on_progress = |step: &str| show_progress(&format!("{players} players, {}: {step}", policy.name()));
        let Some(row) = measure(players, policy, self.args.seconds, on_progress)? else { return Ok(None) };
        show_progress("");
        println!("{row}");
        let is_carried = row.is_carried();
        self.rows.push(row);
        Ok(Some(is_carried))
    }

    fn is_over(&self) -> bool {
        signals::is_stop_requested() || Instant::now() >= self.deadline
    }

    fn print_summary(&self) {
        show_progress("");
        for (policy, search) in &self.searches {
            let is_limit = |row: &&Row| row.policy == *policy && Some(row.players) == search.min_overloaded;
            let limit = self.rows.iter().rfind(is_limit).map(|row| match row.verdict {
                Verdict::LoadNotOffered => {
                    format!("with {} players the bots are too slow on this computer", row.players)
                }
                verdict => format!("with {} players: {verdict}, p99 of event delays {} ms", row.players, row.p99_ms),
            });
            let result = match (search.max_carried, limit) {
                (0, None) => "no number of players was measured".to_owned(),
                (0, Some(limit)) => format!("the servers carried none of the measured numbers of players; {limit}"),
                (players, None) => format!("the servers carry {players} players; larger numbers were not measured"),
                (players, Some(limit)) => format!("the servers carry {players} players; {limit}"),
            };
            println!("{}: {result}", policy.name());
        }
        let spread = self.rows.iter().map(|row| row.clock_spread_ms).fold(0.0, f64::max);
        println!(
            "the group times (shared clocks) of the servers differed by {spread:.2} ms at most; delays have a resolution of 1 ms"
        );
        if let Some(load) = load_average() {
            println!("load average after the benchmark, over 1, 5 and 15 min: {load}");
        }
    }
}

/// Returns the load average over 1, 5 and 15 minutes, where the system reports it.
fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let numbers: Vec<&str> = text.split_whitespace().take(3).collect();
    Some(numbers.join(" "))
}

/// Shows progress on standard error if it is a terminal, in a line that the next progress replaces.
fn show_progress(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[2K{text}");
        let _ = terminal.flush();
    }
}
