//! How far it is, and how long it will still take: one line that changes in a terminal, and a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How wide the bar is.
const BAR_WIDTH: usize = 28;
/// How often a terminal is told, and anybody else.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Tells how far it is.
pub(super) struct ProgressBar {
    /// About how long each of the things to do takes, compared to the others.
    weights: Vec<f64>,
    is_terminal: bool,
    started: Instant,
    state: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    index: usize,
    name: &'static str,
    /// The most that was told: threads need not come in order.
    fraction: f64,
    last_printed: Option<Instant>,
}

impl ProgressBar {
    pub(super) fn new(weights: Vec<f64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { weights, is_terminal: terminal, started: Instant::now(), state: Mutex::new(Progress::default()) }
    }

    /// Begins the next thing.
    pub(super) fn begin(&self, number: usize, name: &'static str) {
        *self.lock() = Progress { index: number, name, fraction: 0.0, last_printed: None };
        self.report(0.0);
    }

    /// So much of it is done, from 0 to 1.
    pub(super) fn report(&self, part: f64) {
        let mut state = self.lock();
        state.fraction = state.fraction.max(part.min(1.0));
        let every = if self.is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        if state.last_printed.is_some_and(|told| told.elapsed() < every) {
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
        // Who does not want to listen need not.
        _ = write!(std::io::stderr(), "{line}").and_then(|()| std::io::stderr().flush());
    }

    /// Leaves nothing of it on the screen.
    pub(super) fn end(&self) {
        if self.is_terminal {
            _ = write!(std::io::stderr(), "\r{:79}\r", "").and_then(|()| std::io::stderr().flush());
        }
    }

    /// How much of everything is done.
    fn total_fraction(&self, state: &Progress) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let before: f64 = self.weights.iter().take(state.index).sum();
        let now = self.weights.get(state.index).map_or(0.0, |weight| weight * state.fraction);
        (before + now) / all.max(f64::MIN_POSITIVE)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn format_line(whole: f64, state: &Progress, count: usize, elapsed: Duration, terminal: bool) -> String {
    let Progress { index: number, name, .. } = state;
    let place = format!("{} of {count}", number + 1);
    let left = time_left(whole, elapsed);
    if !terminal {
        return format!(
            "{name} ({place}): {:.0} % of all{}\n",
            whole * 100.0,
            left.map_or_else(String::new, |left| format!(", about {left}"))
        );
    }
    let full = (whole * BAR_WIDTH as f64).round() as usize;
    let bar = "━".repeat(full) + &"╌".repeat(BAR_WIDTH - full.min(BAR_WIDTH));
    let line = format!("{bar} {:3.0} %  {place:<8} {name:<12} {}", whole * 100.0, left.unwrap_or_default());
    format!("\r{line:<79}")
}

/// How long it will still take, once that can be guessed.
fn time_left(whole: f64, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64();
    if whole < 0.01 || seconds < 0.5 {
        return None;
    }
    let left = (seconds * (1.0 - whole) / whole).round();
    Some(if left < 90.0 { format!("{left:.0} s left") } else { format!("{:.0} min left", (left / 60.0).ceil()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_fractions_are_weighted_into_the_total() {
        let bar = ProgressBar::new(vec![1.0, 3.0]);
        let whole = |number, part| {
            bar.total_fraction(&Progress { index: number, name: "x", fraction: part, last_printed: None })
        };
        assert_eq!([whole(0, 0.0), whole(0, 1.0), whole(1, 0.5), whole(1, 1.0)], [0.0, 0.25, 0.625, 1.0]);
    }

    #[test]
    fn remaining_time_is_estimated_from_elapsed_time() {
        let state = Progress { index: 0, name: "pacing", fraction: 0.5, last_printed: None };
        let told = format_line(0.25, &state, 2, Duration::from_secs(10), false);
        assert_eq!(told, "pacing (1 of 2): 25 % of all, about 30 s left\n");
        assert!(format_line(0.25, &state, 2, Duration::from_secs(100), true).contains("5 min left"));
        assert!(format_line(0.0, &state, 2, Duration::ZERO, true).contains("  0 %"));
        assert!(format_line(1.0, &state, 2, Duration::from_secs(9), true).chars().count() <= 80);
    }
}
