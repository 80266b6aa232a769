//! Runs the jobs of an experiment on several threads, with the same results for any number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Amount of work of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentLength {
    /// All runs at full length.
    Full,
    /// Fewer and shorter runs, but enough to check every claim; used by tests.
    Short,
}

/// Seed, length, threads and progress callback of a running experiment.
pub struct ExperimentContext<'a> {
    /// Seed of all randomness in the experiment.
    pub seed: u64,
    /// Whether the experiment runs in full or in its short version.
    pub length: ExperimentLength,
    threads: usize,
    progress: f64,
    on_progress: &'a (dyn Fn(f64) + Sync),
}

impl<'a> ExperimentContext<'a> {
    /// Creates a context that runs jobs on `threads` threads. `on_progress` receives the completed fraction of the
    /// experiment, from 0 to 1.
    pub fn new(seed: u64, length: ExperimentLength, threads: usize, on_progress: &'a (dyn Fn(f64) + Sync)) -> Self {
        Self { seed, length, threads: threads.max(1), progress: 0.0, on_progress }
    }

    /// Returns `full` in full experiments and `short` in short ones.
    pub fn full_or_short<T>(&self, full: T, short: T) -> T {
        match self.length {
            ExperimentLength::Full => full,
            ExperimentLength::Short => short,
        }
    }

    /// Runs independent jobs on the threads and returns their results in job order. Together the jobs are the fraction
    /// `part` of the experiment, from 0 to 1.
    pub fn run_jobs<J: Sync, R: Send>(&mut self, part: f64, jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
        let (started, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let (progress_before, on_progress) = (self.progress, self.on_progress);
        let work = || {
            while let Some(index) = Some(started.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < jobs.len()) {
                let result = run(&jobs[index]);
                *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                let finished = finished.fetch_add(1, Ordering::Relaxed) + 1;
                on_progress(progress_before + part * finished as f64 / jobs.len() as f64);
            }
        };
        in_threads(self.threads.min(jobs.len()), &work);
        self.progress += part;
        let result = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|slot| result(slot).expect("every job has a result")).collect()
    }

    /// Adds the fraction `part` to the progress and reports it.
    pub fn add_progress(&mut self, part: f64) {
        self.progress += part;
        (self.on_progress)(self.progress);
    }
}

/// Runs `work` on `threads` threads, the current one included. It is the only function of this crate that starts
/// threads.
#[expect(clippy::disallowed_methods, reason = "every job writes to its own result slot")]
fn in_threads(threads: usize, work: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| _ = scope.spawn(work));
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_job_order_for_any_number_of_threads() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [0, 1, 2, 7] {
            let reported = Mutex::new(Vec::new());
            let on_progress = |part: f64| reported.lock().unwrap().push(part);
            let mut context = ExperimentContext::new(1, ExperimentLength::Short, threads, &on_progress);
            let squares = context.run_jobs(0.5, &jobs, |job| job * job);
            assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>(), "{threads} threads");
            context.add_progress(0.5);
            let reported = reported.into_inner().unwrap();
            assert_eq!(reported.len(), 101);
            assert!((reported[100] - 1.0).abs() < 1e-9 && reported[..100].iter().all(|part| *part <= 0.5 + 1e-9));
        }
    }

    #[test]
    fn empty_job_list_returns_no_results() {
        let mut context = ExperimentContext::new(1, ExperimentLength::Full, 4, &|_| {});
        assert!(context.run_jobs(1.0, &[] as &[u8], |_| ()).is_empty());
    }
}
