//! What goes wrong between computers: real processes that sleep, die, lose packets, move, or never get anywhere. Each time there is a clear
//! sentence, nothing hangs, and who plays on plays the same game.

#![cfg(unix)]

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use common::router::Router;
#[cfg(target_os = "linux")]
use common::run::PATIENCE;
use common::run::{
    Run, assert_agree, assert_equal_before, end, host, join, logs, newest, number, place, wait_for_frame, wait_for_more,
};
use common::{Place, arg};

/// Silence in seconds after which a player is dropped, where a test needs a drop. On a shared machine a process can stand still for more
/// than a second, and must not be dropped for that.
const DROP_AFTER: &str = "3";
/// Games that may be played to reach a speed: other work on the same machine can slow down any one of them.
const SPEED_TRIALS: usize = 3;

/// A laptop is closed and opened again after a while.
fn sleep_and_come_back(name: &str, drop_after: &str, asleep: Duration) {
    let (place, game) = place(name);
    let [ann, bob] = logs(&place);
    let mut host = host(&place, &game, &["--drop-after", drop_after, "--frame-log", arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", drop_after, "--frame-log", arg(&bob)];
    let mut guest = join(&place, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    guest.signal("-STOP");
    host.wait_for("Bob is lost");
    std::thread::sleep(asleep);
    let awake = newest(&ann);
    guest.signal("-CONT");
    guest.wait_for("coming back");
    host.wait_for("Bob plays");
    wait_for_more(&bob, 200);
    end(&mut guest, &mut host);
    assert!(host.err().contains("Bob left"), "{host}");
    let together = assert_agree(&ann, &bob, awake);
    assert!(together > 30, "only {together} frames together after the sleep");
}

#[test]
fn who_was_asleep_comes_back_to_its_seat() {
    sleep_and_come_back("trouble-asleep", DROP_AFTER, Duration::from_secs(13));
}

#[test]
#[ignore = "takes more than a minute"]
fn who_was_asleep_for_a_minute_comes_back_to_its_seat() {
    sleep_and_come_back("trouble-minute", DROP_AFTER, Duration::from_secs(60));
}

/// Of two the guest cannot know whether it is cut off itself: it waits, and when the host is back nothing is lost.
#[test]
fn who_waits_for_a_sleeping_host_goes_on_with_it() {
    let (place, game) = place("trouble-host-asleep");
    let [ann, bob] = logs(&place);
    let mut host = host(&place, &game, &["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", arg(&bob)];
    let mut guest = join(&place, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    host.signal("-STOP");
    guest.wait_for("waiting for Ann");
    std::thread::sleep(Duration::from_secs(4));
    host.signal("-CONT");
    guest.wait_for("goes on after");
    host.assert_ends_well();
    guest.assert_ends_well();
    assert!(!host.err().contains("is lost") && !guest.err().contains("is lost"), "{host}{guest}");
    assert_eq!(assert_equal_before(600, &ann, &bob), 600);
}

/// A library that makes a program's wall clock wrong by what a file says.
fn wrong_clock(place: &Place) -> PathBuf {
    let source = place.file("clock.c", include_bytes!("common/clock.c"));
    let library = place.at("clock.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl");
    assert!(compile.status().expect("there is a C compiler").success());
    library
}

/// A clock that is set while a game runs is no matter; neither is one that was set back between a crash and the next start.
#[test]
#[cfg(target_os = "linux")]
fn the_wall_clock_does_not_matter() {
    let (place, game) = place("trouble-clock");
    let library = wrong_clock(&place);
    let (mine, theirs) = (place.file("mine", b"7200"), place.file("theirs", b"0"));
    let with_clock = |file: &Path, program: &str| {
        let mut command = Command::new(program);
        place.dress(&mut command);
        command.env("LD_PRELOAD", &library).env("WRONG_CLOCK", file);
        command
    };
    let start = |file: &Path, args: &[&str]| Run::start_as(with_clock(file, env!("CARGO_BIN_EXE_coplay")), args);
    // The clock is really wrong: otherwise all of this proves nothing.
    let seconds = |file: &Path| -> i64 {
        let out = with_clock(file, "date").arg("+%s").output().expect("there is a clock");
        String::from_utf8_lossy(&out.stdout).trim().parse().expect("seconds")
    };
    assert!((7_100..7_300).contains(&(seconds(&mine) - seconds(&theirs))));

    let [ann, bob, again] = logs(&place);
    let host = ["host", arg(&game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    let mut host = start(&theirs, &[&host[..], &["--drop-after", DROP_AFTER, "--frame-log", arg(&ann)]].concat());
    let ticket = host.ticket();
    let guest = |log: &Path| {
        let args = ["join", &ticket, arg(&game), "--headless", "--bot", "2", "--name", "Bob"];
        start(&mine, &[&args[..], &["--drop-after", DROP_AFTER, "--frame-log", arg(log)]].concat())
    };
    let mut first = guest(&bob);
    wait_for_frame(&ann, 30);
    for wrong in ["-86400", "31536000", "0"] {
        place.file("theirs", wrong.as_bytes());
        wait_for_more(&ann, 30);
    }
    assert!(first.is_running() && !host.err().contains("is lost"), "{host}{first}");
    first.signal("-KILL");
    host.wait_for("Bob is lost");
    place.file("mine", b"-200000");
    let mut second = guest(&again);
    host.wait_for("Bob plays");
    wait_for_more(&again, 150);
    end(&mut second, &mut host);
    assert!(assert_agree(&ann, &again, 0) > 30, "{host}{second}");
}

/// Its way is much too long for the lag, so that it holds up the host half of the time.
#[test]
fn who_holds_up_the_game_is_dropped_where_the_host_says_so() {
    let (place, game) = place("trouble-late");
    let [ann, bob] = logs(&place);
    let slow = ["--impair", "delay=400"];
    let dials = ["--lag", "2", "--window", "0", "--late-after", "0.5", "--frame-log", arg(&ann)];
    let host = host(&place, &game, &[&dials[..], &slow].concat());
    let guest = join(&place, &host.ticket(), &game, &["--frame-log", arg(&bob)]);
    host.wait_for("is lost or too slow; the game goes on without");
    wait_for_more(&ann, 120);
    let (mut host, mut guest) = (host, guest);
    end(&mut guest, &mut host);
    assert_agree(&ann, &bob, 0);
}

/// One packet of five is lost in each direction. Returns the slower site's frames per second.
fn lose_much(name: &str, frames: u32) -> f64 {
    let (place, game) = place(name);
    let [ann, bob] = logs(&place);
    let numbers = [place.at("ann.json"), place.at("bob.json")];
    let count = frames.to_string();
    let args = |log, numbers, loss| {
        ["--frames", &count, "--frame-log", arg(log), "--stats", arg(numbers), "--impair", loss].map(str::to_owned)
    };
    let (for_ann, for_bob) = (args(&ann, &numbers[0], "loss=20,seed=3"), args(&bob, &numbers[1], "loss=20,seed=4"));
    let dials = ["--lag", "2", "--window", "8"];
    let longer = Duration::from_secs(u64::from(frames) / 20);
    let host = host(&place, &game, &[&dials[..], &for_ann.each_ref().map(String::as_str)].concat());
    let ticket = host.ticket();
    let mut guest = join(&place, &ticket, &game, &for_bob.each_ref().map(String::as_str)).patient(longer);
    let mut host = host.patient(longer);
    host.assert_ends_well();
    guest.assert_ends_well();
    assert_eq!(assert_equal_before(frames, &ann, &bob), frames as usize);
    assert!(!host.err().contains("is lost"), "{host}");
    for numbers in &numbers {
        let loss = number(numbers, "loss");
        assert!((0.08..0.35).contains(&loss), "a loss of {loss} was measured");
    }
    numbers.iter().map(|numbers| number(numbers, "fps")).fold(f64::INFINITY, f64::min)
}

/// Plays games with much loss until one of them is fast enough.
fn lose_much_at_speed(name: &str, frames: u32, least_fps: f64) {
    let mut speeds = (0..SPEED_TRIALS).map(|trial| lose_much(&format!("{name}-{trial}"), frames));
    assert!(speeds.any(|fps| fps > least_fps), "no game of {SPEED_TRIALS} reached {least_fps} fps");
}

#[test]
fn a_fifth_of_all_packets_is_lost() {
    // Another test has the same two cores.
    lose_much_at_speed("trouble-loss", 600, 45.0);
}

#[test]
#[ignore = "takes a minute, and the computer for itself"]
fn a_fifth_of_all_packets_is_lost_for_a_minute() {
    lose_much_at_speed("trouble-loss-minute", 3_600, 59.5);
}

/// The guest's router gives it another address, twice, in the middle of the game.
#[test]
fn who_moves_to_another_address_plays_on() {
    let (place, game) = place("trouble-moved");
    let [ann, bob] = logs(&place);
    let mut host = host(&place, &game, &["--frames", "700", "--frame-log", arg(&ann)]);
    let ticket = host.ticket();
    let (addr, secret) = ticket.strip_prefix("udp://").and_then(|rest| rest.split_once('#')).expect("a ticket");
    let router = Router::to(addr.parse().expect("an address"));
    let ticket = format!("udp://{}#{secret}", router.addr());
    let mut guest = join(&place, &ticket, &game, &["--name", "Bob", "--frames", "700", "--frame-log", arg(&bob)]);
    for _ in 0..2 {
        wait_for_more(&bob, 100);
        router.move_guest();
    }
    host.assert_ends_well();
    guest.assert_ends_well();
    assert!(router.passed() > 60, "they found another way: {host}{guest}");
    assert!(!host.err().contains("is lost"), "{host}");
    assert_eq!(assert_equal_before(700, &ann, &bob), 700);
}

/// With nobody to agree with, the guest of a dead host gives up after a while, and says how to come back.
#[test]
fn the_guest_of_a_dead_host_is_told() {
    let (place, game) = place("trouble-host-dead");
    let host = host(&place, &game, &[]);
    let [log] = logs(&place);
    let mut guest = join(&place, &host.ticket(), &game, &["--drop-after", "0.5", "--frame-log", arg(&log)]);
    wait_for_frame(&log, 30);
    host.signal("-KILL");
    guest.wait_for("waiting for Ann");
    guest.assert_fails(1, &["nobody else was heard of for too long", "your seat"]);
}

/// Ann, Bob and Eve play, each with a log.
fn three(place: &Place, game: &Path, logs: &[PathBuf; 3], more: &[&str]) -> [(&'static str, Run); 3] {
    let args = |log| [&["--drop-after", DROP_AFTER, "--frame-log", arg(log)], more].concat();
    let ann = host(place, game, &[&["--players", "3"], &args(&logs[0])[..]].concat());
    let ticket = ann.ticket();
    let bob = join(place, &ticket, game, &[&["--name", "Bob"], &args(&logs[1])[..]].concat());
    // In the order of their seats.
    ann.wait_for("Bob (seat 2");
    let eve = join(place, &ticket, game, &[&["--name", "Eve"], &args(&logs[2])[..]].concat());
    logs.iter().for_each(|log| wait_for_frame(log, 30));
    [("Ann", ann), ("Bob", bob), ("Eve", eve)]
}

/// Three play, and one of them dies without a word.
fn one_of_three_dies(name: &str, dies: usize) {
    let (place, game) = place(name);
    let logs = logs(&place);
    let mut all = three(&place, &game, &logs, &["--frames", "500"]);
    all[dies].1.signal("-KILL");
    assert_eq!(all[dies].1.code(), None);
    let lost = format!("{} is lost", all[dies].0);
    let [one, other] = match dies {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    };
    for survivor in [one, other] {
        all[survivor].1.wait_for(&lost);
        all[survivor].1.assert_ends_well();
    }
    assert_eq!(assert_equal_before(500, &logs[one], &logs[other]), 500);
}

#[test]
fn two_go_on_when_the_host_dies() {
    one_of_three_dies("trouble-three-host", 0);
}

#[test]
fn two_go_on_when_a_guest_dies() {
    one_of_three_dies("trouble-three-guest", 1);
}

/// While the host was asleep the others went on, and one of them with the list of who is here. There it stays: the host's own ticket leads to
/// it, and nobody has another list.
#[test]
fn there_is_one_list_when_a_sleeping_host_is_back() {
    let (place, game) = place("trouble-one-list");
    let logs = logs(&place);
    let [(_, ann), (_, bob), (_, eve)] = three(&place, &game, &logs, &[]);
    ann.signal("-STOP");
    bob.wait_for("Ann is lost");
    bob.wait_for("to join now:");
    eve.wait_for("to join now:");
    ann.signal("-CONT");
    ann.wait_for("coming back");
    bob.wait_for("Ann plays");
    let _watch = Run::start(&place, &["watch", &ann.ticket(), arg(&game), "--headless"]);
    [&ann, &bob, &eve].iter().for_each(|run| run.wait_for("1 watching"));
    eve.signal("-INT");
    bob.wait_for("Eve left");
    let log = place.at("gus.csv");
    let mut gus = join(&place, &ann.ticket(), &game, &["--name", "Gus", "--frame-log", arg(&log)]);
    [&ann, &bob].iter().for_each(|run| run.wait_for("Gus (seat 3"));
    [&ann, &bob].iter().for_each(|run| run.wait_for("Gus plays"));
    wait_for_more(&log, 150);
    gus.signal("-INT");
    gus.assert_ends_well();
    let (mut ann, mut bob) = (ann, bob);
    end(&mut ann, &mut bob);
    assert!(assert_agree(&logs[0], &logs[1], 0) > 30 && assert_agree(&logs[1], &log, 0) > 30);
}

/// The host of two is gone without a word; the guest's ticket, which it shows then, leads back.
#[test]
fn a_host_that_was_killed_comes_back_by_the_ticket_of_its_guest() {
    let (place, game) = place("trouble-host-again");
    let [ann, bob, again] = logs(&place);
    let mut host = host(&place, &game, &["--drop-after", DROP_AFTER, "--frame-log", arg(&ann)]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--frame-log", arg(&bob)];
    let mut guest = join(&place, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 30);
    host.signal("-KILL");
    assert_eq!(host.code(), None);
    guest.wait_for("to join now:");
    let said = guest.err();
    let ticket = said.split("to join now:").nth(1).and_then(|rest| rest.split('\'').nth(1)).expect("a ticket");
    let args = ["--name", "Ann", "--drop-after", DROP_AFTER, "--frame-log", arg(&again)];
    let mut host = join(&place, ticket, &game, &args);
    guest.wait_for("Ann plays");
    wait_for_more(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    end(&mut host, &mut guest);
    assert!(assert_agree(&bob, &again, 0) > 30);
}

/// The ticket in the notice to the last player.
#[track_caller]
fn ticket_to_come_back(run: &Run, name: &str) -> String {
    let notice = format!("you play on alone. For {name} to come back:");
    run.wait_for(&notice);
    let said = run.err();
    let rest = said.split(&notice).last().expect("the notice was printed");
    rest.split('\'').nth(1).expect("a ticket in quotes").to_owned()
}

/// Waits for as long as a session used to need to end by itself; this one still runs, and its frames go on.
#[track_caller]
fn assert_plays_on(run: &mut Run, log: &Path) {
    std::thread::sleep(Duration::from_secs(3));
    assert!(run.is_running(), "it ended by itself: {run}");
    wait_for_more(log, 120);
}

#[test]
fn when_the_guest_leaves_the_host_plays_on_and_the_guest_can_come_back() {
    let (place, game) = place("trouble-guest-left");
    let [ann, bob, again] = logs(&place);
    let film = place.at("ann.movie");
    let mut host = host(&place, &game, &["--frame-log", arg(&ann), "--record", arg(&film)]);
    let mut guest = join(&place, &host.ticket(), &game, &["--name", "Bob", "--frame-log", arg(&bob)]);
    wait_for_frame(&bob, 60);
    guest.signal("-INT");
    guest.assert_ends_well();
    host.wait_for("Bob left");
    assert_plays_on(&mut host, &ann);
    let ticket = ticket_to_come_back(&host, "Bob");
    let mut guest = join(&place, &ticket, &game, &["--name", "Bob", "--frame-log", arg(&again)]);
    host.wait_for("Bob plays");
    wait_for_more(&again, 150);
    assert!(guest.err().contains("Bob (seat 2"), "{guest}");
    end(&mut guest, &mut host);
    assert!(assert_agree(&ann, &again, 0) > 30);
    // The movie goes on from the first frame to the last, whoever was there.
    let replay = place.run(&["replay", arg(&film), arg(&game), "--headless"]);
    assert!(replay.code == Some(0) && replay.out.contains("all equal"), "{replay:?}");
    assert!(replay.row("frames").parse::<u32>().is_ok_and(|frames| frames > newest(&bob) + 120), "{replay:?}");
}

#[test]
fn when_the_host_leaves_the_guest_plays_on_and_the_host_can_come_back() {
    let (place, game) = place("trouble-host-left");
    let [ann, bob, again] = logs(&place);
    let mut host = host(&place, &game, &["--frame-log", arg(&ann)]);
    let mut guest = join(&place, &host.ticket(), &game, &["--name", "Bob", "--frame-log", arg(&bob)]);
    wait_for_frame(&bob, 60);
    host.signal("-INT");
    host.assert_ends_well();
    guest.wait_for("Ann left");
    assert_plays_on(&mut guest, &bob);
    let ticket = ticket_to_come_back(&guest, "Ann");
    let mut host = join(&place, &ticket, &game, &["--name", "Ann", "--frame-log", arg(&again)]);
    guest.wait_for("Ann plays");
    wait_for_more(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    end(&mut host, &mut guest);
    assert!(assert_agree(&bob, &again, 0) > 30);
}

/// With nobody to ask, the guest of a dead host plays on alone where that was wanted from the start.
#[test]
fn with_go_on_alone_the_guest_of_a_dead_host_plays_on_and_the_host_can_come_back() {
    let (place, game) = place("trouble-go-on-alone");
    let [bob, again] = logs(&place);
    let mut host = host(&place, &game, &["--drop-after", DROP_AFTER]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--go-on-alone", "--frame-log", arg(&bob)];
    let mut guest = join(&place, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 60);
    host.signal("-KILL");
    assert_eq!(host.code(), None);
    guest.wait_for("Ann is lost or too slow; the game goes on without");
    let ticket = ticket_to_come_back(&guest, "Ann");
    wait_for_more(&bob, 120);
    let mut host = join(&place, &ticket, &game, &["--name", "Ann", "--frame-log", arg(&again)]);
    guest.wait_for("Ann plays");
    wait_for_more(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    end(&mut host, &mut guest);
    assert!(assert_agree(&bob, &again, 0) > 30);
}

/// A guest in a terminal, which a person types into.
#[cfg(target_os = "linux")]
struct InTerminal {
    script: std::process::Child,
    keys: std::process::ChildStdin,
}

#[cfg(target_os = "linux")]
impl InTerminal {
    fn join(place: &Place, ticket: &str, game: &Path, more: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_coplay");
        let line = format!(
            "stty cols 80 rows 30; exec {program} join '{ticket}' {} --terminal --mute --name Bob --bot 2 {more}",
            game.display()
        );
        let mut command = Command::new("script");
        place.dress(&mut command);
        command.args(["-qc", &line, "/dev/null"]).env("COLORTERM", "truecolor").env("USER", "tester");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut script = command.spawn().expect("script comes with every Linux");
        let keys = script.stdin.take().expect("it is piped");
        Self { script, keys }
    }

    fn press(&mut self, key: &[u8]) {
        use std::io::Write;
        self.keys.write_all(key).expect("the terminal is open");
    }

    /// Waits for the end of the program.
    fn end(&mut self) -> std::process::ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = self.script.try_wait().expect("it can be waited for") {
                return ended;
            }
            assert!(Instant::now() < until, "the program in the terminal does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for InTerminal {
    fn drop(&mut self) {
        _ = self.script.kill();
        _ = self.script.wait();
    }
}

/// F4 and F10, as a terminal sends them.
#[cfg(target_os = "linux")]
const F4: &[u8] = b"\x1bOS";
#[cfg(target_os = "linux")]
const F10: &[u8] = b"\x1b[21~";

/// A player whose host died chooses to play on alone; the game used to stand still until it ended.
#[test]
#[cfg(target_os = "linux")]
fn when_the_host_crashes_the_guest_can_choose_to_play_on() {
    let (place, game) = place("trouble-host-crashed");
    let [log] = logs(&place);
    let host = host(&place, &game, &[]);
    let mut guest =
        InTerminal::join(&place, &host.ticket(), &game, &format!("--drop-after 1 --frame-log {}", log.display()));
    wait_for_frame(&log, 60);
    host.signal("-KILL");
    // Frames that are predicted, and those that wait to be written, a hundred or so at a time, are fewer.
    let (killed_at, until) = (newest(&log), Instant::now() + PATIENCE);
    while newest(&log) < killed_at + 400 {
        assert!(Instant::now() < until, "frame {} is still the newest", newest(&log));
        // The key does nothing before it is offered, and nothing after it was taken.
        guest.press(F4);
        std::thread::sleep(Duration::from_millis(500));
    }
    guest.press(F10);
    let ended = guest.end();
    assert!(ended.success(), "{ended}");
}

#[test]
fn who_is_left_alone_goes_on() {
    let (place, game) = place("trouble-alone");
    let [log] = logs(&place);
    let mut host = host(&place, &game, &["--frames", "500", "--drop-after", DROP_AFTER, "--frame-log", arg(&log)]);
    let mut guest = join(&place, &host.ticket(), &game, &["--name", "Bob"]);
    wait_for_frame(&log, 30);
    guest.signal("-KILL");
    host.wait_for("Bob is lost or too slow; the game goes on without");
    host.assert_ends_well();
    assert_eq!(guest.code(), None);
}

#[test]
fn another_core_is_told() {
    let (place, game) = place("trouble-core");
    let ours = coplay_testcores::build_core(coplay_testcores::CoreDefect::Honest);
    let theirs =
        coplay_testcores::build_core_with(coplay_testcores::CoreConfig { state_size: 2_048, ..Default::default() });
    let (ours, theirs) = (ours.path_string(), theirs.path_string());
    let args = ["host", "--core", &ours, "--headless", "--udp", "127.0.0.1:0", "--bot", "1", "--frames", "120"];
    let mut host = Run::start(&place, &args);
    let ticket = host.ticket();
    let other = ["join", &ticket, "--core", &theirs, "--headless"];
    Run::start(&place, &other).assert_fails(1, &["the host plays something else", "machine"]);
    let builtin = ["join", &ticket, arg(&game), "--headless"];
    Run::start(&place, &builtin).assert_fails(1, &[]);
    // The right one plays, and its core needs no game.
    let mut guest =
        Run::start(&place, &["join", &ticket, "--core", &ours, "--headless", "--bot", "2", "--frames", "120"]);
    host.assert_ends_well();
    guest.assert_ends_well();
}

/// A computer without any network, not even to itself.
#[test]
#[cfg(target_os = "linux")]
fn without_a_network_it_starts_and_says_so() {
    let (place, game) = place("trouble-no-network");
    let alone = || {
        let mut command = Command::new("unshare");
        place.dress(&mut command);
        command.args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_coplay")]);
        command
    };
    let possible = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("left out: this system lets nobody make a network of its own");
        return;
    }
    let mut host = Run::start_as(alone(), &["host", arg(&game), "--headless", "--udp", "0", "--bot", "1"]);
    assert!(!host.ticket().is_empty());
    host.wait_for("no network");
    host.signal("-INT");
    assert_eq!(host.code(), Some(0), "{host}");
    let join = ["join", "udp://192.0.2.1:7000#tennis", arg(&game), "--headless"];
    Run::start_as(alone(), &join).assert_fails(1, &["nobody answers at 192.0.2.1:7000", "network"]);
    let named = ["join", "udp://host.example:7000#tennis", arg(&game), "--headless"];
    Run::start_as(alone(), &named).assert_fails(1, &["there is no computer called", "is there a network?"]);
}

#[test]
fn a_bad_way_out_must_make_sense() {
    let (place, game) = place("trouble-impair");
    for (how, words) in
        [("slow", "nothing is known about \"slow\""), ("loss=200", "loss must be a number from 0 to 100")]
    {
        let args = ["host", arg(&game), "--headless", "--impair", how];
        Run::start(&place, &args).assert_fails(2, &[words, "--impair", "`coplay host --help`"]);
    }
}
