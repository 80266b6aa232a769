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

use common::router::NatRouter;
#[cfg(target_os = "linux")]
use common::run::TIMEOUT;
use common::run::{
    RunningProgram, assert_confirmed_equal, assert_equal_before, interrupt_in_order, log_paths, newest_frame,
    start_host, start_join, stat_value, test_dir_with_game, wait_for_frame, wait_for_more_frames,
};
use common::{TestDir, path_arg};

/// Silence in seconds after which a player is dropped, where a test needs a drop. On a shared machine a process can stand still for more
/// than a second, and must not be dropped for that.
const DROP_AFTER: &str = "3";
/// Games that may be played to reach a speed: other work on the same machine can slow down any one of them.
const SPEED_TRIALS: usize = 3;

/// A laptop is closed and opened again after a while.
fn suspend_and_rejoin(name: &str, drop_after: &str, asleep: Duration) {
    let (dir, game) = test_dir_with_game(name);
    let [ann, bob] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", drop_after, "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", drop_after, "--frame-log", path_arg(&bob)];
    let mut guest = start_join(&dir, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    guest.send_signal("-STOP");
    host.wait_for_stderr("Bob is lost");
    std::thread::sleep(asleep);
    let awake = newest_frame(&ann);
    guest.send_signal("-CONT");
    guest.wait_for_stderr("coming back");
    host.wait_for_stderr("Bob plays");
    wait_for_more_frames(&bob, 200);
    interrupt_in_order(&mut guest, &mut host);
    assert!(host.err().contains("Bob left"), "{host}");
    let together = assert_confirmed_equal(&ann, &bob, awake);
    assert!(together > 30, "only {together} frames together after the sleep");
}

#[test]
fn suspended_site_rejoins_its_seat() {
    suspend_and_rejoin("trouble-asleep", DROP_AFTER, Duration::from_secs(13));
}

#[test]
#[ignore = "takes more than a minute"]
fn site_suspended_for_a_minute_rejoins_its_seat() {
    suspend_and_rejoin("trouble-minute", DROP_AFTER, Duration::from_secs(60));
}

/// Of two the guest cannot know whether it is cut off itself: it waits, and when the host is back nothing is lost.
#[test]
fn joiner_waits_for_a_suspended_host_and_continues() {
    let (dir, game) = test_dir_with_game("trouble-host-asleep");
    let [ann, bob] = log_paths(&dir);
    let mut host =
        start_host(&dir, &game, &["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", path_arg(&bob)];
    let mut guest = start_join(&dir, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    host.send_signal("-STOP");
    guest.wait_for_stderr("waiting for Ann");
    std::thread::sleep(Duration::from_secs(4));
    host.send_signal("-CONT");
    guest.wait_for_stderr("goes on after");
    host.assert_ends_well();
    guest.assert_ends_well();
    assert!(!host.err().contains("is lost") && !guest.err().contains("is lost"), "{host}{guest}");
    assert_eq!(assert_equal_before(600, &ann, &bob), 600);
}

/// A library that makes a program's wall clock wrong by what a file says.
fn build_wrong_clock_library(dir: &TestDir) -> PathBuf {
    let source = dir.write_file("clock.c", include_bytes!("common/clock.c"));
    let library = dir.path_of("clock.so");
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
fn wall_clock_changes_do_not_matter() {
    let (dir, game) = test_dir_with_game("trouble-clock");
    let library = build_wrong_clock_library(&dir);
    let (mine, theirs) = (dir.write_file("mine", b"7200"), dir.write_file("theirs", b"0"));
    let with_clock = |write_file: &Path, program: &str| {
        let mut command = Command::new(program);
        dir.isolate(&mut command);
        command.env("LD_PRELOAD", &library).env("WRONG_CLOCK", write_file);
        command
    };
    let start_nanos = |write_file: &Path, args: &[&str]| {
        RunningProgram::start_command(with_clock(write_file, env!("CARGO_BIN_EXE_coplay")), args)
    };
    // The clock is really wrong: otherwise all of this proves nothing.
    let seconds = |write_file: &Path| -> i64 {
        let out = with_clock(write_file, "date").arg("+%s").output().expect("there is a clock");
        String::from_utf8_lossy(&out.stdout).trim().parse().expect("seconds")
    };
    assert!((7_100..7_300).contains(&(seconds(&mine) - seconds(&theirs))));

    let [ann, bob, again] = log_paths(&dir);
    let host = ["host", path_arg(&game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    let mut host =
        start_nanos(&theirs, &[&host[..], &["--drop-after", DROP_AFTER, "--frame-log", path_arg(&ann)]].concat());
    let ticket = host.ticket();
    let guest = |log: &Path| {
        let args = ["join", &ticket, path_arg(&game), "--headless", "--bot", "2", "--name", "Bob"];
        start_nanos(&mine, &[&args[..], &["--drop-after", DROP_AFTER, "--frame-log", path_arg(log)]].concat())
    };
    let mut first = guest(&bob);
    wait_for_frame(&ann, 30);
    for wrong in ["-86400", "31536000", "0"] {
        dir.write_file("theirs", wrong.as_bytes());
        wait_for_more_frames(&ann, 30);
    }
    assert!(first.is_running() && !host.err().contains("is lost"), "{host}{first}");
    first.send_signal("-KILL");
    host.wait_for_stderr("Bob is lost");
    dir.write_file("mine", b"-200000");
    let mut second = guest(&again);
    host.wait_for_stderr("Bob plays");
    wait_for_more_frames(&again, 150);
    interrupt_in_order(&mut second, &mut host);
    assert!(assert_confirmed_equal(&ann, &again, 0) > 30, "{host}{second}");
}

/// Its way is much too long for the lag, so that it holds up the host half of the time.
#[test]
fn slow_peer_is_dropped_with_late_after() {
    let (dir, game) = test_dir_with_game("trouble-late");
    let [ann, bob] = log_paths(&dir);
    let slow = ["--impair", "delay=400"];
    let dials = ["--lag", "2", "--window", "0", "--late-after", "0.5", "--frame-log", path_arg(&ann)];
    let host = start_host(&dir, &game, &[&dials[..], &slow].concat());
    let guest = start_join(&dir, &host.ticket(), &game, &["--frame-log", path_arg(&bob)]);
    host.wait_for_stderr("is lost or too slow; the game goes on without");
    wait_for_more_frames(&ann, 120);
    let (mut host, mut guest) = (host, guest);
    interrupt_in_order(&mut guest, &mut host);
    assert_confirmed_equal(&ann, &bob, 0);
}

/// One packet of five is lost in each direction. Returns the slower site's frames per second.
fn play_with_packet_loss(name: &str, frames: u32) -> f64 {
    let (dir, game) = test_dir_with_game(name);
    let [ann, bob] = log_paths(&dir);
    let numbers = [dir.path_of("ann.json"), dir.path_of("bob.json")];
    let count = frames.to_string();
    let args = |log, numbers, loss| {
        ["--frames", &count, "--frame-log", path_arg(log), "--stats", path_arg(numbers), "--impair", loss]
            .map(str::to_owned)
    };
    let (for_ann, for_bob) = (args(&ann, &numbers[0], "loss=20,seed=3"), args(&bob, &numbers[1], "loss=20,seed=4"));
    let dials = ["--lag", "2", "--window", "8"];
    let longer = Duration::from_secs(u64::from(frames) / 20);
    let host = start_host(&dir, &game, &[&dials[..], &for_ann.each_ref().map(String::as_str)].concat());
    let ticket = host.ticket();
    let mut guest =
        start_join(&dir, &ticket, &game, &for_bob.each_ref().map(String::as_str)).with_extra_timeout(longer);
    let mut host = host.with_extra_timeout(longer);
    host.assert_ends_well();
    guest.assert_ends_well();
    assert_eq!(assert_equal_before(frames, &ann, &bob), frames as usize);
    assert!(!host.err().contains("is lost"), "{host}");
    for numbers in &numbers {
        let loss = stat_value(numbers, "loss");
        assert!((0.08..0.35).contains(&loss), "a loss of {loss} was measured");
    }
    numbers.iter().map(|numbers| stat_value(numbers, "fps")).fold(f64::INFINITY, f64::min)
}

/// Plays games with much loss until one of them is fast enough.
fn assert_speed_with_packet_loss(name: &str, frames: u32, least_fps: f64) {
    let mut speeds = (0..SPEED_TRIALS).map(|trial| play_with_packet_loss(&format!("{name}-{trial}"), frames));
    assert!(speeds.any(|fps| fps > least_fps), "no game of {SPEED_TRIALS} reached {least_fps} fps");
}

#[test]
fn twenty_percent_packet_loss_keeps_speed() {
    // Another test has the same two cores.
    assert_speed_with_packet_loss("trouble-loss", 600, 45.0);
}

#[test]
#[ignore = "takes a minute, and the computer for itself"]
fn twenty_percent_packet_loss_for_a_minute_keeps_speed() {
    assert_speed_with_packet_loss("trouble-loss-minute", 3_600, 59.5);
}

/// The guest's router gives it another address, twice, in the middle of the game.
#[test]
fn address_change_behind_nat_keeps_the_session() {
    let (dir, game) = test_dir_with_game("trouble-moved");
    let [ann, bob] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--frames", "700", "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let (addr, secret) = ticket.strip_prefix("udp://").and_then(|rest| rest.split_once('#')).expect("a ticket");
    let router = NatRouter::in_front_of(addr.parse().expect("an address"));
    let ticket = format!("udp://{}#{secret}", router.addr());
    let mut guest =
        start_join(&dir, &ticket, &game, &["--name", "Bob", "--frames", "700", "--frame-log", path_arg(&bob)]);
    for _ in 0..2 {
        wait_for_more_frames(&bob, 100);
        router.move_joiner();
    }
    host.assert_ends_well();
    guest.assert_ends_well();
    assert!(router.delivered() > 60, "they found another way: {host}{guest}");
    assert!(!host.err().contains("is lost"), "{host}");
    assert_eq!(assert_equal_before(700, &ann, &bob), 700);
}

/// With nobody to agree with, the guest of a dead host gives up after a while, and says how to come back.
#[test]
fn joiner_of_a_dead_host_times_out_with_a_hint() {
    let (dir, game) = test_dir_with_game("trouble-host-dead");
    let host = start_host(&dir, &game, &[]);
    let [log] = log_paths(&dir);
    let mut guest = start_join(&dir, &host.ticket(), &game, &["--drop-after", "0.5", "--frame-log", path_arg(&log)]);
    wait_for_frame(&log, 30);
    host.send_signal("-KILL");
    guest.wait_for_stderr("waiting for Ann");
    guest.assert_fails(1, &["nobody else was heard of for too long", "your seat"]);
}

/// Ann, Bob and Eve play, each with a log.
fn start_three_sites(
    dir: &TestDir,
    game: &Path,
    logs: &[PathBuf; 3],
    more: &[&str],
) -> [(&'static str, RunningProgram); 3] {
    let args = |log| [&["--drop-after", DROP_AFTER, "--frame-log", path_arg(log)], more].concat();
    let ann = start_host(dir, game, &[&["--players", "3"], &args(&logs[0])[..]].concat());
    let ticket = ann.ticket();
    let bob = start_join(dir, &ticket, game, &[&["--name", "Bob"], &args(&logs[1])[..]].concat());
    // In the order of their seats.
    ann.wait_for_stderr("Bob (seat 2");
    let eve = start_join(dir, &ticket, game, &[&["--name", "Eve"], &args(&logs[2])[..]].concat());
    logs.iter().for_each(|log| wait_for_frame(log, 30));
    [("Ann", ann), ("Bob", bob), ("Eve", eve)]
}

/// Three play, and one of them dies without a word.
fn kill_one_of_three(name: &str, dies: usize) {
    let (dir, game) = test_dir_with_game(name);
    let logs = log_paths(&dir);
    let mut all = start_three_sites(&dir, &game, &logs, &["--frames", "500"]);
    all[dies].1.send_signal("-KILL");
    assert_eq!(all[dies].1.wait_for_exit(), None);
    let lost = format!("{} is lost", all[dies].0);
    let [one, other] = match dies {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    };
    for survivor in [one, other] {
        all[survivor].1.wait_for_stderr(&lost);
        all[survivor].1.assert_ends_well();
    }
    assert_eq!(assert_equal_before(500, &logs[one], &logs[other]), 500);
}

#[test]
fn two_sites_continue_when_the_host_dies() {
    kill_one_of_three("trouble-three-host", 0);
}

#[test]
fn two_sites_continue_when_a_joiner_dies() {
    kill_one_of_three("trouble-three-guest", 1);
}

/// While the host was asleep the others went on, and one of them with the list of who is here. There it stays: the host's own ticket leads to
/// it, and nobody has another list.
#[test]
fn single_roster_leader_after_suspended_host_returns() {
    let (dir, game) = test_dir_with_game("trouble-one-list");
    let logs = log_paths(&dir);
    let [(_, ann), (_, bob), (_, eve)] = start_three_sites(&dir, &game, &logs, &[]);
    ann.send_signal("-STOP");
    bob.wait_for_stderr("Ann is lost");
    bob.wait_for_stderr("to join now:");
    eve.wait_for_stderr("to join now:");
    ann.send_signal("-CONT");
    ann.wait_for_stderr("coming back");
    bob.wait_for_stderr("Ann plays");
    let _watch = RunningProgram::start(&dir, &["watch", &ann.ticket(), path_arg(&game), "--headless"]);
    [&ann, &bob, &eve].iter().for_each(|run| run.wait_for_stderr("1 watching"));
    eve.send_signal("-INT");
    bob.wait_for_stderr("Eve left");
    let log = dir.path_of("gus.csv");
    let mut gus = start_join(&dir, &ann.ticket(), &game, &["--name", "Gus", "--frame-log", path_arg(&log)]);
    [&ann, &bob].iter().for_each(|run| run.wait_for_stderr("Gus (seat 3"));
    [&ann, &bob].iter().for_each(|run| run.wait_for_stderr("Gus plays"));
    wait_for_more_frames(&log, 150);
    gus.send_signal("-INT");
    gus.assert_ends_well();
    let (mut ann, mut bob) = (ann, bob);
    interrupt_in_order(&mut ann, &mut bob);
    assert!(assert_confirmed_equal(&logs[0], &logs[1], 0) > 30 && assert_confirmed_equal(&logs[1], &log, 0) > 30);
}

/// The host of two is gone without a word; the guest's ticket, which it shows then, leads back.
#[test]
fn killed_host_rejoins_by_the_joiners_ticket() {
    let (dir, game) = test_dir_with_game("trouble-host-again");
    let [ann, bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", DROP_AFTER, "--frame-log", path_arg(&ann)]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&bob)];
    let mut guest = start_join(&dir, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 30);
    host.send_signal("-KILL");
    assert_eq!(host.wait_for_exit(), None);
    guest.wait_for_stderr("to join now:");
    let said = guest.err();
    let ticket = said.split("to join now:").nth(1).and_then(|rest| rest.split('\'').nth(1)).expect("a ticket");
    let args = ["--name", "Ann", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&again)];
    let mut host = start_join(&dir, ticket, &game, &args);
    guest.wait_for_stderr("Ann plays");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut guest);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// The ticket in the notice to the last player.
#[track_caller]
fn rejoin_ticket(run: &RunningProgram, name: &str) -> String {
    let notice = format!("you play on alone. For {name} to come back:");
    run.wait_for_stderr(&notice);
    let said = run.err();
    let rest = said.split(&notice).last().expect("the notice was printed");
    rest.split('\'').nth(1).expect("a ticket in quotes").to_owned()
}

/// Waits for as long as a session used to need to end by itself; this one still runs, and its frames go on.
#[track_caller]
fn assert_continues(run: &mut RunningProgram, log: &Path) {
    std::thread::sleep(Duration::from_secs(3));
    assert!(run.is_running(), "it ended by itself: {run}");
    wait_for_more_frames(log, 120);
}

#[test]
fn host_continues_alone_and_joiner_rejoins() {
    let (dir, game) = test_dir_with_game("trouble-guest-left");
    let [ann, bob, again] = log_paths(&dir);
    let film = dir.path_of("ann.movie");
    let mut host = start_host(&dir, &game, &["--frame-log", path_arg(&ann), "--record", path_arg(&film)]);
    let mut guest = start_join(&dir, &host.ticket(), &game, &["--name", "Bob", "--frame-log", path_arg(&bob)]);
    wait_for_frame(&bob, 60);
    guest.send_signal("-INT");
    guest.assert_ends_well();
    host.wait_for_stderr("Bob left");
    assert_continues(&mut host, &ann);
    let ticket = rejoin_ticket(&host, "Bob");
    let mut guest = start_join(&dir, &ticket, &game, &["--name", "Bob", "--frame-log", path_arg(&again)]);
    host.wait_for_stderr("Bob plays");
    wait_for_more_frames(&again, 150);
    assert!(guest.err().contains("Bob (seat 2"), "{guest}");
    interrupt_in_order(&mut guest, &mut host);
    assert!(assert_confirmed_equal(&ann, &again, 0) > 30);
    // The movie goes on from the first frame to the last, whoever was there.
    let replay = dir.run(&["replay", path_arg(&film), path_arg(&game), "--headless"]);
    assert!(replay.code == Some(0) && replay.out.contains("all equal"), "{replay:?}");
    assert!(
        replay.row_value("frames").parse::<u32>().is_ok_and(|frames| frames > newest_frame(&bob) + 120),
        "{replay:?}"
    );
}

#[test]
fn joiner_continues_alone_and_host_rejoins() {
    let (dir, game) = test_dir_with_game("trouble-host-left");
    let [ann, bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--frame-log", path_arg(&ann)]);
    let mut guest = start_join(&dir, &host.ticket(), &game, &["--name", "Bob", "--frame-log", path_arg(&bob)]);
    wait_for_frame(&bob, 60);
    host.send_signal("-INT");
    host.assert_ends_well();
    guest.wait_for_stderr("Ann left");
    assert_continues(&mut guest, &bob);
    let ticket = rejoin_ticket(&guest, "Ann");
    let mut host = start_join(&dir, &ticket, &game, &["--name", "Ann", "--frame-log", path_arg(&again)]);
    guest.wait_for_stderr("Ann plays");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut guest);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// With nobody to ask, the guest of a dead host plays on alone where that was wanted from the start.
#[test]
fn go_on_alone_flag_continues_after_host_death_and_host_rejoins() {
    let (dir, game) = test_dir_with_game("trouble-go-on-alone");
    let [bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", DROP_AFTER]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--go-on-alone", "--frame-log", path_arg(&bob)];
    let mut guest = start_join(&dir, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 60);
    host.send_signal("-KILL");
    assert_eq!(host.wait_for_exit(), None);
    guest.wait_for_stderr("Ann is lost or too slow; the game goes on without");
    let ticket = rejoin_ticket(&guest, "Ann");
    wait_for_more_frames(&bob, 120);
    let mut host = start_join(&dir, &ticket, &game, &["--name", "Ann", "--frame-log", path_arg(&again)]);
    guest.wait_for_stderr("Ann plays");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut guest);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// A guest in a terminal, which a person types into.
#[cfg(target_os = "linux")]
struct TerminalJoiner {
    script: std::process::Child,
    keys: std::process::ChildStdin,
}

#[cfg(target_os = "linux")]
impl TerminalJoiner {
    fn start_join(dir: &TestDir, ticket: &str, game: &Path, more: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_coplay");
        let line = format!(
            "stty cols 80 rows 30; exec {program} join '{ticket}' {} --terminal --mute --name Bob --bot 2 {more}",
            game.display()
        );
        let mut command = Command::new("script");
        dir.isolate(&mut command);
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
    fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let until = Instant::now() + TIMEOUT;
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
impl Drop for TerminalJoiner {
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
fn joiner_can_choose_to_go_on_alone_after_host_crash() {
    let (dir, game) = test_dir_with_game("trouble-host-crashed");
    let [log] = log_paths(&dir);
    let host = start_host(&dir, &game, &[]);
    let mut guest = TerminalJoiner::start_join(
        &dir,
        &host.ticket(),
        &game,
        &format!("--drop-after 1 --frame-log {}", log.display()),
    );
    wait_for_frame(&log, 60);
    host.send_signal("-KILL");
    // Frames that are predicted, and those that wait to be written, a hundred or so at a time, are fewer.
    let (killed_at, until) = (newest_frame(&log), Instant::now() + TIMEOUT);
    while newest_frame(&log) < killed_at + 400 {
        assert!(Instant::now() < until, "frame {} is still the newest", newest_frame(&log));
        // The key does nothing before it is offered, and nothing after it was taken.
        guest.press(F4);
        std::thread::sleep(Duration::from_millis(500));
    }
    guest.press(F10);
    let ended = guest.wait_for_exit();
    assert!(ended.success(), "{ended}");
}

#[test]
fn last_site_continues_alone() {
    let (dir, game) = test_dir_with_game("trouble-alone");
    let [log] = log_paths(&dir);
    let mut host =
        start_host(&dir, &game, &["--frames", "500", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&log)]);
    let mut guest = start_join(&dir, &host.ticket(), &game, &["--name", "Bob"]);
    wait_for_frame(&log, 30);
    guest.send_signal("-KILL");
    host.wait_for_stderr("Bob is lost or too slow; the game goes on without");
    host.assert_ends_well();
    assert_eq!(guest.wait_for_exit(), None);
}

#[test]
fn joiner_with_another_core_is_refused() {
    let (dir, game) = test_dir_with_game("trouble-core");
    let ours = coplay_testcores::build_core(coplay_testcores::CoreDefect::Honest);
    let theirs =
        coplay_testcores::build_core_with(coplay_testcores::TestCoreConfig { state_size: 2_048, ..Default::default() });
    let (ours, theirs) = (ours.path_string(), theirs.path_string());
    let args = ["host", "--core", &ours, "--headless", "--udp", "127.0.0.1:0", "--bot", "1", "--frames", "120"];
    let mut host = RunningProgram::start(&dir, &args);
    let ticket = host.ticket();
    let other = ["join", &ticket, "--core", &theirs, "--headless"];
    RunningProgram::start(&dir, &other).assert_fails(1, &["the host plays something else", "machine"]);
    let builtin = ["join", &ticket, path_arg(&game), "--headless"];
    RunningProgram::start(&dir, &builtin).assert_fails(1, &[]);
    // The right one plays, and its core needs no game.
    let mut guest =
        RunningProgram::start(&dir, &["join", &ticket, "--core", &ours, "--headless", "--bot", "2", "--frames", "120"]);
    host.assert_ends_well();
    guest.assert_ends_well();
}

/// A computer without any network, not even to itself.
#[test]
#[cfg(target_os = "linux")]
fn missing_network_is_reported() {
    let (dir, game) = test_dir_with_game("trouble-no-network");
    let alone = || {
        let mut command = Command::new("unshare");
        dir.isolate(&mut command);
        command.args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_coplay")]);
        command
    };
    let possible = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("left out: this system lets nobody make a network of its own");
        return;
    }
    let mut host =
        RunningProgram::start_command(alone(), &["host", path_arg(&game), "--headless", "--udp", "0", "--bot", "1"]);
    assert!(!host.ticket().is_empty());
    host.wait_for_stderr("no network");
    host.send_signal("-INT");
    assert_eq!(host.wait_for_exit(), Some(0), "{host}");
    let guest = ["join", "udp://192.0.2.1:7000#tennis", path_arg(&game), "--headless"];
    RunningProgram::start_command(alone(), &guest).assert_fails(1, &["nobody answers at 192.0.2.1:7000", "network"]);
    let named = ["join", "udp://host.example:7000#tennis", path_arg(&game), "--headless"];
    RunningProgram::start_command(alone(), &named)
        .assert_fails(1, &["there is no computer called", "is there a network?"]);
}

#[test]
fn invalid_impairment_is_a_usage_error() {
    let (dir, game) = test_dir_with_game("trouble-impair");
    for (how, words) in
        [("slow", "nothing is known about \"slow\""), ("loss=200", "loss must be a number from 0 to 100")]
    {
        let args = ["host", path_arg(&game), "--headless", "--impair", how];
        RunningProgram::start(&dir, &args).assert_fails(2, &[words, "--impair", "`coplay host --help`"]);
    }
}
