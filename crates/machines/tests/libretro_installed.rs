//! Cores as Debian has them, with images of our own.

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
        let core = CoreSource::from_user(self.core).expect("a name");
        CoreConfig { game: Some(self.game.clone()), ..CoreConfig::new(core) }
    }
}

fn core_case(core: &'static str, ending: &str, image: Vec<u8>, players: usize, hash_of: HashSource) -> CoreCase {
    CoreCase { core, game: GameImage { name: format!("test.{ending}"), image }, players, hash_source: hash_of }
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

/// Noise that changes every few frames, for players who have this many pads.
fn inputs_at(frame: u64, players: usize) -> Vec<InputWord> {
    let noise = |player: u64| (frame / 4 * 8 + player).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..players as u64).map(|player| InputWord::from(noise(player) & 0xffff)).collect()
}

fn step_frames(machine: &mut LibretroMachine, frames: std::ops::Range<u64>, fresh: bool) {
    let players = machine.pads().len();
    frames.for_each(|frame| machine.step(&inputs_at(frame, players), fresh));
}

/// Everything that must hold of a core that is fit to be shared.
fn assert_core_is_fit(case: &CoreCase) {
    let config = case.config();
    let mut machine = open(config.clone()).unwrap_or_else(|error| panic!("{error}\nhint: {:?}", error.hint()));
    let found = machine.findings().clone();
    assert!(found.steady && found.can_save && (found.memory_exact || found.state_exact), "{found:?}");
    assert_eq!((machine.pads().len(), found.hash_of), (case.players, case.hash_source));

    // The picture changes, and so does the state, and what is pressed decides how.
    let mut idle = machine.twin().unwrap();
    let mut pictures = std::collections::BTreeSet::new();
    for frame in 0..120 {
        machine.step(&inputs_at(frame, case.players), true);
        idle.step(&[], true);
        pictures.insert(machine.picture().rgba.to_vec());
    }
    assert!(pictures.len() > 2, "it shows {} pictures", pictures.len());
    assert!(!machine.sound().is_empty());
    let hash = machine.hash();
    assert_ne!(hash, idle.hash());

    // Another one that was opened on its own, with frames that nobody sees and saves in between, is in the same place.
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

    // Rolled back again and again, and loaded by one that has just come.
    machine.save(&mut state).unwrap();
    let mut repaired = Vec::new();
    for _ in 0..3 {
        machine.load(&state).unwrap();
        step_frames(&mut machine, 500..508, false);
    }
    machine.load(&state).unwrap();
    machine.save(&mut repaired).unwrap();
    assert_eq!(machine.hash(), hash);
    let mut late = machine.twin().unwrap();
    late.load(&state).unwrap();
    for machine in [&mut machine, &mut other, &mut late] {
        step_frames(machine, 120..360, true);
    }
    assert_eq!(machine.hash(), other.hash());
    assert_eq!(machine.hash(), late.hash());
    assert!(machine.picture() == other.picture() && machine.picture() == late.picture());
}

/// Whether each of these buttons, held by a player, makes a difference to the game.
fn assert_every_button_has_effect(case: &CoreCase, player: usize, buttons: &[Button]) {
    let machine = open(case.config()).unwrap();
    let mut hashes = std::collections::BTreeSet::new();
    for pressed in std::iter::once(0).chain(buttons.iter().map(|button| button.bit())) {
        let mut one = machine.twin().unwrap();
        let mut words = vec![0; player + 1];
        words[player] = pressed;
        (0..30).for_each(|_| one.step(&words, true));
        hashes.insert(one.hash());
    }
    assert_eq!(hashes.len(), buttons.len() + 1, "of player {player}");
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
