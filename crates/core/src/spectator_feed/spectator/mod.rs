//! Receiving end of a spectator feed: downloads a snapshot, buffers frames, and asks the host program to step them.

mod config;
mod receive;
mod send;

pub use config::{SpectatorConfig, SpectatorStart};

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::download::SnapshotDownload;
use super::download_window::DownloadWindow;
use super::event::{EventQueue, SourceError, SpectatorEvent, SpectatorRequest, SpectatorStats};
use super::playout::{PlayoutPacer, PlayoutStep};
use super::record_buffer::RecordBuffer;
use super::{merged_layout, settings_digest};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::{InputLayout, InputWord};
use crate::settings::SettingsError;
use crate::time::{Instant, TimeDelta};

/// Largest number of events kept for a host program that does not poll them. Older events are discarded.
const MAX_EVENTS: usize = 16;
/// Time after a new subscription beyond which the source counts as verified without a state comparison.
const VERIFICATION_TIMEOUT: TimeDelta = TimeDelta::from_secs(3);
/// Number of times that the unsubscribe message is sent, because it is not acknowledged.
const LEAVE_REPEATS: u8 = 3;

/// Receiving end of a spectator feed. The host program carries out the spectator's requests, passes received datagrams
/// in, and sends the datagrams that [`Spectator::poll_transmit`] writes.
#[derive(Debug)]
pub struct Spectator {
    config: SpectatorConfig,
    layout: InputLayout,
    settings_digest: u64,
    now: Instant,
    connection: SourceConnection,
    /// Index of the current source in the configured list.
    source: usize,
    /// Token issued by the current source; 0 before its challenge.
    token: u64,
    /// Time of the last message from the current source, challenges excepted, or of the switch to that source if none
    /// has arrived.
    last_received_at: Instant,
    /// Time of the last message from any source, challenges excepted.
    last_received_from_any_at: Instant,
    first_subscribe_at: Instant,
    last_subscribe_at: Instant,
    subscribe_attempts: u32,
    refusals: usize,
    bad_blocks: u32,
    load_stage: LoadStage,
    download: Option<SnapshotDownload>,
    records: RecordBuffer,
    /// The frame after the last one that the source is known to have.
    source_end: Frame,
    /// Whether a source ever accepted the subscription and so stated which frames it has.
    has_joined: bool,
    has_ended: bool,
    thinning_level: u8,
    congestion: DownloadWindow,
    pending_requests: VecDeque<FrameRequest>,
    /// Moving average of the encoded size of a frame, in 1/16 byte.
    mean_frame_bytes: usize,
    last_ack_at: Instant,
    last_sent_at: Instant,
    playout: PlayoutPacer,
    was_live: bool,
    was_starved: bool,
    words: Vec<InputWord>,
    pending_hashes: VecDeque<(Frame, u64)>,
    hash_check: HashCheck,
    /// The first frame that was missing when the current subscription began, and the time at which the subscription
    /// began. `None` if the spectator had no game to continue, once the state after that frame or a later one was
    /// compared, or once the host program returned no hash.
    unverified: Option<(Frame, Instant)>,
    events: EventQueue<SpectatorEvent>,
    stats: SpectatorStats,
}

/// State of the subscription at the current source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceConnection {
    Subscribing,
    Subscribed,
    Leaving(u8),
    Closed,
}

/// Progress of the machine towards stepping frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadStage {
    /// The machine has no state to continue from; a snapshot is requested or being downloaded.
    Downloading,
    /// The snapshot is complete; the host program has yet to load it.
    ReadyToLoad,
    /// The host program was asked to load the snapshot and to hash the result.
    Loaded,
    /// The machine has its starting state and steps frames.
    Running,
}

/// Progress of a state comparison, for which the host program computes a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashCheck {
    Idle,
    Due { frame: Frame, expected: u64, is_snapshot: bool },
    Requested { frame: Frame, expected: u64, is_snapshot: bool },
}

/// A range of frames requested from the source.
#[derive(Clone, Copy, Debug)]
struct FrameRequest {
    first: Frame,
    end: Frame,
    sent_at: Instant,
    /// Whether some frames of the range have arrived.
    is_answered: bool,
}

impl Spectator {
    /// Creates a spectator that subscribes to the first source. Fails if the settings are invalid.
    pub fn new(now: Instant, config: SpectatorConfig) -> Result<Self, SettingsError> {
        config.settings.check()?;
        let layout = merged_layout(&config.settings);
        Ok(Self {
            settings_digest: settings_digest(&config.settings),
            now,
            connection: SourceConnection::Subscribing,
            source: 0,
            token: 0,
            last_received_at: now,
            last_received_from_any_at: now,
            first_subscribe_at: now,
            last_subscribe_at: Instant::from_nanos(i64::MIN),
            subscribe_attempts: 0,
            refusals: 0,
            bad_blocks: 0,
            load_stage: if config.start == SpectatorStart::Snapshot {
                LoadStage::Downloading
            } else {
                LoadStage::Running
            },
            download: None,
            records: RecordBuffer::new(layout.width(), config.max_backlog_bytes),
            source_end: Frame::ZERO,
            has_joined: false,
            has_ended: false,
            thinning_level: 0,
            congestion: DownloadWindow::new(now),
            pending_requests: VecDeque::new(),
            mean_frame_bytes: 16 * 4,
            last_ack_at: now,
            last_sent_at: Instant::from_nanos(i64::MIN),
            playout: PlayoutPacer::new(config.settings.rate.period(), config.target_buffer, config.catch_up_threshold),
            was_live: false,
            was_starved: false,
            words: vec![0; config.settings.ownership.players()],
            pending_hashes: VecDeque::new(),
            hash_check: HashCheck::Idle,
            unverified: None,
            events: EventQueue::new(MAX_EVENTS),
            stats: SpectatorStats::default(),
            layout,
            config,
        })
    }

    fn advance_clock(&mut self, now: Instant) -> Instant {
        // After a suspension of this host program, the silence is not the source's fault.
        let pause = now - self.now;
        if pause > self.config.silence_timeout {
            self.last_received_at += pause;
            self.last_received_from_any_at += pause;
        }
        self.now = self.now.max(now);
        self.now
    }

    fn source(&self) -> Option<Addr> {
        self.config.sources.get(self.source).copied()
    }

    /// Returns the next request for the host program, which should call this until it returns `None`.
    pub fn poll_request(&mut self, now: Instant) -> Option<SpectatorRequest<'_>> {
        let now = self.advance_clock(now);
        if self.connection == SourceConnection::Closed {
            return None;
        }
        if let HashCheck::Due { frame, expected, is_snapshot } = self.hash_check {
            self.hash_check = HashCheck::Requested { frame, expected, is_snapshot };
            return Some(SpectatorRequest::Hash { frame, expected });
        }
        if self.hash_check != HashCheck::Idle {
            // The host program returned no hash.
            (self.hash_check, self.unverified) = (HashCheck::Idle, None);
        }
        match self.load_stage {
            LoadStage::Downloading => None,
            LoadStage::Running if !self.has_joined => None,
            LoadStage::ReadyToLoad => self.request_load(),
            LoadStage::Loaded => {
                (self.load_stage, self.download) = (LoadStage::Running, None);
                self.playout.restart();
                self.request_advance(now)
            }
            LoadStage::Running => self.request_advance(now),
        }
    }

    fn request_load(&mut self) -> Option<SpectatorRequest<'_>> {
        let download = self.download.as_ref()?;
        let (next_frame, hash) = (Frame::new(download.offer().next_frame), download.offer().state_hash);
        self.load_stage = LoadStage::Loaded;
        if let Some(frame) = next_frame.checked_sub(1) {
            self.hash_check = HashCheck::Due { frame, expected: hash, is_snapshot: true };
        }
        Some(SpectatorRequest::Load { next_frame, state: download.state(), hash })
    }

    fn request_advance(&mut self, now: Instant) -> Option<SpectatorRequest<'_>> {
        let (ready, frame) = (self.records.ready_frames(), self.records.next_frame());
        let behind = (self.source_end - frame).max(0) as u32;
        if self.has_ended && frame >= self.source_end {
            self.connection = SourceConnection::Leaving(LEAVE_REPEATS);
            self.has_ended = false;
            self.events.push(SpectatorEvent::Ended { frame });
            return None;
        }
        let step = self.playout.step(now, ready, behind);
        self.report_playout_changes(frame, behind);
        if step == PlayoutStep::Wait || !self.take_next_frame() {
            return None;
        }
        if step == PlayoutStep::Present {
            self.playout.on_presented(now);
        }
        Some(SpectatorRequest::Advance { frame, inputs: &self.words, is_presented: step == PlayoutStep::Present })
    }

    fn report_playout_changes(&mut self, frame: Frame, behind: u32) {
        let live = self.playout.is_live();
        if live != core::mem::replace(&mut self.was_live, live) {
            self.refusals = if live { 0 } else { self.refusals };
            self.events.push(if live {
                SpectatorEvent::Live { frame }
            } else {
                SpectatorEvent::Behind { frames: behind }
            });
        }
        let starving = self.playout.is_starved();
        if !core::mem::replace(&mut self.was_starved, starving) && starving {
            self.stats.stalls += 1;
        }
    }

    /// Moves the inputs of the next frame from the buffer to `words`, and schedules a hash if the feed stated one for
    /// the frame. Returns `false` if the frame is missing.
    fn take_next_frame(&mut self) -> bool {
        let frame = self.records.next_frame();
        let Some(packed) = self.records.take_next() else { return false };
        self.words.fill(0);
        self.layout.unpack(packed, &mut self.words);
        while self.pending_hashes.front().is_some_and(|(known, _)| *known < frame) {
            self.pending_hashes.pop_front();
        }
        if let Some(at) = self.pending_hashes.iter().position(|(known, _)| *known == frame) {
            let expected = self.pending_hashes.remove(at).map_or(0, |(_, hash)| hash);
            self.hash_check = HashCheck::Due { frame, expected, is_snapshot: false };
        }
        true
    }

    /// Returns the inputs of the next frame immediately, regardless of pacing, for a spectator that becomes a player
    /// and must catch up. Returns `None` if `frame` is not the next one, is not buffered, or no state was loaded yet.
    pub fn take_words(&mut self, frame: Frame) -> Option<&[InputWord]> {
        if self.load_stage != LoadStage::Running || frame != self.records.next_frame() || !self.take_next_frame() {
            return None;
        }
        self.hash_check = HashCheck::Idle;
        Some(&self.words)
    }

    /// Compares the hash requested by [`SpectatorRequest::Hash`] with the feed's. Without this call, the frame is not
    /// compared. A difference right after a load is counted and rejects the source. If a spectator that started from a
    /// snapshot has continued its game at a new subscription, a difference in the first comparison there makes it
    /// download that source's snapshot. Any other difference is counted, and reported as [`SpectatorEvent::Diverged`]
    /// if it is the first one counted.
    pub fn handle_hash(&mut self, hash: u64) {
        let HashCheck::Requested { frame, expected, is_snapshot } =
            core::mem::replace(&mut self.hash_check, HashCheck::Idle)
        else {
            return;
        };
        let was_unverified = self.unverified.take_if(|(first, _)| *first <= frame).is_some();
        if hash == expected {
            return;
        }
        if was_unverified && !is_snapshot && self.config.start == SpectatorStart::Snapshot {
            return self.reload_snapshot(self.now);
        }
        self.stats.mismatches += 1;
        if is_snapshot {
            self.reject_snapshot(self.now);
        } else if self.stats.mismatches == 1 {
            self.events.push(SpectatorEvent::Diverged { frame });
        }
    }

    /// Returns whether the source may play a different game than the previous source: no state was compared since the
    /// subscription, which is less than 3 s old. Returns `false` if the settings disable state comparisons.
    pub(crate) fn is_unverified(&self) -> bool {
        let compared = self.config.settings.compare_interval > 0;
        compared && self.unverified.is_some_and(|(_, since)| self.now - since < VERIFICATION_TIMEOUT)
    }

    /// Replaces the address `from` in the list of sources by `to`, after the source has changed its address.
    pub fn move_source(&mut self, from: Addr, to: Addr) {
        for source in self.config.sources.iter_mut().filter(|source| **source == from) {
            *source = to;
        }
    }

    /// Switches to the next source that `is_good` accepts, or to the next one if it accepts none. Call this when the
    /// current source delivers no frames. Has no effect on a spectator that left or was closed.
    pub fn try_other_source(&mut self, now: Instant, is_good: impl Fn(Addr) -> bool) {
        let now = self.advance_clock(now);
        if matches!(self.connection, SourceConnection::Subscribing | SourceConnection::Subscribed) {
            let sources = self.config.sources.len().max(1);
            let mut others = (1..=sources).map(|step| (self.source + step) % sources);
            let good = others.clone().find(|other| self.config.sources.get(*other).is_some_and(|addr| is_good(*addr)));
            self.switch_source(now, SourceError::Silent, good.or(others.next()).unwrap_or(self.source));
        }
    }

    /// Unsubscribes. Keep polling until [`Spectator::is_closed`], so that the source receives the message.
    pub fn leave(&mut self, now: Instant) {
        self.advance_clock(now);
        if matches!(self.connection, SourceConnection::Subscribing | SourceConnection::Subscribed) {
            self.connection = SourceConnection::Leaving(LEAVE_REPEATS);
        }
    }

    /// Returns when to call [`Spectator::poll_request`] and [`Spectator::poll_transmit`] again if nothing else happens;
    /// `None` when the spectator is closed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silence = (self.last_received_at + self.config.silence_timeout)
            .min(self.last_received_from_any_at + self.config.give_up_timeout);
        // The timeout is exceeded only after its deadline.
        let silence = silence + TimeDelta::from_millis(1);
        let send = match self.connection {
            SourceConnection::Closed => return None,
            SourceConnection::Leaving(_) => return Some(self.now),
            SourceConnection::Subscribing => self.next_subscribe_at(),
            SourceConnection::Subscribed => self.next_send_at(),
        };
        let frame = self.next_request_at();
        Some(
            [Some(silence), Some(send), frame]
                .into_iter()
                .flatten()
                .fold(Instant::FAR_FUTURE, Instant::min)
                .max(self.now),
        )
    }

    /// Returns when the next request for the host program is due; `None` when that depends on data of the source.
    fn next_request_at(&self) -> Option<Instant> {
        match (self.load_stage, self.hash_check) {
            (_, HashCheck::Due { .. }) | (LoadStage::ReadyToLoad | LoadStage::Loaded, _) => Some(self.now),
            (LoadStage::Downloading, _) => None,
            (LoadStage::Running, _) if !self.has_joined => None,
            (LoadStage::Running, _) => {
                let behind = (self.source_end - self.records.next_frame()).max(0) as u32;
                if self.has_ended && behind == 0 {
                    return Some(self.now);
                }
                self.playout.next_step_at(self.now, self.records.ready_frames(), behind)
            }
        }
    }

    /// Returns the oldest unread event. At most 16 events are kept.
    pub fn poll_event(&mut self) -> Option<SpectatorEvent> {
        self.events.pop()
    }

    /// Returns the next frame to be stepped.
    pub fn next_frame(&self) -> Frame {
        self.records.next_frame()
    }

    /// Returns the frame after the newest one that the source is known to have.
    pub fn newest_frame(&self) -> Frame {
        self.source_end
    }

    /// Returns whether the spectator has caught up and presents frames as they are played.
    pub fn is_live(&self) -> bool {
        self.load_stage == LoadStage::Running && self.playout.is_live()
    }

    /// Returns whether the spectator is closed: it left, gave up, or saw the end of the game.
    pub fn is_closed(&self) -> bool {
        self.connection == SourceConnection::Closed
    }

    /// Returns the downloaded fraction of the current snapshot, 0 to 1; 0 without a download.
    pub fn download_progress(&self) -> f32 {
        self.download.as_ref().map_or(0.0, SnapshotDownload::progress)
    }

    /// Returns the counters since the creation of the spectator.
    pub fn stats(&self) -> SpectatorStats {
        self.stats
    }

    /// Returns the approximate memory use of the spectator in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + self.records.memory()
            + self.download.as_ref().map_or(0, SnapshotDownload::memory)
            + self.pending_requests.capacity() * size_of::<FrameRequest>()
            + self.pending_hashes.capacity() * size_of::<(Frame, u64)>()
            + self.events.memory()
            + self.words.capacity() * size_of::<InputWord>()
    }
}
