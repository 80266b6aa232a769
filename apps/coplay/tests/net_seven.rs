//! Four play over a bad network, two look on, and one comes late, with a state of a megabyte that cannot be packed: seven real processes.
//! Whatever those who look on do, those who play cannot tell.

#![cfg(unix)]

#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod common;

use std::path::{Path, PathBuf};

use common::run::{Run, assert_agree, steps, wait_for_more};
use common::{Place, arg};
use coplay::time::Instant;
use coplay_net::clock;
use coplay_testcores::{CoreConfig, TestCore, build_core_with};

/// Bytes of the machine's state.
const STATE: usize = 1 << 20;
/// Frames of each part of the game.
const PART: u32 = 120;
/// No part may have fewer frames per second than this share of what there was before anybody looked on: who waits for somebody that
/// stands still has none at all. The computer may have other things to do.
const SHARE: f64 = 0.6;

/// The game, and everybody's logs.
struct Stadium {
    place: Place,
    core: TestCore,
}

impl Stadium {
    /// Somebody comes, over a network that loses one packet of ten and delays the others by more or less.
    fn enter(&self, name: &str, args: &[&str]) -> Run {
        let seed = name.bytes().fold(0, |seed, byte| seed * 31 + u64::from(byte));
        let (core, impair) = (self.core.path_string(), format!("delay=10,jitter=5,loss=10,seed={seed}"));
        let log = self.log(name);
        let usual = ["--core", &core, "--headless", "--name", name, "--impair", &impair, "--frame-log", arg(&log)];
        Run::start(&self.place, &[args, &usual[..]].concat())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.place.at(&format!("{name}.csv"))
    }

    /// The game goes on for a while; since when.
    fn go_on(&self) -> Instant {
        let since = clock::now();
        wait_for_more(&self.log("Ann"), PART);
        since
    }
}

/// Frames per second that were seen between two moments.
fn pace(log: &Path, from: Instant, until: Instant) -> f64 {
    let within = |start: i64| (from.as_nanos()..until.as_nanos()).contains(&start);
    let seen = steps(log).iter().filter(|step| !step.again && within(step.start)).count();
    seen as f64 / (until - from).as_secs_f64()
}

#[test]
fn who_plays_cannot_tell_what_those_do_who_look_on() {
    let core = build_core_with(CoreConfig { state_size: STATE, players: 5, ..CoreConfig::default() });
    let stadium = Stadium { place: Place::new("net-seven"), core };
    let host = ["host", "--udp", "127.0.0.1:0", "--players", "5", "--bot", "1"];
    let ann = stadium.enter("Ann", &host);
    let ticket = ann.ticket();
    let play = |name| stadium.enter(name, &["join", &ticket, "--bot", "2"]);
    let mut players = Vec::from(["Bob", "Cid", "Dan", "Hal"].map(play));
    // Somebody gives a seat back, so that there is one for who comes late.
    wait_for_more(&stadium.log("Hal"), 60);
    let mut hal = players.pop().expect("four came");
    hal.signal("-INT");
    hal.assert_ends_well();
    ann.wait_for("Hal left");

    let mut parts = vec![("nobody looks on", stadium.go_on())];
    let (mut eve, fay) = (stadium.enter("Eve", &["watch", &ticket]), stadium.enter("Fay", &["watch", &ticket]));
    parts.push(("two come to look on", stadium.go_on()));
    ["Eve", "Fay"].iter().for_each(|name| wait_for_more(&stadium.log(name), 60));
    eve.signal("-STOP");
    parts.push(("one of them stands still", stadium.go_on()));
    fay.signal("-KILL");
    parts.push(("the other dies", stadium.go_on()));
    let since = clock::now();
    let mut gus = stadium.enter("Gus", &["join", &ticket, "--bot", "3"]);
    ann.wait_for("Gus plays");
    wait_for_more(&stadium.log("Gus"), PART);
    parts.push(("one comes late", since));
    eve.signal("-CONT");
    parts.push(("who stood still goes on", stadium.go_on()));
    wait_for_more(&stadium.log("Eve"), 60);
    parts.push(("the end", clock::now()));

    eve.signal("-INT");
    eve.assert_ends_well();
    gus.signal("-INT");
    gus.assert_ends_well();
    players.push(ann);
    for player in &mut players {
        player.signal("-INT");
        player.assert_ends_well();
        assert!(!player.err().contains("is lost"), "{player}");
    }
    for name in ["Bob", "Cid", "Dan", "Hal", "Eve", "Fay", "Gus"] {
        let common = assert_agree(&stadium.log("Ann"), &stadium.log(name), 0);
        assert!(common > 30, "only {common} frames are known of {name}");
    }
    for name in ["Ann", "Bob", "Cid", "Dan"] {
        let log = stadium.log(name);
        let paces: Vec<(&str, f64)> = parts.windows(2).map(|two| (two[0].0, pace(&log, two[0].1, two[1].1))).collect();
        let least = paces[0].1 * SHARE;
        assert!(paces.iter().all(|(_, pace)| *pace > least), "frames per second of {name}: {paces:?}");
    }
}
