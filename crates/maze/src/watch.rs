//! Shots that are known to fly, and whom they hit.
//!
//! As soon as a shot is known it is followed through the ticks that have passed, and from then on tick by tick. Who is followed
//! by a watch is decided by who keeps it: a site without a server for its own avatars, a server for those of its players.

use std::collections::BTreeMap;

use coplay::bucket::EntityId;

use crate::rules::Stretch;
use crate::{Avatar, MOST_SHOTS, Position, Rules, SHOT_KEPT, Shot};

/// The most shots that are followed at a time: all of as many shooters as a world has.
const MOST_WATCHED: usize = 16_384 * MOST_SHOTS;

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
            if self.shots.len() < MOST_WATCHED {
                let watched = Watched { shot: *shot, until: shot.tick, range: None };
                self.shots.entry((by, shot.number)).or_insert(watched);
            }
        }
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
