//! What a frame, a state and a hash of each installed core cost, and whether it is exact after it was loaded and played again.
//!
//!     cargo run --release -p coplay-machines --example costs

use std::hint::black_box;
use std::time::{Duration, Instant};

use coplay_machines::libretro::{CoreConfig, CoreSource, GameImage, LibretroMachine, open};
use coplay_machines::{Machine, pad::Pad};
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
        "| core (image) | open | step | unseen | state | save | load | hash | of | memory | state exact | memory exact | notes |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (core, kind, image) in cores {
        let game = Some(GameImage { name: format!("test.{kind}"), image });
        let began = Instant::now();
        let source = CoreSource::from_user(core);
        match source.and_then(|source| open(CoreConfig { game, ..CoreConfig::new(source) })) {
            Ok(machine) => print_row(core, kind, machine, began.elapsed()),
            Err(error) => println!("| {core} ({kind}) | {error} |"),
        }
    }
}

/// The median time of many calls, in microseconds: others may be at work on this computer.
fn median_us(count: u32, mut call: impl FnMut(u32)) -> f64 {
    let timed = |i| {
        let began = Instant::now();
        call(i);
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(timed).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn print_row(core: &str, kind: &str, mut machine: LibretroMachine, open: Duration) {
    let pads = machine.pads().to_vec();
    let inputs = |frame: u32| {
        pads.iter().map(|Pad { mask, .. }| u128::from(frame / 7).wrapping_mul(77) & mask).collect::<Vec<_>>()
    };
    let step = median_us(600, |frame| machine.step(&inputs(frame), true));
    let unseen = median_us(600, |frame| machine.step(&inputs(frame), false));
    let mut state = Vec::new();
    let save = median_us(500, |_| machine.save(&mut state).expect("it saves"));
    let load = median_us(500, |_| machine.load(&state).expect("it loads"));
    let hash = median_us(500, |_| _ = black_box(machine.hash()));
    let found = machine.findings().clone();
    let yes = |is: bool| if is { "yes" } else { "no" };
    let mut notes = Vec::new();
    notes.extend((!found.steady).then_some("not steady"));
    notes.extend(found.settles.then_some("saved every frame"));
    notes.extend(found.warms_up.then_some("must run before it loads"));
    notes.extend((!found.saves_unstepped).then_some("not saved before the first frame"));
    println!(
        "| {core} ({kind}) | {} ms | {step:.0} µs | {unseen:.0} µs | {} B | {save:.1} µs | {load:.1} µs | {hash:.1} µs | {} | {} B | {} | {} | {} players, {}, {} |",
        open.as_millis(),
        state.len(),
        found.hash_of.name(),
        found.memory_size,
        yes(found.state_exact),
        yes(found.memory_exact),
        pads.len(),
        machine.frame_rate(),
        notes.join(", "),
    );
    if std::env::args().any(|argument| argument == "-v") {
        println!("{:?}\n{:#?}\n{found:#?}", machine.machine_id(), machine.pads());
        machine.regions(&mut |name, bytes| println!("region {name}: {}", bytes.len()));
        machine.log_lines().for_each(|line| println!("said {line}"));
        println!(
            "picture {} × {}, aspect {}",
            machine.picture().width,
            machine.picture().height,
            machine.picture().aspect
        );
    }
}
