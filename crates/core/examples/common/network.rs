//! A UDP socket and a clock for the examples. Sessions know addresses as numbers; the table here translates them.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::time::{Instant, TimeDelta};

/// Most addresses in the table: the players' and those of spectators. Datagrams of further senders are dropped.
const MAX_ADDRS: usize = 64;

/// Parses an address such as `127.0.0.1:7000`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text} is no address with a port, such as 127.0.0.1:7000"))
}

/// Socket, clock and address table of a program.
pub(crate) struct Network {
    socket: UdpSocket,
    started: std::time::Instant,
    addrs: Vec<SocketAddr>,
}

impl Network {
    /// Opens a socket on `own`. The addresses in `known` get the numbers 0, 1, ....
    pub(crate) fn open(own: SocketAddr, known: Vec<SocketAddr>) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(own)?;
        Ok(Self { socket, started: std::time::Instant::now(), addrs: known })
    }

    /// Returns the time since the start of the program.
    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + TimeDelta::from_nanos(self.started.elapsed().as_nanos() as i64)
    }

    /// Sends a datagram. Networks lose datagrams, so a send error is one more loss.
    pub(crate) fn send(&self, to: Addr, bytes: &[u8]) {
        if let Some(addr) = self.addrs.get(to.0 as usize) {
            let _ = self.socket.send_to(bytes, addr);
        }
    }

    /// Waits until a datagram arrives or `deadline` comes, and returns the datagram and the number of its sender.
    pub(crate) fn receive<'a>(
        &mut self,
        deadline: Instant,
        buf: &'a mut [u8; MAX_DATAGRAM],
    ) -> std::io::Result<Option<(Addr, &'a [u8])>> {
        let wait = (deadline - self.now()).as_nanos().clamp(0, 10_000_000) as u64;
        if wait == 0 {
            self.socket.set_nonblocking(true)?;
        } else {
            self.socket.set_nonblocking(false)?;
            self.socket.set_read_timeout(Some(Duration::from_nanos(wait)))?;
        }
        match self.socket.recv_from(buf) {
            Ok((len, from)) => Ok(self.number_of(from).map(|addr| (addr, &buf[..len]))),
            // On Windows and Linux, an earlier datagram to a closed port shows as an error of this call.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn number_of(&mut self, addr: SocketAddr) -> Option<Addr> {
        let known = self.addrs.iter().position(|other| *other == addr);
        if known.is_none() && self.addrs.len() < MAX_ADDRS {
            self.addrs.push(addr);
        }
        let number = known.or_else(|| self.addrs.iter().position(|other| *other == addr))?;
        Some(Addr(number as u64))
    }
}
