//! The transport with the mail on top of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use coplay::time::{Instant, TimeDelta};

use crate::clock;
use crate::key::PeerKey;
use crate::lobby::{self, MAX_PEER_ADDRS};
use crate::reliable::Channel;
use crate::transport::{Incoming, PeerAddr, Transport};

/// Mail of this many peers is kept; of the rest who was silent for longest is forgotten.
const MAX_PEERS: usize = 8_192;
/// Datagrams of mail sent at a time: a line of chat for thousands must not keep a frame waiting.
const MAX_DATAGRAMS_PER_FLUSH: usize = 64;
/// What was not acknowledged is looked after this often.
const RETRANSMIT_CHECK_INTERVAL: TimeDelta = TimeDelta::from_millis(20);
/// Mail with who is silent for so long is forgotten; whoever comes back begins anew.
const PEER_TIMEOUT: TimeDelta = TimeDelta::from_secs(60);
const SWEEP_INTERVAL: TimeDelta = TimeDelta::from_secs(1);

/// What can be mailed.
pub(crate) trait Message: Sized {
    /// As bytes.
    fn to_bytes(&self) -> Vec<u8>;

    /// From bytes of somebody else's; `None` if they make no sense.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Message for lobby::LobbyMessage {
    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}

/// What comes in, and mail out. What it does does not depend on how many peers there are to whom nothing is to be said.
pub(crate) struct Mux {
    pub(crate) transport: Arc<dyn Transport>,
    incoming: Receiver<Incoming>,
    peers: BTreeMap<PeerKey, MuxPeer>,
    /// Those who have something to be sent now.
    send_ready: VecDeque<PeerKey>,
    /// Those who may have to be sent something again.
    unacked: BTreeSet<PeerKey>,
    next_retransmit_check: Instant,
    next_sweep: Instant,
}

/// The mail with one peer.
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

    /// The next thing that comes before then.
    pub(crate) fn recv_until(&self, until: Instant) -> Option<Incoming> {
        let left = (until - clock::now()).to_duration();
        match self.incoming.recv_timeout(left) {
            Ok(incoming) => Some(incoming),
            Err(RecvTimeoutError::Timeout) => None,
            // The transport is gone; there is nothing to wait for but the time.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(left);
                None
            }
        }
    }

    pub(crate) fn try_recv(&self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// Sends a message to a peer, for certain.
    pub(crate) fn send(&mut self, to: PeerKey, message: &impl Message) {
        self.send_to_all([to], message);
    }

    /// Sends one message to many peers.
    pub(crate) fn send_to_all(&mut self, to: impl IntoIterator<Item = PeerKey>, message: &impl Message) {
        let bytes = message.to_bytes();
        let own = self.transport.key();
        for peer in to.into_iter().filter(|peer| *peer != own) {
            // Who does not take its mail for so long that no more fits has other troubles.
            let _ = self.peer_mut(peer).channel.send(&bytes);
            self.mark_send_ready(peer);
        }
    }

    fn peer_mut(&mut self, peer: PeerKey) -> &mut MuxPeer {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            let stalest = self.peers.iter().min_by_key(|(_, line)| (!line.channel.is_idle(), line.last_received));
            if let Some(stalest) = stalest.map(|(peer, _)| *peer) {
                self.peers.remove(&stalest);
            }
        }
        self.peers.entry(peer).or_insert_with(|| MuxPeer { last_received: clock::now(), ..MuxPeer::default() })
    }

    fn mark_send_ready(&mut self, peer: PeerKey) {
        if let Some(line) = self.peers.get_mut(&peer)
            && !std::mem::replace(&mut line.is_send_ready, true)
        {
            self.send_ready.push_back(peer);
        }
    }

    /// Takes a datagram of mail; returns the messages that it completes.
    pub(crate) fn handle_datagram<L: Message>(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<L> {
        let messages = self.receive_messages(from, bytes);
        messages.into_iter().filter_map(|bytes| L::from_bytes(&bytes)).collect()
    }

    fn receive_messages(&mut self, from: PeerKey, bytes: &[u8]) -> Vec<Vec<u8>> {
        let line = self.peer_mut(from);
        line.last_received = clock::now();
        line.channel.handle_datagram(bytes);
        let messages = std::iter::from_fn(|| line.channel.poll_message()).collect();
        self.mark_send_ready(from);
        messages
    }

    /// Sends what mail is due, a little at a time.
    pub(crate) fn flush(&mut self, now: Instant) {
        if now >= self.next_retransmit_check {
            self.next_retransmit_check = now + RETRANSMIT_CHECK_INTERVAL;
            self.queue_retransmits(now);
        }
        let mut left = MAX_DATAGRAMS_PER_FLUSH;
        while left > 0
            && let Some(peer) = self.send_ready.pop_front()
        {
            let Some(line) = self.peers.get_mut(&peer) else { continue };
            line.is_send_ready = false;
            while left > 0
                && let Some(bytes) = line.channel.poll_transmit(now)
            {
                self.transport.send(&peer, &bytes);
                left -= 1;
            }
            match line.channel.poll_timeout() {
                Some(_) if left == 0 => self.mark_send_ready(peer),
                Some(_) => _ = self.unacked.insert(peer),
                None => _ = self.unacked.remove(&peer),
            }
        }
    }

    /// What was sent and not acknowledged may have to be sent again.
    fn queue_retransmits(&mut self, now: Instant) {
        let lines = &mut self.peers;
        let fresh = &mut self.send_ready;
        self.unacked.retain(|peer| {
            let Some(line) = lines.get_mut(peer) else { return false };
            let due = line.channel.poll_timeout().is_some_and(|due| due <= now);
            if due && !std::mem::replace(&mut line.is_send_ready, true) {
                fresh.push_back(*peer);
            }
            !line.channel.is_idle()
        });
    }

    /// When there is mail to be sent at the latest.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let next = (!self.unacked.is_empty()).then_some(self.next_retransmit_check);
        if self.send_ready.is_empty() { next } else { Some(Instant::ZERO) }
    }

    /// Forgets those of whom nothing was heard for long, but for some.
    pub(crate) fn forget_silent_peers(&mut self, now: Instant, but: impl Fn(&PeerKey) -> bool) {
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.peers.retain(|peer, line| now - line.last_received < PEER_TIMEOUT || but(peer));
        }
    }

    /// Whether everything that was mailed has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.peers.values().all(|line| line.channel.is_idle())
    }

    /// Sees that mail gets out before we are gone.
    pub(crate) fn drain(&mut self, patience: TimeDelta) {
        let until = clock::now() + patience;
        while !self.is_idle() && clock::now() < until {
            self.flush(clock::now());
            if let Some(Incoming::Datagram { from, bytes, .. }) =
                self.recv_until(clock::now() + TimeDelta::from_millis(20))
                && Channel::is_channel_datagram(&bytes)
            {
                self.receive_messages(from, &bytes);
            }
        }
    }

    /// Where others can be told to look for us.
    pub(crate) fn own_addrs(&self) -> Vec<PeerAddr> {
        let mut places = self.transport.own_addrs();
        places.truncate(MAX_PEER_ADDRS);
        places
    }

    /// Tries to reach a member at all of its places.
    pub(crate) fn dial(&self, places: &[PeerAddr], key: PeerKey) {
        if key != self.transport.key() && self.transport.addr_of(&key).is_none() {
            places.iter().for_each(|place| self.transport.dial(place, Some(key)));
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

    /// A network in which everything that is sent is noted, and nothing comes back.
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
        let void = Arc::new(RecordingTransport::default());
        (void.clone(), Mux::new(void, sync_channel(1).1))
    }

    #[test]
    fn broadcast_is_sent_in_bounded_flushes_and_retransmitted() {
        let (void, mut post) = mux();
        post.send_to_all((0..1_000).map(key), &LobbyMessage::Bye);
        let now = clock::now();
        post.flush(now);
        assert_eq!(void.0.lock().unwrap().len(), MAX_DATAGRAMS_PER_FLUSH);
        assert_eq!(post.poll_timeout(), Some(Instant::ZERO), "there is more");
        (0..1_000 / MAX_DATAGRAMS_PER_FLUSH).for_each(|_| post.flush(now));
        let told: BTreeSet<PeerKey> = void.0.lock().unwrap().drain(..).collect();
        assert_eq!(told.len(), 1_000);
        assert!(post.poll_timeout().is_some_and(|due| due > now), "nothing more for now");
        // Nobody acknowledges it: it is sent again, and after a while less often, and in the end no more.
        let later = |millis| now + TimeDelta::from_millis(millis);
        (21..40).for_each(|tenth| post.flush(later(tenth * 10)));
        assert_eq!(void.0.lock().unwrap().drain(..).collect::<BTreeSet<_>>().len(), 1_000);
        post.forget_silent_peers(now + PEER_TIMEOUT + PEER_TIMEOUT, |peer| *peer == key(7));
        post.flush(now + PEER_TIMEOUT + PEER_TIMEOUT);
        assert_eq!(void.0.lock().unwrap().drain(..).collect::<Vec<_>>(), [key(7)]);
        assert_eq!((post.peers.len(), post.unacked.len()), (1, 1));
    }

    #[test]
    fn idle_peers_cost_only_one_acknowledgement() {
        let (void, mut post) = mux();
        let mut other = Channel::new();
        other.send(&LobbyMessage::Bye.to_bytes()).unwrap();
        let bytes = other.poll_transmit(clock::now()).unwrap();
        for number in 0..1_000 {
            assert_eq!(post.handle_datagram::<LobbyMessage>(key(number), &bytes), [LobbyMessage::Bye]);
        }
        let now = clock::now();
        (0..20).for_each(|_| post.flush(now));
        assert_eq!(void.0.lock().unwrap().len(), 1_000, "one acknowledgement each");
        assert_eq!((post.poll_timeout(), post.unacked.len(), post.send_ready.len()), (None, 0, 0));
    }
}
