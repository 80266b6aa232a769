//! Gamepads. They can be plugged in at any time; each is assigned to the first player without one. Without a gamepad,
//! or without permission to read it, the keyboard still works.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod native;

use std::sync::{Arc, Mutex, PoisonError};

use coplay::input::{InputWord, MAX_PLAYERS};
use coplay_machines::pad::{Button, PadLayout, StickAxis};

use crate::config::{GamepadControl, UserSettings};
use crate::input_state::{InputState, apply_dead_zone, stick_to_directions};

/// Mapping from gamepads to the input words of players, and the player slots that have a gamepad.
#[derive(Debug)]
pub struct Gamepads {
    input_state: Arc<InputState>,
    map: Vec<(Button, GamepadControl)>,
    dead_zone: i16,
    /// Input mask of each player's pad. At most one gamepad per player is used.
    masks: Vec<InputWord>,
    /// Player slots that have a gamepad.
    taken_slots: Mutex<[bool; MAX_PLAYERS]>,
}

/// Pressed controls and stick positions of a gamepad.
#[derive(Clone, Copy, Debug, Default)]
struct GamepadState {
    /// Pressed controls: one bit per [`GamepadControl`], in declaration order.
    controls: u32,
    /// Positions of the left stick (x, y) and the right stick (x, y). Left and up are negative.
    axes: [i16; 4],
}

impl GamepadState {
    fn set(&mut self, control: GamepadControl, down: bool) {
        let bit = 1 << control as u32;
        if down { self.controls |= bit } else { self.controls &= !bit }
    }
}

impl Gamepads {
    /// Creates the mapping for players with these pads. `input_state` receives their input.
    pub fn new(config: &UserSettings, pads: &[PadLayout], input_state: Arc<InputState>) -> Self {
        let dead_zone = (i32::from(config.dead_zone) * i32::from(i16::MAX) / 100) as i16;
        let masks = pads.iter().map(|pad| pad.mask).collect();
        Self { input_state, map: config.gamepad_map.clone(), dead_zone, masks, taken_slots: Mutex::default() }
    }

    /// Starts detecting and reading gamepads on background threads. Returns a note for the user if gamepads, or one of
    /// them, cannot be used.
    pub fn start(self) -> Option<String> {
        #[cfg(target_os = "linux")]
        return linux::start(Arc::new(self));
        #[cfg(not(target_os = "linux"))]
        return native::start(Arc::new(self));
    }

    /// Assigns the first free player slot to a gamepad; `None` if every player has one.
    fn assign_slot(&self) -> Option<usize> {
        let mut taken = self.taken_slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = taken.iter().take(self.masks.len()).position(|taken| !taken)?;
        taken[slot] = true;
        Some(slot)
    }

    /// Releases the slot and all buttons of a gamepad that was unplugged.
    fn release_slot(&self, slot: usize) {
        self.input_state.set_pad(slot, 0);
        self.taken_slots.lock().unwrap_or_else(PoisonError::into_inner)[slot] = false;
    }

    fn update(&self, slot: usize, state: GamepadState) {
        self.input_state.set_pad(slot, self.input_word(slot, state));
    }

    fn input_word(&self, slot: usize, state: GamepadState) -> InputWord {
        let pressed = self.map.iter().filter(|(_, control)| state.controls >> (*control as u32) & 1 != 0);
        let mut word = pressed.fold(0, |word, (button, _)| word | button.bit());
        for (axis, position) in StickAxis::ALL.into_iter().zip(state.axes) {
            word |= apply_dead_zone(axis, position, self.dead_zone);
        }
        let mask = self.masks.get(slot).copied().unwrap_or(0);
        if mask & (StickAxis::LeftX.mask() | StickAxis::LeftY.mask()) == 0 {
            word |= stick_to_directions(state.axes[0], state.axes[1], self.dead_zone);
        }
        word & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stick_acts_as_dpad_on_machines_without_sticks() {
        let pads = [
            PadLayout::with_buttons(&[Button::A, Button::Left, Button::Right]),
            PadLayout { mask: !0, labels: vec![] },
        ];
        let gamepads = Gamepads::new(&UserSettings::default(), &pads, Arc::default());
        let mut state = GamepadState { axes: [-30_000, 0, 0, 5], ..GamepadState::default() };
        state.set(GamepadControl::East, true);
        state.set(GamepadControl::North, true);
        assert_eq!(gamepads.input_word(0, state), Button::A.bit() | Button::Left.bit());
        assert_eq!(
            gamepads.input_word(1, state),
            Button::A.bit() | Button::X.bit() | StickAxis::LeftX.word_at(-30_000)
        );
        state.set(GamepadControl::East, false);
        assert_eq!(gamepads.input_word(0, state), Button::Left.bit());
    }

    #[test]
    fn gamepad_slots_are_assigned_in_order_and_reused() {
        let gamepads = Gamepads::new(
            &UserSettings::default(),
            &[PadLayout::with_buttons(&[]), PadLayout::with_buttons(&[])],
            Arc::default(),
        );
        assert_eq!((gamepads.assign_slot(), gamepads.assign_slot(), gamepads.assign_slot()), (Some(0), Some(1), None));
        gamepads.release_slot(0);
        assert_eq!(gamepads.assign_slot(), Some(0));
    }
}
