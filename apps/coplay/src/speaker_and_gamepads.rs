//! Speaker and gamepads of a game. If one of them cannot be used, the game continues without it, and the user gets a
//! note.

use std::time::Instant;

use coplay_machines::Machine;
use coplay_machines::pad::PadLayout;

use crate::config::UserSettings;
use crate::gamepad::Gamepads;
use crate::hud::Hud;
use crate::sound::Speaker;
use crate::ui_link::GamePort;

/// The open speaker, or a silent one if none can be opened. Background threads read the gamepads.
#[derive(Debug)]
pub struct SpeakerAndGamepads {
    speaker: Speaker,
    /// Notes about devices that cannot be used, for the end of the run.
    pub notes: Vec<String>,
}

impl SpeakerAndGamepads {
    /// Opens the speaker, and starts to read the gamepads of players with these pads. Shows the first note as a toast.
    pub fn open(config: &UserSettings, pads: &[PadLayout], ui: &GamePort, hud: &mut Hud) -> Self {
        let mut notes = vec![];
        let speaker = Speaker::open(config.volume, config.mute).unwrap_or_else(|error| {
            notes.push(format!("no sound: {error}"));
            Speaker::silent()
        });
        notes.extend(Gamepads::new(config, pads, ui.input_state().clone()).start());
        if let Some(note) = notes.first() {
            hud.show_toast(Instant::now(), note.clone());
        }
        Self { speaker, notes }
    }

    /// Plays the sound of the machine's last frame at this volume, in percent, unless `muted` is set. `has_gap` marks
    /// sound that does not continue the sound played before, as after a reset.
    pub fn play_sound(&mut self, machine: &dyn Machine, (volume, muted): (u8, bool), has_gap: bool) {
        self.speaker.set_volume(volume);
        self.speaker.set_muted(muted);
        self.speaker.play(machine.sound(), machine.sample_rate(), has_gap);
    }
}
