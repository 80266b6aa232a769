//! Those who come late: named by the paper for its journal version.

use coplay::time::TimeDelta;
use coplay_sim::latecomer::{Latecomer, Outcome, Player};

use crate::bench::{Bench, Length};
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Cell, Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "latecomers",
    title: "Those who come late",
    shows: "Somebody joins a game that runs: how long until he plays, and that those who play notice nothing before he does. Every game is played twice with the same luck, with him and without.",
    paper: &ZHAO,
    figures: "beyond the paper: its journal version names latecomers",
    seconds: 8.0,
    run,
    real: None,
};

/// The name of a way to come late, and the game.
type Way = (&'static str, Latecomer);

fn ways(length: Length) -> Vec<Way> {
    let short =
        vec![("to one who plays alone", Latecomer::to_one_alone()), ("back after a crash", Latecomer::back_again())];
    let full = [
        ("a state of 1 MiB over 1 Mbit/s", Latecomer::by_snapshot()),
        ("10 minutes played again", Latecomer::by_replay()),
    ];
    match length {
        Length::Full => full.into_iter().chain(short).collect(),
        Length::Short => short,
    }
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let (seed, length) = (bench.seed, bench.length);
    let ways = ways(length);
    let then = bench.either(TimeDelta::from_secs(75), TimeDelta::from_secs(30));
    let outcomes =
        bench.spread(1.0, &ways, |(name, latecomer)| (*name, Latecomer { seed, then, ..latecomer.clone() }.run()));
    let mut findings = Findings::default();
    findings.parameter("players", "1 or 2 before the latecomer, 100 ms apart, 1 % loss; lag 4, window 8");
    findings.parameter("his line", "RTT 300 ms (100 ms where all is played again), 2 % loss, 1 Mbit/s");
    findings.parameter("he comes", "after 20 s, where all is played again after 10 min; the crashed one is dropped after 1 s and is back after 3 s from another address");
    findings.parameter("states", "1 MiB, none at all (lag 6, window 0, 1 ms a step), and 64 KiB");
    findings.tables.push(table(&outcomes));
    findings.figures.push(figure(&outcomes));
    claims(&mut findings, &outcomes);
    findings
}

fn seconds(time: Option<TimeDelta>) -> Cell {
    time.map_or(Cell::Nothing, |time| number(time.as_secs_f64(), 2))
}

fn table(outcomes: &[(&str, Outcome)]) -> Table {
    let columns = [
        "how",
        "begins_s",
        "ordered_s",
        "seated_s",
        "plays_s",
        "players_packets",
        "packets_same",
        "acts_same",
        "behind_ms",
    ];
    let mut table = Table::new("latecomers", "When a latecomer gets how far, and what the others notice", &columns);
    for (name, outcome) in outcomes {
        let yes = |yes: bool| Cell::from(if yes { "yes" } else { "no" });
        table.row([
            (*name).into(),
            seconds(outcome.loaded_after),
            seconds(outcome.ordered_after),
            seconds(outcome.seated_after),
            seconds(outcome.plays_after),
            whole(outcome.packets as i64),
            yes(outcome.same_packets),
            yes(outcome.players.iter().all(|player| player.same_acts)),
            number(outcome.behind_ms, 2),
        ]);
    }
    table
}

fn figure(outcomes: &[(&str, Outcome)]) -> Figure {
    let names = Axis::of_names("", outcomes.iter().map(|(name, _)| *name));
    let bars = |part: fn(&Outcome) -> Option<TimeDelta>| {
        outcomes.iter().map(move |(_, outcome)| part(outcome).map_or(0.0, TimeDelta::as_secs_f64)).collect::<Vec<f64>>()
    };
    let panel = Panel::new("From his start until he …", names, Axis::new("seconds").from(0.0))
        .bars("has a state", Ink::Fifth, bars(|outcome| outcome.loaded_after))
        .bars("is seated", Ink::First, bars(|outcome| outcome.seated_after))
        .bars("plays", Ink::Second, bars(|outcome| outcome.plays_after));
    let caption = "A state of 1 MiB needs 8.4 s on a line of 1 Mbit/s; where the machine cannot save, ten minutes of inputs are played again at full speed.";
    Figure::new("latecomers", "How long it takes to come late", caption, vec![panel])
}

fn claims(findings: &mut Findings, outcomes: &[(&str, Outcome)]) {
    let late = |outcome: &Outcome| outcome.plays_after.map_or(f64::INFINITY, TimeDelta::as_secs_f64);
    let with_states: Vec<f64> =
        outcomes.iter().filter(|(name, _)| !name.contains("again")).map(|(_, outcome)| late(outcome)).collect();
    let longest = with_states.iter().copied().fold(0.0, f64::max);
    findings.claim(
        "who comes late with a state plays within 15 s",
        "left to its journal version",
        format!("after {longest:.1} s at most"),
        longest <= 15.0,
    );
    let unnoticed = |player: &Player| player.same_acts && player.before[0] == player.before[1];
    let quiet = outcomes.iter().all(|(_, outcome)| outcome.same_packets && outcome.players.iter().all(unnoticed));
    findings.claim(
        "until he sits down the players notice nothing",
        "left to its journal version",
        if quiet { "the same bytes and steps at the same instants as without him" } else { "they differ" },
        quiet,
    );
    let sound = outcomes.iter().all(|(_, outcome)| outcome.running && outcome.states_equal);
    findings.claim(
        "all play on, with equal states",
        "left to its journal version",
        if sound { "they do" } else { "they do not" },
        sound,
    );
}
