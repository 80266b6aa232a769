//! The client of one player: simulates the player's own avatar, which obeys at once and synchronises with the server's
//! copy, and keeps the avatars of others and the scores.
//!
//! After Li, Li and Lau: client and server each have a motion timer that measures how long the present buttons have
//! been held. The client's avatar starts at once, the server's when the input arrives, and the client's timer then runs
//! slower, at half speed at the slowest, until both timers agree. Remote avatars are extrapolated from the server's
//! state to the present by the clock. A displayed avatar converges towards that state at a bounded speed, or jumps to
//! it if the error exceeds 400 units.

use std::collections::{BTreeMap, VecDeque};

use coplay::clock::{Clock, RoundTrip};
use coplay::motion::{Consistency, MotionTimer, TimerRate};
use coplay::peer_world::{DeadReckoning, EntityId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::angle::shortest_turn;
use coplay_maze::{Avatar, Controls, Maze, MazeRules, MazeSettings, Position, Score, TURN_RATE, UNIT};

use crate::display_discrepancy::DisplayDiscrepancyProbe;
use crate::own_score::{OwnScoreTracker, ScoreLoss};
use crate::player::DIRECTORY_INTERVAL;
use crate::protocol::{ClientInput, Directory, InputChange, MAX_INPUT_CHANGES, ServerMessage, WorldView, encode_leave};
use crate::server_world::ROWS_PER_DIRECTORY;

/// Length of a world tick.
pub const TICK_DURATION: TimeDelta = TimeDelta::from_millis(10);
/// Interval of input messages to the server. Button changes within one interval are combined.
const INPUT_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Longest time that one call of [`Client::advance`] simulates. After a longer pause, the rest is skipped.
const MAX_CATCH_UP: TimeDelta = TimeDelta::from_millis(500);
/// Time without a server update after which a remote avatar is not displayed any more.
const REMOTE_AVATAR_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_000);
/// Error above which a displayed avatar is corrected at once, in units.
const SNAP_DISTANCE: u32 = 400;
/// Speed per axis at which the displayed position of a remote avatar converges, in units per tick. The avatar's own
/// motion is allowed up to the same speed in addition.
const CONVERGENCE_SPEED: i32 = 8;
/// Largest turn of the displayed heading of a remote avatar per call of [`Client::advance`], in headings.
const CONVERGENCE_TURN_RATE: i16 = 3 * TURN_RATE;
/// Error of our own position up to which the position is not corrected, in units.
const POSITION_TOLERANCE: u32 = 4;
/// Speed per axis at which a larger error of our own position is corrected, in units per tick.
const CORRECTION_SPEED: i32 = 4;
/// Number of our own past positions kept for comparison with the server's.
const PATH_HISTORY_LEN: usize = 128;
/// Largest number of kept scoreboard rows.
const MAX_SCORE_ROWS: usize = 4_096;

/// One player's copy of a world: its own avatar, the avatars that its server shows, and the scoreboard.
pub struct Client {
    /// Random number of this run, by which a server that knows the player from an earlier run tells new input changes
    /// from old ones.
    run: u32,
    name: String,
    world: Option<(MazeSettings, MazeRules)>,
    clock: Clock,
    own_entity: Option<EntityId>,
    local: LocalAvatar,
    others: BTreeMap<EntityId, RemoteAvatar>,
    /// Tick of the newest view, and the time on our clock at which the server sent it.
    last_view: Option<(u32, Instant)>,
    /// Tick in which the server says we joined. If it changes, the server had forgotten us meanwhile.
    joined_tick: Option<u32>,
    last_received: Instant,
    score_tracker: OwnScoreTracker,
    /// Avatar that last hit us, as far as our server knows.
    last_hit_by: Option<EntityId>,
    scoreboard: BTreeMap<EntityId, ScoreRow>,
    mirrors: Vec<String>,
    is_draining: bool,
    next_input: Instant,
    /// Time at which the last input change was sent.
    last_change_sent: Instant,
    last_advance: Instant,
}

#[derive(Debug)]
struct ScoreRow {
    name: String,
    score: Score,
    last_received: Instant,
}

/// Our own avatar and its input.
#[derive(Debug, Default)]
struct LocalAvatar {
    avatar: Option<Avatar>,
    /// Buttons that the player holds down now.
    requested_controls: Controls,
    /// Whether the player has pressed fire since the last input message.
    is_fire_pending: bool,
    /// Buttons in effect, as sent to the server.
    held_controls: Controls,
    change_number: u32,
    motion_timer: MotionTimer,
    /// Elapsed part of the next tick.
    partial_tick: TimeDelta,
    /// Whole ticks since the last input change.
    ticks_held: u32,
    unacknowledged: VecDeque<InputChange>,
    path: VecDeque<PathPoint>,
    /// Remaining correction of our position, the server's position minus ours, in 1/[`UNIT`] units.
    pending_correction: (i32, i32),
    /// Position and heading one tick ago.
    previous: Option<(Position, u16)>,
    probe: DisplayDiscrepancyProbe,
}

/// Our own position, `ticks_held` ticks after an input change.
#[derive(Clone, Copy, Debug)]
struct PathPoint {
    change_number: u32,
    ticks_held: u32,
    position: Position,
}

/// Avatar of another player or of a ninja.
#[derive(Debug)]
struct RemoteAvatar {
    /// Newest state from the server, with its tick.
    reference: (u32, Avatar),
    last_received: Instant,
    displayed: Avatar,
    probe: DisplayDiscrepancyProbe,
}

impl Client {
    /// Creates the client of a player, not yet connected to a server. `run` is a random number that must differ
    /// whenever the same player's program restarts.
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
            score_tracker: OwnScoreTracker::default(),
            last_hit_by: None,
            scoreboard: BTreeMap::new(),
            mirrors: Vec::new(),
            is_draining: false,
            next_input: now,
            last_change_sent: now - INPUT_INTERVAL,
            last_advance: now,
        }
    }

    /// Returns the rules with the maze; `None` before the first directory message.
    pub fn rules(&self) -> Option<&MazeRules> {
        self.world.as_ref().map(|(_, rules)| rules)
    }

    /// Returns the settings of the world; `None` before the first directory message.
    pub fn settings(&self) -> Option<&MazeSettings> {
        self.world.as_ref().map(|(settings, _)| settings)
    }

    /// Returns the entity of this player; `None` before the first view.
    pub fn own_entity(&self) -> Option<EntityId> {
        self.own_entity
    }

    /// Returns our own avatar as displayed; `None` before the first view.
    pub fn avatar(&self) -> Option<&Avatar> {
        self.local.avatar.as_ref()
    }

    /// Returns our position and heading one tick ago and now, and the elapsed part of the next tick, 0 to 1: frames
    /// fall between ticks. `None` before the first view.
    pub fn last_step(&self) -> Option<([(Position, u16); 2], f64)> {
        let now = self.local.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading))?;
        let part = self.local.partial_tick.as_nanos() as f64 / TICK_DURATION.as_nanos() as f64;
        Some(([self.local.previous.unwrap_or(now), now], part))
    }

    /// Returns the remote avatars that the server has shown within the last second, as displayed.
    pub fn others(&self) -> impl Iterator<Item = (EntityId, &Avatar)> {
        self.others.iter().map(|(entity, other)| (*entity, &other.displayed))
    }

    /// Returns our acknowledged hits and falls, the best report of any server. Counts that the servers have lost are
    /// removed after 3 s.
    pub fn score(&self) -> Score {
        self.score_tracker.best()
    }

    /// Returns our hits and falls as last reported by a server. A server that has just started may not know all of
    /// them.
    pub fn reported_score(&self) -> Score {
        self.score_tracker.reported()
    }

    /// Returns the loss of our score that was detected since the last call, if any.
    pub fn poll_score_rollback(&mut self) -> Option<ScoreLoss> {
        self.score_tracker.poll_rollback()
    }

    /// Returns the avatar that last hit us, as far as the present server knows.
    pub fn last_hit_by(&self) -> Option<EntityId> {
        self.last_hit_by
    }

    /// Returns the names and scores of all entities in the recent directory messages.
    pub fn scoreboard(&self) -> impl Iterator<Item = (EntityId, &str, Score)> {
        self.scoreboard.iter().map(|(entity, line)| (*entity, line.name.as_str(), line.score))
    }

    /// Returns the addresses of other servers of this world, from the last directory message.
    pub fn mirrors(&self) -> &[String] {
        &self.mirrors
    }

    /// Returns whether the server asks us to move to another server.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Returns when a new view or directory message of any server last arrived; at first the time of creation.
    pub fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Returns the round-trip time to the server; `None` before it is measured.
    pub fn rtt(&self) -> Option<TimeDelta> {
        self.clock.rtt()
    }

    /// Returns the time by which our avatar's motion timer is ahead of the server's (Td in the paper); negative if it
    /// is behind.
    pub fn lead_time(&self) -> TimeDelta {
        self.local.motion_timer.offset()
    }

    /// Returns the consistency of a displayed avatar: its discrepancy D from the server's state at the same time, over
    /// a [window](crate::CONSISTENCY_WINDOW), against the tolerance [ξ](crate::CONSISTENCY_TOLERANCE), in units times
    /// seconds. `None` if the avatar is not displayed or fewer than two states of the server were compared.
    pub fn consistency(&self, entity: EntityId) -> Option<Consistency> {
        let other = || self.others.get(&entity).map(|other| &other.probe);
        let probe = if self.own_entity == Some(entity) { Some(&self.local.probe) } else { other() };
        probe.and_then(DisplayDiscrepancyProbe::consistency)
    }

    /// Returns the [consistency](Self::consistency) of each displayed avatar for which enough states were compared, our
    /// own first.
    pub fn consistencies(&self) -> impl Iterator<Item = (EntityId, Consistency)> {
        let own = self.own_entity.map(|me| (me, &self.local.probe));
        let others = self.others.iter().map(|(entity, other)| (*entity, &other.probe));
        own.into_iter().chain(others).filter_map(|(entity, probe)| Some((entity, probe.consistency()?)))
    }

    /// Returns the present tick of the world, estimated from the newest view; `None` before the first view.
    pub fn tick(&self, now: Instant) -> Option<u32> {
        let (tick, at) = self.last_view?;
        let since = (now - at).max(TimeDelta::ZERO).as_nanos() / TICK_DURATION.as_nanos();
        Some(tick.saturating_add(since.min(i64::from(u32::MAX / 2)) as u32))
    }

    /// Switches to another server. Resets the clock and the remote avatars, drops the unacknowledged input changes, and
    /// begins a new input change with the held buttons: the new server does not know the earlier changes.
    pub fn on_server_change(&mut self, now: Instant) {
        self.clock = Clock::assuming_crystals();
        // The time of its world may differ, too.
        self.last_view = None;
        self.others.clear();
        (self.joined_tick, self.is_draining, self.next_input) = (None, false, now);
        self.last_hit_by = None;
        self.local.restart_changes(TimeDelta::ZERO);
    }

    /// Sets the buttons that the player presses. They take effect with the next input message, which after a change is
    /// due at once unless the last change was sent less than 40 ms ago.
    pub fn set_controls(&mut self, now: Instant, controls: Controls) {
        self.local.is_fire_pending |= controls.fire;
        self.local.requested_controls = controls;
        if controls != self.local.held_controls {
            self.next_input = self.next_input.min(self.last_change_sent + INPUT_INTERVAL).max(now);
        }
    }

    /// Processes a datagram from the server. Returns `false` for pongs, invalid messages, and views that are outdated
    /// or of another run.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> bool {
        let is_new = match ServerMessage::from_bytes(bytes, self.world.as_ref().map(|(_, rules)| rules)) {
            Some(ServerMessage::Directory(directory)) => self.on_directory(now, directory),
            Some(ServerMessage::View(view)) => self.on_view(now, view),
            Some(ServerMessage::Pong(_)) | None => false,
        };
        if is_new {
            self.last_received = now;
        }
        is_new
    }

    fn on_directory(&mut self, now: Instant, directory: Directory) -> bool {
        let settings = directory.settings;
        if self.world.as_ref().is_none_or(|(known, _)| *known != settings) {
            self.world = Some((settings, MazeRules::new(Maze::new(settings.seed, settings.cells_per_side))));
        }
        self.mirrors = directory.mirrors;
        for (entity, name, score) in directory.score_rows {
            if self.scoreboard.len() < MAX_SCORE_ROWS || self.scoreboard.contains_key(&entity) {
                self.scoreboard.insert(entity, ScoreRow { name, score, last_received: now });
            }
        }
        // A row that is missing from four rounds of directory messages is gone.
        let round = DIRECTORY_INTERVAL * (self.scoreboard.len() / ROWS_PER_DIRECTORY + 1) as i64;
        self.scoreboard.retain(|_, row| now - row.last_received < round * 4 + TimeDelta::from_secs(1));
        true
    }

    fn on_view(&mut self, now: Instant, view: WorldView) -> bool {
        // An earlier run of this player had another clock and other input changes.
        if view.run != self.run {
            return false;
        }
        let [sent, received, answered] = view.echo;
        self.clock.on_round_trip(RoundTrip { sent, received, answered, returned: now });
        // Time at which the server sent the view, or `now` while the clock is not synchronised yet.
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
                let (displayed, probe) = (avatar.clone(), DisplayDiscrepancyProbe::default());
                self.others.insert(
                    entity,
                    RemoteAvatar { reference: (view.tick, avatar), last_received: now, displayed, probe },
                );
            }
        }
        true
    }

    /// Moves our own avatar up to `now`, by 500 ms at most after a pause, and the displayed remote ones towards their
    /// states extrapolated to `now`. Records the displayed positions for [`consistency`](Self::consistency).
    pub fn advance(&mut self, now: Instant) {
        let elapsed = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        let Some((_, rules)) = &self.world else { return };
        let ticks = (elapsed.as_nanos() / TICK_DURATION.as_nanos()).max(1) as u32;
        for other in self.others.values_mut() {
            other.converge(rules, tick, ticks);
        }
        let living = self.others.values().filter(|other| other.displayed.is_alive());
        let obstacles: Vec<Position> = living.map(|other| other.displayed.position).collect();
        self.local.advance(rules, tick, elapsed, &obstacles);
        if self.last_view.is_some() {
            self.record_displayed(tick);
        }
    }

    /// Records the displayed state of all avatars at a tick.
    fn record_displayed(&mut self, tick: u32) {
        for other in self.others.values_mut() {
            other.probe.on_displayed(tick, &other.displayed);
        }
        if let Some(avatar) = &self.local.avatar {
            self.local.probe.on_displayed(tick, avatar);
        }
    }

    /// Moves only our own avatar up to `now`, without regard to other avatars: for bots that do not look at them. The
    /// server's state corrects the errors.
    pub fn advance_local(&mut self, now: Instant) {
        let elapsed = self.elapse(now);
        let tick = self.tick(now).unwrap_or_default();
        if let Some((_, rules)) = &self.world {
            self.local.advance(rules, tick, elapsed, &[]);
        }
    }

    /// Returns the time elapsed since the last call, at most [`MAX_CATCH_UP`], and drops expired remote avatars.
    fn elapse(&mut self, now: Instant) -> TimeDelta {
        let elapsed = (now - self.last_advance).max(TimeDelta::ZERO).min(MAX_CATCH_UP);
        self.last_advance = self.last_advance.max(now);
        self.others.retain(|_, other| now - other.last_received < REMOTE_AVATAR_TIMEOUT);
        elapsed
    }

    /// Returns the next input message for the server, if it is due.
    pub fn poll_input(&mut self, now: Instant) -> Option<Vec<u8>> {
        if now < self.next_input {
            return None;
        }
        self.next_input = (self.next_input + INPUT_INTERVAL).max(now + INPUT_INTERVAL / 2);
        let delay = self.clock.rtt_min().unwrap_or_default() / 2;
        if self.local.commit_controls(delay) {
            self.last_change_sent = now;
        }
        let changes = self.local.unacknowledged.iter().copied().collect();
        Some(ClientInput { stamp: now, run: self.run, name: self.name.clone(), changes }.to_bytes())
    }

    /// Encodes the goodbye to the server. The caller sends it several times, because each copy may be lost.
    pub fn leave_message(&self) -> Vec<u8> {
        encode_leave(self.run)
    }

    /// Returns when the next input message is due.
    pub fn poll_timeout(&self) -> Instant {
        self.next_input
    }
}

impl LocalAvatar {
    /// Puts the requested buttons into effect, which reach the server after `delay`. Returns whether this began an
    /// input change: if the buttons differ from the held ones, and at the first call.
    fn commit_controls(&mut self, delay: TimeDelta) -> bool {
        let requested =
            Controls { fire: self.requested_controls.fire || self.is_fire_pending, ..self.requested_controls };
        self.is_fire_pending = false;
        let is_new = requested != self.held_controls || self.change_number == 0;
        if is_new {
            self.begin_change(requested, delay);
        }
        is_new
    }

    /// Begins an input change, which reaches the server after `delay`.
    fn begin_change(&mut self, controls: Controls, delay: TimeDelta) {
        let previous_held_ticks = self.ticks_held;
        self.change_number = self.change_number.saturating_add(1);
        if self.unacknowledged.len() == MAX_INPUT_CHANGES {
            self.unacknowledged.pop_front();
        }
        self.unacknowledged.push_back(InputChange { number: self.change_number, previous_held_ticks, controls });
        self.held_controls = controls;
        self.ticks_held = 0;
        self.motion_timer =
            MotionTimer::new(self.partial_tick, delay + self.motion_timer.offset().max(TimeDelta::ZERO));
    }

    /// Compares our displayed avatar with the server's state of a tick. `at` is the time of that tick on our clock.
    fn record_discrepancy(&mut self, at: Instant, tick: u32, reference: &Avatar) {
        let is_same = self.avatar.as_ref().is_some_and(|own| is_same_life(own, reference));
        self.probe.on_reference(at, tick, reference, is_same);
    }

    /// Restarts the input changes for a server that does not know the earlier ones.
    fn restart_changes(&mut self, delay: TimeDelta) {
        self.unacknowledged.clear();
        self.path.clear();
        self.probe.reset();
        (self.ticks_held, self.motion_timer) = (0, MotionTimer::default());
        self.begin_change(self.held_controls, delay);
    }

    /// Reconciles our avatar with the server's state, which is `age` old. In that state, the input change `number` had
    /// been in effect on the server for `ticks` ticks.
    fn reconcile(&mut self, rules: &MazeRules, avatar: Avatar, (number, ticks): (u32, u32), age: TimeDelta) {
        self.unacknowledged.retain(|change| change.number > number);
        if !self.avatar.as_ref().is_some_and(|own| is_same_life(own, &avatar)) {
            self.avatar =
                Some(rules.extrapolate(&avatar, (age.as_nanos() / TICK_DURATION.as_nanos()).clamp(0, 100) as u32));
            self.pending_correction = (0, 0);
            self.path.clear();
            self.previous = None;
            return;
        }
        if number == self.change_number {
            let server_timer = TICK_DURATION * i64::from(ticks) + age;
            self.motion_timer.set_offset(self.motion_timer.value() - server_timer);
            self.avatar.iter_mut().for_each(|own| own.shots = avatar.shots.clone());
        }
        let past = self.path.iter().find(|point| (point.change_number, point.ticks_held) == (number, ticks));
        if let Some(past) = past.copied() {
            self.begin_correction(past.position, avatar.position);
        }
    }

    fn begin_correction(&mut self, ours: Position, reference: Position) {
        self.pending_correction = (reference.x - ours.x, reference.y - ours.y);
        let error = ours.distance(reference);
        if error <= POSITION_TOLERANCE {
            self.pending_correction = (0, 0);
        } else if error > SNAP_DISTANCE {
            let (x, y) = std::mem::take(&mut self.pending_correction);
            self.translate(x, y);
        }
    }

    /// Moves our avatar and all its past positions by (`x`, `y`), in 1/[`UNIT`] units.
    fn translate(&mut self, x: i32, y: i32) {
        let past = self.path.iter_mut().map(|point| &mut point.position);
        for position in past.chain(self.avatar.as_mut().map(|avatar| &mut avatar.position)) {
            *position = Position { x: position.x + x, y: position.y + y };
        }
    }

    fn advance(&mut self, rules: &MazeRules, tick: u32, elapsed: TimeDelta, obstacles: &[Position]) {
        self.partial_tick += self.motion_timer.advance(elapsed, TimerRate::OURS);
        while self.partial_tick >= TICK_DURATION {
            self.partial_tick -= TICK_DURATION;
            self.ticks_held += 1;
            self.previous = self.avatar.as_ref().map(|avatar| (avatar.position, avatar.heading));
            self.apply_correction();
            let Some(avatar) = &mut self.avatar else { continue };
            // The server decides when and where a dead avatar respawns.
            if avatar.is_alive() {
                rules.step(tick, avatar, self.held_controls, obstacles, 0);
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

    /// Applies one tick's share of the pending correction.
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
    /// Moves the displayed avatar towards the state extrapolated to `tick`: per axis by at most twice
    /// [`CONVERGENCE_SPEED`] for each of `ticks` ticks, at most 100. Snaps to that state in a new life, or if the error
    /// exceeds [`SNAP_DISTANCE`].
    fn converge(&mut self, rules: &MazeRules, tick: u32, ticks: u32) {
        let (reference_tick, state) = &self.reference;
        let target = rules.extrapolate(state, tick.saturating_sub(*reference_tick));
        let error = self.displayed.position.distance(target.position);
        if !is_same_life(&self.displayed, &target) || error > SNAP_DISTANCE {
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

/// Returns whether two states of an avatar belong to the same life, and are both alive or both dead.
fn is_same_life(one: &Avatar, other: &Avatar) -> bool {
    one.spawn_count == other.spawn_count && one.life == other.life
}

/// Limits a distance, in 1/[`UNIT`] units, to at most `units` units in either direction.
fn limited_step(distance: i32, units: i32) -> i32 {
    distance.clamp(-units * UNIT, units * UNIT)
}
