//! What sites ask each other in a search, and what they answer.

use super::{Asked, Finder, Phase, Place};
use crate::frame::Frame;
use crate::id::SiteId;
use crate::session::report::{MAX_REGIONS, PAGE, Span};
use crate::wire::{Hashes, MAX_DATAGRAM, MAX_HASHES, Regions, Search};

/// A site that leaves so many questions in a row unanswered is not asked any more.
const MAX_ASKS: u32 = 200;

impl Finder {
    /// What a peer says.
    pub fn on_message(&mut self, site: SiteId, message: &Search<'_>) {
        if !self.sites.contains(site) || site == self.me {
            return;
        }
        match *message {
            Search::AskHashes { span, from, digest } => {
                self.open(span);
                self.hear(site, span, digest, |finder| finder.asked[site.index()] = Some(Asked::Hashes(from)));
            }
            Search::Hashes { span, from, digest, hashes } => {
                self.hear(site, span, digest, |finder| finder.take_hashes(site, from, hashes.raw()));
            }
            Search::Unable { span, digest } => self.hear(site, span, digest, |finder| {
                if matches!(finder.phase, Phase::Hashes(_)) {
                    finder.leave_out(site);
                }
            }),
            Search::AskRegions { frame, from } => self.asked[site.index()] = Some(Asked::Regions(frame, from)),
            Search::AskPages { frame, region, from } => {
                self.asked[site.index()] = Some(Asked::Pages(frame, region, from));
            }
            Search::Regions { frame, from, total, regions } => self.take_regions(site, frame, from, total, &regions),
            Search::Pages { frame, region, from, hashes } => self.take_pages(site, frame, (region, from), &hashes),
        }
    }

    /// Takes something that is about our span, and nothing else.
    fn hear(&mut self, site: SiteId, span: Span, digest: Option<u32>, take: impl FnOnce(&mut Self)) {
        if self.span() == Some(span) {
            self.digests[site.index()] = self.digests[site.index()].or(digest);
            take(self);
        }
    }

    fn take_regions(&mut self, site: SiteId, frame: Frame, from: u8, total: u8, regions: &Regions<'_>) {
        let Phase::Regions(_, found, other) = self.phase else { return };
        if (site, frame, usize::from(from)) != (other, found, self.theirs.len()) {
            return;
        }
        let total = usize::from(total).min(MAX_REGIONS);
        self.theirs.extend(regions.iter().take(total.saturating_sub(self.theirs.len())));
        // An answer with nothing in it is none.
        if self.theirs.len() > usize::from(from) {
            self.asks[site.index()] = 0;
        }
        self.total = Some(total);
        self.go_on();
    }

    fn take_pages(&mut self, site: SiteId, frame: Frame, piece: (u8, u32), theirs: &Hashes<'_>) {
        let Some((own, their, from)) = self.piece_in_question() else { return };
        let Phase::Pages(report, found, other, place) = &mut self.phase else { return };
        let ours = self.pieces.iter().find(|piece| (piece.region, piece.from) == (own, from));
        let (Some(ours), true) = (ours, (site, frame, piece) == (*other, *found, (their, from))) else { return };
        self.asks[site.index()] = 0;
        let pairs = Hashes::new(&ours.hashes).iter().zip(theirs.iter()).zip(from..);
        match pairs.into_iter().find(|((ours, theirs), _)| ours != theirs) {
            Some(((ours, theirs), page)) => {
                let difference = &mut report.regions[place.number];
                difference.offset = page.saturating_mul(PAGE);
                difference.len = difference.len.saturating_sub(difference.offset).min(PAGE);
                (difference.ours, difference.theirs) = (ours, theirs);
                *place = Place { number: place.number + 1, from: 0 };
            }
            None => place.from = from.saturating_add(MAX_HASHES as u32),
        }
        self.go_on();
    }

    /// Writes the answer to a peer's question into `buf`, if there is a question and it can be answered by now. Call it after every
    /// [`Finder::on_message`], and when something local has been told.
    pub fn poll_answer(&mut self, to: SiteId, buf: &mut [u8]) -> Option<usize> {
        let mut packed = [0; MAX_DATAGRAM - 16];
        let answer = self.answer(self.asked[to.index()]?, &mut packed)?;
        let len = answer.encode(buf).ok()?;
        self.asked[to.index()] = None;
        Some(len)
    }

    fn answer<'a>(&'a self, asked: Asked, packed: &'a mut [u8]) -> Option<Search<'a>> {
        let unable = self.unable.contains(self.me);
        match asked {
            Asked::Hashes(from) => {
                let (span, digest) = (self.span()?, self.digests[self.me.index()]);
                if unable {
                    return Some(Search::Unable { span, digest });
                }
                let at = usize::try_from(from - span.first()).ok()?;
                let known = self.hashes[self.me.index()].get(at..).filter(|known| !known.is_empty())?;
                Some(Search::Hashes { span, from, digest, hashes: Hashes::new(known) })
            }
            Asked::Regions(frame, _) if unable || (self.helpless && self.regions.is_none()) => {
                Some(Search::Regions { frame, from: 0, total: 0, regions: Regions::default() })
            }
            Asked::Regions(frame, from) => {
                let regions = self.regions.as_ref().filter(|_| self.found() == Some(frame))?;
                let packed = Regions::pack(regions.get(usize::from(from)..).unwrap_or_default(), packed);
                Some(Search::Regions { frame, from, total: regions.len() as u8, regions: packed })
            }
            Asked::Pages(frame, region, from) => {
                let piece = self.piece(region, from).filter(|_| self.found() == Some(frame))?;
                Some(Search::Pages { frame, region, from, hashes: Hashes::new(&piece.hashes) })
            }
        }
    }

    /// Writes what we want to know of a peer into `buf`, if anything. Every call asks again: call it some ten times a second.
    pub fn poll_ask(&mut self, to: SiteId, buf: &mut [u8]) -> Option<usize> {
        let question = self.question(to)?;
        self.asks[to.index()] += 1;
        if self.asks[to.index()] > MAX_ASKS {
            self.leave_out(to);
            return None;
        }
        question.encode(buf).ok()
    }

    fn question(&self, to: SiteId) -> Option<Search<'static>> {
        if to == self.me || !self.sites.contains(to) {
            return None;
        }
        match &self.phase {
            Phase::Idle | Phase::Done(..) => None,
            Phase::Hashes(span) => {
                let known = self.hashes[to.index()].len();
                let missing = known < span.frames() && !self.unable.contains(to);
                let digest = self.digests[self.me.index()];
                missing.then(|| Search::AskHashes { span: *span, from: span.first() + known as u32, digest })
            }
            Phase::Regions(_, frame, other) => {
                let missing = to == *other && self.total.is_none_or(|total| self.theirs.len() < total);
                missing.then_some(Search::AskRegions { frame: *frame, from: self.theirs.len() as u8 })
            }
            Phase::Pages(_, frame, other, _) => {
                let (own, region, from) = self.piece_in_question()?;
                let missing = to == *other && self.piece(own, from).is_some();
                missing.then_some(Search::AskPages { frame: *frame, region, from })
            }
        }
    }
}
