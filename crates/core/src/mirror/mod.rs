//! Servers that mirror each other: every one holds the whole game, serves those who are near it, and tells the others what happens.
//!
//! After Palazzi, Ferretti, Cacciaguerra and Roccetti, *On Maintaining Interactivity in Event Delivery Synchronization for Mirrored Game
//! Architectures*. What happens is an *event*, with the time at which it was issued. How old it is when it is delivered is its *game time
//! difference*; what is older than a threshold (150 ms) is felt. Events that do not concern each other need no order; those of one
//! object do (*correlation*). Some make earlier ones useless (*obsolescence*), and those need not be delivered, nor waited for, nor asked for
//! again, where that helps the others to be in time ([`Policy`]).
//!
//! Where we depart from the paper. Obsolescence and correlation are data in the events, worked out by who issues them: a game says with each event
//! what it is about ([`Issue::key`]), whether it replaces earlier ones, and whether it can be replaced. An event carries the numbers of the
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
//! [`TwoCurve`](Policy::TwoCurve), which gives up others), and it is the state of a mirror that drops nothing.
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

mod adapt;
mod config;
mod event;
mod issuer;
mod order;
mod peer;
mod policy;
mod receive;
mod send;
mod snapshot;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod tidy;
mod time;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

pub use config::{Config, ConfigError, Curve, Measure, Order, Policy, THRESHOLD};
pub use event::{Delivery, Issue, IssueError, MAX_PAYLOAD, MAX_RUN, Source};
pub use send::{To, Transmit};
pub use stats::{PeerStats, STEP, STEPS, Stats};

use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{EventRef, ObsoleteSet};
use issuer::Issuer;
use peer::Peer;
use policy::Dropper;
use send::Control;
use snapshot::{Download, Given};
use stream::{Fate, LONGEST_STEP, MAX_SEQ, Stream, WINDOW};
use time::GroupTime;

/// The most sources whose events are known, the gone ones included.
const MAX_SOURCES: usize = 256;
/// Notices that nobody asked for yet.
const MAX_NOTICES: usize = 1_024;

/// One of several servers that hold the same game.
#[derive(Debug)]
pub struct Mirror {
    config: Config,
    now: Instant,
    began: Instant,
    time: GroupTime,
    /// Nothing of ours is issued at an earlier time any more.
    last_at: GroupInstant,
    issuer: Issuer,
    streams: BTreeMap<Source, Stream>,
    peers: BTreeMap<Source, Peer>,
    dropper: Dropper,
    /// Events whose turn it is, but in total order.
    ready: VecDeque<(Source, u64)>,
    /// The furthest that was delivered in total order.
    reached: Option<(GroupInstant, Source, u64)>,
    /// Our events up to this one were sent.
    sent: u64,
    control: VecDeque<(Source, Control)>,
    next_beacon: Instant,
    /// The source of which was told last: they are told of in turn.
    told: Option<Source>,
    given: BTreeMap<Source, Given>,
    downloads: BTreeMap<Source, Download>,
    /// Sources whose part of the state is too long for a snapshot, and since when that is known.
    too_long: BTreeMap<Source, Instant>,
    requests: VecDeque<Wanted>,
    notices: VecDeque<Notice>,
    leaving: bool,
    holds: adapt::Holds,
    /// We said goodbye: whatever came after that would look as if we were back.
    is_gone: bool,
    stats: Stats,
}

/// What the host program is asked for. Each is to be done before anything else is delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The part of the state that comes from a source's events, as it is now: for [`Mirror::handle_snapshot`].
    Snapshot {
        /// Whose objects.
        of: Source,
    },
    /// In place of that part of the state comes what another mirror had.
    Install {
        /// Whose objects.
        of: Source,
        /// What the other's host program gave.
        bytes: Vec<u8>,
    },
}

/// What is wanted of the host program, with what we keep until it is.
#[derive(Debug)]
enum Wanted {
    Snapshot(Source),
    Install { of: Source, head: snapshot::Head, bytes: Vec<u8> },
}

impl Wanted {
    fn memory(&self) -> usize {
        match self {
            Self::Snapshot(_) => 0,
            Self::Install { bytes, .. } => bytes.len(),
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A mirror was heard for the first time, or for the first time after a long silence.
    Came(Source),
    /// A mirror said goodbye, or was not heard for long. Its objects stay as they are.
    Left(Source),
    /// An event was given up that was not obsolete: [`Policy::TwoCurve`] only. What it replaced is given up with it.
    GaveUp {
        /// Whose.
        source: Source,
        /// Which.
        seq: u64,
    },
    /// There were too many sources; of this one, which has long been gone, nothing is known any more.
    Forgot(Source),
    /// Somebody lacks a part of the state that is longer than a snapshot may be ([`Config::snapshot_id`]), and does not get it from us.
    TooLong {
        /// Whose objects.
        of: Source,
        /// How long it is, in bytes.
        len: usize,
    },
    /// We lack a part of the state and did not get it from who has it. It is asked for again.
    NoSnapshot {
        /// Whose objects.
        of: Source,
        /// Who was asked.
        from: Source,
    },
}

impl Mirror {
    /// A mirror that begins now.
    pub fn new(now: Instant, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let time = if config.founder { GroupTime::begin(now) } else { GroupTime::default() };
        let streams = BTreeMap::from([(config.source, Stream::new())]);
        Ok(Self {
            dropper: Dropper::new(config.policy, config.seed ^ u64::from(config.source.0) << 32),
            config,
            now,
            began: now,
            time,
            last_at: GroupInstant::from_nanos(i64::MIN),
            issuer: Issuer::default(),
            streams,
            peers: BTreeMap::new(),
            ready: VecDeque::new(),
            reached: None,
            sent: 0,
            control: VecDeque::new(),
            next_beacon: now,
            told: None,
            given: BTreeMap::new(),
            downloads: BTreeMap::new(),
            too_long: BTreeMap::new(),
            requests: VecDeque::new(),
            notices: VecDeque::new(),
            leaving: false,
            holds: adapt::Holds::default(),
            is_gone: false,
            stats: Stats::default(),
        })
    }

    /// What was chosen.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Who we are.
    pub fn source(&self) -> Source {
        self.config.source
    }

    /// The group's time, if it is known.
    pub fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        self.time.at(now)
    }

    /// There is a way to a mirror: it is talked to until it is removed. Whoever is heard is known without this, and forgotten when it is gone for long.
    pub fn add_peer(&mut self, now: Instant, source: Source) {
        self.learn_of_peer(now, source);
        if let Some(peer) = self.peers.get_mut(&source) {
            peer.is_vouched_for = true;
        }
    }

    fn learn_of_peer(&mut self, now: Instant, source: Source) {
        if source != self.config.source && self.peers.len() < MAX_SOURCES {
            self.peers.entry(source).or_insert_with(|| Peer::new(now));
        }
    }

    /// A mirror is no more: nobody waits for it.
    pub fn remove_peer(&mut self, source: Source) {
        let Some(peer) = self.peers.get_mut(&source) else { return };
        let was_here = core::mem::replace(&mut peer.is_here, false);
        peer.is_vouched_for = false;
        // Who said goodbye is forgotten later: what it said before may still be under way.
        if peer.left.is_none() {
            self.peers.remove(&source);
        }
        if was_here {
            self.tell(Notice::Left(source));
        }
        self.control.retain(|(to, _)| *to != source);
    }

    /// The mirrors that are here, but for ourselves.
    pub fn present(&self) -> impl Iterator<Item = Source> {
        self.peers.iter().filter(|(_, peer)| peer.is_here).map(|(source, _)| *source)
    }

    /// All to whom what is for [`To::All`] goes: also those that were not heard yet.
    pub fn peers(&self) -> impl Iterator<Item = Source> {
        self.peers.keys().copied()
    }

    fn is_here(&self, source: Source) -> bool {
        source == self.config.source || self.peers.get(&source).is_some_and(|peer| peer.is_here)
    }

    /// Issues an event; it is delivered here as everywhere, at its turn. Its number.
    pub fn issue(&mut self, now: Instant, issue: Issue<'_>) -> Result<u64, IssueError> {
        self.now = self.now.max(now);
        let (me, now) = (self.config.source, self.now);
        let at = self.time.at(now).ok_or(IssueError::NoTime)?.max(self.last_at);
        let own = self.streams.entry(me).or_insert_with(Stream::new);
        let seq = own.newest() + 1;
        if issue.payload.len() > MAX_PAYLOAD {
            return Err(IssueError::TooLong);
        }
        if seq > own.settled().saturating_add(WINDOW) || seq > MAX_SEQ {
            return Err(IssueError::Full);
        }
        self.last_at = at;
        let links = self.issuer.link(seq, issue.key, issue.replaceable, self.config.run);
        let mut buf = [0; MAX_RUN * LONGEST_STEP];
        let mut writer = crate::wire::ByteWriter::new(&mut buf);
        let run = ObsoleteSet::write(seq, links.newest_first(), &mut writer);
        assert!(run.is_ok(), "a run has at most {MAX_RUN} numbers");
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
        self.leaving = true;
    }

    /// Something that happened since this was last asked.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn tell(&mut self, notice: Notice) {
        if self.notices.len() >= MAX_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// All events of a source up to this number are settled here: delivered, or dropped.
    pub fn settled(&self, source: Source) -> u64 {
        self.streams.get(&source).map_or(0, Stream::settled)
    }

    /// The newest of our events up to which some other mirror that is here has all; nothing if none is here.
    pub fn known_elsewhere(&self) -> Option<u64> {
        let here = self.peers.values().filter(|peer| peer.is_here);
        here.map(|peer| peer.have(self.config.source).map_or(0, |have| have.settled_end)).max()
    }

    /// Whether an event was dropped here. Only of those is it known that are still kept for others.
    pub fn is_dropped(&self, source: Source, seq: u64) -> bool {
        self.streams.get(&source).is_some_and(|stream| stream.fate(seq) == Fate::Dropped)
    }

    /// All sources whose events are known, also those that are gone.
    pub fn sources(&self) -> impl Iterator<Item = Source> {
        self.streams.keys().copied()
    }

    /// Numbers.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What is known of another mirror.
    pub fn peer_stats(&self, now: Instant, source: Source) -> Option<PeerStats> {
        let peer = self.peers.get(&source)?;
        let stream = self.streams.get(&source);
        Some(PeerStats {
            rtt: peer.clock.rtt(),
            jitter: peer.clock.jitter(),
            offset: peer.clock.is_ready().then(|| peer.clock.offset(now)).flatten(),
            backlog: stream.map_or(0, Stream::backlog),
            missing: stream.map_or(0, |stream| stream.missing().len()),
            settled: stream.map_or(0, Stream::settled),
        })
    }

    /// Bytes on the heap, roughly.
    pub fn memory(&self) -> usize {
        self.streams.values().map(Stream::memory).sum::<usize>()
            + self.peers.values().map(|peer| peer.memory() + size_of::<Peer>()).sum::<usize>()
            + self.requests.iter().map(Wanted::memory).sum::<usize>()
            + self.given.values().map(Given::memory).sum::<usize>()
            + self.downloads.values().map(Download::memory).sum::<usize>()
            + self.control.capacity() * size_of::<(Source, Control)>()
            + self.ready.capacity() * size_of::<(Source, u64)>()
            + self.issuer.memory()
    }

    /// How old an event is now.
    fn age(&self, at: GroupInstant) -> TimeDelta {
        self.time.at(self.now).map_or(TimeDelta::ZERO, |now| (now - at).max(TimeDelta::ZERO))
    }
}
