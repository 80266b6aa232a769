//! Reads settings: every complaint names its line.

use std::ops::Range;
use std::path::PathBuf;

use coplay_machines::pad::Button;
use coplay_net::iroh::RelayError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ACTIONS, Config, Control, MAX_FAST, MAX_SCALE, PLAYERS, button_name};
use crate::key::Key;

type Value<'a> = Spanned<DeValue<'a>>;

/// The file at hand.
struct File<'a> {
    text: &'a str,
    warnings: Vec<String>,
}

pub(super) fn parse(text: &str) -> Result<(Config, Vec<String>), String> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span));
        format!("line {line}: {}", error.message().lines().collect::<Vec<_>>().join(", "))
    })?;
    let (mut file, mut config) = (File { text, warnings: vec![] }, Config::default());
    for (name, value) in table.get_ref() {
        file.section(&mut config, name.get_ref(), name.span(), value)?;
    }
    warn_of_doubles(&config, &mut file.warnings);
    Ok((config, file.warnings))
}

fn line_of(text: &str, span: Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A key that does two things is most likely a mistake, and does no harm.
fn warn_of_doubles(config: &Config, warnings: &mut Vec<String>) {
    let mut uses: Vec<(Key, String)> = vec![];
    for (player, (button, keys)) in
        config.players.iter().enumerate().flat_map(|(n, map)| map.iter().map(move |m| (n, m)))
    {
        uses.extend(keys.iter().map(|key| (*key, format!("{} of player {}", button_name(*button), player + 1))));
    }
    for (action, name, ..) in ACTIONS {
        uses.extend(config.keys_of(action).iter().map(|key| (*key, name.to_owned())));
    }
    for (at, (key, first)) in uses.iter().enumerate() {
        if let Some((_, second)) = uses[at + 1..].iter().find(|(other, _)| other == key) {
            warnings.push(format!("the key {key:?} does two things: {first} and {second}"));
        }
    }
}

impl File<'_> {
    fn section(
        &mut self,
        config: &mut Config,
        name: &str,
        span: Range<usize>,
        value: &Value<'_>,
    ) -> Result<(), String> {
        if name == "games" {
            config.games = self.folders(value)?;
            return Ok(());
        }
        if name == "system" {
            config.system = Some(self.folder(value)?);
            return Ok(());
        }
        let known = ["video", "sound", "pace", "network", "keys", "gamepad"].contains(&name);
        let player = name.strip_prefix("player").and_then(|number| number.parse::<usize>().ok());
        let player = player.filter(|number| (1..=PLAYERS).contains(number));
        if !known && player.is_none() {
            self.unknown(name, span);
            return Ok(());
        }
        let DeValue::Table(table) = value.get_ref() else {
            return Err(self.wrong(value, &format!("{name} is a section, [{name}]")));
        };
        for (key, value) in table {
            let done = match (name, player) {
                (_, Some(player)) => self.player(config, player - 1, key.get_ref(), value)?,
                ("video", _) => self.video(config, key.get_ref(), value)?,
                ("sound", _) => self.sound(config, key.get_ref(), value)?,
                ("pace", _) => self.pace(config, key.get_ref(), value)?,
                ("network", _) => self.network(config, key.get_ref(), value)?,
                ("keys", _) => self.keys(config, key.get_ref(), value)?,
                _ => self.gamepad(config, key.get_ref(), value)?,
            };
            if !done {
                self.unknown(&format!("{name}.{}", key.get_ref()), key.span());
            }
        }
        Ok(())
    }

    fn video(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        match key {
            "scale" => config.scale = self.number(value, 1, MAX_SCALE)?,
            "integer" => config.integer = self.switch(value)?,
            "fullscreen" => config.fullscreen = self.switch(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn sound(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        match key {
            "volume" => config.volume = self.number(value, 0, 100)? as u8,
            "mute" => config.mute = self.switch(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn pace(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        match key {
            "fast" => config.fast = self.number(value, 2, MAX_FAST)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn network(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        let ("relay", DeValue::String(text)) = (key, value.get_ref()) else {
            return if key == "relay" { Err(self.wrong(value, "this must be a text")) } else { Ok(false) };
        };
        config.relay = text.parse().map_err(|error: RelayError| self.wrong(value, &error.to_string()))?;
        Ok(true)
    }

    fn player(&mut self, config: &mut Config, player: usize, key: &str, value: &Value<'_>) -> Result<bool, String> {
        let Some(button) = Button::ALL.into_iter().find(|button| button_name(*button) == key) else { return Ok(false) };
        let keys = self.key_list(value)?;
        let map = &mut config.players[player];
        match map.iter_mut().find(|(known, _)| *known == button) {
            Some((_, known)) => *known = keys,
            None => map.push((button, keys)),
        }
        Ok(true)
    }

    fn keys(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        let Some((action, ..)) = ACTIONS.iter().find(|(_, name, ..)| *name == key) else { return Ok(false) };
        let keys = self.key_list(value)?;
        for (known, old) in &mut config.keys {
            if known == action {
                old.clone_from(&keys);
            }
        }
        Ok(true)
    }

    fn gamepad(&mut self, config: &mut Config, key: &str, value: &Value<'_>) -> Result<bool, String> {
        if key == "dead_zone" {
            config.dead_zone = self.number(value, 0, 90)? as u8;
            return Ok(true);
        }
        let Some(button) = Button::ALL.into_iter().find(|button| button_name(*button) == key) else { return Ok(false) };
        let DeValue::String(name) = value.get_ref() else {
            return Err(self.wrong(value, "this must be the name of a place on a gamepad, such as \"south\""));
        };
        let found = Control::ALL.into_iter().find(|control| format!("{control:?}").eq_ignore_ascii_case(name));
        let Some(control) = found else {
            let all = Control::ALL.map(|control| format!("{control:?}").to_lowercase()).join(", ");
            return Err(self.wrong(value, &format!("there is no {name:?} on a gamepad, but: {all}")));
        };
        for (known, old) in &mut config.gamepad {
            if *known == button {
                *old = control;
            }
        }
        Ok(true)
    }

    /// A folder, or several in brackets.
    fn folders(&self, value: &Value<'_>) -> Result<Vec<PathBuf>, String> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| self.folder(value)).collect(),
            _ => Ok(vec![self.folder(value)?]),
        }
    }

    fn folder(&self, value: &Value<'_>) -> Result<PathBuf, String> {
        match value.get_ref() {
            DeValue::String(path) if !path.is_empty() => Ok(PathBuf::from(path.as_ref())),
            _ => Err(self.wrong(value, "this must be the path of a folder in quotes")),
        }
    }

    /// A key, or several in brackets, or none: `[]`.
    fn key_list(&self, value: &Value<'_>) -> Result<Vec<Key>, String> {
        match value.get_ref() {
            DeValue::Array(values) => values.iter().map(|value| self.key(value)).collect(),
            _ => Ok(vec![self.key(value)?]),
        }
    }

    fn key(&self, value: &Value<'_>) -> Result<Key, String> {
        let DeValue::String(name) = value.get_ref() else {
            return Err(self.wrong(value, "this must be the name of a key in quotes, such as \"Z\""));
        };
        Key::named(name).ok_or_else(|| {
            self.wrong(
                value,
                &format!("there is no key {name:?}; keys are letters, digits, signs, Up, Enter, Space, F1, …"),
            )
        })
    }

    fn number(&self, value: &Value<'_>, least: u32, most: u32) -> Result<u32, String> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        fits.ok_or_else(|| self.wrong(value, &format!("this must be a whole number from {least} to {most}")))
    }

    fn switch(&self, value: &Value<'_>) -> Result<bool, String> {
        match value.get_ref() {
            DeValue::Boolean(on) => Ok(*on),
            _ => Err(self.wrong(value, "this must be true or false")),
        }
    }

    fn wrong(&self, value: &Value<'_>, what: &str) -> String {
        format!("line {}: {what}", line_of(self.text, value.span()))
    }

    fn unknown(&mut self, name: &str, span: Range<usize>) {
        self.warnings.push(format!("line {}: nothing is called {name}, so it has no effect", line_of(self.text, span)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert!(wrong("[video]\nscale = 0").starts_with("line 2: this must be a whole number from 1 to 20"));
        assert!(wrong("[video]\n\ninteger = 3").starts_with("line 3: this must be true or false"));
        assert!(wrong("[keys]\npause = \"Hyper\"").starts_with("line 2: there is no key \"Hyper\""));
        assert!(wrong("[gamepad]\na = \"middle\"").starts_with("line 2: there is no \"middle\" on a gamepad"));
        assert!(wrong("video = 3").starts_with("line 1: video is a section"));
        assert!(wrong("[video]\nscale = = 3\n").starts_with("line 2: "), "{}", wrong("[video]\nscale = = 3\n"));
    }

    #[test]
    fn what_is_unknown_is_warned_of() {
        let (config, warnings) = parse("[video]\nscal = 4\n[sond]\nvolume = 3\n[player9]\na = \"B\"").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings.iter().any(|line| line.contains("line 2") && line.contains("video.scal")), "{warnings:?}");
    }

    #[test]
    fn keys_are_one_or_several_or_none() {
        let (config, warnings) = parse("[player1]\na = [\"B\", \"H\"]\nb = []\nstart = \"5\"").unwrap();
        let keys = |button| config.players[0].iter().find(|(known, _)| *known == button).unwrap().1.len();
        assert_eq!((keys(Button::A), keys(Button::B), keys(Button::Start)), (2, 0, 1));
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn folders_are_one_or_several() {
        assert_eq!(parse("games = \"/a\"").unwrap().0.games, [PathBuf::from("/a")]);
        assert_eq!(parse("games = [\"/a\", \"b\"]").unwrap().0.games.len(), 2);
        assert_eq!(parse("system = \"/bios\"").unwrap().0.system, Some("/bios".into()));
        assert!(wrong("system = []").starts_with("line 1: this must be the path of a folder"));
        assert!(wrong("\ngames = [3]").starts_with("line 2: this must be the path of a folder"));
    }

    #[test]
    fn a_key_that_does_two_things_is_warned_of() {
        let (_, warnings) = parse("[player1]\na = \"P\"").unwrap();
        assert_eq!(warnings, ["the key P does two things: a of player 1 and pause"]);
    }
}
