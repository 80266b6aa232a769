//! A maze that is played to the end, and what the traces of its sites say.

use coplay::peer_world::{EntityId, UpdatePolicy};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::MazeSettings;
use coplay_maze::drift::{DriftSeries, Trace, measure_drift};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::LinkConfig;
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

/// What happens before this does not count: clocks get to know each other.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);

/// A maze to be played.
#[derive(Clone, Debug)]
pub(super) struct MazeMatch {
    pub(super) seed: u64,
    pub(super) sites: usize,
    pub(super) ninjas: u8,
    pub(super) sending: UpdatePolicy,
    pub(super) link: LinkConfig,
    pub(super) seconds: i64,
}

/// What came of it.
pub(super) struct MatchOutcome {
    /// Every view of every other's avatar.
    pub(super) pairs: Vec<DriftSeries>,
    /// Updates of an avatar in a second that were sent.
    pub(super) updates_per_second: f64,
    /// Bytes to one receiver in a second, all told.
    pub(super) bytes_per_second: f64,
    /// How far clocks were from what they were taken to be, at the end, at worst, in milliseconds; and the part of them that was known at all: who is not
    /// heard for long is forgotten, clock and all.
    pub(super) clock_error: (f64, f64),
}

impl MazeMatch {
    /// The paper's: five computers, one ninja each.
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
        let mut arena = PeerWorldNetwork::new(
            self.seed,
            MazeSettings { seed: self.seed, ..super::MAZE_SETTINGS },
            &plans,
            &self.link,
        );
        let mut traces = vec![Trace::default(); self.sites];
        for (place, trace) in traces.iter_mut().enumerate() {
            arena.join(place);
            trace.site = Some(arena.site_of(place));
        }
        arena.run_until(Instant::ZERO + WARM_UP, |_, _| ());
        let before = self.updates_and_bytes_sent(&arena);
        for place in 0..self.sites {
            let local = arena.local_time(place);
            arena.game_mut(place).into_iter().for_each(|game| game.start_trace(local));
        }
        arena.run_until(Instant::ZERO + WARM_UP + TimeDelta::from_secs(self.seconds), |arena, place| {
            let lines = arena.game_mut(place).map(coplay_maze::MazeSite::take_trace);
            traces[place].entries.extend(lines.into_iter().flatten());
        });
        let after = self.updates_and_bytes_sent(&arena);
        let (avatars, receivers) = ((self.sites * usize::from(self.ninjas)) as f64, self.sites as f64);
        MatchOutcome {
            pairs: measure_drift(&traces, 0),
            updates_per_second: (after.0 - before.0) as f64 / avatars / self.seconds as f64,
            bytes_per_second: (after.1 - before.1) as f64 / receivers / self.seconds as f64,
            clock_error: clock_error(&arena),
        }
    }

    /// Updates, and bytes of all copies.
    fn updates_and_bytes_sent(&self, arena: &PeerWorldNetwork) -> (u64, u64) {
        let updates = (0..self.sites).filter_map(|place| arena.game(place)).map(|game| game.stats().updates_sent);
        (updates.sum(), arena.traffic().bytes)
    }
}

fn clock_error(arena: &PeerWorldNetwork) -> (f64, f64) {
    let (mut worst, mut known, mut all): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for place in arena.active_nodes() {
        for other in arena.active_nodes().into_iter().filter(|other| *other != place) {
            let (local, truth) = (arena.local_time(place), arena.local_time(other) - arena.local_time(place));
            let stats = arena.game(place).and_then(|game| game.world().peer_stats(local, arena.site_of(other)));
            all += 1.0;
            let Some(stats) = stats else { continue };
            known += 1.0;
            let off = stats.clock_offset.map_or(f64::INFINITY, |offset| (offset - truth).as_millis_f64());
            worst = worst.max(off.abs());
        }
    }
    (worst, known / all)
}

impl MatchOutcome {
    /// How far apart views were, all of them.
    pub(super) fn drifts(&self) -> impl Iterator<Item = f64> {
        self.pairs.iter().flat_map(|pair| pair.samples.iter().map(|sample| sample.distance))
    }

    /// Mean drift, and the half width of its 90 % confidence interval, from parts of ten seconds.
    pub(super) fn mean_drift(&self) -> (f64, f64) {
        const PART_TICKS: i64 = 1_000;
        // All who see an avatar see the same turns, so they count as one.
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
