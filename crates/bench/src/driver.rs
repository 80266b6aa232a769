//! The host program alone, with no engine in it: what is left is what the engines cost.

use std::hint::black_box;

use coplay::time::{Instant, TimeDelta};

use crate::wire::Inbox;
use crate::work::{Engine, Inputs, Machine, RATE, Traffic};

/// As long as a usual datagram of coplay's.
const DATAGRAM: [u8; 7] = [0; 7];

/// All sites, each of which knows by magic what the others press.
#[derive(Debug)]
pub struct Group {
    sites: Vec<(Instant, Machine)>,
    inboxes: Vec<Inbox>,
    inputs: Inputs,
    target: u32,
}

impl Group {
    /// So many sites.
    pub fn new(sites: usize, inputs: Inputs) -> Self {
        Self {
            sites: vec![(Instant::ZERO, Machine::default()); sites],
            inboxes: (0..sites).map(|_| Inbox::new()).collect(),
            inputs,
            target: 0,
        }
    }

    fn turn(&mut self) {
        let at = (0..self.sites.len()).min_by_key(|at| self.sites[*at].0).expect("there are sites");
        black_box(std::time::Instant::now());
        self.inboxes[at].drain(|from, bytes| {
            black_box((from, bytes.first()));
        });
        let (deadline, machine) = &mut self.sites[at];
        let frame = machine.frames();
        let players = 0..self.inboxes.len();
        machine.step(players.clone().map(|player| self.inputs.before(player, frame)));
        *deadline += TimeDelta::from_nanos(1_000_000_000 / i64::from(RATE));
        for to in players.filter(|to| *to != at) {
            self.inboxes[to].push(at, black_box(&DATAGRAM));
        }
    }
}

impl Engine for Group {
    fn run(&mut self, frames: u32) {
        self.target += frames;
        while self.sites.iter().any(|(_, machine)| machine.frames() < self.target) {
            self.turn();
        }
    }

    fn traffic(&self) -> Traffic {
        self.inboxes.iter().map(Inbox::traffic).sum()
    }

    fn states(&self) -> Vec<u64> {
        self.sites.iter().map(|(_, machine)| machine.state_after(self.target)).collect()
    }
}
