//! What is made of findings: files, and one page with everything.
//!
//! The page opens from disk and fetches nothing. It says nothing of when it was made, so the same seed gives the same bytes.

mod files;
mod page;

pub use files::{ReportFile, files};
pub use page::page;

use crate::experiment::Experiment;
use crate::findings::Findings;

/// An experiment and what came of it.
#[derive(Clone, Debug)]
pub struct ReportEntry {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// What came of it.
    pub findings: Findings,
    /// What to type to do it again.
    pub command: String,
}
