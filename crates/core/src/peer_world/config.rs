//! Settings of a world, chosen or agreed on before it begins.

use super::WorldSiteId;
use crate::time::TimeDelta;

/// Settings with which one site enters a world. All but `site`, `is_founder` and `update_policy` must be equal at all
/// sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWorldConfig {
    /// Id of this site, unique in the world.
    pub site: WorldSiteId,
    /// Whether this site founds the world: the world time then starts on its clock. All other sites learn it from their
    /// peers.
    pub is_founder: bool,
    /// Duration of a tick, the smallest step of the world time.
    pub tick_duration: TimeDelta,
    /// Ticks per bucket (T in the paper): updates issued in one bucket are shown together.
    pub bucket_ticks: u32,
    /// Minimum number of ticks between the issue of an update and the view that shows it (Δ in the paper).
    pub playout_delay: u32,
    /// Ticks without an update after which an entity is no longer shown.
    pub visibility_timeout: u32,
    /// Rule by which this site sends updates of its entities.
    pub update_policy: UpdatePolicy,
}

/// Rule by which a site sends updates of its entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdatePolicy {
    /// Maximum updates per entity and second. With a tolerance, differences of
    /// [`INFINITE_DISTANCE`](super::INFINITE_DISTANCE) are sent beyond it.
    pub max_rate: u32,
    /// Minimum updates per entity and second: sent even if nothing changes, or if the network cannot carry more.
    pub min_rate: u32,
    /// Distance in the game's units up to which peers may be wrong before an update is sent. `None` sends updates at
    /// the full rate.
    pub tolerance: Option<u32>,
    /// Whether the rate falls when receivers report more than 15 % lost or late updates.
    pub is_adaptive: bool,
}

impl UpdatePolicy {
    /// Creates a policy with a fixed rate, as in the paper.
    pub const fn fixed(per_second: u32) -> Self {
        Self { max_rate: per_second, min_rate: per_second, tolerance: None, is_adaptive: false }
    }

    /// Creates a policy with a rate between `min_rate` and `max_rate` that adapts to the loss that peers report.
    pub const fn adaptive(min_rate: u32, max_rate: u32) -> Self {
        Self { max_rate, min_rate, tolerance: None, is_adaptive: true }
    }

    /// Creates a policy that sends only updates that peers cannot dead-reckon within `tolerance`: 4 to 25 per second.
    pub const fn dead_reckoned(tolerance: u32) -> Self {
        Self { max_rate: 25, min_rate: 4, tolerance: Some(tolerance), is_adaptive: false }
    }
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self { is_adaptive: true, ..Self::dead_reckoned(8) }
    }
}

/// Maximum of `bucket_ticks` and of `playout_delay`, in ticks.
const MAX_BUCKET_OR_DELAY_TICKS: u32 = 100;
/// Maximum of `visibility_timeout`, in ticks.
const MAX_VISIBILITY_TIMEOUT: u32 = 1_000;
/// Maximum of `max_rate`, in updates per second.
const MAX_UPDATE_RATE: u32 = 100;

/// Reason why the settings of a world are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldConfigError {
    /// The tick duration is below 1 ms or above 1 s.
    Tick,
    /// A bucket has no ticks or more than 100.
    Bucket,
    /// The playout delay is not within 1 to 100 ticks, or the visibility timeout not within 1 to 1,000 ticks.
    Delay,
    /// The minimum update rate is 0 or above the maximum, or the maximum is above 100 per second.
    UpdatePolicy,
}

impl core::fmt::Display for PeerWorldConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Tick => "tick duration must be between 1 ms and 1 s",
            Self::Bucket => "bucket must have between 1 and 100 ticks",
            Self::Delay => "playout delay must be 1 to 100 ticks and visibility timeout 1 to 1,000 ticks",
            Self::UpdatePolicy => "update rates must be 1 to 100 per second, the minimum not above the maximum",
        })
    }
}

impl core::error::Error for PeerWorldConfigError {}

impl PeerWorldConfig {
    /// Creates settings with the paper's durations, in ticks of 10 ms: buckets of 40 ms, a playout delay of 150 ms and
    /// a visibility timeout of 1 s. The update policy is the default, which is not in the paper.
    pub fn new(site: WorldSiteId, is_founder: bool) -> Self {
        let tick_duration = TimeDelta::from_millis(10);
        Self {
            site,
            is_founder,
            tick_duration,
            bucket_ticks: 4,
            playout_delay: 15,
            visibility_timeout: 100,
            update_policy: UpdatePolicy::default(),
        }
    }

    /// Checks the settings against the bounds that the variants of [`PeerWorldConfigError`] state.
    pub fn check(&self) -> Result<(), PeerWorldConfigError> {
        let is_in_range = |ticks| (1..=MAX_BUCKET_OR_DELAY_TICKS).contains(&ticks);
        let UpdatePolicy { min_rate, max_rate, .. } = self.update_policy;
        if !(TimeDelta::from_millis(1)..=TimeDelta::from_secs(1)).contains(&self.tick_duration) {
            Err(PeerWorldConfigError::Tick)
        } else if !is_in_range(self.bucket_ticks) {
            Err(PeerWorldConfigError::Bucket)
        } else if !is_in_range(self.playout_delay) || !(1..=MAX_VISIBILITY_TIMEOUT).contains(&self.visibility_timeout) {
            Err(PeerWorldConfigError::Delay)
        } else if min_rate == 0 || min_rate > max_rate || max_rate > MAX_UPDATE_RATE {
            Err(PeerWorldConfigError::UpdatePolicy)
        } else {
            Ok(())
        }
    }

    /// Returns the number of ticks per second, at least 1.
    pub(super) fn ticks_per_second(&self) -> u32 {
        (TimeDelta::from_secs(1).as_nanos() / self.tick_duration.as_nanos()).max(1) as u32
    }

    /// Returns the number of ticks for which states are kept: from the current bucket back past the playout delay and
    /// the visibility timeout.
    pub(super) fn retention_ticks(&self) -> u32 {
        self.bucket_ticks + self.playout_delay + self.visibility_timeout
    }
}
