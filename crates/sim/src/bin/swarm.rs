//! The swarm: plays many random scenarios, each drawn from its seed alone, and judges every one.
//!
//! Prints what it went through and every broken promise with the one command that replays it. Exits with 1 if there was one.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use coplay_sim::scenario::{self, Played};
use coplay_sim::{arena, court, senate, site};

/// Prints a line; who reads only the beginning may close the pipe.
macro_rules! say {
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
const LEAST_SHARE: f64 = 0.03;
/// From so many seeds on, shares are told from chance.
const MANY: u64 = 1_000;

#[derive(Clone, Copy)]
struct Options {
    seeds: u64,
    from: u64,
    only: Option<u64>,
    what: What,
}

/// What is played, and what is broken in it on purpose.
#[derive(Clone, Copy)]
enum What {
    Sessions(Option<site::Sabotage>),
    Mazes(Option<arena::Sabotage>),
    Mirrors(Option<senate::Sabotage>),
    Motion(Option<court::Sabotage>),
}

const SESSION_SABOTAGE: [(&str, site::Sabotage); 6] = [
    ("replace", site::Sabotage::ReplaceInput),
    ("lag", site::Sabotage::LagOffByOne),
    ("silence", site::Sabotage::NoResend),
    ("forge", site::Sabotage::ForgeRelay),
    ("snapshot", site::Sabotage::WrongSnapshot),
    ("alone", site::Sabotage::GoOnAlone),
];
const MAZE_SABOTAGE: [(&str, arena::Sabotage); 5] = [
    ("shift", arena::Sabotage::Shift),
    ("deaf", arena::Sabotage::Deaf),
    ("stamps", arena::Sabotage::Stamps),
    ("ghosts", arena::Sabotage::Ghosts),
    ("wordless", arena::Sabotage::Wordless),
];
const MIRROR_SABOTAGE: [(&str, senate::Sabotage); 6] = [
    ("replace", senate::Sabotage::Replace),
    ("unlink", senate::Sabotage::Unlink),
    ("mute", senate::Sabotage::Mute),
    ("snapshot", senate::Sabotage::Snapshot),
    ("twice", senate::Sabotage::Twice),
    ("miss", senate::Sabotage::Miss),
];

const MOTION_SABOTAGE: [(&str, court::Sabotage); 10] = [
    ("deaf", court::Sabotage::Deaf),
    ("mute", court::Sabotage::Mute),
    ("stamps", court::Sabotage::Stamps),
    ("legs", court::Sabotage::Legs),
    ("since", court::Sabotage::Since),
    ("hurry", court::Sabotage::Hurry),
    ("unheeded", court::Sabotage::Unheeded),
    ("stale", court::Sabotage::Stale),
    ("lingering", court::Sabotage::Lingering),
    ("usurped", court::Sabotage::Usurped),
];

impl What {
    /// Everything that can be in a scenario.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Sessions(_) => &scenario::KINDS,
            Self::Mazes(_) => &arena::KINDS,
            Self::Mirrors(_) => &senate::KINDS,
            Self::Motion(_) => &court::KINDS,
        }
    }

    fn play(self, seed: u64) -> Played {
        match self {
            Self::Sessions(sabotage) => scenario::Scenario { sabotage, ..scenario::Scenario::new(seed) }.play(),
            Self::Mazes(sabotage) => arena::Scenario { sabotage, ..arena::Scenario::new(seed) }.play(),
            Self::Mirrors(sabotage) => senate::Scenario { sabotage, ..senate::Scenario::new(seed) }.play(),
            Self::Motion(sabotage) => court::Scenario { sabotage, ..court::Scenario::new(seed) }.play(),
        }
    }

    fn describe(self, seed: u64) -> String {
        match self {
            Self::Sessions(sabotage) => scenario::Scenario { sabotage, ..scenario::Scenario::new(seed) }.to_string(),
            Self::Mazes(_) => arena::Scenario::new(seed).to_string(),
            Self::Mirrors(_) => senate::Scenario::new(seed).to_string(),
            Self::Motion(_) => court::Scenario::new(seed).to_string(),
        }
    }

    /// The options that ask for it.
    fn options(self) -> String {
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
    let options = match parse() {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swarm: {error}\nhint: swarm --help lists what can be asked for");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.only {
        return play_one(seed, options);
    }
    let started = std::time::Instant::now();
    let next = AtomicU64::new(options.from);
    let until = options.from.saturating_add(options.seeds);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (report, reports) = mpsc::channel();
    let total = std::thread::scope(|scope| {
        for _ in 0..workers {
            let (report, next) = (report.clone(), &next);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= until || report.send((seed, options.what.play(seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(report);
        let mut total = Total { kinds: vec![0; options.what.kinds().len()], ..Total::default() };
        for (seed, played) in reports {
            total.add(seed, &played, options);
            if total.seeds.is_multiple_of(500) {
                eprintln!("{:6} of {} seeds, {:.0} s", total.seeds, options.seeds, started.elapsed().as_secs_f64());
            }
        }
        total
    });
    total.print(started.elapsed().as_secs_f64(), options.what)
}

fn parse() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { seeds: 1_000, from: 0, only: None, what: What::Sessions(None) };
    let (mut maze, mut motion, mut mirror, mut sabotage) = (false, false, false, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("seeds") => options.seeds = parser.value()?.parse_with(|text| number("--seeds", text, 1))?,
            Long("from") => options.from = parser.value()?.parse_with(|text| number("--from", text, 0))?,
            Long("seed") => options.only = Some(parser.value()?.parse_with(|text| number("--seed", text, 0))?),
            Long("maze") => maze = true,
            Long("mirror") => mirror = true,
            Long("motion") => motion = true,
            Long("sabotage") => sabotage = Some(parser.value()?.string()?),
            Long("help") | Short('h') => {
                say!("{HELP}");
                return Ok(None);
            }
            _ => return Err(arg.unexpected()),
        }
    }
    options.what = match (maze, motion, mirror) {
        (false, false, false) => What::Sessions(sabotage.map(|name| find(&name, &SESSION_SABOTAGE)).transpose()?),
        (true, false, false) => What::Mazes(sabotage.map(|name| find(&name, &MAZE_SABOTAGE)).transpose()?),
        (false, true, false) => What::Motion(sabotage.map(|name| find(&name, &MOTION_SABOTAGE)).transpose()?),
        (false, false, true) => What::Mirrors(sabotage.map(|name| find(&name, &MIRROR_SABOTAGE)).transpose()?),
        _ => return Err("--maze, --motion and --mirror are different swarms".into()),
    };
    Ok(Some(options))
}

fn number(option: &str, text: &str, least: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{option} takes a whole number from {least} on"))
}

fn find<S: Copy>(name: &str, all: &[(&str, S)]) -> Result<S, String> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, sabotage)| *sabotage);
    let names = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("--sabotage takes one of {}", names()))
}

/// Plays one scenario and tells all about it.
fn play_one(seed: u64, options: Options) -> ExitCode {
    say!("{}", options.what.describe(seed));
    let played = options.what.play(seed);
    say!(
        "{} frames in {:.0} virtual seconds, {} packets, {} lost",
        played.frames,
        played.seconds,
        played.packets,
        played.losses
    );
    for violation in &played.violations {
        say!("violation: {violation}");
    }
    say!("trace {:016x}", played.trace);
    if played.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All scenarios together.
#[derive(Default)]
struct Total {
    seeds: u64,
    bad: u64,
    sum: Played,
    kinds: Vec<u64>,
}

impl Total {
    fn add(&mut self, seed: u64, played: &Played, options: Options) {
        self.seeds += 1;
        self.sum.frames += played.frames;
        self.sum.seen += played.seen;
        self.sum.recorded += played.recorded;
        self.sum.packets += played.packets;
        self.sum.losses += played.losses;
        self.sum.dropped += played.dropped;
        self.sum.cuts += played.cuts;
        self.sum.crashes += played.crashes;
        self.sum.seconds += played.seconds;
        // Seeds come in any order, so the order must not count.
        self.sum.trace = self.sum.trace.wrapping_add(coplay_sim::toy::mix(seed, played.trace));
        for (count, there) in self.kinds.iter_mut().zip(&played.kinds) {
            *count += u64::from(*there);
        }
        if let Some(violation) = played.violations.first() {
            self.bad += 1;
            let more = options.what.options();
            say!("seed {seed}: {violation}");
            say!("  replay: cargo run --release -p coplay-sim --bin swarm -- --seed {seed}{more}");
        }
    }

    fn print(&self, seconds: f64, what: What) -> ExitCode {
        let kinds = what.kinds();
        let sum = &self.sum;
        say!("{} seeds, {:.0} virtual seconds in {seconds:.0} s", self.seeds, sum.seconds);
        let (frames, seen) = match what {
            What::Sessions(_) => ("frames", "frames watched"),
            What::Mazes(_) => ("views", "hits"),
            What::Mirrors(_) => ("deliveries", "obsolete events dropped"),
            What::Motion(_) => ("frames", "commands"),
        };
        say!("{} {frames}, {} packets, {} lost, {} refused", sum.frames, sum.packets, sum.losses, sum.dropped);
        say!("{} cuts, {} crashes", sum.cuts, sum.crashes);
        let recorded = if sum.recorded > 0 { format!(", {} on record", sum.recorded) } else { String::new() };
        say!("{} {seen}{recorded}", sum.seen);
        let share = |count: u64| count as f64 / self.seeds.max(1) as f64;
        let shares =
            kinds.iter().zip(&self.kinds).map(|(kind, count)| format!("{kind} {:.0} %", share(*count) * 100.0));
        say!("in how many seeds: {}", shares.collect::<Vec<_>>().join(", "));
        say!("trace {:016x}", sum.trace);
        let rare = kinds.iter().zip(&self.kinds).filter(|(_, count)| share(**count) < LEAST_SHARE);
        let rare: Vec<_> = rare.map(|(kind, _)| *kind).filter(|_| self.seeds >= MANY).collect();
        if !rare.is_empty() {
            say!("too rare to prove anything: {}", rare.join(", "));
        }
        say!("violations: {}", self.bad);
        if self.bad == 0 && rare.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
