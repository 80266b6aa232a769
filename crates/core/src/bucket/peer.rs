//! What is known of one other site.

use alloc::vec::Vec;

use super::Region;
use super::track::Counts;
use crate::clock::Clock;
use crate::time::{Instant, TimeDelta};

/// The most regions that a site is believed to be in.
const MAX_REGIONS: usize = 256;
/// What was reported counts for so long.
const REPORT_COUNTS: TimeDelta = TimeDelta::from_secs(5);
/// Where we are is told this far ahead of the need, in regions: what is told takes its time.
const IN_GOOD_TIME: u32 = 1;

/// Another site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) clock: Clock,
    pub(super) heard: Instant,
    /// Whether it was heard at all.
    pub(super) is_here: bool,
    /// When it said goodbye.
    pub(super) left: Option<Instant>,
    /// Whether it told which record of ours it has.
    pub(super) has_recalled: bool,
    /// By how much the world's time is ahead of its clock, as it says.
    pub(super) world_ahead: Option<TimeDelta>,
    /// Where its entities are, as it said last, or as was seen since.
    regions: Vec<Region>,
    /// Where ours are, as it was told last.
    told: Vec<Region>,
    pub(super) next_probe: Instant,
    pub(super) probes: u32,
    /// What of its updates came since the last report.
    pub(super) counts: Counts,
    expected_before: u32,
    /// Whether updates of it came of late.
    pub(super) is_near: bool,
    /// The part of its updates that was lost, and that was late, in 255ths, of late.
    pub(super) lost: u8,
    pub(super) late: u8,
    report: Option<(Instant, u8, u8)>,
}

impl Peer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            clock: Clock::assuming_crystals(),
            heard: now,
            is_here: false,
            left: None,
            has_recalled: false,
            world_ahead: None,
            regions: Vec::new(),
            told: Vec::new(),
            next_probe: now,
            probes: 0,
            counts: Counts::default(),
            expected_before: 0,
            is_near: false,
            lost: 0,
            late: 0,
            report: None,
        }
    }

    /// By how much the world's time as this site takes it is ahead of our clock.
    pub(super) fn world_ahead_of_us(&self, now: Instant) -> Option<TimeDelta> {
        let ahead = self.world_ahead?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + ahead)
    }

    /// Whether no newer record of ours is to be expected from it.
    pub(super) fn has_no_more_to_recall(&self) -> bool {
        self.has_recalled || self.left.is_some()
    }

    /// Takes over where its entities are.
    pub(super) fn set_regions(&mut self, regions: &[Region]) {
        self.regions.clear();
        self.regions.extend_from_slice(&regions[..regions.len().min(MAX_REGIONS)]);
    }

    /// An entity of its was seen in a region.
    pub(super) fn on_seen(&mut self, region: Region) {
        // Who did not say where it is is told of everything already.
        if !self.regions.is_empty() && self.regions.len() < MAX_REGIONS && !self.regions.contains(&region) {
            self.regions.push(region);
        }
    }

    /// It was told where our entities are, with everybody else.
    pub(super) fn on_told(&mut self, own: &[Region]) {
        self.told.clear();
        self.told.extend_from_slice(own);
    }

    /// Whether it must be told now where our entities are.
    ///
    /// Of two sites both know how far apart two of their entities were as they told each other. If each tells the other before its own has
    /// come half of that way, less what it takes to be near, they never meet unawares. So who is near hears of every step, and who is
    /// far away seldom. What is lost does no harm: who knows where the other is sends it updates, and by these it is [seen](Self::on_seen).
    pub(super) fn must_be_told(&self, own: &[Region]) -> bool {
        const NEAR: u32 = 1;
        let nearest = |to: Region, among: &[Region]| among.iter().copied().min_by_key(|one| one.apart(to));
        let is_overdue = |region: &Region| {
            let Some(told) = nearest(*region, &self.told).filter(|told| told != region) else { return false };
            let apart = nearest(told, &self.regions).map_or(u32::MAX, |theirs| theirs.apart(told));
            2 * (told.apart(*region) + IN_GOOD_TIME) + NEAR > apart
        };
        // Who is told of what happens where ours have left need not be.
        let is_left = |told: &Region| !own.contains(told) && self.regions.iter().any(|theirs| theirs.is_near(*told));
        own.iter().any(is_overdue) || (!own.is_empty() && self.told.iter().any(is_left))
    }

    /// Whether it must be told of what happens in a region: also if it has not said where it is.
    pub(super) fn wants(&self, region: Region) -> bool {
        self.regions.is_empty() || self.regions.iter().any(|own| own.is_near(region))
    }

    pub(super) fn on_report(&mut self, now: Instant, lost: u8, late: u8) {
        self.report = Some((now, lost, late));
    }

    /// What it reported of our updates, if that is not long ago: lost and late, in 255ths.
    pub(super) fn reported(&self, now: Instant) -> Option<(u8, u8)> {
        self.report.filter(|(at, ..)| now - *at < REPORT_COUNTS).map(|(_, lost, late)| (lost, late))
    }

    /// Sums up what came since this was last done. Too little says nothing.
    pub(super) fn sum_up(&mut self) {
        const ENOUGH: u32 = 8;
        self.is_near = self.counts.expected > self.expected_before;
        if self.counts.expected >= ENOUGH {
            (self.lost, self.late) = (self.counts.share(self.counts.lost), self.counts.share(self.counts.late));
            self.counts = Counts::default();
        }
        self.expected_before = self.counts.expected;
    }

    /// Bytes on the heap, roughly.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + (self.regions.capacity() + self.told.capacity()) * size_of::<Region>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two who walk about at random, or jump, and tell each other no more than they must.
    #[test]
    fn nobody_comes_near_unawares_and_who_is_far_away_is_seldom_told() {
        let at = |x: i32| [Region { x: x as u8, y: 7 }];
        let (mut places, mut told, mut steps, mut near) = ([20, 60], 0, 0, 0);
        let mut known = [Peer::new(Instant::ZERO), Peer::new(Instant::ZERO)];
        // What each keeps of the other.
        known[0].set_regions(&at(60));
        known[0].on_told(&at(20));
        known[1].set_regions(&at(20));
        known[1].on_told(&at(60));
        let mut luck = 7u64;
        for _ in 0..20_000 {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (who, step) = ((luck >> 40) as usize % 2, (luck >> 45) % 3);
            places[who] = match luck >> 50 & 0xff {
                0 => (luck >> 58) as i32,
                _ => (places[who] + step as i32 - 1).clamp(0, 60),
            };
            steps += 1;
            for one in [0, 1, 0, 1] {
                if known[one].must_be_told(&at(places[one])) {
                    told += 1;
                    known[one].on_told(&at(places[one]));
                    known[1 - one].set_regions(&at(places[one]));
                }
            }
            let [one, other] = places.map(|place| at(place)[0]);
            if one.is_near(other) {
                near += 1;
                assert!(known[0].wants(one) && known[1].wants(other), "{places:?}");
            }
        }
        assert!(near > 100 && told * 4 < steps, "near {near} times, told {told} times in {steps} steps");
    }
}
