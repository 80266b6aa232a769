//! Whether anybody still moves.

use std::collections::BTreeMap;

use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSite, Position, Scoreboard};

/// Where nothing has moved for so long, no shot flies any more, and everybody knows who was hit.
pub(super) const QUIET_TIME: TimeDelta = TimeDelta::from_secs(3);

/// Since when nobody has moved and nobody was hit.
pub(super) struct QuietDetector {
    quiet_since: Instant,
    positions: BTreeMap<EntityId, Position>,
    scores: Scoreboard,
}

impl QuietDetector {
    pub(super) fn new(now: Instant) -> Self {
        Self { quiet_since: now, positions: BTreeMap::new(), scores: Scoreboard::default() }
    }

    /// Looks at everybody. Who vanishes does not move: those who leave first do not hold up the others.
    pub(super) fn observe_game(&mut self, now: Instant, game: &MazeSite) {
        let own = (0..game.avatars()).filter_map(|index| {
            let entity = EntityId { site: game.site(), index: index as u8 };
            game.avatar(index).map(|avatar| (entity, avatar.position))
        });
        let others = game.world().newest_states().map(|(entity, _, avatar)| (entity, avatar.position));
        self.observe(now, own.chain(others).collect(), game.scores());
    }

    fn observe(&mut self, now: Instant, places: BTreeMap<EntityId, Position>, scores: &Scoreboard) {
        let moved = places.iter().any(|(entity, place)| self.positions.get(entity) != Some(place));
        if moved || *scores != self.scores {
            self.quiet_since = now;
            self.scores.clone_from(scores);
        }
        self.positions = places;
    }

    /// Whether all has been quiet for long enough.
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
        let place = |x| Position { x, y: 0 };
        let both = |x| BTreeMap::from([(entity(1), place(x)), (entity(2), place(9))]);
        let mut stillness = QuietDetector::new(at(0));
        stillness.observe(at(1), both(1), &Scoreboard::default());
        assert!(!stillness.is_quiet(at(3)) && stillness.is_quiet(at(4)));
        stillness.observe(at(3), both(2), &Scoreboard::default());
        assert!(!stillness.is_quiet(at(5)));
        stillness.observe(at(5), BTreeMap::from([(entity(1), place(2))]), &Scoreboard::default());
        assert!(stillness.is_quiet(at(6)));
    }
}
