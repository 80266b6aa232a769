//! Deliberate defects, to prove that the checker detects them.

use coplay::motion::CommandNumber;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::motion::{MotionDatagramWriter, MotionItem, MotionItems};

use super::MotionScenario;

/// A deliberate defect on the link between the first client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// After 6 s, datagrams with commands do not reach the client.
    DropCommandsToClient,
    /// After 6 s, datagrams with commands do not reach the server.
    DropCommandsToServer,
    /// Clock echoes arrive with wrong time stamps.
    WrongClockStamps,
    /// Command segments arrive longer than they were.
    LongerSegments,
    /// The server's last command arrives with too great an age.
    WrongTurnTimes,
    /// The client's clock runs too fast for one second.
    FastClock,
    /// After 6 s, subscriptions do not reach the server.
    DropSubscriptions,
    /// Commands of new epochs do not arrive: the client misses respawned objects and decisions of the server.
    DropNewEpochs,
    /// Removals of objects do not arrive.
    DropRemovals,
    /// Forged commands arrive for the client's own object, without a decision of the server.
    ForgeCommands,
}

impl Sabotage {
    /// Start of most defects, and duration of the fast clock.
    const ACTIVE_FROM: TimeDelta = TimeDelta::from_secs(6);
    const FAST_CLOCK_DURATION: TimeDelta = TimeDelta::from_secs(1);

    /// Returns by how much the first client's engine time is ahead of its clock.
    pub(super) fn clock_advance(self, seat: usize, now: Instant) -> TimeDelta {
        let since = (now - Instant::ZERO - Self::ACTIVE_FROM).max(TimeDelta::ZERO).min(Self::FAST_CLOCK_DURATION);
        if self == Self::FastClock && seat == 0 { since * 3 } else { TimeDelta::ZERO }
    }

    /// Changes a datagram to or from a client. Returns `None` if the datagram is dropped.
    pub(super) fn tamper(self, now: Instant, seat: usize, up: bool, bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        let is_active = now - Instant::ZERO > Self::ACTIVE_FROM;
        let is_affected = match self {
            Self::DropCommandsToServer | Self::DropSubscriptions => up && is_active,
            Self::DropCommandsToClient | Self::ForgeCommands => !up && is_active,
            Self::FastClock => false,
            Self::WrongClockStamps
            | Self::LongerSegments
            | Self::WrongTurnTimes
            | Self::DropNewEpochs
            | Self::DropRemovals => !up,
        };
        if seat != 0 || !is_affected {
            return Some(bytes);
        }
        let items = MotionItems::new(&bytes).ok()?;
        let mut buf = [0; coplay::wire::MAX_DATAGRAM];
        let mut datagram = MotionDatagramWriter::new(&mut buf, items.header()).ok()?;
        for item in items.flatten() {
            datagram.put(self.tamper_item(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// Changes an item. Returns `None` if the whole datagram is dropped.
    fn tamper_item(self, item: MotionItem<'_>) -> Option<MotionItem<'_>> {
        match (self, item) {
            (Self::DropCommandsToClient | Self::DropCommandsToServer, MotionItem::Command { .. }) => None,
            (Self::WrongClockStamps, MotionItem::Echo { sent, received }) => {
                Some(MotionItem::Echo { sent, received: received + TIME_ERROR * 4 })
            }
            (Self::LongerSegments, MotionItem::Command { object, number, previous_segment, vector }) => {
                let previous_segment = previous_segment + TIME_ERROR;
                Some(MotionItem::Command { object, number, previous_segment, vector })
            }
            (
                Self::WrongTurnTimes,
                MotionItem::Timer { object, number, timer, catch_up, command_age, timer_at_command },
            ) => Some(MotionItem::Timer {
                object,
                number,
                timer,
                catch_up,
                command_age: command_age + TIME_ERROR * 10,
                timer_at_command,
            }),
            (Self::ForgeCommands, MotionItem::Timer { object, number, .. })
                if object == MotionScenario::avatar_of(0) =>
            {
                let number = CommandNumber { count: number.count.saturating_add(1), ..number };
                Some(MotionItem::Command { object, number, previous_segment: TIME_ERROR, vector: &[0; 16] })
            }
            // A probe replaces the item, because it concerns no object.
            (Self::DropNewEpochs, MotionItem::Command { number, .. }) if number.epoch > 0 => Some(MotionItem::Probe),
            (Self::DropSubscriptions, MotionItem::Subscribe(_)) | (Self::DropRemovals, MotionItem::Removed { .. }) => {
                Some(MotionItem::Probe)
            }
            (_, item) => Some(item),
        }
    }
}

/// Unit of the injected time errors.
const TIME_ERROR: TimeDelta = TimeDelta::from_millis(40);
