//! How far it is, and how long it will still take: one line that changes in a terminal, and a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How wide the bar is.
const WIDTH: usize = 28;
/// How often a terminal is told, and anybody else.
const OFTEN: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_secs(10);

/// Tells how far it is.
pub(super) struct Bar {
    /// About how long each of the things to do takes, compared to the others.
    weights: Vec<f64>,
    terminal: bool,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    number: usize,
    name: &'static str,
    /// The most that was told: threads need not come in order.
    part: f64,
    told: Option<Instant>,
}

impl Bar {
    pub(super) fn new(weights: Vec<f64>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { weights, terminal, begun: Instant::now(), state: Mutex::new(State::default()) }
    }

    /// Begins the next thing.
    pub(super) fn begin(&self, number: usize, name: &'static str) {
        *self.lock() = State { number, name, part: 0.0, told: None };
        self.tell(0.0);
    }

    /// So much of it is done, from 0 to 1.
    pub(super) fn tell(&self, part: f64) {
        let mut state = self.lock();
        state.part = state.part.max(part.min(1.0));
        let every = if self.terminal { OFTEN } else { SELDOM };
        if state.told.is_some_and(|told| told.elapsed() < every) {
            return;
        }
        state.told = Some(Instant::now());
        let line = line(self.whole(&state), &state, self.weights.len(), self.begun.elapsed(), self.terminal);
        // Who does not want to listen need not.
        _ = write!(std::io::stderr(), "{line}").and_then(|()| std::io::stderr().flush());
    }

    /// Leaves nothing of it on the screen.
    pub(super) fn end(&self) {
        if self.terminal {
            _ = write!(std::io::stderr(), "\r{:79}\r", "").and_then(|()| std::io::stderr().flush());
        }
    }

    /// How much of everything is done.
    fn whole(&self, state: &State) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let before: f64 = self.weights.iter().take(state.number).sum();
        let now = self.weights.get(state.number).map_or(0.0, |weight| weight * state.part);
        (before + now) / all.max(f64::MIN_POSITIVE)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(whole: f64, state: &State, count: usize, elapsed: Duration, terminal: bool) -> String {
    let State { number, name, .. } = state;
    let place = format!("{} of {count}", number + 1);
    let left = left(whole, elapsed);
    if !terminal {
        return format!(
            "{name} ({place}): {:.0} % of all{}\n",
            whole * 100.0,
            left.map_or_else(String::new, |left| format!(", about {left}"))
        );
    }
    let full = (whole * WIDTH as f64).round() as usize;
    let bar = "━".repeat(full) + &"╌".repeat(WIDTH - full.min(WIDTH));
    let line = format!("{bar} {:3.0} %  {place:<8} {name:<12} {}", whole * 100.0, left.unwrap_or_default());
    format!("\r{line:<79}")
}

/// How long it will still take, once that can be guessed.
fn left(whole: f64, elapsed: Duration) -> Option<String> {
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
    fn parts_of_things_are_parts_of_the_whole() {
        let bar = Bar::new(vec![1.0, 3.0]);
        let whole = |number, part| bar.whole(&State { number, name: "x", part, told: None });
        assert_eq!([whole(0, 0.0), whole(0, 1.0), whole(1, 0.5), whole(1, 1.0)], [0.0, 0.25, 0.625, 1.0]);
    }

    #[test]
    fn what_is_left_is_guessed_from_what_was() {
        let state = State { number: 0, name: "pacing", part: 0.5, told: None };
        let told = line(0.25, &state, 2, Duration::from_secs(10), false);
        assert_eq!(told, "pacing (1 of 2): 25 % of all, about 30 s left\n");
        assert!(line(0.25, &state, 2, Duration::from_secs(100), true).contains("5 min left"));
        assert!(line(0.0, &state, 2, Duration::ZERO, true).contains("  0 %"));
        assert!(line(1.0, &state, 2, Duration::from_secs(9), true).chars().count() <= 80);
    }
}
