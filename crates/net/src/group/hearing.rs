//! Who hears whom by multicast. Nobody can know that of what it sends itself; so each tells the others whether it hears them.
//!
//! It is told in every [beat](super), again and again: what is lost on the way is told by the next. Until somebody has said that it hears
//! us, and when it says so no more, what is for it goes to it alone.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

/// Whoever sends by multicast is heard there at least every half of a second; who is not heard for so long does not get through.
const HEARD: TimeDelta = TimeDelta::from_secs(2);
/// What somebody said of its hearing holds for so long: some beats may be lost.
const SAID: TimeDelta = TimeDelta::from_secs(4);
/// Everybody is told this often, and at once when it changes.
pub(super) const BEAT: TimeDelta = TimeDelta::from_secs(1);

/// What one site knows of it.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    ears: BTreeMap<u32, Ear>,
}

#[derive(Debug, Default)]
struct Ear {
    /// When it was last heard by multicast.
    heard: Option<Instant>,
    /// When it last said that it hears us.
    hears_us: Option<Instant>,
    /// When it was last told whether we hear it, and what.
    told: Option<(Instant, bool)>,
}

impl Hearing {
    /// Something of this site's came by multicast.
    pub(super) fn on_multicast(&mut self, now: Instant, site: u32) {
        self.ears.entry(site).or_default().heard = Some(now);
    }

    /// A site says whether it hears us.
    pub(super) fn on_beat(&mut self, now: Instant, site: u32, hears: bool) {
        self.ears.entry(site).or_default().hears_us = hears.then_some(now);
    }

    /// Whether a site hears us by multicast.
    pub(super) fn hears_us(&self, now: Instant, site: u32) -> bool {
        self.ears.get(&site).and_then(|ear| ear.hears_us).is_some_and(|said| now - said < SAID)
    }

    /// Whether we hear a site by multicast.
    pub(super) fn is_heard(&self, now: Instant, site: u32) -> bool {
        self.ears.get(&site).and_then(|ear| ear.heard).is_some_and(|heard| now - heard < HEARD)
    }

    /// What a site must be told now: whether we hear it. `deaf` hears nobody.
    pub(super) fn poll_beat(&mut self, now: Instant, site: u32, deaf: bool) -> Option<bool> {
        let hears = !deaf && self.is_heard(now, site);
        let ear = self.ears.entry(site).or_default();
        let due = ear.told.is_none_or(|(at, told)| now - at >= BEAT || told != hears);
        due.then(|| {
            ear.told = Some((now, hears));
            hears
        })
    }

    /// Forgets all but these sites.
    pub(super) fn keep(&mut self, sites: impl Fn(u32) -> bool) {
        self.ears.retain(|site, _| sites(*site));
    }

    /// A site began anew, and knows nothing of what was said before.
    pub(super) fn forget(&mut self, site: u32) {
        self.ears.remove(&site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(100_000 + millis)
    }

    #[test]
    fn it_is_told_every_second_and_at_once_when_it_changes() {
        let mut hearing = Hearing::default();
        assert_eq!(hearing.poll_beat(at(0), 7, false), Some(false));
        assert_eq!(hearing.poll_beat(at(500), 7, false), None);
        hearing.on_multicast(at(510), 7);
        assert_eq!(hearing.poll_beat(at(520), 7, false), Some(true));
        assert_eq!(hearing.poll_beat(at(1_500), 7, false), None);
        assert_eq!(hearing.poll_beat(at(1_520), 7, false), Some(true));
        assert_eq!(hearing.poll_beat(at(2_515), 7, false), Some(false), "nothing came for two seconds");
        hearing.on_multicast(at(2_600), 7);
        assert_eq!(hearing.poll_beat(at(2_600), 7, true), None, "who is deaf hears nothing");
    }

    #[test]
    fn what_was_said_holds_for_a_while() {
        let mut hearing = Hearing::default();
        assert!(!hearing.hears_us(at(0), 7));
        hearing.on_beat(at(0), 7, true);
        assert!(hearing.hears_us(at(3_900), 7) && !hearing.hears_us(at(4_000), 7));
        hearing.on_beat(at(1_000), 7, false);
        assert!(!hearing.hears_us(at(1_000), 7));
        hearing.on_beat(at(2_000), 7, true);
        hearing.forget(7);
        assert!(!hearing.hears_us(at(2_000), 7));
        hearing.on_beat(at(2_000), 8, true);
        hearing.keep(|site| site != 8);
        assert!(hearing.ears.is_empty());
    }
}
