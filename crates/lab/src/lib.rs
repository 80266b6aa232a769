//! The lab: what the papers measured, measured again with the engine of [`coplay`], ours beside theirs.
//!
//! Everything runs on [`coplay_sim`], in virtual time and from one seed. Nothing here reads a clock, opens a file or starts a process: that
//! is for the program that asks. Runs that have nothing to do with each other are spread over the processors ([`bench`](mod@bench)), and what comes out does
//! not depend on how many there are.
//!
//! An [experiment](experiment::Experiment) is one small file: a name, what it shows, which figures of which paper it belongs to, and a function
//! from a [`Bench`](bench::ExperimentContext) to [`Findings`](probe_findings::ProbeFindings): tables, figures, and claims that hold or do not. To add one, write such a
//! file and name it in [`catalog`]. The rest follows: CSV, [SVG](plot), [PNG](image), and its place in the [run_check].

pub mod bench;
pub mod catalog;
pub mod experiment;
pub mod link_preview;

pub mod findings;
pub mod gautier;
pub mod image;
pub mod kim;
pub mod li;
pub mod numbers;
pub mod palazzi;
pub mod plot;
pub mod real_run;
pub mod report;
pub mod table;
pub mod zhao;
