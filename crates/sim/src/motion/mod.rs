//! Fault tests of [`coplay::motion`]: a server of moving objects and its clients in virtual time, with a clock per
//! endpoint and two links between the server and each client.

mod checker;
mod run;
mod sabotage;
mod scenario;

use coplay::codec::MAX_DATAGRAM;
use coplay::motion::message::{MotionDatagramWriter, MotionItem, MotionItems};
use coplay::motion::{
    ClientId, CommandNumber, LinearPredictor, MilliVec2, MotionClient, MotionClientEvent, MotionConfig, MotionServer,
    MotionServerEvent, ObjectId, ObjectMoment,
};
use coplay::time::{Instant, TimeDelta};

pub use sabotage::MotionSabotage;
pub use scenario::{FEATURES, MotionScenario};

use crate::clock::NodeClock;
use coplay_links::event_queue::TimedEventQueue;
use coplay_links::link::{Link, LinkConfig, LinkStats};

/// Motion of the objects: linear, at most ten units per second.
pub const LINEAR_MOTION: LinearPredictor = LinearPredictor { max_speed: 10_000 };

/// Highest command number that can be encoded.
const MAX_NUMBER: CommandNumber = CommandNumber { epoch: u32::MAX, count: u32::MAX };

/// A server of moving objects, its clients, and the links between them.
pub struct MotionNetwork {
    now: Instant,
    config: MotionConfig,
    frame_period: TimeDelta,
    server: Option<MotionServer<LinearPredictor>>,
    server_clock: NodeClock,
    server_wake: Instant,
    seats: Vec<ClientNode>,
    queue: TimedEventQueue<MotionQueueEvent>,
    /// Incarnation of the endpoint started last; each start takes the next number.
    run: u32,
    /// Number of datagrams with forged command numbers that reached a running server.
    forged_number_count: u64,
    sabotage: Option<MotionSabotage>,
}

/// A computer on which a client may run.
struct ClientNode {
    clock: NodeClock,
    client: Option<MotionClient<LinearPredictor>>,
    /// Time of the next wake-up. Queued wake-ups for other times are void.
    next_wake: Instant,
    uplink: Link,
    downlink: Link,
    /// Whether the client's next datagram with commands arrives at the server with forged numbers.
    forges_next_number: bool,
}

/// Clocks, link conditions and settings of a network.
#[derive(Clone, Debug)]
pub struct MotionPlan {
    /// Settings of all engines. The network replaces the incarnation at every start.
    pub config: MotionConfig,
    /// Frame period of all endpoints.
    pub frame: TimeDelta,
    /// Offset and skew of the server's clock.
    pub server: NodeClock,
    /// Offset and skew of each client's clock, by seat number.
    pub clients: Vec<NodeClock>,
    /// Conditions, in each direction, of the links between the server and each client.
    pub link: LinkConfig,
}

/// The server or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionEndpoint {
    /// The computer of the server.
    Server,
    /// The computer of the client with this seat number, from 0 on.
    Seat(usize),
}

/// Cause of a change at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeCause {
    /// The endpoint was woken: at its next frame or, if it is a client, at an earlier timeout of its engine.
    Frame,
    /// A datagram for the endpoint was due, whether or not it got through.
    Arrival,
}

enum MotionQueueEvent {
    Wake(MotionEndpoint),
    Arrive { client: usize, is_uplink: bool, bytes: Box<[u8]> },
}

impl MotionNetwork {
    /// Creates the computers and the links between them. No endpoint runs yet.
    pub fn new(seed: u64, plan: &MotionPlan) -> Self {
        let seat = |(number, clock): (usize, &NodeClock)| ClientNode {
            clock: *clock,
            client: None,
            next_wake: Instant::ZERO,
            uplink: Link::new(plan.link.clone(), seed, &format!("{number} up")),
            downlink: Link::new(plan.link.clone(), seed, &format!("{number} down")),
            forges_next_number: false,
        };
        let mut network = Self {
            now: Instant::ZERO,
            config: plan.config,
            frame_period: plan.frame,
            server: None,
            server_clock: plan.server,
            server_wake: Instant::ZERO,
            seats: plan.clients.iter().enumerate().map(seat).collect(),
            queue: TimedEventQueue::new(),
            run: 0,
            forged_number_count: 0,
            sabotage: None,
        };
        network.queue.push(Instant::ZERO, MotionQueueEvent::Wake(MotionEndpoint::Server));
        (0..network.seats.len())
            .for_each(|seat| network.queue.push(Instant::ZERO, MotionQueueEvent::Wake(MotionEndpoint::Seat(seat))));
        network
    }

    /// Sets the defect of the first client or its links.
    pub fn set_sabotage(&mut self, sabotage: Option<MotionSabotage>) {
        self.sabotage = sabotage;
    }

    /// Returns the virtual time, from which each endpoint's clock deviates.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the time that an endpoint's clock shows now.
    pub fn local_time(&self, end: MotionEndpoint) -> Instant {
        match end {
            MotionEndpoint::Server => self.server_clock.local(self.now),
            MotionEndpoint::Seat(seat) => self.seats[seat].clock.local(self.now),
        }
    }

    /// Returns the time that an endpoint's engine gets: its local time, which [`MotionSabotage::FastClock`] may
    /// advance.
    fn engine_time(&self, end: MotionEndpoint) -> Instant {
        let MotionEndpoint::Seat(seat) = end else { return self.local_time(end) };
        self.local_time(end) + self.sabotage.map_or(TimeDelta::ZERO, |sabotage| sabotage.clock_advance(seat, self.now))
    }

    /// Returns the events of a client since the last call; none for the server or a client that does not run.
    pub fn take_events(&mut self, end: MotionEndpoint) -> Vec<MotionClientEvent> {
        let MotionEndpoint::Seat(seat) = end else { return Vec::new() };
        let client = &mut self.seats[seat].client;
        client.iter_mut().flat_map(|client| std::iter::from_fn(|| client.poll_event())).collect()
    }

    fn next_config(&mut self) -> MotionConfig {
        self.run += 1;
        MotionConfig { incarnation: self.run, ..self.config }
    }

    /// Starts or restarts the server with a new incarnation and without any object.
    pub fn start_server(&mut self) -> &mut MotionServer<LinearPredictor> {
        let (config, local) = (self.next_config(), self.local_time(MotionEndpoint::Server));
        self.server.insert(MotionServer::new(local, config, LINEAR_MOTION).expect("settings are valid"))
    }

    /// Starts or restarts a client with a new incarnation and without any object.
    pub fn start_client(&mut self, seat: usize) -> &mut MotionClient<LinearPredictor> {
        let (config, local) = (self.next_config(), self.engine_time(MotionEndpoint::Seat(seat)));
        self.seats[seat].client.insert(MotionClient::new(local, config, LINEAR_MOTION).expect("settings are valid"))
    }

    /// Stops an endpoint without notice to its peers.
    pub fn crash(&mut self, end: MotionEndpoint) {
        match end {
            MotionEndpoint::Server => self.server = None,
            MotionEndpoint::Seat(seat) => self.seats[seat].client = None,
        }
    }

    /// Returns the id by which the server knows the client with this seat number.
    pub fn client_id(seat: usize) -> ClientId {
        ClientId(seat as u32 + 1)
    }

    /// Returns the server; `None` if it does not run.
    pub fn server(&self) -> Option<&MotionServer<LinearPredictor>> {
        self.server.as_ref()
    }

    /// Returns the server mutably; `None` if it does not run.
    pub fn server_mut(&mut self) -> Option<&mut MotionServer<LinearPredictor>> {
        self.server.as_mut()
    }

    /// Returns the client with this seat number; `None` if it does not run.
    pub fn client(&self, seat: usize) -> Option<&MotionClient<LinearPredictor>> {
        self.seats[seat].client.as_ref()
    }

    /// Returns the number of clients, running or not.
    pub fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Returns how many times endpoints were started, summed over all of them.
    pub fn run_count(&self) -> u32 {
        self.run
    }

    /// Subscribes a client to an object, as its owner if `is_own`.
    pub fn subscribe(&mut self, seat: usize, object: ObjectId, is_own: bool) {
        if let Some(client) = &mut self.seats[seat].client {
            if is_own { client.own(object) } else { client.subscribe(object) }
        }
    }

    /// Replaces the command numbers in the next datagram with commands from a client by the highest number, when it
    /// arrives at the server.
    pub fn forge_next_number(&mut self, seat: usize) {
        self.seats[seat].forges_next_number = true;
    }

    /// Returns how many datagrams with forged command numbers reached a running server.
    pub fn forged_number_count(&self) -> u64 {
        self.forged_number_count
    }

    /// Lets an endpoint give an object a command and send the datagrams that are due. Does nothing if the endpoint does
    /// not run.
    pub fn command(&mut self, end: MotionEndpoint, object: ObjectId, vector: MilliVec2) {
        let local = self.engine_time(end);
        match end {
            MotionEndpoint::Server => self.server.iter_mut().for_each(|server| server.command(local, object, vector)),
            MotionEndpoint::Seat(seat) => {
                let client = &mut self.seats[seat].client;
                client.iter_mut().for_each(|client| _ = client.command(local, object, vector));
            }
        }
        self.transmit(end);
        self.schedule_wake(end);
    }

    /// Returns an object as an endpoint has it now; `None` if the endpoint does not run or does not have it.
    pub fn object_moment(&self, end: MotionEndpoint, object: ObjectId) -> Option<ObjectMoment<MilliVec2>> {
        let local = self.engine_time(end);
        match end {
            MotionEndpoint::Server => self.server.as_ref()?.moment_at(local, object),
            MotionEndpoint::Seat(seat) => self.seats[seat].client.as_ref()?.moment_at(local, object),
        }
    }

    /// Returns the uplink and the downlink of a client, in this order.
    pub fn links_mut(&mut self, seat: usize) -> [&mut Link; 2] {
        let ClientNode { uplink, downlink, .. } = &mut self.seats[seat];
        [uplink, downlink]
    }

    /// Returns the sum of the counters of all links.
    pub fn traffic(&self) -> LinkStats {
        let mut sum = LinkStats::default();
        for stats in self.seats.iter().flat_map(|seat| [seat.uplink.stats(), seat.downlink.stats()]) {
            sum.sent += stats.sent;
            sum.bytes += stats.bytes;
            sum.lost += stats.lost;
            sum.duplicated += stats.duplicated;
            sum.overflowed += stats.overflowed;
            sum.cut += stats.cut;
        }
        sum
    }

    /// Processes all events up to the true time `until`, and calls `on_frame` after each wake-up of an endpoint: at its
    /// frames, and at a client also at the timeouts of its engine.
    pub fn run(&mut self, until: Instant, mut on_frame: impl FnMut(&mut Self, MotionEndpoint)) {
        self.run_observed(until, |network, end, cause| {
            if cause == ChangeCause::Frame {
                on_frame(network, end);
            }
        });
    }

    /// Processes all events up to the true time `until`, and calls `on_change` after each wake-up and each arrival.
    pub(crate) fn run_observed(
        &mut self,
        until: Instant,
        mut on_change: impl FnMut(&mut Self, MotionEndpoint, ChangeCause),
    ) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                MotionQueueEvent::Arrive { client: seat, is_uplink, bytes } => {
                    self.deliver(seat, is_uplink, bytes);
                    on_change(
                        self,
                        if is_uplink { MotionEndpoint::Server } else { MotionEndpoint::Seat(seat) },
                        ChangeCause::Arrival,
                    );
                }
                MotionQueueEvent::Wake(end) => {
                    if self.next_wake(end) == at {
                        self.run_endpoint(end);
                        on_change(self, end, ChangeCause::Frame);
                    }
                }
            }
        }
        self.now = self.now.max(until);
    }

    fn run_endpoint(&mut self, end: MotionEndpoint) {
        let local = self.engine_time(end);
        match end {
            MotionEndpoint::Server => self.server.iter_mut().for_each(|server| server.advance(local)),
            MotionEndpoint::Seat(seat) => self.seats[seat].client.iter_mut().for_each(|client| client.advance(local)),
        }
        self.transmit(end);
        self.schedule_wake(end);
    }

    fn next_wake(&self, end: MotionEndpoint) -> Instant {
        match end {
            MotionEndpoint::Server => self.server_wake,
            MotionEndpoint::Seat(seat) => self.seats[seat].next_wake,
        }
    }

    /// Schedules the next wake-up of an endpoint: at its next frame or, for a client, at an earlier timeout of its
    /// engine.
    fn schedule_wake(&mut self, end: MotionEndpoint) {
        let local = self.local_time(end);
        let frame = self.frame_period.as_nanos();
        let next = Instant::from_nanos((local.as_nanos().div_euclid(frame) + 1) * frame);
        let soonest = self.now + TimeDelta::from_nanos(1);
        let at = match end {
            MotionEndpoint::Server => self.server_clock.true_time(next).max(soonest),
            MotionEndpoint::Seat(seat) => {
                let ClientNode { clock, client, .. } = &self.seats[seat];
                let due = client.as_ref().map_or(next, |client| client.poll_timeout().min(next));
                clock.true_time(due).max(soonest)
            }
        };
        match end {
            MotionEndpoint::Server => self.server_wake = at,
            MotionEndpoint::Seat(seat) => self.seats[seat].next_wake = at,
        }
        self.queue.push(at, MotionQueueEvent::Wake(end));
    }

    fn deliver(&mut self, seat: usize, is_uplink: bool, bytes: Box<[u8]>) {
        let ClientNode { uplink, downlink, .. } = &mut self.seats[seat];
        if !(if is_uplink { uplink } else { downlink }).admit_arrival() {
            return;
        }
        let bytes = match self.sabotage {
            Some(sabotage) => sabotage.tamper(self.now, seat, is_uplink, bytes),
            None => Some(bytes),
        };
        let Some(mut bytes) = bytes else { return };
        if is_uplink
            && self.seats[seat].forges_next_number
            && let Some(forged) = with_forged_numbers(&bytes)
        {
            self.seats[seat].forges_next_number = false;
            self.forged_number_count += u64::from(self.server.is_some());
            bytes = forged;
        }
        let end = if is_uplink { MotionEndpoint::Server } else { MotionEndpoint::Seat(seat) };
        let local = self.engine_time(end);
        if is_uplink {
            self.server.iter_mut().for_each(|server| server.handle_datagram(local, Self::client_id(seat), &bytes));
            self.grant_subscriptions();
        } else {
            self.seats[seat].client.iter_mut().for_each(|client| client.handle_datagram(local, &bytes));
        }
        self.transmit(end);
    }

    /// Grants every subscription that a client requested from the server.
    fn grant_subscriptions(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some(event) = server.poll_event() {
            if let MotionServerEvent::SubscriptionRequested(client, object) = event {
                server.show(client, object);
            }
        }
    }

    fn transmit(&mut self, end: MotionEndpoint) {
        let (local, now) = (self.engine_time(end), self.now);
        let mut buf = [0; MAX_DATAGRAM];
        loop {
            let (seat, is_uplink, len) = match end {
                MotionEndpoint::Server => {
                    let Some(server) = &mut self.server else { return };
                    let Some((client, len)) = server.poll_transmit(local, &mut buf) else { return };
                    (client.0 as usize - 1, false, len)
                }
                MotionEndpoint::Seat(seat) => {
                    let Some(client) = &mut self.seats[seat].client else { return };
                    let Some(len) = client.poll_transmit(local, &mut buf) else { return };
                    (seat, true, len)
                }
            };
            let ClientNode { uplink, downlink, .. } = &mut self.seats[seat];
            for at in (if is_uplink { uplink } else { downlink }).send(now, len) {
                self.queue.push(at, MotionQueueEvent::Arrive { client: seat, is_uplink, bytes: buf[..len].into() });
            }
        }
    }
}

/// Returns the id of the object that a client owns at first.
fn avatar_of(seat: usize) -> ObjectId {
    ObjectId(seat as u64 + 1)
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
