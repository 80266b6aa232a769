//! Beyond the paper: what a site pays for in a large world.

use coplay::peer_world::{EntityId, UpdatePolicy, WorldRegion};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Delay, Jitter, LinkConfig, Loss};
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

use crate::bench::ExperimentContext;
use crate::catalog::GAUTIER;
use crate::experiment::Experiment;
use crate::findings::Findings;
use crate::plot::{Figure, Panel, PlotAxis, SeriesStyle};
use crate::table::{DataTable, integer, number};

/// What is known of it.
pub static EXPERIMENT: Experiment = Experiment {
    name: "regions",
    title: "A world of a thousand",
    summary: "Updates go to those who are near. So a site pays for its neighbourhood, however many others there are beyond it, and still sees everybody who comes near.",
    paper: &GAUTIER,
    paper_figures: "beyond the paper: it names groups by region as a next step",
    expected_seconds: 60.0,
    run,
    real_run: None,
};

/// Sites of the worlds that are compared, each with [`NINJAS_PER_SITE`] avatars.
const SITE_COUNTS: [usize; 4] = [4, 16, 64, 256];
/// The same, for tests.
const SHORT_SITE_COUNTS: [usize; 3] = [4, 16, 64];
const NINJAS_PER_SITE: u8 = 4;
/// Updates of an avatar in a second.
const UPDATE_RATE: u32 = 10;
/// Sites come one after the other, and then all is left to settle.
const JOIN_PERIOD: TimeDelta = TimeDelta::from_secs(4);
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(2);
/// Who came near less than so many ticks ago need not be seen yet: that takes a round trip.
const NEAR_GRACE_TICKS: u32 = 10;

/// A world, and what it was like for one of its sites.
struct RegionWorld {
    sites: usize,
    /// Datagrams and bytes that got to it in a second.
    datagrams_per_second: f64,
    bytes_per_second: f64,
    /// Avatars that were near one of its own, for a tenth of a second or more.
    mean_near: f64,
    /// The part of them that it showed.
    shown_share: f64,
}

impl RegionWorld {
    fn avatars(&self) -> usize {
        self.sites * usize::from(NINJAS_PER_SITE)
    }

    /// Datagrams if everybody told everybody, one update in each.
    fn datagrams_without_regions(&self) -> f64 {
        ((self.avatars() - usize::from(NINJAS_PER_SITE)) * UPDATE_RATE as usize) as f64
    }

    fn run(seed: u64, sites: usize, seconds: i64) -> Self {
        // One avatar for each region, on average.
        let side = (4.0 * ((sites * usize::from(NINJAS_PER_SITE)) as f64).sqrt()).round() as u8;
        let plan = PeerWorldSitePlan {
            clock: NodeClock::TRUE,
            sending: UpdatePolicy::fixed(UPDATE_RATE),
            ninjas: NINJAS_PER_SITE,
        };
        let terms = MazeSettings { seed, cells_per_side: side, ..super::MAZE_SETTINGS };
        let mut arena = PeerWorldNetwork::new(seed, terms, &vec![plan; sites], &link_config());
        for place in 0..sites {
            arena.run_until(Instant::ZERO + JOIN_PERIOD * place as i64 / sites as i64, |_, _| ());
            arena.join(place);
        }
        let begin = Instant::ZERO + JOIN_PERIOD + SETTLING_TIME;
        arena.run_until(begin, |_, _| ());
        let (before, mut seen) = (arena.traffic(), NearbyCounts::default());
        arena.run_until(begin + TimeDelta::from_secs(seconds), |arena, place| seen.count_view(arena, place));
        let after = arena.traffic();
        let each = |count: u64| count as f64 / sites as f64 / seconds as f64;
        Self {
            sites,
            datagrams_per_second: each(after.sent - before.sent),
            bytes_per_second: each(after.bytes - before.bytes),
            mean_near: seen.near as f64 / seen.views.max(1) as f64,
            shown_share: seen.shown as f64 / seen.near.max(1) as f64,
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

/// What sites show, beside what they should.
#[derive(Default)]
struct NearbyCounts {
    views: u64,
    near: u64,
    shown: u64,
}

impl NearbyCounts {
    /// Looks at one view of each site in a second.
    fn count_view(&mut self, arena: &PeerWorldNetwork, place: usize) {
        let Some(game) = arena.game(place) else { return };
        let (tick, view) = game.view();
        if tick % 100 >= u32::from(super::MAZE_SETTINGS.bucket_ticks) {
            return;
        }
        self.views += 1;
        let before: Vec<EntityId> = nearby_avatars(arena, place, tick.saturating_sub(NEAR_GRACE_TICKS));
        for entity in nearby_avatars(arena, place, tick).into_iter().filter(|entity| before.contains(entity)) {
            self.near += 1;
            self.shown += u64::from(view.iter().any(|shown| shown.entity == entity));
        }
    }
}

/// Whose avatars really were near those of a place.
fn nearby_avatars(arena: &PeerWorldNetwork, place: usize, tick: u32) -> Vec<EntityId> {
    let own = avatar_regions(arena, place, tick);
    let others = (0..arena.places()).filter(|other| *other != place);
    let all = others.flat_map(|other| avatar_regions(arena, other, tick));
    let is_near = |(_, region): &(EntityId, WorldRegion)| own.iter().any(|(_, own)| own.is_near(*region));
    all.filter(is_near).map(|(entity, _)| entity).collect()
}

/// Where the avatars of a place really were.
fn avatar_regions(arena: &PeerWorldNetwork, place: usize, tick: u32) -> Vec<(EntityId, WorldRegion)> {
    use coplay::peer_world::DeadReckoning as _;
    let Some(game) = arena.game(place) else { return Vec::new() };
    let at = |index: u8| {
        let avatar = game.world().own_state_at(index, tick)?;
        Some((EntityId { site: game.site(), index }, game.rules().region(avatar)))
    };
    (0..NINJAS_PER_SITE).filter_map(at).collect()
}

fn run(bench: &mut ExperimentContext<'_>) -> Findings {
    let sites: &[usize] = bench.full_or_short(&SITE_COUNTS, &SHORT_SITE_COUNTS);
    let (seed, seconds) = (bench.seed, bench.full_or_short(6, 4));
    // The largest first: it takes the longest.
    let jobs: Vec<usize> = sites.iter().rev().copied().collect();
    let mut worlds = bench.run_jobs(1.0, &jobs, |sites| RegionWorld::run(seed, *sites, seconds));
    worlds.reverse();
    let mut findings = Findings::default();
    findings.add_parameter(
        "worlds",
        format!("{} sites, four ninjas each, one for each region of 2,048 by 2,048 units", join_numbers(sites)),
    );
    findings.add_parameter(
        "updates",
        format!("{UPDATE_RATE} a second of each avatar, to those who have one in the same region or beside it"),
    );
    findings.add_parameter("links", "40 ms, 3 ms mean jitter, 2 % loss; no multicast: each datagram goes to one site");
    findings.add_parameter("time", format!("{seconds} s, after 6 s in which sites come one after the other"));
    findings.add_note("Sites tell each other where they are before they have come half of the way between them: who is near hears of every step into another region, who is far away seldom. What a site pays for that grows with the width of the world, not with its area.");
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
        "near",
        "shown_percent",
        "datagrams_per_second",
        "bytes_per_second",
        "without_regions_per_second",
    ];
    let mut table = DataTable::new("regions", "What one site pays for, and what it sees", &columns);
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
    let cost = Panel::new("Datagrams to a site", x(), PlotAxis::logarithmic("a second"))
        .line("everybody tells everybody", SeriesStyle::Paper, points(RegionWorld::datagrams_without_regions))
        .line("by regions", SeriesStyle::First, points(|world| world.datagrams_per_second));
    let seen = Panel::new("Avatars near a site's own", x(), PlotAxis::new("").with_min(0.0))
        .line("there", SeriesStyle::Paper, points(|world| world.mean_near))
        .line("shown", SeriesStyle::First, points(|world| world.mean_near * world.shown_share));
    let caption = "What gets to one site in a second, and whom it sees, in worlds of any size with as many avatars in the same space.";
    Figure::new("regions", "A site pays for its neighbourhood", caption, vec![cost, seen]).columns(2)
}

fn claims(findings: &mut Findings, worlds: &[RegionWorld]) {
    let Some(large) = worlds.last() else { return };
    let most = worlds
        .iter()
        .map(|world| world.datagrams_per_second / (world.mean_near * f64::from(UPDATE_RATE)))
        .fold(0.0, f64::max);
    findings.add_claim(
        "a site pays for its neighbourhood, not for the world",
        "named as a next step",
        format!(
            "{:.0} datagrams and {:.1} kB a second among {} avatars, {:.0} of them near; {:.0} if everybody told everybody; in no world more than {most:.1} for each update from nearby",
            large.datagrams_per_second,
            large.bytes_per_second / 1e3,
            large.avatars(),
            large.mean_near,
            large.datagrams_without_regions()
        ),
        most < 2.2 && large.datagrams_per_second < large.datagrams_without_regions() / 4.0,
    );
    let least = worlds.iter().map(|world| world.shown_share).fold(1.0, f64::min);
    findings.add_claim(
        "and sees everybody who comes near",
        "named as a next step",
        format!("{:.2} % of those who are near are shown, at the least", least * 100.0),
        least > 0.99,
    );
}
