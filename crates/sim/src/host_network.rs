//! A simulated network for any host program: sites with exact clocks, links between all of them, and virtual time.
//!
//! [`SessionNetwork`](crate::session_network::SessionNetwork) runs only the toy machine and simulates faults of
//! computers. This network knows only sessions, so that any machine and any driver of a [`Session`] can run in it.

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::session::Session;
use coplay::time::Instant;

use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig};

/// A host program that embeds one session.
pub trait HostProgram {
    /// Returns the session. The network passes it the datagrams that arrive, and polls it for datagrams to send.
    fn session(&mut self) -> &mut Session;

    /// Serves the session's next request. Returns `false` if the session has none.
    fn serve_request(&mut self, now: Instant) -> bool;

    /// Runs after all requests are served and all datagrams are sent. The default does nothing.
    fn on_idle(&mut self, _now: Instant) {}
}

/// Host programs, the links between them, and virtual time.
#[derive(Debug)]
pub struct HostNetwork<H> {
    now: Instant,
    queue: TimedEventQueue<HostQueueEvent>,
    /// Host programs, by site number.
    pub programs: Vec<H>,
    links: Vec<Link>,
    wake_ids: Vec<u64>,
    spare_buffers: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum HostQueueEvent {
    Wake { program: usize, wake_id: u64 },
    Arrive { from: usize, to: usize, bytes: Vec<u8> },
}

impl<H: HostProgram> HostNetwork<H> {
    /// Creates a network of these host programs, one per site in site order. `link(from, to)` returns the conditions of
    /// the link from site `from` to site `to`.
    pub fn new(seed: u64, programs: Vec<H>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = programs.len();
        let pairs = (0..count * count).map(|at| (at / count, at % count));
        let links = pairs.map(|(from, to)| Link::new(link(from, to), seed, &format!("{from}>{to}"))).collect();
        let mut network = Self {
            now: Instant::ZERO,
            queue: TimedEventQueue::new(),
            programs,
            links,
            wake_ids: vec![0; count],
            spare_buffers: Vec::new(),
        };
        for program in 0..count {
            network.schedule_wake(program, Instant::ZERO);
        }
        network
    }

    /// Returns the address of a site, which is its number.
    pub fn address(site: SiteId) -> Addr {
        Addr(site.index() as u64)
    }

    /// Returns the peers of a site in a session of `count` sites, with their addresses.
    pub fn peers(site: SiteId, count: usize) -> Vec<(SiteId, Addr)> {
        SiteId::first(count).filter(|other| *other != site).map(|other| (other, Self::address(other))).collect()
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the link that carries datagrams from site `from` to site `to`.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let count = self.programs.len();
        &mut self.links[from * count + to]
    }

    /// Schedules a call of a host program for now. Call this after changing the program or its session from outside the
    /// network.
    pub fn wake(&mut self, program: usize) {
        self.schedule_wake(program, self.now);
    }

    /// Processes all events up to the virtual time `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                HostQueueEvent::Wake { program, wake_id } if self.wake_ids[program] == wake_id => {
                    self.run_program(program)
                }
                HostQueueEvent::Wake { .. } => {}
                HostQueueEvent::Arrive { from, to, bytes } => self.deliver(from, to, bytes),
            }
        }
        self.now = self.now.max(until);
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        if self.link(from, to).admit_arrival() {
            let now = self.now;
            self.programs[to].session().handle_datagram(now, Addr(from as u64), &bytes);
            self.run_program(to);
        }
        self.spare_buffers.push(bytes);
    }

    fn schedule_wake(&mut self, program: usize, at: Instant) {
        self.wake_ids[program] += 1;
        self.queue.push(at.max(self.now), HostQueueEvent::Wake { program, wake_id: self.wake_ids[program] });
    }

    /// Serves all requests of a host program's session, sends its datagrams, calls [`HostProgram::on_idle`], and
    /// schedules the next wake-up if the session has a deadline.
    fn run_program(&mut self, program: usize) {
        while self.programs[program].serve_request(self.now) {
            self.transmit_all(program);
        }
        self.transmit_all(program);
        self.programs[program].on_idle(self.now);
        if let Some(deadline) = self.programs[program].session().poll_timeout() {
            self.schedule_wake(program, deadline);
        }
    }

    fn transmit_all(&mut self, from: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        while let Some(transmit) = self.programs[from].session().poll_transmit(now, &mut buf) {
            let to = transmit.to.0 as usize;
            if to >= self.programs.len() {
                continue;
            }
            for at in self.link(from, to).send(now, transmit.len) {
                let mut bytes = self.spare_buffers.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(&buf[..transmit.len]);
                self.queue.push(at, HostQueueEvent::Arrive { from, to, bytes });
            }
        }
    }
}
