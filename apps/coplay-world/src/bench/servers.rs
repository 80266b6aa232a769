//! Three servers in processes of their own, and what they say of themselves.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coplay_net::key::Secret;

use crate::cli::PolicyName;
use crate::error::CliError;
use crate::load::fetch_state;

/// How many servers there are.
pub(super) const SERVER_COUNT: usize = 3;
/// A server needs no longer to start, or to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Whoever has a higher number is served later by the system.
const NICENESS: &str = "5";

/// Servers in processes of their own; they end when this does.
pub(super) struct ServerProcesses {
    children: Vec<Child>,
    ports: Vec<u16>,
    http_addrs: Vec<String>,
    secret: String,
}

impl Drop for ServerProcesses {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl ServerProcesses {
    pub(super) fn start(policy: PolicyName) -> Result<Self, CliError> {
        let mut servers = Self { children: vec![], ports: vec![], http_addrs: vec![], secret: Secret::random_text() };
        for _ in 0..SERVER_COUNT {
            let (port, http) = (free_port()?, free_port()?);
            let mut command = own_command()?;
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--secret", &servers.secret]);
            command.args(["--ninjas", "0", "--side", "64", "--policy", policy.name(), "--http", &http.to_string()]);
            servers.ports.iter().for_each(|peer| _ = command.args(["--peer", &format!("127.0.0.1:{peer}")]));
            let child =
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| spawn_error(&error))?;
            servers.children.push(child);
            servers.ports.push(port);
            servers.http_addrs.push(format!("127.0.0.1:{http}"));
            servers.wait_until_last_is_ready()?;
        }
        Ok(servers)
    }

    fn wait_until_last_is_ready(&self) -> Result<(), CliError> {
        let (until, others) = (Instant::now() + START_TIMEOUT, self.http_addrs.len() - 1);
        while Instant::now() < until {
            let state = ServerState(self.http_addrs.last().and_then(|door| fetch_state(door).ok()).unwrap_or_default());
            if state.number("mirrors") == others as f64 && state.0.contains("\"open\":true") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(CliError::failure("a server does not start", "try coplay world serve, and see what it says"))
    }

    /// Where players find them.
    pub(super) fn player_addrs(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }

    /// What players must know.
    pub(super) fn secret(&self) -> Secret {
        Secret::from_text(&self.secret)
    }

    /// What each of them says of itself.
    pub(super) fn states(&self) -> Result<Vec<ServerState>, CliError> {
        self.http_addrs.iter().map(|door| fetch_state_with_retry(door)).collect()
    }
}

fn fetch_state_with_retry(door: &str) -> Result<ServerState, CliError> {
    let until = Instant::now() + ANSWER_TIMEOUT;
    while Instant::now() < until {
        if let Ok(state) = fetch_state(door)
            && state.starts_with('{')
        {
            return Ok(ServerState(state));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(CliError::failure("a server does not answer any more", "try coplay world serve, and see what it says"))
}

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(super) struct ServerState(String);

impl ServerState {
    /// As if a server had said so.
    #[cfg(test)]
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    fn text_after_key(&self, name: &str) -> &str {
        self.0.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest)
    }

    /// A number; 0 if it is not said.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.text_after_key(name).split([',', '}']).next().and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Several of them; none if they are not said.
    pub(super) fn numbers(&self, name: &str) -> Vec<u64> {
        let list =
            self.text_after_key(name).strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or_default();
        list.split(',').filter_map(|value| value.parse().ok()).collect()
    }
}

/// This program, so that whoever plays comes before it, where the system can do that.
fn own_command() -> Result<Command, CliError> {
    let own = std::env::current_exe().map_err(|error| spawn_error(&error))?;
    let can_be_nice = cfg!(unix) && Command::new("nice").stdout(Stdio::null()).status().is_ok();
    if !can_be_nice {
        return Ok(Command::new(own));
    }
    let mut nice = Command::new("nice");
    nice.args(["-n", NICENESS]).arg(own);
    Ok(nice)
}

fn spawn_error(error: &std::io::Error) -> CliError {
    CliError::failure(format!("servers cannot be started: {error}"), "is the system overloaded?")
}

/// A port at which nobody listens, neither by UDP nor by TCP.
fn free_port() -> Result<u16, CliError> {
    let free = (0..100).find_map(|_| {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = tcp.local_addr().ok()?.port();
        UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    free.ok_or_else(|| CliError::failure("there is no free port", "is the system overloaded?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_from_server_state() {
        let state =
            ServerState("{\"source\":\"0a\",\"late\":12,\"delays\":[3,0,7],\"none\":[],\"cpu_seconds\":3.50}\n".into());
        assert_eq!((state.number("late"), state.number("cpu_seconds"), state.number("other")), (12.0, 3.5, 0.0));
        assert_eq!((state.numbers("delays"), state.numbers("none")), (vec![3, 0, 7], vec![]));
        assert!(state.numbers("other").is_empty());
    }
}
