//! The game's motion rules: how objects move, how far apart two states are, and how both are encoded.

use core::fmt;

use crate::time::TimeDelta;

/// Maximum size of an encoded state in bytes.
pub const MAX_STATE_SIZE: usize = 64;
/// Maximum size of an encoded vector in bytes.
pub const MAX_VECTOR_SIZE: usize = 32;

/// The game's knowledge of how its objects move. The engine knows nothing else about them.
pub trait MotionPredictor {
    /// Position of an object, and everything else from which its motion continues.
    type State: Clone + fmt::Debug + PartialEq;
    /// Motion that a command sets.
    type Vector: Clone + fmt::Debug + PartialEq;

    /// Whether moving by one duration and then by another gives exactly the same state as moving by their sum. If so,
    /// simulators advance from their last states and not from the start of the segment, which may be long ago.
    const IS_ADDITIVE: bool = false;

    /// Returns the state after moving along `vector` for `by` (equation 2). Must be deterministic across sites.
    fn advance(&self, state: &Self::State, vector: &Self::Vector, by: TimeDelta) -> Self::State;

    /// Combines two commands that a client issued within one combine interval into one.
    fn combine(&self, earlier: &Self::Vector, later: &Self::Vector) -> Self::Vector;

    /// Returns the distance between two states, in the game's units: |sᵢ − sⱼ| of equation 1.
    fn distance(&self, one: &Self::State, other: &Self::State) -> f64;

    /// Moves `from` towards `to` by at most `most` units, for displayed corrections.
    fn move_toward(&self, from: &Self::State, to: &Self::State, most: f64) -> Self::State;

    /// Encodes a state into at most [`MAX_STATE_SIZE`] bytes and returns the length. `None` if `buf` is too small.
    fn encode_state(&self, state: &Self::State, buf: &mut [u8]) -> Option<usize>;

    /// Decodes a state that takes up all of `bytes`. `None` if `bytes` is not a valid encoding.
    fn decode_state(&self, bytes: &[u8]) -> Option<Self::State>;

    /// Encodes a vector into at most [`MAX_VECTOR_SIZE`] bytes and returns the length. `None` if `buf` is too small.
    fn encode_vector(&self, vector: &Self::Vector, buf: &mut [u8]) -> Option<usize>;

    /// Decodes a vector that takes up all of `bytes`. `None` if `bytes` is not a valid encoding.
    fn decode_vector(&self, bytes: &[u8]) -> Option<Self::Vector>;
}

/// The paper's first-order predictor: straight motion at constant speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearPredictor {
    /// Maximum length of a vector, in thousandths of a unit per second.
    pub max_speed: i32,
}

/// A position in thousandths of a unit along two axes, or a velocity in thousandths of a unit per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MilliVec2 {
    /// Component along the first axis.
    pub x: i64,
    /// Component along the second axis.
    pub y: i64,
}

/// Maximum absolute coordinate of a position in thousandths of a unit, so that no computation overflows.
const MAX_COORDINATE: i64 = 1 << 40;
const MILLI_PER_UNIT: f64 = 1_000.0;

impl MilliVec2 {
    /// Creates a position from whole units, or a velocity from whole units per second.
    pub const fn from_units(x: i64, y: i64) -> Self {
        Self { x: x * 1_000, y: y * 1_000 }
    }

    fn zip_with(self, other: Self, op: impl Fn(i64, i64) -> i64) -> Self {
        Self { x: op(self.x, other.x), y: op(self.y, other.y) }
    }

    /// Returns the length in thousandths of a unit.
    fn length(self) -> i64 {
        let square = |part: i64| (i128::from(part) * i128::from(part)).unsigned_abs();
        i64::try_from((square(self.x) + square(self.y)).isqrt()).unwrap_or(i64::MAX)
    }

    /// Returns a vector of the same direction, scaled by `part` over `whole`.
    fn scaled(self, part: i64, whole: i64) -> Self {
        let scale = |value: i64| (i128::from(value) * i128::from(part) / i128::from(whole.max(1))) as i64;
        Self { x: scale(self.x), y: scale(self.y) }
    }

    fn encode(self, buf: &mut [u8]) -> Option<usize> {
        let room = buf.get_mut(..16)?;
        room[..8].copy_from_slice(&self.x.to_le_bytes());
        room[8..].copy_from_slice(&self.y.to_le_bytes());
        Some(16)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (x, y) = bytes.split_first_chunk()?;
        Some(Self { x: i64::from_le_bytes(*x), y: i64::from_le_bytes(y.try_into().ok()?) })
    }

    fn is_within(self, limit: i64) -> bool {
        let is_near = |part: i64| (-limit..=limit).contains(&part);
        is_near(self.x) && is_near(self.y)
    }
}

impl MotionPredictor for LinearPredictor {
    type State = MilliVec2;
    type Vector = MilliVec2;

    fn advance(&self, state: &MilliVec2, vector: &MilliVec2, by: TimeDelta) -> MilliVec2 {
        let along = |position: i64, speed: i64| {
            let distance = i128::from(speed) * i128::from(by.as_nanos()) / 1_000_000_000;
            (i128::from(position) + distance).clamp(-i128::from(MAX_COORDINATE), i128::from(MAX_COORDINATE)) as i64
        };
        state.zip_with(*vector, along)
    }

    /// Returns the sum of both vectors, shortened to `max_speed` if it is longer.
    fn combine(&self, earlier: &MilliVec2, later: &MilliVec2) -> MilliVec2 {
        let sum = earlier.zip_with(*later, i64::saturating_add);
        let (length, max_speed) = (sum.length(), i64::from(self.max_speed));
        if length > max_speed { sum.scaled(max_speed, length) } else { sum }
    }

    fn distance(&self, one: &MilliVec2, other: &MilliVec2) -> f64 {
        one.zip_with(*other, i64::saturating_sub).length() as f64 / MILLI_PER_UNIT
    }

    fn move_toward(&self, from: &MilliVec2, to: &MilliVec2, most: f64) -> MilliVec2 {
        let displacement = to.zip_with(*from, i64::saturating_sub);
        let (length, most) = (displacement.length(), (most * MILLI_PER_UNIT) as i64);
        if length <= most { *to } else { from.zip_with(displacement.scaled(most, length), i64::saturating_add) }
    }

    fn encode_state(&self, state: &MilliVec2, buf: &mut [u8]) -> Option<usize> {
        state.encode(buf)
    }

    fn decode_state(&self, bytes: &[u8]) -> Option<MilliVec2> {
        MilliVec2::decode(bytes).filter(|state| state.is_within(MAX_COORDINATE))
    }

    fn encode_vector(&self, vector: &MilliVec2, buf: &mut [u8]) -> Option<usize> {
        vector.encode(buf)
    }

    fn decode_vector(&self, bytes: &[u8]) -> Option<MilliVec2> {
        // The tolerance of 2 thousandths of a unit per second covers the rounding of vectors that `combine` did not
        // compute.
        let limit = i64::from(self.max_speed) + 2;
        MilliVec2::decode(bytes).filter(|vector| vector.is_within(limit) && vector.length() <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: LinearPredictor = LinearPredictor { max_speed: 5_000 };

    #[test]
    fn linear_prediction_moves_at_constant_velocity() {
        let at = LINEAR.advance(&MilliVec2::from_units(1, 2), &MilliVec2 { x: 500, y: -250 }, TimeDelta::from_secs(4));
        assert_eq!(at, MilliVec2 { x: 3_000, y: 1_000 });
        let far = LINEAR.advance(&at, &MilliVec2::from_units(4, 3), TimeDelta::MAX);
        assert!(LINEAR.distance(&far, &at) > 1e6);
    }

    #[test]
    fn combined_commands_add_up_to_max_speed() {
        assert_eq!(
            LINEAR.combine(&MilliVec2::from_units(1, 0), &MilliVec2::from_units(0, 1)),
            MilliVec2::from_units(1, 1)
        );
        assert_eq!(
            LINEAR.combine(&MilliVec2::from_units(4, 0), &MilliVec2::from_units(4, 6)),
            MilliVec2::from_units(4, 3)
        );
    }

    #[test]
    fn move_toward_does_not_overshoot() {
        let (from, to) = (MilliVec2::from_units(0, 0), MilliVec2::from_units(3, 4));
        assert_eq!(LINEAR.distance(&from, &to), 5.0);
        assert_eq!(LINEAR.move_toward(&from, &to, 2.5), MilliVec2 { x: 1_500, y: 2_000 });
        assert_eq!(LINEAR.move_toward(&from, &to, 6.0), to);
    }

    #[test]
    fn invalid_vectors_and_states_are_not_decoded() {
        let mut buf = [0; 16];
        MilliVec2::from_units(6, 0).encode(&mut buf).unwrap();
        assert_eq!(LINEAR.decode_vector(&buf), None);
        assert_eq!(LINEAR.decode_state(&buf), Some(MilliVec2::from_units(6, 0)));
        MilliVec2 { x: i64::MIN, y: 0 }.encode(&mut buf).unwrap();
        assert_eq!(LINEAR.decode_state(&buf), None);
        assert_eq!(LINEAR.decode_state(&buf[..15]), None);
    }
}
