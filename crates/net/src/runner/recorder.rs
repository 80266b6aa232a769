//! A movie of what a session played, as it becomes certain.

use std::fs::File;
use std::io::{Seek, Write};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::movie::{MovieStart, MovieWriter};
use coplay::session::Settings;
use coplay_machines::session_adapter::{RequestOutcome, SessionAdapter};

/// A movie in the making. What goes wrong with it does not stop the game, and is told at the end.
pub struct MovieRecorder {
    file: File,
    writer: Option<MovieWriter>,
    frames: u32,
    /// It goes no further, and why if that was not meant.
    is_finished: bool,
    error: Option<String>,
}

/// What is on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// So many frames.
    pub frames: u32,
    /// Why not all of them, if so.
    pub error: Option<String>,
}

impl MovieRecorder {
    /// A movie in a file that is empty. It stays empty if nothing is played.
    pub fn new(file: File) -> Self {
        Self { file, writer: None, frames: 0, is_finished: false, error: None }
    }

    /// Begins, or begins anew: what was on record before is gone.
    pub(super) fn start(&mut self, settings: &Settings, start: MovieStart<'_>) {
        if self.is_finished {
            return;
        }
        if self.writer.is_some() {
            let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
            self.check_written(emptied);
        }
        match MovieWriter::new(settings, start) {
            Ok(writer) => (self.writer, self.frames) = (Some(writer), 0),
            Err(error) => self.stop(&format!("this game cannot be recorded: {error}")),
        }
        self.write_pending();
    }

    /// Whether anything is on record.
    pub(super) fn has_started(&self) -> bool {
        self.writer.is_some()
    }

    /// Goes along with who comes late, from the state that it is given on. With another state it begins anew.
    pub(super) fn record_join(&mut self, turn: &RequestOutcome, hosted: &mut SessionAdapter, settings: &Settings) {
        match turn {
            RequestOutcome::Loaded { frame } => {
                let mut state = Vec::new();
                match hosted.machine_mut().save(&mut state) {
                    Ok(()) => self.start(settings, MovieStart::Snapshot { frame: *frame, state: &state }),
                    Err(error) => self.stop(&format!("a recording cannot begin here: {error}")),
                }
            }
            RequestOutcome::Stepped { frame, .. } => {
                if !self.has_started() {
                    self.start(settings, MovieStart::PowerOn);
                }
                let hash = is_hash_compared(*frame, settings).then(|| hosted.machine_mut().hash());
                self.push_frame(*frame, hosted.inputs(), hash);
            }
            _ => {}
        }
    }

    /// A frame that is certain, and perhaps the hash of the state after it. What is on record already is passed over.
    pub(super) fn push_frame(&mut self, frame: Frame, inputs: &[InputWord], hash: Option<u64>) {
        let Some(writer) = self.writer.as_mut().filter(|writer| !self.is_finished && frame >= writer.next_frame())
        else {
            return;
        };
        let mut pushed = writer.push(frame, inputs);
        if let Some(hash) = hash {
            // Whatever ends the program, all up to here is there.
            pushed = pushed.and_then(|()| writer.push_hash(frame, hash)).and_then(|()| writer.flush());
        }
        match pushed {
            Ok(()) => self.frames += 1,
            Err(error) => self.stop(&format!("the recording breaks off: {error}")),
        }
        self.write_pending();
    }

    /// It goes no further.
    pub(super) fn stop(&mut self, why: &str) {
        if !self.is_finished {
            self.error.get_or_insert_with(|| why.into());
            self.finish();
        }
    }

    /// The movie is whole.
    pub(super) fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Some(Err(error)) = self.writer.as_mut().map(MovieWriter::finish) {
            self.error.get_or_insert_with(|| error.to_string());
        }
        self.write_pending();
    }

    /// What it came to.
    pub(super) fn summary(&self) -> RecordingSummary {
        RecordingSummary { frames: self.frames, error: self.error.clone() }
    }

    fn write_pending(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let mut written = Ok(());
        while let Some(bytes) = writer.poll_bytes() {
            written = written.and_then(|()| self.file.write_all(bytes));
        }
        self.check_written(written);
    }

    fn check_written(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.is_finished = true;
            self.error.get_or_insert_with(|| format!("the recording cannot be written any further: {error}"));
        }
    }
}

/// Whether states are compared after a frame.
pub(super) fn is_hash_compared(frame: Frame, settings: &Settings) -> bool {
    settings.compare_interval > 0 && frame.next().number().is_multiple_of(settings.compare_interval)
}
