//! Worlds without a server: every site says where its own entities are, and computes its own view of all of them.
//!
//! After Gautier, Diot and Kurose, *End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on the Internet*
//! (MiMaze). Time is cut into *buckets*. What all sites issue in the same bucket is seen together, by everybody a fixed *delay* later, so that
//! it has come from everywhere by then. Where nothing came, the entity is reckoned: between two states that were told, or ahead of
//! the newest. What comes late goes to its own past bucket and helps to reckon from there. Who is silent for too long is not shown.
//!
//! Then what the paper leaves open. An entity reckons itself as others do, and is silent while they are right ([`SendPolicy::tolerance`]); how
//! often it speaks follows what receivers report ([`SendPolicy::adapt`]); only those are told who are near enough to see it ([`StateRegion`]);
//! and what must be agreed on in the end, like a score, is in [records](TestNetwork::post) that get to everybody.
//!
//! The host program owns clock, network and game, and calls [`TestNetwork::handle_datagram`] and, at least once in a tick,
//! [`TestNetwork::advance`], [`TestNetwork::publish_entity`] for each of its entities, [`TestNetwork::poll_transmit`] and [`TestNetwork::poll_view`].

mod config;
mod dead_reckoning;
mod gossip;
mod local_entity;
mod peer;
mod receive;
mod remote_entity;
mod send;
mod stats;
#[cfg(test)]
mod test_game;
#[cfg(test)]
mod tests;
mod update_rate;
mod world_time;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use config::{PeerWorldConfig, PeerWorldConfigError, UpdatePolicy};
pub use dead_reckoning::{DeadReckoning, EntityId, INFINITE_DISTANCE, MAX_STATE_SIZE, WorldRegion, WorldSiteId};
pub use gossip::{MAX_RECORD_SIZE, SiteRecord};
pub use remote_entity::Provenance;
pub use send::{PeerWorldDestination, PeerWorldTransmit};
pub use stats::{PeerWorldStats, WorldPeerStats};

use crate::time::{Instant, TimeDelta};
use gossip::GossipStore;
use local_entity::{LocalEntity, SendConditions, SendDecision};
use peer::WorldPeer;
use remote_entity::RemoteEntity;
use send::PeerWorldControl;
use update_rate::UpdateRate;
use world_time::WorldTime;

/// The most sites and entities that we know of at a time.
const MAX_PEERS: usize = 1_024;
const MAX_ENTITIES_PER_SITE: usize = 64;
const MAX_ENTITIES: usize = 4_096;
/// Who is silent for so long is forgotten, and who said goodbye.
const PEER_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// A site whose time is followed, or that alone tells of its record, must have been heard so lately.
const TRUST_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Who does not get to know the world's time for so long may have come to those who do not know it either.
const WORLD_TIME_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 256;
/// All others are looked at so often.
const PEER_SCAN_INTERVAL: TimeDelta = TimeDelta::from_millis(30);
/// What need not be looked at every time is looked at so often.
const GC_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

/// A world as one site sees it.
#[derive(Debug)]
pub struct PeerWorld<R: DeadReckoning> {
    config: PeerWorldConfig,
    dead_reckoning: R,
    started_at: Instant,
    now: Instant,
    /// When to look at all others again: what their time is, and whether they know where we are.
    next_peer_scan: Instant,
    /// When to ask the first of them for its clock.
    next_clock_probe: Instant,
    world_time: WorldTime,
    local_entities: BTreeMap<u8, LocalEntity<R::State>>,
    /// Where our entities are: in order, each region once.
    own_regions: Vec<WorldRegion>,
    remote_entities: BTreeMap<EntityId, RemoteEntity<R::State>>,
    peers: BTreeMap<WorldSiteId, WorldPeer>,
    gossip: GossipStore,
    update_rate: UpdateRate,
    /// What is to be told to single sites.
    control_queue: VecDeque<(WorldSiteId, PeerWorldControl)>,
    beacon: Beacon,
    visible: Vec<VisibleEntity<R::State>>,
    last_view_tick: Option<u32>,
    last_gc_at: Instant,
    is_leaving: bool,
    events: VecDeque<PeerWorldEvent>,
    stats: PeerWorldStats,
}

/// When everybody is told how we are.
#[derive(Debug)]
struct Beacon {
    next_at: Instant,
    /// The record was changed and nobody told yet.
    is_record_pending: bool,
    /// Why nobody is told.
    record_hold: Option<RecordHold>,
    /// When it was last told.
    record_sent_at: Instant,
    /// The site of which was reported last: they are reported of in turn.
    last_reported: Option<WorldSiteId>,
}

/// Our record is held back after the start until every peer has told which record of ours it has. A version that is put on top of an
/// older one takes the place of a newer one as soon as it was changed as often, and what was counted there is lost.
#[derive(Clone, Copy, Debug, Default)]
struct RecordHold {
    /// When the first peer was heard.
    first_peer_at: Option<Instant>,
}

impl RecordHold {
    /// Peers that are not in our roster yet have this long to get there, and to answer.
    const MIN_DURATION: TimeDelta = TimeDelta::from_millis(2_500);
    /// A peer that does not answer for this long is taken for gone; nor can a peer that lies hold a record back for longer.
    const MAX_DURATION: TimeDelta = PEER_TIMEOUT;

    fn is_over(self, now: Instant, mut peers: impl Iterator<Item = bool>) -> bool {
        let held = self.first_peer_at.map(|since| now - since);
        held.is_some_and(|held| {
            held >= Self::MAX_DURATION || held >= Self::MIN_DURATION && peers.all(|has_recalled| has_recalled)
        })
    }
}

/// An entity in a view.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibleEntity<S> {
    /// Which.
    pub entity: EntityId,
    /// How it is.
    pub state: S,
    /// How we know.
    pub provenance: Provenance,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldEvent {
    /// A site was heard for the first time, or for the first time after a long silence.
    PeerJoined(WorldSiteId),
    /// A site said goodbye, or was not heard for long.
    PeerLeft(WorldSiteId),
    /// An entity is in the view that was not.
    EntityAppeared(EntityId),
    /// An entity is not in the view any more.
    EntityVanished(EntityId),
    /// A site's record is another.
    RecordChanged(WorldSiteId),
    /// Others know a newer record of ours than we do: it is from before we were started. What is [posted](TestNetwork::post) next must contain it.
    OwnRecordRecovered,
}

impl<R: DeadReckoning> PeerWorld<R> {
    /// A world to found or to enter.
    pub fn new(now: Instant, config: PeerWorldConfig, reckoner: R) -> Result<Self, PeerWorldConfigError> {
        config.check()?;
        let time = if config.is_founder { WorldTime::start(now) } else { WorldTime::default() };
        let rate = UpdateRate::new(now, &config.update_policy);
        let long_ago = now - PEER_TIMEOUT;
        let record_held = (!config.is_founder).then(RecordHold::default);
        let beacon = Beacon {
            next_at: now,
            is_record_pending: false,
            record_hold: record_held,
            record_sent_at: long_ago,
            last_reported: None,
        };
        Ok(Self {
            config,
            dead_reckoning: reckoner,
            started_at: now,
            now,
            next_peer_scan: now,
            next_clock_probe: now,
            world_time: time,
            local_entities: BTreeMap::new(),
            own_regions: Vec::new(),
            remote_entities: BTreeMap::new(),
            peers: BTreeMap::new(),
            gossip: GossipStore::default(),
            update_rate: rate,
            control_queue: VecDeque::new(),
            beacon,
            visible: Vec::new(),
            last_view_tick: None,
            last_gc_at: now,
            is_leaving: false,
            events: VecDeque::new(),
            stats: PeerWorldStats::default(),
        })
    }

    /// What was agreed on.
    pub fn config(&self) -> &PeerWorldConfig {
        &self.config
    }

    /// What knows how entities move.
    pub fn dead_reckoning(&self) -> &R {
        &self.dead_reckoning
    }

    /// There is a way to a site: its clock is asked for. Whoever is heard of is known without this.
    pub fn add_peer(&mut self, now: Instant, site: WorldSiteId) {
        if site == self.config.site || self.peers.len() >= MAX_PEERS {
            return;
        }
        if let Entry::Vacant(vacant) = self.peers.entry(site) {
            vacant.insert(WorldPeer::new(now));
            self.next_clock_probe = now;
        }
    }

    /// A site is no more: its entities vanish at once.
    pub fn remove_peer(&mut self, site: WorldSiteId) {
        if let Some(peer) = self.peers.remove(&site)
            && peer.is_present
        {
            self.push_event(PeerWorldEvent::PeerLeft(site));
        }
        self.remove_remote_entities(|entity, _| entity.site == site);
    }

    /// Forgets entities of which nothing is wanted any more.
    fn remove_remote_entities(&mut self, mut is_over: impl FnMut(EntityId, &mut RemoteEntity<R::State>) -> bool) {
        let mut vanished = Vec::new();
        self.remote_entities.retain(|entity, track| {
            let is_over = is_over(*entity, track);
            if is_over && track.is_visible {
                vanished.push(*entity);
            }
            !is_over
        });
        vanished.into_iter().for_each(|entity| self.push_event(PeerWorldEvent::EntityVanished(entity)));
    }

    /// The tick that it is now; `None` as long as nobody told us the world's time.
    pub fn tick(&mut self, now: Instant) -> Option<u32> {
        self.world_time.tick(now, self.config.tick_duration)
    }

    /// By how much the world's time is ahead of our clock.
    pub fn world_time_offset(&self) -> Option<TimeDelta> {
        self.world_time.offset()
    }

    /// Our time when a tick of the world begins.
    pub fn tick_start(&self, tick: u32) -> Option<Instant> {
        self.world_time.tick_start(tick, self.config.tick_duration)
    }

    /// Does what is due: keeps time, asks for clocks, forgets who is gone.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let now = self.now;
        self.probe_clocks(now);
        if now >= self.next_peer_scan {
            self.next_peer_scan = now + PEER_SCAN_INTERVAL;
            self.follow_world_time(now);
            self.send_regions();
        }
        let is_hold_over = |hold: RecordHold| hold.is_over(now, self.peers.values().map(WorldPeer::is_recall_complete));
        if self.beacon.record_hold.is_some_and(is_hold_over) {
            self.release_record();
        }
        if now - self.last_gc_at >= GC_INTERVAL {
            self.last_gc_at = now;
            self.collect_garbage(now);
        }
    }

    /// When [`advance`](Self::advance) should be called again at the latest.
    pub fn poll_timeout(&mut self, now: Instant) -> Instant {
        let tick = self.tick(now).and_then(|tick| self.tick_start(tick + 1));
        let soon = now + self.config.tick_duration;
        // Right behind the beginning, so that rounding does not bring us here a moment too early, again and again. A world that is too old for
        // another tick goes on without one.
        tick.filter(|at| *at >= now)
            .map_or(soon, |at| at + TimeDelta::from_micros(1))
            .min(soon + self.config.tick_duration)
    }

    /// Follows the time of the lowest site that knows it. Where nobody does, the lowest that waited for long enough begins one.
    fn follow_world_time(&mut self, now: Instant) {
        match self.world_time_to_follow(now) {
            Some(ahead) => self.world_time.steer(now, ahead),
            None if self.world_time.offset().is_none() && self.must_start_world_time(now) => {
                self.world_time = WorldTime::start(now)
            }
            None => {}
        }
    }

    /// The time to follow: by how much it is ahead of our clock.
    fn world_time_to_follow(&self, now: Instant) -> Option<TimeDelta> {
        // Who slept is not followed, and follows the others when it wakes up, though it be the lowest. But no single site of several can say
        // that all others slept: half of those whose time we know must be ahead.
        let is_agreed = |is_with: &dyn Fn(TimeDelta) -> bool| {
            let (with, all) = self
                .reported_world_times(now)
                .fold((0, 0), |(with, all), (_, ahead)| (with + usize::from(is_with(ahead)), all + 1));
            with > 0 && 2 * with >= all
        };
        if self.world_time.offset().is_none() {
            let is_common = |ahead: &TimeDelta| is_agreed(&|other| WorldTime::is_same_time(*ahead, other));
            return self.reported_world_times(now).map(|(_, ahead)| ahead).find(is_common);
        }
        if is_agreed(&|ahead| self.world_time.is_far_behind(ahead)) {
            return self
                .reported_world_times(now)
                .map(|(_, ahead)| ahead)
                .filter(|ahead| self.world_time.is_far_behind(*ahead))
                .min();
        }
        let lower = self.reported_world_times(now).take_while(|(site, _)| *site < self.config.site);
        lower
            .map(|(_, ahead)| ahead)
            .find(|ahead| self.world_time.offset().is_some_and(|ours| WorldTime::is_same_time(ours, *ahead)))
    }

    /// What others who were heard of late take the world's time to be, the lowest site first: by how much it is ahead of our clock.
    fn reported_world_times(&self, now: Instant) -> impl Iterator<Item = (WorldSiteId, TimeDelta)> {
        let trusted = self.trust_timeout();
        let heard = self.peers.iter().filter(move |(_, peer)| now - peer.last_received_at < trusted);
        let told = heard.filter_map(move |(site, peer)| Some((*site, peer.world_time_offset_from_us(now)?)));
        told.filter(move |(_, ahead)| WorldTime::is_plausible(now, *ahead, self.config.tick_duration))
    }

    /// A peer that was not heard for this long may be gone.
    fn trust_timeout(&self) -> TimeDelta {
        TRUST_TIMEOUT.max(self.peer_timeout() / 3)
    }

    /// Whether the world's time died with those who knew it, and it is ours to begin one.
    fn must_start_world_time(&self, now: Instant) -> bool {
        let here = || self.peers.iter().filter(|(_, peer)| peer.is_present);
        now - self.started_at >= WORLD_TIME_TIMEOUT
            && here().all(|(site, peer)| *site > self.config.site && peer.world_time_offset.is_none())
    }

    fn collect_garbage(&mut self, now: Instant) {
        let patience = self.peer_timeout();
        let gone: Vec<WorldSiteId> = self
            .peers
            .iter()
            .filter(|(_, peer)| now - peer.last_received_at >= patience)
            .map(|(site, _)| *site)
            .collect();
        gone.into_iter().for_each(|site| self.remove_peer(site));
        self.drop_old_states(now);
        self.aggregate_loss(now);
    }

    fn drop_old_states(&mut self, now: Instant) {
        let Some(tick) = self.tick(now) else { return };
        let kept = self.config.retention_ticks();
        let oldest = tick.saturating_sub(kept);
        self.remove_remote_entities(|_, track| {
            track.drop_before(oldest);
            track.newest_tick().is_none_or(|newest| newest < oldest)
        });
    }

    /// Adds up what was lost, for the reports, and takes to heart what others report.
    fn aggregate_loss(&mut self, now: Instant) {
        for (entity, track) in &mut self.remote_entities {
            if let Some(peer) = self.peers.get_mut(&entity.site) {
                peer.loss_counts.add(track.loss.take_counts());
            }
        }
        self.peers.values_mut().for_each(WorldPeer::aggregate_loss);
        let reports = self.peers.values().filter_map(|peer| peer.recent_report(now));
        self.update_rate.on_reports(now, &self.config.update_policy, reports);
        self.stats.update_rate = self.update_rate.per_second();
    }

    /// Says how one of our entities is at a tick; to be called for every tick. Whether the others are told is decided here, and said.
    pub fn publish_entity(&mut self, tick: u32, index: u8, state: R::State) -> bool {
        let conditions = SendConditions {
            updates_per_second: self.update_rate.per_second(),
            loss_share: self.update_rate.worst_loss(),
            ticks_per_second: self.config.ticks_per_second(),
        };
        let kept = self.config.retention_ticks();
        let region = self.dead_reckoning.region(&state);
        let (source, before) = match self.local_entities.entry(index) {
            Entry::Vacant(vacant) => {
                // Entities that begin together do not speak together.
                let credit = (u32::from(index) * 37).wrapping_add(self.config.site.0) % conditions.ticks_per_second;
                (vacant.insert(LocalEntity::new(tick, state, credit)), None)
            }
            Entry::Occupied(occupied) => {
                let source = occupied.into_mut();
                let before = self.dead_reckoning.region(source.newest().1);
                source.record(tick, state, kept);
                (source, Some(before))
            }
        };
        let decision = source.decide(&self.dead_reckoning, &self.config.update_policy, conditions, tick);
        source.on_decided(decision, conditions.ticks_per_second);
        if before != Some(region) {
            self.update_own_regions();
        }
        self.stats.updates_skipped += u64::from(decision == SendDecision::Skip);
        decision == SendDecision::Send
    }

    /// One of our own entities, as it was at a tick.
    pub fn own_state_at(&self, index: u8, tick: u32) -> Option<&R::State> {
        self.local_entities.get(&index).and_then(|source| source.state_at(tick))
    }

    /// The tick of which a view is due, if there is one that was not asked for before. Views that were missed are left out.
    pub fn poll_view(&mut self, now: Instant) -> Option<u32> {
        let PeerWorldConfig { bucket_ticks: bucket, playout_delay: delay, .. } = self.config;
        let buckets = self.tick(now)?.checked_sub(delay)? / bucket;
        let tick = (buckets * bucket).checked_sub(1)?;
        if self.last_view_tick.is_some_and(|viewed| viewed >= tick) {
            return None;
        }
        self.last_view_tick = Some(tick);
        Some(tick)
    }

    /// Everybody who is to be seen, as they were at a tick: our own entities, then the others, in their order.
    pub fn visible_at(&mut self, tick: u32) -> &[VisibleEntity<R::State>] {
        let mut view = core::mem::take(&mut self.visible);
        view.clear();
        let site = self.config.site;
        view.extend(self.local_entities.iter().filter_map(|(index, source)| {
            let entity = EntityId { site, index: *index };
            source.state_at(tick).map(|state| VisibleEntity {
                entity,
                state: state.clone(),
                provenance: Provenance::Own,
            })
        }));
        let mut changed = Vec::new();
        let own: Vec<WorldRegion> = view.iter().map(|shown| self.dead_reckoning.region(&shown.state)).collect();
        for (entity, track) in &mut self.remote_entities {
            // Of who is far away we are not told: what we could reckon of it would be of no use.
            let is_near = |state: &R::State| is_near_any(&own, self.dead_reckoning.region(state));
            let state = track
                .state_at(&self.dead_reckoning, tick, self.config.visibility_timeout)
                .filter(|(state, _)| is_near(state));
            if track.is_visible != state.is_some() {
                track.is_visible = state.is_some();
                changed.push(if track.is_visible {
                    PeerWorldEvent::EntityAppeared(*entity)
                } else {
                    PeerWorldEvent::EntityVanished(*entity)
                });
            }
            view.extend(state.map(|(state, how)| VisibleEntity { entity: *entity, state, provenance: how }));
        }
        changed.into_iter().for_each(|event| self.push_event(event));
        self.visible = view;
        &self.visible
    }

    /// Everybody else as they are at a tick that nobody has seen yet, reckoned from the newest that is known.
    pub fn extrapolated_at(&self, tick: u32) -> impl Iterator<Item = (EntityId, R::State)> {
        self.remote_entities.iter().filter_map(move |(entity, track)| {
            track
                .state_at(&self.dead_reckoning, tick, self.config.visibility_timeout)
                .map(|(state, _)| (*entity, state))
        })
    }

    /// The newest state that is known of everybody else, and its tick.
    pub fn newest_states(&self) -> impl Iterator<Item = (EntityId, u32, &R::State)> {
        self.remote_entities
            .iter()
            .filter_map(|(entity, track)| track.newest_state().map(|(tick, state)| (*entity, tick, state)))
    }

    /// Puts down what everybody must know in the end: at most [`MAX_RECORD_SIZE`] bytes, in place of what was put down before.
    pub fn publish_record(&mut self, bytes: &[u8]) {
        match self.beacon.record_hold {
            Some(_) => self.gossip.draft_own(self.config.site, bytes),
            None => self.gossip.set_own(self.config.site, bytes),
        }
        self.beacon.is_record_pending = true;
    }

    /// From now on everybody is told of our record.
    fn release_record(&mut self) {
        self.beacon.record_hold = None;
        if let Some(draft) = self.gossip.get(self.config.site).map(|record| record.bytes.clone()) {
            self.publish_record(&draft);
        }
    }

    /// What all sites have put down, also those that are gone.
    pub fn records(&self) -> impl Iterator<Item = (WorldSiteId, &SiteRecord)> {
        self.gossip.iter()
    }

    /// Says goodbye with the next datagrams.
    pub fn leave(&mut self) {
        if self.beacon.record_hold.is_some() {
            self.release_record();
        }
        self.is_leaving = true;
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<PeerWorldEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: PeerWorldEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The sites that must be told of what happens in a region, where one datagram does not get to all of them.
    pub fn interested_peers(&self, region: WorldRegion) -> impl Iterator<Item = WorldSiteId> {
        self.peers.iter().filter(move |(_, peer)| peer.is_interested_in(region)).map(|(site, _)| *site)
    }

    /// The regions of which we want to be told: where our entities are, and around them. In order, each once.
    pub fn interest_regions(&self) -> Vec<WorldRegion> {
        let around = |at: WorldRegion| {
            let near = |middle: u8| middle.saturating_sub(1)..=middle.saturating_add(1);
            near(at.x).flat_map(move |x| near(at.y).map(move |y| WorldRegion { x, y }))
        };
        let mut wanted: Vec<WorldRegion> = self.own_regions.iter().copied().flat_map(around).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn update_own_regions(&mut self) {
        if self.own_regions.is_empty() {
            // Until it is known where we are we are told of everything.
            self.beacon.next_at = self.now;
        }
        self.own_regions.clear();
        self.own_regions
            .extend(self.local_entities.values().map(|source| self.dead_reckoning.region(source.newest().1)));
        self.own_regions.sort_unstable();
        self.own_regions.dedup();
    }

    /// Numbers.
    pub fn stats(&self) -> PeerWorldStats {
        self.stats
    }

    /// What is known of another site.
    pub fn peer_stats(&self, now: Instant, site: WorldSiteId) -> Option<WorldPeerStats> {
        self.peers.get(&site).map(|peer| WorldPeerStats::of(peer, now, self.world_time.offset()))
    }

    /// The other sites that we know of.
    pub fn peers(&self) -> impl Iterator<Item = WorldSiteId> {
        self.peers.keys().copied()
    }

    /// Bytes on the heap, roughly: it is bounded, whatever arrives.
    pub fn memory(&self) -> usize {
        let tracks: usize = self.remote_entities.values().map(RemoteEntity::memory).sum();
        let sources: usize = self.local_entities.values().map(LocalEntity::memory).sum();
        let peers: usize = self.peers.values().map(|peer| size_of::<WorldPeer>() + peer.memory()).sum();
        let queues = self.control_queue.capacity() * size_of::<(WorldSiteId, PeerWorldControl)>()
            + self.events.capacity() * size_of::<PeerWorldEvent>();
        tracks + sources + peers + queues + self.gossip.memory()
    }
}

/// Whether what happens in a region concerns one of ours. Who has no entities wants to see everything.
fn is_near_any(own: &[WorldRegion], region: WorldRegion) -> bool {
    own.is_empty() || own.iter().any(|own| own.is_near(region))
}
