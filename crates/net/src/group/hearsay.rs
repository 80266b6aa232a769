//! What members say of others makes us call, and calls cost us and who is called. So each of them is heeded only so often.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use super::MAX_SITES;
use super::list::MAX_KNOWN;
use crate::key::PeerKey;

/// So often somebody is heeded at once: who lets us in tells us of all.
const AT_ONCE: i64 = MAX_SITES as i64;
/// And then so often. Who hears some that we do not tells us of them again and again, but no more often than this for each of us.
const ONCE_MORE: TimeDelta = TimeDelta::from_secs(5);

/// How often who was heeded of late.
#[derive(Debug, Default)]
pub(super) struct Hearsay {
    /// When all that somebody was heeded for is made up for.
    even: BTreeMap<PeerKey, Instant>,
}

impl Hearsay {
    /// Whether to heed somebody once more; then it counts.
    pub(super) fn is_heeded(&mut self, now: Instant, teller: &PeerKey) -> bool {
        self.even.retain(|_, even| *even > now);
        if self.even.len() >= MAX_KNOWN && !self.even.contains_key(teller) {
            return false;
        }
        let even = self.even.entry(*teller).or_insert(now);
        let heeded = *even - now <= ONCE_MORE * (AT_ONCE - 1);
        if heeded {
            *even += ONCE_MORE;
        }
        heeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_secs(1_000 + seconds)
    }

    fn heeded(hearsay: &mut Hearsay, now: Instant, teller: u8) -> usize {
        (0..500).filter(|_| hearsay.is_heeded(now, &PeerKey([teller; 32]))).count()
    }

    #[test]
    fn everybody_is_heeded_so_often_at_once_and_then_now_and_then() {
        let mut hearsay = Hearsay::default();
        assert_eq!(heeded(&mut hearsay, at(0), 1), MAX_SITES);
        assert_eq!(heeded(&mut hearsay, at(0), 2), MAX_SITES, "another one is another matter");
        assert_eq!(heeded(&mut hearsay, at(4), 1), 0);
        assert_eq!(heeded(&mut hearsay, at(15), 1), 3);
        assert_eq!(heeded(&mut hearsay, at(1_000), 1), MAX_SITES, "it is made up for");
    }

    #[test]
    fn no_number_of_tellers_fills_the_memory() {
        let mut hearsay = Hearsay::default();
        for teller in 0..=255 {
            hearsay.is_heeded(at(0), &PeerKey([teller; 32]));
        }
        assert_eq!(hearsay.even.len(), MAX_KNOWN);
        assert!(hearsay.is_heeded(at(6), &PeerKey([255; 32])));
        assert_eq!(hearsay.even.len(), 1);
    }
}
