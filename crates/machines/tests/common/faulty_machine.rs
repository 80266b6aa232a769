//! A machine with one fault, for faults that are hard to build into a test core.

use std::time::{Duration, SystemTime};

use coplay::frame::FrameRate;
use coplay::hash::xxh64;
use coplay::input::InputWord;
use coplay::session::{GameId, MachineId};
use coplay_machines::pad::{Button, PadLayout, StickAxis};
use coplay_machines::{LoadError, Machine, Picture, SaveError};

pub struct FaultyMachine {
    fault: String,
    machine_id: MachineId,
    game_id: GameId,
    pads: Vec<PadLayout>,
    /// The whole state: eight bytes of hash, the frame number, and padding.
    memory: [u8; 600],
    rgba: Vec<u8>,
    reset_count: u8,
}

impl FaultyMachine {
    pub fn new(fault: &str) -> Self {
        let stick = PadLayout { mask: StickAxis::LeftX.mask() | Button::B.bit(), labels: Vec::new() };
        let machine = MachineId { name: "odd".into(), version: "1".into(), options: Vec::new(), first_frames_hash: 0 };
        let mut new = Self {
            fault: fault.into(),
            machine_id: machine,
            game_id: GameId { name: fault.into(), hash: [0; 32] },
            pads: vec![PadLayout::with_buttons(&Button::ALL), stick],
            memory: [0; 600],
            rgba: vec![0; 16],
            reset_count: 0,
        };
        new.init();
        new
    }

    fn has_fault(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn init(&mut self) {
        self.memory = [0; 600];
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let environment = match self.fault.as_str() {
            "home" => variable("HOME"),
            "folder" => std::env::current_dir().unwrap().display().to_string(),
            "zone" => variable("TZ"),
            "language" => variable("LANG"),
            _ => String::new(),
        };
        self.mix(xxh64(0, environment.as_bytes()));
    }

    /// Returns whether this is the child process of a check.
    fn is_child_process(&self) -> bool {
        std::env::var_os("COPLAY_CHECK_SHIFT").is_some()
    }

    fn mix(&mut self, with: u64) {
        let hash = xxh64(with, &self.memory);
        self.memory[..8].copy_from_slice(&hash.to_le_bytes());
    }

    fn frame_number(&self) -> u64 {
        u64::from_le_bytes(self.memory[8..16].try_into().unwrap())
    }
}

impl Machine for FaultyMachine {
    fn machine_id(&self) -> &MachineId {
        &self.machine_id
    }

    fn game_id(&self) -> &GameId {
        &self.game_id
    }

    fn frame_rate(&self) -> FrameRate {
        FrameRate::per_second(60).unwrap()
    }

    fn pads(&self) -> &[PadLayout] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        let pressed = inputs.iter().zip(&self.pads).fold(0, |all, (word, pad)| all * 3 + (word & pad.mask));
        self.mix(pressed as u64 ^ (pressed >> 64) as u64);
        if self.has_fault("seconds") {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            self.mix(since_epoch.as_secs());
        }
        if self.has_fault("unseen") && !fresh || self.has_fault("reset") && self.reset_count > 0 {
            self.mix(1);
        }
        let last_frame = [("crash", 7), ("late crash", 70)].iter().find(|(fault, _)| self.has_fault(fault));
        if last_frame.is_some_and(|(_, last_frame)| self.is_child_process() && self.frame_number() == *last_frame) {
            std::process::exit(3);
        }
        if self.has_fault("slow") {
            std::thread::sleep(Duration::from_millis(10));
        }
        let frame = self.frame_number() + 1;
        self.memory[8..16].copy_from_slice(&frame.to_le_bytes());
        if fresh {
            self.rgba.fill(self.memory[0]);
            self.rgba[0] = u8::from(self.has_fault("picture") && self.is_child_process());
        }
    }

    fn reset(&mut self) {
        self.init();
        self.reset_count += 1;
    }

    fn picture(&self) -> Picture<'_> {
        Picture { width: 2, height: 2, aspect: 1.0, rgba: &self.rgba }
    }

    fn sound(&self) -> &[[i16; 2]] {
        &[]
    }

    fn sample_rate(&self) -> f64 {
        48_000.0
    }

    fn can_save(&self) -> bool {
        true
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        into.clear();
        into.extend_from_slice(&self.memory);
        if self.has_fault("saving") {
            self.mix(1);
        }
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        self.memory = state.try_into().map_err(|_| LoadError::InvalidState("wrong length".into()))?;
        if self.has_fault("cold") && self.is_child_process() {
            self.mix(1);
        }
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        if self.has_fault("blind") { 0 } else { xxh64(0, &self.memory) }
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        show("memory", &self.memory);
    }

    fn failure(&self) -> Option<&str> {
        self.has_fault("down").then_some("halted for the test")
    }
}
