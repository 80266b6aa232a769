//! Emulates a worse uplink for tests and measurements: the impaired links of `coplay-links` on real transports.
//!
//! Only outgoing datagrams are impaired, to each peer by a [link](coplay_links::link) of its own. Incoming datagrams
//! are impaired only if their sender impairs its uplink, too. The handshakes of the inner transport are not impaired,
//! and the bytes that it adds to a datagram do not count towards the rate. The inner transport seals a duplicate
//! separately, so it arrives as a second datagram of the same content. A network cannot duplicate a datagram of a
//! secured transport like that, but the engine must tolerate it.
//!
//! One thread waits for the next due datagram. The random draws for the n-th datagram to the k-th peer, in the order of
//! the first datagram to each, depend on the seed alone.

mod link_emulator;
mod parse;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use coplay::time::TimeDelta;
use coplay_links::link::LinkConfig;

use crate::clock;
use crate::key::PeerKey;
use crate::peer_addr::PeerAddr;
use crate::transport::{DropCounts, Transport};

pub use link_emulator::LinkEmulator;
pub use parse::ImpairmentError;

/// Description of an impaired uplink. [`str::parse`] reads its text form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Delay, jitter, loss, duplication, reordering and rate of the link to each peer.
    pub link: LinkConfig,
    /// Intervals (start, end) in which nothing gets through, relative to the creation of the transport or emulator.
    pub cuts: Vec<(TimeDelta, TimeDelta)>,
    /// Seed of the random numbers of all links.
    pub seed: u64,
}

/// A transport with an impaired uplink. Dropping it discards the datagrams in flight.
pub struct ImpairedTransport {
    shared: Arc<ImpairedShared>,
    thread: Option<JoinHandle<()>>,
}

struct ImpairedShared {
    inner: Arc<dyn Transport>,
    state: Mutex<ImpairedState>,
    queue_changed: Condvar,
}

struct ImpairedState {
    emulator: LinkEmulator,
    is_stopped: bool,
}

impl ImpairedTransport {
    /// Returns a transport that sends over `inner`, impaired; cuts are counted from now. Fails if the thread that sends
    /// delayed datagrams cannot be started.
    pub fn new(inner: Arc<dyn Transport>, impairment: Impairment) -> io::Result<Self> {
        let emulator = LinkEmulator::new(clock::now(), impairment);
        let state = Mutex::new(ImpairedState { emulator, is_stopped: false });
        let shared = Arc::new(ImpairedShared { inner, state, queue_changed: Condvar::new() });
        let sender = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("impair".into()).spawn(move || sender.sender_loop())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for ImpairedTransport {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.queue_changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which the panic hook has already reported.
            let _ = thread.join();
        }
    }
}

impl ImpairedShared {
    fn lock(&self) -> MutexGuard<'_, ImpairedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sender_loop(&self) {
        let mut state = self.lock();
        while !state.is_stopped {
            self.flush(&mut state.emulator);
            state = match state.emulator.poll_timeout() {
                Some(due) => {
                    let left = (due - clock::now()).to_duration();
                    self.queue_changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.queue_changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Sends the due datagrams in order: the caller holds the lock, so no other thread sends meanwhile.
    fn flush(&self, emulator: &mut LinkEmulator) {
        while let Some((to, bytes)) = emulator.poll_transmit(clock::now()) {
            // Without a connection at this moment the datagram is lost in transit.
            let _ = self.inner.send(&to, &bytes);
        }
    }
}

impl Transport for ImpairedTransport {
    fn key(&self) -> PeerKey {
        self.shared.inner.key()
    }

    /// Always returns `true`: whether a connection exists only shows when the datagram is due.
    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let mut state = self.shared.lock();
        let next = state.emulator.poll_timeout();
        state.emulator.send(clock::now(), *to, bytes);
        self.shared.flush(&mut state.emulator);
        if state.emulator.poll_timeout() != next {
            self.shared.queue_changed.notify_one();
        }
        true
    }

    fn dial(&self, addr: &PeerAddr, expect: Option<PeerKey>) {
        self.shared.inner.dial(addr, expect);
    }

    fn cancel_dial(&self, peer: &PeerKey) {
        self.shared.inner.cancel_dial(peer);
    }

    fn addr_of(&self, peer: &PeerKey) -> Option<PeerAddr> {
        self.shared.inner.addr_of(peer)
    }

    fn own_addrs(&self) -> Vec<PeerAddr> {
        self.shared.inner.own_addrs()
    }

    fn drop_counts(&self) -> DropCounts {
        self.shared.inner.drop_counts()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coplay::time::Instant;

    use super::*;

    /// Transport that records when each datagram was really sent.
    #[derive(Default)]
    struct RecordingTransport(Mutex<Vec<(Instant, PeerKey, Vec<u8>)>>);

    impl RecordingTransport {
        fn sent(&self) -> Vec<(Instant, PeerKey, Vec<u8>)> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Transport for RecordingTransport {
        fn key(&self) -> PeerKey {
            PeerKey([9; 32])
        }

        fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
            self.0.lock().unwrap().push((clock::now(), *to, bytes.to_vec()));
            true
        }

        fn dial(&self, _: &PeerAddr, _: Option<PeerKey>) {}

        fn cancel_dial(&self, _: &PeerKey) {}

        fn addr_of(&self, _: &PeerKey) -> Option<PeerAddr> {
            Some(PeerAddr("here".into()))
        }

        fn own_addrs(&self) -> Vec<PeerAddr> {
            vec![]
        }

        fn drop_counts(&self) -> DropCounts {
            DropCounts { rejected: 3, ..DropCounts::default() }
        }
    }

    fn impaired(text: &str) -> (Arc<RecordingTransport>, ImpairedTransport) {
        let recording = Arc::new(RecordingTransport::default());
        let transport = ImpairedTransport::new(recording.clone(), text.parse().unwrap()).unwrap();
        (recording, transport)
    }

    #[test]
    fn without_delay_datagrams_are_sent_by_the_calling_thread() {
        let (recording, transport) = impaired("seed=3");
        for number in 0..100u8 {
            assert!(transport.send(&PeerKey([1; 32]), &[number]));
            assert_eq!(recording.sent().len(), usize::from(number) + 1, "the datagram has left when `send` returns");
        }
        assert_eq!(
            (transport.key(), transport.drop_counts().rejected),
            (PeerKey([9; 32]), 3),
            "other calls are passed on unchanged"
        );
    }

    #[test]
    fn delayed_datagrams_leave_on_time_and_in_order() {
        let (recording, transport) = impaired("delay=30");
        let began: Vec<Instant> = (0..20u8)
            .map(|number| {
                let now = clock::now();
                assert!(transport.send(&PeerKey([number % 3; 32]), &[number]));
                std::thread::sleep(Duration::from_millis(5));
                now
            })
            .collect();
        let until = clock::now() + TimeDelta::from_secs(30);
        while recording.sent().len() < 20 && clock::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = recording.sent();
        assert_eq!(sent.iter().map(|(_, _, bytes)| bytes[0]).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        let took: Vec<TimeDelta> = sent.iter().zip(&began).map(|((at, ..), began)| *at - *began).collect();
        assert!(took.iter().all(|took| *took >= TimeDelta::from_millis(30)), "{took:?}");
        // A loaded computer wakes up late now and then, but not every time.
        let best = took.iter().min().unwrap();
        assert!(*best < TimeDelta::from_millis(35), "{took:?}");
    }

    #[test]
    fn drop_discards_in_flight_datagrams_without_waiting() {
        let (recording, transport) = impaired("delay=10000");
        assert!(transport.send(&PeerKey([1; 32]), b"late"));
        let began = clock::now();
        drop(transport);
        assert!(clock::now() - began < TimeDelta::from_secs(5) && recording.sent().is_empty());
    }
}
