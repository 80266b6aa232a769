//! What was heard of one entity of another site: its states in the order of their ticks, however they came.

use alloc::vec::Vec;

use super::Reckoner;

/// The most states that are kept of an entity: one for every tick of the longest bucket and delay, and more.
const MAX_SAMPLES: usize = 256;

/// How the state in a view came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is our own.
    Own,
    /// It was told for this very tick.
    Told,
    /// It lies between two that were told.
    Between,
    /// It was reckoned from one that was told so many ticks before.
    Ahead(u32),
}

#[derive(Debug)]
struct Sample<S> {
    tick: u32,
    state: S,
}

/// The states of one entity.
#[derive(Debug)]
pub(super) struct Track<S> {
    samples: Vec<Sample<S>>,
    pub(super) row: Row,
    /// Whether it is in the view.
    pub(super) shown: bool,
}

impl<S: Clone> Track<S> {
    pub(super) fn new() -> Self {
        Self { samples: Vec::new(), row: Row::default(), shown: false }
    }

    /// Puts a state where it belongs. The first for a tick stands; whether it was.
    pub(super) fn insert(&mut self, tick: u32, state: S) -> bool {
        let at = self.samples.partition_point(|sample| sample.tick < tick);
        if self.samples.get(at).is_some_and(|sample| sample.tick == tick) {
            return false;
        }
        self.samples.insert(at, Sample { tick, state });
        if self.samples.len() > MAX_SAMPLES {
            self.samples.remove(0);
        }
        true
    }

    /// Forgets what is older, but for the newest of all.
    pub(super) fn forget_before(&mut self, tick: u32) {
        let old = self.samples.partition_point(|sample| sample.tick < tick);
        self.samples.drain(..old.min(self.samples.len().saturating_sub(1)));
    }

    /// The newest tick of which a state is known.
    pub(super) fn newest(&self) -> Option<u32> {
        self.samples.last().map(|sample| sample.tick)
    }

    /// The newest state, and its tick.
    pub(super) fn newest_state(&self) -> Option<(u32, &S)> {
        self.samples.last().map(|sample| (sample.tick, &sample.state))
    }

    /// Bytes, roughly.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.samples.capacity() * size_of::<Sample<S>>()
    }

    /// The state at a tick, if one is known that is no more than `give_up` ticks older.
    pub(super) fn at<R: Reckoner<State = S>>(&self, reckoner: &R, tick: u32, give_up: u32) -> Option<(S, How)> {
        let after = self.samples.partition_point(|sample| sample.tick <= tick);
        let earlier = self.samples.get(after.checked_sub(1)?)?;
        let ticks = tick - earlier.tick;
        if ticks > give_up {
            return None;
        }
        Some(match self.samples.get(after) {
            _ if ticks == 0 => (earlier.state.clone(), How::Told),
            Some(later) => {
                let whole = later.tick - earlier.tick;
                (reckoner.between(&earlier.state, &later.state, ticks, whole), How::Between)
            }
            None => (reckoner.ahead(&earlier.state, ticks), How::Ahead(ticks)),
        })
    }
}

/// Counts what of a row of numbered updates is missing.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// The number and the tick of the newest.
    last: Option<(u16, u32)>,
    expected: u32,
    received: u32,
    late: u32,
}

impl Row {
    /// An update came for the first time; `late` if it was needed before; `followed` if we were told of the entity all the time since the last.
    pub(super) fn on_update(&mut self, sequence: u16, tick: u32, late: bool, followed: bool) {
        self.received += 1;
        self.late += u32::from(late);
        let Some((last, last_tick)) = self.last else {
            return self.go_on(1, sequence, tick);
        };
        if tick < last_tick {
            return;
        }
        // There is one in a tick at the most. More of them are missing only if the sender began anew.
        let step = u32::from(sequence.wrapping_sub(last));
        let is_row = followed && (1..=tick - last_tick).contains(&step);
        self.go_on(if is_row { step } else { 1 }, sequence, tick);
    }

    fn go_on(&mut self, step: u32, sequence: u16, tick: u32) {
        self.expected += step;
        self.last = Some((sequence, tick));
    }

    /// What came since this was last asked: expected, lost and late. Whoever comes after a gap is counted with it.
    pub(super) fn take(&mut self) -> Counts {
        let lost = self.expected.saturating_sub(self.received);
        let counts = Counts { expected: self.expected, lost, late: self.late };
        *self = Self { last: self.last, ..Self::default() };
        counts
    }
}

/// Updates in a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) expected: u32,
    pub(super) lost: u32,
    pub(super) late: u32,
}

impl Counts {
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
    use super::super::line::Line;
    use super::*;

    #[test]
    fn a_late_state_goes_to_its_own_tick_and_helps() {
        let mut track = Track::new();
        let reckoner = Line::default();
        track.insert(100, reckoner.at(0, 1));
        track.insert(120, reckoner.at(40, 0));
        assert_eq!(track.at(&reckoner, 110, 50).unwrap().1, How::Between);
        let guessed = track.at(&reckoner, 112, 50).unwrap().0.position;
        track.insert(110, reckoner.at(10, 3));
        assert_eq!(track.at(&reckoner, 110, 50).unwrap().1, How::Told);
        let known = track.at(&reckoner, 112, 50).unwrap().0.position;
        assert!(guessed == 24 && known == 16, "{guessed} {known}");
    }

    #[test]
    fn nobody_is_reckoned_for_longer_than_the_time_to_give_up() {
        let mut track = Track::new();
        let reckoner = Line::default();
        track.insert(10, reckoner.at(0, 1));
        assert_eq!(track.at(&reckoner, 9, 50).map(|_| ()), None, "not there yet");
        assert_eq!(track.at(&reckoner, 60, 50).unwrap().1, How::Ahead(50));
        assert!(track.at(&reckoner, 61, 50).is_none());
        track.insert(100, reckoner.at(0, 1));
        assert!(track.at(&reckoner, 61, 50).is_none(), "also if it is heard of again later");
    }

    #[test]
    fn only_so_much_is_kept() {
        let mut track = Track::new();
        let reckoner = Line::default();
        for tick in (0..10_000).rev().step_by(3) {
            track.insert(tick, reckoner.at(0, 0));
        }
        assert_eq!(track.samples.len(), MAX_SAMPLES);
        track.forget_before(u32::MAX);
        assert_eq!(track.samples.len(), 1);
    }

    #[test]
    fn losses_are_counted_and_what_comes_in_another_order_is_not_lost() {
        let mut row = Row::default();
        for (sequence, tick) in [(65_534, 0), (65_535, 4), (1, 12), (0, 8), (2, 16), (5, 28)] {
            row.on_update(sequence, tick, sequence == 0, true);
        }
        assert_eq!(row.take(), Counts { expected: 8, lost: 2, late: 1 });
        row.on_update(6, 32, false, true);
        assert_eq!(row.take(), Counts { expected: 1, lost: 0, late: 0 });
        row.on_update(30, 132, false, false);
        assert_eq!(row.take().lost, 0, "who was far away has lost nothing");
        row.on_update(2, 150, false, true);
        assert_eq!(row.take(), Counts { expected: 1, lost: 0, late: 0 }, "who began anew neither");
        row.on_update(3, 154, false, true);
        assert_eq!(row.take(), Counts { expected: 1, lost: 0, late: 0 }, "and is counted from there");
    }

    /// However seldom somebody speaks, and however long nothing comes.
    #[test]
    fn the_part_that_is_lost_is_known_at_every_rate() {
        for every in [1, 4, 25, 50, 100] {
            for one_in in [2, 5, 20] {
                let mut row = Row::default();
                for number in (0..2_000u32).filter(|number| number % one_in == 0) {
                    row.on_update(number as u16, number * every, false, true);
                }
                let Counts { expected, lost, .. } = row.take();
                let part = f64::from(lost) / f64::from(expected);
                assert!((part - 1.0 + 1.0 / f64::from(one_in)).abs() < 0.02, "{every} {one_in}: {part}");
            }
        }
    }
}
