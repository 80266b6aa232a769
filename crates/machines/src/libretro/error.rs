//! Reasons why a core or its game cannot be opened.

use std::fmt;
use std::path::PathBuf;

use coplay::session::MAX_OPTIONS;

use super::core_name::MAX_CORE_NAME;

/// Reason why a core or its game cannot be opened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CoreOpenError {
    /// No core of that name is in the searched folders.
    NotFound {
        /// Requested core name.
        name: String,
        /// Folders that were searched, in this order.
        searched_folders: Vec<PathBuf>,
        /// Installed cores with a similar name.
        similar_names: Vec<String>,
        /// Hint with a command that may install the core; `None` if this system is not derived from Debian.
        install_hint: Option<String>,
    },
    /// The text is not a valid core name; [`CoreName::new`](super::CoreName::new) has the rules.
    InvalidName(String),
    /// The file of the core or the game cannot be read.
    Read {
        /// Path of the file that cannot be read.
        path: PathBuf,
        /// Reason as text, in most cases the error message of the operating system.
        reason: String,
    },
    /// The private folder of the core cannot be created or changed, or the path of the save folder, the BIOS folder or
    /// the game cannot be passed to a core; contains the reason.
    ScratchDir(String),
    /// The operating system cannot load the library of the core; contains the error message.
    Load(String),
    /// The library is not a libretro core: this function is missing.
    MissingFunction(&'static str),
    /// The core uses this version of the libretro API instead of version 1.
    UnsupportedVersion(u32),
    /// A requested option is not among those that the core declares.
    UnknownOption {
        /// Key of the requested option.
        key: String,
        /// Keys of the options that the core declares.
        known_options: Vec<String>,
    },
    /// The requested value of an option is not among those that the core declares for it.
    InvalidOptionValue {
        /// Key of the requested option.
        key: String,
        /// Requested value, which the core does not accept.
        value: String,
        /// Values that the core accepts for the option.
        valid_values: Vec<String>,
    },
    /// The machine id needs more options than it can hold: core options that differ from their defaults, the hash
    /// source, the number of players, devices and the platform. Contains the number of options.
    TooManyOptions(usize),
    /// No game was given, and the core does not run without one.
    NeedsGame,
    /// The core does not support files with this extension.
    UnsupportedExtension {
        /// Extension of the game file, in lower case.
        extension: String,
        /// Extensions that the core supports, in lower case.
        supported: Vec<String>,
    },
    /// A file with this extension only lists other files. This is not supported: the game id would cover only the list.
    MultiFileGame(String),
    /// The core requires GPU rendering, which is not supported.
    NeedsGpu,
    /// The core rejected the game. Contains the last log lines of the core, at most three.
    GameRejected(Vec<String>),
    /// The core announced this invalid frame rate, in frames per second.
    InvalidFrameRate(f64),
}

impl CoreOpenError {
    /// Returns advice that may resolve the error, or `None`.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { similar_names: similar, install_hint: install, .. } => {
                let similar = (!similar.is_empty()).then(|| format!("did you mean {}?", similar.join(" or ")));
                let hints: Vec<String> = similar.into_iter().chain(install.clone()).collect();
                (!hints.is_empty()).then(|| hints.join(" "))
            }
            Self::InvalidName(_) => {
                Some("use the name of an installed core, such as nestopia, or the path of its file".into())
            }
            Self::UnknownOption { known_options: options, .. } if options.is_empty() => {
                Some("leave out this option: the core has no options".into())
            }
            Self::UnknownOption { known_options: options, .. } => {
                Some(format!("the core's options are {}", options.join(", ")))
            }
            Self::InvalidOptionValue { valid_values: values, .. } => {
                Some(format!("valid values are {}", values.join(", ")))
            }
            Self::UnsupportedExtension { supported: extensions, .. } => {
                Some(format!("supported extensions are {}", extensions.join(", ")))
            }
            Self::TooManyOptions(_) => Some("leave more options of the core at their defaults".into()),
            Self::MultiFileGame(_) => Some("use a game image in a single file, such as a .chd file".into()),
            Self::NeedsGpu => Some("set the core option that selects a software renderer, if the core has one".into()),
            Self::GameRejected(_) => Some("if the core needs BIOS images, give the folder that contains them".into()),
            _ => None,
        }
    }
}

impl fmt::Display for CoreOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name, searched_folders: searched, .. } => {
                write!(f, "there is no libretro core named {name:?} in these folders:")?;
                searched.iter().try_for_each(|folder| write!(f, "\n  {}", folder.display()))
            }
            Self::InvalidName(name) => {
                write!(f, "invalid core name {name:?}: use 1 to {MAX_CORE_NAME} letters, digits, `-` and `_`")
            }
            Self::Read { path, reason } => write!(f, "cannot read {}: {reason}", path.display()),
            Self::ScratchDir(reason) => write!(f, "cannot prepare the folders for the core: {reason}"),
            Self::Load(reason) => write!(f, "cannot load the core: {reason}"),
            Self::MissingFunction(function) => write!(f, "not a libretro core: the function {function} is missing"),
            Self::UnsupportedVersion(version) => {
                write!(f, "the core uses version {version} of the libretro API; only version 1 is supported")
            }
            Self::UnknownOption { key, .. } => write!(f, "the core has no option {key:?}"),
            Self::InvalidOptionValue { key, value, .. } => {
                write!(f, "invalid value {value:?} for the core option {key:?}")
            }
            Self::TooManyOptions(count) => {
                write!(
                    f,
                    "sites can compare {MAX_OPTIONS} options of a machine, but this machine has {count} to compare"
                )
            }
            Self::NeedsGame => write!(f, "the core needs a game"),
            Self::UnsupportedExtension { extension, .. } if extension.is_empty() => {
                write!(f, "the core does not support files without an extension")
            }
            Self::UnsupportedExtension { extension, .. } => {
                write!(f, "the core does not support files with the extension {extension:?}")
            }
            Self::MultiFileGame(extension) => write!(f, "games in several files (.{extension}) are not supported"),
            Self::NeedsGpu => write!(f, "the core requires GPU rendering, which is not supported"),
            Self::GameRejected(log_lines) if log_lines.is_empty() => write!(f, "the core rejected the game"),
            Self::GameRejected(log_lines) => {
                write!(f, "the core rejected the game; the log of the core says: {}", log_lines.join(" / "))
            }
            Self::InvalidFrameRate(fps) => {
                write!(f, "the core announced an invalid frame rate of {fps} frames per second")
            }
        }
    }
}

impl std::error::Error for CoreOpenError {}
