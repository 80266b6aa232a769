//! How far away somebody is, while no session measures it: a few bytes there and back, now and then.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::{PeerKey, random_bytes};

const PING: u8 = 0x42;
const PONG: u8 = 0x43;
/// What it is, a number that comes back, and how many look on. No answer is longer than the question.
const DATAGRAM_LEN: usize = 1 + 4 + 2;
/// Of who does not answer so many times in a row it is not known how far away it is.
const MAX_MISSED: u32 = 3;

/// How far away others are.
#[derive(Debug, Default)]
pub(super) struct Pinger {
    peers: BTreeMap<PeerKey, PingState>,
    next_ping: Instant,
}

#[derive(Debug, Default)]
struct PingState {
    nonce: u32,
    sent_at: Instant,
    /// Since the last answer.
    missed: u32,
    rtt: Option<TimeDelta>,
}

/// What somebody wants to know, or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingMessage {
    /// Are you there? And what to answer.
    Ping { nonce: u32 },
    /// Yes.
    Pong { nonce: u32, spectator_count: u16 },
}

impl PingMessage {
    /// `None` if a datagram is something else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[kind, a, b, c, d, low, high] = bytes else { return None };
        let number = u32::from_le_bytes([a, b, c, d]);
        match kind {
            PING => Some(Self::Ping { nonce: number }),
            PONG => Some(Self::Pong { nonce: number, spectator_count: u16::from_le_bytes([low, high]) }),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; DATAGRAM_LEN] {
        let (kind, number, watchers) = match self {
            Self::Ping { nonce: number } => (PING, number, 0u16),
            Self::Pong { nonce: number, spectator_count: watchers } => (PONG, number, watchers),
        };
        let ([a, b, c, d], [low, high]) = (number.to_le_bytes(), watchers.to_le_bytes());
        [kind, a, b, c, d, low, high]
    }
}

impl Pinger {
    /// Asks everybody, if that is due; whoever is not asked any more is forgotten.
    pub(super) fn ping_all(
        &mut self,
        now: Instant,
        every: TimeDelta,
        peers: impl IntoIterator<Item = PeerKey>,
        mut send: impl FnMut(&PeerKey, &[u8]),
    ) {
        if now < self.next_ping {
            return;
        }
        self.next_ping = now + every;
        let mut before = std::mem::take(&mut self.peers);
        for peer in peers {
            let mut trip = before.remove(&peer).unwrap_or_default();
            trip.missed += 1;
            if trip.missed > MAX_MISSED {
                trip.rtt = None;
            }
            (trip.nonce, trip.sent_at) = (u32::from_le_bytes(random_bytes()), now);
            send(&peer, &PingMessage::Ping { nonce: trip.nonce }.encode());
            self.peers.insert(peer, trip);
        }
    }

    /// Somebody answers; whether it was asked that.
    pub(super) fn on_pong(&mut self, at: Instant, from: &PeerKey, number: u32) -> bool {
        let asked = |trip: &&mut PingState| trip.nonce == number && trip.missed > 0;
        let Some(trip) = self.peers.get_mut(from).filter(asked) else { return false };
        let took = (at - trip.sent_at).max(TimeDelta::ZERO);
        trip.rtt = Some(trip.rtt.map_or(took, |before| (before * 3 + took) / 4));
        trip.missed = 0;
        true
    }

    /// How long it takes to somebody and back, if it answers.
    pub(super) fn rtt(&self, peer: &PeerKey) -> Option<TimeDelta> {
        self.peers.get(peer).and_then(|trip| trip.rtt)
    }

    /// Whether somebody was asked again and again and does not answer.
    pub(super) fn is_silent(&self, peer: &PeerKey) -> bool {
        self.peers.get(peer).is_some_and(|trip| trip.missed > MAX_MISSED)
    }

    /// Nobody is asked any more.
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
        for word in [PingMessage::Ping { nonce: 7 }, PingMessage::Pong { nonce: u32::MAX, spectator_count: 900 }] {
            assert_eq!(PingMessage::decode(&word.encode()), Some(word));
            assert_eq!(PingMessage::decode(&word.encode()[1..]), None);
        }
        assert!(!crate::reliable::Channel::is_channel_datagram(&[PING]) && !coplay::wire::is_feed(&[PONG]));
    }

    #[test]
    fn rtt_is_measured_until_peer_stops_answering() {
        let (peer, mut pings, mut asked) = (PeerKey([1; 32]), Pinger::default(), Vec::new());
        let at = |millis| Instant::ZERO + TimeDelta::from_millis(millis);
        let mut ask = |pings: &mut Pinger, now| {
            pings.ping_all(now, INTERVAL, [peer], |to, bytes| asked.push((*to, PingMessage::decode(bytes))));
            asked.drain(..).next_back()
        };
        let Some((_, Some(PingMessage::Ping { nonce: number }))) = ask(&mut pings, at(0)) else {
            panic!("it is not asked")
        };
        assert_eq!(ask(&mut pings, at(999)), None, "not so often");
        assert!(!pings.on_pong(at(20), &peer, number.wrapping_add(1)) && pings.rtt(&peer).is_none());
        assert!(pings.on_pong(at(23), &peer, number));
        assert_eq!(pings.rtt(&peer), Some(TimeDelta::from_millis(23)));
        assert!(!pings.on_pong(at(900), &peer, number), "only once");
        (1..=3).for_each(|second| _ = ask(&mut pings, at(second * 1_000)));
        assert!(pings.rtt(&peer).is_some() && !pings.is_silent(&peer));
        ask(&mut pings, at(4_000));
        assert!(pings.rtt(&peer).is_none() && pings.is_silent(&peer));
        pings.ping_all(at(5_000), INTERVAL, [], |_, _| {});
        assert!(!pings.is_silent(&peer), "who is not asked is not missed");
    }
}
