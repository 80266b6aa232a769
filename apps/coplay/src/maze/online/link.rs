//! The way from a maze to the others in it: a group, and the file in which all of it is written down.

use std::collections::BTreeMap;

use coplay::peer_world::{PeerWorldDestination, WorldPeerStats, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite, TICKS_PER_SECOND};
use coplay_net::clock;
use coplay_net::mesh::{DepartureReason, Dest, MAX_PAYLOAD_LEN, Mesh, MeshEvent, MeshMember};

use super::report::{Peer, Report};
use super::trace::TraceFile;
use crate::desk::Invitation;
use crate::maze::net::MazeNet;
use crate::trouble::Trouble;

/// In a maze with so few cells each way almost everybody is near, or will be in a moment; so everybody is told of everything.
const SMALL: u8 = 16;
/// Timestamps of RTP count so often in a second.
const RTP_CLOCK: u32 = 90_000;
/// However late we are, so much of what came is taken before the game goes on.
const MOST_LATE: usize = 64;
/// It is looked this often how the others do, and which regions are near.
const LOOK: TimeDelta = TimeDelta::from_millis(200);

/// A site's way to all others.
pub(super) struct Link {
    group: Mesh,
    small: bool,
    trace: Option<TraceFile>,
    invitation: Invitation,
    /// Nobody sees who comes and goes, so it is said.
    aloud: bool,
    peers: BTreeMap<WorldSiteId, Peer>,
    began: Instant,
    next_look: Instant,
}

impl Link {
    pub(super) fn new(
        group: Mesh,
        terms: &MazeSettings,
        trace: Option<TraceFile>,
        invitation: Invitation,
        aloud: bool,
    ) -> Self {
        let (small, began) = (terms.cells_per_side <= SMALL, clock::now());
        Self { group, small, trace, invitation, aloud, peers: BTreeMap::new(), began, next_look: began }
    }

    /// Sends all that there is, at once.
    fn send(&mut self, game: &mut MazeSite) {
        let mut buffer = [0; MAX_PAYLOAD_LEN];
        while let Some(packet) = game.poll_transmit(clock::now(), &mut buffer) {
            let sites: Vec<u32> = game.receivers(packet.to).iter().map(|site| site.0).collect();
            let to = match packet.to {
                PeerWorldDestination::One(site) => Dest::Site(site.0),
                PeerWorldDestination::All => Dest::All,
                PeerWorldDestination::Near(_) if self.small => Dest::All,
                PeerWorldDestination::Near(_) if self.group.multicast_addr().is_none() => Dest::Sites(&sites),
                PeerWorldDestination::Near(region) => Dest::Region { region, sites: &sites },
            };
            let timestamp = packet.tick.wrapping_mul(RTP_CLOCK / TICKS_PER_SECOND);
            self.group.send(clock::now(), &to, timestamp, &buffer[..packet.len]);
        }
    }

    fn take(&mut self, game: &mut MazeSite, event: MeshEvent) {
        match event {
            // When it came, not when we got round to it: clocks are compared by this.
            MeshEvent::Datagram { at, from, bytes } => game.handle_datagram(at, WorldSiteId(from), &bytes),
            MeshEvent::Joined { member, is_rejoin: again } => self.on_came(game, member, again),
            MeshEvent::Left { site, reason: why } => self.on_went(game, WorldSiteId(site), why),
            MeshEvent::MulticastUnavailable(error) => self.say(&format!("everybody is reached one by one: {error}")),
        }
    }

    fn on_came(&mut self, game: &mut MazeSite, member: MeshMember, again: bool) {
        let site = WorldSiteId(member.site);
        self.say(&format!("{} is here{}", member.name, if again { " again" } else { "" }));
        self.peers.entry(site).or_default().name = member.name;
        game.add_peer(clock::now(), site);
    }

    fn on_went(&mut self, game: &mut MazeSite, site: WorldSiteId, why: DepartureReason) {
        let name = self.peers.get(&site).map_or("somebody", |peer| &peer.name);
        let how = match why {
            DepartureReason::Left => "left",
            DepartureReason::TimedOut => "is not heard any more",
            DepartureReason::Restarted => "starts anew",
        };
        self.say(&format!("{name} {how}"));
        game.remove_peer(site);
    }

    fn say(&self, what: &str) {
        if self.aloud {
            eprintln!("{what}");
        }
    }

    /// Looks how the others do, as long as they are there to be asked, and listens to what is near.
    fn look_around(&mut self, game: &MazeSite) {
        let now = clock::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        self.note_peers(now, game);
        if !self.small && self.group.multicast_addr().is_some() {
            self.group.subscribe_regions(&game.wanted_regions());
        }
    }

    fn note_peers(&mut self, now: Instant, game: &MazeSite) {
        for (site, peer) in &mut self.peers {
            let known = game.world().peer_stats(now, *site);
            if let Some(stats) = known.filter(|stats: &WorldPeerStats| stats.rtt.is_some()) {
                (peer.stats, peer.multicast) = (stats, self.group.is_multicast_received_by(now, site.0));
            }
        }
    }

    fn write(&mut self, game: &mut MazeSite) -> Result<(), Trouble> {
        self.trace.as_mut().map_or(Ok(()), |trace| trace.write(&game.take_trace()))
    }

    /// What it came to so far.
    pub(super) fn report(&mut self, game: &MazeSite) -> Report {
        let now = clock::now();
        self.note_peers(now, game);
        let own = self.group.members().next().map(|member| member.name).unwrap_or_default();
        Report::new(game, own, self.peers.clone(), self.group.stats(), now - self.began)
    }

    /// Says goodbye to all.
    pub(super) fn leave(mut self, game: &mut MazeSite) -> Result<(), Trouble> {
        game.leave();
        self.send(game);
        let written = self.write(game).and_then(|()| self.trace.as_mut().map_or(Ok(()), TraceFile::flush));
        self.group.leave();
        written
    }
}

impl MazeNet for Link {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn exchange(&mut self, game: &mut MazeSite, until: Instant) -> Result<(), Trouble> {
        self.send(game);
        let mut late = 0;
        while late < MOST_LATE
            && let Some(event) = self.group.poll(until)
        {
            self.take(game, event);
            self.send(game);
            late += usize::from(clock::now() >= until);
        }
        self.look_around(game);
        self.write(game)
    }

    fn invitation(&self) -> Option<Invitation> {
        Some(self.invitation.clone())
    }

    fn status(&self) -> String {
        let here = self.group.members().count();
        let now = clock::now();
        let heard = self.group.members().any(|member| self.group.is_multicast_received_by(now, member.site));
        format!("{here} here, {}", if heard { "by multicast" } else { "one by one" })
    }
}
