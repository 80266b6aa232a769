//! Runs libretro cores without GPU rendering, each as a [`Machine`].
//!
//! A core is an emulator in a shared library. [`open`] finds a core, loads it with a game and probes the first frames
//! to determine how to save and hash the state ([`ProbeFindings`]). Apart from the paths of its folders, a core that
//! asks the frontend gets the same answers on all computers: time that follows the frame count, English, no user files
//! except a folder with BIOS images, no network, no random numbers. Files that the core writes to its save folder go to
//! a temporary folder that is deleted with the machine.
//!
//! Every machine loads its own copy of the library with its own variables, so one process can run many machines.
//!
//! # Guarantees and limits
//!
//! - **Invalid data are rejected; malicious code is not contained.** Absurd sizes and rates are rejected or replaced by
//!   valid ones, and null pointers are rejected. But a core is native code in this process: a crash of the core ends
//!   the process, and a malicious core can do everything that this user can do. Open only trusted cores.
//! - **States from untrusted peers.** A state of another core, game or configuration, a damaged state, and a state of
//!   impossible length are rejected before the core reads them. The checks protect against accidents, not against
//!   forgery: a deliberately forged state passes, and few cores are written to handle hostile bytes. Accept states only
//!   from peers that you would also accept a program from.
//! - **Nondeterministic cores.** A core that reads the clock, addresses or files of the host by itself is unfit for
//!   netplay. This module cannot prevent it. The probe of the first frames often detects it; otherwise the comparison
//!   of state hashes during the game does.
//! - **Threads of a core.** Callbacks from a core's own threads are refused: their pictures and sound are ignored.
//! - **Output of a core.** Text that a core prints by itself goes to the terminal, some of it to the standard output.
//! - **Frame rate.** The frame rate is fixed at the start. A core that changes it continues at the agreed rate.

mod core_name;
mod elf_unique_symbols;
mod envelope;
mod error;
mod ffi;
mod find;
mod frontend_state;
mod instance;
mod instance_factory;
mod machine;
mod options;
mod pad_layouts;
mod probe;
mod probe_findings;
mod scratch;
mod source;
mod video;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coplay::frame::FrameRate;
use coplay::session::{GameId, MAX_OPTIONS, MAX_TEXT_LEN, MachineId};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

pub use self::core_name::{CoreName, MAX_CORE_NAME};
pub use self::error::CoreOpenError;
pub use self::find::{find_core, install_hint, installed_cores, search_folders};
pub use self::frontend_state::Device;
pub use self::machine::LibretroMachine;
pub use self::probe_findings::{HashSource, ProbeFindings};
pub use self::source::CoreSource;

use self::frontend_state::quirk;
use self::instance::CoreInstance;
use self::instance_factory::InstanceFactory;
use self::machine::MachineInfo;
#[cfg(doc)]
use crate::Machine;

/// Core and game to open, with their options.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Core to open, by name or by path.
    pub core: CoreSource,
    /// Game image; some cores run without one.
    pub game: Option<GameImage>,
    /// Values of core options, as key and value; all other options keep their defaults.
    pub options: Vec<(String, String)>,
    /// Number of players, clamped to 1 to 8; `None` for the number that the core announces.
    pub players: Option<usize>,
    /// Devices in ports that are not to get a joypad, as port and device id. See [`LibretroMachine::devices`].
    pub devices: Vec<(usize, u32)>,
    /// Folder with BIOS images, which must be the same at all sites.
    pub system_folder: Option<PathBuf>,
    /// Folders to search for cores before the usual ones.
    pub core_folders: Vec<PathBuf>,
}

impl CoreConfig {
    /// Returns the default configuration of a core without a game.
    pub fn new(core: CoreSource) -> Self {
        let (options, devices, folders) = (Vec::new(), Vec::new(), Vec::new());
        Self { core, game: None, options, players: None, devices, system_folder: None, core_folders: folders }
    }
}

/// A game file in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct GameImage {
    /// File name. The extension tells the core the file type.
    pub name: String,
    /// Contents of the file.
    pub image: Vec<u8>,
}

impl std::fmt::Debug for GameImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.image.len())
    }
}

impl GameImage {
    /// Reads an image from a file. The name of the image is the file name, or `game` if that is not valid UTF-8.
    pub fn read(path: &Path) -> Result<Self, CoreOpenError> {
        let image = std::fs::read(path)
            .map_err(|error| CoreOpenError::Read { path: path.into(), reason: error.to_string() })?;
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or("game").to_owned();
        Ok(Self { name, image })
    }

    fn path_part(&self, part: fn(&Path) -> Option<&OsStr>) -> Option<&str> {
        part(Path::new(&self.name)).and_then(OsStr::to_str)
    }

    fn file_name(&self) -> String {
        self.path_part(Path::file_name).unwrap_or("game").to_owned()
    }

    fn extension(&self) -> String {
        self.path_part(Path::extension).unwrap_or_default().to_lowercase()
    }
}

/// Opens a core with a game and probes the first frames in separate instances. The returned machine has stepped no
/// frame.
pub fn open(config: CoreConfig) -> Result<LibretroMachine, CoreOpenError> {
    let factory = Arc::new(InstanceFactory::new(config)?);
    let mut instance = CoreInstance::open(&factory)?;
    let (pads, rate) = (instance.pads(), instance.frame_rate()?);
    let findings = probe::probe(&factory, &pads)?;
    let machine = machine_id(&factory, &mut instance, &findings)?;
    let game = game_id(&factory, &machine.name);
    let identity = state_identity(&machine, &game, rate);
    Ok(LibretroMachine::new(
        factory,
        instance,
        MachineInfo { findings, machine_id: machine, game_id: game, state_identity: identity, frame_rate: rate, pads },
    ))
}

fn machine_id(
    factory: &InstanceFactory,
    instance: &mut CoreInstance,
    findings: &ProbeFindings,
) -> Result<MachineId, CoreOpenError> {
    let info = instance.core().info().clone();
    let frontend = instance.frontend();
    let mut options: Vec<_> = frontend
        .options
        .non_default()
        .map(|(key, value)| (truncate_with_hash(key), truncate_with_hash(value)))
        .collect();
    options.push(("hash of".to_owned(), findings.hash_of.name().to_owned()));
    options.extend(factory.players().map(|players| ("players".to_owned(), players.to_string())));
    options.extend(factory.devices().iter().map(|(port, device)| (format!("device {port}"), device.to_string())));
    // The states of a core with these quirks are valid only on the same kind of computer.
    if frontend.quirks & (quirk::ENDIAN | quirk::PLATFORM) != 0 {
        options.push(("platform".to_owned(), format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)));
    }
    if options.len() > MAX_OPTIONS {
        return Err(CoreOpenError::TooManyOptions(options.len()));
    }
    Ok(MachineId {
        name: machine_name(&info.name),
        version: truncate_with_hash(&info.version),
        options,
        first_frames_hash: findings.first_frames,
    })
}

/// Returns the identity of the game: file name without extension, and hash of the image. Without an image, the name is
/// that of the machine, and the hash is that of no bytes.
fn game_id(factory: &InstanceFactory, machine: &str) -> GameId {
    let name = factory.game().and_then(|game| game.path_part(Path::file_stem)).unwrap_or(machine);
    let image = factory.game().map_or(&[][..], |game| &game.image);
    GameId { name: truncate_with_hash(name), hash: Sha256::digest(image).into() }
}

/// Returns a hash of machine id, game hash and frame rate. Every saved state carries this hash, so that a foreign state
/// is rejected.
fn state_identity(machine: &MachineId, game: &GameId, rate: FrameRate) -> u64 {
    let mut hash = Xxh3::new();
    let options = machine.options.iter().flat_map(|(key, value)| [key, value]);
    for text in [&machine.name, &machine.version].into_iter().chain(options) {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.update(&machine.first_frames_hash.to_le_bytes());
    hash.update(&game.hash);
    let (frames, seconds) = rate.fraction();
    hash.update(&frames.to_le_bytes());
    hash.update(&seconds.to_le_bytes());
    hash.digest()
}

/// Returns the machine name of a core. Sites reject names that [`MachineId::is_valid_name`] does not accept. In such a
/// name, invalid characters are replaced in the same way at every site, and a hash of the original name is appended to
/// keep different names different. An empty name becomes "unnamed core".
fn machine_name(name: &str) -> String {
    if MachineId::is_valid_name(name) {
        return name.to_owned();
    }
    let allowed = |char: char| if MachineId::is_valid_name_char(char) { char } else { '_' };
    let tail = format!("~{:016x}", xxh3_64(name.as_bytes()));
    let head: String = name.chars().map(allowed).take(MAX_TEXT_LEN - tail.len()).collect();
    if name.is_empty() { "unnamed core".into() } else { head + &tail }
}

/// Truncates a text to [`MAX_TEXT_LEN`] bytes, the maximum in messages between sites. A truncated text ends with a hash
/// of the original, so that different texts stay different.
fn truncate_with_hash(text: &str) -> String {
    if text.len() <= MAX_TEXT_LEN {
        return text.to_owned();
    }
    let tail = format!("~{:016x}", xxh3_64(text.as_bytes()));
    format!("{}{tail}", truncate_at_char(text, MAX_TEXT_LEN - tail.len()))
}

/// Truncates a text to `max_len` bytes at a character boundary.
fn truncate_at_char(text: &str, max_len: usize) -> &str {
    let end = (0..=max_len.min(text.len())).rev().find(|index| text.is_char_boundary(*index));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_truncated_and_stay_distinct() {
        assert_eq!(truncate_with_hash("Nestopia"), "Nestopia");
        let (long, other) = ("ü".repeat(40), "ü".repeat(41));
        assert!(
            truncate_with_hash(&long).len() <= MAX_TEXT_LEN && truncate_with_hash(&long) != truncate_with_hash(&other)
        );
    }

    #[test]
    fn machine_names_are_sanitized_and_stay_distinct() {
        for valid in ["Nestopia", "Beetle PCE Fast", "nSide (Super Famicom Accuracy)", "Game & Watch", "Mr.Boom", "81"]
        {
            assert_eq!(machine_name(valid), valid);
        }
        let invalid =
            ["", "/tmp/trap.so", "X68000/X1", "X68000\\X1", "\u{1b}[2J", "()", &"a".repeat(65), &"\u{fc}".repeat(40)];
        for (index, name) in invalid.iter().enumerate() {
            assert!(MachineId::is_valid_name(&machine_name(name)), "{name:?}");
            assert!(invalid[..index].iter().all(|other| machine_name(other) != machine_name(name)), "{name:?}");
        }
    }
}
