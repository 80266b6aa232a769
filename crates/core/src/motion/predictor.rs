//! What a game tells the engine about its objects: how they move, how far apart two of them are, how they are written down.

use core::fmt;

use crate::time::TimeDelta;

/// The most bytes that a state takes.
pub const MAX_STATE: usize = 64;
/// The most bytes that a vector takes.
pub const MAX_VECTOR: usize = 32;

/// What one game knows of the motion of its objects. The engine knows only this.
pub trait Predictor {
    /// Where an object is, and all else that its motion goes on from.
    type State: Clone + fmt::Debug + PartialEq;
    /// What a command makes an object do.
    type Vector: Clone + fmt::Debug + PartialEq;

    /// The state after so long a motion (equation 2). It must be the same everywhere.
    fn advance(&self, state: &Self::State, vector: &Self::Vector, by: TimeDelta) -> Self::State;

    /// Two commands in one: what the earlier one and the later one, given within the time of one, come to.
    fn combine(&self, earlier: &Self::Vector, later: &Self::Vector) -> Self::Vector;

    /// How far apart two states are, in the game's units: |sᵢ − sⱼ| of equation 1.
    fn distance(&self, one: &Self::State, other: &Self::State) -> f64;

    /// A state that is nearer to another by at most so many units, for corrections that are seen.
    fn toward(&self, from: &Self::State, to: &Self::State, most: f64) -> Self::State;

    /// Writes a state down, in at most [`MAX_STATE`] bytes, and says how many. `None` if there is no room.
    fn encode_state(&self, state: &Self::State, buf: &mut [u8]) -> Option<usize>;

    /// Reads a state that takes up all of the bytes. `None` if no game would have written it.
    fn decode_state(&self, bytes: &[u8]) -> Option<Self::State>;

    /// Writes a vector down, in at most [`MAX_VECTOR`] bytes, and says how many. `None` if there is no room.
    fn encode_vector(&self, vector: &Self::Vector, buf: &mut [u8]) -> Option<usize>;

    /// Reads a vector that takes up all of the bytes. `None` if no game would have written it.
    fn decode_vector(&self, bytes: &[u8]) -> Option<Self::Vector>;
}

/// The paper's predictor, of first order: straight on at a constant speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// No vector is longer, in thousandths of a unit a second.
    pub fastest: i32,
}

/// Thousandths of a unit along two axes: of a place, or of what it changes by in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Along the first axis.
    pub x: i64,
    /// Along the second one.
    pub y: i64,
}

/// Places are no further from the origin, so that nothing overflows.
const FARTHEST: i64 = 1 << 40;
const THOUSANDTHS: f64 = 1_000.0;

impl Pair {
    /// From whole units.
    pub const fn units(x: i64, y: i64) -> Self {
        Self { x: x * 1_000, y: y * 1_000 }
    }

    fn each(self, other: Self, what: impl Fn(i64, i64) -> i64) -> Self {
        Self { x: what(self.x, other.x), y: what(self.y, other.y) }
    }

    /// In thousandths.
    fn length(self) -> i64 {
        let square = |part: i64| (i128::from(part) * i128::from(part)).unsigned_abs();
        i64::try_from((square(self.x) + square(self.y)).isqrt()).unwrap_or(i64::MAX)
    }

    /// The same direction, `part` of `whole` as long.
    fn part(self, part: i64, whole: i64) -> Self {
        let scale = |value: i64| (i128::from(value) * i128::from(part) / i128::from(whole.max(1))) as i64;
        Self { x: scale(self.x), y: scale(self.y) }
    }

    fn write(self, buf: &mut [u8]) -> Option<usize> {
        let room = buf.get_mut(..16)?;
        room[..8].copy_from_slice(&self.x.to_le_bytes());
        room[8..].copy_from_slice(&self.y.to_le_bytes());
        Some(16)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (x, y) = bytes.split_first_chunk()?;
        Some(Self { x: i64::from_le_bytes(*x), y: i64::from_le_bytes(y.try_into().ok()?) })
    }

    fn is_near(self, most: i64) -> bool {
        let is_near = |part: i64| (-most..=most).contains(&part);
        is_near(self.x) && is_near(self.y)
    }
}

impl Predictor for Linear {
    type State = Pair;
    type Vector = Pair;

    fn advance(&self, state: &Pair, vector: &Pair, by: TimeDelta) -> Pair {
        let along = |place: i64, speed: i64| {
            let way = i128::from(speed) * i128::from(by.as_nanos()) / 1_000_000_000;
            (i128::from(place) + way).clamp(-i128::from(FARTHEST), i128::from(FARTHEST)) as i64
        };
        state.each(*vector, along)
    }

    /// The resultant, no longer than what is fastest.
    fn combine(&self, earlier: &Pair, later: &Pair) -> Pair {
        let sum = earlier.each(*later, i64::saturating_add);
        let (length, most) = (sum.length(), i64::from(self.fastest));
        if length > most { sum.part(most, length) } else { sum }
    }

    fn distance(&self, one: &Pair, other: &Pair) -> f64 {
        one.each(*other, i64::saturating_sub).length() as f64 / THOUSANDTHS
    }

    fn toward(&self, from: &Pair, to: &Pair, most: f64) -> Pair {
        let way = to.each(*from, i64::saturating_sub);
        let (length, most) = (way.length(), (most * THOUSANDTHS) as i64);
        if length <= most { *to } else { from.each(way.part(most, length), i64::saturating_add) }
    }

    fn encode_state(&self, state: &Pair, buf: &mut [u8]) -> Option<usize> {
        state.write(buf)
    }

    fn decode_state(&self, bytes: &[u8]) -> Option<Pair> {
        Pair::read(bytes).filter(|state| state.is_near(FARTHEST))
    }

    fn encode_vector(&self, vector: &Pair, buf: &mut [u8]) -> Option<usize> {
        vector.write(buf)
    }

    fn decode_vector(&self, bytes: &[u8]) -> Option<Pair> {
        // Rounded, so that what was drawn in another way than by `combine` is not refused for a thousandth.
        let most = i64::from(self.fastest) + 2;
        Pair::read(bytes).filter(|vector| vector.is_near(most) && vector.length() <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: Linear = Linear { fastest: 5_000 };

    #[test]
    fn it_goes_straight_on() {
        let at = LINEAR.advance(&Pair::units(1, 2), &Pair { x: 500, y: -250 }, TimeDelta::from_secs(4));
        assert_eq!(at, Pair { x: 3_000, y: 1_000 });
        let far = LINEAR.advance(&at, &Pair::units(4, 3), TimeDelta::MAX);
        assert!(LINEAR.distance(&far, &at) > 1e6);
    }

    #[test]
    fn commands_come_to_their_resultant() {
        assert_eq!(LINEAR.combine(&Pair::units(1, 0), &Pair::units(0, 1)), Pair::units(1, 1));
        assert_eq!(LINEAR.combine(&Pair::units(4, 0), &Pair::units(4, 6)), Pair::units(4, 3));
    }

    #[test]
    fn toward_gets_there_and_not_beyond() {
        let (from, to) = (Pair::units(0, 0), Pair::units(3, 4));
        assert_eq!(LINEAR.distance(&from, &to), 5.0);
        assert_eq!(LINEAR.toward(&from, &to, 2.5), Pair { x: 1_500, y: 2_000 });
        assert_eq!(LINEAR.toward(&from, &to, 6.0), to);
    }

    #[test]
    fn what_no_game_would_write_is_not_read() {
        let mut buf = [0; 16];
        Pair::units(6, 0).write(&mut buf).unwrap();
        assert_eq!(LINEAR.decode_vector(&buf), None);
        assert_eq!(LINEAR.decode_state(&buf), Some(Pair::units(6, 0)));
        Pair { x: i64::MIN, y: 0 }.write(&mut buf).unwrap();
        assert_eq!(LINEAR.decode_state(&buf), None);
        assert_eq!(LINEAR.decode_state(&buf[..15]), None);
    }
}
