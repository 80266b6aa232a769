//! The types that describe an experiment and its paper.

use crate::bench::ExperimentContext;
use crate::findings::Findings;
use crate::real_run::RealRunner;

/// An experiment of a paper, or one that extends the paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name on the command line and in file names.
    pub name: &'static str,
    /// Title in the report.
    pub title: &'static str,
    /// Method and result of the experiment in a few sentences, for the report.
    pub summary: &'static str,
    /// Paper that the experiment belongs to.
    pub paper: &'static PaperInfo,
    /// Figures of the paper that the experiment reproduces, or the relation of the experiment to them.
    pub paper_figures: &'static str,
    /// Approximate run time on two processors, in seconds.
    pub expected_seconds: f64,
    /// Runs the experiment in virtual time.
    pub run: fn(&mut ExperimentContext<'_>) -> Findings,
    /// Runs the experiment in virtual time and on real sockets; `None` if it supports only virtual time.
    pub real_run: Option<RealRunFn>,
}

/// Runs an experiment in virtual time and on real sockets. Fails with the error of the real run.
pub type RealRunFn = fn(&mut ExperimentContext<'_>, &mut dyn RealRunner) -> Result<Findings, String>;

/// Bibliographic data of a paper.
#[derive(Debug, PartialEq, Eq)]
pub struct PaperInfo {
    /// One-letter abbreviation in the report.
    pub letter: &'static str,
    /// Authors and year.
    pub authors: &'static str,
    /// Title of the paper.
    pub title: &'static str,
}
