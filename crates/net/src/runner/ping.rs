//! Measures round-trip times to peers while no session measures them: sends a ping of a few bytes, which the peer
//! answers.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::{PeerKey, random_bytes};

const PING: u8 = 0x42;
const PONG: u8 = 0x43;
/// Length of a datagram, in bytes: type, nonce, and number of spectators. No reply is longer than its request.
const DATAGRAM_LEN: usize = 1 + 4 + 2;
/// Number of consecutive unanswered pings after which the round-trip time counts as unknown, once the next ping is
/// sent.
const MAX_MISSED: u32 = 3;

/// Round-trip times to other peers.
#[derive(Debug, Default)]
pub(super) struct Pinger {
    peers: BTreeMap<PeerKey, PingState>,
    next_ping: Instant,
}

#[derive(Debug, Default)]
struct PingState {
    nonce: u32,
    sent_at: Instant,
    /// Number of pings since the last reply.
    missed: u32,
    rtt: Option<TimeDelta>,
}

/// Ping or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingMessage {
    /// Request for a reply with the same nonce.
    Ping { nonce: u32 },
    /// Reply to the ping with this nonce, with the number of spectators that the replying site knows.
    Pong { nonce: u32, spectator_count: u16 },
}

impl PingMessage {
    /// Decodes a datagram; `None` if it is not a ping message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[kind, a, b, c, d, low, high] = bytes else { return None };
        let nonce = u32::from_le_bytes([a, b, c, d]);
        match kind {
            PING => Some(Self::Ping { nonce }),
            PONG => Some(Self::Pong { nonce, spectator_count: u16::from_le_bytes([low, high]) }),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; DATAGRAM_LEN] {
        let (kind, nonce, spectator_count) = match self {
            Self::Ping { nonce } => (PING, nonce, 0u16),
            Self::Pong { nonce, spectator_count } => (PONG, nonce, spectator_count),
        };
        let ([a, b, c, d], [low, high]) = (nonce.to_le_bytes(), spectator_count.to_le_bytes());
        [kind, a, b, c, d, low, high]
    }
}

impl Pinger {
    /// Pings these peers through `send` if `interval` has passed since the last pings, and then forgets all other
    /// peers.
    pub(super) fn ping_all(
        &mut self,
        now: Instant,
        interval: TimeDelta,
        peers: impl IntoIterator<Item = PeerKey>,
        mut send: impl FnMut(&PeerKey, &[u8]),
    ) {
        if now < self.next_ping {
            return;
        }
        self.next_ping = now + interval;
        let mut before = std::mem::take(&mut self.peers);
        for peer in peers {
            let mut state = before.remove(&peer).unwrap_or_default();
            state.missed += 1;
            if state.missed > MAX_MISSED {
                state.rtt = None;
            }
            (state.nonce, state.sent_at) = (u32::from_le_bytes(random_bytes()), now);
            send(&peer, &PingMessage::Ping { nonce: state.nonce }.encode());
            self.peers.insert(peer, state);
        }
    }

    /// Handles a reply. Returns whether it is the first reply to the newest ping to this peer.
    pub(super) fn on_pong(&mut self, at: Instant, from: &PeerKey, nonce: u32) -> bool {
        let is_open = |state: &&mut PingState| state.nonce == nonce && state.missed > 0;
        let Some(state) = self.peers.get_mut(from).filter(is_open) else { return false };
        let took = (at - state.sent_at).max(TimeDelta::ZERO);
        state.rtt = Some(state.rtt.map_or(took, |before| (before * 3 + took) / 4));
        state.missed = 0;
        true
    }

    /// Returns the smoothed round-trip time to a peer; `None` if the peer has not answered yet or does not answer any
    /// more.
    pub(super) fn rtt(&self, peer: &PeerKey) -> Option<TimeDelta> {
        self.peers.get(peer).and_then(|state| state.rtt)
    }

    /// Returns whether a peer has answered none of the last [`MAX_MISSED`] pings before the newest one.
    pub(super) fn is_silent(&self, peer: &PeerKey) -> bool {
        self.peers.get(peer).is_some_and(|state| state.missed > MAX_MISSED)
    }

    /// Forgets all peers.
    pub(super) fn clear(&mut self) {
        self.peers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: TimeDelta = TimeDelta::from_secs(1);

    #[test]
    fn ping_messages_round_trip() {
        for message in [PingMessage::Ping { nonce: 7 }, PingMessage::Pong { nonce: u32::MAX, spectator_count: 900 }] {
            assert_eq!(PingMessage::decode(&message.encode()), Some(message));
            assert_eq!(PingMessage::decode(&message.encode()[1..]), None);
        }
        assert!(
            !crate::reliable::Channel::is_channel_datagram(&[PING])
                && !coplay::spectator_feed::message::is_feed(&[PONG])
        );
    }

    #[test]
    fn rtt_is_measured_until_peer_stops_answering() {
        let (peer, mut pinger, mut sent) = (PeerKey([1; 32]), Pinger::default(), Vec::new());
        let at = |millis| Instant::ZERO + TimeDelta::from_millis(millis);
        let mut ping = |pinger: &mut Pinger, now| {
            pinger.ping_all(now, INTERVAL, [peer], |to, bytes| sent.push((*to, PingMessage::decode(bytes))));
            sent.drain(..).next_back()
        };
        let Some((_, Some(PingMessage::Ping { nonce }))) = ping(&mut pinger, at(0)) else { panic!("no ping was sent") };
        assert_eq!(ping(&mut pinger, at(999)), None, "the interval has not passed");
        assert!(!pinger.on_pong(at(20), &peer, nonce.wrapping_add(1)) && pinger.rtt(&peer).is_none());
        assert!(pinger.on_pong(at(23), &peer, nonce));
        assert_eq!(pinger.rtt(&peer), Some(TimeDelta::from_millis(23)));
        assert!(!pinger.on_pong(at(900), &peer, nonce), "a reply counts once");
        (1..=3).for_each(|second| _ = ping(&mut pinger, at(second * 1_000)));
        assert!(pinger.rtt(&peer).is_some() && !pinger.is_silent(&peer));
        ping(&mut pinger, at(4_000));
        assert!(pinger.rtt(&peer).is_none() && pinger.is_silent(&peer));
        pinger.ping_all(at(5_000), INTERVAL, [], |_, _| {});
        assert!(!pinger.is_silent(&peer), "a peer without pings is not silent");
    }
}
