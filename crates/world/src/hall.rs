//! The reference simulators of one server: the avatars that it owns, tick by tick.
//!
//! Whoever owns an avatar decides what happens to it: where it walks, whether it is hit. Shots ride in the states of those who fired them, so
//! a server hears of them whatever is dropped on the way, and follows them through the ticks that have passed.

use std::collections::{BTreeMap, VecDeque};

use coplay::peer_world::{DeadReckoning, EntityId};
use coplay_maze::{Avatar, Controls, Ninja, Position, Rules, Target, Watch};

use crate::field::{Field, Placed};
use crate::realm::number;

/// Others are told when they would be wrong by more than this, in units, and this often anyway, in ticks.
const TOLERANCE: u32 = 8;
const TELL_EVERY: u32 = 25;
/// Where an avatar was is remembered for so many ticks: a shot of which is heard later than that hits nobody in the past.
const REMEMBERED: usize = 100;
/// Who is further away than this cannot be run into, in units.
const NEAR: u32 = 256;

/// Who moves an avatar.
#[derive(Clone, Debug)]
pub enum Mind {
    /// A player, who presses these buttons.
    Player(Controls),
    /// Software.
    Ninja(Box<Ninja>),
}

/// Something that others must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// One of ours is not where others reckon it to be, or they have not heard of it for a while.
    Moved(EntityId),
    /// One of ours was hit.
    Fell {
        /// Which of ours.
        whom: EntityId,
        /// By whom.
        by: EntityId,
    },
}

/// The avatars that a server owns.
#[derive(Clone, Debug)]
pub struct Hall {
    rules: Rules,
    own: BTreeMap<EntityId, Own>,
    watch: Watch,
}

/// An avatar of ours. As it is now it is in the [`Field`], where all are.
#[derive(Clone, Debug)]
struct Own {
    mind: Mind,
    luck: u64,
    /// As others reckon it to be, and when they were last told.
    told: Avatar,
    told_at: u32,
    /// Where it was, the newest last.
    past: VecDeque<Past>,
}

/// Where an avatar was, and in which of its lives.
#[derive(Clone, Copy, Debug)]
struct Past {
    tick: u32,
    lives: u16,
    is_alive: bool,
    position: Position,
    heading: u16,
}

impl Hall {
    /// Nobody is in it yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, own: BTreeMap::new(), watch: Watch::default() }
    }

    /// The rules that hold.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// An avatar is ours from now on.
    pub fn add(&mut self, tick: u32, entity: EntityId, avatar: Avatar, mind: Mind, field: &mut Field) {
        let luck = number(entity);
        self.own.insert(entity, Own { mind, luck, told: avatar.clone(), told_at: tick, past: VecDeque::new() });
        field.put(entity, avatar);
    }

    /// An avatar is not ours any more.
    pub fn remove(&mut self, entity: EntityId) -> bool {
        self.own.remove(&entity).is_some()
    }

    /// Whether an avatar is ours.
    pub fn has(&self, entity: EntityId) -> bool {
        self.own.contains_key(&entity)
    }

    /// All that are ours.
    pub fn iter(&self) -> impl Iterator<Item = EntityId> {
        self.own.keys().copied()
    }

    /// How many are ours.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// What a player presses from now on. What it walked with the buttons before in so many last ticks is taken back: it had let go of them
    /// by then.
    pub fn press(&mut self, entity: EntityId, controls: Controls, back: u32, field: &mut Field) {
        let Some(own) = self.own.get_mut(&entity) else { return };
        let Mind::Player(pressed) = &mut own.mind else { return };
        *pressed = controls;
        let Some(mut avatar) = field.get(entity).filter(|avatar| avatar.is_alive()).cloned() else { return };
        // Nobody shoots and then was not there.
        let since = own.past.back().map_or(0, |past| past.tick).saturating_sub(back);
        let has_shot = avatar.shots.newest().is_some_and(|shot| shot.tick > since);
        if let Some(then) = own.back(back, avatar.lives).filter(|_| !has_shot) {
            (avatar.position, avatar.heading) = (then.position, then.heading);
            own.past.iter_mut().filter(|past| past.tick > since).for_each(|past| {
                (past.position, past.heading) = (then.position, then.heading);
            });
            field.put(entity, avatar);
        }
    }

    /// A tick passes: everybody moves, and hits are decided. What others must be told of it.
    pub fn step(&mut self, tick: u32, field: &mut Field) -> Vec<Happening> {
        field.go_on(&self.rules, |entity| self.own.contains_key(&entity));
        field.sort();
        self.walk(tick, field);
        let mut happened = self.judge(tick, field);
        for (entity, own) in &mut self.own {
            let Some(avatar) = field.get(*entity) else { continue };
            own.remember(tick, avatar);
            if own.must_tell(&self.rules, tick, avatar) {
                happened.push(Happening::Moved(*entity));
            }
        }
        happened
    }

    fn walk(&mut self, tick: u32, field: &mut Field) {
        let thinks = self.own.values().any(|own| matches!(own.mind, Mind::Ninja(_)));
        let mut everybody: Vec<(EntityId, Avatar)> =
            if thinks { field.iter().map(|(entity, avatar)| (entity, avatar.clone())).collect() } else { Vec::new() };
        for (entity, own) in &mut self.own {
            let Some(mut avatar) = field.get(*entity).cloned() else { continue };
            let controls = match &mut own.mind {
                Mind::Player(controls) => *controls,
                Mind::Ninja(ninja) => think(ninja, tick, &self.rules, (*entity, &avatar), &mut everybody),
            };
            let in_the_way = in_the_way(field, *entity, &avatar);
            self.rules.step(tick, &mut avatar, controls, &in_the_way, own.luck);
            field.put(*entity, avatar);
        }
    }

    /// Looks whether anything that is known to fly hits one of ours, who falls.
    fn judge(&mut self, tick: u32, field: &mut Field) -> Vec<Happening> {
        self.watch.forget_before(tick);
        for (by, avatar) in field.iter().filter(|(_, avatar)| avatar.shots.newest().is_some()) {
            self.watch.notice(tick, by, avatar);
        }
        let own = &self.own;
        let targets = own.keys().filter_map(|entity| Some(Target { entity: *entity, avatar: field.get(*entity)? }));
        let hits = self
            .watch
            .judge(&self.rules, tick, targets, |target, at| own.get(&target.entity)?.place_at(at, target.avatar.lives));
        let mut fallen = Vec::new();
        for (whom, by) in hits {
            // Two shots at once hit once.
            let Some(mut avatar) = field.get(whom).filter(|avatar| avatar.is_alive()).cloned() else { continue };
            self.rules.kill(tick, &mut avatar);
            field.put(whom, avatar);
            fallen.push(Happening::Fell { whom, by });
        }
        fallen
    }
}

/// Those whom an avatar could run into; and when it is to come back, all whom it should stay away from.
fn in_the_way(field: &Field, entity: EntityId, avatar: &Avatar) -> Vec<Position> {
    let near =
        |other: &Placed| other.is_alive && other.entity != entity && other.position.distance(avatar.position) < NEAR;
    match avatar.is_alive() {
        true => field.around(avatar.position, 1).filter(near).map(|other| other.position).collect(),
        false => field.iter().filter(|(other, _)| *other != entity).map(|(_, other)| other.position).collect(),
    }
}

/// What a ninja presses, who sees everybody but itself.
fn think(
    ninja: &mut Ninja,
    tick: u32,
    rules: &Rules,
    (entity, avatar): (EntityId, &Avatar),
    everybody: &mut Vec<(EntityId, Avatar)>,
) -> Controls {
    let Some(at) = everybody.iter().position(|(other, _)| *other == entity) else { return Controls::default() };
    let itself = everybody.swap_remove(at);
    let controls = ninja.think(tick, rules, avatar, everybody);
    everybody.push(itself);
    controls
}

impl Own {
    fn remember(&mut self, tick: u32, avatar: &Avatar) {
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        let Avatar { lives, position, heading, .. } = *avatar;
        self.past.push_back(Past { tick, lives, is_alive: avatar.is_alive(), position, heading });
    }

    /// Where it was at an earlier tick, if that was in this life of its.
    fn place_at(&self, tick: u32, lives: u16) -> Option<Position> {
        let at = self.past.partition_point(|past| past.tick < tick);
        let past = self.past.get(at).filter(|past| past.tick == tick && past.lives == lives && past.is_alive)?;
        Some(past.position)
    }

    /// As it was so many ticks ago, if that was in this life of its; nothing if that is now.
    fn back(&self, ticks: u32, lives: u16) -> Option<Past> {
        let at = self.past.len().checked_sub(1 + ticks as usize).filter(|_| ticks > 0)?;
        self.past.get(at).copied().filter(|past| past.lives == lives && past.is_alive)
    }

    /// Whether others must be told. If so they are, and know it as it is.
    fn must_tell(&mut self, rules: &Rules, tick: u32, avatar: &Avatar) -> bool {
        rules.go_on(&mut self.told);
        let must = rules.distance(&self.told, avatar) > TOLERANCE || tick.saturating_sub(self.told_at) >= TELL_EVERY;
        if must {
            (self.told, self.told_at) = (avatar.clone(), tick);
        }
        must
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::{FINE, Life, Maze, RADIUS, RESPAWN, Shot};

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    fn hall() -> (Hall, Field) {
        (Hall::new(Rules::new(Maze::new(7, 8))), Field::default())
    }

    fn add(hall: &mut Hall, field: &mut Field, number: u32, mind: Mind) {
        let others: Vec<Position> = field.iter().map(|(_, avatar)| avatar.position).collect();
        let avatar = hall.rules().newcomer(&others, number.into());
        hall.add(0, entity(number), avatar, mind, field);
    }

    #[test]
    fn who_goes_on_as_before_is_told_of_seldom() {
        let (mut hall, mut field) = hall();
        add(&mut hall, &mut field, 1, Mind::Player(Controls { forward: true, ..Controls::default() }));
        let told = (1..=200).map(|tick| hall.step(tick, &mut field).len()).sum::<usize>();
        assert!((8..=10).contains(&told), "told {told} times");
    }

    #[test]
    fn what_others_reckon_is_never_far_off() {
        let (mut hall, mut field) = hall();
        (1..=6).for_each(|number| add(&mut hall, &mut field, number, Mind::Ninja(Box::new(Ninja::new(number.into())))));
        // Another server that hears of everything at once.
        let mut mirror = field.clone();
        let (mut told, mut falls) = (0, 0);
        for tick in 1..=3_000 {
            let happened = hall.step(tick, &mut field);
            mirror.go_on(hall.rules(), |_| false);
            for happening in happened {
                match happening {
                    Happening::Moved(entity) => {
                        mirror.put(entity, field.get(entity).unwrap().clone());
                        told += 1;
                    }
                    Happening::Fell { .. } => falls += 1,
                }
            }
            for (entity, avatar) in field.iter() {
                assert!(
                    hall.rules().distance(mirror.get(entity).unwrap(), avatar) <= TOLERANCE,
                    "{entity:?} at {tick}"
                );
            }
        }
        assert!(falls > 3, "{falls} falls");
        assert!(told < 6 * 3_000 / 8, "told {told} times");
    }

    /// Somebody with room behind for somebody else, who looks the same way and fires from there at a tick.
    fn target_and_shooter(hall: &Hall, tick: u32) -> (Avatar, Avatar) {
        let behind = |avatar: &Avatar| avatar.position.along(avatar.heading, -200 * FINE);
        let newcomers = (1..).map(|luck| hall.rules().newcomer(&[], luck));
        let is_free = |avatar: &Avatar| hall.rules().maze.is_free(behind(avatar), RADIUS);
        let target = newcomers.take(1_000).find(is_free).expect("there is room somewhere");
        let mut shooter = Avatar { position: behind(&target), ..target.clone() };
        let from = behind(&target).along(target.heading, 52 * FINE);
        shooter.shots.push(Shot { tick, from, heading: target.heading, number: 0 });
        (target, shooter)
    }

    #[test]
    fn a_shot_that_is_heard_of_late_hits_where_its_target_was() {
        let (mut hall, mut field) = hall();
        let (target, shooter) = target_and_shooter(&hall, 5);
        hall.add(0, entity(1), target, Mind::Player(Controls::default()), &mut field);
        (1..=20).for_each(|tick| _ = hall.step(tick, &mut field));
        field.put(entity(2), shooter);
        let happened = hall.step(21, &mut field);
        assert!(happened.contains(&Happening::Fell { whom: entity(1), by: entity(2) }), "{happened:?}");
        assert_eq!(field.get(entity(1)).unwrap().life, Life::Dead { since: 21 });
        (22..=21 + RESPAWN).for_each(|tick| _ = hall.step(tick, &mut field));
        assert!(field.get(entity(1)).unwrap().is_alive());
    }

    #[test]
    fn however_many_shoot_every_shot_counts() {
        let (mut hall, mut field) = hall();
        let (target, shooter) = target_and_shooter(&hall, 1);
        hall.add(0, entity(1), target.clone(), Mind::Player(Controls::default()), &mut field);
        // Others shoot away from it, as often as anybody can, and all of them are noticed earlier.
        for number in 2..1_002 {
            let mut other = target.clone();
            for tick in 1..=4 {
                let (from, heading) = (Position::default(), 0);
                other.shots.push(Shot { tick, from, heading, number: 0 });
            }
            other.life = Life::Dead { since: 1 };
            field.put(entity(number), other);
        }
        field.put(entity(5_000), shooter);
        let fell = Happening::Fell { whom: entity(1), by: entity(5_000) };
        assert!((2..40).any(|tick| hall.step(tick, &mut field).contains(&fell)));
    }
}
