//! What was heard of one entity of another site: its states in the order of their ticks, however they came.

use alloc::vec::Vec;

use super::DeadReckoning;

/// The most states that are kept of an entity: one for every tick of the longest bucket and delay, and more.
const MAX_SAMPLES: usize = 256;

/// How the state in a view came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// It is our own.
    Own,
    /// It was told for this very tick.
    Received,
    /// It lies between two that were told.
    Interpolated,
    /// It was reckoned from one that was told so many ticks before.
    Extrapolated(u32),
}

#[derive(Debug)]
struct StateSample<S> {
    tick: u32,
    state: S,
}

/// The states of one entity.
#[derive(Debug)]
pub(super) struct RemoteEntity<S> {
    samples: Vec<StateSample<S>>,
    pub(super) loss: LossCounter,
    /// Whether it is in the view.
    pub(super) is_visible: bool,
}

impl<S: Clone> RemoteEntity<S> {
    pub(super) fn new() -> Self {
        Self { samples: Vec::new(), loss: LossCounter::default(), is_visible: false }
    }

    /// Puts a state where it belongs. The first for a tick stands; whether it was.
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

    /// Forgets what is older, but for the newest of all.
    pub(super) fn drop_before(&mut self, tick: u32) {
        let old = self.samples.partition_point(|sample| sample.tick < tick);
        self.samples.drain(..old.min(self.samples.len().saturating_sub(1)));
    }

    /// The newest tick of which a state is known.
    pub(super) fn newest_tick(&self) -> Option<u32> {
        self.samples.last().map(|sample| sample.tick)
    }

    /// The newest state, and its tick.
    pub(super) fn newest_state(&self) -> Option<(u32, &S)> {
        self.samples.last().map(|sample| (sample.tick, &sample.state))
    }

    /// Bytes, roughly.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.samples.capacity() * size_of::<StateSample<S>>()
    }

    /// The state at a tick, if one is known that is no more than `give_up` ticks older.
    pub(super) fn state_at<R: DeadReckoning<State = S>>(
        &self,
        reckoner: &R,
        tick: u32,
        give_up: u32,
    ) -> Option<(S, Provenance)> {
        let after = self.samples.partition_point(|sample| sample.tick <= tick);
        let earlier = self.samples.get(after.checked_sub(1)?)?;
        let ticks = tick - earlier.tick;
        if ticks > give_up {
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

/// Counts what of a row of numbered updates is missing.
#[derive(Debug, Default)]
pub(super) struct LossCounter {
    /// The number and the tick of the newest.
    newest: Option<(u16, u32)>,
    expected: u32,
    received: u32,
    late: u32,
}

impl LossCounter {
    /// An update came for the first time; `late` if it was needed before; `followed` if we were told of the entity all the time since the last.
    pub(super) fn on_update(&mut self, sequence: u16, tick: u32, late: bool, followed: bool) {
        self.received += 1;
        self.late += u32::from(late);
        let Some((last, last_tick)) = self.newest else {
            return self.advance(1, sequence, tick);
        };
        if tick < last_tick {
            return;
        }
        // There is one in a tick at the most. More of them are missing only if the sender began anew.
        let step = u32::from(sequence.wrapping_sub(last));
        let is_row = followed && (1..=tick - last_tick).contains(&step);
        self.advance(if is_row { step } else { 1 }, sequence, tick);
    }

    fn advance(&mut self, step: u32, sequence: u16, tick: u32) {
        self.expected += step;
        self.newest = Some((sequence, tick));
    }

    /// What came since this was last asked: expected, lost and late. Whoever comes after a gap is counted with it.
    pub(super) fn take_counts(&mut self) -> LossCounts {
        let lost = self.expected.saturating_sub(self.received);
        let counts = LossCounts { expected: self.expected, lost, late: self.late };
        *self = Self { newest: self.newest, ..Self::default() };
        counts
    }
}

/// Updates in a while.
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

    /// A part of all that was expected, in 255ths.
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
        let mut track = RemoteEntity::new();
        let reckoner = TestGame::default();
        track.insert(100, reckoner.point(0, 1));
        track.insert(120, reckoner.point(40, 0));
        assert_eq!(track.state_at(&reckoner, 110, 50).unwrap().1, Provenance::Interpolated);
        let guessed = track.state_at(&reckoner, 112, 50).unwrap().0.position;
        track.insert(110, reckoner.point(10, 3));
        assert_eq!(track.state_at(&reckoner, 110, 50).unwrap().1, Provenance::Received);
        let known = track.state_at(&reckoner, 112, 50).unwrap().0.position;
        assert!(guessed == 24 && known == 16, "{guessed} {known}");
    }

    #[test]
    fn entity_is_not_extrapolated_beyond_the_visibility_timeout() {
        let mut track = RemoteEntity::new();
        let reckoner = TestGame::default();
        track.insert(10, reckoner.point(0, 1));
        assert_eq!(track.state_at(&reckoner, 9, 50).map(|_| ()), None, "not there yet");
        assert_eq!(track.state_at(&reckoner, 60, 50).unwrap().1, Provenance::Extrapolated(50));
        assert!(track.state_at(&reckoner, 61, 50).is_none());
        track.insert(100, reckoner.point(0, 1));
        assert!(track.state_at(&reckoner, 61, 50).is_none(), "also if it is heard of again later");
    }

    #[test]
    fn sample_count_is_bounded() {
        let mut track = RemoteEntity::new();
        let reckoner = TestGame::default();
        for tick in (0..10_000).rev().step_by(3) {
            track.insert(tick, reckoner.point(0, 0));
        }
        assert_eq!(track.samples.len(), MAX_SAMPLES);
        track.drop_before(u32::MAX);
        assert_eq!(track.samples.len(), 1);
    }

    #[test]
    fn loss_is_counted_and_reordered_updates_are_not_lost() {
        let mut row = LossCounter::default();
        for (sequence, tick) in [(65_534, 0), (65_535, 4), (1, 12), (0, 8), (2, 16), (5, 28)] {
            row.on_update(sequence, tick, sequence == 0, true);
        }
        assert_eq!(row.take_counts(), LossCounts { expected: 8, lost: 2, late: 1 });
        row.on_update(6, 32, false, true);
        assert_eq!(row.take_counts(), LossCounts { expected: 1, lost: 0, late: 0 });
        row.on_update(30, 132, false, false);
        assert_eq!(row.take_counts().lost, 0, "who was far away has lost nothing");
        row.on_update(2, 150, false, true);
        assert_eq!(row.take_counts(), LossCounts { expected: 1, lost: 0, late: 0 }, "who began anew neither");
        row.on_update(3, 154, false, true);
        assert_eq!(row.take_counts(), LossCounts { expected: 1, lost: 0, late: 0 }, "and is counted from there");
    }

    /// However seldom somebody speaks, and however long nothing comes.
    #[test]
    fn loss_share_is_correct_at_every_update_rate() {
        for every in [1, 4, 25, 50, 100] {
            for one_in in [2, 5, 20] {
                let mut row = LossCounter::default();
                for number in (0..2_000u32).filter(|number| number % one_in == 0) {
                    row.on_update(number as u16, number * every, false, true);
                }
                let LossCounts { expected, lost, .. } = row.take_counts();
                let part = f64::from(lost) / f64::from(expected);
                assert!((part - 1.0 + 1.0 / f64::from(one_in)).abs() < 0.02, "{every} {one_in}: {part}");
            }
        }
    }
}
