//! Beyond the paper: how the compensation of a command's age is split between the issuing player, whose timer slows
//! down, and the server, whose timer speeds up.

use coplay::motion::MotionConfig;

use super::motion_walk::{MotionWalk, OBSERVER_PAIRS};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::LI;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, number};

/// Catalog entry of the `share` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "share",
    title: "Splitting the compensation of a command's age",
    summary: "A command has an age when it reaches the server. If the server's timer speeds up to compensate a share of this age, it converges with the player's timer sooner, but differs more from the timers of observing players. The total discrepancy is lowest if the server does not speed up.",
    paper: &LI,
    paper_figures: "beyond Figure 4",
    expected_seconds: 2.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 4] = [SeriesStyle::First, SeriesStyle::Second, SeriesStyle::Third, SeriesStyle::Fifth];
const SERVER_SHARES: [f64; 7] = [0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5];

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let walks = context.full_or_short(10, 2);
    let seed = context.seed;
    let discrepancies = context.run_jobs(1.0, &SERVER_SHARES, |share| {
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
    findings.add_parameter("link", "RTT 160 ms without jitter");
    findings.add_parameter("path", "zig-zag, a command every 2.2 s");
    findings.add_parameter("share", "fraction of a command's age that the server compensates at twice the speed");
    let mut table = DataTable::new(
        "share",
        "Timer discrepancy per command by the server's share of the compensation",
        &["server_share", "a_and_server_ms_s", "server_and_b_ms_s", "a_and_b_ms_s", "total_ms_s"],
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
    let x = PlotAxis::new("server's share of the compensation").with_min(0.0).with_max(0.5);
    let panel = Panel::new("Timer discrepancy per command", x, PlotAxis::new("ms·s").with_min(0.0));
    let panel = (0..3).fold(panel, |panel, pair| {
        panel.line(
            OBSERVER_PAIRS[pair],
            STYLES[pair],
            SERVER_SHARES.iter().zip(discrepancies).map(move |(share, of)| (*share, of[pair])),
        )
    });
    let totals = SERVER_SHARES.iter().zip(discrepancies).map(|(share, of)| (*share, of.iter().sum()));
    let panel = panel.line("total", STYLES[3], totals);
    let caption = "Time integral of the difference between two motion timers, per command, for zig-zag commands at RTT 160 ms with synchronised clocks. A is the moving player, B an observing player.";
    Figure::new("share", "Timer discrepancy over the server's share of the compensation", caption, vec![panel])
}

fn claims(findings: &mut Findings, discrepancies: &[[f64; 3]]) {
    let totals: Vec<f64> = discrepancies.iter().map(|of| of.iter().sum()).collect();
    findings.add_claim(
        "the total discrepancy of all pairs is lowest with a server share of 0",
        "the server does not compensate (share 0)",
        format!(
            "{:.1} ms·s per command with share 0, {:.1} with 0.25, {:.1} with 0.5",
            totals[0], totals[3], totals[6]
        ),
        totals.iter().skip(1).all(|other| *other > totals[0]),
    );
    let lowest = discrepancies.iter().map(|of| of[0]).fold(f64::INFINITY, f64::min);
    findings.add_claim(
        "for A and the server alone, a server share of 0.3 gives a lower discrepancy than a share of 0, and at most 2 % more than the best share",
        "not tested",
        format!("{:.1} ms·s with share 0, {:.1} with 0.3", discrepancies[0][0], discrepancies[4][0]),
        discrepancies[4][0] < discrepancies[0][0] && discrepancies[4][0] < lowest * 1.02,
    );
}
