//! The serving end.

mod config;
mod people;
mod send;

pub use config::FeedConfig;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::batch::Batch;
use super::event::{Events, FeedEvent, FeedStats};
use super::history::History;
use super::slot::Slot;
use super::snapshot::Snapshots;
use super::{BEAT, MAX_RECORD, layout_of_all, settings_digest};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::{InputLayout, InputWord, MAX_WIDTH};
use crate::session::SettingsError;
use crate::time::{Instant, TimeDelta};
use crate::wire::{CloseReason, MAX_DATAGRAM, MAX_RECORD_FRAMES};
use people::MOST_DROPPED;

/// The most answers that wait to be sent; whoever gets none asks again.
const MOST_REPLIES: usize = 256;
/// The most events kept for a host program that does not ask.
const MOST_EVENTS: usize = 64;
/// A host program that does not call for so long was asleep itself.
const ASLEEP: TimeDelta = TimeDelta::from_secs(1);

/// The serving end of a feed.
#[derive(Debug)]
pub struct Feed {
    config: FeedConfig,
    layout: InputLayout,
    settings: u64,
    batch: Batch,
    /// The next frame, once there was a first.
    next: Option<Frame>,
    history: History,
    snapshots: Snapshots,
    slots: Vec<Slot>,
    free: Vec<u32>,
    places: BTreeMap<Addr, u32>,
    /// Those who wait for a snapshot.
    waiting: usize,
    replies: VecDeque<(Addr, Reply)>,
    /// Whose turn it is to get what is new, and how many more turns there are.
    turn: usize,
    turns: usize,
    /// The last packet of frames, for the next who needs the same.
    copy: Copy,
    bulk: VecDeque<u32>,
    bulk_at: Instant,
    /// When somebody passed over may have his share, if that is why nothing was sent.
    share_at: Instant,
    next_beat: Instant,
    ended: bool,
    now: Instant,
    /// Our host program has called often enough since then to have heard everybody.
    awake_since: Instant,
    /// Those dropped last, and why: whoever did not hear it is told again.
    dropped: VecDeque<(Addr, CloseReason)>,
    events: Events<FeedEvent>,
    stats: FeedStats,
}

/// An answer to be sent.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Challenge,
    Welcome,
    Offer(u16),
    Bye(CloseReason),
}

/// A packet that was just made, and what it was made of.
#[derive(Debug)]
struct Copy {
    of: Option<(Frame, Frame, u8)>,
    next: Frame,
    len: usize,
    bytes: [u8; MAX_DATAGRAM],
}

impl Feed {
    /// A feed that nobody watches yet.
    pub fn new(config: FeedConfig) -> Result<Self, SettingsError> {
        config.settings.check()?;
        let layout = layout_of_all(&config.settings);
        let batch = config.batch.clamp(1, MAX_RECORD_FRAMES);
        let records = config.history.div_ceil(batch) as usize;
        Ok(Self {
            settings: settings_digest(&config.settings),
            batch: Batch::new(layout.width()),
            layout,
            next: None,
            history: History::new(records, config.history_bytes, config.keep_log),
            snapshots: Snapshots::default(),
            slots: Vec::new(),
            free: Vec::new(),
            places: BTreeMap::new(),
            waiting: 0,
            replies: VecDeque::with_capacity(MOST_REPLIES),
            turn: 0,
            turns: 0,
            copy: Copy { of: None, next: Frame::ZERO, len: 0, bytes: [0; MAX_DATAGRAM] },
            bulk: VecDeque::new(),
            bulk_at: Instant::from_nanos(i64::MIN),
            share_at: Instant::from_nanos(i64::MIN),
            next_beat: Instant::from_nanos(i64::MIN),
            ended: false,
            now: Instant::from_nanos(i64::MIN),
            awake_since: Instant::from_nanos(i64::MIN),
            dropped: VecDeque::with_capacity(MOST_DROPPED),
            events: Events::new(MOST_EVENTS),
            stats: FeedStats::default(),
            config: FeedConfig { batch, ..config },
        })
    }

    /// Takes in a frame that is certain: one word per player. The first may be any; each other must follow on the one before.
    pub fn push(&mut self, now: Instant, frame: Frame, words: &[InputWord]) {
        let now = self.own_time(now);
        assert!(self.next.is_none_or(|next| next == frame), "frames are pushed in order");
        self.next = Some(frame.next());
        let mut packed = [0; MAX_WIDTH];
        let packed = &mut packed[..self.layout.width()];
        self.layout.pack(words, packed);
        if self.batch.count() >= self.config.batch || !self.batch.push(now, frame, packed) {
            self.close(now);
            assert!(self.batch.push(now, frame, packed), "a frame fits into an empty batch");
        }
        if self.waiting > 0 && self.snapshots.newest().is_some_and(|newest| newest.next == frame.next()) {
            self.offer_to_waiting(now);
        }
    }

    /// Takes in the hash of the state after a frame that was pushed. Of several before a batch leaves, the last one is told.
    pub fn push_hash(&mut self, frame: Frame, hash: u64) {
        if self.next.is_some_and(|next| frame < next) {
            self.batch.hash = Some((frame, hash));
        }
    }

    /// No frame will follow. Go on polling for a while, so that all hear of it.
    pub fn end(&mut self, now: Instant) {
        let now = self.own_time(now);
        self.ended = true;
        self.copy.of = None;
        self.close(now);
        self.next_beat = now;
    }

    /// Whether somebody waits for a state to begin with, so that it is worth while to make one.
    pub fn wants_snapshot(&self) -> bool {
        let coming = self.snapshots.newest().is_some_and(|newest| !self.has_reached(newest.next));
        self.waiting > 0 && self.snapshots.has_room() && !coming
    }

    /// Takes in the state before `next_frame`, and the machine's hash of it. Nobody gets it before all frames before that are pushed.
    pub fn set_snapshot(&mut self, now: Instant, next_frame: Frame, state: &[u8], hash: u64) {
        let now = self.own_time(now);
        if !self.snapshots.set(next_frame, state, hash) {
            return;
        }
        self.stats.snapshots += 1;
        self.offer_to_waiting(now);
    }

    fn offer_to_waiting(&mut self, now: Instant) {
        for at in 0..self.slots.len() {
            if self.waiting > 0 && self.slots[at].taken && self.slots[at].waiting.is_some() {
                self.offer_newest(now, at);
            }
        }
    }

    /// Gives out no state that was taken in so far: the machine may have done since then what others cannot do after it. Whoever is
    /// about to begin with one goes on.
    pub fn retire_snapshots(&mut self) {
        self.snapshots.retire();
    }

    fn own_time(&mut self, now: Instant) -> Instant {
        if now - self.now > ASLEEP {
            self.awake_since = now;
        }
        self.now = self.now.max(now);
        self.now
    }

    /// Closes the batch: from now on it can be sent.
    fn close(&mut self, now: Instant) {
        if self.batch.count() == 0 {
            return;
        }
        let mut record = [0; MAX_RECORD];
        let count = self.batch.count();
        let first = self.batch.first();
        let len = self.batch.close(&mut record);
        self.history.push(first, count, &record[..len]);
        self.stats.batches += 1;
        self.stats.batch_bytes += len as u64;
        self.begin_turns(now);
    }

    fn begin_turns(&mut self, now: Instant) {
        self.turns = self.slots.len();
        self.next_beat = now + BEAT;
    }

    /// When the batch leaves even if it is not full, because the game stands still.
    fn patience(&self) -> TimeDelta {
        self.config.settings.rate.period() * i64::from(self.config.batch) * 2
    }

    fn pass_time(&mut self, now: Instant) {
        if self.batch.count() >= self.config.batch || now - self.batch.since >= self.patience() {
            self.close(now);
        }
        if self.next_beat <= now && !self.places.is_empty() {
            self.begin_turns(now);
        }
    }

    /// When to call [`Feed::poll_transmit`] again if nothing else happens; `None` when there is nothing to wait for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.replies.is_empty() || self.turns > 0 || self.batch.count() >= self.config.batch {
            return Some(self.now);
        }
        let beat = (!self.places.is_empty()).then_some(self.next_beat);
        let batch = (self.batch.count() > 0).then(|| self.batch.since + self.patience());
        let bulk = (!self.bulk.is_empty()).then(|| self.bulk_at.max(self.share_at).max(self.now));
        [beat, batch, bulk].into_iter().flatten().min()
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<FeedEvent> {
        self.events.pop()
    }

    /// The feed in numbers.
    pub fn stats(&self) -> FeedStats {
        FeedStats { watchers: self.places.len(), frame: self.next.unwrap_or_default(), ..self.stats }
    }

    /// About how many bytes the feed takes, all in all.
    pub fn memory(&self) -> usize {
        let slots: usize = self.slots.iter().map(Slot::memory).sum();
        let places = self.places.len() * 2 * size_of::<(Addr, u32)>();
        let queues = self.bulk.capacity() * 4 + self.free.capacity() * 4 + MOST_REPLIES * size_of::<(Addr, Reply)>();
        size_of::<Self>()
            + self.history.memory()
            + self.snapshots.memory()
            + self.slots.capacity() * size_of::<Slot>()
            + self.events.memory()
            + slots
            + places
            + queues
    }
}
