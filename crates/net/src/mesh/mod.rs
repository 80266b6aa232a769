//! A mesh of sites without a server: each site can send a datagram to all others, to the subscribers of a region, or to
//! single sites.
//!
//! A joiner sends a join request to any member whose ticket it has. Once admitted, it dials all other members, so that
//! there is a secured channel between any two. The founder may leave, and the rest goes on. Every site keeps a member
//! table, and tables are merged.
//!
//! A datagram for many sites is sent once where [multicast](MulticastConfig) gets through, and by unicast where it does
//! not. Each site reports to every other site each second whether it receives that site's multicast; this *heartbeat*
//! also proves that the reporting site is present. So two sites between which multicast is lost fall back to their
//! secured channel about 2 s later, or 4 s later if heartbeats are lost, too; other sites are not affected.
//!
//! A datagram on a secured channel comes from the member at its other end. A multicast packet comes from some member of
//! the mesh, but not necessarily from the site that it states: see `seal`. Member information is therefore never sent
//! by multicast.

mod dial_report_limiter;
mod error;
mod event;
mod gossip;
mod member_table;
mod mesh_join;
mod message;
mod multicast;
mod multicast_probe;
mod seal;
mod stats;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use coplay::codec::MAX_DATAGRAM;
use coplay::peer_world::WorldRegion;
use coplay::time::{Instant, TimeDelta};

use crate::clock;
use crate::impair::{Impairment, LinkEmulator};
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{MAX_NAME_LEN, sanitize};
use crate::peer_addr::PeerAddr;
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, Transport};
use member_table::MemberTable;
use message::{MemberInfo, MeshMessage, MeshOrLobbyMessage, MeshWelcome};
use multicast::{ALL_CHANNEL, MulticastSocket, channel_for_region, interface_towards};
use multicast_probe::MulticastProbe;
use seal::{MeshKey, MulticastOpener, MulticastSealer};

pub use error::MeshError;
pub use event::{DepartureReason, Dest, MeshEvent, MeshMember};
pub use mesh_join::MeshJoinConfig;
pub use multicast::{DEFAULT_MULTICAST_GROUP, MulticastConfig, MulticastError};
pub use seal::RejectedPackets;
pub use stats::{MeshStats, TrafficCount};

/// Maximum number of sites in a mesh. Simultaneous admissions at several members may exceed it slightly; no member is
/// evicted for that.
pub const MAX_MEMBERS: usize = 64;
/// Maximum number of remembered members besides this site, present or not.
const MAX_KNOWN_MEMBERS: usize = 2 * MAX_MEMBERS;
/// Maximum length of the settings that the founder passes to [`Mesh::create`], in bytes.
pub const MAX_SETTINGS_LEN: usize = 1_000;
/// Maximum length of a datagram of [`Mesh::send`], in bytes.
pub const MAX_PAYLOAD_LEN: usize = MAX_DATAGRAM - 1;

/// First byte of a datagram with game data on a secured channel.
const GAME_DATAGRAM: u8 = 0x44;
/// First byte of a heartbeat, whose second byte states whether the sender receives the recipient's multicast.
const HEARTBEAT_DATAGRAM: u8 = 0x45;

/// Interval of the periodic work: timeouts, heartbeats, beacons, gossip and address checks.
const HOUSEKEEPING_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Gap between two runs of the periodic work beyond which this computer counts as having been suspended.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(3);
/// Maximum interval between packets on the multicast channel for all sites, from which the other sites infer whether
/// they receive this site.
const BEACON_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Maximum number of queued events that one call of `poll` handles after its deadline.
const MAX_OVERDUE_RECEIVES: usize = 64;
/// Time limit for the members to acknowledge the goodbye of this site.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_millis(800);

/// A transport and both ends of its queue of events.
pub struct TransportWithIncoming {
    /// Transport for unicast datagrams, which puts its events into the queue.
    pub transport: Arc<dyn Transport>,
    /// Receiving end of the queue.
    pub incoming: Receiver<Incoming>,
    /// Sending end of the same queue, into which the mesh puts multicast packets, too.
    pub incoming_sender: SyncSender<Incoming>,
}

/// Options of this site as a member of a mesh.
#[derive(Clone, Debug, Default)]
pub struct MeshOptions {
    /// Display name of this site, at most [`MAX_NAME_LEN`] bytes.
    pub name: String,
    /// Multicast settings; `None` uses unicast only.
    pub multicast: Option<MulticastConfig>,
    /// Impairment of incoming multicast, on one emulated link per sender; `None` leaves multicast as it is. To impair
    /// unicast, wrap the transport in an [`ImpairedTransport`](crate::impair::ImpairedTransport).
    pub impairment: Option<Impairment>,
}

/// One site of a mesh. It belongs to one thread, which calls [`poll`](Self::poll) continuously.
pub struct Mesh {
    mux: Mux,
    mesh_key: MeshKey,
    settings: Vec<u8>,
    member_table: MemberTable,
    multicast_probe: MulticastProbe,
    /// Multicast address of the mesh, if it uses multicast.
    multicast_group: Option<SocketAddrV4>,
    /// This site's multicast socket, if multicast works here.
    multicast_socket: Option<MulticastSocket>,
    /// Whether the multicast interface follows the route to the other members, because none is configured.
    is_interface_automatic: bool,
    /// Received multicast packets in flight on emulated links; `None` if incoming multicast is not impaired.
    multicast_impairment: Option<LinkEmulator>,
    events: VecDeque<MeshEvent>,
    stats: MeshStats,
    next_housekeeping: Instant,
    last_housekeeping: Instant,
    next_beacon: Instant,
    next_gossip: Instant,
    /// Recipient of the last gossip turn.
    last_gossip_peer: Option<PeerKey>,
    next_addr_check: Instant,
}

impl Mesh {
    /// Creates a mesh with this site as its only member. Fails if the settings are too long, or if multicast is
    /// required and unavailable.
    pub fn create(
        mesh_transport: TransportWithIncoming,
        settings: &[u8],
        options: &MeshOptions,
    ) -> Result<Self, MeshError> {
        if settings.len() > MAX_SETTINGS_LEN {
            return Err(MeshError::SettingsTooLong);
        }
        let (mesh_key, own_key) = (MeshKey::random(), mesh_transport.transport.key());
        let site = mesh_key.site_number(&own_key, 0);
        let mux = Mux::new(mesh_transport.transport, mesh_transport.incoming);
        let addrs = mux.own_addrs();
        let your_info = MemberInfo {
            revision: 1,
            key: own_key,
            site,
            run_id: random_bytes(),
            name: sanitize(&options.name, MAX_NAME_LEN),
            addrs,
        };
        let multicast_group = options.multicast.as_ref().map(|multicast| multicast.group);
        let towards = your_info.addrs.first().cloned();
        let mut mesh = Self::from_welcome(
            mux,
            MeshWelcome { mesh_key, settings: settings.to_vec(), multicast_group, your_info },
            options,
        );
        mesh.open_multicast(options, towards.as_ref(), mesh_transport.incoming_sender)?;
        if mesh.multicast_socket.is_none() {
            mesh.multicast_group = None;
        }
        Ok(mesh)
    }

    fn from_welcome(mux: Mux, welcome: MeshWelcome, options: &MeshOptions) -> Self {
        let now = clock::now();
        Self {
            mux,
            member_table: MemberTable::new(welcome.mesh_key.clone(), welcome.your_info),
            mesh_key: welcome.mesh_key,
            settings: welcome.settings,
            multicast_probe: MulticastProbe::default(),
            multicast_group: welcome.multicast_group,
            multicast_socket: None,
            is_interface_automatic: options.multicast.as_ref().is_some_and(|multicast| multicast.interface.is_none()),
            multicast_impairment: options.impairment.clone().map(|impairment| LinkEmulator::new(now, impairment)),
            events: VecDeque::new(),
            stats: MeshStats::default(),
            next_housekeeping: now,
            last_housekeeping: now,
            next_beacon: now,
            next_gossip: now,
            last_gossip_peer: None,
            next_addr_check: now,
        }
    }

    /// Opens the multicast socket if the options ask for multicast. If that is impossible, fails where multicast is
    /// required, and otherwise queues a [`MeshEvent::MulticastUnavailable`], except in a mesh that does not use
    /// multicast.
    fn open_multicast(
        &mut self,
        options: &MeshOptions,
        towards: Option<&PeerAddr>,
        queue: SyncSender<Incoming>,
    ) -> Result<(), MeshError> {
        let Some(wanted) = &options.multicast else { return Ok(()) };
        let opened = self.multicast_group.ok_or(MulticastError::NotUsedByMesh).and_then(|group| {
            let interface = wanted.interface.or_else(|| towards.and_then(interface_towards));
            let (site, run_id) = (self.member_table.own_info().site, self.member_table.own_info().run_id);
            let keys = (MulticastSealer::new(&self.mesh_key, site, run_id), MulticastOpener::new(&self.mesh_key, site));
            MulticastSocket::open(group, interface.unwrap_or(Ipv4Addr::UNSPECIFIED), keys, queue)
        });
        match opened {
            Ok(socket) => self.multicast_socket = Some(socket),
            Err(error) if wanted.is_required => return Err(MeshError::Multicast(error)),
            Err(MulticastError::NotUsedByMesh) => {}
            Err(error) => self.events.push_back(MeshEvent::MulticastUnavailable(error)),
        }
        Ok(())
    }

    /// Returns this site's number, which is derived from its key and stays the same when the site rejoins.
    pub fn site(&self) -> u32 {
        self.member_table.own_info().site
    }

    /// Returns the settings that the founder chose.
    pub fn settings(&self) -> &[u8] {
        &self.settings
    }

    /// Returns all present members, this site first.
    pub fn members(&self) -> impl Iterator<Item = MeshMember> {
        self.member_table.members()
    }

    /// Returns the multicast address of the mesh, if this site uses multicast.
    pub fn multicast_addr(&self) -> Option<SocketAddrV4> {
        self.multicast_group.filter(|_| self.multicast_socket.is_some())
    }

    /// Returns whether a site receives this one by multicast, according to its last heartbeat, which must be less than
    /// 4 s old.
    pub fn is_multicast_received_by(&self, now: Instant, site: u32) -> bool {
        self.multicast_socket.is_some() && self.multicast_probe.is_received_by(now, site)
    }

    /// Returns the counters of sent, received and rejected datagrams since this site created or joined the mesh.
    pub fn stats(&self) -> MeshStats {
        let (multicast_rejected, multicast_queue_full) =
            self.multicast_socket.as_ref().map(MulticastSocket::reject_counts).unwrap_or_default();
        MeshStats {
            multicast_rejected,
            multicast_queue_full,
            transport_drops: self.mux.transport.drop_counts(),
            ..self.stats
        }
    }

    /// Subscribes to these regions instead of the present ones; an empty slice subscribes to every region. The channel
    /// for all sites stays subscribed. Datagrams of other regions may still arrive: regions share channels, and unicast
    /// does not filter. If subscribing fails, this site stops using multicast and queues
    /// [`MeshEvent::MulticastUnavailable`].
    pub fn subscribe_regions(&mut self, regions: &[WorldRegion]) {
        let subscribed = self.multicast_socket.as_mut().map_or(Ok(()), |socket| socket.subscribe_regions(regions));
        if let Err(error) = subscribed {
            // A site that misses a region must get everything by unicast.
            self.multicast_socket = None;
            self.events.push_back(MeshEvent::MulticastUnavailable(error));
        }
    }

    /// Sends a datagram at once; a datagram longer than [`MAX_PAYLOAD_LEN`] is counted and not sent. `timestamp`, from
    /// a clock of 90,000 ticks per second, only goes into the RTP header of multicast.
    pub fn send(&mut self, now: Instant, to: &Dest<'_>, timestamp: u32, bytes: &[u8]) {
        if bytes.len() > MAX_PAYLOAD_LEN {
            self.stats.too_long += 1;
            return;
        }
        match to {
            Dest::All => {
                let sites: Vec<u32> = self.member_table.present_peers().map(|(_, site)| site).collect();
                self.send_multicast(now, ALL_CHANNEL, timestamp, bytes, &sites);
            }
            Dest::Region { region, sites } => {
                self.send_multicast(now, channel_for_region(*region), timestamp, bytes, sites)
            }
            Dest::Sites(sites) => self.send_unicast(bytes, sites.iter().copied()),
            Dest::Site(site) => self.send_unicast(bytes, [*site]),
        }
    }

    /// Sends by multicast if any present member receives this site's multicast, and by unicast to those of `sites` that
    /// do not receive it.
    fn send_multicast(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8], sites: &[u32]) {
        let any_receiver = self.member_table.present_peers().any(|(_, site)| self.is_multicast_received_by(now, site));
        let is_multicast = any_receiver && self.send_on_channel(now, channel, timestamp, bytes);
        let unreached: Vec<u32> =
            sites.iter().copied().filter(|site| !is_multicast || !self.is_multicast_received_by(now, *site)).collect();
        self.send_unicast(bytes, unreached);
    }

    fn send_on_channel(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8]) -> bool {
        let sent = self.multicast_socket.as_mut().and_then(|socket| socket.send(channel, timestamp, bytes));
        sent.into_iter().for_each(|len| self.stats.multicast_sent.record(len));
        if sent.is_some() && channel == ALL_CHANNEL {
            self.next_beacon = now + BEACON_INTERVAL;
        }
        sent.is_some()
    }

    fn send_unicast(&mut self, bytes: &[u8], sites: impl IntoIterator<Item = u32>) {
        let datagram = [&[GAME_DATAGRAM], bytes].concat();
        for site in sites {
            let key = self.member_table.key_of(site);
            if key.is_some_and(|key| self.mux.transport.send(&key, &datagram)) {
                self.stats.unicast_sent.record(bytes.len());
            }
        }
    }

    /// Receives, sends and does the periodic work until there is an event, which it returns, or until `deadline`; then
    /// it returns `None`.
    pub fn poll(&mut self, deadline: Instant) -> Option<MeshEvent> {
        let mut overdue = 0;
        loop {
            let now = clock::now();
            self.handle_timeouts(now);
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            overdue += usize::from(now >= deadline);
            if overdue > MAX_OVERDUE_RECEIVES {
                return None;
            }
            match self.mux.recv_until(self.next_deadline().min(deadline)) {
                Some(incoming) => self.handle_incoming(incoming),
                None if clock::now() >= deadline => return None,
                None => {}
            }
        }
    }

    /// Returns the time at which `handle_timeouts` must be called next.
    fn next_deadline(&self) -> Instant {
        let in_flight = self.multicast_impairment.as_ref().and_then(LinkEmulator::poll_timeout);
        [self.mux.poll_timeout(), in_flight].into_iter().flatten().fold(self.next_housekeeping, Instant::min)
    }

    /// Leaves the mesh: sends a goodbye to all present members and waits at most 0.8 s for their acknowledgements.
    pub fn leave(mut self) {
        let others: Vec<PeerKey> = self.member_table.present_peers().map(|(key, _)| key).collect();
        self.mux.send_to_all(others, &MeshOrLobbyMessage::Mesh(MeshMessage::Bye));
        self.mux.drain(DRAIN_TIMEOUT);
    }

    /// Delivers impaired multicast that is due, does the periodic work and sends reliable messages.
    fn handle_timeouts(&mut self, now: Instant) {
        while let Some((from, bytes)) =
            self.multicast_impairment.as_mut().and_then(|in_flight| in_flight.poll_transmit(now))
        {
            self.deliver_multicast(now, from, bytes);
        }
        if now >= self.next_housekeeping {
            self.next_housekeeping = now + HOUSEKEEPING_INTERVAL;
            self.housekeep(now);
        }
        self.handle_member_events();
        self.mux.flush(now);
    }

    fn handle_member_events(&mut self) {
        while let Some(event) = self.member_table.poll_event() {
            match &event {
                MeshEvent::Joined { member, .. } => {
                    self.follow_interface(&member.key);
                    self.announce_to_recent_members(&member.key);
                }
                MeshEvent::Left { site, .. } => self.multicast_probe.remove(*site),
                MeshEvent::Datagram { .. } | MeshEvent::MulticastUnavailable(_) => {}
            }
            self.events.push_back(event);
        }
    }

    /// Moves multicast to the interface towards a new member, as long as no member receives this site by multicast. A
    /// configured interface stays.
    fn follow_interface(&mut self, key: &PeerKey) {
        let now = clock::now();
        let is_unreceived =
            !self.member_table.present_peers().any(|(_, site)| self.multicast_probe.is_received_by(now, site));
        let Some(socket) = self.multicast_socket.as_mut().filter(|_| self.is_interface_automatic && is_unreceived)
        else {
            return;
        };
        let interface = self.mux.transport.addr_of(key).as_ref().and_then(interface_towards);
        if let Some(interface) = interface.filter(|interface| *interface != socket.interface()) {
            socket.switch_interface(interface);
        }
    }

    fn handle_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Datagram { from, bytes, .. } if Channel::is_channel_datagram(&bytes) => {
                self.handle_reliable(from, &bytes)
            }
            Incoming::Datagram { at, from, bytes } => self.handle_datagram(at, from, &bytes),
            Incoming::Multicast { at, site, bytes } => self.handle_multicast(at, site, bytes),
            Incoming::Connected { peer, .. } => self.on_connected(peer),
            Incoming::Unreachable { .. } | Incoming::WrongPeer { .. } => {}
        }
    }

    fn handle_datagram(&mut self, at: Instant, key: PeerKey, bytes: &[u8]) {
        match (self.member_table.on_received(at, &key), bytes) {
            (Some(from), [GAME_DATAGRAM, bytes @ ..]) => {
                self.stats.unicast_received.record(bytes.len());
                self.handle_member_events();
                self.events.push_back(MeshEvent::Datagram { at, from, bytes: bytes.to_vec() });
            }
            (Some(from), [HEARTBEAT_DATAGRAM, is_receiving @ (0 | 1)]) => {
                self.multicast_probe.on_heartbeat(at, from, *is_receiving == 1)
            }
            _ => self.stats.unexpected += 1,
        }
    }

    fn handle_multicast(&mut self, at: Instant, site: u32, bytes: Vec<u8>) {
        // The sender was a member when the packet arrived, and may have left meanwhile.
        let Some(key) = self.member_table.key_of(site) else { return };
        match &mut self.multicast_impairment {
            Some(in_flight) => in_flight.send(at, key, &bytes),
            None => self.deliver_multicast(at, key, bytes),
        }
    }

    fn deliver_multicast(&mut self, at: Instant, key: PeerKey, bytes: Vec<u8>) {
        let Some(from) = self.member_table.site_of(&key) else { return };
        self.multicast_probe.on_multicast(at, from);
        // An empty packet only proves reception. A sender that is not present on its secured channel has not joined
        // yet, or has left.
        if !bytes.is_empty() && self.member_table.is_present(&key) {
            self.stats.multicast_received.record(bytes.len());
            self.events.push_back(MeshEvent::Datagram { at, from, bytes });
        }
    }
}
