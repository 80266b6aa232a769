//! How far one site's view of another's avatar is from that other's own view of it, at the same instant: computed from their traces.
//!
//! Sites' clocks have nothing to do with each other; each has measured again and again by how much the others' are ahead. A straight line
//! through those, by least squares, is what their traces are laid beside each other with.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, WorldSiteId};

use crate::trace::{Line, What};
use crate::{FINE, TICKS_PER_SECOND, Terms, WALK};

/// A tick, in nanoseconds.
const TICK: i64 = 1_000_000_000 / TICKS_PER_SECOND as i64;
/// A view that is later than this is one of a site that slept.
const LATE: i64 = 500_000_000;

/// What one site wrote.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Who wrote it.
    pub site: Option<WorldSiteId>,
    /// All lines, in their order.
    pub lines: Vec<Line>,
}

/// What one site saw of another's avatar.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Who saw.
    pub seen_by: WorldSiteId,
    /// What it saw.
    pub entity: EntityId,
    /// How far apart the views were, in units, in the order of time: when on the clock of who saw, and by how much.
    pub samples: Vec<Sample>,
    /// By how much the clock of the one who was seen is ahead, and how fast it gains on that (ns, ns per second), as it was fitted.
    pub offset: (f64, f64),
}

/// One comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, on the clock of who saw, in nanoseconds.
    pub at: i64,
    /// The tick that was shown.
    pub tick: u32,
    /// How far apart the two views were at that instant.
    pub units: f64,
    /// How many updates in a row were missing around that tick.
    pub missing: u32,
}

/// Numbers of many comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// Their mean, in units.
    pub mean: f64,
    /// Nine of ten are below.
    pub p90: f64,
    /// The worst.
    pub most: f64,
    /// The part of them below 50 units.
    pub under_50: f64,
}

impl Summary {
    /// The numbers of these.
    pub fn of(samples: impl Iterator<Item = f64>) -> Self {
        let mut units: Vec<f64> = samples.collect();
        units.sort_by(f64::total_cmp);
        let count = units.len();
        let Some(most) = units.last().copied() else { return Self::default() };
        Self {
            count,
            mean: units.iter().sum::<f64>() / count as f64,
            p90: units[(count * 9 / 10).min(count - 1)],
            most,
            under_50: units.partition_point(|units| *units < 50.0) as f64 / count as f64,
        }
    }
}

/// All pairs of a site and another's avatar, in traces of several sites. Views from before `skip` nanoseconds after a trace's first line do
/// not count.
pub fn drifts(traces: &[Trace], skip: i64) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for seer in traces {
        for seen in traces.iter().filter(|seen| seen.site != seer.site) {
            let (Some(seen_by), Some(site)) = (seer.site, seen.site) else { continue };
            let Some(offset) = fitted_offset(seer, site, seen, seen_by) else { continue };
            let own = own_views(seen, site);
            let bursts = missing_around(seer, site);
            for (entity, views) in views_of(seer, site, skip) {
                let Some(own) = own.get(&entity) else { continue };
                let missing = bursts.get(&entity);
                let samples = views.iter().filter_map(|view| compare(view, own, missing, offset)).collect();
                pairs.push(Pair { seen_by, entity, samples, offset: (offset.ahead, offset.slope * 1e9) });
            }
        }
    }
    pairs
}

/// An avatar in a view.
#[derive(Clone, Copy, Debug)]
struct View {
    at: i64,
    tick: u32,
    position: (f64, f64),
    alive: bool,
}

/// A line through measured offsets.
#[derive(Clone, Copy, Debug)]
struct Offset {
    origin: i64,
    ahead: f64,
    slope: f64,
}

impl Offset {
    /// The other's time when ours is this.
    fn theirs(&self, ours: i64) -> f64 {
        ours as f64 + self.ahead + self.slope * ours.saturating_sub(self.origin) as f64
    }
}

/// By least squares through what both have measured of each other.
fn fitted_offset(seer: &Trace, site: WorldSiteId, seen: &Trace, seen_by: WorldSiteId) -> Option<Offset> {
    let measured = |trace: &Trace, of: WorldSiteId| -> Vec<(i64, f64)> {
        let of_peer = |line: &Line| match line.what {
            What::Offset { peer, ahead } if peer == of => Some((line.at, ahead as f64)),
            _ => None,
        };
        trace.lines.iter().filter_map(of_peer).collect()
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
    Some(Offset { origin, ahead: mean - slope * mean_at, slope })
}

fn seen(line: &Line) -> Option<(EntityId, View)> {
    match line.what {
        What::Seen { entity, tick, position, alive } => Some((entity, View { at: line.at, tick, position, alive })),
        _ => None,
    }
}

fn own_views(trace: &Trace, site: WorldSiteId) -> BTreeMap<EntityId, Vec<View>> {
    views_of(trace, site, 0)
}

fn views_of(trace: &Trace, site: WorldSiteId, skip: i64) -> BTreeMap<EntityId, Vec<View>> {
    let begin = trace.lines.first().map_or(0, |line| line.at.saturating_add(skip));
    let mut views: BTreeMap<EntityId, Vec<View>> = BTreeMap::new();
    for (entity, view) in trace.lines.iter().filter(|line| line.at >= begin).filter_map(seen) {
        if entity.site == site {
            views.entry(entity).or_default().push(view);
        }
    }
    views
}

/// How far a view is from the owner's own at the same instant; nothing where one of them sees it dead.
fn compare(view: &View, own: &[View], missing: Option<&Vec<Gap>>, offset: Offset) -> Option<Sample> {
    let theirs = offset.theirs(view.at);
    let after = own.partition_point(|own| (own.at as f64) <= theirs);
    let (before, after) = (own.get(after.checked_sub(1)?)?, own.get(after)?);
    // Between two of its own views the owner's avatar is on its way; unless it jumped, or it stood still.
    let (way_x, way_y) = (after.position.0 - before.position.0, after.position.1 - before.position.1);
    if !view.alive || !before.alive || !after.alive || jumped(before, after, way_x.hypot(way_y)) {
        return None;
    }
    let part = (theirs - before.at as f64) / after.at.saturating_sub(before.at).max(1) as f64;
    let (x, y) = (before.position.0 + way_x * part, before.position.1 + way_y * part);
    let units = (view.position.0 - x).hypot(view.position.1 - y);
    let missing = missing.and_then(|gaps| gaps.iter().find(|gap| gap.from < view.tick && view.tick < gap.to));
    Some(Sample { at: view.at, tick: view.tick, units, missing: missing.map_or(0, |gap| gap.updates) })
}

/// Whether an avatar got further from one view to the next than it can walk in those ticks; or its site slept: ticks are missing, or took
/// much longer.
fn jumped(before: &View, after: &View, way: f64) -> bool {
    let ticks = after.tick.saturating_sub(before.tick);
    // A little more, for what is rounded.
    let walked = f64::from(WALK) / f64::from(FINE) * f64::from(ticks) * 1.01 + 1.0;
    let elapsed = after.at.saturating_sub(before.at);
    way > walked || ticks > Terms::MOST_TICKS.into() || elapsed > i64::from(ticks) * TICK + LATE
}

/// Updates that were missing in a row, between two ticks that were heard of.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u32,
    to: u32,
    updates: u32,
}

fn missing_around(trace: &Trace, site: WorldSiteId) -> BTreeMap<EntityId, Vec<Gap>> {
    let mut heard: BTreeMap<EntityId, Vec<(u32, u16)>> = BTreeMap::new();
    for line in &trace.lines {
        if let What::Heard { entity, sequence, tick } = line.what
            && entity.site == site
        {
            heard.entry(entity).or_default().push((tick, sequence));
        }
    }
    let gaps = |mut row: Vec<(u32, u16)>| {
        row.sort_unstable();
        let between = |pair: &[(u32, u16)]| Gap {
            from: pair[0].0,
            to: pair[1].0,
            updates: u32::from(pair[1].1.wrapping_sub(pair[0].1)).saturating_sub(1),
        };
        row.windows(2).map(between).filter(|gap| (1..1_000).contains(&gap.updates)).collect()
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
    const AHEAD: i64 = 5_000_000_000;

    fn line(at: i64, what: What) -> Line {
        Line { at, what }
    }

    fn view(tick: u32, x: f64) -> What {
        What::Seen { entity: AVATAR, tick, position: (x, 0.0), alive: true }
    }

    /// A walks 32 units in 40 ms; B sees it `off` units behind, and measures clocks with some noise.
    fn traces(off: f64, lost: &[u32]) -> [Trace; 2] {
        traces_of_buckets(4, off, lost)
    }

    /// The same in buckets of so many ticks.
    fn traces_of_buckets(bucket: u32, off: f64, lost: &[u32]) -> [Trace; 2] {
        let mut a = Trace { site: Some(A), lines: vec![line(0, What::Site(A))] };
        let mut b = Trace { site: Some(B), lines: vec![line(AHEAD, What::Site(B))] };
        for n in 0..200u32 {
            let tick = n * bucket;
            let at = i64::from(tick) * TICK;
            let at_b = at + AHEAD + at / 1_000;
            let x = f64::from(tick) * 8.0;
            a.lines.push(line(at, view(tick, x)));
            b.lines.push(line(at_b, view(tick, x - off)));
            if !lost.contains(&n) {
                b.lines.push(line(at_b, What::Heard { entity: AVATAR, sequence: n as u16, tick }));
            }
            let noise = i64::from(n % 3) * 1_000_000 - 1_000_000;
            b.lines.push(line(at_b, What::Offset { peer: A, ahead: at - at_b + noise }));
            a.lines.push(line(at, What::Offset { peer: B, ahead: at_b - at + noise }));
        }
        [a, b]
    }

    #[test]
    fn clocks_are_laid_beside_each_other_and_the_rest_is_drift() {
        for off in [0.0, 12.0] {
            let pairs = drifts(&traces(off, &[]), 0);
            assert_eq!(pairs.len(), 1);
            assert_eq!((pairs[0].seen_by, pairs[0].entity), (B, AVATAR));
            let summary = Summary::of(pairs[0].samples.iter().map(|sample| sample.units));
            assert!(summary.count > 190 && (summary.mean - off).abs() < 0.5, "{summary:?}");
            assert!((pairs[0].offset.1 + 1_000_000.0).abs() < 50_000.0, "{:?}", pairs[0].offset);
        }
    }

    #[test]
    fn who_walks_is_compared_however_long_a_bucket_is() {
        for bucket in [1, 4, 25, 26, 99, Terms::MOST_TICKS.into()] {
            let pairs = drifts(&traces_of_buckets(bucket, 12.0, &[]), 0);
            let summary = Summary::of(pairs[0].samples.iter().map(|sample| sample.units));
            assert!(summary.count > 190 && (summary.mean - 12.0).abs() < 0.5, "{bucket}: {summary:?}");
        }
    }

    #[test]
    fn a_site_that_slept_is_not_compared_meanwhile() {
        let whole = drifts(&traces(0.0, &[]), 0)[0].samples.len();
        let mut slept = traces(0.0, &[]);
        let is_seen_later = |line: &Line| matches!(line.what, What::Seen { tick, .. } if (200..500).contains(&tick));
        slept[0].lines.retain(|line| !is_seen_later(line));
        let left_out = whole - drifts(&slept, 0)[0].samples.len();
        assert!((74..=77).contains(&left_out), "{left_out}");
        let view = |at, tick| View { at, tick, position: (0.0, 0.0), alive: true };
        let jumped_in = |ms: i64| jumped(&view(0, 0), &view(ms * 1_000_000, 4), 32.0);
        assert!(
            !jumped_in(40) && !jumped_in(400) && jumped_in(600),
            "a view of 40 ms can be late, but not by any time"
        );
    }

    #[test]
    fn samples_know_how_much_was_missing_around_them() {
        let pairs = drifts(&traces(1.0, &[50, 51, 52, 100]), 0);
        let missing = |updates| pairs[0].samples.iter().filter(|sample| sample.missing == updates).count();
        assert_eq!((missing(3), missing(1)), (3, 1));
    }

    #[test]
    fn what_is_dead_or_jumps_is_not_compared() {
        let mut traces = traces(0.0, &[]);
        for line in &mut traces[0].lines {
            if let What::Seen { tick, alive, position, .. } = &mut line.what {
                *alive = *tick < 400;
                position.0 += if *tick < 200 { 0.0 } else { 9_000.0 };
            }
        }
        let pairs = drifts(&traces, 0);
        let compared: Vec<u32> = pairs[0].samples.iter().map(|sample| sample.tick).collect();
        assert!(compared.iter().all(|tick| *tick < 400) && !compared.contains(&198));
        assert!(drifts(&traces[..1], 0).is_empty());
    }
}
