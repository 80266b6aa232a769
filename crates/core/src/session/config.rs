//! How one site takes part in a session.

use alloc::vec::Vec;
use core::fmt;

use super::auto::Costs;
use super::guess::Predictor;
use super::join::Join;
use super::late::MIN_LATE_AFTER;
use super::settings::{Settings, SettingsError};
use crate::feed::FeedConfig;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::Recovery;
use crate::pace::Pacing;
use crate::time::TimeDelta;

/// The shortest silence for which a site can be dropped. Who waits sends only every 100 ms, so with less a packet that is late or
/// lost would make a site a suspect that is not gone.
pub const MIN_DROP_AFTER: TimeDelta = TimeDelta::from_millis(300);

/// What one site needs to know to take part in a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// The session's number, the same at every site and not to be guessed: it tells one game's packets from another's.
    pub session: u64,
    /// Who we are.
    pub site: SiteId,
    /// Where the other sites are. A transport keeps a table from its own addresses to these numbers and gives a sender that it
    /// does not know a fresh one, so that a site that has moved can be found again.
    pub peers: Vec<(SiteId, Addr)>,
    /// Whether the transport authenticates senders, so that the address of a datagram proves which peer sent it. Then a peer's address
    /// never changes, and a datagram from any other address is refused, whatever it claims. If not, a peer that has moved is followed to
    /// the address of its newest datagram.
    pub authenticated: bool,
    /// What is played and how; the same at every site.
    pub settings: Settings,
    /// How lost inputs come back.
    pub recovery: Recovery,
    /// How frames are paced.
    pub pacing: Pacing,
    /// When packets leave.
    pub sending: Sending,
    /// How missing inputs are guessed, where [`Settings::window`] allows it.
    pub predictor: Predictor,
    /// Whether the machine can save and load its state. If not, nothing can be guessed, and nobody can come late but by playing
    /// everything from the first frame on; [`Settings::auto`] then leaves the window shut.
    pub can_save: bool,
    /// Whether differences between the sites' states are looked into: a state is kept every second or so. Usual where states are
    /// saved anyway, because frames may be guessed.
    pub investigate: bool,
    /// What the machine takes to step, save and load, as far as that is known; repairs are measured as they happen.
    pub costs: Costs,
    /// Takes a seat in a game that runs already; `None` waits for a start in the lobby.
    pub join: Option<Join>,
    /// Serves those who watch, and those who come late.
    pub feed: Option<FeedConfig>,
    /// A number that is larger every time the program is started, such as the time of day in seconds: tells a site that comes back
    /// from the one that was there before.
    pub incarnation: u32,
    /// A site that is silent for longer than this is dropped, and the others go on, if they are more than half, or half with the
    /// lowest of them; `None` waits for it. Who waits sends only every 100 ms, and one such packet may be lost: it is
    /// [`MIN_DROP_AFTER`] or more. Sites need not wait for the same time: who is asked to drop another does so after half of its own.
    ///
    /// Silence is all that counts: for who is heard, but slow or without inputs, there is [`Config::late_after`].
    pub drop_after: Option<TimeDelta>,
    /// A site that is heard, but has held up the game for as long as this of late, is dropped by the coordinator, which is the lowest
    /// site that plays, and whose word alone counts; `None` waits for it. What its players do until it is back says
    /// [`Settings::absent`]. It is let in again some seconds later, and only over a way that is short enough. At least
    /// [`MIN_LATE_AFTER`].
    pub late_after: Option<TimeDelta>,
    /// Whether the last player left plays on alone, and others can take the free seats: otherwise the session ends with
    /// [`End::Alone`](super::End::Alone) when all others have left. Where the others are only silent,
    /// [`Session::go_on_alone`](super::Session::go_on_alone) lets a person decide.
    pub play_on_alone: bool,
    /// A wait for inputs that is longer than this is told as a freeze.
    pub freeze_after: TimeDelta,
    /// The session ends when a site is silent for longer than this; `None` waits for ever.
    pub give_up_after: Option<TimeDelta>,
}

/// When packets leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sending {
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
            session,
            site,
            peers,
            authenticated: false,
            recovery: Recovery::default(),
            pacing: Pacing::default(),
            sending: Sending::default(),
            predictor: Predictor::default(),
            join: None,
            feed: None,
            can_save: true,
            investigate: settings.window > 0 || settings.auto,
            costs: Costs::default(),
            incarnation: 1,
            drop_after: None,
            late_after: None,
            play_on_alone: false,
            freeze_after: TimeDelta::from_millis(250),
            give_up_after: None,
            settings,
        }
    }

    /// Whether a session can be made of this.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.settings.check()?;
        if self.settings.window > 0 && !self.can_save {
            return Err(ConfigError::CannotSave(self.settings.window));
        }
        if matches!(self.sending, Sending::Timer(period) if period <= TimeDelta::ZERO) {
            return Err(ConfigError::Timer);
        }
        if let Some(limit) = self.drop_after.filter(|limit| *limit < MIN_DROP_AFTER) {
            return Err(ConfigError::DropAfter(limit));
        }
        if let Some(limit) = self.late_after.filter(|limit| *limit < MIN_LATE_AFTER) {
            return Err(ConfigError::LateAfter(limit));
        }
        let everyone = SiteSet::first(usize::from(self.settings.sites));
        if !everyone.contains(self.site) {
            return Err(SettingsError::NoSuchSite(self.site).into());
        }
        let mut known = SiteSet::from_iter([self.site]);
        for (site, addr) in &self.peers {
            if !everyone.contains(*site) {
                return Err(SettingsError::NoSuchSite(*site).into());
            }
            if known.contains(*site) {
                return Err(ConfigError::Twice(*site));
            }
            if self.peers.iter().any(|(other, there)| other != site && there == addr) {
                return Err(ConfigError::SameAddress(*site));
            }
            known.insert(*site);
        }
        match everyone.iter().find(|site| !known.contains(*site)) {
            Some(site) => Err(ConfigError::Unknown(site)),
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
    Unknown(SiteId),
    /// Frames would be guessed and could not be repaired.
    CannotSave(u32),
    /// A site is named twice, or is ourselves.
    Twice(SiteId),
    /// A send timer must have a period.
    Timer,
    /// A site would be dropped although it only waits: at least [`MIN_DROP_AFTER`].
    DropAfter(TimeDelta),
    /// A site would be dropped for a hiccup: at least [`MIN_LATE_AFTER`].
    LateAfter(TimeDelta),
    /// Two sites have the same address.
    SameAddress(SiteId),
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
            Self::Unknown(site) => write!(f, "the address of site {site} is missing"),
            Self::CannotSave(window) => {
                write!(f, "a window of {window} frames needs a machine that can save and load its state (0 needs none)")
            }
            Self::Twice(site) => write!(f, "site {site} is named twice (a site is not its own peer)"),
            Self::Timer => write!(f, "a send timer needs a period longer than nothing"),
            Self::DropAfter(limit) => write!(
                f,
                "{limit} of silence are too few to drop a site, the least is {MIN_DROP_AFTER}: who waits sends every 100 ms"
            ),
            Self::LateAfter(limit) => {
                write!(f, "a site that holds up the game for {limit} is only unlucky, the least is {MIN_LATE_AFTER}")
            }
            Self::SameAddress(site) => write!(f, "site {site} has the same address as another"),
        }
    }
}

impl core::error::Error for ConfigError {}
