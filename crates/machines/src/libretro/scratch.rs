//! Private folders, from which a core's copy is loaded and into which the core may write.
//!
//! A folder is deleted when its [`ScratchDir`] is dropped. A killed process cannot delete its folders, so each folder
//! contains a file that the process has locked. The system releases the lock when the process ends, and the next
//! process that creates a private folder removes all folders whose file is not locked.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;
use std::{env, ffi::OsStr};

use tempfile::{Builder, TempDir};

const FOLDER_PREFIX: &str = "coplay-core-";
const LOCK_FILE: &str = "lock";

/// Age after which a folder without a lock file counts as abandoned.
const MAX_UNLOCKED_AGE: Duration = Duration::from_secs(60);

/// A private folder, deleted on drop.
pub(super) struct ScratchDir {
    // Declared first: some systems do not delete open files.
    _lock: File,
    folder: TempDir,
}

/// Returns the candidate parents of private folders, best first. Not every system lets programs load libraries from its
/// folder for temporary files.
pub(super) fn candidate_folders() -> Vec<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cache")));
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(env::temp_dir()), runtime, cache].into_iter().flatten().filter(|parent| parent.is_dir()).collect()
}

impl ScratchDir {
    /// Creates a private folder in `parent`, readable only by this user. The first call of a process also removes the
    /// folders of dead processes.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| candidate_folders().iter().for_each(|parent| remove_stale_folders(parent)));
        let mut builder = Builder::new();
        builder.prefix(FOLDER_PREFIX);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = builder.tempdir_in(parent)?;
        // The file gets its final name only after it is locked.
        let unnamed = folder.path().join("unlocked");
        let lock = File::create_new(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, folder.path().join(LOCK_FILE))?;
        Ok(Self { _lock: lock, folder })
    }

    /// Creates the subfolder `name` if it is missing, and returns its path.
    pub(super) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Writes a file readable only by this user and returns its path.
    pub(super) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes)?;
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(path)
    }
}

/// Removes the private folders in `parent` whose processes are gone.
fn remove_stale_folders(parent: &Path) {
    let is_ours =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(FOLDER_PREFIX));
    let folders = parent.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_ours);
    for folder in folders.filter(|folder| is_abandoned(folder)) {
        // Best effort: the folder may belong to another user.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Returns whether the process that created a folder is gone. A folder without a lock file is being created or removed,
/// which is quick. If it is older than [`MAX_UNLOCKED_AGE`], its process counts as gone.
fn is_abandoned(folder: &Path) -> bool {
    match File::open(folder.join(LOCK_FILE)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => {
            let changed = fs::metadata(folder).and_then(|data| data.modified()).ok();
            changed.and_then(|changed| changed.elapsed().ok()).is_some_and(|age| age > MAX_UNLOCKED_AGE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_scratch_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let alive = ScratchDir::new(parent.path()).unwrap();
        alive.write("core.so", b"code").unwrap();
        let dead = parent.path().join(format!("{FOLDER_PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK_FILE), "").unwrap();
        let unfinished = parent.path().join(format!("{FOLDER_PREFIX}unfinished"));
        let foreign = parent.path().join("foreign");
        fs::create_dir(&unfinished).unwrap();
        let torn = parent.path().join(format!("{FOLDER_PREFIX}torn"));
        fs::create_dir(&torn).unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * MAX_UNLOCKED_AGE;
        File::open(&torn).unwrap().set_modified(long_ago).unwrap();
        fs::create_dir(&foreign).unwrap();
        remove_stale_folders(parent.path());
        assert!(alive.folder.path().join("core.so").exists() && unfinished.exists() && foreign.exists());
        assert!(!dead.exists() && !torn.exists());
        let path = alive.folder.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }
}
