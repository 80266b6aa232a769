//! A toy machine: a deterministic ball game in integer arithmetic with one paddle per player.
//!
//! It replaces a real game machine in tests. In each frame it computes a new state from one input word per player.
//! Every bit of every word enters the state, so that no wrong bit goes unnoticed.

use coplay::input::InputWord;

/// Width of the field in units. The ball moves 5 units sideways per frame.
pub const WIDTH: i32 = 640;
/// Height of the field in units. A paddle moves 4 units per frame.
pub const HEIGHT: i32 = 240;
const PADDLE_HALF_HEIGHT: i32 = 40;
const PADDLE_SPEED: i32 = 4;

/// Bit of an input word that moves the player's paddle up, to lower coordinates.
pub const UP: InputWord = 1;
/// Bit of an input word that moves the player's paddle down, to higher coordinates.
pub const DOWN: InputWord = 2;

/// State of the ball game.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToyMachine {
    /// Vertical centre of each player's paddle, 0 to [`HEIGHT`]. Even players are on the left side, odd ones on the
    /// right.
    pub paddles: Vec<i32>,
    /// Position of the ball as (x, y), from the top left.
    pub ball: (i32, i32),
    ball_velocity: (i32, i32),
    /// Points of the left and the right side.
    pub score: [u32; 2],
    /// Hash of the inputs of all frames stepped so far.
    input_hash: u64,
    /// Constant bytes that enlarge the encoded state. They are not part of the hash.
    pub ballast: Vec<u8>,
}

impl ToyMachine {
    /// Starts a new game with the ball and all paddles in the middle.
    pub fn new(players: usize) -> Self {
        Self {
            paddles: vec![HEIGHT / 2; players],
            ball: (WIDTH / 2, HEIGHT / 2),
            ball_velocity: (5, 2),
            score: [0; 2],
            input_hash: 0xcbf2_9ce4_8422_2325,
            ballast: Vec::new(),
        }
    }

    /// Advances the game by one frame with one input word per player.
    pub fn step(&mut self, inputs: &[InputWord]) {
        for (paddle, word) in self.paddles.iter_mut().zip(inputs) {
            let up = i32::from(word & UP != 0);
            let down = i32::from(word & DOWN != 0);
            *paddle = (*paddle + PADDLE_SPEED * (down - up)).clamp(0, HEIGHT);
        }
        for word in inputs {
            self.input_hash = mix_hash(mix_hash(self.input_hash, *word as u64), (*word >> 64) as u64);
        }
        self.move_ball();
    }

    fn move_ball(&mut self) {
        self.ball.0 += self.ball_velocity.0;
        self.ball.1 += self.ball_velocity.1;
        if !(0..=HEIGHT).contains(&self.ball.1) {
            self.ball_velocity.1 = -self.ball_velocity.1;
        }
        if (0..=WIDTH).contains(&self.ball.0) {
            return;
        }
        let side = usize::from(self.ball.0 > WIDTH);
        let hit = |paddle: &&i32| (**paddle - self.ball.1).abs() <= PADDLE_HALF_HEIGHT;
        if let Some(paddle) = self.paddles.iter().skip(side).step_by(2).find(hit) {
            self.ball_velocity =
                (-self.ball_velocity.0, (self.ball_velocity.1 + (self.ball.1 - paddle) / 8).clamp(-6, 6));
        } else {
            self.score[1 - side] += 1;
            self.ball = (WIDTH / 2, HEIGHT / 2);
            self.ball_velocity = (if side == 0 { 5 } else { -5 }, 1 + (self.input_hash % 4) as i32);
        }
    }

    /// Flips one bit of the input hash, so that the state differs from that of every correct replica.
    pub fn corrupt_state(&mut self) {
        self.input_hash ^= 1;
    }

    /// Returns name and content of each region of the state: ball, paddles, score, and memory (the input hash).
    pub fn regions(&self) -> Vec<(&'static str, Vec<u8>)> {
        let bytes = |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let ball = [self.ball.0, self.ball.1, self.ball_velocity.0, self.ball_velocity.1];
        vec![
            ("ball", bytes(&ball)),
            ("paddles", bytes(&self.paddles)),
            ("score", bytes(&self.score.map(|points| points as i32))),
            ("memory", self.input_hash.to_le_bytes().to_vec()),
        ]
    }

    /// Encodes the whole state, ballast included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.ball.0, self.ball.1, self.ball_velocity.0, self.ball_velocity.1];
        let numbers =
            numbers.into_iter().chain(self.score.map(|points| points as i32)).chain(self.paddles.iter().copied());
        let mut bytes = self.input_hash.to_le_bytes().to_vec();
        bytes.extend(numbers.flat_map(i32::to_le_bytes));
        bytes.extend_from_slice(&self.ballast);
        bytes
    }

    /// Decodes the state of a game of `players` players; `None` if the bytes are too short. Further bytes are ballast.
    pub fn from_bytes(players: usize, bytes: &[u8]) -> Option<Self> {
        let (memory, rest) = bytes.split_first_chunk::<8>()?;
        let (numbers, ballast) = rest.split_at_checked(4 * (6 + players))?;
        let numbers: Vec<i32> = numbers.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        Some(Self {
            paddles: numbers[6..].to_vec(),
            ball: (numbers[0], numbers[1]),
            ball_velocity: (numbers[2], numbers[3]),
            score: [numbers[4] as u32, numbers[5] as u32],
            input_hash: u64::from_le_bytes(*memory),
            ballast: ballast.to_vec(),
        })
    }

    /// Hashes the whole state except the ballast.
    pub fn hash(&self) -> u64 {
        let numbers = [self.ball.0, self.ball.1, self.ball_velocity.0, self.ball_velocity.1];
        let numbers = numbers.into_iter().chain(self.paddles.iter().copied()).map(|number| number as u64);
        numbers.chain(self.score.map(u64::from)).fold(self.input_hash, mix_hash)
    }
}

/// Returns `hash` with `number` mixed in.
pub fn mix_hash(hash: u64, number: u64) -> u64 {
    let folded = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    folded ^ folded >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_inputs_give_equal_hashes_and_any_changed_bit_another() {
        let (mut one, mut other) = (ToyMachine::new(2), ToyMachine::new(2));
        for frame in 0..5_000u64 {
            let inputs = [InputWord::from(frame / 7 % 3), InputWord::from(frame / 11 % 3)];
            one.step(&inputs);
            other.step(&inputs);
            assert_eq!(one.hash(), other.hash());
        }
        assert!(one.score.iter().sum::<u32>() > 0, "no side scored a point");
        other.step(&[1 << 127, 0]);
        one.step(&[0, 0]);
        assert_ne!(one.hash(), other.hash());
    }
}
