//! Runs a player or a spectator of a game in real time, from the lobby to the end of the run, and measures links. One
//! loop, on one thread, owns the session or the feed client, the machine and the transport of a site.
//!
//! The loop waits for a datagram or for the next timeout, whichever comes first, and never for another thread.
//! Datagrams leave at once. A frontend on a thread of its own is reached through [`Frontend`], whose functions must
//! not block.

mod address_book;
mod frame_log;
mod game_match;
mod join;
mod link_probe;
mod ping;
mod player;
mod recorder;
mod spectator;

pub use frame_log::{FrameLog, RunStats};
pub use join::{JoinConfig, LobbyConnection};
pub use link_probe::{LinkProbeConfig, LinkReport, probe_link};
pub use player::{AlonePolicy, GIVE_UP_FACTOR, HostConfig, PlayerRunner, RunOptions};
pub use recorder::{MovieRecorder, RecordingSummary};
pub use spectator::{SpectateOptions, SpectatorRunner};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::{Event, PeerStats, SessionEnd, SettingsError, State, Stats};
use coplay::time::TimeDelta;
use coplay_machines::Machine;
use coplay_machines::control::MachineControl;

use crate::lobby::{JoinRefusal, LobbyInfo};
use crate::peer_addr::PeerAddr;
use crate::transport::DropCounts;

/// User interface of a site, or a program in its place. No function may block.
pub trait Frontend {
    /// Fills in the current input of the local players, one word per player. Called once per frame.
    fn sample_input(&mut self, pads: &mut [InputWord]);

    /// Shows the picture and plays the sound that `machine` made in `frame`. Not called for frames that are
    /// resimulated, or stepped only to catch up.
    fn show_frame(&mut self, frame: Frame, machine: &dyn Machine);

    /// Handles an event of the lobby, the session or the runner.
    fn on_event(&mut self, event: RunnerEvent<'_>);

    /// Returns the next command of the user; `None` if there is none.
    fn poll_command(&mut self) -> Option<UserCommand>;
}

/// Event for the frontend.
#[derive(Debug)]
pub enum RunnerEvent<'a> {
    /// The lobby has changed.
    LobbyChanged(&'a LobbyInfo),
    /// An event of the session.
    Session(&'a Event),
    /// A line of chat.
    Chat {
        /// Display name of the author.
        name: &'a str,
        /// The line, at most [`MAX_CHAT_LEN`](crate::lobby::MAX_CHAT_LEN) bytes if it comes from another site.
        text: &'a str,
    },
    /// Status report, every 250 ms.
    Status(&'a Status),
    /// The last other player is gone, and this site plays on alone. The frontend gets this event after the session
    /// event and the updated lobby.
    PlayingAlone,
    /// Message for the user in plain text, such as a failed dial.
    Note(String),
}

/// Status of a running site.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Statistics of the session. A spectator reports only `frame`, the frame after the newest one that its source has,
    /// and `confirmed`, the next frame to step.
    pub stats: Stats,
    /// State of the session; `None` before it starts, and at a spectator.
    pub state: Option<State>,
    /// Link statistics of each present peer, by site number; empty at a spectator, and while there is no session.
    pub peers: Vec<(u8, PeerStats)>,
    /// Round-trip time to each other member, by site number, until the game runs; at a spectator always that to the
    /// roster leader.
    pub round_trips: Vec<(u8, TimeDelta)>,
    /// Whether the game waits for silent players, and [`UserCommand::ContinueAlone`] would resume it without them.
    pub can_continue_alone: bool,
    /// Site that paused the machine, while it is paused.
    pub paused_by: Option<u8>,
    /// Number of frames shown in the second that ends with the last shown frame.
    pub fps: f64,
    /// Counts of received datagrams that the transport has not delivered, since its creation.
    pub drops: DropCounts,
}

/// Command that the user gives to the run through its [`Frontend`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Leave the game and end the run.
    Quit,
    /// Start the game with the members that are ready; only the roster leader can.
    Start,
    /// Send a line of chat.
    Chat(String),
    /// Play on alone, without the silent players for which the game waits.
    ContinueAlone,
    /// Press a button of the machine, such as pause or reset, which takes effect at all sites.
    Control(MachineControl),
}

/// Result of a run that ended without an error.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Cause of the end of the run: a request (by the user or the frame limit), the end of the session, or the end of
    /// the spectator feed.
    pub end_reason: EndReason,
    /// Number of confirmed frames of the game, 0 if the run ended without a session; at a spectator, the number of
    /// frames up to the last one stepped.
    pub confirmed_frames: u32,
    /// Whether all state hashes that this site compared were equal.
    pub is_in_sync: bool,
    /// Statistics of the run at this site.
    pub stats: RunStats,
    /// Summary of the recording, if there was a recorder.
    pub recording: Option<RecordingSummary>,
}

/// Reason why a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum EndReason {
    /// The user or the frame limit ended the run.
    Requested,
    /// The session ended for this reason.
    SessionEnded(SessionEnd),
    /// The spectator feed ended, or the last player said goodbye 1 s ago.
    FeedEnded,
}

/// Reason why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// No dialed address answered within the time limit, or the site there rejected this site's secret or token.
    Unreachable {
        /// Address that was dialed.
        addr: PeerAddr,
        /// Whether a site answered there and rejected this site's secret or token.
        wrong_secret: bool,
    },
    /// The site at the address is not the expected peer, or is this site itself.
    WrongPeer {
        /// Address that was dialed.
        addr: PeerAddr,
    },
    /// The site that was asked for admission refused it, for this reason.
    Refused(JoinRefusal),
    /// The host's game or machine differs from the local one, in these points.
    GameMismatch(Vec<String>),
    /// This program cannot decode the host's settings, or cannot encode its own as a host.
    UnreadableSettings,
    /// The host's settings are invalid, for this reason.
    InvalidSettings(SettingsError),
    /// The machine failed to save or load a state that the session or the spectator feed needs, with this message.
    Machine(String),
    /// The roster leader, the member asked to join, or the probed site was connected but does not answer.
    HostGone,
    /// The session, or the spectator's end of the feed, rejected its configuration, for this reason.
    SessionConfig(String),
    /// The spectator feed dropped this site, for this reason.
    FeedDropped(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable { addr, wrong_secret: false } => write!(f, "no answer from {}", addr.brief()),
            Self::Unreachable { addr, wrong_secret: true } => {
                write!(f, "{} rejected the secret of the ticket", addr.brief())
            }
            Self::WrongPeer { addr } => {
                write!(f, "{} leads to another site than that of the ticket, or back to this program", addr.brief())
            }
            Self::Refused(JoinRefusal::Full) => {
                write!(f, "the game is full: no free seat, too few free pads for your players, or too many spectators")
            }
            Self::Refused(JoinRefusal::VersionMismatch(theirs)) => {
                write!(
                    f,
                    "the host runs another version of coplay: protocol {theirs} there, {} here",
                    crate::lobby::PROTOCOL_VERSION
                )
            }
            Self::Refused(JoinRefusal::NoSpectators) => write!(f, "the host does not admit spectators"),
            Self::Refused(JoinRefusal::NotLeader { .. }) => {
                write!(f, "the site that issued the ticket does not admit joiners; only the host does")
            }
            Self::Refused(JoinRefusal::WrongGameKind) => {
                write!(f, "the ticket leads to a maze, not to a shared game")
            }
            Self::GameMismatch(points) => {
                write!(f, "the game or machine on this computer differs from the host's: {}", points.join("; "))
            }
            Self::UnreadableSettings => write!(f, "this version of coplay cannot read the host's settings"),
            Self::InvalidSettings(reason) => write!(f, "the host sent invalid settings: {reason}"),
            Self::Machine(reason) => write!(f, "the machine failed: {reason}"),
            Self::HostGone => write!(f, "the host does not answer"),
            Self::SessionConfig(reason) => write!(f, "invalid session settings: {reason}"),
            Self::FeedDropped(reason) => write!(f, "the spectator feed dropped you: {reason}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Interval of the status reports to the frontend.
const STATUS_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Maximum interval between polls of the frontend.
const FRONTEND_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(20);
