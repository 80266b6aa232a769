//! How far the check is, and when it has to come to an end.

use std::time::{Duration, Instant};

use super::verdict::CheckComparison;

/// How far the check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// What is compared just now.
    pub comparison: CheckComparison,
    /// How much of that is done, in percent.
    pub percent: u8,
    /// How much longer all of it will take, at most.
    pub time_left: Duration,
}

/// It is told this often.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Frames of every comparison that are played whatever time it takes: fewer say nothing.
const MIN_FRAMES: u32 = 30;

/// One comparison's part in the whole.
#[derive(Clone, Copy, Debug)]
struct ComparisonBudget {
    comparison: CheckComparison,
    /// Its frames.
    frames: u32,
    /// Steps that a frame takes, in tenths.
    tenth_steps_per_frame: u32,
    /// Until this much of the time is over it may go on, in percent.
    end_percent: u32,
}

/// Keeps the time.
pub(super) struct CheckTimer<'a> {
    report_progress: &'a mut dyn FnMut(CheckProgress),
    started_at: Instant,
    last_progress: Option<Instant>,
    time_budget: Duration,
    comparison_budgets: [ComparisonBudget; 6],
    current: CheckComparison,
    cut_short: Vec<CheckComparison>,
}

impl<'a> CheckTimer<'a> {
    pub(super) fn new(short: u32, long: u32, budget: Duration, tell: &'a mut dyn FnMut(CheckProgress)) -> Self {
        let part = |comparison, frames, weight, until| ComparisonBudget {
            comparison,
            frames,
            tenth_steps_per_frame: weight,
            end_percent: until,
        };
        let parts = [
            part(CheckComparison::SameProcess, short, 20, 20),
            part(CheckComparison::AfterReset, short / 6, 10, 25),
            part(CheckComparison::AfterRollback, short * 2 / 3, 25, 45),
            part(CheckComparison::OtherProcess, short, 10, 60),
            part(CheckComparison::ColdLoad, short / 3, 10, 65),
            part(CheckComparison::LongRun, long.saturating_sub(short), 10, 100),
        ];
        Self {
            report_progress: tell,
            started_at: Instant::now(),
            last_progress: None,
            time_budget: budget,
            comparison_budgets: parts,
            current: CheckComparison::SameProcess,
            cut_short: Vec::new(),
        }
    }

    /// How long it has been.
    pub(super) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Frames that a comparison should have.
    pub(super) fn frames(&self, comparison: CheckComparison) -> u32 {
        self.comparison_budget(comparison).map_or(0, |part| part.frames)
    }

    /// Begins a comparison.
    pub(super) fn begin(&mut self, comparison: CheckComparison) {
        (self.current, self.last_progress) = (comparison, None);
        self.report_progress(0);
    }

    /// So many frames of the comparison are done.
    pub(super) fn update_progress(&mut self, done: u32) {
        if self.last_progress.is_none_or(|told| told.elapsed() >= PROGRESS_INTERVAL) {
            self.report_progress(done);
        }
    }

    /// Likewise: whether there is time for another.
    pub(super) fn has_time_for_next(&mut self, done: u32) -> bool {
        self.update_progress(done);
        let until = self.comparison_budget(self.current).map_or(100, |part| part.end_percent);
        let in_time = done < MIN_FRAMES || self.elapsed() < self.time_budget * until / 100;
        if !in_time && !self.cut_short.contains(&self.current) {
            self.cut_short.push(self.current);
        }
        in_time
    }

    /// The comparisons for which there was not enough time.
    pub(super) fn cut_short(&self) -> &[CheckComparison] {
        &self.cut_short
    }

    fn comparison_budget(&self, comparison: CheckComparison) -> Option<&ComparisonBudget> {
        self.comparison_budgets.iter().find(|part| part.comparison == comparison)
    }

    fn report_progress(&mut self, done: u32) {
        self.last_progress = Some(Instant::now());
        let steps = |part: &ComparisonBudget| u64::from(part.frames) * u64::from(part.tenth_steps_per_frame);
        let Some(part) = self.comparison_budget(self.current).copied() else { return };
        let before: u64 =
            self.comparison_budgets.iter().take_while(|part| part.comparison != self.current).map(steps).sum();
        let past = before + u64::from(done) * u64::from(part.tenth_steps_per_frame);
        let all: u64 = self.comparison_budgets.iter().map(steps).sum();
        let elapsed = self.elapsed();
        let rest = self.time_budget.saturating_sub(elapsed);
        let guessed = elapsed.as_secs_f64() * all.saturating_sub(past) as f64 / past.max(1) as f64;
        let left = if past == 0 { rest } else { rest.min(Duration::try_from_secs_f64(guessed).unwrap_or(rest)) };
        let percent = (u64::from(done) * 100 / u64::from(part.frames.max(1))).min(100) as u8;
        (self.report_progress)(CheckProgress { comparison: self.current, percent, time_left: left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_budget_runs_minimum_frames_and_is_reported_as_cut_short() {
        let mut told = Vec::new();
        let mut tell = |progress| told.push(progress);
        let mut clock = CheckTimer::new(900, 7_200, Duration::ZERO, &mut tell);
        clock.begin(CheckComparison::SameProcess);
        assert!(clock.has_time_for_next(0) && clock.has_time_for_next(MIN_FRAMES - 1));
        assert!(clock.cut_short().is_empty());
        assert!(!clock.has_time_for_next(MIN_FRAMES));
        assert_eq!(clock.cut_short(), [CheckComparison::SameProcess]);
        assert_eq!(
            told[0],
            CheckProgress { comparison: CheckComparison::SameProcess, percent: 0, time_left: Duration::ZERO }
        );
    }

    #[test]
    fn time_left_reaches_zero_when_all_frames_are_done() {
        let mut told = Vec::new();
        let mut tell = |progress: CheckProgress| told.push((progress.percent, progress.time_left));
        let mut clock = CheckTimer::new(900, 7_200, Duration::from_secs(1_000), &mut tell);
        clock.begin(CheckComparison::LongRun);
        assert!(clock.has_time_for_next(6_000) && clock.cut_short().is_empty());
        clock.report_progress(6_300);
        assert_eq!(told.last(), Some(&(100, Duration::ZERO)));
    }
}
