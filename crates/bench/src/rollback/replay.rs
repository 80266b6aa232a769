//! The host programs alone, with no engine in them: what is left is what the engines cost.
//!
//! All that was recorded is done once more: the same datagrams, by number and length, wait and are sent, the same
//! states are copied from and to the same places, and as many frames are stepped. The stopwatch is started and stopped
//! as often as with an engine, so that its own cost cancels out, too.

use std::hint::black_box;

use super::Case;
use super::host::Work;
use super::machine::Machine;
use super::world::Op;
use crate::cycles::{Spent, Stopwatch};
use crate::wire::Inbox;

/// A host program without an engine.
struct Site {
    inbox: Inbox,
    outbox: Inbox,
    machine: Machine,
    slots: Vec<Machine>,
}

/// All of them.
pub struct Replay {
    watch: Stopwatch,
    sites: Vec<Site>,
    inputs: Vec<u16>,
    sending: Vec<usize>,
}

impl Replay {
    /// Nothing was done yet.
    pub fn new(case: &Case) -> Self {
        Self {
            watch: Stopwatch::default(),
            sites: (0..case.sites).map(|_| Site::new(case)).collect(),
            inputs: vec![0; case.sites],
            sending: Vec::with_capacity(64),
        }
    }

    /// Does what was recorded, and says what is spent on it.
    pub fn run(&mut self, trace: &[Op]) -> Spent {
        let before = self.watch.spent();
        for ops in trace.chunk_by(|_, next| !matches!(next, Op::Wake(_))) {
            if let Op::Wake(site) = ops[0] {
                self.wake(site.into(), &ops[1..]);
            }
        }
        self.watch.spent().since(before)
    }

    /// A site wakes up, hears and says so much, and does so much in between.
    fn wake(&mut self, at: usize, ops: &[Op]) {
        static DATAGRAM: [u8; 4_096] = [0; 4_096];
        let Self { watch, sites, inputs, sending } = self;
        let site = &mut sites[at];
        for op in ops {
            match op {
                Op::Hear(len) => site.inbox.push(at, black_box(&DATAGRAM[..usize::from(*len)])),
                Op::Send(len) => sending.push(usize::from(*len)),
                _ => {}
            }
        }
        watch.start();
        site.inbox.drain(|from, bytes| {
            black_box((from, bytes.first()));
        });
        sending.iter().for_each(|len| site.outbox.push(at, black_box(&DATAGRAM[..*len])));
        watch.stop();
        sending.clear();
        site.outbox.drain(|_, _| {});
        for op in ops {
            if let Op::Work(work) = op {
                site.work(*work, inputs);
                watch.start();
                watch.stop();
            }
        }
    }
}

impl Site {
    fn new(case: &Case) -> Self {
        let slots = vec![Machine::NEW; case.window as usize + 1];
        Self { inbox: Inbox::new(), outbox: Inbox::new(), machine: Machine::NEW, slots }
    }

    fn work(&mut self, work: Work, inputs: &[u16]) {
        match work {
            Work::Save { slot } => self.slots[usize::from(slot)].clone_from(&self.machine),
            Work::Load { slot } => self.machine.clone_from(&self.slots[usize::from(slot)]),
            Work::Step => self.machine.step(black_box(inputs).iter().copied()),
        }
    }
}
