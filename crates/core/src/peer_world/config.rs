//! Settings of a world, chosen or agreed on before it begins.

use super::WorldSiteId;
use crate::time::TimeDelta;

/// Settings with which one site enters a world. All but `site`, `is_founder` and `update_policy` must be equal at all
/// sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWorldConfig {
    /// Id of this site, unique in the world.
    pub site: WorldSiteId,
    /// Whether this site founds the world, that is, starts the world time at once. Other sites learn the world time
    /// from their peers. If no peer knows it, the present site with the lowest id starts it after 5 s.
    pub is_founder: bool,
    /// Duration of a tick, the smallest step of the world time.
    pub tick_duration: TimeDelta,
    /// Ticks per bucket (T in the paper): updates issued in one bucket are shown together.
    pub bucket_ticks: u32,
    /// Number of ticks from the end of a bucket until the view of that bucket is shown (Δ in the paper).
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
    /// [`INFINITE_DISTANCE`](super::INFINITE_DISTANCE) are sent even above this rate.
    pub max_rate: u32,
    /// Minimum updates per entity and second. With a tolerance, they are sent even if peers can dead-reckon the entity.
    /// An adaptive rate does not fall below this one.
    pub min_rate: u32,
    /// Maximum distance, in the game's units, between the state that peers dead-reckon and the real state. If it is
    /// exceeded, an update is sent as soon as the current rate allows. With `None`, updates are sent at the current
    /// rate, however small the distance.
    pub tolerance: Option<u32>,
    /// Whether the rate falls while any receiver reports more than 15 % lost or late updates. It rises again while all
    /// receivers report less than 7 %.
    pub is_adaptive: bool,
}

impl UpdatePolicy {
    /// Creates a policy with a fixed rate, as in the paper.
    pub const fn fixed(per_second: u32) -> Self {
        Self { max_rate: per_second, min_rate: per_second, tolerance: None, is_adaptive: false }
    }

    /// Creates a policy with a rate between `min_rate` and `max_rate` that adapts to the lost and late updates that
    /// peers report.
    pub const fn adaptive(min_rate: u32, max_rate: u32) -> Self {
        Self { max_rate, min_rate, tolerance: None, is_adaptive: true }
    }

    /// Creates a policy that sends up to 25 updates per second, and skips those that peers can dead-reckon within
    /// `tolerance`, down to 4 updates per second.
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
            Self::Delay => "playout delay must be 1 to 100 ticks, and visibility timeout must be 1 to 1,000 ticks",
            Self::UpdatePolicy => "update rates must be 1 to 100 per second, and minimum must not exceed maximum",
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

    /// Returns the number of ticks for which states are kept: the bucket, the playout delay and the visibility timeout
    /// together.
    pub(super) fn retention_ticks(&self) -> u32 {
        self.bucket_ticks + self.playout_delay + self.visibility_timeout
    }
}
