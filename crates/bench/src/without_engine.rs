//! The host program without an engine. The cost of this program is subtracted from the measured costs, so that the cost
//! of the engines remains.

use std::hint::black_box;

use coplay::time::{Instant, TimeDelta};

use crate::inbox::Inbox;
use crate::workload::{DigestMachine, Engine, FRAME_RATE, Inputs, Traffic};

/// A datagram of coplay's usual length.
const DATAGRAM: [u8; 7] = [0; 7];

/// All sites of a session without an engine. Each reads the inputs of the others directly.
#[derive(Debug)]
pub struct EnginelessGroup {
    sites: Vec<(Instant, DigestMachine)>,
    inboxes: Vec<Inbox>,
    inputs: Inputs,
    target_frame: u32,
}

impl EnginelessGroup {
    /// Creates `sites` sites before their first frame.
    pub fn new(sites: usize, inputs: Inputs) -> Self {
        Self {
            sites: vec![(Instant::ZERO, DigestMachine::default()); sites],
            inboxes: (0..sites).map(|_| Inbox::new()).collect(),
            inputs,
            target_frame: 0,
        }
    }

    fn process_next(&mut self) {
        let at = (0..self.sites.len()).min_by_key(|at| self.sites[*at].0).expect("at least one site");
        black_box(std::time::Instant::now());
        self.inboxes[at].drain(|from, bytes| {
            black_box((from, bytes.first()));
        });
        let (deadline, machine) = &mut self.sites[at];
        let frame = machine.frames();
        let players = 0..self.inboxes.len();
        machine.step(players.clone().map(|player| self.inputs.delayed(player, frame)));
        *deadline += TimeDelta::from_nanos(1_000_000_000 / i64::from(FRAME_RATE));
        for to in players.filter(|to| *to != at) {
            self.inboxes[to].push(at, black_box(&DATAGRAM));
        }
    }
}

impl Engine for EnginelessGroup {
    fn run(&mut self, frames: u32) {
        self.target_frame += frames;
        while self.sites.iter().any(|(_, machine)| machine.frames() < self.target_frame) {
            self.process_next();
        }
    }

    fn traffic(&self) -> Traffic {
        self.inboxes.iter().map(Inbox::traffic).sum()
    }

    fn states(&self) -> Vec<u64> {
        self.sites.iter().map(|(_, machine)| machine.state_after(self.target_frame)).collect()
    }
}
