//! What is broken on purpose, to prove that the judge sees it.

use coplay::motion::Number;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::motion::{Datagram, Item, Items};

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
        let items = Items::new(&bytes).ok()?;
        let mut buf = [0; coplay::wire::MAX_DATAGRAM];
        let mut datagram = Datagram::new(&mut buf, items.head()).ok()?;
        for item in items.flatten() {
            datagram.put(self.changed(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// An item as it is told, if it is.
    fn changed(self, item: Item<'_>) -> Option<Item<'_>> {
        match (self, item) {
            (Self::Deaf | Self::Mute, Item::Command { .. }) => None,
            (Self::Stamps, Item::Echo { sent, received }) => Some(Item::Echo { sent, received: received + OFF * 4 }),
            (Self::Legs, Item::Command { object, number, leg, vector }) => {
                Some(Item::Command { object, number, leg: leg + OFF, vector })
            }
            (Self::Since, Item::Timer { object, number, timer, owed, since, from }) => {
                Some(Item::Timer { object, number, timer, owed, since: since + OFF * 10, from })
            }
            (Self::Usurped, Item::Timer { object, number, .. }) if object == Scenario::avatar(0) => {
                let number = Number { count: number.count.saturating_add(1), ..number };
                Some(Item::Command { object, number, leg: OFF, vector: &[0; 16] })
            }
            // A probe says nothing of any object.
            (Self::Stale, Item::Command { number, .. }) if number.epoch > 0 => Some(Item::Probe),
            (Self::Unheeded, Item::Watch(_)) | (Self::Lingering, Item::Gone { .. }) => Some(Item::Probe),
            (_, item) => Some(item),
        }
    }
}

/// By how much what is broken is off.
const OFF: TimeDelta = TimeDelta::from_millis(40);
