//! Private folders: where a core's copy is loaded from and where it may write.
//!
//! A folder goes when its owner goes. An owner that was killed cannot remove it, so each folder holds a file that its owner has locked: the
//! system gives up the lock with the process, and the next program that makes a folder removes those that nobody holds.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;
use std::{env, ffi::OsStr};

use tempfile::{Builder, TempDir};

const FOLDER_PREFIX: &str = "coplay-core-";
const LOCK_FILE: &str = "lock";

/// How long a folder can be without a lock.
const MAX_UNLOCKED_AGE: Duration = Duration::from_secs(60);

/// A private folder.
pub(super) struct ScratchDir {
    // In this order: some systems remove no file that is open.
    _lock: File,
    folder: TempDir,
}

/// Where private folders can be, the best place first. Not every system lets programs be loaded from its folder for temporary files.
pub(super) fn candidate_folders() -> Vec<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cache")));
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(env::temp_dir()), runtime, cache].into_iter().flatten().filter(|place| place.is_dir()).collect()
}

impl ScratchDir {
    /// Makes one in a place. Nobody else on this computer can look into it.
    pub(super) fn new(place: &Path) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| candidate_folders().iter().for_each(|place| remove_stale_folders(place)));
        let mut builder = Builder::new();
        builder.prefix(FOLDER_PREFIX);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = builder.tempdir_in(place)?;
        // Under its name the file is locked from the first moment on.
        let unnamed = folder.path().join("unlocked");
        let lock = File::create_new(&unnamed)?;
        lock.lock()?;
        fs::rename(unnamed, folder.path().join(LOCK_FILE))?;
        Ok(Self { _lock: lock, folder })
    }

    /// A folder in it.
    pub(super) fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Writes a file into it, for the owner's eyes only.
    pub(super) fn write(&self, name: impl AsRef<Path>, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes)?;
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(path)
    }
}

/// Removes what the dead have left.
fn remove_stale_folders(place: &Path) {
    let ours =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(FOLDER_PREFIX));
    let folders = place.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()).filter(ours);
    for folder in folders.filter(|folder| is_abandoned(folder)) {
        // Best effort: it may be another user's.
        let _ = fs::remove_dir_all(folder);
    }
}

/// Whether nobody holds a folder. One without a lock is being made or removed, which takes no time unless its owner died over it.
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
        let place = tempfile::tempdir().unwrap();
        let alive = ScratchDir::new(place.path()).unwrap();
        alive.write("core.so", b"code").unwrap();
        let dead = place.path().join(format!("{FOLDER_PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK_FILE), "").unwrap();
        let unfinished = place.path().join(format!("{FOLDER_PREFIX}unfinished"));
        let foreign = place.path().join("foreign");
        fs::create_dir(&unfinished).unwrap();
        let torn = place.path().join(format!("{FOLDER_PREFIX}torn"));
        fs::create_dir(&torn).unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * MAX_UNLOCKED_AGE;
        File::open(&torn).unwrap().set_modified(long_ago).unwrap();
        fs::create_dir(&foreign).unwrap();
        remove_stale_folders(place.path());
        assert!(alive.folder.path().join("core.so").exists() && unfinished.exists() && foreign.exists());
        assert!(!dead.exists() && !torn.exists());
        let path = alive.folder.path().to_owned();
        drop(alive);
        assert!(!path.exists());
    }
}
