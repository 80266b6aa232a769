//! Records a movie of a local game. The file grows block by block, so that a crash loses at most the last 60 frames.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use coplay::frame::Frame;
use coplay::id::{SiteId, SiteSet};
use coplay::input::{InputWord, Ownership};
use coplay::movie::{MovieStartPoint, MovieWriter};
use coplay::session::{AbsentInput, Settings, StarvationPolicy};
use coplay_machines::Machine;
use coplay_shell::error::{AppError, describe_io_error};

/// Frames between two recorded state hashes, and between two blocks of the file.
pub const HASH_INTERVAL: u32 = 60;
/// Content of the mark that records a reset of the machine.
pub const RESET_MARK: &[u8] = b"reset";

/// Movie that is being recorded to a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    writer: MovieWriter,
}

/// Returns the settings under which a local game is recorded: one site, which owns all pads.
pub fn solo_settings(machine: &dyn Machine) -> Result<Settings, AppError> {
    let pads = machine.pads();
    let mut ownership = Ownership::new(pads.len());
    let site = SiteId::first(1).next();
    for (player, pad) in pads.iter().enumerate() {
        if let Some(site) = site {
            ownership.assign(site, player, pad.mask).map_err(|error| {
                AppError::failure(format!("cannot record this game: {error}")).hint("leave out --record")
            })?;
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

/// Returns the hint for a recording that failed after its start: how to play the frames recorded so far.
fn replay_hint(path: &Path) -> String {
    format!("`coplay replay {}`, with the same game and core, plays the frames recorded so far", path.display())
}

/// Creates the file of a movie. Fails if the file exists, unless `force` is set.
pub fn create_movie_file(path: &Path, force: bool) -> Result<File, AppError> {
    let mut options = OpenOptions::new();
    options.write(true);
    let opened = if force { options.create(true).truncate(true) } else { options.create_new(true) }.open(path);
    opened.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => AppError::usage(format!("{} already exists", path.display()))
            .hint("choose another name, or use --force to overwrite it"),
        std::io::ErrorKind::NotFound => {
            AppError::failure(format!("cannot write {}: there is no such folder", path.display()))
                .hint("create the folder first, or choose another one")
        }
        _ => AppError::failure(format!("cannot write {}: {}", path.display(), describe_io_error(&error)))
            .hint("choose another file with --record FILE, in a folder with write permission and free space"),
    })
}

impl Recorder {
    /// Starts a movie of `machine`, which must not have stepped a frame. Fails if the file exists, unless `force` is
    /// set.
    pub fn begin(path: &Path, force: bool, machine: &dyn Machine) -> Result<Self, AppError> {
        let settings = solo_settings(machine)?;
        let writer = MovieWriter::new(&settings, MovieStartPoint::PowerOn).map_err(|error| {
            AppError::failure(format!("cannot record this game: {error}")).hint("leave out --record")
        })?;
        let file = create_movie_file(path, force)?;
        let mut recorder = Self { path: path.to_owned(), file, writer };
        recorder.write_pending()?;
        Ok(recorder)
    }

    /// Records a frame with these input words. Every 60 frames it also records `hash` and writes a block to the file.
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

    /// Records a reset of the machine before the next frame.
    pub fn push_reset(&mut self) -> Result<(), AppError> {
        let frame = self.writer.next_frame();
        self.write(|writer| writer.push_mark(frame, RESET_MARK))
    }

    /// Ends the movie with the hash of the state after the last frame, and returns the number of frames.
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

    /// Returns the path of the movie's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write<E: ToString>(&mut self, put: impl FnOnce(&mut MovieWriter) -> Result<(), E>) -> Result<(), AppError> {
        put(&mut self.writer)
            .map_err(|error| AppError::failure(format!("cannot record the movie any further: {}", error.to_string())))
            .map_err(|error| error.hint(replay_hint(&self.path)))
    }

    fn write_pending(&mut self) -> Result<(), AppError> {
        while let Some(bytes) = self.writer.poll_bytes() {
            self.file.write_all(bytes).map_err(|error| {
                let message = format!("cannot write the movie {}: {}", self.path.display(), describe_io_error(&error));
                AppError::failure(message).hint(replay_hint(&self.path))
            })?;
        }
        Ok(())
    }
}
