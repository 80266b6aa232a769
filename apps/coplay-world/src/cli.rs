//! The command line.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use coplay::mirror::{DEFAULT_GIT, DropCurve, DropPolicy};
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;
use coplay_net::ticket::Ticket;

/// Servers of a shared world
#[derive(Debug, Parser)]
#[command(name = "coplay world", version, about)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server: one of several that hold the same world
    Serve(ServeArgs),
    /// Send software players to a world, and print what it was like for them
    Load(LoadArgs),
    /// Find out how many players three servers carry on this computer
    ///
    /// Players press other buttons 25 times a second. A number of them is carried if everybody is in, 95 % of what they press is heard,
    /// and 99 % of the events that servers tell each other are delivered within 150 ms. Players and servers share this computer; players
    /// come first, so that it is the servers' limit that is found, and where it is not the table says so. What is not carried is tried twice.
    Bench(BenchArgs),
}

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Where to listen: for players by UDP, and at the same port for other servers by TCP
    #[arg(long, value_name = "ADDR", default_value = "7700", value_parser = parse_listen_addr)]
    pub listen: SocketAddr,
    /// Another server of this world; may be given several times
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_peer)]
    pub peer: Vec<String>,
    /// What all servers and players must know [default: a random one]
    #[arg(long, value_name = "WORD")]
    pub secret: Option<String>,
    /// What servers must know beside that, and players must not: without it whoever plays could pose as a server
    #[arg(long, value_name = "WORD")]
    pub server_secret: Option<String>,
    /// Where players reach this server, if that is not where it listens
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_public_addr)]
    pub public: Option<SocketAddr>,
    /// Let players come by iroh, too: through most routers, with a ticket that is shown and is good until this server ends
    #[arg(long)]
    pub iroh: bool,
    /// What helps those who find no way by iroh: `none`, the `default`, or the address of a relay
    #[arg(long, value_name = "WHICH", requires = "iroh")]
    pub relay: Option<RelayConfig>,
    /// The maze; the same on all servers [default: follows from the secret]
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Cells on each side of the maze, from 4 to 128; the same on all servers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(4..=128))]
    pub side: u8,
    /// Ninjas in the world, from 0 to 100; the same on all servers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub ninjas: u8,
    /// Which obsolete events of other servers are given up on
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = PolicyName::Adaptive)]
    pub policy: PolicyName,
    /// Tell how the server does by HTTP: /health, /metrics (Prometheus) and /state
    #[arg(long, value_name = "ADDR", value_parser = parse_http_addr)]
    pub http: Option<SocketAddr>,
    /// A configuration of zenoh, for routers and TLS; --peer is added to it, and so is --listen unless it says where to listen
    #[arg(long, value_name = "FILE")]
    pub zenoh: Option<PathBuf>,
    /// As if the ways out to players were worse: see `coplay host --help`
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// How to log to standard error
    #[arg(long, value_name = "HOW", value_enum, default_value_t = LogStyle::Text)]
    pub log: LogStyle,
    /// End after so many seconds
    #[arg(long, value_name = "N")]
    pub seconds: Option<u32>,
}

/// `load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// The world: udp://HOST:PORT#SECRET of one of its servers, or of several
    #[arg(required = true, num_args = 1.., value_name = "URL", value_parser = parse_world_ticket)]
    pub world: Vec<Ticket>,
    /// How many play
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub players: u32,
    /// For how long, once all have been sent there
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// So many are sent in a second: from 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// Change buttons so often in a second, whatever a player would do; 0 plays as ninjas do
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=25))]
    pub commands: u32,
    /// As if their ways out were worse: see `coplay host --help`
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// Ask servers how they did, by HTTP, at the end; may be given several times
    #[arg(long, value_name = "ADDR", value_parser = parse_http_addr)]
    pub http: Vec<SocketAddr>,
    /// The luck of the players
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = parse_seed)]
    pub seed: u64,
}

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// How many play: these numbers, until one is too many [default: twice as many each time, and when it is too many, halfway]
    #[arg(value_name = "PLAYERS", value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub players: Vec<u32>,
    /// For how long it is measured, each time, once everybody is in
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=3_600))]
    pub seconds: u32,
    /// After so many minutes nothing more is begun
    #[arg(long, value_name = "MINUTES", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub minutes: u32,
    /// Policies to compare, in turn; may be given several times
    #[arg(long, value_name = "WHICH", value_enum, default_values_t = [PolicyName::Ila, PolicyName::Off, PolicyName::Adaptive])]
    pub policy: Vec<PolicyName>,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// For people
    Text,
    /// For programs: a line of JSON for each thing
    Json,
}

/// Policies by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// None: wait for everything
    Off,
    /// All of them while events take longer than 150 ms
    OnOff,
    /// The more of them the longer events take (Palazzi et al.)
    Ila,
    /// Those that would make others late
    Adaptive,
}

impl PolicyName {
    /// As it is said on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::OnOff => "on-off",
            Self::Ila => "ila",
            Self::Adaptive => "adaptive",
        }
    }

    /// What it stands for.
    pub fn policy(self) -> DropPolicy {
        match self {
            Self::Off => DropPolicy::Off,
            Self::OnOff => DropPolicy::OnOff { threshold: DEFAULT_GIT },
            Self::Ila => DropPolicy::Ila(DropCurve::PAPER),
            Self::Adaptive => DropPolicy::Adaptive { threshold: DEFAULT_GIT },
        }
    }
}

/// What a maze follows from, or the luck of players.
fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}, such as 42", u64::MAX))
}

/// An address to listen at: a port alone stands for all addresses of this computer.
fn parse_listen_addr(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, Ipv4Addr::UNSPECIFIED)
}

/// Another server: a name or an address and a port, or as zenoh says it.
fn parse_peer(text: &str) -> Result<String, String> {
    let is_sound = text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match is_sound || text.contains('/') {
        true => Ok(text.into()),
        false => Err("say a name or an address, and a port, such as play.example.org:7700".into()),
    }
}

/// An address that others use: names are looked up once, here.
fn parse_public_addr(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| "say a name or an address, and a port, such as play.example.org:7700".into())
}

/// The same for what nobody else should see unless told so: a port alone is for this computer.
fn parse_http_addr(text: &str) -> Result<SocketAddr, String> {
    parse_addr(text, Ipv4Addr::LOCALHOST)
}

fn parse_addr(text: &str, usual: Ipv4Addr) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix(':').unwrap_or(text);
    match bare.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from((usual, port))),
        Err(_) => text
            .parse()
            .map_err(|_| "say a port, such as 7700, or an address and a port, such as 192.168.1.5:7700".into()),
    }
}

fn parse_world_ticket(text: &str) -> Result<Ticket, String> {
    match text.parse() {
        Ok(ticket @ Ticket::Udp { .. }) => Ok(ticket),
        Ok(_) => Err("a world is udp://HOST:PORT#SECRET".into()),
        Err(error) => Err(format!("{error}; a world is udp://HOST:PORT#SECRET")),
    }
}
