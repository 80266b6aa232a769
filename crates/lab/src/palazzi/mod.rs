//! The experiments of Palazzi, Ferretti, Cacciaguerra and Roccetti: servers that mirror each other, and what they drop to stay quick.

pub mod delays;
pub mod drops;
mod mirror_trial;
pub mod policy_measures;
pub mod threshold;

use coplay::mirror::{DEFAULT_GIT, DropCurve, DropPolicy, GtdMeasure};

use crate::bench::ExperimentContext;
use crate::findings::Findings;
use mirror_trial::{MirrorTrial, NetworkModel, TrialOutcome};

/// The paper's interaction threshold.
const GIT_MS: f64 = 150.0;
/// Servers that send, as in the paper.
const SENDER_COUNTS: [usize; 4] = [4, 5, 6, 7];

/// Chosen once so that OFF comes out as in Table II, and fixed for everything else.
const CALIBRATED_MODEL: NetworkModel = NetworkModel {
    delays_ms: [55.0, 60.0, 50.0, 95.0, 65.0, 30.0, 105.0],
    relative_deviation: 0.04,
    loss: 0.018,
    processing_ms: 1.0,
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
struct PaperResult {
    /// Table II: maximum, minimum, average and standard deviation in milliseconds, for 4 to 7 servers.
    delays_ms: [[f64; 4]; 4],
    /// Events over the threshold with 7 servers, in percent.
    percent_over_with_7: f64,
}

/// In the order of [`POLICIES`]; ours is not theirs.
const PAPER_RESULTS: [PaperResult; 3] = [
    PaperResult {
        delays_ms: [
            [324.0, 88.0, 142.0, 52.0],
            [325.0, 88.0, 153.0, 53.0],
            [318.0, 87.0, 148.0, 50.0],
            [345.0, 93.0, 170.0, 56.0],
        ],
        percent_over_with_7: 50.06,
    },
    PaperResult {
        delays_ms: [
            [324.0, 88.0, 116.0, 30.0],
            [324.0, 88.0, 120.0, 32.0],
            [319.0, 88.0, 119.0, 28.0],
            [345.0, 93.0, 130.0, 32.0],
        ],
        percent_over_with_7: 10.60,
    },
    PaperResult {
        delays_ms: [
            [325.0, 86.0, 111.0, 20.0],
            [277.0, 88.0, 115.0, 19.0],
            [278.0, 88.0, 114.0, 18.0],
            [300.0, 93.0, 124.0, 19.0],
        ],
        percent_over_with_7: 6.14,
    },
];

/// What came of all policies with so many servers.
struct PolicyOutcomes {
    senders: usize,
    outcomes: Vec<TrialOutcome>,
}

/// Runs of which the results are put together.
fn run_count(bench: &ExperimentContext<'_>) -> u64 {
    bench.full_or_short(10, 3)
}

/// All policies with these numbers of servers, each with the same events and the same losses of first transmissions.
fn run_all_policies(bench: &mut ExperimentContext<'_>, senders: &[usize]) -> Vec<PolicyOutcomes> {
    let (seed, count, events) = (bench.seed, run_count(bench), bench.full_or_short(1_000, 600));
    let jobs: Vec<MirrorTrial> = senders
        .iter()
        .flat_map(|senders| POLICIES.iter().map(move |(_, policy)| (*senders, *policy)))
        .map(|(senders, policy)| MirrorTrial { seed, senders, events, policy, model: CALIBRATED_MODEL })
        .collect();
    let mut outcomes = bench.run_jobs(1.0, &jobs, |trial| trial.run_with_seeds(count)).into_iter();
    let of = |senders: &usize| PolicyOutcomes {
        senders: *senders,
        outcomes: outcomes.by_ref().take(POLICIES.len()).collect(),
    };
    senders.iter().map(of).collect()
}

/// What all of them have in common.
fn add_common_parameters(findings: &mut Findings, bench: &ExperimentContext<'_>) {
    findings.add_parameter("servers", "4 to 7 that send, and one that receives and is looked at");
    findings.add_parameter(
        "events",
        format!(
            "{} of 200 bytes from each, 30 ± 10 ms apart (lognormal), {} runs",
            bench.full_or_short(1_000, 600),
            run_count(bench)
        ),
    );
    findings.add_parameter(
        "obsolescence",
        "each server has one object; 90 % of its events make those before useless, 10 % must be seen",
    );
    findings.add_parameter("order", "total, by the time of issue; what is missing is asked for again");
    findings.add_parameter("links", "mean delays 55, 60, 50, 95, 65, 30, 105 ms, standard deviation 4 %; 1.8 % of all packets are lost, requests and answers, too");
    findings.add_parameter("work", "1 ms for each event");
    findings.add_parameter("clocks", "of their own, up to 60 ppm apart; the engine's estimate counts");
    findings.add_parameter("policies", "threshold 150 ms; ILA 50 to 150 ms, Pmax 0.2, w 1/8");
    findings.add_note("The paper names neither loss nor processing times, and its figure with the delays is missing; of those the mean over the first five (65 ms) and the sixth (30 ms) are in the text. The rest was chosen once so that OFF alone comes out as in Table II, and then kept for everything.");
    findings.add_note("What a policy goes by is how long the oldest event has waited, whenever one arrives. The paper says that the time of the event that arrives is taken; how the results depend on that is shown in the experiment on modelling choices. It was settled on after all of them had been tried.");
    findings.add_note("The deviation of OFF is larger than the paper's because requests and answers get lost here as well: its longest times show that there none did.");
    findings.add_note(
        "An obsolete event that is missing and not waited for counts as dropped, though nobody here ever had it.",
    );
}

/// What must hold whatever the policy.
fn states_equal_claim(findings: &mut Findings, all: &[PolicyOutcomes]) {
    let is_sound = |all: &PolicyOutcomes| {
        let off = &all.outcomes[0];
        all.outcomes.iter().all(|one| one.is_settled && one.states == off.states)
    };
    let holds = all.iter().all(is_sound);
    findings.add_claim(
        "every policy's final state equals OFF's, on every server",
        "assumed",
        if holds { "all states equal, and nothing is missing" } else { "states differ" },
        holds,
    );
}
