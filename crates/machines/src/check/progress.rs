//! How far the check is, and when it has to come to an end.

use std::time::{Duration, Instant};

use super::verdict::Comparison;

/// How far the check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is compared just now.
    pub comparison: Comparison,
    /// How much of that is done, in percent.
    pub percent: u8,
    /// How much longer all of it will take, at most.
    pub left: Duration,
}

/// It is told this often.
const EVERY: Duration = Duration::from_millis(100);
/// Frames of every comparison that are played whatever time it takes: fewer say nothing.
const LEAST: u32 = 30;

/// One comparison's part in the whole.
#[derive(Clone, Copy, Debug)]
struct Part {
    comparison: Comparison,
    /// Its frames.
    frames: u32,
    /// Steps that a frame takes, in tenths.
    weight: u32,
    /// Until this much of the time is over it may go on, in percent.
    until: u32,
}

/// Keeps the time.
pub(super) struct Clock<'a> {
    tell: &'a mut dyn FnMut(Progress),
    begun: Instant,
    told: Option<Instant>,
    budget: Duration,
    parts: [Part; 6],
    now: Comparison,
    cut: Vec<Comparison>,
}

impl<'a> Clock<'a> {
    pub(super) fn new(short: u32, long: u32, budget: Duration, tell: &'a mut dyn FnMut(Progress)) -> Self {
        let part = |comparison, frames, weight, until| Part { comparison, frames, weight, until };
        let parts = [
            part(Comparison::Together, short, 20, 20),
            part(Comparison::Anew, short / 6, 10, 25),
            part(Comparison::Repaired, short * 2 / 3, 25, 45),
            part(Comparison::Apart, short, 10, 60),
            part(Comparison::Cold, short / 3, 10, 65),
            part(Comparison::Long, long.saturating_sub(short), 10, 100),
        ];
        Self { tell, begun: Instant::now(), told: None, budget, parts, now: Comparison::Together, cut: Vec::new() }
    }

    /// How long it has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Frames that a comparison should have.
    pub(super) fn frames(&self, comparison: Comparison) -> u32 {
        self.part(comparison).map_or(0, |part| part.frames)
    }

    /// Begins a comparison.
    pub(super) fn begin(&mut self, comparison: Comparison) {
        (self.now, self.told) = (comparison, None);
        self.tell(0);
    }

    /// So many frames of the comparison are done.
    pub(super) fn tick(&mut self, done: u32) {
        if self.told.is_none_or(|told| told.elapsed() >= EVERY) {
            self.tell(done);
        }
    }

    /// Likewise: whether there is time for another.
    pub(super) fn goes_on(&mut self, done: u32) -> bool {
        self.tick(done);
        let until = self.part(self.now).map_or(100, |part| part.until);
        let in_time = done < LEAST || self.elapsed() < self.budget * until / 100;
        if !in_time && !self.cut.contains(&self.now) {
            self.cut.push(self.now);
        }
        in_time
    }

    /// The comparisons for which there was not enough time.
    pub(super) fn cut(&self) -> &[Comparison] {
        &self.cut
    }

    fn part(&self, comparison: Comparison) -> Option<&Part> {
        self.parts.iter().find(|part| part.comparison == comparison)
    }

    fn tell(&mut self, done: u32) {
        self.told = Some(Instant::now());
        let steps = |part: &Part| u64::from(part.frames) * u64::from(part.weight);
        let Some(part) = self.part(self.now).copied() else { return };
        let before: u64 = self.parts.iter().take_while(|part| part.comparison != self.now).map(steps).sum();
        let past = before + u64::from(done) * u64::from(part.weight);
        let all: u64 = self.parts.iter().map(steps).sum();
        let elapsed = self.elapsed();
        let rest = self.budget.saturating_sub(elapsed);
        let guessed = elapsed.as_secs_f64() * all.saturating_sub(past) as f64 / past.max(1) as f64;
        let left = if past == 0 { rest } else { rest.min(Duration::try_from_secs_f64(guessed).unwrap_or(rest)) };
        let percent = (u64::from(done) * 100 / u64::from(part.frames.max(1))).min(100) as u8;
        (self.tell)(Progress { comparison: self.now, percent, left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_time_the_least_is_done_and_that_is_told() {
        let mut told = Vec::new();
        let mut tell = |progress| told.push(progress);
        let mut clock = Clock::new(900, 7_200, Duration::ZERO, &mut tell);
        clock.begin(Comparison::Together);
        assert!(clock.goes_on(0) && clock.goes_on(LEAST - 1));
        assert!(clock.cut().is_empty());
        assert!(!clock.goes_on(LEAST));
        assert_eq!(clock.cut(), [Comparison::Together]);
        assert_eq!(told[0], Progress { comparison: Comparison::Together, percent: 0, left: Duration::ZERO });
    }

    #[test]
    fn with_time_it_goes_on_and_the_rest_shrinks() {
        let mut told = Vec::new();
        let mut tell = |progress: Progress| told.push((progress.percent, progress.left));
        let mut clock = Clock::new(900, 7_200, Duration::from_secs(1_000), &mut tell);
        clock.begin(Comparison::Long);
        assert!(clock.goes_on(6_000) && clock.cut().is_empty());
        clock.tell(6_300);
        assert_eq!(told.last(), Some(&(100, Duration::ZERO)));
    }
}
