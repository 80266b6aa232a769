//! `coplay lab feel`: what a game feels like over a link.

use std::io;

use coplay::session::MachineCosts;
use coplay_lab::bench::{ExperimentContext, ExperimentLength};
use coplay_lab::link_preview::{LinkPreview, LinkQuality, MachineProfile, PreviewRow, Smoothness, preview_link};

use super::progress_bar::ProgressBar;
use crate::check;
use crate::cli::lab as cli;
use crate::error::AppError;
use crate::net::probe_link;

/// Tries all settings over the link, and says what each gives.
pub(super) fn run(args: &cli::LabFeelArgs) -> Result<(), AppError> {
    let link = link_quality(args)?;
    // What a core prints meanwhile is not for us.
    let output = coplay_machines::check::exclusive_stdout();
    let mut out = output.map_err(|error| AppError::failure(format!("there is nowhere to print: {error}")))?;
    let (machine, about) = machine_costs(args)?;
    let bar = ProgressBar::new(vec![1.0]);
    bar.begin(0, "feel");
    let tell = |part: f64| bar.report(part);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let feel =
        preview_link(&mut ExperimentContext::new(args.seed, ExperimentLength::Full, threads, &tell), link, machine);
    bar.end();
    // Who does not want to hear more is not bothered.
    _ = out.write_all(format_preview(link, &about, &feel).as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// The link that was said, or that to somebody real.
fn link_quality(args: &cli::LabFeelArgs) -> Result<LinkQuality, AppError> {
    let Some(ticket) = &args.measure else {
        let (rtt_ms, jitter_ms, loss) = (args.rtt.unwrap_or_default(), args.jitter, args.loss / 100.0);
        return Ok(LinkQuality { rtt_ms, jitter_ms, loss });
    };
    let survey = probe_link(ticket, args.relay.clone())?;
    // There and back each add half of the jitter.
    let (rtt_ms, jitter_ms) = (survey.min_rtt.as_millis_f64(), survey.jitter.as_millis_f64() / 2.0);
    eprintln!("{} of {} questions were answered", survey.replies.0, survey.replies.1);
    Ok(LinkQuality { rtt_ms, jitter_ms, loss: survey.loss })
}

/// What the machine costs, and what to call it.
fn machine_costs(args: &cli::LabFeelArgs) -> Result<(MachineProfile, String), AppError> {
    if args.game.is_none() && args.machine.core.is_none() {
        return Ok((
            MachineProfile { costs: MachineCosts::default(), can_save: true },
            "a machine that costs nothing".into(),
        ));
    }
    let wanted = crate::cli::CheckArgs {
        game: args.game.clone(),
        machine: args.machine.clone(),
        core_options: args.core_options.clone(),
        players: None,
        json: false,
        frames: None,
        seconds: None,
        again: false,
    };
    let report = check::run_check(&wanted, &mut io::sink())?;
    let fitness = report.fitness();
    let about = format!(
        "{}: {:.1} ms a step, {:.2} ms to save, {:.2} ms to load{}",
        report.identity.game,
        fitness.costs.step.as_millis_f64(),
        fitness.costs.save.as_millis_f64(),
        fitness.costs.load.as_millis_f64(),
        if fitness.can_save { "" } else { "; its states are not exact, so nothing can be guessed" },
    );
    Ok((MachineProfile { costs: fitness.costs, can_save: fitness.can_save }, about))
}

fn format_preview(link: LinkQuality, about: &str, feel: &LinkPreview) -> String {
    let LinkQuality { rtt_ms, jitter_ms, loss } = link;
    let mut text = format!(
        "link     {rtt_ms:.1} ms there and back, {jitter_ms:.1} ms of jitter each way, {:.1} % lost\n",
        loss * 100.0
    );
    text += &format!("machine  {about}\n\n");
    text += "  lag window  frames/s  deviation  longest   own button  other's  again/100  bytes/s\n";
    for row in &feel.rows {
        text += &format_row(row, row.setting == feel.auto_setting);
    }
    let picked = feel.rows.iter().find(|row| row.setting == feel.auto_setting);
    text += &format!(
        "\n→ auto picks lag {} and window {}",
        feel.auto_setting.input_delay, feel.auto_setting.prediction_window
    );
    if let Some(row) = picked {
        text += &format!(
            ": {}, your own button shows after {:.0} ms and the other's after {:.0} ms",
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
        Smoothness::Uneven => "not quite even",
        Smoothness::Rough => "rough",
    }
}

fn format_row(row: &PreviewRow, picked: bool) -> String {
    format!(
        "{} {:3} {:6}  {:8.1}  {:6.2} ms  {:4.0} ms  {:8.0} ms  {:4.0} ms  {:9.1}  {:7.0}  {}\n",
        if picked { "→" } else { " " },
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
