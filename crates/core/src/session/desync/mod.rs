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

use super::digest_history::fold_hash;
use super::event::Event;
use super::phase::{FramePhase, Phase};
use super::request::Request;
use super::{Session, Transmit};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
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
    fn anchor_before(&self, frame: Frame) -> Option<(usize, Frame)> {
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

impl Session {
    /// Returns the index of the anchor that is to hold the state before `frame`, even if no anchor is due at that
    /// frame.
    pub(super) fn anchor_slot_before(&self, frame: Frame) -> usize {
        let interval = self.config.settings.compare_interval;
        (frame.number() / (interval * MIN_ANCHOR_DISTANCE.div_ceil(interval.max(1))).max(1)) as usize % MAX_ANCHORS
    }

    /// Returns the index of the anchor that is to hold the state after `frame`; `None` if no anchor is due after it.
    pub(super) fn anchor_slot(&self, frame: Frame) -> Option<usize> {
        let interval = self.config.settings.compare_interval;
        let distance = interval * MIN_ANCHOR_DISTANCE.div_ceil(interval.max(1));
        let number = (frame.number() + 1) / distance.max(1);
        (self.desync_search.is_some() && number * distance == frame.number() + 1)
            .then_some(number as usize % MAX_ANCHORS)
    }

    /// Requests to save the machine's state as an anchor. `frame` is the next frame of the machine.
    #[cold]
    pub(super) fn save_anchor(&mut self, index: usize, frame: Frame) -> Request<'_> {
        let slot = self.config.settings.rollback_slots() + index;
        if let Some(search) = &mut self.desync_search {
            search.anchors[index] = Some(frame);
        }
        Request::Save { frame, slot }
    }

    /// Starts a search after a mismatch with a peer after `frame`. `agreed` is the last compared frame after which both
    /// states were equal, if there is one. `ours` is this site's digest after `frame`.
    pub(super) fn start_desync_search(&mut self, agreed: Option<Frame>, frame: Frame, ours: u32) {
        let Some(search) = &mut self.desync_search else { return };
        if let Some(span) = search.span(agreed, frame) {
            search.bisector.on_mismatch(span, ours);
            search.start(self.clock.last_call());
            self.side_work = true;
        }
    }

    /// Handles a datagram of a desync search; those of sites that do not play are dropped.
    #[cold]
    pub(super) fn handle_desync_message(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let site = self.peers.iter().find(|peer| peer.addr() == from && peer.is_playing()).map(|peer| peer.site());
        let search = self.desync_search.as_mut().filter(|_| self.joining.is_none());
        let (Some(site), Some(search)) = (site, search) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let Ok(message) = DesyncMessage::decode(bytes) else {
            self.stats.dropped_datagrams.malformed += 1;
            return;
        };
        search.bisector.on_message(site, &message);
        if search.bisector.is_searching() {
            search.start(now);
            self.side_work = true;
        }
        if let Some(span) = search.bisector.span()
            && let Some(state_hash) = self.comparison.own_state_hash(span.last())
        {
            search.bisector.on_digest(span.last(), state_hash);
        }
    }

    /// Writes the next answer or query that is due.
    pub(super) fn transmit_desync_query(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let Self { desync_search: search, peers, .. } = self;
        let search = search.as_mut().filter(|search| search.started_at.is_some())?;
        for peer in peers.iter().filter(|peer| peer.is_playing()) {
            if let Some(len) = search.bisector.poll_answer(peer.site(), buf) {
                return Some(Transmit { to: peer.addr(), len });
            }
        }
        if search.next_query_at <= now {
            search.next_query_at = now + QUERY_INTERVAL;
            search.peers_to_query = u8::MAX;
        }
        while search.peers_to_query != 0 {
            let index = search.peers_to_query.trailing_zeros() as usize;
            search.peers_to_query &= search.peers_to_query - 1;
            let Some(peer) = peers.get(index).filter(|peer| peer.is_playing()) else { continue };
            if let Some(len) = search.bisector.poll_query(peer.site(), buf) {
                return Some(Transmit { to: peer.addr(), len });
            }
        }
        None
    }

    /// Returns when a search sends its next queries; [`Instant::FAR_FUTURE`] without a search.
    pub(super) fn next_search_time(&self) -> Instant {
        let searching = self.desync_search.as_ref().filter(|search| search.started_at.is_some());
        searching.map_or(Instant::FAR_FUTURE, |search| search.next_query_at)
    }

    /// Updates a search: excludes gone sites, ends it after the timeout, and reports its result.
    pub(super) fn update_desync_search(&mut self, now: Instant) {
        let playing = self.peers.voters();
        let Some(search) = self.desync_search.as_mut().filter(|search| search.started_at.is_some()) else { return };
        for peer in self.peers.iter().filter(|peer| !playing.contains(peer.site())) {
            search.bisector.on_gone(peer.site());
        }
        if search.started_at.is_some_and(|since| now - since > SEARCH_TIMEOUT) {
            search.bisector.give_up();
        }
        if let Some(mut report) = search.bisector.poll_report() {
            search.complete_report(&mut report);
            self.events.push(Event::DesyncReport(report));
        }
        if !search.bisector.is_searching()
            && search.replay.is_none()
            && search.started_at.is_some_and(|since| now - since > SEARCH_TIMEOUT * 2)
        {
            // Until now, other sites could still ask for this site's results.
            search.restart();
        }
    }

    /// Begins a replay if a query needs one. Returns whether it did.
    #[inline]
    pub(super) fn begin_replay_if_due(&mut self) -> bool {
        self.desync_search.as_ref().is_some_and(|search| search.started_at.is_some()) && self.begin_replay()
    }

    #[cold]
    fn begin_replay(&mut self) -> bool {
        let Some(search) = &mut self.desync_search else { return false };
        let Some(query) = search.bisector.local_query() else { return false };
        let (first, last) = replay_range(query);
        if last >= search.end {
            // Another site has confirmed these frames before this site.
            return false;
        }
        let (Some((_, anchor)), true) = (search.anchor_before(first), search.words(last).is_some()) else {
            search.bisector.on_unable();
            return false;
        };
        search.replay = Some(FrameReplay { query, next_frame: anchor, stage: ReplayStage::SavePresent });
        self.phase = Phase::Running(FramePhase::Replay);
        true
    }

    /// Returns the next request of a replay. The last one loads the present again.
    #[cold]
    pub(super) fn next_replay_request(&mut self) -> Request<'_> {
        let (base, present) = (self.config.settings.rollback_slots(), self.machine_frame);
        let Self { desync_search: search, phase, scratch_words: words, .. } = self;
        let search = search.as_mut().expect("a replay belongs to a search");
        let replay = search.replay.expect("a replay is under way");
        let (first, last) = replay_range(replay.query);
        let (index, anchor) = search.anchor_before(first).expect("no anchor is replaced during a replay");
        let next_replay = |stage, next_frame| Some(FrameReplay { stage, next_frame, ..replay });
        match replay.stage {
            ReplayStage::SavePresent => {
                search.replay = next_replay(ReplayStage::LoadAnchor, anchor);
                Request::Save { frame: present, slot: base + MAX_ANCHORS }
            }
            ReplayStage::LoadAnchor => {
                search.replay = next_replay(ReplayStage::Step, anchor);
                Request::Load { frame: anchor, slot: base + index }
            }
            ReplayStage::Step => {
                let frame = replay.next_frame;
                words.copy_from_slice(search.words(frame).expect("the inputs of replayed frames are kept"));
                let hashes = matches!(replay.query, LocalQuery::Hashes { .. });
                let stage = match () {
                    () if hashes && frame >= first => ReplayStage::Hash,
                    () if frame == last => ReplayStage::Inspect,
                    () => ReplayStage::Step,
                };
                search.replay = next_replay(stage, frame.next());
                Request::Advance { frame, inputs: words, fresh: false }
            }
            ReplayStage::Hash => {
                search.replay = next_replay(
                    if replay.next_frame > last { ReplayStage::LoadPresent } else { ReplayStage::Step },
                    replay.next_frame,
                );
                Request::Hash { frame: replay.next_frame.checked_sub(1).unwrap_or_default() }
            }
            ReplayStage::Inspect => {
                search.replay = next_replay(ReplayStage::LoadPresent, replay.next_frame);
                match replay.query {
                    LocalQuery::Pages { frame, region, first_page } => {
                        Request::Pages { frame, region, from: first_page }
                    }
                    _ => Request::Regions { frame: last },
                }
            }
            ReplayStage::LoadPresent => {
                if let LocalQuery::Regions { frame } = replay.query {
                    // Without an answer, the state has no named regions.
                    search.bisector.on_local_regions(frame, &[]);
                }
                if search.bisector.local_query() == Some(replay.query) {
                    // The host program gave no answer and never will.
                    search.bisector.on_unable();
                }
                search.replay = None;
                *phase = Phase::Running(FramePhase::Idle);
                Request::Load { frame: present, slot: base + MAX_ANCHORS }
            }
        }
    }

    /// Handles the hash of the state after a replayed frame. Returns `false` if there is no replay.
    pub(super) fn handle_replay_hash(&mut self, hash: u64) -> bool {
        let Some(search) = &mut self.desync_search else { return false };
        let Some(replay) = search.replay else { return false };
        if let Some(frame) = replay.next_frame.checked_sub(1) {
            search.bisector.on_local_hash(frame, fold_hash(hash));
        }
        true
    }

    /// Handles the named regions of the state that [`Request::Regions`] asked for. Without them a report names the
    /// frame and the site, but not the part of the state.
    pub fn handle_regions(&mut self, regions: &[StateRegion]) {
        if let Some(search) = &mut self.desync_search
            && let Some(FrameReplay { query: LocalQuery::Regions { frame }, .. }) = search.replay
        {
            search.bisector.on_local_regions(frame, regions);
        }
    }

    /// Handles the hashes of consecutive pages that [`Request::Pages`] asked for. Without them a report names whole
    /// regions.
    pub fn handle_pages(&mut self, hashes: &[u32]) {
        if let Some(search) = &mut self.desync_search
            && let Some(FrameReplay { query: LocalQuery::Pages { frame, region, first_page }, .. }) = search.replay
        {
            search.bisector.on_local_pages(frame, region, first_page, hashes);
        }
    }

    /// Returns the number of slots that the host program needs for [`Request::Save`]: those for rollbacks, and four
    /// more if this site takes part in desync searches.
    pub fn slots(&self) -> usize {
        self.config.settings.rollback_slots() + if self.desync_search.is_some() { SEARCH_SLOTS } else { 0 }
    }
}
