//! Quorums: which sites can decide for all. Any two quorums of the same sites have a site in common.

use crate::id::{SiteId, SiteSet};

/// The sites that can vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Electorate {
    /// The sites that play, including this site.
    pub(super) voters: SiteSet,
    /// The joiner of which some site may not know yet.
    pub(super) pending_joiner: Option<SiteId>,
}

impl Electorate {
    /// Returns whether `sites` can decide for all voters. While some site may not know of a joiner yet, they must be a
    /// quorum both of the voters with the joiner and of those without it.
    pub(super) fn is_quorum(&self, sites: SiteSet) -> bool {
        is_quorum_of(self.voters, sites) && is_quorum_of(self.without_pending_joiner(self.voters), sites)
    }

    /// Returns whether sites outside of `unbound` can have decided while some of the sites in `left`, which vote no
    /// more, still did: they are a quorum of the voters together with any of these sites.
    pub(super) fn can_have_decided_with_leavers(&self, unbound: SiteSet, left: SiteSet) -> bool {
        let leavers = (1..=u8::MAX).map(SiteSet::from_bits).filter(|some| left.contains_all(*some));
        leavers.map(|some| self.voters.union(some)).any(|all| is_quorum_of(all, difference(all, unbound)))
    }

    /// Removes a joiner of which some site may not know yet from a set of sites.
    pub(super) fn without_pending_joiner(&self, mut sites: SiteSet) -> SiteSet {
        self.pending_joiner.inspect(|joiner| sites.remove(*joiner));
        sites
    }
}

/// Returns the sites of `sites` that are not in `others`.
pub(super) fn difference(sites: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(sites.bits() & !others.bits())
}

/// Returns the sites that are in both sets.
pub(super) fn intersection(some: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(some.bits() & others.bits())
}

/// Returns whether `some` are more than half of `all`, or half including the lowest.
pub(super) fn is_quorum_of(all: SiteSet, some: SiteSet) -> bool {
    let some = SiteSet::from_bits(all.bits() & some.bits());
    let (all_count, count) = (all.bits().count_ones(), some.bits().count_ones());
    2 * count > all_count || 2 * count == all_count && all.iter().next().is_some_and(|lowest| some.contains(lowest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_intersect() {
        for all in 1..=255 {
            let all = SiteSet::from_bits(all);
            let quorums =
                (0..=255).map(SiteSet::from_bits).filter(|some| all.contains_all(*some) && is_quorum_of(all, *some));
            let quorums: std::vec::Vec<_> = quorums.collect();
            assert!(quorums.contains(&all));
            assert!(quorums.iter().all(|one| quorums.iter().all(|other| one.bits() & other.bits() != 0)));
        }
    }

    #[test]
    fn a_site_that_left_may_have_decided_with_another() {
        let sites = |numbers: &[u8]| -> SiteSet { numbers.iter().filter_map(|number| SiteId::new(*number)).collect() };
        let electorate = Electorate { voters: sites(&[0, 1]), pending_joiner: None };
        assert!(electorate.is_quorum(sites(&[0])), "of the remaining two sites, the lower one can decide alone");
        assert!(electorate.can_have_decided_with_leavers(sites(&[0]), sites(&[2])), "but 1 and 2 may have decided");
        assert!(!electorate.can_have_decided_with_leavers(sites(&[0, 1]), sites(&[2])), "2 alone cannot have");
        assert!(!electorate.can_have_decided_with_leavers(sites(&[0]), SiteSet::EMPTY));
        let three_left = sites(&[2, 3, 4]);
        assert!(electorate.can_have_decided_with_leavers(sites(&[0, 1]), three_left), "2, 3 and 4 of five sites");
    }

    #[test]
    fn pending_joiner_can_neither_make_nor_break_a_quorum() {
        let sites = |numbers: &[u8]| -> SiteSet { numbers.iter().filter_map(|number| SiteId::new(*number)).collect() };
        let electorate = Electorate { voters: sites(&[0, 1, 2]), pending_joiner: SiteId::new(2) };
        assert!(!electorate.is_quorum(sites(&[1, 2])), "without the joiner, site 1 alone is no quorum");
        assert!(!electorate.is_quorum(sites(&[0])), "with the joiner, site 0 alone is no quorum");
        assert!(electorate.is_quorum(sites(&[0, 1])));
    }
}
