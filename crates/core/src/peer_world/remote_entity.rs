//! Received states of one entity of another site, in the order of their ticks, whatever the order of arrival.

use alloc::vec::Vec;

use super::DeadReckoning;

/// Maximum number of kept states: more than one per tick of the longest bucket and playout delay together.
const MAX_SAMPLES: usize = 256;

/// Origin of the state of an entity in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// State of an own entity.
    Own,
    /// State that the owner sent for this tick.
    Received,
    /// State interpolated between two received states.
    Interpolated,
    /// State extrapolated over this many ticks from the newest received state.
    Extrapolated(u32),
}

#[derive(Debug)]
struct StateSample<S> {
    tick: u32,
    state: S,
}

/// Received states of one remote entity.
#[derive(Debug)]
pub(super) struct RemoteEntity<S> {
    samples: Vec<StateSample<S>>,
    pub(super) loss: LossCounter,
    /// Whether the entity is in the view that was computed last.
    pub(super) is_visible: bool,
}

impl<S: Clone> RemoteEntity<S> {
    pub(super) fn new() -> Self {
        Self { samples: Vec::new(), loss: LossCounter::default(), is_visible: false }
    }

    /// Stores a state at its tick. The first state received for a tick wins. Returns whether the state was stored.
    pub(super) fn insert(&mut self, tick: u32, state: S) -> bool {
        let at = self.samples.partition_point(|sample| sample.tick < tick);
        if self.samples.get(at).is_some_and(|sample| sample.tick == tick) {
            return false;
        }
        self.samples.insert(at, StateSample { tick, state });
        if self.samples.len() > MAX_SAMPLES {
            self.samples.remove(0);
        }
        true
    }

    /// Drops states before `tick`, except for the newest state.
    pub(super) fn drop_before(&mut self, tick: u32) {
        let old = self.samples.partition_point(|sample| sample.tick < tick);
        self.samples.drain(..old.min(self.samples.len().saturating_sub(1)));
    }

    pub(super) fn newest_tick(&self) -> Option<u32> {
        self.samples.last().map(|sample| sample.tick)
    }

    pub(super) fn newest_state(&self) -> Option<(u32, &S)> {
        self.samples.last().map(|sample| (sample.tick, &sample.state))
    }

    /// Returns the approximate size in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.samples.capacity() * size_of::<StateSample<S>>()
    }

    /// Returns the state at `tick` and its provenance. `None` if no state was received for `tick` or for any of the
    /// `visibility_timeout` ticks before `tick`.
    pub(super) fn state_at<R: DeadReckoning<State = S>>(
        &self,
        reckoner: &R,
        tick: u32,
        visibility_timeout: u32,
    ) -> Option<(S, Provenance)> {
        let after = self.samples.partition_point(|sample| sample.tick <= tick);
        let earlier = self.samples.get(after.checked_sub(1)?)?;
        let ticks = tick - earlier.tick;
        if ticks > visibility_timeout {
            return None;
        }
        Some(match self.samples.get(after) {
            _ if ticks == 0 => (earlier.state.clone(), Provenance::Received),
            Some(later) => {
                let whole = later.tick - earlier.tick;
                (reckoner.interpolate(&earlier.state, &later.state, ticks, whole), Provenance::Interpolated)
            }
            None => (reckoner.extrapolate(&earlier.state, ticks), Provenance::Extrapolated(ticks)),
        })
    }
}

/// Counter of the expected, received and late updates of one entity, by their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct LossCounter {
    /// Sequence number and tick of the newest update.
    newest: Option<(u16, u32)>,
    expected: u32,
    received: u32,
    late: u32,
}

impl LossCounter {
    /// Counts an update that is not a duplicate. `late` states whether it came after the view of its tick. `followed`
    /// states whether the entity was near this site both at this update and at the newest one before it, so that the
    /// owner sent this site every update between the two.
    pub(super) fn on_update(&mut self, sequence: u16, tick: u32, late: bool, followed: bool) {
        self.received += 1;
        self.late += u32::from(late);
        let Some((last, last_tick)) = self.newest else {
            return self.advance(1, sequence, tick);
        };
        if tick < last_tick {
            return;
        }
        // There is at most one update per tick. A larger step in the sequence means that the sender restarted.
        let step = u32::from(sequence.wrapping_sub(last));
        let is_continuous = followed && (1..=tick - last_tick).contains(&step);
        self.advance(if is_continuous { step } else { 1 }, sequence, tick);
    }

    fn advance(&mut self, step: u32, sequence: u16, tick: u32) {
        self.expected += step;
        self.newest = Some((sequence, tick));
    }

    /// Returns the counts since the last call: expected, lost and late. Missing updates count as lost once a later
    /// update has arrived.
    pub(super) fn take_counts(&mut self) -> LossCounts {
        let lost = self.expected.saturating_sub(self.received);
        let counts = LossCounts { expected: self.expected, lost, late: self.late };
        *self = Self { newest: self.newest, ..Self::default() };
        counts
    }
}

/// Update counts since the last aggregation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossCounts {
    pub(super) expected: u32,
    pub(super) lost: u32,
    pub(super) late: u32,
}

impl LossCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.expected += other.expected;
        self.lost += other.lost;
        self.late += other.late;
    }

    /// Returns `part` as a share of all expected updates, in 255ths.
    pub(super) fn share(&self, part: u32) -> u8 {
        (u64::from(part) * 255 / u64::from(self.expected.max(1))).min(255) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_game::TestGame;
    use super::*;

    #[test]
    fn late_state_is_stored_at_its_tick_and_improves_interpolation() {
        let mut remote = RemoteEntity::new();
        let reckoner = TestGame::default();
        remote.insert(100, reckoner.point(0, 1));
        remote.insert(120, reckoner.point(40, 0));
        assert_eq!(remote.state_at(&reckoner, 110, 50).unwrap().1, Provenance::Interpolated);
        let interpolated = remote.state_at(&reckoner, 112, 50).unwrap().0.position;
        remote.insert(110, reckoner.point(10, 3));
        assert_eq!(remote.state_at(&reckoner, 110, 50).unwrap().1, Provenance::Received);
        let refined = remote.state_at(&reckoner, 112, 50).unwrap().0.position;
        assert!(interpolated == 24 && refined == 16, "{interpolated} {refined}");
    }

    #[test]
    fn entity_is_not_extrapolated_beyond_the_visibility_timeout() {
        let mut remote = RemoteEntity::new();
        let reckoner = TestGame::default();
        remote.insert(10, reckoner.point(0, 1));
        assert_eq!(remote.state_at(&reckoner, 9, 50).map(|_| ()), None, "before the first state");
        assert_eq!(remote.state_at(&reckoner, 60, 50).unwrap().1, Provenance::Extrapolated(50));
        assert!(remote.state_at(&reckoner, 61, 50).is_none());
        remote.insert(100, reckoner.point(0, 1));
        assert!(remote.state_at(&reckoner, 61, 50).is_none(), "a later update must not revive the gap");
    }

    #[test]
    fn sample_count_is_bounded() {
        let mut remote = RemoteEntity::new();
        let reckoner = TestGame::default();
        for tick in (0..10_000).rev().step_by(3) {
            remote.insert(tick, reckoner.point(0, 0));
        }
        assert_eq!(remote.samples.len(), MAX_SAMPLES);
        remote.drop_before(u32::MAX);
        assert_eq!(remote.samples.len(), 1);
    }

    #[test]
    fn loss_is_counted_and_reordered_updates_are_not_lost() {
        let mut counter = LossCounter::default();
        for (sequence, tick) in [(65_534, 0), (65_535, 4), (1, 12), (0, 8), (2, 16), (5, 28)] {
            counter.on_update(sequence, tick, sequence == 0, true);
        }
        assert_eq!(counter.take_counts(), LossCounts { expected: 8, lost: 2, late: 1 });
        counter.on_update(6, 32, false, true);
        assert_eq!(counter.take_counts(), LossCounts { expected: 1, lost: 0, late: 0 });
        counter.on_update(30, 132, false, false);
        assert_eq!(counter.take_counts().lost, 0, "updates of a distant entity are not expected");
        counter.on_update(2, 150, false, true);
        assert_eq!(
            counter.take_counts(),
            LossCounts { expected: 1, lost: 0, late: 0 },
            "a restart of the sender is no loss"
        );
        counter.on_update(3, 154, false, true);
        assert_eq!(
            counter.take_counts(),
            LossCounts { expected: 1, lost: 0, late: 0 },
            "counting resumes after the restart"
        );
    }

    /// The counted share must match the real one at 1 to 100 ticks per update and after 1, 4 or 19 consecutive losses.
    #[test]
    fn loss_share_is_correct_at_every_update_rate() {
        for every in [1, 4, 25, 50, 100] {
            for one_in in [2, 5, 20] {
                let mut counter = LossCounter::default();
                for number in (0..2_000u32).filter(|number| number % one_in == 0) {
                    counter.on_update(number as u16, number * every, false, true);
                }
                let LossCounts { expected, lost, .. } = counter.take_counts();
                let part = f64::from(lost) / f64::from(expected);
                assert!((part - 1.0 + 1.0 / f64::from(one_in)).abs() < 0.02, "{every} {one_in}: {part}");
            }
        }
    }
}
