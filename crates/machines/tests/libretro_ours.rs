//! Cores of our own: what a good one may rely on, and what a bad one cannot do.

#![cfg(all(unix, not(target_vendor = "apple")))]

use std::path::{Path, PathBuf};

use coplay::input::InputWord;
use coplay_machines::libretro::{Config, CoreSource, Game, HashOf, Libretro, OpenError, open};
use coplay_machines::pad::Button;
use coplay_machines::{LoadError, Machine, SaveError, Sharing};
use coplay_testcores::{Build, Cheat, TestCore, build, build_as};

fn config(core: &Path) -> Config {
    Config::new(CoreSource::Path(core.into()))
}

fn opened(core: &TestCore) -> Libretro {
    open(config(core.path())).expect("the core opens")
}

fn cheating(cheat: Cheat) -> Libretro {
    opened(&build(cheat))
}

fn failed(config: Config) -> OpenError {
    open(config).map(|_| ()).expect_err("it does not open")
}

/// Some input of two players in a frame.
fn inputs(frame: u64) -> [InputWord; 2] {
    [frame / 5 * 37, frame / 3 * 91].map(|noise| InputWord::from(noise % 65_536))
}

fn play(machine: &mut Libretro, frames: std::ops::Range<u64>) {
    frames.for_each(|frame| machine.step(&inputs(frame), true));
}

fn saved(machine: &mut Libretro) -> Vec<u8> {
    let mut state = Vec::new();
    machine.save(&mut state).expect("it saves");
    state
}

#[test]
fn the_honest_one_is_found_to_be_honest() {
    let machine = cheating(Cheat::Honest);
    let found = machine.findings();
    assert!(found.steady && found.can_save && found.state_exact && found.memory_exact && found.saves_unstepped);
    assert_eq!((found.hash_of, found.warms_up, found.state_size), (HashOf::Memory, false, Some(1_024)));
    let id = machine.machine_id();
    assert_eq!((id.name.as_str(), &id.options[..]), ("Test core", &[("hash of".to_owned(), "memory".to_owned())][..]));
    assert_eq!(machine.rate().fraction(), (60, 1));
    assert_eq!(machine.sound_rate(), 48_000.0);
}

#[test]
fn pads_are_as_described_without_turbo() {
    let machine = cheating(Cheat::Honest);
    let [first, second] = machine.pads() else { panic!("two players") };
    let cross = [Button::Up, Button::Down, Button::Left, Button::Right, Button::A];
    assert!(first.buttons().eq(cross) && second.buttons().eq(cross));
    assert!(first.labels.contains(&(Button::A, "Jump".to_owned())));
}

#[test]
fn pressing_moves_the_right_player_and_masked_bits_do_nothing() {
    let core = build(Cheat::Honest);
    let mut machine = opened(&core);
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
    assert_eq!(state[8..12], [1, 60, 0, 1], "x and y of both");
}

#[test]
fn picture_and_sound_are_those_of_the_last_fresh_frame() {
    let mut machine = cheating(Cheat::Honest);
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
fn many_instances_in_one_thread_and_in_many_do_not_disturb_each_other() {
    // The core has a variable that the system merges over libraries, as C++ makes them: it would notice.
    let first = cheating(Cheat::Honest);
    let mut crowd: Vec<_> = (0..8).map(|_| first.twin().unwrap()).collect();
    for (late, machine) in crowd.iter_mut().enumerate() {
        play(machine, 0..late as u64);
    }
    let hashes: Vec<u64> = std::thread::scope(|scope| {
        let threads = crowd.iter_mut().enumerate().map(|(late, machine)| {
            scope.spawn(move || {
                play(machine, late as u64..300);
                machine.hash()
            })
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}

#[test]
fn a_state_takes_another_instance_to_the_same_place() {
    let core = build_as(Build { state_size: 1 << 20, ..Build::default() });
    let mut machine = opened(&core);
    assert!(!machine.findings().settles);
    play(&mut machine, 0..100);
    let state = saved(&mut machine);
    let mut late = machine.twin().unwrap();
    late.load(&state).unwrap();
    play(&mut machine, 100..200);
    play(&mut late, 100..200);
    assert_eq!(saved(&mut machine), saved(&mut late));
    machine.load(&state).unwrap();
    play(&mut machine, 100..200);
    assert_eq!(machine.hash(), late.hash());
}

#[test]
fn reset_is_as_if_just_opened() {
    let mut machine = cheating(Cheat::Honest);
    let unstepped = saved(&mut machine);
    play(&mut machine, 0..50);
    let hash = machine.hash();
    machine.reset();
    assert!(machine.sound().is_empty() && machine.picture().rgba[0] == 0);
    play(&mut machine, 0..50);
    assert_eq!(machine.hash(), hash);
    machine.load(&unstepped).unwrap();
    play(&mut machine, 0..50);
    assert_eq!(machine.hash(), hash);
}

#[test]
fn strangers_bytes_are_refused_and_change_nothing() {
    let mut machine = cheating(Cheat::Honest);
    play(&mut machine, 0..20);
    let (state, hash) = (saved(&mut machine), machine.hash());
    let other_game = Some(Game { name: "other.test".into(), image: b"7".to_vec() });
    let core = build(Cheat::Honest);
    let mut other = open(Config { game: other_game, ..config(core.path()) }).unwrap();
    let mut foreign = vec![saved(&mut other), Vec::new(), vec![0; 2_000], state[..state.len() - 1].to_vec()];
    for at in (0..state.len()).step_by(7) {
        let mut damaged = state.clone();
        damaged[at] ^= 0x10;
        foreign.push(damaged);
    }
    for bytes in foreign {
        assert!(matches!(machine.load(&bytes), Err(LoadError::Unfit(_))));
        assert_eq!(machine.hash(), hash);
    }
    machine.load(&state).unwrap();
}

/// As a malicious peer would do it, whose state passes all checks but the core's own.
#[test]
fn a_state_that_the_core_takes_by_half_changes_nothing() {
    let mut machine = cheating(Cheat::Half);
    let mut evil = machine.twin().unwrap();
    play(&mut machine, 0..20);
    let hash = machine.hash();
    play(&mut evil, 0..5);
    let mut state = saved(&mut evil);
    state[40 + 10] = 200;
    let frames = u64::from_le_bytes(state[16..24].try_into().unwrap());
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&state[40..], frames << 1 | 1);
    state[32..40].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(machine.load(&state), Err(LoadError::Unfit("the core does not take it".into())));
    assert_eq!(machine.hash(), hash);
}

#[test]
fn options_in_all_forms_change_the_game_and_the_identity() {
    for options in [0, 1, 2] {
        let core = build_as(Build { options, ..Build::default() });
        let with =
            |value: &str| Config { options: vec![("testcore_step".into(), value.into())], ..config(core.path()) };
        let (mut one, mut three) = (open(with("1")).unwrap(), open(with("3")).unwrap());
        assert_eq!(one.machine_id(), opened(&core).machine_id());
        assert!(three.machine_id().options.contains(&("testcore_step".into(), "3".into())));
        assert!(
            three
                .options()
                .any(|(key, value, values)| key == "testcore_step" && value == "3" && values == ["1", "2", "3"])
        );
        one.step(&[Button::Right.bit()], true);
        three.step(&[Button::Right.bit()], true);
        assert_ne!(one.hash(), three.hash());
        assert!(matches!(failed(with("4")), OpenError::NoValue { .. }));
        let unknown = Config { options: vec![("speed".into(), "1".into())], ..with("1") };
        assert!(matches!(failed(unknown), OpenError::NoOption { .. }));
    }
}

#[test]
fn games_are_known_by_their_content() {
    let core = build(Cheat::Honest);
    let with = |name: &str, image: &[u8]| Config {
        game: Some(Game { name: name.into(), image: image.to_vec() }),
        ..config(core.path())
    };
    let (one, same) = (open(with("one.test", b"abc")).unwrap(), open(with("two.TST", b"abc")).unwrap());
    assert_eq!(one.game_id().hash, same.game_id().hash);
    assert_eq!((one.game_id().name.as_str(), one.first_frames()), ("one", same.first_frames()));
    assert_ne!(one.first_frames(), open(with("one.test", b"xyz")).unwrap().first_frames());
    assert!(matches!(failed(with("one.nes", b"abc")), OpenError::GameKind { .. }));
    assert_eq!(failed(with("one.test", b"!")), OpenError::Refused(vec!["bad image … at …".into()]));
}

#[test]
fn first_frames_tell_cores_apart_that_differ() {
    let (honest, forgets) = (cheating(Cheat::Honest), cheating(Cheat::Forgets));
    assert_eq!(honest.first_frames(), cheating(Cheat::Honest).first_frames());
    assert_ne!(cheating(Cheat::Clock).first_frames(), cheating(Cheat::Clock).first_frames());
    assert_ne!(cheating(Cheat::Address).first_frames(), honest.first_frames());
    assert!(!forgets.findings().state_exact && !forgets.findings().memory_exact);
    assert!(!cheating(Cheat::Clock).findings().steady && !cheating(Cheat::Address).findings().steady);
}

#[test]
fn the_late_one_is_right_until_it_is_late() {
    let mut one = cheating(Cheat::Late);
    let mut other = one.twin().unwrap();
    assert!(one.findings().steady && one.findings().state_exact);
    for frame in 0..5_000 {
        one.step(&inputs(frame), false);
        other.step(&inputs(frame), false);
    }
    assert_eq!(one.hash(), other.hash());
    one.step(&[], false);
    other.step(&[], false);
    assert_ne!(one.hash(), other.hash());
}

#[test]
fn lies_do_no_harm() {
    let mut machine = cheating(Cheat::Liar);
    assert!(machine.sound_rate() > 0.0 && machine.picture().width <= 4_096);
    machine.step(&[], true);
    assert_eq!((machine.picture().width, machine.picture().height), (64, 48));
    assert!(machine.picture().aspect > 0.0 && machine.sound().len() <= 1 << 16);
    assert_eq!((machine.findings().hash_of, machine.findings().memory_size), (HashOf::State, 0));
    assert!(matches!(failed(config(build(Cheat::NanRate).path())), OpenError::Rate(_)));
    let gpu = build(Cheat::Gpu);
    assert_eq!(failed(config(gpu.path())), OpenError::NeedsGpu);
}

#[test]
fn threads_of_a_core_are_refused_and_harm_nobody() {
    let (mut threads, mut honest) = (cheating(Cheat::Threads), cheating(Cheat::Honest));
    play(&mut threads, 0..50);
    play(&mut honest, 0..50);
    assert_eq!(threads.hash(), honest.hash());
    assert!(!threads.said().any(|line| line == "from elsewhere"));
}

#[test]
fn who_cannot_save_says_so_and_is_hashed_all_the_same() {
    let mut machine = cheating(Cheat::NoSave);
    assert!(!machine.can_save());
    assert_eq!(machine.save(&mut Vec::new()), Err(SaveError::Cannot));
    assert_eq!(machine.load(&[]), Err(LoadError::Cannot));
    let before = machine.hash();
    play(&mut machine, 0..5);
    assert_ne!(machine.hash(), before);
}

#[test]
fn where_saving_disturbs_all_sites_go_the_same_way() {
    for state_size in [1_024, 1 << 20] {
        let mut one = opened(&build_as(Build { cheat: Cheat::Disturbed, state_size, ..Build::default() }));
        let mut other = one.twin().unwrap();
        assert!(one.findings().settles && one.findings().state_exact);
        for frame in 0..100 {
            play(&mut one, frame..frame + 1);
            play(&mut other, frame..frame + 1);
            if frame % 3 == 0 {
                saved(&mut one);
            }
            assert_eq!(one.hash(), other.hash(), "frame {frame}");
        }
        let state = saved(&mut one);
        other.load(&state).unwrap();
        play(&mut one, 100..150);
        play(&mut other, 100..150);
        assert_eq!(saved(&mut one), saved(&mut other));
    }
}

#[test]
fn who_must_run_before_it_saves_is_still_saved_from_the_first_frame_on() {
    let mut machine = cheating(Cheat::MustRun);
    let found = machine.findings();
    assert!(found.can_save && found.warms_up && !found.saves_unstepped);
    let unstepped = saved(&mut machine);
    play(&mut machine, 0..30);
    let (state, hash) = (saved(&mut machine), machine.hash());
    let mut late = machine.twin().unwrap();
    late.load(&state).unwrap();
    assert_eq!(late.hash(), hash);
    machine.load(&unstepped).unwrap();
    play(&mut machine, 0..30);
    assert_eq!(machine.hash(), hash);
}

#[test]
fn who_cannot_be_tried_unseen_is_asked_for_everything() {
    let machine = cheating(Cheat::Asks);
    let found = machine.findings();
    assert_eq!((found.can_save, found.hash_of, found.unseen), (false, HashOf::Picture, 3));
    let (mut seen, mut unseen) = (machine.twin().unwrap(), machine.twin().unwrap());
    for frame in 0..50 {
        seen.step(&inputs(frame), true);
        unseen.step(&inputs(frame), false);
        assert_eq!(seen.hash(), unseen.hash(), "frame {frame}");
    }
}

#[test]
fn a_reset_needs_no_new_instance_where_a_state_leads_to_the_beginning() {
    for state_size in [1_024, 1 << 20] {
        let core = build_as(Build { state_size, ..Build::default() });
        let mut machine = opened(&core);
        let mut fresh = machine.twin().unwrap();
        assert!(machine.findings().begins_anew);
        let unstepped = (machine.hash(), saved(&mut machine));
        play(&mut machine, 0..70);
        core.shut(true);
        machine.reset();
        assert_eq!((machine.hash(), saved(&mut machine)), unstepped);
        assert_eq!(machine.failure(), None);
        assert!(machine.sound().is_empty() && machine.picture().rgba.chunks(4).all(|pixel| pixel == [0, 0, 0, 255]));
        play(&mut machine, 10..70);
        play(&mut fresh, 10..70);
        assert_eq!((machine.hash(), saved(&mut machine)), (fresh.hash(), saved(&mut fresh)));
    }
}

#[test]
fn a_machine_that_cannot_be_reset_stands_still_and_says_why() {
    let core = build(Cheat::MustRun);
    let mut machine = opened(&core);
    assert!(!machine.findings().begins_anew);
    let unstepped = saved(&mut machine);
    play(&mut machine, 0..30);
    let (state, hash) = (saved(&mut machine), machine.hash());
    core.shut(true);
    assert!(machine.load(&unstepped).is_err());
    assert!(machine.hash() == hash && machine.failure().is_none(), "it is not as it was");
    machine.reset();
    assert!(machine.failure().is_some_and(|why| why.contains("switched off and on")), "{:?}", machine.failure());
    assert!(matches!(machine.save(&mut Vec::new()), Err(SaveError::Failed(_))));
    play(&mut machine, 30..40);
    assert_eq!(machine.hash(), hash);
    machine.load(&state).unwrap();
    assert_eq!(machine.failure(), None);
    play(&mut machine, 30..31);
    assert_ne!(machine.hash(), hash);
    core.shut(false);
    machine.reset();
    play(&mut machine, 0..30);
    assert!(machine.hash() == hash && machine.failure().is_none());
}

#[test]
fn how_a_core_can_be_shared_is_known_when_it_is_opened() {
    let cases = [
        (Cheat::Honest, Sharing::Rollback),
        (Cheat::Disturbed, Sharing::Rollback),
        (Cheat::Liar, Sharing::Rollback),
        (Cheat::NoSave, Sharing::Lockstep),
        (Cheat::Forgets, Sharing::Lockstep),
        (Cheat::Clock, Sharing::Unfit),
        (Cheat::Address, Sharing::Unfit),
    ];
    for (cheat, sharing) in cases {
        assert_eq!(cheating(cheat).sharing(), sharing, "{cheat:?}");
    }
    // What is of no use to others is good enough for one alone.
    assert!(cheating(Cheat::Forgets).can_save());
}

#[test]
fn what_is_no_core_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text_libretro.so");
    std::fs::write(&text, "no library").unwrap();
    assert!(matches!(failed(config(&text)), OpenError::Load(_)));
    assert!(matches!(failed(config(Path::new("/nowhere/x.so"))), OpenError::Read { .. }));
    assert!(matches!(failed(Config::new(CoreSource::from_user("no-such-core").unwrap())), OpenError::NotFound { .. }));
}

/// Private folders of this process's machines. Other tests come and go, so only what is in one counts.
fn leftovers() -> Vec<PathBuf> {
    let place = std::env::temp_dir();
    let folders = place.read_dir().unwrap().flatten().map(|entry| entry.path());
    let ours = folders.filter(|path| path.to_string_lossy().contains("coplay-core-"));
    ours.flat_map(|folder| folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())).collect()
}

#[test]
fn no_copy_of_a_core_is_left_on_disk_while_it_plays() {
    let core = build_as(Build { state_size: 2_000, ..Build::default() });
    let named = core.path().with_file_name("left_behind_libretro.so");
    std::fs::rename(core.path(), &named).unwrap();
    let machine = open(config(&named)).unwrap();
    assert!(!leftovers().iter().any(|path| path.ends_with("left_behind_libretro.so")));
    drop(machine);
}
