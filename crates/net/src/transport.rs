//! The interface of a transport, which carries datagrams between peers.

use coplay::time::Instant;

use crate::key::PeerKey;
use crate::peer_addr::PeerAddr;

/// Carrier of datagrams between this site and its peers. Incoming datagrams go into the queue that the transport got at
/// its creation.
///
/// A datagram arrives at most once, unchanged, and from the stated sender; only emulated [impairment](crate::impair)
/// can duplicate it.
pub trait Transport: Send + Sync {
    /// Returns the public key by which peers know this site.
    fn key(&self) -> PeerKey;

    /// Sends a datagram without waiting for the peer. Returns `false` if it could not be sent, for instance because
    /// there is no connection to the peer at the moment.
    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool;

    /// Starts dialing an address, and repeats the attempt until the peer there is connected. That peer must know the
    /// secret or token and, if `expect` is given, must have that key. If another peer than `expect`, or this site
    /// itself, answers, the dial ends with [`Incoming::WrongPeer`]. Addresses of another transport are ignored.
    fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>);

    /// Stops dialing all addresses at which this peer is expected. An existing connection stays.
    fn cancel_dial(&self, peer: &PeerKey);

    /// Returns the address of a connected peer, which may be passed on to other peers; `None` without a connection.
    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr>;

    /// Returns the addresses at which other peers may reach this site, as far as they are known now.
    fn own_addrs(&self) -> Vec<PeerAddr>;

    /// Returns the counts, since the transport was created, of received datagrams and events that were not delivered.
    fn drop_counts(&self) -> DropCounts;
}

/// Event in the queue of a transport. A mesh puts its multicast packets into the same queue.
#[derive(Debug)]
pub enum Incoming {
    /// A datagram from a connected peer.
    Datagram {
        /// Arrival time, on the clock of [`clock::now`](crate::clock::now).
        at: Instant,
        /// Authenticated sender.
        from: PeerKey,
        /// Decrypted content.
        bytes: Vec<u8>,
    },
    /// A multicast datagram from a member of a [mesh](crate::mesh). Any holder of the mesh key can have sent it.
    Multicast {
        /// Arrival time, on the clock of [`clock::now`](crate::clock::now).
        at: Instant,
        /// Site that the datagram claims to be from.
        site: u32,
        /// Decrypted content; empty in a packet that only proves that multicast from the sender is received.
        bytes: Vec<u8>,
    },
    /// A connection to a peer was established or renewed.
    Connected {
        /// Public key that the peer proved.
        peer: PeerKey,
        /// Address of the peer if this site was dialing it; `None` if only the peer dialed.
        dialed: Option<PeerAddr>,
    },
    /// Dialing an address for 4 s has not led to a connection, or the site there rejected this site's secret or token;
    /// dialing continues.
    Unreachable {
        /// Address being dialed.
        addr: PeerAddr,
        /// Whether a site answered there and rejected this site's secret or token.
        wrong_secret: bool,
    },
    /// The peer at a dialed address is not the expected one, or is this site itself. Dialing of this address ends.
    WrongPeer {
        /// Address that was dialed.
        addr: PeerAddr,
    },
}

/// Counts of received datagrams and events that were not delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Datagrams and connections that the transport rejected, such as garbage, forgeries, replays, and those of
    /// strangers.
    pub rejected: u64,
    /// Datagrams that the operating system dropped because its receive buffer was full; 0 if it does not report them.
    pub kernel_dropped: u64,
    /// Authentic datagrams and other events for which the queue had no room.
    pub queue_full: u64,
}

impl DropCounts {
    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.rejected + self.kernel_dropped + self.queue_full
    }
}
