//! Finding where sites began to differ.
//!
//! States are compared every so many frames only, because a hash costs time. When one comparison fails, every site plays the
//! frames since the last good one again, hashing each, and all sites exchange those hashes: the first frame that differs has the
//! cause in it. Then the site that is unlike the others is named by vote, and two sites that differ exchange hashes of named
//! parts of their states and of pages of those, down to 256 bytes.
//!
//! A [`Finder`] is one site's end of that. It is told what is known here and what others say, and tells what it wants to know next
//! ([`Finder::want`]). It pulls: it asks again and again for what is missing ([`Finder::poll_ask`], as often as its owner likes)
//! and answers what others ask ([`Finder::poll_answer`]). Who leaves too many questions unanswered is left out, so every search
//! ends. Its memory is bounded, whatever others say, and next to nothing as long as nothing is wrong.

mod talk;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::report::{MAX_REGIONS, PAGE, Region, RegionDifference, Report, Span, odd};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::wire::MAX_HASHES;

/// A search is begun anew so often because another site knows better where to look.
const MAX_RESTARTS: u8 = 4;
/// Pieces of regions kept to answer others: one for each of them, and our own.
const MAX_PIECES: usize = 2 * MAX_SITES;

/// What a search needs to know of the local machine next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Play the span again, from the state before its first frame on, and tell the hash after every frame from `from` on with
    /// [`Finder::on_local_hash`]; or say [`Finder::on_unable`].
    Hashes {
        /// The span.
        span: Span,
        /// The first frame whose hash is not known yet.
        from: Frame,
    },
    /// Tell the regions of the state after a frame with [`Finder::on_local_regions`].
    Regions {
        /// The frame.
        frame: Frame,
    },
    /// Tell the hashes of up to [`MAX_HASHES`] pages of a region with [`Finder::on_local_pages`].
    Pages {
        /// The frame after which.
        frame: Frame,
        /// The region, counted from 0.
        region: u8,
        /// The first page.
        from: u32,
    },
}

/// Looks for the first frame in which sites differ.
#[derive(Debug)]
pub struct Finder {
    me: SiteId,
    /// Those that take part in the search.
    sites: SiteSet,
    phase: Phase,
    restarts: u8,
    /// Sites that cannot play the span again, or do not answer.
    unable: SiteSet,
    /// Those that are not there any more.
    gone: SiteSet,
    /// Our host program can tell no more.
    helpless: bool,
    /// The digest after the span as it was in the game.
    digests: [Option<u32>; MAX_SITES],
    /// Hashes after every frame of the span, from its first on.
    hashes: [Vec<[u8; 4]>; MAX_SITES],
    regions: Option<Vec<Region>>,
    /// The regions of the site that we compare ourselves with, as far as they are here.
    theirs: Vec<Region>,
    /// How many it has.
    total: Option<usize>,
    pieces: Vec<Piece>,
    /// What others want to know of us.
    asked: [Option<Asked>; MAX_SITES],
    /// Questions since a site last answered one.
    asks: [u32; MAX_SITES],
}

/// Where a search is.
#[derive(Debug)]
enum Phase {
    /// Nothing is wrong.
    Idle,
    /// Every site's hashes are gathered.
    Hashes(Span),
    /// The first frame is known, the regions are gathered.
    Regions(Box<Report>, Frame, SiteId),
    /// Regions that differ are looked at more closely, page by page.
    Pages(Box<Report>, Frame, SiteId, Place),
    /// Nothing more will be found. The report is there until it is taken.
    Done(Option<Box<Report>>, Span, Option<Frame>),
}

/// Where in the state we look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Which of the report's regions.
    number: usize,
    /// From which page on.
    from: u32,
}

/// Hashes of pages of one of our regions.
#[derive(Debug)]
struct Piece {
    region: u8,
    from: u32,
    hashes: Vec<[u8; 4]>,
}

/// What another site wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Hashes(Frame),
    Regions(Frame, u8),
    Pages(Frame, u8, u32),
}

impl Finder {
    /// Looks on until something is wrong between these sites, of which we are one.
    pub fn new(me: SiteId, sites: SiteSet) -> Self {
        Self {
            me,
            sites,
            phase: Phase::Idle,
            restarts: 0,
            unable: SiteSet::EMPTY,
            gone: SiteSet::EMPTY,
            helpless: false,
            digests: [None; MAX_SITES],
            hashes: [const { Vec::new() }; MAX_SITES],
            regions: None,
            theirs: Vec::new(),
            total: None,
            pieces: Vec::new(),
            asked: [None; MAX_SITES],
            asks: [0; MAX_SITES],
        }
    }

    /// Whether a search goes on.
    pub fn is_searching(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Done(..))
    }

    /// What is searched, or was.
    pub fn span(&self) -> Option<Span> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Hashes(span) | Phase::Done(_, span, _) => Some(*span),
            Phase::Regions(report, ..) | Phase::Pages(report, ..) => Some(report.span),
        }
    }

    /// The first frame that differs, once that is known.
    fn found(&self) -> Option<Frame> {
        match &self.phase {
            Phase::Idle | Phase::Hashes(_) => None,
            Phase::Done(_, _, frame) => *frame,
            Phase::Regions(_, frame, _) | Phase::Pages(_, frame, ..) => Some(*frame),
        }
    }

    /// Another site's digest after the span differs from `ours`. Searches, unless an earlier span is searched already.
    pub fn on_mismatch(&mut self, span: Span, ours: u32) {
        self.open(span);
        self.on_digest(span.last(), ours);
    }

    /// Our digest after a frame, as it was in the game; of use if it is the last of the span.
    pub fn on_digest(&mut self, frame: Frame, digest: u32) {
        if self.span().is_some_and(|span| span.last() == frame) {
            self.digests[self.me.index()] = Some(digest);
        }
    }

    /// We cannot play the span again, or cannot tell what else is wanted.
    pub fn on_unable(&mut self) {
        self.helpless = true;
        self.leave_out(self.me);
    }

    /// A site is not there any more.
    pub fn on_gone(&mut self, site: SiteId) {
        self.gone.insert(site);
        self.leave_out(site);
    }

    fn leave_out(&mut self, site: SiteId) {
        if let Phase::Hashes(span) = self.phase
            && self.hashes[site.index()].len() < span.frames()
        {
            self.hashes[site.index()].clear();
            self.unable.insert(site);
        }
        self.go_on();
        let waits_for = match &self.phase {
            Phase::Regions(_, _, other) | Phase::Pages(_, _, other, _) => *other == site || self.me == site,
            Phase::Idle | Phase::Hashes(_) | Phase::Done(..) => false,
        };
        if waits_for {
            self.conclude();
        }
    }

    /// The search has taken too long: what is known by now must do.
    pub fn give_up(&mut self) {
        for site in self.sites.iter() {
            self.leave_out(site);
        }
        self.conclude();
    }

    /// The hash of our state after a frame, while the span is played again.
    pub fn on_local_hash(&mut self, frame: Frame, hash: u32) {
        self.take_hashes(self.me, frame, &[hash.to_le_bytes()]);
    }

    /// The regions of our state after the frame that was asked for; none if it has no names for them. What is more than
    /// [`MAX_REGIONS`] is left out.
    pub fn on_local_regions(&mut self, frame: Frame, regions: &[Region]) {
        if self.found() == Some(frame) && self.regions.is_none() {
            let short = |region: &Region| Region { name: region.short_name().into(), ..*region };
            self.regions = Some(regions.iter().take(MAX_REGIONS).map(short).collect());
            self.go_on();
        }
    }

    /// The hashes of pages of a region, as they were asked for.
    pub fn on_local_pages(&mut self, frame: Frame, region: u8, from: u32, hashes: &[u32]) {
        if self.found() != Some(frame) || self.piece(region, from).is_some() {
            return;
        }
        if self.pieces.len() == MAX_PIECES {
            self.pieces.remove(0);
        }
        let hashes = hashes.iter().take(MAX_HASHES).map(|hash| hash.to_le_bytes()).collect();
        self.pieces.push(Piece { region, from, hashes });
    }

    /// Begins a search, or a better one than that at hand.
    fn open(&mut self, span: Span) {
        let better = self.span().is_none_or(|at_hand| span.is_better_than(at_hand));
        if !better || self.restarts > MAX_RESTARTS {
            return;
        }
        let (fresh, gone) = (Self::new(self.me, self.sites), self.gone);
        *self = Self { phase: Phase::Hashes(span), restarts: self.restarts + 1, gone, unable: gone, ..fresh };
    }

    fn take_hashes(&mut self, site: SiteId, from: Frame, hashes: &[[u8; 4]]) {
        let Phase::Hashes(span) = self.phase else { return };
        let known = &mut self.hashes[site.index()];
        let Ok(at) = usize::try_from(from - span.first()) else { return };
        let Some(new) = known.len().checked_sub(at).and_then(|skip| hashes.get(skip..)) else { return };
        if self.unable.contains(site) || new.is_empty() {
            return;
        }
        known.extend_from_slice(&new[..new.len().min(span.frames() - known.len())]);
        self.asks[site.index()] = 0;
        self.go_on();
    }

    /// The pages that we look at: the region's number here and there, and the first page.
    fn piece_in_question(&self) -> Option<(u8, u8, u32)> {
        let Phase::Pages(report, _, _, place) = &self.phase else { return None };
        let name = &report.regions.get(place.number)?.name;
        let number = |regions: &[Region]| regions.iter().position(|region| region.name == *name);
        let (own, their) = (number(self.regions.as_deref()?)?, number(&self.theirs)?);
        Some((own as u8, their as u8, place.from))
    }

    /// Takes every step that can be taken with what is known.
    fn go_on(&mut self) {
        match &mut self.phase {
            Phase::Hashes(span) => {
                let span = *span;
                let settled =
                    |site: SiteId| self.unable.contains(site) || self.hashes[site.index()].len() == span.frames();
                if self.sites.iter().all(settled) {
                    self.settle(span);
                }
            }
            Phase::Regions(..) => {
                let none_here = self.regions.as_ref().is_some_and(Vec::is_empty);
                if none_here {
                    self.conclude();
                } else if self.regions.is_some() && self.total.is_some_and(|total| self.theirs.len() >= total) {
                    self.compare_regions();
                }
            }
            Phase::Pages(report, _, _, place) => {
                let pages = |difference: &RegionDifference| {
                    let there = self.theirs.iter().find(|region| region.name == difference.name);
                    there.filter(|region| region.len == difference.len).map_or(0, |region| region.len.div_ceil(PAGE))
                };
                while report.regions.get(place.number).is_some_and(|difference| place.from >= pages(difference)) {
                    *place = Place { number: place.number + 1, from: 0 };
                }
                if place.number >= report.regions.len() {
                    self.conclude();
                }
            }
            Phase::Idle | Phase::Done(..) => {}
        }
    }

    /// All hashes are here that ever will be: names the frame and the site.
    fn settle(&mut self, span: Span) {
        let hash = |site: SiteId, at: usize| self.hashes[site.index()].get(at).map(|hash| u32::from_le_bytes(*hash));
        let known = || self.sites.iter().filter(|site| !self.unable.contains(*site));
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
        let odd = odd(&digests, SiteSet::EMPTY).or_else(|| odd(&self.digests, unsteady));
        let differs_from_us = |site: &SiteId| at.is_some_and(|at| hash(*site, at) != hash(self.me, at));
        let others = || known().filter(|_| !self.unable.contains(self.me)).filter(differs_from_us);
        let other = others().find(|site| Some(*site) == odd).or_else(|| others().next());
        let first_frame = at.map(|at| span.first() + at as u32);
        let (unable, regions, inputs) = (self.unable, Vec::new(), Vec::new());
        let report = Report { span, first_frame, odd, unsteady, unable, digests, other, regions, inputs };
        self.asks = [0; MAX_SITES];
        self.phase = match (first_frame, other) {
            (Some(frame), Some(other)) => Phase::Regions(Box::new(report), frame, other),
            _ => Phase::Done(Some(Box::new(report)), span, first_frame),
        };
        self.go_on();
    }

    /// Regions are compared by name, whatever their order.
    fn compare_regions(&mut self) {
        let Phase::Regions(report, frame, other) = core::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let mut report = report;
        for ours in self.regions.iter().flatten() {
            let there = self.theirs.iter().find(|theirs| theirs.name == ours.name);
            if let Some(theirs) = there.filter(|theirs| (theirs.hash, theirs.len) != (ours.hash, ours.len)) {
                let (name, len) = (ours.name.clone(), ours.len);
                let difference = RegionDifference { name, offset: 0, len, ours: ours.hash, theirs: theirs.hash };
                report.regions.push(difference);
            }
        }
        self.phase = Phase::Pages(report, frame, other, Place { number: 0, from: 0 });
        self.go_on();
    }

    /// Nothing more will be found.
    fn conclude(&mut self) {
        let found = self.found();
        self.phase = match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Regions(report, ..) | Phase::Pages(report, ..) => {
                let span = report.span;
                Phase::Done(Some(report), span, found)
            }
            other => other,
        };
    }

    fn piece(&self, region: u8, from: u32) -> Option<&Piece> {
        self.pieces.iter().find(|piece| (piece.region, piece.from) == (region, from))
    }

    /// What to find out about the local machine next, for ourselves or for others. A search waits for it until it is told, or until
    /// [`Finder::on_unable`] says that it never will be.
    pub fn want(&self) -> Option<Want> {
        if self.helpless || self.unable.contains(self.me) {
            return None;
        }
        if let Phase::Hashes(span) = self.phase {
            let known = self.hashes[self.me.index()].len();
            return (known < span.frames()).then(|| Want::Hashes { span, from: span.first() + known as u32 });
        }
        let frame = self.found()?;
        if self.regions.is_none() {
            let asked =
                self.asked.iter().any(|asked| matches!(asked, Some(Asked::Regions(about, _)) if *about == frame));
            return (asked || self.is_searching()).then_some(Want::Regions { frame });
        }
        let own = self.piece_in_question().map(|(region, _, from)| (region, from));
        let asked = self.asked.iter().filter_map(|asked| match asked {
            Some(Asked::Pages(about, region, from)) if *about == frame => Some((*region, *from)),
            _ => None,
        });
        let missing =
            |(region, from): &(u8, u32)| self.has_pages(*region, *from) && self.piece(*region, *from).is_none();
        own.into_iter().chain(asked).find(missing).map(|(region, from)| Want::Pages { frame, region, from })
    }

    /// Whether a region of ours has these pages, and they can be asked for.
    fn has_pages(&self, region: u8, from: u32) -> bool {
        let region = self.regions.as_ref().and_then(|regions| regions.get(usize::from(region)));
        from.is_multiple_of(MAX_HASHES as u32) && region.is_some_and(|region| from < region.len.div_ceil(PAGE))
    }

    /// The report, once, when nothing more will be found.
    pub fn poll_report(&mut self) -> Option<Box<Report>> {
        match &mut self.phase {
            Phase::Done(report, ..) => report.take(),
            _ => None,
        }
    }
}
