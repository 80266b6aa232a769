//! Spectator feed: carries confirmed frames from one source to many spectators and to late joiners.
//!
//! A [`Feed`] is the sending end. A site, or a relay (a [`Spectator`] with a feed of its own), pushes every confirmed
//! frame into the feed, and the feed encodes each batch of frames once for all spectators. A [`Spectator`] is the
//! receiving end. It downloads a snapshot or begins at the first frame, catches up, and then presents frames at an even
//! pace, a little behind the players.
//!
//! Invariants:
//! - Spectators cannot affect the players. A feed only receives frames from the session, and its bulk traffic has a
//!   byte budget.
//! - From its starting state on, a spectator steps the frames that were played, in order and with the same inputs.
//!   State hashes in the feed reveal a difference, which the spectator reports.
//! - A feed sends no more bytes to an address than it received from there until the address has answered a challenge.
//! - A spectator that cannot keep up is throttled and then dropped, without effect on the others.
//! - Everything is bounded: spectators, memory, bytes per second, and the memory that an untrusted source can make a
//!   spectator allocate.
//!
//! Live frames are pushed to all spectators. Everything else is pulled: a spectator requests the frames and the
//! snapshot parts that it lacks, and repeats requests that stay unanswered. The feed therefore keeps little state per
//! spectator, and the spectator, which sees what arrives, controls the download rate.
//!
//! # Example
//!
//! A spectator joins in the middle of a game whose state is a sum. A real host program does the same with sockets and a
//! clock.
//!
//! ```
//! use coplay::spectator_feed::{Feed, FeedConfig, Spectator, SpectatorConfig, SpectatorRequest};
//! use coplay::frame::{Frame, FrameRate};
//! use coplay::id::Addr;
//! use coplay::session::{GameId, MachineId, Settings};
//! use coplay::time::{Instant, TimeDelta};
//! use coplay::codec::MAX_DATAGRAM;
//!
//! let rate = FrameRate::per_second(60).unwrap();
//! let game = Settings::builder(GameId::new("sum", [1; 32]), MachineId::new("adder", "1"), rate);
//! let settings = game.lockstep().build().unwrap();
//! let (mut now, mut buf) = (Instant::ZERO, [0; MAX_DATAGRAM]);
//! let mut feed = Feed::new(FeedConfig::new(7, 4_711, settings.clone())).unwrap();
//! let mut spectator: Option<Spectator> = None;
//! let (mut players, mut seen) = (0u64, 0u64); // the players' state and the spectator's
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
//!         spectator = Some(Spectator::new(now, SpectatorConfig::new(7, settings.clone(), vec![Addr(1)])).unwrap());
//!     }
//!     if let Some(spectator) = &mut spectator {
//!         while let Some(request) = spectator.poll_request(now) {
//!             match request {
//!                 SpectatorRequest::Load { state, .. } => seen = u64::from_le_bytes(state.try_into().unwrap()),
//!                 SpectatorRequest::Advance { inputs, .. } => seen += inputs.iter().sum::<u128>() as u64,
//!                 SpectatorRequest::Hash { .. } => spectator.handle_hash(seen),
//!             }
//!         }
//!         while let Some(packet) = spectator.poll_transmit(now, &mut buf) {
//!             feed.handle_datagram(now, Addr(2), &buf[..packet.len]);
//!         }
//!         while let Some(packet) = feed.poll_transmit(now, &mut buf) {
//!             spectator.handle_datagram(now, Addr(1), &buf[..packet.len]);
//!         }
//!     }
//!     now += TimeDelta::from_nanos(16_666_667);
//! }
//! let spectator = spectator.unwrap();
//! assert!(spectator.is_live() && spectator.newest_frame() - spectator.next_frame() < 20);
//! assert_eq!(spectator.stats().mismatches, 0);
//! ```

mod batch;
mod download;
mod download_window;
mod event;
mod history;
pub mod message;
mod playout;
mod publisher;
mod record_buffer;
mod snapshot;
mod spectator;
mod subscriber;

pub use event::{FeedEvent, FeedStats, SourceError, SpectatorEvent, SpectatorRequest, SpectatorStats};
pub use publisher::{Feed, FeedConfig};
pub use spectator::{Spectator, SpectatorConfig, SpectatorStart};

use crate::codec::{ByteWriter, MAX_DATAGRAM};
use crate::id::{MAX_SITES, SiteId};
use crate::input::{InputLayout, Ownership};
use crate::settings::Settings;
use crate::settings::encode::put_settings;
use crate::time::TimeDelta;

/// Size of a block of a snapshot in bytes; the last block may be shorter. Each block is compressed, if that saves
/// enough, and checked separately.
pub(crate) const BLOCK_SIZE: usize = 16 * 1_024;
/// Largest payload of a snapshot part, in bytes. Only the last part of a block can be shorter.
pub(crate) const PART_SIZE: usize = 1_100;
/// Largest number of parts in a block.
pub(crate) const MAX_PARTS_PER_BLOCK: usize = BLOCK_SIZE.div_ceil(PART_SIZE);
/// Largest size of the input changes of one record, in bytes.
pub(crate) const MAX_CHANGES_SIZE: usize = 1_000;
/// Largest size of a record in bytes: count, hash, length and changes.
pub(crate) const MAX_RECORD_SIZE: usize = MAX_CHANGES_SIZE + 16;

/// Keep-alive interval of a feed without new frames, and of a spectator that requests no frames.
pub(crate) const KEEP_ALIVE_INTERVAL: TimeDelta = TimeDelta::from_millis(500);

const _: () = assert!(MAX_PARTS_PER_BLOCK <= 16, "the parts of a block must fit a 16-bit mask");

/// Returns the input layout of a feed: one site that owns every bit that any site of `settings` owns.
fn merged_layout(settings: &Settings) -> InputLayout {
    let ownership = &settings.ownership;
    let mut all = Ownership::new(ownership.players());
    let merged_site = SiteId::new(0).expect("site 0 is valid");
    for player in 0..ownership.players() {
        let mask = SiteId::first(MAX_SITES).fold(0, |bits, site| bits | ownership.mask(site, player));
        all.assign(merged_site, player, mask).expect("the merged ownership has a single owner");
    }
    all.layout(merged_site)
}

/// Returns the digest by which a feed and a spectator compare their settings. The game's name is excluded, because it
/// is for people only.
fn settings_digest(settings: &Settings) -> u64 {
    let mut buf = [0; MAX_DATAGRAM];
    let mut writer = ByteWriter::new(&mut buf);
    let mut settings = settings.clone();
    settings.game.name.clear();
    let len = put_settings(&mut writer, &settings).map_or(0, |()| writer.len());
    digest(0, &buf[..len])
}

/// Hashes bytes to 64 bits. Detects corruption; does not resist deliberate forgery.
fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut tail = [0; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&tail]).map(|word| u64::from_le_bytes(*word));
    words.fold(mix(seed, bytes.len() as u64), mix)
}

/// Returns `digest` with `number` mixed in.
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
