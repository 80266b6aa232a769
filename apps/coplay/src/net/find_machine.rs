//! Finds the game and the machine of a host on this computer. A host never sends them: every site has its own copies.

use std::fs;
use std::path::{Path, PathBuf};

use coplay::session::{GameId, MachineId, Settings};
use coplay_machines::Machine;
use coplay_machines::libretro::{self, CoreName, CoreOpenError, CoreSource};
use coplay_shell::error::AppError;
use sha2::{Digest, Sha256};

use crate::game::{BUILT_IN_MACHINE, GameImage, MachineSpec, core_error, open_core, player_count};

/// Number of folder levels below a game folder that are searched.
const MAX_DEPTH: usize = 6;
/// Largest number of files that are considered as the game.
const MAX_FILES: usize = 50_000;
/// Size of the largest file that is considered, in bytes.
const MAX_FILE_SIZE: u64 = 256 << 20;

/// Game, core and folders that the user gave on the command line or in the settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineSources<'a> {
    /// File of the game; `None` searches for it by its hash.
    pub(super) game: Option<&'a Path>,
    /// Core that the user named. The name that the host sends is never used as a path.
    pub(super) core: Option<&'a CoreSource>,
    /// Folder with BIOS images for the core.
    pub(super) system_dir: Option<&'a Path>,
    /// Folders that are searched for the game.
    pub(super) game_dirs: &'a [PathBuf],
}

/// Opens the machine of the host's settings with the host's game, or without a game if the host's machine runs none.
/// Fails if this computer lacks the machine or the game.
pub(super) fn find_machine(settings: &Settings, sources: MachineSources<'_>) -> Result<Box<dyn Machine>, AppError> {
    let game = match sources.game {
        Some(path) => Some(GameImage::read(path)?),
        None if settings.game.hash == sha256(&[]) => None,
        None => Some(find_game(&settings.game, sources.game_dirs)?),
    };
    match (sources.core, game) {
        (None, Some(game)) if settings.machine.name == BUILT_IN_MACHINE => {
            game.open(&MachineSpec { players: player_count(settings), ..MachineSpec::default() })
        }
        (Some(core), game) => open_matching_core(core, game.as_ref(), &settings.machine, sources.system_dir)
            .map_err(|error| core_error(core, &error)),
        (None, game) => open_core_by_name(game.as_ref(), &settings.machine, sources.system_dir),
    }
}

fn sha256(image: &[u8]) -> [u8; 32] {
    Sha256::digest(image).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Finds the game with this hash: the bundled game, or a file in the folders. Files with the game's name are read
/// first.
fn find_game(wanted: &GameId, folders: &[PathBuf]) -> Result<GameImage, AppError> {
    if let Some(game) = GameImage::bundled().filter(|game| sha256(&game.bytes) == wanted.hash) {
        return Ok(game);
    }
    let mut files = vec![];
    folders.iter().for_each(|folder| list_files(folder, MAX_DEPTH, &mut files));
    let has_other_name = |path: &PathBuf| path.file_stem().is_none_or(|stem| stem.to_string_lossy() != *wanted.name);
    files.sort_by_key(has_other_name);
    let found = files.iter().find_map(|path| {
        let game = GameImage::read(path).ok()?;
        (sha256(&game.bytes) == wanted.hash).then_some(game)
    });
    found.ok_or_else(|| {
        let message = format!("cannot find the game of the host: {:?}, SHA-256 {}", wanted.name, hex(&wanted.hash));
        let hint = match folders.len() {
            0 => "add the game's folder to `games` in the settings file (`coplay config` shows its path), or give the \
                 file after the ticket"
                .into(),
            _ => {
                let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
                format!("copy the game into a game folder ({}), or give the file after the ticket", folders.join(", "))
            }
        };
        AppError::failure(message).hint(format!("{hint}; every player needs a copy: coplay does not send games"))
    })
}

/// Appends to `files` the files in a folder, and in its subfolders down to `depth` levels, that are small enough for a
/// game.
fn list_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.is_dir() && depth > 0 {
            list_files(&path, depth - 1, files);
        } else if found.is_file() && found.len() <= MAX_FILE_SIZE && files.len() < MAX_FILES {
            files.push(path);
        }
    }
}

/// Opens a core with the options, devices and players of the host's machine.
fn open_matching_core(
    core: &CoreSource,
    game: Option<&GameImage>,
    theirs: &MachineId,
    system_dir: Option<&Path>,
) -> Result<Box<dyn Machine>, CoreOpenError> {
    let spec =
        MachineSpec { system_dir: system_dir.map(Into::into), ..MachineSpec::matching(Some(core.clone()), theirs) };
    Ok(Box::new(open_core(core, game, &spec)?))
}

/// Opens the installed core whose machine has the wanted name. The file name of a core may differ from that name.
fn open_core_by_name(
    game: Option<&GameImage>,
    wanted: &MachineId,
    system_dir: Option<&Path>,
) -> Result<Box<dyn Machine>, AppError> {
    let installed = libretro::installed_cores(&libretro::search_folders(&[]));
    let mut similar = None;
    for core in candidate_cores(&wanted.name, installed.keys()) {
        match open_matching_core(&CoreSource::Path(installed[core].clone()), game, wanted, system_dir) {
            Ok(machine) if machine.machine_id() == wanted => return Ok(machine),
            // Perhaps another version. The session reports the difference later.
            Ok(machine) if machine.machine_id().name == wanted.name => similar = Some(machine),
            _ => {}
        }
    }
    similar.ok_or_else(|| missing_core_error(wanted))
}

fn missing_core_error(wanted: &MachineId) -> AppError {
    let MachineId { name, version, .. } = wanted;
    let message =
        format!("the host uses the libretro core {name} ({version}), which is not installed here or does not open");
    // The hint uses only the name. Opening a file by it would run any code that the host names.
    let install = CoreName::from_machine_name(name).and_then(|name| libretro::install_hint(&name));
    let hint = install.unwrap_or_else(|| "install that libretro core".into());
    AppError::failure(message).hint(format!("{hint}; or give the path of its file with --core"))
}

/// Largest number of cores that are opened to find the machine that the host names.
const MAX_CANDIDATES: usize = 4;

/// Returns the installed cores that may be the machine of this name, the likeliest first. The host chooses the name,
/// and opening a core runs its code, so a name that fits more than [`MAX_CANDIDATES`] cores finds only those with
/// exactly that file name.
fn candidate_cores<'a>(name: &str, installed: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let Some(wanted) = CoreName::from_machine_name(name) else { return vec![] };
    let wanted = wanted.as_str();
    // The cores from Mednafen are named Beetle, but their files are named mednafen.
    let normal = |core: &str| core.to_lowercase().replace('-', "_").replace("mednafen_", "beetle_");
    let fits = |core: &&String| begins_with_word(&normal(core), wanted) || begins_with_word(wanted, &normal(core));
    let mut fitting: Vec<&str> = installed.filter(fits).map(String::as_str).collect();
    fitting.sort_by_key(|core| (normal(core) != wanted, normal(core).len().abs_diff(wanted.len())));
    if fitting.len() > MAX_CANDIDATES {
        fitting.retain(|core| normal(core) == wanted);
    }
    fitting
}

/// Returns whether `name` starts with `shorter`, followed by no letter: `bsnes_mercury_performance` starts with the
/// word `bsnes_mercury`, but not with `b`.
fn begins_with_word(name: &str, shorter: &str) -> bool {
    let rest = name.strip_prefix(shorter);
    !shorter.is_empty() && rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_found_by_machine_name() {
        let installed = ["bsnes_mercury_performance", "gambatte", "mednafen_pce_fast", "mgba", "nestopia"];
        let installed = installed.map(String::from);
        let found = |name| candidate_cores(name, installed.iter());
        assert_eq!(found("Beetle PCE Fast"), ["mednafen_pce_fast"]);
        assert_eq!(found("bsnes-mercury"), ["bsnes_mercury_performance"]);
        assert_eq!(found("mGBA"), ["mgba"]);
        assert_eq!(found("Stella"), Vec::<&str>::new());
    }

    #[test]
    fn ambiguous_machine_name_matches_no_core() {
        let machines = ["gba", "lynx", "ngp", "pce", "pce_fast", "psx", "saturn", "vb", "wswan"];
        let mednafen = machines.map(|machine| format!("mednafen_{machine}"));
        let snes = ["", "2002", "2005", "2005_plus", "2010"].map(|year| format!("snes9x{year}"));
        let installed: Vec<String> = mednafen.into_iter().chain(snes).collect();
        let found = |name| candidate_cores(name, installed.iter());
        for broad in ["Beetle", "beetle", "snes", "SNES"] {
            assert_eq!(found(broad), Vec::<&str>::new(), "{broad}");
        }
        assert_eq!(found("Snes9x"), ["snes9x"], "the exact name");
        assert_eq!(found("Beetle PCE"), ["mednafen_pce", "mednafen_pce_fast"]);
        assert_eq!(found("Beetle PSX HW"), ["mednafen_psx"]);
    }

    #[test]
    fn hostile_machine_name_matches_no_core() {
        let installed = ["bsnes_mercury_performance", "mednafen_pce_fast", "nestopia"].map(String::from);
        for hostile in
            ["", " ", "()", "-", "n", "ne", "../nestopia", "./nestopia", "nestopia/../x", "\\\\host\\nestopia"]
        {
            assert_eq!(candidate_cores(hostile, installed.iter()), Vec::<&str>::new(), "{hostile:?}");
        }
    }

    #[test]
    fn game_is_found_by_hash() {
        let folder = std::env::temp_dir().join(format!("coplay-find-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("one.nes"), b"one").unwrap();
        fs::write(folder.join("a/b/renamed.bin"), b"two").unwrap();
        let id = |image: &[u8]| GameId { name: "two".into(), hash: sha256(image) };
        let folders = [folder.clone()];
        assert_eq!(find_game(&id(b"two"), &folders).unwrap().bytes, b"two");
        let missing = find_game(&id(b"three"), &folders).unwrap_err().to_string();
        assert!(missing.contains(&hex(&sha256(b"three"))) && missing.contains("does not send games"), "{missing}");
        assert!(find_game(&id(b"three"), &[]).unwrap_err().to_string().contains("`games` in the settings"));
        fs::remove_dir_all(folder).unwrap();
    }
}
