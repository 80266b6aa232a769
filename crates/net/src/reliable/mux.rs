//! A transport with one reliable channel per peer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use crate::clock;
use crate::key::PeerKey;
use crate::lobby::{self, MAX_PEER_ADDRS};
use crate::peer_addr::PeerAddr;
use crate::reliable::Channel;
use crate::transport::{Incoming, Transport};

/// Maximum number of peers with a channel. One more evicts the peer that has been silent for longest, among those that
/// have acknowledged all messages if there are any.
const MAX_PEERS: usize = 8_192;
/// Maximum number of datagrams per flush: a chat line for thousands of spectators must not delay a frame.
const MAX_DATAGRAMS_PER_FLUSH: usize = 64;
/// Interval between checks for fragments that must be retransmitted.
const RETRANSMIT_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(20);
/// Time without a datagram of a peer's channel after which the channel is dropped, unless the caller keeps it; a peer
/// that returns later gets a new channel.
const PEER_TIMEOUT: TimeDelta = TimeDelta::from_secs(60);
const SWEEP_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// Message that can be encoded for a reliable channel.
pub(crate) trait ChannelMessage: Sized {
    fn to_bytes(&self) -> Vec<u8>;

    /// Decodes a message from an untrusted peer; `None` if it is malformed.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl ChannelMessage for lobby::LobbyMessage {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}

/// A transport with its queue of incoming events and a reliable channel per peer. Idle peers add no work to a
/// [flush](Self::flush).
pub(crate) struct Mux {
    pub(crate) transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    peers: BTreeMap<PeerKey, MuxPeer>,
    /// Queue of the peers whose channels may have a datagram to send now.
    send_ready: VecDeque<PeerKey>,
    /// Peers that have not acknowledged all fragments, and may need a retransmission.
    unacked: BTreeSet<PeerKey>,
    next_retransmit_check: Instant,
    next_sweep: Instant,
}

/// Channel to one peer.
#[derive(Default)]
struct MuxPeer {
    channel: Channel,
    last_received: Instant,
    is_send_ready: bool,
}

impl Mux {
    pub(crate) fn new(transport: Arc<dyn Transport>, incoming: Receiver<Incoming>) -> Self {
        Self {
            transport,
            incoming,
            peers: BTreeMap::new(),
            send_ready: VecDeque::new(),
            unacked: BTreeSet::new(),
            next_retransmit_check: Instant::ZERO,
            next_sweep: Instant::ZERO,
        }
    }

    /// Returns the next event, waiting until `until` at most; `None` if there was none.
    pub(crate) fn recv_until(&self, until: Instant) -> Option<Incoming> {
        let left = (until - clock::now()).to_duration();
        match self.incoming.recv_timeout(left) {
            Ok(incoming) => Some(incoming),
            Err(RecvTimeoutError::Timeout) => None,
            // The transport is gone: only the time limit remains.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(left);
                None
            }
        }
    }

    pub(crate) fn try_recv(&self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// Queues a message for reliable delivery to a peer. A message to this site itself is skipped.
    pub(crate) fn send(&mut self, to: PeerKey, message: &impl ChannelMessage) {
        self.send_to_all([to], message);
    }

    /// Queues one message, encoded once, for reliable delivery to each of these peers but this site itself.
    pub(crate) fn send_to_all(&mut self, to: impl IntoIterator<Item = PeerKey>, message: &impl ChannelMessage) {
        let bytes = message.to_bytes();
        let own = self.transport.key();
        for peer in to.into_iter().filter(|peer| *peer != own) {
            // A peer that acknowledges nothing misses messages once the send queue of its channel is full.
            let _ = self.peer_mut(peer).channel.send(&bytes);
            self.mark_send_ready(peer);
        }
    }

    fn peer_mut(&mut self, peer: PeerKey) -> &mut MuxPeer {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            let stalest = self
                .peers
                .iter()
                .min_by_key(|(_, peer_state)| (!peer_state.channel.is_idle(), peer_state.last_received));
            if let Some(stalest) = stalest.map(|(peer, _)| *peer) {
                self.peers.remove(&stalest);
            }
        }
        self.peers.entry(peer).or_insert_with(|| MuxPeer { last_received: clock::now(), ..MuxPeer::default() })
    }

    fn mark_send_ready(&mut self, peer: PeerKey) {
        if let Some(peer_state) = self.peers.get_mut(&peer)
            && !std::mem::replace(&mut peer_state.is_send_ready, true)
        {
            self.send_ready.push_back(peer);
        }
    }

    /// Passes a datagram to the sender's channel. Returns the messages that are complete now, without malformed ones.
    pub(crate) fn handle_datagram<L: ChannelMessage>(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<L> {
        let messages = self.receive_messages(from, bytes);
        messages.into_iter().filter_map(|bytes| L::from_bytes(&bytes)).collect()
    }

    fn receive_messages(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<Vec<u8>> {
        let peer_state = self.peer_mut(from);
        peer_state.last_received = clock::now();
        peer_state.channel.handle_datagram(bytes);
        let messages = std::iter::from_fn(|| peer_state.channel.poll_message()).collect();
        self.mark_send_ready(from);
        messages
    }

    /// Sends due datagrams, at most [`MAX_DATAGRAMS_PER_FLUSH`].
    pub(crate) fn flush(&mut self, now: Instant) {
        if now >= self.next_retransmit_check {
            self.next_retransmit_check = now + RETRANSMIT_CHECK_INTERVAL;
            self.queue_retransmits(now);
        }
        let mut left = MAX_DATAGRAMS_PER_FLUSH;
        while left > 0
            && let Some(peer) = self.send_ready.pop_front()
        {
            let Some(peer_state) = self.peers.get_mut(&peer) else { continue };
            peer_state.is_send_ready = false;
            while left > 0
                && let Some(bytes) = peer_state.channel.poll_transmit(now)
            {
                self.transport.send(&peer, &bytes);
                left -= 1;
            }
            match peer_state.channel.poll_timeout() {
                Some(_) if left == 0 => self.mark_send_ready(peer),
                Some(_) => _ = self.unacked.insert(peer),
                None => _ = self.unacked.remove(&peer),
            }
        }
    }

    /// Queues the peers whose unacknowledged fragments are due for retransmission.
    fn queue_retransmits(&mut self, now: Instant) {
        let peer_states = &mut self.peers;
        let send_ready = &mut self.send_ready;
        self.unacked.retain(|peer| {
            let Some(peer_state) = peer_states.get_mut(peer) else { return false };
            let due = peer_state.channel.poll_timeout().is_some_and(|due| due <= now);
            if due && !std::mem::replace(&mut peer_state.is_send_ready, true) {
                send_ready.push_back(*peer);
            }
            !peer_state.channel.is_idle()
        });
    }

    /// Returns the time of the next [`flush`](Self::flush) that may send; `None` if nothing is queued or
    /// unacknowledged.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let next = (!self.unacked.is_empty()).then_some(self.next_retransmit_check);
        if self.send_ready.is_empty() { next } else { Some(Instant::ZERO) }
    }

    /// Drops the channels on which no datagram has arrived for 60 s, except those of peers for which `keep` holds.
    /// Checks at most once per second.
    pub(crate) fn forget_silent_peers(&mut self, now: Instant, keep: impl Fn(&PeerKey) -> bool) {
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.peers.retain(|peer, peer_state| now - peer_state.last_received < PEER_TIMEOUT || keep(peer));
        }
    }

    /// Returns whether every peer has acknowledged all messages to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.peers.values().all(|peer_state| peer_state.channel.is_idle())
    }

    /// Sends and retransmits until every message is acknowledged, for at most `limit`. Discards incoming messages and
    /// events.
    pub(crate) fn drain(&mut self, limit: TimeDelta) {
        let deadline = clock::now() + limit;
        while !self.is_idle() && clock::now() < deadline {
            self.flush(clock::now());
            if let Some(Incoming::Datagram { from, bytes, .. }) =
                self.recv_until(clock::now() + TimeDelta::from_millis(20))
                && Channel::is_channel_datagram(&bytes)
            {
                self.receive_messages(from, &bytes);
            }
        }
    }

    /// Returns the addresses at which other peers may reach this site, at most [`MAX_PEER_ADDRS`].
    pub(crate) fn own_addrs(&self) -> Vec<PeerAddr> {
        let mut addrs = self.transport.own_addrs();
        addrs.truncate(MAX_PEER_ADDRS);
        addrs
    }

    /// Starts dialing a member at all of its addresses, unless it is connected already or is this site itself.
    pub(crate) fn dial(&self, addrs: &[PeerAddr], key: PeerKey) {
        if key != self.transport.key() && self.transport.addr_of(&key).is_none() {
            addrs.iter().for_each(|addr| self.transport.dial(addr, Some(key)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::lobby::LobbyMessage;
    use crate::transport::DropCounts;

    /// A transport that records recipients and on which no peer answers.
    #[derive(Default)]
    struct RecordingTransport(Mutex<Vec<PeerKey>>);

    impl Transport for RecordingTransport {
        fn key(&self) -> PeerKey {
            PeerKey([0; 32])
        }

        fn send(&self, to: &PeerKey, _: &[u8]) -> bool {
            self.0.lock().unwrap().push(*to);
            true
        }

        fn dial(&self, _: &PeerAddr, _: Option<PeerKey>) {}

        fn cancel_dial(&self, _: &PeerKey) {}

        fn addr_of(&self, _: &PeerKey) -> Option<PeerAddr> {
            None
        }

        fn own_addrs(&self) -> Vec<PeerAddr> {
            vec![]
        }

        fn drop_counts(&self) -> DropCounts {
            DropCounts::default()
        }
    }

    fn key(number: usize) -> PeerKey {
        let mut key = [1; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        PeerKey(key)
    }

    fn mux() -> (Arc<RecordingTransport>, Mux) {
        let transport = Arc::new(RecordingTransport::default());
        (transport.clone(), Mux::new(transport, sync_channel(1).1))
    }

    #[test]
    fn broadcast_is_sent_in_bounded_flushes_and_retransmitted() {
        let (transport, mut mux) = mux();
        mux.send_to_all((0..1_000).map(key), &LobbyMessage::Bye);
        let now = clock::now();
        mux.flush(now);
        assert_eq!(transport.0.lock().unwrap().len(), MAX_DATAGRAMS_PER_FLUSH);
        assert_eq!(mux.poll_timeout(), Some(Instant::ZERO), "more datagrams are ready");
        (0..1_000 / MAX_DATAGRAMS_PER_FLUSH).for_each(|_| mux.flush(now));
        let recipients: BTreeSet<PeerKey> = transport.0.lock().unwrap().drain(..).collect();
        assert_eq!(recipients.len(), 1_000);
        assert!(mux.poll_timeout().is_some_and(|due| due > now), "nothing is ready now");
        // Without acknowledgement the message is retransmitted, later less often, and at last given up.
        let later = |millis| now + TimeDelta::from_millis(millis);
        (21..40).for_each(|tenth| mux.flush(later(tenth * 10)));
        assert_eq!(transport.0.lock().unwrap().drain(..).collect::<BTreeSet<_>>().len(), 1_000);
        mux.forget_silent_peers(now + PEER_TIMEOUT + PEER_TIMEOUT, |peer| *peer == key(7));
        mux.flush(now + PEER_TIMEOUT + PEER_TIMEOUT);
        assert_eq!(transport.0.lock().unwrap().drain(..).collect::<Vec<_>>(), [key(7)]);
        assert_eq!((mux.peers.len(), mux.unacked.len()), (1, 1));
    }

    #[test]
    fn idle_peers_cost_only_one_acknowledgement() {
        let (transport, mut mux) = mux();
        let mut other = Channel::new();
        other.send(&LobbyMessage::Bye.to_bytes()).unwrap();
        let bytes = other.poll_transmit(clock::now()).unwrap();
        for number in 0..1_000 {
            assert_eq!(mux.handle_datagram::<LobbyMessage>(key(number), &bytes), [LobbyMessage::Bye]);
        }
        let now = clock::now();
        (0..20).for_each(|_| mux.flush(now));
        assert_eq!(transport.0.lock().unwrap().len(), 1_000, "one acknowledgement each");
        assert_eq!((mux.poll_timeout(), mux.unacked.len(), mux.send_ready.len()), (None, 0, 0));
    }
}
