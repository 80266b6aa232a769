//! A world as one server has it: what is known of all objects, the simulators of those that it owns, and the players who are here.
//!
//! Pure: the time and what others say go in; [deeds](EntityUpdate) for the other servers and datagrams for the players come out.

use std::collections::{BTreeMap, BTreeSet};

use coplay::hash::xxh64;
use coplay::mirror::SourceId;
use coplay::peer_world::{DeadReckoning, EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Maze, MazeSettings, Ninja, Position, Rules, Score};

use crate::entity_record::EntityRecord;
use crate::entity_store::{EntityStore, RETENTION_TICKS};
use crate::entity_update::{EntityUpdate, Update};
use crate::player::Player;
use crate::protocol::{ClientInput, Directory, MAX_MESSAGE_LEN, WorldView};
use crate::simulation::{Controller, Simulation, SimulationEvent};
use crate::spatial_index::SpatialIndex;
use crate::unreplicated_scores::UnreplicatedScores;

/// Who is silent for so long has left.
const PLAYER_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// A player whom another server took is not taken back for so long: what still comes from it was under way.
const DEPARTURE_GRACE: TimeDelta = TimeDelta::from_secs(1);
/// An avatar of a server that is gone, whose player does not come back for so many ticks, is gone, too.
const ORPHAN_TIMEOUT_TICKS: u32 = 1_500;
/// Who was away catches up with at most so many ticks; it missed the rest.
const MAX_CATCH_UP_TICKS: u32 = 50;
/// A player sees others up to so many cells away, and so many at the most.
const VIEW_RANGE_CELLS: i32 = 4;
const MAX_VISIBLE_AVATARS: usize = 48;
/// The table is made anew at most this often.
const SCOREBOARD_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// What nobody needs to know any more is looked for this often, in ticks.
const EXPIRY_INTERVAL: u32 = 100;
/// Who was not there for so long was asleep, and heard nobody meanwhile.
const SERVER_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);
/// So many lines of the table are on a page.
pub(crate) const ROWS_PER_DIRECTORY: usize = 24;
/// The most places of other servers on it.
const MAX_MIRRORS: usize = 8;
/// Ninjas have this index, and players any other.
const NINJA_INDEX: u8 = u8::MAX;

/// What objects are told from other hashes by.
const PLAYER_HASH_SEED: u64 = 0x0077_6f72_6c64;

/// A world as one server has it.
pub struct WorldState {
    source: SourceId,
    settings: MazeSettings,
    ninja_count: u8,
    entities: EntityStore,
    simulation: Simulation,
    avatars: SpatialIndex,
    players: BTreeMap<EntityId, Player>,
    /// Presses of players that were heard here.
    commands: u64,
    /// Players whom another server took or who said goodbye, in which run of theirs, and when.
    departed: BTreeMap<EntityId, (u32, Instant)>,
    tick: Option<u32>,
    last_advance: Option<Instant>,
    /// The last tick of which players were told.
    last_sent_tick: Option<u32>,
    pending_updates: Vec<EntityUpdate>,
    unreplicated_scores: UnreplicatedScores,
    /// Everybody who is there, the best first, and when that was put down.
    scoreboard: Vec<(EntityId, String, Score)>,
    scoreboard_updated: Option<Instant>,
    /// Servers that are gone, and since which tick.
    gone_servers: BTreeMap<SourceId, u32>,
    is_draining: bool,
}

/// The object that belongs to a player's key.
pub fn player_entity(key: &[u8; 32]) -> EntityId {
    let hash = xxh64(PLAYER_HASH_SEED, key);
    EntityId { site: WorldSiteId(hash as u32), index: (hash >> 32) as u8 & 0x7f }
}

/// The object of a ninja.
pub fn ninja_entity(number: u8) -> EntityId {
    EntityId { site: WorldSiteId(number.into()), index: NINJA_INDEX }
}

impl WorldState {
    /// A world of which nothing is known yet.
    pub fn new(me: SourceId, terms: MazeSettings, ninjas: u8) -> Self {
        Self {
            source: me,
            settings: terms,
            ninja_count: ninjas,
            entities: EntityStore::default(),
            simulation: Simulation::new(Rules::new(Maze::new(terms.seed, terms.cells_per_side))),
            avatars: SpatialIndex::default(),
            players: BTreeMap::new(),
            commands: 0,
            departed: BTreeMap::new(),
            tick: None,
            last_advance: None,
            last_sent_tick: None,
            pending_updates: Vec::new(),
            unreplicated_scores: UnreplicatedScores::default(),
            scoreboard: Vec::new(),
            scoreboard_updated: None,
            gone_servers: BTreeMap::new(),
            is_draining: false,
        }
    }

    /// The rules that hold.
    pub fn rules(&self) -> &Rules {
        self.simulation.rules()
    }

    /// What is agreed on.
    pub fn settings(&self) -> &MazeSettings {
        &self.settings
    }

    /// All that is known.
    pub fn entities(&self) -> &EntityStore {
        &self.entities
    }

    /// Everybody as of now.
    pub fn avatars(&self) -> &SpatialIndex {
        &self.avatars
    }

    /// The players who are here.
    pub fn players(&self) -> impl Iterator<Item = EntityId> {
        self.players.keys().copied()
    }

    /// How often players pressed other buttons, as far as it was heard here.
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// How many objects are ours.
    pub fn owned_count(&self) -> usize {
        self.simulation.len()
    }

    /// The last tick that was made.
    pub fn tick(&self) -> Option<u32> {
        self.tick
    }

    /// From now on players are told to go elsewhere.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether players are told to go elsewhere.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// What the other servers must be told, in this order.
    pub fn take_updates(&mut self) -> Vec<EntityUpdate> {
        std::mem::take(&mut self.pending_updates)
    }

    /// The others are told of a deed with the event of this number.
    pub fn on_published(&mut self, deed: &EntityUpdate, seq: u64) {
        if let Update::Score(count) = deed.update {
            self.unreplicated_scores.on_published(deed.entity, count, seq);
        }
    }

    /// Another server has all our events up to this one, or there is none to have them.
    pub fn on_replicated(&mut self, seq: u64) {
        let (register, me) = (&self.entities, self.source);
        self.unreplicated_scores.on_replicated(seq, |entity| register.count_by(entity, me));
    }

    /// Everybody makes their ticks up to this one.
    pub fn advance(&mut self, now: Instant, tick: u32) {
        if self.tick.is_some_and(|last| tick <= last) {
            return;
        }
        self.extend_player_timeouts(now);
        let last = self.tick.unwrap_or(tick.saturating_sub(1));
        for tick in last.max(tick.saturating_sub(MAX_CATCH_UP_TICKS)) + 1..=tick {
            self.apply_due_changes(tick);
            for happening in self.simulation.step(tick, &mut self.avatars) {
                self.on_simulation_event(tick, happening);
            }
        }
        self.tick = Some(tick);
        self.remove_silent_players(now);
        self.departed.retain(|_, (_, since)| now - *since < DEPARTURE_GRACE);
        if last / EXPIRY_INTERVAL != tick / EXPIRY_INTERVAL {
            self.entities.expire(tick).into_iter().for_each(|entity| self.avatars.remove(entity));
        }
    }

    /// Whoever was asleep does not blame others for silence.
    fn extend_player_timeouts(&mut self, now: Instant) {
        let gap = now - self.last_advance.replace(now).unwrap_or(now);
        if gap >= SERVER_SUSPENDED {
            self.players.values_mut().for_each(|player| player.last_received = (player.last_received + gap).min(now));
        }
    }

    fn apply_due_changes(&mut self, tick: u32) {
        for (entity, player) in &mut self.players {
            while let Some(due) = player.next_due_change(tick) {
                self.simulation.set_controls(*entity, due.change.controls, due.rewind_ticks, &mut self.avatars);
            }
        }
    }

    fn on_simulation_event(&mut self, tick: u32, happening: SimulationEvent) {
        match happening {
            SimulationEvent::UpdateDue(entity) => self.publish_placement(tick, entity),
            SimulationEvent::AvatarHit { victim: whom, shooter: by } => {
                self.players.get_mut(&whom).into_iter().for_each(|player| player.last_hit_by = Some(by));
                self.add_score(whom, Score { hits: 0, falls: 1 });
                self.add_score(by, Score { hits: 1, falls: 0 });
            }
        }
    }

    fn add_score(&mut self, entity: EntityId, more: Score) {
        let before = self.entities.count_by(entity, self.source);
        self.unreplicated_scores.on_increase(entity, before);
        let (hits, falls) = (before.hits.saturating_add(more.hits), before.falls.saturating_add(more.falls));
        self.publish(EntityUpdate { entity, update: Update::Score(Score { hits, falls }) });
    }

    /// Hits and falls that will not be forgotten, whichever server dies.
    pub fn replicated_score(&self, entity: EntityId) -> Score {
        let (all, ours) = (self.entities.score(entity), self.entities.count_by(entity, self.source));
        let sure = self.unreplicated_scores.replicated_score(entity, ours);
        let of = |all: u32, ours: u32, sure: u32| all.saturating_sub(ours.saturating_sub(sure));
        Score { hits: of(all.hits, ours.hits, sure.hits), falls: of(all.falls, ours.falls, sure.falls) }
    }

    /// Tells everybody, ourselves first.
    fn publish(&mut self, deed: EntityUpdate) {
        self.entities.apply(self.source, deed.clone());
        self.pending_updates.push(deed);
    }

    fn publish_placement(&mut self, tick: u32, entity: EntityId) {
        let epoch = self.entities.get(entity).and_then(EntityRecord::ownership).map_or(tick, |term| term.epoch);
        let avatar = self.avatars.get(entity).cloned();
        self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } });
    }

    /// The epoch of an object in which we have it next. Those that nobody remembers are earlier, too.
    fn next_epoch(&self, tick: u32, entity: EntityId) -> u32 {
        let term = self.entities.get(entity).and_then(EntityRecord::ownership);
        term.map_or(tick, |term| term.epoch.saturating_add(1).max(tick))
    }

    /// An object is ours from now on, whoever had it before.
    fn acquire(&mut self, tick: u32, entity: EntityId, name: &str, mind: Controller) {
        let epoch = self.next_epoch(tick, entity);
        let renamed = self.entities.get(entity).is_none_or(|being| being.name() != name);
        let avatar = self.avatars.get(entity).cloned().unwrap_or_else(|| self.new_avatar(tick, entity));
        self.simulation.add(tick, entity, avatar.clone(), mind, &mut self.avatars);
        if renamed {
            self.publish(EntityUpdate { entity, update: Update::Name { epoch, name: name.into() } });
        }
        self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar: Some(avatar) } });
    }

    /// Its lives are counted from the tick on: nobody takes it for the avatar that it had before.
    fn new_avatar(&self, tick: u32, entity: EntityId) -> Avatar {
        let others: Vec<Position> = self.avatars.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = self.rules().spawn_avatar(&others, entity_number(entity));
        Avatar { spawn_count: avatar.spawn_count.wrapping_add(tick as u16), ..avatar }
    }

    /// An object leaves the world; its score stays.
    fn remove(&mut self, tick: u32, entity: EntityId) {
        self.avatars.remove(entity);
        if self.simulation.remove(entity) {
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

    /// A player leaves.
    pub fn remove_player(&mut self, entity: EntityId) {
        if self.players.remove(&entity).is_some() && self.simulation.contains(entity) {
            self.remove(self.tick.unwrap_or_default(), entity);
        }
    }

    /// A player says goodbye, in this run of its. What still comes from that was under way.
    pub fn on_leave(&mut self, now: Instant, entity: EntityId, run: u32) {
        if self.players.get(&entity).is_some_and(|player| player.run == run) {
            self.departed.insert(entity, (run, now));
            self.remove_player(entity);
        }
    }

    /// A player says something, perhaps for the first time, or for the first time in this run of its. Whether it is here now.
    pub fn on_input(&mut self, now: Instant, entity: EntityId, wish: &ClientInput) -> bool {
        let Some(tick) = self.tick else { return false };
        if let Some(player) = self.players.get_mut(&entity).filter(|player| player.run == wish.run) {
            self.commands += player.on_input(now, wish);
            return true;
        }
        let is_lost = self.departed.get(&entity).is_some_and(|(run, _)| *run == wish.run);
        if self.is_draining || is_lost || !self.entities.has_room_for(entity) {
            return false;
        }
        let mut player = Player::new(now, tick, wish);
        self.commands += player.on_input(now, wish);
        self.acquire(tick, entity, &player.name.clone(), Controller::Player(Controls::default()));
        self.players.insert(entity, player);
        true
    }

    /// Whether nobody new is let in.
    pub fn is_full(&self) -> bool {
        self.entities.is_full()
    }

    /// Another server says something.
    pub fn apply_update(&mut self, now: Instant, said_by: SourceId, bytes: &[u8]) -> bool {
        let Some(deed) = EntityUpdate::from_bytes(bytes, self.simulation.rules()) else { return false };
        let (entity, is_stand) = (deed.entity, matches!(deed.update, Update::Placement { .. }));
        if self.entities.apply(said_by, deed) && is_stand {
            self.on_placement_update(now, entity);
        }
        true
    }

    /// All that is known by the word of one server, for another that comes late.
    pub fn snapshot(&self, said_by: SourceId) -> Vec<u8> {
        self.entities.asserted_by(said_by).to_bytes(self.rules())
    }

    /// Learns all that is known elsewhere by the word of one server.
    pub fn merge_snapshot(&mut self, now: Instant, said_by: SourceId, snapshot: &[u8]) -> bool {
        let Some(other) = EntityStore::from_bytes(snapshot, self.simulation.rules()) else { return false };
        let other = other.asserted_by(said_by);
        for entity in self.entities.merge(other) {
            self.on_placement_update(now, entity);
        }
        true
    }

    /// There is news of where an object stands: perhaps it is not ours any more.
    fn on_placement_update(&mut self, now: Instant, entity: EntityId) {
        let Some(stand) = self.entities.get(entity).and_then(EntityRecord::placement) else { return };
        if stand.ownership.owner == self.source {
            return;
        }
        // Who is here has not left, whatever a server thinks that did not hear of us: we go on with it.
        if stand.avatar.is_none() && self.players.contains_key(&entity) && self.simulation.contains(entity) {
            let (tick, avatar) = (self.tick.unwrap_or_default(), self.avatars.get(entity).cloned());
            let epoch = self.next_epoch(tick, entity);
            return self.publish(EntityUpdate { entity, update: Update::Placement { epoch, tick, avatar } });
        }
        if self.simulation.remove(entity)
            && let Some(player) = self.players.remove(&entity)
        {
            self.departed.insert(entity, (player.run, now));
        }
        let age = self.tick.unwrap_or_default().saturating_sub(stand.tick);
        match &stand.avatar {
            Some(avatar) if age <= RETENTION_TICKS => {
                self.avatars.insert(entity, self.simulation.rules().extrapolate(avatar, age))
            }
            _ => self.avatars.remove(entity),
        }
    }

    /// Looks after objects whose server is gone, given those that are here. Of several servers one does, always the same.
    pub fn reclaim_orphans(&mut self, live: &BTreeSet<SourceId>) {
        let Some(tick) = self.tick else { return };
        self.refresh_gone_servers(tick, live);
        for entity in (0..self.ninja_count).map(ninja_entity) {
            let owner = self.entities.get(entity).and_then(current_owner);
            let is_free = owner.is_none_or(|owner| self.gone_servers.contains_key(&owner));
            if is_free && rendezvous_owner(entity, self.source, live) == self.source {
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
        let owners: BTreeSet<SourceId> = self.entities.iter().filter_map(|(_, being)| current_owner(being)).collect();
        self.gone_servers.retain(|source, _| owners.contains(source) && !live.contains(source));
        for source in owners.into_iter().filter(|source| *source != self.source && !live.contains(source)) {
            self.gone_servers.entry(source).or_insert(tick);
        }
    }

    /// Avatars of players who did not come back after their server was gone.
    fn orphans(&self, tick: u32) -> Vec<EntityId> {
        let is_orphan = |entity: EntityId, being: &EntityRecord| {
            let since = current_owner(being).and_then(|owner| self.gone_servers.get(&owner).copied());
            entity.index != NINJA_INDEX && since.is_some_and(|since| tick.saturating_sub(since) >= ORPHAN_TIMEOUT_TICKS)
        };
        self.entities.iter().filter(|(entity, being)| is_orphan(*entity, being)).map(|(entity, _)| entity).collect()
    }

    fn acquire_bot(&mut self, tick: u32, ninja: EntityId) {
        let seed = u64::from(ninja.site.0) << 32 | u64::from(self.source.0);
        let name = format!("ninja {}", ninja.site.0 + 1);
        self.acquire(tick, ninja, &name, Controller::Ninja(Box::new(Ninja::new(seed))));
    }

    /// Puts down who is there, the best first.
    fn refresh_scoreboard(&mut self, now: Instant) {
        if self.scoreboard_updated.is_some_and(|then| now - then < SCOREBOARD_INTERVAL) {
            return;
        }
        self.scoreboard_updated = Some(now);
        let there = self.entities.iter().filter(|(_, being)| current_owner(being).is_some());
        let table = there.map(|(entity, being)| (entity, being.name().to_owned(), self.replicated_score(entity)));
        self.scoreboard = table.collect();
        self.scoreboard.sort_by_key(|(entity, _, score)| (std::cmp::Reverse(score.hits), score.falls, *entity));
    }

    /// What players are to be shown now: nothing more until the next tick. `mirrors` is where a player finds the other servers.
    pub fn poll_player_messages<'a>(
        &mut self,
        now: Instant,
        mirrors: impl Fn(EntityId) -> &'a [String],
    ) -> Vec<(EntityId, Vec<u8>)> {
        let Some(tick) = self.tick.filter(|tick| self.last_sent_tick != Some(*tick)) else { return vec![] };
        self.last_sent_tick = Some(tick);
        self.refresh_scoreboard(now);
        let mut said = Vec::new();
        let mut wanted = Vec::new();
        for (entity, player) in &mut self.players {
            if player.take_directory_due(now) {
                said.push((
                    *entity,
                    next_directory(player, self.settings, mirrors(*entity), &self.scoreboard).to_bytes(),
                ));
            }
            if player.take_view_due(now) {
                wanted.push(*entity);
            }
        }
        said.extend(wanted.into_iter().filter_map(|entity| Some((entity, self.encode_view(now, tick, entity)?))));
        said
    }

    fn encode_view(&self, now: Instant, tick: u32, entity: EntityId) -> Option<Vec<u8>> {
        let (player, avatar) = (self.players.get(&entity)?, self.avatars.get(entity)?);
        let view = WorldView {
            echo: [player.newest_stamp.0, player.newest_stamp.1, now],
            tick,
            run: player.run,
            joined_tick: player.joined_tick,
            applied_change: player.applied_change(tick),
            own_entity: entity,
            score: self.replicated_score(entity),
            is_draining: self.is_draining,
            last_hit_by: player.last_hit_by,
            avatars: visible_avatars(&self.avatars, entity, avatar),
        };
        Some(view.to_bytes(self.rules()))
    }
}

/// Whose an object is that is in the world.
fn current_owner(being: &EntityRecord) -> Option<SourceId> {
    being.placement().filter(|stand| stand.avatar.is_some()).map(|stand| stand.ownership.owner)
}

/// A number that belongs to an object alone.
pub(crate) fn entity_number(entity: EntityId) -> u64 {
    u64::from(entity.site.0) << 8 | u64::from(entity.index)
}

/// Which of the servers looks after an object whose own is gone.
fn rendezvous_owner(entity: EntityId, me: SourceId, live: &BTreeSet<SourceId>) -> SourceId {
    let rank = |source: &SourceId| (xxh64(entity_number(entity), &source.0.to_le_bytes()), *source);
    live.iter().copied().chain([me]).max_by_key(rank).unwrap_or(me)
}

/// Who a player sees: itself, and those around it, the nearest first.
fn visible_avatars(field: &SpatialIndex, entity: EntityId, avatar: &Avatar) -> Vec<(EntityId, Avatar)> {
    let place = avatar.position;
    let mut near: Vec<(u64, EntityId)> = field
        .nearby(place, VIEW_RANGE_CELLS)
        .filter(|other| other.entity != entity)
        .map(|other| (place.distance_squared(other.position), other.entity))
        .collect();
    if near.len() > MAX_VISIBLE_AVATARS {
        near.select_nth_unstable(MAX_VISIBLE_AVATARS);
        near.truncate(MAX_VISIBLE_AVATARS);
    }
    near.sort_unstable();
    let others = near.into_iter().filter_map(|(_, other)| Some((other, field.get(other)?.clone())));
    [(entity, avatar.clone())].into_iter().chain(others).collect()
}

/// As many places as leave room for other things.
fn fitting_mirrors(mirrors: &[String]) -> Vec<String> {
    let mut room = MAX_MESSAGE_LEN / 2;
    let fits = |place: &&String| {
        let fits = place.len() < room;
        room -= if fits { place.len() + 1 } else { 0 };
        fits
    };
    mirrors.iter().take(MAX_MIRRORS).filter(fits).cloned().collect()
}

fn next_directory(
    player: &mut Player,
    terms: MazeSettings,
    mirrors: &[String],
    table: &[(EntityId, String, Score)],
) -> Directory {
    let from = if player.next_score_row < table.len() { player.next_score_row } else { 0 };
    let lines = table[from..].iter().take(ROWS_PER_DIRECTORY).cloned().collect::<Vec<_>>();
    let page = Directory { settings: terms, mirrors: fitting_mirrors(mirrors), score_rows: lines };
    player.next_score_row = from + page.fitting_rows();
    page
}
