//! Those who only watch: named by the paper for its journal version; a later system of its authors had over 1,000.

use coplay_sim::link::LinkConfig;
use coplay_sim::session_experiment::SessionExperiment as Game;
use coplay_sim::spectators::scale::{SpectatorScaleResult, SpectatorScaleTest};

use crate::bench::ExperimentContext;
use crate::catalog::ZHAO;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::numbers::max_or_zero;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "spectators",
    title: "Those who watch",
    summary: "One game of two with up to ten thousand who watch it: what each of them costs, whether all see it live, and that the players' packets are bit for bit the same as if nobody watched.",
    paper: &ZHAO,
    paper_figures: "beyond the paper: its journal version names observers",
    expected_seconds: 40.0,
    run,
    real_run: None,
};

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let crowds: &[usize] = bench.full_or_short(&[10_000, 3_000, 1_000, 300, 100, 10, 0], &[1_100, 10, 0]);
    let seconds = bench.full_or_short(20, 7);
    let seed = bench.seed;
    let mut outcomes = bench.run_jobs(1.0, crowds, |watchers| {
        let game = Game { seed, ..Game::new(LinkConfig::broadband()) };
        let time = coplay::time::TimeDelta::from_secs(seconds);
        (*watchers, SpectatorScaleTest { session: game, duration: time, ..SpectatorScaleTest::new(*watchers) }.run())
    });
    outcomes.reverse();
    let mut findings = Findings::default();
    findings.add_parameter("players", "2 over broadband: 12 ms, 1 ms of jitter, 0.1 % loss");
    findings.add_parameter("who watches", "15 to 30 ms away, 1 % loss; all come within 4 s");
    findings.add_parameter("game", format!("{seconds} s at 60 frames per second"));
    findings.tables.push(table(&outcomes));
    findings.figures.push(figure(&outcomes));
    claims(&mut findings, &outcomes);
    findings
}

/// Datagrams and bytes from the feed for each who watches, per frame.
fn cost_per_spectator(outcome: &SpectatorScaleResult) -> (f64, f64) {
    let frames = (outcome.total_watch_seconds * 60.0).max(1.0);
    (outcome.packets_down as f64 / frames, outcome.bytes_down as f64 / frames)
}

fn table(outcomes: &[(usize, SpectatorScaleResult)]) -> DataTable {
    let columns = [
        "watchers",
        "live",
        "wrong",
        "behind_frames",
        "stalls",
        "packets_per_watcher_and_frame",
        "bytes_per_watcher_and_frame",
        "feed_bytes",
        "players_trace",
    ];
    let mut table = DataTable::new("spectators", "A crowd in numbers", &columns);
    for (watchers, outcome) in outcomes {
        let (packets, bytes) = cost_per_spectator(outcome);
        table.add_row([
            integer(*watchers as i64),
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
            .filter(|(watchers, _)| *watchers > 0)
            .map(|(watchers, outcome)| (*watchers as f64, part(outcome)));
        Panel::new(title, PlotAxis::logarithmic("who watch").with_min(10.0), y).line("", SeriesStyle::First, line)
    };
    let panels = vec![
        panel("Datagrams for each", PlotAxis::new("per frame").with_min(0.0).with_max(0.3), |outcome| {
            cost_per_spectator(outcome).0
        }),
        panel("Payload for each", PlotAxis::new("bytes per frame").with_min(0.0).with_max(12.0), |outcome| {
            cost_per_spectator(outcome).1
        }),
        panel("Seen live", PlotAxis::new("% of all who watch").with_min(0.0).with_max(100.0), |outcome| {
            outcome.live as f64 * 100.0 / outcome.subscribers.max(1) as f64
        }),
        panel("Behind the players", PlotAxis::new("frames").with_min(0.0), |outcome| outcome.mean_frames_behind),
    ];
    let caption = "What one who watches costs does not depend on how many there are; what all see is as fresh for ten thousand as for ten.";
    Figure::new("spectators", "From ten to ten thousand who watch", caption, panels).columns(2)
}

fn claims(findings: &mut Findings, outcomes: &[(usize, SpectatorScaleResult)]) {
    let alone = outcomes.iter().find(|(watchers, _)| *watchers == 0).map(|(_, outcome)| outcome.player_trace_hash);
    let unnoticed = outcomes.iter().all(|(_, outcome)| Some(outcome.player_trace_hash) == alone);
    let all_live =
        |(watchers, outcome): &&(usize, SpectatorScaleResult)| outcome.live == *watchers && outcome.wrong_frames == 0;
    let live = outcomes.iter().filter(all_live).map(|(watchers, _)| *watchers).max().unwrap_or(0);
    findings.add_claim(
        "more than 1,000 see a game live, and see it right",
        "its successor: over 1,000",
        format!("{live} of {}", outcomes.iter().map(|(watchers, _)| *watchers).max().unwrap_or(0)),
        live > 1_000,
    );
    findings.add_claim(
        "the players cannot tell whether anybody watches",
        "not told",
        if unnoticed { "all packets and steps bit for bit the same, at the same instants" } else { "they differ" },
        unnoticed,
    );
    let bytes = max_or_zero(
        outcomes.iter().filter(|(watchers, _)| *watchers >= 100).map(|(_, outcome)| cost_per_spectator(outcome).1),
    );
    findings.add_claim(
        "one who watches costs less than a player",
        "not told",
        format!("at most {bytes:.1} bytes a frame"),
        bytes < 10.0,
    );
}
