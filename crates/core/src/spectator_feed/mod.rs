//! For those who only watch, and for those who come late: the frames that are certain, from one place to many.
//!
//! A [`Feed`] is the serving end. A site (or a relay, which is a [`Spectator`] with a feed of its own) pushes every confirmed frame
//! into it, and it encodes a batch of frames once for all who watch. A [`Spectator`] is the receiving end: it downloads a snapshot,
//! or begins at the first frame, catches up, and then plays what comes evenly, a little behind the players.
//!
//! What holds at any time:
//! - nothing that watchers do or fail to do reaches the players: a feed only takes, and what it sends in bulk has a budget;
//! - who watches sees exactly the frames that were played, in order, with the same inputs, or is told that he does not;
//! - a feed sends no more to an address than it got from there before that address has proven to be one;
//! - who cannot keep up is served less often and then dropped, alone;
//! - everything has a bound: watchers, memory, bytes in a second, and the size of what an untrusted source can make a watcher keep.
//!
//! Live frames are pushed to all. Everything else is pulled: a watcher asks for the frames and for the parts of a snapshot that it
//! misses, and asks again for what does not come, so that a feed keeps next to nothing about it, and the pace of a download is found
//! by the one who sees what arrives.
//!
//! # Example
//!
//! Somebody comes in the middle of a game whose state is a sum. A real host program does the same with sockets and a clock.
//!
//! ```
//! use coplay::feed::{Feed, FeedConfig, WatchConfig, WatchRequest, Watcher};
//! use coplay::frame::{Frame, FrameRate};
//! use coplay::id::{Addr, SiteSet};
//! use coplay::input::Ownership;
//! use coplay::session::{Absent, GameId, MachineId, Settings, Starvation};
//! use coplay::time::{Instant, TimeDelta};
//! use coplay::wire::MAX_DATAGRAM;
//!
//! let settings = Settings {
//!     game: GameId { name: "sum".into(), hash: [1; 32] },
//!     machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames: 0 },
//!     rate: FrameRate::per_second(60).unwrap(),
//!     lag: 6,
//!     window: 0,
//!     auto: false,
//!     absent: Absent::Nothing,
//!     starvation: Starvation::Wait,
//!     compare_every: 60,
//!     sites: 2,
//!     starters: SiteSet::first(2),
//!     ownership: Ownership::one_each(2, 0xffff),
//! };
//! let (mut now, mut buf) = (Instant::ZERO, [0; MAX_DATAGRAM]);
//! let mut feed = Feed::new(FeedConfig::new(7, 4_711, settings.clone())).unwrap();
//! let mut watcher: Option<Watcher> = None;
//! let (mut players, mut seen) = (0u64, 0u64); // the state of the players, and of the one who watches
//!
//! for frame in 0..600 {
//!     let words = [u128::from(frame / 10 % 16), 3];
//!     players += words.iter().sum::<u128>() as u64;
//!     feed.push(now, Frame::new(frame), &words);
//!     feed.push_hash(Frame::new(frame), players);
//!     if feed.wants_snapshot() {
//!         feed.set_snapshot(now, Frame::new(frame + 1), &players.to_le_bytes(), players);
//!     }
//!     if frame == 300 {
//!         watcher = Some(Watcher::new(now, WatchConfig::new(7, settings.clone(), vec![Addr(1)])).unwrap());
//!     }
//!     if let Some(watcher) = &mut watcher {
//!         while let Some(request) = watcher.poll_request(now) {
//!             match request {
//!                 WatchRequest::Load { state, .. } => seen = u64::from_le_bytes(state.try_into().unwrap()),
//!                 WatchRequest::Advance { inputs, .. } => seen += inputs.iter().sum::<u128>() as u64,
//!                 WatchRequest::Hash { .. } => watcher.handle_hash(seen),
//!             }
//!         }
//!         while let Some(packet) = watcher.poll_transmit(now, &mut buf) {
//!             feed.handle_datagram(now, Addr(2), &buf[..packet.len]);
//!         }
//!         while let Some(packet) = feed.poll_transmit(now, &mut buf) {
//!             watcher.handle_datagram(now, Addr(1), &buf[..packet.len]);
//!         }
//!     }
//!     now += TimeDelta::from_nanos(16_666_667);
//! }
//! let watcher = watcher.unwrap();
//! assert!(watcher.is_live() && watcher.newest_frame() - watcher.next_frame() < 20);
//! assert_eq!(watcher.stats().mismatches, 0);
//! ```

mod batch;
mod congestion;
mod download;
mod event;
mod history;
mod playout;
mod publisher;
mod record_buffer;
mod snapshot;
mod spectator;
mod subscriber;

pub use event::{FeedEvent, FeedStats, SourceError, SpectatorEvent, SpectatorRequest, SpectatorStats};
pub use publisher::{Feed, FeedConfig};
pub use spectator::{Spectator, SpectatorConfig, SpectatorStart};

use crate::id::{MAX_SITES, SiteId};
use crate::input::{InputLayout, Ownership};
use crate::session::Settings;
use crate::time::TimeDelta;
use crate::wire::hello::put_settings;
use crate::wire::{ByteWriter, MAX_DATAGRAM};

/// A snapshot is cut into blocks of this size, each of which is compressed and checked by itself.
pub(crate) const BLOCK_SIZE: usize = 16 * 1_024;
/// A block travels in parts of this size.
pub(crate) const PART_SIZE: usize = 1_100;
/// So many parts at most make a block.
pub(crate) const MAX_PARTS_PER_BLOCK: usize = BLOCK_SIZE.div_ceil(PART_SIZE);
/// The most bytes of change tokens in a record.
pub(crate) const MAX_CHANGES_SIZE: usize = 1_000;
/// The most bytes of a record: count, hash, length and changes.
pub(crate) const MAX_RECORD_SIZE: usize = MAX_CHANGES_SIZE + 16;

/// A feed says at least this often that it is there.
pub(crate) const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

const _: () = assert!(MAX_PARTS_PER_BLOCK <= 16, "the parts of a block are told in 16 bits");

/// How the inputs of all players travel: every bit that anybody owns.
fn merged_layout(settings: &Settings) -> InputLayout {
    let ownership = &settings.ownership;
    let mut all = Ownership::new(ownership.players());
    let everyone = SiteId::new(0).expect("there is a first site");
    for player in 0..ownership.players() {
        let mask = SiteId::first(MAX_SITES).fold(0, |bits, site| bits | ownership.mask(site, player));
        all.assign(everyone, player, mask).expect("nobody else owns anything");
    }
    all.layout(everyone)
}

/// A digest of everything that must be equal to watch a game.
fn settings_digest(settings: &Settings) -> u64 {
    let mut buf = [0; MAX_DATAGRAM];
    let mut writer = ByteWriter::new(&mut buf);
    let mut settings = settings.clone();
    settings.game.name.clear();
    let len = put_settings(&mut writer, &settings).map_or(0, |()| writer.len());
    digest(0, &buf[..len])
}

/// Spreads bytes over 64 bits. It finds what went wrong; it does not stop who wants to deceive.
fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&tail]).map(|word| u64::from_le_bytes(*word));
    words.fold(mix(seed, bytes.len() as u64), mix)
}

/// Folds a number into a digest.
fn mix(digest: u64, number: u64) -> u64 {
    let product = u128::from(digest ^ 0x9e37_79b9_7f4a_7c15) * u128::from(number ^ 0xd6e8_feb8_6659_fd93 | 1);
    let folded = (product as u64 ^ (product >> 64) as u64).wrapping_add(number.rotate_left(32));
    let spread = (folded ^ folded >> 32).wrapping_mul(0xe703_7ed1_a0b4_28db);
    spread ^ spread >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn digest_depends_on_every_bit_and_the_length() {
        let zeros = vec![0u8; 100];
        let of_zeros = digest(1, &zeros);
        for bit in 0..800 {
            let mut other = zeros.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(1, &other), of_zeros, "bit {bit}");
        }
        assert_ne!(digest(1, &zeros[..99]), of_zeros);
        assert_ne!(digest(2, &zeros), of_zeros);
    }
}
