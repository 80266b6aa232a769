//! Settings: what a person likes, kept in one file. What is not in the file is as it comes.

mod read;
mod write;

use std::path::{Path, PathBuf};

use coplay_machines::pad::Button;
use coplay_net::iroh::RelayConfig;
use etcetera::BaseStrategy;

use crate::error::{AppError, describe_io_error};
use crate::key::Key;

/// Players with keys or gamepads of their own.
pub const MAX_LOCAL_PLAYERS: usize = 4;
/// The most that a window is larger than its picture at first.
pub const MAX_SCALE: u32 = 20;
/// The most that a held key speeds up.
pub const MAX_FAST_FORWARD: u32 = 16;

/// Everything that can be set.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How many times larger than the picture a window is at first.
    pub scale: u32,
    /// Whether pictures grow by whole steps only.
    pub integer_scaling: bool,
    /// Whether the whole screen is used from the beginning.
    pub fullscreen: bool,
    /// In percent.
    pub volume: u8,
    /// No sound.
    pub mute: bool,
    /// How many times faster it goes while the key for that is held.
    pub fast_forward: u32,
    /// The keys of each player.
    pub player_keys: [Vec<(Button, Vec<Key>)>; MAX_LOCAL_PLAYERS],
    /// The keys of the program itself.
    pub action_keys: Vec<(Action, Vec<Key>)>,
    /// What on a gamepad presses what.
    pub gamepad_map: Vec<(Button, GamepadControl)>,
    /// How far a stick must be moved to count, in percent.
    pub dead_zone: u8,
    /// Folders with games, to find one that somebody else plays.
    pub game_dirs: Vec<PathBuf>,
    /// What leads peers to each other where they find no way themselves.
    pub relay: RelayConfig,
    /// The folder with BIOS images for cores.
    pub system_dir: Option<PathBuf>,
}

/// What a key of the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`ACTIONS` says it")]
pub enum Action {
    Help,
    Pause,
    Menu,
    FastForward,
    Save,
    Load,
    NextSlot,
    Reset,
    Mute,
    Increase,
    Decrease,
    PreviousDial,
    NextDial,
    Graph,
    Chat,
    GoOnAlone,
    Fullscreen,
    Quit,
}

/// All actions: name, keys as they come, and what they do.
pub const ACTIONS: [(Action, &str, &[&str], &str); 18] = [
    (Action::Help, "help", &["F1", "Question"], "show the keys"),
    (Action::Pause, "pause", &["P"], "stand still, or go on"),
    (Action::Menu, "menu", &["Escape"], "menu"),
    (Action::FastForward, "fast", &["Tab"], "go faster while held"),
    (Action::Save, "save", &["F5"], "keep this moment in the slot"),
    (Action::Load, "load", &["F7"], "go back to the slot"),
    (Action::NextSlot, "next_slot", &["F6"], "choose the next slot (with Shift: the one before)"),
    (Action::Reset, "reset", &["F9"], "switch the machine off and on"),
    (Action::Mute, "mute", &["M"], "sound off, or on"),
    (Action::Increase, "more", &["Equals", "Plus"], "louder, or more of the chosen dial"),
    (Action::Decrease, "less", &["Minus"], "less loud, or less of the chosen dial"),
    (Action::PreviousDial, "previous_dial", &["LeftBracket"], "choose the dial before"),
    (Action::NextDial, "next_dial", &["RightBracket"], "choose the next dial"),
    (Action::Graph, "graph", &["N"], "show how the network does, or not"),
    (Action::Chat, "chat", &["C", "Slash"], "say something to the others"),
    (Action::GoOnAlone, "play_on_alone", &["F4"], "play on alone, when the others are silent"),
    (Action::Fullscreen, "fullscreen", &["F11"], "whole screen, or a window"),
    (Action::Quit, "quit", &["F10"], "end"),
];

/// What there is on a gamepad, by place: makers print different letters on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are all there is to say")]
pub enum GamepadControl {
    South,
    East,
    West,
    North,
    Select,
    Start,
    Up,
    Down,
    Left,
    Right,
    L,
    R,
    L2,
    R2,
    L3,
    R3,
}

impl GamepadControl {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::South,
        Self::East,
        Self::West,
        Self::North,
        Self::Select,
        Self::Start,
        Self::Up,
        Self::Down,
        Self::Left,
        Self::Right,
        Self::L,
        Self::R,
        Self::L2,
        Self::R2,
        Self::L3,
        Self::R3,
    ];
}

/// Names of buttons, as in the settings.
pub fn button_name(button: Button) -> String {
    format!("{button:?}").to_lowercase()
}

/// Where each button of [`Button::ALL`] is on a gamepad: letters as on the pad that libretro took as its model.
const DEFAULT_GAMEPAD_MAP: [GamepadControl; 16] = [
    GamepadControl::South,
    GamepadControl::West,
    GamepadControl::Select,
    GamepadControl::Start,
    GamepadControl::Up,
    GamepadControl::Down,
    GamepadControl::Left,
    GamepadControl::Right,
    GamepadControl::East,
    GamepadControl::North,
    GamepadControl::L,
    GamepadControl::R,
    GamepadControl::L2,
    GamepadControl::R2,
    GamepadControl::L3,
    GamepadControl::R3,
];

impl Default for Config {
    fn default() -> Self {
        let keys = |names: [&str; 12]| {
            let key = |name: &str| if name.is_empty() { vec![] } else { Key::from_name(name).into_iter().collect() };
            Button::ALL.into_iter().zip(names.map(key)).collect()
        };
        let named = |names: &[&str]| names.iter().filter_map(|name| Key::from_name(name)).collect();
        Self {
            scale: 3,
            integer_scaling: true,
            fullscreen: false,
            volume: 80,
            mute: false,
            fast_forward: 4,
            player_keys: [
                keys(["Z", "A", "Backspace", "Enter", "Up", "Down", "Left", "Right", "X", "S", "Q", "W"]),
                keys(["F", "R", "2", "1", "I", "K", "J", "L", "G", "T", "E", "Y"]),
                vec![],
                vec![],
            ],
            action_keys: ACTIONS.map(|(action, _, keys, _)| (action, named(keys))).into(),
            gamepad_map: Button::ALL.into_iter().zip(DEFAULT_GAMEPAD_MAP).collect(),
            dead_zone: 30,
            game_dirs: vec![],
            relay: RelayConfig::Default,
            system_dir: None,
        }
    }
}

impl Config {
    /// The settings in a text, and warnings about what was not understood but does no harm.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        read::parse(text)
    }

    /// The settings of this person, or as they come if there is no file; warnings go to stderr.
    pub fn load() -> Result<Self, AppError> {
        let Some(path) = settings_path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                let what = format!("the settings in {} cannot be read: {}", path.display(), describe_io_error(&error));
                return Err(
                    AppError::failure(what).hint("mend or remove that file; `coplay config` shows what goes in it")
                );
            }
        };
        let (config, warnings) = Self::parse(&text).map_err(|wrong| {
            AppError::failure(format!("the settings in {} are wrong: {wrong}", path.display()))
                .hint("mend that line, or move the file away to have everything as it comes")
        })?;
        for warning in warnings {
            eprintln!("warning: {}: {warning}", path.display());
        }
        Ok(config)
    }

    /// The settings as a file, with comments.
    pub fn to_toml(&self, path: Option<&Path>) -> String {
        write::to_toml(self, path)
    }

    /// The same for a game with others, of whom so many play here. Who does not play here needs no keys, and some of those are handy
    /// for what only such games have.
    pub fn for_shared_game(mut self, pads: usize) -> Self {
        self.player_keys.iter_mut().skip(pads).for_each(Vec::clear);
        for (action, name) in [(Action::Chat, "T"), (Action::Reset, "R")] {
            let Some(key) = Key::from_name(name) else { continue };
            let plays = self.player_keys.iter().flatten().any(|(_, keys)| keys.contains(&key));
            let does = self.action_keys.iter().any(|(_, keys)| keys.contains(&key));
            if let Some((_, keys)) = self.action_keys.iter_mut().find(|(known, _)| *known == action && !plays && !does)
            {
                keys.insert(0, key);
            }
        }
        self
    }

    /// The keys for an action.
    pub fn keys_of(&self, action: Action) -> &[Key] {
        self.action_keys.iter().find(|(known, _)| *known == action).map_or(&[], |(_, keys)| keys)
    }
}

/// Where the settings are, if the system has a place for them.
pub fn settings_path() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.config_dir().join("coplay").join("settings.toml"))
}

/// The directory for what can be made again, if the platform has one.
pub fn cache_dir() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("coplay"))
}

/// Where what was kept is, if the system has a place for it.
pub fn data_dir() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.data_dir().join("coplay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_keys_are_unique() {
        let config = Config::default();
        let mut all: Vec<Key> = config.player_keys.iter().flatten().flat_map(|(_, keys)| keys.clone()).collect();
        all.extend(config.action_keys.iter().flat_map(|(_, keys)| keys.clone()));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(count, 24 + ACTIONS.iter().map(|(_, _, keys, _)| keys.len()).sum::<usize>());
    }

    #[test]
    fn keys_of_remote_players_are_freed_for_actions() {
        let key = |name| Key::from_name(name).unwrap();
        let alone = Config::default().for_shared_game(1);
        assert!(alone.player_keys[1].is_empty() && !alone.player_keys[0].is_empty());
        assert!(alone.keys_of(Action::Chat).contains(&key("T")) && alone.keys_of(Action::Reset).contains(&key("R")));
        let two = Config::default().for_shared_game(2);
        assert!(!two.keys_of(Action::Chat).contains(&key("T")), "the second player needs it");
    }

    #[test]
    fn settings_survive_a_write_and_parse_round_trip() {
        let mut config =
            Config { scale: 5, integer_scaling: false, volume: 7, mute: true, dead_zone: 12, ..Config::default() };
        config.player_keys[0][3].1.clear();
        config.player_keys[1].iter_mut().for_each(|(_, keys)| keys.clear());
        config.player_keys[2] = vec![(Button::A, vec![Key::from_name(";").unwrap(), Key::from_name("5").unwrap()])];
        config.system_dir = Some("/bios".into());
        config.gamepad_map[0].1 = GamepadControl::North;
        config.relay = RelayConfig::Url("https://relay.example/".into());
        config.game_dirs = vec!["/games".into(), "C:\\\"my\" games".into()];
        let (read, warnings) = Config::parse(&config.to_toml(None)).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(read, config);
    }
}
