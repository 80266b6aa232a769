//! Replays the recorded path of an avatar at any update rate over any link, so that one trace replaces many games.

use coplay::codec::MAX_DATAGRAM;
use coplay::peer_world::{
    DeadReckoning, PeerWorld, PeerWorldConfig, PeerWorldDestination, PeerWorldTransmit, Provenance, UpdatePolicy,
    WorldSiteId,
};
use coplay::time::{Instant, TimeDelta};
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, Loss};
use coplay_maze::drift::DriftSummary;
use coplay_maze::{Avatar, MazeRules, MazeSettings, to_units};
use coplay_sim::clock::NodeClock;
use coplay_sim::peer_world::{PeerWorldNetwork, PeerWorldSitePlan};

/// Ticks before the measurement, in which the two sites synchronise their clocks.
const WARM_UP_TICKS: u32 = 400;
const TICK: TimeDelta = TimeDelta::from_millis(10);

/// Recorded states of an avatar, tick by tick.
#[derive(Clone, Debug)]
pub(super) struct AvatarPath {
    rules: MazeRules,
    states: Vec<Avatar>,
}

/// Plays a game of five ninjas and records the path of each.
pub(super) fn record_paths(seed: u64, seconds: i64, sending: UpdatePolicy, link: &LinkConfig) -> Vec<AvatarPath> {
    let plan = PeerWorldSitePlan { clock: NodeClock::TRUE, sending, ninjas: 1 };
    let mut network = PeerWorldNetwork::new(seed, MazeSettings { seed, ..super::MAZE_SETTINGS }, &vec![plan; 5], link);
    (0..5).for_each(|node| network.join(node));
    let mut paths: Vec<(u32, Vec<Avatar>)> = vec![(0, Vec::new()); 5];
    network.run_until(Instant::ZERO + TimeDelta::from_secs(seconds), |network, node| {
        let Some(game) = network.game(node) else { return };
        let (next, states) = &mut paths[node];
        for tick in (*next).max(1)..=game.view().0 {
            states.extend(game.world().own_state_at(0, tick).cloned());
            *next = tick + 1;
        }
    });
    let rules = |node| network.game(node).map(|game: &coplay_maze::MazeSite| game.rules().clone());
    let path = |(node, (_, states)): (usize, (u32, Vec<Avatar>))| Some(AvatarPath { rules: rules(node)?, states });
    paths.into_iter().enumerate().filter_map(path).collect()
}

/// Replays each path with independent random numbers and returns the mean drift over all paths, in units.
pub(super) fn mean_drift_of_all(paths: &[AvatarPath], seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
    let drifts = paths.iter().enumerate().map(|(number, path)| path.mean_drift(seed ^ number as u64, sending, link));
    drifts.sum::<f64>() / paths.len().max(1) as f64
}

impl AvatarPath {
    /// Returns the fraction of updates at `rate` per second that dead reckoning predicts from the previous update: the
    /// position with an error below 1 unit, and the same life and number of spawns.
    pub(super) fn reckonable_share(&self, rate: u32) -> f64 {
        let ticks: Vec<usize> =
            (0..).map(|n| n * 100 / rate as usize).take_while(|tick| *tick < self.states.len()).collect();
        let on_course = |pair: &&[usize]| {
            let (before, after) = (&self.states[pair[0]], &self.states[pair[1]]);
            let ahead = self.rules.extrapolate(before, (pair[1] - pair[0]) as u32);
            let (predicted_at, actual_at) = (to_units(ahead.position), to_units(after.position));
            (predicted_at.0 - actual_at.0).hypot(predicted_at.1 - actual_at.1) < 1.0
                && ahead.spawn_count == after.spawn_count
                && ahead.life == after.life
        };
        let pairs = ticks.windows(2);
        pairs.clone().filter(on_course).count() as f64 / pairs.count().max(1) as f64
    }

    /// Replays the path over a link and returns the mean drift at the receiver, in units.
    fn mean_drift(&self, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
        PathReplay::new(self, seed, sending, link).run()
    }
}

/// A sending site, a receiving site, and the datagrams in flight between them.
struct PathReplay<'a> {
    path: &'a AvatarPath,
    sender: PeerWorld<MazeRules>,
    receiver: PeerWorld<MazeRules>,
    /// Link of the updates, which may lose them.
    update_link: Link,
    /// Lossless link of all other messages.
    control_link: Link,
    in_flight: TimedEventQueue<(bool, Box<[u8]>)>,
    drifts: Vec<f64>,
}

const SENDER: WorldSiteId = WorldSiteId(1);
const RECEIVER: WorldSiteId = WorldSiteId(2);

impl<'a> PathReplay<'a> {
    fn new(path: &'a AvatarPath, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> Self {
        let world = |site: WorldSiteId| {
            let config = PeerWorldConfig { update_policy: sending, ..PeerWorldConfig::new(site, site == SENDER) };
            PeerWorld::new(Instant::ZERO, config, path.rules.clone()).expect("the paper's settings are valid")
        };
        let lossless = LinkConfig { loss: Loss::None, ..link.clone() };
        let mut replay = Self {
            path,
            sender: world(SENDER),
            receiver: world(RECEIVER),
            update_link: Link::new(link.clone(), seed, "updates"),
            control_link: Link::new(lossless, seed, "control"),
            in_flight: TimedEventQueue::new(),
            drifts: Vec::new(),
        };
        replay.sender.add_peer(Instant::ZERO, RECEIVER);
        replay.receiver.add_peer(Instant::ZERO, SENDER);
        replay
    }

    /// Returns the recorded state at a tick. The path starts after the warm-up, during which the avatar stays in its
    /// first state.
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
            let Some((at, (to_receiver, bytes))) = self.in_flight.pop() else { return };
            let (world, from) = if to_receiver { (&mut self.receiver, SENDER) } else { (&mut self.sender, RECEIVER) };
            world.handle_datagram(at, from, &bytes);
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        for to_receiver in [true, false] {
            let world = if to_receiver { &mut self.sender } else { &mut self.receiver };
            while let Some(PeerWorldTransmit { to, len, .. }) = world.poll_transmit(now, &mut buf) {
                let link = if matches!(to, PeerWorldDestination::Near(_)) {
                    &mut self.update_link
                } else {
                    &mut self.control_link
                };
                for at in link.send(now, len) {
                    self.in_flight.push(at, (to_receiver, buf[..len].into()));
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
            .find(|entity| entity.provenance != Provenance::Own)
            .map(|entity| entity.state.clone());
        let (Some(seen), Some(truth)) = (seen, self.state(tick)) else { return };
        if seen.is_alive() && truth.is_alive() && seen.spawn_count == truth.spawn_count {
            let (predicted_at, actual_at) = (to_units(seen.position), to_units(truth.position));
            self.drifts.push((predicted_at.0 - actual_at.0).hypot(predicted_at.1 - actual_at.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_are_replayed_with_independent_losses() {
        let lan = LinkConfig::lan();
        let path = record_paths(1, 20, UpdatePolicy::fixed(28), &lan).remove(0);
        let mean = |paths: &[AvatarPath], link: &LinkConfig| mean_drift_of_all(paths, 1, UpdatePolicy::fixed(5), link);
        let twice = [path.clone(), path.clone()];
        assert_eq!(mean(&twice, &lan), mean(&twice[..1], &lan), "without loss the copies are replayed alike");
        let lossy = LinkConfig { loss: Loss::Independent(0.3), ..lan };
        assert_ne!(mean(&twice, &lossy), mean(&twice[..1], &lossy));
    }
}
