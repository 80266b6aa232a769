//! Figure 5: distribution of the event delays with seven sending servers.

use super::{GIT_MS, PAPER_RESULTS, POLICIES, PolicyOutcomes, run_all_policies};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::PALAZZI;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `delays` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "delays",
    title: "Event delays with seven sending servers",
    summary: "Most events are delivered as soon as the slowest server's events have arrived. The policies differ in the tail of the distribution: the events that wait for a lost event. If the lost event is obsolete, a dropping policy may skip it, and no event waits.",
    paper: &PALAZZI,
    paper_figures: "Figure 5",
    expected_seconds: 15.0,
    run,
    real_run: None,
};

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let all = run_all_policies(context, &[7]);
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings, context);
    findings.tables.push(table(&all[0]));
    findings.figures.push(figure(&all[0]));
    claims(&mut findings, &all[0]);
    super::states_equal_claim(&mut findings, &all);
    findings
}

/// Returns the percentage of delivered events whose delay is at most `ms` milliseconds.
fn percent_within(all: &PolicyOutcomes, policy: usize, ms: f64) -> f64 {
    (1.0 - all.outcomes[policy].share_over(ms)) * 100.0
}

fn table(all: &PolicyOutcomes) -> DataTable {
    let columns = ["gtd_ms", "off_percent", "on_off_percent", "ila_percent", "ours_percent"];
    let mut table = DataTable::new(
        "delays",
        "Share of the delivered events up to each game time difference (gtd), by policy",
        &columns,
    );
    for ms in (80..=400).step_by(10) {
        let parts = (0..POLICIES.len()).map(|policy| number(percent_within(all, policy, f64::from(ms)), 2));
        table.add_row(std::iter::once(integer(ms)).chain(parts));
    }
    table
}

fn figure(all: &PolicyOutcomes) -> Figure {
    let x = PlotAxis::new("game time difference, ms").with_min(50.0).with_max(400.0);
    let panel = Panel::new(
        "Events delivered within this time",
        x,
        PlotAxis::new("% of delivered events").with_min(0.0).with_max(100.0),
    );
    let panel = POLICIES.iter().enumerate().fold(panel, |panel, (policy, (name, _))| {
        let points = (50..=400).step_by(2).map(|ms| (f64::from(ms), percent_within(all, policy, f64::from(ms))));
        panel.line(name, SeriesStyle::SEQUENCE[policy], points)
    });
    let panel = panel.vertical_bound(GIT_MS, "threshold: 150 ms");
    let caption = "Cumulative share of the delivered events by game time difference (age at the delivery), with seven senders. \
                   The paper's values at 150 ms: OFF 49.9 %, ON-OFF 89.4 %, ILA 93.9 %.";
    Figure::new("delays", "Distribution of the event delays with seven senders (P, Figure 5)", caption, vec![panel])
}

fn claims(findings: &mut Findings, all: &PolicyOutcomes) {
    let text = |policy: usize| format!("{:.1} %", percent_within(all, policy, GIT_MS));
    let paper = |policy: usize| format!("{:.1} %", 100.0 - PAPER_RESULTS[policy].percent_over_with_7);
    for policy in 1..3 {
        findings.add_claim(
            &format!(
                "with 7 senders, {} keeps at least as large a share of the events within the threshold as in the paper",
                POLICIES[policy].0
            ),
            &paper(policy),
            text(policy),
            percent_within(all, policy, GIT_MS) >= 100.0 - PAPER_RESULTS[policy].percent_over_with_7,
        );
    }
    let tail = |policy: usize| 100.0 - percent_within(all, policy, 200.0);
    findings.add_claim(
        "with 7 senders, the share of the events beyond 200 ms is under every dropping policy less than a fifth of that under OFF",
        "close to zero except for OFF",
        (0..4).map(|policy| format!("{} {:.1} %", POLICIES[policy].0, tail(policy))).collect::<Vec<_>>().join(", "),
        (1..4).all(|policy| tail(policy) < tail(0) / 5.0),
    );
}
