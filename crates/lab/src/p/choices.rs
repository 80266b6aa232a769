//! Under which modelling choices ILA is ahead of ON-OFF, and what that takes.

use coplay::mirror::GtdMeasure;

use super::play::{Model, Outcome, Trial};
use super::{GIT_MS, MODEL, POLICIES};
use crate::bench::Bench;
use crate::catalog::PALAZZI;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Axis, Figure, Ink, Panel};
use crate::table::{Table, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "choices",
    title: "ILA and ON-OFF, and what they go by",
    shows: "The paper's order of ILA and ON-OFF depends on what its policies look at. If ON-OFF looks at the event that arrives and ILA at what waits, ILA is ahead; if both look at the same, it is not. That it drops far less is so only where it is behind.",
    paper: &PALAZZI,
    figures: "goes on from Figures 4 to 6",
    seconds: 30.0,
    run,
    real: None,
};

const MEASURES: [(&str, GtdMeasure); 3] =
    [("arriving", GtdMeasure::Arrival), ("waiting", GtdMeasure::Waiting), ("delivered", GtdMeasure::Delivery)];
/// Calibrated on OFF; and with nothing lost, but nearly as much work as there is time.
const SETTINGS: [(&str, Model); 2] = [("losses", MODEL), ("load", Model { loss: 0.0, work_ms: 4.0, ..MODEL })];
const ON_OFF: usize = 1;
const ILA: usize = 2;
const OURS: usize = 3;

/// What came of one choice.
struct Choice {
    setting: usize,
    policy: usize,
    measure: usize,
    outcome: Outcome,
}

fn run(bench: &mut Bench<'_>) -> Findings {
    let jobs: Vec<(usize, usize, usize)> = (0..SETTINGS.len())
        .flat_map(|setting| {
            let both = [ON_OFF, ILA].into_iter().flat_map(|policy| (0..3).map(move |measure| (policy, measure)));
            both.chain([(OURS, 1)]).map(move |(policy, measure)| (setting, policy, measure))
        })
        .collect();
    let (seed, count, events) = (bench.seed, super::seeds(bench), bench.either(1_000, 600));
    let choices = bench.spread(1.0, &jobs, |&(setting, policy, measure)| {
        let model = Model { measure: MEASURES[measure].1, ..SETTINGS[setting].1 };
        let trial = Trial { seed, senders: 7, events, policy: POLICIES[policy].1, model };
        Choice { setting, policy, measure, outcome: trial.play_with_seeds(count) }
    });
    let mut findings = Findings::default();
    super::common(&mut findings, bench);
    findings.parameter(
        "choices",
        "policies go by the event that arrives, by the oldest that waits, or by the one that is delivered",
    );
    findings.parameter(
        "settings",
        "as calibrated; and with no loss, but 4 ms of work for each event, which is 93 % of the time",
    );
    findings.note("The paper says of both policies that they measure the event that arrives. An event that arrives says nothing of those that wait: then ON-OFF begins to drop when a lost event comes at last, and ILA drops one now and then, as often as the delay of the network alone asks for. To hold the threshold ILA must see what waits; ON-OFF with its own definition then comes out within a few percent of the paper's.");
    findings.tables.push(table(&choices));
    findings.figures.push(figure(&choices));
    claims(&mut findings, &choices);
    findings
}

fn find(choices: &[Choice], setting: usize, policy: usize, measure: usize) -> &Outcome {
    let is_it = |choice: &&Choice| (choice.setting, choice.policy, choice.measure) == (setting, policy, measure);
    &choices.iter().find(is_it).expect("every choice was tried").outcome
}

fn table(choices: &[Choice]) -> Table {
    let columns = [
        "setting",
        "policy",
        "goes_by",
        "over_percent",
        "average_ms",
        "deviation_ms",
        "dropped_percent",
        "missing_percent",
    ];
    let mut table = Table::new("choices", "Seven servers: what policies go by", &columns);
    for Choice { setting, policy, measure, outcome } in choices {
        table.row([
            SETTINGS[*setting].0.into(),
            POLICIES[*policy].0.into(),
            MEASURES[*measure].0.into(),
            number(outcome.over(GIT_MS) * 100.0, 2),
            number(outcome.mean_ms(), 1),
            number(outcome.deviation_ms(), 1),
            number(outcome.drops() * 100.0, 2),
            number(outcome.skipped as f64 / outcome.issued.max(1) as f64 * 100.0, 2),
        ]);
    }
    table
}

fn figure(choices: &[Choice]) -> Figure {
    let panels = SETTINGS.iter().enumerate().map(|(setting, (name, _))| {
        let panel = Panel::new(name, Axis::new("dropped, %").from(0.0), Axis::new("over 150 ms, %").from(0.0));
        [ON_OFF, ILA, OURS].into_iter().fold(panel, |panel, policy| {
            let of = choices.iter().filter(move |choice| (choice.setting, choice.policy) == (setting, policy));
            let points = of.map(|choice| (choice.outcome.drops() * 100.0, choice.outcome.over(GIT_MS) * 100.0));
            panel.points(POLICIES[policy].0, Ink::RANGE[policy], points)
        })
    });
    let caption = "Events over the threshold against events that were dropped, one point for each thing that a policy can go by. Lower and further left is better.";
    Figure::new("choices", "What policies go by", caption, panels.collect()).columns(2)
}

fn told(outcome: &Outcome) -> String {
    let (over, drops) = (outcome.over(GIT_MS) * 100.0, outcome.drops() * 100.0);
    format!("{over:.1} % over, {:.0}/{:.0} ms, {drops:.1} % dropped", outcome.mean_ms(), outcome.deviation_ms())
}

fn claims(findings: &mut Findings, choices: &[Choice]) {
    let at = |policy, measure| find(choices, 0, policy, measure);
    let (on_off, ila) = (at(ON_OFF, 0), at(ILA, 1));
    findings.claim(
        "ON-OFF by the event that arrives, ILA by what waits: ILA is ahead in time, on average and in deviation, and drops about as much",
        "ON-OFF 10.6 % over, 130/32 ms; ILA 6.1 % over, 124/19 ms, 40 % of the drops",
        format!("ON-OFF {}; ILA {}", told(on_off), told(ila)),
        ila.over(GIT_MS) < on_off.over(GIT_MS)
            && ila.mean_ms() < on_off.mean_ms()
            && ila.deviation_ms() < on_off.deviation_ms()
            && ila.drops() < on_off.drops() * 1.1,
    );
    let (on_off, ila) = (at(ON_OFF, 0), at(ILA, 0));
    findings.claim(
        "both by the event that arrives: ILA drops less than half of what ON-OFF does, but is behind in time",
        "40 % of the drops, and ahead in time",
        format!("ON-OFF {}; ILA {}", told(on_off), told(ila)),
        ila.drops() < on_off.drops() * 0.5 && ila.over(GIT_MS) > on_off.over(GIT_MS),
    );
    let (on_off, ila) = (at(ON_OFF, 1), at(ILA, 1));
    findings.claim(
        "both by what waits: they hardly differ in time, and ILA drops more, because it drops before it must",
        "ILA ahead, with 40 % of the drops",
        format!("ON-OFF {}; ILA {}", told(on_off), told(ila)),
        (ila.over(GIT_MS) - on_off.over(GIT_MS)).abs() < 0.03 && ila.drops() > on_off.drops(),
    );
    let (on_off, ila) = (find(choices, 1, ON_OFF, 0), find(choices, 1, ILA, 0));
    findings.claim(
        "under load alone, by the event that arrives: ILA is ahead of ON-OFF, which notices nothing",
        "(not told)",
        format!("ON-OFF {}; ILA {}", told(on_off), told(ila)),
        ila.over(GIT_MS) < on_off.over(GIT_MS),
    );
    let beats = |setting: usize| {
        let ours = find(choices, setting, OURS, 1);
        let mut others = choices.iter().filter(|choice| choice.setting == setting && choice.policy != OURS);
        others.all(|choice| ours.over(GIT_MS) < choice.outcome.over(GIT_MS))
    };
    findings.claim(
        "ours has fewer events over the threshold than any of them under any choice",
        "(no such policy)",
        format!("{}; under load {}", told(find(choices, 0, OURS, 1)), told(find(choices, 1, OURS, 1))),
        (0..SETTINGS.len()).all(beats),
    );
}
