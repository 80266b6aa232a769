//! Receives datagrams from a socket, with the count of datagrams that the system dropped.

use std::io;
use std::net::{SocketAddr, UdpSocket};

#[cfg(target_os = "linux")]
pub(super) use linux::DatagramReceiver;
#[cfg(not(target_os = "linux"))]
pub(super) use other::DatagramReceiver;

/// Size of the buffer for one datagram, in bytes: one more than the longest valid datagram, so that a longer one is
/// recognised although the system truncates it.
const MAX_RECEIVE_LEN: usize = super::MAX_SEALED + 1;

/// Sender and content of a datagram.
type ReceiveResult<'a> = io::Result<(SocketAddr, &'a [u8])>;

#[cfg(target_os = "linux")]
mod linux {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};

    use super::*;

    /// Receiver of datagrams that gets the system's drop count with them, as ancillary data.
    pub(crate) struct DatagramReceiver {
        bytes: Box<[u8; MAX_RECEIVE_LEN]>,
        control_buf: Vec<u8>,
        /// Drop count that the system reported last; it wraps at 32 bits.
        last_overflow_count: u32,
        /// Number of datagrams that the system dropped since the socket was created, as far as it has reported them.
        dropped: u64,
    }

    impl DatagramReceiver {
        pub(crate) fn new(socket: &UdpSocket) -> Self {
            // Without this option the drop count stays 0, and nothing else changes.
            let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
            Self {
                bytes: Box::new([0; MAX_RECEIVE_LEN]),
                control_buf: nix::cmsg_space!(u32),
                last_overflow_count: 0,
                dropped: 0,
            }
        }

        /// Waits for a datagram, up to the read timeout of the socket, and returns its sender and content.
        pub(crate) fn receive(&mut self, socket: &UdpSocket) -> ReceiveResult<'_> {
            let mut buffers = [IoSliceMut::new(&mut self.bytes[..])];
            let message = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut buffers,
                Some(&mut self.control_buf),
                MsgFlags::empty(),
            )?;
            let (len, from) = (message.bytes, message.address.as_ref().and_then(to_socket_addr));
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::RxqOvfl(counted) = control {
                    self.dropped += u64::from(counted.wrapping_sub(self.last_overflow_count));
                    self.last_overflow_count = counted;
                }
            }
            let from = from.ok_or(io::ErrorKind::Unsupported)?;
            Ok((from, &self.bytes[..len]))
        }

        /// Returns the number of datagrams that the system dropped for a full receive buffer before the last received
        /// datagram.
        pub(crate) fn dropped(&self) -> u64 {
            self.dropped
        }
    }

    fn to_socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
        let v4 = address.as_sockaddr_in().map(|addr| SocketAddr::V4((*addr).into()));
        v4.or_else(|| address.as_sockaddr_in6().map(|addr| SocketAddr::V6((*addr).into())))
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use super::*;

    pub(crate) struct DatagramReceiver {
        bytes: Box<[u8; MAX_RECEIVE_LEN]>,
    }

    impl DatagramReceiver {
        pub(crate) fn new(_: &UdpSocket) -> Self {
            Self { bytes: Box::new([0; MAX_RECEIVE_LEN]) }
        }

        /// Waits for a datagram, up to the read timeout of the socket, and returns its sender and content.
        pub(crate) fn receive(&mut self, socket: &UdpSocket) -> ReceiveResult<'_> {
            let (len, from) = socket.recv_from(&mut self.bytes[..])?;
            Ok((from, &self.bytes[..len]))
        }

        /// Returns 0: this system does not report drops.
        pub(crate) fn dropped(&self) -> u64 {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_arrive_whole_with_their_source_address() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Some computers lack one of the two address families.
            let (Ok(one), Ok(other)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else { continue };
            let mut receiver = DatagramReceiver::new(&one);
            for bytes in [&b"ping"[..], b"", &[7; 1_000]] {
                other.send_to(bytes, one.local_addr().unwrap()).unwrap();
                assert_eq!(receiver.receive(&one).unwrap(), (other.local_addr().unwrap(), bytes));
            }
            other.send_to(&[7; 5_000], one.local_addr().unwrap()).unwrap();
            assert_eq!(receiver.receive(&one).unwrap().1.len(), MAX_RECEIVE_LEN, "a longer datagram is truncated");
            assert_eq!(receiver.dropped(), 0);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn kernel_drops_are_counted() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.set_nonblocking(true).unwrap();
        let mut receiver = DatagramReceiver::new(&one);
        let mut receive_all = || std::iter::from_fn(|| receiver.receive(&one).ok().map(|_| ())).count() as u64;
        let mut received = 0;
        for _ in 0..2 {
            for _ in 0..20_000 {
                other.send_to(&[0; 100], one.local_addr().unwrap()).unwrap();
            }
            received += receive_all();
            // The drop count arrives with the next datagram.
            other.send_to(b"last", one.local_addr().unwrap()).unwrap();
            received += receive_all();
        }
        assert!(receiver.dropped() > 0);
        assert_eq!(received + receiver.dropped(), 40_002);
    }
}
