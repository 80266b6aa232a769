//! Sites, the links between all of them, and the queue of datagrams in flight, in virtual time.

use std::rc::Rc;

use coplay::time::Instant;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::Link;

use super::BenchCase;
use super::host_program::{BenchHost, HostOp, SharedQueues, SiteQueues};
use crate::stopwatch::EngineCost;
use crate::virtual_clock;
use crate::workload::{Inputs, Traffic};

/// A site with one of the compared engines.
pub trait RollbackSite {
    /// Whether an arriving datagram wakes the host program, in addition to the site's deadline.
    const WOKEN_BY_DATAGRAMS: bool;

    /// Creates the site with this number, which starts at its [start time](BenchCase::start_time).
    fn new(case: &BenchCase, number: usize, queues: SharedQueues) -> Self;

    /// Passes the datagrams in the inbox to the engine, serves the engine's requests with `host`, and fills the outbox.
    /// The stopwatch of `host` runs while the engine runs.
    fn wake(&mut self, now: Instant, host: &mut BenchHost);

    /// Returns the next time at which the site must be woken.
    fn deadline(&self) -> Instant;

    /// Returns whether a datagram carries the inputs of its sender.
    fn carries_inputs(bytes: &[u8]) -> bool;

    /// Returns the first error of the site, which makes the results of the run invalid; `None` if there was none.
    fn error(&self) -> Option<String>;
}

/// An operation of a host program or its queues, for the [replay](super::host_replay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// The site with this number wakes up.
    Wake(u8),
    /// A datagram of this length in bytes is waiting for the site.
    Receive(u16),
    /// The site sends a datagram of this length in bytes.
    Send(u16),
    /// The host program performs an operation for its engine.
    Host(HostOp),
}

/// A datagram in flight.
#[derive(Debug)]
struct InFlightDatagram {
    from: usize,
    to: usize,
    /// First frame for which the sender had not sampled its input when it sent the datagram; `None` if the datagram
    /// carries no inputs.
    inputs_end: Option<u32>,
    bytes: Vec<u8>,
}

/// The sites and links of one benchmark case.
pub struct RollbackNetwork<S> {
    case: BenchCase,
    now: Instant,
    sites: Vec<S>,
    hosts: Vec<BenchHost>,
    queues: Vec<SharedQueues>,
    links: Vec<Link>,
    queue: TimedEventQueue<InFlightDatagram>,
    /// Reusable datagram buffers.
    spare_buffers: Vec<Vec<u8>>,
    /// Operations recorded since the trace was last taken; `None` while nothing is recorded.
    trace: Option<Vec<TraceOp>>,
}

impl<S: RollbackSite> RollbackNetwork<S> {
    /// Creates the network at virtual time zero.
    pub fn new(case: BenchCase) -> Self {
        let inputs = Rc::new(Inputs::new(case.seed, case.sites));
        let link = |at| Link::new(case.link(), case.seed, &format!("{}>{}", at / case.sites, at % case.sites));
        let queues: Vec<SharedQueues> = (0..case.sites).map(|_| SharedQueues::default()).collect();
        virtual_clock::set_virtual_time(Some(Instant::ZERO));
        let sites =
            queues.iter().enumerate().map(|(number, queues)| S::new(&case, number, Rc::clone(queues))).collect();
        virtual_clock::set_virtual_time(None);
        Self {
            now: Instant::ZERO,
            sites,
            hosts: (0..case.sites).map(|number| BenchHost::new(&case, number, Rc::clone(&inputs))).collect(),
            queues,
            links: (0..case.sites * case.sites).map(link).collect(),
            queue: TimedEventQueue::new(),
            spare_buffers: Vec::new(),
            trace: None,
            case,
        }
    }

    /// Processes all events up to virtual time `end`.
    pub fn run_until(&mut self, end: Instant) {
        while self.process_next(end) {}
        self.now = end;
        virtual_clock::set_virtual_time(None);
    }

    /// Processes the next event, unless it is later than `end`. Returns whether it processed one.
    fn process_next(&mut self, end: Instant) -> bool {
        let next = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline()).expect("at least one site");
        let deadline = self.sites[next].deadline().max(self.now);
        let arrival = self.queue.next_time().filter(|arrival| *arrival <= deadline);
        if arrival.unwrap_or(deadline) > end {
            return false;
        }
        self.now = arrival.unwrap_or(deadline);
        match arrival {
            Some(_) => self.deliver(),
            None => self.wake_site(next),
        }
        true
    }

    fn deliver(&mut self) {
        let Some((now, InFlightDatagram { from, to, inputs_end: end, bytes })) = self.queue.pop() else { return };
        if let Some(end) = end {
            self.hosts[to].on_inputs(now, from, end);
        }
        self.queues[to].borrow_mut().inbox.push(from, &bytes);
        self.spare_buffers.push(bytes);
        if S::WOKEN_BY_DATAGRAMS {
            self.wake_site(to);
        }
    }

    fn wake_site(&mut self, at: usize) {
        if let Some(trace) = &mut self.trace {
            trace.push(TraceOp::Wake(at as u8));
            trace.extend(self.queues[at].borrow().inbox.lengths().map(|len| TraceOp::Receive(len as u16)));
        }
        virtual_clock::set_virtual_time(Some(self.now));
        self.hosts[at].set_time(self.now);
        self.sites[at].wake(self.now, &mut self.hosts[at]);
        self.transmit(at);
        let ops = self.hosts[at].take_ops();
        match &mut self.trace {
            Some(trace) => trace.extend(ops.map(TraceOp::Host)),
            None => drop(ops),
        }
    }

    /// Sends the datagrams in the outbox of a site over its links.
    fn transmit(&mut self, from: usize) {
        let Self { case, now, hosts, queues, links, queue, spare_buffers, trace, .. } = self;
        let SiteQueues { outbox, .. } = &mut *queues[from].borrow_mut();
        outbox.drain(|to, bytes| {
            if let Some(trace) = trace {
                trace.push(TraceOp::Send(bytes.len() as u16));
            }
            let end = S::carries_inputs(bytes).then(|| hosts[from].sampled_end());
            for arrival in links[from * case.sites + to].send(*now, bytes.len()) {
                let mut copy = spare_buffers.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(bytes);
                queue.push(arrival, InFlightDatagram { from, to, inputs_end: end, bytes: copy });
            }
        });
    }

    /// Starts recording the operations of the host programs.
    pub fn start_recording(&mut self) {
        self.trace = Some(Vec::with_capacity(1 << 20));
    }

    /// Takes the operations recorded since the last call.
    pub fn take_trace(&mut self) -> Vec<TraceOp> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the host programs, by site.
    pub fn hosts(&self) -> &[BenchHost] {
        &self.hosts
    }

    /// Returns the cost inside the engines of all sites so far.
    pub fn engine_cost(&self) -> EngineCost {
        self.hosts.iter().map(|host| host.stopwatch.spent()).sum()
    }

    /// Returns the traffic over all links so far.
    pub fn traffic(&self) -> Traffic {
        self.links.iter().map(|link| Traffic { datagrams: link.stats().sent, bytes: link.stats().bytes }).sum()
    }

    /// Returns the first error of any site, with the site's number.
    pub fn first_error(&self) -> Option<String> {
        let mut all = self.sites.iter().enumerate();
        all.find_map(|(number, site)| site.error().map(|error| format!("site {number}: {error}")))
    }

    /// Returns a number of frames that every site has confirmed: the fewest frames stepped by a site, minus the
    /// prediction window.
    pub fn confirmed_frames(&self) -> usize {
        let stepped = self.hosts.iter().map(|host| host.digests().len()).min().unwrap_or(0);
        stepped.saturating_sub(self.case.prediction_window as usize)
    }
}
