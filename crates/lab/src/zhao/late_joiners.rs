//! Duration of a late join, and its effect on the other players. The paper leaves late join to its journal version.

use coplay::time::TimeDelta;
use coplay_sim::late_join::{LateJoinExperiment, LateJoinResult, PlayerImpact};

use crate::bench::{ExperimentContext, ExperimentLength};
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::ZHAO;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, TableCell, integer, number};

/// Catalog entry of the `latecomers` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "latecomers",
    title: "Late join",
    summary: "A site joins a running game. The experiment measures the time until the joiner plays, and checks that the other players are undisturbed until the join takes effect. Every game runs twice with the same random numbers, once with the joiner and once without.",
    paper: &ZHAO,
    paper_figures: "beyond the paper, which leaves late joiners to its journal version",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

/// Label and settings of one way to join late.
type JoinMethod = (&'static str, LateJoinExperiment);

fn join_methods(length: ExperimentLength) -> Vec<JoinMethod> {
    let short = vec![
        ("join a single player", LateJoinExperiment::join_single_player()),
        ("rejoin after a crash", LateJoinExperiment::rejoin_after_crash()),
    ];
    let full = [
        ("1 MiB snapshot over 1 Mbit/s", LateJoinExperiment::by_snapshot()),
        ("replay of 10 min of inputs", LateJoinExperiment::by_replay()),
    ];
    match length {
        ExperimentLength::Full => full.into_iter().chain(short).collect(),
        ExperimentLength::Short => short,
    }
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let (seed, length) = (context.seed, context.length);
    let methods = join_methods(length);
    let time_after_join = context.full_or_short(TimeDelta::from_secs(75), TimeDelta::from_secs(30));
    let outcomes = context.run_jobs(1.0, &methods, |(name, late_join)| {
        (*name, LateJoinExperiment { seed, time_after_join, ..late_join.clone() }.run())
    });
    let mut findings = Findings::default();
    findings.add_parameter(
        "players",
        "1 or 2 before the join, RTT 100 ms, 1 % loss; input delay 4 frames, prediction window 8 frames",
    );
    findings.add_parameter("joiner's link", "RTT 300 ms (100 ms for the replay), 2 % loss, 1 Mbit/s");
    findings.add_parameter("join time", "20 s after the start of the game, for the replay 10 min; the crashed site is dropped 1 s after its crash and rejoins 3 s after it, from another address");
    findings.add_parameter(
        "machine state",
        "1 MiB for the snapshot over 1 Mbit/s; 64 KiB for the join of a single player and for the rejoin; the machine of the replay cannot save its state (input delay 6 frames, prediction window 0, 1 ms per step)",
    );
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
        "method",
        "loaded_s",
        "scheduled_s",
        "joined_s",
        "first_input_s",
        "player_datagrams",
        "datagrams_equal",
        "actions_equal",
        "behind_ms",
    ];
    let mut table = DataTable::new(
        "latecomers",
        "Time from the start of the joiner to each step of the join, and effect on the other players",
        &columns,
    );
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
    let panel = Panel::new("Time from the start of the joiner", names, PlotAxis::new("seconds").with_min(0.0))
        .bars("state loaded or first frame stepped", SeriesStyle::Fifth, bars(|outcome| outcome.loaded_after))
        .bars("joined", SeriesStyle::First, bars(|outcome| outcome.joined_after))
        .bars("first input", SeriesStyle::Second, bars(|outcome| outcome.first_input_after));
    let caption = "Time until the joiner has loaded a state or stepped its first frame, until its join takes effect, and until it samples its first input. A state of 1 MiB needs 8.4 s on a link of 1 Mbit/s. If the machine cannot save its state, the joiner replays ten minutes of inputs as fast as its machine steps.";
    Figure::new("latecomers", "Duration of a late join by method", caption, vec![panel])
}

fn claims(findings: &mut Findings, outcomes: &[(&str, LateJoinResult)]) {
    let time_to_play =
        |outcome: &LateJoinResult| outcome.first_input_after.map_or(f64::INFINITY, TimeDelta::as_secs_f64);
    let snapshot_times: Vec<f64> = outcomes
        .iter()
        .filter(|(name, _)| !name.contains("replay"))
        .map(|(_, outcome)| time_to_play(outcome))
        .collect();
    let longest_time = snapshot_times.iter().copied().fold(0.0, f64::max);
    findings.add_claim(
        "a joiner that loads a snapshot plays within 15 s of its start",
        "left to the paper's journal version",
        format!("after {longest_time:.1} s at most"),
        longest_time <= 15.0,
    );
    let unnoticed = |player: &PlayerImpact| player.same_actions && player.before[0] == player.before[1];
    let undisturbed =
        outcomes.iter().all(|(_, outcome)| outcome.same_datagrams && outcome.players.iter().all(unnoticed));
    findings.add_claim(
        "until the join is scheduled, the players send the same packets as without the joiner; until it takes effect, their machines step at the same instants",
        "left to the paper's journal version",
        if undisturbed {
            "same bytes and steps at the same instants as without the joiner"
        } else {
            "bytes or steps differ"
        },
        undisturbed,
    );
    let sound = outcomes.iter().all(|(_, outcome)| outcome.all_running && outcome.states_equal);
    findings.add_claim(
        "all sites keep playing, with equal states",
        "left to the paper's journal version",
        if sound { "all sites run, every state equal" } else { "a site stopped, or states differ" },
        sound,
    );
}
