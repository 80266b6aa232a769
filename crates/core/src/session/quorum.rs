//! Quorums: which sites can decide for all. Any two quorums of the same sites have a site in common.

use crate::id::SiteSet;

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
}
