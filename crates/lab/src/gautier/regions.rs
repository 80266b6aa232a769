//! Beyond the paper: the traffic of one site in a large world, in which a site sends updates only to nearby sites.

use coplay::peer_world::{EntityId, UpdatePolicy, WorldRegion};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_maze::MazeSettings;
use coplay_sim::clock::NodeClock;
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// Catalog entry of the `regions` experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "regions",
    title: "Worlds of up to 1,024 avatars",
    summary: "A site sends updates only to sites with nearby avatars. So the traffic of a site depends on its neighbourhood and not on the size of the world, and the site still sees every avatar that comes near.",
    paper: &GAUTIER,
    paper_figures: "beyond the paper, which lists groups by region as future work",
    expected_seconds: 60.0,
    run,
    real_run: None,
};

/// Numbers of sites in the compared worlds, with [`NINJAS_PER_SITE`] avatars per site.
const SITE_COUNTS: [usize; 4] = [4, 16, 64, 256];
/// Numbers of sites in the worlds of the short experiment.
const SHORT_SITE_COUNTS: [usize; 3] = [4, 16, 64];
const NINJAS_PER_SITE: u8 = 4;
/// Updates per avatar and second.
const UPDATE_RATE: u32 = 10;
/// Period in which the sites join one after the other; after it the world settles for [`SETTLING_TIME`].
const JOIN_PERIOD: TimeDelta = TimeDelta::from_secs(4);
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(2);
/// Number of ticks for which a newly near avatar need not be visible yet, since discovery takes a round trip.
const NEAR_GRACE_TICKS: u32 = 10;

/// Measurements of one world, as means over its sites.
struct RegionWorld {
    sites: usize,
    /// Datagrams sent to one site per second.
    datagrams_per_second: f64,
    /// Bytes sent to one site per second.
    bytes_per_second: f64,
    /// Mean number of other sites' avatars that are near one of the site's own and were so 0.1 s before.
    mean_near: f64,
    /// Fraction of those avatars that the site showed.
    shown_share: f64,
}

impl RegionWorld {
    fn avatars(&self) -> usize {
        self.sites * usize::from(NINJAS_PER_SITE)
    }

    /// Returns the datagrams that one site would receive per second without regions, if every other site sent each
    /// update in a datagram of its own.
    fn datagrams_without_regions(&self) -> f64 {
        ((self.avatars() - usize::from(NINJAS_PER_SITE)) * UPDATE_RATE as usize) as f64
    }

    fn run(seed: u64, sites: usize, seconds: i64) -> Self {
        // One avatar per region, on average.
        let side = (4.0 * ((sites * usize::from(NINJAS_PER_SITE)) as f64).sqrt()).round() as u8;
        let plan = PeerWorldSitePlan {
            clock: NodeClock::TRUE,
            sending: UpdatePolicy::fixed(UPDATE_RATE),
            ninjas: NINJAS_PER_SITE,
        };
        let settings = MazeSettings { seed, cells_per_side: side, ..super::MAZE_SETTINGS };
        let mut network = PeerWorldNetwork::new(seed, settings, &vec![plan; sites], &link_config());
        for node in 0..sites {
            network.run_until(Instant::ZERO + JOIN_PERIOD * node as i64 / sites as i64, |_, _| ());
            network.join(node);
        }
        let begin = Instant::ZERO + JOIN_PERIOD + SETTLING_TIME;
        network.run_until(begin, |_, _| ());
        let (before, mut counts) = (network.traffic(), NearbyCounts::default());
        network.run_until(begin + TimeDelta::from_secs(seconds), |network, node| counts.count_view(network, node));
        let after = network.traffic();
        let per_site_and_second = |count: u64| count as f64 / sites as f64 / seconds as f64;
        Self {
            sites,
            datagrams_per_second: per_site_and_second(after.sent - before.sent),
            bytes_per_second: per_site_and_second(after.bytes - before.bytes),
            mean_near: counts.near as f64 / counts.views.max(1) as f64,
            shown_share: counts.shown as f64 / counts.near.max(1) as f64,
        }
    }
}

fn link_config() -> LinkConfig {
    LinkConfig {
        delay: Delay::Constant(TimeDelta::from_millis(40)),
        jitter: Jitter::Exponential { mean: TimeDelta::from_millis(3) },
        reorder: true,
        loss: Loss::Independent(0.02),
        ..LinkConfig::default()
    }
}

/// Counts of views, and of nearby avatars that sites should show and do show.
#[derive(Default)]
struct NearbyCounts {
    views: u64,
    near: u64,
    shown: u64,
}

impl NearbyCounts {
    /// Counts the nearby avatars in about one view per second of the site `node`.
    fn count_view(&mut self, network: &PeerWorldNetwork, node: usize) {
        let Some(game) = network.game(node) else { return };
        let (tick, view) = game.view();
        if tick % 100 >= u32::from(super::MAZE_SETTINGS.bucket_ticks) {
            return;
        }
        self.views += 1;
        let before: Vec<EntityId> = nearby_avatars(network, node, tick.saturating_sub(NEAR_GRACE_TICKS));
        for entity in nearby_avatars(network, node, tick).into_iter().filter(|entity| before.contains(entity)) {
            self.near += 1;
            self.shown += u64::from(view.iter().any(|shown| shown.entity == entity));
        }
    }
}

/// Returns the other sites' avatars that were near the avatars of `node` at a tick.
fn nearby_avatars(network: &PeerWorldNetwork, node: usize, tick: u32) -> Vec<EntityId> {
    let own = avatar_regions(network, node, tick);
    let others = (0..network.nodes.len()).filter(|other| *other != node);
    let all = others.flat_map(|other| avatar_regions(network, other, tick));
    let is_near = |(_, region): &(EntityId, WorldRegion)| own.iter().any(|(_, own)| own.is_near(*region));
    all.filter(is_near).map(|(entity, _)| entity).collect()
}

/// Returns the regions of the avatars of `node` at a tick.
fn avatar_regions(network: &PeerWorldNetwork, node: usize, tick: u32) -> Vec<(EntityId, WorldRegion)> {
    use coplay::peer_world::DeadReckoning as _;
    let Some(game) = network.game(node) else { return Vec::new() };
    let at = |index: u8| {
        let avatar = game.world().own_state_at(index, tick)?;
        Some((EntityId { site: game.site(), index }, game.rules().region(avatar)))
    };
    (0..NINJAS_PER_SITE).filter_map(at).collect()
}

fn run(context: &mut ExperimentContext<'_>) -> Findings {
    let sites: &[usize] = context.full_or_short(&SITE_COUNTS, &SHORT_SITE_COUNTS);
    let (seed, seconds) = (context.seed, context.full_or_short(6, 4));
    // The largest world runs first, since it takes the longest.
    let jobs: Vec<usize> = sites.iter().rev().copied().collect();
    let mut worlds = context.run_jobs(1.0, &jobs, |sites| RegionWorld::run(seed, *sites, seconds));
    worlds.reverse();
    let mut findings = Findings::default();
    findings.add_parameter(
        "worlds",
        format!(
            "{} sites with four ninjas each, one ninja per region of 2,048 by 2,048 units on average",
            join_numbers(sites)
        ),
    );
    findings.add_parameter(
        "updates",
        format!("{UPDATE_RATE} per avatar and second, to the sites with an avatar in the same or an adjacent region"),
    );
    findings.add_parameter("links", "40 ms, 3 ms mean jitter, 2 % loss; no multicast: each datagram goes to one site");
    findings.add_parameter("time", format!("{seconds} s, after 6 s in which the sites join and the world settles"));
    findings.add_note("A site reports the regions of its avatars to another site before one of them has covered half of the distance to that site's avatars. So nearby sites receive a report at every change of region, and distant sites receive few reports. The cost of these reports grows with the width of the world, not with its area.");
    findings.tables.push(table(&worlds));
    findings.figures.push(figure(&worlds));
    claims(&mut findings, &worlds);
    findings
}

fn join_numbers(sites: &[usize]) -> String {
    sites.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

fn table(worlds: &[RegionWorld]) -> DataTable {
    let columns = [
        "sites",
        "avatars",
        "near_avatars",
        "shown_percent",
        "datagrams_per_second",
        "bytes_per_second",
        "datagrams_without_regions_per_second",
    ];
    let mut table = DataTable::new(
        "regions",
        "Traffic to one site, and nearby avatars that it shows, by size of the world",
        &columns,
    );
    for world in worlds {
        table.add_row([
            integer(world.sites as i64),
            integer(world.avatars() as i64),
            number(world.mean_near, 1),
            number(world.shown_share * 100.0, 2),
            number(world.datagrams_per_second, 1),
            number(world.bytes_per_second, 0),
            number(world.datagrams_without_regions(), 0),
        ]);
    }
    table
}

fn figure(worlds: &[RegionWorld]) -> Figure {
    let x = || PlotAxis::logarithmic("avatars in the world");
    let points = |of: fn(&RegionWorld) -> f64| worlds.iter().map(move |world| (world.avatars() as f64, of(world)));
    let cost = Panel::new("Datagrams to one site", x(), PlotAxis::logarithmic("per second"))
        .line("without regions (computed)", SeriesStyle::Paper, points(RegionWorld::datagrams_without_regions))
        .line("with regions", SeriesStyle::First, points(|world| world.datagrams_per_second));
    let counts = Panel::new("Other sites' avatars near a site's own", x(), PlotAxis::new("avatars").with_min(0.0))
        .line("present", SeriesStyle::Paper, points(|world| world.mean_near))
        .line("shown", SeriesStyle::First, points(|world| world.mean_near * world.shown_share));
    let caption = "Mean over the sites, in worlds of different size with the same density of avatars. Left: datagrams sent to one site per second. Right: other sites' avatars near a site's own that are present in the world, and those of them that the site shows.";
    Figure::new(
        "regions",
        "Traffic to one site and nearby avatars over the size of the world",
        caption,
        vec![cost, counts],
    )
    .columns(2)
}

fn claims(findings: &mut Findings, worlds: &[RegionWorld]) {
    let Some(large) = worlds.last() else { return };
    let max_per_update = worlds
        .iter()
        .map(|world| world.datagrams_per_second / (world.mean_near * f64::from(UPDATE_RATE)))
        .fold(0.0, f64::max);
    findings.add_claim(
        "in every world a site is sent less than 2.2 datagrams per update of a nearby avatar, and in the largest world less than a quarter of the datagrams without regions",
        "listed as future work",
        format!(
            "{:.0} datagrams and {:.1} kB per second in a world of {} avatars, {:.0} of them near; {:.0} datagrams per second without regions; at most {max_per_update:.1} datagrams per update of a nearby avatar in any world",
            large.datagrams_per_second,
            large.bytes_per_second / 1e3,
            large.avatars(),
            large.mean_near,
            large.datagrams_without_regions()
        ),
        max_per_update < 2.2 && large.datagrams_per_second < large.datagrams_without_regions() / 4.0,
    );
    let min_shown = worlds.iter().map(|world| world.shown_share).fold(1.0, f64::min);
    findings.add_claim(
        "a site shows more than 99 % of the nearby avatars",
        "listed as future work",
        format!("at least {:.2} % of the nearby avatars are shown", min_shown * 100.0),
        min_shown > 0.99,
    );
}
