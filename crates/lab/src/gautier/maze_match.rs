//! Plays a maze match between simulated sites, all of whose avatars are ninjas, and evaluates their traces.

use coplay::peer_world::{EntityId, UpdatePolicy};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;
use coplay_maze::MazeSettings;
use coplay_maze::drift::{DriftSeries, Trace, measure_drift};
use coplay_sim::clock::NodeClock;
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

/// Time before the measurement, in which the sites synchronise their clocks.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);

/// Settings of one match.
#[derive(Clone, Debug)]
pub(super) struct MazeMatch {
    pub(super) seed: u64,
    pub(super) sites: usize,
    pub(super) ninjas: u8,
    pub(super) sending: UpdatePolicy,
    pub(super) link: LinkConfig,
    pub(super) seconds: i64,
}

/// Measurements of one match.
pub(super) struct MatchOutcome {
    /// Drift of every avatar as seen by every other site.
    pub(super) pairs: Vec<DriftSeries>,
    /// Updates sent per avatar and second.
    pub(super) updates_per_second: f64,
    /// Bytes sent to one receiver per second, all messages included.
    pub(super) bytes_per_second: f64,
    /// Largest error of the clock estimates at the end, in milliseconds (infinite if a site knows a peer but has no
    /// estimate of its clock), and the fraction of site pairs in which the first site knows the second. A site forgets
    /// a peer, and the estimate of its clock, when nothing arrives from that peer for too long.
    pub(super) clock_error: (f64, f64),
}

impl MazeMatch {
    /// Creates the paper's setup: five sites with one ninja each.
    pub(super) fn new(seed: u64, sending: UpdatePolicy, link: LinkConfig, seconds: i64) -> Self {
        Self { seed, sites: 5, ninjas: 1, sending, link, seconds }
    }

    pub(super) fn run(&self) -> MatchOutcome {
        let plan = |site: usize| PeerWorldSitePlan {
            clock: NodeClock { offset: TimeDelta::from_secs(1_000 * site as i64), skew_ppm: 20.0 * site as f64 - 40.0 },
            sending: self.sending,
            ninjas: self.ninjas,
        };
        let plans: Vec<PeerWorldSitePlan> = (0..self.sites).map(plan).collect();
        let mut network = PeerWorldNetwork::new(
            self.seed,
            MazeSettings { seed: self.seed, ..super::MAZE_SETTINGS },
            &plans,
            &self.link,
        );
        let mut traces = vec![Trace::default(); self.sites];
        for (node, trace) in traces.iter_mut().enumerate() {
            network.join(node);
            trace.site = Some(network.site_of(node));
        }
        network.run_until(Instant::ZERO + WARM_UP, |_, _| ());
        let before = self.updates_and_bytes_sent(&network);
        for node in 0..self.sites {
            let local = network.local_time(node);
            network.game_mut(node).into_iter().for_each(|game| game.start_trace(local));
        }
        network.run_until(Instant::ZERO + WARM_UP + TimeDelta::from_secs(self.seconds), |network, node| {
            let entries = network.game_mut(node).map(coplay_maze::MazeSite::take_trace);
            traces[node].entries.extend(entries.into_iter().flatten());
        });
        let after = self.updates_and_bytes_sent(&network);
        let (avatars, receivers) = ((self.sites * usize::from(self.ninjas)) as f64, self.sites as f64);
        MatchOutcome {
            pairs: measure_drift(&traces, 0),
            updates_per_second: (after.0 - before.0) as f64 / avatars / self.seconds as f64,
            bytes_per_second: (after.1 - before.1) as f64 / receivers / self.seconds as f64,
            clock_error: clock_error(&network),
        }
    }

    /// Returns the number of updates sent by all sites, and the bytes of all datagrams.
    fn updates_and_bytes_sent(&self, network: &PeerWorldNetwork) -> (u64, u64) {
        let updates = (0..self.sites).filter_map(|node| network.game(node)).map(|game| game.stats().updates_sent);
        (updates.sum(), network.traffic().bytes)
    }
}

fn clock_error(network: &PeerWorldNetwork) -> (f64, f64) {
    let (mut max_error_ms, mut known, mut all): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for node in network.active_nodes() {
        for other in network.active_nodes().into_iter().filter(|other| *other != node) {
            let (local, truth) = (network.local_time(node), network.local_time(other) - network.local_time(node));
            let stats = network.game(node).and_then(|game| game.world().peer_stats(local, network.site_of(other)));
            all += 1.0;
            let Some(stats) = stats else { continue };
            known += 1.0;
            let error_ms = stats.clock_offset.map_or(f64::INFINITY, |offset| (offset - truth).as_millis_f64());
            max_error_ms = max_error_ms.max(error_ms.abs());
        }
    }
    (max_error_ms, known / all)
}

impl MatchOutcome {
    /// Returns the drift in units of every compared view, over all avatars and all other sites.
    pub(super) fn drifts(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().flat_map(|pair| pair.samples.iter().map(|sample| sample.distance))
    }

    /// Returns the mean drift in units and the half width of its 90 % confidence interval, from the mean drift of each
    /// avatar in each period of ten seconds with at least 20 samples of it.
    pub(super) fn mean_drift(&self) -> (f64, f64) {
        const PART_TICKS: i64 = 1_000;
        // All sites see the same turns of an avatar, so their samples are not independent: the samples of an avatar in
        // the same ten seconds form one part.
        let mut parts: std::collections::BTreeMap<(EntityId, i64), (f64, f64)> = std::collections::BTreeMap::new();
        for pair in &self.pairs {
            for sample in &pair.samples {
                let part = parts.entry((pair.entity, i64::from(sample.tick) / PART_TICKS)).or_default();
                *part = (part.0 + sample.distance, part.1 + 1.0);
            }
        }
        let means: Vec<f64> =
            parts.values().filter(|(_, count)| *count >= 20.0).map(|(sum, count)| sum / count).collect();
        super::mean_with_confidence(&means)
    }
}
