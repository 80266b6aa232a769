//! What it was like with so many players: a row of the table.

use std::fmt;
use std::time::{Duration, Instant};

use coplay::mirror::{DEFAULT_GIT, GTD_BUCKET_WIDTH, GTD_BUCKETS};

use super::servers::{SERVERS, Servers, State};
use crate::cli::PolicyName;
use crate::load::{Crowd, Orders, Sum};
use crate::metrics::usage;
use crate::stop;
use crate::trouble::Trouble;

/// What every player presses in a second, and how many players come in one.
const COMMANDS: u32 = 25;
const RATE: u32 = 200;
/// Everybody gets so long to come in beyond that; and then all is left to settle for so long.
const LATECOMERS: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(2);
/// What servers say of themselves is as of so long ago at the most, and a little.
const STALE: f64 = 0.6;
/// Nobody is perfect: this part of what was to be pressed must be, and must be heard.
const ENOUGH: f64 = 0.95;

/// The head of the table.
pub(super) const HEAD: &str = "         policy    p50   p99   late  dropped  commands/s  events/s   cpu % of  cpu % per     bytes/s    cpu % of\n\
players             ms    ms      %        %       heard    issued   a server   player     out,   in     players  verdict";

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everybody was in, was heard, and nearly all events came in time.
    Carried,
    /// The software players did not press as often as they were to: it says nothing of the servers.
    NotOffered,
    /// Somebody was not in.
    NotAllIn,
    /// The servers did not hear what was pressed.
    NotHeard,
    /// Too many events came too late.
    Late,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carried => "carried",
            Self::NotOffered => "not offered: the players cannot keep up, which says nothing of the servers",
            Self::NotAllIn => "not all in",
            Self::NotHeard => "not all heard",
            Self::Late => "late",
        })
    }
}

/// All that is known at one moment.
struct Moment {
    at: Instant,
    states: Vec<State>,
    sum: Sum,
    cpu_seconds: f64,
}

impl Moment {
    fn now(servers: &Servers, crowd: &Crowd) -> Result<Self, Trouble> {
        let states = servers.states()?;
        Ok(Self { at: Instant::now(), states, sum: crowd.sum(), cpu_seconds: usage().0 })
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) players: u32,
    pub(super) policy: PolicyName,
    pub(super) verdict: Verdict,
    /// In milliseconds, at the server where it is worst.
    pub(super) p50: u64,
    pub(super) p99: u64,
    late: f64,
    dropped: f64,
    /// For each player and second.
    heard: f64,
    offered: f64,
    issued: f64,
    bytes: (f64, f64),
    /// In percent of a processor.
    server_cpu: f64,
    players_cpu: f64,
    present: usize,
    /// By how much the servers disagree on the time, in milliseconds: no delay is known better.
    pub(super) clocks_apart: f64,
}

/// Measures with so many players; nothing if somebody outside asked to stop.
pub(super) fn measure(
    players: u32,
    policy: PolicyName,
    seconds: u32,
    tell: impl Fn(&str),
) -> Result<Option<Row>, Trouble> {
    tell("servers start");
    let servers = Servers::start(policy)?;
    let orders = Orders {
        servers: servers.places(),
        secret: servers.secret(),
        players,
        rate: RATE,
        commands: COMMANDS,
        impairment: None,
        seed: 1,
    };
    let crowd = Crowd::send(&orders)?;
    let until = Instant::now() + Duration::from_secs_f64(f64::from(players) / f64::from(RATE)) + LATECOMERS;
    while crowd.sum().present < players as usize && Instant::now() < until && !stop::is_asked() {
        tell(&format!("{} are in", crowd.sum().present));
        std::thread::sleep(Duration::from_millis(200));
    }
    crowd.check()?;
    tell("all settles");
    wait(SETTLE);
    let before = Moment::now(&servers, &crowd)?;
    tell("it is measured");
    wait(Duration::from_secs(seconds.into()));
    let after = Moment::now(&servers, &crowd)?;
    tell("servers stop");
    Ok((!stop::is_asked()).then(|| Row::between(&before, &after, players, policy)))
}

fn wait(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !stop::is_asked() {
        std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
    }
}

impl Row {
    fn between(before: &Moment, after: &Moment, players: u32, policy: PolicyName) -> Self {
        let passed = (after.at - before.at).as_secs_f64();
        let pairs = || before.states.iter().zip(&after.states);
        let grown = |name: &str| pairs().map(|(before, after)| after.number(name) - before.number(name)).sum::<f64>();
        let rate = |name: &str| pairs().map(|(before, after)| per_second(before, after, name, passed)).sum::<f64>();
        let each = |rate: f64| rate / f64::from(players);
        let offered = (after.sum.commands - before.sum.commands) as f64 / passed;
        let out = (after.sum.sent - before.sum.sent) as f64 / passed;
        let back = (after.sum.received - before.sum.received) as f64 / passed;
        let (delivered, dropped) = (grown("delivered").max(1.0), grown("dropped"));
        // Where all players are on one server, the others have nothing to tell it.
        let is_told =
            |(before, after): &(&State, &State)| grown("issued") > after.number("issued") - before.number("issued");
        let delays: Vec<Vec<u64>> = pairs().filter(is_told).map(|(before, after)| since(before, after)).collect();
        let worst = |part: f64| delays.iter().map(|counts| quantile(counts, part)).max().unwrap_or_default();
        let ahead = || after.states.iter().map(|state| state.number("time_ahead_ms"));
        let mut row = Self {
            players,
            policy,
            verdict: Verdict::Carried,
            p50: worst(0.5),
            p99: worst(0.99),
            late: 100.0 * grown("late") / delivered,
            dropped: 100.0 * dropped / (delivered + dropped),
            heard: each(rate("commands")),
            offered: each(offered),
            issued: each(rate("issued")),
            bytes: (each(out), each(back)),
            server_cpu: 100.0 * rate("cpu_seconds") / SERVERS as f64,
            players_cpu: 100.0 * (after.cpu_seconds - before.cpu_seconds) / passed,
            present: before.sum.present.min(after.sum.present),
            clocks_apart: ahead().fold(f64::MIN, f64::max) - ahead().fold(f64::MAX, f64::min),
        };
        row.verdict = row.judge();
        row
    }

    fn judge(&self) -> Verdict {
        let enough = ENOUGH * f64::from(COMMANDS);
        if self.offered < enough {
            Verdict::NotOffered
        } else if self.present < self.players as usize {
            Verdict::NotAllIn
        } else if self.heard < enough {
            Verdict::NotHeard
        } else if self.p99 as f64 > DEFAULT_GIT.as_millis_f64() {
            Verdict::Late
        } else {
            Verdict::Carried
        }
    }

    pub(super) fn is_carried(&self) -> bool {
        self.verdict == Verdict::Carried
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { players, policy, p50, p99, late, dropped, heard, issued, server_cpu, players_cpu, .. } = self;
        let per_player = server_cpu * SERVERS as f64 / f64::from(*players);
        let (out, back) = self.bytes;
        write!(f, "{players:7}  {:8} {p50:4} {p99:5}  {late:5.1}    {dropped:5.1}       {heard:5.1}", policy.name())?;
        write!(f, "     {issued:5.1}      {server_cpu:5.1}      {per_player:5.3}   {out:5.0} {back:5.0}")?;
        write!(f, "       {players_cpu:5.1}  {}", self.verdict)?;
        match self.verdict {
            Verdict::NotAllIn => write!(f, ": {}", self.present),
            Verdict::NotOffered => write!(f, " ({:.1} pressed)", self.offered),
            Verdict::Carried | Verdict::NotHeard | Verdict::Late => Ok(()),
        }
    }
}

/// By how much a number of a server's grew in a second. Servers say how things are now and then, so what grew between two such times is
/// held against the time between them; but who stood still gets no credit for that.
fn per_second(before: &State, after: &State, name: &str, passed: f64) -> f64 {
    let grown = |name: &str| after.number(name) - before.number(name);
    grown(name) / (grown("tick") / 100.0).max(passed - STALE)
}

/// How many events took how long between two moments.
fn since(before: &State, after: &State) -> Vec<u64> {
    let earlier = before.numbers("delays");
    let count = |(at, count): (usize, u64)| count.saturating_sub(earlier.get(at).copied().unwrap_or_default());
    after.numbers("delays").into_iter().enumerate().map(count).collect()
}

/// This part of all events took no longer, in milliseconds. Where none came at all, it took longer than can be told.
fn quantile(counts: &[u64], part: f64) -> u64 {
    let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil().max(1.0) as u64;
    let mut sum = 0;
    let step = counts.iter().position(|count| {
        sum += count;
        sum >= wanted
    });
    (GTD_BUCKET_WIDTH * (step.unwrap_or(GTD_BUCKETS - 1) as i64 + 1)).as_millis_f64() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(tick: u32, commands: u32, delays: &str) -> State {
        let counts = format!("\"commands\":{commands},\"issued\":{commands},\"delivered\":{tick}");
        State::of(&format!("{{\"tick\":{tick},{counts},\"delays\":[{delays}]}}"))
    }

    /// What is measured if each server heard so many commands in ten seconds, and its events took so long.
    fn row(present: usize, offered: u64, heard: u32, delays: &str) -> Row {
        let at = Instant::now();
        let moment = |at, seconds: u32, heard: u32, delays: &str, sum| Moment {
            at,
            states: (0..SERVERS).map(|_| state(100 * seconds, heard, delays)).collect(),
            sum,
            cpu_seconds: 0.0,
        };
        let before = moment(at, 5, 1_000, "0,0,9", Sum { present, ..Sum::default() });
        let sum = Sum { present, commands: offered, ..Sum::default() };
        let after = moment(at + Duration::from_secs(10), 15, 1_000 + heard, delays, sum);
        Row::between(&before, &after, 30, PolicyName::Off)
    }

    #[test]
    fn a_row_is_carried_only_if_all_of_it_is() {
        let good = row(30, 7_500, 2_500, "0,0,9,98,2");
        assert_eq!((good.verdict, good.p50, good.p99), (Verdict::Carried, 4, 5), "what was before does not count");
        assert!((good.heard - 25.0).abs() < 0.01 && (good.offered - 25.0).abs() < 0.01, "{good:?}");
        assert_eq!(row(29, 7_500, 2_500, "0,0,9,98,2").verdict, Verdict::NotAllIn);
        assert_eq!(row(30, 7_500, 2_300, "0,0,9,98,2").verdict, Verdict::NotHeard);
        assert_eq!(row(30, 7_000, 2_500, "0,0,9,98,2").verdict, Verdict::NotOffered);
        assert_eq!((row(30, 7_500, 2_500, "0,0,9").p99, row(30, 7_500, 2_500, "0,0,9").verdict), (500, Verdict::Late));
        let late = format!("0,0,9,98{},2", ",0".repeat(147));
        assert_eq!((row(30, 7_500, 2_500, &late).p99, row(30, 7_500, 2_500, &late).verdict), (152, Verdict::Late));
    }
}
