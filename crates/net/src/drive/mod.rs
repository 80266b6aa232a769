//! Driving a game in real time: one loop, on one thread, that owns the session, the machine and the pace.
//!
//! It waits for a datagram or for the next thing that is due, whichever comes first, and never for another thread. What is to be
//! sent leaves at once. A front end on a thread of its own is reached by [`Front`], whose functions must not wait.

mod book;
mod guest;
mod log;
mod ping;
mod site;
mod survey;
mod tape;
mod watch;

pub use guest::{Guest, JoinPlan};
pub use log::{FrameLog, Numbers};
pub use site::{Alone, Drive, GIVE_UP, HostPlan, Manner};
pub use survey::{Survey, SurveyPlan, survey};
pub use tape::{Tape, Taped};
pub use watch::{Watch, WatchPlan};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::session::{Event, PeerStats, SessionEnd, SettingsError, State, Stats};
use coplay::time::TimeDelta;
use coplay_machines::Machine;
use coplay_machines::control::Control;

use crate::party::{Party, Refusal};
use crate::transport::{Place, Refused};

/// The person in front of a site, or what stands for one. Nothing here may wait.
pub trait Front {
    /// What the local players press now, one word for each of them.
    fn sample(&mut self, pads: &mut [InputWord]);

    /// A frame is to be seen and heard.
    fn show(&mut self, frame: Frame, machine: &dyn Machine);

    /// Something happened.
    fn tell(&mut self, news: News<'_>);

    /// What the person wants, if anything.
    fn poll(&mut self) -> Option<Command>;
}

/// Something to be shown.
#[derive(Debug)]
pub enum News<'a> {
    /// Who is around has changed.
    Party(&'a Party),
    /// The session has something to say.
    Session(&'a Event),
    /// A line of chat.
    Chat {
        /// Who says it.
        name: &'a str,
        /// What.
        line: &'a str,
    },
    /// How it goes, a few times a second.
    Status(&'a Status),
    /// The last other player is gone, and this site plays on alone. Told after the event, and after the party as it is now.
    Alone,
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
    pub trips: Vec<(u8, TimeDelta)>,
    /// Whether the game waits for silent players, and [`Command::GoOnAlone`] would let it go on without them.
    pub can_go_on_alone: bool,
    /// The site that paused the machine, while it stands still.
    pub paused: Option<u8>,
    /// Frames shown in the last second.
    pub fps: f64,
    /// What the network brought that was not for us.
    pub refused: Refused,
}

/// What a person wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Away from here.
    Quit,
    /// To begin with those who are here, at the host.
    Start,
    /// To say something.
    Chat(String),
    /// To play on alone, without the silent players that the game waits for.
    GoOnAlone,
    /// To press a button of the machine, for all.
    Control(Control),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it is over.
    pub why: Why,
    /// Frames that are certain.
    pub frames: u32,
    /// Whether all states that were compared were equal.
    pub agreed: bool,
    /// Everything in numbers.
    pub numbers: Numbers,
    /// What is on record, if a movie was wanted.
    pub taped: Option<Taped>,
}

/// Why it is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// So it was asked for.
    Done,
    /// The session ended.
    Ended(SessionEnd),
    /// The feed that was watched ended.
    FeedOver,
}

/// Why it could not be.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Nobody answers there.
    Unanswered {
        /// Where.
        place: Place,
        /// Somebody is there, but the secret is another.
        refused: bool,
    },
    /// Who answers there is not who was called.
    Stranger {
        /// Where.
        place: Place,
    },
    /// We were not let in.
    Refused(Refusal),
    /// What the host plays is not what we have, in these points.
    Different(Vec<String>),
    /// The host's terms make no sense to this program.
    Terms,
    /// The host's settings break a rule that every host keeps.
    Settings(SettingsError),
    /// The machine could not go on.
    Machine(String),
    /// Nobody keeps the list any more.
    HostGone,
    /// The session could not be made.
    Session(String),
    /// The feed let us go.
    Feed(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unanswered { place, refused: false } => write!(f, "nobody answers at {}", place.brief()),
            Self::Unanswered { place, refused: true } => {
                write!(f, "somebody is at {}, but does not know our secret", place.brief())
            }
            Self::Stranger { place } => write!(f, "who answers at {} is not the host of this game", place.brief()),
            Self::Refused(Refusal::Full) => write!(f, "the game is full: every seat belongs to somebody"),
            Self::Refused(Refusal::Version(theirs)) => {
                write!(
                    f,
                    "the host runs another version of coplay (its language is {theirs}, ours {})",
                    crate::party::VERSION
                )
            }
            Self::Refused(Refusal::Private) => write!(f, "nobody may watch this game"),
            Self::Refused(Refusal::NotMe { .. }) => write!(f, "the one we asked does not let people in"),
            Self::Refused(Refusal::OtherKind) => write!(f, "what is played there is a world to walk about in"),
            Self::Different(points) => write!(f, "the host plays something else: {}", points.join("; ")),
            Self::Terms => write!(f, "the host's terms make no sense to this version of coplay"),
            Self::Settings(why) => write!(f, "the host sent invalid settings: {why}"),
            Self::Machine(why) => write!(f, "the machine cannot go on: {why}"),
            Self::HostGone => write!(f, "the host is gone"),
            Self::Session(why) => write!(f, "there can be no such game: {why}"),
            Self::Feed(why) => write!(f, "the game cannot be watched any more: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The status is told this often.
const STATUS_EVERY: TimeDelta = TimeDelta::from_millis(250);
/// The front end is asked at least this often.
const LOOK_EVERY: TimeDelta = TimeDelta::from_millis(20);
