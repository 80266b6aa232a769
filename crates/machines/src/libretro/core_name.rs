//! Names of cores, which may come from another computer.

use std::fmt;

/// Maximum length of a core name, in bytes.
pub const MAX_CORE_NAME: usize = 64;

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
}
