//! `bench`: how many players three servers carry on this computer.
//!
//! For each number of players and each policy three servers are started, software players press other buttons 25 times a second for a while, and the
//! servers are asked how long events took and what it cost. It ends when the 99th percentile is over the threshold with every policy.

use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use coplay::mirror::THRESHOLD;
use coplay_net::key::Secret;

use crate::cli::{Bench, PolicyName};
use crate::load::ask;
use crate::stop;
use crate::trouble::Trouble;

/// How many servers there are.
const SERVERS: usize = 3;
/// A server needs no longer to start.
const START: Duration = Duration::from_secs(20);
/// Policies that are compared, number by number.
const POLICIES: [PolicyName; 3] = [PolicyName::Ila, PolicyName::Off, PolicyName::Adaptive];

/// Measures, and prints a table as it grows.
pub fn run(args: &Bench) -> Result<ExitCode, Trouble> {
    stop::listen();
    println!(
        "players  policy    p50 ms  p99 ms   late %  dropped %  cpu % of a server  bytes/s out, in of a player  all in"
    );
    for players in &args.players {
        let mut carried = false;
        for policy in POLICIES {
            let row = measure(*players, policy, args.seconds)?;
            println!("{row}");
            carried |= row.is_carried();
            if stop::is_asked() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !carried {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Servers in processes of their own; they end when this does.
struct Servers {
    children: Vec<Child>,
    ports: Vec<u16>,
    doors: Vec<String>,
    secret: String,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Servers {
    fn start(policy: PolicyName) -> Result<Self, Trouble> {
        let mut servers = Self { children: vec![], ports: vec![], doors: vec![], secret: Secret::random_text() };
        for _ in 0..SERVERS {
            let (port, http) = (free_port()?, free_port()?);
            let mut command = own_program()?;
            command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--secret", &servers.secret]);
            command.args(["--ninjas", "0", "--side", "64", "--policy", policy.name(), "--http", &http.to_string()]);
            servers.ports.iter().for_each(|peer| _ = command.args(["--peer", &format!("127.0.0.1:{peer}")]));
            let child =
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| not_started(&error))?;
            servers.children.push(child);
            servers.ports.push(port);
            servers.doors.push(format!("127.0.0.1:{http}"));
            servers.wait_for_last()?;
        }
        Ok(servers)
    }

    fn wait_for_last(&self) -> Result<(), Trouble> {
        let (until, others) = (Instant::now() + START, self.doors.len() - 1);
        while Instant::now() < until {
            let state = self.doors.last().and_then(|door| ask(door).ok()).unwrap_or_default();
            if number(&state, "mirrors") == others as f64 && state.contains("\"open\":true") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(Trouble::failure("a server does not start", "try coplay world serve, and see what it says"))
    }

    fn states(&self) -> Vec<String> {
        self.doors.iter().map(|door| ask(door).unwrap_or_default()).collect()
    }
}

/// What it was like with so many players.
struct Row {
    players: u32,
    policy: PolicyName,
    states: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
    load: String,
}

fn measure(players: u32, policy: PolicyName, seconds: u32) -> Result<Row, Trouble> {
    let servers = Servers::start(policy)?;
    let cpu = |states: &[String]| states.iter().map(|state| number(state, "cpu_seconds")).sum::<f64>();
    let before = cpu(&servers.states());
    let began = Instant::now();
    let mut command = own_program()?;
    command.arg("load").args(servers.ports.iter().map(|port| format!("udp://127.0.0.1:{port}#{}", servers.secret)));
    command.args([
        "--players",
        &players.to_string(),
        "--seconds",
        &seconds.to_string(),
        "--rate",
        "200",
        "--commands",
        "25",
    ]);
    let output = command.stderr(Stdio::null()).output().map_err(|error| not_started(&error))?;
    // The last numbers are told a moment later.
    std::thread::sleep(Duration::from_millis(600));
    let states = servers.states();
    let cpu_seconds = cpu(&states) - before;
    let load = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Row { players, policy, states, seconds: began.elapsed().as_secs_f64(), cpu_seconds, load })
}

impl Row {
    fn sum(&self, name: &str) -> f64 {
        self.states.iter().map(|state| number(state, name)).sum()
    }

    fn worst(&self, name: &str) -> f64 {
        self.states.iter().map(|state| number(state, name)).fold(0.0, f64::max)
    }

    /// Whether nearly all events came in time.
    fn is_carried(&self) -> bool {
        self.worst("delay_p99_ms") <= THRESHOLD.as_millis_f64()
    }

    /// A line of what the software players tell.
    fn told(&self, what: &str) -> &str {
        self.load.lines().find_map(|line| line.strip_prefix(what)).map_or("", str::trim)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let delivered = self.sum("delivered").max(1.0);
        let percent = |name: &str| 100.0 * self.sum(name) / delivered;
        let cpu = 100.0 * self.cpu_seconds / self.seconds / SERVERS as f64;
        let bytes = self.told("bytes a second").replace(", for each player", "");
        write!(
            f,
            "{:7}  {:8}  {:6.0}  {:6.0}  {:7.2}  {:9.2}  {cpu:17.1}  {bytes:27}  {}",
            self.players,
            self.policy.name(),
            self.worst("delay_p50_ms"),
            self.worst("delay_p99_ms"),
            percent("late"),
            percent("dropped"),
            self.told("players").split(" in the").next().unwrap_or_default(),
        )
    }
}

/// A number of what a server says of itself; 0 if it does not say.
fn number(state: &str, name: &str) -> f64 {
    let rest = state.split_once(&format!("\"{name}\":")).map_or("", |(_, rest)| rest);
    rest.split([',', '}']).next().and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn own_program() -> Result<Command, Trouble> {
    std::env::current_exe().map(Command::new).map_err(|error| not_started(&error))
}

fn not_started(error: &std::io::Error) -> Trouble {
    Trouble::failure(format!("servers cannot be started: {error}"), "is the system overloaded?")
}

/// A port at which nobody listens, neither by UDP nor by TCP.
fn free_port() -> Result<u16, Trouble> {
    let free = (0..100).find_map(|_| {
        let tcp = TcpListener::bind("127.0.0.1:0").ok()?;
        let port = tcp.local_addr().ok()?.port();
        UdpSocket::bind(("127.0.0.1", port)).ok().map(|_| port)
    });
    free.ok_or_else(|| Trouble::failure("there is no free port", "is the system overloaded?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_servers_say() {
        let state = "{\"source\":\"0a\",\"late\":12,\"cpu_seconds\":3.50}";
        assert_eq!((number(state, "late"), number(state, "cpu_seconds"), number(state, "other")), (12.0, 3.5, 0.0));
    }
}
