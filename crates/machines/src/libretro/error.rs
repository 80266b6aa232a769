//! Why a core or a game could not be opened.

use std::fmt;
use std::path::PathBuf;

use super::source::MAX_CORE_NAME;

/// Why there is no machine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CoreOpenError {
    /// No core of that name is anywhere where cores usually are.
    NotFound {
        /// What was looked for.
        name: String,
        /// The folders that were looked into.
        searched_folders: Vec<PathBuf>,
        /// Cores that are there and have a similar name.
        similar_names: Vec<String>,
        /// How to get it on this system, if that is known.
        install_hint: Option<String>,
    },
    /// No core can have this name.
    InvalidName(String),
    /// A file could not be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why, in the system's words.
        reason: String,
    },
    /// No private place for the core could be made.
    ScratchDir(String),
    /// The system cannot load the library; in its words.
    Load(String),
    /// The library is no libretro core: this function is missing.
    MissingFunction(&'static str),
    /// The core speaks another version of libretro.
    UnsupportedVersion(u32),
    /// The core has no such option.
    UnknownOption {
        /// The option.
        key: String,
        /// Those that it has.
        known_options: Vec<String>,
    },
    /// The option has no such value.
    InvalidOptionValue {
        /// The option.
        key: String,
        /// The value.
        value: String,
        /// Those that it has.
        valid_values: Vec<String>,
    },
    /// So many options are not at their default, which is more than sites can agree on.
    TooManyOptions(usize),
    /// The core runs only with a game.
    NeedsGame,
    /// The core does not take files with this ending.
    UnsupportedExtension {
        /// The ending.
        extension: String,
        /// Those that it takes.
        supported: Vec<String>,
    },
    /// A game with this ending is a list of further files, which is not supported: its identity would be that of the list.
    MultiFileGame(String),
    /// The core draws with the graphics card, which is not supported.
    NeedsGpu,
    /// The core does not want the game; its last words, if it said any.
    GameRejected(Vec<String>),
    /// The core says that it runs at so many frames per second, which cannot be.
    InvalidFrameRate(f64),
}

impl CoreOpenError {
    /// What to do about it, in one sentence.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { similar_names: close, install_hint: install, .. } => {
                let close = (!close.is_empty()).then(|| format!("did you mean {}?", close.join(" or ")));
                let both: Vec<String> = close.into_iter().chain(install.clone()).collect();
                (!both.is_empty()).then(|| both.join(" "))
            }
            Self::InvalidName(_) => {
                Some("use the name of an installed core, such as nestopia, or the path of its file".into())
            }
            Self::UnknownOption { known_options: known, .. } if known.is_empty() => {
                Some("this core has no options".into())
            }
            Self::UnknownOption { known_options: known, .. } => Some(format!("it has {}", known.join(", "))),
            Self::InvalidOptionValue { valid_values: values, .. } => Some(format!("it can be {}", values.join(", "))),
            Self::UnsupportedExtension { supported: taken, .. } => Some(format!("it takes {}", taken.join(", "))),
            Self::MultiFileGame(_) => Some("use one file that has all, such as a .chd".into()),
            Self::NeedsGpu => Some("look for an option of the core that switches to a software renderer".into()),
            Self::GameRejected(_) => Some("if the core needs a BIOS, say in which folder it is".into()),
            _ => None,
        }
    }
}

impl fmt::Display for CoreOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { name, searched_folders: looked, .. } => {
                write!(f, "there is no libretro core named {name:?}; looked in")?;
                looked.iter().try_for_each(|folder| write!(f, "\n  {}", folder.display()))
            }
            Self::InvalidName(name) => {
                write!(f, "invalid core name {name:?}: use 1 to {MAX_CORE_NAME} letters, digits, `-` and `_`")
            }
            Self::Read { path, reason: why } => write!(f, "cannot read {}: {why}", path.display()),
            Self::ScratchDir(why) => write!(f, "cannot make a private folder for the core: {why}"),
            Self::Load(why) => write!(f, "cannot load the core: {why}"),
            Self::MissingFunction(lacks) => write!(f, "this is no libretro core: it has no {lacks}"),
            Self::UnsupportedVersion(version) => {
                write!(f, "the core speaks version {version} of libretro, which is unknown here")
            }
            Self::UnknownOption { key, .. } => write!(f, "the core has no option {key:?}"),
            Self::InvalidOptionValue { key, value, .. } => {
                write!(f, "the option {key:?} of the core cannot be {value:?}")
            }
            Self::TooManyOptions(count) => write!(f, "{count} options are not at their default, which is too many"),
            Self::NeedsGame => write!(f, "the core runs only with a game"),
            Self::UnsupportedExtension { extension, .. } => {
                write!(f, "the core does not take files that end with {extension:?}")
            }
            Self::MultiFileGame(extension) => write!(f, "games of several files (.{extension}) cannot be shared"),
            Self::NeedsGpu => write!(f, "the core draws with the graphics card, which cannot be shared"),
            Self::GameRejected(said) if said.is_empty() => write!(f, "the core does not take the game"),
            Self::GameRejected(said) => write!(f, "the core does not take the game; it said: {}", said.join(" / ")),
            Self::InvalidFrameRate(fps) => {
                write!(f, "the core says that it runs at {fps} frames per second, which cannot be")
            }
        }
    }
}

impl std::error::Error for CoreOpenError {}
