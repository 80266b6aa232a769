//! Parses a settings file. Every error and warning names its line, except the warning about a key with two meanings.

use std::ops::Range;
use std::path::PathBuf;

use coplay_machines::pad::Button;
use coplay_net::iroh::RelayError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ACTIONS, GamepadControl, MAX_FAST_FORWARD, MAX_LOCAL_PLAYERS, MAX_SCALE, UserSettings, button_name};
use crate::key::Key;

type TomlValue<'a> = Spanned<DeValue<'a>>;

/// Parser of one settings file, and the warnings so far.
struct SettingsReader<'a> {
    text: &'a str,
    warnings: Vec<String>,
}

pub(super) fn parse(text: &str) -> Result<(UserSettings, Vec<String>), String> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span));
        format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    let (mut reader, mut config) = (SettingsReader { text, warnings: vec![] }, UserSettings::default());
    for (name, value) in table.get_ref() {
        reader.section(&mut config, name.get_ref(), name.span(), value)?;
    }
    warn_duplicate_keys(&config, &mut reader.warnings);
    Ok((config, reader.warnings))
}

fn line_of(text: &str, span: Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Warns about each key with two meanings, such as two buttons or a button and an action: that is probably a mistake.
fn warn_duplicate_keys(config: &UserSettings, warnings: &mut Vec<String>) {
    let mut uses: Vec<(Key, String)> = vec![];
    for (player, (button, keys)) in
        config.player_keys.iter().enumerate().flat_map(|(n, map)| map.iter().map(move |m| (n, m)))
    {
        uses.extend(keys.iter().map(|key| (*key, format!("button {} of player {}", button_name(*button), player + 1))));
    }
    for (action, name, ..) in ACTIONS {
        uses.extend(config.keys_of(action).iter().map(|key| (*key, name.to_owned())));
    }
    for (index, (key, first)) in uses.iter().enumerate() {
        if let Some((_, second)) = uses[index + 1..].iter().find(|(other, _)| other == key) {
            warnings.push(format!("the key {key:?} has two meanings: {first} and {second}"));
        }
    }
}

impl SettingsReader<'_> {
    fn section(
        &mut self,
        config: &mut UserSettings,
        name: &str,
        span: Range<usize>,
        value: &TomlValue<'_>,
    ) -> Result<(), String> {
        if name == "games" {
            config.game_dirs = self.folders(name, value)?;
            return Ok(());
        }
        if name == "system" {
            config.system_dir = Some(self.folder(name, value)?);
            return Ok(());
        }
        let known = ["video", "sound", "pace", "network", "keys", "gamepad"].contains(&name);
        let player = name.strip_prefix("player").and_then(|number| number.parse::<usize>().ok());
        let player = player.filter(|number| (1..=MAX_LOCAL_PLAYERS).contains(number));
        if !known && player.is_none() {
            self.warn_unknown(name, span);
            return Ok(());
        }
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.error_at(value, &format!("{name} must be a section: write [{name}] in a line of its own")));
        };
        for (key, value) in table {
            let is_known = match (name, player) {
                (_, Some(player)) => self.read_player_keys(config, player - 1, key.get_ref(), value)?,
                ("video", _) => self.video(config, key.get_ref(), value)?,
                ("sound", _) => self.sound(config, key.get_ref(), value)?,
                ("pace", _) => self.pace(config, key.get_ref(), value)?,
                ("network", _) => self.network(config, key.get_ref(), value)?,
                ("keys", _) => self.read_action_keys(config, key.get_ref(), value)?,
                _ => self.gamepad(config, key.get_ref(), value)?,
            };
            if !is_known {
                self.warn_unknown(&format!("{name}.{}", key.get_ref()), key.span());
            }
        }
        Ok(())
    }

    fn video(&mut self, config: &mut UserSettings, key: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        match key {
            "scale" => config.scale = self.number(key, value, 1, MAX_SCALE)?,
            "integer" => config.integer_scaling = self.boolean(key, value)?,
            "fullscreen" => config.fullscreen = self.boolean(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn sound(&mut self, config: &mut UserSettings, key: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        match key {
            "volume" => config.volume = self.number(key, value, 0, 100)? as u8,
            "mute" => config.mute = self.boolean(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pace(&mut self, config: &mut UserSettings, key: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        match key {
            "fast" => config.fast_forward = self.number(key, value, 2, MAX_FAST_FORWARD)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn network(&mut self, config: &mut UserSettings, key: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        let ("relay", DeValue::String(text)) = (key, value.get_ref()) else {
            let expected = "relay must be \"none\", \"default\" or a URL, in quotes";
            return if key == "relay" { Err(self.error_at(value, expected)) } else { Ok(false) };
        };
        config.relay = text.parse().map_err(|error: RelayError| self.error_at(value, &format!("relay {error}")))?;
        Ok(true)
    }

    fn read_player_keys(
        &mut self,
        config: &mut UserSettings,
        player: usize,
        key: &str,
        value: &TomlValue<'_>,
    ) -> Result<bool, String> {
        let Some(button) = Button::ALL.into_iter().find(|button| button_name(*button) == key) else { return Ok(false) };
        let keys = self.key_list(key, value)?;
        let map = &mut config.player_keys[player];
        match map.iter_mut().find(|(known, _)| *known == button) {
            Some((_, known)) => *known = keys,
            None => map.push((button, keys)),
        }
        Ok(true)
    }

    fn read_action_keys(
        &mut self,
        config: &mut UserSettings,
        key: &str,
        value: &TomlValue<'_>,
    ) -> Result<bool, String> {
        let Some((action, ..)) = ACTIONS.iter().find(|(_, name, ..)| *name == key) else { return Ok(false) };
        let keys = self.key_list(key, value)?;
        for (known, old) in &mut config.action_keys {
            if known == action {
                old.clone_from(&keys);
            }
        }
        Ok(true)
    }

    fn gamepad(&mut self, config: &mut UserSettings, key: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        if key == "dead_zone" {
            config.dead_zone = self.number(key, value, 0, 90)? as u8;
            return Ok(true);
        }
        let Some(button) = Button::ALL.into_iter().find(|button| button_name(*button) == key) else { return Ok(false) };
        let DeValue::String(name) = value.get_ref() else {
            let expected = format!("{key} must be the name of a gamepad control in quotes, such as \"south\"");
            return Err(self.error_at(value, &expected));
        };
        let found = GamepadControl::ALL.into_iter().find(|control| format!("{control:?}").eq_ignore_ascii_case(name));
        let Some(control) = found else {
            let all = GamepadControl::ALL.map(|control| format!("{control:?}").to_lowercase()).join(", ");
            return Err(self.error_at(value, &format!("there is no gamepad control {name:?}; the controls are {all}")));
        };
        for (known, old) in &mut config.gamepad_map {
            if *known == button {
                *old = control;
            }
        }
        Ok(true)
    }

    /// Parses the path of a folder, or a list of paths in brackets.
    fn folders(&self, name: &str, value: &TomlValue<'_>) -> Result<Vec<PathBuf>, String> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| self.folder(name, value)).collect(),
            _ => Ok(vec![self.folder(name, value)?]),
        }
    }

    fn folder(&self, name: &str, value: &TomlValue<'_>) -> Result<PathBuf, String> {
        match value.get_ref() {
            DeValue::String(path) if !path.is_empty() => Ok(PathBuf::from(path.as_ref())),
            _ => Err(self.error_at(value, &format!("{name} must be the path of a folder in quotes"))),
        }
    }

    /// Parses the name of a key, or a list of names in brackets, which may be empty.
    fn key_list(&self, name: &str, value: &TomlValue<'_>) -> Result<Vec<Key>, String> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| self.key(name, value)).collect(),
            _ => Ok(vec![self.key(name, value)?]),
        }
    }

    fn key(&self, name: &str, value: &TomlValue<'_>) -> Result<Key, String> {
        let DeValue::String(key) = value.get_ref() else {
            return Err(self.error_at(value, &format!("{name} must be the name of a key in quotes, such as \"Z\"")));
        };
        Key::from_name(key).ok_or_else(|| {
            self.error_at(
                value,
                &format!("there is no key {key:?}; keys are letters, digits, symbols, Up, Enter, Space, F1, …"),
            )
        })
    }

    fn number(&self, name: &str, value: &TomlValue<'_>, min: u32, max: u32) -> Result<u32, String> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let fits = number.filter(|number| (min..=max).contains(number));
        fits.ok_or_else(|| self.error_at(value, &format!("{name} must be a whole number from {min} to {max}")))
    }

    fn boolean(&self, name: &str, value: &TomlValue<'_>) -> Result<bool, String> {
        match value.get_ref() {
            DeValue::Boolean(on) => Ok(*on),
            _ => Err(self.error_at(value, &format!("{name} must be true or false"))),
        }
    }

    fn error_at(&self, value: &TomlValue<'_>, message: &str) -> String {
        format!("line {}: {message}", line_of(self.text, value.span()))
    }

    fn warn_unknown(&mut self, name: &str, span: Range<usize>) {
        self.warnings.push(format!("line {}: unknown setting {name} is ignored", line_of(self.text, span)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn parse_error_names_its_line() {
        assert!(parse_error("[video]\nscale = 0").starts_with("line 2: scale must be a whole number from 1 to 20"));
        assert!(parse_error("[video]\n\ninteger = 3").starts_with("line 3: integer must be true or false"));
        assert!(parse_error("[keys]\npause = \"Hyper\"").starts_with("line 2: there is no key \"Hyper\""));
        assert!(parse_error("[gamepad]\na = \"middle\"").starts_with("line 2: there is no gamepad control \"middle\""));
        assert!(parse_error("video = 3").starts_with("line 1: video must be a section: write [video]"));
        assert!(
            parse_error("[video]\nscale = = 3\n").starts_with("line 2: "),
            "{}",
            parse_error("[video]\nscale = = 3\n")
        );
    }

    #[test]
    fn unknown_setting_gives_a_warning() {
        let (config, warnings) = parse("[video]\nscal = 4\n[sond]\nvolume = 3\n[player9]\na = \"B\"").unwrap();
        assert_eq!(config, UserSettings::default());
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings.iter().any(|line| line.contains("line 2") && line.contains("video.scal")), "{warnings:?}");
    }

    #[test]
    fn key_setting_is_one_key_a_list_or_empty() {
        let (config, warnings) = parse("[player1]\na = [\"B\", \"H\"]\nb = []\nstart = \"5\"").unwrap();
        let keys = |button| config.player_keys[0].iter().find(|(known, _)| *known == button).unwrap().1.len();
        assert_eq!((keys(Button::A), keys(Button::B), keys(Button::Start)), (2, 0, 1));
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn folder_setting_is_one_path_or_a_list() {
        assert_eq!(parse("games = \"/a\"").unwrap().0.game_dirs, [PathBuf::from("/a")]);
        assert_eq!(parse("games = [\"/a\", \"b\"]").unwrap().0.game_dirs.len(), 2);
        assert_eq!(parse("system = \"/bios\"").unwrap().0.system_dir, Some("/bios".into()));
        assert!(parse_error("system = []").starts_with("line 1: system must be the path of a folder"));
        assert!(parse_error("\ngames = [3]").starts_with("line 2: games must be the path of a folder"));
    }

    #[test]
    fn duplicate_key_gives_a_warning() {
        let (_, warnings) = parse("[player1]\na = \"P\"").unwrap();
        assert_eq!(warnings, ["the key P has two meanings: button a of player 1 and pause"]);
    }
}
