//! Network of a serverless maze: the mesh of its sites. It also writes the trace file.

use std::collections::BTreeMap;

use coplay::peer_world::{PeerWorldDestination, WorldPeerStats, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite, TICKS_PER_SECOND};
use coplay_net::clock;
use coplay_net::mesh::{DepartureReason, Dest, MAX_PAYLOAD_LEN, Mesh, MeshEvent, MeshMember};
use coplay_shell::error::AppError;

use super::report::{MazeReport, PeerReport};
use super::trace_file::TraceFile;
use crate::hud::Invitation;
use crate::maze::net::MazeNet;

/// Largest side of a small maze, in cells. In a small maze almost every avatar is near, or soon will be, so every
/// update is sent to all sites.
const SMALL_MAZE_SIDE: u8 = 16;
/// Clock rate of the RTP timestamps in multicast datagrams, in Hz.
const RTP_CLOCK: u32 = 90_000;
/// Largest number of events handled after the deadline of an exchange, so that a backlog cannot stall the game.
const MAX_OVERDUE_EVENTS: usize = 64;
/// Interval at which statistics of peers and subscriptions to the multicast groups of regions are updated.
const PEER_UPDATE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);

/// Link of a site to all other sites of its mesh.
pub(super) struct MeshLink {
    mesh: Mesh,
    is_small_maze: bool,
    trace: Option<TraceFile>,
    invitation: Invitation,
    /// Whether events are printed to stderr, because no front end shows them.
    prints_events: bool,
    peers: BTreeMap<WorldSiteId, PeerReport>,
    started: Instant,
    next_peer_update: Instant,
}

impl MeshLink {
    pub(super) fn new(
        mesh: Mesh,
        settings: &MazeSettings,
        trace: Option<TraceFile>,
        invitation: Invitation,
        prints_events: bool,
    ) -> Self {
        let (is_small_maze, started) = (settings.cells_per_side <= SMALL_MAZE_SIDE, clock::now());
        Self {
            mesh,
            is_small_maze,
            trace,
            invitation,
            prints_events,
            peers: BTreeMap::new(),
            started,
            next_peer_update: started,
        }
    }

    /// Sends all datagrams of the game that are due: to one site, to all, or to the sites near a region.
    fn send(&mut self, game: &mut MazeSite) {
        let mut buffer = [0; MAX_PAYLOAD_LEN];
        while let Some(packet) = game.poll_transmit(clock::now(), &mut buffer) {
            let sites: Vec<u32> = game.receivers(packet.to).iter().map(|site| site.0).collect();
            let to = match packet.to {
                PeerWorldDestination::One(site) => Dest::Site(site.0),
                PeerWorldDestination::All => Dest::All,
                PeerWorldDestination::Near(_) if self.is_small_maze => Dest::All,
                PeerWorldDestination::Near(_) if self.mesh.multicast_addr().is_none() => Dest::Sites(&sites),
                PeerWorldDestination::Near(region) => Dest::Region { region, sites: &sites },
            };
            let timestamp = packet.tick.wrapping_mul(RTP_CLOCK / TICKS_PER_SECOND);
            self.mesh.send(clock::now(), &to, timestamp, &buffer[..packet.len]);
        }
    }

    fn on_event(&mut self, game: &mut MazeSite, event: MeshEvent) {
        match event {
            // The arrival time, not the processing time: the clock offset is estimated from it.
            MeshEvent::Datagram { at, from, bytes } => game.handle_datagram(at, WorldSiteId(from), &bytes),
            MeshEvent::Joined { member, is_rejoin } => self.on_member_joined(game, member, is_rejoin),
            MeshEvent::Left { site, reason } => self.on_member_left(game, WorldSiteId(site), reason),
            MeshEvent::MulticastUnavailable(error) => {
                self.print_event(&format!("unicast is used instead of multicast: {error}"))
            }
        }
    }

    fn on_member_joined(&mut self, game: &mut MazeSite, member: MeshMember, is_rejoin: bool) {
        let site = WorldSiteId(member.site);
        self.print_event(&format!("{} {}", member.name, if is_rejoin { "rejoined" } else { "joined" }));
        self.peers.entry(site).or_default().name = member.name;
        game.add_peer(clock::now(), site);
    }

    fn on_member_left(&mut self, game: &mut MazeSite, site: WorldSiteId, reason: DepartureReason) {
        let name = self.peers.get(&site).map_or("unknown player", |peer| &peer.name);
        let text = match reason {
            DepartureReason::Left => "left",
            DepartureReason::TimedOut => "was silent for 10 s and was dropped",
            DepartureReason::Restarted => "restarted",
        };
        self.print_event(&format!("{name} {text}"));
        game.remove_peer(site);
    }

    fn print_event(&self, text: &str) {
        if self.prints_events {
            eprintln!("{text}");
        }
    }

    /// Updates the statistics of peers, and subscribes to the multicast groups of the wanted regions, every 200 ms.
    fn update_peers_and_regions(&mut self, game: &MazeSite) {
        let now = clock::now();
        if now < self.next_peer_update {
            return;
        }
        self.next_peer_update = now + PEER_UPDATE_INTERVAL;
        self.update_peer_stats(now, game);
        if !self.is_small_maze && self.mesh.multicast_addr().is_some() {
            self.mesh.subscribe_regions(&game.wanted_regions());
        }
    }

    fn update_peer_stats(&mut self, now: Instant, game: &MazeSite) {
        for (site, peer) in &mut self.peers {
            let known = game.world().peer_stats(now, *site);
            if let Some(stats) = known.filter(|stats: &WorldPeerStats| stats.rtt.is_some()) {
                (peer.stats, peer.hears_multicast) = (stats, self.mesh.is_multicast_received_by(now, site.0));
            }
        }
    }

    fn write_trace(&mut self, game: &mut MazeSite) -> Result<(), AppError> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.write(&game.take_trace()))
    }

    /// Returns the report of the run up to now.
    pub(super) fn report(&mut self, game: &MazeSite) -> MazeReport {
        let now = clock::now();
        self.update_peer_stats(now, game);
        let own = self.mesh.members().next().map(|member| member.name).unwrap_or_default();
        MazeReport::new(game, own, self.peers.clone(), self.mesh.stats(), now - self.started)
    }

    /// Announces the departure to all sites, writes the rest of the trace, and leaves the mesh.
    pub(super) fn leave(mut self, game: &mut MazeSite) -> Result<(), AppError> {
        game.leave();
        self.send(game);
        let written = self.write_trace(game).and_then(|()| self.trace.as_mut().map_or(Ok(()), TraceFile::flush));
        self.mesh.leave();
        written
    }
}

impl MazeNet for MeshLink {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn exchange(&mut self, game: &mut MazeSite, until: Instant) -> Result<(), AppError> {
        self.send(game);
        let mut overdue = 0;
        while overdue < MAX_OVERDUE_EVENTS
            && let Some(event) = self.mesh.poll(until)
        {
            self.on_event(game, event);
            self.send(game);
            overdue += usize::from(clock::now() >= until);
        }
        self.update_peers_and_regions(game);
        self.write_trace(game)
    }

    fn invitation(&self) -> Option<Invitation> {
        Some(self.invitation.clone())
    }

    fn status(&self) -> String {
        let members = self.mesh.members().count();
        let now = clock::now();
        let is_multicast = self.mesh.members().any(|member| self.mesh.is_multicast_received_by(now, member.site));
        format!("sites: {members}, {}", if is_multicast { "multicast" } else { "unicast" })
    }
}
