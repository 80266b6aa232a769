//! Figure 6: what staying quick costs.

use super::{POLICIES, Policies, SENDERS, pooled};
use crate::bench::Bench;
use crate::catalog::PALAZZI;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number, whole};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "drops",
    title: "Events that are dropped",
    shows: "Obsolete events do not matter in the end, but people see them: where many are missing, things jump. Ours passes over one only if somebody behind it would be late otherwise.",
    paper: &PALAZZI,
    figures: "Figure 6",
    seconds: 40.0,
    run,
    real: None,
};

/// The policies that drop something.
const DROPPING: [usize; 3] = [1, 2, 3];

fn run(bench: &mut Bench<'_>) -> Findings {
    let all = pooled(bench, &SENDERS);
    let mut findings = Findings::default();
    super::common(&mut findings, bench);
    findings.note("The paper's ILA drops about 40 % of what its ON-OFF does. In the model that OFF was calibrated on, ILA drops about as much or more: the average that it goes by is always above its lower bound of 50 ms, as the quickest event already takes 80, so it drops steadily. Under which choices it drops less is shown in the experiment on modelling choices.");
    findings.tables.push(table(&all));
    findings.figures.push(figure(&all));
    claims(&mut findings, &all);
    super::sound(&mut findings, &all);
    findings
}

fn table(all: &[Policies]) -> Table {
    let columns =
        ["senders", "policy", "dropped_percent", "here_percent", "missing_percent", "asked_again", "of_on_off_percent"];
    let mut table = Table::new("drops", "Obsolete events that were not delivered", &columns);
    for Policies { senders, outcomes } in all {
        for policy in DROPPING {
            let one = &outcomes[policy];
            let part = |count: u64| count as f64 / one.issued.max(1) as f64 * 100.0;
            table.row([
                whole(*senders as i64),
                POLICIES[policy].0.into(),
                number(one.drops() * 100.0, 2),
                number(part(one.dropped), 2),
                number(part(one.skipped), 2),
                number(one.asked as f64, 0),
                number(one.drops() / outcomes[1].drops() * 100.0, 0),
            ]);
        }
    }
    table
}

fn figure(all: &[Policies]) -> Figure {
    let names = all.iter().map(|all| format!("{} servers", all.senders));
    let panel = Panel::new("Events dropped", Axis::of_names("", names), Axis::new("%").from(0.0));
    let panel = DROPPING.iter().fold(panel, |panel, policy| {
        let heights = all.iter().map(|all| all.outcomes[*policy].drops() * 100.0);
        panel.bars(POLICIES[*policy].0, Ink::RANGE[*policy], heights)
    });
    let caption = "Obsolete events that were not delivered, as a part of all events; those that were lost on the way and not waited for are among them.";
    Figure::new("drops", "Events that are dropped (P, Figure 6)", caption, vec![panel])
}

fn claims(findings: &mut Findings, all: &[Policies]) {
    let of = |policy: usize| move |all: &Policies| all.outcomes[policy].drops();
    let percent =
        |policy: usize| all.iter().map(|all| format!("{:.1}", of(policy)(all) * 100.0)).collect::<Vec<_>>().join(", ");
    findings.claim(
        "ours drops at most 60 % of what ON-OFF does, with any number of servers",
        "ILA: about 40 % of ON-OFF's",
        format!("with 4 to 7 servers {} % (ours), {} % (ON-OFF), {} % (ILA)", percent(3), percent(1), percent(2)),
        all.iter().all(|all| of(3)(all) <= of(1)(all) * 0.6),
    );
    findings.claim(
        "nobody drops more than is obsolete",
        "90 % of events make others obsolete",
        format!("{} % at most (ON-OFF), {} % (ILA)", percent(1), percent(2)),
        all.iter().all(|all| DROPPING.iter().all(|policy| of(*policy)(all) < 0.81)),
    );
    findings.claim(
        "an obsolete event that is passed over is not asked for again",
        "(not told)",
        all.iter()
            .map(|all| format!("{} of {} asked with OFF", all.outcomes[3].asked, all.outcomes[0].asked))
            .collect::<Vec<_>>()
            .join(", "),
        all.iter().all(|all| all.outcomes[3].asked < all.outcomes[0].asked),
    );
}
