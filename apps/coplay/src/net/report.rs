//! Results of a shared game: summary, statistics and log files.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use coplay_net::DropCounts;
use coplay_net::runner::{EndReason, FrameLog, MovieRecorder, RunOutcome};
use coplay_shell::error::{AppError, describe_io_error};

use super::errors;
use crate::cli::net::RunOutputArgs;
use crate::summary::Summary;

/// Creates the file of `--frame-log`; `None` without the flag.
pub(super) fn open_frame_log(log: &RunOutputArgs) -> Result<Option<FrameLog>, AppError> {
    let Some(path) = &log.frame_log else { return Ok(None) };
    let file = File::create(path).map_err(|error| write_error(path, &error))?;
    let log = FrameLog::new(Box::new(BufWriter::new(file))).map_err(|error| write_error(path, &error))?;
    Ok(Some(log))
}

/// Creates the movie file of `--record`; `None` without the flag.
pub(super) fn open_recorder(log: &RunOutputArgs) -> Result<Option<MovieRecorder>, AppError> {
    let Some(path) = &log.record else { return Ok(None) };
    crate::record::create_movie_file(path, log.force).map(|file| Some(MovieRecorder::new(file)))
}

/// Removes the movie file if it is empty because the game never started.
pub(super) fn remove_empty_movie(log: &RunOutputArgs) {
    let is_empty = |path: &&std::path::PathBuf| std::fs::metadata(path).is_ok_and(|found| found.len() == 0);
    if let Some(path) = log.record.as_ref().filter(is_empty) {
        // An empty file that stays does no harm.
        _ = std::fs::remove_file(path);
    }
}

/// Returns the error for a file that cannot be created or written.
pub(crate) fn write_error(path: &Path, error: &std::io::Error) -> AppError {
    let reason = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such folder".into(),
        _ => describe_io_error(error),
    };
    AppError::failure(format!("cannot write {}: {reason}", path.display()))
        .hint("choose another file, in an existing folder with write permission and free space")
}

/// Writes the statistics file, and returns the summary. If the game ended with an error, prints the summary and returns
/// the error.
pub(super) fn finish(outcome: &RunOutcome, log: &RunOutputArgs, notes: Vec<String>) -> Result<Summary, AppError> {
    if let Some(path) = &log.stats {
        let json = outcome.stats.to_json() + "\n";
        std::fs::write(path, json).map_err(|error| write_error(path, &error))?;
    }
    let mut summary = summary(outcome).with_notes(notes);
    if let (Some(recording), Some(path)) = (&outcome.recording, &log.record) {
        let about = recording.error.clone().unwrap_or_else(|| format!("frames in {}", path.display()));
        summary.add_row("recorded", recording.frames.to_string(), &about);
    }
    let error = match &outcome.end_reason {
        _ if !outcome.is_in_sync => Some(
            AppError::failure("desync: the states of the sites differed")
                .hint("run `coplay check` with the same game and core at every site, or try another --core"),
        ),
        EndReason::SessionEnded(end) => errors::end_error(end),
        EndReason::Requested | EndReason::FeedEnded => None,
    };
    match error {
        Some(error) => {
            summary.print();
            Err(error)
        }
        None => Ok(summary),
    }
}

fn summary(outcome: &RunOutcome) -> Summary {
    let stats = &outcome.stats;
    let mut summary = Summary::default();
    summary.add_row("frames", outcome.confirmed_frames.to_string(), &end_text(&outcome.end_reason));
    summary.add_row(
        "pace",
        format!("{:.2} fps", stats.fps),
        &format!("frame interval: mean deviation {:.2} ms, longest {:.0} ms", stats.deviation_ms, stats.longest_ms),
    );
    let equal = if outcome.is_in_sync { "yes" } else { "no" };
    summary.add_row("states equal", equal.into(), "by the state hashes that the sites compared");
    if !stats.peers.is_empty() {
        let max = |value: fn(&coplay::session::PeerStats) -> f64| {
            stats.peers.iter().map(|(_, peer)| value(peer)).fold(0.0, f64::max)
        };
        summary.add_row(
            "round trip",
            format!("{:.1} ms", max(|peer| peer.rtt.as_millis_f64())),
            "to the farthest player, at the end",
        );
        summary.add_row(
            "loss",
            format!("{:.1} %", max(|peer| f64::from(peer.loss) * 100.0)),
            "of the packets from the player with the worst link, at the end",
        );
        let session = &stats.session;
        summary.add_row(
            "rollbacks",
            session.rollbacks.to_string(),
            &format!("{} frames resimulated", session.resimulated),
        );
        summary.add_row(
            "stalls",
            session.stalls.to_string(),
            &format!("frames that waited for inputs, {:.0} ms in total", session.stall_time.as_millis_f64()),
        );
    }
    let drops = &stats.drops;
    if drops.total() > 0 {
        let DropCounts { rejected, kernel_dropped, queue_full } = drops;
        let about = format!(
            "datagrams: {rejected} not authentic, {kernel_dropped} dropped by the operating system, \
             {queue_full} lost to a full queue"
        );
        summary.add_row("discarded", drops.total().to_string(), &about);
    }
    summary
}

fn end_text(reason: &EndReason) -> String {
    match reason {
        EndReason::Requested => String::new(),
        EndReason::SessionEnded(end) => coplay::session::Event::Ended(*end).to_string(),
        EndReason::FeedEnded => "the game is over".into(),
    }
}
