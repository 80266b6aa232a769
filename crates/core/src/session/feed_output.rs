//! Beside the game: those who watch and those who come late are served, and nothing of it reaches the players.

use super::event::Request;
use super::{Phase, Session, Transmit};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::spectator_feed::FeedStats;
use crate::time::Instant;

/// Certain frames that can still be told.
const MAX_UNREAD_CONFIRMED_FRAMES: u32 = 120;

/// A frame that is certain: stepped with the inputs that all sites gave, and not to be stepped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmedFrame<'a> {
    /// Which.
    pub frame: Frame,
    /// One word per player.
    pub inputs: &'a [InputWord],
    /// The hash of the state after it, where states are compared.
    pub hash: Option<u64>,
}

impl Session {
    /// A datagram of the feed's family: for our own feed, or from the one that we watch.
    #[inline(never)]
    pub(super) fn handle_feed(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        if let Some(joining) = &mut self.joining {
            joining.spectator.handle_datagram(now, from, bytes);
        } else if let Some(feed) = &mut self.feed {
            feed.handle_datagram(now, from, bytes);
        } else {
            self.stats.dropped_datagrams.strangers += 1;
        }
    }

    /// Everything that has become certain is kept for a search, and goes into the feed as soon as nobody can decide otherwise.
    #[inline]
    pub(super) fn feed_confirmed(&mut self) {
        if self.feed.is_some() || self.desync_search.is_some() {
            self.feed_confirmed_frames();
        }
    }

    #[inline(never)]
    fn feed_confirmed_frames(&mut self) {
        let certain = self.confirmed_end();
        let settled = if self.feed.is_some() { self.irrevocable_end() } else { self.feed_end };
        // The words of the frame that is just given out must not change.
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        while self.desync_search.is_some() && self.search_end < certain {
            let frame = self.search_end;
            self.search_end = frame.next();
            self.gather_inputs(frame);
            if let Some(inquiry) = &mut self.desync_search {
                inquiry.push(frame, &self.input_words);
            }
        }
        while self.feed_end < settled {
            let frame = self.feed_end;
            self.feed_end = frame.next();
            self.gather_inputs(frame);
            let hash =
                self.tentative_hashes.get(frame).filter(|_| self.next_compared_frame.is_some_and(|next| frame < next));
            if let Some(feed) = &mut self.feed {
                feed.push(self.last_call, frame, &self.input_words);
                hash.inspect(|hash| feed.push_hash(frame, *hash));
            }
        }
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
    }

    /// The next frame that is certain, in order, for whoever keeps a [movie](crate::movie) or passes the game on. Ask after every frame:
    /// what is not asked for until 120 more are certain, which is two seconds at 60 per second, is skipped, and counted in
    /// [`Stats::skipped`](super::Stats::skipped_confirmed).
    pub fn poll_certain(&mut self) -> Option<ConfirmedFrame<'_>> {
        let certain = self.confirmed_end();
        let oldest = certain.checked_sub(MAX_UNREAD_CONFIRMED_FRAMES).unwrap_or_default();
        let next = self.record_end.max(self.joined_at);
        let frame = next.max(oldest);
        // A frame's hash is asked for right after its step.
        let is_hashed = self.hash_pending.is_some_and(|hashed| hashed <= frame);
        if frame >= certain || is_hashed || self.joining.is_some() {
            return None;
        }
        self.record_end = frame.next();
        self.stats.skipped_confirmed += (frame - next) as u64;
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        self.gather_inputs(frame);
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        Some(ConfirmedFrame { frame, inputs: &self.scratch_words, hash: self.tentative_hashes.get(frame) })
    }

    /// The feed beside the game in numbers, if there is one.
    pub fn feed_stats(&self) -> Option<FeedStats> {
        self.feed.as_ref().map(|feed| feed.stats())
    }

    pub(super) fn feed_hash(&mut self, frame: Frame, hash: u64) {
        if let Some(feed) = &mut self.feed {
            feed.push_hash(frame, hash);
        }
    }

    /// Whether somebody waits for a state, and there is one that is certain.
    #[inline]
    pub(super) fn is_snapshot_due(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.wants_snapshot())
            && self.snapshot_requested.is_none()
            && self.config.can_save
    }

    /// The state before the first frame that is not certain: the machine's own, or, where it has guessed since, a saved one.
    #[cold]
    pub(super) fn request_snapshot(&mut self) -> Request<'_> {
        self.feed_confirmed_frames();
        let frame = self.confirmed_end();
        self.snapshot_requested = Some(frame);
        let slot = (frame < self.machine_frame).then(|| self.save_slot(frame));
        Request::Snapshot { frame, slot }
    }

    /// The state that [`MirrorRequest::Snapshot`] asked for, and its hash. Without it whoever comes late waits a little longer.
    pub fn handle_snapshot(&mut self, state: &[u8], hash: u64) {
        let (Some(frame), Some(feed)) = (self.snapshot_requested, &mut self.feed) else { return };
        feed.set_snapshot(self.last_call, frame, state, hash);
    }

    /// Datagrams that do not belong to the game itself leave after those that do.
    #[inline(never)]
    pub(super) fn transmit_side_work(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = now + self.clock_set_back;
        if let Some(joining) = &mut self.joining {
            return joining.spectator.poll_transmit(now, buf);
        }
        let fed = self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, buf));
        fed.or_else(|| self.transmit_desync_query(now, buf))
    }

    /// When there is something to do beside the game.
    pub(super) fn next_side_work_time(&self) -> Instant {
        let watching = self.joining.as_ref().filter(|_| !self.has_consumed_feed());
        let watcher = watching.and_then(|joining| joining.spectator.poll_timeout());
        let feed = self.feed.as_ref().and_then(|feed| feed.poll_timeout());
        watcher.into_iter().chain(feed).chain([self.next_search_time()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// How much of the state is here, in percent.
    pub(super) fn download_percent(&self) -> u8 {
        self.joining.as_ref().map_or(100, |joining| (joining.spectator.download_progress() * 100.0) as u8)
    }

    pub(super) fn side_work_memory(&self) -> usize {
        let watcher = self.joining.as_ref().map_or(0, |joining| joining.spectator.memory());
        let inquiry = self.desync_search.as_ref().map_or(0, |inquiry| inquiry.memory());
        watcher + inquiry + self.feed.as_ref().map_or(0, |feed| feed.memory())
    }

    /// A latecomer makes up for the frames that it is behind as quickly as its machine can.
    pub(super) fn catch_up(&mut self) {
        if self.frame < self.catch_up_until && matches!(self.phase, Phase::Running(_)) {
            let (now, next) = (self.last_call, self.frame);
            if let Some(pacer) = &mut self.pacer {
                pacer.jump_to(now, next);
            }
        }
    }
}
