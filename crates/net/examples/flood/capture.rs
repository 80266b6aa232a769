//! Captures the datagrams that others send to a port.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

/// A captured datagram with its source address.
pub(crate) struct CapturedDatagram {
    pub(crate) from: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
}

/// Maximum number of captured datagrams.
const MAX_CAPTURED: usize = 256;
/// Time limit of the capture.
const CAPTURE_TIMEOUT: Duration = Duration::from_secs(5);

/// EtherType of IPv4, in network byte order.
const ETH_P_IP: u16 = 0x0800_u16.to_be();

/// Captures the datagrams to the address and port `target` in the next 5 s, at most [`MAX_CAPTURED`].
pub(crate) fn capture(target: SocketAddrV4) -> io::Result<Vec<CapturedDatagram>> {
    let mut socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(i32::from(ETH_P_IP))))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (deadline, mut packet) = (Instant::now() + CAPTURE_TIMEOUT, vec![0; 65_536]);
    let mut captured = Vec::new();
    while captured.len() < MAX_CAPTURED && Instant::now() < deadline {
        if let Ok(len) = socket.read(&mut packet) {
            captured.extend(parse(&packet[..len], target));
        }
    }
    Ok(captured)
}

/// Parses the UDP datagram in an IPv4 packet; `None` if the packet holds no datagram for `target`, or an empty one.
fn parse(packet: &[u8], target: SocketAddrV4) -> Option<CapturedDatagram> {
    let header = usize::from(packet.first()? & 15) * 4;
    let (ip, udp) = packet.split_at_checked(header)?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?));
    let number = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
    let is_udp = packet[0] >> 4 == 4 && *ip.get(9)? == 17;
    let to = SocketAddrV4::new(address(16)?, number(2)?);
    let bytes = udp.get(8..usize::from(number(4)?))?.to_vec();
    let from = SocketAddrV4::new(address(12)?, number(0)?);
    (is_udp && to == target && !bytes.is_empty()).then_some(CapturedDatagram { from, bytes })
}
