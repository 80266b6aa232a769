//! A way out that is worse than the real one, for tests and measurements: the bad links of `coplay-sim` on real transports.
//!
//! Only what is sent is touched, to each peer by a [link](coplay_sim::link) of its own; what comes in was touched where it was sent, if
//! there. Handshakes of the transport below, and what it adds to a datagram, are not seen here. A copy is sealed anew below and so arrives
//! as a second datagram of the same content: more than a network can do to a secured transport, and no more than an engine must bear.
//!
//! One thread waits for what is due next. The luck of the n-th datagram to the n-th peer depends on the seed alone.

mod outbox;
mod text;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use coplay::time::TimeDelta;
use coplay_sim::link::LinkConfig;

use crate::clock;
use crate::key::PeerKey;
use crate::transport::{Place, Refused, Transport};

pub use outbox::Outbox;
pub use text::ImpairmentError;

/// How a way out is worse than the real one. As a text it is read by [`str::parse`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairment {
    /// The conditions on the way to each peer.
    pub link: LinkConfig,
    /// When nothing gets through: from when until when, counted from the beginning.
    pub cuts: Vec<(TimeDelta, TimeDelta)>,
    /// What chance is drawn from.
    pub seed: u64,
}

/// A transport whose way out is worse than it is.
pub struct Impaired {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inner: Arc<dyn Transport>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    outbox: Outbox,
    over: bool,
}

impl Impaired {
    /// Makes the way out of a transport worse, from now on.
    pub fn new(inner: Arc<dyn Transport>, impairment: Impairment) -> io::Result<Self> {
        let outbox = Outbox::new(clock::now(), impairment);
        let state = Mutex::new(State { outbox, over: false });
        let shared = Arc::new(Shared { inner, state, changed: Condvar::new() });
        let sender = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("impair".into()).spawn(move || sender.send_when_due())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Impaired {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ended by a panic of its own, which was told when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_when_due(&self) {
        let mut state = self.lock();
        while !state.over {
            self.flush(&mut state.outbox);
            state = match state.outbox.poll_timeout() {
                Some(due) => {
                    let left = (due - clock::now()).to_duration();
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Sends what is due, in its order: nobody else sends meanwhile.
    fn flush(&self, outbox: &mut Outbox) {
        while let Some((to, bytes)) = outbox.poll_transmit(clock::now()) {
            // If there is no way at the moment, it is lost on the way.
            let _ = self.inner.send(&to, &bytes);
        }
    }
}

impl Transport for Impaired {
    fn key(&self) -> PeerKey {
        self.shared.inner.key()
    }

    /// What is under way counts as sent: whether there is a way is only seen when its time has come.
    fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
        let mut state = self.shared.lock();
        let next = state.outbox.poll_timeout();
        state.outbox.send(clock::now(), *to, bytes);
        self.shared.flush(&mut state.outbox);
        if state.outbox.poll_timeout() != next {
            self.shared.changed.notify_one();
        }
        true
    }

    fn call(&self, place: &Place, expect: Option<PeerKey>) {
        self.shared.inner.call(place, expect);
    }

    fn hang_up(&self, peer: &PeerKey) {
        self.shared.inner.hang_up(peer);
    }

    fn place_of(&self, peer: &PeerKey) -> Option<Place> {
        self.shared.inner.place_of(peer)
    }

    fn own_places(&self) -> Vec<Place> {
        self.shared.inner.own_places()
    }

    fn refused(&self) -> Refused {
        self.shared.inner.refused()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coplay::time::Instant;

    use super::*;

    /// Notes when something was really sent.
    #[derive(Default)]
    struct Notebook(Mutex<Vec<(Instant, PeerKey, Vec<u8>)>>);

    impl Notebook {
        fn sent(&self) -> Vec<(Instant, PeerKey, Vec<u8>)> {
            self.0.lock().unwrap().clone()
        }
    }

    impl Transport for Notebook {
        fn key(&self) -> PeerKey {
            PeerKey([9; 32])
        }

        fn send(&self, to: &PeerKey, bytes: &[u8]) -> bool {
            self.0.lock().unwrap().push((clock::now(), *to, bytes.to_vec()));
            true
        }

        fn call(&self, _: &Place, _: Option<PeerKey>) {}

        fn hang_up(&self, _: &PeerKey) {}

        fn place_of(&self, _: &PeerKey) -> Option<Place> {
            Some(Place("here".into()))
        }

        fn own_places(&self) -> Vec<Place> {
            vec![]
        }

        fn refused(&self) -> Refused {
            Refused { by_us: 3, ..Refused::default() }
        }
    }

    fn impaired(text: &str) -> (Arc<Notebook>, Impaired) {
        let notebook = Arc::new(Notebook::default());
        let transport = Impaired::new(notebook.clone(), text.parse().unwrap()).unwrap();
        (notebook, transport)
    }

    #[test]
    fn without_delay_it_is_sent_at_once_and_by_who_sends() {
        let (notebook, transport) = impaired("seed=3");
        for number in 0..100u8 {
            assert!(transport.send(&PeerKey([1; 32]), &[number]));
            assert_eq!(notebook.sent().len(), usize::from(number) + 1, "it is gone when `send` is over");
        }
        assert_eq!((transport.key(), transport.refused().by_us), (PeerKey([9; 32]), 3), "the rest is as it was");
    }

    #[test]
    fn what_is_delayed_leaves_in_its_time_and_order() {
        let (notebook, transport) = impaired("delay=30");
        let began: Vec<Instant> = (0..20u8)
            .map(|number| {
                let now = clock::now();
                assert!(transport.send(&PeerKey([number % 3; 32]), &[number]));
                std::thread::sleep(Duration::from_millis(5));
                now
            })
            .collect();
        let until = clock::now() + TimeDelta::from_secs(30);
        while notebook.sent().len() < 20 && clock::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent = notebook.sent();
        assert_eq!(sent.iter().map(|(_, _, bytes)| bytes[0]).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        let took: Vec<TimeDelta> = sent.iter().zip(&began).map(|((at, ..), began)| *at - *began).collect();
        assert!(took.iter().all(|took| *took >= TimeDelta::from_millis(30)), "{took:?}");
        // A computer with much else to do wakes late now and then, but not always.
        let best = took.iter().min().unwrap();
        assert!(*best < TimeDelta::from_millis(35), "{took:?}");
    }

    #[test]
    fn what_is_under_way_at_the_end_is_lost_and_nobody_waits_for_it() {
        let (notebook, transport) = impaired("delay=10000");
        assert!(transport.send(&PeerKey([1; 32]), b"late"));
        let began = clock::now();
        drop(transport);
        assert!(clock::now() - began < TimeDelta::from_secs(5) && notebook.sent().is_empty());
    }
}
