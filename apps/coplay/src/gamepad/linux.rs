//! Gamepads on Linux: events from `/dev/input`, without libudev.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evdev::{AbsoluteAxisCode as Abs, Device, EventSummary, KeyCode as Code};

use super::{Gamepads, Posture};
use crate::config::Control;

/// How often new gamepads are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Devices that somebody reads already.
type Known = Arc<Mutex<BTreeSet<PathBuf>>>;

pub(super) fn start(gamepads: Arc<Gamepads>) -> Option<String> {
    let missing = unreadable();
    let known = Known::default();
    let look = move || {
        loop {
            look(&gamepads, &known);
            std::thread::sleep(LOOK_EVERY);
        }
    };
    match std::thread::Builder::new().name("gamepads".into()).spawn(look) {
        Ok(_) => missing,
        Err(error) => Some(format!("gamepads are not looked for: {error}")),
    }
}

/// Says so where there are joysticks that we may not read.
fn unreadable() -> Option<String> {
    let entries = std::fs::read_dir("/dev/input/by-id").ok()?;
    let sticks = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with("-event-joystick"));
    let denied = |entry: &std::fs::DirEntry| {
        std::fs::File::open(entry.path()).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let name = sticks.into_iter().find(denied)?.file_name();
    Some(format!("the gamepad {} may not be read (add yourself to the group \"input\")", name.to_string_lossy()))
}

/// Opens what was plugged in since the last look; each gamepad is read by a thread that ends when it is pulled out.
fn look(gamepads: &Arc<Gamepads>, known: &Known) {
    for (path, device) in evdev::enumerate() {
        let is_gamepad = device.supported_keys().is_some_and(|keys| keys.contains(Code::BTN_SOUTH));
        if !is_gamepad || known.lock().unwrap_or_else(PoisonError::into_inner).contains(&path) {
            continue;
        }
        let Some(seat) = gamepads.sit() else { return };
        known.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        let (gamepads, known) = (gamepads.clone(), known.clone());
        let read = move || {
            read(&gamepads, seat, device);
            gamepads.stand(seat);
            known.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
        };
        _ = std::thread::Builder::new().name("gamepad".into()).spawn(read);
    }
}

fn read(gamepads: &Gamepads, seat: usize, mut device: Device) {
    let range = |axis: Abs, device: &Device| {
        let mut all = device.get_absinfo().ok()?;
        all.find(|(code, _)| *code == axis).map(|(_, info)| (info.minimum(), info.maximum()))
    };
    let sticks = [Abs::ABS_X, Abs::ABS_Y, Abs::ABS_RX, Abs::ABS_RY];
    let ranges = sticks.map(|axis| range(axis, &device).unwrap_or((-32_768, 32_767)));
    let mut posture = Posture::default();
    while let Ok(events) = device.fetch_events() {
        for event in events {
            match event.destructure() {
                EventSummary::Key(_, code, value) => {
                    if let Some(control) = control(code) {
                        posture.set(control, value != 0);
                    }
                }
                EventSummary::AbsoluteAxis(_, axis, value) => {
                    on_axis(&mut posture, axis, value);
                    if let Some(stick) = sticks.iter().position(|stick| *stick == axis) {
                        posture.axes[stick] = centred(value, ranges[stick]);
                    }
                }
                EventSummary::Synchronization(..) => gamepads.press(seat, posture),
                _ => {}
            }
        }
    }
}

/// The cross, and triggers that are axes.
fn on_axis(posture: &mut Posture, axis: Abs, value: i32) {
    let (less, more) = match axis {
        Abs::ABS_HAT0X => (Control::Left, Control::Right),
        Abs::ABS_HAT0Y => (Control::Up, Control::Down),
        Abs::ABS_Z => return posture.set(Control::L2, value > 100),
        Abs::ABS_RZ => return posture.set(Control::R2, value > 100),
        _ => return,
    };
    posture.set(less, value < 0);
    posture.set(more, value > 0);
}

/// A value of some range as one of 16 bits around nothing.
fn centred(value: i32, (least, most): (i32, i32)) -> i16 {
    let span = (i64::from(most) - i64::from(least)).max(1);
    let position = (i64::from(value) - i64::from(least)) * 65_535 / span - 32_768;
    position.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16
}

fn control(code: Code) -> Option<Control> {
    Some(match code {
        Code::BTN_SOUTH => Control::South,
        Code::BTN_EAST => Control::East,
        Code::BTN_NORTH => Control::North,
        Code::BTN_WEST => Control::West,
        Code::BTN_SELECT => Control::Select,
        Code::BTN_START => Control::Start,
        Code::BTN_DPAD_UP => Control::Up,
        Code::BTN_DPAD_DOWN => Control::Down,
        Code::BTN_DPAD_LEFT => Control::Left,
        Code::BTN_DPAD_RIGHT => Control::Right,
        Code::BTN_TL => Control::L,
        Code::BTN_TR => Control::R,
        Code::BTN_TL2 => Control::L2,
        Code::BTN_TR2 => Control::R2,
        Code::BTN_THUMBL => Control::L3,
        Code::BTN_THUMBR => Control::R3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_becomes_one_around_nothing() {
        assert_eq!((centred(0, (0, 255)), centred(255, (0, 255)), centred(128, (0, 255))), (-32_768, 32_767, 128));
        assert_eq!(centred(7, (7, 7)), -32_768);
        assert_eq!(centred(i32::MAX, (0, 255)), i16::MAX);
    }

    #[test]
    fn a_cross_that_is_an_axis_presses_one_side_at_a_time() {
        let mut posture = Posture::default();
        on_axis(&mut posture, Abs::ABS_HAT0X, -1);
        assert_eq!(posture.controls, 1 << Control::Left as u32);
        on_axis(&mut posture, Abs::ABS_HAT0X, 1);
        assert_eq!(posture.controls, 1 << Control::Right as u32);
        on_axis(&mut posture, Abs::ABS_HAT0X, 0);
        assert_eq!(posture.controls, 0);
    }
}
