//! Sites, the links between all of them, and one queue of what happens next in virtual time.

use std::rc::Rc;

use coplay::time::Instant;
use coplay_sim::link::Link;
use coplay_sim::queue::Queue;

use super::Case;
use super::host::{Host, Mail, Mailbox, Work};
use crate::clock;
use crate::cycles::Spent;
use crate::work::{Inputs, Traffic};

/// One site's end of an engine.
pub trait Site {
    /// Whether its host program wakes up when a datagram comes, besides when the site wants to.
    const WOKEN_BY_DATAGRAMS: bool;

    /// The site of this number, which begins at a time of its own.
    fn new(case: &Case, number: usize, mail: Mailbox) -> Self;

    /// Hears what came, lets the host program work, and says what is to be said. The stopwatch of the host program runs
    /// meanwhile.
    fn wake(&mut self, now: Instant, host: &mut Host);

    /// When it wants to be woken.
    fn deadline(&self) -> Instant;

    /// Whether a datagram tells the inputs of its sender.
    fn tells_inputs(bytes: &[u8]) -> bool;

    /// What has gone wrong, if anything has.
    fn trouble(&self) -> Option<String>;
}

/// One thing that a host program or the wire has to do, for [`replay`](super::replay).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A site wakes up.
    Wake(u8),
    /// A datagram of this length waits for it.
    Hear(u16),
    /// It sends a datagram of this length.
    Send(u16),
    /// Its host program works.
    Work(Work),
}

/// A datagram under way.
#[derive(Debug)]
struct Flight {
    from: usize,
    to: usize,
    /// Inputs before this frame are told, if any are.
    end: Option<u32>,
    bytes: Vec<u8>,
}

/// Everything.
pub struct World<S> {
    case: Case,
    now: Instant,
    sites: Vec<S>,
    hosts: Vec<Host>,
    mail: Vec<Mailbox>,
    links: Vec<Link>,
    queue: Queue<Flight>,
    /// Buffers for datagrams to come.
    spare: Vec<Vec<u8>>,
    /// What was done since recording began.
    trace: Option<Vec<Op>>,
}

impl<S: Site> World<S> {
    /// A world in which nothing has happened yet.
    pub fn new(case: Case) -> Self {
        let inputs = Rc::new(Inputs::new(case.seed, case.sites));
        let link = |at| Link::new(case.link(), case.seed, &format!("{}>{}", at / case.sites, at % case.sites));
        let mail: Vec<Mailbox> = (0..case.sites).map(|_| Mailbox::default()).collect();
        clock::set(Some(Instant::ZERO));
        let sites = mail.iter().enumerate().map(|(number, mail)| S::new(&case, number, Rc::clone(mail))).collect();
        clock::set(None);
        Self {
            now: Instant::ZERO,
            sites,
            hosts: (0..case.sites).map(|number| Host::new(&case, number, Rc::clone(&inputs))).collect(),
            mail,
            links: (0..case.sites * case.sites).map(link).collect(),
            queue: Queue::new(),
            spare: Vec::new(),
            trace: None,
            case,
        }
    }

    /// Lets everything happen up to this time.
    pub fn run_until(&mut self, end: Instant) {
        while self.turn(end) {}
        self.now = end;
        clock::set(None);
    }

    /// What happens next happens, unless it is later than `end`.
    fn turn(&mut self, end: Instant) -> bool {
        let next = (0..self.sites.len()).min_by_key(|at| self.sites[*at].deadline()).expect("there are sites");
        let deadline = self.sites[next].deadline().max(self.now);
        let arrival = self.queue.next_time().filter(|arrival| *arrival <= deadline);
        if arrival.unwrap_or(deadline) > end {
            return false;
        }
        self.now = arrival.unwrap_or(deadline);
        match arrival {
            Some(_) => self.arrive(),
            None => self.wake(next),
        }
        true
    }

    fn arrive(&mut self) {
        let Some((now, Flight { from, to, end, bytes })) = self.queue.pop() else { return };
        if let Some(end) = end {
            self.hosts[to].on_inputs(now, from, end);
        }
        self.mail[to].borrow_mut().inbox.push(from, &bytes);
        self.spare.push(bytes);
        if S::WOKEN_BY_DATAGRAMS {
            self.wake(to);
        }
    }

    fn wake(&mut self, at: usize) {
        if let Some(trace) = &mut self.trace {
            trace.push(Op::Wake(at as u8));
            trace.extend(self.mail[at].borrow().inbox.lengths().map(|len| Op::Hear(len as u16)));
        }
        clock::set(Some(self.now));
        self.hosts[at].on_time(self.now);
        self.sites[at].wake(self.now, &mut self.hosts[at]);
        self.send(at);
        let work = self.hosts[at].take_work();
        match &mut self.trace {
            Some(trace) => trace.extend(work.map(Op::Work)),
            None => drop(work),
        }
    }

    /// What a site says goes on its way.
    fn send(&mut self, from: usize) {
        let Self { case, now, hosts, mail, links, queue, spare, trace, .. } = self;
        let Mail { outbox, .. } = &mut *mail[from].borrow_mut();
        outbox.drain(|to, bytes| {
            if let Some(trace) = trace {
                trace.push(Op::Send(bytes.len() as u16));
            }
            let end = S::tells_inputs(bytes).then(|| hosts[from].sampled());
            for arrival in links[from * case.sites + to].send(*now, bytes.len()) {
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(bytes);
                queue.push(arrival, Flight { from, to, end, bytes: copy });
            }
        });
    }

    /// From now on it is recorded what host programs do.
    pub fn record(&mut self) {
        self.trace = Some(Vec::with_capacity(1 << 20));
    }

    /// What was recorded; the record begins anew.
    pub fn take_trace(&mut self) -> Vec<Op> {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The host programs, by site.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What was spent in the engines so far.
    pub fn spent(&self) -> Spent {
        self.hosts.iter().map(|host| host.watch.spent()).sum()
    }

    /// What went over all links so far.
    pub fn traffic(&self) -> Traffic {
        self.links.iter().map(|link| Traffic { datagrams: link.stats().sent, bytes: link.stats().bytes }).sum()
    }

    /// What has gone wrong, if anything has.
    pub fn trouble(&self) -> Option<String> {
        let mut all = self.sites.iter().enumerate();
        all.find_map(|(number, site)| site.trouble().map(|trouble| format!("site {number}: {trouble}")))
    }

    /// How many frames every site has stepped for good.
    pub fn confirmed(&self) -> usize {
        let stepped = self.hosts.iter().map(|host| host.digests().len()).min().unwrap_or(0);
        stepped.saturating_sub(self.case.window as usize)
    }
}
