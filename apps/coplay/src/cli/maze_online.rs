//! Commands of a maze with others, and their flags.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use clap::Args;
use coplay::peer_world::UpdatePolicy;
use coplay_maze::MazeSettings;
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;
use coplay_net::mesh::MulticastConfig as Way;

use super::maze::side_range;
use super::net::{LanVisibility, OnlineDisplayArgs};
use super::{DisplayArgs, parse_seed};

/// A tick of a maze, in milliseconds: nothing happens in between.
const TICK_MS: u16 = 10;
/// The longest bucket and the longest delay, in milliseconds.
const MAX_DELAY_MS: u16 = MazeSettings::MAX_TICKS * TICK_MS;
/// Ticks of a second.
const TICKS_PER_SECOND: u32 = 1_000 / TICK_MS as u32;

/// How to open a maze to others.
#[derive(Args, Clone, Debug)]
pub struct MazeHostArgs {
    /// How many cells the maze has each way: from 4 to 128
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(side_range()))]
    pub side: u8,
    /// What the maze follows from, a whole number; without it, another one each time
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// Everybody sees what happened so many milliseconds ago, so that it has come from everywhere: from 10 to 1000, in steps of 10
    #[arg(long, value_name = "MS", default_value = "150", value_parser = parse_ticks)]
    pub delay: u16,
    /// What happens in so many milliseconds is seen together: from 10 to 1000, in steps of 10
    #[arg(long, value_name = "MS", default_value = "40", value_parser = parse_ticks)]
    pub bucket: u16,
    /// Plain UDP, for a network that can be trusted to let it through: listen at this port, or address and port
    #[arg(long, value_name = "ADDR")]
    pub udp: Option<String>,
    /// With --udp: what everybody must know to join; made up and shown if it is not given
    #[arg(long, value_name = "TEXT", requires = "udp")]
    pub secret: Option<String>,
    /// What helps peers that find no way to each other: `none`, `default`, or the address of a relay
    #[arg(long, value_name = "none|default|URL", conflicts_with = "udp")]
    pub relay: Option<RelayConfig>,
    /// What others in the local network may do without a ticket [default: see; with --headless: hide]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub lan: Option<LanVisibility>,
    /// One datagram for all who hear it: where that works, never, or at this address, which must work
    #[arg(long, value_name = "auto|off|ADDR:PORT", default_value = "auto", value_parser = parse_multicast)]
    pub multicast: MulticastArg,
    /// How to take part.
    #[command(flatten)]
    pub player: MazePlayerArgs,
}

/// How to come to the maze of somebody else.
#[derive(Args, Clone, Debug)]
pub struct MazeJoinArgs {
    /// The ticket that somebody in the maze shows; without one, the mazes of the local network are listed
    pub ticket: Option<String>,
    /// Play on a world of servers in place of a maze without one: udp://HOST:PORT#SECRET of any of them, or the ticket (coplay:…) that it shows; may be given several times
    #[arg(long, value_name = "URL", conflicts_with_all = ["ticket", "ninjas", "rate", "reckon", "trace", "stats"])]
    pub world: Vec<String>,
    /// Use another relay than the one that the ticket names: `none`, `default`, or its address
    #[arg(long, value_name = "none|default|URL")]
    pub relay: Option<RelayConfig>,
    /// One datagram for all who hear it: where that works and the others do so, or never
    #[arg(long, value_name = "auto|off", default_value = "auto", value_parser = parse_multicast_switch)]
    pub multicast: MulticastArg,
    /// How to take part.
    #[command(flatten)]
    pub player: MazePlayerArgs,
}

/// How to take part in a maze.
#[derive(Args, Clone, Debug)]
pub struct MazePlayerArgs {
    /// How many ninjas to bring along, from 0 to 31: avatars that software plays [default: 0; with --headless: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    pub ninjas: Option<u8>,
    /// Tell of each avatar always so many times a second, as in the paper: 1, 2, 4, 5, 10, 20, 25, 50 or 100 [default: as often as others need it and the network carries]
    #[arg(long, value_name = "HZ", conflicts_with = "reckon", value_parser = parse_update_rate)]
    pub rate: Option<u32>,
    /// Tell of an avatar when others would be wrong about it by more than so many units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub reckon: Option<u32>,
    /// What others call you
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// As if the way out were worse, and with multicast the way in, for tests and measurements: some of
    /// delay=MS,jitter=MS,loss=PERCENT,burst=PACKETS,duplicate=PERCENT,reorder,rate=KBIT,queue=MS,cut=FROM-UNTIL,seed=N
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// Leave after so many seconds; with --headless ninjas stop a little earlier, so that all agree on the score
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// Write into this file what is sent, heard and seen, for `coplay maze drift`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the numbers of the run into this file at the end (JSON)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// How to see it.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
}

/// Which traces to compare.
#[derive(Args, Clone, Debug)]
pub struct MazeDriftArgs {
    /// What sites of one maze wrote with --trace: two files or more
    #[arg(required = true, num_args = 1.., value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// For programs: the numbers as JSON
    #[arg(long)]
    pub json: bool,
}

impl MazePlayerArgs {
    /// When our avatars are told of.
    pub fn send_policy(&self) -> UpdatePolicy {
        match (self.rate, self.reckon) {
            (Some(rate), _) => UpdatePolicy::fixed(rate),
            (None, Some(units)) => UpdatePolicy::dead_reckoned(units),
            (None, None) => UpdatePolicy::default(),
        }
    }

    /// How to see it, as it is said where one plays alone.
    pub fn display_args(&self) -> DisplayArgs {
        let OnlineDisplayArgs { terminal, headless, scale, mute } = self.display;
        DisplayArgs { terminal, window: false, headless, scale, mute }
    }

    /// How many ninjas we bring along: where nobody plays there is at least one, unless it is said that there is none.
    pub fn ninjas(&self) -> u8 {
        self.ninjas.unwrap_or(u8::from(self.display.headless))
    }
}

/// Whether and where to send one datagram to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastArg {
    /// Where it works.
    Auto,
    /// Never.
    Off,
    /// There, and it must work.
    At(SocketAddrV4),
}

impl MulticastArg {
    /// As a group wants to know it.
    pub fn to_config(self) -> Option<Way> {
        match self {
            Self::Auto => Some(Way::default()),
            Self::Off => None,
            Self::At(group) => Some(Way { group, is_required: true, ..Way::default() }),
        }
    }
}

fn parse_multicast(text: &str) -> Result<MulticastArg, String> {
    let at =
        |_| "this must be `auto`, `off`, or an address and a port for multicast, such as 239.255.77.77:5700".into();
    parse_multicast_switch(text).or_else(|_| text.parse().map(MulticastArg::At).map_err(at))
}

fn parse_multicast_switch(text: &str) -> Result<MulticastArg, String> {
    match text {
        "auto" => Ok(MulticastArg::Auto),
        "off" => Ok(MulticastArg::Off),
        _ => Err("this must be `auto` or `off`; where to meet is for who opens the maze to say".into()),
    }
}

/// Milliseconds, as ticks.
fn parse_ticks(text: &str) -> Result<u16, String> {
    match text.parse::<u16>() {
        Ok(ms) if (TICK_MS..=MAX_DELAY_MS).contains(&ms) && ms.is_multiple_of(TICK_MS) => Ok(ms / TICK_MS),
        _ => Err(format!("this must be whole ticks of {TICK_MS} ms: {TICK_MS}, 20, 30 and so on to {MAX_DELAY_MS}")),
    }
}

/// Updates in a second, a whole number of ticks apart.
fn parse_update_rate(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(rate) if (1..=TICKS_PER_SECOND).contains(&rate) && TICKS_PER_SECOND.is_multiple_of(rate) => Ok(rate),
        _ => {
            Err(format!("updates are whole ticks of {TICK_MS} ms apart: 1, 2, 4, 5, 10, 20, 25, 50 or 100 in a second"))
        }
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
            let told = parse_ticks(wrong).unwrap_err();
            assert!(told.contains("whole ticks") && told.ends_with("to 1000"), "{wrong}: {told}");
        }
        assert_eq!(
            (parse_update_rate("1"), parse_update_rate("25"), parse_update_rate("100")),
            (Ok(1), Ok(25), Ok(100))
        );
        for wrong in ["", "0", "30", "101", "200", "many"] {
            assert!(parse_update_rate(wrong).unwrap_err().contains("whole ticks"), "{wrong}");
        }
    }

    #[test]
    fn multicast_flag_is_auto_off_or_an_address() {
        let there = "239.1.2.3:4000";
        assert_eq!((parse_multicast("auto"), parse_multicast("off")), (Ok(MulticastArg::Auto), Ok(MulticastArg::Off)));
        assert_eq!(parse_multicast(there), Ok(MulticastArg::At(there.parse().unwrap())));
        assert!(MulticastArg::At(there.parse().unwrap()).to_config().is_some_and(|way| way.is_required));
        assert!(MulticastArg::Off.to_config().is_none());
        assert!(parse_multicast("239.1.2.3").unwrap_err().contains("a port") && parse_multicast_switch(there).is_err());
    }
}
