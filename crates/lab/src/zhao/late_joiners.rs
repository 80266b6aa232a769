//! Those who come late: named by the paper for its journal version.

use coplay::time::TimeDelta;
use coplay_sim::late_join::{LateJoinExperiment, LateJoinResult, PlayerImpact};

use crate::bench::{ExperimentContext, ExperimentLength};
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, TableCell, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "latecomers",
    title: "Those who come late",
    summary: "Somebody joins a game that runs: how long until he plays, and that those who play notice nothing before he does. Every game is played twice with the same luck, with him and without.",
    paper: &ZHAO,
    paper_figures: "beyond the paper: its journal version names latecomers",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// The name of a way to come late, and the game.
type JoinMethod = (&'static str, LateJoinExperiment);

fn join_methods(length: ExperimentLength) -> Vec<JoinMethod> {
    let short = vec![
        ("to one who plays alone", LateJoinExperiment::join_single_player()),
        ("back after a crash", LateJoinExperiment::rejoin_after_crash()),
    ];
    let full = [
        ("a state of 1 MiB over 1 Mbit/s", LateJoinExperiment::by_snapshot()),
        ("10 minutes played again", LateJoinExperiment::by_replay()),
    ];
    match length {
        ExperimentLength::Full => full.into_iter().chain(short).collect(),
        ExperimentLength::Short => short,
    }
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let (seed, length) = (bench.seed, bench.length);
    let ways = join_methods(length);
    let then = bench.full_or_short(TimeDelta::from_secs(75), TimeDelta::from_secs(30));
    let outcomes = bench.run_jobs(1.0, &ways, |(name, latecomer)| {
        (*name, LateJoinExperiment { seed, time_after_join: then, ..latecomer.clone() }.run())
    });
    let mut findings = Findings::default();
    findings.add_parameter("players", "1 or 2 before the latecomer, 100 ms apart, 1 % loss; lag 4, window 8");
    findings.add_parameter("his line", "RTT 300 ms (100 ms where all is played again), 2 % loss, 1 Mbit/s");
    findings.add_parameter("he comes", "after 20 s, where all is played again after 10 min; the crashed one is dropped after 1 s and is back after 3 s from another address");
    findings.add_parameter("states", "1 MiB, none at all (lag 6, window 0, 1 ms a step), and 64 KiB");
    findings.tables.push(table(&outcomes));
    findings.figures.push(figure(&outcomes));
    claims(&mut findings, &outcomes);
    findings
}

fn seconds_cell(time: Option<TimeDelta>) -> TableCell {
    time.map_or(TableCell::Empty, |time| number(time.as_secs_f64(), 2))
}

fn table(outcomes: &[(&str, LateJoinResult)]) -> DataTable {
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
    let mut table = DataTable::new("latecomers", "When a latecomer gets how far, and what the others notice", &columns);
    for (name, outcome) in outcomes {
        let yes = |yes: bool| TableCell::from(if yes { "yes" } else { "no" });
        table.add_row([
            (*name).into(),
            seconds_cell(outcome.loaded_after),
            seconds_cell(outcome.scheduled_after),
            seconds_cell(outcome.joined_after),
            seconds_cell(outcome.first_input_after),
            integer(outcome.datagrams as i64),
            yes(outcome.same_datagrams),
            yes(outcome.players.iter().all(|player| player.same_actions)),
            number(outcome.mean_behind_ms, 2),
        ]);
    }
    table
}

fn figure(outcomes: &[(&str, LateJoinResult)]) -> Figure {
    let names = PlotAxis::categorical("", outcomes.iter().map(|(name, _)| *name));
    let bars = |part: fn(&LateJoinResult) -> Option<TimeDelta>| {
        outcomes.iter().map(move |(_, outcome)| part(outcome).map_or(0.0, TimeDelta::as_secs_f64)).collect::<Vec<f64>>()
    };
    let panel = Panel::new("From his start until he …", names, PlotAxis::new("seconds").with_min(0.0))
        .bars("has a state", SeriesStyle::Fifth, bars(|outcome| outcome.loaded_after))
        .bars("is seated", SeriesStyle::First, bars(|outcome| outcome.joined_after))
        .bars("plays", SeriesStyle::Second, bars(|outcome| outcome.first_input_after));
    let caption = "A state of 1 MiB needs 8.4 s on a line of 1 Mbit/s; where the machine cannot save, ten minutes of inputs are played again at full speed.";
    Figure::new("latecomers", "How long it takes to come late", caption, vec![panel])
}

fn claims(findings: &mut Findings, outcomes: &[(&str, LateJoinResult)]) {
    let late = |outcome: &LateJoinResult| outcome.first_input_after.map_or(f64::INFINITY, TimeDelta::as_secs_f64);
    let with_states: Vec<f64> =
        outcomes.iter().filter(|(name, _)| !name.contains("again")).map(|(_, outcome)| late(outcome)).collect();
    let longest = with_states.iter().copied().fold(0.0, f64::max);
    findings.add_claim(
        "who comes late with a state plays within 15 s",
        "left to its journal version",
        format!("after {longest:.1} s at most"),
        longest <= 15.0,
    );
    let unnoticed = |player: &PlayerImpact| player.same_actions && player.before[0] == player.before[1];
    let quiet = outcomes.iter().all(|(_, outcome)| outcome.same_datagrams && outcome.players.iter().all(unnoticed));
    findings.add_claim(
        "until he sits down the players notice nothing",
        "left to its journal version",
        if quiet { "the same bytes and steps at the same instants as without him" } else { "they differ" },
        quiet,
    );
    let sound = outcomes.iter().all(|(_, outcome)| outcome.all_running && outcome.states_equal);
    findings.add_claim(
        "all play on, with equal states",
        "left to its journal version",
        if sound { "they do" } else { "they do not" },
        sound,
    );
}
