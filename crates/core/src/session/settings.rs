//! What all sites must agree on before a game starts.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::auto::MOST_WINDOW;
use crate::frame::FrameRate;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::Ownership;

/// The longest name, version, option or value, in bytes.
pub const MAX_TEXT: usize = 64;
/// Characters of a machine's name beside ASCII letters, digits and spaces.
const NAME_SIGNS: &str = "-_.+~'()[]!,&#";
/// The most options a machine can have.
pub const MAX_OPTIONS: usize = 32;
/// The most frames between two comparisons of states.
pub const MAX_COMPARE_EVERY: u32 = 3_600;
/// The longest local lag, in frames: two seconds at 60 per second, far past anything one can play with.
pub const MAX_LAG: u32 = 120;
/// The most frames that may be guessed: a second at 60 per second, more than any machine repairs in time.
pub const MAX_WINDOW: u32 = 60;
/// The most frames of lag and window together. A site can be ahead of another by that much, gives inputs further ahead by the lag,
/// and the other may go back by the window: so far apart are the inputs that must be kept at once, and 256 frames are.
pub const MAX_REACH: u32 = 127;

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
    pub lag: u32,
    /// How many frames may be run on guessed inputs, to be repaired when the truth differs. 0 is pure lockstep, which asks nothing
    /// of a machine but to be deterministic; more asks it to save and load its state.
    pub window: u32,
    /// Whether lag and window are only where to begin, and follow what links and machines need.
    pub auto: bool,
    /// What the players of a site that was dropped do until somebody has its seat again.
    pub absent: Absent,
    /// What is done when inputs are about to run out.
    pub starvation: Starvation,
    /// State hashes are compared every so many frames; 0 compares none. Whoever looks into differences keeps the inputs of that
    /// many frames, and plays them again at once.
    pub compare_every: u32,
    /// How many sites there can be.
    pub sites: u8,
    /// Those that the game waits for before it starts. The seats of the others are free, and can be taken while it runs.
    pub starters: SiteSet,
    /// Who owns which input bits.
    pub ownership: Ownership,
}

/// What the players of a site do that was [dropped](super::Config::drop_after), or was [late](super::Config::late_after), until it has
/// joined again. Who leaves lets go of everything in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Absent {
    /// They let go of everything.
    #[default]
    Nothing,
    /// They go on doing what they did last.
    Repeat,
}

/// What sites do when the inputs that they have of each other are about to run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Starvation {
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
    pub first_frames: u64,
}

/// One thing in which two sites' settings differ; `ours` and `theirs` are ready to be shown to a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What differs.
    pub what: String,
    /// What it is here.
    pub ours: String,
    /// What it is there.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} differs: {} here, {} there", self.what, self.ours, self.theirs)
    }
}

/// Why settings cannot be used at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SettingsError {
    /// A session has 2 to 8 sites.
    Sites(u8),
    /// Nobody would start, or somebody who has no seat.
    Starters(SiteSet),
    /// There is no such site in this session.
    NoSuchSite(SiteId),
    /// The lag is longer than [`MAX_LAG`].
    Lag(u32),
    /// The window is longer than [`MAX_WINDOW`].
    Window(u32),
    /// Lag and window together are longer than [`MAX_REACH`].
    Reach(u32),
    /// A text is longer than [`MAX_TEXT`] bytes.
    Text(String),
    /// No machine has such a name: see [`MachineId::is_name`].
    MachineName(String),
    /// There are more than [`MAX_OPTIONS`] options.
    Options(usize),
    /// A machine option is given twice.
    Twice(String),
    /// States would be compared too seldom: at most [`MAX_COMPARE_EVERY`] frames.
    CompareEvery(u32),
    /// Bits are given to a site that does not take part.
    Owner(SiteId),
    /// All of it together does not fit into one packet.
    TooLarge,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sites(sites) => write!(f, "a session has 2 to {MAX_SITES} sites, not {sites}"),
            Self::Starters(sites) => write!(f, "the game cannot start with {sites:?}"),
            Self::NoSuchSite(site) => write!(f, "there is no site {site} in this session"),
            Self::Lag(lag) => write!(f, "a lag of {lag} frames is too long, the most is {MAX_LAG}"),
            Self::Window(window) => write!(f, "a window of {window} frames is too long, the most is {MAX_WINDOW}"),
            Self::Reach(frames) => {
                write!(f, "lag and window are {frames} frames together, which is too long, the most is {MAX_REACH}")
            }
            Self::Text(text) => write!(f, "{text:?} is longer than {MAX_TEXT} bytes"),
            Self::MachineName(name) => {
                write!(
                    f,
                    "invalid machine name {name:?}: only ASCII letters, digits, spaces and {NAME_SIGNS} are allowed"
                )
            }
            Self::Options(count) => write!(f, "{count} machine options are too many, the most is {MAX_OPTIONS}"),
            Self::Twice(key) => write!(f, "the machine option {key:?} is given twice"),
            Self::CompareEvery(frames) => {
                write!(f, "comparing states every {frames} frames is too seldom, the most is {MAX_COMPARE_EVERY}")
            }
            Self::Owner(site) => write!(f, "input bits are given to site {site}, which does not take part"),
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
        if self.sites < 2 || usize::from(self.sites) > MAX_SITES {
            return Err(SettingsError::Sites(self.sites));
        }
        if self.lag > MAX_LAG {
            return Err(SettingsError::Lag(self.lag));
        }
        if self.starters.is_empty() || !SiteSet::first(usize::from(self.sites)).contains_all(self.starters) {
            return Err(SettingsError::Starters(self.starters));
        }
        if self.window > MAX_WINDOW {
            return Err(SettingsError::Window(self.window));
        }
        if self.lag + self.window > MAX_REACH {
            return Err(SettingsError::Reach(self.lag + self.window));
        }
        let options = &self.machine.options;
        if options.len() > MAX_OPTIONS {
            return Err(SettingsError::Options(options.len()));
        }
        let again = |(at, (key, _)): (usize, &(String, String))| options[..at].iter().any(|(other, _)| other == key);
        if let Some((at, _)) = options.iter().enumerate().find(|option| again(*option)) {
            return Err(SettingsError::Twice(options[at].0.clone()));
        }
        if self.compare_every > MAX_COMPARE_EVERY {
            return Err(SettingsError::CompareEvery(self.compare_every));
        }
        let texts = options.iter().flat_map(|(key, value)| [key, value]);
        let mut texts = texts.chain([&self.game.name, &self.machine.name, &self.machine.version]);
        if let Some(text) = texts.find(|text| text.len() > MAX_TEXT) {
            return Err(SettingsError::Text(text.clone()));
        }
        if !MachineId::is_name(&self.machine.name) {
            return Err(SettingsError::MachineName(self.machine.name.clone()));
        }
        let idle = SiteId::first(MAX_SITES).skip(usize::from(self.sites));
        for site in idle {
            if self.ownership.layout(site).width() > 0 {
                return Err(SettingsError::Owner(site));
            }
        }
        crate::wire::hello::settings_size(self).map(|_| ()).ok_or(SettingsError::TooLarge)
    }

    /// How many states are kept at once to repair what was guessed. A host program needs as many as
    /// [`Session::slots`](super::Session::slots) says.
    pub fn slots(&self) -> usize {
        let most = if self.auto { MOST_WINDOW } else { 0 };
        self.window.max(most) as usize
    }

    /// Everything in which another site's settings differ from ours.
    pub fn differences(&self, theirs: &Self) -> Vec<Difference> {
        if self == theirs {
            return Vec::new();
        }
        let mut found = Vec::new();
        if self.game.hash != theirs.game.hash {
            let (ours, theirs) = (self.game.label(&theirs.game), theirs.game.label(&self.game));
            found.push(Difference { what: "the game".into(), ours, theirs });
        }
        let mut compare = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                found.push(Difference { what: what.into(), ours, theirs });
            }
        };
        compare("the machine", self.machine.name.clone(), theirs.machine.name.clone());
        compare("the machine's version", self.machine.version.clone(), theirs.machine.version.clone());
        for key in self.machine.keys(&theirs.machine) {
            compare(&format!("the machine's option {key}"), self.machine.option(key), theirs.machine.option(key));
        }
        compare("the machine's first frames", self.machine.beginning(), theirs.machine.beginning());
        compare("the frame rate", rate(self.rate), rate(theirs.rate));
        compare("the lag", frames(self.lag), frames(theirs.lag));
        compare("the window", frames(self.window), frames(theirs.window));
        compare("who turns the dials", dials(self.auto), dials(theirs.auto));
        compare("what absent players do", absent(self.absent), absent(theirs.absent));
        compare("what is done when inputs run out", starvation(self.starvation), starvation(theirs.starvation));
        compare("the distance of state hashes", frames(self.compare_every), frames(theirs.compare_every));
        compare("the number of sites", format!("{}", self.sites), format!("{}", theirs.sites));
        compare("the sites that start", format!("{:?}", self.starters), format!("{:?}", theirs.starters));
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
fn rate(rate: FrameRate) -> String {
    let (frames, seconds) = rate.fraction();
    format!("{rate} ({frames}/{seconds})")
}

fn dials(auto: bool) -> String {
    String::from(if auto { "the game itself" } else { "nobody" })
}

fn absent(absent: Absent) -> String {
    String::from(match absent {
        Absent::Nothing => "nothing",
        Absent::Repeat => "what they did last",
    })
}

fn starvation(starvation: Starvation) -> String {
    String::from(match starvation {
        Starvation::Wait => "each waits",
        Starvation::Pause => "all pause",
    })
}

fn frames(count: u32) -> String {
    format!("{count} frames")
}

impl GameId {
    /// The name, and as much of the hash as tells it from the other.
    fn label(&self, other: &Self) -> String {
        let equal = self.hash.iter().zip(&other.hash).take_while(|(ours, theirs)| ours == theirs).count();
        let shown = &self.hash[..(equal + 1).clamp(4, self.hash.len())];
        let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:?} ({digits}…)", self.name)
    }
}

impl MachineId {
    /// Whether a machine can have this name: 1 to [`MAX_TEXT`] ASCII letters, digits, spaces and `-_.+~'()[]!,&#`, of which one is a letter or
    /// digit. Settings carry names from anybody, and a program may look for a machine by its name: a path, a name that fits every
    /// machine or a sequence that controls a terminal is none.
    pub fn is_name(name: &str) -> bool {
        let named = name.contains(|letter: char| letter.is_ascii_alphanumeric());
        named && name.len() <= MAX_TEXT && name.chars().all(Self::is_name_char)
    }

    /// Whether a machine's name can have this character.
    pub fn is_name_char(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || letter == ' ' || NAME_SIGNS.contains(letter)
    }

    /// The options that either of two machines has, each once.
    fn keys<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let mut keys: Vec<&str> = self.options.iter().chain(&other.options).map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn beginning(&self) -> String {
        format!("{:016x}", self.first_frames)
    }

    fn option(&self, key: &str) -> String {
        let found = self.options.iter().find(|(name, _)| name == key);
        found.map_or_else(|| "unset".into(), |(_, value)| format!("{value:?}"))
    }
}
