//! The swarm: runs many random scenarios, each drawn from its seed alone, and checks every one.
//!
//! Prints the totals, and the first violation of each failed seed with the command that replays it. With `--seed`,
//! describes and runs one scenario. Exits with 1 if there was a violation, or if a feature was too rare among 1,000 or
//! more seeds.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use coplay_sim::scenario_result::ScenarioResult;
use coplay_sim::session::scenario;
use coplay_sim::{mirror, motion, peer_world, site};

/// Prints a line and ignores a closed pipe, as under `head`.
macro_rules! print_line {
    ($($text:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($text)*);
    };
}

const HELP: &str = "\
Run random scenarios with faults in virtual time and check the invariants of the engines.

Usage: swarm [--maze | --motion | --mirror] [--seeds N] [--from N] [--sabotage NAME]
       swarm [--maze | --motion | --mirror] --seed N [--sabotage NAME]

Engine (default: sessions in lockstep or with rollback):
  --maze           a maze without a server, shared by peers
  --motion         a server of moving objects and its clients
  --mirror         mirrored servers

Options:
  --seeds N        number of scenarios to run (default 1000)
  --from N         first seed (default 0)
  --seed N         run one scenario, describe it, and print its trace hash
  --sabotage NAME  inject a defect, to prove that the checkers detect it
  --help           print this text

Defects of sessions, at the last site:
  replace          sends other inputs than it uses itself
  lag              applies its inputs one frame late
  silence          sends nothing while it waits for inputs
  forge            changes inputs that it relays for others
  snapshot         sends a corrupt state to late joiners
  alone            continues without a quorum

Defects with --maze, at the first site:
  shift            updates arrive with a wrong tick
  deaf             datagrams with score records do not arrive
  wordless         like deaf, but leave messages arrive, without their records
  stamps           clock echoes arrive with wrong time stamps
  ghosts           the checker does not record deliveries to the site after 5 s

Defects with --motion, at the first client:
  deaf             commands from the server do not arrive after 6 s
  mute             its commands do not reach the server after 6 s
  stamps           clock echoes arrive with wrong time stamps
  legs             the path segments of commands arrive too long
  since            the age of the server's last command arrives too high
  hurry            its clock runs too fast for one second
  unheeded         its subscriptions do not reach the server after 6 s
  stale            commands of new epochs do not arrive
  lingering        removals of objects do not arrive
  usurped          forged commands arrive for its own object after 6 s

Defects with --mirror, at the first server:
  replace          all received events claim to replace earlier ones
  unlink           received events lose their dependencies
  mute             its requests for missing events are lost
  snapshot         installs corrupt snapshots
  twice            applies every 20th event twice
  miss             skips every 20th event";

/// Smallest share of the seeds that must contain each feature.
const MIN_FEATURE_SHARE: f64 = 0.03;
/// Number of seeds from which on the shares of features are checked.
const MIN_SEEDS_FOR_SHARES: u64 = 1_000;

#[derive(Clone, Copy)]
struct Options {
    seed_count: u64,
    first_seed: u64,
    single_seed: Option<u64>,
    swarm: Swarm,
}

/// Engine under test, with the defect injected into its scenarios, if any.
#[derive(Clone, Copy)]
enum Swarm {
    Sessions(Option<site::SessionSabotage>),
    Mazes(Option<peer_world::PeerWorldSabotage>),
    Mirrors(Option<mirror::MirrorSabotage>),
    Motion(Option<motion::MotionSabotage>),
}

const SESSION_SABOTAGE: [(&str, site::SessionSabotage); 6] = [
    ("replace", site::SessionSabotage::ReplaceInput),
    ("lag", site::SessionSabotage::InputDelayOffByOne),
    ("silence", site::SessionSabotage::NoRetransmit),
    ("forge", site::SessionSabotage::ForgeRelay),
    ("snapshot", site::SessionSabotage::CorruptSnapshot),
    ("alone", site::SessionSabotage::ContinueWithoutQuorum),
];
const MAZE_SABOTAGE: [(&str, peer_world::PeerWorldSabotage); 5] = [
    ("shift", peer_world::PeerWorldSabotage::ShiftUpdateTicks),
    ("deaf", peer_world::PeerWorldSabotage::DropRecords),
    ("stamps", peer_world::PeerWorldSabotage::WrongClockStamps),
    ("ghosts", peer_world::PeerWorldSabotage::ShowUndelivered),
    ("wordless", peer_world::PeerWorldSabotage::DropFinalRecords),
];
const MIRROR_SABOTAGE: [(&str, mirror::MirrorSabotage); 6] = [
    ("replace", mirror::MirrorSabotage::MarkAllReplacing),
    ("unlink", mirror::MirrorSabotage::StripDependencies),
    ("mute", mirror::MirrorSabotage::DropRequests),
    ("snapshot", mirror::MirrorSabotage::CorruptSnapshot),
    ("twice", mirror::MirrorSabotage::ApplyTwice),
    ("miss", mirror::MirrorSabotage::SkipEvents),
];

const MOTION_SABOTAGE: [(&str, motion::MotionSabotage); 10] = [
    ("deaf", motion::MotionSabotage::DropCommandsToClient),
    ("mute", motion::MotionSabotage::DropCommandsToServer),
    ("stamps", motion::MotionSabotage::WrongClockStamps),
    ("legs", motion::MotionSabotage::LongerSegments),
    ("since", motion::MotionSabotage::WrongTurnTimes),
    ("hurry", motion::MotionSabotage::FastClock),
    ("unheeded", motion::MotionSabotage::DropSubscriptions),
    ("stale", motion::MotionSabotage::DropNewEpochs),
    ("lingering", motion::MotionSabotage::DropRemovals),
    ("usurped", motion::MotionSabotage::ForgeCommands),
];

impl Swarm {
    /// Returns the units in which this engine counts the `frames` and the `activity_count` of a [`ScenarioResult`].
    fn units(self) -> (&'static str, &'static str) {
        match self {
            Self::Sessions(_) => ("frames", "frames stepped by spectators"),
            Self::Mazes(_) => ("views", "hits"),
            Self::Mirrors(_) => ("deliveries", "obsolete events dropped"),
            Self::Motion(_) => ("frames", "commands"),
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

    /// Returns the command-line options that select the engine and the defect.
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

/// Runs the scenarios on all processor cores. No other function in this crate uses threads or a real clock.
#[allow(clippy::disallowed_methods, clippy::disallowed_types)]
fn main() -> ExitCode {
    let options = match parse_options() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\nhint: `swarm --help` lists all options");
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
        let mut total = SwarmTotals::default();
        for (seed, result) in reports {
            total.add(seed, &result, options);
            if total.seed_count.is_multiple_of(500) {
                eprintln!(
                    "{:6} of {} seeds done after {:.0} s",
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
        _ => return Err("--maze, --motion and --mirror cannot be used together".into()),
    };
    Ok(Some(options))
}

fn parse_number(option: &str, text: &str, min: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= min);
    number.ok_or_else(|| format!("{option} must be a whole number from {min} on"))
}

fn find_sabotage<S: Copy>(name: &str, all: &[(&str, S)]) -> Result<S, String> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, sabotage)| *sabotage);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("this engine has no defect {name:?}: use one of {}", names()))
}

/// Runs one scenario, and prints its description and result.
fn run_one(seed: u64, options: Options) -> ExitCode {
    print_line!("{}", options.swarm.describe(seed));
    let result = options.swarm.run(seed);
    print_line!(
        "{} {} in {:.0} virtual seconds, {} datagrams sent, {} lost",
        result.frames,
        options.swarm.units().0,
        result.virtual_seconds,
        result.packets,
        result.lost_datagrams
    );
    for violation in &result.violations {
        print_line!("violation: {violation}");
    }
    print_line!("trace hash {:016x}", result.trace_hash);
    if result.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Totals over all scenarios run so far.
#[derive(Default)]
struct SwarmTotals {
    seed_count: u64,
    failed_count: u64,
    sum: ScenarioResult,
    /// Number of scenarios with each feature.
    feature_counts: Vec<(&'static str, u64)>,
}

impl SwarmTotals {
    fn add(&mut self, seed: u64, result: &ScenarioResult, options: Options) {
        self.seed_count += 1;
        self.sum.frames += result.frames;
        self.sum.activity_count += result.activity_count;
        self.sum.recorded += result.recorded;
        self.sum.packets += result.packets;
        self.sum.lost_datagrams += result.lost_datagrams;
        self.sum.rejected_datagrams += result.rejected_datagrams;
        self.sum.cuts += result.cuts;
        self.sum.crashes += result.crashes;
        self.sum.virtual_seconds += result.virtual_seconds;
        // Results arrive in any order, so the sum must not depend on it.
        self.sum.trace_hash =
            self.sum.trace_hash.wrapping_add(coplay_sim::toy_machine::mix_hash(seed, result.trace_hash));
        self.feature_counts.resize(result.features.len(), ("", 0));
        for ((name, count), (feature, is_present)) in self.feature_counts.iter_mut().zip(&result.features) {
            (*name, *count) = (feature, *count + u64::from(*is_present));
        }
        if let Some(violation) = result.violations.first() {
            self.failed_count += 1;
            let cli_options = options.swarm.cli_options();
            print_line!("seed {seed}: {violation}");
            print_line!("  replay: cargo run --release -p coplay-sim --bin swarm -- --seed {seed}{cli_options}");
        }
    }

    fn print(&self, seconds: f64, swarm: Swarm) -> ExitCode {
        let sum = &self.sum;
        print_line!("{} seeds, {:.0} virtual seconds in {seconds:.0} s", self.seed_count, sum.virtual_seconds);
        let (unit, activity) = swarm.units();
        print_line!(
            "{} {unit}, {} datagrams sent, {} lost, {} rejected datagrams or abandoned events",
            sum.frames,
            sum.packets,
            sum.lost_datagrams,
            sum.rejected_datagrams
        );
        print_line!("{} link cuts, {} crashes", sum.cuts, sum.crashes);
        let recorded = match swarm {
            _ if sum.recorded == 0 => String::new(),
            Swarm::Mirrors(_) => format!(", {} snapshots installed", sum.recorded),
            _ => format!(", {} frames read back from movies", sum.recorded),
        };
        print_line!("{} {activity}{recorded}", sum.activity_count);
        let share = |count: u64| count as f64 / self.seed_count.max(1) as f64;
        let shares = self.feature_counts.iter().map(|(name, count)| format!("{name} {:.0} %", share(*count) * 100.0));
        print_line!("share of seeds with each feature: {}", shares.collect::<Vec<_>>().join(", "));
        print_line!("trace hash {:016x}", sum.trace_hash);
        let is_rare = |count: u64| self.seed_count >= MIN_SEEDS_FOR_SHARES && share(count) < MIN_FEATURE_SHARE;
        let rare = self.feature_counts.iter().filter(|(_, count)| is_rare(*count));
        let rare: Vec<_> = rare.map(|(name, _)| *name).collect();
        if !rare.is_empty() {
            print_line!("features in less than 3 % of the seeds, too few for a reliable result: {}", rare.join(", "));
        }
        print_line!("seeds with violations: {}", self.failed_count);
        if self.failed_count == 0 && rare.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
