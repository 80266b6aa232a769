//! The world as one server knows it: the known state of all entities, the simulators of the owned ones, and the players
//! on this server.
//!
//! Pure: time and messages go in; [updates](EntityUpdate) for the other servers and datagrams for the players come out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::motion::{ClientId, MAX_CLIENTS};
use coplay::peer_world::{DeadReckoning, EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Maze, MazeRules, MazeSettings, Position, RecentShots, Score};

use crate::avatar_motion::entity_number;
use crate::avatar_store::AvatarStore;
use crate::entity_record::EntityRecord;
use crate::entity_store::{EntityStore, RETENTION_TICKS};
use crate::entity_update::{EntityUpdate, Update};
use crate::player::Player;
use crate::protocol::{ClientInput, Directory, MAX_MESSAGE_LEN, WorldView};
use crate::protocol::{ROWS_PER_DIRECTORY, TICK_DURATION};
use crate::simulation::{Controller, NinjaController, Simulation, SimulationEvent};
use crate::unreplicated_scores::UnreplicatedScores;

/// Silence after which a player counts as departed.
const PLAYER_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Time after a player left, or another server acquired its avatar, in which this server ignores input of the same
/// client run: datagrams that were sent before may still be in flight.
const DEPARTURE_GRACE: TimeDelta = TimeDelta::from_secs(1);
/// Ticks from the loss of a server until the avatars of its players are removed, if the players do not return (15 s).
const ORPHAN_TIMEOUT_TICKS: u32 = 1_500;
/// Largest number of missed ticks that a server simulates after a suspension. It skips the ticks before them.
const MAX_CATCH_UP_TICKS: u32 = 50;
/// Range of a player's view in each direction, in cells.
const VIEW_RANGE_CELLS: i32 = 4;
/// Largest number of other avatars in a player's view.
const MAX_VISIBLE_AVATARS: usize = 48;
/// Largest number of messages with motion that a player gets at once.
const MAX_VIEWS_AT_ONCE: usize = 4;
/// Number of updates waiting to be issued above which superseded ones are dropped, so that at most one update of each
/// of the three kinds remains per entity.
const MAX_PENDING_UPDATES: usize = 8_192;
/// Minimum interval between two updates of the scoreboard.
const SCOREBOARD_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Interval of the garbage collection of entities, in ticks.
const EXPIRY_INTERVAL: u32 = 100;
/// Minimum time between two calls of `advance` that counts as a suspension of the server, which received nothing in
/// that time.
const SERVER_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);
/// Largest number of addresses of other servers in a directory message.
const MAX_MIRRORS: usize = 8;
/// Entity index of ninjas; that of a player is 0 to 127.
const NINJA_INDEX: u8 = u8::MAX;

/// Seed that separates the hashes of player keys from other hashes.
const PLAYER_HASH_SEED: u64 = 0x0077_6f72_6c64;

/// World as one server knows it.
pub struct ServerWorld {
    source: SourceId,
    settings: MazeSettings,
    ninja_count: u8,
    entities: EntityStore,
    simulation: Simulation,
    avatars: AvatarStore,
    players: BTreeMap<EntityId, Player>,
    /// Number given to the next player that joins, as a client of the motion engine.
    next_client: u32,
    /// Number of motion commands accepted from players.
    commands: u64,
    /// Players that left or that another server acquired, with the run of their client and the time of departure.
    departed: BTreeMap<EntityId, (u32, Instant)>,
    tick: Option<u32>,
    last_advance: Option<Instant>,
    /// Latest time of a call of `advance` or `on_input`.
    now: Instant,
    /// Last tick in which the due messages to players were polled.
    last_sent_tick: Option<u32>,
    /// Updates that were not issued to the other servers yet, in order.
    pending_updates: VecDeque<EntityUpdate>,
    unreplicated_scores: UnreplicatedScores,
    /// All entities in the world with names and scores, best first.
    scoreboard: Vec<(EntityId, String, Score)>,
    /// Time of the last refresh of the scoreboard.
    scoreboard_updated: Option<Instant>,
    /// Servers that own avatars but are not live, with the tick in which this server noticed that.
    gone_servers: BTreeMap<SourceId, u32>,
    is_draining: bool,
}

/// Returns the entity of the player with this public key: site and index are a hash of the key.
pub fn player_entity(key: &[u8; 32]) -> EntityId {
    let hash = xxh64(PLAYER_HASH_SEED, key);
    EntityId { site: WorldSiteId(hash as u32), index: (hash >> 32) as u8 & 0x7f }
}

/// Returns the entity of the ninja with this number, from 0.
pub fn ninja_entity(number: u8) -> EntityId {
    EntityId { site: WorldSiteId(number.into()), index: NINJA_INDEX }
}

impl ServerWorld {
    /// Creates a world without known entities, for the server run `source`. All servers together keep `ninja_count`
    /// ninjas in the world.
    pub fn new(source: SourceId, settings: MazeSettings, ninja_count: u8) -> Self {
        let rules = Arc::new(MazeRules::new(Maze::new(settings.seed, settings.cells_per_side)));
        Self {
            source,
            settings,
            ninja_count,
            entities: EntityStore::default(),
            simulation: Simulation::new(rules.clone()),
            avatars: AvatarStore::new(rules, source.0.max(1)),
            players: BTreeMap::new(),
            next_client: 1,
            commands: 0,
            departed: BTreeMap::new(),
            tick: None,
            last_advance: None,
            now: Instant::ZERO,
            last_sent_tick: None,
            pending_updates: VecDeque::new(),
            unreplicated_scores: UnreplicatedScores::default(),
            scoreboard: Vec::new(),
            scoreboard_updated: None,
            gone_servers: BTreeMap::new(),
            is_draining: false,
        }
    }

    /// Returns the rules of the world, with its maze.
    pub fn rules(&self) -> &MazeRules {
        self.simulation.rules()
    }

    /// Returns the settings that all servers share.
    pub fn settings(&self) -> &MazeSettings {
        &self.settings
    }

    /// Returns the known state of all entities.
    pub fn entities(&self) -> &EntityStore {
        &self.entities
    }

    /// Returns all avatars in the last simulated tick; those of other servers are extrapolated.
    pub fn avatars(&self) -> &AvatarStore {
        &self.avatars
    }

    /// Returns the players on this server.
    pub fn players(&self) -> impl Iterator<Item = EntityId> {
        self.players.keys().copied()
    }

    /// Returns the number of motion commands accepted from players.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Returns the number of entities that this server owns.
    pub fn owned_count(&self) -> usize {
        self.simulation.len()
    }

    /// Returns the last simulated tick; `None` before the first.
    pub fn tick(&self) -> Option<u32> {
        self.tick
    }

    /// Asks all players to move to other servers, and admits no new ones, from now on.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Returns whether players are asked to move to other servers.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Takes the updates for the other servers, in order.
    pub fn take_updates(&mut self) -> Vec<EntityUpdate> {
        std::mem::take(&mut self.pending_updates).into()
    }

    /// Returns the first update for the other servers that was not issued yet.
    pub(crate) fn next_update(&self) -> Option<&EntityUpdate> {
        self.pending_updates.front()
    }

    /// Notes that the first update was issued as the event with this sequence number, or cannot be issued at all.
    pub(crate) fn on_next_published(&mut self, seq: Option<u64>) {
        if let (Some(entity_update), Some(seq)) = (self.pending_updates.pop_front(), seq) {
            self.on_published(&entity_update, seq);
        }
    }

    /// Limits the number of updates that were not issued yet: drops superseded ones if there are more than 8,192.
    pub(crate) fn limit_updates(&mut self) {
        if self.pending_updates.len() > MAX_PENDING_UPDATES {
            drop_superseded(&mut self.pending_updates);
        }
    }

    /// Notes that an update was issued as the event with this sequence number.
    pub fn on_published(&mut self, entity_update: &EntityUpdate, seq: u64) {
        if let Update::Score(count) = entity_update.update {
            self.unreplicated_scores.on_published(entity_update.entity, count, seq);
        }
    }

    /// Notes that another server has all our events up to `seq`. `u64::MAX` means that there is no other server.
    pub fn on_replicated(&mut self, seq: u64) {
        let (entities, me) = (&self.entities, self.source);
        self.unreplicated_scores.on_replicated(seq, |entity| entities.count_by(entity, me));
    }

    /// Simulates the ticks after the last simulated one up to `tick`, but only the last 50 of them. Then removes silent
    /// players and, every 100 ticks, expired entities. Does nothing if `tick` was simulated already.
    pub fn advance(&mut self, now: Instant, tick: u32) {
        if self.tick.is_some_and(|last| tick <= last) {
            return;
        }
        self.now = self.now.max(now);
        self.extend_player_timeouts(now);
        let last = self.tick.unwrap_or(tick.saturating_sub(1));
        for step in last.max(tick.saturating_sub(MAX_CATCH_UP_TICKS)) + 1..=tick {
            let at = now - TICK_DURATION * i64::from(tick - step);
            for event in self.simulation.step(at, step, &mut self.avatars) {
                self.on_simulation_event(step, event);
            }
        }
        self.tick = Some(tick);
        self.remove_silent_players(now);
        self.departed.retain(|_, (_, since)| now - *since < DEPARTURE_GRACE);
        if last / EXPIRY_INTERVAL != tick / EXPIRY_INTERVAL {
            self.entities.expire(tick).into_iter().for_each(|entity| self.avatars.remove(entity));
        }
    }

    /// Extends the timeouts of players after a suspension, in which the server received nothing.
    fn extend_player_timeouts(&mut self, now: Instant) {
        let gap = now - self.last_advance.replace(now).unwrap_or(now);
        if gap >= SERVER_SUSPENDED {
            self.players.values_mut().for_each(|player| player.last_received = (player.last_received + gap).min(now));
        }
    }

    fn on_simulation_event(&mut self, tick: u32, event: SimulationEvent) {
        match event {
            SimulationEvent::UpdateDue(entity) => self.publish_placement(tick, entity),
            SimulationEvent::AvatarHit { victim, shooter } => {
                self.players.get_mut(&victim).into_iter().for_each(|player| player.last_hit_by = Some(shooter));
                self.add_score(victim, Score { hits: 0, falls: 1 });
                self.add_score(shooter, Score { hits: 1, falls: 0 });
            }
        }
    }

    fn add_score(&mut self, entity: EntityId, more: Score) {
        let before = self.entities.count_by(entity, self.source);
        self.unreplicated_scores.on_increase(entity, before);
        let (hits, falls) = (before.hits.saturating_add(more.hits), before.falls.saturating_add(more.falls));
        self.publish(EntityUpdate { entity, update: Update::Score(Score { hits, falls }) });
    }

    /// Returns the hits and falls of an entity that survive the crash of any one server. If there is no other server,
    /// returns all of them.
    pub fn replicated_score(&self, entity: EntityId) -> Score {
        let (all, ours) = (self.entities.score(entity), self.entities.count_by(entity, self.source));
        let replicated = self.unreplicated_scores.replicated_score(entity, ours);
        let of = |all: u32, ours: u32, replicated: u32| all.saturating_sub(ours.saturating_sub(replicated));
        let (hits, falls) = (of(all.hits, ours.hits, replicated.hits), of(all.falls, ours.falls, replicated.falls));
        Score { hits, falls }
    }

    /// Applies an update here and queues it for the other servers.
    fn publish(&mut self, entity_update: EntityUpdate) {
        self.entities.apply(self.source, entity_update.clone());
        self.pending_updates.push_back(entity_update);
    }

    fn publish_placement(&mut self, tick: u32, entity: EntityId) {
        let ownership = self.entities.get(entity).and_then(EntityRecord::ownership);
        let epoch = ownership.map_or(tick, |ownership| ownership.epoch);
        let avatar = self.avatars.get(entity);
        self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } });
    }

    /// Returns the next ownership epoch of an entity: above the known one and at least `tick`, so that it also exceeds
    /// the epochs that this server has forgotten.
    fn next_epoch(&self, tick: u32, entity: EntityId) -> u32 {
        let ownership = self.entities.get(entity).and_then(EntityRecord::ownership);
        ownership.map_or(tick, |ownership| ownership.epoch.saturating_add(1).max(tick))
    }

    /// Acquires an entity, whichever server owned it before. Returns false if there is no room for its avatar.
    fn acquire(&mut self, tick: u32, entity: EntityId, name: &str, controller: Controller) -> bool {
        let epoch = self.next_epoch(tick, entity);
        let renamed = self.entities.get(entity).is_none_or(|record| record.name() != name);
        let avatar = self.avatars.get(entity).unwrap_or_else(|| self.new_avatar(tick, entity));
        if !self.simulation.add((self.now, tick), entity, avatar.clone(), controller, &mut self.avatars) {
            return false;
        }
        if renamed {
            self.publish(EntityUpdate { entity, update: Update::Name { epoch, name: name.into() } });
        }
        self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar: Some(avatar) } });
        true
    }

    /// Creates an avatar. Its spawn count is derived from the tick, so that it is not mistaken for an earlier avatar of
    /// the entity.
    fn new_avatar(&self, tick: u32, entity: EntityId) -> Avatar {
        let others: Vec<Position> = self.avatars.iter().map(|(_, other)| other.position).collect();
        let avatar = self.rules().spawn_avatar(&others, entity_number(entity));
        Avatar { spawn_count: avatar.spawn_count.wrapping_add(tick as u16), ..avatar }
    }

    /// Removes an entity from the world; its score stays.
    fn remove(&mut self, tick: u32, entity: EntityId) {
        let is_owned = self.simulation.remove(entity, &mut self.avatars);
        self.avatars.remove(entity);
        if is_owned {
            return self.publish_placement(tick, entity);
        }
        let epoch = self.next_epoch(tick, entity);
        self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar: None } });
    }

    fn remove_silent_players(&mut self, now: Instant) {
        let silent = |(_, player): &(&EntityId, &Player)| now - player.last_received >= PLAYER_TIMEOUT;
        let silent: Vec<EntityId> = self.players.iter().filter(silent).map(|(entity, _)| *entity).collect();
        for entity in silent {
            self.remove_player(entity);
        }
    }

    /// Removes a player from this server, and its avatar from the world.
    pub fn remove_player(&mut self, entity: EntityId) {
        let Some(player) = self.players.remove(&entity) else { return };
        self.avatars.remove_player(player.client);
        if self.simulation.contains(entity) {
            self.remove(self.tick.unwrap_or_default(), entity);
        }
    }

    /// Processes the goodbye of a player in this run: removes the player, and for 1 s ignores input of the same run,
    /// which may have been sent before the goodbye. Does nothing if the player is not on this server in this run.
    pub fn on_leave(&mut self, now: Instant, entity: EntityId, run: u32) {
        if self.players.get(&entity).is_some_and(|player| player.run == run) {
            self.departed.insert(entity, (run, now));
            self.remove_player(entity);
        }
    }

    /// Processes input of a player, who joins this server with the first input of a client run. Returns `false` if the
    /// input is ignored: before the first tick, or if the player would have to join, but the server is draining, the
    /// world is full, or the same run has left this server within the last second.
    pub fn on_input(&mut self, now: Instant, entity: EntityId, input: &ClientInput) -> bool {
        let Some(tick) = self.tick else { return false };
        self.now = self.now.max(now);
        if let Some(player) = self.players.get_mut(&entity).filter(|player| player.run == input.run) {
            player.last_received = now;
            self.handle_motion(now, entity, &input.motion);
            return true;
        }
        let has_departed = self.departed.get(&entity).is_some_and(|(run, _)| *run == input.run);
        if self.is_draining || has_departed || !self.has_room_for(entity) {
            return false;
        }
        let client = ClientId(self.next_client);
        if !self.acquire(tick, entity, &input.name, Controller::Player(client)) {
            return false;
        }
        self.next_client = self.next_client.wrapping_add(1);
        let before = self.players.insert(entity, Player::new(now, tick, client, input));
        before.into_iter().for_each(|before| self.avatars.remove_player(before.client));
        self.handle_motion(now, entity, &input.motion);
        true
    }

    fn handle_motion(&mut self, now: Instant, entity: EntityId, motion: &[u8]) {
        let Some(player) = self.players.get(&entity).filter(|_| !motion.is_empty()) else { return };
        for (commanded, fires) in self.avatars.handle_player(now, player.client, motion) {
            self.commands += 1;
            self.simulation.on_command(commanded, fires);
        }
    }

    /// Returns whether a player may join.
    pub(crate) fn has_room_for(&self, entity: EntityId) -> bool {
        self.entities.has_room_for(entity) && (self.players.len() < MAX_CLIENTS || self.players.contains_key(&entity))
    }

    /// Returns whether the world has too many entities to admit new players.
    pub fn is_full(&self) -> bool {
        self.entities.is_full() || self.players.len() >= MAX_CLIENTS
    }

    /// Applies an update of another server. Returns whether it was valid.
    pub fn apply_update(&mut self, now: Instant, source: SourceId, bytes: &[u8]) -> bool {
        let Some(entity_update) = EntityUpdate::from_bytes(bytes, self.simulation.rules()) else { return false };
        let (entity, is_placement) = (entity_update.entity, matches!(entity_update.update, Update::Placement { .. }));
        if self.entities.apply(source, entity_update) && is_placement {
            self.on_placement_update(now, entity);
        }
        true
    }

    /// Encodes the state asserted by one server, for another server that lacks its events.
    pub fn snapshot(&self, source: SourceId) -> Vec<u8> {
        self.entities.asserted_by(source).to_bytes(self.rules())
    }

    /// Merges a snapshot of the state asserted by one server. Returns whether it was valid.
    pub fn merge_snapshot(&mut self, now: Instant, source: SourceId, snapshot: &[u8]) -> bool {
        let Some(other) = EntityStore::from_bytes(snapshot, self.simulation.rules()) else { return false };
        let other = other.asserted_by(source);
        for entity in self.entities.merge(other) {
            self.on_placement_update(now, entity);
        }
        true
    }

    /// Handles a changed placement: another server may have acquired the entity.
    fn on_placement_update(&mut self, now: Instant, entity: EntityId) {
        let Some(placement) = self.entities.get(entity).and_then(EntityRecord::placement) else { return };
        if placement.ownership.owner == self.source {
            return;
        }
        // A player on this server has not left, even if another server without knowledge of the player asserts a
        // departure. So this server acquires the entity again.
        if placement.avatar.is_none() && self.players.contains_key(&entity) && self.simulation.contains(entity) {
            let (tick, avatar) = (self.tick.unwrap_or_default(), self.avatars.get(entity));
            let epoch = self.next_epoch(tick, entity);
            return self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } });
        }
        if self.simulation.remove(entity, &mut self.avatars)
            && let Some(player) = self.players.remove(&entity)
        {
            self.avatars.remove_player(player.client);
            self.departed.insert(entity, (player.run, now));
        }
        let age = self.tick.unwrap_or_default().saturating_sub(placement.tick);
        match &placement.avatar {
            Some(avatar) if age <= RETENTION_TICKS => {
                self.avatars.place(now, entity, &self.simulation.rules().extrapolate(avatar, age))
            }
            _ => self.avatars.remove(entity),
        }
    }

    /// Takes over ninjas that no live server owns, and removes players' avatars whose server has been gone for 15 s,
    /// both only for entities that the rendezvous hash assigns to this server. Servers that know the same live servers
    /// agree on the assignment. `live` must contain the other live servers.
    pub fn reclaim_orphans(&mut self, live: &BTreeSet<SourceId>) {
        let Some(tick) = self.tick else { return };
        self.refresh_gone_servers(tick, live);
        for entity in (0..self.ninja_count).map(ninja_entity) {
            let owner = self.entities.get(entity).and_then(current_owner);
            let is_orphaned = owner.is_none_or(|owner| self.gone_servers.contains_key(&owner));
            if is_orphaned && rendezvous_owner(entity, self.source, live) == self.source {
                self.acquire_bot(tick, entity);
            }
        }
        for entity in self.orphans(tick) {
            if rendezvous_owner(entity, self.source, live) == self.source {
                self.remove(tick, entity);
            }
        }
    }

    fn refresh_gone_servers(&mut self, tick: u32, live: &BTreeSet<SourceId>) {
        let owners: BTreeSet<SourceId> = self.entities.iter().filter_map(|(_, record)| current_owner(record)).collect();
        self.gone_servers.retain(|source, _| owners.contains(source) && !live.contains(source));
        for source in owners.into_iter().filter(|source| *source != self.source && !live.contains(source)) {
            self.gone_servers.entry(source).or_insert(tick);
        }
    }

    /// Returns the avatars of players that did not return within 15 s after this server noticed the loss of their
    /// server.
    fn orphans(&self, tick: u32) -> Vec<EntityId> {
        let is_orphan = |entity: EntityId, record: &EntityRecord| {
            let since = current_owner(record).and_then(|owner| self.gone_servers.get(&owner).copied());
            entity.index != NINJA_INDEX && since.is_some_and(|since| tick.saturating_sub(since) >= ORPHAN_TIMEOUT_TICKS)
        };
        self.entities.iter().filter(|(entity, record)| is_orphan(*entity, record)).map(|(entity, _)| entity).collect()
    }

    fn acquire_bot(&mut self, tick: u32, ninja: EntityId) {
        let seed = u64::from(ninja.site.0) << 32 | u64::from(self.source.0);
        let name = format!("ninja {}", ninja.site.0 + 1);
        self.acquire(tick, ninja, &name, Controller::Ninja(Box::new(NinjaController::new(seed))));
    }

    /// Refreshes the scoreboard, unless that was done less than 200 ms ago.
    fn refresh_scoreboard(&mut self, now: Instant) {
        if self.scoreboard_updated.is_some_and(|then| now - then < SCOREBOARD_INTERVAL) {
            return;
        }
        self.scoreboard_updated = Some(now);
        let present = self.entities.iter().filter(|(_, record)| current_owner(record).is_some());
        let rows = present.map(|(entity, record)| (entity, record.name().to_owned(), self.replicated_score(entity)));
        self.scoreboard = rows.collect();
        self.scoreboard.sort_by_key(|(entity, _, score)| (std::cmp::Reverse(score.hits), score.falls, *entity));
    }

    /// Returns the views and directory messages that are due, each with its player, at most once per tick. `mirrors`
    /// returns the addresses of the other servers for a player.
    pub fn poll_player_messages<'a>(
        &mut self,
        now: Instant,
        mirrors: impl Fn(EntityId) -> &'a [String],
    ) -> Vec<(EntityId, Vec<u8>)> {
        let Some(tick) = self.tick.filter(|tick| self.last_sent_tick != Some(*tick)) else { return vec![] };
        self.last_sent_tick = Some(tick);
        self.refresh_scoreboard(now);
        let mut messages = Vec::new();
        let mut views_due = Vec::new();
        for (entity, player) in &mut self.players {
            if player.take_directory_due(now) {
                messages.push((
                    *entity,
                    next_directory(player, self.settings, mirrors(*entity), &self.scoreboard).to_bytes(),
                ));
            }
            if player.take_view_due(now) {
                views_due.push(*entity);
            }
        }
        for entity in views_due {
            messages.extend(self.next_views(now, tick, entity).into_iter().map(|bytes| (entity, bytes)));
        }
        messages
    }

    /// Returns the views that are due to a player: at least one, and more if the motion of its avatars needs them.
    fn next_views(&mut self, now: Instant, tick: u32, entity: EntityId) -> Vec<Vec<u8>> {
        let replicated_score = self.replicated_score(entity);
        let Some(player) = self.players.get_mut(&entity) else { return Vec::new() };
        let in_view = visible_avatars(&self.avatars, entity);
        in_view.iter().for_each(|other| self.avatars.show(player.client, *other));
        let left = player.update_view(now, &in_view);
        left.into_iter().for_each(|other| self.avatars.hide(player.client, other));
        let shots = |other: &EntityId| Some((*other, self.avatars.shots_of(*other)?.clone()));
        let has_shots = |(_, shots): &(EntityId, RecentShots)| shots.newest().is_some();
        let header = WorldView {
            sent_at: now,
            tick,
            run: player.run,
            joined_tick: player.joined_tick,
            own_entity: entity,
            score: replicated_score,
            is_draining: self.is_draining,
            last_hit_by: player.last_hit_by,
            shots: in_view.iter().filter_map(shots).filter(has_shots).collect(),
            motion: Vec::new(),
        };
        let client = player.client;
        let mut views = vec![header.to_bytes()];
        let (header_len, mut buf) = (views[0].len(), [0; MAX_MESSAGE_LEN]);
        while views.len() <= MAX_VIEWS_AT_ONCE
            && let Some(len) = self.avatars.poll_player(now, client, &mut buf[header_len..])
        {
            let mut view = views[0][..header_len].to_vec();
            view.extend_from_slice(&buf[header_len..header_len + len]);
            views.push(view);
        }
        // The first view, without motion, is needed only if there is none with motion.
        if views.len() > 1 {
            views.remove(0);
        }
        views
    }
}

/// Returns the owner of an entity; `None` if the entity is not in the world.
fn current_owner(record: &EntityRecord) -> Option<SourceId> {
    record.placement().filter(|placement| placement.avatar.is_some()).map(|placement| placement.ownership.owner)
}

/// Keeps only the newest update of each kind per entity.
fn drop_superseded(pending: &mut VecDeque<EntityUpdate>) {
    let mut newer = BTreeSet::new();
    pending.make_contiguous().reverse();
    pending.retain(|entity_update| newer.insert((entity_update.entity, entity_update.update.kind())));
    pending.make_contiguous().reverse();
}

/// Returns the server that takes care of an entity whose own server is gone (rendezvous hashing).
fn rendezvous_owner(entity: EntityId, me: SourceId, live: &BTreeSet<SourceId>) -> SourceId {
    let rank = |source: &SourceId| (xxh64(entity_number(entity), &source.0.to_le_bytes()), *source);
    live.iter().copied().chain([me]).max_by_key(rank).unwrap_or(me)
}

/// Returns the avatars that a player sees: its own first, then up to 48 others around it, nearest first.
fn visible_avatars(avatars: &AvatarStore, entity: EntityId) -> Vec<EntityId> {
    let Some(position) = avatars.state(entity).map(|state| state.position) else { return Vec::new() };
    let mut near: Vec<(u64, EntityId)> = avatars
        .nearby(position, VIEW_RANGE_CELLS)
        .filter(|other| other.entity != entity)
        .map(|other| (position.distance_squared(other.position), other.entity))
        .collect();
    if near.len() > MAX_VISIBLE_AVATARS {
        near.select_nth_unstable(MAX_VISIBLE_AVATARS);
        near.truncate(MAX_VISIBLE_AVATARS);
    }
    near.sort_unstable();
    [entity].into_iter().chain(near.into_iter().map(|(_, other)| other)).collect()
}

/// Returns those of the first 8 addresses that fit into half a message; the other half is for the scoreboard.
fn fitting_mirrors(mirrors: &[String]) -> Vec<String> {
    let mut room = MAX_MESSAGE_LEN / 2;
    let fits = |addr: &&String| {
        let fits = addr.len() < room;
        room -= if fits { addr.len() + 1 } else { 0 };
        fits
    };
    mirrors.iter().take(MAX_MIRRORS).filter(fits).cloned().collect()
}

fn next_directory(
    player: &mut Player,
    settings: MazeSettings,
    mirrors: &[String],
    scoreboard: &[(EntityId, String, Score)],
) -> Directory {
    let from = if player.next_score_row < scoreboard.len() { player.next_score_row } else { 0 };
    let score_rows = scoreboard[from..].iter().take(ROWS_PER_DIRECTORY).cloned().collect::<Vec<_>>();
    let directory = Directory { settings, mirrors: fitting_mirrors(mirrors), score_rows };
    player.next_score_row = from + directory.fitting_rows();
    directory
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn newest_update_of_each_kind_stays_pending() {
        let entity = |number| EntityId { site: WorldSiteId(number), index: 0 };
        let updates = |tick: u32| {
            let score = Update::Score(Score { hits: tick, falls: tick });
            [
                Update::Placement { epoch: 1, tick, avatar: None },
                Update::Name { epoch: tick, name: "Ada".into() },
                score,
            ]
        };
        let mut pending: VecDeque<EntityUpdate> = VecDeque::new();
        for at in 0..9_000 {
            pending.extend(updates(at).map(|update| EntityUpdate { entity: entity(at % 10), update }));
        }
        drop_superseded(&mut pending);
        let newest =
            (8_990..9_000).flat_map(|at| updates(at).map(|update| EntityUpdate { entity: entity(at % 10), update }));
        assert_eq!(pending, newest.collect::<VecDeque<EntityUpdate>>());
    }
}
