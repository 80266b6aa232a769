//! A small world for any host program: sites with good clocks, links between all of them, and virtual time.
//!
//! Where [`crate::world`] knows its machine and everything that can be wrong with a computer, this knows nothing but sessions. It
//! is for real machines, demonstrations and whatever else drives a [`Session`].

use coplay::id::{Addr, SiteId};
use coplay::session::Session;
use coplay::time::Instant;
use coplay::wire::MAX_DATAGRAM;

use crate::link::{Link, LinkConfig};
use crate::queue::Queue;

/// A host program.
pub trait Host {
    /// Its end of the session.
    fn session(&mut self) -> &mut Session;

    /// Does the next thing that its session asks for; `false` when there is nothing.
    fn serve(&mut self, now: Instant) -> bool;

    /// Everything is done for now, and sent.
    fn rest(&mut self, _now: Instant) {}
}

/// Host programs, links between them, and virtual time.
#[derive(Debug)]
pub struct Stage<H> {
    now: Instant,
    queue: Queue<Happening>,
    /// The hosts, by site.
    pub hosts: Vec<H>,
    links: Vec<Link>,
    alarms: Vec<u64>,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Happening {
    Wake { host: usize, alarm: u64 },
    Arrive { from: usize, to: usize, bytes: Vec<u8> },
}

impl<H: Host> Stage<H> {
    /// A stage for these hosts, one per site and in their order; `link` tells the way from one to another.
    pub fn new(seed: u64, hosts: Vec<H>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = hosts.len();
        let ways = (0..count * count).map(|at| (at / count, at % count));
        let links = ways.map(|(from, to)| Link::new(link(from, to), seed, &format!("{from}>{to}"))).collect();
        let mut stage =
            Self { now: Instant::ZERO, queue: Queue::new(), hosts, links, alarms: vec![0; count], spare: Vec::new() };
        for host in 0..count {
            stage.wake_at(host, Instant::ZERO);
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
        let count = self.hosts.len();
        &mut self.links[from * count + to]
    }

    /// Wakes a host, as after it was changed from outside.
    pub fn wake(&mut self, host: usize) {
        self.wake_at(host, self.now);
    }

    /// Runs until then.
    pub fn run_until(&mut self, until: Instant) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                Happening::Wake { host, alarm } if self.alarms[host] == alarm => self.drive(host),
                Happening::Wake { .. } => {}
                Happening::Arrive { from, to, bytes } => self.arrive(from, to, bytes),
            }
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        if self.link(from, to).admit_arrival() {
            let now = self.now;
            self.hosts[to].session().handle_datagram(now, Addr(from as u64), &bytes);
            self.drive(to);
        }
        self.spare.push(bytes);
    }

    fn wake_at(&mut self, host: usize, at: Instant) {
        self.alarms[host] += 1;
        self.queue.push(at.max(self.now), Happening::Wake { host, alarm: self.alarms[host] });
    }

    /// Does all that the session asks for, sends, and sleeps.
    fn drive(&mut self, host: usize) {
        while self.hosts[host].serve(self.now) {
            self.send_all(host);
        }
        self.send_all(host);
        self.hosts[host].rest(self.now);
        if let Some(deadline) = self.hosts[host].session().poll_timeout() {
            self.wake_at(host, deadline);
        }
    }

    fn send_all(&mut self, from: usize) {
        let (now, mut buf) = (self.now, [0; MAX_DATAGRAM]);
        while let Some(transmit) = self.hosts[from].session().poll_transmit(now, &mut buf) {
            let to = transmit.to.0 as usize;
            if to >= self.hosts.len() {
                continue;
            }
            for at in self.link(from, to).send(now, transmit.len) {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(&buf[..transmit.len]);
                self.queue.push(at, Happening::Arrive { from, to, bytes });
            }
        }
    }
}
