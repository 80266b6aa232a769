//! What a watcher needs to know.

use alloc::vec::Vec;

use crate::id::Addr;
use crate::session::Settings;
use crate::time::TimeDelta;

/// What a watcher needs to know.
#[derive(Clone, Debug)]
pub struct SpectatorConfig {
    /// The session's number.
    pub session: u64,
    /// What is played and how.
    pub settings: Settings,
    /// Where feeds of it are. They are tried in turn: another one is taken when one is silent or refuses.
    pub sources: Vec<Addr>,
    /// What to begin with.
    pub start: SpectatorStart,
    /// The largest state that is downloaded, in bytes.
    pub max_snapshot_size: usize,
    /// The most bytes kept of frames that cannot be given out yet.
    pub max_backlog_bytes: usize,
    /// So many frames are to be left when the next ones come; more means smoother and further behind.
    pub target_buffer: u32,
    /// So many frames behind what is wanted are made up for at once, and not little by little; usually those of a second.
    pub catch_up_threshold: u32,
    /// A source that is not heard for so long is given up for another.
    pub silence_timeout: TimeDelta,
    /// After so long without any source we watch no more.
    pub give_up_timeout: TimeDelta,
}

/// What to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorStart {
    /// A state of the running game.
    Snapshot,
    /// The first frame: for machines that cannot take a state.
    FirstFrame,
}

impl SpectatorConfig {
    /// The usual way to watch: from a snapshot of up to 64 MiB, about a quarter of a second behind.
    pub fn new(session: u64, settings: Settings, from: Vec<Addr>) -> Self {
        let (frames, seconds) = settings.rate.fraction();
        Self {
            session,
            sources: from,
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
