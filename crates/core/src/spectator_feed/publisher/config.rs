//! Configuration of a spectator feed, and its defaults.

use crate::settings::Settings;
use crate::time::TimeDelta;

/// Identity, limits and timeouts of a spectator feed.
#[derive(Clone, Debug)]
pub struct FeedConfig {
    /// Session id. Datagrams of other sessions are ignored.
    pub session: u64,
    /// Settings of the published session. The feed refuses a spectator whose settings differ in more than the game's
    /// name.
    pub settings: Settings,
    /// Secret number from which the feed derives the token that each address must echo.
    pub secret: u64,
    /// Largest number of spectators at a time. The feed refuses further ones.
    pub max_spectators: usize,
    /// Bulk rate for all spectators together, in bytes per second. Bulk is everything sent on request: snapshots and
    /// missed frames.
    pub max_bulk_rate: u32,
    /// Bulk rate for each spectator, in bytes per second.
    pub max_bulk_rate_per_spectator: u32,
    /// Frames per batch, clamped to 1 to 127. A spectator is at least about this many frames behind the players.
    pub batch_frames: u32,
    /// Largest number of the newest frames that are kept for spectators that missed them, rounded up to whole batches;
    /// at least four batches.
    pub history_frames: u32,
    /// Memory for the newest frames, in bytes. When it is full, the oldest of them are dropped.
    pub history_bytes: usize,
    /// Memory for a log of all frames from the first pushed one on, in bytes; 0 for no log. After an overflow the log
    /// takes no more frames, and spectators can soon no longer start at the first frame.
    pub log_bytes: usize,
    /// Maximum age, in frames, of a snapshot that is offered at once to a new spectator. An older one is offered only
    /// to a spectator that has downloaded parts of it, or if no newer one arrives within 1 s or the feed has no room
    /// for one.
    pub max_snapshot_age: u32,
    /// Silence after which the feed drops a spectator.
    pub silence_timeout: TimeDelta,
    /// Time after a spectator's subscription at which the feed drops the spectator if it has not caught up.
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
