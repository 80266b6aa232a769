//! Servers in processes of their own.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_coplay-world");
pub(crate) const SECRET: &str = "three-servers";

/// A server in a process of its own; it ends with the test.
pub(crate) struct RunningServer {
    pub(crate) child: Child,
    pub(crate) player_port: u16,
    pub(crate) http_port: u16,
    /// What it says to people, a line at a time.
    pub(crate) stdout_lines: Lines<BufReader<ChildStdout>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port at which nobody listens, neither by UDP nor by TCP.
pub(crate) fn free_port() -> u16 {
    (0..100)
        .find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
            let port = tcp.local_addr().ok()?.port();
            UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
        })
        .expect("there is a free port")
}

/// Starts a server that knows others, with more to say to it.
pub(crate) fn start_server(port: u16, http: u16, peers: &[u16], more: &[&str]) -> RunningServer {
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--secret",
        SECRET,
        "--ninjas",
        "0",
        "--side",
        "6",
    ]);
    command.args(["--http", &http.to_string()]);
    for peer in peers {
        command.args(["--peer", &format!("127.0.0.1:{peer}")]);
    }
    command.args(more);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program runs");
    let says = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    RunningServer { child, player_port: port, http_port: http, stdout_lines: says }
}

pub(crate) fn http_get(http: u16, what: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", http)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {what} HTTP/1.1\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn wait_until_healthy(server: &RunningServer) {
    wait_for("a server's start", || {
        http_get(server.http_port, "/health").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    });
}

/// A field of what a server says of itself.
pub(crate) fn state_field(http: u16, name: &str) -> Option<String> {
    let state = http_get(http, "/state")?;
    let (_, rest) = state.split_once(&format!("\"{name}\":"))?;
    rest.split([',', '}']).next().map(str::to_owned)
}
