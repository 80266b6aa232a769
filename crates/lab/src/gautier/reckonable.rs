//! Figure 4: how many updates could have been reckoned.

use coplay::peer_world::UpdatePolicy;

use super::path_replay::record_paths;
use super::{LINK_CASES, SHORT_UPDATE_RATES, UPDATE_RATES};
use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "reckonable",
    title: "Updates that say nothing new",
    summary: "The more often an avatar tells where it is, the more of what it tells is on the line or circle of the update before: others could have reckoned it.",
    paper: &GAUTIER,
    paper_figures: "Figure 4",
    expected_seconds: 8.0,
    run,
    real_run: None,
};

const STYLES: [SeriesStyle; 3] = [SeriesStyle::Second, SeriesStyle::First, SeriesStyle::Paper];

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let rates: &[u32] = bench.full_or_short(&UPDATE_RATES, &SHORT_UPDATE_RATES);
    let seconds = bench.full_or_short(120, 40);
    let jobs: Vec<(usize, u32)> =
        [0, 2].into_iter().flat_map(|way| rates.iter().map(move |rate| (way, *rate))).collect();
    let seed = bench.seed;
    let shares = bench.run_jobs(1.0, &jobs, |(way, rate)| {
        let paths = record_paths(seed, seconds, UpdatePolicy::fixed(*rate), &LINK_CASES[*way].link());
        let share = paths.iter().map(|path| path.reckonable_share(*rate)).sum::<f64>() / paths.len().max(1) as f64;
        (*way, *rate, share)
    });
    let mut findings = Findings::default();
    super::add_common_parameters(&mut findings);
    findings.add_parameter("sites", "5, a ninja each");
    findings.add_parameter("links", "LAN; 175 ms with 40 % loss in outages");
    findings.add_parameter("time", format!("{seconds} s for each rate and link"));
    findings
        .add_note("An update is reckonable if the one before it, reckoned to the same tick, is less than a unit away.");
    let mut table = DataTable::new(
        "reckonable",
        "Updates that could be reckoned from the one before",
        &["loss_percent", "updates_per_second", "reckonable_percent"],
    );
    for (way, rate, share) in &shares {
        table.add_row([number(LINK_CASES[*way].loss * 100.0, 0), integer(*rate), number(share * 100.0, 2)]);
    }
    findings.tables.push(table);
    findings.figures.push(figure(&shares));
    claims(&mut findings, &shares);
    findings
}

fn figure(shares: &[(usize, u32, f64)]) -> Figure {
    let x = PlotAxis::new("updates a second").with_min(0.0).with_max(28.0);
    let panel = Panel::new(
        "Updates on the line or circle of the one before",
        x,
        PlotAxis::new("% of all").with_min(0.0).with_max(100.0),
    );
    let panel = [0, 2].into_iter().fold(panel, |panel, way| {
        let line =
            shares.iter().filter(|(of, ..)| *of == way).map(|(_, rate, share)| (f64::from(*rate), share * 100.0));
        panel.line(LINK_CASES[way].name, STYLES[way], line)
    });
    let caption = "The rest is where avatars turn. Ninjas decide every 100 to 200 ms, so from about 10 updates a second on most of them add nothing.";
    Figure::new("reckonable", "Share of updates that can be reckoned (G, Figure 4)", caption, vec![panel])
}

fn claims(findings: &mut Findings, shares: &[(usize, u32, f64)]) {
    for way in [0, 2] {
        let line: Vec<f64> = shares.iter().filter(|(of, ..)| *of == way).map(|(_, _, share)| share * 100.0).collect();
        let (Some(most), Some(least)) = (line.first(), line.last()) else { continue };
        // From the highest rate down; a little noise is in every game.
        let falls = line.windows(2).all(|pair| pair[1] < pair[0] + 3.0);
        findings.add_claim(
            &format!("{}: the share of reckonable updates rises with the rate", LINK_CASES[way].name),
            "rises with the rate",
            format!("{least:.0} % at 1 a second, {most:.0} % at 28"),
            falls && *most > least + 30.0,
        );
    }
}
