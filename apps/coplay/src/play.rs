//! `coplay play`: one site, one or more players.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use coplay::input::InputWord;
use coplay_machines::Machine;

use crate::bot::Bot;
use crate::config::Config;
use crate::desk::{Can, Desk, Wish, note_of_failure};
use crate::meter::Meter;
use crate::outfit::Outfit;
use crate::pace::Pace;
use crate::record::Recorder;
use crate::slots::Slots;
use crate::stage::Stage;
use crate::summary::Summary;
use crate::trouble::Trouble;

/// Frames of a headless run that does not say how many.
pub const HEADLESS_FRAMES: u32 = 600;

/// How to play.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Players who take part; the others' pads are at rest.
    pub players: Option<usize>,
    /// Where the movie goes.
    pub record: Option<PathBuf>,
    /// Whether that may overwrite.
    pub force: bool,
    /// After how many frames it ends.
    pub frames: Option<u32>,
    /// Who plays: these bots, or people.
    pub bot: Option<u64>,
}

/// A game that is played.
pub struct Play {
    machine: Box<dyn Machine>,
    players: usize,
    bots: Vec<Bot>,
    recorder: Option<Recorder>,
    slots: Option<Slots>,
    frames: Option<u32>,
    /// Frames so far.
    frame: u32,
    words: Vec<InputWord>,
    state: Vec<u8>,
    seam: bool,
}

impl Play {
    /// Prepares to play.
    pub fn new(machine: Box<dyn Machine>, options: &Options) -> Result<Self, Trouble> {
        let pads = machine.pads().len();
        let players = options.players.unwrap_or(pads);
        if players == 0 || players > pads {
            let what = format!("this machine has pads for {pads}, not for {players}");
            return Err(Trouble::misuse(what).hint(format!("say --players with 1 to {pads}")));
        }
        let bots = options.bot.map_or_else(Vec::new, |seed| {
            machine.pads().iter().enumerate().map(|(player, pad)| Bot::new(seed, player, pad)).collect()
        });
        let recorder =
            options.record.as_deref().map(|path| Recorder::begin(path, options.force, &*machine)).transpose()?;
        let slots = crate::config::data_dir().map(|data| Slots::new(&data, machine.game_id(), machine.machine_id()));
        let words = vec![0; pads];
        let (frames, state) = (options.frames, vec![]);
        Ok(Self { machine, players, bots, recorder, slots, frames, frame: 0, words, state, seam: false })
    }

    /// As fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        self.frames.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::stop::is_asked() {
            self.step(&[])?;
        }
        self.finish(Some(begun.elapsed()))
    }

    /// At the machine's pace, on a stage.
    pub fn run(mut self, mut stage: Stage, config: &Config) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        let can = Can { pause: true, fast: true, slots: true, reset: true, ..Can::default() };
        let mut desk = Desk::new(config, can, self.machine.pads());
        let mut outfit = Outfit::open(config, self.machine.pads(), &stage, &mut desk);
        let (mut pace, mut meter) =
            (Pace::new(begun, self.machine.frame_rate().period().to_duration()), Meter::new(begun));
        loop {
            while let Some(command) = stage.poll_command() {
                if let Some(wish) = desk.handle(Instant::now(), command) {
                    self.grant(wish, &mut desk)?;
                }
                // A front end that is gone asks to end again and again.
                if desk.is_over() {
                    break;
                }
            }
            if desk.is_over() || self.is_done() {
                break;
            }
            if !desk.is_still() {
                self.step(&stage.hands().look())?;
                outfit.play(&*self.machine, desk.sound(), std::mem::take(&mut self.seam));
                meter.tick(Instant::now());
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
        self.frames.is_some_and(|frames| self.frame >= frames)
    }

    fn step(&mut self, hands: &[InputWord]) -> Result<(), Trouble> {
        for (player, word) in self.words.iter_mut().enumerate() {
            let pressed = match self.bots.get_mut(player) {
                Some(bot) => bot.press(),
                None => hands.get(player).copied().unwrap_or(0),
            };
            let mask = self.machine.pads()[player].mask;
            *word = if player < self.players { pressed & mask } else { 0 };
        }
        self.machine.step(&self.words, true);
        self.frame += 1;
        match &mut self.recorder {
            Some(recorder) => recorder.frame(&self.words, || self.machine.hash()),
            None => Ok(()),
        }
    }

    fn grant(&mut self, wish: Wish, desk: &mut Desk) -> Result<(), Trouble> {
        let now = Instant::now();
        match wish {
            Wish::Save(slot) => desk.say(now, self.save(slot).unwrap_or_else(|why| format!("not kept: {why}"))),
            Wish::Load(slot) => {
                let said = self.load(slot).unwrap_or_else(|why| format!("slot {slot} cannot be loaded: {why}"));
                desk.say(now, said);
            }
            Wish::Reset => {
                self.machine.reset();
                self.seam = true;
                if let Some(recorder) = &mut self.recorder {
                    recorder.reset()?;
                }
                desk.say(now, "switched off and on");
            }
            Wish::GoOnAlone | Wish::Turn(_) | Wish::Choose(_) | Wish::TurnTo { .. } => {}
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
        self.seam = true;
        Ok(format!("back at slot {slot}"))
    }

    fn show(&self, stage: &mut Stage, desk: &Desk, meter: &Meter) {
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

    fn finish(mut self, took: Option<Duration>) -> Result<Summary, Trouble> {
        let hash = self.machine.hash();
        let mut recorded = None;
        if let Some(recorder) = self.recorder.take() {
            let path = recorder.path().to_owned();
            recorder.finish(hash)?;
            recorded = Some(path);
        }
        let mut summary = Summary::of(u64::from(self.frame), took, self.machine.frame_rate());
        summary.row("state", format!("{hash:016x}"), "hash after the last frame");
        if let Some(path) = recorded {
            summary.row("movie", path.display().to_string(), "");
        }
        summary.notes.extend(note_of_failure(self.machine.failure()));
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::ToyMachine;

    #[test]
    fn a_machine_that_stood_still_is_told_of_at_the_end() {
        let play = |machine| Play::new(Box::new(machine), &Options { frames: Some(10), ..Options::default() }).unwrap();
        assert!(play(ToyMachine::new(1)).run_headless().unwrap().notes.is_empty());
        let notes = play(ToyMachine::new(1).broken("it is down")).run_headless().unwrap().notes;
        assert_eq!(notes, ["the machine stood still at the end: it is down"]);
    }
}
