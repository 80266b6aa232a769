//! What a computer of a network runs, and what the network tells it.

use std::collections::BTreeMap;

use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};

use crate::clock::NodeClock;

/// A program on a computer of a network: the host program of an engine. The network calls it with the time, and
/// carries its datagrams.
///
/// After a wake-up, and after a datagram that asks for it, the network runs the program: it calls [`work`](Self::work)
/// until there is none, each time followed by [`poll_transmit`](Self::poll_transmit) until there is no datagram, then
/// [`on_idle`](Self::on_idle), and schedules the next wake-up by [`poll_timeout`](Self::poll_timeout).
pub trait Node {
    /// What the programs of a network share, and where they report what they do.
    type Context<'a>: ?Sized;

    /// Whether a wake-up that is scheduled again for the same instant keeps its first place among the events of that
    /// instant. Otherwise it comes after all events scheduled so far.
    const KEEPS_PLACE: bool = false;

    /// Takes in a datagram that has arrived.
    fn handle_datagram(
        &mut self,
        now: &Moment<'_>,
        datagram: Datagram<'_>,
        context: &mut Self::Context<'_>,
    ) -> Reaction;

    /// Does the next piece of work that is due, and returns the time for which the computer is busy with it; `None` if
    /// nothing was left to do.
    fn work(&mut self, now: &Moment<'_>, context: &mut Self::Context<'_>) -> Option<TimeDelta>;

    /// Writes the next datagram to the outbox, with its receivers, and returns its length; `None` if there is none.
    fn poll_transmit(
        &mut self,
        now: &Moment<'_>,
        out: &mut Outbox<'_>,
        context: &mut Self::Context<'_>,
    ) -> Option<usize>;

    /// Runs when nothing is left to do and to send. The default does nothing.
    fn on_idle(&mut self, _now: &Moment<'_>, _context: &mut Self::Context<'_>) {}

    /// Returns the true time of the next wake-up; `None` if the program waits for datagrams only.
    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant>;

    /// Records that the program asked without end to be called at one instant, which would stop virtual time. The
    /// network crashes its computer.
    fn on_endless_loop(&mut self) {
        panic!("a node asks without end to be called at the same instant");
    }
}

/// What the network does with a program after a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// It runs the program, unless its computer is busy.
    Run,
    /// It sends the program's datagrams.
    Transmit,
    /// It waits for the next wake-up.
    Wait,
}

/// Where a program puts the next datagram that it sends.
#[derive(Debug)]
pub struct Outbox<'a> {
    /// Payload, with room for a few bytes more than a datagram may have.
    pub buf: &'a mut [u8],
    /// Addresses that the datagram is sent to; empty at first.
    pub to: &'a mut Vec<Addr>,
}

/// A datagram that has arrived at a computer.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Address that the sender had when it sent the datagram.
    pub from: Addr,
    /// Address that the datagram was sent to.
    pub to: Addr,
    /// Payload.
    pub bytes: &'a [u8],
}

/// The moment of a call, as the called program's computer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Number of the computer in its network.
    pub node: usize,
    /// True time.
    pub now: Instant,
    /// Time that the computer's clock shows.
    pub local: Instant,
    /// The computer's clock.
    pub clock: NodeClock,
    /// Number of the computer that receives at each address.
    pub routes: &'a BTreeMap<Addr, usize>,
}
