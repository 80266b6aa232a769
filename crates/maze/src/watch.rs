//! Shots that are known to fly, and whom they hit.
//!
//! As soon as a shot is known it is followed through the ticks that have passed, and from then on tick by tick. Who is followed
//! by a watch is decided by who keeps it: a site without a server for its own avatars, a server for those of its players. Where a shot and
//! an avatar will meet if both go on as they do is [foreseen](Watch::foresee).

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;

use crate::game::MAX_AVATARS;
use crate::rules::{Stretch, shot_reaches};
use crate::{Avatar, Doom, MOST_SHOTS, Position, Rules, SHOT_KEPT, Shot};

/// The most shots of a site that are followed at a time: as many as its avatars can have. So nobody, whatever it says it fired, takes the
/// place of somebody else's.
const MOST_OF_A_SITE: usize = MAX_AVATARS * MOST_SHOTS;
/// The most of all: those of as many shooters as a world has.
const MOST_WATCHED: usize = 16_384 * MOST_SHOTS;

/// Nothing is foreseen further ahead, in ticks.
pub(crate) const FORESIGHT: u8 = 100;

/// Shots, and up to which tick each was followed.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    shots: BTreeMap<(EntityId, u16), Watched>,
}

/// A shot of somebody, and up to which tick it was looked whether it hits anybody.
#[derive(Clone, Copy, Debug)]
struct Watched {
    shot: Shot,
    until: u32,
    /// How far it gets, as soon as somebody asked.
    range: Option<i32>,
}

/// Somebody who can be hit, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Who it is.
    pub entity: EntityId,
    /// As it is in the tick that is judged.
    pub avatar: &'a Avatar,
}

impl Watch {
    /// Forgets what has flown for long.
    pub fn forget_before(&mut self, tick: u32) {
        let oldest = tick.saturating_sub(SHOT_KEPT);
        self.shots.retain(|_, watched| watched.shot.tick >= oldest);
    }

    /// Follows the shots that somebody fired lately.
    pub fn notice(&mut self, tick: u32, by: EntityId, avatar: &Avatar) {
        let lately = tick.saturating_sub(SHOT_KEPT)..=tick;
        for shot in avatar.shots.iter().filter(|shot| lately.contains(&shot.tick)) {
            let key = (by, shot.number);
            if !self.shots.contains_key(&key) && self.has_room(by) {
                self.shots.insert(key, Watched { shot: *shot, until: shot.tick, range: None });
            }
        }
    }

    fn has_room(&self, by: EntityId) -> bool {
        let of = |first: u8, last: u8| {
            let entity = |index| EntityId { site: by.site, index };
            self.shots.range((entity(first), 0)..=(entity(last), u16::MAX)).count()
        };
        let own = of(by.index, by.index);
        own < MOST_SHOTS && of(0, u8::MAX) < MOST_OF_A_SITE && self.shots.len() < MOST_WATCHED
    }

    /// When somebody will be hit within so many ticks after this one, if it goes on as it does.
    pub fn foresee(&self, rules: &Rules, tick: u32, ticks: u8, target: Target<'_>) -> Option<Doom> {
        let is_near = |shot: &Shot| shot_reaches(shot, tick, ticks.into(), target.avatar.position);
        let others = self.shots.iter().filter(|((by, _), watched)| *by != target.entity && is_near(&watched.shot));
        let near: Vec<&Watched> = others.map(|(_, watched)| watched).collect();
        if near.is_empty() || !target.avatar.is_alive() {
            return None;
        }
        let mut ahead = target.avatar.clone();
        (1..=ticks.min(FORESIGHT)).find_map(|left| {
            rules.go_on(&mut ahead);
            let tick = tick + u32::from(left);
            let hits = |watched: &&Watched| {
                let stretch = Stretch::of(&watched.shot, tick).filter(|stretch| stretch.is_near(ahead.position));
                let range = || watched.range.unwrap_or_else(|| rules.range(&watched.shot));
                stretch.is_some_and(|stretch| stretch.meets(&watched.shot, range(), ahead.position))
            };
            near.iter().any(hits).then_some(Doom { tick, left })
        })
    }

    /// Bytes on the heap, roughly.
    pub(crate) fn memory(&self) -> usize {
        self.shots.len() * size_of::<((EntityId, u16), Watched)>()
    }

    /// Who is hit, and by whom, by all that flew up to this tick. `past` is where somebody was in an earlier tick of its present
    /// life. Nobody is hit by its own shots.
    pub fn judge<'a>(
        &mut self,
        rules: &Rules,
        tick: u32,
        targets: impl Iterator<Item = Target<'a>>,
        past: impl Fn(&Target<'a>, u32) -> Option<Position>,
    ) -> Vec<(EntityId, EntityId)> {
        let mut hits = Vec::new();
        let living = targets.filter(|target| target.avatar.is_alive());
        let living: Vec<(Position, Target<'a>)> = living.map(|target| (target.avatar.position, target)).collect();
        for ((by, _), watched) in &mut self.shots {
            let shot = &watched.shot;
            let range = *watched.range.get_or_insert_with(|| rules.range(shot));
            for at in watched.until.max(tick.saturating_sub(SHOT_KEPT)) + 1..=tick {
                let Some(stretch) = Stretch::of(shot, at).filter(|stretch| stretch.is_within(range)) else { continue };
                let then = |now: Position, target: &Target<'a>| if at == tick { Some(now) } else { past(target, at) };
                let is_hit = |(now, target): &&(Position, Target<'a>)| {
                    let place = then(*now, target).filter(|_| target.entity != *by);
                    place.is_some_and(|place| stretch.is_near(place) && stretch.meets(shot, range, place))
                };
                hits.extend(living.iter().filter(is_hit).map(|(_, target)| (target.entity, *by)));
            }
            watched.until = tick;
        }
        hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Maze;

    fn entity(site: u32, index: u8) -> EntityId {
        EntityId { site: coplay::peer_world::WorldSiteId(site), index }
    }

    #[test]
    fn who_makes_up_shots_takes_nobodys_place() {
        let rules = Rules::new(Maze::new(7, 8));
        let victim = rules.newcomer(&[], 1);
        let mut liar = rules.newcomer(&[], 2);
        let mut watch = Watch::default();
        for number in 0..20_000u32 {
            liar.shots.push(Shot { tick: 100, from: liar.position, ..Shot::default() });
            watch.notice(100, entity(1 + number % 3, (number / 3) as u8), &liar);
        }
        assert_eq!(watch.shots.len(), 3 * MOST_OF_A_SITE);
        let mut honest = rules.newcomer(&[], 3);
        honest.shots.push(Shot { tick: 100, from: victim.position, ..Shot::default() });
        watch.notice(100, entity(9, 0), &honest);
        let target = Target { entity: entity(8, 0), avatar: &victim };
        let hits = watch.judge(&rules, 101, [target].into_iter(), |_, _| None);
        assert!(hits.contains(&(entity(8, 0), entity(9, 0))), "{hits:?}");
    }

    #[test]
    fn all_shots_of_who_shoots_as_often_as_it_can_are_followed() {
        let rules = Rules::new(Maze::new(7, 8));
        let (mut avatar, mut watch) = (rules.newcomer(&[], 1), Watch::default());
        let mut followed = std::collections::BTreeSet::new();
        for tick in 0..1_000 {
            rules.step(tick, &mut avatar, crate::Controls { fire: true, ..Default::default() }, &[], 1);
            watch.forget_before(tick);
            watch.notice(tick, entity(1, 0), &avatar);
            followed.extend(watch.shots.keys().map(|(_, number)| *number));
        }
        assert_eq!(followed.len(), usize::from(avatar.shots.fired()));
    }
}
