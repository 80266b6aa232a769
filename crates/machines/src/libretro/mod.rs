//! Any libretro core as a [`MachineProfile`].
//!
//! A core is an emulator as a shared library. [`open`] finds one, gives it a game and looks at its first frames, to find out how it is
//! best saved and hashed ([`ProbeFindings`]). What it sees of the outside is the same everywhere: fixed time, English, no files of the
//! user's but a folder with BIOS images, no network, no random numbers of ours. What it writes goes to a folder that is thrown away.
//!
//! Every machine has its own copy of the library with its own variables, so one process can have many.
//!
//! # What can and what cannot be promised
//! - **Lies are harmless, crimes are not.** Absurd sizes, rates and missing pointers are refused. But a core is native code in this
//!   process: one that crashes takes the process with it, and one that is malicious can do what this user can do. Open only cores that you trust.
//! - **States of strangers.** What is not a state of this core, game and configuration, undamaged and of a possible length, is refused before
//!   the core sees it. The checks are against accidents. Somebody who makes a state with intent passes them, and few cores are written to
//!   take hostile bytes: accept states only from those with whom you would share a program.
//! - **A core that looks at the clock, at addresses or at the host's files by itself** is not fit to be shared. That cannot be prevented here.
//!   It is often seen in the first frames, and otherwise by comparing hashes while a game runs.
//! - **A core's own threads** get refusals for an answer: pictures and sound from them are not taken.
//! - **What a core prints by itself** goes to the terminal, some of it to the standard output.
//! - **The frame rate** is the one of the beginning. A core that changes it goes on at the agreed one.

mod elf;
mod envelope;
mod error;
mod ffi;
mod find;
mod frontend_state;
mod instance;
mod instance_factory;
mod machine;
mod options;
mod pads;
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

pub use self::error::CoreOpenError;
pub use self::find::{find_core, install_hint, installed_cores, search_folders};
pub use self::frontend_state::Device;
pub use self::machine::LibretroMachine;
pub use self::probe_findings::{HashSource, ProbeFindings};
pub use self::source::{CoreName, CoreSource, MAX_CORE_NAME};

use self::frontend_state::quirk;
use self::instance::CoreInstance;
use self::instance_factory::InstanceFactory;
use self::machine::MachineInfo;
#[cfg(doc)]
use crate::Machine;

/// What to open.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The core.
    pub core: CoreSource,
    /// The game; some cores run without.
    pub game: Option<GameImage>,
    /// Options of the core that are not to be at their default, as key and value.
    pub options: Vec<(String, String)>,
    /// The number of players, if it is not to be as the core says.
    pub players: Option<usize>,
    /// Devices in ports that are not to have a joypad, as port and number. See [`LibretroMachine::devices`].
    pub devices: Vec<(usize, u32)>,
    /// The folder with BIOS images. They must be the same at all sites.
    pub system_folder: Option<PathBuf>,
    /// Folders to look for cores in, before the usual ones.
    pub core_folders: Vec<PathBuf>,
}

impl CoreConfig {
    /// This core without a game, as it comes.
    pub fn new(core: CoreSource) -> Self {
        let (options, devices, folders) = (Vec::new(), Vec::new(), Vec::new());
        Self { core, game: None, options, players: None, devices, system_folder: None, core_folders: folders }
    }
}

/// An image of a game.
#[derive(Clone, PartialEq, Eq)]
pub struct GameImage {
    /// The name of its file. The ending tells the core what it is.
    pub name: String,
    /// What is in it.
    pub image: Vec<u8>,
}

impl std::fmt::Debug for GameImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.image.len())
    }
}

impl GameImage {
    /// Reads it.
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

/// Opens a core with a game.
pub fn open(config: CoreConfig) -> Result<LibretroMachine, CoreOpenError> {
    let plan = Arc::new(InstanceFactory::new(config)?);
    let mut instance = plan.create_instance()?;
    let (pads, rate) = (instance.pads(), instance.frame_rate()?);
    let findings = probe::probe(&plan, &pads)?;
    let machine = machine_id(&plan, &mut instance, &findings)?;
    let game = game_id(&plan, &machine.name);
    let identity = state_identity(&machine, &game, rate);
    Ok(LibretroMachine::new(
        plan,
        instance,
        MachineInfo { findings, machine_id: machine, game_id: game, state_identity: identity, frame_rate: rate, pads },
    ))
}

fn machine_id(
    plan: &InstanceFactory,
    instance: &mut CoreInstance,
    findings: &ProbeFindings,
) -> Result<MachineId, CoreOpenError> {
    let info = instance.core().info().clone();
    let host = instance.frontend();
    let mut options: Vec<_> =
        host.options.non_default().map(|(key, value)| (truncate_with_hash(key), truncate_with_hash(value))).collect();
    options.push(("hash of".to_owned(), findings.hash_of.name().to_owned()));
    options.extend(plan.players().map(|players| ("players".to_owned(), players.to_string())));
    options.extend(plan.devices().iter().map(|(port, device)| (format!("device {port}"), device.to_string())));
    // A core that says so has states that are good only for the same kind of computer.
    if host.quirks & (quirk::ENDIAN | quirk::PLATFORM) != 0 {
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

/// The game by its image; where there is none, the core is the game.
fn game_id(plan: &InstanceFactory, machine: &str) -> GameId {
    let name = plan.game().and_then(|game| game.path_part(Path::file_stem)).unwrap_or(machine);
    let image = plan.game().map_or(&[][..], |game| &game.image);
    GameId { name: truncate_with_hash(name), hash: Sha256::digest(image).into() }
}

/// What states of this machine and game are known by.
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

/// The name of the core's machine. Sites refuse names with other characters than [`MachineId::is_name`] allows, so where a core has such a
/// name every site replaces them in the same way, and adds a hash of the whole so that different names stay different.
fn machine_name(name: &str) -> String {
    if MachineId::is_valid_name(name) {
        return name.to_owned();
    }
    let allowed = |letter: char| if MachineId::is_valid_name_char(letter) { letter } else { '_' };
    let tail = format!("~{:016x}", xxh3_64(name.as_bytes()));
    let head: String = name.chars().map(allowed).take(MAX_TEXT_LEN - tail.len()).collect();
    if name.is_empty() { "unnamed core".into() } else { head + &tail }
}

/// A text that sites can exchange: what is too long is cut, and ends with a hash of the whole, so that different ones stay different.
fn truncate_with_hash(text: &str) -> String {
    if text.len() <= MAX_TEXT_LEN {
        return text.to_owned();
    }
    let tail = format!("~{:016x}", xxh3_64(text.as_bytes()));
    format!("{}{tail}", truncate_at_char(text, MAX_TEXT_LEN - tail.len()))
}

/// As much of a text as fits into so many bytes, cut between characters.
fn truncate_at_char(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
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
        for usual in ["Nestopia", "Beetle PCE Fast", "nSide (Super Famicom Accuracy)", "Game & Watch", "Mr.Boom", "81"]
        {
            assert_eq!(machine_name(usual), usual);
        }
        let odd =
            ["", "/tmp/trap.so", "X68000/X1", "X68000\\X1", "\u{1b}[2J", "()", &"a".repeat(65), &"\u{fc}".repeat(40)];
        for (at, name) in odd.iter().enumerate() {
            assert!(MachineId::is_valid_name(&machine_name(name)), "{name:?}");
            assert!(odd[..at].iter().all(|other| machine_name(other) != machine_name(name)), "{name:?}");
        }
    }
}
