//! Measures in virtual time how far the players' views of a world are from the server's.
//!
//! Twelve players with a fixed script of button changes and four ninjas play on one server, each player over a link
//! with a round-trip time of 160 ms plus jitter. In every displayed frame of every player, the example compares the
//! displayed position of each living avatar with the server's at the same instant. It prints the mean and the 95th
//! percentile of the distance in units, and of D, the integral of the distance over 2 s (relaxed consistency of Li, Li
//! and Lau), in units times seconds.
//!
//! `cargo run --release -p coplay-world --example discrepancy [SECONDS] [RTT_MS] [JITTER_MS]`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{MirrorConfig, SourceId};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Jitter, Link, LinkConfig};
use coplay_links::random::Random;
use coplay_maze::{Controls, MazeSettings, Position, UNIT};
use coplay_world::{Client, Server, ninja_entity};

const SEED: u64 = 7;
const PLAYERS: usize = 12;
const NINJAS: u8 = 4;
/// Resolution of the simulation.
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(1);
/// Interval of the players' displayed frames, in steps.
const FRAME_STEPS: usize = 16;
/// Number of steps before the measurement begins: all players have joined and know the server's clock.
const WARM_UP_STEPS: usize = 5_000;
/// Number of frames of a window of D, 2 s.
const WINDOW_FRAMES: usize = 125;

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<i64>().expect("the arguments are numbers"));
    let mut next = |default| numbers.next().unwrap_or(default);
    let (seconds, rtt_ms, jitter_ms) = (next(120), next(160), next(20));
    let link = LinkConfig {
        jitter: Jitter::Uniform(TimeDelta::from_millis(jitter_ms)),
        reorder: true,
        ..LinkConfig::constant_rtt(TimeDelta::from_millis(rtt_ms))
    };
    let mut world = SimulatedWorld::new(&link);
    (0..WARM_UP_STEPS + seconds as usize * 1_000).for_each(|step| world.step(step));
    let mut report =
        format!("{PLAYERS} players, {NINJAS} ninjas, {seconds} s, RTT {rtt_ms} ms plus 0 to {jitter_ms} ms each way\n");
    world.write_report(&mut report, seconds as f64).expect("a string has room");
    std::io::stdout().write_all(report.as_bytes())
}

/// One server and its players, with a link in each direction.
struct SimulatedWorld {
    now: Instant,
    server: Server,
    players: Vec<Player>,
    to_server: TimedEventQueue<(usize, Vec<u8>)>,
    to_players: TimedEventQueue<(usize, Vec<u8>)>,
    sent_bytes: usize,
}

struct Player {
    client: Client,
    up: Link,
    down: Link,
    script: Random,
    controls: Controls,
    next_change: usize,
    samples: BTreeMap<EntityId, ObjectSamples>,
    /// D as the client reports it, once per window, of all displayed avatars.
    reported: Vec<f64>,
}

/// Distances of one displayed avatar.
#[derive(Default)]
struct ObjectSamples {
    distances: Vec<f64>,
    /// D of each window in which the avatar was compared in every frame.
    discrepancies: Vec<f64>,
    /// Distances in the present window.
    window: Vec<f64>,
}

fn entity(number: usize) -> EntityId {
    EntityId { site: WorldSiteId(1_000 + number as u32), index: 0 }
}

impl Player {
    fn new(number: usize, link: &LinkConfig) -> Self {
        Self {
            client: Client::new(Instant::ZERO, &format!("player {number}"), 1),
            up: Link::new(link.clone(), SEED, &format!("up {number}")),
            down: Link::new(link.clone(), SEED, &format!("down {number}")),
            script: Random::stream(SEED, &format!("script {number}")),
            controls: Controls::default(),
            next_change: 0,
            samples: BTreeMap::new(),
            reported: Vec::new(),
        }
    }

    /// Changes the buttons at the times of the script, which does not depend on what the player sees.
    fn follow_script(&mut self, now: Instant, step: usize) {
        if step < self.next_change {
            return;
        }
        self.next_change = step + 100 + self.script.below(800) as usize;
        let mut chance = |probability| self.script.chance(probability);
        let (forward, left, right) = (chance(0.75), chance(0.3), chance(0.3));
        let (backward, fire) = (!forward && chance(0.4), chance(0.1));
        self.controls = Controls { forward, backward, left, right, fire };
        self.client.set_controls(now, self.controls);
    }

    /// Compares the displayed positions with the server's.
    fn sample(&mut self, server: &Server, is_window_end: bool) {
        let own = self.client.own_entity().zip(self.client.avatar());
        for (entity, shown) in own.into_iter().chain(self.client.others()) {
            let samples = self.samples.entry(entity).or_default();
            let server_avatar = server.world().avatars().get(entity);
            let reference = server_avatar.filter(|avatar| avatar.is_alive() && avatar.spawn_count == shown.spawn_count);
            if let Some(reference) = reference.filter(|_| shown.is_alive()) {
                let distance = exact_distance(shown.position, reference.position);
                samples.distances.push(distance);
                samples.window.push(distance);
            }
        }
        if is_window_end {
            self.samples.values_mut().for_each(ObjectSamples::end_window);
            self.reported.extend(self.client.consistencies().map(|(_, consistency)| consistency.discrepancy));
        }
    }
}

/// Returns the distance in units, with fractions.
fn exact_distance(one: Position, other: Position) -> f64 {
    (one.distance_squared(other) as f64).sqrt() / f64::from(UNIT)
}

impl ObjectSamples {
    fn end_window(&mut self) {
        let window = std::mem::take(&mut self.window);
        if window.len() == WINDOW_FRAMES {
            let frame = (STEP_INTERVAL * FRAME_STEPS as i64).as_secs_f64();
            self.discrepancies.push(window.iter().sum::<f64>() * frame);
        }
    }
}

impl SimulatedWorld {
    fn new(link: &LinkConfig) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let settings = MazeSettings { cells_per_side: 6, seed: SEED, ..MazeSettings::default() };
        let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
        Self {
            now,
            server: Server::new(now, config, settings, NINJAS).expect("the settings are valid"),
            players: (0..PLAYERS).map(|number| Player::new(number, link)).collect(),
            to_server: TimedEventQueue::new(),
            to_players: TimedEventQueue::new(),
            sent_bytes: 0,
        }
    }

    fn step(&mut self, step: usize) {
        self.now += STEP_INTERVAL;
        let now = self.now;
        while self.to_server.next_time().is_some_and(|at| at <= now) {
            let (_, (number, bytes)) = self.to_server.pop().expect("the queue is not empty");
            self.server.handle_player(now, entity(number), &bytes);
        }
        self.server.advance(now);
        let mut buf = [0; MAX_DATAGRAM];
        while self.server.poll_mirror(now, &mut buf).is_some() {}
        for (entity, bytes) in self.server.poll_players(now, |_| &[]) {
            let number = (entity.site.0 - 1_000) as usize;
            self.sent_bytes += if step >= WARM_UP_STEPS { bytes.len() } else { 0 };
            for at in self.players[number].down.send(now, bytes.len()) {
                self.to_players.push(at, (number, bytes.clone()));
            }
        }
        while self.to_players.next_time().is_some_and(|at| at <= now) {
            let (_, (number, bytes)) = self.to_players.pop().expect("the queue is not empty");
            self.players[number].client.handle_datagram(local_time(now, number), &bytes);
        }
        (0..PLAYERS).for_each(|number| self.step_player(step, number));
    }

    fn step_player(&mut self, step: usize, number: usize) {
        let (local, player) = (local_time(self.now, number), &mut self.players[number]);
        player.follow_script(local, step);
        if step % FRAME_STEPS == number {
            player.client.advance(local);
            if step >= WARM_UP_STEPS {
                let frame = (step - WARM_UP_STEPS) / FRAME_STEPS;
                player.sample(&self.server, frame % WINDOW_FRAMES == WINDOW_FRAMES - 1);
            }
        }
        if let Some(bytes) = player.client.poll_input(local) {
            for at in player.up.send(self.now, bytes.len()) {
                self.to_server.push(at, (number, bytes.clone()));
            }
        }
    }

    fn write_report(&self, out: &mut String, seconds: f64) -> std::fmt::Result {
        let is_ninja = |id: EntityId| (0..NINJAS).any(|number| ninja_entity(number) == id);
        writeln!(out, "{:<14} {:>22}   {:>22}", "", "distance, units", "D, unit s over 2 s")?;
        writeln!(out, "{:<14} {:>10} {:>11}   {:>10} {:>11}", "avatars", "mean", "p95", "mean", "p95")?;
        self.write_row(out, "all", |_, _| true)?;
        self.write_row(out, "own", |number, id| id == entity(number))?;
        self.write_row(out, "other players", |number, id| id != entity(number) && !is_ninja(id))?;
        self.write_row(out, "ninjas", |_, id| is_ninja(id))?;
        writeln!(out, "per object, as all players see it:")?;
        for id in (0..PLAYERS).map(entity).chain((0..NINJAS).map(ninja_entity)) {
            self.write_row(out, &format!("  {}.{}", id.site.0, id.index), |_, other| other == id)?;
        }
        let mut reported: Vec<f64> = self.players.iter().flat_map(|player| player.reported.iter().copied()).collect();
        let (mean, p95) = mean_and_p95(&mut reported);
        writeln!(out, "D as the clients report it: mean {mean:.2}, p95 {p95:.2}")?;
        writeln!(out, "bytes per player and second: {:.0}", self.sent_bytes as f64 / PLAYERS as f64 / seconds)
    }

    /// Writes a row about the avatars that `is_listed` selects, given the number of the player that displays them.
    fn write_row(&self, out: &mut String, name: &str, is_listed: impl Fn(usize, EntityId) -> bool) -> std::fmt::Result {
        let (mut distances, mut discrepancies) = (Vec::new(), Vec::new());
        for (number, player) in self.players.iter().enumerate() {
            for (_, samples) in player.samples.iter().filter(|(id, _)| is_listed(number, **id)) {
                distances.extend(&samples.distances);
                discrepancies.extend(&samples.discrepancies);
            }
        }
        let (distance, d) = (mean_and_p95(&mut distances), mean_and_p95(&mut discrepancies));
        writeln!(out, "{name:<14} {:>10.2} {:>11.2}   {:>10.2} {:>11.2}", distance.0, distance.1, d.0, d.1)
    }
}

/// Returns the time on a player's clock, which differs from the server's.
fn local_time(now: Instant, number: usize) -> Instant {
    now + TimeDelta::from_secs(100 + number as i64)
}

fn mean_and_p95(values: &mut [f64]) -> (f64, f64) {
    if values.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    values.sort_by(f64::total_cmp);
    (values.iter().sum::<f64>() / values.len() as f64, values[(values.len() - 1) * 95 / 100])
}
