//! Detection of a quiet maze: one in which no avatar moves and no score changes.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSite, Position, Scoreboard};

/// Time without movement after which no shot is in flight and all sites have the final scores.
pub(super) const QUIET_TIME: TimeDelta = TimeDelta::from_secs(3);

/// Start of the current quiet period, and the positions and scores at the last observation.
pub(super) struct StillnessDetector {
    quiet_since: Instant,
    positions: BTreeMap<EntityId, Position>,
    scores: Scoreboard,
}

impl StillnessDetector {
    pub(super) fn new(now: Instant) -> Self {
        Self { quiet_since: now, positions: BTreeMap::new(), scores: Scoreboard::default() }
    }

    /// Compares all avatars and scores with those of the last call, and restarts the quiet period if any changed. An
    /// avatar that disappears does not count as movement, so a site that leaves first does not delay the others.
    pub(super) fn observe_game(&mut self, now: Instant, game: &MazeSite) {
        let own = (0..game.avatars()).filter_map(|index| {
            let entity = EntityId { site: game.site(), index: index as u8 };
            game.avatar(index).map(|avatar| (entity, avatar.position))
        });
        let others = game.world().newest_states().map(|(entity, _, avatar)| (entity, avatar.position));
        self.observe(now, own.chain(others).collect(), game.scores());
    }

    fn observe(&mut self, now: Instant, positions: BTreeMap<EntityId, Position>, scores: &Scoreboard) {
        let moved = positions.iter().any(|(entity, position)| self.positions.get(entity) != Some(position));
        if moved || *scores != self.scores {
            self.quiet_since = now;
            self.scores.clone_from(scores);
        }
        self.positions = positions;
    }

    /// Returns whether no avatar has moved and no score has changed for [`QUIET_TIME`].
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now - self.quiet_since >= QUIET_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;

    #[test]
    fn game_is_quiet_when_no_remaining_avatar_moves() {
        let entity = |site| EntityId { site: WorldSiteId(site), index: 0 };
        let at = |seconds| Instant::ZERO + TimeDelta::from_secs(seconds);
        let position = |x| Position { x, y: 0 };
        let both = |x| BTreeMap::from([(entity(1), position(x)), (entity(2), position(9))]);
        let mut detector = StillnessDetector::new(at(0));
        detector.observe(at(1), both(1), &Scoreboard::default());
        assert!(!detector.is_quiet(at(3)) && detector.is_quiet(at(4)));
        detector.observe(at(3), both(2), &Scoreboard::default());
        assert!(!detector.is_quiet(at(5)));
        detector.observe(at(5), BTreeMap::from([(entity(1), position(2))]), &Scoreboard::default());
        assert!(detector.is_quiet(at(6)));
    }
}
