//! How far what a player is shown of an object is from where the server has it at the same time.
//!
//! Relaxed consistency of Li, Li and Lau (Definition 2.3): D = ∫ |sᵢ(t) − sⱼ(t)| dt over a window that slides along, against a tolerance ξ. Here sᵢ is what was
//! on the screen at a tick of the world, and sⱼ what the server says of that tick, which comes a little later. So what was shown is remembered
//! for a while. Who fell and came back is elsewhere at once, and nobody could have known: how far apart two lives are says nothing.

use std::collections::VecDeque;

use coplay::motion::{Consistency, DiscrepancyMeter};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{AVATAR_RADIUS, Avatar, Position, UNIT};

/// The window, as long as that of [`coplay::partial_tick`]: some turns of an avatar, so that neither one good moment nor one bad one decides.
pub const CONSISTENCY_WINDOW: TimeDelta = TimeDelta::from_secs(2);
/// ξ, in units times seconds. The paper leaves it to the game: here what is seen of an avatar is, all in all, no further off than the avatar is wide from its middle,
/// so who aims at what is seen aims at what is there.
pub const CONSISTENCY_TOLERANCE: f64 = AVATAR_RADIUS as f64 * 2.0;
/// Ticks that are remembered: 640 ms and more. What the server says later than that is not compared.
const DISPLAY_HISTORY_LEN: usize = 64;

/// Where an object was shown of late, and how far that was from the server's word.
#[derive(Debug)]
pub(crate) struct ConsistencyProbe {
    /// In the order of ticks.
    displayed: VecDeque<(u32, Position)>,
    /// In units.
    discrepancy: DiscrepancyMeter<f64>,
}

impl Default for ConsistencyProbe {
    fn default() -> Self {
        Self {
            displayed: VecDeque::with_capacity(DISPLAY_HISTORY_LEN),
            discrepancy: DiscrepancyMeter::new(CONSISTENCY_WINDOW),
        }
    }
}

impl ConsistencyProbe {
    /// It is shown like this at a tick of the world. Who does not live is not shown to be anywhere.
    pub(crate) fn on_displayed(&mut self, tick: u32, avatar: &Avatar) {
        if !avatar.is_alive() {
            return self.reset();
        }
        match self.displayed.back_mut() {
            Some((last, position)) if *last == tick => *position = avatar.position,
            // The world's time came a little nearer to the server's: what was shown was shown.
            Some((last, _)) if *last > tick => {}
            _ => {
                if self.displayed.len() >= DISPLAY_HISTORY_LEN {
                    self.displayed.pop_front();
                }
                self.displayed.push_back((tick, avatar.position));
            }
        }
    }

    /// The server says how it was at a tick, which was then on our clock. `is_same` if it is the life that was shown.
    pub(crate) fn on_reference(&mut self, at: Instant, tick: u32, told: &Avatar, is_same: bool) {
        if !is_same {
            self.reset();
        } else if let Some(shown) = self.displayed_at(tick) {
            self.discrepancy.record(at, &((shown.distance_squared(told.position) as f64).sqrt() / f64::from(UNIT)));
        }
    }

    /// Where it was shown at a tick: pictures come less often than ticks, so between two of them.
    fn displayed_at(&self, tick: u32) -> Option<Position> {
        let after = self.displayed.partition_point(|(then, _)| *then < tick);
        let (next, there) = *self.displayed.get(after)?;
        if next == tick {
            return Some(there);
        }
        let (last, here) = *self.displayed.get(after.checked_sub(1)?)?;
        let part = |from: i32, to: i32| {
            let way = (i64::from(to) - i64::from(from)) * i64::from(tick - last) / i64::from(next - last);
            (i64::from(from) + way) as i32
        };
        Some(Position { x: part(here.x, there.x), y: part(here.y, there.y) })
    }

    /// What was shown before says nothing any more: another life, or another server's time.
    pub(crate) fn reset(&mut self) {
        self.displayed.clear();
    }

    /// How consistent it was of late; nothing if that is not known yet.
    pub(crate) fn consistency(&self) -> Option<Consistency> {
        let (discrepancy, over) = self.discrepancy.measure(|_, apart| Some(*apart));
        let consistency = Consistency { discrepancy, tolerance: CONSISTENCY_TOLERANCE, duration: over };
        (over > TimeDelta::ZERO).then_some(consistency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_maze::{Maze, Rules};

    fn avatar(x: i32) -> Avatar {
        let rules = Rules::new(Maze::new(7, 8));
        Avatar { position: Position::from_units(x, 50), ..rules.spawn_avatar(&[], 1) }
    }

    fn at(tick: u32) -> Instant {
        Instant::ZERO + crate::TICK_DURATION * i64::from(tick)
    }

    #[test]
    fn discrepancy_is_the_area_between_displayed_and_reference() {
        let mut trail = ConsistencyProbe::default();
        assert_eq!(trail.consistency(), None);
        for tick in 0..400 {
            // Shown every other tick, and 12 units ahead.
            if tick % 2 == 0 {
                trail.on_displayed(tick, &avatar(100 + tick as i32 * 8 + 12));
            }
            if let Some(told) = tick.checked_sub(9).filter(|told| told.is_multiple_of(4)) {
                trail.on_reference(at(told), told, &avatar(100 + told as i32 * 8), true);
            }
        }
        let seen = trail.consistency().unwrap();
        assert!((seen.discrepancy - 12.0 * seen.duration.as_secs_f64()).abs() < 0.1, "{seen:?}");
        assert!(
            seen.duration > TimeDelta::from_millis(1_900) && seen.duration <= CONSISTENCY_WINDOW && seen.is_tolerated()
        );
        assert_eq!(trail.displayed.len(), DISPLAY_HISTORY_LEN);
    }

    #[test]
    fn displayed_position_is_interpolated_between_frames() {
        let mut trail = ConsistencyProbe::default();
        trail.on_displayed(10, &avatar(100));
        trail.on_displayed(14, &avatar(140));
        let places = [9, 10, 11, 13, 14, 15].map(|tick| trail.displayed_at(tick).map(|place| place.x / UNIT));
        assert_eq!(places, [None, Some(100), Some(110), Some(130), Some(140), None]);
        trail.on_displayed(12, &avatar(900));
        assert_eq!(trail.displayed_at(12).map(|place| place.x / UNIT), Some(120), "time does not go back");
    }

    #[test]
    fn respawned_avatar_is_not_compared() {
        let mut trail = ConsistencyProbe::default();
        for tick in 0..20 {
            trail.on_displayed(tick, &avatar(100));
            trail.on_reference(at(tick), tick, &avatar(5_000), tick < 10);
        }
        let before = trail.consistency().unwrap();
        assert!(before.duration < TimeDelta::from_millis(100) && !trail.displayed.iter().any(|(tick, _)| *tick < 19));
    }
}
