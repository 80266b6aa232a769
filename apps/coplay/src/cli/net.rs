//! Commands and flags of games with others.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use coplay::session::{AbsentInput, MIN_DROP_TIMEOUT, MIN_STALL_LIMIT};
use coplay::time::TimeDelta;
use coplay_net::impair::Impairment;
use coplay_net::iroh::RelayConfig;

use super::{CoreOptionArgs, MachineArgs};
use crate::config::MAX_SCALE;
use crate::frontend::FrontendRequest;

/// How to host a game.
#[derive(Args, Clone, Debug)]
pub struct HostArgs {
    /// The file of a game; without one, the game that comes with coplay
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// How it is set up.
    #[command(flatten)]
    pub core_options: CoreOptionArgs,
    /// How many play in all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub players: Option<u8>,
    /// How many of them play at this computer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub pads: u8,
    /// By how many frames input is delayed; without it, or with `auto`, as the links need
    #[arg(long, value_name = "N|auto", value_parser = parse_auto_or_frames)]
    pub input_delay: Option<AutoOrFrames>,
    /// How many frames may be guessed and repaired: 0 guesses nothing; without it, or with `auto`, as the links need
    #[arg(long, value_name = "N|auto", value_parser = parse_auto_or_frames)]
    pub prediction_window: Option<AutoOrFrames>,
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
    /// Nobody may watch
    #[arg(long)]
    pub private: bool,
    /// What the players of somebody who is lost do
    #[arg(long, value_name = "WHAT", value_enum, default_value = "nothing")]
    pub absent: AbsentInputArg,
    /// How to take part.
    #[command(flatten)]
    pub player: PlayerArgs,
    /// How to see it.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
}

/// How to come to a game of somebody else.
#[derive(Args, Clone, Debug)]
pub struct ConnectArgs {
    /// The ticket that the host shows; without one, the games of the local network are listed
    pub ticket: Option<String>,
    /// The file of the game; without one it is looked for in the folders of the settings
    pub game: Option<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Use another relay than the one that the ticket names: `none`, `default`, or its address
    #[arg(long, value_name = "none|default|URL")]
    pub relay: Option<RelayConfig>,
}

/// How to join a game.
#[derive(Args, Clone, Debug)]
pub struct JoinArgs {
    /// How to come to it.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// How many play at this computer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub pads: u8,
    /// How to take part.
    #[command(flatten)]
    pub player: PlayerArgs,
    /// How to see it.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
}

/// How to watch a game.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// How to come to it.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// How to be there.
    #[command(flatten)]
    pub participant: ParticipantArgs,
    /// How to see it.
    #[command(flatten)]
    pub display: OnlineDisplayArgs,
}

/// What is open to everybody in the local network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LanVisibility {
    /// They see that there is a game, and need its ticket to join
    See,
    /// They may join
    Join,
    /// They see nothing
    Hide,
}

/// How to take part in a game with others.
#[derive(Args, Clone, Debug)]
pub struct PlayerArgs {
    /// How to be there.
    #[command(flatten)]
    pub participant: ParticipantArgs,
    /// Keep the key of your seat in this file: who has it has the seat
    #[arg(long, value_name = "FILE")]
    pub seat: Option<PathBuf>,
    /// Go on without those who were silent for so long, or wait for them: `never`
    #[arg(long, value_name = "SECONDS|never", default_value = "10", value_parser = parse_drop_timeout)]
    pub drop_after: TimeoutArg,
    /// Play on alone, without asking, when all others were silent for as long as --drop-after says. Without this, F4 plays on alone;
    /// with --headless the game waits for the others, and ends after 12 times as long
    #[arg(long)]
    pub go_on_alone: bool,
    /// Go on without those who held up the game for so long of late, or bear it: `never`. The host decides
    #[arg(long, value_name = "SECONDS|never", default_value = "never", value_parser = parse_stall_timeout)]
    pub late_after: TimeoutArg,
    /// Let a bot play; a seed always plays the same
    #[arg(long, value_name = "SEED")]
    pub bot: Option<u64>,
}

/// How to be there, playing or watching.
#[derive(Args, Clone, Debug)]
pub struct ParticipantArgs {
    /// What others call you
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// As if the way out were worse, for tests and measurements: some of
    /// delay=MS,jitter=MS,loss=PERCENT,burst=PACKETS,duplicate=PERCENT,reorder,rate=KBIT,queue=MS,cut=FROM-UNTIL,seed=N
    #[arg(long, value_name = "HOW", value_parser = str::parse::<Impairment>)]
    pub impair: Option<Impairment>,
    /// What is written down.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What a run leaves behind.
#[derive(Args, Clone, Debug, Default)]
pub struct LogArgs {
    /// Leave after so many frames; the exit code says whether all states were equal
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub frames: Option<u32>,
    /// Write a line for every step into this file (CSV)
    #[arg(long, value_name = "FILE")]
    pub frame_log: Option<PathBuf>,
    /// Write the numbers of the run into this file at the end (JSON)
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    /// Keep a movie of what is played in this file, for `coplay replay`; who comes late keeps it from there on
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Overwrite that file if it is there already
    #[arg(long, requires = "record")]
    pub force: bool,
}

/// How to see a game with others: in a window, unless something else is asked for.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OnlineDisplayArgs {
    /// Show it in this terminal
    #[arg(long, conflicts_with = "headless")]
    pub terminal: bool,
    /// Show nothing but a line for everything that happens
    #[arg(long)]
    pub headless: bool,
    /// How many times larger than the picture the window is
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SCALE)))]
    pub scale: Option<u32>,
    /// No sound
    #[arg(long)]
    pub mute: bool,
}

impl OnlineDisplayArgs {
    /// The front end that was asked for.
    pub fn requested_frontend(&self) -> FrontendRequest {
        FrontendRequest { window: false, terminal: self.terminal }
    }
}

/// A dial of the engine: fixed, or turning by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoOrFrames {
    /// Follows what is needed.
    Auto,
    /// So many frames.
    Frames(u32),
}

/// The most frames of a dial.
const MAX_DELAY_FRAMES: u32 = 60;

fn parse_auto_or_frames(text: &str) -> Result<AutoOrFrames, String> {
    match text.parse() {
        _ if text == "auto" => Ok(AutoOrFrames::Auto),
        Ok(frames) if frames <= MAX_DELAY_FRAMES => Ok(AutoOrFrames::Frames(frames)),
        _ => Err(format!("this must be `auto` or a number of frames from 0 to {MAX_DELAY_FRAMES}")),
    }
}

/// How long to wait for somebody; `None` waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutArg(pub Option<TimeDelta>);

/// The most that is not for ever, in seconds.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

/// For how long the silent are waited for.
fn parse_drop_timeout(text: &str) -> Result<TimeoutArg, String> {
    parse_timeout(text, MIN_DROP_TIMEOUT)
}

/// For how long it is borne that somebody holds up the game.
fn parse_stall_timeout(text: &str) -> Result<TimeoutArg, String> {
    parse_timeout(text, MIN_STALL_LIMIT)
}

fn parse_timeout(text: &str, least: TimeDelta) -> Result<TimeoutArg, String> {
    let least = least.as_secs_f64();
    match text.parse::<f64>() {
        _ if text == "never" => Ok(TimeoutArg(None)),
        Ok(seconds) if (least..=MAX_TIMEOUT_SECONDS).contains(&seconds) => {
            Ok(TimeoutArg(Some(TimeDelta::from_millis((seconds * 1e3).round() as i64))))
        }
        _ => Err(format!("this must be `never` or seconds, from {least} to {MAX_TIMEOUT_SECONDS}")),
    }
}

/// What the players of somebody who is lost do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AbsentInputArg {
    /// Let go of everything
    Nothing,
    /// Go on with what they did last
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
    fn delay_flags_are_auto_or_a_frame_count() {
        assert_eq!(
            (parse_auto_or_frames("auto"), parse_auto_or_frames("0"), parse_auto_or_frames("60")),
            (Ok(AutoOrFrames::Auto), Ok(AutoOrFrames::Frames(0)), Ok(AutoOrFrames::Frames(60)))
        );
        for wrong in ["", "61", "-1", "many", "Auto"] {
            assert!(parse_auto_or_frames(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn timeout_is_never_or_seconds() {
        assert_eq!(parse_drop_timeout("never"), Ok(TimeoutArg(None)));
        assert_eq!(parse_drop_timeout("0.5"), Ok(TimeoutArg(Some(TimeDelta::from_millis(500)))));
        for wrong in ["", "0", "-3", "NaN", "inf", "soon"] {
            assert!(parse_drop_timeout(wrong).is_err() && parse_stall_timeout(wrong).is_err(), "{wrong}");
        }
    }
}
