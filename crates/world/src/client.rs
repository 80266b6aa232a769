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
use coplay_maze::angle::shortest_turn;
use coplay_maze::{Avatar, Controls, Maze, MazeSettings, Position, Rules, Score, TURN_RATE, UNIT};

use crate::consistency_probe::ConsistencyProbe;
use crate::player::DIRECTORY_INTERVAL;
use crate::protocol::{ClientInput, Directory, InputChange, MAX_INPUT_CHANGES, ServerMessage, WorldView, encode_leave};
use crate::score_tracker::{ScoreRollback, ScoreTracker};
use crate::world_state::ROWS_PER_DIRECTORY;

/// A tick of the world.
pub const TICK_DURATION: TimeDelta = TimeDelta::from_millis(10);
/// The server is told so often how we are; buttons pressed within this time are combined.
const INPUT_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Who was away for longer than this begins where it is.
const MAX_CATCH_UP: TimeDelta = TimeDelta::from_millis(500);
/// Others are not shown any more when the server was silent about them for so long.
const REMOTE_AVATAR_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_000);
/// Who is further off than this, in units, is put right at once.
const SNAP_DISTANCE: u32 = 400;
/// Somebody who is seen elsewhere comes nearer by so many units a tick, beside its own way; and turns so much faster.
const CONVERGENCE_SPEED: i32 = 8;
const CONVERGENCE_TURN_RATE: i16 = 3 * TURN_RATE;
/// We are right where the server says, give or take so many units; what is more is made up for by so many units a tick.
const POSITION_TOLERANCE: u32 = 4;
const CORRECTION_SPEED: i32 = 4;
/// Places of our own that are remembered, to compare with the server's word.
const PATH_HISTORY_LEN: usize = 128;
/// Names and scores that are kept.
const MAX_SCORE_ROWS: usize = 4_096;

/// A player of a world.
pub struct Client {
    /// Drawn when we began: a server that knows us from before does not take our presses for those of then.
    run: u32,
    name: String,
    world: Option<(MazeSettings, Rules)>,
    clock: Clock,
    own_entity: Option<EntityId>,
    local: LocalAvatar,
    others: BTreeMap<EntityId, RemoteAvatar>,
    /// The newest view: which tick, and when it was shown, on our clock.
    last_view: Option<(u32, Instant)>,
    /// Since when we are with the server, as it says. If that changes it had forgotten us meanwhile.
    joined_tick: Option<u32>,
    last_received: Instant,
    score_tracker: ScoreTracker,
    /// Who felled us last, as far as our server knows.
    last_hit_by: Option<EntityId>,
    scoreboard: BTreeMap<EntityId, ScoreRow>,
    mirrors: Vec<String>,
    is_draining: bool,
    next_input: Instant,
    /// When the server was last told of other buttons.
    last_change_sent: Instant,
    last_advance: Instant,
}

/// A line of the table.
#[derive(Debug)]
struct ScoreRow {
    name: String,
    score: Score,
    last_received: Instant,
}

/// Our own avatar, and what we press.
#[derive(Debug, Default)]
struct LocalAvatar {
    avatar: Option<Avatar>,
    /// What the player wants, and whether it fired since the server was told.
    requested_controls: Controls,
    is_fire_pending: bool,
    /// What is pressed since when, as the server is told.
    held_controls: Controls,
    change_number: u32,
    motion_timer: MotionTimer,
    /// Motion that is not a whole tick yet, and whole ticks since the last press.
    partial_tick: TimeDelta,
    ticks_held: u32,
    unacknowledged: VecDeque<InputChange>,
    path: VecDeque<PathPoint>,
    /// By how much we are beside the server's word, in parts of a unit.
    pending_correction: (i32, i32),
    /// Where we were a tick ago, and which way we looked.
    previous: Option<(Position, u16)>,
    probe: ConsistencyProbe,
}

/// Where we were, so many ticks after a press.
#[derive(Clone, Copy, Debug)]
struct PathPoint {
    change_number: u32,
    ticks_held: u32,
    position: Position,
}

/// Somebody else.
#[derive(Debug)]
struct RemoteAvatar {
    /// As the server said, and of which tick.
    reference: (u32, Avatar),
    last_received: Instant,
    displayed: Avatar,
    probe: ConsistencyProbe,
}

impl Client {
    /// A player who is nowhere yet. `run` is a random number, another one whenever the same player begins anew.
    pub fn new(now: Instant, name: &str, run: u32) -> Self {
        Self {
            run,
            name: name.into(),
            world: None,
            clock: Clock::assuming_crystals(),
            own_entity: None,
            local: LocalAvatar::default(),
            others: BTreeMap::new(),
            last_view: None,
            joined_tick: None,
            last_received: now,
            score_tracker: ScoreTracker::default(),
            last_hit_by: None,
            scoreboard: BTreeMap::new(),
            mirrors: Vec::new(),
            is_draining: false,
            next_input: now,
            last_change_sent: now - INPUT_INTERVAL,
            last_advance: now,
        }
    }

    /// The rules, as soon as the world is known.
    pub fn rules(&self) -> Option<&Rules> {
        self.world.as_ref().map(|(_, rules)| rules)
    }

    /// What is agreed on there.
    pub fn settings(&self) -> Option<&MazeSettings> {
        self.world.as_ref().map(|(terms, _)| terms)
    }

    /// Who we are.
    pub fn own_entity(&self) -> Option<EntityId> {
        self.own_entity
    }

    /// Our own avatar as we see it.
    pub fn avatar(&self) -> Option<&Avatar> {
        self.local.avatar.as_ref()
    }

    /// Where we were a tick ago and are now, each with which way we looked, and how much of the tick is over: pictures come between ticks.
    pub fn last_step(&self) -> Option<([(Position, u16); 2], f64)> {
        let now = self.local.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading))?;
        let part = self.local.partial_tick.as_nanos() as f64 / TICK_DURATION.as_nanos() as f64;
        Some(([self.local.previous.unwrap_or(now), now], part))
    }

    /// Everybody else as we see them.
    pub fn others(&self) -> impl Iterator<Item = (EntityId, &Avatar)> {
        self.others.iter().map(|(entity, other)| (*entity, &other.displayed))
    }

    /// Our hits and falls as a server acknowledged them: they are not forgotten as long as one server goes on. What all of them have forgotten
    /// is not in it any more, after a while.
    pub fn score(&self) -> Score {
        self.score_tracker.best()
    }

    /// The same, as the server that we are on says just now. One that has just begun may not have heard of all of it.
    pub fn reported_score(&self) -> Score {
        self.score_tracker.reported()
    }

    /// What the servers have forgotten of our score since the last time that this was asked.
    pub fn poll_score_rollback(&mut self) -> Option<ScoreRollback> {
        self.score_tracker.poll_rollback()
    }

    /// Who felled us last, as far as the server that we are on knows.
    pub fn last_hit_by(&self) -> Option<EntityId> {
        self.last_hit_by
    }

    /// Names and scores of all.
    pub fn scoreboard(&self) -> impl Iterator<Item = (EntityId, &str, Score)> {
        self.scoreboard.iter().map(|(entity, line)| (*entity, line.name.as_str(), line.score))
    }

    /// Where other servers of this world are.
    pub fn mirrors(&self) -> &[String] {
        &self.mirrors
    }

    /// Whether the server wants us to go to another.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// When we were last shown anything, by whichever server.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The round trip to the server.
    pub fn rtt(&self) -> Option<TimeDelta> {
        self.clock.rtt()
    }

    /// By how much our avatar is ahead of the server's.
    pub fn lead_time(&self) -> TimeDelta {
        self.local.motion_timer.offset()
    }

    /// How far what we see of an avatar was of late from where the server had it at the same time: D, over a [window](crate::CONSISTENCY_WINDOW), against
    /// [ξ](crate::TOLERANCE), in units times seconds. `None` as long as nothing is known of it.
    pub fn consistency(&self, entity: EntityId) -> Option<Consistency> {
        let other = || self.others.get(&entity).map(|other| &other.probe);
        let trail = if self.own_entity == Some(entity) { Some(&self.local.probe) } else { other() };
        trail.and_then(ConsistencyProbe::consistency)
    }

    /// The same of all that we see, ourselves first.
    pub fn consistencies(&self) -> impl Iterator<Item = (EntityId, Consistency)> {
        let own = self.own_entity.map(|me| (me, &self.local.probe));
        let others = self.others.iter().map(|(entity, other)| (*entity, &other.probe));
        own.into_iter().chain(others).filter_map(|(entity, trail)| Some((entity, trail.consistency()?)))
    }

    /// The tick that it is in the world.
    pub fn tick(&self, now: Instant) -> Option<u32> {
        let (tick, at) = self.last_view?;
        let since = (now - at).max(TimeDelta::ZERO).as_nanos() / TICK_DURATION.as_nanos();
        Some(tick.saturating_add(since.min(i64::from(u32::MAX / 2)) as u32))
    }

    /// We are with another server from now on: its clock is another, and what was pressed before it does not know.
    pub fn on_server_change(&mut self, now: Instant) {
        self.clock = Clock::assuming_crystals();
        // Its time may be another one, too.
        self.last_view = None;
        self.others.clear();
        (self.joined_tick, self.is_draining, self.next_input) = (None, false, now);
        self.last_hit_by = None;
        self.local.restart_changes(TimeDelta::ZERO);
    }

    /// What the player presses from now on. It takes effect with the next wish, which is now unless there was one just before.
    pub fn set_controls(&mut self, now: Instant, controls: Controls) {
        self.local.is_fire_pending |= controls.fire;
        self.local.requested_controls = controls;
        if controls != self.local.held_controls {
            self.next_input = self.next_input.min(self.last_change_sent + INPUT_INTERVAL).max(now);
        }
    }

    /// Takes in what the server says. Whether it was news.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let is_news = match ServerMessage::from_bytes(bytes, self.world.as_ref().map(|(_, rules)| rules)) {
            Some(ServerMessage::Directory(page)) => self.on_directory(now, page),
            Some(ServerMessage::View(view)) => self.on_view(now, view),
            Some(ServerMessage::Pong(_)) | None => false,
        };
        if is_news {
            self.last_received = now;
        }
        is_news
    }

    fn on_directory(&mut self, now: Instant, page: Directory) -> bool {
        if self.world.as_ref().is_none_or(|(terms, _)| *terms != page.settings) {
            self.world = Some((page.settings, Rules::new(Maze::new(page.settings.seed, page.settings.cells_per_side))));
        }
        self.mirrors = page.mirrors;
        for (entity, name, score) in page.score_rows {
            if self.scoreboard.len() < MAX_SCORE_ROWS || self.scoreboard.contains_key(&entity) {
                self.scoreboard.insert(entity, ScoreRow { name, score, last_received: now });
            }
        }
        // Who was on none of several pages in turn is gone.
        let turn = DIRECTORY_INTERVAL * (self.scoreboard.len() / ROWS_PER_DIRECTORY + 1) as i64;
        self.scoreboard.retain(|_, line| now - line.last_received < turn * 4 + TimeDelta::from_secs(1));
        true
    }

    fn on_view(&mut self, now: Instant, view: WorldView) -> bool {
        // Who was here before us has another clock, and pressed other buttons.
        if view.run != self.run {
            return false;
        }
        let [sent, received, answered] = view.echo;
        self.clock.on_round_trip(RoundTrip { sent, received, answered, returned: now });
        // When it was shown; without a clock yet, just now.
        let at = self.clock.to_local(answered).unwrap_or(now).min(now);
        if self.last_view.is_some_and(|(tick, _)| tick > view.tick) {
            return false;
        }
        self.last_view = Some((view.tick, at));
        if self.joined_tick.replace(view.joined_tick).is_some_and(|before| before != view.joined_tick) {
            self.local.restart_changes(self.clock.rtt_min().unwrap_or_default() / 2);
        }
        (self.own_entity, self.is_draining, self.last_hit_by) =
            (Some(view.own_entity), view.is_draining, view.last_hit_by);
        self.score_tracker.on_reported(now, view.tick, view.score);
        let Some((_, rules)) = &self.world else { return false };
        for (entity, avatar) in view.avatars {
            if entity == view.own_entity {
                self.local.record_discrepancy(at, view.tick, &avatar);
                self.local.reconcile(rules, avatar, view.applied_change, now - at);
            } else if let Some(other) = self.others.get_mut(&entity) {
                other.probe.on_reference(at, view.tick, &avatar, is_same_life(&other.displayed, &avatar));
                (other.reference, other.last_received) = ((view.tick, avatar), now);
            } else {
                let (shown, trail) = (avatar.clone(), ConsistencyProbe::default());
                self.others.insert(
                    entity,
                    RemoteAvatar { reference: (view.tick, avatar), last_received: now, displayed: shown, probe: trail },
                );
            }
        }
        true
    }

    /// Moves everybody up to now.
    pub fn advance(&mut self, now: Instant) {
        let by = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        let Some((_, rules)) = &self.world else { return };
        let ticks = (by.as_nanos() / TICK_DURATION.as_nanos()).max(1) as u32;
        for other in self.others.values_mut() {
            other.converge(rules, tick, ticks);
        }
        let living = self.others.values().filter(|other| other.displayed.is_alive());
        let in_the_way: Vec<Position> = living.map(|other| other.displayed.position).collect();
        self.local.advance(rules, tick, by, &in_the_way);
        if self.last_view.is_some() {
            self.record_displayed(tick);
        }
    }

    /// Everybody is seen like this at a tick.
    fn record_displayed(&mut self, tick: u32) {
        for other in self.others.values_mut() {
            other.probe.on_displayed(tick, &other.displayed);
        }
        if let Some(avatar) = &self.local.avatar {
            self.local.probe.on_displayed(tick, avatar);
        }
    }

    /// Moves only our own avatar up to now, as if nobody were in its way: for software that does not look at others. The server puts it right.
    pub fn advance_local(&mut self, now: Instant) {
        let by = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        if let Some((_, rules)) = &self.world {
            self.local.advance(rules, tick, by, &[]);
        }
    }

    /// Time passes up to now: so much since the last time.
    fn elapse(&mut self, now: Instant) -> TimeDelta {
        let by = (now - self.last_advance).max(TimeDelta::ZERO).min(MAX_CATCH_UP);
        self.last_advance = self.last_advance.max(now);
        self.others.retain(|_, other| now - other.last_received < REMOTE_AVATAR_TIMEOUT);
        by
    }

    /// The next datagram for the server, if it is time for one.
    pub fn poll_input(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_input {
            return None;
        }
        self.next_input = (self.next_input + INPUT_INTERVAL).max(now + INPUT_INTERVAL / 2);
        let delay = self.clock.rtt_min().unwrap_or_default() / 2;
        if self.local.commit_controls(delay) {
            self.last_change_sent = now;
        }
        let presses = self.local.unacknowledged.iter().copied().collect();
        Some(ClientInput { stamp: now, run: self.run, name: self.name.clone(), changes: presses }.to_bytes())
    }

    /// What to tell the server when we leave, a few times: each may be lost.
    pub fn leave_message(&self) -> Vec<u8> {
        encode_leave(self.run)
    }

    /// When there is something to send.
    pub fn poll_timeout(&self) -> Instant {
        self.next_input
    }
}

impl LocalAvatar {
    /// Presses what the player wants by now. Whether that is anything new.
    fn commit_controls(&mut self, delay: TimeDelta) -> bool {
        let wanted = Controls { fire: self.requested_controls.fire || self.is_fire_pending, ..self.requested_controls };
        self.is_fire_pending = false;
        let is_new = wanted != self.held_controls || self.change_number == 0;
        if is_new {
            self.begin_change(wanted, delay);
        }
        is_new
    }

    /// The server will hear of it after so long.
    fn begin_change(&mut self, controls: Controls, delay: TimeDelta) {
        let lasted = self.ticks_held;
        self.change_number = self.change_number.saturating_add(1);
        if self.unacknowledged.len() == MAX_INPUT_CHANGES {
            self.unacknowledged.pop_front();
        }
        self.unacknowledged.push_back(InputChange {
            number: self.change_number,
            previous_held_ticks: lasted,
            controls,
        });
        self.held_controls = controls;
        self.ticks_held = 0;
        self.motion_timer =
            MotionTimer::new(self.partial_tick, delay + self.motion_timer.offset().max(TimeDelta::ZERO));
    }

    /// How our avatar was at a tick, which was then on our clock.
    fn record_discrepancy(&mut self, at: Instant, tick: u32, told: &Avatar) {
        let is_same = self.avatar.as_ref().is_some_and(|own| is_same_life(own, told));
        self.probe.on_reference(at, tick, told, is_same);
    }

    /// The server does not know what we pressed before, nor for how long.
    fn restart_changes(&mut self, delay: TimeDelta) {
        self.unacknowledged.clear();
        self.path.clear();
        self.probe.reset();
        (self.ticks_held, self.motion_timer) = (0, MotionTimer::default());
        self.begin_change(self.held_controls, delay);
    }

    /// The server's word on our avatar, that long ago.
    fn reconcile(&mut self, rules: &Rules, avatar: Avatar, (number, ticks): (u32, u32), age: TimeDelta) {
        self.unacknowledged.retain(|press| press.number > number);
        if !self.avatar.as_ref().is_some_and(|own| is_same_life(own, &avatar)) {
            self.avatar =
                Some(rules.extrapolate(&avatar, (age.as_nanos() / TICK_DURATION.as_nanos()).clamp(0, 100) as u32));
            self.pending_correction = (0, 0);
            self.path.clear();
            self.previous = None;
            return;
        }
        if number == self.change_number {
            let there = TICK_DURATION * i64::from(ticks) + age;
            self.motion_timer.set_offset(self.motion_timer.value() - there);
            self.avatar.iter_mut().for_each(|own| own.shots = avatar.shots.clone());
        }
        let then = self.path.iter().find(|place| (place.change_number, place.ticks_held) == (number, ticks));
        if let Some(then) = then.copied() {
            self.begin_correction(then.position, avatar.position);
        }
    }

    fn begin_correction(&mut self, ours: Position, theirs: Position) {
        self.pending_correction = (theirs.x - ours.x, theirs.y - ours.y);
        let off = ours.distance(theirs);
        if off <= POSITION_TOLERANCE {
            self.pending_correction = (0, 0);
        } else if off > SNAP_DISTANCE {
            let (x, y) = std::mem::take(&mut self.pending_correction);
            self.translate(x, y);
        }
    }

    /// We are elsewhere than we thought, and were.
    fn translate(&mut self, x: i32, y: i32) {
        let places = self.path.iter_mut().map(|place| &mut place.position);
        for position in places.chain(self.avatar.as_mut().map(|avatar| &mut avatar.position)) {
            *position = Position { x: position.x + x, y: position.y + y };
        }
    }

    fn advance(&mut self, rules: &Rules, tick: u32, by: TimeDelta, in_the_way: &[Position]) {
        self.partial_tick += self.motion_timer.advance(by, TimerRate::OURS);
        while self.partial_tick >= TICK_DURATION {
            self.partial_tick -= TICK_DURATION;
            self.ticks_held += 1;
            self.previous = self.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading));
            self.apply_correction();
            let Some(avatar) = &mut self.avatar else { continue };
            // Who comes back, and where, is the server's word.
            if avatar.is_alive() {
                rules.step(tick, avatar, self.held_controls, in_the_way, 0);
            }
            if self.path.len() == PATH_HISTORY_LEN {
                self.path.pop_front();
            }
            self.path.push_back(PathPoint {
                change_number: self.change_number,
                ticks_held: self.ticks_held,
                position: avatar.position,
            });
        }
    }

    /// Makes up for a tick's worth of what we are beside the server's word.
    fn apply_correction(&mut self) {
        let (x, y) = (
            limited_step(self.pending_correction.0, CORRECTION_SPEED),
            limited_step(self.pending_correction.1, CORRECTION_SPEED),
        );
        if (x, y) != (0, 0) {
            self.pending_correction = (self.pending_correction.0 - x, self.pending_correction.1 - y);
            self.translate(x, y);
        }
    }
}

impl RemoteAvatar {
    /// So many ticks pass for who is seen, up to this one.
    fn converge(&mut self, rules: &Rules, tick: u32, ticks: u32) {
        let (then, known) = &self.reference;
        let target = rules.extrapolate(known, tick.saturating_sub(*then));
        let off = self.displayed.position.distance(target.position);
        if !is_same_life(&self.displayed, &target) || off > SNAP_DISTANCE {
            self.displayed = target;
            return;
        }
        let Position { x, y } = self.displayed.position;
        let most = 2 * CONVERGENCE_SPEED * ticks.min(100) as i32;
        let position = Position {
            x: x + limited_step(target.position.x - x, most),
            y: y + limited_step(target.position.y - y, most),
        };
        let turn = shortest_turn(self.displayed.heading, target.heading);
        let heading =
            self.displayed.heading.wrapping_add_signed(turn.clamp(-CONVERGENCE_TURN_RATE, CONVERGENCE_TURN_RATE));
        self.displayed = Avatar { position, heading, ..target };
    }
}

/// Whether two are the same avatar between two falls.
fn is_same_life(one: &Avatar, other: &Avatar) -> bool {
    one.spawn_count == other.spawn_count && one.life == other.life
}

/// As much of a way, in parts of a unit, as so many units are.
fn limited_step(way: i32, units: i32) -> i32 {
    way.clamp(-units * UNIT, units * UNIT)
}
