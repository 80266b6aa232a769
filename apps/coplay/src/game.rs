//! Games: the one that comes with the program, those in files, and the machines that play them.

use std::path::Path;

use coplay::session::Settings;
use coplay_machines::libretro::{self, OpenError as CoreError};
use coplay_machines::nes::{self, Nes, OpenError};
use coplay_machines::{Machine, libretro::Config as CoreConfig};

use crate::trouble::{Trouble, in_words};

/// The largest file that is taken for a game: no cartridge is larger, and few discs.
const MAX_IMAGE: u64 = 1 << 30;

/// An image of a game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Game {
    /// What to call it: the name of its file.
    pub name: String,
    /// What is in it.
    pub image: Vec<u8>,
}

/// Which machine plays, and how.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// A libretro core, by name or path; otherwise the machine that comes with the program.
    pub core: Option<String>,
    /// For so many players, where the machine has to know.
    pub players: Option<usize>,
}

impl Game {
    /// A game from a file, or the one that comes with the program.
    pub fn find(path: Option<&Path>) -> Result<Self, Trouble> {
        match path {
            Some(path) => Self::read(path),
            None => Self::bundled().ok_or_else(|| {
                Trouble::misuse("this coplay was built without a game of its own").hint("name the file of a game")
            }),
        }
    }

    /// The game that comes with the program, if it was there when the program was built.
    pub fn bundled() -> Option<Self> {
        let image = include_bytes!(concat!(env!("OUT_DIR"), "/bundled.nes"));
        (!image.is_empty()).then(|| Self { name: "tennis.nes".into(), image: image.to_vec() })
    }

    /// A game from a file.
    pub fn read(path: &Path) -> Result<Self, Trouble> {
        let shown = path.display();
        let unreadable = |error: std::io::Error| {
            let trouble = Trouble::failure(format!("the game {shown} cannot be read: {}", in_words(&error)));
            trouble.hint("name the file of a game, or none to play the one that comes with coplay")
        };
        let found = std::fs::metadata(path).map_err(unreadable)?;
        if found.is_dir() {
            return Err(
                Trouble::failure(format!("{shown} is a directory, not a game")).hint("name the file of one game in it")
            );
        }
        if found.len() > MAX_IMAGE {
            return Err(Trouble::failure(format!("{shown} has {} bytes, more than any game", found.len()))
                .hint("is it the right file?"));
        }
        let image = std::fs::read(path).map_err(unreadable)?;
        if image.is_empty() {
            return Err(Trouble::failure(format!("{shown} is empty")).hint("was it copied as a whole?"));
        }
        let name = path.file_name().map_or_else(|| "game".into(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, image })
    }

    /// Puts the game into a machine and switches it on.
    pub fn open(&self, wanted: &Wanted) -> Result<Box<dyn Machine>, Trouble> {
        match &wanted.core {
            Some(core) => self.open_core(core, wanted.players),
            None => self.open_nes(wanted.players.unwrap_or(nes::Options::default().players)),
        }
    }

    fn open_nes(&self, players: usize) -> Result<Box<dyn Machine>, Trouble> {
        // Two pads are there whether or not somebody holds the second.
        let players = players.max(nes::Options::default().players);
        match Nes::open_with(&self.image, self.title(), nes::Options { players }) {
            Ok(nes) => Ok(Box::new(nes)),
            Err(error) => Err(self.refused(&error)),
        }
    }

    fn refused(&self, error: &OpenError) -> Trouble {
        let what = format!("{} cannot be played: {error}", self.name);
        match error {
            OpenError::Players(_) => {
                Trouble::misuse(what).hint(format!("say --players with 1 to {}", nes::MAX_PLAYERS))
            }
            OpenError::Truncated { .. } => Trouble::failure(what).hint("was it copied as a whole?"),
            OpenError::NotNes => {
                Trouble::failure(what).hint("for games of other machines say --core and a libretro core")
            }
            _ => Trouble::failure(what).hint("another machine may know it: --core nestopia"),
        }
    }

    fn open_core(&self, core: &str, players: Option<usize>) -> Result<Box<dyn Machine>, Trouble> {
        let game = libretro::Game { name: self.name.clone(), image: self.image.clone() };
        let config = CoreConfig { core: core.into(), game: Some(game), players, ..CoreConfig::default() };
        match libretro::open(config) {
            Ok(machine) => Ok(Box::new(machine)),
            Err(error) => Err(core_refused(core, &error)),
        }
    }

    /// The name without its ending.
    pub fn title(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(title, _)| title)
    }
}

/// Switches on a core that needs no game; `None` if it needs one.
pub fn open_core_alone(wanted: &Wanted) -> Result<Option<Box<dyn Machine>>, Trouble> {
    let Some(core) = &wanted.core else { return Ok(None) };
    match libretro::open(CoreConfig { core: core.clone(), players: wanted.players, ..CoreConfig::default() }) {
        Ok(machine) => Ok(Some(Box::new(machine))),
        Err(CoreError::NeedsGame) => Ok(None),
        Err(error) => Err(core_refused(core, &error)),
    }
}

/// For how many players a machine was that says so: it is part of what it is.
pub fn players(settings: &Settings) -> Option<usize> {
    let option = settings.machine.options.iter().find(|(key, _)| key == "players");
    option.and_then(|(_, value)| value.parse().ok())
}

/// Why a core does not play, in one sentence.
pub(crate) fn core_refused(core: &str, error: &CoreError) -> Trouble {
    let what = match error {
        CoreError::NotFound { looked, .. } => {
            let looked: Vec<String> = looked.iter().map(|folder| folder.display().to_string()).collect();
            format!("there is no libretro core named {core:?} in {}", looked.join(", "))
        }
        _ => format!("the core {core} cannot be used: {}", error.to_string().lines().collect::<Vec<_>>().join(" ")),
    };
    let usual = || "say --core with the name of an installed core, or with the path of its file".to_owned();
    Trouble::failure(what).hint(error.hint().unwrap_or_else(usual))
}
