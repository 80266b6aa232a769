//! Mirrored game servers: every server holds the whole game state, serves the clients near it and exchanges events with
//! the other servers.
//!
//! After Palazzi, Ferretti, Cacciaguerra and Roccetti, *On Maintaining Interactivity in Event Delivery Synchronization
//! for Mirrored Game Architectures*. An *event* carries the time at which it was issued. Its age at delivery is its
//! *game time difference* (GTD). Players notice a GTD above the *game interaction threshold* (GIT, 150 ms). Events of
//! different objects need no order; events of one object do (*correlation*). Some events make earlier ones useless
//! (*obsolescence*). A mirror need not deliver, await or request an obsolete event where that helps other events to be
//! in time ([`DropPolicy`]).
//!
//! This module departs from the paper in three points. First, obsolescence and correlation are data in the events,
//! computed once by the mirror that issues them. The game states for each event which object it is about
//! ([`NewEvent::key`]), whether it replaces earlier events and whether later events can replace it. An event carries
//! the numbers of the replaceable events of its key since the last irreplaceable one (its *obsolete set*) and the
//! number of that irreplaceable event, or an upper bound on it if the issuer no longer tracks the key; all events up to
//! such a bound then count as earlier events of the key. From the stream of one source alone a receiver can therefore
//! decide whether a lost event matters and whether a received event may be delivered. Second, only the owner of an
//! object issues events about it; an object that changes its owner changes its key. Third, the game state therefore
//! splits into one part per source, and a *snapshot* covers one such part. Late joins, rejoins and the end of a
//! partition are all handled the same way, stream by stream.
//!
//! # Dropping never changes the final state
//!
//! An event is *settled* at a mirror once the mirror has delivered or dropped it.
//!
//! **Theorem.** Let the state of the game be a fold over events such that
//!
//! 1. events of different keys, of different sources, or with key 0, commute, and
//! 2. for every event `f` that *replaces*, every state and all *replaceable* events `r1 … rn` of its key, folding
//!    `r1 … rn, f` gives the same state as folding `f` alone.
//!
//! Consider mirrors that have settled the same events, among them, for every dropped event, the event that made it
//! obsolete (as is the case when every received event is settled). They have the same state, whatever each of them
//! dropped under whatever policy, and it is the state of a mirror that drops nothing. The exception is
//! [`TwoCurve`](DropPolicy::TwoCurve), which also gives up events that are not obsolete.
//!
//! *Proof.* By 1 only the order within a key matters. Every mirror delivers the events of a key in the order of their
//! numbers: the obsolete set of an event and the irreplaceable event before that set (or all events up to the bound)
//! include all events of its key from the last irreplaceable one on, the event is delivered only after these are
//! settled (or queued for delivery before it), and a settled event is never delivered again. A mirror drops an event
//! `e` only if it has received an event `f` that replaces and has `e` in its obsolete set. So `e` is replaceable, and
//! so are all events of the key between `e` and `f`. Now put the dropped events back into the fold, each in its place,
//! one at a time and those with the highest numbers first. When it is the turn of `e`, its `f` is part of the fold: `f`
//! is settled and has a higher number, so it was delivered or has been put back already. By 2, folding `e`, the events
//! of the key between `e` and `f`, and then `f` gives the same state as `f` alone, and so does folding the events
//! between them without `e`, and then `f`. So the state with `e` in its place is the same as without it. In the end all
//! dropped events are back, and the fold is that of a mirror that drops nothing. ∎
//!
//! If a source dies, its events that no remaining mirror has received are lost. All its other events reach every
//! remaining mirror from any mirror that has them. An event that comes after a lost event of its key and does not
//! replace it is delivered nowhere. So the remaining mirrors agree.
//!
//! # Use
//!
//! The host program owns clock, network and game. It calls [`Mirror::handle_datagram`] and [`Mirror::issue`], then
//! [`Mirror::poll_request`], [`Mirror::poll_delivery`] and [`Mirror::poll_transmit`] until each returns `None`, and
//! again at [`Mirror::poll_timeout`]. This module never calls the game.

mod config;
mod delivery;
mod dependencies;
mod event;
mod group_time;
mod hold_policy;
pub mod message;
mod periodic;
mod policy;
mod receive;
mod remote_mirror;
mod send;
mod snapshot;
mod stats;
mod stream;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use config::{DEFAULT_GIT, DeliveryOrder, DropCurve, DropPolicy, GtdMeasure, MirrorConfig, MirrorConfigError};
pub use event::{Delivery, IssueError, NewEvent};
pub use message::{MAX_OBSOLETE_SET, MAX_PAYLOAD, SourceId};
pub use send::{MirrorDestination, MirrorTransmit};
pub use stats::{GTD_BUCKET_WIDTH, GTD_BUCKETS, MirrorPeerStats, MirrorStats};

use crate::mirror::message::{EncodedEvent, ObsoleteSet};
use crate::time::{GroupInstant, Instant, TimeDelta};
use dependencies::DependencyTracker;
use group_time::GroupTime;
use policy::Dropper;
use remote_mirror::RemoteMirror;
use send::UnicastMessage;
use snapshot::{MirrorDownload, ServedSnapshot};
use stream::{EventFate, EventStream, MAX_SEQ, MAX_SEQ_DELTA_SIZE, MAX_UNSETTLED};

/// Maximum number of peers, and of event streams including those of departed sources.
const MAX_SOURCES: usize = 256;
/// Maximum number of queued [`MirrorEvent`]s; beyond it the oldest are discarded.
const MAX_EVENTS: usize = 1_024;

/// One of several servers that hold the same game state and exchange events. The host program drives it.
#[derive(Debug)]
pub struct Mirror {
    config: MirrorConfig,
    now: Instant,
    started_at: Instant,
    group_time: GroupTime,
    /// Lower bound on the issue time of this mirror's next event.
    issue_floor: GroupInstant,
    dependencies: DependencyTracker,
    streams: BTreeMap<SourceId, EventStream>,
    peers: BTreeMap<SourceId, RemoteMirror>,
    dropper: Dropper,
    /// Events queued for delivery in correlated order, in the order in which they became deliverable; unused in total
    /// order.
    ready: VecDeque<(SourceId, u64)>,
    /// Latest position (issue time, source, sequence number) delivered in total order; unused in correlated order.
    delivery_frontier: Option<(GroupInstant, SourceId, u64)>,
    /// Sequence number of this mirror's newest sent event. Without peers, events count as sent.
    last_sent_seq: u64,
    control_queue: VecDeque<(SourceId, UnicastMessage)>,
    next_beacon: Instant,
    /// Absent source whose status was sent last. The next beacon continues with the absent sources after it, in
    /// rotation.
    last_status_source: Option<SourceId>,
    served_snapshots: BTreeMap<SourceId, ServedSnapshot>,
    downloads: BTreeMap<SourceId, MirrorDownload>,
    /// Sources whose part of the state exceeds [`MirrorConfig::max_snapshot_size`], with the time at which the host
    /// program passed that part.
    oversized: BTreeMap<SourceId, Instant>,
    pending_requests: VecDeque<PendingRequest>,
    events: VecDeque<MirrorEvent>,
    is_leaving: bool,
    holds: hold_policy::HoldSchedule,
    /// Whether this mirror has said goodbye. It then sends nothing more, because a later datagram would look like a
    /// rejoin.
    has_left: bool,
    stats: MirrorStats,
}

/// A request to the host program, which must fulfil it before it polls the next delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorRequest {
    /// The host program must pass to [`Mirror::handle_snapshot`] the part of its current state that comes from a
    /// source's events.
    Snapshot {
        /// Source whose objects are requested.
        of: SourceId,
    },
    /// The host program must replace the part of its state that comes from a source's events with the state in `bytes`.
    Install {
        /// Source whose objects are replaced.
        of: SourceId,
        /// State that the host program of the providing mirror passed to [`Mirror::handle_snapshot`].
        bytes: Vec<u8>,
    },
}

/// A request that [`Mirror::poll_request`] has not returned yet.
#[derive(Debug)]
enum PendingRequest {
    Snapshot(SourceId),
    Install { of: SourceId, head: snapshot::SnapshotHead, bytes: Vec<u8> },
}

impl PendingRequest {
    fn memory(&self) -> usize {
        match self {
            Self::Snapshot(_) => 0,
            Self::Install { bytes, .. } => bytes.len(),
        }
    }
}

/// A notice to the host program, returned by [`Mirror::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// A mirror sent its first datagram, or its first one after it left, timed out or was removed. Datagrams within 2 s
    /// of the mirror's goodbye do not count.
    PeerJoined(SourceId),
    /// A present mirror said goodbye, timed out or was removed. Its objects stay as they are.
    PeerLeft(SourceId),
    /// This mirror dropped an event that is not obsolete, under [`DropPolicy::TwoCurve`] only. Earlier events may have
    /// been dropped because this event replaces them; their effect is then lost, too.
    EventAbandoned {
        /// Source that issued the event.
        source: SourceId,
        /// Sequence number of the event.
        seq: u64,
    },
    /// This mirror knew 256 sources and discarded the event stream of this absent one to make room for a present one.
    SourceForgotten(SourceId),
    /// A mirror lacks a part of the state that exceeds [`MirrorConfig::max_snapshot_size`], and does not get it from
    /// this mirror.
    SnapshotTooLong {
        /// Source whose events make up that part of the state.
        of: SourceId,
        /// Size of the snapshot in bytes, including its header.
        len: usize,
    },
    /// This mirror abandoned the download of a snapshot after 8 requests without progress. It starts another download
    /// if it still needs a snapshot and a present mirror can provide one.
    SnapshotUnavailable {
        /// Source whose events make up the snapshot.
        of: SourceId,
        /// Mirror that was asked for the snapshot.
        from: SourceId,
    },
}

impl Mirror {
    /// Creates a mirror. Fails if [`MirrorConfig::check`] does.
    pub fn new(now: Instant, config: MirrorConfig) -> Result<Self, MirrorConfigError> {
        config.check()?;
        let group_time = if config.is_founder { GroupTime::start(now) } else { GroupTime::default() };
        let streams = BTreeMap::from([(config.source, EventStream::new())]);
        Ok(Self {
            dropper: Dropper::new(config.policy, config.seed ^ u64::from(config.source.0) << 32),
            config,
            now,
            started_at: now,
            group_time,
            issue_floor: GroupInstant::from_nanos(i64::MIN),
            dependencies: DependencyTracker::default(),
            streams,
            peers: BTreeMap::new(),
            ready: VecDeque::new(),
            delivery_frontier: None,
            last_sent_seq: 0,
            control_queue: VecDeque::new(),
            next_beacon: now,
            last_status_source: None,
            served_snapshots: BTreeMap::new(),
            downloads: BTreeMap::new(),
            oversized: BTreeMap::new(),
            pending_requests: VecDeque::new(),
            events: VecDeque::new(),
            is_leaving: false,
            holds: hold_policy::HoldSchedule::default(),
            has_left: false,
            stats: MirrorStats::default(),
        })
    }

    /// Returns the settings passed to [`Mirror::new`].
    pub fn config(&self) -> &MirrorConfig {
        &self.config
    }

    /// Returns the source id under which this mirror issues events.
    pub fn source(&self) -> SourceId {
        self.config.source
    }

    /// Converts `now` to group time. Returns `None` until this mirror has started a group time or adopted that of a
    /// peer.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        self.group_time.to_group(now)
    }

    /// Adds a mirror that the network can reach. That mirror stays a peer until [`Mirror::remove_peer`] is called. A
    /// mirror that sends a datagram becomes a peer without this call and stays one until it has been silent for 20
    /// times [`MirrorConfig::silence_timeout`]. Does nothing if there are 256 other peers.
    pub fn add_peer(&mut self, now: Instant, source: SourceId) {
        self.ensure_peer(now, source);
        if let Some(peer) = self.peers.get_mut(&source) {
            peer.is_configured = true;
        }
    }

    fn ensure_peer(&mut self, now: Instant, source: SourceId) {
        if source != self.config.source && self.peers.len() < MAX_SOURCES {
            self.peers.entry(source).or_insert_with(|| RemoteMirror::new(now));
        }
    }

    /// Removes a peer. In total order, events of other mirrors then no longer wait for its events. The removed mirror
    /// becomes a peer again when it sends a datagram. A mirror that has said goodbye remains in [`Mirror::peers`] until
    /// it has been silent for 20 times [`MirrorConfig::silence_timeout`].
    pub fn remove_peer(&mut self, source: SourceId) {
        let Some(peer) = self.peers.get_mut(&source) else { return };
        let was_present = core::mem::replace(&mut peer.is_present, false);
        peer.is_configured = false;
        // A peer that said goodbye is removed later: its earlier datagrams may still be in flight.
        if peer.left_at.is_none() {
            self.peers.remove(&source);
        }
        if was_present {
            self.push_event(MirrorEvent::PeerLeft(source));
        }
        self.control_queue.retain(|(to, _)| *to != source);
    }

    /// Returns the peers that have sent a datagram within the silence timeout and have not left.
    pub fn present_peers(&self) -> impl Iterator<Item = SourceId> {
        self.peers.iter().filter(|(_, peer)| peer.is_present).map(|(source, _)| *source)
    }

    /// Returns all peers, the recipients of [`MirrorDestination::All`], including absent ones and those that have not
    /// sent anything yet.
    pub fn peers(&self) -> impl Iterator<Item = SourceId> {
        self.peers.keys().copied()
    }

    fn is_present(&self, source: SourceId) -> bool {
        source == self.config.source || self.peers.get(&source).is_some_and(|peer| peer.is_present)
    }

    /// Issues an event and returns its sequence number. [`Mirror::poll_delivery`] of this mirror returns the event,
    /// too, at its place in the delivery order, unless this mirror drops it as obsolete before.
    pub fn issue(&mut self, now: Instant, new_event: NewEvent<'_>) -> Result<u64, IssueError> {
        self.now = self.now.max(now);
        let (own_source, now) = (self.config.source, self.now);
        let at = self.group_time.to_group(now).ok_or(IssueError::NoGroupTime)?.max(self.issue_floor);
        let own = self.streams.entry(own_source).or_insert_with(EventStream::new);
        let seq = own.newest() + 1;
        if new_event.payload.len() > MAX_PAYLOAD {
            return Err(IssueError::TooLong);
        }
        if seq > own.settled().saturating_add(MAX_UNSETTLED) || seq > MAX_SEQ {
            return Err(IssueError::TooManyPending);
        }
        self.issue_floor = at;
        let dependencies =
            self.dependencies.add_event(seq, new_event.key, new_event.is_replaceable, self.config.max_obsolete_set);
        let mut buf = [0; MAX_OBSOLETE_SET * MAX_SEQ_DELTA_SIZE];
        let mut writer = crate::codec::ByteWriter::new(&mut buf);
        let written = ObsoleteSet::write(seq, dependencies.newest_first(), &mut writer);
        assert!(written.is_ok(), "an obsolete set has at most {MAX_OBSOLETE_SET} members");
        let len = writer.len();
        let event = EncodedEvent {
            source: own_source,
            seq,
            issued_at: at,
            key: new_event.key,
            after: dependencies.after,
            is_barrier: dependencies.barrier,
            replaces: new_event.replaces,
            obsolete_set: ObsoleteSet::from_bytes(seq, &buf[..len]),
            payload: new_event.payload,
        };
        own.insert(now, &event);
        self.stats.issued += 1;
        self.enqueue(own_source, seq);
        Ok(seq)
    }

    /// Makes [`Mirror::poll_transmit`] return the events that were not sent yet, then a goodbye as the last datagram.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Returns the oldest queued event for the host program.
    pub fn poll_event(&mut self) -> Option<MirrorEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, event: MirrorEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the sequence number up to which all events of a source are settled here: delivered or dropped. 0 for an
    /// unknown source.
    pub fn settled(&self, source: SourceId) -> u64 {
        self.streams.get(&source).map_or(0, EventStream::settled)
    }

    /// Returns the highest sequence number up to which some present peer has reported all of this mirror's events as
    /// settled. `None` if no peer is present.
    pub fn replicated_up_to(&self) -> Option<u64> {
        let present = self.peers.values().filter(|peer| peer.is_present);
        present.map(|peer| peer.stream_status(self.config.source).map_or(0, |have| have.settled_end)).max()
    }

    /// Returns whether an event was dropped here. `false` for an event that is no longer kept for other mirrors.
    pub fn is_dropped(&self, source: SourceId, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.fate(seq) == EventFate::Dropped)
    }

    /// Returns all sources whose event stream this mirror keeps, including itself and departed sources.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> {
        self.streams.keys().copied()
    }

    /// Returns the counters and game time differences since this mirror was created.
    pub fn stats(&self) -> &MirrorStats {
        &self.stats
    }

    /// Returns the statistics of a peer's clock and event stream. `None` if `source` is not a peer.
    pub fn peer_stats(&self, now: Instant, source: SourceId) -> Option<MirrorPeerStats> {
        let peer = self.peers.get(&source)?;
        let stream = self.streams.get(&source);
        Some(MirrorPeerStats {
            rtt: peer.clock.rtt(),
            jitter: peer.clock.jitter(),
            clock_offset: peer.clock.is_ready().then(|| peer.clock.offset(now)).flatten(),
            backlog: stream.map_or(0, EventStream::backlog),
            missing: stream.map_or(0, |stream| stream.missing().len()),
            settled: stream.map_or(0, EventStream::settled),
        })
    }

    /// Returns the approximate heap size in bytes.
    pub fn memory(&self) -> usize {
        self.streams.values().map(EventStream::memory).sum::<usize>()
            + self.peers.values().map(|peer| peer.memory() + size_of::<RemoteMirror>()).sum::<usize>()
            + self.pending_requests.iter().map(PendingRequest::memory).sum::<usize>()
            + self.served_snapshots.values().map(ServedSnapshot::memory).sum::<usize>()
            + self.downloads.values().map(MirrorDownload::memory).sum::<usize>()
            + self.control_queue.capacity() * size_of::<(SourceId, UnicastMessage)>()
            + self.ready.capacity() * size_of::<(SourceId, u64)>()
            + self.dependencies.memory()
    }

    /// Returns the age of an event issued at `at`, never negative. It is 0 while the group time is unknown.
    fn age(&self, at: GroupInstant) -> TimeDelta {
        self.group_time.to_group(self.now).map_or(TimeDelta::ZERO, |now| (now - at).max(TimeDelta::ZERO))
    }
}
