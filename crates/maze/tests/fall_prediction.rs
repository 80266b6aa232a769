//! Tests of the fall prediction: at least nine of ten falls are displayed in their tick, even if the update with the
//! fall is lost, and no fall is displayed that did not happen.

use std::collections::BTreeMap;

use coplay::codec::MAX_DATAGRAM;
use coplay::peer_world::{EntityId, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Controls, Life, MazeSettings, MazeSite};

const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
const ONE_WAY_DELAY: TimeDelta = TimeDelta::from_millis(30);
const SECONDS: i64 = 120;
/// Ticks for which all of Ann's datagrams are lost after one of her avatars was hit, in the test with losses: longer
/// than the playout delay.
const LOSS_TICKS: u32 = 40;

/// Game of two sites: Ann owns the observed avatars, Ben displays them.
struct Duel {
    now: Instant,
    sites: [MazeSite; 2],
    in_flight: Vec<(Instant, usize, Vec<u8>)>,
    /// Whether Ann's datagrams are lost for [`LOSS_TICKS`] after one of her avatars fell.
    loses_falls: bool,
    /// For each of Ann's avatars and each tick, the tick in which the avatar had fallen; `None` if it was alive.
    actual_falls: BTreeMap<(EntityId, u32), Option<u32>>,
    /// For each of Ann's avatars and each tick that Ben displayed, the tick in which Ben displayed the fall; `None` if
    /// he displayed the avatar alive.
    displayed_falls: BTreeMap<(EntityId, u32), Option<u32>>,
    /// Number of times that a fall of one of Ann's avatars was predicted for the next tick.
    predicted_falls: u32,
}

fn fall_tick(life: Life) -> Option<u32> {
    match life {
        Life::Alive => None,
        Life::Dead { since } => Some(since),
    }
}

impl Duel {
    fn new(ninjas: [u8; 2], lossy: bool) -> Self {
        let settings = MazeSettings { cells_per_side: 5, ..MazeSettings::default() };
        let enter = |site, player, ninjas| {
            let update_policy = UpdatePolicy::default();
            MazeSite::new(Instant::ZERO, WorldSiteId(site), site == 1, &settings, update_policy, (player, ninjas))
                .unwrap()
        };
        let mut sites = [enter(1, Some("Ann"), ninjas[0]), enter(2, None, ninjas[1])];
        sites[0].add_peer(Instant::ZERO, WorldSiteId(2));
        sites[1].add_peer(Instant::ZERO, WorldSiteId(1));
        Self {
            now: Instant::ZERO,
            sites,
            in_flight: vec![],
            loses_falls: lossy,
            actual_falls: BTreeMap::new(),
            displayed_falls: BTreeMap::new(),
            predicted_falls: 0,
        }
    }

    fn run(mut self, mut press: impl FnMut(&MazeSite) -> Controls) -> Self {
        while self.now < Instant::ZERO + TimeDelta::from_secs(SECONDS) {
            self.now += STEP_INTERVAL;
            let due: Vec<_> = self.in_flight.extract_if(.., |(at, ..)| *at <= self.now).collect();
            for (_, to, bytes) in due {
                let from = self.sites[1 - to].site();
                self.sites[to].handle_datagram(self.now, from, &bytes);
            }
            let controls = press(&self.sites[0]);
            self.sites[0].set_controls(controls);
            let viewed = [0, 1].map(|at| self.sites[at].advance(self.now));
            self.record_actual();
            if viewed[1] {
                self.record_displayed();
            }
            (0..2).for_each(|from| self.send(from));
        }
        self
    }

    fn record_actual(&mut self) {
        let ann = &self.sites[0];
        let Some(tick) = ann.tick() else { return };
        for index in 0..ann.avatars() {
            let (entity, avatar) = (EntityId { site: ann.site(), index: index as u8 }, ann.avatar(index).unwrap());
            let before = self.actual_falls.insert((entity, tick), fall_tick(avatar.life));
            self.predicted_falls +=
                u32::from(before.is_none() && avatar.predicted_fall.is_some_and(|fall| fall.ticks_left == 1));
        }
    }

    fn record_displayed(&mut self) {
        let (tick, shown) = self.sites[1].view();
        for shown in shown.iter().filter(|shown| shown.entity.site == WorldSiteId(1)) {
            self.displayed_falls.insert((shown.entity, tick), fall_tick(shown.state.life));
        }
    }

    fn send(&mut self, from: usize) {
        let game = &mut self.sites[from];
        let tick = game.tick().unwrap_or(0);
        let has_fallen = |index: usize| {
            game.avatar(index).and_then(|avatar| fall_tick(avatar.life)).is_some_and(|since| tick < since + LOSS_TICKS)
        };
        let is_lost = self.loses_falls && from == 0 && (0..game.avatars()).any(has_fallen);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = game.poll_transmit(self.now, &mut buf) {
            if !is_lost {
                self.in_flight.push((self.now + ONE_WAY_DELAY, 1 - from, buf[..packet.len].to_vec()));
            }
        }
    }
}

#[test]
fn predicted_fall_is_displayed_on_time_despite_packet_loss() {
    let duel = Duel::new([0, 4], true).run(|_| Controls::default());
    let (mut falls, mut shown) = (0, 0);
    let fell = duel.actual_falls.iter().filter(|((_, tick), since)| **since == Some(*tick));
    for ((entity, fall), since) in fell {
        let next = duel.displayed_falls.range((*entity, *fall)..).next();
        falls += 1;
        shown += u32::from(next.is_some_and(|(_, seen)| seen == since));
    }
    assert!(falls > 10, "only {falls} falls");
    assert!(shown * 10 >= falls * 9, "only {shown} of {falls} falls were displayed in time");
}

#[test]
fn no_fall_is_displayed_that_did_not_happen() {
    // Ann turns and steps aside whenever a fall is less than 8 ticks away.
    let dodge = |ann: &MazeSite| {
        let will_fall =
            ann.avatar(0).is_some_and(|avatar| avatar.predicted_fall.is_some_and(|fall| fall.ticks_left < 8));
        Controls { forward: will_fall, left: will_fall, ..Controls::default() }
    };
    let duel = Duel::new([3, 4], false).run(dodge);
    let differs =
        |(at, seen): &(&(EntityId, u32), &Option<u32>)| duel.actual_falls.get(*at).is_some_and(|truth| truth != *seen);
    let wrong: Vec<_> = duel.displayed_falls.iter().filter(differs).collect();
    assert!(
        duel.displayed_falls.len() > 10_000 && duel.predicted_falls > 20,
        "too few samples: {} views, {} predicted falls",
        duel.displayed_falls.len(),
        duel.predicted_falls
    );
    assert!(
        wrong.is_empty(),
        "{} of {} views are wrong: {:?}",
        wrong.len(),
        duel.displayed_falls.len(),
        &wrong[..wrong.len().min(5)]
    );
}
