//! Figure 5: how many events took how long, with seven servers.

use super::{GIT_MS, PAPER, POLICIES, Policies, pooled};
use crate::bench::Bench;
use crate::catalog::PALAZZI;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "delays",
    title: "How long events take with seven servers",
    shows: "Most events are delivered as soon as the slowest server was heard. What differs is the tail: all who wait for a lost event are in it, unless it is obsolete and passed over.",
    paper: &PALAZZI,
    figures: "Figure 5",
    seconds: 15.0,
    run,
    real: None,
};

fn run(bench: &mut Bench<'_>) -> Findings {
    let all = pooled(bench, &[7]);
    let mut findings = Findings::default();
    super::common(&mut findings, bench);
    findings.tables.push(table(&all[0]));
    findings.figures.push(figure(&all[0]));
    claims(&mut findings, &all[0]);
    super::sound(&mut findings, &all);
    findings
}

/// The part of events that took no longer, in percent.
fn within(all: &Policies, policy: usize, ms: f64) -> f64 {
    (1.0 - all.outcomes[policy].over(ms)) * 100.0
}

fn table(all: &Policies) -> Table {
    let columns = ["gtd_ms", "off_percent", "on_off_percent", "ila_percent", "ours_percent"];
    let mut table = Table::new("delays", "The part of events that took no longer", &columns);
    for ms in (80..=400).step_by(10) {
        let parts = (0..POLICIES.len()).map(|policy| number(within(all, policy, f64::from(ms)), 2));
        table.row(std::iter::once(whole(ms)).chain(parts));
    }
    table
}

fn figure(all: &Policies) -> Figure {
    let x = Axis::new("game time difference, ms").from(50.0).to(400.0);
    let panel = Panel::new("Events that took no longer", x, Axis::new("%").from(0.0).to(100.0));
    let panel = POLICIES.iter().enumerate().fold(panel, |panel, (policy, (name, _))| {
        let points = (50..=400).step_by(2).map(|ms| (f64::from(ms), within(all, policy, f64::from(ms))));
        panel.line(name, Ink::RANGE[policy], points)
    });
    let panel = panel.vertical(GIT_MS, "threshold");
    let caption = "The part of all delivered events that took no longer than this, with seven servers that send. \
                   The paper's at 150 ms: OFF 49.9 %, ON-OFF 89.4 %, ILA 93.9 %.";
    Figure::new("delays", "How long events take with seven servers (P, Figure 5)", caption, vec![panel])
}

fn claims(findings: &mut Findings, all: &Policies) {
    let text = |policy: usize| format!("{:.1} %", within(all, policy, GIT_MS));
    let paper = |policy: usize| format!("{:.1} %", 100.0 - PAPER[policy].over_at_7);
    for policy in 1..3 {
        findings.claim(
            &format!("{} keeps at least as many events within the threshold as the paper's", POLICIES[policy].0),
            &paper(policy),
            text(policy),
            within(all, policy, GIT_MS) >= 100.0 - PAPER[policy].over_at_7,
        );
    }
    let tail = |policy: usize| 100.0 - within(all, policy, 200.0);
    findings.claim(
        "the tail beyond 200 ms all but vanishes",
        "nearly nothing but for OFF",
        (0..4).map(|policy| format!("{} {:.1} %", POLICIES[policy].0, tail(policy))).collect::<Vec<_>>().join(", "),
        (1..4).all(|policy| tail(policy) < tail(0) / 5.0),
    );
}
