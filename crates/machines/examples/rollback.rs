//! Two machines under the session engine, over a bad link in virtual time, with a judge: what a rollback really costs.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use common::Fingers;
use common::duel::{self, Cost, Judge, Seat, bad_link, config, terms};
use common::rom;
use coplay::id::SiteId;
use coplay::input::InputWord;
use coplay_machines::nes::Nes;
use coplay_machines::{Machine, hosted, libretro};
use coplay_sim::stage::Stage;

const USAGE: &str = "usage: rollback [--frames N] [--seed N] [--window N] [--lag N] [--core CORE] [GAME]

Two sites play GAME (an NES image, or one for a libretro core; without it a small NES game made for tests) with random inputs: 80 ms round trip, jitter, 5 % loss.
Every confirmed frame of both is compared with a third machine that plays only what is certain.
";

/// Frames of each measurement aside the game.
const ALONE: u32 = 600;

struct Options {
    frames: u32,
    seed: u64,
    lag: u32,
    window: u32,
    core: Option<String>,
    game: Option<String>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { frames: 36_000, seed: 1, lag: 2, window: 8, core: None, game: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("frames") => options.frames = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("lag") => options.lag = parser.value()?.parse()?,
            Long("window") => options.window = parser.value()?.parse()?,
            Long("core") => options.core = Some(parser.value()?.string()?),
            Short('h') | Long("help") => return Ok(None),
            Value(path) if options.game.is_none() => options.game = Some(path.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let open = match &options.core {
        None => nes(options.game.as_deref()),
        Some(core) => core_of(core, options.game.as_deref()),
    };
    match open {
        Ok(open) => run(&options, open),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type Open = Box<dyn Fn() -> Box<dyn Machine>>;

fn image(path: Option<&str>) -> Result<Vec<u8>, String> {
    path.map_or_else(|| Ok(rom::image()), |path| std::fs::read(path).map_err(|error| format!("{path}: {error}")))
}

fn nes(game: Option<&str>) -> Result<Open, String> {
    let image = image(game)?;
    Nes::open(&image, "game").map_err(|error| error.to_string())?;
    Ok(Box::new(move || Box::new(Nes::open(&image, "game").expect("opened before"))))
}

fn core_of(core: &str, game: Option<&str>) -> Result<Open, String> {
    let name = game.unwrap_or("game.nes").into();
    let game = libretro::Game { name, image: image(game)? };
    let core = libretro::CoreSource::from_user(core).map_err(|error| error.to_string())?;
    let config = libretro::Config { game: Some(game), ..libretro::Config::new(core) };
    let first = libretro::open(config).map_err(|error| error.to_string())?;
    Ok(Box::new(move || Box::new(first.twin().expect("opened before"))))
}

fn run(options: &Options, open: impl Fn() -> Box<dyn Machine>) -> ExitCode {
    alone(&mut *open());
    let mut terms = terms(2);
    (terms.lag, terms.window) = (options.lag, options.window);
    let settings = hosted::settings(&*open(), terms);
    let seat = |site: SiteId| {
        let machine = open();
        Seat::new(coplay::time::Instant::ZERO, config(&*machine, site, &settings), machine, options.seed, nanos)
    };
    let mut stage = Stage::new(options.seed, SiteId::first(2).map(seat).collect(), |_, _| bad_link());
    let mut judge = Judge::new(open());
    let begun = Instant::now();
    duel::run(&mut stage, &mut judge, options.frames, |frames| {
        eprint!("\r{frames} frames judged");
        let _ = std::io::stderr().flush();
    });
    eprintln!();
    println!("\nlag {}, window {}, {:.0} s of real time", options.lag, options.window, begun.elapsed().as_secs_f64());
    for (number, seat) in stage.hosts.iter().enumerate() {
        tell(number, seat);
    }
    let trouble = stage.hosts.iter().find_map(|seat| seat.trouble.clone());
    match (judge.fault, trouble) {
        (None, None) if judge.next >= options.frames => {
            println!(
                "\nstates equal after every one of {} confirmed frames, at both sites and at the judge",
                judge.next
            );
            ExitCode::SUCCESS
        }
        (fault, trouble) => {
            println!("\nfailed after {} frames: fault {fault:?}, trouble {trouble:?}", judge.next);
            println!("reproduce: --seed {} --frames {}", options.seed, options.frames);
            ExitCode::FAILURE
        }
    }
}

/// What one machine costs by itself.
fn alone(machine: &mut dyn Machine) {
    let (players, mut state) = (machine.pads().len(), Vec::new());
    let mut time = |what: &str, work: &mut dyn FnMut(&mut dyn Machine, &[InputWord])| {
        let mut fingers = Fingers::new(1, players);
        work(machine, fingers.press(InputWord::MAX));
        let begun = Instant::now();
        (0..ALONE).for_each(|_| work(machine, fingers.press(InputWord::MAX)));
        println!("  {what:<16} {:>9.1} µs", begun.elapsed().as_secs_f64() * 1e6 / f64::from(ALONE));
    };
    println!("alone, over {ALONE} frames");
    time("step, seen", &mut |machine, words| machine.step(words, true));
    time("step, not seen", &mut |machine, words| machine.step(words, false));
    time("save", &mut |machine, _| machine.save(&mut state).expect("it can save"));
    time("load", &mut |machine, _| machine.load(&state).expect("its own state"));
    time("hash", &mut |machine, _| assert_ne!(machine.hash(), 0));
    println!("  {:<16} {:>9} bytes", "state", state.len());
}

fn tell(number: usize, seat: &Seat) {
    let (stats, costs) = (seat.stats(), seat.costs);
    let frames = stats.frame.number().max(1);
    let per_frame = |cost: Cost| cost.nanos as f64 / 1e3 / f64::from(frames);
    println!("\nsite {number}: {frames} frames, {} repairs, {} stalls", stats.rollbacks, stats.stalls);
    let rows = [
        ("stepped, seen", costs.fresh),
        ("stepped again", costs.again),
        ("saved", costs.save),
        ("loaded", costs.load),
        ("hashed", costs.hash),
    ];
    for (what, cost) in rows {
        let each = cost.nanos as f64 / 1e3 / cost.times.max(1) as f64;
        let often = cost.times as f64 / f64::from(frames);
        println!("  {what:<14} {often:>7.3} per frame  {each:>9.1} µs each  {:>9.1} µs per frame", per_frame(cost));
    }
    let repair = [costs.again, costs.save, costs.load].map(per_frame).iter().sum::<f64>();
    println!("  {:<14} {repair:>50.1} µs per frame", "rollback");
}
