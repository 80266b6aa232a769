//! Measurement with one number of players: a row of the table.

use std::fmt;
use std::time::{Duration, Instant};

use coplay::mirror::{DEFAULT_GIT, GTD_BUCKET_WIDTH, GTD_BUCKETS};
use coplay_shell::error::AppError;
use coplay_shell::signals;

use super::servers::{SERVER_COUNT, ServerProcesses, ServerStateJson};
use crate::cli::PolicyName;
use crate::load::{BotFleet, FleetConfig, FleetTotals};
use crate::metrics::process_usage;

/// Commands per second of every player.
const COMMANDS_PER_SECOND: u32 = 16;
/// Number of players that join per second.
const JOINS_PER_SECOND: u32 = 200;
/// Time limit for all players to join, counted from the start of the last bot.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the load to settle once the players have joined.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Largest age of a server's report that the computation of its rates takes into account, in seconds.
const MAX_STATE_AGE_SECONDS: f64 = 0.6;
/// Minimum share of the nominal 16 commands per player and second that the bots must issue, and that the servers must
/// receive.
const MIN_COMMAND_SHARE: f64 = 0.95;

/// Explanation of the columns, and the two lines above the rows.
pub(super) const TABLE_HEADER: &str = "p50, p99: delay of the events between servers, at the server where it is largest;\n\
late: events delayed by more than 150 ms; dropped: obsolete events that were not delivered;\n\
commands, events and bytes: per player and second; out, in: bytes that a player sent and received\n\
\x20        policy    p50   p99   late  dropped  commands/s  events/s   cpu % of  cpu % per     bytes/s    cpu % of\n\
players             ms    ms      %        %    received    issued   a server   player     out,   in     players  verdict";

/// Result of the measurement of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All players were in the world, the servers received at least 95 % of the nominal 16 commands per player and
    /// second, and the 99 % quantile of the event delay was at most 150 ms at each server.
    Carried,
    /// The bots issued less than 95 % of the nominal 16 commands per player and second: the result says nothing about
    /// the servers.
    LoadNotOffered,
    /// A player was not in the world before or after the measurement.
    PlayersMissing,
    /// The servers received less than 95 % of the nominal 16 commands per player and second.
    CommandsLost,
    /// The 99 % quantile of the event delay exceeded 150 ms at one of the servers, or a server delivered no event of
    /// the others although they issued some.
    EventsLate,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carried => "carried",
            Self::LoadNotOffered => "not measured: the bots were too slow",
            Self::PlayersMissing => "players missing",
            Self::CommandsLost => "commands lost",
            Self::EventsLate => "events late",
        })
    }
}

/// Counters of all servers and bots at one moment.
struct MetricsReading {
    at: Instant,
    states: Vec<ServerStateJson>,
    totals: FleetTotals,
    cpu_seconds: f64,
}

impl MetricsReading {
    fn now(servers: &ServerProcesses, fleet: &BotFleet) -> Result<Self, AppError> {
        let states = servers.states()?;
        Ok(Self { at: Instant::now(), states, totals: fleet.totals(), cpu_seconds: process_usage().0 })
    }
}

/// Row of the table: the measurement of one number of players with one policy.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) players: u32,
    pub(super) policy: PolicyName,
    pub(super) verdict: Verdict,
    /// Median of the event delay in milliseconds, at the server where it is largest.
    pub(super) p50_ms: u64,
    /// 99 % quantile of the event delay in milliseconds, at the server where it is largest.
    pub(super) p99_ms: u64,
    late_percent: f64,
    dropped_percent: f64,
    /// Commands that the servers received, per player and second.
    commands_received: f64,
    /// Commands that the bots issued, per player and second.
    commands_offered: f64,
    /// Events that the servers issued, per player and second.
    events_issued: f64,
    /// Bytes that the bots sent and received, per player and second.
    bytes_per_second: (f64, f64),
    /// Processor time of a server, on average over the servers, in percent of a processor.
    server_cpu_percent: f64,
    /// Processor time of all bots together, in percent of a processor.
    players_cpu_percent: f64,
    /// Number of bots in the world before or after the measurement, whichever is smaller.
    players_present: usize,
    /// Largest difference between the servers' group times at the end of the measurement, in milliseconds: delays are
    /// no more precise than that.
    pub(super) clock_spread_ms: f64,
}

/// Measures one number of players on servers of its own; `None` if a signal asked to stop.
pub(super) fn measure(
    players: u32,
    policy: PolicyName,
    seconds: u32,
    on_progress: impl Fn(&str),
) -> Result<Option<Row>, AppError> {
    on_progress("starting servers");
    let servers = ServerProcesses::start(policy)?;
    let config = FleetConfig {
        servers: servers.player_addrs(),
        secret: servers.secret(),
        player_count: players,
        joins_per_second: JOINS_PER_SECOND,
        commands_per_second: COMMANDS_PER_SECOND,
        impairment: None,
        seed: 1,
    };
    let fleet = BotFleet::start(&config)?;
    let until =
        Instant::now() + Duration::from_secs_f64(f64::from(players) / f64::from(JOINS_PER_SECOND)) + JOIN_TIMEOUT;
    while fleet.totals().present < players as usize && Instant::now() < until && !signals::is_stop_requested() {
        on_progress(&format!("{} joined", fleet.totals().present));
        std::thread::sleep(Duration::from_millis(200));
    }
    fleet.check_sockets()?;
    on_progress("settling");
    sleep_unless_stopped(SETTLE_TIME);
    let before = MetricsReading::now(&servers, &fleet)?;
    on_progress("measuring");
    sleep_unless_stopped(Duration::from_secs(seconds.into()));
    let after = MetricsReading::now(&servers, &fleet)?;
    on_progress("stopping servers");
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
        let elapsed = (after.at - before.at).as_secs_f64();
        let pairs = || before.states.iter().zip(&after.states);
        let grown = |name: &str| pairs().map(|(before, after)| after.number(name) - before.number(name)).sum::<f64>();
        let rate =
            |name: &str| pairs().map(|(before, after)| growth_per_second(before, after, name, elapsed)).sum::<f64>();
        let each = |rate: f64| rate / f64::from(players);
        let offered = (after.totals.commands - before.totals.commands) as f64 / elapsed;
        let sent = (after.totals.bytes_sent - before.totals.bytes_sent) as f64 / elapsed;
        let received = (after.totals.bytes_received - before.totals.bytes_received) as f64 / elapsed;
        let (delivered, dropped) = (grown("delivered").max(1.0), grown("dropped"));
        // Where all players are on one server, it receives no events, and its delays mean nothing.
        let receives_events = |(before, after): &(&ServerStateJson, &ServerStateJson)| {
            grown("issued") > after.number("issued") - before.number("issued")
        };
        let delays: Vec<Vec<u64>> =
            pairs().filter(receives_events).map(|(before, after)| delay_counts_between(before, after)).collect();
        let worst = |part: f64| delays.iter().map(|counts| delay_quantile_ms(counts, part)).max().unwrap_or_default();
        let offsets = || after.states.iter().map(|state| state.number("time_ahead_ms"));
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
            bytes_per_second: (each(sent), each(received)),
            server_cpu_percent: 100.0 * rate("cpu_seconds") / SERVER_COUNT as f64,
            players_cpu_percent: 100.0 * (after.cpu_seconds - before.cpu_seconds) / elapsed,
            players_present: before.totals.present.min(after.totals.present),
            clock_spread_ms: offsets().fold(f64::MIN, f64::max) - offsets().fold(f64::MAX, f64::min),
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
            commands_received: received,
            events_issued: issued,
            server_cpu_percent: server_cpu,
            players_cpu_percent: players_cpu,
            ..
        } = self;
        let per_player = server_cpu * SERVER_COUNT as f64 / f64::from(*players);
        let (sent, returned) = self.bytes_per_second;
        write!(
            f,
            "{players:7}  {:8} {p50:4} {p99:5}  {late:5.1}    {dropped:5.1}       {received:5.1}",
            policy.name()
        )?;
        write!(f, "     {issued:5.1}      {server_cpu:5.1}      {per_player:5.3}   {sent:5.0} {returned:5.0}")?;
        write!(f, "       {players_cpu:5.1}  {}", self.verdict)?;
        match self.verdict {
            Verdict::PlayersMissing => write!(f, ": {} of {players} present", self.players_present),
            Verdict::LoadNotOffered => write!(f, " ({:.1} commands/s per player)", self.commands_offered),
            Verdict::Carried | Verdict::CommandsLost | Verdict::EventsLate => Ok(()),
        }
    }
}

/// Returns the growth of a server's counter per second. A server may report an older state than that of the request, so
/// the growth is divided by the time of the ticks between the two reports. This time counts as at least `elapsed` less
/// 0.6 s, so that a server gains nothing by standing still.
fn growth_per_second(before: &ServerStateJson, after: &ServerStateJson, name: &str, elapsed: f64) -> f64 {
    let grown = |name: &str| after.number(name) - before.number(name);
    grown(name) / (grown("tick") / 100.0).max(elapsed - MAX_STATE_AGE_SECONDS)
}

/// Returns the delay histogram of the events delivered between two reports of a server.
fn delay_counts_between(before: &ServerStateJson, after: &ServerStateJson) -> Vec<u64> {
    let earlier = before.numbers("delays");
    let count = |(at, count): (usize, u64)| count.saturating_sub(earlier.get(at).copied().unwrap_or_default());
    after.numbers("delays").into_iter().enumerate().map(count).collect()
}

/// Returns the quantile `part`, from 0 to 1, of the delays in milliseconds. Without any events it returns the largest
/// delay of the histogram.
fn delay_quantile_ms(counts: &[u64], part: f64) -> u64 {
    let rank = (counts.iter().sum::<u64>() as f64 * part).ceil().max(1.0) as u64;
    let mut sum = 0;
    let step = counts.iter().position(|count| {
        sum += count;
        sum >= rank
    });
    (GTD_BUCKET_WIDTH * (step.unwrap_or(GTD_BUCKETS - 1) as i64 + 1)).as_millis_f64() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_state(tick: u32, commands: u32, delays: &str) -> ServerStateJson {
        let counts = format!("\"commands\":{commands},\"issued\":{commands},\"delivered\":{tick}");
        ServerStateJson::from_text(&format!("{{\"tick\":{tick},{counts},\"delays\":[{delays}]}}"))
    }

    /// Returns the row of a measurement of 10 s with `present` of 30 bots in the world, which issued `offered` commands
    /// in total. Each server received `received` commands, and had this list of delay counts at the end.
    fn row(present: usize, offered: u64, received: u32, delays: &str) -> Row {
        let at = Instant::now();
        let moment = |at, seconds: u32, received: u32, delays: &str, sum| MetricsReading {
            at,
            states: (0..SERVER_COUNT).map(|_| server_state(100 * seconds, received, delays)).collect(),
            totals: sum,
            cpu_seconds: 0.0,
        };
        let before = moment(at, 5, 1_000, "0,0,9", FleetTotals { present, ..FleetTotals::default() });
        let sum = FleetTotals { present, commands: offered, ..FleetTotals::default() };
        let after = moment(at + Duration::from_secs(10), 15, 1_000 + received, delays, sum);
        Row::from_readings(&before, &after, 30, PolicyName::Off)
    }

    #[test]
    fn row_is_carried_only_if_every_criterion_holds() {
        let good = row(30, 4_800, 1_600, "0,0,9,98,2");
        assert_eq!(
            (good.verdict, good.p50_ms, good.p99_ms),
            (Verdict::Carried, 4, 5),
            "counts from before the measurement are included"
        );
        assert!(
            (good.commands_received - 16.0).abs() < 0.01 && (good.commands_offered - 16.0).abs() < 0.01,
            "{good:?}"
        );
        assert_eq!(row(29, 4_800, 1_600, "0,0,9,98,2").verdict, Verdict::PlayersMissing);
        assert_eq!(row(30, 4_800, 1_500, "0,0,9,98,2").verdict, Verdict::CommandsLost);
        assert_eq!(row(30, 4_500, 1_600, "0,0,9,98,2").verdict, Verdict::LoadNotOffered);
        assert_eq!(
            (row(30, 4_800, 1_600, "0,0,9").p99_ms, row(30, 4_800, 1_600, "0,0,9").verdict),
            (500, Verdict::EventsLate)
        );
        let late = format!("0,0,9,98{},2", ",0".repeat(147));
        assert_eq!(
            (row(30, 4_800, 1_600, &late).p99_ms, row(30, 4_800, 1_600, &late).verdict),
            (152, Verdict::EventsLate)
        );
    }
}
