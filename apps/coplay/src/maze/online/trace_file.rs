//! The file in which a site writes down what it sends, hears and sees.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use coplay_maze::trace::{HEADER, TraceEntry};

use crate::error::AppError;
use crate::net::report::write_error;

/// A trace that is being written.
pub(super) struct TraceFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl TraceFile {
    /// Begins a trace; what was in that file is gone.
    pub(super) fn create(path: &Path) -> Result<Self, AppError> {
        let file = File::create(path).map_err(|error| write_error(path, &error))?;
        let mut trace = Self { file: BufWriter::new(file), path: path.to_owned() };
        let begun = writeln!(trace.file, "{HEADER}");
        trace.check_io(begun)?;
        trace.flush()?;
        Ok(trace)
    }

    pub(super) fn write(&mut self, lines: &[TraceEntry]) -> Result<(), AppError> {
        for line in lines {
            let written = writeln!(self.file, "{line}");
            self.check_io(written)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), AppError> {
        let flushed = self.file.flush();
        self.check_io(flushed)
    }

    fn check_io(&self, done: std::io::Result<()>) -> Result<(), AppError> {
        done.map_err(|error| write_error(&self.path, &error))
    }
}
