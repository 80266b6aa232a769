//! Finding where sites began to differ.
//!
//! States are compared every so many frames only, because a hash costs time. When one comparison fails, every site plays the
//! frames since the last good one again, hashing each, and all sites exchange those hashes: the first frame that differs has the
//! cause in it. Then the site that is unlike the others is named by vote, and two sites that differ exchange hashes of named
//! parts of their states and of pages of those, down to 256 bytes.
//!
//! A [`DesyncBisector`] is one site's end of that. It is told what is known here and what others say, and tells what it wants to know next
//! ([`DesyncBisector::want`]). It pulls: it asks again and again for what is missing ([`DesyncBisector::poll_query`], as often as its owner likes)
//! and answers what others ask ([`DesyncBisector::poll_answer`]). Who leaves too many questions unanswered is left out, so every search
//! ends. Its memory is bounded, whatever others say, and next to nothing as long as nothing is wrong.

mod query;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::report::{DesyncReport, FrameSpan, MAX_REGIONS, PAGE_SIZE, StateRegion, StateRegionDifference, odd_site};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::wire::MAX_HASHES;

/// A search is begun anew so often because another site knows better where to look.
const MAX_RESTARTS: u8 = 4;
/// Pieces of regions kept to answer others: one for each of them, and our own.
const MAX_PAGE_HASHES: usize = 2 * MAX_SITES;

/// What a search needs to know of the local machine next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalQuery {
    /// Play the span again, from the state before its first frame on, and tell the hash after every frame from `from` on with
    /// [`DesyncBisector::on_local_hash`]; or say [`DesyncBisector::on_unable`].
    Hashes {
        /// The span.
        span: FrameSpan,
        /// The first frame whose hash is not known yet.
        first: Frame,
    },
    /// Tell the regions of the state after a frame with [`DesyncBisector::on_local_regions`].
    Regions {
        /// The frame.
        frame: Frame,
    },
    /// Tell the hashes of up to [`MAX_HASHES`] pages of a region with [`DesyncBisector::on_local_pages`].
    Pages {
        /// The frame after which.
        frame: Frame,
        /// The region, counted from 0.
        region: u8,
        /// The first page.
        first_page: u32,
    },
}

/// Looks for the first frame in which sites differ.
#[derive(Debug)]
pub struct DesyncBisector {
    own_site: SiteId,
    /// Those that take part in the search.
    sites: SiteSet,
    phase: BisectPhase,
    restarts: u8,
    /// Sites that cannot play the span again, or do not answer.
    unable_sites: SiteSet,
    /// Those that are not there any more.
    gone_sites: SiteSet,
    /// Our host program can tell no more.
    is_unable: bool,
    /// The digest after the span as it was in the game.
    digests: [Option<u32>; MAX_SITES],
    /// Hashes after every frame of the span, from its first on.
    hashes: [Vec<[u8; 4]>; MAX_SITES],
    regions: Option<Vec<StateRegion>>,
    /// The regions of the site that we compare ourselves with, as far as they are here.
    peer_regions: Vec<StateRegion>,
    /// How many it has.
    peer_region_count: Option<usize>,
    page_hashes: Vec<PageHashes>,
    /// What others want to know of us.
    peer_queries: [Option<PeerQuery>; MAX_SITES],
    /// Questions since a site last answered one.
    unanswered_queries: [u32; MAX_SITES],
}

/// Where a search is.
#[derive(Debug)]
enum BisectPhase {
    /// Nothing is wrong.
    Idle,
    /// Every site's hashes are gathered.
    Hashes(FrameSpan),
    /// The first frame is known, the regions are gathered.
    Regions(Box<DesyncReport>, Frame, SiteId),
    /// Regions that differ are looked at more closely, page by page.
    Pages(Box<DesyncReport>, Frame, SiteId, PageCursor),
    /// Nothing more will be found. The report is there until it is taken.
    Done(Option<Box<DesyncReport>>, FrameSpan, Option<Frame>),
}

/// Where in the state we look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageCursor {
    /// Which of the report's regions.
    region_index: usize,
    /// From which page on.
    first_page: u32,
}

/// Hashes of pages of one of our regions.
#[derive(Debug)]
struct PageHashes {
    region: u8,
    first_page: u32,
    hashes: Vec<[u8; 4]>,
}

/// What another site wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerQuery {
    Hashes(Frame),
    Regions(Frame, u8),
    Pages(Frame, u8, u32),
}

impl DesyncBisector {
    /// Looks on until something is wrong between these sites, of which we are one.
    pub fn new(me: SiteId, sites: SiteSet) -> Self {
        Self {
            own_site: me,
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

    /// Whether a search goes on.
    pub fn is_searching(&self) -> bool {
        !matches!(self.phase, BisectPhase::Idle | BisectPhase::Done(..))
    }

    /// What is searched, or was.
    pub fn span(&self) -> Option<FrameSpan> {
        match &self.phase {
            BisectPhase::Idle => None,
            BisectPhase::Hashes(span) | BisectPhase::Done(_, span, _) => Some(*span),
            BisectPhase::Regions(report, ..) | BisectPhase::Pages(report, ..) => Some(report.span),
        }
    }

    /// The first frame that differs, once that is known.
    fn first_differing_frame(&self) -> Option<Frame> {
        match &self.phase {
            BisectPhase::Idle | BisectPhase::Hashes(_) => None,
            BisectPhase::Done(_, _, frame) => *frame,
            BisectPhase::Regions(_, frame, _) | BisectPhase::Pages(_, frame, ..) => Some(*frame),
        }
    }

    /// Another site's digest after the span differs from `ours`. Searches, unless an earlier span is searched already.
    pub fn on_mismatch(&mut self, span: FrameSpan, ours: u32) {
        self.start_search(span);
        self.on_digest(span.last(), ours);
    }

    /// Our digest after a frame, as it was in the game; of use if it is the last of the span.
    pub fn on_digest(&mut self, frame: Frame, digest: u32) {
        if self.span().is_some_and(|span| span.last() == frame) {
            self.digests[self.own_site.index()] = Some(digest);
        }
    }

    /// We cannot play the span again, or cannot tell what else is wanted.
    pub fn on_unable(&mut self) {
        self.is_unable = true;
        self.exclude_site(self.own_site);
    }

    /// A site is not there any more.
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

    /// The search has taken too long: what is known by now must do.
    pub fn give_up(&mut self) {
        for site in self.sites.iter() {
            self.exclude_site(site);
        }
        self.finish();
    }

    /// The hash of our state after a frame, while the span is played again.
    pub fn on_local_hash(&mut self, frame: Frame, hash: u32) {
        self.receive_hashes(self.own_site, frame, &[hash.to_le_bytes()]);
    }

    /// The regions of our state after the frame that was asked for; none if it has no names for them. What is more than
    /// [`MAX_REGIONS`] is left out.
    pub fn on_local_regions(&mut self, frame: Frame, regions: &[StateRegion]) {
        if self.first_differing_frame() == Some(frame) && self.regions.is_none() {
            let short = |region: &StateRegion| StateRegion { name: region.short_name().into(), ..*region };
            self.regions = Some(regions.iter().take(MAX_REGIONS).map(short).collect());
            self.advance();
        }
    }

    /// The hashes of pages of a region, as they were asked for.
    pub fn on_local_pages(&mut self, frame: Frame, region: u8, from: u32, hashes: &[u32]) {
        if self.first_differing_frame() != Some(frame) || self.page_hashes_of(region, from).is_some() {
            return;
        }
        if self.page_hashes.len() == MAX_PAGE_HASHES {
            self.page_hashes.remove(0);
        }
        let hashes = hashes.iter().take(MAX_HASHES).map(|hash| hash.to_le_bytes()).collect();
        self.page_hashes.push(PageHashes { region, first_page: from, hashes });
    }

    /// Begins a search, or a better one than that at hand.
    fn start_search(&mut self, span: FrameSpan) {
        let better = self.span().is_none_or(|at_hand| span.is_earlier_than(at_hand));
        if !better || self.restarts > MAX_RESTARTS {
            return;
        }
        let (fresh, gone) = (Self::new(self.own_site, self.sites), self.gone_sites);
        *self = Self {
            phase: BisectPhase::Hashes(span),
            restarts: self.restarts + 1,
            gone_sites: gone,
            unable_sites: gone,
            ..fresh
        };
    }

    fn receive_hashes(&mut self, site: SiteId, from: Frame, hashes: &[[u8; 4]]) {
        let BisectPhase::Hashes(span) = self.phase else { return };
        let known = &mut self.hashes[site.index()];
        let Ok(at) = usize::try_from(from - span.first()) else { return };
        let Some(new) = known.len().checked_sub(at).and_then(|skip| hashes.get(skip..)) else { return };
        if self.unable_sites.contains(site) || new.is_empty() {
            return;
        }
        known.extend_from_slice(&new[..new.len().min(span.frames() - known.len())]);
        self.unanswered_queries[site.index()] = 0;
        self.advance();
    }

    /// The pages that we look at: the region's number here and there, and the first page.
    fn current_pages(&self) -> Option<(u8, u8, u32)> {
        let BisectPhase::Pages(report, _, _, place) = &self.phase else { return None };
        let name = &report.regions.get(place.region_index)?.name;
        let number = |regions: &[StateRegion]| regions.iter().position(|region| region.name == *name);
        let (own, their) = (number(self.regions.as_deref()?)?, number(&self.peer_regions)?);
        Some((own as u8, their as u8, place.first_page))
    }

    /// Takes every step that can be taken with what is known.
    fn advance(&mut self) {
        match &mut self.phase {
            BisectPhase::Hashes(span) => {
                let span = *span;
                let settled =
                    |site: SiteId| self.unable_sites.contains(site) || self.hashes[site.index()].len() == span.frames();
                if self.sites.iter().all(settled) {
                    self.find_first_difference(span);
                }
            }
            BisectPhase::Regions(..) => {
                let none_here = self.regions.as_ref().is_some_and(Vec::is_empty);
                if none_here {
                    self.finish();
                } else if self.regions.is_some()
                    && self.peer_region_count.is_some_and(|total| self.peer_regions.len() >= total)
                {
                    self.compare_regions();
                }
            }
            BisectPhase::Pages(report, _, _, place) => {
                let pages = |difference: &StateRegionDifference| {
                    let there = self.peer_regions.iter().find(|region| region.name == difference.name);
                    there
                        .filter(|region| region.len == difference.len)
                        .map_or(0, |region| region.len.div_ceil(PAGE_SIZE))
                };
                while report
                    .regions
                    .get(place.region_index)
                    .is_some_and(|difference| place.first_page >= pages(difference))
                {
                    *place = PageCursor { region_index: place.region_index + 1, first_page: 0 };
                }
                if place.region_index >= report.regions.len() {
                    self.finish();
                }
            }
            BisectPhase::Idle | BisectPhase::Done(..) => {}
        }
    }

    /// All hashes are here that ever will be: names the frame and the site.
    fn find_first_difference(&mut self, span: FrameSpan) {
        let hash = |site: SiteId, at: usize| self.hashes[site.index()].get(at).map(|hash| u32::from_le_bytes(*hash));
        let known = || self.sites.iter().filter(|site| !self.unable_sites.contains(*site));
        let differs =
            |at: usize| known().any(|site| Some(hash(site, at)) != known().next().map(|first| hash(first, at)));
        let at = (0..span.frames()).find(|at| differs(*at));
        let in_game = |site: SiteId| self.digests[site.index()];
        let steady = |site: SiteId| in_game(site).is_none_or(|digest| hash(site, span.frames() - 1) == Some(digest));
        let unsteady = known().filter(|site| !steady(*site)).collect();
        let mut digests = self.digests;
        if let Some(at) = at {
            self.sites.iter().for_each(|site| digests[site.index()] = hash(site, at));
        }
        let odd = odd_site(&digests, SiteSet::EMPTY).or_else(|| odd_site(&self.digests, unsteady));
        let differs_from_us = |site: &SiteId| at.is_some_and(|at| hash(*site, at) != hash(self.own_site, at));
        let others = || known().filter(|_| !self.unable_sites.contains(self.own_site)).filter(differs_from_us);
        let other = others().find(|site| Some(*site) == odd).or_else(|| others().next());
        let first_frame = at.map(|at| span.first() + at as u32);
        let (unable, regions, inputs) = (self.unable_sites, Vec::new(), Vec::new());
        let report = DesyncReport {
            span,
            first_frame,
            odd_site: odd,
            nondeterministic_sites: unsteady,
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

    /// Regions are compared by name, whatever their order.
    fn compare_regions(&mut self) {
        let BisectPhase::Regions(report, frame, other) = core::mem::replace(&mut self.phase, BisectPhase::Idle) else {
            return;
        };
        let mut report = report;
        for ours in self.regions.iter().flatten() {
            let there = self.peer_regions.iter().find(|theirs| theirs.name == ours.name);
            if let Some(theirs) = there.filter(|theirs| (theirs.hash, theirs.len) != (ours.hash, ours.len)) {
                let (name, len) = (ours.name.clone(), ours.len);
                let difference = StateRegionDifference { name, offset: 0, len, ours: ours.hash, theirs: theirs.hash };
                report.regions.push(difference);
            }
        }
        self.phase = BisectPhase::Pages(report, frame, other, PageCursor { region_index: 0, first_page: 0 });
        self.advance();
    }

    /// Nothing more will be found.
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

    fn page_hashes_of(&self, region: u8, from: u32) -> Option<&PageHashes> {
        self.page_hashes.iter().find(|piece| (piece.region, piece.first_page) == (region, from))
    }

    /// What to find out about the local machine next, for ourselves or for others. A search waits for it until it is told, or until
    /// [`DesyncBisector::on_unable`] says that it never will be.
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
            let asked = self
                .peer_queries
                .iter()
                .any(|asked| matches!(asked, Some(PeerQuery::Regions(about, _)) if *about == frame));
            return (asked || self.is_searching()).then_some(LocalQuery::Regions { frame });
        }
        let own = self.current_pages().map(|(region, _, from)| (region, from));
        let asked = self.peer_queries.iter().filter_map(|asked| match asked {
            Some(PeerQuery::Pages(about, region, from)) if *about == frame => Some((*region, *from)),
            _ => None,
        });
        let missing = |(region, from): &(u8, u32)| {
            self.has_pages(*region, *from) && self.page_hashes_of(*region, *from).is_none()
        };
        own.into_iter().chain(asked).find(missing).map(|(region, from)| LocalQuery::Pages {
            frame,
            region,
            first_page: from,
        })
    }

    /// Whether a region of ours has these pages, and they can be asked for.
    fn has_pages(&self, region: u8, from: u32) -> bool {
        let region = self.regions.as_ref().and_then(|regions| regions.get(usize::from(region)));
        from.is_multiple_of(MAX_HASHES as u32) && region.is_some_and(|region| from < region.len.div_ceil(PAGE_SIZE))
    }

    /// The report, once, when nothing more will be found.
    pub fn poll_report(&mut self) -> Option<Box<DesyncReport>> {
        match &mut self.phase {
            BisectPhase::Done(report, ..) => report.take(),
            _ => None,
        }
    }
}
