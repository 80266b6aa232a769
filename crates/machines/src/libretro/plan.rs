//! Opening a core with a game, as often as need be.

use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::OpenError;
use super::ffi::{Core, CoreError};
use super::host::{Host, MAX_PLAYERS};
use super::instance::Instance;
use super::options::Options;
use super::scratch::{self, Scratch};
use super::{Config, Game, elf, find};

/// Everything that it takes to open an instance, and another one like it.
pub(super) struct Plan {
    library: Vec<u8>,
    file_name: String,
    game: Option<Game>,
    options: Vec<(String, String)>,
    system: Option<PathBuf>,
    players: Option<usize>,
    devices: Vec<(usize, u32)>,
}

impl Plan {
    pub(super) fn new(config: Config) -> Result<Self, OpenError> {
        let path = find::find(&config.core, &config.folders)?;
        let mut library =
            std::fs::read(&path).map_err(|error| OpenError::Read { path: path.clone(), why: error.to_string() })?;
        elf::separate(&mut library);
        let file_name = path.file_name().and_then(OsStr::to_str).unwrap_or("core").to_owned();
        let Config { game, options, system, players, mut devices, .. } = config;
        devices.retain(|(port, _)| *port < MAX_PLAYERS);
        devices.sort_unstable();
        devices.dedup_by_key(|(port, _)| *port);
        let players = players.map(|players| players.clamp(1, MAX_PLAYERS));
        Ok(Self { library, file_name, game, options, system, players, devices })
    }

    pub(super) fn game(&self) -> Option<&Game> {
        self.game.as_ref()
    }

    /// Number of players, if the caller has said it.
    pub(super) fn players(&self) -> Option<usize> {
        self.players
    }

    /// Devices that are not the usual ones.
    pub(super) fn devices(&self) -> &[(usize, u32)] {
        &self.devices
    }

    /// Opens an instance. It has stepped no frame.
    pub(super) fn open(self: &Arc<Self>) -> Result<Instance, OpenError> {
        let (core, scratch) = self.load()?;
        Instance::new(self.clone(), core, scratch)
    }

    /// Loads a copy of the library that nobody else has.
    fn load(&self) -> Result<(Core, Scratch), OpenError> {
        let mut first_error = None;
        for place in scratch::places() {
            match self.load_from(&place) {
                Err(OpenError::Load(why)) => first_error = first_error.or(Some(OpenError::Load(why))),
                loaded => return loaded,
            }
        }
        Err(first_error.unwrap_or_else(|| OpenError::Scratch("there is no folder for temporary files".into())))
    }

    fn load_from(&self, place: &Path) -> Result<(Core, Scratch), OpenError> {
        let failed = |error: std::io::Error| OpenError::Scratch(error.to_string());
        let scratch = Scratch::new(place).map_err(failed)?;
        let save = scratch.folder("save").map_err(failed)?;
        let system = self.system.clone().map_or_else(|| scratch.folder("system"), Ok).map_err(failed)?;
        let host = Host {
            options: Options::new(&self.options),
            save_directory: c_path(&save)?,
            system_directory: c_path(&system)?,
            players: self.players.unwrap_or(MAX_PLAYERS) as u32,
            ..Host::default()
        };
        let copy = scratch.write(&self.file_name, &self.library).map_err(failed)?;
        let core = Core::open(&copy, host);
        // Loaded is loaded: nothing is left behind, whatever becomes of this process.
        if cfg!(unix) {
            std::fs::remove_file(&copy).map_err(failed)?;
        }
        let core = core.map_err(|error| match error {
            CoreError::Load(why) => OpenError::Load(why),
            CoreError::Lacks(what) => OpenError::NoCore(what),
            CoreError::Version(version) => OpenError::Version(version),
        })?;
        Ok((core, scratch))
    }
}

/// A path as C has it.
pub(super) fn c_path(path: &Path) -> Result<CString, OpenError> {
    let text = path.to_str().and_then(|path| CString::new(path).ok());
    text.ok_or_else(|| OpenError::Scratch(format!("{} is no path that a core can take", path.display())))
}
