//! Helpers that wait for events of a transport.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use coplay_net::{Incoming, PeerKey};

/// Time limit of every wait, generous enough for a loaded computer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for the first event for which `pick` returns a value, discards the events before it, and returns the value.
#[track_caller]
pub(crate) fn wait_for<T>(incoming: &Receiver<Incoming>, pick: impl Fn(Incoming) -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match incoming.recv_timeout(left) {
            Ok(incoming) => {
                if let Some(picked) = pick(incoming) {
                    return picked;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the peer of a connection event.
pub(crate) fn connected_peer(incoming: Incoming) -> Option<PeerKey> {
    if let Incoming::Connected { peer, .. } = incoming { Some(peer) } else { None }
}

/// Returns the sender and content of a datagram event.
pub(crate) fn received_datagram(incoming: Incoming) -> Option<(PeerKey, Vec<u8>)> {
    if let Incoming::Datagram { from, bytes, .. } = incoming { Some((from, bytes)) } else { None }
}
