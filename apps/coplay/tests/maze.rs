//! Mazes of real processes over real sockets, with ninjas as players.

use std::path::{Path, PathBuf};

use coplay_maze::drift::{DriftSummary, Trace, measure_drift};

use crate::common::run::RunningProgram;
use crate::common::{TestDir, path_arg};

/// Duration of a maze in seconds: enough for all sites to join, play and agree, even on a busy computer.
const MAZE_SECONDS: &str = "14";

fn start_maze_host(dir: &TestDir, more: &[&str]) -> RunningProgram {
    let all = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "off", "--name", "Ann"];
    RunningProgram::start(dir, &[&all[..], more].concat())
}

fn start_maze_join(dir: &TestDir, ticket: &str, name: &str, more: &[&str]) -> RunningProgram {
    RunningProgram::start(dir, &[&["maze", "join", ticket, "--headless", "--name", name], more].concat())
}

/// Reads the trace that a site wrote.
fn read_trace(path: &Path) -> Trace {
    let text = std::fs::read(path).expect("the trace can be read");
    Trace::parse(&String::from_utf8_lossy(&text)).unwrap_or_else(|error| panic!("{} {error}", path.display()))
}

/// Measures the drift between the sites of these traces after their first 3 s.
fn measure(traces: &[Trace]) -> DriftSummary {
    let series = measure_drift(traces, 3_000_000_000);
    DriftSummary::from_distances(series.iter().flat_map(|series| &series.samples).map(|sample| sample.distance))
}

#[test]
fn three_sites_have_low_drift_and_equal_scores() {
    let dir = TestDir::new("maze-three");
    let traces: [PathBuf; 3] = ["ann", "bob", "cid"].map(|name| dir.path_of(name));
    let stats = dir.path_of("ann.json");
    let flags = |trace| ["--rate", "25", "--ninjas", "2", "--seconds", MAZE_SECONDS, "--trace", path_arg(trace)];
    let mut ann =
        start_maze_host(&dir, &[&flags(&traces[0])[..], &["--seed", "7", "--stats", path_arg(&stats)]].concat());
    let ticket = ann.ticket();
    let mut bob = start_maze_join(&dir, &ticket, "Bob", &flags(&traces[1]));
    let impaired = ["--impair", "loss=10,burst=4,seed=3"];
    let mut cid = start_maze_join(&dir, &ticket, "Cid", &[&flags(&traces[2])[..], &impaired].concat());
    for run in [&mut ann, &mut bob, &mut cid] {
        assert_eq!(run.wait_for_exit(), Some(0), "{run}");
        assert!(run.out().contains("\npeer ") && run.out().contains("\nplayed "), "{run}");
    }
    let traces = traces.map(|path| read_trace(&path));
    let without_loss = measure(&traces[..2]);
    assert!(without_loss.mean < 16.0 && without_loss.count > 100, "{without_loss:?}");
    let all = measure(&traces);
    assert!(all.share_under_50 > 0.8, "{all:?}");
    let scores = traces.each_ref().map(Trace::final_scores);
    assert!(!scores[0].is_empty() && scores.iter().all(|other| *other == scores[0]), "{scores:?}");
    let stats = std::fs::read_to_string(&stats).unwrap();
    assert!(stats.contains("\"rtt_ms\":") && stats.contains("\"offset_ms\":"), "{stats}");
}

#[test]
#[cfg(unix)]
fn maze_continues_when_a_site_is_killed_or_leaves() {
    let dir = TestDir::new("maze-killed");
    let (killed, whole) = (dir.path_of("bob"), dir.path_of("eve"));
    let mut ann = start_maze_host(&dir, &["--seconds", "20", "--trace", path_arg(&dir.path_of("ann"))]);
    let ticket = ann.ticket();
    let mut bob = start_maze_join(&dir, &ticket, "Bob", &["--trace", path_arg(&killed)]);
    let mut cid = start_maze_join(&dir, &ticket, "Cid", &["--seconds", "16"]);
    let mut eve = start_maze_join(&dir, &ticket, "Eve", &["--trace", path_arg(&whole)]);
    for name in ["Bob", "Cid", "Eve"] {
        ann.wait_for_stderr(&format!("{name} joined"));
    }
    cid.wait_for_stderr("Bob joined");
    std::thread::sleep(std::time::Duration::from_secs(5));
    bob.send_signal("-KILL");
    assert_eq!(bob.wait_for_exit(), None);
    eve.send_signal("-INT");
    assert_eq!(eve.wait_for_exit(), Some(0), "{eve}");
    ann.wait_for_stderr("Eve left");
    ann.wait_for_stderr("Bob was silent for 10 s and was dropped");
    cid.wait_for_stderr("Bob was silent for 10 s and was dropped");
    assert_eq!(cid.wait_for_exit(), Some(0), "{cid}");
    assert_eq!(ann.wait_for_exit(), Some(0), "{ann}");
    // The trace of the killed site can be read, even with an incomplete last line.
    assert!(measure(&[&dir.path_of("ann"), &killed, &whole].map(|path| read_trace(path))).count > 0);
}

#[test]
fn maze_rejects_wrong_secret_and_wrong_kind() {
    let dir = TestDir::new("maze-outside");
    let maze = start_maze_host(&dir, &["--secret", "tennis"]);
    let ticket = maze.ticket();
    start_maze_join(&dir, &ticket.replace("#tennis", "#squash"), "Eve", &[])
        .assert_fails(1, &["rejected the secret of the ticket"]);
    RunningProgram::start(&dir, &["join", &ticket, "--headless"]).assert_fails(1, &["coplay maze join"]);
    let game = RunningProgram::start(&dir, &["host", "--headless", "--udp", "127.0.0.1:0"]);
    start_maze_join(&dir, &game.ticket(), "Eve", &[]).assert_fails(1, &["not to a maze", "`coplay join 'TICKET'`"]);
    assert!(!maze.err().contains("joined"), "{maze}");
}

#[test]
fn invalid_maze_arguments_are_explained() {
    let dir = TestDir::new("maze-wrong");
    let nowhere = dir.path_of("no/such/dir");
    start_maze_host(&dir, &["--trace", path_arg(&nowhere)]).assert_fails(1, &["cannot write", "no such folder"]);
    start_maze_host(&dir, &["--stats", path_arg(&nowhere)]).assert_fails(1, &["cannot write"]);
    start_maze_host(&dir, &["--rate", "30"]).assert_fails(2, &["50 or 100 updates per second"]);
    start_maze_host(&dir, &["--playout-delay", "15"]).assert_fails(2, &["must be a multiple of 10 ms"]);
    start_maze_host(&dir, &["--delay", "15"]).assert_fails(2, &["must be a multiple of 10 ms", "--playout-delay"]);
    start_maze_host(&dir, &["--bucket", "0"]).assert_fails(2, &["must be a multiple of 10 ms"]);
    start_maze_host(&dir, &["--ninjas", "32"]).assert_fails(2, &["a whole number from 0 to 31"]);
    let off = ["maze", "host", "--headless", "--udp", "127.0.0.1:0", "--multicast", "10.0.0.1:5000"];
    RunningProgram::start(&dir, &off).assert_fails(1, &["is not a multicast address"]);
    start_maze_join(&dir, "tennis", "Eve", &[]).assert_fails(2, &["invalid ticket"]);
}
