//! Identifies the core to open: by a core name, which may come from another computer, or by a path, which only the user
//! of this computer may give.
//!
//! Opening a core runs native code, so text from another computer must never choose the file. A [`CoreName`] consists
//! of letters, digits, `-` and `_`, and finds a file only by comparison with the names of installed cores. A path is a
//! separate type.

use std::fmt;
use std::path::{MAIN_SEPARATOR, PathBuf};

use super::core_name::CoreName;
use super::error::CoreOpenError;

/// Extensions that mark the user's text as a path, even without a folder.
const LIBRARY_EXTENSIONS: [&str; 3] = [".so", ".dll", ".dylib"];

/// The core to open, by name or by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreSource {
    /// The installed core of this name, from the folders that [`search_folders`](super::search_folders) returns.
    Name(CoreName),
    /// The core in this file, whatever the file's name.
    Path(PathBuf),
}

impl CoreSource {
    /// Parses text typed by the user of this computer: a path if it has a folder or the extension of a library,
    /// otherwise a name. Never pass untrusted text: opening a path runs the code in that file. For untrusted text use
    /// [`CoreName::new`].
    pub fn from_user(text: &str) -> Result<Self, CoreOpenError> {
        let has_extension = LIBRARY_EXTENSIONS.iter().any(|extension| text.ends_with(extension));
        if has_extension || text.contains([MAIN_SEPARATOR, '/']) {
            return Ok(Self::Path(text.into()));
        }
        CoreName::new(text).map(Self::Name).ok_or_else(|| CoreOpenError::InvalidName(text.to_owned()))
    }
}

impl fmt::Display for CoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_source_from_user_accepts_file_paths() {
        let path = |text: &str| Ok(CoreSource::Path(text.into()));
        for file in ["./core", "/opt/x_libretro.so", "x.so", "x.dll", "x.dylib"] {
            assert_eq!(CoreSource::from_user(file), path(file));
        }
        assert_eq!(CoreSource::from_user("nestopia").map(|core| core.to_string()), Ok("nestopia".into()));
        assert_eq!(CoreSource::from_user(""), Err(CoreOpenError::InvalidName(String::new())));
    }
}
