//! `bench`: how many players three servers carry on this computer.
//!
//! For each number of players and each policy three servers are started in processes of their own, and software players in this one press
//! other buttons 25 times a second: each time such that the servers have to tell each other. Once everybody is in, and a little later, it is
//! measured for a while: what servers and players count is taken before and after, so the rush at the beginning decides nothing. A number is
//! *carried* if everybody is in, 95 % of the commands were heard, and 99 % of the events that servers told each other were delivered within
//! 150 ms of being issued. If the players did not press as often as they should it says so: that is not the servers' limit.
//!
//! All processes read the same clock here, where the system has one; how far the servers disagree on the time that they share, which delays are measured by, is told at the end.
//!
//! Players and servers share the processors, as there is no other computer to put them on. So that it is the servers that are short of time
//! first, and not those who measure, the servers run with `nice`: players get what they need, and servers the rest. What the players took is in the
//! table; on a computer of their own the servers would have that, too.

mod row;
mod search;
mod servers;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::cli::{BenchArgs, PolicyName};
use crate::error::CliError;
use crate::signals;
use row::{Row, TABLE_HEADER, Verdict, measure};
use search::CapacitySearch;

/// What was found out so far.
struct BenchRun<'a> {
    args: &'a BenchArgs,
    searches: Vec<(PolicyName, CapacitySearch)>,
    rows: Vec<Row>,
    deadline: Instant,
}

/// Measures, and prints a table as it grows.
pub fn run(args: &BenchArgs) -> Result<ExitCode, CliError> {
    signals::install_handler();
    let mut findings = BenchRun {
        args,
        searches: args.policy.iter().map(|policy| (*policy, CapacitySearch::default())).collect(),
        rows: Vec::new(),
        deadline: Instant::now() + Duration::from_secs(60) * args.minutes,
    };
    if let Some(load) = load_average() {
        println!("load average before: {load}");
    }
    println!("{TABLE_HEADER}");
    let done = match &args.players[..] {
        [] => findings.find_limits(),
        players => findings.try_counts(players),
    };
    // Also where it had to end sooner, what was found so far counts.
    findings.print_summary();
    done.map(|()| ExitCode::SUCCESS)
}

impl BenchRun<'_> {
    /// Looks for the limit of each policy: all in turn, so that what else the computer does is the same for all.
    fn find_limits(&mut self) -> Result<(), CliError> {
        while !self.is_over() && self.searches.iter().any(|(_, search)| search.next_count().is_some()) {
            for at in 0..self.searches.len() {
                if let Some(players) = self.searches[at].1.next_count() {
                    self.try_count(at, players)?;
                }
            }
        }
        Ok(())
    }

    /// Tries these numbers, until one is too many for all.
    fn try_counts(&mut self, numbers: &[u32]) -> Result<(), CliError> {
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

    /// Tries a number. What is not carried is tried once more: something else may have been in the way.
    fn try_count(&mut self, at: usize, players: u32) -> Result<(), CliError> {
        let mut is_carried = self.measure_row(self.searches[at].0, players)?;
        if is_carried == Some(false) {
            is_carried = self.measure_row(self.searches[at].0, players)?.or(is_carried);
        }
        if let Some(is_carried) = is_carried {
            self.searches[at].1.record(players, is_carried);
        }
        Ok(())
    }

    /// Adds a row to the table. Whether it is carried; nothing if it is over before.
    fn measure_row(&mut self, policy: PolicyName, players: u32) -> Result<Option<bool>, CliError> {
        if self.is_over() {
            return Ok(None);
        }
        let tell = |what: &str| show_progress(&format!("{players} players, {}: {what}", policy.name()));
        let Some(row) = measure(players, policy, self.args.seconds, tell)? else { return Ok(None) };
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
            let is_it = |row: &&Row| row.policy == *policy && Some(row.players) == search.min_overloaded;
            let beyond = match self.rows.iter().rfind(is_it) {
                Some(Row { verdict: Verdict::LoadNotOffered, players, .. }) => {
                    format!("; with {players} the players cannot keep up on this computer as it is now")
                }
                Some(row) => format!("; not {}: {}, p99 {} ms", row.players, row.verdict, row.p99_ms),
                None => "; more were not tried".into(),
            };
            println!("{} carries {} players{beyond}", policy.name(), search.max_carried);
        }
        let apart = self.rows.iter().map(|row| row.clock_spread_ms).fold(0.0, f64::max);
        println!("the servers disagreed on the time by {apart:.2} ms at most; delays are in steps of 1 ms");
        if let Some(load) = load_average() {
            println!("load average after: {load}");
        }
    }
}

/// How busy the computer was, in all, for one, five and fifteen minutes, where the system tells.
fn load_average() -> Option<String> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let numbers: Vec<&str> = text.split_whitespace().take(3).collect();
    Some(numbers.join(" "))
}

/// Tells whoever looks what is being done, in a line that the next one replaces.
fn show_progress(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[2K{what}");
        let _ = terminal.flush();
    }
}
