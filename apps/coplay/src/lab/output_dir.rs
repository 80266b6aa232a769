//! Where results are written.

use std::path::{Path, PathBuf};

use crate::error::{AppError, describe_io_error};

/// A folder that can be written to.
pub(super) struct OutputDir(PathBuf);

impl OutputDir {
    /// The folder of this name, made if it is not there. Whether one may write there is found out at once, not after minutes of work.
    pub(super) fn open(path: &Path) -> Result<Self, AppError> {
        let folder = Self(path.into());
        std::fs::create_dir_all(path).map_err(|error| folder.write_error(path, &error))?;
        let probe = path.join(format!(".coplay-{}", std::process::id()));
        std::fs::write(&probe, b"").map_err(|error| folder.write_error(path, &error))?;
        // If it cannot be taken away it does no harm.
        _ = std::fs::remove_file(probe);
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and says where it is.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, AppError> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).map_err(|error| self.write_error(&path, &error))?;
        Ok(path)
    }

    fn write_error(&self, path: &Path, error: &std::io::Error) -> AppError {
        AppError::failure(format!("{} cannot be written: {}", path.display(), describe_io_error(error)))
            .hint("say --out with a folder that you may write to")
    }
}
