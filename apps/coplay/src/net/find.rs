//! Finds the game and the machine that somebody else plays. Neither is ever sent: everybody has their own.

use std::fs;
use std::path::{Path, PathBuf};

use coplay::session::{GameId, MachineId, Settings};
use coplay_machines::Machine;
use coplay_machines::libretro::{self, CoreName, CoreOpenError, CoreSource};
use sha2::{Digest, Sha256};

use crate::game::{Game, OWN, Wanted, core_refused, open_core, players};
use crate::trouble::Trouble;

/// How deep folders are searched, how many files, and how large they may be.
const MAX_DEPTH: usize = 6;
const MAX_FILES: usize = 50_000;
const MAX_SIZE: u64 = 256 << 20;

/// What a person says about where things are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    /// The game's file.
    pub(super) game: Option<&'a Path>,
    /// The core that the user named; the host's word for it is never used as one.
    pub(super) core: Option<&'a CoreSource>,
    /// The folder with BIOS images.
    pub(super) system: Option<&'a Path>,
    /// Folders with games.
    pub(super) folders: &'a [PathBuf],
}

/// The machine of these settings, with its game.
pub(super) fn machine(settings: &Settings, sources: Sources<'_>) -> Result<Box<dyn Machine>, Trouble> {
    let game = match sources.game {
        Some(path) => Some(Game::read(path)?),
        None if settings.game.hash == hash(&[]) => None,
        None => Some(find(&settings.game, sources.folders)?),
    };
    match (sources.core, game) {
        (None, Some(game)) if settings.machine.name == OWN => {
            game.open(&Wanted { players: players(settings), ..Wanted::default() })
        }
        (Some(core), game) => {
            open(core, game.as_ref(), &settings.machine, sources.system).map_err(|error| core_refused(core, &error))
        }
        (None, game) => open_by_name(game.as_ref(), &settings.machine, sources.system),
    }
}

fn hash(image: &[u8]) -> [u8; 32] {
    Sha256::digest(image).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The game with this hash: the one that comes with the program, or one in the folders.
fn find(wanted: &GameId, folders: &[PathBuf]) -> Result<Game, Trouble> {
    if let Some(game) = Game::bundled().filter(|game| hash(&game.image) == wanted.hash) {
        return Ok(game);
    }
    let mut files = vec![];
    folders.iter().for_each(|folder| list(folder, MAX_DEPTH, &mut files));
    // Those that are called the same come first; the others are looked at, too.
    let other_name = |path: &PathBuf| path.file_stem().is_none_or(|stem| stem.to_string_lossy() != *wanted.name);
    files.sort_by_key(other_name);
    let found = files.iter().find_map(|path| {
        let game = Game::read(path).ok()?;
        (hash(&game.image) == wanted.hash).then_some(game)
    });
    found.ok_or_else(|| {
        let what =
            format!("the game that is played there is not here: {:?}, SHA-256 {}", wanted.name, hex(&wanted.hash));
        let looked = match folders.len() {
            0 => "name its file after the ticket, or put its folder into `games` of the settings (`coplay config`)"
                .into(),
            _ => {
                let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
                format!("name its file after the ticket; looked in {}", folders.join(", "))
            }
        };
        Trouble::failure(what).hint(format!("{looked}. Games are never sent: everybody needs their own"))
    })
}

/// All files in a folder that may be games.
fn list(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let Ok(found) = fs::metadata(&path) else { continue };
        if found.is_dir() && depth > 0 {
            list(&path, depth - 1, files);
        } else if found.is_file() && found.len() <= MAX_SIZE && files.len() < MAX_FILES {
            files.push(path);
        }
    }
}

/// Opens a core with the options that the others have.
fn open(
    core: &CoreSource,
    game: Option<&Game>,
    theirs: &MachineId,
    system: Option<&Path>,
) -> Result<Box<dyn Machine>, CoreOpenError> {
    let wanted = Wanted { system: system.map(Into::into), ..Wanted::like(Some(core.clone()), theirs) };
    Ok(Box::new(open_core(core, game, &wanted)?))
}

/// Opens the core that is called as the machine is; files of cores are not always called so.
fn open_by_name(game: Option<&Game>, wanted: &MachineId, system: Option<&Path>) -> Result<Box<dyn Machine>, Trouble> {
    let installed = libretro::installed_cores(&libretro::search_folders(&[]));
    let mut likely = None;
    for core in candidates(&wanted.name, installed.keys()) {
        match open(&CoreSource::Path(installed[core].clone()), game, wanted, system) {
            Ok(machine) if machine.machine_id() == wanted => return Ok(machine),
            // Perhaps another version: who says what differs is asked later.
            Ok(machine) if machine.machine_id().name == wanted.name => likely = Some(machine),
            _ => {}
        }
    }
    likely.ok_or_else(|| missing(wanted))
}

fn missing(wanted: &MachineId) -> Trouble {
    let MachineId { name, version, .. } = wanted;
    let what = format!("they play on the libretro core {name} ({version}), which is not installed here");
    // A hint is made of the name alone: to open something called so would run whatever the host names.
    let install = CoreName::from_machine_name(name).and_then(|name| libretro::install_hint(&name));
    let hint = install.unwrap_or_else(|| "install it as a libretro core".into());
    Trouble::failure(what).hint(format!("{hint}; or say --core with the path of its file"))
}

/// The most cores that are opened to find the one of a name.
const MAX_CANDIDATES: usize = 4;

/// Installed cores that may be the one of this name, the likeliest first. The host chooses the name, and opening a core runs its code,
/// so a name that fits more than [`MAX_CANDIDATES`] finds only the core whose file has that very name.
fn candidates<'a>(name: &str, installed: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let Some(wanted) = CoreName::from_machine_name(name) else { return vec![] };
    let wanted = wanted.as_str();
    // Mednafen's machines are called Beetle as cores, but not in the names of files.
    let normal = |core: &str| core.to_lowercase().replace('-', "_").replace("mednafen_", "beetle_");
    let fits = |core: &&String| begins_with_word(&normal(core), wanted) || begins_with_word(wanted, &normal(core));
    let mut fitting: Vec<&str> = installed.filter(fits).map(String::as_str).collect();
    fitting.sort_by_key(|core| (normal(core) != wanted, normal(core).len().abs_diff(wanted.len())));
    if fitting.len() > MAX_CANDIDATES {
        fitting.retain(|core| normal(core) == wanted);
    }
    fitting
}

/// Whether a name begins with a shorter one that ends where a word does: `bsnes_mercury_performance` with `bsnes_mercury`, not with `b`.
fn begins_with_word(name: &str, shorter: &str) -> bool {
    let rest = name.strip_prefix(shorter);
    !shorter.is_empty() && rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_found_by_what_they_call_themselves() {
        let installed = ["bsnes_mercury_performance", "gambatte", "mednafen_pce_fast", "mgba", "nestopia"];
        let installed = installed.map(String::from);
        let found = |name| candidates(name, installed.iter());
        assert_eq!(found("Beetle PCE Fast"), ["mednafen_pce_fast"]);
        assert_eq!(found("bsnes-mercury"), ["bsnes_mercury_performance"]);
        assert_eq!(found("mGBA"), ["mgba"]);
        assert_eq!(found("Stella"), Vec::<&str>::new());
    }

    #[test]
    fn a_name_that_fits_many_cores_opens_none_of_them() {
        let machines = ["gba", "lynx", "ngp", "pce", "pce_fast", "psx", "saturn", "vb", "wswan"];
        let mednafen = machines.map(|machine| format!("mednafen_{machine}"));
        let snes = ["", "2002", "2005", "2005_plus", "2010"].map(|year| format!("snes9x{year}"));
        let installed: Vec<String> = mednafen.into_iter().chain(snes).collect();
        let found = |name| candidates(name, installed.iter());
        for broad in ["Beetle", "beetle", "snes", "SNES"] {
            assert_eq!(found(broad), Vec::<&str>::new(), "{broad}");
        }
        assert_eq!(found("Snes9x"), ["snes9x"], "the very name");
        assert_eq!(found("Beetle PCE"), ["mednafen_pce", "mednafen_pce_fast"]);
        assert_eq!(found("Beetle PSX HW"), ["mednafen_psx"]);
    }

    #[test]
    fn a_name_that_names_nothing_finds_no_core() {
        let installed = ["bsnes_mercury_performance", "mednafen_pce_fast", "nestopia"].map(String::from);
        for hostile in
            ["", " ", "()", "-", "n", "ne", "../nestopia", "./nestopia", "nestopia/../x", "\\\\host\\nestopia"]
        {
            assert_eq!(candidates(hostile, installed.iter()), Vec::<&str>::new(), "{hostile:?}");
        }
    }

    #[test]
    fn a_game_is_found_by_what_is_in_it() {
        let folder = std::env::temp_dir().join(format!("coplay-find-{}", std::process::id()));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("one.nes"), b"one").unwrap();
        fs::write(folder.join("a/b/renamed.bin"), b"two").unwrap();
        let id = |image: &[u8]| GameId { name: "two".into(), hash: hash(image) };
        let folders = [folder.clone()];
        assert_eq!(find(&id(b"two"), &folders).unwrap().image, b"two");
        let missing = find(&id(b"three"), &folders).unwrap_err().to_string();
        assert!(missing.contains(&hex(&hash(b"three"))) && missing.contains("never sent"), "{missing}");
        assert!(find(&id(b"three"), &[]).unwrap_err().to_string().contains("`games` of the settings"));
        fs::remove_dir_all(folder).unwrap();
    }
}
