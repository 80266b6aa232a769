//! Beyond the paper: who should make up for a command's age, the player by being slower or the server by being quicker?

use coplay::motion::MotionConfig;

use super::motion_walk::{MotionWalk, OBSERVER_PAIRS};
use crate::bench::ExperimentContext;
use crate::catalog::LI;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "share",
    title: "Who makes up for a command's age",
    summary: "A server that runs a command faster at first meets the player sooner, but runs away from those who look on. For all together it is best that it does not.",
    paper: &LI,
    paper_figures: "beyond Figure 4",
    expected_seconds: 2.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 4] = [SeriesStyle::First, SeriesStyle::Second, SeriesStyle::Third, SeriesStyle::Fifth];
const SERVER_SHARES: [f64; 7] = [0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5];

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let walks = bench.full_or_short(10, 2);
    let seed = bench.seed;
    let discrepancies = bench.run_jobs(1.0, &SERVER_SHARES, |share| {
        let config = MotionConfig { server_share: *share, ..MotionConfig::clocks(1) };
        let walk = |number: u64| {
            MotionWalk { seed: seed.wrapping_mul(1_000) + number, link: 2, motion_path: 1, config, jitter: 0.0 }.run()
        };
        let mut sum = [0.0; 3];
        for number in 0..walks {
            sum.iter_mut()
                .zip(walk(number).timer_discrepancies())
                .for_each(|(sum, value)| *sum += value / walks as f64);
        }
        sum
    });
    let mut findings = Findings::default();
    findings.add_parameter("way", "a round trip of 160 ms without jitter");
    findings.add_parameter("path", "zig-zag, a command every 2.2 s");
    findings.add_parameter("share", "the part of a command's age that the server makes up for at twice the speed");
    let mut table = DataTable::new(
        "share",
        "Discrepancy of timers for each command",
        &["share", "a_and_server_ms_s", "server_and_b_ms_s", "a_and_b_ms_s", "all_ms_s"],
    );
    for (share, of) in SERVER_SHARES.iter().zip(&discrepancies) {
        table.add_row([
            number(*share, 2),
            number(of[0], 3),
            number(of[1], 3),
            number(of[2], 3),
            number(of.iter().sum(), 3),
        ]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&discrepancies));
    claims(&mut findings, &discrepancies);
    findings
}

fn figure(discrepancies: &[[f64; 3]]) -> Figure {
    let x = PlotAxis::new("the server's share").with_min(0.0).with_max(0.5);
    let panel = Panel::new("Discrepancy for each command", x, PlotAxis::new("ms·s").with_min(0.0));
    let panel = (0..3).fold(panel, |panel, pair| {
        panel.line(
            OBSERVER_PAIRS[pair],
            STYLES[pair],
            SERVER_SHARES.iter().zip(discrepancies).map(move |(share, of)| (*share, of[pair])),
        )
    });
    let all = SERVER_SHARES.iter().zip(discrepancies).map(|(share, of)| (*share, of.iter().sum()));
    let panel = panel.line("all", STYLES[3], all);
    let caption = "One command over 160 ms, with clocks.";
    Figure::new("share", "Who makes up for a command's age", caption, vec![panel])
}

fn claims(findings: &mut Findings, discrepancies: &[[f64; 3]]) {
    let all: Vec<f64> = discrepancies.iter().map(|of| of.iter().sum()).collect();
    findings.add_claim(
        "all pairs together are best off when the server makes up for nothing",
        "the server makes up for nothing",
        format!(
            "{:.1} ms·s for each command with nothing, {:.1} with a quarter, {:.1} with a half",
            all[0], all[3], all[6]
        ),
        all.iter().skip(1).all(|other| *other > all[0]),
    );
    let alone = discrepancies.iter().map(|of| of[0]).fold(f64::INFINITY, f64::min);
    findings.add_claim(
        "A and the server alone would be better off with a share of about 0.3",
        "it is not tried",
        format!("{:.1} ms·s with nothing, {:.1} with 0.3", discrepancies[0][0], discrepancies[4][0]),
        discrepancies[4][0] < discrepancies[0][0] && discrepancies[4][0] < alone * 1.02,
    );
}
