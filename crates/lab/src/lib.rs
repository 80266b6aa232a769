//! The lab reruns the papers' experiments with the [`coplay`] engine and shows our results beside theirs.
//!
//! All experiments run on [`coplay_sim`], in virtual time and from one seed. An experiment may also compare its results
//! with those of real sessions, which the calling program runs ([`real_run`]). This crate reads no clock, opens no file
//! and starts no process; the calling program does. Independent runs are distributed over several threads
//! ([`bench`](mod@bench)). The results do not depend on the number of threads.
//!
//! An [experiment](experiment::Experiment) is one small file: a name, a summary, the figures of the paper that it
//! reproduces, and a function from an [`ExperimentContext`](bench::ExperimentContext) to
//! [`Findings`](findings::Findings): tables, figures, and claims that hold or fail. To add an experiment, write such a
//! file and list it in [`catalog`]. The [`report`] then contains it, and its tables and figures become CSV, [SVG](plot)
//! and [PNG](figure_png) files.

pub mod bench;
pub mod catalog;
pub mod experiment;
pub mod link_preview;
pub mod papers;

pub mod figure_png;
pub mod findings;
pub mod gautier;
pub mod kim;
pub mod li;
pub mod numbers;
pub mod palazzi;
pub mod plot;
pub mod real_run;
pub mod report;
pub mod table;
pub mod zhao;
