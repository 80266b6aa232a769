//! How one site takes part in a session.

use alloc::vec::Vec;
use core::fmt;

use super::auto_tune::MachineCosts;
use super::join::LateJoin;
use super::prediction::InputPredictor;
use super::settings::{Settings, SettingsError};
use super::slow_peer::MIN_STALL_LIMIT;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::Recovery;
use crate::pace::Pacing;
use crate::spectator_feed::FeedConfig;
use crate::time::TimeDelta;

/// The shortest silence for which a site can be dropped. Who waits sends only every 100 ms, so with less a packet that is late or
/// lost would make a site a suspect that is not gone.
pub const MIN_DROP_TIMEOUT: TimeDelta = TimeDelta::from_millis(300);

/// What one site needs to know to take part in a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// The session's number, the same at every site and not to be guessed: it tells one game's packets from another's.
    pub session_id: u64,
    /// Who we are.
    pub site: SiteId,
    /// Where the other sites are. A transport keeps a table from its own addresses to these numbers and gives a sender that it
    /// does not know a fresh one, so that a site that has moved can be found again.
    pub peers: Vec<(SiteId, Addr)>,
    /// Whether the transport authenticates senders, so that the address of a datagram proves which peer sent it. Then a peer's address
    /// never changes, and a datagram from any other address is refused, whatever it claims. If not, a peer that has moved is followed to
    /// the address of its newest datagram.
    pub is_transport_authenticated: bool,
    /// What is played and how; the same at every site.
    pub settings: Settings,
    /// How lost inputs come back.
    pub recovery: Recovery,
    /// How frames are paced.
    pub pacing: Pacing,
    /// When packets leave.
    pub send_policy: SendPolicy,
    /// How missing inputs are guessed, where [`Settings::window`] allows it.
    pub predictor: InputPredictor,
    /// Whether the machine can save and load its state. If not, nothing can be guessed, and nobody can come late but by playing
    /// everything from the first frame on; [`Settings::auto`] then leaves the window shut.
    pub can_save: bool,
    /// Whether differences between the sites' states are looked into: a state is kept every second or so. Usual where states are
    /// saved anyway, because frames may be guessed.
    pub bisect_desyncs: bool,
    /// What the machine takes to step, save and load, as far as that is known; repairs are measured as they happen.
    pub machine_costs: MachineCosts,
    /// Takes a seat in a game that runs already; `None` waits for a start in the lobby.
    pub late_join: Option<LateJoin>,
    /// Serves those who watch, and those who come late.
    pub feed: Option<FeedConfig>,
    /// A number that is larger every time the program is started, such as the time of day in seconds: tells a site that comes back
    /// from the one that was there before.
    pub incarnation: u32,
    /// A site that is silent for longer than this is dropped, and the others go on, if they are more than half, or half with the
    /// lowest of them; `None` waits for it. Who waits sends only every 100 ms, and one such packet may be lost: it is
    /// [`MIN_DROP_TIMEOUT`] or more. Sites need not wait for the same time: who is asked to drop another does so after half of its own.
    ///
    /// Silence is all that counts: for who is heard, but slow or without inputs, there is [`Config::stall_limit`].
    pub drop_timeout: Option<TimeDelta>,
    /// A site that is heard, but has held up the game for as long as this of late, is dropped by the coordinator, which is the lowest
    /// site that plays, and whose word alone counts; `None` waits for it. What its players do until it is back says
    /// [`Settings::absent`]. It is let in again some seconds later, and only over a way that is short enough. At least
    /// [`MIN_STALL_LIMIT`].
    pub stall_limit: Option<TimeDelta>,
    /// Whether the last player left plays on alone, and others can take the free seats: otherwise the session ends with
    /// [`End::Alone`](super::End::Alone) when all others have left. Where the others are only silent,
    /// [`Session::go_on_alone`](super::Session::continue_alone) lets a person decide.
    pub can_play_alone: bool,
    /// A wait for inputs that is longer than this is told as a freeze.
    pub freeze_timeout: TimeDelta,
    /// The session ends when a site is silent for longer than this; `None` waits for ever.
    pub silence_timeout: Option<TimeDelta>,
}

/// When packets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendPolicy {
    /// As soon as there is something new: one packet per frame and peer.
    #[default]
    AtOnce,
    /// When a timer of this period rings, as in Zhao et al., who used 20 ms; for comparison.
    Timer(TimeDelta),
    /// As soon as there is something new, but no more often than delays vary, as in Kim and Park (their equation 3): what would overtake
    /// each other anyway is one packet.
    Measured,
}

impl Config {
    /// The usual way of taking part: adaptive recovery, even pacing, a freeze told after 250 ms, and no giving up. Change the fields
    /// for another.
    pub fn new(session: u64, site: SiteId, peers: Vec<(SiteId, Addr)>, settings: Settings) -> Self {
        Self {
            session_id: session,
            site,
            peers,
            is_transport_authenticated: false,
            recovery: Recovery::default(),
            pacing: Pacing::default(),
            send_policy: SendPolicy::default(),
            predictor: InputPredictor::default(),
            late_join: None,
            feed: None,
            can_save: true,
            bisect_desyncs: settings.prediction_window > 0 || settings.auto_tune,
            machine_costs: MachineCosts::default(),
            incarnation: 1,
            drop_timeout: None,
            stall_limit: None,
            can_play_alone: false,
            freeze_timeout: TimeDelta::from_millis(250),
            silence_timeout: None,
            settings,
        }
    }

    /// Whether a session can be made of this.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.settings.check()?;
        if self.settings.prediction_window > 0 && !self.can_save {
            return Err(ConfigError::CannotSave(self.settings.prediction_window));
        }
        if matches!(self.send_policy, SendPolicy::Timer(period) if period <= TimeDelta::ZERO) {
            return Err(ConfigError::InvalidSendTimer);
        }
        if let Some(limit) = self.drop_timeout.filter(|limit| *limit < MIN_DROP_TIMEOUT) {
            return Err(ConfigError::DropTimeoutTooShort(limit));
        }
        if let Some(limit) = self.stall_limit.filter(|limit| *limit < MIN_STALL_LIMIT) {
            return Err(ConfigError::StallLimitTooShort(limit));
        }
        let everyone = SiteSet::first(usize::from(self.settings.site_count));
        if !everyone.contains(self.site) {
            return Err(SettingsError::NoSuchSite(self.site).into());
        }
        let mut known = SiteSet::from_iter([self.site]);
        for (site, addr) in &self.peers {
            if !everyone.contains(*site) {
                return Err(SettingsError::NoSuchSite(*site).into());
            }
            if known.contains(*site) {
                return Err(ConfigError::DuplicateSite(*site));
            }
            if self.peers.iter().any(|(other, there)| other != site && there == addr) {
                return Err(ConfigError::DuplicateAddress(*site));
            }
            known.insert(*site);
        }
        match everyone.iter().find(|site| !known.contains(*site)) {
            Some(site) => Err(ConfigError::MissingAddress(site)),
            None => Ok(()),
        }
    }
}

/// Why a site cannot take part as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The settings are unfit.
    Settings(SettingsError),
    /// A site's address is missing.
    MissingAddress(SiteId),
    /// Frames would be guessed and could not be repaired.
    CannotSave(u32),
    /// A site is named twice, or is ourselves.
    DuplicateSite(SiteId),
    /// A send timer must have a period.
    InvalidSendTimer,
    /// A site would be dropped although it only waits: at least [`MIN_DROP_TIMEOUT`].
    DropTimeoutTooShort(TimeDelta),
    /// A site would be dropped for a hiccup: at least [`MIN_STALL_LIMIT`].
    StallLimitTooShort(TimeDelta),
    /// Two sites have the same address.
    DuplicateAddress(SiteId),
}

impl From<SettingsError> for ConfigError {
    fn from(error: SettingsError) -> Self {
        Self::Settings(error)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::MissingAddress(site) => write!(f, "the address of site {site} is missing"),
            Self::CannotSave(window) => {
                write!(f, "a window of {window} frames needs a machine that can save and load its state (0 needs none)")
            }
            Self::DuplicateSite(site) => write!(f, "site {site} is named twice (a site is not its own peer)"),
            Self::InvalidSendTimer => write!(f, "a send timer needs a period longer than nothing"),
            Self::DropTimeoutTooShort(limit) => write!(
                f,
                "{limit} of silence are too few to drop a site, the least is {MIN_DROP_TIMEOUT}: who waits sends every 100 ms"
            ),
            Self::StallLimitTooShort(limit) => {
                write!(f, "a site that holds up the game for {limit} is only unlucky, the least is {MIN_STALL_LIMIT}")
            }
            Self::DuplicateAddress(site) => write!(f, "site {site} has the same address as another"),
        }
    }
}

impl core::error::Error for ConfigError {}
