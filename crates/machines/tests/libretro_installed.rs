//! Tests five cores that Debian packages, with our own test images.

#![cfg(target_os = "linux")]

use coplay::input::InputWord;
use coplay_machines::Machine;
use coplay_machines::libretro::{CoreConfig, CoreSource, GameImage, HashSource, LibretroMachine, open};
use coplay_machines::pad::Button;
use coplay_testcores::images;

struct CoreCase {
    core: &'static str,
    game: GameImage,
    players: usize,
    hash_source: HashSource,
}

impl CoreCase {
    fn config(&self) -> CoreConfig {
        let core = CoreSource::from_user(self.core).expect("the core name is valid");
        CoreConfig { game: Some(self.game.clone()), ..CoreConfig::new(core) }
    }
}

fn core_case(core: &'static str, extension: &str, image: Vec<u8>, players: usize, hash_source: HashSource) -> CoreCase {
    CoreCase { core, game: GameImage { name: format!("test.{extension}"), image }, players, hash_source }
}

fn nestopia() -> CoreCase {
    core_case("nestopia", "nes", images::nes(), 4, HashSource::Memory)
}

fn gambatte() -> CoreCase {
    core_case("gambatte", "gb", images::game_boy(), 1, HashSource::Memory)
}

fn mgba() -> CoreCase {
    core_case("mgba", "gba", images::game_boy_advance(), 1, HashSource::State)
}

fn pce_fast() -> CoreCase {
    core_case("beetle-pce-fast", "pce", images::pc_engine(), 5, HashSource::Memory)
}

fn bsnes() -> CoreCase {
    core_case("bsnes-mercury-performance", "sfc", images::snes(), 5, HashSource::Memory)
}

/// Returns pseudo-random inputs of `players` players, which change every four frames.
fn inputs_at(frame: u64, players: usize) -> Vec<InputWord> {
    let noise = |player: u64| (frame / 4 * 8 + player).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..players as u64).map(|player| InputWord::from(noise(player) & 0xffff)).collect()
}

fn step_frames(machine: &mut LibretroMachine, frames: std::ops::Range<u64>, fresh: bool) {
    let players = machine.pads().len();
    frames.for_each(|frame| machine.step(&inputs_at(frame, players), fresh));
}

/// Asserts that a core is deterministic, produces picture and sound, reacts to inputs, and replays exactly from its
/// states.
fn assert_core_is_fit(case: &CoreCase) {
    let config = case.config();
    let mut machine = open(config.clone()).unwrap_or_else(|error| panic!("{error}\nhint: {:?}", error.hint()));
    let findings = machine.findings().clone();
    assert!(
        findings.is_deterministic && findings.can_save && (findings.memory_exact || findings.state_exact),
        "{findings:?}"
    );
    assert_eq!((machine.pads().len(), findings.hash_of), (case.players, case.hash_source));

    // Picture and state change, and the inputs affect the state.
    let mut without_input = machine.twin().unwrap();
    let mut pictures = std::collections::BTreeSet::new();
    for frame in 0..120 {
        machine.step(&inputs_at(frame, case.players), true);
        without_input.step(&[], true);
        pictures.insert(machine.picture().rgba.to_vec());
    }
    assert!(pictures.len() > 2, "only {} different pictures", pictures.len());
    assert!(!machine.sound().is_empty());
    let hash = machine.hash();
    assert_ne!(hash, without_input.hash());

    // An independently opened instance, with some frames not rendered and with saves in between, reaches the same
    // state.
    let mut other = open(config).unwrap();
    assert_eq!(other.machine_id(), machine.machine_id());
    let mut state = Vec::new();
    for frame in 0..120 {
        step_frames(&mut other, frame..frame + 1, frame % 5 == 0);
        if frame % 7 == 0 {
            other.save(&mut state).unwrap();
        }
    }
    assert_eq!(other.hash(), hash);

    // Repeated rollbacks, and a load into a new instance.
    machine.save(&mut state).unwrap();
    let mut state_after_rollback = Vec::new();
    for _ in 0..3 {
        machine.load(&state).unwrap();
        step_frames(&mut machine, 500..508, false);
    }
    machine.load(&state).unwrap();
    machine.save(&mut state_after_rollback).unwrap();
    assert_eq!(machine.hash(), hash);
    let mut joiner = machine.twin().unwrap();
    joiner.load(&state).unwrap();
    for machine in [&mut machine, &mut other, &mut joiner] {
        step_frames(machine, 120..360, true);
    }
    assert_eq!(machine.hash(), other.hash());
    assert_eq!(machine.hash(), joiner.hash());
    assert!(machine.picture() == other.picture() && machine.picture() == joiner.picture());
}

/// Asserts that each of these buttons, held by a player for 30 frames, leads to a state of its own.
fn assert_every_button_has_effect(case: &CoreCase, player: usize, buttons: &[Button]) {
    let machine = open(case.config()).unwrap();
    let mut hashes = std::collections::BTreeSet::new();
    for button_bit in std::iter::once(0).chain(buttons.iter().map(|button| button.bit())) {
        let mut one = machine.twin().unwrap();
        let mut words = vec![0; player + 1];
        words[player] = button_bit;
        (0..30).for_each(|_| one.step(&words, true));
        hashes.insert(one.hash());
    }
    assert_eq!(hashes.len(), buttons.len() + 1, "buttons of player {player}");
}

const STANDARD_BUTTONS: [Button; 8] =
    [Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B, Button::Start, Button::Select];

#[test]
fn nestopia_is_fit() {
    assert_core_is_fit(&nestopia());
    assert_every_button_has_effect(&nestopia(), 0, &STANDARD_BUTTONS);
    assert_every_button_has_effect(&nestopia(), 1, &STANDARD_BUTTONS);
}

#[test]
fn gambatte_is_fit() {
    assert_core_is_fit(&gambatte());
    assert_every_button_has_effect(&gambatte(), 0, &STANDARD_BUTTONS);
}

#[test]
fn mgba_is_fit() {
    assert_core_is_fit(&mgba());
    assert_every_button_has_effect(&mgba(), 0, &STANDARD_BUTTONS);
}

#[test]
fn pce_fast_is_fit() {
    assert_core_is_fit(&pce_fast());
    assert_every_button_has_effect(&pce_fast(), 0, &STANDARD_BUTTONS);
    assert_every_button_has_effect(&pce_fast(), 1, &STANDARD_BUTTONS);
}

#[test]
fn bsnes_is_fit() {
    assert_core_is_fit(&bsnes());
    assert_every_button_has_effect(&bsnes(), 0, &STANDARD_BUTTONS);
    assert_every_button_has_effect(&bsnes(), 1, &STANDARD_BUTTONS);
}

#[test]
fn installed_cores_offer_no_turbo_buttons() {
    for case in [nestopia(), gambatte()] {
        let machine = open(case.config()).unwrap();
        let pad = &machine.pads()[0];
        assert!(pad.buttons().all(|button| ![Button::X, Button::Y].contains(&button)), "{}: {pad:?}", case.core);
    }
}
