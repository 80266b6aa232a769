//! The built-in NES meets the contract of [`Machine`].

mod common;

use common::{RandomInputs, rom, test_nes, test_nes_with_four_pads};
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::MAX_REGIONS;
use coplay_links::random::Random;
use coplay_machines::nes::{MAX_PLAYERS, Nes, NesOpenError, NesOptions};
use coplay_machines::pad::{Button, PadLayout};
use coplay_machines::{LoadError, Machine};

/// Position of the checksum in a saved state; the checksummed body follows.
const CHECKSUM_RANGE: std::ops::Range<usize> = 14..22;

/// The eight buttons of an NES pad.
const BUTTONS: [Button; 8] =
    [Button::A, Button::B, Button::Select, Button::Start, Button::Up, Button::Down, Button::Left, Button::Right];

fn saved_state(nes: &mut Nes) -> Vec<u8> {
    let mut state = Vec::new();
    nes.save(&mut state).expect("the NES saves");
    state
}

fn step_frames(nes: &mut Nes, random_inputs: &mut RandomInputs, frames: usize) -> Vec<u64> {
    (0..frames).map(|_| hash_after_step(nes, random_inputs.next_inputs(InputWord::MAX), true)).collect()
}

/// Steps a frame and returns the state hash.
fn hash_after_step(nes: &mut Nes, words: &[InputWord], fresh: bool) -> u64 {
    nes.step(words, fresh);
    nes.hash()
}

#[test]
fn rendering_does_not_affect_state() {
    let (mut one, mut other) = (test_nes(), test_nes());
    let (mut random_inputs, mut rng) = (RandomInputs::new(1, 2), Random::new(2));
    let mut seen = 0;
    for frame in 0..900 {
        let words = random_inputs.next_inputs(InputWord::MAX);
        let fresh = rng.chance(0.5);
        one.step(words, true);
        other.step(words, fresh);
        assert_eq!(one.hash(), other.hash(), "frame {frame}");
        if fresh {
            seen += 1;
            assert!(one.picture() == other.picture(), "the pictures of frame {frame} differ");
        }
    }
    assert!((300..600).contains(&seen));
    assert_eq!(saved_state(&mut one), saved_state(&mut other));
}

#[test]
fn replay_from_state_is_exact_in_same_and_new_instance() {
    let (mut one, mut rng) = (test_nes(), Random::new(3));
    let mut random_inputs = RandomInputs::new(3, 2);
    for round in 0..40 {
        let frames = 1 + rng.below(20) as usize;
        step_frames(&mut one, &mut random_inputs, frames);
        let (state, hash) = (saved_state(&mut one), one.hash());
        let script: Vec<Vec<InputWord>> = (0..9).map(|_| random_inputs.next_inputs(InputWord::MAX).to_vec()).collect();
        let run = |nes: &mut Nes, fresh: bool| {
            script.iter().map(|words| hash_after_step(nes, words, fresh)).collect::<Vec<_>>()
        };
        let first = run(&mut one, true);
        one.load(&state).expect("the machine loads its own state");
        assert_eq!(one.hash(), hash);
        assert_eq!(run(&mut one, false), first);
        if round % 4 > 0 {
            continue;
        }
        let mut other = test_nes();
        other.load(&state).expect("the machine loads a state of the same game");
        assert_eq!((other.hash(), saved_state(&mut other)), (hash, state));
        assert_eq!(run(&mut other, false), first);
    }
}

/// A replay is exact with each of 20 mappers, among them mappers that clock interrupts, switch banks or produce sound.
#[test]
fn replay_from_state_is_exact_for_every_mapper() {
    for mapper in [1, 2, 3, 4, 5, 7, 9, 10, 11, 16, 18, 19, 21, 24, 33, 34, 66, 69, 71, 79] {
        let open = || {
            Nes::open(&rom::test_image_with_flags([mapper << 4, mapper & 0xf0]), "test")
                .expect("the mapper is supported")
        };
        let (mut one, mut other) = (open(), open());
        let mut random_inputs = RandomInputs::new(u64::from(mapper), 2);
        step_frames(&mut one, &mut random_inputs, 20);
        let state = saved_state(&mut one);
        let script: Vec<Vec<InputWord>> = (0..8).map(|_| random_inputs.next_inputs(InputWord::MAX).to_vec()).collect();
        let first: Vec<u64> = script.iter().map(|words| hash_after_step(&mut one, words, true)).collect();
        for nes in [&mut one, &mut other] {
            nes.load(&state).expect("the machine loads a state of the same game");
            let replayed: Vec<u64> = script.iter().map(|words| hash_after_step(nes, words, false)).collect();
            assert_eq!(replayed, first, "mapper {mapper}");
            assert_eq!(nes.failure(), None, "mapper {mapper}");
        }
    }
}

#[test]
fn load_keeps_picture_and_sound() {
    let mut nes = test_nes();
    let mut random_inputs = RandomInputs::new(4, 2);
    let state = saved_state(&mut nes);
    step_frames(&mut nes, &mut random_inputs, 60);
    let (picture, sound) = (nes.picture().rgba.to_vec(), nes.sound().to_vec());
    nes.load(&state).expect("the machine loads its own state");
    nes.step(&[], false);
    assert!(nes.picture().rgba == picture && nes.sound() == sound);
}

#[test]
fn save_reuses_the_buffer() {
    let mut nes = test_nes();
    let mut state = saved_state(&mut nes);
    let (place, room) = (state.as_ptr(), state.capacity());
    for _ in 0..100 {
        nes.step(&[], false);
        nes.save(&mut state).expect("the NES saves");
    }
    assert_eq!((state.as_ptr(), state.capacity()), (place, room));
}

#[test]
fn exactly_the_pad_buttons_affect_state() {
    for (players, mut nes) in [(2, test_nes()), (4, test_nes_with_four_pads())] {
        assert_eq!(nes.pads(), vec![PadLayout::with_buttons(&BUTTONS); players]);
        step_frames(&mut nes, &mut RandomInputs::new(0, 0), 10);
        let before = saved_state(&mut nes);
        let mut after = |player: usize, word: InputWord| {
            let mut words = [0; 6];
            words[player] = word;
            nes.load(&before).expect("the machine loads its own state");
            // The game reads the pads at the end of the picture, and the input takes effect in the next frame.
            nes.step(&words, false);
            nes.step(&[], false);
            nes.hash()
        };
        let nothing = after(0, 0);
        for player in 0..6 {
            for button in Button::ALL {
                let counts = player < players && PadLayout::with_buttons(&BUTTONS).mask & button.bit() != 0;
                assert_eq!(after(player, button.bit()) != nothing, counts, "{button:?} of {player} of {players}");
            }
            assert_eq!(after(player, !PadLayout::with_buttons(&BUTTONS).mask), nothing, "player {player} of {players}");
        }
        let both = after(0, Button::Left.bit() | Button::Right.bit());
        assert!(![after(0, Button::Left.bit()), after(0, Button::Right.bit()), nothing].contains(&both));
    }
}

#[test]
fn reset_equals_new_machine() {
    let (mut one, mut other) = (test_nes(), test_nes());
    let start = one.hash();
    let script = step_frames(&mut one, &mut RandomInputs::new(6, 2), 200);
    one.reset();
    assert_eq!(one.hash(), start);
    assert!(one.sound().is_empty() && one.picture().rgba.as_chunks().0.iter().all(|pixel| *pixel == [0, 0, 0, 255]));
    assert_eq!(step_frames(&mut one, &mut RandomInputs::new(6, 2), 200), script);
    assert_eq!(step_frames(&mut other, &mut RandomInputs::new(6, 2), 200), script);
    assert!(one.picture() == other.picture() && one.sound() == other.sound());
}

#[test]
fn identity_depends_on_game_options_and_first_frames() {
    let (one, other, four) = (test_nes(), test_nes(), test_nes_with_four_pads());
    assert_eq!((one.machine_id(), one.game_id()), (other.machine_id(), other.game_id()));
    assert_ne!(one.machine_id().options, four.machine_id().options);
    let mut image = rom::test_image();
    image[16 + 3] ^= 1;
    let changed = Nes::open(&image, "test").expect("the changed image is valid");
    assert_ne!(changed.game_id().hash, one.game_id().hash);
    assert_ne!(changed.machine_id().first_frames_hash, one.machine_id().first_frames_hash);
}

#[test]
fn picture_and_sound_are_produced() {
    let mut nes = test_nes();
    let mut random_inputs = RandomInputs::new(7, 2);
    let mut samples = 0;
    // The machine starts in the middle of a frame.
    nes.step(&[], true);
    for _ in 0..600 {
        nes.step(random_inputs.next_inputs(InputWord::MAX), true);
        samples += nes.sound().len();
    }
    let (frames, seconds) = nes.frame_rate().fraction();
    let expected = 600.0 * nes.sample_rate() * f64::from(seconds) / f64::from(frames);
    assert!((samples as f64 - expected).abs() < 24.0, "{samples} samples instead of {expected}");
    assert!(nes.sound().iter().any(|[left, _]| left.unsigned_abs() > 200));
    assert!(nes.sound().iter().all(|[left, right]| left == right));
    let picture = nes.picture();
    assert_eq!((picture.width, picture.height, picture.rgba.len()), (256, 240, 256 * 240 * 4));
    assert!((picture.aspect - 256.0 / 240.0 * 8.0 / 7.0).abs() < 1e-6);
    let mut colours: Vec<&[u8; 4]> = picture.rgba.as_chunks().0.iter().collect();
    colours.sort_unstable();
    colours.dedup();
    assert!(colours.len() > 4 && colours.iter().all(|[.., alpha]| *alpha == 255), "{colours:?}");
}

#[test]
fn state_regions_are_named() {
    let mut nes = test_nes();
    let list = |nes: &mut Nes| {
        let mut parts = Vec::new();
        nes.regions(&mut |name, bytes| parts.push((name.to_string(), bytes.to_vec())));
        parts
    };
    step_frames(&mut nes, &mut RandomInputs::new(8, 2), 60);
    let before = list(&mut nes);
    nes.step(&[0xff], false);
    let after = list(&mut nes);
    assert!(before.len() <= MAX_REGIONS);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    for expected_name in ["work ram", "video ram", "palette", "oam", "cpu", "ppu", "apu", "cartridge ram"] {
        assert_eq!(names.iter().filter(|name| **name == expected_name).count(), 1, "{expected_name}");
    }
    let changed: Vec<&str> =
        before.iter().zip(&after).filter(|(one, other)| one != other).map(|((name, _), _)| name.as_str()).collect();
    assert!(changed.contains(&"work ram") && changed.contains(&"cartridge ram") && !changed.contains(&"palette"));
}

fn open_error(image: &[u8]) -> NesOpenError {
    Nes::open(image, "test").err().expect("the image is rejected")
}

#[test]
fn invalid_image_is_rejected_with_reason() {
    let image = rom::test_image();
    assert_eq!(open_error(b""), NesOpenError::NotNes);
    assert_eq!(open_error(b"GIF89a, a picture"), NesOpenError::NotNes);
    assert_eq!(open_error(&image[..9]), NesOpenError::Truncated { actual: 9, expected: 16 });
    let (len, full_len) = (image.len() - 1, image.len());
    assert_eq!(open_error(&image[..len]), NesOpenError::Truncated { actual: len, expected: full_len });
    assert_eq!(open_error(&rom::test_image_with_flags([0x00, 0xf0])), NesOpenError::UnsupportedMapper(240));
    assert_eq!(
        open_error(&rom::test_image_with_flags([0xf0, 0xf0])).to_string(),
        "the cartridge needs mapper 255, which the emulator does not support"
    );
    assert!(
        matches!(open_error(&rom::test_image_with_flags([0x04, 0x00])), NesOpenError::InvalidHeader(why) if why.contains("trained"))
    );
    for players in [0, MAX_PLAYERS + 1] {
        let rejected = Nes::open_with(&image, "test", NesOptions { players }).err();
        assert_eq!(rejected, Some(NesOpenError::InvalidPlayerCount(players)));
    }
    // A header that announces more data than the image has costs no memory.
    let huge = b"NES\x1a\xff\xff\x00\x08\x00\xff\x00\x00\x00\x00\x00\x00";
    assert!(matches!(open_error(huge), NesOpenError::Truncated { actual: 16, expected } if expected > 90_000_000));
}

#[test]
fn damaged_truncated_or_foreign_state_is_rejected_without_effect() {
    let mut nes = test_nes();
    let mut random_inputs = RandomInputs::new(9, 2);
    step_frames(&mut nes, &mut random_inputs, 30);
    let state = saved_state(&mut nes);
    step_frames(&mut nes, &mut random_inputs, 30);
    let (hash, mut rng) = (nes.hash(), Random::new(9));
    for _ in 0..500 {
        let mut damaged = state.clone();
        let at = rng.below(damaged.len() as u64) as usize;
        damaged[at] ^= 1 << rng.below(8);
        assert!(matches!(nes.load(&damaged), Err(LoadError::InvalidState(_))), "byte {at}");
        assert!(nes.load(&state[..at]).is_err(), "truncated to {at} bytes");
    }
    assert!(nes.load(&[&state[..], &[0]].concat()).is_err(), "one extra byte");
    assert!(nes.load(&vec![0; 1 << 20]).is_err(), "a mebibyte of zeros");
    let mut image = rom::test_image();
    image[100] ^= 1;
    let mut other = Nes::open(&image, "test").expect("the other image is valid");
    assert!(nes.load(&saved_state(&mut other)).is_err_and(|error| error.to_string().contains("another game")));
    assert_eq!((nes.hash(), nes.failure()), (hash, None));
}

/// A forged state can have a valid checksum. It may be rejected or halt the machine, but it must neither crash nor hang
/// the program.
#[test]
fn forged_state_with_valid_checksum_is_harmless() {
    let mut nes = test_nes();
    step_frames(&mut nes, &mut RandomInputs::new(10, 2), 30);
    let (state, mut rng) = (saved_state(&mut nes), Random::new(10));
    let before_memory = state.len() - memory_len(&mut nes);
    let (mut rejected, mut halted) = (0, 0);
    let mut other = common::test_nes();
    for _ in 0..400 {
        let mut forged = state.clone();
        for _ in 0..1 + rng.below(8) {
            let at = CHECKSUM_RANGE.end + rng.below((before_memory - CHECKSUM_RANGE.end) as u64) as usize;
            forged[at] = rng.bits() as u8;
        }
        let checksum = xxh64(0, &forged[CHECKSUM_RANGE.end..]);
        forged[CHECKSUM_RANGE].copy_from_slice(&checksum.to_le_bytes());
        match nes.load(&forged) {
            Err(_) => rejected += 1,
            Ok(()) => (0..3).for_each(|_| nes.step(&[], true)),
        }
        if nes.failure().is_some() {
            halted += 1;
            assert_halted(&mut nes, &mut other);
        }
    }
    assert!((20..380).contains(&rejected) && halted > 0, "{rejected} rejected, {halted} halted");
    nes.load(&state).expect("the state is valid");
    assert_eq!(nes.failure(), None);
    other.load(&state).expect("the state is valid");
    let mut random_inputs = (RandomInputs::new(11, 2), RandomInputs::new(11, 2));
    assert_eq!(step_frames(&mut nes, &mut random_inputs.0, 30), step_frames(&mut other, &mut random_inputs.1, 30));
}

/// Asserts that the state of a halted machine can be saved, and that another machine that loads the state is halted,
/// too, with the same hash.
fn assert_halted(nes: &mut Nes, other: &mut Nes) {
    let (hash, state) = (nes.hash(), saved_state(nes));
    nes.step(&[0xff, 0xff], true);
    assert_eq!(nes.hash(), hash);
    other.load(&state).expect("the machine loads a state of the same game");
    assert!(other.failure().is_some() && other.hash() == hash);
    other.reset();
    assert!(other.failure().is_none() && other.hash() != hash);
}

/// Returns the total length of the memory regions that are stored last in a saved state.
fn memory_len(nes: &mut Nes) -> usize {
    let mut bytes = 0;
    nes.regions(&mut |name, part| bytes += if name.ends_with("ram") && name != "pattern ram" { part.len() } else { 0 });
    bytes
}

#[test]
fn random_program_does_not_crash() {
    let mut rng = Random::new(12);
    for _ in 0..12 {
        let mut image = rom::test_image_with_flags([(rng.below(8) as u8) << 4, 0]);
        image[16..16 + 0x4000].iter_mut().for_each(|byte| *byte = rng.bits() as u8);
        let Ok(mut nes) = Nes::open(&image, "noise") else { continue };
        let hashes = step_frames(&mut nes, &mut RandomInputs::new(12, 2), 60);
        nes.reset();
        assert_eq!(step_frames(&mut nes, &mut RandomInputs::new(12, 2), 60), hashes);
    }
}
