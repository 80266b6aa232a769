//! Falls are seen coming: shown in their tick also where the update that tells of them is lost, and never where nobody fell.

use std::collections::BTreeMap;

use coplay::peer_world::{EntityId, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{Controls, Game, Life, Terms};

const STEP: TimeDelta = TimeDelta::from_millis(1);
/// From one site to the other.
const WAY: TimeDelta = TimeDelta::from_millis(30);
const SECONDS: i64 = 120;
/// What a site that was hit says is lost for so many ticks: longer than anything is waited for.
const LOST: u32 = 40;

/// Ann, whose avatars are looked at, and Ben, who looks.
struct Duel {
    now: Instant,
    games: [Game; 2],
    wire: Vec<(Instant, usize, Vec<u8>)>,
    /// Whether Ann cannot be heard right after one of hers fell.
    lossy: bool,
    /// Since when each of Ann's avatars lay there, tick by tick; and how Ben saw it.
    truth: BTreeMap<(EntityId, u32), Option<u32>>,
    seen: BTreeMap<(EntityId, u32), Option<u32>>,
    /// Falls that were seen coming.
    foreseen: u32,
}

fn fallen(life: Life) -> Option<u32> {
    match life {
        Life::Alive => None,
        Life::Dead { since } => Some(since),
    }
}

impl Duel {
    fn new(ninjas: [u8; 2], lossy: bool) -> Self {
        let terms = Terms { side: 5, ..Terms::default() };
        let enter = |site, person, ninjas| {
            let sending = UpdatePolicy::default();
            Game::new(Instant::ZERO, WorldSiteId(site), site == 1, &terms, sending, (person, ninjas)).unwrap()
        };
        let mut games = [enter(1, Some("Ann"), ninjas[0]), enter(2, None, ninjas[1])];
        games[0].add_peer(Instant::ZERO, WorldSiteId(2));
        games[1].add_peer(Instant::ZERO, WorldSiteId(1));
        let (truth, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { now: Instant::ZERO, games, wire: vec![], lossy, truth, seen, foreseen: 0 }
    }

    fn play(mut self, mut press: impl FnMut(&Game) -> Controls) -> Self {
        while self.now < Instant::ZERO + TimeDelta::from_secs(SECONDS) {
            self.now += STEP;
            let due: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= self.now).collect();
            for (_, to, bytes) in due {
                let from = self.games[1 - to].site();
                self.games[to].handle_datagram(self.now, from, &bytes);
            }
            let controls = press(&self.games[0]);
            self.games[0].press(controls);
            let viewed = [0, 1].map(|at| self.games[at].advance(self.now));
            self.note_truth();
            if viewed[1] {
                self.note_seen();
            }
            (0..2).for_each(|from| self.send(from));
        }
        self
    }

    fn note_truth(&mut self) {
        let ann = &self.games[0];
        let Some(tick) = ann.tick() else { return };
        for index in 0..ann.avatars() {
            let (entity, avatar) = (EntityId { site: ann.site(), index: index as u8 }, ann.avatar(index).unwrap());
            let before = self.truth.insert((entity, tick), fallen(avatar.life));
            self.foreseen += u32::from(before.is_none() && avatar.doom.is_some_and(|doom| doom.left == 1));
        }
    }

    fn note_seen(&mut self) {
        let (tick, shown) = self.games[1].view();
        for shown in shown.iter().filter(|shown| shown.entity.site == WorldSiteId(1)) {
            self.seen.insert((shown.entity, tick), fallen(shown.state.life));
        }
    }

    fn send(&mut self, from: usize) {
        let game = &mut self.games[from];
        let tick = game.tick().unwrap_or(0);
        let has_fallen = |index: usize| {
            game.avatar(index).and_then(|avatar| fallen(avatar.life)).is_some_and(|since| tick < since + LOST)
        };
        let is_lost = self.lossy && from == 0 && (0..game.avatars()).any(has_fallen);
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = game.poll_transmit(self.now, &mut buf) {
            if !is_lost {
                self.wire.push((self.now + WAY, 1 - from, buf[..packet.len].to_vec()));
            }
        }
    }
}

#[test]
fn a_fall_is_shown_in_its_tick_though_what_tells_of_it_is_lost() {
    let duel = Duel::new([0, 4], true).play(|_| Controls::default());
    let (mut falls, mut shown) = (0, 0);
    let fell = duel.truth.iter().filter(|((_, tick), since)| **since == Some(*tick));
    for ((entity, fall), since) in fell {
        let next = duel.seen.range((*entity, *fall)..).next();
        falls += 1;
        shown += u32::from(next.is_some_and(|(_, seen)| seen == since));
    }
    assert!(falls > 10, "{falls} falls");
    assert!(shown * 10 >= falls * 9, "{shown} of {falls} falls were shown in time");
}

#[test]
fn nobody_is_shown_to_fall_who_does_not() {
    // Ann turns round and steps aside whenever it is about to be too late.
    let dodge = |ann: &Game| {
        let is_doomed = ann.avatar(0).is_some_and(|avatar| avatar.doom.is_some_and(|doom| doom.left < 8));
        Controls { forward: is_doomed, left: is_doomed, ..Controls::default() }
    };
    let duel = Duel::new([3, 4], false).play(dodge);
    let differs =
        |(at, seen): &(&(EntityId, u32), &Option<u32>)| duel.truth.get(*at).is_some_and(|truth| truth != *seen);
    let wrong: Vec<_> = duel.seen.iter().filter(differs).collect();
    assert!(duel.seen.len() > 10_000 && duel.foreseen > 20, "{} views, {} falls", duel.seen.len(), duel.foreseen);
    assert!(
        wrong.is_empty(),
        "{} of {} views are wrong: {:?}",
        wrong.len(),
        duel.seen.len(),
        &wrong[..wrong.len().min(5)]
    );
}
