//! Folder into which experiments write their results.

use std::path::{Path, PathBuf};

use coplay_shell::error::{AppError, describe_io_error};

/// Folder into which files could be written when it was opened.
pub(crate) struct OutputDir(PathBuf);

impl OutputDir {
    /// Opens the folder, and creates it if it does not exist. Writes and removes a test file, so that a missing write
    /// permission is found before the experiments run.
    pub(crate) fn open(path: &Path) -> Result<Self, AppError> {
        let dir = Self(path.into());
        std::fs::create_dir_all(path).map_err(|error| dir.write_error(path, &error))?;
        let probe = path.join(format!(".coplay-{}", std::process::id()));
        std::fs::write(&probe, b"").map_err(|error| dir.write_error(path, &error))?;
        // An empty file that stays does no harm.
        _ = std::fs::remove_file(probe);
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with this name into the folder, and returns its path.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, AppError> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).map_err(|error| self.write_error(&path, &error))?;
        Ok(path)
    }

    fn write_error(&self, path: &Path, error: &std::io::Error) -> AppError {
        AppError::failure(format!("cannot write {}: {}", path.display(), describe_io_error(error)))
            .hint("choose a folder with free space and write permission with --out DIR")
    }
}
