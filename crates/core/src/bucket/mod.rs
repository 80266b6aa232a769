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
//! [`TestNetwork::advance`], [`TestNetwork::publish`] for each of its entities, [`TestNetwork::poll_transmit`] and [`TestNetwork::poll_view`].

mod config;
mod ledger;
#[cfg(test)]
mod line;
mod peer;
mod rate;
mod receive;
mod reckon;
mod send;
mod source;
mod stats;
#[cfg(test)]
mod tests;
mod time;
mod track;

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use config::{Config, ConfigError, Sending};
pub use ledger::{MAX_RECORD, Record};
pub use reckon::{EntityId, FAR, MAX_STATE, Reckoner, Region, Site};
pub use send::{Packet, To};
pub use stats::{PeerStats, Stats};
pub use track::How;

use crate::time::{Instant, TimeDelta};
use ledger::Ledger;
use peer::Peer;
use rate::Rate;
use send::Control;
use source::{Conditions, Decision, Source};
use time::WorldTime;
use track::Track;

/// The most sites and entities that we know of at a time.
const MAX_SITES: usize = 1_024;
const MAX_ENTITIES_PER_SITE: usize = 64;
const MAX_ENTITIES: usize = 4_096;
/// Who is silent for so long is forgotten, and who said goodbye.
const FORGET: TimeDelta = TimeDelta::from_secs(10);
/// A site whose time is followed, or that alone tells of its record, must have been heard so lately.
const TRUSTED: TimeDelta = TimeDelta::from_secs(3);
/// Who does not get to know the world's time for so long may have come to those who do not know it either.
const PATIENCE: TimeDelta = TimeDelta::from_secs(5);
/// Events that nobody asked for yet.
const MAX_EVENTS: usize = 256;
/// All others are looked at so often.
const LOOK_AROUND: TimeDelta = TimeDelta::from_millis(30);
/// What need not be looked at every time is looked at so often.
const TIDY: TimeDelta = TimeDelta::from_millis(500);

/// A world as one site sees it.
#[derive(Debug)]
pub struct World<R: Reckoner> {
    config: Config,
    reckoner: R,
    began: Instant,
    now: Instant,
    /// When to look at all others again: what their time is, and whether they know where we are.
    next_look: Instant,
    /// When to ask the first of them for its clock.
    next_ask: Instant,
    time: WorldTime,
    sources: BTreeMap<u8, Source<R::State>>,
    /// Where our entities are: in order, each region once.
    own_regions: Vec<Region>,
    tracks: BTreeMap<EntityId, Track<R::State>>,
    peers: BTreeMap<Site, Peer>,
    ledger: Ledger,
    rate: Rate,
    /// What is to be told to single sites.
    control: VecDeque<(Site, Control)>,
    beacon: Beacon,
    view: Vec<Shown<R::State>>,
    viewed: Option<u32>,
    tidied: Instant,
    leaving: bool,
    events: VecDeque<Event>,
    stats: Stats,
}

/// When everybody is told how we are.
#[derive(Debug)]
struct Beacon {
    next: Instant,
    /// The record was changed and nobody told yet.
    record: bool,
    /// Why nobody is told.
    record_held: Option<Hold>,
    /// When it was last told.
    recorded: Instant,
    /// The site of which was reported last: they are reported of in turn.
    reported: Option<Site>,
}

/// Our record is held back after the start until every peer has told which record of ours it has. A version that is put on top of an
/// older one takes the place of a newer one as soon as it was changed as often, and what was counted there is lost.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    /// When the first peer was heard.
    since: Option<Instant>,
}

impl Hold {
    /// Peers that are not in our roster yet have this long to get there, and to answer.
    const LEAST: TimeDelta = TimeDelta::from_millis(2_500);
    /// A peer that does not answer for this long is taken for gone; nor can a peer that lies hold a record back for longer.
    const MOST: TimeDelta = FORGET;

    fn is_over(self, now: Instant, mut peers: impl Iterator<Item = bool>) -> bool {
        let held = self.since.map(|since| now - since);
        held.is_some_and(|held| held >= Self::MOST || held >= Self::LEAST && peers.all(|has_recalled| has_recalled))
    }
}

/// An entity in a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown<S> {
    /// Which.
    pub entity: EntityId,
    /// How it is.
    pub state: S,
    /// How we know.
    pub how: How,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A site was heard for the first time, or for the first time after a long silence.
    Came(Site),
    /// A site said goodbye, or was not heard for long.
    Left(Site),
    /// An entity is in the view that was not.
    Appeared(EntityId),
    /// An entity is not in the view any more.
    Vanished(EntityId),
    /// A site's record is another.
    Changed(Site),
    /// Others know a newer record of ours than we do: it is from before we were started. What is [posted](TestNetwork::post) next must contain it.
    Remembered,
}

impl<R: Reckoner> World<R> {
    /// A world to found or to enter.
    pub fn new(now: Instant, config: Config, reckoner: R) -> Result<Self, ConfigError> {
        config.check()?;
        let time = if config.founder { WorldTime::begin(now) } else { WorldTime::default() };
        let rate = Rate::new(now, &config.sending);
        let long_ago = now - FORGET;
        let record_held = (!config.founder).then(Hold::default);
        let beacon = Beacon { next: now, record: false, record_held, recorded: long_ago, reported: None };
        Ok(Self {
            config,
            reckoner,
            began: now,
            now,
            next_look: now,
            next_ask: now,
            time,
            sources: BTreeMap::new(),
            own_regions: Vec::new(),
            tracks: BTreeMap::new(),
            peers: BTreeMap::new(),
            ledger: Ledger::default(),
            rate,
            control: VecDeque::new(),
            beacon,
            view: Vec::new(),
            viewed: None,
            tidied: now,
            leaving: false,
            events: VecDeque::new(),
            stats: Stats::default(),
        })
    }

    /// What was agreed on.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What knows how entities move.
    pub fn reckoner(&self) -> &R {
        &self.reckoner
    }

    /// There is a way to a site: its clock is asked for. Whoever is heard of is known without this.
    pub fn add_peer(&mut self, now: Instant, site: Site) {
        if site == self.config.site || self.peers.len() >= MAX_SITES {
            return;
        }
        if let Entry::Vacant(vacant) = self.peers.entry(site) {
            vacant.insert(Peer::new(now));
            self.next_ask = now;
        }
    }

    /// A site is no more: its entities vanish at once.
    pub fn remove_peer(&mut self, site: Site) {
        if let Some(peer) = self.peers.remove(&site)
            && peer.is_here
        {
            self.tell(Event::Left(site));
        }
        self.forget_tracks(|entity, _| entity.site == site);
    }

    /// Forgets entities of which nothing is wanted any more.
    fn forget_tracks(&mut self, mut is_over: impl FnMut(EntityId, &mut Track<R::State>) -> bool) {
        let mut vanished = Vec::new();
        self.tracks.retain(|entity, track| {
            let is_over = is_over(*entity, track);
            if is_over && track.shown {
                vanished.push(*entity);
            }
            !is_over
        });
        vanished.into_iter().for_each(|entity| self.tell(Event::Vanished(entity)));
    }

    /// The tick that it is now; `None` as long as nobody told us the world's time.
    pub fn tick(&mut self, now: Instant) -> Option<u32> {
        self.time.tick(now, self.config.tick)
    }

    /// By how much the world's time is ahead of our clock.
    pub fn world_ahead(&self) -> Option<TimeDelta> {
        self.time.ahead()
    }

    /// Our time when a tick of the world begins.
    pub fn begin_of(&self, tick: u32) -> Option<Instant> {
        self.time.begin_of(tick, self.config.tick)
    }

    /// Does what is due: keeps time, asks for clocks, forgets who is gone.
    pub fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let now = self.now;
        self.ask_for_clocks(now);
        if now >= self.next_look {
            self.next_look = now + LOOK_AROUND;
            self.follow(now);
            self.tell_whereabouts();
        }
        let is_hold_over = |hold: Hold| hold.is_over(now, self.peers.values().map(Peer::has_no_more_to_recall));
        if self.beacon.record_held.is_some_and(is_hold_over) {
            self.release_record();
        }
        if now - self.tidied >= TIDY {
            self.tidied = now;
            self.tidy(now);
        }
    }

    /// When [`advance`](Self::advance) should be called again at the latest.
    pub fn poll_timeout(&mut self, now: Instant) -> Instant {
        let tick = self.tick(now).and_then(|tick| self.begin_of(tick + 1));
        let soon = now + self.config.tick;
        // Right behind the beginning, so that rounding does not bring us here a moment too early, again and again. A world that is too old for
        // another tick goes on without one.
        tick.filter(|at| *at >= now).map_or(soon, |at| at + TimeDelta::from_micros(1)).min(soon + self.config.tick)
    }

    /// Follows the time of the lowest site that knows it. Where nobody does, the lowest that waited for long enough begins one.
    fn follow(&mut self, now: Instant) {
        match self.followed(now) {
            Some(ahead) => self.time.steer(now, ahead),
            None if self.time.ahead().is_none() && self.must_begin(now) => self.time = WorldTime::begin(now),
            None => {}
        }
    }

    /// The time to follow: by how much it is ahead of our clock.
    fn followed(&self, now: Instant) -> Option<TimeDelta> {
        // Who slept is not followed, and follows the others when it wakes up, though it be the lowest. But no single site of several can say
        // that all others slept: half of those whose time we know must be ahead.
        let is_agreed = |is_with: &dyn Fn(TimeDelta) -> bool| {
            let (with, all) = self
                .told_times(now)
                .fold((0, 0), |(with, all), (_, ahead)| (with + usize::from(is_with(ahead)), all + 1));
            with > 0 && 2 * with >= all
        };
        if self.time.ahead().is_none() {
            let is_common = |ahead: &TimeDelta| is_agreed(&|other| WorldTime::is_same(*ahead, other));
            return self.told_times(now).map(|(_, ahead)| ahead).find(is_common);
        }
        if is_agreed(&|ahead| self.time.is_left_behind(ahead)) {
            return self.told_times(now).map(|(_, ahead)| ahead).filter(|ahead| self.time.is_left_behind(*ahead)).min();
        }
        let lower = self.told_times(now).take_while(|(site, _)| *site < self.config.site);
        lower
            .map(|(_, ahead)| ahead)
            .find(|ahead| self.time.ahead().is_some_and(|ours| WorldTime::is_same(ours, *ahead)))
    }

    /// What others who were heard of late take the world's time to be, the lowest site first: by how much it is ahead of our clock.
    fn told_times(&self, now: Instant) -> impl Iterator<Item = (Site, TimeDelta)> {
        let trusted = self.trusted_for();
        let heard = self.peers.iter().filter(move |(_, peer)| now - peer.heard < trusted);
        let told = heard.filter_map(move |(site, peer)| Some((*site, peer.world_ahead_of_us(now)?)));
        told.filter(move |(_, ahead)| WorldTime::is_sane(now, *ahead, self.config.tick))
    }

    /// A peer that was not heard for this long may be gone.
    fn trusted_for(&self) -> TimeDelta {
        TRUSTED.max(self.forget_after() / 3)
    }

    /// Whether the world's time died with those who knew it, and it is ours to begin one.
    fn must_begin(&self, now: Instant) -> bool {
        let here = || self.peers.iter().filter(|(_, peer)| peer.is_here);
        now - self.began >= PATIENCE
            && here().all(|(site, peer)| *site > self.config.site && peer.world_ahead.is_none())
    }

    fn tidy(&mut self, now: Instant) {
        let patience = self.forget_after();
        let gone: Vec<Site> =
            self.peers.iter().filter(|(_, peer)| now - peer.heard >= patience).map(|(site, _)| *site).collect();
        gone.into_iter().for_each(|site| self.remove_peer(site));
        self.forget_old_states(now);
        self.sum_up(now);
    }

    fn forget_old_states(&mut self, now: Instant) {
        let Some(tick) = self.tick(now) else { return };
        let kept = self.config.kept();
        let oldest = tick.saturating_sub(kept);
        self.forget_tracks(|_, track| {
            track.forget_before(oldest);
            track.newest().is_none_or(|newest| newest < oldest)
        });
    }

    /// Adds up what was lost, for the reports, and takes to heart what others report.
    fn sum_up(&mut self, now: Instant) {
        for (entity, track) in &mut self.tracks {
            if let Some(peer) = self.peers.get_mut(&entity.site) {
                peer.counts.add(track.row.take());
            }
        }
        self.peers.values_mut().for_each(Peer::sum_up);
        let reports = self.peers.values().filter_map(|peer| peer.reported(now));
        self.rate.on_reports(now, &self.config.sending, reports);
        self.stats.rate = self.rate.per_second();
    }

    /// Says how one of our entities is at a tick; to be called for every tick. Whether the others are told is decided here, and said.
    pub fn publish(&mut self, tick: u32, index: u8, state: R::State) -> bool {
        let conditions = Conditions {
            rate: self.rate.per_second(),
            lost: self.rate.lost(),
            ticks_per_second: self.config.ticks_per_second(),
        };
        let kept = self.config.kept();
        let region = self.reckoner.region(&state);
        let (source, before) = match self.sources.entry(index) {
            Entry::Vacant(vacant) => {
                // Entities that begin together do not speak together.
                let credit = (u32::from(index) * 37).wrapping_add(self.config.site.0) % conditions.ticks_per_second;
                (vacant.insert(Source::new(tick, state, credit)), None)
            }
            Entry::Occupied(occupied) => {
                let source = occupied.into_mut();
                let before = self.reckoner.region(source.newest().1);
                source.record(tick, state, kept);
                (source, Some(before))
            }
        };
        let decision = source.decide(&self.reckoner, &self.config.sending, conditions, tick);
        source.on_decided(decision, conditions.ticks_per_second);
        if before != Some(region) {
            self.find_own_regions();
        }
        self.stats.updates_skipped += u64::from(decision == Decision::Skip);
        decision == Decision::Send
    }

    /// One of our own entities, as it was at a tick.
    pub fn own_at(&self, index: u8, tick: u32) -> Option<&R::State> {
        self.sources.get(&index).and_then(|source| source.at(tick))
    }

    /// The tick of which a view is due, if there is one that was not asked for before. Views that were missed are left out.
    pub fn poll_view(&mut self, now: Instant) -> Option<u32> {
        let Config { bucket, delay, .. } = self.config;
        let buckets = self.tick(now)?.checked_sub(delay)? / bucket;
        let tick = (buckets * bucket).checked_sub(1)?;
        if self.viewed.is_some_and(|viewed| viewed >= tick) {
            return None;
        }
        self.viewed = Some(tick);
        Some(tick)
    }

    /// Everybody who is to be seen, as they were at a tick: our own entities, then the others, in their order.
    pub fn show(&mut self, tick: u32) -> &[Shown<R::State>] {
        let mut view = core::mem::take(&mut self.view);
        view.clear();
        let site = self.config.site;
        view.extend(self.sources.iter().filter_map(|(index, source)| {
            let entity = EntityId { site, index: *index };
            source.at(tick).map(|state| Shown { entity, state: state.clone(), how: How::Own })
        }));
        let mut changed = Vec::new();
        let own: Vec<Region> = view.iter().map(|shown| self.reckoner.region(&shown.state)).collect();
        for (entity, track) in &mut self.tracks {
            // Of who is far away we are not told: what we could reckon of it would be of no use.
            let is_near = |state: &R::State| is_near(&own, self.reckoner.region(state));
            let state = track.at(&self.reckoner, tick, self.config.give_up).filter(|(state, _)| is_near(state));
            if track.shown != state.is_some() {
                track.shown = state.is_some();
                changed.push(if track.shown { Event::Appeared(*entity) } else { Event::Vanished(*entity) });
            }
            view.extend(state.map(|(state, how)| Shown { entity: *entity, state, how }));
        }
        changed.into_iter().for_each(|event| self.tell(event));
        self.view = view;
        &self.view
    }

    /// Everybody else as they are at a tick that nobody has seen yet, reckoned from the newest that is known.
    pub fn reckoned(&self, tick: u32) -> impl Iterator<Item = (EntityId, R::State)> {
        self.tracks.iter().filter_map(move |(entity, track)| {
            track.at(&self.reckoner, tick, self.config.give_up).map(|(state, _)| (*entity, state))
        })
    }

    /// The newest state that is known of everybody else, and its tick.
    pub fn newest(&self) -> impl Iterator<Item = (EntityId, u32, &R::State)> {
        self.tracks
            .iter()
            .filter_map(|(entity, track)| track.newest_state().map(|(tick, state)| (*entity, tick, state)))
    }

    /// Puts down what everybody must know in the end: at most [`MAX_RECORD`] bytes, in place of what was put down before.
    pub fn post(&mut self, bytes: &[u8]) {
        match self.beacon.record_held {
            Some(_) => self.ledger.draft(self.config.site, bytes),
            None => self.ledger.post(self.config.site, bytes),
        }
        self.beacon.record = true;
    }

    /// From now on everybody is told of our record.
    fn release_record(&mut self) {
        self.beacon.record_held = None;
        if let Some(draft) = self.ledger.get(self.config.site).map(|record| record.bytes.clone()) {
            self.post(&draft);
        }
    }

    /// What all sites have put down, also those that are gone.
    pub fn records(&self) -> impl Iterator<Item = (Site, &Record)> {
        self.ledger.iter()
    }

    /// Says goodbye with the next datagrams.
    pub fn leave(&mut self) {
        if self.beacon.record_held.is_some() {
            self.release_record();
        }
        self.leaving = true;
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The sites that must be told of what happens in a region, where one datagram does not get to all of them.
    pub fn wanting(&self, region: Region) -> impl Iterator<Item = Site> {
        self.peers.iter().filter(move |(_, peer)| peer.wants(region)).map(|(site, _)| *site)
    }

    /// The regions of which we want to be told: where our entities are, and around them. In order, each once.
    pub fn wanted(&self) -> Vec<Region> {
        let around = |at: Region| {
            let near = |middle: u8| middle.saturating_sub(1)..=middle.saturating_add(1);
            near(at.x).flat_map(move |x| near(at.y).map(move |y| Region { x, y }))
        };
        let mut wanted: Vec<Region> = self.own_regions.iter().copied().flat_map(around).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn find_own_regions(&mut self) {
        if self.own_regions.is_empty() {
            // Until it is known where we are we are told of everything.
            self.beacon.next = self.now;
        }
        self.own_regions.clear();
        self.own_regions.extend(self.sources.values().map(|source| self.reckoner.region(source.newest().1)));
        self.own_regions.sort_unstable();
        self.own_regions.dedup();
    }

    /// Numbers.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What is known of another site.
    pub fn peer_stats(&self, now: Instant, site: Site) -> Option<PeerStats> {
        self.peers.get(&site).map(|peer| PeerStats::of(peer, now, self.time.ahead()))
    }

    /// The other sites that we know of.
    pub fn peers(&self) -> impl Iterator<Item = Site> {
        self.peers.keys().copied()
    }

    /// Bytes on the heap, roughly: it is bounded, whatever arrives.
    pub fn memory(&self) -> usize {
        let tracks: usize = self.tracks.values().map(Track::memory).sum();
        let sources: usize = self.sources.values().map(Source::memory).sum();
        let peers: usize = self.peers.values().map(|peer| size_of::<Peer>() + peer.memory()).sum();
        let queues =
            self.control.capacity() * size_of::<(Site, Control)>() + self.events.capacity() * size_of::<Event>();
        tracks + sources + peers + queues + self.ledger.memory()
    }
}

/// Whether what happens in a region concerns one of ours. Who has no entities wants to see everything.
fn is_near(own: &[Region], region: Region) -> bool {
    own.is_empty() || own.iter().any(|own| own.is_near(region))
}
