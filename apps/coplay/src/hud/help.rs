//! The keys, as they are shown.

use coplay_machines::pad::{Button, Pad};

use super::HudCapabilities;
use crate::config::{ACTIONS, Action, Config, button_name};
use crate::key::Key;
use crate::scene::Overlay;

/// Buttons in a row.
const BUTTONS_PER_ROW: usize = 4;
/// They are told together.
const DIRECTIONS: [Button; 4] = [Button::Up, Button::Down, Button::Left, Button::Right];

/// The keys of the first two players, and those of the program that do something here.
pub(super) fn help_overlay(config: &Config, can: HudCapabilities, pads: &[Pad]) -> Overlay {
    let mut rows = vec![];
    for (player, (map, pad)) in config.player_keys.iter().zip(pads).enumerate().take(2) {
        for (row, part) in button_help(map, pad).chunks(BUTTONS_PER_ROW).enumerate() {
            let who = if row == 0 { format!("Player {}", player + 1) } else { String::new() };
            rows.push((who, part.join("   ")));
        }
    }
    for (action, _, _, what) in ACTIONS.into_iter().filter(|(action, ..)| is_available(*action, can)) {
        let what = match action {
            Action::Increase if can.dials => "more of the chosen dial",
            Action::Decrease if can.dials => "less of the chosen dial",
            Action::Increase => "louder",
            Action::Decrease => "less loud",
            Action::Pause if can.shared_game => "stand still, or go on, for all",
            Action::Save if can.shared_game => "keep this moment, for all",
            Action::Load if can.shared_game => "go back to the moment that was kept, for all",
            Action::Reset if can.shared_game => "switch the machine off and on, for all",
            _ => what,
        };
        rows.push((key_labels(config.keys_of(action)), what.into()));
    }
    Overlay { title: "Keys".into(), rows, selected: None, footer: "`coplay config` shows how to change them".into() }
}

/// What a player presses with which keys.
fn button_help(map: &[(Button, Vec<Key>)], pad: &Pad) -> Vec<String> {
    let keys = |button| map.iter().find(|(known, _)| *known == button).map_or(&[][..], |(_, keys)| keys);
    let has = |button: &Button| button.is_in(pad.mask) && !keys(*button).is_empty();
    let ways: Vec<String> = DIRECTIONS.into_iter().filter(has).map(|button| key_labels(keys(button))).collect();
    let ways = (!ways.is_empty()).then(|| format!("Move {}", ways.join(" ")));
    let others = pad.buttons().filter(|button| has(button) && !DIRECTIONS.contains(button)).map(|button| {
        let label = pad.labels.iter().find(|(known, _)| *known == button);
        let name = label.map_or_else(|| capitalized(&button_name(button)), |(_, label)| label.clone());
        format!("{name}: {}", key_labels(keys(button)))
    });
    ways.into_iter().chain(others).collect()
}

fn is_available(action: Action, can: HudCapabilities) -> bool {
    match action {
        Action::Pause => can.pause || can.shared_game,
        Action::FastForward => can.fast_forward,
        Action::Save | Action::Load => can.slots || can.shared_game,
        Action::NextSlot => can.slots,
        Action::Reset => can.reset || can.shared_game,
        Action::Graph => can.graph || can.shared_game,
        Action::Chat | Action::GoOnAlone => can.shared_game,
        Action::Mute | Action::Increase | Action::Decrease => can.dials || !can.no_sound,
        Action::PreviousDial | Action::NextDial => can.dials,
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
        let mut pad = Pad::with_buttons(&[Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B]);
        pad.labels.push((Button::A, "Jump".into()));
        let rows = help_overlay(&Config::default(), HudCapabilities::default(), &[pad]).rows;
        assert_eq!(rows[0], ("Player 1".into(), "Move ↑ ↓ ← →   B: Z   Jump: X".into()));
        let all: String = rows.iter().map(|(_, what)| what.as_str()).collect();
        assert!(all.contains("louder") && !all.contains("dial") && !all.contains("slot"), "{all}");
    }
}
