//! Who leaves is gone everywhere and for good, whatever is dropped on the way and however late the rest comes; and who does not leave stays.

use coplay::mirror::{MirrorConfig, SourceId};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, Score};
use coplay_world::{
    Client, ClientInput, EntityUpdate, MAX_ENTITIES, RETENTION_TICKS, Server, ServerMessage, TICK_DURATION, Update,
    WorldState, encode_ping, player_entity,
};

const SETTINGS: MazeSettings = MazeSettings { seed: 7, cells_per_side: 6, bucket_ticks: 4, playout_delay_ticks: 15 };
const ADA: [u8; 32] = [1; 32];
/// As many ticks as there are between two words of somebody who does not move.
const UPDATE_INTERVAL: u32 = 25;

fn at(tick: u32) -> Instant {
    Instant::ZERO + TICK_DURATION * i64::from(tick)
}

fn world_at(source: u32, tick: u32) -> WorldState {
    let mut realm = WorldState::new(SourceId(source), SETTINGS, 0);
    realm.advance(at(tick), tick);
    realm
}

fn client_input(tick: u32, run: u32) -> ClientInput {
    ClientInput { stamp: at(tick), run, name: "Ada".into(), changes: vec![] }
}

/// Others hear of what was done, as much of it as is asked for.
fn apply_updates(deeds: &[EntityUpdate], tick: u32, to: &mut WorldState) {
    let rules = to.rules().clone();
    for deed in deeds {
        assert!(to.apply_update(at(tick), SourceId(1), &deed.to_bytes(&rules)));
    }
}

fn has_left(realm: &WorldState, entity: EntityId) -> bool {
    let stand = realm.entities().get(entity).and_then(|being| being.placement());
    stand.is_some_and(|stand| stand.avatar.is_none()) && realm.avatars().get(entity).is_none()
}

#[test]
fn silent_player_is_removed_everywhere_in_any_tick() {
    let ada = player_entity(&ADA);
    for phase in 0..UPDATE_INTERVAL {
        let mut realm = world_at(1, 1_000);
        let (mut mirror, mut lossy) = (self::world_at(2, 1_000), self::world_at(3, 1_000));
        assert!(realm.on_input(at(1_000), ada, &client_input(1_000, 1)));
        for tick in 1_001..=1_000 + phase {
            realm.advance(at(tick), tick);
            assert!(realm.on_input(at(tick), ada, &client_input(tick, 1)));
        }
        (1_001 + phase..1_600).for_each(|tick| realm.advance(at(tick), tick));
        let deeds = realm.take_updates();
        apply_updates(&deeds, 1_600, &mut mirror);
        // Where an object stands may be dropped, as long as what comes last is not.
        let last = deeds.iter().rposition(|deed| matches!(deed.update, Update::Placement { .. })).expect("it was told");
        let kept =
            |(at, deed): &(usize, &EntityUpdate)| *at == last || !matches!(deed.update, Update::Placement { .. });
        let some: Vec<EntityUpdate> = deeds.iter().enumerate().filter(kept).map(|(_, deed)| deed.clone()).collect();
        apply_updates(&some, 1_600, &mut lossy);
        for server in [&realm, &mirror, &lossy] {
            assert!(has_left(server, ada), "phase {phase}: {:?}", server.entities().get(ada));
            assert!(server.entities() == realm.entities(), "phase {phase}");
        }
    }
}

#[test]
fn leaving_player_is_removed_at_once_and_can_rejoin() {
    let ada = player_entity(&ADA);
    let now = |millis: i64| Instant::ZERO + TimeDelta::from_millis(1_000 + millis);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(0), config, SETTINGS, 0).expect("a server can be like that");
    server.advance(now(0));
    let (mut client, mut again) = (Client::new(now(0), "Ada", 1), Client::new(now(0), "Bob", 2));
    let late = client.poll_input(now(0)).expect("it is time");
    server.handle_player(now(1), ada, &late);
    server.advance(now(20));
    assert_eq!(server.world().players().count(), 1);
    let goodbye = client.leave_message();
    for _ in 0..3 {
        server.handle_player(now(30), ada, &goodbye);
    }
    server.handle_player(now(31), ada, &late);
    assert!(
        has_left(server.world(), ada) && server.world().players().count() == 0,
        "what was under way does not count"
    );
    server.handle_player(now(32), ada, &again.poll_input(now(32)).expect("it is time"));
    server.handle_player(now(33), ada, &goodbye);
    server.advance(now(50));
    assert!(server.world().avatars().get(ada).is_some(), "a goodbye is that of one run");
    assert_eq!(server.world().entities().get(ada).map(|being| being.name()), Some("Bob"));
}

#[test]
fn suspended_server_does_not_time_out_its_players() {
    let (ada, mut realm) = (player_entity(&ADA), world_at(1, 1_000));
    assert!(realm.on_input(at(1_000), ada, &client_input(1_000, 1)));
    (1_001..1_300).for_each(|tick| realm.advance(at(tick), tick));
    realm.advance(at(7_000), 7_000);
    (7_001..7_150).for_each(|tick| realm.advance(at(tick), tick));
    assert_eq!(realm.players().count(), 1, "it was silent for less than five seconds of those that anybody listened");
    (7_150..7_300).for_each(|tick| realm.advance(at(tick), tick));
    assert!(has_left(&realm, ada));
}

/// A server that was away for long brings what it knew, which all others forgot.
#[test]
fn expired_player_is_not_revived_by_a_stale_snapshot() {
    let (ada, mut before) = (player_entity(&ADA), world_at(1, 1_000));
    assert!(before.on_input(at(1_000), ada, &client_input(1_000, 1)));
    let (stood, known) = (before.take_updates(), before.snapshot(SourceId(1)));
    let mut realm = world_at(2, 1_010);
    apply_updates(&stood, 1_010, &mut realm);
    assert!(realm.avatars().get(ada).is_some());
    // Nobody is there to say that it left, and it is forgotten all the same.
    let late = 1_200 + RETENTION_TICKS;
    realm.advance(at(late), late);
    assert!(realm.entities().is_empty() && realm.avatars().is_empty());
    apply_updates(&stood, late, &mut realm);
    assert!(realm.merge_snapshot(at(late), SourceId(1), &known));
    assert!(realm.avatars().is_empty(), "nobody sees it");
    realm.advance(at(late + 100), late + 100);
    assert!(realm.entities().is_empty());
    // Who comes back is believed by who remembers that it was elsewhere.
    assert!(realm.on_input(at(late + 100), ada, &client_input(late + 100, 2)));
    for deed in realm.take_updates() {
        let bytes = deed.to_bytes(before.rules());
        assert!(before.apply_update(at(1_001), SourceId(2), &bytes));
    }
    assert_eq!(
        before.entities().get(ada).and_then(|being| being.ownership()).map(|term| term.owner),
        Some(SourceId(2))
    );
    assert_eq!(before.players().count(), 0, "it is not here any more");
}

#[test]
fn full_world_rejects_players_until_entities_expire() {
    let now = |seconds: i64| Instant::ZERO + TimeDelta::from_secs(seconds);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(1), config, SETTINGS, 0).expect("a server can be like that");
    server.advance(now(1));
    let tick = server.world().tick().expect("it founded the world");
    let rules = server.world().rules().clone();
    let somebody = |number: u32| EntityId { site: WorldSiteId(number), index: 1 };
    let come_and_go = |server: &mut Server, at: Instant, tick: u32, score: u32| {
        for entity in (0..MAX_ENTITIES as u32).map(somebody) {
            let gone = Update::Placement { epoch: tick, tick, avatar: None };
            for fact in [gone, Update::Score(Score { hits: score, falls: 0 })] {
                server.world_mut().apply_update(
                    at,
                    SourceId(9),
                    &EntityUpdate { entity, update: fact }.to_bytes(&rules),
                );
            }
        }
    };
    let is_full = |server: &mut Server, at: Instant, entity: EntityId| {
        let answer = server.handle_player(at, entity, &encode_ping(at)).expect("a pong");
        let Some(ServerMessage::Pong(pong)) = ServerMessage::from_bytes(&answer, None) else { panic!("a pong") };
        let wish = Client::new(at, "Ada", 1).poll_input(at).expect("it is time");
        server.handle_player(at, entity, &wish);
        assert_eq!(
            server.world().players().any(|player| player == entity),
            !pong.is_full,
            "who is told so is not let in"
        );
        pong.is_full
    };
    let ada = player_entity(&ADA);
    for score in [0, 1] {
        come_and_go(&mut server, now(1), tick, score);
        assert!(server.is_full() && is_full(&mut server, now(1), ada));
    }
    assert!(!is_full(&mut server, now(1), somebody(5)), "who is known has its place");
    let later = now(2 + i64::from(RETENTION_TICKS) / 100);
    server.advance(later);
    assert!(!server.is_full() && !is_full(&mut server, later, ada));
}
