//! Faults of computers and networks: real processes that are suspended or killed, lose packets, change their address or
//! never connect. The tests check what the sites report, and, where a game goes on with several sites, that their
//! states are equal.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use crate::common::router::NatRouter;
#[cfg(target_os = "linux")]
use crate::common::run::TIMEOUT;
use crate::common::run::{
    RunningProgram, assert_confirmed_equal, assert_equal_before, interrupt_in_order, log_paths, newest_frame,
    start_host, start_join, stat_value, test_dir_with_game, wait_for_frame, wait_for_more_frames,
};
use crate::common::{TestDir, path_arg};

/// Value of `--drop-after` in most tests: silence in seconds after which a player is dropped. On a busy computer a
/// process can stop for more than a second, and must not be dropped for that.
const DROP_AFTER: &str = "3";
/// Largest number of games that are played to reach a speed. Other load on the computer can slow down any of them.
const SPEED_TRIALS: usize = 3;

/// Suspends a joiner, as a closed laptop does, until it is dropped, and resumes it `duration` later. It must rejoin its
/// seat, and its confirmed states must equal the host's.
fn suspend_and_rejoin(name: &str, drop_after: &str, duration: Duration) {
    let (dir, game) = test_dir_with_game(name);
    let [ann, bob] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", drop_after, "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--name", "Bob", "--drop-after", drop_after, "--frame-log", path_arg(&bob)];
    let mut joiner = start_join(&dir, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    joiner.send_signal("-STOP");
    host.wait_for_stderr("Bob was dropped");
    std::thread::sleep(duration);
    let resumed_at = newest_frame(&ann);
    joiner.send_signal("-CONT");
    joiner.wait_for_stderr("rejoins the game now");
    host.wait_for_stderr("Bob joined");
    wait_for_more_frames(&bob, 200);
    interrupt_in_order(&mut joiner, &mut host);
    assert!(host.err().contains("Bob left"), "{host}");
    let together = assert_confirmed_equal(&ann, &bob, resumed_at);
    assert!(together > 30, "only {together} frames together after the suspension");
}

#[test]
fn suspended_site_rejoins_its_seat() {
    suspend_and_rejoin("fault-asleep", DROP_AFTER, Duration::from_secs(13));
}

#[test]
#[ignore = "takes more than a minute"]
fn site_suspended_for_a_minute_rejoins_its_seat() {
    suspend_and_rejoin("fault-minute", DROP_AFTER, Duration::from_secs(60));
}

/// In a game of two sites, the joiner alone is not a quorum: it must wait, and no frame may be lost when the host is
/// back.
#[test]
fn joiner_waits_for_a_suspended_host_and_continues() {
    let (dir, game) = test_dir_with_game("fault-host-asleep");
    let [ann, bob] = log_paths(&dir);
    let mut host =
        start_host(&dir, &game, &["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let args = ["--drop-after", DROP_AFTER, "--frames", "600", "--frame-log", path_arg(&bob)];
    let mut joiner = start_join(&dir, &ticket, &game, &args);
    wait_for_frame(&bob, 60);
    host.send_signal("-STOP");
    joiner.wait_for_stderr("waiting for Ann");
    std::thread::sleep(Duration::from_secs(4));
    host.send_signal("-CONT");
    joiner.wait_for_stderr("resumed after");
    host.assert_ends_well();
    joiner.assert_ends_well();
    assert!(!host.err().contains("was dropped") && !joiner.err().contains("was dropped"), "{host}{joiner}");
    assert_eq!(assert_equal_before(600, &ann, &bob), 600);
}

/// Builds a library that shifts the wall clock of a program by the number of seconds in the file `$WRONG_CLOCK`.
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
    assert!(compile.status().expect("a C compiler is installed").success());
    library
}

/// Setting the wall clock must have no effect, neither during a game nor between a crash and the next start.
#[test]
#[cfg(target_os = "linux")]
fn wall_clock_changes_do_not_matter() {
    let (dir, game) = test_dir_with_game("fault-clock");
    let library = build_wrong_clock_library(&dir);
    let (joiner_clock, host_clock) = (dir.write_file("joiner", b"7200"), dir.write_file("host", b"0"));
    let with_clock = |clock: &Path, program: &str| {
        let mut command = Command::new(program);
        dir.isolate(&mut command);
        command.env("LD_PRELOAD", &library).env("WRONG_CLOCK", clock);
        command
    };
    let start = |clock: &Path, args: &[&str]| RunningProgram::start_command(with_clock(clock, crate::PROGRAM), args);
    // The clocks really differ; otherwise the test proves nothing.
    let seconds = |clock: &Path| -> i64 {
        let out = with_clock(clock, "date").arg("+%s").output().expect("date is installed");
        String::from_utf8_lossy(&out.stdout).trim().parse().expect("seconds")
    };
    assert!((7_100..7_300).contains(&(seconds(&joiner_clock) - seconds(&host_clock))));

    let [ann, bob, again] = log_paths(&dir);
    let host = ["host", path_arg(&game), "--headless", "--udp", "127.0.0.1:0", "--name", "Ann", "--bot", "1"];
    let mut host =
        start(&host_clock, &[&host[..], &["--drop-after", DROP_AFTER, "--frame-log", path_arg(&ann)]].concat());
    let ticket = host.ticket();
    let joiner = |log: &Path| {
        let args = ["join", &ticket, path_arg(&game), "--headless", "--bot", "2", "--name", "Bob"];
        start(&joiner_clock, &[&args[..], &["--drop-after", DROP_AFTER, "--frame-log", path_arg(log)]].concat())
    };
    let mut first = joiner(&bob);
    wait_for_frame(&ann, 30);
    for shift in ["-86400", "31536000", "0"] {
        dir.write_file("host", shift.as_bytes());
        wait_for_more_frames(&ann, 30);
    }
    assert!(first.is_running() && !host.err().contains("was dropped"), "{host}{first}");
    first.send_signal("-KILL");
    host.wait_for_stderr("Bob was dropped");
    dir.write_file("joiner", b"-200000");
    let mut second = joiner(&again);
    host.wait_for_stderr("Bob joined");
    wait_for_more_frames(&again, 150);
    interrupt_in_order(&mut second, &mut host);
    assert!(assert_confirmed_equal(&ann, &again, 0) > 30, "{host}{second}");
}

/// The host's uplink delay of 400 ms is much too long for the input delay, so the joiner stalls the game and must be
/// dropped.
#[test]
fn slow_peer_is_dropped_with_drop_stalled() {
    let (dir, game) = test_dir_with_game("fault-late");
    let [ann, bob] = log_paths(&dir);
    let slow = ["--impair", "delay=400"];
    let delays = ["--delay", "2", "--prediction", "0", "--drop-stalled", "0.5", "--frame-log", path_arg(&ann)];
    let host = start_host(&dir, &game, &[&delays[..], &slow].concat());
    let joiner = start_join(&dir, &host.ticket(), &game, &["--frame-log", path_arg(&bob)]);
    host.wait_for_stderr("was dropped (silent, too slow or restarted); the game continues");
    wait_for_more_frames(&ann, 120);
    let (mut host, mut joiner) = (host, joiner);
    interrupt_in_order(&mut joiner, &mut host);
    assert_confirmed_equal(&ann, &bob, 0);
}

/// Plays with 20 % packet loss in each direction, and asserts equal states. Returns the frames per second of the slower
/// site.
fn play_with_packet_loss(name: &str, frames: u32) -> f64 {
    let (dir, game) = test_dir_with_game(name);
    let [ann, bob] = log_paths(&dir);
    let stats = [dir.path_of("ann.json"), dir.path_of("bob.json")];
    let count = frames.to_string();
    let args = |log, stats, loss| {
        ["--frames", &count, "--frame-log", path_arg(log), "--stats", path_arg(stats), "--impair", loss]
            .map(str::to_owned)
    };
    let (for_ann, for_bob) = (args(&ann, &stats[0], "loss=20,seed=3"), args(&bob, &stats[1], "loss=20,seed=4"));
    let delays = ["--delay", "2", "--prediction", "8"];
    let longer = Duration::from_secs(u64::from(frames) / 20);
    let host = start_host(&dir, &game, &[&delays[..], &for_ann.each_ref().map(String::as_str)].concat());
    let ticket = host.ticket();
    let mut joiner =
        start_join(&dir, &ticket, &game, &for_bob.each_ref().map(String::as_str)).with_extra_timeout(longer);
    let mut host = host.with_extra_timeout(longer);
    host.assert_ends_well();
    joiner.assert_ends_well();
    assert_eq!(assert_equal_before(frames, &ann, &bob), frames as usize);
    assert!(!host.err().contains("was dropped"), "{host}");
    for stats in &stats {
        let loss = stat_value(stats, "loss");
        assert!((0.08..0.35).contains(&loss), "measured a packet loss of {loss}");
    }
    stats.iter().map(|stats| stat_value(stats, "fps")).fold(f64::INFINITY, f64::min)
}

/// Plays up to [`SPEED_TRIALS`] games with packet loss, and asserts that one of them is fast enough.
fn assert_speed_with_packet_loss(name: &str, frames: u32, min_fps: f64) {
    let mut speeds = (0..SPEED_TRIALS).map(|trial| play_with_packet_loss(&format!("{name}-{trial}"), frames));
    assert!(speeds.any(|fps| fps > min_fps), "no game of {SPEED_TRIALS} reached {min_fps} fps");
}

#[test]
fn twenty_percent_packet_loss_keeps_speed() {
    // Another test may run on the same processors.
    assert_speed_with_packet_loss("fault-loss", 600, 45.0);
}

#[test]
#[ignore = "takes a minute, and needs an idle computer"]
fn twenty_percent_packet_loss_for_a_minute_keeps_speed() {
    assert_speed_with_packet_loss("fault-loss-minute", 3_600, 59.5);
}

/// The joiner's address changes twice during the game: no site may be dropped.
#[test]
fn address_change_behind_nat_keeps_the_session() {
    let (dir, game) = test_dir_with_game("fault-moved");
    let [ann, bob] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--frames", "700", "--frame-log", path_arg(&ann)]);
    let ticket = host.ticket();
    let (addr, secret) = ticket.strip_prefix("udp://").and_then(|rest| rest.split_once('#')).expect("a ticket");
    let router = NatRouter::in_front_of(addr.parse().expect("an address"));
    let ticket = format!("udp://{}#{secret}", router.addr());
    let mut joiner =
        start_join(&dir, &ticket, &game, &["--name", "Bob", "--frames", "700", "--frame-log", path_arg(&bob)]);
    for _ in 0..2 {
        wait_for_more_frames(&bob, 100);
        router.move_joiner();
    }
    host.assert_ends_well();
    joiner.assert_ends_well();
    assert!(router.delivered() > 60, "datagrams did not pass the router: {host}{joiner}");
    assert!(!host.err().contains("was dropped"), "{host}");
    assert_eq!(assert_equal_before(700, &ann, &bob), 700);
}

/// The host of a game of two sites is killed. The headless joiner is not a quorum: it must end after a timeout, with a
/// hint that says how to return.
#[test]
fn joiner_of_a_dead_host_times_out_with_a_hint() {
    let (dir, game) = test_dir_with_game("fault-host-dead");
    let host = start_host(&dir, &game, &[]);
    let [log] = log_paths(&dir);
    let mut joiner = start_join(&dir, &host.ticket(), &game, &["--drop-after", "0.5", "--frame-log", path_arg(&log)]);
    wait_for_frame(&log, 30);
    host.send_signal("-KILL");
    joiner.wait_for_stderr("waiting for Ann");
    joiner.assert_fails(1, &["silent players did not return within 12 times the time of --drop-after", "your seat"]);
}

/// Starts Ann (the host), Bob and Eve, each with a frame log, and waits until all of them play.
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
    // Bob gets the seat before Eve.
    ann.wait_for_stderr("Bob (seat 2");
    let eve = start_join(dir, &ticket, game, &[&["--name", "Eve"], &args(&logs[2])[..]].concat());
    logs.iter().for_each(|log| wait_for_frame(log, 30));
    [("Ann", ann), ("Bob", bob), ("Eve", eve)]
}

/// Kills one of three sites: the other two must drop it and have equal states.
fn kill_one_of_three(name: &str, killed: usize) {
    let (dir, game) = test_dir_with_game(name);
    let logs = log_paths(&dir);
    let mut all = start_three_sites(&dir, &game, &logs, &["--frames", "500"]);
    all[killed].1.send_signal("-KILL");
    assert_eq!(all[killed].1.wait_for_exit(), None);
    let dropped = format!("{} was dropped", all[killed].0);
    let [one, other] = match killed {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    };
    for survivor in [one, other] {
        all[survivor].1.wait_for_stderr(&dropped);
        all[survivor].1.assert_ends_well();
    }
    assert_eq!(assert_equal_before(500, &logs[one], &logs[other]), 500);
}

#[test]
fn two_sites_continue_when_the_host_dies() {
    kill_one_of_three("fault-three-host", 0);
}

#[test]
fn two_sites_continue_when_a_joiner_dies() {
    kill_one_of_three("fault-three-joiner", 1);
}

/// While the host is suspended, another site becomes the roster leader. It must stay the leader when the host is back:
/// the host's old ticket then leads joiners to that leader, and all sites have the same roster.
#[test]
fn single_roster_leader_after_suspended_host_returns() {
    let (dir, game) = test_dir_with_game("fault-one-list");
    let logs = log_paths(&dir);
    let [(_, ann), (_, bob), (_, eve)] = start_three_sites(&dir, &game, &logs, &[]);
    ann.send_signal("-STOP");
    bob.wait_for_stderr("Ann was dropped");
    bob.wait_for_stderr("the ticket has changed; to join:");
    eve.wait_for_stderr("the ticket has changed; to join:");
    ann.send_signal("-CONT");
    ann.wait_for_stderr("rejoins the game now");
    bob.wait_for_stderr("Ann joined");
    let _watch = RunningProgram::start(&dir, &["watch", &ann.ticket(), path_arg(&game), "--headless"]);
    [&ann, &bob, &eve].iter().for_each(|run| run.wait_for_stderr("1 watching"));
    eve.send_signal("-INT");
    bob.wait_for_stderr("Eve left");
    let log = dir.path_of("gus.csv");
    let mut gus = start_join(&dir, &ann.ticket(), &game, &["--name", "Gus", "--frame-log", path_arg(&log)]);
    [&ann, &bob].iter().for_each(|run| run.wait_for_stderr("Gus (seat 3"));
    [&ann, &bob].iter().for_each(|run| run.wait_for_stderr("Gus joined"));
    wait_for_more_frames(&log, 150);
    gus.send_signal("-INT");
    gus.assert_ends_well();
    let (mut ann, mut bob) = (ann, bob);
    interrupt_in_order(&mut ann, &mut bob);
    assert!(assert_confirmed_equal(&logs[0], &logs[1], 0) > 30 && assert_confirmed_equal(&logs[1], &log, 0) > 30);
}

/// The host of a game of two sites is killed. The joiner must print a ticket of its own, with which the host rejoins.
#[test]
fn killed_host_rejoins_by_the_joiners_ticket() {
    let (dir, game) = test_dir_with_game("fault-host-again");
    let [ann, bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", DROP_AFTER, "--frame-log", path_arg(&ann)]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&bob)];
    let mut joiner = start_join(&dir, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 30);
    host.send_signal("-KILL");
    assert_eq!(host.wait_for_exit(), None);
    joiner.wait_for_stderr("the ticket has changed; to join:");
    let err = joiner.err();
    let ticket = err
        .split("the ticket has changed; to join:")
        .nth(1)
        .and_then(|rest| rest.split('\'').nth(1))
        .expect("a ticket");
    let args = ["--name", "Ann", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&again)];
    let mut host = start_join(&dir, ticket, &game, &args);
    joiner.wait_for_stderr("Ann joined");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut joiner);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// Waits for the notice to the last remaining player, and returns the ticket in the notice.
#[track_caller]
fn rejoin_ticket(run: &RunningProgram, name: &str) -> String {
    let notice = format!("you play on alone; to rejoin, {name} can type:");
    run.wait_for_stderr(&notice);
    let err = run.err();
    let rest = err.split(&notice).last().expect("the notice was printed");
    rest.split('\'').nth(1).expect("a ticket in quotes").to_owned()
}

/// Asserts that the program still runs after 3 s, and waits until it has played 120 further frames.
#[track_caller]
fn assert_continues(run: &mut RunningProgram, log: &Path) {
    std::thread::sleep(Duration::from_secs(3));
    assert!(run.is_running(), "the program ended by itself: {run}");
    wait_for_more_frames(log, 120);
}

#[test]
fn host_continues_alone_and_joiner_rejoins() {
    let (dir, game) = test_dir_with_game("fault-joiner-left");
    let [ann, bob, again] = log_paths(&dir);
    let movie = dir.path_of("ann.movie");
    let mut host = start_host(&dir, &game, &["--frame-log", path_arg(&ann), "--record", path_arg(&movie)]);
    let mut joiner = start_join(&dir, &host.ticket(), &game, &["--name", "Bob", "--frame-log", path_arg(&bob)]);
    wait_for_frame(&bob, 60);
    joiner.send_signal("-INT");
    joiner.assert_ends_well();
    host.wait_for_stderr("Bob left");
    assert_continues(&mut host, &ann);
    let ticket = rejoin_ticket(&host, "Bob");
    let mut joiner = start_join(&dir, &ticket, &game, &["--name", "Bob", "--frame-log", path_arg(&again)]);
    host.wait_for_stderr("Bob joined");
    wait_for_more_frames(&again, 150);
    assert!(joiner.err().contains("Bob (seat 2"), "{joiner}");
    interrupt_in_order(&mut joiner, &mut host);
    assert!(assert_confirmed_equal(&ann, &again, 0) > 30);
    // The movie has all frames, with and without the joiner.
    let replay = dir.run(&["replay", path_arg(&movie), path_arg(&game), "--headless"]);
    assert!(replay.code == Some(0) && replay.out.contains("all equal"), "{replay:?}");
    assert!(
        replay.row_value("frames").parse::<u32>().is_ok_and(|frames| frames > newest_frame(&bob) + 120),
        "{replay:?}"
    );
}

#[test]
fn joiner_continues_alone_and_host_rejoins() {
    let (dir, game) = test_dir_with_game("fault-host-left");
    let [ann, bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--frame-log", path_arg(&ann)]);
    let mut joiner = start_join(&dir, &host.ticket(), &game, &["--name", "Bob", "--frame-log", path_arg(&bob)]);
    wait_for_frame(&bob, 60);
    host.send_signal("-INT");
    host.assert_ends_well();
    joiner.wait_for_stderr("Ann left");
    assert_continues(&mut joiner, &bob);
    let ticket = rejoin_ticket(&joiner, "Ann");
    let mut host = start_join(&dir, &ticket, &game, &["--name", "Ann", "--frame-log", path_arg(&again)]);
    joiner.wait_for_stderr("Ann joined");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut joiner);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// With `--go-on-alone`, the headless joiner of a killed host must play on alone.
#[test]
fn go_on_alone_flag_continues_after_host_death_and_host_rejoins() {
    let (dir, game) = test_dir_with_game("fault-go-on-alone");
    let [bob, again] = log_paths(&dir);
    let mut host = start_host(&dir, &game, &["--drop-after", DROP_AFTER]);
    let args = ["--name", "Bob", "--drop-after", DROP_AFTER, "--go-on-alone", "--frame-log", path_arg(&bob)];
    let mut joiner = start_join(&dir, &host.ticket(), &game, &args);
    wait_for_frame(&bob, 60);
    host.send_signal("-KILL");
    assert_eq!(host.wait_for_exit(), None);
    joiner.wait_for_stderr("Ann was dropped (silent, too slow or restarted); the game continues");
    let ticket = rejoin_ticket(&joiner, "Ann");
    wait_for_more_frames(&bob, 120);
    let mut host = start_join(&dir, &ticket, &game, &["--name", "Ann", "--frame-log", path_arg(&again)]);
    joiner.wait_for_stderr("Ann joined");
    wait_for_more_frames(&again, 150);
    assert!(host.err().contains("Ann (seat 1"), "{host}");
    interrupt_in_order(&mut host, &mut joiner);
    assert!(assert_confirmed_equal(&bob, &again, 0) > 30);
}

/// Joiner in a terminal, with simulated key presses.
#[cfg(target_os = "linux")]
struct TerminalJoiner {
    script: std::process::Child,
    keys: std::process::ChildStdin,
}

#[cfg(target_os = "linux")]
impl TerminalJoiner {
    fn start_join(dir: &TestDir, ticket: &str, game: &Path, more: &str) -> Self {
        let program = crate::PROGRAM;
        let line = format!(
            "stty cols 80 rows 30; exec {program} join '{ticket}' {} --terminal --mute --name Bob --bot 2 {more}",
            game.display()
        );
        let mut command = Command::new("script");
        dir.isolate(&mut command);
        command.args(["-qc", &line, "/dev/null"]).env("COLORTERM", "truecolor").env("USER", "tester");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
        let mut script = command.spawn().expect("script comes with every Linux");
        let keys = script.stdin.take().expect("stdin is piped");
        Self { script, keys }
    }

    fn press(&mut self, key: &[u8]) {
        use std::io::Write;
        self.keys.write_all(key).expect("the terminal is open");
    }

    /// Waits until the program ends. Panics after the timeout.
    fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.script.try_wait().expect("the process can be waited for") {
                return status;
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

/// Bytes that a terminal sends for F4.
#[cfg(target_os = "linux")]
const F4: &[u8] = b"\x1bOS";
/// Bytes that a terminal sends for F10.
#[cfg(target_os = "linux")]
const F10: &[u8] = b"\x1b[21~";

/// A player whose host was killed must be able to play on alone by pressing F4.
#[test]
#[cfg(target_os = "linux")]
fn joiner_can_choose_to_go_on_alone_after_host_crash() {
    let (dir, game) = test_dir_with_game("fault-host-crashed");
    let [log] = log_paths(&dir);
    let host = start_host(&dir, &game, &[]);
    let mut joiner = TerminalJoiner::start_join(
        &dir,
        &host.ticket(),
        &game,
        &format!("--drop-after 1 --frame-log {}", log.display()),
    );
    wait_for_frame(&log, 60);
    host.send_signal("-KILL");
    // Predicted frames, and frames that wait to be written (about 100 at a time), are fewer than 400.
    let (killed_at, until) = (newest_frame(&log), Instant::now() + TIMEOUT);
    while newest_frame(&log) < killed_at + 400 {
        assert!(Instant::now() < until, "frame {} is still the newest", newest_frame(&log));
        // F4 has no effect before the program offers to play on alone, and after it has accepted.
        joiner.press(F4);
        std::thread::sleep(Duration::from_millis(500));
    }
    joiner.press(F10);
    let status = joiner.wait_for_exit();
    assert!(status.success(), "{status}");
}

#[test]
fn last_site_continues_alone() {
    let (dir, game) = test_dir_with_game("fault-alone");
    let [log] = log_paths(&dir);
    let mut host =
        start_host(&dir, &game, &["--frames", "500", "--drop-after", DROP_AFTER, "--frame-log", path_arg(&log)]);
    let mut joiner = start_join(&dir, &host.ticket(), &game, &["--name", "Bob"]);
    wait_for_frame(&log, 30);
    joiner.send_signal("-KILL");
    host.wait_for_stderr("Bob was dropped (silent, too slow or restarted); the game continues");
    host.assert_ends_well();
    assert_eq!(joiner.wait_for_exit(), None);
}

#[test]
fn joiner_with_another_core_is_refused() {
    let (dir, game) = test_dir_with_game("fault-core");
    let ours = coplay_testcores::build_core(coplay_testcores::CoreDefect::Honest);
    let theirs =
        coplay_testcores::build_core_with(coplay_testcores::TestCoreConfig { state_size: 2_048, ..Default::default() });
    let (ours, theirs) = (ours.path_string(), theirs.path_string());
    let args = ["host", "--core", &ours, "--headless", "--udp", "127.0.0.1:0", "--bot", "1", "--frames", "120"];
    let mut host = RunningProgram::start(&dir, &args);
    let ticket = host.ticket();
    let other = ["join", &ticket, "--core", &theirs, "--headless"];
    RunningProgram::start(&dir, &other)
        .assert_fails(1, &["on this computer differs from the host's", "the hash of the first frames differs"]);
    let builtin = ["join", &ticket, path_arg(&game), "--headless"];
    RunningProgram::start(&dir, &builtin).assert_fails(1, &[]);
    // The same core joins, and needs no game.
    let mut joiner =
        RunningProgram::start(&dir, &["join", &ticket, "--core", &ours, "--headless", "--bot", "2", "--frames", "120"]);
    host.assert_ends_well();
    joiner.assert_ends_well();
}

/// Without any network, not even an active loopback interface, a host must warn and a joiner must fail with a hint.
#[test]
#[cfg(target_os = "linux")]
fn missing_network_is_reported() {
    let (dir, game) = test_dir_with_game("fault-no-network");
    let without_network = || {
        let mut command = Command::new("unshare");
        dir.isolate(&mut command);
        command.args(["--map-root-user", "--net", crate::PROGRAM]);
        command
    };
    let possible = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system does not permit a network namespace");
        return;
    }
    let mut host = RunningProgram::start_command(
        without_network(),
        &["host", path_arg(&game), "--headless", "--udp", "0", "--bot", "1"],
    );
    assert!(!host.ticket().is_empty());
    host.wait_for_stderr("no network");
    host.send_signal("-INT");
    assert_eq!(host.wait_for_exit(), Some(0), "{host}");
    let joiner = ["join", "udp://192.0.2.1:7000#tennis", path_arg(&game), "--headless"];
    RunningProgram::start_command(without_network(), &joiner)
        .assert_fails(1, &["no answer from 192.0.2.1:7000", "network"]);
    let named = ["join", "udp://host.example:7000#tennis", path_arg(&game), "--headless"];
    RunningProgram::start_command(without_network(), &named)
        .assert_fails(1, &["cannot resolve host host.example", "there is a network"]);
}

#[test]
fn invalid_impairment_is_a_usage_error() {
    let (dir, game) = test_dir_with_game("fault-impair");
    for (impairment, message) in
        [("slow", "unknown impairment \"slow\""), ("loss=200", "loss must be a number from 0 to 100")]
    {
        let args = ["host", path_arg(&game), "--headless", "--impair", impairment];
        RunningProgram::start(&dir, &args).assert_fails(2, &[message, "--impair", "`coplay host --help`"]);
    }
}
