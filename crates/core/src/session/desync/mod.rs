//! When states differ: playing the past again, aside, to find out since when, at whom, and where.
//!
//! Next to every hash that is compared the host program keeps a state, an *anchor*, and the session keeps the inputs of the frames
//! since. When a comparison fails, a [`DesyncBisector`] asks for the hashes of all frames since the last good one: between two frames of the
//! game the machine is put back to an anchor, plays them once more, and is put forward again, which takes as long as so many
//! frames take to step; then the game goes on.

mod bisect;
pub(super) mod report;

pub use bisect::{DesyncBisector, LocalQuery};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::event::{Event, Request};
use super::frame_loop::fold_hash;
use super::settings::Settings;
use super::{FramePhase, Phase, Session, Transmit};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::InputWord;
use crate::time::{Instant, TimeDelta};
use crate::wire::DesyncMessage;
use report::{DesyncReport, FrameSpan, StateRegion};

/// Frames that pass, at most, until a comparison that fails is known of, with some to spare. The inputs of so many are kept, and of
/// those between two comparisons.
const MAX_DETECTION_FRAMES: u32 = 256;
/// The most frames that are searched where comparisons are closer together, because some of them were lost.
const DEFAULT_MAX_SPAN: u32 = 256;
/// Anchors are at least this many frames apart, so that the oldest is not gone before a difference is known.
const MIN_ANCHOR_DISTANCE: u32 = 64;
/// States kept for this: the anchors, and the present while the past is played.
const MAX_ANCHORS: usize = 3;
pub(super) const SEARCH_SLOTS: usize = MAX_ANCHORS + 1;
/// What is missing is asked for so often.
const QUERY_INTERVAL: TimeDelta = TimeDelta::from_millis(100);
/// A search that takes longer tells what it has.
const SEARCH_TIMEOUT: TimeDelta = TimeDelta::from_secs(10);
/// Inputs told before and after the frame in question.
const REPORT_CONTEXT_FRAMES: u32 = 8;

/// What one site needs to search for differences.
#[derive(Debug)]
pub(super) struct DesyncSearch {
    own_site: SiteId,
    sites: SiteSet,
    bisector: DesyncBisector,
    /// The inputs of the newest frames, all players' words side by side.
    input_ring: Vec<InputWord>,
    players: usize,
    /// How many frames have room there.
    capacity: usize,
    /// The most frames that are searched.
    max_span: u32,
    /// The frames before this one are in it, as many as there is room for.
    end: Frame,
    first: Frame,
    /// The frame that is next in each anchor.
    anchors: [Option<Frame>; MAX_ANCHORS],
    next_query_at: Instant,
    started_at: Option<Instant>,
    /// Peers, by index, that are still to be asked in this round.
    peers_to_query: u8,
    replay: Option<Replay>,
}

/// Playing the past again.
#[derive(Clone, Copy, Debug)]
struct Replay {
    query: LocalQuery,
    /// The next frame of the machine.
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
    pub(super) fn new(me: SiteId, sites: SiteSet, settings: &Settings, first: Frame) -> Box<Self> {
        let players = settings.ownership.players();
        let most = settings.compare_interval.max(DEFAULT_MAX_SPAN);
        let room = (most + MAX_DETECTION_FRAMES) as usize;
        Box::new(Self {
            own_site: me,
            sites,
            bisector: DesyncBisector::new(me, sites),
            input_ring: vec![0; players * room],
            players,
            capacity: room,
            max_span: most,
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

    /// There is something to search, if there was nothing before.
    fn start(&mut self, now: Instant) {
        if self.started_at.is_none() {
            (self.started_at, self.next_query_at) = (Some(now), now);
        }
    }

    /// What was found is done with; the next difference is another matter.
    pub(super) fn restart(&mut self) {
        if !self.bisector.is_searching() && self.replay.is_none() {
            self.bisector = DesyncBisector::new(self.own_site, self.sites);
            self.started_at = None;
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.input_ring.capacity() * size_of::<InputWord>()
    }

    /// Keeps the inputs of the next frame.
    pub(super) fn push(&mut self, frame: Frame, words: &[InputWord]) {
        self.words_mut(frame).copy_from_slice(words);
        self.end = frame.next();
    }

    fn words_mut(&mut self, frame: Frame) -> &mut [InputWord] {
        let at = frame.number() as usize % self.capacity * self.players;
        &mut self.input_ring[at..at + self.players]
    }

    fn words(&self, frame: Frame) -> Option<&[InputWord]> {
        let kept = frame < self.end && frame >= self.first && self.end - frame <= self.capacity as i64;
        let at = frame.number() as usize % self.capacity * self.players;
        kept.then(|| &self.input_ring[at..at + self.players])
    }

    /// The frames to be searched: all since the last good comparison, or one more than the most there can be if those are not kept.
    fn span(&self, agreed: Option<Frame>, frame: Frame) -> Option<FrameSpan> {
        let first = agreed.map_or(self.first, Frame::next);
        let oldest = frame.checked_sub(self.max_span).unwrap_or_default();
        FrameSpan::new(first.max(oldest), frame)
    }

    /// Whether states may have differed before the span already: it is longer than any that goes back to a good comparison.
    fn is_span_clipped(&self, span: FrameSpan) -> bool {
        span.frames() > self.max_span as usize
    }

    /// Makes a report of what was found: the inputs around it, and no frame where it may have been an earlier one.
    fn complete_report(&self, report: &mut DesyncReport) {
        report.first_frame =
            report.first_frame.filter(|frame| !self.is_span_clipped(report.span) || *frame > report.span.first());
        let frame = report.first_frame.unwrap_or(report.span.last());
        let first = frame.checked_sub(REPORT_CONTEXT_FRAMES).unwrap_or_default();
        let around = (0..=2 * REPORT_CONTEXT_FRAMES).map(|ahead| first + ahead);
        report.inputs = around.filter_map(|frame| self.words(frame).map(|words| (frame, words.to_vec()))).collect();
    }

    /// The newest state from which a frame can be played again.
    fn anchor_before(&self, frame: Frame) -> Option<(usize, Frame)> {
        let known = self.anchors.iter().enumerate().filter_map(|(place, next)| next.map(|next| (place, next)));
        known.filter(|(_, next)| *next <= frame && self.words(*next).is_some()).max_by_key(|(_, next)| *next)
    }
}

/// The first frame to be played again, and the last.
fn replay_range(want: LocalQuery) -> (Frame, Frame) {
    match want {
        LocalQuery::Hashes { span, .. } => (span.first(), span.last()),
        LocalQuery::Regions { frame } | LocalQuery::Pages { frame, .. } => (frame, frame),
    }
}

impl Session {
    /// The place of an anchor before a frame that is none of the usual ones.
    pub(super) fn anchor_slot_before(&self, frame: Frame) -> usize {
        let every = self.config.settings.compare_interval;
        (frame.number() / (every * MIN_ANCHOR_DISTANCE.div_ceil(every.max(1))).max(1)) as usize % MAX_ANCHORS
    }

    /// The place of an anchor, if the state after this frame is to be kept as one.
    pub(super) fn anchor_slot(&self, frame: Frame) -> Option<usize> {
        let every = self.config.settings.compare_interval;
        let apart = every * MIN_ANCHOR_DISTANCE.div_ceil(every.max(1));
        let number = (frame.number() + 1) / apart.max(1);
        (self.desync_search.is_some() && number * apart == frame.number() + 1).then_some(number as usize % MAX_ANCHORS)
    }

    /// Asks to keep the state after a frame that is compared.
    #[cold]
    pub(super) fn save_anchor(&mut self, place: usize, frame: Frame) -> Request<'_> {
        let slot = self.config.settings.rollback_slots() + place;
        if let Some(inquiry) = &mut self.desync_search {
            inquiry.anchors[place] = Some(frame);
        }
        Request::Save { frame, slot }
    }

    /// A peer's state differs from ours after a frame, and did not after another.
    pub(super) fn start_desync_search(&mut self, agreed: Option<Frame>, frame: Frame, ours: u32) {
        let Some(inquiry) = &mut self.desync_search else { return };
        if let Some(span) = inquiry.span(agreed, frame) {
            inquiry.bisector.on_mismatch(span, ours);
            inquiry.start(self.last_call);
            self.side_work = true;
        }
    }

    /// A datagram of a search.
    #[cold]
    pub(super) fn handle_desync_message(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let site = self.peers.iter().find(|peer| peer.addr == from && peer.is_playing()).map(|peer| peer.site);
        let inquiry = self.desync_search.as_mut().filter(|_| self.joining.is_none());
        let (Some(site), Some(inquiry)) = (site, inquiry) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        let Ok(search) = DesyncMessage::decode(bytes) else {
            self.stats.dropped_datagrams.malformed += 1;
            return;
        };
        inquiry.bisector.on_message(site, &search);
        if inquiry.bisector.is_searching() {
            inquiry.start(now);
            self.side_work = true;
        }
        if let Some(span) = inquiry.bisector.span()
            && let Some(digest) = self.own_digests.get(span.last())
        {
            inquiry.bisector.on_digest(span.last(), digest.state_hash);
        }
    }

    /// Asks and answers that are due.
    pub(super) fn transmit_desync_query(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let Self { desync_search: inquiry, peers, .. } = self;
        let inquiry = inquiry.as_mut().filter(|inquiry| inquiry.started_at.is_some())?;
        for peer in peers.iter().filter(|peer| peer.is_playing()) {
            if let Some(len) = inquiry.bisector.poll_answer(peer.site, buf) {
                return Some(Transmit { to: peer.addr, len });
            }
        }
        if inquiry.next_query_at <= now {
            inquiry.next_query_at = now + QUERY_INTERVAL;
            inquiry.peers_to_query = u8::MAX;
        }
        while inquiry.peers_to_query != 0 {
            let index = inquiry.peers_to_query.trailing_zeros() as usize;
            inquiry.peers_to_query &= inquiry.peers_to_query - 1;
            let Some(peer) = peers.get(index).filter(|peer| peer.is_playing()) else { continue };
            if let Some(len) = inquiry.bisector.poll_query(peer.site, buf) {
                return Some(Transmit { to: peer.addr, len });
            }
        }
        None
    }

    /// When a search has something to do.
    pub(super) fn next_search_time(&self) -> Instant {
        let searching = self.desync_search.as_ref().filter(|inquiry| inquiry.started_at.is_some());
        searching.map_or(Instant::FAR_FUTURE, |inquiry| inquiry.next_query_at)
    }

    /// What becomes of a search.
    pub(super) fn update_desync_search(&mut self, now: Instant) {
        let playing = self.voters();
        let Some(inquiry) = self.desync_search.as_mut().filter(|inquiry| inquiry.started_at.is_some()) else { return };
        for peer in self.peers.iter().filter(|peer| !playing.contains(peer.site)) {
            inquiry.bisector.on_gone(peer.site);
        }
        if inquiry.started_at.is_some_and(|since| now - since > SEARCH_TIMEOUT) {
            inquiry.bisector.give_up();
        }
        if let Some(mut report) = inquiry.bisector.poll_report() {
            inquiry.complete_report(&mut report);
            self.events.push(Event::DesyncReport(report));
        }
        if !inquiry.bisector.is_searching()
            && inquiry.replay.is_none()
            && inquiry.started_at.is_some_and(|since| now - since > SEARCH_TIMEOUT * 2)
        {
            // Others may still ask for what we found; then it is over.
            inquiry.restart();
        }
    }

    /// Whether the past is to be played aside now.
    #[inline]
    pub(super) fn begin_replay_if_due(&mut self) -> bool {
        self.desync_search.as_ref().is_some_and(|inquiry| inquiry.started_at.is_some()) && self.begin_replay()
    }

    #[cold]
    fn begin_replay(&mut self) -> bool {
        let Some(inquiry) = &mut self.desync_search else { return false };
        let Some(want) = inquiry.bisector.local_query() else { return false };
        let (first, last) = replay_range(want);
        if last >= inquiry.end {
            // Others are certain of it before we are.
            return false;
        }
        let (Some((_, anchor)), true) = (inquiry.anchor_before(first), inquiry.words(last).is_some()) else {
            inquiry.bisector.on_unable();
            return false;
        };
        inquiry.replay = Some(Replay { query: want, next_frame: anchor, stage: ReplayStage::SavePresent });
        self.phase = Phase::Running(FramePhase::Replay);
        true
    }

    /// The next thing of it.
    #[cold]
    pub(super) fn next_replay_request(&mut self) -> Request<'_> {
        let (base, present) = (self.config.settings.rollback_slots(), self.machine_frame);
        let Self { desync_search: inquiry, phase, scratch_words: fed_words, .. } = self;
        let inquiry = inquiry.as_mut().expect("who plays the past has something to search");
        let aside = inquiry.replay.expect("the past is played");
        let (first, last) = replay_range(aside.query);
        let (place, anchor) = inquiry.anchor_before(first).expect("no anchor is replaced meanwhile");
        let go_on = |stage, at| Some(Replay { stage, next_frame: at, ..aside });
        match aside.stage {
            ReplayStage::SavePresent => {
                inquiry.replay = go_on(ReplayStage::LoadAnchor, anchor);
                Request::Save { frame: present, slot: base + MAX_ANCHORS }
            }
            ReplayStage::LoadAnchor => {
                inquiry.replay = go_on(ReplayStage::Step, anchor);
                Request::Load { frame: anchor, slot: base + place }
            }
            ReplayStage::Step => {
                let frame = aside.next_frame;
                fed_words.copy_from_slice(inquiry.words(frame).expect("the inputs are kept"));
                let hashes = matches!(aside.query, LocalQuery::Hashes { .. });
                let stage = match () {
                    () if hashes && frame >= first => ReplayStage::Hash,
                    () if frame == last => ReplayStage::Inspect,
                    () => ReplayStage::Step,
                };
                inquiry.replay = go_on(stage, frame.next());
                Request::Advance { frame, inputs: fed_words, fresh: false }
            }
            ReplayStage::Hash => {
                inquiry.replay = go_on(
                    if aside.next_frame > last { ReplayStage::LoadPresent } else { ReplayStage::Step },
                    aside.next_frame,
                );
                Request::Hash { frame: aside.next_frame.checked_sub(1).unwrap_or_default() }
            }
            ReplayStage::Inspect => {
                inquiry.replay = go_on(ReplayStage::LoadPresent, aside.next_frame);
                match aside.query {
                    LocalQuery::Pages { frame, region, first_page: from } => Request::Pages { frame, region, from },
                    _ => Request::Regions { frame: last },
                }
            }
            ReplayStage::LoadPresent => {
                if let LocalQuery::Regions { frame } = aside.query {
                    // Without an answer, the state has no parts that can be named.
                    inquiry.bisector.on_local_regions(frame, &[]);
                }
                if inquiry.bisector.local_query() == Some(aside.query) {
                    // The host program does not tell, and never will.
                    inquiry.bisector.on_unable();
                }
                inquiry.replay = None;
                *phase = Phase::Running(FramePhase::Idle);
                Request::Load { frame: present, slot: base + MAX_ANCHORS }
            }
        }
    }

    /// A hash while the past is played; `false` if it is not.
    pub(super) fn handle_replay_hash(&mut self, hash: u64) -> bool {
        let Some(inquiry) = &mut self.desync_search else { return false };
        let Some(aside) = inquiry.replay else { return false };
        if let Some(frame) = aside.next_frame.checked_sub(1) {
            inquiry.bisector.on_local_hash(frame, fold_hash(hash));
        }
        true
    }

    /// The parts of the state that [`MirrorRequest::RegionList`] asked for. Without them a report says when and who, but not where.
    pub fn handle_regions(&mut self, regions: &[StateRegion]) {
        if let Some(inquiry) = &mut self.desync_search
            && let Some(Replay { query: LocalQuery::Regions { frame }, .. }) = inquiry.replay
        {
            inquiry.bisector.on_local_regions(frame, regions);
        }
    }

    /// The hashes that [`MirrorRequest::Pages`] asked for.
    pub fn handle_pages(&mut self, hashes: &[u32]) {
        if let Some(inquiry) = &mut self.desync_search
            && let Some(Replay { query: LocalQuery::Pages { frame, region, first_page: from }, .. }) = inquiry.replay
        {
            inquiry.bisector.on_local_pages(frame, region, from, hashes);
        }
    }

    /// How many states the host program keeps at once for [`MirrorRequest::Save`], all in all.
    pub fn slots(&self) -> usize {
        self.config.settings.rollback_slots() + if self.desync_search.is_some() { SEARCH_SLOTS } else { 0 }
    }
}
