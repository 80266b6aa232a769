//! The client of one player: a [motion client](MotionClient) that commands the player's own avatar and follows those of
//! others, beside the scores and everything else that the server reports.
//!
//! After Li, Li and Lau: the own avatar obeys at once. The buttons pressed within 50 ms are combined into one command,
//! with which the server's reference simulator starts when it arrives; the own avatar runs slower, at half speed at the
//! slowest, until both agree. The avatars of others follow the motion timers of their reference simulators: they start
//! when the command arrives here, and run up to four times as fast until they have caught up.

use std::collections::BTreeMap;
use std::sync::Arc;

use coplay::motion::{Consistency, MotionClient};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Maze, MazeRules, MazeSettings, Position, RecentShots, SHOT_RETENTION, Score};

use crate::avatar_motion::{AvatarPredictor, Steering, entity_of, motion_config, object_of};
use crate::own_score::{OwnScoreTracker, ScoreLoss};
use crate::player::DIRECTORY_INTERVAL;
use crate::protocol::{
    ClientInput, Directory, MAX_MESSAGE_LEN, ROWS_PER_DIRECTORY, ServerMessage, TICK_DURATION, WorldView, encode_leave,
};

/// Interval of input messages to the server, if no command is due.
const INPUT_INTERVAL: TimeDelta = TimeDelta::from_millis(40);
/// Time without a server update after which a remote avatar is not displayed any more. The server reports each avatar
/// at least once per second.
const REMOTE_AVATAR_TIMEOUT: TimeDelta = TimeDelta::from_millis(2_500);
/// Time for which our avatar stands at least when another one is in its way.
const BLOCKED_TIME: TimeDelta = TimeDelta::from_millis(200);
/// Distance within which other avatars are obstacles, in units.
const COLLISION_RANGE: u32 = 256;
/// Time beyond a round trip after which a shot that the server has not confirmed is not displayed any more, in ticks.
const SHOT_CONFIRMATION_TICKS: u32 = 30;
/// Largest number of kept scoreboard rows.
const MAX_SCORE_ROWS: usize = 4_096;
/// Largest number of avatars whose shots are kept.
const MAX_SHOOTERS: usize = 4_096;

/// One player's copy of a world: its own avatar, the avatars that its server shows, and the scoreboard.
pub struct Client {
    /// Random number of this run, by which a server tells it from an earlier run of the player.
    run: u32,
    name: String,
    world: Option<KnownWorld>,
    /// Number of the present connection to a server, as an incarnation of the motion client.
    connection: u32,
    own_entity: Option<EntityId>,
    /// Our own avatar as displayed.
    own: Option<Avatar>,
    /// Remote avatars as displayed.
    others: BTreeMap<EntityId, Avatar>,
    /// Recent shots of all avatars that have any, as the server reports them; our own also as displayed before that.
    shots: BTreeMap<EntityId, RecentShots>,
    /// Buttons that the player holds down now.
    requested_controls: Controls,
    /// Whether the player has pressed fire since the last command.
    is_fire_pending: bool,
    /// Time since which another avatar is in the way of ours.
    blocked_since: Option<Instant>,
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
}

/// State of the client that needs the settings of the world.
struct KnownWorld {
    settings: MazeSettings,
    rules: Arc<MazeRules>,
    motion: MotionClient<AvatarPredictor>,
}

#[derive(Debug)]
struct ScoreRow {
    name: String,
    score: Score,
    last_received: Instant,
}

impl KnownWorld {
    fn new(now: Instant, settings: MazeSettings, connection: u32) -> Self {
        let rules = Arc::new(MazeRules::new(Maze::new(settings.seed, settings.cells_per_side)));
        let motion = MotionClient::new(now, motion_config(connection), AvatarPredictor { rules: rules.clone() });
        let mut motion = motion.expect("the settings are constants within their bounds");
        motion.follow_shown_objects();
        Self { settings, rules, motion }
    }

    fn steering(&self, entity: EntityId) -> Option<Steering> {
        self.motion.vector(object_of(entity)).copied()
    }

    /// Returns an avatar as displayed, without its shots; `None` if its state is not known.
    fn displayed(&self, entity: EntityId) -> Option<Avatar> {
        let state = self.motion.displayed(object_of(entity))?;
        Some(state.avatar(self.steering(entity)?, RecentShots::default()))
    }
}

impl Client {
    /// Creates the client of a player, not yet connected to a server. `run` is a random number that must differ
    /// whenever the same player's program restarts.
    pub fn new(now: Instant, name: &str, run: u32) -> Self {
        Self {
            run,
            name: name.into(),
            world: None,
            connection: 1,
            own_entity: None,
            own: None,
            others: BTreeMap::new(),
            shots: BTreeMap::new(),
            requested_controls: Controls::default(),
            is_fire_pending: false,
            blocked_since: None,
            last_view: None,
            joined_tick: None,
            last_received: now,
            score_tracker: OwnScoreTracker::default(),
            last_hit_by: None,
            scoreboard: BTreeMap::new(),
            mirrors: Vec::new(),
            is_draining: false,
            next_input: now,
        }
    }

    /// Returns the rules with the maze; `None` before the first directory message.
    pub fn rules(&self) -> Option<&MazeRules> {
        self.world.as_ref().map(|world| &*world.rules)
    }

    /// Returns the settings of the world; `None` before the first directory message.
    pub fn settings(&self) -> Option<&MazeSettings> {
        self.world.as_ref().map(|world| &world.settings)
    }

    /// Returns the entity of this player; `None` before the first view.
    pub fn own_entity(&self) -> Option<EntityId> {
        self.own_entity
    }

    /// Returns our own avatar as displayed; `None` before its first state.
    pub fn avatar(&self) -> Option<&Avatar> {
        self.own.as_ref()
    }

    /// Returns our position and heading in the present tick and, if nothing changes, in the next one, and the elapsed
    /// part of the tick, 0 to 1: frames fall between ticks. `None` before the first state of our avatar.
    pub fn last_step(&self) -> Option<([(Position, u16); 2], f64)> {
        let (world, entity, own) = (self.world.as_ref()?, self.own_entity?, self.own.as_ref()?);
        let present = (own.position, own.heading);
        let next = world.rules.walked(present, own.speed, own.turn_rate);
        let part = world.motion.displayed(object_of(entity))?.partial_tick;
        Some(([present, next], part.as_nanos() as f64 / TICK_DURATION.as_nanos() as f64))
    }

    /// Returns the remote avatars that the server has shown lately, as displayed.
    pub fn others(&self) -> impl Iterator<Item = (EntityId, &Avatar)> {
        self.others.iter().map(|(entity, other)| (*entity, other))
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
        self.world.as_ref()?.motion.clock().rtt()
    }

    /// Returns the time by which our avatar's motion timer is ahead of the server's (Td in the paper); negative if it
    /// is behind.
    pub fn lead_time(&self) -> TimeDelta {
        let own = self.world.as_ref().zip(self.own_entity);
        let timer = own.and_then(|(world, entity)| world.motion.timer(object_of(entity)));
        timer.map_or(TimeDelta::ZERO, |timer| timer.offset())
    }

    /// Returns the consistency of a displayed avatar: its discrepancy D from the server's reference simulator, over a
    /// [window](crate::CONSISTENCY_WINDOW), against the tolerance [ξ](crate::CONSISTENCY_TOLERANCE), in units times
    /// seconds. `None` if the avatar is not displayed or nothing was compared yet.
    pub fn consistency(&self, entity: EntityId) -> Option<Consistency> {
        let consistency = self.world.as_ref()?.motion.consistency(object_of(entity))?;
        (consistency.duration > TimeDelta::ZERO).then_some(consistency)
    }

    /// Returns the [consistency](Self::consistency) of each displayed avatar, our own first.
    pub fn consistencies(&self) -> impl Iterator<Item = (EntityId, Consistency)> {
        let all = self.own_entity.into_iter().chain(self.others.keys().copied());
        all.filter_map(|entity| Some((entity, self.consistency(entity)?)))
    }

    /// Returns the present tick of the world, estimated from the newest view; `None` before the first view.
    pub fn tick(&self, now: Instant) -> Option<u32> {
        let (tick, at) = self.last_view?;
        let since = (now - at).max(TimeDelta::ZERO).as_nanos() / TICK_DURATION.as_nanos();
        Some(tick.saturating_add(since.min(i64::from(u32::MAX / 2)) as u32))
    }

    /// Switches to another server. Resets the clock and the remote avatars. Our own avatar moves on until the new
    /// server has sent its state.
    pub fn on_server_change(&mut self, now: Instant) {
        // The time of its world may differ, too.
        self.last_view = None;
        (self.joined_tick, self.is_draining, self.next_input) = (None, false, now);
        self.last_hit_by = None;
        self.restart_motion(now);
    }

    /// Begins a new connection of the motion client, to a server that knows nothing of the earlier ones.
    fn restart_motion(&mut self, now: Instant) {
        self.connection = self.connection.saturating_add(1);
        self.world.iter_mut().for_each(|world| world.motion.change_server(now, self.connection));
        self.others.clear();
    }

    /// Sets the buttons that the player presses. They take effect at once.
    pub fn set_controls(&mut self, now: Instant, controls: Controls) {
        self.is_fire_pending |= controls.fire;
        self.requested_controls = controls;
        self.command_avatar(now);
    }

    /// Commands our avatar if the buttons, or what is in its way, differ from its last command.
    fn command_avatar(&mut self, now: Instant) {
        let (Some(world), Some(entity)) = (&mut self.world, self.own_entity) else { return };
        let Some(present) = world.steering(entity) else { return };
        // A command that is due must be sent before another one begins the next interval.
        if world.motion.is_command_due(now) {
            return;
        }
        let fire = self.requested_controls.fire || self.is_fire_pending;
        let controls = Controls { fire, ..self.requested_controls };
        let is_blocked = self.blocked_since.is_some() && controls.speed() != 0;
        let steering = Steering { controls, is_blocked };
        self.is_fire_pending = false;
        if steering != present {
            world.motion.command(now, object_of(entity), steering);
        }
    }

    /// Processes a datagram from the server. Returns `false` for pongs, invalid messages, and views that are outdated
    /// or of another run.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) -> bool {
        ServerMessage::from_bytes(bytes).is_some_and(|message| self.handle_message(now, message))
    }

    /// Processes a message from the server, like [`handle_datagram`](Self::handle_datagram).
    pub fn handle_message(&mut self, now: Instant, message: ServerMessage) -> bool {
        let is_new = match message {
            ServerMessage::Directory(directory) => self.on_directory(now, directory),
            ServerMessage::View(view) => self.on_view(now, &view),
            ServerMessage::Pong(_) => false,
        };
        if is_new {
            self.last_received = now;
        }
        is_new
    }

    fn on_directory(&mut self, now: Instant, directory: Directory) -> bool {
        let settings = directory.settings;
        if self.world.as_ref().is_none_or(|known| known.settings != settings) {
            self.world = Some(KnownWorld::new(now, settings, self.connection));
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

    fn on_view(&mut self, now: Instant, view: &WorldView) -> bool {
        // An earlier run of this player had other commands.
        if view.run != self.run || self.world.is_none() {
            return false;
        }
        let is_new = self.last_view.is_none_or(|(tick, _)| tick <= view.tick);
        if is_new && self.joined_tick.replace(view.joined_tick).is_some_and(|before| before != view.joined_tick) {
            self.restart_motion(now);
        }
        if self.joined_tick != Some(view.joined_tick) {
            return false;
        }
        self.on_motion(now, view);
        if is_new {
            self.on_newest_view(now, view);
        }
        is_new
    }

    fn on_motion(&mut self, now: Instant, view: &WorldView) {
        let Some(world) = &mut self.world else { return };
        if self.own_entity.is_some_and(|before| before != view.own_entity) {
            (self.own, self.blocked_since) = (None, None);
        }
        self.own_entity = Some(view.own_entity);
        world.motion.own(object_of(view.own_entity));
        if !view.motion.is_empty() {
            world.motion.handle_datagram(now, &view.motion);
        }
        while world.motion.poll_event().is_some() {}
        self.command_avatar(now);
    }

    fn on_newest_view(&mut self, now: Instant, view: &WorldView) {
        // Time at which the server sent the view, or `now` while the clock is not synchronised yet.
        let clock = self.world.as_ref().map(|world| world.motion.clock());
        let at = clock.and_then(|clock| clock.to_local(view.sent_at)).unwrap_or(now).min(now);
        self.last_view = Some((view.tick, at));
        (self.is_draining, self.last_hit_by) = (view.is_draining, view.last_hit_by);
        self.score_tracker.on_reported(now, view.tick, view.score);
        for (entity, shots) in &view.shots {
            if *entity != view.own_entity || self.is_confirmation(now, shots) {
                self.set_shots(*entity, shots.clone());
            }
        }
    }

    fn set_shots(&mut self, entity: EntityId, shots: RecentShots) {
        if self.shots.len() < MAX_SHOOTERS || self.shots.contains_key(&entity) {
            self.shots.insert(entity, shots);
        }
    }

    /// Returns whether the server's report of our shots replaces the displayed ones: it knows all of them, or should by
    /// now.
    fn is_confirmation(&self, now: Instant, shots: &RecentShots) -> bool {
        let Some(shown) = self.own_entity.and_then(|own| self.shots.get(&own)) else { return true };
        let round_trip = self.rtt().unwrap_or_default().as_nanos() / TICK_DURATION.as_nanos();
        let due_after = SHOT_CONFIRMATION_TICKS.saturating_add(u32::try_from(round_trip).unwrap_or_default());
        let due = shown.newest().map_or(0, |shot| shot.tick.saturating_add(due_after));
        shots.last_number().wrapping_sub(shown.last_number()).cast_signed() >= 0
            || self.tick(now).is_some_and(|tick| tick >= due)
    }

    /// Moves all avatars up to `now`. Records the displayed positions for [`consistency`](Self::consistency).
    pub fn advance(&mut self, now: Instant) {
        self.advance_own(now);
        self.update_others(now);
        self.avoid_others(now);
    }

    /// Moves the avatars up to `now`, but does not update [`others`](Self::others), and lets only the server stop our
    /// avatar before another one: for bots that do not look at them.
    pub fn advance_local(&mut self, now: Instant) {
        self.advance_own(now);
    }

    fn advance_own(&mut self, now: Instant) {
        self.command_avatar(now);
        let tick = self.tick(now).unwrap_or_default();
        let (Some(world), Some(entity)) = (&mut self.world, self.own_entity) else { return };
        world.motion.advance(now);
        let Some(mut own) = world.displayed(entity) else { return };
        own.shots = self.shots.get(&entity).cloned().unwrap_or_default();
        if world.steering(entity).is_some_and(|steering| steering.controls.fire) {
            // The shot is displayed at once; the server confirms it.
            world.rules.fire(tick, &mut own);
            self.set_shots(entity, own.shots.clone());
        }
        self.own = Some(own);
    }

    fn update_others(&mut self, now: Instant) {
        let tick = self.tick(now).unwrap_or_default();
        let (Some(world), own_entity) = (&mut self.world, self.own_entity) else { return };
        let motion = &mut world.motion;
        let is_silent = |object| motion.last_update_at(object).is_some_and(|at| now - at >= REMOTE_AVATAR_TIMEOUT);
        let remote = motion.objects().filter(|object| entity_of(*object) != own_entity);
        let (silent, shown): (Vec<_>, Vec<_>) = remote.partition(|object| is_silent(*object));
        silent.into_iter().for_each(|object| motion.unsubscribe(object));
        self.others.clear();
        for entity in shown.into_iter().filter_map(entity_of) {
            if let Some(mut avatar) = world.displayed(entity) {
                avatar.shots = self.shots.get(&entity).cloned().unwrap_or_default();
                self.others.insert(entity, avatar);
            }
        }
        self.shots.values_mut().for_each(|shots| shots.drop_before(tick.saturating_sub(SHOT_RETENTION)));
        self.shots.retain(|_, shots| shots.newest().is_some());
    }

    /// Stops our avatar before it touches another displayed one, as the server does.
    fn avoid_others(&mut self, now: Instant) {
        let (Some(world), Some(own)) = (&self.world, &self.own) else { return };
        let controls = self.requested_controls;
        let intended = Avatar { speed: controls.speed(), turn_rate: controls.turn_rate(), ..own.clone() };
        let others = self.others.values().filter(|other| other.is_alive());
        let near = others.map(|other| other.position).filter(|other| other.distance(own.position) < COLLISION_RANGE);
        let near: Vec<Position> = near.collect();
        let is_stopped =
            self.own_entity.and_then(|own| world.steering(own)).is_some_and(|steering| steering.is_blocked);
        if own.is_alive() && intended.speed != 0 && world.rules.would_collide(&intended, &near) {
            self.blocked_since = Some(now);
        } else if !own.is_alive() || self.blocked_since.is_some_and(|since| now - since >= BLOCKED_TIME) {
            self.blocked_since = None;
        } else if is_stopped && self.blocked_since.is_none() {
            // The server sees an avatar in the way.
            self.blocked_since = Some(now);
        }
        self.command_avatar(now);
    }

    /// Returns the next input message for the server, if it is due.
    pub fn poll_input(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.command_avatar(now);
        let is_command_due = self.world.as_ref().is_some_and(|world| world.motion.is_command_due(now));
        if now < self.next_input && !is_command_due {
            return None;
        }
        self.next_input = (self.next_input + INPUT_INTERVAL).max(now + INPUT_INTERVAL / 2);
        let mut buf = [0; MAX_MESSAGE_LEN];
        let len = self.world.as_mut().and_then(|world| world.motion.poll_transmit(now, &mut buf)).unwrap_or_default();
        Some(ClientInput { run: self.run, name: self.name.clone(), motion: buf[..len].into() }.to_bytes())
    }

    /// Encodes the goodbye to the server. The caller sends it several times, because each copy may be lost.
    pub fn leave_message(&self) -> Vec<u8> {
        encode_leave(self.run)
    }

    /// Returns when the next input message is due, if the buttons do not change.
    pub fn poll_timeout(&self) -> Instant {
        let combined = self.world.as_ref().and_then(|world| world.motion.next_command_at());
        combined.map_or(self.next_input, |at| at.min(self.next_input))
    }
}
