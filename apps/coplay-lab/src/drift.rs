//! `coplay-lab drift`: measures from the traces of several sites how far apart their views were.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use coplay::peer_world::{EntityId, WorldSiteId};
use coplay_maze::drift::{DriftSample, DriftSeries, DriftSummary as Numbers, Trace, measure_drift};
use coplay_shell::error::{AppError, describe_io_error};

use crate::cli::DriftArgs;

/// Warm-up of 3 s in nanoseconds. Its samples do not count, since the sites are still synchronizing their clocks.
const WARM_UP_NANOS: i64 = 3_000_000_000;

/// Runs `coplay-lab drift`: reads the traces, measures the drift and prints the report.
pub fn run(args: &DriftArgs) -> Result<(), AppError> {
    let traces: Vec<Trace> = args.traces.iter().map(|path| read_trace(path)).collect::<Result<_, _>>()?;
    check_traces(&traces)?;
    let comparison = DriftReport::from_traces(&traces);
    if comparison.all.count == 0 {
        return Err(AppError::failure(
            "nothing to compare: no site displayed an avatar of another site after the first 3 s",
        )
        .hint("give traces of one maze and one run, longer than 3 s"));
    }
    coplay_shell::print_stdout(&if args.json { comparison.to_json() } else { comparison.to_text() });
    Ok(())
}

fn read_trace(path: &Path) -> Result<Trace, AppError> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|error| {
        AppError::failure(format!("cannot read {shown}: {}", describe_io_error(&error)))
            .hint("give files that `coplay maze host --trace FILE` or `coplay maze join --trace FILE` wrote")
    })?;
    Trace::parse(&String::from_utf8_lossy(&text)).map_err(|error| {
        AppError::failure(format!("{shown} {error}"))
            .hint("give files that `coplay maze` wrote with --trace FILE, in the same version of coplay")
    })
}

fn check_traces(traces: &[Trace]) -> Result<(), AppError> {
    if traces.len() < 2 {
        return Err(AppError::usage("one trace is not enough: drift is measured between two or more sites")
            .hint("give the traces of two or more sites: `coplay-lab drift FILE FILE`"));
    }
    let sites: BTreeSet<Option<WorldSiteId>> = traces.iter().map(|trace| trace.site).collect();
    if sites.len() < traces.len() {
        return Err(
            AppError::usage("two of the traces are of the same site").hint("give one trace of each site, from one run")
        );
    }
    Ok(())
}

/// Drift of one site's avatars in the view of another site.
struct PairDrift {
    observer: WorldSiteId,
    observed: WorldSiteId,
    all: Numbers,
    /// Drift of those samples around which three to five consecutive updates are missing.
    during_loss: Numbers,
    /// Offset of the observed site's clock from the observer's at the first measurement, in milliseconds; positive if
    /// the observed site's clock is ahead.
    offset_ms: f64,
    /// Rate at which the clock offset grows, in parts per million.
    skew_ppm: f64,
}

/// Drift between all pairs of sites, and the final scores that the sites recorded.
struct DriftReport {
    rows: Vec<PairDrift>,
    all: Numbers,
    during_loss: Numbers,
    /// Final scores in each trace: avatar, hits and falls.
    scores: Vec<Vec<(EntityId, u32, u32)>>,
}

impl DriftReport {
    fn from_traces(traces: &[Trace]) -> Self {
        let pairs = measure_drift(traces, WARM_UP_NANOS);
        let mut by_sites: BTreeMap<(WorldSiteId, WorldSiteId), Vec<&DriftSeries>> = BTreeMap::new();
        for pair in &pairs {
            by_sites.entry((pair.observer, pair.entity.site)).or_default().push(pair);
        }
        let rows = by_sites.into_iter().map(|((observer, observed), pairs)| {
            let (all, during_loss) = summarize(&pairs);
            let (offset, skew) = pairs[0].clock_offset;
            PairDrift { observer, observed, all, during_loss, offset_ms: offset / 1e6, skew_ppm: skew / 1e3 }
        });
        let (all, during_loss) = summarize(&pairs.iter().collect::<Vec<_>>());
        let scores = traces.iter().map(Trace::final_scores).collect();
        Self { rows: rows.collect(), all, during_loss, scores }
    }

    /// Returns whether all sites ended with equal scores; `None` if a trace has no score: its site was killed, or no
    /// avatar was hit.
    fn scores_are_equal(&self) -> Option<bool> {
        let all_known = self.scores.iter().all(|scores| !scores.is_empty());
        all_known.then(|| self.scores.windows(2).all(|pair| pair[0] == pair[1]))
    }

    fn to_text(&self) -> String {
        let mut text = String::from(
            "drift in units (a cell is 512 units wide): mean, 90th percentile, share of samples below 50, maximum\n\
             \x20                                                            with 3 to 5 updates missing\n\
             observer observed     samples  mean   90 %  <50     max    samples  mean   90 %  <50     max    clock offset   skew\n",
        );
        for row in &self.rows {
            let sites = format!("{:?} {:?}", row.observer, row.observed);
            let clock = format!("{:>8.3} ms  {:>6.1} ppm", row.offset_ms, row.skew_ppm);
            _ = writeln!(
                text,
                "{sites:<20} {}   {}   {clock}",
                format_columns(&row.all),
                format_columns(&row.during_loss)
            );
        }
        let all = format!("{:<20} {}   {}", "all", format_columns(&self.all), format_columns(&self.during_loss));
        _ = writeln!(text, "{}\n", all.trim_end());
        for (entity, hits, falls) in self.scores.iter().find(|scores| !scores.is_empty()).into_iter().flatten() {
            _ = writeln!(text, "{:<20} {hits:>8} hits  {falls} falls", format!("{entity:?}"));
        }
        let equal = self.scores_are_equal().map_or("unknown", |equal| if equal { "yes" } else { "no" });
        _ = writeln!(text, "scores equal {equal}");
        text
    }

    fn to_json(&self) -> String {
        let row = |row: &PairDrift| {
            format!(
                "{{\"seer\":\"{:?}\",\"seen\":\"{:?}\",\"drift\":{},\"missing_3_to_5\":{},\"offset_ms\":{:.6},\"skew_ppm\":{:.3}}}",
                row.observer,
                row.observed,
                format_json(&row.all),
                format_json(&row.during_loss),
                row.offset_ms,
                row.skew_ppm
            )
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        format!(
            "{{\"drift\":{},\"missing_3_to_5\":{},\"scores_equal\":{},\"pairs\":[{}]}}\n",
            format_json(&self.all),
            format_json(&self.during_loss),
            self.scores_are_equal().map_or("null", |equal| if equal { "true" } else { "false" }),
            rows.join(",")
        )
    }
}

/// Summarizes all samples of some series, and those with three to five updates missing around them.
fn summarize(pairs: &[&DriftSeries]) -> (Numbers, Numbers) {
    let samples = || pairs.iter().flat_map(|pair| &pair.samples);
    let in_burst = |sample: &&DriftSample| (3..=5).contains(&sample.missing_updates);
    let units = |sample: &DriftSample| sample.distance;
    (Numbers::from_distances(samples().map(units)), Numbers::from_distances(samples().filter(in_burst).map(units)))
}

fn format_columns(numbers: &Numbers) -> String {
    let Numbers { count, mean, p90, max, share_under_50 } = numbers;
    if *count == 0 {
        return format!("{:>8} {:>29}", 0, "");
    }
    format!("{count:>8} {mean:>5.1} {p90:>6.1} {:>5.1}% {max:>7.1}", share_under_50 * 100.0)
}

fn format_json(numbers: &Numbers) -> String {
    let Numbers { count, mean, p90, max, share_under_50 } = numbers;
    format!(
        "{{\"samples\":{count},\"mean\":{mean:.3},\"p90\":{p90:.3},\"under_50\":{share_under_50:.5},\"most\":{max:.3}}}"
    )
}

#[cfg(test)]
mod tests {
    use coplay_maze::trace::{TraceEntry, TraceEvent};

    use super::*;

    #[test]
    fn drift_needs_traces_of_two_sites() {
        let of = |site| Trace { site: Some(WorldSiteId(site)), entries: vec![] };
        assert!(
            check_traces(&[of(1)]).is_err()
                && check_traces(&[of(1), of(1)]).is_err()
                && check_traces(&[of(1), of(2)]).is_ok()
        );
    }

    #[test]
    fn score_comparison_is_unknown_if_a_trace_has_no_score() {
        let with = |site, hits| {
            let entity = EntityId { site: WorldSiteId(7), index: 0 };
            Trace {
                site: Some(WorldSiteId(site)),
                entries: vec![TraceEntry { at: 0, event: TraceEvent::Score { entity, hits, falls: 0 } }],
            }
        };
        let equal = |traces: &[Trace]| DriftReport::from_traces(traces).scores_are_equal();
        assert_eq!(equal(&[with(1, 3), with(2, 3)]), Some(true));
        assert_eq!(equal(&[with(1, 3), with(2, 4)]), Some(false));
        let killed = || Trace { site: Some(WorldSiteId(2)), entries: vec![] };
        assert_eq!(equal(&[with(1, 3), killed()]), None);
        let unknown = DriftReport::from_traces(&[killed(), with(1, 3)]);
        assert!(
            unknown.to_text().contains("scores equal unknown") && unknown.to_json().contains("\"scores_equal\":null")
        );
    }
}
