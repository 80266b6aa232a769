//! A group of sites without a server: each can send a datagram to all others, to those who want to hear of a region, or to one.
//!
//! Whoever knows the ticket of any of them knocks there and is let in; then it calls all others, so that there is a secured channel
//! between any two. Whoever founded the group may leave, and the rest goes on. Everybody keeps a list, and lists are merged.
//!
//! What is for many is sent once where [multicast](MulticastConfig) gets through, and to one after the other where it does not. Each
//! site tells each other one every second whether it hears it by multicast: this *beat* also shows that it is there. So a pair between which
//! multicast is lost falls back to their channel within some seconds, and only that pair.
//!
//! What comes by a channel is from the member that it says. What comes by multicast is from one of the group, and any of
//! them can have made it: see `seal`. So nothing of the list is ever told by multicast.

mod dial_limiter;
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

use coplay::peer_world::WorldRegion;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;

use crate::clock;
use crate::impair::{Impairment, LinkEmulator};
use crate::key::{PeerKey, random_bytes};
use crate::lobby::{MAX_NAME_LEN, sanitize};
use crate::reliable::Channel;
use crate::reliable::Mux;
use crate::transport::{Incoming, PeerAddr, Transport};
use member_table::MemberTable;
use message::{MemberInfo, MeshMessage, MeshOrLobbyMessage, MeshWelcome};
use multicast::{ALL_CHANNEL, MulticastSocket, channel_for_region, interface_towards};
use multicast_probe::MulticastProbe;
use seal::{MeshKey, Opener, Sealer};

pub use error::MeshError;
pub use event::{DepartureReason, Dest, MeshEvent, MeshMember};
pub use mesh_join::MeshJoinConfig;
pub use multicast::{DEFAULT_MULTICAST_GROUP, MulticastConfig, MulticastError};
pub use seal::RejectedPackets;
pub use stats::{MeshStats, Traffic};

/// The most sites of a group. If several let somebody in at the same moment there may be a few more; nobody is put out for that.
pub const MAX_MEMBERS: usize = 64;
/// The longest terms.
pub const MAX_SETTINGS_LEN: usize = 1_000;
/// The longest datagram.
pub const MAX_PAYLOAD_LEN: usize = MAX_DATAGRAM - 1;

/// The first byte of a datagram on a channel: something of the game, or whether the sender hears us by multicast.
const GAME_DATAGRAM: u8 = 0x44;
const HEARTBEAT_DATAGRAM: u8 = 0x45;

/// What is due is looked after this often.
const HOUSEKEEPING_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// Who looked so long ago was asleep.
const HOST_SUSPENDED: TimeDelta = TimeDelta::from_secs(3);
/// Something is sent by multicast at least this often, so that the others know whether they hear it.
const BEACON_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// However late we are, so many things that came are taken at a time.
const MAX_OVERDUE_RECEIVES: usize = 64;
/// The last mail gets so long.
const DRAIN_TIMEOUT: TimeDelta = TimeDelta::from_millis(800);

/// What carries a group.
pub struct MeshTransport {
    /// What carries datagrams between two.
    pub transport: Arc<dyn Transport>,
    /// What comes in.
    pub incoming: Receiver<Incoming>,
    /// The other end of that: what comes by multicast goes there, too.
    pub incoming_sender: SyncSender<Incoming>,
}

/// How to take part.
#[derive(Clone, Debug, Default)]
pub struct MeshOptions {
    /// What to call us.
    pub name: String,
    /// How to reach many at once, if at all.
    pub multicast: Option<MulticastConfig>,
    /// As if what comes by multicast came over worse links, one from each sender. Channels are impaired where they are
    /// [made](crate::impair::ImpairedTransport).
    pub impairment: Option<Impairment>,
}

/// One site of a group. It belongs to one thread, which calls [`poll`](Self::poll_command) all the time.
pub struct Mesh {
    mux: Mux,
    mesh_key: MeshKey,
    settings: Vec<u8>,
    member_table: MemberTable,
    multicast_probe: MulticastProbe,
    /// Where the group meets by multicast, if it does; and our own way to that, if there is one.
    multicast_group: Option<SocketAddrV4>,
    multicast_socket: Option<MulticastSocket>,
    /// The interface is the one that leads to the others.
    is_interface_automatic: bool,
    /// What comes by multicast and is still under way, if that is to be impaired.
    multicast_impairment: Option<LinkEmulator>,
    events: VecDeque<MeshEvent>,
    stats: MeshStats,
    next_housekeeping: Instant,
    last_housekeeping: Instant,
    next_beacon: Instant,
    next_gossip: Instant,
    /// Who was told of all when it was last somebody's turn.
    last_gossip_peer: Option<PeerKey>,
    next_addr_check: Instant,
}

impl Mesh {
    /// Founds a group of our own, with nobody else in it yet.
    pub fn create(wire: MeshTransport, terms: &[u8], manner: &MeshOptions) -> Result<Self, MeshError> {
        if terms.len() > MAX_SETTINGS_LEN {
            return Err(MeshError::SettingsTooLong);
        }
        let (key, me) = (MeshKey::random(), wire.transport.key());
        let site = key.site_number(&me, 0);
        let post = Mux::new(wire.transport, wire.incoming);
        let places = post.own_addrs();
        let you = MemberInfo {
            revision: 1,
            key: me,
            site,
            run_id: random_bytes(),
            name: sanitize(&manner.name, MAX_NAME_LEN),
            addrs: places,
        };
        let multicast = manner.multicast.as_ref().map(|multicast| multicast.group);
        let towards = you.addrs.first().cloned();
        let mut group = Self::from_welcome(
            post,
            MeshWelcome { mesh_key: key, settings: terms.to_vec(), multicast_group: multicast, your_info: you },
            manner,
        );
        group.open_multicast(manner, towards.as_ref(), wire.incoming_sender)?;
        if group.multicast_socket.is_none() {
            group.multicast_group = None;
        }
        Ok(group)
    }

    fn from_welcome(post: Mux, welcome: MeshWelcome, manner: &MeshOptions) -> Self {
        let now = clock::now();
        Self {
            mux: post,
            member_table: MemberTable::new(welcome.mesh_key.clone(), welcome.your_info),
            mesh_key: welcome.mesh_key,
            settings: welcome.settings,
            multicast_probe: MulticastProbe::default(),
            multicast_group: welcome.multicast_group,
            multicast_socket: None,
            is_interface_automatic: manner.multicast.as_ref().is_some_and(|multicast| multicast.interface.is_none()),
            multicast_impairment: manner.impairment.clone().map(|impairment| LinkEmulator::new(now, impairment)),
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

    /// Begins with multicast, as far as it is wanted and works.
    fn open_multicast(
        &mut self,
        manner: &MeshOptions,
        towards: Option<&PeerAddr>,
        queue: SyncSender<Incoming>,
    ) -> Result<(), MeshError> {
        let Some(wanted) = &manner.multicast else { return Ok(()) };
        let opened = self.multicast_group.ok_or(MulticastError::NotUsedByMesh).and_then(|group| {
            let interface = wanted.interface.or_else(|| towards.and_then(interface_towards));
            let (site, run) = (self.member_table.own_info().site, self.member_table.own_info().run_id);
            let keys = (Sealer::new(&self.mesh_key, site, run), Opener::new(&self.mesh_key, site));
            MulticastSocket::open(group, interface.unwrap_or(Ipv4Addr::UNSPECIFIED), keys, queue)
        });
        match opened {
            Ok(channels) => self.multicast_socket = Some(channels),
            Err(error) if wanted.is_required => return Err(MeshError::Multicast(error)),
            Err(MulticastError::NotUsedByMesh) => {}
            Err(error) => self.events.push_back(MeshEvent::MulticastUnavailable(error)),
        }
        Ok(())
    }

    /// Our number.
    pub fn site(&self) -> u32 {
        self.member_table.own_info().site
    }

    /// What was agreed on when the group was founded.
    pub fn settings(&self) -> &[u8] {
        &self.settings
    }

    /// All who are here, ourselves first.
    pub fn members(&self) -> impl Iterator<Item = MeshMember> {
        self.member_table.members()
    }

    /// Where the group meets by multicast, if we take part in that.
    pub fn multicast_addr(&self) -> Option<SocketAddrV4> {
        self.multicast_group.filter(|_| self.multicast_socket.is_some())
    }

    /// Whether a site hears by multicast what we send.
    pub fn is_multicast_received_by(&self, now: Instant, site: u32) -> bool {
        self.multicast_socket.is_some() && self.multicast_probe.is_received_by(now, site)
    }

    /// What was sent and received so far.
    pub fn stats(&self) -> MeshStats {
        let (unfit, crowded_out) =
            self.multicast_socket.as_ref().map(MulticastSocket::reject_counts).unwrap_or_default();
        MeshStats {
            multicast_rejected: unfit,
            multicast_queue_full: crowded_out,
            transport_drops: self.mux.transport.drop_counts(),
            ..self.stats
        }
    }

    /// Listens to what is sent to these regions, beside what is for all; without any, to what is sent to any region. Who hears more than
    /// that must bear it: it may come one by one.
    pub fn subscribe_regions(&mut self, regions: &[WorldRegion]) {
        let listens = self.multicast_socket.as_mut().map_or(Ok(()), |channels| channels.subscribe_regions(regions));
        if let Err(error) = listens {
            // Who misses a region must be sent everything one by one.
            self.multicast_socket = None;
            self.events.push_back(MeshEvent::MulticastUnavailable(error));
        }
    }

    /// Sends a datagram at once. The timestamp is for who looks at RTP headers: a clock of 90,000 ticks a second.
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

    /// By multicast, if anybody hears us there, and one by one to those who do not.
    fn send_multicast(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8], sites: &[u32]) {
        let anybody = self.member_table.present_peers().any(|(_, site)| self.is_multicast_received_by(now, site));
        let cast = anybody && self.send_on_channel(now, channel, timestamp, bytes);
        let deaf: Vec<u32> =
            sites.iter().copied().filter(|site| !cast || !self.is_multicast_received_by(now, *site)).collect();
        self.send_unicast(bytes, deaf);
    }

    fn send_on_channel(&mut self, now: Instant, channel: u8, timestamp: u32, bytes: &[u8]) -> bool {
        let sent = self.multicast_socket.as_mut().and_then(|channels| channels.send(channel, timestamp, bytes));
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

    /// The next thing that happens, if it does before the deadline.
    pub fn poll(&mut self, deadline: Instant) -> Option<MeshEvent> {
        let mut late = 0;
        loop {
            let now = clock::now();
            self.handle_timeouts(now);
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            late += usize::from(now >= deadline);
            if late > MAX_OVERDUE_RECEIVES {
                return None;
            }
            match self.mux.recv_until(self.next_deadline().min(deadline)) {
                Some(incoming) => self.handle_incoming(incoming),
                None if clock::now() >= deadline => return None,
                None => {}
            }
        }
    }

    /// When there is something to do at the latest.
    fn next_deadline(&self) -> Instant {
        let under_way = self.multicast_impairment.as_ref().and_then(LinkEmulator::poll_timeout);
        [self.mux.poll_timeout(), under_way].into_iter().flatten().fold(self.next_housekeeping, Instant::min)
    }

    /// Says goodbye, and sees that the others hear it. Nothing can be done with the group after that.
    pub fn leave(mut self) {
        let others: Vec<PeerKey> = self.member_table.present_peers().map(|(key, _)| key).collect();
        self.mux.send_to_all(others, &MeshOrLobbyMessage::Mesh(MeshMessage::Bye));
        self.mux.drain(DRAIN_TIMEOUT);
    }

    /// Does what is due.
    fn handle_timeouts(&mut self, now: Instant) {
        while let Some((from, bytes)) =
            self.multicast_impairment.as_mut().and_then(|under_way| under_way.poll_transmit(now))
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

    /// As long as nobody hears us by multicast, whoever comes shows on which interface that may change.
    fn follow_interface(&mut self, key: &PeerKey) {
        let now = clock::now();
        let lonely = !self.member_table.present_peers().any(|(_, site)| self.multicast_probe.is_received_by(now, site));
        let Some(channels) = self.multicast_socket.as_mut().filter(|_| self.is_interface_automatic && lonely) else {
            return;
        };
        let interface = self.mux.transport.addr_of(key).as_ref().and_then(interface_towards);
        if let Some(interface) = interface.filter(|interface| *interface != channels.interface()) {
            channels.switch_interface(interface);
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
            (Some(from), [HEARTBEAT_DATAGRAM, hears @ (0 | 1)]) => {
                self.multicast_probe.on_heartbeat(at, from, *hears == 1)
            }
            _ => self.stats.unexpected += 1,
        }
    }

    fn handle_multicast(&mut self, at: Instant, site: u32, bytes: Vec<u8>) {
        // It was in the list when it came; in the meantime it may have left.
        let Some(key) = self.member_table.key_of(site) else { return };
        match &mut self.multicast_impairment {
            Some(under_way) => under_way.send(at, key, &bytes),
            None => self.deliver_multicast(at, key, bytes),
        }
    }

    fn deliver_multicast(&mut self, at: Instant, key: PeerKey, bytes: Vec<u8>) {
        let Some(from) = self.member_table.site_of(&key) else { return };
        self.multicast_probe.on_multicast(at, from);
        // Nothing in it: it is only there to be heard. And who is not here on its channel has not come yet, or has gone.
        if !bytes.is_empty() && self.member_table.is_present(&key) {
            self.stats.multicast_received.record(bytes.len());
            self.events.push_back(MeshEvent::Datagram { at, from, bytes });
        }
    }
}
