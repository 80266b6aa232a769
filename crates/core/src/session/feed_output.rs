//! Output of confirmed frames to the spectator feed and to programs that record the game. The players never wait for
//! spectators.
//!
//! Each frame is published once, in order. Frames are published only once they are irrevocable. A program that records
//! the game gets confirmed frames; those that it does not read in time are skipped.

use alloc::boxed::Box;

use super::Transmit;
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::spectator_feed::{Feed, FeedStats};
use crate::time::Instant;

/// Largest number of unread confirmed frames that [`Session::poll_confirmed`](super::Session::poll_confirmed) can
/// return; older ones are skipped.
const MAX_UNREAD_CONFIRMED_FRAMES: u32 = 120;

/// A confirmed frame: stepped with the inputs that all sites gave, and never resimulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedFrame<'a> {
    /// The frame that was stepped with `inputs`.
    pub frame: Frame,
    /// Input word of each player, by player number.
    pub inputs: &'a [InputWord],
    /// Hash of the state after the frame; `None` if the state of this frame is not compared or the host program gave no
    /// hash.
    pub hash: Option<u64>,
}

/// The feed for spectators and late joiners, and the progress of the program that records the game.
#[derive(Debug)]
pub(super) struct Publisher {
    /// `None` if the configuration has no feed.
    feed: Option<Box<Feed>>,
    /// End of the frames that were pushed to the feed.
    feed_end: Frame,
    /// End of the frames that [`Session::poll_confirmed`](super::Session::poll_confirmed) has returned.
    record_end: Frame,
    /// The frame for which a snapshot was requested from the host program; cleared when the next frame begins.
    snapshot_requested: Option<Frame>,
}

impl Publisher {
    pub(super) fn new(feed: Option<Box<Feed>>) -> Self {
        Self { feed, feed_end: Frame::ZERO, record_end: Frame::ZERO, snapshot_requested: None }
    }

    #[inline]
    pub(super) fn has_feed(&self) -> bool {
        self.feed.is_some()
    }

    /// Returns the end of the frames that were pushed to the feed.
    pub(super) fn feed_end(&self) -> Frame {
        self.feed_end
    }

    /// Returns whether all frames before `last` are in the feed, if there is one.
    pub(super) fn has_published(&self, last: Frame) -> bool {
        self.feed.is_none() || self.feed_end >= last
    }

    /// Begins to publish with frame `first`, from which on this site plays after a late join.
    pub(super) fn start_at(&mut self, first: Frame) {
        self.feed_end = first;
    }

    /// Publishes the next frame with its inputs, and the hash of the state after it if that is known.
    pub(super) fn publish(&mut self, now: Instant, inputs: &[InputWord], hash: Option<u64>) {
        let frame = self.feed_end;
        self.feed_end = frame.next();
        if let Some(feed) = &mut self.feed {
            feed.push(now, frame, inputs);
            hash.inspect(|hash| feed.push_hash(frame, *hash));
        }
    }

    /// Publishes the hash of the state after a frame.
    pub(super) fn publish_hash(&mut self, frame: Frame, hash: u64) {
        if let Some(feed) = &mut self.feed {
            feed.push_hash(frame, hash);
        }
    }

    /// Returns the next frame for the program that records the game, and the number of frames that were skipped before
    /// it; `None` if there is no unread one. `confirmed` is the end of the confirmed frames, `joined_at` the first
    /// frame that this site played, and `pending_hash` the frame whose hash was requested.
    pub(super) fn next_recorded(
        &mut self,
        confirmed: Frame,
        joined_at: Frame,
        pending_hash: Option<Frame>,
    ) -> Option<(Frame, u64)> {
        let oldest = confirmed.checked_sub(MAX_UNREAD_CONFIRMED_FRAMES).unwrap_or_default();
        let next = self.record_end.max(joined_at);
        let frame = next.max(oldest);
        // The hash of a frame is requested right after its step.
        if frame >= confirmed || pending_hash.is_some_and(|hashed| hashed <= frame) {
            return None;
        }
        self.record_end = frame.next();
        Some((frame, (frame - next) as u64))
    }

    /// Drops all subscribers of the feed, which then switch to another source, and accepts no new ones.
    pub(super) fn close(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.drop_all();
        }
    }

    /// Discards the snapshots of the feed: a site that starts from an older one would not arrive at this site's state.
    pub(super) fn retire_snapshots(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.retire_snapshots();
        }
    }

    /// Returns whether a subscriber of the feed needs a snapshot, and none was requested since the last frame began.
    #[inline]
    pub(super) fn is_snapshot_due(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.wants_snapshot()) && self.snapshot_requested.is_none()
    }

    /// Notes that the state before a frame was requested.
    pub(super) fn on_snapshot_requested(&mut self, frame: Frame) {
        self.snapshot_requested = Some(frame);
    }

    /// Notes that a frame begins: another snapshot may be requested.
    #[inline]
    pub(super) fn on_begin(&mut self) {
        self.snapshot_requested = None;
    }

    /// Takes in the requested snapshot.
    pub(super) fn set_snapshot(&mut self, now: Instant, state: &[u8], hash: u64) {
        let (Some(frame), Some(feed)) = (self.snapshot_requested, &mut self.feed) else { return };
        feed.set_snapshot(now, frame, state, hash);
    }

    /// Handles a datagram of a subscriber. Returns `false` if there is no feed.
    pub(super) fn handle_datagram(&mut self, now: Instant, from: Addr, bytes: &[u8]) -> bool {
        let Some(feed) = &mut self.feed else { return false };
        feed.handle_datagram(now, from, bytes);
        true
    }

    /// Writes the next datagram to a subscriber.
    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, buf))
    }

    /// Returns when the feed next has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.feed.as_ref().and_then(|feed| feed.poll_timeout())
    }

    pub(super) fn stats(&self) -> Option<FeedStats> {
        self.feed.as_ref().map(|feed| feed.stats())
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.feed.as_ref().map_or(0, |feed| feed.memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(publisher: &mut Publisher, confirmed: u32, pending: Option<u32>) -> Option<(u32, u64)> {
        let next = publisher.next_recorded(Frame::new(confirmed), Frame::ZERO, pending.map(Frame::new));
        next.map(|(frame, skipped)| (frame.number(), skipped))
    }

    #[test]
    fn confirmed_frames_are_recorded_in_order_once() {
        let mut publisher = Publisher::new(None);
        assert_eq!(recorded(&mut publisher, 2, None), Some((0, 0)));
        assert_eq!(recorded(&mut publisher, 2, Some(1)), None, "the hash of frame 1 is missing");
        assert_eq!(recorded(&mut publisher, 2, None), Some((1, 0)));
        assert_eq!(recorded(&mut publisher, 2, None), None);
    }

    #[test]
    fn unread_frames_are_skipped_after_120() {
        let mut publisher = Publisher::new(None);
        assert_eq!(recorded(&mut publisher, 150, None), Some((30, 30)));
        assert_eq!(recorded(&mut publisher, 150, None), Some((31, 0)));
    }

    #[test]
    fn feed_end_follows_published_frames() {
        let mut publisher = Publisher::new(None);
        publisher.start_at(Frame::new(40));
        publisher.publish(Instant::ZERO, &[1], None);
        assert_eq!(publisher.feed_end(), Frame::new(41));
        assert!(publisher.has_published(Frame::new(99)), "there is no feed");
    }
}
