//! A player and its server, with a way between them: the avatar obeys at once, both come into step, nothing is lost for good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coplay::mirror::SourceId;
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{CELL, Controls, FINE, Position, Score, Terms};
use coplay_world::{Client, Page, Pong, Realm, TOLERANCE, Voyage, WINDOW, Wish, entity_of};

const KEY: [u8; 32] = [7; 32];
const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// One player on one server.
struct Pair {
    now: Instant,
    delay: TimeDelta,
    /// Every so manieth datagram is lost, each way; and all while the way is cut.
    lose: usize,
    cut: bool,
    sent: usize,
    client: Client,
    realm: Realm,
    up: VecDeque<(Instant, Vec<u8>)>,
    down: VecDeque<(Instant, Vec<u8>)>,
}

impl Pair {
    fn new(delay_ms: i64, lose: usize) -> Self {
        Self::among(0, delay_ms, lose)
    }

    /// With so many ninjas of the server's around.
    fn among(ninjas: u8, delay_ms: i64, lose: usize) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            delay: TimeDelta::from_millis(delay_ms),
            lose,
            cut: false,
            sent: 0,
            client: Client::new(now, "Ada", 1),
            realm: Realm::new(SourceId(1), Terms { side: 8, ..Terms::default() }, ninjas),
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.sent += 1;
        self.cut || self.lose > 0 && self.sent.is_multiple_of(self.lose)
    }

    /// The server's clock shows something else.
    fn there(&self) -> Instant {
        self.now + TimeDelta::from_secs(1_000)
    }

    fn step(&mut self) {
        let now = self.now + MILLI;
        self.client.advance(now);
        if let Some(bytes) = self.client.poll_wish(now)
            && !self.is_lost()
        {
            self.up.push_back((now + self.delay, bytes));
        }
        self.step_alone();
    }

    /// The player says nothing.
    fn step_alone(&mut self) {
        self.now += MILLI;
        let (now, there, entity) = (self.now, self.there(), entity_of(&KEY));
        self.realm.advance(there, (now.as_nanos() / 10_000_000) as u32);
        self.realm.look_after(&BTreeSet::from([SourceId(1)]));
        while self.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.up.pop_front().unwrap();
            assert!(self.realm.hear(there, entity, &Wish::from_bytes(&bytes).unwrap()));
        }
        for (_, bytes) in self.realm.talk(there, |_| &[]) {
            if !self.is_lost() {
                self.down.push_back((now + self.delay, bytes));
            }
        }
        while self.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.down.pop_front().unwrap();
            self.client.handle_datagram(now, &bytes);
        }
    }

    fn run(&mut self, millis: i64) {
        (0..millis).for_each(|_| self.step());
    }

    /// How far apart the player's own view of its avatar and the server's are, in units.
    fn apart(&self) -> u32 {
        let (ours, theirs) = (self.client.avatar().unwrap(), self.realm.field().get(entity_of(&KEY)).unwrap());
        ours.position.distance(theirs.position)
    }

    fn press(&mut self, controls: Controls) {
        self.client.press(self.now, controls);
    }
}

const FORWARD: Controls = Controls { forward: true, back: false, left: false, right: false, fire: false };
const LEFT: Controls = Controls { left: true, ..FORWARD };
const STAND: Controls = Controls { forward: false, ..FORWARD };

#[test]
fn an_avatar_obeys_at_once_and_comes_into_step() {
    let mut pair = Pair::new(80, 0);
    pair.run(2_000);
    assert_eq!(pair.apart(), 0, "both stand");
    pair.press(FORWARD);
    let before = pair.client.avatar().unwrap().position;
    pair.run(60);
    assert!(pair.client.avatar().unwrap().position.distance(before) >= 16, "it obeys at once");
    let mut worst = 0;
    for _ in 0..450 {
        pair.step();
        worst = worst.max(pair.apart());
    }
    assert!(worst <= 16 * 8 / 2 + 16, "{worst} units: about half of a round trip of 16 ticks");
    assert!(pair.client.ahead().abs() <= TimeDelta::from_millis(10), "{:?} ahead", pair.client.ahead());
    for turn in 0..6 {
        pair.press(if turn % 2 == 0 { LEFT } else { FORWARD });
        pair.run(300);
    }
    pair.press(STAND);
    pair.run(1_500);
    assert!(pair.apart() <= 4, "the same way was walked on both sides, but they are {} units apart", pair.apart());
}

#[test]
fn what_is_lost_is_said_again() {
    let mut pair = Pair::new(50, 3);
    pair.run(3_000);
    for turn in 0..20 {
        pair.press([FORWARD, LEFT, STAND][turn % 3]);
        pair.run(130);
    }
    pair.press(STAND);
    pair.run(3_000);
    assert!(pair.apart() <= 4, "{} units apart", pair.apart());
}

/// Obeys, and both agree on where that leads.
fn assert_obeys(pair: &mut Pair) {
    let place = |pair: &Pair| pair.realm.field().get(entity_of(&KEY)).expect("it is in").clone();
    pair.press(STAND);
    pair.run(500);
    let before = place(pair);
    pair.press(LEFT);
    pair.run(700);
    pair.press(STAND);
    pair.run(1_500);
    assert_ne!(place(pair).heading, before.heading, "the server's avatar turned");
    assert!(pair.apart() <= 4, "{} units apart", pair.apart());
}

#[test]
fn who_quits_and_comes_back_is_obeyed() {
    for pause in [0, 30, 400, 3_000] {
        let mut pair = Pair::new(60, 0);
        pair.run(1_000);
        for turn in 0..20 {
            pair.press([FORWARD, LEFT, STAND][turn % 3]);
            pair.run(100);
        }
        let before = pair.realm.field().get(entity_of(&KEY)).expect("it is in").lives;
        // What was under way in both directions still comes.
        pair.client = Client::new(pair.now + MILLI * pause, "Bob", 2);
        (0..pause).for_each(|_| pair.step_alone());
        pair.run(1_000);
        assert_obeys(&mut pair);
        assert_eq!(pair.realm.field().get(entity_of(&KEY)).map(|avatar| avatar.lives), Some(before), "it is the same");
        assert_eq!(pair.realm.register().get(entity_of(&KEY)).map(|being| being.name()), Some("Bob"));
    }
}

/// The only server thought that it had left, and gave it another avatar when it was heard again.
#[test]
fn who_was_cut_off_for_long_and_its_server_agree_again() {
    for presses in [false, true] {
        let mut pair = Pair::new(60, 0);
        pair.run(1_000);
        pair.press(LEFT);
        pair.run(1_000);
        let before = pair.realm.field().get(entity_of(&KEY)).expect("it is in").lives;
        pair.cut = true;
        pair.run(3_000);
        if presses {
            pair.press(FORWARD);
        }
        pair.run(3_000);
        assert_eq!(pair.realm.players().count(), 0);
        pair.cut = false;
        pair.run(1_000);
        let there = pair.realm.field().get(entity_of(&KEY)).expect("it is in");
        assert_ne!(there.lives, before, "it is another one");
        assert_eq!(there.turn == 0, presses, "the server knows what is pressed");
        assert!(pair.apart() <= 16 * 8, "{} units apart", pair.apart());
        assert_obeys(&mut pair);
    }
}

#[test]
fn buttons_may_be_held_for_long() {
    let mut pair = Pair::new(20, 0);
    pair.run(1_000);
    pair.press(LEFT);
    pair.run(680_000);
    assert!(pair.client.ahead().abs() <= TimeDelta::from_millis(10), "{:?} ahead", pair.client.ahead());
    pair.press(STAND);
    pair.run(1_500);
    assert!(pair.apart() <= 4, "{} units apart", pair.apart());
}

#[test]
fn what_is_seen_never_jumps() {
    let mut pair = Pair::new(100, 4);
    pair.run(3_000);
    let mut last = pair.client.avatar().unwrap().position;
    for turn in 0..2_000usize {
        if turn.is_multiple_of(90) {
            pair.press([FORWARD, LEFT][turn / 90 % 2]);
        }
        pair.run(10);
        let place = pair.client.avatar().unwrap().position;
        // Two ticks of walking at up to twice the speed, and what is made up for.
        assert!(place.distance(last) <= 40, "{} units in one frame", place.distance(last));
        last = place;
    }
    pair.press(STAND);
    pair.run(2_000);
    assert!(pair.apart() <= 4, "{} units apart", pair.apart());
}

#[test]
fn who_is_woken_late_presses_as_often_as_it_wants_to() {
    let began = Instant::from_nanos(5_000_000_000);
    let mut client = Client::new(began, "Ada", 1);
    let (mut wanted, mut pressed) = (0, 0);
    // It looks every three milliseconds, and wants something else 25 times a second.
    for millis in (0..10_000).step_by(3) {
        let now = began + MILLI * millis;
        if millis >= 40 * wanted {
            wanted += 1;
            client.press(now, if wanted % 2 == 0 { LEFT } else { FORWARD });
        }
        if let Some(wish) = client.poll_wish(now) {
            let wish = Wish::from_bytes(&wish).expect("a server understands it");
            pressed = wish.presses.last().map_or(pressed, |press| press.number);
        }
    }
    assert_eq!(wanted, 250);
    assert!((248..=250).contains(&pressed), "{pressed} of {wanted}");
}

/// How far apart what the player sees of each avatar and the server's are now, in units, where both live and the server tells of it: four
/// cells each way.
fn apart_now(pair: &Pair) -> BTreeMap<EntityId, f64> {
    let me = pair.client.me().zip(pair.client.avatar());
    let shown = me.into_iter().chain(pair.client.others()).filter(|(_, shown)| shown.is_alive());
    let place = pair.realm.field().get(entity_of(&KEY)).expect("it is in").position;
    let is_far = |one: i32, other: i32| (one - other).abs() >= 4 * CELL * FINE;
    let is_told = |other: Position| !is_far(place.x, other.x) && !is_far(place.y, other.y);
    let there = |entity| pair.realm.field().get(entity).filter(|avatar| avatar.is_alive() && is_told(avatar.position));
    shown
        .filter_map(|(entity, shown)| Some((entity, f64::from(shown.position.distance(there(entity)?.position)))))
        .collect()
}

/// What D of each avatar was in the last window, in units times seconds; of those only that lived all the time.
fn true_discrepancies(pair: &mut Pair) -> BTreeMap<EntityId, f64> {
    let steps = WINDOW.as_micros() / 1_000;
    let mut areas: BTreeMap<EntityId, (f64, i64)> = BTreeMap::new();
    for step in 0..steps {
        if step % 250 == 0 {
            pair.press([FORWARD, LEFT][(step / 250 % 2) as usize]);
        }
        pair.step();
        for (entity, apart) in apart_now(pair) {
            let area = areas.entry(entity).or_default();
            *area = (area.0 + apart / 1e3, area.1 + 1);
        }
    }
    areas.into_iter().filter(|(_, (_, count))| *count == steps).map(|(entity, (area, _))| (entity, area)).collect()
}

#[test]
fn how_consistent_it_was_is_known_of_everybody_who_is_seen() {
    let mut worst = 0.0f64;
    let mut compared = 0;
    for delay_ms in [10, 40, 120] {
        let mut pair = Pair::among(6, delay_ms, 0);
        pair.run(3_000);
        for _ in 0..4 {
            for (entity, area) in true_discrepancies(&mut pair) {
                let told = pair.client.consistency(entity).expect("it was seen all the time");
                // A tick is walked in 8 units, and what happened last has not been told yet.
                let most = area * 0.35 + 8.0 * WINDOW.as_secs_f64();
                assert!((told.discrepancy - area).abs() <= most, "{entity:?}: {told:?}, and it was {area}");
                assert_eq!(told.is_tolerated(), told.discrepancy < TOLERANCE);
                worst = worst.max(told.discrepancy);
                compared += 1;
            }
        }
        let me = pair.client.me().unwrap();
        let own = pair.client.consistencies().find(|(entity, _)| *entity == me).map(|(_, own)| own);
        assert_eq!(own, pair.client.consistency(me));
    }
    assert!(compared > 12 && worst > 10.0, "{compared} were compared, the worst was {worst}");
}

#[test]
fn a_longer_way_is_less_consistent_and_rest_is_perfect() {
    let own = |delay_ms: i64, turns: bool| {
        let mut pair = Pair::new(delay_ms, 0);
        pair.run(2_000);
        for turn in 0..10 {
            pair.press(if turns { [FORWARD, LEFT][turn % 2] } else { STAND });
            pair.run(300);
        }
        pair.client.consistency(pair.client.me().unwrap()).unwrap().discrepancy
    };
    assert_eq!(own(120, false), 0.0);
    let (near, far) = (own(5, true), own(120, true));
    assert!(far > near * 2.0, "{near} and {far}");
}

#[test]
fn another_server_has_another_time() {
    let mut pair = Pair::new(20, 0);
    pair.run(2_000);
    pair.client.on_other_server(pair.now);
    pair.press(FORWARD);
    pair.run(2_500);
    let own = pair.client.consistency(pair.client.me().unwrap()).unwrap();
    assert!(own.is_tolerated(), "{own:?}");
}

/// Servers that answer, but show nothing, are no company, however often one goes from one to the other.
#[test]
fn who_is_shown_nothing_knows_for_how_long() {
    let mut pair = Pair::new(20, 0);
    pair.run(2_000);
    let (began, mut voyage) = (pair.now, Voyage::new(pair.now));
    [1, 2].into_iter().for_each(|server| voyage.on_up(server));
    for millis in (0..31_000).step_by(10) {
        let now = began + MILLI * millis;
        for server in [1, 2] {
            voyage.on_pong(now, server, &Pong { stamp: now - MILLI * 10, drains: false, full: false, players: 0 });
        }
        if voyage.choose(now, pair.client.heard(), false).is_some() {
            pair.client.on_other_server(now);
        }
    }
    assert!(voyage.moves() > 2);
    assert!(pair.client.heard() <= began, "nothing was shown since");
}

#[test]
fn who_is_gone_is_not_in_the_table_for_long() {
    let began = Instant::from_nanos(5_000_000_000);
    let mut client = Client::new(began, "Ada", 1);
    let line = |index| (EntityId { site: WorldSiteId(9), index }, format!("player {index}"), Score::default());
    let mut page = |millis: i64, players: u8| {
        let page = Page { terms: Terms::default(), mirrors: vec![], lines: (0..players).map(line).collect() };
        assert!(client.handle_datagram(began + MILLI * millis, &page.to_bytes()));
        client.table().count()
    };
    assert_eq!(page(0, 3), 3);
    assert_eq!(page(500, 2), 3, "it may have been on another page");
    assert_eq!((2..20).map(|at| page(500 * at, 2)).last(), Some(2));
}

#[test]
fn pictures_between_ticks_are_between_places() {
    let mut pair = Pair::new(20, 0);
    (0..1_000).for_each(|_| pair.step());
    // There may be a wall in one direction, but not in all of them.
    let moved = (0..8).any(|_| {
        pair.client.press(pair.now, LEFT);
        (0..150).for_each(|_| pair.step());
        pair.client.press(pair.now, FORWARD);
        (0..100).for_each(|_| pair.step());
        pair.client.steps().is_some_and(|([before, after], _)| before.0 != after.0)
    });
    assert!(moved);
    let ([before, after], part) = pair.client.steps().expect("it is in");
    assert_eq!(after, pair.client.avatar().map(|own| (own.position, own.heading)).unwrap());
    assert!((0.0..1.0).contains(&part), "{part}");
    assert!((1..=16).contains(&before.0.distance(after.0)), "{} units in a tick", before.0.distance(after.0));
}
