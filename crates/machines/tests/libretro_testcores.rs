//! Tests with our own cores: a correct core meets the contract of [`Machine`]; a faulty core is detected, or its fault
//! has no effect.

#![cfg(all(unix, not(target_vendor = "apple")))]

use std::path::{Path, PathBuf};

use coplay::input::InputWord;
use coplay_machines::libretro::{CoreConfig, CoreOpenError, CoreSource, GameImage, HashSource, LibretroMachine, open};
use coplay_machines::pad::Button;
use coplay_machines::{LoadError, Machine, NetplaySupport, SaveError};
use coplay_testcores::{CoreDefect, TestCore, TestCoreConfig, build_core, build_core_with};

fn core_config(core: &Path) -> CoreConfig {
    CoreConfig::new(CoreSource::Path(core.into()))
}

fn open_core(core: &TestCore) -> LibretroMachine {
    open(core_config(core.path())).expect("the core opens")
}

fn open_test_core(defect: CoreDefect) -> LibretroMachine {
    open_core(&build_core(defect))
}

fn open_error(config: CoreConfig) -> CoreOpenError {
    open(config).map(|_| ()).expect_err("the core is rejected")
}

/// Returns pseudo-random inputs of two players for a frame.
fn inputs_at(frame: u64) -> [InputWord; 2] {
    [frame / 5 * 37, frame / 3 * 91].map(|noise| InputWord::from(noise % 65_536))
}

fn step_frames(machine: &mut LibretroMachine, frames: std::ops::Range<u64>) {
    frames.for_each(|frame| machine.step(&inputs_at(frame), true));
}

fn saved_state(machine: &mut LibretroMachine) -> Vec<u8> {
    let mut state = Vec::new();
    machine.save(&mut state).expect("the core saves");
    state
}

#[test]
fn probe_finds_deterministic_core_exact() {
    let machine = open_test_core(CoreDefect::Honest);
    let findings = machine.findings();
    assert!(
        findings.is_deterministic
            && findings.can_save
            && findings.state_exact
            && findings.memory_exact
            && findings.saves_initial_state
    );
    assert_eq!(
        (findings.hash_of, findings.needs_warm_up, findings.state_size),
        (HashSource::Memory, false, Some(1_024))
    );
    let id = machine.machine_id();
    assert_eq!((id.name.as_str(), &id.options[..]), ("Test core", &[("hash of".to_owned(), "memory".to_owned())][..]));
    assert_eq!(machine.frame_rate().fraction(), (60, 1));
    assert_eq!(machine.sample_rate(), 48_000.0);
}

#[test]
fn pads_match_descriptors_without_turbo_buttons() {
    let machine = open_test_core(CoreDefect::Honest);
    let [first, second] = machine.pads() else { panic!("the core has two players") };
    let cross = [Button::Up, Button::Down, Button::Left, Button::Right, Button::A];
    assert!(first.buttons().eq(cross) && second.buttons().eq(cross));
    assert!(first.labels.contains(&(Button::A, "Jump".to_owned())));
}

#[test]
fn inputs_reach_the_right_player_and_masked_bits_are_ignored() {
    let core = build_core(CoreDefect::Honest);
    let mut machine = open_core(&core);
    let mut other = machine.twin().unwrap();
    machine.step(&[Button::Right.bit(), Button::Down.bit()], true);
    other.step(&[Button::Right.bit() | Button::X.bit() | 1 << 100, Button::Down.bit(), InputWord::MAX], true);
    assert_eq!(machine.hash(), other.hash());
    let mut state = Vec::new();
    machine.regions(&mut |name, bytes| {
        if name == "system ram" {
            state = bytes.to_vec();
        }
    });
    assert_eq!(state[8..12], [1, 60, 0, 1], "x and y of both players");
}

#[test]
fn picture_and_sound_are_from_the_last_rendered_frame() {
    let mut machine = open_test_core(CoreDefect::Honest);
    assert_eq!((machine.picture().width, machine.picture().height), (64, 48));
    assert!(machine.picture().rgba.chunks(4).all(|pixel| pixel == [0, 0, 0, 255]));
    machine.step(&[], true);
    assert_eq!(machine.picture().rgba[..4], [255, 128, 0, 255]);
    assert_eq!((machine.sound().len(), machine.sound()[0]), (800, [-1_000, -1_000]));
    let before = machine.picture().rgba.to_vec();
    machine.step(&[Button::Right.bit()], false);
    assert!(machine.picture().rgba == before && machine.sound().len() == 800);
    machine.step(&[], true);
    assert!(machine.picture().rgba != before);
}

#[test]
fn core_instances_are_isolated_across_threads() {
    // The core has a variable with a unique symbol, which the loader would merge over all copies of the library, as
    // with C++ cores. The core's state changes if the variable is shared.
    let first = open_test_core(CoreDefect::Honest);
    let mut machines: Vec<_> = (0..8).map(|_| first.twin().unwrap()).collect();
    for (start, machine) in machines.iter_mut().enumerate() {
        step_frames(machine, 0..start as u64);
    }
    let hashes: Vec<u64> = std::thread::scope(|scope| {
        let threads = machines.iter_mut().enumerate().map(|(start, machine)| {
            scope.spawn(move || {
                step_frames(machine, start as u64..300);
                machine.hash()
            })
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn state_loads_exactly_into_another_instance() {
    let core = build_core_with(TestCoreConfig { state_size: 1 << 20, ..TestCoreConfig::default() });
    let mut machine = open_core(&core);
    assert!(!machine.findings().saves_every_frame);
    step_frames(&mut machine, 0..100);
    let state = saved_state(&mut machine);
    let mut joiner = machine.twin().unwrap();
    joiner.load(&state).unwrap();
    step_frames(&mut machine, 100..200);
    step_frames(&mut joiner, 100..200);
    assert_eq!(saved_state(&mut machine), saved_state(&mut joiner));
    machine.load(&state).unwrap();
    step_frames(&mut machine, 100..200);
    assert_eq!(machine.hash(), joiner.hash());
}

#[test]
fn reset_restores_the_initial_state() {
    let mut machine = open_test_core(CoreDefect::Honest);
    let initial_state = saved_state(&mut machine);
    step_frames(&mut machine, 0..50);
    let hash = machine.hash();
    machine.reset();
    assert!(machine.sound().is_empty() && machine.picture().rgba[0] == 0);
    step_frames(&mut machine, 0..50);
    assert_eq!(machine.hash(), hash);
    machine.load(&initial_state).unwrap();
    step_frames(&mut machine, 0..50);
    assert_eq!(machine.hash(), hash);
}

#[test]
fn foreign_or_damaged_state_is_rejected_without_effect() {
    let mut machine = open_test_core(CoreDefect::Honest);
    step_frames(&mut machine, 0..20);
    let (state, hash) = (saved_state(&mut machine), machine.hash());
    let other_game = Some(GameImage { name: "other.test".into(), image: b"7".to_vec() });
    let core = build_core(CoreDefect::Honest);
    let mut other = open(CoreConfig { game: other_game, ..core_config(core.path()) }).unwrap();
    let mut foreign = vec![saved_state(&mut other), Vec::new(), vec![0; 2_000], state[..state.len() - 1].to_vec()];
    for at in (0..state.len()).step_by(7) {
        let mut damaged = state.clone();
        damaged[at] ^= 0x10;
        foreign.push(damaged);
    }
    for bytes in foreign {
        assert!(matches!(machine.load(&bytes), Err(LoadError::InvalidState(_))));
        assert_eq!(machine.hash(), hash);
    }
    machine.load(&state).unwrap();
}

/// A forged state that passes all checks but the core's own is rejected, and the machine keeps its state.
#[test]
fn state_rejected_midway_by_core_is_undone() {
    let mut machine = open_test_core(CoreDefect::Half);
    let mut forged_source = machine.twin().unwrap();
    step_frames(&mut machine, 0..20);
    let hash = machine.hash();
    step_frames(&mut forged_source, 0..5);
    let mut state = saved_state(&mut forged_source);
    state[40 + 10] = 200;
    let frames = u64::from_le_bytes(state[16..24].try_into().unwrap());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&state[40..], frames << 1 | 1);
    state[32..40].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(machine.load(&state), Err(LoadError::InvalidState("the core rejected it".into())));
    assert_eq!(machine.hash(), hash);
}

#[test]
fn core_options_change_state_and_machine_id() {
    for options in [0, 1, 2] {
        let core = build_core_with(TestCoreConfig { options_version: options, ..TestCoreConfig::default() });
        let with = |value: &str| CoreConfig {
            options: vec![("testcore_step".into(), value.into())],
            ..core_config(core.path())
        };
        let (mut one, mut three) = (open(with("1")).unwrap(), open(with("3")).unwrap());
        assert_eq!(one.machine_id(), open_core(&core).machine_id());
        assert!(three.machine_id().options.contains(&("testcore_step".into(), "3".into())));
        assert!(
            three
                .options()
                .any(|(key, value, values)| key == "testcore_step" && value == "3" && values == ["1", "2", "3"])
        );
        one.step(&[Button::Right.bit()], true);
        three.step(&[Button::Right.bit()], true);
        assert_ne!(one.hash(), three.hash());
        assert!(matches!(open_error(with("4")), CoreOpenError::InvalidOptionValue { .. }));
        let unknown = CoreConfig { options: vec![("speed".into(), "1".into())], ..with("1") };
        assert!(matches!(open_error(unknown), CoreOpenError::UnknownOption { .. }));
    }
}

#[test]
fn game_id_depends_on_image_content() {
    let core = build_core(CoreDefect::Honest);
    let with = |name: &str, image: &[u8]| CoreConfig {
        game: Some(GameImage { name: name.into(), image: image.to_vec() }),
        ..core_config(core.path())
    };
    let (one, same) = (open(with("one.test", b"abc")).unwrap(), open(with("two.TST", b"abc")).unwrap());
    assert_eq!(one.game_id().hash, same.game_id().hash);
    assert_eq!((one.game_id().name.as_str(), one.first_frames_hash()), ("one", same.first_frames_hash()));
    assert_ne!(one.first_frames_hash(), open(with("one.test", b"xyz")).unwrap().first_frames_hash());
    assert!(matches!(open_error(with("one.nes", b"abc")), CoreOpenError::UnsupportedExtension { .. }));
    assert_eq!(open_error(with("one.test", b"!")), CoreOpenError::GameRejected(vec!["bad image … at …".into()]));
}

#[test]
fn first_frames_hash_distinguishes_cores() {
    let (honest, forgets) = (open_test_core(CoreDefect::Honest), open_test_core(CoreDefect::Forgets));
    assert_eq!(honest.first_frames_hash(), open_test_core(CoreDefect::Honest).first_frames_hash());
    assert_ne!(
        open_test_core(CoreDefect::Clock).first_frames_hash(),
        open_test_core(CoreDefect::Clock).first_frames_hash()
    );
    assert_ne!(open_test_core(CoreDefect::Address).first_frames_hash(), honest.first_frames_hash());
    assert!(!forgets.findings().state_exact && !forgets.findings().memory_exact);
    assert!(
        !open_test_core(CoreDefect::Clock).findings().is_deterministic
            && !open_test_core(CoreDefect::Address).findings().is_deterministic
    );
}

#[test]
fn late_divergence_appears_at_frame_5000() {
    let mut one = open_test_core(CoreDefect::Late);
    let mut other = one.twin().unwrap();
    assert!(one.findings().is_deterministic && one.findings().state_exact);
    for frame in 0..5_000 {
        one.step(&inputs_at(frame), false);
        other.step(&inputs_at(frame), false);
    }
    assert_eq!(one.hash(), other.hash());
    one.step(&[], false);
    other.step(&[], false);
    assert_ne!(one.hash(), other.hash());
}

#[test]
fn invalid_core_announcements_are_rejected() {
    let mut machine = open_test_core(CoreDefect::Liar);
    assert!(machine.sample_rate() > 0.0 && machine.picture().width <= 4_096);
    machine.step(&[], true);
    assert_eq!((machine.picture().width, machine.picture().height), (64, 48));
    assert!(machine.picture().aspect > 0.0 && machine.sound().len() <= 1 << 16);
    assert_eq!((machine.findings().hash_of, machine.findings().memory_size), (HashSource::State, 0));
    assert!(matches!(
        open_error(core_config(build_core(CoreDefect::NanRate).path())),
        CoreOpenError::InvalidFrameRate(_)
    ));
    let gpu = build_core(CoreDefect::Gpu);
    assert_eq!(open_error(core_config(gpu.path())), CoreOpenError::NeedsGpu);
}

#[test]
fn callbacks_from_core_threads_are_refused() {
    let (mut threads, mut honest) = (open_test_core(CoreDefect::Threads), open_test_core(CoreDefect::Honest));
    step_frames(&mut threads, 0..50);
    step_frames(&mut honest, 0..50);
    assert_eq!(threads.hash(), honest.hash());
    assert!(!threads.log_lines().any(|line| line == "from elsewhere"));
}

#[test]
fn core_without_save_is_still_hashed() {
    let mut machine = open_test_core(CoreDefect::NoSave);
    assert!(!machine.can_save());
    assert_eq!(machine.save(&mut Vec::new()), Err(SaveError::Unsupported));
    assert_eq!(machine.load(&[]), Err(LoadError::Unsupported));
    let before = machine.hash();
    step_frames(&mut machine, 0..5);
    assert_ne!(machine.hash(), before);
}

#[test]
fn core_changed_by_saving_stays_equal_across_instances() {
    for state_size in [1_024, 1 << 20] {
        let mut one = open_core(&build_core_with(TestCoreConfig {
            defect: CoreDefect::Disturbed,
            state_size,
            ..TestCoreConfig::default()
        }));
        let mut other = one.twin().unwrap();
        assert!(one.findings().saves_every_frame && one.findings().state_exact);
        for frame in 0..100 {
            step_frames(&mut one, frame..frame + 1);
            step_frames(&mut other, frame..frame + 1);
            if frame % 3 == 0 {
                saved_state(&mut one);
            }
            assert_eq!(one.hash(), other.hash(), "frame {frame}");
        }
        let state = saved_state(&mut one);
        other.load(&state).unwrap();
        step_frames(&mut one, 100..150);
        step_frames(&mut other, 100..150);
        assert_eq!(saved_state(&mut one), saved_state(&mut other));
    }
}

#[test]
fn core_needing_warm_up_can_save_initial_state() {
    let mut machine = open_test_core(CoreDefect::MustRun);
    let findings = machine.findings();
    assert!(findings.can_save && findings.needs_warm_up && !findings.saves_initial_state);
    let initial_state = saved_state(&mut machine);
    step_frames(&mut machine, 0..30);
    let (state, hash) = (saved_state(&mut machine), machine.hash());
    let mut joiner = machine.twin().unwrap();
    joiner.load(&state).unwrap();
    assert_eq!(joiner.hash(), hash);
    machine.load(&initial_state).unwrap();
    step_frames(&mut machine, 0..30);
    assert_eq!(machine.hash(), hash);
}

#[test]
fn untestable_core_renders_headless_frames_fully() {
    let machine = open_test_core(CoreDefect::Asks);
    let findings = machine.findings();
    assert_eq!((findings.can_save, findings.hash_of, findings.headless_outputs), (false, HashSource::Picture, 3));
    let (mut rendered, mut headless) = (machine.twin().unwrap(), machine.twin().unwrap());
    for frame in 0..50 {
        rendered.step(&inputs_at(frame), true);
        headless.step(&inputs_at(frame), false);
        assert_eq!(rendered.hash(), headless.hash(), "frame {frame}");
    }
}

#[test]
fn reset_reuses_instance_when_initial_state_is_exact() {
    for state_size in [1_024, 1 << 20] {
        let core = build_core_with(TestCoreConfig { state_size, ..TestCoreConfig::default() });
        let mut machine = open_core(&core);
        let mut new_machine = machine.twin().unwrap();
        assert!(machine.findings().restarts_from_initial_state);
        let initial_state = (machine.hash(), saved_state(&mut machine));
        step_frames(&mut machine, 0..70);
        core.set_refusing_games(true);
        machine.reset();
        assert_eq!((machine.hash(), saved_state(&mut machine)), initial_state);
        assert_eq!(machine.failure(), None);
        assert!(machine.sound().is_empty() && machine.picture().rgba.chunks(4).all(|pixel| pixel == [0, 0, 0, 255]));
        step_frames(&mut machine, 10..70);
        step_frames(&mut new_machine, 10..70);
        assert_eq!((machine.hash(), saved_state(&mut machine)), (new_machine.hash(), saved_state(&mut new_machine)));
    }
}

#[test]
fn failed_reset_halts_the_machine_with_a_reason() {
    let core = build_core(CoreDefect::MustRun);
    let mut machine = open_core(&core);
    assert!(!machine.findings().restarts_from_initial_state);
    let initial_state = saved_state(&mut machine);
    step_frames(&mut machine, 0..30);
    let (state, hash) = (saved_state(&mut machine), machine.hash());
    core.set_refusing_games(true);
    assert!(machine.load(&initial_state).is_err());
    assert!(machine.hash() == hash && machine.failure().is_none(), "a failed load changed the machine");
    machine.reset();
    assert!(machine.failure().is_some_and(|reason| reason.contains("reset failed")), "{:?}", machine.failure());
    assert!(matches!(machine.save(&mut Vec::new()), Err(SaveError::Failed(_))));
    step_frames(&mut machine, 30..40);
    assert_eq!(machine.hash(), hash);
    machine.load(&state).unwrap();
    assert_eq!(machine.failure(), None);
    step_frames(&mut machine, 30..31);
    assert_ne!(machine.hash(), hash);
    core.set_refusing_games(false);
    machine.reset();
    step_frames(&mut machine, 0..30);
    assert!(machine.hash() == hash && machine.failure().is_none());
}

#[test]
fn netplay_support_is_known_after_open() {
    let cases = [
        (CoreDefect::Honest, NetplaySupport::Rollback),
        (CoreDefect::Disturbed, NetplaySupport::Rollback),
        (CoreDefect::Liar, NetplaySupport::Rollback),
        (CoreDefect::NoSave, NetplaySupport::Lockstep),
        (CoreDefect::Forgets, NetplaySupport::Lockstep),
        (CoreDefect::Clock, NetplaySupport::Nondeterministic),
        (CoreDefect::Address, NetplaySupport::Nondeterministic),
    ];
    for (defect, support) in cases {
        assert_eq!(open_test_core(defect).netplay_support(), support, "{defect:?}");
    }
    // Inexact states are still usable in a local game.
    assert!(open_test_core(CoreDefect::Forgets).can_save());
}

#[test]
fn invalid_core_file_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text_libretro.so");
    std::fs::write(&text, "no library").unwrap();
    assert!(matches!(open_error(core_config(&text)), CoreOpenError::Load(_)));
    assert!(matches!(open_error(core_config(Path::new("/nowhere/x.so"))), CoreOpenError::Read { .. }));
    assert!(matches!(
        open_error(CoreConfig::new(CoreSource::from_user("no-such-core").unwrap())),
        CoreOpenError::NotFound { .. }
    ));
}

/// Returns the files in the private folders of all running tests.
fn files_in_scratch_folders() -> Vec<PathBuf> {
    let temp_dir = std::env::temp_dir();
    let folders = temp_dir.read_dir().unwrap().flatten().map(|entry| entry.path());
    let own_folders = folders.filter(|path| path.to_string_lossy().contains("coplay-core-"));
    own_folders.flat_map(|folder| folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())).collect()
}

#[test]
fn core_copy_is_deleted_after_loading() {
    let core = build_core_with(TestCoreConfig { state_size: 2_000, ..TestCoreConfig::default() });
    let named = core.path().with_file_name("left_behind_libretro.so");
    std::fs::rename(core.path(), &named).unwrap();
    let machine = open(core_config(&named)).unwrap();
    assert!(!files_in_scratch_folders().iter().any(|path| path.ends_with("left_behind_libretro.so")));
    drop(machine);
}
