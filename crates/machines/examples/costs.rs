//! Measures the costs of steps, states and hashes of five libretro cores, and whether their states replay exactly.
//!
//!     cargo run --release -p coplay-machines --example costs

use std::hint::black_box;
use std::time::{Duration, Instant};

use coplay_machines::libretro::{CoreConfig, CoreSource, GameImage, LibretroMachine, open};
use coplay_machines::{Machine, pad::PadLayout};
use coplay_testcores::images;

fn main() {
    let cores = [
        ("nestopia", "nes", images::nes()),
        ("gambatte", "gb", images::game_boy()),
        ("mgba", "gba", images::game_boy_advance()),
        ("beetle-pce-fast", "pce", images::pc_engine()),
        ("bsnes-mercury-performance", "sfc", images::snes()),
    ];
    println!(
        "| core (image) | open | step, rendered | step, not rendered | state | save | load | hash | hash source | exposed RAM | saved state exact | exposed RAM exact | notes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (core, extension, image) in cores {
        let game = Some(GameImage { name: format!("test.{extension}"), image });
        let started = Instant::now();
        let source = CoreSource::from_user(core);
        match source.and_then(|source| open(CoreConfig { game, ..CoreConfig::new(source) })) {
            Ok(machine) => print_row(core, extension, machine, started.elapsed()),
            Err(error) => println!("| {core} ({extension}) | {error} |"),
        }
    }
}

/// Returns the median time of `count` calls in microseconds. A median tolerates other load on this computer.
fn median_us(count: u32, mut call: impl FnMut(u32)) -> f64 {
    let time_call = |i| {
        let started = Instant::now();
        call(i);
        started.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(time_call).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn print_row(core: &str, extension: &str, mut machine: LibretroMachine, open: Duration) {
    let pads = machine.pads().to_vec();
    let inputs = |frame: u32| {
        pads.iter().map(|PadLayout { mask, .. }| u128::from(frame / 7).wrapping_mul(77) & mask).collect::<Vec<_>>()
    };
    let step = median_us(600, |frame| machine.step(&inputs(frame), true));
    let headless = median_us(600, |frame| machine.step(&inputs(frame), false));
    let mut state = Vec::new();
    let save = median_us(500, |_| machine.save(&mut state).expect("the core saves"));
    let load = median_us(500, |_| machine.load(&state).expect("the core loads its state"));
    let hash = median_us(500, |_| _ = black_box(machine.hash()));
    let findings = machine.findings().clone();
    let yes_no = |value: bool| if value { "yes" } else { "no" };
    let mut notes = Vec::new();
    notes.extend((!findings.is_deterministic).then_some("not deterministic"));
    notes.extend(findings.saves_every_frame.then_some("saved after every frame"));
    notes.extend(findings.needs_warm_up.then_some("must run a frame before it loads a state"));
    notes.extend((!findings.saves_initial_state).then_some("cannot save before the first frame"));
    println!(
        "| {core} ({extension}) | {} ms | {step:.0} µs | {headless:.0} µs | {} B | {save:.1} µs | {load:.1} µs | {hash:.1} µs | {} | {} B | {} | {} | {} players, {}, {} |",
        open.as_millis(),
        state.len(),
        findings.hash_of.name(),
        findings.memory_size,
        yes_no(findings.state_exact),
        yes_no(findings.memory_exact),
        pads.len(),
        machine.frame_rate(),
        notes.join(", "),
    );
    if std::env::args().any(|argument| argument == "-v") {
        println!("{:?}\n{:#?}\n{findings:#?}", machine.machine_id(), machine.pads());
        machine.regions(&mut |name, bytes| println!("region {name}: {}", bytes.len()));
        machine.log_lines().for_each(|line| println!("log: {line}"));
        println!(
            "picture {} × {}, aspect {}",
            machine.picture().width,
            machine.picture().height,
            machine.picture().aspect
        );
    }
}
