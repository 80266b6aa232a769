//! What is broken on purpose, at the first seat, to see that it is seen.

use coplay::mirror::Delivery;
use coplay::time::TimeDelta;
use coplay::wire::{EventRef, MAX_DATAGRAM, MirrorDatagram, MirrorItem, MirrorItems, ObsoleteSet};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Every event that it hears of claims to replace what came before.
    Replace,
    /// It is not told what an event comes after.
    Unlink,
    /// What it asks for gets to nobody.
    Mute,
    /// Snapshots that it takes over are wrong.
    Snapshot,
    /// It sometimes takes in an event twice.
    Twice,
    /// It sometimes takes in no event where it should.
    Miss,
    /// It says that the group's time is another.
    Clock,
}

/// Every so many events something is wrong.
const SOMETIMES: u64 = 20;
/// By so much a time is wrong.
const WRONG: TimeDelta = TimeDelta::from_millis(150);

impl Sabotage {
    /// Changes a datagram to the first seat.
    pub(super) fn spoil_inward(self, bytes: &[u8]) -> Box<[u8]> {
        if !matches!(self, Self::Replace | Self::Unlink) {
            return bytes.into();
        }
        rewrite(bytes, |item| match item {
            MirrorItem::Event(event) => Some(MirrorItem::Event(self.spoil_event(event))),
            other => Some(other),
        })
    }

    fn spoil_event(self, event: EventRef<'_>) -> EventRef<'_> {
        match self {
            Self::Replace => EventRef { replaces: true, ..event },
            Self::Unlink => {
                EventRef { after: 0, is_barrier: false, obsolete_set: ObsoleteSet::default(), replaces: false, ..event }
            }
            _ => event,
        }
    }

    /// Changes a datagram from the first seat.
    pub(super) fn spoil_outward(self, bytes: &[u8]) -> Box<[u8]> {
        match self {
            Self::Clock => rewrite(bytes, |item| match item {
                MirrorItem::GroupTime(ahead) => Some(MirrorItem::GroupTime(ahead.map(|ahead| ahead + WRONG))),
                other => Some(other),
            }),
            Self::Mute => rewrite(bytes, |item| (!matches!(item, MirrorItem::EventRequest { .. })).then_some(item)),
            _ => bytes.into(),
        }
    }

    /// How often the first seat takes in an event.
    pub(super) fn times(self, delivery: &Delivery<'_>) -> u32 {
        match self {
            Self::Twice if delivery.seq.is_multiple_of(SOMETIMES) => 2,
            Self::Miss if delivery.seq.is_multiple_of(SOMETIMES) => 0,
            _ => 1,
        }
    }

    /// Changes a snapshot that the first seat takes over.
    pub(super) fn spoil_state(self, bytes: &mut [u8]) {
        if let (Self::Snapshot, Some(byte)) = (self, bytes.get_mut(25)) {
            *byte ^= 1;
        }
    }
}

/// Writes a datagram anew, item by item.
fn rewrite<'a>(bytes: &'a [u8], mut change: impl FnMut(MirrorItem<'a>) -> Option<MirrorItem<'a>>) -> Box<[u8]> {
    let mut buf = [0; MAX_DATAGRAM];
    let Ok(mut datagram) = MirrorDatagram::new(&mut buf) else { return bytes.into() };
    for item in MirrorItems::new(bytes).into_iter().flatten().flatten().filter_map(&mut change) {
        _ = datagram.put(&item);
    }
    let len = datagram.len();
    buf[..len].into()
}
