//! The contract.

use std::fmt;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};

use crate::pad::Pad;
use crate::picture::Picture;

/// A machine with a game in it.
///
/// The promise on which everything rests: equal machines (by [`machine_id`](Self::machine_id) and [`game_id`](Self::game_id)) that are
/// given the same inputs from the first frame on have the same state in every frame, whatever the host's clock, its files and
/// its memory are like. A machine that was opened has stepped no frame yet, and its save-RAM is empty: what a person has saved
/// on this computer is none of the others' business, and is never written by a shared game.
pub trait Machine: Send {
    /// The machine, by name, version, options and a hash of its first frames.
    fn machine_id(&self) -> &MachineId;

    /// The game, by a hash of its image.
    fn game_id(&self) -> &GameId;

    /// Frames per second.
    fn frame_rate(&self) -> FrameRate;

    /// What each player can press; as many as there are players. Bits that no pad has are ignored by [`step`](Self::delay_step).
    fn pads(&self) -> &[Pad];

    /// Plays one frame with one word per player (missing ones press nothing). Only a `fresh` one is seen and heard: where it is not, the
    /// machine may leave out whatever does not change its state, and picture and sound stay those of the last fresh one.
    fn step(&mut self, inputs: &[InputWord], fresh: bool);

    /// Puts the machine into the state that it had before its first frame.
    fn reset(&mut self);

    /// The picture of the last fresh step; black before the first.
    fn picture(&self) -> Picture<'_>;

    /// The sound of the last fresh step: left and right, [`sound_rate`](Self::sample_rate) pairs per second.
    fn sound(&self) -> &[[i16; 2]];

    /// Pairs of samples per second.
    fn sample_rate(&self) -> f64;

    /// Whether the machine can save and load its state at all.
    fn can_save(&self) -> bool;

    /// How it can be shared, as far as it knows itself. A [check](crate::check) may know better.
    fn netplay_support(&self) -> NetplaySupport {
        if self.can_save() { NetplaySupport::Rollback } else { NetplaySupport::Lockstep }
    }

    /// Puts the state into `into`, whose former content is of no use. A buffer that is used again is not allocated again.
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError>;

    /// Takes a saved state. It may come from a stranger: what is too long or cannot be one is refused, and the machine is as it was.
    fn load(&mut self, state: &[u8]) -> Result<(), LoadError>;

    /// A hash of everything that decides how the game goes on, the same at all sites.
    fn hash(&mut self) -> u64;

    /// Shows the named parts of the state, each as its name and its bytes, for reports of differences. The order and the names are
    /// always the same.
    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8]));

    /// Why the machine stands still, if it does: the game has brought it down, here as at every other site, or it could not be reset. Steps
    /// do nothing then, until another state is loaded or the machine is reset.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// How a machine can be shared. The more, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetplaySupport {
    /// Not at all: two that should have done the same did not.
    Nondeterministic,
    /// By sites that wait for all inputs. It has no states, or they are not exact: one that is loaded leads elsewhere than it should, so
    /// nothing can be guessed and repaired, and nobody can be given a state.
    Lockstep,
    /// In every way.
    Rollback,
}

/// Why a state could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveError {
    /// The machine cannot save.
    Unsupported,
    /// The machine says that it failed, in its own words where it has any.
    Failed(String),
}

/// Why a state could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The machine cannot load.
    Unsupported,
    /// This is no state of this machine and game.
    InvalidState(String),
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(f, "this machine cannot save its state"),
            Self::Failed(why) => write!(f, "the machine could not save its state: {why}"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(f, "this machine cannot load a state"),
            Self::InvalidState(why) => write!(f, "this is no state of this game: {why}"),
        }
    }
}

impl std::error::Error for SaveError {}
impl std::error::Error for LoadError {}
