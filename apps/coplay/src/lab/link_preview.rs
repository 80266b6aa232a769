//! `coplay lab feel`: simulates a game over a link with several delay settings, and prints speed and latency of each.

use std::io;

use coplay::session::MachineCosts;
use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::link_preview::{LinkPreview, LinkQuality, MachineProfile, PreviewRow, Smoothness, preview_link};
use coplay_shell::error::AppError;

use super::progress_bar::ProgressBar;
use crate::check;
use crate::cli::lab as cli;
use crate::net::probe_link;

/// Simulates several delay settings over the link of the flags or of the ticket, and prints a table.
pub(super) fn run(args: &cli::LabFeelArgs) -> Result<(), AppError> {
    let link = link_quality(args)?;
    // A core may print to stdout; the table must not be mixed with that.
    let output = coplay_machines::check::exclusive_stdout();
    let mut out = output.map_err(|error| {
        AppError::failure(format!("cannot write to standard output: {error}"))
            .hint("run the same command in a terminal, or redirect its output to a file")
    })?;
    let (machine, about) = machine_costs(args)?;
    let bar = ProgressBar::new(vec![1.0]);
    bar.begin(0, "feel");
    let on_progress = |fraction: f64| bar.report(fraction);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut context = ExperimentContext::new(args.seed, ExperimentLength::Full, threads, &on_progress);
    let preview = preview_link(&mut context, link, machine);
    bar.end();
    // A closed pipe is not an error.
    _ = out.write_all(format_preview(link, &about, &preview).as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// Returns the link that the flags describe, or measures the link to the host of the ticket.
fn link_quality(args: &cli::LabFeelArgs) -> Result<LinkQuality, AppError> {
    let Some(ticket) = &args.measure else {
        let (rtt_ms, jitter_ms, loss) = (args.rtt.unwrap_or_default(), args.jitter, args.loss / 100.0);
        return Ok(LinkQuality { rtt_ms, jitter_ms, loss });
    };
    let report = probe_link(ticket, args.relay.clone())?;
    // Each direction adds half of the jitter of a round trip.
    let (rtt_ms, jitter_ms) = (report.min_rtt.as_millis_f64(), report.jitter.as_millis_f64() / 2.0);
    eprintln!("the host answered {} of {} probes", report.replies.0, report.replies.1);
    Ok(LinkQuality { rtt_ms, jitter_ms, loss: report.loss })
}

/// Returns the costs of the machine as `coplay check` measures them, and a description of the machine. Without a game
/// and a core, assumes a machine that takes no time.
fn machine_costs(args: &cli::LabFeelArgs) -> Result<(MachineProfile, String), AppError> {
    if args.game.is_none() && args.machine.core.is_none() {
        return Ok((
            MachineProfile { costs: MachineCosts::default(), can_save: true },
            "assumed to take no time; --game GAME includes the time that a game takes".into(),
        ));
    }
    let check_args = crate::cli::CheckArgs {
        game: args.game.clone(),
        machine: args.machine.clone(),
        core_options: args.core_options.clone(),
        players: None,
        json: false,
        frames: None,
        seconds: None,
        again: false,
    };
    let report = check::run_check(&check_args, &mut io::sink())?;
    let fitness = report.fitness();
    let about = format!(
        "{}: {:.1} ms per step, {:.2} ms to save, {:.2} ms to load{}",
        report.identity.game,
        fitness.costs.step.as_millis_f64(),
        fitness.costs.save.as_millis_f64(),
        fitness.costs.load.as_millis_f64(),
        if fitness.can_save { "" } else { "; it has no exact save states, so prediction is not possible" },
    );
    Ok((MachineProfile { costs: fitness.costs, can_save: fitness.can_save }, about))
}

fn format_preview(link: LinkQuality, about: &str, preview: &LinkPreview) -> String {
    let LinkQuality { rtt_ms, jitter_ms, loss } = link;
    let mut text = format!(
        "link     {rtt_ms:.1} ms round trip; {jitter_ms:.1} ms of jitter and {:.1} % packet loss in each direction\n",
        loss * 100.0
    );
    text += &format!("machine  {about}\n\n");
    text += "  delay prediction  frames/s  deviation  longest   own button  other's  resim/100  bytes/s\n";
    for row in &preview.rows {
        text += &format_row(row, row.setting == preview.auto_setting);
    }
    text += "\ndelay and prediction: input delay and prediction window in frames; deviation and longest: mean\n\
             deviation and maximum of the time per frame; own button and other's: mean time from the press of your\n\
             button, and of the other player's, to your picture; resim/100: resimulated frames per 100 frames;\n\
             bytes/s: payload in one direction\n";
    let auto_row = preview.rows.iter().find(|row| row.setting == preview.auto_setting);
    text += &format!(
        "\n→ auto picks --delay {} and --prediction {}",
        preview.auto_setting.input_delay, preview.auto_setting.prediction_window
    );
    if let Some(row) = auto_row {
        text += &format!(
            ": {}; your own button shows after {:.0} ms, the other player's after {:.0} ms",
            smoothness_text(row.smoothness()),
            row.local_latency_ms,
            row.remote_latency_ms
        );
    }
    text + "\n"
}

fn smoothness_text(smoothness: Smoothness) -> &'static str {
    match smoothness {
        Smoothness::Smooth => "smooth",
        Smoothness::Uneven => "slightly uneven",
        Smoothness::Rough => "rough",
    }
}

fn format_row(row: &PreviewRow, is_auto: bool) -> String {
    format!(
        "{} {:5} {:10}  {:8.1}  {:6.2} ms  {:4.0} ms  {:8.0} ms  {:4.0} ms  {:9.1}  {:7.0}  {}\n",
        if is_auto { "→" } else { " " },
        row.setting.input_delay,
        row.setting.prediction_window,
        row.frames_per_second,
        row.deviation_ms,
        row.max_frame_ms,
        row.local_latency_ms,
        row.remote_latency_ms,
        row.resimulated_per_100_frames,
        row.bytes_per_second,
        smoothness_text(row.smoothness()),
    )
}
