//! `coplay replay`: plays a movie, and proves that the machine does the same again.

use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie::{HashComparison, MovieError};
use coplay::session::Settings;
use coplay_machines::Machine;
use coplay_machines::control::{ControlledMachine, has_control_player};
use coplay_machines::pad::Pad;

use crate::config::Config;
use crate::desk::{Can, Desk, note_of_failure};
use crate::film::{Film, Next};
use crate::meter::Meter;
use crate::outfit::Outfit;
use crate::pace::Pace;
use crate::record::RESET;
use crate::stage::Stage;
use crate::summary::Summary;
use crate::trouble::Trouble;

/// A movie and the machine that plays it.
pub struct Replay {
    machine: Box<dyn Machine>,
    /// Those of people: a game with others has one more, for the machine itself.
    pads: Vec<Pad>,
    film: Film,
    checked: HashComparison,
    frames: u64,
    /// Why it goes no further, once it does not.
    over: Option<Ending>,
    seam: bool,
}

/// How a movie ends.
#[derive(Clone, Debug)]
enum Ending {
    Whole,
    Broken(MovieError),
    /// Somebody looked long enough.
    Left,
}

/// Whether a machine is the one that a movie was made with; otherwise what differs.
pub fn fits(recorded: &Settings, machine: &dyn Machine) -> Result<(), Trouble> {
    let ours = Settings { game: machine.game_id().clone(), machine: machine.machine_id().clone(), ..recorded.clone() };
    let differences = ours.differences(recorded);
    let Some(first) = differences.first() else { return Ok(()) };
    let told = format!("{} is {} here and {} in the movie", first.setting, first.ours, first.theirs);
    Err(match first.setting.as_str() {
        "the game" => Trouble::failure(format!("the movie is of another game: {told}"))
            .hint("name the game's file after the movie's: coplay replay FILE GAME"),
        _ => Trouble::failure(format!("the movie was made with another machine: {told}"))
            .hint(format!("replay it with that machine; the movie names {}", describe(recorded))),
    })
}

/// The machine that a movie was made with, for people.
pub fn describe(recorded: &Settings) -> String {
    format!("{} {}", recorded.machine.name, recorded.machine.version)
}

impl Replay {
    /// A movie on the machine that it was made with.
    pub fn new(film: Film, machine: Box<dyn Machine>) -> Result<Self, Trouble> {
        fits(film.settings(), &*machine)?;
        let pads = machine.pads().to_vec();
        let shared = has_control_player(film.settings());
        let machine: Box<dyn Machine> = if shared { Box::new(ControlledMachine::new(machine)) } else { machine };
        Ok(Self { machine, pads, film, checked: HashComparison::default(), frames: 0, over: None, seam: false })
    }

    /// As fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        while self.over.is_none() {
            self.step(false)?;
            if crate::stop::is_asked() {
                self.over.get_or_insert(Ending::Left);
            }
        }
        self.finish(Some(begun.elapsed()), vec![])
    }

    /// At the machine's pace, on a stage.
    pub fn run(mut self, mut stage: Stage, config: &Config) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        let can = Can { pause: true, fast: true, ..Can::default() };
        let mut desk = Desk::new(config, can, &self.pads);
        let mut outfit = Outfit::open(config, &[], &stage, &mut desk);
        let (mut pace, mut meter) =
            (Pace::new(begun, self.machine.frame_rate().period().to_duration()), Meter::new(begun));
        while self.over.is_none() {
            while let Some(command) = stage.poll_command() {
                desk.handle(Instant::now(), command);
                if desk.is_over() {
                    self.over = Some(Ending::Left);
                    break;
                }
            }
            if self.over.is_none() && !desk.is_still() {
                self.step(true)?;
                outfit.play(&*self.machine, desk.sound(), std::mem::take(&mut self.seam));
                meter.tick(Instant::now());
            }
            desk.set_failure(self.machine.failure());
            self.show(&mut stage, &desk, &meter);
            pace.wait(desk.speed());
        }
        drop(stage);
        self.finish(None, outfit.notes)
    }

    fn show(&self, stage: &mut Stage, desk: &Desk, meter: &Meter) {
        stage.show(|scene| {
            let screen = &mut scene.screens(1)[0];
            screen.caption.clear();
            screen.show(self.machine.picture());
            let verdict = if self.checked.is_equal() { "equal" } else { "DIFFERENT" };
            let (frame, compared) = (self.film.next_frame(), self.checked.compared);
            let fps = meter.per_second();
            scene.status = format!("▶ movie   frame {frame}   {fps:.0} fps   {compared} hashes compared, {verdict}");
            scene.graph = None;
            desk.draw(Instant::now(), scene);
        });
    }

    /// Plays up to the end of the next frame.
    fn step(&mut self, fresh: bool) -> Result<(), Trouble> {
        loop {
            match self.film.poll()? {
                Next::Snapshot(state) => self.restore(&state)?,
                Next::Frame(words) => {
                    self.on_frame(&words, fresh);
                    return Ok(());
                }
                Next::Hash(frame, recorded) => _ = self.checked.on_hash(frame, recorded, self.machine.hash()),
                Next::Mark(bytes) if bytes == RESET => {
                    self.machine.reset();
                    self.seam = true;
                }
                Next::Mark(bytes) => {
                    let what = String::from_utf8_lossy(&bytes).into_owned();
                    let frame = self.film.next_frame();
                    return Err(Trouble::failure(format!(
                        "before frame {frame} the movie asks for {what:?}, which is not known"
                    ))
                    .hint("a newer coplay may play it"));
                }
                Next::End => self.over = Some(Ending::Whole),
                Next::Broken(error) => self.over = Some(Ending::Broken(error)),
            }
            if self.over.is_some() {
                return Ok(());
            }
        }
    }

    fn on_frame(&mut self, words: &[InputWord; MAX_PLAYERS], fresh: bool) {
        let players = self.film.settings().ownership.players();
        self.machine.step(&words[..players], fresh);
        self.frames += 1;
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Trouble> {
        self.seam = true;
        self.machine.load(state).map_err(|error| {
            Trouble::failure(format!("the movie starts in the middle, and its state cannot be loaded: {error}"))
        })
    }

    fn finish(mut self, took: Option<Duration>, notes: Vec<String>) -> Result<Summary, Trouble> {
        let hash = self.machine.hash();
        let mut summary = Summary::of(self.frames, took, self.machine.frame_rate());
        let about = match (self.checked.is_equal(), self.checked.compared) {
            (_, 0) => "the movie has none",
            (true, _) => "all equal",
            (false, _) => "not all equal",
        };
        summary.row("hashes", self.checked.compared.to_string(), about);
        summary.row("state", format!("{hash:016x}"), "hash after the last frame");
        summary.notes = notes;
        summary.notes.extend(note_of_failure(self.machine.failure()));
        let trouble = self.verdict();
        match trouble {
            None => Ok(summary),
            Some(trouble) => {
                // What was played is good, and worth knowing.
                summary.print();
                Err(trouble)
            }
        }
    }

    fn verdict(&self) -> Option<Trouble> {
        if let Some(different) = self.checked.first_mismatch {
            let after = |frame: Option<Frame>| frame.map_or("the first frame".into(), |frame| format!("frame {frame}"));
            let equal = after(self.checked.last_equal);
            return Some(
                Trouble::failure(format!(
                    "the machine went astray: states differ after frame {different}, and were equal up to {equal}"
                ))
                .hint("the machine is not deterministic, or not the one that made the movie"),
            );
        }
        match self.over {
            Some(Ending::Broken(MovieError::Truncated { frame })) => {
                let what = format!("the movie breaks off before frame {frame}; what came before was played");
                Some(
                    Trouble::failure(what).hint("the recording was interrupted, or the file was not copied as a whole"),
                )
            }
            Some(Ending::Broken(error)) => {
                let frame = self.film.next_frame();
                let what = match error {
                    MovieError::Damaged { .. } => {
                        format!("the movie is damaged from frame {frame} on; what came before was played")
                    }
                    error => error.to_string(),
                };
                Some(Trouble::failure(what).hint("try another copy of the file"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::solo_settings;
    use crate::toy::ToyMachine;

    #[test]
    fn a_movie_of_another_game_or_machine_is_told() {
        let machine = ToyMachine::new(1);
        let recorded = solo_settings(&machine).unwrap();
        assert_eq!(fits(&recorded, &machine), Ok(()));
        let told = fits(&recorded, &ToyMachine::new(2)).unwrap_err().to_string();
        assert!(told.contains("of another game") && told.contains("paddles 2"), "{told}");
        let mut newer = recorded.clone();
        newer.machine.version = "2".into();
        let told = fits(&newer, &machine).unwrap_err().to_string();
        assert!(told.contains("made with another machine") && told.contains("the movie names toy 2"), "{told}");
    }
}
