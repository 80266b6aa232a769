//! Checks of mirrored servers, based on the issued events and on the state of the game at each server.
//!
//! - *order*: each object's events are applied in order and once.
//! - *total order*: under total order, the engine marks an event as out of order if and only if it is. In a scenario
//!   without faults, no event that was issued after 2.5 s is out of order.
//! - *abandoned*, *reports*: only a server with the two-curve policy abandons events, and it reports each of them.
//! - *completeness*, *state*: at the end, every server has delivered, dropped or abandoned every event of a running
//!   source. Unless it may lack abandoned events, it has a state as if no event had been dropped.
//! - *drops*: every dropped event is obsolete, except on servers that may abandon events.
//! - *agreement*: the remaining servers that cannot lack abandoned events agree on the state of a source that is gone.
//! - *time*: at the end, all running servers know the group time and agree on it.
//! - *memory*: no mirror exceeds [`MAX_MEMORY`].

use std::collections::{BTreeMap, BTreeSet};

use coplay::mirror::{DeliveryOrder, MirrorEvent, SourceId};
use coplay::time::{GroupInstant, TimeDelta};

use super::scenario::MirrorScenario;
use super::{IssuedEvent, MirrorNetwork, MirrorObservation, MirrorServer, SourceState};
use crate::scenario_result::ScenarioResult;
use crate::toy_machine::mix_hash;
use crate::violations::Violations;

/// Largest allowed memory of a mirror in bytes, excluding the game.
const MAX_MEMORY: usize = 8 << 20;
/// Group time by which all servers of a scenario without faults know the group time.
const CLOCKS_KNOWN_FROM: GroupInstant = GroupInstant::from_nanos(2_500_000_000);
/// Largest allowed difference between two servers' group times, without jitter.
const MAX_CLOCK_ERROR: TimeDelta = TimeDelta::from_millis(10);

/// Observations of one scenario, and the violations found in them.
pub(super) struct MirrorChecker {
    order: DeliveryOrder,
    is_fault_free: bool,
    /// Nodes that may abandon events that are not obsolete.
    nodes_that_may_give_up: BTreeSet<usize>,
    /// Nodes that installed a snapshot, perhaps from a node that abandoned events.
    nodes_with_snapshot: BTreeSet<usize>,
    /// Highest position in the total order that each node has delivered.
    delivered_up_to: BTreeMap<usize, (GroupInstant, SourceId, u64)>,
    given_up_count: u64,
    /// Number of events that each node reported as abandoned.
    reported_give_ups: BTreeMap<usize, u64>,
    delivered_count: u64,
    dropped_count: u64,
    installed_count: u64,
    /// Addition to [`MAX_CLOCK_ERROR`] for the jitter of the scenario.
    jitter_allowance: TimeDelta,
    violations: Violations,
    trace_hash: u64,
}

impl MirrorChecker {
    pub(super) fn new(scenario: &MirrorScenario) -> Self {
        Self {
            order: scenario.order(),
            is_fault_free: scenario.is_fault_free(),
            nodes_that_may_give_up: scenario.nodes_that_may_give_up(),
            nodes_with_snapshot: BTreeSet::new(),
            jitter_allowance: scenario.jitter_allowance(),
            delivered_up_to: BTreeMap::new(),
            given_up_count: 0,
            reported_give_ups: BTreeMap::new(),
            delivered_count: 0,
            dropped_count: 0,
            installed_count: 0,
            violations: Violations::default(),
            trace_hash: scenario.seed,
        }
    }

    pub(super) fn on_start(&mut self, node: usize) {
        self.delivered_up_to.remove(&node);
        self.reported_give_ups.remove(&node);
        self.nodes_with_snapshot.remove(&node);
    }

    pub(super) fn on_stop(&mut self, network: &MirrorNetwork, node: usize) {
        self.dropped_count += network.server(node).map_or(0, drop_count);
    }

    pub(super) fn on_observation(&mut self, node: usize, observation: MirrorObservation) {
        match observation {
            MirrorObservation::Delivered { source, seq, at, is_in_order, is_late, .. } => {
                self.delivered_count += 1;
                self.trace_hash = mix_hash(self.trace_hash, mix_hash(node as u64, u64::from(source.0) << 32 | seq));
                if !is_in_order {
                    self.violations
                        .report("order", || format!("node {node} applies {source} {seq} out of order or twice"));
                }
                if self.order == DeliveryOrder::Total {
                    self.check_total_order(node, (at, source, seq), is_late);
                }
            }
            MirrorObservation::Installed { .. } => {
                self.installed_count += 1;
                self.nodes_with_snapshot.insert(node);
            }
            MirrorObservation::EngineEvent(MirrorEvent::EventAbandoned { source, seq }) => {
                self.given_up_count += 1;
                *self.reported_give_ups.entry(node).or_default() += 1;
                if !self.nodes_that_may_give_up.contains(&node) {
                    self.violations.report("abandoned", || format!("node {node} abandons {source} {seq}"));
                }
            }
            MirrorObservation::EngineEvent(_) => {}
        }
    }

    /// Checks that an event is marked as out of order if and only if it is, and that no event issued after
    /// [`CLOCKS_KNOWN_FROM`] is in a scenario without faults.
    fn check_total_order(&mut self, node: usize, position: (GroupInstant, SourceId, u64), is_late: bool) {
        let reached = self.delivered_up_to.get(&node).copied();
        if is_late != reached.is_some_and(|reached| position < reached) {
            self.violations.report("total order", || {
                format!("node {node} applies {position:?} after {reached:?}, marked as out of order: {is_late}")
            });
        }
        if is_late && self.is_fault_free && position.0 > CLOCKS_KNOWN_FROM {
            self.violations.report("total order", || {
                format!("node {node} applies {position:?} out of order, though the scenario has no fault")
            });
        }
        self.delivered_up_to.insert(node, reached.map_or(position, |reached| reached.max(position)));
    }

    pub(super) fn check_memory(&mut self, network: &MirrorNetwork) {
        for node in network.active_nodes() {
            let memory = network.server(node).map_or(0, |server| server.mirror.memory());
            if memory > MAX_MEMORY {
                self.violations.report("memory", || format!("node {node} uses {memory} bytes"));
            }
        }
    }

    /// Runs the final checks, when no event has been issued for 3 s or more: the events and states of all servers,
    /// their reports of abandoned events, their drops, and their group times.
    pub(super) fn on_end(&mut self, network: &MirrorNetwork) {
        let sources: Vec<SourceId> = network.sources().collect();
        for node in network.active_nodes() {
            self.dropped_count += network.server(node).map_or(0, drop_count);
            self.check_give_up_reports(network, node);
            for source in &sources {
                self.check_state(network, node, *source);
            }
        }
        self.check_all_drops(network);
        self.check_group_time(network);
        sources
            .iter()
            .filter(|source| !network.is_running(**source))
            .for_each(|source| self.check_agreement(network, *source));
    }

    /// Checks that all running servers know the group time and agree on it.
    fn check_group_time(&mut self, network: &MirrorNetwork) {
        let time = |node: &usize| network.server(*node)?.mirror.group_time(network.local_time(*node));
        let times: Vec<Option<GroupInstant>> = network.active_nodes().iter().map(time).collect();
        let known: Vec<GroupInstant> = times.iter().copied().flatten().collect();
        let apart = known.iter().max().zip(known.iter().min()).map_or(TimeDelta::ZERO, |(last, first)| *last - *first);
        if known.len() < times.len() || apart > MAX_CLOCK_ERROR + self.jitter_allowance {
            self.violations.report("time", || format!("group times are {apart:?} apart, or unknown: {times:?}"));
        }
    }

    /// Checks that the server at a node reported every abandoned event.
    fn check_give_up_reports(&mut self, network: &MirrorNetwork, node: usize) {
        let abandoned = network.server(node).map_or(0, |server| server.mirror.stats().abandoned);
        let reported = self.reported_give_ups.get(&node).copied().unwrap_or(0);
        if abandoned != reported {
            self.violations
                .report("reports", || format!("node {node} abandoned {abandoned} events and reported {reported}"));
        }
    }

    fn check_state(&mut self, network: &MirrorNetwork, node: usize, source: SourceId) {
        let Some(server) = network.server(node) else { return };
        let journal = network.issued_events(source);
        let settled = server.mirror.settled(source) as usize;
        let runs = network.is_running(source);
        if runs && settled != journal.len() {
            self.violations.report("completeness", || {
                format!("node {node} has {settled} of {} events of {source}", journal.len())
            });
            return;
        }
        if !self.must_have_all_events(node) {
            return;
        }
        let none = SourceState::default();
        let part = server.source_states.get(&source).unwrap_or(&none);
        self.trace_hash = mix_hash(self.trace_hash, part.hash());
        let expected = if runs {
            fold_events(journal, |_, _| true)
        } else {
            fold_events(journal, |seq, issued| is_applied(part, seq, issued))
        };
        if expected.hash() != part.hash() {
            self.violations.report("state", || format!("node {node} has a wrong state of {source}"));
        }
    }

    /// Returns whether a node must have every event: not if it may abandon events, nor if it installed a snapshot and
    /// any node may abandon events.
    fn must_have_all_events(&self, node: usize) -> bool {
        !self.nodes_that_may_give_up.contains(&node)
            && (self.nodes_that_may_give_up.is_empty() || !self.nodes_with_snapshot.contains(&node))
    }

    /// Checks that every event dropped so far is obsolete by now, except on nodes that may abandon events.
    pub(super) fn check_all_drops(&mut self, network: &MirrorNetwork) {
        for node in network.active_nodes() {
            let Some(server) = network.server(node).filter(|_| !self.nodes_that_may_give_up.contains(&node)) else {
                continue;
            };
            for source in network.sources() {
                self.check_drops(server, node, source, network.issued_events(source));
            }
        }
    }

    fn check_drops(&mut self, server: &MirrorServer, node: usize, source: SourceId, journal: &[IssuedEvent]) {
        for seq in 1..=journal.len() as u64 {
            if server.mirror.is_dropped(source, seq) && !is_obsolete(journal, seq) {
                self.violations
                    .report("drops", || format!("node {node} dropped {source} {seq}, which is not obsolete"));
            }
        }
    }

    /// Checks that the remaining servers that must have every event agree on the state of a source that is gone. Its
    /// last events may have reached none of them.
    fn check_agreement(&mut self, network: &MirrorNetwork, source: SourceId) {
        let none = SourceState::default();
        let hash = |node: &usize| {
            network.server(*node).map(|server| server.source_states.get(&source).unwrap_or(&none).hash())
        };
        let hashes: Vec<_> =
            network.active_nodes().iter().filter(|node| self.must_have_all_events(**node)).map(hash).collect();
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
            self.violations.report("agreement", || format!("states of {source}, which is gone, differ: {hashes:x?}"));
        }
    }

    pub(super) fn into_result(self, scenario: &MirrorScenario, network: &MirrorNetwork) -> ScenarioResult {
        ScenarioResult {
            trace_hash: mix_hash(self.trace_hash, network.traffic().bytes),
            violations: self.violations.into_vec(),
            frames: self.delivered_count,
            activity_count: self.dropped_count,
            recorded: self.installed_count,
            rejected_datagrams: self.given_up_count,
            ..ScenarioResult::of_network(network, &scenario.faults, scenario.features())
        }
    }
}

fn drop_count(server: &MirrorServer) -> u64 {
    server.mirror.stats().dropped + server.mirror.stats().skipped
}

/// Computes the state of a source after all of its events for which `counts` returns `true`.
fn fold_events(journal: &[IssuedEvent], counts: impl Fn(u64, &IssuedEvent) -> bool) -> SourceState {
    let mut part = SourceState::default();
    for (seq, issued) in (1..).zip(journal).filter(|(seq, issued)| counts(*seq, issued)) {
        part.apply(seq, issued);
    }
    part
}

/// Returns whether a state includes an event.
fn is_applied(part: &SourceState, seq: u64, issued: &IssuedEvent) -> bool {
    if issued.key == 0 { part.loose().any(|known| known == seq) } else { seq <= part.last_seq(issued.key) }
}

/// Returns whether an event is replaceable and a later event of its object replaces it, with only replaceable events of
/// the object between the two.
fn is_obsolete(journal: &[IssuedEvent], seq: u64) -> bool {
    let issued = &journal[seq as usize - 1];
    let mut later = journal[seq as usize..].iter().filter(|later| later.key == issued.key);
    let end = later.find(|later| later.kind.replaces() || !later.kind.is_replaceable());
    issued.key != 0 && issued.kind.is_replaceable() && end.is_some_and(|end| end.kind.replaces())
}
