//! Four play over a bad network, two look on, and one comes late, with a state of a megabyte that cannot be packed: seven real processes.
//! Whatever those who look on do, those who play cannot tell.

#![cfg(unix)]

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::run::{RunningProgram, assert_confirmed_equal, read_steps, wait_for_more_frames};
use common::{TestDir, path_arg};
use coplay::time::Instant;
use coplay_net::clock;
use coplay_testcores::{TestCore, TestCoreConfig, build_core_with};

/// Bytes of the machine's state.
const STATE_SIZE: usize = 1 << 20;
/// Frames of each part of the game.
const PHASE_FRAMES: u32 = 120;
/// No part may have fewer frames per second than this share of what there was before anybody looked on: who waits for somebody that
/// stands still has none at all. The computer may have other things to do.
const MIN_FRAME_RATE_SHARE: f64 = 0.6;

/// The game, and everybody's logs.
struct SpectatedGame {
    dir: TestDir,
    core: TestCore,
}

impl SpectatedGame {
    /// Somebody comes, over a network that loses one packet of ten and delays the others by more or less.
    fn start_site(&self, name: &str, args: &[&str]) -> RunningProgram {
        let seed = name.bytes().fold(0, |seed, byte| seed * 31 + u64::from(byte));
        let (core, impair) = (self.core.path_string(), format!("delay=10,jitter=5,loss=10,seed={seed}"));
        let log = self.log_path(name);
        let usual = ["--core", &core, "--headless", "--name", name, "--impair", &impair, "--frame-log", path_arg(&log)];
        RunningProgram::start(&self.dir, &[args, &usual[..]].concat())
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir.path_of(&format!("{name}.csv"))
    }

    /// The game goes on for a while; since when.
    fn run_phase(&self) -> Instant {
        let since = clock::now();
        wait_for_more_frames(&self.log_path("Ann"), PHASE_FRAMES);
        since
    }
}

/// Frames per second that were seen between two moments.
fn frame_rate(log: &Path, from: Instant, until: Instant) -> f64 {
    let within = |start: i64| (from.as_nanos()..until.as_nanos()).contains(&start);
    let seen = read_steps(log).iter().filter(|step| !step.is_resimulated && within(step.start_nanos)).count();
    seen as f64 / (until - from).as_secs_f64()
}

#[test]
fn spectators_and_late_joiner_do_not_slow_players() {
    let core = build_core_with(TestCoreConfig { state_size: STATE_SIZE, players: 5, ..TestCoreConfig::default() });
    let stadium = SpectatedGame { dir: TestDir::new("net-seven"), core };
    let host = ["host", "--udp", "127.0.0.1:0", "--players", "5", "--bot", "1"];
    let ann = stadium.start_site("Ann", &host);
    let ticket = ann.ticket();
    let play = |name| stadium.start_site(name, &["join", &ticket, "--bot", "2"]);
    let mut players = Vec::from(["Bob", "Cid", "Dan", "Hal"].map(play));
    // Somebody gives a seat back, so that there is one for who comes late.
    wait_for_more_frames(&stadium.log_path("Hal"), 60);
    let mut hal = players.pop().expect("four came");
    hal.send_signal("-INT");
    hal.assert_ends_well();
    ann.wait_for_stderr("Hal left");

    let mut parts = vec![("nobody looks on", stadium.run_phase())];
    let (mut eve, fay) =
        (stadium.start_site("Eve", &["watch", &ticket]), stadium.start_site("Fay", &["watch", &ticket]));
    parts.push(("two come to look on", stadium.run_phase()));
    ["Eve", "Fay"].iter().for_each(|name| wait_for_more_frames(&stadium.log_path(name), 60));
    eve.send_signal("-STOP");
    parts.push(("one of them stands still", stadium.run_phase()));
    fay.send_signal("-KILL");
    parts.push(("the other dies", stadium.run_phase()));
    let since = clock::now();
    let mut gus = stadium.start_site("Gus", &["join", &ticket, "--bot", "3"]);
    ann.wait_for_stderr("Gus plays");
    wait_for_more_frames(&stadium.log_path("Gus"), PHASE_FRAMES);
    parts.push(("one comes late", since));
    eve.send_signal("-CONT");
    parts.push(("who stood still goes on", stadium.run_phase()));
    wait_for_more_frames(&stadium.log_path("Eve"), 60);
    parts.push(("the end", clock::now()));

    eve.send_signal("-INT");
    eve.assert_ends_well();
    gus.send_signal("-INT");
    gus.assert_ends_well();
    players.push(ann);
    for player in &mut players {
        player.send_signal("-INT");
        player.assert_ends_well();
        assert!(!player.err().contains("is lost"), "{player}");
    }
    for name in ["Bob", "Cid", "Dan", "Hal", "Eve", "Fay", "Gus"] {
        let common = assert_confirmed_equal(&stadium.log_path("Ann"), &stadium.log_path(name), 0);
        assert!(common > 30, "only {common} frames are known of {name}");
    }
    for name in ["Ann", "Bob", "Cid", "Dan"] {
        let log = stadium.log_path(name);
        let paces: Vec<(&str, f64)> =
            parts.windows(2).map(|two| (two[0].0, frame_rate(&log, two[0].1, two[1].1))).collect();
        let least = paces[0].1 * MIN_FRAME_RATE_SHARE;
        assert!(paces.iter().all(|(_, pace)| *pace > least), "frames per second of {name}: {paces:?}");
    }
}
