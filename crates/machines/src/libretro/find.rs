//! Finds cores in the folders of libretro frontends and Linux distributions.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::core_name::CoreName;
use super::error::CoreOpenError;
use super::source::CoreSource;

/// File name suffix of a core on this system.
const CORE_FILE_SUFFIX: &str = if cfg!(windows) {
    "_libretro.dll"
} else if cfg!(target_vendor = "apple") {
    "_libretro.dylib"
} else {
    "_libretro.so"
};

/// Returns the folders that are searched for cores: `first`, then `$LIBRETRO_DIRECTORY`, then the folders of Linux
/// distributions and of libretro frontends.
pub fn search_folders(first: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders = first.to_vec();
    folders.extend(env::var_os("LIBRETRO_DIRECTORY").iter().flat_map(env::split_paths));
    if cfg!(windows) {
        folders.extend(env::var_os("APPDATA").map(|data| Path::new(&data).join("RetroArch").join("cores")));
        folders.extend(["C:\\RetroArch-Win64\\cores", "C:\\RetroArch\\cores"].map(PathBuf::from));
        folders
            .extend(env::var_os("ProgramFiles").map(|programs| Path::new(&programs).join("RetroArch").join("cores")));
        return folders;
    }
    // Debian has one folder per architecture, such as /usr/lib/x86_64-linux-gnu/libretro.
    let mut debian_folders: Vec<PathBuf> = folder_entries(Path::new("/usr/lib"))
        .map(|folder| folder.join("libretro"))
        .filter(|folder| folder.is_dir())
        .collect();
    debian_folders.sort();
    folders.extend(debian_folders);
    folders.extend(["/usr/lib/libretro", "/usr/lib64/libretro", "/usr/local/lib/libretro"].map(PathBuf::from));
    if let Some(home) = env::home_dir() {
        let user_folders = [
            ".config/retroarch/cores",
            ".local/share/libretro/cores",
            ".var/app/org.libretro.RetroArch/config/retroarch/cores",
            "snap/retroarch/current/.config/retroarch/cores",
            "Library/Application Support/RetroArch/cores",
        ];
        let fits_system = |folder: &&str| folder.starts_with("Library") == cfg!(target_vendor = "apple");
        folders.extend(user_folders.into_iter().filter(fits_system).map(|folder| home.join(folder)));
    }
    folders
}

fn folder_entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the files of all cores in these folders, by core name. Of two cores with the same name, the one in the
/// earlier folder counts.
pub fn installed_cores(folders: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let mut cores = BTreeMap::new();
    for path in folders.iter().flat_map(|folder| folder_entries(folder)) {
        let name = path.file_name().and_then(OsStr::to_str).and_then(|file| file.strip_suffix(CORE_FILE_SUFFIX));
        if let Some(name) = name.map(str::to_owned) {
            cores.entry(name).or_insert(path);
        }
    }
    cores
}

/// Returns the file of a core. The folders in `first` are searched before the usual ones.
pub fn find_core(core: &CoreSource, first: &[PathBuf]) -> Result<PathBuf, CoreOpenError> {
    match core {
        CoreSource::Path(path) if path.is_file() => Ok(path.clone()),
        CoreSource::Path(path) => {
            let reason = if path.is_dir() { "it is a folder" } else { "there is no such file" };
            Err(CoreOpenError::Read { path: path.clone(), reason: reason.to_owned() })
        }
        CoreSource::Name(name) => find_installed(name, first),
    }
}

fn find_installed(name: &CoreName, first: &[PathBuf]) -> Result<PathBuf, CoreOpenError> {
    let searched = search_folders(first);
    let cores = installed_cores(&searched);
    let normalized = normalized_name(name.as_str());
    match cores.iter().find(|(name, _)| normalized_name(name) == normalized) {
        Some((_, path)) => Ok(path.clone()),
        None => {
            let similar = cores.into_keys().filter(|name| is_similar(&normalized_name(name), &normalized)).collect();
            Err(CoreOpenError::NotFound {
                name: name.to_string(),
                searched_folders: searched,
                similar_names: similar,
                install_hint: install_hint(name),
            })
        }
    }
}

/// Normalizes spelling variants of a core name. Mednafen cores are named Beetle, but not in their file names.
fn normalized_name(name: &str) -> String {
    let name = name.to_lowercase().replace('-', "_");
    let name = name.strip_suffix("_libretro").unwrap_or(&name);
    let name = name.strip_prefix("libretro_").unwrap_or(name);
    name.strip_prefix("mednafen_").map_or(name.to_owned(), |rest| format!("beetle_{rest}"))
}

fn is_similar(name: &str, normalized: &str) -> bool {
    name.contains(normalized)
        || normalized.contains(name)
        || edit_distance(name, normalized) <= 1 + normalized.len() / 4
}

/// Returns the edit distance: the minimum number of characters to change, insert or delete to get from one text to the
/// other.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, char) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for j in 0..to.len() {
            let changed = diagonal + usize::from(char != to[j]);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Returns a hint with the `apt install` command for a core, if this system is Debian or derived from it. Does not
/// check whether the package exists. The command is safe to type: a core name contains no character with a meaning in a
/// shell.
pub fn install_hint(name: &CoreName) -> Option<String> {
    let package = normalized_name(name.as_str()).replace('_', "-");
    Path::new("/etc/debian_version").exists().then(|| {
        format!("if your system has a package of this core, `sudo apt install libretro-{package}` installs it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_name_spellings_are_normalized() {
        for spelling in
            ["beetle-pce-fast", "mednafen_pce_fast", "libretro-beetle-pce-fast", "Mednafen_PCE_fast_libretro"]
        {
            assert_eq!(normalized_name(spelling), "beetle_pce_fast");
        }
    }

    #[test]
    fn similar_core_names_are_recognized() {
        assert_eq!(edit_distance("nestopia", "nestopai"), 2);
        assert_eq!(edit_distance("", "abc"), 3);
        assert!(is_similar("nestopia", "nestopa") && is_similar("beetle_pce_fast", "pce"));
        assert!(!is_similar("gambatte", "nestopia"));
    }

    #[test]
    fn missing_core_error_lists_searched_folders_and_similar_names() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(format!("squarebox{CORE_FILE_SUFFIX}"));
        std::fs::write(&file, "").unwrap();
        let first = [folder.path().to_owned()];
        let find = |core: &str, first: &[PathBuf]| find_core(&CoreSource::from_user(core)?, first);
        assert_eq!(find("SquareBox", &first), Ok(file.clone()));
        assert_eq!(find(file.to_str().unwrap(), &[]), Ok(file));
        let Err(error) = find("sqarebox", &first) else { panic!("the core was found") };
        let CoreOpenError::NotFound { searched_folders: searched, similar_names: similar, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((searched.first(), &similar[..]), (first.first(), &["squarebox".to_owned()][..]));
        assert!(error.to_string().contains(&first[0].display().to_string()));
        assert!(error.hint().unwrap().starts_with("did you mean squarebox?"));
        assert!(matches!(find("./nowhere.so", &[]), Err(CoreOpenError::Read { .. })));
    }
}
