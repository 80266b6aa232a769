//! What is agreed on or chosen before a world begins.

use super::WorldSiteId;
use crate::time::TimeDelta;

/// A world as one site enters it. All but the site's number, `founder` and `sending` must be the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWorldConfig {
    /// Who we are.
    pub site: WorldSiteId,
    /// Whether the world begins with us: then its time is our clock's. Everybody else learns it from those who are there.
    pub is_founder: bool,
    /// The smallest step of the world's time.
    pub tick_duration: TimeDelta,
    /// Ticks in a bucket: what is issued in the same one is seen together (T in the paper).
    pub bucket_ticks: u32,
    /// Ticks that everybody waits for what the others issue (Δ in the paper).
    pub playout_delay: u32,
    /// Ticks after which an entity that nothing was heard of is not shown any more.
    pub visibility_timeout: u32,
    /// When our own entities are told of.
    pub update_policy: UpdatePolicy,
}

/// When an entity's state is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdatePolicy {
    /// Updates of an entity in a second, at the most.
    pub max_rate: u32,
    /// At the least: what others hear if nothing changes, or if the network cannot carry more.
    pub min_rate: u32,
    /// Updates that others would reckon rightly, by no more than so many units wrong, are not sent. `None` sends all.
    pub tolerance: Option<u32>,
    /// Whether to send less often where receivers report that much is lost or late.
    pub is_adaptive: bool,
}

impl UpdatePolicy {
    /// Always so many in a second, as in the paper.
    pub const fn fixed(per_second: u32) -> Self {
        Self { max_rate: per_second, min_rate: per_second, tolerance: None, is_adaptive: false }
    }

    /// As many as the network carries.
    pub const fn adaptive(least: u32, most: u32) -> Self {
        Self { max_rate: most, min_rate: least, tolerance: None, is_adaptive: true }
    }

    /// Only what others would not reckon themselves.
    pub const fn dead_reckoned(tolerance: u32) -> Self {
        Self { max_rate: 25, min_rate: 4, tolerance: Some(tolerance), is_adaptive: false }
    }
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self { is_adaptive: true, ..Self::dead_reckoned(8) }
    }
}

/// The longest bucket and delay, in ticks, and the longest time to give up.
const MAX_BUCKET_OR_DELAY_TICKS: u32 = 100;
const MAX_VISIBILITY_TIMEOUT: u32 = 1_000;
/// The most updates of an entity in a second.
const MAX_UPDATE_RATE: u32 = 100;

/// Why no world can be like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldConfigError {
    /// A tick is shorter than a millisecond or longer than a second.
    Tick,
    /// A bucket has no ticks, or too many.
    Bucket,
    /// The delay, or the time after which to give up, is too long, or nothing.
    Delay,
    /// Nothing is sent, more at the least than at the most, or too much.
    UpdatePolicy,
}

impl core::fmt::Display for PeerWorldConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Tick => "a tick takes between a millisecond and a second",
            Self::Bucket => "a bucket has between 1 and 100 ticks",
            Self::Delay => "a delay has between 1 and 100 ticks, and it takes between 1 and 1,000 to give up",
            Self::UpdatePolicy => "between 1 and 100 updates a second are sent, at the least no more than at the most",
        })
    }
}

impl core::error::Error for PeerWorldConfigError {}

impl PeerWorldConfig {
    /// The paper's world: buckets of 40 ms, a delay of 150 ms, and a second before giving up; in ticks of 10 ms.
    pub fn new(site: WorldSiteId, founder: bool) -> Self {
        let tick = TimeDelta::from_millis(10);
        Self {
            site,
            is_founder: founder,
            tick_duration: tick,
            bucket_ticks: 4,
            playout_delay: 15,
            visibility_timeout: 100,
            update_policy: UpdatePolicy::default(),
        }
    }

    /// Whether there can be such a world.
    pub fn check(&self) -> Result<(), PeerWorldConfigError> {
        let sane = |ticks| (1..=MAX_BUCKET_OR_DELAY_TICKS).contains(&ticks);
        let UpdatePolicy { min_rate: least, max_rate: most, .. } = self.update_policy;
        if !(TimeDelta::from_millis(1)..=TimeDelta::from_secs(1)).contains(&self.tick_duration) {
            Err(PeerWorldConfigError::Tick)
        } else if !sane(self.bucket_ticks) {
            Err(PeerWorldConfigError::Bucket)
        } else if !sane(self.playout_delay) || !(1..=MAX_VISIBILITY_TIMEOUT).contains(&self.visibility_timeout) {
            Err(PeerWorldConfigError::Delay)
        } else if least == 0 || least > most || most > MAX_UPDATE_RATE {
            Err(PeerWorldConfigError::UpdatePolicy)
        } else {
            Ok(())
        }
    }

    /// Ticks in a second.
    pub(super) fn ticks_per_second(&self) -> u32 {
        (TimeDelta::from_secs(1).as_nanos() / self.tick_duration.as_nanos()).max(1) as u32
    }

    /// Ticks for which states are kept: what is shown now, and what an entity that is given up on was last heard at.
    pub(super) fn retention_ticks(&self) -> u32 {
        self.bucket_ticks + self.playout_delay + self.visibility_timeout
    }
}
