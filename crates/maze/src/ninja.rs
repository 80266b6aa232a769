//! Ninjas: avatars played by software, as in MiMaze. They chase the nearest other avatar through the maze, shoot at it
//! when they see it, and wander while they know of no living avatar.
//!
//! They press buttons as a person does. They hold a straight walk for at least 12 ticks, so their paths consist of
//! straight lines and circles; they need time to react, and do not aim perfectly.

use coplay::peer_world::{DeadReckoning, EntityId};

use crate::angle::{QUARTER_TURN, degrees, shortest_turn, sine};
use crate::avatar::{Avatar, Controls};
use crate::avatar::{TURN_RATE, WALK_SPEED};
use crate::direction::MazeCell;
use crate::maze::{CELL_SIZE, Maze};
use crate::path::PathFinder;
use crate::position::{Position, UNIT};
use crate::rng::Rng;
use crate::rules::{AVATAR_RADIUS, FIRE_INTERVAL, MazeRules, SHOT_SPEED};

/// Minimum number of ticks from a plan to the next regular one. A random number of ticks, smaller than this, is added.
const PLAN_INTERVAL: u32 = 30;

/// Largest number of cells that a path search expands.
const MAX_SEARCHED_CELLS: usize = 2_048;

/// Number of waypoints of the route that are checked at a time: the ninja walks straight to the farthest of them with a
/// clear path.
const ROUTE_LOOKAHEAD: usize = 4;

/// Minimum number of ticks of a straight walk or of backing off. A random number of ticks, smaller than this, is added.
const WALK_TICKS: u32 = 12;

/// Longest time for which the ninja turns before it decides again, in ticks.
const MAX_TURN_TICKS: u32 = 40;

/// Turns that take fewer ticks than this are skipped while the ninja follows its route, but not while it aims.
const WALK_TURN_TOLERANCE: u32 = 3;

/// Minimum number of ticks from the target's coming into view until the ninja notices the target. A random number of
/// ticks, smaller than twice this, is added.
const REACTION_TICKS: u32 = 10;

/// Upper limit, exclusive, of the random number of ticks from noticing a target to the earliest shot at it. The delay
/// gives the target a chance.
const MAX_AIM_TICKS: u32 = 80;

/// Distance beyond which the ninja neither notices nor shoots at a target, in units.
const MAX_SHOOTING_DISTANCE: u32 = 2_400;

/// Distance to a noticed target within which the ninja does not decide to approach, in units.
const CLOSE_DISTANCE: u32 = 300;

/// Largest random aiming error to either side, as a difference of headings.
const MAX_AIM_ERROR: u16 = degrees(10);

/// Largest difference between the ninja's heading and the aimed one at which the ninja shoots.
const AIM_TOLERANCE: u16 = degrees(2);

/// Number of ticks between two decisions whether to shoot.
const TRIGGER_INTERVAL: u32 = 4;

/// Ticks after which a ninja counts as stuck if it held forward but moved at most [`STUCK_DISTANCE`] units.
const STUCK_TICKS: u32 = 80;
/// Distance that a walking ninja must exceed within [`STUCK_TICKS`], in units.
const STUCK_DISTANCE: u32 = 24;

/// Distance within which a waypoint counts as reached, in units.
const ARRIVAL_DISTANCE: u32 = 120;

/// Radius of the circle on which an avatar walks while it turns, in units: the circumference times 7/44, which is about
/// 1/(2π).
const TURN_RADIUS: i64 = WALK_SPEED as i64 / UNIT as i64 * (65_536 / TURN_RATE as i64) * 7 / 44;

/// Bot that plays an avatar by choosing the buttons to press in each tick.
#[derive(Clone, Debug)]
pub struct Ninja {
    rng: Rng,
    path_finder: PathFinder,
    /// Cell that the ninja walks to.
    goal: MazeCell,
    /// Cells on the route to the goal that the ninja has not reached yet: the goal first, the next cell last.
    route: Vec<MazeCell>,
    plan_at: u32,
    /// Avatar that the ninja chases; `None` if it knew of no living one at its last plan.
    target: Option<EntityId>,
    /// Tick from which on the ninja has noticed the target; `None` while the target is out of view or too far away.
    noticed_at: Option<u32>,
    /// Buttons that the ninja holds until `held_until`, without fire.
    held_controls: Controls,
    /// Tick in which the ninja decides again which buttons to hold.
    held_until: u32,
    /// Aiming error of the next shot, in headings; negative is to the left.
    aim_error: i32,
    /// Earliest tick in which the next shot can be fired.
    shoot_at: u32,
    /// Tick and position at which the ninja last made progress or did not try to: it had moved more than
    /// [`STUCK_DISTANCE`] units since the progress before, did not hold forward, or was dead.
    last_progress: (u32, Position),
}

impl Ninja {
    /// Creates a ninja. Equal seeds and equal views give equal behaviour.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            aim_error: rng.symmetric(MAX_AIM_ERROR),
            rng,
            path_finder: PathFinder::new(MAX_SEARCHED_CELLS),
            goal: (0, 0),
            route: Vec::new(),
            plan_at: 0,
            target: None,
            noticed_at: None,
            held_controls: Controls::default(),
            held_until: 0,
            shoot_at: 0,
            last_progress: (0, Position::default()),
        }
    }

    /// Returns the buttons that the ninja presses in this tick, given its own avatar and the known states of the other
    /// avatars. `tick` must not decrease from call to call.
    pub fn choose_controls(
        &mut self,
        tick: u32,
        rules: &MazeRules,
        me: &Avatar,
        others: &[(EntityId, Avatar)],
    ) -> Controls {
        if !me.is_alive() {
            self.reset_plan(tick, me);
            return Controls::default();
        }
        if tick >= self.plan_at {
            self.plan(tick, rules, me, others);
        }
        let target = self.find_target(others);
        self.update_noticed(tick, rules, me, target);
        if tick >= self.held_until {
            self.decide_move(tick, rules, me, target);
        }
        Controls { fire: self.should_fire(tick, rules, me, target), ..self.held_controls }
    }

    /// Resets a dead ninja, so that it makes a new plan as soon as it respawns.
    fn reset_plan(&mut self, tick: u32, me: &Avatar) {
        (self.plan_at, self.held_until) = (tick, tick);
        self.noticed_at = None;
        self.last_progress = (tick, me.position);
    }

    /// Chooses the nearest living avatar as the target and finds a path to it. Without a target, finds a path to the
    /// previous goal or, once that is reached, to a random cell.
    fn plan(&mut self, tick: u32, rules: &MazeRules, me: &Avatar, others: &[(EntityId, Avatar)]) {
        self.plan_at = tick.saturating_add(PLAN_INTERVAL + self.rng.below(PLAN_INTERVAL));
        let nearest = nearest_living(&rules.maze, me, others);
        let nearest_id = nearest.map(|(id, _)| id);
        if nearest_id != self.target {
            (self.target, self.noticed_at) = (nearest_id, None);
        }
        let cell = rules.maze.cell_at(me.position);
        if let Some((_, avatar)) = nearest {
            self.goal = rules.maze.cell_at(avatar.position);
        } else if self.goal == cell {
            self.goal = rules.maze.cell_at(rules.maze.spawn_point(self.rng.next_u64()));
        }
        self.route.clear();
        self.route.extend(self.path_finder.find(&rules.maze, cell, self.goal).iter().rev());
    }

    fn find_target<'a>(&self, others: &'a [(EntityId, Avatar)]) -> Option<&'a Avatar> {
        let target = others.iter().find(|(id, _)| Some(*id) == self.target);
        target.map(|(_, avatar)| avatar).filter(|avatar| avatar.is_alive())
    }

    /// Updates the tick in which the ninja notices the target, 10 to 29 ticks after the target came into view, and
    /// allows no shot until a random 0 to 79 ticks later.
    fn update_noticed(&mut self, tick: u32, rules: &MazeRules, me: &Avatar, target: Option<&Avatar>) {
        let in_view = target.is_some_and(|target| {
            me.position.distance(target.position) <= MAX_SHOOTING_DISTANCE
                && rules.maze.has_line_of_sight(me.position, target.position)
        });
        if !in_view {
            self.noticed_at = None;
        } else if self.noticed_at.is_none() {
            let noticed_at = tick.saturating_add(REACTION_TICKS + self.rng.below(2 * REACTION_TICKS));
            self.noticed_at = Some(noticed_at);
            self.shoot_at = self.shoot_at.max(noticed_at.saturating_add(self.rng.below(MAX_AIM_TICKS)));
        }
    }

    fn has_noticed(&self, tick: u32) -> bool {
        self.noticed_at.is_some_and(|at| tick >= at)
    }

    /// Decides which buttons to hold next, and for how many ticks.
    fn decide_move(&mut self, tick: u32, rules: &MazeRules, me: &Avatar, target: Option<&Avatar>) {
        if self.is_stuck(tick, me) {
            self.back_off(tick);
        } else if let Some(target) = target.filter(|_| self.has_noticed(tick)) {
            self.fight(tick, rules, me, target);
        } else {
            self.follow_route(tick, rules, me);
        }
    }

    fn is_stuck(&mut self, tick: u32, me: &Avatar) -> bool {
        let wants_to_walk = self.held_controls.forward;
        if !wants_to_walk || me.position.distance(self.last_progress.1) > STUCK_DISTANCE {
            self.last_progress = (tick, me.position);
        }
        tick.saturating_sub(self.last_progress.0) >= STUCK_TICKS
    }

    /// Walks backwards in a circle to a random side for 12 to 23 ticks, and then plans again.
    fn back_off(&mut self, tick: u32) {
        let left = self.rng.one_in(2);
        let controls = Controls { backward: true, left, right: !left, ..Controls::default() };
        let ticks = self.random_walk_ticks();
        self.hold_controls(tick, controls, ticks);
        self.plan_at = self.held_until;
    }

    /// Turns to where the target will be when a shot gets there, and approaches, retreats or stays.
    fn fight(&mut self, tick: u32, rules: &MazeRules, me: &Avatar, target: &Avatar) {
        let aim = self.aim_heading(rules, me, target);
        let distance = me.position.distance(target.position);
        let (forward, backward) = match self.rng.below(4) {
            _ if distance > 2 * CLOSE_DISTANCE => (true, false),
            0 | 1 if distance > CLOSE_DISTANCE => (true, false),
            2 => (false, true),
            _ => (false, false),
        };
        self.turn_to(tick, me, aim, Controls { forward, backward, ..Controls::default() }, 1);
    }

    /// Returns the heading of a shot: to where the target is when the shot gets there, plus the aiming error.
    fn aim_heading(&self, rules: &MazeRules, me: &Avatar, target: &Avatar) -> u16 {
        let flight = me.position.distance(target.position) / (SHOT_SPEED / UNIT) as u32;
        let predicted = rules.extrapolate(target, flight).position;
        me.position.bearing_to(predicted).wrapping_add_signed(self.aim_error as i16)
    }

    fn should_fire(&mut self, tick: u32, rules: &MazeRules, me: &Avatar, target: Option<&Avatar>) -> bool {
        let Some(target) = target.filter(|_| self.has_noticed(tick)) else { return false };
        if tick < self.shoot_at || !tick.is_multiple_of(TRIGGER_INTERVAL) {
            return false;
        }
        let aimed = shortest_turn(me.heading, self.aim_heading(rules, me, target)).unsigned_abs() <= AIM_TOLERANCE;
        if aimed {
            self.shoot_at = tick.saturating_add(FIRE_INTERVAL + self.rng.below(2 * FIRE_INTERVAL));
            self.aim_error = self.rng.symmetric(MAX_AIM_ERROR);
        }
        aimed
    }

    /// Walks or turns towards the next waypoint of the route. If no waypoint has a clear path, plans again afterwards.
    fn follow_route(&mut self, tick: u32, rules: &MazeRules, me: &Avatar) {
        let next = self.next_waypoint(&rules.maze, me.position);
        let waypoint = next.unwrap_or_else(|| self.fallback_waypoint(&rules.maze, me.position));
        let forward = can_reach_while_turning(me, waypoint);
        self.turn_to(
            tick,
            me,
            me.position.bearing_to(waypoint),
            Controls { forward, ..Controls::default() },
            WALK_TURN_TOLERANCE,
        );
        if next.is_none() {
            self.plan_at = self.held_until;
        }
    }

    /// Drops the next waypoint from the route if it is reached. Then returns the farthest of the next
    /// [`ROUTE_LOOKAHEAD`] waypoints with a clear path, and drops those before it. Returns `None` if none has a clear
    /// path.
    fn next_waypoint(&mut self, maze: &Maze, position: Position) -> Option<Position> {
        if self.route.last().is_some_and(|next| position.distance(maze.cell_centre(*next)) < ARRIVAL_DISTANCE) {
            self.route.pop();
        }
        let farthest = self.route.len().saturating_sub(ROUTE_LOOKAHEAD);
        let clear = |at: &usize| is_path_clear(maze, position, maze.cell_centre(self.route[*at]));
        let next = (farthest..self.route.len()).find(clear)?;
        self.route.truncate(next + 1);
        self.route.last().map(|cell| maze.cell_centre(*cell))
    }

    /// Returns where to walk if no waypoint has a clear path: first to the centre of the present cell, from there to
    /// the next cell of the route.
    fn fallback_waypoint(&self, maze: &Maze, position: Position) -> Position {
        let middle = maze.cell_centre(maze.cell_at(position));
        let next = self.route.last().map(|cell| maze.cell_centre(*cell));
        next.filter(|_| position.distance(middle) < ARRIVAL_DISTANCE).unwrap_or(middle)
    }

    /// Holds the buttons of `walk`, and turns towards `heading` for at most [`MAX_TURN_TICKS`]. If the turn takes fewer
    /// than `tolerance` ticks, only walks.
    fn turn_to(&mut self, tick: u32, me: &Avatar, heading: u16, walk: Controls, tolerance: u32) {
        let turn = shortest_turn(me.heading, heading);
        let ticks = (u32::from(turn.unsigned_abs()) + TURN_RATE as u32 / 2) / TURN_RATE as u32;
        if ticks < tolerance {
            let ticks = self.random_walk_ticks();
            self.hold_controls(tick, walk, ticks);
        } else {
            self.hold_controls(tick, Controls { left: turn < 0, right: turn > 0, ..walk }, ticks.min(MAX_TURN_TICKS));
        }
    }

    fn random_walk_ticks(&mut self) -> u32 {
        WALK_TICKS + self.rng.below(WALK_TICKS)
    }

    fn hold_controls(&mut self, tick: u32, controls: Controls, ticks: u32) {
        self.held_controls = controls;
        self.held_until = tick.saturating_add(ticks);
    }
}

/// Returns the nearest living avatar, where an avatar behind a wall counts as three cells further away.
fn nearest_living<'a>(maze: &Maze, me: &Avatar, others: &'a [(EntityId, Avatar)]) -> Option<(EntityId, &'a Avatar)> {
    let perceived_distance = |avatar: &Avatar| {
        let hidden = if maze.has_line_of_sight(me.position, avatar.position) { 0 } else { 3 * CELL_SIZE as u32 };
        me.position.distance(avatar.position) + hidden
    };
    let living = others.iter().filter(|(_, avatar)| avatar.is_alive());
    living.min_by_key(|(id, avatar)| (perceived_distance(avatar), *id)).map(|(id, avatar)| (*id, avatar))
}

/// Returns whether an avatar can walk straight from one position to another: both its sides must get through.
fn is_path_clear(maze: &Maze, from: Position, to: Position) -> bool {
    let aside = from.bearing_to(to).wrapping_add(QUARTER_TURN);
    let width = (i32::from(AVATAR_RADIUS) - 2) * UNIT;
    [width, -width]
        .into_iter()
        .all(|width| maze.has_line_of_sight(from.moved_along(aside, width), to.moved_along(aside, width)))
}

/// Returns whether the avatar reaches `goal` if it walks while it turns towards it. Otherwise it must turn on the spot,
/// because it would circle the goal for ever.
fn can_reach_while_turning(me: &Avatar, goal: Position) -> bool {
    let turn = shortest_turn(me.heading, me.position.bearing_to(goal)).unsigned_abs();
    let chord = 2 * TURN_RADIUS * i64::from(sine(turn)) / i64::from(crate::angle::TRIG_ONE);
    turn < degrees(80) && i64::from(me.position.distance(goal)) > chord
}
