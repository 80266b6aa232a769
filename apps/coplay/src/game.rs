//! Games, bundled or in files, and the machines that run them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use coplay::session::{MachineId, Settings};
use coplay_machines::libretro::{self, CoreOpenError as CoreError, CoreSource, LibretroMachine};
use coplay_machines::nes::{self, Nes, NesOpenError};
use coplay_machines::{Machine, libretro::CoreConfig};
use coplay_shell::error::{AppError, describe_io_error};

/// Name of the built-in machine, as in its [`MachineId`].
pub(crate) const BUILT_IN_MACHINE: &str = "nes";

/// Largest size of a game read from a regular file, in bytes: more than any cartridge or CD.
const MAX_IMAGE_BYTES: u64 = 1 << 30;
/// Largest size of a game read from a file without a known size, such as a pipe, in bytes.
const MAX_STREAM_BYTES: u64 = 64 << 20;

/// Image of a game, such as the content of a cartridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GameImage {
    /// File name without its folder.
    pub name: String,
    /// Content of the game's file.
    pub bytes: Vec<u8>,
}

/// Settings with which a machine is opened.
#[derive(Clone, Debug, Default)]
pub struct MachineSpec {
    /// Libretro core; `None` is the built-in machine.
    pub core: Option<CoreSource>,
    /// Number of players; `None` is the machine's default.
    pub players: Option<usize>,
    /// Values of core options, as key and value; all other options keep their defaults.
    pub options: Vec<(String, String)>,
    /// Devices in ports of the core that do not get a joypad, as port number and number of the libretro device.
    pub devices: Vec<(usize, u32)>,
    /// Folder with the BIOS images of the core; `None` if the user gave none.
    pub system_dir: Option<PathBuf>,
}

/// Machine that was powered on and has stepped no frame.
pub enum OpenedMachine {
    /// Built-in NES.
    Nes(Box<Nes>),
    /// Libretro core, which can make twins of itself without another probe.
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
    /// Returns the spec that opens a machine like `machine` on `core`. Leaves out the options `hash of` and `platform`:
    /// they state properties of the machine, which cannot be set. Of the built-in machine's options, takes over only
    /// the number of players.
    pub fn matching(core: Option<CoreSource>, machine: &MachineId) -> Self {
        let mut spec = Self { core, ..Self::default() };
        // Options of the built-in machine do not apply to a core.
        let of_core = |key: &str| machine.name != BUILT_IN_MACHINE || key == "players";
        for (key, value) in machine.options.iter().filter(|(key, _)| of_core(key)) {
            let device = key.strip_prefix("device ").and_then(|port| Some((port.parse().ok()?, value.parse().ok()?)));
            match key.as_str() {
                "players" => spec.players = value.parse().ok(),
                "hash of" | "platform" => {}
                _ if device.is_some() => spec.devices.extend(device),
                _ => spec.options.push((key.clone(), value.clone())),
            }
        }
        spec
    }
}

impl GameImage {
    /// Returns the bundled game; `None` if the program was built without one.
    pub fn bundled() -> Option<Self> {
        let image = include_bytes!(concat!(env!("OUT_DIR"), "/bundled.nes"));
        (!image.is_empty()).then(|| Self { name: "tennis.nes".into(), bytes: image.to_vec() })
    }

    /// Reads a game from a file. Fails if the file is empty or larger than 1 GiB; the limit for a pipe is 64 MiB.
    pub fn read(path: &Path) -> Result<Self, AppError> {
        let shown = path.display();
        let unreadable = |error: std::io::Error| {
            AppError::failure(format!("cannot read the game {shown}: {}", describe_io_error(&error)))
                .hint("check the path, and give the file of a game")
        };
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            return Err(AppError::failure(format!("{shown} is a folder, not a game"))
                .hint("give the file of one game in this folder"));
        }
        // A device or pipe has no known size, and may be endless.
        let max = if found.is_file() { MAX_IMAGE_BYTES } else { MAX_STREAM_BYTES };
        let mut image = vec![];
        if found.len() <= max {
            File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut image)).map_err(unreadable)?;
        }
        if found.len().max(image.len() as u64) > max {
            let limit = if found.is_file() { "the largest size of a game" } else { "the limit for a pipe or device" };
            return Err(AppError::failure(format!("{shown} has more than {} MiB, {limit}", max >> 20))
                .hint("check the path, and give the file of a game"));
        }
        if image.is_empty() {
            return Err(AppError::failure(format!("{shown} is empty")).hint("copy the whole file again"));
        }
        let name = path.file_name().map_or_else(|| "game".into(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, bytes: image })
    }

    /// Opens a machine of this spec with this game.
    pub fn open(&self, spec: &MachineSpec) -> Result<Box<dyn Machine>, AppError> {
        open_machine(Some(self), spec).map(Into::into)
    }

    fn open_nes(&self, players: usize) -> Result<Nes, AppError> {
        // The machine always has at least two pads, used or not.
        let players = players.max(nes::NesOptions::default().players);
        Nes::open_with(&self.bytes, self.title(), nes::NesOptions { players }).map_err(|error| self.open_error(&error))
    }

    fn open_error(&self, error: &NesOpenError) -> AppError {
        let message = format!("cannot play {}: {error}", self.name);
        match error {
            NesOpenError::InvalidPlayerCount(_) => {
                AppError::usage(message).hint(format!("use --players with a number from 1 to {}", nes::MAX_PLAYERS))
            }
            NesOpenError::Truncated { .. } => AppError::failure(message).hint("copy the whole file again"),
            NesOpenError::NotNes => AppError::failure(message)
                .hint("for a game of another console, name its libretro core with --core CORE"),
            _ => AppError::failure(message).hint("try a libretro core: --core nestopia"),
        }
    }

    /// Returns the title of the game: its file name without the extension.
    pub fn title(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(title, _)| title)
    }
}

/// Opens a machine with a game. Without a game, a core that needs none runs alone, and every other machine gets the
/// bundled game.
pub fn open_machine(game: Option<&GameImage>, spec: &MachineSpec) -> Result<OpenedMachine, AppError> {
    let Some(core) = &spec.core else {
        let bundled = if game.is_none() { GameImage::bundled() } else { None };
        let game = game.or(bundled.as_ref()).ok_or_else(|| {
            AppError::usage("this build of coplay has no bundled game").hint("give the file of a game")
        })?;
        let nes = game.open_nes(spec.players.unwrap_or(nes::NesOptions::default().players))?;
        return Ok(OpenedMachine::Nes(Box::new(nes)));
    };
    let opened = match open_core(core, game, spec) {
        Err(CoreError::NeedsGame) => match open_core(core, GameImage::bundled().as_ref(), spec) {
            Err(CoreError::UnsupportedExtension { .. } | CoreError::NeedsGame) => Err(CoreError::NeedsGame),
            opened => opened,
        },
        opened => opened,
    };
    opened.map(|core| OpenedMachine::Core(Box::new(core))).map_err(|error| core_error(core, &error))
}

/// Opens a libretro core with a game, or without one.
pub(crate) fn open_core(
    core: &CoreSource,
    game: Option<&GameImage>,
    spec: &MachineSpec,
) -> Result<LibretroMachine, CoreError> {
    let MachineSpec { players, options, devices, system_dir, .. } = spec.clone();
    let game = game.map(|game| libretro::GameImage { name: game.name.clone(), image: game.bytes.clone() });
    libretro::open(CoreConfig {
        game,
        players,
        options,
        devices,
        system_folder: system_dir,
        ..CoreConfig::new(core.clone())
    })
}

/// Returns the number of players in these settings, from the options of the machine; `None` if it is not among them.
pub fn player_count(settings: &Settings) -> Option<usize> {
    let option = settings.machine.options.iter().find(|(key, _)| key == "players");
    option.and_then(|(_, value)| value.parse().ok())
}

/// Converts an error of a core to a message with a hint for the user.
pub(crate) fn core_error(core: &CoreSource, error: &CoreError) -> AppError {
    let message = match error {
        CoreError::NotFound { searched_folders, .. } => {
            let folders: Vec<String> = searched_folders.iter().map(|folder| folder.display().to_string()).collect();
            format!("there is no libretro core named \"{core}\" in {}", folders.join(", "))
        }
        _ => format!("cannot use the core {core}: {}", error.to_string().lines().collect::<Vec<_>>().join(" ")),
    };
    let hint = match error {
        CoreError::NeedsGame => Some("give the file of a game".into()),
        CoreError::GameRejected(_) => Some("if the core needs BIOS images, give their folder with --system DIR".into()),
        CoreError::NeedsGpu => {
            Some("if the core has an option for a software renderer, set it with --option KEY=VALUE".into())
        }
        _ => error.hint(),
    };
    let default_hint =
        || "try another core: --core with the name of an installed core, or with the path of its file".to_owned();
    AppError::failure(message).hint(hint.unwrap_or_else(default_hint))
}
