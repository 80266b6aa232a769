//! A queue of datagrams in memory. In lockstep it takes the place of the network: a datagram arrives as soon as it is
//! sent.

use crate::workload::Traffic;

/// A queue of datagrams, in sending order. An inbox holds the datagrams that wait for one site. Used as an outbox, the
/// queue holds the datagrams that one site sends. Adding a datagram allocates only if the queue then holds more
/// datagrams or bytes than ever before.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Number of the sending site (in an outbox, of the receiving site) and end offset of each datagram.
    datagrams: Vec<(usize, usize)>,
    traffic: Traffic,
}

impl Inbox {
    /// Creates an empty inbox with capacity for 64 datagrams.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(64 * 1_200), datagrams: Vec::with_capacity(64), traffic: Traffic::default() }
    }

    /// Adds a datagram and counts it as traffic. `from` is the sending site, or in an outbox the receiving site.
    pub fn push(&mut self, from: usize, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.datagrams.push((from, self.bytes.len()));
        self.traffic.datagrams += 1;
        self.traffic.bytes += bytes.len() as u64;
    }

    /// Passes all datagrams to `receive`, each with the site number given to [`push`](Self::push), and removes them.
    pub fn drain(&mut self, mut receive: impl FnMut(usize, &[u8])) {
        let mut begin = 0;
        for (from, end) in self.datagrams.drain(..) {
            receive(from, &self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
    }

    /// Returns the length of each waiting datagram, in bytes.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let begins = std::iter::once(0).chain(self.datagrams.iter().map(|(_, end)| *end));
        self.datagrams.iter().zip(begins).map(|((_, end), begin)| end - begin)
    }

    /// Returns whether no datagram is waiting.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Returns the traffic of all datagrams added so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}
