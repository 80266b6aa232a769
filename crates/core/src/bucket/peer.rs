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

/// Another site.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) clock: Clock,
    pub(super) heard: Instant,
    /// Whether it was heard at all.
    pub(super) is_here: bool,
    /// When it said goodbye.
    pub(super) left: Option<Instant>,
    /// By how much the world's time is ahead of its clock, as it says.
    pub(super) world_ahead: Option<TimeDelta>,
    /// Where its entities are, as it said last.
    regions: Vec<Region>,
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
            clock: Clock::of_crystals(),
            heard: now,
            is_here: false,
            left: None,
            world_ahead: None,
            regions: Vec::new(),
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

    /// Takes over where its entities are.
    pub(super) fn set_regions(&mut self, regions: &[Region]) {
        self.regions.clear();
        self.regions.extend_from_slice(&regions[..regions.len().min(MAX_REGIONS)]);
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
        self.clock.memory() + self.regions.capacity() * size_of::<Region>()
    }
}
