//! The simulated world: sites with clocks of their own, links between all of them, and one queue of what happens next.

use std::collections::VecDeque;

use coplay::id::{Addr, SiteId};
use coplay::session::{Event, Request, Session};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::clock::NodeClock;
use crate::link::{Link, LinkConfig};
use crate::queue::Queue;
use crate::random::Random;
use crate::site::{Sabotage, Site};
use crate::toy::Toy;

/// Sites, links, and virtual (true) time.
#[derive(Debug)]
pub struct World {
    now: Instant,
    queue: Queue<Happening>,
    /// The sites, by number.
    pub sites: Vec<Site>,
    links: Vec<Link>,
    /// Which site receives at which address.
    routes: Vec<(Addr, usize)>,
    spare: Vec<Vec<u8>>,
    luck: Random,
    overheard: VecDeque<Overheard>,
    most_overheard: usize,
    /// What goes to addresses that no site has, while somebody is there to take it.
    outside: Option<Vec<Outside>>,
    /// Up to so long does a packet wait in its site before it is on the line (the thread hand-over of Zhao et al.).
    pub sending_delay: TimeDelta,
    /// Datagrams longer than allowed.
    pub oversized: u64,
    /// The most things that were under way at once.
    pub most_under_way: usize,
}

/// A datagram that leaves the world: when, from where, to where, and what is in it.
pub type Outside = (Instant, Addr, Addr, Vec<u8>);

#[derive(Debug)]
enum Happening {
    Wake { site: usize, alarm: u64 },
    Depart { from: usize, to: usize, sender: Addr, bytes: Vec<u8> },
    Arrive { link: usize, to: usize, sender: Addr, bytes: Vec<u8> },
}

impl World {
    /// A world of these sites; `link` tells the way from one to another.
    pub fn new(seed: u64, sites: Vec<Site>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let count = sites.len();
        let links = (0..count * count).map(|at| {
            let (from, to) = (at / count, at % count);
            Link::new(link(from, to), seed, &format!("{from}>{to}"))
        });
        let mut world = Self {
            now: Instant::ZERO,
            queue: Queue::new(),
            links: links.collect(),
            routes: (0..count).map(|site| (Self::address(site, 0), site)).collect(),
            sites,
            spare: Vec::new(),
            luck: Random::stream(seed, "world"),
            overheard: VecDeque::new(),
            most_overheard: 0,
            outside: None,
            sending_delay: TimeDelta::ZERO,
            oversized: 0,
            most_under_way: 0,
        };
        for site in 0..count {
            world.wake_at(site, Instant::ZERO);
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
    pub fn run_until(&mut self, until: Instant, tell: &mut impl FnMut(Happened<'_>)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            self.most_under_way = self.most_under_way.max(self.queue.len());
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            self.handle(happening, tell);
        }
        self.now = self.now.max(until);
    }

    fn handle(&mut self, happening: Happening, tell: &mut impl FnMut(Happened<'_>)) {
        match happening {
            Happening::Wake { site, alarm } => {
                if self.sites[site].alarm == alarm {
                    self.drive(site, tell);
                }
            }
            Happening::Depart { from, to, sender, bytes } => self.depart(from, to, sender, bytes),
            Happening::Arrive { link, to, sender, bytes } => {
                if self.links[link].admit_arrival() {
                    self.arrive(to, sender, &bytes, tell);
                }
                self.spare.push(bytes);
            }
        }
    }

    fn arrive(&mut self, to: usize, sender: Addr, bytes: &[u8], tell: &mut impl FnMut(Happened<'_>)) {
        let site = &mut self.sites[to];
        if site.crashed {
            return;
        }
        if site.away_until > self.now {
            site.hold(sender, bytes);
            return;
        }
        let local = site.clock.local(self.now);
        site.session.handle_datagram(local, sender, bytes);
        // A busy site hears, but acts when it has time.
        if site.busy_until <= self.now {
            self.drive(to, tell);
        }
    }

    /// A datagram that somebody outside of the session sends to a site.
    pub fn inject(&mut self, to: usize, sender: Addr, bytes: &[u8]) {
        let local = self.sites[to].clock.local(self.now);
        if !self.sites[to].crashed {
            self.sites[to].session.handle_datagram(local, sender, bytes);
        }
    }

    /// A datagram from outside comes to an address, over a link that is not of this world.
    pub fn deliver(&mut self, to: Addr, sender: Addr, bytes: &[u8]) {
        let Some(number) = self.site_at(to) else { return };
        let site = &mut self.sites[number];
        if site.away_until > self.now {
            return site.hold(sender, bytes);
        }
        self.inject(number, sender, bytes);
        if !self.sites[number].crashed {
            self.wake(number);
        }
    }

    /// From now on, what goes to addresses that no site has is kept.
    pub fn open_door(&mut self) {
        self.outside.get_or_insert_default();
    }

    /// All that went to addresses that no site has, in order.
    pub fn take_outside(&mut self) -> Vec<Outside> {
        self.outside.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The site that receives at an address.
    pub fn site_at(&self, addr: Addr) -> Option<usize> {
        self.routes.iter().find(|(there, _)| *there == addr).map(|(_, site)| *site)
    }

    /// Wakes a site, as after a change from outside.
    pub fn wake(&mut self, site: usize) {
        self.wake_at(site, self.now);
    }

    fn wake_at(&mut self, site: usize, at: Instant) {
        let alarm = self.sites[site].alarm + 1;
        self.sites[site].alarm = alarm;
        self.queue.push(at.max(self.now), Happening::Wake { site, alarm });
    }

    /// The host program of a site: does what its session asks for, sends, and sleeps until it must be awake again.
    fn drive(&mut self, at: usize, tell: &mut impl FnMut(Happened<'_>)) {
        let site = &mut self.sites[at];
        if site.crashed {
            return;
        }
        let wake = site.away_until.max(site.busy_until);
        if wake > self.now {
            return self.wake_at(at, wake);
        }
        site.note_drive(self.now);
        let local = site.clock.local(self.now);
        site.hear_held(local);
        if site.sabotage == Some(Sabotage::GoOnAlone) {
            let others = self.routes.iter().filter(|(_, other)| *other != at);
            let named = others.filter_map(|(addr, other)| Some((SiteId::new(*other as u8)?, *addr)));
            self.sites[at].hear_lie(local, named);
        }
        while let Some(busy) = self.sites[at].serve(at, self.now, local, tell) {
            self.send_all(at, local);
            if busy > TimeDelta::ZERO {
                self.sites[at].busy_until = self.now + busy;
                return self.wake_at(at, self.now + busy);
            }
        }
        self.send_all(at, local);
        self.sites[at].settle();
        self.tell_certain(at, tell);
        while let Some(event) = self.sites[at].session.poll_event() {
            tell(Happened::Event { site: at, at: self.now, event });
        }
        if let Some(deadline) = self.sites[at].session.poll_timeout() {
            let wake = self.sites[at].clock.true_time(deadline);
            self.wake_at(at, wake);
        }
    }

    /// Tells which frames will not change any more.
    fn tell_certain(&mut self, at: usize, tell: &mut impl FnMut(Happened<'_>)) {
        let (site, now) = (&mut self.sites[at], self.now);
        while let Some(open) = site.next_certain() {
            tell(Happened::Confirmed { site: at, at: now, frame: open.frame, words: &open.words, hash: open.hash });
        }
        if let Some(what) = site.nonsense.take() {
            tell(Happened::Nonsense { site: at, what });
        }
    }

    fn send_all(&mut self, from: usize, local: Instant) {
        let mut buf = [0; MAX_DATAGRAM + 8];
        while let Some(transmit) = self.sites[from].session.poll_transmit(local, &mut buf) {
            self.oversized += u64::from(transmit.len > MAX_DATAGRAM);
            if !self.sites[from].lets_pass() {
                continue;
            }
            let Some(to) = self.site_at(transmit.to) else {
                let sender = self.sites[from].addr;
                if let Some(outside) = &mut self.outside {
                    outside.push((self.now, sender, transmit.to, buf[..transmit.len].to_vec()));
                }
                continue;
            };
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(&buf[..transmit.len]);
            self.sites[from].tamper(to, &mut bytes);
            self.overhear(from, to, &bytes);
            let sender = self.sites[from].addr;
            if self.sending_delay > TimeDelta::ZERO {
                let wait = TimeDelta::from_nanos(self.luck.range(0..=self.sending_delay.as_nanos()));
                self.queue.push(self.now + wait, Happening::Depart { from, to, sender, bytes });
            } else {
                self.depart(from, to, sender, bytes);
            }
        }
    }

    /// Keeps copies of what sites send from now on, whatever becomes of it: the newest `most` datagrams.
    pub fn listen(&mut self, most: usize) {
        self.most_overheard = most;
        self.overheard.clear();
    }

    /// What was overheard, oldest first.
    pub fn overheard(&self) -> impl ExactSizeIterator<Item = &Overheard> {
        self.overheard.iter()
    }

    fn overhear(&mut self, from: usize, to: usize, bytes: &[u8]) {
        if self.most_overheard == 0 {
            return;
        }
        if self.overheard.len() == self.most_overheard {
            self.overheard.pop_front();
        }
        self.overheard.push_back(Overheard { at: self.now, from, to, bytes: bytes.to_vec() });
    }

    fn depart(&mut self, from: usize, to: usize, sender: Addr, bytes: Vec<u8>) {
        let link = from * self.sites.len() + to;
        let mut deliveries = self.links[link].send(self.now, bytes.len());
        let first = deliveries.next();
        for at in deliveries {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(&bytes);
            self.queue.push(at, Happening::Arrive { link, to, sender, bytes: copy });
        }
        match first {
            Some(at) => self.queue.push(at, Happening::Arrive { link, to, sender, bytes }),
            None => self.spare.push(bytes),
        }
    }

    /// Cuts or heals both directions between two sites.
    pub fn set_cut(&mut self, one: usize, other: usize, cut: bool) {
        self.link(one, other).set_cut(cut);
        self.link(other, one).set_cut(cut);
    }

    /// Gives a site a new address; what is sent to the old one is lost.
    pub fn move_site(&mut self, site: usize) {
        self.routes.retain(|(_, there)| *there != site);
        self.sites[site].moves += 1;
        self.sites[site].addr = Self::address(site, self.sites[site].moves);
        self.routes.push((self.sites[site].addr, site));
    }

    /// Starts a site's program anew.
    pub fn restart(&mut self, site: usize, session: Session) {
        self.sites[site].restart(session);
        self.wake(site);
    }

    /// Stops a site dead.
    pub fn crash(&mut self, site: usize) {
        self.sites[site].crashed = true;
    }

    /// Suspends a site until then: it sleeps, and its clock stands still meanwhile.
    pub fn suspend(&mut self, site: usize, until: Instant) {
        let asleep = until - self.now;
        self.sites[site].clock.offset -= asleep;
        self.pause(site, until);
    }

    /// Lets a site sleep until then, as a closed laptop does; its clock goes on.
    pub fn pause(&mut self, site: usize, until: Instant) {
        self.sites[site].away_until = until;
        self.wake_at(site, until);
    }
}

/// A datagram that somebody listened to.
#[derive(Clone, Debug)]
pub struct Overheard {
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
pub enum Happened<'a> {
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
    Nonsense {
        /// Which site.
        site: usize,
        /// What.
        what: String,
    },
    /// The session told something.
    Event {
        /// Which site.
        site: usize,
        /// When, in true time.
        at: Instant,
        /// What.
        event: Event,
    },
}

impl Site {
    /// Does the next thing the session asks for; `None` when there is nothing, else how long it takes.
    fn serve(
        &mut self,
        number: usize,
        at: Instant,
        local: Instant,
        tell: &mut impl FnMut(Happened<'_>),
    ) -> Option<TimeDelta> {
        match self.session.poll_request(local)? {
            Request::Sample { frame } => {
                let frame = frame.number();
                self.player.play(&mut self.words);
                tell(Happened::Sampled { site: number, at, frame, words: &self.words });
                if self.sabotage == Some(Sabotage::LagOffByOne) {
                    std::mem::swap(&mut self.words, &mut self.words_before);
                    self.session.handle_input(local, &self.words);
                } else {
                    self.session.handle_input(local, &self.words);
                }
                self.sampled = true;
                Some(TimeDelta::ZERO)
            }
            Request::Save { frame, slot } => {
                self.save(frame.number(), slot);
                tell(Happened::Saved { site: number, at, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Load { frame, slot } => {
                self.load(frame.number(), slot);
                tell(Happened::Loaded { site: number, at, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Regions { .. } => {
                self.tell_regions();
                Some(TimeDelta::ZERO)
            }
            Request::Pages { region, from, .. } => {
                self.tell_pages(region, from);
                Some(TimeDelta::ZERO)
            }
            Request::Snapshot { frame, slot } => {
                self.snapshot(frame.number(), slot);
                Some(TimeDelta::ZERO)
            }
            Request::Restore { frame, state } => {
                let machine = Toy::from_bytes(self.words.len(), state);
                self.restore(frame.number(), machine);
                tell(Happened::Restored { site: number, frame: frame.number() });
                Some(TimeDelta::ZERO)
            }
            Request::Advance { frame, inputs, fresh } => {
                self.words_now.clear();
                self.words_now.extend_from_slice(inputs);
                let words = std::mem::take(&mut self.words_now);
                let hash = self.advance(frame.number(), &words, fresh);
                tell(Happened::Stepped { site: number, at, frame: frame.number(), fresh, words: &words, hash });
                self.words_now = words;
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
pub fn site(session: Session, clock: NodeClock, players: usize, seed: u64) -> Site {
    let addr = World::address(session.site().index(), 0);
    Site::new(session, clock, addr, players, seed)
}
