//! All avatars of a world on one server, each in one place: the [motion server](MotionServer) runs a reference
//! simulator of every avatar, those of this server's players and ninjas and those of other servers alike. What the
//! simulator does not know, such as recent shots, stands beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use coplay::motion::{ClientId, MotionServer, MotionServerEvent};
use coplay::peer_world::EntityId;
use coplay::time::Instant;
use coplay_maze::{Avatar, MazeRules, Position, RecentShots, TURN_RATE, WALK_SPEED};

use crate::avatar_motion::{AvatarPredictor, AvatarState, Steering, entity_of, motion_config, object_of};
use crate::spatial_index::{IndexedAvatar, SpatialIndex};

/// Time before all others: the motion server has no objects until the first call with a later one.
const BEGINNING: Instant = Instant::from_nanos(i64::MIN / 4);

/// All avatars of a world on one server.
#[derive(Debug)]
pub struct AvatarStore {
    motion: MotionServer<AvatarPredictor>,
    shots: BTreeMap<EntityId, RecentShots>,
    index: SpatialIndex,
}

impl AvatarStore {
    /// Creates a store without avatars. `incarnation` is the number of this server run.
    pub(crate) fn new(rules: Arc<MazeRules>, incarnation: u32) -> Self {
        let motion = MotionServer::new(BEGINNING, motion_config(incarnation), AvatarPredictor { rules });
        Self {
            motion: motion.expect("the settings are constants within their bounds"),
            shots: BTreeMap::new(),
            index: SpatialIndex::default(),
        }
    }

    /// Returns the state of an avatar in the last simulated tick; `None` if it is not in the world.
    pub fn get(&self, entity: EntityId) -> Option<Avatar> {
        let shots = self.shots.get(&entity)?.clone();
        Some(self.state(entity)?.avatar(self.steering(entity), shots))
    }

    /// Returns all avatars with their entities, ordered by entity.
    pub fn iter(&self) -> impl Iterator<Item = (EntityId, Avatar)> {
        self.shots.keys().filter_map(|entity| Some((*entity, self.get(*entity)?)))
    }

    /// Returns the number of avatars.
    pub fn len(&self) -> usize {
        self.shots.len()
    }

    /// Returns whether there are no avatars.
    pub fn is_empty(&self) -> bool {
        self.shots.is_empty()
    }

    /// Returns the avatars in the cells around a position, `reach` cells in each direction, at the beginning of the
    /// last tick.
    pub fn nearby(&self, position: Position, reach: i32) -> impl Iterator<Item = IndexedAvatar> {
        self.index.nearby(position, reach)
    }

    /// Returns the positions of all avatars at the beginning of the last tick.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = IndexedAvatar> {
        self.index.iter()
    }

    pub(crate) fn state(&self, entity: EntityId) -> Option<&AvatarState> {
        self.motion.state(object_of(entity))
    }

    pub(crate) fn steering(&self, entity: EntityId) -> Steering {
        self.motion.vector(object_of(entity)).copied().unwrap_or_default()
    }

    /// Returns the recent shots of all avatars that have any.
    pub(crate) fn shots(&self) -> impl Iterator<Item = (EntityId, &RecentShots)> {
        self.shots.iter().filter(|(_, shots)| shots.newest().is_some()).map(|(entity, shots)| (*entity, shots))
    }

    pub(crate) fn shots_of(&self, entity: EntityId) -> Option<&RecentShots> {
        self.shots.get(&entity)
    }

    pub(crate) fn set_shots(&mut self, entity: EntityId, shots: RecentShots) {
        self.shots.entry(entity).and_modify(|known| *known = shots);
    }

    /// Sorts the present positions into cells.
    pub(crate) fn rebuild_index(&mut self) {
        let motion = &self.motion;
        self.index.rebuild(self.shots.keys().filter_map(|entity| {
            let AvatarState { position, life, .. } = motion.state(object_of(*entity))?;
            let is_alive = *life == coplay_maze::Life::Alive;
            Some(IndexedAvatar { entity: *entity, position: *position, is_alive })
        }));
    }

    /// Adds an avatar that this server simulates, or takes over one of another server: for the player `client` or, with
    /// `None`, for this server. An avatar that is present already stays as it is. Returns false if there is no room.
    pub(crate) fn own(&mut self, now: Instant, entity: EntityId, avatar: &Avatar, client: Option<ClientId>) -> bool {
        if self.shots.contains_key(&entity) {
            self.motion.transfer_ownership(object_of(entity), client);
            return true;
        }
        self.insert(now, entity, avatar, client)
    }

    /// Gives an avatar of this server to another server, which reports its states from now on.
    pub(crate) fn release(&mut self, entity: EntityId) {
        self.motion.transfer_ownership(object_of(entity), None);
    }

    /// Notes the state of another server's avatar at `now`.
    pub(crate) fn place(&mut self, now: Instant, entity: EntityId, avatar: &Avatar) {
        if !self.shots.contains_key(&entity) {
            self.insert(now, entity, avatar, None);
        } else if self.is_as_predicted(entity, avatar) {
            self.set_shots(entity, avatar.shots.clone());
        } else {
            self.overrule(now, entity, avatar, Steering::of(avatar));
        }
    }

    /// Returns whether a state of another server's avatar is the predicted one, give or take one tick of motion.
    fn is_as_predicted(&self, entity: EntityId, avatar: &Avatar) -> bool {
        let (Some(state), steering) = (self.state(entity), Steering::of(avatar)) else { return false };
        let (speed, turn_rate) = steering.motion();
        state.is_same_life(&AvatarState::of(avatar))
            && self.steering(entity).motion() == (speed, turn_rate)
            && state.position.distance_squared(avatar.position) <= tick_of_motion(speed, WALK_SPEED)
            && u64::from(state.heading.wrapping_sub(avatar.heading).cast_signed().unsigned_abs()).pow(2)
                <= tick_of_motion(turn_rate, TURN_RATE)
    }

    fn insert(&mut self, now: Instant, entity: EntityId, avatar: &Avatar, client: Option<ClientId>) -> bool {
        let (state, steering) = (AvatarState::of(avatar), Steering::of(avatar));
        if !self.motion.spawn(now, object_of(entity), client, state.clone(), steering) {
            return false;
        }
        // A client that comes from another server must not continue from its own state of the avatar.
        self.motion.place(now, object_of(entity), state, steering);
        self.shots.insert(entity, avatar.shots.clone());
        true
    }

    /// Puts an avatar into another state, overruling its player.
    pub(crate) fn overrule(&mut self, now: Instant, entity: EntityId, avatar: &Avatar, steering: Steering) {
        self.motion.place(now, object_of(entity), AvatarState::of(avatar), steering);
        self.set_shots(entity, avatar.shots.clone());
    }

    /// Commands an avatar on behalf of this server, at the latest time that this store knows.
    pub(crate) fn steer(&mut self, entity: EntityId, steering: Steering) {
        self.motion.command(BEGINNING, object_of(entity), steering);
    }

    /// Removes an avatar from the world.
    pub(crate) fn remove(&mut self, entity: EntityId) {
        self.motion.remove(object_of(entity));
        self.shots.remove(&entity);
    }

    /// Moves all avatars up to `now`.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.motion.advance(now);
    }

    /// Processes the motion datagram of a player. Returns the entities that it commanded, each once per command, and
    /// whether the command presses fire.
    pub(crate) fn handle_player(&mut self, now: Instant, client: ClientId, bytes: &[u8]) -> Vec<(EntityId, bool)> {
        self.motion.handle_datagram(now, client, bytes);
        let mut commanded = Vec::new();
        while let Some(event) = self.motion.poll_event() {
            if let MotionServerEvent::ObjectCommanded(object, number) = event {
                let fires = self.motion.vector_of(object, number).is_some_and(|steering| steering.controls.fire);
                commanded.extend(entity_of(object).map(|entity| (entity, fires)));
            }
        }
        commanded
    }

    /// Forgets a player.
    pub(crate) fn remove_player(&mut self, client: ClientId) {
        self.motion.remove_client(client);
    }

    /// Sends a player the motion of an avatar from now on.
    pub(crate) fn show(&mut self, client: ClientId, entity: EntityId) {
        self.motion.show(client, object_of(entity));
    }

    /// Ends what [`show`](Self::show) began.
    pub(crate) fn hide(&mut self, client: ClientId, entity: EntityId) {
        self.motion.hide(client, object_of(entity));
    }

    /// Writes the next motion datagram to a player into `buf`. Returns its length; `None` if none is due.
    pub(crate) fn poll_player(&mut self, now: Instant, client: ClientId, buf: &mut [u8]) -> Option<usize> {
        self.motion.poll_transmit_to(now, client, buf)
    }
}

/// Returns the square of the motion of a tick if there is any motion, and otherwise 0.
fn tick_of_motion(rate: i16, most: i16) -> u64 {
    if rate == 0 { 0 } else { u64::from(most.unsigned_abs()).pow(2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay::time::TimeDelta;
    use coplay_maze::{Controls, Maze};

    #[test]
    fn predicted_states_of_another_server_change_nothing() {
        let rules = Arc::new(MazeRules::new(Maze::new(7, 8)));
        let mut store = AvatarStore::new(rules.clone(), 1);
        let entity = EntityId { site: WorldSiteId(1), index: 0 };
        let at = |tick: u32| Instant::ZERO + TimeDelta::from_millis(10) * i64::from(tick);
        let mut theirs = rules.spawn_avatar(&[], 1);
        let controls = Controls { forward: true, left: true, ..Controls::default() };
        rules.step(0, &mut theirs, controls, &[], 1);
        store.place(at(0), entity, &theirs);
        let number = |store: &AvatarStore, tick| {
            store.motion.moment_at(at(tick), object_of(entity)).expect("the avatar is present").number
        };
        let placed = number(&store, 0);
        for tick in 1..100 {
            rules.step(tick, &mut theirs, controls, &[], 1);
            store.advance(at(tick));
            assert_eq!(store.get(entity).as_ref(), Some(&theirs));
            if tick % 25 == 0 {
                store.place(at(tick), entity, &theirs);
                assert_eq!(number(&store, tick), placed);
            }
        }
        rules.step(100, &mut theirs, Controls::default(), &[], 1);
        store.place(at(100), entity, &theirs);
        assert_ne!(number(&store, 100), placed);
        store.advance(at(900));
        assert_eq!(store.get(entity), Some(theirs));
    }
}
