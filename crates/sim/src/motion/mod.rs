//! Fault tests of [`coplay::motion`]: a server of moving objects and its clients in virtual time, with a clock per
//! endpoint and two links between the server and each client.

mod checker;
mod node;
mod run;
mod sabotage;
mod scenario;

use coplay::id::Addr;
use coplay::motion::{
    ClientId, LinearPredictor, MilliVec2, MotionClient, MotionClientEvent, MotionConfig, MotionServer, ObjectId,
    ObjectMoment,
};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;

pub use node::MotionNode;
pub use sabotage::MotionSabotage;
pub use scenario::{MotionDecision, MotionFault, MotionScenario};

use crate::clock::NodeClock;
use crate::network::{Computer, Network, NetworkStep, Topology};
use node::Engine;

/// Motion of the objects: linear, at most ten units per second.
pub const LINEAR_MOTION: LinearPredictor = LinearPredictor { max_speed: 10_000 };

/// A server of moving objects, its clients, and the links between them.
pub type MotionNetwork = Network<MotionNode>;

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

impl From<MotionEndpoint> for usize {
    /// Returns the number of the endpoint's computer in the network.
    fn from(end: MotionEndpoint) -> Self {
        match end {
            MotionEndpoint::Server => 0,
            MotionEndpoint::Seat(seat) => seat + 1,
        }
    }
}

impl MotionEndpoint {
    /// Returns the endpoint on the computer with this number.
    fn of_node(node: usize) -> Self {
        node.checked_sub(1).map_or(Self::Server, Self::Seat)
    }
}

/// Cause of a change at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeCause {
    /// The endpoint was woken: at its next frame or, if it is a client, at an earlier timeout of its engine.
    Frame,
    /// A datagram for the endpoint was due, whether or not it got through.
    Arrival,
}

impl MotionNetwork {
    /// Creates the computers and the links between them. No endpoint runs yet.
    pub fn new(seed: u64, plan: &MotionPlan) -> Self {
        let clocks = std::iter::once(plan.server).chain(plan.clients.iter().copied());
        let nodes: Vec<Computer<MotionNode>> = clocks
            .enumerate()
            .map(|(number, clock)| Computer::new(MotionNode::new(number, plan), clock, Addr(number as u64)))
            .collect();
        let name = |node: usize, direction: &str| format!("{} {direction}", node - 1);
        let topology = Topology::tree(seed, nodes.len(), name, |_| plan.link.clone());
        Self::with_topology(seed, nodes, topology)
    }

    /// Sets the defect of the first client or its links.
    pub fn set_sabotage(&mut self, sabotage: Option<MotionSabotage>) {
        self.nodes.iter_mut().for_each(|node| node.sabotage = sabotage);
    }

    /// Returns the time that an endpoint's engine gets: its local time, which [`MotionSabotage::FastClock`] may
    /// advance.
    fn engine_time(&self, end: MotionEndpoint) -> Instant {
        self.local_time(end) + self.nodes[usize::from(end)].clock_advance(end.into(), self.now())
    }

    /// Returns the events of a client since the last call; none for the server or a client that does not run.
    pub fn take_events(&mut self, end: MotionEndpoint) -> Vec<MotionClientEvent> {
        match &mut self.nodes[usize::from(end)].engine {
            Engine::Client(Some(client)) => std::iter::from_fn(|| client.poll_event()).collect(),
            Engine::Client(None) | Engine::Server(_) => Vec::new(),
        }
    }

    /// Returns the settings of the next start of an endpoint.
    fn next_config(&mut self, end: MotionEndpoint) -> MotionConfig {
        self.nodes[usize::from(end)].run_count += 1;
        MotionConfig { incarnation: self.run_count(), ..self.nodes[usize::from(end)].config }
    }

    /// Starts or restarts the server with a new incarnation and without any object.
    pub fn start_server(&mut self) -> &mut MotionServer<LinearPredictor> {
        let end = MotionEndpoint::Server;
        let (config, local) = (self.next_config(end), self.local_time(end));
        let server = MotionServer::new(local, config, LINEAR_MOTION).expect("settings are valid");
        self.nodes[0].engine = Engine::Server(Some(server));
        self.server_mut().expect("the server was just started")
    }

    /// Starts or restarts a client with a new incarnation and without any object.
    pub fn start_client(&mut self, seat: usize) -> &mut MotionClient<LinearPredictor> {
        let end = MotionEndpoint::Seat(seat);
        let (config, local) = (self.next_config(end), self.engine_time(end));
        let client = MotionClient::new(local, config, LINEAR_MOTION).expect("settings are valid");
        self.nodes[usize::from(end)].engine = Engine::Client(Some(client));
        self.client_mut(seat).expect("the client was just started")
    }

    /// Stops an endpoint without notice to its peers.
    pub fn stop(&mut self, end: MotionEndpoint) {
        self.nodes[usize::from(end)].engine = match end {
            MotionEndpoint::Server => Engine::Server(None),
            MotionEndpoint::Seat(_) => Engine::Client(None),
        };
    }

    /// Returns the id by which the server knows the client with this seat number.
    pub fn client_id(seat: usize) -> ClientId {
        ClientId(seat as u32 + 1)
    }

    /// Returns the server; `None` if it does not run.
    pub fn server(&self) -> Option<&MotionServer<LinearPredictor>> {
        if let Engine::Server(server) = &self.nodes[0].engine { server.as_ref() } else { None }
    }

    /// Returns the server mutably; `None` if it does not run.
    pub fn server_mut(&mut self) -> Option<&mut MotionServer<LinearPredictor>> {
        if let Engine::Server(server) = &mut self.nodes[0].engine { server.as_mut() } else { None }
    }

    /// Returns the client with this seat number; `None` if it does not run.
    pub fn client(&self, seat: usize) -> Option<&MotionClient<LinearPredictor>> {
        if let Engine::Client(client) = &self.nodes[seat + 1].engine { client.as_ref() } else { None }
    }

    fn client_mut(&mut self, seat: usize) -> Option<&mut MotionClient<LinearPredictor>> {
        if let Engine::Client(client) = &mut self.nodes[seat + 1].engine { client.as_mut() } else { None }
    }

    /// Returns the number of clients, running or not.
    pub fn seats(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Returns how many times endpoints were started, summed over all of them.
    pub fn run_count(&self) -> u32 {
        self.nodes.iter().map(|node| node.run_count).sum()
    }

    /// Subscribes a client to an object, as its owner if `is_own`.
    pub fn subscribe(&mut self, seat: usize, object: ObjectId, is_own: bool) {
        if let Some(client) = self.client_mut(seat) {
            if is_own { client.own(object) } else { client.subscribe(object) }
        }
    }

    /// Replaces the command numbers in the next datagram with commands from a client by the highest number, when it
    /// arrives at the server.
    pub fn forge_next_number(&mut self, seat: usize) {
        self.nodes[0].seats_with_forged_number.insert(seat);
    }

    /// Returns how many datagrams with forged command numbers reached a running server.
    pub fn forged_number_count(&self) -> u64 {
        self.nodes[0].forged_number_count
    }

    /// Lets an endpoint give an object a command and send the datagrams that are due. Does nothing if the endpoint does
    /// not run.
    pub fn command(&mut self, end: MotionEndpoint, object: ObjectId, vector: MilliVec2) {
        let local = self.engine_time(end);
        match &mut self.nodes[usize::from(end)].engine {
            Engine::Server(server) => server.iter_mut().for_each(|server| server.command(local, object, vector)),
            Engine::Client(client) => client.iter_mut().for_each(|client| _ = client.command(local, object, vector)),
        }
        self.transmit(end.into(), &mut ());
        self.schedule_wake(end.into());
    }

    /// Returns an object as an endpoint has it now; `None` if the endpoint does not run or does not have it.
    pub fn object_moment(&self, end: MotionEndpoint, object: ObjectId) -> Option<ObjectMoment<MilliVec2>> {
        let local = self.engine_time(end);
        match end {
            MotionEndpoint::Server => self.server()?.moment_at(local, object),
            MotionEndpoint::Seat(seat) => self.client(seat)?.moment_at(local, object),
        }
    }

    /// Processes all events up to the true time `until`, and calls `on_change` after each wake-up and each arrival.
    pub(crate) fn run_observed(
        &mut self,
        until: Instant,
        mut on_change: impl FnMut(&mut Self, MotionEndpoint, ChangeCause),
    ) {
        while let Some(step) = self.step(until, &mut ()) {
            let (node, cause) = match step {
                NetworkStep::Woken(node) => (node, ChangeCause::Frame),
                NetworkStep::Arrived(node) => (node, ChangeCause::Arrival),
            };
            on_change(self, MotionEndpoint::of_node(node), cause);
        }
    }
}

/// Returns the id of the object that a client owns at first.
fn avatar_of(seat: usize) -> ObjectId {
    ObjectId(seat as u64 + 1)
}
