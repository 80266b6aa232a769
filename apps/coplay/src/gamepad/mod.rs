//! Gamepads: found as they are plugged in, the first for the first player. Without any, or without the right to read them, keys
//! still play.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod native;

use std::sync::{Arc, Mutex, PoisonError};

use coplay::input::{InputWord, MAX_PLAYERS};
use coplay_machines::pad::{Button, Pad, StickAxis};

use crate::config::{Config, GamepadControl};
use crate::input_state::{InputState, apply_dead_zone, stick_to_directions};

/// What is needed to turn what gamepads do into words.
#[derive(Debug)]
pub struct Gamepads {
    input_state: Arc<InputState>,
    map: Vec<(Button, GamepadControl)>,
    dead_zone: i16,
    /// What each player's machine has.
    masks: Vec<InputWord>,
    /// Seats that have a gamepad.
    taken_slots: Mutex<[bool; MAX_PLAYERS]>,
}

/// What one gamepad does at the moment.
#[derive(Clone, Copy, Debug, Default)]
struct GamepadState {
    /// One bit per [`GamepadControl`], in their order.
    controls: u32,
    axes: [i16; 4],
}

impl GamepadState {
    fn set(&mut self, control: GamepadControl, down: bool) {
        let bit = 1 << control as u32;
        if down { self.controls |= bit } else { self.controls &= !bit }
    }
}

impl Gamepads {
    /// For these pads of a machine.
    pub fn new(config: &Config, pads: &[Pad], hands: Arc<InputState>) -> Self {
        let dead_zone = (i32::from(config.dead_zone) * i32::from(i16::MAX) / 100) as i16;
        let masks = pads.iter().map(|pad| pad.mask).collect();
        Self { input_state: hands, map: config.gamepad_map.clone(), dead_zone, masks, taken_slots: Mutex::default() }
    }

    /// Begins to look for gamepads, on threads of their own. Says what is missing, if something is.
    pub fn start(self) -> Option<String> {
        #[cfg(target_os = "linux")]
        return linux::start(Arc::new(self));
        #[cfg(not(target_os = "linux"))]
        return native::start(Arc::new(self));
    }

    /// A seat for one more gamepad.
    fn assign_slot(&self) -> Option<usize> {
        let mut taken = self.taken_slots.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = taken.iter().take(self.masks.len()).position(|taken| !taken)?;
        taken[seat] = true;
        Some(seat)
    }

    /// A gamepad is gone.
    fn release_slot(&self, seat: usize) {
        self.input_state.set_pad(seat, 0);
        self.taken_slots.lock().unwrap_or_else(PoisonError::into_inner)[seat] = false;
    }

    fn update(&self, seat: usize, posture: GamepadState) {
        self.input_state.set_pad(seat, self.input_word(seat, posture));
    }

    fn input_word(&self, seat: usize, posture: GamepadState) -> InputWord {
        let pressed = self.map.iter().filter(|(_, control)| posture.controls >> (*control as u32) & 1 != 0);
        let mut word = pressed.fold(0, |word, (button, _)| word | button.bit());
        for (axis, position) in StickAxis::ALL.into_iter().zip(posture.axes) {
            word |= apply_dead_zone(axis, position, self.dead_zone);
        }
        let mask = self.masks.get(seat).copied().unwrap_or(0);
        if mask & (StickAxis::LeftX.mask() | StickAxis::LeftY.mask()) == 0 {
            word |= stick_to_directions(posture.axes[0], posture.axes[1], self.dead_zone);
        }
        word & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stick_acts_as_dpad_on_machines_without_sticks() {
        let pads = [Pad::with_buttons(&[Button::A, Button::Left, Button::Right]), Pad { mask: !0, labels: vec![] }];
        let gamepads = Gamepads::new(&Config::default(), &pads, Arc::default());
        let mut posture = GamepadState { axes: [-30_000, 0, 0, 5], ..GamepadState::default() };
        posture.set(GamepadControl::East, true);
        posture.set(GamepadControl::North, true);
        assert_eq!(gamepads.input_word(0, posture), Button::A.bit() | Button::Left.bit());
        assert_eq!(
            gamepads.input_word(1, posture),
            Button::A.bit() | Button::X.bit() | StickAxis::LeftX.word_at(-30_000)
        );
        posture.set(GamepadControl::East, false);
        assert_eq!(gamepads.input_word(0, posture), Button::Left.bit());
    }

    #[test]
    fn gamepad_slots_are_assigned_in_order_and_reused() {
        let gamepads =
            Gamepads::new(&Config::default(), &[Pad::with_buttons(&[]), Pad::with_buttons(&[])], Arc::default());
        assert_eq!((gamepads.assign_slot(), gamepads.assign_slot(), gamepads.assign_slot()), (Some(0), Some(1), None));
        gamepads.release_slot(0);
        assert_eq!(gamepads.assign_slot(), Some(0));
    }
}
