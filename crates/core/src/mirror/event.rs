//! Events: what happens in a game, who says so, and what else it has to do with.

use alloc::boxed::Box;
use core::fmt;

use crate::time::{GroupInstant, TimeDelta};
use crate::wire::{EventRef, ObsoleteSet};

/// The most bytes of an event: it fits in one datagram.
pub const MAX_PAYLOAD: usize = 900;
/// The most events of a key in a row that can be made obsolete.
pub const MAX_OBSOLETE_SET: usize = 32;

/// A run of a server, which issues events: whoever is started anew is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SourceId(pub u32);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// An event as the game issues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// The object that it is about; only its owner issues events about it. Events of one key are correlated: they are seen in their order.
    /// With 0 it is correlated with nothing, and seen as soon as it comes.
    pub key: u64,
    /// It makes earlier events of its key useless, back to the last that is not replaceable: whoever sees it need not have seen them.
    pub replaces: bool,
    /// It may be made useless by later ones of its key.
    pub is_replaceable: bool,
    /// What it says: at most [`MAX_PAYLOAD`] bytes.
    pub payload: &'a [u8],
}

impl<'a> NewEvent<'a> {
    /// Where something is: all that came before is useless then, and so is this when the next comes.
    pub fn state(key: u64, payload: &'a [u8]) -> Self {
        Self { key, replaces: true, is_replaceable: true, payload }
    }

    /// What must not be missed, at its place among the others of its key.
    pub fn action(key: u64, payload: &'a [u8]) -> Self {
        Self { key, replaces: false, is_replaceable: false, payload }
    }
}

/// Why an event cannot be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The group's time is not known yet.
    NoGroupTime,
    /// It says more than [`MAX_PAYLOAD`] bytes.
    TooLong,
    /// Too many of our own are not delivered yet.
    TooManyPending,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGroupTime => "the time that the mirrors share is not known yet",
            Self::TooLong => "an event says at most 900 bytes",
            Self::TooManyPending => "too many events wait for the other mirrors",
        })
    }
}

impl core::error::Error for IssueError {}

/// An event at its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// Who issued it.
    pub source: SourceId,
    /// Its number among all of that source, from 1 on.
    pub seq: u64,
    /// When it was issued.
    pub at: GroupInstant,
    /// The object that it is about.
    pub key: u64,
    /// What it says.
    pub payload: &'a [u8],
    /// The game time difference: how long ago it was issued.
    pub gtd: TimeDelta,
    /// Whether it is our own.
    pub is_own: bool,
    /// It comes after one that is later in the [total order](super::Order::Total): who issued it was not known, or not heard for too long.
    pub is_out_of_order: bool,
}

/// An event as it is kept: one piece of memory for what it says and its run.
#[derive(Debug)]
pub(super) struct StoredEvent {
    pub(super) at: GroupInstant,
    pub(super) key: u64,
    pub(super) after: u64,
    pub(super) barrier: bool,
    pub(super) replaces: bool,
    obsolete_set_len: u16,
    body: Box<[u8]>,
}

impl StoredEvent {
    pub(super) fn new(happening: &EventRef<'_>) -> Self {
        let run = happening.obsolete_set.bytes();
        let mut body = alloc::vec::Vec::with_capacity(run.len() + happening.payload.len());
        body.extend_from_slice(run);
        body.extend_from_slice(happening.payload);
        let EventRef { issued_at: at, key, after, is_barrier: barrier, replaces, .. } = *happening;
        Self { at, key, after, barrier, replaces, obsolete_set_len: run.len() as u16, body: body.into_boxed_slice() }
    }

    /// The events of its key since `after`, if its own number is this.
    pub(super) fn obsolete_set(&self, seq: u64) -> ObsoleteSet<'_> {
        ObsoleteSet::from_bytes(seq, &self.body[..usize::from(self.obsolete_set_len)])
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.body[usize::from(self.obsolete_set_len)..]
    }

    /// As it goes over the wire.
    pub(super) fn event_ref(&self, source: SourceId, seq: u64) -> EventRef<'_> {
        let Self { at, key, after, barrier, replaces, .. } = *self;
        EventRef {
            source,
            seq,
            issued_at: at,
            key,
            after,
            is_barrier: barrier,
            replaces,
            obsolete_set: self.obsolete_set(seq),
            payload: self.payload(),
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.body.len()
    }
}
