//! Flags of `coplay host`, `coplay join` and `coplay watch`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coplay::session::{AbsentInput, MIN_DROP_TIMEOUT, MIN_STALL_LIMIT};
use coplay::time::TimeDelta;
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;
use coplay_shell::values::{parse_seed, whole_number};

use super::delays::{AutoOrFrames, MAX_DELAY_FRAMES, auto_or_frames};
use super::{CoreOptionArgs, MachineArgs};
use crate::config::MAX_SCALE;
use crate::frontend::FrontendRequest;

/// Arguments of `coplay host`.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// File of the game [default: the tennis game of coplay, or no game for a core that needs none]
    pub game: Option<PathBuf>,
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Flags that set options of the core.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// Set the total number of players, 1 to 8 [default: one more than --pads, but at most one per pad of the machine]
    #[arg(long, value_name = "N", value_parser = whole_number::<u8>(1..=8))]
    pub players: Option<u8>,
    /// Set the number of players at this computer, 1 to 8
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u8>(1..=8))]
    pub pads: u8,
    /// Delay local input by this many frames, 0 to 60, or as the links need (`auto`)
    /// [default: auto, or 2 with a number for --prediction]
    #[arg(long, alias = "lag", value_name = "FRAMES|auto", value_parser = auto_or_frames(MAX_DELAY_FRAMES))]
    pub delay: Option<AutoOrFrames>,
    /// Simulate at most this many frames with predicted inputs, 0 to 60, or as the links need (`auto`); 0 is lockstep,
    /// which a machine without exact save states always uses [default: auto, or 8 with a number for --delay]
    #[arg(long, alias = "window", value_name = "FRAMES|auto", value_parser = auto_or_frames(MAX_DELAY_FRAMES))]
    pub prediction: Option<AutoOrFrames>,
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
    /// Refuse spectators
    #[arg(long)]
    pub private: bool,
    /// Set the input of dropped players
    #[arg(long, value_name = "INPUT", value_enum, default_value = "nothing")]
    pub absent: AbsentInputArg,
    /// Flags of the player at this site.
    #[command(flatten)]
    pub player: PlayerArgs,
}

/// Flags of a joiner or spectator: the host's ticket, and the game and the machine to open.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    /// Ticket that the host shows; without a ticket, coplay lists the games of the local network
    pub ticket: Option<String>,
    /// File of the game [default: the host's game, if it is the tennis game of coplay or in a game folder of the
    /// settings]
    pub game: Option<PathBuf>,
    /// Flags that choose the machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Let others reach you through this relay in place of the ticket's: `none`, `default` or a URL; you still reach
    /// the host through the ticket's relay, except with `none`, which uses no relay; no effect with a udp:// ticket
    #[arg(long, value_name = "none|default|URL")]
    pub relay: Option<RelayConfig>,
}

/// Arguments of `coplay join`.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
    /// Ticket of the host, and the game and machine to open.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Set the number of players at this computer, 1 to 8; a free seat in a running game has room for 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u8>(1..=8))]
    pub pads: u8,
    /// Flags of the player at this site.
    #[command(flatten)]
    pub player: PlayerArgs,
}

/// Arguments of `coplay watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
    /// Ticket of the host, and the game and machine to open.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Name, simulated uplink and log files.
    #[command(flatten)]
    pub participant: ParticipantArgs,
}

/// Access of the local network to a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LanVisibility {
    /// Computers see the game, and join with its ticket only
    See,
    /// Computers see the game, and may join without a ticket
    Join,
    /// Computers do not see the game
    Hide,
}

/// Flags of a player in a shared game.
#[derive(Args, Clone, Debug)]
pub struct PlayerArgs {
    /// Name, simulated uplink and log files.
    #[command(flatten)]
    pub participant: ParticipantArgs,
    /// Keep the key of your seat in this file; the key lets its owner return to the seat [default: a file in your
    /// data folder]
    #[arg(long, value_name = "FILE")]
    pub seat: Option<PathBuf>,
    /// Drop players who are silent for this many seconds, 0.3 to 86400, if more than half of the players remain, or
    /// half with the lowest seat; or wait forever (`never`)
    #[arg(long, value_name = "SECONDS|never", default_value = "10", value_parser = parse_drop_timeout)]
    pub drop_after: TimeoutArg,
    /// Play on alone as soon as all other players have been silent for the time of --drop-after, as the lower seat of
    /// two players always does. Without this flag, in any other seat, the game waits until they return or you press F4
    /// (the default key); with --headless the game ends after 12 times the time of --drop-after
    #[arg(long)]
    pub go_on_alone: bool,
    /// Drop a player who stalls the game for this many seconds, 0.1 to 86400, or wait forever (`never`); only the
    /// host's value counts, or once the host is gone, that of the lowest seat
    #[arg(
        long,
        alias = "late-after",
        value_name = "SECONDS|never",
        default_value = "never",
        value_parser = parse_stall_timeout
    )]
    pub drop_stalled: TimeoutArg,
    /// Let bots play for the players at this computer, with inputs drawn from this seed; the same seed gives the same
    /// inputs
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub bot: Option<u64>,
}

/// Flags of a player or spectator.
#[derive(Args, Clone, Debug)]
pub struct ParticipantArgs {
    /// Set the name that other players see [default: your login name]
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Frame limit and output files.
    #[command(flatten)]
    pub log: RunOutputArgs,
    /// Simulate a bad uplink, for tests and measurements: a list of any of these, which may start with lan, broadband,
    /// wifi, mobile, satellite or awful, with rate in kbit/s and cut in seconds from the start:
    /// delay=MS,jitter=MS,loss=PERCENT,burst=PACKETS,duplicate=PERCENT,reorder,rate=KBIT,queue=MS,cut=FROM-UNTIL,seed=N
    #[arg(long, value_name = "IMPAIRMENT", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
}

/// Frame limit and output files of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct RunOutputArgs {
    /// Leave after this many frames of the game; the exit code is 1 if the states of the sites differed
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=u32::MAX))]
    pub frames: Option<u32>,
    /// Write a line for every simulated frame, resimulated ones included, to this file (CSV)
    #[arg(long, value_name = "FILE")]
    pub frame_log: Option<PathBuf>,
    /// Write statistics of the run to this file at the end (JSON)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Record a movie to this file, for `coplay replay`; if you join late or watch, the movie starts with the first
    /// state that you receive
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// With --record: overwrite the file if it exists
    #[arg(long, requires = "record")]
    pub force: bool,
}

/// Flags for the output of a shared game: by default a window, or the terminal if no window can be opened.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OnlineDisplayArgs {
    /// Show the game in this terminal
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Show no picture, and print a line for every event
    #[arg(long)]
    pub headless: bool,
    /// Open the window with the picture scaled by this factor, 1 to 20; in a maze by two thirds of it
    /// [default: 3, or as in the settings]
    #[arg(long, value_name = "N", value_parser = whole_number::<u32>(1..=MAX_SCALE))]
    pub scale: Option<u32>,
    /// Start with the sound off
    #[arg(long)]
    pub mute: bool,
}

impl OnlineDisplayArgs {
    /// Returns the front end that `--terminal` asks for, or no preference.
    pub fn requested_frontend(&self) -> FrontendRequest {
        FrontendRequest { window: false, terminal: self.terminal }
    }
}

/// Time after which a site is dropped; `None` waits forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutArg(pub Option<TimeDelta>);

/// Longest time that a timeout flag accepts, in seconds.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

/// Parses `--drop-after`: the silence after which a site is dropped.
fn parse_drop_timeout(text: &str) -> Result<TimeoutArg, String> {
    parse_timeout(text, MIN_DROP_TIMEOUT)
}

/// Parses `--drop-stalled`: the stall time after which a site is dropped.
fn parse_stall_timeout(text: &str) -> Result<TimeoutArg, String> {
    parse_timeout(text, MIN_STALL_LIMIT)
}

fn parse_timeout(text: &str, min: TimeDelta) -> Result<TimeoutArg, String> {
    let min = min.as_secs_f64();
    match text.parse::<f64>() {
        _ if text == "never" => Ok(TimeoutArg(None)),
        Ok(seconds) if (min..=MAX_TIMEOUT_SECONDS).contains(&seconds) => {
            Ok(TimeoutArg(Some(TimeDelta::from_millis((seconds * 1e3).round() as i64))))
        }
        _ => Err(format!("must be `never` or a number of seconds from {min} to {MAX_TIMEOUT_SECONDS}")),
    }
}

/// Value of `--absent`: input of players whose site was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AbsentInputArg {
    /// Dropped players press nothing
    Nothing,
    /// Dropped players repeat their last input
    Repeat,
}

impl From<AbsentInputArg> for AbsentInput {
    fn from(absent: AbsentInputArg) -> Self {
        match absent {
            AbsentInputArg::Nothing => Self::Nothing,
            AbsentInputArg::Repeat => Self::Repeat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_never_or_seconds() {
        assert_eq!(parse_drop_timeout("never"), Ok(TimeoutArg(None)));
        assert_eq!(parse_drop_timeout("0.5"), Ok(TimeoutArg(Some(TimeDelta::from_millis(500)))));
        for wrong in ["", "0", "-3", "NaN", "inf", "soon"] {
            assert!(parse_drop_timeout(wrong).is_err() && parse_stall_timeout(wrong).is_err(), "{wrong}");
        }
    }
}
