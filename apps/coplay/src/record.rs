//! Keeps a movie of what is played: appended block by block, so that whatever ends the program, all but the last second is there.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::movie::{MovieStart, MovieWriter};
use coplay::session::{AbsentInput, Settings, StarvationPolicy};
use coplay_machines::Machine;

use crate::error::{AppError, describe_io_error};

/// Frames from one hash, and one block, to the next.
pub const HASH_INTERVAL: u32 = 60;
/// The mark of a machine that was switched off and on.
pub const RESET_MARK: &[u8] = b"reset";

/// A movie that is being made.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    writer: MovieWriter,
}

/// The settings of a game that one site plays alone: all pads are its own.
pub fn solo_settings(machine: &dyn Machine) -> Result<Settings, AppError> {
    let pads = machine.pads();
    let mut ownership = Ownership::new(pads.len());
    let (site, unfit) = (SiteId::first(1).next(), |what: String| AppError::failure(what));
    for (player, pad) in pads.iter().enumerate() {
        if let Some(site) = site {
            ownership.assign(site, player, pad.mask).map_err(|error| unfit(error.to_string()))?;
        }
    }
    Ok(Settings {
        game: machine.game_id().clone(),
        machine: machine.machine_id().clone(),
        rate: machine.frame_rate(),
        input_delay: 0,
        prediction_window: 0,
        auto_tune: false,
        compare_interval: HASH_INTERVAL,
        absent_input: AbsentInput::default(),
        starvation_policy: StarvationPolicy::default(),
        // A session has at least two seats; the second one stays free.
        site_count: 2,
        starting_sites: SiteSet::first(1),
        ownership,
    })
}

/// A new file for a movie. What is there already is only overwritten by `force`.
pub fn create_movie_file(path: &Path, force: bool) -> Result<File, AppError> {
    let mut options = OpenOptions::new();
    options.write(true);
    let opened = if force { options.create(true).truncate(true) } else { options.create_new(true) }.open(path);
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            AppError::usage(format!("{} exists already and is not overwritten", path.display()))
                .hint("choose another name, or say --force")
        }
        std::io::ErrorKind::NotFound => {
            AppError::failure(format!("{} cannot be written: there is no such directory", path.display()))
                .hint("make the directory first, or choose another place")
        }
        _ => AppError::failure(format!("{} cannot be written: {}", path.display(), describe_io_error(&error)))
            .hint("choose a place that you may write to"),
    })
}

impl Recorder {
    /// Begins a movie with a machine just switched on. What is there already is only overwritten by `force`.
    pub fn begin(path: &Path, force: bool, machine: &dyn Machine) -> Result<Self, AppError> {
        let settings = solo_settings(machine)?;
        let writer = MovieWriter::new(&settings, MovieStart::PowerOn)
            .map_err(|error| AppError::failure(format!("this game cannot be recorded: {error}")))?;
        let file = create_movie_file(path, force)?;
        let mut recorder = Self { path: path.to_owned(), file, writer };
        recorder.write_pending()?;
        Ok(recorder)
    }

    /// A frame was stepped with these words; `hash` is asked for where the movie wants one.
    pub fn push_frame(&mut self, words: &[InputWord], hash: impl FnOnce() -> u64) -> Result<(), AppError> {
        let frame = self.writer.next_frame();
        self.write(|writer| writer.push(frame, words))?;
        if frame.next().number().is_multiple_of(HASH_INTERVAL) {
            let hash = hash();
            self.write(|writer| writer.push_hash(frame, hash))?;
            self.write(MovieWriter::flush)?;
        }
        self.write_pending()
    }

    /// The machine is switched off and on before the next frame.
    pub fn push_reset(&mut self) -> Result<(), AppError> {
        let frame = self.writer.next_frame();
        self.write(|writer| writer.push_mark(frame, RESET_MARK))
    }

    /// Ends the movie, with the hash of the last state.
    pub fn finish(mut self, hash: u64) -> Result<Frame, AppError> {
        let next = self.writer.next_frame();
        // The last frame may have its hash already.
        if let Some(last) = next.checked_sub(1)
            && !next.number().is_multiple_of(HASH_INTERVAL)
        {
            self.write(|writer| writer.push_hash(last, hash))?;
        }
        self.write(MovieWriter::finish)?;
        self.write_pending()?;
        Ok(next)
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write<E: ToString>(&mut self, put: impl FnOnce(&mut MovieWriter) -> Result<(), E>) -> Result<(), AppError> {
        put(&mut self.writer)
            .map_err(|error| AppError::failure(format!("the movie cannot go on: {}", error.to_string())))
    }

    fn write_pending(&mut self) -> Result<(), AppError> {
        while let Some(bytes) = self.writer.poll_bytes() {
            self.file.write_all(bytes).map_err(|error| {
                let what =
                    format!("{} cannot be written any further: {}", self.path.display(), describe_io_error(&error));
                AppError::failure(what).hint("what was recorded so far can be replayed")
            })?;
        }
        Ok(())
    }
}
