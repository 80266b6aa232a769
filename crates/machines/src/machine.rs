//! The contract between a machine and its users.

use std::fmt;

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};

use crate::pad::PadLayout;
use crate::picture::Picture;

/// A machine with a game loaded.
///
/// Determinism contract: machines that are equal by [`machine_id`](Self::machine_id) and [`game_id`](Self::game_id),
/// and that receive the same inputs from the first frame on, have the same state in every frame. The state does not
/// depend on the host's clock, files or memory. A newly opened machine has stepped no frame, and its save RAM is empty:
/// a player's own saves on this computer must not affect a shared game, and a shared game never writes them.
pub trait Machine: Send {
    /// Returns the identity of the machine: name, version, options and a hash of its first frames.
    fn machine_id(&self) -> &MachineId;

    /// Returns the identity of the game: its name and a hash of its image.
    fn game_id(&self) -> &GameId;

    /// Returns the frame rate, which is constant while the machine is open.
    fn frame_rate(&self) -> FrameRate;

    /// Returns the pad of each player. [`step`](Self::step) ignores input bits that are not in the player's pad.
    fn pads(&self) -> &[PadLayout];

    /// Steps one frame with one input word per player; missing words count as nothing pressed. Only a `fresh` frame is
    /// shown and heard. In a frame that is not fresh, the machine may skip all work that does not change its state, and
    /// keeps picture and sound of the last fresh frame.
    fn step(&mut self, inputs: &[InputWord], fresh: bool);

    /// Resets the machine to the state before its first frame.
    fn reset(&mut self);

    /// Returns the picture of the last fresh step; a black picture if there was none since the machine was opened or
    /// reset.
    fn picture(&self) -> Picture<'_>;

    /// Returns the sound of the last fresh step, as pairs of a left and a right sample; no pairs if there was none
    /// since the machine was opened or reset. [`sample_rate`](Self::sample_rate) pairs last one second.
    fn sound(&self) -> &[[i16; 2]];

    /// Returns the sample rate of [`sound`](Self::sound), in pairs of samples per second. A libretro core may change
    /// the rate in any fresh step.
    fn sample_rate(&self) -> f64;

    /// Returns whether the machine can save and load its state at all, exactly or not.
    fn can_save(&self) -> bool;

    /// Returns how the machine can be shared, as far as the machine itself knows. A [check](crate::check) may find a
    /// lower level.
    fn netplay_support(&self) -> NetplaySupport {
        if self.can_save() { NetplaySupport::Rollback } else { NetplaySupport::Lockstep }
    }

    /// Replaces the contents of `into` by the saved state. Reusing the same buffer avoids allocations.
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError>;

    /// Loads a saved state. The state may come from an untrusted peer: a state that is too long or invalid is rejected,
    /// and the machine keeps its state.
    fn load(&mut self, state: &[u8]) -> Result<(), LoadError>;

    /// Returns the state hash that sites compare. The hash covers the state that determines the further course of the
    /// game, or as much of that state as a libretro core exposes. Equal states have equal hashes at all sites.
    fn hash(&mut self) -> u64;

    /// Passes the named regions of the state to `show`, each as name and bytes, for desync reports. All calls have the
    /// same names in the same order.
    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8]));

    /// Returns the reason why the machine has halted; `None` while it runs. A machine halts if the game crashes the
    /// emulator, which happens at every site in the same frame, or if a reset fails. A halted machine ignores steps
    /// until it loads a state of a running machine or a reset succeeds.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// How a machine can be shared, in ascending order of support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetplaySupport {
    /// Not at all: two instances with the same inputs diverged.
    Nondeterministic,
    /// In lockstep only. The machine has no saved states, or they are not exact: after a load the game continues
    /// differently. So the session cannot predict and roll back, and a late joiner cannot start from a snapshot.
    Lockstep,
    /// With rollback and snapshots.
    Rollback,
}

/// Reason why [`Machine::save`] failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveError {
    /// The machine does not support saving.
    Unsupported,
    /// Saving failed; contains the reason.
    Failed(String),
}

/// Reason why [`Machine::load`] failed. The machine keeps its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The machine does not support loading.
    Unsupported,
    /// The bytes are not a valid state of this machine and game, or the machine could not restart to load an initial
    /// state; contains the reason.
    InvalidState(String),
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(f, "this machine cannot save its state"),
            Self::Failed(reason) => write!(f, "cannot save the state: {reason}"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => write!(f, "this machine cannot load a state"),
            Self::InvalidState(reason) => write!(f, "cannot load the state: {reason}"),
        }
    }
}

impl std::error::Error for SaveError {}
impl std::error::Error for LoadError {}
