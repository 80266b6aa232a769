//! Checks of a serverless maze, based on the delivered datagrams and on the views of the sites.
//!
//! - *expiry*: no node shows an avatar whose last delivered update is older than [`MAX_SILENT_TICKS`].
//! - *display*: a state received for the displayed tick equals the owner's state.
//! - *presence*: after recovery, every node sees every avatar.
//! - *views*: after recovery, all nodes agree on a past tick for which every update has arrived.
//! - *reckoning*: each of those states follows from the delivered updates by dead reckoning.
//! - *clock*, *time*: after recovery, the nodes know each other's clocks and agree on the world time.
//! - *scores*, *exactly once*: at the end, all nodes have equal scores and know every hit exactly once, except hits
//!   that only a site that crashed or left had recorded.
//! - *memory*: no site exceeds [`MAX_MEMORY`].

use std::collections::{BTreeMap, BTreeSet};

use coplay::peer_world::message::{PeerWorldItem, PeerWorldItems};
use coplay::peer_world::{DeadReckoning, EntityId, Provenance, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, MazeEvent, ScoreRecord, UNIT, WALK_SPEED};

use super::scenario::PeerWorldScenario;
use super::{DeliveredDatagram, PeerWorldNetwork, PeerWorldSabotage};
use crate::scenario_result::ScenarioResult;
use crate::toy_machine::mix_hash;
use crate::violations::Violations;

/// Largest age, in ticks, of the last delivered update of an avatar that is shown.
const MAX_SILENT_TICKS: u32 = 100;
/// Age of the compared views, in ticks; by then every update has arrived everywhere.
const COMPARISON_AGE_TICKS: u32 = 70;
/// Largest allowed error of a clock offset.
const MAX_CLOCK_ERROR: TimeDelta = TimeDelta::from_millis(10);
/// Largest allowed error of a clock offset on a local network.
const MAX_CLOCK_ERROR_LAN: TimeDelta = TimeDelta::from_millis(1);
/// Largest allowed memory of a site, in bytes.
const MAX_MEMORY: usize = 4 << 20;

/// Fate of the last records of a site that crashed or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    /// The site crashed, or no remaining node has its last records.
    Unreceived,
    /// The site left, and a remaining node has its last records.
    Received,
}

/// Observations of one scenario, and the violations found in them.
pub(super) struct PeerWorldChecker {
    sabotage: Option<PeerWorldSabotage>,
    /// Largest allowed error of a clock offset in this scenario.
    max_clock_error: TimeDelta,
    /// Ticks of the delivered updates, by receiving node and entity.
    delivered_ticks: BTreeMap<(usize, EntityId), BTreeSet<u32>>,
    /// Number of hits as reported by the victims' sites, by victim and shooter.
    hits: BTreeMap<(EntityId, EntityId), u32>,
    /// Fate of the last records of each site that crashed or left, by node.
    departures: BTreeMap<usize, Departure>,
    violations: Violations,
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
            violations: Violations::default(),
            views: 0,
            trace_hash: scenario.seed,
        }
    }

    pub(super) fn on_join(&mut self, node: usize) {
        self.delivered_ticks.retain(|(to, _), _| *to != node);
    }

    pub(super) fn on_departure(&mut self, network: &mut PeerWorldNetwork, node: usize) {
        self.process_deliveries(network);
        network.active_nodes().into_iter().for_each(|present| self.count_hits(network, present));
        self.departures.insert(node, Departure::Unreceived);
        self.excuse_lost_records(network, node);
    }

    /// Excuses the loss of final records, those of the departing site or of a site gone before, that only the departing
    /// node had. No protocol can recover them: the node may have been cut off from the others until now, or have
    /// received the leave of another site a moment ago. Records that a remaining node has are not excused.
    fn excuse_lost_records(&mut self, network: &PeerWorldNetwork, departing: usize) {
        let remaining: Vec<usize> = network.active_nodes().into_iter().filter(|node| *node != departing).collect();
        let hits = &self.hits;
        for (gone, departure) in &mut self.departures {
            let site = network.site_of(*gone);
            let decided: u32 = hits.iter().filter(|((victim, _), _)| victim.site == site).map(|(_, times)| times).sum();
            // A rejoined site counts new hits of its own, which do not show that it got back its earlier ones.
            let needed = |node: usize| if node == *gone { decided } else { known_hit_count(network, departing, site) };
            if !remaining.iter().any(|node| known_hit_count(network, *node, site) >= needed(*node)) {
                *departure = Departure::Unreceived;
            }
        }
    }

    /// Checks the new view of a node, and the memory of its site.
    pub(super) fn on_view(&mut self, network: &mut PeerWorldNetwork, node: usize) {
        self.process_deliveries(network);
        self.count_hits(network, node);
        self.views += 1;
        let Some(game) = network.game(node) else { return };
        self.check_view(network, node);
        let memory = game.world().memory();
        if memory > MAX_MEMORY {
            self.violations.report("memory", || format!("node {node} uses {memory} bytes"));
        }
    }

    /// Checks that no avatar is shown long after its last update, and that a state received for the displayed tick
    /// equals the owner's.
    fn check_view(&mut self, network: &PeerWorldNetwork, node: usize) {
        let Some((tick, shown)) = network.game(node).map(coplay_maze::MazeSite::view) else { return };
        for shown in shown.iter().filter(|shown| shown.provenance != Provenance::Own) {
            let entity = shown.entity;
            let ticks = self.delivered_ticks.get(&(node, entity));
            let fresh = tick.saturating_sub(MAX_SILENT_TICKS)..=tick;
            if ticks.is_none_or(|ticks| ticks.range(fresh).next().is_none()) {
                self.violations.report("expiry", || {
                    format!("node {node} shows {entity:?} at tick {tick}, long after its last update")
                });
            }
            let truth = owner_state(network, entity, tick).filter(|truth| **truth != shown.state);
            if let Some(truth) = truth.filter(|_| shown.provenance == Provenance::Received) {
                self.violations.report("display", || {
                    format!("node {node} shows {entity:?} at tick {tick} as {:?}, but it was {truth:?}", shown.state)
                });
            }
        }
    }

    fn process_deliveries(&mut self, network: &mut PeerWorldNetwork) {
        for delivery in network.take_deliveries() {
            self.on_delivery(network, &delivery);
        }
    }

    fn on_delivery(&mut self, network: &PeerWorldNetwork, delivery: &DeliveredDatagram) {
        if self.sabotage == Some(PeerWorldSabotage::ShowUndelivered)
            && delivery.to == 0
            && delivery.at > Instant::ZERO + TimeDelta::from_secs(5)
        {
            return;
        }
        let Some(present) = network.game(delivery.to).and_then(coplay_maze::MazeSite::tick) else { return };
        let site = network.site_of(delivery.from);
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

    fn count_hits(&mut self, network: &mut PeerWorldNetwork, node: usize) {
        let site = network.site_of(node);
        let Some(game) = network.game_mut(node) else { return };
        while let Some(event) = game.poll_event() {
            if let MazeEvent::AvatarHit { index, shooter } = event {
                *self.hits.entry((EntityId { site, index }, shooter)).or_default() += 1;
            }
        }
    }

    /// Checks presence, views and clocks after recovery.
    pub(super) fn on_recovered(&mut self, network: &mut PeerWorldNetwork) {
        self.check_presence(network);
        self.check_view_agreement(network);
        self.check_clocks(network);
    }

    fn check_presence(&mut self, network: &PeerWorldNetwork) {
        for node in network.active_nodes() {
            let Some(game) = network.game(node) else { continue };
            let seen: BTreeSet<EntityId> = game.view().1.iter().map(|shown| shown.entity).collect();
            for other in network.active_nodes() {
                let avatars = network.game(other).map_or(0, coplay_maze::MazeSite::avatars);
                for index in 0..avatars {
                    let entity = EntityId { site: network.site_of(other), index: index as u8 };
                    if !seen.contains(&entity) {
                        self.violations
                            .report("presence", || format!("node {node} does not see {entity:?} of node {other}"));
                    }
                }
            }
        }
    }

    /// Checks a past tick for which every update has arrived: all nodes agree, and each state follows from the updates.
    fn check_view_agreement(&mut self, network: &PeerWorldNetwork) {
        let present = network.active_nodes();
        let Some(now) = present.iter().filter_map(|node| network.game(*node)?.tick()).min() else { return };
        let tick = now.saturating_sub(COMPARISON_AGE_TICKS);
        let mut known: BTreeMap<EntityId, Vec<(usize, Avatar)>> = BTreeMap::new();
        for node in present {
            let Some(game) = network.game(node) else { continue };
            for (entity, avatar) in game.others_at(tick) {
                self.check_dead_reckoning(network, node, entity, (tick, &avatar));
                known.entry(entity).or_default().push((node, avatar));
            }
        }
        for (entity, states) in known {
            self.trace_hash = mix_hash(self.trace_hash, states[0].1.position.x as u64);
            if let Some((node, avatar)) = states.iter().find(|(_, avatar)| *avatar != states[0].1) {
                let first = &states[0];
                self.violations.report("views", || {
                    format!(
                        "{entity:?} at tick {tick} is {:?} at node {} and {avatar:?} at node {node}",
                        first.1, first.0
                    )
                });
            }
        }
    }

    /// Checks that a node's state of an entity follows from the owner's states in the delivered ticks, and that it is
    /// as near to the owner's state as walking speed allows.
    fn check_dead_reckoning(
        &mut self,
        network: &PeerWorldNetwork,
        node: usize,
        entity: EntityId,
        (tick, shown): (u32, &Avatar),
    ) {
        let Some((earlier, expected)) = self.expected_state(network, node, entity, tick) else { return };
        if *shown != expected {
            self.violations.report("reckoning", || {
                format!("node {node} has {entity:?} at tick {tick} as {shown:?}; the updates give {expected:?}")
            });
        }
        let (before, then) = (owner_state(network, entity, earlier), owner_state(network, entity, tick));
        let same_life = before
            .zip(then)
            .filter(|(before, then)| (before.life, before.spawn_count) == (then.life, then.spawn_count));
        let Some((_, then)) = same_life else { return };
        // The avatar may have walked one way and its prediction the opposite way, and interpolation towards the next
        // update may double the difference.
        let most = 4 * (tick - earlier) * u32::from(WALK_SPEED.unsigned_abs()) / UNIT as u32;
        let off = then.position.distance(shown.position);
        if off > most {
            self.violations
                .report("reckoning", || format!("node {node} has {entity:?} off by {off} units at tick {tick}"));
        }
    }

    /// Computes the state at a tick from the owner's states in the ticks delivered to a node. Returns it with the last
    /// delivered tick up to it; `None` if no update was delivered or the owner no longer has the states.
    fn expected_state(
        &self,
        network: &PeerWorldNetwork,
        node: usize,
        entity: EntityId,
        tick: u32,
    ) -> Option<(u32, Avatar)> {
        let ticks = self.delivered_ticks.get(&(node, entity))?;
        let rules = network.game(node)?.rules();
        let before = *ticks.range(..=tick).next_back()?;
        let earlier = owner_state(network, entity, before)?;
        let state = match ticks.range(tick + 1..).next() {
            _ if before == tick => earlier.clone(),
            Some(after) => {
                rules.interpolate(earlier, owner_state(network, entity, *after)?, tick - before, after - before)
            }
            None => rules.extrapolate(earlier, tick - before),
        };
        Some((before, state))
    }

    fn check_clocks(&mut self, network: &mut PeerWorldNetwork) {
        let bound = self.max_clock_error;
        let present = network.active_nodes();
        for node in &present {
            for other in present.iter().filter(|other| *other != node) {
                let (local, truth) =
                    (network.local_time(*node), network.local_time(*other) - network.local_time(*node));
                let site = network.site_of(*other);
                let stats = network.game(*node).and_then(|game| game.world().peer_stats(local, site));
                let off = stats.and_then(|stats| stats.clock_offset).map(|offset| (offset - truth).abs());
                if off.is_none_or(|off| off > bound) {
                    self.violations.report("clock", || {
                        format!("node {node} estimates the clock of node {other} with an error of {off:?}")
                    });
                }
            }
        }
        let world_time = |node: &usize| Some(network.local_time(*node) + network.game(*node)?.world_clock_offset()?);
        let times: Vec<Instant> = present.iter().filter_map(world_time).collect();
        let apart = times.iter().max().zip(times.iter().min()).map(|(most, least)| *most - *least);
        if apart.is_some_and(|apart| apart > bound * 2) {
            self.violations.report("time", || format!("the nodes' world times are {apart:?} apart"));
        }
    }

    /// Checks, when no avatar has shot for a while, that all nodes have equal scores and that every hit is known
    /// exactly once.
    pub(super) fn on_end(&mut self, network: &mut PeerWorldNetwork) {
        for node in network.active_nodes() {
            self.count_hits(network, node);
        }
        let scores: Vec<_> =
            network.active_nodes().into_iter().filter_map(|node| Some((node, network.game(node)?.scores()))).collect();
        let Some((first, score)) = scores.first() else { return };
        for (node, other) in &scores[1..] {
            if other != score {
                self.violations.report("scores", || {
                    format!("node {first} has {:?}, node {node} has {:?}", score.ranking(), other.ranking())
                });
            }
        }
        let known: BTreeMap<EntityId, u32> = score.ranking().into_iter().map(|(of, score)| (of, score.falls)).collect();
        let (hits, falls, counted) = (score.total_hits(), known.values().sum::<u32>(), self.hits.values().sum::<u32>());
        self.trace_hash = mix_hash(self.trace_hash, counted.into());
        self.check_hits(network, &known);
        if hits != falls {
            self.violations.report("exactly once", || format!("{hits} hits scored, but {falls} hits taken"));
        }
    }

    /// Checks that every hit is known once. `known` gives the number of known hits on each avatar. Hits decided just
    /// before a crash may be lost. But no hit may count twice, and a leave must not lose a hit that a remaining node
    /// received.
    fn check_hits(&mut self, network: &PeerWorldNetwork, known: &BTreeMap<EntityId, u32>) {
        let mut decided: BTreeMap<EntityId, u32> = known.keys().map(|entity| (*entity, 0)).collect();
        self.hits.iter().for_each(|((victim, _), times)| *decided.entry(*victim).or_default() += times);
        for (victim, decided) in decided {
            let known = known.get(&victim).copied().unwrap_or(0);
            let gone = network.node_of(victim.site).and_then(|node| self.departures.get(&node));
            let is_known = gone.is_none_or(|gone| *gone == Departure::Received);
            if known > decided || (is_known && known < decided) {
                self.violations.report("exactly once", || {
                    format!("{victim:?} was hit {decided} times, but {known} hits are known")
                });
            }
        }
    }

    pub(super) fn into_result(self, scenario: &PeerWorldScenario, network: &PeerWorldNetwork) -> ScenarioResult {
        ScenarioResult {
            trace_hash: mix_hash(self.trace_hash, network.traffic().bytes),
            violations: self.violations.into_vec(),
            frames: self.views,
            activity_count: u64::from(self.hits.values().sum::<u32>()),
            ..ScenarioResult::of_network(network, &scenario.faults, scenario.features())
        }
    }
}

/// Returns how often the avatars of a site were hit, as far as a node knows.
fn known_hit_count(network: &PeerWorldNetwork, node: usize, site: WorldSiteId) -> u32 {
    let record = |game: &coplay_maze::MazeSite| {
        game.world()
            .records()
            .find(|(of, _)| *of == site)
            .and_then(|(_, record)| ScoreRecord::from_bytes(&record.bytes))
    };
    network.game(node).and_then(record).map_or(0, |record| record.total_falls())
}

/// Returns the state of an entity at a tick according to its owner; `None` if the owner does not run or no longer has
/// it.
fn owner_state(network: &PeerWorldNetwork, entity: EntityId, tick: u32) -> Option<&Avatar> {
    network.game(network.node_of(entity.site)?)?.world().own_state_at(entity.index, tick)
}

impl Departure {
    fn mark_received(&mut self) {
        if *self == Self::Unreceived {
            *self = Self::Received;
        }
    }
}
