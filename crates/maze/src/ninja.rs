//! Ninjas: avatars that software plays, as those of MiMaze. They chase the nearest other avatar through the maze, shoot at whoever comes
//! into view, and wander where nobody is known.
//!
//! They press buttons as a person does: one decision is held for a tenth of a second or more, so their ways are made of straight lines and
//! circles; they need a moment to react, and do not aim perfectly.

use coplay::peer_world::{DeadReckoning, EntityId};

use crate::angle::{QUARTER_TURN, degrees, shortest_turn, sine};
use crate::avatar::{Avatar, Controls};
use crate::generate::Cell;
use crate::maze::{CELL_SIZE, Maze};
use crate::path::PathFinder;
use crate::position::{Position, UNIT};
use crate::rng::Rng;
use crate::rules::{AVATAR_RADIUS, FIRE_INTERVAL, Rules, SHOT_SPEED, TURN_RATE, WALK_SPEED};

/// A new way is looked for after so many ticks, and up to as many more.
const PLAN_INTERVAL: u32 = 30;

/// No more cells than this are looked at for a way.
const MAX_SEARCHED_CELLS: usize = 2_048;

/// So many cells of the way are looked at at once: where one can go straight, one does.
const ROUTE_LOOKAHEAD: usize = 4;

/// A stretch of a walk lasts so many ticks, and up to as many more.
const WALK_TICKS: u32 = 12;

/// The longest turn without another look, in ticks.
const MAX_TURN_TICKS: u32 = 40;

/// On a walk, turns shorter than this are not worth the trouble, in ticks. When aiming they are.
const WALK_TURN_TOLERANCE: u32 = 3;

/// It takes so many ticks to notice who comes into view, and up to twice as many more.
const REACTION_TICKS: u32 = 10;

/// And then up to so many more before the first shot, so that who is attacked has a chance.
const MAX_AIM_TICKS: u32 = 80;

/// Who is further away than this, in units, is not shot at.
const MAX_SHOOTING_DISTANCE: u32 = 2_400;

/// Who is nearer than this, in units, is near enough.
const CLOSE_DISTANCE: u32 = 300;

/// A ninja aims beside its target by up to this.
const MAX_AIM_ERROR: u16 = degrees(10);

/// It shoots when it looks where it aims, give or take this.
const AIM_TOLERANCE: u16 = degrees(2);

/// Whether to shoot is asked every so many ticks.
const TRIGGER_INTERVAL: u32 = 4;

/// Ticks after which somebody who wanted to walk should have got somewhere, and how far, in units.
const STUCK_TICKS: u32 = 80;
const STUCK_DISTANCE: u32 = 24;

/// A place on the way is reached within so many units.
const ARRIVAL_DISTANCE: u32 = 120;

/// The radius of the circle of a walk with a turn, in units: how far it is round, over 2π.
const TURN_RADIUS: i64 = WALK_SPEED as i64 / UNIT as i64 * (65_536 / TURN_RATE as i64) * 7 / 44;

/// Software that plays an avatar.
#[derive(Clone, Debug)]
pub struct Ninja {
    rng: Rng,
    path_finder: PathFinder,
    /// Where it goes, and the cells to walk through, the next one last.
    goal: Cell,
    route: Vec<Cell>,
    plan_at: u32,
    /// Whom it chases.
    target: Option<EntityId>,
    /// When the quarry will have been noticed, while it is in view.
    noticed_at: Option<u32>,
    /// The buttons that are held, and until when.
    held_controls: Controls,
    held_until: u32,
    /// How far beside its target the next shot goes, and when it can be fired.
    aim_error: i32,
    shoot_at: u32,
    /// Where it was when it last got anywhere.
    last_progress: (u32, Position),
}

impl Ninja {
    /// A ninja with a character of its own.
    pub fn new(seed: u64) -> Self {
        let mut luck = Rng::new(seed);
        Self {
            aim_error: luck.symmetric(MAX_AIM_ERROR),
            rng: luck,
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

    /// What it presses in this tick, given its avatar and those of the others it knows of, as it sees them. Ticks grow.
    pub fn choose_controls(
        &mut self,
        tick: u32,
        rules: &Rules,
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
        let quarry = self.find_target(others);
        self.update_noticed(tick, rules, me, quarry);
        if tick >= self.held_until {
            self.decide_move(tick, rules, me, quarry);
        }
        Controls { fire: self.should_fire(tick, rules, me, quarry), ..self.held_controls }
    }

    /// The dead begin anew.
    fn reset_plan(&mut self, tick: u32, me: &Avatar) {
        (self.plan_at, self.held_until) = (tick, tick);
        self.noticed_at = None;
        self.last_progress = (tick, me.position);
    }

    /// Chooses whom to chase, and finds the way there; or any way.
    fn plan(&mut self, tick: u32, rules: &Rules, me: &Avatar, others: &[(EntityId, Avatar)]) {
        self.plan_at = tick.saturating_add(PLAN_INTERVAL + self.rng.below(PLAN_INTERVAL));
        let nearest = nearest_living(&rules.maze, me, others);
        let chased = nearest.map(|(id, _)| id);
        if chased != self.target {
            (self.target, self.noticed_at) = (chased, None);
        }
        let here = rules.maze.cell_at(me.position);
        if let Some((_, avatar)) = nearest {
            self.goal = rules.maze.cell_at(avatar.position);
        } else if self.goal == here {
            self.goal = rules.maze.cell_at(rules.maze.spawn_point(self.rng.next_u64()));
        }
        self.route.clear();
        self.route.extend(self.path_finder.find(&rules.maze, here, self.goal).iter().rev());
    }

    fn find_target<'a>(&self, others: &'a [(EntityId, Avatar)]) -> Option<&'a Avatar> {
        let quarry = others.iter().find(|(id, _)| Some(*id) == self.target);
        quarry.map(|(_, avatar)| avatar).filter(|avatar| avatar.is_alive())
    }

    /// Notices the quarry some time after it came into view.
    fn update_noticed(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) {
        let in_view = quarry.is_some_and(|quarry| {
            me.position.distance(quarry.position) <= MAX_SHOOTING_DISTANCE
                && rules.maze.has_line_of_sight(me.position, quarry.position)
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

    /// What to do next, and for how long.
    fn decide_move(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) {
        if self.is_stuck(tick, me) {
            self.back_off(tick);
        } else if let Some(quarry) = quarry.filter(|_| self.has_noticed(tick)) {
            self.fight(tick, rules, me, quarry);
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

    /// Backwards in a circle, to whichever side, and then another way.
    fn back_off(&mut self, tick: u32) {
        let left = self.rng.one_in(2);
        let controls = Controls { backward: true, left, right: !left, ..Controls::default() };
        let ticks = self.random_walk_ticks();
        self.hold_controls(tick, controls, ticks);
        self.plan_at = self.held_until;
    }

    /// Turns to where the quarry will be, and comes nearer, or keeps away.
    fn fight(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: &Avatar) {
        let aim = self.aim_heading(rules, me, quarry);
        let distance = me.position.distance(quarry.position);
        let (forward, back) = match self.rng.below(4) {
            _ if distance > 2 * CLOSE_DISTANCE => (true, false),
            0 | 1 if distance > CLOSE_DISTANCE => (true, false),
            2 => (false, true),
            _ => (false, false),
        };
        self.turn_to(tick, me, aim, Controls { forward, backward: back, ..Controls::default() }, 1);
    }

    /// Which way a shot must go: to where the quarry is when it gets there, give or take the error of this ninja's hand.
    fn aim_heading(&self, rules: &Rules, me: &Avatar, quarry: &Avatar) -> u16 {
        let flight = me.position.distance(quarry.position) / (SHOT_SPEED / UNIT) as u32;
        let there = rules.extrapolate(quarry, flight).position;
        me.position.bearing_to(there).wrapping_add_signed(self.aim_error as i16)
    }

    fn should_fire(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) -> bool {
        let Some(quarry) = quarry.filter(|_| self.has_noticed(tick)) else { return false };
        if tick < self.shoot_at || !tick.is_multiple_of(TRIGGER_INTERVAL) {
            return false;
        }
        let aimed = shortest_turn(me.heading, self.aim_heading(rules, me, quarry)).unsigned_abs() <= AIM_TOLERANCE;
        if aimed {
            self.shoot_at = tick.saturating_add(FIRE_INTERVAL + self.rng.below(2 * FIRE_INTERVAL));
            self.aim_error = self.rng.symmetric(MAX_AIM_ERROR);
        }
        aimed
    }

    /// Walks along the route.
    fn follow_route(&mut self, tick: u32, rules: &Rules, me: &Avatar) {
        let next = self.next_waypoint(&rules.maze, me.position);
        let place = next.unwrap_or_else(|| self.fallback_waypoint(&rules.maze, me.position));
        let forward = can_reach_while_turning(me, place);
        self.turn_to(
            tick,
            me,
            me.position.bearing_to(place),
            Controls { forward, ..Controls::default() },
            WALK_TURN_TOLERANCE,
        );
        if next.is_none() {
            self.plan_at = self.held_until;
        }
    }

    /// The farthest place on the route to which the way is clear; those before it are left out.
    fn next_waypoint(&mut self, maze: &Maze, here: Position) -> Option<Position> {
        if self.route.last().is_some_and(|next| here.distance(maze.cell_centre(*next)) < ARRIVAL_DISTANCE) {
            self.route.pop();
        }
        let farthest = self.route.len().saturating_sub(ROUTE_LOOKAHEAD);
        let clear = |at: &usize| is_path_clear(maze, here, maze.cell_centre(self.route[*at]));
        let next = (farthest..self.route.len()).find(clear)?;
        self.route.truncate(next + 1);
        self.route.last().map(|cell| maze.cell_centre(*cell))
    }

    /// Where to go if the way to the next place is not clear: the middle of the cell, and from there on.
    fn fallback_waypoint(&self, maze: &Maze, here: Position) -> Position {
        let middle = maze.cell_centre(maze.cell_at(here));
        let next = self.route.last().map(|cell| maze.cell_centre(*cell));
        next.filter(|_| here.distance(middle) < ARRIVAL_DISTANCE).unwrap_or(middle)
    }

    /// Turns until it looks that way, or keeps straight on if it nearly does.
    fn turn_to(&mut self, tick: u32, me: &Avatar, heading: u16, walk: Controls, careless: u32) {
        let turn = shortest_turn(me.heading, heading);
        let ticks = (u32::from(turn.unsigned_abs()) + TURN_RATE as u32 / 2) / TURN_RATE as u32;
        if ticks < careless {
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

/// The nearest of the living; who is behind a wall counts as further away.
fn nearest_living<'a>(maze: &Maze, me: &Avatar, others: &'a [(EntityId, Avatar)]) -> Option<(EntityId, &'a Avatar)> {
    let way = |avatar: &Avatar| {
        let hidden = if maze.has_line_of_sight(me.position, avatar.position) { 0 } else { 3 * CELL_SIZE as u32 };
        me.position.distance(avatar.position) + hidden
    };
    let living = others.iter().filter(|(_, avatar)| avatar.is_alive());
    living.min_by_key(|(id, avatar)| (way(avatar), *id)).map(|(id, avatar)| (*id, avatar))
}

/// Whether an avatar can walk straight from one place to another: both its sides must get through.
fn is_path_clear(maze: &Maze, from: Position, to: Position) -> bool {
    let aside = from.bearing_to(to).wrapping_add(QUARTER_TURN);
    let width = (i32::from(AVATAR_RADIUS) - 2) * UNIT;
    [width, -width]
        .into_iter()
        .all(|width| maze.has_line_of_sight(from.moved_along(aside, width), to.moved_along(aside, width)))
}

/// Whether walking on while turning leads there; if not one must turn on the spot, or would go round it for ever.
fn can_reach_while_turning(me: &Avatar, goal: Position) -> bool {
    let turn = shortest_turn(me.heading, me.position.bearing_to(goal)).unsigned_abs();
    let chord = 2 * TURN_RADIUS * i64::from(sine(turn)) / i64::from(crate::angle::TRIG_ONE);
    turn < degrees(80) && i64::from(me.position.distance(goal)) > chord
}
