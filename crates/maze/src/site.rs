//! One site of a maze: its own avatars, and the world that it shares with other sites.
//!
//! Pure, like the engine: `now` and datagrams go in, datagrams come out. The host program owns clock, network and
//! screen, and calls this module.
//!
//! The victim's site decides each hit, exactly once. It knows exactly where its avatar was in every tick. States carry
//! the shots of the last 200 ticks, so one state that arrives in this time is enough to learn of a shot. As soon as the
//! site knows a shot, it checks the ticks that have passed since the shot was fired, and then every new tick. It counts
//! the hits in a [`ScoreRecord`], which reaches all sites.
//!
//! Sites predict hits, as the paper proposes (section II.B). In every tick a site extrapolates its own avatars and the
//! known shots as far ahead as views lie behind. Where an avatar and a shot meet, the sent state carries a
//! [`PredictedFall`](crate::PredictedFall), and other sites display the fall in its tick even if the update with the
//! fall itself is late or lost. If the player evades the shot, the next state cancels the prediction at once, and the
//! avatar does not fall. Collisions between avatars are not predicted: each avatar stops in the tick before it would
//! touch another one, and its site sends that like any other change of course.

use coplay::peer_world::{
    EntityId, PeerWorld, PeerWorldConfig, PeerWorldConfigError, PeerWorldDestination, PeerWorldEvent, PeerWorldStats,
    PeerWorldTransmit, SiteRecord, UpdatePolicy, VisibleEntity, WorldRegion, WorldSiteId,
};
use coplay::time::{Instant, TimeDelta};

use crate::avatar::MAX_AVATARS;
use crate::projectiles::{HitCandidate, ProjectileTracker};
use crate::scores::{ScoreRecord, Scoreboard};
use crate::settings::MazeSettings;
use crate::trace::{TraceEntry, TraceEvent};
use crate::{Avatar, Controls, Maze, MazeRules, Ninja, Position, UNIT};

/// Largest number of missed ticks that a site simulates after a suspension. It skips the ticks before them.
const MAX_CATCH_UP_TICKS: u32 = 50;
/// Distance within which other avatars are obstacles, in units. An avatar that is farther away cannot be reached in one
/// tick.
const COLLISION_RANGE: u32 = 256;
/// Interval at which a trace records the measured clock offsets of the peers, in ticks.
const OFFSET_TRACE_INTERVAL: u32 = 50;
/// Largest number of events that wait to be polled. Further ones are dropped.
const MAX_PENDING_EVENTS: usize = 256;

/// Site of a maze without a server: its own avatars, the shared world, known shots and scores.
pub struct MazeSite {
    world: PeerWorld<MazeRules>,
    avatars: Vec<OwnedAvatar>,
    /// Last tick in which our avatars were simulated; `None` before the first, which needs the world time.
    tick: Option<u32>,
    projectiles: ProjectileTracker,
    own_scores: ScoreRecord,
    /// Scores counted before this site restarted, as far as other sites remember them.
    previous_scores: ScoreRecord,
    /// Sum of all score records at the revision `scores_revision` of the world's records.
    scores: Scoreboard,
    scores_revision: u64,
    /// Avatars of the newest view, our own included.
    view: Vec<VisibleEntity<Avatar>>,
    view_tick: u32,
    trace: Option<Vec<TraceEntry>>,
    events: Vec<MazeEvent>,
}

/// Source of an avatar's controls.
enum Controller {
    Player(Controls),
    Ninja(Box<Ninja>),
}

/// Avatar that this site owns.
struct OwnedAvatar {
    avatar: Avatar,
    controller: Controller,
    spawn_seed: u64,
}

/// Event of a site, for the user interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MazeEvent {
    /// A site's first datagram arrived, or its first one after it left or timed out.
    SiteJoined(WorldSiteId),
    /// A joined site has left, has timed out or was removed with [`MazeSite::remove_peer`].
    SiteLeft(WorldSiteId),
    /// A shot hit one of our avatars, which is dead now.
    AvatarHit {
        /// Index of the hit avatar among ours.
        index: u8,
        /// Avatar that fired the shot.
        shooter: EntityId,
    },
}

impl MazeSite {
    /// Creates a site with `ninjas` bots, and with a player if `player` is a name. The player has avatar 0. If
    /// `founder` is set, the world time starts on this site's clock. Otherwise the site learns it from its peers; if no
    /// peer knows it after 5 s, the present site with the lowest id starts it. Fails if bucket, playout delay or update
    /// policy are out of range.
    pub fn new(
        now: Instant,
        site: WorldSiteId,
        founder: bool,
        settings: &MazeSettings,
        update_policy: UpdatePolicy,
        (player, ninjas): (Option<&str>, u8),
    ) -> Result<Self, PeerWorldConfigError> {
        let rules = MazeRules::new(Maze::new(settings.seed, settings.cells_per_side));
        let (bucket_ticks, playout_delay) = (u32::from(settings.bucket_ticks), u32::from(settings.playout_delay_ticks));
        let world = PeerWorld::new(
            now,
            PeerWorldConfig { bucket_ticks, playout_delay, update_policy, ..PeerWorldConfig::new(site, founder) },
            rules,
        )?;
        let mut game = Self {
            world,
            avatars: Vec::new(),
            tick: None,
            projectiles: ProjectileTracker::default(),
            own_scores: ScoreRecord::new(player.unwrap_or_default()),
            previous_scores: ScoreRecord::default(),
            scores: Scoreboard::default(),
            scores_revision: 0,
            view: Vec::new(),
            view_tick: 0,
            trace: None,
            events: Vec::new(),
        };
        if player.is_some() {
            game.add_avatar(Controller::Player(Controls::default()));
        }
        for number in 0..ninjas {
            let seed = u64::from(site.0) << 8 | u64::from(number);
            game.add_avatar(Controller::Ninja(Box::new(Ninja::new(seed))));
        }
        game.publish_scores();
        game.refresh_scores();
        Ok(game)
    }

    /// Sets the name of the site, which is also the name of its avatar 0, even if a ninja plays that avatar.
    pub fn set_name(&mut self, name: &str) {
        self.own_scores.set_name(name);
        self.publish_scores();
        self.refresh_scores();
    }

    fn add_avatar(&mut self, controller: Controller) {
        if self.avatars.len() < MAX_AVATARS {
            let spawn_seed = u64::from(self.site().0) << 8 | self.avatars.len() as u64;
            let others: Vec<Position> = self.avatars.iter().map(|own| own.avatar.position).collect();
            let avatar = self.rules().spawn_avatar(&others, spawn_seed);
            self.avatars.push(OwnedAvatar { avatar, controller, spawn_seed });
        }
    }

    /// Returns the id of this site in the world, which is part of the ids of its avatars.
    pub fn site(&self) -> WorldSiteId {
        self.world.config().site
    }

    /// Returns the rules of the game, with the maze.
    pub fn rules(&self) -> &MazeRules {
        self.world.dead_reckoning()
    }

    /// Returns the shared world, with its peers, states and score records.
    pub fn world(&self) -> &PeerWorld<MazeRules> {
        &self.world
    }

    /// Starts a trace of the updates sent and received, the views and the measured clock offsets. Discards an earlier
    /// trace.
    pub fn start_trace(&mut self, now: Instant) {
        let line = TraceEntry { at: now.as_nanos(), event: TraceEvent::Site(self.site()) };
        self.trace = Some(vec![line]);
    }

    /// Takes the trace entries recorded since the last call; none if no trace was started.
    pub fn take_trace(&mut self) -> Vec<TraceEntry> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn record_trace(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &mut self.trace {
            trace.push(TraceEntry { at: now.as_nanos(), event: event() });
        }
    }

    /// Sets the buttons that the player of avatar 0 holds from now on. Has no effect if a ninja plays avatar 0.
    pub fn set_controls(&mut self, controls: Controls) {
        if let Some(OwnedAvatar { controller: Controller::Player(pressed), .. }) = self.avatars.first_mut() {
            *pressed = controls;
        }
    }

    /// Adds a peer to which datagrams can be sent.
    pub fn add_peer(&mut self, now: Instant, site: WorldSiteId) {
        self.world.add_peer(now, site);
    }

    /// Removes a peer and, at once, its avatars.
    pub fn remove_peer(&mut self, site: WorldSiteId) {
        self.world.remove_peer(site);
    }

    /// Processes a datagram from a peer. The caller must have authenticated the peer's id `from`.
    pub fn handle_datagram(&mut self, now: Instant, from: WorldSiteId, bytes: &[u8]) {
        self.world.handle_datagram(now, from, bytes);
        if self.trace.is_some() {
            self.trace_received(now, from, bytes);
        }
    }

    fn trace_received(&mut self, now: Instant, from: WorldSiteId, bytes: &[u8]) {
        let Some(present) = self.world.tick(now) else { return };
        for item in coplay::peer_world::message::PeerWorldItems::new(bytes).into_iter().flatten().flatten() {
            if let coplay::peer_world::message::PeerWorldItem::Update(update) = item {
                let away = update.tick.wrapping_sub(present as u16) as i16;
                let tick = present.saturating_add_signed(away.into());
                let entity = EntityId { site: from, index: update.entity_index };
                self.record_trace(now, || TraceEvent::Received { entity, sequence: update.sequence, tick });
            }
        }
    }

    /// Writes the next datagram to be sent into `buf` and returns its length and destination; `None` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<PeerWorldTransmit> {
        self.world.poll_transmit(now, buf)
    }

    /// Returns the peers that must each get a copy of a datagram with this destination.
    pub fn receivers(&self, to: PeerWorldDestination) -> Vec<WorldSiteId> {
        match to {
            PeerWorldDestination::All => self.world.peers().collect(),
            PeerWorldDestination::Near(region) => self.world.interested_peers(region).collect(),
            PeerWorldDestination::One(site) => vec![site],
        }
    }

    /// Returns the regions of which this site wants updates: those of its avatars and the neighbouring regions.
    pub fn wanted_regions(&self) -> Vec<WorldRegion> {
        self.world.interest_regions()
    }

    /// Advances to `now`: simulates the due ticks of our avatars, decides hits, and refreshes the view when it is due.
    /// Returns whether the view was refreshed.
    pub fn advance(&mut self, now: Instant) -> bool {
        self.world.advance(now);
        self.handle_world_events();
        if let Some(present) = self.world.tick(now) {
            let last = self.tick.unwrap_or(present.saturating_sub(1));
            for tick in last.max(present.saturating_sub(MAX_CATCH_UP_TICKS)) + 1..=present {
                self.step(now, tick);
                self.tick = Some(tick);
            }
        }
        self.refresh_scores();
        self.refresh_view(now)
    }

    /// Returns the latest time for the next call of [`advance`](Self::advance).
    pub fn poll_timeout(&mut self, now: Instant) -> Instant {
        self.world.poll_timeout(now)
    }

    fn handle_world_events(&mut self) {
        while let Some(event) = self.world.poll_event() {
            match event {
                PeerWorldEvent::PeerJoined(site) => self.push_event(MazeEvent::SiteJoined(site)),
                PeerWorldEvent::PeerLeft(site) => self.push_event(MazeEvent::SiteLeft(site)),
                PeerWorldEvent::OwnRecordRecovered => self.restore_scores(),
                PeerWorldEvent::RecordChanged(_)
                | PeerWorldEvent::EntityAppeared(_)
                | PeerWorldEvent::EntityVanished(_) => {}
            }
        }
    }

    fn push_event(&mut self, event: MazeEvent) {
        if self.events.len() < MAX_PENDING_EVENTS {
            self.events.push(event);
        }
    }

    /// Adopts the scores that were counted before this site restarted, as remembered by other sites, and publishes the
    /// sum.
    fn restore_scores(&mut self) {
        let me = self.site();
        let record = self
            .world
            .records()
            .find(|(site, _)| *site == me)
            .and_then(|(_, record)| ScoreRecord::from_bytes(&record.bytes));
        if let Some(previous) = record {
            self.previous_scores.replace_if_larger(previous);
        }
        self.publish_scores();
    }

    fn publish_scores(&mut self) {
        self.world.publish_record(&self.own_scores.combined_with(&self.previous_scores).to_bytes());
    }

    /// Simulates one tick of all our avatars and publishes their states.
    fn step(&mut self, now: Instant, tick: u32) {
        let others: Vec<(EntityId, Avatar)> = self.world.extrapolated_at(tick).collect();
        for index in 0..self.avatars.len() {
            self.move_avatar(tick, index, &others);
        }
        self.resolve_hits(tick);
        self.predict_falls(tick);
        for index in 0..self.avatars.len() {
            let avatar = self.avatars[index].avatar.clone();
            let (entity, position) = (self.own_entity(index), to_units(avatar.position));
            if self.world.publish_entity(tick, index as u8, avatar) {
                self.record_trace(now, || TraceEvent::Sent { entity, tick, position });
            }
        }
    }

    fn own_entity(&self, index: usize) -> EntityId {
        EntityId { site: self.site(), index: index as u8 }
    }

    fn move_avatar(&mut self, tick: u32, index: usize, others: &[(EntityId, Avatar)]) {
        let me = self.own_entity(index);
        let ours = self.avatars.iter().enumerate().map(|(at, own)| (self.own_entity(at), own.avatar.clone()));
        let others: Vec<(EntityId, Avatar)> =
            ours.filter(|(entity, _)| *entity != me).chain(others.iter().cloned()).collect();
        let own = &mut self.avatars[index];
        let rules = self.world.dead_reckoning();
        let controls = match &mut own.controller {
            Controller::Player(controls) => *controls,
            Controller::Ninja(ninja) => ninja.choose_controls(tick, rules, &own.avatar, &others),
        };
        let position = own.avatar.position;
        let obstacles: Vec<Position> = others
            .iter()
            .filter(|(_, other)| {
                other.is_alive() && (!own.avatar.is_alive() || other.position.distance(position) < COLLISION_RANGE)
            })
            .map(|(_, other)| other.position)
            .collect();
        rules.step(tick, &mut own.avatar, controls, &obstacles, own.spawn_seed);
    }

    /// Tracks all known shots, and kills those of our avatars that a shot has hit by `tick`.
    fn resolve_hits(&mut self, tick: u32) {
        self.projectiles.drop_before(tick);
        let site = self.site();
        let entity = |index: usize| EntityId { site, index: index as u8 };
        let ours = self.avatars.iter().enumerate().map(|(index, own)| (entity(index), &own.avatar));
        for (shooter, avatar) in ours.chain(self.world.newest_states().map(|(entity, _, avatar)| (entity, avatar))) {
            self.projectiles.track(tick, shooter, &avatar.shots);
        }
        let (world, avatars) = (&self.world, &self.avatars);
        let targets =
            avatars.iter().enumerate().map(|(index, own)| HitCandidate { entity: entity(index), avatar: &own.avatar });
        let hits = self.projectiles.detect_hits(world.dead_reckoning(), tick, targets, |target, at| {
            let past = world.own_state_at(target.entity.index, at)?;
            (past.spawn_count == target.avatar.spawn_count && past.is_alive()).then_some(past.position)
        });
        for (victim, shooter) in hits {
            self.on_avatar_hit(tick, usize::from(victim.index), shooter);
        }
    }

    /// Predicts for each of our avatars whether a known shot will hit it before other sites display the present tick.
    fn predict_falls(&mut self, tick: u32) {
        let (site, horizon) = (self.site(), self.view_delay_ticks().min(u8::MAX.into()) as u8);
        let rules = self.world.dead_reckoning();
        for (index, own) in self.avatars.iter_mut().enumerate() {
            let target = HitCandidate { entity: EntityId { site, index: index as u8 }, avatar: &own.avatar };
            own.avatar.predicted_fall = self.projectiles.predict_fall(rules, tick, horizon, target);
        }
    }

    /// Kills an avatar of ours and publishes the hit. A dead avatar cannot be hit again.
    fn on_avatar_hit(&mut self, tick: u32, index: usize, shooter: EntityId) {
        let rules = self.world.dead_reckoning();
        let avatar = &mut self.avatars[index].avatar;
        if !avatar.is_alive() {
            return;
        }
        rules.kill(tick, avatar);
        self.own_scores.record_hit(index as u8, shooter);
        self.push_event(MazeEvent::AvatarHit { index: index as u8, shooter });
        self.publish_scores();
    }

    fn refresh_view(&mut self, now: Instant) -> bool {
        let Some(tick) = self.world.poll_view(now) else { return false };
        self.view.clear();
        self.view.extend_from_slice(self.world.visible_at(tick));
        self.view_tick = tick;
        if self.trace.is_some() {
            self.trace_view(now, tick);
        }
        true
    }

    fn trace_view(&mut self, now: Instant, tick: u32) {
        for shown in std::mem::take(&mut self.view) {
            let (entity, position, is_alive) = (shown.entity, to_units(shown.state.position), shown.state.is_alive());
            self.record_trace(now, || TraceEvent::Displayed { entity, tick, position, is_alive });
            self.view.push(shown);
        }
        let bucket = self.world.config().bucket_ticks;
        if tick / OFFSET_TRACE_INTERVAL != tick.saturating_sub(bucket) / OFFSET_TRACE_INTERVAL {
            for peer in self.world.peers().collect::<Vec<_>>() {
                if let Some(offset) = self.world.peer_stats(now, peer).and_then(|stats| stats.clock_offset) {
                    self.record_trace(now, || TraceEvent::ClockOffset { peer, offset_ns: offset.as_nanos() });
                }
            }
        }
    }

    /// Returns the tick of the newest view and all avatars in it, our own included.
    pub fn view(&self) -> (u32, &[VisibleEntity<Avatar>]) {
        (self.view_tick, &self.view)
    }

    /// Returns the remote avatars at `tick`, interpolated or extrapolated, for pictures drawn between two views. Omits
    /// avatars without updates for longer than the visibility timeout of the peer world.
    pub fn others_at(&self, tick: u32) -> impl Iterator<Item = (EntityId, Avatar)> {
        self.world.extrapolated_at(tick)
    }

    /// Returns the state of our avatar `index` in the last simulated tick; `None` if there is no such avatar.
    pub fn avatar(&self, index: usize) -> Option<&Avatar> {
        self.avatars.get(index).map(|own| &own.avatar)
    }

    /// Returns the number of avatars that this site owns.
    pub fn avatars(&self) -> usize {
        self.avatars.len()
    }

    /// Returns the last tick in which our avatars were simulated; `None` before the first, which needs the world time.
    pub fn tick(&self) -> Option<u32> {
        self.tick
    }

    /// Returns the largest number of ticks by which the view lies behind the present: playout delay plus bucket.
    pub fn view_delay_ticks(&self) -> u32 {
        self.world.config().playout_delay + self.world.config().bucket_ticks
    }

    /// Returns the scoreboard, which [`advance`](Self::advance) keeps up to date.
    pub fn scores(&self) -> &Scoreboard {
        &self.scores
    }

    /// Recomputes the scoreboard if the record revision of the world has changed since the last call.
    /// [`PeerWorldEvent::RecordChanged`] would not suffice, because events that are not polled in time are dropped.
    fn refresh_scores(&mut self) {
        let revision = self.world.record_revision();
        if std::mem::replace(&mut self.scores_revision, revision) != revision {
            let decoded =
                |(site, record): (WorldSiteId, &SiteRecord)| Some((site, ScoreRecord::from_bytes(&record.bytes)?));
            self.scores = Scoreboard::from_records(self.world.records().filter_map(decoded));
        }
    }

    /// Records the score of every ranked avatar in the trace.
    pub fn trace_scores(&mut self, now: Instant) {
        self.refresh_scores();
        for (entity, score) in self.scores.ranking() {
            self.record_trace(now, || TraceEvent::Score { entity, hits: score.hits, falls: score.falls });
        }
    }

    /// Removes and returns the oldest event for the user interface.
    pub fn poll_event(&mut self) -> Option<MazeEvent> {
        if self.events.is_empty() { None } else { Some(self.events.remove(0)) }
    }

    /// Returns the approximate heap size in bytes, without the trace. The size is bounded whatever datagrams arrive.
    pub fn memory(&self) -> usize {
        let scores = self.own_scores.memory() + self.previous_scores.memory() + self.scores.memory();
        let lists =
            self.view.capacity() * size_of::<VisibleEntity<Avatar>>() + self.events.capacity() * size_of::<MazeEvent>();
        self.world.memory() + self.projectiles.memory() + scores + lists
    }

    /// Returns the counters and rates of the shared world.
    pub fn stats(&self) -> PeerWorldStats {
        self.world.stats()
    }

    /// Returns by how much the world's time is ahead of our clock; `None` until the world time is known.
    pub fn world_clock_offset(&self) -> Option<TimeDelta> {
        self.world.world_time_offset()
    }

    /// Releases all buttons of all our avatars; ninjas stop playing.
    pub fn release_controls(&mut self) {
        self.avatars.iter_mut().for_each(|own| own.controller = Controller::Player(Controls::default()));
    }

    /// Announces with the next datagrams that this site leaves.
    pub fn leave(&mut self) {
        self.world.leave();
    }
}

/// Converts a position to (x, y) in units.
pub fn to_units(position: Position) -> (f64, f64) {
    (f64::from(position.x) / f64::from(UNIT), f64::from(position.y) / f64::from(UNIT))
}
