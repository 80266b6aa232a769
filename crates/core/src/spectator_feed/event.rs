//! Events, requests and statistics of a feed and of a spectator.

use alloc::collections::VecDeque;
use core::fmt;

use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::wire::CloseReason;

/// An event that the host program of a feed may want to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A spectator subscribed.
    Joined {
        /// Address of the spectator.
        addr: Addr,
    },
    /// A spectator left or was dropped.
    Left {
        /// Address of the spectator.
        addr: Addr,
        /// Reason for the drop; `None` if the spectator left.
        reason: Option<CloseReason>,
    },
}

/// Statistics of a feed, counted since its creation unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Current number of spectators.
    pub spectators: usize,
    /// Spectators that ever joined.
    pub total_joined: u64,
    /// The next frame to be pushed.
    pub next_frame: Frame,
    /// Batches encoded, each once for all spectators.
    pub batches: u64,
    /// Total size of these batches in bytes.
    pub batch_bytes: u64,
    /// Snapshots stored.
    pub snapshots: u64,
    /// Datagrams sent.
    pub packets_out: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
    /// Payload bytes sent on request: snapshots and missed frames.
    pub bulk_out: u64,
    /// Datagrams received, valid or not.
    pub packets_in: u64,
    /// Datagrams that were no message, or of a type that only feeds send.
    pub malformed: u64,
    /// Datagrams of another session, or from an address that is not subscribed.
    pub unknown_senders: u64,
    /// Subscribe requests refused because the feed was full.
    pub refused: u64,
    /// Spectators dropped because they could not keep up or requested frames that are no longer kept.
    pub dropped_slow: u64,
    /// Spectators dropped for silence.
    pub dropped_silent: u64,
}

/// A request from a spectator to its host program.
#[derive(Debug, PartialEq, Eq)]
pub enum SpectatorRequest<'a> {
    /// Load this state into the machine.
    Load {
        /// The first frame to step from this state.
        next_frame: Frame,
        /// The saved state.
        state: &'a [u8],
        /// The machine's hash of this state, as stated by the feed.
        hash: u64,
    },
    /// Step the machine.
    Advance {
        /// The frame to step.
        frame: Frame,
        /// One input word per player.
        inputs: &'a [InputWord],
        /// Whether to present picture and sound. If not, the spectator is catching up and steps many frames at once.
        is_presented: bool,
    },
    /// Hash the state after `frame` and pass it to [`Spectator::handle_hash`](super::Spectator::handle_hash).
    Hash {
        /// The frame just stepped, or the one before the state just loaded.
        frame: Frame,
        /// The hash stated by the feed. A relay without a machine answers with it.
        expected: u64,
    },
}

/// An event that the host program of a spectator may want to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorEvent {
    /// A source accepted the subscription.
    Joined {
        /// Address of the source.
        source: Addr,
    },
    /// The spectator has caught up and presents frames as they are played.
    Live {
        /// The first live frame.
        frame: Frame,
    },
    /// The spectator has fallen behind the players.
    Behind {
        /// Distance in frames.
        frames: u32,
    },
    /// The source changed how often it sends, because of the speed of the link to this spectator.
    Slowed {
        /// Number of batches per packet.
        batches: u32,
    },
    /// The spectator switched to another source.
    SourceChanged {
        /// Address of the new source.
        to: Addr,
        /// Error of the previous source.
        reason: SourceError,
    },
    /// Desync: the spectator's state differs from the players' state after the same inputs. Reported once.
    Diverged {
        /// The first compared frame whose states differ.
        frame: Frame,
    },
    /// The spectator gave up.
    Dropped {
        /// Error of the last source.
        reason: SourceError,
    },
    /// The game has ended, and the spectator has seen all of it.
    Ended {
        /// The frame after the last.
        frame: Frame,
    },
}

/// An error of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// It refused the subscription, or closed it.
    Refused(CloseReason),
    /// It sent nothing within the timeout.
    Silent,
    /// Its snapshot exceeds the configured limit.
    SnapshotTooLarge {
        /// Announced size in bytes.
        size: u32,
    },
    /// Its snapshot does not match its digest or its state hash.
    BadSnapshot,
    /// Its frames do not continue those of the previous source. The spectator reloads the state a few times before it
    /// reports this.
    DifferentGame,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "the source refused: {reason}"),
            Self::Silent => write!(f, "the source does not answer"),
            Self::SnapshotTooLarge { size } => write!(f, "the source's snapshot of {size} bytes is too large"),
            Self::BadSnapshot => write!(f, "the source's snapshot is corrupt"),
            Self::DifferentGame => write!(f, "the source plays a different game than the previous source"),
        }
    }
}

impl fmt::Display for SpectatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { .. } => write!(f, "subscribed"),
            Self::Live { frame } => write!(f, "live from frame {frame} on"),
            Self::Behind { frames } => write!(f, "{frames} frames behind"),
            Self::Slowed { batches } => write!(f, "slow link: one packet per {batches} batches"),
            Self::SourceChanged { reason, .. } => write!(f, "{reason}; trying another source"),
            Self::Diverged { frame } => {
                write!(f, "desync: the local state differs from the players' after frame {frame}")
            }
            Self::Dropped { reason } => write!(f, "stopped watching: {reason}"),
            Self::Ended { frame } => write!(f, "the game is over; it had {frame} frames"),
        }
    }
}

/// Statistics of a spectator, counted since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpectatorStats {
    /// Datagrams sent.
    pub packets_out: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
    /// Datagrams received, valid or not.
    pub packets_in: u64,
    /// Payload bytes received.
    pub bytes_in: u64,
    /// Datagrams that were no message, or of a type that only spectators send.
    pub malformed: u64,
    /// Datagrams of another session, or not from the current source.
    pub unknown_senders: u64,
    /// Frames requested because they did not arrive as live frames.
    pub requested_frames: u64,
    /// Snapshot parts requested.
    pub requested_parts: u64,
    /// Snapshot parts received.
    pub received_parts: u64,
    /// Snapshot blocks that failed their check.
    pub bad_blocks: u64,
    /// Times that the picture froze because frames were late.
    pub stalls: u64,
    /// Compared states that differed.
    pub mismatches: u64,
}

/// Queue of events for the host program. When it is full, the oldest event is discarded.
#[derive(Debug)]
pub(super) struct EventQueue<E> {
    pending: VecDeque<E>,
    capacity: usize,
}

impl<E> EventQueue<E> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { pending: VecDeque::with_capacity(capacity), capacity }
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
