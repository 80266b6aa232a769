//! Sites, the links between all of them, and one queue of what happens next in virtual time.

use std::rc::Rc;

use coplay::time::Instant;
use coplay_sim::event_queue::EventQueue;
use coplay_sim::link::Link;

use super::BenchCase;
use super::host_program::{BenchHost, HostOp, SharedQueues, SiteQueues};
use crate::stopwatch::EngineCost;
use crate::virtual_clock;
use crate::workload::{Inputs, Traffic};

/// One site's end of an engine.
pub trait RollbackSite {
    /// Whether its host program wakes up when a datagram comes, besides when the site wants to.
    const WOKEN_BY_DATAGRAMS: bool;

    /// The site of this number, which begins at a time of its own.
    fn new(case: &BenchCase, number: usize, mail: SharedQueues) -> Self;

    /// Hears what came, lets the host program work, and says what is to be said. The stopwatch of the host program runs
    /// meanwhile.
    fn wake(&mut self, now: Instant, host: &mut BenchHost);

    /// When it wants to be woken.
    fn deadline(&self) -> Instant;

    /// Whether a datagram tells the inputs of its sender.
    fn carries_inputs(bytes: &[u8]) -> bool;

    /// What has gone wrong, if anything has.
    fn error(&self) -> Option<String>;
}

/// One thing that a host program or the wire has to do, for [`replay`](super::host_replay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// A site wakes up.
    Wake(u8),
    /// A datagram of this length waits for it.
    Receive(u16),
    /// It sends a datagram of this length.
    Send(u16),
    /// Its host program works.
    Host(HostOp),
}

/// A datagram under way.
#[derive(Debug)]
struct InFlightDatagram {
    from: usize,
    to: usize,
    /// Inputs before this frame are told, if any are.
    inputs_end: Option<u32>,
    bytes: Vec<u8>,
}

/// Everything.
pub struct RollbackNetwork<S> {
    case: BenchCase,
    now: Instant,
    sites: Vec<S>,
    hosts: Vec<BenchHost>,
    queues: Vec<SharedQueues>,
    links: Vec<Link>,
    queue: EventQueue<InFlightDatagram>,
    /// Buffers for datagrams to come.
    spare_buffers: Vec<Vec<u8>>,
    /// What was done since recording began.
    trace: Option<Vec<TraceOp>>,
}

impl<S: RollbackSite> RollbackNetwork<S> {
    /// A world in which nothing has happened yet.
    pub fn new(case: BenchCase) -> Self {
        let inputs = Rc::new(Inputs::new(case.seed, case.sites));
        let link = |at| Link::new(case.link(), case.seed, &format!("{}>{}", at / case.sites, at % case.sites));
        let mail: Vec<SharedQueues> = (0..case.sites).map(|_| SharedQueues::default()).collect();
        virtual_clock::set_virtual_time(Some(Instant::ZERO));
        let sites = mail.iter().enumerate().map(|(number, mail)| S::new(&case, number, Rc::clone(mail))).collect();
        virtual_clock::set_virtual_time(None);
        Self {
            now: Instant::ZERO,
            sites,
            hosts: (0..case.sites).map(|number| BenchHost::new(&case, number, Rc::clone(&inputs))).collect(),
            queues: mail,
            links: (0..case.sites * case.sites).map(link).collect(),
            queue: EventQueue::new(),
            spare_buffers: Vec::new(),
            trace: None,
            case,
        }
    }

    /// Lets everything happen up to this time.
    pub fn run_until(&mut self, end: Instant) {
        while self.process_next(end) {}
        self.now = end;
        virtual_clock::set_virtual_time(None);
    }

    /// What happens next happens, unless it is later than `end`.
    fn process_next(&mut self, end: Instant) -> bool {
        let next = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline()).expect("there are sites");
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
        let work = self.hosts[at].take_ops();
        match &mut self.trace {
            Some(trace) => trace.extend(work.map(TraceOp::Host)),
            None => drop(work),
        }
    }

    /// What a site says goes on its way.
    fn transmit(&mut self, from: usize) {
        let Self { case, now, hosts, queues: mail, links, queue, spare_buffers: spare, trace, .. } = self;
        let SiteQueues { outbox, .. } = &mut *mail[from].borrow_mut();
        outbox.drain(|to, bytes| {
            if let Some(trace) = trace {
                trace.push(TraceOp::Send(bytes.len() as u16));
            }
            let end = S::carries_inputs(bytes).then(|| hosts[from].sampled_end());
            for arrival in links[from * case.sites + to].send(*now, bytes.len()) {
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(bytes);
                queue.push(arrival, InFlightDatagram { from, to, inputs_end: end, bytes: copy });
            }
        });
    }

    /// From now on it is recorded what host programs do.
    pub fn start_recording(&mut self) {
        self.trace = Some(Vec::with_capacity(1 << 20));
    }

    /// What was recorded; the record begins anew.
    pub fn take_trace(&mut self) -> Vec<TraceOp> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The host programs, by site.
    pub fn hosts(&self) -> &[BenchHost] {
        &self.hosts
    }

    /// What was spent in the engines so far.
    pub fn engine_cost(&self) -> EngineCost {
        self.hosts.iter().map(|host| host.stopwatch.spent()).sum()
    }

    /// What went over all links so far.
    pub fn traffic(&self) -> Traffic {
        self.links.iter().map(|link| Traffic { datagrams: link.stats().sent, bytes: link.stats().bytes }).sum()
    }

    /// What has gone wrong, if anything has.
    pub fn first_error(&self) -> Option<String> {
        let mut all = self.sites.iter().enumerate();
        all.find_map(|(number, site)| site.error().map(|trouble| format!("site {number}: {trouble}")))
    }

    /// How many frames every site has stepped for good.
    pub fn confirmed_frames(&self) -> usize {
        let stepped = self.hosts.iter().map(|host| host.digests().len()).min().unwrap_or(0);
        stepped.saturating_sub(self.case.prediction_window as usize)
    }
}
