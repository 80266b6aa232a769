//! Where results are written.

use std::path::{Path, PathBuf};

use crate::trouble::{Trouble, in_words};

/// A folder that can be written to.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder of this name, made if it is not there. Whether one may write there is found out at once, not after minutes of work.
    pub(super) fn open(path: &Path) -> Result<Self, Trouble> {
        let folder = Self(path.into());
        std::fs::create_dir_all(path).map_err(|error| folder.unwritable(path, &error))?;
        let probe = path.join(format!(".coplay-{}", std::process::id()));
        std::fs::write(&probe, b"").map_err(|error| folder.unwritable(path, &error))?;
        // If it cannot be taken away it does no harm.
        _ = std::fs::remove_file(probe);
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and says where it is.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Trouble> {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).map_err(|error| self.unwritable(&path, &error))?;
        Ok(path)
    }

    fn unwritable(&self, path: &Path, error: &std::io::Error) -> Trouble {
        Trouble::failure(format!("{} cannot be written: {}", path.display(), in_words(error)))
            .hint("say --out with a folder that you may write to")
    }
}
