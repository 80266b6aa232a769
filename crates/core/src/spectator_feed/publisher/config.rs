//! Configuration of a spectator feed.

use crate::session::Settings;
use crate::time::TimeDelta;

/// Configuration of a spectator feed.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// Session id.
    pub session: u64,
    /// Settings of the session.
    pub settings: Settings,
    /// Secret number from which the feed derives the tokens by which addresses prove themselves.
    pub secret: u64,
    /// Largest number of spectators at a time.
    pub max_spectators: usize,
    /// Bulk rate for all spectators together, in bytes per second. Bulk is everything sent on request: snapshots and
    /// missed frames.
    pub max_bulk_rate: u32,
    /// Bulk rate for one spectator, in bytes per second.
    pub max_bulk_rate_per_spectator: u32,
    /// Frames per batch, 1 to 127. A spectator is at least this many frames behind.
    pub batch_frames: u32,
    /// Frames kept for spectators that missed them.
    pub history_frames: u32,
    /// Memory for these frames, in bytes.
    pub history_bytes: usize,
    /// Memory for the complete log since the first pushed frame, in bytes; 0 for no log. The log is useless once it has
    /// overflowed.
    pub log_bytes: usize,
    /// Age in frames beyond which a snapshot is offered only if no newer one arrives.
    pub max_snapshot_age: u32,
    /// Silence after which a spectator is dropped.
    pub silence_timeout: TimeDelta,
    /// Time after which a spectator that has not caught up is dropped.
    pub catch_up_timeout: TimeDelta,
}

impl FeedConfig {
    /// Returns the default configuration: up to 1,000 spectators, 1 MB/s of bulk, batches of 6 frames, 20 seconds of
    /// history, no log.
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
