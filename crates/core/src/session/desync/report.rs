//! The desync report: the first differing frame, the odd site, and the part of the state that differs.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::InputWord;
use crate::session::MAX_COMPARE_INTERVAL;

/// Maximum number of searched frames: the longest distance between two comparisons, plus one frame that stands for all
/// earlier ones.
pub const MAX_SPAN_FRAMES: u32 = MAX_COMPARE_INTERVAL + 1;
/// Maximum number of regions of a machine's state that are compared; further ones are ignored.
pub const MAX_REGIONS: usize = 64;
/// Maximum length of a region's name, in bytes; longer names are truncated.
pub const MAX_REGION_NAME: usize = 32;
/// Page size in bytes: the resolution at which a difference is located.
pub const PAGE_SIZE: u32 = 256;

/// Frames that contain the start of a desync: before the first one the states were equal, unless too many comparisons
/// were lost; after the last one they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    first: Frame,
    last: Frame,
}

impl FrameSpan {
    /// Creates a span, or `None` unless it has 1 to [`MAX_SPAN_FRAMES`] frames.
    pub fn new(first: Frame, last: Frame) -> Option<Self> {
        (0..i64::from(MAX_SPAN_FRAMES)).contains(&(last - first)).then_some(Self { first, last })
    }

    /// Returns the first frame: the first one after which the states may differ.
    pub fn first(self) -> Frame {
        self.first
    }

    /// Returns the last frame: the one after which the states differ.
    pub fn last(self) -> Frame {
        self.last
    }

    /// Returns the number of frames, 1 to [`MAX_SPAN_FRAMES`].
    pub fn frames(self) -> usize {
        (self.last - self.first) as usize + 1
    }

    /// Returns whether this span ends before `other`, or begins before it if both end at the same frame. An earlier
    /// mismatch is closer to its cause.
    pub(super) fn is_earlier_than(self, other: Self) -> bool {
        (self.last, self.first) < (other.last, other.first)
    }
}

/// A named region of a machine's state, as the host program describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRegion {
    /// Name, such as "work ram". Names longer than [`MAX_REGION_NAME`] bytes are truncated.
    pub name: String,
    /// Length in bytes.
    pub len: u32,
    /// Hash of the content, equal at all sites for equal content.
    pub hash: u32,
}

impl StateRegion {
    /// Returns the name as packets carry it: at most [`MAX_REGION_NAME`] bytes, cut at a character boundary.
    pub(crate) fn short_name(&self) -> &str {
        let mut end = self.name.len().min(MAX_REGION_NAME);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        &self.name[..end]
    }
}

/// A region in which the states of two sites differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRegionDifference {
    /// Name of the region at both sites.
    pub name: String,
    /// Offset of the first differing page in the region, in bytes; 0 if that could not be found.
    pub offset: u32,
    /// Length in bytes of the first differing page, or of the whole region at this site if that page could not be
    /// found.
    pub len: u32,
    /// Hash of these `len` bytes at this site.
    pub ours: u32,
    /// Hash of the same page or region at the other site.
    pub theirs: u32,
}

/// The result of a desync search, as one site found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesyncReport {
    /// The frames that were searched. The desync began in them, unless too many comparisons were lost.
    pub span: FrameSpan,
    /// The first frame after which the states differ, if known. It is not known if they may have differed before the
    /// span, because too many comparisons were lost.
    pub first_frame: Option<Frame>,
    /// The one site whose state differs from that of the majority of at least three sites, or else the only
    /// nondeterministic site.
    pub odd_site: Option<SiteId>,
    /// Sites that got a different state when they replayed the span with the same inputs: their machine is not
    /// deterministic, or does not save all of its state.
    pub nondeterministic_sites: SiteSet,
    /// Sites that could not replay the span, did not send the result, or are gone.
    pub unable_sites: SiteSet,
    /// Every site's state hash after the first differing frame, or else after the span; `None` if not known.
    pub digests: [Option<u32>; MAX_SITES],
    /// The site that `regions` compares this site with; `None` if no site is known to differ from this one.
    pub compared_site: Option<SiteId>,
    /// The regions that differ between this site and `compared_site` after the first differing frame.
    pub regions: Vec<StateRegionDifference>,
    /// The input words of all players in the first differing frame (or, if it is not known, in the last frame of the
    /// span), and in the eight frames before and after it, as far as this site has kept them.
    pub inputs: Vec<(Frame, Vec<InputWord>)>,
}

impl DesyncReport {
    /// Returns the sites whose state differs from that of the majority; empty without a majority among at least three
    /// sites.
    pub fn minority(&self) -> SiteSet {
        minority_sites(&self.digests)
    }
}

/// Returns the sites whose digest differs from that of the majority; empty without a majority among at least three
/// known digests.
fn minority_sites(digests: &[Option<u32>; MAX_SITES]) -> SiteSet {
    let known = || SiteId::first(MAX_SITES).filter_map(|site| digests[site.index()].map(|digest| (site, digest)));
    let votes = |for_digest: u32| known().filter(|(_, digest)| *digest == for_digest).count();
    let majority = known().map(|(_, digest)| digest).find(|digest| votes(*digest) * 2 > known().count());
    match majority {
        Some(majority) if known().count() >= 3 => {
            known().filter(|(_, digest)| *digest != majority).map(|(site, _)| site).collect()
        }
        _ => SiteSet::EMPTY,
    }
}

/// Returns the one site whose digest differs from that of the majority, or else the only nondeterministic one.
pub(super) fn odd_site(digests: &[Option<u32>; MAX_SITES], nondeterministic: SiteSet) -> Option<SiteId> {
    let only = |set: SiteSet| set.iter().next().filter(|site| set == SiteSet::from_iter([*site]));
    only(minority_sites(digests)).or_else(|| only(nondeterministic))
}

impl fmt::Display for DesyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first_frame {
            Some(frame) => write!(f, "desync: frame {frame} is the first after which the states of the sites differ")?,
            None => write!(
                f,
                "desync: the states of the sites differ after frame {}; the first such frame is unknown",
                self.span.last
            )?,
        }
        match self.odd_site {
            Some(site) => write!(f, "; site {site} diverged")?,
            None => write!(f, "; it is unknown which site diverged")?,
        }
        for site in self.nondeterministic_sites.iter() {
            write!(f, "; site {site} computed a different state when it replayed the same inputs")?;
        }
        for StateRegionDifference { name, offset, len, .. } in &self.regions {
            write!(f, "; region {name:?} differs within the {len} bytes at offset {offset:#x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd_site_of(digests: &[u32]) -> Option<u8> {
        let mut all = [None; MAX_SITES];
        all.iter_mut().zip(digests).for_each(|(slot, digest)| *slot = Some(*digest));
        odd_site(&all, SiteSet::EMPTY).map(SiteId::number)
    }

    #[test]
    fn odd_site_is_named_only_by_a_majority() {
        assert_eq!(odd_site_of(&[1, 1, 2]), Some(2));
        assert_eq!(odd_site_of(&[2, 1, 1, 1]), Some(0));
        assert_eq!(odd_site_of(&[1, 2]), None);
        assert_eq!(odd_site_of(&[1, 2, 3]), None);
        assert_eq!(odd_site_of(&[1, 1, 2, 2]), None);
        assert_eq!(odd_site_of(&[1, 1, 1, 2, 3]), None, "two sites are odd");
        assert_eq!(odd_site_of(&[1, 1, 1]), None);
    }

    #[test]
    fn nondeterministic_site_is_odd_when_votes_are_tied() {
        let site = SiteId::new(1).unwrap();
        let digests = [Some(1), Some(2), None, None, None, None, None, None];
        assert_eq!(odd_site(&digests, SiteSet::from_iter([site])), Some(site));
    }

    #[test]
    fn region_names_are_truncated_at_char_boundaries() {
        let region = |name: &str| StateRegion { name: name.into(), len: 0, hash: 0 };
        assert_eq!(region("work ram").short_name(), "work ram");
        assert_eq!(region(&"ä".repeat(20)).short_name(), "ä".repeat(16));
        assert_eq!(region(&std::format!("a{}", "ä".repeat(20))).short_name().len(), 31);
    }

    #[test]
    fn spans_are_bounded_and_ordered() {
        let span = |first, last| FrameSpan::new(Frame::new(first), Frame::new(last));
        assert_eq!(span(5, 5).unwrap().frames(), 1);
        assert_eq!(span(0, MAX_SPAN_FRAMES - 1).unwrap().frames(), MAX_SPAN_FRAMES as usize);
        assert_eq!((span(5, 4), span(0, MAX_SPAN_FRAMES)), (None, None));
    }
}
