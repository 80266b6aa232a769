//! Decides how a machine may be shared, from its own probe and the cached report of `coplay check`.

use coplay::session::{MachineCosts, Settings};
use coplay_machines::check::{CheckReport, ReportCache, SubjectIdentity};
use coplay_machines::{LockstepOnly, Machine, NetplaySupport};
use coplay_shell::error::AppError;

use crate::config::cache_dir;

/// Machine in the form in which it may be shared, and the measurements of `coplay check`.
pub struct ApprovedMachine {
    /// Machine that the session runs. It offers no saved states if `coplay check` found them inexact, or if the host
    /// does not use any.
    pub machine: Box<dyn Machine>,
    /// Largest prediction window, at most 20 frames, whose rollbacks take at most 80 % of a frame period on this
    /// computer; `None` without a report, or if the states are not exact.
    pub max_prediction_window: Option<u32>,
    /// Median times of steps, saves and loads on this computer; 0 without a report.
    pub costs: MachineCosts,
    /// Whether this computer has a report of `coplay check` for the machine and game.
    pub is_checked: bool,
}

/// Prepares a machine for sharing, by this computer's report of `coplay check` if there is one. Fails if the machine's
/// own probe or the report shows that it cannot be shared.
pub fn shareable(machine: Box<dyn Machine>) -> Result<ApprovedMachine, AppError> {
    let report = cache_dir().and_then(|folder| ReportCache::new(folder).get(&SubjectIdentity::of_machine(&*machine)));
    shareable_by_report(machine, report.as_ref())
}

fn shareable_by_report(machine: Box<dyn Machine>, report: Option<&CheckReport>) -> Result<ApprovedMachine, AppError> {
    let unfit = |reason: &str| {
        let (game, id) = (&machine.game_id().name, machine.machine_id());
        AppError::failure(format!("{game} cannot be shared on {} {}: {reason}", id.name, id.version))
    };
    if machine.netplay_support() == NetplaySupport::Nondeterministic {
        return Err(unfit("two instances had different states in their first frames")
            .hint("run `coplay check` with the same game and core, or try another --core"));
    }
    let Some(report) = report else {
        return Ok(ApprovedMachine {
            machine,
            max_prediction_window: None,
            costs: MachineCosts::default(),
            is_checked: false,
        });
    };
    let fitness = report.fitness();
    if !fitness.can_share {
        return Err(unfit(&report.verdict.to_string())
            .hint("try another --core, or run `coplay check --again` with the same game and core"));
    }
    let machine = if fitness.can_save { machine } else { LockstepOnly::wrap(machine) };
    Ok(ApprovedMachine {
        machine,
        max_prediction_window: fitness.can_save.then_some(fitness.max_prediction_window),
        costs: fitness.costs,
        is_checked: true,
    })
}

/// Returns the host's settings without the mark of a lockstep-only machine, so that they name the machine to open.
pub fn unwrapped_settings(settings: &Settings) -> Settings {
    Settings { machine: LockstepOnly::inner_machine_id(settings.machine.clone()), ..settings.clone() }
}

/// Prepares our machine for the game of another host. Either all sites use saved states, or none does; fails if the
/// host uses states that `coplay check` found inexact here.
pub fn matching_settings(machine: Box<dyn Machine>, theirs: &Settings) -> Result<ApprovedMachine, AppError> {
    let shared = shareable(machine)?;
    match (LockstepOnly::is_lockstep_only(shared.machine.machine_id()), LockstepOnly::is_lockstep_only(&theirs.machine))
    {
        (false, true) => Ok(ApprovedMachine { machine: LockstepOnly::wrap(shared.machine), ..shared }),
        (true, false) => Err(AppError::failure(format!(
            "`coplay check` found that the save states of {} are not exact on this computer, but the host uses them",
            theirs.machine.name
        ))
        .hint("ask the host to run `coplay check` with the same game and core, and to start again")),
        _ => Ok(shared),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::ToyMachine;
    use coplay_machines::check::{CheckVerdict, LockstepReason, MachineFault, MeasuredCosts, TimingPercentiles};
    use coplay_machines::session_adapter::{self, SharedGameOptions};

    fn toy_machine() -> Box<dyn Machine> {
        Box::new(ToyMachine::new(1))
    }

    fn report(verdict: CheckVerdict) -> CheckReport {
        let time = TimingPercentiles { p10_ns: 1_000, median_ns: 2_000, p95_ns: 3_000 };
        let exact = verdict == CheckVerdict::Rollback;
        CheckReport {
            verdict,
            identity: SubjectIdentity::of_machine(&*toy_machine()),
            compared: vec![],
            cut_short: vec![],
            measured: MeasuredCosts {
                step_rendered: time,
                step_headless: time,
                save: time,
                load: time,
                hash: time,
                state_bytes: 100,
            },
            prediction_window: if exact { 5 } else { 0 },
            notes: vec![],
            elapsed_ms: 1,
        }
    }

    fn inexact() -> CheckReport {
        report(CheckVerdict::Lockstep { reason: LockstepReason::InexactStates { fault: MachineFault::ConstantHash } })
    }

    #[test]
    fn check_report_decides_how_a_machine_is_shared() {
        let unknown = shareable_by_report(toy_machine(), None).unwrap();
        assert!(unknown.machine.can_save() && unknown.max_prediction_window.is_none() && !unknown.is_checked);
        let good = shareable_by_report(toy_machine(), Some(&report(CheckVerdict::Rollback))).unwrap();
        assert!(
            good.machine.can_save() && good.max_prediction_window == Some(5) && good.costs.step.as_nanos() == 2_000
        );
        let states = shareable_by_report(toy_machine(), Some(&inexact())).unwrap();
        assert!(!states.machine.can_save() && LockstepOnly::is_lockstep_only(states.machine.machine_id()));
        assert_eq!(session_adapter::settings(&*states.machine, SharedGameOptions::new(2)).prediction_window, 0);
        let bad = shareable_by_report(
            toy_machine(),
            Some(&report(CheckVerdict::Unfit { fault: MachineFault::ConstantHash })),
        );
        let error = bad.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("paddles 1 cannot be shared on toy 1") && error.contains("--again"), "{error}");
    }

    #[test]
    fn all_sites_use_states_or_none_does() {
        let theirs = |machine: Box<dyn Machine>| session_adapter::settings(&*machine, SharedGameOptions::new(2));
        let (with, without) = (theirs(toy_machine()), theirs(LockstepOnly::wrap(toy_machine())));
        assert_eq!(unwrapped_settings(&without).machine, with.machine);
        assert!(matching_settings(toy_machine(), &with).unwrap().machine.can_save());
        let ours = matching_settings(toy_machine(), &without).unwrap().machine;
        assert_eq!(ours.machine_id(), &without.machine);
        let error = matching_settings(LockstepOnly::wrap(toy_machine()), &with).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("not exact"), "{error}");
    }
}
