//! The way of an avatar, tick by tick, told again at any rate over any link: one trace in place of many games.

use coplay::peer_world::{
    DeadReckoning, PeerWorld, PeerWorldConfig, PeerWorldDestination, PeerWorldTransmit, Provenance, UpdatePolicy,
    WorldSiteId,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::drift::Summary;
use coplay_maze::{Avatar, Rules, Terms, units};
use coplay_sim::arena::{Arena, Plan};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Link, LinkConfig, Loss};
use coplay_sim::queue::Queue;

/// The first ticks are for getting to know each other.
const WARM_UP: u32 = 400;
const TICK: TimeDelta = TimeDelta::from_millis(10);

/// Where an avatar was in every tick.
#[derive(Clone, Debug)]
pub(super) struct Path {
    rules: Rules,
    states: Vec<Avatar>,
}

/// Lets five ninjas play, and writes down where each of them was.
pub(super) fn record(seed: u64, seconds: i64, sending: UpdatePolicy, link: &LinkConfig) -> Vec<Path> {
    let plan = Plan { clock: NodeClock::TRUE, sending, ninjas: 1 };
    let mut arena = Arena::new(seed, Terms { seed, ..super::TERMS }, &vec![plan; 5], link);
    (0..5).for_each(|place| arena.enter(place));
    let mut paths: Vec<(u32, Vec<Avatar>)> = vec![(0, Vec::new()); 5];
    arena.run(Instant::ZERO + TimeDelta::from_secs(seconds), |arena, place| {
        let Some(game) = arena.game(place) else { return };
        let (next, states) = &mut paths[place];
        for tick in (*next).max(1)..=game.view().0 {
            states.extend(game.world().own_state_at(0, tick).cloned());
            *next = tick + 1;
        }
    });
    let rules = |place| arena.game(place).map(|game: &coplay_maze::Game| game.rules().clone());
    let path = |(place, (_, states)): (usize, (u32, Vec<Avatar>))| Some(Path { rules: rules(place)?, states });
    paths.into_iter().enumerate().filter_map(path).collect()
}

/// Tells each of them to somebody, with luck of its own, and says how far apart the views were, on average over all.
pub(super) fn replay_all(paths: &[Path], seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
    let told = paths.iter().enumerate().map(|(number, path)| path.replay(seed ^ number as u64, sending, link));
    told.sum::<f64>() / paths.len().max(1) as f64
}

impl Path {
    /// The part of its updates at a rate that can be reckoned from the one before: that are on the same line or circle.
    pub(super) fn reckonable(&self, rate: u32) -> f64 {
        let ticks: Vec<usize> =
            (0..).map(|n| n * 100 / rate as usize).take_while(|tick| *tick < self.states.len()).collect();
        let on_course = |pair: &&[usize]| {
            let (before, after) = (&self.states[pair[0]], &self.states[pair[1]]);
            let ahead = self.rules.extrapolate(before, (pair[1] - pair[0]) as u32);
            let (here, there) = (units(ahead.position), units(after.position));
            (here.0 - there.0).hypot(here.1 - there.1) < 1.0 && ahead.lives == after.lives && ahead.life == after.life
        };
        let pairs = ticks.windows(2);
        pairs.clone().filter(on_course).count() as f64 / pairs.count().max(1) as f64
    }

    /// Tells it to somebody over a link on which updates get lost, and says how far apart the views were, on average.
    fn replay(&self, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> f64 {
        Replay::new(self, seed, sending, link).run()
    }
}

/// One who walks, one who looks, and what is under way between them.
struct Replay<'a> {
    path: &'a Path,
    teller: PeerWorld<Rules>,
    looker: PeerWorld<Rules>,
    /// Updates, and all else, of which nothing is lost.
    updates: Link,
    control: Link,
    under_way: Queue<(bool, Box<[u8]>)>,
    units: Vec<f64>,
}

const TELLER: WorldSiteId = WorldSiteId(1);
const LOOKER: WorldSiteId = WorldSiteId(2);

impl<'a> Replay<'a> {
    fn new(path: &'a Path, seed: u64, sending: UpdatePolicy, link: &LinkConfig) -> Self {
        let world = |site: WorldSiteId| {
            let config = PeerWorldConfig { update_policy: sending, ..PeerWorldConfig::new(site, site == TELLER) };
            PeerWorld::new(Instant::ZERO, config, path.rules.clone()).expect("it is the paper's")
        };
        let sure = LinkConfig { loss: Loss::None, ..link.clone() };
        let mut replay = Self {
            path,
            teller: world(TELLER),
            looker: world(LOOKER),
            updates: Link::new(link.clone(), seed, "updates"),
            control: Link::new(sure, seed, "control"),
            under_way: Queue::new(),
            units: Vec::new(),
        };
        replay.teller.add_peer(Instant::ZERO, LOOKER);
        replay.looker.add_peer(Instant::ZERO, TELLER);
        replay
    }

    /// Where it is at a tick: it waits for the other first.
    fn state(&self, tick: u32) -> Option<&Avatar> {
        self.path.states.get(tick.saturating_sub(WARM_UP) as usize)
    }

    fn run(mut self) -> f64 {
        for tick in 0..self.path.states.len() as u32 + WARM_UP {
            let now = Instant::ZERO + TICK * i64::from(tick) + TimeDelta::from_micros(1);
            self.deliver(now);
            self.teller.advance(now);
            if let Some(state) = self.state(tick).cloned() {
                self.teller.publish_entity(tick, 0, state);
            }
            self.looker.advance(now);
            self.transmit(now);
            self.look(now);
        }
        Summary::of(self.units.into_iter()).mean
    }

    fn deliver(&mut self, now: Instant) {
        while self.under_way.next_time().is_some_and(|at| at <= now) {
            let Some((at, (to_looker, bytes))) = self.under_way.pop() else { return };
            let (world, from) = if to_looker { (&mut self.looker, TELLER) } else { (&mut self.teller, LOOKER) };
            world.handle_datagram(at, from, &bytes);
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut buf = [0; MAX_DATAGRAM];
        for to_looker in [true, false] {
            let world = if to_looker { &mut self.teller } else { &mut self.looker };
            while let Some(PeerWorldTransmit { to, len, .. }) = world.poll_transmit(now, &mut buf) {
                let link =
                    if matches!(to, PeerWorldDestination::Near(_)) { &mut self.updates } else { &mut self.control };
                for at in link.send(now, len) {
                    self.under_way.push(at, (to_looker, buf[..len].into()));
                }
            }
        }
    }

    fn look(&mut self, now: Instant) {
        let Some(tick) = self.looker.poll_view(now).filter(|tick| *tick > WARM_UP) else { return };
        let seen = self
            .looker
            .visible_at(tick)
            .iter()
            .find(|shown| shown.provenance != Provenance::Own)
            .map(|shown| shown.state.clone());
        let (Some(seen), Some(truth)) = (seen, self.state(tick)) else { return };
        if seen.is_alive() && truth.is_alive() && seen.lives == truth.lives {
            let (here, there) = (units(seen.position), units(truth.position));
            self.units.push((here.0 - there.0).hypot(here.1 - there.1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_that_are_the_same_lose_different_updates() {
        let lan = LinkConfig::lan();
        let walk = record(1, 20, UpdatePolicy::fixed(28), &lan).remove(0);
        let mean = |walks: &[Path], link: &LinkConfig| replay_all(walks, 1, UpdatePolicy::fixed(5), link);
        let twice = [walk.clone(), walk.clone()];
        assert_eq!(mean(&twice, &lan), mean(&twice[..1], &lan), "nothing is lost");
        let lossy = LinkConfig { loss: Loss::Independent(0.3), ..lan };
        assert_ne!(mean(&twice, &lossy), mean(&twice[..1], &lossy));
    }
}
