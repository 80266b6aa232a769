//! A real socket for an [`Endpoint`], with its receiving thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::receive::DatagramReceiver;
use super::{Endpoint, EndpointEvent, MAX_SEALED, Received, SecureChannel};
use crate::clock;
use crate::key::{Identity, PeerKey, Secret};
use crate::peer_addr::PeerAddr;
use crate::transport::{DropCounts, Incoming, Transport};

/// Requested size of the system's receive buffer in bytes, for bursts while the receiving thread is not running.
const RECEIVE_BUFFER: usize = 4 << 20;
const SEND_BUFFER: usize = 1 << 20;
/// Maximum interval at which the receiving thread checks whether to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MIN_WAIT: Duration = Duration::from_millis(1);
/// Interval at which closed channels are removed from [`UdpShared::channels`].
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Transport over secured UDP: one socket with a receiving thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct UdpTransport {
    shared: Arc<UdpShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct UdpShared {
    socket: UdpSocket,
    key: PeerKey,
    endpoint: Mutex<Endpoint>,
    /// Newest channel of each peer, copied from the endpoint so that a sending thread need not wait for the receiving
    /// thread.
    channels: RwLock<BTreeMap<PeerKey, Arc<SecureChannel>>>,
    incoming_sender: SyncSender<Incoming>,
    /// Number of datagrams that the endpoint rejected, copied from it to be readable without a lock.
    rejected: AtomicU64,
    /// Number of datagrams that the system dropped for a full receive buffer.
    kernel_dropped: AtomicU64,
    /// Number of datagrams and events for which the queue had no room.
    queue_full: AtomicU64,
    is_stopped: AtomicBool,
}

impl UdpTransport {
    /// Listens at an address; port 0 selects any free port. Events go into `queue`; events for which it has no room are
    /// dropped.
    pub fn listen(
        addr: SocketAddr,
        identity: Identity,
        secret: Secret,
        queue: SyncSender<Incoming>,
    ) -> io::Result<Self> {
        let socket = open_socket(addr)?;
        let shared = Arc::new(UdpShared {
            socket,
            key: identity.key(),
            endpoint: Mutex::new(Endpoint::new(identity, secret)),
            channels: RwLock::default(),
            incoming_sender: queue,
            rejected: AtomicU64::new(0),
            kernel_dropped: AtomicU64::new(0),
            queue_full: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let listener = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("net".into()).spawn(move || listener.receive_loop())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the address to which the socket is bound, with the port that the system selected.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }
}

impl Drop for UdpTransport {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which the panic hook has already reported.
            let _ = thread.join();
        }
    }
}

fn open_socket(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        // Where the system allows it, one socket serves both address families.
        let _ = socket.set_only_v6(false);
    }
    // The system may grant less than requested, which is acceptable.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    let _ = socket.set_send_buffer_size(SEND_BUFFER);
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

impl UdpShared {
    fn receive_loop(&self) {
        let mut receiver = DatagramReceiver::new(&self.socket);
        let mut next_housekeeping = clock::now();
        let mut next_sweep = next_housekeeping + SWEEP_INTERVAL.into();
        while !self.is_stopped.load(Ordering::Relaxed) {
            let now = clock::now();
            if now >= next_housekeeping {
                let wait = self.housekeep();
                next_housekeeping = now + wait.into();
                let _ = self.socket.set_read_timeout(Some(wait));
            }
            if now >= next_sweep {
                next_sweep = now + SWEEP_INTERVAL.into();
                self.remove_closed_channels();
            }
            // An error is ignored: it may concern an earlier datagram to an address without a listener.
            if let Ok((from, bytes)) = receiver.receive(&self.socket) {
                self.handle_datagram(from, bytes);
                self.kernel_dropped.store(receiver.dropped(), Ordering::Relaxed);
            }
        }
    }

    /// Sends due handshake datagrams and queues events. Returns the time until the next call, 1 to 100 ms.
    fn housekeep(&self) -> Duration {
        let now = clock::now();
        let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.handle_timeout(now);
        self.flush(&mut endpoint);
        let due = endpoint.poll_timeout().map_or(STOP_POLL_INTERVAL, |due| (due - now).to_duration());
        due.clamp(MIN_WAIT, STOP_POLL_INTERVAL)
    }

    fn handle_datagram(&self, from: SocketAddr, bytes: &[u8]) {
        let now = clock::now();
        let mut out = [0; MAX_SEALED];
        let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        match endpoint.handle_datagram(now, from, bytes, &mut out) {
            Received::Data { from, len } => {
                self.enqueue(Incoming::Datagram { at: now, from, bytes: out[..len].to_vec() })
            }
            Received::Nothing => {
                self.flush(&mut endpoint);
                self.rejected.store(endpoint.reject_counts().total(), Ordering::Relaxed);
            }
        }
    }

    fn flush(&self, endpoint: &mut Endpoint) {
        while let Some((to, bytes)) = endpoint.poll_transmit() {
            // A datagram that cannot be sent counts as lost.
            let _ = self.socket.send_to(&bytes, to);
        }
        while let Some(event) = endpoint.poll_event() {
            self.enqueue(match event {
                EndpointEvent::Connected { peer, addr, was_dialed } => {
                    self.publish_channel(endpoint, peer);
                    Incoming::Connected { peer, dialed: was_dialed.then(|| to_peer_addr(addr)) }
                }
                EndpointEvent::Unreachable { addr, wrong_secret } => {
                    Incoming::Unreachable { addr: to_peer_addr(addr), wrong_secret }
                }
                EndpointEvent::WrongPeer { addr, .. } => Incoming::WrongPeer { addr: to_peer_addr(addr) },
            });
        }
    }

    fn publish_channel(&self, endpoint: &Endpoint, peer: PeerKey) {
        if let Some(channel) = endpoint.channel(&peer) {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            channels.insert(peer, Arc::clone(channel));
        }
    }

    fn remove_closed_channels(&self) {
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|peer, _| endpoint.channel(peer).is_some());
    }

    fn enqueue(&self, incoming: Incoming) {
        if let Err(TrySendError::Full(_)) = self.incoming_sender.try_send(incoming) {
            self.queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn channel(&self, peer: &PeerKey) -> Option<Arc<SecureChannel>> {
        self.channels.read().unwrap_or_else(PoisonError::into_inner).get(peer).cloned()
    }
}

fn to_peer_addr(addr: SocketAddr) -> PeerAddr {
    PeerAddr(SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string())
}

impl Transport for UdpTransport {
    fn key(&self) -> PeerKey {
        self.shared.key
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let Some(channel) = self.shared.channel(to) else { return false };
        let mut out = [0; MAX_SEALED];
        let sent = channel.seal(bytes, &mut out).map(|len| self.shared.socket.send_to(&out[..len], channel.addr()));
        sent.is_some_and(|sent| sent.is_ok())
    }

    fn dial(&self, peer_addr: &PeerAddr, expect: Option<PeerKey>) {
        let Ok(addr) = peer_addr.0.parse::<SocketAddr>() else { return };
        let is_ipv6 = self.local_addr().is_ok_and(|own| own.is_ipv6());
        // A dual-stack socket needs IPv4 addresses in their IPv6-mapped form.
        let addr = match addr.ip() {
            IpAddr::V4(ip) if is_ipv6 => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
            _ => addr,
        };
        let mut endpoint = self.shared.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.dial(clock::now(), addr, expect);
        self.shared.flush(&mut endpoint);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.shared.endpoint.lock().unwrap_or_else(PoisonError::into_inner).cancel_dial(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        self.shared.channel(peer).map(|channel| to_peer_addr(channel.addr()))
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        let Ok(addr) = self.local_addr() else { return Vec::new() };
        if !addr.ip().is_unspecified() {
            return vec![to_peer_addr(addr)];
        }
        let outward = outward_ips(addr);
        outward.into_iter().map(|ip| to_peer_addr(SocketAddr::new(ip, addr.port()))).collect()
    }

    fn drop_counts(&self) -> DropCounts {
        let UdpShared { rejected, kernel_dropped, queue_full, .. } = &*self.shared;
        let [rejected, kernel_dropped, queue_full] =
            [rejected, kernel_dropped, queue_full].map(|count| count.load(Ordering::Relaxed));
        DropCounts { rejected, kernel_dropped, queue_full }
    }
}

/// Returns the addresses from which the system would send to the Internet: IPv4, and IPv6 if `local` is an IPv6
/// address. Returns 127.0.0.1 if there is no such route. Sends nothing.
fn outward_ips(local: SocketAddr) -> Vec<IpAddr> {
    let source_ip = |bind: &str, to: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|addr| addr.ip())
    };
    let v4 = source_ip("0.0.0.0:0", "192.0.2.1:9");
    let v6 = if local.is_ipv6() { source_ip("[::]:0", "[2001:db8::1]:9") } else { None };
    let found: Vec<IpAddr> = v4.into_iter().chain(v6).filter(|ip| !ip.is_unspecified()).collect();
    if found.is_empty() { vec![IpAddr::from([127, 0, 0, 1])] } else { found }
}

/// Returns the number of datagrams that the system dropped for a full receive buffer, over all open sockets of this IP
/// family at this port; `None` if there is no such socket or the system does not report drops.
#[cfg(target_os = "linux")]
pub(crate) fn kernel_drop_count(addr: SocketAddr) -> Option<u64> {
    let table = if addr.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
    let port = format!(":{:04X}", addr.port());
    let table = std::fs::read_to_string(table).ok()?;
    let rows = table.lines().skip(1).filter(|row| {
        let local = row.split_whitespace().nth(1);
        local.is_some_and(|local| local.ends_with(&port))
    });
    rows.filter_map(|row| row.split_whitespace().last()?.parse::<u64>().ok()).reduce(|all, one| all + one)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn kernel_drop_count(_: SocketAddr) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn closed_channels_are_removed_and_open_ones_kept() {
        let listen = || {
            let (queue, incoming) = sync_channel(16);
            let addr = SocketAddr::from(([127, 0, 0, 1], 0));
            let udp = UdpTransport::listen(addr, Identity::random(), Secret::from_text("tennis"), queue)
                .expect("a free port");
            (udp, incoming)
        };
        let ((one, incoming), (other, _incoming)) = (listen(), listen());
        one.dial(&other.own_addrs().remove(0), None);
        let event = incoming.recv_timeout(Duration::from_secs(30));
        assert!(matches!(event, Ok(Incoming::Connected { .. })), "{event:?}");
        let (open, closed) = (other.key(), PeerKey([7; 32]));
        let channel = one.shared.channel(&open).expect("the channel is open");
        one.shared.channels.write().unwrap().insert(closed, channel);
        one.shared.remove_closed_channels();
        assert!(one.shared.channel(&open).is_some() && one.shared.channel(&closed).is_none());
    }
}
