//! How far one site's view of another's avatar is from that other's own view of it, at the same instant: computed from their traces.
//!
//! Sites' clocks have nothing to do with each other; each has measured again and again by how much the others' are ahead. A straight line
//! through those, by least squares, is what their traces are laid beside each other with.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, WorldSiteId};

use crate::trace::{TraceEntry, TraceEvent};
use crate::{MazeSettings, TICKS_PER_SECOND, UNIT, WALK_SPEED};

/// A tick, in nanoseconds.
const TICK_NS: i64 = 1_000_000_000 / TICKS_PER_SECOND as i64;
/// A view that is later than this is one of a site that slept.
const MAX_VIEW_DELAY_NS: i64 = 500_000_000;

/// What one site wrote.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Who wrote it.
    pub site: Option<WorldSiteId>,
    /// All lines, in their order.
    pub entries: Vec<TraceEntry>,
}

/// What one site saw of another's avatar.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftSeries {
    /// Who saw.
    pub observer: WorldSiteId,
    /// What it saw.
    pub entity: EntityId,
    /// How far apart the views were, in units, in the order of time: when on the clock of who saw, and by how much.
    pub samples: Vec<DriftSample>,
    /// By how much the clock of the one who was seen is ahead, and how fast it gains on that (ns, ns per second), as it was fitted.
    pub clock_offset: (f64, f64),
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftSample {
    /// When, on the clock of who saw, in nanoseconds.
    pub at: i64,
    /// The tick that was shown.
    pub tick: u32,
    /// How far apart the two views were at that instant.
    pub distance: f64,
    /// How many updates in a row were missing around that tick.
    pub missing_updates: u32,
}

/// Numbers of many comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DriftSummary {
    /// How many.
    pub count: usize,
    /// Their mean, in units.
    pub mean: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// The worst.
    pub max: f64,
    /// The part of them below 50 units.
    pub share_under_50: f64,
}

impl DriftSummary {
    /// The numbers of these.
    pub fn from_distances(samples: impl Iterator<Item = f64>) -> Self {
        let mut units: Vec<f64> = samples.collect();
        units.sort_by(f64::total_cmp);
        let count = units.len();
        let Some(most) = units.last().copied() else { return Self::default() };
        Self {
            count,
            mean: units.iter().sum::<f64>() / count as f64,
            p90: units[(count * 9 / 10).min(count - 1)],
            max: most,
            share_under_50: units.partition_point(|units| *units < 50.0) as f64 / count as f64,
        }
    }
}

/// All pairs of a site and another's avatar, in traces of several sites. Views from before `skip` nanoseconds after a trace's first line do
/// not count.
pub fn measure_drift(traces: &[Trace], skip: i64) -> Vec<DriftSeries> {
    let mut pairs = Vec::new();
    for seer in traces {
        for seen in traces.iter().filter(|seen| seen.site != seer.site) {
            let (Some(seen_by), Some(site)) = (seer.site, seen.site) else { continue };
            let Some(offset) = fit_clock_offset(seer, site, seen, seen_by) else { continue };
            let own = owner_views(seen, site);
            let bursts = update_gaps(seer, site);
            for (entity, views) in views_of(seer, site, skip) {
                let Some(own) = own.get(&entity) else { continue };
                let missing = bursts.get(&entity);
                let samples = views.iter().filter_map(|view| compare(view, own, missing, offset)).collect();
                pairs.push(DriftSeries {
                    observer: seen_by,
                    entity,
                    samples,
                    clock_offset: (offset.offset_ns, offset.slope * 1e9),
                });
            }
        }
    }
    pairs
}

/// An avatar in a view.
#[derive(Clone, Copy, Debug)]
struct DisplayedAvatar {
    at: i64,
    tick: u32,
    position: (f64, f64),
    is_alive: bool,
}

/// A line through measured offsets.
#[derive(Clone, Copy, Debug)]
struct ClockFit {
    origin: i64,
    offset_ns: f64,
    slope: f64,
}

impl ClockFit {
    /// The other's time when ours is this.
    fn to_remote_time(&self, ours: i64) -> f64 {
        ours as f64 + self.offset_ns + self.slope * ours.saturating_sub(self.origin) as f64
    }
}

/// By least squares through what both have measured of each other.
fn fit_clock_offset(seer: &Trace, site: WorldSiteId, seen: &Trace, seen_by: WorldSiteId) -> Option<ClockFit> {
    let measured = |trace: &Trace, of: WorldSiteId| -> Vec<(i64, f64)> {
        let of_peer = |line: &TraceEntry| match line.event {
            TraceEvent::ClockOffset { peer, offset_ns: ahead } if peer == of => Some((line.at, ahead as f64)),
            _ => None,
        };
        trace.entries.iter().filter_map(of_peer).collect()
    };
    let mut points = measured(seer, site);
    // What the other measured is the same line seen from its end.
    points.extend(measured(seen, seen_by).into_iter().map(|(at, ahead)| (at.saturating_add(ahead as i64), -ahead)));
    let origin = points.first()?.0;
    let count = points.len() as f64;
    let mean_at = points.iter().map(|(at, _)| at.saturating_sub(origin) as f64).sum::<f64>() / count;
    let mean = points.iter().map(|(_, ahead)| ahead).sum::<f64>() / count;
    let (mut over, mut under) = (0.0, 0.0);
    for (at, ahead) in &points {
        let away = at.saturating_sub(origin) as f64 - mean_at;
        over += away * (ahead - mean);
        under += away * away;
    }
    let slope = if under > 0.0 { over / under } else { 0.0 };
    Some(ClockFit { origin, offset_ns: mean - slope * mean_at, slope })
}

fn displayed_avatar(line: &TraceEntry) -> Option<(EntityId, DisplayedAvatar)> {
    match line.event {
        TraceEvent::Displayed { entity, tick, position, is_alive: alive } => {
            Some((entity, DisplayedAvatar { at: line.at, tick, position, is_alive: alive }))
        }
        _ => None,
    }
}

fn owner_views(trace: &Trace, site: WorldSiteId) -> BTreeMap<EntityId, Vec<DisplayedAvatar>> {
    views_of(trace, site, 0)
}

fn views_of(trace: &Trace, site: WorldSiteId, skip: i64) -> BTreeMap<EntityId, Vec<DisplayedAvatar>> {
    let begin = trace.entries.first().map_or(0, |line| line.at.saturating_add(skip));
    let mut views: BTreeMap<EntityId, Vec<DisplayedAvatar>> = BTreeMap::new();
    for (entity, view) in trace.entries.iter().filter(|line| line.at >= begin).filter_map(displayed_avatar) {
        if entity.site == site {
            views.entry(entity).or_default().push(view);
        }
    }
    views
}

/// How far a view is from the owner's own at the same instant; nothing where one of them sees it dead.
fn compare(
    view: &DisplayedAvatar,
    own: &[DisplayedAvatar],
    missing: Option<&Vec<UpdateGap>>,
    offset: ClockFit,
) -> Option<DriftSample> {
    let theirs = offset.to_remote_time(view.at);
    let after = own.partition_point(|own| (own.at as f64) <= theirs);
    let (before, after) = (own.get(after.checked_sub(1)?)?, own.get(after)?);
    // Between two of its own views the owner's avatar is on its way; unless it jumped, or it stood still.
    let (way_x, way_y) = (after.position.0 - before.position.0, after.position.1 - before.position.1);
    if !view.is_alive || !before.is_alive || !after.is_alive || is_discontinuous(before, after, way_x.hypot(way_y)) {
        return None;
    }
    let part = (theirs - before.at as f64) / after.at.saturating_sub(before.at).max(1) as f64;
    let (x, y) = (before.position.0 + way_x * part, before.position.1 + way_y * part);
    let units = (view.position.0 - x).hypot(view.position.1 - y);
    let missing = missing.and_then(|gaps| gaps.iter().find(|gap| gap.from < view.tick && view.tick < gap.to));
    Some(DriftSample {
        at: view.at,
        tick: view.tick,
        distance: units,
        missing_updates: missing.map_or(0, |gap| gap.missing_updates),
    })
}

/// Whether an avatar got further from one view to the next than it can walk in those ticks; or its site slept: ticks are missing, or took
/// much longer.
fn is_discontinuous(before: &DisplayedAvatar, after: &DisplayedAvatar, way: f64) -> bool {
    let ticks = after.tick.saturating_sub(before.tick);
    // A little more, for what is rounded.
    let walked = f64::from(WALK_SPEED) / f64::from(UNIT) * f64::from(ticks) * 1.01 + 1.0;
    let elapsed = after.at.saturating_sub(before.at);
    way > walked || ticks > MazeSettings::MAX_TICKS.into() || elapsed > i64::from(ticks) * TICK_NS + MAX_VIEW_DELAY_NS
}

/// Updates that were missing in a row, between two ticks that were heard of.
#[derive(Clone, Copy, Debug)]
struct UpdateGap {
    from: u32,
    to: u32,
    missing_updates: u32,
}

fn update_gaps(trace: &Trace, site: WorldSiteId) -> BTreeMap<EntityId, Vec<UpdateGap>> {
    let mut heard: BTreeMap<EntityId, Vec<(u32, u16)>> = BTreeMap::new();
    for line in &trace.entries {
        if let TraceEvent::Received { entity, sequence, tick } = line.event
            && entity.site == site
        {
            heard.entry(entity).or_default().push((tick, sequence));
        }
    }
    let gaps = |mut row: Vec<(u32, u16)>| {
        row.sort_unstable();
        let between = |pair: &[(u32, u16)]| UpdateGap {
            from: pair[0].0,
            to: pair[1].0,
            missing_updates: u32::from(pair[1].1.wrapping_sub(pair[0].1)).saturating_sub(1),
        };
        row.windows(2).map(between).filter(|gap| (1..1_000).contains(&gap.missing_updates)).collect()
    };
    heard.into_iter().map(|(entity, row)| (entity, gaps(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorldSiteId = WorldSiteId(1);
    const B: WorldSiteId = WorldSiteId(2);
    const AVATAR: EntityId = EntityId { site: A, index: 0 };
    /// B's clock is ahead of A's by so much, and gains a thousandth on it.
    const CLOCK_OFFSET_NS: i64 = 5_000_000_000;

    fn entry(at: i64, what: TraceEvent) -> TraceEntry {
        TraceEntry { at, event: what }
    }

    fn displayed_event(tick: u32, x: f64) -> TraceEvent {
        TraceEvent::Displayed { entity: AVATAR, tick, position: (x, 0.0), is_alive: true }
    }

    /// A walks 32 units in 40 ms; B sees it `off` units behind, and measures clocks with some noise.
    fn traces_with_drift(off: f64, lost: &[u32]) -> [Trace; 2] {
        traces_with_bucket(4, off, lost)
    }

    /// The same in buckets of so many ticks.
    fn traces_with_bucket(bucket: u32, off: f64, lost: &[u32]) -> [Trace; 2] {
        let mut a = Trace { site: Some(A), entries: vec![entry(0, TraceEvent::Site(A))] };
        let mut b = Trace { site: Some(B), entries: vec![entry(CLOCK_OFFSET_NS, TraceEvent::Site(B))] };
        for n in 0..200u32 {
            let tick = n * bucket;
            let at = i64::from(tick) * TICK_NS;
            let at_b = at + CLOCK_OFFSET_NS + at / 1_000;
            let x = f64::from(tick) * 8.0;
            a.entries.push(entry(at, displayed_event(tick, x)));
            b.entries.push(entry(at_b, displayed_event(tick, x - off)));
            if !lost.contains(&n) {
                b.entries.push(entry(at_b, TraceEvent::Received { entity: AVATAR, sequence: n as u16, tick }));
            }
            let noise = i64::from(n % 3) * 1_000_000 - 1_000_000;
            b.entries.push(entry(at_b, TraceEvent::ClockOffset { peer: A, offset_ns: at - at_b + noise }));
            a.entries.push(entry(at, TraceEvent::ClockOffset { peer: B, offset_ns: at_b - at + noise }));
        }
        [a, b]
    }

    #[test]
    fn drift_is_measured_after_removing_clock_offset_and_skew() {
        for off in [0.0, 12.0] {
            let pairs = measure_drift(&traces_with_drift(off, &[]), 0);
            assert_eq!(pairs.len(), 1);
            assert_eq!((pairs[0].observer, pairs[0].entity), (B, AVATAR));
            let summary = DriftSummary::from_distances(pairs[0].samples.iter().map(|sample| sample.distance));
            assert!(summary.count > 190 && (summary.mean - off).abs() < 0.5, "{summary:?}");
            assert!((pairs[0].clock_offset.1 + 1_000_000.0).abs() < 50_000.0, "{:?}", pairs[0].clock_offset);
        }
    }

    #[test]
    fn drift_is_measured_for_every_bucket_length() {
        for bucket in [1, 4, 25, 26, 99, MazeSettings::MAX_TICKS.into()] {
            let pairs = measure_drift(&traces_with_bucket(bucket, 12.0, &[]), 0);
            let summary = DriftSummary::from_distances(pairs[0].samples.iter().map(|sample| sample.distance));
            assert!(summary.count > 190 && (summary.mean - 12.0).abs() < 0.5, "{bucket}: {summary:?}");
        }
    }

    #[test]
    fn suspended_site_is_not_sampled() {
        let whole = measure_drift(&traces_with_drift(0.0, &[]), 0)[0].samples.len();
        let mut slept = traces_with_drift(0.0, &[]);
        let is_seen_later =
            |line: &TraceEntry| matches!(line.event, TraceEvent::Displayed { tick, .. } if (200..500).contains(&tick));
        slept[0].entries.retain(|line| !is_seen_later(line));
        let left_out = whole - measure_drift(&slept, 0)[0].samples.len();
        assert!((74..=77).contains(&left_out), "{left_out}");
        let view = |at, tick| DisplayedAvatar { at, tick, position: (0.0, 0.0), is_alive: true };
        let jumped_in = |ms: i64| is_discontinuous(&view(0, 0), &view(ms * 1_000_000, 4), 32.0);
        assert!(
            !jumped_in(40) && !jumped_in(400) && jumped_in(600),
            "a view of 40 ms can be late, but not by any time"
        );
    }

    #[test]
    fn samples_count_missing_updates() {
        let pairs = measure_drift(&traces_with_drift(1.0, &[50, 51, 52, 100]), 0);
        let missing = |updates| pairs[0].samples.iter().filter(|sample| sample.missing_updates == updates).count();
        assert_eq!((missing(3), missing(1)), (3, 1));
    }

    #[test]
    fn dead_or_jumping_avatars_are_not_sampled() {
        let mut traces = traces_with_drift(0.0, &[]);
        for line in &mut traces[0].entries {
            if let TraceEvent::Displayed { tick, is_alive: alive, position, .. } = &mut line.event {
                *alive = *tick < 400;
                position.0 += if *tick < 200 { 0.0 } else { 9_000.0 };
            }
        }
        let pairs = measure_drift(&traces, 0);
        let compared: Vec<u32> = pairs[0].samples.iter().map(|sample| sample.tick).collect();
        assert!(compared.iter().all(|tick| *tick < 400) && !compared.contains(&198));
        assert!(measure_drift(&traces[..1], 0).is_empty());
    }
}
