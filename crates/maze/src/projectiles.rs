//! Known shots in flight, and the avatars that they hit.
//!
//! The tracker checks a shot against the avatars that the caller passes: first in every tick that has passed since the
//! shot was fired, then in each new tick. A site without a server passes its own avatars, a server those that it owns.
//! [`predict_fall`](ProjectileTracker::predict_fall) finds the tick in which a shot will hit an avatar that keeps its
//! speed and turn rate.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;

use crate::avatar::MAX_AVATARS;
use crate::rules::{ShotSegment, can_shot_reach};
use crate::{Avatar, MAX_SHOTS, MazeRules, Position, PredictedFall, RecentShots, SHOT_RETENTION, Shot};

/// Largest number of tracked shots per site: [`MAX_SHOTS`] of each of [`MAX_AVATARS`] avatars. With this limit, the
/// forged shots of one site cannot use up [`MAX_TRACKED_SHOTS`].
const MAX_SHOTS_PER_SITE: usize = MAX_AVATARS * MAX_SHOTS;
/// Largest number of tracked shots in total: those of 16,384 avatars, the most that a world on servers has.
const MAX_TRACKED_SHOTS: usize = 16_384 * MAX_SHOTS;

/// Longest time ahead for which a fall is predicted, in ticks.
pub(crate) const MAX_FALL_PREDICTION_TICKS: u8 = 100;

/// Known shots, each with the tick up to which it was checked for hits. A shot is tracked until
/// [`drop_before`](Self::drop_before) drops it, even if a wall has stopped it.
#[derive(Clone, Debug, Default)]
pub struct ProjectileTracker {
    shots: BTreeMap<(EntityId, u16), TrackedShot>,
}

/// Shot of an avatar, and the tick up to which it was checked for hits.
#[derive(Clone, Copy, Debug)]
struct TrackedShot {
    shot: Shot,
    checked_until: u32,
    /// Distance that the shot flies until a wall or the end of its lifetime stops it, in 1/[`UNIT`](crate::UNIT) units;
    /// `None` until it is computed.
    range: Option<i32>,
}

/// Avatar that shots are checked against.
#[derive(Clone, Copy, Debug)]
pub struct HitCandidate<'a> {
    /// Id by which a hit names the avatar.
    pub entity: EntityId,
    /// State of the avatar in the present tick. A dead avatar is not hit.
    pub avatar: &'a Avatar,
}

impl ProjectileTracker {
    /// Returns whether no shot is tracked.
    pub fn is_empty(&self) -> bool {
        self.shots.is_empty()
    }

    /// Drops shots fired more than [`SHOT_RETENTION`] ticks before `tick`.
    pub fn drop_before(&mut self, tick: u32) {
        let oldest = tick.saturating_sub(SHOT_RETENTION);
        self.shots.retain(|_, tracked| tracked.shot.tick >= oldest);
    }

    /// Starts to track the shots of the entity `by` that were fired within the last [`SHOT_RETENTION`] ticks, unless
    /// they are tracked already. Ignores shots beyond [`MAX_SHOTS`] per avatar, and
    /// beyond the limits per site and in total.
    pub fn track(&mut self, tick: u32, by: EntityId, shots: &RecentShots) {
        let recent = tick.saturating_sub(SHOT_RETENTION)..=tick;
        for shot in shots.iter().filter(|shot| recent.contains(&shot.tick)) {
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

    /// Predicts the fall of `target` in one of the `ticks` ticks (at most 100) after `tick`, if it keeps its speed and
    /// turn rate. Returns `None` if no tracked shot of another avatar will hit it in these ticks, or if it is dead.
    pub fn predict_fall(
        &self,
        rules: &MazeRules,
        tick: u32,
        ticks: u8,
        target: HitCandidate<'_>,
    ) -> Option<PredictedFall> {
        let is_near = |shot: &Shot| can_shot_reach(shot, tick, ticks.into(), target.avatar.position);
        let others = self.shots.iter().filter(|((by, _), tracked)| *by != target.entity && is_near(&tracked.shot));
        let near: Vec<&TrackedShot> = others.map(|(_, tracked)| tracked).collect();
        if near.is_empty() || !target.avatar.is_alive() {
            return None;
        }
        let mut ahead = target.avatar.clone();
        (1..=ticks.min(MAX_FALL_PREDICTION_TICKS)).find_map(|ticks_left| {
            rules.extrapolate_tick(&mut ahead);
            let tick = tick + u32::from(ticks_left);
            let hits = |tracked: &&TrackedShot| {
                let segment =
                    ShotSegment::in_tick(&tracked.shot, tick).filter(|segment| segment.may_hit(ahead.position));
                let range = || tracked.range.unwrap_or_else(|| rules.shot_range(&tracked.shot));
                segment.is_some_and(|segment| segment.hits(&tracked.shot, range(), ahead.position))
            };
            near.iter().any(hits).then_some(PredictedFall { tick, ticks_left })
        })
    }

    /// Returns the approximate heap size in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.shots.len() * size_of::<((EntityId, u16), TrackedShot)>()
    }

    /// Checks each shot against the living targets, in the ticks after its last check up to `tick`. Returns each hit as
    /// a pair of victim and shooter; a victim of several hits appears several times. `past` must return the position of
    /// a target in an earlier tick, or `None` if the target was dead then, in an earlier life, or its position is not
    /// known. An avatar is not hit by its own shots.
    pub fn detect_hits<'a>(
        &mut self,
        rules: &MazeRules,
        tick: u32,
        targets: impl Iterator<Item = HitCandidate<'a>>,
        past: impl Fn(&HitCandidate<'a>, u32) -> Option<Position>,
    ) -> Vec<(EntityId, EntityId)> {
        let mut hits = Vec::new();
        let living = targets.filter(|target| target.avatar.is_alive());
        let living: Vec<(Position, HitCandidate<'a>)> = living.map(|target| (target.avatar.position, target)).collect();
        for ((by, _), tracked) in &mut self.shots {
            let shot = &tracked.shot;
            let range = *tracked.range.get_or_insert_with(|| rules.shot_range(shot));
            for at in tracked.checked_until.max(tick.saturating_sub(SHOT_RETENTION)) + 1..=tick {
                let Some(segment) = ShotSegment::in_tick(shot, at).filter(|segment| segment.starts_within(range))
                else {
                    continue;
                };
                let position_then =
                    |now: Position, target: &HitCandidate<'a>| if at == tick { Some(now) } else { past(target, at) };
                let is_hit = |(now, target): &&(Position, HitCandidate<'a>)| {
                    let position = position_then(*now, target).filter(|_| target.entity != *by);
                    position.is_some_and(|position| segment.may_hit(position) && segment.hits(shot, range, position))
                };
                hits.extend(living.iter().filter(is_hit).map(|(_, target)| (target.entity, *by)));
            }
            tracked.checked_until = tick;
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
        let rules = MazeRules::new(Maze::new(7, 8));
        let victim = rules.spawn_avatar(&[], 1);
        let mut cheater = rules.spawn_avatar(&[], 2);
        let mut tracker = ProjectileTracker::default();
        for number in 0..20_000u32 {
            cheater.shots.push(Shot { tick: 100, origin: cheater.position, ..Shot::default() });
            tracker.track(100, entity(1 + number % 3, (number / 3) as u8), &cheater.shots);
        }
        assert_eq!(tracker.shots.len(), 3 * MAX_SHOTS_PER_SITE);
        let mut honest = rules.spawn_avatar(&[], 3);
        honest.shots.push(Shot { tick: 100, origin: victim.position, ..Shot::default() });
        tracker.track(100, entity(9, 0), &honest.shots);
        let target = HitCandidate { entity: entity(8, 0), avatar: &victim };
        let hits = tracker.detect_hits(&rules, 101, [target].into_iter(), |_, _| None);
        assert!(hits.contains(&(entity(8, 0), entity(9, 0))), "{hits:?}");
    }

    #[test]
    fn all_shots_at_the_maximum_rate_are_tracked() {
        let rules = MazeRules::new(Maze::new(7, 8));
        let (mut avatar, mut tracker) = (rules.spawn_avatar(&[], 1), ProjectileTracker::default());
        let mut numbers = std::collections::BTreeSet::new();
        for tick in 0..1_000 {
            rules.step(tick, &mut avatar, crate::Controls { fire: true, ..Default::default() }, &[], 1);
            tracker.drop_before(tick);
            tracker.track(tick, entity(1, 0), &avatar.shots);
            numbers.extend(tracker.shots.keys().map(|(_, number)| *number));
        }
        assert_eq!(numbers.len(), usize::from(avatar.shots.last_number()));
    }
}
