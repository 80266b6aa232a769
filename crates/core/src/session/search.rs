//! When states differ: playing the past again, aside, to find out since when, at whom, and where.
//!
//! Next to every hash that is compared the host program keeps a state, an *anchor*, and the session keeps the inputs of the frames
//! since. When a comparison fails, a [`Finder`] asks for the hashes of all frames since the last good one: between two frames of the
//! game the machine is put back to an anchor, plays them once more, and is put forward again, which takes as long as so many
//! frames take to step; then the game goes on.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::event::{Event, Request};
use super::finder::{Finder, Want};
use super::play::fold;
use super::report::{Region, Report, Span};
use super::settings::Settings;
use super::{Phase, Session, Step, Transmit};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::input::Word;
use crate::time::{Instant, TimeDelta};
use crate::wire::Search;

/// Frames that pass, at most, until a comparison that fails is known of, with some to spare. The inputs of so many are kept, and of
/// those between two comparisons.
const UNTIL_KNOWN: u32 = 256;
/// The most frames that are searched where comparisons are closer together, because some of them were lost.
const USUAL_SPAN: u32 = 256;
/// Anchors are at least this many frames apart, so that the oldest is not gone before a difference is known.
const APART: u32 = 64;
/// States kept for this: the anchors, and the present while the past is played.
const ANCHORS: usize = 3;
pub(super) const PLACES: usize = ANCHORS + 1;
/// What is missing is asked for so often.
const ASK_EVERY: TimeDelta = TimeDelta::from_millis(100);
/// A search that takes longer tells what it has.
const PATIENCE: TimeDelta = TimeDelta::from_secs(10);
/// Inputs told before and after the frame in question.
const AROUND: u32 = 8;

/// What one site needs to search for differences.
#[derive(Debug)]
pub(super) struct Inquiry {
    me: SiteId,
    sites: SiteSet,
    finder: Finder,
    /// The inputs of the newest frames, all players' words side by side.
    past: Vec<Word>,
    players: usize,
    /// How many frames have room there.
    room: usize,
    /// The most frames that are searched.
    most: u32,
    /// The frames before this one are in it, as many as there is room for.
    until: Frame,
    first: Frame,
    /// The frame that is next in each anchor.
    anchors: [Option<Frame>; ANCHORS],
    next_ask: Instant,
    since: Option<Instant>,
    /// Peers, by index, that are still to be asked in this round.
    asking: u8,
    aside: Option<Aside>,
}

/// Playing the past again.
#[derive(Clone, Copy, Debug)]
struct Aside {
    want: Want,
    /// The next frame of the machine.
    at: Frame,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Keep,
    GoBack,
    Play,
    Hash,
    Look,
    Return,
}

impl Inquiry {
    pub(super) fn new(me: SiteId, sites: SiteSet, settings: &Settings, first: Frame) -> Box<Self> {
        let players = settings.ownership.players();
        let most = settings.compare_every.max(USUAL_SPAN);
        let room = (most + UNTIL_KNOWN) as usize;
        Box::new(Self {
            me,
            sites,
            finder: Finder::new(me, sites),
            past: vec![0; players * room],
            players,
            room,
            most,
            until: first,
            first,
            anchors: [None; ANCHORS],
            next_ask: Instant::ZERO,
            since: None,
            asking: 0,
            aside: None,
        })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.since.is_some()
    }

    /// There is something to search, if there was nothing before.
    fn begin(&mut self, now: Instant) {
        if self.since.is_none() {
            (self.since, self.next_ask) = (Some(now), now);
        }
    }

    /// What was found is done with; the next difference is another matter.
    pub(super) fn begin_anew(&mut self) {
        if !self.finder.is_searching() && self.aside.is_none() {
            self.finder = Finder::new(self.me, self.sites);
            self.since = None;
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.past.capacity() * size_of::<Word>()
    }

    /// Keeps the inputs of the next frame.
    pub(super) fn push(&mut self, frame: Frame, words: &[Word]) {
        self.words_mut(frame).copy_from_slice(words);
        self.until = frame.next();
    }

    fn words_mut(&mut self, frame: Frame) -> &mut [Word] {
        let at = frame.number() as usize % self.room * self.players;
        &mut self.past[at..at + self.players]
    }

    fn words(&self, frame: Frame) -> Option<&[Word]> {
        let kept = frame < self.until && frame >= self.first && self.until - frame <= self.room as i64;
        let at = frame.number() as usize % self.room * self.players;
        kept.then(|| &self.past[at..at + self.players])
    }

    /// The frames to be searched: all since the last good comparison, or one more than the most there can be if those are not kept.
    fn span(&self, agreed: Option<Frame>, frame: Frame) -> Option<Span> {
        let first = agreed.map_or(self.first, Frame::next);
        let oldest = frame.checked_sub(self.most).unwrap_or_default();
        Span::new(first.max(oldest), frame)
    }

    /// Whether states may have differed before the span already: it is longer than any that goes back to a good comparison.
    fn is_clipped(&self, span: Span) -> bool {
        span.frames() > self.most as usize
    }

    /// Makes a report of what was found: the inputs around it, and no frame where it may have been an earlier one.
    fn complete(&self, report: &mut Report) {
        report.first_frame =
            report.first_frame.filter(|frame| !self.is_clipped(report.span) || *frame > report.span.first());
        let frame = report.first_frame.unwrap_or(report.span.last());
        let first = frame.checked_sub(AROUND).unwrap_or_default();
        let around = (0..=2 * AROUND).map(|ahead| first + ahead);
        report.inputs = around.filter_map(|frame| self.words(frame).map(|words| (frame, words.to_vec()))).collect();
    }

    /// The newest state from which a frame can be played again.
    fn anchor_before(&self, frame: Frame) -> Option<(usize, Frame)> {
        let known = self.anchors.iter().enumerate().filter_map(|(place, next)| next.map(|next| (place, next)));
        known.filter(|(_, next)| *next <= frame && self.words(*next).is_some()).max_by_key(|(_, next)| *next)
    }
}

/// The first frame to be played again, and the last.
fn frames_of(want: Want) -> (Frame, Frame) {
    match want {
        Want::Hashes { span, .. } => (span.first(), span.last()),
        Want::Regions { frame } | Want::Pages { frame, .. } => (frame, frame),
    }
}

impl Session {
    /// The place of an anchor before a frame that is none of the usual ones.
    pub(super) fn place_before(&self, frame: Frame) -> usize {
        let every = self.config.settings.compare_every;
        (frame.number() / (every * APART.div_ceil(every.max(1))).max(1)) as usize % ANCHORS
    }

    /// The place of an anchor, if the state after this frame is to be kept as one.
    pub(super) fn anchor_place(&self, frame: Frame) -> Option<usize> {
        let every = self.config.settings.compare_every;
        let apart = every * APART.div_ceil(every.max(1));
        let number = (frame.number() + 1) / apart.max(1);
        (self.inquiry.is_some() && number * apart == frame.number() + 1).then_some(number as usize % ANCHORS)
    }

    /// Asks to keep the state after a frame that is compared.
    #[cold]
    pub(super) fn keep_anchor(&mut self, place: usize, frame: Frame) -> Request<'_> {
        let slot = self.config.settings.slots() + place;
        if let Some(inquiry) = &mut self.inquiry {
            inquiry.anchors[place] = Some(frame);
        }
        Request::Save { frame, slot }
    }

    /// A peer's state differs from ours after a frame, and did not after another.
    pub(super) fn investigate(&mut self, agreed: Option<Frame>, frame: Frame, ours: u32) {
        let Some(inquiry) = &mut self.inquiry else { return };
        if let Some(span) = inquiry.span(agreed, frame) {
            inquiry.finder.on_mismatch(span, ours);
            inquiry.begin(self.called);
            self.aside = true;
        }
    }

    /// A datagram of a search.
    #[cold]
    pub(super) fn handle_search(&mut self, now: Instant, from: Addr, bytes: &[u8]) {
        let site = self.peers.iter().find(|peer| peer.addr == from && peer.is_playing()).map(|peer| peer.site);
        let inquiry = self.inquiry.as_mut().filter(|_| self.joining.is_none());
        let (Some(site), Some(inquiry)) = (site, inquiry) else {
            self.stats.dropped.strangers += 1;
            return;
        };
        let Ok(search) = Search::decode(bytes) else {
            self.stats.dropped.malformed += 1;
            return;
        };
        inquiry.finder.on_message(site, &search);
        if inquiry.finder.is_searching() {
            inquiry.begin(now);
            self.aside = true;
        }
        if let Some(span) = inquiry.finder.span()
            && let Some(digest) = self.digests.get(span.last())
        {
            inquiry.finder.on_digest(span.last(), digest.hash);
        }
    }

    /// Asks and answers that are due.
    pub(super) fn transmit_search(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let Self { inquiry, peers, .. } = self;
        let inquiry = inquiry.as_mut().filter(|inquiry| inquiry.since.is_some())?;
        for peer in peers.iter().filter(|peer| peer.is_playing()) {
            if let Some(len) = inquiry.finder.poll_answer(peer.site, buf) {
                return Some(Transmit { to: peer.addr, len });
            }
        }
        if inquiry.next_ask <= now {
            inquiry.next_ask = now + ASK_EVERY;
            inquiry.asking = u8::MAX;
        }
        while inquiry.asking != 0 {
            let index = inquiry.asking.trailing_zeros() as usize;
            inquiry.asking &= inquiry.asking - 1;
            let Some(peer) = peers.get(index).filter(|peer| peer.is_playing()) else { continue };
            if let Some(len) = inquiry.finder.poll_ask(peer.site, buf) {
                return Some(Transmit { to: peer.addr, len });
            }
        }
        None
    }

    /// When a search has something to do.
    pub(super) fn search_time(&self) -> Instant {
        let searching = self.inquiry.as_ref().filter(|inquiry| inquiry.since.is_some());
        searching.map_or(Instant::FAR_FUTURE, |inquiry| inquiry.next_ask)
    }

    /// What becomes of a search.
    pub(super) fn watch_search(&mut self, now: Instant) {
        let playing = self.voters();
        let Some(inquiry) = self.inquiry.as_mut().filter(|inquiry| inquiry.since.is_some()) else { return };
        for peer in self.peers.iter().filter(|peer| !playing.contains(peer.site)) {
            inquiry.finder.on_gone(peer.site);
        }
        if inquiry.since.is_some_and(|since| now - since > PATIENCE) {
            inquiry.finder.give_up();
        }
        if let Some(mut report) = inquiry.finder.poll_report() {
            inquiry.complete(&mut report);
            self.events.push(Event::Report(report));
        }
        if !inquiry.finder.is_searching()
            && inquiry.aside.is_none()
            && inquiry.since.is_some_and(|since| now - since > PATIENCE * 2)
        {
            // Others may still ask for what we found; then it is over.
            inquiry.begin_anew();
        }
    }

    /// Whether the past is to be played aside now.
    #[inline]
    pub(super) fn goes_aside(&mut self) -> bool {
        self.inquiry.as_ref().is_some_and(|inquiry| inquiry.since.is_some()) && self.begin_aside()
    }

    #[cold]
    fn begin_aside(&mut self) -> bool {
        let Some(inquiry) = &mut self.inquiry else { return false };
        let Some(want) = inquiry.finder.want() else { return false };
        let (first, last) = frames_of(want);
        if last >= inquiry.until {
            // Others are certain of it before we are.
            return false;
        }
        let (Some((_, anchor)), true) = (inquiry.anchor_before(first), inquiry.words(last).is_some()) else {
            inquiry.finder.on_unable();
            return false;
        };
        inquiry.aside = Some(Aside { want, at: anchor, stage: Stage::Keep });
        self.phase = Phase::Running(Step::Aside);
        true
    }

    /// The next thing of it.
    #[cold]
    pub(super) fn next_aside(&mut self) -> Request<'_> {
        let (base, present) = (self.config.settings.slots(), self.at);
        let Self { inquiry, phase, fed_words, .. } = self;
        let inquiry = inquiry.as_mut().expect("who plays the past has something to search");
        let aside = inquiry.aside.expect("the past is played");
        let (first, last) = frames_of(aside.want);
        let (place, anchor) = inquiry.anchor_before(first).expect("no anchor is replaced meanwhile");
        let go_on = |stage, at| Some(Aside { stage, at, ..aside });
        match aside.stage {
            Stage::Keep => {
                inquiry.aside = go_on(Stage::GoBack, anchor);
                Request::Save { frame: present, slot: base + ANCHORS }
            }
            Stage::GoBack => {
                inquiry.aside = go_on(Stage::Play, anchor);
                Request::Load { frame: anchor, slot: base + place }
            }
            Stage::Play => {
                let frame = aside.at;
                fed_words.copy_from_slice(inquiry.words(frame).expect("the inputs are kept"));
                let hashes = matches!(aside.want, Want::Hashes { .. });
                let stage = match () {
                    () if hashes && frame >= first => Stage::Hash,
                    () if frame == last => Stage::Look,
                    () => Stage::Play,
                };
                inquiry.aside = go_on(stage, frame.next());
                Request::Advance { frame, inputs: fed_words, fresh: false }
            }
            Stage::Hash => {
                inquiry.aside = go_on(if aside.at > last { Stage::Return } else { Stage::Play }, aside.at);
                Request::Hash { frame: aside.at.checked_sub(1).unwrap_or_default() }
            }
            Stage::Look => {
                inquiry.aside = go_on(Stage::Return, aside.at);
                match aside.want {
                    Want::Pages { frame, region, from } => Request::Pages { frame, region, from },
                    _ => Request::Regions { frame: last },
                }
            }
            Stage::Return => {
                if let Want::Regions { frame } = aside.want {
                    // Without an answer, the state has no parts that can be named.
                    inquiry.finder.on_local_regions(frame, &[]);
                }
                if inquiry.finder.want() == Some(aside.want) {
                    // The host program does not tell, and never will.
                    inquiry.finder.on_unable();
                }
                inquiry.aside = None;
                *phase = Phase::Running(Step::Rest);
                Request::Load { frame: present, slot: base + ANCHORS }
            }
        }
    }

    /// A hash while the past is played; `false` if it is not.
    pub(super) fn take_hash_aside(&mut self, hash: u64) -> bool {
        let Some(inquiry) = &mut self.inquiry else { return false };
        let Some(aside) = inquiry.aside else { return false };
        if let Some(frame) = aside.at.checked_sub(1) {
            inquiry.finder.on_local_hash(frame, fold(hash));
        }
        true
    }

    /// The parts of the state that [`Request::Regions`] asked for. Without them a report says when and who, but not where.
    pub fn handle_regions(&mut self, regions: &[Region]) {
        if let Some(inquiry) = &mut self.inquiry
            && let Some(Aside { want: Want::Regions { frame }, .. }) = inquiry.aside
        {
            inquiry.finder.on_local_regions(frame, regions);
        }
    }

    /// The hashes that [`Request::Pages`] asked for.
    pub fn handle_pages(&mut self, hashes: &[u32]) {
        if let Some(inquiry) = &mut self.inquiry
            && let Some(Aside { want: Want::Pages { frame, region, from }, .. }) = inquiry.aside
        {
            inquiry.finder.on_local_pages(frame, region, from, hashes);
        }
    }

    /// How many states the host program keeps at once for [`Request::Save`], all in all.
    pub fn slots(&self) -> usize {
        self.config.settings.slots() + if self.inquiry.is_some() { PLACES } else { 0 }
    }
}
