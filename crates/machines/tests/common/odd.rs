//! A machine that breaks one rule, of those that a core cannot be made to break as easily.

use std::time::{Duration, SystemTime};

use coplay::frame::FrameRate;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use coplay_machines::pad::{Axis, Button, Pad};
use coplay_machines::{LoadError, Machine, Picture, SaveError};

pub struct Odd {
    oddity: String,
    machine: MachineId,
    game: GameId,
    pads: Vec<Pad>,
    /// All that decides how the game goes on: eight bytes of noise, the frame, and room.
    memory: [u8; 600],
    rgba: Vec<u8>,
    resets: u8,
}

impl Odd {
    pub fn new(oddity: &str) -> Self {
        let stick = Pad { mask: Axis::LeftX.mask() | Button::B.bit(), labels: Vec::new() };
        let machine = MachineId { name: "odd".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 };
        let mut new = Self {
            oddity: oddity.into(),
            machine,
            game: GameId { name: oddity.into(), hash: [0; 32] },
            pads: vec![Pad::of(&Button::ALL), stick],
            memory: [0; 600],
            rgba: vec![0; 16],
            resets: 0,
        };
        new.begin();
        new
    }

    fn is(&self, oddity: &str) -> bool {
        self.oddity == oddity
    }

    fn begin(&mut self) {
        self.memory = [0; 600];
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let seen = match self.oddity.as_str() {
            "home" => variable("HOME"),
            "folder" => std::env::current_dir().unwrap().display().to_string(),
            "zone" => variable("TZ"),
            "language" => variable("LANG"),
            _ => String::new(),
        };
        self.mix(xxh64(0, seen.as_bytes()));
    }

    /// Whether this is the process that the check has started.
    fn is_elsewhere(&self) -> bool {
        std::env::var_os("COPLAY_CHECK_SHIFT").is_some()
    }

    fn mix(&mut self, with: u64) {
        let hash = xxh64(with, &self.memory);
        self.memory[..8].copy_from_slice(&hash.to_le_bytes());
    }

    fn frame(&self) -> u64 {
        u64::from_le_bytes(self.memory[8..16].try_into().unwrap())
    }
}

impl Machine for Odd {
    fn machine_id(&self) -> &MachineId {
        &self.machine
    }

    fn game_id(&self) -> &GameId {
        &self.game
    }

    fn rate(&self) -> FrameRate {
        FrameRate::per_second(60).unwrap()
    }

    fn pads(&self) -> &[Pad] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        let pressed = inputs.iter().zip(&self.pads).fold(0, |all, (word, pad)| all * 3 + (word & pad.mask));
        self.mix(pressed as u64 ^ (pressed >> 64) as u64);
        if self.is("seconds") {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            self.mix(since.as_secs());
        }
        if self.is("unseen") && !fresh || self.is("reset") && self.resets > 0 {
            self.mix(1);
        }
        let last = [("crash", 7), ("late crash", 70)].iter().find(|(oddity, _)| self.is(oddity));
        if last.is_some_and(|(_, last)| self.is_elsewhere() && self.frame() == *last) {
            std::process::exit(3);
        }
        if self.is("slow") {
            std::thread::sleep(Duration::from_millis(10));
        }
        let frame = self.frame() + 1;
        self.memory[8..16].copy_from_slice(&frame.to_le_bytes());
        if fresh {
            self.rgba.fill(self.memory[0]);
            self.rgba[0] = u8::from(self.is("picture") && self.is_elsewhere());
        }
    }

    fn reset(&mut self) {
        self.begin();
        self.resets += 1;
    }

    fn picture(&self) -> Picture<'_> {
        Picture { width: 2, height: 2, aspect: 1.0, rgba: &self.rgba }
    }

    fn sound(&self) -> &[[i16; 2]] {
        &[]
    }

    fn sound_rate(&self) -> f64 {
        48_000.0
    }

    fn can_save(&self) -> bool {
        true
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        into.clear();
        into.extend_from_slice(&self.memory);
        if self.is("saving") {
            self.mix(1);
        }
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        self.memory = state.try_into().map_err(|_| LoadError::Unfit("another length".into()))?;
        if self.is("cold") && self.is_elsewhere() {
            self.mix(1);
        }
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        if self.is("blind") { 0 } else { xxh64(0, &self.memory) }
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        show("memory", &self.memory);
    }

    fn failure(&self) -> Option<&str> {
        self.is("down").then_some("it is down")
    }
}
