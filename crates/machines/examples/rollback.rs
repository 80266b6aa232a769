//! Runs two machines under the session engine over a bad link in virtual time, compares every confirmed frame with a
//! reference machine, and measures the cost of rollback.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use common::RandomInputs;
use common::rom;
use common::session_harness::{self, OperationCost, ReferenceChecker, TestSite, bad_link, test_config, test_options};
use coplay::id::SiteId;
use coplay::input::InputWord;
use coplay_machines::nes::Nes;
use coplay_machines::{Machine, libretro, session_adapter};
use coplay_sim::host_network::HostNetwork;

const USAGE: &str = "usage: rollback [--frames N] [--seed N] [--window N] [--lag N] [--core CORE] [GAME]

Two sites play GAME (an NES image, or an image for a libretro core; by default a small NES test game)
with random inputs over a link with 80 ms round-trip time, jitter and 5 % loss.
--window is the prediction window and --lag the input delay, both in frames.
Every confirmed frame of both sites is compared with a third machine that runs only confirmed inputs.
";

/// Number of calls that each measurement outside the session averages.
const STANDALONE_FRAMES: u32 = 600;

struct ExampleOptions {
    frames: u32,
    seed: u64,
    input_delay: u32,
    prediction_window: u32,
    core: Option<String>,
    game: Option<String>,
}

fn parse_options() -> Result<Option<ExampleOptions>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options =
        ExampleOptions { frames: 36_000, seed: 1, input_delay: 2, prediction_window: 8, core: None, game: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("frames") => options.frames = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("lag") => options.input_delay = parser.value()?.parse()?,
            Long("window") => options.prediction_window = parser.value()?.parse()?,
            Long("core") => options.core = Some(parser.value()?.string()?),
            Short('h') | Long("help") => return Ok(None),
            Value(path) if options.game.is_none() => options.game = Some(path.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn monotonic_nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

fn main() -> ExitCode {
    let options = match parse_options() {
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
        None => nes_opener(options.game.as_deref()),
        Some(core) => core_opener(core, options.game.as_deref()),
    };
    match open {
        Ok(open) => run_session(&options, open),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

type OpenFn = Box<dyn Fn() -> Box<dyn Machine>>;

fn read_image(path: Option<&str>) -> Result<Vec<u8>, String> {
    path.map_or_else(|| Ok(rom::test_image()), |path| std::fs::read(path).map_err(|error| format!("{path}: {error}")))
}

fn nes_opener(game: Option<&str>) -> Result<OpenFn, String> {
    let image = read_image(game)?;
    Nes::open(&image, "game").map_err(|error| error.to_string())?;
    Ok(Box::new(move || Box::new(Nes::open(&image, "game").expect("the image was opened before"))))
}

fn core_opener(core: &str, game: Option<&str>) -> Result<OpenFn, String> {
    let name = game.unwrap_or("game.nes").into();
    let game = libretro::GameImage { name, image: read_image(game)? };
    let core = libretro::CoreSource::from_user(core).map_err(|error| error.to_string())?;
    let config = libretro::CoreConfig { game: Some(game), ..libretro::CoreConfig::new(core) };
    let first = libretro::open(config).map_err(|error| error.to_string())?;
    Ok(Box::new(move || Box::new(first.twin().expect("the image was opened before"))))
}

fn run_session(options: &ExampleOptions, open: impl Fn() -> Box<dyn Machine>) -> ExitCode {
    measure_standalone(&mut *open());
    let mut session_options = test_options(2);
    (session_options.input_delay, session_options.prediction_window) = (options.input_delay, options.prediction_window);
    let settings = session_adapter::settings(&*open(), session_options);
    let new_site = |site: SiteId| {
        let machine = open();
        TestSite::new(
            coplay::time::Instant::ZERO,
            test_config(&*machine, site, &settings),
            machine,
            options.seed,
            monotonic_nanos,
        )
    };
    let mut network =
        HostNetwork::<TestSite>::new(options.seed, SiteId::first(2).map(new_site).collect(), |_, _| bad_link());
    let mut checker = ReferenceChecker::new(open());
    let started = Instant::now();
    session_harness::run_until_checked(&mut network, &mut checker, options.frames, |frames| {
        eprint!("\r{frames} confirmed frames compared");
        let _ = std::io::stderr().flush();
    });
    eprintln!();
    println!(
        "\ninput delay {} frames, prediction window {} frames, {:.0} s of real time",
        options.input_delay,
        options.prediction_window,
        started.elapsed().as_secs_f64()
    );
    for (number, site) in network.nodes.iter().enumerate() {
        print_site_costs(number, site);
    }
    let error = network.nodes.iter().find_map(|site| site.error.clone());
    match (checker.first_mismatch, error) {
        (None, None) if checker.next_frame >= options.frames => {
            println!(
                "\nstates equal after each of {} confirmed frames, at both sites and the reference machine",
                checker.next_frame
            );
            ExitCode::SUCCESS
        }
        (mismatch, error) => {
            println!(
                "\nfailed after {} frames: first mismatch (frame, site) {mismatch:?}, error {error:?}",
                checker.next_frame
            );
            println!("to reproduce, repeat the same options with --seed {} --frames {}", options.seed, options.frames);
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints the costs of one machine outside a session.
fn measure_standalone(machine: &mut dyn Machine) {
    let (players, mut state) = (machine.pads().len(), Vec::new());
    let mut time = |operation: &str, work: &mut dyn FnMut(&mut dyn Machine, &[InputWord])| {
        let mut random_inputs = RandomInputs::new(1, players);
        work(machine, random_inputs.next_inputs(InputWord::MAX));
        let started = Instant::now();
        (0..STANDALONE_FRAMES).for_each(|_| work(machine, random_inputs.next_inputs(InputWord::MAX)));
        println!("  {operation:<16} {:>9.1} µs", started.elapsed().as_secs_f64() * 1e6 / f64::from(STANDALONE_FRAMES));
    };
    println!("mean costs outside a session, over {STANDALONE_FRAMES} calls");
    time("step, rendered", &mut |machine, words| machine.step(words, true));
    time("step, unrendered", &mut |machine, words| machine.step(words, false));
    time("save", &mut |machine, _| machine.save(&mut state).expect("the machine saves"));
    time("load", &mut |machine, _| machine.load(&state).expect("the machine loads its own state"));
    time("hash", &mut |machine, _| assert_ne!(machine.hash(), 0));
    println!("  {:<16} {:>9} bytes", "state", state.len());
}

fn print_site_costs(number: usize, site: &TestSite) {
    let (stats, costs) = (site.stats(), site.costs);
    let frames = stats.frame.number().max(1);
    let per_frame = |cost: OperationCost| cost.nanos as f64 / 1e3 / f64::from(frames);
    println!("\nsite {number}: {frames} frames, {} rollbacks, {} stalls", stats.rollbacks, stats.stalls);
    let rows = [
        ("rendered", costs.rendered_step),
        ("resimulated", costs.resimulated_step),
        ("saved", costs.save),
        ("loaded", costs.load),
        ("hashed", costs.hash),
    ];
    for (operation, cost) in rows {
        let us_each = cost.nanos as f64 / 1e3 / cost.count.max(1) as f64;
        let per_frame_count = cost.count as f64 / f64::from(frames);
        println!(
            "  {operation:<14} {per_frame_count:>7.3} per frame  {us_each:>9.1} µs each  {:>9.1} µs per frame",
            per_frame(cost)
        );
    }
    let rollback = [costs.resimulated_step, costs.save, costs.load].map(per_frame).iter().sum::<f64>();
    println!("  {:<14} {rollback:>50.1} µs per frame", "rollback");
}
