//! Output of confirmed frames to the spectator feed, to desync searches and to programs that record the game; the
//! schedule of all work beside the frame loop; and the catch-up of a late joiner. The players never wait for
//! spectators.

use super::irrevocable::irrevocable_end;
use super::peer::Peer;
use super::phase::Phase;
use super::request::Request;
use super::{Session, Transmit};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::InputWord;
use crate::spectator_feed::FeedStats;
use crate::time::Instant;

/// Largest number of unread confirmed frames that [`Session::poll_confirmed`] can return; older ones are skipped.
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

impl Session {
    /// Handles a datagram of the feed protocol: at a joiner from the feed that it downloads, otherwise for this site's
    /// feed.
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

    /// Keeps the inputs of new confirmed frames for desync searches, and adds frames to the feed as soon as no
    /// membership decision can change their inputs any more.
    #[inline]
    pub(super) fn feed_confirmed(&mut self) {
        if self.feed.is_some() || self.desync_search.is_some() {
            self.feed_confirmed_frames();
        }
    }

    /// Returns the end of the frames that no membership decision can change any more.
    fn irrevocable_end(&self) -> Frame {
        let settings = &self.delay_settings;
        let lead = (settings.input_delay + settings.prediction_window).max(self.max_lead);
        let unpublished = self.feed_end.max(self.own_inputs.start());
        irrevocable_end(&self.peers, self.electorate(), (unpublished, self.confirmed_end()), lead)
    }

    #[inline(never)]
    fn feed_confirmed_frames(&mut self) {
        let confirmed = self.confirmed_end();
        let irrevocable = if self.feed.is_some() { self.irrevocable_end() } else { self.feed_end };
        // The inputs of the frame in the current request must not change.
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        while self.desync_search.is_some() && self.search_end < confirmed {
            let frame = self.search_end;
            self.search_end = frame.next();
            self.gather_inputs(frame);
            if let Some(search) = &mut self.desync_search {
                search.push(frame, &self.input_words);
            }
        }
        while self.feed_end < irrevocable {
            let frame = self.feed_end;
            self.feed_end = frame.next();
            self.gather_inputs(frame);
            let hash = self.comparison.published_hash(frame);
            if let Some(feed) = &mut self.feed {
                feed.push(self.clock.last_call(), frame, &self.input_words);
                hash.inspect(|hash| feed.push_hash(frame, *hash));
            }
        }
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
    }

    /// Returns the next confirmed frame, for a program that records a [movie](crate::movie) or forwards the game;
    /// `None` if there is no unread one yet. Call it after every frame until it returns `None`: a frame that is not
    /// read before 120 more are confirmed (2 s at 60 frames per second) is skipped and counted in
    /// [`Stats::skipped_confirmed`](super::Stats::skipped_confirmed).
    pub fn poll_confirmed(&mut self) -> Option<ConfirmedFrame<'_>> {
        let confirmed = self.confirmed_end();
        let oldest = confirmed.checked_sub(MAX_UNREAD_CONFIRMED_FRAMES).unwrap_or_default();
        let next = self.record_end.max(self.joined_at);
        let frame = next.max(oldest);
        // The hash of a frame is requested right after its step.
        let is_hashed = self.comparison.pending_hash().is_some_and(|hashed| hashed <= frame);
        if frame >= confirmed || is_hashed || self.joining.is_some() {
            return None;
        }
        self.record_end = frame.next();
        self.stats.skipped_confirmed += (frame - next) as u64;
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        self.gather_inputs(frame);
        core::mem::swap(&mut self.input_words, &mut self.scratch_words);
        Some(ConfirmedFrame { frame, inputs: &self.scratch_words, hash: self.comparison.hash(frame) })
    }

    /// Drops all subscribers of the feed, which then switch to another source, and accepts no new ones.
    pub(super) fn close_feed(&mut self) {
        if let Some(feed) = &mut self.feed {
            feed.drop_all();
        }
    }

    /// Returns the statistics of the feed; `None` without [`Config::feed`](super::Config::feed).
    pub fn feed_stats(&self) -> Option<FeedStats> {
        self.feed.as_ref().map(|feed| feed.stats())
    }

    pub(super) fn feed_hash(&mut self, frame: Frame, hash: u64) {
        if let Some(feed) = &mut self.feed {
            feed.push_hash(frame, hash);
        }
    }

    /// Returns whether a subscriber of the feed needs a snapshot, the machine can save one, and none was requested
    /// since the last frame began.
    #[inline]
    pub(super) fn is_snapshot_due(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.wants_snapshot())
            && self.snapshot_requested.is_none()
            && self.config.can_save
    }

    /// Requests the state before the first unconfirmed frame: the machine's current state, or a saved one if the
    /// machine has stepped unconfirmed frames.
    #[cold]
    pub(super) fn request_snapshot(&mut self) -> Request<'_> {
        self.feed_confirmed_frames();
        let frame = self.confirmed_end();
        self.snapshot_requested = Some(frame);
        let slot = (frame < self.machine_frame).then(|| self.save_slot(frame));
        Request::Snapshot { frame, slot }
    }

    /// Handles the state that [`Request::Snapshot`] asked for, and its hash. Without this call, spectators and late
    /// joiners that need a snapshot wait for the next request.
    pub fn handle_snapshot(&mut self, state: &[u8], hash: u64) {
        let (Some(frame), Some(feed)) = (self.snapshot_requested, &mut self.feed) else { return };
        feed.set_snapshot(self.clock.last_call(), frame, state, hash);
    }

    /// Writes the next datagram that does not belong to the frame loop. The caller sends the datagrams of the frame
    /// loop first.
    #[inline(never)]
    pub(super) fn transmit_side_work(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let now = self.clock.session_time(now);
        if let Some(joining) = &mut self.joining {
            return joining.spectator.poll_transmit(now, buf);
        }
        let from_feed = self.feed.as_mut().and_then(|feed| feed.poll_transmit(now, buf));
        from_feed.or_else(|| self.transmit_desync_query(now, buf))
    }

    /// Returns when the late join, the feed or a desync search next has something to do; [`Instant::FAR_FUTURE`] for
    /// never.
    pub(super) fn next_side_work_time(&self) -> Instant {
        let joining = self.joining.as_ref().filter(|_| !self.has_consumed_feed());
        let spectator = joining.and_then(|joining| joining.spectator.poll_timeout());
        let feed = self.feed.as_ref().and_then(|feed| feed.poll_timeout());
        spectator.into_iter().chain(feed).chain([self.next_search_time()]).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns the downloaded part of the snapshot, in percent: 0 without a snapshot, 100 if this site does not join
    /// late.
    pub(super) fn download_percent(&self) -> u8 {
        self.joining.as_ref().map_or(100, |joining| (joining.spectator.download_progress() * 100.0) as u8)
    }

    pub(super) fn side_work_memory(&self) -> usize {
        let spectator = self.joining.as_ref().map_or(0, |joining| joining.spectator.memory());
        let search = self.desync_search.as_ref().map_or(0, |search| search.memory());
        spectator + search + self.feed.as_ref().map_or(0, |feed| feed.memory())
    }

    /// Lets a late joiner step frames as fast as its machine can until it has caught up with the players.
    pub(super) fn catch_up(&mut self) {
        if self.frame < self.catch_up_until && matches!(self.phase, Phase::Running(_)) {
            let (now, next) = (self.clock.last_call(), self.frame);
            let is_behind_all = self.have_all_begun(next.next());
            self.schedule.jump_to(now, next);
            if is_behind_all {
                self.schedule.begin_by(now);
            }
        }
    }

    /// Returns whether all other players have begun a frame, as their inputs prove. The inputs that a new joiner sends
    /// in advance prove nothing, so a new joiner counts as not having begun it.
    fn have_all_begun(&self, frame: Frame) -> bool {
        let input_end = frame + self.delay_settings.input_delay;
        let has_begun = |peer: &Peer| !peer.has_advance_inputs() && peer.inputs().end() > input_end;
        self.peers.iter().filter(|peer| peer.is_playing()).all(has_begun)
    }
}
