//! A player of a world: its own avatar, which obeys at once and comes into step with the server's; those of others; the score.
//!
//! The way of Li, Li and Lau: both sides have a motion timer for how long the buttons have been held as they are. The
//! player's avatar starts at once, the server's when it hears of it, and the player's goes a little slower until both timers agree. Others are
//! seen where they are by the server's word, brought up to now by the clock; who is seen elsewhere comes nearer at a
//! bounded speed.

use std::collections::{BTreeMap, VecDeque};

use coplay::clock::{Clock, RoundTrip};
use coplay::motion::{Consistency, MotionTimer, TimerRate};
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::angle::short_way;
use coplay_maze::{Avatar, Controls, FINE, Maze, Position, Rules, Score, TURN, Terms};

use crate::player::PAGE_EVERY;
use crate::realm::LINES;
use crate::standing::{Loss, Standing};
use crate::talk::{MAX_PRESSES, Page, Press, View, Wish, Word, goodbye};
use crate::trail::Trail;

/// A tick of the world.
pub const TICK: TimeDelta = TimeDelta::from_millis(10);
/// The server is told so often how we are; buttons pressed within this time are combined.
const WISH_EVERY: TimeDelta = TimeDelta::from_millis(40);
/// Who was away for longer than this begins where it is.
const MOST_CATCH_UP: TimeDelta = TimeDelta::from_millis(500);
/// Others are not shown any more when the server was silent about them for so long.
const FORGET: TimeDelta = TimeDelta::from_millis(1_000);
/// Who is further off than this, in units, is put right at once.
const LEAP: u32 = 400;
/// Somebody who is seen elsewhere comes nearer by so many units a tick, beside its own way; and turns so much faster.
const GLIDE: i32 = 8;
const TURN_GLIDE: i16 = 3 * TURN;
/// We are right where the server says, give or take so many units; what is more is made up for by so many units a tick.
const EXACT: u32 = 4;
const OWN_GLIDE: i32 = 4;
/// Places of our own that are remembered, to compare with the server's word.
const REMEMBERED: usize = 128;
/// Names and scores that are kept.
const MAX_LINES: usize = 4_096;

/// A player of a world.
pub struct Client {
    /// Drawn when we began: a server that knows us from before does not take our presses for those of then.
    run: u32,
    name: String,
    world: Option<(Terms, Rules)>,
    clock: Clock,
    me: Option<EntityId>,
    own: Own,
    others: BTreeMap<EntityId, Other>,
    /// The newest view: which tick, and when it was shown, on our clock.
    viewed: Option<(u32, Instant)>,
    /// Since when we are with the server, as it says. If that changes it had forgotten us meanwhile.
    came: Option<u32>,
    heard: Instant,
    standing: Standing,
    /// Who felled us last, as far as our server knows.
    felled_by: Option<EntityId>,
    table: BTreeMap<EntityId, Line>,
    mirrors: Vec<String>,
    drains: bool,
    next_wish: Instant,
    /// When the server was last told of other buttons.
    pressed: Instant,
    advanced: Instant,
}

/// A line of the table.
#[derive(Debug)]
struct Line {
    name: String,
    score: Score,
    heard: Instant,
}

/// Our own avatar, and what we press.
#[derive(Debug, Default)]
struct Own {
    avatar: Option<Avatar>,
    /// What the player wants, and whether it fired since the server was told.
    wanted: Controls,
    fired: bool,
    /// What is pressed since when, as the server is told.
    held: Controls,
    number: u32,
    timer: MotionTimer,
    /// Motion that is not a whole tick yet, and whole ticks since the last press.
    motion: TimeDelta,
    ticks: u32,
    unheard: VecDeque<Press>,
    places: VecDeque<Place>,
    /// By how much we are beside the server's word, in parts of a unit.
    beside: (i32, i32),
    /// Where we were a tick ago, and which way we looked.
    before: Option<(Position, u16)>,
    trail: Trail,
}

/// Where we were, so many ticks after a press.
#[derive(Clone, Copy, Debug)]
struct Place {
    press: u32,
    ticks: u32,
    position: Position,
}

/// Somebody else.
#[derive(Debug)]
struct Other {
    /// As the server said, and of which tick.
    known: (u32, Avatar),
    heard: Instant,
    shown: Avatar,
    trail: Trail,
}

impl Client {
    /// A player who is nowhere yet. `run` is a random number, another one whenever the same player begins anew.
    pub fn new(now: Instant, name: &str, run: u32) -> Self {
        Self {
            run,
            name: name.into(),
            world: None,
            clock: Clock::assuming_crystals(),
            me: None,
            own: Own::default(),
            others: BTreeMap::new(),
            viewed: None,
            came: None,
            heard: now,
            standing: Standing::default(),
            felled_by: None,
            table: BTreeMap::new(),
            mirrors: Vec::new(),
            drains: false,
            next_wish: now,
            pressed: now - WISH_EVERY,
            advanced: now,
        }
    }

    /// The rules, as soon as the world is known.
    pub fn rules(&self) -> Option<&Rules> {
        self.world.as_ref().map(|(_, rules)| rules)
    }

    /// What is agreed on there.
    pub fn terms(&self) -> Option<&Terms> {
        self.world.as_ref().map(|(terms, _)| terms)
    }

    /// Who we are.
    pub fn me(&self) -> Option<EntityId> {
        self.me
    }

    /// Our own avatar as we see it.
    pub fn avatar(&self) -> Option<&Avatar> {
        self.own.avatar.as_ref()
    }

    /// Where we were a tick ago and are now, each with which way we looked, and how much of the tick is over: pictures come between ticks.
    pub fn steps(&self) -> Option<([(Position, u16); 2], f64)> {
        let now = self.own.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading))?;
        let part = self.own.motion.as_nanos() as f64 / TICK.as_nanos() as f64;
        Some(([self.own.before.unwrap_or(now), now], part))
    }

    /// Everybody else as we see them.
    pub fn others(&self) -> impl Iterator<Item = (EntityId, &Avatar)> {
        self.others.iter().map(|(entity, other)| (*entity, &other.shown))
    }

    /// Our hits and falls as a server acknowledged them: they are not forgotten as long as one server goes on. What all of them have forgotten
    /// is not in it any more, after a while.
    pub fn score(&self) -> Score {
        self.standing.best()
    }

    /// The same, as the server that we are on says just now. One that has just begun may not have heard of all of it.
    pub fn told(&self) -> Score {
        self.standing.told()
    }

    /// What the servers have forgotten of our score since the last time that this was asked.
    pub fn poll_loss(&mut self) -> Option<Loss> {
        self.standing.poll_loss()
    }

    /// Who felled us last, as far as the server that we are on knows.
    pub fn felled_by(&self) -> Option<EntityId> {
        self.felled_by
    }

    /// Names and scores of all.
    pub fn table(&self) -> impl Iterator<Item = (EntityId, &str, Score)> {
        self.table.iter().map(|(entity, line)| (*entity, line.name.as_str(), line.score))
    }

    /// Where other servers of this world are.
    pub fn mirrors(&self) -> &[String] {
        &self.mirrors
    }

    /// Whether the server wants us to go to another.
    pub fn drains(&self) -> bool {
        self.drains
    }

    /// When we were last shown anything, by whichever server.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// The round trip to the server.
    pub fn rtt(&self) -> Option<TimeDelta> {
        self.clock.rtt()
    }

    /// By how much our avatar is ahead of the server's.
    pub fn ahead(&self) -> TimeDelta {
        self.own.timer.offset()
    }

    /// How far what we see of an avatar was of late from where the server had it at the same time: D, over a [window](crate::WINDOW), against
    /// [ξ](crate::TOLERANCE), in units times seconds. `None` as long as nothing is known of it.
    pub fn consistency(&self, entity: EntityId) -> Option<Consistency> {
        let other = || self.others.get(&entity).map(|other| &other.trail);
        let trail = if self.me == Some(entity) { Some(&self.own.trail) } else { other() };
        trail.and_then(Trail::consistency)
    }

    /// The same of all that we see, ourselves first.
    pub fn consistencies(&self) -> impl Iterator<Item = (EntityId, Consistency)> {
        let own = self.me.map(|me| (me, &self.own.trail));
        let others = self.others.iter().map(|(entity, other)| (*entity, &other.trail));
        own.into_iter().chain(others).filter_map(|(entity, trail)| Some((entity, trail.consistency()?)))
    }

    /// The tick that it is in the world.
    pub fn tick(&self, now: Instant) -> Option<u32> {
        let (tick, at) = self.viewed?;
        let since = (now - at).max(TimeDelta::ZERO).as_nanos() / TICK.as_nanos();
        Some(tick.saturating_add(since.min(i64::from(u32::MAX / 2)) as u32))
    }

    /// We are with another server from now on: its clock is another, and what was pressed before it does not know.
    pub fn on_other_server(&mut self, now: Instant) {
        self.clock = Clock::assuming_crystals();
        // Its time may be another one, too.
        self.viewed = None;
        self.others.clear();
        (self.came, self.drains, self.next_wish) = (None, false, now);
        self.felled_by = None;
        self.own.begin_anew(TimeDelta::ZERO);
    }

    /// What the player presses from now on. It takes effect with the next wish, which is now unless there was one just before.
    pub fn press(&mut self, now: Instant, controls: Controls) {
        self.own.fired |= controls.fire;
        self.own.wanted = controls;
        if controls != self.own.held {
            self.next_wish = self.next_wish.min(self.pressed + WISH_EVERY).max(now);
        }
    }

    /// Takes in what the server says. Whether it was news.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let is_news = match Word::from_bytes(bytes, self.world.as_ref().map(|(_, rules)| rules)) {
            Some(Word::Page(page)) => self.on_page(now, page),
            Some(Word::View(view)) => self.on_view(now, view),
            Some(Word::Pong(_)) | None => false,
        };
        if is_news {
            self.heard = now;
        }
        is_news
    }

    fn on_page(&mut self, now: Instant, page: Page) -> bool {
        if self.world.as_ref().is_none_or(|(terms, _)| *terms != page.terms) {
            self.world = Some((page.terms, Rules::new(Maze::new(page.terms.seed, page.terms.side))));
        }
        self.mirrors = page.mirrors;
        for (entity, name, score) in page.lines {
            if self.table.len() < MAX_LINES || self.table.contains_key(&entity) {
                self.table.insert(entity, Line { name, score, heard: now });
            }
        }
        // Who was on none of several pages in turn is gone.
        let turn = PAGE_EVERY * (self.table.len() / LINES + 1) as i64;
        self.table.retain(|_, line| now - line.heard < turn * 4 + TimeDelta::from_secs(1));
        true
    }

    fn on_view(&mut self, now: Instant, view: View) -> bool {
        // Who was here before us has another clock, and pressed other buttons.
        if view.run != self.run {
            return false;
        }
        let [sent, received, answered] = view.echo;
        self.clock.on_round_trip(RoundTrip { sent, received, answered, returned: now });
        // When it was shown; without a clock yet, just now.
        let at = self.clock.to_local(answered).unwrap_or(now).min(now);
        if self.viewed.is_some_and(|(tick, _)| tick > view.tick) {
            return false;
        }
        self.viewed = Some((view.tick, at));
        if self.came.replace(view.came).is_some_and(|before| before != view.came) {
            self.own.begin_anew(self.clock.rtt_min().unwrap_or_default() / 2);
        }
        (self.me, self.drains, self.felled_by) = (Some(view.me), view.drains, view.felled_by);
        self.standing.on_told(now, view.tick, view.score);
        let Some((_, rules)) = &self.world else { return false };
        for (entity, avatar) in view.avatars {
            if entity == view.me {
                self.own.measure(at, view.tick, &avatar);
                self.own.compare(rules, avatar, view.pressed, now - at);
            } else if let Some(other) = self.others.get_mut(&entity) {
                other.trail.on_told(at, view.tick, &avatar, is_same_life(&other.shown, &avatar));
                (other.known, other.heard) = ((view.tick, avatar), now);
            } else {
                let (shown, trail) = (avatar.clone(), Trail::default());
                self.others.insert(entity, Other { known: (view.tick, avatar), heard: now, shown, trail });
            }
        }
        true
    }

    /// Moves everybody up to now.
    pub fn advance(&mut self, now: Instant) {
        let by = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        let Some((_, rules)) = &self.world else { return };
        let ticks = (by.as_nanos() / TICK.as_nanos()).max(1) as u32;
        for other in self.others.values_mut() {
            other.come_nearer(rules, tick, ticks);
        }
        let living = self.others.values().filter(|other| other.shown.is_alive());
        let in_the_way: Vec<Position> = living.map(|other| other.shown.position).collect();
        self.own.advance(rules, tick, by, &in_the_way);
        if self.viewed.is_some() {
            self.remember(tick);
        }
    }

    /// Everybody is seen like this at a tick.
    fn remember(&mut self, tick: u32) {
        for other in self.others.values_mut() {
            other.trail.on_shown(tick, &other.shown);
        }
        if let Some(avatar) = &self.own.avatar {
            self.own.trail.on_shown(tick, avatar);
        }
    }

    /// Moves only our own avatar up to now, as if nobody were in its way: for software that does not look at others. The server puts it right.
    pub fn advance_own(&mut self, now: Instant) {
        let by = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        if let Some((_, rules)) = &self.world {
            self.own.advance(rules, tick, by, &[]);
        }
    }

    /// Time passes up to now: so much since the last time.
    fn elapse(&mut self, now: Instant) -> TimeDelta {
        let by = (now - self.advanced).max(TimeDelta::ZERO).min(MOST_CATCH_UP);
        self.advanced = self.advanced.max(now);
        self.others.retain(|_, other| now - other.heard < FORGET);
        by
    }

    /// The next datagram for the server, if it is time for one.
    pub fn poll_wish(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_wish {
            return None;
        }
        self.next_wish = (self.next_wish + WISH_EVERY).max(now + WISH_EVERY / 2);
        let delay = self.clock.rtt_min().unwrap_or_default() / 2;
        if self.own.tell(delay) {
            self.pressed = now;
        }
        let presses = self.own.unheard.iter().copied().collect();
        Some(Wish { stamp: now, run: self.run, name: self.name.clone(), presses }.to_bytes())
    }

    /// What to tell the server when we leave, a few times: each may be lost.
    pub fn goodbye(&self) -> Vec<u8> {
        goodbye(self.run)
    }

    /// When there is something to send.
    pub fn poll_timeout(&self) -> Instant {
        self.next_wish
    }
}

impl Own {
    /// Presses what the player wants by now. Whether that is anything new.
    fn tell(&mut self, delay: TimeDelta) -> bool {
        let wanted = Controls { fire: self.wanted.fire || self.fired, ..self.wanted };
        self.fired = false;
        let is_new = wanted != self.held || self.number == 0;
        if is_new {
            self.begin_press(wanted, delay);
        }
        is_new
    }

    /// The server will hear of it after so long.
    fn begin_press(&mut self, controls: Controls, delay: TimeDelta) {
        let lasted = self.ticks;
        self.number = self.number.saturating_add(1);
        if self.unheard.len() == MAX_PRESSES {
            self.unheard.pop_front();
        }
        self.unheard.push_back(Press { number: self.number, lasted, controls });
        self.held = controls;
        self.ticks = 0;
        self.timer = MotionTimer::new(self.motion, delay + self.timer.offset().max(TimeDelta::ZERO));
    }

    /// How our avatar was at a tick, which was then on our clock.
    fn measure(&mut self, at: Instant, tick: u32, told: &Avatar) {
        let is_same = self.avatar.as_ref().is_some_and(|own| is_same_life(own, told));
        self.trail.on_told(at, tick, told, is_same);
    }

    /// The server does not know what we pressed before, nor for how long.
    fn begin_anew(&mut self, delay: TimeDelta) {
        self.unheard.clear();
        self.places.clear();
        self.trail.forget();
        (self.ticks, self.timer) = (0, MotionTimer::default());
        self.begin_press(self.held, delay);
    }

    /// The server's word on our avatar, that long ago.
    fn compare(&mut self, rules: &Rules, avatar: Avatar, (number, ticks): (u32, u32), age: TimeDelta) {
        self.unheard.retain(|press| press.number > number);
        if !self.avatar.as_ref().is_some_and(|own| is_same_life(own, &avatar)) {
            self.avatar = Some(rules.extrapolate(&avatar, (age.as_nanos() / TICK.as_nanos()).clamp(0, 100) as u32));
            self.beside = (0, 0);
            self.places.clear();
            self.before = None;
            return;
        }
        if number == self.number {
            let there = TICK * i64::from(ticks) + age;
            self.timer.set_offset(self.timer.value() - there);
            self.avatar.iter_mut().for_each(|own| own.shots = avatar.shots.clone());
        }
        let then = self.places.iter().find(|place| (place.press, place.ticks) == (number, ticks));
        if let Some(then) = then.copied() {
            self.correct(then.position, avatar.position);
        }
    }

    fn correct(&mut self, ours: Position, theirs: Position) {
        self.beside = (theirs.x - ours.x, theirs.y - ours.y);
        let off = ours.distance(theirs);
        if off <= EXACT {
            self.beside = (0, 0);
        } else if off > LEAP {
            let (x, y) = std::mem::take(&mut self.beside);
            self.shift(x, y);
        }
    }

    /// We are elsewhere than we thought, and were.
    fn shift(&mut self, x: i32, y: i32) {
        let places = self.places.iter_mut().map(|place| &mut place.position);
        for position in places.chain(self.avatar.as_mut().map(|avatar| &mut avatar.position)) {
            *position = Position { x: position.x + x, y: position.y + y };
        }
    }

    fn advance(&mut self, rules: &Rules, tick: u32, by: TimeDelta, in_the_way: &[Position]) {
        self.motion += self.timer.advance(by, TimerRate::OURS);
        while self.motion >= TICK {
            self.motion -= TICK;
            self.ticks += 1;
            self.before = self.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading));
            self.come_nearer();
            let Some(avatar) = &mut self.avatar else { continue };
            // Who comes back, and where, is the server's word.
            if avatar.is_alive() {
                rules.step(tick, avatar, self.held, in_the_way, 0);
            }
            if self.places.len() == REMEMBERED {
                self.places.pop_front();
            }
            self.places.push_back(Place { press: self.number, ticks: self.ticks, position: avatar.position });
        }
    }

    /// Makes up for a tick's worth of what we are beside the server's word.
    fn come_nearer(&mut self) {
        let (x, y) = (nearer(self.beside.0, OWN_GLIDE), nearer(self.beside.1, OWN_GLIDE));
        if (x, y) != (0, 0) {
            self.beside = (self.beside.0 - x, self.beside.1 - y);
            self.shift(x, y);
        }
    }
}

impl Other {
    /// So many ticks pass for who is seen, up to this one.
    fn come_nearer(&mut self, rules: &Rules, tick: u32, ticks: u32) {
        let (then, known) = &self.known;
        let target = rules.extrapolate(known, tick.saturating_sub(*then));
        let off = self.shown.position.distance(target.position);
        if !is_same_life(&self.shown, &target) || off > LEAP {
            self.shown = target;
            return;
        }
        let Position { x, y } = self.shown.position;
        let most = 2 * GLIDE * ticks.min(100) as i32;
        let position =
            Position { x: x + nearer(target.position.x - x, most), y: y + nearer(target.position.y - y, most) };
        let turn = short_way(self.shown.heading, target.heading);
        let heading = self.shown.heading.wrapping_add_signed(turn.clamp(-TURN_GLIDE, TURN_GLIDE));
        self.shown = Avatar { position, heading, ..target };
    }
}

/// Whether two are the same avatar between two falls.
fn is_same_life(one: &Avatar, other: &Avatar) -> bool {
    one.lives == other.lives && one.life == other.life
}

/// As much of a way, in parts of a unit, as so many units are.
fn nearer(way: i32, units: i32) -> i32 {
    way.clamp(-units * FINE, units * FINE)
}
