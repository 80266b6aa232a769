//! The key of a seat, kept on disk: who was thrown out of a game, by a crash or a power cut, starts the same command again and is back in
//! its seat.
//!
//! A key belongs to a group of people, who share a secret. Two programs of one group on one computer have different keys: each holds a
//! lock on its own, which the system takes away when the program ends, however it ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coplay_net::key::Identity;
use sha2::{Digest, Sha256};

use crate::error::{AppError, describe_io_error};

/// Programs of one group on one computer.
const MAX_KEYS_PER_GROUP: usize = 64;
/// A key that was not used for so long belongs to a game that is over.
const MAX_KEY_AGE: Duration = Duration::from_secs(60 * 24 * 3_600);
/// What a key's file begins with; the key follows in hexadecimal.
const FILE_HEADER: &str = "coplay seat 1 ";

/// A key, and the lock on its file.
#[derive(Debug)]
pub struct SeatKey {
    /// Who we are.
    pub identity: Identity,
    /// Kept open: the lock goes with it.
    _lock_file: Option<File>,
}

impl SeatKey {
    /// The key in this file; a new one if there is none.
    pub fn from_file(path: &Path) -> Result<Self, AppError> {
        let shown = path.display();
        let broken = |error: &std::io::Error| {
            AppError::failure(format!("the seat key {shown} cannot be used: {}", describe_io_error(error)))
                .hint("choose another file with --seat")
        };
        match lock_key_file(path) {
            Ok(Some(seat)) => Ok(seat),
            Ok(None) => Err(AppError::failure(format!("the seat key {shown} is in use by another coplay"))
                .hint("everybody at this computer needs a key of their own: name another file with --seat")),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(AppError::failure(format!("{shown} is not a seat key")).hint("name another file with --seat"))
            }
            Err(error) => Err(broken(&error)),
        }
    }

    /// The key of a group, below the directory for data: the first that no other program holds.
    pub fn for_group(data: &Path, group: &str) -> Result<Self, AppError> {
        let seats = data.join("seats");
        let directory = seats.join(group_dir_name(group));
        let failed = |error: &std::io::Error| {
            let what = format!("no seat key can be kept in {}: {}", directory.display(), describe_io_error(error));
            AppError::failure(what).hint("name a file that can be written with --seat")
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

    /// The key that a command uses: in the file that it names, or of its group.
    pub fn choose(named: Option<&Path>, group: &str) -> Result<Self, AppError> {
        match (named, crate::config::data_dir()) {
            (Some(path), _) => Self::from_file(path),
            (None, Some(data)) => Self::for_group(&data, group),
            (None, None) => Ok(Self::new()),
        }
    }

    /// A key that is not kept.
    pub fn new() -> Self {
        Self { identity: Identity::random(), _lock_file: None }
    }
}

impl Default for SeatKey {
    fn default() -> Self {
        Self::new()
    }
}

/// The name of a group's directory; nobody learns the secret from it.
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
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Takes the key in a file, or a new one; `None` if another program holds it.
fn lock_key_file(path: &Path) -> std::io::Result<Option<SeatKey>> {
    let mut file = open_private(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        // A file system without locks: better a key that two could hold than none.
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
    // So that it is not taken for an old one.
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

/// Removes keys of groups that have not met for long.
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
        assert_eq!(key(&SeatKey::for_group(&data, "a").unwrap()), before, "who comes back has its key");
        fs::remove_dir_all(data).unwrap();
    }

    #[test]
    fn named_seat_key_is_exclusive_and_other_files_are_kept() {
        let data = temp_dir("named");
        let path = data.join("me.key");
        let seat = SeatKey::from_file(&path).unwrap();
        assert!(SeatKey::from_file(&path).unwrap_err().to_string().contains("in use by another coplay"));
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
