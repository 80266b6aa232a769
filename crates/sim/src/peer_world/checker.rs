//! What must hold in a maze, judged by what was delivered and by what people at the sites see.

use std::collections::{BTreeMap, BTreeSet};

use coplay::peer_world::{DeadReckoning, EntityId, Provenance, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{PeerWorldItem, PeerWorldItems};
use coplay_maze::{Avatar, MazeEvent, ScoreRecord, UNIT, WALK_SPEED};

use super::scenario::PeerWorldFault;
use super::{DeliveredDatagram, PeerWorldNetwork, PeerWorldScenario};
use crate::session::scenario::ScenarioResult;
use crate::toy_machine::mix_hash;

/// Ticks after which an avatar that nothing was heard of must not be shown.
const MAX_SILENT_TICKS: u32 = 100;
/// Views are compared when they are so many ticks old: by then all of it has arrived everywhere.
const COMPARISON_AGE_TICKS: u32 = 70;
/// Clocks are known so well, and so well in one house.
const MAX_CLOCK_ERROR: TimeDelta = TimeDelta::from_millis(10);
const MAX_CLOCK_ERROR_LAN: TimeDelta = TimeDelta::from_millis(1);
/// The most memory of one site.
const MAX_MEMORY: usize = 4 << 20;
/// Violations of one kind are told so often.
const MAX_REPORTS_PER_PROPERTY: usize = 3;

/// What is broken on purpose, at the first place, to see that it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It takes updates for those of other ticks.
    ShiftUpdateTicks,
    /// It is told of no records.
    DropRecords,
    /// Nor by who leaves, of whom it hears the goodbye.
    DropFinalRecords,
    /// It gets wrong stamps for clocks.
    WrongClockStamps,
    /// What it is shown is not what was delivered to it.
    ShowUndelivered,
}

/// How somebody is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// It crashed, or its goodbye got to nobody who is still here and could pass on what it said.
    Unreceived,
    /// Somebody who is here has its last words.
    Received,
}

/// The judge of one scenario.
pub(super) struct PeerWorldChecker {
    sabotage: Option<Sabotage>,
    /// How well clocks must be known.
    max_clock_error: TimeDelta,
    /// The ticks of the updates that got to each place.
    delivered_ticks: BTreeMap<(usize, EntityId), BTreeSet<u32>>,
    /// Hits as they were told where they happened: who, and by whom.
    hits: BTreeMap<(EntityId, EntityId), u32>,
    /// The places where somebody went, and how.
    departures: BTreeMap<usize, Departure>,
    violations: Vec<String>,
    views: u64,
    trace_hash: u64,
}

impl PeerWorldChecker {
    pub(super) fn new(scenario: &PeerWorldScenario) -> Self {
        Self {
            sabotage: scenario.sabotage,
            max_clock_error: if scenario.is_lan() { MAX_CLOCK_ERROR_LAN } else { MAX_CLOCK_ERROR },
            delivered_ticks: BTreeMap::new(),
            hits: BTreeMap::new(),
            departures: BTreeMap::new(),
            violations: Vec::new(),
            views: 0,
            trace_hash: scenario.seed,
        }
    }

    fn report_violation(&mut self, promise: &str, what: impl FnOnce() -> String) {
        let told = self.violations.iter().filter(|told| told.starts_with(promise)).count();
        if told < MAX_REPORTS_PER_PROPERTY {
            self.violations.push(format!("{promise}: {}", what()));
        }
    }

    pub(super) fn on_join(&mut self, place: usize) {
        self.delivered_ticks.retain(|(to, _), _| *to != place);
    }

    pub(super) fn on_departure(&mut self, arena: &mut PeerWorldNetwork, place: usize) {
        self.process_deliveries(arena);
        arena.active_nodes().into_iter().for_each(|present| self.count_hits(arena, present));
        self.departures.insert(place, Departure::Unreceived);
        self.excuse_lost_records(arena, place);
    }

    /// A place goes, and with it the last words of sites that only it had heard. No protocol can bring them back: it may have been cut off
    /// from the others until now, or have heard the goodbye a moment ago. What any place that stays knows is still demanded of all.
    fn excuse_lost_records(&mut self, arena: &PeerWorldNetwork, going: usize) {
        let staying: Vec<usize> = arena.active_nodes().into_iter().filter(|place| *place != going).collect();
        let hits = &self.hits;
        for (gone, how) in &mut self.departures {
            let site = arena.site_of(*gone);
            let decided: u32 = hits.iter().filter(|((whom, _), _)| whom.site == site).map(|(_, times)| times).sum();
            // A site that is back counts hits of its own, and these do not show that it was reminded of those before.
            let needed = |place: usize| if place == *gone { decided } else { known_hit_count(arena, going, site) };
            if !staying.iter().any(|place| known_hit_count(arena, *place, site) >= needed(*place)) {
                *how = Departure::Unreceived;
            }
        }
    }

    /// A place has a new view.
    pub(super) fn on_view(&mut self, arena: &mut PeerWorldNetwork, place: usize) {
        self.process_deliveries(arena);
        self.count_hits(arena, place);
        self.views += 1;
        let Some(game) = arena.game(place) else { return };
        self.check_view(arena, place);
        let memory = game.world().memory();
        if memory > MAX_MEMORY {
            self.report_violation("memory", || format!("place {place} takes {memory} bytes"));
        }
    }

    /// Nobody is shown long after it was heard of, and what was told for the very tick is what its owner says.
    fn check_view(&mut self, arena: &PeerWorldNetwork, place: usize) {
        let Some((tick, shown)) = arena.game(place).map(coplay_maze::MazeSite::view) else { return };
        for shown in shown.iter().filter(|shown| shown.provenance != Provenance::Own) {
            let entity = shown.entity;
            let ticks = self.delivered_ticks.get(&(place, entity));
            let fresh = tick.saturating_sub(MAX_SILENT_TICKS)..=tick;
            if ticks.is_none_or(|ticks| ticks.range(fresh).next().is_none()) {
                self.report_violation("give up", || {
                    format!("place {place} shows {entity:?} at tick {tick}, long after it was heard of")
                });
            }
            let truth = owner_state(arena, entity, tick).filter(|truth| **truth != shown.state);
            if let Some(truth) = truth.filter(|_| shown.provenance == Provenance::Received) {
                self.report_violation("told", || {
                    format!("place {place} shows {entity:?} at tick {tick} as {:?}, and it was {truth:?}", shown.state)
                });
            }
        }
    }

    fn process_deliveries(&mut self, arena: &mut PeerWorldNetwork) {
        for delivery in arena.take_deliveries() {
            self.on_delivery(arena, &delivery);
        }
    }

    fn on_delivery(&mut self, arena: &PeerWorldNetwork, delivery: &DeliveredDatagram) {
        if self.sabotage == Some(Sabotage::ShowUndelivered)
            && delivery.to == 0
            && delivery.at > Instant::ZERO + TimeDelta::from_secs(5)
        {
            return;
        }
        let Some(present) = arena.game(delivery.to).and_then(coplay_maze::MazeSite::tick) else { return };
        let site = arena.site_of(delivery.from);
        for item in PeerWorldItems::new(&delivery.bytes).into_iter().flatten().flatten() {
            if item == PeerWorldItem::Leave {
                self.departures.entry(delivery.from).and_modify(Departure::mark_received);
            }
            if let PeerWorldItem::Update(update) = item {
                let tick = present.saturating_add_signed((update.tick.wrapping_sub(present as u16) as i16).into());
                let entity = EntityId { site, index: update.entity_index };
                let ticks = self.delivered_ticks.entry((delivery.to, entity)).or_default();
                ticks.insert(tick);
                *ticks = ticks.split_off(&present.saturating_sub(4 * MAX_SILENT_TICKS));
            }
        }
    }

    fn count_hits(&mut self, arena: &mut PeerWorldNetwork, place: usize) {
        let site = arena.site_of(place);
        let Some(game) = arena.game_mut(place) else { return };
        while let Some(news) = game.poll_event() {
            if let MazeEvent::AvatarHit { index, shooter: by } = news {
                *self.hits.entry((EntityId { site, index }, by)).or_default() += 1;
            }
        }
    }

    /// All faults are over for a while.
    pub(super) fn on_recovered(&mut self, arena: &mut PeerWorldNetwork) {
        self.check_presence(arena);
        self.check_view_agreement(arena);
        self.check_clocks(arena);
    }

    fn check_presence(&mut self, arena: &PeerWorldNetwork) {
        for place in arena.active_nodes() {
            let Some(game) = arena.game(place) else { continue };
            let seen: BTreeSet<EntityId> = game.view().1.iter().map(|shown| shown.entity).collect();
            for other in arena.active_nodes() {
                let avatars = arena.game(other).map_or(0, coplay_maze::MazeSite::avatars);
                for index in 0..avatars {
                    let entity = EntityId { site: arena.site_of(other), index: index as u8 };
                    if !seen.contains(&entity) {
                        self.report_violation("presence", || {
                            format!("place {place} does not see {entity:?} of place {other}")
                        });
                    }
                }
            }
        }
    }

    /// What everybody makes of a tick for which everything has arrived: the same, and what follows from what was told.
    fn check_view_agreement(&mut self, arena: &PeerWorldNetwork) {
        let present = arena.active_nodes();
        let Some(now) = present.iter().filter_map(|place| arena.game(*place)?.tick()).min() else { return };
        let tick = now.saturating_sub(COMPARISON_AGE_TICKS);
        let mut known: BTreeMap<EntityId, Vec<(usize, Avatar)>> = BTreeMap::new();
        for place in present {
            let Some(game) = arena.game(place) else { continue };
            for (entity, avatar) in game.others_at(tick) {
                self.check_dead_reckoning(arena, place, entity, (tick, &avatar));
                known.entry(entity).or_default().push((place, avatar));
            }
        }
        for (entity, states) in known {
            self.trace_hash = mix_hash(self.trace_hash, states[0].1.position.x as u64);
            if let Some((place, avatar)) = states.iter().find(|(_, avatar)| *avatar != states[0].1) {
                let first = &states[0];
                self.report_violation("views", || {
                    format!(
                        "{entity:?} at tick {tick} is {:?} for place {} and {avatar:?} for place {place}",
                        first.1, first.0
                    )
                });
            }
        }
    }

    /// What a place makes of an entity follows from what its owner did in those ticks of which it told this place, and is as near to what
    /// it did in this one as anybody can have walked since.
    fn check_dead_reckoning(
        &mut self,
        arena: &PeerWorldNetwork,
        place: usize,
        entity: EntityId,
        (tick, shown): (u32, &Avatar),
    ) {
        let Some((earlier, expected)) = self.expected_state(arena, place, entity, tick) else { return };
        if *shown != expected {
            self.report_violation("reckoning", || {
                format!("place {place} makes of {entity:?} at tick {tick} {shown:?}, and what it was told {expected:?}")
            });
        }
        let (before, then) = (owner_state(arena, entity, earlier), owner_state(arena, entity, tick));
        let one_life = before
            .zip(then)
            .filter(|(before, then)| (before.life, before.spawn_count) == (then.life, then.spawn_count));
        let Some((_, then)) = one_life else { return };
        // It walked as far as it could, they thought that it walked the other way, and what came next bent that by as much again.
        let most = 4 * (tick - earlier) * u32::from(WALK_SPEED.unsigned_abs()) / UNIT as u32;
        let off = then.position.distance(shown.position);
        if off > most {
            self.report_violation("reckoning", || {
                format!("place {place} has {entity:?} off by {off} units at tick {tick}")
            });
        }
    }

    /// What is to be made of a tick from the owner's own account of those ticks that got to a place; and the last of them before it. `None` if
    /// the owner was started anew since.
    fn expected_state(
        &self,
        arena: &PeerWorldNetwork,
        place: usize,
        entity: EntityId,
        tick: u32,
    ) -> Option<(u32, Avatar)> {
        let ticks = self.delivered_ticks.get(&(place, entity))?;
        let rules = arena.game(place)?.rules();
        let before = *ticks.range(..=tick).next_back()?;
        let earlier = owner_state(arena, entity, before)?;
        let state = match ticks.range(tick + 1..).next() {
            _ if before == tick => earlier.clone(),
            Some(after) => {
                rules.interpolate(earlier, owner_state(arena, entity, *after)?, tick - before, after - before)
            }
            None => rules.extrapolate(earlier, tick - before),
        };
        Some((before, state))
    }

    fn check_clocks(&mut self, arena: &mut PeerWorldNetwork) {
        let bound = self.max_clock_error;
        let present = arena.active_nodes();
        for place in &present {
            for other in present.iter().filter(|other| *other != place) {
                let (local, truth) = (arena.local_time(*place), arena.local_time(*other) - arena.local_time(*place));
                let site = arena.site_of(*other);
                let stats = arena.game(*place).and_then(|game| game.world().peer_stats(local, site));
                let off = stats.and_then(|stats| stats.clock_offset).map(|offset| (offset - truth).abs());
                if off.is_none_or(|off| off > bound) {
                    self.report_violation("clock", || {
                        format!("place {place} takes the clock of place {other} to be off by {off:?}")
                    });
                }
            }
        }
        let world = |place: &usize| Some(arena.local_time(*place) + arena.game(*place)?.world_clock_offset()?);
        let times: Vec<Instant> = present.iter().filter_map(world).collect();
        let apart = times.iter().max().zip(times.iter().min()).map(|(most, least)| *most - *least);
        if apart.is_some_and(|apart| apart > bound * 2) {
            self.report_violation("time", || format!("the world's time is {apart:?} apart"));
        }
    }

    /// Nobody shot for a while: all know all.
    pub(super) fn on_end(&mut self, arena: &mut PeerWorldNetwork) {
        for place in arena.active_nodes() {
            self.count_hits(arena, place);
        }
        let scores: Vec<_> =
            arena.active_nodes().into_iter().filter_map(|place| Some((place, arena.game(place)?.scores()))).collect();
        let Some((first, score)) = scores.first() else { return };
        for (place, other) in &scores[1..] {
            if other != score {
                self.report_violation("scores", || {
                    format!("place {first} has {:?}, place {place} {:?}", score.ranking(), other.ranking())
                });
            }
        }
        let known: BTreeMap<EntityId, u32> = score.ranking().into_iter().map(|(of, score)| (of, score.falls)).collect();
        let (hits, falls, counted) = (score.total_hits(), known.values().sum::<u32>(), self.hits.values().sum::<u32>());
        self.trace_hash = mix_hash(self.trace_hash, counted.into());
        self.check_hits(arena, &known);
        if hits != falls {
            self.report_violation("once", || format!("{hits} times somebody hit, and {falls} times somebody was hit"));
        }
    }

    /// Every hit is known once. What was decided just before a crash nobody may know of; but nothing is ever known twice, and who leaves takes nothing
    /// with it that anybody heard who stays.
    fn check_hits(&mut self, arena: &PeerWorldNetwork, known: &BTreeMap<EntityId, u32>) {
        let mut decided: BTreeMap<EntityId, u32> = known.keys().map(|entity| (*entity, 0)).collect();
        self.hits.iter().for_each(|((whom, _), times)| *decided.entry(*whom).or_default() += times);
        for (whom, decided) in decided {
            let known = known.get(&whom).copied().unwrap_or(0);
            let gone = arena.node_of(whom.site).and_then(|place| self.departures.get(&place));
            let is_told = gone.is_none_or(|gone| *gone == Departure::Received);
            if known > decided || (is_told && known < decided) {
                self.report_violation("once", || format!("{whom:?} was hit {decided} times, and {known} are known"));
            }
        }
    }

    pub(super) fn into_result(self, scenario: &PeerWorldScenario, arena: &PeerWorldNetwork) -> ScenarioResult {
        let traffic = arena.traffic();
        let count =
            |kind: fn(&PeerWorldFault) -> bool| scenario.faults.iter().filter(|(_, fault)| kind(fault)).count() as u64;
        ScenarioResult {
            violations: self.violations,
            frames: self.views,
            packets: traffic.sent,
            lost_datagrams: traffic.lost + traffic.overflowed + traffic.cut,
            cuts: count(|fault| matches!(fault, PeerWorldFault::Split(_))),
            crashes: count(|fault| matches!(fault, PeerWorldFault::Crash(_))),
            virtual_seconds: (arena.now() - Instant::ZERO).as_secs_f64(),
            activity_count: u64::from(self.hits.values().sum::<u32>()),
            features: scenario.features(),
            trace_hash: mix_hash(self.trace_hash, traffic.bytes),
            ..ScenarioResult::default()
        }
    }
}

/// How often avatars of a site were hit, as far as a place knows.
fn known_hit_count(arena: &PeerWorldNetwork, place: usize, site: WorldSiteId) -> u32 {
    let record = |game: &coplay_maze::MazeSite| {
        game.world()
            .records()
            .find(|(of, _)| *of == site)
            .and_then(|(_, record)| ScoreRecord::from_bytes(&record.bytes))
    };
    arena.game(place).and_then(record).map_or(0, |tally| tally.total_falls())
}

/// How an entity was at a tick, as its owner knows.
fn owner_state(arena: &PeerWorldNetwork, entity: EntityId, tick: u32) -> Option<&Avatar> {
    arena.game(arena.node_of(entity.site)?)?.world().own_state_at(entity.index, tick)
}

impl Departure {
    fn mark_received(&mut self) {
        if *self == Self::Unreceived {
            *self = Self::Received;
        }
    }
}

impl Sabotage {
    /// Changes what gets to the first place; `None` if it does not get there at all.
    pub(super) fn tamper(self, mut bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        const UPDATE: u8 = 1;
        const PROBE: u8 = 5;
        const ECHO: u8 = 6;
        match self {
            Self::ShiftUpdateTicks if bytes.get(1) == Some(&UPDATE) && bytes.len() > 7 => {
                let tick = u16::from_le_bytes([bytes[5], bytes[6]]).wrapping_add(3);
                bytes[5..7].copy_from_slice(&tick.to_le_bytes());
            }
            Self::WrongClockStamps => {
                let echo = if bytes.get(1) == Some(&PROBE) { 10 } else { 1 };
                if bytes.get(echo) == Some(&ECHO) && bytes.len() >= echo + 25 {
                    for at in [echo + 9, echo + 17] {
                        let stamp: [u8; 8] = bytes[at..at + 8].try_into().expect("eight of them");
                        bytes[at..at + 8].copy_from_slice(&(i64::from_le_bytes(stamp) + 40_000_000).to_le_bytes());
                    }
                }
            }
            Self::DropRecords | Self::DropFinalRecords => {
                let has = |is: fn(&PeerWorldItem<'_>) -> bool| {
                    PeerWorldItems::new(&bytes).into_iter().flatten().flatten().any(|item| is(&item))
                };
                let is_goodbye = self == Self::DropFinalRecords && has(|item| *item == PeerWorldItem::Leave);
                match has(|item| matches!(item, PeerWorldItem::Record { .. })) {
                    true if is_goodbye => bytes = [bytes[0], bytes[bytes.len() - 1]].into(),
                    true => return None,
                    false => {}
                }
            }
            _ => {}
        }
        Some(bytes)
    }
}
