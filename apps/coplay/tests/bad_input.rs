//! Tests of errors: one sentence, a hint and the right exit code, and no panic.

use crate::common::run::RunningProgram;
use crate::common::{Outcome, TestDir, path_arg};

/// Exit code of an invalid command line.
const USAGE_EXIT: i32 = 2;
/// Exit code of a command that failed.
const FAILURE_EXIT: i32 = 1;

/// Expected error: the arguments, the exit code, a part of the sentence and a part of the hint.
type ErrorCase<'a> = (&'a [&'a str], i32, &'a str, &'a str);

/// Runs the program, and asserts its exit code and that it prints only one sentence and one hint to stderr.
fn check_case(dir: &TestDir, (args, code, sentence, hint): ErrorCase<'_>) {
    let outcome = dir.run(args);
    assert_error_and_hint(&outcome, args, code, sentence, hint);
}

fn assert_error_and_hint(outcome: &Outcome, args: &[&str], code: i32, sentence: &str, hint: &str) {
    let command = format!("coplay {}", args.join(" "));
    assert_eq!(outcome.code, Some(code), "{command}: {outcome:?}");
    let lines: Vec<&str> = outcome.err.lines().collect();
    assert_eq!(lines.len(), 2, "{command} does not print one sentence and one hint: {outcome:?}");
    assert!(
        lines[0].starts_with("error: ") && lines[0].contains(sentence),
        "{command}: {sentence:?} not in {outcome:?}"
    );
    assert!(lines[1].starts_with("hint: ") && lines[1].contains(hint), "{command}: {hint:?} not in {outcome:?}");
    assert!(!outcome.err.contains("panicked") && !outcome.err.contains("internal error"), "{command}: {outcome:?}");
}

#[test]
fn usage_errors_are_explained() {
    let dir = TestDir::new("misuse");
    let cases: [ErrorCase; 28] = [
        (&[], USAGE_EXIT, "missing command", "coplay play"),
        (&["dance"], USAGE_EXIT, "there is no command \"dance\"", "`coplay --help` lists all commands"),
        (&["replya"], USAGE_EXIT, "there is no command \"replya\"", "did you mean `coplay replay`?"),
        (&["play", "--headles"], USAGE_EXIT, "there is no option --headles", "did you mean --headless?"),
        (&["play", "a.nes", "b.nes"], USAGE_EXIT, "unexpected argument \"b.nes\"", "`coplay play --help`"),
        (
            &["play", "--frames", "many"],
            USAGE_EXIT,
            "invalid value \"many\" for --frames: must be a whole number",
            "--help",
        ),
        (&["play", "--frames", "0"], USAGE_EXIT, "invalid value \"0\" for --frames", "explains --frames"),
        (&["play", "--frames", "99999999999"], USAGE_EXIT, "from 1 to 4294967295", "explains --frames"),
        (
            &["play", "--frames", "-5"],
            USAGE_EXIT,
            "invalid value \"-5\" for --frames: must be a whole number",
            "--help",
        ),
        (&["play", "--frames", "-x"], USAGE_EXIT, "there is no option -x", "`coplay play --help` lists all options"),
        (&["play", "--players", "0"], USAGE_EXIT, "for --players: must be a whole number from 1 to 8", "--help"),
        (&["play", "--scale", "99"], USAGE_EXIT, "for --scale: must be a whole number from 1 to 20", "--help"),
        (&["play", "--bot", "me"], USAGE_EXIT, "invalid value \"me\" for --bot", "--help"),
        (&["play", "--window", "--terminal"], USAGE_EXIT, "--window cannot be used with --terminal", "leave out"),
        (&["play", "--headless", "--terminal"], USAGE_EXIT, "cannot be used with", "leave out"),
        (&["play", "--force"], USAGE_EXIT, "missing --record FILE", "--help"),
        (&["replay"], USAGE_EXIT, "missing FILE", "`coplay replay --help`"),
        (
            &["demo", "--loss", "101"],
            USAGE_EXIT,
            "for --loss: must be a whole number from 0 to 30",
            "`coplay demo --help`",
        ),
        (
            &["demo", "--delay", "21"],
            USAGE_EXIT,
            "must be `auto` or a number of frames from 0 to 20",
            "explains --delay",
        ),
        (
            &["demo", "--delay", "auto", "--prediction", "3"],
            USAGE_EXIT,
            "both `auto` or both a number",
            "leave both out",
        ),
        (&["host", "--name", "-Bob"], USAGE_EXIT, "there is no option -B", "write --name=-Bob"),
        (&["demo", "--headless", "--screenshot", "x.png"], USAGE_EXIT, "--screenshot needs a window", "--screenshot"),
        (&["maze"], USAGE_EXIT, "missing subcommand", "`coplay maze --help` lists all commands"),
        (&["maze", "play", "--ninjas", "1000"], USAGE_EXIT, "a whole number from 0 to 63", "`coplay maze play --help`"),
        (&["maze", "play", "--side", "3"], USAGE_EXIT, "a whole number from 4 to 128", "`coplay maze play --help`"),
        (
            &["maze", "play", "--seconds", "0"],
            USAGE_EXIT,
            "a whole number from 1 to 86400",
            "`coplay maze play --help`",
        ),
        (&["maze", "host", "--seed", "abc"], USAGE_EXIT, "a whole number from 0 to", "`coplay maze host --help`"),
        (&["maze", "join", "--headless", "--world", "nobody"], USAGE_EXIT, "invalid ticket", ""),
    ];
    cases.into_iter().for_each(|case| check_case(&dir, case));
}

#[test]
fn old_and_new_flag_names_do_the_same() {
    let dir = TestDir::new("flags");
    let demo = |flags: &[&str]| {
        let outcome = dir.run(&[&["demo", "--headless", "--frames", "120"], flags].concat());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.out.lines().filter(|line| !line.starts_with("speed")).collect::<Vec<_>>().join("\n")
    };
    let new = demo(&["--delay", "3", "--prediction", "5"]);
    assert!(new.contains("delay        3 frames") && new.contains("prediction   5 frames"), "{new}");
    assert_eq!(demo(&["--lag", "3", "--guess", "5"]), new);
    let auto = demo(&["--delay", "auto"]);
    assert!(auto.contains("chosen automatically") && !new.contains("automatically"), "{auto}");
    assert_eq!(demo(&["--prediction", "auto"]), auto);
    // A conflict is found after all flags were parsed, and before anything else is done.
    let stop = ["--go-on-alone", "--drop-after", "never"];
    for flags in [
        ["--delay", "2", "--prediction", "auto", "--drop-stalled", "0.5"],
        ["--lag", "2", "--window", "auto", "--late-after", "0.5"],
    ] {
        let args = [&["host", "--headless"], &flags[..], &stop].concat();
        check_case(&dir, (&args, USAGE_EXIT, "--go-on-alone has no effect with --drop-after never", "--drop-after"));
    }
    let (delays, system) = (["--delay", "2", "--window", "auto"], ["--system", "no/bios", "--core", "x"]);
    check_case(&dir, (&[&["host", "--headless"], &delays[..]].concat(), USAGE_EXIT, "both `auto` or both", "both"));
    check_case(&dir, (&[&["play", "--headless"], &system[..]].concat(), FAILURE_EXIT, "no/bios", "--system"));
}

/// Returns the header of an NES image with this number of program banks and this mapper number.
fn nes_header(banks: u8, mapper: u8) -> Vec<u8> {
    let mut bytes = b"NES\x1a".to_vec();
    bytes.extend([banks, 0, mapper << 4, mapper & 0xf0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn unreadable_games_are_explained() {
    let dir = TestDir::new("games");
    dir.write_file("empty.nes", b"");
    dir.write_file("letter.txt", b"Dear friend, this is not a game.");
    dir.write_file("zeros.nes", &[0; 4_096]);
    dir.write_file("cut.nes", &[nes_header(2, 0), vec![0; 1_000]].concat());
    dir.write_file("odd.nes", &[nes_header(1, 0xee), vec![0; 16_384]].concat());
    dir.write_file("core.so", b"not a library");
    let play = |game: &'static str| vec!["play", game, "--headless", "--frames", "10"];
    let cases: [(Vec<&str>, i32, &str, &str); 14] = [
        (
            play("nowhere.nes"),
            FAILURE_EXIT,
            "cannot read the game nowhere.nes: there is no such file",
            "give the file of a game",
        ),
        (play("."), FAILURE_EXIT, ". is a folder, not a game", "one game in this folder"),
        (play("empty.nes"), FAILURE_EXIT, "empty.nes is empty", "copy the whole file"),
        (play("letter.txt"), FAILURE_EXIT, "letter.txt", "--core"),
        (play("zeros.nes"), FAILURE_EXIT, "zeros.nes", "--core"),
        (play("cut.nes"), FAILURE_EXIT, "cut off", "copy the whole file"),
        (play("odd.nes"), FAILURE_EXIT, "mapper 238", "--core"),
        ([play("cut.nes"), vec!["--core", "nosuchcore"]].concat(), FAILURE_EXIT, "nosuchcore", ""),
        ([play("cut.nes"), vec!["--core", "./core.so"]].concat(), FAILURE_EXIT, "core.so", ""),
        (vec!["check", "nowhere.nes"], FAILURE_EXIT, "there is no such file", "give the file of a game"),
        (vec!["check", "letter.txt"], FAILURE_EXIT, "cannot play letter.txt", "--core"),
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
        check_case(&dir, (&args, code, sentence, hint));
    }
}

/// An endless file, for which the system reports a size of 0, must be rejected.
#[test]
#[cfg(target_os = "linux")]
fn endless_game_file_is_rejected() {
    let args = ["play", "/dev/zero", "--headless", "--frames", "10"];
    check_case(&TestDir::new("endless"), (&args, FAILURE_EXIT, "/dev/zero has more than 64 MiB", "check the path"));
}

#[test]
fn too_many_players_is_a_usage_error() {
    let dir = TestDir::new("players");
    check_case(&dir, (&["play", "--headless", "--players", "7"], USAGE_EXIT, "not for 7", "--players"));
}

/// The program must print at once which address it dials, and an interrupt before the answer must not be a success.
#[test]
#[cfg(unix)]
fn interrupted_join_exits_130() {
    let dir = TestDir::new("nobody");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let ticket = format!("udp://{addr}#word");
    for args in [&["maze", "join", &ticket, "--headless"][..], &["maze", "join", "--world", &ticket, "--headless"]] {
        let mut run = RunningProgram::start(&dir, args);
        run.wait_for_stderr(&format!("connecting to {addr} ...\n"));
        run.send_signal("-INT");
        assert_eq!(run.wait_for_exit(), Some(130), "{run}");
        assert!(run.err().contains("error: interrupted before joining a maze") && !run.err().contains("word"), "{run}");
    }
}

#[test]
fn damaged_movies_are_explained() {
    let dir = TestDir::new("movies");
    let made = dir.run(&["play", "--headless", "--frames", "300", "--bot", "1", "--record", "good.cpm"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let good = std::fs::read(dir.path_of("good.cpm")).unwrap();
    dir.write_file("empty.cpm", b"");
    dir.write_file("letter.txt", b"Dear friend, this is not a movie.");
    dir.write_file("newer.cpm", b"COPLAYMV\x63rest");
    dir.write_file("cut.cpm", &good[..good.len() * 2 / 3]);
    dir.write_file("stub.cpm", &good[..20]);
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    dir.write_file("flipped.cpm", &flipped(good.len() * 2 / 3));
    dir.write_file("beheaded.cpm", &flipped(40));
    let replay = |file: &'static str| vec!["replay", file, "--headless"];
    let cases: [(Vec<&str>, i32, &str, &str); 9] = [
        (replay("nowhere.cpm"), FAILURE_EXIT, "there is no such file", "check the path"),
        (replay("."), FAILURE_EXIT, ". is a folder, not a movie", "--record"),
        (replay("letter.txt"), FAILURE_EXIT, "letter.txt is not a movie", "--record"),
        (replay("empty.cpm"), FAILURE_EXIT, "ends before its first frame", "empty"),
        (replay("newer.cpm"), FAILURE_EXIT, "format 99", "newer version of coplay"),
        (replay("stub.cpm"), FAILURE_EXIT, "ends before its first frame", "copy the whole file"),
        (replay("cut.cpm"), FAILURE_EXIT, "the movie ends early, before frame", "interrupted"),
        (replay("flipped.cpm"), FAILURE_EXIT, "damaged from frame", "another copy"),
        (replay("beheaded.cpm"), FAILURE_EXIT, "the header of beheaded.cpm is damaged", "another copy"),
    ];
    for (args, code, sentence, hint) in cases {
        check_case(&dir, (&args, code, sentence, hint));
    }
    // A game that differs in one bit is another game.
    let mut other = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../games/tennis.nes")).unwrap();
    *other.last_mut().unwrap() ^= 1;
    dir.write_file("other.nes", &other);
    let args = ["replay", "good.cpm", "other.nes", "--headless"];
    check_case(
        &dir,
        (&args, FAILURE_EXIT, "the movie is of another game: the game is \"other\"", "coplay replay FILE GAME"),
    );
    // The intact part of a movie is played.
    let cut = dir.run(&["replay", "cut.cpm", "--headless"]);
    assert!(cut.row_value("frames").parse::<u32>().unwrap() >= 60 && cut.out.contains("all equal"), "{cut:?}");
}

#[test]
fn recording_never_overwrites_without_force() {
    let dir = TestDir::new("recordings");
    let kept = dir.write_file("kept.cpm", b"something dear");
    let record = |file: &'static str| vec!["play", "--headless", "--frames", "10", "--record", file];
    let cases: [(Vec<&str>, i32, &str, &str); 3] = [
        (record("kept.cpm"), USAGE_EXIT, "kept.cpm already exists", "--force"),
        (record("no/such/dir.cpm"), FAILURE_EXIT, "there is no such folder", "create the folder"),
        (record("."), USAGE_EXIT, ". already exists", "another name"),
    ];
    for (args, code, sentence, hint) in cases {
        check_case(&dir, (&args, code, sentence, hint));
    }
    assert_eq!(std::fs::read(&kept).unwrap(), b"something dear");
    let forced = dir.run(&["play", "--headless", "--frames", "10", "--record", path_arg(&kept), "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn missing_display_and_terminal_are_explained() {
    let dir = TestDir::new("nothing");
    let cases: [ErrorCase; 3] = [
        (&["play"], FAILURE_EXIT, "neither a display nor a terminal", "--headless"),
        (&["play", "--window"], FAILURE_EXIT, "there is no display", "--terminal"),
        (&["play", "--terminal"], FAILURE_EXIT, "not a terminal", "--headless"),
    ];
    cases.into_iter().for_each(|case| check_case(&dir, case));
    // `DISPLAY` names a display that does not exist.
    let outcome = Outcome::from(dir.program().args(["play", "--window"]).env("DISPLAY", ":987").output().unwrap());
    assert_error_and_hint(&outcome, &["play", "--window"], FAILURE_EXIT, "cannot open a window", "--terminal");
}

#[test]
#[cfg(target_os = "linux")]
fn invalid_settings_name_their_line() {
    let dir = TestDir::new("settings");
    let run_with = |text: &[u8]| {
        dir.write_file("config/coplay/settings.toml", text);
        dir.run(&["config"])
    };
    let cases: [(&[u8], &str); 5] = [
        (b"[video\nscale = 3", "line 1: "),
        (b"[video]\nscale = 300", "line 2: scale must be a whole number from 1 to 20"),
        (b"\n\n[sound]\nmute = \"perhaps\"", "line 4: mute must be true or false"),
        (b"[keys]\npause = \"Hyper\"", "line 2: there is no key \"Hyper\""),
        (b"\xff\xfe", "cannot read the settings"),
    ];
    for (text, sentence) in cases {
        assert_error_and_hint(&run_with(text), &["config"], FAILURE_EXIT, sentence, "");
    }
    let outcome = run_with(b"[video]\nscale = 5\nscael = 3\n");
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.err.contains("line 3: unknown setting video.scael"), "{outcome:?}");
    assert!(outcome.out.contains("settings.toml") && outcome.out.contains("scale = 5"), "{outcome:?}");
}
