//! A simulated session: sites with their own clocks, and links between all of them.

use coplay::id::{Addr, SiteId};
use coplay::session::{Event, Request, Session};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

use crate::clock::NodeClock;
use crate::network::{ADDRESS_STEP, Computer, Datagram, Moment, Network, Node, Outbox, Reaction, Topology};
use crate::site::{SessionSabotage, SimulatedSite};
use crate::toy_machine::ToyMachine;

/// Sites and the links between them.
pub type SessionNetwork = Network<SimulatedSite>;

impl SessionNetwork {
    /// Creates a network of these sites. `link(from, to)` returns the conditions of the link from site `from` to site
    /// `to`.
    pub fn new(seed: u64, sites: Vec<Computer<SimulatedSite>>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let topology = Topology::mesh(seed, sites.len(), |from, to| format!("{from}>{to}"), link);
        Self::with_topology(seed, sites, topology)
    }

    /// Returns the address of a site after this many address changes.
    pub fn address(site: usize, moves: u64) -> Addr {
        Addr(site as u64 + ADDRESS_STEP * moves)
    }

    /// Returns the peers of a site in a session of `count` sites, with their addresses before any address change.
    pub fn peers(site: usize, count: usize) -> Vec<(SiteId, Addr)> {
        let others = SiteId::first(count).filter(|other| other.index() != site);
        others.map(|other| (other, Self::address(other.index(), 0))).collect()
    }

    /// Processes all events up to the true time `until`, and passes the sites' events to `on_event`.
    pub fn run_until(&mut self, until: Instant, on_event: &mut impl FnMut(SiteEvent<'_>)) {
        self.run(until, on_event);
    }

    /// Passes a datagram to a site's session at once, even if the site sleeps, and without a call of its host program.
    /// A crashed site gets nothing.
    pub fn inject(&mut self, to: usize, sender: Addr, bytes: &[u8]) {
        let local = self.local_time(to);
        if !self.nodes[to].is_crashed {
            self.nodes[to].session.handle_datagram(local, sender, bytes);
        }
    }

    /// Restarts a site's host program with a new session, and wakes it.
    pub fn restart(&mut self, site: usize, session: Session) {
        self.nodes[site].node.restart(session);
        self.restart_computer(site);
    }
}

/// Creates a computer with a site for a session, at the address that its site number has before any address change.
pub fn new_site(session: Session, clock: NodeClock, players: usize, seed: u64) -> Computer<SimulatedSite> {
    let addr = SessionNetwork::address(session.site().index(), 0);
    Computer::new(SimulatedSite::new(session, players, seed), clock, addr)
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

impl Node for SimulatedSite {
    type Context<'a> = dyn FnMut(SiteEvent<'_>) + 'a;

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut Self::Context<'_>) -> Reaction {
        self.session.handle_datagram(now.local, datagram.from, datagram.bytes);
        Reaction::Run
    }

    /// Serves the session's next request.
    fn work(&mut self, now: &Moment<'_>, on_event: &mut Self::Context<'_>) -> Option<TimeDelta> {
        if !self.is_serving && self.sabotage == Some(SessionSabotage::ContinueWithoutQuorum) {
            let others = now.routes.iter().filter(|(_, other)| **other != now.node);
            let named = others.filter_map(|(addr, other)| Some((SiteId::new(*other as u8)?, *addr)));
            self.inject_forged_decision(now.local, named);
        }
        let busy = self.serve_request(now, on_event);
        self.is_serving = busy == Some(TimeDelta::ZERO);
        busy
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut Self::Context<'_>) -> Option<usize> {
        loop {
            let transmit = self.session.poll_transmit(now.local, out.buf)?;
            if self.may_transmit() {
                now.routes.get(&transmit.to).into_iter().for_each(|to| self.tamper(*to, &mut out.buf[..transmit.len]));
                out.to.push(transmit.to);
                return Some(transmit.len);
            }
        }
    }

    /// Reports newly confirmed frames, the first invalid request, and the session's events.
    fn on_idle(&mut self, now: &Moment<'_>, on_event: &mut Self::Context<'_>) {
        let &Moment { node: site, now: at, .. } = now;
        self.clear_sampled();
        while let Some(confirmed) = self.next_confirmed() {
            let (frame, words, hash) = (confirmed.frame, &confirmed.inputs[..], confirmed.hash);
            on_event(SiteEvent::Confirmed { site, at, frame, words, hash });
        }
        if let Some(description) = self.invalid_request.take() {
            on_event(SiteEvent::InvalidRequest { site, description });
        }
        while let Some(event) = self.session.poll_event() {
            on_event(SiteEvent::SessionEvent { site, at, event });
        }
    }

    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant> {
        self.session.poll_timeout().map(|deadline| now.clock.true_time(deadline))
    }

    fn on_endless_loop(&mut self) {
        self.report_invalid_request("asks without end to be called at the same instant".into());
    }
}

impl SimulatedSite {
    /// Serves the session's next request. Returns the time that the machine is busy with it; `None` if there is no
    /// request.
    fn serve_request(&mut self, now: &Moment<'_>, on_event: &mut <Self as Node>::Context<'_>) -> Option<TimeDelta> {
        let &Moment { node: number, now: at, local, .. } = now;
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
