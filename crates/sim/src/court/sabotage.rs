//! What is broken on purpose, to prove that the judge sees it.

use coplay::motion::CommandNumber;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::motion::{MotionDatagram, MotionItem, MotionItems};

use super::Scenario;

/// What is broken on purpose, on the way to or from the first seat, to see that it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It hears of no commands of others after a while.
    Deaf,
    /// Its own commands do not get to the server after a while.
    Mute,
    /// It gets wrong stamps for clocks.
    Stamps,
    /// It takes legs to be longer than they were.
    Legs,
    /// It takes the server to have turned earlier than it did.
    Since,
    /// Its own time runs too fast for a while.
    Hurry,
    /// It is not heard when it asks again for what the server has forgotten that it watches.
    Unheeded,
    /// It takes an object for the one that was called the same before, and goes on where the server decided otherwise.
    Stale,
    /// It is not told that an object is no more.
    Lingering,
    /// Somebody else commands its object, and nobody decided so.
    Usurped,
}

impl Sabotage {
    /// From when on something is broken, and until when somebody hurries.
    const BROKEN: TimeDelta = TimeDelta::from_secs(6);
    const HURRIES: TimeDelta = TimeDelta::from_secs(1);

    /// By how much the first seat's time is ahead of its clock.
    pub(super) fn hurry(self, seat: usize, now: Instant) -> TimeDelta {
        let since = (now - Instant::ZERO - Self::BROKEN).max(TimeDelta::ZERO).min(Self::HURRIES);
        if self == Self::Hurry && seat == 0 { since * 3 } else { TimeDelta::ZERO }
    }

    /// Changes what gets to or from a seat; `None` if it does not get there at all.
    pub(super) fn spoil(self, now: Instant, seat: usize, up: bool, bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        let is_late = now - Instant::ZERO > Self::BROKEN;
        let is_concerned = match self {
            Self::Mute | Self::Unheeded => up && is_late,
            Self::Deaf | Self::Usurped => !up && is_late,
            Self::Hurry => false,
            Self::Stamps | Self::Legs | Self::Since | Self::Stale | Self::Lingering => !up,
        };
        if seat != 0 || !is_concerned {
            return Some(bytes);
        }
        let items = MotionItems::new(&bytes).ok()?;
        let mut buf = [0; coplay::wire::MAX_DATAGRAM];
        let mut datagram = MotionDatagram::new(&mut buf, items.header()).ok()?;
        for item in items.flatten() {
            datagram.put(self.changed(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// An item as it is told, if it is.
    fn changed(self, item: MotionItem<'_>) -> Option<MotionItem<'_>> {
        match (self, item) {
            (Self::Deaf | Self::Mute, MotionItem::Command { .. }) => None,
            (Self::Stamps, MotionItem::Echo { sent, received }) => {
                Some(MotionItem::Echo { sent, received: received + OFF * 4 })
            }
            (Self::Legs, MotionItem::Command { object, number, previous_segment: leg, vector }) => {
                Some(MotionItem::Command { object, number, previous_segment: leg + OFF, vector })
            }
            (
                Self::Since,
                MotionItem::Timer { object, number, timer, catch_up: owed, command_age: since, timer_at_command: from },
            ) => Some(MotionItem::Timer {
                object,
                number,
                timer,
                catch_up: owed,
                command_age: since + OFF * 10,
                timer_at_command: from,
            }),
            (Self::Usurped, MotionItem::Timer { object, number, .. }) if object == Scenario::avatar(0) => {
                let number = CommandNumber { count: number.count.saturating_add(1), ..number };
                Some(MotionItem::Command { object, number, previous_segment: OFF, vector: &[0; 16] })
            }
            // A probe says nothing of any object.
            (Self::Stale, MotionItem::Command { number, .. }) if number.epoch > 0 => Some(MotionItem::Probe),
            (Self::Unheeded, MotionItem::Subscribe(_)) | (Self::Lingering, MotionItem::Removed { .. }) => {
                Some(MotionItem::Probe)
            }
            (_, item) => Some(item),
        }
    }
}

/// By how much what is broken is off.
const OFF: TimeDelta = TimeDelta::from_millis(40);
