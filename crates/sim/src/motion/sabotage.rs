//! What is broken on purpose, to prove that the judge sees it.

use coplay::motion::CommandNumber;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::motion::{MotionDatagram, MotionItem, MotionItems};

use super::MotionScenario;

/// What is broken on purpose, on the way to or from the first seat, to see that it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// It hears of no commands of others after a while.
    DropCommandsToClient,
    /// Its own commands do not get to the server after a while.
    DropCommandsToServer,
    /// It gets wrong stamps for clocks.
    WrongClockStamps,
    /// It takes legs to be longer than they were.
    LongerSegments,
    /// It takes the server to have turned earlier than it did.
    WrongTurnTimes,
    /// Its own time runs too fast for a while.
    FastClock,
    /// It is not heard when it asks again for what the server has forgotten that it watches.
    DropSubscriptions,
    /// It takes an object for the one that was called the same before, and goes on where the server decided otherwise.
    DropNewEpochs,
    /// It is not told that an object is no more.
    DropRemovals,
    /// Somebody else commands its object, and nobody decided so.
    ForgeCommands,
}

impl Sabotage {
    /// From when on something is broken, and until when somebody hurries.
    const ACTIVE_FROM: TimeDelta = TimeDelta::from_secs(6);
    const FAST_CLOCK_DURATION: TimeDelta = TimeDelta::from_secs(1);

    /// By how much the first seat's time is ahead of its clock.
    pub(super) fn clock_advance(self, seat: usize, now: Instant) -> TimeDelta {
        let since = (now - Instant::ZERO - Self::ACTIVE_FROM).max(TimeDelta::ZERO).min(Self::FAST_CLOCK_DURATION);
        if self == Self::FastClock && seat == 0 { since * 3 } else { TimeDelta::ZERO }
    }

    /// Changes what gets to or from a seat; `None` if it does not get there at all.
    pub(super) fn tamper(self, now: Instant, seat: usize, up: bool, bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        let is_late = now - Instant::ZERO > Self::ACTIVE_FROM;
        let is_concerned = match self {
            Self::DropCommandsToServer | Self::DropSubscriptions => up && is_late,
            Self::DropCommandsToClient | Self::ForgeCommands => !up && is_late,
            Self::FastClock => false,
            Self::WrongClockStamps
            | Self::LongerSegments
            | Self::WrongTurnTimes
            | Self::DropNewEpochs
            | Self::DropRemovals => !up,
        };
        if seat != 0 || !is_concerned {
            return Some(bytes);
        }
        let items = MotionItems::new(&bytes).ok()?;
        let mut buf = [0; coplay::wire::MAX_DATAGRAM];
        let mut datagram = MotionDatagram::new(&mut buf, items.header()).ok()?;
        for item in items.flatten() {
            datagram.put(self.tamper_item(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// An item as it is told, if it is.
    fn tamper_item(self, item: MotionItem<'_>) -> Option<MotionItem<'_>> {
        match (self, item) {
            (Self::DropCommandsToClient | Self::DropCommandsToServer, MotionItem::Command { .. }) => None,
            (Self::WrongClockStamps, MotionItem::Echo { sent, received }) => {
                Some(MotionItem::Echo { sent, received: received + TIME_ERROR * 4 })
            }
            (Self::LongerSegments, MotionItem::Command { object, number, previous_segment: leg, vector }) => {
                Some(MotionItem::Command { object, number, previous_segment: leg + TIME_ERROR, vector })
            }
            (
                Self::WrongTurnTimes,
                MotionItem::Timer { object, number, timer, catch_up: owed, command_age: since, timer_at_command: from },
            ) => Some(MotionItem::Timer {
                object,
                number,
                timer,
                catch_up: owed,
                command_age: since + TIME_ERROR * 10,
                timer_at_command: from,
            }),
            (Self::ForgeCommands, MotionItem::Timer { object, number, .. })
                if object == MotionScenario::avatar_of(0) =>
            {
                let number = CommandNumber { count: number.count.saturating_add(1), ..number };
                Some(MotionItem::Command { object, number, previous_segment: TIME_ERROR, vector: &[0; 16] })
            }
            // A probe says nothing of any object.
            (Self::DropNewEpochs, MotionItem::Command { number, .. }) if number.epoch > 0 => Some(MotionItem::Probe),
            (Self::DropSubscriptions, MotionItem::Subscribe(_)) | (Self::DropRemovals, MotionItem::Removed { .. }) => {
                Some(MotionItem::Probe)
            }
            (_, item) => Some(item),
        }
    }
}

/// By how much what is broken is off.
const TIME_ERROR: TimeDelta = TimeDelta::from_millis(40);
