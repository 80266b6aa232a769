//! A small world for any host program: sites with good clocks, links between all of them, and virtual time.
//!
//! Where [`crate::world`] knows its machine and everything that can be wrong with a computer, this knows nothing but sessions. It
//! is for real machines, demonstrations and whatever else drives a [`Session`].

use coplay::id::{Addr, SiteId};
use coplay::session::Session;
use coplay::time::Instant;
use coplay::wire::MAX_DATAGRAM;

use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig};

/// A host program.
pub trait HostProgram {
    /// Its end of the session.
    fn session(&mut self) -> &mut Session;

    /// Does the next thing that its session asks for; `false` when there is nothing.
    fn serve_request(&mut self, now: Instant) -> bool;

    /// Everything is done for now, and sent.
    fn on_idle(&mut self, _now: Instant) {}
}

/// Host programs, links between them, and virtual time.
#[derive(Debug)]
pub struct HostNetwork<H> {
    now: Instant,
    queue: EventQueue<HostQueueEvent>,
    /// The hosts, by site.
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
    /// A stage for these hosts, one per site and in their order; `link` tells the way from one to another.
    pub fn new(seed: u64, hosts: Vec<H>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = hosts.len();
        let ways = (0..count * count).map(|at| (at / count, at % count));
        let links = ways.map(|(from, to)| Link::new(link(from, to), seed, &format!("{from}>{to}"))).collect();
        let mut stage = Self {
            now: Instant::ZERO,
            queue: EventQueue::new(),
            programs: hosts,
            links,
            wake_ids: vec![0; count],
            spare_buffers: Vec::new(),
        };
        for host in 0..count {
            stage.schedule_wake(host, Instant::ZERO);
        }
        stage
    }

    /// The address of a site.
    pub fn address(site: SiteId) -> Addr {
        Addr(site.index() as u64)
    }

    /// The peers of a site in a session of so many.
    pub fn peers(site: SiteId, count: usize) -> Vec<(SiteId, Addr)> {
        SiteId::first(count).filter(|other| *other != site).map(|other| (other, Self::address(other))).collect()
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The link from one site to another.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let count = self.programs.len();
        &mut self.links[from * count + to]
    }

    /// Wakes a host, as after it was changed from outside.
    pub fn wake(&mut self, host: usize) {
        self.schedule_wake(host, self.now);
    }

    /// Runs until then.
    pub fn run_until(&mut self, until: Instant) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                HostQueueEvent::Wake { program: host, wake_id: alarm } if self.wake_ids[host] == alarm => {
                    self.run_program(host)
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

    fn schedule_wake(&mut self, host: usize, at: Instant) {
        self.wake_ids[host] += 1;
        self.queue.push(at.max(self.now), HostQueueEvent::Wake { program: host, wake_id: self.wake_ids[host] });
    }

    /// Does all that the session asks for, sends, and sleeps.
    fn run_program(&mut self, host: usize) {
        while self.programs[host].serve_request(self.now) {
            self.transmit_all(host);
        }
        self.transmit_all(host);
        self.programs[host].on_idle(self.now);
        if let Some(deadline) = self.programs[host].session().poll_timeout() {
            self.schedule_wake(host, deadline);
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
