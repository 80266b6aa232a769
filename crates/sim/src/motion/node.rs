//! A computer on which the server or a client of moving objects may run.

use std::collections::BTreeSet;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::motion::message::{MotionDatagramWriter, MotionItem, MotionItems};
use coplay::motion::{
    ClientId, CommandNumber, LinearPredictor, MotionClient, MotionConfig, MotionServer, MotionServerEvent,
};
use coplay::time::{Instant, TimeDelta};

use super::MotionPlan;
use super::sabotage::MotionSabotage;
use crate::network::{Datagram, Moment, Node, Outbox, Reaction};

/// Highest command number that can be encoded.
const MAX_NUMBER: CommandNumber = CommandNumber { epoch: u32::MAX, count: u32::MAX };

/// A computer on which the server or a client may run. Computer 0 is the server's; clients follow in seat order.
pub struct MotionNode {
    pub(super) engine: Engine,
    pub(super) config: MotionConfig,
    frame_period: TimeDelta,
    /// How many times the endpoint was started.
    pub(super) run_count: u32,
    /// Clients whose next datagram with commands arrives at the server with forged numbers.
    pub(super) seats_with_forged_number: BTreeSet<usize>,
    /// Number of datagrams with forged command numbers that reached the running server.
    pub(super) forged_number_count: u64,
    pub(super) sabotage: Option<MotionSabotage>,
}

/// The engine under test; `None` while it does not run.
pub(super) enum Engine {
    Server(Option<MotionServer<LinearPredictor>>),
    Client(Option<MotionClient<LinearPredictor>>),
}

impl MotionNode {
    pub(super) fn new(number: usize, plan: &MotionPlan) -> Self {
        Self {
            engine: if number == 0 { Engine::Server(None) } else { Engine::Client(None) },
            config: plan.config,
            frame_period: plan.frame,
            run_count: 0,
            seats_with_forged_number: BTreeSet::new(),
            forged_number_count: 0,
            sabotage: None,
        }
    }

    /// Returns by how much the engine's time is ahead of the clock.
    pub(super) fn clock_advance(&self, node: usize, now: Instant) -> TimeDelta {
        let advance = |sabotage: MotionSabotage| Some(sabotage.clock_advance(node.checked_sub(1)?, now));
        self.sabotage.and_then(advance).unwrap_or(TimeDelta::ZERO)
    }

    fn engine_time(&self, now: &Moment<'_>) -> Instant {
        now.local + self.clock_advance(now.node, now.now)
    }

    /// Forges the numbers of a datagram from a client for which that is due.
    fn forge_number(&mut self, seat: usize, bytes: Box<[u8]>) -> Box<[u8]> {
        let is_due = self.seats_with_forged_number.contains(&seat);
        let Some(forged) = is_due.then(|| with_forged_numbers(&bytes)).flatten() else { return bytes };
        self.seats_with_forged_number.remove(&seat);
        self.forged_number_count += u64::from(matches!(self.engine, Engine::Server(Some(_))));
        forged
    }
}

impl Node for MotionNode {
    type Context<'a> = ();
    const KEEPS_PLACE: bool = true;

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut ()) -> Reaction {
        let is_uplink = now.node == 0;
        let seat = if is_uplink { datagram.from.0 as usize } else { now.node } - 1;
        let bytes = match self.sabotage {
            Some(sabotage) => sabotage.tamper(now.now, seat, is_uplink, datagram.bytes.into()),
            None => Some(datagram.bytes.into()),
        };
        let Some(mut bytes) = bytes else { return Reaction::Wait };
        if is_uplink {
            bytes = self.forge_number(seat, bytes);
        }
        let local = self.engine_time(now);
        match &mut self.engine {
            Engine::Server(server) => {
                if let Some(server) = server {
                    server.handle_datagram(local, ClientId(seat as u32 + 1), &bytes);
                    grant_subscriptions(server);
                }
            }
            Engine::Client(client) => client.iter_mut().for_each(|client| client.handle_datagram(local, &bytes)),
        }
        Reaction::Transmit
    }

    fn work(&mut self, now: &Moment<'_>, _: &mut ()) -> Option<TimeDelta> {
        let local = self.engine_time(now);
        match &mut self.engine {
            Engine::Server(server) => server.as_mut()?.advance(local),
            Engine::Client(client) => client.as_mut()?.advance(local),
        }
        None
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut ()) -> Option<usize> {
        let (local, buf) = (self.engine_time(now), &mut out.buf[..MAX_DATAGRAM]);
        let (receiver, len) = match &mut self.engine {
            Engine::Server(server) => server.as_mut()?.poll_transmit(local, buf)?,
            Engine::Client(client) => (ClientId(0), client.as_mut()?.poll_transmit(local, buf)?),
        };
        out.to.push(Addr(receiver.0.into()));
        Some(len)
    }

    /// Returns the time of the next frame or, for a client, of an earlier timeout of its engine.
    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant> {
        let frame = self.frame_period.as_nanos();
        let next = Instant::from_nanos((now.local.as_nanos().div_euclid(frame) + 1) * frame);
        let due = match &self.engine {
            Engine::Client(Some(client)) => client.poll_timeout().min(next),
            Engine::Client(None) | Engine::Server(_) => next,
        };
        Some(now.clock.true_time(due).max(now.now + TimeDelta::from_nanos(1)))
    }
}

/// Grants every subscription that a client requested from the server.
fn grant_subscriptions(server: &mut MotionServer<LinearPredictor>) {
    while let Some(event) = server.poll_event() {
        if let MotionServerEvent::SubscriptionRequested(client, object) = event {
            server.show(client, object);
        }
    }
}

/// Returns the datagram with the highest number in all its commands and start states; `None` if it has no command.
fn with_forged_numbers(bytes: &[u8]) -> Option<Box<[u8]>> {
    let items: Vec<MotionItem<'_>> = MotionItems::new(bytes).ok()?.collect::<Result<_, _>>().ok()?;
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagramWriter::new(&mut buf, MotionItems::new(bytes).ok()?.header()).ok()?;
    let mut has_command = false;
    for item in items {
        let item = match item {
            MotionItem::StartState { object, state, .. } => {
                MotionItem::StartState { object, number: MAX_NUMBER, state }
            }
            MotionItem::Command { object, previous_segment, vector, .. } => {
                has_command = true;
                MotionItem::Command { object, number: MAX_NUMBER, previous_segment, vector }
            }
            item => item,
        };
        datagram.put(item).ok()?;
    }
    let len = datagram.len();
    has_command.then(|| buf[..len].into())
}
