//! Prepares bad datagrams and sends them at an even rate.

use std::io::{self, IoSlice};
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use coplay_links::random::Random;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, sendmmsg};
use socket2::{Domain, Protocol, Socket, Type};

use crate::capture::CapturedDatagram;

/// Defect of a datagram.
#[derive(Clone, Copy)]
pub(crate) enum AttackKind {
    Garbage,
    Truncated,
    Replayed,
    Spoofed,
}

impl AttackKind {
    pub(crate) const ALL: [Self; 4] = [Self::Garbage, Self::Truncated, Self::Replayed, Self::Spoofed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Truncated => "truncated",
            Self::Replayed => "replayed",
            Self::Spoofed => "spoofed",
        }
    }
}

/// Number of datagrams sent of each kind, and the time taken.
pub(crate) struct FloodResult {
    counts: [u64; 4],
    elapsed: Duration,
}

impl FloodResult {
    pub(crate) fn count_of(&self, kind: AttackKind) -> u64 {
        self.counts[kind as usize]
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    pub(crate) fn rate(&self) -> f64 {
        self.total() as f64 / self.seconds()
    }
}

/// Number of prepared datagrams of each kind, except that there are as many replayed ones as captured, and no spoofed
/// ones without a raw socket. The datagrams of a kind are sent in turn.
const POOL: usize = 4_096;
/// Number of datagrams per system call.
const BATCH: usize = 64;
/// Type byte of a data datagram.
const DATA_TYPE: u8 = 6;
/// Length of the header of a data datagram, in bytes: type, channel number, packet number.
const HEADER_LEN: usize = 9;

/// Pools of prepared bad datagrams, and the sockets that send them.
pub(crate) struct Flooder {
    target: SockaddrIn,
    socket: UdpSocket,
    /// Socket that sends packets with any source address; `None` without root or without captured datagrams.
    raw_socket: Option<Socket>,
    pools: [Vec<Vec<u8>>; 4],
    next_in_pool: [usize; 4],
}

impl Flooder {
    pub(crate) fn new(target: SocketAddrV4, captured: &[CapturedDatagram]) -> io::Result<Self> {
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW_PROTOCOL)))
            .ok()
            .filter(|_| !captured.is_empty());
        let mut random = Random::stream(1, "flood");
        let spoofed = if raw.is_some() { spoofed(&mut random, target, captured) } else { vec![] };
        let pools = [garbage(&mut random), truncated(&mut random, captured), replayed(captured), spoofed];
        Ok(Self {
            target: target.into(),
            socket: UdpSocket::bind("0.0.0.0:0")?,
            raw_socket: raw,
            pools,
            next_in_pool: [0; 4],
        })
    }

    /// Sends batches of all available kinds in turn for `seconds`, at most `rate` datagrams per second in total.
    /// Returns the number sent of each kind.
    pub(crate) fn run(&mut self, rate: u64, seconds: f64) -> FloodResult {
        let kinds: Vec<AttackKind> =
            AttackKind::ALL.into_iter().filter(|kind| !self.pools[*kind as usize].is_empty()).collect();
        let (began, mut counts, mut tried) = (Instant::now(), [0; 4], 0);
        loop {
            let took = began.elapsed();
            if took.as_secs_f64() >= seconds {
                return FloodResult { counts, elapsed: took };
            }
            let due = (took.as_secs_f64() * rate as f64) as u64;
            if tried + (BATCH * kinds.len()) as u64 > due {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            for kind in &kinds {
                counts[*kind as usize] += self.send_batch(*kind);
                tried += BATCH as u64;
            }
        }
    }

    /// Sends one batch of this kind. Returns the number of datagrams sent.
    fn send_batch(&mut self, kind: AttackKind) -> u64 {
        let (pool, next) = (&self.pools[kind as usize], &mut self.next_in_pool[kind as usize]);
        let batch: Vec<[IoSlice<'_>; 1]> =
            (0..BATCH).map(|at| [IoSlice::new(&pool[(*next + at) % pool.len()])]).collect();
        *next = (*next + BATCH) % pool.len();
        let fd = match (kind, &self.raw_socket) {
            (AttackKind::Spoofed, Some(raw)) => raw.as_raw_fd(),
            _ => self.socket.as_raw_fd(),
        };
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
        let to = [Some(self.target); BATCH];
        sendmmsg(fd, &mut headers, &batch, to, [], MsgFlags::empty()).map_or(0, |sent| sent.count() as u64)
    }
}

fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn garbage(random: &mut Random) -> Vec<Vec<u8>> {
    let one = |_| {
        let len = random.below(1_300) as usize;
        random_bytes(random, len)
    };
    (0..POOL).map(one).collect()
}

/// Returns truncated copies of captured datagrams; if none was captured, short random datagrams with a valid type byte.
fn truncated(random: &mut Random, captured: &[CapturedDatagram]) -> Vec<Vec<u8>> {
    let one = |at: usize| match captured.get(at % captured.len().max(1)) {
        Some(whole) => whole.bytes[..random.below(whole.bytes.len() as u64) as usize].to_vec(),
        None => {
            let len = random.below(40) as usize;
            let mut short = random_bytes(random, len);
            short.iter_mut().take(1).for_each(|kind| *kind = 1 + (at % 6) as u8);
            short
        }
    };
    (0..POOL).map(one).collect()
}

fn replayed(captured: &[CapturedDatagram]) -> Vec<Vec<u8>> {
    captured.iter().map(|captured| captured.bytes.clone()).collect()
}

/// Returns packets from the addresses of captured senders: replayed datagrams, and forged data datagrams in existing
/// channels.
fn spoofed(random: &mut Random, target: SocketAddrV4, captured: &[CapturedDatagram]) -> Vec<Vec<u8>> {
    let one = |at: usize| {
        let captured = &captured[at % captured.len()];
        let mut bytes = captured.bytes.clone();
        if bytes[0] == DATA_TYPE && bytes.len() > HEADER_LEN && !at.is_multiple_of(4) {
            let number = u32::from_le_bytes([bytes[5], bytes[6], bytes[7], bytes[8]])
                .wrapping_add(1 + random.below(1 << 20) as u32);
            bytes[5..9].copy_from_slice(&number.to_le_bytes());
            let len = bytes.len() - HEADER_LEN;
            bytes.splice(HEADER_LEN.., random_bytes(random, len));
        }
        raw_packet(captured.from, target, &bytes)
    };
    (0..POOL).map(one).collect()
}

/// Protocol number of raw sockets that take whole IP packets.
const RAW_PROTOCOL: i32 = 255;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Builds a whole IP packet. The kernel fills in the identification and checksum; a UDP checksum of zero means none.
fn raw_packet(from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) -> Vec<u8> {
    let len = UDP_HEADER + bytes.len();
    let mut packet = vec![0; IP_HEADER];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&((IP_HEADER + len) as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    for number in [from.port(), to.port(), len as u16, 0] {
        packet.extend_from_slice(&number.to_be_bytes());
    }
    packet.extend_from_slice(bytes);
    packet
}
