//! The rules of the maze on one server: what happens to the avatars beyond their motion, tick by tick.
//!
//! The [reference simulators](AvatarStore) move the avatars as their players command. The server decides the rest of
//! those that it owns: it commands the ninjas, stops an avatar before it touches another one, lets it shoot, and
//! decides whether it is hit and where it respawns. The states of shooters carry their last four shots, so a server
//! learns of a shot even if the first event with it is dropped. The server then checks the ticks that have passed since
//! the shot was fired.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use coplay::motion::ClientId;
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay::time::Instant;
use coplay_maze::{
    Avatar, Controls, HitCandidate, Life, MazeRules, Ninja, Position, ProjectileTracker, RESPAWN_TICKS, SHOT_RETENTION,
};

use crate::avatar_motion::{Steering, entity_number};
use crate::avatar_store::AvatarStore;
use crate::spatial_index::IndexedAvatar;

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
/// Shortest time between two commands of a ninja, and shortest time for which an avatar stands before another one, in
/// ticks: the interval in which a player's commands are combined.
const COMMAND_INTERVAL: u32 = 5;

/// Source of an avatar's commands.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    /// Player, as a client of the motion server.
    Player(ClientId),
    /// Bot that chooses its own buttons in every tick.
    Ninja(Box<NinjaController>),
}

/// Ninja, and the buttons that it has chosen since its last command.
#[derive(Clone, Debug)]
pub(crate) struct NinjaController {
    ninja: Ninja,
    /// Whether it has chosen to shoot since its last command.
    is_fire_pending: bool,
    next_command: u32,
}

impl NinjaController {
    pub(crate) fn new(seed: u64) -> Self {
        Self { ninja: Ninja::new(seed), is_fire_pending: false, next_command: 0 }
    }

    /// Returns the buttons for the next command; `None` if it is not due yet.
    fn next_controls(
        &mut self,
        tick: u32,
        rules: &MazeRules,
        avatar: &Avatar,
        others: &[(EntityId, Avatar)],
    ) -> Option<Controls> {
        let controls = self.ninja.choose_controls(tick, rules, avatar, others);
        self.is_fire_pending |= controls.fire;
        if tick < self.next_command {
            return None;
        }
        let fire = std::mem::take(&mut self.is_fire_pending);
        Some(Controls { fire, ..controls })
    }
}

/// Result of a tick that other servers need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimulationEvent {
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

/// Rules of the maze for the avatars that a server owns.
#[derive(Debug)]
pub(crate) struct Simulation {
    rules: Arc<MazeRules>,
    owned: BTreeMap<EntityId, OwnedAvatar>,
    projectiles: ProjectileTracker,
}

/// Owned avatar. Its present state is in the [`AvatarStore`], with all others.
#[derive(Clone, Debug)]
struct OwnedAvatar {
    controller: Controller,
    spawn_seed: u64,
    /// Last sent state, extrapolated to the present tick as other servers do.
    published: Avatar,
    /// Tick in which the state was last sent.
    published_at: u32,
    /// Tick until which this server makes the avatar stand, because another one is in the way.
    blocked_until: Option<u32>,
    /// Whether a command pressed fire since the last tick.
    is_fire_pending: bool,
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
}

impl Simulation {
    /// Creates a simulation without avatars.
    pub(crate) fn new(rules: Arc<MazeRules>) -> Self {
        Self { rules, owned: BTreeMap::new(), projectiles: ProjectileTracker::default() }
    }

    /// Returns the rules that all avatars obey, with the maze.
    pub(crate) fn rules(&self) -> &MazeRules {
        &self.rules
    }

    /// Takes over an avatar in this state, and puts it into the store if it is not there. `tick` must be the tick in
    /// which that state was sent to the other servers. Returns false if the store is full.
    pub(crate) fn add(
        &mut self,
        (now, tick): (Instant, u32),
        entity: EntityId,
        avatar: Avatar,
        controller: Controller,
        avatars: &mut AvatarStore,
    ) -> bool {
        let client = if let Controller::Player(client) = &controller { Some(*client) } else { None };
        if !avatars.own(now, entity, &avatar, client) {
            return false;
        }
        let (spawn_seed, history) = (entity_number(entity), VecDeque::new());
        let owned = OwnedAvatar {
            controller,
            spawn_seed,
            published: avatar,
            published_at: tick,
            blocked_until: None,
            is_fire_pending: false,
            history,
        };
        self.owned.insert(entity, owned);
        true
    }

    /// Releases an avatar; the store keeps it. Returns whether it was owned.
    pub(crate) fn remove(&mut self, entity: EntityId, avatars: &mut AvatarStore) -> bool {
        avatars.release(entity);
        self.owned.remove(&entity).is_some()
    }

    /// Returns whether this server owns an avatar.
    pub(crate) fn contains(&self, entity: EntityId) -> bool {
        self.owned.contains_key(&entity)
    }

    /// Returns the number of owned avatars.
    pub(crate) fn len(&self) -> usize {
        self.owned.len()
    }

    /// Notes that a player has commanded an avatar, so that this server's own decision about it is void. A command that
    /// presses fire counts even if a later one releases it before the next tick.
    pub(crate) fn on_command(&mut self, entity: EntityId, fires: bool) {
        self.owned.entry(entity).and_modify(|own| {
            own.blocked_until = None;
            own.is_fire_pending |= fires;
        });
    }

    /// Simulates one tick, which ends at `now`: commands the ninjas, moves all avatars, and decides shots, hits and
    /// respawns of the owned ones. Returns the events for other servers.
    pub(crate) fn step(&mut self, now: Instant, tick: u32, avatars: &mut AvatarStore) -> Vec<SimulationEvent> {
        avatars.rebuild_index();
        self.steer_avatars(tick, avatars);
        avatars.advance(now);
        self.shoot_and_respawn(now, tick, avatars);
        let mut events = self.resolve_hits(now, tick, avatars);
        for (entity, own) in &mut self.owned {
            let Some(avatar) = avatars.get(*entity) else { continue };
            own.record_history(tick, &avatar);
            if own.take_update_due(&self.rules, tick, &avatar) {
                events.push(SimulationEvent::UpdateDue(*entity));
            }
        }
        events
    }

    /// Commands the ninjas, and stops the avatars that would touch another one in the next tick.
    fn steer_avatars(&mut self, tick: u32, avatars: &mut AvatarStore) {
        let has_ninja = self.owned.values().any(|own| matches!(own.controller, Controller::Ninja(_)));
        let mut all_avatars: Vec<(EntityId, Avatar)> = if has_ninja { avatars.iter().collect() } else { Vec::new() };
        for (entity, own) in &mut self.owned {
            let Some(avatar) = avatars.get(*entity) else { continue };
            let before = avatars.steering(*entity);
            let mut steering = before;
            if let Controller::Ninja(ninja) = &mut own.controller
                && let Some(controls) = ninja_controls(ninja, tick, &self.rules, (*entity, &avatar), &mut all_avatars)
            {
                steering.controls = controls;
            }
            steering.is_blocked = own.is_blocked(tick, &self.rules, (*entity, &avatar), steering, avatars);
            if steering != before {
                if let Controller::Ninja(ninja) = &mut own.controller {
                    ninja.next_command = tick + COMMAND_INTERVAL;
                }
                avatars.steer(*entity, steering);
            }
        }
    }

    /// Lets the living avatars shoot whose players press fire, and respawns the dead ones whose time has come.
    fn shoot_and_respawn(&mut self, now: Instant, tick: u32, avatars: &mut AvatarStore) {
        for (entity, own) in &mut self.owned {
            let has_fired = std::mem::take(&mut own.is_fire_pending);
            let (Some(state), steering) = (avatars.state(*entity), avatars.steering(*entity)) else { continue };
            let has_expired_shot = avatars
                .shots_of(*entity)
                .and_then(|shots| shots.iter().next())
                .is_some_and(|shot| shot.tick.saturating_add(SHOT_RETENTION) < tick);
            match state.life {
                Life::Dead { since } if tick.saturating_sub(since) >= RESPAWN_TICKS => {
                    let Some(mut avatar) = avatars.get(*entity) else { continue };
                    let others = avatars.indexed().filter(|other| other.entity != *entity);
                    let others: Vec<Position> = others.map(|other| other.position).collect();
                    self.rules.respawn(&mut avatar, &others, own.spawn_seed);
                    avatars.overrule(now, *entity, &avatar, Steering { is_blocked: false, ..steering });
                }
                _ if steering.controls.fire || has_fired || has_expired_shot => {
                    let Some(mut avatar) = avatars.get(*entity) else { continue };
                    avatar.shots.drop_before(tick.saturating_sub(SHOT_RETENTION));
                    if steering.controls.fire || has_fired {
                        self.rules.fire(tick, &mut avatar);
                    }
                    avatars.set_shots(*entity, avatar.shots);
                }
                _ => {}
            }
        }
    }

    /// Kills the owned avatars that a known shot hits. Returns an event for each of them.
    fn resolve_hits(&mut self, now: Instant, tick: u32, avatars: &mut AvatarStore) -> Vec<SimulationEvent> {
        self.projectiles.drop_before(tick);
        for (shooter, shots) in avatars.shots() {
            self.projectiles.track(tick, shooter, shots);
        }
        if self.projectiles.is_empty() {
            return Vec::new();
        }
        let own = &self.owned;
        let all: Vec<(EntityId, Avatar)> =
            own.keys().filter_map(|entity| Some((*entity, avatars.get(*entity)?))).collect();
        let targets = all.iter().map(|(entity, avatar)| HitCandidate { entity: *entity, avatar });
        let hits = self.projectiles.detect_hits(&self.rules, tick, targets, |target, at| {
            own.get(&target.entity)?.position_at(at, target.avatar.spawn_count)
        });
        let mut events = Vec::new();
        for (victim, shooter) in hits {
            // Two shots in one tick count as one hit.
            let Some(mut avatar) = avatars.get(victim).filter(Avatar::is_alive) else { continue };
            self.rules.kill(tick, &mut avatar);
            let steering = Steering { is_blocked: false, ..avatars.steering(victim) };
            avatars.overrule(now, victim, &avatar, steering);
            events.push(SimulationEvent::AvatarHit { victim, shooter });
        }
        events
    }
}

/// Returns the positions of the living avatars near `avatar`, which it must not run into.
fn obstacles(avatars: &AvatarStore, entity: EntityId, avatar: &Avatar) -> Vec<Position> {
    let near = |other: &IndexedAvatar| {
        other.is_alive && other.entity != entity && other.position.distance(avatar.position) < COLLISION_RANGE
    };
    avatars.nearby(avatar.position, 1).filter(near).map(|other| other.position).collect()
}

/// Returns the buttons for the next command of a ninja, which knows all avatars but its own as opponents.
fn ninja_controls(
    ninja: &mut NinjaController,
    tick: u32,
    rules: &MazeRules,
    (entity, avatar): (EntityId, &Avatar),
    all_avatars: &mut Vec<(EntityId, Avatar)>,
) -> Option<Controls> {
    let at = all_avatars.iter().position(|(other, _)| *other == entity)?;
    let own_entry = all_avatars.swap_remove(at);
    let controls = ninja.next_controls(tick, rules, avatar, all_avatars);
    all_avatars.push(own_entry);
    controls
}

impl OwnedAvatar {
    /// Returns whether the avatar must stand in the next tick: it would touch another one, or has stood before one for
    /// less than [`COMMAND_INTERVAL`], or its player makes it stand.
    fn is_blocked(
        &mut self,
        tick: u32,
        rules: &MazeRules,
        (entity, avatar): (EntityId, &Avatar),
        steering: Steering,
        avatars: &AvatarStore,
    ) -> bool {
        if !avatar.is_alive() || steering.controls.speed() == 0 {
            return steering.is_blocked;
        }
        let intended =
            Avatar { speed: steering.controls.speed(), turn_rate: steering.controls.turn_rate(), ..avatar.clone() };
        if rules.would_collide(&intended, &obstacles(avatars, entity, avatar)) {
            self.blocked_until = Some(tick + COMMAND_INTERVAL);
            return true;
        }
        match self.blocked_until {
            Some(until) if tick >= until => {
                self.blocked_until = None;
                false
            }
            _ => steering.is_blocked,
        }
    }

    fn record_history(&mut self, tick: u32, avatar: &Avatar) {
        if self.history.len() == HISTORY_TICKS {
            self.history.pop_front();
        }
        let Avatar { spawn_count, position, .. } = *avatar;
        self.history.push_back(PastState { tick, spawn_count, is_alive: avatar.is_alive(), position });
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
    use coplay_maze::{AVATAR_RADIUS, Maze, Shot, UNIT};

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    fn at(tick: u32) -> Instant {
        Instant::ZERO + crate::TICK_DURATION * i64::from(tick)
    }

    fn empty_simulation() -> (Simulation, AvatarStore) {
        let rules = Arc::new(MazeRules::new(Maze::new(7, 8)));
        (Simulation::new(rules.clone()), AvatarStore::new(rules, 1))
    }

    fn player() -> Controller {
        Controller::Player(ClientId(1))
    }

    fn add_avatar(simulation: &mut Simulation, avatars: &mut AvatarStore, number: u32, controller: Controller) {
        let others: Vec<Position> = avatars.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = simulation.rules().spawn_avatar(&others, number.into());
        assert!(simulation.add((at(0), 0), entity(number), avatar, controller, avatars));
    }

    #[test]
    fn unchanged_avatar_is_published_rarely() {
        let (mut simulation, mut index) = empty_simulation();
        add_avatar(&mut simulation, &mut index, 1, player());
        index.steer(
            entity(1),
            Steering { controls: Controls { forward: true, ..Controls::default() }, is_blocked: false },
        );
        let updates = (1..=200).map(|tick| simulation.step(at(tick), tick, &mut index).len()).sum::<usize>();
        assert!((8..=10).contains(&updates), "{updates} updates");
    }

    #[test]
    fn dead_reckoning_error_stays_within_tolerance() {
        let (mut simulation, mut index) = empty_simulation();
        (1..=6).for_each(|number| {
            add_avatar(
                &mut simulation,
                &mut index,
                number,
                Controller::Ninja(Box::new(NinjaController::new(number.into()))),
            )
        });
        // Another server that receives every update without delay.
        let mut mirror: BTreeMap<EntityId, Avatar> = index.iter().collect();
        let (mut updates, mut falls) = (0, 0);
        for tick in 1..=3_000 {
            let events = simulation.step(at(tick), tick, &mut index);
            mirror.values_mut().for_each(|avatar| simulation.rules().extrapolate_tick(avatar));
            for event in events {
                match event {
                    SimulationEvent::UpdateDue(entity) => {
                        mirror.insert(entity, index.get(entity).unwrap());
                        updates += 1;
                    }
                    SimulationEvent::AvatarHit { .. } => falls += 1,
                }
            }
            for (entity, avatar) in index.iter() {
                assert!(
                    simulation.rules().distance(&mirror[&entity], &avatar) <= UPDATE_TOLERANCE,
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
        simulation.add((at(0), 0), entity(1), target, player(), &mut index);
        (1..=20).for_each(|tick| _ = simulation.step(at(tick), tick, &mut index));
        index.place(at(20), entity(2), &shooter);
        let events = simulation.step(at(21), 21, &mut index);
        assert!(events.contains(&SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(2) }), "{events:?}");
        assert_eq!(index.get(entity(1)).unwrap().life, Life::Dead { since: 21 });
        (22..=21 + RESPAWN_TICKS).for_each(|tick| _ = simulation.step(at(tick), tick, &mut index));
        assert!(index.get(entity(1)).unwrap().is_alive());
    }

    #[test]
    fn no_shot_is_dropped_with_many_shooters() {
        let (mut simulation, mut index) = empty_simulation();
        let (target, shooter) = target_and_shooter(&simulation, 1);
        simulation.add((at(0), 0), entity(1), target.clone(), player(), &mut index);
        // The others have fired as many shots as a state carries, from a corner of the maze. They are tracked before
        // the shooter.
        for number in 2..1_002 {
            let mut other = target.clone();
            for tick in 1..=4 {
                let (origin, heading) = (Position::default(), 0);
                other.shots.push(Shot { tick, origin, heading, number: 0 });
            }
            other.life = Life::Dead { since: 1 };
            index.place(at(1), entity(number), &other);
        }
        index.place(at(1), entity(5_000), &shooter);
        let hit = SimulationEvent::AvatarHit { victim: entity(1), shooter: entity(5_000) };
        assert!((2..40).any(|tick| simulation.step(at(tick), tick, &mut index).contains(&hit)));
    }
}
