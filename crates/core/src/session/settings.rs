//! What all sites must agree on before a game starts.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::auto_tune::MAX_AUTO_PREDICTION_WINDOW;
use crate::frame::FrameRate;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::Ownership;

/// The longest name, version, option or value, in bytes.
pub const MAX_TEXT_LEN: usize = 64;
/// Characters of a machine's name beside ASCII letters, digits and spaces.
const NAME_SYMBOLS: &str = "-_.+~'()[]!,&#";
/// The most options a machine can have.
pub const MAX_OPTIONS: usize = 32;
/// The most frames between two comparisons of states.
pub const MAX_COMPARE_INTERVAL: u32 = 3_600;
/// The longest local lag, in frames: two seconds at 60 per second, far past anything one can play with.
pub const MAX_INPUT_DELAY: u32 = 120;
/// The most frames that may be guessed: a second at 60 per second, more than any machine repairs in time.
pub const MAX_PREDICTION_WINDOW: u32 = 60;
/// The most frames of lag and window together. A site can be ahead of another by that much, gives inputs further ahead by the lag,
/// and the other may go back by the window: so far apart are the inputs that must be kept at once, and 256 frames are.
pub const MAX_LEAD: u32 = 127;

/// What the shared game is and how it is shared: equal at every site, or the game does not start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The game.
    pub game: GameId,
    /// The machine that runs it.
    pub machine: MachineId,
    /// Frames per second.
    pub rate: FrameRate,
    /// By how many frames local input is delayed.
    pub input_delay: u32,
    /// How many frames may be run on guessed inputs, to be repaired when the truth differs. 0 is pure lockstep, which asks nothing
    /// of a machine but to be deterministic; more asks it to save and load its state.
    pub prediction_window: u32,
    /// Whether lag and window are only where to begin, and follow what links and machines need.
    pub auto_tune: bool,
    /// What the players of a site that was dropped do until somebody has its seat again.
    pub absent_input: AbsentInput,
    /// What is done when inputs are about to run out.
    pub starvation_policy: StarvationPolicy,
    /// State hashes are compared every so many frames; 0 compares none. Whoever looks into differences keeps the inputs of that
    /// many frames, and plays them again at once.
    pub compare_interval: u32,
    /// How many sites there can be.
    pub site_count: u8,
    /// Those that the game waits for before it starts. The seats of the others are free, and can be taken while it runs.
    pub starting_sites: SiteSet,
    /// Who owns which input bits.
    pub ownership: Ownership,
}

/// What the players of a site do that was [dropped](super::Config::drop_timeout), or was [late](super::Config::stall_limit), until it has
/// joined again. Who leaves lets go of everything in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AbsentInput {
    /// They let go of everything.
    #[default]
    Nothing,
    /// They go on doing what they did last.
    Repeat,
}

/// What sites do when the inputs that they have of each other are about to run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StarvationPolicy {
    /// They go on as long as there are some, and each waits for those that are missing.
    #[default]
    Wait,
    /// All of them pause together until their buffers are full again, as in Kim and Park: one long rest instead of many short ones.
    /// Made for a lag that is long enough to ask for what was lost, some 300 ms, with [`Recovery::History`](crate::input::Recovery).
    Pause,
}

/// A game by its content; the name is for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GameId {
    /// What to call it; need not be equal.
    pub name: String,
    /// A hash of the image.
    pub hash: [u8; 32],
}

/// A machine by name, version, options and what it does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineId {
    /// The machine's name.
    pub name: String,
    /// Its version, or whatever else tells builds apart that do not fit together.
    pub version: String,
    /// Options that change what it computes, as key and value.
    pub options: Vec<(String, String)>,
    /// A hash of what it shows and computes in its first frames with no input, so that two builds of one machine can meet, and builds
    /// that differ cannot.
    pub first_frames_hash: u64,
}

/// One thing in which two sites' settings differ; `ours` and `theirs` are ready to be shown to a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsDifference {
    /// What differs.
    pub setting: String,
    /// What it is here.
    pub ours: String,
    /// What it is there.
    pub theirs: String,
}

impl fmt::Display for SettingsDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} differs: {} here, {} there", self.setting, self.ours, self.theirs)
    }
}

/// Why settings cannot be used at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// A session has 2 to 8 sites.
    InvalidSiteCount(u8),
    /// Nobody would start, or somebody who has no seat.
    InvalidStartingSites(SiteSet),
    /// There is no such site in this session.
    NoSuchSite(SiteId),
    /// The lag is longer than [`MAX_INPUT_DELAY`].
    InputDelayTooLong(u32),
    /// The window is longer than [`MAX_PREDICTION_WINDOW`].
    PredictionWindowTooLong(u32),
    /// Lag and window together are longer than [`MAX_LEAD`].
    LeadTooLong(u32),
    /// A text is longer than [`MAX_TEXT_LEN`] bytes.
    TextTooLong(String),
    /// No machine has such a name: see [`MachineId::is_valid_name`].
    InvalidMachineName(String),
    /// There are more than [`MAX_OPTIONS`] options.
    TooManyOptions(usize),
    /// A machine option is given twice.
    DuplicateOption(String),
    /// States would be compared too seldom: at most [`MAX_COMPARE_INTERVAL`] frames.
    CompareIntervalTooLong(u32),
    /// Bits are given to a site that does not take part.
    UnknownOwner(SiteId),
    /// All of it together does not fit into one packet.
    TooLarge,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSiteCount(sites) => write!(f, "a session has 2 to {MAX_SITES} sites, not {sites}"),
            Self::InvalidStartingSites(sites) => write!(f, "the game cannot start with {sites:?}"),
            Self::NoSuchSite(site) => write!(f, "there is no site {site} in this session"),
            Self::InputDelayTooLong(lag) => {
                write!(f, "a lag of {lag} frames is too long, the most is {MAX_INPUT_DELAY}")
            }
            Self::PredictionWindowTooLong(window) => {
                write!(f, "a window of {window} frames is too long, the most is {MAX_PREDICTION_WINDOW}")
            }
            Self::LeadTooLong(frames) => {
                write!(f, "lag and window are {frames} frames together, which is too long, the most is {MAX_LEAD}")
            }
            Self::TextTooLong(text) => write!(f, "{text:?} is longer than {MAX_TEXT_LEN} bytes"),
            Self::InvalidMachineName(name) => {
                write!(
                    f,
                    "invalid machine name {name:?}: only ASCII letters, digits, spaces and {NAME_SYMBOLS} are allowed"
                )
            }
            Self::TooManyOptions(count) => write!(f, "{count} machine options are too many, the most is {MAX_OPTIONS}"),
            Self::DuplicateOption(key) => write!(f, "the machine option {key:?} is given twice"),
            Self::CompareIntervalTooLong(frames) => {
                write!(f, "comparing states every {frames} frames is too seldom, the most is {MAX_COMPARE_INTERVAL}")
            }
            Self::UnknownOwner(site) => write!(f, "input bits are given to site {site}, which does not take part"),
            Self::TooLarge => {
                write!(f, "the settings do not fit into one packet; use fewer or shorter machine options")
            }
        }
    }
}

impl core::error::Error for SettingsError {}

impl Settings {
    /// Whether a session can be made of these settings.
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
        let again = |(at, (key, _)): (usize, &(String, String))| options[..at].iter().any(|(other, _)| other == key);
        if let Some((at, _)) = options.iter().enumerate().find(|option| again(*option)) {
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
        let idle = SiteId::first(MAX_SITES).skip(usize::from(self.site_count));
        for site in idle {
            if self.ownership.layout(site).width() > 0 {
                return Err(SettingsError::UnknownOwner(site));
            }
        }
        crate::wire::hello::settings_len(self).map(|_| ()).ok_or(SettingsError::TooLarge)
    }

    /// How many states are kept at once to repair what was guessed. A host program needs as many as
    /// [`Session::slots`](super::Session::rollback_slots) says.
    pub fn rollback_slots(&self) -> usize {
        let most = if self.auto_tune { MAX_AUTO_PREDICTION_WINDOW } else { 0 };
        self.prediction_window.max(most) as usize
    }

    /// Everything in which another site's settings differ from ours.
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
        let mut compare = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                found.push(SettingsDifference { setting: what.into(), ours, theirs });
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
        compare("the machine's first frames", self.machine.first_frames_text(), theirs.machine.first_frames_text());
        compare("the frame rate", format_rate(self.rate), format_rate(theirs.rate));
        compare("the lag", format_frames(self.input_delay), format_frames(theirs.input_delay));
        compare("the window", format_frames(self.prediction_window), format_frames(theirs.prediction_window));
        compare("who turns the dials", format_auto_tune(self.auto_tune), format_auto_tune(theirs.auto_tune));
        compare(
            "what absent players do",
            format_absent_input(self.absent_input),
            format_absent_input(theirs.absent_input),
        );
        compare(
            "what is done when inputs run out",
            format_starvation_policy(self.starvation_policy),
            format_starvation_policy(theirs.starvation_policy),
        );
        compare(
            "the distance of state hashes",
            format_frames(self.compare_interval),
            format_frames(theirs.compare_interval),
        );
        compare("the number of sites", format!("{}", self.site_count), format!("{}", theirs.site_count));
        compare("the sites that start", format!("{:?}", self.starting_sites), format!("{:?}", theirs.starting_sites));
        compare(
            "the number of players",
            format!("{}", self.ownership.players()),
            format!("{}", theirs.ownership.players()),
        );
        for site in SiteId::first(MAX_SITES) {
            for player in 0..self.ownership.players().max(theirs.ownership.players()) {
                let mask = |settings: &Self| format!("{:#x}", settings.ownership.mask(site, player));
                compare(&format!("site {site}'s part of player {player}"), mask(self), mask(theirs));
            }
        }
        found
    }
}

/// Two rates can look alike and not be, so the fraction is shown as well.
fn format_rate(rate: FrameRate) -> String {
    let (frames, seconds) = rate.fraction();
    format!("{rate} ({frames}/{seconds})")
}

fn format_auto_tune(auto: bool) -> String {
    String::from(if auto { "the game itself" } else { "nobody" })
}

fn format_absent_input(absent: AbsentInput) -> String {
    String::from(match absent {
        AbsentInput::Nothing => "nothing",
        AbsentInput::Repeat => "what they did last",
    })
}

fn format_starvation_policy(starvation: StarvationPolicy) -> String {
    String::from(match starvation {
        StarvationPolicy::Wait => "each waits",
        StarvationPolicy::Pause => "all pause",
    })
}

fn format_frames(count: u32) -> String {
    format!("{count} frames")
}

impl GameId {
    /// The name, and as much of the hash as tells it from the other.
    fn label_distinct_from(&self, other: &Self) -> String {
        let equal = self.hash.iter().zip(&other.hash).take_while(|(ours, theirs)| ours == theirs).count();
        let shown = &self.hash[..(equal + 1).clamp(4, self.hash.len())];
        let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:?} ({digits}…)", self.name)
    }
}

impl MachineId {
    /// Whether a machine can have this name: 1 to [`MAX_TEXT_LEN`] ASCII letters, digits, spaces and `-_.+~'()[]!,&#`, of which one is a letter or
    /// digit. Settings carry names from anybody, and a program may look for a machine by its name: a path, a name that fits every
    /// machine or a sequence that controls a terminal is none.
    pub fn is_valid_name(name: &str) -> bool {
        let named = name.contains(|letter: char| letter.is_ascii_alphanumeric());
        named && name.len() <= MAX_TEXT_LEN && name.chars().all(Self::is_valid_name_char)
    }

    /// Whether a machine's name can have this character.
    pub fn is_valid_name_char(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || letter == ' ' || NAME_SYMBOLS.contains(letter)
    }

    /// The options that either of two machines has, each once.
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
