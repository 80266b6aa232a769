//! Fault tests of [`coplay::motion`]: a server of moving objects and its clients in virtual time, with a clock per
//! endpoint and two links between the server and each client.

mod checker;
mod sabotage;
mod scenario;

use coplay::motion::{
    ClientId, CommandNumber, LinearPredictor, MilliVec2, MotionClient, MotionClientEvent, MotionConfig, MotionServer,
    MotionServerEvent, ObjectId, ObjectMoment,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay::wire::motion::{MotionDatagramWriter, MotionItem, MotionItems};

pub use sabotage::Sabotage;
pub use scenario::{FEATURES, MotionScenario};

use crate::clock::NodeClock;
use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, LinkStats};

/// Motion of the objects: linear, at most ten units per second.
pub const LINEAR_MOTION: LinearPredictor = LinearPredictor { max_speed: 10_000 };

/// Highest command number there is.
const MAX_NUMBER: CommandNumber = CommandNumber { epoch: u32::MAX, count: u32::MAX };

/// A server and its clients.
pub struct MotionNetwork {
    now: Instant,
    config: MotionConfig,
    frame_period: TimeDelta,
    server: Option<MotionServer<LinearPredictor>>,
    server_clock: NodeClock,
    server_wake: Instant,
    seats: Vec<ClientNode>,
    queue: EventQueue<MotionQueueEvent>,
    /// Incarnation of the endpoint started last; each start takes the next number.
    run: u32,
    /// Number of forged command numbers that reached the server.
    forged_number_count: u64,
    sabotage: Option<Sabotage>,
}

/// A computer on which a client may run.
struct ClientNode {
    clock: NodeClock,
    client: Option<MotionClient<LinearPredictor>>,
    /// Next wake-up; earlier schedules are void.
    next_wake: Instant,
    uplink: Link,
    downlink: Link,
    /// Whether the client's next command is given a forged number.
    forges_next_number: bool,
}

/// Plan of a network.
#[derive(Clone, Debug)]
pub struct MotionPlan {
    /// Motion settings.
    pub config: MotionConfig,
    /// Frame period of all endpoints.
    pub frame: TimeDelta,
    /// Clock of the server.
    pub server: NodeClock,
    /// Clocks of the clients.
    pub clients: Vec<NodeClock>,
    /// Conditions of the links between the server and each client, in both directions.
    pub link: LinkConfig,
}

/// An endpoint of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The server.
    Server,
    /// The client with this seat number, from 0 on.
    Seat(usize),
}

/// Cause of a change at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeCause {
    /// It advanced a frame.
    Frame,
    /// It received a datagram.
    Arrival,
}

enum MotionQueueEvent {
    Wake(Endpoint),
    Arrive { client: usize, is_uplink: bool, bytes: Box<[u8]> },
}

impl MotionNetwork {
    /// Creates computers with links between them. No endpoint runs yet.
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
            queue: EventQueue::new(),
            run: 0,
            forged_number_count: 0,
            sabotage: None,
        };
        network.queue.push(Instant::ZERO, MotionQueueEvent::Wake(Endpoint::Server));
        (0..network.seats.len())
            .for_each(|seat| network.queue.push(Instant::ZERO, MotionQueueEvent::Wake(Endpoint::Seat(seat))));
        network
    }

    /// Injects a defect.
    pub fn set_sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.sabotage = sabotage;
    }

    /// Returns the true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the local time of an endpoint.
    pub fn local_time(&self, end: Endpoint) -> Instant {
        match end {
            Endpoint::Server => self.server_clock.local(self.now),
            Endpoint::Seat(seat) => self.seats[seat].clock.local(self.now),
        }
    }

    /// Returns the time that is passed to an engine, which the sabotage may advance.
    fn engine_time(&self, end: Endpoint) -> Instant {
        let Endpoint::Seat(seat) = end else { return self.local_time(end) };
        self.local_time(end) + self.sabotage.map_or(TimeDelta::ZERO, |sabotage| sabotage.clock_advance(seat, self.now))
    }

    /// Takes the events of a client since the last call.
    pub fn take_events(&mut self, end: Endpoint) -> Vec<MotionClientEvent> {
        let Endpoint::Seat(seat) = end else { return Vec::new() };
        let client = &mut self.seats[seat].client;
        client.iter_mut().flat_map(|client| std::iter::from_fn(|| client.poll_event())).collect()
    }

    fn next_config(&mut self) -> MotionConfig {
        self.run += 1;
        MotionConfig { incarnation: self.run, ..self.config }
    }

    /// Starts or restarts the server, without any state.
    pub fn start_server(&mut self) -> &mut MotionServer<LinearPredictor> {
        let (config, local) = (self.next_config(), self.local_time(Endpoint::Server));
        self.server.insert(MotionServer::new(local, config, LINEAR_MOTION).expect("settings are valid"))
    }

    /// Starts or restarts a client, without any state.
    pub fn start_client(&mut self, seat: usize) -> &mut MotionClient<LinearPredictor> {
        let (config, local) = (self.next_config(), self.engine_time(Endpoint::Seat(seat)));
        self.seats[seat].client.insert(MotionClient::new(local, config, LINEAR_MOTION).expect("settings are valid"))
    }

    /// Stops an endpoint without notice.
    pub fn crash(&mut self, end: Endpoint) {
        match end {
            Endpoint::Server => self.server = None,
            Endpoint::Seat(seat) => self.seats[seat].client = None,
        }
    }

    /// Returns the server's id of a client.
    pub fn client_id(seat: usize) -> ClientId {
        ClientId(seat as u32 + 1)
    }

    /// Returns the server, if it runs.
    pub fn server(&self) -> Option<&MotionServer<LinearPredictor>> {
        self.server.as_ref()
    }

    /// Returns the server mutably, if it runs.
    pub fn server_mut(&mut self) -> Option<&mut MotionServer<LinearPredictor>> {
        self.server.as_mut()
    }

    /// Returns a client, if it runs.
    pub fn client(&self, seat: usize) -> Option<&MotionClient<LinearPredictor>> {
        self.seats[seat].client.as_ref()
    }

    /// Returns the number of clients.
    pub fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Returns the number of starts of all endpoints.
    pub fn run_count(&self) -> u32 {
        self.run
    }

    /// Subscribes a client to an object, as its owner if `is_own`.
    pub fn subscribe(&mut self, seat: usize, object: ObjectId, is_own: bool) {
        if let Some(client) = &mut self.seats[seat].client {
            if is_own { client.own(object) } else { client.subscribe(object) }
        }
    }

    /// Gives the client's next command the highest number there is, once.
    pub fn forge_next_number(&mut self, seat: usize) {
        self.seats[seat].forges_next_number = true;
    }

    /// Returns how many forged command numbers reached the server.
    pub fn forged_number_count(&self) -> u64 {
        self.forged_number_count
    }

    /// Commands an object.
    pub fn command(&mut self, end: Endpoint, object: ObjectId, vector: MilliVec2) {
        let local = self.engine_time(end);
        match end {
            Endpoint::Server => self.server.iter_mut().for_each(|server| server.command(local, object, vector)),
            Endpoint::Seat(seat) => {
                let client = &mut self.seats[seat].client;
                client.iter_mut().for_each(|client| _ = client.command(local, object, vector));
            }
        }
        self.transmit(end);
        self.schedule_wake(end);
    }

    /// Returns an object as an endpoint has it now.
    pub fn object_moment(&self, end: Endpoint, object: ObjectId) -> Option<ObjectMoment<MilliVec2>> {
        let local = self.engine_time(end);
        match end {
            Endpoint::Server => self.server.as_ref()?.moment_at(local, object),
            Endpoint::Seat(seat) => self.seats[seat].client.as_ref()?.moment_at(local, object),
        }
    }

    /// Returns the uplink and the downlink of a client.
    pub fn links_mut(&mut self, seat: usize) -> [&mut Link; 2] {
        let ClientNode { uplink, downlink, .. } = &mut self.seats[seat];
        [uplink, downlink]
    }

    /// Returns the counters of all links together.
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

    /// Runs until `until` and calls `on_frame` after each frame of an endpoint.
    pub fn run(&mut self, until: Instant, mut on_frame: impl FnMut(&mut Self, Endpoint)) {
        self.run_observed(until, |network, end, cause| {
            if cause == ChangeCause::Frame {
                on_frame(network, end);
            }
        });
    }

    /// Runs until `until` and calls `on_change` after each frame and each arrival.
    pub(crate) fn run_observed(&mut self, until: Instant, mut on_change: impl FnMut(&mut Self, Endpoint, ChangeCause)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match event {
                MotionQueueEvent::Arrive { client: seat, is_uplink, bytes } => {
                    self.deliver(seat, is_uplink, bytes);
                    on_change(
                        self,
                        if is_uplink { Endpoint::Server } else { Endpoint::Seat(seat) },
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

    fn run_endpoint(&mut self, end: Endpoint) {
        let local = self.engine_time(end);
        match end {
            Endpoint::Server => self.server.iter_mut().for_each(|server| server.advance(local)),
            Endpoint::Seat(seat) => self.seats[seat].client.iter_mut().for_each(|client| client.advance(local)),
        }
        self.transmit(end);
        self.schedule_wake(end);
    }

    fn next_wake(&self, end: Endpoint) -> Instant {
        match end {
            Endpoint::Server => self.server_wake,
            Endpoint::Seat(seat) => self.seats[seat].next_wake,
        }
    }

    /// Schedules the next wake-up of an endpoint: at its next frame, or earlier when a command is ready to be sent.
    fn schedule_wake(&mut self, end: Endpoint) {
        let local = self.local_time(end);
        let frame = self.frame_period.as_nanos();
        let next = Instant::from_nanos((local.as_nanos().div_euclid(frame) + 1) * frame);
        let soonest = self.now + TimeDelta::from_nanos(1);
        let at = match end {
            Endpoint::Server => self.server_clock.true_time(next).max(soonest),
            Endpoint::Seat(seat) => {
                let ClientNode { clock, client, .. } = &self.seats[seat];
                let due = client.as_ref().map_or(next, |client| client.poll_timeout().min(next));
                clock.true_time(due).max(soonest)
            }
        };
        match end {
            Endpoint::Server => self.server_wake = at,
            Endpoint::Seat(seat) => self.seats[seat].next_wake = at,
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
        let end = if is_uplink { Endpoint::Server } else { Endpoint::Seat(seat) };
        let local = self.engine_time(end);
        if is_uplink {
            self.server.iter_mut().for_each(|server| server.handle_datagram(local, Self::client_id(seat), &bytes));
            self.grant_subscriptions();
        } else {
            self.seats[seat].client.iter_mut().for_each(|client| client.handle_datagram(local, &bytes));
        }
        self.transmit(end);
    }

    /// Grants every requested subscription.
    fn grant_subscriptions(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some(event) = server.poll_event() {
            if let MotionServerEvent::SubscriptionRequested(client, object) = event {
                server.show(client, object);
            }
        }
    }

    fn transmit(&mut self, end: Endpoint) {
        let (local, now) = (self.engine_time(end), self.now);
        let mut buf = [0; MAX_DATAGRAM];
        loop {
            let (seat, is_uplink, len) = match end {
                Endpoint::Server => {
                    let Some(server) = &mut self.server else { return };
                    let Some((client, len)) = server.poll_transmit(local, &mut buf) else { return };
                    (client.0 as usize - 1, false, len)
                }
                Endpoint::Seat(seat) => {
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

/// Returns the datagram with the highest number in all its commands, or `None` if it has no command.
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
