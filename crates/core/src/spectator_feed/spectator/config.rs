//! Configuration of a spectator.

use alloc::vec::Vec;

use crate::id::Addr;
use crate::session::Settings;
use crate::time::TimeDelta;

/// Configuration of a spectator.
#[derive(Clone, Debug)]
pub struct SpectatorConfig {
    /// Session id.
    pub session: u64,
    /// Settings of the session.
    pub settings: Settings,
    /// Addresses of feeds. The spectator tries them in turn, and switches to the next when one is silent or refuses.
    pub sources: Vec<Addr>,
    /// Starting point.
    pub start: SpectatorStart,
    /// Largest snapshot to download, in bytes.
    pub max_snapshot_size: usize,
    /// Largest size of buffered frames, in bytes.
    pub max_backlog_bytes: usize,
    /// Frames that should be left in the buffer when the next batch arrives. A larger value plays smoother and further
    /// behind.
    pub target_buffer: u32,
    /// Distance in frames beyond the target at which the spectator fast-forwards instead of playing slightly faster; by
    /// default the frames of one second.
    pub catch_up_threshold: u32,
    /// Silence after which the spectator switches to another source.
    pub silence_timeout: TimeDelta,
    /// Time without any source after which the spectator gives up.
    pub give_up_timeout: TimeDelta,
}

/// Starting point of a spectator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorStart {
    /// A snapshot of the running game.
    Snapshot,
    /// The first frame, for machines that cannot load a state.
    FirstFrame,
}

impl SpectatorConfig {
    /// Returns the default configuration: start from a snapshot of up to 64 MiB, play about a quarter of a second
    /// behind.
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
