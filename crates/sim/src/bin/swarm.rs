//! The swarm: plays many random scenarios, each drawn from its seed alone, and judges every one.
//!
//! Prints what it went through and every broken promise with the one command that replays it. Exits with 1 if there was one.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use coplay_sim::session::scenario::{self, ScenarioResult};
use coplay_sim::{mirror, motion, peer_world, site};

/// Prints a line; who reads only the beginning may close the pipe.
macro_rules! print_line {
    ($($text:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($text)*);
    };
}

const HELP: &str = "\
Plays random sessions with faults in virtual time and checks that nothing is broken.

Usage: swarm [--maze | --motion | --mirror] [--seeds N] [--from N] [--sabotage WHAT]
       swarm [--maze | --motion | --mirror] --seed N [--sabotage WHAT]

  --maze           mazes without a server, in place of shared machines
  --motion         moving objects with a server
  --mirror         servers that mirror each other

  --seeds N        how many scenarios to play (default 1000)
  --from N         the first seed (default 0)
  --seed N         play one scenario, tell what is in it, and print the hash of its trace
  --sabotage WHAT  break one site on purpose: replace (sends other inputs than it used), lag (inputs
                   take effect a frame late), silence (never sends anything twice), forge (changes
                   what it passes on for others), snapshot (lies to who comes late), alone (goes on
                   without the others where it would have to wait); with --maze: shift (takes updates
                   for those of other ticks), deaf (hears of no score), stamps (gets wrong stamps for
                   clocks), ghosts (shows what was not delivered), wordless (deaf, also to the
                   last words of who leaves); with --motion: deaf (hears of no
                   commands), mute (its commands get lost), stamps, legs (takes legs for longer ones), since
                   (takes the server to have turned earlier), hurry (its time runs too fast), unheeded
                   (asks in vain for what the server forgot), stale (misses what the server decided),
                   lingering (is not told what is gone), usurped (its object is commanded by nobody); with
                   --mirror: replace (takes all events for obsolete), unlink (does not know what comes
                   after what), mute (asks in vain), snapshot (takes over wrong ones), twice and miss
                   (takes in an event twice, or not)
  --help           this text";

/// Every fault and policy must be in at least this share of the seeds.
const MIN_FEATURE_SHARE: f64 = 0.03;
/// From so many seeds on, shares are told from chance.
const MIN_SEEDS_FOR_SHARES: u64 = 1_000;

#[derive(Clone, Copy)]
struct Options {
    seed_count: u64,
    first_seed: u64,
    single_seed: Option<u64>,
    swarm: Swarm,
}

/// What is played, and what is broken in it on purpose.
#[derive(Clone, Copy)]
enum Swarm {
    Sessions(Option<site::Sabotage>),
    Mazes(Option<peer_world::Sabotage>),
    Mirrors(Option<mirror::Sabotage>),
    Motion(Option<motion::Sabotage>),
}

const SESSION_SABOTAGE: [(&str, site::Sabotage); 6] = [
    ("replace", site::Sabotage::ReplaceInput),
    ("lag", site::Sabotage::InputDelayOffByOne),
    ("silence", site::Sabotage::NoRetransmit),
    ("forge", site::Sabotage::ForgeRelay),
    ("snapshot", site::Sabotage::CorruptSnapshot),
    ("alone", site::Sabotage::ContinueWithoutQuorum),
];
const MAZE_SABOTAGE: [(&str, peer_world::Sabotage); 5] = [
    ("shift", peer_world::Sabotage::ShiftUpdateTicks),
    ("deaf", peer_world::Sabotage::DropRecords),
    ("stamps", peer_world::Sabotage::WrongClockStamps),
    ("ghosts", peer_world::Sabotage::ShowUndelivered),
    ("wordless", peer_world::Sabotage::DropFinalRecords),
];
const MIRROR_SABOTAGE: [(&str, mirror::Sabotage); 6] = [
    ("replace", mirror::Sabotage::MarkAllReplacing),
    ("unlink", mirror::Sabotage::StripDependencies),
    ("mute", mirror::Sabotage::DropRequests),
    ("snapshot", mirror::Sabotage::CorruptSnapshot),
    ("twice", mirror::Sabotage::ApplyTwice),
    ("miss", mirror::Sabotage::SkipEvents),
];

const MOTION_SABOTAGE: [(&str, motion::Sabotage); 10] = [
    ("deaf", motion::Sabotage::DropCommandsToClient),
    ("mute", motion::Sabotage::DropCommandsToServer),
    ("stamps", motion::Sabotage::WrongClockStamps),
    ("legs", motion::Sabotage::LongerSegments),
    ("since", motion::Sabotage::WrongTurnTimes),
    ("hurry", motion::Sabotage::FastClock),
    ("unheeded", motion::Sabotage::DropSubscriptions),
    ("stale", motion::Sabotage::DropNewEpochs),
    ("lingering", motion::Sabotage::DropRemovals),
    ("usurped", motion::Sabotage::ForgeCommands),
];

impl Swarm {
    /// Everything that can be in a scenario.
    fn features(self) -> &'static [&'static str] {
        match self {
            Self::Sessions(_) => &scenario::FEATURES,
            Self::Mazes(_) => &peer_world::FEATURES,
            Self::Mirrors(_) => &mirror::FEATURES,
            Self::Motion(_) => &motion::FEATURES,
        }
    }

    fn run(self, seed: u64) -> ScenarioResult {
        match self {
            Self::Sessions(sabotage) => {
                scenario::SessionScenario { sabotage, ..scenario::SessionScenario::new(seed) }.run()
            }
            Self::Mazes(sabotage) => {
                peer_world::PeerWorldScenario { sabotage, ..peer_world::PeerWorldScenario::new(seed) }.run()
            }
            Self::Mirrors(sabotage) => mirror::MirrorScenario { sabotage, ..mirror::MirrorScenario::new(seed) }.run(),
            Self::Motion(sabotage) => motion::MotionScenario { sabotage, ..motion::MotionScenario::new(seed) }.run(),
        }
    }

    fn describe(self, seed: u64) -> String {
        match self {
            Self::Sessions(sabotage) => {
                scenario::SessionScenario { sabotage, ..scenario::SessionScenario::new(seed) }.to_string()
            }
            Self::Mazes(_) => peer_world::PeerWorldScenario::new(seed).to_string(),
            Self::Mirrors(_) => mirror::MirrorScenario::new(seed).to_string(),
            Self::Motion(_) => motion::MotionScenario::new(seed).to_string(),
        }
    }

    /// The options that ask for it.
    fn cli_options(self) -> String {
        fn name<S: PartialEq>(all: &[(&'static str, S)], sabotage: Option<S>) -> String {
            let name = all.iter().find(|(_, one)| sabotage.as_ref() == Some(one)).map(|(name, _)| *name);
            name.map_or_else(String::new, |name| format!(" --sabotage {name}"))
        }
        match self {
            Self::Sessions(sabotage) => name(&SESSION_SABOTAGE, sabotage),
            Self::Mazes(sabotage) => format!(" --maze{}", name(&MAZE_SABOTAGE, sabotage)),
            Self::Mirrors(sabotage) => format!(" --mirror{}", name(&MIRROR_SABOTAGE, sabotage)),
            Self::Motion(sabotage) => format!(" --motion{}", name(&MOTION_SABOTAGE, sabotage)),
        }
    }
}

/// The only place in this crate with threads and a clock.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swarm: {error}\nhint: swarm --help lists what can be asked for");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.single_seed {
        return run_one(seed, options);
    }
    let started = std::time::Instant::now();
    let next = AtomicU64::new(options.first_seed);
    let until = options.first_seed.saturating_add(options.seed_count);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (report, reports) = mpsc::channel();
    let total = std::thread::scope(|scope| {
        for _ in 0..workers {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= until || report.send((seed, options.swarm.run(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        let mut total =
            SwarmTotals { feature_counts: vec![0; options.swarm.features().len()], ..SwarmTotals::default() };
        for (seed, played) in reports {
            total.add(seed, &played, options);
            if total.seed_count.is_multiple_of(500) {
                eprintln!(
                    "{:6} of {} seeds, {:.0} s",
                    total.seed_count,
                    options.seed_count,
                    started.elapsed().as_secs_f64()
                );
            }
        }
        total
    });
    total.print(started.elapsed().as_secs_f64(), options.swarm)
}

fn parse_options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { seed_count: 1_000, first_seed: 0, single_seed: None, swarm: Swarm::Sessions(None) };
    let (mut maze, mut motion, mut mirror, mut sabotage) = (false, false, false, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("seeds") => {
                options.seed_count = parser.value()?.parse_with(|text| parse_number("--seeds", text, 1))?
            }
            Long("from") => options.first_seed = parser.value()?.parse_with(|text| parse_number("--from", text, 0))?,
            Long("seed") => {
                options.single_seed = Some(parser.value()?.parse_with(|text| parse_number("--seed", text, 0))?)
            }
            Long("maze") => maze = true,
            Long("mirror") => mirror = true,
            Long("motion") => motion = true,
            Long("sabotage") => sabotage = Some(parser.value()?.string()?),
            Long("help") | Short('h') => {
                print_line!("{HELP}");
                return Ok(None);
            }
            _ => return Err(arg.unexpected()),
        }
    }
    options.swarm = match (maze, motion, mirror) {
        (false, false, false) => {
            Swarm::Sessions(sabotage.map(|name| find_sabotage(&name, &SESSION_SABOTAGE)).transpose()?)
        }
        (true, false, false) => Swarm::Mazes(sabotage.map(|name| find_sabotage(&name, &MAZE_SABOTAGE)).transpose()?),
        (false, true, false) => Swarm::Motion(sabotage.map(|name| find_sabotage(&name, &MOTION_SABOTAGE)).transpose()?),
        (false, false, true) => {
            Swarm::Mirrors(sabotage.map(|name| find_sabotage(&name, &MIRROR_SABOTAGE)).transpose()?)
        }
        _ => return Err("--maze, --motion and --mirror are different swarms".into()),
    };
    Ok(Some(options))
}

fn parse_number(option: &str, text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{option} takes a whole number from {least} on"))
}

fn find_sabotage<S: Copy>(name: &str, all: &[(&str, S)]) -> Result<S, String> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, sabotage)| *sabotage);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("--sabotage takes one of {}", names()))
}

/// Plays one scenario and tells all about it.
fn run_one(seed: u64, options: Options) -> ExitCode {
    print_line!("{}", options.swarm.describe(seed));
    let played = options.swarm.run(seed);
    print_line!(
        "{} frames in {:.0} virtual seconds, {} packets, {} lost",
        played.frames,
        played.virtual_seconds,
        played.packets,
        played.lost_datagrams
    );
    for violation in &played.violations {
        print_line!("violation: {violation}");
    }
    print_line!("trace {:016x}", played.trace_hash);
    if played.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All scenarios together.
#[derive(Default)]
struct SwarmTotals {
    seed_count: u64,
    failed_count: u64,
    sum: ScenarioResult,
    feature_counts: Vec<u64>,
}

impl SwarmTotals {
    fn add(&mut self, seed: u64, played: &ScenarioResult, options: Options) {
        self.seed_count += 1;
        self.sum.frames += played.frames;
        self.sum.activity_count += played.activity_count;
        self.sum.recorded += played.recorded;
        self.sum.packets += played.packets;
        self.sum.lost_datagrams += played.lost_datagrams;
        self.sum.rejected_datagrams += played.rejected_datagrams;
        self.sum.cuts += played.cuts;
        self.sum.crashes += played.crashes;
        self.sum.virtual_seconds += played.virtual_seconds;
        // Seeds come in any order, so the order must not count.
        self.sum.trace_hash =
            self.sum.trace_hash.wrapping_add(coplay_sim::toy_machine::mix_hash(seed, played.trace_hash));
        for (count, there) in self.feature_counts.iter_mut().zip(&played.features) {
            *count += u64::from(*there);
        }
        if let Some(violation) = played.violations.first() {
            self.failed_count += 1;
            let more = options.swarm.cli_options();
            print_line!("seed {seed}: {violation}");
            print_line!("  replay: cargo run --release -p coplay-sim --bin swarm -- --seed {seed}{more}");
        }
    }

    fn print(&self, seconds: f64, what: Swarm) -> ExitCode {
        let kinds = what.features();
        let sum = &self.sum;
        print_line!("{} seeds, {:.0} virtual seconds in {seconds:.0} s", self.seed_count, sum.virtual_seconds);
        let (frames, seen) = match what {
            Swarm::Sessions(_) => ("frames", "frames watched"),
            Swarm::Mazes(_) => ("views", "hits"),
            Swarm::Mirrors(_) => ("deliveries", "obsolete events dropped"),
            Swarm::Motion(_) => ("frames", "commands"),
        };
        print_line!(
            "{} {frames}, {} packets, {} lost, {} refused",
            sum.frames,
            sum.packets,
            sum.lost_datagrams,
            sum.rejected_datagrams
        );
        print_line!("{} cuts, {} crashes", sum.cuts, sum.crashes);
        let recorded = if sum.recorded > 0 { format!(", {} on record", sum.recorded) } else { String::new() };
        print_line!("{} {seen}{recorded}", sum.activity_count);
        let share = |count: u64| count as f64 / self.seed_count.max(1) as f64;
        let shares = kinds
            .iter()
            .zip(&self.feature_counts)
            .map(|(kind, count)| format!("{kind} {:.0} %", share(*count) * 100.0));
        print_line!("in how many seeds: {}", shares.collect::<Vec<_>>().join(", "));
        print_line!("trace {:016x}", sum.trace_hash);
        let rare = kinds.iter().zip(&self.feature_counts).filter(|(_, count)| share(**count) < MIN_FEATURE_SHARE);
        let rare: Vec<_> = rare.map(|(kind, _)| *kind).filter(|_| self.seed_count >= MIN_SEEDS_FOR_SHARES).collect();
        if !rare.is_empty() {
            print_line!("too rare to prove anything: {}", rare.join(", "));
        }
        print_line!("violations: {}", self.failed_count);
        if self.failed_count == 0 && rare.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
