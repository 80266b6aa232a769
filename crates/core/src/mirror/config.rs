//! What is chosen before a mirror begins.

use super::{MAX_RUN, Source};
use crate::time::TimeDelta;

/// A mirror. All but `source`, `founder`, `policy`, `measure` and `seed` must be the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Who we are: a number that no other run of any server has.
    pub source: Source,
    /// Whether the group's time begins with us. Everybody else learns it from those who are there, or begins it after a while if nobody is.
    pub founder: bool,
    /// In which order events are delivered.
    pub order: Order,
    /// Which obsolete events are given up on, and when.
    pub policy: Policy,
    /// What the policy goes by.
    pub measure: Measure,
    /// So many events of a key in a row can be made obsolete, then one must be seen by all; at most [`MAX_RUN`].
    pub run: usize,
    /// Who is silent for so long is not waited for any more.
    pub forget: TimeDelta,
    /// Events of one source that are kept for those who lack them, at the least and at the most. Who lacks more needs a snapshot; while
    /// one is given, up to 16 times as many are kept as come after it.
    pub history: (usize, usize),
    /// The most bytes of a snapshot that are taken in.
    pub snapshot: usize,
    /// Where the chance of [`Policy::Ila`] comes from.
    pub seed: u64,
}

/// In which order events are delivered. Those of one key always come in the order in which they were issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// Events of different keys come as they arrive.
    #[default]
    Correlated,
    /// All events come by their time, then their source: an event waits until every mirror that is here was heard beyond its time.
    Total,
}

/// When obsolete events are given up on. Only [`TwoCurve`](Self::TwoCurve) changes what becomes of the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Never.
    Off,
    /// All of them while events take longer than this.
    OnOff {
        /// The paper's GIT.
        threshold: TimeDelta,
    },
    /// The longer events take on average, the more of them.
    Ila(Curve),
    /// As ILA; as a last resort events that are not obsolete are given up, too, and [named](super::Notice::GaveUp).
    TwoCurve {
        /// For obsolete events.
        obsolete: Curve,
        /// For all others.
        others: Curve,
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
pub struct Curve {
    /// Below this nothing is given up.
    pub min: TimeDelta,
    /// From here on everything.
    pub max: TimeDelta,
    /// The chance just before `max`, in thousandths.
    pub most: u16,
    /// How much the newest counts in the average: one part in two to the power of this.
    pub weight: u8,
}

impl Curve {
    /// The paper's: 50 to 150 ms, at most 20 %, and an eighth for the newest.
    pub const PAPER: Self =
        Self { min: TimeDelta::from_millis(50), max: TimeDelta::from_millis(150), most: 200, weight: 3 };
    /// For what is not obsolete: it begins where the paper's ends.
    pub const LAST_RESORT: Self =
        Self { min: TimeDelta::from_millis(150), max: TimeDelta::from_millis(450), most: 200, weight: 3 };
}

/// The threshold of the paper: what takes longer is felt.
pub const THRESHOLD: TimeDelta = TimeDelta::from_millis(150);

impl Default for Policy {
    fn default() -> Self {
        Self::Adaptive { threshold: THRESHOLD }
    }
}

impl Policy {
    /// What takes longer is late.
    pub fn threshold(&self) -> TimeDelta {
        match self {
            Self::Off => THRESHOLD,
            Self::OnOff { threshold } | Self::Adaptive { threshold } => *threshold,
            Self::Ila(curve) | Self::TwoCurve { obsolete: curve, .. } => curve.max,
        }
    }
}

/// What is measured for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Measure {
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
pub enum ConfigError {
    /// More can be made obsolete in a row than fits, or nothing.
    Run,
    /// Silence of less than half a second, or of more than an hour, says nothing.
    Forget,
    /// More is kept at the least than at the most, or not even as much as may be under way.
    History,
    /// A curve that does not rise, or that counts nothing.
    Curve,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Run => "between 1 and 32 events in a row can be made obsolete",
            Self::Forget => "who is silent is forgotten after half a second to an hour",
            Self::History => "at the most between 64 and 65,536 events are kept, and no more at the least",
            Self::Curve => {
                "a curve rises from `min` to `max`, to at most 1,000 thousandths, with a weight of at most 16"
            }
        })
    }
}

impl core::error::Error for ConfigError {}

impl Config {
    /// A mirror as it is usual.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            founder: false,
            order: Order::default(),
            policy: Policy::default(),
            measure: Measure::default(),
            run: 16,
            forget: TimeDelta::from_secs(3),
            history: (256, 4_096),
            snapshot: 16 << 20,
            seed: 0,
        }
    }

    /// Whether there can be such a mirror.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rises = |curve: &Curve| curve.min < curve.max && curve.most <= 1_000 && curve.weight <= 16;
        let curves = match &self.policy {
            Policy::Ila(curve) => rises(curve),
            Policy::TwoCurve { obsolete, others } => rises(obsolete) && rises(others),
            _ => true,
        };
        let (least, most) = self.history;
        if !(1..=MAX_RUN).contains(&self.run) {
            Err(ConfigError::Run)
        } else if !(TimeDelta::from_millis(500)..=TimeDelta::from_secs(3_600)).contains(&self.forget) {
            Err(ConfigError::Forget)
        } else if least > most || !(64..=65_536).contains(&most) {
            Err(ConfigError::History)
        } else if !curves {
            Err(ConfigError::Curve)
        } else {
            Ok(())
        }
    }
}
