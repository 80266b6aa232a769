//! The way of an avatar, tick by tick, told again at any rate over any link: one trace in place of many games.

use coplay::peer_world::{
    DeadReckoning, PeerWorld, PeerWorldConfig, PeerWorldDestination, PeerWorldTransmit, Provenance, UpdatePolicy,
    WorldSiteId,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::drift::DriftSummary;
use coplay_maze::{Avatar, MazeSettings, Rules, to_units};
use coplay_sim::clock::NodeClock;
use coplay_sim::event_queue::EventQueue;
use coplay_sim::link::{Link, LinkConfig, Loss};
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

/// The first ticks are for getting to know each other.
const WARM_UP_TICKS: u32 = 400;
const TICK: TimeDelta = TimeDelta::from_millis(10);

/// Where an avatar was in every tick.
#[derive(Clone, Debug)]
pub(super) struct AvatarPath {
    rules: Rules,
    states: Vec<Avatar>,
}

/// Lets five ninjas play, and writes down where each of them was.
pub(super) fn record_paths(seed: u64, seconds: i64, sending: UpdatePolicy, link: &LinkConfig) -> Vec<AvatarPath> {
    let plan = PeerWorldSitePlan { clock: NodeClock::TRUE, sending, ninjas: 1 };
    let mut arena = PeerWorldNetwork::new(seed, MazeSettings { seed, ..super::MAZE_SETTINGS }, &vec![plan; 5], link);
    (0..5).for_each(|place| arena.join(place));
    let mut paths: Vec<(u32, Vec<Avatar>)> = vec![(0, Vec::new()); 5];
    arena.run_until(Instant::ZERO + TimeDelta::from_secs(seconds), |arena, place| {
        let Some(game) = arena.game(place) else { return };
        let (next, states) = &mut paths[place];
        for tick in (*next).max(1)..=game.view().0 {
            states.extend(game.world().own_state_at(0, tick).cloned());
            *next = tick + 1;
        }
    });
    let rules = |place| arena.game(place).map(|game: &coplay_maze::MazeSite| game.rules().clone());
    let path = |(place, (_, states)): (usize, (u32, Vec<Avatar>))| Some(AvatarPath { rules: rules(place)?, states });
    paths.into_iter().enumerate().filter_map(path).collect()
}

/// Tells each of them to somebody, with luck of its own, and says how far apart the views were, on average over all.
pub(super) fn mean_drift_of_all(paths: &[AvatarPath], seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
    let told = paths.iter().enumerate().map(|(number, path)| path.mean_drift(seed ^ number as u64, sending, link));
    told.sum::<f64>() / paths.len().max(1) as f64
}

impl AvatarPath {
    /// The part of its updates at a rate that can be reckoned from the one before: that are on the same line or circle.
    pub(super) fn reckonable_share(&self, rate: u32) -> f64 {
        let ticks: Vec<usize> =
            (0..).map(|n| n * 100 / rate as usize).take_while(|tick| *tick < self.states.len()).collect();
        let on_course = |pair: &&[usize]| {
            let (before, after) = (&self.states[pair[0]], &self.states[pair[1]]);
            let ahead = self.rules.extrapolate(before, (pair[1] - pair[0]) as u32);
            let (here, there) = (to_units(ahead.position), to_units(after.position));
            (here.0 - there.0).hypot(here.1 - there.1) < 1.0
                && ahead.spawn_count == after.spawn_count
                && ahead.life == after.life
        };
        let pairs = ticks.windows(2);
        pairs.clone().filter(on_course).count() as f64 / pairs.count().max(1) as f64
    }

    /// Tells it to somebody over a link on which updates get lost, and says how far apart the views were, on average.
    fn mean_drift(&self, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
        PathReplay::new(self, seed, sending, link).run()
    }
}

/// One who walks, one who looks, and what is under way between them.
struct PathReplay<'a> {
    path: &'a AvatarPath,
    sender: PeerWorld<Rules>,
    receiver: PeerWorld<Rules>,
    /// Updates, and all else, of which nothing is lost.
    update_link: Link,
    control_link: Link,
    in_flight: EventQueue<(bool, Box<[u8]>)>,
    drifts: Vec<f64>,
}

const SENDER: WorldSiteId = WorldSiteId(1);
const RECEIVER: WorldSiteId = WorldSiteId(2);

impl<'a> PathReplay<'a> {
    fn new(path: &'a AvatarPath, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> Self {
        let world = |site: WorldSiteId| {
            let config = PeerWorldConfig { update_policy: sending, ..PeerWorldConfig::new(site, site == SENDER) };
            PeerWorld::new(Instant::ZERO, config, path.rules.clone()).expect("it is the paper's")
        };
        let sure = LinkConfig { loss: Loss::None, ..link.clone() };
        let mut replay = Self {
            path,
            sender: world(SENDER),
            receiver: world(RECEIVER),
            update_link: Link::new(link.clone(), seed, "updates"),
            control_link: Link::new(sure, seed, "control"),
            in_flight: EventQueue::new(),
            drifts: Vec::new(),
        };
        replay.sender.add_peer(Instant::ZERO, RECEIVER);
        replay.receiver.add_peer(Instant::ZERO, SENDER);
        replay
    }

    /// Where it is at a tick: it waits for the other first.
    fn state(&self, tick: u32) -> Option<&Avatar> {
        self.path.states.get(tick.saturating_sub(WARM_UP_TICKS) as usize)
    }

    fn run(mut self) -> f64 {
        for tick in 0..self.path.states.len() as u32 + WARM_UP_TICKS {
            let now = Instant::ZERO + TICK * i64::from(tick) + TimeDelta::from_micros(1);
            self.deliver(now);
            self.sender.advance(now);
            if let Some(state) = self.state(tick).cloned() {
                self.sender.publish_entity(tick, 0, state);
            }
            self.receiver.advance(now);
            self.transmit(now);
            self.measure_drift(now);
        }
        DriftSummary::from_distances(self.drifts.into_iter()).mean
    }

    fn deliver(&mut self, now: Instant) {
        while self.in_flight.next_time().is_some_and(|at| at <= now) {
            let Some((at, (to_looker, bytes))) = self.in_flight.pop() else { return };
            let (world, from) = if to_looker { (&mut self.receiver, SENDER) } else { (&mut self.sender, RECEIVER) };
            world.handle_datagram(at, from, &bytes);
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        for to_looker in [true, false] {
            let world = if to_looker { &mut self.sender } else { &mut self.receiver };
            while let Some(PeerWorldTransmit { to, len, .. }) = world.poll_transmit(now, &mut buf) {
                let link = if matches!(to, PeerWorldDestination::Near(_)) {
                    &mut self.update_link
                } else {
                    &mut self.control_link
                };
                for at in link.send(now, len) {
                    self.in_flight.push(at, (to_looker, buf[..len].into()));
                }
            }
        }
    }

    fn measure_drift(&mut self, now: Instant) {
        let Some(tick) = self.receiver.poll_view(now).filter(|tick| *tick > WARM_UP_TICKS) else { return };
        let seen = self
            .receiver
            .visible_at(tick)
            .iter()
            .find(|shown| shown.provenance != Provenance::Own)
            .map(|shown| shown.state.clone());
        let (Some(seen), Some(truth)) = (seen, self.state(tick)) else { return };
        if seen.is_alive() && truth.is_alive() && seen.spawn_count == truth.spawn_count {
            let (here, there) = (to_units(seen.position), to_units(truth.position));
            self.drifts.push((here.0 - there.0).hypot(here.1 - there.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_are_replayed_with_independent_losses() {
        let lan = LinkConfig::lan();
        let walk = record_paths(1, 20, UpdatePolicy::fixed(28), &lan).remove(0);
        let mean = |walks: &[AvatarPath], link: &LinkConfig| mean_drift_of_all(walks, 1, UpdatePolicy::fixed(5), link);
        let twice = [walk.clone(), walk.clone()];
        assert_eq!(mean(&twice, &lan), mean(&twice[..1], &lan), "nothing is lost");
        let lossy = LinkConfig { loss: Loss::Independent(0.3), ..lan };
        assert_ne!(mean(&twice, &lossy), mean(&twice[..1], &lossy));
    }
}
