//! A real socket under an [`Endpoint`], and the thread that listens to it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::receive::Receiver;
use super::{Channel, Endpoint, Event, MAX_SEALED, Received};
use crate::clock;
use crate::key::{Identity, PeerKey, Secret};
use crate::transport::{Incoming, Place, Refused, Transport};

/// Room for a burst that comes while the thread is not running.
const RECEIVE_BUFFER: usize = 4 << 20;
const SEND_BUFFER: usize = 1 << 20;
/// The thread looks this often whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// Channels that are closed are forgotten here, too, this often.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// Secured UDP on one socket.
#[derive(Debug)]
pub struct Udp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    key: PeerKey,
    endpoint: Mutex<Endpoint>,
    /// The newest channel of each peer: what is sent need not wait for what is received.
    channels: RwLock<BTreeMap<PeerKey, Arc<Channel>>>,
    queue: SyncSender<Incoming>,
    /// What was not taken: by us, by the system, and for want of room in the queue. Whoever asks waits for nobody.
    refused: AtomicU64,
    dropped: AtomicU64,
    crowded_out: AtomicU64,
    over: AtomicBool,
}

impl Udp {
    /// Listens at an address; port 0 takes any that is free. What comes goes into `queue`; what finds no room there is lost.
    pub fn listen(
        addr: SocketAddr,
        identity: Identity,
        secret: Secret,
        queue: SyncSender<Incoming>,
    ) -> io::Result<Self> {
        let socket = open(addr)?;
        let shared = Arc::new(Shared {
            socket,
            key: identity.key(),
            endpoint: Mutex::new(Endpoint::new(identity, secret)),
            channels: RwLock::default(),
            queue,
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            crowded_out: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let listener = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("net".into()).spawn(move || listener.listen())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The address that we listen at.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

fn open(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        // Where the system allows it, both families arrive at one socket.
        let _ = socket.set_only_v6(false);
    }
    // A system may give less than asked for; that is its business.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    let _ = socket.set_send_buffer_size(SEND_BUFFER);
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

impl Shared {
    fn listen(&self) {
        let mut receiver = Receiver::new(&self.socket);
        let mut next_look = clock::now();
        let mut next_forget = next_look + FORGET_EVERY.into();
        while !self.over.load(Ordering::Relaxed) {
            let now = clock::now();
            if now >= next_look {
                let wait = self.housekeep();
                next_look = now + wait.into();
                let _ = self.socket.set_read_timeout(Some(wait));
            }
            if now >= next_forget {
                next_forget = now + FORGET_EVERY.into();
                self.forget_closed();
            }
            // An error can be told for something sent before, to an address where nobody listens: of no interest here.
            if let Ok((from, bytes)) = receiver.receive(&self.socket) {
                self.take(from, bytes);
                self.dropped.store(receiver.dropped(), Ordering::Relaxed);
            }
        }
    }

    /// Sends what is due, tells what happened, and says how long nothing else is.
    fn housekeep(&self) -> Duration {
        let now = clock::now();
        let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.handle_timeout(now);
        self.flush(&mut endpoint);
        let due = endpoint.poll_timeout().map_or(LOOK, |due| (due - now).to_duration());
        due.clamp(LEAST_WAIT, LOOK)
    }

    fn take(&self, from: SocketAddr, bytes: &[u8]) {
        let now = clock::now();
        let mut out = [0; MAX_SEALED];
        let mut endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        match endpoint.handle_datagram(now, from, bytes, &mut out) {
            Received::Data { from, len } => self.give(Incoming::Datagram { at: now, from, bytes: out[..len].to_vec() }),
            Received::Nothing => {
                self.flush(&mut endpoint);
                self.refused.store(endpoint.counts().total(), Ordering::Relaxed);
            }
        }
    }

    fn flush(&self, endpoint: &mut Endpoint) {
        while let Some((to, bytes)) = endpoint.poll_transmit() {
            // What cannot be sent is lost, as it may be later on its way.
            let _ = self.socket.send_to(&bytes, to);
        }
        while let Some(event) = endpoint.poll_event() {
            self.give(match event {
                Event::Up { peer, addr, called } => {
                    self.note_channel(endpoint, peer);
                    Incoming::Up { peer, called: called.then(|| place(addr)) }
                }
                Event::Unanswered { addr, refused } => Incoming::Unanswered { place: place(addr), refused },
                Event::Stranger { addr, .. } => Incoming::Stranger { place: place(addr) },
            });
        }
    }

    fn note_channel(&self, endpoint: &Endpoint, peer: PeerKey) {
        if let Some(channel) = endpoint.channel(&peer) {
            let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
            channels.insert(peer, Arc::clone(channel));
        }
    }

    fn forget_closed(&self) {
        let endpoint = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|peer, _| endpoint.channel(peer).is_some());
    }

    fn give(&self, incoming: Incoming) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(incoming) {
            self.crowded_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn channel(&self, peer: &PeerKey) -> Option<Arc<Channel>> {
        self.channels.read().unwrap_or_else(PoisonError::into_inner).get(peer).cloned()
    }
}

fn place(addr: SocketAddr) -> Place {
    Place(SocketAddr::new(addr.ip().to_canonical(), addr.port()).to_string())
}

impl Transport for Udp {
    fn key(&self) -> PeerKey {
        self.shared.key
    }

    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let Some(channel) = self.shared.channel(to) else { return false };
        let mut out = [0; MAX_SEALED];
        let sent = channel.seal(bytes, &mut out).map(|len| self.shared.socket.send_to(&out[..len], channel.addr()));
        sent.is_some_and(|sent| sent.is_ok())
    }

    fn call(&self, place: &Place, expect: Option<PeerKey>) {
        let Ok(addr) = place.0.parse::<SocketAddr>() else { return };
        let v6 = self.local_addr().is_ok_and(|own| own.is_ipv6());
        // A socket of both families knows the older one by its place in the newer.
        let addr = match addr.ip() {
            IpAddr::V4(ip) if v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
            _ => addr,
        };
        let mut endpoint = self.shared.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        endpoint.call(clock::now(), addr, expect);
        self.shared.flush(&mut endpoint);
    }

    fn hang_up(&self, peer: &PeerKey) {
        self.shared.endpoint.lock().unwrap_or_else(PoisonError::into_inner).hang_up(peer);
    }

    fn place_of(&self, peer: &PeerKey) -> Option<Place> {
        self.shared.channel(peer).map(|channel| place(channel.addr()))
    }

    fn own_places(&self) -> Vec<Place> {
        let Ok(addr) = self.local_addr() else { return Vec::new() };
        if !addr.ip().is_unspecified() {
            return vec![place(addr)];
        }
        let outward = outward_ips(addr);
        outward.into_iter().map(|ip| place(SocketAddr::new(ip, addr.port()))).collect()
    }

    fn refused(&self) -> Refused {
        let Shared { refused, dropped, crowded_out, .. } = &*self.shared;
        let [by_us, by_system, crowded_out] =
            [refused, dropped, crowded_out].map(|count| count.load(Ordering::Relaxed));
        Refused { by_us, by_system, crowded_out }
    }
}

/// Our own addresses on the ways that lead out: what the system would send from. Nothing is sent.
fn outward_ips(local: SocketAddr) -> Vec<IpAddr> {
    let ask = |bind: &str, to: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|addr| addr.ip())
    };
    let v4 = ask("0.0.0.0:0", "192.0.2.1:9");
    let v6 = if local.is_ipv6() { ask("[::]:0", "[2001:db8::1]:9") } else { None };
    let found: Vec<IpAddr> = v4.into_iter().chain(v6).filter(|ip| !ip.is_unspecified()).collect();
    if found.is_empty() { vec![IpAddr::from([127, 0, 0, 1])] } else { found }
}

/// How many datagrams the system dropped at this port because our buffer was full.
#[cfg(target_os = "linux")]
pub(crate) fn dropped_by_system(addr: SocketAddr) -> Option<u64> {
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
pub(crate) fn dropped_by_system(_: SocketAddr) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn closed_channels_are_forgotten_and_open_ones_are_not() {
        let listen = || {
            let (queue, incoming) = sync_channel(16);
            let addr = SocketAddr::from(([127, 0, 0, 1], 0));
            let udp = Udp::listen(addr, Identity::random(), Secret::from_text("tennis"), queue).expect("a free port");
            (udp, incoming)
        };
        let ((one, incoming), (other, _incoming)) = (listen(), listen());
        one.call(&other.own_places().remove(0), None);
        let up = incoming.recv_timeout(Duration::from_secs(30));
        assert!(matches!(up, Ok(Incoming::Up { .. })), "{up:?}");
        let (open, closed) = (other.key(), PeerKey([7; 32]));
        let channel = one.shared.channel(&open).expect("it is up");
        one.shared.channels.write().unwrap().insert(closed, channel);
        one.shared.forget_closed();
        assert!(one.shared.channel(&open).is_some() && one.shared.channel(&closed).is_none());
    }
}
