//! Results of probing a core before a game begins.

/// Data from which a machine's state hash is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// The RAM that the core exposes. Divergence appears there quickly, and hashing it is cheap. Saved states are less
    /// suited for comparison: some cores put the time of day or uninitialized bytes into them, which do not affect the
    /// game.
    Memory,
    /// The saved state, because the core exposes no RAM that changes, or RAM that is not the same after a load and a
    /// replay.
    State,
    /// The picture, because nothing else can be observed.
    Picture,
}

impl HashSource {
    /// Returns the name of the source, which is part of the machine id.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Memory => "memory",
            Self::Picture => "picture",
        }
    }
}

/// Results of probing a core with a game in its first frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFindings {
    /// Source of the state hash.
    pub hash_of: HashSource,
    /// Hash of the first frames without input, over all comparable data. Equal machines have equal hashes.
    pub first_frames: u64,
    /// Whether two instances behaved the same. If not, the core depends on external data such as time or addresses. A
    /// difference only in saved states, and not in RAM or picture, does not count.
    pub is_deterministic: bool,
    /// Whether the core can save and load.
    pub can_save: bool,
    /// Whether the state was equal bit for bit after a load and a replay, also in another instance.
    pub state_exact: bool,
    /// Whether the memory was equal under the same test.
    pub memory_exact: bool,
    /// Whether every site saves the core after every frame, because saving changes its behaviour or may do so.
    pub saves_every_frame: bool,
    /// Whether the core can be saved before its first frame.
    pub saves_initial_state: bool,
    /// Whether loading that state restarts a played instance exactly like a new one.
    pub restarts_from_initial_state: bool,
    /// Whether the core must run a frame before it can load a state.
    pub needs_warm_up: bool,
    /// Outputs that the core must produce in frames that are not rendered, as libretro flags (1: picture, 2: sound).
    pub headless_outputs: u32,
    /// Length of a state in bytes, if it is constant.
    pub state_size: Option<usize>,
    /// Bytes of RAM that the core exposes.
    pub memory_size: usize,
}

impl ProbeFindings {
    /// Returns whether loaded states replay exactly, judged by memory or by the states themselves, whichever is
    /// comparable.
    pub fn is_exact(&self) -> bool {
        self.can_save && (self.state_exact || self.memory_exact)
    }
}
