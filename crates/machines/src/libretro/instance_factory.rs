//! Opens any number of instances of a core with a game.

use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};

use super::error::CoreOpenError;
use super::ffi::{Core, CoreLoadError};
use super::frontend_state::{FrontendState, MAX_PLAYERS};
use super::options::CoreOptions;
use super::scratch::{self, ScratchDir};
use super::{CoreConfig, GameImage, elf_unique_symbols, find};

/// The data needed to open equal instances of a core.
pub(super) struct InstanceFactory {
    library: Vec<u8>,
    file_name: String,
    game: Option<GameImage>,
    options: Vec<(String, String)>,
    system_folder: Option<PathBuf>,
    players: Option<usize>,
    devices: Vec<(usize, u32)>,
}

impl InstanceFactory {
    pub(super) fn new(config: CoreConfig) -> Result<Self, CoreOpenError> {
        let path = find::find_core(&config.core, &config.core_folders)?;
        let mut library = std::fs::read(&path)
            .map_err(|error| CoreOpenError::Read { path: path.clone(), reason: error.to_string() })?;
        elf_unique_symbols::make_unique_symbols_global(&mut library);
        let file_name = path.file_name().and_then(OsStr::to_str).unwrap_or("core").to_owned();
        let CoreConfig { game, options, system_folder: system, players, mut devices, .. } = config;
        devices.retain(|(port, _)| *port < MAX_PLAYERS);
        devices.sort_unstable();
        devices.dedup_by_key(|(port, _)| *port);
        let players = players.map(|players| players.clamp(1, MAX_PLAYERS));
        Ok(Self { library, file_name, game, options, system_folder: system, players, devices })
    }

    pub(super) fn game(&self) -> Option<&GameImage> {
        self.game.as_ref()
    }

    /// Returns the number of players that the caller of [`open`](super::open) chose; `None` if the core determines it.
    pub(super) fn players(&self) -> Option<usize> {
        self.players
    }

    /// Returns the devices that replace joypads, as port and device id.
    pub(super) fn devices(&self) -> &[(usize, u32)] {
        &self.devices
    }

    /// Loads a private copy of the library, from the first candidate folder from which the system can load libraries.
    pub(super) fn load_core(&self) -> Result<(Core, ScratchDir), CoreOpenError> {
        let mut first_error = None;
        for parent in scratch::candidate_folders() {
            match self.load_core_from(&parent) {
                Err(CoreOpenError::Load(reason)) => first_error = first_error.or(Some(CoreOpenError::Load(reason))),
                loaded => return loaded,
            }
        }
        Err(first_error.unwrap_or_else(|| CoreOpenError::ScratchDir("there is no folder for temporary files".into())))
    }

    fn load_core_from(&self, parent: &Path) -> Result<(Core, ScratchDir), CoreOpenError> {
        let scratch_error = |error: std::io::Error| CoreOpenError::ScratchDir(error.to_string());
        let scratch = ScratchDir::new(parent).map_err(scratch_error)?;
        let save = scratch.folder("save").map_err(scratch_error)?;
        let system = self.system_folder.clone().map_or_else(|| scratch.folder("system"), Ok).map_err(scratch_error)?;
        let frontend = FrontendState {
            options: CoreOptions::new(&self.options),
            save_directory: to_c_path(&save)?,
            system_directory: to_c_path(&system)?,
            players: self.players.unwrap_or(MAX_PLAYERS) as u32,
            ..FrontendState::default()
        };
        let copy = scratch.write(&self.file_name, &self.library).map_err(scratch_error)?;
        let core = Core::open(&copy, frontend);
        // The loaded library no longer needs its file, so no copy is left behind even if this process is killed.
        if cfg!(unix) {
            std::fs::remove_file(&copy).map_err(scratch_error)?;
        }
        let core = core.map_err(|error| match error {
            CoreLoadError::Load(reason) => CoreOpenError::Load(reason),
            CoreLoadError::MissingFunction(function) => CoreOpenError::MissingFunction(function),
            CoreLoadError::UnsupportedVersion(version) => CoreOpenError::UnsupportedVersion(version),
        })?;
        Ok((core, scratch))
    }
}

/// Converts a path to a C string. Fails if the path is not valid UTF-8 or contains a zero byte.
pub(super) fn to_c_path(path: &Path) -> Result<CString, CoreOpenError> {
    let text = path.to_str().and_then(|path| CString::new(path).ok());
    text.ok_or_else(|| CoreOpenError::ScratchDir(format!("the path {} is not valid UTF-8", path.display())))
}
