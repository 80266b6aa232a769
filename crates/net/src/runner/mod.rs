//! Driving a game in real time: one loop, on one thread, that owns the session, the machine and the pace.
//!
//! It waits for a datagram or for the next thing that is due, whichever comes first, and never for another thread. What is to be
//! sent leaves at once. A front end on a thread of its own is reached by [`Frontend`], whose functions must not wait.

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

/// The person in front of a site, or what stands for one. Nothing here may wait.
pub trait Frontend {
    /// What the local players press now, one word for each of them.
    fn sample_input(&mut self, pads: &mut [InputWord]);

    /// A frame is to be seen and heard.
    fn show_frame(&mut self, frame: Frame, machine: &dyn Machine);

    /// Something happened.
    fn on_event(&mut self, news: RunnerEvent<'_>);

    /// What the person wants, if anything.
    fn poll_command(&mut self) -> Option<UserCommand>;
}

/// Something to be shown.
#[derive(Debug)]
pub enum RunnerEvent<'a> {
    /// Who is around has changed.
    LobbyChanged(&'a LobbyInfo),
    /// The session has something to say.
    Session(&'a Event),
    /// A line of chat.
    Chat {
        /// Who says it.
        name: &'a str,
        /// What.
        text: &'a str,
    },
    /// How it goes, a few times a second.
    Status(&'a Status),
    /// The last other player is gone, and this site plays on alone. Told after the event, and after the party as it is now.
    PlayingAlone,
    /// Something else, in words.
    Note(String),
}

/// How it goes.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The session in numbers.
    pub stats: Stats,
    /// The session's state; `None` before it begins.
    pub state: Option<State>,
    /// The link to each other site that is there, by number.
    pub peers: Vec<(u8, PeerStats)>,
    /// How long it takes to each other site and back, by number, while no session measures it.
    pub round_trips: Vec<(u8, TimeDelta)>,
    /// Whether the game waits for silent players, and [`UserCommand::ContinueAlone`] would let it go on without them.
    pub can_continue_alone: bool,
    /// The site that paused the machine, while it stands still.
    pub paused_by: Option<u8>,
    /// Frames shown in the last second.
    pub fps: f64,
    /// What the network brought that was not for us.
    pub drops: DropCounts,
}

/// What a person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Away from here.
    Quit,
    /// To begin with those who are here, at the host.
    Start,
    /// To say something.
    Chat(String),
    /// To play on alone, without the silent players that the game waits for.
    ContinueAlone,
    /// To press a button of the machine, for all.
    Control(MachineControl),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// Why it is over.
    pub end_reason: EndReason,
    /// Frames that are certain.
    pub confirmed_frames: u32,
    /// Whether all states that were compared were equal.
    pub is_in_sync: bool,
    /// Everything in numbers.
    pub stats: RunStats,
    /// What is on record, if a movie was wanted.
    pub recording: Option<RecordingSummary>,
}

/// Why it is over.
#[derive(Clone, Debug, PartialEq)]
pub enum EndReason {
    /// So it was asked for.
    Requested,
    /// The session ended.
    SessionEnded(SessionEnd),
    /// The feed that was watched ended.
    FeedEnded,
}

/// Why it could not be.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// Nobody answers there.
    Unreachable {
        /// Where.
        addr: PeerAddr,
        /// Somebody is there, but the secret is another.
        wrong_secret: bool,
    },
    /// Who answers there is not who was called.
    WrongPeer {
        /// Where.
        addr: PeerAddr,
    },
    /// We were not let in.
    Refused(JoinRefusal),
    /// What the host plays is not what we have, in these points.
    GameMismatch(Vec<String>),
    /// The host's terms make no sense to this program.
    UnreadableSettings,
    /// The host's settings break a rule that every host keeps.
    InvalidSettings(SettingsError),
    /// The machine could not go on.
    Machine(String),
    /// Nobody keeps the list any more.
    HostGone,
    /// The session could not be made.
    SessionConfig(String),
    /// The feed let us go.
    FeedDropped(String),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable { addr: place, wrong_secret: false } => write!(f, "nobody answers at {}", place.brief()),
            Self::Unreachable { addr: place, wrong_secret: true } => {
                write!(f, "somebody is at {}, but does not know our secret", place.brief())
            }
            Self::WrongPeer { addr: place } => {
                write!(f, "who answers at {} is not the host of this game", place.brief())
            }
            Self::Refused(JoinRefusal::Full) => write!(f, "the game is full: every seat belongs to somebody"),
            Self::Refused(JoinRefusal::VersionMismatch(theirs)) => {
                write!(
                    f,
                    "the host runs another version of coplay (its language is {theirs}, ours {})",
                    crate::lobby::PROTOCOL_VERSION
                )
            }
            Self::Refused(JoinRefusal::NoSpectators) => write!(f, "nobody may watch this game"),
            Self::Refused(JoinRefusal::NotLeader { .. }) => write!(f, "the one we asked does not let people in"),
            Self::Refused(JoinRefusal::WrongGameKind) => write!(f, "what is played there is a world to walk about in"),
            Self::GameMismatch(points) => write!(f, "the host plays something else: {}", points.join("; ")),
            Self::UnreadableSettings => write!(f, "the host's terms make no sense to this version of coplay"),
            Self::InvalidSettings(why) => write!(f, "the host sent invalid settings: {why}"),
            Self::Machine(why) => write!(f, "the machine cannot go on: {why}"),
            Self::HostGone => write!(f, "the host is gone"),
            Self::SessionConfig(why) => write!(f, "there can be no such game: {why}"),
            Self::FeedDropped(why) => write!(f, "the game cannot be watched any more: {why}"),
        }
    }
}

impl std::error::Error for RunError {}

/// The status is told this often.
const STATUS_INTERVAL: TimeDelta = TimeDelta::from_millis(250);
/// The front end is asked at least this often.
const FRONTEND_POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(20);
