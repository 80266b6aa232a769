//! A simulated session: sites with their own clocks, links between all of them, and one queue of future events.

use std::collections::VecDeque;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::session::{Event, Request, Session};
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;
use crate::site::{SessionSabotage, SimulatedSite};
use crate::toy_machine::ToyMachine;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig};
use coplay_links::random::Random;

/// Sites, the links between them, and virtual (true) time.
#[derive(Debug)]
pub struct SessionNetwork {
    now: Instant,
    queue: TimedEventQueue<SessionQueueEvent>,
    /// The sites, by site number.
    pub sites: Vec<SimulatedSite>,
    links: Vec<Link>,
    /// Address and number of each site. A datagram to any other address leaves the network.
    routes: Vec<(Addr, usize)>,
    spare_buffers: Vec<Vec<u8>>,
    random: Random,
    captured: VecDeque<CapturedDatagram>,
    capture_limit: usize,
    /// Datagrams to addresses that no site has; `None` if they are not captured.
    external_datagrams: Option<Vec<OutboundDatagram>>,
    /// Upper bound of the random delay of a datagram inside its site before it is sent (the thread hand-over of Zhao et
    /// al.).
    pub max_send_delay: TimeDelta,
    /// Number of datagrams that exceeded [`MAX_DATAGRAM`] bytes.
    pub oversized_datagrams: u64,
    /// Highest number of events that were queued at once.
    pub max_queued_events: usize,
}

/// A datagram that leaves the network: send time, sender, receiver and payload.
pub type OutboundDatagram = (Instant, Addr, Addr, Vec<u8>);

#[derive(Debug)]
enum SessionQueueEvent {
    Wake { site: usize, wake_id: u64 },
    Depart { from: usize, to: usize, sender: Addr, bytes: Vec<u8> },
    Arrive { link: usize, to: usize, sender: Addr, bytes: Vec<u8> },
}

impl SessionNetwork {
    /// Creates a network of these sites. `link(from, to)` returns the conditions of the link from site `from` to site
    /// `to`.
    pub fn new(seed: u64, sites: Vec<SimulatedSite>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = sites.len();
        let links = (0..count * count).map(|at| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from}>{to}"))
        });
        let mut network = Self {
            now: Instant::ZERO,
            queue: TimedEventQueue::new(),
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
            network.schedule_wake(site, Instant::ZERO);
        }
        network
    }

    /// Returns the address of a site after this many address changes.
    pub fn address(site: usize, moves: u64) -> Addr {
        Addr(site as u64 + 100 * moves)
    }

    /// Returns the peers of a site in a session of `count` sites, with their addresses before any address change.
    pub fn peers(site: usize, count: usize) -> Vec<(SiteId, Addr)> {
        let others = SiteId::first(count).filter(|other| other.index() != site);
        others.map(|other| (other, Self::address(other.index(), 0))).collect()
    }

    /// Returns the virtual time, from which each site's clock deviates.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the link that carries datagrams from site `from` to site `to`.
    pub fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let count = self.sites.len();
        &mut self.links[from * count + to]
    }

    /// Returns all links. The link from site a to site b has the index a × sites + b.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Processes all events up to the true time `until`, and passes the sites' events to `on_event`.
    pub fn run_until(&mut self, until: Instant, on_event: &mut impl FnMut(SiteEvent<'_>)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            self.max_queued_events = self.max_queued_events.max(self.queue.len());
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            self.handle_event(event, on_event);
        }
        self.now = self.now.max(until);
    }

    fn handle_event(&mut self, event: SessionQueueEvent, on_event: &mut impl FnMut(SiteEvent<'_>)) {
        match event {
            SessionQueueEvent::Wake { site, wake_id } => {
                if self.sites[site].wake_id == wake_id {
                    self.run_host_program(site, on_event);
                }
            }
            SessionQueueEvent::Depart { from, to, sender, bytes } => self.send_on_link(from, to, sender, bytes),
            SessionQueueEvent::Arrive { link, to, sender, bytes } => {
                if self.links[link].admit_arrival() {
                    self.deliver_to_site(to, sender, &bytes, on_event);
                }
                self.spare_buffers.push(bytes);
            }
        }
    }

    fn deliver_to_site(&mut self, to: usize, sender: Addr, bytes: &[u8], on_event: &mut impl FnMut(SiteEvent<'_>)) {
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
        // A busy site receives datagrams at once but serves requests only when its step is done.
        if site.busy_until <= self.now {
            self.run_host_program(to, on_event);
        }
    }

    /// Passes a datagram to a site's session at once, even if the site sleeps, and without a call of its host program.
    /// A crashed site gets nothing.
    pub fn inject(&mut self, to: usize, sender: Addr, bytes: &[u8]) {
        let local = self.sites[to].clock.local(self.now);
        if !self.sites[to].is_crashed {
            self.sites[to].session.handle_datagram(local, sender, bytes);
        }
    }

    /// Delivers a datagram from outside the network to the site at address `to`, if there is one, and wakes the site. A
    /// sleeping site buffers the datagram.
    pub fn deliver_external(&mut self, to: Addr, sender: Addr, bytes: &[u8]) {
        let Some(index) = self.site_at(to) else { return };
        let site = &mut self.sites[index];
        if site.asleep_until > self.now {
            return site.buffer_datagram(sender, bytes);
        }
        self.inject(index, sender, bytes);
        if !self.sites[index].is_crashed {
            self.wake(index);
        }
    }

    /// Captures, from now on, datagrams to addresses that no site has.
    pub fn capture_external(&mut self) {
        self.external_datagrams.get_or_insert_default();
    }

    /// Takes the captured datagrams to addresses that no site has, in send order.
    pub fn take_external(&mut self) -> Vec<OutboundDatagram> {
        self.external_datagrams.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the site that receives at an address; `None` if no site has it.
    pub fn site_at(&self, addr: Addr) -> Option<usize> {
        self.routes.iter().find(|(route, _)| *route == addr).map(|(_, site)| *site)
    }

    /// Schedules a call of a site's host program for now. Call this after a change of the site from outside.
    pub fn wake(&mut self, site: usize) {
        self.schedule_wake(site, self.now);
    }

    fn schedule_wake(&mut self, site: usize, at: Instant) {
        let wake_id = self.sites[site].wake_id + 1;
        self.sites[site].wake_id = wake_id;
        self.queue.push(at.max(self.now), SessionQueueEvent::Wake { site, wake_id });
    }

    /// Runs the host program of a site: serves the session's requests, sends, reports events, and schedules the next
    /// wake-up. Does nothing if the site has crashed, and only schedules the wake-up if it sleeps or is busy.
    fn run_host_program(&mut self, at: usize, on_event: &mut impl FnMut(SiteEvent<'_>)) {
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
        if site.sabotage == Some(SessionSabotage::ContinueWithoutQuorum) {
            let others = self.routes.iter().filter(|(_, other)| *other != at);
            let named = others.filter_map(|(addr, other)| Some((SiteId::new(*other as u8)?, *addr)));
            self.sites[at].inject_forged_decision(local, named);
        }
        while let Some(busy) = self.sites[at].serve_request(at, self.now, local, on_event) {
            self.transmit_all(at, local);
            if busy > TimeDelta::ZERO {
                self.sites[at].busy_until = self.now + busy;
                return self.schedule_wake(at, self.now + busy);
            }
        }
        self.transmit_all(at, local);
        self.sites[at].clear_sampled();
        self.report_confirmed(at, on_event);
        while let Some(event) = self.sites[at].session.poll_event() {
            on_event(SiteEvent::SessionEvent { site: at, at: self.now, event });
        }
        if let Some(deadline) = self.sites[at].session.poll_timeout() {
            let wake = self.sites[at].clock.true_time(deadline);
            self.schedule_wake(at, wake);
        }
    }

    /// Reports newly confirmed frames and the first invalid request to `on_event`.
    fn report_confirmed(&mut self, at: usize, on_event: &mut impl FnMut(SiteEvent<'_>)) {
        let (site, now) = (&mut self.sites[at], self.now);
        while let Some(confirmed) = site.next_confirmed() {
            on_event(SiteEvent::Confirmed {
                site: at,
                at: now,
                frame: confirmed.frame,
                words: &confirmed.inputs,
                hash: confirmed.hash,
            });
        }
        if let Some(description) = site.invalid_request.take() {
            on_event(SiteEvent::InvalidRequest { site: at, description });
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

    /// Discards all captured datagrams. From now on keeps copies of the newest `limit` datagrams that sites send to
    /// each other, whether they arrive or not.
    pub fn start_capture(&mut self, limit: usize) {
        self.capture_limit = limit;
        self.captured.clear();
    }

    /// Returns the captured datagrams, oldest first.
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

    /// Cuts or restores the links between two sites in both directions.
    pub fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    /// Gives a site a new address. Datagrams sent to the old address from now on do not reach the site.
    pub fn change_address(&mut self, site: usize) {
        self.routes.retain(|(_, routed)| *routed != site);
        self.sites[site].address_changes += 1;
        self.sites[site].addr = Self::address(site, self.sites[site].address_changes);
        self.routes.push((self.sites[site].addr, site));
    }

    /// Restarts a site's host program with a new session, and wakes it.
    pub fn restart(&mut self, site: usize, session: Session) {
        self.sites[site].restart(session);
        self.wake(site);
    }

    /// Crashes a site: until a restart it receives, computes and sends nothing.
    pub fn crash(&mut self, site: usize) {
        self.sites[site].is_crashed = true;
    }

    /// Suspends a site's computer until the true time `until`. Its clock stands still meanwhile.
    pub fn suspend(&mut self, site: usize, until: Instant) {
        let asleep = until - self.now;
        self.sites[site].clock.offset -= asleep;
        self.pause(site, until);
    }

    /// Pauses a site's host program until the true time `until`. Its clock keeps running.
    pub fn pause(&mut self, site: usize, until: Instant) {
        self.sites[site].asleep_until = until;
        self.schedule_wake(site, until);
    }
}

/// Copy of a datagram that a site sent, including sabotage.
#[derive(Clone, Debug)]
pub struct CapturedDatagram {
    /// True time at which the site's session returned the datagram.
    pub at: Instant,
    /// Number of the sending site.
    pub from: usize,
    /// Number of the receiving site.
    pub to: usize,
    /// Payload, as the sender put it on the link.
    pub bytes: Vec<u8>,
}

/// An event at a site, for checkers and measurements.
#[derive(Debug)]
pub enum SiteEvent<'a> {
    /// A frame began and the site sampled its local input.
    Sampled {
        /// Number of the site that sampled.
        site: usize,
        /// True time of the sample.
        at: Instant,
        /// Frame in which the input takes effect.
        frame: u32,
        /// One word per player. The session uses only the bits that the site owns.
        words: &'a [coplay::input::InputWord],
    },
    /// The site saved the machine's state before a frame.
    Saved {
        /// Number of the site that saved.
        site: usize,
        /// True time of the save.
        at: Instant,
        /// Frame that the machine steps next from the saved state.
        frame: u32,
    },
    /// The site loaded a state that it had saved itself.
    Loaded {
        /// Number of the site that loaded.
        site: usize,
        /// True time of the load.
        at: Instant,
        /// Frame that the machine steps next from the loaded state.
        frame: u32,
    },
    /// The site loaded a state that it downloaded from another site's feed.
    Restored {
        /// Number of the site that loaded.
        site: usize,
        /// Frame that the machine steps next from the loaded state.
        frame: u32,
    },
    /// The site stepped its machine by one frame.
    Stepped {
        /// Number of the site that stepped.
        site: usize,
        /// True time just before the step.
        at: Instant,
        /// Number of the stepped frame.
        frame: u32,
        /// Whether the session requested the first step of the frame, for display. Resimulated frames and those that a
        /// joiner catches up with are not fresh.
        fresh: bool,
        /// One word per player, some of which may be predicted.
        words: &'a [coplay::input::InputWord],
        /// State hash after the step.
        hash: u64,
    },
    /// A frame was confirmed: its last step used these inputs, and no rollback will step it again.
    Confirmed {
        /// Number of the site that confirmed the frame.
        site: usize,
        /// True time at which the host program found the frame confirmed.
        at: Instant,
        /// Number of the confirmed frame.
        frame: u32,
        /// Confirmed inputs, one word per player.
        words: &'a [coplay::input::InputWord],
        /// State hash after the last step of the frame.
        hash: u64,
    },
    /// The session made a request that cannot be served, such as a load from an empty slot, restored a state that does
    /// not decode, or asked without end to be called at once.
    InvalidRequest {
        /// Number of the site whose session made the request.
        site: usize,
        /// Description of the request and of the site's state, as the predicate of a sentence about the site.
        description: String,
    },
    /// The session reported an event.
    SessionEvent {
        /// Number of the site whose session reported the event.
        site: usize,
        /// True time of the report.
        at: Instant,
        /// The event, as returned by [`Session::poll_event`].
        event: Event,
    },
}

impl SimulatedSite {
    /// Serves the session's next request. Returns the time that the machine is busy with it; `None` if there is no
    /// request.
    fn serve_request(
        &mut self,
        number: usize,
        at: Instant,
        local: Instant,
        on_event: &mut impl FnMut(SiteEvent<'_>),
    ) -> Option<TimeDelta> {
        match self.session.poll_request(local)? {
            Request::Sample { frame } => {
                let frame = frame.number();
                self.player.next_input(&mut self.local_input);
                on_event(SiteEvent::Sampled { site: number, at, frame, words: &self.local_input });
                if self.sabotage == Some(SessionSabotage::InputDelayOffByOne) {
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
                on_event(SiteEvent::Saved { site: number, at, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Load { frame, slot } => {
                self.load(frame.number(), slot);
                on_event(SiteEvent::Loaded { site: number, at, frame: frame.number() });
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
                on_event(SiteEvent::Restored { site: number, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Advance { frame, inputs, fresh } => {
                self.frame_inputs.clear();
                self.frame_inputs.extend_from_slice(inputs);
                let words = std::mem::take(&mut self.frame_inputs);
                let hash = self.advance(frame.number(), &words, fresh);
                on_event(SiteEvent::Stepped { site: number, at, frame: frame.number(), fresh, words: &words, hash });
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

/// Creates a simulated site for a session, at the address that its site number has before any address change.
pub fn new_site(session: Session, clock: NodeClock, players: usize, seed: u64) -> SimulatedSite {
    let addr = SessionNetwork::address(session.site().index(), 0);
    SimulatedSite::new(session, clock, addr, players, seed)
}
