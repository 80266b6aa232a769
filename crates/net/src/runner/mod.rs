//! Runs a session in real time: one loop, on one thread, that owns the session, the machine and the pacing.
//!
//! The loop waits for a datagram or for the next timeout, whichever comes first, and never for another thread.
//! Datagrams leave at once. A frontend on a thread of its own is reached through [`Frontend`], whose functions must
//! not block.

mod address_book;
mod frame_log;
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
use crate::transport::{DropCounts, PeerAddr};

/// User interface of a site, or a program in its place. No function may block.
pub trait Frontend {
    /// Fills in the current input of the local players, one word per player.
    fn sample_input(&mut self, pads: &mut [InputWord]);

    /// Shows and plays a frame.
    fn show_frame(&mut self, frame: Frame, machine: &dyn Machine);

    /// Handles an event.
    fn on_event(&mut self, event: RunnerEvent<'_>);

    /// Returns the next command of the user, if any.
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
        /// Name of its author.
        name: &'a str,
        /// Content.
        text: &'a str,
    },
    /// Status report, every 250 ms.
    Status(&'a Status),
    /// The last other player is gone, and this site plays on alone. It follows the session event and the updated lobby.
    PlayingAlone,
    /// Another message for the user, as text.
    Note(String),
}

/// Status of a running site.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Statistics of the session.
    pub stats: Stats,
    /// State of the session; `None` before it starts.
    pub state: Option<State>,
    /// Link statistics of each present peer, by site number.
    pub peers: Vec<(u8, PeerStats)>,
    /// Round-trip time to each peer, by site number, while no session measures it.
    pub round_trips: Vec<(u8, TimeDelta)>,
    /// Whether the game waits for silent players, and [`UserCommand::ContinueAlone`] would resume it without them.
    pub can_continue_alone: bool,
    /// Site that paused the machine, while it is paused.
    pub paused_by: Option<u8>,
    /// Frames shown in the last second.
    pub fps: f64,
    /// Received datagrams that were not delivered.
    pub drops: DropCounts,
}

/// Command of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Leave.
    Quit,
    /// Start the game with the members that are ready; only the roster leader can.
    Start,
    /// Send a line of chat.
    Chat(String),
    /// Play on alone, without the silent players for which the game waits.
    ContinueAlone,
    /// Press a button of the machine, for all players.
    Control(MachineControl),
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Reason of the end.
    pub end_reason: EndReason,
    /// Number of confirmed frames.
    pub confirmed_frames: u32,
    /// Whether all compared state hashes were equal.
    pub is_in_sync: bool,
    /// Statistics of the run.
    pub stats: RunStats,
    /// Summary of the recording, if there was a recorder.
    pub recording: Option<RecordingSummary>,
}

/// Reason why a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum EndReason {
    /// The user or the frame limit ended it.
    Requested,
    /// The session ended.
    SessionEnded(SessionEnd),
    /// The spectator feed ended.
    FeedEnded,
}

/// Reason why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The dialed address does not answer.
    Unreachable {
        /// Address that was dialed.
        addr: PeerAddr,
        /// A site exists there, but its secret is another.
        wrong_secret: bool,
    },
    /// The site at the address is not the expected peer.
    WrongPeer {
        /// Address that was dialed.
        addr: PeerAddr,
    },
    /// The host refused this site.
    Refused(JoinRefusal),
    /// The host's game or machine differs from the local one, in these points.
    GameMismatch(Vec<String>),
    /// This program cannot decode the host's settings.
    UnreadableSettings,
    /// The host's settings break a rule that every host keeps.
    InvalidSettings(SettingsError),
    /// The machine failed.
    Machine(String),
    /// The roster leader is gone.
    HostGone,
    /// The session could not be created.
    SessionConfig(String),
    /// The spectator feed dropped this site.
    FeedDropped(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable { addr, wrong_secret: false } => write!(f, "nobody answers at {}", addr.brief()),
            Self::Unreachable { addr, wrong_secret: true } => {
                write!(f, "the site at {} does not know our secret", addr.brief())
            }
            Self::WrongPeer { addr } => {
                write!(f, "the site at {} is not the host of this game", addr.brief())
            }
            Self::Refused(JoinRefusal::Full) => write!(f, "the game is full: every seat is taken"),
            Self::Refused(JoinRefusal::VersionMismatch(theirs)) => {
                write!(
                    f,
                    "the host runs another version of coplay (protocol {theirs}, this one has {})",
                    crate::lobby::PROTOCOL_VERSION
                )
            }
            Self::Refused(JoinRefusal::NoSpectators) => write!(f, "nobody may watch this game"),
            Self::Refused(JoinRefusal::NotLeader { .. }) => write!(f, "the member asked does not admit joiners"),
            Self::Refused(JoinRefusal::WrongGameKind) => {
                write!(f, "the ticket belongs to a world, not to a machine game")
            }
            Self::GameMismatch(points) => write!(f, "the host plays something else: {}", points.join("; ")),
            Self::UnreadableSettings => write!(f, "this version of coplay cannot read the host's settings"),
            Self::InvalidSettings(reason) => write!(f, "the host sent invalid settings: {reason}"),
            Self::Machine(reason) => write!(f, "the machine failed: {reason}"),
            Self::HostGone => write!(f, "the host is gone"),
            Self::SessionConfig(reason) => write!(f, "invalid session settings: {reason}"),
            Self::FeedDropped(reason) => write!(f, "the spectator feed dropped this site: {reason}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Status interval.
const STATUS_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// Maximum interval between polls of the frontend.
const FRONTEND_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(20);
