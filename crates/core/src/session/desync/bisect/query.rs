//! Queries and answers that sites exchange in a desync search.

use super::{BisectPhase, DesyncBisector, PageCursor, PeerQuery};
use crate::codec::MAX_DATAGRAM;
use crate::frame::Frame;
use crate::id::SiteId;
use crate::session::desync::message::{DesyncMessage, HashList, MAX_HASHES, RegionList};
use crate::session::desync::report::{FrameSpan, MAX_REGIONS, PAGE_SIZE};

/// Number of queries in a row that a site may leave unanswered before it is excluded.
const MAX_UNANSWERED_QUERIES: u32 = 200;

impl DesyncBisector {
    /// Handles a message that arrived from `site`. Messages of sites that take no part are ignored.
    pub fn on_message(&mut self, site: SiteId, message: &DesyncMessage<'_>) {
        if !self.sites.contains(site) || site == self.own_site {
            return;
        }
        match *message {
            DesyncMessage::HashesRequest { span, from, digest } => {
                self.start_search(span);
                self.receive_for_span(site, span, digest, |bisector| {
                    bisector.peer_queries[site.index()] = Some(PeerQuery::Hashes(from))
                });
            }
            DesyncMessage::Hashes { span, from, digest, hashes } => {
                self.receive_for_span(site, span, digest, |bisector| {
                    bisector.receive_hashes(site, from, hashes.as_bytes())
                });
            }
            DesyncMessage::CannotReplay { span, digest } => self.receive_for_span(site, span, digest, |bisector| {
                if matches!(bisector.phase, BisectPhase::Hashes(_)) {
                    bisector.exclude_site(site);
                }
            }),
            DesyncMessage::RegionsRequest { frame, from } => {
                self.peer_queries[site.index()] = Some(PeerQuery::Regions(frame, from))
            }
            DesyncMessage::PagesRequest { frame, region, from } => {
                self.peer_queries[site.index()] = Some(PeerQuery::Pages(frame, region, from));
            }
            DesyncMessage::Regions { frame, from, total, regions } => {
                self.receive_regions(site, frame, from, total, &regions)
            }
            DesyncMessage::Pages { frame, region, from, hashes } => {
                self.receive_pages(site, frame, (region, from), &hashes)
            }
        }
    }

    /// Handles a message, and stores the sender's digest, only if the message concerns the current span.
    fn receive_for_span(&mut self, site: SiteId, span: FrameSpan, digest: Option<u32>, handle: impl FnOnce(&mut Self)) {
        if self.span() == Some(span) {
            self.digests[site.index()] = self.digests[site.index()].or(digest);
            handle(self);
        }
    }

    fn receive_regions(&mut self, site: SiteId, frame: Frame, from: u8, total: u8, regions: &RegionList<'_>) {
        let BisectPhase::Regions(_, found, other) = self.phase else { return };
        if (site, frame, usize::from(from)) != (other, found, self.peer_regions.len()) {
            return;
        }
        let total = usize::from(total).min(MAX_REGIONS);
        self.peer_regions.extend(regions.iter().take(total.saturating_sub(self.peer_regions.len())));
        // An answer without content does not count.
        if self.peer_regions.len() > usize::from(from) {
            self.unanswered_queries[site.index()] = 0;
        }
        self.peer_region_count = Some(total);
        self.advance();
    }

    fn receive_pages(&mut self, site: SiteId, frame: Frame, pages: (u8, u32), theirs: &HashList<'_>) {
        let Some((own, their, from)) = self.current_pages() else { return };
        let BisectPhase::Pages(report, found, other, cursor) = &mut self.phase else { return };
        let ours = self.page_hashes.iter().find(|pages| (pages.region, pages.first_page) == (own, from));
        let (Some(ours), true) = (ours, (site, frame, pages) == (*other, *found, (their, from))) else { return };
        self.unanswered_queries[site.index()] = 0;
        let pairs = HashList::new(&ours.hashes).iter().zip(theirs.iter()).zip(from..);
        match pairs.into_iter().find(|((ours, theirs), _)| ours != theirs) {
            Some(((ours, theirs), page)) => {
                let difference = &mut report.regions[cursor.region_index];
                difference.offset = page.saturating_mul(PAGE_SIZE);
                difference.len = difference.len.saturating_sub(difference.offset).min(PAGE_SIZE);
                (difference.ours, difference.theirs) = (ours, theirs);
                *cursor = PageCursor { region_index: cursor.region_index + 1, first_page: 0 };
            }
            None => cursor.first_page = from.saturating_add(MAX_HASHES as u32),
        }
        self.advance();
    }

    /// Writes the answer to the query of peer `to` into `buf` and returns its length, if there is a query and it can be
    /// answered by now. Call it after every [`DesyncBisector::on_message`], and whenever a local result was passed in.
    pub fn poll_answer(&mut self, to: SiteId, buf: &mut [u8]) -> Option<usize> {
        let mut packed = [0; MAX_DATAGRAM - 16];
        let answer = self.answer_to(self.peer_queries[to.index()]?, &mut packed)?;
        let len = answer.encode(buf).ok()?;
        self.peer_queries[to.index()] = None;
        Some(len)
    }

    fn answer_to<'a>(&'a self, query: PeerQuery, packed: &'a mut [u8]) -> Option<DesyncMessage<'a>> {
        let unable = self.unable_sites.contains(self.own_site);
        match query {
            PeerQuery::Hashes(from) => {
                let (span, digest) = (self.span()?, self.digests[self.own_site.index()]);
                if unable {
                    return Some(DesyncMessage::CannotReplay { span, digest });
                }
                let index = usize::try_from(from - span.first()).ok()?;
                let known = self.hashes[self.own_site.index()].get(index..).filter(|known| !known.is_empty())?;
                Some(DesyncMessage::Hashes { span, from, digest, hashes: HashList::new(known) })
            }
            PeerQuery::Regions(frame, _) if unable || (self.is_unable && self.regions.is_none()) => {
                Some(DesyncMessage::Regions { frame, from: 0, total: 0, regions: RegionList::default() })
            }
            PeerQuery::Regions(frame, from) => {
                let regions = self.regions.as_ref().filter(|_| self.first_differing_frame() == Some(frame))?;
                let packed = RegionList::pack(regions.get(usize::from(from)..).unwrap_or_default(), packed);
                Some(DesyncMessage::Regions { frame, from, total: regions.len() as u8, regions: packed })
            }
            PeerQuery::Pages(frame, region, from) => {
                let list = self.page_hashes_of(region, from).filter(|_| self.first_differing_frame() == Some(frame))?;
                Some(DesyncMessage::Pages { frame, region, from, hashes: HashList::new(&list.hashes) })
            }
        }
    }

    /// Writes the query to peer `to` into `buf` and returns its length, if this site needs anything from the peer.
    /// Every call repeats the query: call it about ten times per second. After 200 unanswered queries the peer is
    /// excluded.
    pub fn poll_query(&mut self, to: SiteId, buf: &mut [u8]) -> Option<usize> {
        let query = self.query_for(to)?;
        self.unanswered_queries[to.index()] += 1;
        if self.unanswered_queries[to.index()] > MAX_UNANSWERED_QUERIES {
            self.exclude_site(to);
            return None;
        }
        query.encode(buf).ok()
    }

    fn query_for(&self, to: SiteId) -> Option<DesyncMessage<'static>> {
        if to == self.own_site || !self.sites.contains(to) {
            return None;
        }
        match &self.phase {
            BisectPhase::Idle | BisectPhase::Done(..) => None,
            BisectPhase::Hashes(span) => {
                let known = self.hashes[to.index()].len();
                let missing = known < span.frames() && !self.unable_sites.contains(to);
                let digest = self.digests[self.own_site.index()];
                missing.then(|| DesyncMessage::HashesRequest { span: *span, from: span.first() + known as u32, digest })
            }
            BisectPhase::Regions(_, frame, other) => {
                let missing =
                    to == *other && self.peer_region_count.is_none_or(|total| self.peer_regions.len() < total);
                missing.then_some(DesyncMessage::RegionsRequest { frame: *frame, from: self.peer_regions.len() as u8 })
            }
            BisectPhase::Pages(_, frame, other, _) => {
                let (own, region, from) = self.current_pages()?;
                let missing = to == *other && self.page_hashes_of(own, from).is_some();
                missing.then_some(DesyncMessage::PagesRequest { frame: *frame, region, from })
            }
        }
    }
}
