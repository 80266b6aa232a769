//! The file in which a site writes down what it sends, hears and sees.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use coplay_maze::trace::{HEADER, TraceEntry};

use crate::net::report::unwritable;
use crate::trouble::Trouble;

/// A trace that is being written.
pub(super) struct TraceFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl TraceFile {
    /// Begins a trace; what was in that file is gone.
    pub(super) fn create(path: &Path) -> Result<Self, Trouble> {
        let file = File::create(path).map_err(|error| unwritable(path, &error))?;
        let mut trace = Self { file: BufWriter::new(file), path: path.to_owned() };
        let begun = writeln!(trace.file, "{HEADER}");
        trace.tell(begun)?;
        trace.flush()?;
        Ok(trace)
    }

    pub(super) fn write(&mut self, lines: &[TraceEntry]) -> Result<(), Trouble> {
        for line in lines {
            let written = writeln!(self.file, "{line}");
            self.tell(written)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        let flushed = self.file.flush();
        self.tell(flushed)
    }

    fn tell(&self, done: std::io::Result<()>) -> Result<(), Trouble> {
        done.map_err(|error| unwritable(&self.path, &error))
    }
}
