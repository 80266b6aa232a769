//! Three servers in processes of their own, and the state that they report over HTTP.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use coplay_net::key::Secret;
use coplay_shell::error::AppError;

use crate::cli::PolicyName;
use crate::load::fetch_state;

pub(super) const SERVER_COUNT: usize = 3;
/// Longest time for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time for a server to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Niceness of the servers: a higher number is a lower priority.
const NICENESS: &str = "5";

/// Servers in processes of their own, which end when this is dropped.
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
    pub(super) fn start(policy: PolicyName) -> Result<Self, AppError> {
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

    fn wait_until_last_is_ready(&self) -> Result<(), AppError> {
        let (until, others) = (Instant::now() + START_TIMEOUT, self.http_addrs.len() - 1);
        while Instant::now() < until {
            let state = ServerStateJson(
                self.http_addrs.last().and_then(|http_addr| fetch_state(http_addr).ok()).unwrap_or_default(),
            );
            if state.number("mirrors") == others as f64 && state.0.contains("\"open\":true") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(AppError::failure("a server did not start within 20 s")
            .hint("run `coplay world serve` and read its messages"))
    }

    /// Returns the UDP address of each server, for the bots.
    pub(super) fn player_addrs(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect()
    }

    pub(super) fn secret(&self) -> Secret {
        Secret::from_text(&self.secret)
    }

    /// Fetches the state of each server. Fails if a server does not answer within 10 s.
    pub(super) fn states(&self) -> Result<Vec<ServerStateJson>, AppError> {
        self.http_addrs.iter().map(|http_addr| fetch_state_with_retry(http_addr)).collect()
    }
}

fn fetch_state_with_retry(http_addr: &str) -> Result<ServerStateJson, AppError> {
    let until = Instant::now() + ANSWER_TIMEOUT;
    while Instant::now() < until {
        if let Ok(state) = fetch_state(http_addr)
            && state.starts_with('{')
        {
            return Ok(ServerStateJson(state));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(AppError::failure("a server did not answer for 10 s")
        .hint("give smaller numbers of players, such as `coplay world bench 50 100`"))
}

/// State of a server as JSON, as its `/state` reports it.
#[derive(Clone, Debug)]
pub(super) struct ServerStateJson(String);

impl ServerStateJson {
    #[cfg(test)]
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    fn text_after_key(&self, name: &str) -> &str {
        self.0.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest)
    }

    /// Returns the number under a key; 0 if the key is missing.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.text_after_key(name).split([',', '}']).next().and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Returns the list of numbers under a key; empty if the key is missing.
    pub(super) fn numbers(&self, name: &str) -> Vec<u64> {
        let list =
            self.text_after_key(name).strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or_default();
        list.split(',').filter_map(|value| value.parse().ok()).collect()
    }
}

/// Returns the command for this program, at a lower priority than the bots where the system supports it.
fn own_command() -> Result<Command, AppError> {
    let own = std::env::current_exe().map_err(|error| spawn_error(&error))?;
    let can_be_nice = cfg!(unix) && Command::new("nice").stdout(Stdio::null()).status().is_ok();
    if !can_be_nice {
        return Ok(Command::new(own));
    }
    let mut nice = Command::new("nice");
    nice.args(["-n", NICENESS]).arg(own);
    Ok(nice)
}

fn spawn_error(error: &std::io::Error) -> AppError {
    AppError::failure(format!("cannot start a server: {error}"))
        .hint("close other programs and run the same command again")
}

/// Finds a port of this computer on which no program listens, neither by UDP nor by TCP.
fn free_port() -> Result<u16, AppError> {
    let free = (0..100).find_map(|_| {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = tcp.local_addr().ok()?.port();
        UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    free.ok_or_else(|| {
        AppError::failure("no free port on 127.0.0.1").hint("close other programs and run the same command again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_from_server_state() {
        let state = ServerStateJson(
            "{\"source\":\"0a\",\"late\":12,\"delays\":[3,0,7],\"none\":[],\"cpu_seconds\":3.50}\n".into(),
        );
        assert_eq!((state.number("late"), state.number("cpu_seconds"), state.number("other")), (12.0, 3.5, 0.0));
        assert_eq!((state.numbers("delays"), state.numbers("none")), (vec![3, 0, 7], vec![]));
        assert!(state.numbers("other").is_empty());
    }
}
