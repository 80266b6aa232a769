//! What a feed keeps about one who watches: as little as can be.

use alloc::collections::VecDeque;

use crate::frame::Frame;
use crate::id::Addr;
use crate::time::{Instant, TimeDelta};
use crate::wire::{BlockRequests, FrameRanges, MAX_FRAME_RANGES};

/// The most blocks of a snapshot that one watcher can have asked for.
const MOST_WANTS: usize = 64;

/// Who cannot keep up is served half as often when he is this far behind, and again when twice as far.
const SLOW: TimeDelta = TimeDelta::from_secs(2);
/// And dropped when he is this far behind, and has not been any nearer for half of that time.
const TOO_SLOW: TimeDelta = TimeDelta::from_secs(10);
/// Who is no further behind than this has caught up.
pub(super) const CAUGHT_UP: TimeDelta = TimeDelta::from_secs(1);
/// The most that one is slowed down to: one packet for so many batches, as a power of two.
const MOST_LEVEL: u8 = 2;

/// A place for one who watches.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) addr: Addr,
    pub(super) taken: bool,
    /// Its number is in the queue for bulk; that may outlast the one who took the place.
    pub(super) queued: bool,
    pub(super) since: Instant,
    pub(super) heard: Instant,
    pub(super) welcomed: Instant,
    /// When frames were last sent to it.
    pub(super) served: Instant,
    /// The first frame that it does not have.
    pub(super) next: Frame,
    /// Live frames before this one were sent to it.
    pub(super) sent: Frame,
    pub(super) caught_up: bool,
    /// When it was last not far behind.
    near: Instant,
    pub(super) level: u8,
    /// It waits for a snapshot since then.
    pub(super) waiting: Option<Instant>,
    /// The snapshot that it downloads.
    pub(super) snapshot: Option<u16>,
    /// Nothing is sent to it in bulk before this.
    pub(super) bulk_at: Instant,
    wants: VecDeque<(u32, u16)>,
    spans: [(Frame, Frame); MAX_FRAME_RANGES],
    span_count: u8,
}

impl Slot {
    pub(super) fn new(now: Instant, addr: Addr) -> Self {
        Self {
            addr,
            taken: true,
            queued: false,
            since: now,
            heard: now,
            welcomed: Instant::from_nanos(i64::MIN),
            served: now,
            next: Frame::ZERO,
            sent: Frame::ZERO,
            caught_up: false,
            near: now,
            level: 0,
            waiting: None,
            snapshot: None,
            bulk_at: now,
            wants: VecDeque::new(),
            spans: [(Frame::ZERO, Frame::ZERO); MAX_FRAME_RANGES],
            span_count: 0,
        }
    }

    /// Forgets what it has asked for.
    pub(super) fn forget_wants(&mut self) {
        self.wants = VecDeque::new();
        self.span_count = 0;
    }

    /// Forgets which parts of a snapshot it has asked for.
    pub(super) fn forget_parts(&mut self) {
        self.wants = VecDeque::new();
    }

    pub(super) fn wants_anything(&self) -> bool {
        self.span_count > 0 || !self.wants.is_empty()
    }

    /// How far behind it is decides how often it is served.
    pub(super) fn on_behind(&mut self, now: Instant, behind: TimeDelta) {
        self.caught_up |= behind <= CAUGHT_UP;
        if behind <= SLOW {
            self.near = now;
        }
        if !self.caught_up {
            return;
        }
        let level = if behind > SLOW * 2 { MOST_LEVEL } else { u8::from(behind > SLOW) };
        if level > self.level || behind <= CAUGHT_UP {
            self.level = level;
        }
    }

    /// Whether it cannot keep up. The frames of a relay that was cut off come all at once: then it is far behind, but not slow.
    pub(super) fn is_too_slow(&self, now: Instant, behind: TimeDelta) -> bool {
        behind > TOO_SLOW && now - self.near > TOO_SLOW / 2
    }

    /// Takes in which frames it misses, from its first missing one on; `false` when one of them is not kept any more.
    pub(super) fn on_spans(&mut self, next: Frame, spans: &FrameRanges, oldest: Frame, end: Frame) -> bool {
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
        let waiting = &mut self.spans[..usize::from(self.span_count)];
        if waiting.iter().any(|span| span.0 <= first && until <= span.1) {
            return;
        }
        if let Some(free) = self.spans.get_mut(usize::from(self.span_count)) {
            *free = (first, until);
            self.span_count += 1;
        }
    }

    /// The stretch of frames to be sent next.
    pub(super) fn first_span(&self) -> Option<(Frame, Frame)> {
        (self.span_count > 0).then_some(self.spans[0])
    }

    /// The frames of the first stretch before this one are sent.
    pub(super) fn on_span_sent(&mut self, next: Frame) {
        self.spans[0].0 = next;
        if self.spans[0].0 >= self.spans[0].1 {
            self.spans.rotate_left(1);
            self.span_count -= 1;
        }
    }

    /// Takes in which parts of a snapshot it wants.
    pub(super) fn on_wants(&mut self, wants: &BlockRequests) {
        for (block, parts) in wants.iter() {
            if let Some(want) = self.wants.iter_mut().find(|want| want.0 == block) {
                want.1 |= parts;
            } else if self.wants.len() < MOST_WANTS {
                self.wants.push_back((block, parts));
            }
        }
    }

    /// Takes out the part of a snapshot to be sent next.
    pub(super) fn take_want(&mut self) -> Option<(u32, u8)> {
        let (block, parts) = self.wants.front_mut()?;
        let (block, part) = (*block, parts.trailing_zeros() as u8);
        *parts &= parts.wrapping_sub(1);
        if *parts == 0 {
            self.wants.pop_front();
        }
        Some((block, part))
    }

    pub(super) fn memory(&self) -> usize {
        self.wants.capacity() * size_of::<(u32, u16)>()
    }
}
