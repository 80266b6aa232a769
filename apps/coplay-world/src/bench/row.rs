//! What it was like with so many players: a row of the table.

use std::fmt;
use std::time::{Duration, Instant};

use coplay::mirror::{DEFAULT_GIT, GTD_BUCKET_WIDTH, GTD_BUCKETS};

use super::servers::{SERVER_COUNT, ServerProcesses, ServerState};
use crate::cli::PolicyName;
use crate::error::CliError;
use crate::load::{BotFleet, FleetConfig, FleetTotals};
use crate::metrics::process_usage;
use crate::signals;

/// What every player presses in a second, and how many players come in one.
const COMMANDS_PER_SECOND: u32 = 25;
const JOINS_PER_SECOND: u32 = 200;
/// Everybody gets so long to come in beyond that; and then all is left to settle for so long.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// What servers say of themselves is as of so long ago at the most, and a little.
const MAX_STATE_AGE_SECONDS: f64 = 0.6;
/// Nobody is perfect: this part of what was to be pressed must be, and must be heard.
const MIN_COMMAND_SHARE: f64 = 0.95;

/// The head of the table.
pub(super) const TABLE_HEADER: &str = "         policy    p50   p99   late  dropped  commands/s  events/s   cpu % of  cpu % per     bytes/s    cpu % of\n\
players             ms    ms      %        %       heard    issued   a server   player     out,   in     players  verdict";

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Everybody was in, was heard, and nearly all events came in time.
    Carried,
    /// The software players did not press as often as they were to: it says nothing of the servers.
    LoadNotOffered,
    /// Somebody was not in.
    PlayersMissing,
    /// The servers did not hear what was pressed.
    CommandsLost,
    /// Too many events came too late.
    EventsLate,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carried => "carried",
            Self::LoadNotOffered => "not offered: the players cannot keep up, which says nothing of the servers",
            Self::PlayersMissing => "not all in",
            Self::CommandsLost => "not all heard",
            Self::EventsLate => "late",
        })
    }
}

/// All that is known at one moment.
struct MetricsReading {
    at: Instant,
    states: Vec<ServerState>,
    totals: FleetTotals,
    cpu_seconds: f64,
}

impl MetricsReading {
    fn now(servers: &ServerProcesses, crowd: &BotFleet) -> Result<Self, CliError> {
        let states = servers.states()?;
        Ok(Self { at: Instant::now(), states, totals: crowd.totals(), cpu_seconds: process_usage().0 })
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) players: u32,
    pub(super) policy: PolicyName,
    pub(super) verdict: Verdict,
    /// In milliseconds, at the server where it is worst.
    pub(super) p50_ms: u64,
    pub(super) p99_ms: u64,
    late_percent: f64,
    dropped_percent: f64,
    /// For each player and second.
    commands_received: f64,
    commands_offered: f64,
    events_issued: f64,
    bytes_per_second: (f64, f64),
    /// In percent of a processor.
    server_cpu_percent: f64,
    players_cpu_percent: f64,
    players_present: usize,
    /// By how much the servers disagree on the time, in milliseconds: no delay is known better.
    pub(super) clock_spread_ms: f64,
}

/// Measures with so many players; nothing if somebody outside asked to stop.
pub(super) fn measure(
    players: u32,
    policy: PolicyName,
    seconds: u32,
    tell: impl Fn(&str),
) -> Result<Option<Row>, CliError> {
    tell("servers start");
    let servers = ServerProcesses::start(policy)?;
    let orders = FleetConfig {
        servers: servers.player_addrs(),
        secret: servers.secret(),
        player_count: players,
        joins_per_second: JOINS_PER_SECOND,
        commands_per_second: COMMANDS_PER_SECOND,
        impairment: None,
        seed: 1,
    };
    let crowd = BotFleet::start(&orders)?;
    let until =
        Instant::now() + Duration::from_secs_f64(f64::from(players) / f64::from(JOINS_PER_SECOND)) + JOIN_TIMEOUT;
    while crowd.totals().present < players as usize && Instant::now() < until && !signals::is_stop_requested() {
        tell(&format!("{} are in", crowd.totals().present));
        std::thread::sleep(Duration::from_millis(200));
    }
    crowd.check_sockets()?;
    tell("all settles");
    sleep_unless_stopped(SETTLE_TIME);
    let before = MetricsReading::now(&servers, &crowd)?;
    tell("it is measured");
    sleep_unless_stopped(Duration::from_secs(seconds.into()));
    let after = MetricsReading::now(&servers, &crowd)?;
    tell("servers stop");
    Ok((!signals::is_stop_requested()).then(|| Row::from_readings(&before, &after, players, policy)))
}

fn sleep_unless_stopped(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !signals::is_stop_requested() {
        std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
    }
}

impl Row {
    fn from_readings(before: &MetricsReading, after: &MetricsReading, players: u32, policy: PolicyName) -> Self {
        let passed = (after.at - before.at).as_secs_f64();
        let pairs = || before.states.iter().zip(&after.states);
        let grown = |name: &str| pairs().map(|(before, after)| after.number(name) - before.number(name)).sum::<f64>();
        let rate =
            |name: &str| pairs().map(|(before, after)| growth_per_second(before, after, name, passed)).sum::<f64>();
        let each = |rate: f64| rate / f64::from(players);
        let offered = (after.totals.commands - before.totals.commands) as f64 / passed;
        let out = (after.totals.bytes_sent - before.totals.bytes_sent) as f64 / passed;
        let back = (after.totals.bytes_received - before.totals.bytes_received) as f64 / passed;
        let (delivered, dropped) = (grown("delivered").max(1.0), grown("dropped"));
        // Where all players are on one server, the others have nothing to tell it.
        let is_told = |(before, after): &(&ServerState, &ServerState)| {
            grown("issued") > after.number("issued") - before.number("issued")
        };
        let delays: Vec<Vec<u64>> =
            pairs().filter(is_told).map(|(before, after)| delay_counts_between(before, after)).collect();
        let worst = |part: f64| delays.iter().map(|counts| delay_quantile_ms(counts, part)).max().unwrap_or_default();
        let ahead = || after.states.iter().map(|state| state.number("time_ahead_ms"));
        let mut row = Self {
            players,
            policy,
            verdict: Verdict::Carried,
            p50_ms: worst(0.5),
            p99_ms: worst(0.99),
            late_percent: 100.0 * grown("late") / delivered,
            dropped_percent: 100.0 * dropped / (delivered + dropped),
            commands_received: each(rate("commands")),
            commands_offered: each(offered),
            events_issued: each(rate("issued")),
            bytes_per_second: (each(out), each(back)),
            server_cpu_percent: 100.0 * rate("cpu_seconds") / SERVER_COUNT as f64,
            players_cpu_percent: 100.0 * (after.cpu_seconds - before.cpu_seconds) / passed,
            players_present: before.totals.present.min(after.totals.present),
            clock_spread_ms: ahead().fold(f64::MIN, f64::max) - ahead().fold(f64::MAX, f64::min),
        };
        row.verdict = row.compute_verdict();
        row
    }

    fn compute_verdict(&self) -> Verdict {
        let enough = MIN_COMMAND_SHARE * f64::from(COMMANDS_PER_SECOND);
        if self.commands_offered < enough {
            Verdict::LoadNotOffered
        } else if self.players_present < self.players as usize {
            Verdict::PlayersMissing
        } else if self.commands_received < enough {
            Verdict::CommandsLost
        } else if self.p99_ms as f64 > DEFAULT_GIT.as_millis_f64() {
            Verdict::EventsLate
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
        let Self {
            players,
            policy,
            p50_ms: p50,
            p99_ms: p99,
            late_percent: late,
            dropped_percent: dropped,
            commands_received: heard,
            events_issued: issued,
            server_cpu_percent: server_cpu,
            players_cpu_percent: players_cpu,
            ..
        } = self;
        let per_player = server_cpu * SERVER_COUNT as f64 / f64::from(*players);
        let (out, back) = self.bytes_per_second;
        write!(f, "{players:7}  {:8} {p50:4} {p99:5}  {late:5.1}    {dropped:5.1}       {heard:5.1}", policy.name())?;
        write!(f, "     {issued:5.1}      {server_cpu:5.1}      {per_player:5.3}   {out:5.0} {back:5.0}")?;
        write!(f, "       {players_cpu:5.1}  {}", self.verdict)?;
        match self.verdict {
            Verdict::PlayersMissing => write!(f, ": {}", self.players_present),
            Verdict::LoadNotOffered => write!(f, " ({:.1} pressed)", self.commands_offered),
            Verdict::Carried | Verdict::CommandsLost | Verdict::EventsLate => Ok(()),
        }
    }
}

/// By how much a number of a server's grew in a second. Servers say how things are now and then, so what grew between two such times is
/// held against the time between them; but who stood still gets no credit for that.
fn growth_per_second(before: &ServerState, after: &ServerState, name: &str, passed: f64) -> f64 {
    let grown = |name: &str| after.number(name) - before.number(name);
    grown(name) / (grown("tick") / 100.0).max(passed - MAX_STATE_AGE_SECONDS)
}

/// How many events took how long between two moments.
fn delay_counts_between(before: &ServerState, after: &ServerState) -> Vec<u64> {
    let earlier = before.numbers("delays");
    let count = |(at, count): (usize, u64)| count.saturating_sub(earlier.get(at).copied().unwrap_or_default());
    after.numbers("delays").into_iter().enumerate().map(count).collect()
}

/// This part of all events took no longer, in milliseconds. Where none came at all, it took longer than can be told.
fn delay_quantile_ms(counts: &[u64], part: f64) -> u64 {
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

    fn server_state(tick: u32, commands: u32, delays: &str) -> ServerState {
        let counts = format!("\"commands\":{commands},\"issued\":{commands},\"delivered\":{tick}");
        ServerState::from_text(&format!("{{\"tick\":{tick},{counts},\"delays\":[{delays}]}}"))
    }

    /// What is measured if each server heard so many commands in ten seconds, and its events took so long.
    fn row(present: usize, offered: u64, heard: u32, delays: &str) -> Row {
        let at = Instant::now();
        let moment = |at, seconds: u32, heard: u32, delays: &str, sum| MetricsReading {
            at,
            states: (0..SERVER_COUNT).map(|_| server_state(100 * seconds, heard, delays)).collect(),
            totals: sum,
            cpu_seconds: 0.0,
        };
        let before = moment(at, 5, 1_000, "0,0,9", FleetTotals { present, ..FleetTotals::default() });
        let sum = FleetTotals { present, commands: offered, ..FleetTotals::default() };
        let after = moment(at + Duration::from_secs(10), 15, 1_000 + heard, delays, sum);
        Row::from_readings(&before, &after, 30, PolicyName::Off)
    }

    #[test]
    fn row_is_carried_only_if_every_criterion_holds() {
        let good = row(30, 7_500, 2_500, "0,0,9,98,2");
        assert_eq!(
            (good.verdict, good.p50_ms, good.p99_ms),
            (Verdict::Carried, 4, 5),
            "what was before does not count"
        );
        assert!(
            (good.commands_received - 25.0).abs() < 0.01 && (good.commands_offered - 25.0).abs() < 0.01,
            "{good:?}"
        );
        assert_eq!(row(29, 7_500, 2_500, "0,0,9,98,2").verdict, Verdict::PlayersMissing);
        assert_eq!(row(30, 7_500, 2_300, "0,0,9,98,2").verdict, Verdict::CommandsLost);
        assert_eq!(row(30, 7_000, 2_500, "0,0,9,98,2").verdict, Verdict::LoadNotOffered);
        assert_eq!(
            (row(30, 7_500, 2_500, "0,0,9").p99_ms, row(30, 7_500, 2_500, "0,0,9").verdict),
            (500, Verdict::EventsLate)
        );
        let late = format!("0,0,9,98{},2", ",0".repeat(147));
        assert_eq!(
            (row(30, 7_500, 2_500, &late).p99_ms, row(30, 7_500, 2_500, &late).verdict),
            (152, Verdict::EventsLate)
        );
    }
}
