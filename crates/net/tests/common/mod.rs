//! What comes from a transport, one thing after the other.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use coplay_net::{Incoming, PeerKey};

/// Nothing here takes longer, even where the computer has much else to do.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for something that comes.
#[track_caller]
pub fn wait_for<T>(incoming: &Receiver<Incoming>, pick: impl Fn(Incoming) -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
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

/// There is a way to somebody.
pub fn connected_peer(incoming: Incoming) -> Option<PeerKey> {
    if let Incoming::Connected { peer, .. } = incoming { Some(peer) } else { None }
}

/// Somebody sends something.
pub fn received_datagram(incoming: Incoming) -> Option<(PeerKey, Vec<u8>)> {
    if let Incoming::Datagram { from, bytes, .. } = incoming { Some((from, bytes)) } else { None }
}
