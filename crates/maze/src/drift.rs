//! Drift: how far one site's view of a remote avatar is from the owner's view of it at the same instant, computed from
//! the traces of both sites.
//!
//! The clocks of the sites are independent. Each site repeatedly measured how far the clocks of its peers are ahead of
//! its own. A least-squares line through these offsets aligns the traces.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, WorldSiteId};

use crate::trace::{HEADER, TraceEntry, TraceEvent};
use crate::{MazeSettings, TICKS_PER_SECOND, UNIT, WALK_SPEED};

/// Length of a tick, in nanoseconds.
const TICK_NS: i64 = 1_000_000_000 / TICKS_PER_SECOND as i64;
/// Longest time between two views of a site, beyond the duration of the ticks between them, in nanoseconds. A longer
/// time means that the site was suspended.
const MAX_VIEW_DELAY_NS: i64 = 500_000_000;

/// Trace that one site wrote.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Site that wrote the trace; if it is `None`, the trace is not compared.
    pub site: Option<WorldSiteId>,
    /// Lines of the trace, in the order in which they were written.
    pub entries: Vec<TraceEntry>,
}

impl Trace {
    /// Parses the text of a trace file. Ignores an incomplete last line: the site was killed while it wrote the line.
    /// An error completes a sentence that begins with the name of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.split_inclusive('\n').enumerate();
        match lines.next() {
            None => return Err("is empty".into()),
            Some((_, first)) if first.trim_end() != HEADER => return Err("is not a trace of a maze".into()),
            Some(_) => {}
        }
        let mut trace = Self::default();
        for (number, line) in lines {
            match line.trim_end().parse::<TraceEntry>() {
                _ if !line.ends_with('\n') => {}
                Ok(line) => trace.entries.push(line),
                Err(_) => return Err(format!("has an invalid entry in line {}", number + 1)),
            }
        }
        trace.site = trace.entries.iter().find_map(|line| match line.event {
            TraceEvent::Site(site) => Some(site),
            _ => None,
        });
        if trace.site.is_some() {
            Ok(trace)
        } else {
            Err("names no site: the run ended before it was in a maze".into())
        }
    }

    /// Returns the final scores in the trace: avatar, hits and falls.
    pub fn final_scores(&self) -> Vec<(EntityId, u32, u32)> {
        let score = |line: &TraceEntry| match line.event {
            TraceEvent::Score { entity, hits, falls } => Some((entity, hits, falls)),
            _ => None,
        };
        self.entries.iter().filter_map(score).collect()
    }
}

/// Drift of one remote avatar, as displayed by one site.
#[derive(Clone, Debug, PartialEq)]
pub struct DriftSeries {
    /// Site that displayed the avatar.
    pub observer: WorldSiteId,
    /// Displayed avatar, owned by another site.
    pub entity: EntityId,
    /// Comparisons of the observer's view with the owner's, in chronological order.
    pub samples: Vec<DriftSample>,
    /// Fitted clock of the owner relative to the observer: offset in ns at the first measurement (positive if the owner
    /// is ahead), and skew in ns per second.
    pub clock_offset: (f64, f64),
}

/// One comparison of an observer's view with the owner's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftSample {
    /// Time of the view on the observer's clock, in nanoseconds.
    pub at: i64,
    /// Tick that the observer displayed.
    pub tick: u32,
    /// Distance between the two views at that instant, in units.
    pub distance: f64,
    /// Number of consecutive updates around that tick that the observer did not receive; 0 if none is missing.
    pub missing_updates: u32,
}

/// Statistics of the distances of many comparisons; all zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DriftSummary {
    /// Number of distances.
    pub count: usize,
    /// Mean distance, in units.
    pub mean: f64,
    /// 90th percentile of the distance, in units.
    pub p90: f64,
    /// Largest distance, in units.
    pub max: f64,
    /// Share of the distances below 50 units, from 0 to 1.
    pub share_under_50: f64,
}

impl DriftSummary {
    /// Computes the statistics of these distances, which are in units.
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

/// Compares each site's views of remote avatars with their owners' views, and returns one series per observer and
/// avatar that both the observer and the owner displayed. Omits pairs of sites of which neither measured the other's
/// clock. Ignores views within `skip` nanoseconds of the first line of the observer's trace.
pub fn measure_drift(traces: &[Trace], skip: i64) -> Vec<DriftSeries> {
    let mut pairs = Vec::new();
    for observer_trace in traces {
        for owner_trace in traces.iter().filter(|owner| owner.site != observer_trace.site) {
            let (Some(observer), Some(owner)) = (observer_trace.site, owner_trace.site) else { continue };
            let Some(offset) = fit_clock_offset(observer_trace, owner, owner_trace, observer) else { continue };
            let owner_views = owner_views(owner_trace, owner);
            let gaps = update_gaps(observer_trace, owner);
            for (entity, views) in views_of(observer_trace, owner, skip) {
                let Some(owner_views) = owner_views.get(&entity) else { continue };
                let gaps = gaps.get(&entity);
                let samples = views.iter().filter_map(|view| compare(view, owner_views, gaps, offset)).collect();
                pairs.push(DriftSeries {
                    observer,
                    entity,
                    samples,
                    clock_offset: (offset.offset_ns, offset.slope * 1e9),
                });
            }
        }
    }
    pairs
}

/// One entity as displayed in one view of a trace.
#[derive(Clone, Copy, Debug)]
struct DisplayedAvatar {
    at: i64,
    tick: u32,
    position: (f64, f64),
    is_alive: bool,
}

/// Line fitted through measured offsets of a remote clock.
#[derive(Clone, Copy, Debug)]
struct ClockFit {
    origin: i64,
    offset_ns: f64,
    slope: f64,
}

impl ClockFit {
    /// Converts a local time in nanoseconds to the remote clock.
    fn to_remote_time(self, local: i64) -> f64 {
        local as f64 + self.offset_ns + self.slope * local.saturating_sub(self.origin) as f64
    }
}

/// Fits the clock of the owner relative to the observer's, by least squares through the measurements of both sites.
/// Returns `None` if neither site measured the other's clock.
fn fit_clock_offset(
    observer_trace: &Trace,
    owner: WorldSiteId,
    owner_trace: &Trace,
    observer: WorldSiteId,
) -> Option<ClockFit> {
    let measured = |trace: &Trace, of: WorldSiteId| -> Vec<(i64, f64)> {
        let of_peer = |line: &TraceEntry| match line.event {
            TraceEvent::ClockOffset { peer, offset_ns } if peer == of => Some((line.at, offset_ns as f64)),
            _ => None,
        };
        trace.entries.iter().filter_map(of_peer).collect()
    };
    let mut points = measured(observer_trace, owner);
    // The owner measured the same line from the other end.
    let reversed = measured(owner_trace, observer).into_iter();
    points.extend(reversed.map(|(at, offset)| (at.saturating_add(offset as i64), -offset)));
    let origin = points.first()?.0;
    let count = points.len() as f64;
    let mean_at = points.iter().map(|(at, _)| at.saturating_sub(origin) as f64).sum::<f64>() / count;
    let mean = points.iter().map(|(_, offset)| offset).sum::<f64>() / count;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (at, offset) in &points {
        let deviation = at.saturating_sub(origin) as f64 - mean_at;
        covariance += deviation * (offset - mean);
        variance += deviation * deviation;
    }
    let slope = if variance > 0.0 { covariance / variance } else { 0.0 };
    Some(ClockFit { origin, offset_ns: mean - slope * mean_at, slope })
}

fn displayed_avatar(line: &TraceEntry) -> Option<(EntityId, DisplayedAvatar)> {
    match line.event {
        TraceEvent::Displayed { entity, tick, position, is_alive } => {
            Some((entity, DisplayedAvatar { at: line.at, tick, position, is_alive }))
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

/// Compares a view with the owner's view at the same instant, interpolated between two views of the owner. Returns
/// `None` where the observer or the owner shows the avatar dead, or where the owner's views are missing or not
/// continuous.
fn compare(
    view: &DisplayedAvatar,
    owner_views: &[DisplayedAvatar],
    gaps: Option<&Vec<UpdateGap>>,
    offset: ClockFit,
) -> Option<DriftSample> {
    let owner_time = offset.to_remote_time(view.at);
    let after = owner_views.partition_point(|own| (own.at as f64) <= owner_time);
    let (before, after) = (owner_views.get(after.checked_sub(1)?)?, owner_views.get(after)?);
    // Between two of the owner's views the avatar moves linearly, unless it jumped or its site was suspended.
    let (dx, dy) = (after.position.0 - before.position.0, after.position.1 - before.position.1);
    if !view.is_alive || !before.is_alive || !after.is_alive || is_discontinuous(before, after, dx.hypot(dy)) {
        return None;
    }
    let part = (owner_time - before.at as f64) / after.at.saturating_sub(before.at).max(1) as f64;
    let (x, y) = (before.position.0 + dx * part, before.position.1 + dy * part);
    let distance = (view.position.0 - x).hypot(view.position.1 - y);
    let gap = gaps.and_then(|gaps| gaps.iter().find(|gap| gap.from < view.tick && view.tick < gap.to));
    Some(DriftSample {
        at: view.at,
        tick: view.tick,
        distance,
        missing_updates: gap.map_or(0, |gap| gap.missing_updates),
    })
}

/// Returns whether an avatar moved further between two views of its owner than it can walk in those ticks, or the owner
/// was suspended: more than 100 ticks lie between the views, or they took more than 0.5 s longer than they should.
fn is_discontinuous(before: &DisplayedAvatar, after: &DisplayedAvatar, distance: f64) -> bool {
    let ticks = after.tick.saturating_sub(before.tick);
    // Allows for rounding.
    let walkable = f64::from(WALK_SPEED) / f64::from(UNIT) * f64::from(ticks) * 1.01 + 1.0;
    let elapsed = after.at.saturating_sub(before.at);
    distance > walkable
        || ticks > MazeSettings::MAX_TICKS.into()
        || elapsed > i64::from(ticks) * TICK_NS + MAX_VIEW_DELAY_NS
}

/// Run of consecutive missing updates, between two ticks whose updates arrived.
#[derive(Clone, Copy, Debug)]
struct UpdateGap {
    from: u32,
    to: u32,
    missing_updates: u32,
}

fn update_gaps(trace: &Trace, site: WorldSiteId) -> BTreeMap<EntityId, Vec<UpdateGap>> {
    let mut received: BTreeMap<EntityId, Vec<(u32, u16)>> = BTreeMap::new();
    for line in &trace.entries {
        if let TraceEvent::Received { entity, sequence, tick } = line.event
            && entity.site == site
        {
            received.entry(entity).or_default().push((tick, sequence));
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
    received.into_iter().map(|(entity, row)| (entity, gaps(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorldSiteId = WorldSiteId(1);
    const B: WorldSiteId = WorldSiteId(2);
    const AVATAR: EntityId = EntityId { site: A, index: 0 };
    /// Nanoseconds by which B's clock is ahead of A's at the start. It gains 0.1 % on A's.
    const CLOCK_OFFSET_NS: i64 = 5_000_000_000;

    fn entry(at: i64, event: TraceEvent) -> TraceEntry {
        TraceEntry { at, event }
    }

    fn displayed_event(tick: u32, x: f64) -> TraceEvent {
        TraceEvent::Displayed { entity: AVATAR, tick, position: (x, 0.0), is_alive: true }
    }

    /// Returns the traces of A, whose avatar walks 32 units in 40 ms, and of B, which displays the avatar `drift` units
    /// behind and does not receive the updates in `lost`. Both measure clock offsets with a noise of 1 ms.
    fn traces_with_drift(drift: f64, lost: &[u32]) -> [Trace; 2] {
        traces_with_bucket(4, drift, lost)
    }

    /// Returns the traces of [`traces_with_drift`] with buckets of `bucket` ticks.
    fn traces_with_bucket(bucket: u32, drift: f64, lost: &[u32]) -> [Trace; 2] {
        let mut a = Trace { site: Some(A), entries: vec![entry(0, TraceEvent::Site(A))] };
        let mut b = Trace { site: Some(B), entries: vec![entry(CLOCK_OFFSET_NS, TraceEvent::Site(B))] };
        for n in 0..200u32 {
            let tick = n * bucket;
            let at = i64::from(tick) * TICK_NS;
            let at_b = at + CLOCK_OFFSET_NS + at / 1_000;
            let x = f64::from(tick) * 8.0;
            a.entries.push(entry(at, displayed_event(tick, x)));
            b.entries.push(entry(at_b, displayed_event(tick, x - drift)));
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
        for drift in [0.0, 12.0] {
            let pairs = measure_drift(&traces_with_drift(drift, &[]), 0);
            assert_eq!(pairs.len(), 1);
            assert_eq!((pairs[0].observer, pairs[0].entity), (B, AVATAR));
            let summary = DriftSummary::from_distances(pairs[0].samples.iter().map(|sample| sample.distance));
            assert!(summary.count > 190 && (summary.mean - drift).abs() < 0.5, "{summary:?}");
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
        let mut suspended = traces_with_drift(0.0, &[]);
        let is_in_suspension =
            |line: &TraceEntry| matches!(line.event, TraceEvent::Displayed { tick, .. } if (200..500).contains(&tick));
        suspended[0].entries.retain(|line| !is_in_suspension(line));
        let left_out = whole - measure_drift(&suspended, 0)[0].samples.len();
        assert!((74..=77).contains(&left_out), "{left_out}");
        let view = |at, tick| DisplayedAvatar { at, tick, position: (0.0, 0.0), is_alive: true };
        let jumped_in = |ms: i64| is_discontinuous(&view(0, 0), &view(ms * 1_000_000, 4), 32.0);
        assert!(
            !jumped_in(40) && !jumped_in(400) && jumped_in(600),
            "a 40 ms view may be delayed, but not beyond MAX_VIEW_DELAY_NS"
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
            if let TraceEvent::Displayed { tick, is_alive, position, .. } = &mut line.event {
                *is_alive = *tick < 400;
                position.0 += if *tick < 200 { 0.0 } else { 9_000.0 };
            }
        }
        let pairs = measure_drift(&traces, 0);
        let compared: Vec<u32> = pairs[0].samples.iter().map(|sample| sample.tick).collect();
        assert!(compared.iter().all(|tick| *tick < 400) && !compared.contains(&198));
        assert!(measure_drift(&traces[..1], 0).is_empty());
    }

    #[test]
    fn truncated_trace_is_read_up_to_its_last_whole_line() {
        let whole = format!("{HEADER}\nsite,0,00000001\nscore,5,00000001.0,1,2\n");
        assert_eq!(Trace::parse(&whole).unwrap().entries.len(), 2);
        let cut = Trace::parse(&whole[..whole.len() - 3]).unwrap();
        assert_eq!((cut.site, cut.entries.len()), (Some(WorldSiteId(1)), 1));
    }

    #[test]
    fn invalid_trace_error_states_the_reason() {
        let error = |text: &str| Trace::parse(text).unwrap_err();
        assert!(error("").contains("empty"));
        assert!(error("frame,start\n").contains("not a trace"));
        assert!(error(HEADER).contains("site"));
        assert!(error(&format!("{HEADER}\nsite,0,1\nnonsense\n")).contains("line 3"));
    }
}
