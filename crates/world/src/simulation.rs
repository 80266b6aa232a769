//! The reference simulators of one server: the avatars that it owns, tick by tick.
//!
//! Whoever owns an avatar decides what happens to it: where it walks, whether it is hit. Shots ride in the states of those who fired them, so
//! a server hears of them whatever is dropped on the way, and follows them through the ticks that have passed.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{Avatar, Controls, HitTarget, Ninja, Position, ProjectileTracker, Rules};

use crate::spatial_index::{IndexedAvatar, SpatialIndex};
use crate::world_state::entity_number;

/// Others are told when they would be wrong by more than this, in units, and this often anyway, in ticks.
const UPDATE_TOLERANCE: u32 = 8;
const UPDATE_INTERVAL: u32 = 25;
/// Where an avatar was is remembered for so many ticks: a shot of which is heard later than that hits nobody in the past.
const HISTORY_TICKS: usize = 100;
/// Who is further away than this cannot be run into, in units.
const COLLISION_RANGE: u32 = 256;

/// Who moves an avatar.
#[derive(Clone, Debug)]
pub enum Controller {
    /// A player, who presses these buttons.
    Player(Controls),
    /// Software.
    Ninja(Box<Ninja>),
}

/// Something that others must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulationEvent {
    /// One of ours is not where others reckon it to be, or they have not heard of it for a while.
    UpdateDue(EntityId),
    /// One of ours was hit.
    AvatarHit {
        /// Which of ours.
        victim: EntityId,
        /// By whom.
        shooter: EntityId,
    },
}

/// The avatars that a server owns.
#[derive(Clone, Debug)]
pub struct Simulation {
    rules: Rules,
    owned: BTreeMap<EntityId, OwnedAvatar>,
    projectiles: ProjectileTracker,
}

/// An avatar of ours. As it is now it is in the [`SpatialIndex`], where all are.
#[derive(Clone, Debug)]
struct OwnedAvatar {
    controller: Controller,
    spawn_seed: u64,
    /// As others reckon it to be, and when they were last told.
    published: Avatar,
    published_at: u32,
    /// Where it was, the newest last.
    history: VecDeque<PastState>,
}

/// Where an avatar was, and in which of its lives.
#[derive(Clone, Copy, Debug)]
struct PastState {
    tick: u32,
    spawn_count: u16,
    is_alive: bool,
    position: Position,
    heading: u16,
}

impl Simulation {
    /// Nobody is in it yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, owned: BTreeMap::new(), projectiles: ProjectileTracker::default() }
    }

    /// The rules that hold.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// An avatar is ours from now on.
    pub fn add(&mut self, tick: u32, entity: EntityId, avatar: Avatar, mind: Controller, field: &mut SpatialIndex) {
        let luck = entity_number(entity);
        self.owned.insert(
            entity,
            OwnedAvatar {
                controller: mind,
                spawn_seed: luck,
                published: avatar.clone(),
                published_at: tick,
                history: VecDeque::new(),
            },
        );
        field.insert(entity, avatar);
    }

    /// An avatar is not ours any more.
    pub fn remove(&mut self, entity: EntityId) -> bool {
        self.owned.remove(&entity).is_some()
    }

    /// Whether an avatar is ours.
    pub fn contains(&self, entity: EntityId) -> bool {
        self.owned.contains_key(&entity)
    }

    /// All that are ours.
    pub fn iter(&self) -> impl Iterator<Item = EntityId> {
        self.owned.keys().copied()
    }

    /// How many are ours.
    pub fn len(&self) -> usize {
        self.owned.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.owned.is_empty()
    }

    /// What a player presses from now on. What it walked with the buttons before in so many last ticks is taken back: it had let go of them
    /// by then.
    pub fn set_controls(&mut self, entity: EntityId, controls: Controls, back: u32, field: &mut SpatialIndex) {
        let Some(own) = self.owned.get_mut(&entity) else { return };
        let Controller::Player(pressed) = &mut own.controller else { return };
        *pressed = controls;
        let Some(mut avatar) = field.get(entity).filter(|avatar| avatar.is_alive()).cloned() else { return };
        // Nobody shoots and then was not there.
        let since = own.history.back().map_or(0, |past| past.tick).saturating_sub(back);
        let has_shot = avatar.shots.newest().is_some_and(|shot| shot.tick > since);
        if let Some(then) = own.state_before(back, avatar.spawn_count).filter(|_| !has_shot) {
            (avatar.position, avatar.heading) = (then.position, then.heading);
            own.history.iter_mut().filter(|past| past.tick > since).for_each(|past| {
                (past.position, past.heading) = (then.position, then.heading);
            });
            field.insert(entity, avatar);
        }
    }

    /// A tick passes: everybody moves, and hits are decided. What others must be told of it.
    pub fn step(&mut self, tick: u32, field: &mut SpatialIndex) -> Vec<SimulationEvent> {
        field.extrapolate_tick(&self.rules, |entity| self.owned.contains_key(&entity));
        field.rebuild_cells();
        self.move_avatars(tick, field);
        let mut happened = self.resolve_hits(tick, field);
        for (entity, own) in &mut self.owned {
            let Some(avatar) = field.get(*entity) else { continue };
            own.record_history(tick, avatar);
            if own.take_update_due(&self.rules, tick, avatar) {
                happened.push(SimulationEvent::UpdateDue(*entity));
            }
        }
        happened
    }

    fn move_avatars(&mut self, tick: u32, field: &mut SpatialIndex) {
        let thinks = self.owned.values().any(|own| matches!(own.controller, Controller::Ninja(_)));
        let mut everybody: Vec<(EntityId, Avatar)> =
            if thinks { field.iter().map(|(entity, avatar)| (entity, avatar.clone())).collect() } else { Vec::new() };
        for (entity, own) in &mut self.owned {
            let Some(mut avatar) = field.get(*entity).cloned() else { continue };
            let controls = match &mut own.controller {
                Controller::Player(controls) => *controls,
                Controller::Ninja(ninja) => {
                    ninja_controls(ninja, tick, &self.rules, (*entity, &avatar), &mut everybody)
                }
            };
            let in_the_way = obstacles(field, *entity, &avatar);
            self.rules.step(tick, &mut avatar, controls, &in_the_way, own.spawn_seed);
            field.insert(*entity, avatar);
        }
    }

    /// Looks whether anything that is known to fly hits one of ours, who falls.
    fn resolve_hits(&mut self, tick: u32, field: &mut SpatialIndex) -> Vec<SimulationEvent> {
        self.projectiles.drop_before(tick);
        for (by, avatar) in field.iter().filter(|(_, avatar)| avatar.shots.newest().is_some()) {
            self.projectiles.track(tick, by, avatar);
        }
        let own = &self.owned;
        let targets = own.keys().filter_map(|entity| Some(HitTarget { entity: *entity, avatar: field.get(*entity)? }));
        let hits = self.projectiles.detect_hits(&self.rules, tick, targets, |target, at| {
            own.get(&target.entity)?.position_at(at, target.avatar.spawn_count)
        });
        let mut fallen = Vec::new();
        for (whom, by) in hits {
            // Two shots at once hit once.
            let Some(mut avatar) = field.get(whom).filter(|avatar| avatar.is_alive()).cloned() else { continue };
            self.rules.kill(tick, &mut avatar);
            field.insert(whom, avatar);
            fallen.push(SimulationEvent::AvatarHit { victim: whom, shooter: by });
        }
        fallen
    }
}

/// Those whom an avatar could run into; and when it is to come back, all whom it should stay away from.
fn obstacles(field: &SpatialIndex, entity: EntityId, avatar: &Avatar) -> Vec<Position> {
    let near = |other: &IndexedAvatar| {
        other.is_alive && other.entity != entity && other.position.distance(avatar.position) < COLLISION_RANGE
    };
    match avatar.is_alive() {
        true => field.nearby(avatar.position, 1).filter(near).map(|other| other.position).collect(),
        false => field.iter().filter(|(other, _)| *other != entity).map(|(_, other)| other.position).collect(),
    }
}

/// What a ninja presses, who sees everybody but itself.
fn ninja_controls(
    ninja: &mut Ninja,
    tick: u32,
    rules: &Rules,
    (entity, avatar): (EntityId, &Avatar),
    everybody: &mut Vec<(EntityId, Avatar)>,
) -> Controls {
    let Some(at) = everybody.iter().position(|(other, _)| *other == entity) else { return Controls::default() };
    let itself = everybody.swap_remove(at);
    let controls = ninja.choose_controls(tick, rules, avatar, everybody);
    everybody.push(itself);
    controls
}

impl OwnedAvatar {
    fn record_history(&mut self, tick: u32, avatar: &Avatar) {
        if self.history.len() == HISTORY_TICKS {
            self.history.pop_front();
        }
        let Avatar { spawn_count: lives, position, heading, .. } = *avatar;
        self.history.push_back(PastState { tick, spawn_count: lives, is_alive: avatar.is_alive(), position, heading });
    }

    /// Where it was at an earlier tick, if that was in this life of its.
    fn position_at(&self, tick: u32, lives: u16) -> Option<Position> {
        let at = self.history.partition_point(|past| past.tick < tick);
        let past =
            self.history.get(at).filter(|past| past.tick == tick && past.spawn_count == lives && past.is_alive)?;
        Some(past.position)
    }

    /// As it was so many ticks ago, if that was in this life of its; nothing if that is now.
    fn state_before(&self, ticks: u32, lives: u16) -> Option<PastState> {
        let at = self.history.len().checked_sub(1 + ticks as usize).filter(|_| ticks > 0)?;
        self.history.get(at).copied().filter(|past| past.spawn_count == lives && past.is_alive)
    }

    /// Whether others must be told. If so they are, and know it as it is.
    fn take_update_due(&mut self, rules: &Rules, tick: u32, avatar: &Avatar) -> bool {
        rules.extrapolate_tick(&mut self.published);
        let must = rules.distance(&self.published, avatar) > UPDATE_TOLERANCE
            || tick.saturating_sub(self.published_at) >= UPDATE_INTERVAL;
        if must {
            (self.published, self.published_at) = (avatar.clone(), tick);
        }
        must
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
        (Simulation::new(Rules::new(Maze::new(7, 8))), SpatialIndex::default())
    }

    fn add_avatar(hall: &mut Simulation, field: &mut SpatialIndex, number: u32, mind: Controller) {
        let others: Vec<Position> = field.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = hall.rules().spawn_avatar(&others, number.into());
        hall.add(0, entity(number), avatar, mind, field);
    }

    #[test]
    fn unchanged_avatar_is_published_rarely() {
        let (mut hall, mut field) = empty_simulation();
        add_avatar(&mut hall, &mut field, 1, Controller::Player(Controls { forward: true, ..Controls::default() }));
        let told = (1..=200).map(|tick| hall.step(tick, &mut field).len()).sum::<usize>();
        assert!((8..=10).contains(&told), "told {told} times");
    }

    #[test]
    fn dead_reckoning_error_stays_within_tolerance() {
        let (mut hall, mut field) = empty_simulation();
        (1..=6).for_each(|number| {
            add_avatar(&mut hall, &mut field, number, Controller::Ninja(Box::new(Ninja::new(number.into()))))
        });
        // Another server that hears of everything at once.
        let mut mirror = field.clone();
        let (mut told, mut falls) = (0, 0);
        for tick in 1..=3_000 {
            let happened = hall.step(tick, &mut field);
            mirror.extrapolate_tick(hall.rules(), |_| false);
            for happening in happened {
                match happening {
                    SimulationEvent::UpdateDue(entity) => {
                        mirror.insert(entity, field.get(entity).unwrap().clone());
                        told += 1;
                    }
                    SimulationEvent::AvatarHit { .. } => falls += 1,
                }
            }
            for (entity, avatar) in field.iter() {
                assert!(
                    hall.rules().distance(mirror.get(entity).unwrap(), avatar) <= UPDATE_TOLERANCE,
                    "{entity:?} at {tick}"
                );
            }
        }
        assert!(falls > 3, "{falls} falls");
        assert!(told < 6 * 3_000 / 8, "told {told} times");
    }

    /// Somebody with room behind for somebody else, who looks the same way and fires from there at a tick.
    fn target_and_shooter(hall: &Simulation, tick: u32) -> (Avatar, Avatar) {
        let behind = |avatar: &Avatar| avatar.position.moved_along(avatar.heading, -200 * UNIT);
        let newcomers = (1..).map(|luck| hall.rules().spawn_avatar(&[], luck));
        let is_free = |avatar: &Avatar| hall.rules().maze.is_free(behind(avatar), AVATAR_RADIUS);
        let target = newcomers.take(1_000).find(is_free).expect("there is room somewhere");
        let mut shooter = Avatar { position: behind(&target), ..target.clone() };
        let from = behind(&target).moved_along(target.heading, 52 * UNIT);
        shooter.shots.push(Shot { tick, origin: from, heading: target.heading, number: 0 });
        (target, shooter)
    }

    #[test]
    fn late_shot_hits_the_past_position_of_its_target() {
        let (mut hall, mut field) = empty_simulation();
        let (target, shooter) = target_and_shooter(&hall, 5);
        hall.add(0, entity(1), target, Controller::Player(Controls::default()), &mut field);
        (1..=20).for_each(|tick| _ = hall.step(tick, &mut field));
        field.insert(entity(2), shooter);
        let happened = hall.step(21, &mut field);
        assert!(
            happened.contains(&SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(2) }),
            "{happened:?}"
        );
        assert_eq!(field.get(entity(1)).unwrap().life, Life::Dead { since: 21 });
        (22..=21 + RESPAWN_TICKS).for_each(|tick| _ = hall.step(tick, &mut field));
        assert!(field.get(entity(1)).unwrap().is_alive());
    }

    #[test]
    fn no_shot_is_dropped_with_many_shooters() {
        let (mut hall, mut field) = empty_simulation();
        let (target, shooter) = target_and_shooter(&hall, 1);
        hall.add(0, entity(1), target.clone(), Controller::Player(Controls::default()), &mut field);
        // Others shoot away from it, as often as anybody can, and all of them are noticed earlier.
        for number in 2..1_002 {
            let mut other = target.clone();
            for tick in 1..=4 {
                let (from, heading) = (Position::default(), 0);
                other.shots.push(Shot { tick, origin: from, heading, number: 0 });
            }
            other.life = Life::Dead { since: 1 };
            field.insert(entity(number), other);
        }
        field.insert(entity(5_000), shooter);
        let fell = SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(5_000) };
        assert!((2..40).any(|tick| hall.step(tick, &mut field).contains(&fell)));
    }
}
