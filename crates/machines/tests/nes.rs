//! The embedded machine keeps the contract of a shared one.

mod common;

use common::{Fingers, nes, nes_with_four, rom};
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::MAX_REGIONS;
use coplay_machines::nes::{MAX_PLAYERS, Nes, OpenError, Options};
use coplay_machines::pad::{Button, Pad};
use coplay_machines::{LoadError, Machine};
use coplay_sim::random::Random;

/// The checksum of a state is here, and what it is of begins behind it.
const CHECKSUM: std::ops::Range<usize> = 14..22;

/// What a pad has.
const BUTTONS: [Button; 8] =
    [Button::A, Button::B, Button::Select, Button::Start, Button::Up, Button::Down, Button::Left, Button::Right];

fn saved(nes: &mut Nes) -> Vec<u8> {
    let mut state = Vec::new();
    nes.save(&mut state).expect("it can save");
    state
}

fn play(nes: &mut Nes, fingers: &mut Fingers, frames: usize) -> Vec<u64> {
    (0..frames).map(|_| stepped(nes, fingers.press(InputWord::MAX), true)).collect()
}

/// The hash after one more frame.
fn stepped(nes: &mut Nes, words: &[InputWord], fresh: bool) -> u64 {
    nes.step(words, fresh);
    nes.hash()
}

#[test]
fn what_is_seen_does_not_change_what_is_computed() {
    let (mut one, mut other) = (nes(), nes());
    let (mut fingers, mut luck) = (Fingers::new(1, 2), Random::new(2));
    let mut seen = 0;
    for frame in 0..900 {
        let words = fingers.press(InputWord::MAX);
        let fresh = luck.chance(0.5);
        one.step(words, true);
        other.step(words, fresh);
        assert_eq!(one.hash(), other.hash(), "frame {frame}");
        if fresh {
            seen += 1;
            assert!(one.picture() == other.picture(), "frame {frame} looks different");
        }
    }
    assert!((300..600).contains(&seen));
    assert_eq!(saved(&mut one), saved(&mut other));
}

#[test]
fn the_past_can_be_played_again_exactly_here_and_elsewhere() {
    let (mut here, mut luck) = (nes(), Random::new(3));
    let mut fingers = Fingers::new(3, 2);
    for round in 0..40 {
        let frames = 1 + luck.below(20) as usize;
        play(&mut here, &mut fingers, frames);
        let (state, hash) = (saved(&mut here), here.hash());
        let script: Vec<Vec<InputWord>> = (0..9).map(|_| fingers.press(InputWord::MAX).to_vec()).collect();
        let run =
            |nes: &mut Nes, fresh: bool| script.iter().map(|words| stepped(nes, words, fresh)).collect::<Vec<_>>();
        let first = run(&mut here, true);
        here.load(&state).expect("its own state");
        assert_eq!(here.hash(), hash);
        assert_eq!(run(&mut here, false), first);
        if round % 4 > 0 {
            continue;
        }
        let mut elsewhere = nes();
        elsewhere.load(&state).expect("a state of the same game");
        assert_eq!((elsewhere.hash(), saved(&mut elsewhere)), (hash, state));
        assert_eq!(run(&mut elsewhere, false), first);
    }
}

/// With what circuits the cartridge ever has: they clock interrupts, switch banks and make sounds of their own.
#[test]
fn every_cartridge_can_be_saved_loaded_and_played_again() {
    for mapper in [1, 2, 3, 4, 5, 7, 9, 10, 11, 16, 18, 19, 21, 24, 33, 34, 66, 69, 71, 79] {
        let open = || Nes::open(&rom::image_with([mapper << 4, mapper & 0xf0]), "test").expect("a known mapper");
        let (mut here, mut there) = (open(), open());
        let mut fingers = Fingers::new(u64::from(mapper), 2);
        play(&mut here, &mut fingers, 20);
        let state = saved(&mut here);
        let script: Vec<Vec<InputWord>> = (0..8).map(|_| fingers.press(InputWord::MAX).to_vec()).collect();
        let first: Vec<u64> = script.iter().map(|words| stepped(&mut here, words, true)).collect();
        for nes in [&mut here, &mut there] {
            nes.load(&state).expect("a state of the same game");
            let again: Vec<u64> = script.iter().map(|words| stepped(nes, words, false)).collect();
            assert_eq!(again, first, "mapper {mapper}");
            assert_eq!(nes.failure(), None, "mapper {mapper}");
        }
    }
}

#[test]
fn a_load_changes_neither_picture_nor_sound() {
    let mut nes = nes();
    let mut fingers = Fingers::new(4, 2);
    let state = saved(&mut nes);
    play(&mut nes, &mut fingers, 60);
    let (picture, sound) = (nes.picture().rgba.to_vec(), nes.sound().to_vec());
    nes.load(&state).expect("its own state");
    nes.step(&[], false);
    assert!(nes.picture().rgba == picture && nes.sound() == sound);
}

#[test]
fn a_buffer_is_used_again() {
    let mut nes = nes();
    let mut state = saved(&mut nes);
    let (place, room) = (state.as_ptr(), state.capacity());
    for _ in 0..100 {
        nes.step(&[], false);
        nes.save(&mut state).expect("it can save");
    }
    assert_eq!((state.as_ptr(), state.capacity()), (place, room));
}

#[test]
fn every_button_of_every_pad_counts_and_no_other_bit() {
    for (players, mut nes) in [(2, nes()), (4, nes_with_four())] {
        assert_eq!(nes.pads(), vec![Pad::of(&BUTTONS); players]);
        play(&mut nes, &mut Fingers::new(0, 0), 10);
        let before = saved(&mut nes);
        let mut after = |player: usize, word: InputWord| {
            let mut words = [0; 6];
            words[player] = word;
            nes.load(&before).expect("its own state");
            // Pads are read at the end of the picture, and what was read has its effect in the frame after that.
            nes.step(&words, false);
            nes.step(&[], false);
            nes.hash()
        };
        let nothing = after(0, 0);
        for player in 0..6 {
            for button in Button::ALL {
                let counts = player < players && Pad::of(&BUTTONS).mask & button.bit() != 0;
                assert_eq!(after(player, button.bit()) != nothing, counts, "{button:?} of {player} of {players}");
            }
            assert_eq!(after(player, !Pad::of(&BUTTONS).mask), nothing, "player {player} of {players}");
        }
        let both = after(0, Button::Left.bit() | Button::Right.bit());
        assert!(![after(0, Button::Left.bit()), after(0, Button::Right.bit()), nothing].contains(&both));
    }
}

#[test]
fn a_reset_machine_is_a_new_one() {
    let (mut one, mut other) = (nes(), nes());
    let start = one.hash();
    let script = play(&mut one, &mut Fingers::new(6, 2), 200);
    one.reset();
    assert_eq!(one.hash(), start);
    assert!(one.sound().is_empty() && one.picture().rgba.as_chunks().0.iter().all(|pixel| *pixel == [0, 0, 0, 255]));
    assert_eq!(play(&mut one, &mut Fingers::new(6, 2), 200), script);
    assert_eq!(play(&mut other, &mut Fingers::new(6, 2), 200), script);
    assert!(one.picture() == other.picture() && one.sound() == other.sound());
}

#[test]
fn a_machine_is_known_by_its_game_its_options_and_its_first_frames() {
    let (one, other, four) = (nes(), nes(), nes_with_four());
    assert_eq!((one.machine_id(), one.game_id()), (other.machine_id(), other.game_id()));
    assert_ne!(one.machine_id().options, four.machine_id().options);
    let mut image = rom::image();
    image[16 + 3] ^= 1;
    let changed = Nes::open(&image, "test").expect("an image that is as good");
    assert_ne!(changed.game_id().hash, one.game_id().hash);
    assert_ne!(changed.machine_id().first_frames_hash, one.machine_id().first_frames_hash);
}

#[test]
fn there_is_something_to_see_and_to_hear() {
    let mut nes = nes();
    let mut fingers = Fingers::new(7, 2);
    let mut samples = 0;
    // The machine begins in the middle of a frame.
    nes.step(&[], true);
    for _ in 0..600 {
        nes.step(fingers.press(InputWord::MAX), true);
        samples += nes.sound().len();
    }
    let (frames, seconds) = nes.rate().fraction();
    let wanted = 600.0 * nes.sound_rate() * f64::from(seconds) / f64::from(frames);
    assert!((samples as f64 - wanted).abs() < 24.0, "{samples} samples instead of {wanted}");
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
fn parts_of_the_state_have_names() {
    let mut nes = nes();
    let list = |nes: &mut Nes| {
        let mut parts = Vec::new();
        nes.regions(&mut |name, bytes| parts.push((name.to_string(), bytes.to_vec())));
        parts
    };
    play(&mut nes, &mut Fingers::new(8, 2), 60);
    let before = list(&mut nes);
    nes.step(&[0xff], false);
    let after = list(&mut nes);
    assert!(before.len() <= MAX_REGIONS);
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    for wanted in ["work ram", "video ram", "palette", "oam", "cpu", "ppu", "apu", "cartridge ram"] {
        assert_eq!(names.iter().filter(|name| **name == wanted).count(), 1, "{wanted}");
    }
    let changed: Vec<&str> =
        before.iter().zip(&after).filter(|(one, other)| one != other).map(|((name, _), _)| name.as_str()).collect();
    assert!(changed.contains(&"work ram") && changed.contains(&"cartridge ram") && !changed.contains(&"palette"));
}

fn refusal(image: &[u8]) -> OpenError {
    Nes::open(image, "test").err().expect("no game")
}

#[test]
fn what_is_no_game_is_refused_with_the_reason() {
    let image = rom::image();
    assert_eq!(refusal(b""), OpenError::NotNes);
    assert_eq!(refusal(b"GIF89a, a picture"), OpenError::NotNes);
    assert_eq!(refusal(&image[..9]), OpenError::Truncated { has: 9, needs: 16 });
    let (has, needs) = (image.len() - 1, image.len());
    assert_eq!(refusal(&image[..has]), OpenError::Truncated { has, needs });
    assert_eq!(refusal(&rom::image_with([0x00, 0xf0])), OpenError::Mapper(240));
    assert_eq!(
        refusal(&rom::image_with([0xf0, 0xf0])).to_string(),
        "the cartridge needs mapper 255, which this machine does not have"
    );
    assert!(matches!(refusal(&rom::image_with([0x04, 0x00])), OpenError::Header(why) if why.contains("trained")));
    for players in [0, MAX_PLAYERS + 1] {
        let refused = Nes::open_with(&image, "test", Options { players }).err();
        assert_eq!(refused, Some(OpenError::Players(players)));
    }
    // A header that promises more than there is costs no memory.
    let huge = b"NES\x1a\xff\xff\x00\x08\x00\xff\x00\x00\x00\x00\x00\x00";
    assert!(matches!(refusal(huge), OpenError::Truncated { has: 16, needs } if needs > 90_000_000));
}

#[test]
fn a_state_that_is_damaged_cut_off_or_of_another_game_is_refused_and_changes_nothing() {
    let mut nes = nes();
    let mut fingers = Fingers::new(9, 2);
    play(&mut nes, &mut fingers, 30);
    let state = saved(&mut nes);
    play(&mut nes, &mut fingers, 30);
    let (hash, mut luck) = (nes.hash(), Random::new(9));
    for _ in 0..500 {
        let mut bad = state.clone();
        let at = luck.below(bad.len() as u64) as usize;
        bad[at] ^= 1 << luck.below(8);
        assert!(matches!(nes.load(&bad), Err(LoadError::Unfit(_))), "byte {at}");
        assert!(nes.load(&state[..at]).is_err(), "the first {at} bytes");
    }
    assert!(nes.load(&[&state[..], &[0]].concat()).is_err(), "a byte too many");
    assert!(nes.load(&vec![0; 1 << 20]).is_err(), "a mebibyte of nothing");
    let mut image = rom::image();
    image[100] ^= 1;
    let mut other = Nes::open(&image, "test").expect("another game");
    assert!(nes.load(&saved(&mut other)).is_err_and(|error| error.to_string().contains("another game")));
    assert_eq!((nes.hash(), nes.failure()), (hash, None));
}

/// Whoever makes up a state can make up its checksum. It may be refused, it may make the machine stand still, but it does not take the
/// program along, nor for ever.
#[test]
fn a_state_made_up_by_a_stranger_does_no_harm() {
    let mut nes = nes();
    play(&mut nes, &mut Fingers::new(10, 2), 30);
    let (state, mut luck) = (saved(&mut nes), Random::new(10));
    let before_memory = state.len() - nes_memory(&mut nes);
    let (mut refused, mut stopped) = (0, 0);
    let mut other = common::nes();
    for _ in 0..400 {
        let mut lie = state.clone();
        for _ in 0..1 + luck.below(8) {
            let at = CHECKSUM.end + luck.below((before_memory - CHECKSUM.end) as u64) as usize;
            lie[at] = luck.bits() as u8;
        }
        let checksum = xxh64(0, &lie[CHECKSUM.end..]);
        lie[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        match nes.load(&lie) {
            Err(_) => refused += 1,
            Ok(()) => (0..3).for_each(|_| nes.step(&[], true)),
        }
        if nes.failure().is_some() {
            stopped += 1;
            stands_still(&mut nes, &mut other);
        }
    }
    assert!((20..380).contains(&refused) && stopped > 0, "{refused} refused, {stopped} stopped");
    nes.load(&state).expect("a good state");
    assert_eq!(nes.failure(), None);
    other.load(&state).expect("a good state");
    let mut fingers = (Fingers::new(11, 2), Fingers::new(11, 2));
    assert_eq!(play(&mut nes, &mut fingers.0, 30), play(&mut other, &mut fingers.1, 30));
}

/// A machine that was brought down has a state like any other: it can be saved, and is the same elsewhere.
fn stands_still(nes: &mut Nes, other: &mut Nes) {
    let (hash, state) = (nes.hash(), saved(nes));
    nes.step(&[0xff, 0xff], true);
    assert_eq!(nes.hash(), hash);
    other.load(&state).expect("a state of the same game");
    assert!(other.failure().is_some() && other.hash() == hash);
    other.reset();
    assert!(other.failure().is_none() && other.hash() != hash);
}

/// Bytes of the two memories at the end of a state.
fn nes_memory(nes: &mut Nes) -> usize {
    let mut bytes = 0;
    nes.regions(&mut |name, part| bytes += if name.ends_with("ram") && name != "pattern ram" { part.len() } else { 0 });
    bytes
}

#[test]
fn games_of_random_bytes_do_no_harm() {
    let mut luck = Random::new(12);
    for _ in 0..12 {
        let mut image = rom::image_with([(luck.below(8) as u8) << 4, 0]);
        image[16..16 + 0x4000].iter_mut().for_each(|byte| *byte = luck.bits() as u8);
        let Ok(mut nes) = Nes::open(&image, "noise") else { continue };
        let hashes = play(&mut nes, &mut Fingers::new(12, 2), 60);
        nes.reset();
        assert_eq!(play(&mut nes, &mut Fingers::new(12, 2), 60), hashes);
    }
}
