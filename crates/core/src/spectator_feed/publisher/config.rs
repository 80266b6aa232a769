//! What a feed needs to know.

use crate::session::Settings;
use crate::time::TimeDelta;

/// What a feed needs to know.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// The session's number.
    pub session: u64,
    /// What is played and how.
    pub settings: Settings,
    /// Any number that others do not know: addresses prove themselves by what is made of it.
    pub secret: u64,
    /// How many may watch at once.
    pub max_spectators: usize,
    /// What may be sent in a second, all in all, because it was asked for: snapshots and missed frames.
    pub max_bulk_rate: u32,
    /// What one watcher may get of it.
    pub max_bulk_rate_per_spectator: u32,
    /// Frames in a batch, 1 to 127. Who watches is behind by at least that.
    pub batch_frames: u32,
    /// Frames that are kept for those who missed them.
    pub history_frames: u32,
    /// Bytes that these may take.
    pub history_bytes: usize,
    /// Bytes for the complete log, from the first frame that is pushed on; 0 for none. Once it is full it is of no use.
    pub log_bytes: usize,
    /// A snapshot older than this many frames is given out only if no newer one is made.
    pub max_snapshot_age: u32,
    /// Who is not heard for so long is dropped.
    pub silence_timeout: TimeDelta,
    /// Who has not caught up after so long is dropped.
    pub catch_up_timeout: TimeDelta,
}

impl FeedConfig {
    /// The usual feed: up to 1,000 watchers, 1 MB/s of bulk, batches of 6 frames, 20 seconds of history, no log.
    pub fn new(session: u64, secret: u64, settings: Settings) -> Self {
        let second = frames_in(&settings, TimeDelta::from_secs(1));
        Self {
            session,
            settings,
            secret,
            max_spectators: 1_000,
            max_bulk_rate: 1_000_000,
            max_bulk_rate_per_spectator: 500_000,
            batch_frames: 6,
            history_frames: 20 * second,
            history_bytes: 64 * 1_024,
            log_bytes: 0,
            max_snapshot_age: 10 * second,
            silence_timeout: TimeDelta::from_secs(5),
            catch_up_timeout: TimeDelta::from_secs(300),
        }
    }
}

fn frames_in(settings: &Settings, time: TimeDelta) -> u32 {
    (time.as_nanos() / settings.rate.period().as_nanos().max(1)) as u32
}
