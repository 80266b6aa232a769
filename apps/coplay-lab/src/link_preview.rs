//! `coplay-lab feel`: simulates a game over a link with several delay settings, and prints speed and latency of each.

use coplay::session::MachineCosts;
use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::link_preview::{LinkPreview, LinkQuality, MachineProfile, PreviewRow, Smoothness, preview_link};
use coplay_shell::error::AppError;

use crate::cli::FeelArgs;
use crate::coplay_program;
use crate::progress_bar::ProgressBar;

/// Simulates several delay settings over the link of the flags or of the ticket, and prints a table.
pub fn run(args: &FeelArgs) -> Result<(), AppError> {
    let link = link_quality(args)?;
    let (machine, about) = machine_profile(args)?;
    let bar = ProgressBar::new(vec![1.0]);
    bar.begin(0, "feel");
    let on_progress = |fraction: f64| bar.report(fraction);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut context = ExperimentContext::new(args.seed, ExperimentLength::Full, threads, &on_progress);
    let preview = preview_link(&mut context, link, machine);
    bar.end();
    coplay_shell::print_stdout(&format_preview(link, &about, &preview));
    Ok(())
}

/// Returns the link that the flags describe, or measures the link to the host of the ticket.
fn link_quality(args: &FeelArgs) -> Result<LinkQuality, AppError> {
    match &args.measure {
        Some(ticket) => coplay_program::measure_link(ticket, args),
        None => {
            Ok(LinkQuality { rtt_ms: args.rtt.unwrap_or_default(), jitter_ms: args.jitter, loss: args.loss / 100.0 })
        }
    }
}

/// Returns the profile of the machine and a description of it. Without a game and a core, assumes a machine that takes
/// no time.
fn machine_profile(args: &FeelArgs) -> Result<(MachineProfile, String), AppError> {
    if args.machine.game.is_none() && args.machine.core.is_none() {
        return Ok((
            MachineProfile { costs: MachineCosts::default(), can_save: true },
            "assumed to take no time; --game GAME includes the time that a game takes".into(),
        ));
    }
    let (profile, game) = coplay_program::measure_machine(&args.machine)?;
    let about = format!(
        "{game}: {:.1} ms per step, {:.2} ms to save, {:.2} ms to load{}",
        profile.costs.step.as_millis_f64(),
        profile.costs.save.as_millis_f64(),
        profile.costs.load.as_millis_f64(),
        if profile.can_save { "" } else { "; it has no exact save states, so prediction is not possible" },
    );
    Ok((profile, about))
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
