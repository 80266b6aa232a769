//! One site of a maze: its avatars, and the world that it shares with the others.
//!
//! Pure, like the engine: `now` and datagrams go in, datagrams come out, and whoever owns clock, network and screen calls.
//!
//! A hit is decided by the site whose avatar is hit, and by no other: it knows exactly where its avatar was in every tick, and shots ride in
//! states, so it hears of them even if packets are lost. As soon as a shot is known it is followed through the ticks that have passed, and
//! from then on tick by tick. What was decided is counted in a [`Tally`], which gets to everybody.
//!
//! Hits are seen coming, as the paper proposes (section II.B). In every tick a site reckons its own avatars, and the shots that it knows of,
//! as far ahead as views lie behind. Where they meet, the state that is told says so ([`Doom`](crate::PredictedFall)), and others show the fall in its
//! tick even if the update that tells of it is late or lost. If anybody does something else before, the next state says otherwise, at
//! once, and nobody fell. Avatars that run into each other are not seen coming: each stops in the tick before they would touch, which is
//! told like any other change of course.

use coplay::peer_world::{
    EntityId, PeerWorld, PeerWorldConfig, PeerWorldConfigError, PeerWorldDestination, PeerWorldEvent, PeerWorldStats,
    PeerWorldTransmit, SiteRecord, UpdatePolicy, VisibleEntity, WorldRegion, WorldSiteId,
};
use coplay::time::{Instant, TimeDelta};

use crate::projectiles::{HitTarget, ProjectileTracker};
use crate::scores::{ScoreRecord, Scoreboard};
use crate::settings::MazeSettings;
use crate::trace::{TraceEntry, TraceEvent};
use crate::{Avatar, Controls, Maze, Ninja, Position, Rules, UNIT};

/// Who slept catches up with at most so many ticks; it missed the rest.
const MAX_CATCH_UP_TICKS: u32 = 50;
/// Who is further away than this cannot be run into, in units.
const COLLISION_RANGE: u32 = 256;
/// How often offsets of clocks are written into a trace, in ticks.
const OFFSET_TRACE_INTERVAL: u32 = 50;
/// The most that nobody asked for yet.
const MAX_PENDING_EVENTS: usize = 256;
/// The most avatars of a site.
pub const MAX_AVATARS: usize = 64;

/// One site of a maze.
pub struct MazeSite {
    world: PeerWorld<Rules>,
    avatars: Vec<OwnedAvatar>,
    /// The last tick that our avatars made.
    tick: Option<u32>,
    projectiles: ProjectileTracker,
    own_scores: ScoreRecord,
    /// What was counted before we were started anew, as far as others remember it.
    previous_scores: ScoreRecord,
    /// What all records say together, as of this revision of them.
    scores: Scoreboard,
    scores_revision: u64,
    /// The newest view of its bucket.
    view: Vec<VisibleEntity<Avatar>>,
    view_tick: u32,
    trace: Option<Vec<TraceEntry>>,
    events: Vec<MazeEvent>,
}

/// Who moves an avatar.
enum Controller {
    Player(Controls),
    Ninja(Box<Ninja>),
}

/// An avatar of ours.
struct OwnedAvatar {
    avatar: Avatar,
    controller: Controller,
    spawn_seed: u64,
}

/// Something that a person wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MazeEvent {
    /// A site came.
    SiteJoined(WorldSiteId),
    /// A site left.
    SiteLeft(WorldSiteId),
    /// One of ours was hit.
    AvatarHit {
        /// Which of ours.
        index: u8,
        /// By whom.
        shooter: EntityId,
    },
}

impl MazeSite {
    /// A site with so many ninjas, and with a person if it has a name. The person is its avatar 0.
    pub fn new(
        now: Instant,
        site: WorldSiteId,
        founder: bool,
        terms: &MazeSettings,
        sending: UpdatePolicy,
        (person, ninjas): (Option<&str>, u8),
    ) -> Result<Self, PeerWorldConfigError> {
        let rules = Rules::new(Maze::new(terms.seed, terms.cells_per_side));
        let (bucket, delay) = (u32::from(terms.bucket_ticks), u32::from(terms.playout_delay_ticks));
        let world = PeerWorld::new(
            now,
            PeerWorldConfig {
                bucket_ticks: bucket,
                playout_delay: delay,
                update_policy: sending,
                ..PeerWorldConfig::new(site, founder)
            },
            rules,
        )?;
        let mut game = Self {
            world,
            avatars: Vec::new(),
            tick: None,
            projectiles: ProjectileTracker::default(),
            own_scores: ScoreRecord::new(person.unwrap_or_default()),
            previous_scores: ScoreRecord::default(),
            scores: Scoreboard::default(),
            scores_revision: 0,
            view: Vec::new(),
            view_tick: 0,
            trace: None,
            events: Vec::new(),
        };
        if person.is_some() {
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

    /// Calls the site something, also where no person plays: its first avatar goes by that name.
    pub fn set_name(&mut self, name: &str) {
        self.own_scores.set_name(name);
        self.publish_scores();
        self.refresh_scores();
    }

    fn add_avatar(&mut self, mind: Controller) {
        if self.avatars.len() < MAX_AVATARS {
            let luck = u64::from(self.site().0) << 8 | self.avatars.len() as u64;
            let others: Vec<Position> = self.avatars.iter().map(|own| own.avatar.position).collect();
            let avatar = self.rules().spawn_avatar(&others, luck);
            self.avatars.push(OwnedAvatar { avatar, controller: mind, spawn_seed: luck });
        }
    }

    /// Who we are.
    pub fn site(&self) -> WorldSiteId {
        self.world.config().site
    }

    /// The rules, with their maze.
    pub fn rules(&self) -> &Rules {
        self.world.dead_reckoning()
    }

    /// The shared world, for its numbers.
    pub fn world(&self) -> &PeerWorld<Rules> {
        &self.world
    }

    /// Writes down from now on what is sent, heard and seen.
    pub fn start_trace(&mut self, now: Instant) {
        let line = TraceEntry { at: now.as_nanos(), event: TraceEvent::Site(self.site()) };
        self.trace = Some(vec![line]);
    }

    /// What was written down since this was last asked.
    pub fn take_trace(&mut self) -> Vec<TraceEntry> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn record_trace(&mut self, now: Instant, what: impl FnOnce() -> TraceEvent) {
        if let Some(trace) = &mut self.trace {
            trace.push(TraceEntry { at: now.as_nanos(), event: what() });
        }
    }

    /// What the person presses from now on.
    pub fn set_controls(&mut self, controls: Controls) {
        if let Some(OwnedAvatar { controller: Controller::Player(pressed), .. }) = self.avatars.first_mut() {
            *pressed = controls;
        }
    }

    /// There is a way to a site.
    pub fn add_peer(&mut self, now: Instant, site: WorldSiteId) {
        self.world.add_peer(now, site);
    }

    /// A site is no more.
    pub fn remove_peer(&mut self, site: WorldSiteId) {
        self.world.remove_peer(site);
    }

    /// Takes in a datagram from a site.
    pub fn handle_datagram(&mut self, now: Instant, from: WorldSiteId, bytes: &[u8]) {
        self.world.handle_datagram(now, from, bytes);
        if self.trace.is_some() {
            self.trace_received(now, from, bytes);
        }
    }

    fn trace_received(&mut self, now: Instant, from: WorldSiteId, bytes: &[u8]) {
        let Some(present) = self.world.tick(now) else { return };
        for item in coplay::wire::PeerWorldItems::new(bytes).into_iter().flatten().flatten() {
            if let coplay::wire::PeerWorldItem::Update(update) = item {
                let away = update.tick.wrapping_sub(present as u16) as i16;
                let tick = present.saturating_add_signed(away.into());
                let entity = EntityId { site: from, index: update.entity_index };
                self.record_trace(now, || TraceEvent::Received { entity, sequence: update.sequence, tick });
            }
        }
    }

    /// The next datagram to be sent.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<PeerWorldTransmit> {
        self.world.poll_transmit(now, buf)
    }

    /// The sites to which a datagram goes, where each needs a copy of its own.
    pub fn receivers(&self, to: PeerWorldDestination) -> Vec<WorldSiteId> {
        match to {
            PeerWorldDestination::All => self.world.peers().collect(),
            PeerWorldDestination::Near(region) => self.world.interested_peers(region).collect(),
            PeerWorldDestination::One(site) => vec![site],
        }
    }

    /// The regions of which we want to hear.
    pub fn wanted_regions(&self) -> Vec<WorldRegion> {
        self.world.interest_regions()
    }

    /// Plays up to now: all our avatars make their ticks, hits are decided, and the view is renewed when it is due. Whether it was.
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

    /// When [`advance`](Self::advance) should be called again.
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

    fn push_event(&mut self, news: MazeEvent) {
        if self.events.len() < MAX_PENDING_EVENTS {
            self.events.push(news);
        }
    }

    /// Others know what we counted before we were started anew.
    fn restore_scores(&mut self) {
        let me = self.site();
        let record = self
            .world
            .records()
            .find(|(site, _)| *site == me)
            .and_then(|(_, record)| ScoreRecord::from_bytes(&record.bytes));
        if let Some(before) = record {
            self.previous_scores.replace_if_larger(before);
        }
        self.publish_scores();
    }

    fn publish_scores(&mut self) {
        self.world.publish_record(&self.own_scores.combined_with(&self.previous_scores).to_bytes());
    }

    /// One tick of all our avatars.
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
        let at = own.avatar.position;
        let in_the_way: Vec<Position> = others
            .iter()
            .filter(|(_, other)| {
                other.is_alive() && (!own.avatar.is_alive() || other.position.distance(at) < COLLISION_RANGE)
            })
            .map(|(_, other)| other.position)
            .collect();
        rules.step(tick, &mut own.avatar, controls, &in_the_way, own.spawn_seed);
    }

    /// Looks whether anything that is known to fly hits one of ours.
    fn resolve_hits(&mut self, tick: u32) {
        self.projectiles.drop_before(tick);
        let site = self.site();
        let entity = |index: usize| EntityId { site, index: index as u8 };
        let ours = self.avatars.iter().enumerate().map(|(index, own)| (entity(index), &own.avatar));
        for (by, avatar) in ours.chain(self.world.newest_states().map(|(entity, _, avatar)| (entity, avatar))) {
            self.projectiles.track(tick, by, avatar);
        }
        let (world, avatars) = (&self.world, &self.avatars);
        let targets =
            avatars.iter().enumerate().map(|(index, own)| HitTarget { entity: entity(index), avatar: &own.avatar });
        let hits = self.projectiles.detect_hits(world.dead_reckoning(), tick, targets, |target, at| {
            let then = world.own_state_at(target.entity.index, at)?;
            (then.spawn_count == target.avatar.spawn_count && then.is_alive()).then_some(then.position)
        });
        for (whom, by) in hits {
            self.on_avatar_hit(tick, usize::from(whom.index), by);
        }
    }

    /// Looks ahead whether anything that is known to fly will hit one of ours before others see what is now.
    fn predict_falls(&mut self, tick: u32) {
        let (site, behind) = (self.site(), self.view_delay_ticks().min(u8::MAX.into()) as u8);
        let rules = self.world.dead_reckoning();
        for (index, own) in self.avatars.iter_mut().enumerate() {
            let target = HitTarget { entity: EntityId { site, index: index as u8 }, avatar: &own.avatar };
            own.avatar.predicted_fall = self.projectiles.predict_fall(rules, tick, behind, target);
        }
    }

    /// It was hit: once, and everybody will know.
    fn on_avatar_hit(&mut self, tick: u32, index: usize, by: EntityId) {
        let rules = self.world.dead_reckoning();
        let avatar = &mut self.avatars[index].avatar;
        if !avatar.is_alive() {
            return;
        }
        rules.kill(tick, avatar);
        self.own_scores.record_hit(index as u8, by);
        self.push_event(MazeEvent::AvatarHit { index: index as u8, shooter: by });
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
            let (entity, position, alive) = (shown.entity, to_units(shown.state.position), shown.state.is_alive());
            self.record_trace(now, || TraceEvent::Displayed { entity, tick, position, is_alive: alive });
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

    /// Everybody as the newest bucket shows them, our own as well.
    pub fn view(&self) -> (u32, &[VisibleEntity<Avatar>]) {
        (self.view_tick, &self.view)
    }

    /// Everybody else at any tick that is past by now: for pictures between two buckets.
    pub fn others_at(&self, tick: u32) -> impl Iterator<Item = (EntityId, Avatar)> {
        self.world.extrapolated_at(tick)
    }

    /// One of our avatars as it is now.
    pub fn avatar(&self, index: usize) -> Option<&Avatar> {
        self.avatars.get(index).map(|own| &own.avatar)
    }

    /// How many avatars we have.
    pub fn avatars(&self) -> usize {
        self.avatars.len()
    }

    /// The tick that our avatars made last.
    pub fn tick(&self) -> Option<u32> {
        self.tick
    }

    /// How many ticks what is shown lies behind.
    pub fn view_delay_ticks(&self) -> u32 {
        self.world.config().playout_delay + self.world.config().bucket_ticks
    }

    /// Who hit whom, as far as we knew when this was last [advanced](Self::advance).
    pub fn scores(&self) -> &Scoreboard {
        &self.scores
    }

    /// Adds up the score, if anything was put down since. Not by [`Event::Changed`]: events that nobody asks for go.
    fn refresh_scores(&mut self) {
        let revision = self.world.record_revision();
        if std::mem::replace(&mut self.scores_revision, revision) != revision {
            let tally =
                |(site, record): (WorldSiteId, &SiteRecord)| Some((site, ScoreRecord::from_bytes(&record.bytes)?));
            self.scores = Scoreboard::from_records(self.world.records().filter_map(tally));
        }
    }

    /// Writes the score into the trace.
    pub fn trace_scores(&mut self, now: Instant) {
        self.refresh_scores();
        for (entity, score) in self.scores.ranking() {
            self.record_trace(now, || TraceEvent::Score { entity, hits: score.hits, falls: score.falls });
        }
    }

    /// Something to be told to a person.
    pub fn poll_event(&mut self) -> Option<MazeEvent> {
        if self.events.is_empty() { None } else { Some(self.events.remove(0)) }
    }

    /// Bytes on the heap, roughly, but for the trace: it is bounded, whatever arrives.
    pub fn memory(&self) -> usize {
        let tallies = self.own_scores.memory() + self.previous_scores.memory() + self.scores.memory();
        let lists =
            self.view.capacity() * size_of::<VisibleEntity<Avatar>>() + self.events.capacity() * size_of::<MazeEvent>();
        self.world.memory() + self.projectiles.memory() + tallies + lists
    }

    /// Numbers of the shared world.
    pub fn stats(&self) -> PeerWorldStats {
        self.world.stats()
    }

    /// By how much the world's time is ahead of our clock.
    pub fn world_clock_offset(&self) -> Option<TimeDelta> {
        self.world.world_time_offset()
    }

    /// Nobody presses anything any more.
    pub fn release_controls(&mut self) {
        self.avatars.iter_mut().for_each(|own| own.controller = Controller::Player(Controls::default()));
    }

    /// Says goodbye with the next datagrams.
    pub fn leave(&mut self) {
        self.world.leave();
    }
}

/// A place in units.
pub fn to_units(position: Position) -> (f64, f64) {
    (f64::from(position.x) / f64::from(UNIT), f64::from(position.y) / f64::from(UNIT))
}
