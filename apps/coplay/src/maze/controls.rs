//! Mapping from pad buttons to the controls of an avatar.

use coplay::input::InputWord;
use coplay_machines::pad::{Button, PadLayout};
use coplay_maze::Controls;

use crate::config::UserSettings;

/// Returns the pad layout of a maze player: four directions and two fire buttons.
pub fn maze_pad() -> PadLayout {
    let mut pad =
        PadLayout::with_buttons(&[Button::Up, Button::Down, Button::Left, Button::Right, Button::A, Button::B]);
    pad.labels.extend([Button::A, Button::B].map(|button| (button, "Fire".into())));
    pad
}

/// Returns the controls for an input word: up and down walk, left and right turn, A and B fire.
pub fn controls_from_word(pressed: InputWord) -> Controls {
    let is_pressed = |button: Button| button.is_in(pressed);
    Controls {
        forward: is_pressed(Button::Up),
        backward: is_pressed(Button::Down),
        left: is_pressed(Button::Left),
        right: is_pressed(Button::Right),
        fire: is_pressed(Button::A) || is_pressed(Button::B),
    }
}

/// Returns one line with the first player's keys to walk, turn and fire, which is shown at the start.
pub fn key_help(config: &UserSettings) -> String {
    let first = |button: Button| {
        let keys = config.player_keys[0].iter().find(|(known, _)| *known == button).map(|(_, keys)| keys);
        keys.and_then(|keys| keys.first()).map_or_else(|| "–".into(), |key| key.label())
    };
    let [up, down, left, right, fire] = [Button::Up, Button::Down, Button::Left, Button::Right, Button::A].map(first);
    format!("{up} {down} walk   {left} {right} turn   {fire} fire")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input_state::{InputState, Keyboard};
    use crate::key::Key;

    fn controls_for_keys(keys: &[&str]) -> Controls {
        let (mut keyboard, input_state) = (Keyboard::new(&UserSettings::default()), InputState::default());
        for name in keys {
            keyboard.on_key(&input_state, Key::from_name(name).unwrap(), true, false, false);
        }
        controls_from_word(input_state.sample()[0])
    }

    #[test]
    fn key_help_lists_the_default_keys() {
        assert_eq!(key_help(&UserSettings::default()), "↑ ↓ walk   ← → turn   X fire");
    }

    #[test]
    fn default_keys_walk_turn_and_fire() {
        let still = Controls::default();
        assert_eq!(controls_for_keys(&[]), still);
        assert_eq!(controls_for_keys(&["Up", "Left"]), Controls { forward: true, left: true, ..still });
        assert_eq!(controls_for_keys(&["Down", "Right"]), Controls { backward: true, right: true, ..still });
        for fire in ["X", "Z"] {
            assert_eq!(controls_for_keys(&[fire]), Controls { fire: true, ..still });
        }
        assert_eq!(controls_for_keys(&["Enter", "S"]), still, "other buttons have no function");
    }
}
