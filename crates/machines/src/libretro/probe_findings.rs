//! Results of probing a core before a game begins.

/// Data from which a machine's state hash is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// The RAM that the core exposes. Divergence appears there quickly, and hashing it is cheap. Saved states are less
    /// suited for comparison: some cores put the time of day or uninitialized bytes into them, which do not affect the
    /// game.
    Memory,
    /// The saved state, because the core exposes no RAM that changes, or because its RAM differs after a load and a
    /// replay while its saved state does not.
    State,
    /// The picture, because the core neither saves states nor exposes RAM that changes.
    Picture,
}

impl HashSource {
    /// Returns the name of the source, which sites compare as an option of the machine id.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Memory => "memory",
            Self::Picture => "picture",
        }
    }
}

/// Results of probing a core with a game in its first frames. All sites must find the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFindings {
    /// Data from which the state hash is computed.
    pub hash_of: HashSource,
    /// Hash of the first 60 frames without input, over pictures, the hash source and the findings that sites must
    /// share. Equal machines have equal hashes.
    pub first_frames: u64,
    /// Whether two instances had equal pictures and equal RAM or, if the core exposes no RAM that changes, equal
    /// pictures and equal saved states. If not, the core depends on external data such as time or addresses.
    pub is_deterministic: bool,
    /// Whether the core can save its state and load it into another instance, and does not declare its states as
    /// incomplete or valid in one session only.
    pub can_save: bool,
    /// Whether the state was equal bit for bit after a load and a replay, also in another instance. `false` if the core
    /// cannot save.
    pub state_exact: bool,
    /// Whether the exposed RAM was equal after a load and a replay, also in another instance. `false` if the RAM never
    /// changes or the core cannot save.
    pub memory_exact: bool,
    /// Whether every site saves the core after every frame, because saving changes its behaviour or may do so.
    pub saves_every_frame: bool,
    /// Whether a state saved before the first frame loads into a new instance and leads to the same game.
    pub saves_initial_state: bool,
    /// Whether an instance that has stepped frames repeats the first frames after it loads the state from before the
    /// first frame. `false` if that state does not also load into a new instance.
    pub restarts_from_initial_state: bool,
    /// Whether a new instance must run a frame before it loads states correctly.
    pub needs_warm_up: bool,
    /// Outputs that the core must produce in frames that are not rendered, as libretro flags (1: picture, 2: sound).
    pub headless_outputs: u32,
    /// Length of a saved state in bytes; `None` if it varies or is unknown.
    pub state_size: Option<usize>,
    /// Bytes of RAM that the core exposes.
    pub memory_size: usize,
}

impl ProbeFindings {
    /// Returns whether frames replay exactly after a load: with equal RAM, or with equal saved states.
    pub fn is_exact(&self) -> bool {
        self.can_save && (self.state_exact || self.memory_exact)
    }
}
