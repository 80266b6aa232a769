//! Shared settings: the values that must be equal at all sites before a game starts.

mod builder;
pub(crate) mod encode;

pub use builder::SettingsBuilder;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::frame::FrameRate;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::Ownership;

/// Maximum length of a name, a version, or an option's key or value, in bytes.
pub const MAX_TEXT_LEN: usize = 64;
/// Allowed characters of a machine's name besides ASCII letters, digits and spaces.
const NAME_SYMBOLS: &str = "-_.+~'()[]!,&#";
/// Maximum number of [`MachineId::options`].
pub const MAX_OPTIONS: usize = 32;
/// Maximum distance between two comparisons of states, in frames.
pub const MAX_COMPARE_INTERVAL: u32 = 3_600;
/// Maximum input delay, in frames: 2 s at 60 frames per second, far more than a game is playable with.
pub const MAX_INPUT_DELAY: u32 = 120;
/// Maximum prediction window, in frames: 1 s at 60 frames per second, more than most machines can resimulate within a
/// frame period.
pub const MAX_PREDICTION_WINDOW: u32 = 60;
/// Maximum sum of input delay and prediction window, in frames. A site can be ahead of another by this sum, gives
/// inputs further ahead by the input delay, and the other site may roll back by the prediction window. So inputs up to
/// twice this sum apart must be kept at once, and a site keeps 256 frames of them.
pub const MAX_LEAD: u32 = 127;

/// Longest prediction window that automatic tuning chooses, in frames.
pub(crate) const MAX_AUTO_PREDICTION_WINDOW: u32 = 20;

/// The game and the parameters of the session. If they differ between sites, the game does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The game, which sites compare by [`GameId::hash`] alone.
    pub game: GameId,
    /// The machine that runs the game, which sites compare by all fields.
    pub machine: MachineId,
    /// Frame rate of the machine, at which the game runs at full speed.
    pub rate: FrameRate,
    /// Input delay: frames between sampling a local input and the frame in which it takes effect, at most
    /// [`MAX_INPUT_DELAY`].
    pub input_delay: u32,
    /// Prediction window: maximum number of frames that may be stepped with predicted inputs and rolled back on a
    /// misprediction. 0 is pure lockstep, which only needs a deterministic machine; more needs a machine that can save
    /// and load its state.
    pub prediction_window: u32,
    /// Whether the session changes input delay and prediction window, which are then only initial values, to follow the
    /// needs of links and machines.
    pub auto_tune: bool,
    /// Input of a dropped site's players until the seat is taken again.
    pub absent_input: AbsentInput,
    /// Reaction of all sites to buffered inputs that are about to run out.
    pub starvation_policy: StarvationPolicy,
    /// Distance between comparisons of state hashes, in frames; 0 disables them. A site that searches for desyncs keeps
    /// the inputs of at least that many frames and replays them in one go.
    pub compare_interval: u32,
    /// Number of seats, 2 to [`MAX_SITES`], including those that are free at the start.
    pub site_count: u8,
    /// Sites that the game waits for before it starts. The seats of the others are free and can be taken while it runs.
    pub starting_sites: SiteSet,
    /// Owner of each bit of the players' input words.
    pub ownership: Ownership,
}

/// Input of the players of a site that was dropped, for example [for
/// silence](crate::session::Config::drop_timeout) or [for stalling](crate::session::Config::stall_limit), until the
/// seat is taken again. A site that has left in an orderly way has neutral input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AbsentInput {
    /// Neutral input: all bits are 0.
    #[default]
    Nothing,
    /// The last input of the site, repeated in every frame.
    Repeat,
}

/// Behaviour of sites when their buffered inputs are about to run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StarvationPolicy {
    /// Each site steps the frames that it has inputs for, then waits for the missing ones.
    #[default]
    Wait,
    /// All sites pause together for one input delay, at most 1 s, in which their buffers fill again, as in Kim and
    /// Park: one long pause instead of many short ones. Intended for an input delay that is long enough to request lost
    /// inputs, about 300 ms, with [`Recovery::History`](crate::input::Recovery). No site asks for a pause while the
    /// prediction window is above 0.
    Pause,
}

/// A game, identified by its content. The name is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GameId {
    /// Name for display. Sites with different names are compatible.
    pub name: String,
    /// Hash of the game's image, as the host program computes it; in Coplay SHA-256.
    pub hash: [u8; 32],
}

/// A machine, identified by name, version, options and behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineId {
    /// The machine's name, which [`MachineId::is_valid_name`] must accept.
    pub name: String,
    /// Version, or any other text that distinguishes incompatible builds.
    pub version: String,
    /// Options that change the machine's computation, as key and value; each key once, in any order.
    pub options: Vec<(String, String)>,
    /// Hash of the machine's behaviour in its first frames without input, such as pictures and states. Builds for which
    /// it differs are incompatible.
    pub first_frames_hash: u64,
}

/// A difference between two sites' settings, protocol versions or site numbers. `ours` and `theirs` can be shown to a
/// person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsDifference {
    /// Name of the setting as a phrase for display, such as "the frame rate".
    pub setting: String,
    /// Value at this site, as text for display.
    pub ours: String,
    /// Value at the other site, as text for display.
    pub theirs: String,
}

impl fmt::Display for SettingsDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} differs: {} here, {} there", self.setting, self.ours, self.theirs)
    }
}

/// Reason that settings are invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// The number of sites is not 2 to [`MAX_SITES`].
    InvalidSiteCount(u8),
    /// The set of starting sites is empty or contains a site without a seat.
    InvalidStartingSites(SiteSet),
    /// The configuration names a site that is not below [`Settings::site_count`].
    NoSuchSite(SiteId),
    /// The input delay is longer than [`MAX_INPUT_DELAY`].
    InputDelayTooLong(u32),
    /// The prediction window is longer than [`MAX_PREDICTION_WINDOW`].
    PredictionWindowTooLong(u32),
    /// Input delay and prediction window together are longer than [`MAX_LEAD`].
    LeadTooLong(u32),
    /// A name, a version, or an option's key or value is longer than [`MAX_TEXT_LEN`] bytes.
    TextTooLong(String),
    /// The machine's name is invalid: see [`MachineId::is_valid_name`].
    InvalidMachineName(String),
    /// The machine has more than [`MAX_OPTIONS`] options.
    TooManyOptions(usize),
    /// Two machine options have this key.
    DuplicateOption(String),
    /// The interval of state comparisons is longer than [`MAX_COMPARE_INTERVAL`].
    CompareIntervalTooLong(u32),
    /// Input bits are assigned to a site that is not below [`Settings::site_count`].
    UnknownOwner(SiteId),
    /// The encoded settings do not fit into one packet with the rest of a hello.
    TooLarge,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSiteCount(sites) => write!(f, "a session has 2 to {MAX_SITES} sites, not {sites}"),
            Self::InvalidStartingSites(sites) => write!(f, "no starting site, or one without a seat: {sites:?}"),
            Self::NoSuchSite(site) => write!(f, "there is no site {site} in this session"),
            Self::InputDelayTooLong(input_delay) => {
                write!(f, "an input delay of {input_delay} frames is too long, the maximum is {MAX_INPUT_DELAY} frames")
            }
            Self::PredictionWindowTooLong(prediction_window) => {
                write!(
                    f,
                    "a prediction window of {prediction_window} frames is too long, the maximum is {MAX_PREDICTION_WINDOW} frames"
                )
            }
            Self::LeadTooLong(frames) => {
                write!(
                    f,
                    "input delay and prediction window are {frames} frames together, the maximum is {MAX_LEAD} frames"
                )
            }
            Self::TextTooLong(text) => {
                write!(f, "name, version or option {text:?} is longer than {MAX_TEXT_LEN} bytes")
            }
            Self::InvalidMachineName(name) => {
                write!(
                    f,
                    "invalid machine name {name:?}: ASCII letters, digits, spaces and {NAME_SYMBOLS} are allowed, \
                    and at least one letter or digit is needed"
                )
            }
            Self::TooManyOptions(count) => {
                write!(f, "{count} machine options are too many, the maximum is {MAX_OPTIONS}")
            }
            Self::DuplicateOption(key) => write!(f, "the machine option {key:?} is given twice"),
            Self::CompareIntervalTooLong(frames) => {
                write!(
                    f,
                    "{frames} frames between state comparisons are too many, the maximum is {MAX_COMPARE_INTERVAL}"
                )
            }
            Self::UnknownOwner(site) => write!(f, "input bits are assigned to site {site}, which has no seat"),
            Self::TooLarge => {
                write!(f, "the settings do not fit into one packet; use fewer or shorter machine options")
            }
        }
    }
}

impl core::error::Error for SettingsError {}

impl Settings {
    /// Returns a builder with defaults: two sites with one player each, an input delay of 2 frames, a prediction window
    /// of 8 frames, and a comparison of states every 60 frames.
    pub fn builder(game: GameId, machine: MachineId, rate: FrameRate) -> SettingsBuilder {
        SettingsBuilder::new(game, machine, rate)
    }

    /// Checks every setting against its limits, and that the encoded settings fit into one packet.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.site_count < 2 || usize::from(self.site_count) > MAX_SITES {
            return Err(SettingsError::InvalidSiteCount(self.site_count));
        }
        if self.input_delay > MAX_INPUT_DELAY {
            return Err(SettingsError::InputDelayTooLong(self.input_delay));
        }
        if self.starting_sites.is_empty()
            || !SiteSet::first(usize::from(self.site_count)).contains_all(self.starting_sites)
        {
            return Err(SettingsError::InvalidStartingSites(self.starting_sites));
        }
        if self.prediction_window > MAX_PREDICTION_WINDOW {
            return Err(SettingsError::PredictionWindowTooLong(self.prediction_window));
        }
        if self.input_delay + self.prediction_window > MAX_LEAD {
            return Err(SettingsError::LeadTooLong(self.input_delay + self.prediction_window));
        }
        let options = &self.machine.options;
        if options.len() > MAX_OPTIONS {
            return Err(SettingsError::TooManyOptions(options.len()));
        }
        let is_duplicate =
            |(at, (key, _)): (usize, &(String, String))| options[..at].iter().any(|(other, _)| other == key);
        if let Some((at, _)) = options.iter().enumerate().find(|option| is_duplicate(*option)) {
            return Err(SettingsError::DuplicateOption(options[at].0.clone()));
        }
        if self.compare_interval > MAX_COMPARE_INTERVAL {
            return Err(SettingsError::CompareIntervalTooLong(self.compare_interval));
        }
        let texts = options.iter().flat_map(|(key, value)| [key, value]);
        let mut texts = texts.chain([&self.game.name, &self.machine.name, &self.machine.version]);
        if let Some(text) = texts.find(|text| text.len() > MAX_TEXT_LEN) {
            return Err(SettingsError::TextTooLong(text.clone()));
        }
        if !MachineId::is_valid_name(&self.machine.name) {
            return Err(SettingsError::InvalidMachineName(self.machine.name.clone()));
        }
        let unused_sites = SiteId::first(MAX_SITES).skip(usize::from(self.site_count));
        for site in unused_sites {
            if self.ownership.layout(site).width() > 0 {
                return Err(SettingsError::UnknownOwner(site));
            }
        }
        encode::settings_len(self).map(|_| ()).ok_or(SettingsError::TooLarge)
    }

    /// Returns the number of states kept at once for rollbacks. The host program needs
    /// [`Session::slots`](crate::session::Session::slots) slots in total.
    pub fn rollback_slots(&self) -> usize {
        let most = if self.auto_tune { MAX_AUTO_PREDICTION_WINDOW } else { 0 };
        self.prediction_window.max(most) as usize
    }

    /// Returns all differences from the settings of another site that prevent a common game; empty if there are none.
    /// The name of the game does not count.
    pub fn differences(&self, theirs: &Self) -> Vec<SettingsDifference> {
        if self == theirs {
            return Vec::new();
        }
        let mut found = Vec::new();
        if self.game.hash != theirs.game.hash {
            let (ours, theirs) =
                (self.game.label_distinct_from(&theirs.game), theirs.game.label_distinct_from(&self.game));
            found.push(SettingsDifference { setting: "the game".into(), ours, theirs });
        }
        let mut compare = |setting: &str, ours: String, theirs: String| {
            if ours != theirs {
                found.push(SettingsDifference { setting: setting.into(), ours, theirs });
            }
        };
        compare("the machine", self.machine.name.clone(), theirs.machine.name.clone());
        compare("the machine's version", self.machine.version.clone(), theirs.machine.version.clone());
        for key in self.machine.all_option_keys(&theirs.machine) {
            compare(
                &format!("the machine's option {key}"),
                self.machine.option_text(key),
                theirs.machine.option_text(key),
            );
        }
        compare("the hash of the first frames", self.machine.first_frames_text(), theirs.machine.first_frames_text());
        compare("the frame rate", format_rate(self.rate), format_rate(theirs.rate));
        compare("the input delay", format_frames(self.input_delay), format_frames(theirs.input_delay));
        compare(
            "the prediction window",
            format_frames(self.prediction_window),
            format_frames(theirs.prediction_window),
        );
        compare("automatic delay tuning", format_auto_tune(self.auto_tune), format_auto_tune(theirs.auto_tune));
        compare(
            "the input of absent players",
            format_absent_input(self.absent_input),
            format_absent_input(theirs.absent_input),
        );
        compare(
            "the behaviour when inputs run out",
            format_starvation_policy(self.starvation_policy),
            format_starvation_policy(theirs.starvation_policy),
        );
        compare(
            "the state comparison interval",
            format_frames(self.compare_interval),
            format_frames(theirs.compare_interval),
        );
        compare("the number of sites", format!("{}", self.site_count), format!("{}", theirs.site_count));
        compare(
            "the set of starting sites",
            format!("{:?}", self.starting_sites),
            format!("{:?}", theirs.starting_sites),
        );
        compare(
            "the number of players",
            format!("{}", self.ownership.players()),
            format!("{}", theirs.ownership.players()),
        );
        for site in SiteId::first(MAX_SITES) {
            for player in 0..self.ownership.players().max(theirs.ownership.players()) {
                let mask = |settings: &Self| format!("{:#x}", settings.ownership.mask(site, player));
                compare(&format!("the input bits of player {player} that site {site} owns"), mask(self), mask(theirs));
            }
        }
        found
    }
}

/// Formats a frame rate. Two rates may look alike and differ, so the fraction is shown as well.
fn format_rate(rate: FrameRate) -> String {
    let (frames, seconds) = rate.fraction();
    format!("{rate} ({frames}/{seconds})")
}

fn format_auto_tune(auto: bool) -> String {
    String::from(if auto { "on" } else { "off" })
}

fn format_absent_input(absent: AbsentInput) -> String {
    String::from(match absent {
        AbsentInput::Nothing => "none",
        AbsentInput::Repeat => "their last input",
    })
}

fn format_starvation_policy(starvation: StarvationPolicy) -> String {
    String::from(match starvation {
        StarvationPolicy::Wait => "each site waits",
        StarvationPolicy::Pause => "all sites pause",
    })
}

fn format_frames(count: u32) -> String {
    format!("{count} frames")
}

impl GameId {
    /// Identifies a game by the hash of its image.
    pub fn new(name: impl Into<String>, hash: [u8; 32]) -> Self {
        Self { name: name.into(), hash }
    }

    /// Returns the name and as many digits of the hash as distinguish it from that of `other`, at least eight.
    fn label_distinct_from(&self, other: &Self) -> String {
        let equal = self.hash.iter().zip(&other.hash).take_while(|(ours, theirs)| ours == theirs).count();
        let shown = &self.hash[..(equal + 1).clamp(4, self.hash.len())];
        let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:?} ({digits}…)", self.name)
    }
}

impl MachineId {
    /// Identifies a machine without options whose behaviour follows from its name and version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { name: name.into(), version: version.into(), options: Vec::new(), first_frames_hash: 0 }
    }

    /// Returns whether a machine can have this name: 1 to [`MAX_TEXT_LEN`] ASCII letters, digits, spaces and
    /// `-_.+~'()[]!,&#`, with at least one letter or digit. Settings carry names from untrusted sites, and a program
    /// may look up a machine by its name. So a path, a name that matches every machine, and a terminal control sequence
    /// are invalid.
    pub fn is_valid_name(name: &str) -> bool {
        let named = name.contains(|letter: char| letter.is_ascii_alphanumeric());
        named && name.len() <= MAX_TEXT_LEN && name.chars().all(Self::is_valid_name_char)
    }

    /// Returns whether a machine's name can contain this character: an ASCII letter or digit, a space, or one of
    /// `-_.+~'()[]!,&#`.
    pub fn is_valid_name_char(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || letter == ' ' || NAME_SYMBOLS.contains(letter)
    }

    /// Returns the option keys of both machines, sorted and without duplicates.
    fn all_option_keys<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let mut keys: Vec<&str> = self.options.iter().chain(&other.options).map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn first_frames_text(&self) -> String {
        format!("{:016x}", self.first_frames_hash)
    }

    fn option_text(&self, key: &str) -> String {
        let found = self.options.iter().find(|(name, _)| name == key);
        found.map_or_else(|| "unset".into(), |(_, value)| format!("{value:?}"))
    }
}
