//! What is chosen before a mirror begins.

use super::{MAX_OBSOLETE_SET, SourceId};
use crate::time::TimeDelta;

/// A mirror. All but `source`, `founder`, `policy`, `measure` and `seed` must be the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Who we are: a number that no other run of any server has.
    pub source: SourceId,
    /// Whether the group's time begins with us. Everybody else learns it from those who are there, or begins it after a while if nobody is.
    pub is_founder: bool,
    /// In which order events are delivered.
    pub order: DeliveryOrder,
    /// Which obsolete events are given up on, and when.
    pub policy: DropPolicy,
    /// What the policy goes by.
    pub measure: GtdMeasure,
    /// So many events of a key in a row can be made obsolete, then one must be seen by all; at most [`MAX_OBSOLETE_SET`].
    pub max_obsolete_set: usize,
    /// Who is silent for so long is not waited for any more.
    pub silence_timeout: TimeDelta,
    /// Events of one source that are kept for those who lack them, at the least and at the most. Who lacks more needs a snapshot; while
    /// one is given, up to 16 times as many are kept as come after it.
    pub history_limits: (usize, usize),
    /// The most bytes of a snapshot that are taken in.
    pub max_snapshot_size: usize,
    /// Where the chance of [`DropPolicy::Ila`] comes from.
    pub seed: u64,
}

/// In which order events are delivered. Those of one key always come in the order in which they were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeliveryOrder {
    /// Events of different keys come as they arrive.
    #[default]
    Correlated,
    /// All events come by their time, then their source: an event waits until every mirror that is here was heard beyond its time.
    Total,
}

/// When obsolete events are given up on. Only [`TwoCurve`](Self::TwoCurve) changes what becomes of the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPolicy {
    /// Never.
    Off,
    /// All of them while events take longer than this.
    OnOff {
        /// The paper's GIT.
        threshold: TimeDelta,
    },
    /// The longer events take on average, the more of them.
    Ila(DropCurve),
    /// As ILA; as a last resort events that are not obsolete are given up, too, and [named](super::MirrorEvent::EventAbandoned).
    TwoCurve {
        /// For obsolete events.
        obsolete: DropCurve,
        /// For all others.
        others: DropCurve,
    },
    /// Ours: one that is missing is not waited for if it would come too late for those behind it; one that waits is passed over if it is too late
    /// itself.
    Adaptive {
        /// What takes longer is late.
        threshold: TimeDelta,
    },
}

/// The chance with which an event is given up on, by how long events take on average: nothing up to `min`, then rising to `most`, and from
/// `max` on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCurve {
    /// Below this nothing is given up.
    pub min: TimeDelta,
    /// From here on everything.
    pub max: TimeDelta,
    /// The chance just before `max`, in thousandths.
    pub max_drop_permille: u16,
    /// How much the newest counts in the average: one part in two to the power of this.
    pub average_shift: u8,
}

impl DropCurve {
    /// The paper's: 50 to 150 ms, at most 20 %, and an eighth for the newest.
    pub const PAPER: Self = Self {
        min: TimeDelta::from_millis(50),
        max: TimeDelta::from_millis(150),
        max_drop_permille: 200,
        average_shift: 3,
    };
    /// For what is not obsolete: it begins where the paper's ends.
    pub const LAST_RESORT: Self = Self {
        min: TimeDelta::from_millis(150),
        max: TimeDelta::from_millis(450),
        max_drop_permille: 200,
        average_shift: 3,
    };
}

/// The threshold of the paper: what takes longer is felt.
pub const DEFAULT_GIT: TimeDelta = TimeDelta::from_millis(150);

impl Default for DropPolicy {
    fn default() -> Self {
        Self::Adaptive { threshold: DEFAULT_GIT }
    }
}

impl DropPolicy {
    /// What takes longer is late.
    pub fn threshold(&self) -> TimeDelta {
        match self {
            Self::Off => DEFAULT_GIT,
            Self::OnOff { threshold } | Self::Adaptive { threshold } => *threshold,
            Self::Ila(curve) | Self::TwoCurve { obsolete: curve, .. } => curve.max,
        }
    }
}

/// What is measured for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GtdMeasure {
    /// How long ago an event that arrives was issued.
    Arrival,
    /// Whenever one arrives, how long ago the oldest was issued that still waits.
    #[default]
    Waiting,
    /// How long ago an event that is delivered was issued.
    Delivery,
}

/// Why there can be no such mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorConfigError {
    /// More can be made obsolete in a row than fits, or nothing.
    ObsoleteSet,
    /// Silence of less than half a second, or of more than an hour, says nothing.
    SilenceTimeout,
    /// More is kept at the least than at the most, or not even as much as may be under way.
    History,
    /// A curve that does not rise, or that counts nothing.
    Curve,
}

impl core::fmt::Display for MirrorConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::ObsoleteSet => "between 1 and 32 events in a row can be made obsolete",
            Self::SilenceTimeout => "who is silent is forgotten after half a second to an hour",
            Self::History => "at the most between 64 and 65,536 events are kept, and no more at the least",
            Self::Curve => {
                "a curve rises from `min` to `max`, to at most 1,000 thousandths, with a weight of at most 16"
            }
        })
    }
}

impl core::error::Error for MirrorConfigError {}

impl MirrorConfig {
    /// A mirror as it is usual.
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

    /// Whether there can be such a mirror.
    pub fn check(&self) -> Result<(), MirrorConfigError> {
        let rises =
            |curve: &DropCurve| curve.min < curve.max && curve.max_drop_permille <= 1_000 && curve.average_shift <= 16;
        let curves = match &self.policy {
            DropPolicy::Ila(curve) => rises(curve),
            DropPolicy::TwoCurve { obsolete, others } => rises(obsolete) && rises(others),
            _ => true,
        };
        let (least, most) = self.history_limits;
        if !(1..=MAX_OBSOLETE_SET).contains(&self.max_obsolete_set) {
            Err(MirrorConfigError::ObsoleteSet)
        } else if !(TimeDelta::from_millis(500)..=TimeDelta::from_secs(3_600)).contains(&self.silence_timeout) {
            Err(MirrorConfigError::SilenceTimeout)
        } else if least > most || !(64..=65_536).contains(&most) {
            Err(MirrorConfigError::History)
        } else if !curves {
            Err(MirrorConfigError::Curve)
        } else {
            Ok(())
        }
    }
}
