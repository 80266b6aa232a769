//! Sending end of a spectator feed: takes confirmed frames and snapshots, and produces the datagrams for all
//! subscribers.

mod config;
mod send;
mod subscribers;

pub use config::FeedConfig;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::batch::Batch;
use super::event::{EventQueue, FeedEvent, FeedStats};
use super::history::History;
use super::snapshot::SnapshotStore;
use super::subscriber::Subscriber;
use super::{KEEP_ALIVE_INTERVAL, MAX_RECORD_SIZE, merged_layout, settings_digest};
use crate::codec::MAX_DATAGRAM;
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::{InputLayout, InputWord, MAX_WIDTH};
use crate::settings::SettingsError;
use crate::spectator_feed::message::{CloseReason, MAX_RECORD_FRAMES};
use crate::time::{Instant, TimeDelta};
use subscribers::MAX_REMEMBERED_DROPS;

/// Largest number of queued replies. Further ones are discarded; a sender without a reply repeats its request.
const MAX_PENDING_REPLIES: usize = 256;
/// Largest number of events kept for a host program that does not poll them. Older events are discarded.
const MAX_EVENTS: usize = 64;
/// Pause between calls beyond which the host program counts as suspended. The silence timeouts then restart.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(1);

/// Sending end of a spectator feed. The host program pushes confirmed frames, passes received datagrams in, and sends
/// the datagrams that [`Feed::poll_transmit`] writes.
#[derive(Debug)]
pub struct Feed {
    config: FeedConfig,
    layout: InputLayout,
    settings_digest: u64,
    batch: Batch,
    /// The next frame to be pushed; `None` before the first push.
    next_frame: Option<Frame>,
    history: History,
    snapshots: SnapshotStore,
    subscribers: Vec<Subscriber>,
    free_slots: Vec<u32>,
    slot_by_addr: BTreeMap<Addr, u32>,
    /// Number of subscribers that wait for a snapshot.
    awaiting_snapshot: usize,
    pending_replies: VecDeque<(Addr, PendingReply)>,
    /// Index of the subscriber slot served last in the live round.
    live_cursor: usize,
    /// Number of slots that are still to be served in the live round.
    live_turns_left: usize,
    /// The last packet of live frames, reused for every subscriber that needs the same frames.
    live_packet: LivePacket,
    bulk_queue: VecDeque<u32>,
    bulk_allowed_at: Instant,
    /// Earliest time at which a subscriber that was passed over for lack of its own budget may receive bulk again.
    share_allowed_at: Instant,
    next_keep_alive: Instant,
    has_ended: bool,
    now: Instant,
    /// Start of the period without a host pause longer than [`HOST_SUSPENDED`].
    awake_since: Instant,
    /// Subscribers dropped last, with the reason. The feed repeats its close message to a dropped subscriber that still
    /// sends.
    recently_dropped: VecDeque<(Addr, CloseReason)>,
    events: EventQueue<FeedEvent>,
    stats: FeedStats,
}

/// Message to a subscriber, or to the sender of a request, that is queued without its contents and encoded when it is
/// sent.
#[derive(Clone, Copy, Debug)]
enum PendingReply {
    Challenge,
    Welcome,
    Offer(u16),
    Bye(CloseReason),
}

/// Encoded packet of live frames.
#[derive(Debug)]
struct LivePacket {
    /// State of the subscribers for which the packet was built: first unsent frame, end of the history, thinning level.
    key: Option<(Frame, Frame, u8)>,
    end: Frame,
    len: usize,
    bytes: [u8; MAX_DATAGRAM],
}

impl Feed {
    /// Creates a feed without subscribers. Fails if the settings are invalid.
    pub fn new(config: FeedConfig) -> Result<Self, SettingsError> {
        config.settings.check()?;
        let layout = merged_layout(&config.settings);
        let batch = config.batch_frames.clamp(1, MAX_RECORD_FRAMES);
        let records = config.history_frames.div_ceil(batch) as usize;
        Ok(Self {
            settings_digest: settings_digest(&config.settings),
            batch: Batch::new(layout.width()),
            layout,
            next_frame: None,
            history: History::new(records, config.history_bytes, config.log_bytes),
            snapshots: SnapshotStore::default(),
            subscribers: Vec::new(),
            free_slots: Vec::new(),
            slot_by_addr: BTreeMap::new(),
            awaiting_snapshot: 0,
            pending_replies: VecDeque::with_capacity(MAX_PENDING_REPLIES),
            live_cursor: 0,
            live_turns_left: 0,
            live_packet: LivePacket { key: None, end: Frame::ZERO, len: 0, bytes: [0; MAX_DATAGRAM] },
            bulk_queue: VecDeque::new(),
            bulk_allowed_at: Instant::from_nanos(i64::MIN),
            share_allowed_at: Instant::from_nanos(i64::MIN),
            next_keep_alive: Instant::from_nanos(i64::MIN),
            has_ended: false,
            now: Instant::from_nanos(i64::MIN),
            awake_since: Instant::from_nanos(i64::MIN),
            recently_dropped: VecDeque::with_capacity(MAX_REMEMBERED_DROPS),
            events: EventQueue::new(MAX_EVENTS),
            stats: FeedStats::default(),
            config: FeedConfig { batch_frames: batch, ..config },
        })
    }

    /// Adds a confirmed frame with one input word per player. The first frame may have any number; every other must
    /// follow its predecessor, or the call panics.
    pub fn push(&mut self, now: Instant, frame: Frame, words: &[InputWord]) {
        let now = self.advance_clock(now);
        assert!(self.next_frame.is_none_or(|next| next == frame), "frames must be pushed in order");
        self.next_frame = Some(frame.next());
        let mut packed = [0; MAX_WIDTH];
        let packed = &mut packed[..self.layout.width()];
        self.layout.pack(words, packed);
        if self.batch.count() >= self.config.batch_frames || !self.batch.push(now, frame, packed) {
            self.close_batch(now);
            assert!(self.batch.push(now, frame, packed), "a frame fits into an empty batch");
        }
        if self.awaiting_snapshot > 0 && self.snapshots.newest().is_some_and(|newest| newest.next_frame == frame.next())
        {
            self.offer_to_waiting(now);
        }
    }

    /// Adds the state hash after a frame that was already pushed; a hash of a later frame is ignored. Each batch
    /// carries only the last hash added.
    pub fn push_hash(&mut self, frame: Frame, hash: u64) {
        if self.next_frame.is_some_and(|next| frame < next) {
            self.batch.hash = Some((frame, hash));
        }
    }

    /// Ends the feed: no frame will follow. Keep polling for a while, so that every subscriber receives the end.
    pub fn end(&mut self, now: Instant) {
        let now = self.advance_clock(now);
        self.has_ended = true;
        self.live_packet.key = None;
        self.close_batch(now);
        self.next_keep_alive = now;
    }

    /// Returns whether the host program should take a snapshot: a subscriber waits for one, the feed has room for it,
    /// and no stored snapshot will become available with the next frames.
    pub fn wants_snapshot(&self) -> bool {
        let coming = self.snapshots.newest().is_some_and(|newest| !self.has_reached(newest.next_frame));
        self.awaiting_snapshot > 0 && self.snapshots.has_room() && !coming
    }

    /// Stores the state before `next_frame` and the machine's hash of it, if the feed has room. The feed offers the
    /// state only after all earlier frames were pushed.
    pub fn set_snapshot(&mut self, now: Instant, next_frame: Frame, state: &[u8], hash: u64) {
        let now = self.advance_clock(now);
        if !self.snapshots.insert(next_frame, state, hash) {
            return;
        }
        self.stats.snapshots += 1;
        self.offer_to_waiting(now);
    }

    fn offer_to_waiting(&mut self, now: Instant) {
        for at in 0..self.subscribers.len() {
            if self.awaiting_snapshot > 0
                && self.subscribers[at].is_occupied
                && self.subscribers[at].awaiting_snapshot_since.is_some()
            {
                self.offer_newest(now, at);
            }
        }
    }

    /// Stops offering the snapshots stored so far. The host program calls this after the machine has done something
    /// that a machine started from these snapshots cannot reproduce. Downloads in progress continue.
    pub fn retire_snapshots(&mut self) {
        self.snapshots.retire_all();
    }

    fn advance_clock(&mut self, now: Instant) -> Instant {
        if now - self.now > HOST_SUSPENDED {
            self.awake_since = now;
        }
        self.now = self.now.max(now);
        self.now
    }

    /// Encodes the open batch into the history and starts a live round that sends the batch. Does nothing if the batch
    /// has no frames.
    fn close_batch(&mut self, now: Instant) {
        if self.batch.count() == 0 {
            return;
        }
        let mut record = [0; MAX_RECORD_SIZE];
        let count = self.batch.count();
        let first = self.batch.first();
        let len = self.batch.close(&mut record);
        self.history.push(first, count, &record[..len]);
        self.stats.batches += 1;
        self.stats.batch_bytes += len as u64;
        self.start_live_round(now);
    }

    fn start_live_round(&mut self, now: Instant) {
        self.live_turns_left = self.subscribers.len();
        self.next_keep_alive = now + KEEP_ALIVE_INTERVAL;
    }

    /// Returns the age at which an incomplete batch is closed because the game has stalled: the duration of two
    /// batches.
    fn max_batch_age(&self) -> TimeDelta {
        self.config.settings.rate.period() * i64::from(self.config.batch_frames) * 2
    }

    fn run_timers(&mut self, now: Instant) {
        if self.batch.count() >= self.config.batch_frames || now - self.batch.started_at >= self.max_batch_age() {
            self.close_batch(now);
        }
        if self.next_keep_alive <= now && !self.slot_by_addr.is_empty() {
            self.start_live_round(now);
        }
    }

    /// Returns when to call [`Feed::poll_transmit`] again if nothing else happens; `None` when there is nothing to wait
    /// for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.pending_replies.is_empty()
            || self.live_turns_left > 0
            || self.batch.count() >= self.config.batch_frames
        {
            return Some(self.now);
        }
        let keep_alive = (!self.slot_by_addr.is_empty()).then_some(self.next_keep_alive);
        let batch = (self.batch.count() > 0).then(|| self.batch.started_at + self.max_batch_age());
        let bulk = (!self.bulk_queue.is_empty()).then(|| self.bulk_allowed_at.max(self.share_allowed_at).max(self.now));
        [keep_alive, batch, bulk].into_iter().flatten().min()
    }

    /// Returns the oldest unread event. At most 64 events are kept.
    pub fn poll_event(&mut self) -> Option<FeedEvent> {
        self.events.pop()
    }

    /// Returns the counters since the creation of the feed, the current number of spectators and the next frame to be
    /// pushed.
    pub fn stats(&self) -> FeedStats {
        FeedStats { spectators: self.slot_by_addr.len(), next_frame: self.next_frame.unwrap_or_default(), ..self.stats }
    }

    /// Returns the approximate memory use of the feed and its subscribers, in bytes.
    pub fn memory(&self) -> usize {
        let slots: usize = self.subscribers.iter().map(Subscriber::memory).sum();
        let addr_index = self.slot_by_addr.len() * 2 * size_of::<(Addr, u32)>();
        let queues = self.bulk_queue.capacity() * 4
            + self.free_slots.capacity() * 4
            + MAX_PENDING_REPLIES * size_of::<(Addr, PendingReply)>();
        size_of::<Self>()
            + self.history.memory()
            + self.snapshots.memory()
            + self.subscribers.capacity() * size_of::<Subscriber>()
            + self.events.memory()
            + slots
            + addr_index
            + queues
    }
}
