//! `coplay play`: a game on this computer, with one or more players.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use coplay_machines::Machine;
use coplay_shell::error::AppError;

use crate::bot::Bot;
use crate::config::UserSettings;
use crate::frame_timer::FrameTimer;
use crate::hud::{Hud, HudCapabilities, HudRequest, failure_note};
use crate::rate_meter::RateMeter;
use crate::record::Recorder;
use crate::save_slots::SaveSlots;
use crate::speaker_and_gamepads::SpeakerAndGamepads;
use crate::summary::Summary;
use crate::ui_link::GamePort;

/// Number of frames of a headless run without `--frames`.
pub const HEADLESS_FRAMES: u32 = 600;

/// Options of `coplay play`.
#[derive(Clone, Debug, Default)]
pub struct PlayOptions {
    /// Number of players. They have the first pads, and the other pads stay at rest. `None` is one player per pad.
    pub players: Option<usize>,
    /// File of the movie to record; `None` records none.
    pub record: Option<PathBuf>,
    /// Whether the movie may overwrite an existing file.
    pub force: bool,
    /// Number of frames after which the game ends; `None` is no limit, or [`HEADLESS_FRAMES`] in a headless run.
    pub frame_limit: Option<u32>,
    /// Seed of bots that play for all players; `None` lets people play.
    pub bot_seed: Option<u64>,
}

/// Game with one site, on this computer.
pub struct LocalGame {
    machine: Box<dyn Machine>,
    players: usize,
    bots: Vec<Bot>,
    recorder: Option<Recorder>,
    slots: Option<SaveSlots>,
    frame_limit: Option<u32>,
    /// Number of frames stepped so far.
    frame_count: u32,
    words: Vec<InputWord>,
    state: Vec<u8>,
    has_sound_gap: bool,
}

impl LocalGame {
    /// Prepares a game, and starts its movie if one is wanted. Fails if the machine has too few pads or the movie's
    /// file cannot be created.
    pub fn new(machine: Box<dyn Machine>, options: &PlayOptions) -> Result<Self, AppError> {
        let pads = machine.pads().len();
        let players = options.players.unwrap_or(pads);
        if players == 0 || players > pads {
            let message = format!("this machine has pads for {pads} players, not for {players}");
            return Err(AppError::usage(message).hint(format!("use --players with a number from 1 to {pads}")));
        }
        let bots = options.bot_seed.map_or_else(Vec::new, |seed| {
            machine.pads().iter().enumerate().map(|(player, pad)| Bot::new(seed, player, pad)).collect()
        });
        let recorder =
            options.record.as_deref().map(|path| Recorder::begin(path, options.force, &*machine)).transpose()?;
        let slots =
            crate::config::data_dir().map(|data| SaveSlots::new(&data, machine.game_id(), machine.machine_id()));
        Ok(Self {
            machine,
            players,
            bots,
            recorder,
            slots,
            frame_limit: options.frame_limit,
            frame_count: 0,
            words: vec![0; pads],
            state: vec![],
            has_sound_gap: false,
        })
    }

    /// Runs as fast as possible up to the frame limit or a stop signal, without picture and sound.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let started = Instant::now();
        self.frame_limit.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::signals::is_stop_requested() {
            self.step(&[])?;
        }
        self.finish(Some(started.elapsed()))
    }

    /// Runs at the machine's frame rate with a front end, up to the frame limit or until the user quits.
    pub fn run(mut self, mut ui: GamePort, config: &UserSettings) -> Result<Summary, AppError> {
        let started = Instant::now();
        let capabilities =
            HudCapabilities { pause: true, fast_forward: true, slots: true, reset: true, ..HudCapabilities::default() };
        let mut hud = Hud::new(config, capabilities, self.machine.pads());
        let mut devices = SpeakerAndGamepads::open(config, self.machine.pads(), &ui, &mut hud);
        let mut timer = FrameTimer::new(started, self.machine.frame_rate().period().to_duration());
        let mut meter = RateMeter::new(started);
        loop {
            while let Some(command) = ui.poll_command() {
                if let Some(request) = hud.handle_command(Instant::now(), command) {
                    self.handle_request(request, &mut hud)?;
                }
                // A front end that is gone returns `Exit` on every poll.
                if hud.is_quit_requested() {
                    break;
                }
            }
            if hud.is_quit_requested() || self.is_done() {
                break;
            }
            if !hud.is_paused() {
                self.step(&ui.input_state().sample())?;
                devices.play_sound(&*self.machine, hud.sound_settings(), std::mem::take(&mut self.has_sound_gap));
                meter.count_event(Instant::now());
            }
            hud.set_failure(self.machine.failure());
            self.show(&mut ui, &hud, &meter);
            timer.wait(hud.speed());
        }
        let mut summary = self.finish(None)?;
        summary.notes.extend(devices.notes);
        Ok(summary)
    }

    fn is_done(&self) -> bool {
        self.frame_limit.is_some_and(|frames| self.frame_count >= frames)
    }

    fn step(&mut self, pressed: &[InputWord]) -> Result<(), AppError> {
        for (player, word) in self.words.iter_mut().enumerate() {
            let input = match self.bots.get_mut(player) {
                Some(bot) => bot.press(),
                None => pressed.get(player).copied().unwrap_or(0),
            };
            let mask = self.machine.pads()[player].mask;
            *word = if player < self.players { input & mask } else { 0 };
        }
        self.machine.step(&self.words, true);
        self.frame_count += 1;
        match &mut self.recorder {
            Some(recorder) => recorder.push_frame(&self.words, || self.machine.hash()),
            None => Ok(()),
        }
    }

    fn handle_request(&mut self, request: HudRequest, hud: &mut Hud) -> Result<(), AppError> {
        let now = Instant::now();
        match request {
            HudRequest::Save(slot) => hud.show_toast(
                now,
                self.save(slot).unwrap_or_else(|error| format!("cannot save to slot {slot}: {error}")),
            ),
            HudRequest::Load(slot) => {
                let text = self.load(slot).unwrap_or_else(|error| format!("cannot load slot {slot}: {error}"));
                hud.show_toast(now, text);
            }
            HudRequest::Reset => {
                self.machine.reset();
                self.has_sound_gap = true;
                if let Some(recorder) = &mut self.recorder {
                    recorder.push_reset()?;
                }
                hud.show_toast(now, "the machine was reset");
            }
            HudRequest::GoOnAlone
            | HudRequest::StepDial(_)
            | HudRequest::SelectDial(_)
            | HudRequest::SetDial { .. } => {}
        }
        Ok(())
    }

    fn save(&mut self, slot: u8) -> Result<String, String> {
        let slots = self.slots.as_ref().ok_or("cannot find your home folder (is HOME set?)")?;
        if !self.machine.can_save() {
            return Err("this machine cannot save its state".into());
        }
        self.machine.save(&mut self.state).map_err(|error| error.to_string())?;
        slots.save(slot, &self.state)?;
        Ok(format!("state saved to slot {slot}"))
    }

    fn load(&mut self, slot: u8) -> Result<String, String> {
        if self.recorder.is_some() {
            return Err("a movie is being recorded".into());
        }
        let slots = self.slots.as_ref().ok_or("cannot find your home folder (is HOME set?)")?;
        if !self.machine.can_save() {
            return Err("this machine cannot load a state".into());
        }
        let state = slots.load(slot)?;
        self.machine.load(&state).map_err(|error| error.to_string())?;
        self.has_sound_gap = true;
        Ok(format!("state loaded from slot {slot}"))
    }

    fn show(&self, ui: &mut GamePort, hud: &Hud, meter: &RateMeter) {
        ui.show(|scene| {
            let screen = &mut scene.screens(1)[0];
            screen.caption.clear();
            screen.show(self.machine.picture());
            scene.status = format!("{:.0} fps   slot {}", meter.per_second(), hud.slot());
            if self.recorder.is_some() {
                scene.status += "   ● recording";
            }
            scene.graph = None;
            hud.draw(Instant::now(), scene);
        });
    }

    fn finish(mut self, elapsed: Option<Duration>) -> Result<Summary, AppError> {
        let hash = self.machine.hash();
        let mut recorded = None;
        if let Some(recorder) = self.recorder.take() {
            let path = recorder.path().to_owned();
            recorder.finish(hash)?;
            recorded = Some(path);
        }
        let mut summary = Summary::for_frames(u64::from(self.frame_count), elapsed, self.machine.frame_rate());
        summary.add_row("state", format!("{hash:016x}"), "state hash after the last frame");
        if let Some(path) = recorded {
            summary.add_row("movie", path.display().to_string(), "");
        }
        summary.notes.extend(failure_note(self.machine.failure()));
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::ToyMachine;

    #[test]
    fn machine_failure_is_noted_in_the_summary() {
        let play = |machine| {
            LocalGame::new(Box::new(machine), &PlayOptions { frame_limit: Some(10), ..PlayOptions::default() }).unwrap()
        };
        assert!(play(ToyMachine::new(1)).run_headless().unwrap().notes.is_empty());
        let notes = play(ToyMachine::new(1).failing_with("it is down")).run_headless().unwrap().notes;
        assert_eq!(notes, ["the machine had halted by the end of the run: it is down"]);
    }
}
