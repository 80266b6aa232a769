//! Events: changes of the game state, their sources and their relations.

use alloc::boxed::Box;
use core::fmt;

use super::message::{EncodedEvent, ObsoleteSet, SourceId};
use crate::time::{GroupInstant, TimeDelta};

/// An event that the game passes to [`Mirror::issue`](super::Mirror::issue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// Object that the event is about. Only the owner of the object may issue events about it. Events of one key are
    /// correlated: they are delivered in the order in which they were issued. An event with key 0 is correlated with no
    /// other; in correlated order it is delivered as soon as it arrives.
    pub key: u64,
    /// Whether the event makes the events of its key since the last irreplaceable one obsolete. A receiver of this
    /// event need not have received them.
    pub replaces: bool,
    /// Whether later events of the key may make this event obsolete.
    pub is_replaceable: bool,
    /// Contents, at most [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes.
    pub payload: &'a [u8],
}

impl<'a> NewEvent<'a> {
    /// Creates an event that states an absolute value, such as a position. The event makes the states of the key since
    /// the last irreplaceable event obsolete, and a later state can make this one obsolete.
    pub fn state(key: u64, payload: &'a [u8]) -> Self {
        Self { key, replaces: true, is_replaceable: true, payload }
    }

    /// Creates an event with an action that every mirror must deliver, in its order among the other events of its key.
    pub fn action(key: u64, payload: &'a [u8]) -> Self {
        Self { key, replaces: false, is_replaceable: false, payload }
    }
}

/// Reason why an event cannot be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The group time is not known yet.
    NoGroupTime,
    /// The payload exceeds [`MAX_PAYLOAD`](super::MAX_PAYLOAD) bytes.
    TooLong,
    /// This mirror's oldest unsettled event was issued 4,096 events ago, or its sequence numbers are used up.
    TooManyPending,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGroupTime => "group time is not known yet",
            Self::TooLong => "event payload exceeds 900 bytes",
            Self::TooManyPending => "too many events of this mirror are not delivered yet",
        })
    }
}

impl core::error::Error for IssueError {}

/// An event that [`Mirror::poll_delivery`](super::Mirror::poll_delivery) returns for the game to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// Mirror that issued the event.
    pub source: SourceId,
    /// Sequence number among the events of its source, from 1 on.
    pub seq: u64,
    /// Group time at which the event was issued.
    pub at: GroupInstant,
    /// Object that the event is about: [`NewEvent::key`].
    pub key: u64,
    /// Contents that the source passed in [`NewEvent::payload`].
    pub payload: &'a [u8],
    /// Game time difference: the age of the event at delivery.
    pub gtd: TimeDelta,
    /// Whether this mirror issued the event.
    pub is_own: bool,
    /// Whether an event that is later in the [total order](super::DeliveryOrder::Total) was delivered before this one,
    /// because the source of this event was then unknown, had sent no heartbeat or counted as absent. Always false in
    /// correlated order.
    pub is_out_of_order: bool,
}

/// A stored event: its obsolete set and its payload share one allocation.
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
    pub(super) fn new(event: &EncodedEvent<'_>) -> Self {
        let obsolete_set = event.obsolete_set.bytes();
        let mut body = alloc::vec::Vec::with_capacity(obsolete_set.len() + event.payload.len());
        body.extend_from_slice(obsolete_set);
        body.extend_from_slice(event.payload);
        let EncodedEvent { issued_at: at, key, after, is_barrier: barrier, replaces, .. } = *event;
        Self {
            at,
            key,
            after,
            barrier,
            replaces,
            obsolete_set_len: obsolete_set.len() as u16,
            body: body.into_boxed_slice(),
        }
    }

    /// Returns the replaceable events of the same key since `after`. `seq` is the event's own sequence number.
    pub(super) fn obsolete_set(&self, seq: u64) -> ObsoleteSet<'_> {
        ObsoleteSet::from_bytes(seq, &self.body[..usize::from(self.obsolete_set_len)])
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.body[usize::from(self.obsolete_set_len)..]
    }

    /// Returns the event in its wire representation.
    pub(super) fn to_encoded(&self, source: SourceId, seq: u64) -> EncodedEvent<'_> {
        let Self { at, key, after, barrier, replaces, .. } = *self;
        EncodedEvent {
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

    /// Returns the heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.body.len()
    }
}
