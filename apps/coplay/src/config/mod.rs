//! Settings of the user, in one TOML file. A setting that is not in the file has its default.

mod read;
mod write;

use std::path::{Path, PathBuf};

use coplay_machines::pad::Button;
use coplay_net::iroh::RelayConfig;
use coplay_shell::error::{AppError, describe_io_error};
use etcetera::BaseStrategy;

use crate::key::Key;

/// Largest number of players at this computer with keys of their own.
pub const MAX_LOCAL_PLAYERS: usize = 4;
/// Largest initial scale of a window, as a multiple of the picture's size.
pub const MAX_SCALE: u32 = 20;
/// Largest speed factor of fast-forward.
pub const MAX_FAST_FORWARD: u32 = 16;

/// Settings that the user can change in the settings file.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSettings {
    /// Initial size of a window, as a multiple of the picture's size.
    pub scale: u32,
    /// Whether pictures are scaled by whole factors only.
    pub integer_scaling: bool,
    /// Whether windows start in full screen.
    pub fullscreen: bool,
    /// Initial volume of the sound, from 0 to 100 percent.
    pub volume: u8,
    /// Whether the sound starts muted.
    pub mute: bool,
    /// Speed factor while the fast-forward key is held.
    pub fast_forward: u32,
    /// Keys of each local player, by button.
    pub player_keys: [Vec<(Button, Vec<Key>)>; MAX_LOCAL_PLAYERS],
    /// Keys that control the program itself, by action.
    pub action_keys: Vec<(Action, Vec<Key>)>,
    /// Gamepad control that presses each button.
    pub gamepad_map: Vec<(Button, GamepadControl)>,
    /// Stick deflection up to which a stick counts as at rest, in percent of the full deflection.
    pub dead_zone: u8,
    /// Folders that `coplay join` and `coplay watch` search for the game of the host.
    pub game_dirs: Vec<PathBuf>,
    /// Relay for iroh peers without a direct path.
    pub relay: RelayConfig,
    /// Folder with BIOS images for cores; `None` if the user has set none.
    pub system_dir: Option<PathBuf>,
}

/// Action of a key that controls the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "`ACTIONS` describes them")]
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

/// All actions, each with its name in the settings, default keys and description.
pub const ACTIONS: [(Action, &str, &[&str], &str); 18] = [
    (Action::Help, "help", &["F1", "Question"], "show or hide the list of keys"),
    (Action::Pause, "pause", &["P"], "pause or resume"),
    (Action::Menu, "menu", &["Escape"], "open or close the menu"),
    (Action::FastForward, "fast", &["Tab"], "fast-forward while held"),
    (Action::Save, "save", &["F5"], "save the state (in `coplay play`, to the selected slot)"),
    (Action::Load, "load", &["F7"], "load the state (in `coplay play`, from the selected slot)"),
    (Action::NextSlot, "next_slot", &["F6"], "select the next slot (with Shift: the previous one)"),
    (Action::Reset, "reset", &["F9"], "reset the machine"),
    (Action::Mute, "mute", &["M"], "turn sound off or on"),
    (Action::Increase, "more", &["Equals", "Plus"], "raise the volume, or in the demo the selected dial"),
    (Action::Decrease, "less", &["Minus"], "lower the volume, or in the demo the selected dial"),
    (Action::PreviousDial, "previous_dial", &["LeftBracket"], "in the demo, select the previous dial"),
    (Action::NextDial, "next_dial", &["RightBracket"], "in the demo, select the next dial"),
    (Action::Graph, "graph", &["N"], "show or hide the network graph"),
    (Action::Chat, "chat", &["C", "Slash"], "write a chat message"),
    (Action::GoOnAlone, "play_on_alone", &["F4"], "if all other players are silent, drop them and play on alone"),
    (Action::Fullscreen, "fullscreen", &["F11"], "switch between full screen and window"),
    (Action::Quit, "quit", &["F10"], "quit"),
];

/// Controls of a gamepad, by position: manufacturers print different letters on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
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
    /// All controls. Their names in lower case are those in the settings.
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

/// Returns the name of a button in the settings: its name in lower case.
pub fn button_name(button: Button) -> String {
    format!("{button:?}").to_lowercase()
}

/// Default control of each button, in the order of [`Button::ALL`]. The buttons have the positions of the SNES pad, on
/// which libretro's pad is modelled: B is the lowest of the four buttons on the right.
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

impl Default for UserSettings {
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

impl UserSettings {
    /// Parses the text of a settings file. Returns the settings, and warnings about unknown entries and keys with two
    /// meanings. The error is a message that begins with the line number.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        read::parse(text)
    }

    /// Loads the settings of the user, or the defaults if there is no file. Prints warnings to stderr.
    pub fn load() -> Result<Self, AppError> {
        let Some(path) = settings_path() else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                let message = format!("cannot read the settings in {}: {}", path.display(), describe_io_error(&error));
                return Err(AppError::failure(message)
                    .hint("make it a text file that you may read, or remove it to use the default settings"));
            }
        };
        let (config, warnings) = Self::parse(&text).map_err(|error| {
            AppError::failure(format!("invalid settings in {}: {error}", path.display()))
                .hint("fix that line, or remove the file to use the default settings")
        })?;
        for warning in warnings {
            eprintln!("warning: {}: {warning}", path.display());
        }
        Ok(config)
    }

    /// Formats the settings as a TOML file with comments. `path` is the settings file that the first line names.
    pub fn to_toml(&self, path: Option<&Path>) -> String {
        write::to_toml(self, path)
    }

    /// Adapts the settings to a shared game with `pads` players at this computer. Removes the keys of further players.
    /// Then T becomes a key of chat, and R a key of reset, unless the key has a function already.
    pub fn for_shared_game(mut self, pads: usize) -> Self {
        self.player_keys.iter_mut().skip(pads).for_each(Vec::clear);
        for (action, name) in [(Action::Chat, "T"), (Action::Reset, "R")] {
            let Some(key) = Key::from_name(name) else { continue };
            let is_player_key = self.player_keys.iter().flatten().any(|(_, keys)| keys.contains(&key));
            let is_action_key = self.action_keys.iter().any(|(_, keys)| keys.contains(&key));
            let mut actions = self.action_keys.iter_mut().filter(|_| !is_player_key && !is_action_key);
            if let Some((_, keys)) = actions.find(|(known, _)| *known == action) {
                keys.insert(0, key);
            }
        }
        self
    }

    /// Returns the keys of an action; empty if it has none.
    pub fn keys_of(&self, action: Action) -> &[Key] {
        self.action_keys.iter().find(|(known, _)| *known == action).map_or(&[], |(_, keys)| keys)
    }

    /// Returns the label of the first key of an action; empty without a key.
    pub fn key_label(&self, action: Action) -> String {
        self.keys_of(action).first().map(|key| key.label()).unwrap_or_default()
    }
}

/// Returns the path of the settings file; `None` if the platform has no folder for it.
pub fn settings_path() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.config_dir().join("coplay").join("settings.toml"))
}

/// Returns the folder for data that can be computed again, such as check reports; `None` if the platform has none.
pub fn cache_dir() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("coplay"))
}

/// Returns the folder for saved data, such as slots and seat keys; `None` if the platform has none.
pub fn data_dir() -> Option<PathBuf> {
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.data_dir().join("coplay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_keys_are_unique() {
        let config = UserSettings::default();
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
        let alone = UserSettings::default().for_shared_game(1);
        assert!(alone.player_keys[1].is_empty() && !alone.player_keys[0].is_empty());
        assert!(alone.keys_of(Action::Chat).contains(&key("T")) && alone.keys_of(Action::Reset).contains(&key("R")));
        let two = UserSettings::default().for_shared_game(2);
        assert!(!two.keys_of(Action::Chat).contains(&key("T")), "the second player uses it");
    }

    #[test]
    fn settings_survive_a_write_and_parse_round_trip() {
        let mut config = UserSettings {
            scale: 5,
            integer_scaling: false,
            volume: 7,
            mute: true,
            dead_zone: 12,
            ..UserSettings::default()
        };
        config.player_keys[0][3].1.clear();
        config.player_keys[1].iter_mut().for_each(|(_, keys)| keys.clear());
        config.player_keys[2] = vec![(Button::A, vec![Key::from_name(";").unwrap(), Key::from_name("5").unwrap()])];
        config.system_dir = Some("/bios".into());
        config.gamepad_map[0].1 = GamepadControl::North;
        config.relay = RelayConfig::Url("https://relay.example/".into());
        config.game_dirs = vec!["/games".into(), "C:\\\"my\" games".into()];
        let (read, warnings) = UserSettings::parse(&config.to_toml(None)).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        assert_eq!(read, config);
    }
}
