//! Tests of the check: it finds the faults of faulty machines, passes fit ones, and reports what it found.

#![cfg(all(unix, not(target_vendor = "apple")))]

mod common;

use std::process::Command;
use std::time::Duration;

use common::faulty_machine::FaultyMachine;
use coplay::id::SiteId;
use coplay::session::PAGE_SIZE;
use coplay_machines::check::{
    self, CheckCommandOptions, CheckComparison, CheckError, CheckOptions, CheckReport, CheckSubject, CheckVerdict,
    LockstepReason, MachineFault, MismatchedOutput, StateMismatch,
};
use coplay_machines::libretro::{self, CoreConfig, CoreSource, GameImage};
use coplay_machines::nes::Nes;
use coplay_machines::{Machine, session_adapter};
use coplay_testcores::{CoreDefect, TestCore, build_core, images};

/// Environment variable that tells the child process, which runs this test program, the core to open: empty for the
/// NES, `odd` and a fault for a [`FaultyMachine`], otherwise the name or path of a core.
const CORE_VARIABLE: &str = "COPLAY_TEST_CORE";
/// Environment variable that tells the child process the image extension for [`core_image`].
const IMAGE_VARIABLE: &str = "COPLAY_TEST_IMAGE";

fn core_image(extension: &str) -> Vec<u8> {
    match extension {
        "nes" => images::nes(),
        "gb" => images::game_boy(),
        "gba" => images::game_boy_advance(),
        "pce" => images::pc_engine(),
        "sfc" => images::snes(),
        _ => panic!("no image for {extension}"),
    }
}

fn open_machine(core: &str, extension: &str) -> Result<Box<dyn Machine>, String> {
    if let Some(fault) = core.strip_prefix("odd ") {
        return Ok(Box::new(FaultyMachine::new(fault)));
    }
    if core.is_empty() {
        return Ok(Box::new(Nes::open(&common::rom::test_image(), "test").map_err(|error| error.to_string())?));
    }
    let game =
        (!extension.is_empty()).then(|| GameImage { name: format!("test.{extension}"), image: core_image(extension) });
    let core = CoreSource::from_user(core).map_err(|error| error.to_string())?;
    let machine = libretro::open(CoreConfig { game, ..CoreConfig::new(core) });
    Ok(Box::new(machine.map_err(|error| error.to_string())?))
}

/// Runs the child process of the checks in this file; without the environment variable it does nothing. The test
/// harness prints text before the answers, as a core may do.
#[test]
fn other_process() {
    if let Ok(core) = std::env::var(CORE_VARIABLE) {
        let extension = std::env::var(IMAGE_VARIABLE).unwrap_or_default();
        std::process::exit(check::run_child(|| open_machine(&core, &extension)).into());
    }
}

fn child_command(core: &str, extension: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "other_process", "--nocapture"]).env(CORE_VARIABLE, core).env(IMAGE_VARIABLE, extension);
    command
}

fn short_options() -> CheckOptions {
    let default = CheckOptions::default();
    CheckOptions {
        long_run_frames: 600,
        short_run_frames: 300,
        time_budget: Duration::from_secs(600),
        child_delay: Duration::ZERO,
        ..default
    }
}

fn run_check(core: &str, extension: &str, options: &CheckOptions) -> CheckReport {
    run_check_with(&mut || open_machine(core, extension), core, extension, options)
}

/// Checks a machine that `open` opens in this process. The child process opens it by `core` and `extension`.
fn run_check_with(
    open: &mut dyn FnMut() -> Result<Box<dyn Machine>, String>,
    core: &str,
    extension: &str,
    options: &CheckOptions,
) -> CheckReport {
    let subject = CheckSubject {
        machine_name: core,
        game_name: extension,
        open,
        child_command: &mut || child_command(core, extension),
    };
    let report = check::check(subject, options, &mut |_| ()).unwrap_or_else(|error| panic!("{core}: {error}"));
    eprintln!("{report}");
    report
}

fn check_test_core(defect: CoreDefect) -> CheckReport {
    run_check(&build_core(defect).path_string(), "", &short_options())
}

fn equal_frames(report: &CheckReport, comparison: CheckComparison) -> u32 {
    report.compared.iter().find(|compared| compared.comparison == comparison).map_or(0, |compared| compared.frames)
}

#[test]
fn deterministic_core_passes_all_comparisons() {
    let report = check_test_core(CoreDefect::Honest);
    assert_eq!(report.verdict, CheckVerdict::Rollback);
    assert_eq!(
        (equal_frames(&report, CheckComparison::SameProcess), equal_frames(&report, CheckComparison::OtherProcess)),
        (300, 300)
    );
    assert_eq!(
        (equal_frames(&report, CheckComparison::AfterReset), equal_frames(&report, CheckComparison::ColdLoad)),
        (50, 100)
    );
    let rollback_frames = [CheckComparison::ReplayFromState, CheckComparison::AfterRollback]
        .map(|comparison| equal_frames(&report, comparison));
    assert!(
        rollback_frames[0] > 20 && rollback_frames[1] > 20 && rollback_frames[0] + rollback_frames[1] <= 200,
        "{rollback_frames:?}"
    );
    assert_eq!(equal_frames(&report, CheckComparison::LongRun), 300);
    assert!(report.cut_short.is_empty() && report.notes.is_empty(), "{report:?}");
    assert!(report.prediction_window > 0 && report.measured.state_bytes > 1_024);
    assert!(
        report.measured.step_rendered.median_ns > 0 && report.measured.load.p95_ns >= report.measured.load.median_ns
    );
    let fitness = report.fitness();
    assert!(fitness.can_share && fitness.can_save && fitness.max_prediction_window == report.prediction_window);
}

#[test]
fn core_reading_the_clock_is_unfit_at_frame_0() {
    let report = check_test_core(CoreDefect::Clock);
    let CheckVerdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let mismatch = report.verdict.mismatch().unwrap();
    assert_eq!((mismatch.comparison, mismatch.frame), (CheckComparison::SameProcess, Some(0)));
    assert_eq!((mismatch.mismatch_kind, mismatch.regions[0].name.as_str()), (MismatchedOutput::State, "system ram"));
    assert_eq!(mismatch.regions[0].page_offsets, [0], "the seed is in the first page");
    assert!(!report.fitness().can_share && report.prediction_window == 0);
}

#[test]
fn core_depending_on_an_address_is_unfit_before_frame_0() {
    let report = check_test_core(CoreDefect::Address);
    let CheckVerdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let mismatch = report.verdict.mismatch().unwrap();
    assert_eq!((mismatch.comparison, mismatch.frame), (CheckComparison::SameProcess, None));
    assert!(report.to_string().contains("before the first frame"), "{report}");
}

/// A core that reads uninitialized memory is unfit. New memory is mostly zero in this process; the GNU C library fills
/// it only in the child process.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn core_reading_uninitialized_memory_is_unfit() {
    let report = check_test_core(CoreDefect::Unset);
    assert!(!report.verdict.is_fit(), "{report}");
    // If the core gets reused memory in this process, its identity differs between openings; otherwise the child
    // process differs before the first frame.
    assert!(report.verdict.mismatch().is_none_or(|mismatch| mismatch.frame.is_none()), "{report}");
}

#[test]
fn core_diverging_at_frame_5000_is_found_by_the_long_run() {
    let options = CheckOptions { long_run_frames: CheckOptions::default().long_run_frames, ..short_options() };
    let report = run_check(&build_core(CoreDefect::Late).path_string(), "", &options);
    let CheckVerdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let mismatch = report.verdict.mismatch().unwrap();
    assert_eq!((mismatch.comparison, mismatch.frame), (CheckComparison::LongRun, Some(5_000)));
    assert_eq!(mismatch.regions[0].name, "system ram");
    assert_eq!(equal_frames(&report, CheckComparison::LongRun), 4_700);
}

#[test]
fn core_with_incomplete_state_is_lockstep_only() {
    let report = check_test_core(CoreDefect::Forgets);
    let CheckVerdict::Lockstep { reason: LockstepReason::InexactStates { .. } } = &report.verdict else {
        panic!("{report}")
    };
    let mismatch = report.verdict.mismatch().unwrap();
    assert!(
        [CheckComparison::ReplayFromState, CheckComparison::AfterRollback].contains(&mismatch.comparison),
        "{mismatch}"
    );
    assert_eq!(mismatch.frame, mismatch.loaded_frame, "the first frame after the load");
    assert_eq!(mismatch.regions[0].name, "system ram");
    // The comparisons that lockstep needs all passed.
    assert_eq!(
        (equal_frames(&report, CheckComparison::OtherProcess), equal_frames(&report, CheckComparison::LongRun)),
        (300, 300)
    );
    let fitness = report.fitness();
    assert!(fitness.can_share && !fitness.can_save && fitness.max_prediction_window == 0);
    let machine = common::test_nes();
    let settings = session_adapter::settings(&machine, session_adapter::SharedGameOptions::new(2));
    let site = SiteId::first(1).next().expect("one site");
    let mut config = session_adapter::config(&machine, 1, site, Vec::new(), settings);
    assert!(config.can_save && config.bisect_desyncs);
    fitness.apply(&mut config);
    assert!(!config.can_save && !config.bisect_desyncs && config.machine_costs == report.measured.median_costs());
    let repeated = check_test_core(CoreDefect::Forgets);
    assert_eq!(repeated.verdict, report.verdict, "equal seeds give equal verdicts");
}

#[test]
fn core_without_save_is_lockstep_only() {
    let report = check_test_core(CoreDefect::NoSave);
    assert_eq!(report.verdict, CheckVerdict::Lockstep { reason: LockstepReason::CannotSave });
    assert_eq!(
        (equal_frames(&report, CheckComparison::LongRun), equal_frames(&report, CheckComparison::ColdLoad)),
        (300, 0)
    );
    assert!(report.measured.step_headless.median_ns > 0 && report.measured.save.p95_ns == 0);
}

#[test]
fn harmless_core_quirks_still_allow_rollback() {
    for defect in [CoreDefect::Threads, CoreDefect::MustRun] {
        assert_eq!(check_test_core(defect).verdict, CheckVerdict::Rollback, "{defect:?}");
    }
    // A core that is changed by saving is saved in every frame at every site. The check must confirm that this works.
    assert_eq!(check_test_core(CoreDefect::Disturbed).verdict, CheckVerdict::Rollback);
}

/// Checks a machine with one fault. Returns its first mismatch, and whether it is unfit.
fn check_faulty_machine(fault: &str) -> (StateMismatch, bool) {
    let report = run_check(&format!("odd {fault}"), "", &short_options());
    (report.verdict.mismatch().unwrap_or_else(|| panic!("{report}")).clone(), !report.verdict.is_fit())
}

#[test]
fn faultless_machine_passes() {
    assert_eq!(run_check("odd not", "", &short_options()).verdict, CheckVerdict::Rollback);
}

#[test]
fn environment_dependency_is_found_by_the_child_process() {
    for fault in ["home", "folder", "zone", "language"] {
        let (mismatch, unfit) = check_faulty_machine(fault);
        assert!(unfit, "{fault}: {mismatch}");
        assert_eq!((mismatch.comparison, mismatch.frame), (CheckComparison::OtherProcess, None), "{fault}");
        assert_eq!(mismatch.regions[0].name, "memory", "{fault}");
    }
}

#[test]
fn wall_clock_dependency_is_found_by_the_delayed_child_process() {
    let report = run_check(
        "odd seconds",
        "",
        &CheckOptions { child_delay: CheckOptions::default().child_delay, ..short_options() },
    );
    let mismatch = report.verdict.mismatch().unwrap_or_else(|| panic!("{report}"));
    // Two instances stepped one after the other hardly ever see the clock advance in between.
    assert!(!report.verdict.is_fit() && mismatch.frame.is_some(), "{mismatch}");
}

#[test]
fn picture_mismatch_with_equal_state_hash_is_unfit() {
    let (mismatch, unfit) = check_faulty_machine("picture");
    assert_eq!((mismatch.comparison, mismatch.frame, unfit), (CheckComparison::OtherProcess, Some(0), true));
    assert_eq!(mismatch.mismatch_kind, MismatchedOutput::Picture);
}

#[test]
fn process_bound_states_are_lockstep_only() {
    let (mismatch, unfit) = check_faulty_machine("cold");
    assert!(!unfit && mismatch.comparison == CheckComparison::ColdLoad, "{mismatch}");
    assert_eq!((mismatch.frame, mismatch.loaded_frame), (Some(200), Some(200)));
}

#[test]
fn dependence_on_rendering_or_reset_is_found() {
    let (mismatch, unfit) = check_faulty_machine("unseen");
    assert_eq!((mismatch.comparison, mismatch.frame, unfit), (CheckComparison::AfterReset, Some(0), false));
    let (mismatch, unfit) = check_faulty_machine("reset");
    assert_eq!((mismatch.comparison, mismatch.frame, unfit), (CheckComparison::AfterReset, Some(0), false));
}

#[test]
fn machine_changed_by_saving_is_lockstep_only() {
    let (mismatch, unfit) = check_faulty_machine("saving");
    assert!(
        !unfit && [CheckComparison::ReplayFromState, CheckComparison::AfterRollback].contains(&mismatch.comparison),
        "{mismatch}"
    );
}

#[test]
fn machine_exiting_its_process_is_unfit() {
    for (fault, expected) in
        [("odd crash", (CheckComparison::SmokeTest, 7)), ("odd late crash", (CheckComparison::OtherProcess, 70))]
    {
        let report = run_check(fault, "", &short_options());
        let CheckVerdict::Unfit { fault: MachineFault::Failed { comparison, frame, reason } } = &report.verdict else {
            panic!("{report}")
        };
        assert_eq!((*comparison, *frame), expected);
        assert!(reason.contains("ended"), "{reason}");
    }
}

/// Checks a core, and asserts that the check does not open the core in this process.
fn check_without_opening_here(defect: CoreDefect, response_timeout: Duration) -> CheckReport {
    let core = build_core(defect);
    let mut open = || panic!("the core was opened in this process");
    run_check_with(&mut open, &core.path_string(), "", &CheckOptions { response_timeout, ..short_options() })
}

#[test]
fn crashing_core_is_unfit_and_not_opened_in_process() {
    let report = check_without_opening_here(CoreDefect::Aborts, CheckOptions::default().response_timeout);
    let CheckVerdict::Unfit { fault: MachineFault::Failed { comparison, reason, .. } } = &report.verdict else {
        panic!("{report}")
    };
    assert!(*comparison == CheckComparison::SmokeTest && reason.contains("ended (signal"), "{reason}");
    assert!(!report.is_cacheable() && report.to_string().contains("the machine failed"), "{report}");
}

#[test]
fn hanging_core_is_unfit_after_response_timeout() {
    let report = check_without_opening_here(CoreDefect::Hangs, Duration::from_secs(3));
    let CheckVerdict::Unfit { fault: MachineFault::Failed { comparison, reason, .. } } = &report.verdict else {
        panic!("{report}")
    };
    assert!(*comparison == CheckComparison::SmokeTest && reason.contains("did not answer for 3 s"), "{reason}");
}

#[test]
fn core_querying_requested_outputs_is_checked() {
    assert_eq!(
        check_test_core(CoreDefect::Asks).verdict,
        CheckVerdict::Lockstep { reason: LockstepReason::CannotSave }
    );
}

#[test]
fn constant_state_hash_is_unfit() {
    assert_eq!(
        run_check("odd blind", "", &short_options()).verdict,
        CheckVerdict::Unfit { fault: MachineFault::ConstantHash }
    );
}

#[test]
fn slow_rollback_is_lockstep_only_but_can_save() {
    let report =
        run_check("odd slow", "", &CheckOptions { long_run_frames: 30, short_run_frames: 30, ..short_options() });
    assert!(matches!(report.verdict, CheckVerdict::Lockstep { reason: LockstepReason::TooSlow { .. } }), "{report}");
    assert!(report.fitness().can_save && report.fitness().max_prediction_window == 0);
}

#[test]
fn embedded_nes_supports_rollback() {
    assert_eq!(run_check("", "", &short_options()).verdict, CheckVerdict::Rollback);
}

/// Asserts that an installed core, as Debian packages it, is fit with our own image.
fn assert_installed_core_is_fit(core: &str, extension: &str) {
    let core = CoreSource::from_user(core).unwrap();
    let file = libretro::find_core(&core, &[]).unwrap_or_else(|error| panic!("{error}\nhint: {:?}", error.hint()));
    let file = file.display().to_string();
    let game = Some(GameImage { name: format!("test.{extension}"), image: core_image(extension) });
    let first = libretro::open(CoreConfig { game, ..CoreConfig::new(core.clone()) }).unwrap();
    let mut twin = || match first.twin() {
        Ok(twin) => Ok(Box::new(twin) as Box<dyn Machine>),
        Err(error) => Err(error.to_string()),
    };
    let report = run_check_with(
        &mut twin,
        &file,
        extension,
        &CheckOptions { long_run_frames: 180, short_run_frames: 120, ..short_options() },
    );
    // On a busy computer a rollback may take too long, but the states are exact.
    assert!(report.verdict.is_fit() && report.fitness().can_save, "{core}: {report}");
    assert!(!report.notes.iter().any(|note| note.contains("pressed")), "{report}");
}

#[test]
fn nestopia_is_fit() {
    assert_installed_core_is_fit("nestopia", "nes");
}

#[test]
fn gambatte_is_fit() {
    assert_installed_core_is_fit("gambatte", "gb");
}

#[test]
fn mgba_is_fit() {
    assert_installed_core_is_fit("mgba", "gba");
}

#[test]
fn pce_fast_is_fit() {
    assert_installed_core_is_fit("beetle-pce-fast", "pce");
}

#[test]
fn bsnes_is_fit() {
    assert_installed_core_is_fit("bsnes-mercury-performance", "sfc");
}

#[test]
fn zero_time_budget_reports_comparisons_cut_short() {
    let options = CheckOptions { time_budget: Duration::ZERO, ..short_options() };
    let report = run_check(&build_core(CoreDefect::Honest).path_string(), "", &options);
    assert_eq!(report.verdict, CheckVerdict::Rollback);
    assert_eq!(
        (equal_frames(&report, CheckComparison::SameProcess), equal_frames(&report, CheckComparison::LongRun)),
        (30, 30)
    );
    assert!(
        report.cut_short.contains(&CheckComparison::LongRun) && report.to_string().contains("cut short"),
        "{report}"
    );
}

#[test]
fn check_command_prints_progress_and_uses_the_cache() {
    let (core, folder) = (build_core(CoreDefect::NoSave), tempfile::tempdir().unwrap());
    let request = CheckCommandOptions {
        json: true,
        show_progress: true,
        cache_folder: Some(folder.path().into()),
        ..CheckCommandOptions::default()
    };
    let run = |request: &CheckCommandOptions, core: &TestCore| {
        let (mut out, mut progress, name) = (Vec::new(), Vec::new(), core.path_string());
        let mut children = 0;
        let mut child = || {
            children += 1;
            child_command(&name, "")
        };
        let subject = CheckSubject {
            machine_name: "",
            game_name: "",
            open: &mut || open_machine(&name, ""),
            child_command: &mut child,
        };
        let report = check::run(request, subject, &mut out, &mut progress).unwrap();
        (report, String::from_utf8(out).unwrap(), String::from_utf8(progress).unwrap(), children)
    };
    let (report, out, progress, children) = run(&request, &core);
    assert!(
        progress.contains("two instances, one process") && progress.contains("long run") && children == 2,
        "{progress}"
    );
    assert!(out.contains("\"kind\": \"cannot_save\"") && out.contains("\"median_ns\""), "{out}");
    let (cached, repeated, progress, children) = run(&request, &core);
    assert_eq!((cached, repeated, children), (report, out, 1));
    assert_eq!(progress, "this report is from an earlier check; use --again to repeat the check\n");
    let (_, table, _, children) =
        run(&CheckCommandOptions { json: false, ignore_cache: true, long_run_frames: Some(60), ..request }, &core);
    assert!(table.contains("lockstep only") && children == 2, "{table}");
}

#[test]
fn child_process_open_failure_is_reported() {
    let core_here = build_core(CoreDefect::Honest);
    let name = core_here.path_string();
    let run = |child: &mut dyn FnMut() -> Command| {
        check::check(
            CheckSubject {
                machine_name: "",
                game_name: "",
                open: &mut || open_machine(&name, ""),
                child_command: child,
            },
            &short_options(),
            &mut |_| (),
        )
        .unwrap_err()
    };
    let CheckError::ChildProcess(reason) = run(&mut || child_command("/nowhere/core.so", "")) else {
        panic!("unexpected error")
    };
    assert!(reason.contains("/nowhere/core.so"), "{reason}");
    assert!(matches!(run(&mut || Command::new("/nowhere/program")), CheckError::ChildProcess(_)));
    let CheckError::ChildProcess(reason) = run(&mut || Command::new("true")) else { panic!("unexpected error") };
    assert!(reason.contains("ended"), "{reason}");
}

/// A child process that opens another core than this process is reported as a mismatch.
#[test]
fn different_machine_in_child_process_is_a_mismatch() {
    let (core_here, core_in_child) = (build_core(CoreDefect::Honest), build_core(CoreDefect::Forgets));
    let (name, child_name) = (core_here.path_string(), core_in_child.path_string());
    let subject = CheckSubject {
        machine_name: "",
        game_name: "",
        open: &mut || open_machine(&name, ""),
        child_command: &mut || child_command(&child_name, ""),
    };
    let report = check::check(subject, &short_options(), &mut |_| ()).unwrap();
    let mismatch = report.verdict.mismatch().unwrap();
    assert_eq!(mismatch.comparison, CheckComparison::OtherProcess);
    assert!(!report.verdict.is_fit() && mismatch.frame.is_some_and(|frame| frame < 60), "{mismatch}");
    assert!(mismatch.regions.iter().all(|region| region.page_offsets.iter().all(|at| at % u64::from(PAGE_SIZE) == 0)));
}
