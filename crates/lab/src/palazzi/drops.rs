//! Figure 6: share of the events that the policies drop to stay responsive.

use super::{POLICIES, PolicyOutcomes, SENDER_COUNTS, run_all_policies};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::PALAZZI;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `drops` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "drops",
    title: "Dropped events",
    summary: "Obsolete events do not change the final state, but players see them: if many are missing, objects jump. Our policy drops an obsolete event only if the event is late itself, or if waiting for it would make later events late.",
    paper: &PALAZZI,
    paper_figures: "Figure 6",
    expected_seconds: 40.0,
    run,
    real_run: None,
};

/// Indices of the policies that drop events.
const DROPPING_POLICIES: [usize; 3] = [1, 2, 3];

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let all = run_all_policies(context, &SENDER_COUNTS);
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings, context);
    findings.add_note("In the paper, ILA drops about 40 % as many events as ON-OFF. In our calibrated model, ILA drops about as many events as ON-OFF or more: the average game time difference is always above ILA's lower bound of 50 ms, since even the fastest event takes 80 ms, so ILA drops steadily. The experiment “ILA and ON-OFF by measured delay” shows when ILA drops fewer events.");
    findings.tables.push(table(&all));
    findings.figures.push(figure(&all));
    claims(&mut findings, &all);
    super::states_equal_claim(&mut findings, &all);
    findings
}

fn table(all: &[PolicyOutcomes]) -> DataTable {
    let columns = [
        "senders",
        "policy",
        "dropped_percent",
        "received_dropped_percent",
        "skipped_percent",
        "retransmit_requests",
        "percent_of_on_off",
    ];
    let mut table = DataTable::new(
        "drops",
        "Obsolete events that were not delivered, as shares of all events, by senders and policy",
        &columns,
    );
    for PolicyOutcomes { senders, outcomes } in all {
        for policy in DROPPING_POLICIES {
            let one = &outcomes[policy];
            let percent_of = |count: u64| count as f64 / one.issued.max(1) as f64 * 100.0;
            table.add_row([
                integer(*senders as i64),
                POLICIES[policy].0.into(),
                number(one.drop_share() * 100.0, 2),
                number(percent_of(one.dropped), 2),
                number(percent_of(one.skipped), 2),
                number(one.retransmit_requests as f64, 0),
                number(one.drop_share() / outcomes[1].drop_share() * 100.0, 0),
            ]);
        }
    }
    table
}

fn figure(all: &[PolicyOutcomes]) -> Figure {
    let names = all.iter().map(|all| format!("{} senders", all.senders));
    let panel =
        Panel::new("Events dropped", PlotAxis::categorical("", names), PlotAxis::new("% of all events").with_min(0.0));
    let panel = DROPPING_POLICIES.iter().fold(panel, |panel, policy| {
        let heights = all.iter().map(|all| all.outcomes[*policy].drop_share() * 100.0);
        panel.bars(POLICIES[*policy].0, SeriesStyle::SEQUENCE[*policy], heights)
    });
    let caption = "Share of all events that the receiver did not deliver because they were obsolete: events that had arrived and were dropped, and missing events that were skipped.";
    Figure::new("drops", "Share of dropped events by policy (P, Figure 6)", caption, vec![panel])
}

fn claims(findings: &mut Findings, all: &[PolicyOutcomes]) {
    let of = |policy: usize| move |all: &PolicyOutcomes| all.outcomes[policy].drop_share();
    let percent =
        |policy: usize| all.iter().map(|all| format!("{:.1}", of(policy)(all) * 100.0)).collect::<Vec<_>>().join(", ");
    findings.add_claim(
        "our policy drops at most 60 % as many events as ON-OFF, with 4, 5, 6 and 7 senders",
        "ILA drops about 40 % as many events as ON-OFF",
        format!(
            "with 4, 5, 6 and 7 senders: {} % (ours); {} % (ON-OFF); {} % (ILA)",
            percent(3),
            percent(1),
            percent(2)
        ),
        all.iter().all(|all| of(3)(all) <= of(1)(all) * 0.6),
    );
    findings.add_claim(
        "every policy drops less than 81 % of the events, since only obsolete events are dropped",
        "90 % of the events make earlier events obsolete",
        format!("with 4, 5, 6 and 7 senders: {} % (ON-OFF); {} % (ILA)", percent(1), percent(2)),
        all.iter().all(|all| DROPPING_POLICIES.iter().all(|policy| of(*policy)(all) < 0.81)),
    );
    findings.add_claim(
        "our policy sends fewer retransmission requests than OFF, since it does not request the events that it skips",
        "not reported",
        all.iter()
            .map(|all| {
                format!(
                    "with {} senders {} requests ({} with OFF)",
                    all.senders, all.outcomes[3].retransmit_requests, all.outcomes[0].retransmit_requests
                )
            })
            .collect::<Vec<_>>()
            .join(", "),
        all.iter().all(|all| all.outcomes[3].retransmit_requests < all.outcomes[0].retransmit_requests),
    );
}
