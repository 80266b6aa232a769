//! Who leaves is gone everywhere and for good, whatever is dropped on the way and however late the rest comes; and who does not leave stays.

use coplay::mirror::{MirrorConfig, SourceId};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Score, Terms};
use coplay_world::{Client, Deed, Fact, KEPT, MAX_BEINGS, Realm, Server, TICK, Wish, Word, entity_of, ping};

const TERMS: Terms = Terms { seed: 7, side: 6, bucket: 4, delay: 15 };
const ADA: [u8; 32] = [1; 32];
/// As many ticks as there are between two words of somebody who does not move.
const TELL_EVERY: u32 = 25;

fn at(tick: u32) -> Instant {
    Instant::ZERO + TICK * i64::from(tick)
}

fn realm(source: u32, tick: u32) -> Realm {
    let mut realm = Realm::new(SourceId(source), TERMS, 0);
    realm.advance(at(tick), tick);
    realm
}

fn wish(tick: u32, run: u32) -> Wish {
    Wish { stamp: at(tick), run, name: "Ada".into(), presses: vec![] }
}

/// Others hear of what was done, as much of it as is asked for.
fn tell(deeds: &[Deed], tick: u32, to: &mut Realm) {
    let rules = to.rules().clone();
    for deed in deeds {
        assert!(to.learn(at(tick), SourceId(1), &deed.to_bytes(&rules)));
    }
}

fn is_gone(realm: &Realm, entity: EntityId) -> bool {
    let stand = realm.register().get(entity).and_then(|being| being.stand());
    stand.is_some_and(|stand| stand.avatar.is_none()) && realm.field().get(entity).is_none()
}

#[test]
fn who_falls_silent_leaves_no_ghost_in_whatever_tick() {
    let ada = entity_of(&ADA);
    for phase in 0..TELL_EVERY {
        let mut realm = realm(1, 1_000);
        let (mut mirror, mut lossy) = (self::realm(2, 1_000), self::realm(3, 1_000));
        assert!(realm.hear(at(1_000), ada, &wish(1_000, 1)));
        for tick in 1_001..=1_000 + phase {
            realm.advance(at(tick), tick);
            assert!(realm.hear(at(tick), ada, &wish(tick, 1)));
        }
        (1_001 + phase..1_600).for_each(|tick| realm.advance(at(tick), tick));
        let deeds = realm.take_deeds();
        tell(&deeds, 1_600, &mut mirror);
        // Where an object stands may be dropped, as long as what comes last is not.
        let last = deeds.iter().rposition(|deed| matches!(deed.fact, Fact::Stands { .. })).expect("it was told");
        let kept = |(at, deed): &(usize, &Deed)| *at == last || !matches!(deed.fact, Fact::Stands { .. });
        let some: Vec<Deed> = deeds.iter().enumerate().filter(kept).map(|(_, deed)| deed.clone()).collect();
        tell(&some, 1_600, &mut lossy);
        for server in [&realm, &mirror, &lossy] {
            assert!(is_gone(server, ada), "phase {phase}: {:?}", server.register().get(ada));
            assert!(server.register() == realm.register(), "phase {phase}");
        }
    }
}

#[test]
fn who_says_goodbye_is_gone_at_once_and_welcome_at_once() {
    let ada = entity_of(&ADA);
    let now = |millis: i64| Instant::ZERO + TimeDelta::from_millis(1_000 + millis);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(0), config, TERMS, 0).expect("a server can be like that");
    server.advance(now(0));
    let (mut client, mut again) = (Client::new(now(0), "Ada", 1), Client::new(now(0), "Bob", 2));
    let late = client.poll_wish(now(0)).expect("it is time");
    server.handle_player(now(1), ada, &late);
    server.advance(now(20));
    assert_eq!(server.realm().players().count(), 1);
    let goodbye = client.goodbye();
    for _ in 0..3 {
        server.handle_player(now(30), ada, &goodbye);
    }
    server.handle_player(now(31), ada, &late);
    assert!(is_gone(server.realm(), ada) && server.realm().players().count() == 0, "what was under way does not count");
    server.handle_player(now(32), ada, &again.poll_wish(now(32)).expect("it is time"));
    server.handle_player(now(33), ada, &goodbye);
    server.advance(now(50));
    assert!(server.realm().field().get(ada).is_some(), "a goodbye is that of one run");
    assert_eq!(server.realm().register().get(ada).map(|being| being.name()), Some("Bob"));
}

#[test]
fn a_server_that_was_asleep_does_not_blame_its_players() {
    let (ada, mut realm) = (entity_of(&ADA), realm(1, 1_000));
    assert!(realm.hear(at(1_000), ada, &wish(1_000, 1)));
    (1_001..1_300).for_each(|tick| realm.advance(at(tick), tick));
    realm.advance(at(7_000), 7_000);
    (7_001..7_150).for_each(|tick| realm.advance(at(tick), tick));
    assert_eq!(realm.players().count(), 1, "it was silent for less than five seconds of those that anybody listened");
    (7_150..7_300).for_each(|tick| realm.advance(at(tick), tick));
    assert!(is_gone(&realm, ada));
}

/// A server that was away for long brings what it knew, which all others forgot.
#[test]
fn who_is_forgotten_is_not_brought_back() {
    let (ada, mut before) = (entity_of(&ADA), realm(1, 1_000));
    assert!(before.hear(at(1_000), ada, &wish(1_000, 1)));
    let (stood, known) = (before.take_deeds(), before.snapshot(SourceId(1)));
    let mut realm = realm(2, 1_010);
    tell(&stood, 1_010, &mut realm);
    assert!(realm.field().get(ada).is_some());
    // Nobody is there to say that it left, and it is forgotten all the same.
    let late = 1_200 + KEPT;
    realm.advance(at(late), late);
    assert!(realm.register().is_empty() && realm.field().is_empty());
    tell(&stood, late, &mut realm);
    assert!(realm.learn_all(at(late), SourceId(1), &known));
    assert!(realm.field().is_empty(), "nobody sees it");
    realm.advance(at(late + 100), late + 100);
    assert!(realm.register().is_empty());
    // Who comes back is believed by who remembers that it was elsewhere.
    assert!(realm.hear(at(late + 100), ada, &wish(late + 100, 2)));
    for deed in realm.take_deeds() {
        let bytes = deed.to_bytes(before.rules());
        assert!(before.learn(at(1_001), SourceId(2), &bytes));
    }
    assert_eq!(before.register().get(ada).and_then(|being| being.term()).map(|term| term.owner), Some(SourceId(2)));
    assert_eq!(before.players().count(), 0, "it is not here any more");
}

#[test]
fn a_world_that_is_full_says_so_and_has_room_again() {
    let now = |seconds: i64| Instant::ZERO + TimeDelta::from_secs(seconds);
    let config = MirrorConfig { is_founder: true, ..MirrorConfig::new(SourceId(1)) };
    let mut server = Server::new(now(1), config, TERMS, 0).expect("a server can be like that");
    server.advance(now(1));
    let tick = server.realm().tick().expect("it founded the world");
    let rules = server.realm().rules().clone();
    let somebody = |number: u32| EntityId { site: WorldSiteId(number), index: 1 };
    let come_and_go = |server: &mut Server, at: Instant, tick: u32, score: u32| {
        for entity in (0..MAX_BEINGS as u32).map(somebody) {
            let gone = Fact::Stands { epoch: tick, tick, avatar: None };
            for fact in [gone, Fact::Counted(Score { hits: score, falls: 0 })] {
                server.realm_mut().learn(at, SourceId(9), &Deed { entity, fact }.to_bytes(&rules));
            }
        }
    };
    let is_full = |server: &mut Server, at: Instant, entity: EntityId| {
        let answer = server.handle_player(at, entity, &ping(at)).expect("a pong");
        let Some(Word::Pong(pong)) = Word::from_bytes(&answer, None) else { panic!("a pong") };
        let wish = Client::new(at, "Ada", 1).poll_wish(at).expect("it is time");
        server.handle_player(at, entity, &wish);
        assert_eq!(server.realm().players().any(|player| player == entity), !pong.full, "who is told so is not let in");
        pong.full
    };
    let ada = entity_of(&ADA);
    for score in [0, 1] {
        come_and_go(&mut server, now(1), tick, score);
        assert!(server.is_full() && is_full(&mut server, now(1), ada));
    }
    assert!(!is_full(&mut server, now(1), somebody(5)), "who is known has its place");
    let later = now(2 + i64::from(KEPT) / 100);
    server.advance(later);
    assert!(!server.is_full() && !is_full(&mut server, later, ada));
}
