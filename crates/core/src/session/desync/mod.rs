//! Desync search: replays past frames beside the game to find the frame, the site and the part of the state of a
//! desync.
//!
//! At compared frames that are at least [`MIN_ANCHOR_DISTANCE`] frames apart, the host program saves a state, an
//! *anchor*. The session keeps the inputs of the newest frames, at least 512. When a comparison fails, a
//! [`DesyncBisector`] asks for the hashes of all frames since the last successful one. Between two frames of the game
//! the machine loads an anchor, replays those frames, and loads the present again. That takes about as long as stepping
//! the frames from the anchor to the last replayed one; then the game goes on.

mod bisect;
pub(super) mod message;
pub(super) mod report;

pub use bisect::{DesyncBisector, LocalQuery};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Transmit;
use super::digest_history::fold_hash;
use super::peers::Peers;
use super::request::Request;
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::input::InputWord;
use crate::session::desync::message::DesyncMessage;
use crate::settings::Settings;
use crate::time::{Instant, TimeDelta};
use report::{DesyncReport, FrameSpan, StateRegion};

/// Maximum number of frames from a compared frame until its failed comparison is known, with a margin. The inputs of
/// that many frames are kept in addition to those of the searched frames.
const MAX_DETECTION_FRAMES: u32 = 256;
/// Maximum number of searched frames, unless the compare interval is longer. It covers several comparisons, because the
/// packets with the hashes of some may have been lost.
const DEFAULT_MAX_SPAN: u32 = 256;
/// Minimum distance between anchors, in frames, so that the anchors reach far enough back when a mismatch is known.
const MIN_ANCHOR_DISTANCE: u32 = 64;
/// Number of anchors that are kept; a new one replaces the oldest.
const MAX_ANCHORS: usize = 3;
/// Number of slots for a search: one per anchor, and one for the present state during a replay.
pub(super) const SEARCH_SLOTS: usize = MAX_ANCHORS + 1;
/// Interval at which missing answers are requested.
const QUERY_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// Time after which a search ends and reports its result so far.
const SEARCH_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Number of frames before and after the first differing frame whose inputs are in a report. If that frame is unknown,
/// the last frame of the searched span takes its place.
const REPORT_CONTEXT_FRAMES: u32 = 8;

/// The desync searches of one site: the inputs and anchors of the newest frames, the bisector, and the replay.
#[derive(Debug)]
pub(super) struct DesyncSearch {
    own_site: SiteId,
    sites: SiteSet,
    bisector: DesyncBisector,
    /// Ring of the inputs of the newest frames, with the words of all players side by side.
    input_ring: Vec<InputWord>,
    players: usize,
    /// Capacity of the ring, in frames.
    capacity: usize,
    /// Maximum number of searched frames after a successful comparison.
    max_span: u32,
    /// End of the frames that were pushed to the ring, which holds the newest of them.
    end: Frame,
    /// The first frame that was pushed to the ring.
    first: Frame,
    /// The frame that the machine steps next from each anchor; `None` for an anchor that was not saved yet.
    anchors: [Option<Frame>; MAX_ANCHORS],
    next_query_at: Instant,
    started_at: Option<Instant>,
    /// Bit set of the indices of peers that still get a query in the current [`QUERY_INTERVAL`].
    peers_to_query: u8,
    replay: Option<FrameReplay>,
    slots: AnchorSlots,
}

/// A replay of past frames that answers one query of the bisector.
#[derive(Clone, Copy, Debug)]
struct FrameReplay {
    query: LocalQuery,
    /// The next frame that the replay steps.
    next_frame: Frame,
    stage: ReplayStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayStage {
    SavePresent,
    LoadAnchor,
    Step,
    Hash,
    Inspect,
    LoadPresent,
}

impl DesyncSearch {
    pub(super) fn new(own_site: SiteId, sites: SiteSet, settings: &Settings, first: Frame) -> Box<Self> {
        let players = settings.ownership.players();
        let max_span = settings.compare_interval.max(DEFAULT_MAX_SPAN);
        let capacity = (max_span + MAX_DETECTION_FRAMES) as usize;
        Box::new(Self {
            own_site,
            sites,
            bisector: DesyncBisector::new(own_site, sites),
            input_ring: vec![0; players * capacity],
            players,
            capacity,
            max_span,
            end: first,
            first,
            anchors: [None; MAX_ANCHORS],
            next_query_at: Instant::ZERO,
            started_at: None,
            peers_to_query: 0,
            replay: None,
            slots: AnchorSlots { interval: settings.compare_interval, base: settings.rollback_slots() },
        })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.started_at.is_some()
    }

    /// Starts the timers of a search, unless one is under way.
    fn start(&mut self, now: Instant) {
        if self.started_at.is_none() {
            (self.started_at, self.next_query_at) = (Some(now), now);
        }
    }

    /// Forgets the last search unless it is under way, so that the next desync starts a new one.
    pub(super) fn restart(&mut self) {
        if !self.bisector.is_searching() && self.replay.is_none() {
            self.bisector = DesyncBisector::new(self.own_site, self.sites);
            self.started_at = None;
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.input_ring.capacity() * size_of::<InputWord>()
    }

    /// Keeps the inputs of `frame`, which follows the frame that was pushed last.
    pub(super) fn push(&mut self, frame: Frame, words: &[InputWord]) {
        self.words_mut(frame).copy_from_slice(words);
        self.end = frame.next();
    }

    fn words_mut(&mut self, frame: Frame) -> &mut [InputWord] {
        let start = frame.number() as usize % self.capacity * self.players;
        &mut self.input_ring[start..start + self.players]
    }

    fn words(&self, frame: Frame) -> Option<&[InputWord]> {
        let kept = frame < self.end && frame >= self.first && self.end - frame <= self.capacity as i64;
        let start = frame.number() as usize % self.capacity * self.players;
        kept.then(|| &self.input_ring[start..start + self.players])
    }

    /// Returns the frames to be searched: all since the last successful comparison, but at most `max_span` + 1. A span
    /// of that length counts as clipped.
    fn span(&self, agreed: Option<Frame>, frame: Frame) -> Option<FrameSpan> {
        let first = agreed.map_or(self.first, Frame::next);
        let oldest = frame.checked_sub(self.max_span).unwrap_or_default();
        FrameSpan::new(first.max(oldest), frame)
    }

    /// Returns whether states may have differed before the span: it is longer than any span that begins after a
    /// successful comparison.
    fn is_span_clipped(&self, span: FrameSpan) -> bool {
        span.frames() > self.max_span as usize
    }

    /// Completes a report: removes its first differing frame if an earlier one may differ, and adds the inputs around
    /// that frame or around the last one of the span.
    fn complete_report(&self, report: &mut DesyncReport) {
        report.first_frame =
            report.first_frame.filter(|frame| !self.is_span_clipped(report.span) || *frame > report.span.first());
        let frame = report.first_frame.unwrap_or(report.span.last());
        let first = frame.checked_sub(REPORT_CONTEXT_FRAMES).unwrap_or_default();
        let around = (0..=2 * REPORT_CONTEXT_FRAMES).map(|ahead| first + ahead);
        report.inputs = around.filter_map(|frame| self.words(frame).map(|words| (frame, words.to_vec()))).collect();
    }

    /// Returns the newest anchor from which a frame can be replayed, as its index and the next frame of the machine.
    fn newest_anchor(&self, frame: Frame) -> Option<(usize, Frame)> {
        let known = self.anchors.iter().enumerate().filter_map(|(index, next)| next.map(|next| (index, next)));
        known.filter(|(_, next)| *next <= frame && self.words(*next).is_some()).max_by_key(|(_, next)| *next)
    }
}

/// Returns the first and the last frame whose states a query needs.
fn replay_range(query: LocalQuery) -> (Frame, Frame) {
    match query {
        LocalQuery::Hashes { span, .. } => (span.first(), span.last()),
        LocalQuery::Regions { frame } | LocalQuery::Pages { frame, .. } => (frame, frame),
    }
}

/// A request of a replay.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplayRequest<'a> {
    /// The host program completes this request, and the replay goes on.
    Next(Request<'a>),
    /// The host program completes this request, and the replay is over.
    Last(Request<'a>),
}

/// Distances between anchors, and the slots that hold them.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnchorSlots {
    /// Distance between compared frames.
    interval: u32,
    /// Slot of the first anchor: the number of slots for rollbacks.
    base: usize,
}

impl AnchorSlots {
    /// Distance between anchors, in frames: the smallest multiple of the compare interval that is not too short.
    fn distance(self) -> u32 {
        self.interval * MIN_ANCHOR_DISTANCE.div_ceil(self.interval.max(1))
    }

    /// Returns the index of the anchor that is to hold the state before `frame`, even if no anchor is due at that
    /// frame.
    fn index_before(self, frame: Frame) -> usize {
        (frame.number() / self.distance().max(1)) as usize % MAX_ANCHORS
    }

    /// Returns the index of the anchor that is to hold the state after `frame`; `None` if no anchor is due after it.
    fn index_after(self, frame: Frame) -> Option<usize> {
        let number = (frame.number() + 1) / self.distance().max(1);
        (number * self.distance() == frame.number() + 1).then_some(number as usize % MAX_ANCHORS)
    }
}

impl DesyncSearch {
    /// Restarts with frame `first`, from which on this site plays after a late join.
    pub(super) fn start_at(&mut self, first: Frame, settings: &Settings) {
        *self = *Self::new(self.own_site, self.sites, settings, first);
    }

    /// Returns the end of the frames whose inputs are kept.
    pub(super) fn end(&self) -> Frame {
        self.end
    }

    /// Returns whether a search needs an anchor of the state before the first frame that this site plays, as its index.
    pub(super) fn anchor_before(&self, frame: Frame) -> usize {
        self.slots.index_before(frame)
    }

    /// Returns the index of the anchor that is to hold the state after `frame`; `None` if no anchor is due after it.
    pub(super) fn anchor_after(&self, frame: Frame) -> Option<usize> {
        self.slots.index_after(frame)
    }

    /// Notes that an anchor is saved, from which the machine steps `frame` next. Returns its slot.
    pub(super) fn save_anchor(&mut self, index: usize, frame: Frame) -> usize {
        self.anchors[index] = Some(frame);
        self.slots.base + index
    }

    /// Starts a search after a mismatch with a peer after `frame`. `agreed` is the last compared frame after which both
    /// states were equal, if there is one. `ours` is this site's digest after `frame`. Returns whether a search is
    /// under way.
    pub(super) fn on_mismatch(&mut self, now: Instant, agreed: Option<Frame>, frame: Frame, ours: u32) -> bool {
        let Some(span) = self.span(agreed, frame) else { return false };
        self.bisector.on_mismatch(span, ours);
        self.start(now);
        true
    }

    /// Handles a message of a site that plays. `digest` returns this site's digest after a frame. Returns whether a
    /// search is under way.
    pub(super) fn on_message(
        &mut self,
        now: Instant,
        site: SiteId,
        message: &DesyncMessage<'_>,
        digest: impl FnOnce(Frame) -> Option<u32>,
    ) -> bool {
        self.bisector.on_message(site, message);
        let is_searching = self.bisector.is_searching();
        if is_searching {
            self.start(now);
        }
        if let Some(span) = self.bisector.span()
            && let Some(digest) = digest(span.last())
        {
            self.bisector.on_digest(span.last(), digest);
        }
        is_searching
    }

    /// Writes the next answer or query that is due.
    pub(super) fn poll_transmit(&mut self, now: Instant, peers: &Peers, buf: &mut [u8]) -> Option<Transmit> {
        self.started_at?;
        for peer in peers.playing() {
            if let Some(len) = self.bisector.poll_answer(peer.site(), buf) {
                return Some(Transmit { to: peer.addr(), len });
            }
        }
        if self.next_query_at <= now {
            self.next_query_at = now + QUERY_INTERVAL;
            self.peers_to_query = u8::MAX;
        }
        while self.peers_to_query != 0 {
            let index = self.peers_to_query.trailing_zeros() as usize;
            self.peers_to_query &= self.peers_to_query - 1;
            let Some(peer) = peers.get(index).filter(|peer| peer.is_playing()) else { continue };
            if let Some(len) = self.bisector.poll_query(peer.site(), buf) {
                return Some(Transmit { to: peer.addr(), len });
            }
        }
        None
    }

    /// Returns when a search sends its next queries; [`Instant::FAR_FUTURE`] without a search.
    pub(super) fn poll_timeout(&self) -> Instant {
        self.started_at.map_or(Instant::FAR_FUTURE, |_| self.next_query_at)
    }

    /// Updates a search: excludes gone sites and ends it after the timeout. Returns its result.
    pub(super) fn update(&mut self, now: Instant, peers: &Peers) -> Option<Box<DesyncReport>> {
        let since = self.started_at?;
        for peer in peers.iter().filter(|peer| !peer.is_playing()) {
            self.bisector.on_gone(peer.site());
        }
        if now - since > SEARCH_TIMEOUT {
            self.bisector.give_up();
        }
        let mut report = self.bisector.poll_report();
        if let Some(report) = &mut report {
            self.complete_report(report);
        }
        if !self.bisector.is_searching() && self.replay.is_none() && now - since > SEARCH_TIMEOUT * 2 {
            // Until now, other sites could still ask for this site's results.
            self.restart();
        }
        report
    }

    /// Begins a replay if a query needs one. Returns whether it did.
    #[cold]
    pub(super) fn begin_replay(&mut self) -> bool {
        let Some(query) = self.bisector.local_query() else { return false };
        let (first, last) = replay_range(query);
        if last >= self.end {
            // Another site has confirmed these frames before this site.
            return false;
        }
        let (Some((_, anchor)), true) = (self.newest_anchor(first), self.words(last).is_some()) else {
            self.bisector.on_unable();
            return false;
        };
        self.replay = Some(FrameReplay { query, next_frame: anchor, stage: ReplayStage::SavePresent });
        true
    }

    /// Returns the next request of a replay. The machine steps `present` next in the game; `words` take the inputs of a
    /// replayed frame. The last request loads the present again.
    #[cold]
    pub(super) fn next_replay_request<'a>(&mut self, present: Frame, words: &'a mut [InputWord]) -> ReplayRequest<'a> {
        let base = self.slots.base;
        let replay = self.replay.expect("a replay is under way");
        let (first, last) = replay_range(replay.query);
        let (index, anchor) = self.newest_anchor(first).expect("no anchor is replaced during a replay");
        let next_replay = |stage, next_frame| Some(FrameReplay { stage, next_frame, ..replay });
        ReplayRequest::Next(match replay.stage {
            ReplayStage::SavePresent => {
                self.replay = next_replay(ReplayStage::LoadAnchor, anchor);
                Request::Save { frame: present, slot: base + MAX_ANCHORS }
            }
            ReplayStage::LoadAnchor => {
                self.replay = next_replay(ReplayStage::Step, anchor);
                Request::Load { frame: anchor, slot: base + index }
            }
            ReplayStage::Step => {
                let frame = replay.next_frame;
                words.copy_from_slice(self.words(frame).expect("the inputs of replayed frames are kept"));
                let hashes = matches!(replay.query, LocalQuery::Hashes { .. });
                let stage = match () {
                    () if hashes && frame >= first => ReplayStage::Hash,
                    () if frame == last => ReplayStage::Inspect,
                    () => ReplayStage::Step,
                };
                self.replay = next_replay(stage, frame.next());
                Request::Advance { frame, inputs: words, fresh: false }
            }
            ReplayStage::Hash => {
                let is_last = replay.next_frame > last;
                let stage = if is_last { ReplayStage::LoadPresent } else { ReplayStage::Step };
                self.replay = next_replay(stage, replay.next_frame);
                Request::Hash { frame: replay.next_frame.checked_sub(1).unwrap_or_default() }
            }
            ReplayStage::Inspect => {
                self.replay = next_replay(ReplayStage::LoadPresent, replay.next_frame);
                match replay.query {
                    LocalQuery::Pages { frame, region, first_page } => {
                        Request::Pages { frame, region, from: first_page }
                    }
                    _ => Request::Regions { frame: last },
                }
            }
            ReplayStage::LoadPresent => {
                self.end_replay(replay);
                return ReplayRequest::Last(Request::Load { frame: present, slot: base + MAX_ANCHORS });
            }
        })
    }

    fn end_replay(&mut self, replay: FrameReplay) {
        if let LocalQuery::Regions { frame } = replay.query {
            // Without an answer, the state has no named regions.
            self.bisector.on_local_regions(frame, &[]);
        }
        if self.bisector.local_query() == Some(replay.query) {
            // The host program gave no answer and never will.
            self.bisector.on_unable();
        }
        self.replay = None;
    }

    /// Handles the hash of the state after a replayed frame. Returns `false` if there is no replay.
    pub(super) fn on_replay_hash(&mut self, hash: u64) -> bool {
        let Some(replay) = self.replay else { return false };
        if let Some(frame) = replay.next_frame.checked_sub(1) {
            self.bisector.on_local_hash(frame, fold_hash(hash));
        }
        true
    }

    /// Handles the named regions of the replayed state.
    pub(super) fn on_regions(&mut self, regions: &[StateRegion]) {
        if let Some(FrameReplay { query: LocalQuery::Regions { frame }, .. }) = self.replay {
            self.bisector.on_local_regions(frame, regions);
        }
    }

    /// Handles the hashes of consecutive pages of the replayed state.
    pub(super) fn on_pages(&mut self, hashes: &[u32]) {
        if let Some(FrameReplay { query: LocalQuery::Pages { frame, region, first_page }, .. }) = self.replay {
            self.bisector.on_local_pages(frame, region, first_page, hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_multiples_of_the_compare_interval_at_least_64_frames_apart() {
        let slots = AnchorSlots { interval: 30, base: 8 };
        let due: Vec<u32> = (0..300).filter(|frame| slots.index_after(Frame::new(*frame)).is_some()).collect();
        assert_eq!(due, [89, 179, 269]);
        let indices = due.iter().map(|frame| slots.index_after(Frame::new(*frame)));
        assert!(indices.eq([Some(1), Some(2), Some(0)]), "a new anchor replaces the oldest");
        assert_eq!(slots.index_before(Frame::new(90)), 1);
    }
}
