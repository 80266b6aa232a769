//! The demo: a few sites share a game over a bad link, in virtual time. Shows their courts side by side and what the link was like.
//!
//! Exits with 1 if the sites' states differ or the link was too bad to play on.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use coplay::id::{MAX_SITES, SiteId};
use coplay::session::{MAX_LAG, PeerStats};
use coplay::time::TimeDelta;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_sim::measure::{Experiment, Outcome, WARM_UP};
use coplay_sim::toy::{HEIGHT, Toy, WIDTH};
use coplay_sim::world::World;

const HELP: &str = "\
Shares a game between sites over an emulated bad link, in virtual time, and shows that all of them see the same.

Usage: demo [--rtt MS] [--jitter MS] [--loss PERCENT] [--lag FRAMES] [--frames N] [--sites N] [--seed N]

  --rtt MS        mean round-trip time, 0 to 2000 (default 80)
  --jitter MS     how much longer one packet may take than another, each way, 0 to 1000 (default 10)
  --loss PERCENT  packets lost, each way, 0 to 90 (default 5)
  --lag FRAMES    local lag, 0 to 120 frames of a 60th of a second (default 6)
  --frames N      frames to play, 1 to 1000000, after a second of warming up (default 3600)
  --sites N       how many sites play, 2 to 8 (default 2)
  --seed N        where all luck comes from (default 1)
  --help          this text";

struct Options {
    rtt_ms: f64,
    jitter_ms: f64,
    loss_percent: f64,
    lag: u32,
    frames: u32,
    sites: usize,
    seed: u64,
}

fn main() -> ExitCode {
    match parse() {
        Ok(Some(options)) => play(&options),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}\nhint: demo --help lists what can be asked for");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options =
        Options { rtt_ms: 80.0, jitter_ms: 10.0, loss_percent: 5.0, lag: 6, frames: 3_600, sites: 2, seed: 1 };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("rtt") => options.rtt_ms = number(&mut parser, "rtt", "milliseconds", 0.0, 2_000.0)?,
            Long("jitter") => options.jitter_ms = number(&mut parser, "jitter", "milliseconds", 0.0, 1_000.0)?,
            Long("loss") => options.loss_percent = number(&mut parser, "loss", "a percentage", 0.0, 90.0)?,
            Long("lag") => options.lag = number(&mut parser, "lag", "a number of frames", 0, MAX_LAG)?,
            Long("frames") => options.frames = number(&mut parser, "frames", "a number", 1, 1_000_000)?,
            Long("sites") => options.sites = number(&mut parser, "sites", "a number", 2, MAX_SITES)?,
            Long("seed") => options.seed = number(&mut parser, "seed", "a number", 0, u64::MAX)?,
            Long("help") | Short('h') => {
                say(HELP);
                return Ok(None);
            }
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Some(options))
}

/// The value of an option, if it is a number in its bounds.
fn number<T>(parser: &mut lexopt::Parser, name: &str, unit: &str, least: T, most: T) -> Result<T, lexopt::Error>
where
    T: std::str::FromStr + PartialOrd + fmt::Display + Copy,
{
    let value = parser.value()?;
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("--{name} takes {unit} from {least} to {most}, not {}", value.display()).into())
}

fn experiment(options: &Options) -> Experiment {
    let ms = |millis: f64| TimeDelta::from_micros((millis * 1_000.0) as i64);
    let link = LinkConfig {
        // Jitter only ever adds, so the rest is shorter by its mean.
        delay: Delay::Constant(ms((options.rtt_ms - options.jitter_ms) / 2.0)),
        jitter: Jitter::Uniform(ms(options.jitter_ms)),
        loss: Loss::Independent(options.loss_percent / 100.0),
        ..LinkConfig::perfect()
    };
    Experiment {
        seed: options.seed,
        sites: options.sites,
        lag: options.lag,
        frames: options.frames,
        ..Experiment::new(link)
    }
}

/// A site after the last frame.
struct Last {
    court: Toy,
    /// The link to the next site, as this one sees it.
    link: PeerStats,
}

fn last_of(world: &World, number: usize) -> Last {
    let site = &world.sites[number];
    let now = site.clock.local(world.now());
    let mut others = SiteId::first(world.sites.len()).filter(|other| other.index() != number);
    let link = others.find_map(|other| site.session.peer_stats(now, other));
    Last { court: site.machine.clone(), link: link.unwrap_or_default() }
}

fn play(options: &Options) -> ExitCode {
    let Options { rtt_ms, jitter_ms, loss_percent, lag, frames, sites, .. } = options;
    let (sites_in_words, frames_in_words) = (in_words(*sites), thousands(u64::from(*frames)));
    say(&format!(
        "{sites_in_words} sites share a game over a bad link: {rtt_ms} ms round trip, {jitter_ms} ms jitter, \
         {loss_percent} % loss, lag {lag}. {frames_in_words} frames, in virtual time.\n"
    ));
    let all_frames = WARM_UP + frames;
    let mut last: Vec<Option<Last>> = (0..*sites).map(|_| None).collect();
    let outcome = experiment(options).run_watched(|world| {
        for (number, last) in last.iter_mut().enumerate() {
            if last.is_none() && world.sites[number].session.stats().frame.number() == all_frames {
                *last = Some(last_of(world, number));
            }
        }
    });
    let last: Vec<Last> = last.into_iter().flatten().collect();
    if !outcome.complete || last.len() < *sites {
        let played = thousands(outcome.frames as u64);
        eprintln!("demo: over so bad a link only {played} of {frames_in_words} frames could be played in time");
        eprintln!("hint: try a longer --lag, or less --rtt and --loss");
        return ExitCode::FAILURE;
    }
    draw_courts(&last[0].court, &last[1].court);
    let hashes: Vec<u64> = last.iter().map(|last| last.court.hash()).collect();
    let equal = outcome.states_equal && hashes.iter().all(|hash| *hash == hashes[0]);
    summarise(options, &outcome, &last[0].link, &hashes, equal);
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The inside of a drawn court, in characters.
const COLUMNS: usize = 33;
const ROWS: usize = 11;

fn draw_courts(one: &Toy, other: &Toy) {
    let title = |site: u8, court: &Toy| {
        let [left, right] = court.score;
        format!("site {site}{:>width$}", format!("{left} : {right}"), width = COLUMNS + 2 - 6)
    };
    say(&format!("  {}   {}", title(0, one), title(1, other)));
    for (one, other) in draw(one).into_iter().zip(draw(other)) {
        say(&format!("  {one}   {other}"));
    }
    say("");
}

/// A court with its frame, line by line. Paddles stand at the sides, those of further players one step inside.
fn draw(court: &Toy) -> Vec<String> {
    let mut cells = vec![[' '; COLUMNS]; ROWS];
    for (player, height) in court.paddles.iter().enumerate() {
        let column = if player % 2 == 0 { player / 2 } else { COLUMNS - 1 - player / 2 };
        let row = scaled(*height, HEIGHT, ROWS);
        for cells in &mut cells[row.saturating_sub(1)..(row + 2).min(ROWS)] {
            cells[column] = '█';
        }
    }
    let (x, y) = court.ball;
    cells[scaled(y, HEIGHT, ROWS)][scaled(x, WIDTH, COLUMNS)] = '●';
    let edge = "─".repeat(COLUMNS);
    let rows = cells.iter().map(|row| format!("│{}│", row.iter().collect::<String>()));
    let rows = [format!("┌{edge}┐")].into_iter().chain(rows);
    rows.chain([format!("└{edge}┘")]).collect()
}

/// The place of something on a line of so many characters; what is outside is drawn at the end.
fn scaled(place: i32, length: i32, characters: usize) -> usize {
    (place.clamp(0, length) as usize * characters / length as usize).min(characters - 1)
}

fn summarise(options: &Options, outcome: &Outcome, link: &PeerStats, hashes: &[u64], equal: bool) {
    let row = |name: &str, value: String, what: &str| say(&format!("  {name:<15} {value:>10}   {what}"));
    let frames = u64::from(options.frames);
    let fps = 1_000.0 / (outcome.frame_ms.iter().sum::<f64>() / outcome.frame_ms.len() as f64);
    let stalled = outcome.stalls * frames as f64;
    row("frames", thousands(frames), &format!("at each site, after {WARM_UP} to warm up"));
    row("speed", format!("{fps:.2} fps"), "of 60");
    row(
        "smoothness",
        format!("{:.3} ms", outcome.worst_deviation_ms()),
        "mean absolute deviation from one frame to the next",
    );
    row(
        "synchrony",
        format!("{:.3} ms", outcome.synchrony_ms),
        "between the first two sites' starts of the same frame",
    );
    row("longest frame", format!("{:.1} ms", outcome.longest_ms), "at any site");
    row("stalled frames", format!("{stalled:.1}"), "per site, waiting for a late input");
    row("datagrams", format!("{:.3}", outcome.packets_per_frame), "per frame and link");
    row("bytes", format!("{:.1}", outcome.bytes_per_frame), "of payload per frame and link");
    row("round trip", format!("{:.1} ms", link.rtt.as_millis_f64()), "as the engine measured it at last");
    row(
        "jitter",
        format!("{:.1} ms", link.jitter.as_millis_f64()),
        "mean deviation of the round trip, measured likewise",
    );
    row("loss", format!("{:.1} %", link.loss * 100.0), "of the packets of late, measured likewise");
    row("states equal", if equal { "yes" } else { "NO" }.into(), &verdict(hashes, equal));
}

/// The sites' last hashes, and whether they are the same.
fn verdict(hashes: &[u64], equal: bool) -> String {
    let told: Vec<String> = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
    match told.len() {
        0..=2 => told.join(if equal { " = " } else { ", " }),
        sites if equal => format!("{} at all {sites} sites", told[0]),
        _ => told.join(", "),
    }
}

/// Prints a line. Who has read enough may close the pipe; that is no fault.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn in_words(sites: usize) -> &'static str {
    ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight"].get(sites).copied().unwrap_or("Many")
}

/// A number as people write it: 3,600.
fn thousands(number: u64) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", thousands(number / 1_000), number % 1_000) }
}
