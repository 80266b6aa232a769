//! A simulated network for any host program of a session: sites with exact clocks, and links between all of them.
//!
//! [`SessionNetwork`](crate::session_network::SessionNetwork) runs only the toy machine and simulates faults of
//! computers. This network knows only sessions, so that any machine and any driver of a [`Session`] can run in it.

use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::session::Session;
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

use crate::clock::NodeClock;
use crate::network::{Computer, Datagram, Moment, Network, Node, Outbox, Reaction, Topology};

/// A host program that embeds one session.
pub trait HostProgram {
    /// Returns the session. The network passes it the datagrams that arrive, and polls it for datagrams to send.
    fn session(&mut self) -> &mut Session;

    /// Serves the session's next request. Returns `false` if the session has none.
    fn serve_request(&mut self, now: Instant) -> bool;

    /// Runs after all requests are served and all datagrams are sent. The default does nothing.
    fn on_idle(&mut self, _now: Instant) {}
}

impl<H: HostProgram> Node for H {
    type Context<'a> = ();

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut ()) -> Reaction {
        self.session().handle_datagram(now.local, datagram.from, datagram.bytes);
        Reaction::Run
    }

    fn work(&mut self, now: &Moment<'_>, _: &mut ()) -> Option<TimeDelta> {
        self.serve_request(now.local).then_some(TimeDelta::ZERO)
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut ()) -> Option<usize> {
        let transmit = self.session().poll_transmit(now.local, &mut out.buf[..MAX_DATAGRAM])?;
        out.to.push(transmit.to);
        Some(transmit.len)
    }

    fn on_idle(&mut self, now: &Moment<'_>, _: &mut ()) {
        HostProgram::on_idle(self, now.local);
    }

    fn poll_timeout(&mut self, _: &Moment<'_>) -> Option<Instant> {
        self.session().poll_timeout()
    }
}

/// Host programs, the links between them, and virtual time.
pub type HostNetwork<H> = Network<H>;

impl<H: HostProgram> HostNetwork<H> {
    /// Creates a network of these host programs, one per site in site order. `link(from, to)` returns the conditions of
    /// the link from site `from` to site `to`.
    pub fn new(seed: u64, programs: Vec<H>, link: impl Fn(usize, usize) -> LinkConfig) -> Self {
        let topology = Topology::mesh(seed, programs.len(), |from, to| format!("{from}>{to}"), link);
        let computer = |(number, program)| Computer::new(program, NodeClock::TRUE, Addr(number as u64));
        Self::with_topology(seed, programs.into_iter().enumerate().map(computer).collect(), topology)
    }

    /// Processes all events up to the virtual time `until`.
    pub fn run_until(&mut self, until: Instant) {
        self.run(until, &mut ());
    }

    /// Returns the address of a site, which is its number.
    pub fn address(site: SiteId) -> Addr {
        Addr(site.index() as u64)
    }

    /// Returns the peers of a site in a session of `count` sites, with their addresses.
    pub fn peers(site: SiteId, count: usize) -> Vec<(SiteId, Addr)> {
        SiteId::first(count).filter(|other| *other != site).map(|other| (other, Self::address(other))).collect()
    }
}
