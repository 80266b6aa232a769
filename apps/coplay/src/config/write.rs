//! Formats settings as a TOML file with comments.

use std::fmt::Write;
use std::path::Path;

use super::{ACTIONS, MAX_FAST_FORWARD, MAX_SCALE, UserSettings, button_name};
use crate::key::Key;

pub(super) fn to_toml(config: &UserSettings, path: Option<&Path>) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    _ = write_toml(config, path, &mut text);
    text
}

fn write_toml(config: &UserSettings, path: Option<&Path>, out: &mut String) -> std::fmt::Result {
    match path {
        Some(path) if path.exists() => writeln!(out, "# Settings of coplay, read from {}", path.display())?,
        Some(path) => writeln!(
            out,
            "# Default settings of coplay. To change a setting, write its section and its line into {}",
            path.display()
        )?,
        None => writeln!(out, "# Settings of coplay.")?,
    }
    writeln!(out, "\n# Folders that `coplay join` and `coplay watch` search for the game of the host.")?;
    let folders: Vec<String> = config.game_dirs.iter().map(|folder| quoted(&folder.to_string_lossy())).collect();
    writeln!(out, "games = [{}]", folders.join(", "))?;
    writeln!(out, "\n# Folder with the BIOS images that some cores need.")?;
    match &config.system_dir {
        Some(folder) => writeln!(out, "system = {}", quoted(&folder.to_string_lossy()))?,
        None => writeln!(out, "# system = \"/path/of/the/folder\"")?,
    }
    writeln!(out, "\n[video]")?;
    write_setting(
        out,
        "scale",
        config.scale,
        &format!("initial scale of the picture, 1 to {MAX_SCALE}; in the demo one less, in a maze two thirds"),
    )?;
    write_setting(
        out,
        "integer",
        config.integer_scaling,
        "scale the height of pictures by whole factors only, unless they are larger than the window",
    )?;
    write_setting(out, "fullscreen", config.fullscreen, "start in full screen")?;
    writeln!(out, "\n[sound]")?;
    write_setting(out, "volume", config.volume, "initial volume in percent, 0 to 100")?;
    write_setting(out, "mute", config.mute, "start with the sound off")?;
    writeln!(out, "\n[pace]")?;
    write_setting(
        out,
        "fast",
        config.fast_forward,
        &format!("speed factor while the fast-forward key is held, 2 to {MAX_FAST_FORWARD}"),
    )?;
    writeln!(out, "\n[network]")?;
    let relay = quoted(&config.relay.to_string());
    write_setting(
        out,
        "relay",
        relay,
        "relay of games that you host, for peers without a direct connection: \"none\", \"default\" or a URL",
    )?;
    writeln!(out, "\n# Keys of the program: one key, a list of keys in brackets, or [] for no key.\n[keys]")?;
    for (action, name, _, description) in ACTIONS {
        write_setting(out, name, key_list(config.keys_of(action)), description)?;
    }
    for (player, map) in config.player_keys.iter().enumerate() {
        writeln!(out, "\n[player{}]", player + 1)?;
        // A button without keys is written, too: without its line it would have its default key.
        for (button, keys) in map {
            writeln!(out, "{} = {}", button_name(*button), key_list(keys))?;
        }
        if map.iter().all(|(_, keys)| keys.is_empty()) {
            writeln!(out, "# no keys: use a gamepad, or add lines such as: a = \"V\"")?;
        }
    }
    writeln!(
        out,
        "\n# Gamepad control of each button, by position: south is the lowest of the four buttons on the right.\n[gamepad]"
    )?;
    for (button, control) in &config.gamepad_map {
        writeln!(out, "{} = \"{}\"", button_name(*button), format!("{control:?}").to_lowercase())?;
    }
    write_setting(
        out,
        "dead_zone",
        config.dead_zone,
        "stick deflection up to which the stick counts as at rest, in percent, 0 to 90",
    )
}

/// Quotes a text as a TOML string.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn write_setting(out: &mut String, name: &str, value: impl std::fmt::Display, comment: &str) -> std::fmt::Result {
    let setting = format!("{name} = {value}");
    writeln!(out, "{setting:<32} # {comment}")
}

fn key_list(keys: &[Key]) -> String {
    let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name())).collect();
    match &names[..] {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}
