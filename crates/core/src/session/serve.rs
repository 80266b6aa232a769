//! Beside the game: those who watch and those who come late are served, and nothing of it reaches the players.

use super::event::Request;
use super::{Phase, Session, Transmit};
use crate::feed::FeedStats;
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::Word;
use crate::time::Instant;

/// Certain frames that can still be told.
const TELLABLE: u32 = 120;

/// A frame that is certain: stepped with the inputs that all sites gave, and not to be stepped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certain<'a> {
    /// Which.
    pub frame: Frame,
    /// One word per player.
    pub inputs: &'a [Word],
    /// The hash of the state after it, where states are compared.
    pub hash: Option<u64>,
}

impl Session {
    /// A datagram of the feed's family: for our own feed, or from the one that we watch.
    #[inline(never)]
    pub(super) fn handle_feed(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        if let Some(joining) = &mut self.joining {
            joining.watcher.handle_datagram(now, from, bytes);
        } else if let Some(feed) = &mut self.feed {
            feed.handle_datagram(now, from, bytes);
        } else {
            self.stats.dropped.strangers += 1;
        }
    }

    /// Everything that has become certain is kept for a search, and goes into the feed as soon as nobody can decide otherwise.
    #[inline]
    pub(super) fn feed_certain(&mut self) {
        if self.feed.is_some() || self.inquiry.is_some() {
            self.feed_frames();
        }
    }

    #[inline(never)]
    fn feed_frames(&mut self) {
        let certain = self.certain();
        let settled = if self.feed.is_some() { self.settled() } else { self.fed };
        // The words of the frame that is just given out must not change.
        core::mem::swap(&mut self.words, &mut self.fed_words);
        while self.inquiry.is_some() && self.searchable < certain {
            let frame = self.searchable;
            self.searchable = frame.next();
            self.gather_words(frame);
            if let Some(inquiry) = &mut self.inquiry {
                inquiry.push(frame, &self.words);
            }
        }
        while self.fed < settled {
            let frame = self.fed;
            self.fed = frame.next();
            self.gather_words(frame);
            let hash = self.tentative.get(frame).filter(|_| self.compare_next.is_some_and(|next| frame < next));
            if let Some(feed) = &mut self.feed {
                feed.push(self.called, frame, &self.words);
                hash.inspect(|hash| feed.push_hash(frame, *hash));
            }
        }
        core::mem::swap(&mut self.words, &mut self.fed_words);
    }

    /// The next frame that is certain, in order, for whoever keeps a [movie](crate::movie) or passes the game on. Ask after every frame:
    /// what is not asked for until 120 more are certain, which is two seconds at 60 per second, is skipped, and counted in
    /// [`Stats::skipped`](super::Stats::skipped).
    pub fn poll_certain(&mut self) -> Option<Certain<'_>> {
        let certain = self.certain();
        let oldest = certain.checked_sub(TELLABLE).unwrap_or_default();
        let next = self.told.max(self.born);
        let frame = next.max(oldest);
        // A frame's hash is asked for right after its step.
        let is_hashed = self.hashing.is_some_and(|hashed| hashed <= frame);
        if frame >= certain || is_hashed || self.joining.is_some() {
            return None;
        }
        self.told = frame.next();
        self.stats.skipped += (frame - next) as u64;
        core::mem::swap(&mut self.words, &mut self.fed_words);
        self.gather_words(frame);
        core::mem::swap(&mut self.words, &mut self.fed_words);
        Some(Certain { frame, inputs: &self.fed_words, hash: self.tentative.get(frame) })
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
    pub(super) fn wants_snapshot(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.wants_snapshot())
            && self.snapshot_asked.is_none()
            && self.config.can_save
    }

    /// The state before the first frame that is not certain: the machine's own, or, where it has guessed since, a saved one.
    #[cold]
    pub(super) fn ask_for_snapshot(&mut self) -> Request<'_> {
        self.feed_frames();
        let frame = self.certain();
        self.snapshot_asked = Some(frame);
        let slot = (frame < self.at).then(|| self.slot(frame));
        Request::Snapshot { frame, slot }
    }

    /// The state that [`Request::Snapshot`] asked for, and its hash. Without it whoever comes late waits a little longer.
    pub fn handle_snapshot(&mut self, state: &[u8], hash: u64) {
        let (Some(frame), Some(feed)) = (self.snapshot_asked, &mut self.feed) else { return };
        feed.set_snapshot(self.called, frame, state, hash);
    }

    /// Datagrams that do not belong to the game itself leave after those that do.
    #[inline(never)]
    pub(super) fn transmit_aside(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = now + self.set_back;
        if let Some(joining) = &mut self.joining {
            return joining.watcher.poll_transmit(now, buf);
        }
        let fed = self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, buf));
        fed.or_else(|| self.transmit_search(now, buf))
    }

    /// When there is something to do beside the game.
    pub(super) fn time_aside(&self) -> Instant {
        let watching = self.joining.as_ref().filter(|_| !self.is_at_the_end());
        let watcher = watching.and_then(|joining| joining.watcher.poll_timeout());
        let feed = self.feed.as_ref().and_then(|feed| feed.poll_timeout());
        watcher.into_iter().chain(feed).chain([self.search_time()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// How much of the state is here, in percent.
    pub(super) fn downloaded(&self) -> u8 {
        self.joining.as_ref().map_or(100, |joining| (joining.watcher.downloaded() * 100.0) as u8)
    }

    pub(super) fn memory_aside(&self) -> usize {
        let watcher = self.joining.as_ref().map_or(0, |joining| joining.watcher.memory());
        let inquiry = self.inquiry.as_ref().map_or(0, |inquiry| inquiry.memory());
        watcher + inquiry + self.feed.as_ref().map_or(0, |feed| feed.memory())
    }

    /// A latecomer makes up for the frames that it is behind as quickly as its machine can.
    pub(super) fn hurry(&mut self) {
        if self.frame < self.fast_until && matches!(self.phase, Phase::Running(_)) {
            let (now, next) = (self.called, self.frame);
            if let Some(pacer) = &mut self.pacer {
                pacer.leap(now, next);
            }
        }
    }
}
