//! Servers that mirror each other: every one holds the whole game, serves those who are near it, and tells the others what happens.
//!
//! After Palazzi, Ferretti, Cacciaguerra and Roccetti, *On Maintaining Interactivity in Event Delivery Synchronization for Mirrored Game
//! Architectures*. What happens is an *event*, with the time at which it was issued. How old it is when it is delivered is its *game time
//! difference*; what is older than a threshold (150 ms) is felt. Events that do not concern each other need no order; those of one
//! object do (*correlation*). Some make earlier ones useless (*obsolescence*), and those need not be delivered, nor waited for, nor asked for
//! again, where that helps the others to be in time ([`DropPolicy`]).
//!
//! Where we depart from the paper. Obsolescence and correlation are data in the events, worked out by who issues them: a game says with each event
//! what it is about ([`NewEvent::key`]), whether it replaces earlier ones, and whether it can be replaced. An event carries the numbers of the
//! replaceable events of its key since the last that is not (its *run*) and the number of that one. So a receiver knows of an event that was lost
//! whether it matters, and of one that is here whether it may be delivered, from the stream of one source alone. Events about an object are issued by
//! its owner only; if it gets another owner it gets another key. So the game's state falls into one part for each source, and a *snapshot* is of such a
//! part: coming late, coming back and the end of a partition are all the same, stream by stream.
//!
//! # No policy changes what becomes of the game
//!
//! **Theorem.** Let the state of the game be a fold over events such that
//!
//! 1. events of different keys, of different sources, or with key 0, commute, and
//! 2. whenever an event `f` *replaces*, then after any state and any *replaceable* events `r1 … rn` of its key, folding `r1 … rn, f` gives the same as
//!    folding `f` alone.
//!
//! Then every mirror that has settled the same events has the same state, whatever it dropped under whatever policy (but
//! [`TwoCurve`](DropPolicy::TwoCurve), which gives up others), and it is the state of a mirror that drops nothing.
//!
//! *Proof.* By 1 only the order within a key counts. It is that of the numbers at every mirror: the run of an event and the event before the run are
//! all that is of its key and after the last irreplaceable one, an event is delivered only when these are settled, and what is settled is never
//! delivered any more. An event `e` is dropped only if it is in the run of an event `f` that replaces and is here: so `e` is replaceable, and all of
//! the key between `e` and `f` is. Take the dropped event `e` with the highest number. Its `f` is not dropped, so it was folded in; by 2, folding
//! `e` and what is between, then `f`, gives the same as `f` alone, which gives the same as what is between without `e`, then `f`. So with `e` in
//! its place the state is the same. For the next highest the same holds with `f` or, if `f` itself was dropped, with what replaced that: between them
//! there are only replaceable events again, and numbers grow, so there is a last one, and it is folded in. One by one, all dropped events can be put
//! back. ∎
//!
//! Where a source dies, what it had told nobody who is left is lost. Of the rest everybody gets everything, from whoever has it; what comes after a
//! lost event of its key, and does not replace it, is delivered nowhere. So all who are left agree.
//!
//! # Use
//!
//! The host program owns clock, network and game, and calls [`Mirror::handle_datagram`], [`Mirror::issue`], then [`Mirror::poll_request`],
//! [`Mirror::poll_delivery`] and [`Mirror::poll_transmit`] until they have nothing, and again at [`Mirror::poll_timeout`]. Nothing in here calls the game.

mod config;
mod delivery;
mod dependencies;
mod event;
mod gc;
mod group_time;
mod hold_policy;
mod peer;
mod policy;
mod receive;
mod send;
mod snapshot;
mod stats;
mod stream;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use config::{DEFAULT_GIT, DeliveryOrder, DropCurve, DropPolicy, GtdMeasure, MirrorConfig, MirrorConfigError};
pub use event::{Delivery, IssueError, MAX_OBSOLETE_SET, MAX_PAYLOAD, NewEvent, SourceId};
pub use send::{MirrorDestination, MirrorTransmit};
pub use stats::{GTD_BUCKET_WIDTH, GTD_BUCKETS, MirrorPeerStats, MirrorStats};

use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{EventRef, ObsoleteSet};
use dependencies::DependencyTracker;
use group_time::GroupTime;
use peer::MirrorPeer;
use policy::Dropper;
use send::MirrorControl;
use snapshot::{MirrorDownload, ServedSnapshot};
use stream::{EventFate, EventStream, MAX_SEQ, MAX_SEQ_DELTA_SIZE, MAX_UNSETTLED};

/// The most sources whose events are known, the gone ones included.
const MAX_SOURCES: usize = 256;
/// Notices that nobody asked for yet.
const MAX_EVENTS: usize = 1_024;

/// One of several servers that hold the same game.
#[derive(Debug)]
pub struct Mirror {
    config: MirrorConfig,
    now: Instant,
    started_at: Instant,
    group_time: GroupTime,
    /// Nothing of ours is issued at an earlier time any more.
    issue_floor: GroupInstant,
    dependencies: DependencyTracker,
    streams: BTreeMap<SourceId, EventStream>,
    peers: BTreeMap<SourceId, MirrorPeer>,
    dropper: Dropper,
    /// Events whose turn it is, but in total order.
    ready: VecDeque<(SourceId, u64)>,
    /// The furthest that was delivered in total order.
    delivery_frontier: Option<(GroupInstant, SourceId, u64)>,
    /// Our events up to this one were sent.
    last_sent_seq: u64,
    control_queue: VecDeque<(SourceId, MirrorControl)>,
    next_beacon: Instant,
    /// The source of which was told last: they are told of in turn.
    last_have_source: Option<SourceId>,
    served_snapshots: BTreeMap<SourceId, ServedSnapshot>,
    downloads: BTreeMap<SourceId, MirrorDownload>,
    /// Sources whose part of the state is too long for a snapshot, and since when that is known.
    oversized: BTreeMap<SourceId, Instant>,
    pending_requests: VecDeque<PendingRequest>,
    events: VecDeque<MirrorEvent>,
    is_leaving: bool,
    holds: hold_policy::HoldSchedule,
    /// We said goodbye: whatever came after that would look as if we were back.
    has_left: bool,
    stats: MirrorStats,
}

/// What the host program is asked for. Each is to be done before anything else is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorRequest {
    /// The part of the state that comes from a source's events, as it is now: for [`Mirror::handle_snapshot`].
    Snapshot {
        /// Whose objects.
        of: SourceId,
    },
    /// In place of that part of the state comes what another mirror had.
    Install {
        /// Whose objects.
        of: SourceId,
        /// What the other's host program gave.
        bytes: Vec<u8>,
    },
}

/// What is wanted of the host program, with what we keep until it is.
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

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorEvent {
    /// A mirror was heard for the first time, or for the first time after a long silence.
    PeerJoined(SourceId),
    /// A mirror said goodbye, or was not heard for long. Its objects stay as they are.
    PeerLeft(SourceId),
    /// An event was given up that was not obsolete: [`DropPolicy::TwoCurve`] only. What it replaced is given up with it.
    EventAbandoned {
        /// Whose.
        source: SourceId,
        /// Which.
        seq: u64,
    },
    /// There were too many sources; of this one, which has long been gone, nothing is known any more.
    SourceForgotten(SourceId),
    /// Somebody lacks a part of the state that is longer than a snapshot may be ([`Config::snapshot_id`]), and does not get it from us.
    SnapshotTooLong {
        /// Whose objects.
        of: SourceId,
        /// How long it is, in bytes.
        len: usize,
    },
    /// We lack a part of the state and did not get it from who has it. It is asked for again.
    SnapshotUnavailable {
        /// Whose objects.
        of: SourceId,
        /// Who was asked.
        from: SourceId,
    },
}

impl Mirror {
    /// A mirror that begins now.
    pub fn new(now: Instant, config: MirrorConfig) -> Result<Self, MirrorConfigError> {
        config.check()?;
        let time = if config.is_founder { GroupTime::start(now) } else { GroupTime::default() };
        let streams = BTreeMap::from([(config.source, EventStream::new())]);
        Ok(Self {
            dropper: Dropper::new(config.policy, config.seed ^ u64::from(config.source.0) << 32),
            config,
            now,
            started_at: now,
            group_time: time,
            issue_floor: GroupInstant::from_nanos(i64::MIN),
            dependencies: DependencyTracker::default(),
            streams,
            peers: BTreeMap::new(),
            ready: VecDeque::new(),
            delivery_frontier: None,
            last_sent_seq: 0,
            control_queue: VecDeque::new(),
            next_beacon: now,
            last_have_source: None,
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

    /// What was chosen.
    pub fn config(&self) -> &MirrorConfig {
        &self.config
    }

    /// Who we are.
    pub fn source(&self) -> SourceId {
        self.config.source
    }

    /// The group's time, if it is known.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        self.group_time.to_group(now)
    }

    /// There is a way to a mirror: it is talked to until it is removed. Whoever is heard is known without this, and forgotten when it is gone for long.
    pub fn add_peer(&mut self, now: Instant, source: SourceId) {
        self.ensure_peer(now, source);
        if let Some(peer) = self.peers.get_mut(&source) {
            peer.is_configured = true;
        }
    }

    fn ensure_peer(&mut self, now: Instant, source: SourceId) {
        if source != self.config.source && self.peers.len() < MAX_SOURCES {
            self.peers.entry(source).or_insert_with(|| MirrorPeer::new(now));
        }
    }

    /// A mirror is no more: nobody waits for it.
    pub fn remove_peer(&mut self, source: SourceId) {
        let Some(peer) = self.peers.get_mut(&source) else { return };
        let was_here = core::mem::replace(&mut peer.is_present, false);
        peer.is_configured = false;
        // Who said goodbye is forgotten later: what it said before may still be under way.
        if peer.left_at.is_none() {
            self.peers.remove(&source);
        }
        if was_here {
            self.push_event(MirrorEvent::PeerLeft(source));
        }
        self.control_queue.retain(|(to, _)| *to != source);
    }

    /// The mirrors that are here, but for ourselves.
    pub fn present_peers(&self) -> impl Iterator<Item = SourceId> {
        self.peers.iter().filter(|(_, peer)| peer.is_present).map(|(source, _)| *source)
    }

    /// All to whom what is for [`To::All`] goes: also those that were not heard yet.
    pub fn peers(&self) -> impl Iterator<Item = SourceId> {
        self.peers.keys().copied()
    }

    fn is_present(&self, source: SourceId) -> bool {
        source == self.config.source || self.peers.get(&source).is_some_and(|peer| peer.is_present)
    }

    /// Issues an event; it is delivered here as everywhere, at its turn. Its number.
    pub fn issue(&mut self, now: Instant, issue: NewEvent<'_>) -> Result<u64, IssueError> {
        self.now = self.now.max(now);
        let (me, now) = (self.config.source, self.now);
        let at = self.group_time.to_group(now).ok_or(IssueError::NoGroupTime)?.max(self.issue_floor);
        let own = self.streams.entry(me).or_insert_with(EventStream::new);
        let seq = own.newest() + 1;
        if issue.payload.len() > MAX_PAYLOAD {
            return Err(IssueError::TooLong);
        }
        if seq > own.settled().saturating_add(MAX_UNSETTLED) || seq > MAX_SEQ {
            return Err(IssueError::TooManyPending);
        }
        self.issue_floor = at;
        let links = self.dependencies.add_event(seq, issue.key, issue.is_replaceable, self.config.max_obsolete_set);
        let mut buf = [0; MAX_OBSOLETE_SET * MAX_SEQ_DELTA_SIZE];
        let mut writer = crate::wire::ByteWriter::new(&mut buf);
        let run = ObsoleteSet::write(seq, links.newest_first(), &mut writer);
        assert!(run.is_ok(), "a run has at most {MAX_OBSOLETE_SET} numbers");
        let len = writer.len();
        let happening = EventRef {
            source: me,
            seq,
            issued_at: at,
            key: issue.key,
            after: links.after,
            is_barrier: links.barrier,
            replaces: issue.replaces,
            obsolete_set: ObsoleteSet::from_bytes(seq, &buf[..len]),
            payload: issue.payload,
        };
        own.insert(now, &happening);
        self.stats.issued += 1;
        self.enqueue(me, seq);
        Ok(seq)
    }

    /// Says goodbye with the next datagrams, and nothing after that.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Something that happened since this was last asked.
    pub fn poll_event(&mut self) -> Option<MirrorEvent> {
        self.events.pop_front()
    }

    fn push_event(&mut self, notice: MirrorEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(notice);
    }

    /// All events of a source up to this number are settled here: delivered, or dropped.
    pub fn settled(&self, source: SourceId) -> u64 {
        self.streams.get(&source).map_or(0, EventStream::settled)
    }

    /// The newest of our events up to which some other mirror that is here has all; nothing if none is here.
    pub fn replicated_up_to(&self) -> Option<u64> {
        let here = self.peers.values().filter(|peer| peer.is_present);
        here.map(|peer| peer.have(self.config.source).map_or(0, |have| have.settled_end)).max()
    }

    /// Whether an event was dropped here. Only of those is it known that are still kept for others.
    pub fn is_dropped(&self, source: SourceId, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.fate(seq) == EventFate::Dropped)
    }

    /// All sources whose events are known, also those that are gone.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> {
        self.streams.keys().copied()
    }

    /// Numbers.
    pub fn stats(&self) -> &MirrorStats {
        &self.stats
    }

    /// What is known of another mirror.
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

    /// Bytes on the heap, roughly.
    pub fn memory(&self) -> usize {
        self.streams.values().map(EventStream::memory).sum::<usize>()
            + self.peers.values().map(|peer| peer.memory() + size_of::<MirrorPeer>()).sum::<usize>()
            + self.pending_requests.iter().map(PendingRequest::memory).sum::<usize>()
            + self.served_snapshots.values().map(ServedSnapshot::memory).sum::<usize>()
            + self.downloads.values().map(MirrorDownload::memory).sum::<usize>()
            + self.control_queue.capacity() * size_of::<(SourceId, MirrorControl)>()
            + self.ready.capacity() * size_of::<(SourceId, u64)>()
            + self.dependencies.memory()
    }

    /// How old an event is now.
    fn age(&self, at: GroupInstant) -> TimeDelta {
        self.group_time.to_group(self.now).map_or(TimeDelta::ZERO, |now| (now - at).max(TimeDelta::ZERO))
    }
}
