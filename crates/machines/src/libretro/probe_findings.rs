//! What is found out about a core before a game begins.

/// What a machine's hash is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// The RAM that the core shows. What differs comes to light there in no time, and it is cheap. Saved states do not compare as well: some
    /// cores put the time of day into them, or bytes that they never set, which do no harm to the game.
    Memory,
    /// Its saved state, because it shows no RAM that lives, or RAM that is not the same after a state was loaded and played again.
    State,
    /// What it shows, because there is nothing else to see.
    Picture,
}

impl HashSource {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Memory => "memory",
            Self::Picture => "picture",
        }
    }
}

/// What was found out about a core with this game, in its first frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFindings {
    /// What the hash is made of.
    pub hash_of: HashSource,
    /// A hash of the first frames without input, of all that can be compared. Equal machines have equal ones.
    pub first_frames: u64,
    /// Two instances did the same. If not, the core depends on something that is not its own, such as time or addresses. A difference that
    /// is only in saved states, and not in RAM or picture, does not count.
    pub steady: bool,
    /// It can save and load.
    pub can_save: bool,
    /// After it was loaded and played again, also in another instance, the state was the same bit for bit.
    pub state_exact: bool,
    /// Likewise the memory.
    pub memory_exact: bool,
    /// It is saved after every frame at every site, because saving changes how it goes on, or may do so.
    pub settles: bool,
    /// It can be saved before its first frame.
    pub saves_unstepped: bool,
    /// With that state one that was played begins anew, exactly as a new one does.
    pub begins_anew: bool,
    /// It must have run before it takes a state.
    pub warms_up: bool,
    /// What it must produce in frames that nobody sees, as flags of libretro (1: picture, 2: sound).
    pub unseen: u32,
    /// Bytes of a state, if it is always so many.
    pub state_size: Option<usize>,
    /// Bytes of RAM that it shows.
    pub memory_size: usize,
}

impl ProbeFindings {
    /// Whether its states lead to where they should: by its memory or by the states themselves, whichever can be compared.
    pub fn is_exact(&self) -> bool {
        self.can_save && (self.state_exact || self.memory_exact)
    }
}
