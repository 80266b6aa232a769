//! The fault script of a scenario: faults of links, computers and programs, and their ends.

use coplay::codec;
use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

use super::{Datagram, Network, Node};

/// Number added to the address of a computer that moves.
pub(crate) const ADDRESS_STEP: u64 = 100;
/// Number of addresses from which [garbage](Fault::Garbage) comes, and the first of them.
const GARBAGE_SENDERS: (u64, u64) = (1_000, 1_000_000);

/// A fault of a scenario, or the end of one. Computers are given by number. The network injects the faults of links and
/// computers. The engine's scenario does the rest: crashes, leaves, starts, and the faults of type `E`.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault<E> {
    /// Cuts both directions between two computers.
    Cut(usize, usize),
    /// Restores both directions between two computers.
    Heal(usize, usize),
    /// Cuts the direction from the first computer to the second.
    CutOneWay(usize, usize),
    /// Restores the direction from the first computer to the second.
    HealOneWay(usize, usize),
    /// Cuts all links between the computers with a lower number than this and all other ones.
    Split(usize),
    /// Restores all links.
    HealAll,
    /// Replaces the conditions in both directions between two computers.
    Worsen(usize, usize, LinkConfig),
    /// Restores the original conditions between two computers.
    Restore(usize, usize),
    /// Stops a computer's program until this time; the clock keeps running.
    Pause(usize, Instant),
    /// Suspends a computer until this time; its clock stands still.
    Suspend(usize, Instant),
    /// Advances a computer's clock by this span, or sets it back.
    StepClock(usize, TimeDelta),
    /// Gives a computer a new address. Datagrams sent to the old address from then on are lost.
    Move(usize),
    /// Sends this many random datagrams from unknown addresses to a computer. About half of them begin like a message
    /// of a session. Rejecting datagrams that forge a peer's address is the task of the transport.
    Garbage(usize, u32),
    /// Stops a computer's program without notice to its peers.
    Crash(usize),
    /// Stops a computer's program after it has taken its leave.
    Leave(usize),
    /// Starts a computer's program, or restarts it without its earlier state.
    Start(usize),
    /// A fault that only this engine knows.
    Engine(E),
}

impl<N: Node> Network<N> {
    /// Injects a fault of links or computers. Returns `false` for any other, which it leaves to the caller.
    pub fn apply<E>(&mut self, fault: &Fault<E>, context: &mut N::Context<'_>) -> bool {
        match *fault {
            Fault::Cut(one, other) => self.set_cut(one, other, true),
            Fault::Heal(one, other) => self.set_cut(one, other, false),
            Fault::CutOneWay(from, to) => self.link(from, to).set_cut(true),
            Fault::HealOneWay(from, to) => self.link(from, to).set_cut(false),
            Fault::Split(first) => self.split(first),
            Fault::HealAll => self.links_mut().iter_mut().for_each(|link| link.set_cut(false)),
            Fault::Worsen(one, other, ref config) => self.worsen(one, other, config),
            Fault::Restore(one, other) => self.restore(one, other),
            Fault::Pause(node, until) => self.pause(node, until),
            Fault::Suspend(node, until) => self.suspend(node, until),
            Fault::StepClock(node, step) => self.step_clock(node, step),
            Fault::Move(node) => self.change_address(node),
            Fault::Garbage(node, count) => self.send_garbage(node, count, context),
            Fault::Crash(_) | Fault::Leave(_) | Fault::Start(_) | Fault::Engine(_) => return false,
        }
        true
    }

    /// Cuts or restores the links between two computers in both directions.
    pub fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    /// Cuts all links between the first computers, this many, and the others.
    fn split(&mut self, first: usize) {
        for one in 0..first {
            (first..self.nodes.len()).for_each(|other| self.set_cut(one, other, true));
        }
    }

    fn worsen(&mut self, one: usize, other: usize, config: &LinkConfig) {
        for (from, to) in [(one, other), (other, one)] {
            let before = self.link(from, to).config().clone();
            self.worsened.entry((from, to)).or_insert(before);
            self.link(from, to).set_config(config.clone());
        }
    }

    fn restore(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            if let Some(config) = self.worsened.remove(&(from, to)) {
                self.link(from, to).set_config(config);
            }
        }
    }

    /// Restores all links and gives each of them the conditions that `change` makes of its present ones.
    pub fn end_impairments(&mut self, change: impl Fn(LinkConfig) -> LinkConfig) {
        for link in self.links_mut() {
            link.set_cut(false);
            link.set_config(change(link.config().clone()));
        }
    }

    /// Gives a computer a new address. Datagrams sent to the old address from now on do not reach it.
    pub fn change_address(&mut self, node: usize) {
        let Addr(before) = self.nodes[node].addr;
        self.nodes[node].moves += 1;
        self.set_address(node, Addr(before + ADDRESS_STEP));
    }

    /// Crashes a computer: until a restart it receives, computes and sends nothing.
    pub fn crash(&mut self, node: usize) {
        self.nodes[node].is_crashed = true;
    }

    /// Lets a computer run after a crash, and wakes it. Datagrams in its socket are lost.
    pub fn restart_computer(&mut self, node: usize) {
        self.nodes[node].restart();
        self.wake(node);
    }

    /// Advances a computer's clock by `step`, or sets it back, and wakes the computer.
    pub fn step_clock(&mut self, node: usize, step: TimeDelta) {
        self.nodes[node].clock.offset += step;
        self.wake(node);
    }

    /// Suspends a computer until the true time `until`. Its clock stands still meanwhile.
    pub fn suspend(&mut self, node: usize, until: Instant) {
        let asleep = until - self.now;
        self.nodes[node].clock.offset -= asleep;
        self.pause(node, until);
    }

    /// Pauses a computer's program until the true time `until`. The clock keeps running.
    pub fn pause(&mut self, node: usize, until: Instant) {
        self.nodes[node].asleep_until = until;
        self.wake_at(node, until);
    }

    fn send_garbage(&mut self, node: usize, count: u32, context: &mut N::Context<'_>) {
        let mut bytes = [0u8; 200];
        for _ in 0..count {
            let len = self.garbage.below(bytes.len() as u64) as usize;
            bytes.fill_with(|| self.garbage.bits() as u8);
            if self.garbage.chance(0.5) {
                bytes[0] = codec::VERSION;
            }
            let (senders, first) = GARBAGE_SENDERS;
            let (from, to) = (Addr(first + self.garbage.below(senders)), self.nodes[node].addr);
            if !self.nodes[node].is_crashed {
                self.handle_datagram(node, Datagram { from, to, bytes: &bytes[..len] }, context);
            }
        }
    }
}
