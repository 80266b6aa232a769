//! What a feed keeps about one who watches: as little as can be.

use alloc::collections::VecDeque;

use crate::frame::Frame;
use crate::id::Addr;
use crate::time::{Instant, TimeDelta};
use crate::wire::{BlockRequests, FrameRanges, MAX_FRAME_RANGES};

/// The most blocks of a snapshot that one watcher can have asked for.
const MAX_WANTED_BLOCKS: usize = 64;

/// Who cannot keep up is served half as often when he is this far behind, and again when twice as far.
const SLOW_THRESHOLD: TimeDelta = TimeDelta::from_secs(2);
/// And dropped when he is this far behind, and has not been any nearer for half of that time.
const DROP_THRESHOLD: TimeDelta = TimeDelta::from_secs(10);
/// Who is no further behind than this has caught up.
pub(super) const CAUGHT_UP_THRESHOLD: TimeDelta = TimeDelta::from_secs(1);
/// The most that one is slowed down to: one packet for so many batches, as a power of two.
const MAX_THROTTLE_LEVEL: u8 = 2;

/// A place for one who watches.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) addr: Addr,
    pub(super) is_occupied: bool,
    /// Its number is in the queue for bulk; that may outlast the one who took the place.
    pub(super) is_queued: bool,
    pub(super) catching_up_since: Instant,
    pub(super) last_received_at: Instant,
    pub(super) welcomed_at: Instant,
    /// When frames were last sent to it.
    pub(super) last_sent_at: Instant,
    /// The first frame that it does not have.
    pub(super) next_frame: Frame,
    /// Live frames before this one were sent to it.
    pub(super) live_sent_end: Frame,
    pub(super) has_caught_up: bool,
    /// When it was last not far behind.
    last_near_at: Instant,
    pub(super) throttle_level: u8,
    /// It waits for a snapshot since then.
    pub(super) awaiting_snapshot_since: Option<Instant>,
    /// The snapshot that it downloads.
    pub(super) snapshot: Option<u16>,
    /// Nothing is sent to it in bulk before this.
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
            throttle_level: 0,
            awaiting_snapshot_since: None,
            snapshot: None,
            bulk_allowed_at: now,
            wanted_parts: VecDeque::new(),
            missing_spans: [(Frame::ZERO, Frame::ZERO); MAX_FRAME_RANGES],
            span_count: 0,
        }
    }

    /// Forgets what it has asked for.
    pub(super) fn clear_wants(&mut self) {
        self.wanted_parts = VecDeque::new();
        self.span_count = 0;
    }

    /// Forgets which parts of a snapshot it has asked for.
    pub(super) fn clear_wanted_parts(&mut self) {
        self.wanted_parts = VecDeque::new();
    }

    pub(super) fn has_wants(&self) -> bool {
        self.span_count > 0 || !self.wanted_parts.is_empty()
    }

    /// How far behind it is decides how often it is served.
    pub(super) fn update_throttle(&mut self, now: Instant, behind: TimeDelta) {
        self.has_caught_up |= behind <= CAUGHT_UP_THRESHOLD;
        if behind <= SLOW_THRESHOLD {
            self.last_near_at = now;
        }
        if !self.has_caught_up {
            return;
        }
        let level = if behind > SLOW_THRESHOLD * 2 { MAX_THROTTLE_LEVEL } else { u8::from(behind > SLOW_THRESHOLD) };
        if level > self.throttle_level || behind <= CAUGHT_UP_THRESHOLD {
            self.throttle_level = level;
        }
    }

    /// Whether it cannot keep up. The frames of a relay that was cut off come all at once: then it is far behind, but not slow.
    pub(super) fn is_too_slow(&self, now: Instant, behind: TimeDelta) -> bool {
        behind > DROP_THRESHOLD && now - self.last_near_at > DROP_THRESHOLD / 2
    }

    /// Takes in which frames it misses, from its first missing one on; `false` when one of them is not kept any more.
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

    /// What waits already is not put down twice.
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

    /// The stretch of frames to be sent next.
    pub(super) fn first_span(&self) -> Option<(Frame, Frame)> {
        (self.span_count > 0).then_some(self.missing_spans[0])
    }

    /// The frames of the first stretch before this one are sent.
    pub(super) fn on_span_sent(&mut self, next: Frame) {
        self.missing_spans[0].0 = next;
        if self.missing_spans[0].0 >= self.missing_spans[0].1 {
            self.missing_spans.rotate_left(1);
            self.span_count -= 1;
        }
    }

    /// Takes in which parts of a snapshot it wants.
    pub(super) fn on_wanted_parts(&mut self, wants: &BlockRequests) {
        for (block, parts) in wants.iter() {
            if let Some(want) = self.wanted_parts.iter_mut().find(|want| want.0 == block) {
                want.1 |= parts;
            } else if self.wanted_parts.len() < MAX_WANTED_BLOCKS {
                self.wanted_parts.push_back((block, parts));
            }
        }
    }

    /// Takes out the part of a snapshot to be sent next.
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
