//! What a watcher needs to know.

use alloc::vec::Vec;

use crate::id::Addr;
use crate::session::Settings;
use crate::time::TimeDelta;

/// What a watcher needs to know.
#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// The session's number.
    pub session: u64,
    /// What is played and how.
    pub settings: Settings,
    /// Where feeds of it are. They are tried in turn: another one is taken when one is silent or refuses.
    pub from: Vec<Addr>,
    /// What to begin with.
    pub start: Start,
    /// The largest state that is downloaded, in bytes.
    pub max_state: usize,
    /// The most bytes kept of frames that cannot be given out yet.
    pub backlog: usize,
    /// So many frames are to be left when the next ones come; more means smoother and further behind.
    pub spare: u32,
    /// So many frames behind what is wanted are made up for at once, and not little by little; usually those of a second.
    pub far: u32,
    /// A source that is not heard for so long is given up for another.
    pub silence: TimeDelta,
    /// After so long without any source we watch no more.
    pub give_up_after: TimeDelta,
}

/// What to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A state of the running game.
    Snapshot,
    /// The first frame: for machines that cannot take a state.
    Beginning,
}

impl WatchConfig {
    /// The usual way to watch: from a snapshot of up to 64 MiB, about a quarter of a second behind.
    pub fn new(session: u64, settings: Settings, from: Vec<Addr>) -> Self {
        let (frames, seconds) = settings.rate.fraction();
        Self {
            session,
            from,
            start: Start::Snapshot,
            max_state: 64 << 20,
            backlog: 256 * 1_024,
            spare: 6,
            far: frames.div_ceil(seconds),
            settings,
            silence: TimeDelta::from_secs(3),
            give_up_after: TimeDelta::from_secs(30),
        }
    }
}
