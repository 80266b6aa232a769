//! What an experiment is.

use crate::bench::Bench;
use crate::field::Field;
use crate::findings::Findings;

/// One experiment of a paper, or one that goes on where the paper stops.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called on a command line.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// What it shows, in a sentence or two.
    pub shows: &'static str,
    /// Whose it is.
    pub paper: &'static Paper,
    /// Which figures of the paper these are, or what it adds to them.
    pub figures: &'static str,
    /// About how long it takes on two processors.
    pub seconds: f64,
    /// Does it in virtual time.
    pub run: fn(&mut Bench<'_>) -> Findings,
    /// Does it in virtual time and in the field, where that can be done; or says what went wrong there.
    pub real: Option<InTheField>,
}

/// Does an experiment in virtual time and in the field.
pub type InTheField = fn(&mut Bench<'_>, &mut dyn Field) -> Result<Findings, String>;

/// A paper.
#[derive(Debug, PartialEq, Eq)]
pub struct Paper {
    /// Its letter, for short.
    pub letter: &'static str,
    /// Who wrote it, and when.
    pub authors: &'static str,
    /// What it is called.
    pub title: &'static str,
}
