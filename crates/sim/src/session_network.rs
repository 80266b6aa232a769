//! The simulated world: sites with clocks of their own, links between all of them, and one queue of what happens next.

use std::collections::VecDeque;

use coplay::id::{Addr, SiteId};
use coplay::session::{Event, Request, Session};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::clock::NodeClock;
use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig};
use crate::random::Random;
use crate::site::{Sabotage, SimulatedSite};
use crate::toy_machine::ToyMachine;

/// Sites, links, and virtual (true) time.
#[derive(Debug)]
pub struct SessionNetwork {
    now: Instant,
    queue: EventQueue<SessionQueueEvent>,
    /// The sites, by number.
    pub sites: Vec<SimulatedSite>,
    links: Vec<Link>,
    /// Which site receives at which address.
    routes: Vec<(Addr, usize)>,
    spare_buffers: Vec<Vec<u8>>,
    random: Random,
    captured: VecDeque<CapturedDatagram>,
    capture_limit: usize,
    /// What goes to addresses that no site has, while somebody is there to take it.
    external_datagrams: Option<Vec<ExternalDatagram>>,
    /// Up to so long does a packet wait in its site before it is on the line (the thread hand-over of Zhao et al.).
    pub max_send_delay: TimeDelta,
    /// Datagrams longer than allowed.
    pub oversized_datagrams: u64,
    /// The most things that were under way at once.
    pub max_queued_events: usize,
}

/// A datagram that leaves the world: when, from where, to where, and what is in it.
pub type ExternalDatagram = (Instant, Addr, Addr, Vec<u8>);

#[derive(Debug)]
enum SessionQueueEvent {
    Wake { site: usize, wake_id: u64 },
    Depart { from: usize, to: usize, sender: Addr, bytes: Vec<u8> },
    Arrive { link: usize, to: usize, sender: Addr, bytes: Vec<u8> },
}

impl SessionNetwork {
    /// A world of these sites; `link` tells the way from one to another.
    pub fn new(seed: u64, sites: Vec<SimulatedSite>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = sites.len();
        let links = (0..count * count).map(|at| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from}>{to}"))
        });
        let mut world = Self {
            now: Instant::ZERO,
            queue: EventQueue::new(),
            links: links.collect(),
            routes: (0..count).map(|site| (Self::address(site, 0), site)).collect(),
            sites,
            spare_buffers: Vec::new(),
            random: Random::stream(seed, "world"),
            captured: VecDeque::new(),
            capture_limit: 0,
            external_datagrams: None,
            max_send_delay: TimeDelta::ZERO,
            oversized_datagrams: 0,
            max_queued_events: 0,
        };
        for site in 0..count {
            world.schedule_wake(site, Instant::ZERO);
        }
        world
    }

    /// The address of a site after it has moved so many times.
    pub fn address(site: usize, moves: u64) -> Addr {
        Addr(site as u64 + 100 * moves)
    }

    /// The peers of a site in a session of so many, where nobody has moved yet.
    pub fn peers(site: usize, count: usize) -> Vec<(SiteId, Addr)> {
        let others = SiteId::first(count).filter(|other| other.index() != site);
        others.map(|other| (other, Self::address(other.index(), 0))).collect()
    }

    /// The true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The link from one site to another.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let count = self.sites.len();
        &mut self.links[from * count + to]
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Runs until the true time `until`; `tell` hears what the sites do.
    pub fn run_until(&mut self, until: Instant, tell: &mut impl FnMut(SiteEvent<'_>)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            self.max_queued_events = self.max_queued_events.max(self.queue.len());
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            self.handle_event(happening, tell);
        }
        self.now = self.now.max(until);
    }

    fn handle_event(&mut self, happening: SessionQueueEvent, tell: &mut impl FnMut(SiteEvent<'_>)) {
        match happening {
            SessionQueueEvent::Wake { site, wake_id: alarm } => {
                if self.sites[site].wake_id == alarm {
                    self.run_host_program(site, tell);
                }
            }
            SessionQueueEvent::Depart { from, to, sender, bytes } => self.send_on_link(from, to, sender, bytes),
            SessionQueueEvent::Arrive { link, to, sender, bytes } => {
                if self.links[link].admit_arrival() {
                    self.deliver_to_site(to, sender, &bytes, tell);
                }
                self.spare_buffers.push(bytes);
            }
        }
    }

    fn deliver_to_site(&mut self, to: usize, sender: Addr, bytes: &[u8], tell: &mut impl FnMut(SiteEvent<'_>)) {
        let site = &mut self.sites[to];
        if site.is_crashed {
            return;
        }
        if site.asleep_until > self.now {
            site.buffer_datagram(sender, bytes);
            return;
        }
        let local = site.clock.local(self.now);
        site.session.handle_datagram(local, sender, bytes);
        // A busy site hears, but acts when it has time.
        if site.busy_until <= self.now {
            self.run_host_program(to, tell);
        }
    }

    /// A datagram that somebody outside of the session sends to a site.
    pub fn inject(&mut self, to: usize, sender: Addr, bytes: &[u8]) {
        let local = self.sites[to].clock.local(self.now);
        if !self.sites[to].is_crashed {
            self.sites[to].session.handle_datagram(local, sender, bytes);
        }
    }

    /// A datagram from outside comes to an address, over a link that is not of this world.
    pub fn deliver_external(&mut self, to: Addr, sender: Addr, bytes: &[u8]) {
        let Some(number) = self.site_at(to) else { return };
        let site = &mut self.sites[number];
        if site.asleep_until > self.now {
            return site.buffer_datagram(sender, bytes);
        }
        self.inject(number, sender, bytes);
        if !self.sites[number].is_crashed {
            self.wake(number);
        }
    }

    /// From now on, what goes to addresses that no site has is kept.
    pub fn capture_external(&mut self) {
        self.external_datagrams.get_or_insert_default();
    }

    /// All that went to addresses that no site has, in order.
    pub fn take_external(&mut self) -> Vec<ExternalDatagram> {
        self.external_datagrams.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The site that receives at an address.
    pub fn site_at(&self, addr: Addr) -> Option<usize> {
        self.routes.iter().find(|(there, _)| *there == addr).map(|(_, site)| *site)
    }

    /// Wakes a site, as after a change from outside.
    pub fn wake(&mut self, site: usize) {
        self.schedule_wake(site, self.now);
    }

    fn schedule_wake(&mut self, site: usize, at: Instant) {
        let alarm = self.sites[site].wake_id + 1;
        self.sites[site].wake_id = alarm;
        self.queue.push(at.max(self.now), SessionQueueEvent::Wake { site, wake_id: alarm });
    }

    /// The host program of a site: does what its session asks for, sends, and sleeps until it must be awake again.
    fn run_host_program(&mut self, at: usize, tell: &mut impl FnMut(SiteEvent<'_>)) {
        let site = &mut self.sites[at];
        if site.is_crashed {
            return;
        }
        let wake = site.asleep_until.max(site.busy_until);
        if wake > self.now {
            return self.schedule_wake(at, wake);
        }
        site.detect_busy_loop(self.now);
        let local = site.clock.local(self.now);
        site.deliver_buffered(local);
        if site.sabotage == Some(Sabotage::ContinueWithoutQuorum) {
            let others = self.routes.iter().filter(|(_, other)| *other != at);
            let named = others.filter_map(|(addr, other)| Some((SiteId::new(*other as u8)?, *addr)));
            self.sites[at].inject_forged_decision(local, named);
        }
        while let Some(busy) = self.sites[at].serve_request(at, self.now, local, tell) {
            self.transmit_all(at, local);
            if busy > TimeDelta::ZERO {
                self.sites[at].busy_until = self.now + busy;
                return self.schedule_wake(at, self.now + busy);
            }
        }
        self.transmit_all(at, local);
        self.sites[at].clear_sampled();
        self.report_confirmed(at, tell);
        while let Some(event) = self.sites[at].session.poll_event() {
            tell(SiteEvent::SessionEvent { site: at, at: self.now, event });
        }
        if let Some(deadline) = self.sites[at].session.poll_timeout() {
            let wake = self.sites[at].clock.true_time(deadline);
            self.schedule_wake(at, wake);
        }
    }

    /// Tells which frames will not change any more.
    fn report_confirmed(&mut self, at: usize, tell: &mut impl FnMut(SiteEvent<'_>)) {
        let (site, now) = (&mut self.sites[at], self.now);
        while let Some(open) = site.next_confirmed() {
            tell(SiteEvent::Confirmed { site: at, at: now, frame: open.frame, words: &open.inputs, hash: open.hash });
        }
        if let Some(what) = site.invalid_request.take() {
            tell(SiteEvent::InvalidRequest { site: at, description: what });
        }
    }

    fn transmit_all(&mut self, from: usize, local: Instant) {
        let mut buf = [0; MAX_DATAGRAM + 8];
        while let Some(transmit) = self.sites[from].session.poll_transmit(local, &mut buf) {
            self.oversized_datagrams += u64::from(transmit.len > MAX_DATAGRAM);
            if !self.sites[from].may_transmit() {
                continue;
            }
            let Some(to) = self.site_at(transmit.to) else {
                let sender = self.sites[from].addr;
                if let Some(outside) = &mut self.external_datagrams {
                    outside.push((self.now, sender, transmit.to, buf[..transmit.len].to_vec()));
                }
                continue;
            };
            let mut bytes = self.spare_buffers.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(&buf[..transmit.len]);
            self.sites[from].tamper(to, &mut bytes);
            self.capture(from, to, &bytes);
            let sender = self.sites[from].addr;
            if self.max_send_delay > TimeDelta::ZERO {
                let wait = TimeDelta::from_nanos(self.random.range(0..=self.max_send_delay.as_nanos()));
                self.queue.push(self.now + wait, SessionQueueEvent::Depart { from, to, sender, bytes });
            } else {
                self.send_on_link(from, to, sender, bytes);
            }
        }
    }

    /// Keeps copies of what sites send from now on, whatever becomes of it: the newest `most` datagrams.
    pub fn start_capture(&mut self, most: usize) {
        self.capture_limit = most;
        self.captured.clear();
    }

    /// What was overheard, oldest first.
    pub fn captured(&self) -> impl ExactSizeIterator<Item = &CapturedDatagram> {
        self.captured.iter()
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

    fn send_on_link(&mut self, from: usize, to: usize, sender: Addr, bytes: Vec<u8>) {
        let link = from * self.sites.len() + to;
        let mut deliveries = self.links[link].send(self.now, bytes.len());
        let first = deliveries.next();
        for at in deliveries {
            let mut copy = self.spare_buffers.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(&bytes);
            self.queue.push(at, SessionQueueEvent::Arrive { link, to, sender, bytes: copy });
        }
        match first {
            Some(at) => self.queue.push(at, SessionQueueEvent::Arrive { link, to, sender, bytes }),
            None => self.spare_buffers.push(bytes),
        }
    }

    /// Cuts or heals both directions between two sites.
    pub fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    /// Gives a site a new address; what is sent to the old one is lost.
    pub fn change_address(&mut self, site: usize) {
        self.routes.retain(|(_, there)| *there != site);
        self.sites[site].address_changes += 1;
        self.sites[site].addr = Self::address(site, self.sites[site].address_changes);
        self.routes.push((self.sites[site].addr, site));
    }

    /// Starts a site's program anew.
    pub fn restart(&mut self, site: usize, session: Session) {
        self.sites[site].restart(session);
        self.wake(site);
    }

    /// Stops a site dead.
    pub fn crash(&mut self, site: usize) {
        self.sites[site].is_crashed = true;
    }

    /// Suspends a site until then: it sleeps, and its clock stands still meanwhile.
    pub fn suspend(&mut self, site: usize, until: Instant) {
        let asleep = until - self.now;
        self.sites[site].clock.offset -= asleep;
        self.pause(site, until);
    }

    /// Lets a site sleep until then, as a closed laptop does; its clock goes on.
    pub fn pause(&mut self, site: usize, until: Instant) {
        self.sites[site].asleep_until = until;
        self.schedule_wake(site, until);
    }
}

/// A datagram that somebody listened to.
#[derive(Clone, Debug)]
pub struct CapturedDatagram {
    /// When it was sent, in true time.
    pub at: Instant,
    /// By which site.
    pub from: usize,
    /// To which site.
    pub to: usize,
    /// What was in it.
    pub bytes: Vec<u8>,
}

/// What a site did, for checkers and measurements.
#[derive(Debug)]
pub enum SiteEvent<'a> {
    /// A frame began and its local input was taken, for `frame`.
    Sampled {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// The frame that the input is promised for.
        frame: u32,
        /// The input.
        words: &'a [coplay::input::InputWord],
    },
    /// The machine's state before a frame was kept.
    Saved {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// The frame.
        frame: u32,
    },
    /// The machine was put back to where a frame comes next.
    Loaded {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// The frame.
        frame: u32,
    },
    /// The machine was put into a state that another site sent.
    Restored {
        /// Which site.
        site: usize,
        /// The frame that comes next.
        frame: u32,
    },
    /// The machine was stepped.
    Stepped {
        /// Which site.
        site: usize,
        /// When, in true time, just before the step.
        at: Instant,
        /// The frame.
        frame: u32,
        /// Whether for the first time.
        fresh: bool,
        /// The inputs, some of which may be guessed.
        words: &'a [coplay::input::InputWord],
        /// The state afterwards.
        hash: u64,
    },
    /// A frame has become certain: it was stepped last with these inputs, and will not be again.
    Confirmed {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// The frame.
        frame: u32,
        /// The inputs.
        words: &'a [coplay::input::InputWord],
        /// The state afterwards.
        hash: u64,
    },
    /// A session asked its host program for what cannot be done.
    InvalidRequest {
        /// Which site.
        site: usize,
        /// What.
        description: String,
    },
    /// The session told something.
    SessionEvent {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// What.
        event: Event,
    },
}

impl SimulatedSite {
    /// Does the next thing the session asks for; `None` when there is nothing, else how long it takes.
    fn serve_request(
        &mut self,
        number: usize,
        at: Instant,
        local: Instant,
        tell: &mut impl FnMut(SiteEvent<'_>),
    ) -> Option<TimeDelta> {
        match self.session.poll_request(local)? {
            Request::Sample { frame } => {
                let frame = frame.number();
                self.player.next_input(&mut self.local_input);
                tell(SiteEvent::Sampled { site: number, at, frame, words: &self.local_input });
                if self.sabotage == Some(Sabotage::InputDelayOffByOne) {
                    std::mem::swap(&mut self.local_input, &mut self.previous_input);
                    self.session.handle_input(local, &self.local_input);
                } else {
                    self.session.handle_input(local, &self.local_input);
                }
                self.has_sampled = true;
                Some(TimeDelta::ZERO)
            }
            Request::Save { frame, slot } => {
                self.save(frame.number(), slot);
                tell(SiteEvent::Saved { site: number, at, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Load { frame, slot } => {
                self.load(frame.number(), slot);
                tell(SiteEvent::Loaded { site: number, at, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Regions { .. } => {
                self.answer_regions();
                Some(TimeDelta::ZERO)
            }
            Request::Pages { region, from, .. } => {
                self.answer_pages(region, from);
                Some(TimeDelta::ZERO)
            }
            Request::Snapshot { frame, slot } => {
                self.answer_snapshot(frame.number(), slot);
                Some(TimeDelta::ZERO)
            }
            Request::Restore { frame, state } => {
                let machine = ToyMachine::from_bytes(self.local_input.len(), state);
                self.load_snapshot(frame.number(), machine);
                tell(SiteEvent::Restored { site: number, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Advance { frame, inputs, fresh } => {
                self.frame_inputs.clear();
                self.frame_inputs.extend_from_slice(inputs);
                let words = std::mem::take(&mut self.frame_inputs);
                let hash = self.advance(frame.number(), &words, fresh);
                tell(SiteEvent::Stepped { site: number, at, frame: frame.number(), fresh, words: &words, hash });
                self.frame_inputs = words;
                Some(self.step_cost)
            }
            Request::Hash { .. } => {
                self.session.handle_hash(self.machine.hash());
                Some(TimeDelta::ZERO)
            }
        }
    }
}

/// A session's end, ready to be put into a world.
pub fn new_site(session: Session, clock: NodeClock, players: usize, seed: u64) -> SimulatedSite {
    let addr = SessionNetwork::address(session.site().index(), 0);
    SimulatedSite::new(session, clock, addr, players, seed)
}
