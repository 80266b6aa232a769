//! One datagram for many: IP multicast in the local network.
//!
//! A group has an address for what concerns all, and the 16 after it for [regions](SendToRegion): who listens to a region hears what is sent there,
//! and of the rest the network spares it as much as it can. Nothing leaves the local network.

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

use super::message::RunId;
use super::seal::{Opened, Opener, RejectedPackets, Sealer};
use crate::clock;
use crate::iroh::IrohAddr;
use crate::transport::{Incoming, PeerAddr};

/// Where a group meets if nothing else is said: an address for use inside of an organisation (RFC 2365).
pub const DEFAULT_MULTICAST_GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 255, 77, 77), 5_700);

/// The channel that concerns all.
pub(super) const ALL_CHANNEL: u8 = 0;
/// Channels for regions, after that.
const REGION_CHANNELS: u8 = 16;
/// Room for a burst that comes while the thread is not running.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Longer than anything that makes sense.
const MAX_PACKET_LEN: usize = 2_048;
/// The thread looks this often whether it is to end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// What we send ourselves comes back at once, if multicast works at all. It is sent more than once, because anything may be lost.
const LOOPBACK_TIMEOUT: Duration = Duration::from_millis(500);
const LOOPBACK_ATTEMPTS: u32 = 4;

/// How a site uses multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MulticastConfig {
    /// The first address of the group. Who joins a group uses that group's.
    pub group: SocketAddrV4,
    /// The interface, by its address; without one it is that which leads to whom we join, or to who comes first.
    pub interface: Option<Ipv4Addr>,
    /// Without it there is no group; otherwise everybody is reached one by one where it does not work.
    pub is_required: bool,
}

impl Default for MulticastConfig {
    fn default() -> Self {
        Self { group: DEFAULT_MULTICAST_GROUP, interface: None, is_required: false }
    }
}

/// Why there is no multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MulticastError {
    /// It is not an address for multicast, or too near to the end of those.
    InvalidAddress(SocketAddrV4),
    /// It does not work on an interface.
    Unavailable {
        /// The address of the interface.
        interface: Ipv4Addr,
        /// What the system says, or what was seen.
        reason: String,
    },
    /// Those who are in the group already do not use it.
    NotUsedByMesh,
}

impl fmt::Display for MulticastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidAddress(addr) => {
                write!(f, "{addr} is no place for multicast: that is from 224.0.0.0 to 239.255.255.193, and a port")
            }
            Self::Unavailable { interface, reason: why } if interface.is_unspecified() => {
                write!(f, "multicast does not work: {why}")
            }
            Self::Unavailable { interface, reason: why } => {
                write!(f, "multicast does not work on the interface of {interface}: {why}")
            }
            Self::NotUsedByMesh => write!(f, "those who are there do not use multicast"),
        }
    }
}

impl std::error::Error for MulticastError {}

/// The channel of a region. Regions near each other have different ones.
pub(super) fn channel_for_region(region: WorldRegion) -> u8 {
    1 + region.x % 4 + 4 * (region.y % 4)
}

/// The channels of these regions, beside what concerns all. Who is nowhere looks at everything, and listens to all of them.
fn channels_for_regions(regions: &[WorldRegion]) -> BTreeSet<u8> {
    match regions {
        [] => (ALL_CHANNEL..=REGION_CHANNELS).collect(),
        _ => regions.iter().map(|region| channel_for_region(*region)).chain([ALL_CHANNEL]).collect(),
    }
}

/// Whether all channels of a group are addresses for multicast.
fn check_group(group: SocketAddrV4) -> Result<(), MulticastError> {
    let last = u32::from(*group.ip()).checked_add(u32::from(REGION_CHANNELS)).map(Ipv4Addr::from);
    let sound = group.ip().is_multicast() && last.is_some_and(|last| last.is_multicast()) && group.port() != 0;
    if sound { Ok(()) } else { Err(MulticastError::InvalidAddress(group)) }
}

fn channel_addr(group: SocketAddrV4, channel: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(u32::from(*group.ip()) + u32::from(channel)), group.port())
}

/// The address of the interface that leads to a place; none if that is not known, or not of this family.
pub(super) fn interface_towards(place: &PeerAddr) -> Option<Ipv4Addr> {
    let addrs =
        IrohAddr::from_peer_addr(place).map_or_else(|| place.0.parse().into_iter().collect(), |home| home.addrs);
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

/// The way to many at once, and the thread that listens to it.
pub(super) struct MulticastSocket {
    group: SocketAddrV4,
    interface: Ipv4Addr,
    sealer: Sealer,
    shared: Arc<MulticastShared>,
    thread: Option<JoinHandle<()>>,
}

struct MulticastShared {
    socket: UdpSocket,
    opener: Mutex<Opener>,
    /// The channels that we listen to.
    subscribed_channels: Mutex<BTreeSet<u8>>,
    incoming_sender: SyncSender<Incoming>,
    queue_full: AtomicU64,
    is_stopped: AtomicBool,
}

impl MulticastSocket {
    /// Listens to what concerns all, after proving that what is sent there comes back.
    pub(super) fn open(
        group: SocketAddrV4,
        interface: Ipv4Addr,
        (mut sealer, opener): (Sealer, Opener),
        queue: SyncSender<Incoming>,
    ) -> Result<Self, MulticastError> {
        check_group(group)?;
        let broken = |why: String| MulticastError::Unavailable { interface, reason: why };
        let socket = open_socket(group, interface).map_err(|error| broken(error.to_string()))?;
        let shared = MulticastShared {
            socket,
            opener: Mutex::new(opener),
            subscribed_channels: Mutex::new(BTreeSet::from([ALL_CHANNEL])),
            incoming_sender: queue,
            queue_full: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        };
        shared.check_loopback(group, &mut sealer).map_err(broken)?;
        let shared = Arc::new(shared);
        let listener = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("multicast".into()).spawn(move || listener.receive_loop());
        let thread = thread.map_err(|error| broken(error.to_string()))?;
        Ok(Self { group, interface, sealer, shared, thread: Some(thread) })
    }

    /// Sends something to all who listen to a channel; says how many bytes that took, or nothing if it cannot be sent.
    pub(super) fn send(&mut self, channel: u8, timestamp: u32, bytes: &[u8]) -> Option<usize> {
        let packet = self.sealer.seal(channel, timestamp, bytes)?;
        self.shared.socket.send_to(&packet, channel_addr(self.group, channel)).ok()
    }

    /// Listens to these regions, beside what concerns all, and to no others.
    pub(super) fn subscribe_regions(&mut self, regions: &[WorldRegion]) -> Result<(), MulticastError> {
        let wanted = channels_for_regions(regions);
        let before = std::mem::replace(&mut *lock(&self.shared.subscribed_channels), wanted.clone());
        for channel in before.difference(&wanted) {
            // An interface that is gone has left by itself.
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

    /// Moves to another interface, if that can be. It takes no time, and whether anybody is heard there will be seen.
    pub(super) fn switch_interface(&mut self, interface: Ipv4Addr) {
        let channels = lock(&self.shared.subscribed_channels).clone();
        let groups: Vec<Ipv4Addr> = channels.iter().map(|channel| *channel_addr(self.group, *channel).ip()).collect();
        let socket = &self.shared.socket;
        let joined = groups.iter().all(|group| socket.join_multicast_v4(group, &interface).is_ok());
        let moved = joined && SockRef::from(socket).set_multicast_if_v4(&interface).is_ok();
        let left = if moved { std::mem::replace(&mut self.interface, interface) } else { interface };
        // Of those that were not joined there is nothing to leave.
        groups.iter().for_each(|group| _ = socket.leave_multicast_v4(group, &left));
    }

    /// The address of our interface.
    pub(super) fn interface(&self) -> Ipv4Addr {
        self.interface
    }

    /// What comes is taken from these sites, in these runs of theirs, and no others.
    pub(super) fn set_sources(&self, sources: impl IntoIterator<Item = (u32, RunId)>) {
        lock(&self.shared.opener).set_sources(sources);
    }

    /// What was not taken, and for how much there was no room.
    pub(super) fn reject_counts(&self) -> (RejectedPackets, u64) {
        (lock(&self.shared.opener).rejected(), self.shared.queue_full.load(Ordering::Relaxed))
    }
}

impl Drop for MulticastSocket {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket for all channels of a group, that shares its port with others on this computer.
fn open_socket(group: SocketAddrV4, interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // A system may give less than asked for; that is its business.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, group.port()).into())?;
    socket.set_multicast_if_v4(&interface)?;
    socket.set_multicast_ttl_v4(1)?;
    socket.set_multicast_loop_v4(true)?;
    socket.join_multicast_v4(group.ip(), &interface)?;
    Ok(socket.into())
}

impl MulticastShared {
    /// What we send must come back to ourselves: otherwise a firewall, or the interface itself, lets nothing through.
    fn check_loopback(&self, group: SocketAddrV4, sealer: &mut Sealer) -> Result<(), String> {
        for _ in 0..LOOPBACK_ATTEMPTS {
            let packet = sealer.seal(ALL_CHANNEL, 0, &[]).ok_or("it cannot be sealed")?;
            self.socket.send_to(&packet, group).map_err(|error| error.to_string())?;
            if self.is_looped_back(&packet) {
                return Ok(());
            }
        }
        Err("what is sent does not come back, perhaps because of a firewall".into())
    }

    fn is_looped_back(&self, packet: &[u8]) -> bool {
        let until = Instant::now() + LOOPBACK_TIMEOUT;
        let mut bytes = [0; MAX_PACKET_LEN];
        while Instant::now() < until {
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
                // The interface is gone, perhaps for a while.
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
        let (here, there) = (WorldRegion { x: 3, y: 4 }, WorldRegion { x: 7, y: 8 });
        assert_eq!(channels_for_regions(&[here]), BTreeSet::from([ALL_CHANNEL, channel_for_region(here)]));
        assert_eq!(channels_for_regions(&[here, there]), channels_for_regions(&[here]), "they share one");
        let all = channels_for_regions(&[]);
        assert!(all.len() == 17 && all.contains(&ALL_CHANNEL) && all.contains(&channel_for_region(here)));
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
