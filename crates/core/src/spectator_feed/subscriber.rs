//! State that a feed keeps per subscriber: progress, thinning level and open requests, in bounded memory.

use alloc::collections::VecDeque;

use crate::frame::Frame;
use crate::id::Addr;
use crate::spectator_feed::message::{BlockRequests, FrameRanges, MAX_FRAME_RANGES};
use crate::time::{Instant, TimeDelta};

/// Largest number of snapshot blocks that one subscriber can have requested at a time. Requests for further blocks are
/// ignored.
const MAX_WANTED_BLOCKS: usize = 64;

/// Distance behind the live frames beyond which a subscriber that has caught up before gets live packets half as often.
/// Beyond twice this distance the rate is halved once more.
const SLOW_THRESHOLD: TimeDelta = TimeDelta::from_secs(2);
/// Distance behind the live frames beyond which a subscriber that has caught up before is dropped, unless it was within
/// [`SLOW_THRESHOLD`] during the last 5 s.
const DROP_THRESHOLD: TimeDelta = TimeDelta::from_secs(10);
/// Largest distance behind the live frames at which a subscriber counts as caught up.
pub(super) const CAUGHT_UP_THRESHOLD: TimeDelta = TimeDelta::from_secs(1);
/// Highest thinning level that a feed uses. At level n, a subscriber gets one live packet per 2^n batches.
const MAX_USED_THINNING_LEVEL: u8 = 2;

/// A slot for one subscriber. The feed reuses the slot after the subscriber has left.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) addr: Addr,
    pub(super) is_occupied: bool,
    /// Whether the slot is in the bulk queue. The queue entry may outlast the subscriber that made it.
    pub(super) is_queued: bool,
    pub(super) catching_up_since: Instant,
    pub(super) last_received_at: Instant,
    pub(super) welcomed_at: Instant,
    /// Time at which a live packet was last sent to the subscriber.
    pub(super) last_sent_at: Instant,
    /// The first frame that the subscriber lacks, by its last acknowledgement or subscription.
    pub(super) next_frame: Frame,
    /// The frame after the last live frame sent to the subscriber.
    pub(super) live_sent_end: Frame,
    pub(super) has_caught_up: bool,
    /// Last time at which the subscriber was no more than [`SLOW_THRESHOLD`] behind.
    last_near_at: Instant,
    pub(super) thinning_level: u8,
    /// Time since which the subscriber has waited for a snapshot; `None` if it does not wait.
    pub(super) awaiting_snapshot_since: Option<Instant>,
    /// Number of the snapshot that is reserved for the subscriber's download.
    pub(super) snapshot: Option<u16>,
    /// Earliest time for the next bulk packet to the subscriber, by its own byte budget.
    pub(super) bulk_allowed_at: Instant,
    wanted_parts: VecDeque<(u32, u16)>,
    missing_spans: [(Frame, Frame); MAX_FRAME_RANGES],
    span_count: u8,
}

impl Subscriber {
    pub(super) fn new(now: Instant, addr: Addr) -> Self {
        Self {
            addr,
            is_occupied: true,
            is_queued: false,
            catching_up_since: now,
            last_received_at: now,
            welcomed_at: Instant::from_nanos(i64::MIN),
            last_sent_at: now,
            next_frame: Frame::ZERO,
            live_sent_end: Frame::ZERO,
            has_caught_up: false,
            last_near_at: now,
            thinning_level: 0,
            awaiting_snapshot_since: None,
            snapshot: None,
            bulk_allowed_at: now,
            wanted_parts: VecDeque::new(),
            missing_spans: [(Frame::ZERO, Frame::ZERO); MAX_FRAME_RANGES],
            span_count: 0,
        }
    }

    /// Discards all requests of the subscriber, for frames and for snapshot parts.
    pub(super) fn clear_wants(&mut self) {
        self.wanted_parts = VecDeque::new();
        self.span_count = 0;
    }

    /// Discards the subscriber's requests for snapshot parts.
    pub(super) fn clear_wanted_parts(&mut self) {
        self.wanted_parts = VecDeque::new();
    }

    pub(super) fn has_wants(&self) -> bool {
        self.span_count > 0 || !self.wanted_parts.is_empty()
    }

    /// Sets the thinning level by the subscriber's distance `behind` the live frames. The level falls only once the
    /// subscriber has caught up again, and stays 0 until it has caught up for the first time.
    pub(super) fn update_throttle(&mut self, now: Instant, behind: TimeDelta) {
        self.has_caught_up |= behind <= CAUGHT_UP_THRESHOLD;
        if behind <= SLOW_THRESHOLD {
            self.last_near_at = now;
        }
        if !self.has_caught_up {
            return;
        }
        let level =
            if behind > SLOW_THRESHOLD * 2 { MAX_USED_THINNING_LEVEL } else { u8::from(behind > SLOW_THRESHOLD) };
        if level > self.thinning_level || behind <= CAUGHT_UP_THRESHOLD {
            self.thinning_level = level;
        }
    }

    /// Returns whether the subscriber is more than [`DROP_THRESHOLD`] behind and was not near the live frames for 5 s.
    /// The second condition spares the subscribers of a relay that was cut off and gets many frames at once.
    pub(super) fn is_too_slow(&self, now: Instant, behind: TimeDelta) -> bool {
        behind > DROP_THRESHOLD && now - self.last_near_at > DROP_THRESHOLD / 2
    }

    /// Records the ranges of missing frames that the subscriber requests, counted from `next` and cut at `end`. Returns
    /// `false` when a range begins before `oldest`, the first frame that is still kept.
    pub(super) fn on_missing_spans(&mut self, next: Frame, spans: &FrameRanges, oldest: Frame, end: Frame) -> bool {
        let mut at = next;
        for (skip, len) in spans.iter() {
            let first = at + skip;
            at = first + len;
            let until = at.min(end);
            if first >= until {
                break;
            }
            if first < oldest {
                return false;
            }
            self.push_span(first, until);
        }
        true
    }

    /// Queues a range of frames, unless a queued range covers it or the queue is full.
    fn push_span(&mut self, first: Frame, until: Frame) {
        let waiting = &mut self.missing_spans[..usize::from(self.span_count)];
        if waiting.iter().any(|span| span.0 <= first && until <= span.1) {
            return;
        }
        if let Some(free) = self.missing_spans.get_mut(usize::from(self.span_count)) {
            *free = (first, until);
            self.span_count += 1;
        }
    }

    /// Returns the requested range of frames to send next.
    pub(super) fn first_span(&self) -> Option<(Frame, Frame)> {
        (self.span_count > 0).then_some(self.missing_spans[0])
    }

    /// Marks the frames before `next` in the first requested range as sent.
    pub(super) fn on_span_sent(&mut self, next: Frame) {
        self.missing_spans[0].0 = next;
        if self.missing_spans[0].0 >= self.missing_spans[0].1 {
            self.missing_spans.rotate_left(1);
            self.span_count -= 1;
        }
    }

    /// Adds the snapshot parts that the subscriber requests.
    pub(super) fn on_wanted_parts(&mut self, wants: &BlockRequests) {
        for (block, parts) in wants.iter() {
            if let Some(want) = self.wanted_parts.iter_mut().find(|want| want.0 == block) {
                want.1 |= parts;
            } else if self.wanted_parts.len() < MAX_WANTED_BLOCKS {
                self.wanted_parts.push_back((block, parts));
            }
        }
    }

    /// Removes the next requested snapshot part, and returns its block and part number.
    pub(super) fn take_wanted_part(&mut self) -> Option<(u32, u8)> {
        let (block, parts) = self.wanted_parts.front_mut()?;
        let (block, part) = (*block, parts.trailing_zeros() as u8);
        *parts &= parts.wrapping_sub(1);
        if *parts == 0 {
            self.wanted_parts.pop_front();
        }
        Some((block, part))
    }

    pub(super) fn memory(&self) -> usize {
        self.wanted_parts.capacity() * size_of::<(u32, u16)>()
    }
}
