//! Simulates three servers and many players in virtual time, for profilers: nothing depends on the speed of the
//! computer, so instruction counts can be compared.
//!
//! `valgrind --tool=callgrind target/profiling/examples/simulated_load 300 5` lets 300 players change their buttons 16
//! times a second for 5 seconds. `cargo build --profile profiling -p coplay-world-app --examples` builds it.

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{MirrorConfig, MirrorDestination, SourceId};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Controls, MazeSettings};
use coplay_world::{Client, Server};

const SERVERS: usize = 3;
const STEP_INTERVAL: TimeDelta = TimeDelta::from_millis(10);
/// Steps of 10 ms between two commands of a player.
const COMMAND_INTERVAL_STEPS: usize = 6;
/// Number of commands of a player per shot.
const COMMANDS_PER_SHOT: usize = 50;

struct Player {
    entity: EntityId,
    client: Client,
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("the arguments are numbers"));
    let (players, seconds) = (numbers.next().unwrap_or(300), numbers.next().unwrap_or(5));
    let mut now = Instant::from_nanos(1_000_000_000);
    let settings = MazeSettings { cells_per_side: 64, seed: 7, ..MazeSettings::default() };
    let mut servers: Vec<Server> = (1..=SERVERS as u32)
        .map(|source| {
            let config = MirrorConfig { is_founder: source == 1, ..MirrorConfig::new(SourceId(source)) };
            Server::new(now, config, settings, 0).expect("the settings are valid")
        })
        .collect();
    for server in &mut servers {
        (1..=SERVERS as u32).for_each(|source| server.add_peer(now, SourceId(source)));
    }
    let player = |number: usize| Player {
        entity: EntityId { site: WorldSiteId(number as u32), index: 0 },
        client: Client::new(now, &format!("player {number}"), 1),
    };
    let mut player_list: Vec<Player> = (0..players).map(player).collect();
    // The players join after the servers have met.
    for step in 0..200 + seconds * 100 {
        now += STEP_INTERVAL;
        exchange_mirror_datagrams(now, &mut servers);
        if step >= 200 {
            player_list.iter_mut().enumerate().for_each(|(number, player)| {
                run_player(now, step + number, player, &mut servers[number % SERVERS]);
            });
        }
        for (at, server) in servers.iter_mut().enumerate() {
            server.advance(now);
            for (entity, bytes) in server.poll_players(now, |_| &[]) {
                let player = &mut player_list[entity.site.0 as usize];
                assert_eq!(player.entity.site.0 as usize % SERVERS, at);
                player.client.handle_datagram(now, &bytes);
            }
        }
    }
    print_stats(&servers);
}

fn print_stats(servers: &[Server]) {
    for server in servers {
        let (stats, world) = (server.stats(), server.world());
        println!("{} players, {} events issued, {} delivered", world.players().count(), stats.issued, stats.delivered);
    }
}

fn exchange_mirror_datagrams(now: Instant, servers: &mut [Server]) {
    let mut buf = [0; MAX_DATAGRAM];
    for from in 0..servers.len() {
        let source = servers[from].source();
        while let Some(transmit) = servers[from].poll_mirror(now, &mut buf) {
            for other in servers.iter_mut().filter(|other| other.source() != source) {
                if transmit.to == MirrorDestination::All || transmit.to == MirrorDestination::One(other.source()) {
                    other.handle_mirror(now, source, &buf[..transmit.len]);
                }
            }
        }
    }
}

fn run_player(now: Instant, step: usize, player: &mut Player, server: &mut Server) {
    if !step.is_multiple_of(COMMAND_INTERVAL_STEPS) {
        return;
    }
    let number = step / COMMAND_INTERVAL_STEPS;
    let odd = number % 2 == 1;
    player.client.advance(now);
    let controls = Controls {
        forward: odd,
        backward: !odd,
        left: odd,
        right: !odd,
        fire: number.is_multiple_of(COMMANDS_PER_SHOT),
    };
    player.client.set_controls(now, controls);
    if let Some(input) = player.client.poll_input(now) {
        server.handle_player(now, player.entity, &input);
    }
}
