//! What a run of a scenario has shown.

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
    /// Whether the scenario contained each feature of its engine, in the order of the engine's list, such as
    /// [`FEATURES`](crate::session::scenario::FEATURES) for sessions.
    pub features: Vec<bool>,
    /// Duration of the run in virtual seconds.
    pub virtual_seconds: f64,
}
