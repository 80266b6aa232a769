//! What a run of a scenario has shown.

use coplay::time::Instant;

use crate::network::{Fault, Network, Node};

/// Result of one scenario of any engine.
#[derive(Clone, Debug, Default)]
pub struct ScenarioResult {
    /// Hash of what the checker observed in the run. Equal seeds give equal hashes.
    pub trace_hash: u64,
    /// Violations as text, each `property: description`.
    pub violations: Vec<String>,
    /// Confirmed frames (sessions), views (peer worlds), deliveries (mirrors) or frames of all endpoints (motion),
    /// summed over all sites.
    pub frames: u64,
    /// Frames stepped by spectators (sessions), hits (peer worlds), obsolete events dropped (mirrors) or commands
    /// (motion).
    pub activity_count: u64,
    /// Frames read back from a movie (sessions) or snapshots installed (mirrors).
    pub recorded: u64,
    /// Datagrams handed to the links.
    pub packets: u64,
    /// Datagrams lost to the loss model, full queues and cuts.
    pub lost_datagrams: u64,
    /// Datagrams and inputs rejected by the sites (sessions) or events abandoned (mirrors).
    pub rejected_datagrams: u64,
    /// Number of cuts and partitions among the faults.
    pub cuts: u64,
    /// Number of crashes among the faults.
    pub crashes: u64,
    /// Features that a scenario of this engine may have, and whether this one has them.
    pub features: Vec<(&'static str, bool)>,
    /// Duration of the run in virtual seconds.
    pub virtual_seconds: f64,
}

impl ScenarioResult {
    /// Returns the part of a result that any network shows, with the features of its scenario.
    pub(crate) fn of_network<N: Node, E>(
        network: &Network<N>,
        faults: &[(Instant, Fault<E>)],
        features: Vec<(&'static str, bool)>,
    ) -> Self {
        let traffic = network.traffic();
        let count = |is: fn(&Fault<E>) -> bool| faults.iter().filter(|(_, fault)| is(fault)).count() as u64;
        Self {
            packets: traffic.sent,
            lost_datagrams: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, Fault::Cut(..) | Fault::CutOneWay(..) | Fault::Split(_))),
            crashes: count(|fault| matches!(fault, Fault::Crash(_))),
            features,
            virtual_seconds: (network.now() - Instant::ZERO).as_secs_f64(),
            ..Self::default()
        }
    }
}
