//! Converts findings to files and to one HTML page.
//!
//! The page opens from disk and fetches nothing. It contains no date, so equal seeds give equal bytes.

mod files;
mod page;

pub use files::{ReportFile, files};
pub use page::page;

use crate::experiment::Experiment;
use crate::findings::Findings;

/// An experiment with its findings.
#[derive(Clone, Debug)]
pub struct ReportEntry {
    /// Experiment that was run.
    pub experiment: &'static Experiment,
    /// Results of the experiment.
    pub findings: Findings,
    /// Command line that reproduces the findings.
    pub command: String,
}
