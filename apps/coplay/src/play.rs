//! `coplay play`: one site, one or more players.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use coplay_machines::Machine;

use crate::bot::Bot;
use crate::config::Config;
use crate::devices::Devices;
use crate::error::AppError;
use crate::frame_timer::FrameTimer;
use crate::hud::{Hud, HudCapabilities, HudRequest, failure_note};
use crate::rate_meter::RateMeter;
use crate::record::Recorder;
use crate::save_slots::SaveSlots;
use crate::summary::Summary;
use crate::ui_link::GamePort;

/// Frames of a headless run that does not say how many.
pub const HEADLESS_FRAMES: u32 = 600;

/// How to play.
#[derive(Clone, Debug, Default)]
pub struct PlayOptions {
    /// Players who take part; the others' pads are at rest.
    pub players: Option<usize>,
    /// Where the movie goes.
    pub record: Option<PathBuf>,
    /// Whether that may overwrite.
    pub force: bool,
    /// After how many frames it ends.
    pub frame_limit: Option<u32>,
    /// Who plays: these bots, or people.
    pub bot_seed: Option<u64>,
}

/// A game that is played.
pub struct LocalGame {
    machine: Box<dyn Machine>,
    players: usize,
    bots: Vec<Bot>,
    recorder: Option<Recorder>,
    slots: Option<SaveSlots>,
    frame_limit: Option<u32>,
    /// Frames so far.
    frame_count: u32,
    words: Vec<InputWord>,
    state: Vec<u8>,
    has_sound_gap: bool,
}

impl LocalGame {
    /// Prepares to play.
    pub fn new(machine: Box<dyn Machine>, options: &PlayOptions) -> Result<Self, AppError> {
        let pads = machine.pads().len();
        let players = options.players.unwrap_or(pads);
        if players == 0 || players > pads {
            let what = format!("this machine has pads for {pads}, not for {players}");
            return Err(AppError::usage(what).hint(format!("say --players with 1 to {pads}")));
        }
        let bots = options.bot_seed.map_or_else(Vec::new, |seed| {
            machine.pads().iter().enumerate().map(|(player, pad)| Bot::new(seed, player, pad)).collect()
        });
        let recorder =
            options.record.as_deref().map(|path| Recorder::begin(path, options.force, &*machine)).transpose()?;
        let slots =
            crate::config::data_dir().map(|data| SaveSlots::new(&data, machine.game_id(), machine.machine_id()));
        let words = vec![0; pads];
        let (frames, state) = (options.frame_limit, vec![]);
        Ok(Self {
            machine,
            players,
            bots,
            recorder,
            slots,
            frame_limit: frames,
            frame_count: 0,
            words,
            state,
            has_sound_gap: false,
        })
    }

    /// As fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let begun = Instant::now();
        self.frame_limit.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::signals::is_stop_requested() {
            self.step(&[])?;
        }
        self.finish(Some(begun.elapsed()))
    }

    /// At the machine's pace, on a stage.
    pub fn run(mut self, mut stage: GamePort, config: &Config) -> Result<Summary, AppError> {
        let begun = Instant::now();
        let can =
            HudCapabilities { pause: true, fast_forward: true, slots: true, reset: true, ..HudCapabilities::default() };
        let mut desk = Hud::new(config, can, self.machine.pads());
        let mut outfit = Devices::open(config, self.machine.pads(), &stage, &mut desk);
        let (mut pace, mut meter) =
            (FrameTimer::new(begun, self.machine.frame_rate().period().to_duration()), RateMeter::new(begun));
        loop {
            while let Some(command) = stage.poll_command() {
                if let Some(wish) = desk.handle_command(Instant::now(), command) {
                    self.handle_request(wish, &mut desk)?;
                }
                // A front end that is gone asks to end again and again.
                if desk.is_quit_requested() {
                    break;
                }
            }
            if desk.is_quit_requested() || self.is_done() {
                break;
            }
            if !desk.is_paused() {
                self.step(&stage.input_state().sample())?;
                outfit.play_sound(&*self.machine, desk.sound_settings(), std::mem::take(&mut self.has_sound_gap));
                meter.count_event(Instant::now());
            }
            desk.set_failure(self.machine.failure());
            self.show(&mut stage, &desk, &meter);
            pace.wait(desk.speed());
        }
        let mut summary = self.finish(None)?;
        summary.notes.extend(outfit.notes);
        Ok(summary)
    }

    fn is_done(&self) -> bool {
        self.frame_limit.is_some_and(|frames| self.frame_count >= frames)
    }

    fn step(&mut self, hands: &[InputWord]) -> Result<(), AppError> {
        for (player, word) in self.words.iter_mut().enumerate() {
            let pressed = match self.bots.get_mut(player) {
                Some(bot) => bot.press(),
                None => hands.get(player).copied().unwrap_or(0),
            };
            let mask = self.machine.pads()[player].mask;
            *word = if player < self.players { pressed & mask } else { 0 };
        }
        self.machine.step(&self.words, true);
        self.frame_count += 1;
        match &mut self.recorder {
            Some(recorder) => recorder.push_frame(&self.words, || self.machine.hash()),
            None => Ok(()),
        }
    }

    fn handle_request(&mut self, wish: HudRequest, desk: &mut Hud) -> Result<(), AppError> {
        let now = Instant::now();
        match wish {
            HudRequest::Save(slot) => {
                desk.show_toast(now, self.save(slot).unwrap_or_else(|why| format!("not kept: {why}")))
            }
            HudRequest::Load(slot) => {
                let said = self.load(slot).unwrap_or_else(|why| format!("slot {slot} cannot be loaded: {why}"));
                desk.show_toast(now, said);
            }
            HudRequest::Reset => {
                self.machine.reset();
                self.has_sound_gap = true;
                if let Some(recorder) = &mut self.recorder {
                    recorder.push_reset()?;
                }
                desk.show_toast(now, "switched off and on");
            }
            HudRequest::GoOnAlone
            | HudRequest::StepDial(_)
            | HudRequest::SelectDial(_)
            | HudRequest::SetDial { .. } => {}
        }
        Ok(())
    }

    fn save(&mut self, slot: u8) -> Result<String, String> {
        let slots = self.slots.as_ref().ok_or("there is no place for data here")?;
        if !self.machine.can_save() {
            return Err("this machine cannot save its state".into());
        }
        self.machine.save(&mut self.state).map_err(|error| error.to_string())?;
        slots.save(slot, &self.state)?;
        Ok(format!("kept in slot {slot}"))
    }

    fn load(&mut self, slot: u8) -> Result<String, String> {
        if self.recorder.is_some() {
            return Err("a movie is being recorded, and a movie goes straight on".into());
        }
        let slots = self.slots.as_ref().ok_or("there is no place for data here")?;
        if !self.machine.can_save() {
            return Err("this machine cannot load a state".into());
        }
        let state = slots.load(slot)?;
        self.machine.load(&state).map_err(|error| error.to_string())?;
        self.has_sound_gap = true;
        Ok(format!("back at slot {slot}"))
    }

    fn show(&self, stage: &mut GamePort, desk: &Hud, meter: &RateMeter) {
        stage.show(|scene| {
            let screen = &mut scene.screens(1)[0];
            screen.caption.clear();
            screen.show(self.machine.picture());
            scene.status = format!("{:.0} fps   slot {}", meter.per_second(), desk.slot());
            if self.recorder.is_some() {
                scene.status += "   ● recording";
            }
            scene.graph = None;
            desk.draw(Instant::now(), scene);
        });
    }

    fn finish(mut self, took: Option<Duration>) -> Result<Summary, AppError> {
        let hash = self.machine.hash();
        let mut recorded = None;
        if let Some(recorder) = self.recorder.take() {
            let path = recorder.path().to_owned();
            recorder.finish(hash)?;
            recorded = Some(path);
        }
        let mut summary = Summary::for_frames(u64::from(self.frame_count), took, self.machine.frame_rate());
        summary.add_row("state", format!("{hash:016x}"), "hash after the last frame");
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
    use crate::toy_machine::ToyMachine;

    #[test]
    fn machine_failure_is_noted_in_the_summary() {
        let play = |machine| {
            LocalGame::new(Box::new(machine), &PlayOptions { frame_limit: Some(10), ..PlayOptions::default() }).unwrap()
        };
        assert!(play(ToyMachine::new(1)).run_headless().unwrap().notes.is_empty());
        let notes = play(ToyMachine::new(1).failing_with("it is down")).run_headless().unwrap().notes;
        assert_eq!(notes, ["the machine stood still at the end: it is down"]);
    }
}
