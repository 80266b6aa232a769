//! What a game with others came to: a summary, and files for those who measure.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use coplay_net::DropCounts;
use coplay_net::runner::{EndReason, FrameLog, MovieRecorder, RunOutcome};

use super::errors;
use crate::cli::net::LogArgs;
use crate::error::{AppError, describe_io_error};
use crate::summary::Summary;

/// The file for every step, if one is wanted.
pub(super) fn open_frame_log(log: &LogArgs) -> Result<Option<FrameLog>, AppError> {
    let Some(path) = &log.frame_log else { return Ok(None) };
    let file = File::create(path).map_err(|error| write_error(path, &error))?;
    let log = FrameLog::new(Box::new(BufWriter::new(file))).map_err(|error| write_error(path, &error))?;
    Ok(Some(log))
}

/// The movie of what is played, if one is wanted.
pub(super) fn open_recorder(log: &LogArgs) -> Result<Option<MovieRecorder>, AppError> {
    let Some(path) = &log.record else { return Ok(None) };
    crate::record::create_movie_file(path, log.force).map(|file| Some(MovieRecorder::new(file)))
}

/// A movie of nothing is none.
pub(super) fn remove_empty_movie(log: &LogArgs) {
    let is_empty = |path: &&std::path::PathBuf| std::fs::metadata(path).is_ok_and(|found| found.len() == 0);
    if let Some(path) = log.record.as_ref().filter(is_empty) {
        // If it cannot be taken away it does no harm either.
        _ = std::fs::remove_file(path);
    }
}

/// A file that cannot be written, and why.
pub(crate) fn write_error(path: &Path, error: &std::io::Error) -> AppError {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such directory".into(),
        _ => describe_io_error(error),
    };
    AppError::failure(format!("{} cannot be written: {why}", path.display()))
        .hint("choose a place that you may write to")
}

/// Writes what is to be written, and says how it went.
pub(super) fn finish(outcome: &RunOutcome, log: &LogArgs, notes: Vec<String>) -> Result<Summary, AppError> {
    if let Some(path) = &log.stats {
        let json = outcome.stats.to_json() + "\n";
        std::fs::write(path, json).map_err(|error| write_error(path, &error))?;
    }
    let mut summary = summary(outcome).with_notes(notes);
    if let (Some(taped), Some(path)) = (&outcome.recording, &log.record) {
        let about = taped.error.clone().unwrap_or_else(|| format!("frames in {}", path.display()));
        summary.add_row("recorded", taped.frames.to_string(), &about);
    }
    let trouble = match &outcome.end_reason {
        _ if !outcome.is_in_sync => Some(
            AppError::failure("the sites had different states: they did not play the same game to the end")
                .hint("is the machine deterministic, and the same everywhere? try another --core, or the built-in one"),
        ),
        EndReason::SessionEnded(end) => errors::end_error(end),
        EndReason::Requested | EndReason::FeedEnded => None,
    };
    match trouble {
        Some(trouble) => {
            summary.print();
            Err(trouble)
        }
        None => Ok(summary),
    }
}

fn summary(outcome: &RunOutcome) -> Summary {
    let numbers = &outcome.stats;
    let mut summary = Summary::default();
    summary.add_row("frames", outcome.confirmed_frames.to_string(), &end_text(&outcome.end_reason));
    summary.add_row(
        "pace",
        format!("{:.2} fps", numbers.fps),
        &format!("±{:.2} ms, at worst {:.0} ms", numbers.deviation_ms, numbers.longest_ms),
    );
    let equal = if outcome.is_in_sync { "yes" } else { "no" };
    summary.add_row("states equal", equal.into(), "as far as they were compared");
    if !numbers.peers.is_empty() {
        let worst = |of: fn(&coplay::session::PeerStats) -> f64| {
            numbers.peers.iter().map(|(_, peer)| of(peer)).fold(0.0, f64::max)
        };
        summary.add_row("round trip", format!("{:.1} ms", worst(|peer| peer.rtt.as_millis_f64())), "the longest");
        summary.add_row("loss", format!("{:.1} %", worst(|peer| f64::from(peer.loss) * 100.0)), "the largest");
        let stats = &numbers.session;
        summary.add_row(
            "repaired",
            format!("{} times", stats.rollbacks),
            &format!("{} frames stepped again", stats.resimulated),
        );
        summary.add_row(
            "waited",
            format!("{} times", stats.stalls),
            &format!("{:.0} ms in all", stats.stall_time.as_millis_f64()),
        );
    }
    let refused = &numbers.drops;
    if refused.total() > 0 {
        let DropCounts { rejected: by_us, kernel_dropped: by_system, queue_full: crowded_out } = refused;
        let words = format!("datagrams: {by_us} by us, {by_system} by the system, {crowded_out} for want of room");
        summary.add_row("refused", refused.total().to_string(), &words);
    }
    summary
}

fn end_text(why: &EndReason) -> String {
    match why {
        EndReason::Requested => String::new(),
        EndReason::SessionEnded(end) => coplay::session::Event::Ended(*end).to_string(),
        EndReason::FeedEnded => "the game is over".into(),
    }
}
