//! How far away somebody is, while no session measures it: a few bytes there and back, now and then.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::key::{PeerKey, random};

const PING: u8 = 0x42;
const PONG: u8 = 0x43;
/// What it is, a number that comes back, and how many look on. No answer is longer than the question.
const LEN: usize = 1 + 4 + 2;
/// Of who does not answer so many times in a row it is not known how far away it is.
const MOST_MISSED: u32 = 3;

/// How far away others are.
#[derive(Debug, Default)]
pub(super) struct Pings {
    trips: BTreeMap<PeerKey, Trip>,
    next: Instant,
}

#[derive(Debug, Default)]
struct Trip {
    number: u32,
    sent: Instant,
    /// Since the last answer.
    missed: u32,
    took: Option<TimeDelta>,
}

/// What somebody wants to know, or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Are you there? And what to answer.
    Asked { number: u32 },
    /// Yes.
    Answered { number: u32, watchers: u16 },
}

impl Word {
    /// `None` if a datagram is something else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let &[kind, a, b, c, d, low, high] = bytes else { return None };
        let number = u32::from_le_bytes([a, b, c, d]);
        match kind {
            PING => Some(Self::Asked { number }),
            PONG => Some(Self::Answered { number, watchers: u16::from_le_bytes([low, high]) }),
            _ => None,
        }
    }

    pub(super) fn write(self) -> [u8; LEN] {
        let (kind, number, watchers) = match self {
            Self::Asked { number } => (PING, number, 0u16),
            Self::Answered { number, watchers } => (PONG, number, watchers),
        };
        let ([a, b, c, d], [low, high]) = (number.to_le_bytes(), watchers.to_le_bytes());
        [kind, a, b, c, d, low, high]
    }
}

impl Pings {
    /// Asks everybody, if that is due; whoever is not asked any more is forgotten.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        every: TimeDelta,
        peers: impl IntoIterator<Item = PeerKey>,
        mut send: impl FnMut(&PeerKey, &[u8]),
    ) {
        if now < self.next {
            return;
        }
        self.next = now + every;
        let mut before = std::mem::take(&mut self.trips);
        for peer in peers {
            let mut trip = before.remove(&peer).unwrap_or_default();
            trip.missed += 1;
            if trip.missed > MOST_MISSED {
                trip.took = None;
            }
            (trip.number, trip.sent) = (u32::from_le_bytes(random()), now);
            send(&peer, &Word::Asked { number: trip.number }.write());
            self.trips.insert(peer, trip);
        }
    }

    /// Somebody answers; whether it was asked that.
    pub(super) fn on_answer(&mut self, at: Instant, from: &PeerKey, number: u32) -> bool {
        let asked = |trip: &&mut Trip| trip.number == number && trip.missed > 0;
        let Some(trip) = self.trips.get_mut(from).filter(asked) else { return false };
        let took = (at - trip.sent).max(TimeDelta::ZERO);
        trip.took = Some(trip.took.map_or(took, |before| (before * 3 + took) / 4));
        trip.missed = 0;
        true
    }

    /// How long it takes to somebody and back, if it answers.
    pub(super) fn trip(&self, peer: &PeerKey) -> Option<TimeDelta> {
        self.trips.get(peer).and_then(|trip| trip.took)
    }

    /// Whether somebody was asked again and again and does not answer.
    pub(super) fn is_silent(&self, peer: &PeerKey) -> bool {
        self.trips.get(peer).is_some_and(|trip| trip.missed > MOST_MISSED)
    }

    /// Nobody is asked any more.
    pub(super) fn stop(&mut self) {
        self.trips.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: TimeDelta = TimeDelta::from_secs(1);

    #[test]
    fn words_come_back_as_they_were() {
        for word in [Word::Asked { number: 7 }, Word::Answered { number: u32::MAX, watchers: 900 }] {
            assert_eq!(Word::read(&word.write()), Some(word));
            assert_eq!(Word::read(&word.write()[1..]), None);
        }
        assert!(!crate::mail::Mail::is_mail(&[PING]) && !coplay::wire::is_feed(&[PONG]));
    }

    #[test]
    fn the_way_there_and_back_is_measured_as_long_as_somebody_answers() {
        let (peer, mut pings, mut asked) = (PeerKey([1; 32]), Pings::default(), Vec::new());
        let at = |millis| Instant::ZERO + TimeDelta::from_millis(millis);
        let mut ask = |pings: &mut Pings, now| {
            pings.ask(now, EVERY, [peer], |to, bytes| asked.push((*to, Word::read(bytes))));
            asked.drain(..).next_back()
        };
        let Some((_, Some(Word::Asked { number }))) = ask(&mut pings, at(0)) else { panic!("it is not asked") };
        assert_eq!(ask(&mut pings, at(999)), None, "not so often");
        assert!(!pings.on_answer(at(20), &peer, number.wrapping_add(1)) && pings.trip(&peer).is_none());
        assert!(pings.on_answer(at(23), &peer, number));
        assert_eq!(pings.trip(&peer), Some(TimeDelta::from_millis(23)));
        assert!(!pings.on_answer(at(900), &peer, number), "only once");
        (1..=3).for_each(|second| _ = ask(&mut pings, at(second * 1_000)));
        assert!(pings.trip(&peer).is_some() && !pings.is_silent(&peer));
        ask(&mut pings, at(4_000));
        assert!(pings.trip(&peer).is_none() && pings.is_silent(&peer));
        pings.ask(at(5_000), EVERY, [], |_, _| {});
        assert!(!pings.is_silent(&peer), "who is not asked is not missed");
    }
}
