//! Whoever cheats is caught, and whoever does not is not.

#![cfg(all(unix, not(target_vendor = "apple")))]

mod common;

use std::process::Command;
use std::time::Duration;

use common::odd::Odd;
use coplay::id::SiteId;
use coplay::session::PAGE_SIZE;
use coplay_machines::check::{
    self, Asked, Comparison, Difference, Error, Fault, Options, Reason, Report, Seen, Subject, Verdict,
};
use coplay_machines::libretro::{self, Config, CoreSource, Game};
use coplay_machines::nes::Nes;
use coplay_machines::{Machine, hosted};
use coplay_testcores::{Cheat, TestCore, build, images};

/// Tells the other process, which is this program again, which core to open; with nothing in it, the NES.
const CORE: &str = "COPLAY_TEST_CORE";
/// And with which image of [`image`].
const IMAGE: &str = "COPLAY_TEST_IMAGE";

fn image(ending: &str) -> Vec<u8> {
    match ending {
        "nes" => images::nes(),
        "gb" => images::game_boy(),
        "gba" => images::game_boy_advance(),
        "pce" => images::pc_engine(),
        "sfc" => images::snes(),
        _ => panic!("no image for {ending}"),
    }
}

fn open(core: &str, ending: &str) -> Result<Box<dyn Machine>, String> {
    if let Some(oddity) = core.strip_prefix("odd ") {
        return Ok(Box::new(Odd::new(oddity)));
    }
    if core.is_empty() {
        return Ok(Box::new(Nes::open(&common::rom::image(), "test").map_err(|error| error.to_string())?));
    }
    let game = (!ending.is_empty()).then(|| Game { name: format!("test.{ending}"), image: image(ending) });
    let core = CoreSource::from_user(core).map_err(|error| error.to_string())?;
    let machine = libretro::open(Config { game, ..Config::new(core) });
    Ok(Box::new(machine.map_err(|error| error.to_string())?))
}

/// The other process. Around its answers stands what the test harness prints, as it would be with what a core prints.
#[test]
fn other_process() {
    if let Ok(core) = std::env::var(CORE) {
        let ending = std::env::var(IMAGE).unwrap_or_default();
        std::process::exit(check::child(|| open(&core, &ending)).into());
    }
}

fn other(core: &str, ending: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "other_process", "--nocapture"]).env(CORE, core).env(IMAGE, ending);
    command
}

fn small() -> Options {
    let usual = Options::default();
    Options { frames: 600, short: 300, budget: Duration::from_secs(600), later: Duration::ZERO, ..usual }
}

fn checked(core: &str, ending: &str, options: &Options) -> Report {
    checked_as(&mut || open(core, ending), core, ending, options)
}

/// Opens the machine here as told.
fn checked_as(
    open: &mut dyn FnMut() -> Result<Box<dyn Machine>, String>,
    core: &str,
    ending: &str,
    options: &Options,
) -> Report {
    let subject = Subject { machine: core, game: ending, open, child: &mut || other(core, ending) };
    let report = check::check(subject, options, &mut |_| ()).unwrap_or_else(|error| panic!("{core}: {error}"));
    eprintln!("{report}");
    report
}

fn cheating(cheat: Cheat) -> Report {
    checked(&build(cheat).name(), "", &small())
}

fn frames(report: &Report, comparison: Comparison) -> u32 {
    report.compared.iter().find(|compared| compared.comparison == comparison).map_or(0, |compared| compared.frames)
}

#[test]
fn the_honest_one_passes_everything() {
    let report = cheating(Cheat::Honest);
    assert_eq!(report.verdict, Verdict::Rollback);
    assert_eq!((frames(&report, Comparison::Together), frames(&report, Comparison::Apart)), (300, 300));
    assert_eq!((frames(&report, Comparison::Anew), frames(&report, Comparison::Cold)), (50, 100));
    let repaired = [Comparison::Again, Comparison::Repaired].map(|comparison| frames(&report, comparison));
    assert!(repaired[0] > 20 && repaired[1] > 20 && repaired[0] + repaired[1] <= 200, "{repaired:?}");
    assert_eq!(frames(&report, Comparison::Long), 300);
    assert!(report.cut_short.is_empty() && report.notes.is_empty(), "{report:?}");
    assert!(report.window > 0 && report.measured.state_bytes > 1_024);
    assert!(report.measured.fresh.median_ns > 0 && report.measured.load.p95_ns >= report.measured.load.median_ns);
    let fitness = report.fitness();
    assert!(fitness.shared && fitness.can_save && fitness.window == report.window);
}

#[test]
fn who_reads_the_clock_is_unfit_from_the_first_frame_on() {
    let report = cheating(Cheat::Clock);
    let Verdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let difference = report.verdict.difference().unwrap();
    assert_eq!((difference.comparison, difference.frame), (Comparison::Together, Some(0)));
    assert_eq!((difference.seen, difference.regions[0].name.as_str()), (Seen::State, "system ram"));
    assert_eq!(difference.regions[0].pages_at, [0], "the seed is on the first page");
    assert!(!report.fitness().shared && report.window == 0);
}

#[test]
fn who_depends_on_an_address_is_unfit_before_the_first_frame() {
    let report = cheating(Cheat::Address);
    let Verdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let difference = report.verdict.difference().unwrap();
    assert_eq!((difference.comparison, difference.frame), (Comparison::Together, None));
    assert!(report.to_string().contains("before the first frame"), "{report}");
}

/// Fresh memory is mostly zero, and so it is here and there: only the other process has it filled. That is the GNU C library's.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn who_reads_memory_that_was_never_set_is_unfit() {
    let report = cheating(Cheat::Unset);
    assert!(!report.verdict.is_fit(), "{report}");
    // Where the memory was used before, its first frames tell; else the other process does, before the first frame.
    assert!(report.verdict.difference().is_none_or(|difference| difference.frame.is_none()), "{report}");
}

#[test]
fn who_is_right_until_frame_5000_is_unfit_from_frame_5000_on() {
    let options = Options { frames: Options::default().frames, ..small() };
    let report = checked(&build(Cheat::Late).name(), "", &options);
    let Verdict::Unfit { .. } = report.verdict else { panic!("{report}") };
    let difference = report.verdict.difference().unwrap();
    assert_eq!((difference.comparison, difference.frame), (Comparison::Long, Some(5_000)));
    assert_eq!(difference.regions[0].name, "system ram");
    assert_eq!(frames(&report, Comparison::Long), 4_700);
}

#[test]
fn who_forgets_a_byte_plays_in_lockstep_only() {
    let report = cheating(Cheat::Forgets);
    let Verdict::Lockstep { reason: Reason::States { .. } } = &report.verdict else { panic!("{report}") };
    let difference = report.verdict.difference().unwrap();
    assert!([Comparison::Again, Comparison::Repaired].contains(&difference.comparison), "{difference}");
    assert_eq!(difference.frame, difference.loaded, "the first frame after the state was loaded");
    assert_eq!(difference.regions[0].name, "system ram");
    // All that lockstep needs was found to be right.
    assert_eq!((frames(&report, Comparison::Apart), frames(&report, Comparison::Long)), (300, 300));
    let fitness = report.fitness();
    assert!(fitness.shared && !fitness.can_save && fitness.window == 0);
    let machine = common::nes();
    let settings = hosted::settings(&machine, hosted::Terms::new(2));
    let site = SiteId::first(1).next().expect("one");
    let mut config = hosted::config(&machine, 1, site, Vec::new(), settings);
    assert!(config.can_save && config.bisect_desyncs);
    fitness.apply(&mut config);
    assert!(!config.can_save && !config.bisect_desyncs && config.machine_costs == report.measured.costs());
    let again = cheating(Cheat::Forgets);
    assert_eq!(again.verdict, report.verdict, "a seed does the same again");
}

#[test]
fn who_cannot_save_plays_in_lockstep_only() {
    let report = cheating(Cheat::NoSave);
    assert_eq!(report.verdict, Verdict::Lockstep { reason: Reason::CannotSave });
    assert_eq!((frames(&report, Comparison::Long), frames(&report, Comparison::Cold)), (300, 0));
    assert!(report.measured.unseen.median_ns > 0 && report.measured.save.p95_ns == 0);
}

#[test]
fn oddities_that_do_no_harm_are_no_fault() {
    for cheat in [Cheat::Threads, Cheat::MustRun] {
        assert_eq!(cheating(cheat).verdict, Verdict::Rollback, "{cheat:?}");
    }
    // A core that saving disturbs is saved in every frame at every site. That must be seen to work.
    assert_eq!(cheating(Cheat::Disturbed).verdict, Verdict::Rollback);
}

/// The first difference of a machine that is odd in one way; whether it is unfit.
fn odd(oddity: &str) -> (Difference, bool) {
    let report = checked(&format!("odd {oddity}"), "", &small());
    (report.verdict.difference().unwrap_or_else(|| panic!("{report}")).clone(), !report.verdict.is_fit())
}

#[test]
fn a_machine_that_is_not_odd_passes() {
    assert_eq!(checked("odd not", "", &small()).verdict, Verdict::Rollback);
}

#[test]
fn who_looks_at_the_environment_is_seen_in_the_other_process_only() {
    for oddity in ["home", "folder", "zone", "language"] {
        let (difference, unfit) = odd(oddity);
        assert!(unfit, "{oddity}: {difference}");
        assert_eq!((difference.comparison, difference.frame), (Comparison::Apart, None), "{oddity}");
        assert_eq!(difference.regions[0].name, "memory", "{oddity}");
    }
}

#[test]
fn who_counts_seconds_is_seen_because_the_other_process_is_late() {
    let report = checked("odd seconds", "", &Options { later: Options::default().later, ..small() });
    let difference = report.verdict.difference().unwrap_or_else(|| panic!("{report}"));
    // Two that are stepped one after the other hardly ever see the clock go on in between.
    assert!(!report.verdict.is_fit() && difference.frame.is_some(), "{difference}");
}

#[test]
fn who_shows_something_else_is_unfit_though_the_hash_does_not_see_it() {
    let (difference, unfit) = odd("picture");
    assert_eq!((difference.comparison, difference.frame, unfit), (Comparison::Apart, Some(0), true));
    assert_eq!(difference.seen, Seen::Picture);
}

#[test]
fn whose_states_are_good_only_in_their_process_plays_in_lockstep_only() {
    let (difference, unfit) = odd("cold");
    assert!(!unfit && difference.comparison == Comparison::Cold, "{difference}");
    assert_eq!((difference.frame, difference.loaded), (Some(200), Some(200)));
}

#[test]
fn who_plays_otherwise_unseen_or_after_a_reset_is_caught() {
    let (difference, unfit) = odd("unseen");
    assert_eq!((difference.comparison, difference.frame, unfit), (Comparison::Anew, Some(0), false));
    let (difference, unfit) = odd("reset");
    assert_eq!((difference.comparison, difference.frame, unfit), (Comparison::Anew, Some(0), false));
}

#[test]
fn who_is_changed_by_saving_plays_in_lockstep_only() {
    let (difference, unfit) = odd("saving");
    assert!(!unfit && [Comparison::Again, Comparison::Repaired].contains(&difference.comparison), "{difference}");
}

#[test]
fn who_ends_its_process_fails() {
    for (oddity, when) in [("odd crash", (Comparison::Alone, 7)), ("odd late crash", (Comparison::Apart, 70))] {
        let report = checked(oddity, "", &small());
        let Verdict::Unfit { fault: Fault::Failed { comparison, frame, why } } = &report.verdict else {
            panic!("{report}")
        };
        assert_eq!((*comparison, *frame), when);
        assert!(why.contains("ended"), "{why}");
    }
}

/// A machine that must not be opened in this process.
fn dangerous(cheat: Cheat, patience: Duration) -> Report {
    let core = build(cheat);
    let mut open = || panic!("it was opened here");
    checked_as(&mut open, &core.name(), "", &Options { patience, ..small() })
}

#[test]
fn who_takes_its_process_down_gets_a_verdict_and_is_not_opened_here() {
    let report = dangerous(Cheat::Aborts, Options::default().patience);
    let Verdict::Unfit { fault: Fault::Failed { comparison, why, .. } } = &report.verdict else { panic!("{report}") };
    assert!(*comparison == Comparison::Alone && why.contains("ended (signal"), "{why}");
    assert!(!report.is_lasting() && report.to_string().contains("nobody can rely on it"), "{report}");
}

#[test]
fn who_never_comes_back_gets_a_verdict_and_is_not_waited_for() {
    let report = dangerous(Cheat::Hangs, Duration::from_secs(3));
    let Verdict::Unfit { fault: Fault::Failed { comparison, why, .. } } = &report.verdict else { panic!("{report}") };
    assert!(*comparison == Comparison::Alone && why.contains("did not answer for 3 s"), "{why}");
}

#[test]
fn who_draws_only_what_it_is_asked_for_is_asked() {
    assert_eq!(cheating(Cheat::Asks).verdict, Verdict::Lockstep { reason: Reason::CannotSave });
}

#[test]
fn what_cannot_be_seen_cannot_be_shared() {
    assert_eq!(checked("odd blind", "", &small()).verdict, Verdict::Unfit { fault: Fault::Blind });
}

#[test]
fn whose_repairs_take_longer_than_a_frame_plays_in_lockstep_with_its_states() {
    let report = checked("odd slow", "", &Options { frames: 30, short: 30, ..small() });
    assert!(matches!(report.verdict, Verdict::Lockstep { reason: Reason::TooSlow { .. } }), "{report}");
    assert!(report.fitness().can_save && report.fitness().window == 0);
}

#[test]
fn the_embedded_nes_is_fit_for_everything() {
    assert_eq!(checked("", "", &small()).verdict, Verdict::Rollback);
}

/// A core as Debian has it, with an image of ours.
fn debian(core: &str, ending: &str) {
    let core = CoreSource::from_user(core).unwrap();
    let file = libretro::find(&core, &[]).unwrap_or_else(|error| panic!("{error}\nhint: {:?}", error.hint()));
    let file = file.display().to_string();
    let game = Some(Game { name: format!("test.{ending}"), image: image(ending) });
    let first = libretro::open(Config { game, ..Config::new(core.clone()) }).unwrap();
    let mut twin = || match first.twin() {
        Ok(twin) => Ok(Box::new(twin) as Box<dyn Machine>),
        Err(error) => Err(error.to_string()),
    };
    let report = checked_as(&mut twin, &file, ending, &Options { frames: 180, short: 120, ..small() });
    // Where computers are busy a repair may take too long, but its states are exact.
    assert!(report.verdict.is_fit() && report.fitness().can_save, "{core}: {report}");
    assert!(!report.notes.iter().any(|note| note.contains("pressed")), "{report}");
}

#[test]
fn nestopia_is_fit() {
    debian("nestopia", "nes");
}

#[test]
fn gambatte_is_fit() {
    debian("gambatte", "gb");
}

#[test]
fn mgba_is_fit() {
    debian("mgba", "gba");
}

#[test]
fn pce_fast_is_fit() {
    debian("beetle-pce-fast", "pce");
}

#[test]
fn bsnes_is_fit() {
    debian("bsnes-mercury-performance", "sfc");
}

#[test]
fn without_time_it_says_what_was_cut_short() {
    let options = Options { budget: Duration::ZERO, ..small() };
    let report = checked(&build(Cheat::Honest).name(), "", &options);
    assert_eq!(report.verdict, Verdict::Rollback);
    assert_eq!((frames(&report, Comparison::Together), frames(&report, Comparison::Long)), (30, 30));
    assert!(report.cut_short.contains(&Comparison::Long) && report.to_string().contains("cut short"), "{report}");
}

#[test]
fn the_command_tells_how_far_it_is_and_does_not_do_the_same_twice() {
    let (core, folder) = (build(Cheat::NoSave), tempfile::tempdir().unwrap());
    let asked = Asked { json: true, progress: true, cache: Some(folder.path().into()), ..Asked::default() };
    let run = |asked: &Asked, core: &TestCore| {
        let (mut out, mut talk, name) = (Vec::new(), Vec::new(), core.name());
        let mut children = 0;
        let mut child = || {
            children += 1;
            other(&name, "")
        };
        let subject = Subject { machine: "", game: "", open: &mut || open(&name, ""), child: &mut child };
        let report = check::run(asked, subject, &mut out, &mut talk).unwrap();
        (report, String::from_utf8(out).unwrap(), String::from_utf8(talk).unwrap(), children)
    };
    let (report, out, talk, children) = run(&asked, &core);
    assert!(talk.contains("two in one process") && talk.contains("a long run") && children == 2, "{talk}");
    assert!(out.contains("\"kind\": \"cannot_save\"") && out.contains("\"median_ns\""), "{out}");
    let (kept, again, talk, children) = run(&asked, &core);
    assert_eq!((kept, again, children), (report, out, 1));
    assert_eq!(talk, "checked before; --again checks again\n");
    let (_, table, _, children) = run(&Asked { json: false, again: true, frames: Some(60), ..asked }, &core);
    assert!(table.contains("lockstep only") && children == 2, "{table}");
}

#[test]
fn who_cannot_be_opened_elsewhere_is_told_so() {
    let here = build(Cheat::Honest);
    let name = here.name();
    let run = |child: &mut dyn FnMut() -> Command| {
        check::check(Subject { machine: "", game: "", open: &mut || open(&name, ""), child }, &small(), &mut |_| ())
            .unwrap_err()
    };
    let Error::Child(why) = run(&mut || other("/nowhere/core.so", "")) else { panic!("another error") };
    assert!(why.contains("/nowhere/core.so"), "{why}");
    assert!(matches!(run(&mut || Command::new("/nowhere/program")), Error::Child(_)));
    let Error::Child(why) = run(&mut || Command::new("true")) else { panic!("another error") };
    assert!(why.contains("ended"), "{why}");
}

/// A machine of another kind in the other process.
#[test]
fn another_machine_elsewhere_is_a_difference() {
    let (here, there) = (build(Cheat::Honest), build(Cheat::Forgets));
    let (name, others) = (here.name(), there.name());
    let subject = Subject { machine: "", game: "", open: &mut || open(&name, ""), child: &mut || other(&others, "") };
    let report = check::check(subject, &small(), &mut |_| ()).unwrap();
    let difference = report.verdict.difference().unwrap();
    assert_eq!(difference.comparison, Comparison::Apart);
    assert!(!report.verdict.is_fit() && difference.frame.is_some_and(|frame| frame < 60), "{difference}");
    assert!(difference.regions.iter().all(|region| region.pages_at.iter().all(|at| at % u64::from(PAGE_SIZE) == 0)));
}
