//! What must hold among servers, judged by what was issued and by what the game is like at each of them.

use std::collections::{BTreeMap, BTreeSet};

use coplay::mirror::{DeliveryOrder, MirrorEvent, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};

use super::scenario::{MirrorFault, MirrorScenario};
use super::{IssuedEvent, MirrorNetwork, MirrorObservation, MirrorServer, SourceState};
use crate::session::scenario::ScenarioResult;
use crate::toy_machine::mix_hash;

/// The most memory of one server, the game apart.
const MAX_MEMORY: usize = 8 << 20;
/// By this time everybody knows everybody's time.
const CLOCKS_KNOWN_FROM: GroupInstant = GroupInstant::from_nanos(2_500_000_000);
/// Times that are not further apart are the same, where ways are even.
const MAX_CLOCK_ERROR: TimeDelta = TimeDelta::from_millis(10);
/// Violations of one kind are told so often.
const MAX_REPORTS_PER_PROPERTY: usize = 3;

/// The judge of one scenario.
pub(super) struct MirrorChecker {
    order: DeliveryOrder,
    is_fault_free: bool,
    /// Seats that may give up what is not obsolete, and those that took something over and may have it from them.
    nodes_that_may_give_up: BTreeSet<usize>,
    nodes_with_snapshot: BTreeSet<usize>,
    /// How far each seat is in the total order.
    delivered_up_to: BTreeMap<usize, (GroupInstant, SourceId, u64)>,
    given_up_count: u64,
    /// Events that each seat said it gave up.
    reported_give_ups: BTreeMap<usize, u64>,
    delivered_count: u64,
    dropped_count: u64,
    installed_count: u64,
    /// How far apart ways may be.
    jitter_allowance: TimeDelta,
    violations: Vec<String>,
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
            violations: Vec::new(),
            trace_hash: scenario.seed,
        }
    }

    fn report_violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MAX_REPORTS_PER_PROPERTY {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    pub(super) fn on_start(&mut self, seat: usize) {
        self.delivered_up_to.remove(&seat);
        self.reported_give_ups.remove(&seat);
        self.nodes_with_snapshot.remove(&seat);
    }

    pub(super) fn on_stop(&mut self, senate: &MirrorNetwork, seat: usize) {
        self.dropped_count += senate.server(seat).map_or(0, drop_count);
    }

    pub(super) fn on_observation(&mut self, seat: usize, seen: MirrorObservation) {
        match seen {
            MirrorObservation::Delivered { source, seq, at, is_in_order: in_order, is_late: late, .. } => {
                self.delivered_count += 1;
                self.trace_hash = mix_hash(self.trace_hash, mix_hash(seat as u64, u64::from(source.0) << 32 | seq));
                if !in_order {
                    self.report_violation("order", || format!("seat {seat} takes in {source} {seq} too late or twice"));
                }
                if self.order == DeliveryOrder::Total {
                    self.check_total_order(seat, (at, source, seq), late);
                }
            }
            MirrorObservation::Installed { .. } => {
                self.installed_count += 1;
                self.nodes_with_snapshot.insert(seat);
            }
            MirrorObservation::EngineEvent(MirrorEvent::EventAbandoned { source, seq }) => {
                self.given_up_count += 1;
                *self.reported_give_ups.entry(seat).or_default() += 1;
                if !self.nodes_that_may_give_up.contains(&seat) {
                    self.report_violation("give up", || format!("seat {seat} gives up {source} {seq}"));
                }
            }
            MirrorObservation::EngineEvent(_) => {}
        }
    }

    /// What is not said to be late is in its order; and nothing is late where nothing goes wrong.
    fn check_total_order(&mut self, seat: usize, place: (GroupInstant, SourceId, u64), late: bool) {
        let reached = self.delivered_up_to.get(&seat).copied();
        if late != reached.is_some_and(|reached| place < reached) {
            self.report_violation("total", || {
                format!("seat {seat} takes in {place:?} after {reached:?}, late: {late}")
            });
        }
        if late && self.is_fault_free && place.0 > CLOCKS_KNOWN_FROM {
            self.report_violation("total", || format!("seat {seat} takes in {place:?} late though nothing goes wrong"));
        }
        self.delivered_up_to.insert(seat, reached.map_or(place, |reached| reached.max(place)));
    }

    pub(super) fn check_memory(&mut self, senate: &MirrorNetwork) {
        for seat in senate.active_nodes() {
            let memory = senate.server(seat).map_or(0, |server| server.mirror.memory());
            if memory > MAX_MEMORY {
                self.report_violation("memory", || format!("seat {seat} takes {memory} bytes"));
            }
        }
    }

    /// Nothing was said for a while: everybody has everything.
    pub(super) fn on_end(&mut self, senate: &MirrorNetwork) {
        let sources: Vec<SourceId> = senate.sources().collect();
        for seat in senate.active_nodes() {
            self.dropped_count += senate.server(seat).map_or(0, drop_count);
            self.check_give_up_reports(senate, seat);
            for source in &sources {
                self.check_state(senate, seat, *source);
            }
        }
        self.check_all_drops(senate);
        self.check_group_time(senate);
        sources
            .iter()
            .filter(|source| !senate.is_running(**source))
            .for_each(|source| self.check_agreement(senate, *source));
    }

    /// All take it to be the same time.
    fn check_group_time(&mut self, senate: &MirrorNetwork) {
        let time = |seat: &usize| senate.server(*seat)?.mirror.group_time(senate.local_time(*seat));
        let times: Vec<Option<GroupInstant>> = senate.active_nodes().iter().map(time).collect();
        let known: Vec<GroupInstant> = times.iter().copied().flatten().collect();
        let apart = known.iter().max().zip(known.iter().min()).map_or(TimeDelta::ZERO, |(last, first)| *last - *first);
        if known.len() < times.len() || apart > MAX_CLOCK_ERROR + self.jitter_allowance {
            self.report_violation("time", || format!("times are {apart:?} apart, or unknown: {times:?}"));
        }
    }

    /// What was given up is named, all of it.
    fn check_give_up_reports(&mut self, senate: &MirrorNetwork, seat: usize) {
        let gave_up = senate.server(seat).map_or(0, |server| server.mirror.stats().abandoned);
        let named = self.reported_give_ups.get(&seat).copied().unwrap_or(0);
        if gave_up != named {
            self.report_violation("names", || format!("seat {seat} gave up {gave_up} events and named {named}"));
        }
    }

    fn check_state(&mut self, senate: &MirrorNetwork, seat: usize, source: SourceId) {
        let Some(server) = senate.server(seat) else { return };
        let journal = senate.issued_events(source);
        let settled = server.mirror.settled(source) as usize;
        let runs = senate.is_running(source);
        if runs && settled != journal.len() {
            self.report_violation("settled", || {
                format!("seat {seat} has {settled} of {} events of {source}", journal.len())
            });
            return;
        }
        if !self.must_have_all_events(seat) {
            return;
        }
        let none = SourceState::default();
        let part = server.source_states.get(&source).unwrap_or(&none);
        self.trace_hash = mix_hash(self.trace_hash, part.hash());
        let wanted = if runs {
            fold_events(journal, |_, _| true)
        } else {
            fold_events(journal, |seq, issued| is_applied(part, seq, issued))
        };
        if wanted.hash() != part.hash() {
            self.report_violation("state", || format!("seat {seat} has another state of {source} than without drops"));
        }
    }

    /// Whether a seat must have everything: not if it, or who it has something from, may give up what is not obsolete.
    fn must_have_all_events(&self, seat: usize) -> bool {
        !self.nodes_that_may_give_up.contains(&seat)
            && (self.nodes_that_may_give_up.is_empty() || !self.nodes_with_snapshot.contains(&seat))
    }

    /// What is dropped by now is obsolete by now.
    pub(super) fn check_all_drops(&mut self, senate: &MirrorNetwork) {
        for seat in senate.active_nodes() {
            let Some(server) = senate.server(seat).filter(|_| !self.nodes_that_may_give_up.contains(&seat)) else {
                continue;
            };
            for source in senate.sources() {
                self.check_drops(server, seat, source, senate.issued_events(source));
            }
        }
    }

    fn check_drops(&mut self, server: &MirrorServer, seat: usize, source: SourceId, journal: &[IssuedEvent]) {
        for seq in 1..=journal.len() as u64 {
            if server.mirror.is_dropped(source, seq) && !is_obsolete(journal, seq) {
                self.report_violation("drops", || format!("seat {seat} dropped {source} {seq}, which is not obsolete"));
            }
        }
    }

    /// Who is gone may have told its last events to nobody; but those who are left agree.
    fn check_agreement(&mut self, senate: &MirrorNetwork, source: SourceId) {
        let none = SourceState::default();
        let hash =
            |seat: &usize| senate.server(*seat).map(|server| server.source_states.get(&source).unwrap_or(&none).hash());
        let hashes: Vec<_> =
            senate.active_nodes().iter().filter(|seat| self.must_have_all_events(**seat)).map(hash).collect();
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
            self.report_violation("agree", || format!("states of {source}, which is gone, differ: {hashes:x?}"));
        }
    }

    pub(super) fn into_result(self, scenario: &MirrorScenario, senate: &MirrorNetwork) -> ScenarioResult {
        let traffic = senate.traffic();
        let count =
            |kind: fn(&MirrorFault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        ScenarioResult {
            violations: self.violations,
            frames: self.delivered_count,
            activity_count: self.dropped_count,
            recorded: self.installed_count,
            rejected_datagrams: self.given_up_count,
            packets: traffic.sent,
            lost_datagrams: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, MirrorFault::Split(_))),
            crashes: count(|fault| matches!(fault, MirrorFault::Crash(_))),
            virtual_seconds: (senate.now() - Instant::ZERO).as_secs_f64(),
            features: scenario.features(),
            trace_hash: mix_hash(self.trace_hash, traffic.bytes),
        }
    }
}

fn drop_count(server: &MirrorServer) -> u64 {
    server.mirror.stats().dropped + server.mirror.stats().skipped
}

/// The game of a source without any drop, from those of its events that count.
fn fold_events(journal: &[IssuedEvent], counts: impl Fn(u64, &IssuedEvent) -> bool) -> SourceState {
    let mut part = SourceState::default();
    for (seq, issued) in (1..).zip(journal).filter(|(seq, issued)| counts(*seq, issued)) {
        part.apply(seq, issued);
    }
    part
}

/// Whether an event is one of those up to which a part of the game has got.
fn is_applied(part: &SourceState, seq: u64, issued: &IssuedEvent) -> bool {
    if issued.key == 0 { part.loose().any(|known| known == seq) } else { seq <= part.last_seq(issued.key) }
}

/// Whether a later event of its key replaces it, with nothing in between that cannot be replaced.
fn is_obsolete(journal: &[IssuedEvent], seq: u64) -> bool {
    let issued = &journal[seq as usize - 1];
    let mut later = journal[seq as usize..].iter().filter(|later| later.key == issued.key);
    let end = later.find(|later| later.kind.replaces() || !later.kind.is_replaceable());
    issued.key != 0 && issued.kind.is_replaceable() && end.is_some_and(|end| end.kind.replaces())
}
