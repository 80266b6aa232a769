//! Deliberate defects at the first node, to prove that the checker detects them.

use coplay::peer_world::message::{PeerWorldItem, PeerWorldItems};

/// Deliberate defect at the first node, to prove that the checker detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerWorldSabotage {
    /// In datagrams that begin with an update, that update arrives with a tick that is 3 too high.
    ShiftUpdateTicks,
    /// Datagrams that contain a record do not arrive.
    DropRecords,
    /// Like [`DropRecords`](Self::DropRecords), but a leave still arrives, without its records.
    DropFinalRecords,
    /// Clock echoes arrive with receive and answer times that are 40 ms too late.
    WrongClockStamps,
    /// From 5 s on, the checker does not see the deliveries to the node.
    ShowUndelivered,
}

impl PeerWorldSabotage {
    /// Applies the defect to a datagram to the first node. Returns `None` if the datagram is dropped.
    pub(super) fn tamper(self, mut bytes: Box<[u8]>) -> Option<Box<[u8]>> {
        const UPDATE: u8 = 1;
        const PROBE: u8 = 5;
        const ECHO: u8 = 6;
        match self {
            Self::ShiftUpdateTicks if bytes.get(1) == Some(&UPDATE) && bytes.len() > 7 => {
                let tick = u16::from_le_bytes([bytes[5], bytes[6]]).wrapping_add(3);
                bytes[5..7].copy_from_slice(&tick.to_le_bytes());
            }
            Self::WrongClockStamps => {
                let echo = if bytes.get(1) == Some(&PROBE) { 10 } else { 1 };
                if bytes.get(echo) == Some(&ECHO) && bytes.len() >= echo + 25 {
                    for at in [echo + 9, echo + 17] {
                        let stamp: [u8; 8] = bytes[at..at + 8].try_into().expect("eight bytes");
                        bytes[at..at + 8].copy_from_slice(&(i64::from_le_bytes(stamp) + 40_000_000).to_le_bytes());
                    }
                }
            }
            Self::DropRecords | Self::DropFinalRecords => {
                let has = |is: fn(&PeerWorldItem<'_>) -> bool| {
                    PeerWorldItems::new(&bytes).into_iter().flatten().flatten().any(|item| is(&item))
                };
                let is_leave = self == Self::DropFinalRecords && has(|item| *item == PeerWorldItem::Leave);
                match has(|item| matches!(item, PeerWorldItem::Record { .. })) {
                    true if is_leave => bytes = [bytes[0], bytes[bytes.len() - 1]].into(),
                    true => return None,
                    false => {}
                }
            }
            _ => {}
        }
        Some(bytes)
    }
}
