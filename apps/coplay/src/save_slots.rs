//! Ten save slots of a game, on disk. Slots belong to one game and one version of a machine with its options, because
//! the machine may not be able to load states of another version or with other options.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use coplay::session::{GameId, MachineId};
use coplay_shell::error::describe_io_error;
use sha2::{Digest, Sha256};

/// Number of slots of a game; slots have the numbers 0 to 9.
pub const SLOT_COUNT: u8 = 10;

const MAGIC: &[u8; 8] = b"COPLAYST";
/// Length of the checksum at the end of a file, in bytes.
const CHECKSUM_LEN: usize = 8;

/// Folder with the slots of one game on one machine.
#[derive(Clone, Debug)]
pub struct SaveSlots {
    directory: PathBuf,
}

/// Reason why a slot cannot be saved or loaded, in words for the user.
pub type SlotError = String;

impl SaveSlots {
    /// Returns the slots of this game and machine, in a folder below `data`. Creates nothing yet.
    pub fn new(data: &Path, game: &GameId, machine: &MachineId) -> Self {
        Self { directory: data.join("slots").join(directory_name(game, machine)) }
    }

    /// Returns the path of a slot's file. The slot number counts modulo [`SLOT_COUNT`].
    pub fn path(&self, slot: u8) -> PathBuf {
        self.directory.join(format!("slot-{}.state", slot % SLOT_COUNT))
    }

    /// Saves a state in a slot. The old file stays until the new one is complete.
    pub fn save(&self, slot: u8, state: &[u8]) -> Result<(), SlotError> {
        let write = || {
            fs::create_dir_all(&self.directory)?;
            let (path, new_path) = (self.path(slot), self.directory.join(format!("slot-{slot}.new")));
            let bytes = [MAGIC, state, &checksum(state)[..]].concat();
            fs::write(&new_path, bytes)?;
            fs::rename(new_path, path)
        };
        write().map_err(|error| format!("{}: {}", self.directory.display(), describe_io_error(&error)))
    }

    /// Loads the state of a slot. Fails if the slot is empty or its checksum is wrong.
    pub fn load(&self, slot: u8) -> Result<Vec<u8>, SlotError> {
        let bytes = fs::read(self.path(slot)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "the slot is empty".into(),
            _ => describe_io_error(&error),
        })?;
        let state = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_last_chunk::<CHECKSUM_LEN>());
        match state {
            Some((state, saved)) if checksum(state) == *saved => Ok(state.to_vec()),
            _ => Err("the file of the slot is damaged".into()),
        }
    }
}

fn checksum(state: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = Sha256::digest(state);
    std::array::from_fn(|index| digest[index])
}

/// Returns a readable directory name, with hashes that differ for different games and machines.
fn directory_name(game: &GameId, machine: &MachineId) -> String {
    let mut identity = Sha256::new();
    let options = machine.options.iter().flat_map(|(key, value)| [key, value]);
    for text in [&machine.name, &machine.version].into_iter().chain(options) {
        identity.update((text.len() as u64).to_le_bytes());
        identity.update(text.as_bytes());
    }
    identity.update(machine.first_frames_hash.to_le_bytes());
    let mut name: String = game.name.chars().filter(|c| c.is_ascii_alphanumeric()).take(24).collect();
    for byte in game.hash.iter().take(8).chain(identity.finalize().iter().take(4)) {
        // Writing into a String does not fail.
        _ = write!(name, "{}{byte:02x}", if name.is_empty() { "game-" } else { "" });
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> (GameId, MachineId) {
        let machine = MachineId {
            name: "m".into(),
            version: "1".into(),
            options: vec![("a".into(), "b".into())],
            first_frames_hash: 0,
        };
        (GameId { name: "Super Game! (E)".into(), hash: [7; 32] }, machine)
    }

    #[test]
    fn each_game_and_machine_has_its_own_slots() {
        let (game, machine) = ids();
        let ours = directory_name(&game, &machine);
        assert!(ours.starts_with("SuperGameE0707"), "{ours}");
        assert!(ours.chars().all(|c| c.is_ascii_alphanumeric()));
        let other = GameId { hash: [8; 32], ..game.clone() };
        let newer = MachineId { version: "2".into(), ..machine.clone() };
        let shifted = MachineId { version: "1a".into(), options: vec![(String::new(), "b".into())], ..machine.clone() };
        let other_start = MachineId { first_frames_hash: 1, ..machine.clone() };
        let names = [(&other, &machine), (&game, &newer), (&game, &shifted), (&game, &other_start)];
        let names = names.map(|(game, machine)| directory_name(game, machine));
        assert!(names.iter().all(|name| *name != ours), "{names:?}");
    }

    #[test]
    fn saved_state_loads_and_damage_is_detected() {
        let data = std::env::temp_dir().join(format!("coplay-slots-{}", std::process::id()));
        let (game, machine) = ids();
        let slots = SaveSlots::new(&data, &game, &machine);
        assert_eq!(slots.load(3), Err("the slot is empty".into()));
        slots.save(3, &[1, 2, 3]).unwrap();
        slots.save(3, &[4, 5]).unwrap();
        assert_eq!(slots.load(3), Ok(vec![4, 5]));
        assert_eq!(slots.load(4), Err("the slot is empty".into()));
        let mut bytes = fs::read(slots.path(3)).unwrap();
        bytes[8] ^= 1;
        fs::write(slots.path(3), bytes).unwrap();
        assert_eq!(slots.load(3), Err("the file of the slot is damaged".into()));
        fs::write(slots.path(3), b"COPLAYST").unwrap();
        assert_eq!(slots.load(3), Err("the file of the slot is damaged".into()));
        fs::remove_dir_all(data).unwrap();
    }
}
