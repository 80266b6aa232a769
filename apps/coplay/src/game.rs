//! Games: the one that comes with the program, those in files, and the machines that play them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use coplay::session::{MachineId, Settings};
use coplay_machines::libretro::{self, CoreOpenError as CoreError, CoreSource, LibretroMachine};
use coplay_machines::nes::{self, Nes, NesOpenError};
use coplay_machines::{Machine, libretro::CoreConfig};

use crate::error::{AppError, describe_io_error};

/// The machine that comes with the program.
pub(crate) const BUILT_IN_MACHINE: &str = "nes";

/// The largest file that is taken for a game: no cartridge is larger, and few discs.
const MAX_IMAGE_BYTES: u64 = 1 << 30;
/// Likewise of what is no usual file, such as a pipe.
const MAX_STREAM_BYTES: u64 = 64 << 20;

/// An image of a game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameImage {
    /// What to call it: the name of its file.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Which machine plays, and how.
#[derive(Clone, Debug, Default)]
pub struct MachineSpec {
    /// A libretro core; otherwise the machine that comes with the program.
    pub core: Option<CoreSource>,
    /// For so many players, where the machine has to know.
    pub players: Option<usize>,
    /// Options of the core that are not to be as they come.
    pub options: Vec<(String, String)>,
    /// Devices in ports of the core that are not to have a pad.
    pub devices: Vec<(usize, u32)>,
    /// The folder with the core's BIOS images.
    pub system_dir: Option<PathBuf>,
}

/// A machine that was switched on.
pub enum OpenedMachine {
    /// The one that comes with the program.
    Nes(Box<Nes>),
    /// A core, which can be had again without looking at it anew.
    Core(Box<LibretroMachine>),
}

impl From<OpenedMachine> for Box<dyn Machine> {
    fn from(opened: OpenedMachine) -> Self {
        match opened {
            OpenedMachine::Nes(nes) => nes,
            OpenedMachine::Core(core) => core,
        }
    }
}

impl MachineSpec {
    /// A machine that is like one elsewhere, if it is this core. What was found out about that one is not set: it shows.
    pub fn matching(core: Option<CoreSource>, machine: &MachineId) -> Self {
        let mut wanted = Self { core, ..Self::default() };
        // Options of the machine that comes with the program are none of a core.
        let of_core = |key: &str| machine.name != BUILT_IN_MACHINE || key == "players";
        for (key, value) in machine.options.iter().filter(|(key, _)| of_core(key)) {
            let device = key.strip_prefix("device ").and_then(|port| Some((port.parse().ok()?, value.parse().ok()?)));
            match key.as_str() {
                "players" => wanted.players = value.parse().ok(),
                "hash of" | "platform" => {}
                _ if device.is_some() => wanted.devices.extend(device),
                _ => wanted.options.push((key.clone(), value.clone())),
            }
        }
        wanted
    }
}

impl GameImage {
    /// The game that comes with the program, if it was there when the program was built.
    pub fn bundled() -> Option<Self> {
        let image = include_bytes!(concat!(env!("OUT_DIR"), "/bundled.nes"));
        (!image.is_empty()).then(|| Self { name: "tennis.nes".into(), bytes: image.to_vec() })
    }

    /// A game from a file.
    pub fn read(path: &Path) -> Result<Self, AppError> {
        let shown = path.display();
        let unreadable = |error: std::io::Error| {
            let trouble = AppError::failure(format!("the game {shown} cannot be read: {}", describe_io_error(&error)));
            trouble.hint("name the file of a game, or none to play the one that comes with coplay")
        };
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            return Err(AppError::failure(format!("{shown} is a directory, not a game"))
                .hint("name the file of one game in it"));
        }
        // What is no usual file says that it is empty, and may have no end.
        let most = if found.is_file() { MAX_IMAGE_BYTES } else { MAX_STREAM_BYTES };
        let mut image = vec![];
        if found.len() <= most {
            File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut image)).map_err(unreadable)?;
        }
        if found.len().max(image.len() as u64) > most {
            return Err(AppError::failure(format!("{shown} has more than {most} bytes, too many for a game"))
                .hint("is it the right file?"));
        }
        if image.is_empty() {
            return Err(AppError::failure(format!("{shown} is empty")).hint("was it copied as a whole?"));
        }
        let name = path.file_name().map_or_else(|| "game".into(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, bytes: image })
    }

    /// Puts the game into a machine and switches it on.
    pub fn open(&self, wanted: &MachineSpec) -> Result<Box<dyn Machine>, AppError> {
        open_machine(Some(self), wanted).map(Into::into)
    }

    fn open_nes(&self, players: usize) -> Result<Nes, AppError> {
        // Two pads are there whether or not somebody holds the second.
        let players = players.max(nes::NesOptions::default().players);
        Nes::open_with(&self.bytes, self.title(), nes::NesOptions { players }).map_err(|error| self.open_error(&error))
    }

    fn open_error(&self, error: &NesOpenError) -> AppError {
        let what = format!("{} cannot be played: {error}", self.name);
        match error {
            NesOpenError::InvalidPlayerCount(_) => {
                AppError::usage(what).hint(format!("say --players with 1 to {}", nes::MAX_PLAYERS))
            }
            NesOpenError::Truncated { .. } => AppError::failure(what).hint("was it copied as a whole?"),
            NesOpenError::NotNes => {
                AppError::failure(what).hint("for games of other machines say --core and a libretro core")
            }
            _ => AppError::failure(what).hint("another machine may know it: --core nestopia"),
        }
    }

    /// The name without its ending.
    pub fn title(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(title, _)| title)
    }
}

/// Switches on a machine with a game. Where none was named, a core that needs none is the game, and everything else gets the one that comes
/// with the program.
pub fn open_machine(game: Option<&GameImage>, wanted: &MachineSpec) -> Result<OpenedMachine, AppError> {
    let Some(core) = &wanted.core else {
        let bundled = if game.is_none() { GameImage::bundled() } else { None };
        let game = game.or(bundled.as_ref()).ok_or_else(|| {
            AppError::usage("this coplay was built without a game of its own").hint("name the file of a game")
        })?;
        let nes = game.open_nes(wanted.players.unwrap_or(nes::NesOptions::default().players))?;
        return Ok(OpenedMachine::Nes(Box::new(nes)));
    };
    let opened = match open_core(core, game, wanted) {
        Err(CoreError::NeedsGame) => match open_core(core, GameImage::bundled().as_ref(), wanted) {
            Err(CoreError::UnsupportedExtension { .. } | CoreError::NeedsGame) => Err(CoreError::NeedsGame),
            opened => opened,
        },
        opened => opened,
    };
    opened.map(|core| OpenedMachine::Core(Box::new(core))).map_err(|error| core_error(core, &error))
}

/// Switches on a core.
pub(crate) fn open_core(
    core: &CoreSource,
    game: Option<&GameImage>,
    wanted: &MachineSpec,
) -> Result<LibretroMachine, CoreError> {
    let MachineSpec { players, options, devices, system_dir: system, .. } = wanted.clone();
    let game = game.map(|game| libretro::GameImage { name: game.name.clone(), image: game.bytes.clone() });
    libretro::open(CoreConfig {
        game,
        players,
        options,
        devices,
        system_folder: system,
        ..CoreConfig::new(core.clone())
    })
}

/// For how many players a machine was that says so: it is part of what it is.
pub fn player_count(settings: &Settings) -> Option<usize> {
    let option = settings.machine.options.iter().find(|(key, _)| key == "players");
    option.and_then(|(_, value)| value.parse().ok())
}

/// Why a core does not play, in one sentence.
pub(crate) fn core_error(core: &CoreSource, error: &CoreError) -> AppError {
    let what = match error {
        CoreError::NotFound { searched_folders: looked, .. } => {
            let looked: Vec<String> = looked.iter().map(|folder| folder.display().to_string()).collect();
            format!("there is no libretro core named \"{core}\" in {}", looked.join(", "))
        }
        _ => format!("the core {core} cannot be used: {}", error.to_string().lines().collect::<Vec<_>>().join(" ")),
    };
    let hint = match error {
        CoreError::NeedsGame => Some("name the file of a game".into()),
        CoreError::GameRejected(_) => {
            Some("if the core needs a BIOS, say --system with the folder that it is in".into())
        }
        CoreError::NeedsGpu => Some(
            "look for an option of the core that switches to a software renderer, and say --option KEY=VALUE".into(),
        ),
        _ => error.hint(),
    };
    let usual = || "say --core with the name of an installed core, or with the path of its file".to_owned();
    AppError::failure(what).hint(hint.unwrap_or_else(usual))
}
