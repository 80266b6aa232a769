//! Machine for tests: the toy machine of the simulator, with a picture and a tone.

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use coplay_machines::pad::{Button, PadLayout};
use coplay_machines::{LoadError, Machine, Picture, SaveError};
use coplay_sim::toy_machine::{self, DOWN, HEIGHT, UP, WIDTH};

const PICTURE_WIDTH: usize = 64;
const PICTURE_HEIGHT: usize = 60;

pub(crate) struct ToyMachine {
    toy: toy_machine::ToyMachine,
    machine: MachineId,
    game: GameId,
    pads: Vec<PadLayout>,
    rgba: Vec<u8>,
    sound: Vec<[i16; 2]>,
    /// Failure that the machine reports; `None` for a healthy one.
    failing_with: Option<&'static str>,
    /// Number of steps until the machine diverges from its twins; `None` if it never does.
    steps_until_divergence: Option<u32>,
}

impl ToyMachine {
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            toy: toy_machine::ToyMachine::new(2),
            machine: MachineId { name: "toy".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
            game: GameId { name: format!("paddles {seed}"), hash: [seed; 32] },
            pads: vec![PadLayout::with_buttons(&[Button::Up, Button::Down, Button::A]); 2],
            rgba: vec![255; PICTURE_WIDTH * PICTURE_HEIGHT * 4],
            sound: vec![],
            failing_with: None,
            steps_until_divergence: None,
        }
    }

    /// Makes the machine report this failure.
    pub(crate) fn failing_with(self, reason: &'static str) -> Self {
        Self { failing_with: Some(reason), ..self }
    }

    /// Makes the machine diverge from others with equal inputs after this many steps.
    pub(crate) fn diverging_after(self, steps: u32) -> Self {
        Self { steps_until_divergence: Some(steps), ..self }
    }

    fn step_toy(&mut self, words: [InputWord; 2]) {
        let mapped = words.map(|word| {
            let on = |button: Button, bit| if button.is_in(word) { bit } else { 0 };
            on(Button::Up, UP) | on(Button::Down, DOWN) | on(Button::A, 4)
        });
        self.toy.step(&mapped);
        if let Some(steps) = &mut self.steps_until_divergence {
            *steps = steps.saturating_sub(1);
            self.toy.ball.0 += i32::from(*steps == 0);
        }
    }

    fn draw(&mut self) {
        for (index, pixel) in self.rgba.chunks_mut(4).enumerate() {
            let (x, y) = (
                (index % PICTURE_WIDTH) as i32 * WIDTH / PICTURE_WIDTH as i32,
                (index / PICTURE_WIDTH) as i32 * HEIGHT / PICTURE_HEIGHT as i32,
            );
            let ball = (x - self.toy.ball.0).abs() < 8 && (y - self.toy.ball.1).abs() < 5;
            let side = if x < 20 {
                Some(0)
            } else if x > WIDTH - 20 {
                Some(1)
            } else {
                None
            };
            let paddle = side.is_some_and(|side| (y - self.toy.paddles[side]).abs() < 40);
            let colour = if ball {
                [255, 220, 90]
            } else if paddle {
                [240; 3]
            } else {
                [24, (y / 4) as u8, 72]
            };
            pixel[..3].copy_from_slice(&colour);
        }
    }
}

impl Machine for ToyMachine {
    fn machine_id(&self) -> &MachineId {
        &self.machine
    }
    fn game_id(&self) -> &GameId {
        &self.game
    }
    fn frame_rate(&self) -> FrameRate {
        FrameRate::per_second(60).unwrap()
    }
    fn pads(&self) -> &[PadLayout] {
        &self.pads
    }
    fn step(&mut self, inputs: &[InputWord], render: bool) {
        self.step_toy(std::array::from_fn(|player| inputs.get(player).copied().unwrap_or(0)));
        if render {
            self.draw();
            self.sound = (0..800).map(|n| [if n / 50 % 2 == 0 { 2_000 } else { -2_000 }; 2]).collect();
        }
    }
    fn reset(&mut self) {
        self.toy = toy_machine::ToyMachine::new(2);
    }
    fn picture(&self) -> Picture<'_> {
        Picture { width: PICTURE_WIDTH, height: PICTURE_HEIGHT, aspect: 4.0 / 3.0, rgba: &self.rgba }
    }
    fn sound(&self) -> &[[i16; 2]] {
        &self.sound
    }
    fn sample_rate(&self) -> f64 {
        48_000.0
    }
    fn can_save(&self) -> bool {
        true
    }
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        into.clear();
        into.extend_from_slice(&self.toy.to_bytes());
        Ok(())
    }
    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        self.toy = toy_machine::ToyMachine::from_bytes(2, state)
            .ok_or_else(|| LoadError::InvalidState("not a state of the toy machine".into()))?;
        Ok(())
    }
    fn hash(&mut self) -> u64 {
        self.toy.hash()
    }
    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        show("state", &self.toy.hash().to_le_bytes());
    }
    fn failure(&self) -> Option<&str> {
        self.failing_with
    }
}
