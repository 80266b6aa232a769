//! Help panel: lists the keys of players and program.

use coplay_machines::pad::{Button, PadLayout};

use super::HudCapabilities;
use crate::config::{ACTIONS, Action, UserSettings, button_name};
use crate::key::Key;
use crate::scene::Overlay;

/// Number of entries per row of the panel. An entry is one button, or "Move" with all directions.
const BUTTONS_PER_ROW: usize = 4;
/// Buttons that share one "Move" entry.
const DIRECTIONS: [Button; 4] = [Button::Up, Button::Down, Button::Left, Button::Right];

/// Builds the panel: the keys of the first two players, and the program keys that have a function in this game.
pub(super) fn help_overlay(config: &UserSettings, capabilities: HudCapabilities, pads: &[PadLayout]) -> Overlay {
    let mut rows = vec![];
    for (player, (map, pad)) in config.player_keys.iter().zip(pads).enumerate().take(2) {
        for (row, part) in button_help(map, pad).chunks(BUTTONS_PER_ROW).enumerate() {
            let name = if row == 0 { format!("Player {}", player + 1) } else { String::new() };
            rows.push((name, part.join("   ")));
        }
    }
    for (action, _, _, description) in ACTIONS.into_iter().filter(|(action, ..)| is_available(*action, capabilities)) {
        let description = match action {
            Action::Increase if capabilities.dials => "increase the selected dial",
            Action::Decrease if capabilities.dials => "decrease the selected dial",
            Action::Increase => "raise the volume",
            Action::Decrease => "lower the volume",
            Action::Pause if capabilities.shared_game => "pause or resume, for all players",
            Action::Save if capabilities.shared_game => "save the state, for all players",
            Action::Load if capabilities.shared_game => "load the saved state, for all players",
            Action::Reset if capabilities.shared_game => "reset the machine, for all players",
            Action::Save => "save the state to the selected slot",
            Action::Load => "load the state from the selected slot",
            _ => description,
        };
        rows.push((key_labels(config.keys_of(action)), description.into()));
    }
    Overlay {
        title: "Keys".into(),
        rows,
        selected: None,
        footer: "`coplay config` shows all keys and the file to change them in".into(),
    }
}

/// Returns a text for each button of the pad that has keys: the name of the button and its keys. The directions share
/// one text.
fn button_help(map: &[(Button, Vec<Key>)], pad: &PadLayout) -> Vec<String> {
    let keys = |button| map.iter().find(|(known, _)| *known == button).map_or(&[][..], |(_, keys)| keys);
    let has = |button: &Button| button.is_in(pad.mask) && !keys(*button).is_empty();
    let directions: Vec<String> = DIRECTIONS.into_iter().filter(has).map(|button| key_labels(keys(button))).collect();
    let directions = (!directions.is_empty()).then(|| format!("Move {}", directions.join(" ")));
    let others = pad.buttons().filter(|button| has(button) && !DIRECTIONS.contains(button)).map(|button| {
        let label = pad.labels.iter().find(|(known, _)| *known == button);
        let name = label.map_or_else(|| capitalized(&button_name(button)), |(_, label)| label.clone());
        format!("{name}: {}", key_labels(keys(button)))
    });
    directions.into_iter().chain(others).collect()
}

fn is_available(action: Action, capabilities: HudCapabilities) -> bool {
    // A spectator of a shared game cannot control its machine.
    let is_shared_player = capabilities.shared_game && capabilities.reset;
    match action {
        Action::Pause => capabilities.pause || is_shared_player,
        Action::FastForward => capabilities.fast_forward,
        Action::Save | Action::Load => capabilities.slots || capabilities.shared_slot,
        Action::NextSlot => capabilities.slots,
        Action::Reset => capabilities.reset,
        Action::Graph => capabilities.graph || capabilities.shared_game,
        Action::Chat => capabilities.shared_game,
        Action::GoOnAlone => is_shared_player,
        Action::Mute | Action::Increase | Action::Decrease => capabilities.dials || !capabilities.no_sound,
        Action::PreviousDial | Action::NextDial => capabilities.dials,
        _ => true,
    }
}

fn key_labels(keys: &[Key]) -> String {
    keys.iter().map(|key| key.label()).collect::<Vec<_>>().join(" or ")
}

fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_share_one_entry_and_missing_buttons_are_omitted() {
        let mut pad =
            PadLayout::with_buttons(&[Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B]);
        pad.labels.push((Button::A, "Jump".into()));
        let rows = help_overlay(&UserSettings::default(), HudCapabilities::default(), &[pad]).rows;
        assert_eq!(rows[0], ("Player 1".into(), "Move ↑ ↓ ← →   B: Z   Jump: X".into()));
        let all: String = rows.iter().map(|(_, description)| description.as_str()).collect();
        assert!(all.contains("raise the volume") && !all.contains("dial") && !all.contains("slot"), "{all}");
    }

    #[test]
    fn a_shared_game_without_exact_save_states_offers_no_saved_state() {
        let descriptions = |shared_slot| {
            let capabilities =
                HudCapabilities { shared_game: true, reset: true, shared_slot, ..HudCapabilities::default() };
            let rows = help_overlay(&UserSettings::default(), capabilities, &[]).rows;
            rows.into_iter().map(|(_, description)| description).collect::<Vec<_>>().join("; ")
        };
        assert!(descriptions(true).contains("save the state, for all players"));
        assert!(!descriptions(false).contains("save"), "{}", descriptions(false));
        assert!(descriptions(false).contains("reset the machine, for all players"));
    }
}
