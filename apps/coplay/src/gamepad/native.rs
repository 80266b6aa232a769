//! Gamepads on systems other than Linux, read by gilrs. The gamepad libraries of these systems are always installed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gilrs::{Axis as GilrsAxis, Button as GilrsButton, EventType, Gilrs};

use super::{GamepadState, Gamepads};
use crate::config::GamepadControl;

/// Longest wait of the thread for an event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn start(gamepads: Arc<Gamepads>) -> Option<String> {
    let mut gilrs = match Gilrs::new() {
        Ok(gilrs) => gilrs,
        Err(error) => return Some(format!("gamepads are not available: {error}")),
    };
    let mut slots = BTreeMap::new();
    let run = move || {
        loop {
            let Some(event) = gilrs.next_event_blocking(Some(EVENT_TIMEOUT)) else { continue };
            let id = usize::from(event.id);
            if event.event == EventType::Disconnected {
                if let Some((slot, _)) = slots.remove(&id) {
                    gamepads.release_slot(slot);
                }
                continue;
            }
            if !slots.contains_key(&id) {
                let Some(slot) = gamepads.assign_slot() else { continue };
                slots.insert(id, (slot, GamepadState::default()));
            }
            if let Some((slot, state)) = slots.get_mut(&id) {
                on_event(state, event.event);
                gamepads.update(*slot, *state);
            }
        }
    };
    let started = std::thread::Builder::new().name("gamepads".into()).spawn(run);
    started.err().map(|error| format!("gamepads are not available: {error}"))
}

fn on_event(state: &mut GamepadState, event: EventType) {
    match event {
        EventType::ButtonPressed(button, _) => {
            if let Some(control) = button_control(button) {
                state.set(control, true);
            }
        }
        EventType::ButtonReleased(button, _) => {
            if let Some(control) = button_control(button) {
                state.set(control, false);
            }
        }
        EventType::AxisChanged(axis, value, _) => {
            let position = (value.clamp(-1.0, 1.0) * 32_767.0) as i16;
            match axis {
                GilrsAxis::LeftStickX => state.axes[0] = position,
                // Up is negative in `GamepadState` and positive in gilrs.
                GilrsAxis::LeftStickY => state.axes[1] = -position,
                GilrsAxis::RightStickX => state.axes[2] = position,
                GilrsAxis::RightStickY => state.axes[3] = -position,
                _ => {}
            }
        }
        _ => {}
    }
}

fn button_control(button: GilrsButton) -> Option<GamepadControl> {
    Some(match button {
        GilrsButton::South => GamepadControl::South,
        GilrsButton::East => GamepadControl::East,
        GilrsButton::North => GamepadControl::North,
        GilrsButton::West => GamepadControl::West,
        GilrsButton::Select => GamepadControl::Select,
        GilrsButton::Start => GamepadControl::Start,
        GilrsButton::DPadUp => GamepadControl::Up,
        GilrsButton::DPadDown => GamepadControl::Down,
        GilrsButton::DPadLeft => GamepadControl::Left,
        GilrsButton::DPadRight => GamepadControl::Right,
        GilrsButton::LeftTrigger => GamepadControl::L,
        GilrsButton::RightTrigger => GamepadControl::R,
        GilrsButton::LeftTrigger2 => GamepadControl::L2,
        GilrsButton::RightTrigger2 => GamepadControl::R2,
        GilrsButton::LeftThumb => GamepadControl::L3,
        GilrsButton::RightThumb => GamepadControl::R3,
        _ => return None,
    })
}
