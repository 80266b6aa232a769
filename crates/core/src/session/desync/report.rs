//! What is known of a difference between the sites' states: when it began, whose state is the odd one, and where in it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::input::InputWord;
use crate::session::MAX_COMPARE_INTERVAL;

/// The most frames that are searched: as far as two comparisons can be apart, and one more, which stands for all before it.
pub const MAX_SPAN_FRAMES: u32 = MAX_COMPARE_INTERVAL + 1;
/// The most regions a machine's state can be told in.
pub const MAX_REGIONS: usize = 64;
/// The longest name of a region, in bytes.
pub const MAX_REGION_NAME: usize = 32;
/// A difference is told to this many bytes.
pub const PAGE_SIZE: u32 = 256;

/// Frames in which something went wrong: before the first the states were equal, after the last they were not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSpan {
    first: Frame,
    last: Frame,
}

impl FrameSpan {
    /// From one frame to another, or `None` unless that is 1 to [`MAX_SPAN_FRAMES`] frames.
    pub fn new(first: Frame, last: Frame) -> Option<Self> {
        (0..i64::from(MAX_SPAN_FRAMES)).contains(&(last - first)).then_some(Self { first, last })
    }

    /// The first frame: the one after which the states may differ.
    pub fn first(self) -> Frame {
        self.first
    }

    /// The last frame: the one after which they do.
    pub fn last(self) -> Frame {
        self.last
    }

    /// How many frames it has.
    pub fn frames(self) -> usize {
        (self.last - self.first) as usize + 1
    }

    /// Whether a search of this one tells more: the earlier a difference shows, the nearer it is to its cause.
    pub(super) fn is_earlier_than(self, other: Self) -> bool {
        (self.last, self.first) < (other.last, other.first)
    }
}

/// A named part of a machine's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRegion {
    /// What it is: "work ram". Of more than [`MAX_REGION_NAME`] bytes the first are taken.
    pub name: String,
    /// How many bytes it has.
    pub len: u32,
    /// A hash of it.
    pub hash: u32,
}

impl StateRegion {
    /// As much of the name as travels.
    pub(crate) fn short_name(&self) -> &str {
        let mut end = self.name.len().min(MAX_REGION_NAME);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        &self.name[..end]
    }
}

/// A part of the state in which two sites differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRegionDifference {
    /// The region.
    pub name: String,
    /// Where in it the first page begins that differs; 0 when that could not be found out.
    pub offset: u32,
    /// How many bytes that page has, or all of the region.
    pub len: u32,
    /// The hash of those bytes here.
    pub ours: u32,
    /// The hash of those bytes there.
    pub theirs: u32,
}

/// All that could be found out about a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesyncReport {
    /// The frames in which it began.
    pub span: FrameSpan,
    /// The first frame after which the states differ, if it could be told: not where they differed before the span already, because
    /// too many comparisons were lost.
    pub first_frame: Option<Frame>,
    /// The one site whose state is unlike that of all others. Two sites cannot tell, nor can two halves.
    pub odd_site: Option<SiteId>,
    /// Sites that got another state when they played the span again with the same inputs: their machine is not deterministic, or
    /// does not save all of its state.
    pub nondeterministic_sites: SiteSet,
    /// Sites that could not play the span again, or did not say what came of it.
    pub unable_sites: SiteSet,
    /// What every site's state hashed to after the first frame that differs, or else after the span.
    pub digests: [Option<u32>; MAX_SITES],
    /// The site that `regions` compares us with.
    pub compared_site: Option<SiteId>,
    /// The parts of the state that differ after the first frame that does.
    pub regions: Vec<StateRegionDifference>,
    /// The inputs around that frame; whoever has them adds them.
    pub inputs: Vec<(Frame, Vec<InputWord>)>,
}

impl DesyncReport {
    /// The sites whose state is unlike that of the majority; empty where there is none.
    pub fn minority(&self) -> SiteSet {
        minority_sites(&self.digests)
    }
}

/// The sites whose digest is not that of more than half of at least three.
fn minority_sites(digests: &[Option<u32>; MAX_SITES]) -> SiteSet {
    let known = || SiteId::first(MAX_SITES).filter_map(|site| digests[site.index()].map(|digest| (site, digest)));
    let votes = |for_digest: u32| known().filter(|(_, digest)| *digest == for_digest).count();
    let winner = known().map(|(_, digest)| digest).find(|digest| votes(*digest) * 2 > known().count());
    match winner {
        Some(winner) if known().count() >= 3 => {
            known().filter(|(_, digest)| *digest != winner).map(|(site, _)| site).collect()
        }
        _ => SiteSet::EMPTY,
    }
}

/// The one site that is not like the others, or the one that is not like itself.
pub(super) fn odd_site(digests: &[Option<u32>; MAX_SITES], unsteady: SiteSet) -> Option<SiteId> {
    let only = |set: SiteSet| set.iter().next().filter(|site| set == SiteSet::from_iter([*site]));
    only(minority_sites(digests)).or_else(|| only(unsteady))
}

impl fmt::Display for DesyncReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first_frame {
            Some(frame) => write!(f, "the states differ from frame {frame} on")?,
            None => write!(f, "the states began to differ in frames {} to {}", self.span.first, self.span.last)?,
        }
        match self.odd_site {
            Some(site) => write!(f, "; site {site} is the odd one out")?,
            None => write!(f, "; no site is the odd one out")?,
        }
        for site in self.nondeterministic_sites.iter() {
            write!(f, "; site {site} gets other states from the same inputs")?;
        }
        for StateRegionDifference { name, offset, len, .. } in &self.regions {
            write!(f, "; {len} bytes of {name:?} at {offset:#x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd_site_of(digests: &[u32]) -> Option<u8> {
        let mut all = [None; MAX_SITES];
        all.iter_mut().zip(digests).for_each(|(place, digest)| *place = Some(*digest));
        odd_site(&all, SiteSet::EMPTY).map(SiteId::number)
    }

    #[test]
    fn odd_site_is_named_only_by_a_majority() {
        assert_eq!(odd_site_of(&[1, 1, 2]), Some(2));
        assert_eq!(odd_site_of(&[2, 1, 1, 1]), Some(0));
        assert_eq!(odd_site_of(&[1, 2]), None);
        assert_eq!(odd_site_of(&[1, 2, 3]), None);
        assert_eq!(odd_site_of(&[1, 1, 2, 2]), None);
        assert_eq!(odd_site_of(&[1, 1, 1, 2, 3]), None, "there are two odd ones");
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
