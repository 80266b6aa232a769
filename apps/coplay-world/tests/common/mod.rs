//! Helpers that run servers in processes of their own and query them over HTTP.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_coplay-world");
pub(crate) const SECRET: &str = "three-servers";

/// Server in a process of its own, which is killed when this is dropped.
pub(crate) struct RunningServer {
    pub(crate) child: Child,
    pub(crate) player_port: u16,
    pub(crate) http_port: u16,
    /// Standard output of the server, line by line.
    pub(crate) stdout_lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds a port on which no program listens, neither by UDP nor by TCP.
pub(crate) fn free_port() -> u16 {
    (0..100)
        .find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            let port = tcp.local_addr().ok()?.port();
            UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
        })
        .expect("a port is free")
}

/// Starts a server without ninjas, with a maze of 6 × 6 cells, these peers on this computer and further arguments.
pub(crate) fn start_server(player_port: u16, http_port: u16, peers: &[u16], more_args: &[&str]) -> RunningServer {
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--listen",
        &format!("127.0.0.1:{player_port}"),
        "--secret",
        SECRET,
        "--ninjas",
        "0",
        "--side",
        "6",
    ]);
    command.args(["--http", &http_port.to_string()]);
    for peer in peers {
        command.args(["--peer", &format!("127.0.0.1:{peer}")]);
    }
    command.args(more_args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let stdout_lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines();
    RunningServer { child, player_port, http_port, stdout_lines }
}

pub(crate) fn http_get(http_port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", http_port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn wait_for(condition: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "timed out waiting for {condition}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn wait_until_healthy(server: &RunningServer) {
    wait_for("a healthy server", || {
        http_get(server.http_port, "/health").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
}

/// Fetches the text of a field of a server's `/state`; `None` if the server does not answer or the field is missing.
pub(crate) fn state_field(http_port: u16, name: &str) -> Option<String> {
    let state = http_get(http_port, "/state")?;
    let (_, rest) = state.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next().map(str::to_owned)
}
