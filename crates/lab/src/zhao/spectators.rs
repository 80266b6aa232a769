//! Cost of spectators, and their effect on the players. The paper leaves spectators to its journal version; a later
//! system of its authors had over 1,000 spectators.

use coplay_links::link::LinkConfig;
use coplay_sim::session_experiment::SessionExperiment;
use coplay_sim::spectator_scale::{SpectatorScaleResult, SpectatorScaleTest};

use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::max_or_zero;
use crate::papers::ZHAO;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `spectators` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "spectators",
    title: "Up to 10,000 spectators",
    summary: "Measures the cost per spectator, and the share of the spectators that see the game live, for a game of two players with up to 10,000 spectators. Checks that the players' packets are bit for bit the same as without spectators.",
    paper: &ZHAO,
    paper_figures: "beyond the paper, which leaves observers to its journal version",
    expected_seconds: 40.0,
    run,
    real_run: None,
};

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let spectator_counts: &[usize] = context.full_or_short(&[10_000, 3_000, 1_000, 300, 100, 10, 0], &[1_100, 10, 0]);
    let seconds = context.full_or_short(20, 7);
    let seed = context.seed;
    let mut outcomes = context.run_jobs(1.0, spectator_counts, |spectators| {
        let game = SessionExperiment { seed, ..SessionExperiment::new(LinkConfig::broadband()) };
        let time = coplay::time::TimeDelta::from_secs(seconds);
        (
            *spectators,
            SpectatorScaleTest { session: game, duration: time, ..SpectatorScaleTest::new(*spectators) }.run(),
        )
    });
    outcomes.reverse();
    let mut findings = Findings::default();
    findings.add_parameter("players", "2 over broadband: 12 ms, 1 ms mean jitter and 0.1 % loss in each direction");
    findings.add_parameter("spectators", "15 to 30 ms and 1 % loss in each direction; all subscribe in the first 4 s");
    findings.add_parameter("game", format!("{seconds} s at 60 frames per second"));
    findings.tables.push(table(&outcomes));
    findings.figures.push(figure(&outcomes));
    claims(&mut findings, &outcomes);
    findings
}

/// Returns the datagrams and bytes that the feed sends per spectator and frame.
fn cost_per_spectator(outcome: &SpectatorScaleResult) -> (f64, f64) {
    let frames = (outcome.total_watch_seconds * 60.0).max(1.0);
    (outcome.packets_down as f64 / frames, outcome.bytes_down as f64 / frames)
}

fn table(outcomes: &[(usize, SpectatorScaleResult)]) -> DataTable {
    let columns = [
        "spectators",
        "live",
        "wrong_states",
        "behind_frames",
        "stalls",
        "packets_per_spectator_and_frame",
        "bytes_per_spectator_and_frame",
        "feed_memory_bytes",
        "player_trace_hash",
    ];
    let mut table = DataTable::new("spectators", "Live spectators, delay and cost by number of spectators", &columns);
    for (spectators, outcome) in outcomes {
        let (packets, bytes) = cost_per_spectator(outcome);
        table.add_row([
            integer(*spectators as i64),
            integer(outcome.live as i64),
            integer(outcome.wrong_frames as i64),
            number(outcome.mean_frames_behind, 2),
            integer(outcome.stalls as i64),
            number(packets, 3),
            number(bytes, 2),
            integer(outcome.feed_memory as i64),
            format!("{:016x}", outcome.player_trace_hash).into(),
        ]);
    }
    table
}

fn figure(outcomes: &[(usize, SpectatorScaleResult)]) -> Figure {
    let panel = |title: &str, y: PlotAxis, part: fn(&SpectatorScaleResult) -> f64| {
        let line = outcomes
            .iter()
            .filter(|(spectators, _)| *spectators > 0)
            .map(|(spectators, outcome)| (*spectators as f64, part(outcome)));
        Panel::new(title, PlotAxis::logarithmic("spectators").with_min(10.0), y).line("", SeriesStyle::First, line)
    };
    let panels = vec![
        panel("Datagrams per spectator", PlotAxis::new("per frame").with_min(0.0).with_max(0.3), |outcome| {
            cost_per_spectator(outcome).0
        }),
        panel("Payload per spectator", PlotAxis::new("bytes per frame").with_min(0.0).with_max(12.0), |outcome| {
            cost_per_spectator(outcome).1
        }),
        panel("Live spectators", PlotAxis::new("% of spectators").with_min(0.0).with_max(100.0), |outcome| {
            outcome.live as f64 * 100.0 / outcome.subscribers.max(1) as f64
        }),
        panel("Mean delay behind the players", PlotAxis::new("frames").with_min(0.0), |outcome| {
            outcome.mean_frames_behind
        }),
    ];
    let caption = "From 10 to 10,000 spectators, neither the cost per spectator nor the mean delay depends on the number of spectators.";
    Figure::new("spectators", "Cost and delay per spectator by number of spectators", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, outcomes: &[(usize, SpectatorScaleResult)]) {
    let without_spectators =
        outcomes.iter().find(|(spectators, _)| *spectators == 0).map(|(_, outcome)| outcome.player_trace_hash);
    let unaffected = outcomes.iter().all(|(_, outcome)| Some(outcome.player_trace_hash) == without_spectators);
    let all_live = |(spectators, outcome): &&(usize, SpectatorScaleResult)| {
        outcome.live == *spectators && outcome.wrong_frames == 0
    };
    let live = outcomes.iter().filter(all_live).map(|(spectators, _)| *spectators).max().unwrap_or(0);
    findings.add_claim(
        "more than 1,000 spectators see a game live and with the right states",
        "over 1,000 in a later system of the authors",
        format!(
            "all of {live}; the largest game had {}",
            outcomes.iter().map(|(spectators, _)| *spectators).max().unwrap_or(0)
        ),
        live > 1_000,
    );
    findings.add_claim(
        "spectators do not affect the players",
        "not reported",
        if unaffected {
            "all packets and steps bit for bit the same, at the same instants"
        } else {
            "packets or steps differ"
        },
        unaffected,
    );
    let bytes = max_or_zero(
        outcomes.iter().filter(|(spectators, _)| *spectators >= 100).map(|(_, outcome)| cost_per_spectator(outcome).1),
    );
    findings.add_claim(
        "with 100 or more spectators, the feed sends less than 10 bytes per spectator and frame",
        "not reported",
        format!("at most {bytes:.1} bytes per frame"),
        bytes < 10.0,
    );
}
