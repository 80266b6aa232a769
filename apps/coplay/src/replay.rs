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
use crate::devices::Devices;
use crate::error::AppError;
use crate::frame_timer::FrameTimer;
use crate::hud::{Hud, HudCapabilities, failure_note};
use crate::movie_file::{MovieFile, MovieItem};
use crate::rate_meter::RateMeter;
use crate::record::RESET_MARK;
use crate::summary::Summary;
use crate::ui_link::GamePort;

/// A movie and the machine that plays it.
pub struct Replay {
    machine: Box<dyn Machine>,
    /// Those of people: a game with others has one more, for the machine itself.
    pads: Vec<Pad>,
    movie: MovieFile,
    hash_check: HashComparison,
    frames: u64,
    /// Why it goes no further, once it does not.
    end: Option<ReplayEnd>,
    has_sound_gap: bool,
}

/// How a movie ends.
#[derive(Clone, Debug)]
enum ReplayEnd {
    Complete,
    Broken(MovieError),
    /// Somebody looked long enough.
    Quit,
}

/// Whether a machine is the one that a movie was made with; otherwise what differs.
pub fn check_machine(recorded: &Settings, machine: &dyn Machine) -> Result<(), AppError> {
    let ours = Settings { game: machine.game_id().clone(), machine: machine.machine_id().clone(), ..recorded.clone() };
    let differences = ours.differences(recorded);
    let Some(first) = differences.first() else { return Ok(()) };
    let told = format!("{} is {} here and {} in the movie", first.setting, first.ours, first.theirs);
    Err(match first.setting.as_str() {
        "the game" => AppError::failure(format!("the movie is of another game: {told}"))
            .hint("name the game's file after the movie's: coplay replay FILE GAME"),
        _ => AppError::failure(format!("the movie was made with another machine: {told}"))
            .hint(format!("replay it with that machine; the movie names {}", describe_machine(recorded))),
    })
}

/// The machine that a movie was made with, for people.
pub fn describe_machine(recorded: &Settings) -> String {
    format!("{} {}", recorded.machine.name, recorded.machine.version)
}

impl Replay {
    /// A movie on the machine that it was made with.
    pub fn new(film: MovieFile, machine: Box<dyn Machine>) -> Result<Self, AppError> {
        check_machine(film.settings(), &*machine)?;
        let pads = machine.pads().to_vec();
        let shared = has_control_player(film.settings());
        let machine: Box<dyn Machine> = if shared { Box::new(ControlledMachine::new(machine)) } else { machine };
        Ok(Self {
            machine,
            pads,
            movie: film,
            hash_check: HashComparison::default(),
            frames: 0,
            end: None,
            has_sound_gap: false,
        })
    }

    /// As fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let begun = Instant::now();
        while self.end.is_none() {
            self.step(false)?;
            if crate::signals::is_stop_requested() {
                self.end.get_or_insert(ReplayEnd::Quit);
            }
        }
        self.finish(Some(begun.elapsed()), vec![])
    }

    /// At the machine's pace, on a stage.
    pub fn run(mut self, mut stage: GamePort, config: &Config) -> Result<Summary, AppError> {
        let begun = Instant::now();
        let can = HudCapabilities { pause: true, fast_forward: true, ..HudCapabilities::default() };
        let mut desk = Hud::new(config, can, &self.pads);
        let mut outfit = Devices::open(config, &[], &stage, &mut desk);
        let (mut pace, mut meter) =
            (FrameTimer::new(begun, self.machine.frame_rate().period().to_duration()), RateMeter::new(begun));
        while self.end.is_none() {
            while let Some(command) = stage.poll_command() {
                desk.handle_command(Instant::now(), command);
                if desk.is_quit_requested() {
                    self.end = Some(ReplayEnd::Quit);
                    break;
                }
            }
            if self.end.is_none() && !desk.is_paused() {
                self.step(true)?;
                outfit.play_sound(&*self.machine, desk.sound_settings(), std::mem::take(&mut self.has_sound_gap));
                meter.count_event(Instant::now());
            }
            desk.set_failure(self.machine.failure());
            self.show(&mut stage, &desk, &meter);
            pace.wait(desk.speed());
        }
        drop(stage);
        self.finish(None, outfit.notes)
    }

    fn show(&self, stage: &mut GamePort, desk: &Hud, meter: &RateMeter) {
        stage.show(|scene| {
            let screen = &mut scene.screens(1)[0];
            screen.caption.clear();
            screen.show(self.machine.picture());
            let verdict = if self.hash_check.is_equal() { "equal" } else { "DIFFERENT" };
            let (frame, compared) = (self.movie.next_frame(), self.hash_check.compared);
            let fps = meter.per_second();
            scene.status = format!("▶ movie   frame {frame}   {fps:.0} fps   {compared} hashes compared, {verdict}");
            scene.graph = None;
            desk.draw(Instant::now(), scene);
        });
    }

    /// Plays up to the end of the next frame.
    fn step(&mut self, fresh: bool) -> Result<(), AppError> {
        loop {
            match self.movie.next_item()? {
                MovieItem::Snapshot(state) => self.restore(&state)?,
                MovieItem::Frame(words) => {
                    self.on_frame(&words, fresh);
                    return Ok(());
                }
                MovieItem::Hash(frame, recorded) => _ = self.hash_check.on_hash(frame, recorded, self.machine.hash()),
                MovieItem::Mark(bytes) if bytes == RESET_MARK => {
                    self.machine.reset();
                    self.has_sound_gap = true;
                }
                MovieItem::Mark(bytes) => {
                    let what = String::from_utf8_lossy(&bytes).into_owned();
                    let frame = self.movie.next_frame();
                    return Err(AppError::failure(format!(
                        "before frame {frame} the movie asks for {what:?}, which is not known"
                    ))
                    .hint("a newer coplay may play it"));
                }
                MovieItem::End => self.end = Some(ReplayEnd::Complete),
                MovieItem::Broken(error) => self.end = Some(ReplayEnd::Broken(error)),
            }
            if self.end.is_some() {
                return Ok(());
            }
        }
    }

    fn on_frame(&mut self, words: &[InputWord; MAX_PLAYERS], fresh: bool) {
        let players = self.movie.settings().ownership.players();
        self.machine.step(&words[..players], fresh);
        self.frames += 1;
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), AppError> {
        self.has_sound_gap = true;
        self.machine.load(state).map_err(|error| {
            AppError::failure(format!("the movie starts in the middle, and its state cannot be loaded: {error}"))
        })
    }

    fn finish(mut self, took: Option<Duration>, notes: Vec<String>) -> Result<Summary, AppError> {
        let hash = self.machine.hash();
        let mut summary = Summary::for_frames(self.frames, took, self.machine.frame_rate());
        let about = match (self.hash_check.is_equal(), self.hash_check.compared) {
            (_, 0) => "the movie has none",
            (true, _) => "all equal",
            (false, _) => "not all equal",
        };
        summary.add_row("hashes", self.hash_check.compared.to_string(), about);
        summary.add_row("state", format!("{hash:016x}"), "hash after the last frame");
        summary.notes = notes;
        summary.notes.extend(failure_note(self.machine.failure()));
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

    fn verdict(&self) -> Option<AppError> {
        if let Some(different) = self.hash_check.first_mismatch {
            let after = |frame: Option<Frame>| frame.map_or("the first frame".into(), |frame| format!("frame {frame}"));
            let equal = after(self.hash_check.last_equal);
            return Some(
                AppError::failure(format!(
                    "the machine went astray: states differ after frame {different}, and were equal up to {equal}"
                ))
                .hint("the machine is not deterministic, or not the one that made the movie"),
            );
        }
        match self.end {
            Some(ReplayEnd::Broken(MovieError::Truncated { frame })) => {
                let what = format!("the movie breaks off before frame {frame}; what came before was played");
                Some(
                    AppError::failure(what)
                        .hint("the recording was interrupted, or the file was not copied as a whole"),
                )
            }
            Some(ReplayEnd::Broken(error)) => {
                let frame = self.movie.next_frame();
                let what = match error {
                    MovieError::Damaged { .. } => {
                        format!("the movie is damaged from frame {frame} on; what came before was played")
                    }
                    error => error.to_string(),
                };
                Some(AppError::failure(what).hint("try another copy of the file"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::solo_settings;
    use crate::toy_machine::ToyMachine;

    #[test]
    fn movie_of_another_game_or_machine_is_rejected() {
        let machine = ToyMachine::new(1);
        let recorded = solo_settings(&machine).unwrap();
        assert_eq!(check_machine(&recorded, &machine), Ok(()));
        let told = check_machine(&recorded, &ToyMachine::new(2)).unwrap_err().to_string();
        assert!(told.contains("of another game") && told.contains("paddles 2"), "{told}");
        let mut newer = recorded.clone();
        newer.machine.version = "2".into();
        let told = check_machine(&newer, &machine).unwrap_err().to_string();
        assert!(told.contains("made with another machine") && told.contains("the movie names toy 2"), "{told}");
    }
}
