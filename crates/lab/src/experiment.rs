//! The types that describe an experiment and its paper.

use crate::bench::ExperimentContext;
use crate::findings::Findings;
use crate::real_run::RealRunner;

/// An experiment that repeats one of a paper, or that goes beyond the paper.
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
    /// Text for lists and the report: the figures of the paper that the experiment reproduces, or how the experiment
    /// goes beyond them.
    pub paper_figures: &'static str,
    /// Approximate duration of `run` at full length on two processors, in seconds.
    pub expected_seconds: f64,
    /// Runs the experiment in virtual time.
    pub run: fn(&mut ExperimentContext<'_>) -> Findings,
    /// Runs the experiment in virtual time and on real sockets; `None` if the experiment supports only virtual time.
    pub real_run: Option<RealRunFn>,
}

/// Function that runs an experiment in virtual time and on real sockets. It fails with the error message of a real
/// session.
pub type RealRunFn = fn(&mut ExperimentContext<'_>, &mut dyn RealRunner) -> Result<Findings, String>;

/// Bibliographic data of a paper.
#[derive(Debug, PartialEq, Eq)]
pub struct PaperInfo {
    /// One-letter abbreviation of the paper in the report.
    pub letter: &'static str,
    /// Authors and year.
    pub authors: &'static str,
    /// Title of the paper.
    pub title: &'static str,
}
