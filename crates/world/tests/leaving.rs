//! Tests of departures: players that leave, fall silent or expire, also with dropped placements and stale snapshots; a
//! server that was suspended; and a full world that has room again once departed players expire.

use coplay::mirror::{MirrorConfig, SourceId};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, Score};
use coplay_world::{
    Client, ClientInput, EntityUpdate, MAX_ENTITIES, RETENTION_TICKS, Server, ServerMessage, ServerWorld,
    TICK_DURATION, Update, encode_ping, player_entity,
};

const SETTINGS: MazeSettings = MazeSettings { seed: 7, cells_per_side: 6, bucket_ticks: 4, playout_delay_ticks: 15 };
const ADA: [u8; 32] = [1; 32];
/// Ticks between two updates of an avatar that does not move.
const UPDATE_INTERVAL: u32 = 25;

fn at(tick: u32) -> Instant {
    Instant::ZERO + TICK_DURATION * i64::from(tick)
}

fn world_at(source: u32, tick: u32) -> ServerWorld {
    let mut world = ServerWorld::new(SourceId(source), SETTINGS, 0);
    world.advance(at(tick), tick);
    world
}

fn client_input(run: u32) -> ClientInput {
    ClientInput { run, name: "Ada".into(), motion: vec![] }
}

/// Applies updates of server 1 to the world `to`, which must accept them.
fn apply_updates(updates: &[EntityUpdate], tick: u32, to: &mut ServerWorld) {
    let rules = to.rules().clone();
    for update in updates {
        assert!(to.apply_update(at(tick), SourceId(1), &update.to_bytes(&rules)));
    }
}

fn has_left(world: &ServerWorld, entity: EntityId) -> bool {
    let placement = world.entities().get(entity).and_then(|record| record.placement());
    placement.is_some_and(|placement| placement.avatar.is_none()) && world.avatars().get(entity).is_none()
}

#[test]
fn silent_player_is_removed_everywhere_in_any_tick() {
    let ada = player_entity(&ADA);
    for phase in 0..UPDATE_INTERVAL {
        let mut world = world_at(1, 1_000);
        let (mut mirror, mut lossy) = (world_at(2, 1_000), world_at(3, 1_000));
        assert!(world.on_input(at(1_000), ada, &client_input(1)));
        for tick in 1_001..=1_000 + phase {
            world.advance(at(tick), tick);
            assert!(world.on_input(at(tick), ada, &client_input(1)));
        }
        (1_001 + phase..1_600).for_each(|tick| world.advance(at(tick), tick));
        let updates = world.take_updates();
        apply_updates(&updates, 1_600, &mut mirror);
        // Placements may be dropped, but not the last one.
        let is_placement = |update: &EntityUpdate| matches!(update.update, Update::Placement { .. });
        let last = updates.iter().rposition(is_placement).expect("a placement was published");
        let kept = |(at, update): &(usize, &EntityUpdate)| *at == last || !is_placement(update);
        let some: Vec<EntityUpdate> =
            updates.iter().enumerate().filter(kept).map(|(_, update)| update.clone()).collect();
        apply_updates(&some, 1_600, &mut lossy);
        for server in [&world, &mirror, &lossy] {
            assert!(has_left(server, ada), "phase {phase}: {:?}", server.entities().get(ada));
            assert!(server.entities() == world.entities(), "phase {phase}");
        }
    }
}

#[test]
fn leaving_player_is_removed_at_once_and_can_rejoin() {
    let ada = player_entity(&ADA);
    let now = |millis: i64| Instant::ZERO + TimeDelta::from_millis(1_000 + millis);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(0), config, SETTINGS, 0).expect("the settings are valid");
    server.advance(now(0));
    let (mut client, mut restarted) = (Client::new(now(0), "Ada", 1), Client::new(now(0), "Bob", 2));
    let in_flight = client.poll_input(now(0)).expect("an input message is due");
    server.handle_player(now(1), ada, &in_flight);
    server.advance(now(20));
    assert_eq!(server.world().players().count(), 1);
    let goodbye = client.leave_message();
    for _ in 0..3 {
        server.handle_player(now(30), ada, &goodbye);
    }
    server.handle_player(now(31), ada, &in_flight);
    assert!(
        has_left(server.world(), ada) && server.world().players().count() == 0,
        "a datagram in flight brings the player back"
    );
    server.handle_player(now(32), ada, &restarted.poll_input(now(32)).expect("an input message is due"));
    server.handle_player(now(33), ada, &goodbye);
    server.advance(now(50));
    assert!(server.world().avatars().get(ada).is_some(), "a goodbye ends another run");
    assert_eq!(server.world().entities().get(ada).map(|record| record.name()), Some("Bob"));
}

#[test]
fn suspended_server_does_not_time_out_its_players() {
    let (ada, mut world) = (player_entity(&ADA), world_at(1, 1_000));
    assert!(world.on_input(at(1_000), ada, &client_input(1)));
    (1_001..1_300).for_each(|tick| world.advance(at(tick), tick));
    // The input of another player that waited in the socket comes first.
    let eve = player_entity(&[2; 32]);
    assert!(world.on_input(at(7_000), eve, &ClientInput { run: 9, name: "Eve".into(), motion: vec![] }));
    world.on_leave(at(7_000), eve, 9);
    world.advance(at(7_000), 7_000);
    (7_001..7_150).for_each(|tick| world.advance(at(tick), tick));
    assert_eq!(world.players().count(), 1, "the suspension counts as silence of the player");
    (7_150..7_300).for_each(|tick| world.advance(at(tick), tick));
    assert!(has_left(&world, ada));
}

/// An expired player stays absent when a server that was away brings back its state.
#[test]
fn expired_player_is_not_revived_by_a_stale_snapshot() {
    let (ada, mut before) = (player_entity(&ADA), world_at(1, 1_000));
    assert!(before.on_input(at(1_000), ada, &client_input(1)));
    let (updates, known) = (before.take_updates(), before.snapshot(SourceId(1)));
    let mut world = world_at(2, 1_010);
    apply_updates(&updates, 1_010, &mut world);
    assert!(world.avatars().get(ada).is_some());
    // No server announces the departure, and the player expires all the same.
    let late = 1_200 + RETENTION_TICKS;
    world.advance(at(late), late);
    assert!(world.entities().is_empty() && world.avatars().is_empty());
    apply_updates(&updates, late, &mut world);
    assert!(world.merge_snapshot(at(late), SourceId(1), &known));
    assert!(world.avatars().is_empty(), "the stale avatar is visible");
    world.advance(at(late + 100), late + 100);
    assert!(world.entities().is_empty());
    // A player that returns overrides the server that still has its earlier state.
    assert!(world.on_input(at(late + 100), ada, &client_input(2)));
    for update in world.take_updates() {
        let bytes = update.to_bytes(before.rules());
        assert!(before.apply_update(at(1_001), SourceId(2), &bytes));
    }
    assert_eq!(
        before.entities().get(ada).and_then(|record| record.ownership()).map(|ownership| ownership.owner),
        Some(SourceId(2))
    );
    assert_eq!(before.players().count(), 0, "the player is still on its former server");
}

#[test]
fn full_world_rejects_players_until_entities_expire() {
    let now = |seconds: i64| Instant::ZERO + TimeDelta::from_secs(seconds);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(1), config, SETTINGS, 0).expect("the settings are valid");
    server.advance(now(1));
    let tick = server.world().tick().expect("the founder knows the time");
    let rules = server.world().rules().clone();
    let player = |number: u32| EntityId { site: WorldSiteId(number), index: 1 };
    let come_and_go = |server: &mut Server, at: Instant, tick: u32, score: u32| {
        for entity in (0..MAX_ENTITIES as u32).map(player) {
            let departure = Update::Placement { epoch: tick, tick, avatar: None };
            for update in [departure, Update::Score(Score { hits: score, falls: 0 })] {
                server.world_mut().apply_update(at, SourceId(9), &EntityUpdate { entity, update }.to_bytes(&rules));
            }
        }
    };
    let is_full = |server: &mut Server, at: Instant, entity: EntityId| {
        let answer = server.handle_player(at, entity, &encode_ping(at)).expect("the server answers a ping");
        let Some(ServerMessage::Pong(pong)) = ServerMessage::from_bytes(&answer) else {
            panic!("the answer is not a pong")
        };
        let input = Client::new(at, "Ada", 1).poll_input(at).expect("an input message is due");
        server.handle_player(at, entity, &input);
        assert_eq!(
            server.world().players().any(|player| player == entity),
            !pong.is_full,
            "the pong and the admission disagree"
        );
        pong.is_full
    };
    let ada = player_entity(&ADA);
    for score in [0, 1] {
        come_and_go(&mut server, now(1), tick, score);
        assert!(server.is_full() && is_full(&mut server, now(1), ada));
    }
    assert!(!is_full(&mut server, now(1), player(5)), "a known player is rejected");
    let later = now(2 + i64::from(RETENTION_TICKS) / 100);
    server.advance(later);
    assert!(!server.is_full() && !is_full(&mut server, later, ada));
}
