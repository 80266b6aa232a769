//! A player and its server, with a way between them: the avatar obeys at once, both come into step, nothing is lost for good.

use std::collections::VecDeque;

use coplay::mirror::Source;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Controls, Terms};
use coplay_world::{Client, Realm, Wish, entity_of};

const KEY: [u8; 32] = [7; 32];
const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// One player on one server.
struct Pair {
    now: Instant,
    delay: TimeDelta,
    /// Every so manieth datagram is lost, each way.
    lose: usize,
    sent: usize,
    client: Client,
    realm: Realm,
    up: VecDeque<(Instant, Vec<u8>)>,
    down: VecDeque<(Instant, Vec<u8>)>,
}

impl Pair {
    fn new(delay_ms: i64, lose: usize) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            delay: TimeDelta::from_millis(delay_ms),
            lose,
            sent: 0,
            client: Client::new(now, "Ada"),
            realm: Realm::new(Source(1), Terms { side: 8, ..Terms::default() }, 0),
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.sent += 1;
        self.lose > 0 && self.sent.is_multiple_of(self.lose)
    }

    /// The server's clock shows something else.
    fn there(&self) -> Instant {
        self.now + TimeDelta::from_secs(1_000)
    }

    fn step(&mut self) {
        self.now += MILLI;
        let (now, there, entity) = (self.now, self.there(), entity_of(&KEY));
        self.client.advance(now);
        if let Some(bytes) = self.client.poll_wish(now)
            && !self.is_lost()
        {
            self.up.push_back((now + self.delay, bytes));
        }
        self.realm.advance(there, (now.as_nanos() / 10_000_000) as u32);
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
    let mut client = Client::new(began, "Ada");
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
