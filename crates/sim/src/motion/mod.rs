//! A server of moving objects and its clients in virtual time, each with a clock of its own, and a link each way between the server and each of them.

mod checker;
mod sabotage;
mod scenario;

use coplay::motion::{
    ClientId, CommandNumber, LinearPredictor, MilliVec2, MotionClient, MotionClientEvent, MotionConfig, MotionServer,
    MotionServerEvent, ObjectId, ObjectMoment,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay::wire::motion::{MotionDatagram, MotionItem, MotionItems};

pub use sabotage::Sabotage;
pub use scenario::{FEATURES, MotionScenario};

use crate::clock::NodeClock;
use crate::event_queue::EventQueue;
use crate::link::{Link, LinkConfig, LinkStats};

/// How objects move here: no faster than ten units a second.
pub const LINEAR_MOTION: LinearPredictor = LinearPredictor { max_speed: 10_000 };

/// No command has a greater number.
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
    /// The last run of anybody: later ones have greater numbers.
    run: u32,
    /// Boasts that got to the server.
    forged_number_count: u64,
    sabotage: Option<Sabotage>,
}

/// A computer at which a client may run.
struct ClientNode {
    clock: NodeClock,
    client: Option<MotionClient<LinearPredictor>>,
    /// When it is woken next; older plans do not count.
    next_wake: Instant,
    uplink: Link,
    downlink: Link,
    /// What it commands next it boasts of.
    forges_next_number: bool,
}

/// What a court is like.
#[derive(Clone, Debug)]
pub struct MotionPlan {
    /// How motion is shared.
    pub config: MotionConfig,
    /// The time of a frame, everywhere.
    pub frame: TimeDelta,
    /// The server's clock.
    pub server: NodeClock,
    /// The clocks of the clients.
    pub clients: Vec<NodeClock>,
    /// The way between the server and each of them, in both directions.
    pub link: LinkConfig,
}

/// An end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The server.
    Server,
    /// The client in this seat.
    Seat(usize),
}

/// Why an end may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeCause {
    /// It played a frame.
    Frame,
    /// It took in a datagram.
    Arrival,
}

enum MotionQueueEvent {
    Wake(Endpoint),
    Arrive { client: usize, is_uplink: bool, bytes: Box<[u8]> },
}

impl MotionNetwork {
    /// Computers with links between them; nothing runs yet.
    pub fn new(seed: u64, plan: &MotionPlan) -> Self {
        let seat = |(number, clock): (usize, &NodeClock)| ClientNode {
            clock: *clock,
            client: None,
            next_wake: Instant::ZERO,
            uplink: Link::new(plan.link.clone(), seed, &format!("{number} up")),
            downlink: Link::new(plan.link.clone(), seed, &format!("{number} down")),
            forges_next_number: false,
        };
        let mut court = Self {
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
        court.queue.push(Instant::ZERO, MotionQueueEvent::Wake(Endpoint::Server));
        (0..court.seats.len())
            .for_each(|seat| court.queue.push(Instant::ZERO, MotionQueueEvent::Wake(Endpoint::Seat(seat))));
        court
    }

    /// Breaks something on purpose.
    pub fn set_sabotage(&mut self, sabotage: Option<Sabotage>) {
        self.sabotage = sabotage;
    }

    /// The true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What a clock shows.
    pub fn local_time(&self, end: Endpoint) -> Instant {
        match end {
            Endpoint::Server => self.server_clock.local(self.now),
            Endpoint::Seat(seat) => self.seats[seat].clock.local(self.now),
        }
    }

    /// What an engine is told the time is.
    fn engine_time(&self, end: Endpoint) -> Instant {
        let Endpoint::Seat(seat) = end else { return self.local_time(end) };
        self.local_time(end) + self.sabotage.map_or(TimeDelta::ZERO, |sabotage| sabotage.clock_advance(seat, self.now))
    }

    /// What happened at a client since this was last asked.
    pub fn take_events(&mut self, end: Endpoint) -> Vec<MotionClientEvent> {
        let Endpoint::Seat(seat) = end else { return Vec::new() };
        let client = &mut self.seats[seat].client;
        client.iter_mut().flat_map(|client| std::iter::from_fn(|| client.poll_event())).collect()
    }

    fn next_config(&mut self) -> MotionConfig {
        self.run += 1;
        MotionConfig { incarnation: self.run, ..self.config }
    }

    /// The server is started, or started anew: it knows nothing.
    pub fn start_server(&mut self) -> &mut MotionServer<LinearPredictor> {
        let (config, local) = (self.next_config(), self.local_time(Endpoint::Server));
        self.server.insert(MotionServer::new(local, config, LINEAR_MOTION).expect("motion can be shared like that"))
    }

    /// A client is started, or started anew: it knows nothing.
    pub fn start_client(&mut self, seat: usize) -> &mut MotionClient<LinearPredictor> {
        let (config, local) = (self.next_config(), self.engine_time(Endpoint::Seat(seat)));
        self.seats[seat]
            .client
            .insert(MotionClient::new(local, config, LINEAR_MOTION).expect("motion can be shared like that"))
    }

    /// Whatever runs there is gone without a word.
    pub fn crash(&mut self, end: Endpoint) {
        match end {
            Endpoint::Server => self.server = None,
            Endpoint::Seat(seat) => self.seats[seat].client = None,
        }
    }

    /// The number of a client at the server.
    pub fn client_id(seat: usize) -> ClientId {
        ClientId(seat as u32 + 1)
    }

    /// The server, if it runs.
    pub fn server(&self) -> Option<&MotionServer<LinearPredictor>> {
        self.server.as_ref()
    }

    /// The same, to change it.
    pub fn server_mut(&mut self) -> Option<&mut MotionServer<LinearPredictor>> {
        self.server.as_mut()
    }

    /// A client, if it runs.
    pub fn client(&self, seat: usize) -> Option<&MotionClient<LinearPredictor>> {
        self.seats[seat].client.as_ref()
    }

    /// How many seats there are.
    pub fn seats(&self) -> usize {
        self.seats.len()
    }

    /// How often anybody was started.
    pub fn run_count(&self) -> u32 {
        self.run
    }

    /// A client wants to see an object, and to command it if it is its own.
    pub fn subscribe(&mut self, seat: usize, object: ObjectId, is_own: bool) {
        if let Some(client) = &mut self.seats[seat].client {
            if is_own { client.own(object) } else { client.subscribe(object) }
        }
    }

    /// A client says once that its next command has the greatest number there is.
    pub fn forge_next_number(&mut self, seat: usize) {
        self.seats[seat].forges_next_number = true;
    }

    /// How many boasts got to the server.
    pub fn forged_number_count(&self) -> u64 {
        self.forged_number_count
    }

    /// Somebody commands an object.
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

    /// An object as it is there now.
    pub fn object_moment(&self, end: Endpoint, object: ObjectId) -> Option<ObjectMoment<MilliVec2>> {
        let local = self.engine_time(end);
        match end {
            Endpoint::Server => self.server.as_ref()?.moment_at(local, object),
            Endpoint::Seat(seat) => self.seats[seat].client.as_ref()?.moment_at(local, object),
        }
    }

    /// The way of a client to the server, and back.
    pub fn links_mut(&mut self, seat: usize) -> [&mut Link; 2] {
        let ClientNode { uplink: up, downlink: down, .. } = &mut self.seats[seat];
        [up, down]
    }

    /// What became of all packets.
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

    /// Goes on until then, and calls whenever somebody has had a frame.
    pub fn run(&mut self, until: Instant, mut on_frame: impl FnMut(&mut Self, Endpoint)) {
        self.run_observed(until, |court, end, when| {
            if when == ChangeCause::Frame {
                on_frame(court, end);
            }
        });
    }

    /// The same, and calls also when a datagram got to an end.
    pub(crate) fn run_observed(&mut self, until: Instant, mut on_change: impl FnMut(&mut Self, Endpoint, ChangeCause)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                MotionQueueEvent::Arrive { client: seat, is_uplink: up, bytes } => {
                    self.deliver(seat, up, bytes);
                    on_change(self, if up { Endpoint::Server } else { Endpoint::Seat(seat) }, ChangeCause::Arrival);
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

    /// Plans when an end is woken next: at its next frame, or sooner where a command is ready to be sent.
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

    fn deliver(&mut self, seat: usize, up: bool, bytes: Box<[u8]>) {
        let ClientNode { uplink: to_server, downlink: to_client, .. } = &mut self.seats[seat];
        if !(if up { to_server } else { to_client }).admit_arrival() {
            return;
        }
        let bytes = match self.sabotage {
            Some(sabotage) => sabotage.tamper(self.now, seat, up, bytes),
            None => Some(bytes),
        };
        let Some(mut bytes) = bytes else { return };
        if up
            && self.seats[seat].forges_next_number
            && let Some(boast) = with_forged_numbers(&bytes)
        {
            self.seats[seat].forges_next_number = false;
            self.forged_number_count += u64::from(self.server.is_some());
            bytes = boast;
        }
        let end = if up { Endpoint::Server } else { Endpoint::Seat(seat) };
        let local = self.engine_time(end);
        if up {
            self.server.iter_mut().for_each(|server| server.handle_datagram(local, Self::client_id(seat), &bytes));
            self.grant_subscriptions();
        } else {
            self.seats[seat].client.iter_mut().for_each(|client| client.handle_datagram(local, &bytes));
        }
        self.transmit(end);
    }

    /// Whoever wants to see an object sees it here.
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
            let (seat, up, len) = match end {
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
            let ClientNode { uplink: to_server, downlink: to_client, .. } = &mut self.seats[seat];
            for at in (if up { to_server } else { to_client }).send(now, len) {
                self.queue.push(at, MotionQueueEvent::Arrive { client: seat, is_uplink: up, bytes: buf[..len].into() });
            }
        }
    }
}

/// A datagram whose commands have greater numbers than any that was given; `None` if there is none in it.
fn with_forged_numbers(bytes: &[u8]) -> Option<Box<[u8]>> {
    let items: Vec<MotionItem<'_>> = MotionItems::new(bytes).ok()?.collect::<Result<_, _>>().ok()?;
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagram::new(&mut buf, MotionItems::new(bytes).ok()?.header()).ok()?;
    let mut is_boast = false;
    for item in items {
        let item = match item {
            MotionItem::StartState { object, state, .. } => {
                MotionItem::StartState { object, number: MAX_NUMBER, state }
            }
            MotionItem::Command { object, previous_segment: leg, vector, .. } => {
                is_boast = true;
                MotionItem::Command { object, number: MAX_NUMBER, previous_segment: leg, vector }
            }
            item => item,
        };
        datagram.put(item).ok()?;
    }
    let len = datagram.len();
    is_boast.then(|| buf[..len].into())
}
