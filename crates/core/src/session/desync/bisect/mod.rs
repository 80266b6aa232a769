//! Desync bisection: finds the first frame after which the states of sites differ, and the part of the state in which
//! they differ.
//!
//! States are compared only every [`Settings::compare_interval`](crate::session::Settings::compare_interval) frames,
//! because a hash costs time. When a comparison fails, every site replays the frames since the last successful one and
//! hashes each state. All sites exchange those hashes: the first frame that differs contains the cause. Then a vote
//! names the site that differs from the others, and two sites that differ exchange hashes of named regions of their
//! states and of the pages of those, down to 256 bytes.
//!
//! A [`DesyncBisector`] is one site's end of that search. Its input is local results and messages of other sites; its
//! output is the next local query ([`DesyncBisector::local_query`]). It repeats its queries to other sites with every
//! call of [`DesyncBisector::poll_query`], about ten per second, and answers theirs with
//! [`DesyncBisector::poll_answer`]. A site that leaves 200 queries in a row unanswered is excluded.
//! [`DesyncBisector::give_up`] ends a search that takes too long. The memory is bounded, whatever other sites send, and
//! nearly zero as long as there is no desync.

mod query;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::report::{DesyncReport, FrameSpan, MAX_REGIONS, PAGE_SIZE, StateRegion, StateRegionDifference, odd_site};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::desync::message::MAX_HASHES;

/// Maximum number of times that a search starts over because another site knows an earlier span.
const MAX_RESTARTS: u8 = 4;
/// Maximum number of lists of page hashes kept for answers; the oldest is dropped.
const MAX_PAGE_HASHES: usize = 2 * MAX_SITES;

/// The next local result that a search needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalQuery {
    /// Replay the span, from the state before its first frame on, and pass the hash after every frame from `first` on
    /// to [`DesyncBisector::on_local_hash`]; or call [`DesyncBisector::on_unable`].
    Hashes {
        /// The frames to be replayed.
        span: FrameSpan,
        /// The first frame whose hash is not known yet.
        first: Frame,
    },
    /// Pass the regions of the state after `frame` to [`DesyncBisector::on_local_regions`].
    Regions {
        /// The frame after which the state is described.
        frame: Frame,
    },
    /// Pass the hashes of up to [`MAX_HASHES`] pages of a region to [`DesyncBisector::on_local_pages`].
    Pages {
        /// The frame after which the state is hashed.
        frame: Frame,
        /// Index of the region in the list that was passed to [`DesyncBisector::on_local_regions`].
        region: u8,
        /// The first page to hash, counted from 0.
        first_page: u32,
    },
}

/// One site's end of the search for the first frame after which sites differ; a pure state machine.
#[derive(Debug)]
pub struct DesyncBisector {
    own_site: SiteId,
    /// Sites that take part in the search, including this one.
    sites: SiteSet,
    phase: BisectPhase,
    restarts: u8,
    /// Sites that cannot replay the span, do not answer, or are gone.
    unable_sites: SiteSet,
    /// Sites that have left or were dropped, which later searches exclude, too.
    gone_sites: SiteSet,
    /// Whether the host program cannot answer any further query of this search.
    is_unable: bool,
    /// Each site's digest after the span, as computed during the game; `None` until it is known.
    digests: [Option<u32>; MAX_SITES],
    /// Each site's hashes after the frames of the span, from the first frame on, as far as they are known.
    hashes: [Vec<[u8; 4]>; MAX_SITES],
    regions: Option<Vec<StateRegion>>,
    /// The received regions of the site that this site compares itself with.
    peer_regions: Vec<StateRegion>,
    /// Total number of regions of the site that this site compares itself with; `None` until the first answer of that
    /// site.
    peer_region_count: Option<usize>,
    page_hashes: Vec<PageHashes>,
    /// The newest query of each other site that is not answered yet.
    peer_queries: [Option<PeerQuery>; MAX_SITES],
    /// The number of queries to each site since its last useful answer.
    unanswered_queries: [u32; MAX_SITES],
}

/// Phase of a desync search.
#[derive(Debug)]
enum BisectPhase {
    /// No search has begun.
    Idle,
    /// Gathers the hashes of all sites after each frame of the span.
    Hashes(FrameSpan),
    /// The first differing frame is known; gathers the regions of this site and of the site that it compares itself
    /// with.
    Regions(Box<DesyncReport>, Frame, SiteId),
    /// Compares the differing regions of both sites page by page.
    Pages(Box<DesyncReport>, Frame, SiteId, PageCursor),
    /// The search is complete. The report is kept until it is taken; the span and the first differing frame stay.
    Done(Option<Box<DesyncReport>>, FrameSpan, Option<Frame>),
}

/// Position of the page comparison: the first page that is not compared yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageCursor {
    /// Index into the report's regions.
    region_index: usize,
    /// The first page of the list of hashes that is compared next.
    first_page: u32,
}

/// Hashes of consecutive pages of one of this site's regions, from `first_page` on.
#[derive(Debug)]
struct PageHashes {
    region: u8,
    first_page: u32,
    hashes: Vec<[u8; 4]>,
}

/// A query of another site: for hashes from a frame on, for regions (frame, first region), or for pages (frame, region,
/// first page).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerQuery {
    Hashes(Frame),
    Regions(Frame, u8),
    Pages(Frame, u8, u32),
}

impl DesyncBisector {
    /// Creates an idle bisector for these sites, which include `own_site`.
    pub fn new(own_site: SiteId, sites: SiteSet) -> Self {
        Self {
            own_site,
            sites,
            phase: BisectPhase::Idle,
            restarts: 0,
            unable_sites: SiteSet::EMPTY,
            gone_sites: SiteSet::EMPTY,
            is_unable: false,
            digests: [None; MAX_SITES],
            hashes: [const { Vec::new() }; MAX_SITES],
            regions: None,
            peer_regions: Vec::new(),
            peer_region_count: None,
            page_hashes: Vec::new(),
            peer_queries: [None; MAX_SITES],
            unanswered_queries: [0; MAX_SITES],
        }
    }

    /// Returns whether a search is under way: it was started, and its report is not complete.
    pub fn is_searching(&self) -> bool {
        !matches!(self.phase, BisectPhase::Idle | BisectPhase::Done(..))
    }

    /// Returns the span that is or was searched; `None` before the first search.
    pub fn span(&self) -> Option<FrameSpan> {
        match &self.phase {
            BisectPhase::Idle => None,
            BisectPhase::Hashes(span) | BisectPhase::Done(_, span, _) => Some(*span),
            BisectPhase::Regions(report, ..) | BisectPhase::Pages(report, ..) => Some(report.span),
        }
    }

    /// Returns the first differing frame; `None` before it is known, or if none was found.
    fn first_differing_frame(&self) -> Option<Frame> {
        match &self.phase {
            BisectPhase::Idle | BisectPhase::Hashes(_) => None,
            BisectPhase::Done(_, _, frame) => *frame,
            BisectPhase::Regions(_, frame, _) | BisectPhase::Pages(_, frame, ..) => Some(*frame),
        }
    }

    /// Handles a mismatch: another site's digest after the span differs from `ours`. Starts a search, unless the
    /// current or last one has this span or an earlier one, or searches have restarted four times.
    pub fn on_mismatch(&mut self, span: FrameSpan, ours: u32) {
        self.start_search(span);
        self.on_digest(span.last(), ours);
    }

    /// Sets this site's digest after a frame, as computed during the game. Ignored unless the frame is the last of the
    /// span.
    pub fn on_digest(&mut self, frame: Frame, digest: u32) {
        if self.span().is_some_and(|span| span.last() == frame) {
            self.digests[self.own_site.index()] = Some(digest);
        }
    }

    /// Notes that this site cannot replay the span, or cannot answer a query. No more local queries follow, and the
    /// search does without the results.
    pub fn on_unable(&mut self) {
        self.is_unable = true;
        self.exclude_site(self.own_site);
    }

    /// Excludes a site that has left or was dropped from this search and later ones.
    pub fn on_gone(&mut self, site: SiteId) {
        self.gone_sites.insert(site);
        self.exclude_site(site);
    }

    fn exclude_site(&mut self, site: SiteId) {
        if let BisectPhase::Hashes(span) = self.phase
            && self.hashes[site.index()].len() < span.frames()
        {
            self.hashes[site.index()].clear();
            self.unable_sites.insert(site);
        }
        self.advance();
        let waits_for = match &self.phase {
            BisectPhase::Regions(_, _, other) | BisectPhase::Pages(_, _, other, _) => {
                *other == site || self.own_site == site
            }
            BisectPhase::Idle | BisectPhase::Hashes(_) | BisectPhase::Done(..) => false,
        };
        if waits_for {
            self.finish();
        }
    }

    /// Ends a search that has taken too long, with the results so far.
    pub fn give_up(&mut self) {
        for site in self.sites.iter() {
            self.exclude_site(site);
        }
        self.finish();
    }

    /// Handles the hash of this site's state after a frame of the replay.
    pub fn on_local_hash(&mut self, frame: Frame, hash: u32) {
        self.receive_hashes(self.own_site, frame, &[hash.to_le_bytes()]);
    }

    /// Handles the requested regions of this site's state; empty if the machine does not name any. Regions beyond
    /// [`MAX_REGIONS`] are ignored.
    pub fn on_local_regions(&mut self, frame: Frame, regions: &[StateRegion]) {
        if self.first_differing_frame() == Some(frame) && self.regions.is_none() {
            let short = |region: &StateRegion| StateRegion { name: region.short_name().into(), ..*region };
            self.regions = Some(regions.iter().take(MAX_REGIONS).map(short).collect());
            self.advance();
        }
    }

    /// Handles the requested hashes of pages of a region from `first_page` on. Hashes beyond [`MAX_HASHES`] are
    /// ignored.
    pub fn on_local_pages(&mut self, frame: Frame, region: u8, first_page: u32, hashes: &[u32]) {
        if self.first_differing_frame() != Some(frame) || self.page_hashes_of(region, first_page).is_some() {
            return;
        }
        if self.page_hashes.len() == MAX_PAGE_HASHES {
            self.page_hashes.remove(0);
        }
        let hashes = hashes.iter().take(MAX_HASHES).map(|hash| hash.to_le_bytes()).collect();
        self.page_hashes.push(PageHashes { region, first_page, hashes });
    }

    /// Starts a search, unless the current or last one has this span or an earlier one, or searches have restarted four
    /// times.
    fn start_search(&mut self, span: FrameSpan) {
        let better = self.span().is_none_or(|current| span.is_earlier_than(current));
        if !better || self.restarts > MAX_RESTARTS {
            return;
        }
        let (idle, gone) = (Self::new(self.own_site, self.sites), self.gone_sites);
        *self = Self {
            phase: BisectPhase::Hashes(span),
            restarts: self.restarts + 1,
            gone_sites: gone,
            unable_sites: gone,
            ..idle
        };
    }

    fn receive_hashes(&mut self, site: SiteId, from: Frame, hashes: &[[u8; 4]]) {
        let BisectPhase::Hashes(span) = self.phase else { return };
        let known = &mut self.hashes[site.index()];
        let Ok(index) = usize::try_from(from - span.first()) else { return };
        let Some(new) = known.len().checked_sub(index).and_then(|skip| hashes.get(skip..)) else { return };
        if self.unable_sites.contains(site) || new.is_empty() {
            return;
        }
        known.extend_from_slice(&new[..new.len().min(span.frames() - known.len())]);
        self.unanswered_queries[site.index()] = 0;
        self.advance();
    }

    /// Returns the pages that are compared: the index of the region at this site and at the other site, and the first
    /// page.
    fn current_pages(&self) -> Option<(u8, u8, u32)> {
        let BisectPhase::Pages(report, _, _, cursor) = &self.phase else { return None };
        let name = &report.regions.get(cursor.region_index)?.name;
        let number = |regions: &[StateRegion]| regions.iter().position(|region| region.name == *name);
        let (own, their) = (number(self.regions.as_deref()?)?, number(&self.peer_regions)?);
        Some((own as u8, their as u8, cursor.first_page))
    }

    /// Advances the search as far as the known results allow.
    fn advance(&mut self) {
        match &mut self.phase {
            BisectPhase::Hashes(span) => {
                let span = *span;
                let is_settled =
                    |site: SiteId| self.unable_sites.contains(site) || self.hashes[site.index()].len() == span.frames();
                if self.sites.iter().all(is_settled) {
                    self.find_first_difference(span);
                }
            }
            BisectPhase::Regions(..) => {
                let has_no_regions = self.regions.as_ref().is_some_and(Vec::is_empty);
                if has_no_regions {
                    self.finish();
                } else if self.regions.is_some()
                    && self.peer_region_count.is_some_and(|total| self.peer_regions.len() >= total)
                {
                    self.compare_regions();
                }
            }
            BisectPhase::Pages(report, _, _, cursor) => {
                let pages = |difference: &StateRegionDifference| {
                    let theirs = self.peer_regions.iter().find(|region| region.name == difference.name);
                    theirs
                        .filter(|region| region.len == difference.len)
                        .map_or(0, |region| region.len.div_ceil(PAGE_SIZE))
                };
                while report
                    .regions
                    .get(cursor.region_index)
                    .is_some_and(|difference| cursor.first_page >= pages(difference))
                {
                    *cursor = PageCursor { region_index: cursor.region_index + 1, first_page: 0 };
                }
                if cursor.region_index >= report.regions.len() {
                    self.finish();
                }
            }
            BisectPhase::Idle | BisectPhase::Done(..) => {}
        }
    }

    /// Determines the first differing frame and the odd site, once all hashes that can arrive have arrived.
    fn find_first_difference(&mut self, span: FrameSpan) {
        let hash =
            |site: SiteId, index: usize| self.hashes[site.index()].get(index).map(|hash| u32::from_le_bytes(*hash));
        let known = || self.sites.iter().filter(|site| !self.unable_sites.contains(*site));
        let differs = |index: usize| {
            known().any(|site| Some(hash(site, index)) != known().next().map(|first| hash(first, index)))
        };
        let index = (0..span.frames()).find(|index| differs(*index));
        let game_digest = |site: SiteId| self.digests[site.index()];
        let is_deterministic =
            |site: SiteId| game_digest(site).is_none_or(|digest| hash(site, span.frames() - 1) == Some(digest));
        let nondeterministic = known().filter(|site| !is_deterministic(*site)).collect();
        let mut digests = self.digests;
        if let Some(index) = index {
            self.sites.iter().for_each(|site| digests[site.index()] = hash(site, index));
        }
        let odd = odd_site(&digests, SiteSet::EMPTY).or_else(|| odd_site(&self.digests, nondeterministic));
        let differs_from_us =
            |site: &SiteId| index.is_some_and(|index| hash(*site, index) != hash(self.own_site, index));
        let others = || known().filter(|_| !self.unable_sites.contains(self.own_site)).filter(differs_from_us);
        let other = others().find(|site| Some(*site) == odd).or_else(|| others().next());
        let first_frame = index.map(|index| span.first() + index as u32);
        let (unable, regions, inputs) = (self.unable_sites, Vec::new(), Vec::new());
        let report = DesyncReport {
            span,
            first_frame,
            odd_site: odd,
            nondeterministic_sites: nondeterministic,
            unable_sites: unable,
            digests,
            compared_site: other,
            regions,
            inputs,
        };
        self.unanswered_queries = [0; MAX_SITES];
        self.phase = match (first_frame, other) {
            (Some(frame), Some(other)) => BisectPhase::Regions(Box::new(report), frame, other),
            _ => BisectPhase::Done(Some(Box::new(report)), span, first_frame),
        };
        self.advance();
    }

    /// Compares the regions of both sites by name, not by index, and puts those that differ into the report.
    fn compare_regions(&mut self) {
        let BisectPhase::Regions(report, frame, other) = core::mem::replace(&mut self.phase, BisectPhase::Idle) else {
            return;
        };
        let mut report = report;
        for ours in self.regions.iter().flatten() {
            let found = self.peer_regions.iter().find(|theirs| theirs.name == ours.name);
            if let Some(theirs) = found.filter(|theirs| (theirs.hash, theirs.len) != (ours.hash, ours.len)) {
                let (name, len) = (ours.name.clone(), ours.len);
                let difference = StateRegionDifference { name, offset: 0, len, ours: ours.hash, theirs: theirs.hash };
                report.regions.push(difference);
            }
        }
        self.phase = BisectPhase::Pages(report, frame, other, PageCursor { region_index: 0, first_page: 0 });
        self.advance();
    }

    /// Completes the search of regions and pages with the results so far.
    fn finish(&mut self) {
        let found = self.first_differing_frame();
        self.phase = match core::mem::replace(&mut self.phase, BisectPhase::Idle) {
            BisectPhase::Regions(report, ..) | BisectPhase::Pages(report, ..) => {
                let span = report.span;
                BisectPhase::Done(Some(report), span, found)
            }
            other => other,
        };
    }

    fn page_hashes_of(&self, region: u8, first_page: u32) -> Option<&PageHashes> {
        self.page_hashes.iter().find(|list| (list.region, list.first_page) == (region, first_page))
    }

    /// Returns the next local result to determine, for this site or for others; `None` if none is needed. The search
    /// waits until the result is passed in, or [`DesyncBisector::on_unable`] reports that it never will be.
    pub fn local_query(&self) -> Option<LocalQuery> {
        if self.is_unable || self.unable_sites.contains(self.own_site) {
            return None;
        }
        if let BisectPhase::Hashes(span) = self.phase {
            let known = self.hashes[self.own_site.index()].len();
            return (known < span.frames()).then(|| LocalQuery::Hashes { span, first: span.first() + known as u32 });
        }
        let frame = self.first_differing_frame()?;
        if self.regions.is_none() {
            let is_queried = self
                .peer_queries
                .iter()
                .any(|query| matches!(query, Some(PeerQuery::Regions(queried, _)) if *queried == frame));
            return (is_queried || self.is_searching()).then_some(LocalQuery::Regions { frame });
        }
        let own = self.current_pages().map(|(region, _, first_page)| (region, first_page));
        let queries = self.peer_queries.iter().filter_map(|query| match query {
            Some(PeerQuery::Pages(queried, region, first_page)) if *queried == frame => Some((*region, *first_page)),
            _ => None,
        });
        let missing = |(region, first_page): &(u8, u32)| {
            self.has_pages(*region, *first_page) && self.page_hashes_of(*region, *first_page).is_none()
        };
        own.into_iter().chain(queries).find(missing).map(|(region, first_page)| LocalQuery::Pages {
            frame,
            region,
            first_page,
        })
    }

    /// Returns whether a region of this site has a page `first_page`, and a list of hashes can begin with that page:
    /// its number is a multiple of [`MAX_HASHES`].
    fn has_pages(&self, region: u8, first_page: u32) -> bool {
        let region = self.regions.as_ref().and_then(|regions| regions.get(usize::from(region)));
        first_page.is_multiple_of(MAX_HASHES as u32)
            && region.is_some_and(|region| first_page < region.len.div_ceil(PAGE_SIZE))
    }

    /// Returns the report, once, when the search is complete; else `None`.
    pub fn poll_report(&mut self) -> Option<Box<DesyncReport>> {
        match &mut self.phase {
            BisectPhase::Done(report, ..) => report.take(),
            _ => None,
        }
    }
}
