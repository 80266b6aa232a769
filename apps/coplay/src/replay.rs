//! `coplay replay`: plays a movie, and checks that the machine reaches the recorded states.

use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::movie::{HashComparison, MovieError};
use coplay::session::Settings;
use coplay_machines::Machine;
use coplay_machines::control::{ControlledMachine, has_control_player};
use coplay_machines::pad::PadLayout;
use coplay_shell::error::AppError;

use crate::config::UserSettings;
use crate::frame_timer::FrameTimer;
use crate::game::BUILT_IN_MACHINE;
use crate::hud::{Hud, HudCapabilities, failure_note};
use crate::movie_file::{MovieFile, MovieItem};
use crate::rate_meter::RateMeter;
use crate::record::RESET_MARK;
use crate::speaker_and_gamepads::SpeakerAndGamepads;
use crate::summary::Summary;
use crate::ui_link::GamePort;

/// Movie, and the machine that replays it.
pub struct Replay {
    machine: Box<dyn Machine>,
    /// Pads of the players, without the control player that the movie of a shared game has in addition.
    pads: Vec<PadLayout>,
    movie: MovieFile,
    hash_check: HashComparison,
    frames: u64,
    /// Reason for which the replay has ended; `None` while it runs.
    end: Option<ReplayEnd>,
    has_sound_gap: bool,
}

/// Reason for which a replay ended.
#[derive(Clone, Debug)]
enum ReplayEnd {
    Complete,
    Broken(MovieError),
    /// The user quit, or a signal asked the program to end.
    Quit,
}

/// Checks that machine and game are those of a recorded movie; the error names the first difference.
pub fn check_machine(recorded: &Settings, machine: &dyn Machine) -> Result<(), AppError> {
    let ours = Settings { game: machine.game_id().clone(), machine: machine.machine_id().clone(), ..recorded.clone() };
    let differences = ours.differences(recorded);
    let Some(first) = differences.first() else { return Ok(()) };
    let difference = format!("{} is {} here and {} in the movie", first.setting, first.ours, first.theirs);
    Err(match first.setting.as_str() {
        "the game" => AppError::failure(format!("the movie is of another game: {difference}"))
            .hint("give the file of the recorded game: `coplay replay FILE GAME`"),
        _ => AppError::failure(format!("the movie was recorded with another machine: {difference}"))
            .hint(machine_hint(recorded, machine)),
    })
}

/// Returns a hint that says how to open the machine that recorded a movie, in place of `ours`.
fn machine_hint(recorded: &Settings, ours: &dyn Machine) -> String {
    let (machine, has_same_name) = (&recorded.machine, recorded.machine.name == ours.machine_id().name);
    let version = &machine.version;
    match (machine.name.as_str(), has_same_name) {
        (BUILT_IN_MACHINE, false) => format!("leave out --core: the movie needs the built-in NES, version {version}"),
        (BUILT_IN_MACHINE, true) => {
            format!("use the version of coplay that recorded the movie, with the built-in NES, version {version}")
        }
        (name, false) => format!("use --core CORE: the movie needs the core {name}, version {version}"),
        (name, true) => format!(
            "the movie needs the core {name}, version {version}: install that version, and use the same BIOS images \
             (--system DIR)"
        ),
    }
}

impl Replay {
    /// Prepares to replay a movie. Fails if the machine or its game differs from the recorded one.
    pub fn new(movie: MovieFile, machine: Box<dyn Machine>) -> Result<Self, AppError> {
        check_machine(movie.settings(), &*machine)?;
        let pads = machine.pads().to_vec();
        let is_shared = has_control_player(movie.settings());
        let machine: Box<dyn Machine> = if is_shared { Box::new(ControlledMachine::new(machine)) } else { machine };
        Ok(Self {
            machine,
            pads,
            movie,
            hash_check: HashComparison::default(),
            frames: 0,
            end: None,
            has_sound_gap: false,
        })
    }

    /// Replays as fast as possible, without picture and sound.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let started = Instant::now();
        while self.end.is_none() {
            self.step(false)?;
            if crate::signals::is_stop_requested() {
                self.end.get_or_insert(ReplayEnd::Quit);
            }
        }
        self.finish(Some(started.elapsed()), vec![])
    }

    /// Replays at the machine's frame rate with a front end, until the movie ends or the user quits.
    pub fn run(mut self, mut ui: GamePort, config: &UserSettings) -> Result<Summary, AppError> {
        let started = Instant::now();
        let capabilities = HudCapabilities { pause: true, fast_forward: true, ..HudCapabilities::default() };
        let mut hud = Hud::new(config, capabilities, &self.pads);
        let mut devices = SpeakerAndGamepads::open(config, &[], &ui, &mut hud);
        let mut timer = FrameTimer::new(started, self.machine.frame_rate().period().to_duration());
        let mut meter = RateMeter::new(started);
        while self.end.is_none() {
            while let Some(command) = ui.poll_command() {
                hud.handle_command(Instant::now(), command);
                if hud.is_quit_requested() {
                    self.end = Some(ReplayEnd::Quit);
                    break;
                }
            }
            if self.end.is_none() && !hud.is_paused() {
                self.step(true)?;
                devices.play_sound(&*self.machine, hud.sound_settings(), std::mem::take(&mut self.has_sound_gap));
                meter.count_event(Instant::now());
            }
            hud.set_failure(self.machine.failure());
            self.show(&mut ui, &hud, &meter);
            timer.wait(hud.speed());
        }
        drop(ui);
        self.finish(None, devices.notes)
    }

    fn show(&self, ui: &mut GamePort, hud: &Hud, meter: &RateMeter) {
        ui.show(|scene| {
            let screen = &mut scene.screens(1)[0];
            screen.caption.clear();
            screen.show(self.machine.picture());
            let verdict = if self.hash_check.is_equal() { "all equal" } else { "DIFFERENT" };
            let (frame, compared) = (self.movie.next_frame(), self.hash_check.compared);
            let fps = meter.per_second();
            scene.status = format!("▶ movie   frame {frame}   {fps:.0} fps   {compared} states compared: {verdict}");
            scene.graph = None;
            hud.draw(Instant::now(), scene);
        });
    }

    /// Replays up to the end of the next frame, or to the end of the movie.
    fn step(&mut self, render: bool) -> Result<(), AppError> {
        loop {
            match self.movie.next_item()? {
                MovieItem::Snapshot(state) => self.restore(&state)?,
                MovieItem::Frame(words) => {
                    self.on_frame(&words, render);
                    return Ok(());
                }
                MovieItem::Hash(frame, recorded) => _ = self.hash_check.on_hash(frame, recorded, self.machine.hash()),
                MovieItem::Mark(bytes) if bytes == RESET_MARK => {
                    self.machine.reset();
                    self.has_sound_gap = true;
                }
                MovieItem::Mark(bytes) => {
                    let mark = String::from_utf8_lossy(&bytes).into_owned();
                    let frame = self.movie.next_frame();
                    return Err(AppError::failure(format!(
                        "the movie has an unknown mark {mark:?} before frame {frame}"
                    ))
                    .hint("try a newer version of coplay"));
                }
                MovieItem::End => self.end = Some(ReplayEnd::Complete),
                MovieItem::Broken(error) => self.end = Some(ReplayEnd::Broken(error)),
            }
            if self.end.is_some() {
                return Ok(());
            }
        }
    }

    fn on_frame(&mut self, words: &[InputWord; MAX_PLAYERS], render: bool) {
        let players = self.movie.settings().ownership.players();
        self.machine.step(&words[..players], render);
        self.frames += 1;
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), AppError> {
        self.has_sound_gap = true;
        self.machine
            .load(state)
            .map_err(|error| AppError::failure(format!("cannot load the start state of the movie: {error}")))
            .map_err(|error| error.hint("use the same machine as for the recording, or try another copy of the file"))
    }

    fn finish(mut self, elapsed: Option<Duration>, notes: Vec<String>) -> Result<Summary, AppError> {
        let hash = self.machine.hash();
        let mut summary = Summary::for_frames(self.frames, elapsed, self.machine.frame_rate());
        let about = match (self.hash_check.is_equal(), self.hash_check.compared) {
            (_, 0) => "state hashes in the replayed part of the movie, so no states were compared",
            (true, _) => "state hashes compared, all equal",
            (false, _) => "state hashes compared, not all equal",
        };
        summary.add_row("hashes", self.hash_check.compared.to_string(), about);
        summary.add_row("state", format!("{hash:016x}"), "state hash after the last frame");
        summary.notes = notes;
        summary.notes.extend(failure_note(self.machine.failure()));
        match self.verdict() {
            None => Ok(summary),
            Some(error) => {
                // The result of the frames before the error is valid.
                summary.print();
                Err(error)
            }
        }
    }

    fn verdict(&self) -> Option<AppError> {
        if let Some(different) = self.hash_check.first_mismatch {
            let equal = self.hash_check.last_equal;
            let equal = equal.map_or("the start".into(), |frame: Frame| format!("frame {frame}"));
            return Some(
                AppError::failure(format!(
                    "the replay diverged between {equal} and frame {different}: the states differ"
                ))
                .hint("run `coplay check` with the same game and core: the machine may not be deterministic"),
            );
        }
        match self.end {
            Some(ReplayEnd::Broken(MovieError::Truncated { frame })) => {
                let message = format!("the movie ends early, before frame {frame}; all earlier frames were played");
                Some(AppError::failure(message).hint("copy the whole file again, unless its recording was interrupted"))
            }
            Some(ReplayEnd::Broken(error)) => {
                let frame = self.movie.next_frame();
                let message = match error {
                    MovieError::Damaged { .. } => {
                        format!("the movie is damaged from frame {frame} on; all earlier frames were played")
                    }
                    error => error.to_string(),
                };
                Some(AppError::failure(message).hint("try another copy of the file"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::solo_settings;
    use crate::test_machine::ToyMachine;

    #[test]
    fn movie_of_another_game_or_machine_is_rejected() {
        let machine = ToyMachine::new(1);
        let recorded = solo_settings(&machine).unwrap();
        assert_eq!(check_machine(&recorded, &machine), Ok(()));
        let error = check_machine(&recorded, &ToyMachine::new(2)).unwrap_err().to_string();
        assert!(error.contains("of another game") && error.contains("paddles 2"), "{error}");
        let mut newer = recorded.clone();
        newer.machine.version = "2".into();
        let error = check_machine(&newer, &machine).unwrap_err().to_string();
        assert!(error.contains("with another machine") && error.contains("needs the core toy, version 2"), "{error}");
    }
}
