//! Pressed buttons of keyboard and gamepads, merged into one input word per player.

use std::sync::{Mutex, MutexGuard, PoisonError};

use coplay::input::{InputWord, MAX_PLAYERS};
use coplay_machines::pad::{Button, StickAxis};

use crate::config::{ACTIONS, Action, UserSettings};
use crate::key::Key;
use crate::scene::{MenuMove, UiCommand};

/// Pressed buttons of all players. Front ends and gamepads write them; the game samples them when it needs inputs.
#[derive(Debug, Default)]
pub struct InputState {
    players: Mutex<[PlayerInput; MAX_PLAYERS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PlayerInput {
    keys: InputWord,
    pad: InputWord,
    /// Buttons pressed since the last sample, so that a press shorter than a frame counts.
    pressed_since_sample: InputWord,
}

/// Bits of an input word that are buttons. Only buttons are kept until the next sample; a sample has the current stick
/// positions.
const BUTTON_MASK: InputWord = 0xffff;

impl InputState {
    /// Returns the input of each player. Includes buttons that were pressed and released since the last call.
    pub fn sample(&self) -> [InputWord; MAX_PLAYERS] {
        self.lock().each_mut().map(|held| held.keys | held.pad | std::mem::take(&mut held.pressed_since_sample))
    }

    /// Sets the buttons that the held keys of a player press.
    pub fn set_keys(&self, player: usize, word: InputWord) {
        self.set(player, word, |held| &mut held.keys);
    }

    /// Sets the buttons and stick positions of a player's gamepad.
    pub fn set_pad(&self, player: usize, word: InputWord) {
        self.set(player, word, |held| &mut held.pad);
    }

    fn set(&self, player: usize, word: InputWord, source: impl Fn(&mut PlayerInput) -> &mut InputWord) {
        if let Some(held) = self.lock().get_mut(player) {
            held.pressed_since_sample |= word & BUTTON_MASK;
            *source(held) = word;
        }
    }

    fn lock(&self) -> MutexGuard<'_, [PlayerInput; MAX_PLAYERS]> {
        self.players.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Key bindings of the settings, and the keys that are held.
#[derive(Debug)]
pub struct Keyboard {
    button_map: Vec<Vec<(usize, Button)>>,
    action_map: Vec<Option<Action>>,
    held_keys: Vec<bool>,
}

impl Keyboard {
    /// Creates a keyboard with the bindings of the settings.
    pub fn new(config: &UserSettings) -> Self {
        let mut button_map = vec![vec![]; Key::COUNT];
        for (player, map) in config.player_keys.iter().enumerate() {
            for (button, key) in map.iter().flat_map(|(button, keys)| keys.iter().map(move |key| (*button, key))) {
                button_map[key.index()].push((player, button));
            }
        }
        let mut action_map = vec![None; Key::COUNT];
        for (action, ..) in ACTIONS {
            config.keys_of(action).iter().for_each(|key| action_map[key.index()] = Some(action));
        }
        Self { button_map, action_map, held_keys: vec![false; Key::COUNT] }
    }

    /// Handles a key that went down, repeats or went up, and returns its command, if any. `shift` states whether Shift
    /// is held, and `menu` whether a menu is open. In a menu, keys that go down press no buttons; arrows, Enter and
    /// Space move in the menu.
    pub fn on_key(&mut self, input: &InputState, key: Key, down: bool, shift: bool, menu: bool) -> Option<UiCommand> {
        let was_down = std::mem::replace(&mut self.held_keys[key.index()], down);
        let presses_buttons = !menu || !down;
        if presses_buttons && !self.button_map[key.index()].is_empty() {
            self.update_input(input);
        }
        let action = self.action_map[key.index()];
        match action {
            Some(Action::FastForward) if down != was_down => return Some(UiCommand::FastForward(down)),
            _ if !down => return None,
            _ => {}
        }
        // A held key repeats in a menu and for the volume or a dial, but not otherwise.
        if menu && let Some(step) = menu_move(key) {
            return Some(UiCommand::Move(step));
        }
        if was_down && !matches!(action, Some(Action::Increase | Action::Decrease)) {
            return None;
        }
        action_command(action?, shift)
    }

    /// Releases all keys, because the window or terminal has lost the focus. Returns the command that ends a
    /// fast-forward if its key was held.
    pub fn release_all(&mut self, input: &InputState) -> Option<UiCommand> {
        let mut keys = self.action_map.iter().zip(&self.held_keys);
        let is_fast = keys.any(|(action, held)| *held && *action == Some(Action::FastForward));
        self.held_keys.fill(false);
        self.update_input(input);
        is_fast.then_some(UiCommand::FastForward(false))
    }

    fn update_input(&self, input: &InputState) {
        let mut words = [0; crate::config::MAX_LOCAL_PLAYERS];
        for (buttons, _) in self.button_map.iter().zip(&self.held_keys).filter(|(_, held)| **held) {
            buttons.iter().for_each(|(player, button)| words[*player] |= button.bit());
        }
        words.iter().enumerate().for_each(|(player, word)| input.set_keys(player, *word));
    }
}

/// Returns the command of a key while a chat message is typed; `None` for keys without one. Letters arrive as text.
pub fn edit_command(key: Key) -> Option<UiCommand> {
    Some(match key.name() {
        "Enter" => UiCommand::Move(MenuMove::Enter),
        "Escape" => UiCommand::Menu,
        "Backspace" => UiCommand::EraseChar,
        _ => return None,
    })
}

fn menu_move(key: Key) -> Option<MenuMove> {
    Some(match key.name() {
        "Up" => MenuMove::Up,
        "Down" => MenuMove::Down,
        "Left" => MenuMove::Left,
        "Right" => MenuMove::Right,
        "Enter" | "Space" => MenuMove::Enter,
        _ => return None,
    })
}

fn action_command(action: Action, shift: bool) -> Option<UiCommand> {
    Some(match action {
        Action::Help => UiCommand::Help,
        Action::Pause => UiCommand::Pause,
        Action::Menu => UiCommand::Menu,
        Action::FastForward => return None,
        Action::Save => UiCommand::Save,
        Action::Load => UiCommand::Load,
        Action::NextSlot => UiCommand::Slot(if shift { -1 } else { 1 }),
        Action::Reset => UiCommand::Reset,
        Action::Mute => UiCommand::Mute,
        Action::Increase => UiCommand::Increase,
        Action::Decrease => UiCommand::Decrease,
        Action::PreviousDial => UiCommand::SelectDial(-1),
        Action::NextDial => UiCommand::SelectDial(1),
        Action::Graph => UiCommand::Graph,
        Action::Chat => UiCommand::Chat,
        Action::GoOnAlone => UiCommand::GoOnAlone,
        Action::Fullscreen => UiCommand::Fullscreen,
        Action::Quit => UiCommand::Quit,
    })
}

/// Converts a stick position to direction buttons, for a machine without sticks. Each axis presses a button beyond
/// `dead_zone`.
pub fn stick_to_directions(x: i16, y: i16, dead_zone: i16) -> InputWord {
    let pressed = |on: bool, button: Button| if on { button.bit() } else { 0 };
    pressed(x < -dead_zone, Button::Left)
        | pressed(x > dead_zone, Button::Right)
        | pressed(y < -dead_zone, Button::Up)
        | pressed(y > dead_zone, Button::Down)
}

/// Returns the input bits of a stick axis; 0 within the dead zone.
pub fn apply_dead_zone(axis: StickAxis, position: i16, dead_zone: i16) -> InputWord {
    if position.unsigned_abs() > dead_zone.unsigned_abs() { axis.word_at(position) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::from_name(name).unwrap()
    }

    #[test]
    fn keys_press_buttons_of_their_player() {
        let (mut keyboard, input) = (Keyboard::new(&UserSettings::default()), InputState::default());
        for name in ["X", "Right", "I"] {
            assert_eq!(keyboard.on_key(&input, key(name), true, false, false), None);
        }
        assert_eq!(input.sample()[..2], [Button::A.bit() | Button::Right.bit(), Button::Up.bit()]);
        keyboard.on_key(&input, key("X"), false, false, false);
        assert_eq!(input.sample()[0], Button::Right.bit());
        assert_eq!(keyboard.release_all(&input), None);
        assert_eq!(input.sample(), [0; MAX_PLAYERS]);
    }

    #[test]
    fn press_shorter_than_a_frame_is_sampled_once() {
        let (mut keyboard, input) = (Keyboard::new(&UserSettings::default()), InputState::default());
        keyboard.on_key(&input, key("X"), true, false, false);
        keyboard.on_key(&input, key("X"), false, false, false);
        assert_eq!((input.sample()[0], input.sample()[0]), (Button::A.bit(), 0));
    }

    #[test]
    fn actions_fire_once_per_press_and_menu_moves_repeat() {
        let (mut keyboard, input) = (Keyboard::new(&UserSettings::default()), InputState::default());
        assert_eq!(keyboard.on_key(&input, key("F5"), true, false, false), Some(UiCommand::Save));
        assert_eq!(keyboard.on_key(&input, key("F5"), true, false, false), None);
        assert_eq!(keyboard.on_key(&input, key("F6"), true, true, false), Some(UiCommand::Slot(-1)));
        assert_eq!(keyboard.on_key(&input, key("Tab"), true, false, false), Some(UiCommand::FastForward(true)));
        assert_eq!(keyboard.on_key(&input, key("Tab"), true, false, false), None);
        assert_eq!(keyboard.on_key(&input, key("Tab"), false, false, false), Some(UiCommand::FastForward(false)));
        for _ in 0..2 {
            let step = keyboard.on_key(&input, key("Down"), true, false, true);
            assert_eq!(step, Some(UiCommand::Move(MenuMove::Down)));
        }
        assert_eq!(input.sample()[0], 0, "keys that move in a menu press no buttons");
    }

    #[test]
    fn losing_focus_ends_fast_forward() {
        let (mut keyboard, input) = (Keyboard::new(&UserSettings::default()), InputState::default());
        keyboard.on_key(&input, key("Tab"), true, false, false);
        assert_eq!(keyboard.release_all(&input), Some(UiCommand::FastForward(false)));
        assert_eq!(keyboard.release_all(&input), None);
        assert_eq!(keyboard.on_key(&input, key("Tab"), true, false, false), Some(UiCommand::FastForward(true)));
    }

    #[test]
    fn stick_maps_to_directions_beyond_the_dead_zone() {
        assert_eq!(stick_to_directions(-20_000, 9_000, 10_000), Button::Left.bit());
        assert_eq!(stick_to_directions(i16::MIN, i16::MAX, 10_000), Button::Left.bit() | Button::Down.bit());
        assert_eq!(apply_dead_zone(StickAxis::LeftX, -9_000, 10_000), 0);
        assert_eq!(apply_dead_zone(StickAxis::LeftX, i16::MIN, 10_000), StickAxis::LeftX.word_at(i16::MIN));
    }
}
