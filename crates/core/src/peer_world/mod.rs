//! Serverless worlds: every site sends the state of its own entities and computes its own view of all entities.
//!
//! After Gautier, Diot and Kurose, *End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications
//! on the Internet* (MiMaze). Time is cut into *buckets*. Every site shows all updates issued in one bucket together, a
//! fixed *playout delay* later, so that they have arrived from every site by then. The view of a bucket is that of its
//! last tick. If an entity has no received state for that tick, the site dead-reckons it: it interpolates between two
//! received states or extrapolates from the newest one. A late update is stored in its own past bucket, where it still
//! improves later dead reckoning. An entity without updates for longer than the visibility timeout is not shown.
//!
//! Four mechanisms go beyond the paper. A site dead-reckons its own entities as its peers do, and sends only the
//! minimum rate of updates while the result is close enough to the real state ([`UpdatePolicy::tolerance`]). The update
//! rate falls when receivers report lost or late updates ([`UpdatePolicy::is_adaptive`]). Updates go only to sites that
//! are near enough to see the entity ([`WorldRegion`]). State on which all sites must agree in the end, such as a
//! score, is kept in [records](PeerWorld::publish_record) that reach every site.
//!
//! The host program owns clock, network and game. It calls [`PeerWorld::handle_datagram`] for every datagram and, at
//! least once per tick, [`PeerWorld::advance`], [`PeerWorld::publish_entity`] for each of its entities,
//! [`PeerWorld::poll_transmit`] and [`PeerWorld::poll_view`].

mod config;
mod dead_reckoning;
mod gossip;
mod local_entity;
pub mod message;
mod receive;
mod remote_entity;
mod remote_site;
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

use crate::clock::is_same_time;
use crate::time::{Instant, TimeDelta};
use gossip::GossipStore;
use local_entity::{LocalEntity, SendConditions, SendDecision};
use remote_entity::RemoteEntity;
use remote_site::RemoteSite;
use send::PeerWorldUnicast;
use update_rate::UpdateRate;
use world_time::WorldTime;

/// Maximum number of known peers.
const MAX_PEERS: usize = 1_024;
/// Maximum number of remote entities of one site.
const MAX_ENTITIES_PER_SITE: usize = 64;
/// Maximum number of remote entities of all sites together.
const MAX_ENTITIES: usize = 4_096;
/// Silence after which a peer is removed, whether or not it said goodbye, in a world of fewer than 48 peers. With 48 or
/// more peers, four beacon intervals apply, which are longer.
const PEER_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Minimum trust timeout. A site does not follow the world time of a peer that is silent for longer than the trust
/// timeout, and accepts that peer's record from other sites.
const TRUST_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Time after its creation for which a site without a world time waits to receive one before it may start its own.
const WORLD_TIME_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Maximum number of queued events; beyond it the oldest are discarded.
const MAX_EVENTS: usize = 256;
/// Interval between scans of all peers for their world times and for due region updates.
const PEER_SCAN_INTERVAL: TimeDelta = TimeDelta::from_millis(30);
/// Interval at which silent peers and old states are removed and the loss shares of the peers are computed.
const GC_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

/// A serverless world as one site knows it: its own entities, those received from its peers, and the records.
#[derive(Debug)]
pub struct PeerWorld<R: DeadReckoning> {
    config: PeerWorldConfig,
    dead_reckoning: R,
    started_at: Instant,
    now: Instant,
    /// Time of the next scan of all peers for their world times and for due region updates.
    next_peer_scan: Instant,
    /// Earliest time at which a clock probe to any peer is due.
    next_clock_probe: Instant,
    world_time: WorldTime,
    local_entities: BTreeMap<u8, LocalEntity<R::State>>,
    /// Regions of this site's entities, sorted, without duplicates.
    own_regions: Vec<WorldRegion>,
    remote_entities: BTreeMap<EntityId, RemoteEntity<R::State>>,
    peers: BTreeMap<WorldSiteId, RemoteSite>,
    gossip: GossipStore,
    update_rate: UpdateRate,
    /// Messages queued for single sites. Those for the same site are sent in order.
    control_queue: VecDeque<(WorldSiteId, PeerWorldUnicast)>,
    beacon: Beacon,
    visible: Vec<VisibleEntity<R::State>>,
    last_view_tick: Option<u32>,
    last_gc_at: Instant,
    is_leaving: bool,
    events: VecDeque<PeerWorldEvent>,
    stats: PeerWorldStats,
}

/// State of the beacon, the periodic status datagram to all sites.
#[derive(Debug)]
struct Beacon {
    next_at: Instant,
    /// Whether this site's record was published after the last beacon that carried it.
    is_record_pending: bool,
    /// Hold on this site's record after a start. `None` for the founder, and once the record is released.
    record_hold: Option<RecordHold>,
    /// Time at which the record was last sent to all sites.
    record_sent_at: Instant,
    /// Peer that the last link report was about: the reports rotate over all peers.
    last_reported: Option<WorldSiteId>,
}

/// Period after a start in which this site does not publish its record. It lasts until every peer has left or reported
/// that it has no newer version, within the bounds [`MIN_DURATION`](Self::MIN_DURATION) and
/// [`MAX_DURATION`](Self::MAX_DURATION). A restarted site that published on top of an outdated version would replace
/// the newer one once its change count was higher, and the counts in the newer one would be lost.
#[derive(Clone, Copy, Debug, Default)]
struct RecordHold {
    /// Time of the first datagram from any peer; `None` before it.
    first_peer_at: Option<Instant>,
}

impl RecordHold {
    /// Minimum hold, counted from `first_peer_at`. Within it, peers that are not known yet can be added and can answer.
    const MIN_DURATION: TimeDelta = TimeDelta::from_millis(2_500);
    /// Maximum hold, counted from `first_peer_at`. A peer that has not answered by then is considered gone, and a lying
    /// peer cannot hold the record back longer.
    const MAX_DURATION: TimeDelta = PEER_TIMEOUT;

    fn is_over(self, now: Instant, mut peers: impl Iterator<Item = bool>) -> bool {
        let held = self.first_peer_at.map(|since| now - since);
        held.is_some_and(|held| {
            held >= Self::MAX_DURATION || held >= Self::MIN_DURATION && peers.all(|has_answered| has_answered)
        })
    }
}

/// An entity in the view of one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibleEntity<S> {
    /// Id of the entity: its owner and its number among the owner's entities.
    pub entity: EntityId,
    /// State of the entity at the tick of the view.
    pub state: S,
    /// Origin of the state: own, received, interpolated or extrapolated.
    pub provenance: Provenance,
}

/// An event for the host program, returned by [`PeerWorld::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldEvent {
    /// A site sent its first datagram, or its first one after it left, timed out or was removed. Datagrams that were in
    /// flight when the site left do not count.
    PeerJoined(WorldSiteId),
    /// A site whose joining was reported said goodbye, timed out or was removed by the host program.
    PeerLeft(WorldSiteId),
    /// A remote entity entered the view.
    EntityAppeared(EntityId),
    /// A remote entity left the view, or it was in the view and was discarded: its site left, timed out or was removed,
    /// or its last state became too old.
    EntityVanished(EntityId),
    /// A newer record of another site arrived.
    RecordChanged(WorldSiteId),
    /// A peer sent a newer version of this site's record, from before this site's last start. The next record that this
    /// site [publishes](PeerWorld::publish_record) must include the contents of that version.
    OwnRecordRecovered,
}

impl<R: DeadReckoning> PeerWorld<R> {
    /// Creates the engine of one site of a world. With [`PeerWorldConfig::is_founder`] the site starts the world time
    /// at once; otherwise it learns the world time from its peers. Fails if [`PeerWorldConfig::check`] does.
    pub fn new(now: Instant, config: PeerWorldConfig, dead_reckoning: R) -> Result<Self, PeerWorldConfigError> {
        config.check()?;
        let world_time = if config.is_founder { WorldTime::start(now) } else { WorldTime::default() };
        let update_rate = UpdateRate::new(now, &config.update_policy);
        let long_ago = now - PEER_TIMEOUT;
        let record_hold = (!config.is_founder).then(RecordHold::default);
        let beacon = Beacon {
            next_at: now,
            is_record_pending: false,
            record_hold,
            record_sent_at: long_ago,
            last_reported: None,
        };
        Ok(Self {
            config,
            dead_reckoning,
            started_at: now,
            now,
            next_peer_scan: now,
            next_clock_probe: now,
            world_time,
            local_entities: BTreeMap::new(),
            own_regions: Vec::new(),
            remote_entities: BTreeMap::new(),
            peers: BTreeMap::new(),
            gossip: GossipStore::default(),
            update_rate,
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

    /// Returns the settings passed to [`PeerWorld::new`].
    pub fn config(&self) -> &PeerWorldConfig {
        &self.config
    }

    /// Returns the game's dead-reckoning rules passed to [`PeerWorld::new`].
    pub fn dead_reckoning(&self) -> &R {
        &self.dead_reckoning
    }

    /// Adds a reachable site and starts to measure its clock. A site that sends a datagram is added without this call.
    /// Sites beyond the 1,024th are ignored.
    pub fn add_peer(&mut self, now: Instant, site: WorldSiteId) {
        if site == self.config.site || self.peers.len() >= MAX_PEERS {
            return;
        }
        if let Entry::Vacant(vacant) = self.peers.entry(site) {
            vacant.insert(RemoteSite::new(now));
            self.next_clock_probe = now;
        }
    }

    /// Removes a peer and, at once, its entities.
    pub fn remove_peer(&mut self, site: WorldSiteId) {
        if let Some(peer) = self.peers.remove(&site)
            && peer.is_present
        {
            self.push_event(PeerWorldEvent::PeerLeft(site));
        }
        self.remove_remote_entities(|entity, _| entity.site == site);
    }

    /// Removes the remote entities for which `should_remove` holds, and reports the visible ones as vanished.
    fn remove_remote_entities(&mut self, mut should_remove: impl FnMut(EntityId, &mut RemoteEntity<R::State>) -> bool) {
        let mut vanished = Vec::new();
        self.remote_entities.retain(|entity, remote| {
            let should_remove = should_remove(*entity, remote);
            if should_remove && remote.is_visible {
                vanished.push(*entity);
            }
            !should_remove
        });
        vanished.into_iter().for_each(|entity| self.push_event(PeerWorldEvent::EntityVanished(entity)));
    }

    /// Returns the current tick, or `None` until the world time is known.
    pub fn tick(&mut self, now: Instant) -> Option<u32> {
        self.world_time.tick(now, self.config.tick_duration)
    }

    /// Returns the offset of the world time from the local clock, positive if the world time is ahead. `None` until the
    /// world time is known.
    pub fn world_time_offset(&self) -> Option<TimeDelta> {
        self.world_time.offset()
    }

    /// Returns the local time at which `tick` begins, or `None` until the world time is known.
    pub fn tick_start(&self, tick: u32) -> Option<Instant> {
        self.world_time.tick_start(tick, self.config.tick_duration)
    }

    /// Performs all due work: probes clocks, follows the world time, sends region updates, releases this site's
    /// held-back record and collects garbage.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let now = self.now;
        self.probe_clocks(now);
        if now >= self.next_peer_scan {
            self.next_peer_scan = now + PEER_SCAN_INTERVAL;
            self.follow_world_time(now);
            self.send_regions();
        }
        let is_hold_over =
            |hold: RecordHold| hold.is_over(now, self.peers.values().map(RemoteSite::is_recall_complete));
        if self.beacon.record_hold.is_some_and(is_hold_over) {
            self.release_record();
        }
        if now - self.last_gc_at >= GC_INTERVAL {
            self.last_gc_at = now;
            self.collect_garbage(now);
        }
    }

    /// Returns the time by which the host program must call [`advance`](Self::advance) again.
    pub fn poll_timeout(&mut self, now: Instant) -> Instant {
        let tick = self.tick(now).and_then(|tick| self.tick_start(tick + 1));
        let soon = now + self.config.tick_duration;
        // 1 µs past the beginning of the tick, so that rounding does not wake the host program repeatedly just before
        // the tick. In a world past its last tick, the host program is woken once per tick duration.
        tick.filter(|at| *at >= now)
            .map_or(soon, |at| at + TimeDelta::from_micros(1))
            .min(soon + self.config.tick_duration)
    }

    /// Steers towards the world time that [`world_time_to_follow`](Self::world_time_to_follow) returns. If it returns
    /// none and the world time is unknown, starts a world time if
    /// [`must_start_world_time`](Self::must_start_world_time) holds.
    fn follow_world_time(&mut self, now: Instant) {
        match self.world_time_to_follow(now) {
            Some(offset) => self.world_time.steer(now, offset),
            None if self.world_time.offset().is_none() && self.must_start_world_time(now) => {
                self.world_time = WorldTime::start(now)
            }
            None => {}
        }
    }

    /// Returns the world time to follow, as an offset from the local clock. A site without a world time follows the
    /// first reported one with which at least half of the reports agree. A site with a world time follows the least of
    /// the reported ones that are at least 250 ms ahead of its own, if these are at least half of the reports.
    /// Otherwise it follows the report of the lowest site id below its own that is within 250 ms of its own time.
    fn world_time_to_follow(&self, now: Instant) -> Option<TimeDelta> {
        // A site that was suspended is not followed, even with the lowest id; it follows the others when it resumes.
        // But a single site of several cannot claim that all others were suspended: at least half of the known world
        // times must be ahead.
        let is_agreed = |is_with: &dyn Fn(TimeDelta) -> bool| {
            let (with, all) = self
                .reported_world_times(now)
                .fold((0, 0), |(with, all), (_, offset)| (with + usize::from(is_with(offset)), all + 1));
            with > 0 && 2 * with >= all
        };
        if self.world_time.offset().is_none() {
            let is_common = |offset: &TimeDelta| is_agreed(&|other| is_same_time(*offset, other));
            return self.reported_world_times(now).map(|(_, offset)| offset).find(is_common);
        }
        if is_agreed(&|offset| self.world_time.is_far_behind(offset)) {
            return self
                .reported_world_times(now)
                .map(|(_, offset)| offset)
                .filter(|offset| self.world_time.is_far_behind(*offset))
                .min();
        }
        let lower = self.reported_world_times(now).take_while(|(site, _)| *site < self.config.site);
        lower
            .map(|(_, offset)| offset)
            .find(|offset| self.world_time.offset().is_some_and(|ours| is_same_time(ours, *offset)))
    }

    /// Returns the plausible world times of the peers that sent a datagram within the trust timeout, lowest site id
    /// first, as offsets from the local clock.
    fn reported_world_times(&self, now: Instant) -> impl Iterator<Item = (WorldSiteId, TimeDelta)> {
        let trust_timeout = self.trust_timeout();
        let recent = self.peers.iter().filter(move |(_, peer)| now - peer.last_received_at < trust_timeout);
        let reported = recent.filter_map(move |(site, peer)| Some((*site, peer.world_time_offset_from_us(now)?)));
        reported.filter(move |(_, offset)| WorldTime::is_plausible(now, *offset, self.config.tick_duration))
    }

    /// Returns the maximum silence of a trusted peer: a third of the peer timeout, at least [`TRUST_TIMEOUT`].
    fn trust_timeout(&self) -> TimeDelta {
        TRUST_TIMEOUT.max(self.peer_timeout() / 3)
    }

    /// Returns whether this site must start a world time: it has waited for [`WORLD_TIME_TIMEOUT`], has the lowest id
    /// of the present sites, and no present peer reports a world time.
    fn must_start_world_time(&self, now: Instant) -> bool {
        let present = || self.peers.iter().filter(|(_, peer)| peer.is_present);
        now - self.started_at >= WORLD_TIME_TIMEOUT
            && present().all(|(site, peer)| *site > self.config.site && peer.world_time_offset.is_none())
    }

    fn collect_garbage(&mut self, now: Instant) {
        let timeout = self.peer_timeout();
        let gone: Vec<WorldSiteId> = self
            .peers
            .iter()
            .filter(|(_, peer)| now - peer.last_received_at >= timeout)
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
        self.remove_remote_entities(|_, remote| {
            remote.drop_before(oldest);
            remote.newest_tick().is_none_or(|newest| newest < oldest)
        });
    }

    /// Adds up the lost and late updates of each peer's entities for the link reports, and adapts the update rate to
    /// the link reports of the peers.
    fn aggregate_loss(&mut self, now: Instant) {
        for (entity, remote) in &mut self.remote_entities {
            if let Some(peer) = self.peers.get_mut(&entity.site) {
                peer.loss_counts.add(remote.loss.take_counts());
            }
        }
        self.peers.values_mut().for_each(RemoteSite::aggregate_loss);
        let reports = self.peers.values().filter_map(|peer| peer.recent_report(now));
        self.update_rate.on_reports(now, &self.config.update_policy, reports);
        self.stats.update_rate = self.update_rate.per_second();
    }

    /// Records the state of this site's entity `index` at `tick`, and returns whether an update of the entity is sent
    /// to the peers. The host program must call this for every tick.
    pub fn publish_entity(&mut self, tick: u32, index: u8, state: R::State) -> bool {
        let conditions = SendConditions {
            updates_per_second: self.update_rate.per_second(),
            loss_share: self.update_rate.worst_loss(),
            ticks_per_second: self.config.ticks_per_second(),
        };
        let kept = self.config.retention_ticks();
        let region = self.dead_reckoning.region(&state);
        let (local, before) = match self.local_entities.entry(index) {
            Entry::Vacant(vacant) => {
                // A phase of its own per entity keeps entities that start together from sending together.
                let credit = (u32::from(index) * 37).wrapping_add(self.config.site.0) % conditions.ticks_per_second;
                (vacant.insert(LocalEntity::new(tick, state, credit)), None)
            }
            Entry::Occupied(occupied) => {
                let local = occupied.into_mut();
                let before = self.dead_reckoning.region(local.newest().1);
                local.record(tick, state, kept);
                (local, Some(before))
            }
        };
        let decision = local.decide(&self.dead_reckoning, &self.config.update_policy, conditions, tick);
        local.on_decided(decision, conditions.ticks_per_second);
        if before != Some(region) {
            self.update_own_regions();
        }
        self.stats.updates_skipped += u64::from(decision == SendDecision::Skip);
        decision == SendDecision::Send
    }

    /// Returns the state of an own entity at `tick`, or `None` if it is not kept.
    pub fn own_state_at(&self, index: u8, tick: u32) -> Option<&R::State> {
        self.local_entities.get(&index).and_then(|local| local.state_at(tick))
    }

    /// Returns the tick of the newest view that is due. `None` if that tick was returned before, while no view is due
    /// yet, or while the world time is unknown. Older views that were not polled are skipped.
    pub fn poll_view(&mut self, now: Instant) -> Option<u32> {
        let PeerWorldConfig { bucket_ticks: bucket, playout_delay: delay, .. } = self.config;
        let buckets = self.tick(now)?.checked_sub(delay)? / bucket;
        let tick = (buckets * bucket).checked_sub(1)?;
        if self.last_view_tick.is_some_and(|last| last >= tick) {
            return None;
        }
        self.last_view_tick = Some(tick);
        Some(tick)
    }

    /// Computes the view of `tick`: first the own entities, then the remote entities that are near an own one (or all,
    /// if this site has none) and not past the visibility timeout, both in the order of their ids. Queues an event for
    /// every remote entity that entered or left the view.
    pub fn visible_at(&mut self, tick: u32) -> &[VisibleEntity<R::State>] {
        let mut view = core::mem::take(&mut self.visible);
        view.clear();
        let site = self.config.site;
        view.extend(self.local_entities.iter().filter_map(|(index, local)| {
            let entity = EntityId { site, index: *index };
            local.state_at(tick).map(|state| VisibleEntity {
                entity,
                state: state.clone(),
                provenance: Provenance::Own,
            })
        }));
        let mut changed = Vec::new();
        let own: Vec<WorldRegion> = view.iter().map(|shown| self.dead_reckoning.region(&shown.state)).collect();
        for (entity, remote) in &mut self.remote_entities {
            // Peers do not send updates of distant entities, so the extrapolated states of these would be useless.
            let is_near = |state: &R::State| is_near_any(&own, self.dead_reckoning.region(state));
            let state = remote
                .state_at(&self.dead_reckoning, tick, self.config.visibility_timeout)
                .filter(|(state, _)| is_near(state));
            if remote.is_visible != state.is_some() {
                remote.is_visible = state.is_some();
                changed.push(if remote.is_visible {
                    PeerWorldEvent::EntityAppeared(*entity)
                } else {
                    PeerWorldEvent::EntityVanished(*entity)
                });
            }
            view.extend(state.map(|(state, provenance)| VisibleEntity { entity: *entity, state, provenance }));
        }
        changed.into_iter().for_each(|event| self.push_event(event));
        self.visible = view;
        &self.visible
    }

    /// Returns the state of every remote entity at `tick`, which may lie ahead of the newest view. Distant entities are
    /// included; entities past the visibility timeout are not.
    pub fn extrapolated_at(&self, tick: u32) -> impl Iterator<Item = (EntityId, R::State)> {
        self.remote_entities.iter().filter_map(move |(entity, remote)| {
            remote
                .state_at(&self.dead_reckoning, tick, self.config.visibility_timeout)
                .map(|(state, _)| (*entity, state))
        })
    }

    /// Returns the newest received state of every remote entity, with its tick.
    pub fn newest_states(&self) -> impl Iterator<Item = (EntityId, u32, &R::State)> {
        self.remote_entities
            .iter()
            .filter_map(|(entity, remote)| remote.newest_state().map(|(tick, state)| (*entity, tick, state)))
    }

    /// Replaces this site's record, which eventually reaches all sites. Bytes beyond [`MAX_RECORD_SIZE`] are cut off.
    /// After a start, a site that is not the founder holds the record back until its peers have reported which version
    /// of the record they have: for at least 2.5 s and at most 10 s after the first datagram from a peer.
    pub fn publish_record(&mut self, bytes: &[u8]) {
        match self.beacon.record_hold {
            Some(_) => self.gossip.draft_own(self.config.site, bytes),
            None => self.gossip.set_own(self.config.site, bytes),
        }
        self.beacon.is_record_pending = true;
    }

    /// Ends the hold on this site's record and publishes the held-back contents, if there are any.
    fn release_record(&mut self) {
        self.beacon.record_hold = None;
        if let Some(draft) = self.gossip.get(self.config.site).map(|record| record.bytes.clone()) {
            self.publish_record(&draft);
        }
    }

    /// Returns the stored records with their owners, including the records of this site and of departed sites.
    pub fn records(&self) -> impl Iterator<Item = (WorldSiteId, &SiteRecord)> {
        self.gossip.iter()
    }

    /// Announces this site's departure, with its final record, in the next datagram.
    pub fn leave(&mut self) {
        if self.beacon.record_hold.is_some() {
            self.release_record();
        }
        self.is_leaving = true;
    }

    /// Removes and returns the oldest queued event.
    pub fn poll_event(&mut self) -> Option<PeerWorldEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: PeerWorldEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the peers that must receive the updates of entities in `region`, for networks in which one datagram does
    /// not reach all sites: peers with entities in `region` or beside it, and peers without known regions.
    pub fn interested_peers(&self, region: WorldRegion) -> impl Iterator<Item = WorldSiteId> {
        self.peers.iter().filter(move |(_, peer)| peer.is_interested_in(region)).map(|(site, _)| *site)
    }

    /// Returns the regions of which this site wants updates: those of its entities and their neighbours, sorted,
    /// without duplicates. Empty if this site has no entities.
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
            // Peers send all updates until they know the regions of this site's entities, so a beacon reports these at
            // once.
            self.beacon.next_at = self.now;
        }
        self.own_regions.clear();
        self.own_regions.extend(self.local_entities.values().map(|local| self.dead_reckoning.region(local.newest().1)));
        self.own_regions.sort_unstable();
        self.own_regions.dedup();
    }

    /// Returns the counters since this world was created, and the current update rate.
    pub fn stats(&self) -> PeerWorldStats {
        self.stats
    }

    /// Returns the link statistics of a peer. `None` if `site` is not a peer.
    pub fn peer_stats(&self, now: Instant, site: WorldSiteId) -> Option<WorldPeerStats> {
        self.peers.get(&site).map(|peer| WorldPeerStats::of(peer, now, self.world_time.offset()))
    }

    /// Returns all peers, including those that have not sent anything yet.
    pub fn peers(&self) -> impl Iterator<Item = WorldSiteId> {
        self.peers.keys().copied()
    }

    /// Returns the approximate heap size in bytes, which is bounded whatever arrives.
    pub fn memory(&self) -> usize {
        let remotes: usize = self.remote_entities.values().map(RemoteEntity::memory).sum();
        let locals: usize = self.local_entities.values().map(LocalEntity::memory).sum();
        let peers: usize = self.peers.values().map(|peer| size_of::<RemoteSite>() + peer.memory()).sum();
        let queues = self.control_queue.capacity() * size_of::<(WorldSiteId, PeerWorldUnicast)>()
            + self.events.capacity() * size_of::<PeerWorldEvent>();
        remotes + locals + peers + queues + self.gossip.memory()
    }
}

/// Returns whether `region` is near one of the regions in `own`. A site without entities sees everything.
fn is_near_any(own: &[WorldRegion], region: WorldRegion) -> bool {
    own.is_empty() || own.iter().any(|own| own.is_near(region))
}
