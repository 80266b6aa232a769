//! Fault tests of [`coplay::peer_world`]: a serverless maze in virtual time, with a clock per site and links between
//! all sites.

mod checker;
mod run;
mod sabotage;
mod scenario;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::LinkConfig;
use coplay_links::random::Random;
use coplay_maze::{MazeSettings, MazeSite};

pub use sabotage::PeerWorldSabotage;
pub use scenario::{PeerWorldFault, PeerWorldScenario};

use crate::clock::NodeClock;
use crate::network::{Computer, Datagram, Moment, Network, NetworkStep, Node, Outbox, Reaction, Topology};

/// A maze, the nodes on which its sites run, and the links between them.
pub type PeerWorldNetwork = Network<PeerWorldNode>;

/// A computer on which a site of the maze may run.
pub struct PeerWorldNode {
    site: WorldSiteId,
    settings: MazeSettings,
    sending: UpdatePolicy,
    ninjas: u8,
    game: Option<MazeSite>,
    /// Local time of the site's next timeout.
    next_timeout: Instant,
    has_new_view: bool,
    /// Datagrams delivered since the last [`PeerWorldNetwork::take_deliveries`]; `None` if they are not kept.
    delivered: Option<Vec<DeliveredDatagram>>,
    sabotage: Option<PeerWorldSabotage>,
}

/// Plan of a node and of the site that runs on it.
#[derive(Clone, Debug)]
pub struct PeerWorldSitePlan {
    /// Offset and skew of the node's clock.
    pub clock: NodeClock,
    /// Policy by which the site sends updates of its avatars.
    pub sending: UpdatePolicy,
    /// Number of the site's avatars, all of which software plays.
    pub ninjas: u8,
}

/// A datagram that the site at a node received.
#[derive(Clone, Debug)]
pub struct DeliveredDatagram {
    /// True time of the arrival.
    pub at: Instant,
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// Payload as the site received it, including sabotage.
    pub bytes: Box<[u8]>,
}

fn address(site: WorldSiteId) -> Addr {
    Addr(site.0.into())
}

impl PeerWorldNetwork {
    /// Creates one node per plan, with equal links between all nodes. No site runs yet.
    pub fn new(seed: u64, settings: MazeSettings, plans: &[PeerWorldSitePlan], link: &LinkConfig) -> Self {
        let mut random = Random::stream(seed, "sites");
        let nodes = plans.iter().map(|plan| {
            let site = WorldSiteId(random.bits() as u32);
            let node = PeerWorldNode {
                site,
                settings,
                sending: plan.sending,
                ninjas: plan.ninjas,
                game: None,
                next_timeout: Instant::ZERO,
                has_new_view: false,
                delivered: None,
                sabotage: None,
            };
            Computer::new(node, plan.clock, address(site))
        });
        let topology = Topology::mesh(seed, plans.len(), |from, to| format!("{from} to {to}"), |_, _| link.clone());
        Self::asleep(seed, nodes.collect(), topology)
    }

    /// Sets the defect that is applied to datagrams that arrive at the first node.
    pub fn set_sabotage(&mut self, sabotage: Option<PeerWorldSabotage>) {
        self.nodes[0].sabotage = sabotage;
    }

    /// Returns the id of the site at a node, whether it runs or not.
    pub fn site_of(&self, node: usize) -> WorldSiteId {
        self.nodes[node].site
    }

    /// Returns the node of a site; `None` if no node has that id.
    pub fn node_of(&self, site: WorldSiteId) -> Option<usize> {
        self.node_at(address(site))
    }

    /// Returns the site's game at a node; `None` if no site runs there.
    pub fn game(&self, node: usize) -> Option<&MazeSite> {
        self.nodes[node].game.as_ref()
    }

    /// Returns the site's game at a node mutably; `None` if no site runs there.
    pub fn game_mut(&mut self, node: usize) -> Option<&mut MazeSite> {
        self.nodes[node].game.as_mut()
    }

    /// Returns the indices of the nodes on which a site runs.
    pub fn active_nodes(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].game.is_some()).collect()
    }

    /// Keeps all later deliveries until they are [taken](Self::take_deliveries).
    pub fn keep_deliveries(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.delivered = Some(Vec::new()));
    }

    /// Returns the deliveries since the last call, by receiver; none unless `keep_deliveries` was called.
    pub fn take_deliveries(&mut self) -> Vec<DeliveredDatagram> {
        self.nodes
            .iter_mut()
            .flat_map(|node| node.delivered.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>())
            .collect()
    }

    /// Starts a site at a node. The site and all running sites get to know each other. A site that starts while no
    /// other runs founds the maze.
    pub fn join(&mut self, node: usize) {
        let is_founder = self.active_nodes().is_empty();
        let local = self.local_time(node);
        let PeerWorldNode { site, ref settings, sending, ninjas, .. } = self.nodes[node].node;
        let game = MazeSite::new(local, site, is_founder, settings, sending, (None, ninjas));
        let mut game = game.expect("settings are valid");
        for other in self.active_nodes().into_iter().filter(|other| *other != node) {
            let (other_site, other_local) = (self.nodes[other].site, self.local_time(other));
            game.add_peer(local, other_site);
            if let Some(other) = self.game_mut(other) {
                other.add_peer(other_local, site);
            }
        }
        self.nodes[node].game = Some(game);
        self.wake(node);
    }

    /// Stops the site at a node without a leave message.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].game = None;
    }

    /// Stops the site at a node with a leave message.
    pub fn leave(&mut self, node: usize) {
        if let Some(game) = self.game_mut(node) {
            game.leave();
        }
        self.transmit(node, &mut ());
        self.stop(node);
    }

    /// Processes all events up to the true time `until`, and calls `on_view` whenever the site at a node has a new
    /// view.
    pub fn run_until(&mut self, until: Instant, mut on_view: impl FnMut(&mut Self, usize)) {
        while let Some(step) = self.step(until, &mut ()) {
            match step {
                NetworkStep::Woken(node) if self.nodes[node].has_new_view => on_view(self, node),
                _ => {}
            }
        }
    }
}

impl Node for PeerWorldNode {
    type Context<'a> = ();

    fn handle_datagram(&mut self, now: &Moment<'_>, datagram: Datagram<'_>, _: &mut ()) -> Reaction {
        let bytes: Box<[u8]> = datagram.bytes.into();
        let bytes = match self.sabotage {
            Some(sabotage) => sabotage.tamper(bytes),
            None => Some(bytes),
        };
        if let (Some(bytes), Some(game)) = (bytes, &mut self.game) {
            game.handle_datagram(now.local, WorldSiteId(datagram.from.0 as u32), &bytes);
            if let Some(delivered) = &mut self.delivered {
                delivered.push(DeliveredDatagram {
                    at: now.now,
                    from: now.routes[&datagram.from],
                    to: now.node,
                    bytes,
                });
            }
        }
        Reaction::Wait
    }

    fn work(&mut self, now: &Moment<'_>, _: &mut ()) -> Option<TimeDelta> {
        self.has_new_view = self.game.as_mut().is_some_and(|game| game.advance(now.local));
        self.next_timeout = self.game.as_mut()?.poll_timeout(now.local);
        None
    }

    fn poll_transmit(&mut self, now: &Moment<'_>, out: &mut Outbox<'_>, _: &mut ()) -> Option<usize> {
        let game = self.game.as_mut()?;
        let packet = game.poll_transmit(now.local, &mut out.buf[..MAX_DATAGRAM])?;
        out.to.extend(game.receivers(packet.to).into_iter().map(address));
        Some(packet.len)
    }

    fn poll_timeout(&mut self, now: &Moment<'_>) -> Option<Instant> {
        self.game.as_ref()?;
        Some(now.clock.true_time(self.next_timeout).max(now.now + TimeDelta::from_nanos(1)))
    }
}
