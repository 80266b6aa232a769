//! Shots that are known to fly, and whom they hit.
//!
//! As soon as a shot is known it is followed through the ticks that have passed, and from then on tick by tick. Who is followed
//! by a watch is decided by who keeps it: a site without a server for its own avatars, a server for those of its players. Where a shot and
//! an avatar will meet if both go on as they do is [foreseen](ProjectileTracker::foresee).

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;

use crate::rules::{ShotSegment, can_shot_reach};
use crate::site::MAX_AVATARS;
use crate::{Avatar, MAX_SHOTS, Position, PredictedFall, Rules, SHOT_RETENTION, Shot};

/// The most shots of a site that are followed at a time: as many as its avatars can have. So nobody, whatever it says it fired, takes the
/// place of somebody else's.
const MAX_SHOTS_PER_SITE: usize = MAX_AVATARS * MAX_SHOTS;
/// The most of all: those of as many shooters as a world has.
const MAX_TRACKED_SHOTS: usize = 16_384 * MAX_SHOTS;

/// Nothing is foreseen further ahead, in ticks.
pub(crate) const MAX_FALL_PREDICTION_TICKS: u8 = 100;

/// Shots, and up to which tick each was followed.
#[derive(Clone, Debug, Default)]
pub struct ProjectileTracker {
    shots: BTreeMap<(EntityId, u16), TrackedShot>,
}

/// A shot of somebody, and up to which tick it was looked whether it hits anybody.
#[derive(Clone, Copy, Debug)]
struct TrackedShot {
    shot: Shot,
    checked_until: u32,
    /// How far it gets, as soon as somebody asked.
    range: Option<i32>,
}

/// Somebody who can be hit, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct HitTarget<'a> {
    /// Who it is.
    pub entity: EntityId,
    /// As it is in the tick that is judged.
    pub avatar: &'a Avatar,
}

impl ProjectileTracker {
    /// Forgets what has flown for long.
    pub fn drop_before(&mut self, tick: u32) {
        let oldest = tick.saturating_sub(SHOT_RETENTION);
        self.shots.retain(|_, watched| watched.shot.tick >= oldest);
    }

    /// Follows the shots that somebody fired lately.
    pub fn track(&mut self, tick: u32, by: EntityId, avatar: &Avatar) {
        let lately = tick.saturating_sub(SHOT_RETENTION)..=tick;
        for shot in avatar.shots.iter().filter(|shot| lately.contains(&shot.tick)) {
            let key = (by, shot.number);
            if !self.shots.contains_key(&key) && self.has_room(by) {
                self.shots.insert(key, TrackedShot { shot: *shot, checked_until: shot.tick, range: None });
            }
        }
    }

    fn has_room(&self, by: EntityId) -> bool {
        let of = |first: u8, last: u8| {
            let entity = |index| EntityId { site: by.site, index };
            self.shots.range((entity(first), 0)..=(entity(last), u16::MAX)).count()
        };
        let own = of(by.index, by.index);
        own < MAX_SHOTS && of(0, u8::MAX) < MAX_SHOTS_PER_SITE && self.shots.len() < MAX_TRACKED_SHOTS
    }

    /// When somebody will be hit within so many ticks after this one, if it goes on as it does.
    pub fn predict_fall(&self, rules: &Rules, tick: u32, ticks: u8, target: HitTarget<'_>) -> Option<PredictedFall> {
        let is_near = |shot: &Shot| can_shot_reach(shot, tick, ticks.into(), target.avatar.position);
        let others = self.shots.iter().filter(|((by, _), watched)| *by != target.entity && is_near(&watched.shot));
        let near: Vec<&TrackedShot> = others.map(|(_, watched)| watched).collect();
        if near.is_empty() || !target.avatar.is_alive() {
            return None;
        }
        let mut ahead = target.avatar.clone();
        (1..=ticks.min(MAX_FALL_PREDICTION_TICKS)).find_map(|left| {
            rules.extrapolate_tick(&mut ahead);
            let tick = tick + u32::from(left);
            let hits = |watched: &&TrackedShot| {
                let stretch =
                    ShotSegment::in_tick(&watched.shot, tick).filter(|stretch| stretch.may_hit(ahead.position));
                let range = || watched.range.unwrap_or_else(|| rules.shot_range(&watched.shot));
                stretch.is_some_and(|stretch| stretch.hits(&watched.shot, range(), ahead.position))
            };
            near.iter().any(hits).then_some(PredictedFall { tick, ticks_left: left })
        })
    }

    /// Bytes on the heap, roughly.
    pub(crate) fn memory(&self) -> usize {
        self.shots.len() * size_of::<((EntityId, u16), TrackedShot)>()
    }

    /// Who is hit, and by whom, by all that flew up to this tick. `past` is where somebody was in an earlier tick of its present
    /// life. Nobody is hit by its own shots.
    pub fn detect_hits<'a>(
        &mut self,
        rules: &Rules,
        tick: u32,
        targets: impl Iterator<Item = HitTarget<'a>>,
        past: impl Fn(&HitTarget<'a>, u32) -> Option<Position>,
    ) -> Vec<(EntityId, EntityId)> {
        let mut hits = Vec::new();
        let living = targets.filter(|target| target.avatar.is_alive());
        let living: Vec<(Position, HitTarget<'a>)> = living.map(|target| (target.avatar.position, target)).collect();
        for ((by, _), watched) in &mut self.shots {
            let shot = &watched.shot;
            let range = *watched.range.get_or_insert_with(|| rules.shot_range(shot));
            for at in watched.checked_until.max(tick.saturating_sub(SHOT_RETENTION)) + 1..=tick {
                let Some(stretch) = ShotSegment::in_tick(shot, at).filter(|stretch| stretch.starts_within(range))
                else {
                    continue;
                };
                let then =
                    |now: Position, target: &HitTarget<'a>| if at == tick { Some(now) } else { past(target, at) };
                let is_hit = |(now, target): &&(Position, HitTarget<'a>)| {
                    let place = then(*now, target).filter(|_| target.entity != *by);
                    place.is_some_and(|place| stretch.may_hit(place) && stretch.hits(shot, range, place))
                };
                hits.extend(living.iter().filter(is_hit).map(|(_, target)| (target.entity, *by)));
            }
            watched.checked_until = tick;
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
    fn forged_shots_do_not_displace_real_ones() {
        let rules = Rules::new(Maze::new(7, 8));
        let victim = rules.spawn_avatar(&[], 1);
        let mut liar = rules.spawn_avatar(&[], 2);
        let mut watch = ProjectileTracker::default();
        for number in 0..20_000u32 {
            liar.shots.push(Shot { tick: 100, origin: liar.position, ..Shot::default() });
            watch.track(100, entity(1 + number % 3, (number / 3) as u8), &liar);
        }
        assert_eq!(watch.shots.len(), 3 * MAX_SHOTS_PER_SITE);
        let mut honest = rules.spawn_avatar(&[], 3);
        honest.shots.push(Shot { tick: 100, origin: victim.position, ..Shot::default() });
        watch.track(100, entity(9, 0), &honest);
        let target = HitTarget { entity: entity(8, 0), avatar: &victim };
        let hits = watch.detect_hits(&rules, 101, [target].into_iter(), |_, _| None);
        assert!(hits.contains(&(entity(8, 0), entity(9, 0))), "{hits:?}");
    }

    #[test]
    fn all_shots_at_the_maximum_rate_are_tracked() {
        let rules = Rules::new(Maze::new(7, 8));
        let (mut avatar, mut watch) = (rules.spawn_avatar(&[], 1), ProjectileTracker::default());
        let mut followed = std::collections::BTreeSet::new();
        for tick in 0..1_000 {
            rules.step(tick, &mut avatar, crate::Controls { fire: true, ..Default::default() }, &[], 1);
            watch.drop_before(tick);
            watch.track(tick, entity(1, 0), &avatar);
            followed.extend(watch.shots.keys().map(|(_, number)| *number));
        }
        assert_eq!(followed.len(), usize::from(avatar.shots.last_number()));
    }
}
