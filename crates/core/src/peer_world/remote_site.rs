//! State of one peer: its clock, its regions and its link.

use alloc::vec::Vec;

use super::WorldRegion;
use super::remote_entity::LossCounts;
use crate::clock::Clock;
use crate::time::{Instant, TimeDelta};

/// Maximum number of regions stored per peer.
const MAX_REGIONS: usize = 256;
/// Age at which a peer's link report expires.
const REPORT_LIFETIME: TimeDelta = TimeDelta::from_secs(5);
/// Number of regions by which region updates are sent early, because they take time to arrive.
const REGION_LEAD: u32 = 1;

/// A peer of this site.
#[derive(Debug)]
pub(super) struct RemoteSite {
    pub(super) clock: Clock,
    pub(super) last_received_at: Instant,
    /// Whether a datagram of the peer has been received since it was added or last left.
    pub(super) is_present: bool,
    /// Time at which the peer said goodbye; `None` if it has not.
    pub(super) left_at: Option<Instant>,
    /// Whether the peer has reported that it has no newer version of this site's record than this site.
    pub(super) has_reported_our_record: bool,
    /// Offset of the world time from the peer's clock, as the peer reports it; positive if the world time is ahead.
    /// `None` if the peer has not reported one.
    pub(super) world_time_offset: Option<TimeDelta>,
    /// Regions of the peer's entities: those that the peer reported last, and those observed after that report.
    regions: Vec<WorldRegion>,
    /// Regions of this site's entities, as last sent to the peer.
    sent_regions: Vec<WorldRegion>,
    pub(super) next_probe: Instant,
    pub(super) probe_count: u32,
    /// Counts of the peer's updates since `loss_share` and `late_share` were last computed.
    pub(super) loss_counts: LossCounts,
    previous_expected: u32,
    /// Whether updates of the peer arrived between the last two aggregations.
    pub(super) has_recent_updates: bool,
    /// Recent share of the peer's updates that were lost, in 255ths.
    pub(super) loss_share: u8,
    /// Recent share of the peer's updates that were late, in 255ths.
    pub(super) late_share: u8,
    last_report: Option<(Instant, u8, u8)>,
}

impl RemoteSite {
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

    /// Returns the offset of the peer's world time from the local clock. `None` until the peer has reported it and its
    /// clock is measured.
    pub(super) fn world_time_offset_from_us(&self, now: Instant) -> Option<TimeDelta> {
        let world_time_offset = self.world_time_offset?;
        self.clock.is_ready().then(|| self.clock.offset(now)).flatten().map(|offset| offset + world_time_offset)
    }

    /// Returns whether the peer will not report a newer version of this site's record: it has answered or left.
    pub(super) fn is_recall_complete(&self) -> bool {
        self.has_reported_our_record || self.left_at.is_some()
    }

    /// Replaces the regions of the peer's entities; regions beyond [`MAX_REGIONS`] are ignored.
    pub(super) fn set_regions(&mut self, regions: &[WorldRegion]) {
        self.regions.clear();
        self.regions.extend_from_slice(&regions[..regions.len().min(MAX_REGIONS)]);
    }

    /// Adds a region in which an entity of the peer was observed.
    pub(super) fn on_entity_seen(&mut self, region: WorldRegion) {
        // A peer without known regions receives everything already.
        if !self.regions.is_empty() && self.regions.len() < MAX_REGIONS && !self.regions.contains(&region) {
            self.regions.push(region);
        }
    }

    /// Notes that this site's regions were sent to the peer.
    pub(super) fn on_regions_sent(&mut self, own: &[WorldRegion]) {
        self.sent_regions.clear();
        self.sent_regions.extend_from_slice(own);
    }

    /// Returns whether the peer must receive this site's regions now.
    ///
    /// Both sites know how far apart two of their entities were when the sites last exchanged regions. If each site
    /// reports its regions before its entity has covered half of that distance, less the distance that counts as near,
    /// the entities never meet unnoticed. A near peer therefore receives a report at every change of region, and a
    /// distant peer few reports. A lost report does no harm: the site that still knows the other's region sends the
    /// other its updates, and these [reveal the sender's region](Self::on_entity_seen).
    pub(super) fn needs_region_update(&self, own: &[WorldRegion]) -> bool {
        const NEAR: u32 = 1;
        let nearest = |to: WorldRegion, among: &[WorldRegion]| among.iter().copied().min_by_key(|one| one.distance(to));
        let is_overdue = |region: &WorldRegion| {
            let Some(sent) = nearest(*region, &self.sent_regions).filter(|sent| sent != region) else { return false };
            let apart = nearest(sent, &self.regions).map_or(u32::MAX, |theirs| theirs.distance(sent));
            2 * (sent.distance(*region) + REGION_LEAD) + NEAR > apart
        };
        // A peer with an entity near a region that this site's entities have left still sends updates of that entity. A
        // report of the new regions makes the peer stop.
        let is_left =
            |sent: &WorldRegion| !own.contains(sent) && self.regions.iter().any(|theirs| theirs.is_near(*sent));
        own.iter().any(is_overdue) || (!own.is_empty() && self.sent_regions.iter().any(is_left))
    }

    /// Returns whether the peer must receive updates from `region`. A peer without known regions receives everything.
    pub(super) fn is_interested_in(&self, region: WorldRegion) -> bool {
        self.regions.is_empty() || self.regions.iter().any(|own| own.is_near(region))
    }

    pub(super) fn on_report(&mut self, now: Instant, lost: u8, late: u8) {
        self.last_report = Some((now, lost, late));
    }

    /// Returns the peer's last report on this site's updates: lost and late share, in 255ths. `None` if there is no
    /// report or the last one is [`REPORT_LIFETIME`] old or older.
    pub(super) fn recent_report(&self, now: Instant) -> Option<(u8, u8)> {
        self.last_report.filter(|(at, ..)| now - *at < REPORT_LIFETIME).map(|(_, lost, late)| (lost, late))
    }

    /// Computes the lost and late shares. Counts of fewer than 8 expected updates are carried over to the next
    /// aggregation.
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

    /// Returns the approximate heap size in bytes.
    pub(super) fn memory(&self) -> usize {
        self.clock.memory() + (self.regions.capacity() + self.sent_regions.capacity()) * size_of::<WorldRegion>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sites move at random and sometimes jump, and each sends the region updates that are due. While they are
    /// near, each must count the other as interested in its own region. There must be fewer than a quarter as many
    /// region updates as steps.
    #[test]
    fn nearby_peers_know_each_others_regions_and_distant_peers_get_few_updates() {
        let at = |x: i32| [WorldRegion { x: x as u8, y: 7 }];
        let (mut positions, mut updates, mut steps, mut near) = ([20, 60], 0, 0, 0);
        let mut known = [RemoteSite::new(Instant::ZERO), RemoteSite::new(Instant::ZERO)];
        // Each site knows the position of the other.
        known[0].set_regions(&at(60));
        known[0].on_regions_sent(&at(20));
        known[1].set_regions(&at(20));
        known[1].on_regions_sent(&at(60));
        let mut random = 7u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (site, step) = ((random >> 40) as usize % 2, (random >> 45) % 3);
            positions[site] = match random >> 50 & 0xff {
                0 => (random >> 58) as i32,
                _ => (positions[site] + step as i32 - 1).clamp(0, 60),
            };
            steps += 1;
            for one in [0, 1, 0, 1] {
                if known[one].needs_region_update(&at(positions[one])) {
                    updates += 1;
                    known[one].on_regions_sent(&at(positions[one]));
                    known[1 - one].set_regions(&at(positions[one]));
                }
            }
            let [one, other] = positions.map(|position| at(position)[0]);
            if one.is_near(other) {
                near += 1;
                assert!(known[0].is_interested_in(one) && known[1].is_interested_in(other), "{positions:?}");
            }
        }
        assert!(near > 100 && updates * 4 < steps, "near {near} times, {updates} region updates in {steps} steps");
    }
}
