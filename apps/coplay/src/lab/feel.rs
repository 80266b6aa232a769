//! `coplay lab feel`: what a game feels like over a link.

use std::io;

use coplay::session::MachineCosts;
use coplay_lab::bench::{Bench, Length};
use coplay_lab::feel::{Feel, Link, Machine, Row, Smoothness, feel};

use super::bar::Bar;
use crate::check;
use crate::cli::lab as cli;
use crate::net::survey;
use crate::trouble::Trouble;

/// Tries all settings over the link, and says what each gives.
pub(super) fn run(args: &cli::Feel) -> Result<(), Trouble> {
    let link = link(args)?;
    // What a core prints meanwhile is not for us.
    let output = coplay_machines::check::output();
    let mut out = output.map_err(|error| Trouble::failure(format!("there is nowhere to print: {error}")))?;
    let (machine, about) = machine(args)?;
    let bar = Bar::new(vec![1.0]);
    bar.begin(0, "feel");
    let tell = |part: f64| bar.tell(part);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let feel = feel(&mut Bench::new(args.seed, Length::Full, threads, &tell), link, machine);
    bar.end();
    // Who does not want to hear more is not bothered.
    _ = out.write_all(words(link, &about, &feel).as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// The link that was said, or that to somebody real.
fn link(args: &cli::Feel) -> Result<Link, Trouble> {
    let Some(ticket) = &args.measure else {
        let (rtt_ms, jitter_ms, loss) = (args.rtt.unwrap_or_default(), args.jitter, args.loss / 100.0);
        return Ok(Link { rtt_ms, jitter_ms, loss });
    };
    let survey = survey(ticket, args.relay.clone())?;
    // There and back each add half of the jitter.
    let (rtt_ms, jitter_ms) = (survey.min_rtt.as_millis_f64(), survey.jitter.as_millis_f64() / 2.0);
    eprintln!("{} of {} questions were answered", survey.replies.0, survey.replies.1);
    Ok(Link { rtt_ms, jitter_ms, loss: survey.loss })
}

/// What the machine costs, and what to call it.
fn machine(args: &cli::Feel) -> Result<(Machine, String), Trouble> {
    if args.game.is_none() && args.machine.core.is_none() {
        return Ok((Machine { costs: MachineCosts::default(), can_save: true }, "a machine that costs nothing".into()));
    }
    let wanted = crate::cli::Check {
        game: args.game.clone(),
        machine: args.machine.clone(),
        setup: args.setup.clone(),
        players: None,
        json: false,
        frames: None,
        seconds: None,
        again: false,
    };
    let report = check::find_out(&wanted, &mut io::sink())?;
    let fitness = report.fitness();
    let about = format!(
        "{}: {:.1} ms a step, {:.2} ms to save, {:.2} ms to load{}",
        report.identity.game,
        fitness.costs.step.as_millis_f64(),
        fitness.costs.save.as_millis_f64(),
        fitness.costs.load.as_millis_f64(),
        if fitness.can_save { "" } else { "; its states are not exact, so nothing can be guessed" },
    );
    Ok((Machine { costs: fitness.costs, can_save: fitness.can_save }, about))
}

fn words(link: Link, about: &str, feel: &Feel) -> String {
    let Link { rtt_ms, jitter_ms, loss } = link;
    let mut text = format!(
        "link     {rtt_ms:.1} ms there and back, {jitter_ms:.1} ms of jitter each way, {:.1} % lost\n",
        loss * 100.0
    );
    text += &format!("machine  {about}\n\n");
    text += "  lag window  frames/s  deviation  longest   own button  other's  again/100  bytes/s\n";
    for row in &feel.rows {
        text += &line(row, row.setting == feel.auto);
    }
    let picked = feel.rows.iter().find(|row| row.setting == feel.auto);
    text += &format!("\n→ auto picks lag {} and window {}", feel.auto.lag, feel.auto.window);
    if let Some(row) = picked {
        text += &format!(
            ": {}, your own button shows after {:.0} ms and the other's after {:.0} ms",
            word(row.smoothness()),
            row.own_ms,
            row.other_ms
        );
    }
    text + "\n"
}

fn word(smoothness: Smoothness) -> &'static str {
    match smoothness {
        Smoothness::Smooth => "smooth",
        Smoothness::Uneven => "not quite even",
        Smoothness::Rough => "rough",
    }
}

fn line(row: &Row, picked: bool) -> String {
    format!(
        "{} {:3} {:6}  {:8.1}  {:6.2} ms  {:4.0} ms  {:8.0} ms  {:4.0} ms  {:9.1}  {:7.0}  {}\n",
        if picked { "→" } else { " " },
        row.setting.lag,
        row.setting.window,
        row.frames_per_second,
        row.deviation_ms,
        row.longest_ms,
        row.own_ms,
        row.other_ms,
        row.again,
        row.bytes_per_second,
        word(row.smoothness()),
    )
}
