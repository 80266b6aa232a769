//! Seat keys on disk. After a crash or a power cut, the same command takes the same key and rejoins in the same seat.
//!
//! A key belongs to a group, the games that share a secret or token, or to the file that `--seat` names. Each program
//! locks its key file, so two programs that run at the same time have different keys, except on a file system without
//! locks. The operating system releases the lock when the program ends, however it ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coplay_net::key::Identity;
use coplay_shell::error::{AppError, describe_io_error};
use sha2::{Digest, Sha256};

/// Maximum number of saved keys per group. A program that finds all of them in use gets a key that is not saved.
const MAX_KEYS_PER_GROUP: usize = 64;
/// Time without use after which the keys of a group are removed, 60 days: the games are over by then.
const MAX_KEY_AGE: Duration = Duration::from_secs(60 * 24 * 3_600);
/// First bytes of a key file. The key follows in hexadecimal.
const FILE_HEADER: &str = "coplay seat 1 ";

/// Key by which this site owns its seat, and the lock on the key's file.
#[derive(Debug)]
pub struct SeatKey {
    /// Key pair by which this site authenticates.
    pub identity: Identity,
    /// Open file that holds the lock; `None` for a key that is not saved.
    _lock_file: Option<File>,
}

impl SeatKey {
    /// Returns the key in this file; creates the file if it does not exist. Fails if another program holds the file's
    /// lock, or if the file contains something else than a seat key.
    pub fn from_file(path: &Path) -> Result<Self, AppError> {
        let shown = path.display();
        let failed = |error: &std::io::Error| {
            AppError::failure(format!("cannot use the seat key {shown}: {}", describe_io_error(error)))
                .hint("choose another file with --seat FILE")
        };
        match lock_key_file(path) {
            Ok(Some(seat)) => Ok(seat),
            Ok(None) => Err(AppError::failure(format!("another running coplay uses the seat key {shown}"))
                .hint("choose another file with --seat FILE: each running coplay needs a key of its own")),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(AppError::failure(format!("{shown} is not a seat key"))
                    .hint("choose another file with --seat FILE"))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Returns the first key of a group that no other program holds, from a file below the data folder. If all 64 are
    /// held or damaged, returns a key that is not saved.
    pub fn for_group(data: &Path, group: &str) -> Result<Self, AppError> {
        let seats = data.join("seats");
        let directory = seats.join(group_dir_name(group));
        let failed = |error: &std::io::Error| {
            let message = format!("cannot keep a seat key in {}: {}", directory.display(), describe_io_error(error));
            AppError::failure(message).hint("check the permissions of that folder and the free space on its disk")
        };
        create_private_dir(&directory).map_err(|error| failed(&error))?;
        remove_old_keys(&seats, &directory);
        for number in 0..MAX_KEYS_PER_GROUP {
            match lock_key_file(&directory.join(format!("key-{number}"))) {
                Ok(Some(seat)) => return Ok(seat),
                // Held by another program, or damaged.
                Ok(None) => {}
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(Self::new())
    }

    /// Returns the key that a command uses: that of the file `named`, or else one of the group. Without a data folder
    /// the key is not saved.
    pub fn choose(named: Option<&Path>, group: &str) -> Result<Self, AppError> {
        match (named, crate::config::data_dir()) {
            (Some(path), _) => Self::from_file(path),
            (None, Some(data)) => Self::for_group(&data, group),
            (None, None) => Ok(Self::new()),
        }
    }

    /// Creates a random key that is not saved.
    pub fn new() -> Self {
        Self { identity: Identity::random(), _lock_file: None }
    }
}

impl Default for SeatKey {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the directory name of a group. The name does not reveal the secret or token of the group.
fn group_dir_name(group: &str) -> String {
    hex(&Sha256::digest(format!("coplay seat of {group}").as_bytes())[..16])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Locks a key file and reads its key, or writes a new key into an empty file; `None` if another program holds the
/// lock.
fn lock_key_file(path: &Path) -> std::io::Result<Option<SeatKey>> {
    let mut file = open_private(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        // On a file system without locks, a key that two programs may hold is better than none.
        Err(TryLockError::Error(_)) => {}
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let identity = if text.is_empty() {
        let identity = Identity::random();
        file.write_all(format!("{FILE_HEADER}{}\n", hex(&identity.to_bytes())).as_bytes())?;
        identity
    } else {
        let key = text.strip_prefix(FILE_HEADER).and_then(|key| unhex(key.trim_end()));
        Identity::from_bytes(key.ok_or(std::io::ErrorKind::InvalidData)?)
    };
    // The modification time is the time of the last use, for `remove_old_keys`.
    _ = file.set_modified(SystemTime::now());
    Ok(Some(SeatKey { identity, _lock_file: Some(file) }))
}

#[cfg(unix)]
fn open_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn open_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn create_private_dir(directory: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Removes the keys of groups other than `ours` in which no key was used for [`MAX_KEY_AGE`].
fn remove_old_keys(seats: &Path, ours: &Path) {
    let groups = fs::read_dir(seats).into_iter().flatten().flatten().map(|entry| entry.path());
    for group in groups.filter(|group| group != ours) {
        let keys: Vec<PathBuf> =
            fs::read_dir(&group).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        let used = |key: &PathBuf| fs::metadata(key).and_then(|found| found.modified()).ok();
        let is_old =
            |key: &PathBuf| used(key).and_then(|used| used.elapsed().ok()).is_some_and(|age| age > MAX_KEY_AGE);
        if keys.iter().all(is_old) {
            keys.iter().for_each(|key| _ = fs::remove_file(key));
            _ = fs::remove_dir(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp_dir(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coplay-seat-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn each_program_of_a_group_has_its_own_seat_key() {
        let data = temp_dir("group");
        let key = |seat: &SeatKey| seat.identity.key();
        let (first, second) = (SeatKey::for_group(&data, "a").unwrap(), SeatKey::for_group(&data, "a").unwrap());
        let other = SeatKey::for_group(&data, "b").unwrap();
        assert!(key(&first) != key(&second) && key(&first) != key(&other));
        let before = key(&second);
        drop(second);
        assert_eq!(key(&SeatKey::for_group(&data, "a").unwrap()), before, "a program that returns has its old key");
        fs::remove_dir_all(data).unwrap();
    }

    #[test]
    fn named_seat_key_is_exclusive_and_other_files_are_kept() {
        let data = temp_dir("named");
        let path = data.join("me.key");
        let seat = SeatKey::from_file(&path).unwrap();
        assert!(SeatKey::from_file(&path).unwrap_err().to_string().contains("another running coplay uses"));
        let key = seat.identity.key();
        drop(seat);
        assert_eq!(SeatKey::from_file(&path).unwrap().identity.key(), key);
        fs::write(&path, "my diary").unwrap();
        assert!(SeatKey::from_file(&path).unwrap_err().to_string().contains("is not a seat key"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "my diary");
        fs::remove_dir_all(data).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn seat_key_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let data = temp_dir("mode");
        let _seat = SeatKey::for_group(&data, "a").unwrap();
        let directory = data.join("seats").join(group_dir_name("a"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("key-0"))), (0o700, 0o600));
        fs::remove_dir_all(data).unwrap();
    }
}
