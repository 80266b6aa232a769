//! Records a movie of the confirmed frames of a session.

use std::fs::File;
use std::io::{Seek, Write};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::movie::{MovieStartPoint, MovieWriter};
use coplay::session::Settings;
use coplay_machines::session_adapter::{RequestOutcome, SessionAdapter};

/// A movie being recorded. An error ends the recording, not the game; the summary reports it.
pub struct MovieRecorder {
    file: File,
    writer: Option<MovieWriter>,
    frames: u32,
    /// Whether recording has ended.
    is_finished: bool,
    /// Reason why the recording is incomplete; `None` if it is complete so far.
    error: Option<String>,
}

/// Summary of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingSummary {
    /// Number of recorded frames since the recording was last started.
    pub frames: u32,
    /// Reason why the recording is incomplete; `None` if it is complete.
    pub error: Option<String>,
}

impl MovieRecorder {
    /// Creates a recorder that writes to `file`, which must be empty and stays so if nothing is played.
    pub fn new(file: File) -> Self {
        Self { file, writer: None, frames: 0, is_finished: false, error: None }
    }

    /// Starts the recording, or restarts it and discards the frames recorded before. Has no effect once the recording
    /// has ended.
    pub(super) fn start(&mut self, settings: &Settings, start: MovieStartPoint<'_>) {
        if self.is_finished {
            return;
        }
        if self.writer.is_some() {
            let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
            self.check_written(emptied);
        }
        match MovieWriter::new(settings, start) {
            Ok(writer) => (self.writer, self.frames) = (Some(writer), 0),
            Err(error) => self.stop(&format!("cannot record this game: {error}")),
        }
        self.write_pending();
    }

    pub(super) fn has_started(&self) -> bool {
        self.writer.is_some()
    }

    /// Records the catch-up of a late joiner, from the snapshot that the joiner loads or, without one, from the first
    /// frame. Another snapshot restarts the recording.
    pub(super) fn record_join(&mut self, outcome: &RequestOutcome, adapter: &mut SessionAdapter, settings: &Settings) {
        match outcome {
            RequestOutcome::Loaded { frame } => {
                let mut state = Vec::new();
                match adapter.machine_mut().save(&mut state) {
                    Ok(()) => self.start(settings, MovieStartPoint::Snapshot { frame: *frame, state: &state }),
                    Err(error) => self.stop(&format!("cannot record after a late join: {error}")),
                }
            }
            RequestOutcome::Stepped { frame, .. } => {
                if !self.has_started() {
                    self.start(settings, MovieStartPoint::PowerOn);
                }
                let hash = is_hash_compared(*frame, settings).then(|| adapter.machine_mut().hash());
                self.push_frame(*frame, adapter.inputs(), hash);
            }
            _ => {}
        }
    }

    /// Records a confirmed frame, with the state hash after it if there is one. Skips a frame that is recorded already.
    pub(super) fn push_frame(&mut self, frame: Frame, inputs: &[InputWord], hash: Option<u64>) {
        let Some(writer) = self.writer.as_mut().filter(|writer| !self.is_finished && frame >= writer.next_frame())
        else {
            return;
        };
        let mut pushed = writer.push(frame, inputs);
        if let Some(hash) = hash {
            // Flushing keeps everything up to this frame if the program ends abruptly.
            pushed = pushed.and_then(|()| writer.push_hash(frame, hash)).and_then(|()| writer.flush());
        }
        match pushed {
            Ok(()) => self.frames += 1,
            Err(error) => self.stop(&format!("recording stopped: {error}")),
        }
        self.write_pending();
    }

    /// Ends the recording early; the summary will give the reason.
    pub(super) fn stop(&mut self, reason: &str) {
        if !self.is_finished {
            self.error.get_or_insert_with(|| reason.into());
            self.finish();
        }
    }

    /// Writes the end of the movie. Later calls have no effect.
    pub(super) fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Some(Err(error)) = self.writer.as_mut().map(MovieWriter::finish) {
            self.error.get_or_insert_with(|| error.to_string());
        }
        self.write_pending();
    }

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
            self.error.get_or_insert_with(|| format!("cannot write the recording: {error}"));
        }
    }
}

/// Returns whether sites with these settings compare state hashes after a frame.
pub(super) fn is_hash_compared(frame: Frame, settings: &Settings) -> bool {
    settings.compare_interval > 0 && frame.next().number().is_multiple_of(settings.compare_interval)
}
