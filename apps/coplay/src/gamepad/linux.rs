//! Gamepads on Linux: reads events from `/dev/input`, without libudev.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evdev::{AbsoluteAxisCode as Abs, Device, EventSummary, KeyCode as Code};

use super::{GamepadState, Gamepads};
use crate::config::GamepadControl;

/// Interval between scans for new gamepads.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);

/// Paths of the gamepads that are being read, each by a thread of its own.
type OpenDevices = Arc<Mutex<BTreeSet<PathBuf>>>;

pub(super) fn start(gamepads: Arc<Gamepads>) -> Option<String> {
    let note = unreadable_note();
    let open_devices = OpenDevices::default();
    let scan = move || {
        loop {
            open_new_devices(&gamepads, &open_devices);
            std::thread::sleep(SCAN_INTERVAL);
        }
    };
    match std::thread::Builder::new().name("gamepads".into()).spawn(scan) {
        Ok(_) => note,
        Err(error) => Some(format!("gamepads are not available: {error}")),
    }
}

/// Returns a note if this process may not read a gamepad that is plugged in.
fn unreadable_note() -> Option<String> {
    let entries = std::fs::read_dir("/dev/input/by-id").ok()?;
    let sticks = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with("-event-joystick"));
    let denied = |entry: &std::fs::DirEntry| {
        std::fs::File::open(entry.path()).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let name = sticks.into_iter().find(denied)?.file_name();
    Some(format!(
        "no permission to read the gamepad {}; add your user to the group \"input\" and log in again",
        name.to_string_lossy()
    ))
}

/// Opens the gamepads that are not being read, as long as a player slot is free. A thread reads each gamepad until it
/// is unplugged.
fn open_new_devices(gamepads: &Arc<Gamepads>, open_devices: &OpenDevices) {
    for (path, device) in evdev::enumerate() {
        let is_gamepad = device.supported_keys().is_some_and(|keys| keys.contains(Code::BTN_SOUTH));
        if !is_gamepad || open_devices.lock().unwrap_or_else(PoisonError::into_inner).contains(&path) {
            continue;
        }
        let Some(slot) = gamepads.assign_slot() else { return };
        open_devices.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        let (gamepads, open_devices) = (gamepads.clone(), open_devices.clone());
        let has_letters = has_letter_codes(&path, &device);
        let read = move || {
            read_events(&gamepads, slot, device, has_letters);
            gamepads.release_slot(slot);
            open_devices.lock().unwrap_or_else(PoisonError::into_inner).remove(&path);
        };
        _ = std::thread::Builder::new().name("gamepad".into()).spawn(read);
    }
}

fn read_events(gamepads: &Gamepads, slot: usize, mut device: Device, has_letters: bool) {
    let axis_infos: Vec<_> = device.get_absinfo().map(Iterator::collect).unwrap_or_default();
    let range =
        |axis: Abs| axis_infos.iter().find(|(code, _)| *code == axis).map(|(_, info)| (info.minimum(), info.maximum()));
    let axes = Axes::new(range);
    let mut state = GamepadState::default();
    while let Ok(events) = device.fetch_events() {
        for event in events {
            match event.destructure() {
                EventSummary::Key(_, code, value) => {
                    if let Some(control) = button_control(code, has_letters) {
                        state.set(control, value != 0);
                    }
                }
                EventSummary::AbsoluteAxis(_, axis, value) => axes.on_axis(&mut state, axis, value),
                EventSummary::Synchronization(..) => gamepads.update(slot, state),
                _ => {}
            }
        }
    }
}

/// Returns whether a gamepad reports its buttons by letter, not by position. The kernel has one code for the upper
/// button and for X, which is on the left on Microsoft pads and on pads that the xpad driver serves.
fn has_letter_codes(path: &Path, device: &Device) -> bool {
    const MICROSOFT: u16 = 0x045e;
    let event = path.file_name().unwrap_or_default();
    let driver = Path::new("/sys/class/input").join(event).join("device/device/driver");
    let driver = std::fs::read_link(driver).unwrap_or_default();
    let xpad = driver.file_name().is_some_and(|name| name.to_string_lossy().starts_with("xpad"));
    xpad || device.input_id().vendor() == MICROSOFT
}

/// Axis, with its smallest and largest value.
type AxisRange = (Abs, (i32, i32));

/// Assignment of a gamepad's axes to sticks and triggers, with their ranges.
struct Axes {
    sticks: [AxisRange; 4],
    /// Axes of the left and the right trigger.
    triggers: [AxisRange; 2],
}

impl Axes {
    /// Assigns the axes; `range` returns the range of an axis that exists. Without `ABS_RX`, the right stick is on the
    /// axes that triggers use otherwise.
    fn new(range: impl Fn(Abs) -> Option<(i32, i32)>) -> Self {
        let (right, triggers) = match range(Abs::ABS_RX) {
            Some(_) => ([Abs::ABS_RX, Abs::ABS_RY], [Abs::ABS_Z, Abs::ABS_RZ]),
            None => ([Abs::ABS_Z, Abs::ABS_RZ], [Abs::ABS_BRAKE, Abs::ABS_GAS]),
        };
        let sticks = [Abs::ABS_X, Abs::ABS_Y, right[0], right[1]];
        Self {
            sticks: sticks.map(|axis| (axis, range(axis).unwrap_or((-32_768, 32_767)))),
            triggers: triggers.map(|axis| (axis, range(axis).unwrap_or((0, 255)))),
        }
    }

    /// Applies an axis event to the state: D-pad, sticks and analog triggers.
    fn on_axis(&self, state: &mut GamepadState, axis: Abs, value: i32) {
        match axis {
            Abs::ABS_HAT0X => on_dpad(state, (GamepadControl::Left, GamepadControl::Right), value),
            Abs::ABS_HAT0Y => on_dpad(state, (GamepadControl::Up, GamepadControl::Down), value),
            _ => {}
        }
        if let Some(at) = self.sticks.iter().position(|(stick, _)| *stick == axis) {
            state.axes[at] = centred(value, self.sticks[at].1);
        }
        for ((trigger, range), control) in self.triggers.iter().zip([GamepadControl::L2, GamepadControl::R2]) {
            if *trigger == axis {
                state.set(control, is_pulled(value, *range));
            }
        }
    }
}

fn on_dpad(state: &mut GamepadState, (negative, positive): (GamepadControl, GamepadControl), value: i32) {
    state.set(negative, value < 0);
    state.set(positive, value > 0);
}

/// Returns whether a trigger is pulled by more than 40 % of its range.
fn is_pulled(value: i32, (min, max): (i32, i32)) -> bool {
    (i64::from(value) - i64::from(min)) * 5 > (i64::from(max) - i64::from(min)) * 2
}

/// Maps a value within a range to 16 bits, with the centre of the range at 0.
fn centred(value: i32, (min, max): (i32, i32)) -> i16 {
    let span = (i64::from(max) - i64::from(min)).max(1);
    let position = (i64::from(value) - i64::from(min)) * 65_535 / span - 32_768;
    position.clamp(i64::from(i16::MIN), i64::from(i16::MAX)) as i16
}

fn button_control(code: Code, has_letters: bool) -> Option<GamepadControl> {
    Some(match code {
        Code::BTN_NORTH if has_letters => GamepadControl::West,
        Code::BTN_WEST if has_letters => GamepadControl::North,
        Code::BTN_SOUTH => GamepadControl::South,
        Code::BTN_EAST => GamepadControl::East,
        Code::BTN_NORTH => GamepadControl::North,
        Code::BTN_WEST => GamepadControl::West,
        Code::BTN_SELECT => GamepadControl::Select,
        Code::BTN_START => GamepadControl::Start,
        Code::BTN_DPAD_UP => GamepadControl::Up,
        Code::BTN_DPAD_DOWN => GamepadControl::Down,
        Code::BTN_DPAD_LEFT => GamepadControl::Left,
        Code::BTN_DPAD_RIGHT => GamepadControl::Right,
        Code::BTN_TL => GamepadControl::L,
        Code::BTN_TR => GamepadControl::R,
        Code::BTN_TL2 => GamepadControl::L2,
        Code::BTN_TR2 => GamepadControl::R2,
        Code::BTN_THUMBL => GamepadControl::L3,
        Code::BTN_THUMBR => GamepadControl::R3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_range_is_normalized_around_zero() {
        assert_eq!((centred(0, (0, 255)), centred(255, (0, 255)), centred(128, (0, 255))), (-32_768, 32_767, 128));
        assert_eq!(centred(7, (7, 7)), -32_768);
        assert_eq!(centred(i32::MAX, (0, 255)), i16::MAX);
    }

    #[test]
    fn dpad_axis_presses_one_direction_at_a_time() {
        let (axes, mut state) = (Axes::new(|_| None), GamepadState::default());
        for (value, pressed) in [(-1, 1 << GamepadControl::Left as u32), (1, 1 << GamepadControl::Right as u32), (0, 0)]
        {
            axes.on_axis(&mut state, Abs::ABS_HAT0X, value);
            assert_eq!(state.controls, pressed);
        }
    }

    #[test]
    fn trigger_axes_depend_on_right_stick_axes() {
        let (left, right) = (1 << GamepadControl::L2 as u32, 1 << GamepadControl::R2 as u32);
        let usual = Axes::new(|axis| Some(if axis == Abs::ABS_RZ { (0, 1_023) } else { (0, 255) }));
        let mut state = GamepadState::default();
        usual.on_axis(&mut state, Abs::ABS_Z, 255);
        usual.on_axis(&mut state, Abs::ABS_RZ, 255);
        assert_eq!((state.controls, state.axes), (left, [0; 4]), "a quarter of the range is below the threshold");
        usual.on_axis(&mut state, Abs::ABS_RZ, 1_000);
        usual.on_axis(&mut state, Abs::ABS_RX, 255);
        assert_eq!((state.controls, state.axes[2]), (left | right, i16::MAX));
        // On this gamepad the centre of the right stick would be a half-pulled trigger.
        let other = Axes::new(|axis| (![Abs::ABS_RX, Abs::ABS_RY].contains(&axis)).then_some((0, 255)));
        let mut state = GamepadState::default();
        other.on_axis(&mut state, Abs::ABS_Z, 128);
        other.on_axis(&mut state, Abs::ABS_RZ, 255);
        assert_eq!((state.controls, state.axes[3]), (0, i16::MAX));
        other.on_axis(&mut state, Abs::ABS_GAS, 200);
        assert_eq!(state.controls, right);
    }

    #[test]
    fn letter_codes_are_mapped_to_positions() {
        let both = |has_letters| [Code::BTN_NORTH, Code::BTN_WEST].map(|code| button_control(code, has_letters));
        assert_eq!(both(false), [Some(GamepadControl::North), Some(GamepadControl::West)]);
        assert_eq!(both(true), [Some(GamepadControl::West), Some(GamepadControl::North)]);
        assert_eq!(button_control(Code::BTN_SOUTH, true), Some(GamepadControl::South));
    }
}
