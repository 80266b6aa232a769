//! Identity: sites, sets of sites, and their transport addresses.

use core::fmt;

/// Maximum number of sites in one session.
pub const MAX_SITES: usize = 8;

/// One running replica of the game, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(u8);

impl SiteId {
    /// Creates a site from its number, or `None` from [`MAX_SITES`] on.
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < MAX_SITES { Some(Self(number)) } else { None }
    }

    /// Returns the site's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the site's number as an array index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the first `count` sites.
    pub fn first(count: usize) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (0..count.min(MAX_SITES) as u8).map(Self)
    }
}

impl fmt::Debug for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "site {}", self.0)
    }
}

impl fmt::Display for SiteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of sites.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SiteSet(u8);

impl SiteSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the first `count` sites.
    pub fn first(count: usize) -> Self {
        SiteId::first(count).collect()
    }

    /// Creates a set from one bit per site.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns one bit per site.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Adds a site.
    pub const fn insert(&mut self, site: SiteId) {
        self.0 |= 1 << site.0;
    }

    /// Removes a site.
    pub const fn remove(&mut self, site: SiteId) {
        self.0 &= !(1 << site.0);
    }

    /// Returns whether the site is in the set.
    pub const fn contains(self, site: SiteId) -> bool {
        self.0 & (1 << site.0) != 0
    }

    /// Returns the union of both sets.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether every site of `other` is in this set.
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the sites, lowest first.
    pub fn iter(self) -> impl Iterator<Item = SiteId> {
        SiteId::first(MAX_SITES).filter(move |site| self.contains(*site))
    }
}

impl FromIterator<SiteId> for SiteSet {
    fn from_iter<I: IntoIterator<Item = SiteId>>(sites: I) -> Self {
        let mut set = Self::EMPTY;
        for site in sites {
            set.insert(site);
        }
        set
    }
}

impl fmt::Debug for SiteSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The source or destination of a datagram: a number that the transport chooses and that has no meaning to the engines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr(pub u64);
