//! A movie of what a session played, as it becomes certain.

use std::fs::File;
use std::io::{Seek, Write};

use coplay::frame::Frame;
use coplay::input::InputWord;
use coplay::movie::{MovieStart, MovieWriter};
use coplay::session::Settings;
use coplay_machines::hosted::{Hosted, Turn};

/// A movie in the making. What goes wrong with it does not stop the game, and is told at the end.
pub struct Tape {
    file: File,
    writer: Option<MovieWriter>,
    frames: u32,
    /// It goes no further, and why if that was not meant.
    over: bool,
    trouble: Option<String>,
}

/// What is on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taped {
    /// So many frames.
    pub frames: u32,
    /// Why not all of them, if so.
    pub trouble: Option<String>,
}

impl Tape {
    /// A movie in a file that is empty. It stays empty if nothing is played.
    pub fn new(file: File) -> Self {
        Self { file, writer: None, frames: 0, over: false, trouble: None }
    }

    /// Begins, or begins anew: what was on record before is gone.
    pub(super) fn begin(&mut self, settings: &Settings, start: MovieStart<'_>) {
        if self.over {
            return;
        }
        if self.writer.is_some() {
            let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
            self.note(emptied);
        }
        match MovieWriter::new(settings, start) {
            Ok(writer) => (self.writer, self.frames) = (Some(writer), 0),
            Err(error) => self.stop(&format!("this game cannot be recorded: {error}")),
        }
        self.drain();
    }

    /// Whether anything is on record.
    pub(super) fn has_begun(&self) -> bool {
        self.writer.is_some()
    }

    /// Goes along with who comes late, from the state that it is given on. With another state it begins anew.
    pub(super) fn follow(&mut self, turn: &Turn, hosted: &mut Hosted, settings: &Settings) {
        match turn {
            Turn::Loaded { frame } => {
                let mut state = Vec::new();
                match hosted.machine_mut().save(&mut state) {
                    Ok(()) => self.begin(settings, MovieStart::Snapshot { frame: *frame, state: &state }),
                    Err(error) => self.stop(&format!("a recording cannot begin here: {error}")),
                }
            }
            Turn::Stepped { frame, .. } => {
                if !self.has_begun() {
                    self.begin(settings, MovieStart::PowerOn);
                }
                let hash = is_compared(*frame, settings).then(|| hosted.machine_mut().hash());
                self.push(*frame, hosted.inputs(), hash);
            }
            _ => {}
        }
    }

    /// A frame that is certain, and perhaps the hash of the state after it. What is on record already is passed over.
    pub(super) fn push(&mut self, frame: Frame, inputs: &[InputWord], hash: Option<u64>) {
        let Some(writer) = self.writer.as_mut().filter(|writer| !self.over && frame >= writer.next_frame()) else {
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
        self.drain();
    }

    /// It goes no further.
    pub(super) fn stop(&mut self, why: &str) {
        if !self.over {
            self.trouble.get_or_insert_with(|| why.into());
            self.end();
        }
    }

    /// The movie is whole.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if let Some(Err(error)) = self.writer.as_mut().map(MovieWriter::finish) {
            self.trouble.get_or_insert_with(|| error.to_string());
        }
        self.drain();
    }

    /// What it came to.
    pub(super) fn taped(&self) -> Taped {
        Taped { frames: self.frames, trouble: self.trouble.clone() }
    }

    fn drain(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        let mut written = Ok(());
        while let Some(bytes) = writer.poll_bytes() {
            written = written.and_then(|()| self.file.write_all(bytes));
        }
        self.note(written);
    }

    fn note(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.over = true;
            self.trouble.get_or_insert_with(|| format!("the recording cannot be written any further: {error}"));
        }
    }
}

/// Whether states are compared after a frame.
pub(super) fn is_compared(frame: Frame, settings: &Settings) -> bool {
    settings.compare_interval > 0 && frame.next().number().is_multiple_of(settings.compare_interval)
}
