//! The experiments of Palazzi, Ferretti, Cacciaguerra and Roccetti: servers that mirror each other, and what they drop to stay quick.

pub mod choices;
pub mod delays;
pub mod drops;
mod play;
pub mod threshold;

use coplay::mirror::{DEFAULT_GIT, DropCurve, DropPolicy, GtdMeasure};

use crate::bench::Bench;
use crate::findings::Findings;
use play::{Model, Outcome, Trial};

/// The paper's interaction threshold.
const GIT_MS: f64 = 150.0;
/// Servers that send, as in the paper.
const SENDERS: [usize; 4] = [4, 5, 6, 7];

/// Chosen once so that OFF comes out as in Table II, and fixed for everything else.
const MODEL: Model = Model {
    delays_ms: [55.0, 60.0, 50.0, 95.0, 65.0, 30.0, 105.0],
    spread: 0.04,
    loss: 0.018,
    work_ms: 1.0,
    measure: GtdMeasure::Waiting,
};

/// What is compared.
const POLICIES: [(&str, DropPolicy); 4] = [
    ("OFF", DropPolicy::Off),
    ("ON-OFF", DropPolicy::OnOff { threshold: DEFAULT_GIT }),
    ("ILA", DropPolicy::Ila(DropCurve::PAPER)),
    ("ours", DropPolicy::Adaptive { threshold: DEFAULT_GIT }),
];

/// What the paper reached with a policy.
struct Theirs {
    /// Table II: maximum, minimum, average and standard deviation in milliseconds, for 4 to 7 servers.
    table: [[f64; 4]; 4],
    /// Events over the threshold with 7 servers, in percent.
    over_at_7: f64,
}

/// In the order of [`POLICIES`]; ours is not theirs.
const PAPER: [Theirs; 3] = [
    Theirs {
        table: [
            [324.0, 88.0, 142.0, 52.0],
            [325.0, 88.0, 153.0, 53.0],
            [318.0, 87.0, 148.0, 50.0],
            [345.0, 93.0, 170.0, 56.0],
        ],
        over_at_7: 50.06,
    },
    Theirs {
        table: [
            [324.0, 88.0, 116.0, 30.0],
            [324.0, 88.0, 120.0, 32.0],
            [319.0, 88.0, 119.0, 28.0],
            [345.0, 93.0, 130.0, 32.0],
        ],
        over_at_7: 10.60,
    },
    Theirs {
        table: [
            [325.0, 86.0, 111.0, 20.0],
            [277.0, 88.0, 115.0, 19.0],
            [278.0, 88.0, 114.0, 18.0],
            [300.0, 93.0, 124.0, 19.0],
        ],
        over_at_7: 6.14,
    },
];

/// What came of all policies with so many servers.
struct Policies {
    senders: usize,
    outcomes: Vec<Outcome>,
}

/// Runs of which the results are put together.
fn seeds(bench: &Bench<'_>) -> u64 {
    bench.either(10, 3)
}

/// All policies with these numbers of servers, each with the same events and the same losses of first transmissions.
fn pooled(bench: &mut Bench<'_>, senders: &[usize]) -> Vec<Policies> {
    let (seed, count, events) = (bench.seed, seeds(bench), bench.either(1_000, 600));
    let jobs: Vec<Trial> = senders
        .iter()
        .flat_map(|senders| POLICIES.iter().map(move |(_, policy)| (*senders, *policy)))
        .map(|(senders, policy)| Trial { seed, senders, events, policy, model: MODEL })
        .collect();
    let mut outcomes = bench.spread(1.0, &jobs, |trial| trial.play_with_seeds(count)).into_iter();
    let of =
        |senders: &usize| Policies { senders: *senders, outcomes: outcomes.by_ref().take(POLICIES.len()).collect() };
    senders.iter().map(of).collect()
}

/// What all of them have in common.
fn common(findings: &mut Findings, bench: &Bench<'_>) {
    findings.parameter("servers", "4 to 7 that send, and one that receives and is looked at");
    findings.parameter(
        "events",
        format!(
            "{} of 200 bytes from each, 30 ± 10 ms apart (lognormal), {} runs",
            bench.either(1_000, 600),
            seeds(bench)
        ),
    );
    findings.parameter(
        "obsolescence",
        "each server has one object; 90 % of its events make those before useless, 10 % must be seen",
    );
    findings.parameter("order", "total, by the time of issue; what is missing is asked for again");
    findings.parameter("links", "mean delays 55, 60, 50, 95, 65, 30, 105 ms, standard deviation 4 %; 1.8 % of all packets are lost, requests and answers, too");
    findings.parameter("work", "1 ms for each event");
    findings.parameter("clocks", "of their own, up to 60 ppm apart; the engine's estimate counts");
    findings.parameter("policies", "threshold 150 ms; ILA 50 to 150 ms, Pmax 0.2, w 1/8");
    findings.note("The paper names neither loss nor processing times, and its figure with the delays is missing; of those the mean over the first five (65 ms) and the sixth (30 ms) are in the text. The rest was chosen once so that OFF alone comes out as in Table II, and then kept for everything.");
    findings.note("What a policy goes by is how long the oldest event has waited, whenever one arrives. The paper says that the time of the event that arrives is taken; how the results depend on that is shown in the experiment on modelling choices. It was settled on after all of them had been tried.");
    findings.note("The deviation of OFF is larger than the paper's because requests and answers get lost here as well: its longest times show that there none did.");
    findings.note(
        "An obsolete event that is missing and not waited for counts as dropped, though nobody here ever had it.",
    );
}

/// What must hold whatever the policy.
fn sound(findings: &mut Findings, all: &[Policies]) {
    let is_sound = |all: &Policies| {
        let off = &all.outcomes[0];
        all.outcomes.iter().all(|one| one.is_settled && one.states == off.states)
    };
    let holds = all.iter().all(is_sound);
    findings.claim(
        "every policy's final state equals OFF's, on every server",
        "assumed",
        if holds { "all states equal, and nothing is missing" } else { "states differ" },
        holds,
    );
}
