//! What a feed and a watcher tell and ask, and their numbers.

use alloc::collections::VecDeque;
use core::fmt;

use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::wire::CloseReason;

/// Something the host program of a feed may want to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// Somebody watches.
    Joined {
        /// Where.
        addr: Addr,
    },
    /// Somebody watches no more.
    Left {
        /// Where.
        addr: Addr,
        /// Why, if it was not of its own will.
        reason: Option<CloseReason>,
    },
}

/// A feed in numbers, since it began unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// How many watch now.
    pub spectators: usize,
    /// How many have come.
    pub total_joined: u64,
    /// The next frame to be pushed.
    pub next_frame: Frame,
    /// Batches encoded, each once for all.
    pub batches: u64,
    /// The bytes of those.
    pub batch_bytes: u64,
    /// Snapshots taken in.
    pub snapshots: u64,
    /// Datagrams sent.
    pub packets_out: u64,
    /// Bytes of payload sent.
    pub bytes_out: u64,
    /// Bytes of payload sent because they were asked for: snapshots and missed frames.
    pub bulk_out: u64,
    /// Datagrams taken in, of use or not.
    pub packets_in: u64,
    /// Datagrams that were no message, or of a kind that only feeds send.
    pub malformed: u64,
    /// Datagrams of another session, or from where nobody watches.
    pub unknown_senders: u64,
    /// Requests to watch that were refused because as many watch as may.
    pub refused: u64,
    /// Watchers dropped because they could not keep up, or asked for what is not kept any more.
    pub dropped_slow: u64,
    /// Watchers dropped because nothing was heard of them.
    pub dropped_silent: u64,
}

/// What a watcher asks its host program to do.
#[derive(Debug, PartialEq, Eq)]
pub enum SpectatorRequest<'a> {
    /// Put the machine into this state.
    Load {
        /// The first frame to be stepped from it.
        next_frame: Frame,
        /// The state.
        state: &'a [u8],
        /// What the feed says that the machine's hash of it is.
        hash: u64,
    },
    /// Step the machine.
    Advance {
        /// The frame to step.
        frame: Frame,
        /// One word per player.
        inputs: &'a [InputWord],
        /// Whether it is to be shown and heard; else we are behind, and it is one of many.
        is_presented: bool,
    },
    /// Hash the state after `frame` and hand it to [`Watcher::handle_hash`](super::Spectator::handle_hash).
    Hash {
        /// The frame just stepped, or the one before the state just loaded.
        frame: Frame,
        /// What the feed says it is. A relay without a machine answers with it.
        expected: u64,
    },
}

/// Something the host program of a watcher may want to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorEvent {
    /// A source lets us watch.
    Joined {
        /// Which.
        source: Addr,
    },
    /// We see what is played as it is played.
    Live {
        /// From this frame on.
        frame: Frame,
    },
    /// We have fallen behind what is played.
    Behind {
        /// By how many frames.
        frames: u32,
    },
    /// The source serves us less often, because the way to here is slow.
    Slowed {
        /// One packet comes for so many batches.
        batches: u32,
    },
    /// We turn to another source.
    SourceChanged {
        /// The new one.
        to: Addr,
        /// What was wrong with the old one.
        reason: SourceError,
    },
    /// Our state is not that of the players, though it had the same inputs. Told once.
    Diverged {
        /// The first compared frame at which it is not.
        frame: Frame,
    },
    /// We watch no more.
    Dropped {
        /// Why.
        reason: SourceError,
    },
    /// The game is over, and we have seen all of it.
    Ended {
        /// The frame after the last.
        frame: Frame,
    },
}

/// What is wrong with a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// It says that we cannot watch.
    Refused(CloseReason),
    /// Nothing is heard of it.
    Silent,
    /// Its snapshot is larger than we can take.
    SnapshotTooLarge {
        /// By its own words, in bytes.
        size: u32,
    },
    /// Its snapshot is not what it says it is.
    BadSnapshot,
    /// Its frames do not follow from those of the source before it, again and again: the state is loaded anew a few times before that is told.
    DifferentGame,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "the source refused: {reason}"),
            Self::Silent => write!(f, "nothing is heard of the source"),
            Self::SnapshotTooLarge { size } => write!(f, "the source's snapshot of {size} bytes is too large"),
            Self::BadSnapshot => write!(f, "the source's snapshot is not what it says it is"),
            Self::DifferentGame => write!(f, "the source plays another game than the one before it"),
        }
    }
}

impl fmt::Display for SpectatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { .. } => write!(f, "we may watch"),
            Self::Live { frame } => write!(f, "live from frame {frame} on"),
            Self::Behind { frames } => write!(f, "{frames} frames behind"),
            Self::Slowed { batches } => write!(f, "the way is slow: one packet for {batches} batches"),
            Self::SourceChanged { reason, .. } => write!(f, "{reason}; another one is tried"),
            Self::Diverged { frame } => write!(f, "our state differs from the players' after frame {frame}"),
            Self::Dropped { reason } => write!(f, "we watch no more: {reason}"),
            Self::Ended { frame } => write!(f, "the game is over; it had {frame} frames"),
        }
    }
}

/// A watcher in numbers, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpectatorStats {
    /// Datagrams sent.
    pub packets_out: u64,
    /// Bytes of payload sent.
    pub bytes_out: u64,
    /// Datagrams taken in, of use or not.
    pub packets_in: u64,
    /// Bytes of payload taken in.
    pub bytes_in: u64,
    /// Datagrams that were no message, or of a kind that only watchers send.
    pub malformed: u64,
    /// Datagrams that were not from our source, or of another session.
    pub unknown_senders: u64,
    /// Frames that were asked for because they did not come by themselves.
    pub requested_frames: u64,
    /// Parts of snapshots that were asked for.
    pub requested_parts: u64,
    /// Parts of snapshots that came.
    pub received_parts: u64,
    /// Blocks of snapshots that were not what they should be.
    pub bad_blocks: u64,
    /// Frames that came too late, so that the picture stood still.
    pub stalls: u64,
    /// Compared states that differed.
    pub mismatches: u64,
}

/// Events not yet asked for; when there are too many, the oldest go.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    pending: VecDeque<E>,
    capacity: usize,
}

impl<E> EventQueue<E> {
    pub(super) fn new(most: usize) -> Self {
        Self { pending: VecDeque::with_capacity(most), capacity: most }
    }

    pub(super) fn memory(&self) -> usize {
        self.pending.capacity() * size_of::<E>()
    }

    pub(super) fn push(&mut self, event: E) {
        if self.pending.len() == self.capacity {
            self.pending.pop_front();
        }
        self.pending.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.pending.pop_front()
    }
}
