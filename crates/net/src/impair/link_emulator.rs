//! Queue of datagrams in flight on emulated links. It reads no clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use coplay::time::Instant;
use coplay_links::link::Link;

use super::Impairment;
use crate::key::PeerKey;

/// Maximum number of bytes in flight, including [`DATAGRAM_OVERHEAD`] for each datagram; datagrams beyond this limit
/// are lost.
const MAX_IN_FLIGHT_BYTES: usize = 16 << 20;
/// Memory cost of a queued datagram besides its content, in bytes.
const DATAGRAM_OVERHEAD: usize = 64;
/// Maximum number of peers with a link of their own; one more evicts the link of the smallest key.
const MAX_PEERS: usize = 8_192;

/// Datagrams in flight on links that are worse than the real ones, one link per peer.
#[derive(Debug)]
pub struct LinkEmulator {
    impairment: Impairment,
    started_at: Instant,
    links: BTreeMap<PeerKey, Link>,
    /// Number of links ever created; it names the next link's random stream.
    links_created: u64,
    in_flight: BinaryHeap<Reverse<InFlightDatagram>>,
    in_flight_bytes: usize,
    sent_count: u64,
}

/// Datagram in flight, ordered by arrival time; datagrams due at the same instant keep the order of sending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlightDatagram {
    due: Instant,
    sequence: u64,
    to: PeerKey,
    bytes: Vec<u8>,
}

impl LinkEmulator {
    /// Returns an emulator with nothing in flight; cuts are counted from `now`.
    pub fn new(now: Instant, impairment: Impairment) -> Self {
        Self {
            impairment,
            started_at: now,
            links: BTreeMap::new(),
            links_created: 0,
            in_flight: BinaryHeap::new(),
            in_flight_bytes: 0,
            sent_count: 0,
        }
    }

    /// Puts a datagram on the link to the peer `to`, which delays, duplicates or loses it.
    pub fn send(&mut self, now: Instant, to: PeerKey, bytes: &[u8]) {
        let cut = self.is_cut(now);
        let link = self.link(to);
        link.set_cut(cut);
        for due in link.send(now, bytes.len()) {
            let cost = bytes.len() + DATAGRAM_OVERHEAD;
            if self.in_flight_bytes + cost > MAX_IN_FLIGHT_BYTES {
                return;
            }
            self.in_flight_bytes += cost;
            self.sent_count += 1;
            self.in_flight.push(Reverse(InFlightDatagram {
                due,
                sequence: self.sent_count,
                to,
                bytes: bytes.to_vec(),
            }));
        }
    }

    /// Returns the next datagram that is due at `now` and is not lost in a cut, with its recipient; `None` if there is
    /// none.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(PeerKey, Vec<u8>)> {
        while self.poll_timeout().is_some_and(|due| due <= now) {
            let Reverse(datagram) = self.in_flight.pop()?;
            self.in_flight_bytes -= datagram.bytes.len() + DATAGRAM_OVERHEAD;
            let cut = self.is_cut(datagram.due);
            let link = self.link(datagram.to);
            link.set_cut(cut);
            if link.admit_arrival() {
                return Some((datagram.to, datagram.bytes));
            }
        }
        None
    }

    /// Returns the time at which the next datagram is due; `None` if nothing is in flight.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(datagram)| datagram.due)
    }

    fn is_cut(&self, now: Instant) -> bool {
        let at = now - self.started_at;
        self.impairment.cuts.iter().any(|(from, until)| (*from..*until).contains(&at))
    }

    fn link(&mut self, peer: PeerKey) -> &mut Link {
        if self.links.len() >= MAX_PEERS && !self.links.contains_key(&peer) {
            self.links.pop_first();
        }
        let (impairment, links_created) = (&self.impairment, &mut self.links_created);
        self.links.entry(peer).or_insert_with(|| {
            *links_created += 1;
            Link::new(impairment.link.clone(), impairment.seed, &links_created.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use coplay::time::TimeDelta;

    use super::*;

    const PERIOD: TimeDelta = TimeDelta::from_micros(16_667);

    /// Sends `count` datagrams, one per frame, each with its number as content. Returns the number and latency of each
    /// arrival.
    fn arrivals(text: &str, count: u32, peer: PeerKey) -> Vec<(u32, TimeDelta)> {
        let mut emulator = LinkEmulator::new(Instant::ZERO, text.parse().unwrap());
        let mut arrived = Vec::new();
        for number in 0..count {
            let now = Instant::ZERO + PERIOD * i64::from(number);
            arrived.extend(drain_arrivals(&mut emulator, now));
            emulator.send(now, peer, &number.to_le_bytes());
        }
        arrived.extend(drain_arrivals(
            &mut emulator,
            Instant::ZERO + PERIOD * i64::from(count) + TimeDelta::from_secs(60),
        ));
        arrived
    }

    /// Returns the arrivals until `now`, each with its latency.
    fn drain_arrivals(emulator: &mut LinkEmulator, now: Instant) -> Vec<(u32, TimeDelta)> {
        let mut arrived = Vec::new();
        while let Some(due) = emulator.poll_timeout().filter(|due| *due <= now) {
            while let Some((_, bytes)) = emulator.poll_transmit(due) {
                let number = u32::from_le_bytes(bytes.try_into().unwrap());
                arrived.push((number, due - (Instant::ZERO + PERIOD * i64::from(number))));
            }
        }
        arrived
    }

    fn mean(of: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = of.len().max(1) as f64;
        of.sum::<f64>() / count
    }

    #[test]
    fn delay_and_jitter_match_the_impairment() {
        let plain = arrivals("delay=40", 100, PeerKey([1; 32]));
        assert!(plain.len() == 100 && plain.iter().all(|(_, took)| *took == TimeDelta::from_millis(40)));
        let shaky = arrivals("delay=40,jitter=5,reorder", 20_000, PeerKey([1; 32]));
        let took = mean(shaky.iter().map(|(_, took)| took.as_millis_f64()));
        assert!((44.7..45.3).contains(&took), "{took}");
        assert!(shaky.iter().all(|(_, took)| *took >= TimeDelta::from_millis(40)));
        assert!(shaky.windows(2).any(|pair| pair[1].0 < pair[0].0), "some datagrams overtake others");
        let ordered = arrivals("delay=40,jitter=30", 5_000, PeerKey([1; 32]));
        assert!(
            ordered.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "without `reorder` no datagram overtakes another"
        );
    }

    #[test]
    fn independent_and_burst_loss_match_the_impairment() {
        let lost = |text: &str| -> (f64, f64) {
            let arrived = arrivals(text, 50_000, PeerKey([1; 32]));
            let gaps: Vec<u32> =
                arrived.windows(2).map(|pair| pair[1].0 - pair[0].0 - 1).filter(|gap| *gap > 0).collect();
            (1.0 - arrived.len() as f64 / 50_000.0, mean(gaps.iter().map(|gap| f64::from(*gap))))
        };
        let (loss, in_a_row) = lost("loss=20,seed=5");
        assert!((0.19..0.21).contains(&loss) && (1.2..1.3).contains(&in_a_row), "{loss} {in_a_row}");
        let (loss, in_a_row) = lost("loss=20,burst=6,seed=5");
        assert!((0.18..0.22).contains(&loss) && (5.5..6.5).contains(&in_a_row), "{loss} {in_a_row}");
        assert_eq!((lost("seed=5").0, lost("loss=100").0), (0.0, 1.0));
    }

    #[test]
    fn duplicate_rate_matches_the_impairment() {
        let arrived = arrivals("duplicate=10,delay=1", 10_000, PeerKey([1; 32]));
        assert!((10_900..11_100).contains(&arrived.len()), "{}", arrived.len());
    }

    #[test]
    fn impairment_is_deterministic_per_seed_and_peer() {
        let text = |seed: u32| format!("delay=20,jitter=10,loss=10,duplicate=5,reorder,seed={seed}");
        let one = arrivals(&text(7), 2_000, PeerKey([1; 32]));
        assert_eq!(one, arrivals(&text(7), 2_000, PeerKey([2; 32])), "a peer's key does not affect its link");
        assert_ne!(one, arrivals(&text(8), 2_000, PeerKey([1; 32])));
        let mut emulator = LinkEmulator::new(Instant::ZERO, "loss=50".parse().unwrap());
        for number in 0..64u8 {
            (1..3).for_each(|peer| emulator.send(Instant::ZERO, PeerKey([peer; 32]), &[number]));
        }
        let sent: Vec<_> = std::iter::from_fn(|| emulator.poll_transmit(Instant::ZERO)).collect();
        let [one, other] = [1, 2].map(|peer| {
            sent.iter().filter(|(to, _)| *to == PeerKey([peer; 32])).map(|(_, bytes)| bytes[0]).collect::<Vec<_>>()
        });
        assert_ne!(one, other, "each peer has a random stream of its own");
    }

    #[test]
    fn datagrams_are_lost_only_during_a_cut() {
        let arrived = arrivals("cut=1-2,cut=3-3.5,delay=10", 300, PeerKey([1; 32]));
        let gone = |from: f64, until: f64| {
            let due = |number: &u32| f64::from(*number) * PERIOD.as_secs_f64() + 0.01;
            let missing = (0..300).filter(|number| arrived.iter().all(|(arrived, _)| arrived != number));
            missing.filter(|number| (from..until).contains(&due(number))).count()
        };
        assert_eq!((gone(0.0, 1.0), gone(2.01, 3.0), gone(3.51, 9.0)), (0, 0, 0));
        assert!(gone(1.0, 2.01) >= 60 && gone(3.0, 3.51) >= 30);
        assert_eq!(300 - arrived.len(), gone(0.0, 9.0));
    }

    #[test]
    fn rate_limited_link_delays_and_drops_overflow() {
        let mut emulator = LinkEmulator::new(Instant::ZERO, "rate=80,queue=100".parse().unwrap());
        (0..50).for_each(|_| emulator.send(Instant::ZERO, PeerKey([1; 32]), &[0; 100]));
        let mut due = vec![];
        while let Some(at) = emulator.poll_timeout() {
            due.push(at - Instant::ZERO);
            emulator.poll_transmit(at);
        }
        // 100 bytes take 10 ms, and the queue holds 10 such datagrams.
        assert_eq!(due.len(), 10);
        assert_eq!((due[0], due[9]), (TimeDelta::from_millis(10), TimeDelta::from_millis(100)));
    }

    #[test]
    fn in_flight_bytes_and_links_are_bounded() {
        let mut emulator = LinkEmulator::new(Instant::ZERO, "delay=1000".parse().unwrap());
        (0..30_000).for_each(|_| emulator.send(Instant::ZERO, PeerKey([1; 32]), &[0; 1_000]));
        let held = emulator.in_flight.len();
        assert!(held < 30_000 && held * (1_000 + DATAGRAM_OVERHEAD) <= MAX_IN_FLIGHT_BYTES, "{held}");
        let sent = std::iter::from_fn(|| emulator.poll_transmit(Instant::ZERO + TimeDelta::from_secs(2))).count();
        assert_eq!((sent, emulator.in_flight_bytes), (held, 0));
        (0..20_000u32).for_each(|peer| {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&peer.to_le_bytes());
            emulator.send(Instant::ZERO, PeerKey(key), b"");
        });
        assert!(emulator.links.len() <= MAX_PEERS);
    }
}
