//! Identifies the core to open: by a core name, which may come from another computer, or by a path, which only the user
//! of this computer may give.
//!
//! Opening a core runs native code, so text from another computer must never choose the file. A [`CoreName`] consists
//! of letters, digits, `-` and `_`, and finds a file only by comparison with the names of installed cores. A path is a
//! separate type.

use std::fmt;
use std::path::{MAIN_SEPARATOR, PathBuf};

use super::error::CoreOpenError;

/// Maximum length of a core name, in bytes.
pub const MAX_CORE_NAME: usize = 64;

/// Extensions that mark the user's text as a path, even without a folder.
const LIBRARY_EXTENSIONS: [&str; 3] = [".so", ".dll", ".dylib"];

/// The name of a core, as in its file name: `nestopia`, `mednafen_pce_fast`. It is never a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreName(String);

impl CoreName {
    /// Returns a name of 1 to [`MAX_CORE_NAME`] ASCII letters, digits, `-` and `_`, with at least one letter or digit.
    pub fn new(text: &str) -> Option<Self> {
        let fits = text.len() <= MAX_CORE_NAME && text.contains(|char: char| char.is_ascii_alphanumeric());
        let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        (fits && text.chars().all(allowed)).then(|| Self(text.to_owned()))
    }

    /// Returns the likely core name of a machine: `beetle_pce_fast` for "Beetle PCE Fast". The text may be untrusted.
    /// Returns `None` if no valid core name results.
    pub fn from_machine_name(machine: &str) -> Option<Self> {
        let mut name = machine.to_lowercase().replace([' ', '-'], "_");
        name.retain(|char| !"()[].,'!&+#~".contains(char));
        Self::new(&name)
    }

    /// Returns the name as text, in the spelling that it was created with.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

    const INVALID_NAMES: [&str; 12] = [
        "",
        "-",
        "__",
        "./trap.so",
        "trap.so",
        "..",
        "../../trap",
        "C:\\trap.dll",
        "\\\\host\\share\\trap",
        "nestopia\0",
        "nestopia; reboot",
        "nest\u{f6}pia",
    ];

    #[test]
    fn core_name_rejects_paths_and_special_characters() {
        for hostile in INVALID_NAMES {
            assert_eq!(CoreName::new(hostile), None, "{hostile:?}");
        }
        assert_eq!(CoreName::new(&"a".repeat(MAX_CORE_NAME + 1)), None);
        assert_eq!(CoreName::new("mesen-s_2").as_ref().map(CoreName::as_str), Some("mesen-s_2"));
    }

    #[test]
    fn core_name_from_machine_name_is_valid_or_none() {
        let of = |machine| CoreName::from_machine_name(machine).map(|name| name.to_string());
        assert_eq!(of("Beetle PCE Fast").as_deref(), Some("beetle_pce_fast"));
        assert_eq!(of("PCSX-ReARMed").as_deref(), Some("pcsx_rearmed"));
        assert_eq!(of("nSide (Super Famicom Accuracy)").as_deref(), Some("nside_super_famicom_accuracy"));
        assert_eq!(of("Mr.Boom").as_deref(), Some("mrboom"));
        for hostile in
            ["", "()", "...", "./trap", "/tmp/trap.so", "C:\\trap.dll", "\\\\host\\trap", "a b; reboot", "\u{1b}[2J"]
        {
            assert_eq!(of(hostile), None, "{hostile:?}");
        }
        // Any other text is a name, which is only compared with the names of installed cores.
        assert_eq!(of("trap.so").as_deref(), Some("trapso"));
    }

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
