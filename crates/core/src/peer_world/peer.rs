//! What is known of one other site.

use alloc::vec::Vec;

use super::WorldRegion;
use super::remote_entity::LossCounts;
use crate::clock::Clock;
use crate::time::{Instant, TimeDelta};

/// The most regions that a site is believed to be in.
const MAX_REGIONS: usize = 256;
/// What was reported counts for so long.
const REPORT_LIFETIME: TimeDelta = TimeDelta::from_secs(5);
/// Where we are is told this far ahead of the need, in regions: what is told takes its time.
const REGION_LEAD: u32 = 1;

/// Another site.
#[derive(Debug)]
pub(super) struct WorldPeer {
    pub(super) clock: Clock,
    pub(super) last_received_at: Instant,
    /// Whether it was heard at all.
    pub(super) is_present: bool,
    /// When it said goodbye.
    pub(super) left_at: Option<Instant>,
    /// Whether it told which record of ours it has.
    pub(super) has_reported_our_record: bool,
    /// By how much the world's time is ahead of its clock, as it says.
    pub(super) world_time_offset: Option<TimeDelta>,
    /// Where its entities are, as it said last, or as was seen since.
    regions: Vec<WorldRegion>,
    /// Where ours are, as it was told last.
    sent_regions: Vec<WorldRegion>,
    pub(super) next_probe: Instant,
    pub(super) probe_count: u32,
    /// What of its updates came since the last report.
    pub(super) loss_counts: LossCounts,
    previous_expected: u32,
    /// Whether updates of it came of late.
    pub(super) has_recent_updates: bool,
    /// The part of its updates that was lost, and that was late, in 255ths, of late.
    pub(super) loss_share: u8,
    pub(super) late_share: u8,
    last_report: Option<(Instant, u8, u8)>,
}

impl WorldPeer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            clock: Clock::assuming_crystals(),
            last_received_at: now,
            is_present: false,
            left_at: None,
            has_reported_our_record: false,
            world_time_offset: None,
            regions: Vec::new(),
            sent_regions: Vec::new(),
            next_probe: now,
            probe_count: 0,
            loss_counts: LossCounts::default(),
            previous_expected: 0,
            has_recent_updates: false,
            loss_share: 0,
            late_share: 0,
            last_report: None,
        }
    }

    /// By how much the world's time as this site takes it is ahead of our clock.
    pub(super) fn world_time_offset_from_us(&self, now: Instant) -> Option<TimeDelta> {
        let ahead = self.world_time_offset?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + ahead)
    }

    /// Whether no newer record of ours is to be expected from it.
    pub(super) fn is_recall_complete(&self) -> bool {
        self.has_reported_our_record || self.left_at.is_some()
    }

    /// Takes over where its entities are.
    pub(super) fn set_regions(&mut self, regions: &[WorldRegion]) {
        self.regions.clear();
        self.regions.extend_from_slice(&regions[..regions.len().min(MAX_REGIONS)]);
    }

    /// An entity of its was seen in a region.
    pub(super) fn on_entity_seen(&mut self, region: WorldRegion) {
        // Who did not say where it is is told of everything already.
        if !self.regions.is_empty() && self.regions.len() < MAX_REGIONS && !self.regions.contains(&region) {
            self.regions.push(region);
        }
    }

    /// It was told where our entities are, with everybody else.
    pub(super) fn on_regions_sent(&mut self, own: &[WorldRegion]) {
        self.sent_regions.clear();
        self.sent_regions.extend_from_slice(own);
    }

    /// Whether it must be told now where our entities are.
    ///
    /// Of two sites both know how far apart two of their entities were as they told each other. If each tells the other before its own has
    /// come half of that way, less what it takes to be near, they never meet unawares. So who is near hears of every step, and who is
    /// far away seldom. What is lost does no harm: who knows where the other is sends it updates, and by these it is [seen](Self::on_seen).
    pub(super) fn needs_region_update(&self, own: &[WorldRegion]) -> bool {
        const NEAR: u32 = 1;
        let nearest = |to: WorldRegion, among: &[WorldRegion]| among.iter().copied().min_by_key(|one| one.distance(to));
        let is_overdue = |region: &WorldRegion| {
            let Some(told) = nearest(*region, &self.sent_regions).filter(|told| told != region) else { return false };
            let apart = nearest(told, &self.regions).map_or(u32::MAX, |theirs| theirs.distance(told));
            2 * (told.distance(*region) + REGION_LEAD) + NEAR > apart
        };
        // Who is told of what happens where ours have left need not be.
        let is_left =
            |told: &WorldRegion| !own.contains(told) && self.regions.iter().any(|theirs| theirs.is_near(*told));
        own.iter().any(is_overdue) || (!own.is_empty() && self.sent_regions.iter().any(is_left))
    }

    /// Whether it must be told of what happens in a region: also if it has not said where it is.
    pub(super) fn is_interested_in(&self, region: WorldRegion) -> bool {
        self.regions.is_empty() || self.regions.iter().any(|own| own.is_near(region))
    }

    pub(super) fn on_report(&mut self, now: Instant, lost: u8, late: u8) {
        self.last_report = Some((now, lost, late));
    }

    /// What it reported of our updates, if that is not long ago: lost and late, in 255ths.
    pub(super) fn recent_report(&self, now: Instant) -> Option<(u8, u8)> {
        self.last_report.filter(|(at, ..)| now - *at < REPORT_LIFETIME).map(|(_, lost, late)| (lost, late))
    }

    /// Sums up what came since this was last done. Too little says nothing.
    pub(super) fn aggregate_loss(&mut self) {
        const ENOUGH: u32 = 8;
        self.has_recent_updates = self.loss_counts.expected > self.previous_expected;
        if self.loss_counts.expected >= ENOUGH {
            (self.loss_share, self.late_share) =
                (self.loss_counts.share(self.loss_counts.lost), self.loss_counts.share(self.loss_counts.late));
            self.loss_counts = LossCounts::default();
        }
        self.previous_expected = self.loss_counts.expected;
    }

    /// Bytes on the heap, roughly.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + (self.regions.capacity() + self.sent_regions.capacity()) * size_of::<WorldRegion>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two who walk about at random, or jump, and tell each other no more than they must.
    #[test]
    fn nearby_peers_know_each_others_regions_and_distant_peers_get_few_updates() {
        let at = |x: i32| [WorldRegion { x: x as u8, y: 7 }];
        let (mut places, mut told, mut steps, mut near) = ([20, 60], 0, 0, 0);
        let mut known = [WorldPeer::new(Instant::ZERO), WorldPeer::new(Instant::ZERO)];
        // What each keeps of the other.
        known[0].set_regions(&at(60));
        known[0].on_regions_sent(&at(20));
        known[1].set_regions(&at(20));
        known[1].on_regions_sent(&at(60));
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
                if known[one].needs_region_update(&at(places[one])) {
                    told += 1;
                    known[one].on_regions_sent(&at(places[one]));
                    known[1 - one].set_regions(&at(places[one]));
                }
            }
            let [one, other] = places.map(|place| at(place)[0]);
            if one.is_near(other) {
                near += 1;
                assert!(known[0].is_interested_in(one) && known[1].is_interested_in(other), "{places:?}");
            }
        }
        assert!(near > 100 && told * 4 < steps, "near {near} times, told {told} times in {steps} steps");
    }
}
