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

use crate::cli::{Bench, PolicyName};
use crate::stop;
use crate::trouble::Trouble;
use row::{HEAD, Row, Verdict, measure};
use search::Search;

/// What was found out so far.
struct Findings<'a> {
    args: &'a Bench,
    policies: Vec<(PolicyName, Search)>,
    rows: Vec<Row>,
    until: Instant,
}

/// Measures, and prints a table as it grows.
pub fn run(args: &Bench) -> Result<ExitCode, Trouble> {
    stop::listen();
    let mut findings = Findings {
        args,
        policies: args.policy.iter().map(|policy| (*policy, Search::default())).collect(),
        rows: Vec::new(),
        until: Instant::now() + Duration::from_secs(60) * args.minutes,
    };
    if let Some(load) = load_average() {
        println!("load average before: {load}");
    }
    println!("{HEAD}");
    let done = match &args.players[..] {
        [] => findings.search(),
        players => findings.try_all(players),
    };
    // Also where it had to end sooner, what was found so far counts.
    findings.conclude();
    done.map(|()| ExitCode::SUCCESS)
}

impl Findings<'_> {
    /// Looks for the limit of each policy: all in turn, so that what else the computer does is the same for all.
    fn search(&mut self) -> Result<(), Trouble> {
        while !self.is_over() && self.policies.iter().any(|(_, search)| search.next().is_some()) {
            for at in 0..self.policies.len() {
                if let Some(players) = self.policies[at].1.next() {
                    self.try_one(at, players)?;
                }
            }
        }
        Ok(())
    }

    /// Tries these numbers, until one is too many for all.
    fn try_all(&mut self, numbers: &[u32]) -> Result<(), Trouble> {
        for players in numbers {
            let before = self.rows.len();
            for at in 0..self.policies.len() {
                self.try_one(at, *players)?;
            }
            if !self.rows[before..].iter().any(Row::is_carried) {
                break;
            }
        }
        Ok(())
    }

    /// Tries a number. What is not carried is tried once more: something else may have been in the way.
    fn try_one(&mut self, at: usize, players: u32) -> Result<(), Trouble> {
        let mut is_carried = self.measure(self.policies[at].0, players)?;
        if is_carried == Some(false) {
            is_carried = self.measure(self.policies[at].0, players)?.or(is_carried);
        }
        if let Some(is_carried) = is_carried {
            self.policies[at].1.learn(players, is_carried);
        }
        Ok(())
    }

    /// Adds a row to the table. Whether it is carried; nothing if it is over before.
    fn measure(&mut self, policy: PolicyName, players: u32) -> Result<Option<bool>, Trouble> {
        if self.is_over() {
            return Ok(None);
        }
        let tell = |what: &str| progress(&format!("{players} players, {}: {what}", policy.name()));
        let Some(row) = measure(players, policy, self.args.seconds, tell)? else { return Ok(None) };
        progress("");
        println!("{row}");
        let is_carried = row.is_carried();
        self.rows.push(row);
        Ok(Some(is_carried))
    }

    fn is_over(&self) -> bool {
        stop::is_asked() || Instant::now() >= self.until
    }

    fn conclude(&self) {
        progress("");
        for (policy, search) in &self.policies {
            let is_it = |row: &&Row| row.policy == *policy && Some(row.players) == search.refused;
            let beyond = match self.rows.iter().rfind(is_it) {
                Some(Row { verdict: Verdict::NotOffered, players, .. }) => {
                    format!("; with {players} the players cannot keep up on this computer as it is now")
                }
                Some(row) => format!("; not {}: {}, p99 {} ms", row.players, row.verdict, row.p99),
                None => "; more were not tried".into(),
            };
            println!("{} carries {} players{beyond}", policy.name(), search.carried);
        }
        let apart = self.rows.iter().map(|row| row.clocks_apart).fold(0.0, f64::max);
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
fn progress(what: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[2K{what}");
        let _ = terminal.flush();
    }
}
