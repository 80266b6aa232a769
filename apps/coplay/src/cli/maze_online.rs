//! Flags of `coplay maze host` and `coplay maze join`.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use clap::Args;
use coplay::peer_world::UpdatePolicy;
use coplay_maze::{Maze, MazeSettings};
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;
use coplay_net::mesh::MulticastConfig;
use coplay_shell::values::{parse_seed, whole_number, whole_number_in};

use super::DisplayArgs;
use super::net::{LanVisibility, OnlineDisplayArgs};

/// Duration of a tick, the time step of the maze, in milliseconds.
const TICK_MS: u16 = 10;
/// Longest bucket and longest playout delay, in milliseconds.
const MAX_DELAY_MS: u16 = MazeSettings::MAX_TICKS * TICK_MS;
const TICKS_PER_SECOND: u32 = 1_000 / TICK_MS as u32;

/// Arguments of `coplay maze host`.
#[derive(Args, Clone, Debug)]
pub struct MazeHostArgs {
    /// Set the number of cells on each side of the maze, 4 to 128
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole_number::<u8>(Maze::SIDE_RANGE))]
    pub side: u8,
    /// Generate the maze from this seed, a whole number [default: random]
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Flags of the player at this site.
    #[command(flatten)]
    pub player: MazePlayerArgs,
    /// Set the playout delay, which gives updates time to arrive: every site shows the avatars of the other sites as
    /// they were this long ago plus one bucket, and its own avatars without delay; 10 to 1000 ms in steps of 10
    #[arg(
        long = "playout-delay",
        alias = "delay",
        value_name = "MS",
        default_value = "150",
        value_parser = parse_ticks
    )]
    pub delay: u16,
    /// Set the length of a bucket, a time interval whose updates belong to one view of the maze, 10 to 1000 ms in steps
    /// of 10; it adds to the playout delay
    #[arg(long, value_name = "MS", default_value = "40", value_parser = parse_ticks)]
    pub bucket: u16,
    /// Use plain UDP, and listen on this port, or address and port; joiners must be able to reach this port
    #[arg(long, value_name = "ADDR")]
    pub udp: Option<String>,
    /// With --udp: admit only joiners with this secret, which is part of the ticket [default: random]
    #[arg(long, value_name = "TEXT", requires = "udp")]
    pub secret: Option<String>,
    /// Use this relay for peers without a direct connection: `none`, `default` or a URL [default: as in the settings]
    #[arg(long, value_name = "none|default|URL", conflicts_with = "udp")]
    pub relay: Option<RelayConfig>,
    /// Set the access that computers in the local network have without a ticket [default: see; with --headless: hide]
    #[arg(long, value_name = "ACCESS", value_enum)]
    pub lan: Option<LanVisibility>,
    /// Send each update in one multicast datagram instead of one datagram per site: where multicast works (`auto`),
    /// never (`off`), or where it works with this address and the 16 following ones; with an address, the command fails
    /// if multicast is not available
    #[arg(long, value_name = "auto|off|ADDR:PORT", default_value = "auto", value_parser = parse_multicast)]
    pub multicast: MulticastArg,
}

/// Arguments of `coplay maze join`.
#[derive(Args, Clone, Debug)]
pub struct MazeJoinArgs {
    /// Ticket of a site in the maze; without a ticket, coplay lists the mazes of the local network
    pub ticket: Option<String>,
    /// Join a world that has servers: udp://HOST:PORT#SECRET or the ticket (coplay:…) of one of the servers; repeat the
    /// flag for more servers
    #[arg(long, value_name = "URL", conflicts_with_all = ["ticket", "ninjas", "rate", "reckon", "trace", "stats"])]
    pub world: Vec<String>,
    /// Flags of the player at this site.
    #[command(flatten)]
    pub player: MazePlayerArgs,
    /// Let others reach you through this relay in place of the ticket's: `none`, `default` or a URL; you still reach
    /// the ticket's site through its relay, except with `none`, which uses no relay; no effect with a udp:// ticket
    #[arg(long, value_name = "none|default|URL")]
    pub relay: Option<RelayConfig>,
    /// Send each update in one multicast datagram instead of one datagram per site: where multicast works, if the host
    /// opened the maze with multicast (`auto`), or never (`off`)
    #[arg(long, value_name = "auto|off", default_value = "auto", value_parser = parse_multicast_switch)]
    pub multicast: MulticastArg,
}

/// Flags of a site in a maze that other sites can join: the same for the host and the joiners.
#[derive(Args, Clone, Debug)]
pub struct MazePlayerArgs {
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
    /// Add this many ninjas (avatars that software controls), 0 to 31 [default: 0; with --headless: 1]
    #[arg(long, value_name = "N", value_parser = whole_number::<u8>(0..=31))]
    pub ninjas: Option<u8>,
    /// Leave after this many seconds, 1 to 86400; with --headless and without --world, the ninjas stop 3 s earlier, and
    /// the site waits up to 10 s longer until no avatar has moved for 3 s, so that all sites agree on the scores
    #[arg(long, value_name = "N", value_parser = whole_number_in::<u32>(1..=86_400, "s"))]
    pub seconds: Option<u32>,
    /// Send updates of each of your avatars at a fixed rate, as Gautier et al. do: 1, 2, 4, 5, 10, 20, 25, 50 or 100
    /// per second [default: as with --reckon 8, and fewer while updates are lost or late]
    #[arg(long, value_name = "HZ", conflicts_with = "reckon", value_parser = parse_update_rate)]
    pub rate: Option<u32>,
    /// Send an update of one of your avatars when the other sites' dead reckoning is wrong by more than this distance,
    /// 1 to 1000 units, as a rule 4 to 25 updates per second; a cell of the maze is 512 units wide
    #[arg(long, value_name = "UNITS", value_parser = whole_number_in::<u32>(1..=1_000, "units"))]
    pub reckon: Option<u32>,
    /// Set the name that other players see [default: your login name]
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Simulate a bad uplink, and with multicast a bad downlink, for tests and measurements: a list of any of these,
    /// which may start with lan, broadband, wifi, mobile, satellite or awful, with rate in kbit/s and cut in seconds
    /// from the start:
    /// delay=MS,jitter=MS,loss=PERCENT,burst=PACKETS,duplicate=PERCENT,reorder,rate=KBIT,queue=MS,cut=FROM-UNTIL,seed=N
    #[arg(long, value_name = "IMPAIRMENT", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// Write all sent, received and displayed updates to this file, for `coplay-lab drift`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write statistics of the run to this file at the end (JSON)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

impl MazePlayerArgs {
    /// Returns the policy by which this site sends updates of its avatars, from `--rate` and `--reckon`.
    pub fn send_policy(&self) -> UpdatePolicy {
        match (self.rate, self.reckon) {
            (Some(rate), _) => UpdatePolicy::fixed(rate),
            (None, Some(units)) => UpdatePolicy::dead_reckoned(units),
            (None, None) => UpdatePolicy::default(),
        }
    }

    /// Returns the output flags as those of a local game.
    pub fn display_args(&self) -> DisplayArgs {
        let OnlineDisplayArgs { terminal, headless, scale, mute } = self.display;
        DisplayArgs { terminal, window: false, headless, scale, mute }
    }

    /// Returns the number of ninjas that this site adds: that of `--ninjas`, or else one for a headless site and none
    /// for a player.
    pub fn ninjas(&self) -> u8 {
        self.ninjas.unwrap_or(u8::from(self.display.headless))
    }
}

/// Value of `--multicast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastArg {
    /// Multicast where it works, unicast elsewhere.
    Auto,
    /// Unicast only.
    Off,
    /// Multicast to this group address; an error if that does not work.
    At(SocketAddrV4),
}

impl MulticastArg {
    /// Converts the value to the configuration of a mesh; `None` uses no multicast.
    pub fn to_config(self) -> Option<MulticastConfig> {
        match self {
            Self::Auto => Some(MulticastConfig::default()),
            Self::Off => None,
            Self::At(group) => Some(MulticastConfig { group, is_required: true, ..MulticastConfig::default() }),
        }
    }
}

fn parse_multicast(text: &str) -> Result<MulticastArg, String> {
    let error = |_| "must be `auto`, `off`, or an IPv4 multicast address and a port, such as 239.255.77.77:5700".into();
    parse_multicast_switch(text).or_else(|_| text.parse().map(MulticastArg::At).map_err(error))
}

fn parse_multicast_switch(text: &str) -> Result<MulticastArg, String> {
    match text {
        "auto" => Ok(MulticastArg::Auto),
        "off" => Ok(MulticastArg::Off),
        _ => Err("must be `auto` or `off`; the host of the maze chooses the address".into()),
    }
}

/// Parses milliseconds, 10 to 1,000 in steps of 10, and returns ticks.
fn parse_ticks(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(ms) if (TICK_MS..=MAX_DELAY_MS).contains(&ms) && ms.is_multiple_of(TICK_MS) => Ok(ms / TICK_MS),
        _ => Err(format!("must be a multiple of {TICK_MS} ms, from {TICK_MS} to {MAX_DELAY_MS} ms")),
    }
}

/// Parses updates per second, which must be a whole number of ticks apart: a divisor of 100.
fn parse_update_rate(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(rate) if (1..=TICKS_PER_SECOND).contains(&rate) && TICKS_PER_SECOND.is_multiple_of(rate) => Ok(rate),
        _ => Err("must be 1, 2, 4, 5, 10, 20, 25, 50 or 100 updates per second".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_and_update_rates_are_whole_ticks() {
        assert_eq!(
            (parse_ticks("10"), parse_ticks("150"), parse_ticks("1000")),
            (Ok(1), Ok(15), Ok(MazeSettings::MAX_TICKS))
        );
        for wrong in ["", "0", "15", "1010", "10000", "-10", "1.5"] {
            let error = parse_ticks(wrong).unwrap_err();
            assert_eq!(error, "must be a multiple of 10 ms, from 10 to 1000 ms", "{wrong}");
        }
        assert_eq!(
            (parse_update_rate("1"), parse_update_rate("25"), parse_update_rate("100")),
            (Ok(1), Ok(25), Ok(100))
        );
        for wrong in ["", "0", "30", "101", "200", "many"] {
            assert!(parse_update_rate(wrong).unwrap_err().ends_with("50 or 100 updates per second"), "{wrong}");
        }
    }

    #[test]
    fn multicast_flag_is_auto_off_or_an_address() {
        let addr = "239.1.2.3:4000";
        assert_eq!((parse_multicast("auto"), parse_multicast("off")), (Ok(MulticastArg::Auto), Ok(MulticastArg::Off)));
        assert_eq!(parse_multicast(addr), Ok(MulticastArg::At(addr.parse().unwrap())));
        assert!(MulticastArg::At(addr.parse().unwrap()).to_config().is_some_and(|config| config.is_required));
        assert!(MulticastArg::Off.to_config().is_none());
        assert!(parse_multicast("239.1.2.3").unwrap_err().contains("a port") && parse_multicast_switch(addr).is_err());
    }
}
