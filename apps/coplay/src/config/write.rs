//! Shows settings as the file that they could be read from.

use std::fmt::Write;
use std::path::Path;

use super::{ACTIONS, Config, MAX_FAST_FORWARD, MAX_SCALE, button_name};
use crate::key::Key;

pub(super) fn to_toml(config: &Config, path: Option<&Path>) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    _ = write_toml(config, path, &mut text);
    text
}

fn write_toml(config: &Config, path: Option<&Path>, out: &mut String) -> std::fmt::Result {
    match path {
        Some(path) if path.exists() => writeln!(out, "# Settings of coplay, as they are in {}", path.display())?,
        Some(path) => {
            writeln!(out, "# Settings of coplay, as they come. To change some, put them into {}", path.display())?
        }
        None => writeln!(out, "# Settings of coplay.")?,
    }
    writeln!(out, "\n# Folders in which `coplay join` and `coplay watch` look for the game that is played there.")?;
    let folders: Vec<String> = config.game_dirs.iter().map(|folder| quoted(&folder.to_string_lossy())).collect();
    writeln!(out, "games = [{}]", folders.join(", "))?;
    writeln!(out, "\n# The folder with the BIOS images that some cores need.")?;
    match &config.system_dir {
        Some(folder) => writeln!(out, "system = {}", quoted(&folder.to_string_lossy()))?,
        None => writeln!(out, "# system = \"/path/of/the/folder\"")?,
    }
    writeln!(out, "\n[video]")?;
    write_setting(
        out,
        "scale",
        config.scale,
        &format!("how many times larger than the picture a window is at first, 1 to {MAX_SCALE}"),
    )?;
    write_setting(
        out,
        "integer",
        config.integer_scaling,
        "whether pictures grow by whole steps only, so that all pixels are equally high",
    )?;
    write_setting(out, "fullscreen", config.fullscreen, "whether to begin with the whole screen")?;
    writeln!(out, "\n[sound]")?;
    write_setting(out, "volume", config.volume, "in percent")?;
    write_setting(out, "mute", config.mute, "no sound")?;
    writeln!(out, "\n[pace]")?;
    write_setting(
        out,
        "fast",
        config.fast_forward,
        &format!("how many times faster it goes while that key is held, 2 to {MAX_FAST_FORWARD}"),
    )?;
    writeln!(out, "\n[network]")?;
    let relay = quoted(&config.relay.to_string());
    write_setting(
        out,
        "relay",
        relay,
        "helps where peers find no way to each other: \"none\", \"default\", or an address",
    )?;
    writeln!(out, "\n# Keys of the program: one, or several in brackets, or none: [].\n[keys]")?;
    for (action, name, _, what) in ACTIONS {
        write_setting(out, name, key_list(config.keys_of(action)), what)?;
    }
    for (player, map) in config.player_keys.iter().enumerate() {
        writeln!(out, "\n[player{}]", player + 1)?;
        // What has no key is written down, too: without a line it would have the one that it comes with.
        for (button, found) in map {
            writeln!(out, "{} = {}", button_name(*button), key_list(found))?;
        }
        if map.iter().all(|(_, keys)| keys.is_empty()) {
            writeln!(out, "# no keys: a gamepad, or such lines as: a = \"X\"")?;
        }
    }
    writeln!(
        out,
        "\n# What on a gamepad presses which button, by place: south is the lowest of the four on the right.\n[gamepad]"
    )?;
    for (button, control) in &config.gamepad_map {
        writeln!(out, "{} = \"{}\"", button_name(*button), format!("{control:?}").to_lowercase())?;
    }
    write_setting(out, "dead_zone", config.dead_zone, "how far a stick must be moved to count, in percent")
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn write_setting(out: &mut String, name: &str, value: impl std::fmt::Display, what: &str) -> std::fmt::Result {
    let setting = format!("{name} = {value}");
    writeln!(out, "{setting:<32} # {what}")
}

fn key_list(keys: &[Key]) -> String {
    let names: Vec<String> = keys.iter().map(|key| format!("{:?}", key.name())).collect();
    match &names[..] {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}
