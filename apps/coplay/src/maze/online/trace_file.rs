//! File into which a site writes its trace: sent and received updates, displayed avatars, clock offsets and final
//! scores.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use coplay_maze::trace::{HEADER, TraceEntry};
use coplay_shell::error::AppError;

use crate::net::report::write_error;

/// Trace file that is open for writing.
pub(super) struct TraceFile {
    file: BufWriter<File>,
    path: PathBuf,
}

impl TraceFile {
    /// Creates a trace file with its header, overwriting an existing file.
    pub(super) fn create(path: &Path) -> Result<Self, AppError> {
        let file = File::create(path).map_err(|error| write_error(path, &error))?;
        let mut trace = Self { file: BufWriter::new(file), path: path.to_owned() };
        let result = writeln!(trace.file, "{HEADER}");
        trace.check_io(result)?;
        trace.flush()?;
        Ok(trace)
    }

    pub(super) fn write(&mut self, entries: &[TraceEntry]) -> Result<(), AppError> {
        for entry in entries {
            let result = writeln!(self.file, "{entry}");
            self.check_io(result)?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), AppError> {
        let result = self.file.flush();
        self.check_io(result)
    }

    fn check_io(&self, result: std::io::Result<()>) -> Result<(), AppError> {
        result.map_err(|error| write_error(&self.path, &error))
    }
}
