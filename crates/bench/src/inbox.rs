//! Memory that stands for a network: what is sent is there at once.

use crate::workload::Traffic;

/// The datagrams that wait for one site, in the order of sending. Once it has grown to its size it allocates nothing.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// From which site, and where each one ends.
    datagrams: Vec<(usize, usize)>,
    traffic: Traffic,
}

impl Inbox {
    /// An empty inbox with room for more than it will ever hold.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(64 * 1_200), datagrams: Vec::with_capacity(64), traffic: Traffic::default() }
    }

    /// Puts a datagram in.
    pub fn push(&mut self, from: usize, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.datagrams.push((from, self.bytes.len()));
        self.traffic.datagrams += 1;
        self.traffic.bytes += bytes.len() as u64;
    }

    /// Hands out all datagrams, and forgets them.
    pub fn drain(&mut self, mut take: impl FnMut(usize, &[u8])) {
        let mut begin = 0;
        for (from, end) in self.datagrams.drain(..) {
            take(from, &self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
    }

    /// How long each datagram is that waits.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let begins = std::iter::once(0).chain(self.datagrams.iter().map(|(_, end)| *end));
        self.datagrams.iter().zip(begins).map(|((_, end), begin)| end - begin)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// What was put in so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}
