//! What a game needs around it beside a front end: a speaker and gamepads. What is missing is said once, and the game goes on.

use std::time::Instant;

use coplay_machines::Machine;
use coplay_machines::pad::Pad;

use crate::config::Config;
use crate::gamepad::Gamepads;
use crate::hud::Hud;
use crate::sound::Speaker;
use crate::ui_link::GamePort;

/// Speaker and gamepads.
#[derive(Debug)]
pub struct Devices {
    speaker: Speaker,
    /// What was missing.
    pub notes: Vec<String>,
}

impl Devices {
    /// Opens what there is.
    pub fn open(config: &Config, pads: &[Pad], stage: &GamePort, desk: &mut Hud) -> Self {
        let mut notes = vec![];
        let speaker = Speaker::open(config.volume, config.mute).unwrap_or_else(|why| {
            notes.push(format!("there is no sound: {why}"));
            Speaker::silent()
        });
        notes.extend(Gamepads::new(config, pads, stage.input_state().clone()).start());
        if let Some(note) = notes.first() {
            desk.show_toast(Instant::now(), note.clone());
        }
        Self { speaker, notes }
    }

    /// Plays the machine's last frame, this loud.
    pub fn play_sound(&mut self, machine: &dyn Machine, (volume, muted): (u8, bool), seam: bool) {
        self.speaker.set_volume(volume);
        self.speaker.set_muted(muted);
        self.speaker.play(machine.sound(), machine.sample_rate(), seam);
    }
}
