//! Cores as Debian has them, with images of our own.

#![cfg(target_os = "linux")]

use coplay::input::InputWord;
use coplay_machines::Machine;
use coplay_machines::libretro::{Config, CoreSource, Game, HashOf, Libretro, open};
use coplay_machines::pad::Button;
use coplay_testcores::images;

struct Case {
    core: &'static str,
    game: Game,
    players: usize,
    hash_of: HashOf,
}

impl Case {
    fn config(&self) -> Config {
        let core = CoreSource::from_user(self.core).expect("a name");
        Config { game: Some(self.game.clone()), ..Config::new(core) }
    }
}

fn case(core: &'static str, ending: &str, image: Vec<u8>, players: usize, hash_of: HashOf) -> Case {
    Case { core, game: Game { name: format!("test.{ending}"), image }, players, hash_of }
}

fn nestopia() -> Case {
    case("nestopia", "nes", images::nes(), 4, HashOf::Memory)
}

fn gambatte() -> Case {
    case("gambatte", "gb", images::game_boy(), 1, HashOf::Memory)
}

fn mgba() -> Case {
    case("mgba", "gba", images::game_boy_advance(), 1, HashOf::State)
}

fn pce_fast() -> Case {
    case("beetle-pce-fast", "pce", images::pc_engine(), 5, HashOf::Memory)
}

fn bsnes() -> Case {
    case("bsnes-mercury-performance", "sfc", images::snes(), 5, HashOf::Memory)
}

/// Noise that changes every few frames, for players who have this many pads.
fn inputs(frame: u64, players: usize) -> Vec<InputWord> {
    let noise = |player: u64| (frame / 4 * 8 + player).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..players as u64).map(|player| InputWord::from(noise(player) & 0xffff)).collect()
}

fn play(machine: &mut Libretro, frames: std::ops::Range<u64>, fresh: bool) {
    let players = machine.pads().len();
    frames.for_each(|frame| machine.step(&inputs(frame, players), fresh));
}

/// Everything that must hold of a core that is fit to be shared.
fn is_fit(case: &Case) {
    let config = case.config();
    let mut machine = open(config.clone()).unwrap_or_else(|error| panic!("{error}\nhint: {:?}", error.hint()));
    let found = machine.findings().clone();
    assert!(found.steady && found.can_save && (found.memory_exact || found.state_exact), "{found:?}");
    assert_eq!((machine.pads().len(), found.hash_of), (case.players, case.hash_of));

    // The picture changes, and so does the state, and what is pressed decides how.
    let mut idle = machine.twin().unwrap();
    let mut pictures = std::collections::BTreeSet::new();
    for frame in 0..120 {
        machine.step(&inputs(frame, case.players), true);
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
        play(&mut other, frame..frame + 1, frame % 5 == 0);
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
        play(&mut machine, 500..508, false);
    }
    machine.load(&state).unwrap();
    machine.save(&mut repaired).unwrap();
    assert_eq!(machine.hash(), hash);
    let mut late = machine.twin().unwrap();
    late.load(&state).unwrap();
    for machine in [&mut machine, &mut other, &mut late] {
        play(machine, 120..360, true);
    }
    assert_eq!(machine.hash(), other.hash());
    assert_eq!(machine.hash(), late.hash());
    assert!(machine.picture() == other.picture() && machine.picture() == late.picture());
}

/// Whether each of these buttons, held by a player, makes a difference to the game.
fn every_button_counts(case: &Case, player: usize, buttons: &[Button]) {
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

const CROSS: [Button; 8] =
    [Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B, Button::Start, Button::Select];

#[test]
fn nestopia_is_fit() {
    is_fit(&nestopia());
    every_button_counts(&nestopia(), 0, &CROSS);
    every_button_counts(&nestopia(), 1, &CROSS);
}

#[test]
fn gambatte_is_fit() {
    is_fit(&gambatte());
    every_button_counts(&gambatte(), 0, &CROSS);
}

#[test]
fn mgba_is_fit() {
    is_fit(&mgba());
    every_button_counts(&mgba(), 0, &CROSS);
}

#[test]
fn pce_fast_is_fit() {
    is_fit(&pce_fast());
    every_button_counts(&pce_fast(), 0, &CROSS);
    every_button_counts(&pce_fast(), 1, &CROSS);
}

#[test]
fn bsnes_is_fit() {
    is_fit(&bsnes());
    every_button_counts(&bsnes(), 0, &CROSS);
    every_button_counts(&bsnes(), 1, &CROSS);
}

#[test]
fn no_real_core_offers_buttons_that_press_themselves() {
    for case in [nestopia(), gambatte()] {
        let machine = open(case.config()).unwrap();
        let pad = &machine.pads()[0];
        assert!(pad.buttons().all(|button| ![Button::X, Button::Y].contains(&button)), "{}: {pad:?}", case.core);
    }
}
