//! Whatever is wrong is told in one sentence with a hint, with the right exit code, and never by a panic.

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use common::run::RunningProgram;
use common::{Outcome, TestDir, path_arg};

/// The exit codes.
const USAGE_EXIT: i32 = 2;
const FAILURE_EXIT: i32 = 1;

/// Something that goes wrong: the arguments, the code, and words of the sentence and of its hint.
type ErrorCase<'a> = (&'a [&'a str], i32, &'a str, &'a str);

/// One sentence and one hint, nothing else.
fn check_case(place: &TestDir, (args, code, sentence, hint): ErrorCase<'_>) {
    let outcome = place.run(args);
    assert_error_and_hint(&outcome, args, code, sentence, hint);
}

fn assert_error_and_hint(outcome: &Outcome, args: &[&str], code: i32, sentence: &str, hint: &str) {
    let command = format!("coplay {}", args.join(" "));
    assert_eq!(outcome.code, Some(code), "{command}: {outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert_eq!(lines.len(), 2, "{command} says more or less than a sentence and a hint: {outcome:?}");
    assert!(
        lines[0].starts_with("error: ") && lines[0].contains(sentence),
        "{command}: {sentence:?} not in {outcome:?}"
    );
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{command}: {hint:?} not in {outcome:?}");
    assert!(!outcome.err.contains("panicked") && !outcome.err.contains("fault"), "{command}: {outcome:?}");
}

#[test]
fn usage_errors_are_explained() {
    let place = TestDir::new("misuse");
    let cases: [ErrorCase; 30] = [
        (&[], USAGE_EXIT, "a command is missing", "coplay play"),
        (&["dance"], USAGE_EXIT, "unrecognized subcommand 'dance'", "coplay --help"),
        (&["replya"], USAGE_EXIT, "unrecognized subcommand 'replya'", "'replay'"),
        (&["play", "--headles"], USAGE_EXIT, "unexpected argument '--headles'", "'--headless'"),
        (&["play", "a.nes", "b.nes"], USAGE_EXIT, "unexpected argument 'b.nes'", "coplay play --help"),
        (&["play", "--frames", "many"], USAGE_EXIT, "invalid value 'many' for '--frames <N>'", "--help"),
        (&["play", "--frames", "0"], USAGE_EXIT, "invalid value '0' for '--frames <N>'", "--help"),
        (&["play", "--frames", "99999999999"], USAGE_EXIT, "invalid value '99999999999'", "--help"),
        (&["play", "--players", "0"], USAGE_EXIT, "invalid value '0' for '--players <N>'", "--help"),
        (&["play", "--scale", "99"], USAGE_EXIT, "invalid value '99' for '--scale <N>'", "--help"),
        (&["play", "--bot", "me"], USAGE_EXIT, "invalid value 'me' for '--bot <SEED>'", "--help"),
        (&["play", "--window", "--terminal"], USAGE_EXIT, "cannot be used with", "--help"),
        (&["play", "--headless", "--terminal"], USAGE_EXIT, "cannot be used with", "--help"),
        (&["play", "--force"], USAGE_EXIT, "required arguments were not provided: --record <FILE>", "--help"),
        (&["replay"], USAGE_EXIT, "required arguments were not provided: <FILE>", "coplay replay --help"),
        (&["demo", "--loss", "101"], USAGE_EXIT, "invalid value '101' for '--loss <PERCENT>'", "coplay demo --help"),
        (&["demo", "--headless", "--screenshot", "x.png"], USAGE_EXIT, "no picture to keep", "--screenshot"),
        (&["maze"], USAGE_EXIT, "it is not said what to do there", "coplay maze --help"),
        (&["maze", "play", "--ninjas", "1000"], USAGE_EXIT, "1000 is not in 0..=63", "coplay maze play --help"),
        (&["maze", "play", "--side", "3"], USAGE_EXIT, "3 is not in 4..=128", "coplay maze play --help"),
        (
            &["maze", "play", "--seconds", "0"],
            USAGE_EXIT,
            "invalid value '0' for '--seconds <N>'",
            "coplay maze play --help",
        ),
        (&["maze", "host", "--seed", "abc"], USAGE_EXIT, "a seed is a whole number", "coplay maze host --help"),
        (&["maze", "join", "--headless", "--world", "nobody"], USAGE_EXIT, "this is no ticket", ""),
        (&["lab"], USAGE_EXIT, "it is not said what to do there", "coplay lab --help"),
        (&["lab", "run"], USAGE_EXIT, "required arguments were not provided: <NAME>", "coplay lab run --help"),
        (&["lab", "run", "pacing", "nothing"], USAGE_EXIT, "no experiment called \"nothing\"", "pacing, players"),
        (&["lab", "run", "loss", "--real"], USAGE_EXIT, "loss is done in virtual time only", "--real"),
        (&["lab", "feel"], USAGE_EXIT, "required arguments were not provided: --rtt <MS>", "--help"),
        (&["lab", "feel", "--rtt", "far"], USAGE_EXIT, "a number from 0 to 2000", "--help"),
        (&["lab", "feel", "--measure", "nobody"], USAGE_EXIT, "this is no ticket", "copy all"),
    ];
    cases.into_iter().for_each(|case| check_case(&place, case));
}

/// The header of an image that says: so many pieces of program, this mapper.
fn nes_header(pieces: u8, mapper: u8) -> Vec<u8> {
    let mut bytes = b"NES\x1a".to_vec();
    bytes.extend([pieces, 0, mapper << 4, mapper & 0xf0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn unreadable_games_are_explained() {
    let place = TestDir::new("games");
    place.write_file("empty.nes", b"");
    place.write_file("letter.txt", b"Dear friend, this is not a game.");
    place.write_file("zeros.nes", &[0; 4_096]);
    place.write_file("cut.nes", &[nes_header(2, 0), vec![0; 1_000]].concat());
    place.write_file("odd.nes", &[nes_header(1, 0xee), vec![0; 16_384]].concat());
    place.write_file("core.so", b"not a library");
    let play = |game: &'static str| vec!["play", game, "--headless", "--frames", "10"];
    let cases: [(Vec<&str>, i32, &str, &str); 14] = [
        (
            play("nowhere.nes"),
            FAILURE_EXIT,
            "nowhere.nes cannot be read: there is no such file",
            "name the file of a game",
        ),
        (play("."), FAILURE_EXIT, ". is a directory, not a game", "one game in it"),
        (play("empty.nes"), FAILURE_EXIT, "empty.nes is empty", "copied as a whole"),
        (play("letter.txt"), FAILURE_EXIT, "letter.txt", "--core"),
        (play("zeros.nes"), FAILURE_EXIT, "zeros.nes", "--core"),
        (play("cut.nes"), FAILURE_EXIT, "cut off", "copied as a whole"),
        (play("odd.nes"), FAILURE_EXIT, "mapper 238", "--core"),
        ([play("cut.nes"), vec!["--core", "nosuchcore"]].concat(), FAILURE_EXIT, "nosuchcore", ""),
        ([play("cut.nes"), vec!["--core", "./core.so"]].concat(), FAILURE_EXIT, "core.so", ""),
        (vec!["check", "nowhere.nes"], FAILURE_EXIT, "there is no such file", "name the file of a game"),
        (vec!["check", "letter.txt"], FAILURE_EXIT, "letter.txt cannot be played", "--core"),
        (vec!["check", "--core", "nosuch"], FAILURE_EXIT, "no libretro core named \"nosuch\"", ""),
        (vec!["check", "cut.nes", "--core", "./core.so"], FAILURE_EXIT, "core.so", ""),
        (
            [play("cut.nes"), vec!["--core", "./core.so", "--system", "no/bios"]].concat(),
            FAILURE_EXIT,
            "no/bios",
            "--system",
        ),
    ];
    for (args, code, sentence, hint) in cases {
        check_case(&place, (&args, code, sentence, hint));
    }
}

/// It says that it is empty, and has no end.
#[test]
#[cfg(target_os = "linux")]
fn endless_game_file_is_rejected() {
    let args = ["play", "/dev/zero", "--headless", "--frames", "10"];
    check_case(&TestDir::new("endless"), (&args, FAILURE_EXIT, "/dev/zero has more than", "the right file"));
}

#[test]
fn too_many_players_is_a_usage_error() {
    let place = TestDir::new("players");
    check_case(&place, (&["play", "--headless", "--players", "7"], USAGE_EXIT, "not for 7", "--players"));
}

/// Where nobody answers it is said at once who is looked for, and who does not want to wait has not been there.
#[test]
#[cfg(unix)]
fn interrupted_join_exits_130() {
    let place = TestDir::new("nobody");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let ticket = format!("udp://{at}#word");
    for way in [&["maze", "join", &ticket, "--headless"][..], &["maze", "join", "--world", &ticket, "--headless"]] {
        let mut run = RunningProgram::start(&place, way);
        run.wait_for_stderr(&format!("looking for {at} ...\n"));
        run.send_signal("-INT");
        assert_eq!(run.wait_for_exit(), Some(130), "{run}");
        assert!(run.err().contains("error: it was ended before") && !run.err().contains("word"), "{run}");
    }
}

#[test]
fn damaged_movies_are_explained() {
    let place = TestDir::new("movies");
    let made = place.run(&["play", "--headless", "--frames", "300", "--bot", "1", "--record", "good.cpm"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let good = std::fs::read(place.path_of("good.cpm")).unwrap();
    place.write_file("empty.cpm", b"");
    place.write_file("letter.txt", b"Dear friend, this is not a movie.");
    place.write_file("newer.cpm", b"COPLAYMV\x63rest");
    place.write_file("cut.cpm", &good[..good.len() * 2 / 3]);
    place.write_file("stub.cpm", &good[..20]);
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    place.write_file("flipped.cpm", &flipped(good.len() * 2 / 3));
    place.write_file("beheaded.cpm", &flipped(40));
    let replay = |file: &'static str| vec!["replay", file, "--headless"];
    let cases: [(Vec<&str>, i32, &str, &str); 9] = [
        (replay("nowhere.cpm"), FAILURE_EXIT, "there is no such file", "is the name right"),
        (replay("."), FAILURE_EXIT, ". is a directory, not a movie", "--record"),
        (replay("letter.txt"), FAILURE_EXIT, "letter.txt is not a movie", "--record"),
        (replay("empty.cpm"), FAILURE_EXIT, "breaks off before its first frame", "empty"),
        (replay("newer.cpm"), FAILURE_EXIT, "format 99", "newer coplay"),
        (replay("stub.cpm"), FAILURE_EXIT, "breaks off before its first frame", "copied as a whole"),
        (replay("cut.cpm"), FAILURE_EXIT, "breaks off before frame", "interrupted"),
        (replay("flipped.cpm"), FAILURE_EXIT, "damaged from frame", "another copy"),
        (replay("beheaded.cpm"), FAILURE_EXIT, "damaged at its very beginning", "another copy"),
    ];
    for (args, code, sentence, hint) in cases {
        check_case(&place, (&args, code, sentence, hint));
    }
    // The same game but for one bit is another game.
    let mut other = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../games/tennis.nes")).unwrap();
    *other.last_mut().unwrap() ^= 1;
    place.write_file("other.nes", &other);
    let args = ["replay", "good.cpm", "other.nes", "--headless"];
    check_case(
        &place,
        (&args, FAILURE_EXIT, "the movie is of another game: the game is \"other\"", "coplay replay FILE GAME"),
    );
    // What is whole is played all the same.
    let cut = place.run(&["replay", "cut.cpm", "--headless"]);
    assert!(cut.row_value("frames").parse::<u32>().unwrap() >= 60 && cut.out.contains("all equal"), "{cut:?}");
}

#[test]
fn recording_never_overwrites_without_force() {
    let place = TestDir::new("recordings");
    let kept = place.write_file("kept.cpm", b"something dear");
    let record = |file: &'static str| vec!["play", "--headless", "--frames", "10", "--record", file];
    let cases: [(Vec<&str>, i32, &str, &str); 3] = [
        (record("kept.cpm"), USAGE_EXIT, "kept.cpm exists already", "--force"),
        (record("no/such/place.cpm"), FAILURE_EXIT, "there is no such directory", "make the directory"),
        (record("."), USAGE_EXIT, ". exists already", "another name"),
    ];
    for (args, code, sentence, hint) in cases {
        check_case(&place, (&args, code, sentence, hint));
    }
    assert_eq!(std::fs::read(&kept).unwrap(), b"something dear");
    let forced = place.run(&["play", "--headless", "--frames", "10", "--record", path_arg(&kept), "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn missing_display_and_terminal_are_explained() {
    let place = TestDir::new("nothing");
    let cases: [ErrorCase; 3] = [
        (&["play"], FAILURE_EXIT, "neither a display nor a terminal", "--headless"),
        (&["play", "--window"], FAILURE_EXIT, "no display", "--terminal"),
        (&["play", "--terminal"], FAILURE_EXIT, "not a terminal", "--headless"),
    ];
    cases.into_iter().for_each(|case| check_case(&place, case));
    // A display that is none.
    let outcome = Outcome::from(place.program().args(["play", "--window"]).env("DISPLAY", ":987").output().unwrap());
    assert_error_and_hint(&outcome, &["play", "--window"], FAILURE_EXIT, "no window can be opened", "--terminal");
}

#[test]
#[cfg(target_os = "linux")]
fn invalid_settings_name_their_line() {
    let place = TestDir::new("settings");
    let with = |text: &[u8]| {
        place.write_file("config/coplay/settings.toml", text);
        place.run(&["config"])
    };
    let cases: [(&[u8], &str); 5] = [
        (b"[video\nscale = 3", "line 1: "),
        (b"[video]\nscale = 300", "line 2: this must be a whole number from 1 to 20"),
        (b"\n\n[sound]\nmute = \"perhaps\"", "line 4: this must be true or false"),
        (b"[keys]\npause = \"Hyper\"", "line 2: there is no key \"Hyper\""),
        (b"\xff\xfe", "cannot be read"),
    ];
    for (text, sentence) in cases {
        assert_error_and_hint(&with(text), &["config"], FAILURE_EXIT, sentence, "");
    }
    let outcome = with(b"[video]\nscale = 5\nscael = 3\n");
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.err.contains("line 3: nothing is called video.scael"), "{outcome:?}");
    assert!(outcome.out.contains("settings.toml") && outcome.out.contains("scale = 5"), "{outcome:?}");
}
