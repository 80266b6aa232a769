//! The keys, as they are shown.

use coplay_machines::pad::{Button, Pad};

use super::Can;
use crate::config::{ACTIONS, Action, Config, button_name};
use crate::key::Key;
use crate::scene::Overlay;

/// Buttons in a row.
const IN_A_ROW: usize = 4;
/// They are told together.
const DIRECTIONS: [Button; 4] = [Button::Up, Button::Down, Button::Left, Button::Right];

/// The keys of the first two players, and those of the program that do something here.
pub(super) fn help(config: &Config, can: Can, pads: &[Pad]) -> Overlay {
    let mut rows = vec![];
    for (player, (map, pad)) in config.players.iter().zip(pads).enumerate().take(2) {
        for (row, part) in presses(map, pad).chunks(IN_A_ROW).enumerate() {
            let who = if row == 0 { format!("Player {}", player + 1) } else { String::new() };
            rows.push((who, part.join("   ")));
        }
    }
    for (action, _, _, what) in ACTIONS.into_iter().filter(|(action, ..)| is_useful(*action, can)) {
        let what = match action {
            Action::More if can.dials => "more of the chosen dial",
            Action::Less if can.dials => "less of the chosen dial",
            Action::More => "louder",
            Action::Less => "less loud",
            Action::Pause if can.share => "stand still, or go on, for all",
            Action::Save if can.share => "keep this moment, for all",
            Action::Load if can.share => "go back to the moment that was kept, for all",
            Action::Reset if can.share => "switch the machine off and on, for all",
            _ => what,
        };
        rows.push((labels(config.keys_of(action)), what.into()));
    }
    Overlay { title: "Keys".into(), rows, chosen: None, foot: "`coplay config` shows how to change them".into() }
}

/// What a player presses with which keys.
fn presses(map: &[(Button, Vec<Key>)], pad: &Pad) -> Vec<String> {
    let keys = |button| map.iter().find(|(known, _)| *known == button).map_or(&[][..], |(_, keys)| keys);
    let has = |button: &Button| button.is_in(pad.mask) && !keys(*button).is_empty();
    let ways: Vec<String> = DIRECTIONS.into_iter().filter(has).map(|button| labels(keys(button))).collect();
    let ways = (!ways.is_empty()).then(|| format!("Move {}", ways.join(" ")));
    let others = pad.buttons().filter(|button| has(button) && !DIRECTIONS.contains(button)).map(|button| {
        let label = pad.labels.iter().find(|(known, _)| *known == button);
        let name = label.map_or_else(|| title(&button_name(button)), |(_, label)| label.clone());
        format!("{name}: {}", labels(keys(button)))
    });
    ways.into_iter().chain(others).collect()
}

fn is_useful(action: Action, can: Can) -> bool {
    match action {
        Action::Pause => can.pause || can.share,
        Action::Fast => can.fast,
        Action::Save | Action::Load => can.slots || can.share,
        Action::NextSlot => can.slots,
        Action::Reset => can.reset || can.share,
        Action::Graph => can.graph || can.share,
        Action::Chat | Action::Alone => can.share,
        Action::Mute | Action::More | Action::Less => can.dials || !can.silent,
        Action::PreviousDial | Action::NextDial => can.dials,
        _ => true,
    }
}

fn labels(keys: &[Key]) -> String {
    keys.iter().map(|key| key.label()).collect::<Vec<_>>().join(" or ")
}

fn title(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_told_together_and_what_is_not_there_not_at_all() {
        let mut pad = Pad::with_buttons(&[Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B]);
        pad.labels.push((Button::A, "Jump".into()));
        let rows = help(&Config::default(), Can::default(), &[pad]).rows;
        assert_eq!(rows[0], ("Player 1".into(), "Move ↑ ↓ ← →   B: Z   Jump: X".into()));
        let all: String = rows.iter().map(|(_, what)| what.as_str()).collect();
        assert!(all.contains("louder") && !all.contains("dial") && !all.contains("slot"), "{all}");
    }
}
