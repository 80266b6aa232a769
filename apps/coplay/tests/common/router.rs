//! NAT router between a joiner and its host. It can give the joiner another address, as routers at home do.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const READ_TIMEOUT: Duration = Duration::from_millis(20);

/// NAT router on two threads, which stops when it is dropped.
pub(crate) struct NatRouter {
    shared: Arc<RouterState>,
    threads: Vec<JoinHandle<()>>,
}

struct RouterState {
    host: SocketAddr,
    inside: UdpSocket,
    outside: Mutex<Arc<UdpSocket>>,
    joiner_addr: Mutex<Option<SocketAddr>>,
    /// Number of datagrams delivered to the joiner since its address changed.
    delivered: AtomicU64,
    is_stopped: AtomicBool,
}

impl NatRouter {
    /// Starts a router that forwards datagrams between a joiner and this host.
    pub(crate) fn in_front_of(host: SocketAddr) -> Self {
        let shared = Arc::new(RouterState {
            host,
            inside: socket(),
            outside: Mutex::new(Arc::new(socket())),
            joiner_addr: Mutex::new(None),
            delivered: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let (out, back) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || out.forward_loop(RouterState::forward_out)),
            std::thread::spawn(move || back.forward_loop(RouterState::forward_back)),
        ];
        Self { shared, threads }
    }

    /// Returns the address that the joiner dials.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.shared.inside.local_addr().expect("the socket is bound")
    }

    /// Gives the joiner another address towards the host, closes the old one, and resets the number of delivered
    /// datagrams.
    pub(crate) fn move_joiner(&self) {
        *self.shared.outside.lock().unwrap() = Arc::new(socket());
        self.shared.delivered.store(0, Ordering::Relaxed);
    }

    /// Returns the number of datagrams that reached the joiner since its address changed.
    pub(crate) fn delivered(&self) -> u64 {
        self.shared.delivered.load(Ordering::Relaxed)
    }
}

impl Drop for NatRouter {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(READ_TIMEOUT)).expect("the timeout can be set");
    socket
}

impl RouterState {
    fn forward_loop(&self, forward: fn(&Self, &mut [u8])) {
        let mut bytes = vec![0; 65_536];
        while !self.is_stopped.load(Ordering::Relaxed) {
            forward(self, &mut bytes);
        }
    }

    fn outside(&self) -> Arc<UdpSocket> {
        self.outside.lock().unwrap().clone()
    }

    fn forward_out(&self, bytes: &mut [u8]) {
        let Ok((len, from)) = self.inside.recv_from(bytes) else { return };
        *self.joiner_addr.lock().unwrap() = Some(from);
        _ = self.outside().send_to(&bytes[..len], self.host);
    }

    fn forward_back(&self, bytes: &mut [u8]) {
        let outside = self.outside();
        let Ok((len, from)) = outside.recv_from(bytes) else { return };
        let joiner = *self.joiner_addr.lock().unwrap();
        if let Some(joiner) = joiner.filter(|_| from == self.host && Arc::ptr_eq(&outside, &self.outside())) {
            self.delivered.fetch_add(1, Ordering::Relaxed);
            _ = self.inside.send_to(&bytes[..len], joiner);
        }
    }
}
