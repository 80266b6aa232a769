//! Deliberate defects at the first client, to prove that the checker detects them.

use coplay::motion::CommandNumber;
use coplay::motion::message::{MotionDatagramWriter, MotionItem, MotionItems};
use coplay::time::{Instant, TimeDelta};

use super::avatar_of;

/// Deliberate defect of the first client or of the link between it and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionSabotage {
    /// After 6 s, datagrams with commands do not reach the client.
    DropCommandsToClient,
    /// After 6 s, datagrams with commands do not reach the server.
    DropCommandsToServer,
    /// Clock echoes reach the client with a receive time that is 160 ms too late.
    WrongClockStamps,
    /// Commands reach the client with a previous segment that is 40 ms too long.
    LongerSegments,
    /// The age of the last command in the server's timer updates reaches the client 400 ms too high.
    WrongTurnTimes,
    /// From 6 s on, the client's clock runs four times as fast for one second, and then stays 3 s ahead.
    FastClock,
    /// After 6 s, subscriptions do not reach the server.
    DropSubscriptions,
    /// Commands of epochs after the first do not reach the client, so it misses respawned objects and decisions of the
    /// server.
    DropNewEpochs,
    /// Removals of objects do not reach the client.
    DropRemovals,
    /// After 6 s, forged commands for the client's own object arrive, without a decision of the server.
    ForgeCommands,
}

impl MotionSabotage {
    /// Start of the defects that do not act from the beginning.
    const ACTIVE_FROM: TimeDelta = TimeDelta::from_secs(6);
    /// Time for which the clock runs fast with [`MotionSabotage::FastClock`].
    const FAST_CLOCK_DURATION: TimeDelta = TimeDelta::from_secs(1);

    /// Returns by how much a client's engine time is ahead of its clock; zero except for the first client with
    /// [`MotionSabotage::FastClock`].
    pub(super) fn clock_advance(self, seat: usize, now: Instant) -> TimeDelta {
        let since = (now - Instant::ZERO - Self::ACTIVE_FROM).max(TimeDelta::ZERO).min(Self::FAST_CLOCK_DURATION);
        if self == Self::FastClock && seat == 0 { since * 3 } else { TimeDelta::ZERO }
    }

    /// Applies the defect to a datagram that the client with this seat number sent (`up`) or is about to receive.
    /// Returns `None` if the datagram is dropped.
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
        let mut buf = [0; coplay::codec::MAX_DATAGRAM];
        let mut datagram = MotionDatagramWriter::new(&mut buf, items.header()).ok()?;
        for item in items.flatten() {
            datagram.put(self.tamper_item(item)?).ok()?;
        }
        let len = datagram.len();
        Some(buf[..len].into())
    }

    /// Applies the defect to an item of a datagram. Returns `None` if the whole datagram is dropped.
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
            (Self::ForgeCommands, MotionItem::Timer { object, number, .. }) if object == avatar_of(0) => {
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
