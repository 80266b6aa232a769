//! Reference simulators of one server: the avatars that it owns, tick by tick.
//!
//! The owner of an avatar decides where the avatar walks and whether it is hit. The states of shooters carry their
//! last four shots, so a server learns of a shot even if the first event with it is dropped. The server then checks the
//! ticks that have passed since the shot was fired.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{Avatar, Controls, HitCandidate, MazeRules, Ninja, Position, ProjectileTracker};

use crate::server_world::entity_number;
use crate::spatial_index::{IndexedAvatar, SpatialIndex};

/// Dead-reckoning error above which an update is sent, in units.
const UPDATE_TOLERANCE: u32 = 8;
/// Longest interval between two updates of an avatar, in ticks.
const UPDATE_INTERVAL: u32 = 25;
/// Number of ticks for which past positions are kept. A shot that becomes known late cannot hit an avatar at a position
/// older than that.
const HISTORY_TICKS: usize = 100;
/// Distance within which other avatars are obstacles, in units. An avatar that is farther away cannot be reached in one
/// tick.
const COLLISION_RANGE: u32 = 256;

/// Source of an avatar's controls.
#[derive(Clone, Debug)]
pub enum Controller {
    /// Player who presses these buttons.
    Player(Controls),
    /// Bot that chooses its own buttons in every tick.
    Ninja(Box<Ninja>),
}

/// Result of a tick that other servers need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulationEvent {
    /// The other servers need the state of an owned avatar. Its last update is 25 ticks old, or differs from the avatar
    /// when dead-reckoned: by more than 8 units or 30 degrees, or by a shot, death or respawn.
    UpdateDue(EntityId),
    /// An owned avatar was hit.
    AvatarHit {
        /// Owned avatar that was hit.
        victim: EntityId,
        /// Avatar that fired the shot.
        shooter: EntityId,
    },
}

/// Reference simulators of the avatars that a server owns.
#[derive(Clone, Debug)]
pub struct Simulation {
    rules: MazeRules,
    owned: BTreeMap<EntityId, OwnedAvatar>,
    projectiles: ProjectileTracker,
}

/// Owned avatar. Its present state is in the [`SpatialIndex`], with all others.
#[derive(Clone, Debug)]
struct OwnedAvatar {
    controller: Controller,
    spawn_seed: u64,
    /// Last sent state, extrapolated to the present tick as other servers do.
    published: Avatar,
    /// Tick in which the state was last sent.
    published_at: u32,
    /// States of the past ticks, one per tick, newest last.
    history: VecDeque<PastState>,
}

/// Past position of an avatar, and the life it belongs to.
#[derive(Clone, Copy, Debug)]
struct PastState {
    tick: u32,
    spawn_count: u16,
    is_alive: bool,
    position: Position,
    heading: u16,
}

impl Simulation {
    /// Creates a simulation without avatars.
    pub fn new(rules: MazeRules) -> Self {
        Self { rules, owned: BTreeMap::new(), projectiles: ProjectileTracker::default() }
    }

    /// Returns the rules that all avatars obey, with the maze.
    pub fn rules(&self) -> &MazeRules {
        &self.rules
    }

    /// Takes over an avatar in its present state, and puts it into the index. `tick` must be the tick in which that
    /// state was sent to the other servers.
    pub fn add(
        &mut self,
        tick: u32,
        entity: EntityId,
        avatar: Avatar,
        controller: Controller,
        index: &mut SpatialIndex,
    ) {
        let spawn_seed = entity_number(entity);
        self.owned.insert(
            entity,
            OwnedAvatar {
                controller,
                spawn_seed,
                published: avatar.clone(),
                published_at: tick,
                history: VecDeque::new(),
            },
        );
        index.insert(entity, avatar);
    }

    /// Releases an avatar; the index keeps it. Returns whether it was owned.
    pub fn remove(&mut self, entity: EntityId) -> bool {
        self.owned.remove(&entity).is_some()
    }

    /// Returns whether this server owns an avatar.
    pub fn contains(&self, entity: EntityId) -> bool {
        self.owned.contains_key(&entity)
    }

    /// Returns the entities of the owned avatars.
    pub fn iter(&self) -> impl Iterator<Item = EntityId> {
        self.owned.keys().copied()
    }

    /// Returns the number of owned avatars.
    pub fn len(&self) -> usize {
        self.owned.len()
    }

    /// Returns whether no avatar is owned.
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// Sets the buttons of a player's avatar. Moves the avatar back to where it was `rewind_ticks` ticks ago, because
    /// the player had already released the previous buttons by then, unless the avatar has fired, died or respawned
    /// since then.
    pub fn set_controls(&mut self, entity: EntityId, controls: Controls, rewind_ticks: u32, index: &mut SpatialIndex) {
        let Some(own) = self.owned.get_mut(&entity) else { return };
        let Controller::Player(pressed) = &mut own.controller else { return };
        *pressed = controls;
        let Some(mut avatar) = index.get(entity).filter(|avatar| avatar.is_alive()).cloned() else { return };
        // A position from which a shot was fired is not rewound.
        let since = own.history.back().map_or(0, |past| past.tick).saturating_sub(rewind_ticks);
        let has_shot = avatar.shots.newest().is_some_and(|shot| shot.tick > since);
        if let Some(rewound) = own.state_before(rewind_ticks, avatar.spawn_count).filter(|_| !has_shot) {
            (avatar.position, avatar.heading) = (rewound.position, rewound.heading);
            own.history.iter_mut().filter(|past| past.tick > since).for_each(|past| {
                (past.position, past.heading) = (rewound.position, rewound.heading);
            });
            index.insert(entity, avatar);
        }
    }

    /// Simulates one tick: moves the owned avatars, extrapolates the others, and decides hits on the owned ones.
    /// Returns the events for other servers.
    pub fn step(&mut self, tick: u32, index: &mut SpatialIndex) -> Vec<SimulationEvent> {
        index.extrapolate_tick(&self.rules, |entity| self.owned.contains_key(&entity));
        index.rebuild_cells();
        self.move_avatars(tick, index);
        let mut events = self.resolve_hits(tick, index);
        for (entity, own) in &mut self.owned {
            let Some(avatar) = index.get(*entity) else { continue };
            own.record_history(tick, avatar);
            if own.take_update_due(&self.rules, tick, avatar) {
                events.push(SimulationEvent::UpdateDue(*entity));
            }
        }
        events
    }

    fn move_avatars(&mut self, tick: u32, index: &mut SpatialIndex) {
        let has_ninja = self.owned.values().any(|own| matches!(own.controller, Controller::Ninja(_)));
        let mut all_avatars: Vec<(EntityId, Avatar)> = if has_ninja {
            index.iter().map(|(entity, avatar)| (entity, avatar.clone())).collect()
        } else {
            Vec::new()
        };
        for (entity, own) in &mut self.owned {
            let Some(mut avatar) = index.get(*entity).cloned() else { continue };
            let controls = match &mut own.controller {
                Controller::Player(controls) => *controls,
                Controller::Ninja(ninja) => {
                    ninja_controls(ninja, tick, &self.rules, (*entity, &avatar), &mut all_avatars)
                }
            };
            let obstacles = obstacles(index, *entity, &avatar);
            self.rules.step(tick, &mut avatar, controls, &obstacles, own.spawn_seed);
            index.insert(*entity, avatar);
        }
    }

    /// Kills the owned avatars that a known shot hits. Returns an event for each of them.
    fn resolve_hits(&mut self, tick: u32, index: &mut SpatialIndex) -> Vec<SimulationEvent> {
        self.projectiles.drop_before(tick);
        for (shooter, avatar) in index.iter().filter(|(_, avatar)| avatar.shots.newest().is_some()) {
            self.projectiles.track(tick, shooter, avatar);
        }
        let own = &self.owned;
        let targets =
            own.keys().filter_map(|entity| Some(HitCandidate { entity: *entity, avatar: index.get(*entity)? }));
        let hits = self.projectiles.detect_hits(&self.rules, tick, targets, |target, at| {
            own.get(&target.entity)?.position_at(at, target.avatar.spawn_count)
        });
        let mut events = Vec::new();
        for (victim, shooter) in hits {
            // Two shots in one tick count as one hit.
            let Some(mut avatar) = index.get(victim).filter(|avatar| avatar.is_alive()).cloned() else { continue };
            self.rules.kill(tick, &mut avatar);
            index.insert(victim, avatar);
            events.push(SimulationEvent::AvatarHit { victim, shooter });
        }
        events
    }
}

/// Returns the positions of other avatars that matter for the next tick of `avatar`. A living avatar must not run into
/// the living ones nearby; a dead one should respawn away from all others.
fn obstacles(index: &SpatialIndex, entity: EntityId, avatar: &Avatar) -> Vec<Position> {
    let near = |other: &IndexedAvatar| {
        other.is_alive && other.entity != entity && other.position.distance(avatar.position) < COLLISION_RANGE
    };
    match avatar.is_alive() {
        true => index.nearby(avatar.position, 1).filter(near).map(|other| other.position).collect(),
        false => index.iter().filter(|(other, _)| *other != entity).map(|(_, other)| other.position).collect(),
    }
}

/// Returns the buttons of a ninja, which knows all avatars but its own as opponents.
fn ninja_controls(
    ninja: &mut Ninja,
    tick: u32,
    rules: &MazeRules,
    (entity, avatar): (EntityId, &Avatar),
    all_avatars: &mut Vec<(EntityId, Avatar)>,
) -> Controls {
    let Some(at) = all_avatars.iter().position(|(other, _)| *other == entity) else { return Controls::default() };
    let own_entry = all_avatars.swap_remove(at);
    let controls = ninja.choose_controls(tick, rules, avatar, all_avatars);
    all_avatars.push(own_entry);
    controls
}

impl OwnedAvatar {
    fn record_history(&mut self, tick: u32, avatar: &Avatar) {
        if self.history.len() == HISTORY_TICKS {
            self.history.pop_front();
        }
        let Avatar { spawn_count, position, heading, .. } = *avatar;
        self.history.push_back(PastState { tick, spawn_count, is_alive: avatar.is_alive(), position, heading });
    }

    /// Returns the position at an earlier tick; `None` if the avatar was dead or in another life then, or if that tick
    /// is not kept.
    fn position_at(&self, tick: u32, spawn_count: u16) -> Option<Position> {
        let at = self.history.partition_point(|past| past.tick < tick);
        let past = self
            .history
            .get(at)
            .filter(|past| past.tick == tick && past.spawn_count == spawn_count && past.is_alive)?;
        Some(past.position)
    }

    /// Returns the state `ticks` ticks before the newest one in the history; `None` for 0 ticks, if the avatar was dead
    /// or in another life then, or if that tick is not kept.
    fn state_before(&self, ticks: u32, spawn_count: u16) -> Option<PastState> {
        let at = self.history.len().checked_sub(1 + ticks as usize).filter(|_| ticks > 0)?;
        self.history.get(at).copied().filter(|past| past.spawn_count == spawn_count && past.is_alive)
    }

    /// Returns whether an update is due. If so, marks the present state as published.
    fn take_update_due(&mut self, rules: &MazeRules, tick: u32, avatar: &Avatar) -> bool {
        rules.extrapolate_tick(&mut self.published);
        let is_due = rules.distance(&self.published, avatar) > UPDATE_TOLERANCE
            || tick.saturating_sub(self.published_at) >= UPDATE_INTERVAL;
        if is_due {
            (self.published, self.published_at) = (avatar.clone(), tick);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::{AVATAR_RADIUS, Life, Maze, RESPAWN_TICKS, Shot, UNIT};

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    fn empty_simulation() -> (Simulation, SpatialIndex) {
        (Simulation::new(MazeRules::new(Maze::new(7, 8))), SpatialIndex::default())
    }

    fn add_avatar(simulation: &mut Simulation, index: &mut SpatialIndex, number: u32, controller: Controller) {
        let others: Vec<Position> = index.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = simulation.rules().spawn_avatar(&others, number.into());
        simulation.add(0, entity(number), avatar, controller, index);
    }

    #[test]
    fn unchanged_avatar_is_published_rarely() {
        let (mut simulation, mut index) = empty_simulation();
        add_avatar(
            &mut simulation,
            &mut index,
            1,
            Controller::Player(Controls { forward: true, ..Controls::default() }),
        );
        let updates = (1..=200).map(|tick| simulation.step(tick, &mut index).len()).sum::<usize>();
        assert!((8..=10).contains(&updates), "{updates} updates");
    }

    #[test]
    fn dead_reckoning_error_stays_within_tolerance() {
        let (mut simulation, mut index) = empty_simulation();
        (1..=6).for_each(|number| {
            add_avatar(&mut simulation, &mut index, number, Controller::Ninja(Box::new(Ninja::new(number.into()))))
        });
        // Another server that receives every update without delay.
        let mut mirror = index.clone();
        let (mut updates, mut falls) = (0, 0);
        for tick in 1..=3_000 {
            let events = simulation.step(tick, &mut index);
            mirror.extrapolate_tick(simulation.rules(), |_| false);
            for event in events {
                match event {
                    SimulationEvent::UpdateDue(entity) => {
                        mirror.insert(entity, index.get(entity).unwrap().clone());
                        updates += 1;
                    }
                    SimulationEvent::AvatarHit { .. } => falls += 1,
                }
            }
            for (entity, avatar) in index.iter() {
                assert!(
                    simulation.rules().distance(mirror.get(entity).unwrap(), avatar) <= UPDATE_TOLERANCE,
                    "{entity:?} at {tick}"
                );
            }
        }
        assert!(falls > 3, "only {falls} falls");
        assert!(updates < 6 * 3_000 / 8, "{updates} updates");
    }

    /// Returns a target, and a shooter 200 units behind it that has fired at it in `tick`.
    fn target_and_shooter(simulation: &Simulation, tick: u32) -> (Avatar, Avatar) {
        let behind = |avatar: &Avatar| avatar.position.moved_along(avatar.heading, -200 * UNIT);
        let candidates = (1..).map(|spawn_seed| simulation.rules().spawn_avatar(&[], spawn_seed));
        let is_free = |avatar: &Avatar| simulation.rules().maze.is_free(behind(avatar), AVATAR_RADIUS);
        let target = candidates.take(1_000).find(is_free).expect("a spawn point has room behind it");
        let mut shooter = Avatar { position: behind(&target), ..target.clone() };
        let origin = behind(&target).moved_along(target.heading, 52 * UNIT);
        shooter.shots.push(Shot { tick, origin, heading: target.heading, number: 0 });
        (target, shooter)
    }

    #[test]
    fn late_shot_hits_the_past_position_of_its_target() {
        let (mut simulation, mut index) = empty_simulation();
        let (target, shooter) = target_and_shooter(&simulation, 5);
        simulation.add(0, entity(1), target, Controller::Player(Controls::default()), &mut index);
        (1..=20).for_each(|tick| _ = simulation.step(tick, &mut index));
        index.insert(entity(2), shooter);
        let events = simulation.step(21, &mut index);
        assert!(events.contains(&SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(2) }), "{events:?}");
        assert_eq!(index.get(entity(1)).unwrap().life, Life::Dead { since: 21 });
        (22..=21 + RESPAWN_TICKS).for_each(|tick| _ = simulation.step(tick, &mut index));
        assert!(index.get(entity(1)).unwrap().is_alive());
    }

    #[test]
    fn no_shot_is_dropped_with_many_shooters() {
        let (mut simulation, mut index) = empty_simulation();
        let (target, shooter) = target_and_shooter(&simulation, 1);
        simulation.add(0, entity(1), target.clone(), Controller::Player(Controls::default()), &mut index);
        // The others have fired as many shots as a state carries, from a corner of the maze. They are tracked before
        // the shooter.
        for number in 2..1_002 {
            let mut other = target.clone();
            for tick in 1..=4 {
                let (origin, heading) = (Position::default(), 0);
                other.shots.push(Shot { tick, origin, heading, number: 0 });
            }
            other.life = Life::Dead { since: 1 };
            index.insert(entity(number), other);
        }
        index.insert(entity(5_000), shooter);
        let hit = SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(5_000) };
        assert!((2..40).any(|tick| simulation.step(tick, &mut index).contains(&hit)));
    }
}
