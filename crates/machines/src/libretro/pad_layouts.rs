//! Derives the pads of the players from a core's input descriptors.

use crate::pad::{Button, PadLayout, StickAxis};

use super::frontend_state::{Descriptor, Device, MAX_PLAYERS};

/// Number of players of a core that describes neither buttons nor ports.
const DEFAULT_PLAYERS: usize = 2;

/// Libretro's device class of a joypad.
pub(super) const JOYPAD: u32 = 1;
/// Libretro's device class of a pad with sticks.
pub(super) const ANALOG: u32 = 5;
const DEVICE_CLASS_MASK: u32 = 0xff;

/// Words that mark the label of a button that the emulator itself evaluates, such as a turbo button or a mode switch.
/// The saved state may lack the progress of such a function, so a game could diverge after a rollback. Pads do not
/// include such buttons, except that a pad without any other input gets all 16 buttons.
const EMULATOR_ONLY_LABELS: [&str; 6] = ["turbo", "rapid", "autofire", "auto-fire", "mode switch", "solar sensor"];

/// Returns one pad per player, for 1 to [`MAX_PLAYERS`] players. If `players` is `None`, the core's descriptors and
/// ports determine the number of players. A pad without usable descriptors has all 16 buttons.
pub(super) fn pads(descriptors: &[Descriptor], ports: &[Vec<Device>], players: Option<usize>) -> Vec<PadLayout> {
    let count = players.unwrap_or_else(|| count_players(descriptors, ports)).clamp(1, MAX_PLAYERS);
    (0..count as u32).map(|port| pad(descriptors, port)).collect()
}

/// Returns the number of leading ports with buttons or axes; if the first port has none, the number of leading ports
/// that take controllers; if the first port takes none either, [`DEFAULT_PLAYERS`].
fn count_players(descriptors: &[Descriptor], ports: &[Vec<Device>]) -> usize {
    let described =
        (0..MAX_PLAYERS as u32).take_while(|port| port_descriptors(descriptors, *port).next().is_some()).count();
    let connectable = ports.iter().take_while(|devices| devices.iter().any(|device| is_pad(device.id))).count();
    [described, connectable].into_iter().find(|count| *count > 0).unwrap_or(DEFAULT_PLAYERS)
}

fn is_pad(device: u32) -> bool {
    matches!(device & DEVICE_CLASS_MASK, JOYPAD | ANALOG)
}

fn port_descriptors(descriptors: &[Descriptor], port: u32) -> impl Iterator<Item = &Descriptor> {
    descriptors.iter().filter(move |descriptor| descriptor.port == port && is_pad(descriptor.device))
}

fn pad(descriptors: &[Descriptor], port: u32) -> PadLayout {
    let mut pad = PadLayout { mask: 0, labels: Vec::new() };
    for descriptor in port_descriptors(descriptors, port) {
        if let Some(axis) = axis(descriptor) {
            pad.mask |= axis.mask();
        } else if let Some(button) = button(descriptor) {
            let label = descriptor.label.to_lowercase();
            if EMULATOR_ONLY_LABELS.iter().any(|word| label.contains(word)) {
                continue;
            }
            pad.mask |= button.bit();
            pad.labels.retain(|(other, _)| *other != button);
            if !descriptor.label.is_empty() {
                pad.labels.push((button, descriptor.label.clone()));
            }
        }
    }
    if pad.mask == 0 { PadLayout::with_buttons(&Button::ALL) } else { pad }
}

fn button(descriptor: &Descriptor) -> Option<Button> {
    (descriptor.device & DEVICE_CLASS_MASK == JOYPAD).then(|| Button::ALL.get(descriptor.id as usize).copied())?
}

fn axis(descriptor: &Descriptor) -> Option<StickAxis> {
    if descriptor.device & DEVICE_CLASS_MASK != ANALOG {
        return None;
    }
    match (descriptor.index, descriptor.id) {
        (0, 0) => Some(StickAxis::LeftX),
        (0, 1) => Some(StickAxis::LeftY),
        (1, 0) => Some(StickAxis::RightX),
        (1, 1) => Some(StickAxis::RightY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(port: u32, device: u32, index: u32, id: u32, label: &str) -> Descriptor {
        Descriptor { port, device, index, id, label: label.into() }
    }

    #[test]
    fn pads_have_exactly_the_described_buttons_without_turbo() {
        let descriptors = [
            descriptor(0, JOYPAD, 0, 0, "Jump"),
            descriptor(0, JOYPAD, 0, 9, "Turbo Jump"),
            descriptor(0, JOYPAD, 0, 99, "Unknown id"),
            descriptor(0, ANALOG, 1, 1, "Look"),
            descriptor(1, JOYPAD | 0x100, 0, 3, "Start"),
            descriptor(3, JOYPAD, 0, 0, "After a gap"),
        ];
        let pads = pads(&descriptors, &[], None);
        assert_eq!(pads.len(), 2);
        assert_eq!(pads[0].mask, Button::B.bit() | StickAxis::RightY.mask());
        assert_eq!(pads[0].labels, [(Button::B, "Jump".to_owned())]);
        assert_eq!(pads[1].mask, Button::Start.bit());
    }

    #[test]
    fn core_without_descriptors_gets_two_full_pads() {
        let all = PadLayout::with_buttons(&Button::ALL);
        assert_eq!(pads(&[], &[], None), [all.clone(), all]);
        assert_eq!(pads(&[], &[], Some(1)).len(), 1);
        assert_eq!(pads(&[], &[], Some(100)).len(), MAX_PLAYERS);
        let joypad = Device { name: "Pad".into(), id: JOYPAD };
        assert_eq!(pads(&[], &[vec![joypad.clone()], vec![], vec![joypad]], None).len(), 1);
    }
}
