//! IP multicast in the local network: one packet for many sites.
//!
//! A mesh has one multicast address for all sites and the 16 following ones for [regions](WorldRegion). A site receives
//! the packets of the regions to which it subscribes, and the network filters as much of the rest as it can. No packet
//! leaves the local network (TTL 1).

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coplay::peer_world::WorldRegion;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::seal::{MulticastOpener, MulticastSealer, Opened, RejectedPackets};
use crate::clock;
use crate::peer_addr::IrohAddr;
use crate::peer_addr::PeerAddr;
use crate::seal::RunId;
use crate::transport::Incoming;

/// Default multicast address of a mesh: administratively scoped (RFC 2365).
pub const DEFAULT_MULTICAST_GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 77), 5_700);

/// Number of the multicast channel for all sites.
pub(super) const ALL_CHANNEL: u8 = 0;
/// Number of region channels, which follow the channel for all sites.
const REGION_CHANNELS: u8 = 16;
/// Requested size of the system's receive buffer in bytes, for bursts while the receiving thread is not running.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Size of the packet buffer, in bytes: more than any valid packet.
const MAX_PACKET_LEN: usize = 2_048;
/// Maximum interval at which the receiving thread checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for a loopback packet, which returns at once if multicast works.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of loopback packets sent, since any of them may be lost.
const LOOPBACK_ATTEMPTS: u32 = 4;

/// Multicast settings of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// Multicast address that a founder chooses for all sites; the following 16 serve regions. A joiner ignores this
    /// value and uses the address of the mesh that it joins.
    pub group: SocketAddrV4,
    /// Address of the interface. `None` selects the interface towards the admitting site or, at the founder, of its own
    /// address; as long as no member receives this site by multicast, each new member moves multicast to the interface
    /// towards it.
    pub interface: Option<Ipv4Addr>,
    /// Whether creating or joining the mesh fails if this site cannot use multicast. If `false`, this site then uses
    /// unicast alone. In both cases, members that multicast does not reach get unicast.
    pub is_required: bool,
}

impl Default for MulticastConfig {
    fn default() -> Self {
        Self { group: DEFAULT_MULTICAST_GROUP, interface: None, is_required: false }
    }
}

/// Reason why multicast is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MulticastError {
    /// The address is not a multicast address, is too close to the end of the multicast range, or has port 0.
    InvalidAddress(SocketAddrV4),
    /// The socket cannot be opened on an interface or cannot subscribe to a channel, or a sent packet does not loop
    /// back.
    Unavailable {
        /// Address of the interface.
        interface: Ipv4Addr,
        /// Error of the operating system, or the failed check.
        reason: String,
    },
    /// The mesh has no multicast address, because its founder does not use multicast.
    NotUsedByMesh,
}

impl fmt::Display for MulticastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidAddress(addr) => {
                write!(f, "{addr} is not a multicast address for a maze: use 224.0.0.0 to 239.255.255.239 and a port")
            }
            Self::Unavailable { interface, reason } if interface.is_unspecified() => {
                write!(f, "multicast does not work: {reason}")
            }
            Self::Unavailable { interface, reason } => {
                write!(f, "multicast does not work on interface {interface}: {reason}")
            }
            Self::NotUsedByMesh => write!(f, "the maze was opened without multicast"),
        }
    }
}

impl std::error::Error for MulticastError {}

/// Returns the channel of a region, 1 to 16. Adjacent regions have different channels.
pub(super) fn channel_for_region(region: WorldRegion) -> u8 {
    1 + region.x % 4 + 4 * (region.y % 4)
}

/// Returns the channels of these regions and the channel for all sites; for no region, all channels.
fn channels_for_regions(regions: &[WorldRegion]) -> BTreeSet<u8> {
    match regions {
        [] => (ALL_CHANNEL..=REGION_CHANNELS).collect(),
        _ => regions.iter().map(|region| channel_for_region(*region)).chain([ALL_CHANNEL]).collect(),
    }
}

/// Checks that the addresses of all channels of the mesh are multicast addresses, and that the port is not 0.
fn check_group(group: SocketAddrV4) -> Result<(), MulticastError> {
    let last = u32::from(*group.ip()).checked_add(u32::from(REGION_CHANNELS)).map(Ipv4Addr::from);
    let is_valid = group.ip().is_multicast() && last.is_some_and(|last| last.is_multicast()) && group.port() != 0;
    if is_valid { Ok(()) } else { Err(MulticastError::InvalidAddress(group)) }
}

fn channel_addr(group: SocketAddrV4, channel: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(u32::from(*group.ip()) + u32::from(channel)), group.port())
}

/// Returns the IPv4 address of the interface towards a peer; `None` if the peer has no known IPv4 address or there is
/// no route to it.
pub(super) fn interface_towards(addr: &PeerAddr) -> Option<Ipv4Addr> {
    let addrs = IrohAddr::from_peer_addr(addr)
        .map_or_else(|| addr.0.parse().into_iter().collect(), |iroh_addr| iroh_addr.addrs);
    let v4 = |addr: SocketAddr| match addr.ip().to_canonical() {
        IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, addr.port())),
        IpAddr::V6(_) => None,
    };
    let towards = addrs.into_iter().find_map(v4)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(towards).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// Multicast socket with its receiving thread.
pub(super) struct MulticastSocket {
    group: SocketAddrV4,
    interface: Ipv4Addr,
    sealer: MulticastSealer,
    shared: Arc<MulticastShared>,
    thread: Option<JoinHandle<()>>,
}

struct MulticastShared {
    socket: UdpSocket,
    opener: Mutex<MulticastOpener>,
    /// Channels to which this site subscribes.
    subscribed_channels: Mutex<BTreeSet<u8>>,
    incoming_sender: SyncSender<Incoming>,
    queue_full: AtomicU64,
    is_stopped: AtomicBool,
}

impl MulticastSocket {
    /// Opens a socket that is subscribed to the channel for all sites, checks that a sent packet loops back, and starts
    /// the receiving thread.
    pub(super) fn open(
        group: SocketAddrV4,
        interface: Ipv4Addr,
        (mut sealer, opener): (MulticastSealer, MulticastOpener),
        queue: SyncSender<Incoming>,
    ) -> Result<Self, MulticastError> {
        check_group(group)?;
        let unavailable = |reason: String| MulticastError::Unavailable { interface, reason };
        let socket = open_socket(group, interface).map_err(|error| unavailable(error.to_string()))?;
        let shared = MulticastShared {
            socket,
            opener: Mutex::new(opener),
            subscribed_channels: Mutex::new(BTreeSet::from([ALL_CHANNEL])),
            incoming_sender: queue,
            queue_full: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        };
        shared.check_loopback(group, &mut sealer).map_err(unavailable)?;
        let shared = Arc::new(shared);
        let listener = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("multicast".into()).spawn(move || listener.receive_loop());
        let thread = thread.map_err(|error| unavailable(error.to_string()))?;
        Ok(Self { group, interface, sealer, shared, thread: Some(thread) })
    }

    /// Sends a packet on a channel. Returns its length in bytes, or `None` if it cannot be sent.
    pub(super) fn send(&mut self, channel: u8, timestamp: u32, bytes: &[u8]) -> Option<usize> {
        let packet = self.sealer.seal(channel, timestamp, bytes)?;
        self.shared.socket.send_to(&packet, channel_addr(self.group, channel)).ok()
    }

    /// Subscribes to the channels of these regions (of all regions if `regions` is empty) and to the channel for all
    /// sites, and unsubscribes from other channels.
    pub(super) fn subscribe_regions(&mut self, regions: &[WorldRegion]) -> Result<(), MulticastError> {
        let wanted = channels_for_regions(regions);
        let before = std::mem::replace(&mut *lock(&self.shared.subscribed_channels), wanted.clone());
        for channel in before.difference(&wanted) {
            // An error means that the interface is gone, which ends its subscriptions.
            let _ = self.shared.socket.leave_multicast_v4(channel_addr(self.group, *channel).ip(), &self.interface);
        }
        for channel in wanted.difference(&before) {
            let joined = self.shared.socket.join_multicast_v4(channel_addr(self.group, *channel).ip(), &self.interface);
            joined.map_err(|error| MulticastError::Unavailable {
                interface: self.interface,
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// Moves to another interface, or stays if that fails. Does not check reception: the heartbeats will show whether
    /// the other sites receive this one.
    pub(super) fn switch_interface(&mut self, interface: Ipv4Addr) {
        let channels = lock(&self.shared.subscribed_channels).clone();
        let groups: Vec<Ipv4Addr> = channels.iter().map(|channel| *channel_addr(self.group, *channel).ip()).collect();
        let socket = &self.shared.socket;
        let joined = groups.iter().all(|group| socket.join_multicast_v4(group, &interface).is_ok());
        let moved = joined && SockRef::from(socket).set_multicast_if_v4(&interface).is_ok();
        let left = if moved { std::mem::replace(&mut self.interface, interface) } else { interface };
        // Leaving an address that was not joined has no effect.
        groups.iter().for_each(|group| _ = socket.leave_multicast_v4(group, &left));
    }

    pub(super) fn interface(&self) -> Ipv4Addr {
        self.interface
    }

    /// Accepts packets only from these sites, in these runs.
    pub(super) fn set_sources(&self, sources: impl IntoIterator<Item = (u32, RunId)>) {
        lock(&self.shared.opener).set_sources(sources);
    }

    /// Returns the counts of rejected packets, and of packets for which the queue had no room.
    pub(super) fn reject_counts(&self) -> (RejectedPackets, u64) {
        (lock(&self.shared.opener).rejected(), self.shared.queue_full.load(Ordering::Relaxed))
    }
}

impl Drop for MulticastSocket {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which the panic hook has already reported.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a socket that is subscribed to the channel for all sites, and shares its port with other sockets on this
/// computer.
fn open_socket(group: SocketAddrV4, interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // The system may grant less than requested, which is acceptable.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, group.port()).into())?;
    socket.set_multicast_if_v4(&interface)?;
    socket.set_multicast_ttl_v4(1)?;
    socket.set_multicast_loop_v4(true)?;
    socket.join_multicast_v4(group.ip(), &interface)?;
    Ok(socket.into())
}

impl MulticastShared {
    /// Checks that a sent packet loops back: otherwise a firewall or the interface blocks multicast.
    fn check_loopback(&self, group: SocketAddrV4, sealer: &mut MulticastSealer) -> Result<(), String> {
        for _ in 0..LOOPBACK_ATTEMPTS {
            let packet = sealer.seal(ALL_CHANNEL, 0, &[]).ok_or("cannot encrypt the test packet")?;
            self.socket.send_to(&packet, group).map_err(|error| error.to_string())?;
            if self.is_looped_back(&packet) {
                return Ok(());
            }
        }
        Err("sent packets do not arrive at this computer itself; a firewall may block them".into())
    }

    fn is_looped_back(&self, packet: &[u8]) -> bool {
        let deadline = Instant::now() + LOOPBACK_TIMEOUT;
        let mut bytes = [0; MAX_PACKET_LEN];
        while Instant::now() < deadline {
            let _ = self.socket.set_read_timeout(Some(LOOPBACK_TIMEOUT));
            if self.socket.recv(&mut bytes).is_ok_and(|len| bytes[..len] == *packet) {
                return true;
            }
        }
        false
    }

    fn receive_loop(&self) {
        let _ = self.socket.set_read_timeout(Some(STOP_POLL_INTERVAL));
        let mut bytes = [0; MAX_PACKET_LEN];
        while !self.is_stopped.load(Ordering::Relaxed) {
            match self.socket.recv(&mut bytes) {
                Ok(len) => self.handle_packet(&bytes[..len]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                // The interface is gone, perhaps temporarily.
                Err(_) => std::thread::sleep(STOP_POLL_INTERVAL),
            }
        }
    }

    fn handle_packet(&self, packet: &[u8]) {
        let at = clock::now();
        let channels = lock(&self.subscribed_channels);
        let opened = lock(&self.opener).open(packet, |channel| channels.contains(&channel));
        drop(channels);
        let Opened::Content { site, bytes } = opened else { return };
        if let Err(TrySendError::Full(_)) = self.incoming_sender.try_send(Incoming::Multicast { at, site, bytes }) {
            self.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_regions_use_different_channels() {
        for (x, y) in [(1, 1), (17, 200), (254, 254), (61, 7)] {
            let near = (x - 1..=x + 1).flat_map(|x| (y - 1..=y + 1).map(move |y| WorldRegion { x, y }));
            let channels: BTreeSet<u8> = near.map(channel_for_region).collect();
            assert!(channels.len() == 9 && !channels.contains(&ALL_CHANNEL), "{x} {y}: {channels:?}");
        }
        let all = (0..=255).flat_map(|x| (0..=255).map(move |y| channel_for_region(WorldRegion { x, y })));
        assert!(all.into_iter().all(|channel| (1..=REGION_CHANNELS).contains(&channel)));
    }

    #[test]
    fn no_region_subscribes_to_all_channels() {
        let (one, other) = (WorldRegion { x: 3, y: 4 }, WorldRegion { x: 7, y: 8 });
        assert_eq!(channels_for_regions(&[one]), BTreeSet::from([ALL_CHANNEL, channel_for_region(one)]));
        assert_eq!(channels_for_regions(&[one, other]), channels_for_regions(&[one]), "both share a channel");
        let all = channels_for_regions(&[]);
        assert!(all.len() == 17 && all.contains(&ALL_CHANNEL) && all.contains(&channel_for_region(one)));
    }

    #[test]
    fn invalid_multicast_groups_are_rejected() {
        assert_eq!(check_group(DEFAULT_MULTICAST_GROUP), Ok(()));
        assert_eq!(channel_addr(DEFAULT_MULTICAST_GROUP, REGION_CHANNELS).to_string(), "239.255.77.93:5700");
        for bad in ["192.0.2.1:5700", "239.255.255.240:5700", "255.255.255.255:1", "239.255.77.77:0"] {
            let bad: SocketAddrV4 = bad.parse().unwrap();
            assert_eq!(check_group(bad), Err(MulticastError::InvalidAddress(bad)));
        }
    }

    #[test]
    fn interface_towards_a_peer_is_found() {
        let loopback = Some(Ipv4Addr::LOCALHOST);
        assert_eq!(interface_towards(&PeerAddr("127.0.0.1:7000".into())), loopback);
        assert_eq!(interface_towards(&PeerAddr("[::ffff:127.0.0.1]:7000".into())), loopback);
        assert_eq!(interface_towards(&PeerAddr("[::1]:7000".into())), None);
        assert_eq!(interface_towards(&PeerAddr("nowhere".into())), None);
    }
}
