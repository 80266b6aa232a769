//! Where experiments run: spread over the processors, with the same result whatever their number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentLength {
    /// All that the paper did.
    Full,
    /// Less of everything, but enough for every claim: for tests.
    Short,
}

/// What an experiment has at hand.
pub struct ExperimentContext<'a> {
    /// All randomness comes from this.
    pub seed: u64,
    /// How much is done.
    pub length: ExperimentLength,
    threads: usize,
    progress: f64,
    on_progress: &'a (dyn Fn(f64) + Sync),
}

impl<'a> ExperimentContext<'a> {
    /// A bench with so many threads, that tells which part of the experiment is done, from 0 to 1.
    pub fn new(seed: u64, length: ExperimentLength, threads: usize, tell: &'a (dyn Fn(f64) + Sync)) -> Self {
        Self { seed, length, threads: threads.max(1), progress: 0.0, on_progress: tell }
    }

    /// One value for full experiments, another for short ones.
    pub fn full_or_short<T>(&self, full: T, short: T) -> T {
        match self.length {
            ExperimentLength::Full => full,
            ExperimentLength::Short => short,
        }
    }

    /// Does all jobs, which have nothing to do with each other; what comes of them is in their order. They are this part of the
    /// experiment, from 0 to 1.
    pub fn run_jobs<J: Sync, R: Send>(&mut self, part: f64, jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
        let (begun, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let (before, tell) = (self.progress, self.on_progress);
        let work = || {
            while let Some(at) = Some(begun.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
                let result = run(&jobs[at]);
                *results[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                let finished = finished.fetch_add(1, Ordering::Relaxed) + 1;
                tell(before + part * finished as f64 / jobs.len() as f64);
            }
        };
        in_threads(self.threads.min(jobs.len()), &work);
        self.progress += part;
        let result = |slot: Mutex<Option<R>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|slot| result(slot).expect("every job was done")).collect()
    }

    /// So much of the experiment is done.
    pub fn add_progress(&mut self, part: f64) {
        self.progress += part;
        (self.on_progress)(self.progress);
    }
}

/// The one place in this crate that starts threads.
#[expect(clippy::disallowed_methods, reason = "every job has a place of its own for its result")]
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
            let told = Mutex::new(Vec::new());
            let tell = |part: f64| told.lock().unwrap().push(part);
            let mut bench = ExperimentContext::new(1, ExperimentLength::Short, threads, &tell);
            let squares = bench.run_jobs(0.5, &jobs, |job| job * job);
            assert_eq!(squares, jobs.iter().map(|job| job * job).collect::<Vec<_>>(), "{threads} threads");
            bench.add_progress(0.5);
            let told = told.into_inner().unwrap();
            assert_eq!(told.len(), 101);
            assert!((told[100] - 1.0).abs() < 1e-9 && told[..100].iter().all(|part| *part <= 0.5 + 1e-9));
        }
    }

    #[test]
    fn empty_job_list_returns_no_results() {
        let mut bench = ExperimentContext::new(1, ExperimentLength::Full, 4, &|_| {});
        assert!(bench.run_jobs(1.0, &[] as &[u8], |_| ()).is_empty());
    }
}
