//! A small game for the examples: two players on a line push a ball towards the other's end.

pub(crate) mod network;

use std::error::Error;
use std::process::ExitCode;

use coplay::frame::{Frame, FrameRate};
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId, Settings, SettingsError};

/// Id of the examples' session. A real program draws a random number.
pub(crate) const SESSION: u64 = 0x70_7573_6862_616c;

/// Button that walks towards the left end.
const LEFT: InputWord = 1;
/// Button that walks towards the right end.
const RIGHT: InputWord = 2;
/// Length of the line; both players and the ball stay on it.
const LENGTH: i32 = 60;

/// Runs a program and prints its error, if it fails, to stderr.
pub(crate) fn run(program: fn() -> Result<(), Box<dyn Error>>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// State of the game. A step depends on nothing but the state and the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Game {
    players: [i32; 2],
    ball: i32,
    goals: [i32; 2],
}

impl Default for Game {
    fn default() -> Self {
        Self { players: [0, LENGTH], ball: LENGTH / 2, goals: [0; 2] }
    }
}

impl Game {
    /// Steps one frame with the input word of each player.
    pub(crate) fn step(&mut self, inputs: &[InputWord]) {
        for (player, buttons) in self.players.iter_mut().zip(inputs) {
            let walk = i32::from(buttons & RIGHT != 0) - i32::from(buttons & LEFT != 0);
            *player = (*player + walk).clamp(0, LENGTH);
            if *player == self.ball {
                self.ball += walk;
            }
        }
        let goal = [self.ball >= LENGTH, self.ball <= 0];
        if goal.contains(&true) {
            self.ball = LENGTH / 2;
            self.goals.iter_mut().zip(goal).for_each(|(goals, scored)| *goals += i32::from(scored));
        }
    }

    /// Returns a hash of the state, with which sites compare their states.
    pub(crate) fn hash(&self) -> u64 {
        xxh64(0, &self.to_bytes())
    }

    /// Returns the state as bytes, for sites that join late.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let [one, two] = self.players;
        [one, two, self.ball, self.goals[0], self.goals[1]].iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Restores a state from the bytes of another site; `None` if they are no state of this game.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let values: Vec<i32> =
            bytes.chunks(4).map(|part| part.try_into().map(i32::from_le_bytes)).collect::<Result<_, _>>().ok()?;
        let [one, two, ball, left, right] = values[..] else { return None };
        let is_valid = [one, two, ball].iter().all(|at| (0..=LENGTH).contains(at));
        is_valid.then_some(Self { players: [one, two], ball, goals: [left, right] })
    }

    /// Returns the line as text: the players as `1` and `2`, the ball as `o`, and the goals.
    pub(crate) fn picture(&self) -> String {
        let mut line = vec![b'.'; LENGTH as usize + 1];
        for (at, letter) in [(self.ball, b'o'), (self.players[0], b'1'), (self.players[1], b'2')] {
            line[at as usize] = letter;
        }
        format!("{}  {}:{}", String::from_utf8_lossy(&line), self.goals[0], self.goals[1])
    }
}

/// Returns the buttons that a simulated player holds in a frame. A real program reads a pad here.
pub(crate) fn buttons(player: usize, frame: Frame) -> InputWord {
    let step = u64::from(frame.number()) / 20 + 7 * player as u64;
    match xxh64(player as u64, &step.to_le_bytes()) % 5 {
        0 => 0,
        1 | 2 => LEFT,
        _ => RIGHT,
    }
}

/// Returns the settings that all sites and spectators of the game share.
pub(crate) fn settings() -> Result<Settings, SettingsError> {
    let rate = FrameRate::per_second(60).expect("60 is a valid rate");
    Settings::builder(GameId::new("push the ball", [7; 32]), MachineId::new("example game", "1"), rate).build()
}
