//! Taking datagrams from a socket, and learning how many the system had to drop.

use std::io;
use std::net::{SocketAddr, UdpSocket};

#[cfg(target_os = "linux")]
pub(super) use linux::DatagramReceiver;
#[cfg(not(target_os = "linux"))]
pub(super) use other::DatagramReceiver;

/// Longer than anything that makes sense; of what is longer still, the rest is cut off.
const MAX_RECEIVE_LEN: usize = super::MAX_SEALED + 1;

/// Something that came.
type ReceiveResult<'a> = io::Result<(SocketAddr, &'a [u8])>;

#[cfg(target_os = "linux")]
mod linux {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};

    use super::*;

    /// The system says with a datagram how many it has dropped before: nothing has to be looked up, however many sockets there are.
    pub(crate) struct DatagramReceiver {
        bytes: Box<[u8; MAX_RECEIVE_LEN]>,
        control_buf: Vec<u8>,
        /// As the system counts, which begins again after 32 bits, and as we do.
        last_overflow_count: u32,
        dropped: u64,
    }

    impl DatagramReceiver {
        pub(crate) fn new(socket: &UdpSocket) -> Self {
            // Without it nothing is known of them, and all else is as before.
            let _ = setsockopt(socket, sockopt::RxqOvfl, &1);
            Self {
                bytes: Box::new([0; MAX_RECEIVE_LEN]),
                control_buf: nix::cmsg_space!(u32),
                last_overflow_count: 0,
                dropped: 0,
            }
        }

        /// Waits for a datagram, for as long as the socket does.
        pub(crate) fn receive(&mut self, socket: &UdpSocket) -> ReceiveResult<'_> {
            let mut into = [IoSliceMut::new(&mut self.bytes[..])];
            let message = recvmsg::<SockaddrStorage>(
                socket.as_raw_fd(),
                &mut into,
                Some(&mut self.control_buf),
                MsgFlags::empty(),
            )?;
            let (len, from) = (message.bytes, message.address.as_ref().and_then(to_socket_addr));
            for note in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::RxqOvfl(counted) = note {
                    self.dropped += u64::from(counted.wrapping_sub(self.last_overflow_count));
                    self.last_overflow_count = counted;
                }
            }
            let from = from.ok_or(io::ErrorKind::Unsupported)?;
            Ok((from, &self.bytes[..len]))
        }

        /// How many the system dropped because our buffer was full, up to the last that came.
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

        /// Waits for a datagram, for as long as the socket does.
        pub(crate) fn receive(&mut self, socket: &UdpSocket) -> ReceiveResult<'_> {
            let (len, from) = socket.recv_from(&mut self.bytes[..])?;
            Ok((from, &self.bytes[..len]))
        }

        /// This system does not tell.
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
            // Not every computer has both.
            let (Ok(one), Ok(other)) = (UdpSocket::bind(any), UdpSocket::bind(any)) else { continue };
            let mut receiver = DatagramReceiver::new(&one);
            for bytes in [&b"ping"[..], b"", &[7; 1_000]] {
                other.send_to(bytes, one.local_addr().unwrap()).unwrap();
                assert_eq!(receiver.receive(&one).unwrap(), (other.local_addr().unwrap(), bytes));
            }
            other.send_to(&[7; 5_000], one.local_addr().unwrap()).unwrap();
            assert_eq!(receiver.receive(&one).unwrap().1.len(), MAX_RECEIVE_LEN, "the rest is of no interest");
            assert_eq!(receiver.dropped(), 0);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn kernel_drops_are_counted() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.set_nonblocking(true).unwrap();
        let mut receiver = DatagramReceiver::new(&one);
        let mut come = || std::iter::from_fn(|| receiver.receive(&one).ok().map(|_| ())).count() as u64;
        let mut taken = 0;
        for _ in 0..2 {
            for _ in 0..20_000 {
                other.send_to(&[0; 100], one.local_addr().unwrap()).unwrap();
            }
            taken += come();
            // The count comes with the next one.
            other.send_to(b"last", one.local_addr().unwrap()).unwrap();
            taken += come();
        }
        assert!(receiver.dropped() > 0);
        assert_eq!(taken + receiver.dropped(), 40_002);
    }
}
