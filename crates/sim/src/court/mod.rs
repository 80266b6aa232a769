//! A server of moving objects and its clients in virtual time, each with a clock of its own, and a link each way between the server and each of them.

mod judge;
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
pub use scenario::{KINDS, Scenario};

use crate::clock::NodeClock;
use crate::link::{Link, LinkConfig, LinkStats};
use crate::queue::Queue;

/// How objects move here: no faster than ten units a second.
pub const LINEAR: LinearPredictor = LinearPredictor { max_speed: 10_000 };

/// No command has a greater number.
const GREATEST: CommandNumber = CommandNumber { epoch: u32::MAX, count: u32::MAX };

/// A server and its clients.
pub struct Court {
    now: Instant,
    config: MotionConfig,
    frame: TimeDelta,
    server: Option<MotionServer<LinearPredictor>>,
    server_clock: NodeClock,
    server_wake: Instant,
    seats: Vec<Seat>,
    queue: Queue<Happening>,
    /// The last run of anybody: later ones have greater numbers.
    run: u32,
    /// Boasts that got to the server.
    boasts: u64,
    sabotage: Option<Sabotage>,
}

/// A computer at which a client may run.
struct Seat {
    clock: NodeClock,
    client: Option<MotionClient<LinearPredictor>>,
    /// When it is woken next; older plans do not count.
    wake: Instant,
    up: Link,
    down: Link,
    /// What it commands next it boasts of.
    boasts: bool,
}

/// What a court is like.
#[derive(Clone, Debug)]
pub struct Plan {
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
pub enum End {
    /// The server.
    Server,
    /// The client in this seat.
    Seat(usize),
}

/// Why an end may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// It played a frame.
    Frame,
    /// It took in a datagram.
    Arrival,
}

enum Happening {
    Wake(End),
    Arrive { seat: usize, up: bool, bytes: Box<[u8]> },
}

impl Court {
    /// Computers with links between them; nothing runs yet.
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let seat = |(number, clock): (usize, &NodeClock)| Seat {
            clock: *clock,
            client: None,
            wake: Instant::ZERO,
            up: Link::new(plan.link.clone(), seed, &format!("{number} up")),
            down: Link::new(plan.link.clone(), seed, &format!("{number} down")),
            boasts: false,
        };
        let mut court = Self {
            now: Instant::ZERO,
            config: plan.config,
            frame: plan.frame,
            server: None,
            server_clock: plan.server,
            server_wake: Instant::ZERO,
            seats: plan.clients.iter().enumerate().map(seat).collect(),
            queue: Queue::new(),
            run: 0,
            boasts: 0,
            sabotage: None,
        };
        court.queue.push(Instant::ZERO, Happening::Wake(End::Server));
        (0..court.seats.len()).for_each(|seat| court.queue.push(Instant::ZERO, Happening::Wake(End::Seat(seat))));
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
    pub fn local(&self, end: End) -> Instant {
        match end {
            End::Server => self.server_clock.local(self.now),
            End::Seat(seat) => self.seats[seat].clock.local(self.now),
        }
    }

    /// What an engine is told the time is.
    fn told(&self, end: End) -> Instant {
        let End::Seat(seat) = end else { return self.local(end) };
        self.local(end) + self.sabotage.map_or(TimeDelta::ZERO, |sabotage| sabotage.hurry(seat, self.now))
    }

    /// What happened at a client since this was last asked.
    pub fn take_events(&mut self, end: End) -> Vec<MotionClientEvent> {
        let End::Seat(seat) = end else { return Vec::new() };
        let client = &mut self.seats[seat].client;
        client.iter_mut().flat_map(|client| std::iter::from_fn(|| client.poll_event())).collect()
    }

    fn next_config(&mut self) -> MotionConfig {
        self.run += 1;
        MotionConfig { incarnation: self.run, ..self.config }
    }

    /// The server is started, or started anew: it knows nothing.
    pub fn start_server(&mut self) -> &mut MotionServer<LinearPredictor> {
        let (config, local) = (self.next_config(), self.local(End::Server));
        self.server.insert(MotionServer::new(local, config, LINEAR).expect("motion can be shared like that"))
    }

    /// A client is started, or started anew: it knows nothing.
    pub fn start_client(&mut self, seat: usize) -> &mut MotionClient<LinearPredictor> {
        let (config, local) = (self.next_config(), self.told(End::Seat(seat)));
        self.seats[seat]
            .client
            .insert(MotionClient::new(local, config, LINEAR).expect("motion can be shared like that"))
    }

    /// Whatever runs there is gone without a word.
    pub fn crash(&mut self, end: End) {
        match end {
            End::Server => self.server = None,
            End::Seat(seat) => self.seats[seat].client = None,
        }
    }

    /// The number of a client at the server.
    pub fn id(seat: usize) -> ClientId {
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
    pub fn runs(&self) -> u32 {
        self.run
    }

    /// A client wants to see an object, and to command it if it is its own.
    pub fn want(&mut self, seat: usize, object: ObjectId, is_own: bool) {
        if let Some(client) = &mut self.seats[seat].client {
            if is_own { client.own(object) } else { client.subscribe(object) }
        }
    }

    /// A client says once that its next command has the greatest number there is.
    pub fn boast(&mut self, seat: usize) {
        self.seats[seat].boasts = true;
    }

    /// How many boasts got to the server.
    pub fn boasts(&self) -> u64 {
        self.boasts
    }

    /// Somebody commands an object.
    pub fn command(&mut self, end: End, object: ObjectId, vector: MilliVec2) {
        let local = self.told(end);
        match end {
            End::Server => self.server.iter_mut().for_each(|server| server.command(local, object, vector)),
            End::Seat(seat) => {
                let client = &mut self.seats[seat].client;
                client.iter_mut().for_each(|client| _ = client.command(local, object, vector));
            }
        }
        self.transmit(end);
        self.plan(end);
    }

    /// An object as it is there now.
    pub fn moment(&self, end: End, object: ObjectId) -> Option<ObjectMoment<MilliVec2>> {
        let local = self.told(end);
        match end {
            End::Server => self.server.as_ref()?.moment_at(local, object),
            End::Seat(seat) => self.seats[seat].client.as_ref()?.moment_at(local, object),
        }
    }

    /// The way of a client to the server, and back.
    pub fn links_mut(&mut self, seat: usize) -> [&mut Link; 2] {
        let Seat { up, down, .. } = &mut self.seats[seat];
        [up, down]
    }

    /// What became of all packets.
    pub fn traffic(&self) -> LinkStats {
        let mut sum = LinkStats::default();
        for stats in self.seats.iter().flat_map(|seat| [seat.up.stats(), seat.down.stats()]) {
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
    pub fn run(&mut self, until: Instant, mut on_frame: impl FnMut(&mut Self, End)) {
        self.watch(until, |court, end, when| {
            if when == When::Frame {
                on_frame(court, end);
            }
        });
    }

    /// The same, and calls also when a datagram got to an end.
    pub(crate) fn watch(&mut self, until: Instant, mut on_change: impl FnMut(&mut Self, End, When)) {
        while self.queue.next_time().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.queue.pop() else { break };
            self.now = self.now.max(at);
            match happening {
                Happening::Arrive { seat, up, bytes } => {
                    self.arrive(seat, up, bytes);
                    on_change(self, if up { End::Server } else { End::Seat(seat) }, When::Arrival);
                }
                Happening::Wake(end) => {
                    if self.planned(end) == at {
                        self.wake(end);
                        on_change(self, end, When::Frame);
                    }
                }
            }
        }
        self.now = self.now.max(until);
    }

    fn wake(&mut self, end: End) {
        let local = self.told(end);
        match end {
            End::Server => self.server.iter_mut().for_each(|server| server.advance(local)),
            End::Seat(seat) => self.seats[seat].client.iter_mut().for_each(|client| client.advance(local)),
        }
        self.transmit(end);
        self.plan(end);
    }

    fn planned(&self, end: End) -> Instant {
        match end {
            End::Server => self.server_wake,
            End::Seat(seat) => self.seats[seat].wake,
        }
    }

    /// Plans when an end is woken next: at its next frame, or sooner where a command is ready to be sent.
    fn plan(&mut self, end: End) {
        let local = self.local(end);
        let frame = self.frame.as_nanos();
        let next = Instant::from_nanos((local.as_nanos().div_euclid(frame) + 1) * frame);
        let soonest = self.now + TimeDelta::from_nanos(1);
        let at = match end {
            End::Server => self.server_clock.true_time(next).max(soonest),
            End::Seat(seat) => {
                let Seat { clock, client, .. } = &self.seats[seat];
                let due = client.as_ref().map_or(next, |client| client.poll_timeout().min(next));
                clock.true_time(due).max(soonest)
            }
        };
        match end {
            End::Server => self.server_wake = at,
            End::Seat(seat) => self.seats[seat].wake = at,
        }
        self.queue.push(at, Happening::Wake(end));
    }

    fn arrive(&mut self, seat: usize, up: bool, bytes: Box<[u8]>) {
        let Seat { up: to_server, down: to_client, .. } = &mut self.seats[seat];
        if !(if up { to_server } else { to_client }).admit_arrival() {
            return;
        }
        let bytes = match self.sabotage {
            Some(sabotage) => sabotage.spoil(self.now, seat, up, bytes),
            None => Some(bytes),
        };
        let Some(mut bytes) = bytes else { return };
        if up
            && self.seats[seat].boasts
            && let Some(boast) = boasted(&bytes)
        {
            self.seats[seat].boasts = false;
            self.boasts += u64::from(self.server.is_some());
            bytes = boast;
        }
        let end = if up { End::Server } else { End::Seat(seat) };
        let local = self.told(end);
        if up {
            self.server.iter_mut().for_each(|server| server.handle_datagram(local, Self::id(seat), &bytes));
            self.show_what_is_wanted();
        } else {
            self.seats[seat].client.iter_mut().for_each(|client| client.handle_datagram(local, &bytes));
        }
        self.transmit(end);
    }

    /// Whoever wants to see an object sees it here.
    fn show_what_is_wanted(&mut self) {
        let Some(server) = &mut self.server else { return };
        while let Some(event) = server.poll_event() {
            if let MotionServerEvent::SubscriptionRequested(client, object) = event {
                server.show(client, object);
            }
        }
    }

    fn transmit(&mut self, end: End) {
        let (local, now) = (self.told(end), self.now);
        let mut buf = [0; MAX_DATAGRAM];
        loop {
            let (seat, up, len) = match end {
                End::Server => {
                    let Some(server) = &mut self.server else { return };
                    let Some((client, len)) = server.poll_transmit(local, &mut buf) else { return };
                    (client.0 as usize - 1, false, len)
                }
                End::Seat(seat) => {
                    let Some(client) = &mut self.seats[seat].client else { return };
                    let Some(len) = client.poll_transmit(local, &mut buf) else { return };
                    (seat, true, len)
                }
            };
            let Seat { up: to_server, down: to_client, .. } = &mut self.seats[seat];
            for at in (if up { to_server } else { to_client }).send(now, len) {
                self.queue.push(at, Happening::Arrive { seat, up, bytes: buf[..len].into() });
            }
        }
    }
}

/// A datagram whose commands have greater numbers than any that was given; `None` if there is none in it.
fn boasted(bytes: &[u8]) -> Option<Box<[u8]>> {
    let items: Vec<MotionItem<'_>> = MotionItems::new(bytes).ok()?.collect::<Result<_, _>>().ok()?;
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagram::new(&mut buf, MotionItems::new(bytes).ok()?.header()).ok()?;
    let mut is_boast = false;
    for item in items {
        let item = match item {
            MotionItem::StartState { object, state, .. } => MotionItem::StartState { object, number: GREATEST, state },
            MotionItem::Command { object, previous_segment: leg, vector, .. } => {
                is_boast = true;
                MotionItem::Command { object, number: GREATEST, previous_segment: leg, vector }
            }
            item => item,
        };
        datagram.put(item).ok()?;
    }
    let len = datagram.len();
    is_boast.then(|| buf[..len].into())
}
