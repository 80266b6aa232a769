//! The simulator: a network of computers with clocks and faults, the links between them, and one queue of future events
//! in virtual time.
//!
//! The network knows no engine. Each engine has a [`Node`], which is its host program, and builds its scenarios and
//! checkers on a [`Network`] of it.
//!
//! Events at the same instant come in the order in which they were scheduled. A computer has at most one wake-up ahead
//! of it, the one that was scheduled last. If that was scheduled for the same instant before,
//! [`Node::KEEPS_PLACE`] says which of the two places it has among the events of the instant.

mod computer;
mod fault;
mod node;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::{BTreeMap, VecDeque};

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, LinkStats};
use coplay_links::random::Random;

use crate::clock::NodeClock;

pub use computer::Computer;
pub(crate) use fault::ADDRESS_STEP;
pub use fault::Fault;
pub use node::{Datagram, Moment, Node, Outbox, Reaction};
pub use topology::Topology;

/// Computers, the links between them, and virtual (true) time.
#[derive(Debug)]
pub struct Network<N> {
    now: Instant,
    seed: u64,
    queue: TimedEventQueue<QueuedEvent>,
    /// The computers, by number.
    pub nodes: Vec<Computer<N>>,
    topology: Topology,
    /// Number of the computer that receives at each address.
    routes: BTreeMap<Addr, usize>,
    /// What happens to a datagram to an address that no computer has.
    outside: Outside,
    spare_buffers: Vec<Vec<u8>>,
    /// Payload and receivers of the datagram being sent.
    outbox: (Vec<u8>, Vec<Addr>),
    send_delays: Random,
    garbage: Random,
    captured: VecDeque<CapturedDatagram>,
    capture_limit: usize,
    /// Conditions, before they were worsened, of the links whose conditions are worse now.
    worsened: BTreeMap<(usize, usize), LinkConfig>,
    /// Upper bound of the random delay of a datagram inside its computer before it is sent (the thread hand-over of
    /// Zhao et al.).
    pub max_send_delay: TimeDelta,
    /// Number of datagrams that exceeded [`MAX_DATAGRAM`] bytes.
    pub oversized_datagrams: u64,
    /// Highest number of events that were queued at once.
    pub max_queued_events: usize,
}

/// What happens to a datagram to an address that no computer of the network has.
#[derive(Debug)]
enum Outside {
    /// It is lost.
    Nowhere,
    /// It leaves the network.
    Captured(Vec<OutboundDatagram>),
    /// The computer with this number receives it.
    Gateway(usize),
}

/// A datagram that leaves the network: send time, sender, receiver and payload.
pub type OutboundDatagram = (Instant, Addr, Addr, Vec<u8>);

#[derive(Debug)]
enum QueuedEvent {
    Wake { node: usize, wake_id: u64 },
    Depart(Packet),
    Arrive { link: u32, packet: Packet },
}

/// A datagram on its way between two computers. The queue moves its events while it sorts, so numbers are short.
#[derive(Debug)]
struct Packet {
    from: u32,
    to: u32,
    sender: Addr,
    receiver: Addr,
    bytes: Vec<u8>,
}

/// The moment of a call: number and clock of the called computer, true and local time.
#[derive(Clone, Copy)]
struct Visit {
    node: usize,
    now: Instant,
    local: Instant,
    clock: NodeClock,
}

/// Copy of a datagram that a computer sent, including sabotage.
#[derive(Clone, Debug)]
pub struct CapturedDatagram {
    /// True time at which the program returned the datagram.
    pub at: Instant,
    /// Number of the sending computer.
    pub from: usize,
    /// Number of the receiving computer.
    pub to: usize,
    /// Payload, as the sender put it on the link.
    pub bytes: Vec<u8>,
}

/// An event that the network has processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkStep {
    /// The computer with this number was woken.
    Woken(usize),
    /// A datagram for the computer with this number was due, whether or not it got through.
    Arrived(usize),
}

impl<N: Node> Network<N> {
    /// Creates a network of these computers, all of which are woken at time zero.
    pub fn with_topology(seed: u64, nodes: Vec<Computer<N>>, topology: Topology) -> Self {
        let mut network = Self::asleep(seed, nodes, topology);
        (0..network.nodes.len()).for_each(|node| network.wake(node));
        network
    }

    /// Creates a network of these computers, none of which is woken before [`wake_at`](Self::wake_at) says so.
    pub fn asleep(seed: u64, nodes: Vec<Computer<N>>, topology: Topology) -> Self {
        Self {
            now: Instant::ZERO,
            seed,
            queue: TimedEventQueue::new(),
            routes: nodes.iter().enumerate().map(|(number, node)| (node.addr, number)).collect(),
            nodes,
            topology,
            outside: Outside::Nowhere,
            spare_buffers: Vec::new(),
            outbox: (vec![0; MAX_DATAGRAM + 8], Vec::new()),
            send_delays: Random::stream(seed, "world"),
            garbage: Random::stream(seed, "garbage"),
            captured: VecDeque::new(),
            capture_limit: 0,
            worsened: BTreeMap::new(),
            max_send_delay: TimeDelta::ZERO,
            oversized_datagrams: 0,
            max_queued_events: 0,
        }
    }

    /// Returns the virtual time, from which each computer's clock deviates.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the seed from which all random draws of the network follow.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the time that a computer's clock shows now.
    pub fn local_time(&self, node: impl Into<usize>) -> Instant {
        self.nodes[node.into()].clock.local(self.now)
    }

    /// Returns the link that carries datagrams from one computer to another.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let index = self.topology.index(from, to);
        self.topology.link(index)
    }

    /// Returns all links. In a mesh, the link from computer a to computer b has the index a × computers + b.
    pub fn links(&self) -> &[Link] {
        self.topology.links()
    }

    /// Returns all links mutably, in the same order.
    pub fn links_mut(&mut self) -> &mut [Link] {
        self.topology.links_mut()
    }

    /// Returns the sum of the counters of all links.
    pub fn traffic(&self) -> LinkStats {
        self.links().iter().map(Link::stats).sum()
    }

    /// Returns the computer that receives at an address; `None` if no computer has it.
    pub fn node_at(&self, addr: Addr) -> Option<usize> {
        self.routes.get(&addr).copied()
    }

    /// Makes a computer receive at another address, in place of its present one.
    pub fn set_address(&mut self, node: usize, addr: Addr) {
        self.remove_address(node);
        self.nodes[node].addr = addr;
        self.routes.insert(addr, node);
    }

    /// Makes the address of a computer unreachable. Datagrams that are on their way still arrive.
    pub fn remove_address(&mut self, node: usize) {
        self.routes.retain(|_, routed| *routed != node);
    }

    /// Makes a computer receive all datagrams to addresses that no computer has.
    pub fn set_gateway(&mut self, node: usize) {
        self.outside = Outside::Gateway(node);
    }

    /// Captures, from now on, datagrams to addresses that no computer has.
    pub fn capture_external(&mut self) {
        self.outside = Outside::Captured(Vec::new());
    }

    /// Takes the captured datagrams to addresses that no computer has, in send order.
    pub fn take_external(&mut self) -> Vec<OutboundDatagram> {
        if let Outside::Captured(datagrams) = &mut self.outside { std::mem::take(datagrams) } else { Vec::new() }
    }

    /// Discards all captured datagrams. From now on keeps copies of the newest `limit` datagrams that computers send to
    /// each other, whether they arrive or not.
    pub fn start_capture(&mut self, limit: usize) {
        self.capture_limit = limit;
        self.captured.clear();
    }

    /// Returns the captured datagrams, oldest first.
    pub fn captured(&self) -> impl ExactSizeIterator<Item = &CapturedDatagram> {
        self.captured.iter()
    }

    /// Schedules a run of a computer's program for now. Call this after a change of the program from outside.
    pub fn wake(&mut self, node: usize) {
        self.wake_at(node, self.now);
    }

    /// Schedules the next run of a computer's program for this true time, or for now if that is later.
    pub fn wake_at(&mut self, node: usize, at: Instant) {
        let at = at.max(self.now);
        let wake_id = self.nodes[node].next_wake_id(at);
        self.queue.push(at, QueuedEvent::Wake { node, wake_id });
    }

    /// Processes all events up to the true time `until`.
    pub fn run(&mut self, until: Instant, context: &mut N::Context<'_>) {
        while self.step(until, context).is_some() {}
    }

    /// Processes the next event up to the true time `until`; returns `None`, at that time, if there is none.
    pub fn step(&mut self, until: Instant, context: &mut N::Context<'_>) -> Option<NetworkStep> {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            self.max_queued_events = self.max_queued_events.max(self.queue.len());
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                QueuedEvent::Wake { node, wake_id } if self.nodes[node].awaits_wake(wake_id, at, N::KEEPS_PLACE) => {
                    self.run_node(node, context);
                    return Some(NetworkStep::Woken(node));
                }
                QueuedEvent::Wake { .. } => {}
                QueuedEvent::Depart(packet) => self.send_on_link(self.now, packet),
                QueuedEvent::Arrive { link, packet } => {
                    if self.topology.link(link as usize).admit_arrival() {
                        self.deliver(&packet, context);
                    }
                    let to = packet.to as usize;
                    self.spare_buffers.push(packet.bytes);
                    return Some(NetworkStep::Arrived(to));
                }
            }
        }
        self.now = self.now.max(until);
        None
    }

    fn deliver(&mut self, packet: &Packet, context: &mut N::Context<'_>) {
        let Packet { sender, receiver, ref bytes, .. } = *packet;
        let to = packet.to as usize;
        let computer = &mut self.nodes[to];
        if computer.is_crashed {
            return;
        }
        if computer.asleep_until > self.now {
            return computer.buffer_datagram(sender, receiver, bytes);
        }
        // A busy computer receives datagrams at once but runs its program only when the work is done.
        let is_busy = computer.busy_until > self.now;
        match self.handle_datagram(to, Datagram { from: sender, to: receiver, bytes }, context) {
            Reaction::Run if !is_busy => self.run_node(to, context),
            Reaction::Transmit => self.transmit(to, context),
            Reaction::Run | Reaction::Wait => {}
        }
    }

    /// Passes a datagram from outside the network to the computer at address `to`, if there is one, and wakes the
    /// computer. A sleeping computer buffers the datagram.
    pub fn deliver_external(&mut self, from: Addr, to: Addr, bytes: &[u8], context: &mut N::Context<'_>) {
        let Some(node) = self.node_at(to) else { return };
        let computer = &mut self.nodes[node];
        if computer.asleep_until > self.now {
            computer.buffer_datagram(from, to, bytes);
        } else if !computer.is_crashed {
            self.handle_datagram(node, Datagram { from, to, bytes }, context);
            self.wake(node);
        }
    }

    fn handle_datagram(&mut self, to: usize, datagram: Datagram<'_>, context: &mut N::Context<'_>) -> Reaction {
        let (program, now) = self.program(self.visit(to));
        program.handle_datagram(&now, datagram, context)
    }

    fn visit(&self, node: usize) -> Visit {
        let clock = self.nodes[node].clock;
        Visit { node, now: self.now, local: clock.local(self.now), clock }
    }

    fn program(&mut self, visit: Visit) -> (&mut N, Moment<'_>) {
        let Visit { node, now, local, clock } = visit;
        (&mut self.nodes[node].node, Moment { node, now, local, clock, routes: &self.routes })
    }

    /// Runs the program of a computer. Does nothing if the computer has crashed, and only schedules the next wake-up if
    /// it sleeps or is busy.
    fn run_node(&mut self, node: usize, context: &mut N::Context<'_>) {
        let true_time = self.now;
        let computer = &mut self.nodes[node];
        if computer.is_crashed {
            return;
        }
        let free_from = computer.asleep_until.max(computer.busy_until);
        if free_from > true_time {
            return self.wake_at(node, free_from);
        }
        if computer.loops_endlessly(true_time) {
            computer.is_crashed = true;
            computer.node.on_endless_loop();
        }
        for (from, to, bytes) in std::mem::take(&mut computer.socket_buffer) {
            self.handle_datagram(node, Datagram { from, to, bytes: &bytes }, context);
        }
        let visit = self.visit(node);
        while let Some(busy) = self.work(visit, context) {
            self.transmit_all(visit, context);
            if busy > TimeDelta::ZERO {
                self.nodes[node].busy_until = true_time + busy;
                return self.wake_at(node, true_time + busy);
            }
        }
        self.transmit_all(visit, context);
        let (program, now) = self.program(visit);
        program.on_idle(&now, context);
        self.schedule_wake_of(visit);
    }

    /// Schedules the next run of a computer's program for the time that the program asks for, if it does.
    pub fn schedule_wake(&mut self, node: usize) {
        self.schedule_wake_of(self.visit(node));
    }

    fn schedule_wake_of(&mut self, visit: Visit) {
        let (program, now) = self.program(visit);
        if let Some(at) = program.poll_timeout(&now) {
            self.wake_at(visit.node, at);
        }
    }

    fn work(&mut self, visit: Visit, context: &mut N::Context<'_>) -> Option<TimeDelta> {
        let (program, now) = self.program(visit);
        program.work(&now, context)
    }

    /// Sends all datagrams that a computer's program has ready.
    pub fn transmit(&mut self, from: usize, context: &mut N::Context<'_>) {
        self.transmit_all(self.visit(from), context);
    }

    fn transmit_all(&mut self, visit: Visit, context: &mut N::Context<'_>) {
        let (mut buf, mut receivers) = std::mem::take(&mut self.outbox);
        loop {
            let (program, now) = self.program(visit);
            let mut out = Outbox { buf: &mut buf, to: &mut receivers };
            let Some(len) = program.poll_transmit(&now, &mut out, context) else { break };
            self.oversized_datagrams += u64::from(len > MAX_DATAGRAM);
            receivers.drain(..).for_each(|to| self.send(visit.node, to, &buf[..len]));
        }
        self.outbox = (buf, receivers);
    }

    fn send(&mut self, from: usize, receiver: Addr, bytes: &[u8]) {
        let sender = self.nodes[from].addr;
        let to = match (self.node_at(receiver), &mut self.outside) {
            (Some(to), _) => to,
            (None, Outside::Gateway(gateway)) => *gateway,
            (None, Outside::Captured(outside)) => return outside.push((self.now, sender, receiver, bytes.to_vec())),
            (None, Outside::Nowhere) => return,
        };
        if to == from {
            return;
        }
        self.capture(from, to, bytes);
        let packet = Packet { from: from as u32, to: to as u32, sender, receiver, bytes: self.copy(bytes) };
        if self.max_send_delay > TimeDelta::ZERO {
            let wait = TimeDelta::from_nanos(self.send_delays.range(0..=self.max_send_delay.as_nanos()));
            self.queue.push(self.now + wait, QueuedEvent::Depart(packet));
        } else {
            self.send_on_link(self.now, packet);
        }
    }

    /// Puts a datagram from outside on the link from a computer to the one at address `receiver`, at the true time
    /// `at`; without such a computer the datagram is lost.
    pub fn forward(&mut self, at: Instant, from: usize, sender: Addr, receiver: Addr, bytes: &[u8]) {
        let Some(to) = self.node_at(receiver) else { return };
        let packet = Packet { from: from as u32, to: to as u32, sender, receiver, bytes: self.copy(bytes) };
        self.send_on_link(at, packet);
    }

    fn send_on_link(&mut self, at: Instant, packet: Packet) {
        let link = self.topology.index(packet.from as usize, packet.to as usize);
        let mut deliveries = self.topology.link(link).send(at, packet.bytes.len());
        let link = link as u32;
        let Some(first) = deliveries.next() else { return self.spare_buffers.push(packet.bytes) };
        for at in deliveries {
            let bytes = self.copy(&packet.bytes);
            self.queue.push(at, QueuedEvent::Arrive { link, packet: Packet { bytes, ..packet } });
        }
        self.queue.push(first, QueuedEvent::Arrive { link, packet });
    }

    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare_buffers.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn capture(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if self.capture_limit == 0 {
            return;
        }
        if self.captured.len() == self.capture_limit {
            self.captured.pop_front();
        }
        self.captured.push_back(CapturedDatagram { at: self.now, from, to, bytes: bytes.to_vec() });
    }
}
