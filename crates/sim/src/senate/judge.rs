//! What must hold among servers, judged by what was issued and by what the game is like at each of them.

use std::collections::{BTreeMap, BTreeSet};

use coplay::mirror::{DeliveryOrder, MirrorEvent, SourceId};
use coplay::time::{GroupInstant, Instant, TimeDelta};

use super::scenario::{Fault, Scenario};
use super::{Issued, Part, Seen, Senate, Server};
use crate::scenario::Played;
use crate::toy::mix;

/// The most memory of one server, the game apart.
const MEMORY: usize = 8 << 20;
/// By this time everybody knows everybody's time.
const ALL_KNOWN: GroupInstant = GroupInstant::from_nanos(2_500_000_000);
/// Times that are not further apart are the same, where ways are even.
const SAME_TIME: TimeDelta = TimeDelta::from_millis(10);
/// Violations of one kind are told so often.
const MOST: usize = 3;

/// The judge of one scenario.
pub(super) struct Judge {
    order: DeliveryOrder,
    is_calm: bool,
    /// Seats that may give up what is not obsolete, and those that took something over and may have it from them.
    give_up: BTreeSet<usize>,
    took_over: BTreeSet<usize>,
    /// How far each seat is in the total order.
    reached: BTreeMap<usize, (GroupInstant, SourceId, u64)>,
    gave_up: u64,
    /// Events that each seat said it gave up.
    named: BTreeMap<usize, u64>,
    delivered: u64,
    dropped: u64,
    installed: u64,
    /// How far apart ways may be.
    uneven: TimeDelta,
    violations: Vec<String>,
    trace: u64,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            order: scenario.order(),
            is_calm: scenario.is_calm(),
            give_up: scenario.give_up(),
            took_over: BTreeSet::new(),
            uneven: scenario.unevenness(),
            reached: BTreeMap::new(),
            gave_up: 0,
            named: BTreeMap::new(),
            delivered: 0,
            dropped: 0,
            installed: 0,
            violations: Vec::new(),
            trace: scenario.seed,
        }
    }

    fn violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MOST {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    pub(super) fn on_enter(&mut self, seat: usize) {
        self.reached.remove(&seat);
        self.named.remove(&seat);
        self.took_over.remove(&seat);
    }

    pub(super) fn on_gone(&mut self, senate: &Senate, seat: usize) {
        self.dropped += senate.server(seat).map_or(0, drops);
    }

    pub(super) fn on_seen(&mut self, seat: usize, seen: Seen) {
        match seen {
            Seen::Delivered { source, seq, at, in_order, late, .. } => {
                self.delivered += 1;
                self.trace = mix(self.trace, mix(seat as u64, u64::from(source.0) << 32 | seq));
                if !in_order {
                    self.violation("order", || format!("seat {seat} takes in {source} {seq} too late or twice"));
                }
                if self.order == DeliveryOrder::Total {
                    self.judge_total(seat, (at, source, seq), late);
                }
            }
            Seen::Installed { .. } => {
                self.installed += 1;
                self.took_over.insert(seat);
            }
            Seen::Noticed(MirrorEvent::EventAbandoned { source, seq }) => {
                self.gave_up += 1;
                *self.named.entry(seat).or_default() += 1;
                if !self.give_up.contains(&seat) {
                    self.violation("give up", || format!("seat {seat} gives up {source} {seq}"));
                }
            }
            Seen::Noticed(_) => {}
        }
    }

    /// What is not said to be late is in its order; and nothing is late where nothing goes wrong.
    fn judge_total(&mut self, seat: usize, place: (GroupInstant, SourceId, u64), late: bool) {
        let reached = self.reached.get(&seat).copied();
        if late != reached.is_some_and(|reached| place < reached) {
            self.violation("total", || format!("seat {seat} takes in {place:?} after {reached:?}, late: {late}"));
        }
        if late && self.is_calm && place.0 > ALL_KNOWN {
            self.violation("total", || format!("seat {seat} takes in {place:?} late though nothing goes wrong"));
        }
        self.reached.insert(seat, reached.map_or(place, |reached| reached.max(place)));
    }

    pub(super) fn judge_memory(&mut self, senate: &Senate) {
        for seat in senate.present() {
            let memory = senate.server(seat).map_or(0, |server| server.mirror.memory());
            if memory > MEMORY {
                self.violation("memory", || format!("seat {seat} takes {memory} bytes"));
            }
        }
    }

    /// Nothing was said for a while: everybody has everything.
    pub(super) fn on_end(&mut self, senate: &Senate) {
        let sources: Vec<SourceId> = senate.sources().collect();
        for seat in senate.present() {
            self.dropped += senate.server(seat).map_or(0, drops);
            self.judge_names(senate, seat);
            for source in &sources {
                self.judge_part(senate, seat, *source);
            }
        }
        self.judge_all_drops(senate);
        self.judge_time(senate);
        sources.iter().filter(|source| !senate.runs(**source)).for_each(|source| self.judge_agreement(senate, *source));
    }

    /// All take it to be the same time.
    fn judge_time(&mut self, senate: &Senate) {
        let time = |seat: &usize| senate.server(*seat)?.mirror.group_time(senate.local(*seat));
        let times: Vec<Option<GroupInstant>> = senate.present().iter().map(time).collect();
        let known: Vec<GroupInstant> = times.iter().copied().flatten().collect();
        let apart = known.iter().max().zip(known.iter().min()).map_or(TimeDelta::ZERO, |(last, first)| *last - *first);
        if known.len() < times.len() || apart > SAME_TIME + self.uneven {
            self.violation("time", || format!("times are {apart:?} apart, or unknown: {times:?}"));
        }
    }

    /// What was given up is named, all of it.
    fn judge_names(&mut self, senate: &Senate, seat: usize) {
        let gave_up = senate.server(seat).map_or(0, |server| server.mirror.stats().abandoned);
        let named = self.named.get(&seat).copied().unwrap_or(0);
        if gave_up != named {
            self.violation("names", || format!("seat {seat} gave up {gave_up} events and named {named}"));
        }
    }

    fn judge_part(&mut self, senate: &Senate, seat: usize, source: SourceId) {
        let Some(server) = senate.server(seat) else { return };
        let journal = senate.journal(source);
        let settled = server.mirror.settled(source) as usize;
        let runs = senate.runs(source);
        if runs && settled != journal.len() {
            self.violation("settled", || format!("seat {seat} has {settled} of {} events of {source}", journal.len()));
            return;
        }
        if !self.has_all(seat) {
            return;
        }
        let none = Part::default();
        let part = server.parts.get(&source).unwrap_or(&none);
        self.trace = mix(self.trace, part.hash());
        let wanted =
            if runs { fold(journal, |_, _| true) } else { fold(journal, |seq, issued| is_in(part, seq, issued)) };
        if wanted.hash() != part.hash() {
            self.violation("state", || format!("seat {seat} has another state of {source} than without drops"));
        }
    }

    /// Whether a seat must have everything: not if it, or who it has something from, may give up what is not obsolete.
    fn has_all(&self, seat: usize) -> bool {
        !self.give_up.contains(&seat) && (self.give_up.is_empty() || !self.took_over.contains(&seat))
    }

    /// What is dropped by now is obsolete by now.
    pub(super) fn judge_all_drops(&mut self, senate: &Senate) {
        for seat in senate.present() {
            let Some(server) = senate.server(seat).filter(|_| !self.give_up.contains(&seat)) else { continue };
            for source in senate.sources() {
                self.judge_drops(server, seat, source, senate.journal(source));
            }
        }
    }

    fn judge_drops(&mut self, server: &Server, seat: usize, source: SourceId, journal: &[Issued]) {
        for seq in 1..=journal.len() as u64 {
            if server.mirror.is_dropped(source, seq) && !is_obsolete(journal, seq) {
                self.violation("drops", || format!("seat {seat} dropped {source} {seq}, which is not obsolete"));
            }
        }
    }

    /// Who is gone may have told its last events to nobody; but those who are left agree.
    fn judge_agreement(&mut self, senate: &Senate, source: SourceId) {
        let none = Part::default();
        let hash = |seat: &usize| senate.server(*seat).map(|server| server.parts.get(&source).unwrap_or(&none).hash());
        let hashes: Vec<_> = senate.present().iter().filter(|seat| self.has_all(**seat)).map(hash).collect();
        if hashes.windows(2).any(|pair| pair[0] != pair[1]) {
            self.violation("agree", || format!("states of {source}, which is gone, differ: {hashes:x?}"));
        }
    }

    pub(super) fn into_played(self, scenario: &Scenario, senate: &Senate) -> Played {
        let traffic = senate.traffic();
        let count = |kind: fn(&Fault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        Played {
            violations: self.violations,
            frames: self.delivered,
            seen: self.dropped,
            recorded: self.installed,
            dropped: self.gave_up,
            packets: traffic.sent,
            losses: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, Fault::Split(_))),
            crashes: count(|fault| matches!(fault, Fault::Crash(_))),
            seconds: (senate.now() - Instant::ZERO).as_secs_f64(),
            kinds: scenario.kinds(),
            trace: mix(self.trace, traffic.bytes),
        }
    }
}

fn drops(server: &Server) -> u64 {
    server.mirror.stats().dropped + server.mirror.stats().skipped
}

/// The game of a source without any drop, from those of its events that count.
fn fold(journal: &[Issued], counts: impl Fn(u64, &Issued) -> bool) -> Part {
    let mut part = Part::default();
    for (seq, issued) in (1..).zip(journal).filter(|(seq, issued)| counts(*seq, issued)) {
        part.fold(seq, issued);
    }
    part
}

/// Whether an event is one of those up to which a part of the game has got.
fn is_in(part: &Part, seq: u64, issued: &Issued) -> bool {
    if issued.key == 0 { part.loose().any(|known| known == seq) } else { seq <= part.last(issued.key) }
}

/// Whether a later event of its key replaces it, with nothing in between that cannot be replaced.
fn is_obsolete(journal: &[Issued], seq: u64) -> bool {
    let issued = &journal[seq as usize - 1];
    let mut later = journal[seq as usize..].iter().filter(|later| later.key == issued.key);
    let end = later.find(|later| later.kind.replaces() || !later.kind.is_replaceable());
    issued.key != 0 && issued.kind.is_replaceable() && end.is_some_and(|end| end.kind.replaces())
}
