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
    pub most_watchers: usize,
    /// What may be sent in a second, all in all, because it was asked for: snapshots and missed frames.
    pub most_bytes_per_second: u32,
    /// What one watcher may get of it.
    pub most_bytes_per_second_each: u32,
    /// Frames in a batch, 1 to 127. Who watches is behind by at least that.
    pub batch: u32,
    /// Frames that are kept for those who missed them.
    pub history: u32,
    /// Bytes that these may take.
    pub history_bytes: usize,
    /// Bytes for the complete log, from the first frame that is pushed on; 0 for none. Once it is full it is of no use.
    pub keep_log: usize,
    /// A snapshot older than this many frames is given out only if no newer one is made.
    pub snapshot_age: u32,
    /// Who is not heard for so long is dropped.
    pub silence: TimeDelta,
    /// Who has not caught up after so long is dropped.
    pub catch_up_within: TimeDelta,
}

impl FeedConfig {
    /// The usual feed: up to 1,000 watchers, 1 MB/s of bulk, batches of 6 frames, 20 seconds of history, no log.
    pub fn new(session: u64, secret: u64, settings: Settings) -> Self {
        let second = frames_in(&settings, TimeDelta::from_secs(1));
        Self {
            session,
            settings,
            secret,
            most_watchers: 1_000,
            most_bytes_per_second: 1_000_000,
            most_bytes_per_second_each: 500_000,
            batch: 6,
            history: 20 * second,
            history_bytes: 64 * 1_024,
            keep_log: 0,
            snapshot_age: 10 * second,
            silence: TimeDelta::from_secs(5),
            catch_up_within: TimeDelta::from_secs(300),
        }
    }
}

fn frames_in(settings: &Settings, time: TimeDelta) -> u32 {
    (time.as_nanos() / settings.rate.period().as_nanos().max(1)) as u32
}
