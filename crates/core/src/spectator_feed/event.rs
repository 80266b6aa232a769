//! Events, requests and statistics that a feed or a spectator passes to its host program.

use alloc::collections::VecDeque;
use core::fmt;

use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::spectator_feed::message::CloseReason;

/// A change among the spectators of a feed, returned by [`Feed::poll_event`](super::Feed::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A spectator subscribed and proved its address.
    Joined {
        /// Address of the new spectator.
        addr: Addr,
    },
    /// A spectator left or was dropped.
    Left {
        /// Address of the former spectator.
        addr: Addr,
        /// Reason for which the feed dropped the spectator; `None` if the spectator unsubscribed.
        reason: Option<CloseReason>,
    },
}

/// Statistics of a feed, counted since its creation unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedStats {
    /// Current number of spectators.
    pub spectators: usize,
    /// Accepted subscriptions, including those of spectators that came back.
    pub total_joined: u64,
    /// The next frame to be pushed; 0 before the first push.
    pub next_frame: Frame,
    /// Batches encoded. Each is encoded once for all spectators.
    pub batches: u64,
    /// Total size of the encoded batches, in bytes.
    pub batch_bytes: u64,
    /// Snapshots that the host program provided and the feed stored.
    pub snapshots: u64,
    /// Datagrams sent, including replies to senders that are not subscribed.
    pub packets_out: u64,
    /// Payload bytes of the datagrams sent.
    pub bytes_out: u64,
    /// Payload bytes sent on request: snapshots and missed frames.
    pub bulk_out: u64,
    /// Datagrams received, valid or not.
    pub packets_in: u64,
    /// Datagrams of a type that only feeds send, and datagrams that did not decode and were not answered with
    /// [`CloseReason::Version`].
    pub malformed: u64,
    /// Datagrams of another session, and acknowledgements, snapshot requests and unsubscriptions from an address that
    /// is not subscribed.
    pub unknown_senders: u64,
    /// Subscribe requests refused because the feed was full.
    pub refused: u64,
    /// Spectators dropped because they could not keep up, or because they requested frames or a snapshot that the feed
    /// no longer keeps.
    pub dropped_slow: u64,
    /// Spectators dropped because they were silent for
    /// [`FeedConfig::silence_timeout`](super::FeedConfig::silence_timeout).
    pub dropped_silent: u64,
}

/// A request from a spectator to its host program.
#[derive(Debug, PartialEq, Eq)]
pub enum SpectatorRequest<'a> {
    /// Load this state into the machine.
    Load {
        /// The first frame to step from this state.
        next_frame: Frame,
        /// The saved state, checked against the digest in the feed's offer.
        state: &'a [u8],
        /// The machine's hash of this state, as stated by the feed.
        hash: u64,
    },
    /// Step the machine by one frame.
    Advance {
        /// Number of the frame to step.
        frame: Frame,
        /// Inputs of the frame, one word per player.
        inputs: &'a [InputWord],
        /// Whether to present picture and sound. If not, the spectator is catching up and steps many frames at once.
        is_presented: bool,
    },
    /// Hash the state after `frame` and pass the hash to [`Spectator::handle_hash`](super::Spectator::handle_hash).
    Hash {
        /// The frame stepped last; after a load, the frame before the first one to step from the loaded state.
        frame: Frame,
        /// The hash stated by the feed. A relay without a machine answers with this value.
        expected: u64,
    },
}

/// A change in the progress or the connection of a spectator, returned by
/// [`Spectator::poll_event`](super::Spectator::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectatorEvent {
    /// A source accepted the subscription.
    Joined {
        /// Address of the source that accepted.
        source: Addr,
    },
    /// The spectator has caught up and presents frames as they are played.
    Live {
        /// The first frame that is presented live.
        frame: Frame,
    },
    /// The spectator has fallen too far behind the players and fast-forwards without presenting frames.
    Behind {
        /// Distance to the source's newest frame, in frames.
        frames: u32,
    },
    /// The source changed how often it sends live frames to this spectator, because the frames that the spectator has
    /// received are too far behind the live ones, or are close to them again.
    Slowed {
        /// Number of batches that the source now sends in one packet; 1 is full speed.
        batches: u32,
    },
    /// The spectator switched to another source.
    SourceChanged {
        /// Address of the new source.
        to: Addr,
        /// Error for which the spectator left the previous source.
        reason: SourceError,
    },
    /// Desync: the spectator's state differs from the players' state after the same inputs. Reported at most once, and
    /// not after a mismatch that is already counted in [`SpectatorStats::mismatches`], such as that of a rejected
    /// snapshot.
    Diverged {
        /// The first compared frame whose states differ.
        frame: Frame,
    },
    /// The spectator gave up and is closed.
    Dropped {
        /// Error of the source that was tried last.
        reason: SourceError,
    },
    /// The game has ended, and the spectator has stepped its last frame.
    Ended {
        /// The frame after the last, which is the number of frames of the game.
        frame: Frame,
    },
}

/// Reason for which a spectator leaves a source or gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The source refused or closed the subscription.
    Refused(CloseReason),
    /// The source sent nothing for [`SpectatorConfig::silence_timeout`](super::SpectatorConfig::silence_timeout), no
    /// source sent anything for [`SpectatorConfig::give_up_timeout`](super::SpectatorConfig::give_up_timeout), or the
    /// host program called [`Spectator::try_other_source`](super::Spectator::try_other_source).
    Silent,
    /// The source's snapshot exceeds [`SpectatorConfig::max_snapshot_size`](super::SpectatorConfig::max_snapshot_size).
    SnapshotTooLarge {
        /// Size in bytes that the source announced.
        size: u32,
    },
    /// The source's snapshot does not match its digest or its state hash, or its blocks were corrupt too often.
    BadSnapshot,
    /// The source's frames do not continue the game that the spectator has stepped: a compared state differs. The
    /// spectator downloads a snapshot of that source and reports this error only if it gives up.
    DifferentGame,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "the site that sends the game refused to send it: {reason}"),
            Self::Silent => write!(f, "the site that sends the game does not answer"),
            Self::SnapshotTooLarge { size } => {
                write!(f, "the game's snapshot of {size} bytes exceeds the limit of this site")
            }
            Self::BadSnapshot => write!(f, "the game's snapshot is corrupt"),
            Self::DifferentGame => write!(f, "the game that the site sends does not continue the game so far"),
        }
    }
}

impl fmt::Display for SpectatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Joined { .. } => write!(f, "the spectator has subscribed to the game"),
            Self::Live { frame } => write!(f, "the spectator is live from frame {frame} on"),
            Self::Behind { frames } => write!(f, "the spectator fast-forwards, {frames} frames behind the players"),
            Self::Slowed { batches: 1 } => write!(f, "the source sends at full rate again"),
            Self::Slowed { batches } => {
                write!(f, "the link is slow: the source now sends {batches} batches of frames in each datagram")
            }
            Self::SourceChanged { reason, .. } => write!(f, "{reason}; the spectator tries another site"),
            Self::Diverged { frame } => {
                write!(f, "desync: the spectator's state differs from the players' state after frame {frame}")
            }
            Self::Dropped { reason } => write!(f, "the spectator has stopped watching: {reason}"),
            Self::Ended { frame } => write!(f, "the game is over after {frame} frames"),
        }
    }
}

/// Statistics of a spectator, counted since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpectatorStats {
    /// Datagrams sent to all sources.
    pub packets_out: u64,
    /// Payload bytes of the datagrams sent.
    pub bytes_out: u64,
    /// Datagrams received, valid or not.
    pub packets_in: u64,
    /// Payload bytes of the datagrams received.
    pub bytes_in: u64,
    /// Datagrams that did not decode, datagrams of a type that only spectators send, and packets with an undecodable
    /// record.
    pub malformed: u64,
    /// Datagrams of another session, or not from the current source.
    pub unknown_senders: u64,
    /// Frames requested because they did not arrive as live frames, counted once per request.
    pub requested_frames: u64,
    /// Snapshot parts requested, counted once per request.
    pub requested_parts: u64,
    /// Snapshot parts received, including duplicates.
    pub received_parts: u64,
    /// Times that a downloaded snapshot block failed its check or its parts disagreed on its encoding.
    pub bad_blocks: u64,
    /// Times that playout stopped because the next frame had not arrived when it was due.
    pub stalls: u64,
    /// State comparisons in which the host program's hash differed from the feed's. A difference that leads to
    /// [`SourceError::DifferentGame`] is not counted.
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
