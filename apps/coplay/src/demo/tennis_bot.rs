//! Bot that plays the bundled tennis game well. It reads the memory of its own machine, at the addresses that
//! `games/README.md` documents.

use coplay::input::InputWord;
use coplay_links::random::Random;
use coplay_machines::Machine;
use coplay_machines::pad::Button;

/// Phase of the game (memory address 0x10): the title screen is shown.
const TITLE: u8 = 0;
/// Phase of the game (memory address 0x10): the serving player holds the ball.
const SERVE: u8 = 1;
/// Phase of the game (memory address 0x10): the serving player has tossed the ball.
const TOSS: u8 = 2;
/// Phase of the game (memory address 0x10): the ball is in play.
const RALLY: u8 = 3;
/// Phase of the game (memory address 0x10): the match is won.
const WON: u8 = 5;
/// Distance in front of the player at which the bot hits the ball, in pixels.
const REACH: f32 = 7.0;
/// Frames by which the bot looks ahead for a serve or a hit, in addition to the input delay.
const REACTION_FRAMES: f32 = 3.5;

/// Bot of one side of the court.
#[derive(Clone, Debug)]
pub(super) struct TennisBot {
    random: Random,
    /// Side of the court: 0 is left, 1 is right.
    side: usize,
    ram: Vec<u8>,
    frames: u64,
    /// Held buttons, and the number of frames for which they still stay held.
    held: (InputWord, u32),
    /// Deliberate random error of the position at which the bot hits the ball, from -5 to 5 pixels.
    aim_error: f32,
}

impl TennisBot {
    /// Creates the bot of this side, 0 for left or 1 for right. `seed` determines its random choices.
    pub(super) fn new(seed: u64, side: usize) -> Self {
        let random = Random::stream(seed, &format!("tennis/{side}"));
        Self { random, side, ram: Vec::new(), frames: 0, held: (0, 0), aim_error: 0.0 }
    }

    /// Returns the next input, which takes effect `input_delay` frames later; `None` if the machine does not expose its
    /// work RAM.
    pub(super) fn press(&mut self, machine: &mut dyn Machine, input_delay: u32) -> Option<InputWord> {
        self.read_ram(machine);
        if self.ram.len() < 0x40 {
            return None;
        }
        self.frames += 1;
        if self.held.1 > 0 {
            self.held.1 -= 1;
            return Some(self.held.0);
        }
        let ahead = REACTION_FRAMES + input_delay as f32;
        Some(match self.ram[0x10] {
            TITLE | WON if self.side == 0 && self.frames.is_multiple_of(90) => self.hold(Button::Start.bit(), 2),
            SERVE if self.is_serving() && self.frames.is_multiple_of(40) => self.hold(Button::A.bit(), 3),
            TOSS if self.is_serving() && self.speed(0x1a) < 0.0 && self.height(ahead) < 50.0 => {
                self.hold(Button::A.bit(), 3)
            }
            RALLY if usize::from(self.ram[0x25]) == self.side => self.rally(ahead),
            RALLY | SERVE => self.walk_to(if self.side == 0 { 70.0 } else { 186.0 }),
            _ => 0,
        })
    }

    fn read_ram(&mut self, machine: &mut dyn Machine) {
        let ram = &mut self.ram;
        ram.clear();
        machine.regions(&mut |name, bytes| {
            if name == "work ram" {
                ram.extend_from_slice(bytes);
            }
        });
    }

    fn hold(&mut self, button: InputWord, frames: u32) -> InputWord {
        self.held = (button, frames);
        button
    }

    fn is_serving(&self) -> bool {
        usize::from(self.ram[0x24]) == self.side
    }

    fn speed(&self, addr: usize) -> f32 {
        f32::from(i16::from_le_bytes([self.ram[addr], self.ram[addr + 1]])) / 256.0
    }

    fn height(&self, ahead: f32) -> f32 {
        f32::from(self.ram[0x17]) + self.speed(0x1a) * ahead
    }

    /// Runs to a place behind the landing point of the ball. Hits the ball after its bounce, as soon as the ball is in
    /// reach.
    fn rally(&mut self, ahead: f32) -> InputWord {
        let back = if self.side == 0 { -1.0 } else { 1.0 };
        let (ball, speed) = (f32::from(self.ram[0x15]), self.speed(0x18));
        if self.ram[0x26] == 0 {
            if self.frames.is_multiple_of(30) {
                self.aim_error = self.random.range(-5..=5) as f32;
            }
            return self.walk_to(f32::from(self.ram[0x27]) + 12.0 * speed + back * REACH);
        }
        let in_front = (ball + ahead * speed - f32::from(self.ram[0x1c + self.side])) * -back;
        if (in_front - REACH - self.aim_error).abs() < 4.0 {
            let aim = *self.random.pick(&[0, 0, Button::Up.bit(), Button::Down.bit()]);
            return self.hold(Button::A.bit() | aim, 4);
        }
        self.walk_to(ball + 6.0 * speed + back * REACH)
    }

    fn walk_to(&self, target: f32) -> InputWord {
        let position = f32::from(self.ram[0x1c + self.side]);
        match target - position {
            distance if distance > 3.0 => Button::Right.bit(),
            distance if distance < -3.0 => Button::Left.bit(),
            _ => 0,
        }
    }
}
