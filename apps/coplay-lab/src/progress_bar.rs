//! Progress and remaining time on stderr: one changing line in a terminal; elsewhere one line at the start of each
//! task, and then at most one line per 10 s.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Width of the bar, in characters.
const BAR_WIDTH: usize = 28;
/// Shortest time between two updates of a task in a terminal. The first update of a task is printed at once.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest time between two lines of a task if stderr is not a terminal, such as a log file.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of several tasks that run one after the other, on stderr.
pub(crate) struct ProgressBar {
    /// Expected duration of each task, relative to the others.
    weights: Vec<f64>,
    is_terminal: bool,
    started: Instant,
    state: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    index: usize,
    name: &'static str,
    /// Largest reported fraction of the current task. Reports of several threads may arrive out of order.
    fraction: f64,
    last_printed: Option<Instant>,
}

impl ProgressBar {
    pub(crate) fn new(weights: Vec<f64>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { weights, is_terminal, started: Instant::now(), state: Mutex::new(Progress::default()) }
    }

    /// Starts task `index`, and prints its name.
    pub(crate) fn begin(&self, index: usize, name: &'static str) {
        *self.lock() = Progress { index, name, fraction: 0.0, last_printed: None };
        self.report(0.0);
    }

    /// Reports the completed fraction of the current task, from 0 to 1. Prints the total progress if the last line is
    /// [`TERMINAL_INTERVAL`] old in a terminal, [`LOG_INTERVAL`] elsewhere.
    pub(crate) fn report(&self, fraction: f64) {
        let mut state = self.lock();
        state.fraction = state.fraction.max(fraction.min(1.0));
        let interval = if self.is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        if state.last_printed.is_some_and(|printed| printed.elapsed() < interval) {
            return;
        }
        state.last_printed = Some(Instant::now());
        let line = format_line(
            self.total_fraction(&state),
            &state,
            self.weights.len(),
            self.started.elapsed(),
            self.is_terminal,
        );
        // A closed stderr is not an error.
        _ = write!(std::io::stderr(), "{line}").and_then(|()| std::io::stderr().flush());
    }

    /// Clears the line, if stderr is a terminal.
    pub(crate) fn end(&self) {
        if self.is_terminal {
            _ = write!(std::io::stderr(), "\r{:79}\r", "").and_then(|()| std::io::stderr().flush());
        }
    }

    /// Returns the completed fraction of all tasks, by their weights.
    fn total_fraction(&self, state: &Progress) -> f64 {
        let total: f64 = self.weights.iter().sum();
        let before: f64 = self.weights.iter().take(state.index).sum();
        let current = self.weights.get(state.index).map_or(0.0, |weight| weight * state.fraction);
        (before + current) / total.max(f64::MIN_POSITIVE)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn format_line(total: f64, state: &Progress, count: usize, elapsed: Duration, is_terminal: bool) -> String {
    let Progress { index, name, .. } = state;
    let position = format!("{} of {count}", index + 1);
    let left = time_left(total, elapsed);
    if !is_terminal {
        return format!(
            "{name} ({position}): {:.0} % of the total{}\n",
            total * 100.0,
            left.map_or_else(String::new, |left| format!(", about {left}"))
        );
    }
    let full = (total * BAR_WIDTH as f64).round() as usize;
    let bar = "━".repeat(full) + &"╌".repeat(BAR_WIDTH - full.min(BAR_WIDTH));
    let line = format!("{bar} {:3.0} %  {position:<8} {name:<12} {}", total * 100.0, left.unwrap_or_default());
    format!("\r{line:<79}")
}

/// Estimates the remaining time from the completed fraction `total` and the elapsed time; `None` below 1 % or 0.5 s.
fn time_left(total: f64, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64();
    if total < 0.01 || seconds < 0.5 {
        return None;
    }
    let left = (seconds * (1.0 - total) / total).round();
    Some(if left < 90.0 { format!("{left:.0} s left") } else { format!("{:.0} min left", (left / 60.0).ceil()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_fractions_are_weighted_into_the_total() {
        let bar = ProgressBar::new(vec![1.0, 3.0]);
        let total = |index, fraction| bar.total_fraction(&Progress { index, name: "x", fraction, last_printed: None });
        assert_eq!([total(0, 0.0), total(0, 1.0), total(1, 0.5), total(1, 1.0)], [0.0, 0.25, 0.625, 1.0]);
    }

    #[test]
    fn remaining_time_is_estimated_from_elapsed_time() {
        let state = Progress { index: 0, name: "pacing", fraction: 0.5, last_printed: None };
        let line = format_line(0.25, &state, 2, Duration::from_secs(10), false);
        assert_eq!(line, "pacing (1 of 2): 25 % of the total, about 30 s left\n");
        assert!(format_line(0.25, &state, 2, Duration::from_secs(100), true).contains("5 min left"));
        assert!(format_line(0.0, &state, 2, Duration::ZERO, true).contains("  0 %"));
        assert!(format_line(1.0, &state, 2, Duration::from_secs(9), true).chars().count() <= 80);
    }
}
