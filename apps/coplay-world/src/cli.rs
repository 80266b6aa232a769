//! Command line of `coplay-world`: subcommands, options and the parsers of their values.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use coplay::mirror::{DEFAULT_GIT, DropCurve, DropPolicy};
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;
use coplay_net::ticket::Ticket;
use coplay_shell::values::{parse_seed, whole_number};

/// Run and test servers of a shared world
#[derive(Debug, Parser)]
#[command(name = "coplay world", bin_name = "coplay world", version)]
pub struct Cli {
    /// Subcommand that the user chose.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one of the servers of a world
    Serve(ServeArgs),
    /// Connect bots to a world, and report lost scores, delays and traffic
    Load(LoadArgs),
    /// Measure how many players three servers carry on this computer
    ///
    /// Every bot changes its buttons 16 times a second. The servers carry a number of players if all of them join, 95 %
    /// of their commands arrive, and 99 % of the events between servers are delivered within 150 ms. Bots and servers
    /// share this computer. Where the system has the command `nice`, the bots have priority, so that the servers reach
    /// their limit first; the table marks measurements in which the bots were too slow. A number that the servers do
    /// not carry is measured a second time.
    Bench(BenchArgs),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Listen on this port, or address and port: UDP for players, and TCP for other servers
    #[arg(long, value_name = "ADDR", default_value = "7700", value_parser = parse_listen_addr)]
    pub listen: SocketAddr,
    /// Connect to the server of the world at this address, or at this zenoh endpoint, such as tls/HOST:PORT; repeat the
    /// flag for more servers
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_peer)]
    pub peer: Vec<String>,
    /// Admit only players and servers with this secret; required with --peer [default: a random one]
    #[arg(long, value_name = "WORD")]
    pub secret: Option<String>,
    /// Admit only servers with this secret, equal on all servers and unknown to players; without this flag a player
    /// could act as a server
    #[arg(long, value_name = "WORD")]
    pub server_secret: Option<String>,
    /// Announce this address to players [default: the address of this computer, with the port of --listen]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_public_addr)]
    pub public: Option<SocketAddr>,
    /// Also admit players by iroh, which works through most routers; the server prints a ticket that is valid until the
    /// server stops
    #[arg(long)]
    pub iroh: bool,
    /// Use this relay for iroh players without a direct connection: `none`, `default` or a URL [default: `default`]
    #[arg(long, value_name = "RELAY", requires = "iroh")]
    pub relay: Option<RelayConfig>,
    /// Generate the maze from this seed, a whole number, equal on all servers [default: derived from the secret]
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Set the number of cells on each side of the maze, 4 to 128, equal on all servers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole_number(4..=128u8))]
    pub side: u8,
    /// Set the number of ninjas (avatars that software controls) in the world, 0 to 100, equal on all servers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole_number(0..=100u8))]
    pub ninjas: u8,
    /// Drop obsolete events of other servers by this policy
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = PolicyName::Adaptive)]
    pub policy: PolicyName,
    /// Serve /health, /metrics (Prometheus) and /state over HTTP on this address and port; a port alone listens on
    /// 127.0.0.1, which only this computer can reach
    #[arg(long, value_name = "ADDR", value_parser = parse_http_addr)]
    pub http: Option<SocketAddr>,
    /// Read the zenoh configuration from this file, for routers and TLS; --peer replaces its endpoints to connect to,
    /// and --listen is used unless the file sets an endpoint to listen on
    #[arg(long, value_name = "FILE")]
    pub zenoh: Option<PathBuf>,
    /// Simulate bad links to the players: see `coplay host --help` for the format
    #[arg(long, value_name = "IMPAIRMENT", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// Write the log to standard error in this format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogStyle::Text)]
    pub log: LogStyle,
    /// Stop after this many seconds [default: no limit]
    #[arg(long, value_name = "N", value_parser = whole_number(0..=u32::MAX))]
    pub seconds: Option<u32>,
}

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Address of a server of the world, as udp://HOST:PORT#SECRET; give several to connect to several servers
    #[arg(required = true, num_args = 1.., value_name = "URL", value_parser = parse_world_ticket)]
    pub world: Vec<Ticket>,
    /// Connect this many bots, 1 to 20000
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole_number(1..=20_000u32))]
    pub players: u32,
    /// Play for this many seconds after the start of the last bot, 1 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole_number(1..=86_400u32))]
    pub seconds: u32,
    /// Connect this many bots per second, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number(1..=10_000u32))]
    pub rate: u32,
    /// Change the buttons of each bot this many times per second, 1 to 25; with 0, each bot plays like a ninja (an
    /// avatar that software controls) and chooses its own buttons
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole_number(0..=25u32))]
    pub commands: u32,
    /// Simulate bad uplinks of the bots: see `coplay host --help` for the format
    #[arg(long, value_name = "IMPAIRMENT", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// At the end, print /state of the server that runs with this --http address; repeat the flag for more servers
    #[arg(long, value_name = "ADDR", value_parser = parse_http_addr)]
    pub http: Vec<SocketAddr>,
    /// Derive the decisions of the bots from this seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Measure these numbers of players, 1 to 4000 each, and stop after a number that the servers carry with none of
    /// the policies [default: double the number until the servers do not carry it, then bisect]
    #[arg(value_name = "PLAYERS", value_parser = whole_number(1..=4_000u32))]
    pub players: Vec<u32>,
    /// Measure for this many seconds each time, 2 to 3600, once all bots have joined
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = whole_number(2..=3_600u32))]
    pub seconds: u32,
    /// Start no further measurement after this many minutes, 1 to 1000
    #[arg(long, value_name = "MINUTES", default_value_t = 9, value_parser = whole_number(1..=1_000u32))]
    pub minutes: u32,
    /// Compare this policy; repeat the flag for more policies
    #[arg(long, value_name = "POLICY", value_enum, default_values_t = [PolicyName::Ila, PolicyName::Off, PolicyName::Adaptive])]
    pub policy: Vec<PolicyName>,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// Text for people
    Text,
    /// One JSON object per line, for programs
    Json,
}

/// Drop policies that can be chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Drop no events, except missing obsolete events of servers that are gone
    Off,
    /// Drop all obsolete events whenever the oldest waiting event is older than 150 ms
    OnOff,
    /// Drop obsolete events with a probability that grows with the average age of the oldest waiting event, from 0 at
    /// 50 ms to 20 % at 150 ms, and drop all from 150 ms on (ILA of Palazzi et al.)
    Ila,
    /// Drop obsolete events that are older than 150 ms, or that would delay other events beyond 150 ms
    Adaptive,
}

impl PolicyName {
    /// Returns the name of the policy on the command line and in the table of `bench`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::OnOff => "on-off",
            Self::Ila => "ila",
            Self::Adaptive => "adaptive",
        }
    }

    /// Returns the drop policy: with a threshold of 150 ms for `on-off` and `adaptive`, with the paper's curve for
    /// `ila`.
    pub fn policy(self) -> DropPolicy {
        match self {
            Self::Off => DropPolicy::Off,
            Self::OnOff => DropPolicy::OnOff { threshold: DEFAULT_GIT },
            Self::Ila => DropPolicy::Ila(DropCurve::PAPER),
            Self::Adaptive => DropPolicy::Adaptive { threshold: DEFAULT_GIT },
        }
    }
}

/// Parses an address to listen on. A port alone stands for all IPv4 addresses of this computer.
fn parse_listen_addr(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, Ipv4Addr::UNSPECIFIED)
}

/// Checks the address of another server and returns it unchanged: `HOST:PORT`, or a zenoh endpoint, which contains a
/// slash, such as `tls/play.example.org:7700`.
fn parse_peer(text: &str) -> Result<String, String> {
    let is_host_and_port =
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match is_host_and_port || text.contains('/') {
        true => Ok(text.into()),
        false => Err(HOST_AND_PORT.into()),
    }
}

/// Error message for text that is not a host and a port.
const HOST_AND_PORT: &str = "must be a host name or an address, and a port, such as play.example.org:7700";

/// Parses the address that is announced to players. A name is resolved once, here.
fn parse_public_addr(text: &str) -> Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.ok_or_else(|| format!("cannot be resolved; {HOST_AND_PORT}"))
}

/// Parses an address for HTTP. A port alone stands for 127.0.0.1, so that only this computer can read the state.
fn parse_http_addr(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, Ipv4Addr::LOCALHOST)
}

fn parse_addr(text: &str, default_ip: Ipv4Addr) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix(':').unwrap_or(text);
    match bare.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from((default_ip, port))),
        Err(_) => text
            .parse()
            .map_err(|_| "must be a port, such as 8080, or an address and a port, such as 192.168.1.5:8080".into()),
    }
}

fn parse_world_ticket(text: &str) -> Result<Ticket, String> {
    match text.parse() {
        Ok(ticket @ Ticket::Udp { .. }) => Ok(ticket),
        Ok(_) => Err("must be udp://HOST:PORT#SECRET: bots cannot use iroh tickets".into()),
        Err(error) => Err(format!("{error}; must be udp://HOST:PORT#SECRET")),
    }
}
