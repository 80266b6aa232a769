//! Gamepads on systems whose own libraries are always there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gilrs::{Axis as Stick, Button as Place, EventType, Gilrs};

use super::{Gamepads, Posture};
use crate::config::Control;

/// How long to wait for something to happen.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn start(gamepads: Arc<Gamepads>) -> Option<String> {
    let mut gilrs = match Gilrs::new() {
        Ok(gilrs) => gilrs,
        Err(error) => return Some(format!("gamepads cannot be used: {error}")),
    };
    let mut seated = BTreeMap::new();
    let run = move || {
        loop {
            let Some(event) = gilrs.next_event_blocking(Some(EVENT_TIMEOUT)) else { continue };
            let id = usize::from(event.id);
            if event.event == EventType::Disconnected {
                if let Some((seat, _)) = seated.remove(&id) {
                    gamepads.stand(seat);
                }
                continue;
            }
            if !seated.contains_key(&id) {
                let Some(seat) = gamepads.sit() else { continue };
                seated.insert(id, (seat, Posture::default()));
            }
            if let Some((seat, posture)) = seated.get_mut(&id) {
                on_event(posture, event.event);
                gamepads.press(*seat, *posture);
            }
        }
    };
    std::thread::Builder::new().name("gamepads".into()).spawn(run).err().map(|error| error.to_string())
}

fn on_event(posture: &mut Posture, event: EventType) {
    match event {
        EventType::ButtonPressed(place, _) => {
            if let Some(control) = button_control(place) {
                posture.set(control, true);
            }
        }
        EventType::ButtonReleased(place, _) => {
            if let Some(control) = button_control(place) {
                posture.set(control, false);
            }
        }
        EventType::AxisChanged(stick, value, _) => {
            let position = (value.clamp(-1.0, 1.0) * 32_767.0) as i16;
            match stick {
                Stick::LeftStickX => posture.axes[0] = position,
                // Up is negative on our pads and positive here.
                Stick::LeftStickY => posture.axes[1] = -position,
                Stick::RightStickX => posture.axes[2] = position,
                Stick::RightStickY => posture.axes[3] = -position,
                _ => {}
            }
        }
        _ => {}
    }
}

fn button_control(place: Place) -> Option<Control> {
    Some(match place {
        Place::South => Control::South,
        Place::East => Control::East,
        Place::North => Control::North,
        Place::West => Control::West,
        Place::Select => Control::Select,
        Place::Start => Control::Start,
        Place::DPadUp => Control::Up,
        Place::DPadDown => Control::Down,
        Place::DPadLeft => Control::Left,
        Place::DPadRight => Control::Right,
        Place::LeftTrigger => Control::L,
        Place::RightTrigger => Control::R,
        Place::LeftTrigger2 => Control::L2,
        Place::RightTrigger2 => Control::R2,
        Place::LeftThumb => Control::L3,
        Place::RightThumb => Control::R3,
        _ => return None,
    })
}
