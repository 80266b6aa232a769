//! Configuration of a spectator, and its defaults.

use alloc::vec::Vec;

use crate::id::Addr;
use crate::settings::Settings;
use crate::time::TimeDelta;

/// Sources, starting point, limits and timeouts of a spectator.
#[derive(Clone, Debug)]
pub struct SpectatorConfig {
    /// Session id. A feed of another session does not answer.
    pub session: u64,
    /// Settings of the session. A source refuses a spectator whose settings differ in more than the game's name.
    pub settings: Settings,
    /// Addresses of feeds. The spectator tries them in turn, and switches to the next when one is silent or refuses.
    pub sources: Vec<Addr>,
    /// State from which the spectator starts.
    pub start: SpectatorStart,
    /// Largest snapshot to download, in bytes. A source that offers a larger one is rejected.
    pub max_snapshot_size: usize,
    /// Memory for received frames that are not stepped yet, in bytes.
    pub max_backlog_bytes: usize,
    /// Frames that should be left in the buffer when the next batch arrives. A larger value makes playout smoother and
    /// later.
    pub target_buffer: u32,
    /// Number of frames by which a live spectator's distance to the source's newest frame may exceed the sum of the
    /// target buffer and one batch; by default the frames of one second. Beyond it the spectator fast-forwards instead
    /// of playing slightly faster.
    pub catch_up_threshold: u32,
    /// Silence of the source after which the spectator switches to the next one.
    pub silence_timeout: TimeDelta,
    /// Time without a message of any source after which the spectator gives up.
    pub give_up_timeout: TimeDelta,
}

/// State from which a spectator starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorStart {
    /// The state in a snapshot of the running game, downloaded from the source.
    Snapshot,
    /// The machine's initial state, for machines that cannot load a state. The source must still have the first frame.
    FirstFrame,
}

impl SpectatorConfig {
    /// Returns the default configuration: start from a snapshot of up to 64 MiB, play about a quarter of a second
    /// behind the players at 60 frames per second.
    pub fn new(session: u64, settings: Settings, sources: Vec<Addr>) -> Self {
        let (frames, seconds) = settings.rate.fraction();
        Self {
            session,
            sources,
            start: SpectatorStart::Snapshot,
            max_snapshot_size: 64 << 20,
            max_backlog_bytes: 256 * 1_024,
            target_buffer: 6,
            catch_up_threshold: frames.div_ceil(seconds),
            settings,
            silence_timeout: TimeDelta::from_secs(3),
            give_up_timeout: TimeDelta::from_secs(30),
        }
    }
}
