//! Deliberate defects at the first node, to prove that the checker detects them.

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::Delivery;
use coplay::mirror::message::{EncodedEvent, MirrorDatagramWriter, MirrorItem, MirrorItems, ObsoleteSet};
use coplay::time::TimeDelta;

/// Deliberate defect of the first node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorSabotage {
    /// Every received event claims to replace earlier events of its object.
    MarkAllReplacing,
    /// Received events lose their dependencies on earlier events.
    StripDependencies,
    /// The node's requests for missing events are lost.
    DropRequests,
    /// One bit of each installed snapshot of more than 25 bytes is flipped.
    CorruptSnapshot,
    /// The node applies every 20th event of each source twice.
    ApplyTwice,
    /// The node skips every 20th event of each source instead of applying it.
    SkipEvents,
    /// The node's datagrams state a group time that is 150 ms ahead of the node's own estimate.
    WrongGroupTime,
}

/// Interval, in sequence numbers, between the events that [`MirrorSabotage::ApplyTwice`] and
/// [`MirrorSabotage::SkipEvents`] affect.
const FAULT_INTERVAL: u64 = 20;
/// Error that [`MirrorSabotage::WrongGroupTime`] adds to the stated group time.
const TIME_ERROR: TimeDelta = TimeDelta::from_millis(150);

impl MirrorSabotage {
    /// Applies the defect to a datagram to the first node.
    pub(super) fn tamper_incoming(self, bytes: &[u8]) -> Box<[u8]> {
        if !matches!(self, Self::MarkAllReplacing | Self::StripDependencies) {
            return bytes.into();
        }
        rewrite_items(bytes, |item| match item {
            MirrorItem::Event(event) => Some(MirrorItem::Event(self.tamper_event(event))),
            other => Some(other),
        })
    }

    fn tamper_event(self, event: EncodedEvent<'_>) -> EncodedEvent<'_> {
        match self {
            Self::MarkAllReplacing => EncodedEvent { replaces: true, ..event },
            Self::StripDependencies => EncodedEvent {
                after: 0,
                is_barrier: false,
                obsolete_set: ObsoleteSet::default(),
                replaces: false,
                ..event
            },
            _ => event,
        }
    }

    /// Applies the defect to a datagram from the first node.
    pub(super) fn tamper_outgoing(self, bytes: &[u8]) -> Box<[u8]> {
        match self {
            Self::WrongGroupTime => rewrite_items(bytes, |item| match item {
                MirrorItem::GroupTime(ahead) => Some(MirrorItem::GroupTime(ahead.map(|ahead| ahead + TIME_ERROR))),
                other => Some(other),
            }),
            Self::DropRequests => {
                rewrite_items(bytes, |item| (!matches!(item, MirrorItem::EventRequest { .. })).then_some(item))
            }
            _ => bytes.into(),
        }
    }

    /// Returns how often the first node applies a delivered event: 0 to 2 times.
    pub(super) fn apply_count(self, delivery: &Delivery<'_>) -> u32 {
        match self {
            Self::ApplyTwice if delivery.seq.is_multiple_of(FAULT_INTERVAL) => 2,
            Self::SkipEvents if delivery.seq.is_multiple_of(FAULT_INTERVAL) => 0,
            _ => 1,
        }
    }

    /// Applies the defect to a snapshot that the first node installs.
    pub(super) fn tamper_snapshot(self, bytes: &mut [u8]) {
        if let (Self::CorruptSnapshot, Some(byte)) = (self, bytes.get_mut(25)) {
            *byte ^= 1;
        }
    }
}

/// Re-encodes a datagram item by item. Items for which `change` returns `None` are left out.
fn rewrite_items<'a>(bytes: &'a [u8], mut change: impl FnMut(MirrorItem<'a>) -> Option<MirrorItem<'a>>) -> Box<[u8]> {
    let mut buf = [0; MAX_DATAGRAM];
    let Ok(mut datagram) = MirrorDatagramWriter::new(&mut buf) else { return bytes.into() };
    for item in MirrorItems::new(bytes).into_iter().flatten().flatten().filter_map(&mut change) {
        _ = datagram.put(&item);
    }
    let len = datagram.len();
    buf[..len].into()
}
