//! Discrepancy between the displayed state of an entity and the server's state at the same time.
//!
//! Relaxed consistency of Li, Li and Lau (Definition 2.3): D = ∫ |sᵢ(t) − sⱼ(t)| dt over a sliding window, against a
//! tolerance ξ. Here sᵢ is the position displayed at a tick of the world, and sⱼ the server's position in that tick,
//! which arrives a little later. So the probe keeps recent displayed positions. A respawn moves an avatar at once and
//! cannot be predicted, so positions of different lives are not compared.

use std::collections::VecDeque;

use coplay::motion::{Consistency, DiscrepancyMeter};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{AVATAR_RADIUS, Avatar, Position, UNIT};

/// Length of the sliding window of D, as in [`coplay::motion`]: long enough for several turns of an avatar, so that
/// neither one good moment nor one bad moment decides.
pub const CONSISTENCY_WINDOW: TimeDelta = TimeDelta::from_secs(2);
/// Tolerance ξ of D, in units times seconds. The paper leaves it to the game. If D is below this value, the displayed
/// position is on average no further off than the radius of an avatar, so a player who aims at the displayed avatar
/// aims at the real one.
pub const CONSISTENCY_TOLERANCE: f64 = AVATAR_RADIUS as f64 * 2.0;
/// Largest number of displayed positions that are kept, at most one per tick: those of the last 640 ms or more. States
/// of the server that arrive later are not compared.
const DISPLAY_HISTORY_LEN: usize = 64;

/// Recent displayed positions of an entity, and their distance from the server's.
#[derive(Debug)]
pub(crate) struct DisplayDiscrepancyProbe {
    /// Displayed positions, in the order of ticks.
    displayed: VecDeque<(u32, Position)>,
    /// Distances between displayed position and server's position, in units.
    discrepancy: DiscrepancyMeter<f64>,
}

impl Default for DisplayDiscrepancyProbe {
    fn default() -> Self {
        Self {
            displayed: VecDeque::with_capacity(DISPLAY_HISTORY_LEN),
            discrepancy: DiscrepancyMeter::new(CONSISTENCY_WINDOW),
        }
    }
}

impl DisplayDiscrepancyProbe {
    /// Records the displayed position at a tick of the world. If the avatar is dead, drops the recorded positions.
    pub(crate) fn on_displayed(&mut self, tick: u32, avatar: &Avatar) {
        if !avatar.is_alive() {
            return self.reset();
        }
        match self.displayed.back_mut() {
            Some((last, position)) if *last == tick => *position = avatar.position,
            // The estimate of the world's time moved back: the earlier display stands.
            Some((last, _)) if *last > tick => {}
            _ => {
                if self.displayed.len() >= DISPLAY_HISTORY_LEN {
                    self.displayed.pop_front();
                }
                self.displayed.push_back((tick, avatar.position));
            }
        }
    }

    /// Compares the server's state of a tick with the displayed one. `at` is the time of that tick on our clock;
    /// `is_same` is whether both belong to the same life. If not, drops the displayed positions.
    pub(crate) fn on_reference(&mut self, at: Instant, tick: u32, reference: &Avatar, is_same: bool) {
        if !is_same {
            self.reset();
        } else if let Some(shown) = self.displayed_at(tick) {
            self.discrepancy
                .record(at, &((shown.distance_squared(reference.position) as f64).sqrt() / f64::from(UNIT)));
        }
    }

    /// Returns the displayed position at a tick, interpolated between frames, which are rarer than ticks. `None` if the
    /// tick is not between two kept frames.
    fn displayed_at(&self, tick: u32) -> Option<Position> {
        let after = self.displayed.partition_point(|(then, _)| *then < tick);
        let (next, next_position) = *self.displayed.get(after)?;
        if next == tick {
            return Some(next_position);
        }
        let (last, last_position) = *self.displayed.get(after.checked_sub(1)?)?;
        let part = |from: i32, to: i32| {
            let moved = (i64::from(to) - i64::from(from)) * i64::from(tick - last) / i64::from(next - last);
            (i64::from(from) + moved) as i32
        };
        Some(Position { x: part(last_position.x, next_position.x), y: part(last_position.y, next_position.y) })
    }

    /// Drops the displayed positions: they belong to another life, or to the time of another server.
    pub(crate) fn reset(&mut self) {
        self.displayed.clear();
    }

    /// Returns the consistency over the window; `None` until at least two states of the server were compared.
    pub(crate) fn consistency(&self) -> Option<Consistency> {
        let (discrepancy, duration) = self.discrepancy.measure(|_, distance| Some(*distance));
        let consistency = Consistency { discrepancy, tolerance: CONSISTENCY_TOLERANCE, duration };
        (duration > TimeDelta::ZERO).then_some(consistency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::{Maze, MazeRules};

    fn avatar(x: i32) -> Avatar {
        let rules = MazeRules::new(Maze::new(7, 8));
        Avatar { position: Position::from_units(x, 50), ..rules.spawn_avatar(&[], 1) }
    }

    fn at(tick: u32) -> Instant {
        Instant::ZERO + crate::TICK_DURATION * i64::from(tick)
    }

    #[test]
    fn discrepancy_is_the_area_between_displayed_and_reference() {
        let mut probe = DisplayDiscrepancyProbe::default();
        assert_eq!(probe.consistency(), None);
        for tick in 0..400 {
            // Displayed every other tick, 12 units ahead.
            if tick % 2 == 0 {
                probe.on_displayed(tick, &avatar(100 + tick as i32 * 8 + 12));
            }
            if let Some(reference) = tick.checked_sub(9).filter(|reference| reference.is_multiple_of(4)) {
                probe.on_reference(at(reference), reference, &avatar(100 + reference as i32 * 8), true);
            }
        }
        let consistency = probe.consistency().unwrap();
        let (discrepancy, duration) = (consistency.discrepancy, consistency.duration);
        assert!((discrepancy - 12.0 * duration.as_secs_f64()).abs() < 0.1, "{consistency:?}");
        assert!(
            duration > TimeDelta::from_millis(1_900) && duration <= CONSISTENCY_WINDOW && consistency.is_tolerated()
        );
        assert_eq!(probe.displayed.len(), DISPLAY_HISTORY_LEN);
    }

    #[test]
    fn displayed_position_is_interpolated_between_frames() {
        let mut probe = DisplayDiscrepancyProbe::default();
        probe.on_displayed(10, &avatar(100));
        probe.on_displayed(14, &avatar(140));
        let positions = [9, 10, 11, 13, 14, 15].map(|tick| probe.displayed_at(tick).map(|position| position.x / UNIT));
        assert_eq!(positions, [None, Some(100), Some(110), Some(130), Some(140), None]);
        probe.on_displayed(12, &avatar(900));
        assert_eq!(
            probe.displayed_at(12).map(|position| position.x / UNIT),
            Some(120),
            "a past display is overwritten"
        );
    }

    #[test]
    fn respawned_avatar_is_not_compared() {
        let mut probe = DisplayDiscrepancyProbe::default();
        for tick in 0..20 {
            probe.on_displayed(tick, &avatar(100));
            probe.on_reference(at(tick), tick, &avatar(5_000), tick < 10);
        }
        let before = probe.consistency().unwrap();
        assert!(before.duration < TimeDelta::from_millis(100) && !probe.displayed.iter().any(|(tick, _)| *tick < 19));
    }
}
