//! Settings of a mirror, their defaults and bounds.

use super::{MAX_OBSOLETE_SET, SourceId};
use crate::time::TimeDelta;

/// Settings of a mirror. All but `source`, `is_founder`, `policy`, `measure` and `seed` must be equal at all mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Source id, unique to this run of this server.
    pub source: SourceId,
    /// Whether this mirror starts the group time when it is created. Any other mirror learns the group time from its
    /// peers, or starts one after 2 s if no present peer reports one.
    pub is_founder: bool,
    /// Order in which this mirror delivers events of different keys.
    pub order: DeliveryOrder,
    /// Rule by which this mirror drops obsolete events.
    pub policy: DropPolicy,
    /// Events whose game time difference the policy samples. Unused by [`DropPolicy::Off`] and
    /// [`DropPolicy::Adaptive`].
    pub measure: GtdMeasure,
    /// Maximum number of consecutive replaceable events of a key, from 1 to [`MAX_OBSOLETE_SET`]. The event after them
    /// counts as irreplaceable.
    pub max_obsolete_set: usize,
    /// Silence after which a mirror counts as absent. In total order, events of other mirrors do not wait for those of
    /// an absent mirror.
    pub silence_timeout: TimeDelta,
    /// Minimum and maximum number of settled events per source that are kept for mirrors that lack them. A mirror that
    /// lacks older events needs a snapshot. While a snapshot is served, up to 16 times the maximum of the events after
    /// it are kept.
    pub history_limits: (usize, usize),
    /// Maximum size in bytes, including the header, of a snapshot that this mirror serves or downloads.
    pub max_snapshot_size: usize,
    /// Seed of the random numbers of [`DropPolicy::Ila`] and [`DropPolicy::TwoCurve`].
    pub seed: u64,
}

/// Order in which events are delivered. Events of one key are always delivered in the order in which they were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeliveryOrder {
    /// Events of different keys are delivered as they arrive.
    #[default]
    Correlated,
    /// All events are delivered by issue time, then by source. An event waits until no present mirror that has sent a
    /// heartbeat can still send an earlier event.
    Total,
}

/// Rule by which a mirror drops obsolete events. Only [`TwoCurve`](Self::TwoCurve) can change the final state of the
/// game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// Drops nothing to save time (OFF in the paper). As under every policy, a missing obsolete event of an absent
    /// source is given up after three attempts to request it.
    Off,
    /// Drops all obsolete events whenever a GTD sample is above the threshold (ON-OFF in the paper).
    OnOff {
        /// Game interaction threshold (GIT in the paper).
        threshold: TimeDelta,
    },
    /// Drops obsolete events with a probability that grows with the average GTD (ILA, *interactivity-loss avoidance*,
    /// in the paper).
    Ila(DropCurve),
    /// Like ILA, and as a last resort also drops events that are not obsolete. Each of those is
    /// [reported](super::MirrorEvent::EventAbandoned).
    TwoCurve {
        /// Curve for obsolete events.
        obsolete: DropCurve,
        /// Curve for all other events.
        others: DropCurve,
    },
    /// Not in the paper. Drops a missing obsolete event if waiting for it would make the events behind it late, and a
    /// received obsolete event that is late itself.
    Adaptive {
        /// GTD above which an event is late.
        threshold: TimeDelta,
    },
}

/// Drop probability as a function of the average GTD: 0 below `min`, then rising to `max_drop_permille`, and 1 from
/// `max` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCurve {
    /// Average GTD below which nothing is dropped.
    pub min: TimeDelta,
    /// Average GTD from which on the drop probability is 1.
    pub max: TimeDelta,
    /// Drop probability just below `max`, in thousandths.
    pub max_drop_permille: u16,
    /// Weight of the newest sample in the average, as a negative power of two: 3 is one eighth.
    /// [`DropPolicy::TwoCurve`] averages with the weight of its curve for obsolete events.
    pub average_shift: u8,
}

impl DropCurve {
    /// The paper's curve: a drop probability that rises to 20 % between an average GTD of 50 and 150 ms, and a weight
    /// of one eighth.
    pub const PAPER: Self = Self {
        min: TimeDelta::from_millis(50),
        max: TimeDelta::from_millis(150),
        max_drop_permille: 200,
        average_shift: 3,
    };
    /// Curve for events that are not obsolete, from 150 to 450 ms: it begins where [`DropCurve::PAPER`] ends.
    pub const LAST_RESORT: Self = Self {
        min: TimeDelta::from_millis(150),
        max: TimeDelta::from_millis(450),
        max_drop_permille: 200,
        average_shift: 3,
    };
}

/// The paper's game interaction threshold (GIT): players notice a larger GTD.
pub const DEFAULT_GIT: TimeDelta = TimeDelta::from_millis(150);

impl Default for DropPolicy {
    fn default() -> Self {
        Self::Adaptive { threshold: DEFAULT_GIT }
    }
}

impl DropPolicy {
    /// Returns the GTD above which a delivered event counts as late: [`DEFAULT_GIT`] for `Off`, the policy's threshold,
    /// or [`DropCurve::max`] of the curve for obsolete events.
    pub fn threshold(&self) -> TimeDelta {
        match self {
            Self::Off => DEFAULT_GIT,
            Self::OnOff { threshold } | Self::Adaptive { threshold } => *threshold,
            Self::Ila(curve) | Self::TwoCurve { obsolete: curve, .. } => curve.max,
        }
    }
}

/// Events whose game time difference (GTD) a drop policy samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GtdMeasure {
    /// At the first arrival of an event, the GTD of that event.
    Arrival,
    /// At the first arrival of an event, the GTD of the oldest received event that is neither delivered nor dropped
    /// yet.
    #[default]
    Waiting,
    /// At every delivery of another mirror's event, the GTD of that event.
    Delivery,
}

/// Reason why the settings of a mirror are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorConfigError {
    /// `max_obsolete_set` is 0 or above [`MAX_OBSOLETE_SET`].
    ObsoleteSet,
    /// `silence_timeout` is below 500 ms or above 1 h.
    SilenceTimeout,
    /// The minimum of `history_limits` is above the maximum, or the maximum is not within 64 to 65,536.
    History,
    /// A curve's `min` is not below its `max`, its `max_drop_permille` is above 1,000, or its `average_shift` is above
    /// 16.
    Curve,
}

impl core::fmt::Display for MirrorConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ObsoleteSet => "maximum obsolete set must be 1 to 32 events",
            Self::SilenceTimeout => "silence timeout must be between 500 ms and 1 h",
            Self::History => "history maximum must be 64 to 65,536 events and not below the minimum",
            Self::Curve => {
                "drop curve must have min below max, at most 1,000 permille and an average shift of at most 16"
            }
        })
    }
}

impl core::error::Error for MirrorConfigError {}

impl MirrorConfig {
    /// Creates the default settings: correlated order, [`DropPolicy::Adaptive`] with [`DEFAULT_GIT`], a silence timeout
    /// of 3 s, 256 to 4,096 events of history per source and snapshots of up to 16 MiB.
    pub fn new(source: SourceId) -> Self {
        Self {
            source,
            is_founder: false,
            order: DeliveryOrder::default(),
            policy: DropPolicy::default(),
            measure: GtdMeasure::default(),
            max_obsolete_set: 16,
            silence_timeout: TimeDelta::from_secs(3),
            history_limits: (256, 4_096),
            max_snapshot_size: 16 << 20,
            seed: 0,
        }
    }

    /// Checks the settings against the bounds that the variants of [`MirrorConfigError`] state.
    pub fn check(&self) -> Result<(), MirrorConfigError> {
        let is_valid =
            |curve: &DropCurve| curve.min < curve.max && curve.max_drop_permille <= 1_000 && curve.average_shift <= 16;
        let are_curves_valid = match &self.policy {
            DropPolicy::Ila(curve) => is_valid(curve),
            DropPolicy::TwoCurve { obsolete, others } => is_valid(obsolete) && is_valid(others),
            _ => true,
        };
        let (min_history, max_history) = self.history_limits;
        if !(1..=MAX_OBSOLETE_SET).contains(&self.max_obsolete_set) {
            Err(MirrorConfigError::ObsoleteSet)
        } else if !(TimeDelta::from_millis(500)..=TimeDelta::from_secs(3_600)).contains(&self.silence_timeout) {
            Err(MirrorConfigError::SilenceTimeout)
        } else if min_history > max_history || !(64..=65_536).contains(&max_history) {
            Err(MirrorConfigError::History)
        } else if !are_curves_valid {
            Err(MirrorConfigError::Curve)
        } else {
            Ok(())
        }
    }
}
