//! Four players over a bad network, two spectators and a late joiner, with an incompressible state of 1 MiB, in real
//! processes. The players must keep more than 60 % of their frame rate while spectators connect, stop and are killed,
//! and while the late joiner joins.

#![cfg(unix)]

use std::path::{Path, PathBuf};

use crate::common::run::{RunningProgram, assert_confirmed_equal, read_steps, wait_for_more_frames};
use crate::common::{TestDir, path_arg};
use coplay::time::Instant;
use coplay_net::clock;
use coplay_testcores::{TestCore, TestCoreConfig, build_core_with};

/// Size of the machine's state, in bytes.
const STATE_SIZE: usize = 1 << 20;
/// Number of frames in each phase, counted at Ann; in the phase of the late joiner, at that joiner.
const PHASE_FRAMES: u32 = 120;
/// Smallest frame rate of a phase, as a share of the rate before there were spectators. Players that waited for a
/// stopped spectator would play no frames at all. The margin is for other load on the computer.
const MIN_FRAME_RATE_SHARE: f64 = 0.6;

/// Test directory with the frame logs of all sites, and the core of the game.
struct SpectatedGame {
    dir: TestDir,
    core: TestCore,
}

impl SpectatedGame {
    /// Starts a site with 10 % packet loss, 10 ms of delay and 5 ms of jitter.
    fn start_site(&self, name: &str, args: &[&str]) -> RunningProgram {
        let seed = name.bytes().fold(0, |seed, byte| seed * 31 + u64::from(byte));
        let (core, impair) = (self.core.path_string(), format!("delay=10,jitter=5,loss=10,seed={seed}"));
        let log = self.log_path(name);
        let common =
            ["--core", &core, "--headless", "--name", name, "--impair", &impair, "--frame-log", path_arg(&log)];
        RunningProgram::start(&self.dir, &[args, &common[..]].concat())
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir.path_of(&format!("{name}.csv"))
    }

    /// Waits until Ann has played the frames of a phase, and returns the time at which the phase began.
    fn run_phase(&self) -> Instant {
        let start = clock::now();
        wait_for_more_frames(&self.log_path("Ann"), PHASE_FRAMES);
        start
    }
}

/// Returns the frames per second in a log between two times, without resimulated frames.
fn frame_rate(log: &Path, from: Instant, until: Instant) -> f64 {
    let within = |start: i64| (from.as_nanos()..until.as_nanos()).contains(&start);
    let shown = read_steps(log).iter().filter(|step| !step.is_resimulated && within(step.start_nanos)).count();
    shown as f64 / (until - from).as_secs_f64()
}

#[test]
fn spectators_and_late_joiner_do_not_slow_players() {
    let core = build_core_with(TestCoreConfig { state_size: STATE_SIZE, players: 5, ..TestCoreConfig::default() });
    let game = SpectatedGame { dir: TestDir::new("net-seven"), core };
    let host = ["host", "--udp", "127.0.0.1:0", "--players", "5", "--bot", "1"];
    let ann = game.start_site("Ann", &host);
    let ticket = ann.ticket();
    let play = |name| game.start_site(name, &["join", &ticket, "--bot", "2"]);
    let mut players = Vec::from(["Bob", "Cid", "Dan", "Hal"].map(play));
    // A player leaves, so that there is a seat for the late joiner.
    wait_for_more_frames(&game.log_path("Hal"), 60);
    let mut hal = players.pop().expect("four players joined");
    hal.send_signal("-INT");
    hal.assert_ends_well();
    ann.wait_for_stderr("Hal left");

    let mut phases = vec![("no spectators", game.run_phase())];
    let (mut eve, fay) = (game.start_site("Eve", &["watch", &ticket]), game.start_site("Fay", &["watch", &ticket]));
    phases.push(("two spectators connect", game.run_phase()));
    ["Eve", "Fay"].iter().for_each(|name| wait_for_more_frames(&game.log_path(name), 60));
    eve.send_signal("-STOP");
    phases.push(("one spectator is stopped", game.run_phase()));
    fay.send_signal("-KILL");
    phases.push(("the other one is killed", game.run_phase()));
    let start = clock::now();
    let mut gus = game.start_site("Gus", &["join", &ticket, "--bot", "3"]);
    ann.wait_for_stderr("Gus joined");
    wait_for_more_frames(&game.log_path("Gus"), PHASE_FRAMES);
    phases.push(("a player joins late", start));
    eve.send_signal("-CONT");
    phases.push(("the stopped spectator continues", game.run_phase()));
    wait_for_more_frames(&game.log_path("Eve"), 60);
    phases.push(("the end", clock::now()));

    eve.send_signal("-INT");
    eve.assert_ends_well();
    gus.send_signal("-INT");
    gus.assert_ends_well();
    players.push(ann);
    for player in &mut players {
        player.send_signal("-INT");
        player.assert_ends_well();
        assert!(!player.err().contains("was dropped"), "{player}");
    }
    for name in ["Bob", "Cid", "Dan", "Hal", "Eve", "Fay", "Gus"] {
        let common = assert_confirmed_equal(&game.log_path("Ann"), &game.log_path(name), 0);
        assert!(common > 30, "only {common} confirmed frames of {name}");
    }
    for name in ["Ann", "Bob", "Cid", "Dan"] {
        let log = game.log_path(name);
        let rates: Vec<(&str, f64)> =
            phases.windows(2).map(|two| (two[0].0, frame_rate(&log, two[0].1, two[1].1))).collect();
        let min = rates[0].1 * MIN_FRAME_RATE_SHARE;
        assert!(rates.iter().all(|(_, rate)| *rate > min), "frames per second of {name}: {rates:?}");
    }
}
