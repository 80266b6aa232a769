//! The configuration of one site in a session.

use alloc::vec::Vec;
use core::fmt;

use super::auto_tune::MachineCosts;
use super::prediction::InputPredictor;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::Recovery;
use crate::pace::Pacing;
use crate::settings::{Settings, SettingsError};
use crate::spectator_feed::{FeedConfig, SpectatorStart};
use crate::time::TimeDelta;

/// Minimum of [`Config::drop_timeout`]. A waiting site sends only every 100 ms, so with a shorter limit two lost
/// packets in a row would make a suspect of a site that is still there.
pub const MIN_DROP_TIMEOUT: TimeDelta = TimeDelta::from_millis(300);

/// Minimum of [`Config::stall_limit`]: a few lost packets are no reason to drop a site.
pub const MIN_STALL_LIMIT: TimeDelta = TimeDelta::from_millis(100);

/// Parameters of one site in a session: its peers, its own policies and limits, and the settings that all sites share.
#[derive(Clone, Debug)]
pub struct Config {
    /// Session number, the same at every site. It separates the packets of one session from those of another. It should
    /// be unpredictable, so that strangers cannot make packets that seem to belong to the session.
    pub session_id: u64,
    /// This site's id, below [`Settings::site_count`].
    pub site: SiteId,
    /// All other sites and their addresses. An address is a number: the transport keeps a table from its own addresses
    /// to these numbers, and gives an unknown sender a new number, so that the session can recognize a site that has
    /// moved.
    pub peers: Vec<(SiteId, Addr)>,
    /// Whether the transport authenticates senders, so that the address of a datagram proves which peer sent it. If so,
    /// a peer's address never changes, and a tick or hello from any other address is refused, whatever it claims. If
    /// not, the session follows a peer that has moved to the address of its newest datagram.
    pub is_transport_authenticated: bool,
    /// The game, the machine and the shared parameters; the same at every site.
    pub settings: Settings,
    /// Recovery policy for lost inputs. Sites may have different ones.
    pub recovery: Recovery,
    /// Algorithm that sets the start time of each frame. Sites may have different ones.
    pub pacing: Pacing,
    /// Condition under which packets leave. Sites may have different ones.
    pub send_policy: SendPolicy,
    /// Predictor for missing inputs, used while the prediction window in force is above 0.
    pub predictor: InputPredictor,
    /// Whether the machine can save and load its state. If not, this site predicts no inputs, and
    /// [`Settings::auto_tune`] leaves the prediction window at 0. This site's feed then has no snapshots, so a late
    /// joiner that downloads from it has to step all frames from the first one on.
    pub can_save: bool,
    /// Whether this site takes part in the search for the cause of a desync. It then saves the state after every
    /// compared frame that is at least 64 frames after the previous such frame. This needs `can_save` and a
    /// [`Settings::compare_interval`] above 0. [`Config::new`] sets it if the settings allow prediction, because states
    /// are saved for that anyway.
    pub bisect_desyncs: bool,
    /// Initial estimates of the time to step, save and load the machine, for [`Settings::auto_tune`]. The session
    /// measures the real times while the game runs.
    pub machine_costs: MachineCosts,
    /// Parameters for joining a running game; `None` for a site that waits for the start in the lobby.
    pub late_join: Option<LateJoinConfig>,
    /// Feed for spectators and late joiners; `None` if this site serves none.
    pub feed: Option<FeedConfig>,
    /// A number that grows with every start of the program, such as the Unix time in seconds. It distinguishes a
    /// restarted site from its previous run.
    pub incarnation: u32,
    /// Silence after which this site proposes to drop another site; with `None` it waits for the silent site. The
    /// remaining sites go on if they are a quorum: more than half of the members, or half of them including the lowest.
    /// Sites may have different limits: a site consents to a proposal if it has not received from the proposed site for
    /// half of its own limit, or for 500 ms if it has no limit. The minimum is [`MIN_DROP_TIMEOUT`].
    ///
    /// Only silence counts here. [`Config::stall_limit`] covers a site that still sends but is slow or sends no inputs.
    /// A site whose program was restarted is proposed at once, even with `None`.
    pub drop_timeout: Option<TimeDelta>,
    /// Stall time after which this site, while it is the coordinator (the lowest site that plays), has any site dropped
    /// that still sends but holds up the game; with `None` it waits for the slow site. Stall time is the time for which
    /// the game waited for a site, plus the time that the site's link costs by lowering the frame rate; it decays by a
    /// tenth of the time that passes. [`Settings::absent_input`] defines the input of the dropped site's players until
    /// the site is back. The site may join again after 5 s or more, and only if the delay of its link fits into input
    /// delay plus prediction window. The minimum is [`MIN_STALL_LIMIT`].
    pub stall_limit: Option<TimeDelta>,
    /// Whether this site plays on after all other players have left, with the free seats open to joiners. If not, the
    /// session then ends with [`SessionEnd::Alone`](super::SessionEnd::Alone), unless the game started with free seats
    /// or another player was dropped, because that player can come back. If the others are only silent, a person can
    /// decide to play on with [`Session::continue_alone`](super::Session::continue_alone).
    pub can_play_alone: bool,
    /// Time for which a frame has to wait for inputs before the session reports a freeze.
    pub freeze_timeout: TimeDelta,
    /// Silence of another site whose inputs are still to come, while the game runs, after which this session ends; with
    /// `None` it waits forever.
    pub silence_timeout: Option<TimeDelta>,
}

/// Parameters with which a site downloads a running game to join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateJoinConfig {
    /// Start of the download: a snapshot, or the first frame of the game for machines that cannot load a state.
    pub start: SpectatorStart,
    /// Maximum accepted size of a snapshot, in bytes.
    pub max_state_len: usize,
}

/// Condition under which a packet to a peer leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendPolicy {
    /// At once when there is something new: one packet per frame and peer.
    #[default]
    AtOnce,
    /// Whenever a timer of this period expires, as in Zhao et al., whose period is 20 ms. This policy exists for
    /// comparison with theirs.
    Timer(TimeDelta),
    /// When there is something new and about one [send interval](super::JitterBufferModel::send_interval) has passed
    /// since the previous packet, as in Kim and Park (their equation 3). Packets that could overtake each other are
    /// merged into one.
    Measured,
}

impl Config {
    /// Creates a default configuration: adaptive recovery, even pacing, a freeze event after 250 ms, and no limits for
    /// silent or slow sites. Change the fields for anything else.
    pub fn new(session_id: u64, site: SiteId, peers: Vec<(SiteId, Addr)>, settings: Settings) -> Self {
        Self {
            session_id,
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

    /// Checks the settings, the limits and the list of peers, as [`Session::new`](super::Session::new) does.
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
        let all_sites = SiteSet::first(usize::from(self.settings.site_count));
        if !all_sites.contains(self.site) {
            return Err(SettingsError::NoSuchSite(self.site).into());
        }
        let mut known = SiteSet::from_iter([self.site]);
        for (site, addr) in &self.peers {
            if !all_sites.contains(*site) {
                return Err(SettingsError::NoSuchSite(*site).into());
            }
            if known.contains(*site) {
                return Err(ConfigError::DuplicateSite(*site));
            }
            if self.peers.iter().any(|(other, other_addr)| other != site && other_addr == addr) {
                return Err(ConfigError::DuplicateAddress(*site));
            }
            known.insert(*site);
        }
        match all_sites.iter().find(|site| !known.contains(*site)) {
            Some(site) => Err(ConfigError::MissingAddress(site)),
            None => Ok(()),
        }
    }
}

/// Reason that a configuration is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The shared settings are invalid, for this reason.
    Settings(SettingsError),
    /// [`Config::peers`] lacks the named site.
    MissingAddress(SiteId),
    /// The settings ask for prediction, and the machine cannot save its state. Contains the prediction window, in
    /// frames.
    CannotSave(u32),
    /// [`Config::peers`] contains the named site twice, or that site is [`Config::site`].
    DuplicateSite(SiteId),
    /// The period of the send timer is not positive.
    InvalidSendTimer,
    /// The drop timeout is shorter than [`MIN_DROP_TIMEOUT`], so that a site could be dropped while it only waits.
    DropTimeoutTooShort(TimeDelta),
    /// The stall limit is shorter than [`MIN_STALL_LIMIT`], so that a site could be dropped for a few lost packets.
    StallLimitTooShort(TimeDelta),
    /// The named site has the same address as another one in [`Config::peers`].
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
            Self::MissingAddress(site) => write!(f, "the list of peers lacks site {site}"),
            Self::CannotSave(prediction_window) => {
                write!(
                    f,
                    "a prediction window of {prediction_window} frames needs a machine that can save and load \
                    its state; this machine cannot, so the window must be 0"
                )
            }
            Self::DuplicateSite(site) => write!(f, "site {site} is in the list of peers twice, or is this site"),
            Self::InvalidSendTimer => write!(f, "the period of the send timer must be longer than 0 ms"),
            Self::DropTimeoutTooShort(limit) => write!(
                f,
                "a drop timeout of {limit} is too short, the minimum is {MIN_DROP_TIMEOUT}: \
                    a waiting site sends only every 100 ms"
            ),
            Self::StallLimitTooShort(limit) => {
                write!(f, "a stall limit of {limit} is too short, the minimum is {MIN_STALL_LIMIT}")
            }
            Self::DuplicateAddress(site) => write!(f, "site {site} has the same address as another site"),
        }
    }
}

impl core::error::Error for ConfigError {}
