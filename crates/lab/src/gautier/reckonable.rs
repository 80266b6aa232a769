//! Figure 4: share of the updates that dead reckoning predicts from the previous update.

use coplay::peer_world::UpdatePolicy;

use super::path_replay::record_paths;
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::papers::GAUTIER;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `reckonable` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "reckonable",
    title: "Updates without new information",
    summary: "The higher the update rate, the larger the share of updates that lie on the line or circle of the previous update, so that dead reckoning would have predicted them.",
    paper: &GAUTIER,
    paper_figures: "Figure 4",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 3] = [SeriesStyle::Second, SeriesStyle::First, SeriesStyle::Paper];

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = context.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = context.full_or_short(120, 40);
    let jobs: Vec<(usize, u32)> =
        [0, 2].into_iter().flat_map(|link| rates.iter().map(move |rate| (link, *rate))).collect();
    let seed = context.seed;
    let shares = context.run_jobs(1.0, &jobs, |(link, rate)| {
        let paths = record_paths(seed, seconds, UpdatePolicy::fixed(*rate), &LINK_CASES[*link].link());
        let share = paths.iter().map(|path| path.reckonable_share(*rate)).sum::<f64>() / paths.len().max(1) as f64;
        (*link, *rate, share)
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, one ninja each");
    findings.add_parameter("links", "LAN; 175 ms with 40 % loss in outages");
    findings.add_parameter("time", format!("{seconds} s for each rate and link"));
    findings.add_note(
        "An update is reckonable if the previous update, extrapolated to the same tick, is less than one unit away, and the avatar neither died nor respawned in the meantime.",
    );
    let mut table = DataTable::new(
        "reckonable",
        "Share of the updates that dead reckoning predicts from the previous update, by link and update rate",
        &["loss_percent", "updates_per_second", "reckonable_percent"],
    );
    for (link, rate, share) in &shares {
        table.add_row([number(LINK_CASES[*link].loss * 100.0, 0), integer(*rate), number(share * 100.0, 2)]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&shares));
    claims(&mut findings, &shares);
    findings
}

fn figure(shares: &[(usize, u32, f64)]) -> Figure {
    let x = PlotAxis::new("updates per second").with_min(0.0).with_max(28.0);
    let panel = Panel::new(
        "Updates on the line or circle of the previous update",
        x,
        PlotAxis::new("% of updates").with_min(0.0).with_max(100.0),
    );
    let panel = [0, 2].into_iter().fold(panel, |panel, link| {
        let line =
            shares.iter().filter(|(of, ..)| *of == link).map(|(_, rate, share)| (f64::from(*rate), share * 100.0));
        panel.line(LINK_CASES[link].name, STYLES[link], line)
    });
    let caption = "Updates that are not reckonable follow a turn. Ninjas decide on their course every 100 to 200 ms, so at about 10 or more updates per second, most updates add no information.";
    Figure::new("reckonable", "Share of reckonable updates over the update rate (G, Figure 4)", caption, vec![panel])
}

fn claims(findings: &mut Findings, shares: &[(usize, u32, f64)]) {
    for link in [0, 2] {
        let line: Vec<f64> = shares.iter().filter(|(of, ..)| *of == link).map(|(_, _, share)| share * 100.0).collect();
        let (Some(max), Some(min)) = (line.first(), line.last()) else { continue };
        // Rates fall along the line; at each step the share may rise by up to 3 points of noise.
        let falls = line.windows(2).all(|pair| pair[1] < pair[0] + 3.0);
        findings.add_claim(
            &format!(
                "{}: from 1 to 28 updates per second, the share of reckonable updates rises by over 30 percentage points, and falls by 3 points or more at no step",
                LINK_CASES[link].name
            ),
            "the share rises with the rate",
            format!("{min:.0} % at 1 per second, {max:.0} % at 28"),
            falls && *max > min + 30.0,
        );
    }
}
