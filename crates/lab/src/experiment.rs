//! What an experiment is.

use crate::bench::ExperimentContext;
use crate::findings::Findings;
use crate::real_run::RealRunner;

/// One experiment of a paper, or one that goes on where the paper stops.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// What it shows, in a sentence or two.
    pub summary: &'static str,
    /// Whose it is.
    pub paper: &'static PaperInfo,
    /// Which figures of the paper these are, or what it adds to them.
    pub paper_figures: &'static str,
    /// About how long it takes on two processors.
    pub expected_seconds: f64,
    /// Does it in virtual time.
    pub run: fn(&mut ExperimentContext<'_>) -> Findings,
    /// Does it in virtual time and in the field, where that can be done; or says what went wrong there.
    pub real_run: Option<RealRunFn>,
}

/// Does an experiment in virtual time and in the field.
pub type RealRunFn = fn(&mut ExperimentContext<'_>, &mut dyn RealRunner) -> Result<Findings, String>;

/// A paper.
#[derive(Debug, PartialEq, Eq)]
pub struct PaperInfo {
    /// Its letter, for short.
    pub letter: &'static str,
    /// Who wrote it, and when.
    pub authors: &'static str,
    /// What it is called.
    pub title: &'static str,
}
