//! Ninjas: avatars that software plays, as those of MiMaze. They chase the nearest other avatar through the maze, shoot at whoever comes
//! into view, and wander where nobody is known.
//!
//! They press buttons as a person does: one decision is held for a tenth of a second or more, so their ways are made of straight lines and
//! circles; they need a moment to react, and do not aim perfectly.

use coplay::peer_world::{DeadReckoning, EntityId};

use crate::angle::{QUARTER, degrees, short_way, sine};
use crate::avatar::{Avatar, Controls};
use crate::carve::Cell;
use crate::luck::Luck;
use crate::maze::{CELL, Maze};
use crate::place::{FINE, Position};
use crate::rules::{FIRE_EVERY, RADIUS, Rules, SHOT_SPEED, TURN, WALK};
use crate::way::Way;

/// A new way is looked for after so many ticks, and up to as many more.
const PLAN_EVERY: u32 = 30;

/// No more cells than this are looked at for a way.
const MOST_CELLS: usize = 2_048;

/// So many cells of the way are looked at at once: where one can go straight, one does.
const LOOK_AHEAD: usize = 4;

/// A stretch of a walk lasts so many ticks, and up to as many more.
const STRETCH: u32 = 12;

/// The longest turn without another look, in ticks.
const LONGEST_TURN: u32 = 40;

/// On a walk, turns shorter than this are not worth the trouble, in ticks. When aiming they are.
const CARELESS: u32 = 3;

/// It takes so many ticks to notice who comes into view, and up to twice as many more.
const REACTION: u32 = 10;

/// And then up to so many more before the first shot, so that who is attacked has a chance.
const TAKING_AIM: u32 = 80;

/// Who is further away than this, in units, is not shot at.
const SHOOTING_DISTANCE: u32 = 2_400;

/// Who is nearer than this, in units, is near enough.
const CLOSE: u32 = 300;

/// A ninja aims beside its target by up to this.
const AIM_ERROR: u16 = degrees(10);

/// It shoots when it looks where it aims, give or take this.
const AIMED: u16 = degrees(2);

/// Whether to shoot is asked every so many ticks.
const TRIGGER_EVERY: u32 = 4;

/// Ticks after which somebody who wanted to walk should have got somewhere, and how far, in units.
const STUCK_AFTER: u32 = 80;
const STUCK_WITHIN: u32 = 24;

/// A place on the way is reached within so many units.
const REACHED: u32 = 120;

/// The radius of the circle of a walk with a turn, in units: how far it is round, over 2π.
const CIRCLE: i64 = WALK as i64 / FINE as i64 * (65_536 / TURN as i64) * 7 / 44;

/// Software that plays an avatar.
#[derive(Clone, Debug)]
pub struct Ninja {
    luck: Luck,
    way: Way,
    /// Where it goes, and the cells to walk through, the next one last.
    goal: Cell,
    route: Vec<Cell>,
    plan_at: u32,
    /// Whom it chases.
    quarry: Option<EntityId>,
    /// When the quarry will have been noticed, while it is in view.
    noticed_at: Option<u32>,
    /// The buttons that are held, and until when.
    held: Controls,
    held_until: u32,
    /// How far beside its target the next shot goes, and when it can be fired.
    aim_error: i32,
    shoot_at: u32,
    /// Where it was when it last got anywhere.
    anchor: (u32, Position),
}

impl Ninja {
    /// A ninja with a character of its own.
    pub fn new(seed: u64) -> Self {
        let mut luck = Luck::new(seed);
        Self {
            aim_error: luck.about(AIM_ERROR),
            luck,
            way: Way::new(MOST_CELLS),
            goal: (0, 0),
            route: Vec::new(),
            plan_at: 0,
            quarry: None,
            noticed_at: None,
            held: Controls::default(),
            held_until: 0,
            shoot_at: 0,
            anchor: (0, Position::default()),
        }
    }

    /// What it presses in this tick, given its avatar and those of the others it knows of, as it sees them. Ticks grow.
    pub fn think(&mut self, tick: u32, rules: &Rules, me: &Avatar, others: &[(EntityId, Avatar)]) -> Controls {
        if !me.is_alive() {
            self.forget_plans(tick, me);
            return Controls::default();
        }
        if tick >= self.plan_at {
            self.plan(tick, rules, me, others);
        }
        let quarry = self.quarry_of(others);
        self.look(tick, rules, me, quarry);
        if tick >= self.held_until {
            self.decide(tick, rules, me, quarry);
        }
        Controls { fire: self.shoots(tick, rules, me, quarry), ..self.held }
    }

    /// The dead begin anew.
    fn forget_plans(&mut self, tick: u32, me: &Avatar) {
        (self.plan_at, self.held_until) = (tick, tick);
        self.noticed_at = None;
        self.anchor = (tick, me.position);
    }

    /// Chooses whom to chase, and finds the way there; or any way.
    fn plan(&mut self, tick: u32, rules: &Rules, me: &Avatar, others: &[(EntityId, Avatar)]) {
        self.plan_at = tick.saturating_add(PLAN_EVERY + self.luck.below(PLAN_EVERY));
        let nearest = nearest(&rules.maze, me, others);
        let chased = nearest.map(|(id, _)| id);
        if chased != self.quarry {
            (self.quarry, self.noticed_at) = (chased, None);
        }
        let here = rules.maze.cell(me.position);
        if let Some((_, avatar)) = nearest {
            self.goal = rules.maze.cell(avatar.position);
        } else if self.goal == here {
            self.goal = rules.maze.cell(rules.maze.spawn(self.luck.bits()));
        }
        self.route.clear();
        self.route.extend(self.way.find(&rules.maze, here, self.goal).iter().rev());
    }

    fn quarry_of<'a>(&self, others: &'a [(EntityId, Avatar)]) -> Option<&'a Avatar> {
        let quarry = others.iter().find(|(id, _)| Some(*id) == self.quarry);
        quarry.map(|(_, avatar)| avatar).filter(|avatar| avatar.is_alive())
    }

    /// Notices the quarry some time after it came into view.
    fn look(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) {
        let in_view = quarry.is_some_and(|quarry| {
            me.position.distance(quarry.position) <= SHOOTING_DISTANCE && rules.maze.see(me.position, quarry.position)
        });
        if !in_view {
            self.noticed_at = None;
        } else if self.noticed_at.is_none() {
            let noticed_at = tick.saturating_add(REACTION + self.luck.below(2 * REACTION));
            self.noticed_at = Some(noticed_at);
            self.shoot_at = self.shoot_at.max(noticed_at.saturating_add(self.luck.below(TAKING_AIM)));
        }
    }

    fn has_noticed(&self, tick: u32) -> bool {
        self.noticed_at.is_some_and(|at| tick >= at)
    }

    /// What to do next, and for how long.
    fn decide(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) {
        if self.is_stuck(tick, me) {
            self.back_off(tick);
        } else if let Some(quarry) = quarry.filter(|_| self.has_noticed(tick)) {
            self.fight(tick, rules, me, quarry);
        } else {
            self.follow_route(tick, rules, me);
        }
    }

    fn is_stuck(&mut self, tick: u32, me: &Avatar) -> bool {
        let wants_to_walk = self.held.forward;
        if !wants_to_walk || me.position.distance(self.anchor.1) > STUCK_WITHIN {
            self.anchor = (tick, me.position);
        }
        tick.saturating_sub(self.anchor.0) >= STUCK_AFTER
    }

    /// Backwards in a circle, to whichever side, and then another way.
    fn back_off(&mut self, tick: u32) {
        let left = self.luck.one_in(2);
        let controls = Controls { back: true, left, right: !left, ..Controls::default() };
        let ticks = self.stretch();
        self.hold(tick, controls, ticks);
        self.plan_at = self.held_until;
    }

    /// Turns to where the quarry will be, and comes nearer, or keeps away.
    fn fight(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: &Avatar) {
        let aim = self.aim(rules, me, quarry);
        let distance = me.position.distance(quarry.position);
        let (forward, back) = match self.luck.below(4) {
            _ if distance > 2 * CLOSE => (true, false),
            0 | 1 if distance > CLOSE => (true, false),
            2 => (false, true),
            _ => (false, false),
        };
        self.turn_to(tick, me, aim, Controls { forward, back, ..Controls::default() }, 1);
    }

    /// Which way a shot must go: to where the quarry is when it gets there, give or take the error of this ninja's hand.
    fn aim(&self, rules: &Rules, me: &Avatar, quarry: &Avatar) -> u16 {
        let flight = me.position.distance(quarry.position) / (SHOT_SPEED / FINE) as u32;
        let there = rules.extrapolate(quarry, flight).position;
        me.position.bearing(there).wrapping_add_signed(self.aim_error as i16)
    }

    fn shoots(&mut self, tick: u32, rules: &Rules, me: &Avatar, quarry: Option<&Avatar>) -> bool {
        let Some(quarry) = quarry.filter(|_| self.has_noticed(tick)) else { return false };
        if tick < self.shoot_at || !tick.is_multiple_of(TRIGGER_EVERY) {
            return false;
        }
        let aimed = short_way(me.heading, self.aim(rules, me, quarry)).unsigned_abs() <= AIMED;
        if aimed {
            self.shoot_at = tick.saturating_add(FIRE_EVERY + self.luck.below(2 * FIRE_EVERY));
            self.aim_error = self.luck.about(AIM_ERROR);
        }
        aimed
    }

    /// Walks along the route.
    fn follow_route(&mut self, tick: u32, rules: &Rules, me: &Avatar) {
        let next = self.next_place(&rules.maze, me.position);
        let place = next.unwrap_or_else(|| self.way_back(&rules.maze, me.position));
        let forward = is_reached_by_walking(me, place);
        self.turn_to(tick, me, me.position.bearing(place), Controls { forward, ..Controls::default() }, CARELESS);
        if next.is_none() {
            self.plan_at = self.held_until;
        }
    }

    /// The farthest place on the route to which the way is clear; those before it are left out.
    fn next_place(&mut self, maze: &Maze, here: Position) -> Option<Position> {
        if self.route.last().is_some_and(|next| here.distance(maze.middle(*next)) < REACHED) {
            self.route.pop();
        }
        let farthest = self.route.len().saturating_sub(LOOK_AHEAD);
        let clear = |at: &usize| is_clear(maze, here, maze.middle(self.route[*at]));
        let next = (farthest..self.route.len()).find(clear)?;
        self.route.truncate(next + 1);
        self.route.last().map(|cell| maze.middle(*cell))
    }

    /// Where to go if the way to the next place is not clear: the middle of the cell, and from there on.
    fn way_back(&self, maze: &Maze, here: Position) -> Position {
        let middle = maze.middle(maze.cell(here));
        let next = self.route.last().map(|cell| maze.middle(*cell));
        next.filter(|_| here.distance(middle) < REACHED).unwrap_or(middle)
    }

    /// Turns until it looks that way, or keeps straight on if it nearly does.
    fn turn_to(&mut self, tick: u32, me: &Avatar, heading: u16, walk: Controls, careless: u32) {
        let turn = short_way(me.heading, heading);
        let ticks = (u32::from(turn.unsigned_abs()) + TURN as u32 / 2) / TURN as u32;
        if ticks < careless {
            let ticks = self.stretch();
            self.hold(tick, walk, ticks);
        } else {
            self.hold(tick, Controls { left: turn < 0, right: turn > 0, ..walk }, ticks.min(LONGEST_TURN));
        }
    }

    fn stretch(&mut self) -> u32 {
        STRETCH + self.luck.below(STRETCH)
    }

    fn hold(&mut self, tick: u32, controls: Controls, ticks: u32) {
        self.held = controls;
        self.held_until = tick.saturating_add(ticks);
    }
}

/// The nearest of the living; who is behind a wall counts as further away.
fn nearest<'a>(maze: &Maze, me: &Avatar, others: &'a [(EntityId, Avatar)]) -> Option<(EntityId, &'a Avatar)> {
    let way = |avatar: &Avatar| {
        let hidden = if maze.see(me.position, avatar.position) { 0 } else { 3 * CELL as u32 };
        me.position.distance(avatar.position) + hidden
    };
    let living = others.iter().filter(|(_, avatar)| avatar.is_alive());
    living.min_by_key(|(id, avatar)| (way(avatar), *id)).map(|(id, avatar)| (*id, avatar))
}

/// Whether an avatar can walk straight from one place to another: both its sides must get through.
fn is_clear(maze: &Maze, from: Position, to: Position) -> bool {
    let aside = from.bearing(to).wrapping_add(QUARTER);
    let width = (i32::from(RADIUS) - 2) * FINE;
    [width, -width].into_iter().all(|width| maze.see(from.along(aside, width), to.along(aside, width)))
}

/// Whether walking on while turning leads there; if not one must turn on the spot, or would go round it for ever.
fn is_reached_by_walking(me: &Avatar, goal: Position) -> bool {
    let turn = short_way(me.heading, me.position.bearing(goal)).unsigned_abs();
    let chord = 2 * CIRCLE * i64::from(sine(turn)) / i64::from(crate::angle::ONE);
    turn < degrees(80) && i64::from(me.position.distance(goal)) > chord
}
