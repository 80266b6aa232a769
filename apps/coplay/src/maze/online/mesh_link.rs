//! The way from a maze to the others in it: a group, and the file in which all of it is written down.

use std::collections::BTreeMap;

use coplay::peer_world::{PeerWorldDestination, WorldPeerStats, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite, TICKS_PER_SECOND};
use coplay_net::clock;
use coplay_net::mesh::{DepartureReason, Dest, MAX_PAYLOAD_LEN, Mesh, MeshEvent, MeshMember};

use super::report::{MazeReport, PeerReport};
use super::trace_file::TraceFile;
use crate::error::AppError;
use crate::hud::Invitation;
use crate::maze::net::MazeNet;

/// In a maze with so few cells each way almost everybody is near, or will be in a moment; so everybody is told of everything.
const SMALL_MAZE_SIDE: u8 = 16;
/// Timestamps of RTP count so often in a second.
const RTP_CLOCK: u32 = 90_000;
/// However late we are, so much of what came is taken before the game goes on.
const MAX_OVERDUE_EVENTS: usize = 64;
/// It is looked this often how the others do, and which regions are near.
const PEER_UPDATE_INTERVAL: TimeDelta = TimeDelta::from_millis(200);

/// A site's way to all others.
pub(super) struct MeshLink {
    mesh: Mesh,
    is_small_maze: bool,
    trace: Option<TraceFile>,
    invitation: Invitation,
    /// Nobody sees who comes and goes, so it is said.
    prints_events: bool,
    peers: BTreeMap<WorldSiteId, PeerReport>,
    started: Instant,
    next_peer_update: Instant,
}

impl MeshLink {
    pub(super) fn new(
        group: Mesh,
        terms: &MazeSettings,
        trace: Option<TraceFile>,
        invitation: Invitation,
        aloud: bool,
    ) -> Self {
        let (small, began) = (terms.cells_per_side <= SMALL_MAZE_SIDE, clock::now());
        Self {
            mesh: group,
            is_small_maze: small,
            trace,
            invitation,
            prints_events: aloud,
            peers: BTreeMap::new(),
            started: began,
            next_peer_update: began,
        }
    }

    /// Sends all that there is, at once.
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
            // When it came, not when we got round to it: clocks are compared by this.
            MeshEvent::Datagram { at, from, bytes } => game.handle_datagram(at, WorldSiteId(from), &bytes),
            MeshEvent::Joined { member, is_rejoin: again } => self.on_member_joined(game, member, again),
            MeshEvent::Left { site, reason: why } => self.on_member_left(game, WorldSiteId(site), why),
            MeshEvent::MulticastUnavailable(error) => {
                self.print_event(&format!("everybody is reached one by one: {error}"))
            }
        }
    }

    fn on_member_joined(&mut self, game: &mut MazeSite, member: MeshMember, again: bool) {
        let site = WorldSiteId(member.site);
        self.print_event(&format!("{} is here{}", member.name, if again { " again" } else { "" }));
        self.peers.entry(site).or_default().name = member.name;
        game.add_peer(clock::now(), site);
    }

    fn on_member_left(&mut self, game: &mut MazeSite, site: WorldSiteId, why: DepartureReason) {
        let name = self.peers.get(&site).map_or("somebody", |peer| &peer.name);
        let how = match why {
            DepartureReason::Left => "left",
            DepartureReason::TimedOut => "is not heard any more",
            DepartureReason::Restarted => "starts anew",
        };
        self.print_event(&format!("{name} {how}"));
        game.remove_peer(site);
    }

    fn print_event(&self, what: &str) {
        if self.prints_events {
            eprintln!("{what}");
        }
    }

    /// Looks how the others do, as long as they are there to be asked, and listens to what is near.
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

    /// What it came to so far.
    pub(super) fn report(&mut self, game: &MazeSite) -> MazeReport {
        let now = clock::now();
        self.update_peer_stats(now, game);
        let own = self.mesh.members().next().map(|member| member.name).unwrap_or_default();
        MazeReport::new(game, own, self.peers.clone(), self.mesh.stats(), now - self.started)
    }

    /// Says goodbye to all.
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
        let mut late = 0;
        while late < MAX_OVERDUE_EVENTS
            && let Some(event) = self.mesh.poll(until)
        {
            self.on_event(game, event);
            self.send(game);
            late += usize::from(clock::now() >= until);
        }
        self.update_peers_and_regions(game);
        self.write_trace(game)
    }

    fn invitation(&self) -> Option<Invitation> {
        Some(self.invitation.clone())
    }

    fn status(&self) -> String {
        let here = self.mesh.members().count();
        let now = clock::now();
        let heard = self.mesh.members().any(|member| self.mesh.is_multicast_received_by(now, member.site));
        format!("{here} here, {}", if heard { "by multicast" } else { "one by one" })
    }
}
