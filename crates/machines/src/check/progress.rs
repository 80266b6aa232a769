//! Progress and time budget of the check.

use std::time::{Duration, Instant};

use super::verdict::CheckComparison;

/// Progress that a running check reports, at most every 100 ms within a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Comparison that is running.
    pub comparison: CheckComparison,
    /// Completed part of the current comparison, in percent.
    pub percent: u8,
    /// Estimated time until the whole check ends, at most the rest of its time budget.
    pub time_left: Duration,
}

/// Minimum interval between two progress reports within a comparison.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Number of frames that a comparison runs even if the time budget is exhausted.
const MIN_FRAMES: u32 = 30;

/// Planned length and deadline of one comparison.
#[derive(Clone, Copy, Debug)]
struct ComparisonBudget {
    comparison: CheckComparison,
    /// Planned number of frames.
    frames: u32,
    /// Machine steps that one frame of the comparison costs, in tenths of a step.
    tenth_steps_per_frame: u32,
    /// Deadline of the comparison, in percent of the time budget, counted from the creation of the timer.
    end_percent: u32,
}

/// Measures the time of the check, reports progress and ends comparisons that take too long.
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
    pub(super) fn new(
        short: u32,
        long: u32,
        time_budget: Duration,
        on_progress: &'a mut dyn FnMut(CheckProgress),
    ) -> Self {
        let budget = |comparison, frames, weight, end_percent| ComparisonBudget {
            comparison,
            frames,
            tenth_steps_per_frame: weight,
            end_percent,
        };
        let budgets = [
            budget(CheckComparison::SameProcess, short, 20, 20),
            budget(CheckComparison::AfterReset, short / 6, 10, 25),
            budget(CheckComparison::AfterRollback, short * 2 / 3, 25, 45),
            budget(CheckComparison::OtherProcess, short, 10, 60),
            budget(CheckComparison::ColdLoad, short / 3, 10, 65),
            budget(CheckComparison::LongRun, long.saturating_sub(short), 10, 100),
        ];
        Self {
            report_progress: on_progress,
            started_at: Instant::now(),
            last_progress: None,
            time_budget,
            comparison_budgets: budgets,
            current: CheckComparison::SameProcess,
            cut_short: Vec::new(),
        }
    }

    /// Returns the time since the timer was created, after the smoke test.
    pub(super) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Returns the planned number of frames of a comparison; 0 if none are planned.
    pub(super) fn frames(&self, comparison: CheckComparison) -> u32 {
        self.comparison_budget(comparison).map_or(0, |budget| budget.frames)
    }

    /// Makes `comparison` the current one and reports its start.
    pub(super) fn begin(&mut self, comparison: CheckComparison) {
        (self.current, self.last_progress) = (comparison, None);
        self.report_progress(0);
    }

    /// Reports progress after `done` frames of the current comparison, at most once per [`PROGRESS_INTERVAL`].
    pub(super) fn update_progress(&mut self, done: u32) {
        if self.last_progress.is_none_or(|reported| reported.elapsed() >= PROGRESS_INTERVAL) {
            self.report_progress(done);
        }
    }

    /// Reports progress after `done` frames of the current comparison and returns whether there is time for another
    /// frame. If not, records that the comparison was cut short.
    pub(super) fn has_time_for_next(&mut self, done: u32) -> bool {
        self.update_progress(done);
        let end_percent = self.comparison_budget(self.current).map_or(100, |budget| budget.end_percent);
        let has_time = done < MIN_FRAMES || self.elapsed() < self.time_budget * end_percent / 100;
        if !has_time && !self.cut_short.contains(&self.current) {
            self.cut_short.push(self.current);
        }
        has_time
    }

    /// Returns the comparisons that ended before their planned number of frames, for lack of time.
    pub(super) fn cut_short(&self) -> &[CheckComparison] {
        &self.cut_short
    }

    fn comparison_budget(&self, comparison: CheckComparison) -> Option<&ComparisonBudget> {
        self.comparison_budgets.iter().find(|budget| budget.comparison == comparison)
    }

    fn report_progress(&mut self, done: u32) {
        self.last_progress = Some(Instant::now());
        let steps = |budget: &ComparisonBudget| u64::from(budget.frames) * u64::from(budget.tenth_steps_per_frame);
        let Some(budget) = self.comparison_budget(self.current).copied() else { return };
        let steps_before: u64 =
            self.comparison_budgets.iter().take_while(|budget| budget.comparison != self.current).map(steps).sum();
        let done_steps = steps_before + u64::from(done) * u64::from(budget.tenth_steps_per_frame);
        let total_steps: u64 = self.comparison_budgets.iter().map(steps).sum();
        let elapsed = self.elapsed();
        let budget_left = self.time_budget.saturating_sub(elapsed);
        let estimated =
            elapsed.as_secs_f64() * total_steps.saturating_sub(done_steps) as f64 / done_steps.max(1) as f64;
        let time_left = if done_steps == 0 {
            budget_left
        } else {
            budget_left.min(Duration::try_from_secs_f64(estimated).unwrap_or(budget_left))
        };
        let percent = (u64::from(done) * 100 / u64::from(budget.frames.max(1))).min(100) as u8;
        (self.report_progress)(CheckProgress { comparison: self.current, percent, time_left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_budget_runs_minimum_frames_and_is_reported_as_cut_short() {
        let mut reports = Vec::new();
        let mut on_progress = |progress| reports.push(progress);
        let mut timer = CheckTimer::new(900, 7_200, Duration::ZERO, &mut on_progress);
        timer.begin(CheckComparison::SameProcess);
        assert!(timer.has_time_for_next(0) && timer.has_time_for_next(MIN_FRAMES - 1));
        assert!(timer.cut_short().is_empty());
        assert!(!timer.has_time_for_next(MIN_FRAMES));
        assert_eq!(timer.cut_short(), [CheckComparison::SameProcess]);
        assert_eq!(
            reports[0],
            CheckProgress { comparison: CheckComparison::SameProcess, percent: 0, time_left: Duration::ZERO }
        );
    }

    #[test]
    fn time_left_reaches_zero_when_all_frames_are_done() {
        let mut reports = Vec::new();
        let mut on_progress = |progress: CheckProgress| reports.push((progress.percent, progress.time_left));
        let mut timer = CheckTimer::new(900, 7_200, Duration::from_secs(1_000), &mut on_progress);
        timer.begin(CheckComparison::LongRun);
        assert!(timer.has_time_for_next(6_000) && timer.cut_short().is_empty());
        timer.report_progress(6_300);
        assert_eq!(reports.last(), Some(&(100, Duration::ZERO)));
    }
}
