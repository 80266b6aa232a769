//! Tests of servers in processes of their own over real sockets: a crash and restart, a stop by SIGTERM, a server with
//! a different maze, `bench`, and the messages of commands that fail.

use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

use crate::common::{PROGRAM, RunningServer, SECRET, free_port, http_get, state_field, wait_for, wait_until_healthy};

const PLAYER_COUNT: u32 = 12;

fn start_plain_server(player_port: u16, http_port: u16, peers: &[u16]) -> RunningServer {
    crate::common::start_server(player_port, http_port, peers, &[])
}

#[test]
fn crashed_and_restarted_server_loses_no_player_state() {
    let first = start_plain_server(free_port(), free_port(), &[]);
    wait_until_healthy(&first);
    let second = start_plain_server(free_port(), free_port(), &[first.player_port]);
    let third = start_plain_server(free_port(), free_port(), &[first.player_port, second.player_port]);
    [&second, &third].into_iter().for_each(wait_until_healthy);
    wait_for("mutual verification", || {
        [&first, &second, &third].iter().all(|one| state_field(one.http_port, "mirrors").as_deref() == Some("2"))
    });

    let worlds = [&first, &second, &third].map(|server| format!("udp://127.0.0.1:{}#{SECRET}", server.player_port));
    let load = Command::new(PROGRAM)
        .arg("load")
        .args(&worlds)
        .args(["--players", &PLAYER_COUNT.to_string(), "--seconds", "20", "--impair", "delay=10,loss=2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let players = |server: &RunningServer| {
        state_field(server.http_port, "players").and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    wait_for("all players", || [&first, &second, &third].into_iter().map(players).sum::<u32>() == PLAYER_COUNT);
    wait_for("a player on the second server", || players(&second) > 0);
    let (player_port, http_port) = (second.player_port, second.http_port);
    drop(second);
    wait_for("the move to the other servers", || players(&first) + players(&third) == PLAYER_COUNT);
    let restarted = start_plain_server(player_port, http_port, &[first.player_port, third.player_port]);
    wait_until_healthy(&restarted);
    let Output { status, stdout, stderr } = load.wait_with_output().expect("the program ends");
    let (table, log) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{table}\n{log}");
    assert!(
        table.contains("12 of 12 in the world at the end")
            && table.contains("lost                  0 avatars, 0 acknowledged"),
        "{table}"
    );

    let all = [&first, &restarted, &third];
    wait_for("equal states on all servers", || {
        let quiet = all.iter().all(|server| state_field(server.http_port, "players").as_deref() == Some("0"));
        let digests: Vec<Option<String>> = all.iter().map(|server| state_field(server.http_port, "digest")).collect();
        quiet && digests[0].is_some() && digests.iter().all(|digest| *digest == digests[0])
    });
    assert!(
        state_field(restarted.http_port, "known_objects")
            .is_some_and(|known| known.parse::<u32>().is_ok_and(|known| known >= 12))
    );
}

#[test]
fn sigterm_shuts_the_server_down_cleanly() {
    let mut server = start_plain_server(free_port(), free_port(), &[]);
    wait_until_healthy(&server);
    assert!(http_get(server.http_port, "/metrics").is_some_and(|answer| answer.contains("coplay_world_players 0")));
    let killed = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let mut ended = None;
    wait_for("the end of the server", || {
        ended = server.child.try_wait().ok().flatten();
        ended.is_some()
    });
    assert!(ended.is_some_and(|status| status.success()));
}

/// A server that joins with a different maze must exit and name the flags of the expected maze. The server that is
/// already running must continue.
#[test]
fn server_with_mismatched_settings_exits_with_a_hint() {
    let first = crate::common::start_server(free_port(), free_port(), &[], &["--seed", "7"]);
    wait_until_healthy(&first);
    let peer = format!("127.0.0.1:{}", first.player_port);
    let listen = format!("127.0.0.1:{}", free_port());
    let common = ["serve", "--listen", &listen, "--peer", &peer, "--secret", SECRET, "--seconds", "30"];
    let other_maze = ["--seed", "8", "--side", "6", "--ninjas", "0"];
    let (code, stderr) = run_expecting_failure(&[&common[..], &other_maze].concat());
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("error: the server") && stderr.contains("has different settings for the maze or its ninjas"),
        "{stderr}"
    );
    assert!(stderr.contains("with --seed 7 --side 6 --ninjas 0:"), "{stderr}");
    assert!(!stderr.contains("no other server answers"), "{stderr}");
    wait_until_healthy(&first);
}

#[test]
fn bench_prints_the_carried_player_count() {
    let output = Command::new(PROGRAM)
        .args(["bench", "6", "--seconds", "3", "--policy", "off"])
        .stderr(Stdio::piped())
        .output()
        .expect("the program starts");
    let (table, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{table}\n{log}");
    let row = table.lines().find(|line| line.trim_start().starts_with("6  off")).expect("the table has a row");
    let numbers: Vec<f64> = row.split_whitespace().skip(2).map_while(|word| word.parse().ok()).collect();
    let [_p50, _p99, _late, _dropped, received, issued, ..] = numbers[..] else { panic!("{row}") };
    // The numbers depend on other load on the computer.
    assert!(received > 1.0 && received < 40.0 && issued > 1.0, "{table}");
    assert!(table.contains("\noff: "), "{table}");
    let (_, spread) = table.split_once("of the servers differed by ").expect("the summary mentions the clocks");
    assert!(spread.split(' ').next().is_some_and(|number| number.parse::<f64>().is_ok()), "{table}");
}

#[test]
#[cfg(unix)]
fn missing_sockets_are_reported() {
    let command =
        format!("ulimit -n 100; exec {PROGRAM} load udp://127.0.0.1:1#x --players 300 --rate 1000 --seconds 1");
    let output = Command::new("sh").args(["-c", &command]).output().expect("a shell exists");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("of 300 bots have no socket") && stderr.contains("ulimit -n 500"), "{stderr}");
}

/// Runs the program with arguments that make it fail. Returns its exit code and standard error.
fn run_expecting_failure(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).args(args).stdout(Stdio::null()).output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn invalid_arguments_fail_with_an_error_and_a_hint() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, code, expected) in [
        (&["serve", "--peer", "127.0.0.1:1"][..], 2, "missing --secret"),
        (&["serve", "--secret", "two words"], 2, "one word"),
        (&["serve", "--server-secret", ""], 2, "one word"),
        (&["serve", "--listen", &taken], 1, "choose another port or address with --listen"),
        (&["serve", "--zenoh", "/nowhere/at.all"], 2, "cannot use /nowhere/at.all as a zenoh configuration"),
        (&["load", "udp://127.0.0.1:1#a", "udp://127.0.0.1:1#b"], 2, "the same secret"),
        (&["load", "nonsense"], 2, "udp://HOST:PORT#SECRET"),
        (&[], 2, "error: missing subcommand\nhint: `coplay world --help` lists all commands\n"),
        (&["serv"], 2, "error: there is no command \"serv\"\nhint: did you mean `coplay world serve`?\n"),
        (&["serve", "--side", "3"], 2, "invalid value \"3\" for --side: must be a whole number from 4 to 128\n"),
        (&["serve", "--polcy", "off"], 2, "error: there is no option --polcy\nhint: did you mean --policy?\n"),
        (&["serve", "--policy", "x"], 2, "for --policy: must be off, on-off, ila or adaptive\n"),
        (&["load"], 2, "error: missing URL\nhint: `coplay world load --help` lists all options\n"),
    ] {
        let (got, stderr) = run_expecting_failure(args);
        assert_eq!(got, Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
